"""Questions that nothing stored answers, though something stored is near to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.currency import answered
from ctx.memory.legs import MemoryHit
from ctx.memory.question import Asked
from ctx.memory.reader import Candidate
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


def hit(no: int, text: str, score: float, lexical: float, cosine: float) -> MemoryHit:
    """A memory that a search scored so."""
    memory = Candidate(no, str(no), "fact", text, None, None, no, None, None)
    return MemoryHit(memory, score, {"semantic": score, "lexical": lexical, "cosine": cosine})


@pytest.mark.parametrize(
    ("lexical", "cosine", "text", "answer"),
    [
        (0.0, 0.42, "The heron nests by the mill", False),
        (0.3, 0.42, "The heron nests by the mill", False),
        (0.5, 0.42, "The heron nests by the mill", True),  # half of the question's words
        (0.0, 0.52, "The heron nests by the mill", True),  # stands out
        (
            0.0,
            0.42,
            "The heron nests by the mill.\nThe otter does not.",
            True,
        ),  # a report, of which a part may
    ],
)
def test_what_answers_by_meaning_stands_out_from_what_surrounds_it(
    lexical: float, cosine: float, text: str, answer: bool
) -> None:
    around = [hit(no, f"The mill has {no} sluices", 0.4, 0.0, 0.36) for no in range(2, 20)]
    assert answered([hit(1, text, 0.6, lexical, cosine), *around], "When was it founded?", alike) is answer


def test_where_little_is_stored_nothing_has_to_stand_out() -> None:
    assert answered([hit(1, "The heron nests by the mill", 0.6, 0.0, 0.42)], "When was it founded?", alike)


def alike(text: str, another: str) -> float:
    return 1.0


GERMAN = (
    "Unser Hund frisst Trockenfutter", "Meine Schwester ist allergisch gegen Katzen", "Ich wohne in Leipzig",
    "Mein Auto steht in der Garage", "Der Chor probt am Dienstag", "Die Miete kostet 780 Euro",
    "Ich lerne Klavier",
    "Der Garten liegt hinter dem Haus", "Mein Bruder arbeitet bei Siemens", "Am Montag kommt der Klempner",
)  # fmt: skip


def test_a_language_that_the_model_does_not_read_is_not_near_to_every_question_in_it(
    bank: MemoryBank,
) -> None:
    for text in GERMAN:
        bank.put(text)
    for question in (
        "Welche Blutgruppe habe ich?",
        "Wie viel hat das Sofa gekostet?",
        "Welche Schuhgröße habe ich?",
    ):
        assert bank.search(question, floor=True)["results"] == []
    for question, text in (
        ("Was frisst der Hund?", GERMAN[0]),
        ("Wann probt der Chor?", GERMAN[4]),
        ("Wie hoch ist die Miete?", GERMAN[5]),
        ("Wo wohne ich?", GERMAN[2]),
    ):
        assert bank.search(question, floor=True)["results"][0]["record"]["text"] == text


@pytest.mark.parametrize(
    ("question", "answer"),
    [("When was Priya born?", None), ("Which phone does Priya have?", None),
    ("Where does Priya work?", "Priya works from Lisbon")],
)  # fmt: skip
def test_of_somebody_of_whom_much_is_said_the_name_alone_answers_nothing(
    bank: MemoryBank, clock: Clock, question: str, answer: str | None
) -> None:
    for text in (
        "Priya works from Lisbon",
        "Priya will be late with the annual report",
        "Priya wrote the captions for the poster",
        "Priya lost the notes on the catalogue",
        "Sent Priya the quote for the map",
        "Leander is on parental leave, Priya edits the photos",
    ):
        clock.pass_ms(1000)
        bank.put(text)
    results = bank.search(question, floor=True)["results"]
    assert [result["record"]["text"] for result in results[:1]] == ([answer] if answer else [])


def test_what_tells_of_the_facet_asked_for_is_evidence_by_that(bank: MemoryBank, clock: Clock) -> None:
    bank.put("I use npm for packages")
    clock.pass_ms(1000)
    bank.put("Actually, I use pnpm, not npm")
    assert "of_facet" in bank.search("Which package manager do I use?", explain=True)["results"][0]["signals"]


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
