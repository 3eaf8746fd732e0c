"""The actions of `ctx memory`."""

import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Callable

from ctx.cli.configuration import NO_PROJECT, memory_configuration
from ctx.cli.memory import DEFAULT_BANK
from ctx.cli.output import Columns, ago, cell, export_form, open_output, plain, table, tell, tell_table, warn
from ctx.clock import iso_utc, parse_ms
from ctx.config.settings import SHIPPED_PACKS
from ctx.data_folder import Entry, entries, entry_named, forget, projects_folder
from ctx.errors import BadRequest, ConfigError, NotFound, StoreError
from ctx.memory.bank import MemoryBank
from ctx.memory.bank.read import MAX_LIMIT
from ctx.memory.folder import Folder
from ctx.memory.imports import import_from, piped_source, read_source
from ctx.memory.imports.replies import Source
from ctx.memory.location import adopt_old, adopt_other, count_memories, holds_any
from ctx.memory.records import MOMENTS, Provenance, iso
from ctx.memory.store import MemoryStore
from ctx.models import JSON, OWN_BANK
from ctx.text.strings import counted, cut
from ctx.workspace import Workspace, open_workspace

BY_HAND = Provenance(transport="cli", tool="ctx memory")
NO_MEMORIES = (
    "no memories yet: enable a pack in ctx.toml ([packs] enabled) so that agents can store them. "
    "`ctx memory import FILE` reads those of another product"
)
_TEXT_WIDTH = 88
_SHOWN = 20  # conflicts or unread entries to print; --json has them all
_FIELDS = (
    *("id", "kind", "type", "contexts", "folder", "label", "status", "importance", "tags", "metadata"),
    *("said", "happened", "document_id", "session", "source", "flags", "version", "superseded_by"),
    "deleted_at",
)
_COUNTED = ("new", "changed", "written", "removed", "unchanged", "missing", "forgotten")


def run(args: Namespace) -> int:
    run: Callable[..., int] = globals()[f"run_{args.action.replace('-', '_')}"]
    if args.action in ("adopt", "gone", "forget-project"):
        return run(args)
    config = memory_configuration(args.config)
    if config.path is None and not holds_any(config, os.environ):
        raise ConfigError(NO_PROJECT)  # the user has no memories of their own either
    with open_workspace(config) as workspace:
        if missing := workspace.memory_loss():
            warn(f"Some memories are missing: {missing}")
        return run(workspace, args)


def _bank(store: MemoryStore, id: str) -> MemoryBank:
    """Returns the bank with this id. Raises `NotFound` if it does not exist."""
    bank = store.bank(id, BY_HAND)
    if not bank.exists():
        names = ", ".join(sorted(store.banks())[:20])
        raise NotFound(f"no memory bank called '{id}' (there are: {names})" if names else NO_MEMORIES)
    return bank


# -- moved and deleted projects ------------------------------------------------------------------------------


def run_adopt(args: Namespace) -> int:
    config = memory_configuration(args.config)
    if config.store.url:
        raise BadRequest("the memories are in the database of [store] url; `ctx memory import` adds others")
    own = args.name.rstrip("/") in (".ctx", config.folder)
    count = adopt_old(config, os.environ) if own else adopt_other(config, os.environ, args.name)
    return tell(args.json, {"memories": count}, f"This project has {counted(count, 'memory')} now.")


def run_gone(args: Namespace) -> int:
    rows: list[dict[str, JSON]] = [
        {
            "name": entry.name,
            "path": entry.record.path,
            "memories": _count(entry),
            "bytes": entry.bytes,
            "last_used_at": iso_utc(entry.record.seen_ms),
        }
        for entry in entries(projects_folder(os.environ))
        if entry.gone
    ]
    columns: Columns = {
        "NAME": "name",
        "PROJECT WAS AT": "path",
        "MEMORIES": "memories",
        "SIZE": lambda row: f"{row['bytes'] / 1e6:,.1f} MB",
        "LAST USED": lambda row: ago(parse_ms(row["last_used_at"])),
    }
    hint = "`ctx memory adopt NAME` gives them to this project, `forget-project NAME` deletes them."
    empty = "No memories of moved or deleted projects."
    return tell_table(args.json, {"projects": rows}, rows, columns, empty, [hint] if rows else [])


