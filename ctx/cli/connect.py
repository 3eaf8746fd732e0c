"""`ctx connect CLIENT`: writes this server into an editor's or an agent's own configuration.

Only files that parse as strict JSON or TOML are edited, only the one entry is touched (the rest of the text stays as it is, byte for byte), and
the old file stays beside it as `.bak`. What cannot be edited so is printed, to be pasted. A key is never written: the entry names the
environment variable that holds it, and where a client cannot do that, it starts `ctx mcp --url` which can.
"""

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ctx import files
from ctx.cli.common import NO_PROJECT, configuration_at, parser
from ctx.errors import BadRequest, ConfigError
from ctx.project import Location, find_config
from ctx.server.address import remote
from ctx.types import JSON

Entry = dict[str, JSON]


class Server(NamedTuple):
    """What a client is to be told: an address, or a command that it starts."""

    url: str
    command: str
    arguments: tuple[str, ...]  # of `ctx mcp`, for a client that starts it
    key_env: str | None
    piped: bool


class Client(NamedTuple):
    """One client: where its configuration is, and what an entry looks like in it. Not every client knows projects."""

    name: str
    user: Callable[[], str]
    project: str | None
    place: tuple[str, ...]  # the keys that lead to the table of servers
    form: str  # json | toml | yaml
    entry: Callable[[Server], Entry]
    then: str  # what to do next
    pipes_only: bool = False
    key_by_reference: bool = True  # its entries can name an environment variable in a header


def run(command: str, argv: list[str]) -> int:
    options = parser("connect", "Connect an editor or an agent to this server.")
    options.add_argument("client", choices=sorted(CLIENTS), metavar="CLIENT", help=", ".join(sorted(CLIENTS)))
    options.add_argument(
        "--scope",
        choices=("user", "project"),
        help="for you everywhere (default), or for whoever opens this folder",
    )
    options.add_argument("--name", default="ctx", help="what the client calls the server (default: ctx)")
    options.add_argument("--url", help="the server's address (default: [server] bind)")
    options.add_argument("--bank", help="a memory bank, as /mcp/BANK of that address")
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
    args = options.parse_args(argv)
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", args.name):
        raise BadRequest("--name has letters, digits, '-' and '_', at most 64")
    if args.key_env and not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", args.key_env):
        raise BadRequest("--key-env takes the name of an environment variable, not the key itself")
    if args.stdio and (args.url or args.key_env):
        raise BadRequest("--stdio is without a server; leave --url and --key-env out")
    client = CLIENTS[args.client]
    scope = args.scope or "user"
    path = _path(client, scope, args.name)
    server = _server(client, scope, args)
    entry = client.entry(server)
    snippet = _snippet(client, args.name, entry)
    if args.print:
        print(f"# {path}\n{snippet}")
        return 0
    content = _read(path)
    revised = _edited(client, content, args.name, entry)
    if revised is None:
        print(
            f"{path} is not strict {client.form.upper()} (comments?), so it was left alone. Put this into it:\n",
            file=sys.stderr,
        )
        print(snippet)
        return 1
    if revised == content:
        print(f"{client.name} is connected already: {path}")
        return 0
    if args.dry_run:
        print(_diff(path, content or "", revised), end="")
        return 0
    _write(path, revised, private=scope == "user")
    backup_note = f" (the old file: {os.path.basename(path)}.bak)" if content is not None else ""
    print(f"{client.name}: wrote '{args.name}' into {path}{backup_note}")
    print(client.then)
    if not server.piped:
        print(f"The server has to run: ctx serve mcp  ({server.url})")
    if args.key_env and args.key_env not in os.environ:
        print(f"{args.key_env} is not set here: export it where {client.name} is started", file=sys.stderr)
    return 0


