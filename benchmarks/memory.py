"""How fast memory is, how large it grows, and where its scores come from. How well it finds what was said is
measured by memory_quality.py.

    python benchmarks/memory.py                  100,000 memories in one bank, then 1,000,000 in another process
    python benchmarks/memory.py --quick          5,000 and 20,000
    python benchmarks/memory.py --part prune     100 conversations of 1,000 messages: memory_prune and memory_stats
    python benchmarks/memory.py --fit MODEL_DIR  the logistic constants of ctx/memory/scores.py from
    memories/pairs.tsv
    python benchmarks/memory.py --recall DIR     NDCG@10 of a judged set: its texts as memories, and as documents

Words follow Zipf's law over 50,000; vectors are random directions, so that the figures are of the store and
not of a model: what the embedder takes is measured apart and left out. The figures are p50 and p95 in
milliseconds.
"""

import argparse
import itertools
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from quality import Runs, indexed, read_set, run_queries, score

from ctx.config import load_config
from ctx.embed.local import LocalEmbedder
from ctx.memory import MemoryBank, MemoryStore
from ctx.models import Caller
from ctx.workspace import open_workspace

DIM = 384
VOCABULARY = 50_000
WORDS = 15  # of a memory: a sentence
TARGETS_MS = {"recall": 60.0, "put": 15.0}  # p95 at 100,000 memories in one bank
TARGET_RSS_MB = 3072  # at 1,000,000
NEGATIVES = 4.0  # wrong memories for each right one that a threshold should expect


class RandomEmbedder:
    """A random direction for every text, and a count of the time it took."""

    model = "random-384"

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self.spent_s = 0.0

    def embed(self, texts: Sequence[str], stop: object = None) -> np.ndarray:
        began_s = time.perf_counter()
        vectors: np.ndarray = self._random.standard_normal((len(texts), DIM), np.float32)
        self.spent_s += time.perf_counter() - began_s
        return vectors

    def embed_query(self, text: str) -> np.ndarray:
        vector: np.ndarray = self.embed([text])[0]
        return vector


class Sentences:
    """Sentences of made-up words, the commonest as common as English's."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._cumulative = list(itertools.accumulate(1 / rank for rank in range(1, VOCABULARY + 1)))

    def take(self, words: int) -> str:
        numbers = self._random.choices(range(VOCABULARY), cum_weights=self._cumulative, k=words)
        return " ".join(_word(number) for number in numbers)


def _word(number: int) -> str:
    letters = ""
    while True:
        number, letter = divmod(number, 20)
        letters += "bcdfghjklmnpqrstvwxz"[letter] + "aeiou"[letter % 5]
        if not number:
            return letters + "q"


def fill(bank: MemoryBank, memories: int) -> float:
    """Stores so many memories; how many a second."""
    sentences = Sentences(7)
    began_s = time.perf_counter()
    for start in range(0, memories, 1000):
        bank.put_many([{"text": sentences.take(WORDS)} for _ in range(min(1000, memories - start))])
    return memories / (time.perf_counter() - began_s)


def timed(embedder: RandomEmbedder, action: Callable[[], object]) -> float:
    """Milliseconds of an action without those of the embedder."""
    spent_s = embedder.spent_s
    began_s = time.perf_counter()
    action()
    return (time.perf_counter() - began_s - (embedder.spent_s - spent_s)) * 1000


def quantiles(times_ms: list[float]) -> dict[str, float]:
    ordered = sorted(times_ms)
    return {
        "p50": round(ordered[len(ordered) // 2], 2),
        "p95": round(ordered[int(len(ordered) * 0.95)], 2),
        "max": round(ordered[-1], 2),
    }


def latency(folder: str, memories: int, rounds: int) -> dict[str, object]:
    embedder = RandomEmbedder()
    sentences = Sentences(11)
    with MemoryStore(os.path.join(folder, "ctx.db"), embedder) as store:
        bank = store.bank("bench")
        per_second = fill(bank, memories)
        first_ms = timed(embedder, lambda: bank.search("warm up"))
        queries = [sentences.take(2 + number % 4) for number in range(rounds)]
        recall = [timed(embedder, partial(bank.search, query)) for query in queries]
        touched = [
            timed(embedder, partial(bank.search, query, touch=True)) for query in queries[: rounds // 2]
        ]
        narrowed = [
            timed(
                embedder,
                partial(bank.search, query, filter={"kind": "fact", "importance": {"gte": 5}}),
            )
            for query in queries[: rounds // 2]
        ]
        texts = [sentences.take(WORDS) for _ in range(rounds)]
        puts = [timed(embedder, lambda text=text: bank.put(text)) for text in texts]  # type: ignore[misc]
        later_searches = [timed(embedder, lambda query=query: bank.search(query)) for query in queries[:5]]  # type: ignore[misc]
        counted = [timed(embedder, lambda: bank.stats(group_by="metadata.type")) for _ in range(5)]
    return {
        "memories": memories,
        "load": os.getloadavg()[0],
        "stored_per_s": round(per_second),
        "first_search_ms": round(first_ms, 1),
        "recall": quantiles(recall),
        "recall_counted": quantiles(touched),
        "recall_filtered": quantiles(narrowed),
        "put": quantiles(puts),
        "stats": quantiles(counted),
        "recall_after_puts": quantiles(later_searches),
        "file_mb": round(os.path.getsize(os.path.join(folder, "ctx.db")) / 1e6),
    }


def pruning(folder: str, conversations: int) -> dict[str, object]:
    """Sekha's tools over conversations of a thousand messages each: what could go, and how much there is."""
    path = Path(folder) / "ctx.toml"
    (Path(folder) / "docs").mkdir()
    path.write_text(
        '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
        '[packs]\nenabled = ["sekha"]\n'
    )
    sentences, caller = Sentences(17), Caller("rest")
    with open_workspace(load_config(str(path), dict(os.environ))) as space:
        assert space.packs, "their tools are in the toolbox once they are loaded"

        def seconds(tool: str, **arguments: object) -> float:
            began_s = time.perf_counter()
            space.toolbox.call(tool, arguments, caller)
            return round(time.perf_counter() - began_s, 2)

        for number in range(conversations):
            messages = [{"role": "user", "content": sentences.take(WORDS)} for _ in range(1000)]
            seconds("memory_store", label=f"talk {number}", folder="/work", messages=messages)
        return {
            "conversations": conversations,
            "load": os.getloadavg()[0],
            "prune_all_s": [seconds("memory_prune", threshold_days=0) for _ in range(5)],
            "prune_none_s": [seconds("memory_prune", threshold_days=30) for _ in range(5)],
            "stats_s": [seconds("memory_stats") for _ in range(5)],
        }


