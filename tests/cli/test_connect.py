"""`ctx connect`: entries in other programs' files, and nothing else touched."""

import json
import os
import stat
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from connect_kit import TOML, as_user
from kit import ctx

from ctx.cli.clients import CLIENTS as CATALOGUE
from ctx.cli.entries import strict
from ctx.cli.foreign import write_text
from ctx.errors import ConfigError

USER_FILES = {
    "cursor": ".cursor/mcp.json",
    "claude-code": ".claude.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "vscode": ".config/Code/User/mcp.json",
    "codex": ".codex/config.toml",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "lmstudio": ".lmstudio/mcp.json",
    "continue": ".continue/mcpServers/ctx.yaml",
    "gemini-cli": ".gemini/settings.json",
    "zed": ".config/zed/settings.json",
    "copilot-cli": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
}
CLIENTS = tuple(USER_FILES)
BY_HAND = ("roo", "cline", "goose", "jetbrains", "open-webui")
PROJECT_FILES = {
    "cursor": ".cursor/mcp.json",
    "claude-code": ".mcp.json",
    "vscode": ".vscode/mcp.json",
    "codex": ".codex/config.toml",
    "continue": ".continue/mcpServers/ctx.yaml",
    "gemini-cli": ".gemini/settings.json",
    "zed": ".zed/settings.json",
    "copilot-cli": ".github/mcp.json",
    "opencode": "opencode.json",
    "roo": ".roo/mcp.json",
}
KEY = "s3cret-value-of-the-key"


def _connect(folder: Path, *arguments: str, **environ: str) -> "subprocess.CompletedProcess[str]":
    """As a user whose entries are called `ctx`, whatever the project."""
    home = folder.parent / "home"
    name = () if "--name" in arguments or "--list" in arguments else ("--name", "ctx")
    return ctx(
        "connect",
        *arguments,
        *name,
        cwd=folder,
        env={"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), **environ},
    )


def _home(folder: Path, client: str) -> Path:
    return folder.parent / "home" / USER_FILES[client]


def _entry(path: Path) -> Any:
    if path.suffix == ".toml":
        return tomllib.loads(path.read_text())["mcp_servers"]["ctx"]
    loaded = json.loads(path.read_text())
    (key,) = {"mcpServers", "servers", "context_servers", "mcp"} & loaded.keys()
    return loaded[key]["ctx"]


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="the paths are Linux's")
@pytest.mark.parametrize("client", CLIENTS)
def test_every_client_is_connected_in_its_own_file(folder: Path, client: str) -> None:
    reply = _connect(folder, client)
    assert reply.returncode == 0, reply.stderr
    path = _home(folder, client)
    assert str(path) in reply.stdout
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    text = path.read_text()
    repeat = _connect(folder, client)
    assert (repeat.returncode, path.read_text()) == (0, text)
    assert "already" in repeat.stdout
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
    assert _entry(_home(folder, "gemini-cli")) == {"httpUrl": url}
    assert _entry(_home(folder, "zed")) == {"url": url}
    assert _entry(_home(folder, "copilot-cli")) == {"type": "http", "url": url, "tools": ["*"]}
    assert _entry(_home(folder, "opencode")) == {"type": "remote", "url": url, "enabled": True}


@pytest.mark.parametrize("client", PROJECT_FILES)
def test_a_projects_file_fits_any_checkout(folder: Path, client: str) -> None:
    assert _connect(folder, client, "--scope", "project", "--stdio").returncode == 0
    text = (folder / PROJECT_FILES[client]).read_text()
    assert str(folder) not in text
    assert '"ctx"' in text
    assert '"mcp"' in text


