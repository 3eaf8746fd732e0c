"""Which route a path leads to and who may use it, held to an oracle written from the documentation."""

import asyncio
import re
from urllib.parse import quote, unquote

import httpx
import pytest
from fuzz import fuzz, patient
from hypothesis import example, given
from hypothesis import strategies as st
from serving import EchoEndpoint, Serve, Served, failure

from ctx.server.app import Services, create_app
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.rest import PackRoute
from ctx.tools.toolbox import Agents, Tool, Toolbox

EVIL = "https://evil.example"
PACK_ROUTES = ("/packs/diary/health", "/mcp/tools/{tool}", "/v1/{tenant}/notes")


@pytest.fixture
def doors(services: Services) -> Services:
    """The services with MCP, and routes of a pack."""

    def answer(parameters: object, body: object, caller: object) -> dict[str, str]:
        return {"status": "healthy"}

    routes = [PackRoute("GET", path, "diary", answer) for path in PACK_ROUTES]
    return services._replace(mcp=EchoEndpoint, pack_routes=routes)


@pytest.mark.parametrize(
    "path",
    [
        *("/mcp%0A", "/%0A", "/metrics%0A", "/mcp/%0A", "/mcp/alice%0A", "/packs/diary/health%0A"),
        *("/mcp%0D", "/mcp%00", "/mcp%7F", "/mcp%C2%85", "/mcp%E2%80%A8", "/tools/search%0A"),
        *("/mcp%2F", "/mcp%2falice", "/%2e/mcp", "/mcp/%2E%2E", "/mcp%5C", "/page/..%2fapp.py"),
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_a_path_with_control_characters_or_encoded_steps_is_400_to_everybody(
    serve: Serve, doors: Services, path: str, method: str
) -> None:
    client = serve(doors, ServerSettings(metrics=True)).client
    preflight = {"origin": EVIL, "access-control-request-method": "POST"}
    for headers in ({}, preflight):
        response = client.request(method, path, headers=headers)
        assert response.status_code == 400
        assert "access-control-allow-origin" not in response.headers


# -- the oracle: written from docs/http-api.md, step by step, without a route or a pattern -------------------


def _spellings(path: str) -> tuple[str, str]:
    tidy = re.sub("//+", "/", path)
    return path, tidy


def _private(path: str, method: str, accept: str) -> bool:
    return any(_is_private(spelling, method, accept) for spelling in _spellings(path))


def _is_private(path: str, method: str, accept: str) -> bool:
    steps = path.split("/")[1:]
    match steps:
        case [""]:
            events = "text/event-stream" in accept and "text/html" not in accept
            return method in ("POST", "DELETE") or (method == "GET" and events)
        case ["mcp"] | ["mcp", ""] | ["metrics"] | ["packs", "diary", "health"]:
            return True
        case ["activity"] | ["banks"] | ["clients"] | ["log"]:  # what only the page asks for
            return True
        case ["mcp", "tools", tool] if (
            tool
        ):  # without one it is a bank's place, though no bank may be called so
            return True
        case ["mcp", bank] | ["mcp", bank, ""]:
            return bank != ""
        case ["packs", pack, "mcp"] | ["packs", pack, "mcp", ""]:
            return pack != ""
        case ["v1", tenant, "notes"]:
            return tenant != ""
    return False


def _malformed(raw: str) -> bool:
    lowered = raw.lower()
    text = unquote(raw)
    # C0, DEL, C1, and the two line ends that Unicode adds
    control = any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter in "\u2028\u2029" for letter in text)
    return control or any(step in lowered for step in ("%2e", "%2f", "%5c"))


STEPS = (
    "mcp",
    "tools",
    "metrics",
    "packs",
    "diary",
    "health",
    "alice",
    "search",
    "list",
    "page",
    "activity",
    "banks",
    "clients",
    "log",
    "v1",
    "notes",
)
step = st.one_of(st.sampled_from((*STEPS, "", ".", "..")), st.text(max_size=4))
spoiled = st.sampled_from(("", "", "", "%0A", "%0d", "%2f", "%2E", "%00", "\n", "/", "%20", "%C2%85", "$"))
paths = st.tuples(st.lists(step, max_size=4), spoiled).map(
    lambda parts: "/" + "/".join(quote(name, safe="%$") for name in parts[0]) + quote(parts[1], safe="%/$")
)
origins = st.one_of(
    st.sampled_from(
        ("null", EVIL, "http://localhost:3000", "http://127.0.0.1", "http://localhost.evil.example")
    ),
    st.sampled_from(("http://localhost@evil.example", "http://[::1]:5", "file://", "https://listed.example")),
    st.text("abc.:/@[]-localhost127", max_size=24),
)


def _trusted(origin: str, host: str) -> bool:
    lowered = origin.lower()
    if lowered == "https://listed.example":
        return True
    for scheme in ("http://", "https://"):
        if lowered.startswith(scheme):
            authority = lowered.removeprefix(scheme)
            if authority == host:
                return True
            name, colon, port = authority.rpartition(":")
            if colon and port.isdigit() and len(port) <= 5:
                authority = name
            return authority.rstrip(".") in ("localhost", "127.0.0.1", "[::1]")
    return False


class Asgi:
    """The application without a socket: paths go in as a hostile client could send them, unmended by a client
    library.
    """

    def __init__(self, services: Services) -> None:
        self.app = create_app(
            services, ServerSettings(metrics=True, allowed_origins=("https://listed.example",))
        )

    def ask(self, raw: str, method: str, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        messages: list[dict[str, object]] = []

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b"{}", "more_body": False}

        async def send(message: dict[str, object]) -> None:
            messages.append(message)

        scope = {
            "type": "http",
            "method": method,
            "path": unquote(raw),
            "raw_path": raw.encode("latin-1", "replace"),
            "query_string": b"",
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 1),
        }
        asyncio.run(self.app(scope, receive, send))  # type: ignore[arg-type]
        start = messages[0]
        raw_headers: list[tuple[bytes, bytes]] = start["headers"]  # type: ignore[assignment]
        return int(str(start["status"])), {k.decode(): v.decode("latin-1") for k, v in raw_headers}


