"""A folder of this machine as a source.

A scan costs little more than listing the tree: one `lstat` per file that the globs take, nothing for the
rest. Nothing outside the root is ever read: a file is opened component by component, without following links,
so a link put in place meanwhile is refused.
"""

import errno
import os
import stat
import time
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from urllib.parse import quote

from ctx import files, git
from ctx.clock import told_ms
from ctx.connectors.base import EMPTY_IS_SUSPECT, EVERY_TEXT, KEPT, ScanLog
from ctx.connectors.defaults import EXPECTED_KINDS, MAX_FILE_BYTES, SKIPPED_FOLDERS, VENDORED, WORKTREE
from ctx.connectors.names import encode_name, section_of
from ctx.connectors.opening import (
    FILE,
    FOLDER,
    RACY,
    STAMP,
    fingerprint,
    may_still_change,
    read_below,
    read_most,
    too_large,
)
from ctx.connectors.patterns import (
    LINKED_RULES,
    MAX_RULE_FILE_BYTES,
    OWN_RULES,
    Level,
    Pattern,
    Rules,
    read_ignore_file,
)
from ctx.connectors.scope import Scope, misplaced
from ctx.errors import SourceError
from ctx.identity import outline
from ctx.items import Content, SourceItem

# Of one folder, in this order: ours can take back what git's ignores.
RULE_FILES = (".gitignore", OWN_RULES)
# A folder that holds one says itself that it is a cache or an environment.
CACHE_MARKERS = ("CACHEDIR.TAG", "pyvenv.cfg")
SCAN_FORMAT = 4  # raised when a new version would take or read other files under the same configuration
OWN_ADDRESS = "file"  # of `link`
_FEW_TOPS = 100  # above that, one walk over all known ids is quicker than a question for each

_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)


