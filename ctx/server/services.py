"""Makes the services, settings and MCP endpoint of a server from a workspace."""

import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ctx.config import Config
from ctx.errors import ConfigError
from ctx.indexing.status import FIRST_ANSWERS_AT_MOST_S
from ctx.memory.location import locate
from ctx.server.advice import Advice
from ctx.server.health import health
from ctx.server.keys import KeyRing, Keys
from ctx.server.overview import Overview
from ctx.server.policy import ServerSettings
from ctx.tools.rates import Window
from ctx.workspace import Workspace

if TYPE_CHECKING:  # the web server is 0.3 s of processor time, and `ctx mcp` needs none of it
    from ctx.server.app import Endpoint, Services
    from ctx.server.mcp import Auth, Context, McpServer
    from ctx.server.policy import PackPolicy
    from ctx.server.rest import PackRoute
    from ctx.server.work import Work


def services(workspace: Workspace) -> "Services":
    """What the server serves of a workspace."""
    from ctx.server.app import Services

    mcp = workspace.config.mcp.enabled and all(pack.mcp_enabled for pack in workspace.packs)
    keys = key_ring(workspace.config)
    keys.follow()

    def stop() -> None:
        keys.close()
        workspace.close()

    return Services(
        toolbox=workspace.toolbox,
        agents=workspace.agents,
        health=partial(health, workspace),
        start=partial(workspace.background.start, patience_s=FIRST_ANSWERS_AT_MOST_S),
        begin=workspace.background.begin,
        stop=stop,
        keys=keys,
        advice=server_advice(workspace),
        overview=Overview(workspace),
        pack_routes=_pack_routes(workspace),
        mcp=mcp_endpoint(workspace) if mcp else None,
        window=Window(workspace.config.server.rate_limit_per_minute, workspace.rates, "server"),
    )


def server_advice(workspace: Workspace) -> Advice:
    """What models read about a workspace."""
    return Advice(semantic=workspace.config.embedding.provider != "disabled")


def _pack_routes(workspace: Workspace) -> "list[PackRoute]":
    if not workspace.packs:
        return []
    # The MCP SDK: half a second that a server without packs need not wait for.
    from ctx.server.profiles import pack_routes

    return pack_routes(workspace.toolbox, workspace.packs)


def _pack_policies(workspace: Workspace) -> "tuple[PackPolicy, ...]":
    if not workspace.packs:
        return ()
    from ctx.server.profiles import pack_policies  # see `_pack_routes`

    return pack_policies(workspace.packs)


def mcp_server(
    workspace: Workspace, work: "Work", auth: "Callable[[Context], Auth]", notes: Sequence[str] = ()
) -> "McpServer":
    """MCP over a workspace with its packs. The endpoint of a pack or a bank shows no other. `notes` are added
    to the instructions.
    """
    from ctx.server.mcp import McpServer

    packs = workspace.packs
    profile = None
    if packs:
        from ctx.server.profiles import profiles  # see `_pack_routes`

        profile = profiles(workspace.toolbox, packs)
    instructions = [*notes, *(pack.instructions for pack in packs)]
    methods = sorted({method for pack in packs for method in pack.dialect.methods})
    return McpServer(
        workspace.toolbox,
        workspace.agents,
        lambda: workspace.catalog,
        work,
        auth=auth,
        profile=profile,
        advice=server_advice(workspace),
        instructions=instructions,
        methods=methods,
    )


def mcp_endpoint(workspace: Workspace) -> "Callable[[Work], Endpoint]":
    """MCP over HTTP for a workspace."""

    def make(work: "Work") -> "Endpoint":
        # The SDK costs half a second to import, and the other commands of this module need none of it.
        from ctx.server.mcp_http import McpEndpoint, http_auth

        return McpEndpoint(mcp_server(workspace, work, http_auth))

    return make


def key_ring(config: Config) -> Keys:
    """The keys that `ctx key create` made for this store. Close them."""
    if config.store.url:
        return open_keys(config.store.url)
    location = locate(config, os.environ)
    return KeyRing(location.memory, location.keys)


def open_keys(url: str) -> Keys:
    """The keys in the database at an address. Close them."""
    from ctx import cluster

    database = cluster.open_database(url)
    from ctx.cluster.shared_state import SharedKeyRing  # imports psycopg, which comes with an extra

    return SharedKeyRing(database)


def server_settings(
    workspace: Workspace, *, insecure_no_auth: bool = False, owner_key: str = ""
) -> ServerSettings:
    """The server's values. Raises `ConfigError` where a key is named that the environment lacks."""
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
        packs=_pack_policies(workspace),
        metrics=server.metrics,
    )
