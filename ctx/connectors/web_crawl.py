"""The crawl of a website.

A page is deleted from the index if its address replies that it is gone, or if a complete new crawl does not
find it, but never because of a failure. Known pages are also requested directly, so that a page stays indexed
if a front page no longer links to it.
"""

import hashlib
import mimetypes
import time
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ctx.clock import now_ms
from ctx.connectors.base import KEPT, ScanLog
from ctx.connectors.session import Unanswered
from ctx.connectors.web_page import (
    Listing,
    References,
    Site,
    canonical,
    folder_of,
    forbids,
    is_sitemap,
    read_llms_txt,
    read_page,
    read_sitemap,
)
from ctx.connectors.web_site import MAX_FIELD, Client, Journal, Visit, moment_ms
from ctx.errors import SourceError
from ctx.formats.extract import declared_type, unzipped
from ctx.formats.table import BY_MEDIA_TYPE, HTML
from ctx.lua.fetch import MAX_REDIRECTS, Reply, shown
from ctx.models import Content, SourceItem

if TYPE_CHECKING:
    from ctx.connectors.web import WebConnector

DEPTH = 8  # links to follow from the start address; 0 for a list of pages (sitemap, llms.txt)
MAX_SITEMAPS = 100
MAX_FRONTIER = 200_000  # maximum addresses that wait to be requested
REQUESTS_A_PAGE = 4  # the limit of requests is this times `max_pages`: many are redirects and dead links
SILENCES = 5  # requests in a row without an answer, after which the crawl stops
# If the documents that are gone in one run are more than this many, and more than half of all, they are kept.
LOSS_IS_SUSPECT = 10
MAX_LINKS_BYTES = 128 << 20  # memory for links; 5,000 pages with 500 links each take a fifth of it
_ADDRESS_BYTES, _LINK_BYTES = 150, 8  # memory per address, plus its characters; memory per link to it
MAX_PROBLEMS = 200  # problems with single pages to list in the report
_GONE = frozenset({404, 410})
_HTML = frozenset({HTML.media_type, *HTML.aliases})
_NO_PAGES = frozenset(
    {"text/css", "text/javascript", "text/xml", "text/ecmascript", "text/calendar", "text/vcard"}
)
_TYPES = mimetypes.MimeTypes()  # only Python's built-in types, not those configured on this machine


class _Visitable(NamedTuple):
    """An address to request. `hops` is the number of redirects that led to it."""

    address: str
    depth: int
    hops: int = 0


