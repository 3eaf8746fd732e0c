"""`ctx connect`: entries in clients' files, tried at once, and nothing of the client's lost."""

import base64
import json
import os
import socket
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from kit import ctx, project, trust

from ctx.cli.clients import CLIENTS
from ctx.cli.connect import tools_too_long
from ctx.cli.running import tools_over_stdio

USER_FILES = {
    "amp": ".config/amp/settings.json",
    "antigravity": ".gemini/config/mcp_config.json",
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "codex": ".codex/config.toml",
    "continue": ".continue/mcpServers/ctx.json",
    "copilot-cli": ".copilot/mcp-config.json",
    "cursor": ".cursor/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "kiro": ".kiro/settings/mcp.json",
    "lmstudio": ".lmstudio/mcp.json",
    "opencode": ".config/opencode/opencode.json",
    "vscode": ".config/Code/User/mcp.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "zed": ".config/zed/settings.json",
}
PROJECT_FILES = {
    "amp": ".amp/settings.json",
    "antigravity": ".agents/mcp_config.json",
    "claude-code": ".mcp.json",
    "codex": ".codex/config.toml",
    "continue": ".continue/mcpServers/ctx.json",
    "copilot-cli": ".github/mcp.json",
    "cursor": ".cursor/mcp.json",
    "gemini-cli": ".gemini/settings.json",
    "kiro": ".kiro/settings/mcp.json",
    "opencode": "opencode.json",
    "roo": ".roo/mcp.json",
    "vscode": ".vscode/mcp.json",
    "zed": ".zed/settings.json",
}
KEY = "s3cret-value-of-the-key"
URL = "http://127.0.0.1:7331/mcp"


