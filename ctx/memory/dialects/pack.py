"""An enabled memory pack: a product's dialect (tools, routes, conventions) with its settings, on one store.

`Pack` chooses the bank of a call before the dialect's code runs. Each pack has its own memories unless
`[memory] shared` is set. If a call fails, its writes are undone.
"""

import json
import os
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from ctx.config.settings import PackSettings
from ctx.errors import BadRequest, ConfigError, Conflict, CtxError, NotFound, ToolError, Unauthorized
from ctx.http import MAX_REPLY_BYTES, Boundless, read_reply
from ctx.memory.activity import Sessions
from ctx.memory.columns import check_numbers
from ctx.memory.dialects.base import Call, Dialect, Handler, RouteSpec, ToolSpec, parameters_of
from ctx.memory.ops import BankCall
from ctx.memory.records import Provenance, check_bank_id, check_nameable
from ctx.memory.store import MemoryStore
from ctx.models import JSON, OWN_BANK, Caller
from ctx.text.strings import did_you_mean
from ctx.tools.schema import compile_check, from_text, refuse_unknown, without_absent
from ctx.tools.toolbox import Agent, AgentArgument, Agents, Prompt, Tool, Toolbox, Window

if TYPE_CHECKING:
    import httpx

CONNECT_S = 5.0  # limit for connecting to the server of a remote pack
TIMEOUT_S = 30.0  # limit for the reply of that server
NO = ("false", "0", "no", "off")
BANK_OF_PATH = "bank_id"  # the parameter in a route's path that names the bank
SESSION_ARGUMENT = "sessionId"  # the argument, accepted by every tool, that names the session
SEED = "seed"  # the profile that has only the tools in the product's reference

# (parameters in the path and the query string, body, caller) -> reply
RouteAnswer = Callable[[Mapping[str, list[str]], dict[str, JSON], Caller], JSON]


