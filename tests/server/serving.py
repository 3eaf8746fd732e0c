"""A running server for tests, and checks of the shape of its errors."""

import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

import httpx
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from ctx.models import JSON, Caller
from ctx.server.app import Services
from ctx.server.errors import method_not_allowed
from ctx.server.middleware import RequestMiddleware
from ctx.server.overview import Overview, health
from ctx.server.policy import ACCESS
from ctx.server.run import HttpServer
from ctx.server.work import Work
from ctx.tools.toolbox import Annotations, Tool, Toolbox
from ctx.workspace import Workspace

READING = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
DOCUMENT_ID = "a1b2c3d4-e5f6-4890-abcd-ef1234567890"
ANYTHING = {"type": "object", "properties": {}}


def waiting(toolbox: Toolbox) -> tuple[threading.Event, threading.Event]:
    """Adds a tool `wait` that waits for the second event; the first is set once it is at it."""
    entered, release = threading.Event(), threading.Event()

    def wait(arguments: dict[str, JSON], caller: Caller) -> JSON:
        entered.set()
        return release.wait(200)

    toolbox.add(Tool("wait", "Waits", ANYTHING, wait))
    return entered, release


class Served:
    """A running server: its address, a client, and its parts."""

    def __init__(
        self, server: HttpServer, app: RequestMiddleware, thread: threading.Thread, base: str
    ) -> None:
        self.server = server
        self.app = app
        self.thread = thread
        self.base = base
        self.host, _, port = base.removeprefix("http://").rpartition(":")
        self.port = int(port)
        self.client = httpx.Client(base_url=base, timeout=60)

    @property
    def requests(self) -> int:
        """How many are being answered."""
        return len(self.server.server_state.tasks)

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(60)
        assert not self.thread.is_alive(), "the server did not stop"


Serve = Callable[..., Served]


def failure(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an error, whose body has the one shape there is."""
    body = response.json()
    assert set(body) == {"error"}
    assert set(body["error"]) == {"code", "message"}
    assert body["error"]["message"]
    assert response.headers["content-type"] == "application/json"
    return response.status_code, body["error"]["code"]


def rpc_failure(response: httpx.Response) -> tuple[int, str]:
    """Status and code of an error in the shape of JSON-RPC."""
    body = response.json()
    assert body["jsonrpc"] == "2.0"
    return response.status_code, body["error"]["data"]["code"]


def whole(space: Workspace) -> Services:
    """All that a server serves of a workspace, but for MCP and packs."""
    return Services(space.toolbox, space.agents, partial(health, space), overview=Overview(space))


class EchoEndpoint:
    """An MCP endpoint that says what the middlewares found out."""

    def __init__(self, work: Work) -> None:
        pass

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "POST":
            raise method_not_allowed(scope["path"], scope["method"], ("POST",))
        size = 0
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            size += len(message.get("body", b""))
            if not message.get("more_body", False):
                break
        access = scope[ACCESS]
        caller = access.caller()
        reply = {
            "bank": caller.bank,
            "fixed": caller.bank_fixed,
            "principal": caller.principal,
            "size": size,
            "path": scope["path"],
        }
        await JSONResponse(reply)(scope, receive, send)

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        yield
