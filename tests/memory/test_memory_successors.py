"""Later statements that say, in other words than the question, that what a found memory names is over."""

from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder, best_a_day_after, texts

from ctx.analyze import terms
from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.change import ends_by_name, of_one_subject
from ctx.memory.question import Asked
from ctx.memory.statement import Statement

NOTHING_ASKED: frozenset[str] = frozenset()


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("Tests are run with Jest", "Replaced Jest with Vitest", "How are the tests run?"),
        (
            "The user's manager is Deborah Finch",
            "Deborah left; user reports to Anil Kapoor",
            "Who is my manager?",
        ),
        (
            "I'm reading The Magic Mountain",
            "Finished The Magic Mountain, started on Middlemarch",
            "What am I reading?",
        ),
        (
            "My bike is a Trek hybrid",
            "The Trek got stolen, I ride a second-hand Giant",
            "What bike do I have?",
        ),
        (
            "My favourite language is Ruby",
            "These days I prefer Elixir over Ruby",
            "What is my favourite language?",
        ),
    ],
)
def test_what_ends_by_name_is_found_by_what_it_ends(
    bank: MemoryBank, clock: Clock, earlier: str, later: str, question: str
) -> None:
    assert best_a_day_after(bank, clock, earlier, later, question) == later


def test_what_ends_by_name_is_as_sure_as_what_it_ends(bank: MemoryBank, clock: Clock) -> None:
    best_a_day_after(
        bank, clock, "Tests are run with Jest", "Replaced Jest with Vitest", "How are the tests run?"
    )
    later, earlier = bank.search("How are the tests run?")["results"][:2]
    assert later["score"] >= earlier["score"]
    assert earlier["updated_by"] == [later["record"]["id"]]


def test_who_lost_a_thing_is_not_gone(bank: MemoryBank, clock: Clock) -> None:
    earlier, later = "The alarm code of the office is with Tjark", "Tjark lost the notes on the harbour map"
    assert best_a_day_after(bank, clock, earlier, later, "Who has the alarm code?") == earlier
    assert "tjark" not in Statement.of(later).gone
    assert Statement.of("The brewery closed a year ago").gone >= {"breweri"}


def test_what_was_forgotten_is_not_found_by_what_it_ended(bank: MemoryBank, clock: Clock) -> None:
    bank.put("Tests are run with Jest")
    clock.pass_ms(1000)
    later = bank.put("Replaced Jest with Vitest")
    bank.delete(later["id"])
    assert texts(bank, "How are the tests run?") == ["Tests are run with Jest"]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("My brother Neil lives in Cork", "Neil left the choir"),
        ("I report to Dr Roth", "Dr Lund retired"),
        ("Unit tests run with pytest on Linux", "The Linux user group closed"),
        ("The office is in Bonn", "My sister moved away from Bonn"),
        ("Grandpa lives in Haus Linde", "Das Haus wurde verkauft"),
        ("My son plays for FC Bonn", "I left FC Bonn"),
    ],
)
def test_what_ended_of_something_else_ends_no_name(earlier: str, later: str) -> None:
    assert not ends_by_name(Statement.of(earlier), Statement.of(later), NOTHING_ASKED)


def test_what_the_question_names_is_not_answered_by_its_end() -> None:
    earlier, later = Statement.of("My brother Neil lives in Cork"), Statement.of("Neil retired")
    assert not ends_by_name(earlier, later, frozenset(terms("Where does Neil live?")))


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("Replaced Jest with Vitest", {"jest"}),
        ("I don't need contacts any more", {"contact", "need"}),
        ("We got through Pippi and are on to Momo", {"pippi"}),
        ("Write in English from now on", set()),
        ("She retired and Olga took over", set()),
    ],
)
def test_what_ends_stops_where_its_successor_begins(text: str, over: set[str]) -> None:
    assert Statement.of(text).ended == over


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("I live in Leeds with two flatmates", "Just moved into my own place in Sheffield"),
        ("My flat is in Leipzig", "We bought a house in Markkleeberg"),
        ("My mother lives in a bungalow in Whitby", "Mum moved into a care home in Scarborough"),
        ("Laila lives in Utrecht", "Laila moved to Antwerp"),
        (
            "I'm the office manager at Hartwell Dental",
            "I handed in my notice and I'm starting at Corby Logistics",
        ),
    ],
)
def test_a_home_and_a_workplace_are_one_however_they_are_put(earlier: str, later: str) -> None:
    assert Statement.of(earlier).places & Statement.of(later).places


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("My mother lives in Whitby", "I moved to Leeds"),
        ("My mother lives in Whitby", "My brother Neil moved to Leeds"),
        ("I live in Leeds", "I joined Acme"),
        ("I live in Leeds", "Moved the backups to Paris"),
    ],
)
def test_another_persons_home_is_another(text: str, other: str) -> None:
    assert not Statement.of(text).places & Statement.of(other).places


