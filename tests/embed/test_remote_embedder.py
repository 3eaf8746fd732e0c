import gzip
import json
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import http_server, project, workspace

from ctx.config import default_config
from ctx.embed import open_embedder
from ctx.embed.remote import WINDOW_CHARS, OllamaEmbedder, OpenAIEmbedder
from ctx.errors import ConfigError, EmbedderError

DEFAULTS = default_config("/").embedding
KEY = "sk-very-secret-0123456789"
Answer = tuple[int, dict[str, str], Any]


def place(text: str) -> list[float]:
    """A vector of 3 that tells texts apart: longer, earlier in the alphabet, with a needle."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), 50.0 if "needle" in text else 1.0]


class Service:
    """An embedding service on a real socket.
    `answer(path, payload)` may be replaced; `requests` keeps what came.
    """

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.answer: Callable[[str, Any], Answer] = self.embed
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                payload = json.loads(self.rfile.read(int(self.headers["content-length"])))
                service.requests.append(
                    (self.path, {name.lower(): value for name, value in self.headers.items()}, payload)
                )
                status, headers, body = service.answer(self.path, payload)
                data = body if isinstance(body, bytes) else json.dumps(body).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # the client left while it was answered: several tests make it

        self._server = Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.start()

    def embed(self, path: str, payload: Any) -> Answer:
        vectors = [place(text) for text in payload["input"]]
        if path == "/api/embed":
            return 200, {}, {"model": payload["model"], "embeddings": vectors}
        rows = [
            {"object": "embedding", "index": index, "embedding": vector}
            for index, vector in enumerate(vectors)
        ]
        return 200, {}, {"data": rows[::-1], "model": payload["model"]}

    def first(self, *answers: Answer) -> None:
        """These answers first, then the usual one."""
        entries = list(answers)
        self.answer = lambda path, payload: entries.pop(0) if entries else self.embed(path, payload)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.close()


@pytest.fixture
def openai(service: Service) -> Iterator[OpenAIEmbedder]:
    embedder = OpenAIEmbedder(
        "some-model",
        3,
        url=f"{service.url}/v1/",
        api_key=f" {KEY}\n",
        batch_size=4,
        timeout_s=60,
        max_retries=2,
    )
    yield embedder
    embedder.close()


@pytest.fixture
def ollama(service: Service) -> Iterator[OllamaEmbedder]:
    embedder = OllamaEmbedder(
        "nomic-embed-text", 3, url=service.url, batch_size=4, timeout_s=60, max_retries=2
    )
    yield embedder
    embedder.close()


def expected(text: str) -> np.ndarray:
    vector = np.array(place(text), np.float32)
    return vector / np.linalg.norm(vector)


def test_openai_is_asked_as_its_reference_says(service: Service, openai: OpenAIEmbedder) -> None:
    vectors = list(openai.embed(["one", "two"]))
    ((path, headers, payload),) = service.requests
    assert path == "/v1/embeddings"
    assert headers["authorization"] == f"Bearer {KEY}"
    assert payload == {"model": "some-model", "input": ["one", "two"], "encoding_format": "float"}
    assert np.allclose(vectors, [expected("one"), expected("two")])
    assert [vector.dtype for vector in vectors] == [np.float32] * 2


def test_only_models_that_can_be_shortened_are_told_the_dimensions(service: Service) -> None:
    embedder = OpenAIEmbedder("text-embedding-3-small", 3, url=service.url)
    embedder.embed_query("one")
    embedder.close()
    assert service.requests[0][2]["dimensions"] == 3
    assert "authorization" not in service.requests[0][1]


def test_ollama_is_told_not_to_truncate_and_given_the_models_prefixes(
    service: Service, ollama: OllamaEmbedder
) -> None:
    (vector,) = ollama.embed(["one"])
    ollama.embed_query("what?")
    (path, _, first), (_, _, second) = service.requests
    assert path == "/api/embed"
    assert first == {"model": "nomic-embed-text", "input": ["search_document: one"], "truncate": False}
    assert second["input"] == ["search_query: what?"]
    assert np.allclose(vector, expected("search_document: one"))


def test_a_key_is_sent_to_an_ollama_that_wants_one(service: Service) -> None:
    settings = replace(
        DEFAULTS,
        provider="ollama",
        model="nomic-embed-text",
        dims=3,
        url=service.url,
        api_key_env="OLLAMA_KEY",
    )
    embedder = open_embedder(settings, {"OLLAMA_KEY": KEY})
    assert embedder is not None
    embedder.embed_query("what?")
    embedder.close()
    assert service.requests[0][1]["authorization"] == f"Bearer {KEY}"


def test_texts_go_in_batches_and_come_back_in_order(service: Service, openai: OpenAIEmbedder) -> None:
    texts = [f"text {number}" * (number + 1) for number in range(10)]
    assert np.allclose(list(openai.embed(texts)), [expected(text) for text in texts])
    assert [len(payload["input"]) for _, _, payload in service.requests] == [4, 4, 2]


def test_a_busy_service_is_asked_again_when_it_says(service: Service, openai: OpenAIEmbedder) -> None:
    service.first((429, {"retry-after": "0.05"}, {}), (503, {"retry-after": "0"}, {}))
    assert np.allclose(list(openai.embed(["one"])), [expected("one")])
    assert len(service.requests) == 3


def test_a_service_that_stays_down_is_our_error_after_the_retries(
    service: Service, openai: OpenAIEmbedder
) -> None:
    service.answer = lambda path, payload: (500, {"retry-after": "0.01"}, {"error": "boom"})
    with pytest.raises(EmbedderError, match=r"openai at 127\.0\.0\.1:\d+ answered HTTP 500, after 3 tries"):
        list(openai.embed(["one"]))
    assert len(service.requests) == 3


@pytest.mark.timeout(30)  # the service asks for a minute
def test_a_question_is_tried_twice_at_most(service: Service, openai: OpenAIEmbedder) -> None:
    service.answer = lambda path, payload: (503, {"retry-after": "60"}, {})
    with pytest.raises(EmbedderError, match="after 2 tries"):
        openai.embed_query("one")
    assert len(service.requests) == 2


def test_nobody_listening_is_our_error() -> None:
    settings = replace(DEFAULTS, provider="ollama", model="some-model", dims=3, url="http://127.0.0.1:9")
    embedder = open_embedder(replace(settings, max_retries=0), {})
    assert embedder is not None
    with pytest.raises(EmbedderError, match=r"ollama at 127\.0\.0\.1:9 did not answer \(ConnectError\)"):
        embedder.embed_query("one")


def test_a_service_that_hangs_is_left_after_the_timeout(service: Service) -> None:
    released = threading.Event()
    service.answer = lambda path, payload: (released.wait(200), (200, {}, {}))[1]
    embedder = OpenAIEmbedder("some-model", 3, url=service.url, timeout_s=0.2, max_retries=0)
    try:
        with pytest.raises(EmbedderError, match="ReadTimeout"):
            list(embedder.embed(["one"]))
    finally:
        released.set()
        embedder.close()


def test_a_stop_does_not_wait_for_a_service_that_hangs(service: Service) -> None:
    released, event, stop = threading.Event(), threading.Event(), threading.Event()

    def hang(path: str, payload: Any) -> Answer:
        event.set()
        released.wait(200)
        return service.embed(path, payload)

    service.answer = hang
    embedder = OpenAIEmbedder("some-model", 3, url=service.url, timeout_s=200)
    entries: list[np.ndarray] = []
    reader = threading.Thread(target=lambda: entries.extend(embedder.embed(["one"], stop)))
    reader.start()
    try:
        assert event.wait(60)
        stop.set()
        reader.join(60)
        assert not reader.is_alive(), "the service hangs still"
        assert entries == []
    finally:
        released.set()
        embedder.close()


@pytest.mark.timeout(35)  # the service asks for twenty seconds, twice
def test_a_stop_ends_the_pause_between_tries(service: Service, openai: OpenAIEmbedder) -> None:
    service.answer = lambda path, payload: (503, {"retry-after": "20"}, {})
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    assert list(openai.embed(["one"], stop)) == []


def test_a_wrong_key_is_told_without_the_key_and_not_tried_again(
    service: Service, openai: OpenAIEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
    service.answer = lambda path, payload: (
        401,
        {},
        {"error": {"message": f"Incorrect API key provided: {KEY}"}},
    )
    with (
        caplog.at_level(logging.DEBUG),
        pytest.raises(EmbedderError, match=r"HTTP 401; check the key that .* api_key_env names") as raised,
    ):
        list(openai.embed(["one"]))
    assert len(service.requests) == 1
    messages = f"{raised.value} {raised.value.__cause__} {caplog.text}"
    assert KEY not in messages
    assert "Incorrect API key provided: ***" in messages


def test_a_password_in_the_url_is_in_no_message() -> None:
    embedder = OpenAIEmbedder("some-model", 3, url="http://user:hunter2@127.0.0.1:9", max_retries=0)
    with pytest.raises(EmbedderError) as raised:
        embedder.embed_query("one")
    assert "hunter2" not in str(raised.value)


def test_ollama_without_the_model_says_how_to_get_it(service: Service, ollama: OllamaEmbedder) -> None:
    service.answer = lambda path, payload: (
        404,
        {},
        {"error": 'model "nomic-embed-text" not found, try pulling it first'},
    )
    with pytest.raises(EmbedderError, match="run `ollama pull nomic-embed-text`"):
        list(ollama.embed(["one"]))


def test_a_text_over_the_models_context_is_halved_until_it_fits_and_nothing_is_dropped(
    service: Service, openai: OpenAIEmbedder
) -> None:
    def strict(path: str, payload: Any) -> Answer:
        if any(len(text) > 500 for text in payload["input"]):
            return 400, {}, {"error": "the input length exceeds the context length"}
        return service.embed(path, payload)

    service.answer = strict
    long_text = "words and words " * 100 + "the needle"
    short, vector = openai.embed(["short", long_text])
    assert np.allclose(short, expected("short"))
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-6
    answered = [
        payload["input"] for _, _, payload in service.requests if max(map(len, payload["input"])) <= 500
    ]
    entries = [text for batch in answered for text in batch if text != "short"]
    assert "".join(entries) == long_text


def test_a_text_over_the_window_is_cut_and_averaged(service: Service, openai: OpenAIEmbedder) -> None:
    text = "some words here " * (WINDOW_CHARS // 6)
    (vector,) = openai.embed([text])
    assert np.isfinite(vector).all()
    entries = [window for _, _, payload in service.requests for window in payload["input"]]
    assert "".join(entries) == text
    assert max(map(len, entries)) <= WINDOW_CHARS
    assert max(len(payload["input"]) for _, _, payload in service.requests) <= 4


def test_a_refusal_that_is_not_about_length_is_our_error(service: Service, openai: OpenAIEmbedder) -> None:
    service.answer = lambda path, payload: (400, {}, {"error": "no such parameter"})
    with pytest.raises(EmbedderError, match="answered HTTP 400"):
        list(openai.embed(["one", "two"]))
    assert len(service.requests) == 2


@pytest.mark.parametrize("text", ["", " \n", "\0", "a\0b", "\ud800", "😀"])
def test_no_text_is_too_strange_for_a_service(service: Service, openai: OpenAIEmbedder, text: str) -> None:
    (vector,) = openai.embed([text])
    assert np.isfinite(vector).all()
    openai.embed_query(text)
    entries = [window for _, _, payload in service.requests for window in payload["input"]]
    assert all(window.strip() and "\0" not in window for window in entries)


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        b"",
        [],
        {"data": []},
        {"data": [{"index": 0}]},
        {"data": [{"index": 1, "embedding": [1, 2, 3]}]},
        {"data": [{"index": 0, "embedding": "AAAA"}]},
        {"data": [{"index": 0, "embedding": ["1", "2", "3"]}]},
        {"data": [{"index": 0, "embedding": [True, False, True]}]},
        {"data": [{"index": 0, "embedding": [1, 1e300, 3]}]},
        {"data": [{"index": 0, "embedding": [0, 0, 0]}]},
        b'{"data": [{"index": 0, "embedding": [1, NaN, 3]}]}',
        {"data": None},
        {"data": [{"index": float("inf"), "embedding": [1, 2, 3]}]},
        {"data": [{"index": 0, "embedding": [10**400, 2, 3]}]},
        b'{"data": ' + b"[" * 200_000,
        b'{"data": [' + b" " * 2_000_000,
    ],
    ids=lambda body: str(body)[:60],
)
def test_a_reply_that_is_not_as_agreed_is_our_error(
    service: Service, openai: OpenAIEmbedder, monkeypatch: pytest.MonkeyPatch, body: Any
) -> None:
    monkeypatch.setattr("ctx.embed.remote.MAX_REPLY_BYTES", 1_000_000)
    service.answer = lambda path, payload: (200, {}, body)
    with pytest.raises(EmbedderError):
        list(openai.embed(["one"]))


def test_a_reply_that_is_packed_twice_is_not_unpacked(service: Service, openai: OpenAIEmbedder) -> None:
    data = gzip.compress(gzip.compress(b" " * 1_000_000))
    service.answer = lambda path, payload: (200, {"content-encoding": "gzip, gzip"}, data)
    with pytest.raises(EmbedderError, match="packed twice"):
        list(openai.embed(["one"]))


def test_a_packed_reply_is_read(service: Service, openai: OpenAIEmbedder) -> None:
    data = gzip.compress(json.dumps({"data": [{"index": 0, "embedding": [3, 0, 4]}]}).encode())
    service.answer = lambda path, payload: (200, {"content-encoding": "gzip"}, data)
    (vector,) = openai.embed(["one"])
    assert vector == pytest.approx([0.6, 0, 0.8])


def test_a_reply_that_drips_is_left_after_the_timeout() -> None:
    class Dripping(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                while not leaving.wait(0.02):
                    self.wfile.write(b" ")
            except OSError:
                pass  # the client has left

        def log_message(self, *_: object) -> None:
            pass

    leaving = threading.Event()
    with http_server(Dripping) as port:
        embedder = OllamaEmbedder("m", 3, url=f"http://127.0.0.1:{port}", timeout_s=0.2, max_retries=0)
        with pytest.raises(EmbedderError, match="did not answer"):
            embedder.embed_query("one")
        embedder.close()
        leaving.set()


def test_vectors_of_another_length_name_the_mend(service: Service) -> None:
    embedder = OllamaEmbedder("some-model", 768, url=service.url)
    with pytest.raises(EmbedderError, match=r"gives vectors of 3, \[embedding\] dims says 768; set dims = 3"):
        embedder.embed_query("one")
    embedder.close()


def test_a_redirect_does_not_carry_the_key_away(service: Service, openai: OpenAIEmbedder) -> None:
    service.first((307, {"location": f"{service.url}/elsewhere"}, {}))
    with pytest.raises(EmbedderError, match="HTTP 307"):
        list(openai.embed(["one"]))
    assert [path for path, _, _ in service.requests] == ["/v1/embeddings"]


def test_questions_do_not_wait_for_a_bulk(service: Service, openai: OpenAIEmbedder) -> None:
    released, event = threading.Event(), threading.Event()

    def answer(path: str, payload: Any) -> Answer:
        if payload["input"] == ["bulk"]:
            event.set()
            released.wait(200)
        return service.embed(path, payload)

    service.answer = answer
    bulk = threading.Thread(target=lambda: list(openai.embed(["bulk"])))
    bulk.start()
    try:
        assert event.wait(60)
        assert np.allclose(openai.embed_query("one"), expected("one"))
        assert bulk.is_alive()
    finally:
        released.set()
        bulk.join(60)


def test_the_key_in_the_catalog_tells_services_models_and_sizes_apart() -> None:
    keys = {
        OllamaEmbedder("m", 3).model,
        OpenAIEmbedder("m", 3).model,
        OpenAIEmbedder("m", 4).model,
        OpenAIEmbedder("n", 3).model,
    }
    assert len(keys) == 4
    assert OpenAIEmbedder("m", 3, url="http://elsewhere:8080", api_key=KEY).model in keys, (
        "where it runs does not change its vectors"
    )
    assert OpenAIEmbedder("m", 3).model.startswith("openai/m@")


@pytest.mark.parametrize(
    "url", ["ftp://host", "localhost:11434", "http://", "http://host:notaport", "http://[::1"]
)
def test_a_url_that_is_none_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigError, match=r"\[embedding\] url"):
        OllamaEmbedder("m", 3, url=url)


def test_a_key_with_a_line_break_is_a_configuration_error_that_does_not_show_it() -> None:
    with pytest.raises(ConfigError) as raised:
        OpenAIEmbedder("m", 3, api_key="sk-abc\nX-Evil: 1")
    assert "sk-abc" not in str(raised.value)


def test_opening_wants_a_model_and_its_size_and_a_known_provider() -> None:
    with pytest.raises(ConfigError, match="provider 'ollama' needs model and dims"):
        open_embedder(replace(DEFAULTS, provider="ollama", model="m"), {})
    with pytest.raises(ConfigError, match="unknown 'cohere'"):
        open_embedder(replace(DEFAULTS, provider="cohere", model="m", dims=3), {})


def test_a_service_that_is_down_costs_a_rebuild_nothing(service: Service, tmp_path: Path) -> None:
    table = f'provider = "ollama"\nmodel = "m"\ndims = 3\nurl = "{service.url}"\nmax_retries = 0\n'
    config = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\n'
    with workspace(project(tmp_path, {"a.md": "# Dike\n\nIt holds.\n"}, config + table)) as space:
        space.refresh([])
        service.answer = lambda *_: (500, {}, {"error": "no room for the model"})
        with pytest.raises(EmbedderError, match="HTTP 500"):
            space.indexer.embed(rebuild=True)
        assert space.catalog.pending_count(space.model or "") == 0
        service.answer = service.embed
        assert space.indexer.embed(rebuild=True).embedded == 1
