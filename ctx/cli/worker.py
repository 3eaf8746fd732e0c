"""`ctx worker`: shares the work of indexing with other machines."""

import signal
import threading
from argparse import Namespace

from ctx.cli.common import configuration, tell
from ctx.cli.logs import log_option, log_to_stderr
from ctx.cli.options import Parser, describe
from ctx.errors import BadRequest, ConfigError
from ctx.indexing.worker import ROLES, Worker
from ctx.sources import intervals_s
from ctx.text import counted
from ctx.workspace import open_workspace


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Run the sources of this configuration and embed, beside other machines that share [store] url. "
        "Each source is one machine's at a time, and texts to embed are shared out.",
        json=True,
    )
    options.add_argument(
        "--roles",
        default=",".join(ROLES),
        help="scan, embed and pump (to the engine of [index]), with commas between",
    )
    options.add_argument("--once", action="store_true", help="end when nothing is left to do")
    log_option(options, "info", purpose=None)


def run(command: str, args: Namespace) -> int:
    roles = [role.strip() for role in args.roles.split(",")]
    if unknown := [role for role in roles if role not in ROLES]:
        raise BadRequest(f"--roles: '{unknown[0]}' is none (known: {', '.join(ROLES)})")
    config = configuration(args.config)
    if not config.store.url:
        raise ConfigError(
            "a worker shares its work with other machines: set [store] url; one machine alone is kept fresh "
            "by `ctx serve mcp` or `ctx index --watch`"
        )
    log_to_stderr(args.log_level, "text")
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # An index of its own it has no use for; one that machines share it brings up to date.
    projecting = config.index.engine != "local" and "pump" in roles
    with open_workspace(config, projecting=projecting) as workspace:
        worker = Worker(workspace.indexer, roles, intervals_s(workspace.config))
        whole = True
        try:
            if args.once:
                whole = worker.work(stop)
            else:
                worker.run(stop)
        except KeyboardInterrupt:
            stop.set()
            return 130
        pending = workspace.catalog.pending_count(workspace.model) if workspace.model else 0
    lines = [f"done; {counted(pending, 'chunk')} pending"] if args.once else []
    return tell(args.json, {"ok": whole, "pending": pending}, *lines, code=0 if whole else 1)
