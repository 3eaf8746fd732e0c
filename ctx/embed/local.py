"""Embeds texts on this machine, with the shipped model or another model that fastembed can load."""

import hashlib
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING

from ctx.config.settings import FULL_NAMES, SHIPPED_MODEL, is_shipped_model
from ctx.embed import catalog_key, prefixes, until_stopped
from ctx.errors import ConfigError, CtxError, EmbedderError
from ctx.text.strings import sound

if TYPE_CHECKING:  # `engines` imports numpy (70 ms), and opening an embedder does not need it
    from ctx.embed.engines import Engine, Vector

_MODELS = os.path.dirname(os.path.abspath(__file__))
_SHIPPED_FOLDER = os.path.join(_MODELS, SHIPPED_MODEL)

# all-MiniLM was trained on texts of at most 256 tokens. Windows of 256 rank no worse than windows of 128
# (NDCG@10 on cranfield 0.3905 against 0.3819, on cosqa 0.7193 against 0.7162), and a chunk of the usual size
# then fits into one window.
SHIPPED_MAX_TOKENS = 256
MAX_TOKENS = 512  # limit for other models: attention over 8192 tokens would take 3 GB
QUERY_WINDOWS = 8  # windows of one query, about 2000 words; a longer query is cut, because the user waits

_MODEL_FILES = (
    "model.onnx",
    "model_optimized.onnx",
    "model_quantized.onnx",
    "onnx/model.onnx",
    "onnx/model_quantized.onnx",
)


class LocalEmbedder:
    """Embeds texts on this machine. `model` is the shipped model's name, a folder with an ONNX model, a name
    from the list of fastembed, or one of the short names in `FULL_NAMES`.

    The model is loaded at the first text. A listed model is downloaded into `cache_dir` at the first `embed`;
    nothing else uses the network. `threads` is the number of texts embedded at once (None: one per available
    processor), and `max_tokens` the length of the longest window. Raises `ConfigError` if the folder is
    incomplete.
    """

    def __init__(
        self,
        model: str = SHIPPED_MODEL,
        *,
        threads: int | None = None,
        max_tokens: int | None = None,
        cache_dir: str | None = None,
    ) -> None:
        if not os.path.isdir(os.path.expanduser(model)):
            model = FULL_NAMES.get(model.lower(), model)
        folder = os.path.expanduser(model)
        self._shipped = is_shipped_model(model)
        self._folder: str | None = None
        self._name = model
        if self._shipped:
            self._folder, self._name = _SHIPPED_FOLDER, SHIPPED_MODEL
        elif os.path.isdir(folder) or model.startswith(("/", "./", "../", "~")):
            self._folder = os.path.abspath(folder)
            self._name = os.path.basename(self._folder)
        self._model_file = "" if self._folder is None else _model_file(self._folder, model)
        self._prefixes = prefixes(self._name)
        self._max_tokens = max_tokens or (SHIPPED_MAX_TOKENS if self._shipped else MAX_TOKENS)
        self._threads = threads or _processors()
        self._cache_dir = (
            cache_dir or os.environ.get("FASTEMBED_CACHE_PATH") or os.path.expanduser("~/.cache/ctx/models")
        )
        self._loading = threading.Lock()  # never held while the engine runs
        self._engine: Engine | None = None

    @cached_property
    def model(self) -> str:
        # For a listed model, the key depends on the name instead of the files, so that it does not change
        # when the model is downloaded.
        files = (
            self._name.lower()
            if self._folder is None
            else _sums(self._folder, self._model_file, shipped=self._shipped)
        )
        return catalog_key(self._name, files, self._max_tokens, self._prefixes.passage)

    @cached_property
    def dim(self) -> int:
        """The number of dimensions of the vectors. Raises `ConfigError` for a model name that fastembed does
        not know.
        """
        if self._folder is None:
            from ctx.embed.engines import listed_dim

            return listed_dim(self._name)
        return _folder_dim(self._folder) or len(self.embed_query("?"))

    def embed(self, texts: Sequence[str], stop: threading.Event | None = None) -> "Iterator[Vector]":
        """Yields the vectors of texts, in order. Ends early when `stop` is set. Raises `EmbedderError`,
        `ConfigError`.
        """
        if not texts:
            return
        engine = self._engine or until_stopped(lambda: self._loaded(download=True), stop)
        if engine is None:
            return
        completion = threading.Event()

        def stopped() -> bool:
            return completion.is_set() or (stop is not None and stop.is_set())

        def embed_one(text: str) -> "Vector | None":
            return self._vector(engine.passage, engine.tokenizer, self._prefixes.passage, text, stopped)

        remaining = iter(texts)
        with ThreadPoolExecutor(self._threads, thread_name_prefix="embed") as pool:
            # The queue is short, so that a stop wastes little work. It has two texts per thread, so that no
            # thread waits for the reader.
            first = islice(remaining, 2 * self._threads + 1)
            waiting = deque(pool.submit(embed_one, text) for text in first)
            try:
                while waiting and (vector := waiting.popleft().result()) is not None:
                    waiting.extend(pool.submit(embed_one, text) for text in islice(remaining, 1))
                    yield vector
            finally:
                completion.set()  # makes each thread end after its current window; then the pool closes

    def embed_query(self, text: str) -> "Vector":
        """The vector of a query. Only its first QUERY_WINDOWS windows are used. Raises `EmbedderError`,
        `ConfigError`.
        """
        engine = self._engine or self._loaded(download=False)
        vector = self._vector(
            engine.query, engine.tokenizer, self._prefixes.query, text, lambda: False, QUERY_WINDOWS
        )
        assert vector is not None
        return vector

    def close(self) -> None:
        """Releases the model; a later call loads it again."""
        with self._loading:
            self._engine = None

    def _vector(
        self,
        run: "Callable[[str], Vector]",
        tokenizer: object,
        prefix: str,
        text: str,
        stopped: Callable[[], bool],
        most_windows: int | None = None,
    ) -> "Vector | None":
        """The unit vector of a text, from at most `most_windows` windows; None if `stopped()` becomes
        true.
        """
        from ctx.embed.engines import cut_windows, unit

        with self._telling(f"failed on a text of {len(text)} characters"):
            room = self._max_tokens - (len(tokenizer.encode(prefix).ids) if prefix else 0)  # type: ignore[attr-defined]
            weighted: list[tuple[Vector, int]] = []
            for window, weight in islice(cut_windows(tokenizer, sound(text), room), most_windows):
                if stopped():
                    return None
                weighted.append((unit(run(prefix + window)), weight))
            (vector, weight), *others = weighted  # there is always one window
            if not others:
                return vector
            return unit(sum((other * of_it for other, of_it in others), start=vector * weight))

    @contextmanager
    def _telling(self, fault: str) -> Iterator[None]:
        """A context manager that raises the errors of onnxruntime and tokenizers as `EmbedderError`. It
        catches `Exception`, because these errors have no common base class.
        """
        try:
            yield
        except CtxError:
            raise
        except Exception as error:
            raise EmbedderError(f"the embedding model '{self._name}' {fault}") from error

    def _loaded(self, *, download: bool) -> "Engine":
        """The engine, loaded at the first call."""
        from ctx.embed import engines

        with self._loading, self._telling("could not be loaded"):
            if self._engine is not None:
                return self._engine
            if self._folder is None:
                self._engine = engines.load_named(self._name, self._cache_dir, download=download)
            else:
                self._engine = engines.OnnxEngine(self._folder, self._model_file)
            return self._engine


