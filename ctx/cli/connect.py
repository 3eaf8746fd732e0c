"""`ctx connect CLIENT`: writes this project's server into the configuration of an editor or an agent.

The old text of the file is kept as `.bak`. If the file cannot be parsed, ctx changes nothing and prints the
entry. ctx never writes a key: the entry names the environment variable that holds it. If a client cannot read
variables, its entry starts `ctx mcp --url`, which can.
"""

import base64
import difflib
import json
import os
import re
import shutil
from argparse import SUPPRESS, ArgumentTypeError, Namespace
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import tomlkit

from ctx import files
from ctx.cli import Parser
from ctx.cli.clients import (
    ADDRESSES,
    CLIENTS,
    STRING_OR_COMMENT,
    Client,
    ClientFile,
    Entry,
    Project,
    Server,
    client_rows,
    expanded,
    installed,
    own_command,
    project_here,
    server_file,
    target,
)
from ctx.cli.output import Columns, plain, tell, tell_table
from ctx.cli.running import at_address, of_project, servers, tools_over_http, tools_over_stdio
from ctx.config.find import PLACES, client_name
from ctx.errors import BadRequest, ConfigError, Conflict, NotFound
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
    options.flag("--remove", "remove this project's entry")
    add("--user", action="store_const", const="user", dest="scope", help="connect in every folder")
    options.flag("--http", "connect to a running server instead of starting one")
    add("--url", help="the server's address (default: this project's server)")
    add("--key-env", metavar="NAME", help="the environment variable that holds its key")
    add("--bank", help="a memory bank")
    options.flag("--memory", "write hooks that recall and capture memories instead")
    add("--name", help="the server's name in the client (default: ctx; with --user ctx-PROJECT)")
    options.flag("--replace", "replace another project's entry of that name")
    options.flag("--print", "print the entry and its file; write nothing")
    options.flag("--dry-run", "show the change as a diff; write nothing")
    add("--scope", choices=("user", "project"), help=SUPPRESS)  # the older form of --user


def _client(name: str) -> str:
    if name in CLIENTS:
        return name
    hint = did_you_mean(name, CLIENTS)
    others = "Any other MCP client can start the command `ctx mcp` or use http://127.0.0.1:7331/mcp"
    separator = "" if hint.endswith("?") else "."
    raise ArgumentTypeError(f"unknown client '{plain(name)}'; {hint}{separator} {others}")


def run_connect(args: Namespace) -> int:
    _check(args)
    project = project_here(args.config)
    if args.list:
        return _list(project, args.json)
    if args.memory:
        from ctx.cli.hooks import connect_memory  # imports the memory store: 200 ms

        return connect_memory(project, args)
    return _connect(project, args)


def report(
    args: Namespace, state: str, file: str | None, text: str, notes: Sequence[str] = (), code: int = 0
) -> int:
    """Prints the result, and returns `code`. `state`: written, unchanged, removed, shown or by hand."""
    row = {"client": args.client, "state": state, "file": file, "text": text, "notes": list(notes)}
    return tell(args.json, row, *filter(None, [text]), notes=notes, code=code)


def _check(args: Namespace) -> None:
    """Raises `BadRequest` for options that contradict each other."""
    if not (args.client or args.list):
        raise BadRequest(f"name a client ({', '.join(sorted(CLIENTS))}), or --list")
    if args.name and not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", args.name):
        raise BadRequest("--name may have up to 64 letters, digits, '-' and '_'")
    if args.key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", args.key_env):
        raise BadRequest("--key-env takes the name of an environment variable, not the key itself")
    args.http = args.http or bool(args.url or args.key_env)
    if args.bank is not None:
        check_nameable(args.bank)


