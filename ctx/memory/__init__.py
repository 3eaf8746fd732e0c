"""Durable memory: a store of banks; a bank is a named set of memories. The memory packs
(`ctx.memory.dialects`) offer a bank as tools to models.

    with MemoryStore("memory.db", embedder) as store:
        bank = store.bank("alice", Provenance(pack="hindsight", session="s1"))
        bank.put("User prefers TypeScript over JavaScript", context="preferences")
        bank.search("TypeScript preference", min_score=0.7)["results"][0]["record"]["text"]

The layers; each uses only the layers below it:

    ops        calls an operation of a bank by name, with JSON; scripts use it as `context.memory`
    store      all banks in one file or database (`MemoryStore`), and moving them to another database
    bank/      one bank: put, change (update, delete, undo), search, read, export, import, merge
    ranking    fuses keyword and vector search; reflect answers a question from many memories
    vectors    embeds texts; ranking and bank use it, together with scores, dates and language
    rows       transactions; writer and reader have the SQL that changes and reads one bank
    schema     the tables, and where SQLite and PostgreSQL differ; columns and filters: a memory's fields

Other modules: location finds the memory file, and moves memories of earlier versions of ctx into it. copies
backs the file up, and salvage restores it. folder synchronizes a bank with Markdown files. imports reads
memories of other products. activity has the log of calls and the sessions of clients, which are in the same
file.

Times are milliseconds since the epoch, UTC; where a caller gives a time, ISO 8601 is accepted too. Importing
bank or store also imports numpy, which takes 85 ms.
"""
