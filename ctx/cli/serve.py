"""`ctx serve mcp` and `ctx openapi`."""

import logging
import os
import sys
from argparse import ArgumentTypeError, Namespace
from dataclasses import replace

from ctx.assemble import server_advice, server_settings, services
from ctx.cli import command_parser, pipes
from ctx.cli.common import configuration, plain, print_json
from ctx.cli.logs import log_option, log_to_stderr
from ctx.cli.options import Parser, describe
from ctx.cli.running import (
    Registration,
    Running,
    at_address,
    of_project,
    servers,
    state_folder,
)
from ctx.clock import now_ms
from ctx.errors import BadRequest, ConfigError
from ctx.server.address import local
from ctx.server.policy import ServerSettings, closed, open_to_pages, setting_doubts
from ctx.workspace import Workspace, open_workspace

MAX_WORKERS = 64


def add_options(command: str, options: Parser) -> None:
    {"serve": _serve_options, "openapi": _openapi_options}[command](options)


def run(command: str, args: Namespace) -> int:
    return {"serve": _serve, "openapi": _openapi}[command](args)


def _serve_options(options: Parser) -> None:
    describe(options, "Serve REST and MCP over HTTP; index the sources and follow them.")
    options.add_argument(
        "what",
        nargs="?",
        metavar="mcp",
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
        "--workers",
        type=_worker_count,
        default=1,
        metavar="N",
        help="for teams: N processes answer, and one more follows the sources and embeds",
    )
    log_option(options, "info")
    options.add_argument("--log-format", choices=("text", "json"), default="text")


def _worker_count(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= MAX_WORKERS:
        raise ArgumentTypeError(f"must be 1 to {MAX_WORKERS}")
    return int(text)


def _serve(args: Namespace) -> int:
    if args.what != "mcp":  # the word of Context Harness, which clients' documentation repeats
        mend = "`ctx serve mcp` serves REST, MCP and the page on one port"
        raise BadRequest(f"'{args.what}' is not served by itself: {mend}")
    if args.stdio:
        mcp = command_parser("mcp")
        return pipes.run("mcp", mcp.parse_args(["--config", args.config] if args.config else []))
    from ctx.cli.workers import serve_with_workers
    from ctx.server.app import create_app  # the web server: 200 ms
    from ctx.server.run import serve

    log_to_stderr(args.log_level, args.log_format)
    config = configuration(args.config)
    if args.bind:
        config = replace(config, server=replace(config.server, bind=args.bind))
    _check_vacant(config.server.bind, config.root)
    with open_workspace(config) as workspace:
        workspace.load_extensions()  # what is wrong with a pack ends the start here, not the first call
        settings = server_settings(workspace, insecure_no_auth=args.insecure_no_auth)
        app = create_app(services(workspace), settings) if args.workers == 1 else None
        logging.getLogger("ctx.server").info("%s", page_access(workspace, settings))
        for doubt in setting_doubts(settings.allowed_hosts, settings.cors_origins, settings.allowed_origins):
            logging.getLogger("ctx.server").warning("%s", doubt)
        with Registration(state_folder(os.environ)) as registration:

            def announce(address: str) -> None:
                # First, so that whoever reads the line finds the server among `ctx projects`.
                registration.register(Running(config.root, address, os.getpid(), now_ms()))
                print(f"Listening on {address}", flush=True)
                if sys.stderr.isatty():
                    page = local(address)
                    print(
                        f"The page: {page}/  `ctx connect CLIENT` connects an agent, Ctrl-C stops.",
                        file=sys.stderr,
                    )

            if app is not None:
                serve(app, settings.bind, announce=announce)
            else:
                log = (args.log_level, args.log_format)
                serve_with_workers(workspace, settings, args.workers, announce=announce, log=log)
    return 0


def _check_vacant(bind: str, root: str) -> None:
    """Raises `ConfigError` where a ctx of this user listens. Other programs are met when it is bound."""
    row = at_address(servers(state_folder(os.environ)), bind)
    if row is None:
        return
    if of_project([row], root):
        raise ConfigError(
            f"this project is served already, at http://{row.address} by process {row.pid}: use that "
            "server, or stop it first"
        )
    from ctx.server.run import proposal  # 150 ms

    raise ConfigError(
        f"{bind} is taken by the ctx that serves {plain(row.root)} (process {row.pid}): stop it, or give "
        f"this project a [server] bind of its own in ctx.toml{proposal(bind)}"
    )


def page_access(workspace: Workspace, settings: ServerSettings) -> str:
    """What web pages of other sites may call without a key, in a sentence."""
    if not settings.cors_origins:
        return "no page of another site may call anything"
    if closed(settings):
        return "pages of other sites may call nothing without a key, as nobody may"
    names = [
        tool.name
        for tool in workspace.toolbox.list()
        if not tool.annotations.read_only and open_to_pages(tool, settings)
    ]
    pages = "any web page" if "*" in settings.cors_origins else f"pages of {', '.join(settings.cors_origins)}"
    if not names:
        return f"{pages} may call the tools that only read; [server] cors_origins says which pages"
    return (
        f"{pages} may call the tools that only read, and {', '.join(names)}; "
        '[server] cross_site_tools = "read_only" closes those that write'
    )


def _openapi_options(options: Parser) -> None:
    describe(options, "Print the OpenAPI 3.1 description of this configuration's tools.", json=True)
    options.add_argument("--server-url", metavar="URL", help="the address to name in it (default: /)")


def _openapi(args: Namespace) -> int:
    if args.server_url and not args.server_url.startswith(("http://", "https://", "/")):
        raise BadRequest("--server-url must be an address such as https://ctx.example.org")
    from ctx.server.endpoints import router  # FastAPI: 0.35 s, which a starting server is spared
    from ctx.server.openapi import Described, describe

    with open_workspace(configuration(args.config)) as workspace:
        workspace.load_extensions()
        described = describe(
            Described(
                [server_advice(workspace).listed(tool) for tool in workspace.toolbox.list()],
                workspace.agents.list(),
                router.routes,
                key_needed=bool(workspace.config.server.api_key_env),
                server_url=args.server_url or "/",
            )
        )
    print_json(described)
    return 0
