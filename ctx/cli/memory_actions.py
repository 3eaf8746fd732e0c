"""The actions of `ctx memory` that read and change memories."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterator
from itertools import chain

from ctx.cli.common import NO_PROJECT, memory_configuration, plain, table, tell
from ctx.cli.memory_moving import BY_HAND, MOVING, NO_MEMORIES, Run, bank_there
from ctx.clock import iso_utc
from ctx.errors import BadRequest, ConfigError, NotFound
from ctx.memory.bank import MemoryBank
from ctx.memory.location import holds_any
from ctx.memory.records import MOMENTS, iso
from ctx.text import counted, cut
from ctx.types import JSON
from ctx.workspace import Workspace, open_workspace

_TEXT_WIDTH = 88
_PAGE = 50


def run(args: Namespace) -> int:
    config = memory_configuration(args.config)
    if config.path is None and not holds_any(config, os.environ):
        raise ConfigError(NO_PROJECT)  # the user has no memories of their own either
    with open_workspace(config) as workspace:
        if missing := workspace.memory_loss():
            print(f"Not all memories are there: {missing}", file=sys.stderr)
        return _ACTIONS[args.action](workspace, args)


# -- reading -------------------------------------------------------------------------------------------------


def _banks(workspace: Workspace, args: Namespace) -> int:
    banks = workspace.memory.bank_counts()
    counts = list(banks.items())[: args.limit]
    excess = len(banks) - len(counts)
    rows = [(name, f"{count:,}") for name, count in counts]
    return tell(
        args.json,
        {"banks": [{"bank": name, "memories": count} for name, count in counts], "total": len(banks)},
        table(rows, ("BANK", "MEMORIES")) if rows else f"{NO_MEMORIES[0].upper()}{NO_MEMORIES[1:]}.",
        notes=[f"{excess:,} more; --limit shows them"] if excess else (),
    )


def _list(workspace: Workspace, args: Namespace) -> int:
    bank = bank_there(workspace.memory, args.bank)
    items: list[JSON] = []
    cursor = None
    while len(items) < args.limit:
        page = bank.browse(
            _filter(args),
            order="-timestamp",
            limit=min(_PAGE, args.limit - len(items)),
            cursor=cursor,
            as_of=args.as_of,
            include_superseded=args.superseded,
            forgotten=args.forgotten,
        )
        items += page["items"]
        cursor = page["cursor"]
        if cursor is None:
            break
    listing = _records_table([(record, None) for record in items])
    return tell(args.json, {"bank": bank.id, "memories": items, "cursor": cursor}, listing)


def _search(workspace: Workspace, args: Namespace) -> int:
    bank = bank_there(workspace.memory, args.bank)
    reply = bank.search(
        " ".join(args.query),
        limit=args.limit,
        filter=_filter(args),
        window="auto",
        as_of=args.as_of,
        include_superseded=args.superseded,
    )
    listing = _records_table([(result["record"], result["score"]) for result in reply["results"]])
    return tell(args.json, {"bank": bank.id, **reply}, listing)


def _show(workspace: Workspace, args: Namespace) -> int:
    bank = bank_there(workspace.memory, args.bank)
    record = bank.get(args.id, include_deleted=True)
    if record is None:
        raise NotFound(f"no memory with the id '{args.id[:80]}' in '{bank.id}'")
    fields = [(name, _dated(name, record[name])) for name in _SHOWN if record[name] not in (None, [], {}, "")]
    listing = table([(name, plain(_shown(value))) for name, value in fields], ("FIELD", "VALUE"))
    return tell(args.json, record, listing, "", plain(record["text"]))


_SHOWN = (
    *(
        "id",
        "kind",
        "type",
        "contexts",
        "folder",
        "label",
        "status",
        "importance",
        "tags",
        "metadata",
        "said",
    ),
    *("happened", "document_id", "session", "source", "flags", "version", "superseded_by", "deleted_at"),
)


def _shown(value: JSON) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={entry}" for name, entry in value.items())
    return str(value)


def _dated(name: str, value: JSON) -> JSON:
    """A field of a record, moments in ISO 8601; "-" for nothing."""
    return "-" if value is None else iso(value) if name in MOMENTS else value


def _history(workspace: Workspace, args: Namespace) -> int:
    changes = bank_there(workspace.memory, args.bank).history(args.id)
    return tell(args.json, {"history": changes}, *chain.from_iterable(map(_change_lines, changes)))


def _change_lines(change: JSON) -> Iterator[str]:
    author = change["by"].get("tool") or change["by"].get("pack") or "-"
    yield f"{iso_utc(change['at'])}  {change['op']:<12} by {plain(author)}  op {change['op_id']}"
    for name, values in change["changed"].items():
        before, after = (_shown(_dated(name, values[side])) for side in ("from", "to"))
        yield f"    {name}: {plain(before)} -> {plain(after)}"


def _records_table(entries: list[tuple[JSON, float | None]]) -> str:
    if not entries:
        return "No memories."
    rows = []
    for record, score in entries:
        text = plain(" ".join(record["text"].split()))
        mark = "(replaced) " if record["superseded_by"] else ""
        row = (record["aliases"]["hindsight"], (record["said"] or "")[:10], mark + cut(text, _TEXT_WIDTH))
        rows.append(row if score is None else (f"{score:.2f}", *row))
    heads = ("ID", "SAID", "MEMORY")
    return table(rows, heads if entries[0][1] is None else ("SCORE", *heads))


def _filter(args: Namespace) -> JSON:
    """The filter that a command's options make; None where there are none."""
    filter: dict[str, JSON] = {
        name: value for name in ("type", "context", "session") if (value := getattr(args, name)) is not None
    }
    if args.tag:
        filter["tags"] = {"has_any": args.tag}
    span = {sign: value for sign, value in (("gte", args.since), ("lte", args.until)) if value is not None}
    if span:
        filter["timestamp"] = span
    return filter or None