class Pack:
    """One enabled pack. The Toolbox (all tools of the server) has its `tools` under names with a prefix."""

    def __init__(
        self,
        dialect: Dialect,
        settings: PackSettings,
        store: Callable[[], MemoryStore],
        *,
        shared: bool,
        database: str,
        rates: str | None = None,
    ) -> None:
        """`database` is the path of the memory file. `rates` is the file in which calls are counted for the
        rate limit; with None they are counted in memory. Raises `ConfigError`.
        """
        self.dialect = dialect
        self.name = dialect.name
        self.profile = settings.profile or next(iter(dialect.profiles))
        if self.profile not in dialect.profiles:
            hint = did_you_mean(self.profile, dialect.profiles)
            raise ConfigError(f"[packs.{self.name}] profile: unknown profile '{self.profile}'; {hint}")
        self.instructions = dialect.profiles[self.profile]
        self.store = store
        self.database = database
        self.started_s = time.monotonic()
        self.keys = _keys(dialect, settings)
        self.default_bank = check_nameable(settings.default_bank or _variable(dialect, "bank") or "default")
        self.mcp_enabled = (_variable(dialect, "mcp_enabled") or "").lower() not in NO
        limit = _rate_limit(dialect, settings)
        self.rate = Window(limit, rates, self.name, refusal="Rate limit exceeded")
        self.sessions = Sessions(lambda: store().rows, self.name)
        self._shared = shared
        self._remote: RemotePack | None = None
        specs = [spec for spec in dialect.tools if not spec.profiles or self.profile in spec.profiles]
        self.tools = {spec.name: self._tool(spec) for spec in specs}
        self.bank_tools = [self.tools[spec.name] for spec in specs if spec.at_banks and dialect.at_banks]

    def _tool(self, spec: ToolSpec) -> Tool:
        return Tool(
            name=self.dialect.prefix + spec.name,
            title=spec.title,
            description=" ".join((spec.run.__doc__ or "").split()),
            parameters=parameters_of(spec.run),
            run=self._run(spec),
            annotations=spec.annotations,
            pack=self.name,
            lenient=True,
            also=(SESSION_ARGUMENT,),
            failure=spec.failure,
            origin=f"the pack {self.name}",
        )

    def load(self, toolbox: Toolbox, agents: Agents) -> None:
        """Registers the tools and the prompt. Raises `ConfigError` if a name is taken."""
        for tool in self.tools.values():
            toolbox.add(tool)
        if self.dialect.briefing is not None:
            is_taken = any(agent.name == "recall-context" for agent in agents.list())
            agents.add(self._agent(*self.dialect.briefing, f"recall-context-{self.name}" if is_taken else ""))

    def _agent(self, task: str, category: str, name: str) -> Agent:
        def resolve(values: dict[str, JSON], caller: Caller) -> Prompt:
            def briefing(call: Call, topic: str = "") -> JSON:
                return call.bank.briefing(topic=topic, category=category)["text"]

            text = self._answer("recall-context", briefing, values, caller)
            return Prompt(f"{task}\n\n{text}", tuple(tool.name for tool in self.tools.values()))

        topic = AgentArgument("topic", "What the conversation will be about; without it, the latest memories")
        description = "What is remembered of a topic (or lately), to begin a conversation with"
        origin = f"the pack {self.name}"
        return Agent(name or "recall-context", description, resolve, (), (topic,), "pack", origin, self.name)

    def forward(self) -> bool:
        """Makes the pack send all later calls to the server that an environment variable (`SEKHA_API_URL`)
        names. Returns False if it is not set.
        """
        url = _variable(self.dialect, "url")
        if not url or self.dialect.remote_path is None:
            return False
        variables = self.dialect.environ
        key, names = next(iter(self.keys), None), (variables["url"][0], variables["api_key"][0])
        self._remote = RemotePack(self.name, url, self.dialect.remote_path, key, names)
        return True

    def own_name(self, label: str) -> str | None:
        """A tool's name in the Toolbox, from its name with or without the prefix; None if the pack has no
        such tool.
        """
        tool = self.tools.get(label.removeprefix(self.dialect.prefix))
        return tool.name if tool else None

    # -- a call ----------------------------------------------------------------------------------------------

    def _run(self, spec: ToolSpec) -> Callable[[dict[str, JSON], Caller], JSON]:
        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            # Count calls per connection, not per session: a caller could name another session in each call.
            self.rate.spend(self._connection(caller))
            passed = {name: value for name, value in arguments.items() if name != SESSION_ARGUMENT}
            if self._remote is not None:
                return self._remote.call(spec.name, passed)
            bank = None
            if spec.bank_parameter is not None:
                bank = check_nameable(passed[spec.bank_parameter])
                if caller.bank_fixed and bank != caller.bank:
                    raise BadRequest(f"{spec.bank_parameter} '{bank}' is not available on this endpoint")
            named = arguments.get(SESSION_ARGUMENT)
            session = named if isinstance(named, str) and 0 < len(named) <= 128 else None
            return self._answer(spec.name, spec.run, passed, caller, bank, session)

        return run

    def _connection(self, caller: Caller) -> str:
        """The session of the caller's connection: the one in its `X-Session-Id`; for a stdio client, the last
        session of its folder; for others, one session per key and bank.
        """
        if caller.session_id is not None:
            return caller.session_id
        place = f"{caller.interface}:{caller.principal or 'open'}:{caller.bank or self.default_bank}"
        return self.sessions.open(place=os.getcwd() if caller.interface == "stdio" else place)

    def _opened_bank(self, bank: str, caller: Caller) -> str:
        """The store's name for a bank. Raises `Unauthorized` if the caller's key is not for this bank."""
        if caller.banks is not None and bank not in caller.banks:
            raise Unauthorized(f"{self.name}: this key is not valid for the bank '{bank}'", presented=True)
        if not self.dialect.own_bank or self._shared:
            return bank
        own_bank = OWN_BANK + self.name
        return own_bank if bank == self.default_bank else check_bank_id(f"{own_bank}:{bank}")

    def _answer(
        self,
        name: str,
        run: Handler,
        arguments: dict[str, JSON],
        caller: Caller,
        bank: str | None = None,
        session: str | None = None,
    ) -> JSON:
        """Runs a handler and returns its reply. If it fails, its writes are undone. `bank` and `session` are
        the ones that the arguments name. Without `bank`, the bank in the URL or the header is used, else the
        pack's default; without `session`, the session of the connection.
        """
        for argument, value in arguments.items():
            check_numbers(argument, value)
        bank_id = self._opened_bank(bank or check_nameable(caller.bank or self.default_bank), caller)
        connection = self._connection(caller)
        session = self.sessions.open(session or connection)
        # Only stdio clients and clients that send X-Session-Id have a session of their own.
        owns_session = (
            caller.session_id is not None or caller.interface == "stdio"
        ) and session == connection
        source = Provenance(self.name, None, caller.interface, caller.principal, name, session)
        operations = BankCall(self.store().bank(bank_id, source))
        project = os.getcwd() if caller.interface == "stdio" else None
        try:
            call = Call(self, operations, bank_id, session, owns_session, caller, project)
            return run(call, **arguments)
        # Clients of the products expect 400 for a conflict with stored data, not 409.
        except Conflict as error:
            operations.take_back()
            raise BadRequest(error.message, data=error.data) from error
        except BaseException:
            operations.take_back()
            raise

    # -- routes and methods ----------------------------------------------------------------------------------

    def method_answer(self, method: str, caller: Caller) -> JSON:
        """The reply to a JSON-RPC method of the dialect, such as `health/check`."""
        return self._answer(method, self.dialect.methods[method], {}, caller)

    def route_answer(self, route: RouteSpec, toolbox: Toolbox) -> RouteAnswer:
        """The function that answers a route. Its replies have no envelope."""
        schema = {} if route.run is None else parameters_of(route.run, route.ignored)
        check = compile_check(schema or {"type": "object"})

        def answer(texts: Mapping[str, list[str]], body: dict[str, JSON], caller: Caller) -> JSON:
            if BANK_OF_PATH in texts:
                caller = caller._replace(bank=check_nameable(texts[BANK_OF_PATH][-1]), bank_fixed=True)
            passed = {name: values for name, values in texts.items() if name not in (BANK_OF_PATH, "tool")}
            if route.run is None:
                label = route.tool or texts["tool"][-1]
                if label in self.dialect.methods:
                    return self.method_answer(label, caller)
                name = self.own_name(label)
                if name is None:
                    raise NotFound(f"{self.name} has no tool called {label[:80]}")
                return toolbox.call(name, {**body, **from_text(toolbox.get(name).parameters, passed)}, caller)
            self.rate.spend(self._connection(caller))
            values = without_absent(schema, {**body, **from_text(schema, passed)})
            refuse_unknown(schema, values)
            arguments = {name: value for name, value in check(values).items() if name not in route.ignored}
            return self._answer(f"{route.method} {route.path}", route.run, arguments, caller)

        return answer

    def envelope(self, error: CtxError) -> JSON:
        return {"success": False, "data": None, "error": error.message}

    # -- descriptions ----------------------------------------------------------------------------------------

    def hint(self, tool: str = "supersede_memory") -> str:
        """The note to models that a reply with similar memories contains. It names the tool `tool`."""
        action = f"call {tool} with its id"
        if self.profile == SEED:
            action = "call this tool again with the same text and supersedes = [its id]"
        return f"Does this make one of these untrue? Then {action}; otherwise do nothing."

    def bank_counts(self) -> dict[str, int]:
        """Bank -> number of memories, for the banks that this pack's callers can reach, under the names they
        use.
        """
        counts = self.store().bank_counts()
        if not self.dialect.own_bank or self._shared:
            return {bank: count for bank, count in counts.items() if not bank.startswith(OWN_BANK)}
        own_bank = OWN_BANK + self.name
        prefix = f"{own_bank}:"
        named = {name.removeprefix(prefix): counts[name] for name in counts if name.startswith(prefix)}
        return {self.default_bank: counts[own_bank], **named} if own_bank in counts else named

    def described(self) -> dict[str, JSON]:
        """The pack's description, tools, routes and access rules, for `ctx pack list`."""
        dialect = self.dialect
        closed = "a key, which is set" if self.keys else "a key: closed until one is made"
        opened = "open on this machine until a key is made"
        return {
            "name": self.name,
            "description": dialect.description,
            "profile": self.profile,
            "tools": [tool.name for tool in self.tools.values()],
            "routes": [
                *(["/mcp/BANK", "/mcp with X-Bank-Id"] if dialect.at_banks else []),
                f"/packs/{self.name}/mcp",
                *(f"{route.method} {route.path}" for route in dialect.routes),
            ],
            "auth": closed if self.keys or dialect.key_required else opened,
            "limit": f"{self.rate.limit} calls a minute for each session" if self.rate.limit else "none",
        }


