"""Memory: one durable store of banks. The memory packs (`ctx.memory.dialects`) are tools on it.

    with MemoryStore(".ctx/ctx.db", embedder) as store:
        bank = store.bank("alice", Provenance(pack="hindsight", session="s1"))
        bank.put("User prefers TypeScript over JavaScript", context="preferences")
        bank.search("TypeScript preference", min_score=0.7)["results"][0]["record"]["text"]

`call(bank, op, args)` is the same by name, JSON in and out; `OPS` lists the operations and their arguments:

    put{text, kind="fact", type, context, contexts, role, folder, label, status, importance=5, metadata,
        tags, session, event_date, expires_at, parent, ordinal, dedupe="exact|off", supersedes=[ids],
        alias, idempotency_key}  -> {id, created, duplicate_of, superseded, similar, flags, op_id}
    put_many{items=[{text, ...}], container={label, ...}, idempotency_key}
                                 all or nothing -> {id, ids, created, op_id}
    get{id}  get_many{ids}       records, null for unknown ids; an id is a UUID or an alias
    children{id, limit, cursor}  -> {items, cursor}
    update{id, patch, expect_version}  -> {record, changed, op_id}
    delete{id, reason, hard=false}
    delete_where{filter, reason} -> {count, op_id}
    undo{op_id}                  -> {count, skipped, ...}
    restore{id}                  a forgotten memory -> {count, op_id}
    touch{ids}                   counts a read -> how many
    list{filter, order="-created", limit, cursor, include_superseded, as_of}  -> {items, cursor}
    count{filter, ...}
    stats{filter, group_by}      -> {count, average_importance, first_created, ..., groups}
    search{query, limit=10, offset=0, mode="hybrid", filter, min_score=0, budget="low", max_tokens, window,
           as_of, include_superseded, order="rank|score", explain, touch}
                                 -> {results=[{record, score, container?, signals?}], total, degraded}
    synthesize{query, budget, context, disposition, filter, as_of}  -> ctx.memory.reflect.reflect
    history{id}  journal{after, limit}  sessions{id}  export{filter}  import{content}
    exists{}  ensure{}  config{}  configure{config}

A record has: id, bank, kind, parent, ordinal, role, text, type, context, folder, label, status, importance,
metadata, tags, session, source, flags, event_date, created, updated, last_accessed, access_count, valid_from,
valid_to, superseded_by, expires_at, deleted_at, content_hash, version, aliases. Times are milliseconds since
the epoch, UTC; where a time is given, ISO 8601 will do. Filters: ctx/memory/filters.py.

The names below are loaded at first use: the bank needs numpy (85 ms), and `ctx search` imports only
ctx.memory.copies.
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
