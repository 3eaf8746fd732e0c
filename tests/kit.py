"""Helpers for tests: projects, servers, commands, and snapshots of a store to compare."""

import atexit
import fcntl
import hashlib
import http.server
import json
import os
import secrets
import shutil
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from commands import run_command

from ctx.cli.configuration import trust_as_written
from ctx.config import load_config
from ctx.config.trust import TrustFile, trust_path
from ctx.connectors.walk import FINE_TICK_NS
from ctx.lua.lockdown import NOBODY
from ctx.models import ChunkRow
from ctx.search.snippets import Matcher, Snippet
from ctx.workspace import Workspace, open_workspace

ROOT = Path(__file__).parent.parent
MEMORIES = """
[connectors.filesystem.docs]
root = "./docs"
[embedding]
provider = "disabled"
[packs]
enabled = ["hindsight"]
"""  # a configuration with the memory pack


def write_key_file(path: Path, *names: str) -> str:
    """Write `keys.json` as earlier versions did, and return the last key, called "laptop" by default."""
    records = []
    for number, name in enumerate(names or ("laptop",)):
        key = f"ctx_{secrets.token_urlsafe(32)}"
        sha256 = hashlib.sha256(key.encode()).hexdigest()
        record = {"id": f"{number:08x}", "name": name, "banks": ["*"], "sha256": sha256}
        records.append(record | {"created_ms": 1_000 + number, "revoked_ms": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"version": 1, "keys": records}))
    path.chmod(0o600)
    return key


def snippet_of(matcher: Matcher, chunk: ChunkRow, further: str = "") -> Snippet:
    """The snippet for one chunk. `further` is the text that follows the chunk in its section."""
    return matcher.snippet(chunk, further)


def chunk_row(text: str, title: str, heading: str, prose: bool) -> ChunkRow:
    """A chunk of a Markdown page (`prose`) or of Python code, as a search reads it."""
    media_type = "text/markdown" if prose else "text/x-python"
    return ChunkRow(1, 1, 0, 1, 1, heading, text, "id", "files", "file", title, None, 0, media_type)


def shared(*parts: str) -> Path:
    """The path of a file in the shared test material: the folder $CTX_SHARED, or `shared` next to the
    checkout. If the file is missing, the test is skipped; in CI it fails.
    """
    folder = Path(os.environ.get("CTX_SHARED", ROOT.parent / "shared"))
    path = folder.joinpath(*parts)
    if not path.exists():
        message = f"needs {'/'.join(parts)} of the shared material; set CTX_SHARED to its folder"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return path


@contextmanager
def http_server(handler: Callable[..., http.server.BaseHTTPRequestHandler]) -> Iterator[int]:
    """Run a web server on 127.0.0.1 during the block, and yield its port."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


class PieceByPiece(http.server.BaseHTTPRequestHandler):
    """A request handler that sends the reply in pieces, possibly without end, until the client
    disconnects.
    """

    def send_pieces(self, pieces: Iterable[bytes], headers: Mapping[str, str] | None = None) -> None:
        self.send_response(200)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except OSError:
            pass  # the client has disconnected, as expected

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def python_for_anybody() -> str:
    """The path of a Python of this version that an unprivileged user may start. The running Python may be in
    a private folder. Skips the test if there is none.
    """
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(name, path="/usr/bin:/usr/local/bin:/bin")):
        if candidate is None:
            continue
        try:
            subprocess.run([candidate, "-c", ""], user=NOBODY, group=NOBODY, check=True, capture_output=True)
        except (PermissionError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip(f"no {name} on this machine can be started by an unprivileged user")


def hear_ctrl_c() -> None:
    """For `preexec_fn`: the child reacts to SIGINT even if the tests run where it is ignored (`nohup`, or `&`
    in a script).
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def project(folder: Path, files: dict[str, str] | None = None, config: str | None = None) -> Path:
    """Creates a project with these files in its docs folder, and returns the path of its ctx.toml. `config`
    is the text of ctx.toml; by default it indexes the docs folder without embeddings.
    """
    docs = folder / "docs"
    docs.mkdir(parents=True, exist_ok=True)
    for name, text in (files or {}).items():
        path = docs / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    path = folder / "ctx.toml"
    path.write_text(
        '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
        if config is None
        else config
    )
    return path


