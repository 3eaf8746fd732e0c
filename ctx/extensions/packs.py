"""Memory packs: a folder of Lua tools and a manifest become tools, routes and profiles; the core keeps what they promise.

The bank is fixed here, before any Lua runs; a script cannot name another. One pack's memories are its own, unless `[memory] shared`.
"""

import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ctx import __version__
from ctx.bundled import bundled_path
from ctx.errors import BadRequest, ConfigError, CtxError, NotFound, StoreError, ToolError, Unauthorized
from ctx.extensions.bridge import Bridge
from ctx.extensions.manifest import Manifest, PackTool, read_manifest
from ctx.extensions.parameters import parameters_schema
from ctx.extensions.scripts import Runner, ScriptFile, annotations
from ctx.extensions.sessions import Rate, Sessions
from ctx.lua.host import Policy
from ctx.lua.pool import Job
from ctx.memory import MemoryBank, MemoryStore, Provenance, call, check_bank_id
from ctx.memory.ops import OPS
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON, Caller

logger = logging.getLogger(__name__)

SHIPPED = ("hindsight", "claude-recall", "sekha")
SETTINGS = ("api_key_env", "default_bank", "rate_limit_per_minute", "sessions_file", "path")


class Dialect(NamedTuple):
    """How the pack's own endpoint words protocol errors: JSON-RPC codes by name, and whether each carries data.details."""

    codes: Mapping[str, int]
    details: bool
    pretty: bool


