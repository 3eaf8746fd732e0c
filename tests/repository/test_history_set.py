"""The set maker takes questions from the history of a real repository, with the answers a person would give."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from git_kit import git
from kit import ROOT


@pytest.fixture
def clones(tmp_path: Path) -> Path:
    """A folder with one repository of 20 commits that each change one of two source files."""
    repository = tmp_path / "clones" / "shop"
    (repository / "src").mkdir(parents=True)
    git(repository, "init", "--quiet")
    lines = [f"value_{number} = {number}" for number in range(40)]
    (repository / "src" / "cart.py").write_text("\n".join(lines) + "\n")
    (repository / "README.md").write_text("# Shop\n\n## How to pay by card\n\nUse the card form.\n")
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "the first version of the shop")
    for number in range(20):
        lines[number * 2] += "  # checked"
        (repository / "src" / "cart.py").write_text("\n".join(lines) + "\n")
        message = f"Check the value number {number} of a cart\n\nSigned-off-by: A <a@b>"
        git(repository, "commit", "--quiet", "-am", message)
    return repository.parent


def test_a_commit_asks_for_the_lines_it_changed_and_a_heading_for_its_page(
    clones: Path, tmp_path: Path
) -> None:
    script = str(ROOT / "benchmarks" / "history_set.py")
    subprocess.run([sys.executable, script, str(clones), str(tmp_path / "out")], check=True)
    folder = tmp_path / "out" / "tuning"
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text().splitlines()]
    corpus = {
        row["path"]: row["text"]
        for row in map(json.loads, (folder / "corpus.jsonl").read_text().splitlines())
    }
    answers = dict(line.split("\t")[:2] for line in (folder / "qrels.tsv").read_text().splitlines())
    commit = next(query for query in queries if query["text"] == "Check the value number 7 of a cart")
    assert commit["changed"] == [["src/cart.py", 14, 16]]  # line 15, with a line around it
    assert answers[commit["id"]] == "shop/src/cart.py"
    assert "# checked" not in corpus["src/cart.py"]  # the snapshot is older than every question
    heading = next(query for query in queries if query["kind"] == "heading")
    assert (heading["text"], answers[heading["id"]]) == ("How to pay by card", "shop/README.md")
    assert "How to pay" not in corpus["README.md"]
    assert "Use the card form." in corpus["README.md"]
