"""A git repository as a source, read from its objects; there is no work tree.

A bare copy (see `copies`) fetches one branch. Where the remote can, it fetches commits and folders only, and
then just the files that the globs take, in their latest version: that is what `shallow` means here, because
with a cut history every file would bear the date of the last commit. A file's fingerprint is the name of its
blob, so a new commit costs what it changed.
"""

import hashlib
import logging
import os
import posixpath
import re
import secrets
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from ctx.connectors.base import Progress, ScanLog
from ctx.connectors.commits import Change, commit_items, log_rows
from ctx.connectors.copies import REMOTE, Copy, holds_partial_packs, share, user_folder
from ctx.connectors.defaults import DEFAULT_INCLUDE_GLOBS
from ctx.connectors.forges import file_url, parse_remote
from ctx.connectors.gitcmd import QUICK_TIMEOUT_S, Blobs, Git, GitFailed
from ctx.connectors.names import encode_name
from ctx.connectors.opening import too_large
from ctx.connectors.patterns import TooManyPatterns, read_ignore_file
from ctx.connectors.scope import Scope
from ctx.errors import ConfigError, SourceError
from ctx.types import Content, SourceItem

logger = logging.getLogger(__name__)

MAX_FILE_BYTES = 10_000_000
FETCH_TIMEOUT_S = 1800.0  # of one fetch: a first copy of a large repository over a slow line
SCAN_FORMAT = 1  # raised when a new version would take or read other files under the same configuration
RULE_FILE = ".ctxignore"  # git's own ignore files say nothing about files that are committed
PREFETCH = 20_000  # objects asked for at once
PACKS = 40  # a fetch leaves one; more than these are put together
LFS_POINTER = b"version https://git-lfs.github.com/spec/"
LFS_POINTER_BYTES = 1024

_FILE_MODES = (b"100644", b"100755", b"100664")  # not links (120000)
_SUBMODULE_MODE = b"160000"
_BRANCH_REFUSED = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|^[-/.]|/\.|[/.]$|^@$")


_FILTERS = re.compile(rb"packet: .*< (fetch=[^\n]*\bfilter\b|[0-9a-f]{40,64} [^\n]*\\0[^\n]*\bfilter\b)")
_DENIED = re.compile(
    r"could not read (Username|Password)|Authentication failed|Permission denied|terminal prompts|40[13]"
)
_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_NOT_SERVED = re.compile(r"not our ref|unadvertised object|couldn't find remote ref [0-9a-f]{40}")


class _Tip(NamedTuple):
    """What is read of the remote. `ref`: what it calls that (a branch, a tag, its HEAD), or a commit's own
    id."""

    branch: str | None  # None: of a tag, a commit, or a HEAD that is on no branch
    oid: str
    filters: bool  # the remote serves parts of a repository
    ref: str

    @property
    def copied(self) -> str:
        """The name under which our copy keeps it."""
        for kind in ("heads", "tags"):
            if self.ref.startswith(f"refs/{kind}/"):
                return "refs/ctx/" + self.ref.removeprefix("refs/")
        return "refs/ctx/detached" if self.ref == "HEAD" else f"refs/ctx/commits/{self.ref}"


class _Entry(NamedTuple):
    path: bytes  # below the connector's root
    oid: str
    source_id: str


