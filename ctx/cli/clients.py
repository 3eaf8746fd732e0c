"""The clients that `ctx connect` knows (clients.toml), and ctx's entries in their configuration files."""

import os
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit

from ctx.cli.configuration import configuration_at
from ctx.cli.edits import Edit, file_at, parsed, read_text, written
from ctx.cli.output import plain
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.config.find import Location, client_name, find_config, project_root, user_folder
from ctx.errors import ConfigError, Conflict
from ctx.http import is_loopback, local
from ctx.models import JSON

Entry = dict[str, JSON]
_WAYS = (
    "url",
    "httpUrl",
    "serverUrl",
    "uri",
    "command",
    "cmd",
    "args",
    "type",
    "headers",
    "bearer_token_env_var",
)
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
class Hook:
    """One hook: when `event` happens, the client runs `ctx memory ACTION`."""

    event: str
    action: str  # recall | capture
    timeout_s: int
    matcher: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """The hooks that ctx writes for a client. `user` is the path of the user's file for hooks, `project` that
    of a project's file.
    """

    user: str
    project: str
    events: Sequence[Hook]
    then: str
    source: str
    checked: str
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
    types: Sequence[str] = ()  # the entry's `type`: for an address, and for a command
    address: str = "url"  # the key of the server's address
    key_reference: str = "${%s}"  # how a header refers to a variable; "": not supported
    extra: Mapping[str, JSON] = field(default_factory=dict)
    stdio_only: bool = False
    shape: str | None = None  # codex, opencode or goose, whose entries have another form
    trust_file: str | None = None  # the file that lists the folders whose entries the client trusts
    untrusted: str = ""  # what the client does in a folder that it does not trust
    hooks: Hooks | None = None

    def entry(self, server: Server) -> Entry:
        """Returns the entry for a server, in the form that this client reads."""
        command, arguments = server.command, list(server.arguments)
        if self.shape == "codex":
            key = {"bearer_token_env_var": server.key_env} if server.key_env else {}
            return {"command": command, "args": arguments} if server.stdio else {"url": server.url, **key}
        if self.shape == "opencode":
            if server.stdio:
                return {"type": "local", "command": [command, *arguments], "enabled": True}
            return {"type": "remote", "url": server.url, "enabled": True}
        if self.shape == "goose":
            way: Entry = {"type": "streamable_http", "uri": server.url}
            if server.stdio:
                way = {"type": "stdio", "cmd": command, "args": arguments}
            return {**way, "enabled": True, "timeout": 300}
        entry: Entry = {"type": self.types[server.stdio]} if self.types else {}
        if server.stdio:
            entry |= {"command": command, "args": arguments}
        else:
            entry[self.address] = server.url
            if server.key_env and self.key_reference:
                entry["headers"] = {"Authorization": f"Bearer {self.key_reference % server.key_env}"}
        return entry | dict(self.extra)


def _read_clients() -> dict[str, Client]:
    with open(os.path.join(os.path.dirname(__file__), "clients.toml"), "rb") as file:
        rows = tomllib.load(file)
    for row in rows.values():
        if hooks := row.get("hooks"):
            row["hooks"] = Hooks(**{**hooks, "events": [Hook(**event) for event in hooks["events"]]})
    return {name: Client(**row) for name, row in rows.items()}


CLIENTS: Mapping[str, Client] = _read_clients()
HOOKED = sorted(name for name, client in CLIENTS.items() if client.hooks)
BUDGET_TOKENS = 1000  # the default limit of what a hook recalls at the start of a session


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


@dataclass(frozen=True)
class Project:
    """The project to connect. `root` is its folder. `own`: `location` is the user's own configuration,
    because no project was found. `location` is None if there is neither.
    """

    location: Location | None
    root: str
    own: bool

    @property
    def config(self) -> Config | None:
        return _configuration(self.location) if self.location else None

    @property
    def bind(self) -> str:
        return self.config.server.bind if self.config else "127.0.0.1:7331"

    @property
    def address(self) -> str:
        """The URL of the project's running server, else the URL that the configuration names."""
        running = of_project(servers(), self.root)
        return local(running.address if running else self.bind)


