"""The client of OpenSearch, against servers that answer as nodes do, well and badly."""

import contextlib
import http.server
import itertools
import json
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from faults import waiting
from kit import http_server
from postgres import free_port
from web_api import Asked, Reply, serving_api

from ctx.cluster import opensearch_client
from ctx.cluster.opensearch import OpenSearchIndex
from ctx.cluster.opensearch_client import Client, Refusal, node_addresses
from ctx.cluster.opensearch_part import Part, action
from ctx.cluster.opensearch_query import VECTOR_MAPPINGS, VECTOR_SETTINGS
from ctx.config.settings import Index
from ctx.errors import Busy, ConfigError, StoreError
from ctx.models import Filters
from ctx.store.sqlite import SqliteCatalog

ABOUT = {"version": {"distribution": "opensearch", "number": "3.4.0"}}
Answer = Callable[[str], tuple[int, Any]]


@contextmanager
def node(answer: Answer, requests: list[tuple[str, str | None]] | None = None) -> Iterator[str]:
    """A server that answers a path with a status and JSON (or bytes), and notes paths and credentials; its
    address.
    """

    def reply(asked: Asked) -> Reply:
        if requests is not None:
            requests.append((asked.path, asked.headers.get("authorization")))
        status, body = answer(asked.path)
        kind = {} if isinstance(body, bytes) else {"Content-Type": "application/json; charset=UTF-8"}
        return Reply(body, status, kind)

    with serving_api(reply) as api:
        yield api.url


@contextmanager
def client(*urls: str, **options: Any) -> Iterator[Client]:
    opened = Client(Index(url=",".join(urls), **{"max_retries": 2, "timeout_secs": 5.0, **options}))
    try:
        yield opened
    finally:
        opened.close()


def refused(status: int, kind: str, reason: str = "because") -> Answer:
    """A node that is well and refuses everything."""
    error = {"type": kind, "reason": reason, "root_cause": [{"type": kind, "reason": reason}]}
    return lambda path: (200, ABOUT) if path == "/" else (status, {"error": error, "status": status})


def test_addresses_are_read_with_the_user_of_the_first_that_has_one() -> None:
    nodes, credentials = node_addresses("https://ctx:p%40ss@os1, http://[::1]:9201/search/ ,https://os3:443")
    assert [tuple(node.values()) for node in nodes] == [
        ("os1", 9200, True, ""),
        ("::1", 9201, False, "/search"),
        ("os3", 443, True, ""),
    ]
    assert credentials == ("ctx", "p@ss")


@pytest.mark.parametrize("text", ["", " , ", "os1:9200", "ftp://os1", "https://", "https://os1:port"])
def test_what_is_no_address_is_told(text: str) -> None:
    with pytest.raises(ConfigError, match=r"\[index\] url: "):
        node_addresses(text)


def test_another_node_is_asked_where_one_does_not_answer() -> None:
    with node(lambda path: (200, ABOUT)) as url:
        closed_url = f"http://127.0.0.1:{free_port()}"
        with client(closed_url, url) as nodes:
            for _ in range(4):
                assert nodes.ask("GET", "/_any") == ABOUT


def test_a_node_that_is_busy_for_a_moment_is_asked_again() -> None:
    replies = iter([(200, ABOUT), (429, {}), (503, {}), (200, {"ok": 1})])
    with node(lambda path: next(replies)) as url, client(url) as nodes:
        assert nodes.ask("GET", "/_any") == {"ok": 1}


def test_a_search_under_which_a_node_went_away_is_asked_again() -> None:
    disconnected = (500, {"error": {"type": "search_phase_execution_exception", "reason": "disconnected"}})
    replies = iter([(200, ABOUT), disconnected, (200, {"ok": 1})])
    with node(lambda path: next(replies)) as url, client(url) as nodes:
        assert nodes.ask("GET", "/_any") == {"ok": 1}


def test_of_searches_that_went_together_one_under_which_a_node_went_away_has_all_asked_again() -> None:
    error = {"type": "search_phase_execution_exception", "reason": "disconnected"}
    broken, whole, full = (
        {"error": error, "status": 500},
        {"hits": 1, "status": 200},
        {"error": {}, "status": 429},
    )
    replies = iter([(200, ABOUT), *((200, {"responses": [whole, each]}) for each in (broken, full, whole))])
    with node(lambda path: next(replies)) as url, client(url) as nodes:
        assert nodes.search_all([({"index": "a"}, {}), ({"index": "b"}, {})]) == [whole, whole]
    missing = {"error": {"type": "index_not_found_exception", "reason": "no such index"}, "status": 404}
    answer = (200, {"responses": [whole, missing]})
    with (
        node(lambda path: (200, ABOUT) if path == "/" else answer) as url,
        client(url) as nodes,
        pytest.raises(Refusal) as raised,
    ):
        nodes.search_all([({"index": "a"}, {}), ({"index": "b"}, {})])
    assert raised.value.status == 404


