"""A small web site served by a real server, and a crawl of it."""

import http.server
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from hashlib import sha256
from typing import Any, NamedTuple

from ctx.connectors.base import ScanLog
from ctx.connectors.web import WebConnector
from ctx.models import Content


class Page(NamedTuple):
    """What is answered at a path. `etag` False: the server has no validators."""

    body: bytes = b""
    status: int = 200
    headers: Mapping[str, str] = {"Content-Type": "text/html; charset=utf-8"}
    etag: bool = True


def html(title: str, *links: str, text: str = "", head: str = "") -> Page:
    """A page as documentation has it: its text in `<main>`, its links in the navigation."""
    items = "".join(f'<li><a href="{link}">to {link}</a></li>' for link in links)
    words = text or f"The page about {title}. " + f"It says much of {title.lower()}. " * 12
    return Page(
        f"<html><head><title>{title} - Site</title>{head}</head><body><nav><ul>{items}</ul></nav>"
        f"<main><h1>{title}</h1><p>{words}</p></main><footer>Made by us</footer></body></html>".encode()
    )


def redirect(location: str, status: int = 301) -> Page:
    return Page(b"", status, {"Location": location})


Answer = Callable[["_Handler"], None]


class Site:
    """Answers by path, remembers what it was asked: (path, status)."""

    def __init__(self, host: str) -> None:
        self.pages: dict[str, Page | Answer] = {}
        self.requests: list[tuple[str, int]] = []
        self.headers: list[Mapping[str, str]] = []
        self.host = host
        self.url = f"http://{host}"

    def asked(self) -> list[str]:
        """The paths that were asked for since the last time, but for robots.txt."""
        paths = [path for path, _ in self.requests if path != "/robots.txt"]
        self.requests.clear()
        return paths


class _Handler(http.server.BaseHTTPRequestHandler):
    site: Site
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.site.headers.append(dict(self.headers.items()))
        page = self.site.pages.get(self.path, Page(b"no such page", 404))
        if not isinstance(page, Page):
            self.site.requests.append((self.path, 0))
            page(self)
            self.close_connection = True
            return
        etag = f'"{sha256(page.body).hexdigest()[:16]}"' if page.etag and page.status == 200 else None
        status = 304 if etag and self.headers.get("If-None-Match") == etag else page.status
        self.site.requests.append((self.path, status))
        self.send_response(status)
        for name, value in page.headers.items():
            self.send_header(name, value)
        if etag:
            self.send_header("ETag", etag)
        if status != 304:
            self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if status != 304:
            self.wfile.write(page.body)


@contextmanager
def serving() -> Iterator[Site]:
    handler = type("Handler", (_Handler,), {})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        handler.site = site = Site(f"127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield site
        finally:
            server.shutdown()
            thread.join()


def connector(site: Site, path: str = "/", **options: Any) -> WebConnector:
    options = {"allow_hosts": [site.host], "requests_per_second": 1000.0, **options}
    return WebConnector("web:docs", site.url + path, **options)


class Crawl:
    """A crawl read to its end, as an index run does. Ids are given as paths of the site."""

    def __init__(self, source: WebConnector, indexed: Mapping[str, str] | None = None) -> None:
        self.log = ScanLog()
        self.contents: dict[str, Content] = {}
        self.known: dict[str, str] = {}
        indexed = indexed or {}
        for item in source.scan(indexed, self.log):
            assert item.source_id not in self.contents, "a page came twice"
            self.contents[item.source_id] = item.read()
            self.known[item.source_id] = item.fingerprint
        self.known |= {address: indexed[address] for address in self.log.unchanged}
        self._start = source.start

    @property
    def read(self) -> list[str]:
        return [_path(address) for address in self.contents]

    @property
    def unchanged(self) -> list[str]:
        return sorted(_path(address) for address in self.log.unchanged)

    @property
    def pages(self) -> list[str]:
        return sorted(_path(address) for address in self.known)

    @property
    def problems(self) -> dict[str, str]:
        return {_path(problem.source_id): problem.message for problem in self.log.problems}


def _path(address: str) -> str:
    return "/" + address.split("/", 3)[3] if address.count("/") > 2 else address
