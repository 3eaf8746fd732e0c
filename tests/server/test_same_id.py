"""Two requests of one id in one session: each is answered, over its own connection."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp_doors import answered, mcp_over, message, open_session
from serving import ANYTHING, Serve

from ctx.server.app import Services
from ctx.tools.base import Tool
from ctx.types import JSON, Caller


@pytest.mark.parametrize("second", [7, "7"])
def test_two_requests_of_one_id_at_once_are_both_answered(
    serve: Serve, services: Services, second: JSON
) -> None:
    start, release = threading.Event(), threading.Event()

    def slow(arguments: dict[str, JSON], caller: Caller) -> JSON:
        start.set()
        assert release.wait(60)
        return {"turn": arguments["turn"]}

    services.toolbox.add(Tool("slow", "Slow", ANYTHING, slow))
    served = serve(services._replace(mcp=mcp_over(services.toolbox, services.agents)))
    session = open_session(served.client)

    def call(turn: int, id: JSON) -> JSON:
        body = {**message("tools/call", {"name": "slow", "arguments": {"turn": turn}}), "id": id}
        reply = answered(served.client.post("/mcp", json=body, headers=session, timeout=20))
        assert reply["id"] == id
        return reply["result"]["structuredContent"]

    with ThreadPoolExecutor(2) as pool:
        calls = [pool.submit(call, 1, 7)]
        assert start.wait(60)
        calls.append(pool.submit(call, 2, second))
        while len(served.guard._open) < 2:
            served.client.post("/mcp", json=message("ping", id=8), headers=session)
        served.client.post("/mcp", json=message("ping", id=8), headers=session)
        release.set()
        assert [future.result() for future in calls] == [{"turn": 1}, {"turn": 2}]
