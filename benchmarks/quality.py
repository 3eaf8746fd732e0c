"""Measures the quality of keyword, semantic and hybrid search on judged sets (docs/ranking.md).

A set is a folder with three files. corpus.jsonl has for each document `id`, `text`, and optionally `title` or
`path`, and `source`. queries.jsonl has for each query `id`, `text`, and optionally `source` (search only this
source) and `kind`. qrels.tsv has lines of query, document, grade. `history_set.py` makes two such sets.

Each document is written to a file, the files are indexed like any folder, and each query is run as by `ctx
eval`. NDCG@10 has linear gain (like ndcg_cut of trec_eval); only documents with a grade above 0 count. For
comparison, plain BM25 over whole documents is computed in the same run by `ireval.py` if its packages (bm25s,
PyStemmer) are installed; otherwise the figures recorded below are used.

With `--memory`, every document is also stored as a memory through the hindsight pack, and each query is a
recall. Recall should rank the texts as well as `search` does, within 0.01.

With `--rules`, every mode also runs without the rules of ctx/search/boosts.py. The gain of the rules is
printed with its interval, for all queries and for the queries of each source.

The constants of the ranking were tuned on every other query of each set (the first, the third, ...). The
figures of the other half are printed separately.
"""

import argparse
import contextlib
import json
import math
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from _common import check, finish, header

from ctx.cli.eval import Question, ask
from ctx.cli.index import drop_sources
from ctx.config import load_config
from ctx.models import MODES, Caller
from ctx.search import boosts
from ctx.workspace import Workspace, open_workspace

DEPTH = 100  # the number of results per query
DRAWINGS = 2000  # bootstrap samples for an interval
MEMORY_TOLERANCE = 0.01  # recall may be this much worse than search over the same text
TOLERANCE = 0.005  # keyword search may be this much worse than plain BM25
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

# NDCG@10 of `ireval.py bm25` with the better of its tokenizers (stem, code): (with --k1 1.2 --bb 0.75, with
# its default constants k1 0.9 and b 0.4).
RECORDED_BM25 = {"cranfield": (0.3746, 0.3561), "cacm": (0.4777, 0.4682), "cosqa": (0.3851, 0.3568)}

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
    return Scores(_mean(halves[0]), _mean(halves[1]), _mean(halves[0] + halves[1]))


def _mean(values: list[float]) -> float:
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
    return {name: _mean(figures) for name, figures in values.items()}


