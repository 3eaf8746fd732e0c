"""Embedders that call a service over HTTP: Ollama, or any service with OpenAI's `/embeddings` endpoint."""

import json
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property, partial
from typing import Any, ClassVar
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from ctx.embed import catalog_key, cut_text, prefixes, until_stopped
from ctx.errors import ConfigError, EmbedderError
from ctx.http import MAX_REPLY_BYTES, Boundless, read_reply
from ctx.models import JSON
from ctx.text.strings import counted, sound

logger = logging.getLogger(__name__)

Vector = npt.NDArray[np.float32]
_Send = Callable[[list[str]], list[Vector]]

CONNECT_TIMEOUT_S = 5.0  # a running service accepts a connection at once, so a longer wait is useless
# About 1500 words, below the limit of 8192 tokens of most services. A window that the service refuses is
# halved.
WINDOW_CHARS = 6_000
LEAST_WINDOW_CHARS = 200  # a shorter window is not halved: its length cannot be the reason for a refusal
LONGEST_PAUSE_S = 30.0  # the longest pause before a retry; also limits Retry-After
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
TOO_LONG = frozenset({400, 413, 422})  # the HTTP statuses with which services refuse a text that is too long


class _Refused(EmbedderError):
    """Raised if the service refused a request and a retry would not help. `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class _Stopped(Exception):
    """Raised if the caller has set `stop`."""


def _host_in(url: str, service: str) -> str:
    """HOST or HOST:PORT of a URL. Raises `ConfigError` if the URL is not an HTTP address with a host."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "") + (f":{parts.port}" if parts.port else "")
    except ValueError as error:
        raise ConfigError("[embedding] url: the host or the port is invalid") from error
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigError(
            f"[embedding] url: must begin with http:// or https:// and name a host, for {service}"
        )
    return host