def _count(entry: Entry) -> int:
    try:
        return count_memories(os.path.join(entry.folder, "memory.db"))
    except StoreError:
        return 0


def run_forget_project(args: Namespace) -> int:
    projects = [entry_named(projects_folder(os.environ), name) for name in args.name]
    for entry in projects:
        if not entry.gone:
            raise BadRequest(f"the project of '{entry.name}' is still at {entry.record.path}")
    counts = {entry.name: _count(entry) for entry in projects}
    for entry in projects if args.yes else ():
        forget(entry)
    done = "Deleted" if args.yes else "Would delete (--yes does it)"
    lines = [f"{done}: {name}, {counted(count, 'memory')}" for name, count in counts.items()]
    return tell(args.json, {"deleted": bool(args.yes), "projects": counts}, *lines)


# -- reading -------------------------------------------------------------------------------------------------


def run_banks(workspace: Workspace, args: Namespace) -> int:
    counts = workspace.memory.bank_counts()
    rows = [{"bank": name, "memories": count} for name, count in counts.items()][: args.limit]
    excess = len(counts) - len(rows)
    notes = [f"{excess:,} more; --limit shows them"] if excess else []
    columns = {"BANK": "bank", "MEMORIES": "memories"}
    empty = f"{NO_MEMORIES[0].upper()}{NO_MEMORIES[1:]}."
    return tell_table(args.json, {"banks": rows, "total": len(counts)}, rows, columns, empty, notes)


