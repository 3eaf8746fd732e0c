"""Fixtures that start a real server on a real socket."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mcp_doors import mcp_over
from serving import ANYTHING, DOCUMENT_ID, READING, EchoEndpoint, Serve, Served
from tabs import running_browser

from ctx.errors import NotFound, ScriptTimeout, ToolError
from ctx.models import JSON, Caller
from ctx.server.app import Services, create_app
from ctx.server.policy import ServerSettings
from ctx.server.rest import PackRoute
from ctx.server.run import HttpServer, address, open_sockets
from ctx.tools.toolbox import Agent, AgentArgument, Agents, Prompt, Tool, Toolbox


@pytest.fixture
def with_mcp(services: Services) -> Services:
    """The services, with an MCP door and a route of a pack."""
    route = PackRoute(
        "GET", "/packs/diary/health", "diary", lambda parameters, body, caller: {"status": "healthy"}
    )
    return services._replace(mcp=EchoEndpoint, pack_routes=[route])


@pytest.fixture
def mcp(services: Services) -> Services:
    """The services with MCP over them."""
    return services._replace(mcp=mcp_over(services.toolbox, services.agents))


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    yield from running_browser()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers that end with the test. `bind` in the settings is replaced by a free port of 127.0.0.1
    where it has none.
    """
    running: list[Served] = []

    def start(services: Services, settings: ServerSettings | None = None, **options: str) -> Served:
        settings = settings or ServerSettings()
        app = create_app(services, settings, **options)
        sockets = open_sockets("127.0.0.1:0")
        addresses: list[str] = []
        event = threading.Event()

        def announce(where: str) -> None:
            addresses.append(where)
            event.set()

        server = HttpServer(app, sockets, announce=announce)
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        assert event.wait(60), "the server did not start"
        assert addresses == [address(sockets[0])]
        served = Served(server, app, thread, f"http://{addresses[0]}")
        running.append(served)
        return served

    yield start
    for served in running:
        served.client.close()
        served.stop()


TEXT = {"type": "string", "minLength": 1, "maxLength": 4096}
SEARCHING = {
    "type": "object",
    "properties": {
        "query": {**TEXT, "description": "Search query"},
        "mode": {"type": "string", "enum": ["keyword", "semantic", "hybrid"], "default": "keyword"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 12},
        "source": {"type": "string"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
ONE_ID = {"type": "object", "properties": {"id": TEXT}, "required": ["id"], "additionalProperties": False}
NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}
HIT = {
    "id": DOCUMENT_ID,
    "source": "filesystem",
    "source_id": "docs/auth.md",
    "title": "Authentication Guide",
    "score": 0.94,
    "snippet": "JWT tokens are signed with...",
    "source_url": None,
}
DOCUMENT = {
    "id": DOCUMENT_ID,
    "source": "git",
    "source_id": "docs/auth.md",
    "title": "Authentication Guide",
    "body": "Full",
}
SOURCE = {"name": "filesystem", "configured": True, "healthy": True, "doc_count": 47}


def search(arguments: dict[str, JSON], caller: Caller) -> JSON:
    return {"results": [HIT] * (arguments["query"] == "authentication")}


def get(arguments: dict[str, JSON], caller: Caller) -> JSON:
    if arguments["id"] != DOCUMENT_ID:
        raise NotFound(f"no document with id: {arguments['id'][:80]}")
    return DOCUMENT


def whoami(arguments: dict[str, JSON], caller: Caller) -> JSON:
    banks = None if caller.banks is None else sorted(caller.banks)
    return {**caller._replace(progress=None)._asdict(), "banks": banks, "arguments": arguments}


def failing(error: Exception) -> Callable[[dict[str, JSON], Caller], JSON]:
    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        raise error

    return run


def document_tools() -> Iterator[Tool]:
    """The built-in ones in miniature."""
    described = "Search indexed documents by keyword, semantic, or hybrid query"
    for name, description, parameters, run in (
        ("search", described, SEARCHING, search),
        ("get", "Retrieve a full document by ID", ONE_ID, get),
        ("sources", "List sources", NO_PARAMETERS, lambda a, c: {"sources": [SOURCE]}),
    ):
        yield Tool(name, description, parameters, run, annotations=READING, builtin=True, bare=True)


def operators_tools() -> Iterator[Tool]:
    """Scripts and packs' tools that say who called them."""
    yield Tool("whoami", "Say who calls", ANYTHING, whoami, annotations=READING, origin="whoami.lua")
    yield Tool("write_note", "Write a note", ANYTHING, whoami, origin="write_note.lua", named=True)
    yield Tool("lies_about", "Write a note", ANYTHING, whoami, origin="tools/lies_about.lua")
    yield Tool("remember", "Keep a memory", ANYTHING, whoami, pack="diary", origin="packs/diary")
    yield Tool("vault", "Keep a secret", ANYTHING, whoami, pack="vault", origin="packs/vault")


def failing_tools() -> Iterator[Tool]:
    """One for each way to fail."""
    for name, description, error in (
        ("late", "Never in time", ScriptTimeout("late ran longer than 1 s")),
        ("broken", "Fails", ToolError("broken.lua:3: no such field")),
        ("surprise", "Fails unforeseen", RuntimeError("/etc/secret: not ours")),
    ):
        yield Tool(name, description, ANYTHING, failing(error), origin=f"{name}.lua")


@pytest.fixture
def toolbox() -> Toolbox:
    """A few tools: the document tools, an operator's scripts, memory packs', and ones that fail each in its
    way.
    """
    box = Toolbox()
    for tool in (*document_tools(), *operators_tools(), *failing_tools()):
        box.add(tool)
    box.add_failed("unloadable", ToolError("unloadable.lua:1: unexpected symbol"))
    return box


@pytest.fixture
def agents() -> Agents:
    """One inline agent and one of a script."""
    registry = Agents()

    def review(arguments: dict[str, JSON], caller: Caller) -> Prompt:
        return Prompt(
            f"You review {arguments['language']}.", ("search",), ({"role": "assistant", "content": "Ready."},)
        )

    registry.add(
        Agent(
            "reviewer",
            "Reviews code",
            review,
            ("search",),
            (AgentArgument("language", "Which language", True),),
        )
    )
    registry.add(Agent("scripted", "Runs code", lambda a, c: Prompt("x"), source="lua", named=True))
    registry.add(
        Agent("recall-context", "Reads memories", lambda a, c: Prompt("x"), source="pack", pack="diary")
    )
    return registry


@pytest.fixture
def services(toolbox: Toolbox, agents: Agents) -> Services:
    return Services(toolbox, agents)