def _path(client: Client, scope: str, name: str) -> str:
    if scope == "project":
        if client.project is None:
            raise BadRequest(f"{client.name} has no configuration of a project; use --scope user")
        path = os.path.abspath(client.project)
    else:
        path = client.user()
    if client.form == "yaml":
        path = os.path.join(os.path.dirname(path), f"{name}.yaml")  # a file for each server
    return os.path.realpath(path)  # a link (to a folder of dotfiles, say) stays one


def _server(client: Client, scope: str, args: Any) -> Server:
    location = find_config(args.config, os.environ, os.getcwd())
    url = remote(args.url or _bound(location), args.bank)
    alone = args.stdio or (client.pipes_only and not args.url)
    by_proxy = not alone and (client.pipes_only or (args.key_env is not None and not client.key_by_reference))
    arguments: tuple[str, ...] = ("mcp",)
    if by_proxy:
        arguments += ("--url", url, *(("--key-env", args.key_env) if args.key_env else ()))
    elif alone:
        if location is None:
            raise ConfigError(NO_PROJECT)
        # What a project shares works in any checkout: its client starts in the project's folder.
        arguments += ("--config", os.path.abspath(location.path)) if scope == "user" else ()
        arguments += ("--bank", args.bank) if args.bank else ()
    command = "ctx" if scope == "project" else _command()
    return Server(url, command, arguments, args.key_env, piped=alone or by_proxy)


def _bound(location: Location | None) -> str:
    if location is None:
        return "http://127.0.0.1:7331"
    host, _, port = configuration_at(location).server.bind.rpartition(":")
    return f"http://{'127.0.0.1' if host in ('0.0.0.0', '[::]') else host}:{port}"  # noqa: S104 - compared, not bound


def _command() -> str:
    # Programs with windows do not see a shell's PATH.
    beside = os.path.join(os.path.dirname(sys.executable), "ctx")
    return beside if os.path.exists(beside) else shutil.which("ctx") or "ctx"


# ---- entries ---------------------------------------------------------------------------------------------------------


def _started(server: Server) -> Entry:
    return {"command": server.command, "args": list(server.arguments)}


def _entry(
    address_key: str, reference: str, kind: tuple[str, str] | None = None
) -> Callable[[Server], Entry]:
    """An entry with its address under `address_key`, a key as `reference` (with `%s` for the variable), and a `type` where asked for."""

    def make(server: Server) -> Entry:
        if server.piped:
            return {**({"type": kind[1]} if kind else {}), **_started(server)}
        entry: Entry = {**({"type": kind[0]} if kind else {}), address_key: server.url}
        if server.key_env:
            entry["headers"] = {"Authorization": f"Bearer {reference % server.key_env}"}
        return entry

    return make


def _codex(server: Server) -> Entry:
    if server.piped:
        return _started(server)
    return {"url": server.url, **({"bearer_token_env_var": server.key_env} if server.key_env else {})}


def _continue(server: Server) -> Entry:
    if server.piped:
        return {"type": "stdio", **_started(server)}
    entry: Entry = {"type": "streamable-http", "url": server.url}
    if server.key_env:
        entry["requestOptions"] = {
            "headers": {"Authorization": f"Bearer ${{{{ secrets.{server.key_env} }}}}"}
        }
    return entry


def _home(*parts: str) -> Callable[[], str]:
    return lambda: os.path.join(os.path.expanduser("~"), *parts)


def _application(name: str, *parts: str) -> Callable[[], str]:
    """A desktop program's own folder."""

    def path() -> str:
        if sys.platform == "darwin":
            return os.path.join(os.path.expanduser("~/Library/Application Support"), name, *parts)
        return os.path.join(
            os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config"), name, *parts
        )

    return path


