"""Normalise the addresses of pages, decide which belong to a source, and find the links of a page, a sitemap
or an llms.txt.
"""

import html
import re
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple
from urllib.parse import SplitResult, quote, urljoin, urlsplit, urlunsplit

from ctx.connectors.patterns import Rules, parse_globs
from ctx.errors import SourceError
from ctx.formats.encoding import decode
from ctx.formats.html import elements
from ctx.http import url_host
from ctx.lua.fetch import PORTS

MAX_ADDRESS = 2000  # characters; longer addresses are crawler traps or data
_BLANK = re.compile(r"[\t\n\r]")  # browsers remove these from an address
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_ESCAPE = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_SAFE = "/:@!$&'()*+,;=~%"
_TRACKING = re.compile(r"utm_\w+|fbclid|gclid|dclid|msclkid|mc_[ce]id|igshid|_ga|_gl")
_PAGE_NAME = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,7}\Z")


def _netloc(parts: SplitResult) -> str | None:
    """The host of an address, with its port unless it is the default; None if it is not a web address.
    Raises `ValueError` for an invalid host.
    """
    host, port = parts.hostname or "", parts.port
    host = host.rstrip(".").encode("idna").decode("ascii").lower()
    if parts.scheme not in PORTS or not host or "%" in host or parts.username is not None:
        return None
    if "[" in parts.netloc and ":" not in host:  # a literal IP address of an unknown kind
        return None
    return url_host(host) if port in (None, PORTS[parts.scheme]) else f"{url_host(host)}:{port}"


def canonical(reference: str, base: str = "", *, queries: bool = True) -> str | None:
    """The normalised address of a reference on the page at `base`; None if it is not a web address.

    It has no fragment, credentials, default port, `.` and `..`. The host is in lower case. Characters are
    escaped only if needed, with upper-case digits. `queries` keeps the part after `?`, except tracking
    parameters.
    """
    reference = _BLANK.sub("", reference.strip(" \f\t\n\r"))
    if len(reference) > MAX_ADDRESS or _CONTROL.search(reference):
        return None
    try:
        parts = urlsplit(urljoin(base, reference))
        netloc = _netloc(parts)
    except ValueError:  # for example an invalid host
        return None
    if netloc is None:
        return None
    query = _query(parts.query) if queries else ""
    address = urlunsplit((parts.scheme, netloc, _path(parts.path), query, ""))
    return address if len(address) <= MAX_ADDRESS else None


def _escaped(text: str, safe: str) -> str:
    def unescaped(match: re.Match[str]) -> str:
        char = chr(int(match[1], 16))
        return char if char in _UNRESERVED else match[0].upper()

    return _ESCAPE.sub(unescaped, quote(text.encode("utf-8", "replace"), safe=safe))


def _path(path: str) -> str:
    segments: list[str] = []
    *folders, last = _escaped(path, _SAFE).lstrip("/").split("/")
    for segment in folders:
        if segment == "..":
            del segments[-1:]
        elif segment != ".":
            segments.append(segment)
    if last in (".", ".."):
        del segments[len(segments) - (last == "..") :]
        last = ""
    return "/" + "/".join([*segments, last])


def _query(query: str) -> str:
    fields = (field for field in query.split("&") if not _TRACKING.fullmatch(field.partition("=")[0]))
    return _escaped("&".join(fields), _SAFE + "?")


def folder_of(address: str) -> str:
    """The folder of an address. A last part with a suffix is a page in the folder; without one it is the
    folder itself (`/docs` is `/docs/`).
    """
    parts = urlsplit(address)
    above, _, name = parts.path.rpartition("/")
    folder = f"{above}/" if not name or _PAGE_NAME.search(name) else f"{parts.path}/"
    return urlunsplit((parts.scheme, parts.netloc, folder, "", ""))


