"""Two statements put alike about two things: "The blue team meets in room 3" and "The red team meets in room
5".

Such a pair is as near in meaning as a statement and its successor are, and shares as many words. It is told
by how the texts run side by side: they begin alike, part for a word or two, go on alike, and part again. What
is said of a thing that changed parts once, at its value.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Set
from functools import cache, lru_cache

from ctx.analyze import STOP_WORDS, terms
from ctx.memory.gist import first_person
from ctx.memory.language import language, sexless, silent_terms

# What stands before a noun without telling it from another of its kind.
_DETERMINERS = frozenset(
    ("the", "a", "an", "this", "that", "my", "our", "der", "die", "das", "ein", "eine", "mein", "meine",
    "unser", "unsere",
     "el", "la", "los", "las", "un", "una", "mi", "mis", "nuestro", "nuestra", "le", "les", "une", "mon",
     "ma", "mes",
     "notre", "nos", "des", "du")
)  # fmt: skip
_COPULAS = frozenset(("is", "are", "was", "were", "be", "ist", "sind", "war", "has", "have", "hat"))
# Whoever speaks names nothing that a statement is about by saying what they do: "We fly" beside "Our flight
# goes".
_SPEAKERS = frozenset(("i", "i'm", "i’m", "we", "we're", "we’re", "ich", "wir"))
_POSSESSIVE = "s"  # what is left of "API's" where an apostrophe parts words
_UNNAMING = (STOP_WORDS | {_POSSESSIVE}) - _SPEAKERS  # what no name of a thing ends with
# Who prefers a thing likes it, or wants it.
_LIKING = frozenset(
    verb + ending for verb in ("like", "love", "prefer", "favour", "want", "enjoy") for ending in ("", "s")
)
# Where speakers are left out, a deed begins with its auxiliary: "Han aplazado el informe".
_AUXILIARIES = frozenset(("he", "ha", "hemos", "han"))
# Alternatives of which a thing falls under one: whoever asks for the evening is not answered with the
# morning.
_ALTERNATIVES = (
    ("morning", "noon", "lunch", "afternoon", "evening", "night", "breakfast", "dinner", "supper"),
    ("morgens", "vormittags", "mittags", "nachmittags", "abends", "nachts"),
    ("mañana", "mediodía", "tarde", "noche"),
    ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday", "weekend", "weekday"),
    ("montag", "dienstag", "mittwoch", "donnerstag", "freitag", "samstag", "sonntag", "wochenende"),
    ("montags", "dienstags", "mittwochs", "donnerstags", "freitags", "samstags", "sonntags"),
    ("lunes", "martes", "miércoles", "jueves", "viernes", "sábado", "domingo"),
    ("spring", "summer", "autumn", "winter"),
    ("frühling", "sommer", "herbst", "winter"),
    ("first", "second", "third", "fourth", "final"),
    ("left", "right"),
    ("upstairs", "downstairs"),
)
# A thing and what it is of: "the class of pottery" is another than "the class of sewing".
_COMPLEMENT = re.compile(
    r"(?i)\b(\w{3,})\s+(?:(?:of|for|de|del|du|des|vom|von|für|pour"
    r"|para)\s+(?:(?:the|la|los|las|les|l['’]|den|der|die|das)\s*)?|to\s+the\s+)(\w{3,})"
)
_FIRST_COMPLEMENT = re.compile(
    r"(?i)(?:(?:the|our|my)\s+)?(\w{3,})\s+(?:of|to|for|in|at|on|with)\s+(?:(?:the|our|my|a)\s+)?(\w{3,})"
)
_DETERMINED = re.compile(r"(?i)\b(?:the|our|my|his|her|their|this)\s+(\w{3,})\s+(\w{3,})")
_FIRST_LABEL = re.compile(r"(?:(?i:the|our|my)\s+)?([^\W\d_]\w+)\s+(\d[\w.]*|[A-Z]|\w+-\w+)(?=\s|['’]s\s)")
_PAST = re.compile(r"(?i)\b(?:was|were|had|used?\s+to|war(?:en)?|hatten?|era|fue|tenía|était|avait|avais)\b")
_PRESENT = re.compile(
    r"(?i)\b(?:is|are|am|have|has|['’](?:m|re|s)|now|ist|sind|bin|habe|hat|haben|es|soy|son|tengo|est|suis"
    r"|sont|ai)\b"
)
_LABEL = re.compile(r"\b([^\W\d_]\w+)\s+(\d[\w.]*\b|[A-Z]\b)")
_FIRST_AGE = re.compile(r"(?i)(?:(?:the|our|my)\s+)?(old|new)\s+(\w+)")
_SCOPE = re.compile(
    r"(?i)\b(?:(for)\s+(?:(?:the|my|our|a)\s+)?(\w{3,})|(in)\s+(?:the|my|our)\s+(\w{3,})"
    r"|(at)\s+(home|work|school|uni))\b"
)
# When or where something holds, said first: "On Sundays I wake up at 9". Not since when: "In March I moved".
_FRAME = re.compile(
    r"(?i)(?:on|at|in|during|for)\s+(?!(?:the\s+)?(?:moment|meantime|end|future|fact|general|case|march"
    r"|april|may|june|july|august|january|february|september|october|november|december)\b)"
    r"((?:(?:the|my|our)\s+)?[a-z][\w-]*(?:\s+[a-z]+)?),?\s+(?:i"
    r"|we)\b(?!\s+(?:\w+\s+)?(?:moved|switched|changed|started|decided|\w+ed)\b)"
)
# The same where the speaker stands behind the verb, behind all that is said first, or is not said: "Am
# Wochenende stehe ich um neun auf", "Le dimanche je me lève", "En verano trabajo".
_FRAMES = {
    "en": _FRAME,
    "de": re.compile(r"(?i)(?!ich\b|wir\b|am\s+\w+sten\b)((?:\w+\s+){1,3}?)\w+\s+(?:ich|wir)\b"),
    "es": re.compile(
        r"(?i)(?:en|los|las|durante|por|cada)\s+((?:\w+\s+){1,2}?)(?:(?:me|nos)\s+)?\w+(?:o|mos)\b"
    ),
    "fr": re.compile(r"(?i)(?!je\b|j['’]|nous\b)((?:[\w'’-]+,?\s+){1,4}?)(?:je\b|j['’]|nous\b)"),
}
# What holds in some cases only.
_LIMITED = re.compile(
    r"(?i)\b(?:when(?:ever\b|\s+it(?:['’]s\b|\s+\w+s\b))|if\b|unless\b|except\b|sometimes\b|occasionally\b)"
)
# What is wished, weighed or tried, and is not so yet.
_WISH = re.compile(
    r"(?i)\b(?:i|we|user)(?:['’](?:m|re|d|ll|ve)|\s+(?:am|are|is|have|has))?\s+(?:\w+ly\s+)?(?:considering"
    r"|considers?|thinking\s+(?:of|about)|think\s+about|might|may|would\s+(?:like|love)|wish|hope|hoping"
    r"|dream|tempted|tried|trying|test(?:ed|ing)|look(?:ed|ing)\s+at|curious)\b"
)
# What denies: a question of what one does not like is answered by what one does not like.
_NEGATION = re.compile(
    r"(?i)\b(?:not|no longer|never|without|stopped|dislikes?|hates?|avoids?|refuses?|allergic|intolerant"
    r"|no\s+(?:\w+\s+)?(?:allergy|allergies|intolerance)|[a-z]+n['’]t|cannot"
    r"|n(?:e\s+|['’])\w+\s+(?:\w+\s+)?(?:pas|plus|jamais)|nicht|nie|keine?[nmrs]?|ohne|nunca|sin"
    r"|no (?:me|te|le|nos|les)|ya no)\b"
)
# Whom it is said to does not tell what it is about: "Please write in English" beside "We write in German".
_POLITE = frozenset(("please", "kindly", "bitte"))
# What stands before a thing and tells it from none of its kind.
_UNTELLING = frozenset(
    (
        _POSSESSIVE,
        "new",
        "newer",
        "old",
        "older",
        "current",
        "former",
        "next",
        "other",
        "own",
        "same",
        "whole",
        "still",
        "also",
        "again",
    )
)
# Who does something, and what: of "I wear contact lenses" the lenses are of a kind, and no "wear contact".
_DEED = re.compile(
    r"(?i)\b(?:i|we|you|they|he|she)(?:['’]\w+)?\s+(?:(?:do|does|did|will|would|can|could|should|have|has"
    r"|had)(?:n['’]t|\s+not)?\s+)?\w+"
)
_PHRASE_END = re.compile(r"[^\w\s'’-]+\s*|\s[-–—]\s")
_WORD = re.compile(r"[^\W\d_]\w*")
NUMBER_TERMS = frozenset(terms("number nummer numero"))  # which tell nothing from what has one
_SUBJECT_WORDS = 3
_SHORTEST_ROOT = 6  # letters, of which a longer word may be made
_KEY_WORDS = 2  # at most, in which two such statements name what they are about


def contrasted(earlier: str, later: str) -> frozenset[str]:
    """The terms by which the earlier of two statements put alike about two things can be told from the later
    one; none where they are not such.
    """
    if parted_terms := of_another(earlier, later):
        return parted_terms
    earlier_words, later_words = (_plain_words(first_person(text)) for text in (earlier, later))
    start = _shared(earlier_words, later_words)
    widths = range(1, _KEY_WORDS + 1)
    for width, other_width in itertools.product(widths, widths):
        after, other_after = start + width, start + other_width
        if not _are_things(earlier_words[start:after], later_words[start:other_after]):
            continue
        run = _shared(earlier_words[after:], later_words[other_after:])
        if run == 0 or not _says_something(earlier_words[after : after + run]):
            continue
        if after + run < len(earlier_words) and other_after + run < len(later_words):
            parted = [*earlier_words[start:after], *earlier_words[after + run :]]
            return _missing(parted, later)
    return frozenset()


def _are_things(words: list[str], other_words: list[str]) -> bool:
    """Whether two runs of words can name two things."""
    if _deed(words) or _deed(other_words):
        return False
    if not _UNNAMING.isdisjoint((*words[-1:], *other_words[-1:])):
        return False  # a thing is not called "flight to"
    if _derived(words, other_words) or _said_shorter(words, other_words):
        return False
    return not _LIKING.issuperset((*words, *other_words))


def of_another(earlier: str, later: str) -> frozenset[str]:
    """The terms of what something in the earlier text is of, where the later one has it of something else:
    the password of the office, and that of the guests.
    """
    heads = {match[1].casefold(): match[2] for match in _COMPLEMENT.finditer(later)}
    complements = [
        match[2]
        for match in _COMPLEMENT.finditer(earlier)
        if heads.get(match[1].casefold(), match[2]) != match[2]
    ]
    return _missing(complements, later)


def _missing(words: Iterable[str], text: str) -> frozenset[str]:
    """The terms of words that a text has not, not even as a calling of the other sex."""
    name = language(text)
    held_terms = {sexless(term, name) for term in (*terms(text), *NUMBER_TERMS)} | silent_terms(text)
    return frozenset(
        term
        for term in terms(" ".join(words))
        if term not in _UNNAMING and sexless(term, name) not in held_terms
    )


def _derived(words: Iterable[str], later_words: Iterable[str]) -> bool:
    """Whether one of some words is one of others with another ending: "my therapist session" is the
    therapy."""
    pairs = itertools.product(terms(" ".join(words)), terms(" ".join(later_words)))
    return any(
        min(len(term), len(later)) >= _SHORTEST_ROOT and (term.startswith(later) or later.startswith(term))
        for term, later in pairs
    )


def _said_shorter(words: list[str], later_words: list[str]) -> bool:
    """Whether a later text names with fewer words the thing that an earlier one names: "the planning" is the
    weekly planning, and "my new number" the phone number, where that was not the old one.
    """
    shorter = [word for word in later_words if word not in _UNTELLING]
    if len(shorter) == len(later_words):
        return len(shorter) < len(words) and words[-len(shorter) :] == shorter
    return not shorter and _UNTELLING.isdisjoint(words)


def denies(text: str) -> bool:
    """Whether a text says what is not."""
    return _NEGATION.search(text) is not None


def set_apart(asked_terms: frozenset[str], earlier_terms: Set[str], later_terms: Set[str]) -> bool:
    """Whether a question asks for one of several alternatives, of which the earlier statement names that one
    and the later one only others.
    """
    return any(
        earlier_terms & chosen and later_terms & remainder and later_terms.isdisjoint(earlier_terms & chosen)
        for chosen, remainder in choices(asked_terms)
    )


def kinds(text: str) -> frozenset[tuple[str, str]]:
    """The terms of every two neighbouring words that may be a thing and what tells it from others of its
    kind: "the release branch" is (release, branch).
    """
    pairs: set[tuple[str, str]] = set()
    silent = silent_terms(text)
    for phrase in _PHRASE_END.split(_DEED.sub(", ", text)):
        words = [word if (word := _telling(name)) not in silent else "" for name in _WORD.findall(phrase)]
        pairs.update((modifier, head) for modifier, head in itertools.pairwise(words) if modifier and head)
    return frozenset(pairs)


def spellings(text: str) -> dict[str, str]:
    """How a text spells each term that may stand in its `kinds`."""
    return {_telling(word): word for word in _WORD.findall(text)}


def determined(text: str) -> frozenset[tuple[str, str]]:
    """As `kinds`, of what stands behind an article or a possessive. English."""
    pairs = ((_telling(modifier), _telling(head)) for modifier, head in _DETERMINED.findall(text))
    return frozenset((modifier, head) for modifier, head in pairs if modifier and head)


def begins_with_another(earlier: str, later: str) -> bool:
    """Whether both texts begin with a thing of one kind, and with another one of it: "The backend tests" and
    "The load tests".
    """
    for first in (_first_kind, _first_complement, _first_label, _first_age):
        modifier, head = first(earlier)
        later_modifier, later_head = first(later)
        if modifier and later_modifier and head == later_head and modifier != later_modifier:
            return True
    return False


def label(text: str) -> str:
    """The number, letter or id that tells the thing which a text begins with from others:
    of "Team A's standup" a; "" without one.
    """
    return _first_label(text)[0]


def labelled_apart(earlier: str, later: str) -> bool:
    """Whether the earlier text begins with one of several things that bear labels, and the later one names
    others of them and not that: "Version 1 needs Python", "no longer for version 2".
    """
    first_label, thing = _first_label(earlier)
    if not thing:
        return False
    labels = [mark.casefold() for word, mark in _LABEL.findall(later) if _telling(word) == thing]
    return bool(labels) and first_label not in labels


def of_past(text: str) -> bool:
    """Whether a text says what was, and not what is."""
    return _PAST.search(text) is not None and _PRESENT.search(text) is None


def frame(text: str) -> frozenset[str]:
    """The terms of when or where something is said to hold, where a text begins with that: "At work I have to
    use Edge".
    """
    match = _FRAMES[language(text)].match(text)
    return frozenset() if match is None else frozenset(terms(match[1])) - STOP_WORDS - silent_terms(text)


def limited(text: str) -> bool:
    """Whether a text says of something that it holds in some cases: "when it snows", "sometimes"."""
    return _LIMITED.search(text) is not None


def wishes(text: str) -> bool:
    """Whether somebody says in a text what they weigh, would like or tried."""
    return _WISH.search(text) is not None


def of_another_time(earlier_terms: Set[str], later_terms: Set[str]) -> bool:
    """Whether two texts name different ones of several alternatives: the train on Mondays, and that on
    Fridays.
    """
    return any(
        earlier_terms & alternatives
        and later_terms & alternatives
        and earlier_terms.isdisjoint(later_terms & alternatives)
        for alternatives in _alternatives()
    )


def scoped_otherwise(earlier: str, later: str) -> bool:
    """Whether both texts say for what or where, and not the same: "for prose" and "for Python", "at home" and
    "at work".
    """
    later_terms, later_scopes = frozenset(terms(later)), dict(_scopes(later))
    return any(
        preposition in later_scopes and scope.isdisjoint(later_terms)
        for preposition, scope in _scopes(earlier)
    )


def _scopes(text: str) -> Iterator[tuple[str, frozenset[str]]]:
    for match in _SCOPE.finditer(text):
        preposition, scope = filter(None, match.groups())
        yield preposition.casefold(), frozenset(terms(scope))


def _first_complement(text: str) -> tuple[str, str]:
    """What the thing that a text begins with is of or for, and the thing: (gala, entri) of "Entry to the gala
    is free".
    """
    match = _FIRST_COMPLEMENT.match(text)
    return ("", "") if match is None else (_telling(match[2]), _telling(match[1]))


def _first_label(text: str) -> tuple[str, str]:
    """By what the thing that a text begins with is told from others, where that is a number, a letter or an
    id: (3, chapter).
    """
    match = _FIRST_LABEL.match(text)
    return ("", "") if match is None else (match[2].casefold(), _telling(match[1]))


def _first_age(text: str) -> tuple[str, str]:
    """Whether the thing that a text begins with is the old one or the new one, and the thing."""
    match = _FIRST_AGE.match(text)
    return ("", "") if match is None else (match[1].casefold(), _telling(match[2]))


def _first_kind(text: str) -> tuple[str, str]:
    words = [word for word in _WORD.findall(text) if word.casefold() not in _DETERMINERS | _UNTELLING][:2]
    modifier, head = [_telling(word) for word in words] if len(words) == 2 else ("", "")
    return (modifier, head) if modifier and head else ("", "")


@lru_cache(maxsize=4096)
def _telling(word: str) -> str:
    """The term of a word that tells one thing from another; "" for one that does not."""
    folded = word.casefold()
    silent = folded in STOP_WORDS and not (len(word) > 1 and word.isupper())  # the US are not us
    if silent or folded in _DETERMINERS or folded in _UNTELLING:
        return ""
    return next(iter(terms(folded)), "")


def of_other_kinds(
    asked_kinds: Set[tuple[str, str]],
    earlier_terms: Set[str],
    later_terms: Set[str],
    later_kinds: Set[tuple[str, str]],
) -> bool:
    """Whether a question names a thing with what tells it from others of its kind, the earlier statement does
    so too, and the later one speaks of another of that kind: of the docs branch, where the release branch was
    asked for.
    """
    return any(
        {modifier, head} <= earlier_terms
        and modifier not in later_terms
        and any(later_head == head and later not in earlier_terms for later, later_head in later_kinds)
        for modifier, head in asked_kinds
    )


def kinds_apart(
    earlier_kinds: Set[tuple[str, str]],
    earlier_terms: Set[str],
    later_kinds: Set[tuple[str, str]],
    later_terms: Set[str],
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """The things of one kind of which each text names one that the other does not: the users table, the
    orders table."""
    for (modifier, head), (later_modifier, later_head) in itertools.product(earlier_kinds, later_kinds):
        if head == later_head and modifier not in later_terms and later_modifier not in earlier_terms:
            yield (modifier, head), (later_modifier, later_head)


def subject(text: str) -> frozenset[str]:
    """The terms of the words that a text begins with, up to the first that says nothing by itself, three at
    most: of a statement about a thing that thing. None where somebody speaks of themselves.
    """
    words = itertools.dropwhile(lambda word: word.casefold() in _DETERMINERS, _WORD.findall(text))
    run = itertools.takewhile(bool, map(_telling, words))
    return frozenset(itertools.islice(run, _SUBJECT_WORDS))


@lru_cache(maxsize=64)  # asked of every two statements that a question finds
def choices(asked_terms: frozenset[str]) -> tuple[tuple[frozenset[str], frozenset[str]], ...]:
    """What a question names of each list of alternatives, where it names any, and the others of that list."""
    return tuple(
        (asked_terms & alternatives, alternatives - asked_terms)
        for alternatives in _alternatives()
        if asked_terms & alternatives
    )


@cache
def _alternatives() -> tuple[frozenset[str], ...]:
    return tuple(frozenset(terms(" ".join(words))) for words in _ALTERNATIVES)


def _plain_words(text: str) -> list[str]:
    words = (word.strip(".,;:!?\"'“”()").casefold() for word in text.split())
    return [word for word in words if word and word not in _DETERMINERS and word not in _POLITE]


def _shared(earlier_words: list[str], later_words: list[str]) -> int:
    """How many words two texts begin with alike."""
    count = 0
    for word, other_word in zip(earlier_words, later_words, strict=False):
        if word != other_word:
            break
        count += 1
    return count


def _deed(words: list[str]) -> bool:
    """Whether words are a speaker and what they do, and no thing.
    A speaker alone may well stand beside another.
    """
    return len(words) > 1 and (words[0] in _SPEAKERS or words[0] in _AUXILIARIES)


def _says_something(words: list[str]) -> bool:
    """Whether words are more than prepositions: with those alone two texts can go on alike by chance."""
    return any(word in _COPULAS or word not in STOP_WORDS for word in words)
