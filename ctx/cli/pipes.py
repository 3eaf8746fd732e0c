"""`ctx mcp`: MCP on standard input and output, for clients that start their servers themselves."""

import asyncio
import logging
import os
import sys
from argparse import Namespace
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from ctx.cli.common import configuration, memory_configuration
from ctx.cli.logs import log_option, log_to_stderr
from ctx.cli.options import Parser, describe
from ctx.config import Config
from ctx.config.settings import SHIPPED_PACKS
from ctx.errors import BadRequest, ConfigError
from ctx.server.address import remote
from ctx.text import did_you_mean
from ctx.types import Caller

logger = logging.getLogger(__name__)

TYPED = (
    "A client starts this command and speaks MCP to it; set it up with `ctx connect CLIENT`. Ctrl-C ends it."
)


def run(command: str, args: Namespace) -> int:
    if os.isatty(0):  # a person, who would see nothing happen
        print(TYPED, file=sys.stderr)
    if args.url:
        return _carry(args.url, args.bank, args.key_env, args.log_level)
    if args.key_env:
        raise BadRequest("--key-env needs --url: a ctx that runs here asks for no key")
    config = configuration(args.config) if args.pack is None else memory_configuration(args.config)
    if args.pack and args.pack not in config.packs.enabled:
        config = _with_pack(config, args.pack)
    return _serve(config, args.pack, args.bank or os.environ.get("CTX_BANK"), args.log_level)


def add_options(command: str, options: Parser) -> None:
    describe(
        options, "Serve MCP on standard input and output, for clients that start their servers themselves."
    )
    options.add_argument(
        "--pack",
        metavar="NAME",
        help="only this memory pack, under its own names: hindsight, claude-recall or sekha",
    )
    options.add_argument(
        "--bank", metavar="BANK", help="the memory bank (default: $CTX_BANK, else the pack's own)"
    )
    log_option(options, "warning")
    options.add_argument(
        "--url", help="carry the messages to the ctx that serves there, instead of serving from here"
    )
    options.add_argument(
        "--key-env", metavar="NAME", help="with --url: the environment variable that holds the key"
    )


def _with_pack(config: Config, pack: str) -> Config:
    """A configuration with one more pack enabled. Raises `BadRequest` if the pack does not exist."""
    if pack not in SHIPPED_PACKS:
        raise BadRequest(f"--pack: no memory pack '{pack}'; {did_you_mean(pack, SHIPPED_PACKS)}")
    return replace(config, packs=replace(config.packs, enabled=(*config.packs.enabled, pack)))


def _serve(config: Config, pack: str | None, bank: str | None, log_level: str) -> int:
    # The SDK is half a second of processor time, which `ctx mcp --help` must not take.
    from ctx.assemble import mcp_server
    from ctx.server.stdio import client_streams, serve_stdio, stdio_auth, take_stdio
    from ctx.server.work import Work
    from ctx.workspace import open_workspace

    source, sink = take_stdio()
    log_to_stderr(log_level)
    work = Work()
    with open_workspace(config) as workspace:
        workspace.load_extensions()
        chosen_pack = next((candidate for candidate in workspace.packs if candidate.name == pack), None)
        if chosen_pack is not None:
            chosen_pack.forward(os.environ)
        else:
            workspace.background.start()
        caller = Caller("stdio", bank=bank, bank_fixed=bank is not None, pack=pack)
        server = mcp_server(workspace, work, stdio_auth(caller))

        async def serve() -> None:
            async with client_streams(source, sink, lenient=pack is not None) as (reading, writing):
                await serve_stdio(server, reading, writing)

        _run(serve(), sink)
    work.close()
    return 0


def _carry(url: str, bank: str | None, key_env: str | None, log_level: str) -> int:
    """Carries one client's messages to the ctx that serves at `url`. Raises `ConfigError`."""
    # See `_serve`.
    from ctx.server.proxy import Proxy
    from ctx.server.stdio import client_streams, take_stdio

    key = os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise ConfigError(f"--key-env: the environment variable {key_env} is not set; export it")
    address = remote(url, bank)
    source, sink = take_stdio()
    log_to_stderr(log_level)

    async def carry() -> None:
        async with client_streams(source, sink) as (reading, writing):
            await Proxy(address, key).run(reading, writing)

    _run(carry(), sink)
    return 0


def _run(serving: Coroutine[Any, Any, None], sink: Any) -> None:
    """Serves a client until it closes its end of either stream."""
    import anyio  # comes with the SDK

    try:
        asyncio.run(serving)
    except* (BrokenPipeError, anyio.BrokenResourceError, anyio.ClosedResourceError):
        logger.info("the client does not read any more")
        os.dup2(os.open(os.devnull, os.O_WRONLY), sink.fileno())  # what is left unsent goes nowhere
