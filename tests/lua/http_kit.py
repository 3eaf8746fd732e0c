"""Real HTTP servers for tests, `http` as a script has it, and a record of the connections it begins."""

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from ctx.lua import fetch, host
from ctx.lua.host import Policy
from ctx.models import JSON

PUBLIC = "93.184.216.34"
Reply = Callable[["Seen", socket.socket], None]


class Seen:
    """A request as it came over the wire."""

    def __init__(self, head: bytes, body: bytes) -> None:
        line, *lines = head.decode("latin-1").split("\r\n")
        self.method, self.path, _ = line.split(" ")
        self.headers = [
            (name.lower(), value.strip()) for name, _, value in (header.partition(":") for header in lines)
        ]
        self.body = body

    def get(self, name: str) -> list[str]:
        return [value for header, value in self.headers if header == name]


class Server:
    """Answers by path what a test says, byte for byte, and remembers what it was asked."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.routes: dict[str, Reply | bytes] = {}
        self.seen: list[Seen] = []
        self.socket = socket.create_server((address, 0))
        self.port = self.socket.getsockname()[1]
        self.at = f"{address}:{self.port}"
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self._open.append(connection)
            threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        try:
            data = b""
            while b"\r\n\r\n" not in data:
                piece = connection.recv(65536)
                if not piece:
                    return
                data += piece
            head, _, body = data.partition(b"\r\n\r\n")
            request = Seen(head, b"")
            length = int((request.get("content-length") or ["0"])[0])
            while len(body) < length:
                body += connection.recv(65536)
            request.body = body
            self.seen.append(request)
            reply = self.routes.get(
                request.path.partition("?")[0], b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
            )
            if isinstance(reply, bytes):
                connection.sendall(reply)
            else:
                reply(request, connection)
        except OSError:
            pass  # the client has gone, as it may
        finally:
            connection.close()

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for connection in self._open:
            connection.close()
        self._thread.join(60)


def ok(body: bytes, *headers: str) -> bytes:
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def to(url: str, status: int = 302) -> bytes:
    return f"HTTP/1.1 {status} Moved\r\nLocation: {url}\r\nContent-Length: 0\r\n\r\n".encode("latin-1")


class Answer:
    def __init__(self, answer: bytes) -> None:
        head, _, self.body = answer.partition(b"\0")
        fields = json.loads(head)
        self.status, self.ok, self.headers = fields["status"], fields["ok"], fields["headers"]


def ask(
    url: str,
    *,
    allow: Sequence[str] = (),
    method: str = "GET",
    body: bytes = b"",
    deadline_s: float = 10.0,
    resolve: fetch.Resolve = fetch.resolve_host,
    **fields: JSON,
) -> Answer:
    payload = json.dumps({"method": method, "url": url, **fields}).encode() + b"\0" + body
    policy = Policy("t", allow_hosts=frozenset(allow))
    return Answer(host.http(policy, payload, time.monotonic() + deadline_s, resolve))


_attempts: list[JSON] | None = None


def _hear(event: str, details: tuple[JSON, ...]) -> None:
    if event == "socket.connect" and _attempts is not None:
        _attempts.append(details[1][:2])
        if not str(details[1][0]).startswith("127."):
            raise ConnectionRefusedError("tests talk to nobody outside")


sys.addaudithook(_hear)  # cannot be taken out again; silent but within `connecting`


@contextmanager
def connecting() -> Iterator[list[JSON]]:
    """The addresses that this process begins to connect to. It gets to none but its own machine's."""
    global _attempts
    _attempts = []
    try:
        yield _attempts
    finally:
        _attempts = None
