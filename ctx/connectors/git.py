"""A git repository as a source. Files are read from git's objects, without a work tree.

A bare clone (see `copies`) fetches one branch. If the remote supports it, `shallow` fetches commits and
folders, and then only the latest version of the files that match the globs. (With a shallow clone, every file
would have the date of the last commit.) A file's fingerprint is the id of its blob, so after a new commit
only the files that it changed are read.
"""

import os
import posixpath
import re
import secrets
import selectors
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import NamedTuple

from ctx.clock import iso_utc, told_ms
from ctx.connectors.base import EVERY_TEXT, KEPT, ScanLog, encode_name, section_of, too_large
from ctx.connectors.copies import share
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.connectors.forges import Submodule, address_of, commit_url, file_url, listed_submodules, parse_remote
from ctx.connectors.gitcmd import CHUNK_BYTES, QUICK_TIMEOUT_S, Blobs, GitFailed
from ctx.connectors.patterns import LINKED_RULES, MAX_RULE_FILE_BYTES, OWN_RULES, read_ignore_file
from ctx.connectors.repository import (
    FETCH_TIMEOUT_S,
    Pointer,
    Repository,
    Tip,
    lfs_installed,
    pointer_of,
)
from ctx.connectors.scope import Scope, Scopes
from ctx.errors import ConfigError, SourceError
from ctx.models import COMMITS, Content, SourceItem, outline
from ctx.text.strings import first_few

MAX_SUBMODULES = 100
MAX_DEPTH = 5  # levels of submodules inside submodules
MAX_COMMITS = 20_000  # the newest commits to index; the report says if there are more
# Increased when a new version of ctx selects or reads files differently with the same configuration.
SCAN_FORMAT = 3

_FIELDS = 4  # fields that `git log` prints for each commit
_FILE_MODES = (b"100644", b"100755", b"100664")  # git's modes of regular files; a link has 120000
_SUBMODULE_MODE = b"160000"
_BRANCH_REFUSED = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|^[-/.]|/\.|[/.]$|^@$")


class _Entry(NamedTuple):
    path: bytes  # below the connector's root
    oid: str
    source_id: str
    fingerprint: str


class Change(NamedTuple):
    """The last commit that changed a file."""

    commit: str
    at_ms: int
    author: str


