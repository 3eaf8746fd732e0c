"""What the tests of memory are given: a clock they move, a store with and without an embedder, and a bank of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryBank, MemoryStore, Provenance


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "ctx.db")


@pytest.fixture(params=[False, True], ids=["words", "hybrid"])
def store(request: pytest.FixtureRequest, path: str, clock: Clock) -> Iterator[MemoryStore]:
    with MemoryStore(path, WordEmbedder() if request.param else None, clock) as opened:
        yield opened
        assert opened.check(deep=True) == []


@pytest.fixture
def bank(store: MemoryStore) -> MemoryBank:
    return store.bank("alice", Provenance(pack="hindsight", transport="mcp", tool="retain", session="s1"))
