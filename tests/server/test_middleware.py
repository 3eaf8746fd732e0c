"""The middlewares over a real socket: Host, Origin, CORS, keys, size and rate."""

import socket
from pathlib import Path

import pytest
from serving import Serve, failure, rpc_failure

from ctx.models import JSON
from ctx.server.app import Services
from ctx.server.keys import KeyRing
from ctx.server.policy import PackPolicy, ServerSettings
from ctx.server.rest import PackRoute

EVIL = "https://evil.example"
VAULT = ServerSettings(packs=(PackPolicy("vault", keys=("vault-key",)),))


# -- Host ----------------------------------------------------------------------------------------------------

ROUTES = [
    ("GET", "/"),
    ("POST", "/"),
    ("GET", "/health"),
    ("GET", "/tools/list"),
    ("GET", "/tools/sources"),
    ("POST", "/tools/search"),
    ("POST", "/tools/remember"),
    ("GET", "/agents/list"),
    ("POST", "/agents/reviewer/prompt"),
    ("GET", "/openapi.json"),
    ("GET", "/llms.txt"),
    ("GET", "/metrics"),
    ("GET", "/page/style.css"),
    ("POST", "/mcp"),
    ("POST", "/mcp/"),
    ("POST", "/mcp/alice"),
    ("POST", "/mcp/alice/"),
    ("GET", "/packs/diary/health"),
    ("OPTIONS", "/tools/search"),
    ("GET", "/nowhere"),
]


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_a_rebinding_host_is_refused_on_every_route(
    serve: Serve, with_mcp: Services, method: str, path: str
) -> None:
    served = serve(with_mcp, ServerSettings(metrics=True))
    response = served.client.request(method, path, headers={"host": f"rebind.example:{served.port}"})
    assert response.status_code == 421
    assert "access-control-allow-origin" not in response.headers
    if method != "POST":
        assert failure(response) == (421, "misdirected_request")


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST:1",
        "localhost.:7331",
        "127.0.0.1",
        "127.0.0.1:9",
        "[::1]",
        "[::1]:7331",
        "ctx.lan",
        "CTX.lan:80",
        "box.lan",
    ],
)
def test_names_of_this_machine_and_allowed_hosts_are_answered(
    serve: Serve, services: Services, host: str
) -> None:
    client = serve(services, ServerSettings(allowed_hosts=("ctx.lan", "http://Box.lan:7331/"))).client
    assert client.get("/health", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "localhost.evil.example",
        "localhost@evil.example",
        "127.0.0.1.evil.example",
        "[::1",
        "evil.example:localhost",
        "127.0.0.2",
    ],
)
def test_a_host_that_only_looks_like_ours_is_refused(serve: Serve, services: Services, host: str) -> None:
    assert serve(services).client.get("/health", headers={"host": host}).status_code == 421


def test_two_hosts_or_none_are_refused(serve: Serve, services: Services) -> None:
    served = serve(services)
    for request in (
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\nConnection: close\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: evil.example\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ):
        with socket.create_connection((served.host, served.port), 10) as connection:
            connection.sendall(request)
            answered = connection.makefile("rb").readline()
        assert b" 421 " in answered or b" 400 " in answered


@pytest.mark.parametrize(
    ("bind", "host", "allowed"),
    [
        ("192.168.7.5:7331", "192.168.7.5:7331", True),
        ("[fd00::5]:7331", "[fd00::5]:7331", True),
        ("0.0.0.0:7331", "0.0.0.0:7331", False),  # in a browser's address it is this machine
        ("[::]:7331", "[::]:7331", False),
        ("[0:0:0:0:0:0:0:0]:7331", "[0:0:0:0:0:0:0:0]:7331", False),
        ("0.0.0.0:7331", "localhost:7331", True),
        ("0.0.0.0:7331", "192.168.7.5:7331", False),
    ],
)
def test_a_server_answers_to_the_address_it_is_bound_to_and_not_to_all_of_them(
    serve: Serve, services: Services, bind: str, host: str, allowed: bool
) -> None:
    client = serve(services, ServerSettings(bind=bind, insecure_no_auth=True)).client
    assert client.get("/health", headers={"host": host}).status_code == (200 if allowed else 421)


