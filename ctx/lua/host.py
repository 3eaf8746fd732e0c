"""What a script may ask of the machine: http, files, environment variables, log lines. Runs in the server;
trusts nothing.

Every function takes bytes that a hostile script wrote and gives bytes, or raises `ToolError` with a sentence
for the script's author. No path of
the machine and no secret is in a message.
"""

import fnmatch
import functools
import json
import logging
import os
import re
import socket
import ssl
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, urlencode, urljoin, urlsplit

import httpcore
import orjson

from ctx.errors import ToolError
from ctx.lua.address import address_allowed
from ctx.types import JSON

logger = logging.getLogger("ctx.script")

MAX_RESPONSE_BYTES = 10_000_000  # decompressed
MAX_FILE_BYTES = 10_000_000
MAX_LISTED = 10_000
MAX_GLOB_CHARS = 256  # of `fs.list`: a name has no more
MAX_REDIRECTS = 10
MAX_URL = 8192
DEFAULT_TIMEOUT_S = 30.0
PORTS = {"http": 80, "https": 443}
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
# The client's own business: a script that sets them could smuggle a second request or speak for another host.
REFUSED_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "expect",
        "proxy-authorization",
        "proxy-connection",
    }
)
CROSS_ORIGIN_SECRETS = frozenset({"authorization", "cookie", "proxy-authorization"})
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")
_BAD_URL = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
Resolve = Callable[[str, int], Sequence[str]]
"""`resolve(host, port)`: the addresses of a name. Raises `OSError` where it has none."""


class Policy(NamedTuple):
    """What one script is allowed. `roots`: folders it may read, its own first. `allow_hosts`: HOST or
    HOST:PORT that may be private. `calls`: the tools it may call. `store`: whose values it keeps, "" for none.
    """

    name: str
    roots: tuple[str, ...] = ()
    env: frozenset[str] = frozenset()
    allow_hosts: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    store: str = ""


