"""The configuration: `ctx.toml` read once, checked whole, given on as values.

Nothing is parsed and ignored: an unknown key, a wrong type, an unset `${VAR}` or a missing path is a
`ConfigError` that names the file, the key and the mend; all of them are told at once. The keys are declared
in ctx/settings.py. Only the wiring and the CLI import this module.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from ctx.declaration import CHECKS, Key, Section, kind_of
from ctx.errors import ConfigError, StoreError
from ctx.project import project_root, shown_path
from ctx.settings import (
    REGISTRY_PREFIX,
    SECTIONS,
    SERVED,
    WITHOUT_EFFECT,
    Chunking,
    Db,
    Embedding,
    Filesystem,
    Index,
    Retrieval,
    Store,
)
from ctx.text import host_and_port, is_address
from ctx.toml import read_text, tables_of
from ctx.types import JSON, plain_entries

if TYPE_CHECKING:
    import re

    from ctx.named_settings import S3, Git, InlineAgent, Script, ScriptConnector, Web
    from ctx.served_settings import Lua, Mcp, Memory, Packs, Server, Watch

_PACK_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LETTERS = _PACK_LETTERS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ_.")
_Tables = dict[str, dict[str, JSON]]
"""The tables of a group by kind: those of `connectors` under `git`."""

_BESIDES_FOLDERS = (
    "gits", "webs", "buckets", "script_connectors", "script_tools", "script_agents", "inline_agents",
)  # fmt: skip
_VARIABLE = re.compile(r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)\})")


class Config(Section):
    """A whole configuration, every path absolute. `path` is the file it came from, None for the built-in
    defaults.

    `warnings` tell of keys that are known and have no effect here.
    """

    path: str | None
    root: str
    db: Db
    store: Store
    index: Index
    chunking: Chunking
    embedding: Embedding
    retrieval: Retrieval
    server: "Server"
    watch: "Watch"
    mcp: "Mcp"
    lua: "Lua"
    memory: "Memory"
    packs: "Packs"
    filesystems: tuple[Filesystem, ...]
    gits: "tuple[Git, ...]"
    webs: "tuple[Web, ...]"
    buckets: "tuple[S3, ...]"
    script_connectors: "tuple[ScriptConnector, ...]"
    script_tools: "tuple[Script, ...]"
    script_agents: "tuple[Script, ...]"
    inline_agents: "tuple[InlineAgent, ...]"
    warnings: tuple[str, ...]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """A section of `SERVED` where the file has none of these: its defaults."""
            if name not in SERVED:
                raise AttributeError(f"Config has no {name}")
            return _served_defaults()[name]

    @property
    def folder(self) -> str:
        """The folder that holds the catalog, the index, the caches and the keys."""
        return os.path.dirname(self.db.path)

    @property
    def stored(self) -> bool:
        """Whether there is a catalog to read: a file, or a database that is asked. Raises `StoreError` where
        that may not be looked at.
        """
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


class ConfigFile(NamedTuple):
    """A configuration as it is written, before it counts: what it asks for may have to be trusted first."""

    path: str
    label: str  # of the file, in messages
    root: str
    content: bytes
    tables: dict[str, JSON]

    def config(self, environ: Mapping[str, str], *, chosen: bool) -> Config:
        """What it says, as `parse_config`. Raises `ConfigError`."""
        path = os.path.abspath(self.path)
        return parse_config(
            self.tables, shown=self.label, path=path, root=self.root, environ=environ, chosen=chosen
        )


def read_config(path: str, environ: Mapping[str, str], *, remember: bool = False) -> ConfigFile:
    """The text and the tables of a configuration; with `remember` the next reading of the same bytes is
    quicker. Raises `ConfigError`.
    """
    label = shown_path(path)
    content = read_text(path, label)
    tables = tables_of(content, path, label, environ, remember=remember)
    return ConfigFile(path, label, project_root(path), content, tables)


def load_config(path: str, environ: Mapping[str, str]) -> Config:
    """The configuration in a file that the user named. Raises `ConfigError`."""
    return read_config(path, environ).config(environ, chosen=True)


def default_config(root: str) -> Config:
    """The configuration of a folder that has none: its own files, in memory of no one else."""
    return parse_config({}, shown="the defaults", path=None, root=root, environ={})


def _reader(
    tables: dict[str, JSON], shown: str, root: str, environ: Mapping[str, str], *, chosen: bool
) -> "_Reader":
    """What reads the tables of a configuration, and takes its paths from where they are meant from."""
    base = root
    if chosen:
        from ctx.harness import base_folder  # what Context Harness means asks few configurations

        base = base_folder(tables, root)
    reader = _Reader(shown, base, environ)
    if base != root:
        reader.warnings.append(
            f"{shown}: paths are taken from {base}, where what they name is; in {root} it is not"
        )
    return reader


def parse_config(
    tables: dict[str, JSON],
    *,
    shown: str,
    path: str | None,
    root: str,
    environ: Mapping[str, str],
    chosen: bool = False,
) -> Config:
    """A configuration from its tables. Raises a `ConfigError` that names every mistake, a line each.

    `chosen`: the user named the file, so that its paths may begin in a folder above it (`base_folder`).
    """
    reader = _reader(tables, shown, root, environ, chosen=chosen)
    reader.only(tables, "", (*SECTIONS, *SERVED, "connectors", "tools", "agents"))
    sections: dict[str, Any] = {
        name: section(**reader.values(reader.table(tables.get(name, {}), name), section, name))
        for name, section in SECTIONS.items()
    }
    if served := any(name in tables for name in SERVED):
        sections |= _served(reader, tables)
    connectors = reader.group(tables, "connectors", ("filesystem", "git", "web", "s3", "script"))
    if "db" in tables:
        sections["db"] = _own_database(reader, sections["db"])
    tools = reader.group(tables, "tools", ("script",))
    agents = reader.group(tables, "agents", ("inline", "script"))
    config = Config(
        path=path,
        root=reader.root,
        filesystems=tuple(_filesystems(reader, connectors)),
        **_besides_folders(reader, connectors, tools, agents),
        warnings=tuple(reader.warnings),
        **sections,
    )
    if not reader.problems:
        _check_together(reader, config)
        if served:
            _check_bind(reader, config.server.bind)
    if reader.problems:
        raise ConfigError("\n".join(reader.problems))
    return config


class _Reader:
    """Reads one file's tables; gathers its mistakes, each a line that begins with the file's name."""

    def __init__(self, shown: str, root: str, environ: Mapping[str, str]) -> None:
        self.shown = shown
        self.root = root
        self.environ = environ
        self.problems: list[str] = []
        self.warnings: list[str] = []

    def report(self, key: str, message: str) -> None:
        line = f"{self.shown}: {key}: {message}"
        self.problems.append(line.replace("\n", "\\n"))  # a key may have a line end, a mistake has a line

    # -- tables ----------------------------------------------------------------------------------------------

    def table(self, value: JSON, name: str) -> dict[str, JSON]:
        if isinstance(value, dict):
            return value
        self.report(f"[{name}]", f"must be a table, got {kind_of(value)}")
        return {}

    def group(self, tables: dict[str, JSON], name: str, kinds: tuple[str, ...]) -> dict[str, dict[str, JSON]]:
        """The tables of a group by kind: `connectors.git` under `git`."""
        group = self.table(tables.get(name, {}), name)
        self.only(group, name, kinds)
        return {kind: self.table(group[kind], f"{name}.{kind}") for kind in kinds if kind in group}

    def only(self, table: dict[str, JSON], name: str, keys: Iterable[str]) -> None:
        """Reports every key of a table that is none of `keys`, or warns of one that means something
        elsewhere.
        """
        choices = list(keys)
        for key in table:
            if key not in choices:
                full = f"{name}.{key}" if name else key
                label = f"[{name}] {key}" if name else f"[{key}]"
                if full in WITHOUT_EFFECT:
                    self.warnings.append(f"{self.shown}: {label} has no effect: {WITHOUT_EFFECT[full]}")
                else:
                    from ctx.synonyms import key_hint  # 5 ms, and only a wrong configuration needs it

                    self.report(label, f"unknown key; {key_hint(key, table, name, choices)}")

    def named(self, group: dict[str, dict[str, JSON]], name: str) -> list[tuple[str, dict[str, JSON]]]:
        """The named tables of a kind, as `[tools.script.NAME]`."""
        entries = group.get(name.rpartition(".")[2], {}).items()
        return [(key, self.table(value, f"{name}.{key}")) for key, value in entries if self._name(key, name)]

    def instances(
        self, group: dict[str, dict[str, JSON]], name: str
    ) -> list[tuple[str, dict[str, JSON], str]]:
        """The named tables of a kind, and the unnamed one where its table holds keys: (full name, table,
        where).
        """
        kind = name.rpartition(".")[2]
        if kind not in group:
            return []
        table = group[kind]
        # No key of a source is a table, so a table is a source, whatever it is called.
        entries = plain_entries(table)
        named = {key: value for key, value in table.items() if key not in entries and self._name(key, name)}
        unnamed = [(kind, entries, name)] if entries or len(named) == 0 == len(table) - len(entries) else []
        return unnamed + [(f"{kind}:{key}", value, f"{name}.{key}") for key, value in named.items()]

    def _name(self, name: str, table: str) -> bool:
        if _named_with(_LETTERS, name):
            return True
        self.report(f"[{table}.{name}]", "a name has 1 to 64 of A-Z a-z 0-9 _ . -")
        return False

    def _script_path(self, written: JSON, path: JSON, label: str) -> JSON:
        """Where a script is; one of a registry may be installed later, and is no file of this project."""
        if isinstance(written, str) and written.startswith(REGISTRY_PREFIX):
            return written
        if path and not os.path.isfile(path):
            self.report(f"[{label}] path", f"no such file: {written}")
        return path

    def scripts(self, group: dict[str, dict[str, JSON]], table: str, prefix: str = "") -> list[Any]:
        """The scripts of a kind; every key that is not ours is the script's own."""
        from ctx.named_settings import NAMED_SECTIONS, ScriptConnector

        section = NAMED_SECTIONS[table]
        scripts = []
        for name, entries in self.named(group, table):
            full = f"{table}.{name}"
            ours = self.values({key: entries[key] for key in entries if key in section.keys}, section, full)
            ours["path"] = self._script_path(entries.get("path"), ours["path"], full)
            ours["fs"] = tuple(self.absolute(path) for path in ours["fs"] or ())
            extras = {key: value for key, value in entries.items() if key not in section.keys}
            expanded = self.extras(extras, full, lenient=section is not ScriptConnector)
            scripts.append(section(name=prefix + name, **ours, config=_json_only(expanded)))
        return scripts

    def extras(self, table: dict[str, JSON], name: str, *, lenient: bool) -> dict[str, JSON]:
        """A script's own keys. `lenient`: one that needs an unset variable is left out, with a warning.

        A connector is not lenient: with half of its settings it might see half of its items, and the others
        would be deleted.
        """
        values = {}
        for key, entry in table.items():
            count = len(self.problems)
            value = self.expand(entry, f"[{name}] {key}")
            if lenient and len(self.problems) > count:
                self.warnings += [
                    f"{line}; the script goes without the key" for line in self.problems[count:]
                ]
                del self.problems[count:]
            else:
                values[key] = value
        return values

    # -- values ----------------------------------------------------------------------------------------------

    def values(self, table: dict[str, JSON], section: type[Section], name: str) -> dict[str, JSON]:
        """A section's attributes, checked, defaults filled."""
        self.only(table, name, section.keys)
        return {
            attribute: rule.default
            if rule.settled and key not in table
            else self.value(table, key, rule, name)
            for key, (attribute, rule) in section.keys.items()
        }

    def value(self, table: dict[str, JSON], key: str, rule: Key, name: str) -> JSON:
        label = f"[{name}] {key}"
        if key in table:
            value = self.expand(table[key], label)
            problem = CHECKS[rule.kind](value, rule)
            if problem is not None:
                self.report(label, problem)
                return None
        elif rule.required:
            self.report(label, "is required")
            return None
        else:
            value = rule.default
        return None if value is None else self._as_kind(value, rule.kind)

    def _as_kind(self, value: Any, kind: str) -> JSON:
        if kind == "path":
            return self.absolute(value)
        if kind in ("strs", "glob"):
            return tuple(value)
        return float(value) if kind == "float" else value

    def absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, os.path.expanduser(path)))

    def expand(self, value: JSON, place: str) -> JSON:
        """`${VAR}` replaced once (a value is never looked at again); `$${` stands for a literal `${`."""
        if isinstance(value, str):
            return self._expanded(value, place) if "${" in value else value
        if isinstance(value, list):
            return [self.expand(entry, place) for entry in value]
        if isinstance(value, dict):
            return {key: self.expand(entry, place) for key, entry in value.items()}
        return value

    def _expanded(self, text: str, place: str) -> str:
        def replace(match: "re.Match[str]") -> str:
            variable = match[2]
            if variable is None:
                return "${"
            if variable not in self.environ:
                mend = f"export it, or write $${{{variable}}} to mean the text"
                self.report(place, f"the environment variable {variable} is not set; {mend}")
            return self.environ.get(variable, match[0])

        return _VARIABLE.sub(replace, text)


