"""`ctx backup`, `ctx restore` and `ctx migrate` copy whole stores. `ctx key` creates, lists and revokes the
keys of a shared server.
"""

import os
from argparse import Namespace
from collections.abc import Mapping
from contextlib import closing
from typing import TYPE_CHECKING

from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import configuration
from ctx.cli.output import bars, plain, tell, tell_table
from ctx.clock import iso_utc
from ctx.cluster import needs_extra
from ctx.config import is_database
from ctx.errors import BadRequest, StoreError
from ctx.memory.location import holds_any
from ctx.models import JSON, record_json
from ctx.server.keys import EVERY_BANK, Keys, key_ring
from ctx.store.folder import WriterLock
from ctx.text.strings import counted
from ctx.workspace import open_workspace

if TYPE_CHECKING:
    from ctx.backup import Contents

NOUNS: Mapping[str, str] = {"document": "document", "embedding": "embedding", "memories": "memory record"}


def backup_options(options: Parser) -> None:
    """Write a snapshot of the store (documents, embeddings, memories, keys) to one file. A
    server may serve and index meanwhile.

    ctx backup ~/backups/notes.ctx
    ctx backup --json /mnt/nas/notes.ctx
    """
    options.add_argument("file", metavar="FILE", help="the file to write; an older backup there is replaced")


def restore_options(options: Parser) -> None:
    """Replace this project's store with a backup and rebuild its index. The backup is checked first;
    a store that is in use is refused.

    ctx restore ~/backups/notes.ctx
    ctx restore ~/backups/notes.ctx --replace
    """
    options.add_argument("file", metavar="FILE", help="a file that `ctx backup` wrote")
    options.flag("--replace", "replace the existing store")


def migrate_options(options: Parser) -> None:
    """Copy a store to another one with the same ids, and compare the two. It can be interrupted and
    run again. Stop everything that writes first.

    ctx migrate --to postgresql://ctx@db.example.com/ctx
    ctx migrate --from postgresql://ctx@db.example.com/ctx --to .ctx/ctx.db
    """
    add = options.add_argument
    add("--to", metavar="STORE", help="postgresql://..., or the path of a file (default: the store in use)")
    add("--from", dest="origin", metavar="STORE", help="the same")
    options.flag("--replace", "drop what only the target has")


def run_backup(args: Namespace) -> int:
    config = configuration(args.config)
    if config.store.url:
        raise BadRequest("the catalog is in the database of [store] url: back that up, such as with pg_dump")
    if not holds_any(config, os.environ):
        raise StoreError("nothing to back up: nothing is indexed yet; run `ctx index` first")
    path = os.path.abspath(os.path.expanduser(args.file))
    if not os.path.isdir(os.path.dirname(path)):
        raise BadRequest(f"there is no folder {os.path.dirname(path)} to write a backup to; create it first")
    from ctx.backup import back_up, store_of  # 200 ms

    contents = back_up(store_of(config), path)
    size = os.stat(path).st_size
    line = f"Wrote {plain(args.file)}: {_counts(contents.rows)}, {size / 1e6:,.1f} MB"
    return tell(args.json, _contents_json(contents) | {"file": path, "bytes": size}, line)


def run_restore(args: Namespace) -> int:
    config = configuration(args.config)
    if config.store.url:
        hint = "restore the backup without [store] url, then `ctx migrate --to` that database"
        raise BadRequest(f"the catalog is in the database of [store] url: {hint}")
    from ctx.backup import restore, store_of  # 200 ms

    path = os.path.abspath(os.path.expanduser(args.file))
    contents = restore(path, store_of(config), replace=args.replace)
    with open_workspace(config) as workspace:
        workspace.indexer.repair()
        strays = [status.name for status in workspace.unconfigured()]
    return tell(
        args.json,
        _contents_json(contents) | {"not_configured": strays},
        f"Restored {_counts(contents.rows)}, as of {iso_utc(contents.created_ms)}",
        *(f"{plain(name)}: not configured here; its documents are kept and searched" for name in strays),
    )


def _counts(rows: Mapping[str, int]) -> str:
    return ", ".join(counted(rows.get(table, 0), noun) for table, noun in NOUNS.items())