class _OnDisk:
    """The names of a folder, asked for one at a time: for a look at single paths, where listing it would cost
    more.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __contains__(self, name: object) -> bool:
        return os.path.lexists(f"{self._folder}/{name}")


class _Unreadable(SourceError):
    """A folder, or a rule file in it, that could not be read; its message is for the report."""


class FilesystemConnector:
    """The files below `root` that the globs take and no ignore file excludes; without `include_globs` all
    that are not left out by name. What git tracks is read even where an ignore file matches it.

    `root` may be relative to the working folder. With `follow_symlinks`, links are followed whose target
    stays within the root. `link` is the address of a file, with `{path}` for its path below the root, or
    "file" for its own on this machine. A root that holds nothing at all although documents are known is taken
    for an unmounted disk. `stays(root)` is asked before each scan, of the root without links, and false is an
    error.
    """

    def __init__(
        self,
        name: str,
        root: str,
        *,
        include_globs: Iterable[str] | None = None,
        exclude_globs: Iterable[str] = (),
        follow_symlinks: bool = False,
        max_file_bytes: int = MAX_FILE_BYTES,
        respect_gitignore: bool = True,
        link: str | None = None,
        stays: Callable[[str], bool] | None = None,
    ) -> None:
        self.name = name
        self._stays = stays
        self.root = os.path.abspath(os.path.expanduser(root))
        self.include_globs = None if include_globs is None else tuple(include_globs)
        self.exclude_globs = tuple(exclude_globs)
        self.follow_symlinks = follow_symlinks
        self.max_file_bytes = max_file_bytes
        self.respect_gitignore = respect_gitignore
        self.link = link
        self.rule_files = RULE_FILES if respect_gitignore else RULE_FILES[1:]
        self._section = section_of(name)

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
        """The files that are new or changed, folder by folder in order of their names. `brief`: git is not
        asked what it tracks, unless a known file was not seen.
        """
        root = self._real_root(known)
        walk = _Walk(self, root, known, log, self.rule_files)
        log.expected = partial(self._count, root, known)
        yielded = set()
        for item in walk.below(root, "", self._top_scope(root)):
            yielded.add(item.source_id)
            yield item
        if not (brief and known.keys() <= yielded | log.unchanged):
            yield from self._tracked(walk, root, "", yielded)
        for glob in misplaced((*(self.include_globs or ()), *self.exclude_globs), self.root):
            log.note("", f"'{glob}' in {self._section} fits nothing: globs begin below `root`")
        if walk.unread:
            kinds = ", ".join(f".{suffix} {count:,}" for suffix, count in sorted(walk.unread.items()))
            log.note("", f"left out, as kinds that `include_globs` in {self._section} does not name: {kinds}")

    def _count(self, root: str, known: Mapping[str, str]) -> int:
        walk = _Walk(self, root, known, ScanLog(), self.rule_files)
        return sum(1 for _ in walk.below(root, "", self._top_scope(root)))

    def scan_paths(
        self, paths: Iterable[str], known: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        """What is new or changed at and below the given absolute paths; `log.gone` takes the known ids that
        are no longer there.

        Ids elsewhere are left alone. Sets `log.rescan` where single paths cannot tell: an ignore file
        changed, the root itself is named, or links are followed (a file then has several ids).
        """
        root = self._real_root(known)
        if self.follow_symlinks:
            log.rescan = True
            return
        walk = _Walk(self, root, known, log, self.rule_files)
        scopes: dict[str, Scope | None] = {"": walk.ruled(root, "", self._top_scope(root), _OnDisk(root))}
        gone_below: set[str] = set()
        present: set[str] = set()
        for path in sorted(set(paths)):
            relative = self._relative(path, root)
            if relative is None:
                continue
            parts = relative.split("/")
            if not relative or parts[-1] in self.rule_files or parts[-1] in CACHE_MARKERS:
                log.rescan = True
                continue
            source_id = "/".join(map(encode_name, parts))
            gone_below.add(source_id)  # what is known at and below it goes unless it is seen again
            items = list(self._look(source_id, parts, scopes, walk, root))
            if not items and source_id not in log.unchanged:
                items = list(self._tracked(walk, root, relative))
            present.update(item.source_id for item in items)
            yield from items
        if gone_below:
            log.gone |= _known_below(known, gone_below) - present - log.unchanged
            withheld = tuple(log.withheld)
            log.gone -= {source_id for source_id in log.gone if source_id.startswith(withheld)}

    def _tracked(
        self, walk: "_Walk", root: str, below: str, done: Container[str] = frozenset()
    ) -> Iterator[SourceItem]:
        """The files at or below a path that git tracks although an ignore file matches them. Only ours, and
        the globs, leave them out.
        """
        paths = walk.tracked(below)
        if not paths:
            return
        own = _Walk(self, root, walk.known, walk.log, RULE_FILES[1:])
        top = Scope.top(self.include_globs, self.exclude_globs)
        scopes: dict[str, Scope | None] = {"": own.ruled(root, "", top, _OnDisk(root))}
        for path in paths:
            parts = path.split("/")
            source_id = "/".join(map(encode_name, parts))
            if (
                source_id not in done
                and source_id not in walk.log.unchanged
                and not os.path.isdir(f"{root}/{path}")
            ):
                yield from self._look(source_id, parts, scopes, own, root)

    def _look(
        self, source_id: str, parts: list[str], scopes: dict[str, Scope | None], walk: "_Walk", root: str
    ) -> Iterator[SourceItem]:
        """One path of `scan_paths`."""
        folder, name = "/".join([root, *parts[:-1]]), parts[-1]
        try:
            scope = self._scope_of(parts[:-1], scopes, walk, root)
            if scope is None:
                return
            now_ns = time.time_ns()
            st = os.lstat(f"{folder}/{name}")
        except OSError as error:
            if error.errno not in _GONE:
                walk.withhold(source_id, f"cannot be read: {error.strerror}")
            return
        if stat.S_ISDIR(st.st_mode):
            below = scope.enter(name, _OnDisk(folder))
            if below is not None:
                yield from walk.below(f"{folder}/{name}", f"{source_id}/", below)
        elif stat.S_ISREG(st.st_mode) and scope.takes(name):
            item = walk.compare(source_id, "/".join(parts), st, now_ns, scope.tag)
            if item is not None:
                yield item

    def _scope_of(
        self, folders: list[str], scopes: dict[str, Scope | None], walk: "_Walk", root: str
    ) -> Scope | None:
        """The scope of a folder below the root, by way of those above it, which `scopes` keeps; None where it
        is not entered.
        """
        folder, prefix = root, ""
        scope = scopes[""]
        for name in folders:
            beside = _OnDisk(folder)
            folder, prefix = f"{folder}/{name}", f"{prefix}{encode_name(name)}/"
            if prefix not in scopes:
                inner = scope.enter(name, beside) if scope else None
                if inner is not None and not stat.S_ISDIR(os.lstat(folder).st_mode):
                    inner = None
                scopes[prefix] = walk.ruled(folder, prefix, inner, _OnDisk(folder)) if inner else None
            scope = scopes[prefix]
        return scope

    def _real_root(self, known: Mapping[str, str]) -> str:
        """The root with its links resolved. Raises `SourceError` where it is missing, unreadable or
        suspiciously empty.
        """
        try:
            root = os.path.realpath(self.root, strict=True)
            with os.scandir(root) as entries:
                empty = next(entries, None) is None
        except OSError as error:
            raise SourceError(
                f"{self.name}: the root folder cannot be read ({error.strerror}); mount or restore it, or "
                f"mend `root` in {self._section}. {KEPT}"
            ) from error
        if self._stays is not None and not self._stays(root):
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
        """A path below the root, with `/`; "" for the root itself or a folder above it, None elsewhere."""
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
        """Git's rules from above the root, deepest first: those of the working tree that the root is a part
        of.

        None where they ignore the root itself: whoever names an ignored folder as a source means it.
        """
        folder = files.work_tree(root)
        if folder is None:
            return ()
        levels: list[Level] = []
        patterns = _repository_rules(folder)
        for name in os.path.relpath(root, folder).split("/") if folder != root else ():
            levels.insert(0, Rules([*patterns, *_rules_of(f"{folder}/.gitignore")]).top())
            patterns = []
            if _is_ignored(name, levels):
                return ()
            levels = [level.descend(name) for level in levels]
            folder = f"{folder}/{name}"
        levels.append(Rules(patterns).top())  # where the root is the top: its own files are read by the walk
        return tuple(level for level in levels if not level.empty)

    # -- reading ---------------------------------------------------------------------------------------------

    def item(
        self, source_id: str, root: str, relative: str, st: os.stat_result, now_ns: int, tag: str
    ) -> SourceItem:
        """The item of the file at `relative` below the resolved root; no component of that path is a link."""
        mark = fingerprint(st) + (RACY if may_still_change(st, now_ns) else "") + tag
        updated_ms = told_ms(st.st_mtime_ns // 1_000_000)
        return SourceItem(source_id, mark, updated_ms, partial(self._read, root, relative))

    def _read(self, root: str, relative: str) -> Content:
        try:
            data = read_below(root, relative, self.max_file_bytes)
        except OSError as error:
            if error.errno in _GONE:
                raise SourceError(
                    "went away or was replaced while it was being indexed; the next run sees what is "
                    "there then"
                ) from error
            raise SourceError(f"cannot be read: {error.strerror}") from error
        return Content(data, source_url=self._source_url(relative))

    def _source_url(self, relative: str) -> str | None:
        """Where a file can be opened. None unless somebody asked: an absolute path is nobody's business."""
        if self.link is None:
            return None
        if self.link == OWN_ADDRESS:
            return "file://" + _quoted(os.fsencode(f"{self.root.rstrip('/')}/{relative}"))
        return self.link.replace("{path}", _quoted(os.fsencode(relative)))


