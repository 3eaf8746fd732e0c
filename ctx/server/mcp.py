"""MCP over the Toolbox: one server for both protocol eras, whatever the transport.

Sessions up to 2025-11-25 and the stateless 2026-07-28 get the same tools, checks and defaults as REST. A
failure that the model can mend is a tool error (`isError`); a protocol fault is a JSON-RPC error. Imported
only by the servers: the SDK costs half a second.

Contract: docs/mcp.md. This is the only module, with mcp_http and stdio, that knows the SDK.
"""

import asyncio
import json
import logging
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext
from mcp.server.lowlevel import Server
from mcp.server.lowlevel.server import NotificationOptions
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ToolsListChanged,
)

from ctx import __version__
from ctx.errors import CtxError, NotFound
from ctx.identity import document_id
from ctx.server import errors
from ctx.server.advice import FULL_ADVICE, Advice
from ctx.server.mcp_shapes import (
    Dialect,
    cursor_of,
    cursor_text,
    is_protocol_fault,
    rpc_error,
    tool_failure,
    tool_result,
    tool_row,
)
from ctx.server.work import Work
from ctx.store.base import Catalog
from ctx.text import sound
from ctx.tools.agents import Agent, Agents
from ctx.tools.base import Tool, Toolbox
from ctx.types import JSON, Caller, CallProgress

logger = logging.getLogger(__name__)

MODERN = "2026-07-28"
PAGE = 50  # resources a page
COMPLETIONS = 100  # values a completion answers at most, by the protocol
MAX_LISTENERS = 256
PEER_LISTENERS = 192  # of one key or address: a crowd of one's own must not keep others from the news
LIST_TTL_MS = 60_000
RESOURCE_NOT_FOUND = -32002  # of the older era; the newer one says INVALID_PARAMS
COUNTED = ("tools/call", "resources/read", "prompts/get", "completion/complete")

Context = Any  # mcp.server.context.ServerRequestContext: provisional in the SDK, so named in one place


class Entrance(Protocol):
    """Who comes in by one request, and what they may do: the guard's answer over HTTP, a fixed one over
    pipes. `spender`: whose work it is counted as.
    """

    @property
    def spender(self) -> str: ...
    def caller(self) -> Caller: ...
    def admit(self, tool: Tool) -> None: ...
    def shows(self, pack: str | None) -> bool: ...
    def admit_agent(self, agent: Any) -> None: ...
    def spend(self) -> None: ...


class Profile(NamedTuple):
    """What one endpoint shows: which tools under which names, which errors, which instructions.

    `tools()` gives (shown name, tool); `resolve(name)` the tool's own name for a shown or accepted one, None
    for unknown.
    """

    tools: Callable[[], Sequence[tuple[str, Tool]]]
    resolve: Callable[[str], str | None]
    dialect: Dialect = Dialect()
    methods: Mapping[str, Callable[[Caller], JSON]] = {}
    documents: bool = True  # resources and their completion

    packs: tuple[str, ...] | None = None  # whose prompts are shown; None: everybody's
    about: tuple[str, str] | None = None  # what the server is here, and how it is used; None: as everywhere

    def agents(self, agents: Agents) -> list[Agent]:
        """The prompts of this endpoint."""
        return [agent for agent in agents.list() if self.packs is None or agent.pack in self.packs]

    def introduced(self, result: Any) -> Any:
        """The reply to a handshake, as this endpoint introduces itself."""
        if self.about is None or not isinstance(result, dict) or "instructions" not in result:
            return result
        description, instructions = self.about
        reply = {**result, "instructions": instructions}
        if isinstance(result.get("serverInfo"), dict):
            reply["serverInfo"] = {**result["serverInfo"], "description": description}
        return reply


class Visit(NamedTuple):
    """One request: how it came in, who calls, and what they are shown. Made once, by `McpServer._around`."""

    entrance: Entrance
    caller: Caller
    profile: Profile

    @property
    def sees_documents(self) -> bool:
        """Whether there are documents for this caller."""
        return self.profile.documents and self.entrance.shows(None)


def _prompt_message(message: Mapping[str, str]) -> types.PromptMessage:
    content = types.TextContent(type="text", text=str(message.get("content", "")))
    role: Any = "assistant" if message.get("role") == "assistant" else "user"
    return types.PromptMessage(role=role, content=content)


