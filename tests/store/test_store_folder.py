"""Files that a clone puts into the store folder are refused, and what they link to stays untouched."""

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from faults import eventually
from kit import project, workspace
from store_tree import make

from ctx.errors import StoreError
from ctx.models import Filters
from ctx.server.health import health
from ctx.server.keys import KeyRing
from ctx.store.keyword_files import complete_files
from ctx.store.local import LocalIndex
from ctx.store.lock import WriterLock
from ctx.store.sqlite import SqliteCatalog
from ctx.store.statefile import read_state, write_state
from ctx.workspace import Workspace

SECRET = b"-----BEGIN KEY-----\n"


def catch_up(folder: Path) -> None:
    """What an index run does with the store: catalog, lock, index."""
    store = folder / ".ctx"
    with SqliteCatalog(str(store / "ctx.db")) as catalog, WriterLock(str(store / "lock")):
        catalog.put_documents([make("s", "a", ["one word"])])
        with LocalIndex(str(store / "index"), lambda: (None, None), writable=True) as index:
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
    "index is a file": (lambda store, victim: empty(store / "index"), "`index` is no folder"),
    "store": (lambda store, victim: replaced(store).symlink_to(victim.parent), "`.ctx` is a link.*db"),
    "store is a file": (lambda store, victim: empty(replaced(store)), "`.ctx` is no folder"),
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
        with LocalIndex(str(folder.parent), lambda: (None, None), writable=True) as index:
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
        with LocalIndex(str(folder.parent), lambda: (None, None)) as index, pytest.raises(StoreError):
            index.keyword("word", Filters(), 3)


@pytest.mark.parametrize("place", ["../../victim", "keyword-1/../../../victim", "/tmp", ""])
def test_a_state_that_names_a_folder_elsewhere_is_damaged(tmp_path: Path, place: str) -> None:
    (tmp_path / "victim").mkdir()
    index_folder = indexed(tmp_path)
    state = str(index_folder / "keyword.state")
    write_state(state, (read_state(state) or {}) | {"folder": place})
    with LocalIndex(str(index_folder), lambda: (None, None)) as index, pytest.raises(StoreError):
        index.keyword("word", Filters(), 3)
    catch_up(tmp_path)
    assert list((tmp_path / "victim").iterdir()) == []


def test_an_empty_catalog_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / ".ctx").mkdir()
    (tmp_path / ".ctx" / "ctx.db").touch()
    (tmp_path / ".ctx" / "ctx.db").chmod(0o644)
    catch_up(tmp_path)
    assert stat.S_IMODE((tmp_path / ".ctx" / "ctx.db").stat().st_mode) == 0o600


def test_the_keys_are_not_made_through_links(tmp_path: Path) -> None:
    victim = tmp_path / "id_rsa"
    victim.write_bytes(SECRET)
    (tmp_path / ".ctx").mkdir()
    (tmp_path / ".ctx" / "keys.json.lock").symlink_to(victim)
    with pytest.raises(StoreError, match=r"`keys.json.lock` is a link"):
        KeyRing(str(tmp_path / ".ctx" / "keys.json")).create("laptop")
    (tmp_path / ".ctx" / "keys.json.lock").unlink()
    (tmp_path / ".ctx" / f"keys.json.partial-{os.getpid()}").symlink_to(victim)
    KeyRing(str(tmp_path / ".ctx" / "keys.json")).create("laptop")
    assert victim.read_bytes() == SECRET


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


@pytest.mark.parametrize("version", ["2", "4"])
def test_a_store_that_git_tracks_is_refused_with_the_mend(tmp_path: Path, version: str) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "index.version", version)
    catch_up(tmp_path / "sub")
    git(tmp_path, "add", "-f", "sub/.ctx/lock")
    code = "import sys; from ctx.store.sqlite import SqliteCatalog; SqliteCatalog(sys.argv[1])"
    child = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "sub" / ".ctx" / "ctx.db")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "git tracks `lock`" in child.stderr
    assert "git rm -r --cached" in child.stderr


