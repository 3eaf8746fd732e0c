"""Git repositories to index: an upstream with a work tree, and a scan read to its end."""

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ctx.connectors.base import ScanLog
from ctx.connectors.git import GitConnector
from ctx.models import SourceItem

TOKEN = "s3cret-t0ken"


def git(
    folder: Path,
    *arguments: str,
    at: int | None = None,
    author: str = "Ann Author",
    stdin: bytes | None = None,
) -> str:
    """Runs git; `at` is the time of a commit in seconds."""
    person = {
        "GIT_AUTHOR_NAME": author,
        "GIT_COMMITTER_NAME": author,
        "GIT_AUTHOR_EMAIL": "a@b",
        "GIT_COMMITTER_EMAIL": "a@b",
    }
    dates = (
        {"GIT_AUTHOR_DATE": f"@{at} +0000", "GIT_COMMITTER_DATE": f"@{at} +0000"} if at is not None else {}
    )
    process = subprocess.run(
        ["git", "-c", "protocol.file.allow=always", *arguments],
        cwd=folder,
        env={**os.environ, **person, **dates},
        check=True,
        capture_output=True,
        input=stdin,
    )
    return process.stdout.decode().strip()


class Upstream:
    """A bare repository and a work tree that pushes to it."""

    def __init__(self, folder: Path) -> None:
        self.bare = folder / "upstream.git"
        self.work = folder / "work"
        self.clock = 1_700_000_000
        git(folder, "init", "-q", "--bare", "-b", "main", str(self.bare))
        git(folder, "init", "-q", "-b", "main", str(self.work))
        git(self.work, "remote", "add", "origin", str(self.bare))

    def commit(
        self, files: Mapping[str, str | bytes | None], author: str = "Ann Author", push: bool = True
    ) -> str:
        for name, text in files.items():
            path = self.work / name
            if text is None:
                path.unlink()
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
        git(self.work, "add", "-A")
        self.clock += 1000
        git(self.work, "commit", "-q", "--allow-empty", "-m", "change", at=self.clock, author=author)
        if push:
            self.push()
        return git(self.work, "rev-parse", "HEAD")

    def push(self, *refs: str) -> None:
        git(self.work, "push", "-q", "--force", "origin", *(refs or ("HEAD",)))


def connector(upstream: Upstream | str, tmp_path: Path, **options: Any) -> GitConnector:
    url = upstream if isinstance(upstream, str) else str(upstream.bare)
    return GitConnector(
        "git:docs", url, **{"cache_dir": str(tmp_path / "cache"), "timeout_s": 60.0, **options}
    )


class Scan:
    """A scan read to its end, as an index run does."""

    def __init__(self, source: GitConnector, known: Mapping[str, str] | None = None) -> None:
        self.log = ScanLog()
        self.items: dict[str, SourceItem] = {}
        self.data: dict[str, bytes | str] = {}
        self.urls: dict[str, str | None] = {}
        self.authors: dict[str, str | None] = {}
        for item in source.scan(known or {}, self.log):
            content = item.read()
            self.items[item.source_id] = item
            self.data[item.source_id] = content.data
            self.urls[item.source_id] = content.source_url
            self.authors[item.source_id] = content.author
        self.known = {source_id: item.fingerprint for source_id, item in self.items.items()}
        self.known |= {source_id: (known or {})[source_id] for source_id in self.log.unchanged}

    @property
    def ids(self) -> set[str]:
        return set(self.items)


def use_instead(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, address: str, instead: str) -> None:
    """As a company's mirror is set up: git fetches from elsewhere, the address stays the public one."""
    (tmp_path / "home").mkdir(exist_ok=True)
    (tmp_path / "home" / ".gitconfig").write_text(f'[url "{instead}"]\n\tinsteadOf = "{address}"\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "home" / ".gitconfig"))
