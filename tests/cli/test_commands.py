"""Every command as a person runs it: exit codes, one line for a mistake, one document for `--json`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, project

from ctx.cli import COMMANDS, GROUPS, HIDDEN, main

FILES = {
    "auth.md": "# Signing in\n\nAccess tokens rotate every 30 days. The rotation is automatic.\n",
    "guide/release.md": "# Releasing\n\n## Steps\n\nTag the commit, wait for the rotation of the keys, then "
    "promote.\n",
}
UNKNOWN_ID = "00000000-0000-5000-8000-000000000000"


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of two documents, indexed by words; for commands that only read."""
    folder = tmp_path_factory.mktemp("project")
    project(folder, FILES)
    assert ctx("index", cwd=folder).returncode == 0
    return folder


def document(reply: subprocess.CompletedProcess[str]) -> Any:
    """The one JSON document on standard output."""
    assert reply.returncode == 0, reply.stderr
    return json.loads(reply.stdout)


def one_line(reply: subprocess.CompletedProcess[str], code: int) -> str:
    """The error, which is one line on standard error and nothing else anywhere."""
    assert reply.returncode == code, f"{reply.returncode}: {reply.stderr}"
    assert reply.stdout == ""
    assert reply.stderr.startswith("Error: ")
    assert reply.stderr.count("\n") == 1
    assert "Traceback" not in reply.stderr
    return reply.stderr.removeprefix("Error: ").strip()


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_says_what_it_does(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    texts = []
    for arguments in ([command, "--help"], ["help", command]):
        with pytest.raises(SystemExit) as end:
            sys.exit(main(arguments))
        assert end.value.code == 0
        printed = capsys.readouterr()
        assert printed.err == ""
        texts.append(printed.out)
    assert texts[0].startswith(f"usage: ctx {command}")
    if command not in HIDDEN:
        assert f"examples:\n  ctx {command}" in texts[0]
        assert texts[0].count("\n  ctx ") >= 2
    assert texts[0] == texts[1]
    assert list(tmp_path.iterdir()) == []


def test_the_outline_names_every_command(tmp_path: Path) -> None:
    for arguments in ((), ("--help",), ("help",), ("-h",)):
        reply = ctx(*arguments, cwd=tmp_path)
        assert (reply.returncode, reply.stderr) == (0, "")
        shown = [command for command in COMMANDS if f"\n  {command} " in reply.stdout]
        assert shown == [name for names in GROUPS.values() for name in names if name in COMMANDS]
    everything = ctx("--help", "--all", cwd=tmp_path).stdout
    assert [name for name in COMMANDS if f"\n  {name} " not in everything] == list(HIDDEN)
    assert ctx("--version", cwd=tmp_path).stdout.startswith("ctx ")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["serch", "x"], 2, "did you mean `ctx search`?"),
        (["search", "x" * 30_000], 2, "query"),
        (["search", "x", "--limit", "many"], 2, "--limit"),
        (["search", "x", "--frobnicate"], 2, "--frobnicate"),
        (["get", "a", "b"], 2, "unrecognized arguments: b"),
        (["get", UNKNOWN_ID], 3, f"no document at '{UNKNOWN_ID}'"),
        (["index", "nowhere"], 3, "unknown source 'nowhere' (known: filesystem:docs)"),
        (["embed", "all"], 2, "invalid choice: 'all'"),
        (["sources", "extra"], 2, "unrecognized arguments: extra"),
        (["export", "-o", "/nowhere/at/all.json"], 2, "cannot be written"),
        (["key"], 2, "create|list|revoke"),
        (["agent", "test", "nobody"], 3, "nobody"),
        (["serve", "mcp", "--bind", "nonsense"], 2, "nonsense"),
        (["serve", "mcp", "--bind", "0.0.0.0:0"], 2, "key"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_a_mistake_is_one_line_that_names_the_fix(
    indexed: Path, arguments: list[str], code: int, words: str
) -> None:
    assert words in one_line(ctx(*arguments, cwd=indexed), code)


def test_before_the_first_run_reading_says_what_to_run_and_creates_nothing(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    for arguments in (["search", "x"], ["get", "x"], ["export"]):
        assert "`ctx index`" in one_line(ctx(*arguments, cwd=tmp_path), 4)
    assert not (tmp_path / ".ctx").exists()


def test_a_configuration_is_found_from_elsewhere_and_paths_stay_its_own(
    indexed: Path, tmp_path: Path
) -> None:
    path = str(indexed / "ctx.toml")
    ways: list[tuple[list[str], dict[str, str]]] = [
        (["--config", path, "search", "rotation"], {}),
        (["search", "rotation", "--config", path], {}),
        (["search", "rotation"], {"CTX_CONFIG": path}),
    ]
    for arguments, environ in ways:
        reply = ctx(*arguments, cwd=tmp_path, env=environ)
        assert reply.returncode == 0, reply.stderr
        assert "auth.md:" in reply.stdout
    assert list(tmp_path.iterdir()) == []


def test_the_answers_in_json_have_the_shapes_of_rest(indexed: Path) -> None:
    results = document(ctx("search", "rotation", "--json", cwd=indexed))["results"]
    assert [result["source_id"] for result in results] == ["auth.md", "guide/release.md"]
    assert {"id", "source", "source_id", "title", "score", "snippet", "source_url"} <= set(results[0])
    assert document(ctx("search", "zebra", "--json", cwd=indexed)) == {"results": []}
    whole = document(ctx("get", results[0]["id"], "--json", cwd=indexed))
    assert whole["body"] == FILES["auth.md"]
    assert (whole["start_line"], whole["end_line"]) == (1, whole["total_lines"])
    (source,) = document(ctx("sources", "--json", cwd=indexed))["sources"]
    assert (source["name"], source["configured"], source["healthy"], source["doc_count"]) == (
        "filesystem:docs",
        True,
        True,
        2,
    )
    stats = document(ctx("stats", "--json", cwd=indexed))
    assert (stats["documents"], stats["index_behind"], stats["pending"]) == (2, 0, 0)
    exported = document(ctx("export", "--json", cwd=indexed))
    assert [row["source_id"] for row in exported["documents"]] == ["auth.md", "guide/release.md"]
    assert exported["documents"][0].keys() == {
        *("id", "source", "source_id", "source_url", "title", "updated_at", "body")
    }
    assert isinstance(exported["documents"][0]["updated_at"], int)  # seconds, as Context Harness has it
    owners = {row["id"]: row for row in exported["documents"]}
    for part in exported["chunks"]:
        assert part["text"] in owners[part["document_id"]]["body"]
    assert {part["document_id"] for part in exported["chunks"]} == set(owners)
    assert exported["chunks"][0]["chunk_index"] == 0
    tools = document(ctx("tool", "list", "--json", cwd=indexed))["tools"]
    assert [tool["name"] for tool in tools if tool["builtin"]] == [
        "search",
        "get",
        "outline",
        "symbol",
        "sources",
        "refresh",
    ]
    called = document(ctx("tool", "call", "search", "--param", "query=rotation", "--json", cwd=indexed))
    assert json.dumps(results[0]["id"]) in json.dumps(called)
    assert document(ctx("openapi", "--json", cwd=indexed))["openapi"].startswith("3.1")
    assert "healthy" in json.loads(ctx("doctor", "--json", cwd=indexed).stdout)


@pytest.mark.parametrize("query", ["rotation", "where is the rotation", "rot", "zebra", " ", "x" * 4096])
@pytest.mark.parametrize("option", ["explain", "prefix"])
def test_a_question_alone_is_answered_as_the_tool_answers_it(query: str, option: str, indexed: Path) -> None:
    called = ctx(
        *("tool", "call", "search", "--param", f"query={query}", "--param", f"{option}=true", "--json"),
        cwd=indexed,
    )
    asked = ctx("search", query, f"--{option}", "--json", cwd=indexed)
    assert (asked.returncode, asked.stderr) == (called.returncode, called.stderr)
    if asked.returncode == 0:
        assert document(asked) == document(called)


def test_a_search_is_shown_with_place_and_snippet(indexed: Path) -> None:
    reply = ctx("search", "rotation", "--limit", "1", cwd=indexed)
    lines = reply.stdout.splitlines()
    assert lines[0] == " 1. Signing in  1.00"
    assert lines[1] == "    auth.md:1"
    assert "The rotation is automatic." in lines[2]
    assert len(lines) == 3
    assert ctx("get", lines[1].strip(), cwd=indexed).stdout
    assert ctx("search", "zebra", cwd=indexed).stdout == "No results.\n"
    explained = ctx("search", "rotation", "--explain", cwd=indexed).stdout
    assert "keyword: rank 1, score " in explained
    unknown = ctx("search", "rotation", "--source", "gti", cwd=indexed)
    assert (unknown.returncode, unknown.stdout) == (0, "No results.\n")
    assert "no source is called 'gti' (known: filesystem:docs)" in unknown.stderr


def test_no_text_is_a_syntax_error(indexed: Path) -> None:
    for query in ('"', "a AND (", "title:x^2", "*", "\\", "-- -x", "--dry-run", "-v", "🦓 斑马", "rotation~"):
        reply = ctx("search", "--json", "--", query, cwd=indexed)
        assert reply.returncode == 0, f"{query}: {reply.stderr}"


def test_colours_are_for_terminals_and_for_who_forces_them(indexed: Path) -> None:
    def coloured(**environ: str) -> bool:
        return "\x1b[" in ctx("search", "rotation", cwd=indexed, env=environ).stdout

    assert not coloured()
    assert coloured(FORCE_COLOR="1")
    assert not coloured(FORCE_COLOR="1", NO_COLOR="1")
    assert "\x1b" not in ctx("search", "rotation", "--json", cwd=indexed, env={"FORCE_COLOR": "1"}).stdout


def test_a_document_cannot_drive_the_terminal(tmp_path: Path) -> None:
    evil = "\x1b]0;owned\x07\x1b[2J\x9b31m"
    project(tmp_path, {"evil.md": f"# Evil {evil} title\n\nzebra {evil} tail\u00a0end \u202e reversed\n"})
    (tmp_path / "docs" / "zebra\x1b[2J.md").write_text("# zebra two\n\nzebra\n")
    assert ctx("index", cwd=tmp_path).returncode == 0
    lines = ctx("search", "zebra", cwd=tmp_path, env={"FORCE_COLOR": "1"}).stdout
    results = document(ctx("search", "zebra", "--json", cwd=tmp_path))["results"]
    lines += "".join(ctx("get", result["id"], cwd=tmp_path).stdout for result in results)
    lines += ctx("sources", cwd=tmp_path).stdout + ctx("stats", cwd=tmp_path).stdout
    assert len(results) == 2
    for settings in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[33m"):
        lines = lines.replace(settings, "")
    assert not [char for char in lines if ord(char) < 32 and char not in "\n\t"]
    assert not {"\x7f", "\x9b", "\u202e"} & set(lines)
    assert "tail end" in lines


@pytest.mark.parametrize(
    "environ", [{"LC_ALL": "C"}, {"PYTHONIOENCODING": "latin-1"}, {"PYTHONIOENCODING": "ascii"}]
)
def test_a_terminal_without_unicode_is_no_failure(tmp_path: Path, environ: dict[str, str]) -> None:
    project(tmp_path, {"日本.md": "# Über 斑马\n\n## Größe\n\nzebra 斑马 läuft\n"})
    for arguments in (
        ["index"],
        ["search", "zebra"],
        ["search", "zebra", "--json"],
        ["sources"],
        ["stats"],
        ["doctor"],
    ):
        reply = subprocess.run(
            [sys.executable, "-m", "ctx", *arguments],
            cwd=tmp_path,
            env={**os.environ, **environ},
            capture_output=True,
            timeout=60,
        )
        assert reply.returncode == 0, reply.stderr
        if arguments == ["search", "zebra"]:
            assert b"zebra" in reply.stdout
        if arguments[-1] == "--json":
            assert json.loads(reply.stdout)["results"][0]["source_id"] == "日本.md"


def test_a_reader_that_has_enough_is_left_in_peace(tmp_path: Path) -> None:
    project(
        tmp_path, {f"{number}.md": f"# Note {number}\n\n{'zebra stripes ' * 400}\n" for number in range(60)}
    )
    assert ctx("index", cwd=tmp_path).returncode == 0
    for command in ("search zebra --limit 60", "export", "search zebra --json --limit 60"):
        reply = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m ctx {command} | head -c 10; exit ${{PIPESTATUS[0]}}"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert (reply.returncode, reply.stderr) == (0, ""), command


def test_a_search_without_its_index_is_told_to_index(tmp_path: Path) -> None:
    project(tmp_path, {"note.md": "# A note\n\nzebra\n"})
    assert ctx("index", cwd=tmp_path).returncode == 0
    shutil.rmtree(tmp_path / ".ctx" / "index")
    reply = ctx("search", "zebra", cwd=tmp_path)
    assert reply.stdout == "No results.\n"
    assert "`ctx index` completes the index" in reply.stderr
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert "note.md" in ctx("search", "zebra", cwd=tmp_path).stdout


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_said_in_a_line(indexed: Path) -> None:
    for command in ("search rotation", "export", "stats"):
        reply = subprocess.run(
            ["bash", "-c", f"{sys.executable} -m ctx {command} > /dev/full"],
            cwd=indexed,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert reply.returncode == 4
        assert "the disk is full" in reply.stderr
        assert "Traceback" not in reply.stderr


def test_index_says_what_changed_and_a_dry_run_changes_nothing(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    dry = ctx("index", "--dry-run", cwd=tmp_path)
    assert "filesystem:docs: 2 would be added" in dry.stdout
    assert document(ctx("stats", "--json", cwd=tmp_path))["documents"] == 0
    assert "2 added, 0 unchanged" in ctx("index", cwd=tmp_path).stdout
    (tmp_path / "docs/auth.md").write_text("# Signing in\n\nOther words.\n")
    (tmp_path / "docs/guide/release.md").unlink()
    (tmp_path / "docs/new.md").write_text("# New\n\nzebra\n")
    assert (
        "1 would be added, 1 would be updated, 1 would be deleted"
        in ctx("sync", "--dry-run", cwd=tmp_path).stdout
    )
    assert document(ctx("stats", "--json", cwd=tmp_path))["documents"] == 2
    assert "1 added, 1 updated, 1 deleted" in ctx("sync", "filesystem", cwd=tmp_path).stdout
    assert "2 unchanged" in ctx("index", cwd=tmp_path).stdout
    (full,) = document(ctx("index", "--full", "--json", cwd=tmp_path))["sources"]
    assert (full["ok"], full["added"], full["problems"]) == (True, 0, [])


def test_a_folder_without_documents_is_told_with_its_place(tmp_path: Path) -> None:
    project(tmp_path, {"data.zip": "a,b\n1,2\n"})
    reply = ctx("index", cwd=tmp_path)
    assert reply.stdout.startswith("filesystem:docs: no documents in ")
    assert f"looked in: {tmp_path / 'docs'}" in reply.stderr
    part = ctx("index", "--since", "2026-01-01", cwd=tmp_path)
    assert "0 unchanged" in part.stdout
    (tmp_path / "docs/a.md").write_text("words")
    assert "1 added" in ctx("index", "--no-embed", cwd=tmp_path).stdout


def test_a_source_that_cannot_be_read_is_exit_code_1_and_keeps_its_documents(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    assert ctx("index", cwd=tmp_path).returncode == 0
    (tmp_path / "docs").rename(tmp_path / "gone")
    failed = ctx("index", cwd=tmp_path)
    assert failed.returncode == 1
    assert "filesystem:docs: FAILED: " in failed.stderr
    assert "auth.md" in ctx("search", "rotation", cwd=tmp_path).stdout
    (source,) = document(ctx("sources", "--json", cwd=tmp_path))["sources"]
    assert not source["healthy"]
    assert ctx("sources", cwd=tmp_path).stdout.count("filesystem:docs") == 1


@pytest.mark.parametrize(("command", "status"), [("index", 1), ("sources", 0), ("doctor", 1)])
def test_what_fails_names_its_source_once(tmp_path: Path, command: str, status: int) -> None:
    config = project(
        tmp_path,
        config='[connectors.git.gone]\nurl = "./nowhere"\n[embedding]\nprovider = "disabled"\n',
    )
    assert ctx("--config", str(config), "index", cwd=tmp_path).returncode == 1
    reply = ctx("--config", str(config), command, cwd=tmp_path)
    assert reply.returncode == status
    line = next(line for line in (reply.stdout + reply.stderr).splitlines() if "nowhere cannot be" in line)
    assert line.count("git:gone") == 1


def test_a_source_no_longer_configured_is_kept_until_the_user_drops_it(tmp_path: Path) -> None:
    config = project(tmp_path, FILES)
    assert ctx("index", cwd=tmp_path).returncode == 0
    config.write_text(config.read_text().replace("filesystem.docs", "filesystem.other"))
    (status,) = document(ctx("index", "--json", cwd=tmp_path))["not_configured"]
    assert status == {"source": "filesystem:docs", "documents": 2}
    remark = "filesystem:docs: not configured, 2 documents kept (`ctx index --prune` drops them)"
    assert remark in ctx("index", cwd=tmp_path).stdout
    dry = ctx("index", "--prune", "--dry-run", cwd=tmp_path).stdout
    assert "filesystem:docs: not configured, 2 documents would be dropped" in dry
    refused = ctx("index", "--prune", "filesystem:other", cwd=tmp_path)
    assert (refused.returncode, "leave out the names of sources" in refused.stderr) == (2, True)
    assert len(document(ctx("sources", "--json", cwd=tmp_path))["sources"]) == 2
    dropped = ctx("index", "--prune", cwd=tmp_path).stdout
    assert "filesystem:docs: not configured, 2 documents dropped" in dropped
    assert [s["name"] for s in document(ctx("sources", "--json", cwd=tmp_path))["sources"]] == [
        "filesystem:other"
    ]


@pytest.mark.slow
def test_embeddings_are_counted_made_and_made_anew(tmp_path: Path) -> None:
    project(tmp_path, FILES, config='[connectors.filesystem.docs]\nroot = "./docs"\n')
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    (pending,) = document(ctx("embed", "pending", "--dry-run", "--json", cwd=tmp_path)).values()
    assert pending >= 2
    assert "not embedded yet" in ctx("search", "--mode", "semantic", "shipping", cwd=tmp_path).stderr
    assert document(ctx("embed", "pending", "--limit", "1", "--json", cwd=tmp_path))["pending"] == pending - 1
    assert f"embedded {pending - 1} chunk" in ctx("embed", "pending", cwd=tmp_path).stdout
    assert "embedded 0 chunks" in ctx("embed", "pending", cwd=tmp_path).stdout
    assert f"embedded {pending} chunk" in ctx("embed", "rebuild", cwd=tmp_path).stdout
    results = document(
        ctx("search", "--mode", "hybrid", "--json", "how do we ship to customers", cwd=tmp_path)
    )["results"]
    assert results[0]["source_id"] == "guide/release.md"


def test_keys_are_made_listed_and_revoked(tmp_path: Path) -> None:
    project(tmp_path, FILES)
    created = document(ctx("key", "create", "laptop", "--bank", "alice", "--json", cwd=tmp_path))
    assert created["banks"] == ["alice"]
    listed = ctx("key", "list", cwd=tmp_path).stdout
    assert "laptop" in listed
    assert created["key"] not in listed
    assert document(ctx("key", "list", "--json", cwd=tmp_path))["keys"][0]["id"] == created["id"]
    assert ctx("key", "revoke", "laptop", cwd=tmp_path).returncode == 0
    assert one_line(ctx("key", "revoke", "laptop", cwd=tmp_path), 3)
    assert not [path for path in (tmp_path / ".ctx").rglob("*") if path.stat().st_mode & 0o077]


def test_what_is_skipped_is_named_with_its_reason_and_a_dry_run_knows_it(tmp_path: Path) -> None:
    config = project(tmp_path, FILES)
    config.write_text(config.read_text().replace("docs]", 'docs]\ninclude_globs = ["*.md"]'))
    (tmp_path / "docs" / "scan.md").write_bytes(b"\x89PNG\r\n\0\0")
    (tmp_path / "docs" / "blob.md").write_bytes(b"\0\1\2")
    (tmp_path / "docs" / "void.md").write_bytes(b"")
    (tmp_path / "docs" / "table.csv").write_bytes(b"a,b\n")
    dry = ctx("index", "--dry-run", cwd=tmp_path)
    assert "2 would be added, 0 unchanged, 3 skipped (1 empty)" in dry.stdout
    (report,) = document(ctx("index", "--json", cwd=tmp_path))["sources"]
    reasons = {skip["source_id"]: skip["message"] for skip in report["skips"]}
    assert reasons.keys() == {"scan.md", "blob.md", "void.md"}
    assert "a picture" in reasons["scan.md"]
    assert reasons["blob.md"] == "binary data, not text"
    assert reasons["void.md"] == "empty"
    after = ctx("index", "--dry-run", cwd=tmp_path)
    assert "filesystem:docs: 2 unchanged, 3 skipped (1 empty)" in after.stdout
    assert "  skipped: blob.md: binary data, not text" in after.stderr.splitlines()


def test_an_error_is_one_json_document_where_json_is_asked_for(indexed: Path) -> None:
    for arguments, code, word in (
        (["search", "x", "--limit", "0", "--json"], 2, "bad_request"),
        (["get", "--json", UNKNOWN_ID], 3, "not_found"),
        (["sources", "--json", "--frob"], 2, "bad_request"),
    ):
        reply = ctx(*arguments, cwd=indexed)
        assert (reply.returncode, reply.stderr) == (code, "")
        error = json.loads(reply.stdout)["error"]
        assert error["code"] == word
        assert error["message"]


def test_a_key_that_has_no_effect_is_told_once_on_standard_error(tmp_path: Path) -> None:
    project(tmp_path, FILES, '[connectors.filesystem.docs]\nroot = "./docs"\n[retrieval]\ngroup_by = "x"\n')
    reply = ctx("index", "--no-embed", "--config", "ctx.toml", cwd=tmp_path)
    assert reply.stderr.count("has no effect") == 1


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("init",), {"written": False}),
        (("init", "--config", "other.toml"), {"written": True}),
        (("tool", "init", "count"), {"name": "count", "file": "tools/count.lua"}),
        (("connector", "init", "feed"), {"name": "feed", "file": "connectors/feed.lua"}),
        (("agent", "init", "reviewer"), {"name": "reviewer", "file": "agents/reviewer.lua"}),
        (("export", "-o", "all.json"), {"file": "all.json"}),
        (("export", "--widget", "widget.js"), {"file": "widget.js"}),
        (("connect", "cursor"), {"client": "cursor", "state": "written"}),
        (("connect", "cursor", "--print"), {"state": "shown"}),
        (("connect", "goose"), {"state": "by hand", "file": None}),
        (("connect", "cursor", "--memory"), {"client": "cursor", "state": "written"}),
        (("docs", "--list"), {}),
    ],
    ids=" ".join,
)
def test_what_a_command_did_is_one_json_document_too(
    tmp_path: Path, arguments: tuple[str, ...], expected: dict[str, object]
) -> None:
    project(tmp_path, {"a.md": "alpha"})
    if arguments[0] == "export":
        assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    reply = ctx(*arguments, "--json", cwd=tmp_path, env={"HOME": str(tmp_path / "home")})
    assert reply.returncode == 0, reply.stderr
    document = json.loads(reply.stdout)
    assert {name: document[name] for name in expected} == expected
