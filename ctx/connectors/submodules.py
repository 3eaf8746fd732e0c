"""List the submodules of a repository, and check where each may be fetched from.

A stranger may have written their addresses. So a submodule is read only from the repository's own host and
port and with an equally safe transport, or, for a repository on this machine, from a folder next to it.
"""

import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from ctx.connectors.base import ScanLog
from ctx.connectors.forges import Remote, parse_remote

MAX_SUBMODULES = 100
MAX_DEPTH = 5  # submodules of submodules
_OPEN = {"http": 80, "git": 9418}  # transports without encryption, and their ports
_SAFE = {"https": 443, "ssh": 22}
_PORT = re.compile(r":\d*\Z")


class Submodule(NamedTuple):
    """A folder that stands for another repository at the commit `oid`."""

    path: str  # from the top of the outer repository
    oid: str
    url: str | None  # from `.gitmodules`; None if it is missing there


def listed_submodules(settings: bytes, links: Mapping[str, str]) -> list[Submodule]:
    """Returns the submodules in `links` (path -> commit), sorted by path. Their addresses come from
    `settings`, the output of `git config -z --list` for `.gitmodules`.
    """
    paths: dict[str, str] = {}
    urls: dict[str, str] = {}
    for row in settings.decode("utf-8", "surrogateescape").split("\0"):
        key, _, value = row.partition("\n")
        section, _, name = key.partition(".")
        if section == "submodule" and name.endswith(".path"):
            paths[value] = name.removesuffix(".path")
        elif section == "submodule" and name.endswith(".url"):
            urls[name.removesuffix(".url")] = value
    return [Submodule(path, oid, urls.get(paths.get(path, ""))) for path, oid in sorted(links.items())]


def address_of(submodule: Submodule, outer: Remote) -> str:
    """The address to fetch a submodule from. Raises `ValueError` with the reason if it must not be read."""
    url = submodule.url
    if not url:
        raise ValueError("`.gitmodules` has no address for it")
    if url.startswith(("./", "../")):
        return _beside(url, outer)
    return _of_same_host(url, parse_remote(url), outer)


def _of_same_host(url: str, remote: Remote, outer: Remote) -> str:
    if remote.host is None or remote.host != outer.host:
        raise ValueError("it is not on the host of the repository itself; a source of its own reads it")
    # Another port may be another server, which must not get the user's password for this host.
    if remote.port not in (None, (_OPEN | _SAFE)[remote.transport], outer.port):
        raise ValueError("it is on another port of the repository's host; a source of its own reads it")
    if remote.transport in _OPEN and outer.transport in _SAFE:
        parts = urlsplit(url)
        if remote.port not in (None, _OPEN[remote.transport]):
            raise ValueError("its address is open to others, and the repository's is not")
        return urlunsplit(parts._replace(scheme="https", netloc=_PORT.sub("", parts.netloc)))
    return url


def _beside(url: str, outer: Remote) -> str:
    """Resolve a relative address against the repository's own."""
    if outer.host is None:
        path = posixpath.normpath(posixpath.join(outer.path, url))
        if posixpath.dirname(path) != posixpath.dirname(posixpath.normpath(outer.path)):
            raise ValueError("it is not beside the repository itself; a source of its own reads it")
        return path
    if "://" in outer.url:
        parts = urlsplit(outer.url)
        return urlunsplit(parts._replace(path=_within(parts.path.rstrip("/"), url)))
    head, _, path = outer.url.partition(":")  # user@host:path
    return f"{head}:{_within('/' + path.strip('/'), url).lstrip('/')}"


def _within(path: str, url: str) -> str:
    joined = posixpath.normpath(posixpath.join(path, url))
    if joined in ("/", "."):
        raise ValueError("its address leads out of the host")
    return joined


class InnerLog(ScanLog):
    """The log of a submodule's scan. `tell` adds it to the log of the outer scan, with `prefix` before each
    id.
    """

    def tell(self, log: ScanLog, prefix: str) -> None:
        log.unchanged |= {prefix + source_id for source_id in self.unchanged}
        for problem in self.problems:
            log.problem(prefix + problem.source_id, problem.message)
        for note in self.notes:
            log.note(prefix + note.source_id, note.message)
        log.left_out += self.left_out
        log.withheld += [prefix + withheld for withheld in self.withheld]


def known_below(known: Mapping[str, str], prefix: str) -> dict[str, str]:
    """The fingerprints of the submodule's documents in `known`, with `prefix` removed from their ids."""
    return {
        source_id.removeprefix(prefix): fingerprint
        for source_id, fingerprint in known.items()
        if source_id.startswith(prefix)
    }
