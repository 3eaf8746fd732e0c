import json
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ctx.config import default_config
from ctx.embed import open_embedder
from ctx.embed.base import cut_text, prefixes
from ctx.embed.engines import cut_windows, load_folder, unit
from ctx.embed.local import LocalEmbedder
from ctx.errors import ConfigError, EmbedderError
from ctx.text import sound

SHIPPED_FOLDER = Path(__file__).parents[2] / "ctx" / "models" / "all-MiniLM-L6-v2"

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


@pytest.fixture(scope="module")
def tokenizer() -> object:
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(SHIPPED_FOLDER / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(512)
    return tokenizer


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


def test_the_shipped_model_gives_the_vectors_that_fastembed_gives(embedder: LocalEmbedder) -> None:
    engine = load_folder(str(SHIPPED_FOLDER), "model.onnx", "test/shipped", 384)
    for text, vector in zip(PROSE, embedder.embed(PROSE), strict=True):
        assert np.array_equal(vector, unit(engine.passage(text)))
        assert np.array_equal(embedder.embed_query(text), vector)


def test_what_stands_at_the_end_of_a_long_text_is_not_dropped(embedder: LocalEmbedder) -> None:
    filler = "The harbour master keeps a log of every vessel that enters the port. " * 40  # some 600 tokens
    needle = "The password of the coffee machine is printed under its lid. " * 3
    without, with_needle = embedder.embed([filler, filler + needle])
    question = embedder.embed_query("where do I find the password of the coffee machine?")
    assert float(question @ with_needle) > float(question @ without) + 0.05


def test_windows_tile_the_text_and_none_is_longer_than_asked(tokenizer: object) -> None:
    text = (
        "".join(
            f"Sentence {number} says don't-stop, naïve Zürich, 東京{number}!\n\t" for number in range(900)
        )
        + "end"
    )
    for size in (32, 128, 256, 512):
        windows = list(cut_windows(tokenizer, text, size))
        assert "".join(window.text for window in windows) == text
        lengths = [len(tokenizer.encode(window.text).ids) for window in windows]  # type: ignore[attr-defined]
        assert max(lengths) <= size
        assert all(tokenizer.encode(window.text).overflowing == [] for window in windows)  # type: ignore[attr-defined]


def test_windows_are_even_and_cut_between_words(tokenizer: object) -> None:
    text = " ".join(["extraordinarily", "hyperparameterised"] * 200)
    windows = list(cut_windows(tokenizer, text, 256))
    weights = [window.weight for window in windows]
    assert max(weights) - min(weights) <= 16
    assert all(set(window.text.split()) <= {"extraordinarily", "hyperparameterised"} for window in windows)


def test_a_text_that_just_fits_is_one_window(tokenizer: object) -> None:
    assert [window.text for window in cut_windows(tokenizer, "word " * 254, 256)] == ["word " * 254]
    assert len(list(cut_windows(tokenizer, "word " * 255, 256))) == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "\n\t \u00a0",
        "\0",
        "a\0b",
        "😀🏳️‍🌈",
        "\ud800",
        "x\udfffy",
        "\ufffe\uffff",
        "ﷺ" * 500,
        "́" * 2000,
        "한글" * 400,
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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_text_of_a_megabyte_is_embedded_and_a_question_as_long_is_cut_short(
    embedder: LocalEmbedder,
) -> None:
    text = "The harbour master keeps a log of every vessel that enters. " * 17_000
    started = time.monotonic()
    embedder.embed_query(text)
    question_s = time.monotonic() - started
    (vector,) = embedder.embed([text])
    assert np.isfinite(vector).all()
    assert question_s < (time.monotonic() - started) / 10


def test_a_stop_ends_a_bulk_and_keeps_what_is_done(embedder: LocalEmbedder) -> None:
    stop = threading.Event()
    texts = ["A long text about ships and harbours. " * 40_000] * 50  # each some minutes of work
    vectors = embedder.embed(["short", "short too", *texts], stop)
    first = next(vectors)
    threading.Timer(0.2, stop.set).start()
    remainder = list(vectors)
    assert len(remainder) <= 1
    assert np.array_equal(first, embedder.embed_query("short"))
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("embed")]


def test_a_reader_that_leaves_early_leaves_no_thread_behind(embedder: LocalEmbedder) -> None:
    vectors = embedder.embed(["short", *["A long text about ships and harbours. " * 40_000] * 20])
    next(vectors)
    vectors.close()  # type: ignore[attr-defined]
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("embed")]


def test_only_a_few_texts_are_taken_ahead_of_the_reader(embedder: LocalEmbedder) -> None:
    pulled = 0

    class Texts(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal pulled
            for text in super().__iter__():
                pulled += 1
                yield text

    vectors = embedder.embed(Texts(["ship"] * 1000))
    next(vectors)
    assert pulled <= 2 * 2 + 2
    vectors.close()  # type: ignore[attr-defined]


def test_a_stop_that_is_already_set_gives_nothing(embedder: LocalEmbedder) -> None:
    stop = threading.Event()
    stop.set()
    assert list(embedder.embed(PROSE, stop)) == []
    assert list(embedder.embed([])) == []


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


def test_many_threads_that_ask_first_load_one_model() -> None:
    embedder = LocalEmbedder()
    barrier = threading.Barrier(6)
    engines: list[object] = []

    def ask() -> None:
        barrier.wait()
        embedder.embed_query("hello")
        engines.append(embedder._engine)

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, engines))) == 1
    assert len(engines) == 6


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


