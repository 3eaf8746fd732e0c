"""Names, ids and arguments are one printable line wherever they are printed or logged: nobody else writes
lines of ours.
"""

import io
import json
import logging
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import eventually, serving
from kit import ctx, on_a_terminal, project

from ctx.cli.output import _HARMLESS, JsonLines, Lines, json_printable, plain, prose, table
from ctx.text.strings import one_line

FORGED = "2026-11-22 00:00:00,000 CRITICAL ctx.server FORGED LINE"
HOSTILE = [
    f"a\n{FORGED}",
    f"a\r{FORGED}",
    f"a\r\n{FORGED}",
    f"a\x0b{FORGED}",
    f"a\x0c{FORGED}",
    f"a\x85{FORGED}",
    f"a\u2028{FORGED}",
    f"a\u2029{FORGED}",
    "\x1b[31mred",
    "\x1b]0;title\x07",
    "\x9b2J",
    "\x08\x08\x08",
    "back\x7fspace",
    "nul\x00",
    "\u202egpj.exe",
    "\u2066isolate\u2069",
    "\u200bunseen\ufeff",
    "tab\tbed",
    "\ud800lone",
    "\U000e0041tag",
]
TURNING = frozenset(
    ["LRE", "LRO", "RLE", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"]
)  # classes of what turns text round


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO]]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(name)s %(message)s"))
    logger = logging.getLogger("ctx.test")
    logger.addHandler(handler)
    yield logger, stream
    logger.removeHandler(handler)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_name_in_a_log_line_stays_in_its_line(log: tuple[logging.Logger, io.StringIO], name: str) -> None:
    logger, stream = log
    logger.warning("not indexed source=docs item=%s reason=%s", name, "too large")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1
    assert lines[0].isprintable()
    assert lines[0].endswith("reason=too large")


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_value_on_a_terminal_stays_in_its_line(name: str) -> None:
    assert plain(name).isprintable()
    assert table([[name, "1"]], ("NAME", "COUNT")).count("\n") == 1
    assert all(char.isprintable() or char in _HARMLESS for char in prose(name))
    assert not any(unicodedata.bidirectional(char) in TURNING for char in prose(name))


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_json_for_a_terminal_says_the_same_and_drives_nothing(name: str) -> None:
    text = json_printable(json.dumps({name: [name]}, ensure_ascii=False, indent=2))
    assert json.loads(text) == {name: [name]}
    assert all(line.isprintable() for line in text.split("\n"))
    assert text.count("\n") == 4


@pytest.mark.parametrize("text", ["plain", "naïve 漢字", "a b", "", "🙂"])
def test_what_is_printable_is_printed_as_it_is(text: str) -> None:
    assert plain(text) == prose(text) == one_line(text) == json_printable(text) == text


def test_spaces_of_other_widths_stay_spaces() -> None:
    assert plain("a\u00a0b\u3000c") == "a b c"


def test_a_long_name_is_cut_in_the_log_and_not_screen_of() -> None:
    assert len(one_line("x" * 500)) == 200
    assert plain("x" * 500 + "\n") == "x" * 500 + "\\n"


def test_a_traceback_is_indented_so_that_none_of_its_lines_passes_for_a_record(
    log: tuple[logging.Logger, io.StringIO],
) -> None:
    logger, stream = log
    try:
        raise ValueError(f"bad\n{FORGED}\x1b[31m\r{FORGED}")
    except ValueError:
        logger.exception("it failed item=%s", f"a\n{FORGED}")
    first, *lines = stream.getvalue().splitlines()
    assert " ERROR ctx.test it failed item=a\\n2026" in first
    assert len(lines) >= 4
    assert all(line.startswith("    ") and line.isprintable() for line in lines)


def test_a_json_log_line_is_one_line_of_json() -> None:
    record = logging.LogRecord("ctx", logging.INFO, "", 0, "item=%s", (f"a\n{FORGED}\x9b\u202e",), None)
    line = JsonLines().format(record)
    assert line.isprintable()
    assert json.loads(line)["message"] == f"item=a\n{FORGED}\x9b\u202e"


