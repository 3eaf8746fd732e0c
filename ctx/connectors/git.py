"""A git repository as a source, read from its objects; there is no work tree.

A bare copy under `cache_dir` fetches one branch. Where the remote can, it fetches commits and folders only, and then just the files that
the globs take, in their latest version: that is what `shallow` means here, because with a cut history every file would bear the date of
the last commit. A file's fingerprint is the name of its blob, so a new commit costs what it changed.
"""

import fcntl
import hashlib
import logging
import os
import posixpath
import re
import secrets
import selectors
import shutil
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

from ctx.connectors.base import ScanLog
from ctx.connectors.defaults import DEFAULT_INCLUDE_GLOBS
from ctx.connectors.forges import file_url, parse_remote
from ctx.connectors.gitcmd import CHUNK_BYTES, QUICK_TIMEOUT_S, Blobs, Git, GitFailed, Progress
from ctx.connectors.names import encode_name
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
LOCK_POLL_S = 0.05
LATEST_S = 253_402_300_799  # the end of the year 9999: git keeps whatever number a commit was given

_FILE_MODES = (b"100644", b"100755", b"100664")  # not links (120000), not submodules (160000)
_BRANCH_REFUSED = re.compile(r"[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|\.lock(/|$)|^[-/.]|/\.|[/.]$|^@$")


class _Tip(NamedTuple):
    branch: str | None  # None: the remote's HEAD is on no branch
    oid: str
    filters: bool  # the remote serves parts of a repository


class _Entry(NamedTuple):
    path: bytes  # below the connector's root
    oid: str
    source_id: str


class _Change(NamedTuple):
    """The last commit that changed a file."""

    commit: str
    at_ms: int
    author: str


