"""The memory tables and their migrations.

Version 2 adds columns, such as when a memory was said, and changes the encoding of vectors, which needs no
embedder. Version 3 adds the sessions of clients.
"""

from ctx.errors import StoreError
from ctx.memory.columns import added_sql, table_sql
from ctx.memory.language import gist
from ctx.store.schema import Connection, migrate, schema_version

# The tables and indexes that SQLite and PostgreSQL share; PostgreSQL replaces the types.
COMMON = """
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
    CREATE TABLE memory_models (model_no INTEGER PRIMARY KEY, model TEXT NOT NULL UNIQUE);
    CREATE TABLE memory_vectors (
      bank_no INTEGER NOT NULL, model_no INTEGER NOT NULL, memory_no INTEGER NOT NULL,
      ordinal INTEGER NOT NULL, vector BLOB NOT NULL,
      PRIMARY KEY (bank_no, model_no, memory_no, ordinal)
    ) WITHOUT ROWID;
    CREATE TABLE memory_aliases (
      bank_no INTEGER NOT NULL, alias TEXT NOT NULL, memory_no INTEGER NOT NULL,
      PRIMARY KEY (bank_no, alias)
    ) WITHOUT ROWID;
    CREATE INDEX memory_aliases_by_memory ON memory_aliases (memory_no);
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
INDEXES = """
    CREATE INDEX memories_by_seq ON memories (bank_no, seq);
    CREATE INDEX memories_by_parent ON memories (bank_no, parent, ordinal) WHERE parent IS NOT NULL;
    CREATE INDEX memories_by_created ON memories (bank_no, created_ms, no);
    CREATE INDEX memories_by_session ON memories (bank_no, session) WHERE session IS NOT NULL;
    CREATE INDEX memories_withdrawn ON memories (bank_no, no)
      WHERE deleted_ms IS NOT NULL OR valid_to_ms IS NOT NULL;
    """
_VERSION_1 = f"""
    {COMMON}
    CREATE TABLE memories (
      {table_sql(1)}
    );
    {INDEXES}
    CREATE INDEX memories_by_hash ON memories (bank_no, content_hash) WHERE deleted_ms IS NULL;
    CREATE VIRTUAL TABLE memory_words USING fts5 (terms, tokenize = "ascii tokenchars ':'");
    CREATE VIRTUAL TABLE memory_vocabulary USING fts5vocab (memory_words, row);
    """
LATER_INDEXES = """
    CREATE INDEX memories_by_gist ON memories (bank_no, gist) WHERE deleted_ms IS NULL;
    CREATE INDEX memories_by_event ON memories (bank_no, event_ms) WHERE event_ms IS NOT NULL;
    CREATE INDEX memories_by_document ON memories (bank_no, document_id) WHERE document_id IS NOT NULL;
    CREATE INDEX memories_by_successor ON memories (bank_no, superseded_by) WHERE superseded_by IS NOT NULL;
    """

_VERSION_2 = f"""
    {added_sql(2)}
    UPDATE memories SET gist = gist_of(text);
    UPDATE memory_vectors SET vector = recoded(vector);
    DROP INDEX memories_by_hash;
    {LATER_INDEXES}
    """

SESSIONS = """
    CREATE TABLE client_sessions (
      pack TEXT NOT NULL,
      id TEXT NOT NULL,
      place TEXT,
      started_ms INTEGER NOT NULL,
      active_ms INTEGER NOT NULL,
      PRIMARY KEY (pack, id)
    );
    CREATE INDEX client_sessions_by_place ON client_sessions (pack, place, active_ms) WHERE place IS NOT NULL;
    CREATE INDEX client_sessions_by_age ON client_sessions (pack, active_ms);
    """

COMPONENT = "memories"
_SIGNS = bytes(code ^ 0x80 for code in range(256))
MIGRATIONS = (_VERSION_1, _VERSION_2, SESSIONS)


def bring_up_to_date(connection: Connection) -> None:
    """Creates the tables, or migrates older ones. Raises `StoreError`."""
    connection.create_function("gist_of", 1, gist, deterministic=True)
    # Version 1 had signed codes after the step, which takes 4 bytes (ctx/memory/vectors.py).
    connection.create_function("recoded", 1, lambda packed: packed[:4] + packed[4:].translate(_SIGNS))
    migrate(connection, COMPONENT, MIGRATIONS)


def check_version(connection: Connection) -> None:
    """Raises `StoreError` if the tables have another version than the current one."""
    version = schema_version(connection, COMPONENT)
    if not version:
        raise StoreError(
            "there are no memories yet, and their file is read-only here. Run `ctx memory banks` as a user "
            "who can write it to create them"
        )
    if version != len(MIGRATIONS):
        raise StoreError(
            "the memories have the format of another version of ctx, and their file is read-only here. Run "
            "`ctx memory banks` as a user who can write it to update them"
        )