@dataclass(eq=False, repr=False)
class GitConnector:
    """The files below `root` that match the globs, at one branch, tag or full commit id.

    `url` is anything git can clone. `branch` None is the remote's default. Ids are paths below `root`.
    `cache_dir` is where the clone is kept, None for the user's cache. Raises `ConfigError` for an address or
    a branch that git must not use.

    `submodules` includes their files. `lfs` includes files in Git LFS, if `git lfs` is installed. For a
    submodule, `within` is the scope in the outer repository, used instead of the globs, and `depth` its
    nesting level.
    """

    name: str
    url: str
    _: KW_ONLY
    cache_dir: str | None = None
    branch: str | None = None
    root: str = "."
    include_globs: Sequence[str] | None = None
    exclude_globs: Sequence[str] = ()
    shallow: bool = True
    timeout_s: float = FETCH_TIMEOUT_S
    max_file_bytes: int = MAX_FILE_BYTES
    commits: bool = False
    since_ms: int | None = None
    submodules: bool = False
    lfs: bool = False
    within: Scope | None = None
    depth: int = 0

    def __post_init__(self) -> None:
        section = section_of(self.name)
        try:
            self.remote = parse_remote(self.url)
        except ValueError as error:
            raise ConfigError(f"{section} {error}") from error
        if self.branch is not None and (not self.branch or _BRANCH_REFUSED.search(self.branch)):
            raise ConfigError(f"{section} branch: {self.branch!r} is not a valid branch name")
        folder = posixpath.normpath(self.root.replace(os.sep, "/") or ".").strip("/")
        if folder == ".." or folder.startswith("../") or "\0" in folder:
            raise ConfigError(f"{section} root: {self.root!r} is not a folder of the repository")
        self.root = "" if folder == "." else folder
        self._prefix = f"{self.root}/" if self.root else ""  # root as a prefix of the repository's paths
        self._submodules: list[tuple[Submodule, Scope]] = []  # of the running scan
        self._repository = Repository(
            self.name,
            self.remote,
            cache_dir=self.cache_dir,
            branch=self.branch,
            partial="blob:none" if self.shallow else None,
            timeout_s=self.timeout_s,
        )
        self.copy = self._repository.copy

    @property
    def signature(self) -> str:
        # The clone's name is a hash of the remote's address.
        origin = (SCAN_FORMAT, self.copy.name, self.branch, self.root)
        globs = (self.include_globs, self.exclude_globs, self.max_file_bytes, self.commits, self.since_ms)
        further = (self.submodules, self.lfs and lfs_installed())
        identity = (origin, globs, further) if any(further) else (origin, globs)
        return (EVERY_TEXT if self.include_globs is None else "") + outline(identity)

    # -- scanning ----------------------------------------------------------------------------------

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yield new and changed files, in order of their paths.

        Raises `SourceError` if the remote cannot be reached, the branch or the root does not exist, or the
        repository has lost all commits; nothing is deleted then.
        """
        self._repository.git.check_version()
        with self.copy.locked(self.timeout_s) as lock:
            tip = self._repository.updated(lock, log)
            if tip is None:
                if known:
                    raise SourceError(
                        f"{self.name}: the repository has no commits any more. Its {len(known)} indexed "
                        "documents are kept"
                    )
                return
            log.revision = tip.oid
            share(lock)
            changed = self._changed(tip, known, log, lock)
            if changed:
                self._repository.prefetch([entry.oid for entry in changed], lock, log.progress)
                yield from self._files(tip, self._sized(changed, log), log)
            if self.commits:
                yield from self._commits(tip.oid, known, log)
        for submodule, scope in self._submodules:  # not under the lock: a submodule may have the same remote
            yield from self._below(submodule, scope, known, log)

    def _below(
        self, submodule: Submodule, scope: Scope, known: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        """Yield the new and changed files of a submodule. If the submodule cannot be read, the failure is
        reported and its known files stay.
        """
        prefix = encode_name(submodule.path.removeprefix(self._prefix)) + "/"
        inner_log = ScanLog(log.progress)
        try:
            if self.depth >= MAX_DEPTH:
                raise SourceError(f"submodules are nested more than {MAX_DEPTH} deep")
            inner = replace(
                self,
                url=address_of(submodule, self.remote),
                branch=submodule.oid,
                root=".",
                include_globs=None,
                exclude_globs=(),
                commits=False,
                within=scope,
                depth=self.depth + 1,
            )
            known = {
                source_id.removeprefix(prefix): fingerprint
                for source_id, fingerprint in known.items()
                if source_id.startswith(prefix)
            }
            for item in inner.scan(known, inner_log):
                yield item._replace(source_id=prefix + item.source_id)
        except (SourceError, ConfigError, ValueError) as error:
            reason = error.args[0] if isinstance(error, ValueError) else error.message
            log.problem(prefix, f"the submodule is not read: {reason}")
            log.withheld.append(prefix)
        log.unchanged |= {prefix + source_id for source_id in inner_log.unchanged}
        for problem in inner_log.problems:
            log.problem(prefix + problem.source_id, problem.message)
        for note in inner_log.notes:
            log.note(prefix + note.source_id, note.message)
        log.left_out += inner_log.left_out
        log.withheld += [prefix + withheld for withheld in inner_log.withheld]

    def _files(self, tip: Tip, entries: Sequence[_Entry], log: ScanLog) -> Iterator[SourceItem]:
        log.expected = partial(len, entries)
        changes = self._history(tip, entries, log)
        with closing(Blobs(self._repository.git, self.name)) as blobs:
            for entry in entries:
                change = changes[entry.path]
                read = partial(self._read, blobs, entry, tip, change, log)
                yield SourceItem(entry.source_id, entry.fingerprint, change.at_ms, read)

    # -- listing files -----------------------------------------------------------------------------

    def _changed(self, tip: Tip, known: Mapping[str, str], log: ScanLog, lock: int) -> list[_Entry]:
        """The new and changed files that match the globs. Also fills `log.unchanged`."""
        try:
            listing = self._repository.git.run(
                ["ls-tree", "-r", "-z", "--full-tree", f"{tip.oid}:{self.root}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: `root` is not a folder of {tip.branch or 'the repository'}: {self.root!r} "
                f"({error.words}). {KEPT}"
            ) from error
        files, rules, links = _files(listing)
        names = [path.decode("utf-8", "surrogateescape") for path, _ in files]
        self._repository.prefetch(list(filter(None, rules.values())), lock, None)
        mark = f"@{tip.branch or ''}"
        changed = []
        with closing(Blobs(self._repository.git, self.name)) as blobs:
            top = self.within or Scope.top(self.include_globs, self.exclude_globs)
            scopes = Scopes(top, log.left_out, partial(_ruled, blobs, rules, log), {".git", *names})
            self._submodules = self._linked(tip, links, scopes, lock, log)
            for (path, oid), name in zip(files, names, strict=True):
                if not scopes.takes(name):
                    continue
                source_id = encode_name(name)
                if known.get(source_id) == oid + mark:
                    log.unchanged.add(source_id)
                else:
                    changed.append(_Entry(path, oid, source_id, oid + mark))
        return changed

    def _linked(
        self, tip: Tip, links: Mapping[str, str], scopes: Scopes, lock: int, log: ScanLog
    ) -> list[tuple[Submodule, Scope]]:
        """(submodule, scope) for each submodule whose path matches the globs; empty unless `submodules` is
        set.
        """
        if not links:
            return []
        if not self.submodules:
            names = first_few(list(map(encode_name, links)))
            log.note(
                "",
                f"submodules are not read ({names}). Set `submodules = true` to read those on the same host",
            )
            return []
        if len(links) > MAX_SUBMODULES:
            log.note("", f"only the first {MAX_SUBMODULES} of {len(links)} submodules are read")
        whole = {self._prefix + path: oid for path, oid in list(links.items())[:MAX_SUBMODULES]}
        rows = [
            (submodule, scopes.of(submodule.path.removeprefix(self._prefix)))
            for submodule in listed_submodules(self._submodule_settings(tip, lock), whole)
        ]
        return [(submodule, scope) for submodule, scope in rows if scope is not None]

    def _submodule_settings(self, tip: Tip, lock: int) -> bytes:
        """The settings in `.gitmodules`, as git lists them; empty if there is no such file."""
        row = self._repository.quick(["ls-tree", "-z", tip.oid, "--", ".gitmodules"])
        mode, _, kind_and_name = row.partition(b" ")
        if mode not in _FILE_MODES:
            return b""
        oid = kind_and_name.split()[1].decode()
        self._repository.prefetch([oid], lock, None)
        listing = ["config", "-z", "--no-includes", "--blob", oid, "--list"]
        try:
            return self._repository.git.run(listing, timeout_s=QUICK_TIMEOUT_S)
        except GitFailed:
            return b""  # an invalid file: the report says that the submodules have no address

    def _sized(self, entries: Sequence[_Entry], log: ScanLog) -> list[_Entry]:
        """The files that are not too large. The others are reported."""
        names = "".join(f"{entry.oid}\n" for entry in entries).encode()
        sizes = self._repository.quick(["cat-file", "--batch-check=%(objectsize)"], stdin=names).split(b"\n")
        readable = []
        for entry, size in zip(entries, sizes, strict=False):
            if size.isdigit() and int(size) > self.max_file_bytes:
                log.problem(entry.source_id, too_large(int(size), self.max_file_bytes))
            else:
                readable.append(entry)
        return readable

    def _history(self, tip: Tip, entries: Sequence[_Entry], log: ScanLog) -> dict[bytes, Change]:
        """The last commit that changed each file: path -> commit. Reads the log once, from the newest
        commit.
        """
        prefix = os.fsencode(self._prefix)
        paths = {entry.path for entry in entries}
        changes: dict[bytes, Change] = {}
        bound = secrets.token_hex(12).encode()  # random, so that no path begins with it
        form = f"--format=format:{bound.decode()}%H %ct %an"
        arguments = ["log", "-z", "--no-renames", "-c", "--name-only", form, tip.oid, *self._below_root()]
        deadline_s = time.monotonic() + self.timeout_s
        change = Change(tip.oid, 0, "")
        with self._repository.git.started(arguments) as process:
            assert process.stdout is not None
            for change, path in _log_rows(process.stdout.fileno(), bound, deadline_s):
                inner = path.removeprefix(prefix)
                if path.startswith(prefix) and inner in paths:
                    changes.setdefault(inner, change)
                    if len(changes) == len(paths):
                        break
        undated = paths - changes.keys()
        if undated:  # the deadline ended the log: these files are as old as its last commit, or older
            changes |= dict.fromkeys(undated, change)
            log.note(
                "", f"reading the history took too long, so {len(undated)} files have a date that is too late"
            )
        return changes

    def _commits(self, tip: str, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yield a document for each commit in the history of `tip` that changed the root, newest first.

        Its id is `@commits/` and the commit's id. Raises `SourceError`.
        """
        arguments = ["log", "-z", "--format=format:%H%x00%ct%x00%an%x00%B", f"--max-count={MAX_COMMITS + 1}"]
        arguments += [f"--since={iso_utc(self.since_ms)}"] if self.since_ms is not None else []
        arguments += [tip, *self._below_root()]
        try:
            listing = self._repository.git.run(arguments, timeout_s=self.timeout_s)
        except GitFailed as error:
            raise SourceError(f"the history cannot be read: {error.words}") from error
        fields = [field.decode("utf-8", "replace") for field in listing.split(b"\0")]
        commits = list(zip(*[iter(fields)] * _FIELDS, strict=False))
        if len(commits) > MAX_COMMITS:
            log.note("", f"only the newest {MAX_COMMITS:,} commits are read. Set `since` to read fewer")
        for oid, seconds, author, text in commits[:MAX_COMMITS]:
            source_id, message = COMMITS + oid, text.strip()
            if known.get(source_id) == oid:
                log.unchanged.add(source_id)
            elif message:
                read = partial(
                    Content,
                    message,
                    media_type="text/plain",
                    title=message.partition("\n")[0][:200],
                    author=author or None,
                    source_url=commit_url(self.remote, oid),
                    metadata={"commit": oid},
                )
                yield SourceItem(source_id, oid, _moment_ms(seconds), read)

    def _below_root(self) -> list[str]:
        """The arguments that limit `git log` to the root."""
        return ["--", f":(top,literal){self.root}"] if self.root else []

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, blobs: Blobs, entry: _Entry, tip: Tip, change: Change, log: ScanLog) -> Content:
        data = blobs.read(entry.oid, self.timeout_s)
        pointer = pointer_of(data)
        if pointer is not None:
            data = self._pointed(entry, pointer, data, log)
        full = os.fsencode(self._prefix) + entry.path
        return Content(
            data,
            author=change.author or None,
            source_url=file_url(self.remote, tip.branch, tip.oid, full),
            metadata={"commit": change.commit},
        )

    def _pointed(self, entry: _Entry, pointer: Pointer, data: bytes, log: ScanLog) -> bytes:
        """The content of a Git LFS file; empty, with a note, if `lfs` is off. Raises `SourceError`."""
        if self.lfs and pointer.digest and lfs_installed():
            return self._repository.lfs_content(pointer, data, self.max_file_bytes)
        advice = "Install `git lfs`" if self.lfs else "Install `git lfs` and set `lfs = true` to fetch it"
        log.note(entry.source_id, f"not indexed: its content is in Git LFS. {advice}")
        return b""


