"""German compounds in a question: what one of two texts puts in one word and the other in several.

No dictionary: what the bank's own texts hold decides. "Kellerschlüssel" is taken apart where "Keller" and
"Schlüssel" stand in them, or the last part alone, which says what kind of thing it is; "Schlüssel für die
Haustür" is put together where "Haustürschlüssel" does.
"""

import itertools
from collections.abc import Callable, Container, Iterable, Mapping, Sequence

_SHORTEST_PART = 4  # letters
_SHORTEST_HEAD = 6  # of one that stands for the whole
_LINKS = ("", "s", "es", "n", "en")  # between the parts
MAX_WORDS = 8  # of a question: beyond those that are put together

Parts = Mapping[str, tuple[str, ...]]


def _joints(words: Sequence[str]) -> dict[tuple[str, str], list[str]]:
    """By two of a question's words what they may be put together as."""
    long_words = [word for word in words if len(word) >= _SHORTEST_PART][:MAX_WORDS]
    return {
        pair: [pair[0] + link + pair[1] for link in _LINKS] for pair in itertools.permutations(long_words, 2)
    }


def compounds(words: Sequence[str], frequencies: Callable[[Iterable[str]], Mapping[str, int]]) -> Parts:
    """The terms that stand for each word of a question, apart or together; words without such are left out.
    `frequencies` gives how often terms are held, without those that are not."""
    splits = {word: list(_splits(word)) for word in words}
    joints = _joints(words)
    candidates = {part for pairs in splits.values() for pair in pairs for part in pair}
    held_terms = frequencies(candidates.union(*joints.values()))
    parts = {word: longest for word, pairs in splits.items() if (longest := _longest(pairs, held_terms))}
    for pair, joined_terms in joints.items():
        for joint in filter(held_terms.__contains__, joined_terms):
            parts |= {word: (*parts.get(word, ()), joint) for word in pair}
    return parts


def _longest(pairs: Sequence[tuple[str, str]], held_terms: Container[str]) -> tuple[str, ...] | None:
    """Of the ways to take a word apart the one with the longest head, where both parts are held or that head
    alone.
    """
    whole = [pair for pair in pairs if pair[0] in held_terms and pair[1] in held_terms]
    heads = [(head,) for _, head in pairs if head in held_terms and len(head) >= _SHORTEST_HEAD]
    return max(whole or heads, key=lambda pair: len(pair[-1]), default=None)


def _splits(word: str) -> Iterable[tuple[str, str]]:
    """A word as a modifier, without what links it, and a head."""
    for length in range(_SHORTEST_PART, len(word) - _SHORTEST_PART + 1):
        modifier, head = word[:length], word[length:]
        for link in _LINKS:
            if modifier.endswith(link) and len(modifier) - len(link) >= _SHORTEST_PART - 1:
                yield modifier[: len(modifier) - len(link)], head
