"""Trust: which actions of a configuration need it, and the record of the texts that the user trusts
(configurations and scripts).

A configuration that ctx found in a folder may come from a cloned repository or an archive. Keys that
settings.py declares as safe need no trust; guarded and unknown keys do (`requests`). This check reads no
environment variable and opens no file.

A repository can also contain scripts. ctx uses such a configuration or script only after the user trusts them
(`ctx trust`). The hash of each trusted text is recorded outside the project, so a changed text must be
trusted again.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol

from ctx import files
from ctx.config.compat import RENAMED, WITHOUT_EFFECT
from ctx.config.load import Config
from ctx.config.settings import (
    LOOPBACK_HOSTS,
    NAMED_SECTIONS,
    REGISTRY_PREFIX,
    SECTIONS,
    Llm,
    PackSettings,
    Script,
    is_shipped_model,
)
from ctx.config.toml import Key, keys_of
from ctx.connectors.forges import is_path
from ctx.errors import ConfigError, ToolError
from ctx.models import JSON, as_table, plain_entries

Table = dict[str, JSON]

CLOSED = (".git", ".ctx")  # folders in a project that may hold keys and contain no documents
_MAX_PATH = 4096  # in characters
_READABLE = 200  # maximum characters of a path to show; `ctx trust` shows lines of up to twice as many

# Guarded key -> a phrase that says what it does. `{0}` is the key's value, `{url}` the `url` in the same
# table, and `{who}` the script.
_WORDS = {
    "db.path": "keeps its database at {0}",
    "memory.path": "keeps memories and keys at {0}",
    "store.url": "keeps the documents in the database {0}",
    "index.url": "gives the words and vectors of documents to the search engine {0}",
    "index.ca_file": "trusts the certificates in {0}",
    "embedding.provider": "sends the text of documents to the service of {0}",
    "embedding.model": "loads the model {0}",
    "embedding.url": "sends the text of documents to {0}",
    "embedding.api_key_env": "reads the environment variable {0}",
    "server.bind": "listens on {0}, for other machines too",
    "server.allowed_hosts": "opens the server to {0}",
    "server.allowed_origins": "opens the server to {0}",
    "server.api_key_env": "reads the environment variable {0}",
    "lua.tools_dir": "runs every script in the folder {0}",
    "memory.llm.base_url": "sends memories to {0}",
    "memory.llm.api_key_env": "reads the environment variable {0}",
    "connectors.filesystem.root": "reads the folder {0}",
    "connectors.git.url": "reads the repository {0}",
    "connectors.git.cache_dir": "keeps copies of repositories in {0}",
    "connectors.git.submodules": "reads the submodules of {url}, whose addresses that repository chooses",
    "connectors.git.lfs": "runs `git lfs` to fetch the large files of {url}",
    "connectors.web.url": "reads the site {0}",
    "connectors.web.allow_hosts": "reaches {0}",
    "connectors.web.robots": "ignores robots.txt of {url}",
    "connectors.s3.bucket": "reads the bucket {0}, with your AWS keys unless `anonymous`",
    "connectors.s3.endpoint_url": "reads buckets at {0}",
    "script.path": "runs the script {0} as the {who}",
    "script.env": "reads the variables {0} (as the {who})",
    "script.allow_hosts": "reaches {0} (as the {who})",
    "script.fs": "reads the folders {0} (as the {who})",
    "script.calls": "calls the tools {0} (as the {who})",
    "script.memory_bank": "reads and changes the memories of the bank {0} (as the {who})",
    "pack.api_key_env": "reads the environment variable {0}",
}
# In these tables, a guarded key that is not in `_WORDS` gets no line, because the lines for other keys of the
# table cover it.
_WHOLE = ("memory.llm", "connectors.s3", "script")


def requests(tables: Table, root: str) -> list[str]:
    """The actions of a project's configuration that need trust, one line each. `root` is the project's
    folder.
    """
    lines = [f"reads the environment variable {name}" for name in sorted(set(variables(tables)))]
    for name, value in tables.items():
        table = as_table(value)
        if name in WITHOUT_EFFECT:
            continue
        if name in ("connectors", "tools", "agents"):
            for kind, entries in table.items():
                lines += _named(f"{name}.{kind}", as_table(entries), root)
        elif name == "packs":
            lines += _keys("packs", plain_entries(table), root)
            for pack in table.values():
                lines += _keys("pack", as_table(pack), root)
        elif name == "memory":
            lines += _keys("memory.llm", as_table(table.get("llm")), root)
            lines += _keys("memory", {key: table[key] for key in table if key != "llm"}, root)
        elif name in SECTIONS:
            lines += _keys(name, table, root)
        else:
            lines += [f"sets [{name}] {key}" for key in table]
    return lines + led_out(tables, root) if lines else lines


def asked(content: bytes, tables: Table, root: str) -> bytes:
    """The bytes whose hash is recorded when the user trusts a configuration: its text, and the targets of
    links that lead out of the project.

    The targets are included because `git pull` can change a link without changing the text of the
    configuration.
    """
    return b"\0".join([content, *(os.fsencode(line) for line in led_out(tables, root))])


def led_out(tables: Table, root: str) -> list[str]:
    """A line for each path in the configuration that follows a link out of the project or into one of its
    closed folders.

    Absolute paths are checked, too: `/proc/self/cwd/docs` may be a folder in the project now and a link
    later.
    """
    lines = []
    for text in sorted(set(_texts(tables))):
        path = os.path.normpath(os.path.join(root, os.path.expanduser(text)))
        exists = text and "\0" not in text and len(path) <= _MAX_PATH and os.path.lexists(path)
        if exists and not inside(text, root, CLOSED) and os.path.realpath(path) != path:
            lines.append(f"follows the link {text} to {os.path.realpath(path)}")
    return lines


def variables(value: JSON) -> Iterator[str]:
    """The names of the environment variables that the configuration uses as `${NAME}`. (`$${` is a literal
    `${`.)
    """
    for text in _texts(value):
        before, *pieces = text.split("${")
        for piece in pieces:
            name, brace, _ = piece.partition("}")
            if brace and name.isidentifier() and not before.endswith("$"):
                yield name
            before = piece


def inside(path: str, root: str, closed: tuple[str, ...]) -> bool:
    """Whether a path, with all links resolved, is inside the project and not in one of its `closed`
    folders.
    """
    if "\0" in path:
        return False  # the check of the configuration reports this path
    target = os.path.realpath(os.path.normpath(os.path.join(root, os.path.expanduser(path))))
    parts = os.path.relpath(target, os.path.realpath(root)).split(os.sep)
    return parts[0] != ".." and not any(part.lower() in closed for part in parts)


def _texts(value: JSON) -> Iterator[str]:
    """All strings inside a value, at any depth."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from _texts(entry)