class GitConnector:
    """The files of one branch, tag or commit (its whole id) below `root` that the globs take.

    `url` is whatever git can clone: https, ssh, git@host:path, git://, file://, a path. `branch` None is the
    remote's default. Ids are paths below `root`; web addresses are of the whole path. `cache_dir` is where
    the copy is kept; None is the user's own cache. Raises `ConfigError` for an address or a branch that git
    must not be given.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        cache_dir: str | None = None,
        branch: str | None = None,
        root: str = ".",
        include_globs: Iterable[str] = DEFAULT_INCLUDE_GLOBS,
        exclude_globs: Iterable[str] = (),
        shallow: bool = True,
        timeout_s: float = FETCH_TIMEOUT_S,
        max_file_bytes: int = MAX_FILE_BYTES,
        commits: bool = False,
        since_ms: int | None = None,
    ) -> None:
        self.name = name
        section = "[connectors." + name.replace(":", ".", 1) + "]"
        try:
            self.remote = parse_remote(url)
        except ValueError as error:
            raise ConfigError(f"{section} {error}") from error
        if branch is not None and (not branch or _BRANCH_REFUSED.search(branch)):
            raise ConfigError(f"{section} branch: {branch!r} cannot be the name of a branch")
        self.branch = branch
        self.root = _inside(root, section)
        self.include_globs = tuple(include_globs)
        self.exclude_globs = tuple(exclude_globs)
        self.shallow = shallow
        self.timeout_s = timeout_s
        self.max_file_bytes = max_file_bytes
        self.commits = commits
        self.since_ms = since_ms
        # Without the credentials: a new token is no reason to copy everything again.
        address = self.remote.display if self.remote.host else self.remote.url
        key = f"{address}\0{'partial' if shallow else 'whole'}"
        self.copy = Copy(key, own=user_folder(os.environ), folder=cache_dir, source=name)
        self._git = Git(self.copy.path, self.remote, name)

    @property
    def signature(self) -> str:
        origin = (
            SCAN_FORMAT,
            self.copy.name,
            self.branch,
            self.root,
        )  # the copy's name stands for the address
        globs = (self.include_globs, self.exclude_globs, self.max_file_bytes, self.commits, self.since_ms)
        return hashlib.sha256(repr((origin, globs)).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    # -- scanning ----------------------------------------------------------------------------------

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """The files whose blobs are new or changed, in order of their paths.

        Raises `SourceError` where the remote cannot be asked, the branch or the root is not there, or the
        repository lost all its commits; nothing is deleted then.
        """
        self._git.check_version()
        with self.copy.locked(self.timeout_s) as lock:
            tip = self._updated(lock, known, log)
            if tip is None:
                return
            log.revision = tip.oid
            share(lock)
            changed = self._changed(tip, known, log, lock)
            if changed:
                self._prefetch([entry.oid for entry in changed], lock, log.progress)
                yield from self._files(tip, self._sized(changed, log), log)
            if self.commits:
                yield from commit_items(
                    self._git,
                    self.remote,
                    tip.oid,
                    root=self.root,
                    since_ms=self.since_ms,
                    known=known,
                    log=log,
                    timeout_s=self.timeout_s,
                )

    def _files(self, tip: _Tip, entries: Sequence[_Entry], log: ScanLog) -> Iterator[SourceItem]:
        log.expected = partial(len, entries)
        changes = self._history(tip, entries, log)
        blobs = Blobs(self._git, self.name)
        try:
            for entry in entries:
                change = changes[entry.path]
                read = partial(self._read, blobs, entry, tip, change, log)
                yield SourceItem(entry.source_id, f"{entry.oid}@{tip.branch or ''}", change.at_ms, read)
        finally:
            blobs.close()

    def _updated(self, lock: int, known: Mapping[str, str], log: ScanLog) -> _Tip | None:
        """The branch's newest commit, fetched; None where there are none (and nothing is known of any)."""
        self.copy.prepare()
        tip = self._ask()
        if tip is None:
            if known:
                raise SourceError(
                    f"{self.name}: the repository has no commits any more; the {len(known)} documents "
                    "indexed from it are kept"
                )
            return None
        if self._have(tip) != tip.oid:
            self._fetch(tip, lock, log.progress)
            oid = self._have(tip)
            if oid is None:
                raise SourceError(f"{self.name}: the branch could not be fetched; try again")
            tip = tip._replace(oid=oid)  # it may have moved on since we asked
        if os.path.exists(os.path.join(self._git.repository, "shallow")):
            log.note(
                "",
                "the remote serves no partial copies, so its history was cut: a file that has not changed "
                "since the first index run bears the date of the commit that was newest then; "
                "`shallow = false` fetches everything",
            )
        return tip

    def _ask(self) -> _Tip | None:
        """What the remote has now. Raises `SourceError` where it does not answer or lacks the branch."""
        refs = ["HEAD"]
        if self.branch:
            refs = [f"refs/heads/{self.branch}", f"refs/tags/{self.branch}^{{}}", f"refs/tags/{self.branch}"]
        reply = self._remote_refs(["--symref", REMOTE, *refs], trace=True)
        filters = _FILTERS.search(reply) is not None
        for ref in refs:
            oid, default = _advertised(reply, ref)
            if oid is not None:
                named = self.branch if ref.startswith("refs/heads/") else default
                full = f"refs/heads/{default}" if default and not self.branch else ref.removesuffix("^{}")
                return _Tip(named, oid, filters, full)
        if self.branch and _COMMIT.fullmatch(self.branch):
            return _Tip(None, self.branch.lower(), filters, self.branch.lower())
        heads = self._heads()
        if not heads:
            return None
        if self.branch is None and len(heads) == 1:  # its HEAD names a branch that was never born
            name, oid = next(iter(heads.items()))
            return _Tip(name, oid, filters, f"refs/heads/{name}")
        names = ", ".join(sorted(heads)[:10]) + (", ..." if len(heads) > 10 else "")
        lack = (
            f"has no branch or tag {self.branch!r}{_hint(self.branch)}"
            if self.branch
            else "has no default branch; name one in `branch`"
        )
        raise SourceError(
            f"{self.name}: the repository {lack} (it has: {names}). What is indexed from it is kept"
        )

    def _remote_refs(self, arguments: Sequence[str], *, trace: bool = False) -> bytes:
        try:
            return self._git.run(
                ["ls-remote", *arguments], timeout_s=min(self.timeout_s, QUICK_TIMEOUT_S), trace=trace
            )
        except GitFailed as error:
            raise self._unreachable(error) from error

    def _heads(self) -> dict[str, str]:
        rows = (line.partition(b"\t") for line in self._remote_refs(["--heads", REMOTE]).splitlines())
        return {os.fsdecode(ref.removeprefix(b"refs/heads/")): oid.decode() for oid, _, ref in rows}

    def _unreachable(self, error: GitFailed) -> SourceError:
        words = error.words
        if _DENIED.search(words):
            words += (
                "; give git a credential helper, an SSH key in the agent, or a token in the url"
                " (by ${VARIABLE})"
            )
        logger.warning(
            "git remote failed source=%s remote=%s reason=%s", self.name, self.remote.display, error.words
        )
        if self.remote.transport in ("local", "file"):
            words = "its path holds no repository that git can read"
        return SourceError(
            f"{self.name}: {self.remote.display} cannot be fetched: {words}. What is indexed from it is kept"
        )

    def _have(self, tip: _Tip) -> str | None:
        try:
            oid = self._git.run(
                ["rev-parse", "--verify", "--quiet", tip.copied + "^{commit}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed:
            return None
        return oid.decode().strip()

    def _fetch(self, tip: _Tip, lock: int, progress: Progress | None) -> None:
        """Brings the branch over; its commits and folders come whole where the remote allows it."""
        refspec = f"+{tip.ref}:{tip.copied}"
        depth: list[str] = []
        if self.shallow and tip.filters:
            depth = ["--filter=blob:none"]
        elif self.shallow and self.remote.transport not in ("local", "file") and self._have(tip) is None:
            depth = ["--depth=1"]
        self._tidy(lock)
        self._drop_refs_in_the_way(tip)
        try:
            self._run_fetch(["--force", *depth, REMOTE, refspec], lock, progress)
        except GitFailed as error:
            if _NOT_SERVED.search(error.words):
                raise SourceError(
                    f"{self.name}: the repository has no commit {tip.oid}, or gives out no single "
                    "commits; name a branch or a tag. What is indexed from it is kept"
                ) from error
            if depth != ["--depth=1"] or "shallow" not in error.words:
                raise self._unreachable(error) from error
            # A plain file server cannot cut the history.
            self._run_fetch(["--force", REMOTE, refspec], lock, progress)

    def _run_fetch(
        self,
        arguments: Sequence[str],
        lock: int,
        progress: Progress | None,
        *,
        settings: Sequence[str] = (),
        stdin: bytes | None = None,
    ) -> None:
        """Raises `GitFailed`."""
        options = [
            "--progress",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-gc",
        ]
        self._git.run(
            [*settings, "fetch", *options, *arguments],
            timeout_s=self.timeout_s,
            stdin=stdin,
            keep_fds=[lock],
            progress=progress,
        )

    def _drop_refs_in_the_way(self, tip: _Tip) -> None:
        """A branch `a` that became `a/b`, or the other way round, cannot be stored beside the old one."""
        target = tip.copied
        for line in self._quick(["for-each-ref", "--format=%(refname)", "refs/ctx/"]).splitlines():
            ref = os.fsdecode(line)
            if ref.startswith(target + "/") or target.startswith(ref + "/"):
                self._quick(["update-ref", "-d", ref])

    def _tidy(self, lock: int) -> None:
        """Puts many packs together, now and then, while nobody reads them: we hold the lock alone."""
        packs = os.path.join(self._git.repository, "objects", "pack")
        try:
            crowded = sum(name.endswith(".pack") for name in os.listdir(packs)) > PACKS
        except FileNotFoundError:
            return
        if crowded:
            try:
                self._git.run(["gc", "--quiet"], timeout_s=self.timeout_s, keep_fds=[lock])
            except GitFailed as error:
                logger.warning("git gc failed source=%s reason=%s", self.name, error.words)

    # -- what is there -----------------------------------------------------------------------------

    def _changed(self, tip: _Tip, known: Mapping[str, str], log: ScanLog, lock: int) -> list[_Entry]:
        """The files that the globs take and that are not known as they are. Fills `log.unchanged`."""
        try:
            listing = self._git.run(
                ["ls-tree", "-r", "-z", "--full-tree", f"{tip.oid}:{self.root}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: `root` names no folder of {tip.branch or 'the repository'}: {self.root!r} "
                f"({error.words}). What is indexed from it is kept"
            ) from error
        files, rules, modules = _files(listing)
        if modules:
            names = ", ".join(modules[:3]) + (", ..." if len(modules) > 3 else "")
            log.note("", f"submodules are not read ({names}); a source of its own reads one")
        scopes = _Scopes(
            Scope.top(self.include_globs, self.exclude_globs), self._rule_files(rules, lock), log
        )
        mark = f"@{tip.branch or ''}"
        changed = []
        for path, oid in files:
            folder, _, base = path.rpartition(b"/")
            scope = scopes.of(folder)
            if scope is None or not scope.takes(os.fsdecode(base)):
                continue
            source_id = encode_name(path.decode("utf-8", "surrogateescape"))
            if known.get(source_id) == oid + mark:
                log.unchanged.add(source_id)
            else:
                changed.append(_Entry(path, oid, source_id))
        return changed

    def _rule_files(self, oids: Mapping[bytes, str], lock: int) -> dict[bytes, bytes]:
        """The `.ctxignore` files, by folder."""
        if not oids:
            return {}
        self._prefetch(list(oids.values()), lock, None)
        blobs = Blobs(self._git, self.name)
        try:
            return {folder: blobs.read(oid, QUICK_TIMEOUT_S) for folder, oid in oids.items()}
        finally:
            blobs.close()

    def _prefetch(self, oids: Sequence[str], lock: int, progress: Progress | None) -> None:
        """Fetches what a partial copy lacks, all at once: left to itself, git would ask file by file."""
        if not holds_partial_packs(self.copy.path):
            return
        heads = self._quick(["for-each-ref", "--format=%(objectname)", "refs/ctx/"]).decode().split()
        objects = self._quick(
            ["rev-list", "--objects", "--no-walk", "--missing=print", "--no-object-names", *heads]
        ).split()
        promised = {line[1:].decode() for line in objects if line.startswith(b"?")}
        absent = [oid for oid in dict.fromkeys(oids) if oid in promised]
        for start in range(0, len(absent), PREFETCH):
            try:
                self._run_fetch(
                    ["--filter=blob:none", "--stdin", REMOTE],
                    lock,
                    progress,
                    settings=["-c", "fetch.negotiationAlgorithm=noop"],
                    stdin="".join(f"{oid}\n" for oid in absent[start : start + PREFETCH]).encode(),
                )
            except GitFailed as error:
                raise self._unreachable(error) from error

    def _sized(self, entries: Sequence[_Entry], log: ScanLog) -> list[_Entry]:
        """Without the files that are too large, each a line of the report."""
        names = "".join(f"{entry.oid}\n" for entry in entries).encode()
        sizes = self._quick(["cat-file", "--batch-check=%(objectsize)"], stdin=names).split(b"\n")
        readable = []
        for entry, size in zip(entries, sizes, strict=False):
            if size.isdigit() and int(size) > self.max_file_bytes:
                log.problem(entry.source_id, too_large(int(size), self.max_file_bytes))
            else:
                readable.append(entry)
        return readable

    def _history(self, tip: _Tip, entries: Sequence[_Entry], log: ScanLog) -> dict[bytes, Change]:
        """The last commit of each file, by one walk from the newest down that ends when all are found."""
        prefix = os.fsencode(self.root) + b"/" if self.root else b""
        paths = {entry.path for entry in entries}
        changes: dict[bytes, Change] = {}
        bound = secrets.token_hex(12).encode()  # no path can look like it
        arguments = [
            "log",
            "-z",
            "--no-renames",
            "-c",
            "--name-only",
            f"--format=format:{bound.decode()}%x00%H%x00%ct%x00%an%x00",
            tip.oid,
        ]
        if self.root:
            arguments += ["--", f":(top,literal){self.root}"]
        deadline_s = time.monotonic() + self.timeout_s
        change = Change(tip.oid, 0, "")
        with self._git.started(arguments, quiet=True) as process:
            assert process.stdout is not None
            for change, path in log_rows(process.stdout.fileno(), bound, deadline_s):
                if path.startswith(prefix):
                    inner = path[len(prefix) :]
                    if inner in paths and inner not in changes:
                        changes[inner] = change
                        if len(changes) == len(paths):
                            break
        undated = paths - changes.keys()
        if undated:  # the walk was cut by its deadline: they are at least as old as where it ended
            changes |= dict.fromkeys(undated, change)
            log.note(
                "", f"the dates of {len(undated)} files could not be told; they are older than they seem"
            )
        return changes

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, blobs: Blobs, entry: _Entry, tip: _Tip, change: Change, log: ScanLog) -> Content:
        data = blobs.read(entry.oid, self.timeout_s)
        if len(data) <= LFS_POINTER_BYTES and data.startswith(LFS_POINTER):
            data = b""  # it says nothing itself
            log.note(entry.source_id, "not indexed: a Git LFS pointer, whose file is kept elsewhere")
        full = (os.fsencode(self.root) + b"/" if self.root else b"") + entry.path
        return Content(
            data,
            author=change.author or None,
            source_url=file_url(self.remote, tip.branch, tip.oid, full),
            metadata={"commit": change.commit},
        )

    # -- the copy ----------------------------------------------------------------------------------

    def _quick(self, arguments: Sequence[str], *, stdin: bytes | None = None, inside: bool = True) -> bytes:
        try:
            return self._git.run(
                arguments, timeout_s=max(QUICK_TIMEOUT_S, self.timeout_s), stdin=stdin, inside=inside
            )
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: the local copy cannot be read (git {arguments[0]}: {error.words})"
            ) from error


def _inside(root: str, section: str) -> str:
    """A folder of a repository as git names it, "" for the top. Raises `ConfigError` for one outside."""
    folder = posixpath.normpath(root.replace(os.sep, "/") or ".").strip("/")
    if folder == ".." or folder.startswith("../") or "\0" in folder:
        raise ConfigError(f"{section} root: {root!r} is not within the repository")
    return "" if folder == "." else folder


def _hint(name: str) -> str:
    return " (a commit is named by its whole id)" if re.fullmatch("[0-9a-fA-F]{7,39}", name) else ""


def _advertised(reply: bytes, ref: str) -> tuple[str | None, str | None]:
    """(commit of `ref`, the branch that HEAD stands for), of what `ls-remote --symref` says."""
    oid = branch = None
    for line in reply.split(b"\n"):
        value, _, name = line.partition(b"\t")
        if value.startswith(b"ref: refs/heads/") and name == b"HEAD":
            branch = os.fsdecode(value.removeprefix(b"ref: refs/heads/"))
        elif re.fullmatch(rb"[0-9a-f]{40,64}", value) and os.fsdecode(name) == ref:
            oid = value.decode()
    return oid, branch


def _files(listing: bytes) -> tuple[list[tuple[bytes, str]], dict[bytes, str], list[str]]:
    """(path, blob) of an `ls-tree -r -z`, (folder, blob) of the rule files among them; ids of submodules."""
    files: list[tuple[bytes, str]] = []
    rules: dict[bytes, str] = {}
    modules: list[str] = []
    for row in listing.split(b"\0"):
        head, _, path = row.partition(b"\t")
        mode, _, kind_and_oid = head.partition(b" ")
        if mode == _SUBMODULE_MODE:
            modules.append(encode_name(path.decode("utf-8", "surrogateescape")))
        if mode not in _FILE_MODES:
            continue
        oid = kind_and_oid.partition(b" ")[2].decode()
        files.append((path, oid))
        folder, _, base = path.rpartition(b"/")
        if base == RULE_FILE.encode():
            rules[folder] = oid
    return files, rules, modules


class _Scopes:
    """The scope of each folder, made once. A folder whose ignore file asks too much is withheld, a line of
    the report."""

    def __init__(self, top: Scope, rule_files: Mapping[bytes, bytes], log: ScanLog) -> None:
        self._rule_files = rule_files
        self._log = log
        self._scopes: dict[bytes, Scope | None] = {b"": self._ruled(b"", top)}

    def of(self, folder: bytes) -> Scope | None:
        if folder not in self._scopes:
            above, _, name = folder.rpartition(b"/")
            outer = self.of(above)
            inner = outer.enter(os.fsdecode(name)) if outer else None
            self._scopes[folder] = self._ruled(folder, inner) if inner else None
        return self._scopes[folder]

    def _ruled(self, folder: bytes, scope: Scope) -> Scope | None:
        try:
            return scope.with_rules(read_ignore_file(self._rule_files.get(folder, b"")))
        except TooManyPatterns as error:
            source_id = encode_name(folder.decode("utf-8", "surrogateescape"))
            self._log.withheld.append(f"{source_id}/" if source_id else "")
            self._log.problem(source_id, f"left out: {error.message}")
            return None
