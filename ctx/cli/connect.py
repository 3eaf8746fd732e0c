"""`ctx connect CLIENT`: writes this project's server into the configuration of an editor or an agent.

The old text of the file is kept as `.bak`. If the file cannot be parsed, ctx changes nothing and prints the
entry. ctx never writes a key: the entry names the environment variable that holds it. If a client cannot read
variables, its entry starts `ctx mcp --url`, which can.
"""

import os
import re
import shutil
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Iterable
from dataclasses import dataclass, field

from ctx.cli import Parser
from ctx.cli.clients import (
    BUDGET_TOKENS,
    CLIENTS,
    Client,
    ClientFile,
    Edit,
    Project,
    Server,
    expanded,
    installed,
    own_command,
    project_here,
)
from ctx.cli.output import Columns, plain, print_json, tell, tell_table
from ctx.cli.running import at_address, of_project, servers, tools_over_http, tools_over_stdio
from ctx.config.find import PLACES, client_name
from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.http import Upstream, local, remote
from ctx.memory.records import check_nameable
from ctx.models import JSON
from ctx.text.strings import counted, did_you_mean
from ctx.workspace import open_workspace

_MAX_NAMES = {"mcp__{0}__{1}": 64, "{0}{1}": 60}  # tool names in Claude Code and Cursor, and their limits


def connect_options(options: Parser) -> None:
    """Connect an editor or an agent to this project.

    ctx connect claude-code
    ctx connect cursor --user
    """
    add = options.add_argument
    clients = sorted(CLIENTS)
    add("client", nargs="?", type=_client, choices=clients, metavar="CLIENT", help=", ".join(clients))
    options.flag("--list", "list the clients, and which are connected")
    options.flag("--all", "connect every client that is installed here")
    options.flag("--remove", "remove this project's entry")
    add("--user", action="store_const", const="user", dest="scope", help="connect in every folder")
    options.flag("--http", "connect to a running server instead of starting one")
    add("--url", help="the server's address (default: this project's server)")
    add("--key-env", metavar="NAME", help="the environment variable that holds its key")
    add("--bank", help="a memory bank")
    options.flag("--memory", "write hooks that recall and capture memories instead")
    budget = f"with --memory: most tokens to recall (default: {BUDGET_TOKENS})"
    add("--budget-tokens", type=int, metavar="N", help=budget)
    add("--name", help="the server's name in the client (default: ctx; with --user ctx-PROJECT)")
    options.flag("--replace", "replace another project's entry of that name")
    options.flag("--print", "print the entry and its file; write nothing")
    options.flag("--dry-run", "show the change as a diff; write nothing")
    add("--scope", choices=("user", "project"), help=SUPPRESS)  # the older form of --user


def _client(name: str) -> str:
    if name in CLIENTS:
        return name
    hint = did_you_mean(name, CLIENTS)
    raise ArgumentTypeError(
        f"unknown client '{plain(name)}'; {hint}{'' if hint.endswith('?') else '.'} Any other MCP client can "
        "start the command `ctx mcp` or use the address http://127.0.0.1:7331/mcp"
    )


@dataclass
class Outcome:
    """The result for one client. `state`: written, unchanged, removed, shown, by hand or failed."""

    client: str
    state: str
    file: str | None = None
    text: str = ""  # for standard output
    notes: list[str] = field(default_factory=list)  # for standard error
    code: int = 0

    def row(self) -> dict[str, JSON]:
        row = {"client": self.client, "state": self.state, "file": self.file}
        return {**row, "text": self.text.rstrip(), "notes": self.notes}