# -- tables --------------------------------------------------------------------------------------------------


_TABLES = {**SECTIONS, **NAMED_SECTIONS, "memory.llm": Llm, "pack": PackSettings, "script": Script}


def _keys(name: str, table: Table, root: str, who: str = "") -> Iterator[str]:
    """The lines for the keys of a table that need trust. `name` is the table's name in `_WORDS`, and `who`
    the script that the keys belong to.
    """
    keys = keys_of(_TABLES[name])
    for key, value in table.items():
        full = f"{name}.{key}"
        rule = keys.get(RENAMED.get(full, key))
        if full in WITHOUT_EFFECT or (rule and rule.safe):
            continue
        if rule is None or (full not in _WORDS and name not in _WHOLE):
            yield f"sets [{name}] {key}"
        elif full in _WORDS and value not in ([], rule.default):
            if full in _MATTERS and not _MATTERS[full](value, table, root):
                continue
            yield _WORDS[full].format(_readable(value, rule, root), url=_shown(table.get("url")), who=who)


_Check = Callable[[JSON, Table, str], bool]  # takes a value, its table and the project's folder


def _outside(*closed: str) -> _Check:
    """A check of a path: whether it is outside the project or in one of the `closed` folders."""
    return lambda value, table, root: isinstance(value, str) and not inside(value, root, closed)


# Guarded key -> whether a value that is not the default needs trust.
_MATTERS: dict[str, _Check] = {
    "db.path": _outside(".git"),
    "index.ca_file": _outside(".git"),
    "embedding.provider": lambda value, table, root: (
        not table.get("url") and value not in ("ollama", "disabled")
    ),
    "embedding.model": lambda value, table, root: (
        table.get("provider", "local") == "local" and not is_shipped_model(str(value))
    ),
    "server.bind": lambda value, table, root: str(value).rpartition(":")[0] not in LOOPBACK_HOSTS,
    "connectors.filesystem.root": _outside(*CLOSED),
    # A repository on this machine needs trust even inside the project: its `.git` file may point anywhere.
    "connectors.git.url": lambda value, table, root: (
        isinstance(value, str) and (value.lower().startswith("file:") or is_path(value))
    ),
}