@cache
def _served_defaults() -> dict[str, Any]:
    return _served(_Reader("the defaults", "/", {}), {})


def _served(reader: _Reader, tables: dict[str, JSON]) -> dict[str, Any]:
    """The sections of what a server alone needs, by name."""
    from ctx.served_settings import SERVED_SECTIONS  # most projects set none, and a search starts the sooner

    return {
        name: section(**_section(reader, tables, name, section)) for name, section in SERVED_SECTIONS.items()
    }


def _section(reader: _Reader, tables: dict[str, JSON], name: str, section: type[Section]) -> dict[str, JSON]:
    """The attributes of a table that stands once, with the tables within it."""
    from ctx.served_settings import Memory, Packs

    table = reader.table(tables.get(name, {}), name)
    if section is Memory:
        plain = {key: value for key, value in table.items() if key != "llm"}
        return {**reader.values(plain, section, name), "llm": _llm(reader, table.get("llm"))}
    if section is Packs:
        entries = plain_entries(table)
        settings = {key: value for key, value in table.items() if isinstance(value, dict)}
        values = reader.values(entries, section, name)
        return {**values, "settings": _pack_settings(reader, settings, values["enabled"] or ())}
    return reader.values(table, section, name)


def _llm(reader: _Reader, table: JSON) -> Any:
    from ctx.served_settings import Llm

    if table is None:
        return None
    return Llm(**reader.values(reader.table(table, "memory.llm"), Llm, "memory.llm"))


