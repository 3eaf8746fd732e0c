"""Metrics for Prometheus: calls by tool, interface and outcome (`[server] metrics`, the `metrics` extra).

With several worker processes, the metrics are summed through files in a shared folder.
"""

import os
from collections.abc import Callable, Mapping
from functools import partial
from math import nan
from typing import Any

from ctx import __version__
from ctx.errors import ConfigError
from ctx.models import JSON
from ctx.server.work import Work
from ctx.tools.toolbox import Call, Toolbox

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # names the folder where worker processes share their metrics
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one server. Raises `ConfigError` if prometheus-client is not installed."""

    def __init__(self, toolbox: Toolbox, work: Work, health: Callable[[], Mapping[str, JSON]]) -> None:
        """`health` returns the state of `/health`. Each `render` calls it for the freshness of the index."""
        try:
            import prometheus_client as prometheus  # an extra; takes 60 ms, and most servers do not use it
        except ImportError as error:
            raise ConfigError(
                "[server] metrics = true needs prometheus-client: pip install 'ctx-server[metrics]'"
            ) from error
        self._registry = self._shown = prometheus.CollectorRegistry()
        self._render = prometheus.generate_latest
        self.media_type = prometheus.CONTENT_TYPE_LATEST
        if SHARED_FOLDER in os.environ:
            from prometheus_client.multiprocess import MultiProcessCollector

            self._shown = prometheus.CollectorRegistry()
            MultiProcessCollector(self._shown)  # type: ignore[no-untyped-call]
        own: dict[str, Any] = {"registry": self._registry}

        def fresh(name: str, about: str) -> Any:
            return prometheus.Gauge(name, about, multiprocess_mode="mostrecent", **own)

        prometheus.ProcessCollector(**own)
        prometheus.Info("ctx", "The server", **own).info({"version": __version__})
        self._calls = prometheus.Counter(
            "ctx_calls", "Tool calls that ended", ("tool", "door", "outcome"), **own
        )
        self._seconds = prometheus.Histogram(
            "ctx_call_seconds", "How long a tool call took", ("tool", "door"), buckets=BUCKETS_S, **own
        )
        unfinished = prometheus.Gauge("ctx_calls_unfinished", "Calls waiting or running", ("lane",), **own)
        for lane in (work.searches, work.documents, work.scripts):
            unfinished.labels(lane.name).set_function(partial(getattr, lane, "unfinished"))
        self._health = health
        self._fresh = {
            "pending": fresh("ctx_pending_chunks", "Chunks without an embedding"),
            "index_behind": fresh("ctx_index_behind", "Writes that the index has not applied yet"),
        }
        self._degraded = fresh("ctx_degraded", "Parts of the server that do not work")
        self._toolbox = toolbox
        toolbox.observe(self._count)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        health = self._health()
        for key, gauge in self._fresh.items():
            value = health.get(key)
            gauge.set(value if isinstance(value, int) else nan)  # unknown while the store is unavailable
        self._degraded.set(len(health.get("degraded") or ()))
        return self._render(self._shown)

    def _count(self, call: Call) -> None:
        # Callers can send any name: only names of real tools may become time series.
        tool = call.tool if call.tool in self._toolbox.names() else "unknown"
        self._calls.labels(tool, call.caller.door, call.outcome).inc()
        self._seconds.labels(tool, call.caller.door).observe(call.duration_s)
