"""`ctx key create|list|revoke`."""

from argparse import Namespace
from typing import Any

from ctx.cli.configuration import configuration
from ctx.cli.options import Parser, action, actions_of, describe
from ctx.cli.output import table, tell
from ctx.errors import StoreError
from ctx.models import record_json
from ctx.server.keys import EVERY_BANK, Keys, key_ring


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Keys for a shared server: for everything, or for single memory banks.",
        "ctx key create laptop",
        "ctx key create ana --bank ana",
        json=True,
    )
    actions = actions_of(options, "create|list|revoke")
    create = action(actions, "create", "make a key and print it once")
    create.add_argument("name", help="who or what it is for")
    create.add_argument("--bank", action="append", default=[], help="only this memory bank (may be repeated)")
    action(actions, "list", "list the names of keys, their banks and when they were made")
    revoke = action(actions, "revoke", "revoke a key at once")
    revoke.add_argument("name", help="its name or id")


def run(command: str, args: Namespace) -> int:
    config = configuration(args.config)
    ring = key_ring(config)
    try:
        return _ACTIONS[args.action](ring, args)
    except OSError as error:
        raise StoreError(f"the keys in {config.folder} cannot be changed: {error.strerror}") from error
    finally:
        ring.close()


def _create(ring: Keys, args: Any) -> int:
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


def _revoke(ring: Keys, args: Any) -> int:
    record = ring.revoke(args.name)
    return tell(args.json, {"revoked": record.id}, f"Revoked '{record.name}' ({record.id}).")


def _list(ring: Keys, args: Any) -> int:
    keys = [record_json(record, omit=("sha256",)) for record in ring.list()]
    rows = [
        (key["id"], key["name"], ", ".join(key["banks"]), key["created_at"], key["revoked_at"] or "-")
        for key in keys
    ]
    absent = "No keys: every program on this machine can use the server. `ctx key create NAME` makes one."
    return tell(
        args.json,
        {"keys": keys},
        table(rows, ("ID", "NAME", "BANKS", "CREATED", "REVOKED")) if rows else absent,
    )


_ACTIONS = {"create": _create, "list": _list, "revoke": _revoke}