CLIENTS: Mapping[str, Client] = {
    "cursor": Client(
        "Cursor",
        _home(".cursor", "mcp.json"),
        ".cursor/mcp.json",
        ("mcpServers",),
        "json",
        _entry("url", "${env:%s}"),
        "Cursor sees it at once: Settings > MCP.",
    ),
    "claude-code": Client(
        "Claude Code",
        _home(".claude.json"),
        ".mcp.json",
        ("mcpServers",),
        "json",
        _entry("url", "${%s}", ("http", "stdio")),
        "In a new session, /mcp shows it.",
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        _application("Claude", "claude_desktop_config.json"),
        None,
        ("mcpServers",),
        "json",
        _entry("url", "${%s}"),
        "Quit Claude Desktop and start it again.",
        pipes_only=True,
    ),
    "vscode": Client(
        "VS Code",
        _application("Code", "User", "mcp.json"),
        ".vscode/mcp.json",
        ("servers",),
        "json",
        _entry("url", "${env:%s}", ("http", "stdio")),
        "Command palette > MCP: List Servers > Start.",
    ),
    "codex": Client(
        "Codex",
        _home(".codex", "config.toml"),
        ".codex/config.toml",
        ("mcp_servers",),
        "toml",
        _codex,
        "A new session has it.",
    ),
    "windsurf": Client(
        "Windsurf",
        _home(".codeium", "windsurf", "mcp_config.json"),
        None,
        ("mcpServers",),
        "json",
        _entry("serverUrl", "${env:%s}"),
        "Cascade > MCP servers > Refresh.",
    ),
    "lmstudio": Client(
        "LM Studio",
        _home(".lmstudio", "mcp.json"),
        None,
        ("mcpServers",),
        "json",
        _entry("url", "%s"),
        "LM Studio sees it at once: Program > Install.",
        key_by_reference=False,
    ),
    "continue": Client(
        "Continue",
        _home(".continue", "mcpServers", "ctx.yaml"),
        ".continue/mcpServers/ctx.yaml",
        ("mcpServers",),
        "yaml",
        _continue,
        "Reload the window; agent mode lists its tools.",
    ),
}


# ---- files -----------------------------------------------------------------------------------------------------------


def _snippet(client: Client, name: str, entry: Entry) -> str:
    revised = _edited(client, None, name, entry)
    assert revised is not None  # an empty file can always be edited
    return revised.rstrip("\n")


def _edited(client: Client, old: str | None, name: str, entry: Entry) -> str | None:
    """The file with the entry, None where it cannot be edited safely."""
    if client.form == "yaml":
        return _yaml(name, entry)  # the file is this entry's alone
    (key,) = client.place
    return (
        _edit_toml(old or "", key, name, entry)
        if client.form == "toml"
        else _edit_json(old or "", key, name, entry)
    )


def _edit_json(old: str, place: str, name: str, entry: Entry) -> str | None:
    text = old if old.strip() else "{}\n"
    try:
        before = json.loads(text, object_pairs_hook=_distinct)
    except ValueError:
        return None
    if not isinstance(before, dict) or not isinstance(before.get(place, {}), dict):
        return None
    if before.get(place, {}).get(name) == entry:
        return old
    step = _indent(text)
    servers, end = _members(text, text.index("{"))
    span = servers.get(place)
    if span is None:
        value = json.dumps({name: entry}, indent=step, ensure_ascii=False)
        revised = _insert(text, text.index("{"), end, bool(servers), place, value, step, 1)
    else:
        entries, end = _members(text, span[0])
        value = json.dumps(entry, indent=step, ensure_ascii=False)
        if name in entries:
            start, stop = entries[name]
            revised = text[:start] + value.replace("\n", "\n" + step * 2) + text[stop:]
        else:
            revised = _insert(text, span[0], end, bool(entries), name, value, step, 2)
    expected = {**before, place: {**before.get(place, {}), name: entry}}
    # The edit is of the text; that it means what was meant is seen by reading it again.
    return revised if json.loads(revised) == expected else None