def test_clients_without_project_files_say_so(folder: Path) -> None:
    for client in {*CLIENTS, *BY_HAND} - set(PROJECT_FILES):
        reply = _connect(folder, client, "--scope", "project")
        assert reply.returncode == 2
        assert "--scope user" in reply.stderr


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
    elsewhere = ("cursor", "--url", "http://ctx.example:9000", "--bank", "alice")
    refused = _connect(folder, *elsewhere)
    assert (refused.returncode, "leads to http://127.0.0.1:7331/mcp: --replace" in refused.stderr) == (
        2,
        True,
    )
    assert _connect(folder, *elsewhere, "--replace").returncode == 0
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
    document = json.loads(path.read_text())
    entries = document["mcpServers"]
    assert entries.pop("ctx") == {"url": "http://127.0.0.1:7331/mcp"}
    expected = json.loads(text) if text.strip() else {}
    assert {**document, "mcpServers": entries} == {"mcpServers": {}, **expected}
    assert _connect(folder, "cursor", "--remove").returncode == 0
    assert path.read_text() == text
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


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
    reply = _connect(folder, "cursor")
    assert reply.returncode == 1
    assert path.read_text() == text
    assert "left alone" in reply.stderr
    assert json.loads(reply.stdout) == {"mcpServers": {"ctx": {"url": "http://127.0.0.1:7331/mcp"}}}
    assert not path.with_name("mcp.json.bak").exists()


COMMENTED = [
    '// Zed settings\n//\n{\n  "theme": "One", // dark\n  /* "vim": true, */\n}\n',
    '{\n  // servers\n  "context_servers": {\n    // mine\n    "x": {"url": "http://a//b,}"}, // a, b\n  },\n}\n',
    '{\n  "context_servers": {\n    // none yet\n  }\n  // end\n}\n',
    '{"a": [1, 2,], "context_servers": {"x": {}}}',
    "// nothing yet\n",
]


@pytest.mark.parametrize("text", COMMENTED)
def test_comments_and_trailing_commas_stay_where_a_client_allows_them(folder: Path, text: str) -> None:
    path = _home(folder, "zed")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert _connect(folder, "zed").returncode == 0
    written = path.read_text()
    assert json.loads(strict(written))["context_servers"]["ctx"] == {"url": "http://127.0.0.1:7331/mcp"}
    comments = [line.partition("//")[2] for line in text.splitlines() if "//" in line]
    assert all(comment in written for comment in comments)
    assert "already" in _connect(folder, "zed").stdout
    path.with_suffix(".json.bak").unlink()  # what it was before is not to be had: it is cut out
    path.write_text(written.replace("One", "Two"))
    assert _connect(folder, "zed", "--remove").returncode == 0
    remainder = path.read_text()
    assert all(comment in remainder for comment in comments)
    expected = json.loads(strict(text.replace("One", "Two")) if "{" in text else "{}")
    assert json.loads(strict(remainder)) in (expected, {**expected, "context_servers": {}})


@pytest.mark.parametrize(
    ("text", "remainder"),
    [
        ("// mine\n", "// mine\n{}\n"),  # a value is what OpenCode wants
        ("// mine\n{}\n", "// mine\n{}\n"),
        ("{\n  // mine\n}\n", "{\n  // mine\n}\n"),
        ('{\n  "theme": "x" // mine\n}\n', '{\n  "theme": "x" // mine\n}\n'),
        (
            '{\n  "mcp": {\n    // none\n  }\n}\n',
            '{\n  "mcp": {\n    // none\n  }\n}\n',
        ),
        ("/* mine */ {} // too\n", "/* mine */ {} // too\n"),
    ],
)
def test_no_empty_table_stays_behind_in_settings_with_comments(
    folder: Path, text: str, remainder: str
) -> None:
    path = _home(folder, "opencode")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert _connect(folder, "opencode").returncode == 0
    path.with_suffix(".json.bak").unlink()  # what it was before is not to be had: it is cut out
    assert _connect(folder, "opencode", "--remove").returncode == 0
    assert path.read_text() == remainder


@pytest.mark.parametrize("text", ["{ /* open\n}", '{"a": 1 // }', "{,}", '{"a": 1,,}', "// a\n[1,]"])
def test_what_is_broken_also_with_comments_is_left_alone(folder: Path, text: str) -> None:
    path = _home(folder, "zed")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert _connect(folder, "zed").returncode == 1
    assert path.read_text() == text


def test_toml_keeps_its_comments_and_tables(folder: Path) -> None:
    path = _home(folder, "codex")
    path.parent.mkdir()
    path.write_text(TOML)
    assert _connect(folder, "codex", "--key-env", "CTX_KEY", "--replace").returncode == 0
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
    reply = _connect(folder, "codex", "--replace")
    assert (reply.returncode, path.read_text()) == (1, text)
    assert tomllib.loads(reply.stdout)["mcp_servers"]["ctx"]


