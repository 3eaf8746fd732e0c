"""Hindsight's REST API for memories, below `/v1/default/banks/{bank_id}`."""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import orjson

from ctx.errors import BadRequest, NotFound
from ctx.memory.dialects.base import (
    NOT_EMPTY,
    Call,
    IncludeSuperseded,
    Metadata,
    Table,
    closed,
    filled,
    iso,
    loss,
    pick,
    present,
    records,
    schema_of,
    search,
    span,
)
from ctx.memory.dialects.hindsight import HINDSIGHT, between, facts, named, of_tags, of_types, same_id
from ctx.models import JSON

__all__ = ["HINDSIGHT"]  # with the routes below

BANK = "/v1/default/banks/{bank_id}"
MEMORIES = f"{BANK}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
DOCUMENT = f"{BANK}/documents/{{document_id}}"
TIMES = {"mentioned_at": "timestamp", "occurred_start": "event_date", "created_at": "created"}

Id = str
Query = Annotated[str, NOT_EMPTY]
Budget = Literal["low", "mid", "high"]
TagsMatch = Literal["any", "all", "any_strict", "all_strict", "exact"]
TimeField = Literal["mentioned_at", "occurred_start", "created_at"]
Limit = Annotated[int, span(1, 1000)]
Offset = Annotated[int, span(0, 100_000)]
MaxTokens = Annotated[int, span(1)]
PARTS = ("entities", "chunks", "source_facts")  # parts of a reply, which ctx leaves empty


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


def forgotten_reply(reply: JSON, message: str) -> dict[str, JSON]:
    return {"success": True, "message": message, **pick(reply, "op_id", deleted_count="count")}


def page_of(rows: Sequence[JSON], limit: int, offset: int) -> dict[str, JSON]:
    return {"items": rows[offset : offset + limit], "total": len(rows), "limit": limit, "offset": offset}


def _asked(include: Mapping[str, JSON] | None, part: str) -> bool:
    """Whether a client asks for a part of the reply, with `true` or with a table of options, which may be
    empty.
    """
    return (include or {}).get(part) not in (None, False)


# -- memories ------------------------------------------------------------------------------------------------


TEXT, TEXTS, OBJECT = schema_of(str), schema_of(list[str]), schema_of(Table)
ITEM = closed(
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


def _put(call: Call, item: Table, tags: Sequence[str], key: str | None) -> JSON:
    """Stores one item of a `retain` request."""
    metadata, timestamp = item.get("metadata"), item.get("timestamp")
    if item.get("entities"):
        metadata = {**(metadata or {}), "entities": [entity["text"] for entity in item["entities"]]}
    fields = {name: item.get(name) for name in ("context", "document_id", "supersedes")}
    return call.bank.put(
        text=_text_of(item["content"]),
        type="world",
        timestamp=None if timestamp == "unset" else timestamp,
        metadata=metadata,
        tags=[*(item.get("tags") or ()), *tags],
        idempotency_key=key,
        **fields,
    )


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
    items: Annotated[list[Table], {"minItems": 1, "items": ITEM}],
    document_tags: list[str] | None = None,
    operation_id: Annotated[
        str | None, NOT_EMPTY, {"maxLength": 180}, "A second request with this id stores nothing"
    ] = None,
) -> JSON:
    """Stores the items: all, or none if one fails."""

    def key(part: object) -> str | None:
        return None if operation_id is None else f"{operation_id}:{part}"

    replaced = {
        item["document_id"]: place
        for place, item in reversed(list(enumerate(items, 1)))
        if item.get("update_mode") == "replace" and item.get("document_id")
    }
    for document, place in replaced.items():
        filter, request = facts(document_id=document), key(f"replaced:{place}")
        call.bank.delete_where(filter=filter, reason="replaced", idempotency_key=request)
    stored = [_put(call, item, document_tags or (), key(place)) for place, item in enumerate(items, 1)]
    own = {reply["id"] for reply in stored}
    similar = [memory for reply in stored for memory in reply["similar"] if memory["id"] not in own]
    superseded = [older for reply in stored for older in reply["superseded"]]
    return {
        "success": True,
        "bank_id": call.bank_id,
        "items_count": len(items),
        "async": False,
        "operation_id": operation_id,
        **filled(
            similar=named(similar, same_id),
            superseded=named(superseded, same_id),
        ),
    }


