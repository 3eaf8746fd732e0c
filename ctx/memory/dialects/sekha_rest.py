"""Sekha's REST API below `/api/v1`, as its controller and SDKs expect it."""

import math
from typing import Annotated, Literal

import orjson

from ctx.errors import BadRequest
from ctx.memory.dialects import base, sekha
from ctx.memory.dialects.base import Call, filled, pick, present
from ctx.memory.dialects.sekha import SEKHA
from ctx.models import JSON

__all__ = ["SEKHA"]  # importing `SEKHA` from here includes the routes below

CONVERSATIONS = "/api/v1/conversations"
CONVERSATION = f"{CONVERSATIONS}/{{conversation_id}}"


@SEKHA.route("POST", CONVERSATIONS)
def create(
    call: Call,
    label: Annotated[str, sekha.LABEL],
    messages: sekha.Messages,
    folder: sekha.FolderToStore = "/",
    importance_score: sekha.Importance = 5,
    metadata: base.Metadata = None,
    supersedes: sekha.Replaces = None,
) -> JSON:
    fields = {"label": label, "importance": importance_score, "metadata": metadata}
    stored = sekha.store(call, messages, folder, supersedes, **fields)
    return {**sekha.shown(call, call.bank.get(id=stored["id"])), **sekha.related(stored)}


@SEKHA.route("GET", CONVERSATIONS)
def list_conversations(
    call: Call,
    label: str | None = None,
    folder: str | None = None,
    pinned: bool | None = None,
    archived: bool | None = None,
    page: Annotated[int, base.span(1, 10_000)] = 1,
    page_size: Annotated[int, base.span(1, 100)] = 50,
) -> JSON:
    status = None if archived is None else "archived" if archived else "active"
    importance = None if pinned is None else {"gte" if pinned else "lt": sekha.PINNED}
    filter = sekha.chosen(label, folder, status=status, importance=importance)
    results = [
        {
            **pick(record, "id", "metadata", conversation_id="id"),
            **sekha.described(record),
            "timestamp": sekha.stamp(record["created"]),
        }
        for record in call.records(filter, (page - 1) * page_size, page_size, order="-updated")
    ]
    total = call.bank.count(filter=filter)
    return {"results": results, "total": total, "page": page, "page_size": page_size, **call.loss()}


@SEKHA.route("GET", f"{CONVERSATIONS}/count")
def count_conversations(call: Call, label: str | None = None, folder: str | None = None) -> JSON:
    return {"count": call.bank.count(filter=sekha.chosen(label, folder)), "label": label, "folder": folder}


@SEKHA.route("GET", CONVERSATION)
def get_conversation(call: Call, conversation_id: sekha.Id) -> JSON:
    return sekha.shown(call, sekha.conversation_of(call, conversation_id))


@SEKHA.route("DELETE", CONVERSATION)
def forget_conversation(call: Call, conversation_id: sekha.Id) -> JSON:
    id = sekha.conversation_of(call, conversation_id)["id"]
    deleted = call.bank.delete(id=id, reason="rest")
    return {"success": True, "conversation_id": id, "op_id": deleted["op_id"]}


@SEKHA.route("PUT", f"{CONVERSATION}/{{change}}")
def change_conversation(
    call: Call,
    conversation_id: sekha.Id,
    change: Literal["label", "folder", "status", "pin", "archive"],
    label: sekha.Label = None,
    folder: sekha.Folder = None,
    status: Literal["active", "archived", "pinned"] | None = None,
) -> JSON:
    values = {"label": label, "folder": folder, "status": status}
    if change in values and values[change] is None:
        raise BadRequest(f"missing required parameter: {change}")
    id = sekha.conversation_of(call, conversation_id)["id"]
    pinned = change == "pin" or status == "pinned"
    status = "archived" if change == "archive" else "active" if pinned else status
    importance = sekha.PINNED if pinned else None
    changes = present(label=label, folder=folder, status=status, importance=importance)
    call.bank.update(id=id, patch=changes)
    return sekha.shown(call, call.bank.get(id=id))


