"""What one has one of at a time: a question for it finds what was said of it last, in whatever words."""

from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder, best_a_day_after

from ctx.memory import MemoryBank, MemoryStore
from ctx.memory.facets import asked_facets
from ctx.memory.statement import Statement


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("I use Firefox as my browser", "I've moved over to Brave", "Which browser do I use?"),
        ("The user's editor is Vim", "The user does all of their coding in Zed",
        "Which editor does the user use?"),
        ("Our CI runs on Jenkins", "We build everything with GitHub Actions", "What does our CI run on?"),
        ("The user deploys to AWS", "The user's infrastructure is on Hetzner", "Where does the user deploy?"),
        ("My manager is Priya", "I report to Daniel these days", "Who is my manager?"),
        ("I take the bus to work", "I walk to work", "How do I get to work?"),
        ("My salary is 54,000 pounds", "I was given a raise to 61,000 pounds", "What is my salary?"),
        ("The user is vegetarian", "The user eats meat again", "Is the user vegetarian?"),
        ("I wake up at 6", "My alarm rings at 7:15", "When do I wake up?"),
        ("I live with my parents in Derby", "I got my own place in Nottingham", "Where do I live?"),
        ("I work for Deloitte", "Joined a startup called Pelago", "Who do I work for?"),
        ("Ich fahre einen Volvo", "Mein Auto ist ein Kia", "Welches Auto fahre ich?"),
        ("I am single", "I have been dating Miriam since August", "Am I in a relationship?"),
        ("The user's keyboard layout is QWERTZ", "The user has switched to Colemak",
        "Which keyboard layout does the user use?"),
        ("I use Chrome for everything", "I've gone over to Vivaldi", "Which browser do I use?"),
        ("I'm vegan", "I started eating eggs and cheese again", "Am I vegan?"),
        ("We deploy with Ansible", "Deployment goes through ArgoCD", "What do we deploy with?"),
    ],
)  # fmt: skip
def test_the_last_that_was_said_of_a_facet_answers(
    bank: MemoryBank, clock: Clock, earlier: str, later: str, question: str
) -> None:
    assert best_a_day_after(bank, clock, earlier, later, question) == later


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        ("I drive a Volvo", "My wife drives a Kia", "What car do I drive?"),
        ("My manager is Priya", "I report to Daniel on the Apollo project", "Who is my manager?"),
        ("I take the bus to work", "I drive to work when it snows", "How do I get to work?"),
        ("I'm a vegetarian", "I ate meat once in Argentina", "Am I a vegetarian?"),
        ("I use 1Password", "I hear that Bitwarden is free", "Which password manager do I use?"),
        ("My salary is 54,000 pounds", "I made 200 pounds selling my old desk", "What is my salary?"),
        ("I live in Leeds", "We moved to the second meeting room in Haus B", "Where do I live?"),
        ("I am single", "I am engaged in the parents' council", "Am I single?"),
        ("I'm married", "My brother got engaged in June", "Am I married?"),
        ("I listen to music on Spotify", "My kids listen to YouTube Music",
        "What do I use to listen to music?"),
    ],
)  # fmt: skip
def test_what_is_of_a_part_or_of_others_leaves_a_facet_as_it_was(
    bank: MemoryBank, clock: Clock, earlier: str, later: str, question: str
) -> None:
    assert best_a_day_after(bank, clock, earlier, later, question) == earlier


def test_of_several_that_tell_of_a_facet_the_last_answers(bank: MemoryBank, clock: Clock) -> None:
    bank.put("The user's editor is Vim")
    best = best_a_day_after(
        bank, clock, "I do my coding in Zed", "I write all my code in Helix", "Which editor do I use?"
    )
    assert best == "I write all my code in Helix"


def test_what_tells_of_a_facet_is_put_away_by_none(bank: MemoryBank, clock: Clock) -> None:
    best_a_day_after(
        bank, clock, "I use Firefox as my browser", "I've moved over to Brave", "Which browser do I use?"
    )
    later, earlier = bank.search("Which browser do I use?")["results"][:2]
    assert earlier["record"]["superseded_by"] is None
    assert earlier["updated_by"] == [later["record"]["id"]]
    assert later["score"] == earlier["score"]


@pytest.mark.parametrize(
    ("text", "facets"),
    [
        ("I switched to Firefox", {"browser"}),
        ("I don't use Firefox", set()),
        ("I use Firefox for Acme's intranet", set()),
        ("Firefox crashed twice", set()),
        ("My phone is an iPhone 15 Pro", {"phone"}),
        ("I also have an iPhone", set()),
        ("We have settled into the new house in Sheffield", {"home"}),
        ("I live on the third floor of Birkenweg 12", {"home"}),
        ("We have moved to a house in Ahornallee 5", {"home"}),
        ("I live in a house near Freiburg", {"home"}),
        ("My address is Main Street 4", {"home"}),
        ("My email address is ada@example.org", set()),
    ],
)
def test_a_statement_tells_of_a_facet_that_it_says_nothing_besides(text: str, facets: set[str]) -> None:
    assert Statement.of(text).facets == facets


@pytest.mark.parametrize(
    ("question", "facets"),
    [
        ("Which browser do I use?", {"browser"}),
        ("Which browser does the intranet need?", set()),
        ("How do we deploy?", set()),
        ("Where do we deploy?", {"hosting", "deployment"}),
        ("Which database does billing use?", set()),
        ("What is my address?", {"home"}),
        ("What is my email address?", set()),
    ],
)
def test_a_question_asks_for_a_facet_alone(question: str, facets: set[str]) -> None:
    assert asked_facets(question, Statement.of(question).content) == facets


def test_what_tells_of_the_facet_is_evidence_in_whatever_words(
    tmp_path: Path, minilm: WordEmbedder, clock: Clock
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, clock) as store:
        bank = store.bank("mine")
        told = bank.put("I have been dating Miriam since August")
        bank.put("Our office is on Mill Street")
        results = bank.search("Am I in a relationship?", floor=True)["results"]
        assert results[0]["record"]["id"] == told["id"]
        assert bank.search("Am I in a choir?", floor=True)["results"] == []
