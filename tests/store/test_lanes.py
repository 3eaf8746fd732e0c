"""Blocks of codes: what they say is within what they promise; leads, and what a search by them finds."""

import os
from pathlib import Path

import numpy as np
import pytest
from faults import eventually

from ctx.store import lanes, vector_writer, vectors
from ctx.store.codes import Floats
from ctx.store.rows import VectorBatch
from ctx.store.vector_writer import VectorWriter
from ctx.store.vectors import VectorReader, VectorsDamaged, check_vectors
from ctx.types import Filters

DIM = 256
COUNT = 3000
NO_FILTERS = Filters()


def units(seed: int, count: int, dim: int = DIM) -> Floats:
    """Of very different shapes: from one large component to all alike."""
    chance = np.random.default_rng(seed)
    matrix = chance.standard_normal((count, dim)) ** chance.integers(1, 8, (count, 1))
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return np.asarray(matrix, np.float32)


def texts(seed: int, count: int) -> Floats:
    """As vectors of texts are: long in some directions, short in most, with neighbours."""
    chance = np.random.default_rng(seed)
    lengths = 1 / np.arange(1, DIM + 1) ** 0.7
    topics = np.random.default_rng(99).standard_normal((60, DIM)) * lengths
    rows = topics[chance.integers(0, 60, count)] + 0.6 * chance.standard_normal((count, DIM)) * lengths
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), np.float32)


