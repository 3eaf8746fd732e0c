"""Hindsight's own REST, as its clients call it, below `/v1/default/banks/{bank_id}`."""

import fnmatch
import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import orjson

from ctx import __version__
from ctx.clock import iso_utc
from ctx.errors import BadRequest, NotFound
from ctx.memory.dialects.base import (
    Call,
    Flag,
    Metadata,
    Table,
    Text,
    Texts,
    choice,
    closed,
    filled,
    iso,
    number,
    pick,
    present,
    records,
    required_text,
    rule,
    table,
    text,
    texts,
    whole,
)
from ctx.memory.dialects.hindsight import (
    HINDSIGHT,
    TRAITS,
    Trait,
    between,
    facts,
    named,
    of_tags,
    of_types,
    same_id,
)
from ctx.types import JSON

__all__ = ["HINDSIGHT"]  # with the routes below

BANK = "/v1/default/banks/{bank_id}"
MEMORIES = f"{BANK}/memories"
MEMORY = f"{MEMORIES}/{{memory_id}}"
DOCUMENT = f"{BANK}/documents/{{document_id}}"
TIMES = {"mentioned_at": "timestamp", "occurred_start": "event_date", "created_at": "created"}
CONFIG = {"reflect_mission": "mission", **{f"disposition_{trait}": trait for trait in TRAITS}}
DEFAULTS = {name: "" if name == "reflect_mission" else 3 for name in CONFIG}

Id = Annotated[str, text()]
Query = Annotated[str, required_text()]
Budget = Annotated[str, choice("low", "mid", "high")]
TagsMatch = Annotated[str, choice("any", "all", "any_strict", "all_strict", "exact")]
TimeField = Annotated[str, choice(*TIMES)]
Limit = Annotated[int, whole(1, 1000)]
Offset = Annotated[int, whole(0, 100_000)]
MaxTokens = Annotated[int, whole(1)]
PARTS = ("entities", "chunks", "source_facts")  # which ctx does not keep beside a memory


def unit(record: JSON) -> dict[str, JSON]:
    """A memory as Hindsight's clients read it: the values of its metadata are texts."""
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


def _forgotten(reply: JSON, message: str) -> dict[str, JSON]:
    return {"success": True, "message": message, **pick(reply, "op_id", deleted_count="count")}


def _page(rows: Sequence[JSON], limit: int, offset: int) -> dict[str, JSON]:
    return {"items": rows[offset : offset + limit], "total": len(rows), "limit": limit, "offset": offset}


def _asked(include: Mapping[str, JSON] | None, part: str) -> bool:
    """Whether a client asks for a part, by `true` or by an object of options, which may be empty."""
    return (include or {}).get(part) not in (None, False)


# -- memories ------------------------------------------------------------------------------------------------


ITEM = closed(
    "",
    {
        "content": {"type": ["string", "array"], "minLength": 1, "minItems": 1, "items": {"type": "object"}},
        "timestamp": text("When it was said; 'unset': now"),
        "context": text(),
        "metadata": table(),
        "document_id": text(),
        "tags": texts(),
        "entities": rule("array", items=table(required=("text",))),
        "resolve_entities": {},
        "supersedes": texts(),
        "update_mode": choice(
            "append", "replace", description="replace: forget the document's memories first"
        ),
    },
    ("content",),
)


def _put(call: Call, item: Table, tags: Sequence[str], key: str | None) -> JSON:
    """Stores one item of a retain."""
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
    items: Annotated[list[Table], rule("array", minItems=1, items=ITEM)],
    document_tags: Texts = None,
    operation_id: Annotated[
        str | None, required_text("A second request with this id stores nothing", maxLength=180)
    ] = None,
) -> JSON:
    """Stores the items, all or none."""

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
        **filled(similar=named(similar, same_id), superseded=named(superseded, same_id)),
    }


@HINDSIGHT.route("DELETE", MEMORIES)
def clear(call: Call, type: Text = None) -> JSON:
    deleted = call.bank.delete_where(filter=facts(of_types([type])), reason="rest")
    return _forgotten(deleted, "Memories forgotten")


@HINDSIGHT.route("POST", f"{MEMORIES}/recall", ignored=("prefer_observations",))
def recall_units(
    call: Call,
    query: Query,
    types: Texts = None,
    budget: Budget = "mid",
    max_tokens: MaxTokens = 4096,
    query_timestamp: Annotated[str | None, text("When it is asked: 'last week' counts from it")] = None,
    tags: Texts = None,
    tags_match: TagsMatch = "any",
    min_scores: Annotated[Table | None, closed("", {"final": number()})] = None,
    temporal_window: Annotated[
        Table | None, closed("", {"start": text(), "end": text()}, ("start", "end"))
    ] = None,
    include: Annotated[Table | None, closed("", {part: {} for part in PARTS})] = None,
    trace: Flag = None,
) -> JSON:
    window: JSON = "auto"
    if temporal_window is not None:
        window = {"since": temporal_window["start"], "until": temporal_window["end"]}
    matches = call.bank.search(
        query=query,
        limit=100,
        max_tokens=max_tokens,
        budget=budget,
        filter=facts(of_tags(tags, tags_match), of_types(types)),
        window=window,
        asked_at=query_timestamp,
        min_score=(min_scores or {}).get("final"),
        touch=True,
    )
    traced = {"total": matches["total"], "degraded": matches.get("degraded")}
    return {
        "results": [{**unit(hit["record"]), "scores": {"final": hit["score"]}} for hit in matches["results"]],
        **{part: {} if _asked(include, part) else None for part in PARTS},
        "trace": traced if trace else None,
    }


