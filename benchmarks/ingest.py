"""Compares the speed of `ctx index` (keyword only) on Markdown files with bare tantivy on the same text.

The two run alternately. Elapsed time and processor time of all threads are measured; other work on the
machine distorts processor time less. The measured work differs, in favour of tantivy:

    ctx index     the whole process: start and imports, walking the tree, reading, decoding and parsing
                  files, cutting and hashing chunks, writing the catalog, publishing every few seconds, and
                  waiting for merges; for each passage a text with the parts of identifiers and the title,
                  a head with the path and headings, and five fields for filters
    bare tantivy  a loop in a running process: texts that are already in memory and cut, with one stemmed
                  field and one id each, one commit, no wait for merges
"""

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import tantivy
from _common import check, finish, header, markdown_tree, once

from ctx.config import load_config
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


class Cost(NamedTuple):
    """The elapsed time and the processor time of a run."""

    elapsed_s: float
    processor_s: float


def bare_tantivy(texts: list[tuple[str, str]], folder: Path) -> Cost:
    """Indexes pairs (id, text) with tantivy: a stemmed body and an id, two threads, one commit."""
    schema = (
        tantivy.SchemaBuilder()
        .add_text_field("id", tokenizer_name="raw", stored=True)
        .add_text_field("body", tokenizer_name="en_stem")
        .build()
    )
    folder.mkdir()
    began_s, began_cpu_s = time.perf_counter(), time.process_time()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=256_000_000, num_threads=2)
    for id, text in texts:
        writer.add_document(tantivy.Document(id=id, body=text))
    writer.commit()
    return Cost(time.perf_counter() - began_s, time.process_time() - began_cpu_s)


def product(folder: Path) -> Cost:
    """The cost of the whole process `ctx index` in a project that was never indexed."""
    shutil.rmtree(folder / ".ctx", ignore_errors=True)
    processor_ms, elapsed_ms = once([sys.executable, "-m", "ctx", "index", "--no-progress"], folder)
    return Cost(elapsed_ms / 1000, processor_ms / 1000)


def least(costs: list[Cost]) -> Cost:
    """The smallest elapsed time and the smallest processor time of several runs."""
    return Cost(min(cost.elapsed_s for cost in costs), min(cost.processor_s for cost in costs))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    args = options.parse_args()
    header("Keyword-only ingest")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        size = markdown_tree(folder / "docs", args.files)
        (folder / "ctx.toml").write_text(CONFIG)
        print(f"corpus: {args.files:,} files, {size / 1e6:.1f} MB")
        costs: list[Cost] = []
        yardsticks: list[Cost] = []
        for _ in range(args.rounds):
            costs.append(product(folder))
            with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
                texts = [
                    (f"{stored.document.id}:{chunk.ordinal}", stored.document.body[chunk.start : chunk.end])
                    for stored in space.catalog.export()
                    for chunk in stored.chunks
                ]
            shutil.rmtree(folder / "bare", ignore_errors=True)
            yardsticks.append(bare_tantivy(texts, folder / "bare"))
            del texts
    ours, yardstick = least(costs), least(yardsticks)
    rate, megabytes = args.files / ours.elapsed_s, size / 1e6 / ours.elapsed_s
    print(
        f"ctx index, whole process: {ours.elapsed_s:.2f} s ({rate:,.0f} files/s, {megabytes:.1f} MB/s), "
        f"{ours.processor_s:.2f} s of processor"
    )
    print(
        f"bare tantivy, 2 threads:  {yardstick.elapsed_s:.2f} s (the same chunks, in memory already), "
        f"{yardstick.processor_s:.2f} s of processor"
    )
    by_clock, by_processor = yardstick.elapsed_s / ours.elapsed_s, yardstick.processor_s / ours.processor_s
    figures = {"benchmark": "ingest", "files": args.files, "load": os.getloadavg(), "by_clock": by_clock}
    print(json.dumps(figures | {"by_processor": by_processor, "ctx": ours, "tantivy": yardstick}))
    check("speed of ctx index against bare tantivy", by_clock * 100, 50, at_most=False, unit=" %")
    check("the same by processor time", by_processor * 100, 50, at_most=False, unit=" %")
    finish()


if __name__ == "__main__":
    main()
