"""What web pages can and cannot do, seen from a real browser.

Names that end in `.example` are led to this machine by the browser, so that its pages are foreign to the
server and yet reachable.
"""

import http.server
import json
from collections.abc import Iterator
from typing import Any

import pytest
from kit import http_server
from serving import EchoEndpoint, Serve, Served
from tabs import running_browser

from ctx.models import JSON
from ctx.server.app import Services
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.rest import PackRoute

pytestmark = [
    pytest.mark.slow,
    pytest.mark.clients,
    pytest.mark.timeout(300),  # a cold start of the browser on a loaded machine takes a minute and a half
]


# One request from within a page: [status, body] as the page may see them, or ["blocked", why].
ASK = """async ([url, options]) => {
  try {
    const reply = await fetch(url, options);
    const text = await reply.text();
    try { return [reply.status, JSON.parse(text)]; } catch { return [reply.status, text]; }
  } catch (error) { return ["blocked", String(error)]; }
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A headless Chromium that finds every `.example` on this machine."""
    yield from running_browser("--host-resolver-rules=MAP *.example 127.0.0.1")


@pytest.fixture
def evil() -> Iterator[str]:
    """A web site of somebody else's; its origin."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<!doctype html><title>evil</title>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:
            return

    with http_server(Page) as port:
        yield f"http://evil.example:{port}"


@pytest.fixture
def full(services: Services) -> Services:
    """The services with MCP and the routes of two packs."""
    routes = [
        PackRoute(
            "GET", "/packs/diary/health", "diary", lambda parameters, body, caller: {"status": "healthy"}
        ),
        PackRoute(
            "POST",
            "/mcp/tools/{tool}",
            "vault",
            lambda parameters, body, caller: {"ok": True},
            keyed=True,
        ),
    ]
    return services._replace(mcp=EchoEndpoint, pack_routes=routes)


class Page:
    """A page of some origin, and what its scripts get for an answer."""

    def __init__(self, browser: Any, origin: str) -> None:
        self._page = browser.new_page()
        self._page.goto(origin + "/")

    def ask(self, url: str, method: str = "GET", body: JSON = None, **headers: str) -> Any:
        """Status and body as the page sees them. A string is sent as it is, as `text/plain`; else JSON."""
        options: dict[str, JSON] = {"method": method, "headers": headers}
        if isinstance(body, str):
            options["body"] = body
        elif body is not None:
            options["body"] = json.dumps(body)
            options["headers"] = {"content-type": "application/json", **headers}
        return self._page.evaluate(ASK, [url, options])


def _calls(served: Served, services: Services) -> list[str]:
    entry: list[str] = []
    services.toolbox.observe(lambda call: entry.append(call.tool))
    return entry


def test_a_foreign_page_searches_and_reads_errors(
    browser: Any, evil: str, serve: Serve, full: Services
) -> None:
    served = serve(full)
    page = Page(browser, evil)
    status, body = page.ask(
        f"{served.base}/tools/search", "POST", {"query": "authentication"}
    )  # preflighted: JSON
    assert (status, body["results"][0]["title"]) == (200, "Authentication Guide")
    assert page.ask(f"{served.base}/tools/sources")[0] == 200
    assert page.ask(f"{served.base}/openapi.json")[0] == 200
    status, body = page.ask(f"{served.base}/tools/get", "POST", {"id": "none"})
    assert (status, body["error"]["code"]) == (404, "not_found")


def test_a_simple_post_and_one_with_credentials_get_nothing(
    browser: Any, evil: str, serve: Serve, full: Services
) -> None:
    served = serve(full)
    calls = _calls(served, full)
    page = Page(browser, evil)
    assert page.ask(f"{served.base}/tools/search", "POST", '{"query":"authentication"}')[0] == 400
    blocked = page._page.evaluate(ASK, [f"{served.base}/health", {"credentials": "include"}])
    assert blocked[0] == "blocked"
    assert calls == []


def test_a_foreign_page_reaches_neither_memories_nor_mcp(
    browser: Any, evil: str, serve: Serve, full: Services
) -> None:
    served = serve(
        full, ServerSettings(packs=(PackPolicy("diary"), PackPolicy("vault", keys=("vault-key",))))
    )
    calls = _calls(served, full)
    page = Page(browser, evil)
    for tool in ("remember", "vault"):
        status, body = page.ask(f"{served.base}/tools/{tool}", "POST", {})
        assert (status, body["error"]["code"]) == (403, "origin_not_allowed")
    initialize = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {}}
    for path in ("/", "/mcp", "/mcp/", "/mcp/alice", "/mcp/alice/", "/mcp/tools/x"):
        for body in (initialize, "{}"):  # preflighted, and not
            assert page.ask(f"{served.base}{path}", "POST", body)[0] == "blocked", path
    assert page.ask(f"{served.base}/packs/diary/health")[0] == "blocked"
    assert calls == []
    # With its key a page may: that is what keys are for.
    assert page.ask(f"{served.base}/tools/vault", "POST", {}, authorization="Bearer vault-key")[0] == 200
    assert page.ask(f"{served.base}/mcp", "POST", initialize, authorization="Bearer vault-key")[0] == 200