def _known_below(known: Iterable[str], tops: set[str]) -> set[str]:
    """The ids that are one of `tops` or below one. One look at each id and one at each folder, however many
    tops there are.
    """
    below: Callable[[Iterable[str]], set[str]] | None = getattr(known, "below", None)
    if below is not None and len(tops) <= _FEW_TOPS:  # they can tell without being read all
        return below(tops)
    inside: dict[str, bool] = {"": False}

    def within(folder: str) -> bool:
        verdict = inside.get(folder)
        if verdict is None:
            verdict = inside[folder] = folder in tops or within(folder.rpartition("/")[0])
        return verdict

    return {source_id for source_id in known if source_id in tops or within(source_id.rpartition("/")[0])}


def _is_ignored(folder: str, levels: Iterable[Level]) -> bool:
    """Whether the nearest level that says something of a folder ignores it."""
    verdicts = (level.decide(folder, folder=True) for level in levels)
    return next((verdict for verdict in verdicts if verdict is not None), False)


def _repository_rules(top: str) -> list[Pattern]:
    """What the user's own ignore file and the repository's `info/exclude` say of the work tree at `top`."""
    repository = git.repository(top)
    paths = (git.global_rules(top), repository and f"{repository}/info/exclude")
    return [pattern for path in paths if path for pattern in _rules_of(path)]


