"""News of a memory that is told by what the two mean, where neither its words nor the question's tell it."""

from pathlib import Path

import pytest
from memory_kit import DAY_MS, Clock, WordEmbedder, best_a_day_after

from ctx.memory import MemoryStore
from ctx.memory.news import FITTED, LIKELY, Signals, apart
from ctx.memory.question import Asked
from ctx.memory.statement import Statement

PLAYS, SWIMS = (
    "Tom plays football on the meadow with the club",
    "Tom swims with the club and the meadow is for sheep",
)
QUESTION = "Which sport does Tom play?"


def test_a_later_memory_that_is_near_an_earlier_one_stands_before_it(
    tmp_path: Path, clock: Clock, minilm: WordEmbedder
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        bank = store.bank("alice")
        assert best_a_day_after(bank, clock, PLAYS, SWIMS, QUESTION) == SWIMS
        later, earlier = bank.search(QUESTION)["results"]
        assert earlier["updated_by"] == [later["record"]["id"]]


def test_by_its_score_too_what_is_news_stands_before_what_it_is_of(
    tmp_path: Path, clock: Clock, minilm: WordEmbedder
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        bank = store.bank("alice")
        best_a_day_after(bank, clock, PLAYS, SWIMS, QUESTION)
        later, earlier = bank.search(QUESTION, order="score")["results"]
        assert (later["record"]["text"], later["score"]) == (SWIMS, earlier["score"])
        surest = bank.search(QUESTION, order="score", min_score=earlier["score"], limit=1)["results"]
        assert [result["record"]["text"] for result in surest] == [SWIMS]


def test_nearness_tells_nothing_where_the_model_was_not_measured(tmp_path: Path, clock: Clock) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), WordEmbedder("words-64"), clock) as store:
        assert best_a_day_after(store.bank("alice"), clock, PLAYS, SWIMS, QUESTION) == PLAYS


def test_the_nearer_and_the_plainer_a_change_the_likelier_it_is_news() -> None:
    faint = Signals(cosine=0.3, changes=False, nearer=-0.2, told=0.0)
    assert FITTED.likelihood(faint) < LIKELY
    for stronger in (
        faint._replace(cosine=0.5),
        faint._replace(changes=True),
        faint._replace(nearer=0.0),
        faint._replace(told=0.5),
    ):
        assert FITTED.likelihood(stronger) > FITTED.likelihood(faint)


@pytest.mark.parametrize(
    ("question", "earlier", "later"),
    [
        ("Where does Lena work?", "Lena works at Bosch", "Lena's brother joined Siemens"),
        ("What do I like?", "I like hiking", "I also like climbing"),
        ("Was koche ich?", "Ich koche gern Suppe", "Am Montag repariere ich das Rad"),
        ("What does Petra grow?", "Petra: planted radishes", "Petra: planted tulips"),
        ("Which tap is leaking?", "The guest bathroom has a leaking tap", "The kitchen tap was replaced"),
        ("What is my niece called?", "My niece is called Ottilie", "Ottilie broke her glasses"),
        ("Wie heißt der Klempner?", "Der Klempner heißt Brandl", "Brandl wohnt in der Gartenstraße"),
        ("Which database does Otter use?", "Otter uses DuckDB as its database", "DuckDB is quick enough"),
    ],
)
def test_what_stands_beside_another_is_no_news_of_it_however_near(
    question: str, earlier: str, later: str
) -> None:
    assert apart(Asked.of(question), Statement.of(earlier), Statement.of(later))


@pytest.mark.parametrize(
    ("question", "earlier", "later"),
    [
        (QUESTION, PLAYS, SWIMS),
        ("What is the museum app written in?", "The museum app is written in Xamarin",
         "Nobody could stand Xamarin, the app is being redone in Kotlin"),
        ("Who chairs the club?", "The club is chaired by Yusuf", "Yusuf is abroad, Annika chairs the club"),
        ("Who is the QA lead?", "The QA lead is Farah", "Farah handed the QA lead over to Benedikt"),
    ],
)  # fmt: skip
def test_what_is_told_anew_in_fewer_of_the_questions_words_is_not_apart(
    question: str, earlier: str, later: str
) -> None:
    assert not apart(Asked.of(question), Statement.of(earlier), Statement.of(later))


def test_what_is_merely_ranked_behind_news_is_not_said_to_be_outdated(
    tmp_path: Path, minilm: WordEmbedder, clock: Clock
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        bank = store.bank("alice")
        for text in (
            "The user lives in Graz",
            "The user is allergic to kiwi",
            "The user likes hiking in the Alps",
        ):
            bank.put(text)
            clock.pass_ms(DAY_MS)
        bank.put("The user moved from Graz to Linz")
        results = bank.search("Where does the user live?", include_superseded=True)["results"]
        outdated = {result["record"]["text"] for result in results if result.get("updated_by")}
        assert outdated == {"The user lives in Graz"}
