"""The clients that `ctx connect` knows (clients.toml), and ctx's entries in their configuration files."""

import json
import os
import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from ctx.cli.configuration import configuration_at, file_at
from ctx.cli.output import plain
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.config.find import Location, client_name, find_config, project_root, user_folder
from ctx.errors import ConfigError
from ctx.http import is_loopback, local
from ctx.models import JSON

Entry = dict[str, JSON]
STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+")|//[^\n]*+|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'("(?:\\.|[^"\\])*+")|,(?=\s*+[}\]])')
ADDRESSES = ("url", "httpUrl", "serverUrl", "uri")
_PROGRAMS = ("ctx", "ctx.exe", "ctx-server")


@dataclass(frozen=True)
class Server:
    """The server that a client's entry names: a command that the client starts (`stdio`), or the address
    `url`. `key_env` is the environment variable that holds the server's key.
    """

    command: str
    arguments: tuple[str, ...]
    url: str = ""
    key_env: str | None = None
    stdio: bool = True


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The hooks that ctx writes for a client, into the user's file `user` or the project's file `project`. On
    the event `recall` the client runs `ctx memory recall`, and on `capture` it runs `ctx memory capture`.
    """

    user: str
    project: str
    recall: str
    capture: str
    then: str
    matcher: str | None = None  # which sessions have the `recall` event
    grouped: bool = True  # {"matcher", "hooks": [{"type": "command", ...}]}; else the command itself
    header: Mapping[str, JSON] = field(default_factory=dict)  # top-level members that the file must have


@dataclass(frozen=True, kw_only=True)
class Client:
    """A client from clients.toml: where its configuration files are, and what an entry looks like."""

    title: str
    user: str | None = None  # path of the user's configuration file
    project: str | None = None  # path of a project's configuration file
    then: str  # tells the user what to do next
    source: str  # the client's documentation page about this
    checked: str  # the date when that page was read
    key: str = "mcpServers"  # the table of servers
    form: str = "json"  # json (comments are read) or toml
    stdio: Entry = field(default_factory=lambda: {"command": "$command", "args": "$args"})
    http: Entry = field(default_factory=lambda: {"url": "$url"})
    keyed: Entry = field(default_factory=lambda: {"headers": {"Authorization": "Bearer ${%s}"}})
    link: str | None = None  # a link that installs the entry when the user clicks it
    hooks: Hooks | None = None

    def entry(self, server: Server) -> Entry:
        """Returns the entry for a server, in the form that this client reads."""
        arguments = list(server.arguments)
        values = {"$command": server.command, "$args": arguments, "$words": [server.command, *arguments]}
        values["$url"] = server.url
        form = self.stdio if server.stdio else self.http
        entry = {
            key: values.get(value, value) if isinstance(value, str) else value for key, value in form.items()
        }
        if server.key_env and not server.stdio:
            entry |= json.loads(json.dumps(self.keyed) % server.key_env)
        return entry


def _read_clients() -> dict[str, Client]:
    with open(os.path.join(os.path.dirname(__file__), "clients.toml"), "rb") as file:
        rows = tomllib.load(file)
    for row in rows.values():
        if "hooks" in row:
            row["hooks"] = Hooks(**row["hooks"])
    return {name: Client(**row) for name, row in rows.items()}


CLIENTS: Mapping[str, Client] = _read_clients()
HOOKED = sorted(name for name, client in CLIENTS.items() if client.hooks)


def expanded(path: str) -> str:
    """Makes a path from clients.toml absolute. Replaces `{apps}`, `{VARIABLE|DEFAULT}` and `~`."""
    apps = "~/Library/Application Support" if sys.platform == "darwin" else "{XDG_CONFIG_HOME|~/.config}"
    path = path.replace("{apps}", apps)
    path = re.sub(r"\{(\w+)\|([^}]*)\}", lambda match: os.environ.get(match[1]) or match[2], path)
    return os.path.abspath(os.path.expanduser(path))


def installed(client: Client) -> bool:
    """Whether the client seems to be installed: its configuration file or the folder of that file exists."""
    if client.user is None:
        return False
    path = expanded(client.user)
    folder = os.path.dirname(path)
    return os.path.exists(path) or (folder != os.path.expanduser("~") and os.path.isdir(folder))


def own_command() -> str:
    """The path of the `ctx` command, for programs without the shell's PATH. Falls back to "ctx" itself."""
    path = os.path.join(os.path.dirname(sys.executable), "ctx")
    return path if os.path.exists(path) else shutil.which("ctx") or "ctx"


@dataclass(frozen=True)
class Project:
    """The project to connect. `root` is its folder. `own`: `location` is the user's own configuration,
    because no project was found. `location` is None if there is neither.
    """

    location: Location | None
    root: str
    own: bool

    @cached_property  # so that its warnings are printed once
    def config(self) -> Config | None:
        return configuration_at(self.location) if self.location else None

    @property
    def bind(self) -> str:
        return self.config.server.bind if self.config else "127.0.0.1:7331"

    @property
    def address(self) -> str:
        """The URL of the project's running server, else the URL that the configuration names."""
        running = of_project(servers(), self.root)
        return local(running.address if running else self.bind)


