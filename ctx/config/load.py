"""Reads `ctx.toml` and checks all of it.

An unknown key, a wrong type, an unset `${VAR}` or a missing path raises a `ConfigError` that names the file,
the line, the key and the fix. All mistakes are reported at once.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from ctx.clock import parse_ms
from ctx.config import settings
from ctx.config.compat import RENAMED, WITHOUT_EFFECT, base_folder, key_hint, own_database, tables_with
from ctx.config.find import project_root, shown_path
from ctx.config.settings import NAMED_SECTIONS, REGISTRY_PREFIX, SECTIONS, SHIPPED_PACKS
from ctx.config.toml import Key, key_lines, keys_of, kind_of, problem_with, read_text, tables_in
from ctx.connectors.forges import is_path
from ctx.errors import ConfigError, StoreError
from ctx.models import JSON, plain_entries
from ctx.text.strings import did_you_mean, host_and_port, is_address

Table = dict[str, JSON]

_GROUPS = {
    group: [name.partition(".")[2] for name in NAMED_SECTIONS if name.startswith(f"{group}.")]
    for group in ("connectors", "tools", "agents")
}
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_INDEX_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_VARIABLE = re.compile(r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)\})")


@dataclass(kw_only=True)
class Config:
    """A checked configuration. All paths in it are absolute."""

    path: str | None  # the configuration file; None for the built-in defaults
    chosen: bool  # whether the user named the file; otherwise its scripts need trust
    root: str  # the folder to which the paths in the file are relative
    db: settings.Db
    store: settings.Store
    index: settings.Index
    chunking: settings.Chunking
    embedding: settings.Embedding
    retrieval: settings.Retrieval
    server: settings.Server
    watch: settings.Watch
    mcp: settings.Mcp
    lua: settings.Lua
    memory: settings.Memory
    packs: settings.Packs
    filesystems: tuple[settings.Filesystem, ...]
    gits: tuple[settings.Git, ...]
    webs: tuple[settings.Web, ...]
    buckets: tuple[settings.S3, ...]
    script_connectors: tuple[settings.ScriptConnector, ...]
    script_tools: tuple[settings.Script, ...]
    script_agents: tuple[settings.Script, ...]
    inline_agents: tuple[settings.InlineAgent, ...]
    warnings: tuple[str, ...]  # one line for each key that has no effect, and for similar mistakes

    @property
    def folder(self) -> str:
        """The store's folder, which holds the catalog, the index and the caches."""
        return os.path.dirname(self.db.path)

    @property
    def stored(self) -> bool:
        """Whether a catalog exists, as a file or in the database that is configured. Raises `StoreError`."""
        if self.store.url is not None:
            return True
        try:
            os.stat(self.db.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise StoreError(
                f"the store in {shown_path(self.folder)} cannot be read: {error.strerror}; check the "
                "permissions of that folder"
            ) from error
        return True


@dataclass
class ConfigFile:
    """The tables of a configuration, which are not checked yet and may need trust."""

    label: str  # the file's name in messages
    root: str  # the project's folder
    tables: Table
    path: str | None = None  # None if the tables were not read from a file
    content: bytes = b""  # the file's text, for line numbers

    def config(self, environ: Mapping[str, str], *, chosen: bool = False) -> Config:
        """The checked configuration. Raises a `ConfigError` with a line for each mistake.

        If the user chose the file (`chosen`), its paths may be relative to a folder above it (`base_folder`).
        """
        tables = self.tables
        base = base_folder(tables, self.root) if chosen else self.root
        reader = _Reader(self.label, base, environ, self.content)
        if base != self.root:
            reader.warnings.append(
                f"{self.label}: paths are relative to {base}, where the files are, and not to {self.root}"
            )
        reader.check_keys(tables, "", (*SECTIONS, *_GROUPS))
        sections = {name: reader.section(tables, name) for name in SECTIONS}
        if "db" in tables:
            sections["db"] = reader.own_database(sections["db"])
        groups = {name: reader.group(tables, name, kinds) for name, kinds in _GROUPS.items()}
        named = {name: tuple(reader.named_sections(groups, name)) for name in NAMED_SECTIONS}
        config = Config(
            path=self.path and os.path.abspath(self.path),
            chosen=chosen,
            root=base,
            filesystems=named["connectors.filesystem"],
            gits=named["connectors.git"],
            webs=named["connectors.web"],
            buckets=named["connectors.s3"],
            script_connectors=named["connectors.script"],
            script_tools=named["tools.script"],
            script_agents=named["agents.script"],
            inline_agents=named["agents.inline"],
            warnings=tuple(reader.warnings),
            **sections,
        )
        if not reader.problems:
            _check_together(reader, config)
        if reader.problems:
            raise ConfigError("\n".join(reader.problems))
        return config


def read_config(path: str) -> ConfigFile:
    """Reads a configuration file without checking its keys. Raises `ConfigError`."""
    label = shown_path(path)
    content = read_text(path, label)
    return ConfigFile(label, project_root(path), tables_in(content, label), path, content)


def load_config(path: str, environ: Mapping[str, str]) -> Config:
    """The checked configuration in a file that the user named. Raises `ConfigError`."""
    return read_config(path).config(environ, chosen=True)


def default_config(root: str, tables: Table | None = None) -> Config:
    """The configuration of a folder without a configuration file: the defaults, with these tables."""
    return ConfigFile("the defaults", root, tables or {}).config({})


class _Reader:
    """Reads the tables of one file and collects its mistakes. Each mistake is one line, which begins with the
    file and the line number.
    """

    def __init__(self, shown: str, root: str, environ: Mapping[str, str], content: bytes) -> None:
        self.shown = shown
        self.root = root
        self.environ = environ
        self.content = content
        self.problems: list[str] = []
        self.warnings: list[str] = []

    @cached_property
    def _lines(self) -> dict[str, int]:
        return key_lines(self.content.decode("utf-8-sig"))

    def place(self, table: str, key: str = "") -> str:
        """`FILE:LINE` of a key, or of its table if the key is not found in the text."""
        name = ".".join(filter(None, (table, key)))
        while name and name not in self._lines:
            name = name.rpartition(".")[0]
        return f"{self.shown}:{self._lines[name]}" if name else self.shown

    def report(self, table: str, key: str, message: str) -> None:
        label = f"[{table}] {key}" if table and key else f"[{table or key}]"
        self._add(table, key, f"{label}: {message}")

    def _add(self, table: str, key: str, message: str) -> None:
        # Escape line breaks, because a key may contain one and each mistake is one line.
        self.problems.append(f"{self.place(table, key)}: {message}".replace("\n", "\\n"))

    # -- tables ----------------------------------------------------------------------------------------------

    def table(self, value: JSON, name: str) -> Table:
        if isinstance(value, dict):
            return value
        self.report(name, "", f"must be a table, got {kind_of(value)}")
        return {}

    def group(self, tables: Table, name: str, kinds: Iterable[str]) -> dict[str, Table]:
        """kind -> table of a group: `git` -> the table `[connectors.git]`."""
        group = self.table(tables.get(name, {}), name)
        self.check_keys(group, name, kinds)
        return {kind: self.table(group[kind], f"{name}.{kind}") for kind in kinds if kind in group}

    def check_keys(self, table: Table, name: str, choices: Iterable[str]) -> None:
        """Reports the unknown keys of a table, and warns about keys that only Context Harness uses."""
        choices = list(choices)
        for key in [key for key in table if key not in choices]:
            full = f"{name}.{key}" if name else key
            if full in WITHOUT_EFFECT:
                label = f"[{name}] {key}" if name else f"[{key}]"
                reason = WITHOUT_EFFECT[full]
                self.warnings.append(f"{self.place(name, key)}: {label} has no effect: {reason}")
            elif tables := tables_with(key, table, choices):
                where_written = f"in [{name}]" if name else "above all tables"
                self._add(name, key, f"`{key}` belongs in [{'] or ['.join(tables)}], not {where_written}")
            else:
                self.report(name, key, f"unknown key; {key_hint(key, table, name, choices)}")

    def section(self, tables: Table, name: str) -> Any:
        """The checked values of a table that appears only once, including the tables inside it."""
        table = self.table(tables.get(name, {}), name)
        if name == "memory":
            values = self.values({key: table[key] for key in table if key != "llm"}, settings.Memory, name)
            if "llm" in table:
                llm = self.table(table["llm"], "memory.llm")
                values["llm"] = settings.Llm(**self.values(llm, settings.Llm, "memory.llm"))
            return settings.Memory(**values)
        if name == "packs":
            values = self.values(plain_entries(table), settings.Packs, name)
            pack_tables = {key: value for key, value in table.items() if isinstance(value, dict)}
            return settings.Packs(**values, settings=self.pack_settings(pack_tables, values["enabled"] or ()))
        return SECTIONS[name](**self.values(table, SECTIONS[name], name))

    def pack_settings(
        self, tables: dict[str, Table], enabled: tuple[str, ...]
    ) -> dict[str, settings.PackSettings]:
        for name in (name for name in tables if name not in enabled):
            self.report(f"packs.{name}", "", f'the pack is not enabled; add it: [packs] enabled = ["{name}"]')
        packs = {}
        for name in enabled:
            if name in SHIPPED_PACKS:
                values = self.values(tables.get(name, {}), settings.PackSettings, f"packs.{name}")
                packs[name] = settings.PackSettings(**values)
            else:
                hint = did_you_mean(name, SHIPPED_PACKS)
                self.report("packs", "enabled", f"no pack is called '{name}'; {hint}")
        return packs

    def own_database(self, db: settings.Db) -> settings.Db:
        path = own_database(db.path) if db.path else db.path
        if path != db.path:
            name, foreign = os.path.basename(path), os.path.basename(db.path)
            message = f"{foreign} belongs to Context Harness and is not changed; ctx uses {name} next to it"
            self.warnings.append(f"{self.place('db', 'path')}: [db] path: {message}")
        return replace(db, path=path)

    # -- named tables ----------------------------------------------------------------------------------------

    def named_sections(self, groups: dict[str, dict[str, Table]], full: str) -> Iterator[Any]:
        """The checked tables of all sources, tools or agents of one kind."""
        section = NAMED_SECTIONS[full]
        read = self.script if issubclass(section, settings.Script) else self.values
        for name, entries, label in self.instances(groups, full):
            table = {RENAMED.get(f"{full}.{key}", key): value for key, value in entries.items()}
            values = read(table, section, label)
            if section is settings.Filesystem:
                _check_folder(self, values, label)
            if section is settings.Git:
                _check_git(self, values, label)
            yield section(name=name, **values)

    def instances(self, groups: dict[str, dict[str, Table]], full: str) -> Iterator[tuple[str, Table, str]]:
        """(name, table, label) of each named table of a kind, and for sources also of the table without a
        name. `label` is the table's dotted name.
        """
        group, _, kind = full.partition(".")
        table = groups[group].get(kind)
        if table is None:
            return
        plain: Table = {}
        # In a source, an entry that is not a table is a key of the source without a name.
        if group == "connectors" and kind != "script":
            plain = plain_entries(table)
            if plain or not table:
                yield kind, plain, full
        for name, value in table.items():
            if name in plain:
                continue
            if not _NAME.fullmatch(name):
                self.report(f"{full}.{name}", "", "a name must have 1 to 64 of A-Z a-z 0-9 _ . -")
                continue
            label = f"{full}.{name}"
            yield f"{kind}:{name}" if group == "connectors" else name, self.table(value, label), label

    def script(self, table: Table, section: type[Any], label: str) -> dict[str, Any]:
        """The checked attributes of a script. Keys that ctx does not know are put into `config`."""
        keys = keys_of(section)
        values = self.values({key: table[key] for key in table if key in keys}, section, label)
        named_path = table.get("path")
        if isinstance(named_path, str) and named_path.startswith(REGISTRY_PREFIX):
            # The path is not checked, because the registry may be installed later.
            values["path"] = named_path
        elif values["path"] and not os.path.isfile(values["path"]):
            self.report(label, "path", f"no such file: {named_path}")
        values["fs"] = tuple(self.absolute(path) for path in values["fs"] or ())
        extras = {key: value for key, value in table.items() if key not in keys}
        lenient = section is not settings.ScriptConnector
        values["config"] = _json_only(self.extras(extras, label, lenient=lenient))
        return values

    def extras(self, table: Table, label: str, *, lenient: bool) -> Table:
        """The script's own keys, with variables replaced. If `lenient`, a key with an unset variable is left
        out with a warning.

        For a connector an unset variable is an error, because a connector with a missing setting might return
        fewer items, and ctx would delete the others.
        """
        values = {}
        for key, entry in table.items():
            count = len(self.problems)
            value = self.expand(entry, label, key)
            if lenient and len(self.problems) > count:
                self.warnings += [
                    f"{line}; the script does not get this key" for line in self.problems[count:]
                ]
                del self.problems[count:]
            else:
                values[key] = value
        return values

    # -- values ----------------------------------------------------------------------------------------------

    def values(self, table: Table, section: type[Any], label: str) -> dict[str, Any]:
        """attribute -> checked value of a section, including defaults."""
        keys = keys_of(section)
        self.check_keys(table, label, keys)
        return {rule.attribute: self.value(table, rule, label) for rule in keys.values()}

    def value(self, table: Table, rule: Key, label: str) -> Any:
        value = rule.default
        if rule.name in table:
            value = self.expand(table[rule.name], label, rule.name)
            if problem := problem_with(value, rule):
                self.report(label, rule.name, problem)
                return None
        elif rule.required:
            self.report(label, rule.name, "is required")
        if value is None:
            return None
        if rule.kind == "path":
            return self.absolute(value)
        if isinstance(value, list):
            return tuple(value)
        return float(value) if rule.kind == "float" else value

    def absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, os.path.expanduser(path)))

    def expand(self, value: JSON, label: str, key: str) -> JSON:
        """The value with each `${VAR}` replaced by the environment variable. A `${` inside the variable's
        value is not replaced. `$${` becomes a literal `${`.
        """
        if isinstance(value, list):
            return [self.expand(entry, label, key) for entry in value]
        if isinstance(value, dict):
            return {name: self.expand(entry, label, key) for name, entry in value.items()}
        if not isinstance(value, str):
            return value

        def variable(match: re.Match[str]) -> str:
            name = match[2]
            if name is None:
                return "${"
            if name not in self.environ:
                self.report(
                    label,
                    key,
                    f"the environment variable {name} is not set; export it, or write $${{{name}}} for the "
                    "literal text",
                )
            return self.environ.get(name, match[0])

        return _VARIABLE.sub(variable, value)