@dataclass(eq=False, repr=False)
class _HttpEmbedder:
    """The base of the HTTP embedders: batches, retries and windows. Subclasses build the request and read the
    reply.
    """

    _service: ClassVar[str]
    _default_url: ClassVar[str]
    _path: ClassVar[str]
    # The end of the error message if the service does not answer.
    _start_it: ClassVar[str] = "; is [embedding] url right, and the server up?"

    name: str
    dim: int
    _: KW_ONLY
    url: str | None = None
    api_key: str | None = None
    batch_size: int = 32
    timeout_s: float = 30.0
    max_retries: int = 5

    def __post_init__(self) -> None:
        url = self.url or self._default_url
        self._host = _host_in(url, self._service)  # for messages, because a URL may contain a password
        self._url = url.rstrip("/") + self._path
        self.api_key = (self.api_key or "").strip()
        if not (self.api_key.isascii() and self.api_key.isprintable()):
            raise ConfigError("the API key named by [embedding] api_key_env has invalid characters")
        self._prefixes = prefixes(self.name)

    @property
    def model(self) -> str:
        return catalog_key(f"{self._service}/{self.name}", self.dim, WINDOW_CHARS, self._prefixes.passage)

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> Iterator[Vector]:
        """Yields the vectors of texts, in order. Ends early when `stop` is set. Raises `EmbedderError`."""
        send = partial(self._send, self._prefixes.passage, self.max_retries, LONGEST_PAUSE_S, stop)
        try:
            for start in range(0, len(texts), self.batch_size):
                yield from self._vectors(texts[start : start + self.batch_size], send)
        except _Stopped:
            return

    def embed_query(self, text: str) -> Vector:
        """The vector of a query. Only its first WINDOW_CHARS characters are used. Raises `EmbedderError`."""
        # The user waits for the result, so there is one retry after a short pause.
        send = partial(self._send, self._prefixes.query, min(1, self.max_retries), 1.0, None)
        return self._vectors([text[:WINDOW_CHARS]], send)[0]

    def close(self) -> None:
        """Closes the connections. A later call opens new connections."""
        client = self.__dict__.pop("_client", None)
        if client is not None:
            client.close()

    def _payload(self, texts: list[str]) -> JSON:
        raise NotImplementedError

    def _read(self, reply: JSON) -> list[list[float]]:
        """The vectors in the service's JSON reply. Raises `LookupError`, `TypeError`, `ValueError` or
        `OverflowError` for an unexpected reply.
        """
        raise NotImplementedError

    def _vectors(self, texts: Sequence[str], send: _Send) -> list[Vector]:
        """The unit vectors of texts. The vector of a long text is the average over its windows, weighted by
        their length.
        """
        windows: list[tuple[int, str]] = []  # (index of the text, window)
        for owner, text in enumerate(texts):
            # Services refuse empty texts; a blank text gets the vector of a full stop.
            cleaned = sound(text).replace("\0", " ")
            pieces = cut_text(cleaned if cleaned.strip() else ".", WINDOW_CHARS)
            windows += [(owner, window) for window in pieces]
        sums = np.zeros((len(texts), self.dim), np.float32)
        for start in range(0, len(windows), self.batch_size):
            batch = windows[start : start + self.batch_size]
            vectors = self._halving([window for _, window in batch], send)
            for (owner, window), vector in zip(batch, vectors, strict=True):
                sums[owner] += vector * len(window)
        return [self._unit(vector) for vector in sums]

    def _halving(self, texts: list[str], send: _Send) -> list[Vector]:
        """The unit vectors of texts that fit into one window each. Halves a text that the service refuses as
        too long.
        """
        try:
            return send(texts)
        except _Refused as error:
            if error.status not in TOO_LONG or (len(texts) == 1 and len(texts[0]) <= LEAST_WINDOW_CHARS):
                raise
        if len(texts) > 1:
            return [vector for text in texts for vector in self._halving([text], send)]
        # A little more than half, so that a cut after a word does not leave a third piece.
        halves = list(cut_text(texts[0], len(texts[0]) * 5 // 9))
        vectors = self._halving(halves, send)
        weighted = [vector * len(half) for vector, half in zip(vectors, halves, strict=True)]
        return [self._unit(np.sum(weighted, axis=0))]

    def _send(
        self,
        prefix: str,
        retries: int,
        longest_pause_s: float,
        stop: threading.Event | None,
        texts: list[str],
    ) -> list[Vector]:
        """Sends a request, and retries it after a temporary error. Raises `_Stopped`, `EmbedderError`."""
        import httpx  # 90 ms

        payload = self._payload([prefix + text for text in texts])
        for attempt in range(retries + 1):
            pause_s = 0.5 * 2**attempt * random.uniform(0.5, 1.0)  # noqa: S311  spreads clients, no secret
            cause: Exception | None = None
            try:
                reply = until_stopped(lambda: self._posted(payload), stop)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                cause = error
                problem = f"{self._service} at {self._host} did not answer ({type(error).__name__})"
            else:
                if reply is None:
                    raise _Stopped
                response, body = reply
                if response.is_success:
                    return self._checked(body, len(texts))
                status = response.status_code
                if status not in RETRIED:
                    # At level DEBUG, because the service's reason may contain the embedded text.
                    reason = body[:300].decode(errors="replace").replace(self.api_key or "\0", "***")
                    logger.debug(
                        "embedding refused service=%s status=%d said=%r", self._service, status, reason
                    )
                    raise _Refused(self._refusal(status), status)
                problem = f"{self._service} at {self._host} answered HTTP {status}"
                after = response.headers.get("retry-after", "")  # these services send seconds, no dates
                pause_s = float(after) if after.replace(".", "", 1).isdecimal() else pause_s
            if attempt == retries:
                advice = self._start_it if cause is not None else ""
                raise EmbedderError(f"{problem}, after {counted(attempt + 1, 'try')}{advice}") from cause
            logger.info("embedding retry attempt=%d problem=%s", attempt + 1, problem)
            if (stop or threading.Event()).wait(min(longest_pause_s, pause_s)):
                raise _Stopped
        raise AssertionError("unreachable")

    def _posted(self, payload: JSON) -> tuple[Any, bytes]:
        """Posts a request. Returns the response and its body, which must arrive within `timeout_s`. Raises
        httpx's errors, `TimeoutError`, and `EmbedderError` for a reply that is too large.
        """
        with self._client.stream("POST", self._url, json=payload) as response:
            try:
                return response, read_reply(response, MAX_REPLY_BYTES, self.timeout_s)
            except Boundless as error:
                raise EmbedderError(f"{self._service} at {self._host} {error}") from error

    @cached_property
    def _client(self) -> Any:
        import httpx

        headers = {"accept-encoding": "gzip"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        timeout = httpx.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
        return httpx.Client(headers=headers, timeout=timeout)

    def _checked(self, body: bytes, count: int) -> list[Vector]:
        try:
            array = np.array(self._read(json.loads(body)))
            if array.size and array.dtype.kind not in "iuf":  # numpy also converts strings and booleans
                raise TypeError(f"vectors of {array.dtype}")
            with np.errstate(over="ignore"):  # an infinite value raises an error below
                array = array.astype(np.float32)
        except (LookupError, TypeError, ValueError, OverflowError, RecursionError) as error:
            raise EmbedderError(
                f"{self._service} at {self._host} sent a reply that is not a list of vectors"
            ) from error
        if array.ndim != 2 or len(array) != count:
            raise EmbedderError(f"{self._service} at {self._host} gave {array.shape} for {count} texts")
        if array.shape[1] != self.dim:
            raise EmbedderError(
                f"'{self.name}' gives vectors of {array.shape[1]}, [embedding] dims says {self.dim}; "
                f"set dims = {array.shape[1]}"
            )
        return [self._unit(vector) for vector in array]

    def _unit(self, vector: Vector) -> Vector:
        length = float(np.linalg.norm(vector))
        if not np.isfinite(length) or length == 0:
            raise EmbedderError(f"{self._service} at {self._host} sent a zero or infinite vector")
        return np.asarray(vector / length, np.float32)

    def _refusal(self, status: int) -> str:
        # A redirect is not followed, because texts and key would go to an address that nobody configured.
        if 300 <= status < 400:
            answer = f"{self._service} at {self._host} answered HTTP {status}"
            return f"{answer}, a redirect: set [embedding] url to its target"
        advice = {
            401: "; check the API key in the variable named by [embedding] api_key_env",
            403: "; check the API key in the variable named by [embedding] api_key_env",
            404: f"; is [embedding] url right, and does the service have the model '{self.name}'?",
        }.get(status, "")
        return f"{self._service} at {self._host} answered HTTP {status}{advice}"


class OllamaEmbedder(_HttpEmbedder):
    """Embeds with Ollama's `/api/embed`. `url` is the address of the Ollama server."""

    _service = "ollama"
    _default_url = "http://localhost:11434"
    _start_it = "; start it with `ollama serve`, or set [embedding] url to where it is"
    _path = "/api/embed"

    def _payload(self, texts: list[str]) -> JSON:
        # Without `truncate: false`, Ollama silently drops the end of long texts.
        return {"model": self.name, "input": texts, "truncate": False}

    def _read(self, reply: JSON) -> list[list[float]]:
        vectors: list[list[float]] = reply["embeddings"]
        return vectors

    def _refusal(self, status: int) -> str:
        if status == 404:
            return (
                f"ollama at {self._host} does not have the model '{self.name}': run `ollama pull {self.name}`"
            )
        return super()._refusal(status)


class OpenAIEmbedder(_HttpEmbedder):
    """Embeds with `POST {url}/embeddings`, which OpenAI defined and many other servers support."""

    _service = "openai"
    _default_url = "https://api.openai.com/v1"
    _path = "/embeddings"

    def _payload(self, texts: list[str]) -> JSON:
        payload: dict[str, JSON] = {"model": self.name, "input": texts, "encoding_format": "float"}
        if self.name.startswith("text-embedding-3"):  # other models refuse this field
            payload["dimensions"] = self.dim
        return payload

    def _read(self, reply: JSON) -> list[list[float]]:
        # The vectors may come in any order.
        rows = sorted(reply["data"], key=lambda row: int(row["index"]))
        if [row["index"] for row in rows] != list(range(len(rows))):
            raise ValueError("an index is missing or occurs twice")
        return [row["embedding"] for row in rows]
