"""A polite client for one source on the web: slow on purpose, and only where the site lets robots go."""

import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from ctx.connectors.session import AGENT, Session, Unanswered
from ctx.connectors.web_robots import MAX_ROBOTS_BYTES, Robots
from ctx.lua.fetch import Reply, Wanted, joined

MAX_WAIT_S = 60.0  # that a server may ask for (`Retry-After`) before it counts as failing
MAX_ROBOTS_REDIRECTS = 5
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, */*;q=0.5"


class Client:
    """Asks one page after the other.

    `delay_s`: from the start of a request to the next one's; what the site's robots.txt asks for counts if it
    is longer.
    """

    def __init__(
        self,
        session: Session,
        *,
        delay_s: float,
        max_bytes: int,
        robots: bool = True,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._session = session
        self._delay_s = delay_s
        self._max_bytes = max_bytes
        self._obeys = robots
        self._pause = pause
        self._next_s = 0.0
        self._robots: dict[tuple[str, str, int], Robots | Unanswered] = {}

    def get(self, address: str, *, etag: str = "", modified: str = "", wanted: Wanted | None = None) -> Reply:
        """One page, without following a redirect.

        With `etag` or `modified`, of an earlier answer, 304 says that nothing has changed. Raises
        `Unanswered`, also for what robots.txt forbids.
        """
        robots = self._robots_of(address)
        if not robots.allows(address):
            raise Unanswered("robots.txt forbids it", refused=True)
        headers = [("Accept", _ACCEPT)]
        headers += [("If-None-Match", etag)] if etag else []
        headers += [("If-Modified-Since", modified)] if modified else []
        self._wait(max(self._delay_s, robots.delay_s))
        reply = self._session.get(address, headers, self._max_bytes, wanted=wanted)
        if reply.status in (429, 503) and (wait_s := retry_after_s(reply.headers)) is not None:
            self._pause(min(wait_s, max(0.0, self._session.ends_s - time.monotonic())))
            reply = self._session.get(address, headers, self._max_bytes, wanted=wanted)
        return reply

    def follow(self, address: str, location: str) -> str:
        """Where a redirect leads. Raises `Unanswered`."""
        return self._session.follow(address, location)

    def _wait(self, delay_s: float) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._pause(self._next_s - now_s)
        self._next_s = time.monotonic() + delay_s

    # -- robots.txt --------------------------------------------------------------------------------

    def _robots_of(self, address: str) -> Robots:
        if not self._obeys:
            return Robots(b"", AGENT)
        origin = self._session.target(address).origin
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
                reply = self._session.get(url, [], MAX_ROBOTS_BYTES)
            except Unanswered as error:
                raise Unanswered(f"robots.txt: {error.message}", refused=error.refused) from error
            if reply.location is None:
                break
            url = self.follow(url, reply.location)
        if reply.status == 200:
            return Robots(reply.body, AGENT)
        if reply.status >= 500 or reply.status == 429:
            raise Unanswered(f"robots.txt: the server answers {reply.status}")
        return Robots(b"", AGENT)


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