@pytest.mark.parametrize("client", CLIENTS)
def test_a_key_is_named_and_never_written(folder: Path, client: str) -> None:
    arguments = ("--url", "https://ctx.example") if client == "claude-desktop" else ()
    reply = _connect(folder, client, "--key-env", "CTX_KEY", *arguments, CTX_KEY=KEY)
    assert reply.returncode == 0, reply.stderr
    text = _home(folder, client).read_text()
    assert "CTX_KEY" in text
    assert KEY not in text + reply.stdout + reply.stderr
    if not CATALOGUE[client].key_by_reference or client == "claude-desktop":  # `ctx mcp` reads the variable
        entry = _entry(_home(folder, client))
        assert (entry.get("args") or entry["command"])[-2:] == ["--key-env", "CTX_KEY"]


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
    reply = _connect(folder, *arguments)
    assert reply.returncode == 2
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
    preview = _connect(folder, "cursor", "--dry-run")
    assert '+\t\t"ctx": {' in preview.stdout
    assert path.read_text() == ODD
    assert [each.name for each in path.parent.iterdir()] == ["mcp.json"]


def test_a_link_to_a_folder_of_dotfiles_stays_a_link(folder: Path) -> None:
    dotfile = folder.parent / "dotfiles.json"
    dotfile.write_text("{}")
    path = _home(folder, "cursor")
    path.parent.mkdir()
    path.symlink_to(dotfile)
    assert _connect(folder, "cursor").returncode == 0
    assert path.is_symlink()
    assert "mcpServers" in dotfile.read_text()


@pytest.mark.parametrize("client", ["continue", "claude-code", "codex"])
@pytest.mark.parametrize("linked", ["file", "folder"])
def test_a_link_that_a_clone_brought_is_not_followed(folder: Path, client: str, linked: str) -> None:
    path = folder / PROJECT_FILES[client]
    precious = folder.parent / "home" / path.name
    precious.write_text("")
    if linked == "folder" and path.parent != folder:
        path = path.parent
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(precious.parent if path.name != precious.name else precious)
    reply = _connect(folder, client, "--scope", "project")
    assert (reply.returncode, "is a link" in reply.stderr) == (2, True)
    assert [(each.name, each.read_text()) for each in precious.parent.iterdir()] == [(precious.name, "")]


@pytest.mark.parametrize("before", ["{}", None])
def test_what_a_client_wrote_meanwhile_is_not_lost(tmp_path: Path, before: str | None) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"sessions": 7}')
    with pytest.raises(ConfigError, match="was changed meanwhile"):
        write_text(str(path), '{"mcpServers": {}}', before=before, private=True)
    assert path.read_text() == '{"sessions": 7}'
    assert [each.name for each in tmp_path.iterdir()] == ["mcp.json"]


def test_a_yaml_file_of_somebody_else_s_is_left_alone(folder: Path) -> None:
    path = folder / PROJECT_FILES["continue"]
    path.parent.mkdir(parents=True)
    path.write_text("mcpServers:\n  - name: other\n    url: http://example.com\n")
    reply = _connect(folder, "continue", "--scope", "project")
    assert (reply.returncode, "left alone" in reply.stderr) == (1, True)
    assert "example.com" in path.read_text()


@pytest.mark.parametrize(
    ("client", "text", "reason"),
    [
        ("continue", "mcpServers: &all\n  - name: ctx\n  - *all\n", "it has an alias"),
        ("continue", "mcpServers:\n  - &own\n    name: ctx\n    url: *own\n", "it has an alias"),
        ("continue", "[" * 20_000 + "]" * 20_000, "it is nested too deep"),
        ("cursor", '{"a":' * 100_000 + "1" + "}" * 100_000, "it is nested too deep"),
        ("codex", "a = " + "[" * 20_000, "it is nested too deep"),
    ],
)
def test_a_file_that_holds_itself_or_has_no_end_is_left_alone(
    folder: Path, client: str, text: str, reason: str
) -> None:
    path = folder / PROJECT_FILES[client]
    path.parent.mkdir(parents=True)
    path.write_text(text)
    for options in ((), ("--remove",), ("--replace",)):
        reply = _connect(folder, client, "--scope", "project", *options)
        assert (reply.returncode != 0, "Traceback" in reply.stderr) == (True, False), reply.stderr
        assert f"{path} is " in reply.stderr
        assert reason in reply.stderr.split("left alone")[0]
    assert path.read_text() == text


