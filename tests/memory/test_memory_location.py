"""Memories and keys are in the user's data folder: nothing that happens to a work tree takes them away, and no
other project gets them.
"""

import os
import shutil
import stat
import time
from contextlib import closing
from pathlib import Path

import pytest
from git_kit import git
from kit import MEMORIES, ctx, project, workspace
from location_kit import TEXTS, make_old, memory_of, recalled, remember, repository, tables

from ctx.config import load_config
from ctx.errors import BadRequest, ConfigError, StoreError
from ctx.memory import location
from ctx.memory.location import adopt_old, adopt_other
from ctx.server.keys import key_ring, match


@pytest.fixture(autouse=True)
def _own_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def create_key(config: Path) -> str:
    with closing(key_ring(load_config(str(config), os.environ))) as ring:
        return ring.create("laptop")[0]


def opens(config: Path, key: str) -> bool:
    with closing(key_ring(load_config(str(config), os.environ))) as ring:
        return match(key, ring.candidates()) is not None


def clean(folder: Path, tmp_path: Path) -> None:
    git(folder, "clean", "-fdxq")


def remove(folder: Path, tmp_path: Path) -> None:
    shutil.rmtree(folder / ".ctx", ignore_errors=True)


def clone_again(folder: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(folder), "copy")
    shutil.rmtree(folder)
    git(tmp_path, "clone", "-q", "copy", folder.name)


@pytest.mark.parametrize("lose", [clean, remove, clone_again])
def test_what_is_done_to_the_work_tree_leaves_memories_and_keys(tmp_path: Path, lose: object) -> None:
    config = repository(tmp_path / "project")
    with workspace(config) as space:
        space.indexer.run()
    remember(config, *TEXTS)
    key = create_key(config)
    assert callable(lose)
    lose(config.parent, tmp_path)
    assert not (config.parent / ".ctx").exists()
    assert recalled(config) == TEXTS
    assert opens(config, key)


@pytest.mark.parametrize("brought", ["ctx.db", "a file", "a link"])
def test_a_pull_that_brings_a_store_leaves_memories_and_keys(tmp_path: Path, brought: str) -> None:
    upstream = repository(tmp_path / "upstream").parent
    git(tmp_path, "clone", "-q", "upstream", "clone")
    config = tmp_path / "clone" / "ctx.toml"
    remember(config, *TEXTS)
    key = create_key(config)
    shutil.rmtree(tmp_path / "clone" / ".ctx", ignore_errors=True)
    if brought == "a file":
        (upstream / ".ctx").write_text("mine")
    elif brought == "a link":
        (upstream / ".ctx").symlink_to("docs")
    else:
        (upstream / ".ctx").mkdir()
        (upstream / ".ctx" / "ctx.db").write_bytes(b"not a store")
    git(upstream, "add", "-f", ".ctx")
    git(upstream, "commit", "-q", "-m", "a store")
    git(config.parent, "pull", "-q")
    exported = ctx("memory", "export", cwd=config.parent)
    assert (exported.returncode, exported.stdout.count("\n")) == (0, len(TEXTS)), exported.stderr
    assert opens(config, key)