# -- settings ------------------------------------------------------------------------------------------------


def _variable(dialect: Dialect, purpose: str) -> str | None:
    """The value of the first environment variable for a purpose that is set and not empty; None if there is
    none.
    """
    return next(filter(None, map(os.environ.get, dialect.environ.get(purpose, ()))), None)


def _rate_limit(dialect: Dialect, settings: PackSettings) -> int:
    """The allowed calls per minute and connection; 0 for no limit."""
    if settings.rate_limit_per_minute is not None:
        return settings.rate_limit_per_minute
    text = _variable(dialect, "rate_limit")
    if text is None:
        return dialect.rate_per_minute
    if not text.strip().isdecimal():
        variable = dialect.environ["rate_limit"][0]
        raise ConfigError(f"{variable}: must be a whole number of calls a minute; 0 means no limit")
    return int(text)


def _keys(dialect: Dialect, settings: PackSettings) -> tuple[str, ...]:
    """The keys that give access to the pack. Raises `ConfigError` if a key is required but not set."""
    if settings.api_key_env is not None:
        key = os.environ.get(settings.api_key_env)
        if not key:
            raise ConfigError(
                f"[packs.{dialect.name}] api_key_env: the environment variable {settings.api_key_env} is not "
                "set; export it or delete the line"
            )
        return (key,)
    key = _variable(dialect, "api_key")
    if not key and _variable(dialect, "key_demanded"):
        # If the operator asked for authentication but forgot the key, refuse to start: without a key, all
        # calls would be allowed.
        demanding, absent = dialect.environ["key_demanded"][0], dialect.environ["api_key"][0]
        raise ConfigError(f"{demanding} is set, but {absent} is not: set the key too")
    return (key,) if key else ()


