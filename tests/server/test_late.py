"""The doors that are made once the server listens, and one that fails: who comes early waits, and is answered
as everybody.
"""

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext

import pytest
from serving import EchoDoor, Serve
from starlette.types import Receive, Scope, Send

from ctx.server.app import Services
from ctx.server.endpoints import router
from ctx.server.late import Door, LateDoor
from ctx.server.zones import FIXED


def test_a_server_that_starts_imports_neither_fastapi_nor_pydantic_nor_the_sdk() -> None:
    code = (
        "import sys, ctx.cli.serve, ctx.assemble; print(*{'fastapi', 'pydantic', 'mcp', 'numpy'} & "
        "{*sys.modules})"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == ""


def test_every_fixed_endpoint_stands_in_the_table_of_zones_and_no_other() -> None:
    assert {getattr(route, "path", "") for route in router.routes} == {*FIXED}


def test_all_who_come_before_the_endpoints_are_made_are_answered(serve: Serve, services: Services) -> None:
    served = serve(services)
    with ThreadPoolExecutor(12) as pool:
        statuses = pool.map(lambda _: served.client.get("/health").status_code, range(24))
        assert {*statuses} == {200}
    assert served.client.head("/tools/list").status_code == 200
    refusal = served.client.post("/tools/list")
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (405, "method_not_allowed")
    assert served.client.get("/page/none.js").json()["error"]["code"] == "not_found"


def test_what_its_making_raises_every_request_is_told() -> None:
    def broken() -> Door:
        raise OSError("no such library")

    async def ask() -> None:
        door = LateDoor("broken", broken)
        async with door.lifespan():
            for _ in range(2):
                with pytest.raises(OSError, match="no such library"):
                    await door.handle({}, asyncio.Queue().get, lambda message: asyncio.sleep(0))

    asyncio.run(ask())


def test_a_server_that_ends_does_not_wait_for_a_door_that_is_being_made() -> None:
    beginning, release = threading.Event(), threading.Event()

    class Slow:
        lifespan = nullcontext

    def slow() -> Door:
        beginning.set()
        release.wait(30)
        return Slow()  # type: ignore[return-value]

    async def end() -> None:
        door = LateDoor("slow", slow)
        async with door.lifespan():
            exchange = asyncio.ensure_future(
                door.handle({}, asyncio.Queue().get, lambda message: asyncio.sleep(0))
            )
            await asyncio.to_thread(beginning.wait, 30)
        with pytest.raises(asyncio.CancelledError):
            await exchange

    asyncio.run(end())
    assert not release.is_set()
    release.set()


def test_a_reply_that_breaks_off_is_logged(
    serve: Serve, services: Services, caplog: pytest.LogCaptureFixture
) -> None:
    class BreakingDoor(EchoDoor):
        async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            raise RuntimeError("in the middle")

    served = serve(services._replace(mcp=BreakingDoor))
    served.client.post("/mcp", json={})
    served.stop()
    assert [record.name for record in caplog.records if record.levelname == "ERROR"] == ["ctx.server.guard"]


def test_what_its_beginning_raises_every_request_is_told() -> None:
    class Unable:
        @asynccontextmanager
        async def lifespan(self) -> AsyncIterator[None]:
            raise OSError("no room for it")
            yield

    async def ask() -> None:
        door = LateDoor("unable", Unable)  # type: ignore[arg-type]
        async with door.lifespan(), asyncio.timeout(10):
            for _ in range(2):
                with pytest.raises(OSError, match="no room for it"):
                    await door.handle({}, asyncio.Queue().get, lambda message: asyncio.sleep(0))

    asyncio.run(ask())
