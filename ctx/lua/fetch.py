"""HTTP requests to checked addresses, for scripts and for web sources.

The URL is checked before the request. The addresses of its host are checked after the DNS lookup, and the
connection goes to a checked address. Proxies and `.netrc` are not used. A refused request raises a
`ToolError` whose message begins with "http: "; a failed request raises one of httpcore's errors, which
`reason` describes.
"""

import functools
import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

import httpcore

from ctx.errors import ToolError
from ctx.lua.frames import Deadline
from ctx.models import JSON

MAX_URL = 8192
MAX_REDIRECTS = 10
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PORTS = {"http": 80, "https": 443}
FAILURES = (httpcore.NetworkError, httpcore.ProtocolError, httpcore.UnsupportedProtocol, OSError)
TIMEOUTS = (httpcore.TimeoutException, TimeoutError)  # catch before `FAILURES`: TimeoutError is an OSError
_WRITE_BYTES = 1 << 16  # bytes per write; the deadline is checked after each write
_BAD_URL = re.compile(r"[\x00-\x20\x7f\\]|[^\x00-\x7f]")
Resolve = Callable[[str, int], Sequence[str]]
"""`resolve(host, port)` returns the addresses of a host name. Raises `OSError` if it has none."""
Wanted = Callable[[str], bool]
"""`wanted(content type)` returns whether to read the body of a reply."""


