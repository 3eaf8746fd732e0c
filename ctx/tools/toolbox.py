"""Tools and agents, and the one way to call them.

REST, MCP, CLI and Lua all use `Toolbox.call`: it finds the tool, checks the arguments, fills in defaults,
reports the call to observers and raises one kind of error. Agents are named prompts that operators write,
inline in the configuration or as scripts. REST lists them under `/agents`, MCP as prompts; both use
`Agents.prompt`.
"""

import re
import time
from collections.abc import Callable
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar

from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.models import JSON, Caller
from ctx.text.strings import one_line
from ctx.tools.schema import Check, compile_check, put_right

NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")  # what every model's function-calling interface accepts
# Routes of /tools/ and the built-in tools.
NAME_RULE = "a name must have 1 to 64 of the characters A-Z a-z 0-9 _ -"
RESERVED = frozenset({"list", "search", "get", "outline", "symbol", "sources", "refresh"})
IGNORED = "ignored_arguments"  # in a reply: unknown arguments


def name_fault(noun: str, name: str, origin: str) -> str | None:
    """Why a tool or agent must not have this name; None if the name is allowed."""
    if not NAME.fullmatch(name):
        fault = NAME_RULE
    elif noun == "tool" and name in RESERVED:
        fault = "the name is reserved; rename the tool"
    else:
        return None
    return f"{noun} '{one_line(name)}' ({one_line(origin)}): {fault}"


def _unchecked(arguments: dict[str, JSON]) -> dict[str, JSON]:
    return arguments


class Annotations(NamedTuple):
    """Hints for clients about a tool. The defaults are MCP's and promise nothing."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Tool(NamedTuple):
    """A tool.

    `run(arguments, caller)` gets checked arguments with defaults filled in, and returns JSON or raises a
    `CtxError`. `bare`: REST answers the result itself, not `{"result": ...}`. `origin` is where the tool was
    defined, a file or "built in", for messages about two tools of one name.
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
    lengthy: bool = False  # its replies are whole documents: megabytes, not kilobytes
    pack: str | None = None  # the memory pack it belongs to, with its own access rules and list
    # Accept what models send: lists as text, and unknown arguments, which are ignored and named in a note.
    lenient: bool = False
    also: tuple[str, ...] = ()  # arguments that `run` takes besides `parameters`; of lenient tools
    failure: JSON = None  # extra fields of a failed call's structured reply over MCP
    alternatives: tuple[tuple[str, ...], ...] = ()  # sets of parameters; a call must give one of them
    origin: str = "built in"
    check: Check = _unchecked  # of the arguments against `parameters`; the Toolbox sets it
    named: bool = False  # in the configuration; False if it was found in a folder


class Call(NamedTuple):
    """A call that ended, for the log and the metrics. `outcome` is "ok" or an error word."""

    tool: str
    caller: Caller
    duration_s: float
    outcome: str


