"""Addresses of ctx servers, here and elsewhere."""

from typing import NamedTuple
from urllib.parse import SplitResult, quote, urlsplit

from ctx.errors import ConfigError
from ctx.http import is_everywhere


class Upstream(NamedTuple):
    """Where a server answers MCP, and the key for it."""

    url: str
    key: str | None = None


def local(bind: str) -> str:
    """The URL at which this machine reaches a server bound to HOST:PORT."""
    host, _, port = bind.rpartition(":")
    return f"http://{'127.0.0.1' if is_everywhere(host) else host}:{port}"


def _split(url: str) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number
        return None
    return parts if valid and url.isprintable() and " " not in url else None


def remote(url: str, bank: str | None = None) -> str:
    """The MCP URL of a server; a bare address means its `/mcp`, or `/mcp/BANK`. Raises `ConfigError` for what
    is no address.
    """
    parts = _split(url)
    if parts is None:
        raise ConfigError("--url must be an address such as http://127.0.0.1:7331/mcp")
    if parts.username or parts.password:
        raise ConfigError("--url must not hold a key; export it and name its variable with --key-env")
    path = parts.path
    if path.rstrip("/") in ("", "/mcp") and bank:
        path = f"/mcp/{quote(bank, safe='')}"
    return parts._replace(path=path if path not in ("", "/") else "/mcp", fragment="").geturl()
