"""`ctx serve mcp`, `ctx mcp` and `ctx openapi`."""

import argparse
import logging
import os

from ctx.assemble import mcp_server, server_advice, server_settings, services
from ctx.cli.common import configuration, memory_configuration, parser, print_json
from ctx.cli.logs import log_to_stderr
from ctx.cli.running import Registration, Running, state_folder
from ctx.clock import now_ms
from ctx.errors import BadRequest, ConfigError
from ctx.server.app import create_app
from ctx.server.endpoints import router
from ctx.server.openapi import Described, describe
from ctx.server.policy import ServerSettings, open_to_pages
from ctx.server.run import serve
from ctx.server.work import Work
from ctx.types import Caller
from ctx.workspace import Workspace, open_workspace


def run(command: str, argv: list[str]) -> int:
    return {"serve": _serve, "mcp": _mcp, "openapi": _openapi}[command](argv)


def _serve(argv: list[str]) -> int:
    options = parser("serve", "Serve REST and MCP over HTTP; index the sources and follow them.")
    options.add_argument(
        "what",
        nargs="?",
        metavar="mcp",
        type=_what,
        default="mcp",
        help="`ctx serve mcp` serves everything: REST, MCP and the page",
    )
    options.add_argument("--bind", metavar="HOST:PORT", help="instead of [server] bind")
    options.add_argument(
        "--stdio", action="store_true", help="MCP on standard input and output instead (`ctx mcp`)"
    )
    options.add_argument(
        "--insecure-no-auth",
        action="store_true",
        help="bind beyond this machine without a key: whoever reaches the port may use it",
    )
    options.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        default="info",
        help="how much goes to standard error",
    )
    options.add_argument("--log-format", choices=("text", "json"), default="text")
    args = options.parse_args(argv)
    if args.stdio:
        return _mcp(["--config", args.config] if args.config else [])
    log_to_stderr(args.log_level, args.log_format)
    config = configuration(args.config, remember=True)
    if args.bind:
        config = config.replaced(server=config.server.replaced(bind=args.bind))
    with open_workspace(config) as workspace:
        workspace.load_extensions()  # what is wrong with a pack ends the start here, not the first call
        settings = server_settings(workspace, insecure_no_auth=args.insecure_no_auth)
        app = create_app(services(workspace), settings)
        _say_what_is_open(workspace, settings)
        with Registration(state_folder(os.environ)) as registration:

            def announce(address: str) -> None:
                print(f"Listening on {address}", flush=True)
                registration.register(Running(config.root, address, os.getpid(), now_ms()))

            serve(app, settings.bind, announce=announce)
    return 0


def _what(word: str) -> str:
    """The one word there is; Context Harness has it, and clients' documentation repeats it."""
    if word != "mcp":
        raise argparse.ArgumentTypeError(
            f"'{word}' is not served by itself: `ctx serve mcp` serves REST, MCP and the page on one port"
        )
    return word


def _say_what_is_open(workspace: Workspace, settings: ServerSettings) -> None:
    logger = logging.getLogger("ctx.server")
    if settings.cors_origins and settings.cross_site_tools == "all":
        names = [
            tool.name
            for tool in workspace.toolbox.list()
            if not tool.annotations.read_only and open_to_pages(tool, settings)
        ]
        logger.info(
            "any web page (%s) may call the document tools and %s; "
            '[server] cross_site_tools = "read_only" closes those that write',
            ", ".join(settings.cors_origins),
            ", ".join(names) or "no other",
        )


def _mcp(argv: list[str]) -> int:
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
    import asyncio

    from ctx.server.stdio import Wire, enter_pipe, serve_pipes, take_wire

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
    import asyncio

    from ctx.server.address import remote
    from ctx.server.proxy import serve_remote
    from ctx.server.stdio import Wire, take_wire

    key = os.environ.get(key_env) if key_env else None
    if key_env and not key:
        raise ConfigError(f"--key-env: the environment variable {key_env} is not set; export it")
    address = remote(url, bank)
    reading, writing = take_wire()
    log_to_stderr(log_level)
    asyncio.run(serve_remote(Wire(reading, writing), address, key))
    return 0


def _openapi(argv: list[str]) -> int:
    options = parser("openapi", "Print the OpenAPI 3.1 description of this configuration's tools.", json=True)
    options.add_argument("--server-url", metavar="URL", help="the address to name in it (default: /)")
    args = options.parse_args(argv)
    with open_workspace(configuration(args.config)) as workspace:
        workspace.load_extensions()
        described = describe(
            Described(
                [server_advice(workspace).listed(tool) for tool in workspace.toolbox.list()],
                workspace.agents.list(),
                router.routes,
                key_needed=bool(workspace.config.server.api_key_env),
            )
        )
    if args.server_url:
        described["servers"] = [{"url": args.server_url}]
    print_json(described)
    return 0
