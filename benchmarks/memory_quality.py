"""Measures how well memory finds the right fact, on judged conversations from outside this project.

    python benchmarks/memory_quality.py DIR                          figures for the facts and the turns in DIR
    python benchmarks/memory_quality.py DIR --save now.json          also saves the result of every question
    python benchmarks/memory_quality.py DIR --against before.json    also the paired difference to a saved run
    python benchmarks/memory_quality.py DIR --against ../other       the same for another checkout

DIR contains three files of JSON lines:

    facts.jsonl, turns.jsonl   {"bank", "id", "text", "said"}   two separate sets of banks
    questions.jsonl            {"bank", "question", "answerable", "facts": [ids], "turns": [ids]}

R@5 and R@10 are the shares of a question's right texts that are among the first five and ten results. MRR is
the mean of 1 / (rank of the first right text), which is 0 beyond rank ten. A question counts if it is
answerable and names a right text. AUC measures how well the score of the best result separates answerable
questions from the others. CPU is the processor time per recall; the time in the embedding model is listed
separately. Differences are paired by question, with a 95 % bootstrap interval.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ctx.clock import DAY_MS, parse_ms
from ctx.embed.local import LocalEmbedder
from ctx.memory.store import MemoryStore
from ctx.models import JSON

KINDS = ("facts", "turns")
MEASURES = ("R@5", "R@10", "MRR")
DEPTH = 10
RESAMPLES = 2000
SEED = 7

Floats = npt.NDArray[np.float32]


class CachedEmbedder:
    """The shipped model. It embeds each text once, and keeps the vectors in a file (`path`) between runs."""

    def __init__(self, path: Path | None) -> None:
        self._embedder = LocalEmbedder()
        self.model, self.dim = self._embedder.model, self._embedder.dim
        self.cpu_s = 0.0
        self._path = path
        self._vectors: dict[str, Floats] = {}
        if path is not None and path.exists():
            with np.load(path) as stored:
                self._vectors = {key: stored[key] for key in stored.files}

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> Iterator[Floats]:
        missing = [text for text in dict.fromkeys(texts) if _key(text) not in self._vectors]
        for text, vector in zip(missing, self._embedder.embed(missing, stop), strict=True):
            self._vectors[_key(text)] = np.asarray(vector, np.float32)
        return iter([self._vectors[_key(text)] for text in texts])

    def embed_query(self, text: str) -> Floats:
        began_s = time.process_time()
        vector = np.asarray(self._embedder.embed_query(text), np.float32)
        self.cpu_s += time.process_time() - began_s
        return vector

    def close(self) -> None:
        if self._path is not None:
            np.savez(self._path, **self._vectors)  # type: ignore[arg-type]  # the stub wants `allow_pickle`
        self._embedder.close()


def _key(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


class Run(NamedTuple):
    """The results of all questions, asked to banks of one kind (facts or turns)."""

    measures: dict[str, list[float]]  # counted question -> [R@5, R@10, reciprocal rank]
    best: list[tuple[float, bool]]  # (score of the best result, whether the question is answerable)
    cpu_ms: float  # processor time per recall, without the model
    model_ms: float  # processor time of the model per recall


def read_lines(path: Path) -> Iterator[JSON]:
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            yield json.loads(line)


def measure(folder: Path, kind: str, embedder: CachedEmbedder) -> Run:
    """Stores all banks of a kind ("facts" or "turns"), asks the questions, and returns the results."""
    texts = defaultdict(list)
    for item in read_lines(folder / f"{kind}.jsonl"):
        texts[item["bank"]].append(item)
    measures: dict[str, list[float]] = {}
    best: list[tuple[float, bool]] = []
    cpu_s = model_s = 0.0
    with tempfile.TemporaryDirectory() as place:
        # The clock of the questions is a day after the latest text.
        now_ms = max(parse_ms(item["said"]) for items in texts.values() for item in items) + DAY_MS
        with MemoryStore(f"{place}/memory.db", embedder, clock=lambda: now_ms) as store:
            ids = {}
            for name, items in texts.items():
                bank = store.bank(name)
                for item in items:
                    reply = bank.put(item["text"], timestamp=item["said"], kind="fact")
                    ids[name, item["id"]] = reply["id"]
            questions = list(read_lines(folder / "questions.jsonl"))
            for question in questions:
                bank, asked = store.bank(question["bank"]), question["question"]
                began_s, model_began_s = time.process_time(), embedder.cpu_s
                reply = bank.search(asked, limit=DEPTH, window="auto")
                cpu_s += time.process_time() - began_s
                model_s += embedder.cpu_s - model_began_s
                results = reply["results"]
                named = [(question["bank"], id) for id in question[kind]]
                right = {ids[key] for key in named if key in ids}
                if right or not question["answerable"]:
                    best.append((results[0]["score"] if results else 0.0, question["answerable"]))
                if question["answerable"] and right:
                    found = [result["record"]["id"] for result in results]
                    measures[f"{question['bank']} {asked}"] = judged(found, right)
    spent_ms, model_ms = 1000 * cpu_s / len(questions), 1000 * model_s / len(questions)
    return Run(measures, best, spent_ms - model_ms, model_ms)


def judged(found: Sequence[str], right: set[str]) -> list[float]:
    """[R@5, R@10, reciprocal rank] of one question. `found` are the ids of the results, best first."""
    shares = [len(right.intersection(found[:depth])) / len(right) for depth in (5, DEPTH)]
    rank = next((place for place, id in enumerate(found, 1) if id in right), None)
    return [*shares, 1 / rank if rank else 0.0]


def auc(pairs: Iterable[tuple[float, bool]]) -> float | None:
    """The probability that the best score of an answerable question is higher than that of an unanswerable
    one; None if one of the two groups is empty. `pairs` are (best score, answerable).
    """
    pairs = list(pairs)
    positive = np.array([score for score, answerable in pairs if answerable])
    negative = np.array([score for score, answerable in pairs if not answerable])
    if not positive.size or not negative.size:
        return None
    above = (positive[:, None] > negative).mean() + (positive[:, None] == negative).mean() / 2
    return float(above)


def difference(now: dict[str, list[float]], before: dict[str, list[float]]) -> npt.NDArray[np.float64]:
    """The mean difference of each measure and the ends of its 95 % interval, as an array (3, measures)."""
    shared = sorted(now.keys() & before.keys())
    pairs = np.array([now[key] for key in shared]) - np.array([before[key] for key in shared])
    chosen = np.random.default_rng(SEED).integers(0, len(pairs), (RESAMPLES, len(pairs)))
    means = pairs[chosen].mean(axis=1)
    return np.array([pairs.mean(axis=0), *np.percentile(means, (2.5, 97.5), axis=0)])


def other_run(place: Path, folder: Path, cache: Path | None) -> dict[str, Run]:
    """The results in a saved file, or of a run in another checkout, which uses the checkout's own virtual
    environment if it has one.
    """
    if place.is_file():
        return loaded(place)
    python = place / ".venv" / "bin" / "python"
    with tempfile.TemporaryDirectory() as scratch:
        saved = Path(scratch) / "other.json"
        command = [str(python) if python.exists() else sys.executable, str(Path(__file__).resolve())]
        command += [str(folder.resolve()), "--save", str(saved)]
        command += ["--cache", str(cache.resolve())] if cache else []
        environ = {**os.environ, "PYTHONPATH": str(place.resolve())}
        subprocess.run(command, check=True, cwd=place, env=environ, stdout=subprocess.DEVNULL)
        return loaded(saved)


def loaded(path: Path) -> dict[str, Run]:
    return {kind: Run(**fields) for kind, fields in json.loads(path.read_text("utf-8")).items()}


def report(runs: dict[str, Run], before: dict[str, Run] | None) -> None:
    for kind, run in runs.items():
        means = np.array(list(run.measures.values())).mean(axis=0)
        figures = ", ".join(f"{name} {mean:.3f}" for name, mean in zip(MEASURES, means, strict=True))
        told = auc(run.best)
        print(f"{kind}: {figures}; {len(run.measures)} questions")
        print(f"    AUC of the best score {told:.3f}" if told is not None else "    all are answerable")
        print(f"    CPU a recall {run.cpu_ms:.1f} ms, and {run.model_ms:.1f} ms in the model")
        if before is not None and kind in before:
            earlier = before[kind]
            for name, (mean, low, high) in zip(
                MEASURES, difference(run.measures, earlier.measures).T, strict=True
            ):
                print(f"    {name} {mean:+.3f} [{low:+.3f}, {high:+.3f}] against the other run")
            print(f"    CPU a recall {earlier.cpu_ms:.1f} ms there")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="facts.jsonl, turns.jsonl and questions.jsonl")
    parser.add_argument("--kind", choices=KINDS, help="only facts, or only turns")
    parser.add_argument("--save", type=Path, help="write the result of every question to this file")
    parser.add_argument("--against", type=Path, help="a saved result, or the root of another checkout")
    parser.add_argument("--cache", type=Path, help="keep the vectors of stored texts in this .npz file")
    options = parser.parse_args()
    before = other_run(options.against, options.folder, options.cache) if options.against else None
    embedder = CachedEmbedder(options.cache)
    try:
        kinds = [options.kind] if options.kind else KINDS
        runs = {kind: measure(options.folder, kind, embedder) for kind in kinds}
    finally:
        embedder.close()
    if options.save:
        options.save.write_text(json.dumps({kind: run._asdict() for kind, run in runs.items()}), "utf-8")
    report(runs, before)


if __name__ == "__main__":
    main()
