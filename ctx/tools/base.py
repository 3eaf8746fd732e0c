"""Tools, and the one way to call them.

REST, MCP, CLI and Lua all enter by `Toolbox.call`: found once, checked once, defaults filled once, observed once, one error model.
"""

import threading
import time
from collections.abc import Callable

from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.lean import NamedTuple, pattern
from ctx.tools.schema import Check, compile_check, put_right
from ctx.types import JSON, Caller

NAME = pattern(r"[A-Za-z0-9_-]{1,64}")  # what every model's function-calling interface accepts
RESERVED = frozenset(
    {"list", "search", "get", "sources", "refresh"}
)  # routes of /tools/ and the built-in tools


class Annotations(NamedTuple):
    """What a client may assume of a tool before it calls it. The defaults promise nothing (MCP's own defaults)."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Tool(NamedTuple):
    """One callable thing.

    `run(arguments, caller)` gets arguments that fit `parameters`, defaults filled; it returns JSON or raises a `CtxError`.
    `bare`: REST answers the result itself, not `{"result": ...}` (the document tools of seed 003).
    `origin` names where the tool was defined, for messages about two tools of one name: a file, or "built in".
    """

    name: str
    description: str
    parameters: JSON
    run: Callable[[dict[str, JSON], Caller], JSON]
    title: str | None = None
    output_schema: JSON | None = None
    annotations: Annotations = Annotations()
    builtin: bool = False
    bare: bool = False
    pack: str | None = None  # the memory pack it belongs to: another guard, another list
    lenient: bool = (
        False  # models add arguments nobody asked for and send lists as text: put right, not refused
    )
    origin: str = "built in"
    named: bool = False  # the operator named it in the configuration, and did not merely leave it in a folder


class Call(NamedTuple):
    """A call that ended, for the log and the metrics. `outcome` is "ok" or an error word."""

    tool: str
    caller: Caller
    duration_s: float
    outcome: str


class Toolbox:
    """The registered tools. Safe from several threads; calls run in the caller's thread."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Tool, Check]] = {}
        self._failed: dict[str, CtxError] = {}
        self._lock = threading.Lock()
        self._observers: list[Callable[[Call], None]] = []
        self._listeners: list[Callable[[], None]] = []
        self._before: Callable[[str], None] | None = None
        self.version = 0  # grows with every change of the list

    def add(self, tool: Tool, *, replace: bool = False) -> None:
        """Registers a tool. Raises `ConfigError` for a bad name, a reserved one, a second tool of the same name, or a bad schema."""
        if not tool.builtin and not NAME.fullmatch(
            tool.name
        ):  # ours are well named, and a cold search needs no pattern
            raise ConfigError(f"tool '{tool.name}' ({tool.origin}): a name has 1 to 64 of A-Z a-z 0-9 _ -")
        if tool.name in RESERVED and not tool.builtin:
            raise ConfigError(f"tool '{tool.name}' ({tool.origin}): the name is reserved; rename the tool")
        try:
            check = compile_check(tool.parameters)
        except ConfigError as error:
            raise ConfigError(f"tool '{tool.name}' ({tool.origin}): {error.message}") from error
        with self._lock:
            known = self._entries.get(tool.name)
            if known is not None and not replace:
                raise ConfigError(
                    f"two tools are called '{tool.name}': {known[0].origin} and {tool.origin}; rename one"
                )
            self._entries[tool.name] = (tool, check)
            self._failed.pop(tool.name, None)
            self.version += 1
        self._changed()

    def add_failed(self, name: str, error: CtxError) -> None:
        """Keeps the name of a tool that could not be loaded: a call to it raises `error`, the list leaves it out."""
        with self._lock:
            self._failed[name] = error

    def remove(self, name: str) -> None:
        with self._lock:
            removed = self._entries.pop(name, None)
            self._failed.pop(name, None)
            self.version += 1
        if removed:
            self._changed()

    def get(self, name: str) -> Tool:
        """The tool of that name; for one that could not be loaded, a tool that raises why. Raises `NotFound`."""
        return self._entry(name)[0]

    def _entry(self, name: str) -> tuple[Tool, Check]:
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        failed = self._failed.get(name)
        if failed is None:
            raise NotFound(f"no tool registered with name: {name[:80]}")

        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            raise failed.with_traceback(None)  # or every call would lengthen it

        return Tool(
            name, "could not be loaded", {"type": "object", "properties": {}}, run
        ), lambda arguments: arguments

    def list(self) -> list[Tool]:
        """Built-in tools first, then by name: the same order on every start."""
        with self._lock:
            return sorted(
                (tool for tool, _ in self._entries.values()),
                key=lambda tool: (not tool.builtin, "" if tool.builtin else tool.name),
            )

    def failed(self) -> dict[str, CtxError]:
        """The tools that could not be loaded, and why."""
        with self._lock:
            return dict(self._failed)

    def call(self, name: str, arguments: JSON, caller: Caller) -> JSON:
        """The tool's answer. Raises a `CtxError` and nothing else that the tool's author could have meant."""
        began_s = time.perf_counter()
        outcome = "internal"
        try:
            if self._before is not None:
                self._before(name)
            tool, check = self._entry(name)
            if not isinstance(arguments, dict):
                raise BadRequest("the arguments must be a JSON object")
            if tool.lenient:
                arguments = put_right(tool.parameters, arguments)
            result = tool.run(check(arguments), caller)
            outcome = "ok"
            return result
        except CtxError as error:
            outcome = error.word
            raise
        finally:
            call = Call(name, caller, time.perf_counter() - began_s, outcome)
            for observe in self._observers:
                observe(call)

    def before_call(self, look: Callable[[str], None]) -> None:
        """`look` is told of every call before its tool is found, in the caller's thread: a changed script is loaded anew there."""
        self._before = look

    def observe(self, observer: Callable[[Call], None]) -> None:
        """`observer` is told of every call as it ends, in the caller's thread."""
        self._observers.append(observer)

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is told when the list of tools has changed."""
        self._listeners.append(listener)

    def _changed(self) -> None:
        for listen in self._listeners:
            listen()
