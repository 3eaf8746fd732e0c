"""The state of the server: `/health`, metrics for Prometheus, and the data of the web page (current work of
the indexer, last runs, ages of documents, search times, clients, log of calls).
"""

import os
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from math import nan
from typing import TYPE_CHECKING, Any

from ctx import __version__, files
from ctx.clock import DAY_MS, iso_utc, now_ms
from ctx.config.find import client_name
from ctx.errors import ConfigError, NotFound, StoreError
from ctx.models import JSON, oldest_pending_ms, record_json
from ctx.server.work import Work
from ctx.tools.toolbox import Call, Toolbox
from ctx.workspace import Workspace

if TYPE_CHECKING:
    from ctx.memory.dialects.pack import Pack

_LEAST_FREE_BYTES = 256 << 10  # below this, `/health` reports a full disk: one write may need this much
MONTHS = 12  # how far back the page shows when documents changed, in months of 30 days
_LOGGED = 500  # the page shows at most this many logged calls
_SEARCHES = 20_000  # the times of this many searches are kept: five a second for an hour

# Environment variable with the folder in which worker processes share their metrics.
SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"
BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Overview:
    """The data for the endpoints of the web page. Its methods are called in worker threads."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # (end of the search in s, monotonic clock; its duration in ms).
        self._searches: deque[tuple[float, float]] = deque(maxlen=_SEARCHES)
        # The cached result of `_document_ages`, and its key: the number of the last catalog write (seq), and
        # the day.
        self._ages: tuple[tuple[int, int], dict[str, list[int]]] | None = None
        workspace.toolbox.observe(self._note)

    def _note(self, call: Call) -> None:
        if call.tool == "search" and call.outcome == "ok":
            self._searches.append((time.monotonic(), call.duration_s * 1000))

    def activity(self) -> JSON:
        """The current work of the indexer, the last run of each source, search times of the last hour, ages
        of documents, the folders of sources, and the name that this server has in the settings of clients.
        """
        state = self._workspace.indexer_state() or {}
        return {
            **state.get("activity", {"phase": "idle", "degraded": []}),
            "name": client_name(self._workspace.config.root),
            "runs": state.get("runs", {}),
            "searches": self._search_times(),
            "ages": self._document_ages(),
            "roots": {
                folder.name: os.path.abspath(folder.root) for folder in self._workspace.config.filesystems
            },
        }

    def clients(self, url: str) -> JSON:
        """The clients that `ctx connect` supports, installed ones first, with their entries for `url`."""
        from ctx.cli.connect import connectable  # imports tomlkit, which a server does not need to start

        return {"clients": connectable(client_name(self._workspace.config.root), url)}

    def log(self, *, clear: bool = False) -> JSON:
        """The latest calls of clients, or with `clear` the number of deleted calls.

        Raises `NotFound` if calls are not logged, and `StoreError`.
        """
        activity = self._workspace.activity
        if activity is None:
            raise NotFound("calls are not logged: [server] activity is false")
        if clear:
            return {"cleared": activity.clear()}
        return {"entries": [record_json(entry) for entry in activity.entries(_LOGGED)]}

    def _document_ages(self) -> dict[str, list[int]]:
        """For each source, the number of documents by age of their last change.

        A list has one count for each period of 30 days, latest first, and then one for all older documents.
        """
        day = now_ms() // DAY_MS
        state = (self._workspace.catalog.seq(), day)
        # Cached, because the page asks every second and counting reads the row of every document.
        if self._ages is None or self._ages[0] != state:
            self._ages = state, self._workspace.catalog.ages((day + 1) * DAY_MS, 30 * DAY_MS, MONTHS)
        return self._ages[1]

    def _search_times(self) -> list[JSON]:
        """Search times for each minute of the last hour that had searches, latest first.

        Each entry has the minutes ago, the number of searches, and their median and longest time in ms.
        """
        now_s = time.monotonic()
        by_minute: dict[int, list[float]] = {}
        for ended_s, duration_ms in self._searches.copy():  # copied, because calls in other threads add to it
            by_minute.setdefault(int((now_s - ended_s) // 60), []).append(duration_ms)
        return [
            {
                "minutes_ago": minute,
                "count": len(durations),
                "median_ms": round(sorted(durations)[len(durations) // 2], 1),
                "slowest_ms": round(max(durations), 1),
            }
            for minute, durations in sorted(by_minute.items())
            if minute < 60
        ]

    def pack_at_banks(self) -> "Pack | None":
        """The memory pack that serves `/mcp/{bank}` and requests with `X-Bank-Id`; None if there is none."""
        return next((pack for pack in self._workspace.packs if pack.dialect.at_banks), None)


# -- health --------------------------------------------------------------------------------------------------


def health(workspace: Workspace) -> dict[str, JSON]:
    """The state of a workspace for `/health`.

    Problems, such as a database or search engine that does not answer, are not raised, but listed under
    `degraded`.
    """
    answer: dict[str, JSON] = {
        "status": "ok",
        "version": __version__,
        "model": workspace.model,  # None if embeddings are disabled
        "pending": None,
        "index_behind": None,
        "oldest_pending_at": None,
    }
    problems: list[str] = []
    seq = None
    try:
        workspace.catalog.reach()
        answer["pending"] = workspace.catalog.pending_count(workspace.model) if workspace.model else 0
        if answer["pending"] and (oldest_ms := oldest_pending_ms(workspace.statuses())) is not None:
            answer["oldest_pending_at"] = iso_utc(oldest_ms)
        seq = workspace.catalog.seq()
    except StoreError as error:
        problems.append(f"catalog: {error.message}")
    try:
        if seq is not None:
            workspace.index.reach()
            answer["index_behind"] = max(0, seq - workspace.index.applied_seq())
        # Until all documents are embedded with the configured model, searches use the previous model.
        answering = workspace.model_switch.answering() if answer["pending"] else None
        if answering is not None and answering.model != workspace.model:
            answer["answering"] = answering.model
    except StoreError as error:
        problems.append(f"index: {error.message}")
    if missing := workspace.memory_loss():
        problems.append(f"memory: {missing}")
    folders = [workspace.config.folder]
    if not workspace.config.store.url:
        with suppress(StoreError):
            folders.append(workspace.location.place.folder)
    for folder in folders:
        with suppress(OSError):
            if files.free_bytes(folder) < _LEAST_FREE_BYTES:
                name = os.path.basename(folder)
                problems.append(f"disk: the disk is full, nothing can be stored in {name}")
    answer["uptime_s"] = round(time.monotonic() - workspace.started_s, 1)
    state = workspace.indexer_state()
    if state is not None:
        answer |= state["health"]
        problems = list(dict.fromkeys((*problems, *state["degraded"])))
    if state is not None or problems:
        answer["degraded"] = problems
    return answer


# -- metrics -------------------------------------------------------------------------------------------------


class Metrics:
    """Metrics for Prometheus: calls by tool, interface and outcome (`[server] metrics`, the `metrics` extra).

    With several worker processes, the metrics are summed through files in a shared folder.
    """

    def __init__(self, toolbox: Toolbox, work: Work, health: Callable[[], dict[str, JSON]]) -> None:
        """`health` returns the reply of `/health`; each `render` calls it, to tell how fresh the index is.

        Raises `ConfigError` if prometheus-client is not installed.
        """
        try:
            # Installed only with an extra; takes 60 ms, and most servers do not use it.
            import prometheus_client as prometheus
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
        fresh: Any = partial(prometheus.Gauge, multiprocess_mode="mostrecent", **own)
        prometheus.ProcessCollector(**own)
        prometheus.Info("ctx", "The server", **own).info({"version": __version__})
        self._calls = prometheus.Counter(
            "ctx_calls", "Tool calls that ended", ("tool", "interface", "outcome"), **own
        )
        self._seconds = prometheus.Histogram(
            "ctx_call_seconds", "How long a tool call took", ("tool", "interface"), buckets=BUCKETS_S, **own
        )
        unfinished = prometheus.Gauge("ctx_calls_unfinished", "Calls waiting or running", ("lane",), **own)
        for lane in (work.searches, work.documents, work.scripts):
            unfinished.labels(lane.name).set_function(partial(getattr, lane, "unfinished"))
        self._health = health
        self._fresh = {
            "pending": fresh("ctx_pending_chunks", "Chunks without an embedding"),
            "index_behind": fresh("ctx_index_behind", "Writes that the index has not applied yet"),
            "degraded": fresh("ctx_degraded", "Parts of the server that do not work"),
        }
        self._toolbox = toolbox
        toolbox.observe(self._count)

    def render(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        health = self._health()
        health = {**health, "degraded": len(health.get("degraded") or ())}
        for key, gauge in self._fresh.items():
            value = health.get(key)
            gauge.set(value if isinstance(value, int) else nan)  # unknown while the store is unavailable
        return self._render(self._shown)

    def _count(self, call: Call) -> None:
        # Callers can send any name, but only the names of real tools may become time series.
        tool = call.tool if call.tool in self._toolbox.names() else "unknown"
        self._calls.labels(tool, call.caller.interface, call.outcome).inc()
        self._seconds.labels(tool, call.caller.interface).observe(call.duration_s)
