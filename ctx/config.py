"""The configuration: `ctx.toml` read once, checked whole, given on as values.

Nothing is parsed and ignored: an unknown key, a wrong type, an unset `${VAR}` or a missing path is a `ConfigError` that names the
file, the key and the mend. Only the wiring and the CLI import this module.
"""

import os
from collections.abc import Mapping

from ctx.errors import ConfigError
from ctx.lean import TYPE_CHECKING, Any, Self, dataclass_transform, pattern
from ctx.toml import read_toml
from ctx.types import JSON

if TYPE_CHECKING:
    import re

PLACES = ("ctx.toml", ".ctx/config.toml", "config/ctx.toml")
_PACK_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LETTERS = _PACK_LETTERS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ_.")
_VARIABLE = pattern(r"\$(\$\{|\{([A-Za-z_][A-Za-z0-9_]*)\})")

MAX_FILE_BYTES = 10_000_000  # a larger text file is a log or a dump: a hundred thousand chunks of noise


@dataclass_transform(kw_only_default=True, frozen_default=True)
class Section:
    """Values by name, fixed once made. Not a named tuple: making thirty such classes takes ten milliseconds, a quarter of `ctx search`."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is fixed; make another with replaced({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"

    def replaced(self, **changes: Any) -> Self:
        """The same values but for these."""
        return type(self)(**{**self.__dict__, **changes})


class Db(Section):
    path: str


class Chunking(Section):
    max_tokens: int
    overlap_tokens: int


class Embedding(Section):
    provider: str
    model: str | None
    dims: int | None
    batch_size: int
    url: str | None
    api_key_env: str | None
    timeout_secs: float
    max_retries: int
    threads: int


class Retrieval(Section):
    final_limit: int
    fusion: str
    hybrid_alpha: float | None
    candidate_k_keyword: int
    candidate_k_vector: int
    max_chunks_per_doc: int


class Server(Section):
    bind: str
    allowed_hosts: tuple[str, ...]
    cors_origins: tuple[str, ...]
    cross_site_tools: str
    allowed_origins: tuple[str, ...]
    api_key_env: str | None
    rate_limit_per_minute: int
    max_body_bytes: int
    metrics: bool


class Watch(Section):
    enabled: bool
    debounce_ms: int
    git_interval_s: float
    script_interval_s: float


class Mcp(Section):
    enabled: bool


class Lua(Section):
    tools_dir: str | None
    sandbox: str
    workers: int


class Filesystem(Section):
    name: str  # the full name: filesystem or filesystem:NAME
    root: str
    include_globs: tuple[str, ...] | None
    exclude_globs: tuple[str, ...]
    follow_symlinks: bool
    max_file_bytes: int
    gitignore: bool


class Git(Section):
    name: str
    url: str
    branch: str | None
    root: str
    include_globs: tuple[str, ...] | None
    exclude_globs: tuple[str, ...]
    shallow: bool
    cache_dir: str | None
    max_file_bytes: int
    timeout_s: float
    interval_s: float | None


class Script(Section):
    """A Lua file that the operator named: `config` is every key that is not one of ours, and goes to the script."""

    name: str
    path: str
    timeout_s: float
    reuse: bool
    env: tuple[str, ...]
    allow_hosts: tuple[str, ...]
    fs: tuple[str, ...]
    interval_s: float | None
    config: Mapping[str, JSON]


class InlineAgent(Section):
    name: str
    description: str
    tools: tuple[str, ...]
    system_prompt: str


class Llm(Section):
    base_url: str
    model: str
    api_key_env: str | None
    timeout_s: float
    allow_remote: bool


class Memory(Section):
    shared: bool
    secrets: str
    llm: Llm | None


class Packs(Section):
    enabled: tuple[str, ...]
    settings: Mapping[str, Mapping[str, JSON]]


class Config(Section):
    """A whole configuration, every path absolute. `path` is the file it came from, None for the built-in defaults."""

    path: str | None
    root: str
    db: Db
    chunking: Chunking
    embedding: Embedding
    retrieval: Retrieval
    server: Server
    watch: Watch
    mcp: Mcp
    lua: Lua
    memory: Memory
    packs: Packs
    filesystems: tuple[Filesystem, ...]
    gits: tuple[Git, ...]
    script_connectors: tuple[Script, ...]
    script_tools: tuple[Script, ...]
    script_agents: tuple[Script, ...]
    inline_agents: tuple[InlineAgent, ...]

    @property
    def folder(self) -> str:
        """The folder that holds the catalog, the index, the caches and the keys."""
        return os.path.dirname(self.db.path)


class _Key:
    """One key's rule. `kind` is str | int | float | bool | strs | path."""

    __slots__ = ("choices", "default", "high", "kind", "low", "required")

    def __init__(
        self,
        kind: str,
        default: JSON = None,
        low: float | None = None,
        high: float | None = None,
        choices: tuple[str, ...] = (),
        required: bool = False,
    ) -> None:
        self.kind = kind
        self.default = default
        self.low = low
        self.high = high
        self.choices = choices
        self.required = required


