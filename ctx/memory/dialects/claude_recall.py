"""Claude Recall: the tools of its older and its newer version (profiles), and its health check."""

import os
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

from ctx import __version__
from ctx.clock import iso_utc
from ctx.errors import BadRequest, StoreError
from ctx.memory.dialects import base
from ctx.memory.dialects.base import Call, Dialect, RouteSpec, filled, iso, pick, present
from ctx.models import JSON

CLASSIC = """\
You have a memory of earlier sessions with this user. Search it before you begin a task, and store
preferences, corrections and decisions as they come up."""
PRESENT = """\
You have a memory of earlier sessions with this user. Call `load_rules` before you begin a task and follow
what it says; `store_memory` keeps a preference, a correction, a failure or a rule of operation as it comes
up. `save_checkpoint` when you stop in the middle of a task; `load_checkpoint` tells where you left off."""

CLAUDE_RECALL = Dialect(
    name="claude-recall",
    description="Claude Recall: store, search and retrieve memories of coding sessions",
    profiles={"classic": CLASSIC, "present": PRESENT, "seed": CLASSIC},
    prefix="mcp__claude-recall__",
    own_bank=True,
    pretty=True,
    unknown_tool=-32000,
    codes={
        "rate_limited": -32001,
        **dict.fromkeys(("store_error", "busy"), -32002),
        **dict.fromkeys(("bad_request", "embeddings_disabled"), -32602),
    },
    details=True,
    rate_per_minute=100,
    environ={"rate_limit": ("CLAUDE_RECALL_RATE_LIMIT",)},
    briefing=(
        "You have a long-term memory of this user. Before you answer, search it for what is known; store "
        "with `store_memory` what the user says of themselves, their preferences, decisions and projects.",
        "type",
    ),
)
OLDER = ("classic", "seed")
NEWER = ("present",)

NEAREST, LEAST_SCORE = 3, 0.25  # without results above the threshold, show this many with at least this score
RULES_OF_A_KIND = 50
RULE_KINDS = {
    "preference": ("Preferences", "preferences"),
    "correction": ("Corrections", "corrections"),
    "failure": ("Failures", "failures"),
    "devops": ("DevOps Rules", "devops"),
}
TYPES = (*RULE_KINDS, "project-knowledge", "tool-use")
GUIDE = (
    "These are the user's own decisions, kept as notes. Where one bears on what you do, follow it and say "
    "so: (applied from memory: <rule>)."
)
Project = Annotated[
    str | None,
    base.NOT_EMPTY,
    {"maxLength": 500},
    "The project; absent: the folder in which this connection was started",
]


def name_of(record: JSON) -> str:
    """The id that Claude Recall's tools use for a memory."""
    return str(record["aliases"]["claude-recall"])


def names_of(call: Call, ids: Iterable[str]) -> list[str]:
    """The ids that Claude Recall's tools use for the memories with these ids."""
    return [name_of(record) for record in call.bank.get_many(ids=list(ids)) if record is not None]


def shown(record: JSON) -> dict[str, JSON]:
    return {"id": name_of(record), **pick(record, "metadata", content="text", timestamp="said")}


def related(call: Call, memories: Sequence[JSON]) -> list[JSON]:
    """The short form of replaced or similar memories, for the reply to a write."""
    stored = call.bank.get_many(ids=[memory["id"] for memory in memories])
    return [
        present(id=name_of(record), content=memory["text"], said=memory["said"], score=memory.get("score"))
        for memory, record in zip(memories, stored, strict=True)
        if record is not None
    ]


def store(
    call: Call, content: str, metadata: base.Table, supersedes: list[str] | None, label: str | None = None
) -> JSON:
    """Stores a memory. Ids of memories that it replaces may also be in `metadata`, as `supersedes`."""
    inside = metadata.pop("supersedes", None)
    supersedes = inside if supersedes is None else supersedes
    fields = {"metadata": metadata, "session": call.session, "supersedes": supersedes, "label": label}
    return call.bank.put(text=content, **fields)


def written(call: Call, stored: JSON, **reply: JSON) -> JSON:
    """The reply to a write, with the memories that the write replaced, and with similar memories."""
    return {
        "id": name_of(call.bank.get(id=stored["id"])),
        "success": True,
        **reply,
        **filled(
            superseded=related(call, stored["superseded"]),
            similar=related(call, stored["similar"]),
            hint=call.pack.hint() if stored["similar"] else None,
            op_id=stored["op_id"] if stored["superseded"] else None,
        ),
    }


