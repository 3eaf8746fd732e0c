"""The quality benchmark: its scorer agrees with the reference, and it runs the product's own path."""

import importlib.util
import json
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from kit import ROOT, shared


def load(path: Path) -> ModuleType:
    """A program as a module, with its neighbours importable."""
    sys.path.insert(0, str(path.parent))
    try:
        spec = importlib.util.spec_from_file_location(f"loaded_{path.stem}", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(path.parent))


@pytest.fixture(scope="module")
def judged() -> ModuleType:
    return load(ROOT / "benchmarks" / "judged.py")


def benchmark(*arguments: str, timeout_s: float = 110) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "quality.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )


def write_set(
    folder: Path,
    documents: list[tuple[str, str, str]],
    queries: list[tuple[str, str]],
    qrels: list[tuple[str, str, int]],
) -> Path:
    folder.mkdir()
    folder.joinpath("corpus.jsonl").write_text(
        "".join(json.dumps({"id": i, "title": t, "text": x}) + "\n" for i, t, x in documents)
    )
    folder.joinpath("queries.jsonl").write_text(
        "".join(json.dumps({"id": i, "text": t}) + "\n" for i, t in queries)
    )
    folder.joinpath("qrels.tsv").write_text("".join(f"{q}\t{d}\t{g}\n" for q, d, g in qrels))
    return folder


def test_the_scorer_agrees_with_the_reference(judged: ModuleType) -> None:
    reference = load(shared("tools", "ireval.py"))
    chance = random.Random(5)
    names = [f"d{number}" for number in range(40)]
    queries = [{"id": f"q{number}", "text": ""} for number in range(30)]
    qrels = {
        query["id"]: {name: chance.choice((-1, 0, 0, 1, 2, 4)) for name in chance.sample(names, 8)}
        for query in queries
    }
    run = {query["id"]: chance.choices(names, k=chance.randint(0, 30)) for query in queries}
    expected = reference.per_query(queries, qrels, run)
    for query in queries:
        value = judged.ndcg(run[query["id"]], qrels[query["id"]])
        assert value == pytest.approx(expected[query["id"]][0]) if query["id"] in expected else value is None


def test_a_set_goes_through_files_index_and_tool(tmp_path: Path) -> None:
    folder = write_set(
        tmp_path / "tiny",
        [
            ("1", "Otters", "Otters swim in rivers."),
            ("2", "Herons", "Herons stand in water."),
            ("3", "", "A title is not needed by voles."),
        ],
        [("q1", "swimming otter"), ("q2", "vole")],
        [("q1", "1", 1), ("q2", "3", 2)],
    )
    work = tmp_path / "work"
    ran = benchmark("--set", str(folder), "--keyword-only", "--work", str(work))
    assert ran.returncode == 0, ran.stderr
    assert "3 documents" in ran.stdout
    assert "PASS  tiny: keyword against BM25: 100.00" in ran.stdout
    assert work.joinpath("tiny-keyword.tsv").read_text().splitlines()[0].startswith("q1\t1\t1\t")
    assert (
        work.joinpath("tiny", "documents", "all", "1.md").read_text()
        == "# Otters\n\nOtters swim in rivers.\n"
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cranfield", "cacm", "cosqa"])
def test_keyword_search_is_not_worse_than_bm25(name: str) -> None:
    ran = benchmark("--set", str(shared("data", name)), "--keyword-only")
    assert ran.returncode == 0, ran.stdout + ran.stderr
