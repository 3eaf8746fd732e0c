"""`ctx serve` and `ctx mcp`: serve HTTP and MCP. `ctx openapi`: describe the REST interface."""

import logging
import multiprocessing
import os
import secrets
import signal
import sys
import tempfile
import threading
from argparse import Namespace
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from functools import partial
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from ctx.background import Background
from ctx.cli import Parser, amount, command_parser, log_option
from ctx.cli.configuration import configuration, configuration_at, memory_configuration
from ctx.cli.output import log_to_stderr, plain, print_json, warn
from ctx.cli.running import Running, at_address, of_project, registered, servers, tools_over_http
from ctx.clock import now_ms
from ctx.config import Config, default_config
from ctx.config.find import find_config, user_folder
from ctx.config.settings import SHIPPED_PACKS
from ctx.connectors.base import name_of
from ctx.errors import BadRequest, ConfigError, CtxError
from ctx.http import Upstream, local, remote
from ctx.server.keys import key_ring
from ctx.server.policy import ServerSettings, check_bind, closed, open_to_pages
from ctx.text.strings import did_you_mean
from ctx.workspace import Workspace, open_workspace

if TYPE_CHECKING:
    from ctx.server.middleware import RequestMiddleware

logger = logging.getLogger(__name__)

STATE_FILE = "state.json"


# -- serve ---------------------------------------------------------------------------------------------------


def serve_options(options: Parser) -> None:
    """Serve REST, MCP and the page over HTTP, and keep the index up to date.

    ctx serve
    ctx serve --bind 127.0.0.1:7332
    """
    add = options.add_argument
    add("what", nargs="?", metavar="mcp", default="mcp", help="`ctx serve mcp` is the same")
    add("--bind", metavar="HOST:PORT", help="instead of [server] bind")
    options.flag("--stdio", "MCP on standard input and output instead: `ctx mcp`")
    no_auth = "bind beyond this machine without a key: anyone who reaches the port can use it"
    options.flag("--insecure-no-auth", no_auth)
    workers = "for teams: use N processes for requests and one more to index and embed"
    add("--workers", type=amount, default=1, metavar="N", help=workers)
    log_option(options, None, "(default: warning on a terminal, else info)")
    add("--log-format", choices=("text", "json"), default="text", help="(default: text)")


def run_serve(args: Namespace) -> int:
    if args.what != "mcp":
        hint = "`ctx serve` serves REST, MCP and the page on one port"
        raise BadRequest(f"'{args.what}' is not served separately: {hint}")
    if args.stdio:
        arguments = ["--config", args.config] if args.config else []
        return run_mcp(command_parser("mcp").parse_args(arguments))
    from ctx.server.app import create_app, server_settings, services  # FastAPI and the SDK: 800 ms
    from ctx.server.run import serve

    level = args.log_level or ("warning" if sys.stderr.isatty() else "info")
    log_to_stderr(level, args.log_format)
    config = configuration(args.config)
    if args.bind:
        config = replace(config, server=replace(config.server, bind=args.bind))
    _check_vacant(config.server.bind, config.root)
    with open_workspace(config) as workspace:
        workspace.load_extensions()  # a broken pack must fail the start, not the first call
        owner_key = secrets.token_urlsafe(32)
        settings = server_settings(workspace, insecure_no_auth=args.insecure_no_auth, owner_key=owner_key)
        app = create_app(services(workspace), settings) if args.workers == 1 else None
        log = logging.getLogger("ctx.server")
        log.info("%s", page_access(workspace, settings))
        with registered() as register:

            def announce(address: str) -> None:
                # Registered first, so that `ctx status` lists the server once the line is printed.
                path = os.path.realpath(config.path or "")
                register(Running(config.root, address, os.getpid(), now_ms(), path, owner_key))
                print(f"Listening on {address}", flush=True)
                stop = "  (Ctrl-C stops)" if sys.stderr.isatty() else ""
                warn(f"The page: {local(address)}/{stop}")

            if app is not None:
                serve(app, settings.bind, announce=announce)
            else:
                serve_with_workers(workspace, settings, args.workers, announce, level, args.log_format)
    return 0


def _check_vacant(bind: str, root: str) -> None:
    """Raises `ConfigError` if another ctx server of this user already uses the address."""
    row = at_address(servers(), bind)
    if row is None:
        return
    if of_project([row], root):
        served = f"this project is already served at http://{row.address} by process {row.pid}"
        raise ConfigError(f"{served}: use that server, or stop it first")
    from ctx.server.run import proposal  # 150 ms

    hint = f"stop it, or set another [server] bind for this project in ctx.toml{proposal(bind)}"
    raise ConfigError(f"{bind} is in use by the ctx server of {plain(row.root)} (process {row.pid}): {hint}")