class GitConnector:
    """The files of one branch below `root` that the globs take.

    `url` is whatever git can clone: https, ssh, git@host:path, git://, file://, a path. `branch` None is the remote's default. Ids are
    paths below `root`; web addresses are of the whole path. Raises `ConfigError` for an address or a branch that git must not be given.
    """

    def __init__(
        self,
        name: str,
        url: str,
        *,
        cache_dir: str,
        branch: str | None = None,
        root: str = ".",
        include_globs: Iterable[str] = DEFAULT_INCLUDE_GLOBS,
        exclude_globs: Iterable[str] = (),
        shallow: bool = True,
        timeout_s: float = FETCH_TIMEOUT_S,
        max_file_bytes: int = MAX_FILE_BYTES,
        progress: Progress | None = None,
    ) -> None:
        self.name = name
        where = "[connectors." + name.replace(":", ".", 1) + "]"
        try:
            self.remote = parse_remote(url)
        except ValueError as error:
            raise ConfigError(f"{where} {error}") from error
        if branch is not None and (not branch or _BRANCH_REFUSED.search(branch)):
            raise ConfigError(f"{where} branch: {branch!r} cannot be the name of a branch")
        folder = posixpath.normpath(root.replace(os.sep, "/") or ".").strip("/")
        if folder == ".." or folder.startswith("../") or "\0" in folder:
            raise ConfigError(f"{where} root: {root!r} is not within the repository")
        self.branch = branch
        self.root = "" if folder == "." else folder
        self.include_globs = tuple(include_globs)
        self.exclude_globs = tuple(exclude_globs)
        self.shallow = shallow
        self.timeout_s = timeout_s
        self.max_file_bytes = max_file_bytes
        self.progress = progress
        self.cache_dir = os.path.abspath(cache_dir)
        # Without the credentials: a new token is no reason to copy everything again.
        key = f"{self.remote.display if self.remote.host else self.remote.url}\0{'partial' if shallow else 'whole'}"
        self._copy = os.path.join(
            self.cache_dir, hashlib.sha256(key.encode("utf-8", "surrogateescape")).hexdigest()[:16]
        )
        self._git = Git(self._copy + ".git", self.remote, name)

    @property
    def signature(self) -> str:
        said = (
            SCAN_FORMAT,
            os.path.basename(self._copy),
            self.branch,
            self.root,
        )  # the copy's name stands for the address
        globs = (self.include_globs, self.exclude_globs, self.max_file_bytes)
        return hashlib.sha256(repr((said, globs)).encode("utf-8", "surrogateescape")).hexdigest()[:16]

    # -- scanning ------------------------------------------------------------------------------------------------

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """The files whose blobs are new or changed, in order of their paths.

        Raises `SourceError` where the remote cannot be asked, the branch or the root is not there, or the repository lost all its
        commits; nothing is deleted then.
        """
        self._git.check_version()
        with self._locked() as lock:
            tip = self._updated(lock, known, log)
            if tip is None:
                return
            log.revision = tip.oid
            _share(lock)
            changed = self._changed(tip, known, log)
            if not changed:
                return
            self._prefetch([entry.oid for entry in changed], lock)
            changed = self._sized(changed, log)
            changes = self._history(tip, changed, log)
            ref = tip.branch or ""
            blobs = Blobs(self._git, self.name)
            try:
                for entry in changed:
                    change = changes[entry.path]
                    read = partial(self._read, blobs, entry, tip, change)
                    yield SourceItem(entry.source_id, f"{entry.oid}@{ref}", change.at_ms, read)
            finally:
                blobs.close()

    def _updated(self, lock: int, known: Mapping[str, str], log: ScanLog) -> _Tip | None:
        """The branch's newest commit, fetched; None where the repository has no commits (and nothing is known of it)."""
        self._heal()
        tip = self._ask()
        if tip is None:
            if known:
                raise SourceError(
                    f"{self.name}: the repository has no commits any more; the {len(known)} documents indexed from it are kept"
                )
            return None
        if self._have(tip) != tip.oid:
            self._fetch(tip, lock)
            oid = self._have(tip)
            if oid is None:
                raise SourceError(f"{self.name}: the branch could not be fetched; try again")
            tip = tip._replace(oid=oid)  # it may have moved on since we asked
        if os.path.exists(os.path.join(self._git.repository, "shallow")):
            log.problem(
                "",
                "the remote serves no partial copies, so its history was cut: a file that has not changed since the first index run bears "
                "the date of the commit that was newest then; `shallow = false` fetches everything",
            )
        return tip

    def _heal(self) -> None:
        """Makes the copy ready for use. Under the lock, so whatever lock or part of a pack lies in it was left by a killed git."""
        repository = self._git.repository
        for folder, folders, files in os.walk(repository):
            if folder == os.path.join(repository, "objects"):
                folders[:] = [name for name in folders if name == "pack"]
            for name in files:
                if name.endswith((".lock", ".keep")) or name.startswith("tmp_"):
                    os.unlink(os.path.join(folder, name))
        try:
            if (
                self._git.run(["rev-parse", "--is-bare-repository"], timeout_s=QUICK_TIMEOUT_S).strip()
                == b"true"
            ):
                return
        except GitFailed:
            pass  # not there yet, or half made: made anew below
        shutil.rmtree(repository, ignore_errors=True)
        self._quick(["init", "--quiet", "--bare", "--template=", repository], inside=False)

    def _ask(self) -> _Tip | None:
        """What the remote has now. Raises `SourceError` where it does not answer or lacks the branch."""
        wanted = [f"refs/heads/{self.branch}"] if self.branch else ["HEAD"]
        try:
            timeout_s = min(self.timeout_s, QUICK_TIMEOUT_S)
            said = self._git.run(
                ["ls-remote", "--symref", "origin", *wanted], timeout_s=timeout_s, trace=True
            )
        except GitFailed as error:
            raise self._unreachable(error) from error
        filters = (
            re.search(
                rb"packet: .*< (fetch=[^\n]*\bfilter\b|[0-9a-f]{40,64} [^\n]*\\0[^\n]*\bfilter\b)", said
            )
            is not None
        )
        oid = branch = None
        for line in said.split(b"\n"):
            left, _, right = line.partition(b"\t")
            if left.startswith(b"ref: refs/heads/") and right == b"HEAD":
                branch = os.fsdecode(left.removeprefix(b"ref: refs/heads/"))
            elif re.fullmatch(rb"[0-9a-f]{40,64}", left) and os.fsdecode(right) == wanted[0]:
                oid = left.decode()
        if oid is not None:
            return _Tip(self.branch or branch, oid, filters)
        heads = self._heads()
        if not heads:
            return None
        if self.branch is None and len(heads) == 1:  # its HEAD names a branch that was never born
            return _Tip(*next(iter(heads.items())), filters)
        some = ", ".join(sorted(heads)[:10]) + (", ..." if len(heads) > 10 else "")
        missing = (
            f"has no branch {self.branch!r}" if self.branch else "has no default branch; name one in `branch`"
        )
        raise SourceError(
            f"{self.name}: the repository {missing} (it has: {some}). What is indexed from it is kept"
        )

    def _heads(self) -> dict[str, str]:
        try:
            said = self._git.run(
                ["ls-remote", "--heads", "origin"], timeout_s=min(self.timeout_s, QUICK_TIMEOUT_S)
            )
        except GitFailed as error:
            raise self._unreachable(error) from error
        rows = (line.partition(b"\t") for line in said.splitlines())
        return {os.fsdecode(right.removeprefix(b"refs/heads/")): left.decode() for left, _, right in rows}

    def _unreachable(self, error: GitFailed) -> SourceError:
        words = error.words
        if re.search(
            r"could not read (Username|Password)|Authentication failed|Permission denied|terminal prompts|40[13]",
            words,
        ):
            words += "; give git a credential helper, an SSH key in the agent, or a token in the url (by ${VARIABLE})"
        logger.warning(
            "git remote failed source=%s remote=%s reason=%s", self.name, self.remote.display, error.words
        )
        if self.remote.transport in ("local", "file"):
            words = "its path holds no repository that git can read"
        return SourceError(
            f"{self.name}: {self.remote.display} cannot be fetched: {words}. What is indexed from it is kept"
        )

    def _ref(self, tip: _Tip) -> str:
        return f"refs/ctx/heads/{tip.branch}" if tip.branch else "refs/ctx/detached"

    def _have(self, tip: _Tip) -> str | None:
        try:
            found = self._git.run(
                ["rev-parse", "--verify", "--quiet", self._ref(tip) + "^{commit}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed:
            return None
        return found.decode().strip()

    def _fetch(self, tip: _Tip, lock: int) -> None:
        """Brings the branch over. Its commits and folders always come whole where the remote allows it; see the module."""
        source = f"refs/heads/{tip.branch}" if tip.branch else "HEAD"
        refspec = f"+{source}:{self._ref(tip)}"
        how: list[str] = []
        if self.shallow and tip.filters:
            how = ["--filter=blob:none"]
        elif self.shallow and self.remote.transport not in ("local", "file") and self._have(tip) is None:
            how = ["--depth=1"]
        self._tidy(lock)
        self._drop_refs_in_the_way(tip)
        common = [
            "fetch",
            "--progress",
            "--force",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-gc",
        ]
        try:
            self._git.run(
                [*common, *how, "origin", refspec],
                timeout_s=self.timeout_s,
                keep_fds=[lock],
                progress=self.progress,
            )
        except GitFailed as error:
            if (
                how == ["--depth=1"] and "shallow" in error.words
            ):  # a plain file server cannot cut the history
                self._git.run(
                    [*common, "origin", refspec],
                    timeout_s=self.timeout_s,
                    keep_fds=[lock],
                    progress=self.progress,
                )
                return
            raise self._unreachable(error) from error

    def _drop_refs_in_the_way(self, tip: _Tip) -> None:
        """A branch `a` that became `a/b`, or the other way round, cannot be stored beside the old one."""
        wanted = self._ref(tip)
        for line in self._quick(["for-each-ref", "--format=%(refname)", "refs/ctx/"]).splitlines():
            ref = os.fsdecode(line)
            if ref.startswith(wanted + "/") or wanted.startswith(ref + "/"):
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

    # -- what is there -------------------------------------------------------------------------------------------

    def _changed(self, tip: _Tip, known: Mapping[str, str], log: ScanLog) -> list[_Entry]:
        """The files that the globs take and that are not known as they are. Fills `log.unchanged`."""
        try:
            listing = self._git.run(
                ["ls-tree", "-r", "-z", "--full-tree", f"{tip.oid}:{self.root}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: `root` names no folder of {tip.branch or 'the repository'}: {self.root!r} ({error.words}). "
                "What is indexed from it is kept"
            ) from error
        files: list[tuple[bytes, str]] = []
        rules: dict[bytes, str] = {}
        for row in listing.split(b"\0"):
            head, _, path = row.partition(b"\t")
            mode, _, rest = head.partition(b" ")
            if mode not in _FILE_MODES:
                continue
            oid = rest.partition(b" ")[2].decode()
            files.append((path, oid))
            folder, _, base = path.rpartition(b"/")
            if base == RULE_FILE.encode():
                rules[folder] = oid
        scopes = _Scopes(Scope.top(self.include_globs, self.exclude_globs), self._rule_files(rules), log)
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

    def _rule_files(self, oids: Mapping[bytes, str]) -> dict[bytes, bytes]:
        """The `.ctxignore` files, by folder."""
        if not oids:
            return {}
        self._prefetch(list(oids.values()), None)
        blobs = Blobs(self._git, self.name)
        try:
            return {folder: blobs.read(oid, QUICK_TIMEOUT_S) for folder, oid in oids.items()}
        finally:
            blobs.close()

    def _prefetch(self, oids: Sequence[str], lock: int | None) -> None:
        """Fetches what a partial copy lacks, all at once: left to itself, git would ask for each file alone."""
        if not any(
            name.endswith(".promisor")
            for name in os.listdir(os.path.join(self._git.repository, "objects", "pack"))
        ):
            return
        heads = self._quick(["for-each-ref", "--format=%(objectname)", "refs/ctx/"]).decode().split()
        listed = self._quick(
            ["rev-list", "--objects", "--no-walk", "--missing=print", "--no-object-names", *heads]
        ).split()
        missing = {line[1:].decode() for line in listed if line.startswith(b"?")}
        wanted = [oid for oid in dict.fromkeys(oids) if oid in missing]
        common = [
            "fetch",
            "--progress",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-gc",
        ]
        for start in range(0, len(wanted), PREFETCH):
            lines = "".join(f"{oid}\n" for oid in wanted[start : start + PREFETCH]).encode()
            try:
                self._git.run(
                    [
                        "-c",
                        "fetch.negotiationAlgorithm=noop",
                        *common,
                        "--filter=blob:none",
                        "--stdin",
                        "origin",
                    ],
                    timeout_s=self.timeout_s,
                    stdin=lines,
                    keep_fds=[] if lock is None else [lock],
                    progress=self.progress,
                )
            except GitFailed as error:
                raise self._unreachable(error) from error

    def _sized(self, entries: Sequence[_Entry], log: ScanLog) -> list[_Entry]:
        """Without the files that are too large, each a line of the report."""
        asked = "".join(f"{entry.oid}\n" for entry in entries).encode()
        said = self._quick(["cat-file", "--batch-check=%(objectsize)"], stdin=asked).split(b"\n")
        kept = []
        for entry, size in zip(entries, said, strict=False):
            if size.isdigit() and int(size) > self.max_file_bytes:
                log.problem(
                    entry.source_id,
                    f"skipped: {int(size)} bytes are more than max_file_bytes ({self.max_file_bytes})",
                )
            else:
                kept.append(entry)
        return kept

    def _history(self, tip: _Tip, entries: Sequence[_Entry], log: ScanLog) -> dict[bytes, _Change]:
        """The last commit of each file, by one walk from the newest commit down that ends when all are found."""
        prefix = os.fsencode(self.root) + b"/" if self.root else b""
        wanted = {entry.path for entry in entries}
        found: dict[bytes, _Change] = {}
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
        change = _Change(tip.oid, 0, "")
        with self._git.started(arguments, quiet=True) as process:
            assert process.stdout is not None
            for change, path in _log_rows(process.stdout.fileno(), bound, deadline_s):
                if path.startswith(prefix):
                    inner = path[len(prefix) :]
                    if inner in wanted and inner not in found:
                        found[inner] = change
                        if len(found) == len(wanted):
                            break
        undated = wanted - found.keys()
        if undated:  # the walk was cut by its deadline: they are at least as old as where it ended
            found |= dict.fromkeys(undated, change)
            log.problem(
                "", f"the dates of {len(undated)} files could not be told; they are older than they seem"
            )
        return found

    # -- reading -------------------------------------------------------------------------------------------------

    def _read(self, blobs: Blobs, entry: _Entry, tip: _Tip, change: _Change) -> Content:
        data = blobs.read(entry.oid, self.timeout_s)
        if len(data) <= LFS_POINTER_BYTES and data.startswith(LFS_POINTER):
            data = b""  # it stands for a large file that is kept elsewhere, and says nothing itself
        full = (os.fsencode(self.root) + b"/" if self.root else b"") + entry.path
        return Content(
            data,
            author=change.author or None,
            source_url=file_url(self.remote, tip.branch, tip.oid, full),
            metadata={"commit": change.commit},
        )

    # -- the copy ------------------------------------------------------------------------------------------------

    def _quick(self, arguments: Sequence[str], *, stdin: bytes | None = None, inside: bool = True) -> bytes:
        try:
            return self._git.run(
                arguments, timeout_s=max(QUICK_TIMEOUT_S, self.timeout_s), stdin=stdin, inside=inside
            )
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: the local copy cannot be read (git {arguments[0]}: {error.words})"
            ) from error

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Holds the copy: alone at first, `_share` lets other readers in.

        The children that write to the copy hold the same lock, so that one that outlives us (we may be killed) keeps the next run waiting
        instead of being taken for dead.
        """
        try:
            os.makedirs(self.cache_dir, mode=0o700, exist_ok=True)
            lock = os.open(self._copy + ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise SourceError(
                f"{self.name}: the folder for copies of repositories cannot be written: {error.strerror}"
            ) from error
        try:
            deadline_s = time.monotonic() + self.timeout_s
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > deadline_s:
                        raise SourceError(
                            f"{self.name}: another process has been fetching this repository for {self.timeout_s:g} s"
                        ) from error
                    time.sleep(LOCK_POLL_S)
            yield lock
        finally:
            os.close(lock)


def _share(lock: int) -> None:
    fcntl.flock(lock, fcntl.LOCK_SH)


class _Scopes:
    """The scope of each folder, made once. A folder whose ignore file asks too much is withheld, a line of the report."""

    def __init__(self, top: Scope, rule_files: Mapping[bytes, bytes], log: ScanLog) -> None:
        self._rule_files = rule_files
        self._log = log
        self._made: dict[bytes, Scope | None] = {b"": self._ruled(b"", top)}

    def of(self, folder: bytes) -> Scope | None:
        if folder not in self._made:
            above, _, name = folder.rpartition(b"/")
            outer = self.of(above)
            inner = outer.enter(os.fsdecode(name)) if outer else None
            self._made[folder] = self._ruled(folder, inner) if inner else None
        return self._made[folder]

    def _ruled(self, folder: bytes, scope: Scope) -> Scope | None:
        try:
            return scope.with_rules(read_ignore_file(self._rule_files.get(folder, b"")))
        except TooManyPatterns as error:
            source_id = encode_name(folder.decode("utf-8", "surrogateescape"))
            self._log.withheld.append(f"{source_id}/" if source_id else "")
            self._log.problem(source_id, f"left out: {error.message}")
            return None


def _log_rows(fd: int, bound: bytes, deadline_s: float) -> Iterator[tuple[_Change, bytes]]:
    """(commit, path) of `git log -z --name-only`, newest first; ends at the deadline.

    After a commit's own fields git writes a newline before the first path, but a NUL instead where it is a merge.
    """
    change = _Change("", 0, "")
    fields: list[bytes] | None = None
    first = False
    for token in _tokens(fd, deadline_s):
        if token == bound:
            fields, first = [], True
        elif fields is not None and len(fields) < 3:
            fields.append(token)
            if len(fields) == 3:
                commit, seconds, author = fields
                change = _Change(
                    commit.decode(), min(int(seconds), LATEST_S) * 1000, author.decode("utf-8", "replace")
                )
        elif first:
            first = False
            if token:
                yield change, token.removeprefix(b"\n")
        elif token:
            yield change, token


def _tokens(fd: int, deadline_s: float) -> Iterator[bytes]:
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(fd, selectors.EVENT_READ)
        while selector.select(max(0.0, deadline_s - time.monotonic())):
            data = os.read(fd, CHUNK_BYTES)
            if not data:
                yield rest
                return
            *whole, rest = (rest + data).split(b"\0")
            yield from whole
