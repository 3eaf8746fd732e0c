"""Durable memory: a store of memory banks. The memory packs (`ctx.memory.dialects`) offer it as tools.

    with MemoryStore("memory.db", embedder) as store:
        bank = store.bank("alice", Provenance(pack="hindsight", session="s1"))
        bank.put("User prefers TypeScript over JavaScript", context="preferences")
        bank.search("TypeScript preference", min_score=0.7)["results"][0]["record"]["text"]

The layers; each uses only the layers below it:

    ops        operations by name, JSON in and out; scripts have them as `context.memory`
    store      all banks of a file or database: `MemoryStore`
    bank/      one bank: put, change (update, delete, undo), search, read, export, import, merge
    ranking    fuses keyword and vector search; reflect answers a question from many memories
    vectors    with scores, dates and language: used by ranking and bank
    rows       transactions; writer and reader have the SQL on one bank
    engine     the differences of SQLite and PostgreSQL; columns and filters: a memory's fields

Other modules: location finds the file; copies and salvage protect it; split and moving transfer memories
from old stores and other databases; folder and imports exchange memories with Markdown files and other
products; activity and sessions are logs in the same file.

Times are milliseconds since the epoch, UTC; where a caller gives a time, ISO 8601 is accepted too. bank and
store need numpy (85 ms).
"""
