"""Durable memory: a store of banks. The memory packs (`ctx.memory.dialects`) are tools on it.

    with MemoryStore("memory.db", embedder) as store:
        bank = store.bank("alice", Provenance(pack="hindsight", session="s1"))
        bank.put("User prefers TypeScript over JavaScript", context="preferences")
        bank.search("TypeScript preference", min_score=0.7)["results"][0]["record"]["text"]

The layers, each of which uses only those below it:

    ops        operations by name, JSON in and out; scripts have them as `context.memory`
    store      all banks of a file or database: `MemoryStore`
    bank/      one bank: put, change (update, delete, undo), search, read, move (export, import, merge)
    ranking    a search: keywords and vectors, fused; reflect: an answer from many memories
    embedding  vectors, scores, dates and language, which ranking and bank use
    rows       transactions; writer and reader are the SQL on one bank
    engine     what SQLite and PostgreSQL do differently; columns and filters: a memory's fields

Around them: location finds the file, copies and salvage protect it, split and moving transfer old stores and
other databases, folder and products exchange memories with Markdown files and other products, and activity
and sessions are logs in the same file.

Times are milliseconds since the epoch, UTC; where a caller gives a time, ISO 8601 is accepted too. The names
below are loaded at first use: the bank needs numpy (85 ms), and `ctx search` imports only ctx.memory.copies.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ctx.memory.bank import MemoryBank
    from ctx.memory.embedding import Embedder
    from ctx.memory.ops import OPS, BankCall, call
    from ctx.memory.records import Provenance, check_bank_id, check_nameable
    from ctx.memory.store import MemoryStore

_MODULES = {
    "OPS": "ops",
    "BankCall": "ops",
    "Embedder": "embedding",
    "MemoryBank": "bank",
    "MemoryStore": "store",
    "Provenance": "records",
    "call": "ops",
    "check_bank_id": "records",
    "check_nameable": "records",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


__all__ = [
    "OPS",
    "BankCall",
    "Embedder",
    "MemoryBank",
    "MemoryStore",
    "Provenance",
    "call",
    "check_bank_id",
    "check_nameable",
]