def test_opening_loads_neither_numpy_nor_a_model() -> None:
    code = "\n".join(
        (
            "import sys",
            "from dataclasses import replace",
            "from ctx.config import default_config",
            "from ctx.embed import open_embedder",
            "settings = default_config('/').embedding",
            "embedder = open_embedder(settings, {})",
            "assert embedder.model.startswith('all-MiniLM') and embedder.dim == 384",
            "assert open_embedder(replace(settings, provider='disabled'), {}) is None",
            "print([name for name in ('numpy', 'httpx', 'onnxruntime', 'fastembed') if name in sys.modules])",
            "embedder.embed_query('hello')",
            "print('fastembed' in sys.modules)",
        )
    )
    completed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert completed.stdout.split("\n")[:2] == ["[]", "False"], completed.stderr


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


def test_a_folder_that_does_not_tell_its_size_is_asked_with_a_text(tmp_path: Path) -> None:
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "mine")
    (copy / "config.json").unlink()
    assert LocalEmbedder(str(copy)).dim == 384


def test_a_folder_named_after_a_model_with_prefixes_gets_them(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "multilingual-e5-small")
    prefixed = LocalEmbedder(str(copy), max_tokens=256)
    assert np.array_equal(prefixed.embed_query("ships"), embedder.embed_query("query: ships"))
    assert np.array_equal(next(iter(prefixed.embed(["ships"]))), embedder.embed_query("passage: ships"))


def test_a_model_of_fastembeds_list_is_found_in_the_cache_by_name(
    tmp_path: Path, embedder: LocalEmbedder
) -> None:
    # Laid out as a download leaves it; the weights are the shipped ones, which fit the listed model's file
    # name and size.
    snapshot = tmp_path / "models--Qdrant--bge-small-en-v1.5-onnx-Q" / "snapshots" / "0123abc"
    shutil.copytree(SHIPPED_FOLDER, snapshot)
    (snapshot / "model.onnx").rename(snapshot / "model_optimized.onnx")
    refs = snapshot.parents[1] / "refs"
    refs.mkdir()
    (refs / "main").write_text("0123abc")
    named = LocalEmbedder("BAAI/bge-small-en-v1.5", cache_dir=str(tmp_path))
    assert named.model.startswith("BAAI/bge-small-en-v1.5@")
    assert named.dim == 384
    question = "Represent this sentence for searching relevant passages: ships"
    assert np.allclose(named.embed_query("ships"), embedder.embed_query(question), atol=1e-6)
    assert np.allclose(next(iter(named.embed(["ships"]))), embedder.embed_query("ships"), atol=1e-6)


def test_a_question_never_starts_a_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = LocalEmbedder("BAAI/bge-small-en-v1.5", cache_dir=str(tmp_path))
    with pytest.raises(EmbedderError, match="is not on this machine yet; `ctx embed pending` fetches it"):
        named.embed_query("ships")


def test_a_model_that_cannot_be_fetched_is_our_error_and_names_the_mend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    named = LocalEmbedder("BAAI/bge-small-en-v1.5", cache_dir=str(tmp_path))
    with pytest.raises(EmbedderError, match=r"could not be fetched; connect once, or name a folder"):
        list(named.embed(["ships"]))


def test_an_unknown_model_is_an_error_that_names_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match=r"'BAAI/bge-smal-en' is neither a folder nor a model .*BAAI/bge-small-en"
    ):
        _ = LocalEmbedder("BAAI/bge-smal-en").dim


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


def test_a_folder_that_lacks_files_is_an_error_that_names_them(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no model.onnx, tokenizer.json, tokenizer_config.json"):
        LocalEmbedder(str(tmp_path))
    with pytest.raises(ConfigError, match=r"has no model.onnx"):
        LocalEmbedder("./nowhere")


def test_dims_that_are_not_the_models_are_an_error() -> None:
    with pytest.raises(ConfigError, match=r"gives vectors of 384, not 512; delete the key"):
        open_embedder(replace(default_config("/").embedding, dims=512), {})


def test_a_damaged_model_is_our_error(tmp_path: Path) -> None:
    copy = shutil.copytree(SHIPPED_FOLDER, tmp_path / "mine")
    (copy / "model.onnx").write_bytes(b"not a graph")
    with pytest.raises(EmbedderError, match="'mine' could not be loaded"):
        list(LocalEmbedder(str(copy)).embed(["ships"]))
    config = json.loads((copy / "tokenizer_config.json").read_text())
    (copy / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": None}))
    with pytest.raises(EmbedderError, match="'mine' could not be loaded"):
        LocalEmbedder(str(copy)).embed_query("ships")


def test_a_closed_embedder_loads_again(embedder: LocalEmbedder) -> None:
    sibling = LocalEmbedder()
    before = sibling.embed_query("ships")
    sibling.close()
    assert np.array_equal(sibling.embed_query("ships"), before)


def test_prefixes_go_by_the_name_wherever_the_model_runs() -> None:
    assert prefixes("intfloat/multilingual-e5-large") == ("query: ", "passage: ")
    assert prefixes("nomic-embed-text:latest") == ("search_query: ", "search_document: ")
    assert prefixes("BAAI/bge-small-en-v1.5").passage == ""
    assert prefixes("BAAI/bge-m3") == ("", "")
    assert prefixes("all-MiniLM-L6-v2") == prefixes("text-embedding-3-small") == ("", "")


def test_cut_text_tiles_and_prefers_white_space() -> None:
    text = "one two three four five six"
    assert list(cut_text(text, 10)) == ["one two ", "three ", "four five ", "six"]
    assert list(cut_text("x" * 25, 10)) == ["x" * 10, "x" * 10, "x" * 5]
    assert list(cut_text("", 10)) == [""]


def test_surrogate_pairs_become_their_character_and_lone_ones_the_replacement() -> None:
    assert sound("a\ud83d\ude00b\ud800") == "a😀b\ufffd"
