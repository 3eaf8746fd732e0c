"""What FastAPI's own route costs a tool call beside a plain one: the same handler behind both, in turns,
without a socket.

    python benchmarks/routes.py [--rounds 40]

Prints microseconds a request, median of the rounds, and the difference of each pair. `ctx/server/rest.py`
keeps to what this says.
"""

import argparse
import asyncio
import platform
import statistics
import time
from typing import Any

import orjson
from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

BODY = b'{"query": "how are sessions refreshed", "mode": "keyword", "limit": 10}'
REQUESTS = 300  # a round


class Search(BaseModel):
    query: str
    mode: str = "keyword"
    limit: int = 12


async def _read(receive: Receive) -> Response:
    arguments = orjson.loads((await receive())["body"])
    return Response(orjson.dumps({"results": [arguments["query"]]}), media_type="application/json")


async def _plain(scope: Scope, receive: Receive, send: Send) -> None:
    await (await _read(receive))(scope, receive, send)


class _Plain:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await _plain(scope, receive, send)


router = APIRouter()


@router.post("/fastapi/search")
async def _fastapi(request: Request) -> Response:
    return await _read(request.receive)


@router.post("/typed/search")
async def _typed(search: Search) -> dict[str, Any]:
    return {"results": [search.query]}


def application() -> FastAPI:
    """Three routes of one handler, as the server's stack runs them."""
    app = FastAPI(openapi_url=None)
    app.router.routes[:] = [Route("/plain/search", _Plain()), *router.routes]
    return app


async def _request(app: FastAPI, path: str) -> None:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(message: Any) -> None:
        assert message.get("status", 200) == 200

    headers = [(b"host", b"localhost"), (b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": headers}
    await app(scope, receive, send)


async def _rounds(rounds: int) -> dict[str, list[float]]:
    app = application()
    times_us: dict[str, list[float]] = {"plain": [], "fastapi": [], "typed": []}
    for number in range(rounds + 1):
        for name, values in times_us.items():
            began_s = time.perf_counter()
            for _ in range(REQUESTS):
                await _request(app, f"/{name}/search")
            if number:  # the first warms up
                values.append((time.perf_counter() - began_s) / REQUESTS * 1e6)
    return times_us


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=40)
    times_us = asyncio.run(_rounds(options.parse_args().rounds))
    print(f"python {platform.python_version()} {platform.machine()}, {REQUESTS} requests a round")
    for name, values in times_us.items():
        pairs = [value - plain for value, plain in zip(values, times_us["plain"], strict=True)]
        print(
            f"{name:8} {statistics.median(values):7.1f} us   over plain {statistics.median(pairs):+7.1f} us"
        )


if __name__ == "__main__":
    main()
