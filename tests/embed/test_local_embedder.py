"""The model that ships with ctx, and models from a folder or a download."""

import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ctx.embed.local import LocalEmbedder
from ctx.errors import ConfigError, EmbedderError

SHIPPED_FOLDER = Path(__file__).parents[2] / "ctx" / "embed" / "all-MiniLM-L6-v2"

PROSE = (
    "The harbour master keeps a log of every vessel that enters the port, with her draught and the state of "
    "the tide.",
    "def retry(call, tries=3):\n    for attempt in range(tries):\n        try:\n            return call()\n "
    "       except OSError:\n"
    "            if attempt == tries - 1:\n                raise",
    "Install the package, then run `make serve`. The server listens on the loopback address only.",
    "Photosynthesis turns light, water and carbon dioxide into sugar and oxygen.",
    "Database > Backups\nA backup is pulled every night at two and kept for thirty days.",
)


@pytest.fixture(scope="module")
def embedder() -> Iterator[LocalEmbedder]:
    embedder = LocalEmbedder(threads=2)
    yield embedder
    embedder.close()


def test_vectors_are_float32_of_unit_length_in_the_order_of_the_texts(embedder: LocalEmbedder) -> None:
    vectors = list(embedder.embed(PROSE))
    assert [vector.dtype for vector in vectors] == [np.float32] * len(PROSE)
    assert {vector.shape for vector in vectors} == {(embedder.dim,)} == {(384,)}
    assert np.allclose([np.linalg.norm(vector) for vector in vectors], 1, atol=1e-6)
    assert embedder.embed_query(PROSE[3]) @ vectors[3] > 0.999


def test_a_question_is_nearest_to_the_passage_that_answers_it(embedder: LocalEmbedder) -> None:
    matrix = np.array(list(embedder.embed(PROSE)))
    for question, answer in (
        ("how often is the database backed up?", 4),
        ("ships arriving", 0),
        ("call a function again on failure", 1),
    ):
        assert (matrix @ embedder.embed_query(question)).argmax() == answer


def test_a_vector_is_the_same_whatever_its_neighbours_and_order_and_threads(embedder: LocalEmbedder) -> None:
    texts = [
        f"{text} {number}. " + "More of the same follows here. " * (number % 9)
        for number in range(8)
        for text in PROSE
    ]
    alone = {text: next(iter(embedder.embed([text]))) for text in texts}
    shuffled = random.Random(7).sample(texts, len(texts))
    for threads in (1, 3):
        twin = LocalEmbedder(threads=threads)
        for text, vector in zip(shuffled, twin.embed(shuffled), strict=True):
            assert np.array_equal(vector, alone[text])


def test_the_end_of_a_long_text_is_embedded_too(embedder: LocalEmbedder) -> None:
    filler = "The harbour master keeps a log of every vessel that enters the port. " * 40  # some 600 tokens
    needle = "The password of the coffee machine is printed under its lid. " * 3
    without, with_needle = embedder.embed([filler, filler + needle])
    question = embedder.embed_query("where do I find the password of the coffee machine?")
    assert float(question @ with_needle) > float(question @ without) + 0.05


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a\0b",
        "😀🏳️‍🌈",
        "\ud800",
        "ﷺ" * 500,
        "x" * 5000,
        "\u202e" * 300,
    ],
)
def test_no_text_is_too_strange(embedder: LocalEmbedder, text: str) -> None:
    (vector,) = embedder.embed([text])
    assert vector.shape == (384,)
    assert np.isfinite(vector).all()
    assert abs(float(np.linalg.norm(vector)) - 1) < 1e-5
    assert np.array_equal(embedder.embed_query(text), vector)


def test_questions_are_answered_while_a_bulk_runs(embedder: LocalEmbedder) -> None:
    expected = embedder.embed_query("ships arriving")
    stop = threading.Event()
    bulk = threading.Thread(target=lambda: list(embedder.embed(["A text about ships. " * 30] * 5000, stop)))
    bulk.start()
    try:
        answers: list[np.ndarray] = []
        askers = [
            threading.Thread(
                target=lambda: answers.extend(embedder.embed_query("ships arriving") for _ in range(5))
            )
            for _ in range(4)
        ]
        for asker in askers:
            asker.start()
        for asker in askers:
            asker.join(60)
        assert bulk.is_alive(), "the bulk must have been running all the while"
        assert len(answers) == 20
        assert all(np.array_equal(answer, expected) for answer in answers)
    finally:
        stop.set()
        bulk.join(60)
    assert not bulk.is_alive()


def test_the_key_names_the_model_and_changes_with_the_file_and_the_window(tmp_path: Path) -> None:
    shipped = LocalEmbedder()
    assert shipped.model.startswith("all-MiniLM-L6-v2@")
    assert shipped.model == LocalEmbedder("sentence-transformers/all-MiniLM-L6-v2").model
    assert shipped.model != LocalEmbedder(max_tokens=128).model
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "mine")
    first = LocalEmbedder(str(copy)).model
    assert first.startswith("mine@")
    assert first == LocalEmbedder(str(copy)).model
    tokenizer = copy / "tokenizer.json"
    tokenizer.write_bytes(tokenizer.read_bytes() + b"\n")
    assert LocalEmbedder(str(copy)).model != first