@CLAUDE_RECALL.tool(base.ADDS, profiles=OLDER)
def store_memory(
    call: Call,
    content: Annotated[str, base.NOT_EMPTY, "Memory content to store"],
    metadata: Annotated[base.Table | None, "Optional metadata for the memory"] = None,
    supersedes: base.Supersedes = None,
) -> JSON:
    """Store a memory in the Claude Recall database"""
    stored = store(call, content, dict(metadata or {}), supersedes)
    return written(call, stored, message="Memory stored successfully")


@CLAUDE_RECALL.tool(base.ADDS, profiles=("classic", "present"))
def supersede_memory(
    call: Call, old_ids: base.OldIds = None, new_id: base.NewId = None, undo: base.Undo = None
) -> JSON:
    """Replace memories that are no longer true by another stored memory. They are kept; `undo` with the op_id
    of the reply brings them back
    """
    if undo:
        return {"success": True, "restored": call.undo(undo)}
    reply = call.supersede(old_ids, new_id)
    return {"success": True, "superseded": related(call, reply["superseded"]), "op_id": reply["op_id"]}


# -- the classic profile -------------------------------------------------------------------------------------


@CLAUDE_RECALL.tool(profiles=OLDER)
def search(
    call: Call,
    query: Annotated[str, base.NOT_EMPTY, "Search query"],
    limit: Annotated[float, base.span(1, 1000), "Maximum number of results"] = 10,
    include_superseded: base.IncludeSuperseded = False,
    as_of: base.AsOf = None,
    threshold: Annotated[float, base.span(0, 1), "Minimum similarity score (0-1)"] = 0.7,
) -> JSON:
    """Search memories using a natural language query"""

    def matches(least: float, most: int) -> JSON:
        options = {"order": "score", "as_of": as_of, "include_superseded": include_superseded}
        return call.search(query, {"kind": "fact"}, limit=most, min_score=least, **options)

    reply = matches(threshold, int(limit))
    answer = {"results": _results(call, reply), "total": reply["total"], "query": query, **call.loss()}
    nearest = [] if answer["results"] else _results(call, matches(LEAST_SCORE, NEAREST))
    return {**answer, **filled(belowThreshold=nearest)}


def _results(call: Call, reply: JSON) -> list[JSON]:
    results = []
    for hit in reply["results"]:
        record = hit["record"]
        newer = names_of(call, hit.get("newer") or ())
        successors = names_of(call, [record["superseded_by"]] if record["superseded_by"] else [])
        links = filled(happened=record["happened"], newer=newer, superseded_by="".join(successors) or None)
        results.append({**shown(record), "score": hit["score"], "said": record["said"], **links})
    return results


@CLAUDE_RECALL.tool(profiles=OLDER)
def retrieve_memory(
    call: Call,
    id: Annotated[str | None, "Memory ID to retrieve"] = None,
    limit: Annotated[float, base.span(1, 1000), "Number of recent memories to retrieve"] = 10,
) -> JSON:
    """Retrieve a specific memory by its id, or the most recent memories"""
    if id is not None:
        rows = [record for record in call.bank.get_many(ids=[id]) if record is not None]
    else:
        rows = call.bank.list(filter={"kind": "fact"}, order="-created", limit=int(limit))["items"]
    memories = [{**shown(record), "sessionId": record["session"]} for record in rows]
    return {"memories": memories, "total": len(memories), **call.loss()}


@CLAUDE_RECALL.tool(profiles=OLDER)
def get_stats(call: Call) -> JSON:
    """Get memory usage statistics"""
    stats = call.bank.stats(filter={"kind": "fact"}, group_by="metadata.type")
    types: Counter[str] = Counter()
    for group in stats["groups"]:
        types[group["value"] if isinstance(group["value"], str) else "general"] += group["count"]
    return {
        "totalMemories": stats["count"],
        "sessionMemories": call.bank.count(filter={"kind": "fact", "session": call.session}),
        "memoryTypes": dict(types),
        "lastMemoryTimestamp": iso(stats["last_created"]),
        "sessionStartTime": iso(call.pack.sessions.started_ms(call.session)),
        "databaseSize": _size(call.pack.database),
    }


def _size(path: str) -> str:
    """The size of a database file with its write-ahead log; "0.0 KB" if it is not a file on this machine."""
    files = [path + suffix for suffix in ("", "-wal") if os.path.exists(path + suffix)]
    kilobytes = sum(map(os.path.getsize, files)) / 1024
    return f"{kilobytes:.1f} KB" if kilobytes < 1024 else f"{kilobytes / 1024:.1f} MB"


