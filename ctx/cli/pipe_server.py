"""The server behind `ctx mcp`: the SDK over a workspace, or over the ctx that serves elsewhere."""

import asyncio
import gc
import logging
import os
from collections.abc import Coroutine
from typing import Any

from ctx.assemble import mcp_server
from ctx.cli.logs import log_to_stderr
from ctx.config import Config
from ctx.errors import ConfigError
from ctx.server.address import remote
from ctx.server.frames import Frames, take_wire
from ctx.server.mcp import McpServer as McpServer  # the SDK, which `mcp_server` would import only later
from ctx.server.opening import Early, Opening
from ctx.server.stdio import Wire, enter_pipe, serve_pipes
from ctx.server.work import Work
from ctx.types import Caller
from ctx.workspace import open_workspace

logger = logging.getLogger(__name__)


def serve(
    config: Config,
    frames: Frames,
    *,
    pack: str | None,
    bank: str | None,
    early: Early | None,
    opening: Opening | None,
) -> int:
    """Serves one client until it closes its end; the exit code. Raises `ConfigError`.

    `pack`: only this memory pack, under its own names. `early`: what was said already; `opening`: where it is
    recorded.
    """
    work = Work()
    with open_workspace(config) as workspace:
        workspace.load_extensions()
        chosen_pack = next((candidate for candidate in workspace.packs if candidate.name == pack), None)
        caller = Caller("stdio", bank=bank, bank_fixed=bank is not None, pack=pack)
        if chosen_pack is not None:
            chosen_pack.forward(os.environ)
            # The same project goes on with its session after a restart.
            caller = caller._replace(session_id=chosen_pack.sessions.open(None, place=os.getcwd()))
        else:
            workspace.background.start()
        server = mcp_server(workspace, work, enter_pipe(caller))
        wire = Wire(frames, lenient=chosen_pack is not None, early=early, opening=opening)
        gc.enable()
        _run_until_closed(serve_pipes(server, wire))
    work.close()
    return 0


def _run_until_closed(serving: Coroutine[Any, Any, None]) -> None:
    """Runs what serves a client; one that reads no more has closed its end too."""
    try:
        asyncio.run(serving)
    except* BrokenPipeError:
        logger.info("the client reads no more")


def carry(url: str, bank: str | None, key_env: str | None, log_level: str) -> int:
    """Carries one client's messages to the ctx that serves at `url`; the exit code. Raises `ConfigError`."""
    from ctx.server.proxy import Proxy  # a client of HTTP

    key = os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise ConfigError(f"--key-env: the environment variable {key_env} is not set; export it")
    address = remote(url, bank)
    frames = Frames(*take_wire())
    log_to_stderr(log_level)
    gc.enable()
    _run_until_closed(Proxy(Wire(frames), address, key).run())
    return 0
