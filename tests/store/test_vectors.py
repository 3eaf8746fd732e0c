"""The vector matrix: exact, steady under a writer, and never answering from damaged files."""

import os
import random
import stat
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.errors import StoreError
from ctx.store import lanes, statefile
from ctx.store import vector_writer as writer_module
from ctx.store import vectors as vectors_module
from ctx.store.rows import VectorBatch
from ctx.store.vector_writer import VectorWriter
from ctx.store.vectors import (
    BLOCK_ROWS,
    PATCH,
    ROW,
    VectorReader,
    VectorsDamaged,
    check_vectors,
)
from ctx.types import Filters, Hit

DIM = 8


def unit(seed: int, dim: int = DIM) -> np.ndarray:
    vector = np.random.default_rng(seed).standard_normal(dim).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def batch(rows: Iterable[tuple[int, int, str, int, np.ndarray]]) -> VectorBatch:
    """Of (chunk_no, document_no, source, updated_ms, vector)."""
    chunk_nos, document_nos, sources, updated_ms, vectors = zip(*rows, strict=True)
    return VectorBatch(
        np.array(chunk_nos), np.array(document_nos), list(sources), np.array(updated_ms), np.stack(vectors)
    )


def numbered(first: int, last: int) -> VectorBatch:
    """Chunks `[first, last)`, two to a document, a vector of its own each."""
    return batch((no, no // 2, "s", no, unit(no)) for no in range(first, last))


def nearest(
    folder: Path,
    query: np.ndarray,
    k: int = 5,
    filters: Filters = Filters(),  # noqa: B008
    model: str = "m",
) -> list[Hit]:
    return VectorReader(str(folder), model).search(query, filters, k)


def numbers(hits: list[Hit]) -> list[int]:
    return [hit.chunk_no for hit in hits]


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
    dead=st.integers(0, 30),
    coded=st.booleans(),
    block_rows=st.sampled_from([1, 16, 8192]),
)
def test_a_search_is_what_looking_at_every_vector_gives(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    count: int,
    distinct: int,
    k: int,
    sources: frozenset[str] | None,
    since: int | None,
    until: int | None,
    dead: int,
    coded: bool,
    block_rows: int,
) -> None:
    folder = tmp_path_factory.mktemp("vectors")
    chance = random.Random(seed)
    # Fewer vectors than rows, so that there are ties.
    rows = {
        no: (no, 1000 + no, chance.choice("abc"), chance.randint(0, 20), unit(chance.randrange(distinct)))
        for no in chance.sample(range(10_000), count)
    }
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(vectors_module, "CODED_ROWS", 1 if coded else 10**9)
        patched.setattr(lanes, "ROWS", block_rows)
        with VectorWriter(str(folder), "m") as writer:
            for start in range(0, count, 50):
                writer.put(batch(list(rows.values())[start : start + 50]))
            for no in chance.sample(sorted(rows), min(dead, count)):
                writer.retain({1000 + no: ()})
                del rows[no]
            writer.publish(1, "h")
        query = unit(seed % 1000)
        entries = [
            (-round(float(vector.astype(np.float64) @ query.astype(np.float64)), 6), no)
            for no, _, source, updated_ms, vector in rows.values()
            if (sources is None or source in sources)
            and (since is None or updated_ms >= since)
            and (until is None or updated_ms <= until)
        ]
        hits = nearest(folder, query, k, Filters(sources, since, until))
    assert numbers(hits) == [no for _, no in sorted(entries)[:k]]
    assert [hit.document_no for hit in hits] == [1000 + hit.chunk_no for hit in hits]
    assert [round(hit.score, 6) for hit in hits] == pytest.approx(
        [-score for score, _ in sorted(entries)[:k]], abs=2e-6
    )


@pytest.mark.parametrize("spread", [0.0, 1e-4, 0.01, 1.0])
def test_the_codes_hide_nothing_however_alike_the_rows_are(tmp_path: Path, spread: float) -> None:
    chance = np.random.default_rng(3)
    rows = unit(1, 64) + spread * chance.standard_normal((vectors_module.CODED_ROWS + 500, 64)) / 8
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    query = rows[77]
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(batch((no, no, "rare" if no % 5 == 0 else "s", 0, row) for no, row in enumerate(rows)))
        writer.publish(1, "h")
    exact = rows.astype(np.float64) @ query.astype(np.float64)
    for filters, expected in (
        (Filters(), exact),
        (Filters(sources=frozenset({"rare"})), np.where(np.arange(len(rows)) % 5, -1, exact)),
    ):
        hits = nearest(tmp_path, query, 100, filters)
        assert [hit.score for hit in hits] == pytest.approx(np.sort(expected)[::-1][:100].tolist(), abs=2e-6)


def test_equal_vectors_are_ordered_by_chunk_wherever_they_stand_in_the_matrix(tmp_path: Path) -> None:
    vectors = unit(5000, 384)
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(
            batch(
                (no, no, "s", 0, vectors if no % 7 == 0 else unit(no, 384)) for no in reversed(range(1, 1000))
            )
        )
        writer.publish(1, "h")
    assert numbers(nearest(tmp_path, vectors, 20)) == list(range(7, 141, 7))


def test_few_and_scattered_rows_are_found_too(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(batch((no, no, "rare" if no % 100 == 0 else "s", 0, unit(no)) for no in range(3000)))
        writer.publish(1, "h")
    hits = nearest(tmp_path, unit(700), 100, Filters(sources=frozenset({"rare"})))
    assert hits[0].chunk_no == 700
    assert sorted(numbers(hits)) == list(range(0, 3000, 100))


def test_what_is_known_without_numpy_is_right() -> None:
    assert vectors_module.FORMAT == statefile.VECTORS_FORMAT
    assert (ROW.itemsize, PATCH.itemsize) == (statefile.ROW_BYTES, statefile.PATCH_BYTES)
    assert (lanes.ROWS, lanes.LEAD_DIMS) == (statefile.CODES_ROWS, statefile.LEAD_DIMS)
    sizes = statefile.vector_sizes(
        {"generation": "1", "rows": str(2 * lanes.ROWS + 5), "dim": "384", "patches": "3", "leads": "2"}
    )
    assert sizes["1.codes"] == 2 * lanes.block_bytes(384)
    assert sizes["1.leads-2"] == lanes.basis_bytes(384) + 2 * lanes.block_bytes(lanes.LEAD_DIMS)


def test_nothing_published_finds_nothing(tmp_path: Path) -> None:
    assert nearest(tmp_path / "none", unit(1)) == []
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.publish(3, "h")
    assert nearest(tmp_path, unit(1)) == []


def test_vectors_of_another_model_are_not_searched(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(1, 10))
        writer.publish(1, "h")
    assert nearest(tmp_path, unit(1), model="other") == []
    with VectorWriter(str(tmp_path), "other") as writer:
        assert (writer.applied, writer.row_count) == (0, 0)


def test_a_query_of_another_size_is_an_error_and_not_a_crash(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(1, 10))
        writer.publish(1, "h")
    with pytest.raises(StoreError, match="dimensions"):
        nearest(tmp_path, unit(1, 16))


# -- writing -------------------------------------------------------------------------------------------------
def test_what_is_not_published_is_not_seen_and_lost_at_the_end(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(1, 10))
        writer.publish(1, "h")
        writer.put(numbered(10, 20))
        writer.retain({1: ()})
        assert len(nearest(tmp_path, unit(1), 99)) == 9
    with VectorWriter(str(tmp_path), "m") as writer:
        assert (writer.applied, writer.history, writer.row_count, writer.alive_count) == (1, "h", 9, 9)
        writer.put(numbered(30, 33))
        writer.publish(2, "h2")
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == [*range(1, 10), 30, 31, 32]


def test_a_row_put_again_is_replaced_or_brought_up_to_date(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(1, 10))
        writer.publish(1, "h")
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(batch([(3, 1, "s", 77, unit(3)), (4, 2, "s", 4, unit(400)), (11, 5, "s", 0, unit(11))]))
        assert (writer.row_count, writer.alive_count) == (11, 10)
        writer.put(batch([(11, 5, "s", 1, unit(11)), (11, 5, "s", 2, unit(11))]))
        writer.publish(2, "h")
        assert (writer.row_count, writer.alive_count) == (11, 10)
    assert numbers(nearest(tmp_path, unit(3), 99, Filters(since_ms=77))) == [3]
    assert numbers(nearest(tmp_path, unit(400), 1)) == [4]
    assert numbers(nearest(tmp_path, unit(11), 9, Filters(until_ms=2))) == [
        11,
        *numbers(nearest(tmp_path, unit(11), 9, Filters(until_ms=2)))[1:],
    ]
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == [*range(1, 10), 11]


def test_a_document_keeps_the_rows_of_its_chunks_only(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(2, 10))
        writer.retain({1: (3,), 2: (), 3: (6, 7), 99: ()})
        writer.publish(1, "h")
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == [3, 6, 7, 8, 9]


@pytest.mark.slow
def test_dead_rows_are_cleared_away_and_old_readers_keep_their_view(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer_module, "COMPACT_MIN_DEAD", 10)
    reader = VectorReader(str(tmp_path), "m")
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(0, 3 * BLOCK_ROWS))
        writer.publish(1, "h")
        before = reader.search(unit(5), Filters(), 3)
        snapshot = reader._snapshot
        assert snapshot is not None
        entries = [
            no for no in range(3 * BLOCK_ROWS) if no // 2 % 3 == 0 and not BLOCK_ROWS <= no < 2 * BLOCK_ROWS
        ]
        writer.retain({no // 2: () for no in range(3 * BLOCK_ROWS) if no not in set(entries)})
        writer.publish(2, "h")
        assert writer.row_count == writer.alive_count == len(entries)
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"state", "2"}
    assert snapshot.search(unit(5), Filters(), 3) == before, "the files are deleted, but still open"
    assert sorted(numbers(reader.search(unit(5), Filters(), 10**6))) == entries
    assert numbers(reader.search(unit(entries[77]), Filters(), 1)) == [entries[77]]
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(20_000, 20_010))
        writer.publish(3, "h")
    assert numbers(reader.search(unit(20_003), Filters(), 1)) == [20_003]


def test_other_dimensions_are_told_before_anything_is_mixed(tmp_path: Path) -> None:
    with VectorWriter(str(tmp_path), "m") as writer:
        writer.put(numbered(1, 10))
        with pytest.raises(VectorsDamaged, match="dimensions"):
            writer.put(batch([(11, 1, "s", 0, unit(1, 16))]))
        writer.start_over()
        writer.put(batch([(11, 1, "s", 0, unit(1, 16))]))
        writer.publish(1, "h")
    assert numbers(nearest(tmp_path, unit(1, 16))) == [11]


def test_a_reader_sees_each_state_whole_while_a_writer_publishes(tmp_path: Path) -> None:
    reader = VectorReader(str(tmp_path), "m")
    with VectorWriter(str(tmp_path), "m") as writer:
        for step in range(1, 40):
            writer.put(
                batch((no, step, f"source {step}", step, unit(no)) for no in range(step * 10, step * 10 + 10))
            )
            if step > 1:
                writer.retain({step - 1: ()})
            writer.publish(step, "h")
            hits = reader.search(unit(step * 10 + 3), Filters(), 100)
            assert sorted(numbers(hits)) == list(range(step * 10, step * 10 + 10))
            assert hits[0].chunk_no == step * 10 + 3
            assert len(reader.search(unit(1), Filters(sources=frozenset({f"source {step}"})), 100)) == 10
            assert reader.search(unit(1), Filters(sources=frozenset({f"source {step - 1}"})), 100) == []


def test_the_files_are_private_under_any_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with VectorWriter(str(tmp_path / "vectors"), "m") as writer:
            writer.put(numbered(1, 10))
            writer.publish(1, "h")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "vectors").stat().st_mode) == 0o700
    assert {oct(stat.S_IMODE(path.stat().st_mode)) for path in (tmp_path / "vectors").iterdir()} == {"0o600"}


