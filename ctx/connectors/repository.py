"""Update the bare clone of one branch, tag or commit of a remote repository, and fetch files in Git LFS.

If the remote supports it, commits and folders are fetched first, and files only when they are needed.
"""

import hashlib
import logging
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import NamedTuple

from ctx.connectors.base import KEPT, Progress, ScanLog, too_large
from ctx.connectors.copies import REMOTE, Copy, holds_partial_packs, user_folder
from ctx.connectors.forges import Remote
from ctx.connectors.gitcmd import QUICK_TIMEOUT_S, Git, GitFailed
from ctx.connectors.walk import read_below
from ctx.errors import SourceError
from ctx.text.strings import first_few

logger = logging.getLogger(__name__)

FETCH_TIMEOUT_S = 1800.0  # enough for the first fetch of a large repository on a slow connection
PREFETCH = 20_000  # objects in one request
PACKS = 40  # packs in a clone; each fetch adds one, and if there are more, `git gc` combines them

_FILTERS = re.compile(rb"packet: .*< (fetch=[^\n]*\bfilter\b|[0-9a-f]{40,64} [^\n]*\\0[^\n]*\bfilter\b)")
_DEFAULT = re.compile(rb"^ref: refs/heads/([^\t\n]*)\tHEAD$", re.MULTILINE)
_ADVERTISED = re.compile(rb"^([0-9a-f]{40,64})\t([^\n]*)$", re.MULTILINE)
_DENIED = re.compile(
    r"could not read (Username|Password)|Authentication failed|Permission denied|terminal prompts|40[13]"
)
_BOUNDLESS = re.compile(r"attempting to allocate \d+ over limit")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}|[0-9a-fA-F]{64}")
_NOT_SERVED = re.compile(r"not our ref|unadvertised object|couldn't find remote ref [0-9a-f]{40}")
POINTER_BYTES = 1024
_POINTER = re.compile(
    rb"version https://git-lfs\.github\.com/spec/v1\n(?:[a-z0-9.-]+ [^\n]*\n)*?oid "
    rb"sha256:([0-9a-f]{64})\nsize ([0-9]{1,15})\n"
)
_BEGINNING = b"version https://git-lfs.github.com/spec/"


class Tip(NamedTuple):
    """The commit to read. `ref` is its name on the remote (a branch, a tag, HEAD) or a commit id."""

    branch: str | None  # None for a tag, a commit, or a detached HEAD
    oid: str
    filters: bool  # the remote supports partial clones
    ref: str

    @property
    def copied(self) -> str:
        """The name of the ref in our clone. It is a hash, because a branch `a/b` cannot be stored next to a
        branch `a`.
        """
        return "refs/ctx/" + hashlib.sha256(os.fsencode(self.ref)).hexdigest()[:16]


class Pointer(NamedTuple):
    """The pointer to a file in Git LFS. `digest` is empty for an unknown kind of pointer."""

    digest: str
    size: int