class Site:
    """The addresses of a source: below one of its `prefixes`, with a path that matches the globs.

    Globs match the address's path, as they match paths in folders. A `/` at the end of an address is ignored.
    """

    def __init__(
        self, prefixes: Iterable[str], include_globs: Iterable[str] | None, exclude_globs: Iterable[str]
    ) -> None:
        self.prefixes = tuple(prefixes)
        self._pages = frozenset(prefix.rstrip("/") for prefix in self.prefixes)
        self._include = None if include_globs is None else Rules(parse_globs(include_globs)).top()
        self._exclude = Rules(parse_globs(exclude_globs)).top()

    def holds(self, address: str) -> bool:
        """Whether a canonical address belongs to the source."""
        if not address.startswith(self.prefixes) and address not in self._pages:
            return False
        segments = urlsplit(address).path.strip("/").split("/")
        include, exclude = self._include, self._exclude
        for folder in segments[:-1]:
            if exclude.decide(folder, folder=True):
                return False
            exclude = exclude.descend(folder)
            include = None if include is None else include.descend(folder)
        name = segments[-1]
        if exclude.decide(name, folder=False) or exclude.decide(name, folder=True):
            return False
        return include is None or not name or include.decide(name, folder=False) is True


# -- links ---------------------------------------------------------------------------------------------------

MAX_LINKS = 10_000  # links of one page or llms.txt
MAX_LISTED = 50_000  # addresses in one sitemap, the limit of the format
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
# Characters at the end of a sitemap in which to look for its end tag; a comment may follow the tag.
_END_CHARS = 4096
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
    """The addresses in a sitemap. `nested`: they are other sitemaps and not pages."""

    addresses: tuple[str, ...]
    nested: bool = False


def read_page(data: bytes, charset: str | None, address: str, *, queries: bool) -> References:
    """The references of an HTML page at this address. Raises no errors."""
    base, declared, directives, refreshed = address, "", "", False
    hrefs: list[str] = []
    for name, attributes in elements(decode(data, charset) or "", _NAMES):
        href = attributes.get("src" if name == "frame" else "href", "")
        rel = attributes.get("rel", "").lower().split()
        if name == "meta":
            content = attributes.get("content", "")
            if attributes.get("name", "").lower() in _ROBOTS:
                directives += f",{content}"
            # Pages use a meta refresh after a move.
            if attributes.get("http-equiv", "").lower() == "refresh" and (goal := _REFRESH.match(content)):
                refreshed = True
                hrefs.append(goal[1])
        elif name == "base":
            if href and base == address:
                base = canonical(href, address) or address
        elif name == "link":
            if "canonical" in rel:
                declared = declared or href
        elif href and "nofollow" not in rel and len(hrefs) < MAX_LINKS:
            hrefs.append(href)
    if forbids(directives, "nofollow"):
        hrefs = []
    return References(
        _distinct(hrefs, base, queries=queries),
        canonical(declared, base, queries=queries) if declared else None,
        not refreshed and not forbids(directives, "noindex"),
    )


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
    matches = islice(_LOCATION.finditer(text), MAX_LISTED)
    links = _distinct((html.unescape(match[1]) for match in matches), address, queries=queries)
    return Listing(links, root[1] == "sitemapindex")


def read_llms_txt(data: bytes, address: str, *, queries: bool) -> list[str]:
    """The pages linked in an llms.txt (Markdown)."""
    matches = islice(_MARKDOWN_LINK.finditer(data.decode("utf-8", "replace")), MAX_LISTED)
    hrefs = (match[1] or match[2] or match[3] for match in matches)
    return list(_distinct(hrefs, address, queries=queries)[:MAX_LINKS])


def _distinct(hrefs: Iterable[str], base: str, *, queries: bool) -> tuple[str, ...]:
    """The canonical addresses of links, without repeats and without invalid ones."""
    links = (canonical(href, base, queries=queries) for href in hrefs)
    return tuple(dict.fromkeys(link for link in links if link))


def forbids(directives: str, wish: str) -> bool:
    """Whether a `robots` meta tag or `X-Robots-Tag` (`directives`) contains `wish`, which is `noindex` or
    `nofollow`.
    """
    words = {word.strip() for word in directives.lower().replace(":", ",").split(",")}
    return wish in words or "none" in words