def test_what_begins_with_one_thing_is_of_one_subject() -> None:
    images, hosting = Statement.of("Images are on R2"), Statement.of("Image hosting is on S3")
    assert of_one_subject(hosting, images)
    assert not of_one_subject(hosting, Statement.of("Web hosting is on R2"))
    assert not of_one_subject(Statement.of("I like tea"), Statement.of("I like milk"))


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        (
            "Grafana is reachable on port 3001",
            "Grafana listens on port 3030 instead",
            "On which port is Grafana?",
        ),
        (
            "My therapist session is on Monday",
            "Therapy is on Fridays from now on",
            "When is my therapy session?",
        ),
        ("I wear contact lenses", "Had surgery, I don't need contacts any more", "Do I wear contact lenses?"),
        (
            "The user likes answers with long tables",
            "The user prefers answers without tables",
            "How does the user like answers?",
        ),
        ("The daily briefing is at 8:15", "Briefing is now at 8:40", "When is the daily briefing?"),
        ("My badge number is 4411", "My new number is 5077", "What is my badge number?"),
    ],
)
def test_one_thing_put_in_other_words_is_not_told_apart(earlier: str, later: str, question: str) -> None:
    assert not Asked.of(question).tells_apart(Statement.of(earlier), Statement.of(later))


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("My old number is 4411", "My new number is 5077", "What is my old number?"),
        ("The blue team meets in room 3", "The red team meets in room 5", "Where does the blue team meet?"),
    ],
)
def test_another_thing_of_its_name_is_told_apart(earlier: str, later: str, question: str) -> None:
    assert Asked.of(question).tells_apart(Statement.of(earlier), Statement.of(later))


def test_what_belongs_to_another_person_answers_no_question_of_ones_own() -> None:
    mine = Statement.of("My phone number ends in 448")
    hers = Statement.of("My wife's phone number has changed, it ends in 902")
    assert Asked.of("What does my phone number end in?").tells_apart(mine, hers)
    assert not Asked.of("What does my wife's phone number end in?").tells_apart(mine, hers)


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("The server room is in the basement", "The server room was relocated to the second floor",
        "Where is the server room?"),
        ("Backups are kept on tape", "Backups go to S3 Glacier", "Where are backups kept?"),
        ("I keep my bike in the cellar", "The bike lives in the garden shed these days",
        "Where is my bike kept?"),
        ("I meditate in the evening", "I meditate right after waking up", "When do I meditate?"),
        ("The user is 34 years old", "The user turned 35 yesterday", "How old is the user?"),
        ("I'm allergic to penicillin", "The doctor tested me: no penicillin allergy after all",
        "Am I allergic to penicillin?"),
        ("The frontend state is managed with Redux", "We ripped out Redux and use Zustand",
        "What manages the frontend state?"),
        ("The office is on the first floor", "The office moved to the third floor",
        "On which floor is the office?"),
        ("My invoices come from eFaktur with a red logo", "I switched from eFaktur to Lexware last week",
        "What makes my invoices?"),
    ],
)  # fmt: skip
def test_what_is_told_anew_stands_first(
    tmp_path: Path, minilm: WordEmbedder, clock: Clock, earlier: str, later: str, question: str
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        assert best_a_day_after(store.bank("mine"), clock, earlier, later, question) == later


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("The guest bathroom has a leaking tap", "The kitchen tap was replaced", "Which tap is leaking?"),
        ("Invoices are sent by Olga", "The user asked Dmitri to look into invoice export",
        "Who sends invoices?"),
        ("The second album was made in Rome", "The third album was made in Oslo",
        "Where was the second album made?"),
    ],
)  # fmt: skip
def test_what_is_told_of_something_else_does_not(
    tmp_path: Path, minilm: WordEmbedder, clock: Clock, earlier: str, later: str, question: str
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        assert best_a_day_after(store.bank("mine"), clock, earlier, later, question) == earlier
