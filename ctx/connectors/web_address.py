"""Normalise the addresses of pages, and decide which addresses belong to a source."""

import re
from collections.abc import Iterable
from urllib.parse import SplitResult, parse_qsl, quote, urljoin, urlsplit, urlunsplit

from ctx.connectors.patterns import Rules, parse_globs
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
    if "[" in parts.netloc and ":" not in host:  # an IP address of an unknown kind
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
    return _ESCAPE.sub(_unescaped, quote(text.encode("utf-8", "replace"), safe=safe))


def _unescaped(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


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
    if not query:
        return ""
    if _TRACKING.search(query):
        pairs = parse_qsl(query, keep_blank_values=True)
        if any(_TRACKING.fullmatch(name) for name, _ in pairs):
            fields = query.split("&")
            query = "&".join(field for field in fields if not _TRACKING.fullmatch(field.partition("=")[0]))
    return _escaped(query, _SAFE + "?")


def folder_of(address: str) -> str:
    """The folder of an address. A last part with a suffix is a page in the folder; without one it is the
    folder itself (`/docs` is `/docs/`).
    """
    parts = urlsplit(address)
    above, _, name = parts.path.rpartition("/")
    folder = f"{above}/" if not name or _PAGE_NAME.search(name) else f"{parts.path}/"
    return urlunsplit((parts.scheme, parts.netloc, folder, "", ""))


class Site:
    """The addresses of a source: below one of its `prefixes`, with a path that the globs take.

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
        return self._wanted(segments)

    def _wanted(self, segments: list[str]) -> bool:
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
