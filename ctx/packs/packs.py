"""Memory packs: a folder of Lua tools and a manifest become tools, routes and profiles; the core keeps what
they promise.

The bank is fixed here, before any Lua runs; a script cannot name another. One pack's memories are its own,
unless `[memory] shared`. A call that fails takes back what it wrote.
"""

import json
import logging
import os
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from ctx import __version__
from ctx.errors import BadRequest, CtxError, NotFound, StoreError, ToolError
from ctx.extensions.parameters import parameters_schema
from ctx.extensions.scripts import Runner, ScriptFile, agent_arguments, annotations
from ctx.identity import OWN_BANK
from ctx.lua.host import Policy
from ctx.lua.pool import Job
from ctx.memory import MemoryStore, Provenance, check_bank_id, check_nameable
from ctx.memory.columns import check_numbers
from ctx.packs.context import CallContext
from ctx.packs.manifest import Manifest, PackAgent, PackRouteSpec, PackTool
from ctx.packs.remote import RemotePack
from ctx.packs.scripts import OwnScript, pack_script, read_own, shared_text
from ctx.packs.sessions import OpenSessions
from ctx.packs.settings import keys, rate_limit, served_manifest
from ctx.rates import open_window
from ctx.refusals import Unauthorized
from ctx.tools.agents import Agent, Agents, Prompt
from ctx.tools.arguments import from_text
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON, Caller

logger = logging.getLogger(__name__)

NO = ("false", "0", "no", "off")
BANK_OF_PATH = "bank_id"  # of a route: {bank_id} in its path fixes the bank
ROUTE_TIMEOUT_S = 30.0
SESSION_ARGUMENT = "sessionId"  # of any tool: whose session the call belongs to

