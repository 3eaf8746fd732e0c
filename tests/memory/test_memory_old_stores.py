"""A store that version 1 of the tables left behind opens without loss and without an embedder."""

import hashlib
import json
import sqlite3
from pathlib import Path

import numpy as np
import pytest
from memory_kit import START_MS, Clock, WordEmbedder, texts

from ctx.memory.store import MemoryStore
from ctx.text.analyze import terms

VERSION_1 = """
    CREATE TABLE memory_banks (
      bank_no INTEGER PRIMARY KEY,
      bank TEXT NOT NULL UNIQUE,
      created_ms INTEGER NOT NULL,
      config TEXT NOT NULL DEFAULT '{}',
      live INTEGER NOT NULL DEFAULT 0,
      live_terms INTEGER NOT NULL DEFAULT 0,
      purges INTEGER NOT NULL DEFAULT 0,
      seq INTEGER NOT NULL DEFAULT 0,
      head TEXT NOT NULL DEFAULT ''
    );
    CREATE TABLE memories (
      no INTEGER PRIMARY KEY AUTOINCREMENT,
      bank_no INTEGER NOT NULL REFERENCES memory_banks (bank_no),
      seq INTEGER NOT NULL,
      id TEXT NOT NULL,
      kind TEXT NOT NULL,
      parent TEXT,
      ordinal INTEGER,
      role TEXT,
      text TEXT NOT NULL,
      type TEXT,
      context TEXT,
      folder TEXT,
      label TEXT,
      status TEXT NOT NULL,
      importance,
      metadata TEXT NOT NULL,
      tags TEXT NOT NULL,
      session TEXT,
      source TEXT NOT NULL,
      flags TEXT NOT NULL,
      event_ms INTEGER,
      created_ms INTEGER NOT NULL,
      updated_ms INTEGER NOT NULL,
      accessed_ms INTEGER NOT NULL,
      access_count INTEGER NOT NULL,
      valid_from_ms INTEGER NOT NULL,
      valid_to_ms INTEGER,
      superseded_by TEXT,
      expires_ms INTEGER,
      deleted_ms INTEGER,
      content_hash TEXT NOT NULL,
      version INTEGER NOT NULL,
      term_count INTEGER NOT NULL,
      UNIQUE (bank_no, id)
    );
    CREATE INDEX memories_by_seq ON memories (bank_no, seq);
    CREATE INDEX memories_by_hash ON memories (bank_no, content_hash) WHERE deleted_ms IS NULL;
    CREATE INDEX memories_by_parent ON memories (bank_no, parent, ordinal) WHERE parent IS NOT NULL;
    CREATE INDEX memories_by_created ON memories (bank_no, created_ms, no);
    CREATE INDEX memories_by_session ON memories (bank_no, session) WHERE session IS NOT NULL;
    CREATE INDEX memories_withdrawn ON memories (bank_no, no) WHERE deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL;
    CREATE VIRTUAL TABLE memory_words USING fts5 (terms, tokenize = "ascii tokenchars ':'");
    CREATE VIRTUAL TABLE memory_vocabulary USING fts5vocab (memory_words, row);
    CREATE TABLE memory_models (model_no INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE);
    CREATE TABLE memory_vectors (
      bank_no INTEGER NOT NULL, model_no INTEGER NOT NULL, memory_no INTEGER NOT NULL, ordinal INTEGER NOT NULL,
      vector BLOB NOT NULL,
      PRIMARY KEY (bank_no, model_no, memory_no, ordinal)
    ) WITHOUT ROWID;
    CREATE TABLE memory_aliases (
      bank_no INTEGER NOT NULL, alias TEXT NOT NULL, memory_no INTEGER NOT NULL,
      PRIMARY KEY (bank_no, alias)
    ) WITHOUT ROWID;
    CREATE INDEX memory_aliases_by_memory ON memory_aliases (memory_no);
    CREATE TABLE memory_links (
      memory_no INTEGER NOT NULL, other_no INTEGER NOT NULL, kind TEXT NOT NULL, score REAL NOT NULL,
      PRIMARY KEY (memory_no, other_no, kind)
    ) WITHOUT ROWID;
    CREATE INDEX memory_links_by_other ON memory_links (other_no);
    CREATE TABLE memory_sessions (
      memory_no INTEGER NOT NULL, session TEXT NOT NULL,
      PRIMARY KEY (memory_no, session)
    ) WITHOUT ROWID;
    CREATE TABLE memory_replies (
      bank_no INTEGER NOT NULL, key TEXT NOT NULL, request TEXT NOT NULL, reply TEXT NOT NULL,
      PRIMARY KEY (bank_no, key)
    ) WITHOUT ROWID;
    CREATE TABLE memory_journal (
      no INTEGER PRIMARY KEY,
      bank_no INTEGER NOT NULL,
      op_id TEXT NOT NULL,
      op TEXT NOT NULL,
      at_ms INTEGER NOT NULL,
      actor TEXT NOT NULL,
      detail TEXT NOT NULL,
      hash TEXT NOT NULL,
      UNIQUE (bank_no, op_id)
    );
    CREATE INDEX memory_journal_by_bank ON memory_journal (bank_no, no);
    CREATE TABLE memory_history (
      memory_no INTEGER NOT NULL, version INTEGER NOT NULL, op_no INTEGER NOT NULL, before TEXT,
      PRIMARY KEY (memory_no, version)
    ) WITHOUT ROWID;
    CREATE INDEX memory_history_by_op ON memory_history (op_no);
    """
