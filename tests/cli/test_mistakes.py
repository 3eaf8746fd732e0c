"""Mistakes that people make in their first ten minutes: what each is told, where it is, how to mend
it.
"""

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from kit import ctx, project
from web_api import Asked, Reply, serving_api

from ctx.cli import main

FILES = {"auth.md": "# Signing in\n\nTokens rotate.\n", "guide/auth.md": "# Guide\n\nwords\n"}


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    project(folder, FILES)
    assert ctx("index", cwd=folder).returncode == 0
    return folder


def message(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: list[str]
) -> str:
    """The one line of an error, in this process: forty of them would be half a minute of imports."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder / "no-such-folder"))
    monkeypatch.delenv("CTX_CONFIG", raising=False)
    umask = os.umask(0o022)
    try:
        code = main(line)
    finally:
        os.umask(umask)
    printed = capsys.readouterr()
    assert code in (1, 2, 3, 4), printed
    assert "Traceback" not in printed.err
    errors = [row for row in printed.err.splitlines() if row.startswith("Error: ")]
    assert len(errors) == 1
    return errors[0]


COMMANDS = [
    (["get", "nowhere.md"], ("no document at 'nowhere.md'", "search finds paths and words")),
    (["get", "auht.md"], ("no document at 'auht.md'", "near it: auth.md")),
    (
        ["get", "auth.md:9000"],
        ("Error: the first line must be at most the document's last line, 3, got 9000",),
    ),
    (["get", "auth.md:0"], ("Error: the first line must be at least 1, got 0",)),
    (["get", "auth.md:3-1"], ("Error: the last line must be at least the first line, 3, got 1",)),
    (["get", "auth.md", "--max-tokens", "1"], ("Error: --max-tokens must be at least 50, got 1",)),
    (["search", "x", "--since", "yesterday"], ("Error: --since must be an ISO 8601 date", '"yesterday"')),
    (["search", "x", "--until=soon"], ("Error: --until must be an ISO 8601 date", '"soon"')),
    (["search", "x", "--path", ""], ("Error: --path must have at least 1 character",)),
    (["search", "x", "--source", "a", "--source", ""], ("Error: --source must have at least 1 character",)),
    (["search", "x", "--per-document", "99"], ("Error: --per-document must be at most 10, got 99",)),
    (
        ["memory", "list", "--since", "soon"],
        ("argument --since: 'soon' is not a date or time such as 2026-",),
    ),
    (["memory", "search", "x", "--as-of", "soon"], ("argument --as-of: 'soon' is not a date or time",)),
    (["memory", "edit", "id", "--said", "soon"], ("argument --said: 'soon' is not a date or time",)),
    (["embed", "pending", "--limit", "0"], ("argument -n/--limit: expected a whole number of 1 or more",)),
    (["get"], ("required: ID|PATH[:LINE|#NAME]", "`ctx get --help`")),
    (["tool", "call", "search", '{"query": 1}'], ("give values as KEY=VALUE",)),
    (["tool", "call", "search", "--param", "query"], ("'query' is not KEY=VALUE",)),
    (["tool", "call", "search", "limit=3"], ("missing required parameter: query",)),
    (["tool", "call", "search", "query=x", "limit=many"], ("'limit' must be of type 'integer'",)),
    (["tool", "call", "serch"], ("no tool registered with name: serch", "did you mean 'search'?")),
    (["tool", "call", "nothing"], ("no tool registered with name: nothing", "known: get, outline, refresh")),
    (["tool", "test", "nowhere.lua"], ("no such script: nowhere.lua", "`ctx tool init NAME`")),
    (["connector", "test", "nowhere.lua"], ("no such script: nowhere.lua", "`ctx connector init NAME`")),
    (["agent", "test", "nowhere.lua"], ("no such script: nowhere.lua", "`ctx agent init NAME`")),
    (["tool", "init", "search"], ("'search' is a built-in tool", "another name")),
    (["tool", "init", "a b"], ("'a b': a name must have 1 to 64 of the characters A-Z a-z 0-9 _ -",)),
    (["migrate"], ("name the target (--to) or the origin (--from)",)),
    (["migrate", "--to", "mysql://me:secret@db/x"], ("--to: 'mysql' is not supported",)),
    (["migrate", "--to", "elsewhere.db"], ("one of the two must be a database", "`ctx backup`")),
    (["serve", "--port", "8080"], ("--port", "did you mean --bind?")),
    (["serve", "rest"], ("'rest' is not served separately", "`ctx serve` serves REST, MCP and the page")),
    (["serve", "mcp", "--bind", "7331"], ("HOST:PORT such as 127.0.0.1:7331", "'7331'")),
    (["serve", "mcp", "--bind", "0.0.0.0:0"], ("accepts other machines", "ctx key create NAME")),
    (["serve", "mcp", "--port", "80"], ("--port 80", "did you mean --bind?", "`ctx serve --help`")),
    (["index", "--ful"], ("unrecognized arguments: --ful", "did you mean --full?")),
    (["search", "x", "-k", "5"], ("unrecognized arguments: -k", "did you mean --limit?")),
    (["serch", "x"], ("unknown command 'serch'", "did you mean `ctx search`?")),
    (["add", "nowhere"], ("nowhere does not exist",)),
    (["add", "docs/auth.md"], ("docs/auth.md is a file; add its folder",)),
    (["add", "/"], ("/ is the whole disk",)),
    (["add", "~"], ("is your whole home folder",)),
    (["add", "."], ("contains the source 'filesystem:docs'", "`ctx remove filesystem:docs` first")),
    (["add", "docs"], ("is already indexed with the source 'filesystem:docs'",)),
    (["add", "ftp://example.org/x"], ("'ftp://' is not supported",)),
    (["add", "https://"], ("https:// names no host",)),
    (["add", "http://[x"], ("http://[x is not an address",)),
    (
        ["add", "https://example.org/", "--name", "a/b"],
        ("[connectors.web.a/b]", "a name must have 1 to 64 of"),
    ),
    (["remove", "nothing"], ("no source 'nothing'", "`ctx status`")),
    (["--verbose", "search"], ("unrecognized arguments: --verbose", "`ctx --help`")),
    (["--config"], ("argument --config: expected one argument",)),
    (["--config", "nowhere.toml", "search", "x"], ("no such file: nowhere.toml", "`ctx init` writes one")),
    (["search"], ("required: query", "`ctx search --help`")),
    (["search", ""], ("the query must have at least 1",)),
    (["search", "x", "--limit", "0"], ("Error: --limit must be at least 1, got 0",)),
    (["search", "x", "--limit", "1000"], ("Error: --limit must be at most 100, got 1000",)),
    (["search", "x", "--mode", "fuzzy"], ("invalid choice: 'fuzzy'", "keyword")),
    (
        ["search", "x", "--mode", "hybrid"],
        ("embeddings are disabled", "set [embedding] provider in ctx.toml"),
    ),
    (["index", "nowhere"], ("unknown source 'nowhere'", "known: filesystem:docs")),
    (["index", "docs", "--prune"], ("leave out the names of sources",)),
    (["embed", "pending"], ("embeddings are disabled", "[embedding] provider")),
    (["key", "revoke", "nobody"], ("no valid key is called 'nobody'", "`ctx key list`")),
    (["agent", "test", "nobody"], ("no agent registered with name: nobody", "`ctx agent init NAME`")),
    (
        ["export", "-o", "/nowhere/at/all.json"],
        ("/nowhere/at/all.json cannot be written", "a file that you can write"),
    ),
    (["connect"], ("name a client", "cursor", "or --list")),
    (["connect", "cursr"], ("unknown client 'cursr'", "did you mean 'cursor'?", "http://127.0.0.1:7331/mcp")),
    (["connect", "cursor", "--key-env", "s3cret value"], ("takes the name of an environment variable",)),
    (["service", "remove"], ("this project has no unit installed", "`ctx service install`")),
    (["completions", "tcsh"], ("invalid choice: 'tcsh'", "bash")),
    (["completions"], ("required: bash|zsh|fish;",)),
    (["embed"], ("required: pending|rebuild|prune;",)),
    (["eval", "nowhere.tsv"], ("Error: nowhere.tsv cannot be read: No such file or directory",)),
    (["backup", "/nowhere/at/all"], ("no folder /nowhere/at to write a backup to", "create it first")),
]


@pytest.mark.parametrize(("line", "words"), COMMANDS, ids=lambda value: " ".join(value)[:50])
def test_a_mistaken_command_is_told_what_is_wrong_and_what_mends_it(
    indexed: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    line: list[str],
    words: tuple[str, ...],
) -> None:
    error = message(indexed, monkeypatch, capsys, line)
    assert all(word in error for word in words), error


CONFIGURATIONS = [
    ("[server]\nport = 80\n", ("ctx.toml:2: [server] port: unknown key; known: ", "bind")),
    ("[connectors.filesystem.docs]\nroot = docs\n", ("ctx.toml: is not TOML", "text must be in quotes")),
    ('[connectors.filesystem.docs]\nroot = "${UNSET_IN_TESTS}"\n', ("UNSET_IN_TESTS is not set; export it",)),
    ('[connectors.filesystem.docs]\nroot = "docs"\ninclude_globs = "*.pdf"\n', ("include_globs", "list")),
    (
        '[connectors.filesystem.docs]\nroot = "docs"\n[db]\npath = "/proc/nowhere/ctx.db"\n',
        ("the catalog cannot be made in the folder `nowhere` ([db] path)",),
    ),
    ('[packs]\nenabled = ["mem0"]\n', ("mem0", "hindsight")),
    ('[tools.script.a]\npath = "./nowhere.lua"\n', ("[tools.script.a] path: no such file: ./nowhere.lua",)),
]


@pytest.mark.parametrize(("config", "words"), CONFIGURATIONS)
def test_a_mistake_in_the_configuration_is_told_with_its_place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    config: str,
    words: tuple[str, ...],
) -> None:
    path = project(tmp_path, config=config)
    error = message(tmp_path, monkeypatch, capsys, ["--config", str(path), "index", "--no-embed"])
    assert all(word in error for word in words), error


def test_a_folder_below_the_project_is_in_the_project(indexed: Path) -> None:
    assert ctx("search", "rotate", cwd=indexed / "docs" / "guide").returncode == 0


def test_a_root_or_a_remote_that_is_not_there_is_named_once_with_where_it_was_looked_for(
    tmp_path: Path,
) -> None:
    path = project(
        tmp_path,
        config='[connectors.filesystem.docs]\nroot = "./absent"\n'
        '[connectors.git.code]\nurl = "/nope/code.git"\n'
        '[embedding]\nprovider = "disabled"\n',
    )
    reply = ctx("index", "--config", str(path), cwd=tmp_path)
    assert reply.returncode == 1
    assert f"  looked in: {tmp_path}/absent\n" in reply.stderr
    assert "  looked at: /nope/code.git\n" in reply.stderr
    assert "git remote failed" not in reply.stderr
    failures = [line for line in reply.stderr.splitlines() if "FAILED" in line]
    assert [line.count("filesystem:docs:") + line.count("git:code:") for line in failures] == [1, 1]


def test_a_taken_port_proposes_the_next_one(tmp_path: Path) -> None:
    import socket

    project(tmp_path, FILES)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        reply = ctx("serve", "mcp", "--bind", f"127.0.0.1:{port}", cwd=tmp_path)
    assert reply.returncode == 2
    assert f"127.0.0.1:{port} is in use by another program" in reply.stderr
    assert " is free (or use --bind 127.0.0.1:" in reply.stderr


# -- the rest of the list, each as its reader met it ---------------------------------------------------------


def test_one_of_a_thing_is_not_told_as_several(tmp_path: Path) -> None:
    path = project(tmp_path, {"a.md": "# A\n\ntext\n"}, '[connectors.filesystem.docs]\nroot = "./docs"\n')
    reply = ctx("index", "--config", str(path), cwd=tmp_path)
    assert "embedded 1 chunk in" in reply.stdout + reply.stderr
    reply = ctx("export", "-o", "all.json", "--config", str(path), cwd=tmp_path)
    assert "Exported 1 document" in reply.stdout + reply.stderr
    assert "1 documents" not in reply.stdout + reply.stderr


def test_an_embedding_server_that_does_not_run_is_told_with_how_to_start_it(tmp_path: Path) -> None:
    config = (
        '[connectors.filesystem.docs]\nroot = "./docs"\n'
        '[embedding]\nprovider = "ollama"\nmodel = "all-minilm"\n'
        'dims = 384\nurl = "http://127.0.0.1:1"\nmax_retries = 0\n'
    )
    path = project(tmp_path, {"a.md": "# A\n\ntext\n"}, config)
    reply = ctx("index", "--config", str(path), cwd=tmp_path)
    assert reply.returncode in (1, 4)
    assert "ollama at 127.0.0.1:1 did not answer" in reply.stderr
    assert "after 1 try; start it with `ollama serve`, or set [embedding] url" in reply.stderr


def test_embedding_that_fails_midway_is_told_with_what_is_left_and_what_goes_on(tmp_path: Path) -> None:
    texts = {f"{number}.md": f"# {number}\n\ntext {number}\n" for number in range(5)}
    room = [0]  # the texts that the server still embeds; a request for more fails

    def embed(asked: Asked) -> Reply:
        given = asked.json["input"]
        room[0] -= len(given)
        rows = [{"index": index, "embedding": [1.0, 2.0]} for index, _ in enumerate(given)]
        return Reply({"data": rows}, 200 if room[0] >= 0 else 500)

    with serving_api(embed) as api:
        config = (
            '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "openai"\nmodel = "m"\n'
            f'dims = 2\nurl = "{api.url}/v1"\nmax_retries = 0\n'
        )
        path = project(tmp_path, texts, config)

        def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
            return ctx(*arguments, "--config", str(path), cwd=tmp_path, env={"OPENAI_API_KEY": "none"})

        left = "answered HTTP 500, after 1 try; 5 chunks not embedded yet, `ctx embed pending` continues"
        reply = run("index")
        assert left in reply.stderr
        assert "5 added" in reply.stdout  # which no later run would tell
        room[0] = 5
        assert "embedded 5 chunks" in run("embed", "pending").stdout
        room[0] = 1  # the question whether it answers, before anything is dropped
        assert left in run("embed", "rebuild").stderr
        assert left in json.loads(run("embed", "pending", "--json").stdout)["error"]["message"]
        room[0] = 5
        assert "embedded 5 chunks" in run("embed", "pending").stdout
        room[0] = 0
        assert "not embedded yet" not in run("embed", "rebuild").stderr, "nothing was dropped"


def test_the_doctor_offers_no_mend_that_mends_nothing(tmp_path: Path) -> None:
    path = project(
        tmp_path, config='[connectors.git.code]\nurl = "/nope/code.git"\n[embedding]\nprovider = "disabled"\n'
    )
    ctx("index", "--config", str(path), cwd=tmp_path)
    reply = ctx("doctor", "--config", str(path), cwd=tmp_path)
    (line,) = [line for line in reply.stdout.splitlines() if "git:code" in line]
    assert "cannot be" in line or "does not exist" in line, line
    assert "--fix" not in reply.stdout + reply.stderr


def test_figures_without_their_library_are_told_with_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    from ctx.errors import ConfigError
    from ctx.server.overview import Metrics
    from ctx.server.work import Work
    from ctx.tools.toolbox import Toolbox

    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"needs prometheus-client: pip install 'ctx-server\[metrics\]'"):
        Metrics(Toolbox(), Work(), dict)


@pytest.mark.parametrize(
    ("method", "content", "kind", "status", "words"),
    [
        ("POST", b'{"query": "x"}', "text/plain", 400, ("application/json",)),
        ("DELETE", b"", "application/json", 405, ("DELETE", "POST")),
        ("POST", b"{}", "application/json", 400, ("missing required parameter: query",)),
        ("POST", b"{", "application/json", 400, ("JSON",)),
    ],
)
def test_a_mistaken_request_is_told_what_it_should_be(
    indexed: Path, method: str, content: bytes, kind: str, status: int, words: tuple[str, ...]
) -> None:
    from kit import workspace
    from starlette.testclient import TestClient

    from ctx.server.app import create_app, server_settings, services

    with workspace(indexed / "ctx.toml") as space:
        app = create_app(services(space), server_settings(space))
        client = TestClient(app, base_url="http://127.0.0.1:7331")
        reply = client.request(method, "/tools/search", content=content, headers={"content-type": kind})
        assert reply.status_code == status
        message = reply.json()["error"]["message"]
        assert all(word in message for word in words), message


@pytest.mark.slow
def test_fetching_a_model_is_told_before_it_fails_or_takes_its_time(tmp_path: Path) -> None:
    config = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nmodel = "BAAI/bge-small-en-v1.5"\n'
    path = project(tmp_path, {"a.md": "# A\n\ntext\n"}, config)
    offline = {"HF_HUB_OFFLINE": "1", "HOME": str(tmp_path), "FASTEMBED_CACHE_PATH": str(tmp_path / "models")}
    reply = ctx("index", "--config", str(path), cwd=tmp_path, env=offline)
    assert reply.returncode == 4
    assert "downloading the embedding model 'BAAI/bge-small-en-v1.5'" in reply.stderr
    assert (
        "could not be downloaded; connect to the network once, or set [embedding] model to a folder that contains it"
        in reply.stderr
    )


def test_each_mistake_of_a_configuration_has_a_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = project(tmp_path, {"a.md": "alpha"})
    config.write_text(
        '[connectors.filesystem.docs]\nrot = "docs"\n\n[serch]\n"a\\nctx.toml: all is well" = 1\n'
    )
    assert main(["--config", str(config), "search", "x"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"Error: {config}:4: [serch]: unknown key")
    assert lines[1].startswith(f"       {config}:2: [connectors.filesystem.docs] rot: ")
    assert lines[2].startswith(f"       {config}:1: [connectors.filesystem.docs] root: ")
    assert len(lines) == 3
    config.write_text('["a\\nError: forged"]\nx = 1\n')
    assert main(["--config", str(config), "search", "x"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert main(["--config", str(config), "doctor"]) == 1
    assert "forged" in capsys.readouterr().out


def test_a_server_without_a_place_for_its_store_says_so_in_a_line(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    (tmp_path / ".ctx" / "ctx.db").mkdir(parents=True)
    reply = ctx("serve", "mcp", "--bind", "127.0.0.1:0", cwd=tmp_path)
    assert reply.returncode == 4
    assert "Traceback" not in reply.stderr
    assert reply.stderr.splitlines()[-1].startswith("Error: ")


def test_a_tool_that_was_written_is_tried_by_its_name_and_not_called_unknown(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    assert ctx("tool", "init", "greet_all", cwd=tmp_path).returncode == 0
    tried = ctx("tool", "test", "greet_all", "query=zebra", cwd=tmp_path)
    assert tried.returncode == 0, tried.stderr
    called = ctx("tool", "call", "greet_all", "query=zebra", cwd=tmp_path)
    assert called.returncode == 3
    mend = 'add [tools.script.greet_all] with path = "tools/greet-all.lua" to ctx.toml'
    assert f"tools/greet-all.lua exists but is not served: {mend}" in called.stderr


def test_a_search_that_finds_nothing_says_what_is_left_to_try(tmp_path: Path) -> None:
    config = project(tmp_path, {}, '[connectors.filesystem.docs]\nroot = "./docs"\n')
    (tmp_path / "docs").mkdir(exist_ok=True)
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert "Note: no document is indexed" in ctx("search", "zebra", cwd=tmp_path).stderr
    (tmp_path / "docs" / "a.md").write_text("# A\n\nwords\n")
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    reply = ctx("search", "-m", "keyword", "zebra", cwd=tmp_path)
    assert (reply.returncode, reply.stdout) == (0, "No results.\n")
    assert "`--mode hybrid` also finds" in reply.stderr
    reply = ctx(
        "search", "-m", "keyword", "zebra", "--since", "2026-01-31", "--until", "2026-01-31", cwd=tmp_path
    )
    assert "`--mode hybrid` also finds" in reply.stderr, "a day is its end as well as its beginning"
    config.write_text(f'{config.read_text()}[embedding]\nprovider = "disabled"\n')
    assert ctx("search", "zebra", cwd=tmp_path).stderr == ""


def test_a_pack_that_is_misspelt_on_the_command_line_is_named_like_one(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    reply = ctx("mcp", "--pack", "hindsigt", cwd=tmp_path, input_text="")
    assert reply.returncode == 2
    assert "--pack: no memory pack 'hindsigt'; did you mean 'hindsight'?" in reply.stderr


def test_a_store_with_values_of_another_kind_is_told_in_a_line(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    assert ctx("index", cwd=tmp_path).returncode == 0
    with closing(sqlite3.connect(tmp_path / ".ctx" / "ctx.db")) as database, database:
        database.execute("UPDATE document SET title = x'00ff', media_type = 7")
    for command in (("search", "tokens"), ("get", "auth.md"), ("export",)):
        run = ctx(*command, cwd=tmp_path)
        assert "Traceback" not in run.stderr
        if run.returncode:
            assert run.stderr.count("\n") == 1
            assert "`ctx doctor`" in run.stderr
    assert ctx("search", "tokens", cwd=tmp_path).returncode == 1
    assert "Traceback" in ctx("search", "tokens", cwd=tmp_path, env={"CTX_TRACEBACK": "1"}).stderr