def _processors() -> int:
    """The number of processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _model_file(folder: str, model: str) -> str:
    """The path of the ONNX file in a folder, relative to the folder. Raises `ConfigError` if this file or a
    tokenizer file is missing.
    """
    filename = next((name for name in _MODEL_FILES if os.path.isfile(os.path.join(folder, name))), None)
    absent = [
        name
        for name in ("tokenizer.json", "tokenizer_config.json")
        if not os.path.isfile(os.path.join(folder, name))
    ]
    if filename is None:
        absent.insert(0, "model.onnx")
    if filename is None or absent:
        raise ConfigError(f"[embedding] model: the folder '{model}' has no {', '.join(absent)}")
    return filename


def _folder_dim(folder: str) -> int | None:
    """The number of dimensions according to the configuration files in the folder; None if they do not tell
    it.
    """
    for name, key in (("1_Pooling/config.json", "word_embedding_dimension"), ("config.json", "hidden_size")):
        try:
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                dim = json.load(file).get(key)
        except (OSError, ValueError):
            continue  # both files are optional
        if isinstance(dim, int):
            return dim
    return None


def _sums(folder: str, model_file: str, *, shipped: bool) -> dict[str, str]:
    """file name -> SHA-256 of the files that determine the vectors. For the shipped model the hashes are
    stored in a file, which a test checks.
    """
    if shipped:
        with open(os.path.join(folder, "sha256.json"), encoding="utf-8") as file:
            sums = json.load(file)["files"]
        return {name: sums[name] for name in ("model.onnx", "tokenizer.json")}
    sums = {}
    weights = os.path.dirname(model_file)
    names = {model_file, "tokenizer.json"}
    # also the weights next to the graph, such as `model.onnx_data`
    names |= {
        os.path.join(weights, name)
        for name in os.listdir(os.path.join(folder, weights))
        if name.endswith(("_data", ".data"))
    }
    for name in sorted(names):
        with open(os.path.join(folder, name), "rb") as binary:
            sums[name] = hashlib.file_digest(binary, "sha256").hexdigest()
    return sums
