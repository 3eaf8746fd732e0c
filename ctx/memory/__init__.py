"""Durable memory: a store of memory banks. The memory packs (`ctx.memory.dialects`) offer it as tools.

    with MemoryStore("memory.db", embedder) as store:
        bank = store.bank("alice", Provenance(pack="hindsight", session="s1"))
        bank.put("User prefers TypeScript over JavaScript", context="preferences")
        bank.search("TypeScript preference", min_score=0.7)["results"][0]["record"]["text"]

The layers; each uses only the layers below it:

    ops        operations by name, JSON in and out; scripts have them as `context.memory`
    store      all banks of a file or database: `MemoryStore`; moves them to another database
    bank/      one bank: put, change (update, delete, undo), search, read, export, import, merge
    ranking    fuses keyword and vector search; reflect answers a question from many memories
    vectors    with scores, dates and language: used by ranking and bank
    rows       transactions; writer and reader have the SQL on one bank
    schema     the tables and the differences of SQLite and PostgreSQL; columns and filters: a memory's fields

Other modules: location finds the file, and moves memories of earlier versions there; copies and salvage
protect it; folder and imports exchange memories with Markdown files and other products; activity has the log
of calls and the sessions of clients, which are in the same file.

Times are milliseconds since the epoch, UTC; where a caller gives a time, ISO 8601 is accepted too. bank and
store need numpy (85 ms).
"""
