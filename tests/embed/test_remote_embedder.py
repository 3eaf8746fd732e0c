"""Embedding services: OpenAI and Ollama over HTTP, and what goes wrong with them."""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from web_api import Api, Asked, Reply, serving_api

from ctx.embed.remote import OllamaEmbedder, OpenAIEmbedder
from ctx.errors import EmbedderError

KEY = "sk-very-secret-0123456789"
Answer = tuple[int, dict[str, str], Any]


def place(text: str) -> list[float]:
    """A vector of 3 that tells texts apart: longer, earlier in the alphabet, with a needle."""
    return [float(len(text)), float(sum(map(ord, text)) % 97), 50.0 if "needle" in text else 1.0]


class Service:
    """An embedding service on a real socket.
    `answer(path, payload)` may be replaced; `requests` keeps what came.
    """

    def __init__(self, api: Api) -> None:
        self.requests: list[tuple[str, Mapping[str, str], Any]] = []
        self.answer: Callable[[str, Any], Answer] = self.embed
        self.url = api.url
        api.answer = self._reply

    def _reply(self, asked: Asked) -> Reply:
        self.requests.append((asked.path, asked.headers, asked.json))
        status, headers, body = self.answer(asked.path, asked.json)
        return Reply(body, status, headers)

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


@pytest.fixture
def service() -> Iterator[Service]:
    with serving_api() as api:
        yield Service(api)


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


def test_after_a_stop_no_batch_is_sent(service: Service, openai: OpenAIEmbedder) -> None:
    stop = threading.Event()
    vectors = openai.embed(["one"] * 12, stop)
    next(vectors)
    stop.set()
    assert (len(list(vectors)), len(service.requests)) == (3, 1)  # the rest of the first batch of four


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
        pytest.raises(
            EmbedderError, match=r"HTTP 401; check the API key in the variable named by .* api_key_env"
        ) as raised,
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


@pytest.mark.parametrize(
    "body",
    [
        b"<html>",
        {"data": []},
        {"data": [{"index": 1, "embedding": [1, 2, 3]}]},
        {"data": [{"index": 0, "embedding": ["1", "2", "3"]}]},
        {"data": [{"index": 0, "embedding": [1, 1e300, 3]}]},
        b'{"data": [{"index": 0, "embedding": [1, NaN, 3]}]}',
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


def test_vectors_of_another_length_name_the_fix(service: Service) -> None:
    embedder = OllamaEmbedder("some-model", 768, url=service.url)
    with pytest.raises(EmbedderError, match=r"gives vectors of 3, \[embedding\] dims says 768; set dims = 3"):
        embedder.embed_query("one")
    embedder.close()


def test_a_redirect_does_not_carry_the_key_away(service: Service, openai: OpenAIEmbedder) -> None:
    service.first((307, {"location": f"{service.url}/elsewhere"}, {}))
    with pytest.raises(EmbedderError, match="HTTP 307"):
        list(openai.embed(["one"]))
    assert [path for path, _, _ in service.requests] == ["/v1/embeddings"]
