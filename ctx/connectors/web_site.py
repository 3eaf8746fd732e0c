"""Two parts of a website crawl: a client that limits its speed and obeys robots.txt, and a journal with the
last reply of each page, so that servers need not send unchanged pages again.

The journal is next to the catalog. It can be deleted: the next crawl then requests everything. A page's
validators (`ETag`, `Last-Modified`) are sent only if the fingerprint of its document in the catalog equals
the one in the journal.
"""

import hashlib
import logging
import os
import re
import time
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

import orjson
from protego import Protego

from ctx import files
from ctx.connectors.session import AGENT, Session, Unanswered
from ctx.lua.fetch import Reply, Wanted, joined

if TYPE_CHECKING:
    from ctx.connectors.web import WebConnector

logger = logging.getLogger(__name__)

MAX_WAIT_S = 60.0  # a longer `Retry-After` counts as a failure
MAX_ROBOTS_REDIRECTS = 5
MAX_ROBOTS_BYTES = 512_000  # RFC 9309, 2.5
MAX_DELAY_S = 30.0  # a longer `Crawl-delay` counts as this
_VERSION = re.compile(r"^([ \t]*user-agent[ \t]*:[^/#\n]{0,200})/[^#\n]*", re.IGNORECASE | re.MULTILINE)
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain, application/pdf, */*;q=0.5"


class Robots:
    """The rules of a robots.txt (RFC 9309, parsed by Protego) for the robot `agent`, else those for all
    (`*`).

    Raises no errors.
    """

    def __init__(self, data: bytes, agent: str) -> None:
        text = data[:MAX_ROBOTS_BYTES].decode("utf-8-sig", "replace")
        # Protego expects robot names without a version
        self._rules = Protego.parse(_VERSION.sub(r"\1", text))
        self._agent = agent
        self.delay_s = min(self._rules.crawl_delay(agent) or 0.0, MAX_DELAY_S)

    def allows(self, address: str) -> bool:
        """Whether a page may be requested."""
        return self._rules.can_fetch(address, self._agent)


class Client:
    """Requests the pages of a site, one at a time."""

    def __init__(self, source: "WebConnector", session: Session) -> None:
        self.session = session
        self._source = source
        # Seconds between the starts of two requests, unless robots.txt asks for more.
        self._delay_s = 1 / source.requests_per_second
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
        reply = self.session.get(address, headers, self._source.max_file_bytes, wanted=wanted)
        if reply.status in (429, 503) and (wait_s := retry_after_s(reply.headers)) is not None:
            self._source.pause(min(wait_s, max(0.0, self.session.ends_s - time.monotonic())))
            reply = self.session.get(address, headers, self._source.max_file_bytes, wanted=wanted)
        return reply

    def _wait(self, delay_s: float) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s:
            self._source.pause(self._next_s - now_s)
        self._next_s = time.monotonic() + delay_s

    # -- robots.txt --------------------------------------------------------------------------------

    def _robots_of(self, address: str) -> Robots:
        if not self._source.robots:
            return Robots(b"", AGENT)
        origin = self.session.target(address).origin
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
                reply = self.session.get(url, [], MAX_ROBOTS_BYTES)
            except Unanswered as error:
                raise Unanswered(f"robots.txt: {error.message}", refused=error.refused) from error
            if reply.location is None:
                break
            url = self.session.follow(url, reply.location)
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


# -- the journal ---------------------------------------------------------------------------------------------

VERSION = 1
MAX_FIELD = 1000  # characters of a validator; a longer one is not stored


class Visit(NamedTuple):
    """The last reply of a page. `digest` is a hash of its bytes. `stored`: the page became a document.
    `canonical` is the canonical address that the page declares, if the page was stored nevertheless.
    """

    etag: str
    modified: str
    digest: str
    stored: bool
    links: tuple[str, ...]
    canonical: str = ""


class Journal:
    """The visits of one source: address -> visit. `folder` None: nothing is stored between crawls."""

    def __init__(self, folder: str | None, source: str) -> None:
        name = hashlib.sha256(source.encode()).hexdigest()[:16]
        self._path = None if folder is None else os.path.join(folder, "web", f"{name}.json")
        self._folder = folder
        self.visits: dict[str, Visit] = {}
        # The addresses that earlier, unfinished crawls requested.
        self.asked: frozenset[str] = frozenset()

    def load(self) -> None:
        """Load the visits of the last crawl; none if the file cannot be read."""
        if self._path is None or not os.path.exists(self._path):
            return
        try:
            record = orjson.loads(files.read_file(self._path, beneath=self._folder))
            if record["version"] == VERSION:
                addresses = record["addresses"]
                visits = {}
                for number, etag, modified, digest, stored, links, *canonical in record["visits"]:
                    linked = tuple(addresses[link] for link in links)
                    visit = Visit(
                        etag, modified, digest, stored, linked, *(addresses[at] for at in canonical)
                    )
                    visits[addresses[number]] = visit
                self.visits = visits
                self.asked = frozenset(addresses[number] for number in record.get("asked", ()))
        except (OSError, ValueError, TypeError, KeyError, IndexError) as error:
            logger.warning("crawl journal unreadable reason=%s: all pages are asked for again", error)

    def save(self) -> None:
        """Save the visits. If that fails, the next crawl requests everything."""
        if self._path is None:
            return
        numbers: dict[str, int] = {}

        def number(address: str) -> int:
            return numbers.setdefault(address, len(numbers))

        rows = [
            (
                *(number(address), visit.etag, visit.modified, visit.digest, visit.stored),
                [number(link) for link in visit.links],
                *([number(visit.canonical)] if visit.canonical else ()),
            )
            for address, visit in self.visits.items()
        ]
        asked = [number(address) for address in sorted(self.asked & self.visits.keys())]
        record = {"version": VERSION, "visits": rows, "asked": asked, "addresses": list(numbers)}
        try:
            files.make_folder(os.path.dirname(self._path), beneath=self._folder)
            files.replace(self._path, orjson.dumps(record), beneath=self._folder)
        except OSError as error:
            logger.warning("crawl journal not written reason=%s", error)