class Named(Protocol):
    """`origin` says where the entry was defined (a file, or "built in"), for messages about two entries with
    one name.
    """

    @property
    def name(self) -> str: ...

    @property
    def origin(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Registry(Generic[Entry]):
    """Entries by name, and the names of those that could not be loaded. Safe from several threads."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, Entry] = {}
        self._failed: dict[str, CtxError] = {}
        self._lock = Lock()
        self._listeners: list[Callable[[], None]] = []
        self._before: Callable[[str], None] | None = None
        self.version = 0  # grows with every change of the list

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Registers an entry. Raises `ConfigError` where two share a name."""
        with self._lock:
            twin = self._entries.get(entry.name)
            if twin is not None and not replace:
                raise ConfigError(
                    f"two {self._noun}s are called '{entry.name}': {twin.origin} and {entry.origin}; rename "
                    "one"
                )
            self._entries[entry.name] = entry
            self._failed.pop(entry.name, None)
        self._changed()

    def add_failed(self, name: str, error: CtxError) -> None:
        """Records an entry that could not be loaded: using it raises `error`, and lists leave it out."""
        with self._lock:
            self._failed[name] = error

    def remove(self, name: str) -> None:
        with self._lock:
            removed = self._entries.pop(name, None)
            self._failed.pop(name, None)
        if removed is not None:
            self._changed()

    def names(self) -> set[str]:
        """The names of all entries, including those that could not be loaded."""
        with self._lock:
            return {*self._entries, *self._failed}

    def before_use(self, look: Callable[[str], None]) -> None:
        """Calls `look` with the name before each use, in the caller's thread; it may reload a script."""
        self._before = look

    def on_change(self, listener: Callable[[], None]) -> None:
        """Calls `listener` when the list has changed."""
        self._listeners.append(listener)

    def _used(self, name: str, arguments: JSON) -> Entry:
        """The entry to call. Raises `NotFound`, the error of a failed load, and `BadRequest` if the arguments
        are not an object.
        """
        if self._before is not None:
            self._before(name)
        entry = self._looked_up(name)
        if not isinstance(arguments, dict):
            raise BadRequest("the arguments must be a JSON object")
        return entry

    def _looked_up(self, name: str) -> Entry:
        """The entry of that name. Raises `NotFound`, or the error of a failed load."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        failure = self._failed.get(name)
        if failure is None:
            raise NotFound(f"no {self._noun} registered with name: {name[:80]}")
        raise failure.with_traceback(None)  # or every use would lengthen it

    def _changed(self) -> None:
        self.version += 1
        for listen in self._listeners:
            listen()


class Toolbox(Registry[Tool]):
    """The registered tools; calls run in the caller's thread."""

    def __init__(self) -> None:
        super().__init__("tool")
        self._observers: list[Callable[[Call], None]] = []

    def add(self, entry: Tool, *, replace: bool = False) -> None:
        """Registers a tool. Raises `ConfigError` for a bad name, a reserved one, a second tool of the same
        name, or a bad schema.
        """
        fault = None if entry.builtin else name_fault("tool", entry.name, entry.origin)
        if fault is not None:
            raise ConfigError(fault)
        try:
            check = compile_check(entry.parameters)
        except ConfigError as error:
            raise ConfigError(f"tool '{entry.name}' ({entry.origin}): {error.message}") from error
        super().add(entry._replace(check=check), replace=replace)

    def get(self, name: str) -> Tool:
        """The tool of that name; if it failed to load, a tool that raises the error. Raises `NotFound`."""
        failure = self._failed.get(name)
        if failure is None or name in self._entries:
            return self._looked_up(name)

        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            raise failure.with_traceback(None)  # or every call would lengthen it

        return Tool(name, "could not be loaded", {"type": "object", "properties": {}}, run)

    def list(self) -> list[Tool]:
        """Built-in tools first, then by name: the same order on every start."""
        with self._lock:
            tools = list(self._entries.values())
        return sorted(tools, key=lambda tool: (not tool.builtin, "" if tool.builtin else tool.name))

    def call(self, name: str, arguments: JSON, caller: Caller) -> JSON:
        """Call a tool and return its answer. Raises `CtxError`; anything else is a bug in the tool."""
        began_s = time.perf_counter()
        outcome = "internal"
        try:
            tool = self._used(name, arguments)
            ignored: list[str] = []
            if tool.lenient and not (tool.builtin and caller.door == "script"):
                # What a script sends to a built-in tool is checked strictly: its author can correct it.
                arguments, ignored = put_right(tool.parameters, arguments, tool.also, strict=not tool.builtin)
            result = tool.run(tool.check(arguments), caller)
            outcome = "ok"
            return _with_ignored(result, ignored, tool.builtin) if ignored else result
        except CtxError as error:
            outcome = error.word
            raise
        finally:
            call = Call(name, caller, time.perf_counter() - began_s, outcome)
            for observe in self._observers:
                observe(call)

    def observe(self, observer: Callable[[Call], None]) -> None:
        """Calls `observer` with every finished call, in the caller's thread."""
        self._observers.append(observer)


def _with_ignored(result: JSON, names: list[str], builtin: bool) -> JSON:
    """The result with the names of the ignored arguments: in a field of an object, or a line of a text."""
    names = [name[:80] for name in names[:20]]
    if isinstance(result, dict) and builtin:
        ignored = f"ignored unknown arguments: {', '.join(names)}"
        return {**result, "note": "; ".join(filter(None, [result.get("note"), ignored]))}
    if isinstance(result, dict):
        return {**result, IGNORED: names}
    if isinstance(result, str):
        return f"{result}\n(no effect: {', '.join(names)})"
    return {"result": result, IGNORED: names}


# -- agents --------------------------------------------------------------------------------------------------


class AgentArgument(NamedTuple):
    name: str
    description: str = ""
    required: bool = False


class Prompt(NamedTuple):
    """A resolved agent: the system text, the tools it wants, and its first messages `{"role", "content"}`."""

    system: str
    tools: tuple[str, ...] = ()
    messages: tuple[dict[str, str], ...] = ()


class Agent(NamedTuple):
    """One agent. `resolve(arguments, caller)` raises a `CtxError`; `source` is "toml", "lua" or "pack"."""

    name: str
    description: str
    resolve: Callable[[dict[str, JSON], Caller], Prompt]
    tools: tuple[str, ...] = ()
    arguments: tuple[AgentArgument, ...] = ()
    source: str = "toml"
    origin: str = "the configuration"
    pack: str | None = None  # the memory pack it belongs to; it is guarded like the pack's tools
    named: bool = False  # in the configuration; False if it was found in a folder


def inline_agent(name: str, description: str, system: str, tools: tuple[str, ...]) -> Agent:
    """An agent with a fixed system text."""
    prompt = Prompt(system, tools)
    return Agent(name, description, lambda arguments, caller: prompt, tools, named=True)


class Agents(Registry[Agent]):
    """The registered agents, by name."""

    def __init__(self) -> None:
        super().__init__("agent")

    def list(self) -> list[Agent]:
        with self._lock:
            return [self._entries[name] for name in sorted(self._entries)]

    def prompt(self, name: str, arguments: JSON, caller: Caller) -> Prompt:
        """The prompt of an agent. Raises `NotFound`, `BadRequest`, or what the script raised."""
        agent = self._used(name, arguments)
        for argument in agent.arguments:
            if argument.required and arguments.get(argument.name) is None:
                raise BadRequest(f"missing required argument: {argument.name}")
        return agent.resolve(arguments, caller)
