"""Splits a query into words, names and filters for the search."""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ctx.code.symbols import MAX_NAME_CHARS
from ctx.connectors.patterns import Rules, parse_globs
from ctx.errors import BadRequest, ConfigError
from ctx.models import MODES
from ctx.search import boosts, fusion
from ctx.text import analyze
from ctx.text.strings import cut

# Keywords before a definition that are not English words.
_SAID_BY_CODE_ALONE = frozenset({"def", "fn", "func", "struct"})
_SENTENCE_WORDS = 4  # a query with at least this many words may be the name of a Kotlin test
_MIN_HASH_CHARS = 7  # the shortest abbreviation that git prints
_NAMED = 3  # unknown words to name in a note
_MIN_BEGINNING_CHARS = 4  # shortest unknown last word for which to find words that begin with it
_HEX = frozenset("0123456789abcdef")
_MIN_TYPO_CHARS = 6  # shorter words are too often one letter apart: trust and thrust, forum and form


class Words(NamedTuple):
    """A query with misspelt words corrected, its terms' rarity (0 if no text has the term), and a note on the
    corrections. `names` are the names whose definition it may ask for, `modules` their modules, and `defined`
    those of the names that some code defines.
    """

    query: str
    subject: str
    weights: dict[str, float]
    names: list[str]
    modules: list[str]
    defined: list[str]
    note: str | None


def check_search(query: str, mode: str, limit: int, offset: int, per_document: int) -> None:
    if not query.strip():
        raise BadRequest("the query is empty")
    if mode not in MODES:
        raise BadRequest(f"unknown mode '{cut(mode, 40)}' (known: {', '.join(MODES)})")
    limits = (("limit", limit, 1), ("offset", offset, 0), ("per_document", per_document, 1))
    for name, value, minimum in limits:
        if value < minimum:
            raise BadRequest(f"{name} must be at least {minimum}, got {value}")


def subject_of(query: str) -> str:
    """The name alone if the query is written like a definition (`class OrderedDict`, `def main():`), else the
    query.

    A lower-case name counts only after a keyword that is not an English word, because `class action` and
    `type theory` are prose.
    """
    word, _, name = query.strip().partition(" ")
    name = name.strip().removesuffix(":").removesuffix("()")
    is_word = name.isalpha() and name.islower() and word not in _SAID_BY_CODE_ALONE
    return name if word in analyze.DEFINING and not is_word and fusion.is_name(name) else query


def names_asked_for(query: str, members: Sequence[tuple[str, str]]) -> list[str]:
    """The names whose definition a query may ask for: the query itself if it is a name, else its identifiers
    and the last part of dotted names. A query of several words may be a name too, because tests in Kotlin
    have such names.
    """
    names = [name for _, name in members]
    if not fusion.is_name(query):
        is_sentence = query.count(" ") + 1 >= _SENTENCE_WORDS and len(query) <= MAX_NAME_CHARS
        return list(dict.fromkeys([query] * is_sentence + [*analyze.identifiers(query), *names]))
    return names or [query.strip().strip("\"'`()")]


def definition_boost(query: str, words: Words) -> float:
    """The score boost for a definition of a name in the query; larger if the name is the whole query."""
    subject = words.subject
    if " " in subject and subject in words.defined:
        return boosts.DEFINITION
    if not fusion.is_name(subject) or "." in subject.strip():
        return boosts.DEFINITION_WITHIN
    asked_for = subject != query or fusion.is_identifier(query)
    return boosts.DEFINITION if asked_for else boosts.DEFINITION_PLAIN


def unquoted_words(query: str) -> Iterator[tuple[str, str]]:
    """The words of a query outside quotes, with their stems."""
    outside = " ".join(query.split('"')[::2])
    words, stems = analyze.plain_words(outside), analyze.words(outside)
    return zip(words, stems, strict=True)


def may_be_misspelt(word: str) -> bool:
    """Whether a word may be corrected: it is long and has only ASCII letters, because a number with another
    digit is another number.
    """
    return (
        len(word) >= _MIN_TYPO_CHARS and word.isascii() and word.isalpha() and word not in analyze.STOP_WORDS
    )


def is_cut_hash(word: str) -> bool:
    """Whether a word may be an abbreviated commit id or other hash."""
    return (
        _MIN_HASH_CHARS <= len(word) < 64
        and _HEX.issuperset(word)
        and not (word.isalpha() or word.isdecimal())
    )


def ends_cut_off(words: Words) -> bool:
    """Whether no text has the query's last word, and that word may be only the beginning of a longer one."""
    word = words.query.rpartition(" ")[2].lower()
    known = any(words.weights.get(stem, 1.0) for stem in analyze.words(word))
    begun = word.isalpha() and len(word) >= _MIN_BEGINNING_CHARS
    return not known and (begun or is_cut_hash(word))


def unknown_words_note(words: Words) -> str | None:
    """A note that names the words with non-ASCII letters that no text has; None if there are none."""
    pairs = unquoted_words(words.query)
    unknown = [word for word, stem in pairs if not (word.isascii() or words.weights.get(stem, 1.0))]
    if not unknown:
        return None
    named = ", ".join(f"'{word[:40]}'" for word in unknown[:_NAMED])
    return f"no document has {named}; outside English only whole words and word beginnings match"


def _and_inside(glob: str) -> list[str]:
    """The glob; if it is a path, which may be that of a folder, also a glob for the files in it."""
    path = glob.strip().removeprefix("./").rstrip("/")
    return [glob, path, f"{path}/**"] if path and not re.search(r"[*?[{]", path) else [glob]


def path_test(globs: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that tells whether a path matches one of the globs or is in a folder that does;
    without globs all paths match. Raises `BadRequest` for a bad or excluding glob.
    """
    if not globs:
        return lambda path: True
    for glob in globs:
        if glob.startswith("!"):
            raise BadRequest(f"path: '{cut(glob, 40)}' excludes files; a glob must say which files to search")
    try:
        top = Rules(parse_globs([each for glob in globs for each in _and_inside(glob)])).top()
    except ConfigError as error:
        raise BadRequest(f"path: {error.message}") from error

    def fits(path: str) -> bool:
        *folders, name = path.split("/")
        level = top
        for folder in folders:
            level = level.descend(folder)
        return level.decide(name, folder=False) is True

    return fits
