"""Hindsight's REST API for documents, tags and banks."""

import fnmatch
import hashlib
import re
from collections import Counter
from typing import Annotated, Literal

from ctx import __version__
from ctx.clock import iso_utc
from ctx.errors import NotFound
from ctx.memory.dialects import hindsight_rest as rest
from ctx.memory.dialects.base import Call, Table, closed, iso, pick, present, records, schema_of
from ctx.memory.dialects.hindsight import HINDSIGHT, TRAITS, Trait, between, facts, of_tags
from ctx.models import JSON

__all__ = ["HINDSIGHT"]  # with all routes

CONFIG = {"reflect_mission": "mission", **{f"disposition_{trait}": trait for trait in TRAITS}}
DEFAULTS = {name: "" if name == "reflect_mission" else 3 for name in CONFIG}


# -- documents and tags --------------------------------------------------------------------------------------


def _records_of(call: Call, document_id: str) -> list[JSON]:
    """The memories of a document, in the order in which they were stored. Raises `NotFound`."""
    rows = list(records(call, facts(document_id=document_id), order="created"))
    if not rows:
        raise NotFound(f"no document with the id '{document_id[:80]}'")
    return rows


@HINDSIGHT.route("GET", rest.DOCUMENT)
def get_document(call: Call, document_id: rest.Id) -> dict[str, JSON]:
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


@HINDSIGHT.route("GET", f"{rest.BANK}/documents")
def list_documents(
    call: Call,
    q: str | None = None,
    tags: list[str] | None = None,
    tags_match: rest.TagsMatch = "any",
    time_field: rest.TimeField = "created_at",
    start_date: str | None = None,
    end_date: str | None = None,
    limit: rest.Limit = 100,
    offset: rest.Offset = 0,
) -> JSON:
    contains = {"any": [{"document_id": {"contains": q}}, {"text": {"contains": q}}]} if q else None
    span = {rest.TIMES[time_field]: between(start_date, end_date)}
    filter = facts(of_tags(tags, tags_match), {"document_id": {"exists": True}}, contains, **span)
    groups = call.bank.stats(filter=filter, group_by="document_id")["groups"]
    groups.sort(key=lambda group: (-group["last_created"], group["value"]))
    page = rest.page_of(groups, limit, offset)
    documents = [get_document(call, group["value"]) for group in page["items"]]
    for document in documents:
        document["text_length"] = len(document.pop("original_text"))
    return {**page, "items": documents, "total_is_estimate": False}


@HINDSIGHT.route("PATCH", rest.DOCUMENT)
def tag_document(call: Call, document_id: rest.Id, tags: list[str]) -> JSON:
    for record in _records_of(call, document_id):
        call.bank.update(id=record["id"], patch={"tags": tags})
    return {"success": True}


@HINDSIGHT.route("DELETE", rest.DOCUMENT)
def forget_document(call: Call, document_id: rest.Id) -> JSON:
    _records_of(call, document_id)
    deleted = call.bank.delete_where(filter=facts(document_id=document_id), reason="rest")
    counts = pick(deleted, "op_id", memory_units_deleted="count")
    return {"success": True, "message": "Document forgotten", "document_id": document_id, **counts}


@HINDSIGHT.route("GET", f"{rest.DOCUMENT}/chunks")
def document_chunks(
    call: Call,
    document_id: rest.Id,
    limit: rest.Limit = 100,
    offset: rest.Offset = 0,
) -> JSON:
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
    return rest.page_of(chunks, limit, offset)


@HINDSIGHT.route("GET", f"{rest.BANK}/tags")
def list_tags(
    call: Call,
    q: Annotated[str | None, {"maxLength": 200}, "A tag; * stands for anything"] = None,
    source: Literal["memories"] = "memories",
    limit: rest.Limit = 100,
    offset: rest.Offset = 0,
) -> JSON:
    """The tags of a bank's memories, most frequent first."""
    pattern = re.sub(r"[?\[]", r"[\g<0>]", (q or "*").lower())
    groups = call.bank.stats(filter=facts(), group_by="tags")["groups"]
    tags = [
        pick(group, "count", tag="value")
        for group in groups
        if fnmatch.fnmatchcase(group["value"].lower(), pattern)
    ]
    return rest.page_of(tags, limit, offset)


# -- banks ---------------------------------------------------------------------------------------------------


@HINDSIGHT.route("PUT", rest.BANK)
@HINDSIGHT.route("PATCH", rest.BANK)
def change_bank(
    call: Call,
    name: str | None = None,
    mission: str | None = None,
    reflect_mission: str | None = None,
    background: str | None = None,
    disposition: Annotated[Table | None, closed(dict.fromkeys(TRAITS, schema_of(Trait)))] = None,
    disposition_skepticism: Trait = None,
    disposition_literalism: Trait = None,
    disposition_empathy: Trait = None,
) -> JSON:
    given = (disposition_skepticism, disposition_literalism, disposition_empathy)
    traits = {**(disposition or {}), **present(**dict(zip(TRAITS, given, strict=True)))}
    changes = present(name=name, mission=reflect_mission or mission or background)
    call.bank.configure(config={**call.bank.config(), **changes, **traits})
    return bank_profile(call)


@HINDSIGHT.route("GET", f"{rest.BANK}/profile")
def bank_profile(call: Call) -> JSON:
    config = call.bank.config()
    return {
        "bank_id": call.bank_id,
        "name": config.get("name") or call.bank_id,
        "mission": config.get("mission") or "",
        "disposition": {trait: config.get(trait, 3) for trait in TRAITS},
    }


@HINDSIGHT.route("DELETE", rest.BANK)
def delete_bank(call: Call) -> JSON:
    """Forgets all memories in the bank and its configuration. The memories can be restored."""
    deleted = call.bank.delete_where(filter={"id": {"exists": True}}, reason="rest", anew=True)
    call.bank.configure(config={})
    return rest.forgotten_reply(deleted, "Bank forgotten")


@HINDSIGHT.route("GET", f"{rest.BANK}/config")
def bank_config(call: Call) -> JSON:
    """The bank's configuration with defaults, and the values that the bank itself sets."""
    kept = call.bank.config()
    overrides = {name: kept[key] for name, key in CONFIG.items() if kept.get(key) is not None}
    return {"bank_id": call.bank_id, "config": DEFAULTS | overrides, "overrides": overrides}


SETTABLE = {name: schema_of(str if name == "reflect_mission" else Trait) for name in CONFIG}


@HINDSIGHT.route("PATCH", f"{rest.BANK}/config")
def change_config(call: Call, updates: Annotated[Table | None, closed(SETTABLE)] = None) -> JSON:
    changes = {CONFIG[name]: value for name, value in (updates or {}).items()}
    call.bank.configure(config={**call.bank.config(), **changes})
    return bank_config(call)


@HINDSIGHT.route("DELETE", f"{rest.BANK}/config")
def reset_config(call: Call) -> JSON:
    call.bank.configure(config={})
    return bank_config(call)


@HINDSIGHT.route("GET", f"{rest.BANK}/stats", ignored=("refresh",))
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
    there = ("mcp", "bank_config_api", "store_document_text")
    absent = ("observations", "worker", "bank_llm_health", "file_upload_api", "document_export_api")
    absent_too = ("document_import_api", "audit_log", "llm_trace")
    features = dict.fromkeys(there, True) | dict.fromkeys((*absent, *absent_too), False)
    return {"api_version": __version__, "features": features}
