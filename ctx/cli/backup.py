"""`ctx backup` and `ctx restore`."""

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import TYPE_CHECKING

from ctx.cli.common import configuration, plain, tell
from ctx.cli.options import Parser, describe
from ctx.clock import iso_utc
from ctx.errors import BadRequest, StoreError
from ctx.text import counted
from ctx.types import JSON
from ctx.workspace import open_workspace

if TYPE_CHECKING:
    from ctx.backup import Contents

NOUNS: Mapping[str, str] = {"document": "document", "embedding": "embedding", "memories": "memory record"}


def add_options(command: str, options: Parser) -> None:
    if command == "restore":
        _restore_options(options)
    else:
        _back_up_options(options)


def run(command: str, args: Namespace) -> int:
    return _restore(args) if command == "restore" else _back_up(args)


def _back_up_options(options: Parser) -> None:
    describe(
        options,
        "Write the store (documents, embeddings, memories, keys) to one file, as it is at one moment. "
        "A server may serve and index meanwhile.",
        json=True,
    )
    options.add_argument("file", metavar="FILE", help="where to; a backup that is there is replaced")


def _back_up(args: Namespace) -> int:
    config = configuration(args.config)
    if config.store.url:
        raise BadRequest(
            "the catalog is in the database of [store] url: back that up (pg_dump, or its own archive)"
        )
    from ctx.memory.location import holds_any

    if not holds_any(config, os.environ):
        raise StoreError("nothing is indexed yet, so there is nothing to back up; run `ctx index` first")
    path = os.path.abspath(os.path.expanduser(args.file))
    if not os.path.isdir(os.path.dirname(path)):
        raise BadRequest(f"there is no folder {os.path.dirname(path)} to write a backup to; make it first")
    from ctx.backup import back_up, store_of  # 200 ms

    contents = back_up(store_of(config), path)
    size = os.stat(path).st_size
    return tell(
        args.json,
        _contents_json(contents) | {"file": path, "bytes": size},
        f"Wrote {plain(args.file)}: {_counts(contents)}, {size / 1e6:,.1f} MB",
    )


def _restore_options(options: Parser) -> None:
    describe(
        options,
        "Make this project's store anew from a backup, and its index from that. The backup is checked before "
        "anything is touched; a store that is in use is refused.",
        json=True,
    )
    options.add_argument("file", metavar="FILE", help="what `ctx backup` wrote")
    options.add_argument(
        "--replace", action="store_true", help="put it in the place of the store that is here"
    )


def _restore(args: Namespace) -> int:
    config = configuration(args.config)
    if config.store.url:
        raise BadRequest(
            "the catalog is in the database of [store] url, which a backup of a file does not go into: "
            "restore it without [store] url, then `ctx migrate --to` that database"
        )
    path = os.path.abspath(os.path.expanduser(args.file))
    from ctx.backup import restore, store_of  # 200 ms

    contents = restore(path, store_of(config), replace=args.replace)
    with open_workspace(config) as workspace:
        workspace.indexer.repair()
        strays = [status.name for status in workspace.unconfigured()]
    return tell(
        args.json,
        _contents_json(contents) | {"not_configured": strays},
        f"Restored {_counts(contents)}, as they were at {iso_utc(contents.created_ms)}",
        *(f"{plain(name)}: not configured here; its documents are kept and found" for name in strays),
    )


def _counts(contents: "Contents") -> str:
    parts = [counted(contents.rows.get(table, 0), noun) for table, noun in NOUNS.items()]
    return ", ".join(parts)


def _contents_json(contents: "Contents") -> dict[str, JSON]:
    rows = {f"{noun.replace(' ', '_')}s": contents.rows.get(table, 0) for table, noun in NOUNS.items()}
    return {"created_at": iso_utc(contents.created_ms), "version": contents.version, **rows}
