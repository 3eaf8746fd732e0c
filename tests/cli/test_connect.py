"""`ctx connect`: entries in other programs' files, and nothing else touched."""

import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, project

CLIENTS = ("cursor", "claude-code", "claude-desktop", "vscode", "codex", "windsurf", "lmstudio", "continue")
USER_FILES = {
    "cursor": ".cursor/mcp.json",
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "lmstudio": ".lmstudio/mcp.json",
    "continue": ".continue/mcpServers/ctx.yaml",
}
PROJECT_FILES = {
    "cursor": ".cursor/mcp.json",
    "claude-code": ".mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "continue": ".continue/mcpServers/ctx.yaml",
}
KEY = "s3cret-value-of-the-key"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project beside a home of its own."""
    folder = tmp_path / "project"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    project(folder)
    return folder


def _connect(folder: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    home = folder.parent / "home"
    return ctx(
        "connect",
        *arguments,
        cwd=folder,
        env={"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **environ},
    )


def _home(folder: Path, client: str) -> Path:
    return folder.parent / "home" / USER_FILES[client]


def _entry(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())["mcp_servers"]["ctx"]
    loaded = json.loads(path.read_text())
    return (loaded.get("mcpServers") or loaded.get("servers"))["ctx"]


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the paths are Linux's")
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_connected_in_its_own_file(folder: Path, client: str) -> None:
    done = _connect(folder, client)
    assert done.returncode == 0, done.stderr
    path = _home(folder, client)
    assert str(path) in done.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    again = _connect(folder, client)
    assert (again.returncode, path.read_text()) == (0, text)
    assert "already" in again.stdout
    assert not path.with_name(path.name + ".bak").exists()


def test_the_entries_are_what_each_client_reads(folder: Path) -> None:
    for client in CLIENTS:
        assert _connect(folder, client).returncode == 0
    url = "http://127.0.0.1:7331/mcp"
    assert _entry(_home(folder, "cursor")) == {"url": url}
    assert _entry(_home(folder, "claude-code")) == {"type": "http", "url": url}
    assert json.loads(_home(folder, "vscode").read_text()) == {
        "servers": {"ctx": {"type": "http", "url": url}}
    }
    assert _entry(_home(folder, "codex")) == {"url": url}
    assert _entry(_home(folder, "windsurf")) == {"serverUrl": url}
    assert _entry(_home(folder, "lmstudio")) == {"url": url}
    desktop = _entry(_home(folder, "claude-desktop"))
    assert desktop["args"] == ["mcp", "--config", str(folder / "ctx.toml")]
    assert os.path.isabs(desktop["command"])
    assert "streamable-http" in _home(folder, "continue").read_text()


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_a_projects_file_fits_any_checkout(folder: Path, client: str) -> None:
    assert _connect(folder, client, "--scope", "project", "--stdio").returncode == 0
    text = (folder / PROJECT_FILES[client]).read_text()
    assert str(folder) not in text
    assert '"ctx"' in text
    assert '"mcp"' in text


def test_clients_without_project_files_say_so(folder: Path) -> None:
    for client in set(CLIENTS) - set(PROJECT_FILES):
        done = _connect(folder, client, "--scope", "project")
        assert done.returncode == 2
        assert "--scope user" in done.stderr


ODD = """{
\t"theme":   "dark",
\t"nested": {"list": [1,2,   3], "float": 1.50, "text": "\\u00fc and }{ \\" quotes"},
\t"mcpServers": {
\t\t"other": { "command": "x",   "args": ["--a"] }
\t},
\t"last": null
}
"""


def test_the_rest_of_a_file_stays_byte_for_byte(folder: Path) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.write_text(ODD)
    path.chmod(0o640)
    assert _connect(folder, "cursor").returncode == 0
    added = ',\n\t\t"ctx": {\n\t\t\t"url": "http://127.0.0.1:7331/mcp"\n\t\t}'
    before, after = ODD.split('["--a"] }')
    assert path.read_text() == before + '["--a"] }' + added + after
    assert path.with_name("mcp.json.bak").read_text() == ODD
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(each.name for each in path.parent.iterdir()) == ["mcp.json", "mcp.json.bak"]
    # Another address replaces the entry and nothing else.
    assert _connect(folder, "cursor", "--url", "http://ctx.example:9000", "--bank", "alice").returncode == 0
    assert (
        path.read_text()
        == before + '["--a"] }' + added.replace("127.0.0.1:7331/mcp", "ctx.example:9000/mcp/alice") + after
    )


@pytest.mark.parametrize(
    "text", ["{}", "{ }\n", '{"mcpServers": {}}', '{"a": 1}', "", "\n", '{"mcpServers":{"x":{}},"b":[]}']
)
def test_any_strict_file_takes_the_entry(folder: Path, text: str) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.write_text(text)
    assert _connect(folder, "cursor").returncode == 0
    found = json.loads(path.read_text())
    entries = found["mcpServers"]
    assert entries.pop("ctx") == {"url": "http://127.0.0.1:7331/mcp"}
    expected = json.loads(text) if text.strip() else {}
    assert {**found, "mcpServers": entries} == {"mcpServers": {}, **expected}


@pytest.mark.parametrize(
    "text",
    [
        '// a comment\n{"mcpServers": {}}',
        '{"mcpServers": {},}',
        '{"mcpServers": []}',
        "[]",
        '{"mcpServers": {"a": 1}, "mcpServers": {"b": 2}}',
        "not json",
    ],
)
def test_a_file_that_is_not_strict_is_left_alone_and_the_snippet_printed(folder: Path, text: str) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.write_text(text)
    done = _connect(folder, "cursor")
    assert done.returncode == 1
    assert path.read_text() == text
    assert "left alone" in done.stderr
    assert json.loads(done.stdout) == {"mcpServers": {"ctx": {"url": "http://127.0.0.1:7331/mcp"}}}
    assert not path.with_name("mcp.json.bak").exists()


TOML = """\
# my settings
model = "large"   # keep

[mcp_servers.other]
command = "x"

[mcp_servers.ctx]
url = "http://old.example/mcp"

[mcp_servers.ctx.env]
A = "b"

[profiles.quick]
model = "small"
"""


def test_toml_keeps_its_comments_and_tables(folder: Path) -> None:
    path = _home(folder, "codex")
    path.parent.mkdir()
    path.write_text(TOML)
    assert _connect(folder, "codex", "--key-env", "CTX_KEY").returncode == 0
    expected = TOML.replace(
        '"http://old.example/mcp"', '"http://127.0.0.1:7331/mcp"\nbearer_token_env_var = "CTX_KEY"'
    ).replace('\n[mcp_servers.ctx.env]\nA = "b"\n', "")
    assert path.read_text() == expected
    path.write_text("# nothing yet\n")
    assert _connect(folder, "codex").returncode == 0
    assert path.read_text() == '# nothing yet\n\n[mcp_servers.ctx]\nurl = "http://127.0.0.1:7331/mcp"\n'


@pytest.mark.parametrize("text", ["a = \n", 'mcp_servers = "x"\n', 'mcp_servers = {ctx = {url = "x"}}\n'])
def test_toml_that_cannot_be_edited_is_left_alone(folder: Path, text: str) -> None:
    path = _home(folder, "codex")
    path.parent.mkdir()
    path.write_text(text)
    done = _connect(folder, "codex")
    assert (done.returncode, path.read_text()) == (1, text)
    assert tomllib.loads(done.stdout)["mcp_servers"]["ctx"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_named_and_never_written(folder: Path, client: str) -> None:
    arguments = ("--url", "https://ctx.example") if client == "claude-desktop" else ()
    done = _connect(folder, client, "--key-env", "CTX_KEY", *arguments, CTX_KEY=KEY)
    assert done.returncode == 0, done.stderr
    text = _home(folder, client).read_text()
    assert "CTX_KEY" in text
    assert KEY not in text + done.stdout + done.stderr
    if client in ("claude-desktop", "lmstudio"):  # they know no references: `ctx mcp` reads the variable
        assert _entry(_home(folder, client))["args"][-2:] == ["--key-env", "CTX_KEY"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("cursor", "--key-env", KEY),
        ("cursor", "--url", f"https://me:{KEY}@ctx.example"),
        ("cursor", "--url", "nonsense"),
        ("cursor", "--name", "a b"),
        ("cursor", "--stdio", "--url", "http://x"),
        ("emacs",),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    done = _connect(folder, *arguments)
    assert done.returncode == 2
    assert list((folder.parent / "home").iterdir()) == []


def test_print_and_dry_run_write_nothing(folder: Path) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.write_text(ODD)
    printed = _connect(folder, "cursor", "--print")
    heading, _, snippet = printed.stdout.partition("\n")
    assert (heading, json.loads(snippet)) == (
        f"# {path}",
        {"mcpServers": {"ctx": {"url": "http://127.0.0.1:7331/mcp"}}},
    )
    shown = _connect(folder, "cursor", "--dry-run")
    assert '+\t\t"ctx": {' in shown.stdout
    assert path.read_text() == ODD
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


def test_a_link_to_a_folder_of_dotfiles_stays_a_link(folder: Path) -> None:
    kept = folder.parent / "dotfiles.json"
    kept.write_text("{}")
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.symlink_to(kept)
    assert _connect(folder, "cursor").returncode == 0
    assert path.is_symlink()
    assert "mcpServers" in kept.read_text()


def test_the_address_is_where_the_configured_server_listens(folder: Path) -> None:
    (folder / "ctx.toml").write_text('[server]\nbind = "0.0.0.0:9999"\n')
    refused = _connect(folder, "cursor")  # a stranger's file does not say where an editor connects to
    assert (refused.returncode, "ctx trust ctx.toml" in refused.stderr) == (2, True)
    assert _connect(folder, "cursor", "--config", "ctx.toml").returncode == 0
    assert _entry(_home(folder, "cursor"))["url"] == "http://127.0.0.1:9999/mcp"