def _pack_settings(reader: _Reader, settings: dict[str, JSON], enabled: tuple[str, ...]) -> dict[str, JSON]:
    for name in settings:
        if name not in enabled:
            reader.report(f"[packs.{name}]", f'the pack is not enabled; add it: [packs] enabled = ["{name}"]')
    for name in enabled:
        _check_pack(reader, name, settings.get(name, {}))
    return {name: _json_only(reader.expand(table, f"[packs.{name}]")) for name, table in settings.items()}


def _check_pack(reader: _Reader, name: str, table: dict[str, JSON]) -> None:
    from ctx.served_settings import SHIPPED_PACKS

    if name[:1] == "-" or not _named_with(_PACK_LETTERS, name):
        reader.report("[packs] enabled", f"'{name}' is not a pack's name (a-z 0-9 -)")
    elif name not in SHIPPED_PACKS and not isinstance(table.get("path"), str):
        shipped = ", ".join(SHIPPED_PACKS)
        mend = f'name its folder: [packs.{name}] path = "..."'
        reader.report("[packs] enabled", f"'{name}' is not a pack that ships with ctx ({shipped}); {mend}")


def _own_database(reader: _Reader, db: Db) -> Db:
    from ctx.harness import own_database

    path = own_database(db.path) if db.path else db.path
    if path != db.path:
        name, foreign = os.path.basename(path), os.path.basename(db.path)
        reader.warnings.append(
            f"{reader.shown}: [db] path: {foreign} is Context Harness's and stays as it is; ctx keeps "
            f"{name} beside it"
        )
    return db.replaced(path=path)


