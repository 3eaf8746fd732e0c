"""Questions over trees of documentation and code, read as a person reads them: is the right file first, and
does the passage that is shown answer?

    python benchmarks/questions.py [--show]
    python benchmarks/questions.py --set later [--show]
    python benchmarks/questions.py --set third [--show]

The first 40 (`questions.tsv`) are of the documentation of Click and Flask and were looked at while passages
were made better; at least 28 are to be answered. The later 40 (`questions_later.tsv`) are of this project's
own documentation and the code of Uvicorn and websockets, and were written before any of them was asked; so were
the third 20 (`questions_third.tsv`), of the documentation of Celery and Scrapy.
Packages come from the registry, as sources. A question stands with the files that answer it and the words by
which one sees the answer in a passage. A passage that holds none of them is counted as no answer, whatever
else it says; `--show` prints each for a reader's own judgement.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from _common import check, finish, header
from path_set import fetched

from ctx.config import load_config
from ctx.workspace import open_workspace

ROOT = Path(__file__).parent.parent
SOURCE = '[connectors.filesystem.{name}]\nroot = "./{name}"\n'


class Tree(NamedTuple):
    """Files that are asked about: of a package as the registry has its sources; without a requirement of this
    checkout.
    """

    name: str
    requirement: str | None
    below: tuple[str, ...]  # the folders or files that count
    top: str = ""  # taken off the paths


class QuestionSet(NamedTuple):
    file: str
    trees: tuple[Tree, ...]
    least: int  # so many are to be answered


SETS = {
    "first": QuestionSet(
        "questions.tsv",
        (
            Tree("click", "click==8.5.1", ("docs/",), "docs/"),
            Tree("flask", "flask==3.1.3", ("docs/",), "docs/"),
        ),
        28,
    ),
    "later": QuestionSet(
        "questions_later.tsv",
        (
            Tree("ctx", None, ("docs/", "README.md")),
            Tree("uvicorn", "uvicorn==0.35.0", ("uvicorn/", "README.md")),
            Tree("websockets", "websockets==15.0.1", ("src/", "README.rst")),
        ),
        20,  # this project's pages change, and near ties with them
    ),
    "third": QuestionSet(
        "questions_third.tsv",
        (
            Tree(
                "celery",
                "celery==5.7.0",
                ("docs/userguide/", "docs/getting-started/", "docs/faq.rst"),
                "docs/",
            ),
            Tree("scrapy", "scrapy==2.19.0", ("docs/topics/", "docs/intro/", "docs/faq.rst"), "docs/"),
        ),
        7,
    ),
}


class Question(NamedTuple):
    text: str
    paths: frozenset[str]
    words: tuple[str, ...]


def questions(file: str) -> list[Question]:
    lines = (Path(__file__).parent / file).read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines if not line.startswith("#")]
    return [
        Question(text, frozenset(paths.split("|")), tuple(words.split("|"))) for text, paths, words in fields
    ]


def own_pages() -> dict[str, str]:
    """path -> text of this project's documentation."""
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in pages}


def write_trees(trees: Sequence[Tree], folder: Path) -> None:
    for tree in trees:
        with tempfile.TemporaryDirectory(prefix="ctx-bench-") as downloads:
            files = fetched(tree.requirement, Path(downloads)) if tree.requirement else own_pages()
        for path, text in files.items():
            if path.startswith(tree.below):
                page = folder / tree.name / path.removeprefix(tree.top)
                page.parent.mkdir(parents=True, exist_ok=True)
                page.write_text(text, encoding="utf-8")
    sources = "".join(SOURCE.format(name=tree.name) for tree in trees)
    (folder / "ctx.toml").write_text(f"{sources}[watch]\nenabled = false\n")


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--set", default="first", choices=SETS)
    options.add_argument("--mode", default="hybrid", choices=("keyword", "hybrid", "semantic"))
    options.add_argument("--show", action="store_true", help="print each first result and its passage")
    args = options.parse_args()
    chosen = SETS[args.set]
    asked = questions(chosen.file)
    names = ", ".join(tree.requirement or tree.name for tree in chosen.trees)
    header(f"{len(asked)} questions over {names}, {args.mode}")
    first = answered = 0
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        write_trees(chosen.trees, folder)
        subprocess.run([sys.executable, "-m", "ctx", "index"], cwd=folder, check=True, capture_output=True)
        with open_workspace(load_config(str(folder / "ctx.toml"), os.environ)) as workspace:
            for question in asked:
                (result,) = workspace.searcher.search(question.text, args.mode, limit=1).results
                path = f"{result.source.rpartition(':')[2]}/{result.source_id}"
                right = path in question.paths
                answers = right and any(word.lower() in result.snippet.lower() for word in question.words)
                first, answered = first + right, answered + answers
                if args.show:
                    verdict = "answered" if answers else "page" if right else "MISSED"
                    print(f"\n{verdict:<9}{question.text}\n  {path}  {result.heading}\n  {result.snippet}")
    print(f"right page first {first} of {len(asked)}; answer in the passage shown too {answered}")
    check("right page first and the answer shown", answered, chosen.least, at_most=False)
    finish()


if __name__ == "__main__":
    main()
