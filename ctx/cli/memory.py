"""`ctx memory banks|export|import`."""

import argparse
import os
import sys
from typing import Any

from ctx.cli.common import parser, plain, print_json, table
from ctx.cli.serve import memory_configuration
from ctx.errors import BadRequest, NotFound
from ctx.memory import MemoryStore, Provenance
from ctx.memory.products import PRODUCTS, import_replies
from ctx.packs.packs import OWN_BANK
from ctx.packs.settings import SHIPPED
from ctx.workspace import Workspace, open_workspace

DEFAULT_BANK = "default"


def run(command: str, argv: list[str]) -> int:
    options = parser("memory", "Export and import memories.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="banks|export|import")
    banks = actions.add_parser("banks", help="list the banks", allow_abbrev=False)
    export = actions.add_parser(
        "export", allow_abbrev=False, help="write a bank's memories, one line of JSON each"
    )
    export.add_argument(
        "--bank",
        default=DEFAULT_BANK,
        help=f"which bank (default: {DEFAULT_BANK}); `ctx memory banks` lists them",
    )
    export.add_argument("-o", "--output", metavar="FILE", help="where to (standard output when absent)")
    importing = actions.add_parser(
        "import", allow_abbrev=False, help="read what export wrote, or what another product's tools replied"
    )
    importing.add_argument("file", nargs="?", default="-", help="the file; - or nothing: standard input")
    importing.add_argument("--bank", help="into which bank (default: that of the pack, else default)")
    importing.add_argument(
        "--from",
        dest="product",
        choices=PRODUCTS,
        help="the product whose replies these are: retrieve_memory, recall or memory_export",
    )
    for action in (banks, export, importing):  # `--json` and `--config` count before and after the action
        action.add_argument(
            "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
        )
        action.add_argument(
            "--config", metavar="PATH", default=argparse.SUPPRESS, help="the configuration file"
        )
    args = options.parse_args(argv)
    with open_workspace(memory_configuration(args.config)) as workspace:
        if args.action == "banks":
            return _banks(workspace.memory, as_json=args.json)
        if args.action == "export":
            return _export(workspace.memory, args.bank, args.output)
        return _import(workspace, args.file, args.bank, args.product, as_json=args.json)


def _banks(store: MemoryStore, *, as_json: bool) -> int:
    counts = [(name, store.bank(name).count()) for name in sorted(store.banks())]
    if as_json:
        print_json({"banks": [{"bank": name, "memories": count} for name, count in counts]})
    elif counts:
        print(table([(name, f"{count:,}") for name, count in counts], ("BANK", "MEMORIES")))
    else:
        print("No memories yet.")
    return 0


def _export(store: MemoryStore, bank_id: str, output: str | None) -> int:
    bank = store.bank(bank_id)
    if not bank.exists():
        known = ", ".join(sorted(store.banks())) or "none"
        raise NotFound(f"no memory bank called '{bank_id}' (there are: {known})")
    count = 0
    partial = f"{output}.partial" if output else None
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600) if partial else os.dup(1)
    with os.fdopen(descriptor, "wb") as out:
        for line in bank.export():
            out.write(line.encode("utf-8", "replace") + b"\n")
            count += 1
    if partial and output:
        os.replace(partial, output)
    print(
        f"Exported {count:,} memories of '{bank_id}'" + (f" to {plain(output)}" if output else ""),
        file=sys.stderr,
    )
    return 0


def _import(
    workspace: Workspace, file: str, bank_id: str | None, product: str | None, *, as_json: bool
) -> int:
    content = _read(file)
    own = product in SHIPPED and product != "hindsight" and not workspace.config.memory.shared
    bank = workspace.memory.bank(
        bank_id or (f"{OWN_BANK}{product}" if own else DEFAULT_BANK),
        Provenance(pack=product, transport="cli", tool="import"),
    )
    done: dict[str, Any]
    if product is not None:
        done = dict(import_replies(bank, product, content))
    else:
        try:
            done = bank.import_(content.decode("utf-8").split("\n"))
        except UnicodeDecodeError as error:
            raise BadRequest("not an export: it is not UTF-8") from error
    if as_json:
        print_json({"bank": bank.id, **done})
    else:
        print(f"Imported {done['imported']:,} into '{bank.id}'; {done['skipped']:,} were there already.")
        conflicts: list[str] = done.get("conflicts", [])
        for id in conflicts:
            print(f"  {id}: another memory has this id; it was left as it is", file=sys.stderr)
    return 1 if done.get("conflicts") else 0


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise BadRequest(f"{plain(file)} cannot be read: {error.strerror}") from error
