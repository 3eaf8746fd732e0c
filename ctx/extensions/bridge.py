"""What a running script asks of the server, answered: search and documents by the Toolbox, the machine by `lua/host.py`.

`context.search(...)` in Lua is the `search` tool: the same checks, the same defaults, the same log.
"""

import json
import logging
import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ctx.errors import BadRequest, EmbeddingsDisabled, NotFound, ToolError
from ctx.lua import host
from ctx.lua.pool import Host
from ctx.tools.base import Toolbox
from ctx.types import JSON, Caller

logger = logging.getLogger(__name__)

MODES = ("keyword", "semantic", "hybrid")
Memory = Callable[[str, JSON, Caller], JSON]
"""`memory(operation, arguments, caller)`: what a pack's `context.memory`, `bank`, `session` and `health` do."""


class Bridge(NamedTuple):
    """Makes the host of one call."""

    toolbox: Toolbox
    environ: Mapping[str, str] = os.environ

    def host_for(self, policy: host.Policy, caller: Caller, memory: Memory | None = None) -> Host:
        """The host of a script that runs for `caller`; `memory` answers a pack's."""
        inner = caller._replace(door="script", progress=None)

        def answer(operation: str, payload: bytes, deadline_s: float) -> bytes:
            if operation == "log":
                return host.log(policy, payload)
            if operation == "http":
                return host.http(policy, payload, deadline_s)
            if operation == "fs.read":
                return host.fs_read(policy, payload)
            if operation == "fs.list":
                return host.fs_list(policy, payload)
            if operation == "env.get":
                return host.env_get(policy, payload, self.environ)
            asked = json.loads(payload) if payload else {}
            if operation.startswith("context."):
                return _encoded(
                    self._context(operation, asked, policy, inner._replace(deadline_s=deadline_s))
                )
            if memory is not None:
                return _encoded(memory(operation, asked, caller))
            raise ToolError(f"{operation} is not available to this script")

        return answer

    def _context(self, operation: str, asked: JSON, policy: host.Policy, caller: Caller) -> JSON:
        if not isinstance(asked, dict):
            raise ToolError(f"{operation}: the arguments are not a table")
        try:
            if operation == "context.search":
                return self._search(asked, policy, caller)
            if operation == "context.get":
                return self.toolbox.call("get", {"id": asked.get("id")}, caller)
            if operation == "context.sources":
                return [
                    {**source, **({"notes": source["note"]} if source.get("note") else {})}
                    for source in self.toolbox.call("sources", {}, caller)["sources"]
                ]
        except NotFound as error:
            raise ToolError("document not found") from error
        raise ToolError(f"{operation} is not available to this script")

    def _search(self, asked: dict[str, JSON], policy: host.Policy, caller: Caller) -> JSON:
        """Options of the wrong type are passed over, as Context Harness does: its published scripts rely on it."""
        wanted: dict[str, JSON] = {"query": asked.get("query"), "mode": "keyword"}
        if asked.get("mode") in MODES:
            wanted["mode"] = asked["mode"]
        limit = asked.get("limit")
        if isinstance(limit, int | float) and not isinstance(limit, bool) and limit >= 1:
            wanted["limit"] = min(int(limit), 100)
        filters = {
            name: asked[name] for name in ("source", "since", "until") if isinstance(asked.get(name), str)
        }
        if filters:
            wanted["filters"] = filters
        try:
            answer = self.toolbox.call("search", wanted, caller)
        except EmbeddingsDisabled:
            # The published example scripts ask for hybrid; without a model, words are better than an error.
            logger.warning(
                "script '%s' asked for %s search, but embeddings are disabled: answered by keyword",
                policy.name,
                wanted["mode"],
            )
            answer = self.toolbox.call("search", {**wanted, "mode": "keyword"}, caller)
        except BadRequest as error:
            raise ToolError(f"context.search: {error.message}") from error
        return answer["results"]


def _encoded(value: JSON) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
