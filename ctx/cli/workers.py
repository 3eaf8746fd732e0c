"""`ctx serve --workers N`: this process follows the sources and embeds, N others answer."""

import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import wait

from ctx.cli.output import log_to_stderr
from ctx.config import Config
from ctx.errors import CtxError
from ctx.server.app import create_app
from ctx.server.keys import key_ring
from ctx.server.metrics import SHARED_FOLDER
from ctx.server.middleware import RequestMiddleware
from ctx.server.policy import ServerSettings, check_bind
from ctx.server.run import CANNOT_START, Workers, open_sockets
from ctx.server.services import server_settings, services
from ctx.workspace import WorkerWorkspace, Workspace

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkerApp:
    """Makes the application of a worker process, in which it is called."""

    config: Config
    folder: str  # of what the processes of this server share
    insecure_no_auth: bool
    owner_key: str
    log_level: str
    log_format: str

    def __call__(self) -> RequestMiddleware:
        log_to_stderr(self.log_level, self.log_format)
        threading.Thread(target=_end_with_parent, daemon=True).start()
        try:
            workspace = WorkerWorkspace(
                self.config, state=state_file(self.folder), rates=rates_file(self.folder)
            )
            _ = workspace.packs, workspace.scripts
            settings = server_settings(
                workspace, insecure_no_auth=self.insecure_no_auth, owner_key=self.owner_key
            )
            return create_app(services(workspace), settings)
        except CtxError as error:
            logger.error("this worker cannot start: %s", error.message)
            sys.exit(CANNOT_START)


def state_file(folder: str) -> str:
    return os.path.join(folder, "state.json")


def rates_file(folder: str) -> str:
    return os.path.join(folder, "rates.db")


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def serve_with_workers(
    workspace: Workspace,
    settings: ServerSettings,
    count: int,
    *,
    announce: Callable[[str], None],
    log: tuple[str, str],
) -> None:
    """Serves until a signal. `announce` is given HOST:PORT when the workers answer; `log` is the level and
    format of their lines.
    """
    keys = key_ring(workspace.config)
    check_bind(settings, keys)
    keys.close()
    sockets = open_sockets(settings.bind)
    with tempfile.TemporaryDirectory(prefix="ctx-workers-") as folder:
        if settings.metrics:
            os.environ[SHARED_FOLDER] = folder
        workspace.background.start(patience_s=0.0)
        workspace.background.publish_state(state_file(folder))
        app = WorkerApp(workspace.config, folder, settings.insecure_no_auth, settings.owner_key, *log)
        try:
            Workers(app, sockets, count, announce=announce).run()
        finally:
            for opened in sockets:
                opened.close()
            workspace.close()