# (texts of the path and the query string, body, caller) -> reply
RouteAnswer = Callable[[Mapping[str, list[str]], dict[str, JSON], Caller], JSON]


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
        sessions: OpenSessions,
        rates: str | None = None,
    ) -> None:
        self.manifest = manifest
        self.name = manifest.name
        self._runner = runner
        self._store = store
        self._shared = shared
        self._database = database
        self.began_s = time.monotonic()
        self.keys = keys(manifest, settings, environ)
        named = settings.get("default_bank") or manifest.variable(environ, "bank") or manifest.default_bank
        self.default_bank = check_nameable(str(named))
        self.mcp_enabled = (manifest.variable(environ, "mcp_enabled") or "").lower() not in NO
        limit = rate_limit(manifest, settings, environ)
        self.rate = open_window(rates, self.name, limit, "Rate limit exceeded")
        self.sessions = sessions(self.name, _sessions_path(manifest, settings, home))
        self._policy = Policy(self.name)
        self.tools: dict[str, Tool] = {}
        self._shared_text = shared_text(manifest)
        self._own_sources: dict[str, bytes] = {}
        self._own: dict[str, OwnScript] = {}
        self._remote: RemotePack | None = None

    # -- loading ---------------------------------------------------------------------------------------------

    def _tool(self, spec: PackTool) -> Tool:
        script = pack_script(self.manifest, spec.name, spec.script, spec.timeout_s)
        source = self._source(script)
        metadata = self._runner.metadata(script, source, "tool")
        schema = parameters_schema(metadata.get("parameters"), script.where)
        output = metadata.get("output") if isinstance(metadata.get("output"), dict) else None
        return Tool(
            name=self.manifest.prefix + spec.name,
            title=metadata.get("title") if isinstance(metadata.get("title"), str) else None,
            description=str(metadata.get("description") or spec.name),
            parameters=schema,
            run=self._run(spec, source, output),
            output_schema=output,
            annotations=annotations(metadata.get("annotations")),
            pack=self.name,
            lenient=self.manifest.lenient,
            also=(SESSION_ARGUMENT,),
            failure=metadata.get("failure") if isinstance(metadata.get("failure"), dict) else None,
            origin=script.where,
        )

    def load(self, toolbox: Toolbox, agents: Agents) -> None:
        """Reads every script's metadata and registers it. Raises a `CtxError` where one does not load."""
        for spec in self.manifest.tools:
            self.tools[spec.name] = tool = self._tool(spec)
            toolbox.add(tool)
        # Run when they are first asked for, and read now: they go with what they share, as it is now.
        for path in {*self.manifest.methods.values(), *(route.script for route in self.manifest.routes)}:
            if path is not None:
                script = pack_script(self.manifest, os.path.basename(path), path)
                self._own_sources[path] = self._source(script)
        for spec_agent in self.manifest.agents:
            agents.add(self._agent(spec_agent, taken={agent.name for agent in agents.list()}))

    def _source(self, script: ScriptFile) -> bytes:
        """A script's text, behind what all of the pack's share."""
        return self._shared_text + script.source()

    def _agent(self, spec: PackAgent, *, taken: set[str]) -> Agent:
        script = pack_script(self.manifest, spec.name, spec.script)
        source = self._source(script)
        metadata = self._runner.metadata(script, source, "agent")
        arguments = tuple(agent_arguments(script, metadata.get("arguments")))

        def resolve(values: dict[str, JSON], caller: Caller) -> Prompt:
            bank_id = self._opened_bank(self._named(caller), caller)
            session = self.sessions.open(self._connection(caller))
            answer = self._execute(
                spec.name, source, values, bank_id, session, caller, 30.0, None, agent=True
            )
            if not isinstance(answer, dict) or not isinstance(answer.get("system"), str):
                raise ToolError(f"{script.where}: resolve must return a table with a string called 'system'")
            return Prompt(answer["system"], tuple(tool.name for tool in self.tools.values()))

        # Two packs may have a prompt of one name: the pack that was enabled later adds its own.
        name = f"{spec.name}-{self.name}" if spec.name in taken else spec.name
        return Agent(
            name,
            str(metadata.get("description") or ""),
            resolve,
            (),
            arguments,
            "pack",
            script.where,
            self.name,
        )

    def forward(self, environ: Mapping[str, str]) -> bool:
        """Sends the calls to the server that the environment names (`SEKHA_API_URL`), from now on; False
        where it names none.
        """
        url = self.manifest.variable(environ, "url")
        if not url or self.manifest.remote_path is None:
            return False
        names = (self.manifest.names("url")[0], (self.manifest.names("api_key") or ("",))[0])
        self._remote = RemotePack(
            self.name, url, self.manifest.remote_path, self.keys[0] if self.keys else None, names
        )
        return True

    def own_name(self, label: str) -> str | None:
        """The Toolbox's name of a tool by its bare or its full name; None where the pack has none."""
        tool = self.tools.get(label.removeprefix(self.manifest.prefix))
        return tool.name if tool else None

    # -- a call ----------------------------------------------------------------------------------------------

    def _run(self, spec: PackTool, source: bytes, output: JSON) -> Callable[[dict[str, JSON], Caller], JSON]:
        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            connection = self._connection(caller)
            # Whatever session the arguments name: or each call would name a new one.
            self.rate.spend(connection)
            passed = {name: value for name, value in arguments.items() if name != SESSION_ARGUMENT}
            if self._remote is not None:
                return self._remote.call(spec.name, passed, spec.timeout_s)
            bank_id = self._bank_id(spec, passed, caller)
            session = self.sessions.open(_session_argument(arguments) or connection)
            self.sessions.touch(session)
            # Only a stdio process and a client with X-Session-Id have a session of their own.
            own = caller.session_id is not None or caller.door == "stdio"
            shared = not own or session != connection
            return self._execute(
                spec.name, source, passed, bank_id, session, caller, spec.timeout_s, output, shared=shared
            )

        return run

    def _connection(self, caller: Caller) -> str:
        """The caller's session: the client's `X-Session-Id`, else the stdio process (which continues the last
        session of its folder), else one per key and bank.
        """
        if caller.session_id is not None:
            return caller.session_id
        place = f"{caller.door}:{caller.principal or 'open'}:{caller.bank or self.default_bank}"
        return self.sessions.open(None, place=os.getcwd() if caller.door == "stdio" else place)

    def _project(self, session: str, caller: Caller) -> JSON:
        """The folder in which a stdio process was started; None over HTTP."""
        if caller.door != "stdio":
            return None
        return self.sessions.data(self._connection(caller)).get("project")

    def answer_method(self, method: str, caller: Caller) -> JSON:
        """What a JSON-RPC method of the pack's own answers (`health/check`)."""
        return self._answer_script(self.manifest.methods[method], {}, {}, caller, counted=False)

    def _named(self, caller: Caller) -> str:
        """The bank of a call that names none: the URL's or the header's, else the pack's default."""
        return check_nameable(caller.bank or self.default_bank)

    def _bank_id(self, spec: PackTool, arguments: dict[str, JSON], caller: Caller) -> str:
        if spec.bank_parameter is None:
            return self._opened_bank(self._named(caller), caller)
        argument = arguments.get(spec.bank_parameter)
        bank = check_nameable(argument if isinstance(argument, str) else "")
        if caller.bank_fixed and bank != caller.bank:
            raise BadRequest(f"{spec.bank_parameter} '{bank}' is not available on this endpoint")
        return self._opened_bank(bank, caller)

    def _opened_bank(self, bank: str, caller: Caller) -> str:
        """The store's bank behind the one that was named.
        Raises `Unauthorized` where the caller's key does not open it.
        """
        if caller.banks is not None and bank not in caller.banks:
            raise Unauthorized(f"{self.name}: this key does not open the bank '{bank}'", presented=True)
        private = self.manifest.bank
        if private is None or self._shared:
            return bank
        if bank == self.default_bank:
            return OWN_BANK + private
        return check_bank_id(f"{OWN_BANK}{private}:{bank}")

    def bank_counts(self) -> dict[str, int]:
        """How many memories each bank holds that this pack's callers reach, by the name they call it."""
        private = self.manifest.bank
        counts = self._store().bank_counts()
        if private is None or self._shared:
            return {bank: count for bank, count in counts.items() if not bank.startswith(OWN_BANK)}
        whole = OWN_BANK + private
        prefix = f"{whole}:"
        named = {name.removeprefix(prefix): counts[name] for name in counts if name.startswith(prefix)}
        return {self.default_bank: counts[whole], **named} if whole in counts else named

    def _execute(
        self,
        name: str,
        source: bytes,
        arguments: dict[str, JSON],
        bank_id: str,
        session: str,
        caller: Caller,
        timeout_s: float,
        output: JSON,
        *,
        agent: bool = False,
        shared: bool = False,
    ) -> JSON:
        for argument, value in arguments.items():
            check_numbers(argument, value)
        bank = self._store().bank(
            bank_id, Provenance(self.name, None, caller.door, caller.principal, name, session)
        )
        memory = CallContext(self.name, bank, session, self.sessions, self.snapshot)
        context = {
            "config": {},
            "bank": {"id": bank_id},
            "session": {
                "id": session,
                "started_at": self.sessions.data(session).get("startTime"),
                "shared": shared,
                "project": self._project(session, caller),
            },
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
            ends_s=caller.ends_s,
        )
        host = self._runner.bridge.host_for(self._policy, caller, memory=memory.answer)
        try:
            return self._runner.pool.run(job, host, timeout_s)
        except BaseException:
            memory.take_back()
            raise

    # -- what the core knows ---------------------------------------------------------------------------------

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

    def route_answer(self, spec: PackRouteSpec, toolbox: Toolbox) -> RouteAnswer:
        """What a route of the pack answers: a tool's result, un-wrapped; or one of its methods."""

        def answer(texts: Mapping[str, list[str]], body: dict[str, JSON], caller: Caller) -> JSON:
            if BANK_OF_PATH in texts:
                caller = caller._replace(bank=check_nameable(texts[BANK_OF_PATH][-1]), bank_fixed=True)
            passed = {name: values for name, values in texts.items() if name not in (BANK_OF_PATH, "tool")}
            if spec.script is not None:
                return self._answer_script(spec.script, passed, body, caller)
            label = spec.tool or texts.get("tool", [""])[-1]
            if label in self.manifest.methods:
                return self.answer_method(label, caller)
            name = self.own_name(label)
            if name is None:
                raise NotFound(f"{self.name} has no tool called {label[:80]}")
            typed = from_text(toolbox.get(name).parameters, passed)
            return toolbox.call(name, {**body, **typed}, caller)

        return answer

    def _answer_script(
        self,
        path: str,
        texts: Mapping[str, list[str]],
        body: dict[str, JSON],
        caller: Caller,
        *,
        counted: bool = True,
    ) -> JSON:
        """What a script of the pack that is no tool answers; `counted` against the rate."""
        name = os.path.basename(path)
        entry = self._own.get(path)
        if entry is None:
            script = pack_script(self.manifest, name, path)
            entry = self._own[path] = read_own(script, self._own_sources[path], self._runner)
        connection = self._connection(caller)
        if counted:
            self.rate.spend(connection)
        arguments = entry.arguments(texts, body)
        session = self.sessions.open(connection)
        bank_id = self._opened_bank(self._named(caller), caller)
        return self._execute(
            name, entry.source, arguments, bank_id, session, caller, ROUTE_TIMEOUT_S, entry.output
        )

    def described(self) -> dict[str, JSON]:
        """What it is and may do, for `ctx pack list`."""
        manifest = self.manifest
        mcp = ["/mcp/BANK", "/mcp with X-Bank-Id"] if manifest.at_banks else []
        closed = "a key, which is set" if self.keys else "a key: closed until there is one"
        opened = "open on this machine until a key is made"
        auth = closed if self.keys or manifest.key_required else opened
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


