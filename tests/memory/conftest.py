"""Fixtures: a clock under control, a memory store with and without an embedder, and a bank."""

from collections.abc import Iterator
from pathlib import Path

import postgres
import pytest
from memory_kit import Clock, WordEmbedder

from ctx.embed.local import LocalEmbedder
from ctx.memory.bank import MemoryBank
from ctx.memory.records import Provenance
from ctx.memory.store import MemoryStore


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(scope="module")
def minilm() -> Iterator[object]:
    """The shipped model."""
    embedder = LocalEmbedder()
    yield embedder
    embedder.close()


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "data" / "ctx.db")


@pytest.fixture(scope="session")
def memory_database(postgres_server: postgres.Server) -> str:
    """A database for the memories of all tests: to make one for each takes longer than most of them."""
    return postgres_server.database()


@pytest.fixture
def memory_url(memory_database: str) -> str:
    """The address of a database without a memory, on a real PostgreSQL."""
    from ctx.cluster.memory_db import PostgresRows
    from ctx.cluster.postgres import Database

    with Database(memory_database) as database:
        PostgresRows(database)
        with database.transaction(write=True) as connection:
            rows = connection.execute("SELECT tablename FROM pg_tables WHERE tablename LIKE 'memor%'")
            tables = ", ".join(row[0] for row in rows)
            connection.execute(f"TRUNCATE {tables} RESTART IDENTITY")
    return memory_database


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
def place(request: pytest.FixtureRequest) -> str:
    """Where memories are kept: a file, or a database on a real server."""
    address: str = request.getfixturevalue("path" if request.param == "sqlite" else "memory_url")
    return address


@pytest.fixture(
    params=[
        ("path", False),
        ("path", True),
        pytest.param(("memory_url", True), marks=pytest.mark.cluster),
    ],
    ids=["words", "hybrid", "postgresql"],
)
def store(request: pytest.FixtureRequest, clock: Clock) -> Iterator[MemoryStore]:
    fixture, embedding = request.param
    with MemoryStore(
        request.getfixturevalue(fixture), WordEmbedder() if embedding else None, clock
    ) as opened:
        yield opened
        assert opened.check(deep=True) == []


@pytest.fixture
def bank(store: MemoryStore) -> MemoryBank:
    return store.bank("alice", Provenance(pack="hindsight", transport="mcp", tool="retain", session="s1"))