def run_connect(args: Namespace) -> int:
    _check(args)
    project = project_here(args.config)
    if args.list:
        return _list(project, args.json)
    if args.memory:
        from ctx.cli.hooks import connect_memory

        outcomes = [connect_memory(project, args)]
    elif args.all:
        outcomes = [_one_of_all(key, project, args) for key, client in CLIENTS.items() if installed(client)]
    else:
        outcomes = [_connect(args.client, project, args)]
    if args.json:
        rows = [outcome.row() for outcome in outcomes]
        print_json({"clients": rows} if args.all else rows[0])
    elif not outcomes:
        print("No known client is installed here. `ctx connect --list` shows the clients ctx knows.")
    for outcome in [] if args.json else outcomes:
        tell(False, None, *filter(None, [outcome.text.rstrip()]), notes=outcome.notes)
    return max((outcome.code for outcome in outcomes), default=0)


def _check(args: Namespace) -> None:
    """Raises `BadRequest` for options that contradict each other."""
    if not (args.client or args.list or args.all):
        raise BadRequest(f"name a client ({', '.join(sorted(CLIENTS))}), or --list or --all")
    if args.name and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", args.name):
        raise BadRequest("--name may have up to 64 letters, digits, '-' and '_'")
    if args.key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", args.key_env):
        raise BadRequest("--key-env takes the name of an environment variable, not the key itself")
    if args.memory and not args.client:
        raise BadRequest("--memory needs a client's name")
    if args.budget_tokens is not None and not (args.memory and 50 <= args.budget_tokens <= 20_000):
        raise BadRequest("--budget-tokens needs --memory and a number from 50 to 20,000")
    args.http = args.http or bool(args.url or args.key_env)
    if args.url:
        remote(args.url)
    if args.bank is not None:
        check_nameable(args.bank)


# -- entries -------------------------------------------------------------------------------------------------


def _server(client: Client, project: Project, args: Namespace, *, shared: bool) -> Server:
    command = "ctx" if shared else own_command()
    if args.http:
        url = remote(args.url or (local(project.bind) if shared else project.address), args.bank)
        proxied = not client.http or (bool(args.key_env) and not client.keyed)
        key = ("--key-env", args.key_env) if args.key_env else ()
        return Server(command, ("mcp", "--url", url, *key), url, args.key_env, stdio=proxied)
    arguments: tuple[str, ...] = ("mcp",)
    path = os.path.abspath(project.location.path) if project.location else ""
    if path and not shared:
        arguments += ("--config", path)
    elif path and os.path.relpath(os.path.realpath(path), project.root) not in PLACES:
        arguments += ("--config", os.path.relpath(os.path.realpath(path), project.root))
    return Server(command, arguments + (("--bank", args.bank) if args.bank else ()))


def _connect(key: str, project: Project, args: Namespace) -> Outcome:
    """Writes, shows or removes the entry of one client."""
    client = CLIENTS[key]
    if args.scope == "project" and client.project is None:
        raise BadRequest(f"{client.title} has no project configuration; use --user")
    if not (args.remove or args.url):
        _ = project.config  # raises `ConfigError` if the configuration is not trusted
    scope = args.scope or ("user" if project.own else "project")
    shared = scope == "project" and client.project is not None
    name = args.name or ("ctx" if shared or project.own else client_name(project.root))
    server = _server(client, project, args, shared=shared)
    entry = client.entry(server)
    snippet = client.snippet(name, entry)
    if (client.project if shared else client.user) is None:
        preface = f"{client.title} is configured by hand: {client.then}\n"
        return Outcome(key, "by hand", None, snippet, [preface, *_server_notes(project, args)])
    file = ClientFile(client, project, shared)
    link = client.install_link(name, entry)
    if args.print:
        click = f"# One click: {link}\n" if link else ""
        return Outcome(key, "shown", file.path, f"# {file.path}\n{snippet}{click}")
    if args.remove:
        return _remove(key, file, name, args)
    try:
        file.document  # noqa: B018
    except ConfigError as error:
        reason = f"{error.message}, so it was not changed. Add this to it:\n"
        return Outcome(key, "by hand", file.path, snippet, [reason], code=1)
    edit = file.put(name, entry, replace=args.replace)
    edits = [edit] if edit else []
    if not args.name:
        edits += _earlier(client, project, shared=not shared)
    if args.dry_run:
        return Outcome(key, "shown", file.path, "".join(change.diff() for change in edits))
    for change in edits:
        change.apply()
    if edit:
        head = f"{client.title}: wrote '{name}' into {file.path}{edit.backup_remark}"
    else:
        head = f"{client.title} is already connected: '{name}' in {file.path}"
    notes = [note for change in edits for note in change.comment_notes]
    connected, further, code = _shake_hands(server, name, project, args)
    notes += further + _server_notes(project, args)
    links = [f"One click, for every folder: {link}"] if link and not shared else []
    text = "\n".join([head, connected, client.then, *links])
    return Outcome(key, "written" if edits else "unchanged", file.path, text, notes, code)