def _session_argument(arguments: dict[str, JSON]) -> str | None:
    value = arguments.get(SESSION_ARGUMENT)
    return value if isinstance(value, str) and 0 < len(value) <= 128 else None


def _sessions_path(manifest: Manifest, settings: Mapping[str, JSON], home: str) -> str | None:
    """Where the sessions of a pack's clients are kept; None: nowhere."""
    name = settings.get("sessions_file") or manifest.sessions_file
    return os.path.join(home, str(name).removeprefix("~/")) if name else None


def session_files(
    enabled: Sequence[str], settings: Mapping[str, Mapping[str, JSON]], root: str, environ: Mapping[str, str]
) -> dict[str, str]:
    """The files in which the enabled packs keep the sessions of their clients, by pack.
    Raises `ConfigError`.
    """
    paths = {}
    for name in enabled:
        pack_settings = settings.get(name, {})
        manifest = served_manifest(name, pack_settings, root)
        path = _sessions_path(manifest, pack_settings, environ.get("HOME") or root)
        if path is not None:
            paths[manifest.name] = path
    return paths


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
    sessions: OpenSessions,
    rates: str | None = None,
) -> list[Pack]:
    """The enabled packs, loaded; their calls are counted in the file `rates`, or in memory. Raises
    `ConfigError`.
    """
    packs = []
    for name in enabled:
        pack_settings = settings.get(name, {})
        pack = Pack(
            served_manifest(name, pack_settings, root),
            pack_settings,
            runner,
            store,
            shared=shared,
            environ=environ,
            home=environ.get("HOME") or root,
            database=database,
            sessions=sessions,
            rates=rates,
        )
        pack.load(toolbox, agents)
        packs.append(pack)
    return packs