# -- CORS and Origin -----------------------------------------------------------------------------------------


def test_any_page_may_search_and_read_errors_but_never_with_credentials(
    serve: Serve, services: Services
) -> None:
    client = serve(services).client
    for response in (
        client.post("/tools/search", json={"query": "authentication"}, headers={"origin": EVIL}),
        client.post("/tools/nothing", json={}, headers={"origin": EVIL}),
        client.get("/tools/sources", headers={"origin": "null"}),
    ):
        assert response.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in response.headers
        assert "Retry-After" in response.headers["access-control-expose-headers"]
    assert "access-control-allow-origin" not in client.get("/health").headers


def test_health_tells_pages_of_other_sites_no_name_of_a_source(serve: Serve, services: Services) -> None:
    def health() -> dict[str, JSON]:
        return {"status": "ok", "degraded": ["filesystem:diary: it cannot be read"]}

    client = serve(services._replace(health=health)).client
    assert client.get("/health", headers={"origin": EVIL}).json() == {"status": "ok"}
    assert client.get("/health").json() == health()


def test_a_preflight_is_answered_without_a_key_and_echoes_what_was_asked(
    serve: Serve, services: Services
) -> None:
    client = serve(services, ServerSettings(api_keys=("k",))).client
    preflight = {
        "origin": EVIL,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type,authorization",
    }
    response = client.options("/tools/search", headers=preflight)
    assert response.status_code == 204
    assert response.content == b""
    assert response.headers["access-control-allow-origin"] == "*"
    assert "POST" in response.headers["access-control-allow-methods"]
    assert response.headers["access-control-allow-headers"] == "content-type,authorization"
    assert response.headers["access-control-max-age"] == "600"


def test_listed_cors_origins_are_echoed_and_others_refused(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(cors_origins=("https://app.example/page",))).client
    listed = client.get("/health", headers={"origin": "https://app.example"})
    assert listed.headers["access-control-allow-origin"] == "https://app.example"
    assert listed.headers["vary"] == "Origin"
    refused = client.get("/health", headers={"origin": EVIL})
    assert failure(refused) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in refused.headers


def test_no_cors_origins_close_rest_to_pages_of_other_sites(serve: Serve, services: Services) -> None:
    served = serve(services, ServerSettings(cors_origins=()))
    assert failure(served.client.get("/tools/list", headers={"origin": EVIL})) == (403, "origin_not_allowed")
    assert served.client.get("/tools/list", headers={"origin": served.base}).status_code == 200
    assert served.client.get("/tools/list").status_code == 200


@pytest.mark.parametrize("path", ["/", "/mcp", "/mcp/", "/mcp/alice", "/mcp/alice/"])
@pytest.mark.parametrize(
    "origin", [EVIL, "null", "http://localhost.evil.example", "http://127.0.0.1.evil.example:7331", "file://"]
)
def test_a_foreign_page_never_reaches_mcp(serve: Serve, with_mcp: Services, path: str, origin: str) -> None:
    client = serve(with_mcp).client
    response = client.post(path, json={"jsonrpc": "2.0"}, headers={"origin": origin})
    assert rpc_failure(response) == (403, "origin_not_allowed")
    assert "access-control-allow-origin" not in response.headers
    preflight = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "content-type",
    }
    assert client.options(path, headers=preflight).status_code == 403


@pytest.mark.parametrize(
    "origin", ["http://localhost:6274", "http://127.0.0.1", "http://[::1]:3000", "https://app.example"]
)
def test_a_page_of_this_machine_or_a_listed_one_reaches_mcp(
    serve: Serve, with_mcp: Services, origin: str
) -> None:
    client = serve(with_mcp, ServerSettings(allowed_origins=("https://app.example",))).client
    response = client.post("/mcp", json={}, headers={"origin": origin})
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == origin
    assert (
        client.options(
            "/mcp", headers={"origin": origin, "access-control-request-method": "POST"}
        ).status_code
        == 204
    )


