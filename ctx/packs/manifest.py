"""`pack.toml`: what a memory pack declares, and the core enforces (docs/packs.md)."""

import os
import re
from collections.abc import Mapping
from typing import NamedTuple

from ctx.errors import ConfigError
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
    folder: str
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
    protocol: str | None
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
_DEFAULTS: dict[str, tuple[type, JSON]] = {
    "name": (str, None),
    "api": (int, None),
    "description": (str, ""),
    "grants": (list, None),
    "prefix": (str, ""),
    "key_required": (bool, False),
    "at_banks": (bool, False),
    "bank": (str, None),
    "default_bank": (str, "default"),
    "environ": (dict, {}),
    "errors": (dict, {}),
    "lenient": (bool, True),
    "pretty": (bool, False),
    "protocol": (str, None),
    "rate_per_minute": (int, 0),
    "sessions_file": (str, None),
    "methods": (dict, {}),
    "envelope": (str, None),
    "instructions": (str, ""),
    "tools": (list, None),
    "routes": (list, []),
    "agents": (list, []),
    "remote_path": (str, None),
    "shared": (str, None),
    "profiles": (dict, {}),
}
_REQUIRED = ("name", "api", "grants", "tools")
_AS_WRITTEN = (
    *("name", "description", "prefix", "key_required", "at_banks", "bank", "default_bank", "pretty"),
    *("lenient", "protocol", "rate_per_minute", "sessions_file", "envelope", "remote_path"),
)


def read_manifest(folder: str) -> Manifest:
    """The manifest in a pack's folder. Raises `ConfigError` naming the file and the key."""
    label = os.path.join(os.path.basename(folder), "pack.toml")
    values = _values(tables_in(read_text(os.path.join(folder, "pack.toml"), label), label), label)
    if values["api"] != API:
        raise ConfigError(f"{label}: api: this version of ctx reads api = {API}, not {values['api']}")
    if not _NAME.fullmatch(values["name"]):
        raise ConfigError(f"{label}: name: has a-z 0-9 -")
    unknown = set(values["grants"]) - GRANTS
    if unknown:
        raise ConfigError(
            f"{label}: grants: unknown {', '.join(sorted(unknown))} (known: {', '.join(sorted(GRANTS))})"
        )
    codes = dict(values["errors"])
    details = bool(codes.pop("details", False))
    for key, code in codes.items():
        if key not in _CODES or type(code) is not int:
            raise ConfigError(f"{label}: errors.{key}: must be one of {', '.join(_CODES)} with a number")
    return Manifest(
        **{name: values[name] for name in _AS_WRITTEN},
        folder=folder,
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


def _values(data: Mapping[str, JSON], label: str) -> dict[str, JSON]:
    """Every key with its value, or with what stands for it.
    Raises `ConfigError` for one that is unknown, absent or of another type.
    """
    for key in data:
        if key not in _DEFAULTS:
            raise ConfigError(f"{label}: {key}: unknown key (known: {', '.join(sorted(_DEFAULTS))})")
    values: dict[str, JSON] = {}
    for key, (kind, default) in _DEFAULTS.items():
        if key in _REQUIRED and key not in data:
            raise ConfigError(f"{label}: {key}: is required")
        value = data.get(key, default)
        if value is not None and type(value) is not kind:
            raise ConfigError(f"{label}: {key}: must be a {kind.__name__}")
        values[key] = value
    return values


def _environ(table: Mapping[str, JSON], label: str) -> dict[str, tuple[str, ...]]:
    variables = {}
    for purpose, names in table.items():
        named = [names] if isinstance(names, str) else names
        if (
            purpose not in _ENVIRON
            or not isinstance(named, list)
            or not named
            or not all(isinstance(name, str) for name in named)
        ):
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
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("name"), str)
        or not set(entry) <= {"name", "script"}
    ):
        raise ConfigError(f"{label}: agents: each has a name and a script")
    return PackAgent(entry["name"], _script(folder, entry.get("script", f"{entry['name']}.lua"), label))


def _tool(entry: JSON, folder: str, label: str, profiles: Mapping[str, JSON]) -> PackTool:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise ConfigError(f"{label}: tools: each has a name")
    keys = ("name", "script", "timeout_s", "at_banks", "bank_parameter", "profile")
    for key in entry:
        if key not in keys:
            raise ConfigError(f"{label}: tools.{entry['name']}.{key}: unknown key (known: {', '.join(keys)})")
    if entry.get("profile") not in (None, *profiles):
        raise ConfigError(f"{label}: tools.{entry['name']}.profile: no such profile: {entry['profile']}")
    script = entry.get("script", f"{entry['name']}.lua")
    return PackTool(
        entry["name"],
        _script(folder, script, label),
        float(entry.get("timeout_s", 30)),
        entry.get("at_banks", True),
        entry.get("bank_parameter"),
        entry.get("profile"),
    )


def _script(folder: str, name: str, label: str) -> str:
    path = os.path.join(folder, name)
    if os.path.basename(name) != name or not os.path.isfile(path):
        raise ConfigError(f"{label}: no such script: {name}")
    return path


def _route(entry: JSON, folder: str, label: str) -> PackRouteSpec:
    if (
        not isinstance(entry, dict)
        or not isinstance(entry.get("path"), str)
        or not entry["path"].startswith("/")
    ):
        raise ConfigError(f"{label}: routes: each has a path that begins with /")
    auth = entry.get("auth", "pack")
    if auth not in AUTH:
        raise ConfigError(f"{label}: routes: auth must be one of {', '.join(AUTH)}")
    tool, script = entry.get("tool"), entry.get("script")
    if tool is None and script is None and "{tool}" not in entry["path"]:
        raise ConfigError(f"{label}: routes: name a tool or a script, or have {{tool}} in the path")
    return PackRouteSpec(
        str(entry.get("method", "POST")).upper(),
        entry["path"],
        auth,
        tool,
        _script(folder, script, label) if script else None,
    )