class Pack:
    """One enabled pack. `tools` are in the Toolbox under `prefix` + name."""

    def __init__(
        self,
        manifest: Manifest,
        settings: Mapping[str, JSON],
        runner: Runner,
        store: Callable[[], MemoryStore],
        *,
        shared: bool,
        environ: Mapping[str, str],
        home: str,
        database: str,
    ) -> None:
        self.manifest = manifest
        self.name = manifest.name
        self._runner = runner
        self._store = store
        self._shared = shared
        self._database = database
        self.began_s = time.monotonic()
        for key in settings:
            if key not in SETTINGS:
                raise ConfigError(f"[packs.{self.name}] {key}: unknown key (known: {', '.join(SETTINGS)})")
        self.keys = _keys(manifest, settings, environ)
        named = environ.get(manifest.environ.get("bank", ""))
        self.default_bank = check_bank_id(str(settings.get("default_bank") or named or manifest.default_bank))
        limit = settings.get("rate_limit_per_minute")
        given = environ.get(manifest.environ.get("rate_limit", ""), "")
        if limit is None:
            limit = int(given) if given.isdecimal() else manifest.rate_per_minute
        self.rate = Rate(int(str(limit)))
        place = settings.get("sessions_file") or manifest.sessions_file
        self.sessions = Sessions(os.path.join(home, str(place).removeprefix("~/")) if place else None)
        self._policy = Policy(self.name)
        self.tools: dict[str, Tool] = {}
        self._sources: dict[str, bytes] = {}

    # -- loading -------------------------------------------------------------------------------------------------

    def load(self, toolbox: Toolbox) -> None:
        """Reads every tool's metadata and registers it. Raises a `CtxError` where a shipped script does not load."""
        for spec in self.manifest.tools:
            script = ScriptFile(
                spec.name, spec.script, timeout_s=spec.timeout_s, shown=f"{self.name}/{os.path.basename(spec.script)}"
            )
            source = script.source()
            found = self._runner.metadata(script, source, "tool")
            schema = parameters_schema(found.get("parameters"), script.where)
            output = found.get("output") if isinstance(found.get("output"), dict) else None
            tool = Tool(
                name=self.manifest.prefix + spec.name,
                title=found.get("title") if isinstance(found.get("title"), str) else None,
                description=str(found.get("description") or spec.name),
                parameters=schema,
                run=self._run(spec, source, output),
                output_schema=output,
                annotations=annotations(found.get("annotations") or {}),
                pack=self.name,
                lenient=self.manifest.lenient,
                origin=script.where,
            )
            toolbox.add(tool)
            self.tools[spec.name] = tool

    def own_name(self, shown: str) -> str | None:
        """The Toolbox's name of a tool by its bare or its full name; None where the pack has none."""
        bare = shown.removeprefix(self.manifest.prefix)
        tool = self.tools.get(bare)
        return tool.name if tool else None

    @property
    def dialect(self) -> Dialect:
        return Dialect(self.manifest.codes, self.manifest.details, self.manifest.pretty)

    # -- a call --------------------------------------------------------------------------------------------------

    def _run(self, spec: PackTool, source: bytes, output: JSON) -> Callable[[dict[str, JSON], Caller], JSON]:
        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            session = self.sessions.open(_session_argument(arguments) or caller.session_id)
            self.rate.spend(session)
            self.sessions.touch(session)
            return self._execute(
                spec.name,
                source,
                "execute",
                arguments,
                self._bank_id(spec, arguments, caller),
                session,
                caller,
                spec.timeout_s,
                output,
            )

        return run

    def answer_method(self, method: str, caller: Caller) -> JSON:
        """What a JSON-RPC method of the pack's own answers (`health/check`)."""
        path = self.manifest.methods[method]
        source = self._sources.get(path)
        if source is None:
            source = self._sources[path] = ScriptFile(method, path).source()
        session = self.sessions.open(caller.session_id)
        return self._execute(method, source, "execute", {}, self.bank_for(caller), session, caller, 10.0, None)

    def bank_for(self, caller: Caller) -> str:
        """The bank of a call that names none: the URL's or the header's, else the pack's default. Packs do not share unless told to."""
        bank = caller.bank or self.default_bank
        own = self.manifest.bank
        if own is None or self._shared:
            return bank
        return own if bank == self.default_bank else check_bank_id(f"{own}:{bank}")

    def _bank_id(self, spec: PackTool, arguments: dict[str, JSON], caller: Caller) -> str:
        if spec.bank_parameter is None:
            bank = self.bank_for(caller)
        else:
            wanted = arguments.get(spec.bank_parameter)
            bank = check_bank_id(wanted if isinstance(wanted, str) else "")
            if caller.bank_fixed and bank != caller.bank:
                raise BadRequest(f"{spec.bank_parameter} '{bank}' is not available on this endpoint")
        if caller.banks is not None and bank not in caller.banks and caller.bank not in caller.banks:
            raise Unauthorized(f"{self.name}: this key does not open the bank '{bank}'", data={"presented": True})
        return bank

    def _execute(
        self,
        name: str,
        source: bytes,
        entry: str,
        arguments: JSON,
        bank_id: str,
        session: str,
        caller: Caller,
        timeout_s: float,
        output: JSON,
    ) -> JSON:
        bank = self._store().bank(bank_id, Provenance(self.name, None, caller.door, caller.principal, name, session))
        memory = _Memory(self, bank, session, caller)
        started = self.sessions.data(session).get("startTime")
        context = {
            "config": {},
            "bank": {"id": bank_id},
            "session": {"id": session, "started_at": started},
            "request": {
                "transport": caller.door,
                "pack": self.name,
                "principal": caller.principal,
                "bank_fixed": caller.bank_fixed,
            },
        }
        job = Job(
            name=name,
            source=source,
            entry=entry,
            arguments=json.dumps(arguments).encode(),
            context=json.dumps(context).encode(),
            grants=self.manifest.grants,
            trust="operator",
            reuse=True,
            kind="tool",
            output_schema=output,
        )
        left_s = timeout_s if caller.deadline_s is None else max(0.001, min(timeout_s, caller.deadline_s - time.monotonic()))
        host = Bridge(self._runner.bridge.toolbox, memory=memory.answer).host_for(self._policy, caller)
        return self._runner.pool.run(job, host, left_s)

    # -- what the core knows -------------------------------------------------------------------------------------

    def snapshot(self, session: str) -> dict[str, JSON]:
        """The facts for a health check; how they are worded is the script's."""
        total, active = self.sessions.counts()
        usage = resource.getrusage(resource.RUSAGE_SELF)
        rss = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
        try:
            with open("/proc/self/statm", encoding="ascii") as file:
                pages = file.read().split()
            rss, data = int(pages[1]) * resource.getpagesize(), int(pages[5]) * resource.getpagesize()
        except OSError:
            data = rss
        try:
            self._store().banks()
            database = "connected"
        except StoreError:
            database = "error"
        return {
            "version": __version__,
            "uptime_s": int(time.monotonic() - self.began_s),
            "rss_bytes": rss,
            "heap_bytes": min(data, rss),
            "sessions": {"total": total, "active": active},
            "tools": len(self.tools),
            "database": database,
            "database_bytes": sum(
                os.path.getsize(self._database + suffix) for suffix in ("", "-wal") if os.path.exists(self._database + suffix)
            ),
            "limit": self.rate.limit,
            "current": self.rate.current(session),
        }

    def envelope(self, error: CtxError) -> JSON:
        """An error in the pack's own shape, on its own routes."""
        return {"success": False, "data": None, "error": error.message}

    def route_answer(
        self, spec_tool: str | None, toolbox: Toolbox
    ) -> Callable[[Mapping[str, str], dict[str, JSON], Caller], JSON]:
        """What a route of the pack answers: a tool's result, un-wrapped; or one of its methods."""

        def answer(parameters: Mapping[str, str], arguments: dict[str, JSON], caller: Caller) -> JSON:
            shown = spec_tool or parameters.get("tool", "")
            if shown in self.manifest.methods:
                return self.answer_method(shown, caller)
            name = self.own_name(shown)
            if name is None:
                raise NotFound(f"{self.name} has no tool called {shown[:80]}")
            return toolbox.call(name, arguments, caller)

        return answer

    def close(self) -> None:
        try:
            self.sessions.close()
        except StoreError as error:
            logger.warning("%s: %s", self.name, error.message)