def _filesystems(reader: _Reader, connectors: _Tables) -> list[Filesystem]:
    filesystems = []
    for name, table, label in reader.instances(connectors, "connectors.filesystem"):
        if "max_extract_bytes" in table:  # Context Harness's name for it
            table = {**table, "max_file_bytes": table["max_extract_bytes"]}
            del table["max_extract_bytes"]
        values = reader.values(table, Filesystem, label)
        link = values["link"]
        if link is not None and link != "file" and not ("{path}" in link and is_address(link)):
            mend = 'must be "file", or an address that holds {path}, such as https://wiki.example.com/{path}'
            reader.report(f"[{label}] link", mend)
        filesystems.append(Filesystem(name=name, **values))
    return filesystems


def _besides_folders(reader: _Reader, connectors: _Tables, tools: _Tables, agents: _Tables) -> dict[str, Any]:
    """The sources that are no folders, the scripts and the agents, under their names in `Config`."""
    if not (connectors.keys() - {"filesystem"} or tools or agents):
        return dict.fromkeys(_BESIDES_FOLDERS, ())
    from ctx.named_settings import S3, InlineAgent, Web  # most projects have none, and start the sooner

    return {
        "gits": tuple(_gits(reader, connectors)),
        "webs": tuple(
            Web(name=name, **reader.values(table, Web, label))
            for name, table, label in reader.instances(connectors, "connectors.web")
        ),
        "buckets": tuple(
            S3(name=name, **reader.values(table, S3, label))
            for name, table, label in reader.instances(connectors, "connectors.s3")
        ),
        "script_connectors": tuple(reader.scripts(connectors, "connectors.script", "script:")),
        "script_tools": tuple(reader.scripts(tools, "tools.script")),
        "script_agents": tuple(reader.scripts(agents, "agents.script")),
        "inline_agents": tuple(
            InlineAgent(name=name, **reader.values(table, InlineAgent, f"agents.inline.{name}"))
            for name, table in reader.named(agents, "agents.inline")
        ),
    }