# -- changing ------------------------------------------------------------------------------------------------


def _edit(workspace: Workspace, args: Namespace) -> int:
    values = {
        "text": args.text,
        "context": args.context,
        "type": args.type,
        "tags": args.tag,
        "timestamp": args.said,
        "event_date": args.happened,
    }
    patch: JSON = {name: value for name, value in values.items() if value is not None}
    if not patch:
        raise BadRequest("edit: give the corrected text, or an option that changes something")
    reply = bank_there(workspace.memory, args.bank).update(args.id, patch)
    changed = ", ".join(reply["changed"]) or "nothing"
    return _report(args, reply, f"Changed {changed}; version {reply['record']['version']}.", reply["op_id"])


def _deleted(bank: MemoryBank, filter: JSON, args: Namespace) -> JSON:
    ids = args.id or (bank.ids_of(filter) if args.purge else [])
    if ids or args.purge:
        return bank.delete_all(ids, hard=args.purge, dry_run=args.dry_run, reason="ctx memory")
    return bank.delete_where(filter, dry_run=args.dry_run, reason="ctx memory")


def _forget(workspace: Workspace, args: Namespace) -> int:
    bank, filter = bank_there(workspace.memory, args.bank), _filter(args)
    if bool(args.id) == (filter is not None):
        raise BadRequest("forget: give ids, or options that choose (--tag, --context, --until ...), not both")
    deletion = _deleted(bank, filter, args)
    op_ids = [deletion["op_id"]] if deletion["op_id"] else []
    would, did = ("Would erase", "Erased") if args.purge else ("Would forget", "Forgot")
    reply: JSON = {
        "count": deletion["count"],
        "op_ids": op_ids,
        "dry_run": args.dry_run,
        "purged": args.purge,
    }
    sentence = f"{would if args.dry_run else did} {counted(deletion['count'], 'memory')}."
    return _report(args, reply, sentence, None if args.purge else deletion["op_id"])


def _undo(workspace: Workspace, args: Namespace) -> int:
    reply = bank_there(workspace.memory, args.bank).undo(args.op_id)
    return _report(args, reply, f"Took back {counted(reply['count'], 'change')}.", reply["op_id"])


def _restore(workspace: Workspace, args: Namespace) -> int:
    reply = bank_there(workspace.memory, args.bank).restore(args.id)
    sentence = f"Brought back {counted(reply['count'], 'memory')}."
    return _report(args, reply, sentence, reply["op_id"])


def _rename(workspace: Workspace, args: Namespace) -> int:
    workspace.memory.rename(args.name, args.into)
    return _report(args, {"bank": args.into}, f"'{args.name}' is called '{args.into}' now.", None)


def _merge(workspace: Workspace, args: Namespace) -> int:
    bank_there(workspace.memory, args.into)  # a mistyped name shall not become a bank
    counts = workspace.memory.merge(args.name, args.into, BY_HAND, dry_run=args.dry_run)
    verb = "Would move" if args.dry_run else "Moved"
    sentence = (
        f"{verb} {counted(counts['imported'], 'memory')} into '{args.into}'; {counts['skipped']:,} were "
        "there already."
    )
    if counts["conflicts"]:
        sentence = (
            f"Nothing was moved: {counted(len(counts['conflicts']), 'id')} of '{args.name}' stand for "
            f"another memory in '{args.into}'."
        )
    _report(args, counts, sentence, None)
    return 1 if counts["conflicts"] else 0


def _delete(workspace: Workspace, args: Namespace) -> int:
    if not args.yes:
        count = bank_there(workspace.memory, args.name).count(include_superseded=True)
        sentence = f"'{args.name}' holds {counted(count, 'memory')}; --yes removes all of it for good."
        return _report(args, {"count": count, "deleted": False}, sentence, None)
    count = workspace.memory.delete(args.name)
    sentence = f"Removed '{args.name}' with {counted(count, 'memory')}."
    return _report(args, {"count": count, "deleted": True}, sentence, None)


def _report(args: Namespace, reply: JSON, sentence: str, op_id: str | None) -> int:
    undo = [f"`ctx memory undo {op_id} --bank {shlex.quote(args.bank)}` takes it back."] if op_id else ()
    return tell(args.json, reply, sentence, notes=undo)


_ACTIONS: dict[str, Run] = {
    "banks": _banks,
    "list": _list,
    "search": _search,
    "show": _show,
    "history": _history,
    "edit": _edit,
    "forget": _forget,
    "undo": _undo,
    "restore": _restore,
    "rename": _rename,
    "merge": _merge,
    "delete": _delete,
    **MOVING,
}