@CLAUDE_RECALL.tool(base.CHANGES, profiles=OLDER)
def clear_context(
    call: Call,
    confirm: Annotated[bool | None, "Confirmation required to clear context"] = None,
    undo: base.Undo = None,
) -> JSON:
    """Clear session-specific context memories"""
    if undo:
        count = call.undo(undo)
        restored = {"memoriesCleared": 0, "memoriesRestored": count}
        return {"success": True, "message": "Context restored", **restored}
    if not call.owns_session:
        raise BadRequest(
            "only a client's own session can be cleared; this one is shared or belongs to another client. "
            "Send X-Session-Id and no sessionId"
        )
    if not confirm:
        message = "Confirmation required to clear context"
        return {"success": False, "message": message, "memoriesCleared": 0}
    filter = {"kind": "fact", "session": call.session}
    cleared = call.bank.delete_where(filter=filter, reason="clear_context")
    counts = pick(cleared, "op_id", memoriesCleared="count")
    return {"success": True, "message": "Context cleared successfully", **counts}


# -- the present profile -------------------------------------------------------------------------------------


def named_project(call: Call, project: str | None) -> str:
    """The project in the arguments, else that of the connection. Raises `BadRequest` if there is neither."""
    named = project or call.project
    if named is None:
        raise BadRequest("this connection was not started in a project: name one with projectId")
    return named


def within(project: str | None, type: str | None = None) -> JSON:
    """The filter for memories that belong to no project or to this one. The label of a memory is its project;
    `type` selects one type of memory.
    """
    of_project = [] if project is None else [{"label": project}]
    of_type = {} if type is None else {"metadata.type": type}
    return {"kind": "fact", **of_type, "any": [{"label": {"exists": False}}, *of_project]}


def checkpoint_of(call: Call, project: str) -> JSON:
    """The stored checkpoint of a project; None if there is none."""
    filter = {"kind": "checkpoint", "label": project}
    items = call.bank.list(filter=filter, order="-updated", limit=1)["items"]
    return items[0] if items else None


@CLAUDE_RECALL.tool(profiles=NEWER)
def load_rules(call: Call, projectId: Project = None) -> JSON:
    """Load the rules that are valid before starting work: preferences, corrections, failures, rules of
    operation. Call it once at the start of a task
    """
    project = projectId or call.project
    sections, counts = [], {"total": 0}
    for kind, (title, plural) in RULE_KINDS.items():
        filter = within(project, kind)
        latest = call.bank.list(filter=filter, order="-timestamp", limit=RULES_OF_A_KIND)["items"]
        counts[plural] = count = call.bank.count(filter=filter)
        counts["total"] += count
        lines = ["- " + " ".join(record["text"].split()) for record in latest]
        if count > len(latest):
            lines.append(f"({count - len(latest)} older: search_memory)")
        if lines:
            sections.append("\n".join([f"## {title}", *lines]))
    total = counts["total"]
    head = [GUIDE] if total else []
    checkpoint = None if project is None else checkpoint_of(call, project)
    if checkpoint:
        saved = iso_utc(checkpoint["updated"])
        head.append(
            f"A checkpoint of {saved} is kept for this project: load_checkpoint shows what remains to do."
        )
    if not total:
        head.append("No rules yet.")
    return {
        "rules": "\n\n".join([*head, *sections]),
        "counts": counts,
        "summary": f"{total} {'rule' if total == 1 else 'rules'} loaded",
        "projectId": project,
        **call.loss(),
    }


@CLAUDE_RECALL.tool(base.ADDS, name="store_memory", profiles=NEWER)
def store_rule(
    call: Call,
    content: Annotated[str, base.NOT_EMPTY, "The rule or learning"],
    metadata: Annotated[base.Table | None, f"Anything to keep with it; `type`: {', '.join(TYPES)}"] = None,
    scope: Annotated[
        Literal["universal", "project"], "Where it is valid: in every project, or in this one"
    ] = "universal",
    projectId: Project = None,
    supersedes: base.Supersedes = None,
) -> JSON:
    """Store a rule or learning: a preference, a correction, a failure, a rule of operation. It is valid at
    once
    """
    named_type = (metadata or {}).get("type")
    kind = named_type if named_type in TYPES else "preference"
    label = named_project(call, projectId) if scope == "project" else None
    stored = store(call, content, {**(metadata or {}), "type": kind}, supersedes, label)
    extras = filled(flags=stored["flags"], op_id=stored["op_id"])
    return written(call, stored, activeRule=f"Stored as active rule:\n- {content}", type=kind, **extras)