_SECTIONS: dict[str, dict[str, _Key]] = {
    "db": {"path": _Key("path", "./.ctx/ctx.db")},
    "chunking": {"max_tokens": _Key("int", 180, 32, 8192), "overlap_tokens": _Key("int", 0, 0, 4096)},
    "embedding": {
        "provider": _Key("str", "local", choices=("local", "ollama", "openai", "disabled")),
        "model": _Key("str"),
        "dims": _Key("int", None, 1, 65536),
        "batch_size": _Key("int", 32, 1, 2048),
        "url": _Key("str"),
        "api_key_env": _Key("str"),
        "timeout_secs": _Key("float", 30.0, 0.1, 3600),
        "max_retries": _Key("int", 5, 0, 20),
        "threads": _Key("int", 0, 0, 256),
    },
    "retrieval": {
        "final_limit": _Key("int", 12, 1, 100),
        "fusion": _Key("str", "minmax", choices=("rrf", "minmax", "dbsf")),
        "hybrid_alpha": _Key("float", None, 0, 1),
        "candidate_k_keyword": _Key("int", 100, 1, 10_000),
        "candidate_k_vector": _Key("int", 300, 1, 10_000),
        "max_chunks_per_doc": _Key("int", 5, 1, 100),
    },
    "server": {
        "bind": _Key("str", "127.0.0.1:7331"),
        "allowed_hosts": _Key("strs", ()),
        "cors_origins": _Key("strs", ("*",)),
        "cross_site_tools": _Key("str", "all", choices=("all", "read_only")),
        "allowed_origins": _Key("strs", ()),
        "api_key_env": _Key("str"),
        "rate_limit_per_minute": _Key("int", 0, 0, 1_000_000),
        "max_body_bytes": _Key("int", 1_048_576, 1024, 1_073_741_824),
        "metrics": _Key("bool", False),
    },
    "watch": {
        "enabled": _Key("bool", True),
        "debounce_ms": _Key("int", 50, 0, 60_000),
        "git_interval_s": _Key("float", 300.0, 1, 604_800),
        "script_interval_s": _Key("float", 900.0, 1, 604_800),
    },
    "mcp": {"enabled": _Key("bool", True)},
    "lua": {
        "tools_dir": _Key("path"),
        "sandbox": _Key("str", "auto", choices=("auto", "strict")),
        "workers": _Key("int", 4, 1, 64),
    },
    "memory": {
        "shared": _Key("bool", False),
        "secrets": _Key("str", "flag", choices=("flag", "redact", "refuse", "off")),
    },
    "packs": {"enabled": _Key("strs", ())},
}
_LLM = {
    "base_url": _Key("str", required=True),
    "model": _Key("str", required=True),
    "api_key_env": _Key("str"),
    "timeout": _Key("float", 30.0, 0.1, 600),
    "allow_remote": _Key("bool", False),
}
_FILESYSTEM = {
    "root": _Key("path", required=True),
    "include_globs": _Key("strs"),
    "exclude_globs": _Key("strs", ()),
    "follow_symlinks": _Key("bool", False),
    "max_file_bytes": _Key("int", MAX_FILE_BYTES, 1, 1_000_000_000),
    "gitignore": _Key("bool", True),
}
_GIT = {
    "url": _Key("str", required=True),
    "branch": _Key("str"),
    "root": _Key("str", "."),
    "include_globs": _Key("strs"),
    "exclude_globs": _Key("strs", ()),
    "shallow": _Key("bool", True),
    "cache_dir": _Key("path"),
    "max_file_bytes": _Key("int", MAX_FILE_BYTES, 1, 1_000_000_000),
    "timeout_s": _Key("float", 600.0, 1, 86_400),
    "interval_s": _Key("float", None, 1, 604_800),
}
_SCRIPT = {
    "path": _Key("path", required=True),
    "timeout": _Key("float", 30.0, 0.01, 86_400),
    "reuse": _Key("bool", False),
    "env": _Key("strs", ()),
    "allow_hosts": _Key("strs", ()),
    "fs": _Key("strs", ()),
}
_SCRIPT_CONNECTOR = {
    **_SCRIPT,
    "timeout": _Key("float", 300.0, 0.01, 86_400),
    "interval_s": _Key("float", None, 1, 604_800),
}
_INLINE = {
    "description": _Key("str", ""),
    "tools": _Key("strs", ()),
    "system_prompt": _Key("str", required=True),
}

