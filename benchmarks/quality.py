"""Measures the quality of keyword, semantic and hybrid search on judged sets (docs/ranking.md).

A set (`judged.py`) is written to files, which are indexed like any folder, and each query is run as by `ctx
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
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _common import check, finish, header
from judged import (
    DEPTH,
    JudgedSet,
    Runs,
    Scores,
    by_part,
    gains,
    indexed,
    interval,
    mean_of,
    ms_each,
    read_set,
    run_queries,
    score,
    write_run,
)

from ctx.models import MODES, Caller
from ctx.search import boosts
from ctx.workspace import Workspace

MEMORY_TOLERANCE = 0.01  # recall may be this much worse than search over the same text
TOLERANCE = 0.005  # keyword search may be this much worse than plain BM25
# NDCG@10 of `ireval.py bm25` with the better of its tokenizers (stem, code): (with --k1 1.2 --bb 0.75, with
# its default constants k1 0.9 and b 0.4).
RECORDED_BM25 = {"cranfield": (0.3746, 0.3561), "cacm": (0.4777, 0.4682), "cosqa": (0.3851, 0.3568)}


@contextlib.contextmanager
def without_rules() -> Iterator[None]:
    """A context manager in which searches of this process do not use the rules of ctx/search/boosts.py."""
    apply = boosts.apply
    boosts.apply = lambda ranked, profiles, question: (ranked, {})
    try:
        yield
    finally:
        boosts.apply = apply


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
            mean = mean_of(differences)
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
