"""The vector index: exact, consistent while it is written, no answers from damaged files."""

import os
import random
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.errors import StoreError
from ctx.models import Filters, Hit
from ctx.store import segments as segments_module
from ctx.store import vectors as vectors_module
from ctx.store.folder import IndexDamaged, read_state
from ctx.store.index import LocalIndex
from ctx.store.record import VectorBatch
from ctx.store.segments import CODED_ROWS, segment_sizes
from ctx.store.vectors import VectorWriter, open_snapshot

DIM = 8


def unit(seed: int, dim: int = DIM) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def units(seed: int, count: int, dim: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).standard_normal((count, dim)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def batch(rows: Iterable[tuple[int, int, str, int, np.ndarray]]) -> VectorBatch:
    """Of (chunk_no, document_no, source, updated_ms, vector)."""
    chunk_nos, document_nos, sources, updated_ms, vectors = zip(*rows, strict=True)
    return VectorBatch(
        np.array(chunk_nos), np.array(document_nos), list(sources), np.array(updated_ms), np.stack(vectors)
    )


def numbered(first: int, last: int) -> VectorBatch:
    """Chunks `[first, last)`, two to a document, a vector of its own each."""
    return batch((no, no // 2, "s", no, unit(no)) for no in range(first, last))


def of_matrix(vectors: np.ndarray, first: int = 1) -> VectorBatch:
    """Chunks numbered from `first`; every twentieth is of the source `rare`."""
    nos = np.arange(first, first + len(vectors))
    return VectorBatch(nos, nos, ["s" if no % 20 else "rare" for no in nos], nos, vectors)


def nearest(
    folder: Path,
    query: np.ndarray,
    k: int = 5,
    filters: Filters = Filters(),  # noqa: B008
    model: str = "m",
) -> list[Hit]:
    snapshot = open_snapshot(str(folder), model)
    return snapshot.search(query, filters, k) if snapshot else []


def index_of(vectors: Path) -> LocalIndex:
    """The index whose vectors are in this folder."""
    return LocalIndex(str(vectors.parent), lambda: "m")


def numbers(hits: list[Hit]) -> list[int]:
    return [hit.chunk_no for hit in hits]


def segments(folder: Path) -> list[int]:
    """The rows of each published segment."""
    return [entry["rows"] for entry in (read_state(str(folder / "state")) or {})["segments"]]


# -- searching -----------------------------------------------------------------------------------------------
@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(1, 120),
    distinct=st.integers(1, 40),
    k=st.integers(0, 130),
    sources=st.none() | st.frozensets(st.sampled_from(["a", "b", "c", "unknown"])),
    since=st.none() | st.integers(0, 20),
    until=st.none() | st.integers(0, 20),
    documents=st.none() | st.frozensets(st.integers(1000, 11_000), max_size=50),
    dead=st.integers(0, 30),
    coded=st.booleans(),
)
def test_a_search_equals_a_scan_of_every_vector(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    count: int,
    distinct: int,
    k: int,
    sources: frozenset[str] | None,
    since: int | None,
    until: int | None,
    documents: frozenset[int] | None,
    dead: int,
    coded: bool,
) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    chance = random.Random(seed)
    # Fewer vectors than rows, so that there are ties.
    rows = {
        no: (no, 1000 + no, chance.choice("abc"), chance.randint(0, 20), unit(chance.randrange(distinct)))
        for no in chance.sample(range(10_000), count)
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(segments_module, "CODED_ROWS", 1 if coded else 10**9)
        writer = VectorWriter(str(folder), "m")
        for start in range(0, count, 50):
            writer.put(batch(list(rows.values())[start : start + 50]))
            if start % 100 == 0:
                writer.publish(1, f"h{start}")
        for no in chance.sample(sorted(rows), min(dead, count)):
            writer.retain({1000 + no: ()})
            del rows[no]
        writer.publish(2, "h")
        query = unit(seed % 1000)
        entries = [
            (-round(float(vector.astype(np.float64) @ query.astype(np.float64)), 6), no)
            for no, document_no, source, updated_ms, vector in rows.values()
            if (sources is None or source in sources)
            and (since is None or updated_ms >= since)
            and (until is None or updated_ms <= until)
            and (documents is None or document_no in documents)
        ]
        hits = nearest(folder, query, k, Filters(sources, since, until, documents=documents))
    assert numbers(hits) == [no for _, no in sorted(entries)[:k]]
    assert [hit.document_no for hit in hits] == [1000 + hit.chunk_no for hit in hits]
    assert [round(hit.score, 6) for hit in hits] == pytest.approx(
        [-score for score, _ in sorted(entries)[:k]], abs=2e-6
    )


def test_a_query_of_another_size_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    writer = VectorWriter(str(tmp_path), "m")
    writer.put(numbered(1, 10))
    writer.publish(1, "h")
    with pytest.raises(StoreError, match="dimensions"):
        nearest(tmp_path, unit(1, 16))


# -- writing -------------------------------------------------------------------------------------------------
def test_what_is_not_published_is_not_seen_and_lost_at_the_end(tmp_path: Path) -> None:
    writer = VectorWriter(str(tmp_path), "m")
    writer.put(numbered(1, 10))
    writer.publish(1, "h")
    writer.put(numbered(10, 20))
    writer.retain({1: ()})
    assert len(nearest(tmp_path, unit(1), 99)) == 9
    writer = VectorWriter(str(tmp_path), "m")
    assert (writer.applied, writer.history, writer.row_count, writer.alive_count) == (1, "h", 9, 9)
    writer.put(numbered(30, 33))
    writer.publish(2, "h2")
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == [*range(1, 10), 30, 31, 32]


def test_a_reader_sees_each_state_whole_while_a_writer_publishes(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    reader = index_of(folder)
    writer = VectorWriter(str(folder), "m")
    for step in range(1, 40):
        writer.put(
            batch((no, step, f"source {step}", step, unit(no)) for no in range(step * 10, step * 10 + 10))
        )
        if step > 1:
            writer.retain({step - 1: ()})
        writer.publish(step, "h")
        hits = reader.semantic(unit(step * 10 + 3), Filters(), 100, "m")
        assert sorted(numbers(hits)) == list(range(step * 10, step * 10 + 10))
        assert hits[0].chunk_no == step * 10 + 3
        assert len(reader.semantic(unit(1), Filters(sources=frozenset({f"source {step}"})), 100, "m")) == 10
        assert reader.semantic(unit(1), Filters(sources=frozenset({f"source {step - 1}"})), 100, "m") == []


# Publishes states of which each replaces every row of the one before, of 60 rows by an own source each.
PUBLISHING = """
import sys
from test_vectors import batch, unit
from ctx.store.vectors import VectorWriter
for step in range(1, 10**6):
    writer = VectorWriter(sys.argv[1], "m")
    first = writer.applied + 1
    writer.retain({writer.applied: ()})
    writer.put(batch((60 * first + n, first, f"source {first}", first, unit(n)) for n in range(60)))
    writer.publish(first, f"h{first}")
    print(first, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_one_state_or_the_next(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(__file__)}
    reader = index_of(folder)
    published = 0
    for lines in (1, 2, 5, 9):
        command = [sys.executable, "-c", PUBLISHING, str(folder)]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        assert child.stdout is not None
        for _ in range(lines):
            published = int(child.stdout.readline())
            hits = reader.semantic(unit(0), Filters(), 100, "m")
            assert len(hits) == 60
            assert len({hit.document_no for hit in hits}) == 1
        child.send_signal(signal.SIGKILL)
        child.communicate()
        for view in (reader, index_of(folder)):
            hits = view.semantic(unit(0), Filters(), 100, "m")
            assert len(hits) == 60
            [state] = {hit.document_no for hit in hits}
            assert state >= published
        assert VectorWriter(str(folder), "m").applied == state


def test_the_files_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        writer = VectorWriter(str(tmp_path / "vectors"), "m")
        writer.put(numbered(1, 10))
        writer.publish(1, "h")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "vectors").stat().st_mode) == 0o700
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "vectors").iterdir()} == {"0o600"}


# -- damage --------------------------------------------------------------------------------------------------
COUNT = CODED_ROWS + 100


def built(folder: Path) -> None:
    writer = VectorWriter(str(folder), "m")
    writer.put(of_matrix(units(2, COUNT, DIM)))
    writer.retain({7: ()})
    writer.publish(5, "h")


def segment(folder: Path) -> Path:
    [path] = folder.glob("*.segment")
    return path


def flip(path: Path, offset: int) -> None:
    """Changes a byte and nothing else: not even the time of the file tells."""
    before = path.stat()
    with open(path, "r+b") as file:
        file.seek(offset)
        byte = file.read(1)
        file.seek(offset)
        file.write(bytes([byte[0] ^ 0x40]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the state is gone": lambda folder: (folder / "state").unlink(),
    "the state is cut": lambda folder: os.truncate(folder / "state", 60),
    "the state is empty": lambda folder: os.truncate(folder / "state", 0),
    "a byte of the state": lambda folder: flip(folder / "state", 40),
    "the segment is gone": lambda folder: segment(folder).unlink(),
    "the segment is cut": lambda folder: os.truncate(segment(folder), 1000),
    "the segment is longer": lambda folder: os.truncate(segment(folder), 10_000_000),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_writer_that_finds_damage_starts_over_and_says_so_once(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    built(tmp_path)
    DAMAGES[damage](tmp_path)
    writer = VectorWriter(str(tmp_path), "m")
    assert (writer.applied, writer.row_count) == (0, 0)
    writer.put(numbered(0, 50))
    writer.publish(6, "h2")
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == list(range(50))
    VectorWriter(str(tmp_path), "m")
    assert caplog.text.count("vectors are rebuilt") == (damage != "the state is gone")


@pytest.mark.parametrize("damage", sorted(set(DAMAGES) - {"the state is gone"}))
def test_a_reader_that_finds_damage_says_so(tmp_path: Path, damage: str) -> None:
    built(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(StoreError, match="ctx index"):
        nearest(tmp_path, unit(1), 10)


@pytest.mark.parametrize("name", ["../1.segment", "/etc/passwd", "1.vectors", ""])
def test_a_state_that_names_another_file_is_damaged(tmp_path: Path, name: str) -> None:
    built(tmp_path)
    path = str(tmp_path / "state")
    fields = read_state(path) or {}
    fields["segments"][0]["name"] = name
    vectors_module.write_state(path, fields)
    with pytest.raises(IndexDamaged):
        nearest(tmp_path, unit(1), 10)


@pytest.mark.parametrize("coded", [True, False])
def test_a_damaged_row_is_never_a_result(tmp_path: Path, coded: bool) -> None:
    folder = tmp_path / "vectors"
    rows = units(2, COUNT if coded else 500, DIM)
    writer = VectorWriter(str(folder), "m")
    writer.put(of_matrix(rows))
    writer.publish(1, "h")
    reader = index_of(folder)
    assert numbers(reader.semantic(rows[49], Filters(), 1, "m")) == [50]
    table_bytes, *_ = segment_sizes(len(rows), DIM)
    for damage in (10 * rows[49], np.full(DIM, np.nan)):
        with open(segment(folder), "r+b") as file:
            file.seek(table_bytes + 49 * DIM * 4)
            file.write(damage.astype("<f4").tobytes())
        with pytest.raises(IndexDamaged):
            reader.semantic(rows[49], Filters(), 1, "m")


def test_a_file_cut_under_a_reader_is_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    folder = tmp_path / "vectors"
    built(folder)
    reader = index_of(folder)
    assert reader.semantic(unit(1), Filters(), 1, "m")
    os.truncate(segment(folder), 4096)
    with pytest.raises(IndexDamaged):
        reader.semantic(unit(1), Filters(), 1, "m")
