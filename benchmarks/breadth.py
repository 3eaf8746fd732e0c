"""How good search is while a fresh corpus is still being embedded: NDCG@10 after a share of the embedding
time.

Each judged set (see quality.py) is indexed and embedded whole once; then again from nothing, by the product's
own indexer, with the vectors known from the first time, up to shares of the time. Time is counted in
wordpieces, which it is linear in. Three rows:

    catalog    chunks in the order in which they were stored, as before breadth came first
    breadth    the product's order, of questions that nobody has asked before
    asked      the same, of questions that were asked (in groups of --group, each group in a fresh store) before the time began

Yardsticks of the same run: keyword search, and hybrid search when all is embedded. `--ceiling` embeds
nothing, and prints what no order can surpass that knows nothing of the questions, however well what it has
read were ranked.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from _common import check, finish, header
from quality import DEPTH, JudgedSet, Runs, indexed, read_set, run_queries, score
from quality import options as quality_options

from ctx.config import load_config
from ctx.embed import Embedder
from ctx.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    import threading

    import numpy as np

STEP = 32  # chunks between two looks at the time that is spent
SHARES = (0.05, 0.1, 0.2, 0.5)
DRAWS = 40  # of documents that happen to have been read, for the ceiling


class Recorded:
    """An embedder that knows the vectors of all texts, and counts the wordpieces they would have taken."""

    def __init__(self, embedder: Embedder, vectors: "dict[str, np.ndarray]", pieces: dict[str, int]) -> None:
        self.model, self.dim = embedder.model, embedder.dim
        self.spent = 0
        self._embedder = embedder
        self._vectors = vectors
        self._pieces = pieces
        self._questions: dict[str, np.ndarray] = {}

    def embed(self, texts: Sequence[str], stop: "threading.Event | None" = None) -> "Iterator[np.ndarray]":
        self.spent += sum(self._pieces[text] for text in texts)
        return (self._vectors[text] for text in texts)

    def embed_query(self, text: str) -> "np.ndarray":
        if text not in self._questions:
            self._questions[text] = self._embedder.embed_query(text)
        return self._questions[text]

    def close(self) -> None:
        self._embedder.close()


class Corpus:
    """A judged set whose texts and vectors are known, and stores of it that are embedded in part."""

    def __init__(self, judged: JudgedSet, folder: Path) -> None:
        self.judged = judged
        self.folder = folder
        with indexed(judged, folder, "local") as space:
            assert space.model is not None
            assert space.embedder is not None
            texts = space.catalog.pending_texts("none", 1 << 40)
            vectors = space.catalog.vectors_of(space.model, [digest for digest, _ in texts])
            self.chunks = len(texts)
            self.pieces = pieces_of([text for _, text in texts])
            self.total = sum(self.pieces.values())
            self.recorded = Recorded(
                space.embedder, {text: vectors[digest] for digest, text in texts}, self.pieces
            )
            self.recorded.embed_query("warm")
            self.keyword = self.measure(space, judged, "keyword")
            self.final = self.measure(space, judged, "hybrid")

    @contextlib.contextmanager
    def unembedded(self) -> Iterator[Workspace]:
        """A copy of the store without any embedding."""
        with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
            shutil.copytree(self.folder / ".ctx", Path(name) / ".ctx")
            shutil.copy(self.folder / "ctx.toml", name)
            (Path(name) / "documents").symlink_to((self.folder / "documents").resolve())
            with open_workspace(load_config(f"{name}/ctx.toml", {})) as space:
                space.__dict__["embedder"] = self.recorded
                space.catalog.forget_embeddings(self.recorded.model)
                space.indexer.repair()
                self.recorded.spent = 0
                yield space

    def embed(self, space: Workspace, share: float, *, by_number: bool = False) -> None:
        """Goes on embedding until this share of the whole time is spent."""
        while self.recorded.spent < share * self.total:
            if by_number:
                texts = space.catalog.pending_texts(self.recorded.model, STEP)
                vectors = self.recorded.embed([text for _, text in texts])
                space.catalog.put_embeddings(
                    self.recorded.model, list(zip((digest for digest, _ in texts), vectors, strict=True))
                )
            else:
                space.indexer.embed(limit=STEP)
        space.indexer.repair()

    @staticmethod
    def measure(space: Workspace, judged: JudgedSet, mode: str = "hybrid") -> float:
        """NDCG@10 of the questions."""
        space.__dict__.pop("searcher", None)  # it remembers for a moment how much awaits an embedding
        return score(judged, run_queries(space, judged, mode, 10)[0]).all


def pieces_of(texts: Sequence[str]) -> dict[str, int]:
    """The wordpieces that the model reads of each text."""
    import tokenizers
    from embedding import MODEL

    tokenizer = tokenizers.Tokenizer.from_file(str(MODEL / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return {text: len(tokenizer.encode(text).ids) for text in texts}


def curve(corpus: Corpus, *, by_number: bool) -> dict[float, float]:
    """NDCG@10 at each share."""
    figures = {}
    with corpus.unembedded() as space:
        for share in SHARES:
            corpus.embed(space, share, by_number=by_number)
            figures[share] = corpus.measure(space, corpus.judged)
    return figures


def curve_of_asked(corpus: Corpus, size: int, groups: int) -> tuple[dict[float, float], float]:
    """NDCG@10 at each share of questions that were asked before; and of the same questions when all is
    embedded.
    """
    queries = corpus.judged.queries
    parts = [queries[start : start + size] for start in range(0, len(queries), size)][:groups]
    sums = dict.fromkeys((*SHARES, 1.0), 0.0)
    for part in parts:
        questions = corpus.judged._replace(queries=part)
        with corpus.unembedded() as space:
            corpus.measure(space, questions)
            for share in sums:
                corpus.embed(space, min(share, 0.9999))
                sums[share] += corpus.measure(space, questions) / len(parts)
    final = sums.pop(1.0)
    return sums, final


def ceilings(judged: JudgedSet, work: Path) -> dict[str, object]:
    """At each share of the time, NDCG@10 where a judge who is never wrong has read that many openings,
    whichever they are.

    What is relevant and read comes first, what is read and not relevant goes, and the rest stays in the order
    of the words.
    """
    folder = work / f"{judged.name}-words"
    folder.mkdir(parents=True, exist_ok=True)
    with indexed(judged, folder, "disabled") as space:
        ranked = run_queries(space, judged, "keyword", DEPTH)[0]
        chunks = space.catalog.stats()["chunks"]
    documents = [document["id"] for document in judged.documents]
    keyword = score(judged, ranked).all
    figures = {}
    for share in SHARES:
        count = min(len(documents), round(share * chunks))
        draws = [set(random.Random(seed).sample(documents, count)) for seed in range(DRAWS)]
        figures[share] = sum(score(judged, best_ranking(judged, ranked, draw)).all for draw in draws) / DRAWS
    shares = ", ".join(f"{share:.0%} {figure * 100:.2f}" for share, figure in figures.items())
    print(f"  keyword {keyword * 100:.2f}, ceiling {shares}")
    return {"set": judged.name, "chunks": chunks, "keyword": keyword, "ceiling": figures}


def best_ranking(judged: JudgedSet, ranked: Runs, documents: set[str]) -> Runs:
    """The runs of the words, put right by all that can be known of the documents that have been read."""
    runs: Runs = {}
    for query, grades in judged.qrels.items():
        relevant = sorted(
            (id for id in documents & grades.keys() if grades[id] > 0), key=lambda id: (-grades[id], id)
        )
        runs[query] = [*relevant, *(id for id in ranked.get(query, []) if id not in documents)]
    return runs


def main() -> None:
    parser = quality_options()
    parser.add_argument(
        "--ceiling", action="store_true", help="only what an order can reach that knows no question"
    )
    parser.add_argument(
        "--queries", type=int, default=10_000, help="at most so many of each set, evenly taken"
    )
    parser.add_argument("--group", type=int, default=10, help="questions that were asked lately")
    parser.add_argument("--groups", type=int, default=5, help="groups of such questions")
    args = parser.parse_args()
    header("Hybrid search while a corpus is being embedded (NDCG@10 x 100)")
    folders = args.set or sorted(path.parent for path in (args.shared / "data").glob("*/corpus.jsonl"))
    results = []
    with contextlib.ExitStack() as stack:
        work = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for folder in folders:
            judged = read_set(folder)
            results.append(ceilings(judged, work) if args.ceiling else measured(judged, work, args))
    print(json.dumps({"benchmark": "breadth", "load": os.getloadavg(), "sets": results}))
    finish()


def measured(judged: JudgedSet, work: Path, args: argparse.Namespace) -> dict[str, object]:
    """The rows of one set, printed and held to what they promise."""
    queries = judged.queries[:: max(1, -(-len(judged.queries) // args.queries))]
    folder = work / judged.name
    folder.mkdir(parents=True, exist_ok=True)
    corpus = Corpus(judged._replace(queries=queries), folder)
    rows = {"catalog": curve(corpus, by_number=True), "breadth": curve(corpus, by_number=False)}
    finals = dict.fromkeys(rows, corpus.final)
    rows["asked"], finals["asked"] = curve_of_asked(corpus, args.group, args.groups)
    print(f"  keyword {corpus.keyword * 100:.2f}, hybrid when all is embedded {corpus.final * 100:.2f}")
    for name, figures in rows.items():
        shares = ", ".join(
            f"{share:.0%} {figure * 100:.2f} ({figure / finals[name]:.0%})"
            for share, figure in figures.items()
        )
        print(f"  {name:<8} {shares}")
    lowest = min(rows["breadth"].values())
    check(
        f"{judged.name}: never worse than keyword",
        lowest / corpus.keyword * 100,
        99,
        at_most=False,
        unit=" %",
    )
    check(
        f"{judged.name}: after 10 %", rows["breadth"][0.1] / corpus.final * 100, 90, at_most=False, unit=" %"
    )
    check(
        f"{judged.name}: asked, after 10 %",
        rows["asked"][0.1] / finals["asked"] * 100,
        90,
        at_most=False,
        unit=" %",
    )
    return {
        "set": judged.name, "chunks": corpus.chunks, "queries": len(queries), "keyword": corpus.keyword,
        "hybrid": corpus.final, "hybrid_of_asked": finals["asked"], **rows,
    }  # fmt: skip


if __name__ == "__main__":
    main()