def _connect(folder: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    home = folder.parent / "home"
    variables = {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **environ}
    return ctx("connect", *arguments, cwd=folder, env=variables)


def _home(folder: Path, client: str) -> Path:
    return folder.parent / "home" / USER_FILES[client]


def _entries(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())["mcp_servers"]
    document = json.loads(path.read_text())
    (key,) = {"mcpServers", "servers", "context_servers", "mcp", "amp.mcpServers"} & document.keys()
    return document[key]


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# -- what is written -----------------------------------------------------------------------------------------


def test_an_entry_starts_ctx_by_name_in_the_project_and_is_tried_at_once(folder: Path) -> None:
    (folder / "docs" / "a.md").write_text("# Alpha\n\nwords\n")
    assert ctx("index", cwd=folder).returncode == 0
    reply = _connect(folder, "claude-code")
    assert reply.returncode == 0, reply.stderr
    assert "Connected: 6 tools, 1 document\n" in reply.stdout
    assert "asks once whether to use" in reply.stdout
    text = (folder / ".mcp.json").read_text()
    assert json.loads(text) == {"mcpServers": {"ctx": {"type": "stdio", "command": "ctx", "args": ["mcp"]}}}
    again = _connect(folder, "claude-code")
    assert "already connected" in again.stdout
    assert "Connected: 6 tools" in again.stdout
    assert (folder / ".mcp.json").read_text() == text
    assert not (folder / ".mcp.json.bak").exists()


def test_the_reply_with_the_tools_may_come_first(tmp_path: Path) -> None:
    listed = {"jsonrpc": "2.0", "id": 2, "result": {"tools": [{"name": "search"}]}}
    begun = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-06-18"}}
    text = f"{json.dumps(listed)}\n{json.dumps(begun)}\n"
    assert tools_over_stdio(("printf", "%s", text), str(tmp_path)) == ["search"]


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_a_projects_file_fits_any_checkout(folder: Path, client: str) -> None:
    printed = _connect(folder, client, "--print").stdout
    path, _, entry = printed.partition("\n")
    assert path == f"# {folder / PROJECT_FILES[client]}"
    assert str(folder) not in entry
    assert '"ctx"' in entry
    assert '"mcp"' in entry
    assert not (folder / PROJECT_FILES[client]).exists()


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the paths are Linux's")
@pytest.mark.parametrize("client", USER_FILES)
def test_a_users_file_names_the_project(folder: Path, client: str) -> None:
    printed = _connect(folder, client, "--user", "--print").stdout
    assert printed.startswith(f"# {_home(folder, client)}\n")
    assert "ctx-project" in printed
    assert f'"{folder / "ctx.toml"}"' in printed


def test_an_address_is_written_as_each_client_reads_it(folder: Path) -> None:
    expected = {
        "cursor": {"url": URL},
        "claude-code": {"type": "http", "url": URL},
        "codex": {"url": URL},
        "windsurf": {"serverUrl": URL},
        "antigravity": {"serverUrl": URL},
        "gemini-cli": {"httpUrl": URL},
        "copilot-cli": {"type": "http", "url": URL, "tools": ["*"]},
        "opencode": {"type": "remote", "url": URL, "enabled": True},
    }
    for client, entry in expected.items():
        text = _connect(folder, client, "--user", "--http", "--print").stdout.split("\n", 1)[1]
        text = text.partition("# One click")[0]
        loads = tomllib.loads if client == "codex" else json.loads
        (table,) = loads(text).values()
        assert table == {"ctx-project": entry}, client
    assert (
        '"--url"' in _connect(folder, "claude-desktop", "--http", "--print").stdout
    )  # it knows no addresses


@pytest.mark.parametrize(
    ("variable", "client", "name"),
    [
        ("CODEX_HOME", "codex", "config.toml"),
        ("CLAUDE_CONFIG_DIR", "claude-code", ".claude.json"),
        ("COPILOT_HOME", "copilot-cli", "mcp-config.json"),
    ],
)
def test_a_clients_own_variable_moves_its_file(folder: Path, variable: str, client: str, name: str) -> None:
    place = folder.parent / "elsewhere"
    printed = _connect(folder, client, "--user", "--print", **{variable: str(place)}).stdout
    assert printed.startswith(f"# {place / name}\n")


def test_without_a_server_an_address_says_how_to_start_one(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # nothing else gets this port, and nothing listens
        port = taken.getsockname()[1]
    with (folder / "ctx.toml").open("a") as config:
        config.write(f'[server]\nbind = "127.0.0.1:{port}"\n')
    trust(folder / "ctx.toml")
    reply = _connect(folder, "cursor", "--http")
    assert reply.returncode == 0
    assert f"no server answers at http://127.0.0.1:{port}/mcp; start it: `ctx serve`" in reply.stdout


def test_a_folder_without_a_configuration_is_connected_too(tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    folder = tmp_path / "notes"
    _written(folder / "n.md", "# Note\n")
    reply = _connect(folder, "cursor")
    assert "Connected: 6 tools, nothing indexed yet" in reply.stdout
    assert _entries(folder / ".cursor/mcp.json") == {"ctx": {"command": "ctx", "args": ["mcp"]}}


def test_a_link_installs_the_entry(folder: Path) -> None:
    cursor = _connect(folder, "cursor", "--print").stdout
    content = unquote(cursor.partition("&config=")[2].strip())
    assert json.loads(base64.b64decode(content)) == {"command": "ctx", "args": ["mcp"]}
    code = _connect(folder, "vscode", "--print").stdout
    entry = json.loads(unquote(code.partition("vscode:mcp/install?")[2]))
    assert entry == {"name": "ctx", "type": "stdio", "command": "ctx", "args": ["mcp"]}


def test_a_key_is_named_and_never_written(folder: Path) -> None:
    for client in USER_FILES:
        arguments = ("--user", "--http", "--key-env", "CTX_KEY", "--print")
        reply = _connect(folder, client, *arguments, CTX_KEY=KEY)
        assert reply.returncode == 0, reply.stderr
        assert "CTX_KEY" in reply.stdout, client
        assert KEY not in reply.stdout + reply.stderr


def test_names_leave_room_for_those_of_tools(tmp_path: Path) -> None:
    folder = tmp_path / "customer-portal-integration-backend"
    folder.mkdir()
    (tmp_path / "home").mkdir()
    project(folder)
    (name,) = json.loads(_connect(folder, "lmstudio", "--print").stdout.split("\n", 1)[1])["mcpServers"]
    assert tools_too_long(name, ["mcp__claude-recall__retrieve_memory"]) == []
    assert tools_too_long("x" * 30, ["mcp__claude-recall__retrieve_memory"]) != []


# -- what was there before -----------------------------------------------------------------------------------


def test_other_servers_settings_and_the_indent_stay(folder: Path) -> None:
    text = '{\n\t"theme": "ü",\n\t"mcpServers": {\n\t\t"other": {\n\t\t\t"command": "x"\n\t\t}\n\t}\n}\n'
    path = _written(folder / ".cursor/mcp.json", text)
    path.chmod(0o640)
    assert _connect(folder, "cursor").returncode == 0
    assert path.read_text().startswith('{\n\t"theme": "ü",\n\t"mcpServers": {\n\t\t"other": {')
    assert _entries(path) == {"other": {"command": "x"}, "ctx": {"command": "ctx", "args": ["mcp"]}}
    assert path.with_name("mcp.json.bak").read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert _connect(folder, "cursor", "--remove").returncode == 0
    assert path.read_text() == text


def test_comments_are_read_and_kept_in_the_backup(folder: Path) -> None:
    text = '// mine\n{\n  "a": "http://x//y,}", /* z */\n  "context_servers": {"x": {"url": "u"},},\n}\n'
    path = _written(folder / ".zed/settings.json", text)
    reply = _connect(folder, "zed")
    assert reply.returncode == 0
    assert "comments" in reply.stderr
    assert "settings.json.bak still has them" in reply.stderr
    assert json.loads(path.read_text())["a"] == "http://x//y,}"
    assert set(_entries(path)) == {"x", "ctx"}
    assert path.with_name("settings.json.bak").read_text() == text


def test_toml_keeps_its_comments_and_tables(folder: Path) -> None:
    text = '# my settings\nmodel = "large"   # keep\n\n[mcp_servers.other]\ncommand = "x"\n\n[profiles.q]\na = 1\n'
    path = _written(folder / ".codex/config.toml", text)
    assert _connect(folder, "codex").returncode == 0
    assert '# my settings\nmodel = "large"   # keep\n' in path.read_text()
    assert tomllib.loads(path.read_text())["profiles"] == {"q": {"a": 1}}
    assert _entries(path)["ctx"] == {"command": "ctx", "args": ["mcp"]}
    assert _connect(folder, "codex", "--remove").returncode == 0
    assert tomllib.loads(path.read_text()) == tomllib.loads(text)


def test_entries_on_both_sides_of_another_table_are_removed(folder: Path) -> None:
    entry = 'command = "ctx"\nargs = ["mcp"]\n'
    text = f"[mcp_servers.ctx]\n{entry}\n[profiles.q]\na = 1\n\n[mcp_servers.ctx-two]\n{entry}"
    path = _written(folder / ".codex/config.toml", text)
    reply = _connect(folder, "codex", "--remove")
    assert (reply.returncode, tomllib.loads(path.read_text())) == (0, {"profiles": {"q": {"a": 1}}})


@pytest.mark.parametrize(
    ("client", "text"),
    [
        ("cursor", '{"mcpServers": []}'),
        ("cursor", "[]"),
        ("cursor", '{"mcpServers": {}, "mcpServers": {}}'),
        ("cursor", "not json"),
        ("zed", "{ /* open\n}"),
        ("codex", "a = \n"),
        ("codex", 'mcp_servers = "x"\n'),
    ],
)
def test_a_file_that_cannot_be_parsed_is_left_alone(folder: Path, client: str, text: str) -> None:
    path = _written(folder / PROJECT_FILES[client], text)
    reply = _connect(folder, client)
    assert reply.returncode == 1
    assert path.read_text() == text
    assert "was not changed" in reply.stderr
    assert "mcp" in reply.stdout


def test_earlier_entries_of_the_same_project_are_replaced(folder: Path) -> None:
    http = {"type": "http", "url": URL}
    other = {"type": "http", "url": "http://127.0.0.1:9000/mcp"}
    user = _written(
        _home(folder, "claude-code"),
        json.dumps({"mcpServers": {"ctx-project": http, "ctx-other": other, "x": http}}),
    )
    shared = _written(folder / ".mcp.json", json.dumps({"mcpServers": {"docs": {**http, "disabled": True}}}))
    assert _connect(folder, "claude-code").returncode == 0
    assert set(_entries(user)) == {"ctx-other", "x"}
    assert set(_entries(shared)) == {"ctx"}
    # And back: the user's entry replaces the project's.
    assert _connect(folder, "claude-code", "--user").returncode == 0
    assert set(_entries(user)) == {"ctx-other", "x", "ctx-project"}
    assert not shared.exists()


def test_what_the_user_set_in_an_entry_stays(folder: Path) -> None:
    path = _written(folder / ".mcp.json", json.dumps({"mcpServers": {"ctx": {"url": URL, "disabled": True}}}))
    assert _connect(folder, "claude-code").returncode == 0
    entry = {"disabled": True, "type": "stdio", "command": "ctx", "args": ["mcp"]}
    assert _entries(path) == {"ctx": entry}


def test_another_server_of_that_name_is_replaced_only_on_demand(folder: Path) -> None:
    path = _written(folder / ".mcp.json", json.dumps({"mcpServers": {"ctx": {"command": "other"}}}))
    refused = _connect(folder, "claude-code")
    assert refused.returncode == 2
    assert "another server 'ctx': other. Use --replace" in refused.stderr
    assert _connect(folder, "claude-code", "--remove").returncode == 3
    assert _connect(folder, "claude-code", "--name", "docs").returncode == 0
    assert set(_entries(path)) == {"ctx", "docs"}
    assert _connect(folder, "claude-code", "--replace").returncode == 0
    assert set(_entries(path)) == {"ctx"}


def test_two_projects_have_entries_of_their_own(folder: Path) -> None:
    second = folder.parent / "My Notes (2)"
    second.mkdir()
    project(second)
    path = _home(folder, "lmstudio")
    assert _connect(folder, "lmstudio").returncode == 0
    assert _connect(second, "lmstudio").returncode == 0
    assert set(_entries(path)) == {"ctx-project", "ctx-my-notes-2"}
    assert _connect(folder, "lmstudio", "--remove").returncode == 0
    assert set(_entries(path)) == {"ctx-my-notes-2"}
    assert _connect(folder, "lmstudio", "--remove").returncode == 3


def test_a_project_that_is_served_elsewhere_is_told_so(folder: Path) -> None:
    config = folder / "ctx.toml"
    config.write_text(config.read_text() + '\n[server]\napi_key_env = "CTX_KEY"\n')
    reply = _connect(folder, "cursor", "--http", "--config", "ctx.toml")
    assert "--key-env CTX_KEY" in reply.stderr


# -- safety --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        ("cursor", "--key-env", KEY),
        ("cursor", "--url", f"https://me:{KEY}@ctx.example"),
        ("cursor", "--url", "nonsense"),
        ("cursor", "--name", "a b"),
        ("windsurf", "--scope", "project"),
        ("emacs",),
        (),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_written(
    folder: Path, arguments: tuple[str, ...]
) -> None:
    assert _connect(folder, *arguments).returncode == 2
    assert list((folder.parent / "home").iterdir()) == []
    assert sorted(path.name for path in folder.iterdir()) == ["ctx.toml", "docs"]


def test_a_dry_run_shows_the_change_and_writes_nothing(folder: Path) -> None:
    reply = _connect(folder, "cursor", "--dry-run")
    assert reply.returncode == 0
    assert '+    "ctx": {' in reply.stdout
    assert not (folder / ".cursor").exists()


def test_a_projects_file_that_a_clone_made_a_link_is_not_followed(folder: Path) -> None:
    target = _written(folder.parent / "home/private.json", "{}")
    (folder / ".mcp.json").symlink_to(target)
    reply = _connect(folder, "claude-code")
    assert reply.returncode == 2
    assert "cannot be written" in reply.stderr
    assert target.read_text() == "{}"


def test_a_users_file_may_be_a_link_and_stays_one(folder: Path) -> None:
    target = _written(folder.parent / "dotfiles/mcp.json", "{}")
    path = _home(folder, "lmstudio")
    path.parent.mkdir()
    path.symlink_to(target)
    assert _connect(folder, "lmstudio").returncode == 0
    assert path.is_symlink()
    assert "ctx-project" in target.read_text()


def test_a_write_protected_file_stays(folder: Path) -> None:
    path = _written(folder / ".mcp.json", "{}")
    path.chmod(0o400)
    reply = _connect(folder, "claude-code")
    assert reply.returncode == 2
    assert "write-protected" in reply.stderr
    assert path.read_text() == "{}"


# -- several clients -----------------------------------------------------------------------------------------


def test_list_shows_every_client(folder: Path) -> None:
    _connect(folder, "cursor")
    rows = {row["client"]: row for row in json.loads(_connect(folder, "--list", "--json").stdout)["clients"]}
    assert set(rows) == set(CLIENTS)
    assert (rows["cursor"]["connected"], rows["cursor"]["entries"]) == (True, ["ctx"])
    assert not rows["zed"]["connected"]
    listing = _connect(folder, "--list").stdout
    assert all(client in listing for client in CLIENTS)


def test_an_entry_to_paste_says_where(folder: Path) -> None:
    for client in ("cline", "goose", "jetbrains", "open-webui"):
        reply = _connect(folder, client)
        assert reply.returncode == 0
        assert CLIENTS[client].then in reply.stderr
        assert "ctx" in reply.stdout