# Keys of Context Harness v0.8 that do nothing here, so that a moved configuration is told why.
_GONE = {
    "vector_index": "the vector index needs no settings; delete the section",
    "registries": "registries are not supported; name scripts under [tools.script.NAME]",
    "connectors.s3": "S3 is not supported; write a connector script or mount the bucket",
    "retrieval.group_by": "results are always grouped by document; delete the key",
    "retrieval.doc_agg": "the best chunk of a document decides; delete the key",
    "vector_index.backend": "delete the section",
}


class _Reader:
    """Reads one file's tables; every error begins with the file's name."""

    def __init__(self, shown: str, root: str, environ: Mapping[str, str]) -> None:
        self.shown = shown
        self.root = root
        self.environ = environ

    def fail(self, where: str, message: str) -> ConfigError:
        return ConfigError(f"{self.shown}: {where}: {message}")

    def table(self, value: JSON, where: str) -> dict[str, JSON]:
        if not isinstance(value, dict):
            raise self.fail(f"[{where}]", f"must be a table, got {_kind(value)}")
        return value

    def unknown(self, key: str, where: str, known: list[str]) -> ConfigError:
        full = f"{where}.{key}" if where else key
        if full in _GONE:
            return self.fail(f"[{where}] {key}" if where else f"[{key}]", _GONE[full])
        import difflib  # 5 ms, and only a wrong configuration needs it

        near = difflib.get_close_matches(key, known, 1)
        mend = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(sorted(known))}"
        return self.fail(f"[{where}] {key}" if where else f"[{key}]", f"unknown key; {mend}")

    def values(self, table: dict[str, JSON], keys: dict[str, _Key], where: str) -> dict[str, JSON]:
        for key in table:
            if key not in keys:
                raise self.unknown(key, where, list(keys))
        return {key: self.value(table, key, rule, where) for key, rule in keys.items()}

    def value(self, table: dict[str, JSON], key: str, rule: _Key, where: str) -> JSON:
        if key not in table:
            if rule.required:
                raise self.fail(f"[{where}] {key}", "is required")
            value = rule.default
            return self.absolute(value) if rule.kind == "path" and value is not None else value
        place = f"[{where}] {key}"
        value = self.expand(table[key], place)
        if rule.kind in ("str", "path"):
            if not isinstance(value, str):
                raise self.fail(place, f"must be a string, got {_kind(value)}")
            if not value and rule.kind == "path":
                raise self.fail(place, "must not be empty")
            if rule.choices and value not in rule.choices:
                raise self.fail(place, f"must be one of {', '.join(rule.choices)}, got '{value}'")
            return self.absolute(value) if rule.kind == "path" else value
        if rule.kind == "strs":
            if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
                raise self.fail(place, f"must be a list of strings, got {_kind(value)}")
            return tuple(value)
        if rule.kind == "bool":
            if not isinstance(value, bool):
                raise self.fail(place, f"must be true or false, got {_kind(value)}")
            return value
        if isinstance(value, bool) or not isinstance(value, int if rule.kind == "int" else int | float):
            raise self.fail(
                place, f"must be {'a whole number' if rule.kind == 'int' else 'a number'}, got {_kind(value)}"
            )
        if (rule.low is not None and value < rule.low) or (rule.high is not None and value > rule.high):
            raise self.fail(place, f"must be between {rule.low:g} and {rule.high:g}, got {value}")
        return value if rule.kind == "int" else float(value)

    def absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self.root, os.path.expanduser(path)))

    def expand(self, value: JSON, place: str) -> JSON:
        """`${VAR}` replaced once (a value is never looked at again); `$${` stands for a literal `${`."""
        if isinstance(value, str):
            if "${" not in value:
                return value

            def replace(found: "re.Match[str]") -> str:
                if found[2] is None:
                    return "${"
                if found[2] not in self.environ:
                    raise self.fail(
                        place,
                        f"the environment variable {found[2]} is not set; export it, or write $${{{found[2]}}} to mean the text",
                    )
                return self.environ[found[2]]

            return _VARIABLE.sub(replace, value)
        if isinstance(value, list):
            return [self.expand(entry, place) for entry in value]
        if isinstance(value, dict):
            return {key: self.expand(entry, place) for key, entry in value.items()}
        return value

    def instances(
        self, table: dict[str, JSON], where: str, keys: dict[str, _Key], kind: str
    ) -> list[tuple[str, dict[str, JSON], str]]:
        """The named tables under `where`, and the unnamed one where the table itself holds keys: (full name, table, where)."""
        plain = {key: value for key, value in table.items() if not isinstance(value, dict) or key in keys}
        named = {key: value for key, value in table.items() if key not in plain}
        found = [(kind, plain, where)] if plain or not named else []
        for name, value in named.items():
            if not _named_with(_LETTERS, name):
                raise self.fail(f"[{where}.{name}]", "a name has 1 to 64 of A-Z a-z 0-9 _ . -")
            found.append((f"{kind}:{name}", value, f"{where}.{name}"))
        return found

    def named(self, table: dict[str, JSON], where: str) -> list[tuple[str, dict[str, JSON]]]:
        found = []
        for name, value in table.items():
            if not _named_with(_LETTERS, name):
                raise self.fail(f"[{where}.{name}]", "a name has 1 to 64 of A-Z a-z 0-9 _ . -")
            found.append((name, self.table(value, f"{where}.{name}")))
        return found

    def script(self, name: str, table: dict[str, JSON], where: str, keys: dict[str, _Key]) -> Script:
        ours = self.values({key: value for key, value in table.items() if key in keys}, keys, where)
        if not os.path.isfile(ours["path"]):
            raise self.fail(f"[{where}] path", f"no such file: {table['path']}")
        rest = {
            key: self.expand(value, f"[{where}] {key}") for key, value in table.items() if key not in keys
        }
        return Script(
            name=name,
            path=ours["path"],
            timeout_s=ours["timeout"],
            reuse=ours["reuse"],
            env=ours["env"],
            allow_hosts=ours["allow_hosts"],
            fs=tuple(self.absolute(path) for path in ours["fs"]),
            interval_s=ours.get("interval_s"),
            config=_json_only(rest),
        )


