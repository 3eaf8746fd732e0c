"""A web server for tests: a function answers, and the requests are kept."""

import http.server
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from kit import http_server

from ctx.models import JSON


class Asked(NamedTuple):
    """A request as it came: the path as it was written, with its escapes. Header names are in lower case."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> JSON:
        return json.loads(self.content)


class Reply(NamedTuple):
    body: JSON | bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {}


class Api:
    """Answers by `answer`, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Asked] = []
        self.answer: Callable[[Asked], Reply] = lambda _: Reply(b"", 404)
        self.host = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}"

    def paths(self) -> list[str]:
        """What was asked since the last time."""
        paths = [request.path for request in self.asked]
        self.asked.clear()
        return paths


@contextmanager
def serving_api(answer: Callable[[Asked], Reply] | None = None) -> Iterator[Api]:
    api = Api()
    if answer is not None:
        api.answer = answer

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            content = self.rfile.read(int(headers.get("content-length", "0")))
            api.asked.append(Asked(parts.path, query, headers, content))
            reply = api.answer(api.asked[-1])
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            try:
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:
                self.close_connection = True  # the client has left, as it may

        do_POST = do_PUT = do_DELETE = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http_server(Handler) as port:
        api.host = f"127.0.0.1:{port}"
        yield api
