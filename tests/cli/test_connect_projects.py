"""`ctx connect` in several projects: each has its own entries, and none replaces another's in silence."""

import json
from pathlib import Path

import pytest
from connect_kit import as_user
from kit import project


def _cursor(home: Path) -> Path:
    return home / ".cursor/mcp.json"


@pytest.fixture
def home(folder: Path) -> Path:
    return folder.parent / "home"


def test_each_project_has_an_entry_of_its_own_and_none_replaces_another(folder: Path, home: Path) -> None:
    second = folder.parent / "My Notes (2)"
    second.mkdir()
    project(second, config='[server]\nbind = "127.0.0.1:7332"\n')
    assert as_user(folder, "cursor").returncode == 0
    assert as_user(second, "cursor", "--config", "ctx.toml", home=home).returncode == 0
    entries = json.loads(_cursor(home).read_text())["mcpServers"]
    assert entries == {
        "ctx-project": {"url": "http://127.0.0.1:7331/mcp"},
        "ctx-my-notes-2": {"url": "http://127.0.0.1:7332/mcp"},
    }
    assert as_user(folder, "cursor", "--remove").returncode == 0
    assert list(json.loads(_cursor(home).read_text())["mcpServers"]) == ["ctx-my-notes-2"]


def test_two_projects_with_one_address_are_told_to_part(folder: Path, home: Path) -> None:
    second = folder.parent / "second"
    second.mkdir()
    project(second)
    as_user(folder, "cursor")
    reply = as_user(second, "cursor", home=home)
    assert reply.returncode == 0
    assert "'ctx-project' in that file has the same address" in reply.stderr


def test_an_entry_without_the_key_that_the_server_wants_is_told_so(folder: Path, home: Path) -> None:
    config = folder / "ctx.toml"
    config.write_text(config.read_text() + '\n[server]\napi_key_env = "CTX_KEY"\n')
    as_named = ("--config", "ctx.toml")
    for client in ("cursor", "cursor", "goose"):  # written, there already, to be pasted
        reply = as_user(folder, client, *as_named)
        assert reply.returncode == 0
        assert "connect again with --key-env CTX_KEY" in reply.stderr
    assert "brings none" not in as_user(folder, "claude-desktop", *as_named).stderr  # it asks no server
    assert "brings none" not in as_user(folder, "cursor", "--key-env", "CTX_KEY", *as_named).stderr
    reply = as_user(folder, "cursor", *as_named)
    assert ("is connected already" in reply.stdout, "brings none" in reply.stderr) == (True, False)


def test_what_a_configuration_warns_of_is_said_once(folder: Path) -> None:
    config = folder / "ctx.toml"
    config.write_text(config.read_text() + "\n[vector_index]\nkind = 1\n")
    assert as_user(folder, "cursor").stderr.count("Warning: ") == 1
    assert as_user(folder, "--all").stderr.count("Warning: ") == 1


def test_a_second_project_of_one_name_takes_over_no_entry(folder: Path, home: Path) -> None:
    """One name and one address: nothing in the entry tells whose it is."""
    second = folder.parent / "elsewhere" / folder.name
    second.mkdir(parents=True)
    project(second)
    assert as_user(folder, "cursor").returncode == 0
    text = _cursor(home).read_text()
    for arguments in (("cursor",), ("cursor", "--remove")):
        refusal = as_user(second, *arguments, home=home)
        assert refusal.returncode != 0
        assert f"is that of {folder}, a project of the same name" in refusal.stderr
        assert _cursor(home).read_text() == text
    listed = json.loads(as_user(second, "--list", "--json", home=home).stdout)
    assert [row["connected"] for row in listed["clients"] if row["client"] == "cursor"] == [False]
    assert "is connected already" in as_user(folder, "cursor").stdout
    assert as_user(second, "cursor", "--name", "ctx-second", home=home).returncode == 0
    assert as_user(second, "cursor", "--replace", home=home).returncode == 0
    assert "elsewhere" in as_user(folder, "cursor").stderr


def test_an_entry_of_a_project_that_is_gone_is_taken_over(folder: Path, home: Path) -> None:
    assert as_user(folder, "cursor").returncode == 0
    moved = folder.parent / "elsewhere" / folder.name
    moved.parent.mkdir()
    folder.rename(moved)
    reply = as_user(moved, "cursor", home=home)
    assert (reply.returncode, "is connected already" in reply.stdout) == (0, True)
