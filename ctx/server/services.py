"""Builds the parts of a server from a workspace: tools, keys, MCP, the routes of packs, and settings."""

import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import NamedTuple, Protocol

from starlette.types import Receive, Scope, Send

from ctx import __version__
from ctx.background import Background
from ctx.errors import ConfigError
from ctx.indexing.status import FIRST_ANSWERS_AT_MOST_S
from ctx.memory.dialects.pack import Pack
from ctx.models import JSON
from ctx.server.keys import Keys, key_ring
from ctx.server.mcp import mcp_server
from ctx.server.mcp_http import McpEndpoint, http_auth
from ctx.server.overview import Overview, health
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.rest import PackRoute
from ctx.server.work import Work
from ctx.tools.toolbox import Agents, Toolbox, Window
from ctx.workspace import Workspace


class Endpoint(Protocol):
    """An MCP endpoint over HTTP. `handle` answers a POST on any MCP path, and works within `lifespan`.

    The `Access` of the request is in `scope["ctx.access"]`.
    """

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def lifespan(self) -> AbstractAsyncContextManager[None]: ...


class Services(NamedTuple):
    """The parts of a server. `start` and `stop` run in a thread, before the first request and after the last.

    `begin` is called on the event loop after the first requests were answered; it starts work that takes
    longer with more sources. `health` returns at least `{"status": "ok"}`. `mcp` creates the MCP endpoint,
    whose calls share the server's `Work`.
    """

    toolbox: Toolbox
    agents: Agents
    health: Callable[[], dict[str, JSON]] = lambda: {"status": "ok", "version": __version__}
    start: Callable[[], None] = lambda: None
    begin: Callable[[], None] = lambda: None
    stop: Callable[[], None] = lambda: None
    mcp: Callable[[Work], Endpoint] | None = None
    pack_routes: Iterable[PackRoute] = ()
    keys: Keys | None = None
    work: Work | None = None  # None: a `Work` of the default size
    window: Window | None = None  # counts calls; None: in memory, by [server] rate_limit_per_minute
    semantic: bool = True  # documents have embeddings, so semantic and hybrid search work
    overview: Overview | None = None  # data for the web page


def services(workspace: Workspace) -> Services:
    """The `Services` of a workspace."""
    config = workspace.config
    mcp = config.mcp.enabled and all(pack.mcp_enabled for pack in workspace.packs)
    background = Background(workspace)
    keys = key_ring(config)
    keys.follow()

    def stop() -> None:
        keys.close()
        workspace.close()

    return Services(
        toolbox=workspace.toolbox,
        agents=workspace.agents,
        health=partial(health, workspace),
        start=partial(background.start, patience_s=FIRST_ANSWERS_AT_MOST_S),
        begin=background.begin,
        stop=stop,
        keys=keys,
        semantic=config.embedding.provider != "disabled",
        overview=Overview(workspace),
        pack_routes=_pack_routes(workspace.toolbox, workspace.packs),
        mcp=mcp_endpoint(workspace) if mcp else None,
        window=Window(config.server.rate_limit_per_minute, workspace.rates, "server"),
    )


def mcp_endpoint(workspace: Workspace) -> Callable[[Work], Endpoint]:
    """Returns a function that creates the MCP endpoint of a workspace."""
    return lambda work: McpEndpoint(mcp_server(workspace, work, http_auth))


def _pack_routes(toolbox: Toolbox, packs: Sequence[Pack]) -> list[PackRoute]:
    return [
        PackRoute(
            route.method,
            route.path,
            pack.name,
            pack.route_answer(route, toolbox),
            keyed=pack.dialect.key_required,
            error_body=pack.envelope if pack.dialect.enveloped else None,
        )
        for pack in packs
        for route in pack.dialect.routes
    ]


def server_settings(
    workspace: Workspace, *, insecure_no_auth: bool = False, owner_key: str = ""
) -> ServerSettings:
    """The settings of the server. Raises `ConfigError` if the variable of `api_key_env` is not set."""
    server = workspace.config.server
    keys: tuple[str, ...] = ()
    if server.api_key_env:
        key = os.environ.get(server.api_key_env)
        if not key:
            raise ConfigError(
                f"[server] api_key_env: the environment variable {server.api_key_env} is not set; export it "
                "or delete the line"
            )
        keys = (key,)
    return ServerSettings(
        bind=server.bind,
        allowed_hosts=server.allowed_hosts,
        cors_origins=server.cors_origins,
        cross_site_tools=server.cross_site_tools,
        allowed_origins=server.allowed_origins,
        api_keys=keys,
        rate_limit_per_minute=server.rate_limit_per_minute,
        max_body_bytes=server.max_body_bytes,
        insecure_no_auth=insecure_no_auth,
        owner_key=owner_key,
        packs=tuple(
            PackPolicy(pack.name, pack.keys, pack.dialect.key_required, pack.dialect.at_banks)
            for pack in workspace.packs
        ),
        metrics=server.metrics,
    )
