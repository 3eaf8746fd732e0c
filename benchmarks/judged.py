"""Judged sets: folders with documents, queries and grades, and how well a search ranks them.

A set has three files. corpus.jsonl has for each document `id`, `text`, and optionally `title` or `path`, and
`source`. queries.jsonl has for each query `id`, `text`, and optionally `source` (search only this source) and
`kind`. qrels.tsv has lines of query, document, grade. `history_set.py` makes two such sets.
"""

import contextlib
import json
import math
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ctx.cli.eval import Question, ask
from ctx.cli.index import drop_sources
from ctx.config import load_config
from ctx.workspace import Workspace, open_workspace

DEPTH = 100  # the number of results per query
DRAWINGS = 2000  # bootstrap samples for an interval
CODE_SETS = frozenset({"cosqa"})  # sets whose documents are functions, not prose
SOURCE = """
[connectors.filesystem.{name}]
root = "./documents/{name}"
include_globs = ["**"]
gitignore = false
"""
CONFIG = """
[embedding]
provider = "{provider}"
[watch]
enabled = false
[packs]
enabled = ["hindsight"]
[retrieval]
{retrieval}
"""

Qrels = dict[str, dict[str, int]]
Runs = dict[str, list[str]]


class JudgedSet(NamedTuple):
    """The content of a folder with corpus.jsonl, queries.jsonl and qrels.tsv."""

    name: str
    folder: Path
    documents: list[dict[str, str]]
    queries: list[dict[str, str]]
    qrels: Qrels


def read_set(folder: Path) -> JudgedSet:
    """Reads a judged set from a folder."""
    qrels: Qrels = {}
    for line in (folder / "qrels.tsv").read_text().splitlines():
        query, document, grade = line.split("\t")
        qrels.setdefault(query, {})[document] = int(grade)
    return JudgedSet(
        folder.name,
        folder,
        _json_lines(folder / "corpus.jsonl"),
        _json_lines(folder / "queries.jsonl"),
        qrels,
    )


