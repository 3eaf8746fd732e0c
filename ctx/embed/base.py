"""The seam that embedders stand behind, and what models want said before a text."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ctx.identity import digest

if TYPE_CHECKING:  # numpy costs 70 ms, and naming the seam needs none of it
    import numpy as np


class Embedder(Protocol):
    """Gives texts a place in a space where nearness is likeness. Safe to call from several threads at once.

    Vectors are float32 of shape [dim] and unit length. A vector depends on its text alone: not on the texts
    beside it, their order or the number of threads. Nothing of a text is dropped: one longer than the model
    reads is cut into windows, whose vectors are averaged. Any str will do: empty, blank, with NUL or lone
    surrogates.
    """

    @property
    def model(self) -> str:
        """The key of its vectors in the catalog: it changes whenever the same text would get another
        vector.
        """
        ...

    @property
    def dim(self) -> int:
        """The length of its vectors."""
        ...

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> "Iterator[np.ndarray]":
        """The vectors of texts to be found, in order, each as soon as it is ready.

        Once `stop` is set it ends early, in well under a second. Raises `EmbedderError`.
        """
        ...

    def embed_query(self, text: str) -> "np.ndarray":
        """The vector of a question. Never waits for an `embed`. Raises `EmbedderError`."""
        ...

    def close(self) -> None:
        """Lets go of the model or the connections."""
        ...


class Prefixes(NamedTuple):
    """What a model was trained to see before a question and before a passage."""

    query: str = ""
    passage: str = ""


_REPRESENT = "Represent this sentence for searching relevant passages: "
_REPRESENT_ZH = "为这个句子生成表示以用于检索相关文章："
_INSTRUCT = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
# The first entry whose word is in the lower-case name of the model holds. From the models' own cards.
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
    """The prefixes of a model by its name, wherever it runs; none for a model that is not known to want
    any.
    """
    name = model.lower()
    return next((pair for word, pair in _PREFIXES if word in name), Prefixes())


def catalog_key(name: str, *determinants: object) -> str:
    """`name@` and twelve hexadecimal digits of all that decides the vectors besides the text."""
    return f"{name}@{digest(json.dumps(determinants).encode(), 12)}"


def cut_text(text: str, most_chars: int) -> Iterator[str]:
    """The text in pieces of at most `most_chars`, cut behind white space where there is any near; "" is one
    piece.
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
    """The result of `work`, or None as soon as `stop` is set; then the work ends by itself and its result is
    dropped.
    """
    if stop is None:
        return work()
    result: list[_T] = []
    raised: list[BaseException] = []
    completion = threading.Event()

    def run() -> None:
        try:
            result.append(work())
        except BaseException as error:  # carried over to the caller's thread, whatever it is
            raised.append(error)
        finally:
            completion.set()

    # A daemon: a call that hangs until its own timeout must not keep the process.
    threading.Thread(target=run, name="embed-call", daemon=True).start()
    while not completion.wait(0.05):
        if stop.is_set():
            return None
    if raised:
        raise raised[0]
    return result[0]


def load_onnxruntime() -> Any:
    """The onnxruntime module without its telemetry; 0.13 s at the first call."""
    # From 1.29 on it reports every session to its maker and writes a device id to the home folder, unless
    # this is set before the import. `disable_telemetry_events` is what Windows heeds.
    os.environ["ORT_DISABLE_TELEMETRY"] = "1"
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    return onnxruntime
