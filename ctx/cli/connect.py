"""`ctx connect CLIENT`: writes this server into an editor's or an agent's own configuration.

Only files that parse as strict JSON or TOML are edited, only the one entry is touched (the rest of the text
stays as it is, byte for byte), and the old file stays beside it as `.bak`. What cannot be edited so is
printed, to be pasted. An entry bears its project's name, and one that leads elsewhere is replaced only on
demand. A key is never written: the entry names the environment variable that holds it, and where a client
cannot do that, it starts `ctx mcp --url` which can.
"""

import os
import re
import sys
from argparse import ArgumentTypeError, Namespace
from collections.abc import Sequence
from functools import cache
from typing import Any
from urllib.parse import urlsplit

from ctx.cli.clients import CLIENTS, Client, Server, expanded, installed
from ctx.cli.common import NO_PROJECT, configuration_at, plain, print_json, table
from ctx.cli.entries import Entry, edited, entries, illegibility, removed
from ctx.cli.foreign import Change, Outcome, file_at, own_command, read_text
from ctx.cli.hooks import BUDGET_TOKENS, HOOKED, connect_memory
from ctx.cli.options import Parser, describe
from ctx.cli.owners import owner, record
from ctx.cli.running import at_address, of_project, servers, state_folder
from ctx.config import Config
from ctx.errors import BadRequest, ConfigError, Conflict, CtxError, NotFound
from ctx.hosts import is_loopback
from ctx.project import Location, client_name, find_config, project_root
from ctx.server.address import local, remote
from ctx.text import did_you_mean
from ctx.types import JSON

_ADDRESSES = ("url", "httpUrl", "serverUrl", "uri")
_WAYS = (*_ADDRESSES, "command", "cmd", "args", "type")  # of leading somewhere
_OWN_STARTS = (["ctx", "mcp"], ["ctx.exe", "mcp"])


def run(command: str, args: Namespace) -> int:
    _check(args)
    location = find_config(args.config, os.environ, os.getcwd())
    of_user = location if args.scope != "project" else None  # a project's own file holds that project alone
    name = args.name or (client_name(project_root(of_user.path)) if of_user else "ctx")
    if args.list:
        return _list(name, _root(location, args), args.json)
    if args.all:
        return _connect_all(location, name, args)
    outcome = _of_one(location, name, args)
    if args.json:
        print_json({"name": name, **outcome.row()})
    else:
        outcome.show()
    return outcome.code


def add_options(command: str, options: Parser) -> None:
    describe(options, "Connect an editor or an agent to this server.", json=True)
    clients = sorted(CLIENTS)
    options.add_argument(
        "client", nargs="?", type=_client, choices=clients, metavar="CLIENT", help=", ".join(clients)
    )
    options.add_argument("--list", action="store_true", help="list the clients, and which are connected")
    options.add_argument("--all", action="store_true", help="connect every client that is installed here")
    options.add_argument("--remove", action="store_true", help="take this project's entry out again")
    options.add_argument(
        "--scope",
        choices=("user", "project"),
        help="for you everywhere (default), or for whoever opens this folder",
    )
    options.add_argument(
        "--name", help="what the client calls the server (default: ctx-PROJECT; in a project's own file ctx)"
    )
    options.add_argument(
        "--replace",
        action="store_true",
        help="replace an entry of that name that leads elsewhere, or take it out",
    )
    options.add_argument("--url", help="the server's address (default: [server] bind)")
    options.add_argument("--bank", help="a memory bank, as /mcp/BANK of that address")
    options.add_argument(
        "--memory",
        action="store_true",
        help="the client's hooks instead: recall when a session starts, capture what you asked to remember "
        f"when it ends ({', '.join(HOOKED)})",
    )
    options.add_argument(
        "--budget-tokens",
        type=int,
        metavar="N",
        help=f"of --memory: how much is recalled at most (default: {BUDGET_TOKENS})",
    )
    options.add_argument(
        "--stdio", action="store_true", help="let the client start `ctx mcp` itself, without a server"
    )
    options.add_argument(
        "--key-env",
        metavar="NAME",
        help="the environment variable that holds the key; the key itself is not written",
    )
    options.add_argument(
        "--print", action="store_true", help="print the entry and where it belongs; write nothing"
    )
    options.add_argument("--dry-run", action="store_true", help="show the change as a diff; write nothing")