def _json_lines(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def ndcg(documents: list[str], grades: dict[str, int], k: int = 10) -> float | None:
    """NDCG@k with linear gain of one ranking; None if no document is relevant. If a document occurs twice in
    the ranking, only the first occurrence counts.
    """
    relevant = {document: grade for document, grade in grades.items() if grade > 0}
    if not relevant:
        return None
    best = sum(
        grade / math.log2(rank + 2) for rank, grade in enumerate(sorted(relevant.values(), reverse=True)[:k])
    )
    ranked = list(dict.fromkeys(documents))[:k]
    return sum(relevant.get(document, 0) / math.log2(rank + 2) for rank, document in enumerate(ranked)) / best


class Scores(NamedTuple):
    """The mean NDCG@10 over the queries used for tuning, over the other queries, and over all queries."""

    tuned: float
    held_out: float
    all: float


def score(judged: JudgedSet, run: Runs) -> Scores:
    """The mean NDCG@10 over the judged queries. A query without results counts as 0."""
    halves: tuple[list[float], list[float]] = ([], [])
    for position, query in enumerate(judged.queries):
        value = ndcg(run.get(query["id"], []), judged.qrels.get(query["id"], {}))
        if value is not None:
            halves[position % 2].append(value)
    return Scores(mean_of(halves[0]), mean_of(halves[1]), mean_of(halves[0] + halves[1]))


def mean_of(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def source_of(document: dict[str, str]) -> str:
    """The source of a document or a query; "all" in a set without sources."""
    return document.get("source", "all")


def path_of(judged: JudgedSet, document: dict[str, str]) -> str:
    """The path of a document in its source: its own path, or its id with the suffix `.md` or `.py`."""
    return document.get("path") or document["id"] + (".py" if judged.name in CODE_SETS else ".md")


def materialise(judged: JudgedSet, folder: Path) -> None:
    """Writes a file for each document. A document with a title but without a path becomes a Markdown file
    that begins with the title as a heading.
    """
    for document in judged.documents:
        path = folder / source_of(document) / path_of(judged, document)
        path.parent.mkdir(parents=True, exist_ok=True)
        title = " ".join(document.get("title", "").split())
        titled = title and "path" not in document and judged.name not in CODE_SETS
        text = f"# {title}\n\n{document['text']}\n" if titled else document["text"]
        path.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def indexed(judged: JudgedSet, folder: Path, provider: str, retrieval: str = "") -> Iterator[Workspace]:
    """A context manager that indexes and embeds a set in `folder` and yields the workspace. An existing store
    in `folder` is used again.

    `retrieval` is TOML text for the section `[retrieval]`.
    """
    if not (folder / "documents").exists():
        materialise(judged, folder / "documents")
    sources = dict.fromkeys(map(source_of, judged.documents))
    config = "".join(SOURCE.format(name=name) for name in sources)
    (folder / "ctx.toml").write_text(config + CONFIG.format(provider=provider, retrieval=retrieval))
    with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
        began_s = time.perf_counter()
        for report in space.indexer.run():
            if not report.ok or report.problems:
                raise SystemExit(f"{judged.name}: indexing failed: {report.note}")
        drop_sources(
            space, space.unconfigured()
        )  # an existing store may have sources of a former layout of the set
        indexed_s = time.perf_counter() - began_s
        embedded = space.indexer.embed()
        stats = space.catalog.stats()
        print(
            f"{judged.name}: {stats['documents']} documents, {stats['chunks']} chunks, "
            f"{len(judged.queries)} queries; "
            f"indexed in {indexed_s:.1f} s, embedded {embedded.embedded} in {embedded.duration_s:.0f} s"
        )
        yield space


def run_queries(
    space: Workspace, judged: JudgedSet, mode: str, limit: int = DEPTH
) -> tuple[Runs, list[list[tuple[str, float]]]]:
    """Runs all queries of a set. Returns (query id -> ids of the documents found, best first; for each query
    the pairs (document id, score)). A query with a source searches only this source.
    """
    ids = {
        (f"filesystem:{source_of(document)}", path_of(judged, document)): document["id"]
        for document in judged.documents
    }
    run: Runs = {}
    rows: list[list[tuple[str, float]]] = []
    for query in judged.queries:
        source = f"filesystem:{query['source']}" if "source" in query else None
        results = ask(space.toolbox, Question(query["text"], (), source), mode, limit, explain=False)
        row = [(ids[result["source"], result["source_id"]], result["score"]) for result in results]
        run[query["id"]] = [document for document, _ in row]
        rows.append(row)
    return run, rows


def ms_each(judged: JudgedSet, began_s: float) -> float:
    """The mean time per query of a set, in ms. `began_s` is when the first query began (`perf_counter`)."""
    return (time.perf_counter() - began_s) / len(judged.queries) * 1e3


def by_part(judged: JudgedSet, run: Runs, part: str) -> dict[str, float]:
    """The mean NDCG@10 of the queries of each `source` or `kind` (`part`); empty if queries have no such
    field.
    """
    values: dict[str, list[float]] = {}
    for query in judged.queries:
        value = ndcg(run.get(query["id"], []), judged.qrels.get(query["id"], {}))
        if part in query and value is not None:
            values.setdefault(query[part], []).append(value)
    return {name: mean_of(figures) for name, figures in values.items()}


def gains(judged: JudgedSet, run: Runs, bare: Runs) -> dict[str, list[float]]:
    """The gain in NDCG@10 of each query over the run `bare`, as a list for "all" queries and for each
    source.
    """
    values: dict[str, list[float]] = {"all": []}
    for query in judged.queries:
        grades = judged.qrels.get(query["id"], {})
        with_all, without = (ndcg(each.get(query["id"], []), grades) for each in (run, bare))
        if with_all is not None and without is not None:
            for name in {"all", source_of(query)}:
                values.setdefault(name, []).append(with_all - without)
    return values


def interval(values: list[float]) -> tuple[float, float]:
    """(low, high): the 95 % bootstrap interval of the mean of the values (percentile method)."""
    chance = random.Random(1)
    means = sorted(mean_of(chance.choices(values, k=len(values))) for _ in range(DRAWINGS))
    return means[DRAWINGS // 40], means[-1 - DRAWINGS // 40]


def write_run(path: Path, judged: JudgedSet, rows: list[list[tuple[str, float]]]) -> None:
    """Writes lines of query, document, rank, score, which `ireval.py score` and `ireval.py compare` read."""
    with path.open("w", encoding="utf-8") as file:
        for query, row in zip(judged.queries, rows, strict=True):
            for rank, (document, value) in enumerate(row, 1):
                file.write(f"{query['id']}\t{document}\t{rank}\t{value:.6f}\n")