@HINDSIGHT.route("GET", f"{MEMORIES}/list")
def list_units(
    call: Call,
    type: Text = None,
    q: Text = None,
    document_id: Text = None,
    tags: Texts = None,
    tags_match: TagsMatch = "any",
    state: Annotated[str, choice("valid", "invalidated", description="invalidated: forgotten")] = "valid",
    time_field: TimeField = "mentioned_at",
    start_date: Text = None,
    end_date: Text = None,
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
    }


@HINDSIGHT.route("GET", f"{MEMORIES}/export")
def export(call: Call) -> JSON:
    return call.bank.export()


@HINDSIGHT.route("POST", f"{MEMORIES}/import")
def import_lines(call: Call, content: Annotated[str, text("Lines of an export")]) -> JSON:
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
    text: Annotated[str | None, required_text()] = None,
    context: Text = None,
    fact_type: Text = None,
    tags: Texts = None,
    metadata: Metadata = None,
    timestamp: Text = None,
    mentioned_at: Text = None,
    occurred_start: Text = None,
    occurred_end: Text = None,
    entities: Texts = None,
    state: Annotated[
        str | None, choice("valid", "invalidated", description="invalidated: forget; valid: bring back")
    ] = None,
    reason: Text = None,
) -> JSON:
    before = _existing(call, memory_id, include_deleted=True)
    if state == "valid" and before["deleted_at"] is not None:
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
    return _forgotten(call.bank.delete(id=memory_id, reason="rest"), "Memory forgotten")


@HINDSIGHT.route(
    "POST",
    f"{BANK}/reflect",
    ignored=("apply_all_directives", "exclude_mental_models", "exclude_mental_model_ids"),
)
def reflect_on_bank(
    call: Call,
    query: Query,
    budget: Budget = "low",
    context: Text = None,
    max_tokens: MaxTokens = 4096,
    fact_types: Texts = None,
    tags: Texts = None,
    tags_match: TagsMatch = "any",
    include: Annotated[Table | None, closed("", {"facts": {}})] = None,
) -> JSON:
    filter = facts(of_tags(tags, tags_match), of_types(fact_types))
    answer = call.bank.synthesize(query=query, budget=budget, context=context, filter=filter)
    based_on = None
    if _asked(include, "facts"):
        evidence = call.bank.get_many(ids=[entry["id"] for entry in answer["based_on"]])
        units = [unit(record) for record in evidence if record is not None]
        based_on = {"memories": units, "mental_models": [], "directives": []}
    return {"text": _within(answer["text"], max_tokens), "based_on": based_on}


def _within(answer: str, tokens: int) -> str:
    """As many whole sentences as so many tokens of four characters allow, at least one."""
    ends = [match.start() + 1 for match in re.finditer(r"\]\s", answer)]
    if len(answer) <= 4 * tokens or not ends:
        return answer
    return answer[: max((end for end in ends if end <= 4 * tokens), default=ends[0])]


# -- documents and tags --------------------------------------------------------------------------------------


def _records_of(call: Call, document_id: str) -> list[JSON]:
    """A document's memories in the order in which they were retained. Raises `NotFound`."""
    rows = list(records(call, facts(document_id=document_id), order="created"))
    if not rows:
        raise NotFound(f"no document with the id '{document_id[:80]}'")
    return rows


@HINDSIGHT.route("GET", DOCUMENT)
def get_document(call: Call, document_id: Id) -> dict[str, JSON]:
    """A document: the text of its memories together."""
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
    q: Text = None,
    tags: Texts = None,
    tags_match: TagsMatch = "any",
    time_field: TimeField = "created_at",
    start_date: Text = None,
    end_date: Text = None,
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    contains = {"any": [{"document_id": {"contains": q}}, {"text": {"contains": q}}]} if q else None
    span = {TIMES[time_field]: between(start_date, end_date)}
    filter = facts(of_tags(tags, tags_match), {"document_id": {"exists": True}}, contains, **span)
    groups = call.bank.stats(filter=filter, group_by="document_id")["groups"]
    groups.sort(key=lambda group: (-group["last_created"], group["value"]))
    page = _page(groups, limit, offset)
    documents = [get_document(call, group["value"]) for group in page["items"]]
    for document in documents:
        document["text_length"] = len(document.pop("original_text"))
    return {**page, "items": documents, "total_is_estimate": False}


