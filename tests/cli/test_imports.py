"""Moving from Context Harness: its configurations start as they are, and `ctx import` turns one into ours."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from harness_kit import DEMO, EXAMPLE, OWN, database
from kit import ctx, named, project

ECHO = """
tool = { name = "echo", description = "Says it again", parameters = {} }
function tool.execute(params, context)
  return { greeting = context.config.greeting, token = context.config.api_token }
end
"""

SCAN = """
connector = {}
function connector.scan(config)
  return { { source_id = config.prefix .. "-1", body = "A body." } }
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
    return [re.split(r"ctx\.toml(?::\d+)?: ", line)[-1].split(" has no effect")[0] for line in lines]


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
    assert any("ctx.sqlite belongs to Context Harness and is not changed" in key for key in keys)
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
    assert f"paths are relative to {tmp_path}" in reply.stderr
    assert (tmp_path / "demo" / "data" / "ctx.sqlite").exists()
    assert not (tmp_path / "demo" / "demo").exists()
    reply = ctx("tool", "call", "echo", "--config", str(config), cwd=tmp_path / folder)
    assert json.loads(reply.stdout) == {"greeting": "Hello"}
    assert "the environment variable DEMO_API_TOKEN is not set" in reply.stderr
    assert "the script does not get this key" in reply.stderr


def test_a_file_that_was_merely_found_reaches_no_folder_above_its_project(tmp_path: Path) -> None:
    written(tmp_path, "private/letter.md", "# Letter\n")
    written(tmp_path, "clone/ctx.toml", '[connectors.filesystem.docs]\nroot = "./private"\n')
    reply = ctx("index", "--no-embed", cwd=tmp_path / "clone", env={"HOME": str(tmp_path)})
    assert reply.returncode == 1
    assert "the folder cannot be read" in reply.stderr or "root" in reply.stderr


def test_paths_begin_in_no_folder_that_everybody_may_write_in(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    config = written(tmp_path, "shared/mine/config/ctx.toml", DEMO)
    written(tmp_path, "shared/demo/knowledge-base/vpn.md", "# VPN\n\nThe tunnel is called mole.\n")
    written(tmp_path, "shared/demo/tools/echo.lua", ECHO)
    shared.chmod(0o1777)
    reply = ctx("sync", "--config", str(config), cwd=tmp_path)
    assert "paths are relative to" not in reply.stderr
    assert "demo/tools/echo.lua" in reply.stderr
    assert reply.returncode == 2
    shared.chmod(0o755)
    assert "paths are relative to" in ctx("sync", "--config", str(config), cwd=tmp_path).stderr


def test_a_database_beside_theirs_stays_in_use_when_theirs_has_gone(tmp_path: Path) -> None:
    config = written(tmp_path, "config/ctx.toml", EXAMPLE)
    written(tmp_path, "docs/guide.md", "# Guide\n\nHow the harness is driven.\n")
    database(tmp_path / "data" / "ctx.sqlite")
    assert ctx("sync", cwd=tmp_path, env=named(config)).returncode == 0
    (tmp_path / "data" / "ctx.sqlite").unlink()
    reply = ctx("sync", cwd=tmp_path, env=named(config))
    assert "filesystem:docs: 1 unchanged" in reply.stdout
    assert not (tmp_path / "data" / "ctx.sqlite").exists()


def test_a_part_of_a_source_is_taken_by_date_and_number_and_deletes_nothing(tmp_path: Path) -> None:
    files = {f"{number}.md": f"# Page {number}\n\nSome text.\n" for number in range(6)}
    project(tmp_path, files)
    for number in range(6):
        moment = 1_700_000_000 + number * 86_400  # 2023-11-14 to -19, 22:13 UTC
        os.utime(tmp_path / "docs" / f"{number}.md", (moment, moment))
    reply = ctx("sync", "--since", "2023-11-15", "--until", "2023-11-17", cwd=tmp_path)
    assert "filesystem:docs: 3 added" in reply.stdout, reply.stderr
    (tmp_path / "docs" / "1.md").unlink()
    assert "would be added" in ctx("sync", "--limit", "1", "--dry-run", cwd=tmp_path).stdout
    reply = ctx("sync", "--limit", "2", cwd=tmp_path)
    assert "filesystem:docs: 2 added" in reply.stdout
    assert "deleted" not in reply.stdout
    reply = ctx("sync", "--limit", "2", cwd=tmp_path)  # goes on where the last one stopped
    assert "filesystem:docs: 1 added" in reply.stdout
    reply = ctx("index", cwd=tmp_path)
    assert "1 deleted" in reply.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--since", "yesterday"), "--since: 'yesterday' is not a date or time such as 2026-05-03"),
        (("--limit", "0"), "-n/--limit: expected a whole number of 1 or more"),
        (("--limit", "3", "--prune"), "--prune needs whole sources"),
    ],
)
def test_a_part_that_is_none_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    project(tmp_path)
    reply = ctx("index", *arguments, cwd=tmp_path)
    assert reply.returncode == 2
    assert words in reply.stderr