# ---- http --------------------------------------------------------------------------------------------------


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses the system gives a name, in its order."""
    return list(
        dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    )


def http(policy: Policy, payload: bytes, deadline_s: float, resolve: Resolve = resolve_host) -> bytes:
    """One request with its redirects: JSON {status, ok, headers} NUL body."""
    head, _, body = payload.partition(b"\0")
    request = json.loads(head)
    method = str(request.get("method", "GET")).upper()
    if method not in METHODS:
        raise ToolError(f"http: method {method[:16]} is not one of {', '.join(sorted(METHODS))}")
    timeout_s = request.get("timeout_s")
    timeout_s = float(timeout_s) if _is_number(timeout_s) and timeout_s > 0 else DEFAULT_TIMEOUT_S
    ends_s = min(deadline_s, time.monotonic() + timeout_s)
    headers = _headers(request.get("headers"))
    target = _target(_with_params(str(request.get("url", "")), request.get("params")), policy)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            reply = _once(method, target, headers, body, _Backend(target, resolve, ends_s), ends_s)
            location = reply.headers.get("location")
            if reply.status not in (301, 302, 303, 307, 308) or not location:
                answer = {"status": reply.status, "ok": 200 <= reply.status < 300, "headers": reply.headers}
                return orjson.dumps(answer) + b"\0" + reply.body
            following = _target(_joined(target.url, location), policy)
            if following.origin != target.origin:
                headers = [pair for pair in headers if pair[0].lower() not in CROSS_ORIGIN_SECRETS]
            if reply.status == 303 or (reply.status in (301, 302) and method == "POST"):
                method, body = "HEAD" if method == "HEAD" else "GET", b""
                headers = [pair for pair in headers if not pair[0].lower().startswith("content-")]
            target = following
    except (httpcore.TimeoutException, TimeoutError) as error:
        raise ToolError(f"HTTP {method} {_shown(target.url)} failed: timed out") from error
    except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError) as error:
        raise ToolError(f"HTTP {method} {_shown(target.url)} failed: {_reason(error)}") from error
    raise ToolError(f"HTTP {method} {_shown(target.url)} failed: more than {MAX_REDIRECTS} redirects")


class _Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


class _Target(NamedTuple):
    url: str
    scheme: str
    host: str
    port: int
    trusted: bool  # named in allow_hosts

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _with_params(url: str, params: JSON) -> str:
    if not isinstance(params, dict) or not params:
        return url
    pairs = [(str(name), _param(value)) for name, value in params.items()]
    base, mark, fragment = url.partition("#")
    return base + ("&" if "?" in base else "?") + urlencode(pairs) + mark + fragment


def _param(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _headers(fields: JSON) -> list[tuple[str, str]]:
    headers = []
    for name, value in fields.items() if isinstance(fields, dict) else ():
        text = _param(value)
        if not _HEADER_NAME.fullmatch(name) or name.lower() in REFUSED_HEADERS:
            raise ToolError(f"http: the header '{name[:40]}' may not be set")
        if any(char in text for char in "\r\n\0"):
            raise ToolError(f"http: the header '{name[:40]}' has a line break in it")
        headers.append((name, text))
    return headers


def _joined(url: str, location: str) -> str:
    """Where a redirect leads. Bytes beyond ASCII are percent-encoded, as browsers do."""
    try:
        return urljoin(url, quote(location.encode("latin-1"), safe="%/:?#[]@!$&'()*+,;=~-._\\"))
    except ValueError as error:
        raise ToolError("http: the redirect leads to what is not a URL") from error


def _target(url: str, policy: Policy) -> _Target:
    """The place a URL names, if it may be gone to at all. Raises `ToolError`."""
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
    if parts.scheme not in PORTS:
        raise ToolError("http: only http:// and https:// URLs")
    if parts.username is not None or parts.password is not None:
        raise ToolError("http: no user or password in the URL; send an Authorization header")
    if not host or "%" in host:
        raise ToolError("http: the URL names no host")
    port = PORTS[parts.scheme] if port is None else port
    named = f"[{host}]" if ":" in host else host
    trusted = not policy.allow_hosts.isdisjoint((host, named, f"{named}:{port}"))
    if not trusted and port not in PORTS.values():
        raise ToolError(f"http: port {port} is not allowed; name {named}:{port} in allow_hosts to allow it")
    return _Target(url.partition("#")[0], parts.scheme, host, port, trusted)


class _Backend(httpcore.NetworkBackend):
    """Connects to the very address that was checked: a name that resolves otherwise a moment later
    (rebinding) gains nothing.

    It goes where `target` says, whatever the client's own reading of the URL may be.
    """

    def __init__(self, target: _Target, resolve: Resolve, ends_s: float) -> None:
        self._target = target
        self._resolve = resolve
        self._ends_s = ends_s
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
                "http: the host is on this machine or its private network; name it in allow_hosts to allow it"
            )
        failure: Exception | None = None
        for address in addresses:
            try:
                stream = self._real.connect_tcp(
                    address, self._target.port, timeout=_left_s(self._ends_s), socket_options=socket_options
                )
                return _Stream(stream, self._ends_s)
            except httpcore.NetworkError as error:
                failure = error
        raise failure or httpcore.ConnectError("the host has no address")

    def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        raise ToolError("http: unix sockets are not reached")

    def sleep(self, seconds: float) -> None:
        self._real.sleep(min(seconds, _left_s(self._ends_s)))


class _Stream(httpcore.NetworkStream):
    """A connection with one end for everything: a server that drips a byte a second keeps every single read
    in time.
    """

    def __init__(self, inner: httpcore.NetworkStream, ends_s: float) -> None:
        self._inner = inner
        self._ends_s = ends_s

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, _left_s(self._ends_s))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _PIECE_BYTES):
            self._inner.write(buffer[start : start + _PIECE_BYTES], _left_s(self._ends_s))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        return _Stream(
            self._inner.start_tls(ssl_context, server_hostname, _left_s(self._ends_s)), self._ends_s
        )

    def get_extra_info(self, info: str) -> JSON:
        return self._inner.get_extra_info(info)


_PIECE_BYTES = 1 << 16  # a peer that reads slowly is noticed between two of these


def _left_s(ends_s: float) -> float:
    left_s = ends_s - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


@functools.cache
def _tls() -> ssl.SSLContext:
    return httpcore.default_ssl_context()  # 30 ms: it reads every authority's certificate


def _once(
    method: str,
    target: _Target,
    headers: list[tuple[str, str]],
    body: bytes,
    backend: _Backend,
    ends_s: float,
) -> _Reply:
    named = {name.lower() for name, _ in headers}
    ours = (("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("User-Agent", "ctx-script"))
    lines = [*(pair for pair in ours if pair[0].lower() not in named), *headers]
    context = _tls() if target.scheme == "https" else None
    with (
        httpcore.ConnectionPool(
            ssl_context=context, network_backend=backend, retries=0, max_connections=1
        ) as pool,
        pool.stream(
            method,
            target.url,
            headers=[(name.encode(), value.encode("utf-8", "replace")) for name, value in lines],
            content=body if body or method in ("POST", "PUT", "PATCH") else None,
            extensions={"timeout": {"pool": _left_s(ends_s)}},
        ) as reply,
    ):
        fields: dict[str, str] = {}
        for name, value in reply.headers:
            fields[name.decode("latin-1").lower()] = value.decode("latin-1")
        return _Reply(reply.status, fields, _body(reply.iter_stream(), fields.get("content-encoding", "")))


def _body(chunks: Iterator[bytes], encoding: str) -> bytes:
    """The decoded body. What unpacks to more than the cap is cut off at the cap, before it is in memory."""
    names = [
        name.strip().lower()
        for name in encoding.split(",")
        if name.strip() and name.strip().lower() != "identity"
    ]
    if len(names) > 1 or any(name not in ("gzip", "x-gzip", "deflate") for name in names):
        raise ToolError(
            f"http: the reply is encoded as '{encoding[:40]}', which ctx does not ask for; leave out "
            "Accept-Encoding"
        )
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if names else None
    parts: list[bytes] = []
    size = received = 0
    for chunk in chunks:
        received += len(chunk)
        try:
            data = unpack.decompress(chunk, MAX_RESPONSE_BYTES - size + 1) if unpack else chunk
        except zlib.error as error:
            raise ToolError("http: the reply is damaged: it does not unpack") from error
        size += len(data)
        if size > MAX_RESPONSE_BYTES:
            raise ToolError(f"http: the reply is larger than {MAX_RESPONSE_BYTES:,} bytes")
        parts.append(data)
    if unpack is not None and received and not unpack.eof:
        raise ToolError("http: the reply is damaged: it ends too early")
    return b"".join(parts)


def _shown(url: str) -> str:
    # Without the query: keys are often in it, and the message goes to logs and callers.
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:200]


def _reason(error: Exception) -> str:
    if isinstance(error, httpcore.ConnectError):
        return "the host is not known" if "not known" in str(error) else "the connection failed"
    if isinstance(error, httpcore.RemoteProtocolError):
        return "the server broke the protocol or hung up"
    return type(error).__name__


# ---- files -------------------------------------------------------------------------------------------------

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = (
    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
)  # a FIFO opens at once, and is then refused


def fs_read(policy: Policy, payload: bytes) -> bytes:
    """A file's bytes. Only regular files below a root, reached without following a link."""
    descriptor = _open_beneath(policy, payload, folder=False)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError("fs.read: that is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ToolError(f"fs.read: the file is larger than {MAX_FILE_BYTES:,} bytes")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"fs.read: the file is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def fs_list(policy: Policy, payload: bytes) -> bytes:
    """One folder, by name: JSON [{path, name, size, modified, dir}]. `path` is what `fs.read` takes."""
    request = json.loads(payload)
    folder = str(request.get("dir", ".")) or "."
    fits = _glob_test(request.get("glob"))
    prefix = "" if folder in (".", "./") else f"{folder.rstrip('/')}/"
    descriptor = _open_beneath(policy, folder.encode("utf-8", "surrogateescape"), folder=True)
    rows: list[JSON] = []
    try:
        for name in sorted(os.listdir(descriptor)):
            if not name.isascii() and any("\ud800" <= char <= "\udfff" for char in name):
                continue  # a name that is not UTF-8 cannot be said in JSON
            if not fits(name):
                continue
            try:
                status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            except FileNotFoundError:
                continue  # deleted since it was listed
            if stat.S_ISLNK(status.st_mode):
                continue
            row: JSON = {"path": prefix + name, "name": name, "size": status.st_size}
            rows.append(row | {"modified": int(status.st_mtime), "dir": stat.S_ISDIR(status.st_mode)})
            if len(rows) > MAX_LISTED:
                raise ToolError(
                    f"fs.list: the folder holds more than {MAX_LISTED:,} entries; narrow it with a glob"
                )
    finally:
        os.close(descriptor)
    return json.dumps(rows).encode()


def _glob_test(glob: JSON) -> Callable[[str], object]:
    """Whether a name fits a script's glob (`*`, `?`, `[...]`); every name where there is none. Raises `ToolError`.

    `fnmatch` makes a regular expression that never tries a star twice, so a match costs the glob's length times the name's.
    """
    if not glob:
        return bool
    if not isinstance(glob, str) or len(glob) > MAX_GLOB_CHARS:
        raise ToolError(f"fs.list: a glob is text of at most {MAX_GLOB_CHARS} characters")
    return re.compile(fnmatch.translate(glob)).match


def _open_beneath(policy: Policy, payload: bytes, *, folder: bool) -> int:
    """A descriptor of a path below a root, component by component: a link put there leads nowhere."""
    operation = "fs.list" if folder else "fs.read"
    if b"\0" in payload or len(payload) > 4096:
        raise ToolError(f"{operation}: that is not a path")
    path = os.fsdecode(payload)
    root, below = _root_of(policy, path, operation)
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{operation}: the path leads out of the script's folders")
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for number, part in enumerate(parts):
                last = number == len(parts) - 1
                following = os.open(part, _FILE if last and not folder else _FOLDER, dir_fd=descriptor)
                os.close(descriptor)
                descriptor = following
        except BaseException:
            os.close(descriptor)
            raise
    except OSError as error:
        text = path[:120].encode("utf-8", "backslashreplace").decode()
        raise ToolError(f"{operation}: {os.strerror(error.errno or 0)}: {text}") from error
    return descriptor


def _root_of(policy: Policy, path: str, operation: str) -> tuple[str, str]:
    if not policy.roots:
        raise ToolError(f"{operation}: the script has no folder to read")
    if not os.path.isabs(path):
        return policy.roots[0], path
    for root in policy.roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return root, path[len(root) :]
    raise ToolError(
        f"{operation}: the path is not in the script's folders; name its folder in fs = [...] to allow it"
    )


# ---- environment and log -----------------------------------------------------------------------------------


def env_get(policy: Policy, payload: bytes, environ: Mapping[str, str]) -> bytes:
    """A variable that the operator listed; null for any other: which exist cannot be found out."""
    name = payload.decode("utf-8", "replace")
    value = environ.get(name) if name in policy.env else None
    return orjson.dumps(None if value is None else value.encode("utf-8", "replace").decode())


_LEVELS = {b"debug": logging.DEBUG, b"info": logging.INFO, b"warn": logging.WARNING, b"error": logging.ERROR}


def log(policy: Policy, payload: bytes) -> bytes:
    """One line in the server's log, under the script's name."""
    level, _, message = payload.partition(b"\0")
    logger.log(_LEVELS.get(level, logging.INFO), "[%s] %s", policy.name, message.decode("utf-8", "replace"))
    return b""
