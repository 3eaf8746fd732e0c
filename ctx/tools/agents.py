"""Agents: named prompts that operators write, inline in the configuration or as scripts.

REST lists them under `/agents`, MCP as prompts; both resolve them here.
"""

from collections.abc import Callable
from typing import NamedTuple

from ctx.errors import BadRequest
from ctx.models import JSON, Caller
from ctx.tools.toolbox import Registry


class AgentArgument(NamedTuple):
    name: str
    description: str = ""
    required: bool = False


class Prompt(NamedTuple):
    """A resolved agent: the system text, the tools it wants, and messages `{"role", "content"}` to begin
    with.
    """

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
    pack: str | None = None  # the memory pack it belongs to, as whose tools it is guarded: it reads memories
    named: bool = False  # the operator named it in the configuration, and did not merely leave it in a folder


def inline_agent(name: str, description: str, system: str, tools: tuple[str, ...]) -> Agent:
    """An agent that says the same to everybody."""
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
        """The agent's prompt for these arguments.
        Raises `NotFound`, `BadRequest`, or what the script raised.
        """
        agent = self._used(name, arguments)
        for argument in agent.arguments:
            if argument.required and arguments.get(argument.name) is None:
                raise BadRequest(f"missing required argument: {argument.name}")
        return agent.resolve(arguments, caller)