def whole_toolbox(toolbox: Toolbox) -> Profile:
    """Everything, under its own name."""

    def resolve(name: str) -> str | None:
        try:
            return toolbox.get(name).name
        except NotFound:
            return None
        except CtxError:
            return name  # it is known and could not be loaded: the call says why

    return Profile(tools=lambda: [(tool.name, tool) for tool in toolbox.list()], resolve=resolve)


class McpServer:
    """The protocol over a Toolbox. `enter(context)` says who a request comes from, `profile(caller)` what
    they see.

    Made once for a server's life; `start` is called on its event loop.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        agents: Agents,
        catalog: Callable[[], Catalog],
        work: Work,
        *,
        enter: Callable[[Context], Entrance],
        profile: Callable[[Caller], Profile] | None = None,
        advice: Advice = FULL_ADVICE,
        instructions: Sequence[str] = (),  # of packs, behind the advice
        methods: Sequence[str] = (),
    ) -> None:
        self.toolbox = toolbox
        self.agents = agents
        self._catalog = catalog
        self._work = work
        self._enter = enter
        self._advice = advice
        whole = whole_toolbox(toolbox)
        self._profile = profile or (lambda caller: whole)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus, max_subscriptions=MAX_LISTENERS)
        self._listeners: Counter[str] = Counter()  # streams of each peer
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._announced: set[str] = set()
        self._mirrored: dict[str, tuple[Mapping[str, Any], bool]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._failures = errors.Failures()
        self.server = self._build("\n\n".join((advice.instructions(), *instructions)), methods)
        toolbox.on_change(lambda: self._changed("tools"))
        agents.on_change(lambda: self._changed("prompts"))

    def start(self) -> None:
        """Begins to tell clients of changed lists. On the event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Ends the streams on which clients listen. On the event loop, without waiting."""
        self._loop = None
        self._listen.close()

    def _build(self, instructions: str, methods: Sequence[str]) -> "Server[Any]":
        hint = CacheHint(ttl_ms=LIST_TTL_MS, scope="private")
        server: Server[Any] = Server(
            "ctx",
            version=__version__,
            title="ctx",
            description="Search the documents of this machine and its team",
            instructions=instructions,
            cache_hints={
                "tools/list": hint,
                "prompts/list": hint,
                "resources/list": hint,
                "resources/templates/list": hint,
                "server/discover": hint,
            },
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
            on_subscriptions_listen=self._subscribe,
        )
        for method in methods:
            server.add_request_handler(method, types.RequestParams, self._own_method)
        # Not behind the SDK's own, which makes spans for OpenTelemetry: ctx sets no collector up, and each
        # call would pay 30 us.
        server.middleware[:] = [self._around]
        standard = server.create_initialization_options
        changes = NotificationOptions(tools_changed=True, prompts_changed=True)
        # The older era learns from these options that lists may change.
        server.create_initialization_options = (  # type: ignore[method-assign]
            lambda notification_options=None, *arguments, **options: standard(
                notification_options or changes, *arguments, **options
            )
        )
        return server

    # -- around every request --------------------------------------------------------------------------------

    async def _around(self, ctx: Context, call_next: CallNext) -> Any:
        if ctx.method == "notifications/initialized":
            self._connections.add(ctx.session._connection)  # the SDK has no public name for it (2.3)
        if ctx.request_id is None:
            return await call_next(ctx)
        visit = ctx.visit = self._visit(ctx)
        dialect = visit.profile.dialect
        method = visit.profile.methods.get(ctx.method)
        if method is not None:
            # Before the handshake too: claude-recall's clients ask for its health first.
            answer = await self._work.probes.run(lambda: method(visit.caller))
            return {**answer, "resultType": "complete"} if ctx.protocol_version >= MODERN else answer
        try:
            if ctx.method in COUNTED:
                visit.entrance.spend()
            return visit.profile.introduced(await call_next(ctx))
        except CtxError as error:  # of a method that is no tool: the SDK would log a traceback
            if errors.row(error).status >= 500:
                self._failures.note(error, visit.caller.request_id or "-")
            raise rpc_error(error, dialect) from error
        except MCPError as error:
            if dialect.details:
                raise _with_details(error) from error
            raise

    def _visit(self, context: Context) -> Visit:
        entrance = self._enter(context)
        caller = entrance.caller()
        return Visit(entrance, caller, self._profile(caller))

    async def _own_method(self, context: Context, params: Any) -> Any:
        raise MCPError(code=types.METHOD_NOT_FOUND, message=f"Method not found: {context.method}")

    # -- tools -----------------------------------------------------------------------------------------------

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        """The schema, for a tool some of whose arguments come as headers too; else None, which spares the SDK
        a walk through it.
        """
        try:
            schema: Mapping[str, Any] = self.toolbox.get(name).parameters
        except CtxError:
            return None
        mirror = self._mirrored.get(name)
        if mirror is None or mirror[0] is not schema:
            mirror = self._mirrored[name] = (schema, "x-mcp-header" in json.dumps(schema))
        return schema if mirror[1] else None

    async def _list_tools(self, context: Context, params: Any) -> types.ListToolsResult:
        visit: Visit = context.visit
        rows = [
            tool_row(name, self._advice.listed(tool))
            for name, tool in visit.profile.tools()
            if visit.entrance.shows(tool.pack)
        ]
        return types.ListToolsResult(tools=rows)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        visit: Visit = context.visit
        dialect = visit.profile.dialect
        name = visit.profile.resolve(params.name)
        if name is None:
            raise _unknown_tool(params.name[:80], dialect)
        arguments = params.arguments or {}
        steps: set[Future[None]] = set()
        caller = visit.caller._replace(progress=self._progress(context, steps))
        tool: Tool | None = None
        try:
            tool = self.toolbox.get(name)
            visit.entrance.admit(tool)
            result = await self._work.call(self.toolbox, tool, arguments, caller)
            if steps:  # behind the result the last step would find the stream closed
                await asyncio.gather(*map(asyncio.wrap_future, tuple(steps)), return_exceptions=True)
        except CtxError as error:
            if is_protocol_fault(error, dialect):
                raise rpc_error(error, dialect) from error
            return tool_failure(error.message, tool.failure if tool else None)
        except Exception:
            logger.exception("tool failed tool=%s id=%s", name, caller.request_id)
            return tool_failure(
                f"tool '{name}' failed; the server's log has it under request id {caller.request_id}"
            )
        return tool_result(result, tool, pretty=dialect.pretty, chunks=arguments.get("chunks") is True)

    def _progress(self, context: Context, steps: "set[Future[None]]") -> CallProgress | None:
        """How a tool's thread tells how far it is. What is on its way to the client stands in `steps`."""
        if not context.meta or "progress_token" not in context.meta:
            return None
        loop = asyncio.get_running_loop()

        def progress(done: float, total: float | None, message: str) -> None:
            report = context.session.report_progress(done, total, message)
            try:
                sending = asyncio.run_coroutine_threadsafe(report, loop)
            except RuntimeError:
                report.close()
                return  # the server has stopped: nobody listens any more
            steps.add(sending)
            sending.add_done_callback(steps.discard)

        return progress

    # -- documents as resources ------------------------------------------------------------------------------

    async def _list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        if not context.visit.sees_documents:
            return types.ListResourcesResult(resources=[])
        after = cursor_of(params.cursor) if params and params.cursor else None
        rows = await self._work.searches.run(
            lambda: self._catalog().list_documents(after=after, limit=PAGE + 1)
        )
        resources = [
            types.Resource(
                uri=f"ctx://doc/{row.id}",
                name=row.source_id,
                title=row.title,
                mime_type=row.media_type,
                description=row.source,
            )
            for row in rows[:PAGE]
        ]
        last = rows[PAGE - 1] if len(rows) > PAGE else None
        return types.ListResourcesResult(
            resources=resources, next_cursor=cursor_text(last.source, last.source_id) if last else None
        )

    async def _list_templates(self, context: Context, params: Any) -> types.ListResourceTemplatesResult:
        if not context.visit.sees_documents:
            return types.ListResourceTemplatesResult(resource_templates=[])
        return types.ListResourceTemplatesResult(
            resource_templates=[
                types.ResourceTemplate(
                    uri_template="ctx://doc/{id}", name="document", title="A document by its id"
                ),
                types.ResourceTemplate(
                    uri_template="ctx://source/{source}/{+path}",
                    name="source-document",
                    title="A document by source and path",
                ),
            ]
        )

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        document = (
            await self._work.documents.run(lambda: self._document(uri))
            if context.visit.sees_documents
            else None
        )
        if document is None:
            code = types.INVALID_PARAMS if context.protocol_version >= MODERN else RESOURCE_NOT_FOUND
            raise MCPError(code=code, message="Resource not found", data={"uri": uri[:2000]})
        text = types.TextResourceContents(
            uri=params.uri, mime_type=document.media_type, text=sound(document.body)
        )
        return types.ReadResourceResult(contents=[text])

    def _document(self, uri: str) -> Any:
        scheme, _, path = uri.partition("://")
        kind, _, name = path.partition("/")
        if scheme != "ctx" or not name:
            return None
        if kind == "source":
            source, _, source_id = name.partition("/")
            name = document_id(unquote(source), unquote(source_id))
        elif kind != "doc":
            return None
        stored = self._catalog().document(name)
        return stored.document if stored else None

    # -- agents as prompts -----------------------------------------------------------------------------------

    async def _list_prompts(self, context: Context, params: Any) -> types.ListPromptsResult:
        prompts = [
            types.Prompt(
                name=agent.name,
                description=agent.description or None,
                arguments=[
                    types.PromptArgument(
                        name=argument.name,
                        description=argument.description or None,
                        required=argument.required,
                    )
                    for argument in agent.arguments
                ],
            )
            for agent in context.visit.profile.agents(self.agents)
            if context.visit.entrance.shows(agent.pack)
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        visit: Visit = context.visit
        agents = visit.profile.agents(self.agents)
        agent = next((agent for agent in agents if agent.name == params.name), None)
        try:
            if agent is None:
                raise NotFound(f"no agent registered with name: {params.name[:80]}")
            visit.entrance.admit_agent(agent)
            arguments = dict(params.arguments or {})
            prompt = await self._work.prompt(self.agents, agent, params.name, arguments, visit.caller)
        except CtxError as error:
            code = errors.row(error).rpc or types.INVALID_PARAMS
            raise MCPError(code=code, message=error.message, data={"code": error.word}) from error
        # MCP has no system role: the system text is the first thing the user says.
        messages = [_prompt_message({"role": "user", "content": prompt.system})]
        messages += map(_prompt_message, prompt.messages)
        return types.GetPromptResult(description=agent.description, messages=messages)

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values: list[str] = []
        if context.visit.sees_documents and params.argument.name in ("source", "path", "id"):
            prefix = params.argument.value
            chosen = (params.context.arguments or {}) if params.context else {}
            name, source = params.argument.name, chosen.get("source")
            values = await self._work.searches.run(
                lambda: self._catalog().complete(name, prefix, source=source, limit=COMPLETIONS + 1)
            )
        return types.CompleteResult(
            completion=types.Completion(
                values=values[:COMPLETIONS], total=None, has_more=len(values) > COMPLETIONS
            )
        )

    async def _subscribe(self, context: Context, params: Any) -> types.SubscriptionsListenResult:
        """One stream of news, which lasts until its client closes it."""
        peer = context.visit.entrance.spender
        if self._listeners[peer] >= PEER_LISTENERS:
            raise MCPError(code=types.INTERNAL_ERROR, message="Subscription limit reached")
        self._listeners[peer] += 1
        try:
            return await self._listen(context, params)
        finally:
            self._listeners[peer] -= 1
            self._listeners += Counter()  # forgets whom nothing is left of

    # -- changed lists ---------------------------------------------------------------------------------------

    def _changed(self, what: str) -> None:
        """Told in any thread; clients are told on the event loop, once for a burst."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._announce_soon, what)
        except RuntimeError:
            pass  # the server has stopped

    def _announce_soon(self, what: str) -> None:
        if what in self._announced:
            return
        self._announced.add(what)
        task = asyncio.ensure_future(self._announce(what))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _announce(self, what: str) -> None:
        await asyncio.sleep(0.02)  # a reload replaces several tools at once
        self._announced.discard(what)
        await self._bus.publish(ToolsListChanged() if what == "tools" else PromptsListChanged())
        for connection in list(self._connections):
            try:
                await (
                    connection.send_tool_list_changed()
                    if what == "tools"
                    else connection.send_prompt_list_changed()
                )
            except Exception as error:  # a client that went away must not keep the news from the others
                logger.debug("client not told of changed %s: %s", what, error)


def _unknown_tool(name: str, dialect: Dialect) -> MCPError:
    data = {"details": f"no tool registered with name: {name}"} if dialect.details else None
    return MCPError(code=dialect.unknown_tool, message=f"Unknown tool: {name}", data=data)


def _with_details(error: MCPError) -> MCPError:
    """The SDK's own errors too: an unknown method, parameters that no request has."""
    data, message = error.error.data, error.error.message
    if isinstance(data, dict) and "details" in data:
        return error
    return MCPError(
        code=error.error.code, message=message, data={"details": f"{message}: {data}" if data else message}
    )