def _earlier(client: Client, project: Project, *, shared: bool) -> list[Edit]:
    """Returns the edit that removes this project's entries from the client's file of the other scope
    (`shared`: the project's). Empty if there are none.
    """
    if (client.project if shared else client.user) is None:
        return []
    try:
        file = ClientFile(client, project, shared)
        return [file.remove(file.ours)] if file.ours else []
    except ConfigError:
        return []


def _remove(key: str, file: ClientFile, name: str, args: Namespace) -> Outcome:
    names = [name] if args.name or args.replace or args.url else file.ours
    names = [label for label in file.entries if label in names]
    title = CLIENTS[key].title
    if not names:
        others = f" (it has: {', '.join(sorted(file.entries))})" if file.entries else ""
        raise NotFound(f"{title} has no entry for this project in {file.path}{plain(others)}")
    edit = file.remove(names)
    if args.dry_run:
        return Outcome(key, "shown", file.path, edit.diff())
    edit.apply()
    text = f"{title}: removed '{', '.join(names)}' from {file.path}"
    return Outcome(key, "removed", file.path, text, edit.comment_notes)


def _one_of_all(key: str, project: Project, args: Namespace) -> Outcome:
    try:
        return _connect(key, project, args)
    except CtxError as error:
        missing = args.remove and isinstance(error, NotFound)
        note = f"{CLIENTS[key].title}: {plain(error.message)}"
        return Outcome(key, "unchanged" if missing else "failed", notes=[note], code=0 if missing else 1)


# -- checking the connection ---------------------------------------------------------------------------------


def _shake_hands(server: Server, name: str, project: Project, args: Namespace) -> tuple[str, list[str], int]:
    """Connects to the server as the client will. Returns (result as one line, notes, exit code)."""
    notes = []
    command = server.command
    if server.stdio and shutil.which(command) is None:
        command = own_command()
        notes.append(
            "Note: `ctx` is not on your PATH, so the client cannot start it: `uv tool install ctx-server`"
        )
    try:
        if server.stdio:
            tools = tools_over_stdio((command, *server.arguments), project.root)
        else:
            key = os.environ.get(server.key_env) if server.key_env else None
            tools = tools_over_http(Upstream(server.url, key))
    except ConnectionError:
        start = "start it there" if args.url else "start it: `ctx serve`"
        return f"Not connected yet: no server answers at {server.url}; {start}", notes, 0
    except ConfigError as error:
        return f"Not connected: {plain(error.message)}", notes, 0 if args.http else 1
    if long := tools_too_long(name, tools):
        notes.append(
            f"Note: with '{name}' the tool {long[0]} is too long for some clients: use a shorter --name"
        )
    documents = ""
    if not args.url:
        config = project.config
        documents = ", nothing indexed yet (the first start indexes, or run `ctx index` now)"
        if config is not None and config.stored:
            with open_workspace(config, reading=True, projecting=False) as workspace:
                documents = f", {counted(workspace.catalog.stats()['documents'], 'document')}"
    return f"Connected: {counted(len(tools), 'tool')}{documents}", notes, 0