def _client(name: str) -> str:
    """For argparse: the name of a client that we know."""
    if name in CLIENTS:
        return name
    hint = did_you_mean(name, CLIENTS)
    raise ArgumentTypeError(
        f"unknown client '{plain(name)}'; {hint}{'' if hint.endswith('?') else '.'} Any other MCP client can "
        "be given the address http://127.0.0.1:7331/mcp, or start the command `ctx mcp`"
    )


def _of_one(location: Location | None, name: str, args: Any) -> Outcome:
    if args.memory:
        return connect_memory(location, args)
    if args.remove:
        return _remove(args.client, location, name, args)
    return _connect(args.client, location, name, args)


def _check_client(args: Any) -> None:
    if not (args.client or args.list or args.all):
        raise BadRequest(f"name a client ({', '.join(sorted(CLIENTS))}), or --list or --all")


def _check(args: Any) -> None:
    """Raises `BadRequest` for options that make no sense, before anything is written."""
    _check_client(args)
    _check_names(args)
    if args.memory and not args.client:
        raise BadRequest("--memory wants a client's name")
    if args.budget_tokens is not None and not (args.memory and 50 <= args.budget_tokens <= 20_000):
        raise BadRequest("--budget-tokens is of --memory, from 50 to 20,000")
    if args.stdio and (args.url or args.key_env):
        raise BadRequest("--stdio is without a server; leave --url and --key-env out")
    if args.bank is not None:
        from ctx.memory.records import check_nameable  # 200 ms

        check_nameable(args.bank)  # what the server refuses would never answer


def _connect(key: str, location: Location | None, name: str, args: Any) -> Outcome:
    client = CLIENTS[key]
    server = _server(client, location, args)
    entry = bare = client.entry(server)
    snippet = edited(client.form, client.key, None, name, entry)
    assert snippet is not None  # an empty file can always be edited
    template = client.project if args.scope == "project" else client.user
    if template is None:
        return _paste(key, client, snippet, _server_notes(location, args, keyless=not server.piped), args)
    path = _path(client, template, name, shared=args.scope == "project")
    if args.print:
        return Outcome(key, "shown", path, f"# {path}\n{snippet}")
    content = read_text(path)
    present = entries(client.form, client.key, content)
    root = _root(location, args)
    if not args.replace and name in present:
        _check_replaced(client, present[name], entry, name)
        _check_owner(client, path, name, root)
        entry = _with_own(client, present[name], entry)
    keyless = entry == bare and not server.piped
    revised = edited(client.form, client.key, content, name, entry)
    if revised is None:
        return _by_hand(key, path, content, snippet)
    if revised == content:
        _own(path, name, root)
        connected = f"{client.title} is connected already: '{name}' in {path}"
        return Outcome(key, "unchanged", path, connected, _server_notes(location, args, keyless=keyless))
    notes = _notes(client, location, args, _twins(present, entry, name), keyless=keyless)
    change = Change(key, path, content, revised, args.scope != "project", args.dry_run)
    outcome = change.write(f"{client.title}: wrote '{name}' into {path}", _then(client, server, args), notes)
    if not args.dry_run:
        _own(path, name, root)
    return outcome


def _by_hand(key: str, path: str, content: str | None, snippet: str) -> Outcome:
    why = illegibility(CLIENTS[key].form, content) or "holds what cannot be edited safely"
    reason = f"{path} {why}, so it was left alone. Put this into it, if it is not there yet:"
    return Outcome(key, "by hand", path, snippet, preface=reason, code=1)


def _then(client: Client, server: Server, args: Any) -> list[str]:
    """What its user has to do, and to start."""
    if server.piped:
        return [client.then]
    start = "" if args.url else "ctx serve mcp  "
    return [client.then, f"The server has to run: {start}({server.url})"]


def _root(location: Location | None, args: Any) -> str | None:
    """The project that an entry is to be known as that of; None where its file or its address says that."""
    if location is None or args.url or args.scope == "project":
        return None
    return os.path.realpath(project_root(location.path))


def _own(path: str, name: str, root: str | None) -> None:
    if root is not None:
        record(path, name, root, os.environ)


