"""The vectors in memory, held to plain arithmetic over what the file says."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryStore
from ctx.memory import vectors as vectors_module
from ctx.memory.packed import pack, unpack
from ctx.memory.passages import MAX_PASSAGE_CHARS, MAX_STATEMENT_CHARS, embedding_texts
from ctx.memory.vectors import BankVectors


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from([8, 64, 384, 1024]), st.floats(1e-6, 1e6))
def test_a_packed_vector_keeps_its_direction(seed: int, dim: int, length: float) -> None:
    random = np.random.default_rng(seed)
    vector, query = random.standard_normal((2, dim)).astype(np.float32)
    packed = pack(vector * np.float32(length))
    assert len(packed) == 4 + dim
    cosine = vector @ query / np.linalg.norm(vector) / np.linalg.norm(query)
    assert unpack(packed) @ query / np.linalg.norm(query) == pytest.approx(
        cosine, abs=0.01 if dim < 64 else 0.003
    )


def test_no_direction_packs_to_no_direction() -> None:
    assert not unpack(pack(np.zeros(16, np.float32))).any()


def test_what_is_nearest_is_what_arithmetic_says_through_every_kind_of_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        vectors_module, "CODED_ROWS", 32
    )  # both ways to multiply, and a reading anew when a third is dead
    monkeypatch.setattr(vectors_module, "_SCAN_ROWS", 7)
    chance = np.random.default_rng(3)
    words = [f"word{number}" for number in range(12)]
    embedder = WordEmbedder()

    def text() -> str:
        return " ".join(chance.choice(words, 4)) + (
            " filler" * int(chance.integers(0, 300))
        )  # some of several passages

    with MemoryStore(str(tmp_path / "ctx.db"), embedder, Clock()) as store:
        bank = store.bank("a")
        bank_vectors = BankVectors()
        ids: list[str] = []
        last_op = ""
        for step in range(150):
            move = chance.random()
            if move < 0.5 or len(ids) < 4:
                ids.append(bank.put(text(), dedupe="off")["id"])
            elif move < 0.65:
                bank.update(ids[int(chance.integers(len(ids)))], {"text": text()})
            elif move < 0.75:
                ids.append(bank.put(text(), dedupe="off", supersedes=[ids.pop(0)])["id"])
            elif move < 0.9:
                last_op = bank.delete(ids.pop(int(chance.integers(len(ids)))))["op_id"]
            elif last_op and move < 0.95:
                bank.undo(last_op)
                last_op = ""
            else:
                bank.delete(ids.pop(), hard=True)
            query = embedder.embed_query(text())
            with store.rows.reading("a") as reader:
                model_no = reader.model_no(embedder.model)
                assert model_no is not None
                bank_vectors.refresh(reader, model_no)
                packed = list(reader.vectors(model_no))
                memories = reader.rows({no for no, _ in packed})
            for superseded in (False, True):
                best: dict[int, float] = {}
                for no, vector in packed:
                    if memories[no].deleted_ms is None and (superseded or memories[no].valid_to_ms is None):
                        best[no] = max(best.get(no, -1.0), float(unpack(vector) @ query))
                expected = sorted(best, key=lambda no: (-round(best[no], 5), no))[:9]
                results = bank_vectors.nearest(query, 9, superseded=superseded)
                assert [first_store.cosine for first_store in results] == pytest.approx(
                    [best[no] for no in expected], abs=1e-4
                ), step
                assert {first_store.no for first_store in results} <= set(best), step
                some = list(best)[::2]
                narrowed = bank_vectors.nearest(query, 5, superseded=superseded, among=some)
                assert [first_store.cosine for first_store in narrowed] == pytest.approx(
                    sorted((best[no] for no in some), reverse=True)[:5], abs=1e-4
                )
                assert bank_vectors.cosines(query, list(best)) == pytest.approx(best, abs=1e-4)


def test_banks_are_let_go_of_when_they_take_too_much_memory(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock(), vector_cache_mb=0) as store:
        for name in ("a", "b", "c"):
            store.bank(name).put("apples and pears")
        for _ in range(2):
            for name in ("a", "b", "c"):
                assert store.bank(name).search("apples", mode="semantic")["total"] == 1
        assert len(store.embedding._banks) == 1


def test_a_long_talk_is_embedded_a_few_turns_at_a_time_and_prose_by_the_passage() -> None:
    talk = "\n".join(
        f"{'Petra' if turn % 2 else 'Owen'}: we spoke of matter {turn} today." for turn in range(40)
    )
    prose = " ".join(f"We spoke of matter {number} today." for number in range(60))
    assert max(map(len, embedding_texts(talk))) <= MAX_STATEMENT_CHARS
    assert "\n".join(embedding_texts(talk)) == talk
    assert max(map(len, embedding_texts(prose))) > 2 * MAX_STATEMENT_CHARS
    assert embedding_texts(talk[:MAX_PASSAGE_CHARS]) == [
        talk[:MAX_PASSAGE_CHARS]
    ]  # a short one is one passage