@dataclass(eq=False, repr=False)
class Repository:
    """One branch, tag or full commit id (`branch`; None: the default branch) of a remote.

    `partial` is git's `--filter`, used if the remote supports it; None fetches all objects. `kept` ends the
    error messages: it says what is kept while the remote cannot be read. Use it under `copy.locked`.
    """

    name: str
    remote: Remote
    _: KW_ONLY
    branch: str | None
    partial: str | None
    timeout_s: float
    cache_dir: str | None = None
    kept: str = KEPT

    def __post_init__(self) -> None:
        # Without the credentials: a new token must not cause a new clone.
        address = self.remote.display if self.remote.host else self.remote.url
        kind = {None: "whole", "blob:none": "partial"}.get(self.partial, self.partial)
        own = user_folder(os.environ)
        self.copy = Copy(f"{address}\0{kind}", own=own, folder=self.cache_dir, source=self.name)

    @cached_property
    def git(self) -> Git:
        return Git(self.copy.path, self.remote, self.name)

    def updated(self, lock: int, log: ScanLog) -> Tip | None:
        """Fetch the remote's current commit and return it; None if the remote has no commits. Raises
        `SourceError`.
        """
        self.copy.prepare()
        tip = self._ask()
        if tip is None:
            return None
        if self._have(tip) != tip.oid:
            try:
                self._fetch(tip, lock, log.progress)
            except SourceError:
                if not self._is_damaged():
                    raise
                logger.warning("git clone is damaged and is made again source=%s", self.name)
                shutil.rmtree(self.copy.path)
                self.copy.prepare()
                self._fetch(tip, lock, log.progress)
            oid = self._have(tip)
            if oid is None:
                raise SourceError(f"{self.name}: the branch could not be fetched. Try again")
            tip = tip._replace(oid=oid)  # the branch may have moved since `_ask`
        if os.path.exists(os.path.join(self.git.repository, "shallow")):
            reason, advice = (
                "the remote does not support partial clones, so only its newest commit was fetched",
                "Set `shallow = false` to fetch all commits",
            )
            if self.remote.is_cut:
                reason, advice = (
                    "the remote is a shallow clone itself",
                    "Run `git fetch --unshallow` in it to get all commits",
                )
            log.note(
                "",
                f"{reason}. Files that have not changed since then have the date of that commit. {advice}",
            )
        return tip

    def _ask(self) -> Tip | None:
        """Ask the remote for its current commit; None if it has no commits. Raises `SourceError` if it does
        not answer or lacks the branch.
        """
        try:
            reply = self.git.run(
                ["ls-remote", "--symref", REMOTE, "HEAD", "refs/heads/*", "refs/tags/*"],
                timeout_s=min(self.timeout_s, QUICK_TIMEOUT_S),
                trace=True,
            )
        except GitFailed as error:
            raise self._unreachable(error) from error
        filters = _FILTERS.search(reply) is not None
        default = _DEFAULT.search(reply)
        oids = {os.fsdecode(match[2]): match[1].decode() for match in _ADVERTISED.finditer(reply)}
        heads = sorted(ref.removeprefix("refs/heads/") for ref in oids if ref.startswith("refs/heads/"))
        if self.branch is None and "HEAD" in oids:
            branch = os.fsdecode(default[1]) if default else None
            return Tip(branch, oids["HEAD"], filters, f"refs/heads/{branch}" if branch else "HEAD")
        # If HEAD names a branch that does not exist, the only branch is read.
        name = self.branch or (heads[0] if len(heads) == 1 else "")
        if (ref := f"refs/heads/{name}") in oids:
            return Tip(name, oids[ref], filters, ref)
        if (ref := f"refs/tags/{name}") in oids:
            return Tip(None, oids.get(f"{ref}^{{}}", oids[ref]), filters, ref)
        if name and _COMMIT.fullmatch(name):
            return Tip(None, name.lower(), filters, name.lower())
        if not heads:
            return None
        lack = "has no default branch. Name one in `branch`"
        if name:
            hint = ". Give the full id of a commit" if re.fullmatch("[0-9a-fA-F]{7,39}", name) else ""
            lack = f"has no branch or tag {name!r}{hint}"
        raise SourceError(
            f"{self.name}: the repository {lack} (branches: {first_few(heads, 10)}). {self.kept}"
        )

    def _unreachable(self, error: GitFailed) -> SourceError:
        words = error.words
        if _DENIED.search(words):
            words += (
                ". Set up a credential helper of git or an SSH agent, or put a token into the url "
                "(as ${VARIABLE})"
            )
        logger.warning(
            "git remote failed source=%s remote=%s reason=%s", self.name, self.remote.display, error.words
        )
        if _BOUNDLESS.search(error.words):
            words = (
                "a part of it needs more memory than git may use. The variable GIT_ALLOC_LIMIT sets the limit"
            )
        elif self.remote.transport in ("local", "file"):
            words = "the path has no repository, or git cannot read it"
        return SourceError(f"{self.name}: {self.remote.display} cannot be fetched: {words}. {self.kept}")

    def _have(self, tip: Tip) -> str | None:
        try:
            oid = self.git.run(
                ["rev-parse", "--verify", "--quiet", tip.copied + "^{commit}"], timeout_s=QUICK_TIMEOUT_S
            )
        except GitFailed:
            return None
        return oid.decode().strip()

    def _fetch(self, tip: Tip, lock: int, progress: Progress | None) -> None:
        """Fetch the branch. If the remote allows it, all commits and folders are fetched."""
        refspec, depth = f"+{tip.ref}:{tip.copied}", []
        # In a shallow repository git would request missing commits again and again.
        if self.partial and not self.remote.is_cut:
            by_network = self.remote.transport not in ("local", "file")
            if tip.filters:
                depth = [f"--filter={self.partial}"]
            elif by_network and self._have(tip) is None:
                depth = ["--depth=1"]
        self._tidy(lock)
        try:
            self._run_fetch(["--force", *depth, REMOTE, refspec], lock, progress)
        except GitFailed as error:
            if _NOT_SERVED.search(error.words):
                raise SourceError(
                    f"{self.name}: the repository has no commit {tip.oid}, or does not allow fetching single "
                    f"commits. Name a branch or a tag. {self.kept}"
                ) from error
            if depth != ["--depth=1"] or "shallow" not in error.words:
                raise self._unreachable(error) from error
            # A plain file server does not support a shallow fetch.
            self._run_fetch(["--force", REMOTE, refspec], lock, progress)

    def _is_damaged(self) -> bool:
        """Whether the clone lacks objects that it should have, for example after a loss of power."""
        try:
            self.git.run(
                ["fsck", "--connectivity-only", "--no-dangling", "--no-progress"], timeout_s=self.timeout_s
            )
        except GitFailed:
            return True
        except SourceError as error:  # too slow to say; the reason why the fetch failed is shown
            logger.warning("git clone was not checked source=%s reason=%s", self.name, error.message)
        return False

    def _run_fetch(
        self,
        arguments: Sequence[str],
        lock: int,
        progress: Progress | None,
        *,
        settings: Sequence[str] = (),
        stdin: bytes | None = None,
    ) -> None:
        """Run `git fetch`. Raises `GitFailed`."""
        options = ["--progress", "--no-tags", "--no-write-fetch-head", "--no-recurse-submodules"]
        # git gc runs under the lock, and the clone of a shallow remote is shallow too.
        options += ["--no-auto-gc", "--update-shallow"]
        self.git.run(
            [*settings, "fetch", *options, *arguments],
            timeout_s=self.timeout_s,
            stdin=stdin,
            keep_fds=[lock],
            progress=progress,
        )

    def _tidy(self, lock: int) -> None:
        """Combine the packs with `git gc` if there are more than `PACKS`. Needs the exclusive lock."""
        settings = ["-c", "gc.auto=6700", "-c", f"gc.autoPackLimit={PACKS}", "-c", "gc.autoDetach=false"]
        try:
            self.git.run([*settings, "gc", "--auto", "--quiet"], timeout_s=self.timeout_s, keep_fds=[lock])
        except GitFailed as error:
            logger.warning("git gc failed source=%s reason=%s", self.name, error.words)

    def absent(self) -> set[str]:
        """The ids of objects at the fetched refs that a partial clone lacks. When git needs them, it requests
        them one at a time, so `prefetch` them.
        """
        if not holds_partial_packs(self.copy.path):
            return set()
        heads = self.quick(["for-each-ref", "--format=%(objectname)", "refs/ctx/"]).decode().split()
        objects = self.quick(
            ["rev-list", "--objects", "--no-walk", "--missing=print", "--no-object-names", *heads]
        ).split()
        return {line[1:].decode() for line in objects if line.startswith(b"?")}

    def prefetch(self, oids: Sequence[str], lock: int, progress: Progress | None) -> None:
        """Fetch those of these objects that a partial clone lacks, all together, because git would request
        them one at a time.
        """
        promised = self.absent() if oids else set()
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

    def quick(self, arguments: Sequence[str], *, stdin: bytes | None = None) -> bytes:
        try:
            return self.git.run(arguments, timeout_s=max(QUICK_TIMEOUT_S, self.timeout_s), stdin=stdin)
        except GitFailed as error:
            raise SourceError(
                f"{self.name}: the local copy cannot be read (git {arguments[0]}: {error.words})"
            ) from error

    def lfs_content(self, pointer: Pointer, data: bytes, max_bytes: int) -> bytes:
        """The file that the pointer `data` refers to. Raises `SourceError`.

        `git lfs` fetches it from the repository's own remote and stores it next to our clone. `.lfsconfig` in
        the repository is not read, because it could send the user's credentials elsewhere.
        """
        if pointer.size > max_bytes:
            raise SourceError(too_large(pointer.size, max_bytes))
        content = _beside(self.remote, pointer)
        if content is None:
            storage = self.copy.path.removesuffix(".git") + ".lfs"
            settings = [f"lfs.storage={storage}", f"remote.lfsdefault={REMOTE}", "lfs.concurrenttransfers=2"]
            options = [word for setting in settings for word in ("-c", setting)]
            try:
                content = self.git.run([*options, "lfs", "smudge"], timeout_s=self.timeout_s, stdin=data)
            except GitFailed as error:
                raise SourceError(f"its Git LFS file cannot be fetched: {error.words}") from error
        if hashlib.sha256(content).hexdigest() != pointer.digest:
            raise SourceError("its Git LFS file is not the one in the repository: the checksum differs")
        return content


def pointer_of(data: bytes) -> Pointer | None:
    """Parse a pointer; None for an ordinary file."""
    if len(data) > POINTER_BYTES or not data.startswith(_BEGINNING):
        return None
    match = _POINTER.match(data)
    return Pointer("", 0) if match is None else Pointer(match[1].decode(), int(match[2]))


def lfs_installed() -> bool:
    """Whether `git lfs` is installed."""
    return shutil.which("git-lfs") is not None


def _beside(remote: Remote, pointer: Pointer) -> bytes | None:
    """The file from the LFS storage of a repository on this machine; None if it is not there. For a local
    remote, `git lfs` would look in our own storage instead.
    """
    if remote.transport not in ("local", "file"):
        return None
    digest = pointer.digest
    for folder in (".git/lfs", "lfs"):
        path = f"{folder}/objects/{digest[:2]}/{digest[2:4]}/{digest}"
        try:
            return read_below(remote.path, path, pointer.size, whole=True)
        except (OSError, SourceError):
            continue  # the file is missing or has another size
    return None