def run_list(workspace: Workspace, args: Namespace) -> int:
    bank = _bank(workspace.memory, args.bank)
    items: list[JSON] = []
    cursor = None
    while len(items) < args.limit:
        page = bank.browse(
            _filter(args),
            order="-timestamp",
            limit=min(MAX_LIMIT, args.limit - len(items)),
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


def run_search(workspace: Workspace, args: Namespace) -> int:
    bank = _bank(workspace.memory, args.bank)
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


def run_show(workspace: Workspace, args: Namespace) -> int:
    bank = _bank(workspace.memory, args.bank)
    record = bank.get(args.id, include_deleted=True)
    if record is None:
        raise NotFound(f"no memory with the id '{args.id[:80]}' in '{bank.id}'")
    names = [name for name in _FIELDS if record[name] not in (None, [], {}, "")]
    listing = table([(name, plain(_value(name, record[name]))) for name in names], ("FIELD", "VALUE"))
    return tell(args.json, record, listing, "", plain(record["text"]))


def _value(name: str, value: JSON) -> str:
    """Formats a field of a record as text. Times are in ISO 8601."""
    if isinstance(value, dict):
        return ", ".join(f"{key}={entry}" for key, entry in value.items())
    return cell(iso(value) if name in MOMENTS and value is not None else value)


def run_history(workspace: Workspace, args: Namespace) -> int:
    changes = _bank(workspace.memory, args.bank).history(args.id)
    lines = []
    for change in changes:
        author = change["by"].get("tool") or change["by"].get("pack") or "-"
        lines.append(f"{iso_utc(change['at'])}  {change['op']:<12} by {plain(author)}  op {change['op_id']}")
        for name, values in change["changed"].items():
            before, after = (plain(_value(name, values[side])) for side in ("from", "to"))
            lines.append(f"    {name}: {before} -> {after}")
    return tell(args.json, {"history": changes}, *lines)


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
    """Builds a memory filter from a command's options; None if no option is set."""
    names = ("type", "context", "session")
    filter: dict[str, JSON] = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.tag:
        filter["tags"] = {"has_any": args.tag}
    span = {sign: value for sign, value in (("gte", args.since), ("lte", args.until)) if value is not None}
    if span:
        filter["timestamp"] = span
    return filter or None


# -- changing ------------------------------------------------------------------------------------------------


def run_edit(workspace: Workspace, args: Namespace) -> int:
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
        raise BadRequest("edit: give the corrected text, or an option to change")
    reply = _bank(workspace.memory, args.bank).update(args.id, patch)
    changed = ", ".join(reply["changed"]) or "nothing"
    return _report(args, reply, f"Changed {changed}; version {reply['record']['version']}.", reply["op_id"])


def run_forget(workspace: Workspace, args: Namespace) -> int:
    bank, filter = _bank(workspace.memory, args.bank), _filter(args)
    if bool(args.id) == (filter is not None):
        raise BadRequest("forget: give ids, or options that select memories (--tag, --until ...), not both")
    ids = args.id or (bank.ids_of(filter) if args.purge else [])
    if ids or args.purge:
        deletion = bank.delete_all(ids, hard=args.purge, dry_run=args.dry_run, reason="ctx memory")
    else:
        deletion = bank.delete_where(filter, dry_run=args.dry_run, reason="ctx memory")
    count, op_id = deletion["count"], deletion["op_id"]
    would, did = ("Would erase", "Erased") if args.purge else ("Would forget", "Forgot")
    op_ids = [op_id] if op_id else []
    reply = {"count": count, "op_ids": op_ids, "dry_run": args.dry_run, "purged": args.purge}
    sentence = f"{would if args.dry_run else did} {counted(count, 'memory')}."
    return _report(args, reply, sentence, None if args.purge else op_id)


def run_undo(workspace: Workspace, args: Namespace) -> int:
    reply = _bank(workspace.memory, args.bank).undo(args.op_id)
    return _report(args, reply, f"Undid {counted(reply['count'], 'change')}.", reply["op_id"])


def run_restore(workspace: Workspace, args: Namespace) -> int:
    reply = _bank(workspace.memory, args.bank).restore(args.id)
    return _report(args, reply, f"Restored {counted(reply['count'], 'memory')}.", reply["op_id"])


def run_rename(workspace: Workspace, args: Namespace) -> int:
    workspace.memory.rename(args.name, args.into)
    return tell(args.json, {"bank": args.into}, f"Renamed '{args.name}' to '{args.into}'.")


def run_merge(workspace: Workspace, args: Namespace) -> int:
    _bank(workspace.memory, args.into)  # a mistyped name must not create a bank
    counts = workspace.memory.merge(args.name, args.into, BY_HAND, dry_run=args.dry_run)
    verb = "Would move" if args.dry_run else "Moved"
    moved = f"{verb} {counted(counts['imported'], 'memory')} into '{args.into}'"
    sentence = f"{moved}; {counts['skipped']:,} already existed."
    if counts["conflicts"]:
        ids = f"{counted(len(counts['conflicts']), 'id')} of '{args.name}'"
        sentence = f"Nothing was moved: {ids} already belong to other memories in '{args.into}'."
    return tell(args.json, counts, sentence, code=1 if counts["conflicts"] else 0)


def run_delete(workspace: Workspace, args: Namespace) -> int:
    if args.yes:
        count = workspace.memory.delete(args.name)
        sentence = f"Removed '{args.name}' with {counted(count, 'memory')}."
    else:
        count = _bank(workspace.memory, args.name).count(include_superseded=True)
        sentence = f"'{args.name}' holds {counted(count, 'memory')}; --yes deletes them for good."
    return tell(args.json, {"count": count, "deleted": args.yes}, sentence)


def _report(args: Namespace, reply: JSON, sentence: str, op_id: str | None) -> int:
    undo = [f"`ctx memory undo {op_id} --bank {shlex.quote(args.bank)}` undoes it."] if op_id else ()
    return tell(args.json, reply, sentence, notes=undo)


# -- moving --------------------------------------------------------------------------------------------------


def _takes_folder(args: Namespace) -> bool:
    """Whether the command uses a folder (`--folder`). Raises `BadRequest` for contradictory options."""
    if not args.folder and (args.dry_run or getattr(args, "prune", False)):
        raise BadRequest("--dry-run and --prune are for a --folder")
    return args.folder is not None


def run_export(workspace: Workspace, args: Namespace) -> int:
    bank = _bank(workspace.memory, args.bank)
    if _takes_folder(args):
        reply = Folder(bank, args.folder).export(dry_run=args.dry_run)
        return _report_folder(args, args.bank, {"export": reply})
    count, form = 0, export_form(args.output)
    with open_output(args.output) as out:
        for line in bank.export():
            out.write(form(line) + "\n")
            count += 1
    target = f" to {plain(args.output)}" if args.output else ""
    warn(f"Exported {counted(count, 'memory')} of '{bank.id}'{target}")
    return 0


def run_sync(workspace: Workspace, args: Namespace) -> int:
    folder = Folder(workspace.memory.bank(args.bank, BY_HAND), args.folder)
    replies = {"import": folder.import_(prune=args.prune, dry_run=args.dry_run)}
    if not args.dry_run:  # the export depends on the import
        replies["export"] = folder.export()
    return _report_folder(args, args.bank, replies)


def _report_folder(args: Namespace, bank: str, replies: dict[str, JSON]) -> int:
    """Prints the results of a folder's import and export. Returns 1 if there are conflicts, else 0."""
    conflicts: dict[str, str] = {}
    for reply in replies.values():  # the import's reasons take precedence
        conflicts = {entry["file"]: entry["reason"] for entry in reply["conflicts"]} | conflicts
    lines, notes = [], []
    for name, reply in replies.items():
        counts = ", ".join(f"{reply[key]:,} {key}" for key in _COUNTED if reply.get(key))
        lines.append(f"{name}{' (dry run)' if reply['dry_run'] else ''}: {counts or 'nothing to do'}")
    imported = replies.get("import", {})
    if imported.get("missing") and not args.prune:
        notes.append("The memories of deleted files were kept; --prune forgets them.")
    if imported.get("conflicts") and args.prune:
        notes.append("Nothing was forgotten: fix these first.")
    notes += [f"  {plain(path)}: {plain(reason)}" for path, reason in list(conflicts.items())[:_SHOWN]]
    return tell(args.json, {"bank": bank, **replies}, *lines, notes=notes, code=1 if conflicts else 0)


def run_import(workspace: Workspace, args: Namespace) -> int:
    target = DEFAULT_BANK if args.bank is None else args.bank  # an empty name is an error, not the default
    if _takes_folder(args):
        if not os.path.isdir(args.folder):
            raise BadRequest(f"--folder: there is no folder {plain(args.folder)}")
        folder = Folder(workspace.memory.bank(target, BY_HAND), args.folder)
        reply = folder.import_(prune=args.prune, dry_run=args.dry_run)
        return _report_folder(args, target, {"import": reply})
    source = piped_source(sys.stdin.buffer) if args.file == "-" else read_source(args.file)
    if source.path is not None and args.product is None and not source.content:
        hint = "Use --folder for a folder of memories, or --from NAME for another product's"
        raise BadRequest(f"{plain(args.file)} is empty, or a folder. {hint}")
    private = args.product in SHIPPED_PACKS and args.product != "hindsight"
    if args.bank is None and private and not workspace.config.memory.shared:
        target = f"{OWN_BANK}{args.product}"  # the product's pack uses its own bank
    bank = workspace.memory.bank(target, Provenance(pack=args.product, transport="cli", tool="import"))
    counts = _read(bank, source, args)
    conflicts, unread = counts.get("conflicts", []), counts.get("unread", [])
    line = f"Imported {counts['imported']:,} into '{bank.id}'; {counts['skipped']:,} already existed."
    notes = [f"  {id}: the memory here has other content and was not changed" for id in conflicts]
    notes += [f"  {plain(entry['where'])}: {plain(entry['reason'])}" for entry in unread[:_SHOWN]]
    if len(unread) > _SHOWN:
        notes.append(f"  and {len(unread) - _SHOWN:,} more; --json lists them all")
    code = 1 if conflicts or unread else 0
    return tell(args.json, {"bank": bank.id, **counts}, line, notes=notes, code=code)


def _read(bank: MemoryBank, source: Source, args: Namespace) -> JSON:
    """Imports a file or standard input into a bank and returns the counts. Raises `BadRequest` that names the
    file.
    """
    try:
        if args.product is not None:
            return import_from(bank, args.product, source._replace(user=args.user))
        return bank.import_(source.content.decode("utf-8").split("\n"))
    except (BadRequest, UnicodeDecodeError) as error:
        name = "standard input" if args.file == "-" else plain(args.file)
        problem = getattr(error, "message", "not an export: the text is not UTF-8")
        hint = "" if args.product else "; use --from NAME for another product's file"
        raise BadRequest(f"{name}: {problem}{hint}") from error
