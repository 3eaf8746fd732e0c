"""The same questions to both engines: does OpenSearch rank as the embedded one does, and what does it cost?

    python benchmarks/planes.py [--url http://127.0.0.1:9200] [--sets cranfield cacm] [--shards 1 3]
    [--provider disabled]

Sets are those of quality.py (`--shared`). Each is indexed once, with the embedded engine; OpenSearch follows
the same catalog, so that nothing is embedded twice. Without `--url` a node of the tests' OpenSearch is
started (`bash .ci/setup ci .venv`).
"""

import argparse
import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from _common import check, finish, header, note
from quality import DEPTH, JudgedSet, Runs, indexed, read_set, run_queries, score

ROOT = Path(__file__).parent.parent
ENGINE = """
[index]
engine = "opensearch"
url = "{url}"
name = "planes-{name}-{shards}"
shards = {shards}
replicas = 0
timeout_secs = 60
"""
NODE_HEAP_MB = 2048
SAME_ORDER = 0.99  # of the questions have the embedded engine's order to DEPTH
BY_WORDS, HYBRID = 0.001, 0.005  # how far NDCG@10 may be from the embedded engine's


@contextlib.contextmanager
def nodes(url: str | None) -> Iterator[str]:
    """The address of an OpenSearch: the one that is named, or one of our own."""
    if url is not None:
        yield url
        return
    sys.path.insert(0, str(ROOT / "tests"))
    import opensearch

    cluster = opensearch.Cluster(heap_mb=NODE_HEAP_MB, lasting=True)
    try:
        yield cluster.wait().url
    finally:
        cluster.discard()


def same(rows: list[list[tuple[str, float]]], others: list[list[tuple[str, float]]], depth: int) -> float:
    """The share of questions with the same documents in the same order."""
    pairs = list(zip(rows, others, strict=True))
    return sum(_order(row, depth) == _order(twin, depth) for row, twin in pairs) / max(1, len(pairs))


def _order(row: list[tuple[str, float]], depth: int) -> list[str]:
    return [document for document, _ in row[:depth]]


def bytes_of(url: str, name: str) -> int:
    """What the indices of a name weigh once their segments are merged."""
    import json
    import urllib.request

    # Without the refresh searches stay with the former segments, which are kept, and counted, for that.
    for step in ("_forcemerge?max_num_segments=1", "_refresh"):
        request = urllib.request.Request(f"{url}/{name}-*/{step}", method="POST")
        urllib.request.urlopen(request, timeout=1200).close()
    with urllib.request.urlopen(f"{url}/{name}-*/_stats/store", timeout=60) as reply:
        return int(json.load(reply)["_all"]["primaries"]["store"]["size_in_bytes"])


def asked(
    judged: JudgedSet, folder: Path, provider: str, modes: list[str], engine: str = ""
) -> dict[str, tuple[Runs, list[list[tuple[str, float]]], float, float]]:
    """mode -> (run, rows, ms a question on the clock, ms of this process); the index is brought up to date
    first.
    """
    answers = {}
    began_s = time.perf_counter()
    with indexed(judged, folder, provider, engine) as space:
        space.indexer.repair()
        chunks = space.catalog.stats()["chunks"]
        took_s = time.perf_counter() - began_s
        print(f"  up to date in {took_s:.1f} s, {chunks / took_s:.0f} chunks a second")
        for mode in modes:
            run_queries(space, judged, mode, DEPTH)  # warm: a JVM compiles as it goes
            began_s, began_cpu_s = time.perf_counter(), time.process_time()
            run, rows = run_queries(space, judged, mode, DEPTH)
            per_query = 1000 / len(judged.queries)
            answers[mode] = (
                run,
                rows,
                (time.perf_counter() - began_s) * per_query,
                (time.process_time() - began_cpu_s) * per_query,
            )
    return answers


def compare(judged: JudgedSet, work: Path, url: str, args: argparse.Namespace) -> None:
    """One set, on every number of shards."""
    modes = ["keyword"] if args.provider == "disabled" else ["keyword", "hybrid"]
    folder = work / judged.name
    folder.mkdir(parents=True, exist_ok=True)
    embedded = asked(judged, folder, args.provider, modes)
    for shards in args.shards:
        engine = ENGINE.format(url=url, name=judged.name, shards=shards)
        remote = asked(judged, folder, args.provider, modes, engine)
        for mode in modes:
            run, rows, wall_ms, cpu_ms = remote[mode]
            local_run, local_rows, local_wall_ms, local_cpu_ms = embedded[mode]
            label = f"{judged.name}, {mode}, {shards} shards"
            figures = score(judged, run).all, score(judged, local_run).all
            print(
                f"  {label}: NDCG@10 {figures[0]:.4f} (embedded {figures[1]:.4f}); same order to 10: "
                f"{same(rows, local_rows, 10):.3f}, to {DEPTH}: {same(rows, local_rows, DEPTH):.3f}; a "
                "question "
                f"{wall_ms:.1f} ms on the clock, {cpu_ms:.1f} of this process ({local_wall_ms:.1f}, "
                f"{local_cpu_ms:.1f})"
            )
            note(f"{label}: ms a question", wall_ms)
            check(
                f"{label}: same order to {DEPTH}",
                same(rows, local_rows, DEPTH),
                SAME_ORDER,
                at_most=False,
            )
            bound = BY_WORDS if mode == "keyword" else HYBRID
            check(f"{label}: NDCG@10 apart", abs(figures[0] - figures[1]), bound)
        size = bytes_of(url.split(",")[0], f"planes-{judged.name}-{shards}")
        print(f"  {size / 1e6:.1f} MB in OpenSearch once merged")


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--url", help="an OpenSearch that is there")
    parser.add_argument("--sets", nargs="+", default=["cranfield", "cacm"])
    parser.add_argument("--shards", nargs="+", type=int, default=[1, 3])
    parser.add_argument("--provider", choices=("local", "disabled"), default="local")
    parser.add_argument(
        "--shared", type=Path, default=Path(os.environ.get("CTX_SHARED", ROOT.parent / "shared"))
    )
    parser.add_argument("--work", type=Path, help="a folder that is kept, and used again")
    return parser


def main() -> None:
    args = options().parse_args()
    header("planes")
    absent = [name for name in args.sets if not (args.shared / "data" / name).is_dir()]
    if absent:
        print(f"left out: {', '.join(absent)} (set CTX_SHARED, or --shared)")
    with tempfile.TemporaryDirectory() as temporary, nodes(args.url) as url:
        for name in args.sets:
            if name not in absent:
                compare(read_set(args.shared / "data" / name), args.work or Path(temporary), url, args)
    finish()


if __name__ == "__main__":
    main()
