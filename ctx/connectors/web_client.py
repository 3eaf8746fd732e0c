"""A polite HTTP client for one website: limits its speed and obeys robots.txt."""

import re
import time
from collections.abc import Callable
from email.utils import parsedate_to_datetime

from protego import Protego

from ctx.connectors.session import AGENT, Session, Unanswered
from ctx.lua.fetch import Reply, Wanted, joined

MAX_WAIT_S = 60.0  # a longer `Retry-After` counts as a failure
MAX_ROBOTS_REDIRECTS = 5
MAX_ROBOTS_BYTES = 512_000  # RFC 9309, 2.5
MAX_DELAY_S = 30.0  # a longer `Crawl-delay` is cut to this
_VERSION = re.compile(r"^([ \t]*user-agent[ \t]*:[^/#\n]{0,200})/[^#\n]*", re.IGNORECASE | re.MULTILINE)
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, */*;q=0.5"


class Robots:
    """The rules of a robots.txt (RFC 9309, parsed by Protego) for the robot `agent`, else those for all
    (`*`).

    Raises no errors.
    """

    def __init__(self, data: bytes, agent: str) -> None:
        text = data[:MAX_ROBOTS_BYTES].decode("utf-8-sig", "replace")
        self._rules = Protego.parse(_VERSION.sub(r"\1", text))  # Protego expects names without a version
        self._agent = agent
        self.delay_s = min(self._rules.crawl_delay(agent) or 0.0, MAX_DELAY_S)

    def allows(self, address: str) -> bool:
        """Whether a page may be requested."""
        return self._rules.can_fetch(address, self._agent)


class Client:
    """Requests the pages of a site, one at a time.

    `delay_s` is the time between the starts of two requests, unless robots.txt asks for more.
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
        """Request a page without following redirects.

        With `etag` or `modified` from an earlier reply, status 304 means unchanged. Raises `Unanswered`, also
        if robots.txt forbids the page.
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
        """The address that a redirect from `address` leads to. Raises `Unanswered` if it is not allowed."""
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
        """Request robots.txt. By RFC 9309, 2.3.1, everything is allowed if it is missing, and nothing if the
        request fails.
        """
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
    """The seconds in `Retry-After`; None if missing, or longer than `MAX_WAIT_S`."""
    text = headers.get("retry-after", "").strip()
    if not text.isascii() or not text.isdigit():
        return None
    return float(text) if len(text) < 4 and float(text) <= MAX_WAIT_S else None


def moment_ms(headers: dict[str, str]) -> int | None:
    """`Last-Modified` in milliseconds since the epoch; None if it is not a date."""
    try:
        return max(0, int(parsedate_to_datetime(headers["last-modified"]).timestamp() * 1000))
    except (KeyError, ValueError, TypeError, OverflowError):
        return None