def _rules_of(path: str) -> list[Pattern]:
    """The patterns of an ignore file; none where it is missing. Raises `_Unreadable`, `TooManyPatterns`.

    A `.gitignore` that is a link, or no file, hides nothing from git either; one of ours says what is not to
    be published, and whoever made it a link meant that.
    """
    ours = path.endswith("/" + RULE_FILES[-1])
    try:
        fd = os.open(path, FILE)
    except OSError as error:
        if ours and error.errno == errno.ELOOP:
            raise _Unreadable(LINKED_RULES) from error
        if error.errno in _GONE:
            return []
        raise _Unreadable(f"{os.path.basename(path)} cannot be read: {error.strerror}") from error
    with open(fd, "rb", buffering=0) as file:
        is_file = stat.S_ISREG(os.fstat(fd).st_mode)
        if not is_file and ours:
            raise _Unreadable(f"{os.path.basename(path)} is no file")
        try:
            data = read_most(file.read, MAX_RULE_FILE_BYTES + 1) if is_file else b""
        except OSError as error:
            raise _Unreadable(f"{os.path.basename(path)} cannot be read: {error.strerror}") from error
    return read_ignore_file(data)


class _Walk:
    """One scan under way."""

    def __init__(
        self,
        connector: FilesystemConnector,
        root: str,
        known: Mapping[str, str],
        log: ScanLog,
        rule_files: Sequence[str],
    ) -> None:
        self._connector = connector
        self._root = root
        self._from_root = len(root.rstrip("/")) + 1
        self.known = known
        self.log = log
        self._rule_files = rule_files
        self._obeys_git = RULE_FILES[0] in rule_files
        self._work_trees = [root] if self._obeys_git and files.work_tree(root) else []
        self.unread: dict[str, int] = {}  # by suffix: files that one expects to find, and will not
        # Folders entered through a link: each once, so that loops end.
        self._linked: set[tuple[int, int]] = set()

    def withhold(self, prefix: str, message: str) -> None:
        """Keeps what is known below a prefix, since it could not be looked at."""
        self.log.withheld.append(prefix)
        self.log.problem(prefix.rstrip("/"), message)

    def ruled(self, folder: str, prefix: str, scope: Scope, names: Container[str]) -> Scope | None:
        """The scope of a folder with its own ignore files; None where it is not to be entered."""
        if prefix and any(marker in names for marker in CACHE_MARKERS):
            return None
        patterns: list[Pattern] = []
        try:
            if prefix and ".git" in names:
                if git.is_copy(folder, self._root):
                    self.log.left_out[WORKTREE] += 1
                    return None
                if self._obeys_git:
                    self._work_trees.append(folder)
                    patterns += _repository_rules(folder)
            for rule_file in self._rule_files:
                if rule_file in names:
                    patterns += _rules_of(f"{folder}/{rule_file}")
            return scope.with_rules(patterns)
        except SourceError as error:  # without its rules, what it hides would be published
            self.withhold(prefix, f"left out: {error.message}")
            return None

    def tracked(self, below: str) -> list[str]:
        """The paths at or below one that git tracks although an ignore file matches them."""
        paths: list[str] = []
        for folder in self._work_trees:
            inside = f"{folder}/"[self._from_root :]
            if not below or f"{below}/".startswith(inside) or inside.startswith(f"{below}/"):
                paths += (inside + path for path in git.tracked_though_ignored(folder))
        return sorted(path for path in paths if not below or f"{path}/".startswith(f"{below}/"))

    def compare(
        self, source_id: str, relative: str, st: os.stat_result, now_ns: int, tag: str
    ) -> SourceItem | None:
        """The item of one regular file, or None where it is unchanged or too large. No component of
        `relative` is a link.
        """
        if self.known.get(source_id) == fingerprint(st) + tag:
            self.log.unchanged.add(source_id)
            return None
        if st.st_size > self._connector.max_file_bytes:
            self.log.problem(source_id, too_large(st.st_size, self._connector.max_file_bytes))
            return None
        return self._connector.item(source_id, self._root, relative, st, now_ns, tag)

    def below(self, folder: str, prefix: str, scope: Scope) -> Iterator[SourceItem]:
        """Everything below a folder. `prefix` is the folder's id and a slash ("" at the root)."""
        stack = [(folder, prefix, scope)]
        while stack:
            folder, prefix, scope = stack.pop()
            folders: list[tuple[str, str, Scope]] = []
            items: list[SourceItem] = []
            try:
                fd = os.open(folder, FOLDER)
            except OSError as error:
                if error.errno not in _GONE or not prefix:
                    self.withhold(prefix, f"the folder cannot be listed: {error.strerror}")
                continue
            try:
                with os.scandir(fd) as entries:
                    by_name = {entry.name: entry for entry in entries}
                # Which of two links to one folder is entered must not depend on the disk.
                if self._connector.follow_symlinks:
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
        """Compares the files of one folder and lists its folders. This is where a scan spends its time.

        A folder whose files are all unchanged is seen as one comparison of two lists, made by loops of the
        interpreter's own. The tag in a fingerprint stands for the ignore rules under which the file was
        taken, so they are asked again only where they changed.
        """
        now_ns = time.time_ns()
        relative = f"{folder}/"[self._from_root :]
        names = "".join(by_name)
        verbatim = names.isascii() and "%" not in names
        if verbatim:
            ids = [prefix + name for name in by_name]
        else:
            ids = [prefix + encode_name(name) for name in by_name]
        for entry, source_id in self._changed(by_name.values(), ids, scope.tag):
            name = entry.name
            if scope.takes(name):
                st = self._stat(entry, source_id)
                if st is None:
                    continue
                if stat.S_ISREG(st.st_mode):
                    item = self.compare(source_id, relative + name, st, now_ns, scope.tag)
                    if item is not None:
                        items.append(item)
                    continue
            elif scope.wants(name) and (kind := scope.left_out(name)):
                self.log.left_out[kind] += entry.is_file(follow_symlinks=False)
            elif name[-5:].rpartition(".")[2].lower() in EXPECTED_KINDS:
                self._pass_over(entry, scope)
            if entry.is_symlink() and self._connector.follow_symlinks:
                self._link(folder, source_id, name, scope, now_ns, folders, items)
            elif entry.is_dir(follow_symlinks=False):
                self.log.left_out[VENDORED] += scope.vendored(name, by_name)
                below = scope.enter(name, by_name)
                if below is not None:
                    folders.append((f"{folder}/{name}", f"{source_id}/", below))

    def _pass_over(self, entry: "os.DirEntry[str]", scope: Scope) -> None:
        """Counts a document that the include globs leave out, unless somebody ruled it out."""
        name = entry.name
        ruled_out = scope.exclude.decide(name, folder=False) or scope.ignored(name, folder=False)
        if not ruled_out and entry.is_file(follow_symlinks=False):
            suffix = name.rpartition(".")[2].lower()
            self.unread[suffix] = self.unread.get(suffix, 0) + 1

    def _stat(self, entry: "os.DirEntry[str]", source_id: str) -> os.stat_result | None:
        """None where it has gone, or cannot be looked at: then what is known of it stays."""
        try:
            return entry.stat(follow_symlinks=False)
        except OSError as error:
            if error.errno not in _GONE:
                self.withhold(source_id, f"cannot be read: {error.strerror}")
            return None

    def _changed(
        self, entries: "Collection[os.DirEntry[str]]", ids: list[str], tag: str
    ) -> "Iterable[tuple[os.DirEntry[str], str]]":
        """The entries of one folder, with their ids, that a comparison of lists does not show to be
        unchanged.
        """
        marks = [self.known.get(source_id) for source_id in ids]
        if None not in marks and self._all_unchanged(entries, marks, tag):
            self.log.unchanged.update(ids)
            return ()
        rows = list(zip(entries, ids, marks, strict=True))
        indexed = [row for row in rows if row[2] is not None]
        if len(indexed) < len(rows) and self._all_unchanged(
            [row[0] for row in indexed], [row[2] for row in indexed], tag
        ):
            self.log.unchanged.update([row[1] for row in indexed])
            return [row[:2] for row in rows if row[2] is None]
        return [row[:2] for row in rows]

    def _all_unchanged(
        self, entries: "Iterable[os.DirEntry[str]]", marks: list[str | None], tag: str
    ) -> bool:
        try:
            # Each entry keeps its answer for a second question.
            stats = [entry.stat(follow_symlinks=False) for entry in entries]
        except OSError:
            return False
        # `fingerprint`, without a call of ours for each file.
        prints = list(map(hex, map(hash, map(STAMP, stats))))
        return (prints if not tag else [mark + tag for mark in prints]) == marks

    def _holds(self, target: str) -> bool:
        """Whether a file is below the root, and in no folder that is never read."""
        if not target.startswith(self._root.rstrip("/") + "/"):
            return False
        return SKIPPED_FOLDERS.isdisjoint(target[self._from_root :].split("/"))

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
        """Follows a link whose target stays within the root. A dangling link, and one that leaves, is passed
        over.
        """
        try:
            target = os.path.realpath(f"{folder}/{name}", strict=True)
            st = os.lstat(target)
        except OSError:
            return
        if not self._holds(target):
            return
        if stat.S_ISREG(st.st_mode) and scope.takes(name):
            item = self.compare(source_id, target[self._from_root :], st, now_ns, scope.tag)
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


def _quoted(path: bytes) -> str:
    """A path as an address has it."""
    return quote(path)
