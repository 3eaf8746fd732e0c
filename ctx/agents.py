"""Agents: named prompts that operators write, inline in the configuration or as scripts.

REST lists them under `/agents`, MCP as prompts; both resolve them here.
"""

import threading
from collections.abc import Callable

from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.lean import NamedTuple
from ctx.types import JSON, Caller


class AgentArgument(NamedTuple):
    name: str
    description: str = ""
    required: bool = False


class Prompt(NamedTuple):
    """A resolved agent: the system text, the tools it wants, and messages `{"role", "content"}` to begin with."""

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
    pack: str | None = (
        None  # the memory pack it belongs to: it reads memories, and so it is guarded as that pack's tools are
    )
    named: bool = False  # the operator named it in the configuration, and did not merely leave it in a folder


def inline_agent(name: str, description: str, system: str, tools: tuple[str, ...]) -> Agent:
    """An agent that says the same to everybody."""
    prompt = Prompt(system, tools)
    return Agent(name, description, lambda arguments, caller: prompt, tools)


class Agents:
    """The registered agents, by name. Safe from several threads."""

    def __init__(self) -> None:
        self._agents: dict[str, Agent] = {}
        self._failed: dict[str, CtxError] = {}
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._before: Callable[[str], None] | None = None

    def add(self, agent: Agent, *, replace: bool = False) -> None:
        """Registers an agent. Raises `ConfigError` where two share a name."""
        with self._lock:
            known = self._agents.get(agent.name)
            if known is not None and not replace:
                raise ConfigError(
                    f"two agents are called '{agent.name}': {known.origin} and {agent.origin}; rename one"
                )
            self._agents[agent.name] = agent
            self._failed.pop(agent.name, None)
        for listen in self._listeners:
            listen()

    def add_failed(self, name: str, error: CtxError) -> None:
        """Keeps the name of an agent that could not be loaded: resolving it raises `error`."""
        with self._lock:
            self._failed[name] = error

    def remove(self, name: str) -> None:
        with self._lock:
            self._agents.pop(name, None)
            self._failed.pop(name, None)
        for listen in self._listeners:
            listen()

    def list(self) -> list[Agent]:
        with self._lock:
            return [self._agents[name] for name in sorted(self._agents)]

    def prompt(self, name: str, arguments: JSON, caller: Caller) -> Prompt:
        """The agent's prompt for these arguments. Raises `NotFound`, `BadRequest`, or what the script raised."""
        if self._before is not None:
            self._before(name)
        agent = self._agents.get(name)
        if agent is None:
            if name in self._failed:
                raise self._failed[name].with_traceback(None)  # or every call would lengthen it
            raise NotFound(f"no agent registered with name: {name[:80]}")
        if not isinstance(arguments, dict):
            raise BadRequest("the arguments must be a JSON object")
        for argument in agent.arguments:
            if argument.required and arguments.get(argument.name) is None:
                raise BadRequest(f"missing required argument: {argument.name}")
        return agent.resolve(arguments, caller)

    def failed(self) -> dict[str, CtxError]:
        """The agents that could not be loaded, and why."""
        with self._lock:
            return dict(self._failed)

    def before_prompt(self, look: Callable[[str], None]) -> None:
        """`look` is told of every resolution before its agent is found, in the caller's thread."""
        self._before = look

    def on_change(self, listener: Callable[[], None]) -> None:
        """`listener` is told when the list of agents has changed."""
        self._listeners.append(listener)