def size(folder: str, memories: int) -> dict[str, object]:
    """Fills, then searches in a process of its own: what a server holds that opens such a bank."""
    with MemoryStore(os.path.join(folder, "ctx.db"), RandomEmbedder()) as store:
        per_second = fill(store.bank("bench"), memories)
    filled_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    child = subprocess.run(
        [sys.executable, __file__, "--search-only", folder],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
    )
    return {
        "memories": memories,
        "stored_per_s": round(per_second),
        "filling_rss_mb": round(filled_mb),
        **json.loads(child.stdout),
    }


def search_only(folder: str) -> dict[str, object]:
    embedder = RandomEmbedder()
    sentences = Sentences(13)
    with MemoryStore(os.path.join(folder, "ctx.db"), embedder) as store:
        bank = store.bank("bench")
        first_ms = timed(embedder, lambda: bank.search("warm up"))
        queries = [sentences.take(2 + number % 4) for number in range(40)]
        recall = [timed(embedder, lambda query=query: bank.search(query)) for query in queries]  # type: ignore[misc]
        puts = [timed(embedder, lambda query=query: bank.put(query + " and more")) for query in queries]  # type: ignore[misc]
    return {
        "first_search_ms": round(first_ms, 1),
        "recall": quantiles(recall),
        "put": quantiles(puts),
        "searching_rss_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def fit(model_dir: str) -> dict[str, object]:
    """Weighted logistic regression of "answers the query" on the cosine.

    The labelled pairs are memories/pairs.tsv; every other pair of its queries and memories is wrong too. Right
    pairs together weigh 1, labelled wrong ones half of NEGATIVES, the others the other half.
    """
    import onnxruntime
    import tokenizers

    session = onnxruntime.InferenceSession(os.path.join(model_dir, "model.onnx"))
    tokenizer = tokenizers.Tokenizer.from_file(os.path.join(model_dir, "tokenizer.json"))
    tokenizer.enable_truncation(256)
    tokenizer.enable_padding()

    def embed(texts: list[str]) -> np.ndarray:
        encodings = tokenizer.encode_batch(texts)
        inputs = {
            "input_ids": np.array([encoding.ids for encoding in encodings], np.int64),
            "attention_mask": np.array([encoding.attention_mask for encoding in encodings], np.int64),
        }
        vectors: np.ndarray = session.run(None, inputs)[0]
        unit: np.ndarray = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return unit

    lines = (Path(__file__).parent / "memories" / "pairs.tsv").read_text().splitlines()
    pairs = [line.split("\t") for line in lines]
    queries, texts = sorted({pair[1] for pair in pairs}), sorted({pair[2] for pair in pairs})
    cosines = embed(queries) @ embed(texts).T
    labels = {(query, text): label for label, query, text in pairs}
    groups: dict[str, list[float]] = {"1": [], "0": [], "other": []}
    for row, query in enumerate(queries):
        for column, text in enumerate(texts):
            groups[labels.get((query, text), "other")].append(float(cosines[row, column]))
    x = np.array(groups["1"] + groups["0"] + groups["other"])
    y = np.array([1.0] * len(groups["1"]) + [0.0] * (len(groups["0"]) + len(groups["other"])))
    weights = np.concatenate(
        [
            np.full(len(groups["1"]), 1 / len(groups["1"])),
            np.full(len(groups["0"]), NEGATIVES / 2 / len(groups["0"])),
            np.full(len(groups["other"]), NEGATIVES / 2 / len(groups["other"])),
        ]
    )
    design = np.stack([x, np.ones_like(x)], 1)
    fitted = np.zeros(2)
    for _ in range(50):  # Newton's method; it converges in ten
        p = 1 / (1 + np.exp(-design @ fitted))
        fitted += np.linalg.solve(
            (design * (weights * p * (1 - p))[:, None]).T @ design, design.T @ (weights * (y - p))
        )
    slope, middle = float(fitted[0]), float(-fitted[1] / fitted[0])
    threshold = middle + float(np.log(0.7 / 0.3)) / slope
    return {
        "slope": round(slope, 2),
        "middle": round(middle, 4),
        "cosine_at_0.7": round(threshold, 4),
        "share_at_0.7": {
            name: round(float(np.mean(np.array(values) >= threshold)), 4) for name, values in groups.items()
        },
        "pairs": {name: len(values) for name, values in groups.items()},
    }


def recall(folder: str, set_dir: str, modes: Sequence[str]) -> dict[str, object]:
    """The same texts put into a bank and searched there, and as files through the `search` tool: they should
    rank alike.
    """
    judged = read_set(Path(set_dir))
    figures: dict[str, dict[str, float]] = {}
    embedder = LocalEmbedder() if "hybrid" in modes else None
    with MemoryStore(os.path.join(folder, "memory.db"), embedder) as store:
        bank = store.bank("judged")
        texts = [
            {
                "text": f"{document['title']}\n\n{document['text']}".strip() or "(empty)",
                "metadata": {"id": document["id"]},
            }
            for document in judged.documents
        ]
        for start in range(0, len(texts), 100):
            bank.put_many(texts[start : start + 100])
        for mode in modes:
            run: Runs = {}
            for query in judged.queries:
                results = bank.search(query["text"], mode=mode, limit=100)["results"]
                run[query["id"]] = [result["record"]["metadata"]["id"] for result in results]
            figures[mode] = {"memories": round(score(judged, run).all, 4)}
    with indexed(judged, Path(folder) / "documents", "local" if "hybrid" in modes else "disabled") as space:
        for mode in modes:
            document_run, _ = run_queries(space, judged, mode)
            figures[mode]["documents"] = round(score(judged, document_run).all, 4)
            figures[mode]["difference"] = round(figures[mode]["memories"] - figures[mode]["documents"], 4)
    return {"set": judged.name, "ndcg_at_10": figures}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="5,000 and 20,000 memories")
    parser.add_argument(
        "--fit", metavar="MODEL_DIR", help="fit the score constants for the model in this folder"
    )
    parser.add_argument("--recall", metavar="DIR", help="rank a judged set as memories and as documents")
    parser.add_argument(
        "--mode", action="append", choices=["keyword", "hybrid"], help="of --recall; both unless given"
    )
    parser.add_argument("--search-only", metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=["latency", "prune", "size"], help="only this")
    options = parser.parse_args()
    if options.search_only:
        print(json.dumps(search_only(options.search_only)))
        return 0
    if options.fit:
        print(json.dumps(fit(options.fit), indent=2))
        return 0
    if options.recall:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(recall(folder, options.recall, options.mode or ["keyword", "hybrid"]), indent=2))
        return 0
    report: dict[str, object] = {
        "command": "python benchmarks/memory.py" + (" --quick" if options.quick else ""),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "targets": {"p95_ms": TARGETS_MS, "rss_mb": TARGET_RSS_MB},
    }
    if options.part in (None, "prune"):
        with tempfile.TemporaryDirectory() as folder:
            report["prune"] = pruning(folder, 5 if options.quick else 100)
    if options.part in (None, "latency"):
        with tempfile.TemporaryDirectory() as folder:
            report["latency"] = latency(
                folder, 5_000 if options.quick else 100_000, 60 if options.quick else 200
            )
    if options.part in (None, "size"):
        with tempfile.TemporaryDirectory() as folder:
            report["size"] = size(folder, 20_000 if options.quick else 1_000_000)
    print(json.dumps(report, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
