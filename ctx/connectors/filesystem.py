"""A folder of this machine as a source.

A scan lists the folders and calls `lstat` for each file that matches the globs. It reads nothing outside the
root: it opens files one path component at a time, without following links.
"""

import errno
import os
import stat
import time
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from urllib.parse import quote

from ctx import files
from ctx.connectors.base import EMPTY_IS_SUSPECT, EVERY_TEXT, KEPT, ScanLog, encode_name, section_of
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.connectors.patterns import Level, Rules
from ctx.connectors.scope import Scope, Scopes, misplaced
from ctx.connectors.walk import (
    CACHE_MARKERS,
    GONE,
    RULE_FILES,
    Walk,
    read_below,
    repository_rules,
    rules_of,
)
from ctx.errors import SourceError
from ctx.models import Content, SourceItem, outline

# Increased when a new version of ctx selects or reads files differently with the same configuration.
SCAN_FORMAT = 4
OWN_ADDRESS = "file"  # the value of `link` for `file:` addresses
_FEW_TOPS = 100  # with more paths, one pass over all known ids is faster than a query for each path


class _OnDisk:
    """A container of the paths below a folder. It tests each path on the disk, which is faster than a listing
    for single paths.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __contains__(self, path: object) -> bool:
        return os.path.lexists(f"{self._folder}/{path}")


@dataclass(eq=False, repr=False)
class FilesystemConnector:
    """The files below `root` that match the globs and that no ignore file excludes.

    Without `include_globs`, it includes all files that are not left out by name. Files that git tracks are
    read even if an ignore file matches them. `root` may be relative to the working folder. `follow_symlinks`
    follows links whose target is below the root. `link` is the address of a file, with `{path}` for its path
    below the root, or "file" for its `file:` address. An empty root that had documents is an error, because
    its disk may not be mounted. `stays(root)` is called with the resolved root before each scan; if it
    returns False, the scan raises `SourceError`.
    """

    name: str
    root: str
    _: KW_ONLY
    include_globs: Sequence[str] | None = None
    exclude_globs: Sequence[str] = ()
    follow_symlinks: bool = False
    max_file_bytes: int = MAX_FILE_BYTES
    respect_gitignore: bool = True
    link: str | None = None
    stays: Callable[[str], bool] | None = None

    def __post_init__(self) -> None:
        self.root = os.path.abspath(os.path.expanduser(self.root))
        self.rule_files = RULE_FILES if self.respect_gitignore else RULE_FILES[1:]
        self._section = section_of(self.name)

    @property
    def signature(self) -> str:
        settings = (
            SCAN_FORMAT,
            self.root if self.link == OWN_ADDRESS else None,
            self.include_globs,
            self.exclude_globs,
            self.follow_symlinks,
            self.max_file_bytes,
            self.respect_gitignore,
            self.link,
        )
        prefix = EVERY_TEXT if self.include_globs is None else ""
        return f"{prefix}{outline(settings)}@{outline(self.root)}"

    # -- scanning --------------------------------------------------------------------------------------------

    def scan(self, known: Mapping[str, str], log: ScanLog, *, brief: bool = False) -> Iterator[SourceItem]:
        """Yield new and changed files, folder by folder in order of their names. With `brief`, ask git which
        files it tracks only if a known file was not found.
        """
        root = self._real_root(known)
        walk = Walk(self, root, known, log, self.rule_files)
        log.expected = partial(self._count, root, known)
        yielded = set()
        for item in walk.below(root, "", self._top_scope(root)):
            yielded.add(item.source_id)
            yield item
        if not (brief and known.keys() <= yielded | log.unchanged):
            yield from self._tracked(walk, "", yielded)
        for glob in misplaced((*(self.include_globs or ()), *self.exclude_globs), self.root):
            log.note("", f"'{glob}' in {self._section} fits nothing: globs begin below `root`")

    def _count(self, root: str, known: Mapping[str, str]) -> int:
        walk = Walk(self, root, known, ScanLog(), self.rule_files)
        return sum(1 for _ in walk.below(root, "", self._top_scope(root)))

    def scan_paths(
        self, paths: Iterable[str], known: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        """Yield new and changed files at and below these absolute paths. Adds deleted ids to `log.gone`.

        Sets `log.rescan` if single paths are not enough: an ignore file changed, the root itself is named, or
        links are followed (a file then has several ids).
        """
        root = self._real_root(known)
        if self.follow_symlinks:
            log.rescan = True
            return
        walk = Walk(self, root, known, log, self.rule_files)
        scopes = _scopes(walk, self._top_scope(root))
        gone_below: set[str] = set()
        present: set[str] = set()
        for path in sorted(set(paths)):
            relative = self._relative(path, root)
            if relative is None:
                continue
            if not relative or os.path.basename(relative) in (*self.rule_files, *CACHE_MARKERS):
                log.rescan = True
                continue
            source_id = encode_name(relative)
            gone_below.add(source_id)  # known ids at and below it are deleted unless they are found again
            items = list(self._look(source_id, relative, scopes, walk))
            if not items and source_id not in log.unchanged:
                items = list(self._tracked(walk, relative))
            present.update(item.source_id for item in items)
            yield from items
        if gone_below:
            log.gone |= _known_below(known, gone_below) - present - log.unchanged
            withheld = tuple(log.withheld)
            log.gone -= {source_id for source_id in log.gone if source_id.startswith(withheld)}

    def _tracked(self, walk: "Walk", below: str, done: Container[str] = frozenset()) -> Iterator[SourceItem]:
        """Yield the files at or below a path that git tracks although one of its ignore files matches them.
        Only `.ctxignore` and the globs leave them out.
        """
        paths = walk.tracked(below)
        if not paths:
            return
        own = Walk(self, walk.root, walk.known, walk.log, RULE_FILES[1:])
        scopes = _scopes(own, Scope.top(self.include_globs, self.exclude_globs))
        for path in paths:
            source_id = encode_name(path)
            seen = source_id in done or source_id in walk.log.unchanged
            if not seen and not os.path.isdir(f"{walk.root}/{path}"):
                yield from self._look(source_id, path, scopes, own)

    def _look(self, source_id: str, path: str, scopes: Scopes, walk: "Walk") -> Iterator[SourceItem]:
        """Yield the new and changed files at a path below the root."""
        above, _, name = path.rpartition("/")
        try:
            scope = scopes.of(above)
            if scope is None:
                return
            now_ns = time.time_ns()
            st = os.lstat(f"{walk.root}/{path}")
        except OSError as error:
            if error.errno not in GONE:
                walk.withhold(source_id, f"cannot be read: {error.strerror}")
            return
        if stat.S_ISDIR(st.st_mode):
            below = scope.enter(name, _OnDisk(f"{walk.root}/{above}"))
            if below is not None:
                yield from walk.below(f"{walk.root}/{path}", f"{source_id}/", below)
        elif stat.S_ISREG(st.st_mode) and scope.takes(name):
            item = walk.compare(source_id, path, st, now_ns, scope.tag)
            if item is not None:
                yield item

    def _real_root(self, known: Mapping[str, str]) -> str:
        """The root with links resolved. Raises `SourceError` if it is missing, unreadable or suspiciously
        empty.
        """
        try:
            root = os.path.realpath(self.root, strict=True)
            with os.scandir(root) as entries:
                empty = next(entries, None) is None
        except NotADirectoryError as error:
            raise SourceError(
                f"{self.name}: `root` in {self._section} is a file; name its folder, and the file in "
                f"`include_globs`. {KEPT}"
            ) from error
        except OSError as error:
            raise SourceError(
                f"{self.name}: the root folder cannot be read ({error.strerror}); mount or restore it, or "
                f"fix `root` in {self._section}. {KEPT}"
            ) from error
        if self.stays is not None and not self.stays(root):
            raise SourceError(
                f"{self.name}: the root folder has become a link that leads out of the project; if it is "
                f"meant, start ctx again. {KEPT}"
            )
        if empty and len(known) >= EMPTY_IS_SUSPECT:
            raise SourceError(
                f"{self.name}: the root folder is empty, but {len(known)} documents are indexed from it, "
                "as when a disk is not mounted. "
                f"They are kept; if the folder is meant to be empty, run `ctx index {self.name} --full`"
            )
        return root

    def _relative(self, path: str, root: str) -> str | None:
        """The path relative to the root, with `/`; "" for the root itself or a folder above it, None for a
        path elsewhere.
        """
        path = os.path.abspath(path)
        for base in (self.root, root):
            if path == base or base.startswith(path.rstrip("/") + "/"):
                return ""
            prefix = base.rstrip("/") + "/"
            if path.startswith(prefix):
                return path[len(prefix) :]
        return None

    def _top_scope(self, root: str) -> Scope:
        return Scope.top(
            self.include_globs, self.exclude_globs, self._outer_rules(root) if self.respect_gitignore else ()
        )

    def _outer_rules(self, root: str) -> tuple[Level, ...]:
        """Git's ignore rules in the folders above the root, deepest first, if the root is in a work tree.

        Empty if these rules ignore the root itself: a user who names an ignored folder as a source wants it
        read.
        """
        folder = files.work_tree(root)
        if folder is None:
            return ()
        levels: list[Level] = []
        patterns = repository_rules(folder)
        for name in os.path.relpath(root, folder).split("/") if folder != root else ():
            levels.insert(0, Rules([*patterns, *rules_of(f"{folder}/.gitignore")]).top())
            patterns = []
            verdicts = (level.decide(name, folder=True) for level in levels)  # the nearest one counts
            if next((verdict for verdict in verdicts if verdict is not None), False):
                return ()
            levels = [level.descend(name) for level in levels]
            folder = f"{folder}/{name}"
        levels.append(Rules(patterns).top())  # the walk reads the ignore files of the root itself
        return tuple(level for level in levels if not level.empty)

    # -- reading ---------------------------------------------------------------------------------------------

    def read(self, root: str, relative: str) -> Content:
        """Read the file at `relative`, a path without links below the resolved root. Raises `SourceError`."""
        try:
            data = read_below(root, relative, self.max_file_bytes)
        except OSError as error:
            if error.errno in GONE:
                raise SourceError(
                    "went away or was replaced while it was being indexed; the next run sees what is "
                    "there then"
                ) from error
            changed = error.errno == errno.EINVAL
            reason = "is not a regular file any more" if changed else f"cannot be read: {error.strerror}"
            raise SourceError(reason) from error
        address = self.link  # None by default, because a `file:` address would show the absolute path
        if address == OWN_ADDRESS:
            address = "file://" + quote(os.fsencode(f"{self.root.rstrip('/')}/{relative}"))
        elif address:
            address = address.replace("{path}", quote(os.fsencode(relative)))
        return Content(data, source_url=address)


def _scopes(walk: Walk, top: Scope) -> Scopes:
    """The scopes of the folders below the root, without a listing of them."""

    def ruled(folder: str, scope: Scope) -> Scope | None:
        path = f"{walk.root}/{folder}".rstrip("/")
        if folder and not stat.S_ISDIR(os.lstat(path).st_mode):
            return None
        return walk.ruled(path, f"{encode_name(folder)}/" if folder else "", scope, _OnDisk(path))

    return Scopes(top, Counter(), ruled, _OnDisk(walk.root))


def _known_below(known: Iterable[str], tops: set[str]) -> set[str]:
    """The ids that are one of `tops` or below one, in one pass over the ids."""
    below: Callable[[Iterable[str]], set[str]] | None = getattr(known, "below", None)
    # The catalog finds these ids with its index, without reading all ids.
    if below is not None and len(tops) <= _FEW_TOPS:
        return below(tops)
    inside: dict[str, bool] = {"": False}

    def within(folder: str) -> bool:
        verdict = inside.get(folder)
        if verdict is None:
            verdict = inside[folder] = folder in tops or within(folder.rpartition("/")[0])
        return verdict

    return {source_id for source_id in known if source_id in tops or within(source_id.rpartition("/")[0])}
