"""Functions for HTTP: read a reply with limits of size and time, and classify hosts and addresses."""

import ipaddress
import time
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from ctx.errors import ConfigError
from ctx.text.strings import host_and_port

# Ten times the size of the largest reply of an embedding service: a batch of long vectors, as decimal
# numbers.
MAX_REPLY_BYTES = 64 << 20


class Boundless(Exception):
    """A reply is too large or compressed twice. The message is the end of a sentence that begins with the
    name of the server.
    """


def read_reply(response: Any, most_bytes: int, within_s: float) -> bytes:
    """Reads the decoded body of an open httpx response. Raises `Boundless` if it has more than `most_bytes`,
    `TimeoutError` if it does not end within `within_s`, and httpx's errors.
    """
    ends_s = time.monotonic() + within_s
    # A kilobyte that is compressed twice can unpack to gigabytes.
    if "," in response.headers.get("content-encoding", ""):
        raise Boundless("sent a reply that is compressed twice")
    body = bytearray()
    for piece in response.iter_bytes():
        body += piece
        if len(body) > most_bytes:
            raise Boundless(f"sent a reply of more than {most_bytes >> 20} MiB")
        if time.monotonic() > ends_s:
            raise TimeoutError("the reply did not end in time")
    return bytes(body)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False  # a host name may resolve to any address


def url_host(host: str) -> str:
    """A host in the form that a URL requires: an IPv6 address gets brackets."""
    return f"[{host}]" if ":" in host else host


def is_everywhere(host: str) -> bool:
    """Whether a server bound to `host` listens on all addresses of this machine (`0.0.0.0`, `::` and other
    spellings).
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def split_bind(bind: str) -> tuple[str, int]:
    """(host, port) of `HOST:PORT`, without the brackets of an IPv6 address. Raises `ConfigError`."""
    parts = host_and_port(bind)
    if parts is None:
        raise ConfigError(
            f"[server] bind must be HOST:PORT such as 127.0.0.1:7331 or [::1]:7331, got '{bind[:80]}'"
        )
    return parts


class Upstream(NamedTuple):
    """Where a ctx server answers MCP, and the key for it."""

    url: str
    key: str | None = None


def local(bind: str) -> str:
    """The URL at which this machine reaches a server bound to HOST:PORT."""
    host, _, port = bind.rpartition(":")
    return f"http://{'127.0.0.1' if is_everywhere(host) else host}:{port}"


def remote(url: str, bank: str | None = None) -> str:
    """The MCP URL of a ctx server; a bare address means its `/mcp`, or `/mcp/BANK`. Raises `ConfigError` if
    `url` is not an address.
    """
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # the port is not a number
        valid = False
    if not valid or not url.isprintable() or " " in url:
        raise ConfigError("--url must be an address such as http://127.0.0.1:7331/mcp")
    if parts.username or parts.password:
        raise ConfigError("--url must not hold a key; export it and name its variable with --key-env")
    path = parts.path
    if path.rstrip("/") in ("", "/mcp") and bank:
        path = f"/mcp/{quote(bank, safe='')}"
    return parts._replace(path=path if path not in ("", "/") else "/mcp", fragment="").geturl()