@pytest.fixture(scope="module")
def asgi() -> Asgi:
    """An application that outlives one example."""
    toolbox = Toolbox()
    toolbox.add(Tool("shout", "Shouts", {"type": "object", "properties": {}}, lambda a, c: {}, named=True))

    def answer(parameters: object, body: object, caller: object) -> dict[str, str]:
        return {}

    routes = [PackRoute("GET", path, "diary", answer) for path in PACK_ROUTES]
    return Asgi(Services(toolbox, Agents(), mcp=EchoEndpoint, pack_routes=routes))


@patient
def test_no_page_of_another_site_comes_in_by_any_spelling_of_a_private_path(asgi: Asgi) -> None:
    @example(raw="/mcp/tools/", method="GET", origin="null", accept="*/*")
    @given(
        raw=paths,
        method=st.sampled_from(("GET", "POST", "DELETE", "PUT", "HEAD")),
        origin=origins,
        accept=st.sampled_from(("*/*", "text/html", "text/event-stream", "text/event-stream, text/html")),
    )
    def check(raw: str, method: str, origin: str, accept: str) -> None:
        headers = {
            "host": "localhost",
            "origin": origin,
            "accept": accept,
            "content-type": "application/json",
        }
        status, reply = asgi.ask(raw, method, headers)
        shared = reply.get("access-control-allow-origin")
        if _malformed(raw):
            assert (status, shared) == (400, None)
        elif not _private(unquote(raw), method, accept):
            assert shared == "*"
        elif _trusted(origin, "localhost"):
            # A bank of a bad name is refused before anything is shared.
            assert shared in (origin, None)
            # No page of another port reads what clients asked.
            own = origin.lower().partition("://")[2] == "localhost"
            assert (status == 403) == (_spellings(unquote(raw))[-1] == "/log" and not own)
        else:
            assert shared is None
            assert status in (400, 403, 404)

    fuzz(check, 200, share=0.5)


# -- what a page of any site may call ------------------------------------------------------------------------


def _call(served: Served, path: str, **headers: str) -> httpx.Response:
    return served.client.post(path, headers={"origin": EVIL, **headers})


def test_a_page_may_not_refresh_nor_call_what_merely_lies_in_a_folder(
    serve: Serve, services: Services
) -> None:
    box = services.toolbox
    schema = {"type": "object", "properties": {}}
    box.add(Tool("refresh", "Indexes now", schema, lambda a, c: {"sources": []}, builtin=True, bare=True))
    served = serve(services)
    for path in ("/tools/refresh", "/tools/lies_about"):
        assert failure(_call(served, path)) == (403, "origin_not_allowed")  # no body: no preflight asks first
        assert served.client.post(path).status_code == 200
        assert served.client.post(path, headers={"origin": "http://localhost:3000"}).status_code == 200
    for path in ("/tools/whoami", "/tools/write_note"):
        assert _call(served, path).status_code == 200


def test_a_packs_own_endpoint_is_there_where_the_pack_is_enabled(serve: Serve, doors: Services) -> None:
    client = serve(doors, ServerSettings(packs=(PackPolicy("diary"),))).client
    assert client.post("/packs/diary/mcp", json={}).status_code == 200
    assert client.post("/packs/vault/mcp", json={}).status_code == 404


def test_a_packs_own_endpoint_asks_for_the_packs_key(serve: Serve, doors: Services) -> None:
    packs = (PackPolicy("diary", keys=("key-of-diary",)), PackPolicy("vault", keys=("key-of-vault",)))
    client = serve(doors, ServerSettings(packs=packs)).client

    def status(key: str | None) -> int:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        return client.post("/packs/diary/mcp", json={}, headers=headers).status_code

    assert [status(key) for key in (None, "key-of-vault", "key-of-diary")] == [401, 401, 200]