def tools_too_long(name: str, tools: Iterable[str]) -> list[str]:
    """The tools whose names are too long for some client, which puts the server's `name` before them."""
    return [
        tool
        for tool in tools
        if any(len(form.format(name, tool)) > most for form, most in _MAX_NAMES.items())
    ]


def _server_notes(project: Project, args: Namespace) -> list[str]:
    """Notes on why the server at the entry's address may not answer, or may serve another project."""
    notes = []
    if args.key_env and args.key_env not in os.environ:
        notes.append(f"Note: {args.key_env} is not set here; export it where you start the client")
    if not args.http or args.url or project.config is None:
        return notes
    own, other = of_project(servers(), project.root), at_address(servers(), project.bind)
    if own is not None and own != other:
        notes.append(
            f"Note: this project is served at {own.address}, but ctx.toml says {project.bind}. Set "
            f'bind = "{own.address}" under [server] so that the address stays the same'
        )
    elif other is not None and own is None:
        from ctx.server.run import next_vacant  # 100 ms

        vacant = next_vacant(project.bind)
        port = f', such as bind = "{vacant}",' if vacant else ""
        notes.append(
            f"Note: this entry reaches {plain(other.root)}, which is served at {project.bind}. Give "
            f"this project its own port{port} under [server] in ctx.toml, and connect again"
        )
    variable = project.config.server.api_key_env
    if variable and not args.key_env:
        notes.append(f"Note: this server needs a key: connect again with --key-env {plain(variable)}")
    return notes


# -- list ----------------------------------------------------------------------------------------------------


def connectable(name: str, url: str) -> list[dict[str, JSON]]:
    """One JSON row per client for the web page, with its entry for the server at `url`. Installed clients
    come first.
    """
    rows = []
    for key, client in CLIENTS.items():
        entry = client.entry(Server("ctx", ("mcp", "--url", url), url, stdio=not client.http))
        rows.append(
            {
                "name": key,
                "title": client.title,
                "installed": installed(client),
                "file": client.project or (_short(expanded(client.user)) if client.user else None),
                "text": client.snippet(name, entry).rstrip("\n"),
                "then": client.then,
                "link": client.install_link(name, entry),
            }
        )
    return sorted(rows, key=lambda row: (not row["installed"], row["title"].lower()))


def client_rows(project: Project) -> list[dict[str, JSON]]:
    """One JSON row per client: whether it is installed and connected, and the names of its ctx entries."""
    return [_client_row(key, client, project) for key, client in sorted(CLIENTS.items())]


def _client_row(key: str, client: Client, project: Project) -> dict[str, JSON]:
    scopes = [True] if client.project and not project.own else []
    scopes += [False] if client.user else []
    names, connected, notes, paths = [], False, [], []
    for shared in scopes:
        try:
            file = ClientFile(client, project, shared)
            paths.append(file.path)
            names += sorted({*file.ours, *(name for name in file.entries if name.split("-")[0] == "ctx")})
            connected = connected or bool(file.ours)
        except ConfigError as error:
            notes.append(plain(error.message))
    return {
        "client": key,
        "title": client.title,
        "installed": installed(client),
        "connected": connected,
        "entries": names,
        "file": paths[0] if paths else None,
        "notes": notes,
        "source": client.source,
        "checked": client.checked,
    }


def _list(project: Project, as_json: bool) -> int:
    rows = client_rows(project)
    columns: Columns = {
        "CLIENT": "client",
        "INSTALLED": lambda row: "yes" if row["installed"] else "" if row["file"] else "by hand",
        "ENTRIES": "entries",
        "FILE": lambda row: _short(row["file"] or ""),
    }
    notes = [f"Note: {note}" for row in rows for note in row["notes"]]
    return tell_table(as_json, {"clients": rows}, rows, columns, "", notes)


def _short(path: str) -> str:
    """Shortens a path: `~` replaces the home folder."""
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path.startswith(f"{home}{os.sep}") else path
