"""What a page, a sitemap or an llms.txt refers to."""

import html
import re
import zlib
from itertools import islice
from typing import NamedTuple

from ctx.connectors.web_address import canonical
from ctx.connectors.web_robots import forbids
from ctx.errors import SourceError
from ctx.formats.encoding import decode
from ctx.formats.html import elements

MAX_LINKS = 10_000  # of one page or list
MAX_LISTED = 50_000  # of one sitemap: what its format allows
_ROBOTS = ("robots", "ctx")
_NAMES = frozenset({"a", "area", "frame", "base", "link", "meta"})
_REFRESH = re.compile(
    r"\s{0,9}[0-5]?\s{0,9}[;,]\s{0,9}url\s{0,9}=\s{0,9}['\"]?([^'\"]{1,2000})", re.IGNORECASE
)
# Blanks are given back to nothing: ten megabytes of them would hold the interpreter for seconds.
_LOCATION = re.compile(r"<loc>\s*+(?:<!\[CDATA\[\s*+)?([^<>\]\s]{1,2000})")
_SITEMAP_END = re.compile(
    r"</(?:\w{1,20}:)?(?:urlset|sitemapindex)\s*>|<(?:\w{1,20}:)?(?:urlset|sitemapindex)\b[^>]*/>"
)
_END_CHARS = 4096  # of a sitemap, where its end is looked for: a comment may stand behind it
_SITEMAP = re.compile(r"\s{0,99}(?:<[?!][^>]{0,500}>\s{0,99}){0,9}<(?:\w{1,20}:)?(urlset|sitemapindex)[\s>]")
_MARKDOWN_LINK = re.compile(
    r"\]\(\s{0,9}<?([^\s<>()]{1,2000})|<(https?://[^\s<>]{1,2000})>|^[-*] (https?://\S{1,2000})", re.M
)


class References(NamedTuple):
    """What a page says besides its text: where it leads, in order and each once; which address it calls its
    own; whether it may be indexed.
    """

    links: tuple[str, ...] = ()
    canonical: str | None = None
    indexed: bool = True


class Listing(NamedTuple):
    """What a list of pages names. `nested`: other lists, not pages."""

    addresses: tuple[str, ...]
    nested: bool = False


class _Head:
    """What the elements of a page say, as they come."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.base = address
        self.declared = ""  # the address that it calls its own
        self.directives = ""  # for robots
        self.refreshed = False  # it sends its reader on
        self.hrefs: list[str] = []

    def take(self, name: str, attributes: dict[str, str]) -> None:
        href = attributes.get("src" if name == "frame" else "href", "")
        rel = attributes.get("rel", "").lower().split()
        if name == "meta":
            self._meta(attributes)
        elif name == "base":
            self._set_base(href)
        elif name == "link":
            if "canonical" in rel:
                self.declared = self.declared or href
        elif href and "nofollow" not in rel and len(self.hrefs) < MAX_LINKS:
            self.hrefs.append(href)

    def _set_base(self, href: str) -> None:
        if href and self.base == self.address:
            self.base = canonical(href, self.address) or self.address

    def _meta(self, attributes: dict[str, str]) -> None:
        if attributes.get("name", "").lower() in _ROBOTS:
            self.directives += f",{attributes.get('content', '')}"
        goal = _refresh(attributes)
        if goal is not None:
            self.refreshed = True
            self.hrefs.append(goal)


def read_page(data: bytes, charset: str | None, address: str, *, queries: bool) -> References:
    """The references of an HTML page at this address. Never fails."""
    head = _Head(address)
    for name, attributes in elements(decode(data, charset) or "", _NAMES):
        head.take(name, attributes)
    hrefs = [] if forbids(head.directives, "nofollow") else head.hrefs
    links = (canonical(href, head.base, queries=queries) for href in hrefs)
    return References(
        tuple(dict.fromkeys(link for link in links if link)),
        canonical(head.declared, head.base, queries=queries) if head.declared else None,
        not head.refreshed and not forbids(head.directives, "noindex"),
    )


def _refresh(attributes: dict[str, str]) -> str | None:
    """Where a page sends its reader by itself, as those do that stand where another one was."""
    if attributes.get("http-equiv", "").lower() != "refresh":
        return None
    match = _REFRESH.match(attributes.get("content", ""))
    return match[1] if match else None


def is_sitemap(data: bytes) -> bool:
    return _SITEMAP.match(data[:8192].decode("utf-8", "replace").lstrip("\ufeff")) is not None


def read_sitemap(data: bytes, address: str, *, queries: bool) -> Listing:
    """The pages, or the further sitemaps, that a sitemap names; what is no address is passed over. Raises
    `SourceError` where it is none or was cut off: what it does not name would be taken for gone.

    Read as text, not as XML: nothing of a document's types and entities is needed, and nothing of it can
    hurt.
    """
    text = data.decode("utf-8", "replace").lstrip("\ufeff")
    root = _SITEMAP.match(text)
    if root is None:
        raise SourceError("is no sitemap")
    if not _SITEMAP_END.search(text[-_END_CHARS:]):
        raise SourceError("is cut off: its end is missing")
    addresses: dict[str, None] = {}
    for match in islice(_LOCATION.finditer(text), MAX_LISTED):
        link = canonical(html.unescape(match[1]), address, queries=queries)
        if link:
            addresses[link] = None
    return Listing(tuple(addresses), root[1] == "sitemapindex")


def read_llms_txt(data: bytes, address: str, *, queries: bool) -> Listing:
    """The pages that the links of an llms.txt (Markdown) name."""
    addresses: dict[str, None] = {}
    for match in islice(_MARKDOWN_LINK.finditer(data.decode("utf-8", "replace")), MAX_LISTED):
        link = canonical(match[1] or match[2] or match[3], address, queries=queries)
        if link and len(addresses) < MAX_LINKS:
            addresses[link] = None
    return Listing(tuple(addresses))


def unzipped(data: bytes, limit: int) -> bytes:
    """A sitemap as it was before it was zipped. Raises `SourceError`."""
    if data[:2] != b"\x1f\x8b":
        return data
    inflater = zlib.decompressobj(wbits=31)
    try:
        text = inflater.decompress(data, limit)
    except zlib.error as error:
        raise SourceError("the gzip file is damaged") from error
    if inflater.unconsumed_tail:
        raise SourceError(f"more than {limit:,} bytes uncompressed")
    return text