@contextlib.contextmanager
def without_rules() -> Iterator[None]:
    """A context manager in which searches of this process do not use the rules of ctx/search/boosts.py."""
    apply = boosts.apply
    boosts.apply = lambda ranked, profiles, question: (ranked, {})
    try:
        yield
    finally:
        boosts.apply = apply


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
    means = sorted(_mean(chance.choices(values, k=len(values))) for _ in range(DRAWINGS))
    return means[DRAWINGS // 40], means[-1 - DRAWINGS // 40]


def retained(space: Workspace, judged: JudgedSet) -> dict[str, list[str]]:
    """Stores a set in a memory bank with the set's name, through the hindsight pack. Returns memory id -> ids
    of the documents with its text.
    """
    _ = space.packs
    caller = Caller("cli", bank=judged.name)
    documents: dict[str, list[str]] = {}
    began_s = time.perf_counter()
    for document in judged.documents:
        text = "\n\n".join(part for part in (document.get("title", ""), document["text"]) if part.strip())
        if text:
            memory = space.toolbox.call("retain", {"content": text, "context": "document"}, caller)
            documents.setdefault(memory["id"], []).append(document["id"])
    took_s = time.perf_counter() - began_s
    print(f"{judged.name}: {len(documents)} memories retained in {took_s:.0f} s")
    return documents


def recall_queries(space: Workspace, judged: JudgedSet, documents: dict[str, list[str]]) -> Runs:
    """query id -> ids of the documents whose memories a recall finds, best first. `documents` is memory id ->
    document ids.
    """
    caller = Caller("cli", bank=judged.name)
    run: Runs = {}
    for query in judged.queries:
        reply = space.toolbox.call("recall", {"query": query["text"], "max_results": DEPTH}, caller)
        run[query["id"]] = [document for row in reply["results"] for document in documents[row["id"]]]
    return run


def write_run(path: Path, judged: JudgedSet, rows: list[list[tuple[str, float]]]) -> None:
    """Writes lines of query, document, rank, score, which `ireval.py score` and `ireval.py compare` read."""
    with path.open("w", encoding="utf-8") as file:
        for query, row in zip(judged.queries, rows, strict=True):
            for rank, (document, value) in enumerate(row, 1):
                file.write(f"{query['id']}\t{document}\t{rank}\t{value:.6f}\n")


def yardstick(judged: JudgedSet, shared: Path, python: str, folder: Path) -> tuple[float, float, str]:
    """The NDCG@10 of plain BM25: (with k1 1.2 and b 0.75, with the default constants of `ireval.py`,
    "measured", "recorded" or "unknown").
    """
    tool = shared / "tools" / "ireval.py"
    probe = subprocess.run([python, "-c", "import bm25s, Stemmer"], capture_output=True, check=False)
    if probe.returncode == 0 and tool.is_file():
        values: dict[str, float] = {}
        for constants in (("1.2", "0.75"), ("0.9", "0.4")):
            for tokens in ("stem", "code"):
                output = folder / f"bm25-{judged.name}-{tokens}-{constants[0]}.tsv"
                command = [python, str(tool), "bm25", str(judged.folder), str(output), "--tok", tokens]
                output_text = subprocess.run(
                    [*command, "--k1", constants[0], "--bb", constants[1]],
                    capture_output=True,
                    text=True,
                    check=True,
                ).stdout
                match = re.search(r"NDCG@10=([0-9.]+)", output_text)
                if match is None:
                    raise SystemExit(f"ireval.py said something else: {output_text[:200]}")
                values[constants[0]] = max(values.get(constants[0], 0.0), float(match[1]))
        return values["1.2"], values["0.9"], "measured"
    if judged.name in RECORDED_BM25:
        return *RECORDED_BM25[judged.name], "recorded"
    return 0.0, 0.0, "unknown"


class Report:
    """The table that is printed at the end, and the figures that are checked against a limit."""

    def __init__(self) -> None:
        self.lines = [f"{'set':<12}{'mode':<10}{'tuned on':>10}{'held out':>10}{'all':>8}{'ms':>8}"]
        self._verdicts: list[tuple[str, float, float]] = []

    def add(self, name: str, mode: str, scores: Scores, query_ms: float) -> None:
        widths = zip(scores, (10, 10, 8), strict=True)
        figures = "".join(f"{value * 100:>{width}.2f}" for value, width in widths)
        self.lines.append(f"{name:<12}{mode:<10}{figures}{query_ms:>8.1f}")

    def parts(self, judged: JudgedSet, run: Runs) -> None:
        for part in ("kind", "source"):
            means = by_part(judged, run, part)
            if means:
                self.lines.append(
                    " " * 14 + ", ".join(f"{name} {mean * 100:.1f}" for name, mean in means.items())
                )

    def gains(self, values: dict[str, list[float]]) -> None:
        for name, differences in values.items():
            low, high = interval(differences)
            mean = _mean(differences)
            figures = f"{mean * 100:+.1f} [{low * 100:+.1f}, {high * 100:+.1f}] of {len(differences)}"
            self.lines.append(f"{'':<14}with the boosts, {name}: {figures}")

    def expect(self, claim: str, figure: float, bound: float) -> None:
        self._verdicts.append((claim, figure, bound))

    def finish(self) -> None:
        print("\n" + "\n".join(self.lines) + "\n")
        for claim, figure, bound in self._verdicts:
            check(claim, figure * 100, round(bound * 100, 2), at_most=False)
        finish()


def measure(judged: JudgedSet, work: Path, args: argparse.Namespace, report: Report) -> None:
    """Measures all modes on one set, and adds the figures and their limits to the report."""
    modes = MODES[:1] if args.keyword_only else MODES
    folder = work / judged.name
    folder.mkdir(parents=True, exist_ok=True)
    scores: dict[str, Scores] = {}
    with indexed(judged, folder, "disabled" if args.keyword_only else "local", args.retrieval) as space:
        for mode in modes:
            began_s = time.perf_counter()
            run, rows = run_queries(space, judged, mode, args.limit)
            query_ms = ms_each(judged, began_s)
            write_run(work / f"{judged.name}-{mode}.tsv", judged, rows)
            scores[mode] = score(judged, run)
            report.add(judged.name, mode, scores[mode], query_ms)
            report.parts(judged, run)
            if args.rules:
                began_s = time.perf_counter()
                with without_rules():
                    bare, _ = run_queries(space, judged, mode, args.limit)
                report.add(judged.name, "no rules", score(judged, bare), ms_each(judged, began_s))
                report.gains(gains(judged, run, bare))
        if args.memory:
            documents = retained(space, judged)
            began_s = time.perf_counter()
            recalled = score(judged, recall_queries(space, judged, documents))
            report.add(judged.name, "recall", recalled, ms_each(judged, began_s))
            bound = scores[modes[-1]].all - MEMORY_TOLERANCE
            report.expect(f"{judged.name}: recall against {modes[-1]} search", recalled.all, bound)
    best, default, origin = yardstick(judged, args.shared, args.python, work)
    report.lines.append(
        f"{judged.name:<12}BM25 {best * 100:.2f} (k1 1.2, b 0.75), {default * 100:.2f} (k1 0.9, b 0.4); "
        f"{origin}"
    )
    bound = max(best, default) - TOLERANCE
    report.expect(f"{judged.name}: keyword against BM25", scores["keyword"].all, bound)
    if not args.keyword_only:
        single = max(scores["keyword"].all, scores["semantic"].all)
        report.expect(f"{judged.name}: hybrid against the better leg", scores["hybrid"].all, single)


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--set", action="append", type=Path, metavar="DIR", help="a judged set (default: the shared ones)")
    add("--keyword-only", action="store_true", help="without embeddings: a minute instead of ten")
    add("--rules", action="store_true", help="each mode again without the boosts, and what they add")
    add("--memory", action="store_true", help="the same through the hindsight pack, retained and recalled")
    add("--work", type=Path, metavar="DIR", help="keep stores and runs here, and use again what is there")
    add("--limit", type=int, default=DEPTH, help="results asked for; the first of them are the same for any")
    add("--retrieval", default="", metavar="TOML", help="settings of [retrieval], such as 'fusion = \"rrf\"'")
    add("--python", default=sys.executable, help="an interpreter with bm25s and PyStemmer, for the yardstick")
    shared = os.environ.get("CTX_SHARED") or Path(__file__).resolve().parents[2] / "shared"
    parser.set_defaults(shared=Path(shared))
    return parser


def main() -> None:
    args = options().parse_args()
    folders = args.set or sorted(path.parent for path in (args.shared / "data").glob("*/corpus.jsonl"))
    if not folders:
        print("SKIP  no judged sets: give --set DIR, or set CTX_SHARED to the folder that holds data/")
        return
    header("Retrieval quality (NDCG@10 x 100)")
    report = Report()
    with contextlib.ExitStack() as stack:
        work = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for folder in folders:
            measure(read_set(folder), work, args, report)
    report.finish()


if __name__ == "__main__":
    main()
