"""The sandboxed reading process: limits, restarts, and no access to secrets."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import document_kit as made_of
import pytest

from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.process import ReadingProcess, Text
from ctx.models import Heading

PDF = made_of.pdf(["some words"])


@pytest.fixture
def process() -> Iterator[ReadingProcess]:
    process = ReadingProcess(cpu_s=2, memory_mb=512)
    yield process
    process.close()


def test_a_document_that_takes_too_much_memory_is_refused_and_the_next_is_read(
    process: ReadingProcess,
) -> None:
    with pytest.raises(SourceError, match="memory"):
        process.read("sheets.parse", made_of.diagonal_workbook())
    assert process.read("sheets.parse", made_of.xlsx({"a": [["b"]]})).body == "# Sheet a\n\nb"


@pytest.mark.slow
def test_a_text_that_takes_too_long_is_refused_and_the_next_is_read() -> None:
    process = ReadingProcess(cpu_s=1)
    try:
        with pytest.raises(SourceError, match="more than 1 seconds of the processor"):
            process.begin_text(Text(None, None, "a.jsonl", False), b"1\n" * 5_000_000)()
        assert process.begin_text(Text(None, None, "a.md", False), b"# Tea\n")() == (
            "text/markdown",
            Parsed("# Tea\n", (Heading(0, 1, "Tea"),), (), "Tea"),
        )
        assert process.begin_text(Text(None, None, "a.md", False), b"\0\1\2" * 100)() is None
    finally:
        process.close()


def test_a_process_that_was_killed_is_replaced(process: ReadingProcess) -> None:
    process.read("pdf.parse", PDF)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert process.read("pdf.parse", PDF).body
    assert process.pid != pid


@pytest.mark.slow
def test_a_process_that_stopped_is_killed_at_the_deadline() -> None:
    process = ReadingProcess(wall_s=1)
    process.read("pdf.parse", PDF)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(SourceError, match="was not read within 1 seconds"):
        process.read("pdf.parse", PDF)
    assert process.read("pdf.parse", PDF).body
    process.close()


def test_the_process_knows_no_keys_and_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests'); import document_kit as made_of\n"
        "from ctx.formats.process import READER\n"
        "READER.read('pdf.parse', made_of.pdf(['a']))\n"
        "print(READER.pid, open(f'/proc/{READER.pid}/environ').read().count('SECRET'))"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "MY_SECRET": "x"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=Path(__file__).parent.parent.parent,
    )
    pid, secrets = run.stdout.split()
    assert secrets == "0"
    assert not Path("/proc", pid).exists()


def test_a_request_waits_for_the_reply_to_the_one_before(process: ReadingProcess) -> None:
    text = Text(None, None, "a.py", decoded=False, grammar=True)
    first, second = process.begin_text(text, b"a = 1\n"), process.begin_text(text, b"b = 2\n")
    for wait, name in ((second, "b"), (first, "a")):
        reply = wait()
        assert reply is not None
        assert [each.name for each in reply[1].definitions] == [name]


def test_what_was_being_read_when_the_process_was_killed_is_read_again(process: ReadingProcess) -> None:
    text = Text(None, None, "a.py", decoded=False, grammar=True)
    process.begin_text(text, b"a = 1\n")()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGKILL)
    waits = [process.begin_text(text, b"b = 2\n"), process.begin_text(text, b"c = 3\n")]
    assert [reply[1].body for wait in waits if (reply := wait())] == ["b = 2\n", "c = 3\n"]