def _files(listing: bytes) -> tuple[list[tuple[bytes, str]], dict[str, str], dict[str, str]]:
    """Parse the output of `ls-tree -r -z` into files (path, blob), rule files (folder -> blob, "" for a link)
    and submodules (path -> commit).
    """
    files: list[tuple[bytes, str]] = []
    rules: dict[str, str] = {}
    links: dict[str, str] = {}
    for row in listing.split(b"\0"):
        head, _, path = row.partition(b"\t")
        mode, _, kind_and_oid = head.partition(b" ")
        oid = kind_and_oid.partition(b" ")[2].decode()
        if mode == _SUBMODULE_MODE:
            links[path.decode("utf-8", "surrogateescape")] = oid
        folder, _, base = path.rpartition(b"/")
        if base == OWN_RULES.encode():
            rules[folder.decode("utf-8", "surrogateescape")] = oid if mode in _FILE_MODES else ""
        if mode in _FILE_MODES:
            files.append((path, oid))
    return files, rules, links


def _ruled(blobs: Blobs, rules: Mapping[str, str], log: ScanLog, folder: str, scope: Scope) -> Scope | None:
    """The scope of a folder with its `.ctxignore`. If that has too many patterns or cannot be read, the
    folder is left out and reported.
    """
    oid = rules.get(folder)
    if oid is None:
        return scope
    try:
        if not oid:
            raise SourceError(LINKED_RULES)
        data = blobs.read(oid, QUICK_TIMEOUT_S, MAX_RULE_FILE_BYTES)
        return scope.with_rules(read_ignore_file(data))
    except SourceError as error:
        source_id = encode_name(folder)
        log.withheld.append(f"{source_id}/" if source_id else "")
        log.problem(source_id, f"left out: {OWN_RULES}: {error.message}")
        return None