def find_config(explicit: str | None, environ: Mapping[str, str], folder: str) -> str | None:
    """The configuration file that counts: `--config`, `$CTX_CONFIG`, then the places of a project, then the user's own.

    None where there is none. Raises `ConfigError` where a file was named and is not there.
    """
    for origin, named in (("--config", explicit), ("$CTX_CONFIG", environ.get("CTX_CONFIG"))):
        if named:
            path = os.path.join(folder, os.path.expanduser(named))
            if not os.path.isfile(path):
                raise ConfigError(f"{origin}: no such file: {named}; `ctx init` writes one")
            return os.path.normpath(path)
    for place in PLACES:
        path = os.path.join(folder, place)
        if os.path.isfile(path):
            return os.path.normpath(path)
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    path = os.path.join(home, "ctx", "config.toml")
    return path if os.path.isabs(path) and os.path.isfile(path) else None


def project_root(path: str) -> str:
    """What relative paths are relative to: the folder that holds the file, or its parent where that is `config` or `.ctx`."""
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.dirname(folder) if os.path.basename(folder) in ("config", ".ctx") else folder


def load_config(path: str, environ: Mapping[str, str], *, remember: bool = False) -> Config:
    """The configuration in a file; with `remember` the next reading of the same bytes is quicker. Raises `ConfigError`."""
    shown = os.path.relpath(path) if not os.path.relpath(path).startswith("..") else path
    data = read_toml(path, shown, environ, remember=remember)
    return parse_config(
        data, shown=shown, path=os.path.abspath(path), root=project_root(path), environ=environ
    )