def _git_url(reader: _Reader, url: str, label: str) -> JSON:
    """An address, or a path: relative to the project, as every path is."""
    from ctx.connectors.forges import is_path  # 10 ms, for a git source alone

    if not url.strip():
        reader.report(f"[{label}] url", "must not be empty")
        return url
    local = os.path.expanduser(url)
    return reader.absolute(local) if is_path(local) else url


def _gits(reader: _Reader, connectors: _Tables) -> "list[Git]":
    from ctx.named_settings import Git

    gits = []
    for name, table, label in reader.instances(connectors, "connectors.git"):
        values = reader.values(table, Git, label)
        if values["url"] is not None:
            values["url"] = _git_url(reader, values["url"], label)
        if values["since"] is not None and not _is_day(values["since"]):
            reader.report(f"[{label}] since", f"must be a day such as 2026-01-01, got '{values['since']}'")
        gits.append(Git(name=name, **values))
    return gits


def _is_day(text: str) -> bool:
    from ctx.clock import parse_ms

    try:
        parse_ms(text)
    except (ValueError, OverflowError):
        return False
    return True


def _check_embedding(reader: _Reader, embedding: Embedding) -> None:
    if embedding.provider in ("ollama", "openai") and not (embedding.model and embedding.dims):
        reader.report("[embedding]", f"provider '{embedding.provider}' needs model and dims")
    if embedding.provider in ("local", "disabled"):
        for key in ("url", "api_key_env"):
            if getattr(embedding, key):
                mend = f"does nothing with provider '{embedding.provider}'; delete it or set provider"
                reader.report(f"[embedding] {key}", mend)


def _check_together(reader: _Reader, config: Config) -> None:
    """What no key can tell alone."""
    _check_embedding(reader, config.embedding)
    _check_index(reader, config.index)
    if config.store.url is not None and not is_database(config.store.url):
        # Not an empty one either, of a variable that is not set say: memories would go to a file.
        reader.report("[store] url", "must be postgresql://user@host/database")
    if config.chunking.overlap_tokens * 2 > config.chunking.max_tokens:
        reader.report("[chunking] overlap_tokens", "must be at most half of max_tokens")


def _check_bind(reader: _Reader, bind: str) -> None:
    if host_and_port(bind) is None:
        mend = f"must be HOST:PORT such as 127.0.0.1:7331 or [::1]:7331, got '{bind}'"
        reader.report("[server] bind", mend)


def _check_index(reader: _Reader, index: Index) -> None:
    """Whether the engine has what it needs, and nothing else has what it does not."""
    if index.engine == "local":
        for key in [key for key in ("url", "api_key", "ca_file") if getattr(index, key)]:
            reader.report(f"[index] {key}", 'does nothing with the local engine; set engine = "opensearch"')
    else:
        _check_opensearch(reader, index)


def _check_opensearch(reader: _Reader, index: Index) -> None:
    if not index.url:
        reader.report("[index] url", "is required for the engine 'opensearch'")
    elif not all(url.strip().startswith(("https://", "http://")) for url in index.url.split(",")):
        reader.report("[index] url", "write https://host:9200, several with commas between")
    letters = _PACK_LETTERS | {"_"}
    if not _named_with(letters, index.name) or index.name[0] in "-_":
        reader.report("[index] name", "has 1 to 64 of a-z 0-9 - _ and begins with a letter or digit")
    if index.api_key and "@" in (index.url or ""):
        reader.report(
            "[index] api_key", "stands in place of the user and password in url: delete one of them"
        )


def _named_with(letters: frozenset[str], name: str) -> bool:
    return 0 < len(name) <= 64 and letters.issuperset(name)


def _json_only(value: JSON) -> JSON:
    """TOML dates as ISO text: scripts read JSON."""
    if isinstance(value, dict):
        return {key: _json_only(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_json_only(entry) for entry in value]
    return value if isinstance(value, bool | int | float | str) else value.isoformat()


def is_database(place: str) -> bool:
    """Whether a store is kept in a PostgreSQL, by its address; else that is the path of a file."""
    return place.startswith(("postgresql://", "postgres://"))
