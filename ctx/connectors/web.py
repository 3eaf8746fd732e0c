"""A website as a source: the pages that are linked from a start address, a sitemap or an llms.txt.

A page is deleted from the index if its address replies that it is gone, or if a complete new crawl does not
find it, but never because of a failure. Known pages are also requested directly, so that links that are
missing from a front page do not delete other pages.
"""

import hashlib
import mimetypes
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import NamedTuple
from urllib.parse import urlsplit

from ctx.clock import now_ms
from ctx.connectors.base import KEPT, ScanLog
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.connectors.names import section_of
from ctx.connectors.session import Session, Unanswered
from ctx.connectors.web_address import Site, canonical, folder_of
from ctx.connectors.web_client import Client, moment_ms
from ctx.connectors.web_journal import MAX_FIELD, Journal, Links, Visit
from ctx.connectors.web_page import (
    Listing,
    References,
    forbids,
    is_sitemap,
    read_llms_txt,
    read_page,
    read_sitemap,
    unzipped,
)
from ctx.errors import ConfigError, SourceError
from ctx.formats.table import BY_MEDIA_TYPE, HTML
from ctx.formats.texts import declared_type
from ctx.lua.fetch import MAX_REDIRECTS, Reply, Resolve, resolve_host, shown
from ctx.models import Content, SourceItem, outline

SCAN_FORMAT = 2  # increased when a version takes or reads other pages with the same configuration
DEPTH = 8  # links to follow from the start address; 0 for a list of pages (sitemap, llms.txt)
MAX_SITEMAPS = 100
MAX_FRONTIER = 200_000  # addresses that wait to be requested
REQUESTS_A_PAGE = 4  # the limit of requests is this times `max_pages`: many are redirects and dead links
SILENCES = 5  # requests in a row without an answer, after which the crawl stops
# If more documents than this, and more than half of all, are gone in one run, they are kept.
LOSS_IS_SUSPECT = 10
MAX_PROBLEMS = 200  # lines in the report for single pages
_GONE = frozenset({404, 410})
_HTML = frozenset({HTML.media_type, *HTML.aliases})
_NO_PAGES = frozenset(
    {"text/css", "text/javascript", "text/xml", "text/ecmascript", "text/calendar", "text/vcard"}
)
_TYPES = mimetypes.MimeTypes()  # without the machine's own types


class _Visitable(NamedTuple):
    """An address to request. `hops` is the number of redirects that led to it."""

    address: str
    depth: int
    hops: int = 0


