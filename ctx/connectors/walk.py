"""Walk through a folder: list its files, apply its ignore files, find changes, and read a file without
following links.
"""

import errno
import os
import stat
import time
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from ctx import files, git
from ctx.clock import told_ms
from ctx.connectors.base import ScanLog, encode_name, too_large
from ctx.connectors.defaults import SKIPPED_FOLDERS, VENDORED, WORKTREE
from ctx.connectors.patterns import LINKED_RULES, MAX_RULE_FILE_BYTES, OWN_RULES, Pattern, read_ignore_file
from ctx.connectors.scope import Scope
from ctx.errors import SourceError
from ctx.formats.encoding import SNIFF_BYTES, is_binary
from ctx.formats.table import DOCUMENT_SUFFIXES
from ctx.models import SourceItem

if TYPE_CHECKING:
    from ctx.connectors.filesystem import FilesystemConnector

# In this order: a rule in `.ctxignore` can re-include what `.gitignore` excludes.
RULE_FILES = (".gitignore", OWN_RULES)
# A folder with one of these is a cache or an environment.
CACHE_MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")
GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)

FINE_TICK_NS = 100_000_000  # nanoseconds; ten times the resolution of kernel timestamps (1 to 10 ms)
COARSE_TICK_NS = 2_500_000_000  # FAT stores timestamps in steps of 2 s, HFS+ and old file servers of 1 s
CLOCK_SKEW_NS = 3_600_000_000_000  # a timestamp further in the future is a wrong date, not clock skew
RACY = "~"  # ends the fingerprint of a file that may still change without a new timestamp

STAMP = attrgetter("st_mtime_ns", "st_ctime_ns", "st_size", "st_ino")
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DOCUMENTS = tuple(f".{suffix}" for suffix in DOCUMENT_SUFFIXES)  # binary formats that contain text


def repository_rules(top: str) -> list[Pattern]:
    """The patterns of the user's global ignore file and of `info/exclude`, for the work tree at `top`."""
    repository = git.repository(top)
    paths = (git.global_rules(top), repository and f"{repository}/info/exclude")
    return [pattern for path in paths if path for pattern in rules_of(path)]


def rules_of(path: str) -> list[Pattern]:
    """The patterns of an ignore file; empty if it is missing. Raises `SourceError`.

    A `.gitignore` that is a link or not a file is ignored, as by git. Such a `.ctxignore` is an error,
    because ignoring its rules could publish files.
    """
    name = os.path.basename(path)
    try:
        return read_ignore_file(files.read_file(path, most=MAX_RULE_FILE_BYTES + 1))
    except OSError as error:
        if name == OWN_RULES and error.errno == errno.ELOOP:
            raise SourceError(LINKED_RULES) from error
        if error.errno in GONE or (error.errno == errno.EINVAL and name != OWN_RULES):  # EINVAL: not a file
            return []
        raise SourceError(f"{name} cannot be read: {error.strerror}") from error