def test_the_folder_is_closed_to_others(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    remember(config, "x")
    memory = memory_of(config)
    assert memory.is_relative_to(tmp_path / "data" / "ctx" / "projects")
    assert stat.S_IMODE(memory.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(memory.stat().st_mode) == 0o600
    assert not {"memories", "script_value"} & tables_of_catalog(config)


def tables_of_catalog(config: Path) -> set[str]:
    with workspace(config) as space:
        space.indexer.run()
    return tables(config.parent / ".ctx" / "ctx.db")


def test_another_repository_at_the_same_path_starts_empty_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = repository(tmp_path / "project")
    remember(config, *TEXTS)
    first = memory_of(config).parent
    shutil.rmtree(config.parent)
    repository(tmp_path / "project", "another project's first commit")
    assert recalled(config) == []
    assert f"ctx memory adopt {first.name}" in caplog.text
    remember(config, "The badger is new.")
    assert recalled(config) == ["The badger is new."]
    with pytest.raises(BadRequest, match="already has 1 memories"):
        adopt_other(load_config(str(config), os.environ), os.environ, first.name)


def test_a_folder_without_a_repository_keeps_its_memories(tmp_path: Path) -> None:
    config = project(tmp_path / "project", {"tea.md": "# Tea"}, MEMORIES)
    with workspace(config) as space:
        space.indexer.run()
    remember(config, *TEXTS)
    assert recalled(config) == TEXTS
    shutil.rmtree(tmp_path / "project" / ".ctx")
    assert recalled(config) == TEXTS
    git(tmp_path / "project", "init", "-q")
    assert recalled(config) == TEXTS


def test_a_linked_work_tree_shares_the_memories_of_its_main_one(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    remember(config, *TEXTS)
    git(config.parent, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    assert recalled(tmp_path / "linked" / "ctx.toml") == TEXTS


def test_a_git_file_that_names_another_repository_shares_nothing(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    remember(config, *TEXTS)
    git(config.parent, "worktree", "add", "-q", "-b", "side", str(tmp_path / "linked"))
    stranger = project(tmp_path / "stranger", {}, MEMORIES)
    shutil.copyfile(tmp_path / "linked" / ".git", tmp_path / "stranger" / ".git")
    assert recalled(stranger) == []


def test_a_project_that_moved_is_offered_its_memories_and_adopts_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = repository(tmp_path / "project")
    remember(config, *TEXTS)
    key = create_key(config)
    first = memory_of(config).parent.name
    config = config.parent.rename(tmp_path / "moved") / "ctx.toml"
    assert recalled(config) == []
    assert f"ctx memory adopt {first}" in caplog.text
    gone = ctx("memory", "gone", cwd=config.parent)
    assert first in gone.stdout
    adopted = ctx("memory", "adopt", first, cwd=config.parent)
    assert adopted.stdout == "This project has 5 memories now.\n", adopted.stderr
    assert recalled(config) == TEXTS
    assert opens(config, key)
    assert "No memories" in ctx("memory", "gone", cwd=config.parent).stdout


def test_memories_of_a_project_that_is_there_are_not_given_away_or_deleted(tmp_path: Path) -> None:
    first, second = repository(tmp_path / "first"), repository(tmp_path / "second", "two")
    remember(first, *TEXTS)
    name = memory_of(first).parent.name
    for command in (("adopt", name), ("forget-project", name, "--yes")):
        refused = ctx("memory", *command, cwd=second.parent)
        assert (refused.returncode != 0, "is still at" in refused.stderr) == (True, True), refused
    assert recalled(first) == TEXTS


def test_memories_of_a_vanished_project_are_forgotten_when_asked(tmp_path: Path) -> None:
    first, second = repository(tmp_path / "first"), repository(tmp_path / "second", "two")
    remember(first, *TEXTS)
    folder = memory_of(first).parent
    shutil.rmtree(first.parent)
    assert "Would delete" in ctx("memory", "forget-project", folder.name, cwd=second.parent).stdout
    assert folder.exists()
    assert "5 memories" in ctx("memory", "forget-project", folder.name, "--yes", cwd=second.parent).stdout
    assert not folder.exists()


def test_memory_path_names_another_place(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    config.write_text(f'[memory]\npath = "{tmp_path}/here/m.db"\n' + config.read_text())
    remember(config, "x")
    assert (tmp_path / "here" / "m.db").exists()
    assert not (tmp_path / "data").exists()


def test_beside_a_catalog_outside_every_work_tree_memories_stay(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    config.write_text(f'[db]\npath = "{tmp_path}/srv/ctx.db"\n' + config.read_text())
    make_beside = tmp_path / "srv" / "memory.db"
    remember(config, "x")
    assert make_beside.exists()


@pytest.mark.parametrize("variables", [{"HOME": ""}, {"XDG_DATA_HOME": "/proc/nowhere"}])
def test_without_a_folder_for_data_the_error_names_the_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    config = repository(tmp_path / "project")
    monkeypatch.delenv("XDG_DATA_HOME")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"\[memory\] path"):
        remember(config, "x")


# -- stores of earlier versions ------------------------------------------------------------------------------


def test_a_store_of_an_earlier_version_moves_at_the_first_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = repository(tmp_path / "project")
    key = make_old(config)
    assert recalled(config) == TEXTS
    assert opens(config, key)
    assert "moved 6 memories and scripts' values" in caplog.text
    catalog = config.parent / ".ctx" / "ctx.db"
    assert not {"memories", "memory_words", "script_value"} & tables(catalog)
    assert {"memories", "memory_words", "script_value"} <= tables(Path(f"{catalog}.moved"))
    assert not (catalog.parent / "keys.json").exists()
    assert b"heron" not in catalog.read_bytes()
    with workspace(config) as space:
        assert space.memory.check(deep=True) == []
        assert space._script_store is not None
        assert space._script_store.call("get", "tool", {"key": "count"}, time.monotonic() + 60) == 7
        assert space.catalog.stats()["documents"] == 1
    assert memory_of(config).is_relative_to(tmp_path / "data")


def test_what_is_erased_goes_from_the_copies_and_from_what_was_left_behind(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    make_old(config)
    assert recalled(config) == TEXTS
    with workspace(config) as space:
        bank = space.memory.bank("default")
        [found] = [record["id"] for record in bank.every() if "number 3" in record["text"]]
        bank.delete_all([found], hard=True)
    folders = (memory_of(config).parent, config.parent / ".ctx")
    left = [path for folder in folders for path in folder.iterdir() if path.is_file()]
    assert [path.name for path in left if b"heron number 3" in path.read_bytes()] == []


def test_a_store_that_this_user_has_not_used_waits_to_be_adopted(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    key = make_old(config, known=False)
    assert recalled(config) == []
    with pytest.raises(ConfigError, match="ctx memory adopt"):
        opens(config, key)
    doctor = ctx("doctor", cwd=config.parent).stdout
    assert "not used" in doctor
    assert adopt_old(load_config(str(config), os.environ), os.environ) == len(TEXTS)
    assert recalled(config) == TEXTS
    assert opens(config, key)


def test_a_store_that_git_tracks_waits_to_be_adopted_and_stays(tmp_path: Path) -> None:
    config = repository(tmp_path / "project")
    make_old(config)
    git(config.parent, "add", "-f", ".ctx/ctx.db", ".ctx/keys.json")
    git(config.parent, "commit", "-q", "-m", "a store")
    content = (config.parent / ".ctx" / "keys.json").read_bytes()
    assert recalled(config) == []
    adopted = ctx("memory", "adopt", ".ctx", cwd=config.parent)
    assert adopted.stdout == "This project has 5 memories now.\n", adopted.stderr
    assert recalled(config) == TEXTS
    assert (config.parent / ".ctx" / "keys.json").read_bytes() == content
    assert "memories" in tables(config.parent / ".ctx" / "ctx.db")


def test_looking_at_git_runs_nothing_that_the_repository_names(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "config", "index.version", "4")
    git(tmp_path, "config", "core.fsmonitor", f"touch {tmp_path}/ran; true")
    (tmp_path / "a").write_text("")
    git(tmp_path, "-c", "core.fsmonitor=false", "add", "a")
    (tmp_path / ".ctx").mkdir()
    assert location.unasked(str(tmp_path / ".ctx" / "ctx.db"), known=True) is None
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
    tree = git(project, "rev-parse", "HEAD:.ctx/more")
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
    (project / ".ctx").mkdir()
    location.unasked(str(project / ".ctx" / "ctx.db"), known=True)
    assert not (tmp_path / "ran").exists()
