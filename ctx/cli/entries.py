"""The entries of ctx in the files of clients, and the project that they belong to."""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlsplit

from ctx.cli.clients import Client, Entry, expanded
from ctx.cli.configuration import configuration_at
from ctx.cli.edits import Edit, file_at, parsed, read_text, written
from ctx.cli.output import plain
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.config.find import Location, client_name, find_config, project_root, user_folder
from ctx.errors import ConfigError, Conflict
from ctx.http import is_loopback, local
from ctx.models import JSON

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
class Project:
    """The project to connect. `own`: no project was found; the user's own configuration is used, if any."""

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
        """Where it is served now, else where it will be."""
        running = of_project(servers(), self.root)
        return local(running.address if running else self.bind)


@cache
def _configuration(location: Location) -> Config:
    return configuration_at(location)  # read once, so that warnings are printed once


def project_here(explicit: str | None) -> Project:
    """The project that counts here."""
    location = find_config(explicit, os.environ, os.getcwd())
    folder = user_folder(os.environ)
    own = location is not None and folder is not None and location.path == os.path.join(folder, "config.toml")
    root = os.getcwd() if location is None or own else os.path.realpath(project_root(location.path))
    return Project(location, root, own)


def target(row: JSON) -> list[str]:
    """The target of an entry: its address, or the words of its command."""
    if not isinstance(row, dict):
        return []
    for key in ("url", "httpUrl", "serverUrl", "uri"):
        if isinstance(row.get(key), str):
            return [row[key]]
    command, arguments = row.get("command", row.get("cmd", "")), row.get("args")
    words = [*(command if isinstance(command, list) else [command])]
    words = [str(word) for word in words + (arguments if isinstance(arguments, list) else [])]
    if "--url" in words[:-1]:  # `ctx mcp --url` leads to the same place
        return [words[words.index("--url") + 1]]
    return [os.path.basename(words[0]), *words[1:]] if words else []


def _is_ours(name: str, row: JSON, project: Project, *, shared: bool) -> bool:
    """Whether ctx wrote an entry for this project. In a project's own file every entry of ctx is."""
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
    """A client's file for a project (`shared`) or for the user. Raises `ConfigError` for what is no file."""

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
        """The parsed file. Raises `ConfigError`."""
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
        """The names of this project's entries."""
        rows = self.entries.items()
        return [name for name, row in rows if _is_ours(name, row, self.project, shared=self.shared)]

    def put(self, name: str, entry: Entry, *, replace: bool) -> Edit | None:
        """The change that puts an entry in place of ctx's earlier ones; None if it is there. Raises
        `Conflict` if there is another server of that name.
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
        """The change that removes entries; it deletes a file with nothing else in it."""
        for name in names:
            del self.entries[name]
        if not self.entries:
            del self.document[self.client.key]
        after = written(self.client.form, self.document, self.before) if self.document else None
        return Edit(self.path, self.before, after, not self.shared)
