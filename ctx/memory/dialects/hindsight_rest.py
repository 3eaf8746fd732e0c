"""Hindsight's REST API for memories and documents, below `/v1/default/banks/{bank_id}`."""

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson

from ctx import __version__
from ctx.clock import iso_utc
from ctx.errors import BadRequest, NotFound
from ctx.memory.dialects import base
from ctx.memory.dialects.base import Call, filled, iso, pick, present
from ctx.memory.dialects.hindsight import (
    BANK,
    HINDSIGHT,
    between,
    facts,
    forgotten_reply,
    of_tags,
    of_types,
)
from ctx.models import JSON

__all__ = ["HINDSIGHT"]  # importing `HINDSIGHT` from here includes the routes below

MEMORIES = f"{BANK}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
DOCUMENT = f"{BANK}/documents/{{document_id}}"
TIMES = {"mentioned_at": "timestamp", "occurred_start": "event_date", "created_at": "created"}

Query = Annotated[str, base.NOT_EMPTY]
Budget = Literal["low", "mid", "high"]
TagsMatch = Literal["any", "all", "any_strict", "all_strict", "exact"]
Limit = Annotated[int, base.span(1, 1000)]
Offset = Annotated[int, base.span(0, 100_000)]
MaxTokens = Annotated[int, base.span(1)]
FEATURES = {
    **dict.fromkeys(("mcp", "bank_config_api", "store_document_text"), True),
    **dict.fromkeys(("observations", "worker", "bank_llm_health", "file_upload_api"), False),
    **dict.fromkeys(("document_export_api", "document_import_api", "audit_log", "llm_trace"), False),
}
# Parts of a reply that clients may ask for; ctx leaves them empty.
PARTS = ("entities", "chunks", "source_facts")


def unit(record: JSON) -> dict[str, JSON]:
    """A memory in the form that Hindsight's clients expect; all values of its metadata are texts."""
    metadata = dict(record["metadata"])
    entities = metadata.pop("entities", []) if isinstance(metadata.get("entities"), list) else []
    last = record["event_date"] if record["event_end"] is None else record["event_end"]
    return {
        **pick(record, "id", "text", "context", "document_id", "tags", date="said", mentioned_at="said"),
        **dict.fromkeys(("type", "fact_type"), record["type"] or "world"),
        "occurred_start": iso(record["event_date"]),
        "occurred_end": iso(last),
        "entities": entities,
        "metadata": {
            name: value if isinstance(value, str) else orjson.dumps(value).decode()
            for name, value in metadata.items()
        },
        "state": "valid" if record["deleted_at"] is None else "invalidated",
        "invalidated_at": iso(record["deleted_at"]),
        "updated_at": iso(record["updated"]),
    }


def page_of(rows: Sequence[JSON], limit: int, offset: int) -> dict[str, JSON]:
    return {"items": rows[offset : offset + limit], "total": len(rows), "limit": limit, "offset": offset}


def _asked(include: Mapping[str, JSON] | None, part: str) -> bool:
    """Whether a client asks for a part of the reply: with `true`, or with an object of options, even an empty
    one.
    """
    return (include or {}).get(part) not in (None, False)


# -- memories ------------------------------------------------------------------------------------------------


TEXT, TEXTS, OBJECT = base.schema_of(str), base.schema_of(list[str]), base.schema_of(base.Table)
ITEM = base.closed(
    {
        "content": {"type": ["string", "array"], "minLength": 1, "minItems": 1, "items": OBJECT},
        "timestamp": TEXT | {"description": "When it was said; 'unset': now"},
        "context": TEXT,
        "metadata": OBJECT,
        "document_id": TEXT,
        "tags": TEXTS,
        "entities": {"type": "array", "items": OBJECT | {"required": ["text"]}},
        "resolve_entities": {},
        "supersedes": TEXTS,
        "update_mode": {
            "enum": ["append", "replace"],
            "description": "replace: forget the document's memories first",
            "type": "string",
        },
    },
    ("content",),
)


def _put(call: Call, item: base.Table, tags: Sequence[str], key: str | None) -> JSON:
    """Stores one item of a `retain` request."""
    metadata, timestamp = item.get("metadata"), item.get("timestamp")
    if item.get("entities"):
        metadata = {**(metadata or {}), "entities": [entity["text"] for entity in item["entities"]]}
    fields = {name: item.get(name) for name in ("context", "document_id", "supersedes")}
    fields |= {"tags": [*(item.get("tags") or ()), *tags], "metadata": metadata, "idempotency_key": key}
    timestamp = None if timestamp == "unset" else timestamp
    return call.bank.put(text=_text_of(item["content"]), type="world", timestamp=timestamp, **fields)


