"""`ctx mcp --url`: a client's pipes carried to a ctx on another machine (or in another process), over HTTP.

Every message goes there as a POST of its own, and what comes back, one reply or a stream, goes to the client
line by line. In the era with sessions the proxy keeps the session, listens on its stream, and opens a new one
where the server has forgotten it (a restart); in the stateless era it adds the headers that the body calls
for. What fails on the way is a JSON-RPC error that names the mend.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import mcp_types as types
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)

from ctx.hosts import is_loopback
from ctx.replies import MAX_REPLY_BYTES
from ctx.server.stdio import Wire
from ctx.types import JSON

logger = logging.getLogger(__name__)

CONNECT_S = 10.0
FIRST_RETRY_S, LAST_RETRY_S = 0.5, 30.0  # between attempts to listen again
HANDSHAKE = ("initialize", "notifications/initialized")
VERSION_KEY = "io.modelcontextprotocol/protocolVersion"

# What no JSON is read with, JSON of another shape, or JSON nested so that nothing walks through it.
_ODD = (ValueError, TypeError, AttributeError, KeyError, RecursionError)


class _Unreadable(ValueError):
    """A reply that is not read to its end."""


def _mirrors(tool: dict[str, Any]) -> bool:
    """Whether some arguments of a tool go as headers too."""
    return "x-mcp-header" in str(tool) and find_invalid_x_mcp_header(tool.get("inputSchema", {})) is None


class Proxy:
    """One client on a `Wire`, the ctx at `url` (see address.py). `run` lasts until the client closes its
    end.
    """

    def __init__(self, wire: Wire, url: str, key: str | None) -> None:
        self._wire = wire
        self._url = url
        host = urlsplit(url).hostname or ""
        if key and url.startswith("http:") and not is_loopback(host):
            logger.warning("the key goes to %s unencrypted; use https, or a tunnel", host)
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        headers["Accept-Encoding"] = "identity"  # what is packed tells nothing of its size
        if key:
            headers["Authorization"] = f"Bearer {key}"
        # A proxy of the environment is not on the way to this machine itself.
        self._http = httpx.AsyncClient(
            headers=headers, timeout=httpx.Timeout(None, connect=CONNECT_S), trust_env=not is_loopback(host)
        )
        self._key_given = bool(key)
        self._session: dict[str, str] = {}
        self._handshake: dict[str, JSON] | None = None
        self._opening = asyncio.Lock()
        self._under_way: dict[JSON, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._listener: asyncio.Task[None] | None = None
        self._schemas: dict[str, Mapping[str, Any]] = {}  # of tools whose arguments are mirrored as headers

    async def run(self) -> None:
        async with self._http:
            try:
                async for line in self._wire:
                    await self._take(json.loads(line))
                if self._tasks:
                    await self._wire.finish(asyncio.gather(*self._tasks, return_exceptions=True))
            finally:
                await self._end()

    async def _take(self, message: dict[str, Any]) -> None:
        method = message.get("method")
        if method == "notifications/cancelled" and not self._session:
            # The stateless era cancels by closing the reply.
            request = (message.get("params") or {}).get("requestId")
            task = self._under_way.get(request) if isinstance(request, str | int) else None
            if task is not None:
                task.cancel()
        else:
            task = asyncio.ensure_future(self._request(message))
            id = message.get("id") if method else None
            # A subscription lasts as long as the client: nothing waits for its end.
            self._keep(task, id, waited_for=method != "subscriptions/listen")

    def _keep(self, task: "asyncio.Task[None]", id: JSON, *, waited_for: bool) -> None:
        if waited_for:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if id is not None:
            self._under_way[id] = task
            task.add_done_callback(lambda ended: self._forget(id, ended))

    def _forget(self, id: JSON, task: "asyncio.Task[None]") -> None:
        if self._under_way.get(id) is task:  # one that was called off may end after the next of its id began
            del self._under_way[id]

    async def _request(self, message: dict[str, Any]) -> None:
        """Carries one message there, and what comes back to the client."""
        try:
            await self._exchange(message)
            if message.get("method") == "notifications/initialized":
                self._listen()
        except httpx.HTTPError as error:
            logger.debug("request failed", exc_info=error)
            await self._fail(message, _reason(error, self._url))
        except _Unreadable as error:
            await self._fail(message, f"{self._url} {error}")
        except _ODD:
            await self._fail(message, f"what {self._url} answered is no MCP; is it the address of a ctx?")

    async def _exchange(self, message: dict[str, Any]) -> None:
        method, forgotten = message.get("method"), False
        async with self._opening:  # a session that is just being opened takes no other request yet
            session = self._session
            if method in HANDSHAKE:  # what follows needs its session
                if method == "initialize":
                    self._handshake = message
                forgotten = await self._post(message)
        if method not in HANDSHAKE:
            forgotten = await self._post(message)
        if forgotten:
            # The server no longer knows the session: it was started anew, or we were silent too long.
            async with self._opening:
                if self._session is session:
                    await self._open_again()
            if await self._post(message):
                await self._fail(message, f"{self._url} forgot the session twice; start the client anew")

    async def _post(self, message: dict[str, Any], *, silent: bool = False) -> bool:
        """Whether the server did not know the session. `silent`: the reply is the proxy's own."""
        async with self._http.stream(
            "POST", self._url, json=message, headers=self._headers(message)
        ) as reply:
            opening = message.get("method") == "initialize"
            if reply.status_code == 404 and self._session and not opening:
                return True
            if opening and reply.status_code == 200:
                self._begin_session(reply)
            if reply.status_code not in (202, 204):
                await self._take_reply(reply, message, silent=silent)
        return False

    def _begin_session(self, reply: httpx.Response) -> None:
        id = reply.headers.get("mcp-session-id")
        self._session = {"Mcp-Session-Id": id} if id else {}

    async def _take_reply(self, reply: httpx.Response, message: dict[str, Any], *, silent: bool) -> None:
        if reply.headers.get("content-type", "").startswith("text/event-stream"):
            answered = False
            async for data in _events(reply):
                answered |= _answers(data, message)
                await self._hand_over(data, silent=silent)
            if not answered and not silent:
                await self._fail(
                    message, f"{self._url} ended before it had answered; the call may or may not have run"
                )
            return
        body = await _whole(reply)
        if _answers(body, message) and reply.status_code not in (401, 403, 413, 421, 429):
            await self._hand_over(body, silent=silent)
        elif silent:
            raise ValueError(self._refusal(reply, body))
        else:
            await self._fail(message, self._refusal(reply, body))

    def _headers(self, message: dict[str, Any]) -> dict[str, str]:
        params = message.get("params") or {}
        version = (params.get("_meta") or {}).get(VERSION_KEY) if isinstance(params, dict) else None
        if not isinstance(version, str):
            return {} if message.get("method") == "initialize" else self._session
        method = str(message.get("method"))
        headers = {MCP_PROTOCOL_VERSION_HEADER: version, MCP_METHOD_HEADER: method}
        name = params.get(NAME_BEARING_METHODS.get(method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
            if method == "tools/call":
                headers |= self._mirrored(name, params.get("arguments") or {})
        return headers

    def _mirrored(self, tool: str, arguments: dict[str, Any]) -> dict[str, str]:
        """The arguments that a tool's schema wants in headers too."""
        if tool not in self._schemas:
            return {}
        return dict(mcp_param_headers(x_mcp_header_map(self._schemas[tool]), arguments))

    async def _hand_over(self, data: bytes, *, silent: bool) -> None:
        message = json.loads(data)
        result = message.get("result") if isinstance(message, dict) else None
        if isinstance(result, dict):
            self._learn(result)
        if not silent:
            await self._say(message)

    def _learn(self, result: dict[str, Any]) -> None:
        """Notes what later requests have to say in their headers."""
        if isinstance(result.get("protocolVersion"), str) and self._session:
            self._session = {**self._session, MCP_PROTOCOL_VERSION_HEADER: result["protocolVersion"]}
        self._schemas |= {
            tool["name"]: tool["inputSchema"] for tool in result.get("tools") or () if _mirrors(tool)
        }

    async def _open_again(self) -> None:
        if self._handshake is None:
            return
        forgotten = self._session
        logger.info("opening a new session at %s", self._url)
        try:
            await self._post(self._handshake, silent=True)
            await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}, silent=True)
        except BaseException:
            self._session = forgotten  # the next request is told so again, and opens one again
            raise
        self._listen()
        for kind in ("tools", "prompts"):  # a server started anew may have others
            await self._say({"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"})

    # -- the session's own stream ----------------------------------------------------------------------------

    def _listen(self) -> None:
        if self._listener is not None:
            self._listener.cancel()
        self._listener = asyncio.ensure_future(self._follow(self._session)) if self._session else None

    async def _follow(self, session: dict[str, str]) -> None:
        """Hands over what the server says unasked (changed lists), for as long as the session lasts."""
        pause_s = FIRST_RETRY_S
        while self._session.get("Mcp-Session-Id") == session.get("Mcp-Session-Id"):
            try:
                headers = {**self._session, "Accept": "text/event-stream"}
                async with self._http.stream("GET", self._url, headers=headers) as stream:
                    if stream.status_code in (400, 404, 405):
                        forgotten = stream.status_code == 404
                        break
                    stream.raise_for_status()
                    pause_s = FIRST_RETRY_S
                    async for data in _events(stream):
                        await self._hand_over(data, silent=False)
            except (httpx.HTTPError, *_ODD) as error:
                logger.debug("the stream of news ended: %s", error)
            await asyncio.sleep(pause_s)
            pause_s = min(LAST_RETRY_S, pause_s * 2)
        else:
            return
        if forgotten:
            await self._open_unasked(session)

    async def _open_unasked(self, session: dict[str, str]) -> None:
        """A session in place of one that was forgotten: nobody has called since the server was started anew,
        and the news must go on all the same.
        """
        async with self._opening:
            if self._session.get("Mcp-Session-Id") == session.get("Mcp-Session-Id"):
                self._listener = None  # this task: `_open_again` must not cancel what it runs in
                try:
                    await self._open_again()
                except (httpx.HTTPError, *_ODD) as error:
                    logger.warning("no new session at %s: %s", self._url, error)

    # -- to the client ---------------------------------------------------------------------------------------

    async def _say(self, message: JSON) -> None:
        await self._wire.write(json.dumps(message, ensure_ascii=False))

    async def _fail(self, message: dict[str, Any], why: str) -> None:
        logger.warning("%s", why)
        if "id" in message and "method" in message:
            error = {"code": types.INTERNAL_ERROR, "message": why}
            await self._say({"jsonrpc": "2.0", "id": message["id"], "error": error})

    def _refusal(self, reply: httpx.Response, body: bytes) -> str:
        answer = _answer(body)
        error = answer.get("error") if answer else None
        message = error.get("message") if isinstance(error, dict) else None
        reason = f": {str(message)[:300]}" if message else ""
        if reply.status_code == 401:
            mend = (
                "the key was refused"
                if self._key_given
                else "a key is needed: export it and name its variable with --key-env"
            )
            return f"{self._url} answered 401, {mend}{reason}"
        if reply.status_code == 404:
            return f"{self._url} answered 404: nothing there speaks MCP; the path is /mcp, or /mcp/BANK"
        return f"{self._url} answered {reply.status_code}{reason}"

    async def _end(self) -> None:
        for task in (*self._under_way.values(), *self._tasks, *([self._listener] if self._listener else ())):
            task.cancel()
        if self._session:
            try:
                await self._http.delete(self._url, headers=self._session, timeout=2)
            except httpx.HTTPError as error:
                logger.debug("the session was left to expire: %s", error)


