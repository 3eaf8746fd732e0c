"""A simple HTTP client: keeps connections, limits time and size, and does not follow redirects.

`ctx/lua/fetch.py` checks the addresses.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import httpcore

from ctx import __version__
from ctx.errors import SourceError, ToolError
from ctx.lua.fetch import (
    FAILURES,
    TIMEOUTS,
    Reply,
    Resolve,
    Target,
    Wanted,
    exchange,
    joined,
    open_pool,
    reason,
    resolve_host,
    target_of,
)
from ctx.lua.frames import Deadline

AGENT = "ctx"  # the name under which robots.txt has rules for ctx
USER_AGENT = f"{AGENT}/{__version__} (+https://github.com/ctx-server/ctx)"
REQUEST_S = 30.0  # seconds for one reply, from the DNS look-up of the host to the last byte
MAX_ORIGINS = 8  # maximum connections to keep open, one per origin


class Unanswered(SourceError):
    """A request got no usable reply. `refused`: our own rules forbid it, so a retry does not help."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(eq=False)
class Session:
    """An HTTP client without cookies. Not thread-safe. Close it after use.

    `allow_hosts` are HOST or HOST:PORT that may be in a private network. `ends_s` is when all requests must
    end, on the clock of `time.monotonic()`.
    """

    allow_hosts: frozenset[str]
    ends_s: float
    resolve: Resolve = resolve_host

    def __post_init__(self) -> None:
        self._deadline = Deadline(self.ends_s)
        self._pools: dict[tuple[str, str, int], httpcore.ConnectionPool] = {}

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    def target(self, address: str) -> Target:
        """Parse and check an address. Raises `Unanswered` if it is not allowed."""
        try:
            return target_of(address, self.allow_hosts)
        except ToolError as error:
            raise _refusal(error) from error

    def follow(self, address: str, location: str) -> str:
        """The address that a redirect from `address` leads to. Raises `Unanswered` if it is not allowed."""
        try:
            return self.target(joined(address, location)).url
        except ToolError as error:
            raise _refusal(error) from error

    def get(
        self,
        address: str,
        headers: Sequence[tuple[str, str]],
        max_bytes: int,
        *,
        wanted: Wanted | None = None,
        timeout_s: float | None = None,
    ) -> Reply:
        """Send a request and return the reply, of at most `max_bytes`. Retries once if a kept connection
        turns out to be closed. Raises `Unanswered`.
        """
        target = self.target(address)
        timeout_s = REQUEST_S if timeout_s is None else timeout_s
        lines = [*headers, ("Accept-Encoding", "gzip"), ("User-Agent", USER_AGENT)]
        encoded = [(name.encode(), value.encode("latin-1", "replace")) for name, value in lines]

        pool = self._pools.get(target.origin)
        kept = pool is not None and bool(pool.connections)
        if pool is None:
            if len(self._pools) >= MAX_ORIGINS:
                self._pools.pop(next(iter(self._pools))).close()
            pool = self._pools[target.origin] = open_pool(target, self._deadline, self.resolve)

        def once() -> Reply:
            self._deadline.ends_s = min(time.monotonic() + timeout_s, self.ends_s)
            return exchange(pool, "GET", target, encoded, self._deadline, max_bytes, wanted=wanted)

        try:
            try:
                return once()
            except TIMEOUTS:
                raise
            except FAILURES:
                if not kept:
                    raise
                return once()
        except ToolError as error:
            raise _refusal(error) from error
        except TIMEOUTS as error:
            over = time.monotonic() >= self.ends_s
            raise Unanswered(
                "the time for all of it is over" if over else f"no whole answer within {timeout_s:g} s"
            ) from error
        except FAILURES as error:
            raise Unanswered(reason(error)) from error


def _refusal(error: ToolError) -> Unanswered:
    return Unanswered(error.message.removeprefix("http: "), refused=True)
