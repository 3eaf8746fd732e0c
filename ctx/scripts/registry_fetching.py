"""A registry as its repository has it at one commit, read from git's objects: no work tree, nothing that
runs.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from ctx.connectors.base import Progress, ScanLog
from ctx.connectors.copies import share
from ctx.connectors.forges import Remote, parse_remote
from ctx.connectors.gitcmd import QUICK_TIMEOUT_S, Blobs, GitFailed
from ctx.connectors.repository import Repository
from ctx.errors import BadRequest, SourceError
from ctx.scripts.registry_contents import MANIFEST, Contents, Entry, Offer, contents
from ctx.scripts.scripts import MAX_SCRIPT_BYTES

TIMEOUT_S = 300.0  # scripts are small
MAX_FILE_BYTES = MAX_SCRIPT_BYTES
MAX_BYTES = 20_000_000  # of all that is installed
MAX_ENTRIES = 20_000  # files of the repository: it is a registry, not a tree of documents
_PARTIAL = f"blob:limit={MAX_FILE_BYTES + 1}"  # what is larger is not even fetched, where the remote can


class Fetched(NamedTuple):
    """A registry at a commit. `data`: path in the repository -> content, of all files of all offers.

    `follows`: whether its history holds the commit that was asked about; None where none was.
    """

    commit: str
    contents: Contents
    data: Mapping[str, bytes]
    follows: bool | None


def remote_of(url: str) -> Remote:
    """Raises `BadRequest` for an address that git must not be given, or that must not be written down."""
    try:
        remote = parse_remote(url)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    if remote.confidential:
        raise BadRequest(
            "url: it holds a password, and the address of a registry is written down; give git a credential "
            "helper or an SSH key instead"
        )
    return remote


def fetch(
    name: str, url: str, branch: str | None, *, since: str | None = None, progress: Progress | None = None
) -> Fetched:
    """The registry at the newest commit of `branch` (a branch, a tag, a whole commit id; None: the default).

    `since` is the commit that is installed. Raises `BadRequest`, `SourceError`.
    """
    repository = Repository(
        f"registry {name}",
        remote_of(url),
        branch=branch,
        partial=_PARTIAL,
        timeout_s=TIMEOUT_S,
        kept="What is installed of it stays",
    )
    repository.git.check_version()
    with repository.copy.locked(TIMEOUT_S) as lock:
        tip = repository.updated(lock, ScanLog(progress))
        if tip is None:
            raise SourceError(f"registry {name}: the repository has no commits")
        share(lock)
        try:
            listing = _listing(repository, tip.oid)
            offered, data = _read(repository, listing)
        except SourceError as error:
            raise SourceError(f"registry {name}: {error.message}") from error
        follows = None if since is None else _follows(repository, since, tip.oid)
    return Fetched(tip.oid, offered, data, follows)


def _listing(repository: Repository, commit: str) -> dict[str, Entry]:
    """The files of a commit. Names that are not UTF-8 stay odd, and so are left out later."""
    rows = repository.quick(["ls-tree", "-r", "-z", "--full-tree", commit]).split(b"\0")
    if len(rows) > MAX_ENTRIES:
        raise SourceError(
            f"it holds {len(rows) - 1:,} files, more than {MAX_ENTRIES:,}; that is no registry of scripts"
        )
    listing = {}
    for row in rows[:-1]:
        head, _, path = row.partition(b"\t")
        mode, _, oid = head.decode().split(" ")
        listing[path.decode("utf-8", "surrogateescape")] = Entry(mode, oid)
    return listing


def _read(repository: Repository, listing: Mapping[str, Entry]) -> tuple[Contents, dict[str, bytes]]:
    with closing(Blobs(repository.git, repository.name)) as blobs:
        offered = contents(_manifest(repository, blobs, listing.get(MANIFEST)), listing)
        paths = _paths(offered)
        sizes = _sizes(repository, [listing[path].oid for path in paths])
        offered = _within_bounds(offered, {path: sizes.get(listing[path].oid) for path in paths})
        return offered, {path: blobs.read(listing[path].oid, QUICK_TIMEOUT_S) for path in _paths(offered)}


def _manifest(repository: Repository, blobs: Blobs, entry: Entry | None) -> bytes | None:
    if entry is None:
        return None
    if not entry.mode.startswith("100") or not _sizes(repository, [entry.oid]):
        raise SourceError(f"its {MANIFEST} is larger than {MAX_FILE_BYTES:,} bytes, or no plain file")
    return blobs.read(entry.oid, QUICK_TIMEOUT_S)


def _sizes(repository: Repository, oids: Sequence[str]) -> dict[str, int]:
    """The sizes of the objects that are there and not too large; asking git for others would fetch them."""
    absent = repository.absent()
    present = [oid for oid in dict.fromkeys(oids) if oid not in absent]
    names = "".join(f"{oid}\n" for oid in present).encode()
    rows = repository.quick(["cat-file", "--batch-check=%(objecttype) %(objectsize)"], stdin=names)
    sizes = {}
    for oid, row in zip(present, rows.decode().splitlines(), strict=True):
        kind, _, size = row.partition(" ")
        if kind == "blob" and int(size) <= MAX_FILE_BYTES:
            sizes[oid] = int(size)
    return sizes


def _paths(offered: Contents) -> list[str]:
    """The files of all scripts that are offered, each once."""
    return list(dict.fromkeys(path for offer in offered.offers for path in offer.files.values()))


def _within_bounds(offered: Contents, sizes: Mapping[str, int | None]) -> Contents:
    """Without the scripts that have a file that is too large. Raises `SourceError` where all is too much."""
    fitting: list[Offer] = []
    problems = list(offered.problems)
    total = 0
    for offer in offered.offers:
        large = next((path for path in offer.files.values() if sizes[path] is None), None)
        if large is not None:
            problems.append(
                f"{offer.kind} '{offer.name}': '{large}' is larger than {MAX_FILE_BYTES:,} bytes; it is "
                "left out"
            )
            continue
        total += sum(sizes[path] or 0 for path in offer.files.values())
        fitting.append(offer)
    if total > MAX_BYTES:
        raise SourceError(f"its scripts are larger than {MAX_BYTES:,} bytes together")
    return offered._replace(offers=tuple(fitting), problems=tuple(problems))


def _follows(repository: Repository, old: str, new: str) -> bool:
    """Whether the old commit is the new one or in its history: else the branch was rewritten."""
    try:
        repository.git.run(["merge-base", "--is-ancestor", old, new], timeout_s=QUICK_TIMEOUT_S)
    except GitFailed:
        return False
    return True