def _paste(key: str, client: Client, snippet: str, notes: tuple[str, ...], args: Any) -> Outcome:
    """The entry of a client whose file is not written, and where it goes."""
    if args.scope == "project":
        raise BadRequest(f"{client.title} has no configuration of a project; use --scope user")
    preface = f"{client.title} is configured by hand: {client.then}"
    return Outcome(key, "by hand", None, snippet, notes, preface)


def _notes(
    client: Client, location: Location | None, args: Any, twins: Sequence[str], *, keyless: bool
) -> tuple[str, ...]:
    """What keeps a written entry from answering, or makes it answer for something else."""
    notes: list[str] = []
    if args.key_env and args.key_env not in os.environ:
        notes.append(f"{args.key_env} is not set here: export it where {client.title} is started")
    notes += _server_notes(location, args, keyless=keyless)
    if location is None and not args.url:
        notes.append(
            "Note: there is no ctx.toml here or in a folder above, so this leads to whichever project is "
            "served at the usual address; `ctx init` makes this folder one"
        )
    if twins:
        notes.append(
            f"Note: '{plain(twins[0])}' in that file has the same address. If it is another project's, give "
            "this one a port of its own, [server] bind in ctx.toml, and connect again with --replace"
        )
    return tuple(notes)


def _server_notes(location: Location | None, args: Any, *, keyless: bool) -> tuple[str, ...]:
    """What is said of the project's server that an entry leads to. `keyless`: it asks that without a key."""
    if location is None or args.url or args.stdio:
        return ()
    server = _configuration(location).server
    notes = _running_notes(location, server.bind)
    variable = server.api_key_env
    if variable and keyless and not args.key_env:
        notes.append(
            "Note: this server answers nobody without its key, and the entry brings none: connect again with "
            f"--key-env {plain(variable)}"
        )
    return tuple(notes)


def _running_notes(location: Location, bind: str) -> list[str]:
    """What is said where the project's server, or another project's, is not where `ctx.toml` says."""
    rows = servers(state_folder(os.environ))
    own, other = of_project(rows, project_root(location.path)), at_address(rows, bind)
    if own is not None and own != other:
        return [
            f"Note: this project is served at {own.address} now, and ctx.toml says {bind}: write bind = "
            f'"{own.address}" below [server] in ctx.toml, so that it is there the next time, too'
        ]
    if other is not None and own is None:
        from ctx.server.run import next_vacant  # 100 ms

        vacant = next_vacant(bind)
        port = f', bind = "{vacant}" say,' if vacant else ""
        return [
            f"Note: {bind} is where {plain(other.root)} is served now, so this entry leads to that project. "
            f"Give this one a port of its own{port} below [server] in ctx.toml, and connect again with "
            "--replace"
        ]
    return []


def target(entry: JSON) -> str:
    """Where an entry leads, for comparing and for telling: an address, or a command with its arguments."""
    if not isinstance(entry, dict):
        return str(entry)
    for key in _ADDRESSES:
        if isinstance(entry.get(key), str):
            return str(entry[key])
    command = entry.get("command", entry.get("cmd", ""))
    arguments = entry.get("args")
    words = [
        *map(str, command if isinstance(command, list) else [command]),
        *map(str, arguments if isinstance(arguments, list) else ()),
    ]
    if "--url" in words[:-1]:  # `ctx mcp --url` carries to the same place
        return words[words.index("--url") + 1]
    return " ".join([*map(os.path.basename, words[:1]), *words[1:]])


def _check_replaced(client: Client, present: JSON, entry: Entry, name: str) -> None:
    """Raises `Conflict` where an entry of that name leads elsewhere."""
    if target(present) != target(entry):
        raise Conflict(
            f"{client.title} has an entry '{name}' already, which leads to {plain(target(present))[:200]}: "
            "--replace puts this one in its place, --name NAME puts it beside"
        )


def _check_owner(client: Client, path: str, name: str, root: str | None) -> None:
    """Raises `Conflict` where the entry was written for another project, of the same name and address."""
    other = _other_owner(path, name, root)
    if other is not None:
        raise Conflict(
            f"{client.title}'s entry '{name}' is that of {plain(other)}, a project of the same name: give "
            "this one a port of its own, [server] bind in ctx.toml, and --name NAME, which puts it beside; "
            "--replace does away with the other"
        )


def _other_owner(path: str, name: str, root: str | None) -> str | None:
    """The project that an entry was written for, where it is another than that in `root`."""
    project = owner(path, name, os.environ)
    return project if root not in (None, project) else None


