"""Documents: seconds and memory for each MB of file, and what the process that reads them costs to start.

    python benchmarks/documents.py [FILE ...]

Documents are made as large as `max_file_bytes` lets them be where their format is dense (2 MB of text each),
and read in a fresh process each; the text's size is beside the file's, since a spreadsheet packs ten times.
Memory is the process's peak. FILEs are read besides.
"""

import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from _common import Words, check, finish, header

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
import document_kit as made_of

from ctx.errors import SourceError
from ctx.formats.process import MEMORY_MB, ReadingProcess
from ctx.formats.table import BY_SUFFIX

PARAGRAPHS = 4_000
WORDS = 80  # of a paragraph; 2 MB in all
LINE = 12  # words


def documents(words: Words) -> Mapping[str, Callable[[], bytes]]:
    """A maker of a document for each reader."""
    texts = [" ".join(words.take(WORDS)) for _ in range(PARAGRAPHS)]
    pages = [
        "\n".join(
            " ".join(text.split()[i : i + LINE]) for text in texts[n : n + 5] for i in range(0, WORDS, LINE)
        )
        for n in range(0, PARAGRAPHS, 5)
    ]
    rows = [text.split()[:20] for text in texts for _ in range(4)]
    return {
        "pdf": lambda: made_of.pdf(pages, compress=True),
        "docx": lambda: made_of.docx("".join(map(made_of.word_paragraph, texts))),
        "pptx": lambda: made_of.pptx([(text[:40], text) for text in texts]),
        "xlsx": lambda: made_of.xlsx({"One": rows, "Two": rows}),
        "odt": lambda: made_of.odf("text", "".join(f"<text:p>{text}</text:p>" for text in texts)),
        "epub": lambda: made_of.epub(
            ["".join(f"<p>{t}</p>" for t in texts[n : n + 50]) for n in range(0, PARAGRAPHS, 50)]
        ),
        "mbox": lambda: "".join(f"From a b\n{made_of.message(text[:40], text)}\n" for text in texts).encode(),
    }


def measure(suffix: str, data: bytes, name: str) -> tuple[float, int]:
    """Prints one line; the seconds and the peak of memory in MiB."""
    process = ReadingProcess()
    process.read(BY_SUFFIX["docx"].reader, made_of.docx(""))  # the start is measured apart
    began_s = time.perf_counter()
    try:
        parsed = process.read(BY_SUFFIX[suffix].reader, data)
        size, outcome = len(parsed.body), f"{len(parsed.headings):5} headings"
    except SourceError as error:
        size, outcome = 0, error.message
    seconds = time.perf_counter() - began_s
    peak = _peak_mb(process.pid)
    process.close()
    file_mb, text_mb = len(data) / 1e6, size / 1e6
    per_mb = f"{seconds / file_mb:6.2f} s/MB of file {seconds / text_mb if size else 0:6.2f} s/MB of text"
    print(
        f"{name:24} {file_mb:6.2f} MB {text_mb:6.2f} MB of text {seconds:6.2f} s {per_mb} {peak:5} MiB "
        f"{outcome}"
    )
    return seconds, peak


def _peak_mb(pid: int | None) -> int:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) >> 10 for line in status.splitlines() if line.startswith("VmHWM")), 0)


def main() -> None:
    header("documents")
    began_s = time.perf_counter()
    process = ReadingProcess()
    process.read("docx", made_of.docx(""))
    start_s = time.perf_counter() - began_s
    process.close()
    print(f"start of the process and a first small document: {start_s:.2f} s\n")
    slowest, highest = 0.0, 0
    for suffix, make in documents(Words()).items():
        seconds, peak = measure(suffix, make(), suffix)
        slowest, highest = max(slowest, seconds), max(highest, peak)
    for path in sys.argv[1:]:
        measure(path.rsplit(".", 1)[-1].lower(), Path(path).read_bytes(), os.path.basename(path)[:24])
    print()
    check("start of the process", start_s, 2, unit=" s")
    check("2 MB of text of any format", slowest, 20, unit=" s")
    check("peak of memory, of what is allowed", highest, MEMORY_MB / 2, unit=" MiB")
    finish()


main()
