"""Fetch a registry's git repository at one commit. Files are read from git's objects, without a work tree."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from ctx.config.settings import MAX_SCRIPT_BYTES
from ctx.connectors.base import Progress, ScanLog
from ctx.connectors.copies import share
from ctx.connectors.forges import Remote, parse_remote
from ctx.connectors.gitcmd import QUICK_TIMEOUT_S, Blobs, GitFailed
from ctx.connectors.repository import Repository
from ctx.errors import BadRequest, SourceError
from ctx.scripts.registry import Registry, offered_script
from ctx.scripts.registry_contents import MANIFEST, Contents, Entry, Offer, contents

TIMEOUT_S = 300.0  # scripts are small
MAX_FILE_BYTES = MAX_SCRIPT_BYTES
MAX_BYTES = 20_000_000  # for all scripts of a registry together
MAX_ENTRIES = 20_000  # files in the repository
_PARTIAL = f"blob:limit={MAX_FILE_BYTES + 1}"  # larger files are not fetched, if the remote supports it


class Fetched(NamedTuple):
    """The current state of a registry in its repository."""

    registry: Registry
    files: Mapping[str, Mapping[str, bytes]]  # script (`tools/NAME`) -> path of a file -> its content
    problems: tuple[str, ...]  # a message for each script that is left out
    follows: bool | None  # whether the installed commit is in its history; None if not installed


def remote_of(url: str) -> Remote:
    """The git remote for an address. Raises `BadRequest` if git must not use the address or if it contains a
    password.
    """
    try:
        remote = parse_remote(url)
    except ValueError as error:
        raise BadRequest(str(error)) from error
    if remote.confidential:
        raise BadRequest(
            "url: it holds a password, and ctx stores the address of a registry; give git a credential "
            "helper or an SSH key instead"
        )
    return remote


def fetch(registry: Registry, branch: str | None, progress: Progress | None = None) -> Fetched:
    """Fetch a registry at the newest commit of `branch`, which is a branch, a tag or a full commit id; None
    means the default branch. Raises `BadRequest`, `SourceError`.
    """
    name = registry.name
    repository = Repository(
        f"registry {name}",
        remote_of(registry.url),
        branch=branch,
        partial=_PARTIAL,
        timeout_s=TIMEOUT_S,
        kept="The installed scripts stay",
    )
    repository.git.check_version()
    with repository.copy.locked(TIMEOUT_S) as lock:
        tip = repository.updated(lock, ScanLog(progress))
        if tip is None:
            raise SourceError(f"registry {name}: the repository has no commits")
        share(lock)
        try:
            offered, data = _read(repository, _listing(repository, tip.oid))
        except SourceError as error:
            raise SourceError(f"registry {name}: {error.message}") from error
        follows = _follows(repository, registry.commit, tip.oid) if registry.commit else None
    scripts = tuple(offered_script(name, offer, data) for offer in offered.offers)
    contents_of = {
        script.path: {file: data[path] for file, path in offer.files.items()}
        for script, offer in zip(scripts, offered.offers, strict=True)
    }
    newest = registry._replace(commit=tip.oid, description=offered.description, scripts=scripts)
    return Fetched(newest, contents_of, offered.problems, follows)


def _listing(repository: Repository, commit: str) -> dict[str, Entry]:
    """The files of a commit: path -> entry. Names that are not UTF-8 are rejected later."""
    rows = repository.quick(["ls-tree", "-r", "-z", "--full-tree", commit]).split(b"\0")
    if len(rows) > MAX_ENTRIES:
        raise SourceError(f"it has {len(rows) - 1:,} files; a registry may have {MAX_ENTRIES:,}")
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
        raise SourceError(f"its {MANIFEST} is larger than {MAX_FILE_BYTES:,} bytes, or not a plain file")
    return blobs.read(entry.oid, QUICK_TIMEOUT_S)


def _sizes(repository: Repository, oids: Sequence[str]) -> dict[str, int]:
    """Object id -> size of the objects that were fetched and are not too large. Others are skipped, because
    asking for their size would fetch them.
    """
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
    """The repository paths of all files of the offered scripts, without duplicates."""
    return list(dict.fromkeys(path for offer in offered.offers for path in offer.files.values()))


def _within_bounds(offered: Contents, sizes: Mapping[str, int | None]) -> Contents:
    """The offered scripts without those that have a file that is too large. Raises `SourceError` if all
    together are too large.
    """
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
    """Whether the old commit is in the history of the new one. If not, the branch was rewritten."""
    try:
        repository.git.run(["merge-base", "--is-ancestor", old, new], timeout_s=QUICK_TIMEOUT_S)
    except GitFailed:
        return False
    return True
