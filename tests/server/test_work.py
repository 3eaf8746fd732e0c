"""Queues of the server: slow calls of one caller block nobody else."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any, cast

from ctx.errors import NotFound
from ctx.models import JSON, Caller, SourceStatus
from ctx.server.work import Work
from ctx.tools.builtin import get_tool, sources_tool
from ctx.tools.toolbox import Agent, AgentArgument, Agents, Annotations, Prompt, Tool, Toolbox, inline_agent

ANYTHING = {"type": "object", "properties": {}}
REST = Caller("rest")


class Jam:
    """A call that lasts until `end`."""

    def __init__(self) -> None:
        self.running = 0
        self._end = threading.Event()

    def __call__(self) -> str:
        self.running += 1
        assert self._end.wait(30)
        return "late"

    def end(self) -> None:
        self._end.set()


async def until(claim: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not claim():  # noqa: ASYNC110 - what it waits for happens in threads
            await asyncio.sleep(0.001)


def test_hung_scripts_keep_neither_a_search_nor_an_inline_agent_from_an_answer() -> None:
    toolbox, agents, jam = Toolbox(), Agents(), Jam()

    def hang(arguments: dict[str, JSON], caller: Caller) -> JSON:
        return jam()

    toolbox.add(Tool("hang", "Hangs", ANYTHING, hang))
    toolbox.add(Tool("quick", "Answers", ANYTHING, lambda arguments, caller: "at once"))
    reading = Annotations(read_only=True)
    toolbox.add(Tool("search", "", ANYTHING, lambda arguments, caller: [], annotations=reading, builtin=True))
    agents.add(inline_agent("brief", "", "Be brief.", ()))

    def prompt(arguments: dict[str, JSON], caller: Caller) -> Prompt:
        return Prompt(str(jam()))

    agents.add(Agent("slow", "", prompt, arguments=(AgentArgument("x"),), source="lua"))

    async def scene() -> None:
        work = Work(search_threads=1, script_threads=8, waiting=16)

        async def call(name: str, caller: Caller = REST) -> JSON:
            return await work.call(toolbox, toolbox.get(name), {}, caller)

        async def prompted(agent: Agent) -> Prompt:
            return await work.prompt(agents, agent, agent.name, {}, REST)

        by_name = {agent.name: agent for agent in agents.list()}
        hung = [asyncio.create_task(call("hang")) for _ in range(8)]
        prompts = [asyncio.create_task(prompted(by_name["slow"])) for _ in range(6)]
        await until(lambda: jam.running == 6)  # of this caller's three quarters, four are the tool's
        assert await call("search") == []
        assert (await prompted(by_name["brief"])).system == "Be brief."
        assert await call("quick", Caller("rest", principal="ann")) == "at once"
        assert await call("quick", Caller("mcp", session_id="s1")) == "at once"
        jam.end()
        await asyncio.gather(*hung, *prompts)
        work.close()

    asyncio.run(scene())


def test_whole_documents_that_are_read_keep_no_search_from_an_answer() -> None:
    toolbox, jam = Toolbox(), Jam()

    class Shelf:
        """A library whose documents take for ever to be read, and whose sources are none."""

        @property
        def catalog(self) -> Any:
            jam()
            raise NotFound("no document")

        def statuses(self) -> list[SourceStatus]:
            return []

    for tool in (get_tool(cast(Any, Shelf())), sources_tool(cast(Any, Shelf()))):
        toolbox.add(tool)

    async def scene() -> None:
        work = Work(search_threads=2, waiting=64)

        async def call(name: str, **arguments: JSON) -> JSON:
            return await work.call(toolbox, toolbox.get(name), arguments, REST)

        reads = [asyncio.create_task(call("get", id=str(number))) for number in range(40)]
        await until(lambda: jam.running == 2 and work.documents.unfinished == 40)
        assert await call("sources") == {"sources": []}
        jam.end()
        answers = await asyncio.gather(*reads, return_exceptions=True)
        assert {type(answer) for answer in answers} == {NotFound}
        work.close()

    asyncio.run(scene())