def workspace(config: Path) -> Workspace:
    """Opens the workspace of a configuration file. The caller closes it."""
    return open_workspace(load_config(str(config), os.environ))


def named(config: Path) -> dict[str, str]:
    """Environment variables that name this configuration, as `--config` does. A configuration that the user
    names needs no trust.
    """
    return {"CTX_CONFIG": str(config)}


def trust(config: Path) -> None:
    """Trusts this configuration as `ctx trust` does, until the tests end.

    For programs that start `ctx` themselves and pass on no environment variable except the home folder.
    """
    trust_as_written(str(config))
    atexit.register(TrustFile(trust_path(os.environ)).record, {os.path.realpath(config): None})


def picture(space: Workspace) -> dict[tuple[str, str], Any]:
    """The content of a store, to compare with that of a newly built one: (source, source_id) -> (id, title,
    body, address, chunks).
    """
    entries_by_name = {}
    for stored in space.catalog.export():
        document = stored.document
        chunks = [(chunk.start, chunk.end, chunk.heading, chunk.text_hash.hex()) for chunk in stored.chunks]
        entries_by_name[document.source, document.source_id] = (
            document.id,
            document.title,
            document.body,
            document.source_url,
            chunks,
        )
    return entries_by_name


def found(space: Workspace, *queries: str, mode: str = "keyword") -> list[list[str]]:
    """The sorted source ids that each query finds, one list per query."""
    from ctx.models import Caller

    return [
        sorted(
            hit["source_id"]
            for hit in space.toolbox.call(
                "search", {"query": query, "mode": mode, "limit": 100}, Caller("cli")
            )["results"]
        )
        for query in queries
    ]


def ctx(
    *arguments: str,
    cwd: Path,
    env: dict[str, str] | None = None,
    timeout_s: float = 60,
    input_text: str | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a `ctx` command in the folder `cwd`, without the user's own configuration."""
    environ = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("CTX_") and name not in ("FORCE_COLOR",)
    }
    environ |= {"XDG_CONFIG_HOME": str(cwd / "no-such-folder"), "PYTHONWARNINGS": "ignore"} | (env or {})
    _settle(cwd / "docs")
    return run_command([*arguments], cwd, environ, timeout_s, input_text)


def _settle(folder: Path) -> None:
    """Waits until the newest file in a folder is older than FINE_TICK_NS. The next run would read a younger
    file again.
    """
    youngest_ns = max((path.lstat().st_ctime_ns for path in folder.glob("**/*")), default=0)
    rest_ns = min(FINE_TICK_NS, youngest_ns + FINE_TICK_NS - time.time_ns())
    threading.Event().wait(max(0, rest_ns) / 1e9)


def on_a_terminal(
    *arguments: str,
    cwd: Path,
    env: Mapping[str, str | None] | None = None,
    columns: int = 80,
    errors: bool = True,
) -> tuple[int, str]:
    """Runs `ctx` on a terminal. Returns the exit code and the text on the screen.

    None in `env` removes a variable. `errors`: standard error is the terminal, too.
    """
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    taken = {name: text for name, text in {**os.environ, **(env or {})}.items() if text is not None}
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", *arguments],
        cwd=cwd,
        env=taken,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs if errors else None,
    ) as process:
        os.close(theirs)
        screen = b""
        try:
            while part := os.read(ours, 65536):
                screen += part
        except OSError:
            pass  # Linux raises this when the last program has closed the terminal
        status = process.wait(60)
    os.close(ours)
    return status, screen.decode(errors="replace").replace("\r\n", "\n")


def lines_run(work: Callable[[], object]) -> int:
    """Calls `work` and returns how many lines of Python it executes: a cost that does not depend on the
    machine.
    """
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    earlier = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(earlier)
    return count
