"""What a person sees on a terminal, and not in a pipe."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from kit import ctx, on_a_terminal, project, trust

PLAIN = {"NO_COLOR": "1", "COLUMNS": None, "TERM": "xterm"}
COLOURED = {**PLAIN, "NO_COLOR": None}


@pytest.mark.parametrize("color", [True, False])
def test_a_snippet_is_broken_between_words_and_keeps_its_indent(tmp_path: Path, color: bool) -> None:
    sentence = (
        "The xylophone of the harbour is tuned by nobody, and nobody has ever asked why; it sounds as a "
        "xylophone sounds that nobody tunes."
    )
    project(tmp_path, {"a.md": f"# A\n\n{sentence}"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    environ = COLOURED if color else PLAIN
    _, output = on_a_terminal("search", "xylophone", cwd=tmp_path, columns=40, env=environ)
    assert ("\x1b[1mxylophone\x1b[0m" in output) == color
    lines = re.sub(r"\x1b\[\d*m", "", output).splitlines()[2:]
    assert len(lines) > 3
    assert all(line.startswith("    ") and len(line) <= 40 for line in lines)
    assert sentence in " ".join(line.strip() for line in lines)


def test_a_terminal_that_does_not_know_its_width_has_eighty_columns(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\n" + "xylophone quokka " * 12})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    _, output = on_a_terminal("search", "xylophone", cwd=tmp_path, columns=0, env=PLAIN)
    lines = output.splitlines()
    assert max(map(len, lines)) > 60
    assert max(map(len, lines[2:])) <= 80


def test_in_a_pipe_a_snippet_is_one_line(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\n" + "xylophone quokka " * 12})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    assert len(ctx("search", "xylophone", cwd=tmp_path).stdout.splitlines()) == 3


def test_what_joins_letters_is_printed_and_what_turns_text_round_is_not(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nxylophone می\u200cخواهم \u200fשלום a\u00adb evil\u202etxt.exe\n"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    for words in (("get", "a.md"), ("search", "xylophone")):
        printed = ctx(*words, cwd=tmp_path).stdout
        assert "می\u200cخواهم" in printed
        assert "evil?txt.exe" in printed
    assert ctx("search", "ab", cwd=tmp_path).stdout.startswith(" 1. A")


COUNTING = """\
tool = {
  name = "count",
  description = "Counts",
  parameters = {},
  execute = function(params, context)
    for step = 1, 3 do context.progress(step, 3, "sheep") end
    return {ok = true}
  end,
}
"""


def test_a_tool_that_reports_its_progress_draws_a_bar(tmp_path: Path) -> None:
    path = project(
        tmp_path, {"a.md": "# A"}, '[lua]\ntools_dir = "./tools"\n[embedding]\nprovider = "disabled"\n'
    )
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "count.lua").write_text(COUNTING)
    trust(path)
    _, output = on_a_terminal("tool", "call", "count", cwd=tmp_path, columns=100, env=COLOURED)
    assert "count sheep" in output
    assert "3 of 3" in output
    assert output.rstrip().endswith("}"), "the bar goes, the answer stays"
    assert "sheep" not in on_a_terminal("tool", "call", "count", cwd=tmp_path, env=COLOURED, errors=False)[1]


def test_a_server_on_a_terminal_names_the_page_and_how_it_ends(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n"})
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", "127.0.0.1:0", "--log-level", "error"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
    ) as server:
        os.close(theirs)
        assert server.stdout is not None
        address = server.stdout.readline().removeprefix("Listening on ").strip()
        shown = os.read(ours, 4096).decode()
        server.terminate()
        assert server.stdout.read() == ""  # what programs read is the one line
    os.close(ours)
    assert f"http://{address}/ " in shown
    assert "Ctrl-C stops" in shown


@pytest.mark.parametrize("columns", [60, 80])
def test_a_table_of_sources_has_no_room_for_notes_that_nobody_wrote(tmp_path: Path, columns: int) -> None:
    project(tmp_path, {"a.md": "# A\n"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    _, output = on_a_terminal("sources", cwd=tmp_path, columns=columns, env=COLOURED)
    assert "NOTE" not in output
    assert re.search(r"\d+ s ago", output), output


@pytest.mark.parametrize("columns", [30, 40])
def test_on_a_narrow_terminal_the_list_of_clients_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / ".config"))
    project(tmp_path / "notes")
    _, output = on_a_terminal("connect", "--list", cwd=tmp_path / "notes", columns=columns, env=COLOURED)
    assert max(map(len, output.splitlines())) <= columns
    assert "…" not in output
    _, whole = on_a_terminal("connect", "--list", cwd=tmp_path / "notes", columns=300, env=COLOURED)
    assert sorted("".join(output.split())) == sorted("".join(whole.split()))


def test_who_types_the_command_of_a_client_is_told_what_it_waits_for(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n"})
    ours, theirs = os.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "mcp"],
        cwd=tmp_path,
        stdin=theirs,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as typed:
        assert typed.stderr is not None
        assert b"set one up with `ctx connect CLIENT`" in typed.stderr.readline()
        typed.kill()
    os.close(ours)
    os.close(theirs)
    piped = ctx("mcp", cwd=tmp_path, input_text="")
    assert "ctx connect" not in piped.stderr
