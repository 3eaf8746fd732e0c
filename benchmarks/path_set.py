"""A judged set with paths, made of what the package registry serves: code bases with their tests, examples
and documentation.

Sources of packages are fetched with pip. A question is the first sentence of a docstring, or a heading of the
documentation, taken out of the text; its answer is the file. A third kind is the name of a public class or
function. Nothing is written by hand, so whoever has pip can make the set again; nothing of it is kept here.

    python benchmarks/path_set.py OUT
    python benchmarks/quality.py --set OUT/tuning --set OUT/test

Packages are split by the parity of their place in the list: constants may be looked for on `tuning` alone.
The format is that of quality.py, with `source` (a package) and `path` of a document, and `source` and `kind`
of a query.
"""

import argparse
import ast
import json
import random
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PACKAGES = (
    "flask", "starlette", "click", "werkzeug", "jinja2", "marshmallow", "requests", "structlog", "attrs",
    "anyio",
    "tenacity", "urllib3", "pluggy", "httpx",
)  # fmt: skip
KINDS = {"docstring": 24, "heading": 14, "symbol": 10}  # questions of each kind from one package, at most
SUFFIXES = frozenset({".py", ".pyi", ".md", ".rst", ".txt"})
MAX_FILE_CHARS = 120_000
MIN_WORDS, MAX_WORDS = 4, 25  # of a question in words: shorter ones have many answers


class Question(NamedTuple):
    """A question whose answer is one file; `start` and `end` are what was taken out of that file (equal:
    nothing).
    """

    kind: str
    text: str
    path: str
    start: int = 0
    end: int = 0


def fetched(package: str, folder: Path) -> dict[str, str]:
    """path -> text of the files in a package's sources, paths below its top folder."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*command, "--dest", str(folder), package], check=True)
    (archive,) = (path for path in folder.iterdir() if path.suffix in (".gz", ".zip"))
    files = {}
    for name, data in _members(archive):
        path = name.split("/", 1)[-1]
        if Path(path).suffix in SUFFIXES and ".egg-info/" not in path and len(data) <= MAX_FILE_CHARS:
            files[path] = data.decode("utf-8", "replace").replace("\r\n", "\n")
    return files


def _members(archive: Path) -> Iterator[tuple[str, bytes]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                yield name, opened.read(name)
        return
    with tarfile.open(archive) as opened:
        for member in opened:
            stream = opened.extractfile(member) if member.isfile() else None
            if stream is not None:
                yield member.name, stream.read()


def _subject(path: str) -> bool:
    """Whether a file is what a package is about: neither a test nor an example, which questions are not taken
    from.
    """
    return not re.search(
        r"(^|/)(tests?|testing|examples?|benchmarks?|docs_src)(/|$)|(^|/)(test_|conftest|setup\.py)", path
    )


def code_questions(path: str, text: str) -> Iterator[Question]:
    """Of a Python file: the docstrings of public definitions, and the names of those at its top."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in ast.walk(tree):
        if not isinstance(
            node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
        ) or node.name.startswith("_"):
            continue
        if node in tree.body and len(node.name) > 5:
            yield Question("symbol", node.name, path)
        first = node.body[0]
        docstring = ast.get_docstring(node)
        if not docstring or not text.isascii():  # columns of the tree are bytes
            continue
        sentence = _sentence(docstring)
        if sentence and isinstance(first, ast.Expr) and first.end_lineno and first.end_col_offset:
            start = starts[first.lineno - 1] + first.col_offset
            end = starts[first.end_lineno - 1] + first.end_col_offset
            yield Question("docstring", sentence, path, start, end)


def _sentence(docstring: str) -> str:
    """The first sentence of a docstring without its markup; "" where it is no question of a fit length."""
    paragraph = " ".join(docstring.strip().split("\n\n")[0].split())
    text = re.sub(r":\w+:`~?([^`<]+)[^`]*`|``?([^`]+)``?", lambda match: match[1] or match[2], paragraph)
    sentence = re.split(r"(?<=[a-z)])\.(?:\s|$)", text)[0]
    return sentence if MIN_WORDS <= len(sentence.split()) <= MAX_WORDS else ""


