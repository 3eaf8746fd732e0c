"""The MCP server: offers the tools, documents and agents on any transport, in both protocol eras (the legacy
era begins with an `initialize` handshake, the modern era has none).

Tools, checks and defaults are the same as over REST. A failure that the model can fix is reported as a tool
error (`isError`), a protocol error as a JSON-RPC error. Importing the MCP SDK takes half a second, so only
servers import this module.

See docs/mcp.md. Only this module, mcp_shapes, app and stdio use the SDK.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple
from urllib.parse import unquote

import mcp_types as types
from mcp import MCPError
from mcp.server.caching import CACHEABLE_METHODS, CacheHint
from mcp.server.context import CallNext
from mcp.server.lowlevel import Server
from pydantic import ValidationError

from ctx import __version__
from ctx.errors import CtxError, NotFound
from ctx.memory.dialects.base import Dialect
from ctx.memory.dialects.pack import Pack
from ctx.models import Caller, CallProgress, document_id
from ctx.server import errors
from ctx.server import mcp_shapes as shapes
from ctx.server.policy import Access
from ctx.server.work import Work
from ctx.store.base import Catalog
from ctx.text.strings import one_line, sound
from ctx.tools.toolbox import Agent, Agents, Tool, Toolbox
from ctx.workspace import Workspace

logger = logging.getLogger(__name__)

MODERN = "2026-07-28"
PAGE = 50  # resources per page
SAMPLE = 5000  # the folders that the instructions name are counted from this many documents
COMPLETIONS = 100  # a completion may have at most this many values, according to the protocol
CACHED: Any = dict.fromkeys(CACHEABLE_METHODS - {"resources/read"}, CacheHint(ttl_ms=60_000))
MALFORMED = types.ErrorData(code=types.INVALID_PARAMS, message="Invalid request parameters")
RESOURCE_NOT_FOUND = -32002  # for the legacy era; the modern era uses INVALID_PARAMS
TEMPLATES = [
    types.ResourceTemplate(uri_template="ctx://doc/{id}", name="document", title="A document by its id"),
    types.ResourceTemplate(
        uri_template="ctx://source/{source}/{+path}",
        name="source-document",
        title="A document by source and path",
    ),
]
RATE_LIMITED = ("tools/call", "resources/read", "prompts/get", "completion/complete")

Context = Any  # mcp.server.context.ServerRequestContext, which may still change in the SDK


class RequestInfo(NamedTuple):
    """The caller of a request, and the memory packs of its endpoint. `McpServer._around` creates it.

    `packs` is None for `/mcp`, which offers the whole server with its documents. For a bank's endpoint,
    `packs` lists the packs for banks. For a pack's own endpoint, `packs` has only this pack; `pack` is set
    too, and the error codes and methods of the pack apply.
    """

    access: Access
    caller: Caller
    packs: Sequence[Pack] | None = None
    pack: Pack | None = None

    @property
    def dialect(self) -> Dialect | None:
        return self.pack.dialect if self.pack else None

    @property
    def sees_documents(self) -> bool:
        return self.packs is None and self.access.shows(None)

    def tools(self, toolbox: Toolbox) -> Iterable[Tool]:
        """The tools that the endpoint lists."""
        if self.packs is None:
            return toolbox.list()
        return self.pack.tools.values() if self.pack else (t for pack in self.packs for t in pack.bank_tools)

    def agents(self, agents: Agents) -> list[Agent]:
        """The agents that the endpoint offers as prompts."""
        names = None if self.packs is None else [pack.name for pack in self.packs]
        return [agent for agent in agents.list() if names is None or agent.pack in names]


class McpServer:
    """An MCP server for the tools of a Toolbox, agents, documents and packs.

    `access(context)` returns the `Access` (what the caller may do) of a request. `notes` are added to the
    instructions. `semantic` is true if documents have embeddings.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        agents: Agents,
        catalog: Callable[[], Catalog],
        work: Work,
        *,
        access: Callable[[Context], Access],
        packs: Sequence[Pack] = (),
        semantic: bool = True,
        notes: Sequence[str] = (),
    ) -> None:
        self.toolbox = toolbox
        self.agents = agents
        self._catalog = catalog
        self._work = work
        self._access = access
        self._semantic = semantic
        self._packs = packs
        self._more_instructions = (*notes, *(pack.instructions for pack in packs))
        self._described: tuple[int, str] | None = None  # (seq of the catalog, its instructions), as a cache
        self.server: Server[Any] = Server(
            "ctx",
            version=__version__,
            title="ctx",
            description="Search the documents of this machine and its team",
            instructions="\n\n".join((shapes.short_instructions(semantic), *self._more_instructions)),
            cache_hints=CACHED,
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_tools,
            on_call_tool=self._call_tool,
            on_list_resources=self._list_resources,
            on_list_resource_templates=self._list_templates,
            on_read_resource=self._read_resource,
            on_list_prompts=self._list_prompts,
            on_get_prompt=self._get_prompt,
            on_completion=self._complete,
        )
        # Replaces the SDK's own middleware, which sends OpenTelemetry data: ctx has no collector for it.
        self.server.middleware[:] = [self._around]

    # -- around every request --------------------------------------------------------------------------------

    async def _around(self, ctx: Context, call_next: CallNext) -> Any:
        if ctx.request_id is None:
            return await call_next(ctx)
        access = self._access(ctx)
        caller = access.caller()
        params = ctx.session.client_params  # the parameters of the handshake; None if there was none
        client = one_line(params.client_info.name)[:80] if params and params.client_info else None
        caller = caller._replace(client=client or caller.client or "")
        info = ctx.info = self._endpoint(access, caller)
        dialect, pack = info.dialect, info.pack
        if pack is not None and ctx.method in pack.dialect.methods:
            # Allowed before the handshake too: clients of Claude Recall send health/check first.
            answer = await self._work.probes.run(lambda: pack.method_answer(ctx.method, caller))
            return {**answer, "resultType": "complete"} if ctx.protocol_version >= MODERN else answer
        try:
            shapes.complete_params(ctx.method, ctx.params)
            if ctx.method in RATE_LIMITED:
                access.spend()
            result = await call_next(ctx)
            if isinstance(result, dict) and "instructions" in result:
                return await self._introduced(result, info)
            return result
        except CtxError as error:  # handled here, because the SDK would log a traceback
            if errors.row_of(type(error)).status >= 500:
                errors.log_failure(error, caller.request_id or "-")
            raise shapes.rpc_error(error, dialect) from error
        except (MCPError, ValidationError) as error:
            fault = error.error if isinstance(error, MCPError) else MALFORMED
            code, message, data = fault.code, fault.message, fault.data
            if dialect is None or not dialect.details or (isinstance(data, dict) and "details" in data):
                raise
            details = {"details": f"{message}: {data}" if data else message}
            raise MCPError(code=code, message=message, data=details) from error

    def _endpoint(self, access: Access, caller: Caller) -> RequestInfo:
        """`/packs/{pack}/mcp` offers one pack, `/mcp/{bank}` the packs for banks, and `/mcp` everything."""
        for pack in self._packs:
            if pack.name == caller.pack:
                return RequestInfo(access, caller, (pack,), pack)
        at_banks = [pack for pack in self._packs if caller.bank_fixed and pack.dialect.at_banks]
        return RequestInfo(access, caller, at_banks or None)

    async def _introduced(self, reply: dict[str, Any], info: RequestInfo) -> dict[str, Any]:
        """A handshake reply with the endpoint's description and instructions."""
        if info.packs is not None:
            reply = {**reply, "instructions": "\n\n".join(pack.instructions for pack in info.packs)}
            if "serverInfo" in reply:
                description = "; ".join(pack.dialect.description for pack in info.packs)
                reply["serverInfo"] = {**reply["serverInfo"], "description": description}
        elif info.sees_documents and any(map(shapes.view_of, self.toolbox.list())):
            text = await self._work.searches.run(self._instructions)
            reply = {**reply, "instructions": "\n\n".join((text, *self._more_instructions))}
        return reply

    def _instructions(self) -> str:
        """Instructions for models that describe the index, or short ones if the catalog cannot be read."""
        try:
            catalog = self._catalog()
            seq = catalog.seq()
            if self._described is not None and self._described[0] == seq:
                return self._described[1]
            documents = catalog.list_documents(None, SAMPLE)
            tops = Counter(row.source_id.partition("/")[0] for row in documents if "/" in row.source_id)
            statuses, media_types = catalog.statuses(None, ()), catalog.media_types()
        except CtxError:
            return shapes.short_instructions(self._semantic)
        self._described = seq, shapes.index_instructions(statuses, media_types, tops, self._semantic)
        return self._described[1]

    # -- tools -----------------------------------------------------------------------------------------------

    def _input_schema(self, name: str) -> Mapping[str, Any] | None:
        try:
            schema: Mapping[str, Any] = shapes.listed(self.toolbox.get(name), self._semantic).parameters
        except CtxError:
            return None
        return schema

    async def _list_tools(self, context: Context, params: Any) -> types.ListToolsResult:
        info: RequestInfo = context.info
        rows = [
            shapes.tool_row(shapes.listed(tool, self._semantic))
            for tool in info.tools(self.toolbox)
            if info.access.shows(tool.pack)
        ]
        return types.ListToolsResult(tools=rows)

    async def _call_tool(self, context: Context, params: types.CallToolRequestParams) -> types.CallToolResult:
        info: RequestInfo = context.info
        dialect = info.dialect
        if info.pack is not None:  # a pack's own endpoint also accepts tool names without the pack's prefix
            name = info.pack.own_name(params.name)
        else:
            # A bank's endpoint lists only the tools for a bank, but any tool can be called by name. This is
            # safe: no argument can select another bank than the one in the URL.
            name = params.name if params.name in self.toolbox.names() else None
        if name is None:
            code = dialect.unknown_tool if dialect else types.INVALID_PARAMS
            details = f"no tool registered with name: {params.name[:80]}"
            data = {"details": details} if dialect and dialect.details else None
            raise MCPError(code=code, message=f"Unknown tool: {params.name[:80]}", data=data)
        steps: list[asyncio.Task[None]] = []
        caller = info.caller._replace(progress=self._progress(context, steps))
        tool: Tool | None = None
        try:
            tool = self.toolbox.get(name)
            info.access.admit(tool)
            arguments = shapes.translated(tool, params.arguments or {})
            result = await self._work.call(self.toolbox, tool, arguments, caller)
            # Wait until the progress notifications are sent: the stream closes after the result.
            await asyncio.gather(*steps, return_exceptions=True)
        except CtxError as error:
            if shapes.rpc_code(error, dialect) is not None:
                raise shapes.rpc_error(error, dialect) from error
            return shapes.tool_failure(error.message, tool.failure if tool else None)
        except Exception:
            logger.exception("tool failed tool=%s id=%s", name, caller.request_id)
            return shapes.tool_failure(
                f"tool '{name}' failed; see request id {caller.request_id} in the server's log"
            )
        if shapes.view_of(tool) and arguments.get("format") == shapes.MARKDOWN:
            return shapes.text_result(result)
        pretty = dialect is not None and dialect.pretty
        return shapes.tool_result(result, tool, pretty=pretty, chunks=arguments.get("chunks") is True)

    def _progress(self, context: Context, steps: "list[asyncio.Task[None]]") -> CallProgress | None:
        """The progress callback of a call; None if the client wants no progress.

        The callback may be called in any thread. It adds the task that sends each notification to `steps`.
        """
        if not context.meta or "progress_token" not in context.meta:
            return None
        loop = asyncio.get_running_loop()

        def progress(done: float, total: float | None, message: str) -> None:
            def send() -> None:
                steps.append(loop.create_task(context.session.report_progress(done, total, message)))

            with suppress(RuntimeError):  # the server has stopped
                loop.call_soon_threadsafe(send)

        return progress

    # -- documents as resources ------------------------------------------------------------------------------

    async def _list_resources(self, context: Context, params: Any) -> types.ListResourcesResult:
        if not context.info.sees_documents:
            return types.ListResourcesResult(resources=[])
        after = shapes.cursor_of(params.cursor) if params and params.cursor else None
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
            resources=resources, next_cursor=shapes.cursor_text(last.source, last.source_id) if last else None
        )

    async def _list_templates(self, context: Context, params: Any) -> types.ListResourceTemplatesResult:
        templates = TEMPLATES if context.info.sees_documents else []
        return types.ListResourceTemplatesResult(resource_templates=templates)

    async def _read_resource(
        self, context: Context, params: types.ReadResourceRequestParams
    ) -> types.ReadResourceResult:
        uri = str(params.uri)
        document = None
        if context.info.sees_documents:
            document = await self._work.documents.run(lambda: self._document(uri))
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
                    types.PromptArgument(name=name, description=description or None, required=required)
                    for name, description, required in agent.arguments
                ],
            )
            for agent in context.info.agents(self.agents)
            if context.info.access.shows(agent.pack)
        ]
        return types.ListPromptsResult(prompts=prompts)

    async def _get_prompt(
        self, context: Context, params: types.GetPromptRequestParams
    ) -> types.GetPromptResult:
        info: RequestInfo = context.info
        agents = info.agents(self.agents)
        agent = next((agent for agent in agents if agent.name == params.name), None)
        try:
            if agent is None:
                raise NotFound(f"no agent registered with name: {params.name[:80]}")
            info.access.admit(agent)
            arguments = dict(params.arguments or {})
            prompt = await self._work.prompt(self.agents, agent, params.name, arguments, info.caller)
        except CtxError as error:
            code = errors.row_of(type(error)).rpc or types.INVALID_PARAMS
            raise MCPError(code=code, message=error.message, data={"code": error.word}) from error
        # MCP has no system role: the system prompt becomes the first user message.
        messages = [
            types.PromptMessage(
                role="assistant" if message.get("role") == "assistant" else "user",
                content=types.TextContent(type="text", text=str(message.get("content", ""))),
            )
            for message in ({"role": "user", "content": prompt.system}, *prompt.messages)
        ]
        return types.GetPromptResult(description=agent.description, messages=messages)

    async def _complete(self, context: Context, params: types.CompleteRequestParams) -> types.CompleteResult:
        values: list[str] = []
        if context.info.sees_documents and params.argument.name in ("source", "path", "id"):
            prefix = params.argument.value
            chosen = (params.context.arguments or {}) if params.context else {}
            name, source = params.argument.name, chosen.get("source")
            values = await self._work.searches.run(
                lambda: self._catalog().complete(name, prefix, source=source, limit=COMPLETIONS + 1)
            )
        completion = types.Completion(values=values[:COMPLETIONS], has_more=len(values) > COMPLETIONS)
        return types.CompleteResult(completion=completion)


def mcp_server(
    workspace: Workspace, work: Work, access: Callable[[Context], Access], notes: Sequence[str] = ()
) -> McpServer:
    """The MCP server for a workspace and its packs."""
    return McpServer(
        workspace.toolbox,
        workspace.agents,
        lambda: workspace.catalog,
        work,
        access=access,
        packs=workspace.packs,
        semantic=workspace.config.embedding.provider != "disabled",
        notes=notes,
    )
