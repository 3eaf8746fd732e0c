"""Purged text is gone from every file; long text is stored at once."""

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from faults import eventually
from memory_kit import Clock, WordEmbedder, texts

from ctx.memory.rows import SqliteRows
from ctx.memory.store import MemoryStore


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


def test_what_a_process_erased_that_died_is_gone_once_the_store_is_opened(tmp_path: Path) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        doomed = store.bank("a").put("the xylophonic pangolin hides")
        store.bank("a").put("a harmless note")
    # It dies when the memory is gone from the tables, and still in the file.
    dying = (
        "import os, sys\n"
        "from ctx.memory.store import MemoryStore\n"
        "from ctx.memory.rows import SqliteRows\n"
        "SqliteRows.shred = lambda self: os.kill(os.getpid(), 9)\n"
        "MemoryStore(sys.argv[1]).bank('a').delete_all([sys.argv[2]], hard=True)\n"
    )
    arguments = [sys.executable, "-c", dying, str(tmp_path / "ctx.db"), doomed["id"]]
    assert subprocess.run(arguments, check=False).returncode == -signal.SIGKILL
    assert b"xylophonic" in _bytes(tmp_path)
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        assert b"xylophonic" not in _bytes(tmp_path)
        assert texts(store.bank("a"), "harmless note pangolin") == ["a harmless note"]


def test_what_is_erased_while_somebody_reads_is_gone_with_the_next_change(tmp_path: Path) -> None:
    rows = SqliteRows(str(tmp_path / "ctx.db"))
    rows._writer.execute("PRAGMA busy_timeout = 50")  # ten seconds else, for which a purge waits
    with MemoryStore(rows, WordEmbedder(), Clock()) as store:
        bank = store.bank("a")
        doomed = bank.put("the xylophonic pangolin hides")
        reader = sqlite3.connect(tmp_path / "ctx.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM memories").fetchone()
        bank.delete_all([doomed["id"]], hard=True)
        reader.close()
        bank.put("a harmless note")
        assert b"xylophonic" not in _bytes(tmp_path)


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