class WebConnector:
    """The pages below the start address, or those in a list.

    Addresses must begin with one of `prefixes`; empty means the folder of the start address. `depth` is the
    number of links to follow; None: 8 from a page, 0 from a list. `folder` is where the journal of the crawl
    is stored, None for no journal. Ids are addresses. Raises `ConfigError` for an invalid address.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        prefixes: Iterable[str] = (),
        include_globs: Iterable[str] | None = None,
        exclude_globs: Iterable[str] = (),
        depth: int | None = None,
        max_pages: int = 5000,
        requests_per_second: float = 5.0,
        robots: bool = True,
        queries: bool = False,
        allow_hosts: Iterable[str] = (),
        max_file_bytes: int = MAX_FILE_BYTES,
        timeout_s: float = 3600.0,
        folder: str | None = None,
        resolve: Resolve = resolve_host,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.name = name
        self.section = section_of(name)
        self.start = self._address(url, "url")
        self.prefixes = tuple(self._address(prefix, "scope") for prefix in prefixes)
        self.include_globs = None if include_globs is None else tuple(include_globs)
        self.exclude_globs = tuple(exclude_globs)
        self.depth = depth
        self.max_pages = max_pages
        self.delay_s = 1 / requests_per_second
        self.robots = robots
        self.queries = queries
        self.allow_hosts = frozenset(host.lower() for host in allow_hosts)
        self.max_file_bytes = max_file_bytes
        self.timeout_s = timeout_s
        self._folder = folder
        self._resolve = resolve
        self._pause = pause

    def _address(self, url: str, key: str) -> str:
        if urlsplit(url).username is not None:
            raise ConfigError(f"{self.section} {key}: ctx sends no user or password to a site; leave it out")
        address = canonical(url)
        if address is None:
            raise ConfigError(f"{self.section} {key}: must be an address such as https://docs.example.com/")
        return address

    @property
    def signature(self) -> str:
        origin = (SCAN_FORMAT, self.start, self.prefixes, self.depth, self.queries, self.robots)
        bounds = (self.include_globs, self.exclude_globs, self.max_pages, self.max_file_bytes)
        return outline((origin, bounds))

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yield new and changed pages, in the order of the crawl.

        Raises `SourceError` if the start address cannot be used; nothing is deleted then.
        """
        journal = Journal(self._folder, self.name)
        journal.load()
        ends_s = time.monotonic() + self.timeout_s
        session = Session(self.allow_hosts, ends_s=ends_s, resolve=self._resolve)
        client = Client(
            session,
            delay_s=self.delay_s,
            max_bytes=self.max_file_bytes,
            robots=self.robots,
            pause=self._pause,
        )
        with closing(session):
            crawl = _Crawl(self, client, journal, known, log, ends_s)
            try:
                crawl.begin()
                yield from crawl.pages()
                crawl.forget()
            finally:  # also if the crawl was cut short: its visits are valid
                journal.visits, journal.asked = crawl.visits, crawl.asked_of_late()
                journal.save()
            crawl.conclude()


