"""Tools and agents, how to call them, and rate limits of calls.

REST, MCP, CLI and Lua all use `Toolbox.call`: it finds the tool, checks the arguments, fills in defaults,
reports the call to observers and raises a `CtxError` if the call fails. Agents are named prompts that
operators write in the configuration or as scripts. REST lists them under `/agents`, MCP as prompts; both use
`Agents.prompt`.
"""

import re
import sqlite3
import time
from collections.abc import Callable, Sequence
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from ctx.errors import BadRequest, ConfigError, CtxError, NotFound, RateLimited
from ctx.models import JSON, Caller
from ctx.text.strings import one_line
from ctx.tools.schema import Check, compile_check, put_right

# The names that the function-calling interfaces of all models accept.
NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
NAME_RULE = "a name must have 1 to 64 of the characters A-Z a-z 0-9 _ -"
# Names of the built-in tools and of routes below /tools/.
RESERVED = frozenset({"list", "search", "get", "outline", "symbol", "sources", "refresh"})
IGNORED = "ignored_arguments"  # field of a reply that names the unknown arguments


def name_fault(noun: str, name: str, origin: str) -> str | None:
    """The reason why a tool or agent must not have this name; None if the name is allowed."""
    if not NAME.fullmatch(name):
        fault = NAME_RULE
    elif noun == "tool" and name in RESERVED:
        fault = "the name is reserved; rename the tool"
    else:
        return None
    return f"{noun} '{one_line(name)}' ({one_line(origin)}): {fault}"


class Annotations(NamedTuple):
    """Hints for clients about a tool's effects. The defaults are MCP's and promise nothing."""

    read_only: bool = False
    destructive: bool = True
    idempotent: bool = False
    open_world: bool = True


class Tool(NamedTuple):
    """A tool that models, clients and scripts can call.

    `run(arguments, caller)` gets checked arguments with defaults filled in. It returns JSON or raises a
    `CtxError`. `bare`: REST returns the result itself, not `{"result": ...}`. `origin` is where the tool was
    defined, a file or "built in", for the error message if two tools have the same name.
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
    lengthy: bool = False  # whether replies may be whole documents, with megabytes
    # The memory pack that the tool belongs to, if any; packs have their own access rules and tool list.
    pack: str | None = None
    # Accept imprecise arguments from models: lists as text, and unknown arguments, which are ignored with a
    # note.
    lenient: bool = False
    also: tuple[str, ...] = ()  # further arguments that `run` of a lenient tool takes
    failure: JSON = None  # extra fields of a failed call's structured reply over MCP
    # Sets of parameters; a call must have all parameters of one set.
    alternatives: tuple[tuple[str, ...], ...] = ()
    origin: str = "built in"
    check: Check = dict  # checks the arguments; the Toolbox sets this function
    named: bool = False  # whether the configuration names it; False if found in a folder


def document_tool(
    name: str,
    title: str,
    description: str,
    properties: dict[str, JSON],
    run: Callable[[dict[str, JSON], Caller], JSON],
    required: Sequence[str] = (),
    **options: JSON,
) -> Tool:
    """A built-in tool that reads the index. `properties` are the schemas of its parameters, and `options` are
    further fields of the tool.
    """
    parameters: JSON = {"type": "object", "properties": properties}
    if required:
        parameters["required"] = list(required)
    return Tool(
        name,
        description,
        parameters | {"additionalProperties": False},
        run,
        title,
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        builtin=True,
        lenient=True,
        **options,
    )


class Call(NamedTuple):
    """A finished call, for the log and the metrics. `outcome` is "ok" or the error's code."""

    tool: str
    caller: Caller
    duration_s: float
    outcome: str


class AgentArgument(NamedTuple):
    name: str
    description: str = ""
    required: bool = False


class Prompt(NamedTuple):
    """An agent's prompt: the system text, the tools it wants, and its first messages as `{"role",
    "content"}`.
    """

    system: str
    tools: tuple[str, ...] = ()
    messages: tuple[dict[str, str], ...] = ()


class Agent(NamedTuple):
    """A named prompt. `resolve(arguments, caller)` returns the prompt or raises a `CtxError`. `source` is
    "toml", "lua" or "pack".
    """

    name: str
    description: str
    resolve: Callable[[dict[str, JSON], Caller], Prompt]
    tools: tuple[str, ...] = ()
    arguments: tuple[AgentArgument, ...] = ()
    source: str = "toml"
    origin: str = "the configuration"
    # The memory pack that the agent belongs to, if any; the agent has the access rules of the pack's tools.
    pack: str | None = None
    named: bool = False  # whether the configuration names it; False if found in a folder


