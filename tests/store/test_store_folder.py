"""Files that a clone puts into the store folder are refused, and what they link to stays untouched."""

import os
import shutil
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import eventually
from kit import project, workspace
from store_tree import make

from ctx.background import Background
from ctx.errors import StoreError
from ctx.models import Filters
from ctx.server.overview import health
from ctx.store.folder import WriterLock, read_state, write_state
from ctx.store.index import LocalIndex
from ctx.store.keyword_writer import complete_files
from ctx.store.sqlite import SqliteCatalog
from ctx.workspace import Workspace

SECRET = b"-----BEGIN KEY-----\n"


def catch_up(folder: Path) -> None:
    """What an index run does with the store: catalog, lock, index."""
    store = folder / ".ctx"
    with SqliteCatalog(str(store / "ctx.db")) as catalog, WriterLock(str(store / "lock")):
        catalog.put_documents([make("s", "a", ["one word"])])
        with LocalIndex(str(store / "index"), lambda: None) as index:
            index.catch_up(catalog)


def indexed(folder: Path) -> Path:
    catch_up(folder)
    return folder / ".ctx" / "index"


def replaced(store: Path) -> Path:
    """The path of the store itself, where nothing is."""
    store.rmdir()
    return store


def empty(path: Path) -> Path:
    path.touch(mode=0o644)
    return path


# What is laid: how, in `store`, with a link to `victim` (a file 0640) or its folder; and what ctx has to say of it.
LAID: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "lock": (lambda store, victim: (store / "lock").symlink_to(victim), "`lock` is a link"),
    "dangling lock": (
        lambda store, victim: (store / "lock").symlink_to(victim.parent / "absent"),
        "`lock` is a link",
    ),
    "lock is a pipe": (lambda store, victim: os.mkfifo(store / "lock"), "`lock` is not a file"),
    "lock is a folder": (lambda store, victim: (store / "lock").mkdir(), "`lock` is not a file"),
    "index": (lambda store, victim: (store / "index").symlink_to(victim.parent), "`index` is a link"),
    "index is a file": (lambda store, victim: empty(store / "index"), "`index` is not a folder"),
    "store": (lambda store, victim: replaced(store).symlink_to(victim.parent), "`.ctx` is a link.*db"),
    "store is a file": (lambda store, victim: empty(replaced(store)), "`.ctx` is not a folder"),
    "catalog": (lambda store, victim: (store / "ctx.db").symlink_to(victim), "`ctx.db` is a link"),
    "empty catalog": (
        lambda store, victim: (store / "ctx.db").symlink_to(empty(victim.parent / "empty")),
        "`ctx.db` is a link",
    ),
    "catalog is a pipe": (lambda store, victim: os.mkfifo(store / "ctx.db"), "`ctx.db` is not a file"),
    "log": (
        lambda store, victim: empty(store / "ctx.db").with_name("ctx.db-wal").symlink_to(victim),
        "`ctx.db-wal` is a link",
    ),
    "shared memory": (
        lambda store, victim: empty(store / "ctx.db").with_name("ctx.db-shm").symlink_to(victim),
        "`ctx.db-shm` is a link",
    ),
}


@pytest.mark.parametrize("name", LAID)
def test_what_is_laid_in_the_store_is_refused_by_name_and_leads_nowhere(tmp_path: Path, name: str) -> None:
    lay, words = LAID[name]
    victim = tmp_path / "home" / "id_rsa"
    victim.parent.mkdir(mode=0o755)
    victim.write_bytes(SECRET)
    victim.chmod(0o640)
    store = tmp_path / "clone" / ".ctx"
    store.mkdir(parents=True)
    lay(store, victim)
    before = sorted(path.name for path in victim.parent.iterdir())
    with pytest.raises(StoreError, match=words):
        catch_up(tmp_path / "clone")
    assert victim.read_bytes() == SECRET
    assert stat.S_IMODE(victim.stat().st_mode) == 0o640
    assert stat.S_IMODE(victim.parent.stat().st_mode) == 0o755
    assert sorted(path.name for path in victim.parent.iterdir()) == before
    assert all(path.stat().st_size == 0 for path in victim.parent.iterdir() if path != victim)


@pytest.mark.parametrize("name", [".tantivy-writer.lock", ".tantivy-meta.lock", "meta.json", "x.store"])
def test_a_link_among_the_files_of_the_engine_is_built_around(tmp_path: Path, name: str) -> None:
    victim = tmp_path / "id_rsa"
    victim.write_bytes(SECRET)
    folder = indexed(tmp_path) / "keyword-1"
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(victim)
    with SqliteCatalog(str(tmp_path / ".ctx" / "ctx.db")) as catalog:
        catalog.put_documents([make("s", "b", ["another word"])])
        with LocalIndex(str(folder.parent), lambda: None) as index:
            index.catch_up(catalog)
    assert victim.read_bytes() == SECRET
    assert [path.name for path in folder.parent.iterdir() if path.is_dir()] == ["keyword-2"]


def test_a_commit_of_the_engine_that_has_no_end_or_never_comes_is_damaged(tmp_path: Path) -> None:
    """Read whole, the first takes all memory there is, with the search that only wanted to know of it."""
    folder = indexed(tmp_path) / "keyword-1"
    for lay in (lambda path: path.symlink_to("/dev/zero"), os.mkfifo):
        (folder / "meta.json").unlink()
        lay(folder / "meta.json")
        assert not complete_files(str(folder))
        with LocalIndex(str(folder.parent), lambda: None) as index, pytest.raises(StoreError):
            index.keyword("word", Filters(), 3)


