"""Embedders that call a service over HTTP: Ollama, or any service with OpenAI's `/embeddings` endpoint."""

import logging
import random
import threading
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import numpy.typing as npt

from ctx.embed.base import catalog_key, cut_text, prefixes, until_stopped
from ctx.errors import ConfigError, EmbedderError
from ctx.http import MAX_REPLY_BYTES, Boundless, read_reply
from ctx.models import JSON
from ctx.text.strings import counted, sound

logger = logging.getLogger(__name__)

Vector = npt.NDArray[np.float32]

CONNECT_TIMEOUT_S = 5.0  # a running service accepts a connection at once, so a longer wait is useless
# About 1500 words, below the limit of 8192 tokens of most services. A window that the service refuses is
# halved.
WINDOW_CHARS = 6_000
LEAST_WINDOW_CHARS = 200  # the refusal of a shorter window must have another reason than its length
LONGEST_PAUSE_S = 30.0  # the longest pause before a retry; also limits Retry-After
RETRIED = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
TOO_LONG = frozenset({400, 413, 422})  # the HTTP statuses with which services refuse a text that is too long


class _Refused(Exception):
    """The service refused a request, and a retry would not help. `status` is the HTTP status."""

    def __init__(self, status: int) -> None:
        super().__init__(f"HTTP {status}")
        self.status = status


class _Stopped(Exception):
    """The caller set `stop`."""


