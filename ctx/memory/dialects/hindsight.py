"""Hindsight: the tools of its newer and its older version, and its REST API for banks. hindsight_rest.py has
the REST API for memories and documents.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import orjson

from ctx.clock import iso_utc
from ctx.errors import BadRequest, NotFound
from ctx.memory.dialects import base
from ctx.memory.dialects.base import Call, Dialect, filled, iso, pick, present
from ctx.models import JSON

INSTRUCTIONS = """\
You have a long-term memory. At the start of a conversation call `recall` with what the user is about to do.
Call `retain` when the user states a preference, a decision, a goal or a fact about themselves or their
project. Its reply lists similar memories: replace those that are no longer true. Use `reflect` for questions
over many memories."""
CORRECTING = """
Replace with `supersede_memory`, correct with `update_memory`, forget with `delete_memory`; `undo_memory`
takes each back."""

HINDSIGHT = Dialect(
    name="hindsight",
    description="Long-term memory in banks: retain, recall, reflect; and the older hindsight_put and "
    "hindsight_search",
    profiles={"default": INSTRUCTIONS + CORRECTING, "seed": INSTRUCTIONS},
    at_banks=True,
    environ={
        "bank": ("HINDSIGHT_MCP_BANK_ID",),
        "api_key": ("HINDSIGHT_API_TENANT_API_KEY",),
        "key_demanded": ("HINDSIGHT_API_TENANT_EXTENSION",),
        "mcp_enabled": ("HINDSIGHT_API_MCP_ENABLED",),
    },
    briefing=(
        "You have a long-term memory of this user. Before you answer, look up with `recall` what is known; "
        "store with `retain` what the user says of themselves, their preferences, decisions and projects.",
        "context",
    ),
)
MORE = ("default",)  # the profile with the tools that Hindsight's own MCP server lacks
BANK = "/v1/default/banks/{bank_id}"
TRAITS = ("skepticism", "literalism", "empathy")
CONFIG = {"reflect_mission": "mission", **{f"disposition_{trait}": trait for trait in TRAITS}}
DEFAULTS = {name: "" if name == "reflect_mission" else 3 for name in CONFIG}

Query = Annotated[str, base.NOT_EMPTY, "Natural language search query"]
Budget = Annotated[Literal["low", "mid", "high"], "How many memories to read"]
Id = Annotated[str, base.NOT_EMPTY, "The memory's id, as recall gives it"]
Category = Annotated[str | None, "Category for the memory"]
OfType = Annotated[str | None, "Only memories of this type"]
OfContext = Annotated[str | None, "Only memories of this context"]
OfTags = Annotated[list[str] | None, "Only memories with any of these tags"]
DryRun = Annotated[bool, "Only count what would be forgotten"]
SaidAt = Annotated[
    str | None, "When it was said (ISO 8601); relative dates in the text count from it. Default: now"
]
HappenedAt = Annotated[str | None, "When it happened, if the text does not say (ISO 8601)"]
UserBank = Annotated[str, base.NOT_EMPTY, "Unique identifier for the user (e.g., user_id, email)"]
Trait = Annotated[int | None, base.span(1, 5)]
SETTABLE = {name: base.schema_of(str if name == "reflect_mission" else Trait) for name in CONFIG}


def fact_id(id: str) -> str:
    """A memory's short id, which `recall` returns."""
    return f"fact_{id.replace('-', '')[:12]}"


def successor(record: JSON, name: Callable[[str], str]) -> str | None:
    """The id of the memory that replaced this one; None if it is still valid."""
    later = record["superseded_by"]
    return name(later) if later else None


def shown(record: JSON, *fields: str) -> dict[str, JSON]:
    """A memory as replies show it, with the named fields of its record added."""
    kinds = {"type": record["type"] or "world", "context": record["context"] or "general"}
    return {"id": record["aliases"]["hindsight"], "text": record["text"], **kinds, **pick(record, *fields)}


