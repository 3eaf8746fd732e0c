"""Questions that nothing stored answers, though something stored is near to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.question import Asked
from ctx.memory.statement import Statement


@pytest.fixture
def bank(tmp_path: Path, clock: Clock, minilm: WordEmbedder) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        yield store.bank("alice")


@pytest.mark.parametrize(
    ("text", "answerless", "answerable"),
    [
        ("My phone number ends in 448", "What is my passport number?", "What is my mobile number?"),
        (
            "My favourite restaurant is Luigi's",
            "What is my favourite colour?",
            "What is my favourite eatery?",
        ),
        ("I was born in Gdansk", "When was my grandfather born?", "Where was I born?"),
        (
            "My son goes to Oakfield Primary",
            "What is my tax number?",
            "Which schools do the children attend?",
        ),
        ("Payday is in November", "What was the score last night?", "When is payday?"),
    ],
)
def test_what_is_of_another_person_or_thing_answers_nothing(
    bank: MemoryBank, text: str, answerless: str, answerable: str
) -> None:
    bank.put(text)
    assert bank.search(answerless, floor=True, window="auto")["results"] == []
    assert bank.search(answerable, floor=True, window="auto")["results"]


def test_without_an_embedder_a_thing_of_the_kind_is_shown(tmp_path: Path, clock: Clock) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, clock) as store:
        bank = store.bank("alice")
        bank.put("My phone number ends in 448")
        assert bank.search("What is my mobile number?", floor=True)["results"]


def test_things_of_a_kind_are_told_apart_by_what_tells_them_from_others() -> None:
    statement = Statement.of("My phone number ends in 448")
    assert list(Asked.of("What is my tax number?").things_apart(statement)) == [
        ("tax number", "phone number")
    ]
    assert not list(Asked.of("What is my phone number?").things_apart(statement))


def test_a_thing_that_only_a_cue_names_has_a_spelling() -> None:
    statement = Statement.of("Relicensed project files")
    assert list(Asked.of("Which private project is it?").things_apart(statement)) == [
        ("private project", "licensed project")
    ]


@pytest.mark.parametrize(
    ("question", "text", "another"),
    [
        ("Which school did my mother go to?", "My sister studies in Kiel", True),
        ("Which school do the children go to?", "My son goes to Oakfield", False),
        ("Where do my parents live?", "My mother lives in Whitby", False),
        ("Where does my mum live?", "My mother lives in Whitby", False),
        ("When was my grandfather born?", "I was born in Gdansk", True),
        ("What is Zoe allergic to?", "My daughter is allergic to nuts", False),
        ("What is my daughter allergic to?", "Zoe is allergic to nuts", False),
    ],
)
def test_a_statement_of_another_relative_is_none_of_the_one_asked_for(
    question: str, text: str, another: bool
) -> None:
    assert Asked.of(question).asks_for_others(Statement.of(text)) is another
