"""Moving from Context Harness: its configurations start as they are, and `ctx import` turns one into ours."""

import json
import subprocess
from pathlib import Path

import pytest
from harness_kit import DEMO, EXAMPLE, OWN, database
from kit import ctx, named

ECHO = """
tool = { name = "echo", description = "Says it again", parameters = {} }
function tool.execute(params, context)
  return { greeting = context.config.greeting, token = context.config.api_token }
end
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def warned(reply: subprocess.CompletedProcess[str]) -> list[str]:
    """The keys that the warnings are about."""
    lines = [line for line in reply.stderr.splitlines() if line.startswith("Warning: ")]
    return [line.split("ctx.toml: ", 1)[-1].split(" has no effect")[0] for line in lines]


def upstream(folder: Path) -> None:
    written(folder, "upstream/notes.md", "# Upstream\n\nA note from the other repository.\n")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org", "-C", str(folder / "upstream")]
    for arguments in (["init", "-q", "-b", "main"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *arguments], check=True, capture_output=True)


def test_a_configuration_of_a_repository_that_indexes_itself_starts_as_it_is(tmp_path: Path) -> None:
    config = written(tmp_path, "config/ctx.toml", OWN)
    written(tmp_path, "docs/guide.md", "# Guide\n\nHow the harness is driven.\n")
    upstream(tmp_path)
    database(tmp_path / "data" / "ctx.sqlite")
    theirs = (tmp_path / "data" / "ctx.sqlite").read_bytes()
    reply = ctx("sync", "all", cwd=tmp_path, env=named(config) | {"XDG_CACHE_HOME": str(tmp_path / "cache")})
    assert reply.returncode == 0, reply.stderr
    assert "filesystem:root: 1 added" in reply.stdout
    assert "git:branch: 1 added" in reply.stdout
    keys = warned(reply)
    assert {"[registries]", "[retrieval] group_by", "[retrieval] doc_agg"} <= set(keys)
    assert any("ctx.sqlite is Context Harness's and stays as it is" in key for key in keys)
    assert (tmp_path / "data" / "ctx.sqlite").read_bytes() == theirs
    reply = ctx("search", "driven", cwd=tmp_path, env=named(config))
    assert "Guide" in reply.stdout


def test_the_example_that_everybody_copies_starts_as_it_is(tmp_path: Path) -> None:
    config = written(tmp_path, "config/ctx.toml", EXAMPLE)
    written(tmp_path, "docs/guide.md", "# Guide\n\nHow the harness is driven.\n")
    reply = ctx("sync", cwd=tmp_path, env=named(config))
    assert reply.returncode == 0, reply.stderr
    assert "filesystem:docs: 1 added" in reply.stdout
    assert {"[vector_index]", "[retrieval] group_by", "[retrieval] doc_agg"} <= set(warned(reply))


@pytest.mark.parametrize("folder", [".", "demo", "demo/config"])
def test_paths_begin_where_they_were_meant_to_wherever_one_stands(folder: str, tmp_path: Path) -> None:
    config = written(tmp_path, "demo/config/ctx.toml", DEMO)
    written(tmp_path, "demo/knowledge-base/vpn.md", "# VPN\n\nThe tunnel is called mole.\n")
    written(tmp_path, "demo/tools/echo.lua", ECHO)
    reply = ctx("sync", "--config", str(config), cwd=tmp_path / folder)
    assert reply.returncode == 0, reply.stderr
    assert "filesystem:acme: 1 added" in reply.stdout
    assert f"paths are taken from {tmp_path}" in reply.stderr
    assert (tmp_path / "demo" / "data" / "ctx.sqlite").exists()
    assert not (tmp_path / "demo" / "demo").exists()
    reply = ctx("tool", "call", "echo", "--config", str(config), cwd=tmp_path / folder)
    assert json.loads(reply.stdout) == {"greeting": "Hello"}
    assert "the environment variable DEMO_API_TOKEN is not set" in reply.stderr
    assert "the script goes without the key" in reply.stderr


def test_a_file_that_was_merely_found_reaches_no_folder_above_its_project(tmp_path: Path) -> None:
    written(tmp_path, "private/letter.md", "# Letter\n")
    written(tmp_path, "clone/ctx.toml", '[connectors.filesystem.docs]\nroot = "./private"\n')
    reply = ctx("index", "--no-embed", cwd=tmp_path / "clone", env={"HOME": str(tmp_path)})
    assert reply.returncode == 1
    assert "the folder cannot be read" in reply.stderr or "root" in reply.stderr


def test_a_database_beside_theirs_stays_in_use_when_theirs_has_gone(tmp_path: Path) -> None:
    config = written(tmp_path, "config/ctx.toml", EXAMPLE)
    written(tmp_path, "docs/guide.md", "# Guide\n\nHow the harness is driven.\n")
    database(tmp_path / "data" / "ctx.sqlite")
    assert ctx("sync", cwd=tmp_path, env=named(config)).returncode == 0
    (tmp_path / "data" / "ctx.sqlite").unlink()
    reply = ctx("sync", cwd=tmp_path, env=named(config))
    assert "filesystem:docs: 1 unchanged" in reply.stdout
    assert not (tmp_path / "data" / "ctx.sqlite").exists()