def _distinct(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise ValueError("a name comes twice: which one counts is the client's own affair")
    return table


def _indent(text: str) -> str:
    match = re.search(r"\n([ \t]+)\"", text)
    return match[1] if match else "  "


_SPACE = re.compile(r"[ \t\r\n]*")


def _members(text: str, start: int) -> tuple[dict[str, tuple[int, int]], int]:
    """Where the value of each member of the object at `start` lies, and where its closing brace is. The text is known to be JSON."""
    decoder = json.JSONDecoder()
    spans: dict[str, tuple[int, int]] = {}

    def skip(at: int) -> int:
        match = _SPACE.match(text, at)
        return match.end() if match else at

    position = skip(start + 1)
    while text[position] != "}":
        key, position = decoder.raw_decode(text, position)
        begin = skip(skip(position) + 1)  # behind the colon
        _, stop = decoder.raw_decode(text, begin)
        spans[key] = (begin, stop)
        position = skip(stop)
        if text[position] == ",":
            position = skip(position + 1)
    return spans, position


def _insert(
    text: str, start: int, end: int, others: bool, key: str, value: str, step: str, depth: int
) -> str:
    """The text with one more member at the end of the object between the braces at `start` and `end`."""
    pad = "\n" + step * depth
    member = f"{json.dumps(key)}: {value}".replace("\n", pad)
    head = text[:end].rstrip() if others else text[: start + 1]
    return f"{head}{',' if others else ''}{pad}{member}\n{step * (depth - 1)}{text[end:]}"


def _edit_toml(old: str, place: str, name: str, entry: Entry) -> str | None:
    import tomllib  # 8 ms, and one client in eight has TOML

    try:
        before = tomllib.loads(old)
    except tomllib.TOMLDecodeError:
        return None
    servers = before.get(place, {})
    if not isinstance(servers, dict):
        return None
    if servers.get(name) == entry:
        return old
    table = f"[{place}.{name}]\n" + "".join(f"{key} = {_toml(value)}\n" for key, value in entry.items())
    lines = old.splitlines(keepends=True)
    heads = [index for index, line in enumerate(lines) if re.match(r"\s*\[", line)]
    ours = [
        index for index in heads if re.match(rf"\s*\[\s*{place}\s*\.\s*\"?{name}\"?\s*[\].]", lines[index])
    ]
    if ours:
        after = next((index for index in heads if index > ours[-1]), len(lines))
        if [index for index in heads if ours[0] <= index < after] != ours:
            return None  # its tables stand apart
        following = "".join(lines[after:])
        revised = "".join(lines[: ours[0]]) + table + ("\n" + following if following else "")
    else:
        revised = (old.rstrip("\n") + "\n\n" if old.strip() else "") + table
    try:
        after_edit = tomllib.loads(revised)
    except tomllib.TOMLDecodeError:
        return None
    return revised if after_edit == {**before, place: {**servers, name: entry}} else None


def _toml(value: JSON) -> str:
    # A JSON string is a TOML string but for one character, and lists of them are lists.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _yaml(name: str, entry: Entry) -> str:
    # JSON is YAML, so every value is one that needs no rules of quoting.
    fields = "".join(f"    {key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in entry.items())
    return f"name: {name}\nversion: 0.0.1\nschema: v1\nmcpServers:\n  - name: {name}\n{fields}"


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", newline="") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error


def _write(path: str, text: str, *, private: bool) -> None:
    """Replaces the file in one step, its old text beside it as `.bak`; permissions stay as they were."""
    folder = os.path.dirname(path)
    try:
        os.makedirs(folder, exist_ok=True)
        mode = 0o600 if private else 0o644
        if os.path.exists(path):
            mode = os.stat(path).st_mode & 0o777
            with open(path, "rb") as file:
                files.replace(path + ".bak", file.read(), mode=mode)
        files.replace(path, text.encode(), mode=mode)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error


def _diff(path: str, old: str, new: str) -> str:
    import difflib  # 5 ms, for --dry-run alone

    return "".join(
        difflib.unified_diff(
            old.splitlines(keepends=True), new.splitlines(keepends=True), path, f"{path} (new)"
        )
    )
