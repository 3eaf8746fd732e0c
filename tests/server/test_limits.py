"""Limits on the size of a body and on calls per minute."""

import socket

import pytest
from serving import Serve, failure, rpc_failure

from ctx.server.app import Services
from ctx.server.policy import ServerSettings


@pytest.mark.parametrize("path", ["/tools/whoami", "/mcp", "/"])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_over_the_cap_is_413_however_it_is_sent(
    serve: Serve, with_mcp: Services, path: str, chunked: bool
) -> None:
    client = serve(with_mcp).client
    body = b'{"text":"' + b"x" * (2 << 20) + b'"}'
    content = (body[address : address + 65536] for address in range(0, len(body), 65536)) if chunked else body
    response = client.post(path, content=content, headers={"content-type": "application/json"})
    assert response.status_code == 413
    if path == "/tools/whoami":
        assert failure(response) == (413, "payload_too_large")
    else:
        assert rpc_failure(response) == (413, "payload_too_large")
    assert client.get("/health").status_code == 200


def test_a_body_without_end_is_cut_off(serve: Serve, services: Services) -> None:
    served = serve(services, ServerSettings(max_body_bytes=1024))
    with socket.create_connection((served.host, served.port), 10) as connection:
        connection.sendall(
            b"POST /tools/whoami HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n"
        )
        chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
        with pytest.raises(OSError, match=r"reset|[Bb]roken|abort"):
            connection.sendall(chunk * 4096)


def test_calls_over_the_rate_are_429_with_retry_after_and_health_is_not_counted(
    serve: Serve, services: Services
) -> None:
    client = serve(services, ServerSettings(rate_limit_per_minute=3)).client
    assert [client.post("/tools/whoami", json={}).status_code for _ in range(4)] == [200, 200, 200, 429]
    response = client.post("/tools/whoami", json={})
    assert failure(response) == (429, "rate_limited")
    assert 1 <= int(response.headers["retry-after"]) <= 60
    assert client.get("/health").status_code == 200


def test_pages_of_other_sites_use_up_their_own_rate_alone(serve: Serve, services: Services) -> None:
    client = serve(services, ServerSettings(rate_limit_per_minute=3)).client
    pages = [{"origin": f"https://{name}.evil.example"} for name in "abcd"]
    responses = [client.post("/tools/whoami", json={}, headers=page) for page in pages]
    assert [response.status_code for response in responses] == [200, 200, 200, 429]
    assert responses[-1].headers["access-control-allow-origin"] == "*"
    assert client.post("/tools/whoami", json={}).status_code == 200