def _text_of(content: Any) -> str:
    if isinstance(content, str):
        return content
    for block in content:
        if block.get("type") != "text" or not isinstance(block.get("text"), str):
            kind = str(block.get("type"))[:40]
            raise BadRequest(f"content: blocks of type '{kind}' are not kept here; send text")
    return "\n".join(block["text"] for block in content)


@HINDSIGHT.route("POST", MEMORIES, ignored=("async",))
def retain_items(
    call: Call,
    items: Annotated[list[base.Table], {"minItems": 1, "items": ITEM}],
    document_tags: list[str] | None = None,
    operation_id: Annotated[
        str | None, base.NOT_EMPTY, {"maxLength": 180}, "A second request with this id stores nothing"
    ] = None,
) -> JSON:
    """Stores the items: all, or none if one fails."""

    def key(part: object) -> str | None:
        return None if operation_id is None else f"{operation_id}:{part}"

    replaced = {
        item["document_id"]: number
        for number, item in reversed(list(enumerate(items, 1)))
        if item.get("update_mode") == "replace" and item.get("document_id")
    }
    for document, number in replaced.items():
        filter, request = facts(document_id=document), key(f"replaced:{number}")
        call.bank.delete_where(filter=filter, reason="replaced", idempotency_key=request)
    stored = [_put(call, item, document_tags or (), key(number)) for number, item in enumerate(items, 1)]
    stored_ids = {reply["id"] for reply in stored}
    similar = [memory for reply in stored for memory in reply["similar"] if memory["id"] not in stored_ids]
    superseded = [older for reply in stored for older in reply["superseded"]]
    return {
        "success": True,
        "bank_id": call.bank_id,
        "items_count": len(items),
        "async": False,
        "operation_id": operation_id,
        **filled(similar=similar, superseded=superseded),
    }


@HINDSIGHT.route("DELETE", MEMORIES)
def clear(call: Call, type: str | None = None) -> JSON:
    deleted = call.bank.delete_where(filter=facts(of_types(type)), reason="rest")
    return forgotten_reply(deleted, "Memories forgotten")


@HINDSIGHT.route("POST", f"{MEMORIES}/recall", ignored=("prefer_observations",))
def recall_units(
    call: Call,
    query: Query,
    types: list[str] | None = None,
    budget: Budget = "mid",
    max_tokens: MaxTokens = 4096,
    query_timestamp: Annotated[str | None, "When it is asked: 'last week' counts from it"] = None,
    tags: list[str] | None = None,
    tags_match: TagsMatch = "any",
    min_scores: Annotated[base.Table | None, base.closed({"final": base.schema_of(float)})] = None,
    temporal_window: Annotated[
        base.Table | None, base.closed(dict.fromkeys(("start", "end"), TEXT), ("start", "end"))
    ] = None,
    include: Annotated[base.Table | None, base.closed({part: {} for part in PARTS})] = None,
    include_superseded: base.IncludeSuperseded = False,
    trace: bool | None = None,
) -> JSON:
    window: JSON = "auto"
    if temporal_window is not None:
        window = {"since": temporal_window["start"], "until": temporal_window["end"]}
    filter = facts(of_tags(tags, tags_match), of_types(*types or ()))
    limits = {"limit": 100, "max_tokens": max_tokens, "min_score": (min_scores or {}).get("final")}
    options = {"budget": budget, "asked_at": query_timestamp, "include_superseded": include_superseded}
    matches = call.search(query, filter, window=window, **limits, **options)
    traced = {"total": matches["total"], "degraded": matches.get("degraded")}
    return {
        "results": [{**unit(hit["record"]), "scores": {"final": hit["score"]}} for hit in matches["results"]],
        **{part: {} if _asked(include, part) else None for part in PARTS},
        "trace": traced if trace else None,
        **call.loss(),
    }


