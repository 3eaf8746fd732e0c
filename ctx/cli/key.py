"""`ctx key create|list|revoke`."""

import sys

from ctx.assemble import key_ring
from ctx.cli.common import action, configuration, parser, print_json, table
from ctx.clock import iso_utc
from ctx.server.keys import EVERY_BANK


def run(command: str, argv: list[str]) -> int:
    options = parser(
        "key", "Keys for a shared server: for everything, or for single memory banks.", json=True
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="create|list|revoke")
    create = action(actions, "create", "make a key and print it, this once")
    create.add_argument("name", help="who or what it is for")
    create.add_argument("--bank", action="append", default=[], help="only this memory bank (may be repeated)")
    action(actions, "list", "list the keys; the keys themselves are not stored")
    revoke = action(actions, "revoke", "end a key, at once")
    revoke.add_argument("name", help="its name or id")
    args = options.parse_args(argv)
    ring = key_ring(configuration(args.config, required=False))
    if args.action == "create":
        key, record = ring.create(args.name, args.bank or [EVERY_BANK])
        if args.json:
            print_json({"key": key, "id": record.id, "name": record.name, "banks": list(record.banks)})
        else:
            print(key)
            print(
                f"Made '{record.name}' for {'every bank' if EVERY_BANK in record.banks else ', '.join(record.banks)}. It is shown this once; clients send it as",
                file=sys.stderr,
            )
            print("  Authorization: Bearer KEY", file=sys.stderr)
        return 0
    if args.action == "revoke":
        record = ring.revoke(args.name)
        print_json({"revoked": record.id}) if args.json else print(f"Revoked '{record.name}' ({record.id}).")
        return 0
    records = ring.list()
    if args.json:
        print_json(
            {
                "keys": [
                    {
                        "id": record.id,
                        "name": record.name,
                        "banks": list(record.banks),
                        "created_at": iso_utc(record.created_ms),
                        "revoked_at": None if record.revoked_ms is None else iso_utc(record.revoked_ms),
                    }
                    for record in records
                ]
            }
        )
    elif not records:
        print(
            "No keys: on this machine every door is open to every program. `ctx key create NAME` makes one."
        )
    else:
        rows = [
            (
                r.id,
                r.name,
                ", ".join(r.banks),
                iso_utc(r.created_ms),
                "-" if r.revoked_ms is None else iso_utc(r.revoked_ms),
            )
            for r in records
        ]
        print(table(rows, ("ID", "NAME", "BANKS", "CREATED", "REVOKED")))
    return 0
