"""`ctx migrate`: moves a store to a database, or back to a file."""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ctx.cli.common import configuration, plain, tell
from ctx.cli.options import Parser, describe
from ctx.cluster import needs_extra
from ctx.config import Config, is_database
from ctx.errors import BadRequest, StoreError
from ctx.store.lock import WriterLock
from ctx.text import counted

if TYPE_CHECKING:
    from ctx.cluster.migrate import Report


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Copy a store (documents, embeddings, memories, keys, sessions, what scripts keep) to another one "
        "under the same ids, and compare the two. It may be broken off and run again. Stop whoever writes.",
        json=True,
    )
    options.add_argument("--to", metavar="STORE", help="postgresql://..., or the path of a file")
    options.add_argument(
        "--from",
        dest="origin",
        metavar="STORE",
        help="likewise; where only one of the two is named, the other is the store of the configuration",
    )
    options.add_argument("--replace", action="store_true", help="drop what only the target holds")


def run(command: str, args: Namespace) -> int:
    if not (args.to or args.origin):
        raise BadRequest(
            "name where the store goes (--to) or comes from (--from): postgresql://..., or a file"
        )
    with needs_extra("ctx migrate", "PostgreSQL"):
        from ctx.cluster.migrate import SAME  # 250 ms, as the import below

    config = configuration(args.config)
    own_place = config.store.url or config.db.path
    origin_place = _place("--from", args.origin) if args.origin else own_place
    target_place = _place("--to", args.to) if args.to else own_place
    if "://" not in origin_place + target_place:
        raise BadRequest(
            "one of the two stores must be a database; `ctx backup` and `ctx restore` copy one that is a file"
        )
    if origin_place == target_place:
        raise BadRequest(SAME)
    if "://" not in origin_place and not os.path.exists(origin_place):
        raise StoreError(f"there is no catalog to move: {plain(origin_place)} is not there")
    return _moved(config, origin_place, target_place, replace=args.replace, as_json=args.json)


def _place(option: str, text: str) -> str:
    scheme, separator, _ = text.partition("://")
    if not separator:
        return os.path.abspath(os.path.expanduser(text))
    if not is_database(text):
        raise BadRequest(
            f"{option}: '{plain(scheme)[:40]}' is nothing that a store is kept in; name "
            "postgresql://user@host/database, or a file"
        )
    return text


def _moved(config: Config, origin_place: str, target_place: str, *, replace: bool, as_json: bool) -> int:
    def progress(step: str, count: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{count:,} of {total:,} {step}", end="", file=sys.stderr, flush=True)

    from ctx.cluster.migrate import migrate

    with WriterLock(os.path.join(config.folder, "lock")):
        report = migrate(config, origin_place, target_place, replace=replace, progress=progress)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    configured = target_place == (config.store.url or config.db.path)
    return tell(as_json, report._asdict(), *_lines(report, target_place, configured=configured))


def _lines(report: "Report", target_place: str, *, configured: bool) -> Iterator[str]:
    yield (
        f"{counted(report.documents, 'document')}, {counted(report.chunks, 'chunk')} and "
        f"{counted(report.embeddings, 'new embedding')} are there, and equal; "
        f"{counted(report.passed_over, 'document')} there before"
    )
    yield (
        f"{counted(report.memories, 'memory')} in {counted(report.banks, 'bank')}, "
        f"{counted(report.keys, 'key')}, {counted(report.sessions, 'session')} and "
        f"{counted(report.values, 'value')} of scripts are there, and equal"
    )
    naming = ""
    if not configured and is_database(target_place):
        naming = "name it in ctx.toml ([store] url); "
    elif not configured:
        naming = "take [store] url out of ctx.toml, and set [db] path to it; "
    yield f"Now {naming}`ctx index` builds the index from it without embedding anything."
