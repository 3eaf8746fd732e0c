"""Memory packs: a folder of Lua tools and a manifest become tools, routes and profiles; the core keeps what they promise.

The bank is fixed here, before any Lua runs; a script cannot name another. One pack's memories are its own, unless `[memory] shared`.
A call that fails takes back what it wrote.
"""

import json
import logging
import os
import resource
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence

from ctx import __version__
from ctx.bundled import bundled_path
from ctx.errors import (
    BadRequest,
    ConfigError,
    Conflict,
    CtxError,
    NotFound,
    StoreError,
    ToolError,
    Unauthorized,
)
from ctx.extensions.bridge import Bridge
from ctx.extensions.parameters import parameters_schema
from ctx.extensions.scripts import Runner, ScriptFile, annotations
from ctx.lua.host import Policy
from ctx.lua.pool import Job
from ctx.memory import MemoryBank, MemoryStore, Provenance, call, check_bank_id
from ctx.memory.ops import OPS
from ctx.packs.manifest import Manifest, PackAgent, PackTool, read_manifest
from ctx.packs.remote import RemotePack
from ctx.packs.sessions import Rate, Sessions
from ctx.tools.agents import Agent, AgentArgument, Agents, Prompt
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON, Caller

logger = logging.getLogger(__name__)

