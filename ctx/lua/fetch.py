"""HTTP to addresses that were checked: the one way out, of a script's request and of a source on the web.

A URL is judged before anything is asked, its host's addresses are judged when they are known, and the
connection goes to the very address that was judged. Nothing of the environment (proxies, `.netrc`) takes
part. What is refused is a `ToolError` whose message begins with "http: "; what fails is httpcore's own, which
`reason` puts into words.
"""

import functools
import re
import socket
import ssl
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit

import httpcore

from ctx.errors import ToolError
from ctx.lua.address import address_allowed
from ctx.models import JSON

MAX_URL = 8192
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PORTS = {"http": 80, "https": 443}
FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError)
LATE = (httpcore.TimeoutException, TimeoutError)  # to be caught before `FAILURES`: the second is one of them
_PIECE_BYTES = 1 << 16  # a peer that reads slowly is noticed between two of these
_BAD_URL = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
Resolve = Callable[[str, int], Sequence[str]]
"""`resolve(host, port)`: the addresses of a name. Raises `OSError` where it has none."""
Wanted = Callable[[str], bool]
"""`wanted(content type)`: whether a body is worth its bytes."""


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses the system gives a name, in its order."""
    return list(
        dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    )


class Target(NamedTuple):
    """The place a URL names. `trusted`: it was named by the operator, and may be private."""

    url: str
    scheme: str
    host: str
    port: int
    trusted: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def target_of(url: str, allow_hosts: frozenset[str]) -> Target:
    """The place a URL names, if it may be gone to at all. `allow_hosts`: HOST or HOST:PORT that may be
    private.

    Raises `ToolError`.
    """
    scheme, host, port = _split(url)
    named = f"[{host}]" if ":" in host else host
    trusted = not allow_hosts.isdisjoint((host, named, f"{named}:{port}"))
    if not trusted and port not in PORTS.values():
        raise ToolError(f"http: port {port} is not allowed; name {named}:{port} in allow_hosts to allow it")
    return Target(url.partition("#")[0], scheme, host, port, trusted)


def _split(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a URL. Raises `ToolError` for what is none that may be asked for."""
    if len(url) > MAX_URL:
        raise ToolError(f"http: the URL is longer than {MAX_URL} characters")
    if _BAD_URL.search(url):
        raise ToolError(
            "http: the URL has a space, a control character, a backslash or a letter beyond ASCII; "
            "percent-encode it"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
    except ValueError as error:
        raise ToolError("http: that is not a URL") from error
    _check_parts(parts, host)
    return parts.scheme, host, PORTS[parts.scheme] if port is None else port


def _check_parts(parts: SplitResult, host: str) -> None:
    if parts.scheme not in PORTS:
        raise ToolError("http: only http:// and https:// URLs")
    if parts.username is not None or parts.password is not None:
        raise ToolError("http: no user or password in the URL; send an Authorization header")
    if not host or "%" in host:
        raise ToolError("http: the URL names no host")


def joined(url: str, location: str) -> str:
    """Where a redirect leads. Bytes beyond ASCII are percent-encoded, as browsers do. Raises `ToolError`."""
    try:
        return urljoin(url, quote(location.encode("latin-1"), safe="%/:?#[]@!$&'()*+,;=~-._\\"))
    except ValueError as error:
        raise ToolError("http: the redirect leads to what is not a URL") from error


def redirected(target: Target, location: str, allow_hosts: frozenset[str]) -> Target:
    """The place that an answer of `target` redirects to. Raises `ToolError`.

    What the operator named, and may be private, is for the script to ask for: a host that nobody named does
    not lead there, or whoever runs it chose what is asked of a server inside.
    """
    following = target_of(joined(target.url, location), allow_hosts)
    if target.trusted or not following.trusted:
        return following
    if following.port not in PORTS.values():
        raise ToolError(
            f"http: {shown(target.url)} redirects to {shown(following.url)}, which is in allow_hosts, and it "
            "is not: ask that one itself"
        )
    return following._replace(trusted=False)  # reached where everybody may


def same_host(before: Target, following: Target) -> bool:
    """Whether a body that was meant for one place may be sent to the other: the same one, or the same host's
    https in the place of its http.
    """
    upgraded = (before.scheme, before.port, following.scheme, following.port) == ("http", 80, "https", 443)
    return before.host == following.host and (upgraded or before.origin == following.origin)


class Deadline:
    """When what is under way must have ended; it may be set anew for the next request of a connection."""

    def __init__(self, ends_s: float) -> None:
        self.ends_s = ends_s

    def left_s(self) -> float:
        """Seconds until then. Raises `TimeoutError` where there are none."""
        left_s = self.ends_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s


def open_pool(target: Target, deadline: Deadline, resolve: Resolve = resolve_host) -> httpcore.ConnectionPool:
    """A client of one connection to a place, its address checked and pinned when it connects."""
    return httpcore.ConnectionPool(
        ssl_context=_tls() if target.scheme == "https" else None,
        network_backend=_Backend(target, resolve, deadline),
        retries=0,
        max_connections=1,
    )


class _Backend(httpcore.NetworkBackend):
    """Connects to the very address that was checked: a name that resolves otherwise a moment later
    (rebinding) gains nothing.

    It goes where `target` says, whatever the client's own reading of the URL may be.
    """

    def __init__(self, target: Target, resolve: Resolve, deadline: Deadline) -> None:
        self._target = target
        self._resolve = resolve
        self._deadline = deadline
        self._real = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        try:
            addresses = self._resolve(self._target.host, self._target.port)
        except (OSError, UnicodeError) as error:
            raise httpcore.ConnectError("the host is not known") from error
        if not self._target.trusted and not all(address_allowed(address) for address in addresses):
            raise ToolError(
                "http: the host is on this machine or its private network; name it in allow_hosts to allow "
                "it (no redirect of a host that is not named there leads to it)"
            )
        return self._first_of(addresses, socket_options)

    def _first_of(
        self, addresses: Iterable[str], socket_options: Iterable[httpcore.SOCKET_OPTION] | None
    ) -> httpcore.NetworkStream:
        """A connection to the first address that takes one."""
        failure: Exception | None = None
        for address in addresses:
            try:
                stream = self._real.connect_tcp(
                    address,
                    self._target.port,
                    timeout=self._deadline.left_s(),
                    socket_options=socket_options,
                )
                return _Stream(stream, self._deadline)
            except httpcore.NetworkError as error:
                failure = error
        raise failure or httpcore.ConnectError("the host has no address")


class _Stream(httpcore.NetworkStream):
    """A connection with one end for everything: a server that drips a byte a second keeps every single read
    in time.
    """

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], self._deadline.left_s())

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        secured = self._inner.start_tls(ssl_context, server_hostname, self._deadline.left_s())
        return _Stream(secured, self._deadline)

    def get_extra_info(self, info: str) -> JSON:
        return self._inner.get_extra_info(info)


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpcore.default_ssl_context()  # 30 ms: it reads every authority's certificate