def page_access(workspace: Workspace, settings: ServerSettings) -> str:
    """A sentence that says which tools web pages of other sites may call without a key."""
    if not settings.cors_origins:
        return "web pages of other sites may call nothing"
    if closed(settings):
        return "web pages of other sites may call nothing without a key"
    names = [
        tool.name
        for tool in workspace.toolbox.list()
        if not tool.annotations.read_only and open_to_pages(tool, settings)
    ]
    pages = "any web page" if "*" in settings.cors_origins else f"pages of {', '.join(settings.cors_origins)}"
    if not names:
        return f"{pages} may call the tools that only read ([server] cors_origins)"
    hint = '[server] cross_site_tools = "read_only" excludes the tools that write'
    return f"{pages} may call the tools that only read, and {', '.join(names)}; {hint}"


# -- serve --workers: this process indexes and embeds, the workers answer ------------------------------------


def _worker_app(
    config: Config, folder: str, insecure_no_auth: bool, owner_key: str, *log: str
) -> "RequestMiddleware":
    """Creates the web application of a worker process. It is called in that process. `folder` is for the
    files that this server's processes share, `log` is the (level, format) of the log.
    """
    from uvicorn.config import STARTUP_FAILURE

    from ctx.server.app import create_app, server_settings, services  # FastAPI and the SDK: 800 ms

    log_to_stderr(*log)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        rates = os.path.join(folder, "rates.sqlite3")  # prometheus-client reads every `.db` of the folder
        workspace = Workspace(config, state=os.path.join(folder, STATE_FILE), rates=rates)
        _ = workspace.packs, workspace.scripts
        settings = server_settings(workspace, insecure_no_auth=insecure_no_auth, owner_key=owner_key)
        return create_app(services(workspace), settings)
    except CtxError as error:
        logger.error("this worker cannot start: %s", error.message)
        sys.exit(STARTUP_FAILURE)  # uvicorn does not replace a worker that ends with this code


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def serve_with_workers(
    workspace: Workspace, settings: ServerSettings, count: int, announce: Callable[[str], None], *log: str
) -> None:
    """Serves with `count` worker processes until a signal. Calls `announce` with HOST:PORT when the workers
    answer. `log` is the (level, format) of their log.
    """
    from ctx.server.overview import SHARED_FOLDER
    from ctx.server.run import Workers, open_sockets

    with closing(key_ring(workspace.config)) as keys:
        check_bind(settings, keys)
    sockets = open_sockets(settings.bind)
    with tempfile.TemporaryDirectory(prefix="ctx-workers-") as folder:
        if settings.metrics:
            os.environ[SHARED_FOLDER] = folder
        background = Background(workspace)
        background.start(patience_s=0.0)
        background.publish_state(os.path.join(folder, STATE_FILE))
        access = settings.insecure_no_auth, settings.owner_key
        app = partial(_worker_app, workspace.config, folder, *access, *log)
        try:
            Workers(app, sockets, count, announce=announce).run()
        finally:
            for opened in sockets:
                opened.close()
            workspace.close()


# -- mcp -----------------------------------------------------------------------------------------------------


def mcp_options(options: Parser) -> None:
    """Serve MCP on standard input and output, for clients that start their own servers. Without a
    configuration it indexes the folder it is started in.

    ctx mcp
    ctx mcp --url https://ctx.example.org --key-env CTX_KEY
    """
    add = options.add_argument
    pack = f"serve only this memory pack, under its own tool names: {', '.join(SHIPPED_PACKS)}"
    add("--pack", metavar="NAME", help=pack)
    add("--bank", metavar="BANK", help="the memory bank (default: $CTX_BANK, else the pack's own)")
    add("--url", help="forward the messages to the ctx server at this address")
    add("--key-env", metavar="NAME", help="with --url: the environment variable that holds the key")
    log_option(options, "warning")


def run_mcp(args: Namespace) -> int:
    if os.isatty(0):
        warn("An MCP client starts this command; set one up with `ctx connect CLIENT`. Ctrl-C stops it.")
    if args.url:
        key = os.environ.get(args.key_env) if args.key_env else None
        if args.key_env and not key:
            raise ConfigError(f"--key-env: the environment variable {args.key_env} is not set; export it")
        return _proxy(Upstream(remote(args.url, args.bank), key), args.log_level)
    if args.key_env:
        raise BadRequest("--key-env needs --url: a local ctx needs no key")
    bank = args.bank or os.environ.get("CTX_BANK")
    if args.pack is None:
        config = _mcp_configuration(args.config)
        find = partial(_own_server, config, bank)
        if server := find():
            try:
                if tools_over_http(server):  # not if the server's configuration disables MCP
                    return _proxy(server, args.log_level, find)
            except (ConnectionError, ConfigError) as error:
                logger.warning("the server at %s is not used: %s", server.url, error)
    else:
        config = memory_configuration(args.config)
        if args.pack not in config.packs.enabled:
            if args.pack not in SHIPPED_PACKS:
                hint = did_you_mean(args.pack, SHIPPED_PACKS)
                raise BadRequest(f"--pack: no memory pack '{args.pack}'; {hint}")
            packs = replace(config.packs, enabled=(*config.packs.enabled, args.pack))
            config = replace(config, packs=packs)
    return _serve_stdio(config, args.pack, bank, args.log_level)