def inline_agent(name: str, description: str, system: str, tools: tuple[str, ...]) -> Agent:
    """An agent with a fixed system text."""
    prompt = Prompt(system, tools)
    return Agent(name, description, lambda arguments, caller: prompt, tools, named=True)


Entry = TypeVar("Entry", Tool, Agent)


class Registry(Generic[Entry]):
    """Entries by name, and the errors of entries that could not be loaded. Thread-safe."""

    def __init__(self, noun: str) -> None:
        self._noun = noun
        self._entries: dict[str, Entry] = {}
        self._failed: dict[str, CtxError] = {}
        self._lock = Lock()
        self._listeners: list[Callable[[], None]] = []
        self._before: Callable[[str], None] | None = None

    def add(self, entry: Entry, *, replace: bool = False) -> None:
        """Registers an entry. Raises `ConfigError` if the name is taken and `replace` is False."""
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
        """Records an entry that could not be loaded. Using it raises `error`, and lists leave it out."""
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
        """Sets a function that is called with the name before each use, in the caller's thread; it may reload
        a script.
        """
        self._before = look

    def on_change(self, listener: Callable[[], None]) -> None:
        """Adds a function that is called after the list has changed."""
        self._listeners.append(listener)

    def _used(self, name: str, arguments: JSON) -> Entry:
        """The entry to call. Raises `NotFound`, the error of a failed load, or `BadRequest` if the arguments
        are not an object.
        """
        if self._before is not None:
            self._before(name)
        entry = self._looked_up(name)
        if not isinstance(arguments, dict):
            raise BadRequest("the arguments must be a JSON object")
        return entry

    def _looked_up(self, name: str) -> Entry:
        """The entry with this name. Raises `NotFound`, or the error of a failed load."""
        entry = self._entries.get(name)
        if entry is not None:
            return entry
        failure = self._failed.get(name)
        if failure is None:
            raise NotFound(f"no {self._noun} registered with name: {name[:80]}")
        raise failure.with_traceback(None)  # otherwise every use would make the traceback longer

    def _changed(self) -> None:
        for listen in self._listeners:
            listen()


class Toolbox(Registry[Tool]):
    """The registered tools. Calls run in the caller's thread."""

    def __init__(self) -> None:
        super().__init__("tool")
        self._observers: list[Callable[[Call], None]] = []

    def add(self, entry: Tool, *, replace: bool = False) -> None:
        """Registers a tool. Raises `ConfigError` if its name is invalid, reserved or taken, or if its schema
        is invalid.
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
        """The tool with this name; if it failed to load, a tool that raises the error. Raises `NotFound`."""
        failure = self._failed.get(name)
        if failure is None or name in self._entries:
            return self._looked_up(name)

        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            raise failure.with_traceback(None)  # otherwise every call would make the traceback longer

        return Tool(name, "could not be loaded", {"type": "object", "properties": {}}, run)

    def list(self) -> list[Tool]:
        """All tools: first the built-in ones, then the others by name, so that the order is the same after
        every start.
        """
        with self._lock:
            tools = list(self._entries.values())
        return sorted(tools, key=lambda tool: (not tool.builtin, "" if tool.builtin else tool.name))

    def call(self, name: str, arguments: JSON, caller: Caller) -> JSON:
        """Call a tool and return its answer. Raises `CtxError`; anything else is a bug in the tool."""
        began_s = time.perf_counter()
        outcome, ignored = "internal", list[str]()
        try:
            tool = self._used(name, arguments)
            if tool.lenient and not (tool.builtin and caller.interface == "script"):
                # Check a script's call of a built-in tool strictly, because its author can correct it.
                arguments, ignored = put_right(tool.parameters, arguments, tool.also, strict=not tool.builtin)
                ignored = [name[:80] for name in ignored[:20]]
            result = tool.run(tool.check(arguments), caller)
            outcome = "ok"
            return _with_ignored(result, ignored, tool.builtin) if ignored else result
        except CtxError as error:
            outcome = error.word
            # Add the ignored names to the error, because a misspelt argument explains a missing one.
            if ignored and isinstance(error, BadRequest):
                raise BadRequest(f"{error.message} (unknown: {', '.join(ignored)})") from error
            raise
        finally:
            call = Call(name, caller, time.perf_counter() - began_s, outcome)
            for observe in self._observers:
                observe(call)

    def observe(self, observer: Callable[[Call], None]) -> None:
        """Adds a function that is called with every finished call, in the caller's thread."""
        self._observers.append(observer)