def result(hit: JSON, name: Callable[[str], str] = fact_id) -> dict[str, JSON]:
    """A search result: the fields of the product's reference, `said` and `score`, then fields that may be
    absent.
    """
    record, replaced = hit["record"], hit.get("replaced") or ()
    return {
        **shown(record),
        "event_date": iso(record["event_date"]),
        "said": record["said"],
        "score": hit["score"],
        **filled(
            **pick(record, "happened", "tags", "flags"),
            replaced=[{"text": older["text"], "said": iso_utc(older["timestamp"])} for older in replaced],
            newer=[name(later) for later in hit.get("newer") or ()],
            superseded_by=successor(record, name),
        ),
    }


def written(call: Call, stored: JSON, name: Callable[[str], str]) -> dict[str, JSON]:
    """Fields to add to the reply to a write: replaced and similar memories. `name` converts their ids."""
    return filled(
        superseded=named(stored["superseded"], name),
        similar=named(stored["similar"], name),
        hint=call.pack.hint() if stored["similar"] else None,
        op_id=stored["op_id"],
    )


def named(memories: Sequence[JSON], name: Callable[[str], str]) -> list[JSON]:
    return [{**memory, "id": name(memory["id"])} for memory in memories]


# -- filters -------------------------------------------------------------------------------------------------


def facts(*conditions: JSON, **fields: JSON) -> dict[str, JSON]:
    """The filter for memories that meet all conditions; conditions that are None are ignored."""
    every = [condition for condition in conditions if condition is not None]
    return {"kind": "fact", **present(**fields), **({"all": every} if every else {})}


def among(field: str, default: str, values: Sequence[str | None]) -> JSON:
    """The filter for memories that have one of these values in a field. Memories without a value count as
    having `default`. None if `values` has no value.
    """
    chosen = [value for value in values if value is not None]
    if not chosen:
        return None
    unset = [{field: {"exists": False}}] if default in chosen else []
    return {"any": [{field: {"in": chosen}}, *unset]}


def of_types(*types: str | None) -> JSON:
    return among("type", "world", types)


def of_tags(tags: Sequence[str] | None, match: str = "any_strict") -> JSON:
    """The filter for memories with these tags. `any` and `all` also match memories without tags; `any_strict`
    and `all_strict` do not; `exact` requires exactly these tags.
    """
    if match == "exact":
        return {"tags": {"has_all": tags, "has_only": tags} if tags else {"exists": False}}
    if not tags:
        return None
    tagged = {"tags": {"has_all" if match.startswith("all") else "has_any": tags}}
    return tagged if match.endswith("strict") else {"any": [tagged, {"tags": {"exists": False}}]}


def between(first: str | None, last: str | None) -> JSON:
    return present(gte=first, lte=last) or None


# -- retain, recall, reflect ---------------------------------------------------------------------------------


@HINDSIGHT.tool(base.ADDS, title="Retain")
def retain(
    call: Call,
    content: Annotated[str, base.NOT_EMPTY, "The fact or memory to store"],
    context: Category = "general",
    timestamp: SaidAt = None,
    event_date: HappenedAt = None,
    tags: Annotated[list[str] | None, "Labels to filter by"] = None,
    metadata: base.Metadata = None,
    document_id: Annotated[str | None, "The document it comes from"] = None,
    supersedes: base.Supersedes = None,
) -> JSON:
    """Store information to long-term memory: personal facts, preferences, events, decisions, opinions, goals,
    project details. One claim a memory. `similar` in the reply are memories close in meaning: replace those
    that this one makes untrue
    """
    times = {"timestamp": timestamp, "event_date": event_date}
    details = {"tags": tags, "metadata": metadata, "document_id": document_id, "supersedes": supersedes}
    stored = call.bank.put(text=content, type="world", context=context, **times, **details)
    return {
        "success": True,
        "message": "Memory stored successfully" if stored["created"] else "Memory was stored before",
        "id": fact_id(stored["id"]),
        "bank_id": call.bank_id,
        **filled(flags=stored["flags"]),
        **written(call, stored, fact_id),
    }