class _Crawl:
    """One crawl. `visits` starts with the visits of the last crawl, which this crawl replaces one by one."""

    def __init__(
        self,
        source: WebConnector,
        client: Client,
        journal: Journal,
        known: Mapping[str, str],
        log: ScanLog,
        ends_s: float,
    ) -> None:
        self._source = source
        self._client = client
        self._known = known
        self._log = log
        self._ends_s = ends_s
        self.visits = dict(journal.visits)
        self._earlier: Mapping[str, Visit] = journal.visits
        self._links = Links(journal.visits.values())
        self._site = Site((), None, ())
        self._depth = DEPTH
        self._room = min(MAX_FRONTIER, source.max_pages * REQUESTS_A_PAGE + len(known))  # frontier limit
        self._frontier: deque[_Visitable] = deque()
        self._met: set[str] = set()  # addresses that are or were in the frontier
        self._asked_before = journal.asked
        self._deferred: deque[_Visitable] | None = deque()  # None once all other pages were requested
        self._digests: dict[str, str] = {}  # of this crawl's documents: digest -> address
        self._asked: set[str] = set()
        self._answered: set[str] = set()  # addresses that gave a page
        self._own: set[str] = set()  # canonical addresses that replace another page
        self._aliases: dict[str, list[_Visitable]] = {}  # canonical address -> the pages it replaces
        self._moved: dict[str, str] = {}  # address -> where it redirects to
        self._first: tuple[_Visitable, Reply] | None = None  # the start page, which is requested once
        self._requests = self._silences = 0
        self._departed: set[str] = set()  # known pages whose address replied that they are gone
        self._failed: set[str] = set()
        self._capped = self._broken_off = self._ended = False

    # -- start -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Request the start address and fill the frontier. Raises `SourceError`."""
        source = self._source
        address, reply = self._start()
        prefixes = source.prefixes or (folder_of(address),)
        self._site = Site(prefixes, source.include_globs, source.exclude_globs)
        if self._known and not any(self._site.holds(page) for page in self._known):
            raise self._kept(f"the start address now leads to {shown(address)}, outside of what is indexed")
        try:
            body = unzipped(reply.body, source.max_file_bytes) if is_list_name(address) else reply.body
            listing = self._listing(address, body)
        except SourceError as error:
            raise self._kept(f"the sitemap {error.message}") from error
        if listing is None:
            self._depth = DEPTH if source.depth is None else source.depth
            self._first = (_Visitable(address, 0), reply)
            self._met.add(address)
            return
        self._depth = source.depth or 0
        for page in listing:
            self._meet(_Visitable(page, 0))
        if not self._frontier:
            raise self._kept(
                f"{shown(address)} lists no page below {', '.join(prefixes)} (`scope` says which count)"
            )

    def _start(self) -> tuple[str, Reply]:
        address = self._source.start
        try:
            for _ in range(MAX_REDIRECTS + 1):
                reply = self._client.get(address)
                if reply.location is None:
                    break
                address = canonical(self._client.follow(address, reply.location)) or address
            else:
                raise self._kept(f"the start address leads through more than {MAX_REDIRECTS} redirects")
        except Unanswered as error:
            raise self._kept(f"{shown(address)}: {error.message}") from error
        if reply.status != 200:
            raise self._kept(f"the start address is answered with {reply.status}")
        return address, reply

    def _kept(self, reason: str) -> SourceError:
        return SourceError(f"{self._source.name}: {reason}. {KEPT}")

    def _listing(self, address: str, body: bytes) -> list[str] | None:
        """The pages in a list and its nested lists; None if the body is a page. Raises `SourceError` if a
        sitemap is cut off.
        """
        if urlsplit(address).path.endswith("/llms.txt"):
            return list(read_llms_txt(body, address, queries=self._source.queries).addresses)
        return self._mapped(address, body) if is_sitemap(body) else None

    def _mapped(self, address: str, body: bytes) -> list[str]:
        """The pages of a sitemap and of its nested sitemaps."""
        queries = self._source.queries
        pages: dict[str, None] = {}
        sitemaps = {address}
        lists: deque[tuple[str, bytes | None]] = deque([(address, body)])
        while lists and len(pages) < self._room:
            address, data = lists.popleft()
            listing = self._sitemap(address) if data is None else read_sitemap(data, address, queries=queries)
            if not listing.nested:
                pages.update(dict.fromkeys(page for page in listing.addresses if self._belongs(page)))
                continue
            same_origin = [nested for nested in listing.addresses if _same_origin(nested, address)]
            fresh = [nested for nested in same_origin if nested not in sitemaps]
            if len(fresh) > MAX_SITEMAPS - len(sitemaps):
                self._cap(f"only the first {MAX_SITEMAPS} sitemaps are read")
                del fresh[MAX_SITEMAPS - len(sitemaps) :]
            sitemaps.update(fresh)
            lists.extend((nested, None) for nested in fresh)
        if lists:
            self._cap(f"only the first {len(pages):,} addresses that the sitemaps name are looked at")
        return list(pages)

    def _sitemap(self, address: str) -> Listing:
        """Read a nested sitemap. A failure is reported, and the sitemap counts as empty."""
        try:
            reply = self._client.get(address)
            if reply.status != 200:
                raise SourceError(f"is answered with {reply.status}")
            data = unzipped(reply.body, self._source.max_file_bytes)
            return read_sitemap(data, address, queries=self._source.queries)
        except SourceError as error:
            self._fail(address, error.message)
            if not self._known:  # known pages are requested directly
                self._log.complete = False
            return Listing(())

    def _meet(self, page: _Visitable) -> None:
        """Add an address to the frontier, once, if it belongs to the source."""
        if page.address in self._met or len(self._frontier) >= self._room:
            return
        if self._belongs(page.address):
            self._met.add(page.address)
            self._frontier.append(page)

    def _belongs(self, address: str) -> bool:
        return self._site.holds(address) and not _is_media(address)

    # -- the crawl ---------------------------------------------------------------------------------

    def pages(self) -> Iterator[SourceItem]:
        """Crawl the frontier, then the known pages that have no links any more. Yields new and changed
        pages.
        """
        if self._first is not None:
            page, reply = self._first
            yield from self._take(page, reply)
            self._take_back(page.address)
        yield from self._walk()
        for address in self._unvisited():
            self._meet(_Visitable(address, self._depth))
        yield from self._walk()
        if not self._broken_off and self._deferred:
            self._frontier, self._deferred = self._deferred, None
            yield from self._walk()
        self._ended = not self._broken_off
        self._give_way_after_all()

    def _unvisited(self) -> list[str]:
        documents = set(self._known)
        if self._failed:  # pages linked only from a page that failed
            documents |= {address for address, visit in self._earlier.items() if visit.stored}
        return sorted(documents - self._met)

    def _walk(self) -> Iterator[SourceItem]:
        while self._frontier and not self._broken_off:
            page = self._frontier.popleft()
            if self._defers(page):
                continue
            if time.monotonic() >= self._ends_s:
                self._break_off(f"the crawl took longer than timeout_s ({self._source.timeout_s:g} s)")
            elif self._silences >= SILENCES:
                self._break_off("the server stopped answering")
            elif page.address in self._known or self._may_ask():
                yield from self._visit(page)
                self._take_back(page.address)

    def _defers(self, page: _Visitable) -> bool:
        """Postpones a page that an earlier, unfinished crawl already requested, and returns whether it did.
        Without this, a site that takes longer than one crawl would never be read completely.
        """
        visit = self._earlier.get(page.address)
        if self._deferred is None or visit is None or page.address not in self._asked_before:
            return False
        self._deferred.append(page)
        if visit.stored:
            self._digests.setdefault(visit.digest, page.address)
        self._follow(page, visit.links)
        return True

    def asked_of_late(self) -> frozenset[str]:
        """The pages that the next crawl may request last, because unfinished crawls already requested them.
        Empty after a complete crawl.
        """
        if self._ended:
            return frozenset()
        return frozenset(self._asked | (self._asked_before if self._deferred is not None else set()))

    def _take_back(self, address: str) -> None:
        """If a canonical address gave no page, request the pages again that it replaced.

        They stay replaced if that address redirects to a page, or if it only failed and is indexed.
        """
        if address not in self._aliases or address in self._answered or self._stays(address):
            return
        pages, goal = self._aliases.pop(address), self._goal(address)
        if goal in self._met and goal not in self._asked:
            self._own.add(goal)
            self._aliases.setdefault(goal, []).extend(pages)
        elif not self._stored(goal):
            self._own.update(page.address for page in pages)
            self._frontier.extend(pages)

    def _stays(self, address: str) -> bool:
        """Whether a page could not be read and its document is kept."""
        return address in self._failed and address in self._known

    def _stored(self, address: str) -> bool:
        """Whether this crawl found a page at this address that is a document or becomes one."""
        visit = self.visits.get(address)
        return address in self._answered and visit is not None and visit.stored

    def _goal(self, address: str) -> str:
        """The end of the redirects from an address that this crawl has seen; the address itself if there are
        none.
        """
        for _ in range(MAX_REDIRECTS):
            address = self._moved.get(address, address)
        return address

    def _give_way_after_all(self) -> None:
        """Drop pages that were stored because their canonical address gave no page, if that address now gives
        one.
        """
        for address in sorted(self._log.unchanged):
            own = self.visits[address].own if address in self.visits else ""
            goal = self._goal(own)
            if own and goal != address and address not in self._own and self._stored(goal):
                self._own.add(goal)
                self._log.unchanged.discard(address)
                self._depart(address)

    def _may_ask(self) -> bool:
        limit = self._source.max_pages
        if len(self._digests) < limit and self._requests < limit * REQUESTS_A_PAGE:
            return True
        self._cap(f"the site has more than {limit:,} pages (max_pages): the rest is left out")
        return False

    def _cap(self, message: str) -> None:
        if not self._capped:
            self._capped = True
            self._log.note("", message)

    def _break_off(self, reason: str) -> None:
        self._broken_off = True
        self._log.break_off(reason)

    def _visit(self, page: _Visitable) -> Iterator[SourceItem]:
        visit = self._trusted(page.address)
        self._requests += 1
        if self._log.progress:
            self._log.progress(f"{self._source.name}: pages", self._requests, None)
        try:
            etag, modified = (visit.etag, visit.modified) if visit else ("", "")
            reply = self._client.get(page.address, etag=etag, modified=modified, wanted=_wanted)
        except Unanswered as error:
            self._unanswered(page, error)
            return
        self._silences = 0
        yield from self._take(page, reply)

    def _trusted(self, address: str) -> Visit | None:
        """The last visit of a page; None unless the catalog still has the document of that visit."""
        visit = self._earlier.get(address)
        if visit is None or not visit.stored or self._known.get(address) != visit.digest:
            return None
        return visit

    def _unanswered(self, page: _Visitable, error: Unanswered) -> None:
        self._asked.add(page.address)
        if error.refused and error.message.startswith("robots.txt"):
            self._depart(page.address)
            return
        self._fail(page.address, error.message)
        if not error.refused:  # robots.txt, address rules and limits refuse permanently
            self._silences += 1
            self._follow(page, self._links_of(page.address))

    def _fail(self, address: str, message: str) -> None:
        self._failed.add(address)
        self._log.withheld.append(address)
        if len(self._failed) <= MAX_PROBLEMS:
            self._log.problem(address, message)

    def _depart(self, address: str) -> None:
        self.visits.pop(address, None)
        if address in self._known:
            self._departed.add(address)

    def _take(self, page: _Visitable, reply: Reply) -> Iterator[SourceItem]:
        """Handle a reply. Yields the page's item if it is new or changed."""
        self._asked.add(page.address)
        if reply.location is not None:
            self._redirect(page, reply.location)
        elif reply.status == 304 and (visit := self._trusted(page.address)) is not None:
            self._unchanged(page, visit)
        elif reply.status in _GONE:
            self._depart(page.address)
        elif reply.status != 200:
            self._fail(page.address, f"is answered with {reply.status}")
            self._follow(page, self._links_of(page.address))
        elif reply.unwanted or not _wanted(reply.headers.get("content-type", "")):
            self._depart(page.address)
        else:
            yield from self._read(page, reply)

    def _redirect(self, page: _Visitable, location: str) -> None:
        self._depart(page.address)
        if page.hops >= MAX_REDIRECTS:
            self._fail(page.address, f"leads through more than {MAX_REDIRECTS} redirects")
            return
        try:
            goal = canonical(self._client.follow(page.address, location), queries=self._source.queries)
        except Unanswered as error:
            self._log.problem(page.address, f"redirects to where ctx does not go: {error.message}")
            return
        if goal is not None:
            self._moved[page.address] = goal
            self._meet(_Visitable(goal, page.depth, page.hops + 1))

    def _unchanged(self, page: _Visitable, visit: Visit) -> None:
        self._answered.add(page.address)
        self._digests.setdefault(visit.digest, page.address)
        self._log.unchanged.add(page.address)
        self._follow(page, visit.links)

    def _links_of(self, address: str) -> tuple[str, ...]:
        """The links that a page had when it was last read."""
        visit = self._earlier.get(address)
        return visit.links if visit else ()

    def _follow(self, page: _Visitable, links: Iterable[str]) -> None:
        if page.depth < self._depth:
            for link in links:
                self._meet(_Visitable(link, page.depth + 1))

    def _read(self, page: _Visitable, reply: Reply) -> Iterator[SourceItem]:
        address = page.address
        references = self._references(address, reply)
        self._answered.add(address)
        digest = hashlib.sha256(reply.body).hexdigest()[:32]
        stored = references.indexed and not forbids(reply.headers.get("x-robots-tag", ""), "noindex")
        own = self._own_address(page, references.canonical)
        if own and self._gives_way(page, own):
            stored = False
        stored = stored and self._digests.setdefault(digest, address) == address
        links = self._links.kept(references.links)
        if links is None:  # no room to store them: the next crawl reads the page again
            self.visits[address] = Visit("", "", digest, stored, ())
        else:
            etag, modified = _short_field(reply, "etag"), _short_field(reply, "last-modified")
            self.visits[address] = Visit(etag, modified, digest, stored, links, own if stored else "")
        self._follow(page, references.links)
        if not stored:
            if address in self._known:
                self._departed.add(address)
        elif self._known.get(address) == digest:
            self._log.unchanged.add(address)
        else:
            content = Content(
                reply.body, media_type=reply.headers.get("content-type") or None, source_url=address
            )
            yield SourceItem(address, digest, moment_ms(reply.headers) or now_ms(), lambda: content)

    def _own_address(self, page: _Visitable, declared: str | None) -> str:
        """The canonical address that a page declares, if it is another address of the site; "" otherwise."""
        return declared if declared and declared != page.address and self._site.holds(declared) else ""

    def _gives_way(self, page: _Visitable, own: str) -> bool:
        """Whether the page is left out because it is indexed under its canonical address `own` instead."""
        own = self._goal(own)
        if own == page.address or page.address in self._own:
            return False
        if own in self._asked and own not in self._answered:
            return self._stays(own)
        self._meet(_Visitable(own, page.depth, page.hops))
        if own not in self._met:
            return False
        self._own.add(own)
        self._aliases.setdefault(own, []).append(page)
        return True

    def _references(self, address: str, reply: Reply) -> References:
        media_type, charset = declared_type(reply.headers.get("content-type"))
        if media_type and media_type not in _HTML:
            return References()
        return read_page(reply.body, charset, address, queries=self._source.queries)

    # -- end ---------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop the visits of pages that a complete crawl did not request."""
        if not self._broken_off:
            self.visits = {address: visit for address, visit in self.visits.items() if address in self._asked}

    def conclude(self) -> None:
        """Report on the whole crawl. If many pages are gone at once, they are kept for the user to check."""
        log, departed, total = self._log, len(self._departed), len(self._known)
        if len(self._failed) > MAX_PROBLEMS:
            log.problem("", f"{len(self._failed) - MAX_PROBLEMS:,} more pages could not be read")
        if departed > LOSS_IS_SUSPECT and departed * 2 > total and log.complete:
            log.complete = False
            log.problem(
                "",
                f"{departed:,} of {total:,} pages are gone at once, as when a site is moved or locked; they "
                f"are kept. If it is meant, run `ctx index {self._source.name} --full`",
            )


def _short_field(reply: Reply, name: str) -> str:
    """A header of a reply that can be sent back; "" if it is too long or invalid."""
    field = reply.headers.get(name, "")
    return field if len(field) <= MAX_FIELD and field.isprintable() else ""


def is_list_name(address: str) -> bool:
    """Whether an address names a compressed sitemap (`.xml.gz`)."""
    return urlsplit(address).path.endswith(".xml.gz")


def _same_origin(address: str, other: str) -> bool:
    return urlsplit(address)[:2] == urlsplit(other)[:2]


def _wanted(content_type: str) -> bool:
    """Whether a body of this content type is a document."""
    media_type = content_type.partition(";")[0].strip().lower()
    if not media_type or media_type in BY_MEDIA_TYPE:
        return True
    return media_type.startswith("text/") and media_type not in _NO_PAGES


def _is_media(address: str) -> bool:
    """Whether an address's name shows that it is not a page but a picture, a style sheet, an archive etc."""
    media_type, encoding = _TYPES.guess_type(urlsplit(address).path)
    return encoding is not None or (media_type is not None and not _wanted(media_type))
