"""`ctx mcp`: MCP on standard input and output. Every conversation of some clients starts one, so it imports
nothing of the web server.
"""

import asyncio
import os

from ctx.assemble import mcp_server
from ctx.cli.common import configuration, memory_configuration, parser
from ctx.cli.logs import log_to_stderr
from ctx.errors import BadRequest, ConfigError
from ctx.server.address import remote
from ctx.server.stdio import Wire, enter_pipe, serve_pipes, take_wire
from ctx.server.work import Work
from ctx.types import Caller
from ctx.workspace import open_workspace


def run(command: str, argv: list[str]) -> int:
    options = parser(
        "mcp", "Serve MCP on standard input and output, for clients that start their servers themselves."
    )
    options.add_argument(
        "--pack",
        metavar="NAME",
        help="only this memory pack, under its own names: hindsight, claude-recall or sekha",
    )
    options.add_argument(
        "--bank", metavar="BANK", help="the memory bank (default: $CTX_BANK, else the pack's own)"
    )
    options.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="warning",
        help="how much goes to standard error",
    )
    options.add_argument(
        "--url", help="carry the messages to the ctx that serves there, instead of serving from here"
    )
    options.add_argument(
        "--key-env", metavar="NAME", help="with --url: the environment variable that holds the key"
    )
    args = options.parse_args(argv)
    if args.url:
        return _mcp_from(args.url, args.bank, args.key_env, args.log_level)
    if args.key_env:
        raise BadRequest("--key-env is for --url: a ctx that runs here asks nobody for a key")
    reading, writing = take_wire()
    log_to_stderr(args.log_level)
    config = configuration(args.config) if args.pack is None else memory_configuration(args.config)
    if args.pack and args.pack not in config.packs.enabled:
        config = config.replaced(packs=config.packs.replaced(enabled=(*config.packs.enabled, args.pack)))
    work = Work()
    with open_workspace(config) as workspace:
        workspace.load_extensions()
        pack = next((pack for pack in workspace.packs if pack.name == args.pack), None)
        bank = args.bank or os.environ.get("CTX_BANK")
        caller = Caller("stdio", bank=bank, bank_fixed=bank is not None, pack=args.pack)
        if pack is not None:
            pack.forward(os.environ)
            # The same project goes on with its session after a restart.
            caller = caller._replace(session_id=pack.sessions.open(None, place=os.getcwd()))
        else:
            workspace.start()
        server = mcp_server(workspace, work, enter_pipe(caller))
        asyncio.run(serve_pipes(server, Wire(reading, writing, lenient=pack is not None)))
    work.close()
    return 0


def _mcp_from(url: str, bank: str | None, key_env: str | None, log_level: str) -> int:
    from ctx.server.proxy import serve_remote  # a client of HTTP

    key = os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise ConfigError(f"--key-env: the environment variable {key_env} is not set; export it")
    address = remote(url, bank)
    reading, writing = take_wire()
    log_to_stderr(log_level)
    asyncio.run(serve_remote(Wire(reading, writing), address, key))
    return 0