@HINDSIGHT.tool(title="Recall", failure={"results": []})
def recall(
    call: Call,
    query: Query,
    max_results: Annotated[int, base.span(1, 1000), "Maximum results to return"] = 10,
    max_tokens: Annotated[int | None, base.span(1), "Stop before the results exceed this many tokens"] = None,
    budget: Budget = "low",
    types: Annotated[list[str] | None, "Only memories of these types"] = None,
    tags: Annotated[list[str] | None, "Only memories with these tags"] = None,
    tags_match: Annotated[Literal["any", "all"], "With any of the tags, or with all"] = "any",
    as_of: base.AsOf = None,
    include_superseded: base.IncludeSuperseded = False,
    min_score: Annotated[float | None, base.span(0, 1), "Only matches with at least this score"] = None,
) -> JSON:
    """Search memories to provide personalized responses. Use it at the start of a conversation and before
    recommendations. Results say when a thing was said and when it happens or happened; `newer` names later
    results on the same subject, `superseded_by` the memory that replaced this one
    """
    filter = facts(of_types(*types or ()), of_tags(tags, f"{tags_match}_strict"))
    limits = {"limit": max_results, "max_tokens": max_tokens, "budget": budget, "min_score": min_score}
    matches = call.search(query, filter, as_of=as_of, include_superseded=include_superseded, **limits)
    results = [result(hit) for hit in matches["results"]]
    confidence = {"confidence": matches["confidence"]} if results else {}
    return {"results": results, **confidence, **call.loss()}


@HINDSIGHT.tool(title="Reflect")
def reflect(
    call: Call,
    query: Annotated[str, base.NOT_EMPTY, "The question or topic to reflect on"],
    context: Annotated[str | None, "Optional context about why this reflection is needed"] = None,
    as_of: base.AsOf = None,
    budget: Annotated[Literal["low", "mid", "high"], "How many memories are read: 8, 30 or 60"] = "low",
) -> JSON:
    """Answer a question from many stored memories, with citations"""
    answer = call.bank.synthesize(query=query, context=context, filter=facts(), as_of=as_of, budget=budget)
    return {**answer, "based_on": named(answer["based_on"], fact_id), **call.loss()}


# -- more tools for one bank ---------------------------------------------------------------------------------


@HINDSIGHT.tool(profiles=MORE)
def list_memories(
    call: Call,
    limit: Annotated[int, base.span(1, 1000), "Memories on a page"] = 50,
    cursor: Annotated[str | None, "The cursor of the page before"] = None,
    type: OfType = None,
    context: OfContext = None,
    tags: OfTags = None,
    since: Annotated[str | None, "Only what was said since (ISO 8601)"] = None,
    until: Annotated[str | None, "Only what was said until (ISO 8601)"] = None,
    as_of: base.AsOf = None,
    include_superseded: base.IncludeSuperseded = False,
) -> JSON:
    """List the memories of this bank, newest first"""
    filter = facts(
        of_types(type), among("context", "general", [context]), of_tags(tags), timestamp=between(since, until)
    )
    options = {"as_of": as_of, "include_superseded": include_superseded}
    page = call.bank.list(filter=filter, order="-timestamp", limit=limit, cursor=cursor, **options)
    memories = [
        {
            **shown(record, "tags", "flags", "said", "happened"),
            "superseded_by": successor(record, fact_id),
        }
        for record in page["items"]
    ]
    total = call.bank.count(filter=filter, **options)
    return {"memories": memories, "total": total, "cursor": page["cursor"], **call.loss()}


@HINDSIGHT.tool(profiles=MORE)
def get_memory(call: Call, memory_id: Id) -> JSON:
    """Show one memory with its history: when it was said, what was changed and by whom"""
    record = call.bank.get(id=memory_id)
    if record is None:
        raise NotFound(
            f"no memory with the id '{memory_id[:80]}' in this bank (recall and list_memories give the ids)"
        )
    history = [
        {**pick(change, "version", "op", "op_id", "changed"), "at": iso_utc(change["at"])}
        for change in call.bank.history(id=record["id"])
    ]
    fields = ("contexts", "tags", "flags", "metadata", "document_id", "said", "happened", "version")
    return {
        **shown(record, *fields),
        "superseded_by": successor(record, fact_id),
        "created_at": iso_utc(record["created"]),
        "history": history,
    }