def test_a_document_whose_shard_is_on_its_way_is_asked_for_again() -> None:
    away = {"error": {"type": "no_shard_available_action_exception", "reason": "because"}}
    replies = iter([(200, ABOUT), (503, away), (404, {"found": False})])
    with node(lambda path: next(replies)) as url, client(url) as nodes:
        assert Part(nodes, "words", (1, 0)).state() is None
    with (
        node(lambda path: (200, ABOUT) if path == "/" else (503, away)) as url,
        client(url) as nodes,
        pytest.raises(StoreError, match="shards or nodes of it are missing"),
    ):
        Part(nodes, "words", (1, 0)).state(hurried=True)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda path: (200, {"version": {"number": "8.1.0"}}), "is no OpenSearch"),
        (lambda path: (200, [1]), "is no OpenSearch"),
        (lambda path: (200, b"<html>"), "something that is not JSON"),
        (
            lambda path: (200, {"version": {"distribution": "opensearch", "number": "2.19.1"}}),
            r"OpenSearch 2\.19\.1, and ctx needs 3\.0 or newer",
        ),
        (lambda path: (401, b"Unauthorized"), r"refuses the credentials: set \[index\] api_key, or user and"),
        (refused(403, "security_exception"), r"refuses this to the user of \[index\]: grant it its indices"),
        (
            refused(403, "cluster_block_exception", "read-only / allow delete"),
            "read only, most often for want",
        ),
        (refused(429, "cluster_block_exception", "disk usage exceeded"), "read only, most often for want"),
        (refused(503, "cluster_block_exception", "state not recovered"), "nodes of it are missing"),
        (refused(503, "search_phase_execution_exception"), "shards or nodes of it are missing"),
        (refused(400, "parsing_exception"), "could not answer: see the log"),
    ],
)
def test_what_a_server_refuses_is_told_with_the_fix(answer: Answer, words: str) -> None:
    with node(answer) as url, client(url, max_retries=0) as nodes, pytest.raises(StoreError, match=words):
        nodes.ask("GET", "/_any")


def test_a_server_with_too_much_to_do_is_busy() -> None:
    with node(refused(429, "rejected")) as url, client(url, max_retries=0) as nodes, pytest.raises(Busy):
        nodes.ask("GET", "/_any")


def test_nobody_there_is_told_with_no_address_in_it() -> None:
    port = free_port()
    with client(f"http://127.0.0.1:{port}", max_retries=1) as nodes, pytest.raises(StoreError) as caught:
        nodes.ask("GET", "/_any")
    assert (
        caught.value.message == "OpenSearch cannot be reached: is it running, and is [index] url its address?"
    )


def test_an_address_that_is_wrong_in_itself_is_told_as_that() -> None:
    with (
        node(lambda path: (200, ABOUT)) as url,
        client(url.replace("http:", "https:")) as nodes,
        pytest.raises(StoreError, match="has no TLS: write http://"),
    ):
        nodes.version()
    with (
        client("http://nowhere.invalid:9200", max_retries=0) as nodes,
        pytest.raises(StoreError, match="no machine has the host name"),
    ):
        nodes.version()


def test_who_hangs_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with (
            client(url, max_retries=0, timeout_secs=0.2) as nodes,
            pytest.raises(StoreError, match="cannot be reached"),
        ):
            nodes.ask("GET", "/_any")


def hanging(stack: ExitStack) -> tuple[socket.socket, str]:
    """A node that takes connections and never says a word, and its address."""
    silent = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
    return silent, f"http://127.0.0.1:{silent.getsockname()[1]}"


def test_every_node_that_hangs_is_waited_for_once() -> None:
    with ExitStack() as stack:
        sockets, urls = zip(*(hanging(stack) for _ in range(3)), strict=True)
        with (
            client(*urls, max_retries=6, timeout_secs=0.2) as nodes,
            pytest.raises(StoreError, match="cannot be reached"),
        ):
            nodes.version()
        assert [waiting(silent) for silent in sockets] == [1, 1, 1]


def test_a_node_that_is_well_answers_in_the_place_of_those_that_hang() -> None:
    with ExitStack() as stack:
        urls = [hanging(stack)[1] for _ in range(2)]
        well = stack.enter_context(node(lambda path: (200, ABOUT)))
        with client(*urls, well, max_retries=2, timeout_secs=0.2) as nodes:
            assert nodes.version() == "3.4.0"


def test_credentials_go_with_every_request() -> None:
    for user, options, header in (
        ("ctx:pw@", {}, "Basic Y3R4OnB3"),
        ("", {"api_key": "abc"}, "ApiKey abc"),
        ("", {}, None),
    ):
        requests: list[tuple[str, str | None]] = []
        with (
            node(lambda path: (200, ABOUT), requests) as url,
            client(url.replace("//", f"//{user}"), **options) as nodes,
        ):
            nodes.ask("GET", "/_any")
        assert requests == [("/", header), ("/_any", header)]


