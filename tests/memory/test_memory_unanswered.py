"""Questions that nothing stored answers, though something stored is near to them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder

from ctx.embed.local import LocalEmbedder
from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.answer_kinds import kind_of
from ctx.memory.answers import FITTED, PLAINLY
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
        ("My son Jonas studies in Geisenheim", "How old is my son Jonas?", "Where does my son Jonas study?"),
        ("We signed the contract with Ponte", "What does the Ponte contract cost?", "Who has the contract?"),
        (
            "The frontend is written in Svelte",
            "Which version of Svelte do we use?",
            "What is the frontend in?",
        ),
        (
            "Anneke has a standing invitation for walks",
            "Who stands in for Anneke on her walks?",
            "What does Anneke have an invitation for?",
        ),
        ("The user owes Dorothy a letter", "What is Dorothy's surname?", "What does the user owe Dorothy?"),
    ],
)
def test_what_is_of_another_person_or_thing_answers_nothing(
    bank: MemoryBank, text: str, answerless: str, answerable: str
) -> None:
    bank.put(text)
    assert not bank.search(answerless, window="auto")["answered"]
    assert bank.search(answerable, floor=True, window="auto")["results"]


@pytest.mark.parametrize(
    ("question", "matter"),
    [
        ("When was Yuki born?", "When was born?"),
        ("What is Mrs Pettigrew's phone number?", "What is phone number?"),
        ("Where do I live?", "Where do I live?"),
        ("when was yuki born?", "when was yuki born?"),
        ("Wann kam Yuki zur Welt?", "Wann kam Yuki zur Welt?"),  # where every noun has a capital
    ],
)
def test_the_matter_of_a_question_is_what_it_asks_beside_its_names(question: str, matter: str) -> None:
    assert Asked.of(question).nameless(question) == matter


def test_a_name_alone_makes_no_answer_likely() -> None:
    beside, of_matter = FITTED.likelihood(0.5, 0.1, 0.4), FITTED.likelihood(0.5, 0.5, 0.4)
    assert beside < PLAINLY < of_matter


def test_what_may_be_the_thing_under_another_name_is_not_withheld(bank: MemoryBank) -> None:
    bank.put("Docker images are built on Alpine")
    reply = bank.search("What base image do we use?", floor=True)
    assert [result["record"]["text"] for result in reply["results"]] == ["Docker images are built on Alpine"]
    assert reply["answered"] is False


def test_what_only_comes_near_is_shown_and_said_to_be_that(bank: MemoryBank) -> None:
    bank.put("My son goes to Oakfield Primary")
    reply = bank.search("Which schools do the children attend?", floor=True)
    assert [result["record"]["text"] for result in reply["results"]] == ["My son goes to Oakfield Primary"]
    assert reply["answered"] is False
    reflection = bank.synthesize("Which schools do the children attend?")
    assert reflection["text"].startswith("No memory answers this plainly. The nearest: “My son goes")
    assert reflection["based_on"] == []
    assert reflection["nearest"]


def test_what_is_found_by_its_words_alone_keeps_its_score(bank: MemoryBank) -> None:
    bank.put("My phone number ends in 448")
    (result,) = bank.search("phone number ends", mode="keyword", floor=True)["results"]
    assert result["score"] > 0.9


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
    reply = bank.search(question)
    assert reply["answered"] is (answer is not None)
    assert answer is None or reply["results"][0]["record"]["text"] == answer


def test_without_an_embedder_a_thing_of_the_kind_is_shown(tmp_path: Path, clock: Clock) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), None, clock) as store:
        bank = store.bank("alice")
        bank.put("My phone number ends in 448")
        assert bank.search("What is my mobile number?", floor=True)["results"]


def test_of_a_paragraph_as_many_words_are_an_answer_as_of_a_question(tmp_path: Path, clock: Clock) -> None:
    paragraph = (
        "I am interested in articles on numerical integration of differential equations, above all in those that compare "
        "the accuracy, stability, speed and storage of the classical methods on small machines, and in whatever "
        "has been published about their implementation in languages of high level"
    )
    with MemoryStore(str(tmp_path / "ctx.db"), None, clock) as store:
        bank = store.bank("alice")
        bank.put("Runge-Kutta integrates differential equations with little storage")
        bank.put("The choir sings on Tuesdays")
        texts = [result["record"]["text"] for result in bank.search(paragraph, floor=True)["results"]]
        assert texts == ["Runge-Kutta integrates differential equations with little storage"]


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


@pytest.mark.parametrize(
    ("question", "text", "nameless"),
    [
        ("Who waters the plants?", "The plants need water twice a week", True),
        ("Who waters the plants?", "I water the plants", False),
        ("Who waters the plants?", "Oma waters the plants", False),
        ("Who waters the plants?", "My sister waters the plants", False),
        ("Who waters the plants?", "The plants are watered by the caretaker", False),
        ("Who waters my plants?", "I have two dozen plants", True),
        ("Who is Rosa married to?", "Rosa is allergic to nuts", True),
        ("Who is Rosa married to?", "Rosa is married to Emil", False),
        ("What is our landlady called?", "The landlady lives on the ground floor", True),
        ("What is our landlady called?", "The landlady is Mrs Achterberg", False),
        ("What is the name of the bucket?", "The bucket is acme-stage-eu", False),
        ("What is the dog called?", "The dog is named biscuit", False),
        ("What is our repository called?", "shipyard-core was renamed to pontoon", False),
        ("What is Irma's maiden name?", "My aunt is called Irma", True),
        ("What is Irma's maiden name?", "Irma comes from Bremen", True),
        ("Who teaches yoga?", "Yoga is on Thursdays at 19:30", True),
        ("What is the roofer's name?", "The roofer has a new number, 555 0199", True),
        ("How should I name an event?", "Events start with a verb", False),
        ("Wer gießt die Pflanzen?", "Die Pflanzen gießt der Hausmeister", False),
        ("What is the plumber's name?", "Fixed the dripping tap with the plumber", True),
        ("What is the plumber's name?", "Fred the plumber fixed the tap", False),
        ("What is the plumber's name?", "Ted the plumber fixed the tap", False),
        ("Who is the landlord of the office?", "The office is in the Speicherstadt", True),
    ],
)
def test_whoever_asks_for_somebody_wants_a_name_or_a_person(
    question: str, text: str, *, nameless: bool
) -> None:
    assert Asked.of(question).asks_for_name_beyond(Statement.of(text)) is nameless


@pytest.mark.parametrize(
    ("question", "text", "other"),
    [
        ("When is Signe's birthday?", "Malik's birthday is on 12 June", True),
        ("When is Signe's birthday?", "Signe was born on 12 June", False),
        ("Where was Malik born?", "I was born in Oslo", True),
        ("User lives in Berlin?", "User lives in Munich", False),
        ("Where is the Swiss vignette?", "The vignette is on the windscreen", False),
        ("What formats our Python code?", "Ruff does the formatting", False),
    ],
)
def test_what_names_nobody_of_the_question_is_of_another(question: str, text: str, *, other: bool) -> None:
    assert Asked.of(question).asks_for_another_name(Statement.of(text)) is other


@pytest.mark.parametrize(
    ("question", "text", "placeless"),
    [
        ("Where did we buy the sofa?", "The sofa is grey", True),
        ("Where was the cup made?", "The cup was made in 1987", True),
        ("Where did we buy the sofa?", "The sofa is from the market hall", False),
        ("Where did we buy the sofa?", "Nordkap sold us the sofa", False),
        ("Where are the keys?", "The keys are upstairs", False),
        ("When did we buy the sofa?", "The sofa is grey", False),
    ],
)
def test_whoever_asks_where_wants_a_place(question: str, text: str, *, placeless: bool) -> None:
    assert Asked.of(question).asks_for_place_beyond(Statement.of(text)) is placeless


def test_a_number_of_which_nothing_is_said_is_one_to_ring() -> None:
    told = Statement.of("My new number is 06 8765")
    assert list(Asked.of("What is my tax number?").things_apart(told)) == [("tax number", "phone number")]
    assert list(Asked.of("What is my number?").things_apart(told)) == []
    assert Asked.of("What is the serial number of the printer?").counted
    assert Asked.of("How large is the bedroom?").counted
    assert not Statement.of("We bought an oven after the old one died").counted
    assert Statement.of("There is one oven").counted
    assert not Asked.of("Who has the number of the printer?").counted


@pytest.mark.parametrize(
    ("question", "text", "lacking"),
    [
        ("How many shops does Sturm have?", "Our biggest customer is Sturm with 140 sensors", True),
        ("How many nodes does eu-ferry-2 have?", "berth runs on the cluster eu-ferry-2", True),
        ("How many people does the seminar room hold?", "The seminar room holds 24 people", False),
        ("How many messages fit in the queue?", "The queue holds at most 5,000 messages", False),
        ("How many milliseconds does a frame have?", "The frame budget is 11 ms", False),
        ("Wie viele Sensoren hat Zapf?", "Zapf hat zwei Filialen", True),
        ("How heavy is the centrifuge?", "The centrifuge was moved to room 3.02", True),
        ("How much does the van weigh?", "The van is a Renault Trafic from 2016", True),
        ("How much does the van weigh?", "The van has two tonnes", False),
        ("How much does the van cost?", "The van is a Renault Trafic from 2016", True),
        ("What does the van need?", "The van is a Renault Trafic from 2016", False),
        ("How much does the Datadog contract cost?", "The contract with Datadog ends in May 2027", True),
        ("How much does the Datadog contract cost?", "The Datadog contract is 1,900 a month", False),
        ("How much does the Datadog contract cost?", "Datadog is free for us", False),
        ("What does Agnes do for a living?", "Agnes is much better than me at puzzles", True),
        ("What does Agnes do for a living?", "My sister-in-law Agnes runs a bakery", False),
        ("What is Walter's profession?", "Walter was a bridge engineer", False),
        ("What does Agnes do for fun?", "Agnes is much better than me at puzzles", False),
        ("How old is Margaux?", "I meet Margaux on Mondays at 15:00", True),
        ("How old is Margaux?", "Margaux turned forty in June", False),
        ("How old is Margaux?", "Margaux was born in 1987", False),
        ("Wie alt ist Margaux?", "Margaux ist zweiundvierzig", False),
        ("What is the dentist's phone number?", "The dentist has moved to Mill Lane 9", True),
        ("What is the dentist's phone number?", "The dentist can be rung at 06 8765 21", False),
        ("What is the dentist's number?", "The plumber has a new number, 555 0199", True),
        ("What is the dog's chip number?", "Biscuit's microchip number ends in 7714", False),
        ("What is Sanne's address?", "Sanne lives close to the station", True),
        ("What is Sanne's address?", "Sanne lives at 4 Elm Street", False),
        ("Where was Malik born?", "Malik's birthday is on 12 June", True),
        ("Where was Malik born?", "Malik comes from Bergen", False),
        ("On which day is Nele's lesson?", "Nele has started cello with Mr Hale", True),
        ("On which day is Nele's lesson?", "Nele has her cello lesson on Tuesdays", False),
        ("When do I wear glasses?", "I wear glasses for reading", False),
        ("Which time zone is the user in?", "The user's time zone is Europe/Lisbon", False),
        ("Wann hat Herr Bogdan Geburtstag?", "Herr Bogdan leitet die Werkstatt", True),
        ("Wann hat Herr Bogdan Geburtstag?", "Herr Bogdan ist am 3. Mai geboren", False),
    ],
)
def test_what_lacks_the_kind_of_answer_that_is_asked_for_is_none(
    question: str, text: str, *, lacking: bool
) -> None:
    assert kind_of(question).is_lacking(Statement.of(text), None) is lacking


@pytest.mark.parametrize(
    ("question", "text", "answered"),
    [
        ("What is the password of the seminar room?", "The seminar room holds 24 people", False),
        ("What is the colour of the cabin?", "The user has a cabin in Oppdal", False),
        ("What is Theo's birthday?", "Theo was born on the second of May", True),
        ("What is Walter's profession?", "Walter was a bridge engineer", True),
        ("What is the state of the visa?", "The visa is still being processed", True),
        ("What is the deadline for the write-up?", "The write-up is due within four days", True),
        ("What is the IP of the staging server?", "Staging's address is 10.0.7.40", True),
    ],
)
def test_what_is_asked_of_something_is_told_by_what_has_to_do_with_it(
    tmp_path: Path, clock: Clock, question: str, text: str, *, answered: bool
) -> None:
    embedder = LocalEmbedder()
    with MemoryStore(str(tmp_path / "ctx.db"), embedder, clock) as store:
        bank = store.bank("alice")
        bank.put(text)
        assert bank.search(question, window="auto")["answered"] is answered
