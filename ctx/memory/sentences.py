"""Sentences of a text."""

import re

# A full stop ends no sentence after the number of a day ("am 15. Februar") or a title.
_SENTENCE = re.compile(
    r"(?<=[.!?。！？])(?<!\b\d\.)(?<!\b\d\d\.)(?<!\b(?:Dr|Mr|Ms|St|Hr|Fr|Nr)\.)(?<!\b(?:Mrs)\.)(?<!\bProf\.)\s+"
    r"|\n+"
)


def sentences(text: str) -> list[str]:
    """The sentences and lines of a text, without empty ones."""
    return [sentence.strip() for sentence in _SENTENCE.split(text) if sentence.strip()]