async def _whole(reply: httpx.Response) -> bytes:
    """The body of a reply. Raises `_Unreadable`."""
    body = bytearray()
    async for piece in _pieces(reply):
        body += piece
        _check_size(len(body))
    return bytes(body)


async def _events(reply: httpx.Response) -> AsyncIterator[bytes]:
    """The data of each event of a stream. Raises `_Unreadable`.

    By the line ends of the protocol alone: JSON has characters in it that Python would end a line at.
    """
    data: list[bytes] = []
    size = 0  # of these
    buffer = bytearray()
    async for piece in _pieces(reply):
        searched = len(buffer)
        buffer += piece
        while (end := buffer.find(b"\n", searched)) >= 0:
            line = bytes(buffer[:end]).removesuffix(b"\r")
            del buffer[: end + 1]
            searched = 0
            if line.startswith(b"data:"):
                data.append(line[5:].removeprefix(b" "))
                size += len(line)
            elif not line and data:
                text = b"\n".join(data)
                data.clear()
                size = 0
                if text.strip():
                    yield text
        _check_size(len(buffer) + size)


async def _pieces(reply: httpx.Response) -> AsyncIterator[bytes]:
    encoding = reply.headers.get("content-encoding", "identity")
    if encoding.strip().lower() != "identity":
        raise _Unreadable(f"answers encoded as '{encoding[:40]}', which was not asked for")
    async for piece in reply.aiter_raw():
        yield piece


def _check_size(size: int) -> None:
    if size > MAX_REPLY_BYTES:
        raise _Unreadable(f"answers with more than {MAX_REPLY_BYTES >> 20} MiB, which is not read further")


def _answers(data: bytes, message: Mapping[str, Any]) -> bool:
    """Whether this is the reply to that message: what could not be read is answered without an id."""
    answer = _answer(data)
    return answer is not None and "method" not in answer and answer.get("id") == message.get("id")


def _answer(body: bytes) -> dict[str, Any] | None:
    """The body as a JSON-RPC reply, None where it is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return answer if isinstance(answer, dict) and answer.get("jsonrpc") == "2.0" else None


def _reason(error: httpx.HTTPError, url: str) -> str:
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return f"nothing answers at {url}; is `ctx serve mcp` running there? ({error})"
    return f"the connection to {url} broke off ({type(error).__name__}); the call may or may not have run"
