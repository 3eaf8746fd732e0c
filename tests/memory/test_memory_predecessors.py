"""Looking at few memories, and not at all of the bank, changes no decision on what is replaced."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryBank, MemoryStore, predecessors
from ctx.memory.change import replaces
from ctx.memory.legs import neighbours
from ctx.memory.reader import Candidate, Reader, visible
from ctx.memory.statement import Statement

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "memories"
SETS = ("life.tsv", "changes.tsv", "values.tsv", "phrased.tsv")
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


def of_all(bank: MemoryBank, text: str) -> set[str]:
    """What a statement takes the place of, by looking at everything that holds."""
    statement = Statement.of(text)
    if statement.slot is None and not statement.changes:
        return set()
    with bank._view() as view:
        rows = list(view.select([visible(bank._now())]))
        cosines = {row.no: cosine for row, cosine in nearest(bank, view, text, len(rows))}
    return {row.id for row in rows if replaces(Statement.of(row.text), statement, cosines.get(row.no))}


def of_the_nearest(bank: MemoryBank, text: str) -> set[str]:
    """The same by looking at the nearest alone."""
    statement = Statement.of(text)
    if statement.slot is None and not statement.changes:
        return set()
    with bank._view() as view:
        rows = nearest(bank, view, text, predecessors.NEIGHBOURS)
    return {row.id for row, cosine in rows if replaces(Statement.of(row.text), statement, cosine)}


def nearest(bank: MemoryBank, view: Reader, text: str, count: int) -> list[tuple[Candidate, float | None]]:
    """So many of the nearest memories, with their cosine where there is an embedder."""
    embedding = bank._resources.embedding
    mode = "keyword" if embedding.model is None else "semantic"
    return neighbours(view, embedding, text, mode, [visible(bank._now())], count)


@pytest.mark.slow  # each of 250 statements is compared with all before it
@pytest.mark.parametrize(
    ("most", "reference"),
    [(predecessors.MAX_HOLDERS, of_all), (0, of_the_nearest)],
    ids=["one by one", "by the nearest"],
)
def test_what_is_replaced_is_what_looking_at_all_or_at_the_nearest_gives(
    bank: MemoryBank,
    most: int,
    reference: Callable[[MemoryBank, str], set[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(predecessors, "MAX_HOLDERS", most)
    replaced = 0
    for text in statements():
        expected = reference(bank, text)
        reply = bank.put(text)
        if reply["created"]:
            assert set(reply["superseded"]) == expected, text
            replaced += len(expected)
    assert replaced > 25


def test_a_statement_is_replaced_whatever_else_is_nearer(tmp_path: Path) -> None:
    words = ["boat", "sail", "harbour", "anchor", "rope", "tide", "mast", "deck"]
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder(), Clock()) as store:
        bank = store.bank("alice")
        for number, chosen in itertools.product(range(4), itertools.combinations(words, 7)):
            bank.put(f"{' '.join(chosen)} {number}")
        elder = bank.put(f"I live in Oslo near the {' '.join(words[:2])}")
        text = f"I live in Bergen near the {' '.join(words)}"
        assert of_the_nearest(bank, text) == set()
        assert bank.put(text)["superseded"] == [elder["id"]]
