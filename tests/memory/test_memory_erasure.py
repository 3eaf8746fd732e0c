"""What is purged is gone from the file; what is long is stored at once."""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from faults import eventually
from memory_kit import Clock, WordEmbedder, texts

from ctx.memory import MemoryStore


def _bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_purge_leaves_nothing_of_a_text_in_any_file(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        bank = store.bank("a")
        for number in range(50):
            bank.put(f"harmless note {number}")
        doomed = bank.put("the xylophonic pangolin hides", metadata={"where": "quinquagenarian"})
        bank.update(doomed["id"], {"text": "the xylophonic pangolin sleeps"})
        assert b"xylophonic" in _bytes(tmp_path)
        bank.delete(doomed["id"], hard=True)
        remains = _bytes(tmp_path)
        assert not any(word in remains for word in (b"xylophonic", b"pangolin", b"quinquagenarian"))
        assert store.check(deep=True) == []
        assert len(texts(bank, "harmless note", limit=100)) == 50


def test_a_bank_that_was_deleted_is_gone_and_its_name_is_free(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        store.bank("a").put("the xylophonic pangolin hides")
        store.bank("b").put("apples and pears")
        assert store.bank("a").search("pangolin")["total"] == 1
        assert store.delete("a") == 1
        assert b"xylophonic" not in _bytes(tmp_path)
        assert store.banks() == ["b"]
        store.bank("a").put("oranges")
        assert (texts(store.bank("a"), "oranges pangolin"), store.check(deep=True)) == (["oranges"], [])


class SlowEmbedder(WordEmbedder):
    """An embedder that reads many passages only when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.may_read = threading.Event()
        self.done = threading.Event()

    def embed(
        self, texts: Sequence[str], stop: threading.Event | None = None
    ) -> Iterator[npt.NDArray[np.float32]]:
        if len(texts) > 20:
            self.may_read.wait()
        yield from super().embed(texts, stop)
        if len(texts) > 20:
            self.done.set()


class EndlessEmbedder(WordEmbedder):
    """An embedder that is never done with many passages unless it is told to stop."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = threading.Event()

    def embed(
        self, texts: Sequence[str], stop: threading.Event | None = None
    ) -> Iterator[npt.NDArray[np.float32]]:
        if texts and stop is not None:
            self.begun.set()
            stop.wait()
        yield from ()


def test_a_long_text_is_stored_at_once_and_embedded_behind(tmp_path: Path) -> None:
    embedder = SlowEmbedder()
    with MemoryStore(str(tmp_path / "ctx.db"), embedder, Clock()) as store:
        bank = store.bank("a")
        bank.put("A long report. " + "The ferry sails past the lighthouse at noon. " * 2000 + "Zanzibar.")
        assert bank.search("Zanzibar")["total"] == 1
        assert store.pending() == 1
        embedder.may_read.set()
        assert embedder.done.wait(60)
        eventually(lambda: store.pending() == 0)
    with MemoryStore(str(tmp_path / "ctx.db"), embedder, Clock()) as store:
        assert store.pending() == 0


def test_closing_does_not_wait_until_a_long_text_is_embedded(tmp_path: Path) -> None:
    embedder = EndlessEmbedder()
    with MemoryStore(str(tmp_path / "ctx.db"), embedder, Clock()) as store:
        store.bank("a").put("The ferry sails past the lighthouse at noon. " * 2000)
        assert embedder.begun.wait(60)
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        assert (store.pending(), store.embed_pending(), store.pending()) == (1, 1, 0)
