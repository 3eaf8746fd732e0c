"""`pack.toml`: what a memory pack declares, and the core enforces (docs/packs.md)."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ctx.errors import ConfigError
from ctx.files import irregular
from ctx.identity import BANK, BANK_RULE
from ctx.text import did_you_mean
from ctx.toml import read_text, tables_in
from ctx.types import JSON

API = 1
GRANTS = frozenset({"memory", "http", "fs", "env", "context"})
AUTH = ("required", "pack", "open")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,63}")
_CODES = ("unknown_tool", "rate_limited", "store", "bad_arguments")


class PackTool(NamedTuple):
    """A tool of a pack. `bank_parameter` names the argument that chooses the bank; `at_banks`: listed where
    the URL names the bank.
    """

    name: str
    script: str
    timeout_s: float
    at_banks: bool
    bank_parameter: str | None
    profile: str | None = None  # of which profile it is; None: of each


class PackAgent(NamedTuple):
    """A prompt of a pack: `agent.resolve` of a script, with the same grants."""

    name: str
    script: str


class PackRouteSpec(NamedTuple):
    method: str
    path: str
    auth: str
    tool: str | None  # None: the path names it, or a script of the route's own answers
    script: str | None = None


class Manifest(NamedTuple):
    """One pack. `prefix` goes before each tool's name where all tools are together; the pack's own endpoint
    also takes bare names.
    """

    name: str
    description: str
    grants: frozenset[str]
    tools: tuple[PackTool, ...]
    routes: tuple[PackRouteSpec, ...]
    prefix: str
    key_required: bool
    at_banks: bool
    bank: str | None  # its own bank; None: the caller's
    default_bank: str
    # What (see _ENVIRON): environment variables, the first that is set counts.
    environ: Mapping[str, tuple[str, ...]]
    codes: Mapping[str, int]
    details: bool
    pretty: bool
    lenient: bool
    rate_per_minute: int
    sessions_file: str | None
    methods: Mapping[str, str]  # JSON-RPC method -> script
    envelope: str | None  # "sekha": errors on its routes are {"success": false, ...}
    instructions: str
    agents: tuple[PackAgent, ...]
    remote_path: str | None  # where a tool is on a server of the real product: "/mcp/tools/{tool}"
    shared: str | None  # a script whose value every other sees as `shared`
    # Generations of the dialect, of which one is served: name -> instructions; the first is the
    # default.
    profiles: Mapping[str, str]

    def served(self, profile: str | None) -> "Manifest":
        """The manifest as one profile has it; None: the default. Raises `ConfigError`."""
        if profile is not None and profile not in self.profiles:
            mend = did_you_mean(profile, self.profiles) if self.profiles else "the pack has none"
            raise ConfigError(f"[packs.{self.name}] profile: unknown profile '{profile}'; {mend}")
        chosen = profile or next(iter(self.profiles), None)
        return self._replace(
            tools=tuple(tool for tool in self.tools if tool.profile in (None, chosen)),
            instructions=self.profiles.get(chosen or "") or self.instructions,
        )

    def names(self, purpose: str) -> tuple[str, ...]:
        """The environment variables for `what`."""
        return self.environ.get(purpose, ())

    def variable(self, environ: Mapping[str, str], purpose: str) -> str | None:
        """The value of the first that is set and not empty."""
        return next((environ[name] for name in self.names(purpose) if environ.get(name)), None)


_ENVIRON = ("bank", "api_key", "key_demanded", "mcp_enabled", "rate_limit", "url")
_Keys = Mapping[str, tuple[type, JSON]]
"""Of a table: the type of each key, and what stands for it where it is absent; `...`: it must be there."""
_MANIFEST: _Keys = {
    "name": (str, ...),
    "api": (int, ...),
    "description": (str, ""),
    "grants": (list, ...),
    "prefix": (str, ""),
    "key_required": (bool, False),
    "at_banks": (bool, False),
    "bank": (str, None),
    "default_bank": (str, "default"),
    "environ": (dict, {}),
    "errors": (dict, {}),
    "lenient": (bool, True),
    "pretty": (bool, False),
    "protocol": (str, None),  # without effect: an address speaks what its client does
    "rate_per_minute": (int, 0),
    "sessions_file": (str, None),
    "methods": (dict, {}),
    "envelope": (str, None),
    "instructions": (str, ""),
    "tools": (list, ...),
    "routes": (list, []),
    "agents": (list, []),
    "remote_path": (str, None),
    "shared": (str, None),
    "profiles": (dict, {}),
}
_TOOL: _Keys = {
    "name": (str, ...),
    "script": (str, None),
    "timeout_s": (float, 30.0),
    "at_banks": (bool, True),
    "bank_parameter": (str, None),
    "profile": (str, None),
}
_ROUTE: _Keys = {
    "method": (str, "POST"),
    "path": (str, ...),
    "auth": (str, "pack"),
    "tool": (str, None),
    "script": (str, None),
}
_AGENT: _Keys = {"name": (str, ...), "script": (str, None)}
_KINDS = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
_KINDS |= {list: "a list", dict: "a table"}
_METHODS = ("DELETE", "GET", "PATCH", "POST", "PUT")
_STEP = re.compile(r"[A-Za-z0-9._~-]+|\{[a-z][a-z0-9_]*\}")  # of a route's path
_MAX_TIMEOUT_S = 86_400.0
_AS_WRITTEN = (
    *("name", "description", "prefix", "key_required", "at_banks", "bank", "default_bank", "pretty"),
    *("lenient", "rate_per_minute", "sessions_file", "envelope", "remote_path"),
)


def _check_codes(codes: Mapping[str, JSON], label: str) -> None:
    for key, code in codes.items():
        if key not in _CODES or type(code) is not int:
            raise ConfigError(f"{label}: errors.{key}: must be one of {', '.join(_CODES)} with a number")


def read_manifest(folder: str) -> Manifest:
    """The manifest in a pack's folder. Raises `ConfigError` naming the file and the key."""
    label = os.path.join(os.path.basename(folder), "pack.toml")
    path = os.path.join(folder, "pack.toml")
    if irregular(path):
        raise ConfigError(f"{label}: is no file: put one there")
    tables = tables_in(read_text(path, label), label)
    values = _values(tables, _MANIFEST, f"{label}: ")
    _check(values, label)
    codes = dict(values["errors"])
    details = bool(codes.pop("details", False))
    _check_codes(codes, label)
    return Manifest(
        **{name: values[name] for name in _AS_WRITTEN},
        grants=frozenset(values["grants"]),
        tools=tuple(_tool(entry, folder, label, values["profiles"]) for entry in values["tools"]),
        routes=tuple(_route(entry, folder, label) for entry in values["routes"]),
        environ=_environ(values["environ"], label),
        codes=codes,
        details=details,
        methods={method: _script(folder, name, label) for method, name in values["methods"].items()},
        instructions=values["instructions"].strip(),
        agents=tuple(_agent(entry, folder, label) for entry in values["agents"]),
        shared=_script(folder, values["shared"], label) if values["shared"] else None,
        profiles=_profiles(values["profiles"], label),
    )


