"""Read `git log`: the last commit that changed each file, and commit messages as documents."""

import os
import selectors
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import NamedTuple

from ctx.clock import iso_utc, told_ms
from ctx.connectors.base import ScanLog
from ctx.connectors.forges import Remote, commit_url
from ctx.connectors.gitcmd import CHUNK_BYTES, Git, GitFailed
from ctx.errors import SourceError
from ctx.models import COMMITS, Content, SourceItem

MAX_COMMITS = 20_000  # the newest; the report says if there are more
_FIELDS = 4


class Change(NamedTuple):
    """The last commit that changed a file."""

    commit: str
    at_ms: int
    author: str


def commit_items(
    git: Git,
    remote: Remote,
    tip: str,
    *,
    root: str,
    since_ms: int | None,
    known: Mapping[str, str],
    log: ScanLog,
    timeout_s: float,
) -> Iterator[SourceItem]:
    """Yield a document for each commit in the history of `tip` that changed `root`, newest first.

    Its id is `@commits/` and the commit's id. Raises `SourceError`.
    """
    arguments = ["log", "-z", "--format=format:%H%x00%ct%x00%an%x00%B", f"--max-count={MAX_COMMITS + 1}"]
    arguments += [f"--since={iso_utc(since_ms)}"] if since_ms is not None else []
    arguments += [tip, *(["--", f":(top,literal){root}"] if root else [])]
    try:
        listing = git.run(arguments, timeout_s=timeout_s)
    except GitFailed as error:
        raise SourceError(f"the history cannot be read: {error.words}") from error
    fields = [field.decode("utf-8", "replace") for field in listing.split(b"\0")]
    commits = list(zip(*[iter(fields)] * _FIELDS, strict=False))
    if len(commits) > MAX_COMMITS:
        log.note("", f"only the newest {MAX_COMMITS:,} commits are read; `since` narrows them")
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
                source_url=commit_url(remote, oid),
                metadata={"commit": oid},
            )
            yield SourceItem(source_id, oid, _moment_ms(seconds), read)


def log_rows(fd: int, bound: bytes, deadline_s: float) -> Iterator[tuple[Change, bytes]]:
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