def test_a_foreign_page_with_a_key_reaches_mcp(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp, VAULT).client
    preflight = {
        "origin": EVIL,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type",
    }
    assert client.options("/mcp", headers=preflight).headers["access-control-allow-origin"] == EVIL
    keyed = client.post("/mcp", json={}, headers={"origin": EVIL, "authorization": "Bearer vault-key"})
    assert keyed.status_code == 200
    assert keyed.headers["access-control-allow-origin"] == EVIL
    assert (
        client.post("/mcp", json={}, headers={"origin": EVIL, "authorization": "Bearer wrong"}).status_code
        == 401
    )
    assert client.post("/mcp", json={}, headers={"origin": EVIL}).status_code == 403


def test_a_foreign_page_cannot_reach_a_memory_packs_tools_or_routes(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp).client
    assert failure(client.post("/tools/remember", json={}, headers={"origin": EVIL})) == (
        403,
        "origin_not_allowed",
    )
    assert failure(client.get("/packs/diary/health", headers={"origin": EVIL})) == (403, "origin_not_allowed")
    prompt = client.post("/agents/recall-context/prompt", json={}, headers={"origin": EVIL})
    assert failure(prompt) == (403, "origin_not_allowed")
    assert client.post("/tools/remember", json={}).status_code == 200
    assert client.get("/packs/diary/health").json() == {"status": "healthy"}
    assert (
        client.post("/tools/remember", json={}, headers={"origin": "http://localhost:3000"}).status_code
        == 200
    )


def test_read_only_closes_what_writes_to_foreign_pages_alone(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(cross_site_tools="read_only", packs=VAULT.packs)).client
    assert client.post("/tools/whoami", json={}, headers={"origin": EVIL}).status_code == 200
    refused = client.post("/tools/write_note", json={}, headers={"origin": EVIL})
    assert failure(refused) == (403, "origin_not_allowed")
    assert refused.headers["access-control-allow-origin"] == "*"
    assert failure(client.post("/agents/scripted/prompt", json={}, headers={"origin": EVIL})) == (
        403,
        "origin_not_allowed",
    )
    assert (
        client.post("/agents/reviewer/prompt", json={"language": "C"}, headers={"origin": EVIL}).status_code
        == 200
    )
    assert client.post("/tools/write_note", json={}).status_code == 200
    keyed = {"origin": EVIL, "authorization": "Bearer vault-key"}
    assert client.post("/tools/write_note", json={}, headers=keyed).status_code == 403, (
        "it opens the pack alone"
    )


# -- keys ----------------------------------------------------------------------------------------------------


def test_a_server_key_closes_everything_but_health_and_the_page(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp, ServerSettings(api_keys=("first", "second"))).client
    for method, path in (
        ("GET", "/tools/list"),
        ("POST", "/tools/search"),
        ("GET", "/openapi.json"),
        ("GET", "/packs/diary/health"),
    ):
        response = client.request(method, path, json={} if method == "POST" else None)
        assert failure(response) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == 'Bearer realm="ctx"'
        assert client.request(method, path, headers={"authorization": "Bearer second"}).status_code != 401
    assert rpc_failure(client.post("/mcp", json={})) == (401, "unauthorized")
    assert client.get("/health").json() == {"status": "ok"}
    assert "version" in client.get("/health", headers={"authorization": "bearer first"}).json()
    assert client.get("/").status_code == 200
    rejection = client.get("/tools/list", headers={"authorization": "Bearer third"})
    assert rejection.headers["www-authenticate"] == 'Bearer realm="ctx", error="invalid_token"'


