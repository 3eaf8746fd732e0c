"""The journal of a crawl: the last reply of each page, so that unchanged pages are not sent again.

The file is next to the catalog. It can be deleted: the next crawl then requests everything. Validators are
sent for a document only if its fingerprint in the catalog is the one in the journal.
"""

import hashlib
import logging
import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

import orjson

from ctx import files
from ctx.models import JSON

logger = logging.getLogger(__name__)

VERSION = 1
MAX_FIELD = 1000  # characters of a validator; a longer one is not stored
MAX_LINKS_BYTES = 128 << 20  # for all links of a crawl; 5,000 pages with 500 links each take a fifth
_ADDRESS_BYTES, _LINK_BYTES = 150, 8  # memory of an address without its characters, and of a reference to it


class Visit(NamedTuple):
    """The last reply of a page. `digest` is a hash of its bytes. `stored`: the page became a document. `own`
    is the canonical address that the page declares, if the page was stored nevertheless.
    """

    etag: str
    modified: str
    digest: str
    stored: bool
    links: tuple[str, ...]
    own: str = ""


class Links:
    """The addresses that pages link to. Each address is in memory once; together they take up to
    `MAX_LINKS_BYTES`.
    """

    def __init__(self, visits: Iterable[Visit]) -> None:
        self._addresses: dict[str, str] = {}
        self._room = MAX_LINKS_BYTES
        for visit in visits:
            self._take(visit.links)

    def kept(self, links: Sequence[str]) -> tuple[str, ...] | None:
        """The links of a page, to be stored; None if there is no room left."""
        addresses = self._addresses
        size = sum(_LINK_BYTES if link in addresses else _ADDRESS_BYTES + len(link) for link in links)
        return self._take(links) if size <= self._room else None

    def _take(self, links: Sequence[str]) -> tuple[str, ...]:
        before = len(self._addresses)
        shared = tuple(self._addresses.setdefault(link, link) for link in links)
        fresh = islice(reversed(self._addresses), len(self._addresses) - before)
        self._room -= sum(_ADDRESS_BYTES + len(link) for link in fresh) + _LINK_BYTES * len(links)
        return shared


def _visit(row: list[JSON], addresses: list[str]) -> Visit:
    _, etag, modified, digest, stored, links, *own = row
    linked = tuple(addresses[number] for number in links)
    return Visit(etag, modified, digest, stored, linked, *(addresses[number] for number in own))


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
                self.visits = {addresses[row[0]]: _visit(row, addresses) for row in record["visits"]}
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
                *([number(visit.own)] if visit.own else ()),
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