class Reply(NamedTuple):
    """An answer. `headers` by their lower-case names.
    `body` is empty where its kind is not wanted (`unwanted`).
    """

    status: int
    headers: dict[str, str]
    body: bytes
    unwanted: bool = False

    @property
    def location(self) -> str | None:
        return self.headers.get("location") if self.status in REDIRECTS else None


def exchange(
    pool: httpcore.ConnectionPool,
    method: str,
    target: Target,
    headers: Sequence[tuple[bytes, bytes]],
    deadline: Deadline,
    max_bytes: int,
    *,
    content: bytes | None = None,
    wanted: Wanted | None = None,
) -> Reply:
    """One request and its answer, at most `max_bytes` of it once unpacked. Raises `ToolError`, `FAILURES`."""
    with pool.stream(
        method,
        target.url,
        headers=headers,
        content=content,
        extensions={"timeout": {"pool": deadline.left_s()}},
    ) as reply:
        fields = _header_fields(reply)
        if wanted is not None and reply.status == 200 and not wanted(fields.get("content-type", "")):
            return Reply(reply.status, fields, b"", unwanted=True)
        body = unpacked(reply.iter_stream(), fields.get("content-encoding", ""), max_bytes)
        return Reply(reply.status, fields, body)


def _header_fields(reply: httpcore.Response) -> dict[str, str]:
    """The headers of a reply by their lower-case names; of one that comes twice, the last."""
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}


def _is_packed(encoding: str) -> bool:
    """Whether a reply is compressed. Raises `ToolError` for what it may not be."""
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(names) > 1 or not {"gzip", "x-gzip", "deflate"}.issuperset(names):
        raise ToolError(
            f"http: the reply is encoded as '{encoding[:40]}', which ctx does not ask for; leave out "
            "Accept-Encoding"
        )
    return bool(names)


def unpacked(chunks: Iterator[bytes], encoding: str, limit: int) -> bytes:
    """The decoded body. What unpacks to more than `limit` bytes is refused before it is in memory."""
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if _is_packed(encoding) else None
    parts: list[bytes] = []
    size = received = 0
    for chunk in chunks:
        received += len(chunk)
        try:
            data = unpack.decompress(chunk, limit - size + 1) if unpack else chunk
        except zlib.error as error:
            raise ToolError("http: the reply is damaged: it does not unpack") from error
        size += len(data)
        if size > limit:
            raise ToolError(f"http: the reply is larger than {limit:,} bytes")
        parts.append(data)
    if unpack is not None and received and not unpack.eof:
        raise ToolError("http: the reply is damaged: it ends too early")
    return b"".join(parts)


def shown(url: str) -> str:
    """A URL for a message: without the query, for keys are often in it."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:200]


def reason(error: Exception) -> str:
    """Why a request failed, in words for whoever made it."""
    if isinstance(error, httpcore.ConnectError):
        return "the host is not known" if "not known" in str(error) else "the connection failed"
    if isinstance(error, httpcore.RemoteProtocolError):
        return "the server broke the protocol or hung up"
    return type(error).__name__