def prose_questions(path: str, text: str) -> Iterator[Question]:
    """The headings of a page below its first, of three words or more."""
    pattern = r"^#{2,4} +([^\n]+)\n" if path.endswith(".md") else r"^([A-Z][^\n]{8,80})\n[-=~^\"']{6,}\n"
    for match in re.finditer(pattern, text, re.MULTILINE):
        title = re.sub(
            r":\w+:`~?([^`<]+)[^`]*`|`+([^`]*)`+|\{[^}]*\}",
            lambda found: found[1] or found[2] or "",
            match[1],
        )
        words = re.findall(r"[A-Za-z]{2,}", title)
        if len(words) >= 3 and match.start() > 0 and not re.search(r"\d+\.\d+", title):
            yield Question("heading", " ".join(title.split()), path, match.start(), match.end())


def chosen(files: dict[str, str], chance: random.Random) -> list[Question]:
    """Questions of each kind with one answer: those whose words stand in several places are left out."""
    candidates: list[Question] = []
    for path, text in sorted(files.items()):
        if path.endswith(".py") and _subject(path):
            candidates += code_questions(path, text)
        elif path.endswith((".md", ".rst")) and not re.search(r"(?i)change|history|news|license", path):
            candidates += prose_questions(path, text)
    times: dict[str, int] = {}
    for question in candidates:
        times[question.text.lower()] = times.get(question.text.lower(), 0) + 1
    questions = []
    for kind, count in KINDS.items():
        single = [q for q in candidates if q.kind == kind and times[q.text.lower()] == 1]
        questions += chance.sample(single, min(count, len(single)))
    return questions


def without(text: str, questions: list[Question]) -> str:
    """The text without what was made a question; a docstring leaves an ellipsis, so that code stays code."""
    for question in sorted(questions, key=lambda question: -question.start):
        if question.end > question.start:
            filler = "..." if question.kind == "docstring" else ""
            text = text[: question.start] + filler + text[question.end :]
    return text


def write_half(folder: Path, packages: dict[str, dict[str, str]], chance: random.Random) -> None:
    """corpus.jsonl, queries.jsonl and qrels.tsv of some packages."""
    folder.mkdir(parents=True)
    corpus, queries, qrels = [], [], []
    for package, files in packages.items():
        questions = chosen(files, chance)
        for number, question in enumerate(questions):
            query_id = f"{package}-{number}"
            queries.append({"id": query_id, "text": question.text, "source": package, "kind": question.kind})
            qrels.append(f"{query_id}\t{package}/{question.path}\t1\n")
        for path, text in files.items():
            text = without(text, [question for question in questions if question.path == path])
            corpus.append(
                {"id": f"{package}/{path}", "source": package, "path": path, "title": "", "text": text}
            )
        print(f"{package}: {len(files)} files, {len(questions)} questions")
    for name, rows in (("corpus", corpus), ("queries", queries)):
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        folder.joinpath(f"{name}.jsonl").write_text(lines, encoding="utf-8")
    folder.joinpath("qrels.tsv").write_text("".join(qrels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("out", type=Path, help="the folder to make; it must not exist yet")
    parser.add_argument("--package", action="append", metavar="NAME", help="instead of the usual ones")
    args = parser.parse_args()
    halves: tuple[dict[str, dict[str, str]], dict[str, dict[str, str]]] = ({}, {})
    for position, package in enumerate(args.package or PACKAGES):
        with tempfile.TemporaryDirectory() as folder:
            try:
                halves[position % 2][package] = fetched(package, Path(folder))
            except subprocess.CalledProcessError:
                print(f"{package}: cannot be fetched, left out", file=sys.stderr)
    chance = random.Random(11)
    for name, packages in zip(("tuning", "test"), halves, strict=True):
        write_half(args.out / name, packages, chance)


if __name__ == "__main__":
    main()