def resolve_host(host: str, port: int) -> list[str]:
    """The addresses of a host name, in the order of the system's resolver."""
    return list(
        dict.fromkeys(str(entry[4][0]) for entry in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    )


class Target(NamedTuple):
    """The target of a request. `trusted` is True if the operator named the host, which may then be on a
    private network.
    """

    url: str
    scheme: str
    host: str
    port: int
    trusted: bool

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


def target_of(url: str, allow_hosts: frozenset[str]) -> Target:
    """The target of a URL. `allow_hosts` has HOST or HOST:PORT entries that may be on a private network.
    Raises `ToolError`.
    """
    if len(url) > MAX_URL:
        raise ToolError(f"http: the URL is longer than {MAX_URL} characters")
    if _BAD_URL.search(url):
        raise ToolError(
            "http: the URL has a space, a control character, a backslash or a non-ASCII letter; "
            "percent-encode it"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
    except ValueError as error:
        raise ToolError("http: not a URL") from error
    scheme = parts.scheme
    if scheme not in PORTS:
        raise ToolError("http: only http:// and https:// URLs are allowed")
    if parts.username is not None or parts.password is not None:
        raise ToolError("http: a URL must not contain a user or password; send an Authorization header")
    if not host or "%" in host:
        raise ToolError("http: the URL has no host")
    port = PORTS[scheme] if port is None else port
    named = f"[{host}]" if ":" in host else host
    trusted = not allow_hosts.isdisjoint((host, named, f"{named}:{port}"))
    if not trusted and port not in PORTS.values():
        raise ToolError(f"http: port {port} is not allowed; name {named}:{port} in allow_hosts to allow it")
    return Target(url.partition("#")[0], scheme, host, port, trusted)


def joined(url: str, location: str) -> str:
    """The URL of a redirect to `location`. Non-ASCII bytes are percent-encoded, as in browsers. Raises
    `ToolError`.
    """
    try:
        return urljoin(url, quote(location.encode("latin-1"), safe="%/:?#[]@!$&'()*+,;=~-._\\"))
    except ValueError as error:
        raise ToolError("http: the redirect's Location is not a URL") from error


def redirected(target: Target, location: str, allow_hosts: frozenset[str]) -> Target:
    """The target of a redirect. Raises `ToolError`.

    A redirect from a host that is not in `allow_hosts` must not reach a private host that is: otherwise a
    stranger could choose the requests to a server on the private network.
    """
    following = target_of(joined(target.url, location), allow_hosts)
    if target.trusted or not following.trusted:
        return following
    if following.port not in PORTS.values():
        raise ToolError(
            f"http: {shown(target.url)} is not in allow_hosts, but redirects to {shown(following.url)}, "
            "which is; request that URL directly"
        )
    return following._replace(trusted=False)  # untrusted, so that it is allowed only if its address is public


def same_host(before: Target, following: Target) -> bool:
    """Whether a redirect may carry the body: to the same origin, or from http to https on the same host."""
    upgraded = (before.scheme, before.port, following.scheme, following.port) == ("http", 80, "https", 443)
    return before.host == following.host and (upgraded or before.origin == following.origin)


def open_pool(target: Target, deadline: Deadline, resolve: Resolve = resolve_host) -> httpcore.ConnectionPool:
    """A client with one connection to a target, whose address is checked and pinned when it connects."""
    return httpcore.ConnectionPool(
        ssl_context=_tls() if target.scheme == "https" else None,
        network_backend=_Backend(target, resolve, deadline),
        retries=0,
        max_connections=1,
    )


class _Backend(httpcore.NetworkBackend):
    """Connects to the address that was checked, so DNS rebinding has no effect.

    It always connects to `target`, even if httpcore parses the URL differently.
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
                "it (redirects from hosts that are not named there stay forbidden)"
            )
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
    """A connection with one deadline for all reads and writes together. With a time limit for each read, a
    slow server could hold the connection forever.
    """

    def __init__(self, inner: httpcore.NetworkStream, deadline: Deadline) -> None:
        self._inner = inner
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._deadline.left_s())

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), _WRITE_BYTES):
            self._inner.write(buffer[start : start + _WRITE_BYTES], self._deadline.left_s())

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
    return httpcore.default_ssl_context()  # 30 ms: it reads all root certificates


class Reply(NamedTuple):
    """An HTTP reply. Header names are lower case. `unwanted` is True if the body was not read because of its
    content type.
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
    """Send a request and read the reply. The decompressed body may have at most `max_bytes`. Raises
    `ToolError` and the errors in `FAILURES` and `TIMEOUTS`.
    """
    with pool.stream(
        method,
        target.url,
        headers=headers,
        content=content,
        extensions={"timeout": {"pool": deadline.left_s()}},
    ) as reply:
        fields = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in reply.headers}
        if wanted is not None and reply.status == 200 and not wanted(fields.get("content-type", "")):
            return Reply(reply.status, fields, b"", unwanted=True)
        body = unpacked(reply.iter_stream(), fields.get("content-encoding", ""), max_bytes)
        return Reply(reply.status, fields, body)


def _is_compressed(encoding: str) -> bool:
    """Whether a reply is compressed. Raises `ToolError` for an unsupported encoding."""
    names = [name for part in encoding.lower().split(",") if (name := part.strip()) not in ("", "identity")]
    if len(names) > 1 or not {"gzip", "x-gzip", "deflate"}.issuperset(names):
        raise ToolError(
            f"http: the reply is encoded as '{encoding[:40]}', which is not supported; do not set "
            "Accept-Encoding"
        )
    return bool(names)


def unpacked(chunks: Iterator[bytes], encoding: str, limit: int) -> bytes:
    """The decompressed body. If it has more than `limit` bytes, raises `ToolError` before they are all in
    memory.
    """
    unpack = zlib.decompressobj(zlib.MAX_WBITS | 32) if _is_compressed(encoding) else None
    parts: list[bytes] = []
    size = received = 0
    for chunk in chunks:
        received += len(chunk)
        try:
            data = unpack.decompress(chunk, limit - size + 1) if unpack else chunk
        except zlib.error as error:
            raise ToolError("http: the reply is damaged: it cannot be decompressed") from error
        size += len(data)
        if size > limit:
            raise ToolError(f"http: the reply is larger than {limit:,} bytes")
        parts.append(data)
    if unpack is not None and received and not unpack.eof:
        raise ToolError("http: the reply is damaged: it ends too early")
    return b"".join(parts)


def shown(url: str) -> str:
    """A URL for messages, without its query, which may contain a key."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}{parts.path}"[:200]


def reason(error: Exception) -> str:
    """The reason why a request failed, for the script's author."""
    if isinstance(error, httpcore.ConnectError):
        return "the host is not known" if "not known" in str(error) else "the connection failed"
    if isinstance(error, httpcore.RemoteProtocolError):
        return "the server broke the protocol or closed the connection"
    return type(error).__name__


# -- addresses -----------------------------------------------------------------------------------------------
# Only addresses on the public internet are allowed. These are refused (the registries were read in 2026-11):
#
# - every block of the IANA special-purpose registries, including the globally reachable ones, because none
#   has web servers: https://www.iana.org/assignments/iana-ipv4-special-registry/, iana-ipv6-special-registry
# - IPv4 multicast (RFC 5771), and every IPv6 address outside global unicast, 2000::/3:
#   https://www.iana.org/assignments/ipv6-address-space/
# - IPv6 addresses that contain an IPv4 address (RFC 3056, 4291, 4380, 5214, 6052, 8215)
# - the clouds' metadata services, which give credentials to every program on the machine

IPV4_SPECIAL = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",  # this network, RFC 791
        "10.0.0.0/8",  # private use, RFC 1918
        "100.64.0.0/10",  # shared address space of providers, RFC 6598
        "127.0.0.0/8",  # loopback, RFC 1122
        # Azure's WireServer; other metadata services are in a block of this list
        # https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        "168.63.129.16/32",
        "169.254.0.0/16",  # link-local, RFC 3927
        "172.16.0.0/12",  # private use, RFC 1918
        # protocol assignments, RFC 6890: DS-Lite, NAT64 discovery, PCP and TURN anycast in it
        "192.0.0.0/24",
        "192.0.2.0/24",  # documentation (TEST-NET-1), RFC 5737
        "192.31.196.0/24",  # AS112-v4, RFC 7535
        "192.52.193.0/24",  # AMT relays, RFC 7450
        "192.88.99.0/24",  # 6to4 relay anycast, withdrawn, RFC 7526
        "192.168.0.0/16",  # private use, RFC 1918
        "192.175.48.0/24",  # AS112 by delegation, RFC 7534
        "198.18.0.0/15",  # benchmarking, RFC 2544
        "198.51.100.0/24",  # documentation (TEST-NET-2), RFC 5737
        "203.0.113.0/24",  # documentation (TEST-NET-3), RFC 5737
        "224.0.0.0/4",  # multicast, RFC 5771
        "240.0.0.0/4",  # reserved, RFC 1112, and the broadcast address at its end, RFC 8190
    )
)
IPV6_GLOBAL_UNICAST = IPv6Network("2000::/3")
IPV6_SPECIAL = tuple(  # the special blocks within global unicast, 2000::/3
    IPv6Network(block)
    for block in (
        "2001::/23",  # protocol assignments, RFC 2928: Teredo, ORCHID, benchmarking, anycasts in it
        "2001:db8::/32",  # documentation, RFC 3849
        "2002::/16",  # 6to4, RFC 3056
        "2620:4f:8000::/48",  # AS112 by delegation, RFC 7534
        "3fff::/20",  # documentation, RFC 9637
    )
)
# In an ISATAP address, these 32 bits are in front of the IPv4 address, RFC 5214.
_ISATAP = (0x00005EFE, 0x02005EFE)


def address_allowed(text: str) -> bool:
    """Whether an address is on the public internet. False for an address of this machine or a private
    network, however it is written.

    An IPv4 address behind a NAT64 prefix of a provider cannot be recognised; the provider must block it.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if not address.is_global:
        return False
    if not isinstance(address, IPv6Address):
        return not any(address in block for block in IPV4_SPECIAL)
    return (
        address.scope_id is None
        and address in IPV6_GLOBAL_UNICAST
        and not any(address in block for block in IPV6_SPECIAL)
        and (int(address) >> 32) & 0xFFFFFFFF not in _ISATAP
    )
