"""The clients that `ctx connect` knows (clients.toml), and ctx's entries in their configuration files.

A change of such a file is an `Edit`: it is written, with a `.bak` copy of the old text, or shown as a diff.
"""

import base64
import difflib
import json
import os
import re
import shutil
import stat
import sys
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any
from urllib.parse import quote, urlsplit

import tomlkit
from tomlkit.exceptions import TOMLKitError

from ctx import files
from ctx.cli.configuration import configuration_at, file_at
from ctx.cli.output import plain
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.config.find import Location, client_name, find_config, project_root, user_folder
from ctx.errors import ConfigError, Conflict
from ctx.http import is_loopback, local
from ctx.models import JSON

Entry = dict[str, JSON]
_STRING_OR_COMMENT = re.compile(r'("(?:\\.|[^"\\])*+")|//[^\n]*+|/\*.*?\*/', re.DOTALL)
_STRING_OR_COMMA = re.compile(r'("(?:\\.|[^"\\])*+")|,(?=\s*+[}\]])')
_ADDRESSES = ("url", "httpUrl", "serverUrl", "uri")
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

    def snippet(self, name: str, entry: Entry) -> str:
        """Returns the text of a configuration file with this entry alone."""
        document = tomlkit.document() if self.form == "toml" else {}
        document[self.key] = {name: entry}
        return written(self.form, document, None)

    def install_link(self, name: str, entry: Entry) -> str | None:
        """Returns the link that installs the entry; None if the client has no such links."""
        config = base64.b64encode(json.dumps(entry).encode()).decode()
        values = {"base64": quote(config), "json": quote(json.dumps({"name": name, **entry}))}
        return self.link.format(name=name, **values) if self.link else None


def _read_clients() -> dict[str, Client]:
    with open(os.path.join(os.path.dirname(__file__), "clients.toml"), "rb") as file:
        rows = tomllib.load(file)
    for row in rows.values():
        if "hooks" in row:
            row["hooks"] = Hooks(**row["hooks"])
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


# -- files of clients ----------------------------------------------------------------------------------------


def read_text(path: str) -> str | None:
    """The text of a file; None if the file does not exist. Raises `ConfigError`."""
    try:
        # O_NONBLOCK: if the path is a pipe, opening it would block for ever.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), encoding="utf-8", newline="") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ConfigError(f"{path} cannot be read: it is not a file")
            return file.read()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path} cannot be read: {reason}") from error


@dataclass(frozen=True)
class Edit:
    """A change of a file's text from `before` to `after`. `before` is None for a new file. `after` is None to
    delete the file. `private`: only the owner may read a new file.
    """

    path: str
    before: str | None
    after: str | None
    private: bool

    def apply(self) -> None:
        """Writes the file in one step and keeps the old text as `.bak`. Raises `ConfigError`."""
        with files.writing(self.path, ConfigError):
            if self.private:
                files.make_folder(os.path.dirname(self.path))
            else:
                os.makedirs(os.path.dirname(self.path), exist_ok=True)
            mode = 0o600 if self.private else 0o644
            if self.before is not None:
                mode = os.stat(self.path).st_mode & 0o777
                if not mode & 0o222:
                    raise ConfigError(f"{self.path} is write-protected: `chmod u+w` it first")
                if self.after is None:
                    os.unlink(self.path)
                    return
                files.replace(self.path + ".bak", self.before.encode(), mode=mode)
            files.replace(self.path, (self.after or "").encode(), mode=mode)

    def diff(self) -> str:
        """The change as a unified diff."""
        before, after = ((text or "").splitlines(keepends=True) for text in (self.before, self.after))
        return "".join(difflib.unified_diff(before, after, self.path, f"{self.path} (new)"))

    @property
    def backup_remark(self) -> str:
        """` (backup: NAME.bak)`; empty for a new file."""
        return "" if self.before is None else f" (backup: {os.path.basename(self.path)}.bak)"

    @property
    def comment_notes(self) -> list[str]:
        """A note if the old text is JSON with comments, which the new one lacks; else empty."""
        is_json = not self.path.endswith(".toml")
        if is_json and any(not match[1] for match in _STRING_OR_COMMENT.finditer(self.before or "")):
            name = os.path.basename(self.path)
            return [f"Note: the comments in {self.path} were removed; {name}.bak still has them"]
        return []


def parsed(form: str, text: str | None) -> Any:
    """Parses the text of a client's file into a document to edit. `form` is json or toml. In JSON, comments
    and trailing commas are skipped. None counts as an empty file. Raises `ValueError`.
    """
    if form == "toml":
        try:
            return tomlkit.parse(text or "")
        except TOMLKitError as error:
            raise ValueError(str(error)) from error
    bare = _STRING_OR_COMMENT.sub(lambda match: match[1] or "", text or "")
    bare = _STRING_OR_COMMA.sub(lambda match: match[1] or "", bare)
    try:
        document = json.loads(bare, object_pairs_hook=_unique) if bare.strip() else {}
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(document, dict):
        raise ValueError("it is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key occurs twice")
    return dict(pairs)


def written(form: str, document: Any, before: str | None) -> str:
    """Serializes a parsed JSON or TOML `document`. JSON keeps the indent of `before`, the file's old text
    (default: 2 spaces).
    """
    if form == "toml":
        return tomlkit.dumps(document)
    indent = re.search(r'^([ \t]+)"', before or "", re.MULTILINE)
    return json.dumps(document, indent=indent[1] if indent else 2, ensure_ascii=False) + "\n"


# -- entries of servers --------------------------------------------------------------------------------------


def target(row: JSON) -> list[str]:
    """Returns an entry's address, or the words of its command, as a list. [] if `row` is not a table."""
    if not isinstance(row, dict):
        return []
    for key in _ADDRESSES:
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
        client, present, ours = self.client, self.entries, self.ours
        old = present.get(name)
        if old is not None and name not in ours and target(old) != target(entry) and not replace:
            raise Conflict(
                f"{client.title} has another server '{name}': {plain(' '.join(target(old)))[:200]}. "
                "Use --replace to replace it, or --name NAME for another name"
            )
        if isinstance(old, dict):  # keep the user's own settings of the entry
            ways = {*_ADDRESSES, "command", "args", "type", "headers", *client.stdio, *client.keyed}
            entry = {**{key: value for key, value in old.items() if key not in ways}, **entry}
        if entry == old and ours in ([], [name]):
            return None
        for label in {*ours, name} & set(present):
            del present[label]
        present[name] = entry
        self.document[client.key] = present
        return self._edit(written(client.form, self.document, self.before))

    def remove(self, names: Iterable[str]) -> Edit:
        """Returns the edit that removes these entries. It deletes the file if nothing else is in it."""
        for name in names:
            del self.entries[name]
        if not self.entries:
            del self.document[self.client.key]
        return self._edit(written(self.client.form, self.document, self.before) if self.document else None)

    def _edit(self, after: str | None) -> Edit:
        return Edit(self.path, self.before, after, not self.shared)