# -- changing a file -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Edit:
    """A change of a client's file to the text `after`. None deletes the file."""

    file: ClientFile
    after: str | None

    def apply(self) -> list[str]:
        """Writes the file in one step and keeps the old text as `.bak`. Returns a note if comments were lost.
        Raises `ConfigError`.
        """
        path, before = self.file.path, self.file.before
        with files.writing(path, ConfigError):
            if self.file.shared:
                os.makedirs(os.path.dirname(path), exist_ok=True)
            else:
                files.make_folder(os.path.dirname(path))
            mode = 0o644 if self.file.shared else 0o600
            if before is not None:
                mode = os.stat(path).st_mode & 0o777
                if not mode & 0o222:
                    raise ConfigError(f"{path} is write-protected: `chmod u+w` it first")
                if self.after is None:
                    os.unlink(path)
                    return []
                files.replace(path + ".bak", before.encode(), mode=mode)
            files.replace(path, (self.after or "").encode(), mode=mode)
        comments = any(not match[1] for match in STRING_OR_COMMENT.finditer(before or ""))
        if comments and self.file.form == "json":
            backup = f"{os.path.basename(path)}.bak"
            return [f"Note: the comments in {path} were removed; {backup} still has them"]
        return []

    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.file.before, self.after))
        return "".join(difflib.unified_diff(before, after, self.file.path, f"{self.file.path} (new)"))


def shown(args: Namespace, file: ClientFile, edits: Iterable[Edit]) -> int:
    """Prints the edits as a diff."""
    return report(args, "shown", file.path, "".join(edit.diff() for edit in edits).rstrip())


def backup_remark(file: ClientFile) -> str:
    return "" if file.before is None else f" (backup: {os.path.basename(file.path)}.bak)"


def config_text(form: str, document: Mapping[str, Any], before: str | None = None) -> str:
    """Serializes a JSON or TOML document. JSON keeps the indent of `before`, the file's old text."""
    if form == "toml":
        return tomlkit.dumps(document)
    indent = re.search(r'^([ \t]+)"', before or "", re.MULTILINE)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


def by_hand(args: Namespace, file: ClientFile, snippet: str, error: ConfigError) -> int:
    """Says that the file cannot be parsed, and that the user should add the text `snippet` to it."""
    reason = f"{error.message}, so it was not changed. Add this to it:\n"
    return report(args, "by hand", file.path, snippet, [reason], code=1)


# -- servers -------------------------------------------------------------------------------------------------


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


def _connect(project: Project, args: Namespace) -> int:
    """Writes, shows or removes a client's entry of this project's server."""
    client = CLIENTS[args.client]
    if args.scope == "project" and client.project is None:
        raise BadRequest(f"{client.title} has no project configuration; use --user")
    if not (args.remove or args.url):
        _ = project.config  # raises `ConfigError` if the configuration is not trusted
    scope = args.scope or ("user" if project.own else "project")
    shared = scope == "project" and client.project is not None
    name = args.name or ("ctx" if shared or project.own else client_name(project.root))
    server = _server(client, project, args, shared=shared)
    entry = client.entry(server)
    snippet = _snippet(client, name, entry)
    file = server_file(client, project, shared=shared)
    if file is None:
        preface = f"{client.title} is configured by hand: {client.then}\n"
        return report(args, "by hand", None, snippet, [preface, *_server_notes(project, args)])
    link = _install_link(client, name, entry)
    if args.print:
        click = f"\n# One click: {link}" if link else ""
        return report(args, "shown", file.path, f"# {file.path}\n{snippet}{click}")
    if args.remove:
        names = [name] if args.name or args.replace or args.url else file.ours
        names = [label for label in file.entries if label in names]
        if not names:
            others = f" (it has: {', '.join(sorted(file.entries))})" if file.entries else ""
            raise NotFound(f"{client.title} has no entry for this project in {file.path}{plain(others)}")
        edit = _changed(file, names, {})
        if args.dry_run:
            return shown(args, file, [edit])
        notes = edit.apply()
        text = f"{client.title}: removed '{', '.join(names)}' from {file.path}"
        return report(args, "removed", file.path, text, notes)
    try:
        put = _put(client, file, name, entry, replace=args.replace)
    except ConfigError as error:
        return by_hand(args, file, snippet, error)
    edits = [put] if put else []
    if not args.name:
        edits += _earlier(client, project, shared=not shared)
    if args.dry_run:
        return shown(args, file, edits)
    notes = [note for edit in edits for note in edit.apply()]
    if put:
        head = f"{client.title}: wrote '{name}' into {file.path}{backup_remark(file)}"
    else:
        head = f"{client.title} is already connected: '{name}' in {file.path}"
    connected, further, code = _shake_hands(server, name, project, args)
    notes += further + _server_notes(project, args)
    links = [f"One click, for every folder: {link}"] if link and not shared else []
    text = "\n".join([head, connected, client.then, *links])
    return report(args, "written" if edits else "unchanged", file.path, text, notes, code)


