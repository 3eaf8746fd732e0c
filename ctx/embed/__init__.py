"""Embedders turn texts into unit vectors, either on this machine (onnxruntime, fastembed) or through a
service (Ollama, any OpenAI-compatible API).
"""

import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ctx.config.settings import SHIPPED_MODEL, Embedding
from ctx.models import digest

if TYPE_CHECKING:  # numpy takes 70 ms, and opening an embedder does not need it
    import numpy as np


class Embedder(Protocol):
    """Turns texts into vectors, so that similar texts get similar vectors. Safe to use from several threads.

    Vectors are float32 unit vectors of shape (dim,). A vector depends only on its text, not on other texts,
    their order or the number of threads. A text that is too long for the model is cut into windows, and the
    vectors of the windows are averaged. Any str is allowed, even an empty one or one with NUL characters or
    lone surrogates.
    """

    @property
    def model(self) -> str:
        """The name of this embedder's vectors in the catalog. Embedders that would give a text different
        vectors have different names.
        """
        ...

    @property
    def dim(self) -> int:
        """The number of dimensions of the vectors."""
        ...

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> "Iterator[np.ndarray]":
        """Yields the vectors of passages, in order, each as soon as it is ready.

        Ends early, within a second, when `stop` is set. Raises `EmbedderError`.
        """
        ...

    def embed_query(self, text: str) -> "np.ndarray":
        """The vector of a query. Does not wait for a running `embed`. Raises `EmbedderError`."""
        ...

    def close(self) -> None:
        """Releases the model or closes the connections."""
        ...


def open_embedder(settings: Embedding, environ: Mapping[str, str]) -> Embedder | None:
    """The embedder that the settings choose; None if embeddings are off.

    This call is cheap: the embedder loads its model or calls its service only at the first text. Raises
    `ConfigError`.
    """
    provider, model = settings.provider, settings.model
    if provider == "disabled":
        return None
    if provider == "local":
        from ctx.embed.local import LocalEmbedder

        return LocalEmbedder(model or SHIPPED_MODEL, threads=settings.threads or None)
    from ctx.embed.remote import OllamaEmbedder, OpenAIEmbedder  # numpy: 70 ms

    service = OllamaEmbedder if provider == "ollama" else OpenAIEmbedder
    return service(
        model or "",  # the configuration requires both for these providers
        settings.dims or 0,
        url=settings.url,
        api_key=environ.get(settings.key_variable) if settings.key_variable else None,
        batch_size=settings.batch_size,
        timeout_s=settings.timeout_secs,
        max_retries=settings.max_retries,
    )


class Prefixes(NamedTuple):
    """The texts that a model expects before a query and before a passage, because it was trained with
    them.
    """

    query: str = ""
    passage: str = ""


_REPRESENT = "Represent this sentence for searching relevant passages: "
_REPRESENT_ZH = "为这个句子生成表示以用于检索相关文章："
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
# (word, prefixes) as the model cards give them. The first entry whose word is in the lower-case model name is
# used.
_PREFIXES = (
    ("bge-m3", Prefixes()),
    ("e5-mistral", Prefixes(f"{_INSTRUCT} ")),
    ("e5-large-instruct", Prefixes(f"{_INSTRUCT} ")),
    ("e5-", Prefixes("query: ", "passage: ")),
    ("nomic-embed", Prefixes("search_query: ", "search_document: ")),
    ("bge-small-zh", Prefixes(_REPRESENT_ZH)),
    ("bge-base-zh", Prefixes(_REPRESENT_ZH)),
    ("bge-large-zh", Prefixes(_REPRESENT_ZH)),
    ("bge-", Prefixes(_REPRESENT)),
    ("arctic-embed2", Prefixes("query: ")),
    ("arctic-embed-m-v2", Prefixes("query: ")),
    ("arctic-embed-l-v2", Prefixes("query: ")),
    ("arctic-embed", Prefixes(_REPRESENT)),
    ("mxbai-embed", Prefixes(_REPRESENT)),
    ("embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
    ("qwen3-embedding", Prefixes(_INSTRUCT)),
)


def prefixes(model: str) -> Prefixes:
    """The prefixes for the model of this name; empty prefixes for an unknown model."""
    name = model.lower()
    return next((pair for word, pair in _PREFIXES if word in name), Prefixes())


def catalog_key(name: str, *determinants: object) -> str:
    """The name of an embedder's vectors in the catalog: `name@` and a hash of twelve hexadecimal digits.
    `determinants` are the values, besides the text, on which the vectors depend.
    """
    return f"{name}@{digest(json.dumps(determinants).encode(), 12)}"


def cut_text(text: str, most_chars: int) -> Iterator[str]:
    """Cuts a text into pieces of at most `most_chars` characters, after white space where possible. "" gives
    one empty piece.
    """
    start = 0
    while len(text) - start > most_chars:
        end = start + most_chars
        while end > start + most_chars // 2 and not text[end - 1].isspace():
            end -= 1
        if not text[end - 1].isspace():
            end = start + most_chars
        yield text[start:end]
        start = end
    yield text[start:]


_T = TypeVar("_T")


def until_stopped(work: Callable[[], _T], stop: threading.Event | None) -> "_T | None":
    """The result of `work()`, or None as soon as `stop` is set. In this case `work` is not called, or it
    continues in a thread and its result is dropped.
    """
    if stop is None:
        return work()
    if stop.is_set():
        return None
    future: Future[_T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # raised again in the caller's thread
            future.set_exception(error)

    # A daemon thread, so that a call that hangs does not keep the process alive.
    threading.Thread(target=run, name="embed-call", daemon=True).start()
    while not wait([future], 0.05).done:
        if stop.is_set():
            return None
    return future.result()


def load_onnxruntime() -> Any:
    """The onnxruntime module without its telemetry. The first call takes 0.13 s."""
    # From version 1.29 on, onnxruntime reports every session to its vendor and writes a device id to the home
    # folder, unless this variable is set before the import. `disable_telemetry_events` is for Windows.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
