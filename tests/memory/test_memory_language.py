"""Statements and questions in German, Spanish and French."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder, texts

from ctx.memory.bank import MemoryBank
from ctx.memory.language import _language, language, silent_terms
from ctx.memory.store import MemoryStore


@pytest.fixture(params=["words", "model"])
def bank(
    request: pytest.FixtureRequest, tmp_path: Path, clock: Clock, minilm: WordEmbedder
) -> Iterator[MemoryBank]:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm if request.param == "model" else None, clock) as store:
        yield store.bank("alice")


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Der Zahnarzt hat mittwochs zu", "de"),
        ("Was esse ich abends?", "de"),
        ("Compro el pan en la plaza", "es"),
        ("¿Dónde compro?", "es"),
        ("Le boulanger est fermé le lundi", "fr"),
        ("Où est-ce que j'habite ?", "fr"),
        ("I don't think that's Jean's", "en"),
        ("We saw Das Boot and El Topo with the others", "en"),
        ("No dairy", "en"),
        ("kubectl get pods", "en"),
        ("", "en"),
    ],
)
def test_a_language_is_told_by_its_function_words(text: str, name: str) -> None:
    assert language(text) == name
    assert ("now" not in silent_terms(text)) == (name != "en")


@pytest.mark.parametrize(
    ("question", "answer", "others"),
    [
        ("Wo arbeitet der Nutzer?", "Der Nutzer arbeitet im Hafen", "Der Nutzer hat {} Vögel"),
        ("Wie heißt die Tante des Nutzers?", "Die Tante heißt Wilma", "Der Tisch des Nutzers hat {} Beine"),
        ("¿Qué bebe el usuario?", "El usuario bebe mate", "El usuario tiene {} primos"),
        ("Que boit l'utilisateur ?", "L'utilisateur boit du cidre", "L'utilisateur a {} cousins"),
    ],
)
def test_the_word_user_has_no_weight_in_other_languages(
    bank: MemoryBank, question: str, answer: str, others: str
) -> None:
    bank.put(answer)
    for number in range(3, 9):
        bank.put(others.format(number))
    assert texts(bank, question)[0] == answer


def test_of_a_long_text_its_beginning_alone_is_kept() -> None:
    """The language of a text is kept for the next search: of megabytes that would be gigabytes."""
    beginning = "The stove in the cabin at Salzkammergut burns briquettes. " * 20
    before = _language.cache_info().currsize
    assert language(beginning + "a" * 1_000_000) == language(beginning + "b" * 1_000_000) == "en"
    assert _language.cache_info().currsize <= before + 1