@HINDSIGHT.route("PATCH", DOCUMENT)
def tag_document(call: Call, document_id: Id, tags: Annotated[list[str], texts()]) -> JSON:
    for record in _records_of(call, document_id):
        call.bank.update(id=record["id"], patch={"tags": tags})
    return {"success": True}


@HINDSIGHT.route("DELETE", DOCUMENT)
def forget_document(call: Call, document_id: Id) -> JSON:
    _records_of(call, document_id)
    deleted = call.bank.delete_where(filter=facts(document_id=document_id), reason="rest")
    counts = pick(deleted, "op_id", memory_units_deleted="count")
    return {"success": True, "message": "Document forgotten", "document_id": document_id, **counts}


@HINDSIGHT.route("GET", f"{DOCUMENT}/chunks")
def document_chunks(call: Call, document_id: Id, limit: Limit = 100, offset: Offset = 0) -> JSON:
    chunks = [
        {
            **pick(row, chunk_id="id", chunk_text="text"),
            "document_id": document_id,
            "bank_id": call.bank_id,
            "chunk_index": place,
            "created_at": iso_utc(row["created"]),
        }
        for place, row in enumerate(_records_of(call, document_id))
    ]
    return _page(chunks, limit, offset)


@HINDSIGHT.route("GET", f"{BANK}/tags")
def list_tags(
    call: Call,
    q: Annotated[str | None, text("A tag; * stands for anything", maxLength=200)] = None,
    source: Annotated[str, choice("memories")] = "memories",
    limit: Limit = 100,
    offset: Offset = 0,
) -> JSON:
    """The tags of a bank's memories, the most frequent first."""
    pattern = re.sub(r"[?\[]", r"[\g<0>]", (q or "*").lower())
    groups = call.bank.stats(filter=facts(), group_by="tags")["groups"]
    tags = [
        pick(group, "count", tag="value")
        for group in groups
        if fnmatch.fnmatchcase(group["value"].lower(), pattern)
    ]
    return _page(tags, limit, offset)


# -- banks ---------------------------------------------------------------------------------------------------


@HINDSIGHT.route("PUT", BANK)
@HINDSIGHT.route("PATCH", BANK)
def change_bank(
    call: Call,
    name: Text = None,
    mission: Text = None,
    reflect_mission: Text = None,
    background: Text = None,
    disposition: Annotated[Table | None, closed("", dict.fromkeys(TRAITS, whole(1, 5)))] = None,
    disposition_skepticism: Trait = None,
    disposition_literalism: Trait = None,
    disposition_empathy: Trait = None,
) -> JSON:
    given = (disposition_skepticism, disposition_literalism, disposition_empathy)
    traits = {**(disposition or {}), **present(**dict(zip(TRAITS, given, strict=True)))}
    changes = present(name=name, mission=reflect_mission or mission or background)
    call.bank.configure(config={**call.bank.config(), **changes, **traits})
    return bank_profile(call)


@HINDSIGHT.route("GET", f"{BANK}/profile")
def bank_profile(call: Call) -> JSON:
    config = call.bank.config()
    return {
        "bank_id": call.bank_id,
        "name": config.get("name") or call.bank_id,
        "mission": config.get("mission") or "",
        "disposition": {trait: config.get(trait, 3) for trait in TRAITS},
    }


@HINDSIGHT.route("DELETE", BANK)
def delete_bank(call: Call) -> JSON:
    """Forgets everything in the bank and its configuration; the memories can be brought back."""
    deleted = call.bank.delete_where(filter={"id": {"exists": True}}, reason="rest", anew=True)
    call.bank.configure(config={})
    return _forgotten(deleted, "Bank forgotten")


@HINDSIGHT.route("GET", f"{BANK}/config")
def bank_config(call: Call) -> JSON:
    """The configuration that applies, and what the bank itself sets."""
    kept = call.bank.config()
    overrides = {name: kept[key] for name, key in CONFIG.items() if kept.get(key) is not None}
    return {"bank_id": call.bank_id, "config": DEFAULTS | overrides, "overrides": overrides}


SETTABLE = {name: text() if name == "reflect_mission" else whole(1, 5) for name in CONFIG}


@HINDSIGHT.route("PATCH", f"{BANK}/config")
def change_config(call: Call, updates: Annotated[Table | None, closed("", SETTABLE)] = None) -> JSON:
    changes = {CONFIG[name]: value for name, value in (updates or {}).items()}
    call.bank.configure(config={**call.bank.config(), **changes})
    return bank_config(call)


@HINDSIGHT.route("DELETE", f"{BANK}/config")
def reset_config(call: Call) -> JSON:
    call.bank.configure(config={})
    return bank_config(call)


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
    """What Hindsight's clients ask before they use what a server may lack."""
    there = ("mcp", "bank_config_api", "store_document_text")
    absent = ("observations", "worker", "bank_llm_health", "file_upload_api", "document_export_api")
    absent_too = ("document_import_api", "audit_log", "llm_trace")
    features = dict.fromkeys(there, True) | dict.fromkeys((*absent, *absent_too), False)
    return {"api_version": __version__, "features": features}