def test_what_is_missing_is_none_where_that_is_an_answer() -> None:
    with node(refused(404, "index_not_found_exception")) as url, client(url) as nodes:
        assert nodes.ask("GET", "/_any", missing=True) is None
        with pytest.raises(Refusal) as caught:
            nodes.ask("GET", "/_any")
    assert (caught.value.status, caught.value.kind) == (404, "index_not_found_exception")


def test_an_index_whose_shards_are_on_no_node_is_neither_empty_nor_gone(tmp_path: Path) -> None:
    away = {"error": {"type": "no_shard_available_action_exception", "reason": "No shard available"}}
    requests: list[tuple[str, str | None]] = []
    with (
        node(lambda path: (200, ABOUT) if path == "/" else (503, away), requests) as url,
        client(url, max_retries=0) as nodes,
        SqliteCatalog(str(tmp_path / "ctx.db")) as catalog,
    ):
        index = OpenSearchIndex(nodes, lambda: None)
        for ask in (
            lambda: index.keyword("otter", Filters(), 9),
            index.check,
            lambda: index.catch_up(catalog),
        ):
            with pytest.raises(StoreError, match="shards or nodes of it are missing"):
                ask()
    assert {path for path, _ in requests} == {"/", "/ctx-words/_doc/state"}, (
        "nothing is deleted or built anew"
    )


ACTIONS = [action(number, 1, {"text": "a"}) for number in range(3)] + [action(3, 1, None)]
FULL = {"index": {"status": 429, "error": {"type": "rejected", "reason": "full"}}}
DONE = {"index": {"status": 201}}


def write(replies: Iterator[tuple[int, Any]]) -> None:
    with node(lambda path: (200, ABOUT) if path == "/" else next(replies)) as url, client(url) as nodes:
        Part(nodes, "words", (1, 0)).write("words-1", ACTIONS)


def test_a_bulk_is_sent_again_until_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opensearch_client, "BULK_PAUSE_S", 0)
    newer = {"index": {"status": 409, "error": {"type": "version_conflict_engine_exception"}}}
    gone = {"delete": {"status": 404, "result": "not_found"}}
    replies = iter(
        [
            (429, {"error": {"type": "circuit_breaking_exception", "reason": "the heap is full"}}),
            (200, {"errors": True, "items": [DONE, FULL, newer, gone]}),
            (200, {"errors": False, "items": [DONE]}),
        ]
    )
    write(replies)
    assert next(replies, None) is None
    with pytest.raises(Busy):
        write(itertools.repeat((200, {"errors": True, "items": [FULL] * 4})))


def test_a_bulk_to_an_index_that_is_gone_is_an_error() -> None:
    missing = {
        "index": {"status": 404, "error": {"type": "index_not_found_exception", "reason": "no such index"}}
    }
    with pytest.raises(Refusal):
        write(iter([(200, {"errors": True, "items": [DONE, missing, DONE, DONE]})]))


def test_an_opensearch_without_the_plugin_for_vectors_is_told_so() -> None:
    reason = "unknown setting [index.knn] please check that any required plugins are installed"
    error = {"type": "illegal_argument_exception", "reason": reason}

    def answer(path: str) -> tuple[int, Any]:
        if path == "/":
            return 200, ABOUT
        return (404, {"error": "alias missing"}) if "_alias" in path else (400, {"error": error})

    with (
        node(answer) as url,
        client(url) as nodes,
        pytest.raises(StoreError, match="has no k-NN plugin: install"),
    ):
        Part(nodes, "ctx-vectors", (1, 1)).create(VECTOR_MAPPINGS, VECTOR_SETTINGS)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A certificate for 127.0.0.1 that only itself vouches for, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    paths = str(folder / "node.pem"), str(folder / "node.key")
    options = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    names = ("-subj", "/CN=node", "-addext", "subjectAltName=IP:127.0.0.1")
    command = ["openssl", "req", "-x509", *options, *names, "-out", paths[0], "-keyout", paths[1]]
    subprocess.run(command, check=True, capture_output=True)
    return paths


def test_a_certificate_is_trusted_by_the_authority_that_is_named(
    certificate: tuple[str, str], tmp_path: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)

    class Handler(http.server.BaseHTTPRequestHandler):
        def setup(self) -> None:
            with contextlib.suppress(ssl.SSLError):  # a client that does not trust it has gone
                self.request = context.wrap_socket(self.request, server_side=True)
            super().setup()

        def handle(self) -> None:
            super().handle()
            self.request.close()

        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps(ABOUT).encode())

        def log_message(self, format: str, *values: object) -> None:
            pass

    with http_server(Handler) as port:
        url = f"https://127.0.0.1:{port}"
        with client(url, ca_file=certificate[0]) as nodes:
            assert nodes.version() == "3.4.0"
        with client(url) as nodes, pytest.raises(StoreError, match=r"is not trusted: .* \[index\] ca_file"):
            nodes.version()
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(ConfigError, match="ca_file"):
        Client(Index(url="https://127.0.0.1:1", ca_file=str(empty)))
