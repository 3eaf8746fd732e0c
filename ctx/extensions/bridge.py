"""What a running script asks of the server, answered: search and documents by the Toolbox, the machine by
`lua/host.py`.

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

_FILTERS = ("source", "since", "until")
Memory = Callable[[str, JSON, Caller], JSON]
"""`memory(operation, arguments, caller)`:
what a pack's `context.memory`, `bank`, `session` and `health` do."""


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
            arguments = json.loads(payload) if payload else {}
            if operation.startswith("context."):
                return _encoded(
                    self._context(operation, arguments, policy, inner._replace(deadline_s=deadline_s))
                )
            if memory is not None:
                return _encoded(memory(operation, arguments, caller))
            raise ToolError(f"{operation} is not available to this script")

        return answer

    def _context(self, operation: str, arguments: JSON, policy: host.Policy, caller: Caller) -> JSON:
        if not isinstance(arguments, dict):
            raise ToolError(f"{operation}: the arguments are not a table")
        try:
            if operation == "context.search":
                return self._search(arguments, policy, caller)
            if operation == "context.get":
                return self.toolbox.call("get", {"id": arguments.get("id"), "chunks": True}, caller)
            if operation == "context.sources":
                return [
                    {**source, **({"notes": source["note"]} if source.get("note") else {})}
                    for source in self.toolbox.call("sources", {}, caller)["sources"]
                ]
        except NotFound as error:
            raise ToolError("document not found") from error
        raise ToolError(f"{operation} is not available to this script")

    def _search(self, options: dict[str, JSON], policy: host.Policy, caller: Caller) -> JSON:
        """The results of the `search` tool, which refuses what it refuses everybody."""
        arguments = _search_arguments(options)
        try:
            reply = self.toolbox.call("search", arguments, caller)
        except EmbeddingsDisabled:
            # The published example scripts ask for hybrid; without a model, words are better than an error.
            logger.warning(
                "script '%s' asked for %s search, but embeddings are disabled: answered by keyword",
                policy.name,
                arguments.get("mode"),
            )
            reply = self.toolbox.call("search", {**arguments, "mode": "keyword"}, caller)
        except BadRequest as error:
            raise ToolError(f"context.search: {error.message}") from error
        return reply["results"]


def _search_arguments(options: dict[str, JSON]) -> dict[str, JSON]:
    """The tool's arguments: Context Harness has the filters among the options, the tool in a table of their
    own.
    """
    arguments = {name: value for name, value in options.items() if name not in _FILTERS}
    filters = arguments.pop("filters", None) or {}
    if isinstance(filters, dict):
        filters = {**filters, **{name: options[name] for name in _FILTERS if name in options}}
    return {**arguments, "filters": filters} if filters else arguments


def _encoded(value: JSON) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
