"""From nothing to the first answers of `ctx serve mcp` on a large store (issue: < 1 s at a million chunks).

The store is made without reading a million chunks' worth of files: each file of the tree is one line, and the
catalog is given a long text for it, under the file's true fingerprint, so that the first scan finds
everything unchanged. Vectors are random unit vectors. `--folder` keeps the store for the next time; building
a million chunks takes some minutes.
"""

import hashlib
import http.client
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _common import (
    Words,
    check,
    embed_at_random,
    finish,
    header,
    note,
    once,
    options,
    quantiles,
    used_s,
)

from ctx.config import load_config
from ctx.connectors.base import ScanLog
from ctx.identity import document_id, text_hash
from ctx.indexing.run import run_signature
from ctx.items import Chunk, Document
from ctx.types import Run
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[server]\nbind = "127.0.0.1:{port}"\n'
PER_DOCUMENT = 25
PARAGRAPHS = 5000


def build(folder: Path, chunks: int, port: int) -> None:
    """A store of so many chunks, and the tree it claims to be of."""
    files = max(1, chunks // PER_DOCUMENT)
    for number in range(files):
        path = folder / "docs" / f"part-{number // 100:04d}" / f"page-{number:06d}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"# Page {number}\n")
    (folder / "ctx.toml").write_text(CONFIG.format(port=port))
    time.sleep(2.5)  # a file younger than that counts as one that may change without a new stamp
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


def ask(port: int, mode: str) -> dict[str, object]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    payload = json.dumps({"query": "page paragraph value", "mode": mode, "limit": 5})
    connection.request("POST", "/tools/search", payload, {"Content-Type": "application/json"})
    reply = connection.getresponse()
    answer: dict[str, object] = json.loads(reply.read())
    connection.close()
    assert answer.get("results"), answer
    return answer


def start(folder: Path, mode: str) -> tuple[float, float, float, float]:
    """Seconds from the start of the process to its first answer in this mode and to `/health`; how long the
    stop took; and the processor time until the first answer.
    """
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--log-level", "warning"],
        cwd=folder,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        heard = process.stdout.readline()
        assert heard.startswith("Listening"), heard
        port = int(heard.rpartition(":")[2])
        ask(port, mode)
        answered_s = time.perf_counter() - began_s
        processor_s = used_s(process.pid)
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        asked_s = time.perf_counter()
        connection.request("GET", "/health")
        connection.getresponse().read()
        connection.close()
        health_s = time.perf_counter() - asked_s
    finally:
        stopping_s = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        process.wait(30)
    return answered_s, health_s, time.perf_counter() - stopping_s, processor_s


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--chunks", type=int, default=1_000_000)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--port", type=int, default=17334)
    parser.add_argument(
        "--folder", help="where the store is kept for the next time; else it is built and deleted"
    )
    parser.add_argument("--build-only", action="store_true")
    args = parser.parse_args()
    header(f"Start to first answer, {args.folder or f'{args.chunks:,} chunks'}")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(args.folder or name)
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "ctx.toml").exists():
            began_s = time.perf_counter()
            build(folder, args.chunks, args.port)
            print(f"store built in {time.perf_counter() - began_s:.0f} s", flush=True)
        if args.build_only:
            return
        os.environ["XDG_CONFIG_HOME"] = str(folder / "none")
        for mode in ("keyword", "semantic"):
            figures = [start(folder, mode) for _ in range(args.starts)]
            firsts, healths, stops, used = (quantiles([row[i] for row in figures])[0] for i in range(4))
            print(
                f"{mode:<9} first answer {firsts:.0f} ms, then /health {healths:.0f} ms, stop {stops:.0f} "
                "ms (medians)"
            )
            note(f"{mode}: CPU to first answer, ms", used)
            check(f"{mode}: start to first answer", firsts / 1e3, 1, unit=" s")
            if mode == "keyword":
                base = median(
                    once([sys.executable, "-c", "pass"], folder)[0] for _ in range(2 * args.starts + 1)
                )
                check("keyword: CPU to first answer against python -c pass", used / base, 16, unit=" x")
            check(f"{mode}: stop", stops / 1e3, 1, unit=" s")
    finish()


if __name__ == "__main__":
    main()