def _with_ignored(result: JSON, names: list[str], builtin: bool) -> JSON:
    """The result with the names of ignored arguments added: as a field of an object, or as a line
    of a text.
    """
    if isinstance(result, dict) and builtin:
        ignored = f"ignored unknown arguments: {', '.join(names)}"
        return {**result, "note": "; ".join(filter(None, [result.get("note"), ignored]))}
    if isinstance(result, dict):
        return {**result, IGNORED: names}
    if isinstance(result, str):
        return f"{result}\n(no effect: {', '.join(names)})"
    return {"result": result, IGNORED: names}


class Agents(Registry[Agent]):
    """The registered agents, by name."""

    def __init__(self) -> None:
        super().__init__("agent")

    def list(self) -> list[Agent]:
        with self._lock:
            return [self._entries[name] for name in sorted(self._entries)]

    def prompt(self, name: str, arguments: JSON, caller: Caller) -> Prompt:
        """The prompt of an agent. Raises `NotFound`, `BadRequest`, or the error of the agent's script."""
        agent = self._used(name, arguments)
        for argument in agent.arguments:
            if argument.required and arguments.get(argument.name) is None:
                raise BadRequest(f"missing required argument: {argument.name}")
        return agent.resolve(arguments, caller)


# -- rate limits ---------------------------------------------------------------------------------------------

WINDOW_S = 60.0


class Window:
    """Allows at most `limit` calls per caller in any `WINDOW_S` seconds; 0 means no limit. Thread-safe.

    The calls are counted in an SQLite file, which the worker processes of a server share, or in memory if
    `path` is None. `name` separates several limits in one file. `refusal` replaces the usual error message.
    """

    def __init__(
        self,
        limit: int,
        path: str | None = None,
        name: str = "",
        *,
        refusal: str = "",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.limit = limit
        self._name = name
        self._refusal = refusal
        self._clock = clock
        self._lock = Lock()
        self._database = sqlite3.connect(
            path or ":memory:", timeout=10, isolation_level=None, check_same_thread=False
        )
        self._database.executescript(
            "PRAGMA journal_mode = WAL;"
            "PRAGMA synchronous = OFF;"  # a crash may lose the calls of the last minute, which does no harm
            "CREATE TABLE IF NOT EXISTS call (caller TEXT, called_s REAL);"
            "CREATE INDEX IF NOT EXISTS call_of_caller ON call (caller, called_s);"
            "CREATE INDEX IF NOT EXISTS call_time ON call (called_s);"
        )

    def __del__(self) -> None:
        if hasattr(self, "_database"):
            self._database.close()

    def spend(self, caller: str) -> None:
        """Count a call. Raises `RateLimited` above the limit; a refused call does not count."""
        if not self.limit:
            return
        with self._lock:
            self._database.execute("BEGIN IMMEDIATE")
            try:
                now_s = self._clock()
                count, first_s = self._recent(caller, now_s)
                if count >= self.limit:
                    raise RateLimited(
                        self._refusal or f"more than {self.limit} calls in {WINDOW_S:g} s",
                        retry_after_s=first_s + WINDOW_S - now_s,
                        data={"limit": self.limit},
                    )
                self._database.execute("INSERT INTO call VALUES (?, ?)", (f"{self._name} {caller}", now_s))
            finally:
                self._database.execute("COMMIT")

    def current(self, caller: str) -> int:
        """The number of the caller's calls in the last `WINDOW_S` seconds."""
        with self._lock:
            return self._recent(caller, self._clock())[0]

    def _recent(self, caller: str, now_s: float) -> tuple[int, float]:
        """Delete old calls. Returns the number of the caller's calls in the window, and the time of the
        first.
        """
        self._database.execute("DELETE FROM call WHERE called_s <= ?", (now_s - WINDOW_S,))
        row: tuple[int, float] = self._database.execute(
            "SELECT count(*), min(called_s) FROM call WHERE caller = ?", (f"{self._name} {caller}",)
        ).fetchone()
        return row
