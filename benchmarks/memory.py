"""Measures the speed of memory and fits the constants of its scores. (Quality: memory_quality.py.)

    python benchmarks/memory.py                  measures recall and put with 100,000 memories in one bank
    python benchmarks/memory.py --memories N     the same with N memories
    python benchmarks/memory.py --fit MODEL_DIR  fits the logistic constants of ctx/memory/scores.py to
                                                 memories/pairs.tsv

Texts consist of 50,000 words with frequencies by Zipf's law. Vectors have random directions, and the time of
the embedder is subtracted, so the figures do not depend on a model. The figures are p50 and p95 in
milliseconds, of elapsed time and of processor time. A busy machine has longer elapsed times (see `load`). Set
OPENBLAS_NUM_THREADS=1 to measure one thread.
"""

import argparse
import itertools
import json
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ctx.memory.bank import MemoryBank
from ctx.memory.store import MemoryStore

DIM = 384
VOCABULARY = 50_000
WORDS = 15  # words of a memory, about a sentence
ROUNDS = 200
TARGETS_MS = {"recall": 60.0, "put": 15.0}  # for p95 with 100,000 memories in one bank
NEGATIVES = 4.0  # the assumed number of wrong memories for each right memory, when the threshold is fitted


class RandomEmbedder:
    """An embedder that returns random vectors, and counts the time that it takes."""

    model = "random-384"
    dim = DIM

    def __init__(self) -> None:
        self._random = np.random.default_rng(1)
        self.spent_s = self.cpu_s = 0.0

    def embed(self, texts: Sequence[str], stop: object = None) -> Iterator[np.ndarray]:
        began_s, cpu_began_s = time.perf_counter(), time.process_time()
        vectors: np.ndarray = self._random.standard_normal((len(texts), DIM), np.float32)
        self.spent_s += time.perf_counter() - began_s
        self.cpu_s += time.process_time() - cpu_began_s
        return iter(vectors)

    def embed_query(self, text: str) -> np.ndarray:
        return next(self.embed([text]))

    def close(self) -> None:
        pass


class Sentences:
    """Random sentences of invented words, whose frequencies follow Zipf's law as in English."""

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
    """Stores `memories` memories in a bank. Returns the number stored per second."""
    sentences = Sentences(7)
    began_s = time.perf_counter()
    for start in range(0, memories, 1000):
        bank.put_many([{"text": sentences.take(WORDS)} for _ in range(min(1000, memories - start))])
    return memories / (time.perf_counter() - began_s)


def timed(embedder: RandomEmbedder, action: Callable[[], object]) -> tuple[float, float]:
    """(elapsed time, processor time) of an action in milliseconds, without the time of the embedder."""
    spent_s, cpu_s = embedder.spent_s, embedder.cpu_s
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    action()
    wall_s = time.perf_counter() - began_s - (embedder.spent_s - spent_s)
    return wall_s * 1000, (time.process_time() - cpu_began_s - (embedder.cpu_s - cpu_s)) * 1000


def quantiles(times_ms: Sequence[tuple[float, float]]) -> dict[str, float]:
    figures = {}
    for name, column in (("", 0), ("cpu_", 1)):
        ordered = sorted(entry[column] for entry in times_ms)
        figures[f"{name}p50"] = round(ordered[len(ordered) // 2], 2)
        figures[f"{name}p95"] = round(ordered[int(len(ordered) * 0.95)], 2)
    return figures


def latency(folder: str, memories: int) -> dict[str, object]:
    embedder = RandomEmbedder()
    sentences = Sentences(11)
    path = os.path.join(folder, "memory.db")
    with MemoryStore(path, embedder) as store:
        bank = store.bank("bench")
        per_second = fill(bank, memories)
        first_ms, _ = timed(embedder, lambda: bank.search("warm up"))
        queries = [sentences.take(2 + number % 4) for number in range(ROUNDS)]
        texts = [sentences.take(WORDS) for _ in range(ROUNDS)]
        filter = {"kind": "fact", "importance": {"gte": 5}}
        load = os.getloadavg()[0]
        figures = {
            "recall": [timed(embedder, partial(bank.search, query, window="auto")) for query in queries],
            "recall_touch": [timed(embedder, partial(bank.search, query, touch=True)) for query in queries],
            "recall_filter": [
                timed(embedder, partial(bank.search, query, filter=filter)) for query in queries
            ],
            "put": [timed(embedder, partial(bank.put, text)) for text in texts],
            "recall_after_puts": [timed(embedder, partial(bank.search, query)) for query in queries[:20]],
        }
    return {
        "memories": memories,
        "load": round(load, 1),
        "threads": os.environ.get("OPENBLAS_NUM_THREADS", "all"),
        "stored_per_s": round(per_second),
        "first_search_ms": round(first_ms, 1),
        **{name: quantiles(times_ms) for name, times_ms in figures.items()},
        "file_mb": round(os.path.getsize(path) / 1e6),
    }


def fit(model_dir: str) -> dict[str, object]:
    """Fits the probability that a memory answers a query as a logistic function of their cosine. Returns the
    constants and some statistics.

    The labelled pairs are in memories/pairs.tsv. Every other pair of its queries and memories counts as
    wrong. All right pairs together have weight 1. The pairs labelled as wrong and the other pairs have weight
    NEGATIVES / 2 each.
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
    for _ in range(50):  # Newton's method, which converges in ten steps
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


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memories", type=int, default=100_000, help="how many are in the bank")
    parser.add_argument(
        "--fit", metavar="MODEL_DIR", help="fit the score constants for the model in this folder"
    )
    options = parser.parse_args()
    if options.fit:
        print(json.dumps(fit(options.fit), indent=2))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        figures = latency(folder, options.memories)
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    print(json.dumps({"machine": machine, "targets_p95_ms": TARGETS_MS, **figures}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
