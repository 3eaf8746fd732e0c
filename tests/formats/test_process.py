"""The process that reads documents: capped, replaced when it dies, gone when nobody asks."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import document_kit as made_of
import pytest

from ctx.errors import SourceError
from ctx.formats.base import Parsed
from ctx.formats.process import ReadingProcess
from ctx.formats.texts import Text
from ctx.items import Heading

PDF = made_of.pdf(["some words"])


@pytest.fixture
def process() -> Iterator[ReadingProcess]:
    process = ReadingProcess(cpu_s=2, memory_mb=512)
    yield process
    process.close()


def endless(pages: int, text: str = "word " * 400) -> bytes:
    """A small PDF that shows one page a great many times."""
    document = made_of.pdf([text])
    return document.replace(b"/Kids [5 0 R] /Count 1", b"/Kids [%s] /Count %d" % (b"5 0 R " * pages, pages))


def test_one_process_reads_many_documents_however_large_the_one_that_asks_is() -> None:
    process = ReadingProcess(memory_mb=256)
    ballast = b"x" * (200 << 20)
    bodies = {process.read("pdf", PDF).body for _ in range(5)}
    pid = process.pid
    process.read("docx", made_of.docx(made_of.word_paragraph("a")))
    assert bodies == {"# Page 1\n\nsome words"}
    assert process.pid == pid
    process.close()
    del ballast


@pytest.mark.slow
def test_a_document_that_takes_too_long_ends_the_process_and_the_next_is_read_by_another(
    process: ReadingProcess,
) -> None:
    process.read("pdf", PDF)
    pid = process.pid
    with pytest.raises(SourceError, match="took more than 2 seconds of the processor"):
        process.read("pdf", endless(1_000_000, "word"))  # of fewer characters than a document may have
    assert process.read("pdf", PDF).body
    assert process.pid != pid


@pytest.mark.slow
def test_the_time_of_the_documents_before_does_not_count(process: ReadingProcess) -> None:
    for _ in range(4):
        process.read("pdf", endless(800))  # a second or so each
    assert process.read("pdf", PDF).body


def test_a_document_that_takes_too_much_memory_is_refused_and_the_next_is_read(
    process: ReadingProcess,
) -> None:
    with pytest.raises(SourceError, match="memory"):
        process.read("sheets", made_of.far_workbook())
    assert process.read("sheets", made_of.xlsx({"a": [["b"]]})).body == "# Sheet a\n\nb"


@pytest.mark.slow
def test_a_text_that_takes_too_long_is_refused_and_the_next_is_read() -> None:
    process = ReadingProcess(cpu_s=1)
    try:
        with pytest.raises(SourceError, match="more than 1 seconds of the processor"):
            process.read_text(Text(None, None, "a.jsonl", False), b"1\n" * 5_000_000)
        assert process.read_text(Text(None, None, "a.md", False), b"# Tea\n") == (
            "text/markdown",
            Parsed("# Tea\n", (Heading(0, 1, "Tea"),), (), "Tea"),
        )
        assert process.read_text(Text(None, None, "a.md", False), b"\0\1\2" * 100) is None
    finally:
        process.close()


def test_a_process_that_was_killed_is_replaced(process: ReadingProcess) -> None:
    process.read("pdf", PDF)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    assert process.read("pdf", PDF).body
    assert process.pid != pid


@pytest.mark.slow
def test_a_process_that_stopped_is_killed_at_the_deadline() -> None:
    process = ReadingProcess(wall_s=1)
    process.read("pdf", PDF)
    pid = process.pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(SourceError, match="was not read within 1 seconds"):
        process.read("pdf", PDF)
    assert process.read("pdf", PDF).body
    process.close()


@pytest.mark.slow
def test_a_process_that_nobody_asks_ends_by_itself_and_the_next_document_starts_another() -> None:
    process = ReadingProcess(idle_s=1)
    process.read("pdf", PDF)
    pid = process.pid
    assert pid is not None
    descriptor = os.pidfd_open(pid) if hasattr(os, "pidfd_open") else None
    if descriptor is None:
        pytest.skip("needs pidfd, to wait for the end of a process")
    with os.fdopen(descriptor):
        assert os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOWAIT) is not None
        assert process.read("pdf", PDF).body
        assert process.pid != pid
    process.close()


def test_several_threads_share_the_process(process: ReadingProcess) -> None:
    bodies: list[str] = []

    def read(word: str) -> None:
        bodies.append(process.read("pdf", made_of.pdf([word])).body)

    threads = [threading.Thread(target=read, args=(f"word{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(bodies) == [f"# Page 1\n\nword{number}" for number in range(8)]


def test_the_process_knows_no_keys_and_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys; sys.path.insert(0, 'tests'); import document_kit as made_of\n"
        "from ctx.formats.process import READER\n"
        "READER.read('pdf', made_of.pdf(['a']))\n"
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