class _Memory:
    """`context.memory`, `bank`, `session` and `health` of one call."""

    def __init__(self, pack: Pack, bank: MemoryBank, session: str, caller: Caller) -> None:
        self._pack = pack
        self._bank = bank
        self._session = session
        self._caller = caller

    def answer(self, operation: str, arguments: JSON, caller: Caller) -> JSON:
        room, _, name = operation.partition(".")
        given = arguments if isinstance(arguments, list) else []
        if room == "memory":
            return call(self._bank, name, _named(name, given))
        if room == "bank":
            return call(self._bank, name, {})
        if operation == "session.count":
            return call(self._bank, "count", {"filter": {"session": self._session}})
        if operation == "session.kv.get":
            return self._pack.sessions.get(self._session, str(given[0] if given else ""))
        if operation == "session.kv.set":
            self._pack.sessions.set(self._session, str(given[0] if given else ""), given[1] if len(given) > 1 else None)
            return None
        if operation == "health":
            return self._pack.snapshot(self._session)
        raise ToolError(f"{operation} is not available to this script")


def _named(name: str, given: list[JSON]) -> JSON:
    """Lua's positional arguments by name: what the operation requires comes first, a table of options last."""
    spec = OPS.get(name)
    if spec is None:
        return {}  # `call` says that it is unknown
    if len(given) == 1 and isinstance(given[0], dict) and (not spec.required or spec.required[0] in given[0]):
        return given[0]
    named: dict[str, JSON] = dict(zip(spec.required, given, strict=False))
    rest = given[len(spec.required) :]
    if len(rest) > 1 or (rest and rest[0] is not None and not isinstance(rest[0], dict)):
        raise BadRequest(f"memory.{name}: takes {', '.join(spec.required) or 'nothing'} and a table of options")
    return {**named, **(rest[0] if rest and rest[0] else {})}


def _session_argument(arguments: dict[str, JSON]) -> str | None:
    value = arguments.get("sessionId")
    return value if isinstance(value, str) and 0 < len(value) <= 128 else None


def _keys(manifest: Manifest, settings: Mapping[str, JSON], environ: Mapping[str, str]) -> tuple[str, ...]:
    variable = settings.get("api_key_env")
    if isinstance(variable, str):
        key = environ.get(variable)
        if not key:
            raise ConfigError(
                f"[packs.{manifest.name}] api_key_env: the environment variable {variable} is not set; export it or delete the line"
            )
        return (key,)
    key = environ.get(manifest.environ.get("api_key", ""), "")
    return (key,) if key else ()


def pack_folder(name: str, settings: Mapping[str, JSON], root: str) -> str:
    """Where an enabled pack lies: the folder its settings name, or with ctx itself. Raises `ConfigError`."""
    path = settings.get("path")
    if isinstance(path, str):
        return os.path.normpath(os.path.join(root, os.path.expanduser(path)))
    if name in SHIPPED:
        return bundled_path("extensions", name)
    raise ConfigError(
        f"[packs] enabled: '{name}' is not a pack that ships with ctx ({', '.join(SHIPPED)}); name its folder: [packs.{name}] path = \"...\""
    )


def load_packs(
    enabled: Sequence[str],
    settings: Mapping[str, Mapping[str, JSON]],
    runner: Runner,
    store: Callable[[], MemoryStore],
    toolbox: Toolbox,
    *,
    shared: bool,
    root: str,
    environ: Mapping[str, str],
    database: str,
) -> list[Pack]:
    """The enabled packs, loaded. Raises `ConfigError`."""
    packs = []
    for name in enabled:
        own = settings.get(name, {})
        manifest = read_manifest(pack_folder(name, own, root))
        if manifest.name != name:
            raise ConfigError(f"[packs] enabled: the folder of '{name}' holds the pack '{manifest.name}'")
        pack = Pack(
            manifest, own, runner, store, shared=shared, environ=environ, home=environ.get("HOME") or root, database=database
        )
        pack.load(toolbox)
        packs.append(pack)
    return packs


def metadata_only(runner: Runner, manifest: Manifest) -> list[tuple[str, str]]:
    """(name, description) of a pack's tools, for `ctx pack list`."""
    listed = []
    for spec in manifest.tools:
        script = ScriptFile(spec.name, spec.script, shown=f"{manifest.name}/{os.path.basename(spec.script)}")
        found = runner.metadata(script, script.source(), "tool")
        listed.append((manifest.prefix + spec.name, str(found.get("description") or "")))
    return listed
