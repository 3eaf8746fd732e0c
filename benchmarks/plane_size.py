"""Both planes at a size: what a chunk costs to write and to keep, how long each kind of search takes, what
the search by meaning finds of what looking at every vector finds.

    python benchmarks/plane_size.py --chunks 100000 --cache vectors.npy [--url http://127.0.0.1:9200] [--work
    FOLDER]

Texts are the pages of `_common`, cut as `ctx index` cuts them; vectors and questions those of million.py,
whose `--texts`, `--real` and `--cache` they take. One catalog, in a file, is followed by both planes; with
`--work` it is kept, and a plane that is up to date is only asked. Without `--url` a node of the tests'
OpenSearch is started (`bash .ci/setup ci .venv`), with 2 GB of heap: one shard, no replica.

Figures are of the planes alone: `keyword` to 100 hits, `semantic` to 300, and both one after the other, as a
hybrid search asks them. Embedding the question and reading what is shown come on top, and are the same for
both.
"""

import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _common import Words, finish, header, markdown_page, note, options, quantiles
from million import Floats, embedded, multiplied
from planes import bytes_of, nodes

from ctx.cluster.opensearch import OpenSearchIndex
from ctx.cluster.opensearch_client import Client
from ctx.cluster.opensearch_part import Layout
from ctx.config.settings import Index
from ctx.formats.extract import extract
from ctx.identity import document_id, text_hash
from ctx.indexing.chunk import chunk
from ctx.items import Chunk, Content, Document
from ctx.models import Filters
from ctx.store.base import Catalog, SearchIndex
from ctx.store.local import LocalIndex
from ctx.store.sqlite import SqliteCatalog

MODEL, DIM = "minilm", 384
SOURCE = "filesystem:pages"
BATCH = 200  # documents a transaction
WORDS_DEPTH, MEANING_DEPTH = 100, 300
ALL = Filters()


class Spent(NamedTuple):
    """What a piece of work took: on the clock, of this process, of the search engine's."""

    clock_s: float
    own_s: float
    engine_s: float


class Meter:
    """Measures pieces of work on a plane; `client` is that of its search engine, where it has one."""

    def __init__(self, client: Client | None) -> None:
        self._client = client
        self._begun = self._now()

    def _now(self) -> Spent:
        engine_s = 0.0
        if self._client is not None:
            nodes_stats = self._client.ask("GET", "/_nodes/stats/process")["nodes"].values()
            engine_s = sum(node["process"]["cpu"]["total_in_millis"] for node in nodes_stats) / 1000
        return Spent(time.perf_counter(), time.process_time(), engine_s)

    def spent(self) -> Spent:
        return Spent(*(end - begin for begin, end in zip(self._begun, self._now(), strict=True)))


def pages(count: int) -> Iterator[tuple[Document, list[Chunk]]]:
    """Documents with about so many chunks in all, at least."""
    words = Words()
    number = 0
    while count > 0:
        title = f"{' '.join(words.take(3)).capitalize()} {number}"
        body = markdown_page(words, title, 5_200)
        extracted = extract(Content(body), f"{number}.md")
        assert extracted is not None
        chunks = chunk(extracted, title)
        digest = text_hash(body)
        yield (
            Document(
                id=document_id(SOURCE, f"{number}.md"),
                source=SOURCE,
                source_id=f"{number}.md",
                title=title,
                body=extracted.body,
                media_type="text/markdown",
                updated_ms=number,
                fingerprint=digest.hex(),
                content_hash=digest,
            ),
            chunks,
        )
        count -= len(chunks)
        number += 1


def fill(catalog: Catalog, count: int, vectors: Iterator[Floats]) -> None:
    """Writes documents and the embeddings of their chunks, where the catalog has none."""
    meter = Meter(None)
    batch = []
    for entry in pages(count):
        batch.append(entry)
        if len(batch) == BATCH:
            catalog.put_documents(batch)
            batch = []
    catalog.put_documents(batch)
    chunks = catalog.stats()["chunks"]
    spent = meter.spent()
    print(
        f"catalog: {chunks:,} chunks in {spent.clock_s:.0f} s, {chunks / spent.own_s:.0f} a processor second"
    )
    rows = (row for part in vectors for row in part)
    while texts := catalog.pending_texts(MODEL, 20_000):
        catalog.put_embeddings(MODEL, [(digest, next(rows)) for digest, _ in texts])