@HINDSIGHT.tool(base.CHANGES, profiles=MORE)
def update_memory(
    call: Call,
    memory_id: Id,
    content: Annotated[str | None, base.NOT_EMPTY, "The corrected text"] = None,
    context: Category = None,
    type: Annotated[str | None, "world, experience, opinion"] = None,
    tags: Annotated[list[str] | None, "Its labels, all of them"] = None,
    timestamp: Annotated[str | None, "When it was said (ISO 8601)"] = None,
    event_date: Annotated[str | None, "When it happened (ISO 8601)"] = None,
) -> JSON:
    """Correct a memory's text, context, tags, type or date. The earlier version is kept in its history"""
    changes = present(
        text=content, context=context, type=type, tags=tags, timestamp=timestamp, event_date=event_date
    )
    if not changes:
        raise BadRequest("nothing to correct: send content, context, type, tags, timestamp or event_date")
    reply = call.bank.update(id=memory_id, patch=changes)
    record = reply["record"]
    fields = {"id": record["aliases"]["hindsight"], **pick(record, "text", "version")}
    return {"success": True, **fields, **pick(reply, "changed", "op_id")}


@HINDSIGHT.tool(base.ADDS, profiles=MORE)
def supersede_memory(call: Call, old_ids: base.OldIds, new_id: base.NewId) -> JSON:
    """Replace memories that are no longer true by another stored memory. They are kept and found with
    include_superseded; undo_memory brings them back
    """
    reply = call.supersede(old_ids, new_id)
    return {"success": True, "superseded": named(reply["superseded"], fact_id), "op_id": reply["op_id"]}


@HINDSIGHT.tool(base.CHANGES, profiles=MORE)
def delete_memory(call: Call, memory_id: Id, dry_run: DryRun = False) -> JSON:
    """Forget a memory. It can be brought back with undo_memory and the op_id of the reply"""
    return _deleted(call.bank.delete(id=memory_id, dry_run=dry_run, reason="delete_memory"), dry_run)


def _deleted(reply: JSON, dry_run: bool) -> JSON:
    return {"success": True, "deleted": reply["count"], "dry_run": dry_run, "op_id": reply.get("op_id")}


@HINDSIGHT.tool(base.CHANGES._replace(idempotent=False), profiles=MORE)
def undo_memory(call: Call, op_id: Annotated[str, base.NOT_EMPTY, "The op_id of the reply"]) -> JSON:
    """Take back a retain, supersede_memory, update_memory, delete_memory or clear_memories by the op_id of
    its reply
    """
    return {"success": True, **pick(call.bank.undo(op_id=op_id), "skipped", "op_id", restored="count")}


@HINDSIGHT.tool(base.CHANGES, at_banks=False, profiles=MORE)
def clear_memories(
    call: Call,
    type: OfType = None,
    context: OfContext = None,
    tags: OfTags = None,
    before: Annotated[str | None, "Only what was said before (ISO 8601)"] = None,
    dry_run: DryRun = True,
) -> JSON:
    """Forget all memories of this bank that match; without a filter, all. A dry run only counts. undo_memory
    brings them back
    """
    # An empty list of tags must match nothing; if it were no condition, all memories would be forgotten.
    tagged = None if tags is None else {"tags": {"has_any": tags}}
    said = None if before is None else {"timestamp": {"lt": before}}
    filter = facts(of_types(type), among("context", "general", [context]), tagged, said)
    return _deleted(call.bank.delete_where(filter=filter, dry_run=dry_run, reason="clear_memories"), dry_run)


# -- banks ---------------------------------------------------------------------------------------------------


@HINDSIGHT.tool(base.ADDS, at_banks=False, profiles=MORE)
def update_bank(
    call: Call,
    mission: Annotated[str | None, "What the bank is for"] = None,
    skepticism: Trait = None,
    literalism: Trait = None,
    empathy: Trait = None,
) -> JSON:
    """Set this bank's mission and how it reflects: skepticism, literalism and empathy, 1 to 5 each (3 changes
    nothing)
    """
    changes = present(mission=mission, skepticism=skepticism, literalism=literalism, empathy=empathy)
    config = call.bank.configure(config={**call.bank.config(), **changes})
    return {"success": True, "bank_id": call.bank_id, "config": config}


def forgotten_reply(reply: JSON, message: str) -> dict[str, JSON]:
    return {"success": True, "message": message, **pick(reply, "op_id", deleted_count="count")}