def test_progress_is_a_line_of_json_for_a_program(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nText.\n", "b.md": "# B\n\nText.\n"})
    reply = ctx("sync", "all", "--progress", "json", cwd=tmp_path)
    assert reply.returncode == 0
    assert "filesystem:docs: 2 added" in reply.stdout
    events = [json.loads(line) for line in reply.stderr.splitlines()]
    assert events[-1] == {
        "event": "progress",
        "connector": "filesystem:docs",
        "phase": "ingesting",
        "n": 2,
        "total": 2,
    }


def test_a_test_of_a_script_takes_the_settings_that_source_names(tmp_path: Path) -> None:
    written(tmp_path, "tools/echo.lua", ECHO)
    written(tmp_path, "scan.lua", SCAN)
    entries = "".join(
        f'[tools.script.{name}]\npath = "./tools/echo.lua"\ngreeting = "{name}"\n'
        f'[connectors.script.{name}]\npath = "./scan.lua"\nprefix = "{name}"\n'
        for name in ("one", "two")
    )
    config = written(tmp_path, "ctx.toml", entries)
    reply = ctx("tool", "test", "tools/echo.lua", "--source", "two", cwd=tmp_path, env=named(config))
    assert json.loads(reply.stdout) == {"greeting": "two"}, reply.stderr
    reply = ctx("connector", "test", "scan.lua", "--source", "script:two", cwd=tmp_path, env=named(config))
    assert "two-1" in reply.stdout, reply.stderr
    reply = ctx("tool", "test", "tools/echo.lua", "--source", "tow", cwd=tmp_path, env=named(config))
    assert reply.returncode == 2
    assert "--source: no entry called 'tow'; did you mean 'two'?" in reply.stderr


def test_the_size_of_a_batch_is_asked_of_the_service(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nText.\n"})
    reply = ctx("embed", "pending", "--batch-size", "0", cwd=tmp_path)
    assert "--batch-size: expected a whole number of 1 or more" in reply.stderr
    reply = ctx("embed", "pending", "--batch-size", "8", cwd=tmp_path)
    assert "embeddings are disabled" in reply.stderr


def test_import_writes_a_configuration_that_finds_the_same_and_says_what_differs(tmp_path: Path) -> None:
    scripts = """
[tools.script.jira]
path = "./tools/jira.lua"
api_token = "${JIRA_API_TOKEN}"
"""
    written(tmp_path, "config/ctx.toml", OWN + scripts)
    written(tmp_path, "docs/guide.md", "# Guide\n\nHow the harness is driven.\n")
    written(tmp_path, "tools/jira.lua", ECHO + 'local key = env.get("JIRA_KEY")\n')
    upstream(tmp_path)
    reply = ctx("import", "context-harness", "config/ctx.toml", cwd=tmp_path)
    assert reply.returncode == 0, reply.stderr
    for words in (
        "[db] path: ./data/ctx.sqlite is not read and not changed",
        "[registries] is left out",
        "[tools.script.jira] may read only these variables: JIRA_KEY",
        "documents have new ids",
        "Trusted from now on, as it is written here",
        "  - it runs the script ./tools/jira.lua",
    ):
        assert words in reply.stdout
    tables = tomllib.loads((tmp_path / "ctx.toml").read_text())
    assert tables["tools"]["script"]["jira"] == {
        "path": "./tools/jira.lua",
        "api_token": "${JIRA_API_TOKEN}",
        "env": ["JIRA_KEY"],
    }
    reply = ctx("index", cwd=tmp_path, env={"XDG_CACHE_HOME": str(tmp_path / "cache")})  # trusted as written
    assert "filesystem:root: 1 added" in reply.stdout, reply.stderr
    assert "has no effect" not in reply.stderr
    assert "Guide" in ctx("search", "driven", cwd=tmp_path).stdout


def test_import_replaces_nothing_and_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    written(tmp_path, "config/ctx.toml", EXAMPLE)
    written(tmp_path, "docs/guide.md", "# Guide\n")
    reply = ctx("import", "context-harness", "config/ctx.toml", "--dry-run", cwd=tmp_path)
    assert tomllib.loads(reply.stdout)["connectors"]["filesystem"]["docs"]["root"] == "./docs"
    assert not (tmp_path / "ctx.toml").exists()
    written(tmp_path, "ctx.toml", "# mine\n")
    reply = ctx("import", "context-harness", "config/ctx.toml", cwd=tmp_path)
    assert reply.returncode == 2
    assert "ctx.toml is there already; nothing was written" in reply.stderr
    assert (tmp_path / "ctx.toml").read_text() == "# mine\n"


def test_import_reads_no_more_of_what_is_named_as_a_script_than_a_script_has(tmp_path: Path) -> None:
    """A file that somebody sent may name any file of the machine as one."""
    with open(tmp_path / "disk.img", "wb") as file:
        file.truncate(1 << 42)
    written(tmp_path, "theirs.toml", '[tools.script.disk]\npath = "./disk.img"\n')
    reply = ctx("import", "context-harness", "theirs.toml", "--dry-run", cwd=tmp_path)
    assert "Traceback" not in reply.stderr
    assert "disk.img" in reply.stdout


def test_import_into_another_folder_keeps_what_paths_mean(tmp_path: Path) -> None:
    written(tmp_path, "demo/config/ctx.toml", DEMO)
    written(tmp_path, "demo/knowledge-base/vpn.md", "# VPN\n")
    written(tmp_path, "demo/tools/echo.lua", ECHO)
    config = ["demo/config/ctx.toml", "--output", "demo/ctx.toml"]
    reply = ctx("import", "context-harness", *config, "--json", cwd=tmp_path)
    assert json.loads(reply.stdout)["problems"] == []
    tables = tomllib.loads((tmp_path / "demo" / "ctx.toml").read_text())
    assert tables["connectors"]["filesystem"]["acme"]["root"] == "./knowledge-base"
    assert tables["tools"]["script"]["echo"]["path"] == "./tools/echo.lua"


def test_import_names_what_keeps_the_new_file_from_starting(tmp_path: Path) -> None:
    written(tmp_path, "config/ctx.toml", '[tools.script.gone]\npath = "./gone.lua"\n')
    reply = ctx("import", "context-harness", "config/ctx.toml", cwd=tmp_path)
    assert reply.returncode == 1
    assert "Not ready yet: ctx.toml: [tools.script.gone] path: no such file: ./gone.lua" in reply.stderr
    assert "Traceback" not in ctx("import", "context-harness", "nothing.toml", cwd=tmp_path).stderr


def test_an_import_writes_outside_of_the_files_own_folder_only_where_that_is_named(tmp_path: Path) -> None:
    config = written(tmp_path, "demo/config/ctx.toml", DEMO)
    written(tmp_path, "demo/knowledge-base/vpn.md", "# VPN\n\nThe tunnel is called mole.\n")
    written(tmp_path, "demo/tools/echo.lua", ECHO)
    reply = ctx("import", "context-harness", str(config), cwd=tmp_path / "demo")
    assert reply.returncode == 2
    assert f"add `--output {tmp_path}/ctx.toml`" in reply.stderr
    assert not (tmp_path / "ctx.toml").exists()
    named_reply = ctx(
        "import",
        "context-harness",
        str(config),
        "--output",
        str(tmp_path / "ctx.toml"),
        cwd=tmp_path / "demo",
    )
    assert (tmp_path / "ctx.toml").exists(), named_reply.stderr
