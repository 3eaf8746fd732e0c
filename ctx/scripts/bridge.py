"""Answers the host calls of running scripts: the requests that the sandbox sends to the server.

Calls for documents and tools go through the Toolbox (all tools of the server): `context.search(...)` in Lua
is the `search` tool, with the same checks, defaults and log. HTTP and files are handled in `lua/host.py`,
stored values in `store.py`.
"""

import json
import logging
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from ctx import files
from ctx.errors import BadRequest, CtxError, EmbeddingsDisabled, NotFound, ToolError, Unauthorized
from ctx.lua import host
from ctx.lua.pool import Host
from ctx.models import JSON, Caller, is_number
from ctx.scripts.store import OPERATIONS, HeldScriptStore, ScriptStore
from ctx.store.folder import is_of_store
from ctx.text.strings import one_line
from ctx.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from ctx.memory.ops import BankCall
    from ctx.memory.store import MemoryStore

logger = logging.getLogger(__name__)

MAX_DEPTH = 4  # longest chain of scripts that call each other; each holds a worker while it waits
PROGRESS_EVERY_S = 0.1  # at least this long between two progress reports to the client
MAX_FINAL_REPORTS = 10  # a script may send this many reports with `done >= total`, which do not wait
MAX_MESSAGE = 200  # a progress message is cut to this many characters
_FILTERS = ("source", "since", "until")
_HOST_CALLS: dict[str, Callable[[host.Policy, bytes], bytes]] = {
    "log": host.log,
    "fs.read": host.fs_read,
    "fs.list": host.fs_list,
    "env.get": lambda policy, payload: host.env_get(policy, payload, os.environ),
}


class Bridge(NamedTuple):
    """Answers the host calls of running scripts. `host_for` returns the function that does so for
    one caller.
    """

    toolbox: Toolbox
    store: ScriptStore | None = None  # None outside a project: values cannot be stored
    stores: tuple[str, ...] = ()  # the database files, which no script may read
    memory: "Callable[[], MemoryStore] | None" = None  # opens the store of memories

    @contextmanager
    def held(self) -> "Iterator[tuple[Bridge, HeldScriptStore | None]]":
        """Yields a bridge for a connector's scan, and its script store (None outside a project). Until the
        items of the scan are stored, the values that the scan stores are kept only in memory.
        """
        if self.store is None:
            yield self, None
            return
        with closing(HeldScriptStore(self.store)) as scan_store:
            yield self._replace(store=scan_store), scan_store

    def host_for(self, policy: host.Policy, caller: Caller, bank: "BankCall | None" = None) -> Host:
        """The function that answers the host calls of a script that runs for `caller`."""
        if self.stores:
            policy = policy._replace(withheld=self._is_store)
        return _RunningCall(self, policy, caller, bank).answer

    @contextmanager
    def running(self, policy: host.Policy, caller: Caller) -> Iterator[Host]:
        """Yields the function that answers host calls, with access to the script's memory bank (a named set
        of memories). If the block raises, writes to the bank are undone.

        Raises `Unauthorized` if the caller's key does not give access to the bank.
        """
        name = policy.memory_bank
        if name is None or self.memory is None:
            yield self.host_for(policy, caller)
            return
        from ctx.memory.ops import BankCall  # imports numpy, 70 ms
        from ctx.memory.records import Provenance, check_nameable

        if caller.banks is not None and check_nameable(name) not in caller.banks:
            raise Unauthorized(f"{policy.name}: this key does not open the bank '{name}'", presented=True)
        source = Provenance(None, None, caller.interface, caller.principal, policy.name)
        bank = BankCall(self.memory().bank(check_nameable(name), source))
        try:
            yield self.host_for(policy, caller, bank)
        except BaseException:
            bank.take_back()
            raise

    def _is_store(self, folder: str, name: str) -> bool:
        name = name.lower()  # compared in lower case, because some file systems ignore case
        return any(
            is_of_store(name, store.lower())
            and files.identity(folder) == files.identity(os.path.realpath(os.path.dirname(store)))
            for store in self.stores
        )