def _named(name: str, table: Table, root: str) -> Iterator[str]:
    """The lines for all tables of one kind, such as `[connectors.git]` and all `[connectors.git.NAME]`."""
    group, _, kind = name.partition(".")
    if name not in NAMED_SECTIONS:
        yield f"sets [{name}]"
    elif kind == "script":
        for script, entries in table.items():
            who = f"{'source' if group == 'connectors' else group.removesuffix('s')} {script}"
            own_keys = {key: value for key, value in as_table(entries).items() if key in keys_of(Script)}
            # One line for each grant, so that a very long path cannot push the grants out of view.
            yield from _keys("script", own_keys, root, who)
    else:
        instances = [plain_entries(table), *(value for value in table.values() if isinstance(value, dict))]
        for entries in instances:
            yield from _keys(name, entries, root)


# -- readable values -----------------------------------------------------------------------------------------


def _readable(value: JSON, rule: Key, root: str) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    text = str(value)
    if rule.kind == "urls":
        return ",".join(_shown(url.strip()) for url in text.split(","))
    if "://" in text:
        return _shown(text)
    if len(text) <= _READABLE or "\0" in text:
        return text
    # The path is too long, so show the target of its links.
    return os.path.realpath(os.path.join(root, os.path.expanduser(text)))


def _shown(url: JSON) -> str:
    """A URL without secrets: without its password and query, and without a token in place of the user."""
    scheme, mark, after = str(url).partition("://")
    if not mark:
        return str(url)
    end = next((index for index, char in enumerate(after) if char in "/?#"), len(after))
    userinfo, separator, host = after[:end].rpartition("@")
    path, query, _ = after[end:].partition("?")
    user, password, _ = userinfo.partition(":")
    hidden = not password and scheme.lower() in ("http", "https")  # the user part is usually a token
    # A password may contain a slash, and then its end is in `path`.
    if "@" in path and not host.rpartition(":")[2].isdigit():
        host, path = host.partition(":")[0], "/..."
    return f"{scheme}://{'...' if separator and hidden else user}{separator}{host}{path}{query and '?...'}"


# -- trusted texts -------------------------------------------------------------------------------------------

FOLDERS = {"tools": "tool", "agents": "agent"}


class NotTrusted(ToolError):
    """A script cannot run, because the user does not trust its text."""


class Voucher(Protocol):
    """Decides whether a script may run. `advice` is added to the error message for a missing script file."""

    @property
    def advice(self) -> str: ...

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """The reason why this text may not run; None if it may run. `where` is the script's name in messages.
        Raises `ConfigError`.
        """
        ...

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when a result of `refusal` may change."""
        ...


class ProjectScript(NamedTuple):
    """A script that is in a project's `.ctx/` folder or named in its configuration."""

    kind: str  # tool | agent | connector
    name: str
    path: str  # the script's path in the list of trusted texts
    digest: str
    trusted: bool