def weight(folder: Path) -> int:
    """The bytes of the files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def exact(catalog: Catalog, questions: Floats) -> list[list[int]]:
    """The chunks nearest to each question by looking at every vector, best first."""
    numbers, parts = [], []
    for batch in catalog.vectors_since(MODEL, 0):
        numbers.append(batch.chunk_nos)
        parts.append(batch.vectors.astype(np.float16))
    chunk_nos, matrix = np.concatenate(numbers), np.concatenate(parts)
    nearest = []
    for question in questions:
        products = np.concatenate(
            [
                matrix[start : start + 100_000].astype(np.float32) @ question
                for start in range(0, len(matrix), 100_000)
            ]
        )
        best = np.argpartition(-products, MEANING_DEPTH)[:MEANING_DEPTH]
        nearest.append(chunk_nos[best[np.argsort(-products[best])]].tolist())
    return nearest


def ask(
    index: SearchIndex, queries: Sequence[str], questions: Floats
) -> tuple[dict[str, Any], list[list[int]]]:
    """Seconds of each kind of search, and the chunks that the search by meaning found."""
    for query, question in zip(queries[:30], questions[:30], strict=True):
        index.keyword(query, ALL, WORDS_DEPTH)
        index.semantic(question, ALL, MEANING_DEPTH)
    samples_s: dict[str, list[float]] = {"keyword": [], "semantic": [], "both": []}
    chunks = []
    for query, question in zip(queries, questions, strict=True):
        begun_s = time.perf_counter()
        index.keyword(query, ALL, WORDS_DEPTH)
        between_s = time.perf_counter()
        hits = index.semantic(question, ALL, MEANING_DEPTH)
        ended_s = time.perf_counter()
        samples_s["keyword"].append(between_s - begun_s)
        samples_s["semantic"].append(ended_s - between_s)
        samples_s["both"].append(ended_s - begun_s)
        chunks.append([hit.chunk_no for hit in hits])
    return samples_s, chunks


def overlap(answers: list[list[int]], nearest: list[list[int]], depth: int) -> float:
    """The share of the nearest that were found, to a depth."""
    pairs = zip(answers, nearest, strict=True)
    return float(np.mean([len({*answer[:depth]} & {*best[:depth]}) / depth for answer, best in pairs]))


def measure(
    name: str,
    index: SearchIndex,
    catalog: Catalog,
    client: Client | None,
    asked: tuple[list[str], Floats],
    nearest: Any,
) -> None:
    """Brings a plane up to date and asks it."""
    chunks = catalog.stats()["chunks"]
    meter = Meter(client)
    index.catch_up(catalog)
    spent = meter.spent()
    both_s = spent.own_s + spent.engine_s
    print(
        f"{name}: up to date in {spent.clock_s:.0f} s; {spent.own_s:.0f} s of this process, "
        f"{spent.engine_s:.0f} s of the "
        f"engine's: {chunks / both_s:.0f} chunks a processor second"
    )
    note(f"{name}: chunks a processor second", chunks / both_s)
    meter = Meter(client)
    samples_s, answers = ask(index, *asked)
    spent = meter.spent()
    for kind, samples in samples_s.items():
        p50_ms, p95_ms, p99_ms = quantiles(samples)
        print(f"  {kind:<9} p50 {p50_ms:.1f} ms, p95 {p95_ms:.1f} ms, p99 {p99_ms:.1f} ms")
        note(f"{name}, {kind}: p50 ms", p50_ms)
        note(f"{name}, {kind}: p95 ms", p95_ms)
    per_pair_ms = 1000 / (len(answers) + 30)
    print(
        f"  both: {spent.own_s * per_pair_ms:.1f} ms of this process and {spent.engine_s * per_pair_ms:.1f} "
        "ms of the "
        "engine's a question, processor time"
    )
    for depth in (10, MEANING_DEPTH):
        share = overlap(answers, nearest, depth)
        print(f"  recall@{depth} against every vector: {share:.4f}")
        note(f"{name}: recall@{depth}", share)


def compare(work: Path, url: str, args: Any) -> None:
    real = embedded(args.texts, args.real, args.cache)
    questions, real = real[::10][: args.questions], np.delete(real, np.s_[::10], axis=0)
    words = Words(11)
    queries = [" ".join(words.take(words.random.randint(1, 4))) for _ in questions]
    with SqliteCatalog(str(work / "ctx.db")) as catalog:
        if not catalog.stats()["chunks"]:
            fill(catalog, args.chunks, multiplied(real, int(args.chunks * 1.1)))
        del real
        chunks = catalog.stats()["chunks"]
        print(f"catalog: {weight(work) / chunks:.0f} bytes a chunk, vectors and texts")
        nearest = exact(catalog, questions)
        with LocalIndex(str(work / "index"), lambda: (MODEL, DIM), writable=True) as local:
            measure("local", local, catalog, None, (queries, questions), nearest)
        print(f"  {weight(work / 'index') / chunks:.0f} bytes a chunk")
        name = f"plane-size-{args.chunks}"
        client = Client(Index(url=url))
        with closing(client):
            remote = OpenSearchIndex(
                client, lambda: (MODEL, DIM), name=name, writable=True, layout=Layout(args.shards, 0)
            )
            measure("opensearch", remote, catalog, client, (queries, questions), nearest)
            if args.merge:
                print(f"  {bytes_of(url.split(',')[0], name) / chunks:.0f} bytes a chunk once merged")
                measure("opensearch, merged", remote, catalog, client, (queries, questions), nearest)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, default=20_000)
    parser.add_argument("--questions", type=int, default=200)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--texts", nargs="*", default=["/usr/share/doc"])
    parser.add_argument("--real", type=int, default=1_500, help="passages to embed, where the cache has none")
    parser.add_argument("--cache", type=Path, help="a file that keeps the embeddings")
    parser.add_argument("--url", help="an OpenSearch that is there")
    parser.add_argument("--work", type=Path, help="a folder that is kept, and used again")
    parser.add_argument("--merge", action="store_true", help="measure again with one segment a shard")
    args = parser.parse_args()
    header(f"both planes at {args.chunks:,} chunks")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as temporary, nodes(args.url) as url:
        work = args.work or Path(temporary)
        work.mkdir(parents=True, exist_ok=True)
        compare(work, url, args)
    print(f"load {os.getloadavg()[0]:.1f} at the end")
    finish()


if __name__ == "__main__":
    main()
