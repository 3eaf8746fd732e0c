"""Sekha: its tools. Memories are conversations with a label, a folder and an importance. sekha_rest.py has
its REST API.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import orjson

from ctx.clock import DAY_MS, iso_utc, now_ms
from ctx.errors import BadRequest, NotFound
from ctx.memory.bank.base import MAX_LIMIT
from ctx.memory.dialects.base import (
    ADDS,
    NOT_EMPTY,
    AsOf,
    Call,
    Dialect,
    IncludeSuperseded,
    RouteSpec,
    Table,
    Undo,
    filled,
    loss,
    pick,
    present,
    records,
    schema_of,
    search,
    span,
    supersede,
    table,
)
from ctx.models import JSON

INSTRUCTIONS = """\
You can store whole conversations (`memory_store`) and find what was said in earlier ones
(`memory_search`)."""

SEKHA = Dialect(
    name="sekha",
    description="Sekha: conversations with labels, folders and importance; search, prune, export",
    profiles={"default": INSTRUCTIONS, "seed": INSTRUCTIONS},
    own_bank=True,
    key_required=True,
    enveloped=True,
    environ={"api_key": ("SEKHA_API_KEY", "CONTROLLER_API_KEY"), "url": ("SEKHA_API_URL", "CONTROLLER_URL")},
    remote_path="/mcp/tools/{tool}",
)
SEKHA.routes += [
    RouteSpec("POST", "/mcp/tools/{tool}"),
    RouteSpec("GET", "/api/v1/stats", tool="memory_stats"),
]

PINNED = 10  # conversations of this importance are never suggested for pruning
PREVIEW_CHARS = 100  # of the beginning of a conversation
MAX_IDLE_DAYS = 10_000_000
MAX_EXPORTED = 1000  # conversations in one export
MAX_ASSEMBLED = 100  # messages to consider for a context

UUID = {
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "description": "The conversation's id",
}
Id = Annotated[str, UUID]
LABEL = {"minLength": 1, "maxLength": 500, "description": "Human-readable conversation label"}
Label = Annotated[str | None, LABEL]
Folder = Annotated[str | None, {"pattern": "^/"}, "Folder path"]
FolderToStore = Annotated[str, {"pattern": "^/"}, "Folder path for organization"]
Importance = Annotated[float | None, span(1, 10), "1-10 scale for pruning decisions; 10 is never suggested"]
Message = Annotated[
    Table,
    table(
        {
            "role": schema_of(Literal["user", "assistant", "system", "tool"]),
            "content": schema_of(Annotated[str, NOT_EMPTY]),
        },
        ("role", "content"),
    ),
]
Messages = Annotated[list[Message], {"minItems": 1}, "The messages, in order"]
Replaces = Annotated[list[str] | None, "Ids of conversations that this one makes untrue and replaces"]
Query = Annotated[str, NOT_EMPTY, "Natural language search query"]
Filters = Annotated[
    Table | None, "folder (with all below it), label, status, role, after, before, importance_min"
]
Limit = Annotated[int, span(1, 1000), "Max results to return"]
Offset = Annotated[int, span(0), "Pagination offset"]
Days = Annotated[int, span(0), "Consider conversations older than X days"]
LeastImportance = Annotated[float, span(0, 10), "Consider conversations with score <= X"]


def succeeded(data: JSON) -> JSON:
    return {"success": True, "data": data, "error": None}


def stamp(ms: int) -> str:
    """A time in the format of Sekha: ISO 8601 in UTC to the second, without a zone."""
    return iso_utc(ms)[:19]


def moment(record: JSON) -> int:
    """When a message was said, in milliseconds. Older stores have this time in `event_date`, with no
    `event_end`.
    """
    dated = record["event_date"] is not None and record["event_end"] is None
    return int(record["event_date"] if dated else record["timestamp"])


def conversation_of(call: Call, id: str) -> JSON:
    """The conversation with this id, which is marked as read. Raises `NotFound`."""
    record = call.bank.get(id=id.lower())
    if record is None or record["kind"] != "conversation":
        raise NotFound(f"Conversation not found: {id.lower()}")
    call.bank.touch(ids=[record["id"]])
    return record


def messages_of(call: Call, id: str) -> tuple[list[JSON], int]:
    """The messages of a conversation as replies show them, and their number of words."""
    items = call.bank.children(id=id)["items"]
    messages = [{**pick(item, "role", content="text"), "timestamp": stamp(moment(item))} for item in items]
    return messages, sum(len(item["text"].split()) for item in items)


def described(record: JSON) -> dict[str, JSON]:
    fields = pick(record, "label", "folder", "status", importance_score="importance")
    return {**fields, "created_at": stamp(record["created"]), "updated_at": stamp(record["updated"])}


def chosen(label: str | None, folder: str | None, **more: JSON) -> dict[str, JSON]:
    """The filter for conversations with this label, and in this folder or below it."""
    below = None if folder is None else {"under": folder}
    return {"kind": "conversation", **present(label=label, folder=below, **more)}


def store(
    call: Call,
    label: str,
    messages: Sequence[Table],
    folder: str,
    importance: float | None,
    supersedes: list[str] | None,
    metadata: Table | None = None,
) -> JSON:
    if "/../" in folder + "/":
        raise BadRequest("folder must not contain '..'")
    items = [
        {
            **pick(message, "role", text="content"),
            "metadata": message.get("metadata") or {},
            **present(timestamp=message.get("timestamp")),
        }
        for message in messages
    ]
    container = present(label=label, folder=folder, importance=importance, status="active", metadata=metadata)
    return call.bank.put_many(items=items, container=container, supersedes=supersedes)


def related(stored: JSON) -> dict[str, JSON]:
    """Fields of a reply to a write: the conversations it replaced, and those with a similar message."""
    similar = [
        pick(entry, "label", "said", "score", conversation_id="id", content="text")
        for entry in stored["similar"]
    ]
    op_id = stored["op_id"] if stored["superseded"] else None
    return filled(superseded=replaced(stored["superseded"]), similar=similar, op_id=op_id)


def replaced(conversations: Sequence[JSON]) -> list[JSON]:
    return [pick(older, "said", conversation_id="id", label="text") for older in conversations]


def messages_filter(filters: Mapping[str, JSON] | None, **conditions: JSON) -> dict[str, JSON]:
    """The filter for messages that match Sekha's `filters`. Raises `BadRequest` for an unknown filter."""
    values = present(**(filters or {}))
    span = present(gte=values.pop("after", None), lte=values.pop("before", None))
    filter: dict[str, JSON] = {"kind": "message", **conditions}
    if span:
        dated = {"event_date": span, "event_end": {"exists": False}}  # as in older stores
        plain = {"any": [{"event_date": {"exists": False}}, {"event_end": {"exists": True}}]}
        filter["any"] = [dated, {"timestamp": span, **plain}]
    for name, value in values.items():
        if name in ("label", "status"):
            filter[f"parent.{name}"] = value
        elif name == "role":
            filter["role"] = value
        elif name == "folder":
            filter["parent.folder"] = {"under": value}
        elif name == "importance_min":
            filter["parent.importance"] = {"gte": value}
        else:
            known = "folder, label, status, role, after, before, importance_min"
            raise BadRequest(f"unknown filter '{name[:80]}' (known: {known})")
    return filter


