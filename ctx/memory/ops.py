"""`call`: every operation of a bank by name, JSON in and JSON out.
What a script's `context.memory.*` is mapped onto.
"""

import inspect
from collections.abc import Callable
from typing import NamedTuple

from ctx.errors import BadRequest, StoreError
from ctx.memory.bank import MemoryBank
from ctx.memory.briefing import briefing
from ctx.memory.columns import SETTABLE
from ctx.types import JSON

MAX_EXPORT_CHARS = 8 << 20  # of one reply: more goes through `ctx memory export`


class Op(NamedTuple):
    """One operation: how it is run, the arguments it must have, those it may have, and whether it changes
    memories.
    """

    run: Callable[..., JSON]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    writes: bool = False


def _op(run: Callable[..., JSON], *, writes: bool = False) -> Op:
    """An operation by its signature: what has no default is required, `**fields` are what a memory may be
    given.
    """
    _, *parameters = inspect.signature(run).parameters.values()
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    required = tuple(parameter.name for parameter in named if parameter.default is parameter.empty)
    optional = [parameter.name for parameter in named if parameter.default is not parameter.empty]
    if len(named) < len(parameters):
        optional += [name for name in SETTABLE if name not in required]
    return Op(run, required, tuple(optional), writes)


def _export(bank: MemoryBank, filter: JSON = None, include_deleted: bool = False) -> JSON:
    lines: list[str] = []
    size = 0
    for line in bank.export(filter, include_deleted=include_deleted):
        size += len(line) + 1
        if size > MAX_EXPORT_CHARS:
            raise BadRequest(
                f"export: more than {MAX_EXPORT_CHARS} characters; narrow the filter or use `ctx memory "
                "export`"
            )
        lines.append(line + "\n")
    return {"format": "jsonl", "count": len(lines), "content": "".join(lines)}


def _import(bank: MemoryBank, content: str) -> JSON:
    if not isinstance(content, str):
        raise BadRequest("content: the lines of an export are needed")
    return bank.import_(content.split("\n"))  # not splitlines: a text may hold U+2028


_READS: dict[str, Callable[..., JSON]] = {
    "get": MemoryBank.get,
    "get_many": MemoryBank.get_many,
    "children": MemoryBank.children,
    "contents": MemoryBank.contents,
    "stale": MemoryBank.stale,
    "list": MemoryBank.browse,
    "count": MemoryBank.count,
    "stats": MemoryBank.stats,
    "search": MemoryBank.search,
    "synthesize": MemoryBank.synthesize,
    "briefing": briefing,
    "history": MemoryBank.history,
    "journal": MemoryBank.journal,
    "links": MemoryBank.links,
    "sessions": MemoryBank.sessions,
    "export": _export,
    "exists": MemoryBank.exists,
    "config": MemoryBank.config,
}
_WRITES: dict[str, Callable[..., JSON]] = {
    "put": MemoryBank.put,
    "put_many": MemoryBank.put_many,
    "update": MemoryBank.update,
    "delete": MemoryBank.delete,
    "delete_where": MemoryBank.delete_where,
    "undo": MemoryBank.undo,
    "touch": MemoryBank.touch,
    "import": _import,
    "ensure": MemoryBank.ensure,
    "configure": MemoryBank.configure,
}
OPS: dict[str, Op] = {
    **{name: _op(run) for name, run in _READS.items()},
    **{name: _op(run, writes=True) for name, run in _WRITES.items()},
}


def call(bank: MemoryBank, op: str, args: JSON) -> JSON:
    """What the operation answers. `null` arguments count as absent, except inside `patch`, `filter` and the
    like.

    Raises `BadRequest` for an unknown operation or argument, and what the operation itself raises.
    """
    operation = OPS.get(op)
    if operation is None:
        raise BadRequest(f"memory: unknown operation '{str(op)[:40]}' (known: {', '.join(OPS)})")
    if args is None:
        args = {}
    if not isinstance(args, dict):
        raise BadRequest(f"memory.{op}: an object of arguments is needed")
    arguments = {name: value for name, value in args.items() if value is not None}
    allowed = (*operation.required, *operation.optional)
    for name in arguments:
        if name not in allowed:
            raise BadRequest(
                f"memory.{op}: unknown argument '{str(name)[:60]}' (known: {', '.join(allowed) or 'none'})"
            )
    for name in operation.required:
        if name not in arguments:
            raise BadRequest(f"memory.{op}: missing argument '{name}'")
    try:
        return operation.run(bank, **arguments)
    except StoreError as error:
        if operation.writes or not bank.broken(error):
            raise
        return operation.run(bank, **arguments)  # of whoever took over