def _check_ours(client: Client, present: JSON, location: Location | None, name: str, args: Any) -> None:
    """Raises `Conflict` where an entry leads neither to this project's server nor to any ctx on this
    machine.
    """
    led = target(present)
    if led == remote(args.url or _bound(location), args.bank) or led.split(" ")[:2] in _OWN_STARTS:
        return
    parts = urlsplit(led)
    if is_loopback(parts.hostname or "") and (parts.path == "/mcp" or parts.path.startswith("/mcp/")):
        return
    raise Conflict(
        f"{client.title} has an entry '{name}' that leads to {plain(led)[:200]}, which is not this "
        "project's: --url with that address, or --replace, takes it out all the same"
    )


def _with_own(client: Client, present: JSON, entry: Entry) -> Entry:
    """Our entry with what its user has set beside (that it is off, say), where both lead there in one way."""
    ways = [{key for key in _WAYS if key in row} for row in (present, entry) if isinstance(row, dict)]
    if len(ways) < 2 or ways[0] != ways[1] or client.form == "yaml":  # a file of ours alone
        return entry
    tables = {
        key: {**present[key], **row}
        for key, row in entry.items()
        if isinstance(row, dict) and isinstance(present.get(key), dict)
    }
    return {**present, **entry, **tables}


def _twins(present: dict[str, JSON], entry: Entry, name: str) -> list[str]:
    """Other entries of the same address: one port serves one project, and each asks whichever of them
    runs.
    """
    return [label for label, row in present.items() if label != name and target(row) == target(entry)]


def _check_names(args: Any) -> None:
    if args.name and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", args.name):
        raise BadRequest("--name has letters, digits, '-' and '_', at most 64")
    if args.key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", args.key_env):
        raise BadRequest("--key-env takes the name of an environment variable, not the key itself")


def _connect_all(location: Location | None, name: str, args: Any) -> int:
    """Connects every client that is installed; one that fails does not keep the others."""
    chosen = [key for key, client in CLIENTS.items() if installed(client)]
    written = [key for key in chosen if args.remove or args.scope != "project" or CLIENTS[key].project]
    outcomes = [_one_of_all(key, location, name, args) for key in written]
    if args.json:
        print_json({"name": name, "clients": [outcome.row() for outcome in outcomes]})
    elif not chosen:
        print("No client is installed here that ctx knows; `ctx connect --list` lists them.")
    for outcome in [] if args.json else outcomes:
        outcome.show()
    return max((outcome.code for outcome in outcomes), default=0)


def _one_of_all(key: str, location: Location | None, name: str, args: Any) -> Outcome:
    try:
        return _remove(key, location, name, args) if args.remove else _connect(key, location, name, args)
    except CtxError as error:
        reason = f"{CLIENTS[key].title}: {plain(error.message)}"
        absent = args.remove and isinstance(error, NotFound)
        return Outcome(key, "unchanged" if absent else "failed", None, "", (reason,), code=0 if absent else 1)


def _list(name: str, root: str | None, as_json: bool) -> int:
    """Prints every client, whether it is here, and what it calls this project's server."""
    rows = [_client_row(key, client, name, root) for key, client in sorted(CLIENTS.items())]
    if as_json:
        print_json({"name": name, "clients": rows})
        return 0
    cells = [
        (
            row["client"],
            "yes" if row["installed"] else "" if row["file"] else "by hand",
            ", ".join(row["entries"]),
            _shortened(row["file"] or ""),
        )
        for row in rows
    ]
    print(table(cells, ("CLIENT", "INSTALLED", "ENTRIES", "FILE")))
    return 0


def _shortened(path: str) -> str:
    """A path below the user's home as they would type it."""
    home = os.path.realpath(os.path.expanduser("~"))
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path


def _present(client: Client, path: str | None) -> tuple[dict[str, JSON], str | None]:
    """The entries of a client's file, and why there may be more."""
    try:
        content = read_text(path) if path else None
        present = entries(client.form, client.key, content)
        why = illegibility(client.form, content)
        return present, f"{path} {why}" if why else None
    except ConfigError as error:
        return {}, error.message