def _json_only(value: JSON) -> JSON:
    """The value with TOML dates replaced by ISO 8601 text, because scripts get JSON."""
    if isinstance(value, dict):
        return {key: _json_only(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_json_only(entry) for entry in value]
    return value if isinstance(value, bool | int | float | str) else value.isoformat()


# -- checks of tables ----------------------------------------------------------------------------------------


def _check_folder(reader: _Reader, values: dict[str, Any], label: str) -> None:
    link = values["link"]
    if link not in (None, "file") and not ("{path}" in link and is_address(link)):
        message = 'must be "file" or an address with {path}, such as https://wiki.example.com/{path}'
        reader.report(label, "link", message)


def _check_git(reader: _Reader, values: dict[str, Any], label: str) -> None:
    """Reports mistakes in a git source, and makes the path of a local repository absolute."""
    url, since = values["url"], values["since"]
    if url is not None and not url.strip():
        reader.report(label, "url", "must not be empty")
    elif url is not None and is_path(os.path.expanduser(url)):
        values["url"] = reader.absolute(url)
    if since is not None:
        try:
            parse_ms(since)
        except (ValueError, OverflowError):
            reader.report(label, "since", f"must be a day such as 2026-01-01, got '{since}'")


def _check_together(reader: _Reader, config: Config) -> None:
    """Reports mistakes that involve several keys."""
    _check_embedding(reader, config.embedding)
    _check_index(reader, config.index)
    if config.store.url is not None and not is_database(config.store.url):
        # An empty `url`, for example from an empty variable, is also an error, because otherwise the data
        # would go to a file.
        reader.report("store", "url", "must be postgresql://user@host/database")
    if config.chunking.overlap_tokens * 2 > config.chunking.max_tokens:
        reader.report("chunking", "overlap_tokens", "must be at most half of max_tokens")
    if host_and_port(config.server.bind) is None:
        example = "127.0.0.1:7331 or [::1]:7331"
        reader.report("server", "bind", f"must be HOST:PORT such as {example}, got '{config.server.bind}'")


def _check_embedding(reader: _Reader, embedding: settings.Embedding) -> None:
    provider = embedding.provider
    if provider in ("ollama", "openai"):
        if not (embedding.model and embedding.dims):
            reader.report("embedding", "", f"provider '{provider}' needs model and dims")
        return
    for key in ("url", "api_key_env"):
        if getattr(embedding, key):
            hint = f"has no effect with provider '{provider}'; delete it or change the provider"
            reader.report("embedding", key, hint)


def _check_index(reader: _Reader, index: settings.Index) -> None:
    if index.engine == "local":
        for key in ("url", "api_key", "ca_file"):
            if getattr(index, key):
                hint = 'has no effect with the local engine; delete it, or set engine = "opensearch"'
                reader.report("index", key, hint)
        return
    if not index.url:
        reader.report("index", "url", "is required for the engine 'opensearch'")
    elif not all(url.strip().startswith(("https://", "http://")) for url in index.url.split(",")):
        reader.report("index", "url", "must be https://host:9200, or several separated by commas")
    if not _INDEX_NAME.fullmatch(index.name):
        reader.report("index", "name", "must have 1 to 64 of a-z 0-9 - _ and begin with a letter or digit")
    if index.api_key and "@" in (index.url or ""):
        reader.report(
            "index", "api_key", "cannot be used together with a user and password in url: delete one of them"
        )


def is_database(place: str) -> bool:
    """Whether `place` is the URL of a PostgreSQL database, and not the path of a file."""
    return place.startswith(("postgresql://", "postgres://"))