@dataclass(eq=False)
class Walk:
    """The state of one running scan of a folder."""

    connector: "FilesystemConnector"
    root: str
    known: Mapping[str, str]
    log: ScanLog
    rule_files: Sequence[str]

    def __post_init__(self) -> None:
        self._from_root = len(self.root.rstrip("/")) + 1
        self._obeys_git = RULE_FILES[0] in self.rule_files
        self._work_trees = [self.root] if self._obeys_git and files.work_tree(self.root) else []
        # Folders entered through a link, each once, so that loops end.
        self._linked: set[tuple[int, int]] = set()

    def withhold(self, prefix: str, message: str) -> None:
        """Report a prefix that could not be read, and keep the known documents below it."""
        self.log.withheld.append(prefix)
        self.log.problem(prefix.rstrip("/"), message)

    def ruled(self, folder: str, prefix: str, scope: Scope, names: Container[str]) -> Scope | None:
        """The scope for a folder: `scope` and the rules of its ignore files. None if the folder must not be
        entered: a cache, a copy of a work tree, or a bare repository.
        """
        if prefix and any(marker in names for marker in CACHE_MARKERS):
            return None
        if prefix and all(name in names for name in ("HEAD", "objects", "refs")):  # a bare repository of git
            return None
        patterns: list[Pattern] = []
        try:
            if prefix and ".git" in names:
                if git.is_copy(folder, self.root):
                    self.log.left_out[WORKTREE] += 1
                    return None
                if self._obeys_git:
                    self._work_trees.append(folder)
                    patterns += repository_rules(folder)
            for rule_file in self.rule_files:
                if rule_file in names:
                    patterns += rules_of(f"{folder}/{rule_file}")
            return scope.with_rules(patterns)
        except SourceError as error:  # without the rules, hidden files would be published
            self.withhold(prefix, f"left out: {error.message}")
            return None

    def tracked(self, below: str) -> list[str]:
        """The paths at or below `below` that git tracks although an ignore file matches them."""
        paths: list[str] = []
        for folder in self._work_trees:
            inside = f"{folder}/"[self._from_root :]
            if not below or f"{below}/".startswith(inside) or inside.startswith(f"{below}/"):
                paths += (inside + path for path in git.tracked_though_ignored(folder))
        return sorted(path for path in paths if not below or f"{path}/".startswith(f"{below}/"))

    def compare(
        self, source_id: str, relative: str, st: os.stat_result, now_ns: int, tag: str
    ) -> SourceItem | None:
        """The item of a regular file; None if it is unchanged or too large. `relative` contains no link."""
        if self.known.get(source_id) == fingerprint(st) + tag:
            self.log.unchanged.add(source_id)
            return None
        if st.st_size > self.connector.max_file_bytes:
            self.log.problem(source_id, too_large(st.st_size, self.connector.max_file_bytes))
            return None
        mark = fingerprint(st) + (RACY if may_still_change(st, now_ns) else "") + tag
        read = partial(self.connector.read, self.root, relative)
        return SourceItem(source_id, mark, told_ms(st.st_mtime_ns // 1_000_000), read)

    def below(self, folder: str, prefix: str, scope: Scope) -> Iterator[SourceItem]:
        """Yield the new and changed files below a folder. `prefix` is the folder's id and a slash ("" at the
        root).
        """
        stack = [(folder, prefix, scope)]
        while stack:
            folder, prefix, scope = stack.pop()
            folders: list[tuple[str, str, Scope]] = []
            items: list[SourceItem] = []
            try:
                fd = os.open(folder, FOLDER)
            except OSError as error:
                if error.errno not in GONE or not prefix:
                    self.withhold(prefix, f"the folder cannot be listed: {error.strerror}")
                continue
            try:
                with os.scandir(fd) as entries:
                    by_name = {entry.name: entry for entry in entries}
                # Which of two links to one folder is entered must not depend on the order on disk.
                if self.connector.follow_symlinks:
                    by_name = dict(sorted(by_name.items()))
                inner = self.ruled(folder, prefix, scope, by_name)
                if inner is not None:
                    self._files(folder, prefix, inner, by_name, folders, items)
            except OSError as error:
                self.withhold(prefix, f"the folder cannot be listed: {error.strerror}")
            finally:
                os.close(fd)
            folders.sort(reverse=True, key=lambda entry: entry[0])
            stack += folders
            items.sort(key=lambda item: item.source_id)
            yield from items

    def _files(
        self,
        folder: str,
        prefix: str,
        scope: Scope,
        by_name: "Mapping[str, os.DirEntry[str]]",
        folders: list[tuple[str, str, Scope]],
        items: list[SourceItem],
    ) -> None:
        """Compare the files of one folder and list its subfolders. A scan spends most of its time here.

        If all files are unchanged, this is one comparison of two lists, in the interpreter's own loops. The
        tag in a fingerprint identifies the ignore rules, so they are applied again only if they changed.
        """
        now_ns = time.time_ns()
        relative = f"{folder}/"[self._from_root :]
        names = "".join(by_name)
        verbatim = names.isascii() and "%" not in names
        ids = [prefix + (name if verbatim else encode_name(name)) for name in by_name]
        for entry, source_id in self._changed(by_name.values(), ids, scope.tag):
            name = entry.name
            if scope.takes(name):
                try:
                    st = entry.stat(follow_symlinks=False)
                except OSError as error:
                    if error.errno not in GONE:  # if the file cannot be read, its known document stays
                        self.withhold(source_id, f"cannot be read: {error.strerror}")
                    continue
                if stat.S_ISREG(st.st_mode):
                    item = self.compare(source_id, relative + name, st, now_ns, scope.tag)
                    if item is not None:
                        items.append(item)
                    continue
            elif scope.wants(name) and (kind := scope.left_out(name)):
                self.log.left_out[kind] += entry.is_file(follow_symlinks=False)
            if entry.is_symlink() and self.connector.follow_symlinks:
                self._link(folder, source_id, name, scope, now_ns, folders, items)
            elif entry.is_dir(follow_symlinks=False):
                self.log.left_out[VENDORED] += scope.vendored(name, by_name)
                below = scope.enter(name, by_name)
                if below is not None:
                    folders.append((f"{folder}/{name}", f"{source_id}/", below))

    def _changed(
        self, entries: "Collection[os.DirEntry[str]]", ids: list[str], tag: str
    ) -> "Iterable[tuple[os.DirEntry[str], str]]":
        """The (entry, id) pairs of one folder that may have changed."""
        rows = list(zip(entries, ids, map(self.known.get, ids), strict=True))
        indexed = [row for row in rows if row[2] is not None]
        if self._all_unchanged([row[0] for row in indexed], [row[2] for row in indexed], tag):
            self.log.unchanged.update([row[1] for row in indexed])
            rows = [row for row in rows if row[2] is None]
        return [row[:2] for row in rows]

    def _all_unchanged(
        self, entries: "Iterable[os.DirEntry[str]]", marks: list[str | None], tag: str
    ) -> bool:
        try:
            # An entry caches the result of its first `stat`.
            stats = [entry.stat(follow_symlinks=False) for entry in entries]
        except OSError:
            return False
        # The same as `fingerprint`, without a function call for each file.
        prints = list(map(hex, map(hash, map(STAMP, stats))))
        return (prints if not tag else [mark + tag for mark in prints]) == marks

    def _link(
        self,
        folder: str,
        source_id: str,
        name: str,
        scope: Scope,
        now_ns: int,
        folders: list[tuple[str, str, Scope]],
        items: list[SourceItem],
    ) -> None:
        """Follow a link whose target is below the root and not in a folder that is never read. Other links,
        and dangling ones, are skipped.
        """
        try:
            target = os.path.realpath(f"{folder}/{name}", strict=True)
            st = os.lstat(target)
        except OSError:
            return
        relative = target[self._from_root :]
        if not target.startswith(self.root.rstrip("/") + "/") or SKIPPED_FOLDERS & {*relative.split("/")}:
            return
        if stat.S_ISREG(st.st_mode) and scope.takes(name):
            item = self.compare(source_id, relative, st, now_ns, scope.tag)
            if item is not None:
                items.append(item)
        elif stat.S_ISDIR(st.st_mode):
            identity = (st.st_dev, st.st_ino)
            below = scope.enter(name)
            if (
                below is not None
                and identity not in self._linked
                and not f"{folder}/".startswith(f"{target}/")
            ):
                self._linked.add(identity)
                folders.append((target, f"{source_id}/", below))


# -- reading a file ------------------------------------------------------------------------------------------


def fingerprint(st: os.stat_result) -> str:
    """A fingerprint that changes whenever the file may have changed.

    ctime detects what mtime does not (a moved older file, `cp -p`, two edits in one second); inode and size
    detect changes after the clock was set back. Python's hash of integers is the same in every process. An
    item's fingerprint also has the scope's tag.
    """
    return hex(hash(STAMP(st)))


def may_still_change(st: os.stat_result, now_ns: int) -> bool:
    """Whether a later write could leave the same timestamp, because the file system's clock is too coarse.

    `now_ns` must not be later than the `stat` call.
    """
    for stamp_ns in (st.st_mtime_ns, st.st_ctime_ns):
        tick_ns = FINE_TICK_NS if stamp_ns % 1_000_000_000 else COARSE_TICK_NS
        if now_ns - tick_ns < stamp_ns < now_ns + CLOCK_SKEW_NS:
            return True
    return False


def read_below(root: str, relative: str, max_bytes: int, *, whole: bool = False) -> bytes:
    """Read a regular file below the folder `root`; `relative` is its path with `/`. Of a binary file that is
    not a document, only the first `SNIFF_BYTES` are read, unless `whole`.

    If the file changes while it is read, its fingerprint is older, so the next run reads it again. Raises
    `OSError`, and `SourceError` for more than `max_bytes`.
    """
    fd = files.open_file(f"{root}/{relative}", os.O_RDONLY, beneath=root)
    with open(fd, "rb", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size > max_bytes:
            raise SourceError(too_large(size, max_bytes))
        data = file.read(SNIFF_BYTES)
        if not whole and is_binary(data) and not relative.lower().endswith(_DOCUMENTS):
            return data  # enough for the extractor to see that it is binary
        if len(data) != size:  # a log may grow faster than it is read
            data += files.read_most(file.read, max_bytes + 1 - len(data))
    if len(data) > max_bytes:
        raise SourceError(too_large(len(data), max_bytes))
    return data