def _client_row(key: str, client: Client, name: str, root: str | None) -> dict[str, JSON]:
    """What is here of a client. Where its file cannot be read, a note says so."""
    path = _path(client, client.user, name) if client.user else None
    present, note = _present(client, path)
    if note is not None:
        print(f"Note: {plain(note)}", file=sys.stderr)
    return {
        "client": key,
        "title": client.title,
        "installed": installed(client),
        "connected": name in present and not (path and _other_owner(path, name, root)),
        "entries": sorted(label for label in present if label.split("-")[0] == "ctx"),
        "file": path,
        "source": client.source,
        "checked": client.checked,
    }


def _without(client: Client, path: str, content: str, backup: str | None, name: str, entry: JSON) -> str:
    """The file without an entry: its `.bak` where that is what it was before. Raises `ConfigError`."""
    as_it_was = edited(client.form, client.key, backup, name, entry) if backup is not None else None
    if backup is not None and as_it_was == content and name not in entries(client.form, client.key, backup):
        return backup
    revised = removed(client.form, client.key, content, name)
    if revised is None:
        raise ConfigError(
            f"{path} is not strict {client.form.upper()}, so it was left alone; delete '{name}' in it"
        )
    return revised


def _remove(key: str, location: Location | None, name: str, args: Any) -> Outcome:
    """Takes the entry out; where the file is ours alone it goes, and where its `.bak` is what it was before,
    that comes back.
    """
    client = CLIENTS[key]
    template = client.project if args.scope == "project" else client.user
    if template is None:
        raise BadRequest(f"{client.title} is configured by hand: {client.then}")
    path = _path(client, template, name, shared=args.scope == "project")
    content = read_text(path)
    present = entries(client.form, client.key, content)
    if why := illegibility(client.form, content):
        raise ConfigError(f"{path} {why}, so it was left alone; delete '{name}' in it")
    if content is None or name not in present:
        labels = f" (it has: {', '.join(sorted(present))})" if present else ""
        raise NotFound(f"{client.title} has no entry '{plain(name)}'{plain(labels)}")
    if not args.replace:
        _check_owner(client, path, name, _root(location, args))
        _check_ours(client, present[name], location, name, args)
    backup = read_text(f"{path}.bak")
    revised = _without(client, path, content, backup, name, present[name])
    change = Change(key, path, content, revised, args.scope != "project", args.dry_run)
    outcome = change.give_back(backup, f"{client.title}: took '{name}' out of {path}")
    if not args.dry_run:
        record(path, name, None, os.environ)
    return outcome


def _path(client: Client, template: str, name: str, *, shared: bool = False) -> str:
    path = os.path.abspath(expanded(template))
    if client.form == "yaml":
        path = os.path.join(os.path.dirname(path), f"{name}.yaml")  # a file for each server
    return file_at(path, shared=shared)


def _server(client: Client, location: Location | None, args: Any) -> Server:
    url = remote(args.url or _address(location, args), args.bank)
    alone = args.stdio or (client.pipes_only and not args.url)
    by_proxy = not alone and (client.pipes_only or (args.key_env is not None and not client.key_by_reference))
    arguments: tuple[str, ...] = ("mcp",)
    if by_proxy:
        arguments += ("--url", url, *(("--key-env", args.key_env) if args.key_env else ()))
    elif alone:
        if location is None:
            raise ConfigError(NO_PROJECT)
        _configuration(location)  # where the entry names it, nobody is asked any more
        # What a project shares works in any checkout: its client starts in the project's folder.
        arguments += ("--config", os.path.abspath(location.path)) if args.scope != "project" else ()
        arguments += ("--bank", args.bank) if args.bank else ()
    command = "ctx" if args.scope == "project" else own_command()
    return Server(url, command, arguments, args.key_env, piped=alone or by_proxy)


def _address(location: Location | None, args: Any) -> str:
    """Where the project's server answers: where it runs now, else where it will. What a project shares says
    where it will.
    """
    if location is None or args.scope == "project":
        return _bound(location)
    row = of_project(servers(state_folder(os.environ)), project_root(location.path))
    return local(row.address) if row else _bound(location)


@cache
def _configuration(location: Location) -> Config:
    """The project's, read once: what it warns of is said once, however many clients are connected."""
    return configuration_at(location)


def _bound(location: Location | None) -> str:
    return local("127.0.0.1:7331" if location is None else _configuration(location).server.bind)
