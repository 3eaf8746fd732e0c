"""Extraction and chunking: MB/s beside a yardstick, and how many tokens chunks of real trees have.

    python benchmarks/chunking.py [TREE ...]

Speed is of 2000 generated Markdown pages in memory, best of seven; the yardstick is decoding the same bytes
and splitting them at line ends. Sizes are of the readable files below the trees (a sample), counted with the
tokenizer of the bundled model.
"""

import os
import random
import sys
import time
from collections import defaultdict
from pathlib import Path

from _common import Words, check, finish, header, markdown_page
from tokenizers import Tokenizer

from ctx.errors import SourceError
from ctx.formats.extract import extract
from ctx.identity import embedding_text
from ctx.indexing.chunk import MAX_TOKENS, chunk, estimate_tokens
from ctx.items import Content, Extracted

PAGES = 2_000
ROUNDS = 7
FILES_PER_KIND = 200
MODEL_TOKENS = 256
MAX_BYTES = 400_000


def speed() -> None:
    words = Words()
    pages = [markdown_page(words, f"Page {number}", 5_200).encode() for number in range(PAGES)]
    size_mb = sum(map(len, pages)) / 1e6
    best = [float("inf")] * 3
    count = 0
    for _ in range(ROUNDS):
        began = time.process_time()
        for page in pages:
            page.decode().split("\n")
        split = time.process_time()
        extracted = [_extract(page, "page.md") for page in pages]
        read = time.process_time()
        count = sum([len(chunk(one, one.title)) for one in extracted if one])
        best = [
            min(old, new)
            for old, new in zip(best, (split - began, read - split, time.process_time() - read), strict=True)
        ]
    print(f"{PAGES} pages, {size_mb:.1f} MB, {count} chunks; CPU time")
    print(f"decode and split:  {size_mb / best[0]:6.0f} MB/s (yardstick)")
    print(f"extract:           {size_mb / best[1]:6.0f} MB/s")
    print(f"chunk:             {size_mb / best[2]:6.0f} MB/s, {best[2] / count * 1e6:.1f} us a chunk")
    both = best[1] + best[2]
    print(f"both:              {size_mb / both:6.0f} MB/s, {both / best[0]:.1f} x the yardstick\n")


def sizes(trees: list[str]) -> None:
    tokenizer = Tokenizer.from_file(
        str(Path(sys.modules["ctx"].__path__[0], "models", "all-MiniLM-L6-v2", "tokenizer.json"))
    )
    tokenizer.no_truncation()
    tokenizer.no_padding()
    by_kind: dict[str, list[str]] = defaultdict(list)
    for tree in trees:
        for folder, _, names in os.walk(tree):
            for name in names:
                path = os.path.join(folder, name)
                if os.path.isfile(path) and 500 < os.path.getsize(path) < MAX_BYTES:
                    by_kind[_kind(name)].append(path)
    print(
        f"{'kind':6} {'files':>6} {'chunks':>7} {'mean':>5} {'p50':>5} {'p95':>5} {'max':>5} {'>256':>7} "
        f"{'<40':>6} {'real/estimate':>14}"
    )
    over = every = 0
    for kind, paths in sorted(by_kind.items()):
        paths.sort()
        random.Random(7).shuffle(paths)
        counts, estimates = [], 0
        for path in paths[:FILES_PER_KIND]:
            one = _extract(Path(path).read_bytes(), path)
            if one is None:
                continue
            texts = [
                embedding_text(one.title, c.heading, one.body[c.start : c.end]) for c in chunk(one, one.title)
            ]
            counts += [len(encoding.ids) for encoding in tokenizer.encode_batch(texts)]
            estimates += sum(map(estimate_tokens, texts))
        if len(counts) < 100:
            continue
        counts.sort()
        over += sum(n > MODEL_TOKENS for n in counts)
        every += len(counts)
        print(
            f"{kind:6} {min(len(paths), FILES_PER_KIND):6} {len(counts):7} {sum(counts) / len(counts):5.0f} "
            f"{counts[len(counts) // 2]:5} "
            f"{counts[int(len(counts) * 0.95)]:5} {counts[-1]:5} "
            f"{sum(n > MODEL_TOKENS for n in counts) / len(counts):7.2%} "
            f"{sum(n < 40 for n in counts) / len(counts):6.1%} {sum(counts) / max(1, estimates):14.2f}"
        )
    if every:
        check(
            f"chunks over the model's {MODEL_TOKENS} tokens, at an estimate of {MAX_TOKENS}",
            over / every * 100,
            5,
            unit=" %",
        )


def _kind(name: str) -> str:
    stem, suffix = os.path.splitext(name.removesuffix(".gz"))
    return "man" if suffix[1:2].isdigit() else suffix[1:].lower() if stem else ""


def _extract(data: bytes, path: str) -> Extracted | None:
    try:
        return extract(Content(data), path)
    except SourceError:
        return None


if __name__ == "__main__":
    header("Extraction and chunking")
    speed()
    if sys.argv[1:]:
        sizes(sys.argv[1:])
    finish()
