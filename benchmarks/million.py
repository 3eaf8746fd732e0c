"""The vector index at size: time of a search, what it finds of what looking at every vector finds, time to
build, memory.

    python benchmarks/million.py --texts /usr/share/doc --real 25000 --cache vectors.npy --rows 1000000

Real embeddings are made of passages of the texts below some folders with the shipped model (an hour for
25,000 on one busy core: they are kept in `--cache`). A million of them are made of those: each real one; then
points between one and one of its ten nearest, moved by a quarter of the difference of two other neighbours,
so that they lie where texts lie and as densely around a question as a million texts would, or more. Questions
are every tenth real one, taken out before, so that nothing in the matrix is made of them.

The yardstick is the product of all vectors with the question by BLAS, in float32, in the same run.
"""

import argparse
import json
import os
import random
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
from _common import check, finish, header, quantiles

import ctx
from ctx.embed.engines import DirectEngine, unit
from ctx.models import Filters
from ctx.store import vectors
from ctx.store.rows import VectorBatch
from ctx.store.vectors import VectorReader, VectorWriter

Floats = npt.NDArray[np.float32]
PASSAGE_CHARS = 400
SUFFIXES = (".md", ".rst", ".txt", ".html", ".py")
K = 300  # as deep as a hybrid search looks


def passages(folders: list[str], count: int) -> Iterator[str]:
    """Four passages of each file, files in an order by chance."""
    chance = random.Random(3)
    paths = [
        path
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.suffix in SUFFIXES and path.is_file()
    ]
    chance.shuffle(paths)
    for path in paths:
        text = path.read_text(errors="ignore")
        for _ in range(4 if len(text) > 3 * PASSAGE_CHARS else 0):
            start = chance.randrange(len(text) - PASSAGE_CHARS)
            yield text[start : start + PASSAGE_CHARS]
            count -= 1
            if not count:
                return


def embedded(folders: list[str], count: int, cache: Path | None) -> Floats:
    """Unit vectors of passages, from the cache where they are there."""
    if cache is not None and cache.exists():
        rows = np.load(cache).astype(np.float32)
    else:
        engine = DirectEngine.load(str(Path(ctx.__file__).parent / "embed" / "all-MiniLM-L6-v2"))
        rows = np.stack([unit(engine.query(text)) for text in dict.fromkeys(passages(folders, count))])
        if cache is not None:
            np.save(cache, rows.astype(np.float16))
    units: Floats = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return units


def multiplied(real: Floats, count: int) -> Iterator[Floats]:
    """`count` unit vectors: the real ones, then points between neighbours among them."""
    chance = np.random.default_rng(11)
    neighbours = np.empty((len(real), 10), np.int64)
    for start in range(0, len(real), 2000):
        products = real[start : start + 2000] @ real.T
        products[np.arange(len(products)), np.arange(start, start + len(products))] = -2
        neighbours[start : start + 2000] = np.argpartition(-products, 10, axis=1)[:, :10]
    yield real[:count]
    remaining = count - len(real)
    while remaining > 0:
        size = min(20_000, remaining)
        remaining -= size
        first, third = chance.integers(0, len(real), (2, size))
        second = neighbours[first, chance.integers(0, 10, size)]
        fourth = neighbours[third, chance.integers(0, 10, size)]
        share = chance.uniform(0.1, 0.6, (size, 1)).astype(np.float32)
        points = (1 - share) * real[first] + share * real[second] + 0.25 * (real[third] - real[fourth])
        yield points / np.linalg.norm(points, axis=1, keepdims=True)


def build(folder: str, parts: Iterator[Floats]) -> int:
    """Writes a matrix, published once; how many rows."""
    first = 0
    writer = VectorWriter(folder, "m")
    for part in parts:
        numbers = np.arange(first, first + len(part))
        writer.put(VectorBatch(numbers, numbers, ["s"] * len(part), numbers, part))
        first += len(part)
    writer.publish(1, "h")
    vectors._verified.clear()
    return first


def proportional_mb() -> float:
    """What this process has in memory, shared pages by their share (PSS)."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0


def main() -> None:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--texts", nargs="*", default=["/usr/share/doc"])
    options.add_argument(
        "--real", type=int, default=1_500, help="passages to embed, where the cache has none"
    )
    options.add_argument("--cache", type=Path, help="a file that keeps the embeddings")
    options.add_argument("--rows", type=int, default=150_000)
    options.add_argument("--questions", type=int, default=200)
    args = options.parse_args()
    header(f"the vector index at {args.rows:,} rows")
    real = embedded(args.texts, args.real, args.cache)
    questions, real = real[::10][: args.questions], np.delete(real, np.s_[::10], axis=0)
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as folder:
        began = time.perf_counter(), time.process_time()
        rows = build(folder, multiplied(real, args.rows))
        report: dict[str, object] = {"rows": rows, "real": len(real), "load": list(os.getloadavg())}
        report["build_s"] = round(time.perf_counter() - began[0], 1)
        report["size_mb"] = sum(path.stat().st_size for path in Path(folder).iterdir()) // 10**6
        report["build_cpu_s"] = round(time.process_time() - began[1], 1)
        del real
        empty_mb = proportional_mb()
        reader = VectorReader(folder, "m")
        for question in questions[:20]:
            reader.search(question, Filters(), K)
        clock_s, thread_s, answers = [], [], []
        for question in questions:
            began = time.perf_counter(), time.thread_time()
            answers.append([hit.chunk_no for hit in reader.search(question, Filters(), K)])
            clock_s.append(time.perf_counter() - began[0])
            thread_s.append(time.thread_time() - began[1])
        report["memory_mb"] = round(proportional_mb() - empty_mb)
        report["clock_ms"] = [round(value, 2) for value in quantiles(clock_s)]
        report["thread_ms"] = [round(value, 2) for value in quantiles(thread_s)]
        snapshot = reader._current()
        assert snapshot is not None
        exact_s, ten, deep = [], [], []
        for question, answer in zip(questions, answers, strict=True):
            began_s = time.perf_counter()
            products = np.concatenate([s.rows.vectors @ question for s in snapshot.segments])
            exact_s.append(time.perf_counter() - began_s)
            best = np.argpartition(-products, K)[:K]
            best = best[np.argsort(-products[best])]
            ten.append(len({*best[:10].tolist()} & {*answer[:10]}) / 10)
            deep.append(len({*best.tolist()} & {*answer}) / K)
        report["exact_ms"] = [round(value, 2) for value in quantiles(exact_s)]
        report["recall_at_10"], report["recall_at_300"] = (
            round(float(np.mean(ten)), 4),
            round(float(np.mean(deep)), 4),
        )
        report["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        print(json.dumps(report))
    check("recall@10", float(np.mean(ten)), 0.999, at_most=False)
    finish()


if __name__ == "__main__":
    main()