def result(hit: JSON) -> dict[str, JSON]:
    """A found message as replies show it."""
    record, conversation = hit["record"], hit.get("container") or {}
    return {
        **pick(record, "metadata", "said", conversation_id="parent", message_id="id", content="text"),
        **dict.fromkeys(("score", "similarity"), hit["score"]),
        "label": conversation.get("label"),
        "folder": conversation.get("folder") or "/",
        "timestamp": stamp(moment(record)),
        **filled(newer=hit.get("newer"), superseded_by=record["superseded_by"]),
    }


def prunable(call: Call, days: int, importance: float) -> tuple[list[JSON], int]:
    """Old, unimportant conversations, those not read for longest first, and the number of tokens that
    archiving them would save.
    """
    filter = {
        "kind": "conversation",
        "status": "active",
        "last_accessed": {"lte": now_ms() - min(days, MAX_IDLE_DAYS) * DAY_MS},
        "importance": {"lte": importance, "lt": PINNED},
    }
    rows = list(records(call, filter, order="last_accessed"))
    contents: dict[str, JSON] = {}
    for start in range(0, len(rows), MAX_LIMIT):
        contents |= call.bank.contents(ids=[row["id"] for row in rows[start : start + MAX_LIMIT]])
    suggestions = []
    for row in rows:
        held = contents.get(row["id"], {"count": 0, "characters": 0, "first": ""})
        suggestions.append(
            {
                **pick(row, conversation_id="id", conversation_label="label"),
                "last_accessed": stamp(row["last_accessed"]),
                "message_count": held["count"],
                "token_estimate": math.ceil(held["characters"] / 4),
                "importance_score": float(row["importance"]),
                "preview": held["first"][:PREVIEW_CHARS],
                "recommendation": "archive",
            }
        )
    return suggestions, sum(suggestion["token_estimate"] for suggestion in suggestions)