def _values(table: JSON, keys: _Keys, prefix: str) -> dict[str, JSON]:
    """Every key with its value, or with what stands for it. `prefix`: of a key, in messages.

    Raises `ConfigError` for one that is unknown, absent or of another type.
    """
    if not isinstance(table, dict):
        raise ConfigError(f"{prefix.rstrip(': .')}: each is a table ({', '.join(keys)})")
    for key in table:
        if key not in keys:
            raise ConfigError(f"{prefix}{key}: unknown key (known: {', '.join(sorted(keys))})")
    return {key: _value(table, key, kind, default, prefix) for key, (kind, default) in keys.items()}


def _value(table: dict[str, JSON], key: str, kind: type, default: JSON, prefix: str) -> JSON:
    value = table.get(key, default)
    if value is ...:
        raise ConfigError(f"{prefix}{key}: is required")
    if kind is float and type(value) is int:
        value = float(value)
    if key in table and type(value) is not kind:
        raise ConfigError(f"{prefix}{key}: must be {_KINDS[kind]}")
    return value


def _check(values: Mapping[str, JSON], label: str) -> None:
    """Raises `ConfigError` where a value has the right type and means nothing, or more than a pack may."""
    if values["api"] != API:
        raise ConfigError(f"{label}: api: this version of ctx reads api = {API}, not {values['api']}")
    if not _NAME.fullmatch(values["name"]):
        raise ConfigError(f"{label}: name: has a-z 0-9 -")
    unknown = sorted({str(grant) for grant in values["grants"]} - GRANTS)
    if unknown:
        raise ConfigError(
            f"{label}: grants: unknown {', '.join(unknown)} (known: {', '.join(sorted(GRANTS))})"
        )
    if values["bank"] not in (None, values["name"]):
        # Else one pack would open what another keeps for itself.
        raise ConfigError(f"{label}: bank: a bank of its own has the pack's name, '{values['name']}'")
    if not BANK.fullmatch(values["default_bank"]):
        raise ConfigError(f"{label}: default_bank: has {BANK_RULE}")
    if values["rate_per_minute"] < 0:
        raise ConfigError(f"{label}: rate_per_minute: calls a minute, 0 for no limit")
    path, folder = values["sessions_file"], f"~/.{values['name']}"
    if path is not None and os.path.normpath(path) != f"{folder}/{os.path.basename(path)}":
        raise ConfigError(f"{label}: sessions_file: must be a file in {folder}")