def default_config(root: str) -> Config:
    """The configuration of a folder that has none: its own files, in memory of no one else."""
    return parse_config({}, shown="the defaults", path=None, root=root, environ={})


def parse_config(
    data: dict[str, JSON], *, shown: str, path: str | None, root: str, environ: Mapping[str, str]
) -> Config:
    """A configuration from its tables. Raises `ConfigError`."""
    reader = _Reader(shown, root, environ)
    known = [*_SECTIONS, "connectors", "tools", "agents"]
    for key in data:
        if key not in known:
            raise reader.unknown(key, "", known)

    sections: dict[str, dict[str, JSON]] = {}
    for name, keys in _SECTIONS.items():
        table = dict(reader.table(data.get(name, {}), name))
        if name == "memory":
            table.pop("llm", None)
        if name == "packs":
            table = {key: value for key, value in table.items() if not isinstance(value, dict)}
        sections[name] = reader.values(table, keys, name)

    embedding = Embedding(**sections["embedding"])
    if embedding.provider in ("ollama", "openai") and not (embedding.model and embedding.dims):
        raise reader.fail("[embedding]", f"provider '{embedding.provider}' needs model and dims")
    for key in ("url", "api_key_env"):
        if sections["embedding"][key] and embedding.provider in ("local", "disabled"):
            raise reader.fail(
                f"[embedding] {key}",
                f"does nothing with provider '{embedding.provider}'; delete it or set provider",
            )
    server = Server(**sections["server"])
    _check_bind(server.bind, reader)
    chunking = Chunking(**sections["chunking"])
    if chunking.overlap_tokens * 2 > chunking.max_tokens:
        raise reader.fail("[chunking] overlap_tokens", "must be at most half of max_tokens")

    filesystems, gits, script_connectors = _connectors(reader, data)
    tools = reader.table(data.get("tools", {}), "tools")
    _only(reader, tools, "tools", ("script",))
    script_tools = [
        reader.script(name, table, f"tools.script.{name}", _SCRIPT)
        for name, table in reader.named(reader.table(tools.get("script", {}), "tools.script"), "tools.script")
    ]
    agents = reader.table(data.get("agents", {}), "agents")
    _only(reader, agents, "agents", ("inline", "script"))
    inline_agents = [
        InlineAgent(name=name, **reader.values(table, _INLINE, f"agents.inline.{name}"))
        for name, table in reader.named(
            reader.table(agents.get("inline", {}), "agents.inline"), "agents.inline"
        )
    ]
    script_agents = [
        reader.script(name, table, f"agents.script.{name}", _SCRIPT)
        for name, table in reader.named(
            reader.table(agents.get("script", {}), "agents.script"), "agents.script"
        )
    ]
    return Config(
        path=path,
        root=root,
        db=Db(**sections["db"]),
        chunking=chunking,
        embedding=embedding,
        retrieval=Retrieval(**sections["retrieval"]),
        server=server,
        watch=Watch(**sections["watch"]),
        mcp=Mcp(**sections["mcp"]),
        lua=Lua(**sections["lua"]),
        memory=Memory(**sections["memory"], llm=_llm(reader, data)),
        packs=_packs(reader, data, sections["packs"]["enabled"]),
        filesystems=tuple(filesystems),
        gits=tuple(gits),
        script_connectors=tuple(script_connectors),
        script_tools=tuple(script_tools),
        script_agents=tuple(script_agents),
        inline_agents=tuple(inline_agents),
    )