def _log_rows(fd: int, bound: bytes, deadline_s: float) -> Iterator[tuple[Change, bytes]]:
    """Yield (last change, path) from the output of `git log -z --name-only` at `fd`, newest first, until the
    deadline (monotonic clock). `bound` begins the line with a commit's id, time and author.

    After this line git writes a newline before the first path, or a NUL for a merge.
    """
    change = Change("", 0, "")
    for token in _tokens(fd, deadline_s):
        path = token
        if token.startswith(bound):
            line, _, path = token.removeprefix(bound).partition(b"\n")
            commit, seconds, author = line.split(b" ", 2)
            change = Change(commit.decode(), _moment_ms(seconds), author.decode("utf-8", "replace"))
        if path:
            yield change, path


def _moment_ms(seconds: bytes | str) -> int:
    """The date of a commit in milliseconds. Git prints nothing for an invalid date, which counts as 0, the
    oldest.
    """
    return told_ms(int(seconds) * 1000) if seconds.isdigit() else 0


def _tokens(fd: int, deadline_s: float) -> Iterator[bytes]:
    tail = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline_s - time.monotonic())):
            data = os.read(fd, CHUNK_BYTES)
            if not data:
                yield tail
                return
            *whole, tail = (tail + data).split(b"\0")
            yield from whole
