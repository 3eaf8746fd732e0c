"""Builds a large store for the other benchmarks, without indexing a million chunks from files.

Each file in the tree has only one line. The catalog stores a long text for it, under the file's real
fingerprint, so that the first scan finds all files unchanged. Vectors are random unit vectors. A million
chunks take some minutes.
"""

import hashlib
import random
import time
from pathlib import Path

from _common import (
    Words,
    embed_at_random,
    header,
    options,
)

from ctx.config import load_config
from ctx.connectors.base import ScanLog
from ctx.indexing.run import run_signature
from ctx.models import Chunk, Document, Run, document_id, text_hash
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[server]\nbind = "127.0.0.1:{port}"\n'
PER_DOCUMENT = 25
PARAGRAPHS = 5000


def build(folder: Path, chunks: int, port: int) -> None:
    """Builds a store of about `chunks` chunks in `folder`, with the file tree that it belongs to."""
    files = max(1, chunks // PER_DOCUMENT)
    for number in range(files):
        path = folder / "docs" / f"part-{number // 100:04d}" / f"page-{number:06d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {number}\n")
    (folder / "ctx.toml").write_text(CONFIG.format(port=port))
    time.sleep(2.5)  # a younger file would be read again, because its time stamp is not yet reliable
    words = Words()
    pool = [" ".join(words.take(60)).capitalize() + "." for _ in range(PARAGRAPHS)]
    chance = random.Random(7)
    with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
        indexer = space.indexer
        (connector,) = indexer.connectors.values()
        batch = []
        for item in connector.scan({}, ScanLog()):
            batch.append(
                _document(connector.name, item.source_id, item.fingerprint, item.updated_ms, chance, pool)
            )
            if len(batch) == 500:
                space.catalog.put_documents(batch)
                batch = []
        space.catalog.put_documents(batch)
        settings = space.config.chunking
        signature = run_signature(connector, settings.max_tokens, settings.overlap_tokens)
        space.catalog.record_run(
            connector.name, Run(time.time_ns() // 1_000_000, True, None, None, signature)
        )
        embed_at_random(space)
        began_s = time.perf_counter()
        indexer.repair()
        print(
            f"index of {space.catalog.stats()['chunks']:,} chunks built in "
            f"{time.perf_counter() - began_s:.0f} s",
            flush=True,
        )


def _document(
    source: str, source_id: str, fingerprint: str, updated_ms: int, chance: random.Random, pool: list[str]
) -> tuple[Document, list[Chunk]]:
    parts = [f"{chance.choice(pool)} {source_id} paragraph {n}." for n in range(PER_DOCUMENT)]
    chunks, at = [], 0
    for ordinal, part in enumerate(parts):
        chunks.append(
            Chunk(ordinal, at, at + len(part), 2 * ordinal + 1, 2 * ordinal + 1, "", text_hash(part))
        )
        at += len(part) + 2
    body = "\n\n".join(parts)
    made = Document(
        document_id(source, source_id), source, source_id, source_id, body, "text/markdown", updated_ms,
        fingerprint,
        hashlib.sha256(body.encode()).digest(),
    )  # fmt: skip
    return made, chunks


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--port", type=int, default=17334, help="of the server, for its configuration")
    parser.add_argument("--folder", required=True, type=Path, help="where the store is kept")
    args = parser.parse_args()
    header(f"A store of {args.chunks:,} chunks")
    args.folder.mkdir(parents=True, exist_ok=True)
    began_s = time.perf_counter()
    build(args.folder, args.chunks, args.port)
    print(f"store built in {time.perf_counter() - began_s:.0f} s")


if __name__ == "__main__":
    main()