# -- damage --------------------------------------------------------------------------------------------------
def built(folder: Path) -> None:
    with VectorWriter(str(folder), "m") as writer:
        writer.put(numbered(0, 2 * BLOCK_ROWS + 100))
        writer.retain({7: ()})
        writer.publish(5, "h")
    writer_module._verified.clear()  # as in a process that starts


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
    "the vectors are gone": lambda folder: (folder / "1.vectors").unlink(),
    "the vectors are cut": lambda folder: os.truncate(folder / "1.vectors", 1000),
    "the codes are gone": lambda folder: (folder / "1.codes").unlink(),
    "the codes are cut": lambda folder: os.truncate(folder / "1.codes", 1000),
    "a byte of the last codes": lambda folder: flip(folder / "1.codes", (2 * BLOCK_ROWS + 50) * DIM),
    "a byte of the first codes": lambda folder: flip(folder / "1.codes", 50 * DIM),
    "the rows are gone": lambda folder: (folder / "1.rows").unlink(),
    "the rows are cut": lambda folder: os.truncate(folder / "1.rows", 1000),
    "a byte of the rows": lambda folder: flip(folder / "1.rows", 500),
    "the patches are cut": lambda folder: os.truncate(folder / "1.patches", 8),
    "a byte of the patches": lambda folder: flip(folder / "1.patches", 3),
    "a byte of the last vectors": lambda folder: flip(
        folder / "1.vectors", (2 * BLOCK_ROWS + 50) * DIM * 4 + 3
    ),
    "a byte of the first vectors": lambda folder: flip(folder / "1.vectors", 50 * DIM * 4 + 3),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_a_writer_that_finds_damage_starts_over(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    built(tmp_path)
    DAMAGES[damage](tmp_path)
    with VectorWriter(str(tmp_path), "m") as writer:
        assert (writer.applied, writer.row_count) == (0, 0)
        writer.put(numbered(0, 50))
        writer.publish(6, "h2")
    assert sorted(numbers(nearest(tmp_path, unit(1), 99))) == list(range(50))
    assert damage == "the state is gone" or "built anew" in caplog.text


UNSEEN = {
    "the state is gone",
    "a byte of the first vectors",
    "a byte of the first codes",
}  # by a reader; by a writer they are


@pytest.mark.parametrize("damage", sorted(set(DAMAGES) - UNSEEN))
def test_a_reader_that_finds_damage_says_so(tmp_path: Path, damage: str) -> None:
    built(tmp_path)
    DAMAGES[damage](tmp_path)
    with pytest.raises(StoreError, match="ctx index"):
        nearest(tmp_path, unit(1), 10)


def test_a_damaged_row_that_is_near_by_its_codes_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "CODED_ROWS", 1)
    built(tmp_path)
    reader = VectorReader(str(tmp_path), "m")
    assert numbers(reader.search(unit(50), Filters(), 1)) == [50]
    for damage in (10 * unit(50), np.full(DIM, np.nan)):
        with open(tmp_path / "1.vectors", "r+b") as file:
            file.seek(49 * DIM * 4)
            file.write(damage.astype("<f4").tobytes())
        with pytest.raises(VectorsDamaged):
            reader.search(unit(49), Filters(), 1)