# -- tools ---------------------------------------------------------------------------------------------------


@SEKHA.tool(ADDS._replace(idempotent=False))
def memory_store(
    call: Call,
    label: Annotated[str, LABEL],
    messages: Messages,
    folder: FolderToStore = "/",
    importance_score: Importance = 5,
    supersedes: Replaces = None,
) -> JSON:
    """Store a conversation in memory with a label and a folder"""
    stored = store(call, label, messages, folder, importance_score, supersedes)
    hint = call.pack.hint("memory_supersede") if stored["similar"] else None
    return succeeded(
        {
            "conversation_id": stored["id"],
            **pick(call.bank.get(id=stored["id"]), "id", "label", "folder"),
            "message_count": len(messages),
            **related(stored),
            **present(hint=hint),
        }
    )


@SEKHA.tool()
def memory_search(
    call: Call,
    query: Query,
    filters: Filters = None,
    filter_labels: Annotated[list[str] | None, "Only conversations with one of these labels"] = None,
    include_superseded: IncludeSuperseded = False,
    as_of: AsOf = None,
    limit: Limit = 10,
    offset: Offset = 0,
) -> JSON:
    """Search stored conversations by meaning and words"""
    labelled = {"all": [{"parent.label": {"in": filter_labels}}]} if filter_labels else {}
    page = {"limit": limit, "offset": offset}
    valid = {"as_of": as_of, "include_superseded": include_superseded}
    matches = search(call, query, messages_filter(filters, **labelled), **page, **valid)
    results = [result(hit) for hit in matches["results"]]
    counts = {"total_results": matches["total"], "limit": limit}
    return succeeded({"query": query, **counts, "results": results, **loss(call)})


@SEKHA.tool(ADDS, profiles=("default",))
def memory_supersede(
    call: Call,
    old_ids: Annotated[list[Id] | None, {"minItems": 1}, "The conversations that are replaced"] = None,
    new_id: Annotated[str | None, UUID] = None,
    undo: Undo = None,
) -> JSON:
    """Replace conversations that are no longer true by another stored conversation. They are kept; `undo`
    with the op_id of the reply brings them back
    """
    if undo:
        return succeeded({"restored": call.bank.undo(op_id=undo)["count"]})
    reply = supersede(call, old_ids, new_id)
    return succeeded({"superseded": replaced(reply["superseded"]), "op_id": reply["op_id"]})


