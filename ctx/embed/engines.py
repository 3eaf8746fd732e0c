"""Runs embedding models on this machine: those in a folder on onnxruntime, others with fastembed.

Both use one single-threaded onnxruntime session, which embeds one window at a time. So the data stays in the
processor's cache, no text is padded, and a vector cannot depend on other texts. Several threads may call the
same session at once.
"""

import difflib
import json
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import tokenizers

from ctx.embed import cut_text, load_onnxruntime
from ctx.errors import ConfigError, EmbedderError

logger = logging.getLogger(__name__)

Vector = npt.NDArray[np.float32]

# Texts are tokenised in blocks of this size. The tokens of a megabyte would take 100 MB and delay a stop.
BLOCK_CHARS = 16_384
# A piece of a text that is tokenised alone may have this many more tokens than within the text.
SLACK_TOKENS = 8


def cut_windows(tokenizer: Any, text: str, max_tokens: int) -> Iterator[tuple[str, int]]:
    """Cuts a text into windows of at most `max_tokens` tokens; a short text is one window. Yields (window,
    number of its tokens), which is its weight in the average that becomes the vector of the whole text.

    Cuts between words, and into windows of similar length, because the vector of a short last window would
    mean little.
    """
    for block in cut_text(text, BLOCK_CHARS):
        encoding = tokenizer.encode(block)
        # The tokenizer truncates at the model's limit and keeps the rest in `overflowing`.
        if len(encoding.ids) <= max_tokens and not encoding.overflowing:
            yield block, max(1, len(encoding.ids) - 2)
            continue
        tokens = list(_tokens(encoding))
        cuts = _even_cuts([word for _, word in tokens], max(1, max_tokens - 2 - SLACK_TOKENS))
        # The first window includes any text before the first token, and the last window any text after the
        # last token.
        places = [0, *(tokens[border][0] for border in cuts[1:-1]), len(block)]
        for i in range(len(cuts) - 1):
            yield block[places[i] : places[i + 1]], cuts[i + 1] - cuts[i]


def _tokens(encoding: Any) -> Iterator[tuple[int, int | None]]:
    """(index of its first character, index of its word) of each token."""
    for part in (encoding, *encoding.overflowing):
        for (start, _), word, special in zip(
            part.offsets, part.word_ids, part.special_tokens_mask, strict=True
        ):
            if not special:
                yield start, word