def test_a_packs_key_closes_the_pack_on_every_door_and_nothing_else(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp, VAULT).client
    assert failure(client.post("/tools/vault", json={})) == (401, "unauthorized")
    assert (
        client.post("/tools/vault", json={}, headers={"authorization": "Bearer vault-key"}).status_code == 200
    )
    assert (
        client.post("/tools/vault", json={}, headers={"authorization": "vault-key"}).status_code == 200
    )  # as Hindsight takes it
    assert client.post("/tools/remember", json={}).status_code == 200
    assert client.post("/tools/search", json={"query": "x"}).status_code == 200
    assert client.post("/mcp/alice", json={}).status_code == 200
    assert failure(client.get("/tools/list", headers={"authorization": "Bearer wrong"})) == (
        401,
        "unauthorized",
    )


def test_a_pack_that_requires_a_key_is_closed_until_there_is_one(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(packs=(PackPolicy("vault", key_required=True),))).client
    response = client.post("/tools/vault", json={}, headers={"authorization": "Bearer anything"})
    assert failure(response) == (401, "unauthorized")
    assert "ctx key create" in response.json()["error"]["message"]


def test_a_route_may_require_a_key_whatever_its_pack(serve: Serve, services: Services) -> None:
    route = PackRoute(
        "POST", "/mcp/tools/{tool}", "diary", lambda parameters, body, caller: {"ok": True}, keyed=True
    )
    settings = ServerSettings(
        packs=(PackPolicy("diary"), PackPolicy("vault", keys=("vault-key",))), api_keys=()
    )
    client = serve(services._replace(pack_routes=[route]), settings).client
    assert failure(client.post("/mcp/tools/x", json={})) == (401, "unauthorized")
    assert failure(client.post("/mcp/tools/x", json={}, headers={"authorization": "Bearer vault-key"})) == (
        401,
        "unauthorized",
    )


def test_a_key_for_one_bank_opens_no_other(serve: Serve, with_mcp: Services, tmp_path: Path) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    alices, _ = ring.create("a", ["alice"])
    every, _ = ring.create("all")
    client = serve(with_mcp._replace(keys=ring)).client

    def mcp(path: str, key: str | None, bank: str | None = None) -> int:
        headers = {
            **({"authorization": f"Bearer {key}"} if key else {}),
            **({"x-bank-id": bank} if bank else {}),
        }
        return client.post(path, json={}, headers=headers).status_code

    assert (mcp("/mcp/alice", alices), mcp("/mcp/alice/", every)) == (200, 200)
    assert (mcp("/mcp/bob", alices), mcp("/mcp/alice", None), mcp("/mcp/alice", "wrong")) == (401, 401, 401)
    assert (mcp("/mcp", alices, "alice"), mcp("/mcp", alices, "bob"), mcp("/mcp", None, "alice")) == (
        200,
        401,
        401,
    )
    assert mcp("/mcp", None) == 200  # the documents stay open; the tools of packs are refused one by one

    def tool(key: str | None, bank: str | None) -> int:
        headers = {
            **({"authorization": f"Bearer {key}"} if key else {}),
            **({"x-bank-id": bank} if bank else {}),
        }
        return client.post("/tools/remember", json={}, headers=headers).status_code

    assert (tool(alices, "alice"), tool(alices, None), tool(every, "bob")) == (200, 200, 200)
    assert (tool(alices, "bob"), tool(None, "alice"), tool(None, None)) == (401, 401, 401)


def test_a_revoked_key_is_refused_at_the_next_request(
    serve: Serve, services: Services, tmp_path: Path
) -> None:
    path = str(tmp_path / "memory.db")
    key, _ = KeyRing(path).create("laptop")
    client = serve(services._replace(keys=KeyRing(path))).client
    headers = {"authorization": f"Bearer {key}"}
    assert client.post("/tools/remember", json={}, headers=headers).status_code == 200
    KeyRing(path).revoke("laptop")
    assert client.post("/tools/remember", json={}, headers=headers).status_code == 401
    assert client.post("/tools/remember", json={}).status_code == 401