def test_a_damaged_row_is_never_a_hit(tmp_path: Path) -> None:
    built(tmp_path)
    path = tmp_path / "1.vectors"
    reader = VectorReader(str(tmp_path), "m")
    assert numbers(reader.search(unit(1), Filters(), 1)) == [1]
    with open(path, "r+b") as file:  # row 50 becomes the query, ten times as long: it would win every search
        file.seek(50 * DIM * 4)
        file.write((10 * unit(1)).astype("<f4").tobytes())
    with pytest.raises(VectorsDamaged):
        reader.search(unit(1), Filters(), 1)
    with open(path, "r+b") as file:
        file.seek(50 * DIM * 4)
        file.write(np.full(DIM, np.nan, dtype="<f4").tobytes())
    with pytest.raises(VectorsDamaged):
        reader.search(unit(1), Filters(), 1)
    assert check_vectors(str(tmp_path), "m")
    with VectorWriter(str(tmp_path), "m", suspect=True) as writer:
        assert writer.row_count == 0


def test_vectors_cut_under_a_reader_are_an_error_and_not_the_end_of_the_process(tmp_path: Path) -> None:
    built(tmp_path)
    reader = VectorReader(str(tmp_path), "m")
    assert reader.search(unit(1), Filters(), 1)
    os.truncate(tmp_path / "1.vectors", 4096)
    with pytest.raises(VectorsDamaged):
        reader.search(unit(1), Filters(), 1)