SHIPPED = ("hindsight", "claude-recall", "sekha")
SETTINGS = ("api_key_env", "default_bank", "rate_limit_per_minute", "sessions_file", "path")
OWN_BANK = "pack:"  # how the banks of packs begin that have their own; no caller can name one
NO = ("false", "0", "no", "off")
SESSION_ARGUMENT = "sessionId"  # of any tool: whose session the call belongs to


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
        named = settings.get("default_bank") or manifest.variable(environ, "bank") or manifest.default_bank
        self.default_bank = _nameable(str(named))
        self.mcp_enabled = (manifest.variable(environ, "mcp_enabled") or "").lower() not in NO
        self.rate = Rate(_rate(manifest, settings, environ))
        place = settings.get("sessions_file") or manifest.sessions_file
        self.sessions = Sessions(os.path.join(home, str(place).removeprefix("~/")) if place else None)
        self._policy = Policy(self.name)
        self.tools: dict[str, Tool] = {}
        self._sources: dict[str, bytes] = {}
        self._remote: RemotePack | None = None

    # -- loading -------------------------------------------------------------------------------------------------

    def load(self, toolbox: Toolbox, agents: Agents) -> None:
        """Reads every script's metadata and registers it. Raises a `CtxError` where one does not load."""
        for spec in self.manifest.tools:
            script = ScriptFile(
                spec.name,
                spec.script,
                timeout_s=spec.timeout_s,
                shown=f"{self.name}/{os.path.basename(spec.script)}",
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
        for spec_agent in self.manifest.agents:
            agents.add(self._agent(spec_agent, taken={agent.name for agent in agents.list()}))

    def _agent(self, spec: PackAgent, *, taken: set[str]) -> Agent:
        script = ScriptFile(spec.name, spec.script, shown=f"{self.name}/{os.path.basename(spec.script)}")
        source = script.source()
        found = self._runner.metadata(script, source, "agent")
        arguments = tuple(
            AgentArgument(
                str(entry["name"]), str(entry.get("description") or ""), entry.get("required") is True
            )
            for entry in found.get("arguments") or ()
        )

        def resolve(given: dict[str, JSON], caller: Caller) -> Prompt:
            bank_id = self._opened_bank(self._named(caller), caller)
            session = self.sessions.open(self._connection(caller))
            answer = self._execute(spec.name, source, given, bank_id, session, caller, 30.0, None, agent=True)
            if not isinstance(answer, dict) or not isinstance(answer.get("system"), str):
                raise ToolError(f"{script.where}: resolve must return a table with a string called 'system'")
            return Prompt(answer["system"], tuple(tool.name for tool in self.tools.values()))

        # Two packs may have a prompt of one name: the pack that was enabled later adds its own.
        name = f"{spec.name}-{self.name}" if spec.name in taken else spec.name
        return Agent(
            name, str(found.get("description") or ""), resolve, (), arguments, "pack", script.where, self.name
        )

    def forward(self, environ: Mapping[str, str]) -> bool:
        """Sends the calls to the server that the environment names (`SEKHA_API_URL`), from now on; False where it names none."""
        url = self.manifest.variable(environ, "url")
        if not url or self.manifest.remote_path is None:
            return False
        names = (self.manifest.names("url")[0], (self.manifest.names("api_key") or ("",))[0])
        self._remote = RemotePack(
            self.name, url, self.manifest.remote_path, self.keys[0] if self.keys else None, names
        )
        return True

    def own_name(self, shown: str) -> str | None:
        """The Toolbox's name of a tool by its bare or its full name; None where the pack has none."""
        bare = shown.removeprefix(self.manifest.prefix)
        tool = self.tools.get(bare)
        return tool.name if tool else None

    # -- a call --------------------------------------------------------------------------------------------------

    def _run(self, spec: PackTool, source: bytes, output: JSON) -> Callable[[dict[str, JSON], Caller], JSON]:
        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            connection = self._connection(caller)
            self.rate.spend(
                connection
            )  # whatever session the arguments name: or each call would name a new one
            given = {name: value for name, value in arguments.items() if name != SESSION_ARGUMENT}
            if self._remote is not None:
                return self._remote.call(spec.name, given, spec.timeout_s)
            bank_id = self._bank_id(spec, given, caller)
            session = self.sessions.open(_session_argument(arguments) or connection)
            self.sessions.touch(session)
            return self._execute(spec.name, source, given, bank_id, session, caller, spec.timeout_s, output)

        return run

    def _connection(self, caller: Caller) -> str:
        """The session of the caller's connection; callers of one door and key that have none share one."""
        return caller.session_id or self.sessions.open(
            None, place=f"{caller.door}:{caller.principal or 'open'}"
        )

    def answer_method(self, method: str, caller: Caller) -> JSON:
        """What a JSON-RPC method of the pack's own answers (`health/check`)."""
        path = self.manifest.methods[method]
        source = self._sources.get(path)
        if source is None:
            source = self._sources[path] = ScriptFile(method, path).source()
        session = self.sessions.open(self._connection(caller))
        bank_id = self._opened_bank(self._named(caller), caller)
        return self._execute(method, source, {}, bank_id, session, caller, 10.0, None)

    def _named(self, caller: Caller) -> str:
        """The bank of a call that names none: the URL's or the header's, else the pack's default."""
        return _nameable(caller.bank or self.default_bank)

    def _bank_id(self, spec: PackTool, arguments: dict[str, JSON], caller: Caller) -> str:
        if spec.bank_parameter is None:
            return self._opened_bank(self._named(caller), caller)
        wanted = arguments.get(spec.bank_parameter)
        bank = _nameable(wanted if isinstance(wanted, str) else "")
        if caller.bank_fixed and bank != caller.bank:
            raise BadRequest(f"{spec.bank_parameter} '{bank}' is not available on this endpoint")
        return self._opened_bank(bank, caller)

    def _opened_bank(self, bank: str, caller: Caller) -> str:
        """The store's bank behind the one that was named. Raises `Unauthorized` where the caller's key does not open it."""
        if caller.banks is not None and bank not in caller.banks:
            raise Unauthorized(
                f"{self.name}: this key does not open the bank '{bank}'", data={"presented": True}
            )
        own = self.manifest.bank
        if own is None or self._shared:
            return bank
        return OWN_BANK + own if bank == self.default_bank else check_bank_id(f"{OWN_BANK}{own}:{bank}")

    def _execute(
        self,
        name: str,
        source: bytes,
        arguments: JSON,
        bank_id: str,
        session: str,
        caller: Caller,
        timeout_s: float,
        output: JSON,
        *,
        agent: bool = False,
    ) -> JSON:
        bank = self._store().bank(
            bank_id, Provenance(self.name, None, caller.door, caller.principal, name, session)
        )
        memory = _Memory(self, bank, session)
        context = {
            "config": {},
            "bank": {"id": bank_id},
            "session": {"id": session, "started_at": self.sessions.data(session).get("startTime")},
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
            entry="resolve" if agent else "execute",
            arguments=json.dumps(arguments).encode(),
            context=json.dumps(context).encode(),
            grants=self.manifest.grants,
            trust="operator",
            reuse=not agent,
            kind="agent" if agent else "tool",
            output_schema=output,
            caller=caller.share,
        )
        left_s = (
            timeout_s
            if caller.deadline_s is None
            else max(0.001, min(timeout_s, caller.deadline_s - time.monotonic()))
        )
        host = Bridge(self._runner.bridge.toolbox, memory=memory.answer).host_for(self._policy, caller)
        try:
            return self._runner.pool.run(job, host, left_s)
        except BaseException:
            memory.take_back()
            raise

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
                os.path.getsize(self._database + suffix)
                for suffix in ("", "-wal")
                if os.path.exists(self._database + suffix)
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

    def described(self) -> dict[str, JSON]:
        """What it is and may do, for `ctx pack list`."""
        manifest = self.manifest
        mcp = ["/mcp/BANK", "/mcp with X-Bank-Id"] if manifest.at_banks else []
        if self.keys:
            auth = "a key, which is set"
        elif manifest.key_required:
            auth = "a key: closed until there is one"
        else:
            auth = "open on this machine until a key is made"
        return {
            "name": self.name,
            "description": manifest.description,
            "tools": [tool.name for tool in self.tools.values()],
            "grants": sorted(manifest.grants),
            "routes": [
                *mcp,
                f"/packs/{self.name}/mcp",
                *(f"{route.method} {route.path} ({route.auth})" for route in manifest.routes),
            ],
            "auth": auth,
            "limit": f"{self.rate.limit} calls a minute for each session" if self.rate.limit else "none",
        }

    def close(self) -> None:
        try:
            self.sessions.close()
        except StoreError as error:
            logger.warning("%s: %s", self.name, error.message)


class _Memory:
    """`context.memory`, `bank`, `session` and `health` of one call."""

    def __init__(self, pack: Pack, bank: MemoryBank, session: str) -> None:
        self._pack = pack
        self._bank = bank
        self._session = session
        self._writing = threading.Lock()
        self._written: list[
            tuple[str, list[str]]
        ] = []  # operations in order, and the memories that each made
        self._ended = False

    def answer(self, operation: str, arguments: JSON, caller: Caller) -> JSON:
        room, _, name = operation.partition(".")
        given = arguments if isinstance(arguments, list) else []
        if room == "memory":
            return self._memory(name, given)
        if room == "bank":
            return call(self._bank, name, {})
        if operation == "session.count":
            return call(self._bank, "count", {"filter": {"session": self._session}})
        if operation == "session.kv.get":
            return self._pack.sessions.get(self._session, str(given[0] if given else ""))
        if operation == "session.kv.set":
            self._pack.sessions.set(
                self._session, str(given[0] if given else ""), given[1] if len(given) > 1 else None
            )
            return None
        if operation == "health":
            return self._pack.snapshot(self._session)
        raise ToolError(f"{operation} is not available to this script")

    def _memory(self, name: str, given: list[JSON]) -> JSON:
        named = _by_name(name, given)
        if name not in OPS or not OPS[name].writes:
            return call(self._bank, name, named)
        with self._writing:
            if self._ended:  # the deadline passed while this was on its way
                raise ToolError("the call has ended")
            reply = call(self._bank, name, named)
            if isinstance(reply, dict) and isinstance(reply.get("op_id"), str):
                self._written.append((reply["op_id"], _made(reply)))
            return reply

    def take_back(self) -> None:
        """Ends the call as if it had written nothing: waits for a write under way, undoes what was written, refuses what comes late."""
        with self._writing:
            self._ended = True
            for operation, made in reversed(self._written):
                try:
                    self._bank.undo(operation)
                except Conflict:
                    pass  # what it made was changed later in this call: deleted below
                except CtxError as error:
                    logger.warning(
                        "pack=%s undo=failed operation=%s reason=%s",
                        self._pack.name,
                        operation,
                        error.message,
                    )
                for id in made:
                    if self._bank.get(id) is not None:
                        self._bank.delete(id, reason="the call failed")


def _made(reply: dict[str, JSON]) -> list[str]:
    """The memories that a `put` or a `put_many` made."""
    created, ids = reply.get("created"), reply.get("ids")
    if not created:
        return []
    return [*([reply["id"]] if reply.get("id") else []), *(ids if isinstance(ids, list) else [])]


def _by_name(name: str, given: list[JSON]) -> JSON:
    """Lua's positional arguments by name: what the operation requires comes first, a table of options last."""
    spec = OPS.get(name)
    if spec is None:
        return {}  # `call` says that it is unknown
    if len(given) == 1 and isinstance(given[0], dict) and (not spec.required or spec.required[0] in given[0]):
        return given[0]
    named: dict[str, JSON] = dict(zip(spec.required, given, strict=False))
    rest = given[len(spec.required) :]
    if len(rest) > 1 or (rest and rest[0] is not None and not isinstance(rest[0], dict)):
        raise BadRequest(
            f"memory.{name}: takes {', '.join(spec.required) or 'nothing'} and a table of options"
        )
    return {**named, **(rest[0] if rest and rest[0] else {})}


def _session_argument(arguments: dict[str, JSON]) -> str | None:
    value = arguments.get(SESSION_ARGUMENT)
    return value if isinstance(value, str) and 0 < len(value) <= 128 else None


def _nameable(bank: str) -> str:
    """The bank, checked. Raises `BadRequest` for what is none, and for a pack's own."""
    if check_bank_id(bank).startswith(OWN_BANK):
        raise BadRequest(f"the bank id '{bank}' is reserved; choose another")
    return bank


def _rate(manifest: Manifest, settings: Mapping[str, JSON], environ: Mapping[str, str]) -> int:
    """Calls a minute for each session; 0 for no limit. Raises `ConfigError`."""
    value = settings.get("rate_limit_per_minute")
    origin = f"[packs.{manifest.name}] rate_limit_per_minute"
    if value is None:
        given = manifest.variable(environ, "rate_limit")
        if given is None:
            return manifest.rate_per_minute
        origin, value = manifest.names("rate_limit")[0], int(given) if given.strip().isdecimal() else given
    if type(value) is not int or value < 0:
        raise ConfigError(f"{origin}: a whole number of calls a minute is needed, 0 for no limit")
    return value


def _keys(manifest: Manifest, settings: Mapping[str, JSON], environ: Mapping[str, str]) -> tuple[str, ...]:
    variable = settings.get("api_key_env")
    if isinstance(variable, str):
        key = environ.get(variable)
        if not key:
            raise ConfigError(
                f"[packs.{manifest.name}] api_key_env: the environment variable {variable} is not set; export it or delete the line"
            )
        return (key,)
    key = manifest.variable(environ, "api_key")
    demand = manifest.variable(environ, "key_demanded")
    if demand and not key:
        # Whoever asked for authentication must not get an open server because the key was forgotten.
        raise ConfigError(
            f"{manifest.names('key_demanded')[0]} is set, but {manifest.names('api_key')[0]} is not: set the key too"
        )
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
    agents: Agents,
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
            manifest,
            own,
            runner,
            store,
            shared=shared,
            environ=environ,
            home=environ.get("HOME") or root,
            database=database,
        )
        pack.load(toolbox, agents)
        packs.append(pack)
    return packs
