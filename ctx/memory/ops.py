"""`call`: every operation of a bank by name, JSON in and JSON out. What a script's `context.memory.*` is mapped onto."""

from collections.abc import Callable
from typing import NamedTuple

from ctx.errors import BadRequest
from ctx.memory.bank import MemoryBank
from ctx.memory.records import SETTABLE
from ctx.types import JSON

MAX_EXPORT_CHARS = 8 << 20  # of one reply: more goes through `ctx memory export`


class Op(NamedTuple):
    """One operation: how it is run, the arguments it must have, those it may have, and whether it changes memories."""

    run: Callable[..., JSON]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    writes: bool = False


def _export(bank: MemoryBank, filter: JSON = None, include_deleted: bool = False) -> JSON:
    lines: list[str] = []
    size = 0
    for line in bank.export(filter, include_deleted=include_deleted):
        size += len(line) + 1
        if size > MAX_EXPORT_CHARS:
            raise BadRequest(
                f"export: more than {MAX_EXPORT_CHARS} characters; narrow the filter or use `ctx memory export`"
            )
        lines.append(line + "\n")
    return {"format": "jsonl", "count": len(lines), "content": "".join(lines)}


def _import(bank: MemoryBank, content: str) -> JSON:
    if not isinstance(content, str):
        raise BadRequest("content: the lines of an export are needed")
    return bank.import_(content.split("\n"))  # not splitlines: a text may hold U+2028


def _synthesize(bank: MemoryBank, query: str, **options: JSON) -> JSON:
    return bank.synthesize(query, **options)


_PAGE = ("filter", "order", "limit", "cursor", "include_superseded", "as_of")
_SEARCH = (
    *(
        "limit",
        "offset",
        "mode",
        "filter",
        "min_score",
        "budget",
        "max_tokens",
        "window",
        "as_of",
        "include_superseded",
    ),
    *("order", "half_life_days", "explain", "touch"),
)
_PUT = ("dedupe", "supersedes", "alias", "idempotency_key", *(name for name in SETTABLE if name != "text"))

OPS: dict[str, Op] = {
    "put": Op(MemoryBank.put, ("text",), _PUT, True),
    "put_many": Op(MemoryBank.put_many, ("items",), ("container", "idempotency_key"), True),
    "get": Op(MemoryBank.get, ("id",), ("include_deleted",)),
    "get_many": Op(MemoryBank.get_many, ("ids",), ("include_deleted",)),
    "children": Op(MemoryBank.children, ("id",), ("limit", "cursor")),
    "update": Op(MemoryBank.update, ("id", "patch"), ("expect_version",), True),
    "delete": Op(MemoryBank.delete, ("id",), ("reason", "hard"), True),
    "delete_where": Op(MemoryBank.delete_where, ("filter",), ("reason",), True),
    "undo": Op(MemoryBank.undo, ("op_id",), (), True),
    "touch": Op(MemoryBank.touch, ("ids",), (), True),
    "list": Op(MemoryBank.browse, (), _PAGE),
    "count": Op(MemoryBank.count, (), ("filter", "include_superseded", "as_of")),
    "stats": Op(MemoryBank.stats, (), ("filter", "group_by")),
    "search": Op(MemoryBank.search, ("query",), _SEARCH),
    "synthesize": Op(_synthesize, ("query",), ("budget", "context", "disposition", "filter", "as_of")),
    "history": Op(MemoryBank.history, ("id",)),
    "journal": Op(MemoryBank.journal, (), ("after", "limit")),
    "links": Op(MemoryBank.links, ("id",)),
    "sessions": Op(MemoryBank.sessions, ("id",)),
    "export": Op(_export, (), ("filter", "include_deleted")),
    "import": Op(_import, ("content",), (), True),
    "exists": Op(MemoryBank.exists),
    "ensure": Op(MemoryBank.ensure, (), (), True),
    "config": Op(MemoryBank.config),
    "configure": Op(MemoryBank.configure, ("config",), (), True),
}


def call(bank: MemoryBank, op: str, args: JSON) -> JSON:
    """What the operation answers. `null` arguments count as absent, except inside `patch`, `filter` and the like.

    Raises `BadRequest` for an unknown operation or argument, and what the operation itself raises.
    """
    known = OPS.get(op)
    if known is None:
        raise BadRequest(f"memory: unknown operation '{str(op)[:40]}' (known: {', '.join(OPS)})")
    if args is None:
        args = {}
    if not isinstance(args, dict):
        raise BadRequest(f"memory.{op}: an object of arguments is needed")
    given = {name: value for name, value in args.items() if value is not None}
    for name in given:
        if name not in known.required and name not in known.optional:
            allowed = ", ".join((*known.required, *known.optional)) or "none"
            raise BadRequest(f"memory.{op}: unknown argument '{str(name)[:60]}' (known: {allowed})")
    for name in known.required:
        if name not in given:
            raise BadRequest(f"memory.{op}: missing argument '{name}'")
    return known.run(bank, **given)