def test_the_bank_in_the_path_wins_over_the_header(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp).client
    caller = client.post("/mcp/alice/", json={}, headers={"x-bank-id": "bob"}).json()
    assert (caller["bank"], caller["fixed"]) == ("alice", True)
    caller = client.post("/mcp", json={}, headers={"x-bank-id": "bob"}).json()
    assert (caller["bank"], caller["fixed"]) == ("bob", True)  # a connection with a bank is bound to it
    assert client.post("/mcp/ann+work%40example.org", json={}).json()["bank"] == "ann+work@example.org"


@pytest.mark.parametrize("bank", ["%2e%2e", "a%20b", "x" * 129, "%C3%A4"])
def test_a_bank_with_a_bad_name_is_400(serve: Serve, with_mcp: Services, bank: str) -> None:
    assert rpc_failure(serve(with_mcp).client.post(f"/mcp/{bank}", json={})) == (400, "bad_request")


# -- MCP paths -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/alice", "/mcp/alice/"])
def test_an_mcp_path_answers_post_alone(serve: Serve, with_mcp: Services, path: str) -> None:
    client = serve(with_mcp).client
    for headers in ({"accept": "text/event-stream"}, {"mcp-session-id": "s"}):
        for response in (client.get(path, headers=headers), client.delete(path, headers=headers)):
            assert failure(response) == (405, "method_not_allowed")
            assert response.headers["allow"] == "POST"


def test_the_root_is_mcp_for_its_clients_and_the_page_for_a_browser(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp).client
    assert client.post("/", json={}).json()["path"] == "/"
    assert client.get("/", headers={"accept": "text/event-stream"}).status_code == 405
    page = client.get("/", headers={"accept": "text/html,application/xhtml+xml"})
    assert page.text.startswith("<!doctype html>")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert client.get("/").json()["name"] == "ctx"
    assert client.get("/page/page.css").headers["content-type"].startswith("text/css")
    for path, status in (
        ("/page/none.css", 404),
        ("/page/..%2fapp.py", 400),
        ("/page/%2e%2e", 400),
    ):
        assert client.get(path).status_code == status


def test_every_reply_carries_the_security_headers_and_an_id(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp).client
    for method, path in (("GET", "/health"), ("POST", "/mcp"), ("GET", "/nowhere"), ("PUT", "/tools/x")):
        headers = client.request(method, path, json={}).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert headers["x-request-id"]
        assert "server" not in headers


# -- bind ----------------------------------------------------------------------------------------------------


def test_beyond_this_machine_documents_need_a_key_that_opens_more_than_a_bank(
    serve: Serve, services: Services, tmp_path: Path
) -> None:
    ring = KeyRing(str(tmp_path / "memory.db"))
    whole, _ = ring.create("desk")
    of_bank, _ = ring.create("laptop", ["alice"])
    client = serve(services._replace(keys=ring), ServerSettings(bind="0.0.0.0:7331")).client
    for headers, status in (
        ({}, 401),
        ({"authorization": f"Bearer {of_bank}"}, 401),
        ({"authorization": f"Bearer {whole}"}, 200),
    ):
        response = client.post("/tools/search", json={"query": "x"}, headers=headers)
        assert response.status_code == status


def test_without_a_key_a_pack_is_open_on_loopback_only(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(bind="0.0.0.0:7331", insecure_no_auth=True)).client
    assert client.post("/tools/search", json={"query": "x"}).status_code == 200
    assert failure(client.post("/tools/remember", json={})) == (401, "unauthorized")


def test_an_empty_bank_header_is_refused(serve: Serve, with_mcp: Services) -> None:
    client = serve(with_mcp).client
    for path in ("/mcp", "/tools/remember"):
        reply = client.post(path, json={}, headers={"x-bank-id": ""})
        assert reply.status_code == 400
        assert "X-Bank-Id is empty: name a bank, or leave out the header" in reply.text
    assert client.post("/mcp/alice", json={}, headers={"x-bank-id": ""}).json()["bank"] == "alice"