def _own_server(config: Config, bank: str | None) -> Upstream | None:
    """The running server on this machine with exactly this configuration; None if there is none."""
    row = of_project(servers(), config.root)
    if row is None or row.config != os.path.realpath(config.path or ""):
        return None
    return Upstream(remote(local(row.address), bank), row.owner_key)


def _mcp_configuration(explicit: str | None) -> Config:
    """The project's configuration. Without one, a configuration that indexes the current folder; in the home
    folder and a few others, the user's own. Raises `ConfigError` if there is none.
    """
    folder = os.path.realpath(os.getcwd())
    location = find_config(explicit, os.environ, folder)
    own = os.path.join(user_folder(os.environ) or "", "config.toml")
    if location is not None and (explicit or location.path != own):
        return configuration_at(location)
    places = ("/", "/tmp", "/var/tmp", tempfile.gettempdir(), os.path.expanduser("~"))  # noqa: S108
    if folder not in map(os.path.realpath, places):
        tables = {"connectors": {"filesystem": {name_of(folder): {"root": "."}}}}
        return default_config(folder, tables)
    if location is not None:
        return configuration_at(location)
    hint = "start it in a project's folder, or run `ctx add FOLDER` to search a folder from here"
    raise ConfigError(f"`ctx mcp` was started in {folder}, which is not indexed: {hint}")


def _serve_stdio(config: Config, pack: str | None, bank: str | None, log_level: str) -> int:
    # The SDK and asyncio: half a second of processor time.
    from ctx.server.mcp import mcp_server
    from ctx.server.stdio import client_streams, run, serve_stdio, stdio_access, take_stdio
    from ctx.server.work import Work

    first_run = not config.stored
    source, sink = take_stdio()
    log_to_stderr(log_level)
    work = Work()
    with open_workspace(config) as workspace:
        workspace.load_extensions()
        chosen_pack = next((candidate for candidate in workspace.packs if candidate.name == pack), None)
        if chosen_pack is not None:
            chosen_pack.forward()
        else:
            Background(workspace).start()
        note = f"{config.root} is being indexed for the first time: search again if results are missing."
        notes = [note] if first_run and pack is None else []
        server = mcp_server(workspace, work, stdio_access(bank, pack), notes)

        async def serve() -> None:
            async with client_streams(source, sink) as (reading, writing):
                await serve_stdio(server, reading, writing)

        run(serve(), sink)
    work.close()
    return 0


def _proxy(server: Upstream, log_level: str, find: Callable[[], Upstream | None] | None = None) -> int:
    from ctx.server.stdio import Proxy, client_streams, run, take_stdio  # see `_serve_stdio`

    source, sink = take_stdio()
    log_to_stderr(log_level)

    async def pump() -> None:
        async with client_streams(source, sink) as (reading, writing):
            await Proxy(server, find).run(reading, writing)

    run(pump(), sink)
    return 0


# -- openapi -------------------------------------------------------------------------------------------------


def openapi_options(options: Parser) -> None:
    """Print the OpenAPI 3.1 description of this configuration's tools.

    ctx openapi > openapi.json
    ctx openapi --server-url https://ctx.example.org
    """
    options.add_argument("--server-url", metavar="URL", help="the server's address (default: /)")


def run_openapi(args: Namespace) -> int:
    if args.server_url and not args.server_url.startswith(("http://", "https://", "/")):
        raise BadRequest("--server-url must be an address such as https://ctx.example.org")
    from ctx.server.openapi import describe as described
    from ctx.server.openapi import listed_over_rest
    from ctx.server.rest import router  # FastAPI and the SDK: 800 ms

    with open_workspace(configuration(args.config)) as workspace:
        workspace.load_extensions()
        semantic = workspace.config.embedding.provider != "disabled"
        print_json(
            described(
                [listed_over_rest(tool, semantic) for tool in workspace.toolbox.list()],
                workspace.agents.list(),
                router.routes,
                key_needed=bool(workspace.config.server.api_key_env),
                server_url=args.server_url or "/",
            )
        )
    return 0