def _are_texts(values: JSON) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def _environ(table: Mapping[str, JSON], label: str) -> dict[str, tuple[str, ...]]:
    variables = {}
    for purpose, names in table.items():
        named = [names] if isinstance(names, str) else names
        if purpose not in _ENVIRON or not named or not _are_texts(named):
            raise ConfigError(
                f"{label}: environ.{purpose}: one of {', '.join(_ENVIRON)}, with the name of a variable or "
                "a list of names"
            )
        variables[purpose] = tuple(named)
    return variables


def _profiles(data: JSON, label: str) -> dict[str, str]:
    profiles: dict[str, str] = {}
    for name, table in data.items():
        if not isinstance(table, dict) or not set(table) <= {"instructions"}:
            raise ConfigError(f"{label}: profiles.{name}: a table that may have instructions")
        profiles[name] = str(table.get("instructions", "")).strip()
    return profiles


def _agent(entry: JSON, folder: str, label: str) -> PackAgent:
    values = _values(entry, _AGENT, f"{label}: agents.")
    return PackAgent(values["name"], _script(folder, values["script"] or f"{values['name']}.lua", label))


def _tool(entry: JSON, folder: str, label: str, profiles: Mapping[str, JSON]) -> PackTool:
    name = entry.get("name") if isinstance(entry, dict) else None
    prefix = f"{label}: tools.{f'{name}.' if name else ''}"
    values = _values(entry, _TOOL, prefix)
    if values["profile"] not in (None, *profiles):
        raise ConfigError(f"{prefix}profile: no such profile: {values['profile']}")
    if not 0 < values["timeout_s"] <= _MAX_TIMEOUT_S:
        raise ConfigError(f"{prefix}timeout_s: seconds for a call, {_MAX_TIMEOUT_S:,.0f} at most")
    values["script"] = _script(folder, values["script"] or f"{name}.lua", label)
    return PackTool(**values)


def _script(folder: str, name: JSON, label: str) -> str:
    if not isinstance(name, str) or os.path.basename(name) != name or not os.path.isfile(f"{folder}/{name}"):
        raise ConfigError(f"{label}: no such script: {name}")
    path = os.path.join(folder, name)
    # What another script shares is read as Lua, and so are the lines of many a file that holds keys: A = "b".
    if os.path.dirname(os.path.realpath(path)) != os.path.realpath(folder):
        raise ConfigError(f"{label}: {name} is a link that leads out of the pack: put a file there")
    return path


def _names_in(path: str, label: str) -> list[str]:
    """The `{name}` parts of a route's path. Raises `ConfigError` for a path that is none."""
    steps = path.split("/")[1:]
    names = [step for step in steps if step.startswith("{")]
    if not path.startswith("/") or not all(map(_STEP.fullmatch, steps)) or len(set(names)) < len(names):
        raise ConfigError(
            f"{label}: routes.path: after each / stands a word or a {{name}}, which is there once"
        )
    return names


def _route(entry: JSON, folder: str, label: str) -> PackRouteSpec:
    values = _values(entry, _ROUTE, f"{label}: routes.")
    path, method = values["path"], values["method"].upper()
    names = _names_in(path, label)
    if method not in _METHODS:
        raise ConfigError(f"{label}: routes.method: must be one of {', '.join(_METHODS)}")
    if values["auth"] not in AUTH:
        raise ConfigError(f"{label}: routes.auth: must be one of {', '.join(AUTH)}")
    if values["tool"] is None and values["script"] is None and "{tool}" not in names:
        raise ConfigError(f"{label}: routes: name a tool or a script, or have {{tool}} in the path")
    script = None if values["script"] is None else _script(folder, values["script"], label)
    return PackRouteSpec(method, path, values["auth"], values["tool"], script)