@pytest.mark.parametrize("arguments", [None, 7, "run", {"a": "b"}])
def test_an_entry_whose_arguments_are_no_list_is_anothers(folder: Path, arguments: object) -> None:
    path = folder / PROJECT_FILES["cursor"]
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"mcpServers": {"ctx": {"command": "other", "args": arguments}}}))
    reply = _connect(folder, "cursor", "--scope", "project")
    assert (reply.returncode, "leads to other:" in reply.stderr) == (2, True), reply.stderr


def test_the_address_is_where_the_configured_server_listens(folder: Path) -> None:
    (folder / "ctx.toml").write_text('[server]\nbind = "0.0.0.0:9999"\n')
    refused = _connect(folder, "cursor")  # a stranger's file does not say where an editor connects to
    assert (refused.returncode, "ctx trust ctx.toml" in refused.stderr) == (2, True)
    assert _connect(folder, "cursor", "--config", "ctx.toml").returncode == 0
    assert _entry(_home(folder, "cursor"))["url"] == "http://127.0.0.1:9999/mcp"


@pytest.mark.slow
def test_what_connect_wrote_it_takes_out_again_and_a_file_of_its_own_goes(folder: Path) -> None:
    for client in CLIENTS:
        assert _connect(folder, client).returncode == 0
        assert _connect(folder, client, "--remove").returncode == 0
        assert not _home(folder, client).exists()
        refusal = _connect(folder, client, "--remove")
        assert (refusal.returncode, "has no entry 'ctx'" in refusal.stderr) == (3, True)


@pytest.mark.parametrize("client", BY_HAND)
def test_a_client_without_a_file_to_edit_is_given_its_entry_to_paste(folder: Path, client: str) -> None:
    reply = as_user(folder, client)
    assert reply.returncode == 0, reply.stderr
    assert "is configured by hand: " in reply.stderr
    assert json.loads(reply.stdout)
    assert list((folder.parent / "home").iterdir()) == []


def test_the_list_tells_what_is_installed_and_connected(folder: Path) -> None:
    (folder.parent / "home" / ".cursor").mkdir()
    (folder.parent / "home" / ".codex").mkdir()
    connected = as_user(folder, "--all")
    assert connected.returncode == 0, connected.stderr
    reply = json.loads(as_user(folder, "--list", "--json").stdout)
    assert reply["name"] == "ctx-project"
    rows = {row["client"]: row for row in reply["clients"]}
    assert [name for name, row in rows.items() if row["connected"]] == ["codex", "cursor"]
    assert rows["codex"]["entries"] == ["ctx-project"]
    assert not rows["zed"]["installed"]
    assert as_user(folder, "--all", "--remove").returncode == 0
    assert not _home(folder, "cursor").exists()


def test_every_client_names_the_page_it_was_written_after() -> None:
    for client in CATALOGUE.values():
        assert client.source.startswith("https://")
        assert client.checked.startswith("2026-11")
        assert client.then


def test_an_unknown_client_is_given_the_address(folder: Path) -> None:
    reply = as_user(folder, "emacs")
    assert reply.returncode == 2
    assert "http://127.0.0.1:7331/mcp" in reply.stderr
    assert "did you mean 'cursor'?" in as_user(folder, "cursr").stderr


def test_a_folder_without_a_project_is_told_where_its_entry_leads(tmp_path: Path) -> None:
    (tmp_path / "home" / "nowhere").mkdir(parents=True)
    environ = {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "home" / ".config")}
    reply = ctx("connect", "cursor", cwd=tmp_path / "home" / "nowhere", env=environ)
    assert reply.returncode == 0
    assert "no ctx.toml here" in reply.stderr
    named = ("connect", "windsurf", "--url", "http://127.0.0.1:7332")
    assert ctx(*named, cwd=tmp_path / "home" / "nowhere", env=environ).stderr == ""