@HINDSIGHT.route("PUT", BANK)
@HINDSIGHT.route("PATCH", BANK)
def change_bank(
    call: Call,
    name: str | None = None,
    mission: str | None = None,
    reflect_mission: str | None = None,
    background: str | None = None,
    disposition: Annotated[
        base.Table | None, base.closed(dict.fromkeys(TRAITS, base.schema_of(Trait)))
    ] = None,
    disposition_skepticism: Trait = None,
    disposition_literalism: Trait = None,
    disposition_empathy: Trait = None,
) -> JSON:
    dispositions = (disposition_skepticism, disposition_literalism, disposition_empathy)
    traits = (disposition or {}) | present(**dict(zip(TRAITS, dispositions, strict=True)))
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
    """Forgets all memories in the bank and its configuration. The memories can be restored."""
    deleted = call.bank.delete_where(filter={"id": {"exists": True}}, reason="rest", anew=True)
    call.bank.configure(config={})
    return forgotten_reply(deleted, "Bank forgotten")


@HINDSIGHT.route("GET", f"{BANK}/config")
def bank_config(call: Call) -> JSON:
    """The bank's configuration with defaults, and the values that the bank itself sets."""
    config = call.bank.config()
    overrides = {name: config[key] for name, key in CONFIG.items() if config.get(key) is not None}
    return {"bank_id": call.bank_id, "config": DEFAULTS | overrides, "overrides": overrides}


@HINDSIGHT.route("PATCH", f"{BANK}/config")
def change_config(call: Call, updates: Annotated[base.Table | None, base.closed(SETTABLE)] = None) -> JSON:
    changes = {CONFIG[name]: value for name, value in (updates or {}).items()}
    call.bank.configure(config={**call.bank.config(), **changes})
    return bank_config(call)


@HINDSIGHT.route("DELETE", f"{BANK}/config")
def reset_config(call: Call) -> JSON:
    call.bank.configure(config={})
    return bank_config(call)


# -- the older generation ------------------------------------------------------------------------------------


@HINDSIGHT.tool(base.ADDS, at_banks=False, bank_parameter="bank_id")
def hindsight_put(
    call: Call,
    bank_id: UserBank,
    content: Annotated[str, base.NOT_EMPTY, "Memory content to store"],
    context: Annotated[str, "Category for the memory (e.g., 'personal_preferences', 'work_history')"],
    timestamp: SaidAt = None,
    explanation: Annotated[str | None, "Optional explanation for why this memory is being stored"] = None,
    supersedes: base.Supersedes = None,
) -> JSON:
    """Store a new memory for a user"""
    stored = call.bank.put(
        text=content, type="world", context=context, timestamp=timestamp, supersedes=supersedes
    )
    if explanation:  # added after `put`: an equal text with another explanation counts as the same memory
        metadata = call.bank.get(id=stored["id"])["metadata"]
        call.bank.update(id=stored["id"], patch={"metadata": {**metadata, "explanation": explanation}})
    message = "Fact stored successfully"
    if call.caller.interface == "rest" or not (stored["similar"] or stored["superseded"]):
        return message
    # The MCP reply has the text of the product's reference, and these details in a second block.
    details = {"id": stored["id"], **written(call, stored, str)}
    blocks = message, orjson.dumps(details).decode()
    return {"content": [{"type": "text", "text": block} for block in blocks]}


@HINDSIGHT.tool(at_banks=False, bank_parameter="bank_id")
def hindsight_search(
    call: Call,
    bank_id: UserBank,
    query: Query,
    max_tokens: Annotated[int, base.span(1), "Maximum tokens for results"] = 4096,
    explanation: Annotated[str | None, "Optional explanation for why this search is being performed"] = None,
    as_of: base.AsOf = None,
) -> JSON:
    """Search memories for a user"""
    if not call.bank.exists():
        raise NotFound(f"Memory bank '{call.bank_id}' not found")
    matches = call.search(query, facts(), limit=100, max_tokens=max_tokens, as_of=as_of)
    results = [{**result(hit, str), **pick(hit["record"], "id", "document_id")} for hit in matches["results"]]
    return {"results": results, **call.loss()}
