"""Looking at few memories, and not at the nearest of all, changes no decision on what is replaced."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryBank, MemoryStore, predecessors
from ctx.memory.change import Statement, replaces
from ctx.memory.legs import neighbours
from ctx.memory.reader import visible

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SETS = ("memory_life.tsv", "memory_changes.tsv", "memory_values.tsv", "memory_phrased.tsv")
MORE = (
    "The user goes to the pool",
    "I stopped going to the pool",
    "I am single",
    "I am married now",
    "My diet is vegan",
    "I'm vegetarian",
    "The user's dog is called Rex",
    "My dog is called Bello",
    "Ada: I live in Ghent",
    "Ada: I live in Bruges",
    "My home is a boat",
)


@pytest.fixture(params=[False, True], ids=["words", "hybrid"])
def bank(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder() if request.param else None, Clock()) as store:
        yield store.bank("alice")


def statements() -> list[str]:
    """All that the benchmarks say first, then all that they say later."""
    lines = [line.split("\t") for name in SETS for line in (BENCHMARKS / name).read_text().splitlines()]
    pairs = [line[1:3] for line in lines if not line[0].startswith(("fact", "date", "none", "unanswer"))]
    return [*(pair[0] for pair in pairs), *(pair[1] for pair in pairs), *MORE]


def of_the_nearest(bank: MemoryBank, text: str) -> list[str]:
    """What a statement takes the place of, by looking at the nearest of all."""
    statement = Statement.of(text)
    if statement.slot is None and not statement.changes:
        return []
    embedding = bank._resources.embedding
    mode = "keyword" if embedding.model is None else "semantic"
    with bank._view() as view:
        rows = neighbours(view, embedding, text, mode, [visible(bank._now())], predecessors.NEIGHBOURS)
    return [row.id for row, cosine in rows if replaces(Statement.of(row.text), statement, cosine) is not None]


@pytest.mark.parametrize("most", [predecessors.MAX_HOLDERS, 3])
def test_what_is_replaced_is_what_looking_at_the_nearest_of_all_gives(
    bank: MemoryBank, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(predecessors, "MAX_HOLDERS", most)
    replaced = 0
    for text in statements():
        expected = of_the_nearest(bank, text)
        reply = bank.put(text)
        if reply["created"]:
            assert reply["superseded"] == expected, text
            replaced += len(expected)
    assert replaced > 25


def test_where_many_are_nearer_nothing_is_replaced(tmp_path: Path) -> None:
    words = ["boat", "sail", "harbour", "anchor", "rope", "tide", "mast", "deck"]
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        bank = store.bank("alice")
        for number, chosen in itertools.product(range(4), itertools.combinations(words, 7)):
            bank.put(f"{' '.join(chosen)} {number}")
        bank.put(f"I live in Oslo near the {' '.join(words[:2])}")
        text = f"I live in Bergen near the {' '.join(words)}"
        statement, elder = Statement.of(text), Statement.of(f"I live in Oslo near the {' '.join(words[:2])}")
        assert replaces(elder, statement, 0.5) == "value"  # but for those that are nearer
        assert of_the_nearest(bank, text) == []
        assert bank.put(text)["superseded"] == []