def _even_cuts(words: list[int | None], most: int) -> list[int]:
    """Token indexes [0, ..., len(words)] that divide the tokens into parts of similar length, of about `most`
    tokens or fewer, between words if possible. `words[i]` is the word of token i.
    """
    count = -(-len(words) // most)
    cuts = [0]
    for i in range(1, count):
        border = round(i * len(words) / count)
        between = border
        while (
            between > cuts[-1] + 1
            and border - between < SLACK_TOKENS
            and words[between] == words[between - 1]
        ):
            between -= 1
        cuts.append(border if words[between] == words[between - 1] else between)
    return [*cuts, len(words)]


def unit(vector: Vector) -> Vector:
    """The vector scaled to length 1, as float32. A zero vector is not changed. Raises `EmbedderError` for a
    vector that is not finite.
    """
    length = float(np.linalg.norm(vector))
    if not np.isfinite(length):
        raise EmbedderError("the embedding model gave a vector that is not finite")
    return np.asarray(vector / length if length else vector, np.float32)


class OnnxEngine:
    """A model in a folder, run directly on onnxruntime: an ONNX graph, its tokenizer, and optionally the way
    to pool its vectors in `1_Pooling/config.json` (the mean by default).

    A graph with an output for the whole text needs no pooling. The import of fastembed would take 1.1 s.
    """

    def __init__(self, folder: str, model_file: str) -> None:
        """Loads the model. Raises the errors of onnxruntime and tokenizers."""
        onnxruntime = load_onnxruntime()
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            os.path.join(folder, model_file), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {entry.name for entry in self._session.get_inputs()}
        outputs = [output.name for output in self._session.get_outputs()]
        self._output = "sentence_embedding" if "sentence_embedding" in outputs else outputs[0]
        self._pooling: dict[str, Any] = {}
        if os.path.exists(path := os.path.join(folder, "1_Pooling", "config.json")):
            with open(path, encoding="utf-8") as file:
                self._pooling = json.load(file)
        self.tokenizer = tokenizers.Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
        self.tokenizer.no_padding()
        with open(os.path.join(folder, "tokenizer_config.json"), encoding="utf-8") as file:
            self.tokenizer.enable_truncation(min(json.load(file)["model_max_length"], BLOCK_CHARS))

    def passage(self, text: str) -> Vector:
        ids = np.array([self.tokenizer.encode(text).ids], np.int64)
        values = {
            "input_ids": ids,
            "attention_mask": np.ones_like(ids),
            "token_type_ids": np.zeros_like(ids),
        }
        feed = {name: values[name] for name in self._inputs}
        vector: Vector = self._session.run([self._output], feed)[0][0]
        if vector.ndim == 2:  # a vector for each token
            if self._pooling.get("pooling_mode_cls_token"):
                vector = vector[0]
            else:
                vector = vector[-1] if self._pooling.get("pooling_mode_lasttoken") else vector.mean(axis=0)
        return vector

    query = passage


class FastembedEngine:
    """A model loaded by fastembed."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self.tokenizer = model.model.tokenizer

    def passage(self, text: str) -> Vector:
        result: Vector = next(iter(self._model.passage_embed([text], batch_size=1)))
        return result

    def query(self, text: str) -> Vector:
        result: Vector = next(iter(self._model.query_embed([text])))
        return result


Engine = OnnxEngine | FastembedEngine


def load_named(name: str, cache_dir: str, *, download: bool) -> FastembedEngine:
    """Loads a model on fastembed's list from the cache. If it is missing there, downloads it if `download`,
    else raises `EmbedderError`. Raises `ConfigError` for a name that is not listed.
    """
    fastembed = _fastembed()
    listed_dim(name)
    try:
        return FastembedEngine(
            fastembed.TextEmbedding(name, cache_dir=cache_dir, threads=1, local_files_only=True)
        )
    except ValueError as error:
        if not download:
            raise EmbedderError(
                f"the embedding model '{name}' is not on this machine yet; run `ctx embed pending` to "
                "download it"
            ) from error
    # A warning, so that it is shown at every log level: the download can take minutes.
    logger.warning("downloading the embedding model '%s'; this happens once and may take minutes", name)
    try:
        return FastembedEngine(fastembed.TextEmbedding(name, cache_dir=cache_dir, threads=1))
    except (ValueError, OSError) as error:
        raise EmbedderError(
            f"the embedding model '{name}' could not be downloaded; connect to the network once, or set "
            "[embedding] model to a folder that contains it"
        ) from error


# name -> number of dimensions, for models that are not on fastembed's list. According to their model cards,
# both use the mean over the tokens. Their graph is `onnx/model.onnx`.
_FURTHER_MODELS = {"intfloat/multilingual-e5-small": 384, "intfloat/multilingual-e5-base": 768}
_registering = threading.Lock()  # fastembed's list of models is global


def _add_further_models(fastembed: Any) -> None:
    from fastembed.common.model_description import ModelSource, PoolingType

    with _registering:
        listed = {entry["model"] for entry in fastembed.TextEmbedding.list_supported_models()}
        for name in _FURTHER_MODELS.keys() - listed:
            fastembed.TextEmbedding.add_custom_model(
                model=name,
                pooling=PoolingType.MEAN,
                normalization=True,
                sources=ModelSource(hf=name),
                dim=_FURTHER_MODELS[name],
                model_file="onnx/model.onnx",
            )


def listed_dim(name: str) -> int:
    """The number of dimensions of a listed model. Raises `ConfigError` for a name that is not listed."""
    models = {entry["model"].lower(): entry for entry in _fastembed().TextEmbedding.list_supported_models()}
    if name.lower() not in models:
        matches = difflib.get_close_matches(name.lower(), models, n=3, cutoff=0.3)
        hint = f" (near: {', '.join(models[key]['model'] for key in matches)})" if matches else ""
        raise ConfigError(
            f"[embedding] model: '{name}' is neither a folder nor a model that fastembed knows{hint}"
        )
    return int(models[name.lower()]["dim"])


def _fastembed() -> Any:
    """The fastembed module. The first call takes 0.5 s."""
    load_onnxruntime()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    # Texts are tokenised one at a time, and extra threads would make a later fork unsafe.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    import fastembed
    import loguru

    # fastembed logs to stderr; we raise errors instead.
    loguru.logger.disable("fastembed")
    _add_further_models(fastembed)
    return fastembed