def hostile_project(folder: Path) -> Path:
    """A folder with a file that is too large and one that is found, both with names that begin lines of their
    own.
    """
    config = project(
        folder,
        {
            f"found\n{FORGED}\x1b[31m.md": "# quokka \x1b[31m\u202e\n\nxylophone \x9b31m",
            "b.md": "# B\n\nquokka",
        },
        '[connectors.filesystem.docs]\nroot = "./docs"\nmax_file_bytes = 1000\n[embedding]\nprovider = '
        '"disabled"\n',
    )
    (folder / "docs" / f"large\n{FORGED}\x1b[31m.md").write_text("word " * 500)
    return config


def no_line_is_forged(text: str) -> bool:
    return all(line.isprintable() and not line.startswith(FORGED) for line in text.split("\n"))


def screen_of(*arguments: str, cwd: Path) -> str:
    return on_a_terminal(*arguments, cwd=cwd, env={"NO_COLOR": "1", "TERM": "dumb", "HOME": str(cwd)})[1]


def test_no_command_prints_a_line_that_a_file_s_name_or_an_argument_wrote(tmp_path: Path) -> None:
    hostile_project(tmp_path)
    indexed = screen_of("index", "--no-progress", cwd=tmp_path)
    assert "large\\n2026" in indexed
    assert no_line_is_forged(indexed)
    screen = screen_of("search", "xylophone", cwd=tmp_path)
    assert "found\\n2026" in screen
    assert no_line_is_forged(screen)
    assert no_line_is_forged(screen_of("search", "xylophone", "--json", cwd=tmp_path))
    for arguments in (
        ("get", f"\x1b[31m\n{FORGED}"),
        ("search", "--mode", f"\x1b[31m\n{FORGED}", "x"),
        (f"\x1b[31m\n{FORGED}",),
        ("index", f"\x1b[31m\n{FORGED}"),
        ("index", f"--\x1b[31m\n{FORGED}"),
        ("search", "--config", f"\x1b[31m\n{FORGED}", "x"),
        ("sources",),
        ("stats",),
    ):
        assert no_line_is_forged(screen_of(*arguments, cwd=tmp_path)), arguments


def test_an_export_is_the_same_json_on_a_terminal_and_in_a_pipe(tmp_path: Path) -> None:
    hostile_project(tmp_path)
    assert ctx("index", cwd=tmp_path).returncode == 0
    screen = screen_of("export", cwd=tmp_path)
    assert no_line_is_forged(screen)
    document, _, _ = screen.rpartition("Exported ")
    piped = ctx("export", cwd=tmp_path).stdout
    assert json.loads(document) == json.loads(piped)
    assert any("\x9b" in row["body"] or "\u202e" in row["title"] for row in json.loads(piped)["documents"])


def test_an_export_of_memories_drives_no_terminal_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    project(tmp_path)
    text = "Tabs \u202e please\x9b2J\x85"
    memories = {"results": [{"id": "1", "memory": text, "metadata": {text: text}}]}
    (tmp_path / "mem0.json").write_text(json.dumps(memories))
    assert ctx("memory", "import", "--from", "mem0", "mem0.json", cwd=tmp_path).returncode == 0
    screen = screen_of("memory", "export", cwd=tmp_path)
    assert no_line_is_forged(screen)
    piped = ctx("memory", "export", cwd=tmp_path).stdout
    assert json.loads(screen.splitlines()[0]) == json.loads(piped)
    assert "\x9b" in json.loads(piped)["text"]


def test_a_server_s_log_has_no_line_that_a_file_s_name_wrote(tmp_path: Path) -> None:
    config = hostile_project(tmp_path)
    with serving(config) as server:
        eventually(lambda: "not indexed source=" in server.log())
        assert "large\\n2026" in server.log()
        assert no_line_is_forged(server.log())


@pytest.mark.parametrize(("level", "shown"), [("info", False), ("debug", True)])
def test_what_modules_warn_their_developers_of_is_a_line_for_developers(level: str, shown: bool) -> None:
    code = (
        f"from ctx.cli.output import log_to_stderr; log_to_stderr('{level}'); import warnings;"
        "warnings.simplefilter('always'); warnings.warn('use the new one')"
    )
    reply = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ("use the new one" in reply.stderr) is shown