class TrustFile:
    """The file with the hashes of trusted texts."""

    advice = ""

    def __init__(self, path: str) -> None:
        self.path = path

    def digests(self) -> Mapping[str, str]:
        """path -> hash of the trusted texts. Raises `ConfigError` if the file is damaged."""
        try:
            entries = json.loads(files.read_file(self.path))["trusted"]
            return {str(path): str(digest) for path, digest in entries.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"the list of trusted texts cannot be read; delete {self.path} and run `ctx trust` again"
            ) from error

    def vouches(self, path: str, text: bytes) -> bool:
        """Whether the user trusts this text at this path. Raises `ConfigError`."""
        return self.digests().get(path) == digest_of(text)

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """The reason why a script of a project may not run; None if it may run. Raises `ConfigError`."""
        if self.vouches(path, text):
            return None
        return f"{where} is not trusted and does not run; review it, then run `ctx trust`"

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file changes."""
        return files.stamp(self.path)

    def record(self, changes: Mapping[str, str | None]) -> None:
        """Records trust in texts (path -> hash), or revokes it (path -> None). Raises `ConfigError`."""
        if not changes:
            return
        try:
            with files.locked(self.path):
                entries: dict[str, str | None] = {**self.digests(), **changes}
                lasting = {path: digest for path, digest in sorted(entries.items()) if digest is not None}
                files.replace(self.path, json.dumps({"trusted": lasting}, indent=1).encode())
        except OSError as error:
            raise ConfigError(
                f"trust cannot be recorded in {os.path.dirname(self.path)}: {error.strerror}; "
                "make the folder writable, or set XDG_STATE_HOME to a writable one"
            ) from error


class PinnedScripts(TrustFile):
    """Checks the scripts of a configuration that ctx found. A script may run only if its text is the same as
    when the user trusted the configuration and the script.
    """

    def __init__(self, path: str, config: Config) -> None:
        super().__init__(path)
        self._root = config.root
        name = os.path.relpath(config.path, config.root) if config.path else "ctx.toml"
        self._command = f"ctx trust {name}"

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        digest = self.digests().get(_script_key(path, self._root))
        if digest == digest_of(text):
            return None
        reason = "is not trusted yet" if digest is None else "has changed since you trusted it"
        return f"{where} {reason} and does not run; review it, then run `{self._command}`"


def pins_of(config: Config, environ: Mapping[str, str]) -> PinnedScripts | None:
    """The check for the scripts of a configuration; None if the user chose the configuration and no check is
    needed.
    """
    return None if config.chosen else PinnedScripts(trust_path(environ), config)


def trust_path(environ: Mapping[str, str]) -> str:
    """The path of the user's list of trusted texts."""
    return os.path.join(files.state_folder(environ), "trusted.json")


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def project_files(root: str) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path) of the scripts in a project's `.ctx/tools` and `.ctx/agents`.

    Links are skipped, because a script may read its own folder, and a link could make this any folder.
    """
    for name, kind in FOLDERS.items():
        folder = os.path.join(os.path.realpath(root), ".ctx", name)
        if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
            continue
        for script, path in scripts_in(folder):
            if not os.path.islink(path) and os.path.isfile(path):
                yield kind, script, path


def scripts_in(folder: str | None) -> list[tuple[str, str]]:
    """(name, path) of the scripts in a folder, sorted by name; empty if the folder does not exist."""
    try:
        entries = sorted(os.listdir(folder)) if folder is not None else []
    except OSError:
        return []
    return [
        (entry.removesuffix(".lua"), os.path.join(folder or "", entry))
        for entry in entries
        if entry.endswith(".lua") and not entry.startswith(".")
    ]


def project_scripts(root: str, trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts in a project's `.ctx/` folder, each with whether its text is trusted. `trusted` is path ->
    hash.
    """
    return _compared(((kind, name, path, path) for kind, name, path in project_files(root)), trusted)


def configured_scripts(config: Config, trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts that a configuration names and the scripts in its `tools_dir`, each with whether its text
    is trusted. `trusted` is path -> hash.

    Scripts from registries are not included, because their trust is recorded elsewhere.
    """
    groups = {
        "connector": config.script_connectors,
        "tool": config.script_tools,
        "agent": config.script_agents,
    }
    named = [(kind, script.name, script.path) for kind, group in groups.items() for script in group]
    named += [("tool", name, path) for name, path in scripts_in(config.lua.tools_dir)]
    rows = (
        (kind, name, path, _script_key(path, config.root))
        for kind, name, path in named
        if not path.startswith(REGISTRY_PREFIX)
    )
    return _compared(rows, trusted)


def _compared(rows: Iterable[tuple[str, str, str, str]], trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts with their hashes, each with whether it is trusted. `rows` are (kind, name, path, path in
    the list of trusted texts). Missing files are skipped.
    """
    return [
        ProjectScript(kind, name, key, digest, trusted.get(key) == digest)
        for kind, name, path, key in rows
        if (digest := _digest_of_file(path)) is not None
    ]


def _script_key(path: str, root: str) -> str:
    """The path under which a script is recorded in the list of trusted texts. Links are resolved up to the
    project's folder `root`.
    """
    return os.path.normpath(os.path.join(os.path.realpath(root), os.path.relpath(path, root)))


def _digest_of_file(path: str) -> str | None:
    """The hash of a file; None if it is not a regular file or cannot be read."""
    with suppress(OSError):
        if os.path.isfile(path):
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    return None