OTHERS = (
    '{"mcpServers": {"ctx": {"url": "https://other.example/mcp"}, "github": {"command": "npx", "env": '
    '{"TOKEN": "t"}}}}'
)


@pytest.mark.parametrize("name", ["ctx", "github"])
@pytest.mark.parametrize("arguments", [("cursor",), ("--all",)], ids=["one", "all"])
def test_what_another_wrote_is_not_taken_out(folder: Path, name: str, arguments: tuple[str, ...]) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir(parents=True)
    path.write_text(OTHERS)
    reply = _connect(folder, *arguments, "--remove", "--name", name)
    assert "not this project's" in reply.stderr
    assert reply.returncode == (2 if arguments == ("cursor",) else 1)
    assert path.read_text() == OTHERS
    assert _connect(folder, "cursor", "--remove", "--replace", "--name", name).returncode == 0
    assert name not in json.loads(path.read_text())["mcpServers"]


def test_an_entry_with_the_address_that_is_named_is_taken_out(folder: Path) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir(parents=True)
    path.write_text(OTHERS)
    assert _connect(folder, "cursor", "--remove", "--url", "https://other.example").returncode == 0
    assert list(json.loads(path.read_text())["mcpServers"]) == ["github"]


def test_what_the_user_set_in_our_entry_stays_and_goes_with_it(folder: Path) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir(parents=True)
    entry = {"url": "http://127.0.0.1:7331/mcp", "disabled": True, "headers": {"X": "y"}}
    path.write_text(json.dumps({"mcpServers": {"ctx": entry}}))
    before = path.read_text()
    assert "connected already" in _connect(folder, "cursor").stdout
    assert path.read_text() == before
    assert _connect(folder, "cursor", "--key-env", "KEY").returncode == 0
    assert _entry(path) == {
        **entry,
        "headers": {"X": "y", "Authorization": "Bearer ${env:KEY}"},
    }
    assert _connect(folder, "cursor", "--remove").returncode == 0
    assert not path.exists()
    assert _connect(folder, "cursor", "--remove").returncode == 3


def test_a_file_that_cannot_be_read_does_not_keep_the_others_from_the_list(folder: Path) -> None:
    _home(folder, "cursor").mkdir(parents=True)
    _home(folder, "claude-code").write_text('{"mcpServers": {}, // mine\n}')
    codex = _home(folder, "codex")
    codex.parent.mkdir(parents=True)
    os.mkfifo(codex)
    assert _connect(folder, "windsurf").returncode == 0
    reply = _connect(folder, "--list")
    assert reply.returncode == 0
    assert "Is a directory" in reply.stderr
    assert "config.toml cannot be read: it is no file" in reply.stderr
    assert ".claude.json is not strict JSON" in reply.stderr
    assert "mcp_config.json" in reply.stdout
    for client in ("cursor", "codex"):
        assert "cannot be read" in _connect(folder, client).stderr
    assert "delete 'ctx' in it" in _connect(folder, "claude-code", "--remove").stderr


def test_a_write_protected_file_is_left_alone(folder: Path) -> None:
    path = _home(folder, "cursor")
    path.parent.mkdir(parents=True)
    path.write_text("{}")
    path.chmod(0o444)
    assert "chmod u+w" in _connect(folder, "cursor").stderr
    assert path.read_text() == "{}"


@pytest.mark.parametrize(
    ("option", "value", "mend"),
    [
        ("--bank", "a b", "a bank id has"),
        ("--bank", "pack:sekha", "is reserved"),
        ("--url", "http://a b", "--url must be an address"),
        ("--url", "http://a/\u202e", "--url must be an address"),
    ],
)
def test_an_entry_that_could_never_answer_is_not_written(
    folder: Path, option: str, value: str, mend: str
) -> None:
    reply = _connect(folder, "cursor", option, value)
    assert (reply.returncode, mend in reply.stderr) == (2, True)
    assert not _home(folder, "cursor").exists()
