"""The tools of Sekha, whose memories are conversations with a label, a folder and an importance.
sekha_rest.py has Sekha's REST API.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import orjson

from ctx.clock import DAY_MS, iso_utc, now_ms
from ctx.errors import BadRequest, NotFound
from ctx.memory.bank.read import MAX_LIMIT
from ctx.memory.dialects import base
from ctx.memory.dialects.base import Call, Dialect, RouteSpec, filled, pick, present
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
PREVIEW_CHARS = 100  # length of a preview, which is the start of the first message
MAX_IDLE_DAYS = 10_000_000
MAX_EXPORTED = 1000  # an export has at most this many conversations
MAX_ASSEMBLED = 100  # a context is assembled from this many search results at most
# Sekha's filter for messages -> (field, operator) of a filter in ctx.memory.filters.
FILTERS = {
    "label": ("parent.label", "eq"),
    "status": ("parent.status", "eq"),
    "role": ("role", "eq"),
    "folder": ("parent.folder", "under"),
    "importance_min": ("parent.importance", "gte"),
}
# The fields of a conversation that a Markdown export includes.
EXPORTED = ("folder", "status", "importance_score")

UUID = {
    "pattern": "^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$",
    "description": "The conversation's id",
}
Id = Annotated[str, UUID]
LABEL = {"minLength": 1, "maxLength": 500, "description": "Human-readable conversation label"}
Label = Annotated[str | None, LABEL]
Folder = Annotated[str | None, {"pattern": "^/"}, "Folder path"]
FolderToStore = Annotated[str, {"pattern": "^/"}, "Folder path for organization"]
Importance = Annotated[
    float | None, base.span(1, 10), "1-10 scale for pruning decisions; 10 is never suggested"
]
MESSAGE = {
    "role": base.schema_of(Literal["user", "assistant", "system", "tool"]),
    "content": base.schema_of(Annotated[str, base.NOT_EMPTY]),
}
Message = Annotated[base.Table, base.table(MESSAGE, ("role", "content"))]
Messages = Annotated[list[Message], {"minItems": 1}, "The messages, in order"]
Replaces = Annotated[list[str] | None, "Ids of conversations that this one makes untrue and replaces"]
Query = Annotated[str, base.NOT_EMPTY, "Natural language search query"]
Filters = Annotated[
    base.Table | None, "folder (with all below it), label, status, role, after, before, importance_min"
]
Limit = Annotated[int, base.span(1, 1000), "Max results to return"]
Offset = Annotated[int, base.span(0), "Pagination offset"]
Days = Annotated[int, base.span(0), "Consider conversations older than X days"]
LeastImportance = Annotated[float, base.span(0, 10), "Consider conversations with score <= X"]


def succeeded(data: JSON) -> JSON:
    return {"success": True, "data": data, "error": None}


def stamp(ms: int) -> str:
    """A time in the format of Sekha: ISO 8601 in UTC to the second, without a zone."""
    return iso_utc(ms)[:19]


def conversation_of(call: Call, id: str) -> JSON:
    """The conversation with this id, which is marked as read. Raises `NotFound`."""
    record = call.bank.get(id=id.lower())
    if record is None or record["kind"] != "conversation":
        raise NotFound(f"Conversation not found: {id.lower()}")
    call.bank.touch(ids=[record["id"]])
    return record


def described(record: JSON) -> dict[str, JSON]:
    fields = pick(record, "label", "folder", "status", importance_score="importance")
    return {**fields, "created_at": stamp(record["created"]), "updated_at": stamp(record["updated"])}


def shown(call: Call, record: JSON) -> dict[str, JSON]:
    """A conversation with its messages."""
    items = call.bank.children(id=record["id"])["items"]
    return {
        **pick(record, "id", "metadata", conversation_id="id"),
        **described(record),
        "archived": record["status"] == "archived",
        "message_count": len(items),
        "word_count": sum(len(item["text"].split()) for item in items),
        "session_count": len(call.bank.sessions(id=record["id"])),
        "messages": [
            {**pick(item, "role", content="text"), "timestamp": stamp(item["timestamp"])} for item in items
        ],
    }


def markdown(conversation: JSON, fields: Sequence[str]) -> str:
    """A conversation as Markdown, with a line for each of `fields`. If `fields` is empty, times are left out
    too.
    """
    lines = [f"# {conversation['label']}", ""]
    if fields:
        lines += [*(f"- {name}: {conversation[name]}" for name in fields), ""]
    for message in conversation["messages"]:
        time = f" ({message['timestamp']})" if fields else ""
        lines += [f"**{message['role']}**{time}", "", message["content"], ""]
    return "\n".join(lines)


def chosen(label: str | None, folder: str | None, **more: JSON) -> dict[str, JSON]:
    """The filter for conversations with this label, and in this folder or below it."""
    below = None if folder is None else {"under": folder}
    return {"kind": "conversation", **present(label=label, folder=below, **more)}


def store(
    call: Call, messages: Sequence[base.Table], folder: str, supersedes: list[str] | None, **fields: JSON
) -> JSON:
    """Stores a conversation with these fields."""
    if "/../" in folder + "/":
        raise BadRequest("folder must not contain '..'")
    items = [
        {"role": message["role"], "text": message["content"]}
        | present(timestamp=message.get("timestamp"), metadata=message.get("metadata"))
        for message in messages
    ]
    container = present(folder=folder, status="active", **fields)
    return call.bank.put_many(items=items, container=container, supersedes=supersedes)


def related(stored: JSON) -> dict[str, JSON]:
    """Fields for the reply to a write: conversations that it replaced, and ones with a similar message."""
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
    period = present(gte=values.pop("after", None), lte=values.pop("before", None))
    filter = {"kind": "message", **conditions, **({"timestamp": period} if period else {})}
    for name, value in values.items():
        if name not in FILTERS:
            names = "folder, label, status, role, after, before, importance_min"
            raise BadRequest(f"unknown filter '{name[:80]}' (known: {names})")
        field, operator = FILTERS[name]
        filter[field] = {operator: value}
    return filter


def result(hit: JSON) -> dict[str, JSON]:
    """A message that a search found, as replies show it."""
    record, conversation = hit["record"], hit.get("container") or {}
    return {
        **pick(record, "metadata", "said", conversation_id="parent", message_id="id", content="text"),
        **dict.fromkeys(("score", "similarity"), hit["score"]),
        "label": conversation.get("label"),
        "folder": conversation.get("folder") or "/",
        "timestamp": stamp(record["timestamp"]),
        **filled(newer=hit.get("newer"), superseded_by=record["superseded_by"]),
    }


# -- tools ---------------------------------------------------------------------------------------------------


@SEKHA.tool(base.ADDS._replace(idempotent=False))
def memory_store(
    call: Call,
    label: Annotated[str, LABEL],
    messages: Messages,
    folder: FolderToStore = "/",
    importance_score: Importance = 5,
    supersedes: Replaces = None,
) -> JSON:
    """Store a conversation in memory with a label and a folder"""
    stored = store(call, messages, folder, supersedes, label=label, importance=importance_score)
    conversation = pick(call.bank.get(id=stored["id"]), "id", "label", "folder", conversation_id="id")
    hint = call.pack.hint("memory_supersede") if stored["similar"] else None
    details = {"message_count": len(messages), **related(stored), **present(hint=hint)}
    return succeeded({**conversation, **details})


@SEKHA.tool()
def memory_search(
    call: Call,
    query: Query,
    filters: Filters = None,
    filter_labels: Annotated[list[str] | None, "Only conversations with one of these labels"] = None,
    include_superseded: base.IncludeSuperseded = False,
    as_of: base.AsOf = None,
    limit: Limit = 10,
    offset: Offset = 0,
) -> JSON:
    """Search stored conversations by meaning and words"""
    labelled = {"all": [{"parent.label": {"in": filter_labels}}]} if filter_labels else {}
    page = {"limit": limit, "offset": offset}
    valid = {"as_of": as_of, "include_superseded": include_superseded}
    matches = call.search(query, messages_filter(filters, **labelled), **page, **valid)
    results = [result(hit) for hit in matches["results"]]
    counts = {"total_results": matches["total"], "limit": limit}
    return succeeded({"query": query, **counts, "results": results, **call.loss()})


@SEKHA.tool(base.ADDS, profiles=("default",))
def memory_supersede(
    call: Call,
    old_ids: Annotated[list[Id] | None, {"minItems": 1}, "The conversations that are replaced"] = None,
    new_id: Annotated[str | None, UUID] = None,
    undo: base.Undo = None,
) -> JSON:
    """Replace conversations that are no longer true by another stored conversation. They are kept; `undo`
    with the op_id of the reply brings them back
    """
    if undo:
        return succeeded({"restored": call.undo(undo)})
    reply = call.supersede(old_ids, new_id)
    return succeeded({"superseded": replaced(reply["superseded"]), "op_id": reply["op_id"]})


@SEKHA.tool(base.ADDS)
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
    filter = {
        "kind": "conversation",
        "status": "active",
        "last_accessed": {"lte": now_ms() - min(threshold_days, MAX_IDLE_DAYS) * DAY_MS},
        "importance": {"lte": importance_threshold, "lt": PINNED},
    }
    rows = list(call.records(filter, order="last_accessed"))
    contents: dict[str, JSON] = {}
    for start in range(0, len(rows), MAX_LIMIT):
        contents |= call.bank.contents(ids=[row["id"] for row in rows[start : start + MAX_LIMIT]])
    suggestions = []
    for row in rows:
        messages = contents.get(row["id"], {"count": 0, "characters": 0, "first": ""})
        suggestions.append(
            {
                **pick(row, conversation_id="id", conversation_label="label"),
                "last_accessed": stamp(row["last_accessed"]),
                "message_count": messages["count"],
                "token_estimate": math.ceil(messages["characters"] / 4),
                "importance_score": float(row["importance"]),
                "preview": messages["first"][:PREVIEW_CHARS],
                "recommendation": "archive",
            }
        )
    limits = {"threshold_days": threshold_days, "importance_threshold": importance_threshold}
    savings = sum(suggestion["token_estimate"] for suggestion in suggestions)
    totals = {"total_suggestions": len(suggestions), "estimated_token_savings": savings}
    return succeeded({**limits, **totals, "suggestions": suggestions})


@SEKHA.tool()
def memory_get_context(call: Call, conversation_id: Id) -> JSON:
    """Retrieve the full context of a conversation: its metadata and its messages"""
    return succeeded(shown(call, conversation_of(call, conversation_id)))


@SEKHA.tool()
def memory_export(
    call: Call,
    conversation_id: Id,
    format: Annotated[Literal["json", "markdown"], "Export format"] = "json",
    include_metadata: Annotated[bool, "Include metadata in export"] = True,
) -> JSON:
    """Export a conversation as JSON or Markdown"""
    record = conversation_of(call, conversation_id)
    details = shown(call, record)
    fields = (*described(record), "word_count", "session_count") if include_metadata else ("label",)
    conversation, messages = pick(details, "id", *fields), details["messages"]
    if format == "json":
        content = orjson.dumps({"conversation": conversation, "messages": messages}).decode()
    else:
        content = markdown(details, EXPORTED if include_metadata else ())
    options = {"format": format, "include_metadata": include_metadata}
    return succeeded({"conversation": conversation, "messages": messages, **options, "content": content})


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
