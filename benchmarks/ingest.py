"""Keyword-only ingest of Markdown files, beside bare tantivy over the same text (issue: >= 50 % of its speed)."""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tantivy
from _common import check, finish, header, markdown_tree

from ctx.config import load_config
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


def bare_tantivy(texts: list[tuple[str, str]], folder: Path) -> float:
    """Seconds to index texts that are in memory already: a stemmed body and an id, two threads, one commit."""
    schema = (
        tantivy.SchemaBuilder()
        .add_text_field("id", tokenizer_name="raw", stored=True)
        .add_text_field("body", tokenizer_name="en_stem")
        .build()
    )
    folder.mkdir()
    began_s = time.perf_counter()
    index = tantivy.Index(schema, path=str(folder))
    writer = index.writer(heap_size=256_000_000, num_threads=2)
    for id, text in texts:
        writer.add_document(tantivy.Document(id=id, body=text))
    writer.commit()
    return time.perf_counter() - began_s


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
        ours, bare = [], []
        for _ in range(args.rounds):
            shutil.rmtree(folder / ".ctx", ignore_errors=True)
            began_s = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "ctx", "index", "--no-progress"],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            ours.append(time.perf_counter() - began_s)
            with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
                texts = [
                    (f"{stored.document.id}:{chunk.ordinal}", stored.document.body[chunk.start : chunk.end])
                    for stored in space.catalog.export()
                    for chunk in stored.chunks
                ]
            shutil.rmtree(folder / "bare", ignore_errors=True)
            bare.append(bare_tantivy(texts, folder / "bare"))
            del texts
        print(
            f"ctx index, whole process: {min(ours):.2f} s ({args.files / min(ours):,.0f} files/s, {size / 1e6 / min(ours):.1f} MB/s)"
        )
        print(f"bare tantivy, 2 threads:  {min(bare):.2f} s (the same chunks, in memory already)")
        check(
            "speed of ctx index against bare tantivy",
            min(bare) / min(ours) * 100,
            50,
            at_most=False,
            unit=" %",
        )
    finish()


if __name__ == "__main__":
    main()