BANK = "ælice"  # a name that version 1 let in
MEMORIES = (
    ("11111111-1111-4111-8111-111111111111", "The user prefers dark roast coffee", "drinks"),
    ("22222222-2222-4222-8222-222222222222", "Trains to Lisbon leave at noon", None),
)


def packed_as_then(text: str) -> bytes:
    """A vector in version 1's format: scale, then signed bytes."""
    vector = WordEmbedder().embed_query(text)
    scale = float(np.abs(vector).max()) / 127
    signed: bytes = np.rint(vector / scale).astype(np.int8).tobytes()
    return np.array([scale], np.float32).tobytes() + signed


def fill(connection: sqlite3.Connection) -> None:
    """Two memories, as version 1 stored them: one operation each."""
    run = connection.execute
    run("INSERT INTO memory_models VALUES (1, ?)", (WordEmbedder().model,))
    head, live_terms = "", 0
    for no, (id, text, context) in enumerate(MEMORIES, 1):
        counted = [terms(context or ""), terms(text)]
        term_count = 2 * len(counted[0]) + len(counted[1])
        live_terms += term_count
        run(
            "INSERT INTO memories (no, bank_no, seq, id, kind, text, context, status, importance, metadata, "
            "tags, source, flags,"
            " created_ms, updated_ms, accessed_ms, access_count, valid_from_ms, content_hash, version, "
            "term_count)"
            " VALUES (?, 1, ?, ?, 'fact', ?, ?, 'active', 5, '{\"n\":1}', '[]', '{}', '[]', ?, ?, ?, 0, ?, "
            "?, 1, ?)",
            (no, no, id, text, context, *[START_MS + no] * 4, f"hash{no}", term_count),
        )
        words = " | ".join(" ".join(f"1:{term}" for term in part) for part in counted)
        run("INSERT INTO memory_words (rowid, terms) VALUES (?, ?)", (no, words))
        run("INSERT INTO memory_vectors VALUES (1, 1, ?, 0, ?)", (no, packed_as_then(text)))
        run("INSERT INTO memory_history VALUES (?, 1, ?, NULL)", (no, no))
        line = (f"op{no}", "put", str(START_MS + no), "{}", "{}")
        head = hashlib.sha256("\n".join((head, *line)).encode()).hexdigest()
        run("INSERT INTO memory_journal VALUES (?, 1, ?, ?, ?, ?, ?, ?)", (no, *line, head))
    run(
        "INSERT INTO memory_banks VALUES (1, ?, ?, '{}', 2, ?, 0, 2, ?)",
        (BANK, START_MS, live_terms, head),
    )


@pytest.fixture
def path(tmp_path: Path) -> str:
    path = str(tmp_path / "ctx.db")
    connection = sqlite3.connect(path)
    connection.executescript(VERSION_1)
    fill(connection)
    connection.execute("CREATE TABLE meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID")
    connection.execute("INSERT INTO meta VALUES ('schema.memories', 1)")
    connection.execute(f"PRAGMA application_id = {0x63747831}")
    connection.commit()
    connection.close()
    return path


def test_an_old_store_opens_whole_and_is_sound(path: str) -> None:
    with MemoryStore(path, None, Clock(START_MS + 10)) as store:
        assert store.check(deep=True) == []
        records = store.bank(BANK).browse(order="created")["items"]
    assert [(record["id"], record["text"], record["context"]) for record in records] == list(MEMORIES)
    assert [record["timestamp"] for record in records] == [START_MS + 1, START_MS + 2]
    assert [record["contexts"] for record in records] == [["drinks"], []]


def test_the_vectors_of_an_old_store_are_searched_without_embedding_again(path: str) -> None:
    embedder = WordEmbedder()
    with MemoryStore(path, embedder, Clock(START_MS + 10)) as store:
        assert store.pending() == 0
        assert texts(store.bank(BANK), "Lisbon trains", mode="semantic", limit=1) == [MEMORIES[1][1]]
        text = f"{MEMORIES[1][1]} Always."
        [similar] = store.bank(BANK).put(text)["similar"]
    expected = embedder.embed_query(text) @ embedder.embed_query(MEMORIES[1][1])
    assert similar["score"] == pytest.approx(float(expected), abs=0.01)


def test_what_an_old_store_holds_is_not_stored_again(path: str) -> None:
    with MemoryStore(path, None, Clock(START_MS + 10)) as store:
        reply = store.bank(BANK).put("I prefer dark roast coffee.", context="habits")
        record = store.bank(BANK).get(reply["id"])
    assert (reply["duplicate_of"], reply["created"]) == (MEMORIES[0][0], False)
    assert record is not None
    assert record["contexts"] == ["drinks", "habits"]


def test_an_old_store_is_exported_as_it_was_and_a_copy_lies_beside_it(path: str) -> None:
    with MemoryStore(path, None, Clock(START_MS + 10)) as store:
        lines = [json.loads(line) for line in store.bank(BANK).export()]
        assert texts(store.bank(BANK), "Lisbon") == [MEMORIES[1][1]]
    assert [line["content_hash"] for line in lines] == ["hash1", "hash2"]
    assert not {"timestamp", "event_end", "document_id", "contexts"} & set(lines[0])
    assert Path(f"{path}.memories-1.bak").exists()