@pytest.mark.parametrize("folder", [".ctx", "data"])
def test_a_store_that_passes_for_a_repository_of_its_own_is_refused_too(tmp_path: Path, folder: str) -> None:
    """Git takes a folder with these three for one, and tracks nothing there."""
    store = tmp_path / folder
    for name in ("objects/x", "refs/x", "ctx.db"):
        (store / name).parent.mkdir(parents=True, exist_ok=True)
        (store / name).write_bytes(b"")
    (store / "HEAD").write_text("ref: refs/heads/main\n")
    (store / "config").write_text("[core]\nrepositoryformatversion = 0\nbare = true\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-f", folder)
    assert git(store, "rev-parse", "--is-bare-repository").strip() == "true"
    with pytest.raises(StoreError, match="git tracks `"):
        SqliteCatalog(str(store / "ctx.db"))


@pytest.mark.parametrize("name", ["ctx.db", "ctx.db-journal", "ctx.db-wal", "keys.json"])
def test_a_store_outside_of_dot_ctx_that_git_tracks_is_refused_too(tmp_path: Path, name: str) -> None:
    """A journal alone would be played back into the catalog that is there, memories and all."""
    git(tmp_path, "init", "-q")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "notes.md").write_text("the project's own")
    (tmp_path / "data" / name).write_bytes(b"")
    git(tmp_path, "add", "-f", "data")
    with pytest.raises(StoreError, match=f"git tracks `{name}`"):
        SqliteCatalog(str(tmp_path / "data" / "ctx.db"))


def test_scripts_and_the_configuration_of_a_project_may_be_tracked(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    for name in ("tools/x.lua", "agents/y.lua", "config.toml"):
        path = tmp_path / ".ctx" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    git(tmp_path, "add", "-f", ".ctx")
    catch_up(tmp_path)


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


def test_looking_at_git_runs_nothing_that_the_repository_names(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "index.version", "4")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; true")
    (tmp_path / "a").write_text("")
    git(tmp_path, "-c", "core.fsmonitor=false", "add", "a")
    catch_up(tmp_path)
    assert not (tmp_path / "ran").exists()


def test_looking_at_git_fetches_nothing_by_a_program_that_the_repository_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an archive may bring it: an index that speaks of a folder whose tree is to be had of a promisor."""
    project = tmp_path / "project"
    for name in ("more", "other"):
        (project / ".ctx" / name).mkdir(parents=True)
        (project / ".ctx" / name / "x").write_text(name)  # a tree of its own
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "all")
    git(project, "sparse-checkout", "set", "--cone", "--sparse-index", ".ctx/other")
    git(project, "update-index", "--index-version", "4")
    tree = git(project, "rev-parse", "HEAD:.ctx/more").strip()
    shutil.rmtree(project / ".ctx")
    for key, value in {
        "core.repositoryformatversion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": str(project),
        "remote.origin.promisor": "true",
        "remote.origin.uploadpack": f"touch {tmp_path}/ran; false",
    }.items():
        git(project, "config", key, value)
    (project / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    older = tmp_path / "older" / "git"  # one that does not know the variable yet
    older.parent.mkdir()
    older.write_text(f'#!/bin/sh\nunset GIT_NO_LAZY_FETCH\nexec {shutil.which("git")} "$@"\n')
    older.chmod(0o755)
    monkeypatch.setenv("PATH", str(older.parent), prepend=os.pathsep)
    try:
        catch_up(project)
    except StoreError:
        pass  # git tracks a file of the store
    assert not (tmp_path / "ran").exists()


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
        writing.__enter__().ensure_source("late")
        shutil.rmtree(path.parent)
        SqliteCatalog(str(path)).close()
        with pytest.raises(StoreError, match="restart ctx"):
            writing.__exit__(None, None, None)


def test_health_reports_a_store_deleted_under_a_server_and_a_restart_rebuilds_it(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "alpha beta"})
    space = workspace(config)
    try:
        space.indexer.run()
        space.background.start()
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
        space.background.start()
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