@CLAUDE_RECALL.tool(profiles=NEWER)
def search_memory(
    call: Call,
    query: Annotated[str, base.NOT_EMPTY, "What to look for"],
    limit: Annotated[float, base.span(1, 25), "Maximum results"] = 10,
    type: Annotated[str | None, f"Only memories of this type: {', '.join(TYPES)}"] = None,
    projectId: Project = None,
    include_superseded: base.IncludeSuperseded = False,
) -> JSON:
    """Search memories before making decisions. Returns what matches, with the ids that delete_memory takes"""
    filter = within(projectId or call.project, type)
    matches = call.search(query, filter, limit=int(limit), include_superseded=include_superseded)
    memories = [
        {
            "id": name_of(hit["record"]),
            "type": hit["record"]["metadata"].get("type") or "general",
            **pick(hit["record"], "said", content="text", projectId="label", timestamp="said"),
            "score": hit["score"],
        }
        for hit in matches["results"]
    ]
    lines = [f"- [{memory['type']}] (id: {memory['id']}) {memory['content']}" for memory in memories]
    return {
        "results": "\n".join(lines) or f'No memories found matching "{query}".',
        "count": len(memories),
        "totalMatches": matches["total"],
        "query": query,
        "memories": memories,
        **call.loss(),
    }


@CLAUDE_RECALL.tool(base.CHANGES, profiles=NEWER)
def delete_memory(
    call: Call, id: Annotated[str | None, base.NOT_EMPTY, "The memory's id"] = None, undo: base.Undo = None
) -> JSON:
    """Forget a memory by its id, which search_memory shows; `undo` with the op_id of the reply brings it
    back
    """
    if undo:
        restored = call.undo(undo)
        return {"success": True, "restored": restored, "message": "Memory restored."}
    if id is None:
        raise BadRequest("missing required parameter: id")
    record = call.bank.get(id=id)
    if record is None or record["kind"] != "fact":
        return {"success": False, "id": id, "message": f'Memory "{id}" not found.'}
    deleted = call.bank.delete(id=record["id"], reason="delete_memory")
    return {"success": True, "id": id, "message": f'Memory "{id}" deleted.', "op_id": deleted["op_id"]}


@CLAUDE_RECALL.tool(base.ADDS, profiles=NEWER)
def save_checkpoint(
    call: Call,
    completed: Annotated[str, {"maxLength": 20_000}, "What is finished"],
    remaining: Annotated[str, {"maxLength": 20_000}, "What is left to do"],
    blockers: Annotated[str, {"maxLength": 20_000}, "What blocks it, or 'none'"],
    notes: Annotated[str | None, {"maxLength": 20_000}, "Anything else: files, references"] = None,
    projectId: Project = None,
) -> JSON:
    """Save where the task stands: what is finished, what remains, what blocks it. It replaces the project's
    earlier checkpoint
    """
    project = named_project(call, projectId)
    parts = present(completed=completed, remaining=remaining, blockers=blockers, notes=notes)
    fields = {"text": "\n".join(f"{name}: {value}" for name, value in parts.items()), "metadata": parts}
    checkpoint = checkpoint_of(call, project)
    if checkpoint:
        saved = call.bank.update(id=checkpoint["id"], patch=fields)
    else:
        saved = call.bank.put(kind="checkpoint", label=project, session=call.session, **fields)
    message = f"Checkpoint saved for project: {project}"
    return {"success": True, "projectId": project, "message": message, "op_id": saved["op_id"]}


@CLAUDE_RECALL.tool(profiles=NEWER)
def load_checkpoint(call: Call, projectId: Project = None) -> JSON:
    """Load the project's checkpoint: what was finished, what remains, what blocks it"""
    project = named_project(call, projectId)
    checkpoint = checkpoint_of(call, project)
    if checkpoint is None:
        return {"found": False, "projectId": project}
    parts = dict.fromkeys(("completed", "remaining", "blockers", "notes")) | checkpoint["metadata"]
    updated = checkpoint["updated"]
    times = {"updated_at": updated, "updated_at_iso": iso_utc(updated)}
    return {"found": True, "projectId": project, **parts, **times}


# -- health --------------------------------------------------------------------------------------------------


def health(call: Call) -> JSON:
    """The server's health, in the fields of Claude Recall. Python has no separate heap like V8, so the fields
    for the heap count all memory of the process.
    """
    pack = call.pack
    total, active = pack.sessions.counts()
    try:
        pack.store().banks()
        connected = True
    except StoreError:
        connected = False
    used = _memory_bytes()
    rate = {"requestsPerMinute": pack.rate.limit, "currentRequests": pack.rate.current(call.session)}
    return {
        "status": "healthy" if connected else "unhealthy",
        "version": __version__,
        "uptime": int(time.monotonic() - pack.started_s),
        "memory": {"heapUsed": used, "heapTotal": used, "external": 0, "rss": used},
        "sessions": {"total": total, "active": active},
        "toolsRegistered": len(pack.tools),
        "database": "connected" if connected else "error",
        "rateLimiter": rate,
    }


def _memory_bytes() -> int:
    """The peak memory use of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


CLAUDE_RECALL.methods["health/check"] = health
CLAUDE_RECALL.routes.append(RouteSpec("GET", "/packs/claude-recall/health", tool="health/check"))