@SEKHA.route("POST", "/api/v1/query")
@SEKHA.route("POST", "/api/v1/search/{kind}")
def query_messages(
    call: Call,
    query: sekha.Query,
    kind: Annotated[Literal["fts"] | None, "By words alone"] = None,
    filters: sekha.Filters = None,
    include_superseded: base.IncludeSuperseded = False,
    limit: sekha.Limit = 10,
    offset: sekha.Offset = 0,
) -> JSON:
    page = {"limit": limit, "offset": offset}
    mode = {"mode": "keyword" if kind else None, "include_superseded": include_superseded}
    matches = call.search(query, sekha.messages_filter(filters), **page, **mode)
    results = [sekha.result(hit) for hit in matches["results"]]
    return {
        "query": query,
        "results": [{**row, "created_at": row["timestamp"]} for row in results],
        "total": matches["total"],
        "page": offset // limit + 1,
        "page_size": limit,
        **call.loss(),
    }


@SEKHA.route("POST", "/api/v1/context/assemble")
def assemble_context(
    call: Call,
    query: sekha.Query,
    context_budget: Annotated[int, base.span(1), "The budget in tokens of about four characters"] = 4000,
    preferred_labels: Annotated[list[str] | None, "Conversations with these labels come first"] = None,
    excluded_folders: list[str] | None = None,
) -> JSON:
    """The messages that match a query best, as many as fit the token budget, in the order they were said."""
    excluded = [{"parent.folder": {"under": folder}} for folder in excluded_folders or ()]
    filter = {"kind": "message", **filled(none=excluded)}
    matches = call.search(query, filter, limit=sekha.MAX_ASSEMBLED)
    results = matches["results"]
    if preferred_labels:
        results.sort(key=lambda hit: (hit.get("container") or {}).get("label") not in preferred_labels)
    picked, tokens = [], 0
    for hit in results:
        cost = math.ceil(len(hit["record"]["text"]) / 4)
        if tokens + cost <= context_budget:
            tokens += cost
            picked.append(hit)
    picked.sort(
        key=lambda hit: (hit["record"]["timestamp"], hit["record"]["parent"], hit["record"]["ordinal"] or 0)
    )
    messages = [{**sekha.result(hit), "role": hit["record"]["role"]} for hit in picked]
    labels = {message["conversation_id"]: message["label"] for message in messages}
    return {
        "messages": messages,
        "token_count": tokens,
        "conversation_ids": list(labels),
        "labels": list(labels.values()),
        **call.loss(),
    }


@SEKHA.route("POST", "/api/v1/prune/dry-run")
def suggest_pruning(
    call: Call, threshold_days: sekha.Days = 30, importance_threshold: sekha.LeastImportance = 5.0
) -> JSON:
    reply = sekha.memory_prune(call, threshold_days, importance_threshold)["data"]
    return {**reply, "total": reply["total_suggestions"]}


@SEKHA.route("POST", "/api/v1/prune/execute")
def archive(
    call: Call, conversation_ids: Annotated[list[sekha.Id], {"minItems": 1, "maxItems": 1000}]
) -> JSON:
    """Archives conversations: all, or none if one fails. Nothing is deleted."""
    for id in conversation_ids:
        call.bank.update(id=sekha.conversation_of(call, id)["id"], patch={"status": "archived"})
    return {"success": True, "archived": len(conversation_ids)}


@SEKHA.route("GET", "/api/v1/export")
def export(
    call: Call,
    label: str | None = None,
    folder: str | None = None,
    format: Literal["markdown", "json"] = "markdown",
) -> JSON:
    filter = sekha.chosen(label, folder)
    if call.bank.count(filter=filter) > sekha.MAX_EXPORTED:
        raise BadRequest(
            f"more than {sekha.MAX_EXPORTED} conversations: narrow it by label or folder, or use `ctx memory "
            "export`"
        )
    conversations = [sekha.shown(call, record) for record in call.records(filter, order="created")]
    if format == "json":
        content = orjson.dumps(conversations).decode()
    else:
        entries = (sekha.markdown(entry, ("id", *sekha.EXPORTED)) for entry in conversations)
        content = "\n".join(["# Conversations", "", *(f"#{entry}" for entry in entries)])
    return {"content": content, "format": format, "conversation_count": len(conversations)}