def project_here(explicit: str | None) -> Project:
    """Returns the project of the current folder, or that of the configuration in `--config` (`explicit`)."""
    location = find_config(explicit, os.environ, os.getcwd())
    folder = user_folder(os.environ)
    own = location is not None and folder is not None and location.path == os.path.join(folder, "config.toml")
    root = os.getcwd() if location is None or own else os.path.realpath(project_root(location.path))
    return Project(location, root, own)


# -- files of clients ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientFile:
    """A client's configuration file: the project's (`shared`), or the user's. `template` is its path in
    clients.toml, and `key` names the table in which ctx has entries. Raises `ConfigError` if the file cannot
    be used.
    """

    project: Project
    template: str
    shared: bool
    key: str
    form: str = "json"

    @cached_property
    def path(self) -> str:
        root = self.project.root
        path = os.path.join(root, self.template) if self.shared else expanded(self.template)
        return file_at(path, shared=self.shared, root=root)

    @cached_property
    def before(self) -> str | None:
        """The text of the file; None if it does not exist."""
        try:
            with open(self.path, encoding="utf-8", newline="") as file:
                return file.read()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
            raise ConfigError(f"{self.path} cannot be read: {reason}") from error

    @cached_property
    def document(self) -> dict[str, Any]:
        """The parsed file. It is empty if the file does not exist."""
        text = self.before or ""
        try:
            document = tomllib.loads(text) if self.form == "toml" else _parse_json(text)
            if not isinstance(document.get(self.key, {}), dict):
                raise ValueError(f"'{self.key}' is not a table")
            if self.key == "hooks" and not all(
                isinstance(rows, list) for rows in document.get("hooks", {}).values()
            ):
                raise ValueError("'hooks' is not a table of lists")
        except (ValueError, RecursionError) as error:
            reason = "nested too deeply" if isinstance(error, RecursionError) else plain(str(error))[:100]
            raise ConfigError(f"{self.path} cannot be parsed ({reason})") from error
        return document

    @property
    def entries(self) -> dict[str, Any]:
        entries: dict[str, Any] = self.document.get(self.key, {})
        return entries

    @cached_property
    def ours(self) -> list[str]:
        """The names of the servers that ctx wrote for this project."""
        return [name for name, row in self.entries.items() if _is_ours(name, row, self.project, self.shared)]


def server_file(client: Client, project: Project, *, shared: bool) -> ClientFile | None:
    """The file with a client's servers; None if the client has none in this scope."""
    template = client.project if shared else client.user
    return ClientFile(project, template, shared, client.key, client.form) if template else None


def _parse_json(text: str) -> dict[str, Any]:
    """Parses JSON with comments and trailing commas. Raises `ValueError`."""
    bare = STRING_OR_COMMENT.sub(lambda match: match[1] or "", text)
    bare = _STRING_OR_COMMA.sub(lambda match: match[1] or "", bare)
    document = json.loads(bare, object_pairs_hook=_unique) if bare.strip() else {}
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def target(row: JSON) -> list[str]:
    """Returns an entry's address, or the words of its command, as a list. [] if `row` is not a table."""
    if not isinstance(row, dict):
        return []
    for key in ADDRESSES:
        if isinstance(row.get(key), str):
            return [row[key]]
    command, arguments = row.get("command", row.get("cmd", "")), row.get("args")
    words = [*(command if isinstance(command, list) else [command])]
    words = [str(word) for word in words + (arguments if isinstance(arguments, list) else [])]
    if "--url" in words[:-1]:  # `ctx mcp --url` connects to the same server
        return [words[words.index("--url") + 1]]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _is_ours(name: str, row: JSON, project: Project, shared: bool) -> bool:
    """Whether ctx wrote this entry for this project. In the project's own file (`shared`), every ctx entry
    counts that names no other configuration.
    """
    words = target(row)
    if len(words) == 1:
        address = urlsplit(words[0])
        near = is_loopback(address.hostname or "") and address.path.split("/")[1:2] == ["mcp"]
        return near and (shared or name in (client_name(project.root), client_name(project.root, 32), "ctx"))
    if not words or words[0] not in _PROGRAMS or words[1:2] != ["mcp"]:
        return False
    if "--config" in words[:-1]:
        path = os.path.join(project.root, words[words.index("--config") + 1])
        config = project.location.path if project.location else ""
        return os.path.realpath(path) == os.path.realpath(config)
    return shared or project.own


def client_rows(project: Project) -> list[dict[str, JSON]]:
    """One JSON row per client: whether it is installed and connected, and the names of its ctx entries."""
    rows: list[dict[str, JSON]] = []
    for key, client in sorted(CLIENTS.items()):
        names, notes, paths, connected = [], [], [], False
        for shared in (False,) if project.own else (True, False):
            try:
                if file := server_file(client, project, shared=shared):
                    paths.append(file.path)
                    names += sorted(
                        name for name in file.entries if name in file.ours or name.split("-")[0] == "ctx"
                    )
                    connected = connected or bool(file.ours)
            except ConfigError as error:
                notes.append(plain(error.message))
        rows.append(
            {
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
        )
    return rows
