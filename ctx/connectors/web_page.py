"""Find the links of a page, a sitemap or an llms.txt."""

import html
import re
import zlib
from itertools import islice
from typing import NamedTuple

from ctx.connectors.web_address import canonical
from ctx.errors import SourceError
from ctx.formats.encoding import decode
from ctx.formats.html import elements

MAX_LINKS = 10_000  # of one page or list
MAX_LISTED = 50_000  # of one sitemap, the limit of its format
_ROBOTS = ("robots", "ctx")
_NAMES = frozenset({"a", "area", "frame", "base", "link", "meta"})
_REFRESH = re.compile(
    r"\s{0,9}[0-5]?\s{0,9}[;,]\s{0,9}url\s{0,9}=\s{0,9}['\"]?([^'\"]{1,2000})", re.IGNORECASE
)
# Possessive: backtracking over ten megabytes of blanks would take seconds.
_LOCATION = re.compile(r"<loc>\s*+(?:<!\[CDATA\[\s*+)?([^<>\]\s]{1,2000})")
_SITEMAP_END = re.compile(
    r"</(?:\w{1,20}:)?(?:urlset|sitemapindex)\s*>|<(?:\w{1,20}:)?(?:urlset|sitemapindex)\b[^>]*/>"
)
_END_CHARS = 4096  # in which to search for a sitemap's end tag; a comment may follow it
_SITEMAP = re.compile(r"\s{0,99}(?:<[?!][^>]{0,500}>\s{0,99}){0,9}<(?:\w{1,20}:)?(urlset|sitemapindex)[\s>]")
_MARKDOWN_LINK = re.compile(
    r"\]\(\s{0,9}<?([^\s<>()]{1,2000})|<(https?://[^\s<>]{1,2000})>|^[-*] (https?://\S{1,2000})", re.M
)


class References(NamedTuple):
    """The links of a page, in order and each once; its canonical address; and whether it may be indexed."""

    links: tuple[str, ...] = ()
    canonical: str | None = None
    indexed: bool = True


class Listing(NamedTuple):
    """The addresses in a list. `nested`: they are other lists and not pages."""

    addresses: tuple[str, ...]
    nested: bool = False


class _Head:
    """Collects the links and metadata of a page."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.base = address
        self.declared = ""  # the page's canonical address
        self.directives = ""  # for robots
        self.refreshed = False  # the page redirects with a meta refresh
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
    """The references of an HTML page at this address. Raises no errors."""
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
    """The target of a meta refresh, which pages use after a move; None for other meta tags."""
    if attributes.get("http-equiv", "").lower() != "refresh":
        return None
    match = _REFRESH.match(attributes.get("content", ""))
    return match[1] if match else None


def is_sitemap(data: bytes) -> bool:
    return _SITEMAP.match(data[:8192].decode("utf-8", "replace").lstrip("\ufeff")) is not None


def read_sitemap(data: bytes, address: str, *, queries: bool) -> Listing:
    """The pages, or the other sitemaps, in a sitemap. Invalid addresses are skipped. Raises `SourceError` if
    the data is not a sitemap or was cut off, because missing pages would be deleted.

    The data is read as text and not as XML, so document types and entities cannot do harm.
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
    """The pages linked in an llms.txt (Markdown)."""
    addresses: dict[str, None] = {}
    for match in islice(_MARKDOWN_LINK.finditer(data.decode("utf-8", "replace")), MAX_LISTED):
        link = canonical(match[1] or match[2] or match[3], address, queries=queries)
        if link and len(addresses) < MAX_LINKS:
            addresses[link] = None
    return Listing(tuple(addresses))


def unzipped(data: bytes, limit: int) -> bytes:
    """Decompress a gzip file of at most `limit` bytes uncompressed. Other data is returned unchanged. Raises
    `SourceError`.
    """
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


def forbids(directives: str, wish: str) -> bool:
    """Whether a `robots` meta tag or `X-Robots-Tag` (`directives`) contains `wish`, which is `noindex` or
    `nofollow`.
    """
    words = {word.strip() for word in directives.lower().replace(":", ",").split(",")}
    return wish in words or "none" in words
