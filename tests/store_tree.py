"""What the store's tests share: a tree of documents in versions, a run that follows it, and a portrait to
compare.

Run as a program it follows the tree from version to version until it is killed: `python store_tree.py FOLDER
FIRST_VERSION LAST`.
"""

import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ctx.code.symbols import definitions
from ctx.models import Chunk, Document, Filters, Run, document_id, embedding_text, text_hash
from ctx.store import keyword_writer
from ctx.store.base import Catalog
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

DIM = 16
MODEL = "test/model"
WORDS = [
    "otter", "harbour", "lantern", "granite", "meadow", "copper", "violet", "thistle", "ember", "quarry",
    "walnut", "anchor", "saffron", "pebble", "cedar", "marble", "linen", "cobalt", "juniper", "amber",
]  # fmt: skip
EVERYTHING = 10_000  # more than any index here holds


def make(
    source: str,
    source_id: str,
    paragraphs: Sequence[str],
    *,
    title: str | None = None,
    updated_ms: int = 1_000,
    **fields: Any,
) -> tuple[Document, list[Chunk]]:
    """A document of paragraphs, each a chunk."""
    title = source_id if title is None else title
    body = "\n\n".join(paragraphs)
    chunks = []
    start = 0
    for ordinal, paragraph in enumerate(paragraphs):
        heading = "" if ordinal == 0 else f"Part {ordinal}"
        hashed = text_hash(embedding_text(title, heading, paragraph))
        first = body.count("\n", 0, start) + 1
        last = first + paragraph.count("\n")
        chunks.append(Chunk(ordinal, start, start + len(paragraph), first, last, heading, hashed))
        start += len(paragraph) + 2
    media_type = "text/x-python" if source_id.endswith(".py") else "text/markdown"
    found = tuple(definitions(body, media_type) or ()) if media_type == "text/x-python" else ()
    document = Document(
        id=document_id(source, source_id),
        source=source,
        source_id=source_id,
        title=title,
        body=body,
        media_type=media_type,
        updated_ms=updated_ms,
        fingerprint=f"{text_hash(body).hex()}-{updated_ms}",
        content_hash=text_hash(body),
        **{"definitions": found, **fields},
    )
    return document, chunks


def vector_of(hashed: bytes, dim: int = DIM) -> np.ndarray:
    """The unit vector that stands for a text: any, but always the same."""
    vector = np.random.default_rng(int.from_bytes(hashed, "little")).standard_normal(dim).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def pending_texts(catalog: Catalog, model: str, most: int) -> list[tuple[bytes, str]]:
    """At most so many of the texts without an embedding, oldest first."""
    return catalog.pending_texts(model, [chunk.chunk_no for chunk in catalog.pending_chunks(model)])[:most]


def embed_pending(catalog: Catalog, batch: int = 64, model: str = MODEL) -> int:
    """Embeds what is pending; how many texts."""
    count = 0
    while texts := pending_texts(catalog, model, batch):
        for hashed, text in texts:
            assert text_hash(text) == hashed, "the text to embed is not the one that was hashed"
        catalog.put_embeddings(model, [(hashed, vector_of(hashed)) for hashed, _ in texts])
        count += len(texts)
    return count


def tree(version: int) -> dict[tuple[str, str], tuple[Document, list[Chunk]]]:
    """The documents of a version: each version deletes, adds, edits and touches some. One never changes."""
    documents = [make("filesystem", "constant.md", ["the kingfisher stays where it is"])]
    for number in range(60):
        edits = random.Random(
            f"{number}/{(version + number) // 7}"
        )  # every document is edited at every seventh version
        if edits.random() < 0.2:
            continue
        paragraphs = [" ".join(edits.choices(WORDS, k=12)) for _ in range(edits.randint(0, 6))]
        touched = random.Random(f"{number}/{version // 3}").randint(1, 5)
        source = "git:notes" if number % 3 == 0 else "filesystem"
        documents.append(
            make(source, f"folder/{number}.md", paragraphs, title=f"Note {number}", updated_ms=touched)
        )
    return {(document.source, document.source_id): (document, chunks) for document, chunks in documents}