def test_codes_cut_under_a_reader_are_an_error_and_not_the_end_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors_module, "CODED_ROWS", 1)
    built(tmp_path)
    reader = VectorReader(str(tmp_path), "m")
    assert reader.search(unit(1), Filters(), 1)
    os.truncate(tmp_path / "1.codes", 4096)
    with pytest.raises(VectorsDamaged):
        reader.search(unit(1), Filters(), 1)


@pytest.mark.parametrize("kind", ["random", "rising", "equal", "few values", "rare peaks"])
def test_the_highest_of_many_scores_are_those_of_a_full_sort(kind: str) -> None:
    count, rows = 3000, 200_000
    chance = np.random.default_rng(5)
    scores = {
        "random": chance.standard_normal(rows),
        "rising": np.arange(rows, dtype=np.float64),
        "equal": np.ones(rows),
        "few values": chance.integers(0, 5, rows).astype(np.float64),
        "rare peaks": (np.arange(rows) % 64 == 0) * 1.0,  # where the sample looks, and nowhere else
    }[kind].astype(np.float32)
    threshold = np.sort(scores)[-count]
    assert vectors_module._highest(scores, count).tolist() == np.flatnonzero(scores >= threshold).tolist()


def test_a_reader_goes_over_to_files_that_were_put_in_the_place_of_its_own(tmp_path: Path) -> None:
    folder, other = tmp_path / "vectors", tmp_path / "other"
    for path, first in ((folder, 0), (other, 100)):
        with VectorWriter(str(path), "m") as writer:
            writer.put(numbered(first, first + 10))
            writer.publish(1, "h")
    reader = VectorReader(str(folder), "m")
    assert numbers(reader.search(unit(3), Filters(), 1)) == [3]
    folder.rename(tmp_path / "before")
    other.rename(folder)
    assert numbers(reader.search(unit(103), Filters(), 1)) == [103]
    assert len(reader.search(unit(103), Filters(), 50)) == 10