def _snippet(client: Client, name: str, entry: Entry) -> str:
    """The text of a configuration file with this entry alone."""
    return config_text(client.form, {client.key: {name: entry}}).rstrip("\n")


def _install_link(client: Client, name: str, entry: Entry) -> str | None:
    """The link that installs the entry; None if the client has no such links."""
    config = base64.b64encode(json.dumps(entry).encode()).decode()
    values = {"base64": quote(config), "json": quote(json.dumps({"name": name, **entry}))}
    return client.link.format(name=name, **values) if client.link else None


def _put(client: Client, file: ClientFile, name: str, entry: Entry, *, replace: bool) -> Edit | None:
    """The edit that replaces ctx's entries for this project with `entry`; None if nothing changes.

    Raises `Conflict` if the name belongs to another server, unless `replace` is set.
    """
    ours, old = file.ours, file.entries.get(name)
    if old is not None and name not in ours and target(old) != target(entry) and not replace:
        other = f"{client.title} has another server '{name}': {plain(' '.join(target(old)))[:200]}"
        raise Conflict(f"{other}. Use --replace to replace it, or --name NAME for another name")
    if isinstance(old, dict):  # keep the user's own settings of the entry
        ways = {*ADDRESSES, "command", "args", "type", "headers", *client.stdio, *client.keyed}
        entry = {**{key: value for key, value in old.items() if key not in ways}, **entry}
    if entry == old and ours in ([], [name]):
        return None
    return _changed(file, {*ours, name} & file.entries.keys(), {name: entry})


def _changed(file: ClientFile, removed: Iterable[str], added: Mapping[str, Entry]) -> Edit:
    """The edit that removes and adds entries. It deletes the file if nothing is left in it."""
    # Only tomlkit keeps the comments of a TOML file.
    document: Any = tomlkit.parse(file.before or "") if file.form == "toml" else {**file.document}
    for name in removed:
        del document[file.key][name]  # look the table up again: with tomlkit, a deletion can invalidate it
    table = document.get(file.key, {})
    table |= added
    document[file.key] = table
    if not table:
        del document[file.key]
    return Edit(file, config_text(file.form, document, file.before) if document else None)


def _earlier(client: Client, project: Project, *, shared: bool) -> list[Edit]:
    """Returns the edit that removes this project's entries from the client's file of the other scope
    (`shared`: the project's). Empty if there are none.
    """
    try:
        file = server_file(client, project, shared=shared)
        return [_changed(file, file.ours, {})] if file and file.ours else []
    except ConfigError:
        return []


# -- checking the connection ---------------------------------------------------------------------------------


def _shake_hands(server: Server, name: str, project: Project, args: Namespace) -> tuple[str, list[str], int]:
    """Connects to the server as the client will. Returns (result as one line, notes, exit code)."""
    notes = []
    command = server.command
    if server.stdio and shutil.which(command) is None:
        command = own_command()
        notes.append("Note: `ctx` is not on your PATH, where clients look: `uv tool install ctx-server`")
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
        notes.append(f"Note: '{name}' makes the tool {long[0]} too long for some clients; shorten --name")
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
    longest = min(most - len(form.format(name, "")) for form, most in _MAX_NAMES.items())
    return [tool for tool in tools if len(tool) > longest]


def _server_notes(project: Project, args: Namespace) -> list[str]:
    """Notes on why the server at the entry's address may not answer, or may serve another project."""
    notes = []
    if args.key_env and args.key_env not in os.environ:
        notes.append(f"Note: {args.key_env} is not set here; export it where you start the client")
    if not args.http or args.url or project.config is None:
        return notes
    other = at_address(servers(), project.bind)
    if other is not None and not of_project([other], project.root):
        reached = f"{plain(other.root)}, which is served at {project.bind}"
        hint = "Give this project its own [server] bind in ctx.toml, and connect again"
        notes.append(f"Note: this entry reaches {reached}. {hint}")
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
                "text": _snippet(client, name, entry),
                "then": client.then,
                "link": _install_link(client, name, entry),
            }
        )
    return sorted(rows, key=lambda row: (not row["installed"], row["title"].lower()))


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
