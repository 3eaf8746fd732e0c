"""Irregular verbs: a question in one form finds what was said in another."""

import pytest
from memory_kit import texts

from ctx.memory import MemoryBank
from ctx.memory.verbs import verb_forms


def test_the_forms_of_a_verb_stand_for_each_other() -> None:
    assert verb_forms(["send", "invoic"]) == {"send": ("sent",)}
    assert set(verb_forms(["chosen"])["chosen"]) == {"choos", "chose"}


@pytest.mark.parametrize(
    ("told", "question"),
    [
        ("Invoices are sent by Olga", "Who sends the invoices?"),
        ("Ramona wrote the handbook", "Who has written the handbook?"),
    ],
)
def test_a_question_finds_what_was_said_in_another_form(bank: MemoryBank, told: str, question: str) -> None:
    bank.put("Felix borrowed the book about the invoices and the handbook")
    bank.put(told)
    (best,) = bank.search(question, mode="keyword", limit=1)["results"]
    assert (best["record"]["text"], best["score"]) == (told, 1.0)
    assert texts(bank, question)[0] == told
