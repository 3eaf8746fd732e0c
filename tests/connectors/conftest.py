"""Fixtures for connectors: a folder, git repositories, and an HTTP server that serves them."""

import base64
import http.server
import os
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from git_kit import TOKEN, Upstream

from ctx.connectors.filesystem import FilesystemConnector


@pytest.fixture
def plain_git(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No configuration of the machine's user decides a test."""
    for key in [key for key in os.environ if key.startswith(("GIT_", "SSH_"))]:
        monkeypatch.delenv(key)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user-cache"))


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path)


class _Backend(http.server.BaseHTTPRequestHandler):
    """git's own CGI program, behind a password."""

    folder: Path
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        expected = "Basic " + base64.b64encode(f"ann:{TOKEN}".encode()).decode()
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Authorization") != expected:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        env = {
            **os.environ,
            "GIT_PROJECT_ROOT": str(self.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type") or "",
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding") or "",
            "GIT_PROTOCOL": self.headers.get("Git-Protocol") or "",
            "CONTENT_LENGTH": str(len(body)),
        }
        process = subprocess.run(
            ["git", "http-backend"], input=body, env=env, check=False, capture_output=True
        )
        head, _, content = process.stdout.partition(b"\r\n\r\n")
        headers = [line.split(": ", 1) for line in head.decode().split("\r\n") if ": " in line]
        status = next((int(value.split()[0]) for key, value in headers if key == "Status"), 200)
        self.send_response(status)
        for key, value in headers:
            if key != "Status":
                self.send_header(key, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_POST = do_GET


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    """The host and port of an HTTP server over the test's folder."""
    handler = type("Backend", (_Backend,), {"folder": tmp_path})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    folder.mkdir()
    return folder


@pytest.fixture
def connector(root: Path) -> FilesystemConnector:
    return FilesystemConnector("filesystem:docs", str(root))
