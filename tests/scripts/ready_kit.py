"""A server that answers like a documented API, and a project with one of the connectors that ship."""

import http.server
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from kit import http_server, workspace
from script_kit import configured

from ctx.models import JSON, Document
from ctx.workspace import Workspace


class Asked(NamedTuple):
    """A request as it came: the path as it was written, with its escapes."""

    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]  # by lower-case names
    body: JSON = None


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
def serving_api() -> Iterator[Api]:
    api = Api()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            query = {name: values[0] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            length = int(headers.get("content-length", "0"))
            api.asked.append(
                Asked(parts.path, query, headers, json.loads(self.rfile.read(length)) if length else None)
            )
            reply = api.answer(api.asked[-1])
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            pass

    with http_server(Handler) as port:
        api.host = f"127.0.0.1:{port}"
        yield api


class Source:
    """A project with one source, whose connector ships with ctx."""

    def __init__(self, space: Workspace) -> None:
        self.space = space

    def index(self) -> dict[str, Any]:
        (report,) = self.space.refresh(["script:x"])
        return report

    def documents(self) -> dict[str, Document]:
        stored = (row.document for row in self.space.catalog.export())
        return {document.source_id: document for document in stored if document.source == "script:x"}


@contextmanager
def source(folder: Path, connector: str, settings: Sequence[str]) -> Iterator[Source]:
    table = ["[connectors.script.x]", f'path = "registry:ctx/connectors/{connector}"', *settings]
    with workspace(configured(folder, "\n".join(table))) as space:
        yield Source(space)