class _Patience(NamedTuple):
    """How often and how long to retry a request, and the event that ends the retries."""

    retries: int
    longest_pause_s: float
    stop: threading.Event | None


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
    # Advice if the service does not answer.
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
        self._opening = threading.Lock()
        self._client: Any = None

    @property
    def model(self) -> str:
        return catalog_key(f"{self._service}/{self.name}", self.dim, WINDOW_CHARS, self._prefixes.passage)

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> Iterator[Vector]:
        """Yields the vectors of texts, in order. Ends early when `stop` is set. Raises `EmbedderError`."""
        patience = _Patience(self.max_retries, LONGEST_PAUSE_S, stop)
        try:
            for start in range(0, len(texts), self.batch_size):
                yield from self._vectors(
                    texts[start : start + self.batch_size], self._prefixes.passage, patience
                )
        except _Stopped:
            return

    def embed_query(self, text: str) -> Vector:
        """The vector of a query. Only its first WINDOW_CHARS characters are used. Raises `EmbedderError`."""
        # The user waits for the result, so there is one retry after a short pause.
        return self._vectors(
            [text[:WINDOW_CHARS]], self._prefixes.query, _Patience(min(1, self.max_retries), 1.0, None)
        )[0]

    def close(self) -> None:
        """Closes the connections. A later call opens new connections."""
        with self._opening:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _payload(self, texts: list[str]) -> JSON:
        raise NotImplementedError

    def _read(self, reply: JSON) -> list[list[float]]:
        """The vectors in the service's JSON reply. Raises `LookupError`, `TypeError`, `ValueError` or
        `OverflowError` for an unexpected reply.
        """
        raise NotImplementedError

    def _vectors(self, texts: Sequence[str], prefix: str, patience: _Patience) -> list[Vector]:
        """The unit vectors of texts. The vector of a long text is the average over its windows, weighted by
        their length.
        """
        windows: list[str] = []
        owners: list[int] = []
        for owner, text in enumerate(texts):
            # Services refuse empty texts; a blank text gets the vector of a full stop.
            cleaned = sound(text).replace("\0", " ")
            for window in cut_text(cleaned if cleaned.strip() else ".", WINDOW_CHARS):
                windows.append(window)
                owners.append(owner)
        sums = np.zeros((len(texts), self.dim), np.float32)
        for start in range(0, len(windows), self.batch_size):
            batch = windows[start : start + self.batch_size]
            for window, owner, vector in zip(
                batch, owners[start:], self._ask(batch, prefix, patience), strict=False
            ):
                sums[owner] += vector * len(window)
        return [self._unit(vector) for vector in sums]

    def _ask(self, texts: list[str], prefix: str, patience: _Patience) -> list[Vector]:
        """The unit vectors of texts that fit into one window each. Halves a text that the service refuses as
        too long.
        """
        try:
            return self._request([prefix + text for text in texts], patience)
        except _Refused as error:
            if error.status in TOO_LONG and len(texts) > 1:
                return [vector for text in texts for vector in self._ask([text], prefix, patience)]
            if error.status in TOO_LONG and len(texts[0]) > LEAST_WINDOW_CHARS:
                # A little more than half, so that a cut after a word does not leave a third piece.
                halves = list(cut_text(texts[0], len(texts[0]) * 5 // 9))
                vectors = self._ask(halves, prefix, patience)
                weighted = [vector * len(half) for vector, half in zip(vectors, halves, strict=True)]
                return [self._unit(np.sum(weighted, axis=0))]
            raise EmbedderError(self._refusal(error.status)) from error

    def _request(self, texts: list[str], patience: _Patience) -> list[Vector]:
        """Sends a request, and retries it after a temporary error. Raises `_Refused`, `_Stopped`,
        `EmbedderError`.
        """
        import httpx  # 90 ms

        stop = patience.stop
        for attempt in range(patience.retries + 1):
            if stop is not None and stop.is_set():
                raise _Stopped
            pause_s = min(patience.longest_pause_s, 0.5 * 2**attempt) * random.uniform(0.5, 1.0)  # noqa: S311  spreads clients, no secret
            cause: Exception | None = None
            try:
                response = until_stopped(lambda: self._posted(texts), stop)
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
                cause = error
                problem = f"{self._service} at {self._host} did not answer ({type(error).__name__})"
            else:
                if response is None:
                    raise _Stopped
                if response.is_success:
                    return self._checked(response, len(texts))
                if response.status_code not in RETRIED:
                    self._log_refusal(response)
                    raise _Refused(response.status_code)
                problem = f"{self._service} at {self._host} answered HTTP {response.status_code}"
                pause_s = min(
                    patience.longest_pause_s, _retry_after_s(response.headers.get("retry-after")) or pause_s
                )
            if attempt == patience.retries:
                advice = self._start_it if cause is not None else ""
                raise EmbedderError(f"{problem}, after {counted(attempt + 1, 'try')}{advice}") from cause
            logger.info(
                "embedding retry service=%s attempt=%d pause_s=%.1f problem=%s",
                self._service,
                attempt + 1,
                pause_s,
                problem,
            )
            if (stop or threading.Event()).wait(pause_s):
                raise _Stopped
        raise AssertionError("unreachable")

    def _posted(self, texts: list[str]) -> Any:
        """Posts a request and returns the whole reply, whose body must arrive within `timeout_s`. Raises
        httpx's errors, `TimeoutError`, and `EmbedderError` for a reply that is too large or too slow.
        """
        import httpx

        with self._connected().stream("POST", self._url, json=self._payload(texts)) as response:
            try:
                body = read_reply(response, MAX_REPLY_BYTES, self.timeout_s)
            except Boundless as error:
                raise EmbedderError(f"{self._service} at {self._host} {error}") from error
        headers = [pair for pair in response.headers.raw if pair[0].lower() != b"content-encoding"]
        return httpx.Response(response.status_code, headers=headers, content=body)

    def _connected(self) -> Any:
        with self._opening:
            if self._client is None:
                import httpx

                headers = {"authorization": f"Bearer {self.api_key}"} if self.api_key else {}
                timeout = httpx.Timeout(self.timeout_s, connect=min(CONNECT_TIMEOUT_S, self.timeout_s))
                headers["accept-encoding"] = "gzip"
                self._client = httpx.Client(headers=headers, timeout=timeout)
            return self._client

    def _checked(self, response: Any, count: int) -> list[Vector]:
        try:
            array = np.array(self._read(response.json()))
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

    def _log_refusal(self, response: Any) -> None:
        """Logs the reason that the service gives, at level DEBUG because it may contain the text. The API key
        is removed.
        """
        reason = response.text[:300]
        if self.api_key:
            reason = reason.replace(self.api_key, "***")
        logger.debug(
            "embedding refused service=%s status=%d said=%r", self._service, response.status_code, reason
        )

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


def _retry_after_s(value: str | None) -> float | None:
    """The seconds in a Retry-After header; None for an invalid value or a date. (These services send no
    dates.)
    """
    try:
        seconds = float(value) if value else None
    except ValueError:
        return None
    return seconds if seconds is not None and 0 <= seconds < float("inf") else None
