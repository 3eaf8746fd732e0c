"""Reads JSON from other products: replies of their tools and APIs, as one document or one per line.

Sources: the documents of Claude Recall, Hindsight's tools and Sekha; Hindsight's REST API 1.x; mem0's
`get_all` and https://docs.mem0.ai/cookbooks/essentials/exporting-memories (2026-11).
"""

import json
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ctx.errors import BadRequest
from ctx.memory.imports import Item, Source, Unread, present
from ctx.models import JSON, as_table

_LISTS = ("memories", "results", "items")  # the possible keys of the list in a reply


class _Entry(NamedTuple):
    where: str
    value: JSON

    @property
    def user(self) -> JSON:
        """The user that a memory of mem0 belongs to."""
        return as_table(self.value).get("user_id")


def read(source: Source, product: str) -> Iterator[Item | Unread]:
    """Yields the memories of a source.

    Raises `BadRequest` if it has no JSON. Also if it has mem0 memories of several users and `source.user` is
    not set, because a bank is for one user.
    """
    entries = list(_entries(source, product))
    if product == "mem0":
        users = sorted({str(entry.user) for entry in entries if isinstance(entry, _Entry) and entry.user})
        if len(users) > 1 and source.user is None:
            raise BadRequest(
                f"the memories of {len(users)} users: {', '.join(users[:10])}; --user NAME chooses one, "
                "--bank the bank for them"
            )
        entries = [
            entry for entry in entries if isinstance(entry, Unread) or source.user in (None, entry.user)
        ]
    for entry in entries:
        yield _item(entry, product)


def _item(entry: "_Entry | Unread", product: str) -> Item | Unread:
    if isinstance(entry, Unread):
        return entry
    value = _unwrapped(entry.value)
    if not isinstance(value, dict):
        return Unread(entry.where, f"not a file of {product}: expected an object")
    try:
        return CONVERTERS[product](value)._replace(where=entry.where)
    except KeyError as error:
        return Unread(entry.where, f"the field {error} is missing")
    except (TypeError, AttributeError) as error:
        return Unread(entry.where, f"not a file of {product}: {error}")


def _entries(source: Source, product: str) -> Iterator["_Entry | Unread"]:
    """The memories or conversations in one JSON document, or in JSON lines.

    Raises `BadRequest` if the source has no JSON at all.
    """
    try:
        text = source.content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadRequest(f"not a file of {product}: it is not UTF-8") from error
    try:
        yield from _listed(json.loads(text), "entry ", product)
        return
    except (ValueError, RecursionError) as error:
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) < 2 or not any(_parsed(line) for _, line in lines):
            place = f" (line {error.lineno})" if isinstance(error, json.JSONDecodeError) else ""
            raise BadRequest(f"not JSON{place}") from error
    for number, line in lines:
        document = _parsed(line)
        if document is None:
            yield Unread(f"line {number}", "not JSON")
        else:
            yield from _listed(document[0], f"line {number}, entry ", product)


def _parsed(line: str) -> tuple[JSON] | None:
    try:
        return (json.loads(line),)
    except (ValueError, RecursionError):
        return None


def _listed(document: JSON, place: str, product: str) -> Iterator["_Entry | Unread"]:
    document = _unwrapped(document)
    listed = document
    if isinstance(document, dict):
        listed = next((document[name] for name in _LISTS if isinstance(document.get(name), list)), [document])
        total = document.get("total", document.get("count"))
        if "offset" in document and isinstance(total, int) and total > len(listed):
            yield Unread("the end", f"the list has {len(listed):,} of {total:,}: import the other pages too")
    if not isinstance(listed, list):
        raise BadRequest(f"not a file of {product}")
    for number, value in enumerate(listed, 1):
        yield _Entry(f"{place}{number}", value)


def _unwrapped(reply: JSON) -> JSON:
    """The content of a reply that Sekha (`data`) or a REST route (`result`) wrapped in an object."""
    for name in ("result", "data"):
        if isinstance(reply, dict) and isinstance(reply.get(name), dict):
            reply = reply[name]
    return reply


def _claude_recall(entry: dict[str, JSON]) -> Item:
    optional = {
        "session": entry.get("sessionId"),
        "timestamp": entry.get("timestamp"),
        "metadata": entry.get("metadata"),
    }
    return Item("", entry["id"], {"text": entry["content"], **present(optional)})


def _hindsight(entry: dict[str, JSON]) -> Item | Unread:
    if entry.get("state") == "invalidated":
        return Unread("", "it was invalidated there")
    optional = {
        "type": entry.get("type") or entry.get("fact_type") or "world",
        "context": entry.get("context") or "general",
        "event_date": entry.get("event_date") or entry.get("occurred_start"),
        "event_end": entry.get("occurred_end"),
        "timestamp": entry.get("mentioned_at") or entry.get("date"),
        "tags": entry.get("tags"),
        "metadata": entry.get("metadata"),
        "document_id": entry.get("document_id"),
    }
    return Item("", entry["id"], {"text": entry["text"], **present(optional)})


def _sekha(entry: dict[str, JSON]) -> Item | Unread:
    conversation = entry["conversation"]
    if not entry["messages"]:
        return Unread("", "a conversation without a message")
    messages = tuple(
        {
            "text": message["content"],
            "role": message["role"],
            "timestamp": message.get("timestamp"),
            "metadata": message.get("metadata") or {},
        }
        for message in entry["messages"]
    )
    container = {
        "label": conversation["label"],
        "folder": conversation.get("folder", "/"),
        "status": conversation.get("status", "active"),
        "importance": conversation.get("importance_score", 5),
        "timestamp": conversation.get("created_at"),
        "metadata": {"sekha_id": conversation["id"]},
    }
    return Item("", conversation["id"], container, messages)


def _mem0(entry: dict[str, JSON]) -> Item:
    """A memory of mem0. Other owners than the user (agent, app) become metadata, and the run the session."""
    owners = present({name: entry.get(name) for name in ("agent_id", "app_id", "actor_id", "role")})
    optional = {
        "metadata": {**(entry.get("metadata") or {}), **owners},
        "tags": entry.get("categories"),
        "session": entry.get("run_id"),
        "timestamp": entry.get("updated_at") or entry.get("created_at"),
        "expires_at": entry.get("expiration_date"),
    }
    text = entry["memory"] if "memory" in entry else entry["text"]
    return Item("", str(entry["id"]), {"text": text, "type": "world", **present(optional)})


CONVERTERS: dict[str, Callable[[dict[str, JSON]], Item | Unread]] = {
    "claude-recall": _claude_recall,
    "hindsight": _hindsight,
    "mem0": _mem0,
    "sekha": _sekha,
}
