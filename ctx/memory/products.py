"""Memories from the products whose dialects the packs speak, in the format that their documentation shows.

What they document are the replies of their tools, so those are what is read: `retrieve_memory` or `search` of Claude Recall, `recall` or
`hindsight_search` of Hindsight, `memory_export` of Sekha; one JSON document, or one a line. Their database files are nowhere described.
"""

import json
from collections.abc import Callable, Iterator

from ctx.errors import BadRequest, Conflict
from ctx.memory.bank import MemoryBank
from ctx.types import JSON

SQLITE = b"SQLite format 3\0"


def import_replies(bank: MemoryBank, product: str, content: bytes) -> dict[str, int]:
    """`{"imported", "skipped"}`; what was imported before is skipped. Raises `BadRequest` for what is not such a reply."""
    if content.startswith(SQLITE):
        raise BadRequest(
            f"this is a database file, whose format {product} does not document; save what its tools reply and import that"
        )
    store = _STORES[product]
    counts = {"imported": 0, "skipped": 0}
    for entry in _entries(product, content):
        try:
            before = bank.count()
            store(bank, entry)
            counts["imported" if bank.count() > before else "skipped"] += 1
        except Conflict:
            counts["skipped"] += 1
        except (KeyError, TypeError, AttributeError) as error:
            raise BadRequest(f"an entry lacks {error}: not what {product} replies") from error
    return counts


def _entries(product: str, content: bytes) -> Iterator[dict[str, JSON]]:
    """The memories or conversations in one reply, or in several, one a line."""
    text = content.decode("utf-8-sig", "strict")
    try:
        replies = [json.loads(text)]
    except ValueError:
        try:
            replies = [json.loads(line) for line in text.split("\n") if line.strip()]
        except ValueError as error:
            raise BadRequest(f"not JSON: {error}") from error
    for reply in replies:
        entries = _unwrapped(reply)
        if isinstance(entries, dict):
            entries = entries.get(
                "memories", entries.get("results", [entries] if product == "sekha" else None)
            )
        if not isinstance(entries, list):
            raise BadRequest(f"not what {product} replies")
        for entry in entries:
            inner = _unwrapped(entry)
            if not isinstance(inner, dict):
                raise BadRequest(f"not what {product} replies")
            yield inner


def _unwrapped(reply: JSON) -> JSON:
    """Without the envelope of Sekha (`data`) and that of the REST route (`result`)."""
    for name in ("result", "data"):
        if isinstance(reply, dict) and isinstance(reply.get(name), dict):
            reply = reply[name]
    return reply


def _claude_recall(bank: MemoryBank, entry: dict[str, JSON]) -> None:
    bank.put(
        entry["content"],
        metadata=entry.get("metadata") or {},
        session=entry.get("sessionId"),
        timestamp=entry.get("timestamp"),
        alias=entry["id"],
        dedupe="exact",
        idempotency_key=f"import:claude-recall:{entry['id']}",
    )


def _hindsight(bank: MemoryBank, entry: dict[str, JSON]) -> None:
    bank.put(
        entry["text"],
        type=entry.get("type") or "world",
        context=entry.get("context") or "general",
        event_date=entry.get("event_date"),
        alias=entry["id"],
        dedupe="exact",
        idempotency_key=f"import:hindsight:{entry['id']}",
    )


def _sekha(bank: MemoryBank, entry: dict[str, JSON]) -> None:
    conversation = entry["conversation"]
    bank.put_many(
        [
            {
                "text": message["content"],
                "role": message["role"],
                "timestamp": message.get("timestamp"),
                "metadata": message.get("metadata") or {},
            }
            for message in entry["messages"]
        ],
        {
            "label": conversation["label"],
            "folder": conversation.get("folder", "/"),
            "status": conversation.get("status", "active"),
            "importance": conversation.get("importance_score", 5),
            "timestamp": conversation.get("created_at"),
            "metadata": {"sekha_id": conversation["id"]},
        },
        idempotency_key=f"import:sekha:{conversation['id']}",
    )


_STORES: dict[str, Callable[[MemoryBank, dict[str, JSON]], None]] = {
    "claude-recall": _claude_recall,
    "hindsight": _hindsight,
    "sekha": _sekha,
}
PRODUCTS = tuple(_STORES)
