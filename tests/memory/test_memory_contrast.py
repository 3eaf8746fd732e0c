"""Statements about several things of one kind: which the question asks for, and which took nobody's place."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import DAY_MS, Clock, WordEmbedder, best_a_day_after, texts

from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.change import likeness, replaces, tied, updates
from ctx.memory.contrast import begins_with_another, kinds, subject
from ctx.memory.statement import Statement


@pytest.fixture(params=["words", "model"])
def bank(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, minilm: WordEmbedder
) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm if request.param == "model" else None, clock) as store:
        yield store.bank("alice")


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("Never push to the stable branch", "You may now push to the demo branch",
        "May I push to the stable branch?"),
        ("The Linux build runs on Jenkins", "The Windows build is now made by Azure",
        "What runs the Linux build?"),
        ("The sales manager is Oona", "Pavel became the office manager", "Who is the sales manager?"),
        ("The SMTP relay listens on port 25", "The metrics page was moved to port 9100",
        "Which port does the SMTP relay have?"),
        ("Receipts are kept in the ledger table", "Parcels were moved to the transport table",
        "In which table are receipts kept?"),
        ("The US region uses S3", "The EU region moved from S3 to R2", "What does the US region use?"),
        ("The sauna costs 12 euros", "We rebooked the sauna for Friday evenings", "How much is the sauna?"),
        ("The deposit for the kayak was 80 euros", "The deposit for the raft went up to 95 euros",
        "How much was the deposit for the kayak?"),
        ("My neighbour repairs violins", "I repair my own bike now", "What does my neighbour repair?"),
        ("The lease of the barn runs until 2031", "They raised our barn rent to 310 euros",
        "Until when does the lease of the barn run?"),
        ("Our club meets in the pavilion", "Jorin left the club and Selma keeps the books now",
        "Where does our club meet?"),
    ],
)  # fmt: skip
def test_another_thing_of_its_kind_is_no_answer(
    bank: MemoryBank, clock: Clock, earlier: str, later: str, question: str
) -> None:
    assert best_a_day_after(bank, clock, earlier, later, question) == earlier


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("My shell is Bash", "I have been working with Fish instead of Bash since May",
        "Which shell do I work with?"),
        ("We write release notes in French", "Please write release notes in English",
        "In which language do we write release notes?"),
        ("The bench is painted green", "The bench was repainted in blue", "Which colour is the bench?"),
        ("Our cellar key hangs in the hall", "The cellar key now lies in the kitchen drawer",
        "Where is the cellar key?"),
        ("The stable branch is called main", "The stable branch was renamed to trunk",
        "What is the stable branch called?"),
        ("My train to Graz leaves at 6:20", "The railway moved my Graz train to 7:05",
        "When does my train to Graz leave?"),
        ("My tutor is Mr Abel", "The school grew and Ms Voss is the tutor now", "Who is my tutor?"),
        ("Our quartet practises in the old dairy", "The old dairy was torn down, we practise in a barn",
        "Where does our quartet practise?"),
    ],
)  # fmt: skip
def test_the_same_thing_told_anew_is_one(
    bank: MemoryBank, clock: Clock, earlier: str, later: str, question: str
) -> None:
    assert best_a_day_after(bank, clock, earlier, later, question) == later


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Ich wohne in der Ulmenallee 3", "Wir sind in die Eichenallee 8 gezogen"),
        ("Trabajo en Hotel Luna", "Dejé Hotel Luna y entré en un taller"),
    ],
)
def test_what_is_told_anew_in_other_languages_is_one(earlier: str, later: str) -> None:
    older, newer = Statement.of(earlier), Statement.of(later)
    worth = likeness(older, newer, None)
    assert updates(older, newer, worth)
    assert tied(older, newer)


def test_what_has_a_thing_for_its_topic_does_not_stand_before_what_says_it(
    bank: MemoryBank, clock: Clock
) -> None:
    bank.put("The price list is printed every quarter")
    for note in ("Ines borrowed the folder about the price list", "Tom reviewed the slides about the price list",
                 "We talked with Mara about the price list",
                 "Olga finds the price list confusing"):  # fmt: skip
        clock.pass_ms(DAY_MS)
        bank.put(note)
    assert texts(bank, "When is the price list printed?")[0] == "The price list is printed every quarter"


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The unit tests need Redis", "The load tests no longer need Redis"),
        ("The US region uses S3", "The EU region moved from S3 to R2"),
        ("Lunch at the fair is free", "Parking at the fair is no longer free"),  # another thing, the same end
        ("Entry to the tower is free", "Entry to the crypt is no longer free"),
        ("Our second comic sold 70 copies", "Our first novel sold 90 copies"),  # what is sold so is not over
        ("I stopped eating veal", "I stopped eating tuna"),  # two ends, told alike
        ("I use Emacs for letters", "I no longer use Emacs for mail"),
        ("Gate 7 opens at dawn", "Gate 9 no longer opens at dawn"),
        ("The old forum runs on PHP", "The new forum moved away from PHP"),
        ("The password of the club is lilac4", "The password of the bar was changed from lilac4"),
        ("The ferry sails on Tuesdays", "The ferry no longer sails on Saturdays"),
        (
            "The donkeys eat straw",
            "We stopped giving straw to the goats",
        ),  # what is left over of both differs
        ("The lodge service uses Nginx", "We dropped Nginx in the chalet service"),
        ("Never use eval in the parser", "We stopped using eval in the printer"),
        ("The books table has an owner column", "The owner column was dropped from the cards table"),
        ("I keep my maps in Joplin", "I stopped keeping lyrics in Joplin"),
        ("I live in Jena during the week", "I live in Gera at weekends"),
        ("I work at the mint on Mondays", "I work at the zoo on Fridays"),
        ("The choir of Ulm sings Bach", "Otto left the choir"),  # the choir goes on without who left it
    ],
)
def test_what_ended_for_one_thing_holds_for_another(bank: MemoryBank, earlier: str, later: str) -> None:
    assert replaces(Statement.of(earlier), Statement.of(later), 0.9) is None
    bank.put(earlier)
    bank.put(later)
    records = bank.browse(limit=10, include_superseded=True)["items"]
    assert [record["superseded_by"] for record in records] == [None, None]


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("The unit tests need Redis", "The unit tests no longer need Redis"),
        ("My lens is a Tamron", "I traded my Tamron in for a Sigma"),
        ("We host it all on Scaleway", "It all was moved off Scaleway onto Linode"),
        ("I am learning Danish with an app", "I gave up the app and take Danish lessons"),
        ("I jog for the half triathlon", "I signed up for the full triathlon instead of the half"),
    ],
)
def test_what_ended_for_the_thing_itself_is_over(earlier: str, later: str) -> None:
    assert replaces(Statement.of(earlier), Statement.of(later), 0.9) == "change"


def test_words_that_tell_nothing_make_no_kind() -> None:
    assert kinds("My new piano teacher, Carmen") == {("piano", "teacher")}
    assert kinds("the branch") == frozenset()
    assert subject("The metrics page is at port 1") == {"metric", "page"}
    assert subject("We moved") == frozenset()
    assert not begins_with_another("My piano teacher is Ada", "My new piano teacher is Bea")
    assert begins_with_another("The US region", "The EU region")