@cache
def _configuration(location: Location) -> Config:
    return configuration_at(location)  # cached, so that its warnings are printed once


def project_here(explicit: str | None) -> Project:
    """Returns the project of the current folder, or that of the configuration in `--config` (`explicit`)."""
    location = find_config(explicit, os.environ, os.getcwd())
    folder = user_folder(os.environ)
    own = location is not None and folder is not None and location.path == os.path.join(folder, "config.toml")
    root = os.getcwd() if location is None or own else os.path.realpath(project_root(location.path))
    return Project(location, root, own)


def target(row: JSON) -> list[str]:
    """Returns an entry's address, or the words of its command, as a list. [] if `row` is not a table."""
    if not isinstance(row, dict):
        return []
    for key in ("url", "httpUrl", "serverUrl", "uri"):
        if isinstance(row.get(key), str):
            return [row[key]]
    command, arguments = row.get("command", row.get("cmd", "")), row.get("args")
    words = [*(command if isinstance(command, list) else [command])]
    words = [str(word) for word in words + (arguments if isinstance(arguments, list) else [])]
    if "--url" in words[:-1]:  # `ctx mcp --url` connects to the same server
        return [words[words.index("--url") + 1]]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _is_ours(name: str, row: JSON, project: Project, *, shared: bool) -> bool:
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


@dataclass
class ClientFile:
    """A client's configuration file: the project's (`shared`), or the user's. Raises `ConfigError` if the
    file cannot be used.
    """

    client: Client
    project: Project
    shared: bool

    def __post_init__(self) -> None:
        template = self.client.project if self.shared else self.client.user
        path = os.path.join(self.project.root, template or "") if self.shared else expanded(template or "")
        self.path = file_at(path, shared=self.shared, root=self.project.root)

    @cached_property
    def before(self) -> str | None:
        return read_text(self.path)

    @cached_property
    def document(self) -> Any:
        """The parsed file, which `put` and `remove` change. Raises `ConfigError` if it cannot be parsed."""
        try:
            document = parsed(self.client.form, self.before)
            if not isinstance(document.get(self.client.key, {}), dict):
                raise ValueError(f"'{self.client.key}' is not a table")
            return document
        except ValueError as error:
            raise ConfigError(f"{self.path} cannot be parsed ({plain(str(error))[:100]})") from error

    @property
    def entries(self) -> Any:
        return self.document.get(self.client.key, {})

    @property
    def ours(self) -> list[str]:
        """The names of the entries that ctx wrote for this project."""
        rows = self.entries.items()
        return [name for name, row in rows if _is_ours(name, row, self.project, shared=self.shared)]

    def put(self, name: str, entry: Entry, *, replace: bool) -> Edit | None:
        """Returns the edit that replaces ctx's entries for this project with `entry`; None if nothing
        changes.

        Raises `Conflict` if the name belongs to another server, unless `replace` is set.
        """
        present, ours = self.entries, self.ours
        old = present.get(name)
        if old is not None and name not in ours and target(old) != target(entry) and not replace:
            raise Conflict(
                f"{self.client.title} has another server '{name}': {plain(' '.join(target(old)))[:200]}. "
                "Use --replace to replace it, or --name NAME for another name"
            )
        settings = (
            {key: value for key, value in old.items() if key not in _WAYS} if isinstance(old, dict) else {}
        )
        entry = {**settings, **entry}
        if entry == old and ours in ([], [name]):
            return None
        for label in {*ours, name} & set(present):
            del present[label]
        present[name] = entry
        self.document[self.client.key] = present
        return Edit(
            self.path, self.before, written(self.client.form, self.document, self.before), not self.shared
        )

    def remove(self, names: Iterable[str]) -> Edit:
        """Returns the edit that removes these entries. It deletes the file if nothing else is in it."""
        for name in names:
            del self.entries[name]
        if not self.entries:
            del self.document[self.client.key]
        after = written(self.client.form, self.document, self.before) if self.document else None
        return Edit(self.path, self.before, after, not self.shared)
