"""40 questions over two trees of documentation, read as a person reads them: is the right page first, and does the passage that is
shown answer (issue: at least 28 of 40)?

The trees are the documentation of Click and Flask as the registry has their sources. `questions.tsv` was written by reading those
pages: a question, the pages that answer it, and the words by which one sees the answer in a passage. A passage that holds none of
them is counted as no answer, whatever else it says; `--show` prints each for a reader's own judgement.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from _common import check, finish, header
from path_set import fetched

from ctx.config import load_config
from ctx.workspace import open_workspace

TREES = {"click": "click==8.5.1", "flask": "flask==3.1.3"}
SOURCE = '[connectors.filesystem.{name}]\nroot = "./{name}"\n'


class Question(NamedTuple):
    text: str
    paths: frozenset[str]
    words: tuple[str, ...]


def questions() -> list[Question]:
    lines = (Path(__file__).parent / "questions.tsv").read_text(encoding="utf-8").splitlines()
    fields = [line.split("\t") for line in lines if not line.startswith("#")]
    return [
        Question(text, frozenset(paths.split("|")), tuple(words.split("|"))) for text, paths, words in fields
    ]


def write_trees(folder: Path) -> None:
    for name, requirement in TREES.items():
        with tempfile.TemporaryDirectory(prefix="ctx-bench-") as downloads:
            for path, text in fetched(requirement, Path(downloads)).items():
                if path.startswith("docs/"):
                    page = folder / name / path.removeprefix("docs/")
                    page.parent.mkdir(parents=True, exist_ok=True)
                    page.write_text(text, encoding="utf-8")
    sources = "".join(SOURCE.format(name=name) for name in TREES)
    (folder / "ctx.toml").write_text(f"{sources}[watch]\nenabled = false\n")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--mode", default="hybrid", choices=("keyword", "hybrid", "semantic"))
    options.add_argument("--show", action="store_true", help="print each first result and its passage")
    args = options.parse_args()
    header(f"40 questions over {' and '.join(TREES.values())}, {args.mode}")
    asked = questions()
    first = answered = 0
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        write_trees(folder)
        subprocess.run([sys.executable, "-m", "ctx", "index"], cwd=folder, check=True, capture_output=True)
        with open_workspace(load_config(folder / "ctx.toml", os.environ)) as workspace:
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
    check("right page first and the answer shown", answered, 28, at_most=False)
    finish()


if __name__ == "__main__":
    main()
