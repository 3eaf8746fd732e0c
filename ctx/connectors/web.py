"""A website as a source: the pages that are linked from a start address, a sitemap or an llms.txt."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass
from urllib.parse import urlsplit

from ctx.connectors.base import ScanLog, section_of
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.connectors.session import Session
from ctx.connectors.web_crawl import Crawl
from ctx.connectors.web_page import canonical
from ctx.connectors.web_site import Client, Journal
from ctx.errors import ConfigError
from ctx.lua.fetch import Resolve, resolve_host
from ctx.models import SourceItem, outline

# Increased when a new version of ctx selects or reads pages differently with the same configuration.
SCAN_FORMAT = 2


@dataclass(eq=False, repr=False)
class WebConnector:
    """The pages below the start address, or those in a list (a sitemap or an llms.txt).

    Addresses must begin with one of `prefixes`; empty means the folder of the start address. `depth` is the
    number of links to follow; None: 8 from a page, 0 from a list. `folder` is where the journal of the crawl
    is stored, None for no journal. Ids are addresses. Raises `ConfigError` for an invalid address.
    """

    name: str
    url: str
    _: KW_ONLY
    prefixes: Sequence[str] = ()
    include_globs: Sequence[str] | None = None
    exclude_globs: Sequence[str] = ()
    depth: int | None = None
    max_pages: int = 5000
    requests_per_second: float = 5.0
    robots: bool = True
    queries: bool = False
    allow_hosts: Iterable[str] = ()
    max_file_bytes: int = MAX_FILE_BYTES
    timeout_s: float = 3600.0
    folder: str | None = None
    resolve: Resolve = resolve_host
    pause: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        self.start = self._address(self.url, "url")
        self.prefixes = tuple(self._address(prefix, "scope") for prefix in self.prefixes)

    def _address(self, url: str, key: str) -> str:
        section = section_of(self.name)
        if urlsplit(url).username is not None:
            raise ConfigError(f"{section} {key}: ctx sends no user or password to a site; leave it out")
        address = canonical(url)
        if address is None:
            raise ConfigError(f"{section} {key}: must be an address such as https://docs.example.com/")
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
        journal = Journal(self.folder, self.name)
        journal.load()
        ends_s = time.monotonic() + self.timeout_s
        session = Session(frozenset(map(str.lower, self.allow_hosts)), ends_s=ends_s, resolve=self.resolve)
        with closing(session):
            crawl = Crawl(self, Client(self, session), journal, known, log, ends_s)
            try:
                crawl.begin()
                yield from crawl.pages()
                crawl.forget()
            finally:  # also if the crawl was cut short: its visits are valid
                journal.visits, journal.asked = crawl.visits, crawl.asked_of_late()
                journal.save()
            crawl.conclude()