@HINDSIGHT.route("DELETE", MEMORIES)
def clear(call: Call, type: str | None = None) -> JSON:
    deleted = call.bank.delete_where(filter=facts(of_types([type])), reason="rest")
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
    min_scores: Annotated[Table | None, closed({"final": schema_of(float)})] = None,
    temporal_window: Annotated[
        Table | None, closed(dict.fromkeys(("start", "end"), TEXT), ("start", "end"))
    ] = None,
    include: Annotated[Table | None, closed({part: {} for part in PARTS})] = None,
    include_superseded: IncludeSuperseded = False,
    trace: bool | None = None,
) -> JSON:
    window: JSON = "auto"
    if temporal_window is not None:
        window = {"since": temporal_window["start"], "until": temporal_window["end"]}
    limits = {"limit": 100, "max_tokens": max_tokens, "budget": budget}
    matches = search(
        call,
        query,
        facts(of_tags(tags, tags_match), of_types(types)),
        window=window,
        asked_at=query_timestamp,
        include_superseded=include_superseded,
        min_score=(min_scores or {}).get("final"),
        **limits,
    )
    traced = {"total": matches["total"], "degraded": matches.get("degraded")}
    return {
        "results": [{**unit(hit["record"]), "scores": {"final": hit["score"]}} for hit in matches["results"]],
        **{part: {} if _asked(include, part) else None for part in PARTS},
        "trace": traced if trace else None,
        **loss(call),
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
    time_field: TimeField = "mentioned_at",
    start_date: str | None = None,
    end_date: str | None = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    span = {TIMES[time_field]: between(start_date, end_date)}
    contains = {"contains": q} if q else None
    kinds = (of_tags(tags, tags_match), of_types([type]))
    filter = facts(*kinds, document_id=document_id, text=contains, **span)
    forgotten = state == "invalidated"
    rows = records(call, filter, offset, limit, order="-timestamp", forgotten=forgotten)
    return {
        "items": [{**row, "entities": ", ".join(row["entities"])} for row in map(unit, rows)],
        "total": call.bank.count(filter=filter, forgotten=forgotten),
        "limit": limit,
        "offset": offset,
        **loss(call),
    }


@HINDSIGHT.route("GET", f"{MEMORIES}/export")
def export(call: Call) -> JSON:
    return call.bank.export()


@HINDSIGHT.route("POST", f"{MEMORIES}/import")
def import_lines(call: Call, content: Annotated[str, "Lines of an export"]) -> JSON:
    return call.bank.run("import", {"content": content})


@HINDSIGHT.route("GET", MEMORY)
def get_unit(call: Call, memory_id: Id) -> JSON:
    return unit(_existing(call, memory_id))


def _existing(call: Call, id: str, *, include_deleted: bool = False) -> JSON:
    record = call.bank.get(id=id, include_deleted=include_deleted)
    if record is None:
        raise NotFound(f"Memory unit '{id[:80]}' not found")
    return record


@HINDSIGHT.route("PATCH", MEMORY, ignored=("resolve_entities",))
def update_unit(
    call: Call,
    memory_id: Id,
    text: Annotated[str | None, NOT_EMPTY] = None,
    context: str | None = None,
    fact_type: str | None = None,
    tags: list[str] | None = None,
    metadata: Metadata = None,
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
def forget(call: Call, memory_id: Id) -> JSON:
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
    include: Annotated[Table | None, closed({"facts": {}})] = None,
) -> JSON:
    filter = facts(of_tags(tags, tags_match), of_types(fact_types))
    answer = call.bank.synthesize(query=query, budget=budget, context=context, filter=filter)
    based_on = None
    if _asked(include, "facts"):
        evidence = call.bank.get_many(ids=[entry["id"] for entry in answer["based_on"]])
        units = [unit(record) for record in evidence if record is not None]
        based_on = {"memories": units, "mental_models": [], "directives": []}
    return {"text": _within(answer["text"], max_tokens), "based_on": based_on, **loss(call)}


def _within(answer: str, tokens: int) -> str:
    """The first sentences of the answer that fit into this many tokens (of four characters); at least one
    sentence.
    """
    ends = [match.start() + 1 for match in re.finditer(r"\]\s", answer)]
    if len(answer) <= 4 * tokens or not ends:
        return answer
    return answer[: max((end for end in ends if end <= 4 * tokens), default=ends[0])]
