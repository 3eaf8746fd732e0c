"""Commands that read an index bring it up to date first, where no server does."""

import os
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path

import pytest
from kit import ctx, project

from ctx.cli import search
from ctx.cli.configuration import configuration
from ctx.cli.running import Running, registered
from ctx.cli.search import fresh_workspace
from ctx.models import Caller
from ctx.store.folder import WriterLock


def indexed(folder: Path, files: dict[str, str]) -> Path:
    config = project(folder, files)
    ctx("index", cwd=config.parent)
    return config


def ids(config: Path, query: str) -> tuple[list[str], list[str]]:
    """(what a search finds, what the command says of the index)."""
    notes = StringIO()
    with redirect_stderr(notes), fresh_workspace(configuration(str(config))) as (workspace, gone):
        reply = workspace.toolbox.call("search", {"query": query, "mode": "keyword"}, Caller("cli"))
        found = {(hit["source"], hit["source_id"]) for hit in reply["results"]} - gone
    return sorted(source_id for _, source_id in found), notes.getvalue().splitlines()


def test_edited_new_and_deleted_files_are_seen_at_once(tmp_path: Path) -> None:
    config = indexed(
        tmp_path, {"ed.md": "oldword", "ghost.md": "ghostword", "sub/c.py": "def keptname(): pass"}
    )
    (tmp_path / "docs/ed.md").write_text("newword")
    (tmp_path / "docs/ghost.md").unlink()
    (tmp_path / "docs/sub/d.py").write_text("def addedname():\n    return 1\n")
    assert "No results" in ctx("search", "ghostword", cwd=config.parent).stdout
    assert "ed.md" in ctx("search", "newword", cwd=config.parent).stdout
    assert "def addedname" in ctx("symbol", "addedname", cwd=config.parent).stdout
    (tmp_path / "docs/ed.md").write_text("# Title\n\n## Part\n\nthirdword")
    assert "thirdword" in ctx("get", "ed.md", cwd=config.parent).stdout
    (tmp_path / "docs/sub/d.py").write_text("def otherwise():\n    return 2\n")
    assert "otherwise" in ctx("outline", "sub/d.py", cwd=config.parent).stdout
    assert ctx("get", "ghost.md", cwd=config.parent).returncode == 3


def test_what_a_second_is_too_short_for_is_one_line_and_deleted_files_go_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = indexed(tmp_path, {"a.md": "alpha", "b.md": "alpha", "c.md": "alpha"})
    for name in ("a.md", "d.md"):
        (tmp_path / "docs" / name).write_text("beta")
    (tmp_path / "docs/b.md").unlink()
    monkeypatch.setattr(search, "TIME_S", -1.0)
    assert ids(config, "alpha") == (["a.md", "c.md"], ["Note: 2 files have changed since; run `ctx index`"])
    monkeypatch.undo()
    assert ids(config, "alpha beta") == (["a.md", "c.md", "d.md"], [])


def test_a_deleted_file_is_not_shown_while_another_process_writes(tmp_path: Path) -> None:
    config = indexed(tmp_path, {"a.md": "alpha", "b.md": "alpha"})
    (tmp_path / "docs/b.md").unlink()
    lock = WriterLock(str(tmp_path / ".ctx/lock"))
    lock.acquire(0)
    try:
        assert ids(config, "alpha") == (["a.md"], ["Note: 1 file has changed since; run `ctx index`"])
        assert "b.md" not in ctx("search", "alpha", cwd=config.parent).stdout
        assert ctx("get", "b.md", cwd=config.parent).returncode == 3
    finally:
        lock.release()


def test_another_configuration_is_named_and_reads_nothing(tmp_path: Path) -> None:
    config = indexed(tmp_path, {"a.md": "alpha"})
    config.write_text(config.read_text() + "[chunking]\nmax_tokens = 64\n")
    (tmp_path / "docs/a.md").write_text("beta")
    found, notes = ids(config, "alpha")
    assert found == ["a.md"]
    assert notes == ["Note: filesystem:docs must be read again; run `ctx index`"]


def test_files_without_text_are_read_once_and_not_reported(tmp_path: Path) -> None:
    config = indexed(tmp_path, {"a.md": "alpha"})
    (tmp_path / "docs/damaged.pdf").write_bytes(b"%PDF-1.7\n")
    (tmp_path / "docs/void").write_bytes(b"")
    (tmp_path / "docs/blob").write_bytes(b"\0\1\2" * 99)
    for name in ("void", "blob"):
        os.utime(tmp_path / "docs" / name, (1_600_000_000, 1_600_000_000))
    assert ctx("search", "alpha", cwd=tmp_path).stderr == ""
    with fresh_workspace(configuration(str(config))) as (workspace, _):
        assert workspace.indexer_at_work is None


def test_where_a_server_runs_the_folder_is_left_to_it(tmp_path: Path) -> None:
    config = indexed(tmp_path, {"a.md": "alpha"})
    (tmp_path / "docs/a.md").write_text("beta")
    with registered() as register:
        register(Running(str(tmp_path), "127.0.0.1:7331", os.getpid(), 1))
        assert ids(config, "beta") == ([], [])
    assert ids(config, "beta") == (["a.md"], [])