def _connectors(reader: _Reader, data: dict[str, JSON]) -> tuple[list[Filesystem], list[Git], list[Script]]:
    connectors = reader.table(data.get("connectors", {}), "connectors")
    _only(reader, connectors, "connectors", ("filesystem", "git", "script"))
    filesystems = []
    for kind in connectors:
        reader.table(connectors[kind], f"connectors.{kind}")
    gits = []
    if "filesystem" in connectors:
        for name, table, where in reader.instances(
            connectors["filesystem"], "connectors.filesystem", _FILESYSTEM, "filesystem"
        ):
            if "max_extract_bytes" in table:  # Context Harness's name for it
                table = {**table, "max_file_bytes": table["max_extract_bytes"]}
                del table["max_extract_bytes"]
            filesystems.append(Filesystem(name=name, **reader.values(table, _FILESYSTEM, where)))
    if "git" in connectors:
        for name, table, where in reader.instances(connectors["git"], "connectors.git", _GIT, "git"):
            values = reader.values(table, _GIT, where)
            if not values["url"].strip():
                raise reader.fail(f"[{where}] url", "must not be empty")
            local = os.path.expanduser(values["url"])
            if "://" not in local and ":" not in local:  # a path, relative to the project as every path is
                values["url"] = reader.absolute(local)
            gits.append(Git(name=name, **values))
    scripts = [
        reader.script(f"script:{name}", table, f"connectors.script.{name}", _SCRIPT_CONNECTOR)
        for name, table in reader.named(
            reader.table(connectors.get("script", {}), "connectors.script"), "connectors.script"
        )
    ]
    return filesystems, gits, scripts


def _only(reader: _Reader, table: dict[str, JSON], where: str, known: tuple[str, ...]) -> None:
    for key in table:
        if key not in known:
            raise reader.unknown(key, where, list(known))


def _llm(reader: _Reader, data: dict[str, JSON]) -> Llm | None:
    table = reader.table(data.get("memory", {}), "memory").get("llm")
    if table is None:
        return None
    values = reader.values(reader.table(table, "memory.llm"), _LLM, "memory.llm")
    return Llm(
        base_url=values["base_url"],
        model=values["model"],
        api_key_env=values["api_key_env"],
        timeout_s=values["timeout"],
        allow_remote=values["allow_remote"],
    )


def _packs(reader: _Reader, data: dict[str, JSON], enabled: tuple[str, ...]) -> Packs:
    settings: dict[str, Mapping[str, JSON]] = {}
    for name, table in reader.table(data.get("packs", {}), "packs").items():
        if isinstance(table, dict):
            if name not in enabled:
                raise reader.fail(
                    f"[packs.{name}]", f'the pack is not enabled; add it: [packs] enabled = ["{name}"]'
                )
            settings[name] = _json_only(reader.expand(table, f"[packs.{name}]"))
    for name in enabled:
        if name[:1] == "-" or not _named_with(_PACK_LETTERS, name):
            raise reader.fail("[packs] enabled", f"'{name}' is not a pack's name (a-z 0-9 -)")
    return Packs(enabled=enabled, settings=settings)


def _check_bind(bind: str, reader: _Reader) -> None:
    host, colon, port = bind.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        raise reader.fail("[server] bind", f"must be HOST:PORT such as 127.0.0.1:7331, got '{bind}'")


def _named_with(letters: frozenset[str], name: str) -> bool:
    return 0 < len(name) <= 64 and letters.issuperset(name)


def _kind(value: JSON) -> str:
    for kind, name in (
        (bool, "a boolean"),
        (int, "a whole number"),
        (float, "a number"),
        (str, "a string"),
        (list, "a list"),
        (dict, "a table"),
    ):
        if isinstance(value, kind):
            return (
                f"{name} ({value!r})" if kind in (bool, int, float, str) and len(repr(value)) < 60 else name
            )
    return "a date"


def _json_only(value: JSON) -> JSON:
    """TOML dates as ISO text: scripts read JSON."""
    if isinstance(value, dict):
        return {key: _json_only(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_json_only(entry) for entry in value]
    return value if isinstance(value, bool | int | float | str) else value.isoformat()