class _RunningCall:
    """Answers the host calls of one run of a script."""

    def __init__(self, bridge: Bridge, policy: host.Policy, caller: Caller, bank: "BankCall | None") -> None:
        self._bridge = bridge
        self._policy = policy
        self._caller = caller
        self._bank = bank
        self._progress = _Progress(caller)
        self._context_calls: dict[str, Callable[[dict[str, JSON], float], JSON]] = {
            "context.search": self._search,
            "context.get": self._get,
            "context.outline": partial(self._use_builtin, "outline"),
            "context.symbol": partial(self._use_builtin, "symbol"),
            "context.sources": self._sources,
            "context.call": self._call,
            "context.progress": self._progress.report,
            **{f"context.store.{name}": partial(self._use_store, name) for name in OPERATIONS},
        }

    def answer(self, operation: str, payload: bytes, deadline_s: float) -> bytes:
        if operation == "http":
            return host.http(self._policy, payload, deadline_s)
        if operation in _HOST_CALLS:
            return _HOST_CALLS[operation](self._policy, payload)
        arguments = json.loads(payload) if payload else {}
        call = self._context_calls.get(operation)
        if call is not None:
            if not isinstance(arguments, dict):
                raise ToolError(f"{operation}: the arguments are not a table")
            return _encoded(call(arguments, deadline_s))
        if self._bank is not None:
            name = operation.partition(".")[2]
            values = arguments if isinstance(arguments, list) else []
            return _encoded(self._bank.run(name, _by_name(name, values)))
        raise ToolError(f"{operation} is not available to this script")

    def _use_tool(self, name: str, arguments: JSON, deadline_s: float) -> JSON:
        caller = self._caller
        inner = caller._replace(
            interface="script", progress=None, deadline_s=deadline_s, script_depth=caller.script_depth + 1
        )
        return self._bridge.toolbox.call(name, arguments, inner)

    def _use_builtin(self, name: str, arguments: JSON, deadline_s: float) -> JSON:
        try:
            return self._use_tool(name, arguments, deadline_s)
        except EmbeddingsDisabled:
            raise
        except (BadRequest, NotFound) as error:
            raise ToolError(f"context.{name}: {error.message}") from error

    # -- documents -------------------------------------------------------------------------------------------

    def _search(self, options: dict[str, JSON], deadline_s: float) -> JSON:
        """The results of the `search` tool."""
        arguments = _search_arguments(options)
        try:
            reply = self._use_builtin("search", arguments, deadline_s)
        except EmbeddingsDisabled:
            # The example scripts of Context Harness ask for hybrid search. Without an embedding model,
            # keyword search is better than an error.
            logger.warning(
                "script '%s' asked for %s search, but embeddings are disabled: using keyword search",
                self._policy.name,
                arguments.get("mode"),
            )
            reply = self._use_builtin("search", {**arguments, "mode": "keyword"}, deadline_s)
        return reply["results"]

    def _get(self, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        try:
            return self._use_tool("get", {"id": arguments.get("id"), "chunks": True}, deadline_s)
        except NotFound as error:
            raise ToolError("document not found") from error

    def _sources(self, _: dict[str, JSON], deadline_s: float) -> JSON:
        return [
            {**source, **({"notes": source["note"]} if source.get("note") else {})}
            for source in self._use_tool("sources", {}, deadline_s)["sources"]
        ]

    # -- other tools -----------------------------------------------------------------------------------------

    def _call(self, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        """Call another tool, if the operator allows this script to call it. Tools for memories are always
        refused.
        """
        name = str(arguments.get("name"))
        label = one_line(name[:64])
        if name not in self._policy.calls:
            raise ToolError(
                f"context.call: this script may not call '{label}'; name it in calls = [...] to allow it"
            )
        if self._caller.script_depth >= MAX_DEPTH:
            raise ToolError(
                f"context.call: {label}: {MAX_DEPTH} scripts are already waiting for each other; "
                "do they call each other in a loop?"
            )
        try:
            if self._bridge.toolbox.get(name).pack is not None:
                raise ToolError("it reads memories, which scripts may not reach through another tool")
            return self._use_tool(name, arguments.get("arguments"), deadline_s)
        except CtxError as error:
            raise ToolError(f"context.call: {label}: {error.message}") from error

    # -- its stored values -----------------------------------------------------------------------------------

    def _use_store(self, operation: str, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        if self._bridge.store is None or not self._policy.store:
            raise ToolError("context.store is not available here: it needs a project")
        return self._bridge.store.call(operation, self._policy.store, arguments, deadline_s)


class _Progress:
    """Passes a script's progress reports to its caller. Drops a report if `done` has not grown, which MCP
    forbids, or if it comes too soon after the last one.
    """

    def __init__(self, caller: Caller) -> None:
        self._send = caller.progress
        self._done = -1.0
        self._sent_s = -math.inf
        self._final_left = MAX_FINAL_REPORTS

    def report(self, arguments: dict[str, JSON], _: float) -> None:
        count, message = _amount(arguments.get("done")), arguments.get("message")
        total = None if arguments.get("total") is None else _amount(arguments.get("total"))
        now_s = time.monotonic()
        final = self._final_left > 0 and total is not None and count >= total
        too_soon = now_s - self._sent_s < PROGRESS_EVERY_S and not final
        if self._send is None or count <= self._done or too_soon:
            return
        self._done, self._sent_s = count, now_s
        self._final_left -= final
        self._send(count, total, one_line(str(message or ""), MAX_MESSAGE))


def _amount(value: JSON) -> float:
    if is_number(value) and 0 <= value < 1e15:
        return value
    raise ToolError("context.progress: done and total must be numbers, 0 or more")


def _by_name(operation: str, values: list[JSON]) -> JSON:
    """The positional arguments of a Lua call as name -> value: required arguments first, then those in a
    final table of options.
    """
    from ctx.memory.ops import OPS  # already imported: the script has a memory bank

    if operation not in OPS:
        return {}  # `BankCall.run` then reports that the operation is unknown
    required = OPS[operation].required
    if len(values) == 1 and isinstance(values[0], dict) and (not required or required[0] in values[0]):
        return values[0]
    options = values[len(required) :] or [None]
    if len(options) > 1 or not isinstance(options[0], dict | None):
        expected = ", ".join(required) or "no arguments"
        raise BadRequest(f"memory.{operation}: expected {expected} and a table of options")
    return dict(zip(required, values, strict=False)) | (options[0] or {})


def _search_arguments(options: dict[str, JSON]) -> dict[str, JSON]:
    """The arguments for the `search` tool, from the options of `context.search`. Scripts written for Context
    Harness have the filters among the options; the tool expects them in an object `filters`.
    """
    arguments = {name: value for name, value in options.items() if name not in _FILTERS}
    filters = arguments.pop("filters", None) or {}
    if isinstance(filters, dict):
        filters = {**filters, **{name: options[name] for name in _FILTERS if name in options}}
    return {**arguments, "filters": filters} if filters else arguments


def _encoded(value: JSON) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
