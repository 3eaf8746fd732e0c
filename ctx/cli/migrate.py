"""`ctx migrate`: moves a store to a database, or back to a file."""

import os
import sys

from ctx.cli.common import configuration, parser, plain, print_json
from ctx.config import Config
from ctx.errors import BadRequest, StoreError
from ctx.migration import migrate
from ctx.store.lock import WriterLock


def run(command: str, argv: list[str]) -> int:
    options = parser(
        "migrate",
        "Copy a store (documents, embeddings, memories, keys, sessions, what scripts keep) to another one "
        "under the same ids, and compare the two. It may be broken off and run again. Stop whoever writes.",
        json=True,
    )
    options.add_argument(
        "--to", required=True, metavar="STORE", help="postgresql://..., or the path of a file"
    )
    options.add_argument(
        "--from", dest="origin", metavar="STORE", help="likewise (default: the store of the configuration)"
    )
    options.add_argument("--replace", action="store_true", help="drop what only the target holds")
    args = options.parse_args(argv)
    config = configuration(args.config)
    origin_place = _place(args.origin) if args.origin else config.store.url or config.db.path
    target_place = _place(args.to)
    if "://" not in origin_place + target_place:
        raise BadRequest(
            "one of the two stores must be a database; `ctx backup` and `ctx restore` copy one that is a file"
        )
    if origin_place == target_place:
        raise BadRequest("--to names the store that is to be moved; name another")
    if "://" not in origin_place and not os.path.exists(origin_place):
        raise StoreError(f"there is no catalog to move: {plain(origin_place)} is not there")
    return _moved(config, origin_place, target_place, replace=args.replace, as_json=args.json)


def _place(text: str) -> str:
    return text if "://" in text else os.path.abspath(os.path.expanduser(text))


def _moved(config: Config, origin_place: str, target_place: str, *, replace: bool, as_json: bool) -> int:
    def progress(step: str, count: int, total: int) -> None:
        if sys.stderr.isatty():
            print(f"\r\x1b[K{count:,} of {total:,} {step}", end="", file=sys.stderr, flush=True)

    with WriterLock(os.path.join(config.folder, "lock")):
        report = migrate(config, origin_place, target_place, replace=replace, progress=progress)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if as_json:
        print_json(report._asdict())
        return 0
    print(
        f"{report.documents:,} documents, {report.chunks:,} chunks and {report.embeddings:,} new embeddings "
        f"are there, and equal; {report.passed_over:,} documents were there before"
    )
    print(
        f"{report.memories:,} memories in {report.banks:,} banks, {report.keys:,} keys, {report.sessions:,} "
        f"sessions and {report.values:,} values of scripts are there, and equal"
    )
    print(
        "Now name it in ctx.toml: [store] url; `ctx index` builds the index from it without embedding "
        "anything."
        if "://" in target_place
        else "Now take [store] url out of ctx.toml, and set [db] path to it."
    )
    return 0