@HINDSIGHT.route("GET", f"{MEMORIES}/list")
def list_units(
    call: Call,
    type: str | None = None,
    q: str | None = None,
    document_id: str | None = None,
    tags: list[str] | None = None,
    tags_match: TagsMatch = "any",
    state: Annotated[Literal["valid", "invalidated"], "invalidated: forgotten"] = "valid",
    time_field: Literal["mentioned_at", "occurred_start", "created_at"] = "mentioned_at",
    start_date: str | None = None,
    end_date: str | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    period = {TIMES[time_field]: between(start_date, end_date)}
    contains = {"contains": q} if q else None
    kinds = (of_tags(tags, tags_match), of_types(type))
    filter = facts(*kinds, document_id=document_id, text=contains, **period)
    forgotten = state == "invalidated"
    rows = call.records(filter, offset, limit, order="-timestamp", forgotten=forgotten)
    return {
        "items": [{**row, "entities": ", ".join(row["entities"])} for row in map(unit, rows)],
        "total": call.bank.count(filter=filter, forgotten=forgotten),
        "limit": limit,
        "offset": offset,
        **call.loss(),
    }


@HINDSIGHT.route("GET", f"{MEMORIES}/export")
def export(call: Call) -> JSON:
    return call.bank.export()


@HINDSIGHT.route("POST", f"{MEMORIES}/import")
def import_lines(call: Call, content: Annotated[str, "Lines of an export"]) -> JSON:
    return call.bank.run("import", {"content": content})


@HINDSIGHT.route("GET", MEMORY)
def get_unit(call: Call, memory_id: str) -> JSON:
    return unit(_existing(call, memory_id))


def _existing(call: Call, id: str, *, include_deleted: bool = False) -> JSON:
    record = call.bank.get(id=id, include_deleted=include_deleted)
    if record is None:
        raise NotFound(f"Memory unit '{id[:80]}' not found")
    return record


@HINDSIGHT.route("PATCH", MEMORY, ignored=("resolve_entities",))
def update_unit(
    call: Call,
    memory_id: str,
    text: Annotated[str | None, base.NOT_EMPTY] = None,
    context: str | None = None,
    fact_type: str | None = None,
    tags: list[str] | None = None,
    metadata: base.Metadata = None,
    timestamp: str | None = None,
    mentioned_at: str | None = None,
    occurred_start: str | None = None,
    occurred_end: str | None = None,
    entities: list[str] | None = None,
    state: Annotated[
        Literal["valid", "invalidated"] | None, "invalidated: forget; valid: bring back, replaced or not"
    ] = None,
    reason: str | None = None,
) -> JSON:
    before = _existing(call, memory_id, include_deleted=True)
    if state == "valid" and (before["deleted_at"] is not None or before["superseded_by"] is not None):
        call.bank.restore(id=memory_id)
    if entities is not None:
        metadata = {**(before["metadata"] if metadata is None else metadata), "entities": entities}
    said = mentioned_at or timestamp
    kind = present(text=text, context=context, type=fact_type, tags=tags, metadata=metadata)
    times = present(timestamp=said, event_date=occurred_start, event_end=occurred_end)
    if kind or times:
        call.bank.update(id=memory_id, patch=kind | times)
    if state == "invalidated" and before["deleted_at"] is None:
        call.bank.delete(id=memory_id, reason=reason or "rest")
    return unit(_existing(call, memory_id, include_deleted=True))


@HINDSIGHT.route("DELETE", MEMORY)
def forget(call: Call, memory_id: str) -> JSON:
    return forgotten_reply(call.bank.delete(id=memory_id, reason="rest"), "Memory forgotten")


@HINDSIGHT.route(
    "POST",
    f"{BANK}/reflect",
    ignored=("apply_all_directives", "exclude_mental_models", "exclude_mental_model_ids"),
)
def reflect_on_bank(
    call: Call,
    query: Query,
    budget: Budget = "low",
    context: str | None = None,
    max_tokens: MaxTokens = 4096,
    fact_types: list[str] | None = None,
    tags: list[str] | None = None,
    tags_match: TagsMatch = "any",
    include: Annotated[base.Table | None, base.closed({"facts": {}})] = None,
) -> JSON:
    filter = facts(of_tags(tags, tags_match), of_types(*fact_types or ()))
    answer = call.bank.synthesize(query=query, budget=budget, context=context, filter=filter)
    based_on = None
    if _asked(include, "facts"):
        evidence = call.bank.get_many(ids=[entry["id"] for entry in answer["based_on"]])
        units = [unit(record) for record in evidence if record is not None]
        based_on = {"memories": units, "mental_models": [], "directives": []}
    return {"text": _within(answer["text"], max_tokens), "based_on": based_on, **call.loss()}


def _within(answer: str, tokens: int) -> str:
    """The first sentences of the answer that fit into this many tokens (of four characters); at least one
    sentence.
    """
    ends = [match.start() + 1 for match in re.finditer(r"\]\s", answer)]
    if len(answer) <= 4 * tokens or not ends:
        return answer
    return answer[: max((end for end in ends if end <= 4 * tokens), default=ends[0])]


# -- documents and tags --------------------------------------------------------------------------------------


def _records_of(call: Call, document_id: str) -> list[JSON]:
    """The memories of a document, in the order in which they were stored. Raises `NotFound`."""
    rows = list(call.records(facts(document_id=document_id), order="created"))
    if not rows:
        raise NotFound(f"no document with the id '{document_id[:80]}'")
    return rows


@HINDSIGHT.route("GET", DOCUMENT)
def get_document(call: Call, document_id: str) -> dict[str, JSON]:
    """A document, whose text is that of its memories joined."""
    rows = _records_of(call, document_id)
    original = "\n".join(row["text"] for row in rows)
    return {
        "id": document_id,
        "bank_id": call.bank_id,
        "original_text": original,
        "content_hash": hashlib.sha256(original.encode()).hexdigest(),
        "created_at": iso_utc(rows[0]["created"]),
        "updated_at": iso_utc(max(row["updated"] for row in rows)),
        "memory_unit_count": len(rows),
        "nodes_by_fact_type": dict(Counter(row["type"] or "world" for row in rows)),
        "tags": list(dict.fromkeys(tag for row in rows for tag in row["tags"])),
    }


@HINDSIGHT.route("GET", f"{BANK}/documents")
def list_documents(
    call: Call,
    q: str | None = None,
    tags: list[str] | None = None,
    tags_match: TagsMatch = "any",
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    contains = {"any": [{"document_id": {"contains": q}}, {"text": {"contains": q}}]} if q else None
    filter = facts(of_tags(tags, tags_match), {"document_id": {"exists": True}}, contains)
    groups = call.bank.stats(filter=filter, group_by="document_id")["groups"]
    groups.sort(key=lambda group: (-group["last_created"], group["value"]))
    page = page_of(groups, limit, offset)
    documents = [get_document(call, group["value"]) for group in page["items"]]
    for document in documents:
        document["text_length"] = len(document.pop("original_text"))
    return {**page, "items": documents, "total_is_estimate": False}


@HINDSIGHT.route("PATCH", DOCUMENT)
def tag_document(call: Call, document_id: str, tags: list[str]) -> JSON:
    for record in _records_of(call, document_id):
        call.bank.update(id=record["id"], patch={"tags": tags})
    return {"success": True}


@HINDSIGHT.route("DELETE", DOCUMENT)
def forget_document(call: Call, document_id: str) -> JSON:
    _records_of(call, document_id)
    deleted = call.bank.delete_where(filter=facts(document_id=document_id), reason="rest")
    counts = pick(deleted, "op_id", memory_units_deleted="count")
    return {"success": True, "message": "Document forgotten", "document_id": document_id, **counts}


@HINDSIGHT.route("GET", f"{DOCUMENT}/chunks")
def document_chunks(call: Call, document_id: str, limit: Limit = 100, offset: Offset = 0) -> JSON:
    chunks = [
        {
            **pick(row, chunk_id="id", chunk_text="text"),
            "document_id": document_id,
            "bank_id": call.bank_id,
            "chunk_index": number,
            "created_at": iso_utc(row["created"]),
        }
        for number, row in enumerate(_records_of(call, document_id))
    ]
    return page_of(chunks, limit, offset)


@HINDSIGHT.route("GET", f"{BANK}/tags")
def list_tags(
    call: Call,
    q: Annotated[str | None, {"maxLength": 200}, "A tag; * stands for anything"] = None,
    source: Literal["memories"] = "memories",
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    """The tags of a bank's memories, most frequent first."""
    pattern = re.sub(r"[?\[]", r"[\g<0>]", (q or "*").lower())
    groups = call.bank.stats(filter=facts(), group_by="tags")["groups"]
    matching = [group for group in groups if fnmatch.fnmatchcase(group["value"].lower(), pattern)]
    return page_of([pick(group, "count", tag="value") for group in matching], limit, offset)


@HINDSIGHT.route("GET", f"{BANK}/stats", ignored=("refresh",))
def bank_stats(call: Call) -> JSON:
    stats = call.bank.stats(filter=facts(), group_by="type")
    documents = call.bank.stats(filter=facts({"document_id": {"exists": True}}), group_by="document_id")
    by_type: Counter[str] = Counter()
    for group in stats["groups"]:
        by_type[group["value"] or "world"] += group["count"]
    unused = ("links_by_link_type", "links_by_fact_type", "links_breakdown", "operations_by_status")
    return {
        "bank_id": call.bank_id,
        "total_nodes": stats["count"],
        "total_documents": len(documents["groups"]),
        "nodes_by_fact_type": dict(by_type),
        "total_observations": by_type["observation"],
        "last_memory_write_at": iso(stats["last_created"]),
        **dict.fromkeys(("total_links", "pending_operations", "failed_operations"), 0),
        **{name: {} for name in unused},
    }


@HINDSIGHT.route("GET", "/version")
def version(call: Call) -> JSON:
    """The version and the features of this server, which clients ask for before they use a feature."""
    return {"api_version": __version__, "features": FEATURES}