def batch(rows: Floats, first: int = 0) -> VectorBatch:
    numbers = np.arange(first, first + len(rows))
    return VectorBatch(numbers, numbers, [f"source {no % 7}" for no in numbers], numbers, rows)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks and thresholds so small that a thousand rows have leads."""
    monkeypatch.setattr(lanes, "ROWS", 256)
    monkeypatch.setattr(vectors, "CODED_ROWS", 512)
    monkeypatch.setattr(vectors, "LEAD_ROWS", 1024)
    monkeypatch.setattr(vector_writer, "LEAD_ROWS", 1024)
    monkeypatch.setattr(vectors, "LEAD_CANDIDATES", 400)


def written(folder: Path, rows: Floats, step: int = 700) -> None:
    with VectorWriter(str(folder), "m") as writer:
        for first in range(0, len(rows), step):
            writer.put(batch(rows[first : first + step], first))
            writer.publish(first + 1, "h")
    vector_writer._verified.clear()  # as in a process that starts


def numbers(folder: Path, query: Floats, k: int, filters: Filters = NO_FILTERS) -> list[int]:
    return [hit.chunk_no for hit in VectorReader(str(folder), "m").search(query, filters, k)]


@pytest.mark.parametrize("dim", [1, 3, 63, 384, 1024])
def test_an_estimate_of_a_block_is_within_its_margin(dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "ROWS", 64)
    rows = units(dim, 128, dim)
    blocks = lanes.Blocks(np.concatenate([lanes.encode_block(rows[:64]), lanes.encode_block(rows[64:])]), dim)
    for query in units(dim + 1, 20, dim):
        scores, margins = blocks.estimate(query, 0, 2)
        assert (np.abs(scores - rows.astype(np.float64) @ query.astype(np.float64)) <= margins).all()
        assert (blocks.estimate(query, 1, 2).scores == scores[64:]).all()


def test_products_of_a_block_are_not_clipped_where_they_are_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    # Two products of bytes in 16 bits, as processors without VNNI add them.
    monkeypatch.setattr(lanes, "ROWS", 2)
    rows = np.stack([np.full(384, 384**-0.5), np.full(384, -(384**-0.5))]).astype(np.float32)
    blocks = lanes.Blocks(lanes.encode_block(rows), 384)
    for sign in (1, -1):
        assert blocks.scores(sign * rows[0], 0, 1) == pytest.approx([sign, -sign], abs=1e-3)


@pytest.mark.slow
def test_a_basis_is_orthonormal_and_the_same_each_time() -> None:
    sample = texts(1, 2000)
    basis = lanes.lead_basis(sample)
    assert basis.T @ basis == pytest.approx(np.eye(lanes.LEAD_DIMS), abs=1e-5)
    assert (basis == lanes.lead_basis(sample)).all()
    assert (np.linalg.norm(sample @ basis, axis=1) ** 2).mean() > 0.85


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_a_search_by_leads_finds_what_looking_at_every_vector_does(tmp_path: Path) -> None:
    rows = texts(2, COUNT)
    written(tmp_path, rows)
    assert list(tmp_path.glob("1.leads-*"))
    common = 0
    for query in texts(3, 50):
        exact = np.argsort(-(rows.astype(np.float64) @ query.astype(np.float64)))[:10].tolist()
        common += len({*exact} & {*numbers(tmp_path, query, 10)})
    assert common >= 495
    # A row of its own is found wherever it stands, also behind the last block, and with filters.
    for no in (0, 255, 256, 1500, COUNT - 1):
        assert numbers(tmp_path, rows[no], 1) == [no]
        narrow = Filters(sources=frozenset({f"source {no % 7}"}))
        reply = numbers(tmp_path, rows[no], 40, narrow)
        assert reply[0] == no
        assert {number % 7 for number in reply} == {no % 7}
    assert numbers(tmp_path, rows[5], 40, Filters(since_ms=COUNT - 20)) != []


@pytest.mark.usefixtures("small")
@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="tells what is mapped as Linux does")
def test_vectors_that_a_search_looked_at_are_given_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = texts(2, COUNT)
    written(tmp_path, rows)
    reader = VectorReader(str(tmp_path), "m")
    reader.search(rows[0], NO_FILTERS, 10)
    assert resident_kb("1.vectors") > 0
    monkeypatch.setattr(vectors, "_TOUCHED_ROWS", 0)
    assert reader.search(rows[0], NO_FILTERS, 10)[0].chunk_no == 0
    eventually(lambda: resident_kb("1.vectors") == 0, "the vectors stay mapped")
    assert reader.search(rows[1], NO_FILTERS, 10)[0].chunk_no == 1


def resident_kb(name: str) -> int:
    """How much of the files of a name this process has mapped in memory."""
    total, ours = 0, False
    for line in Path("/proc/self/smaps").read_text("utf-8").splitlines():
        if "-" in line.split(maxsplit=1)[0]:
            ours = line.endswith(f"/{name}")
        elif ours and line.startswith("Rss:"):
            total += int(line.split()[1])
    return total


@pytest.mark.usefixtures("small")
def test_for_many_hits_the_codes_are_looked_through_exactly(tmp_path: Path) -> None:
    rows = texts(2, COUNT)
    written(tmp_path, rows)
    query = texts(4, 1)[0]
    exact = np.sort(rows.astype(np.float64) @ query.astype(np.float64))[::-1]
    hits = VectorReader(str(tmp_path), "m").search(query, NO_FILTERS, 1000)
    assert [hit.score for hit in hits] == pytest.approx(exact[:1000].tolist(), abs=2e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_dimensions_of_leads_are_told_anew_when_there_are_four_times_as_many_rows(tmp_path: Path) -> None:
    rows = texts(5, 6000)
    reader = VectorReader(str(tmp_path), "m")
    with VectorWriter(str(tmp_path), "m") as writer:
        for first in range(0, 6000, 1100):
            writer.put(batch(rows[first : first + 1100], first))
            writer.publish(first + 1, "h")
            assert [hit.chunk_no for hit in reader.search(rows[first + 3], NO_FILTERS, 1)] == [first + 3]
    assert [path.name for path in tmp_path.glob("*.leads-*")] == ["1.leads-2"]
    assert check_vectors(str(tmp_path), "m") == []


@pytest.mark.usefixtures("small")
def test_leads_that_are_damaged_are_told_and_made_anew(tmp_path: Path) -> None:
    rows = texts(6, COUNT)
    written(tmp_path, rows)
    path = tmp_path / "1.leads-1"
    for offset in (50, os.path.getsize(path) - 50):
        data = path.read_bytes()
        path.write_bytes(data[:offset] + bytes([data[offset] ^ 0x40]) + data[offset + 1 :])
        with pytest.raises(VectorsDamaged):
            numbers(tmp_path, rows[0], 1)
        path.write_bytes(data)
    reader = VectorReader(str(tmp_path), "m")
    assert reader.search(rows[0], NO_FILTERS, 1)
    os.truncate(path, 4096)
    with pytest.raises(VectorsDamaged):
        reader.search(rows[0], NO_FILTERS, 1)
    path.unlink()
    with VectorWriter(str(tmp_path), "m") as writer:
        assert writer.row_count == 0
        writer.put(batch(rows))
        writer.publish(1, "h")
    assert numbers(tmp_path, rows[9], 1) == [9]


@pytest.mark.usefixtures("small")
def test_vectors_behind_the_last_block_that_are_damaged_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "LEAD_CANDIDATES", 100)
    rows = texts(8, COUNT)
    written(tmp_path, rows)
    reader = VectorReader(str(tmp_path), "m")
    assert reader.search(rows[0], NO_FILTERS, 1)[0].chunk_no == 0
    behind = COUNT // 256 * 256
    assert COUNT - behind > 100
    with open(tmp_path / "1.vectors", "r+b") as file:
        file.seek(4 * DIM * behind)
        file.write(b"\xff" * 4 * DIM * (COUNT - behind))
    reader = VectorReader(str(tmp_path), "m")
    monkeypatch.setattr(vectors.Snapshot, "_check_blocks", lambda *_: None)  # as if it was damaged since
    with pytest.raises(VectorsDamaged):
        reader.search(rows[0], NO_FILTERS, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_leads_outlive_a_clearing_away_of_dead_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vector_writer, "COMPACT_MIN_DEAD", 10)
    rows = texts(7, COUNT)
    written(tmp_path, rows)
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.retain(dict.fromkeys(range(0, COUNT, 3), ()))
        writer.publish(9999, "h")
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"state", "2"}
    assert list(tmp_path.glob("2.leads-*"))
    assert numbers(tmp_path, rows[301], 1) == [301]
    assert numbers(tmp_path, rows[300], 1) != [300]