def test_no_network_is_touched_and_nothing_is_written(tmp_path: Path) -> None:
    # The hook sees Python's sockets; onnxruntime's own reports to its maker would show by the files they are
    # queued in.
    code = "\n".join(
        (
            "import sys",
            "def watch(event, arguments):",
            "    if event in ('socket.connect', 'socket.getaddrinfo', 'socket.gethostbyname'):",
            "        raise SystemExit(f'network: {event} {arguments}')",
            "sys.addaudithook(watch)",
            "from ctx.config import default_config",
            "from ctx.embed import open_embedder",
            "embedder = open_embedder(default_config('/').embedding, {})",
            "print(len(list(embedder.embed(['hello', 'world']))), len(embedder.embed_query('hello')))",
        )
    )
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),
        "XDG_CACHE_HOME": str(tmp_path),
    }
    completed = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        cwd=tmp_path,
    )
    assert (completed.stdout, completed.stderr) == ("2 384\n", "")
    assert list(tmp_path.rglob("*")) == []


def test_a_folder_with_a_model_works_like_the_shipped_one(tmp_path: Path, embedder: LocalEmbedder) -> None:
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "mine")
    opened = LocalEmbedder(str(copy), max_tokens=256)
    reopened = LocalEmbedder(str(copy), max_tokens=256)
    assert opened.dim == 384
    for mine, shipped in zip(opened.embed(PROSE), embedder.embed(PROSE), strict=True):
        assert np.array_equal(mine, shipped)
    assert np.array_equal(reopened.embed_query(PROSE[0]), embedder.embed_query(PROSE[0]))


def test_a_model_that_cannot_be_fetched_is_our_error_and_names_the_fix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = LocalEmbedder("BAAI/bge-small-en-v1.5", cache_dir=str(tmp_path))
    with pytest.raises(EmbedderError, match=r"could not be downloaded; connect to the network once, or set"):
        list(named.embed(["ships"]))


def test_an_unknown_model_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"'BAAI/bge-smal-en' is neither a folder nor a model .*BAAI/bge-small-en"
    ):
        LocalEmbedder("BAAI/bge-smal-en").embed_query("ships")


@pytest.mark.parametrize(
    ("name", "full_name", "dim"),
    [
        ("all-minilm-l6-v2", "all-MiniLM-L6-v2", 384),
        ("bge-small-en-v1.5", "BAAI/bge-small-en-v1.5", 384),
        ("bge-base-en-v1.5", "BAAI/bge-base-en-v1.5", 768),
        ("bge-large-en-v1.5", "BAAI/bge-large-en-v1.5", 1024),
        ("nomic-embed-text-v1", "nomic-ai/nomic-embed-text-v1", 768),
        ("nomic-embed-text-v1.5", "nomic-ai/nomic-embed-text-v1.5", 768),
        ("multilingual-e5-small", "intfloat/multilingual-e5-small", 384),
        ("multilingual-e5-base", "intfloat/multilingual-e5-base", 768),
        ("multilingual-e5-large", "intfloat/multilingual-e5-large", 1024),
    ],
)
def test_the_nine_names_of_context_harness_name_models_that_can_be_fetched(
    name: str, full_name: str, dim: int, tmp_path: Path
) -> None:
    embedder = LocalEmbedder(name, cache_dir=str(tmp_path))
    assert embedder.model.startswith(f"{full_name}@")
    assert embedder.dim == dim


def test_a_damaged_model_is_our_error(tmp_path: Path) -> None:
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "mine")
    (copy / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(EmbedderError, match="'mine' could not be loaded"):
        list(LocalEmbedder(str(copy)).embed(["ships"]))
    config = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": None}))
    with pytest.raises(EmbedderError, match="'mine' could not be loaded"):
        LocalEmbedder(str(copy)).embed_query("ships")


def test_every_shipped_file_is_the_one_that_was_made() -> None:
    sums = json.loads((SHIPPED_FOLDER / "sha256.json").read_text())["files"]
    assert {name: hashlib.sha256((SHIPPED_FOLDER / name).read_bytes()).hexdigest() for name in sums} == sums


def test_shipped_vectors_are_those_of_the_published_weights(embedder: LocalEmbedder) -> None:
    rows = json.loads((Path(__file__).parent / "reference_vectors.json").read_text(encoding="utf-8"))
    vectors = np.array(list(embedder.embed([row["text"] for row in rows])))
    cosines = (vectors * np.array([row["vector"] for row in rows])).sum(axis=1)
    assert cosines.min() > 0.98
    assert cosines.mean() > 0.99