def _contents_json(contents: "Contents") -> dict[str, JSON]:
    rows = {f"{noun.replace(' ', '_')}s": contents.rows.get(table, 0) for table, noun in NOUNS.items()}
    return {"created_at": iso_utc(contents.created_ms), "version": contents.version, **rows}


def run_migrate(args: Namespace) -> int:
    if not (args.to or args.origin):
        raise BadRequest("name the target (--to) or the origin (--from): postgresql://..., or a file")
    with needs_extra("ctx migrate", "PostgreSQL"):
        from ctx.cluster.migrate import SAME, migrate  # 250 ms

    config = configuration(args.config)
    own = config.store.url or config.db.path
    origin, target = _place("--from", args.origin, own), _place("--to", args.to, own)
    if not (is_database(origin) or is_database(target)):
        raise BadRequest("one of the two must be a database; `ctx backup` and `ctx restore` copy files")
    if origin == target:
        raise BadRequest(SAME)
    if not is_database(origin) and not os.path.exists(origin):
        raise StoreError(f"there is no catalog to move: {plain(origin)} does not exist")

    with WriterLock(os.path.join(config.folder, "lock")), bars() as progress:
        report = migrate(
            config, origin, target, replace=args.replace, progress=progress or (lambda *step: None)
        )
    naming = "take [store] url out of ctx.toml, and set [db] path to it; "
    if is_database(target):
        naming = "name it in ctx.toml ([store] url); "
    naming = "" if target == own else naming
    nouns = {"documents": "document", "chunks": "chunk", "embeddings": "new embedding"}
    nouns |= {"memories": "memory", "keys": "key", "sessions": "session", "values": "script value"}
    counts = ", ".join(counted(getattr(report, name), noun) for name, noun in nouns.items())
    return tell(
        args.json,
        report._asdict(),
        f"Copied and compared: {counts}.",
        f"{counted(report.passed_over, 'document')} already existed.",
        f"Now {naming}`ctx index` builds the index from it without embedding anything.",
    )


def _place(option: str, text: str | None, own: str) -> str:
    if not text:
        return own
    if is_database(text):
        return text
    if "://" in text:
        hint = "name postgresql://user@host/database, or a file"
        raise BadRequest(f"{option}: '{plain(text.partition('://')[0])[:40]}' is not supported; {hint}")
    return os.path.abspath(os.path.expanduser(text))


# -- key -----------------------------------------------------------------------------------------------------


def key_options(options: Parser) -> None:
    """Keys for a shared server: for everything, or for single memory banks.

    ctx key create laptop
    ctx key create ana --bank ana
    """
    actions = actions_of(options)
    create = action(actions, "create", "make a key and print it once", _create)
    create.add_argument("name", help="who or what it is for")
    create.add_argument("--bank", action="append", default=[], help="only this memory bank (may be repeated)")
    action(actions, "list", "list the names of keys, their banks and when they were made", _list)
    revoke = action(actions, "revoke", "revoke a key at once", _revoke)
    revoke.add_argument("name", help="its name or id")


def run_key(args: Namespace) -> int:
    with closing(key_ring(configuration(args.config))) as ring:
        return int(args.run(ring, args))


def _create(ring: Keys, args: Namespace) -> int:
    key, record = ring.create(args.name, args.bank or [EVERY_BANK])
    banks = "every bank" if EVERY_BANK in record.banks else ", ".join(record.banks)
    return tell(
        args.json,
        {"key": key, "id": record.id, "name": record.name, "banks": list(record.banks)},
        key,
        notes=[
            f"Made '{record.name}' for {banks}. It is shown only once. Clients send it as",
            "  Authorization: Bearer KEY",
        ],
    )


def _revoke(ring: Keys, args: Namespace) -> int:
    record = ring.revoke(args.name)
    return tell(args.json, {"revoked": record.id}, f"Revoked '{record.name}' ({record.id}).")


def _list(ring: Keys, args: Namespace) -> int:
    keys = [record_json(record, omit=("sha256",)) for record in ring.list()]
    names = ("id", "name", "banks")
    columns = {**{name.upper(): name for name in names}, "CREATED": "created_at", "REVOKED": "revoked_at"}
    absent = "No keys: every program on this machine can use the server. `ctx key create NAME` makes one."
    return tell_table(args.json, {"keys": keys}, keys, columns, absent)