# -- another machine -----------------------------------------------------------------------------------------


class RemotePack:
    """A pack whose memories are on another server. ctx lists the tools, and sends every call to the HTTP API
    of the real product: to `url` + `path` (which contains `{tool}`), with `key` as bearer key. `names` has
    the environment variables for URL and key, for error messages.
    """

    def __init__(self, pack: str, url: str, path: str, key: str | None, names: tuple[str, str]) -> None:
        """Raises `BadRequest` if `url` is not an HTTP address."""
        if not url.startswith(("http://", "https://")):
            raise BadRequest(
                f"{names[0]}: '{url[:80]}' is not an address; it must begin with http:// or https://"
            )
        self._pack = pack
        self._url = url.rstrip("/")
        self._path = path
        self._names = names
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    @cached_property
    def _client(self) -> "httpx.Client":
        import httpx  # takes 90 ms to import, and a client 40 ms to make

        return httpx.Client(headers=self._headers, timeout=httpx.Timeout(TIMEOUT_S, connect=CONNECT_S))

    def call(self, tool: str, arguments: dict[str, JSON], timeout_s: float = TIMEOUT_S) -> JSON:
        """Calls a tool and returns the unchanged reply. Raises `BadRequest`, `NotFound` or `ToolError`, with
        a message for users of a chat client.
        """
        import httpx  # takes 90 ms to import

        url_name, key_name = self._names
        address = self._url + self._path.replace("{tool}", tool)
        try:
            with self._client.stream("POST", address, json=arguments) as reply:
                body = read_reply(reply, MAX_REPLY_BYTES, timeout_s)
            answer: JSON = json.loads(body)
        except Boundless as error:
            raise self._failure(f"{error} ({url_name})") from error
        except (httpx.TimeoutException, TimeoutError) as error:
            raise self._failure(f"did not answer in time; is it reachable from here? ({url_name})") from error
        except httpx.HTTPError as error:
            raise self._failure(f"cannot be reached: start that server, or correct {url_name}") from error
        except (ValueError, RecursionError):
            answer = None
        if reply.status_code == 401:
            raise self._failure(f"refused the key: check {key_name}")
        if reply.status_code >= 400:
            reason = answer.get("error") if isinstance(answer, dict) else None
            message = reason if isinstance(reason, str) else f"status {reply.status_code}"
            kind = {400: BadRequest, 404: NotFound, 422: BadRequest}.get(reply.status_code, ToolError)
            raise kind(f"{self._pack}: {message[:500]}")
        if not isinstance(answer, dict):
            raise self._failure(f"did not answer with JSON; is {url_name} right?")
        return answer

    def _failure(self, reason: str) -> ToolError:
        return ToolError(f"{self._pack}: {self._url} {reason}")