def follow(catalog: Catalog, index: LocalIndex | None, version: int, batch: int = 7) -> None:
    """One run: makes the store hold a version of the tree, as an index run would, publishing on the way."""
    expected = tree(version)
    for source in ("filesystem", "git:notes"):
        fingerprints = catalog.fingerprints(source)
        mine = {source_id: entry for (name, source_id), entry in expected.items() if name == source}
        changed = [
            source_id
            for source_id, (document, _) in mine.items()
            if fingerprints.get(source_id) != document.fingerprint
        ]
        hashes = catalog.content_hashes(source, changed)
        for start in range(0, len(changed), batch):
            part = changed[start : start + batch]
            entries = [
                source_id for source_id in part if hashes.get(source_id) == mine[source_id][0].content_hash
            ]
            catalog.touch_documents(
                [(source, name, mine[name][0].fingerprint, mine[name][0].updated_ms) for name in entries]
            )
            catalog.put_documents([mine[source_id] for source_id in part if source_id not in entries])
            if index is not None and start == batch:
                index.catch_up(catalog)
        catalog.delete_documents(source, sorted(fingerprints.keys() - mine.keys()))
        catalog.record_run(source, Run(version, True, None, None, "signature"))
    if index is not None:
        index.catch_up(catalog)
    for _ in range(2):
        texts = pending_texts(catalog, MODEL, 40)
        catalog.put_embeddings(MODEL, [(hashed, vector_of(hashed)) for hashed, _ in texts])
        if index is not None:
            index.catch_up(catalog)
    embed_pending(catalog)
    if index is not None:
        index.catch_up(catalog)


def open_store(folder: Path, *, model: str | None = MODEL) -> tuple[SqliteCatalog, LocalIndex]:
    return SqliteCatalog(str(folder / "ctx.db")), LocalIndex(str(folder / "index"), lambda: model)


def documents_of(catalog: Catalog) -> dict[tuple[str, str], Any]:
    """What a catalog holds, without the numbers it gave."""
    entries_by_name = {}
    for stored in catalog.export():
        document = stored.document
        entries_by_name[document.source, document.source_id] = (document, stored.chunks)
    return entries_by_name


def places(catalog: Catalog, chunk_nos: Sequence[int]) -> list[tuple[str, str, int]]:
    """(source, source_id, ordinal) of chunks; all of them exist."""
    rows = catalog.chunk_rows(chunk_nos)
    return [(rows[no].source, rows[no].source_id, rows[no].ordinal) for no in chunk_nos]


class Score(float):
    """A score that equals another within what the order of the rows may change: the last bits of a product of
    matrices.
    """

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1e-5

    __hash__ = None  # type: ignore[assignment]


def found_in(catalog: Catalog, index: LocalIndex, *, semantic: bool = True) -> dict[str, Any]:
    """All that an index finds, without the numbers: by each word, near some vectors, through each filter."""
    entries_by_name: dict[str, Any] = {}
    narrow = [
        Filters(),
        Filters(sources=frozenset({"git:notes"})),
        Filters(since_ms=3),
        Filters(sources=frozenset({"filesystem"}), until_ms=2),
    ]
    for number, filters in enumerate(narrow):
        for word in [*WORDS, "kingfisher"]:
            hits = index.keyword(word, filters, EVERYTHING)
            entries_by_name[f"{word} {number}"] = sorted(places(catalog, [hit.chunk_no for hit in hits]))
        for probe in range(5 if semantic else 0):
            hits = index.semantic(vector_of(bytes([probe])), filters, EVERYTHING, MODEL)
            matches = zip(places(catalog, [hit.chunk_no for hit in hits]), hits, strict=True)
            entries_by_name[f"vector {probe} {number}"] = sorted(
                (location, Score(hit.score)) for location, hit in matches
            )
    return entries_by_name


def portrait(catalog: Catalog, index: LocalIndex) -> dict[str, Any]:
    """Everything of a store that a clean build would make the same."""
    assert index.applied_seq() == catalog.seq()
    return {
        "documents": documents_of(catalog),
        "pending": catalog.pending_count(MODEL),
        **found_in(catalog, index),
    }


def clean_portrait(folder: Path, version: int) -> dict[str, Any]:
    """The portrait of a store built at once from a version of the tree."""
    catalog, index = open_store(folder)
    with catalog, index:
        catalog.put_documents(list(tree(version).values()))
        embed_pending(catalog)
        index.catch_up(catalog)
        return portrait(catalog, index)


if __name__ == "__main__":
    keyword_writer.PUBLISH_EVERY_S = 0.0
    followed, follower = open_store(Path(sys.argv[1]))
    print("ready", flush=True)
    for at in range(int(sys.argv[2]), int(sys.argv[3])):
        follow(followed, follower, at)
    follower.close()
    followed.close()
