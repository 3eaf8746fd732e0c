"""Where the memories are: `ctx memory adopt`, `gone` and `forget-project`, and what `ctx doctor` says."""

import os
from argparse import Namespace
from collections.abc import Iterator

from ctx.cli.configuration import memory_configuration
from ctx.cli.output import ago, plain, table, tell
from ctx.config import Config
from ctx.data_folder import Entry, entries, entry_named, forget, projects_folder
from ctx.errors import BadRequest, StoreError
from ctx.memory.location import adopt_old, adopt_other, count_memories, locate, loss, problems
from ctx.memory.salvage import Salvage, restore
from ctx.memory.split import holds_old
from ctx.text.strings import counted

OLD = ".ctx"  # the argument of `adopt` for the store of an earlier version
OK, WARNING, FAILED = "ok", "warning", "failed"
Row = tuple[str, str, str]
"""A finding of doctor: what, state, detail."""


def run(args: Namespace) -> int:
    return {"adopt": _adopt, "gone": _gone, "forget-project": _forget}[args.action](args)


def _adopt(args: Namespace) -> int:
    config = memory_configuration(args.config)
    if config.store.url:
        raise BadRequest(
            "the memories are in the database of [store] url; use `ctx memory import` to add others"
        )
    if args.name.rstrip("/") in (OLD, config.folder):
        count = adopt_old(config, os.environ)
    else:
        count = adopt_other(config, os.environ, args.name)
    return tell(args.json, {"memories": count}, f"This project has {counted(count, 'memory')} now.")


def _gone(args: Namespace) -> int:
    rows = [entry for entry in entries(projects_folder(os.environ)) if entry.gone]
    listed = [_described(entry) for entry in rows]
    cells = [
        (
            entry.name,
            plain(entry.record.path),
            f"{_count(entry):,}",
            f"{entry.bytes / 1e6:,.1f} MB",
            ago(entry.record.seen_ms),
        )
        for entry in rows
    ]
    return tell(
        args.json,
        {"projects": listed},
        table(cells, ("NAME", "PROJECT WAS AT", "MEMORIES", "SIZE", "LAST USED"))
        if rows
        else "No memories of moved or deleted projects.",
        notes=["`ctx memory adopt NAME` gives them to this project, `forget-project NAME` deletes them."]
        if rows
        else (),
    )


def _described(entry: Entry) -> dict[str, str | int]:
    return {
        "name": entry.name,
        "path": entry.record.path,
        "memories": _count(entry),
        "bytes": entry.bytes,
    }


def _count(entry: Entry) -> int:
    try:
        return count_memories(os.path.join(entry.folder, "memory.db"))
    except StoreError:
        return 0


def _forget(args: Namespace) -> int:
    found = [entry_named(projects_folder(os.environ), name) for name in args.name]
    for entry in found:
        if not entry.gone:
            raise BadRequest(f"the project of '{entry.name}' is still at {entry.record.path}")
    counts = {entry.name: _count(entry) for entry in found}
    if args.yes:
        for entry in found:
            forget(entry)
    done = "Deleted" if args.yes else "Would delete (--yes does it)"
    lines = [f"{done}: {name}, {counted(count, 'memory')}" for name, count in counts.items()]
    return tell(args.json, {"deleted": bool(args.yes), "projects": counts}, *lines)


# -- doctor --------------------------------------------------------------------------------------------------


def findings(config: Config, *, fix: bool) -> Iterator[Row]:
    """Where the memories are, whether their file is sound, and what is missing; `fix` restores them."""
    if config.store.url:
        return
    location = locate(config, os.environ)
    memory = location.memory
    if location.waiting:
        detail = f"those in {config.folder} are not used: {location.waiting}"
        yield "memory", WARNING, f"{detail}; `ctx memory adopt .ctx` takes them over"
    elif os.path.lexists(memory) and (old := holds_old(location.catalog)):
        yield (
            "memory",
            WARNING,
            f"{location.catalog} holds {counted(old, 'memory')} of an earlier version, which are not used",
        )
    found = problems(memory)
    if not found:
        if os.path.isfile(memory):
            yield "memory", OK, f"kept in {memory}"
        return
    if not fix:
        for problem in found:
            detail = problem.removesuffix("; `ctx doctor` says more")
            yield (
                "memory",
                FAILED,
                f"{detail}. `ctx doctor --fix` restores what it can from the copies and the file",
            )
        return
    yield "memory", WARNING, f"had problems ({found[0]}); {_restored(restore(memory))}"
    if left := loss(memory):
        yield "memory", FAILED, left


def _restored(salvage: Salvage) -> str:
    begun = (
        f"{counted(salvage.from_copy, 'memory')} from the {salvage.copy}"
        if salvage.copy
        else "there was no copy"
    )
    parts = [begun, f"{salvage.from_rows:,} more read from the file itself"]
    if salvage.missing:
        parts.append(f"{counted(salvage.missing, 'memory')} could not be read anywhere")
    else:
        parts.append("no memory is missing")
    if salvage.aside:
        parts.append(f"the old file is {os.path.basename(salvage.aside)}")
    return "; ".join(parts)