@SEKHA.tool(ADDS)
def memory_update(
    call: Call,
    conversation_id: Id,
    label: Label = None,
    folder: Folder = None,
    status: Literal["active", "archived"] | None = None,
    importance_score: Importance = None,
) -> JSON:
    """Update a conversation's label, folder, status or importance"""
    id = conversation_of(call, conversation_id)["id"]
    changes = present(label=label, folder=folder, status=status, importance=importance_score)
    names = {"label": "label/folder", "folder": "label/folder", "importance": "importance_score"}
    fields = list(dict.fromkeys(names.get(name, name) for name in changes))
    if changes:
        call.bank.update(id=id, patch=changes)
    message = "Conversation updated successfully" if changes else "No fields changed"
    return succeeded({"conversation_id": id, "updated_fields": fields, "message": message})


@SEKHA.tool()
def memory_prune(call: Call, threshold_days: Days = 30, importance_threshold: LeastImportance = 5.0) -> JSON:
    """Suggest old, unimportant conversations to archive"""
    suggestions, savings = prunable(call, threshold_days, importance_threshold)
    return succeeded(
        {
            "threshold_days": threshold_days,
            "importance_threshold": importance_threshold,
            "total_suggestions": len(suggestions),
            "estimated_token_savings": savings,
            "suggestions": suggestions,
        }
    )


def _counted(call: Call, id: str) -> tuple[JSON, list[JSON], dict[str, JSON]]:
    """A conversation, its messages, and its details with word and session counts."""
    record = conversation_of(call, id)
    messages, words = messages_of(call, record["id"])
    sessions = len(call.bank.sessions(id=record["id"]))
    return (record, messages, {**described(record), "word_count": words, "session_count": sessions})


@SEKHA.tool()
def memory_get_context(call: Call, conversation_id: Id) -> JSON:
    """Retrieve the full context of a conversation: its metadata and its messages"""
    record, messages, details = _counted(call, conversation_id)
    return succeeded({"conversation_id": record["id"], **details, "messages": messages})


@SEKHA.tool()
def memory_export(
    call: Call,
    conversation_id: Id,
    format: Annotated[Literal["json", "markdown"], "Export format"] = "json",
    include_metadata: Annotated[bool, "Include metadata in export"] = True,
) -> JSON:
    """Export a conversation as JSON or Markdown"""
    record, messages, details = _counted(call, conversation_id)
    conversation = {**pick(record, "id", "label"), **(details if include_metadata else {})}
    if format == "json":
        content = orjson.dumps({"conversation": conversation, "messages": messages}).decode()
    else:
        lines = [f"# {record['label']}", ""]
        if include_metadata:
            lines += [f"- {name}: {record[name]}" for name in ("folder", "status", "importance")] + [""]
        for message in messages:
            said = f" ({message['timestamp']})" if include_metadata else ""
            lines += [f"**{message['role']}**{said}", "", message["content"], ""]
        content = "\n".join(lines)
    return succeeded(
        {
            "conversation": conversation,
            "messages": messages,
            "format": format,
            "include_metadata": include_metadata,
            "content": content,
        }
    )


@SEKHA.tool()
def memory_stats(
    call: Call,
    folder: Annotated[str | None, "Get stats for specific folder"] = None,
    label: Annotated[str | None, "Get stats for specific label"] = None,
) -> JSON:
    """Statistics about stored conversations, of all, of a folder or of a label"""
    if folder is not None and label is not None:
        return {"success": False, "data": None, "error": "Cannot specify both folder and label"}
    stats = call.bank.stats(filter=chosen(label, folder), group_by="folder")
    folders = sorted(group["value"] for group in stats["groups"] if group["value"])
    if folder is not None:
        folders = [folder.rstrip("/") or folder[:1]]
    average = math.floor((stats["average_importance"] or 0) * 10 + 0.5) / 10
    places = {"folders": folders} if label is None else {"labels": [label]}
    return succeeded({"total_conversations": stats["count"], "average_importance": average, **places})
