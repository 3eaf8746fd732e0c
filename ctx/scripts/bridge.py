"""What a running script asks of the server, answered: search, documents and other tools by the Toolbox, the
machine by `lua/host.py`, its own values by `store.py`.

`context.search(...)` in Lua is the `search` tool: the same checks, the same defaults, the same log.
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
from ctx.errors import BadRequest, CtxError, EmbeddingsDisabled, NotFound, ToolError
from ctx.lua import host
from ctx.lua.pool import Host
from ctx.models import JSON, Caller, is_number
from ctx.scripts.store import HeldScriptStore, ScriptStore
from ctx.store.folder import is_of_store
from ctx.text.strings import one_line
from ctx.tools.toolbox import Toolbox

if TYPE_CHECKING:
    from ctx.memory import MemoryStore

logger = logging.getLogger(__name__)

MAX_DEPTH = 4  # scripts that call one another: each holds a worker while it waits
PROGRESS_EVERY_S = 0.1  # a loop that reports each of a million steps must not flood its client
MAX_ENDS = 10  # reports that say that all is done: they do not wait, and each step of a loop may say so
MAX_MESSAGE = 200  # characters of a report of progress
_FILTERS = ("source", "since", "until")
Memory = Callable[[str, JSON], JSON]
"""`memory(operation, arguments)`: what `context.memory` and `context.bank` do."""
_OF_HOST: dict[str, Callable[[host.Policy, bytes], bytes]] = {
    "log": host.log,
    "fs.read": host.fs_read,
    "fs.list": host.fs_list,
    "env.get": lambda policy, payload: host.env_get(policy, payload, os.environ),
}
# What a script's own store does, and the names of its arguments.
_STORE_ACTS: dict[str, tuple[Callable[..., JSON], tuple[str, ...]]] = {
    "context.store.get": (ScriptStore.get, ("key",)),
    "context.store.set": (ScriptStore.set, ("key", "value")),
    "context.store.add": (ScriptStore.add, ("key", "number")),
    "context.store.keys": (ScriptStore.keys, ()),
}


class Bridge(NamedTuple):
    """Makes the host of one call. `store` None: nothing is kept (a script is tried outside any project).
    `stores`: the catalog and the memories, which no script may read. `memory` opens the memories for scripts
    with a memory bank.
    """

    toolbox: Toolbox
    store: ScriptStore | None = None
    stores: tuple[str, ...] = ()
    memory: "Callable[[], MemoryStore] | None" = None

    @contextmanager
    def held(self) -> "Iterator[tuple[Bridge, HeldScriptStore | None]]":
        """The same, but that what a script keeps is held back, in the store that comes with it."""
        if self.store is None:
            yield self, None
            return
        with closing(HeldScriptStore(self.store)) as held:
            yield self._replace(store=held), held

    def host_for(self, policy: host.Policy, caller: Caller, memory: Memory | None = None) -> Host:
        """The host of a script that runs for `caller`."""
        if self.stores:
            policy = policy._replace(withheld=self._is_store)
        return _RunningCall(self, policy, caller, memory).answer

    @contextmanager
    def running(self, policy: host.Policy, caller: Caller) -> Iterator[Host]:
        """The same, with the script's memory bank: what was written to it is taken back if the block
        raises.
        """
        if policy.memory_bank is None or self.memory is None:
            yield self.host_for(policy, caller)
            return
        from ctx.scripts.memory import answer, open_bank  # imports numpy, 70 ms

        bank = open_bank(self.memory, policy.memory_bank, policy.name, caller)
        try:
            yield self.host_for(policy, caller, memory=partial(answer, bank))
        except BaseException:
            bank.take_back()
            raise

    def _is_store(self, folder: files.Identity, name: str) -> bool:
        name = name.lower()  # some file systems tell no letter cases apart
        return any(
            is_of_store(name, store.lower())
            and folder == files.identity(os.path.realpath(os.path.dirname(store)))
            for store in self.stores
        )


class _RunningCall:
    """One call of one script, as long as it runs."""

    def __init__(self, bridge: Bridge, policy: host.Policy, caller: Caller, memory: Memory | None) -> None:
        self._bridge = bridge
        self._policy = policy
        self._caller = caller
        self._memory = memory
        self._progress = _Progress(caller)
        self._contexts: dict[str, Callable[[dict[str, JSON], float], JSON]] = {
            "context.search": self._search,
            "context.get": self._get,
            "context.outline": partial(self._navigate, "outline"),
            "context.symbol": partial(self._navigate, "symbol"),
            "context.sources": self._sources,
            "context.call": self._call,
            "context.progress": self._progress.tell,
            **{name: partial(self._keep, *entry) for name, entry in _STORE_ACTS.items()},
        }

    def answer(self, operation: str, payload: bytes, deadline_s: float) -> bytes:
        if operation == "http":
            return host.http(self._policy, payload, deadline_s)
        if operation in _OF_HOST:
            return _OF_HOST[operation](self._policy, payload)
        arguments = json.loads(payload) if payload else {}
        act = self._contexts.get(operation)
        if act is not None:
            if not isinstance(arguments, dict):
                raise ToolError(f"{operation}: the arguments are not a table")
            return _encoded(act(arguments, deadline_s))
        if self._memory is not None:
            return _encoded(self._memory(operation, arguments))
        raise ToolError(f"{operation} is not available to this script")

    def _use(self, name: str, arguments: JSON, deadline_s: float) -> JSON:
        """What a tool answers to this script."""
        caller = self._caller
        inner = caller._replace(
            door="script", progress=None, deadline_s=deadline_s, script_depth=caller.script_depth + 1
        )
        return self._bridge.toolbox.call(name, arguments, inner)

    # -- documents -------------------------------------------------------------------------------------------

    def _search(self, options: dict[str, JSON], deadline_s: float) -> JSON:
        """The results of the `search` tool, which refuses what it refuses everybody."""
        arguments = _search_arguments(options)
        try:
            reply = self._use("search", arguments, deadline_s)
        except EmbeddingsDisabled:
            # The published example scripts ask for hybrid; without a model, words are better than an error.
            logger.warning(
                "script '%s' asked for %s search, but embeddings are disabled: answered by keyword",
                self._policy.name,
                arguments.get("mode"),
            )
            reply = self._use("search", {**arguments, "mode": "keyword"}, deadline_s)
        except BadRequest as error:
            raise ToolError(f"context.search: {error.message}") from error
        return reply["results"]

    def _get(self, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        try:
            return self._use("get", {"id": arguments.get("id"), "chunks": True}, deadline_s)
        except NotFound as error:
            raise ToolError("document not found") from error

    def _navigate(self, tool: str, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        """What `outline` or `symbol` answers."""
        try:
            return self._use(tool, arguments, deadline_s)
        except (BadRequest, NotFound) as error:
            raise ToolError(f"context.{tool}: {error.message}") from error

    def _sources(self, _: dict[str, JSON], deadline_s: float) -> JSON:
        return [
            {**source, **({"notes": source["note"]} if source.get("note") else {})}
            for source in self._use("sources", {}, deadline_s)["sources"]
        ]

    # -- other tools -----------------------------------------------------------------------------------------

    def _call(self, arguments: dict[str, JSON], deadline_s: float) -> JSON:
        """What a tool answers that the operator lets this script call. No script reaches memories so."""
        name = str(arguments.get("name"))
        label = one_line(name[:64])
        if name not in self._policy.calls:
            raise ToolError(
                f"context.call: this script may not call '{label}'; name it in calls = [...] to allow it"
            )
        if self._caller.script_depth >= MAX_DEPTH:
            raise ToolError(
                f"context.call: {label}: {MAX_DEPTH} scripts wait for one another already; "
                "do they call in a circle?"
            )
        try:
            if self._bridge.toolbox.get(name).pack is not None:
                raise ToolError("it reads memories, which no script reaches through another tool")
            return self._use(name, arguments.get("arguments"), deadline_s)
        except CtxError as error:
            raise ToolError(f"context.call: {label}: {error.message}") from error

    # -- what it keeps ---------------------------------------------------------------------------------------

    def _keep(
        self, act: Callable[..., JSON], names: tuple[str, ...], arguments: dict[str, JSON], deadline_s: float
    ) -> JSON:
        """What the script's own store answers."""
        if self._bridge.store is None or not self._policy.store:
            raise ToolError("context.store is not available here: it belongs to a project's tools")
        return act(self._bridge.store, self._policy.store, *map(arguments.get, names), deadline_s)


class _Progress:
    """Hands a script's reports to whoever waits for it: growing, as MCP wants them, and not too many."""

    def __init__(self, caller: Caller) -> None:
        self._tell = caller.progress
        self._done = -1.0
        self._told_s = -math.inf
        self._ends_left = MAX_ENDS

    def tell(self, arguments: dict[str, JSON], _: float) -> None:
        count, message = _amount(arguments.get("done")), arguments.get("message")
        total = None if arguments.get("total") is None else _amount(arguments.get("total"))
        present_s = time.monotonic()
        last = self._ends_left > 0 and total is not None and count >= total
        if (
            self._tell is None
            or count <= self._done
            or (present_s - self._told_s < PROGRESS_EVERY_S and not last)
        ):
            return
        self._done, self._told_s = count, present_s
        self._ends_left -= last
        self._tell(count, total, one_line(str(message or ""), MAX_MESSAGE))


def _amount(value: JSON) -> float:
    if is_number(value) and 0 <= value < 1e15:
        return value
    raise ToolError("context.progress: done and total are numbers, 0 or more")


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