@pytest.mark.parametrize("place", ["../../victim", "keyword-1/../../../victim", "/tmp", ""])
def test_a_state_that_names_a_folder_elsewhere_is_damaged(tmp_path: Path, place: str) -> None:
    (tmp_path / "victim").mkdir()
    index_folder = indexed(tmp_path)
    state = str(index_folder / "keyword.state")
    write_state(state, (read_state(state) or {}) | {"folder": place})
    with LocalIndex(str(index_folder), lambda: None) as index, pytest.raises(StoreError):
        index.keyword("word", Filters(), 3)
    catch_up(tmp_path)
    assert list((tmp_path / "victim").iterdir()) == []


def test_an_empty_catalog_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / ".ctx").mkdir()
    (tmp_path / ".ctx" / "ctx.db").touch()
    (tmp_path / ".ctx" / "ctx.db").chmod(0o644)
    catch_up(tmp_path)
    assert stat.S_IMODE((tmp_path / ".ctx" / "ctx.db").stat().st_mode) == 0o600


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_store_of_another_user_is_neither_written_nor_littered_by_reading(tmp_path: Path) -> None:
    catch_up(tmp_path)
    store = tmp_path / ".ctx"
    before = sorted(path.name for path in store.iterdir())
    os.chown(store, 65534, 65534)
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"another user.*chown"):
            SqliteCatalog(str(store / "ctx.db"), read_only=read_only)
    assert sorted(path.name for path in store.iterdir()) == before


def degraded(space: Workspace) -> list[str]:
    lines: list[str] = health(space)["degraded"]
    return lines


# -- git -----------------------------------------------------------------------------------------------------
def git(folder: Path, *argv: str) -> str:
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    return subprocess.run(
        ["git", *identity, *argv], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_store_is_kept_out_of_git_and_a_database_beside_the_project_hides_nothing(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    catch_up(tmp_path)
    assert git(tmp_path, "status", "--short") == ""
    (tmp_path / "notes.md").write_text("x")
    SqliteCatalog(str(tmp_path / "ctx.db")).close()
    assert not (tmp_path / ".gitignore").exists()
    (tmp_path / ".ctx" / ".gitignore").write_text("mine\n")
    catch_up(tmp_path)
    assert (tmp_path / ".ctx" / ".gitignore").read_text() == "mine\n"


# -- files deleted or replaced while they are open -------------------------------------------------------------
@pytest.mark.parametrize("replaced", [False, True])
def test_a_catalog_deleted_or_replaced_while_open_answers_with_an_error(
    tmp_path: Path, *, replaced: bool
) -> None:
    path = tmp_path / ".ctx" / "ctx.db"
    with SqliteCatalog(str(path)) as catalog:
        catalog.put_documents([make("s", "a", ["one"])])
        assert catalog.stats()["documents"] == 1
        shutil.rmtree(path.parent)
        if replaced:
            SqliteCatalog(str(path)).close()
        with pytest.raises(StoreError, match=r"`ctx\.db` was deleted or replaced .*: restart ctx"):
            catalog.stats()
        with pytest.raises(StoreError, match="restart ctx"):
            catalog.put_documents([make("s", "b", ["two"])])
        assert path.exists() == replaced
    if replaced:
        with SqliteCatalog(str(path), read_only=True) as other:
            assert other.stats()["documents"] == 0


def test_a_write_committed_to_a_replaced_catalog_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / ".ctx" / "ctx.db"
    with SqliteCatalog(str(path)) as catalog:
        writing = catalog._writing()
        writing.__enter__().sources(["late"])
        shutil.rmtree(path.parent)
        SqliteCatalog(str(path)).close()
        with pytest.raises(StoreError, match="restart ctx"):
            writing.__exit__(None, None, None)


def test_health_reports_a_store_deleted_under_a_server_and_a_restart_rebuilds_it(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "alpha beta"})
    space = workspace(config)
    try:
        space.indexer.run()
        Background(space).start()
        (tmp_path / ".ctx").rename(tmp_path / "gone")
        shutil.rmtree(tmp_path / "gone")
        eventually(lambda: any("restart ctx" in line for line in degraded(space)))
    finally:
        space.close()
    space = workspace(config)
    try:
        space.indexer.run()
        assert space.index.keyword("alpha", Filters(), 1)
    finally:
        space.close()


@pytest.mark.slow
def test_an_index_that_is_deleted_under_a_server_is_built_anew_without_a_change(tmp_path: Path) -> None:
    space = workspace(project(tmp_path, {"a.md": "alpha beta"}))
    try:
        space.indexer.run()
        Background(space).start()
        eventually(
            lambda: (
                bool(space.index.keyword("alpha", Filters(), 1)) and space.indexer.activity.phase == "idle"
            )
        )
        shutil.rmtree(
            tmp_path / ".ctx" / "index", ignore_errors=True
        )  # it comes back while it is being emptied
        eventually(lambda: bool(space.index.keyword("alpha", Filters(), 1)))
        assert health(space)["index_behind"] == 0
    finally:
        space.close()