@dataclass(eq=False)
class Crawl:
    """One crawl. A visit records a page's last reply. `visits` begins with those of the last crawl."""

    source: "WebConnector"
    client: Client
    journal: Journal
    known: Mapping[str, str]
    log: ScanLog
    ends_s: float

    def __post_init__(self) -> None:
        self.visits = dict(self.journal.visits)
        self._earlier: Mapping[str, Visit] = self.journal.visits
        self._addresses: dict[str, str] = {}  # all links, each address in memory once
        self._links_room = MAX_LINKS_BYTES
        for visit in self.visits.values():
            self._interned(visit.links)
        self._site = Site((), None, ())
        self._depth = DEPTH
        self._room = min(
            MAX_FRONTIER, self.source.max_pages * REQUESTS_A_PAGE + len(self.known)
        )  # maximum addresses in the frontier
        self._frontier: deque[_Visitable] = deque()
        self._met: set[str] = set()  # addresses that are or were in the frontier
        self._asked_before = self.journal.asked
        self._deferred: deque[_Visitable] | None = deque()  # pages to request last; None after that
        self._digests: dict[str, str] = {}  # digest -> address, for the documents of this crawl
        self._asked: set[str] = set()
        self._answered: set[str] = set()  # addresses that replied with a page
        self._canonical: set[str] = set()  # canonical addresses that replace another page
        self._aliases: dict[str, list[_Visitable]] = {}  # canonical address -> the pages it replaces
        self._moved: dict[str, str] = {}  # address -> where it redirects to
        self._first: tuple[_Visitable, Reply] | None = None  # the start page, which is requested once
        self._requests = self._silences = 0
        self._departed: set[str] = set()  # known pages whose address replied that they are gone
        self._failed: set[str] = set()
        self._capped = self._broken_off = self._ended = False

    # -- start -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Request the start address and fill the frontier, the queue of addresses. Raises `SourceError`."""
        source = self.source
        address, reply = self._start()
        prefixes = source.prefixes or (folder_of(address),)
        self._site = Site(prefixes, source.include_globs, source.exclude_globs)
        if self.known and not any(self._site.holds(page) for page in self.known):
            raise self._kept(f"the start address now leads to {shown(address)}, outside of what is indexed")
        path, body = urlsplit(address).path, reply.body
        try:
            if path.endswith(".xml.gz"):
                body = unzipped(body, source.max_file_bytes)
            listing = None
            if path.endswith("/llms.txt"):
                listing = read_llms_txt(body, address, queries=source.queries)
            elif is_sitemap(body):
                listing = self._mapped(address, body)
        except SourceError as error:
            raise self._kept(f"the sitemap {error.message}") from error
        if listing is None:
            self._depth = DEPTH if source.depth is None else source.depth
            self._first = (_Visitable(address, 0), reply)
            self._met.add(address)
            return
        self._depth = source.depth or 0
        for listed in listing:
            self._meet(_Visitable(listed, 0))
        if not self._frontier:
            raise self._kept(
                f"{shown(address)} lists no page below {', '.join(prefixes)} (`scope` says which count)"
            )

    def _start(self) -> tuple[str, Reply]:
        address = self.source.start
        try:
            for _ in range(MAX_REDIRECTS + 1):
                reply = self.client.get(address)
                if reply.location is None:
                    break
                address = canonical(self.client.session.follow(address, reply.location)) or address
            else:
                raise self._kept(f"the start address leads through more than {MAX_REDIRECTS} redirects")
        except Unanswered as error:
            raise self._kept(f"{shown(address)}: {error.message}") from error
        if reply.status != 200:
            raise self._kept(f"the start address is answered with {reply.status}")
        return address, reply

    def _kept(self, reason: str) -> SourceError:
        return SourceError(f"{self.source.name}: {reason}. {KEPT}")

    def _mapped(self, address: str, body: bytes) -> list[str]:
        """The pages of a sitemap and of its nested sitemaps. Raises `SourceError` if it is cut off."""
        queries = self.source.queries
        pages: dict[str, None] = {}
        sitemaps = {address}
        lists: deque[tuple[str, bytes | None]] = deque([(address, body)])
        while lists and len(pages) < self._room:
            address, data = lists.popleft()
            listing = self._sitemap(address) if data is None else read_sitemap(data, address, queries=queries)
            if not listing.nested:
                pages.update(dict.fromkeys(page for page in listing.addresses if self._belongs(page)))
                continue
            origin = urlsplit(address)[:2]
            same_origin = [nested for nested in listing.addresses if urlsplit(nested)[:2] == origin]
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
            reply = self.client.get(address)
            if reply.status != 200:
                raise SourceError(f"is answered with {reply.status}")
            data = unzipped(reply.body, self.source.max_file_bytes)
            return read_sitemap(data, address, queries=self.source.queries)
        except SourceError as error:
            self._fail(address, error.message)
            if not self.known:  # known pages are requested even without a sitemap
                self.log.complete = False
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
        documents = set(self.known)
        if self._failed:  # also pages that only a failed page links to
            documents |= {address for address, visit in self._earlier.items() if visit.stored}
        for address in sorted(documents - self._met):
            self._meet(_Visitable(address, self._depth))
        yield from self._walk()
        if not self._broken_off and self._deferred:
            self._frontier, self._deferred = self._deferred, None
            yield from self._walk()
        self._ended = not self._broken_off
        self._give_way_after_all()

    def _walk(self) -> Iterator[SourceItem]:
        while self._frontier and not self._broken_off:
            page = self._frontier.popleft()
            if self._defers(page):
                continue
            if time.monotonic() >= self.ends_s:
                self._break_off(f"the crawl took longer than timeout_s ({self.source.timeout_s:g} s)")
            elif self._silences >= SILENCES:
                self._break_off("the server stopped answering")
            elif page.address in self.known or self._may_ask():
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
        """If a canonical address gave no page, request again the pages that it replaced.

        They stay replaced if the address redirects to a page, or if its request failed and it is indexed.
        """
        if address not in self._aliases or address in self._answered or self._stays(address):
            return
        pages, goal = self._aliases.pop(address), self._goal(address)
        if goal in self._met and goal not in self._asked:
            self._canonical.add(goal)
            self._aliases.setdefault(goal, []).extend(pages)
        elif not self._stored(goal):
            self._canonical.update(page.address for page in pages)
            self._frontier.extend(pages)

    def _stays(self, address: str) -> bool:
        """Whether a page could not be read and its document is kept."""
        return address in self._failed and address in self.known

    def _stored(self, address: str) -> bool:
        """Whether this crawl found a page at this address that is a document or becomes one."""
        visit = self.visits.get(address)
        return address in self._answered and visit is not None and visit.stored

    def _goal(self, address: str) -> str:
        """The end of the redirects from an address that this crawl has seen."""
        for _ in range(MAX_REDIRECTS):
            address = self._moved.get(address, address)
        return address

    def _give_way_after_all(self) -> None:
        """Drop pages that were stored because their canonical address gave no page, if that address now gives
        one.
        """
        for address in sorted(self.log.unchanged):
            preferred = self.visits[address].canonical if address in self.visits else ""
            goal = self._goal(preferred)
            if preferred and goal != address and address not in self._canonical and self._stored(goal):
                self._canonical.add(goal)
                self.log.unchanged.discard(address)
                self._depart(address)

    def _may_ask(self) -> bool:
        limit = self.source.max_pages
        if len(self._digests) < limit and self._requests < limit * REQUESTS_A_PAGE:
            return True
        self._cap(f"the site has more than {limit:,} pages (max_pages): the rest is left out")
        return False

    def _cap(self, message: str) -> None:
        if not self._capped:
            self._capped = True
            self.log.note("", message)

    def _break_off(self, reason: str) -> None:
        self._broken_off = True
        self.log.break_off(reason)

    def _visit(self, page: _Visitable) -> Iterator[SourceItem]:
        visit = self._trusted(page.address)
        self._requests += 1
        if self.log.progress:
            self.log.progress(f"{self.source.name}: pages", self._requests, None)
        try:
            etag, modified = (visit.etag, visit.modified) if visit else ("", "")
            reply = self.client.get(page.address, etag=etag, modified=modified, wanted=_wanted)
        except Unanswered as error:
            self._unanswered(page, error)
            return
        self._silences = 0
        yield from self._take(page, reply)

    def _trusted(self, address: str) -> Visit | None:
        """The last visit of a page; None unless the catalog still has the document of that visit."""
        visit = self._earlier.get(address)
        if visit is None or not visit.stored or self.known.get(address) != visit.digest:
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
            self._follow(page)

    def _fail(self, address: str, message: str) -> None:
        self._failed.add(address)
        self.log.withheld.append(address)
        if len(self._failed) <= MAX_PROBLEMS:
            self.log.problem(address, message)

    def _depart(self, address: str) -> None:
        self.visits.pop(address, None)
        if address in self.known:
            self._departed.add(address)

    def _take(self, page: _Visitable, reply: Reply) -> Iterator[SourceItem]:
        """Handle a reply. Yields the page's item if it is new or changed."""
        self._asked.add(page.address)
        if reply.location is not None:
            self._redirect(page, reply.location)
        elif reply.status == 304 and (visit := self._trusted(page.address)) is not None:
            self._answered.add(page.address)
            self._digests.setdefault(visit.digest, page.address)
            self.log.unchanged.add(page.address)
            self._follow(page, visit.links)
        elif reply.status in _GONE:
            self._depart(page.address)
        elif reply.status != 200:
            self._fail(page.address, f"is answered with {reply.status}")
            self._follow(page)
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
            goal = canonical(self.client.session.follow(page.address, location), queries=self.source.queries)
        except Unanswered as error:
            self.log.problem(page.address, f"redirects to where ctx does not go: {error.message}")
            return
        if goal is not None:
            self._moved[page.address] = goal
            self._meet(_Visitable(goal, page.depth, page.hops + 1))

    def _follow(self, page: _Visitable, links: Iterable[str] | None = None) -> None:
        """Add the links of a page to the frontier. `links` None: the links from the page's last visit."""
        if links is None:
            links = self._earlier[page.address].links if page.address in self._earlier else ()
        if page.depth < self._depth:
            for link in links:
                self._meet(_Visitable(link, page.depth + 1))

    def _read(self, page: _Visitable, reply: Reply) -> Iterator[SourceItem]:
        address = page.address
        media_type, charset = declared_type(reply.headers.get("content-type"))
        references = References()
        if not media_type or media_type in _HTML:
            references = read_page(reply.body, charset, address, queries=self.source.queries)
        self._answered.add(address)
        digest = hashlib.sha256(reply.body).hexdigest()[:32]
        stored = references.indexed and not forbids(reply.headers.get("x-robots-tag", ""), "noindex")
        preferred = references.canonical or ""  # "" unless it is another address of the site
        if not preferred or preferred == address or not self._site.holds(preferred):
            preferred = ""
        if preferred and self._gives_way(page, preferred):
            stored = False
        stored = stored and self._digests.setdefault(digest, address) == address
        links = self._interned(references.links)
        if links is None:  # no memory is left for the links, so the next crawl reads the page again
            self.visits[address] = Visit("", "", digest, stored, ())
        else:
            # Do not send back fields that are very long or invalid.
            etag, modified = (
                field if len(field) <= MAX_FIELD and field.isprintable() else ""
                for field in (reply.headers.get(name, "") for name in ("etag", "last-modified"))
            )
            self.visits[address] = Visit(etag, modified, digest, stored, links, preferred if stored else "")
        self._follow(page, references.links)
        if not stored:
            if address in self.known:
                self._departed.add(address)
        elif self.known.get(address) == digest:
            self.log.unchanged.add(address)
        else:
            content = Content(
                reply.body, media_type=reply.headers.get("content-type") or None, source_url=address
            )
            yield SourceItem(address, digest, moment_ms(reply.headers) or now_ms(), lambda: content)

    def _interned(self, links: tuple[str, ...]) -> tuple[str, ...] | None:
        """The links of a page with each address in memory once; None if no memory is left for them."""
        size = sum(_LINK_BYTES if link in self._addresses else _ADDRESS_BYTES + len(link) for link in links)
        if size > self._links_room:
            return None
        self._links_room -= size
        return tuple(self._addresses.setdefault(link, link) for link in links)

    def _gives_way(self, page: _Visitable, preferred: str) -> bool:
        """Whether the page is left out because it is indexed under its canonical address instead."""
        preferred = self._goal(preferred)
        if preferred == page.address or page.address in self._canonical:
            return False
        if preferred in self._asked and preferred not in self._answered:
            return self._stays(preferred)
        self._meet(_Visitable(preferred, page.depth, page.hops))
        if preferred not in self._met:
            return False
        self._canonical.add(preferred)
        self._aliases.setdefault(preferred, []).append(page)
        return True

    # -- end ---------------------------------------------------------------------------------------

    def forget(self) -> None:
        """Drop the visits of pages that a complete crawl did not request."""
        if not self._broken_off:
            self.visits = {address: visit for address, visit in self.visits.items() if address in self._asked}

    def conclude(self) -> None:
        """Report on the whole crawl. If many pages are gone at once, keep them for the user to check."""
        log, departed, total = self.log, len(self._departed), len(self.known)
        if len(self._failed) > MAX_PROBLEMS:
            log.problem("", f"{len(self._failed) - MAX_PROBLEMS:,} more pages could not be read")
        if departed > LOSS_IS_SUSPECT and departed * 2 > total and log.complete:
            log.complete = False
            log.problem(
                "",
                f"{departed:,} of {total:,} pages are gone at once, as when a site is moved or locked; they "
                f"are kept. If it is meant, run `ctx index {self.source.name} --full`",
            )


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
