"""`ctx memory export`, `import` and `sync`: memories as lines of JSON, as Markdown files, and from other
products."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable

from ctx.cli.common import plain, print_json
from ctx.cli.output import Output, written
from ctx.cli.sessions import bank_of
from ctx.config.settings import SHIPPED_PACKS
from ctx.errors import BadRequest, NotFound
from ctx.identity import OWN_BANK
from ctx.memory import MemoryBank, MemoryStore, Provenance
from ctx.memory.folder import Folder
from ctx.memory.imports.item import Source
from ctx.memory.products import import_from, piped_source, read_source
from ctx.text import counted
from ctx.types import JSON
from ctx.workspace import Workspace

BY_HAND = Provenance(transport="cli", tool="ctx memory")
Run = Callable[[Workspace, Namespace], int]
NO_MEMORIES = (
    "no memories yet: agents keep them through a pack that ctx.toml enables ([packs] enabled), and "
    "`ctx memory import FILE` reads those of another product"
)
_NAMED = 20  # conflicts and the like that are printed; --json has them all


def bank_there(store: MemoryStore, id: str) -> MemoryBank:
    """A bank that is there. Raises `NotFound`."""
    bank = store.bank(id, BY_HAND)
    if not bank.exists():
        names = ", ".join(sorted(store.banks())[:20])
        raise NotFound(f"no memory bank called '{id}' (there are: {names})" if names else NO_MEMORIES)
    return bank


def _check_folder(args: Namespace) -> bool:
    """Whether a folder is meant. Raises `BadRequest` for options that contradict each other."""
    if args.format == "markdown" and not args.folder:
        raise BadRequest("--format markdown wants --folder DIR")
    if args.format == "jsonl" and args.folder:
        raise BadRequest("--folder is for --format markdown")
    if not args.folder and (args.dry_run or getattr(args, "prune", False)):
        raise BadRequest("--dry-run and --prune are for a --folder")
    return args.folder is not None


def _export(workspace: Workspace, args: Namespace) -> int:
    bank = bank_there(workspace.memory, args.bank)
    if _check_folder(args):
        return _told(args, {"export": Folder(bank, args.folder).export(dry_run=args.dry_run)})
    count, shown = 0, written(args.output)
    with Output(args.output) as out:
        for line in bank.export():
            out.write(shown(line) + "\n")
            count += 1
    target = f" to {plain(args.output)}" if args.output else ""
    print(f"Exported {counted(count, 'memory')} of '{bank.id}'{target}", file=sys.stderr)
    return 0


def _sync(workspace: Workspace, args: Namespace) -> int:
    folder = Folder(workspace.memory.bank(args.bank, BY_HAND), args.folder)
    replies = {"import": folder.import_(prune=args.prune, dry_run=args.dry_run)}
    if not args.dry_run:  # what it would write depends on what it would have read
        replies["export"] = folder.export()
    return _told(args, replies)


_COUNTED = ("new", "changed", "written", "removed", "unchanged", "missing", "forgotten")


def _summary(name: str, reply: JSON) -> str:
    counts = ", ".join(f"{reply[key]:,} {key}" for key in _COUNTED if reply.get(key))
    return f"{name}{' (dry run)' if reply['dry_run'] else ''}: {counts or 'nothing to do'}"


def _told(args: Namespace, replies: dict[str, JSON]) -> int:
    """Prints what was done to a folder; 1 where something was left because both sides had changed it."""
    conflicts: dict[str, str] = {}
    for reply in replies.values():  # what could not be read is why it was not written
        conflicts = {entry["file"]: entry["reason"] for entry in reply["conflicts"]} | conflicts
    if args.json:
        print_json({"bank": bank_of(args), **replies})
        return 1 if conflicts else 0
    for name, reply in replies.items():
        print(_summary(name, reply))
    _say_what_stays(replies.get("import", {}), args.prune)
    for path, reason in list(conflicts.items())[:_NAMED]:
        print(f"  {plain(path)}: {plain(reason)}", file=sys.stderr)
    return 1 if conflicts else 0


def _say_what_stays(reply: JSON, prune: bool) -> None:
    """Why memories whose files are gone were not forgotten."""
    if reply.get("missing") and not prune:
        print("Of memories whose files are gone nothing was forgotten; --prune does.", file=sys.stderr)
    if reply.get("conflicts") and prune:
        print(
            "Nothing was forgotten: first mend these, since a file that was left is none that is gone.",
            file=sys.stderr,
        )


def _take_in(bank: MemoryBank, source: Source, args: Namespace) -> JSON:
    """What was imported of a file. Raises `BadRequest` that names it."""
    try:
        if args.product is not None:
            return import_from(bank, args.product, source._replace(user=args.user))
        return bank.import_(_text_of(source).split("\n"))
    except BadRequest as error:
        name = "standard input" if args.file == "-" else plain(args.file)
        mend = "" if args.product else "; --from NAME reads what another product wrote"
        raise BadRequest(f"{name}: {error.message}{mend}") from error


def _check_content(source: Source, args: Namespace) -> None:
    if source.path is not None and args.product is None and not source.content:
        raise BadRequest(
            f"{plain(args.file)} is empty, or a folder: --folder reads a folder of memories, --from NAME "
            "another product's"
        )


def _import(workspace: Workspace, args: Namespace) -> int:
    if _check_folder(args):
        return _import_folder(workspace, args)
    source = piped_source(sys.stdin.buffer) if args.file == "-" else read_source(args.file)
    _check_content(source, args)
    origin = Provenance(pack=args.product, transport="cli", tool="import")
    bank = workspace.memory.bank(_target_of(workspace, args), origin)
    counts = _take_in(bank, source, args)
    if args.json:
        print_json({"bank": bank.id, **counts})
    else:
        print(f"Imported {counts['imported']:,} into '{bank.id}'; {counts['skipped']:,} were there already.")
        _name_what_was_left(counts)
    return 1 if counts.get("conflicts") or counts.get("unread") else 0


def _text_of(source: Source) -> str:
    try:
        return source.content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest("not an export: it is not UTF-8") from error


def _target_of(workspace: Workspace, args: Namespace) -> str:
    """The bank that an import goes into: the one that is named, else that of the product's pack, where this
    has one of its own.
    """
    private = args.product in SHIPPED_PACKS and args.product != "hindsight"
    if args.bank is None and private and not workspace.config.memory.shared:
        return f"{OWN_BANK}{args.product}"
    return bank_of(args)


def _import_folder(workspace: Workspace, args: Namespace) -> int:
    if not os.path.isdir(args.folder):
        raise BadRequest(f"--folder: {plain(args.folder)} is no folder that is there")
    folder = Folder(workspace.memory.bank(bank_of(args), BY_HAND), args.folder)
    return _told(args, {"import": folder.import_(prune=args.prune, dry_run=args.dry_run)})


def _name_what_was_left(counts: JSON) -> None:
    for id in counts.get("conflicts", []):
        print(f"  {id}: it says something else here; it was left as it is", file=sys.stderr)
    unread = counts.get("unread", [])
    for entry in unread[:_NAMED]:
        print(f"  {plain(entry['where'])}: {plain(entry['reason'])}", file=sys.stderr)
    if len(unread) > _NAMED:
        print(f"  and {len(unread) - _NAMED:,} more; --json names them all", file=sys.stderr)


MOVING: dict[str, Run] = {"export": _export, "import": _import, "sync": _sync}
