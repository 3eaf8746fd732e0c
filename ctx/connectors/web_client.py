"""A polite client for one source on the web: slow on purpose, without memory of who it is, never past its caps."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import NamedTuple

import httpcore

from ctx import __version__
from ctx.connectors.web_robots import ALL_ALLOWED, MAX_ROBOTS_BYTES, Robots, read_robots
from ctx.errors import CtxError, ToolError
from ctx.lua.fetch import (
    FAILURES,
    LATE,
    Deadline,
    Resolve,
    Target,
    header_fields,
    joined,
    open_pool,
    reason,
    resolve_host,
    target_of,
    unpacked,
)

AGENT = "ctx"  # the name by which robots.txt may speak of us
USER_AGENT = f"{AGENT}/{__version__} (+https://github.com/ctx-server/ctx)"
REQUEST_S = 30.0  # for one page, from the name's look-up to the last byte
MAX_WAIT_S = 60.0  # that a server may ask for (`Retry-After`) before it counts as failing
MAX_ROBOTS_REDIRECTS = 5
MAX_ORIGINS = 8  # connections kept open
REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, */*;q=0.5"


class Reply(NamedTuple):
    """An answer. `body` is empty where its kind is not wanted (`unwanted`)."""

    status: int
    headers: dict[str, str]
    body: bytes
    unwanted: bool = False

    @property
    def location(self) -> str | None:
        return self.headers.get("location") if self.status in REDIRECTS else None


class Unanswered(CtxError):
    """There is no answer, or none that may be taken. `refused`: by our own rules, so that asking again is in vain."""

    word = "source_error"

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


class Client:
    """Asks one page after the other; a connection to a site is kept while it lasts.

    `allow_hosts`: HOST or HOST:PORT that may be private. `delay_s`: from the start of a request to the next one's;
    what the site's robots.txt asks for counts if it is longer. Closed with the block.
    """

    def __init__(
        self,
        *,
        allow_hosts: frozenset[str],
        delay_s: float,
        max_bytes: int,
        robots: bool = True,
        ends_s: float = float("inf"),
        resolve: Resolve = resolve_host,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._allow_hosts = allow_hosts
        self._delay_s = delay_s
        self._max_bytes = max_bytes
        self._obeys = robots
        self._ends_s = ends_s
        self._resolve = resolve
        self._pause = pause
        self._next_s = 0.0
        self._deadline = Deadline(ends_s)
        self._pools: dict[tuple[str, str, int], httpcore.ConnectionPool] = {}
        self._robots: dict[tuple[str, str, int], Robots | Unanswered] = {}

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            pool.close()

    def get(
        self, address: str, *, etag: str = "", modified: str = "", wanted: Callable[[str], bool] | None = None
    ) -> Reply:
        """One page, without following a redirect. `wanted(content type)` tells whether a body is worth its bytes.

        With `etag` or `modified`, of an earlier answer, 304 says that nothing has changed. Raises `Unanswered`, also for
        what robots.txt forbids.
        """
        target = self._target(address)
        robots = self._robots_of(address)
        if not robots.allows(address):
            raise Unanswered("robots.txt forbids it", refused=True)
        headers = [("Accept", _ACCEPT)]
        headers += [("If-None-Match", etag)] if etag else []
        headers += [("If-Modified-Since", modified)] if modified else []
        self._wait(max(self._delay_s, robots.delay_s))
        reply = self._answer(target.url, headers, self._max_bytes, wanted)
        if reply.status in (429, 503) and (wait_s := retry_after_s(reply.headers)) is not None:
            self._pause(min(wait_s, max(0.0, self._ends_s - time.monotonic())))
            reply = self._answer(target.url, headers, self._max_bytes, wanted)
        return reply

    def follow(self, address: str, location: str) -> str:
        """Where a redirect leads. Raises `Unanswered`."""
        try:
            return self._target(joined(address, location)).url
        except ToolError as error:
            raise Unanswered(error.message.removeprefix("http: "), refused=True) from error

    def _target(self, address: str) -> Target:
        try:
            return target_of(address, self._allow_hosts)
        except ToolError as error:
            raise Unanswered(error.message.removeprefix("http: "), refused=True) from error

    def _wait(self, delay_s: float) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._pause(self._next_s - now_s)
        self._next_s = time.monotonic() + delay_s

    def _answer(
        self,
        address: str,
        headers: list[tuple[str, str]],
        max_bytes: int,
        wanted: Callable[[str], bool] | None,
    ) -> Reply:
        try:
            try:
                return self._once(address, headers, max_bytes, wanted)
            except LATE:
                raise
            except FAILURES:
                return self._once(
                    address, headers, max_bytes, wanted
                )  # a kept connection may have been closed
        except ToolError as error:
            raise Unanswered(error.message.removeprefix("http: "), refused=True) from error
        except LATE as error:
            over = time.monotonic() >= self._ends_s
            raise Unanswered(
                "the time of the crawl is over" if over else f"no whole answer within {REQUEST_S:g} s"
            ) from error
        except FAILURES as error:
            raise Unanswered(reason(error)) from error

    def _once(
        self,
        address: str,
        headers: list[tuple[str, str]],
        max_bytes: int,
        wanted: Callable[[str], bool] | None,
    ) -> Reply:
        target = target_of(address, self._allow_hosts)
        pool = self._pools.get(target.origin)
        if pool is None:
            if len(self._pools) >= MAX_ORIGINS:
                self._pools.pop(next(iter(self._pools))).close()
            pool = self._pools[target.origin] = open_pool(target, self._deadline, self._resolve)
        self._deadline.ends_s = min(time.monotonic() + REQUEST_S, self._ends_s)
        lines = [*headers, ("Accept-Encoding", "gzip"), ("User-Agent", USER_AGENT)]
        with pool.stream(
            "GET",
            target.url,
            headers=[(name.encode(), value.encode("latin-1", "replace")) for name, value in lines],
            extensions={"timeout": {"pool": self._deadline.left_s()}},
        ) as reply:
            fields = header_fields(reply)
            if wanted is not None and reply.status == 200 and not wanted(fields.get("content-type", "")):
                return Reply(reply.status, fields, b"", unwanted=True)
            body = unpacked(reply.iter_stream(), fields.get("content-encoding", ""), max_bytes)
            return Reply(reply.status, fields, body)

    # -- robots.txt --------------------------------------------------------------------------------

    def _robots_of(self, address: str) -> Robots:
        if not self._obeys:
            return ALL_ALLOWED
        origin = self._target(address).origin
        if origin not in self._robots:
            try:
                self._robots[origin] = self._read_robots(address)
            except Unanswered as error:
                self._robots[origin] = error
        robots = self._robots[origin]
        if isinstance(robots, Unanswered):
            raise robots
        return robots

    def _read_robots(self, address: str) -> Robots:
        """RFC 9309, 2.3.1: a robots.txt that is not there allows everything, one that fails nothing."""
        url = joined(address, "/robots.txt")
        for _ in range(MAX_ROBOTS_REDIRECTS + 1):
            self._wait(self._delay_s)
            try:
                reply = self._answer(url, [], MAX_ROBOTS_BYTES, None)
            except Unanswered as error:
                raise Unanswered(f"robots.txt: {error.message}", refused=error.refused) from error
            if reply.location is None:
                break
            url = self.follow(url, reply.location)
        if reply.status == 200:
            return read_robots(reply.body, AGENT)
        if reply.status >= 500 or reply.status == 429:
            raise Unanswered(f"robots.txt: the server answers {reply.status}")
        return ALL_ALLOWED


def retry_after_s(headers: dict[str, str]) -> float | None:
    """How long a server asks to be left alone; None where it does not say, or longer than one waits."""
    text = headers.get("retry-after", "").strip()
    if not text.isascii() or not text.isdigit():
        return None
    return float(text) if len(text) < 4 and float(text) <= MAX_WAIT_S else None


def moment_ms(headers: dict[str, str]) -> int | None:
    """`Last-Modified` in milliseconds since the epoch; None where it is no date."""
    try:
        return max(0, int(parsedate_to_datetime(headers["last-modified"]).timestamp() * 1000))
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
