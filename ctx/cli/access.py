"""`ctx trust`: trusts a project's configuration, the scripts that it names and those in its `.ctx` folder.

`ctx key`: creates, lists and revokes the keys of a shared server.
"""

import os
from argparse import Namespace
from contextlib import closing

from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import Requests, bullets, configuration, project_location, requests_of, scripts_of
from ctx.cli.output import table, tell
from ctx.cli.registry import trust_scripts
from ctx.config.find import project_root, trusted_as
from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.trust_file import TrustFile, project_scripts, trust_path
from ctx.errors import BadRequest, StoreError
from ctx.models import record_json
from ctx.server.keys import EVERY_BANK, Keys, key_ring
from ctx.text.strings import one_line

HEADERS = ("KIND", "NAME", "STATE", "SHA-256")


# -- trust ---------------------------------------------------------------------------------------------------


def trust_options(options: Parser) -> None:
    """Trust this project's configuration, if it asks for more than reading its own folder, the scripts
    that it names, and those of the .ctx folder. Review them first: each is trusted by its hash.

    ctx trust --list
    ctx trust ctx.toml
    """
    names = (
        "a script's name, the configuration's, or registry:NAME/tools/SCRIPT (default: all of the project)"
    )
    options.add_argument("names", nargs="*", metavar="NAME", help=names)
    options.add_argument(
        "--list", action="store_true", help="only show what is trusted and what each asks for"
    )
    options.add_argument("--revoke", action="store_true", help="stop trusting them")


def run_trust(args: Namespace) -> int:
    if any(name.startswith(REGISTRY_PREFIX) for name in args.names):
        return trust_scripts(args)
    location = project_location(args.config)
    file = TrustFile(trust_path(os.environ))
    digests = file.digests()
    configured = requests_of(location)
    pinned = scripts_of(location, digests)
    scripts = [*pinned, *project_scripts(project_root(location.path), digests)]
    unknown = set(args.names) - {script.name for script in scripts} - {configured.name}
    if unknown:
        raise BadRequest(
            f"no {', '.join(sorted(unknown))} in .ctx/tools or .ctx/agents, "
            f"and the configuration is {configured.name}"
        )
    included = not args.names or configured.name in args.names
    picked = [
        script
        for script in scripts
        if not args.names or script.name in args.names or (included and script in pinned)
    ]
    trusted = digests.get(trusted_as(configured.path)) == configured.digest
    if included and configured.lines and not args.json:
        print(f"{one_line(configured.name)} asks for more than reading its own folder:")
        print(bullets(configured.lines), flush=True)
    if not args.list:
        changes = {script.path: script.digest for script in picked}
        if included and (args.revoke or configured.lines):
            changes[trusted_as(configured.path)] = configured.digest
            trusted = not args.revoke
        file.record(dict.fromkeys(changes) if args.revoke else changes)
        picked = [script._replace(trusted=not args.revoke) for script in picked]
    rows = [
        (script.kind, script.name, "trusted" if script.trusted else "NOT trusted", script.digest[:16])
        for script in picked
    ]
    if included:
        state = _state(configured, trusted)
        rows.insert(0, ("configuration", configured.name, state, configured.digest[:16]))
    reply = {
        "configuration": {
            "name": configured.name,
            "sha256": configured.digest,
            "trusted": trusted or configured.chosen or not configured.lines,
            "asks": configured.lines,
        },
        "scripts": [
            {"kind": script.kind, "name": script.name, "sha256": script.digest, "trusted": script.trusted}
            for script in picked
        ],
    }
    notes = [] if picked else ["This project has no scripts."]
    return tell(args.json, reply, table(rows, HEADERS), *notes)


def _state(configured: Requests, trusted: bool) -> str:
    if not configured.lines:
        return "asks for nothing"
    return "trusted" if trusted else "named" if configured.chosen else "NOT trusted"


# -- key -----------------------------------------------------------------------------------------------------


def key_options(options: Parser) -> None:
    """Keys for a shared server: for everything, or for single memory banks.

    ctx key create laptop
    ctx key create ana --bank ana
    """
    actions = actions_of(options)
    create = action(actions, "create", "make a key and print it once")
    create.add_argument("name", help="who or what it is for")
    create.add_argument("--bank", action="append", default=[], help="only this memory bank (may be repeated)")
    action(actions, "list", "list the names of keys, their banks and when they were made")
    revoke = action(actions, "revoke", "revoke a key at once")
    revoke.add_argument("name", help="its name or id")


def run_key(args: Namespace) -> int:
    config = configuration(args.config)
    try:
        with closing(key_ring(config)) as ring:
            return {"create": _create, "list": _list, "revoke": _revoke}[args.action](ring, args)
    except OSError as error:
        raise StoreError(f"the keys in {config.folder} cannot be changed: {error.strerror}") from error


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
