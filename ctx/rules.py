"""What a file is decides with what it says: the rules applied to a ranking of candidates (docs/ranking.md has the ablations).

A path that names the subject, and a definition of the name asked for, add to a document's score; tests, examples, lists of exports
and change logs are held back unless the query asks for them. The constants are coarse and the same everywhere.
"""

from collections.abc import Container, Mapping, Sequence

from ctx import kinds
from ctx.analyze import beginning
from ctx.lean import NamedTuple
from ctx.ranking import Leg

# Of the best score, added where the path of code says all that the query says: so much where the first SAMPLE candidates are code,
# less as they are prose, for a page is then the likelier answer.
PATH_CODE, SAMPLE = 1.0, 10
PATH_PROSE = 0.3  # prose says its subject in its text; more cost document trees .008
DEFINITION = 1.0  # of the best score, added to code that defines the name which is the whole query
DEFINITION_PLAIN = 0.5  # where the whole query is a plain word, which may be meant as a word
DEFINITION_WITHIN = 0.25  # where the name is a word among others: a question is about more than one name
DEFINITION_NAMED = 1.5  # times as much where the file bears the name too
HELD_BACK = {kinds.TEST: 0.5, kinds.EXAMPLE: 0.5, kinds.EXPORTS: 0.7, kinds.CHANGES: 0.6}
WORD_ENDING = 4  # letters by which a word of a path may go on after a term: `rout` is in routing, `app` not in application

# Words by which a query asks for what is otherwise held back; stems, as the analysis makes them.
ASKING = {
    kinds.TEST: frozenset({"test", "spec", "fixtur", "mock", "pytest", "unittest", "assert", "e2e"}),
    kinds.EXAMPLE: frozenset(
        {"exampl", "sampl", "demo", "tutori", "benchmark", "bench", "legaci", "compat", "deprec", "vendor"}
    ),
    kinds.EXPORTS: frozenset({"export", "reexport", "init", "index", "packag", "__init__"}),
    kinds.CHANGES: frozenset(
        {"releas", "version", "chang", "changelog", "histori", "news", "new", "ad", "remov", "deprec", "upgrad", "migrat"}
    ),
}  # fmt: skip


class Question(NamedTuple):
    """A query as the rules see it. `weights` are its terms with their rarity; `definitions` the documents that define `names`."""

    weights: Mapping[str, float]
    names: Sequence[str] = ()
    defining: float = DEFINITION_WITHIN  # what a definition of one of the names adds
    definitions: Container[int] = ()
    numbered: bool = False  # it holds a version number


class Ruling(NamedTuple):
    """What the rules did to a document: shares of the best score that they added, and the factor they held it back by."""

    path: float = 0.0
    definition: float = 0.0
    factor: float = 1.0
    role: str | None = None


class Profile(NamedTuple):
    """What a document's path and media type say whatever the query."""

    named: str  # the words that are looked at: `folder/stem`
    low: str
    stem: str  # without underscores, in lower case
    code: bool
    prose: bool
    role: str | None
    notable: bool  # it may define a name, or has a role: its path is not all that counts


_UNKNOWN = Profile("", "", "", False, False, None, False)


def profile(path: str, media_type: str) -> Profile:
    file = kinds.place(path)
    named = f"{file.folders[-1] if file.folders else ''}/{file.stem}"
    code, role = kinds.is_code(media_type), kinds.role(file, media_type)
    return Profile(
        named,
        named.lower(),
        file.stem.replace("_", "").lower(),
        code,
        kinds.is_prose(media_type),
        role,
        code or role is not None,
    )


class _Terms(NamedTuple):
    """A question made ready for many documents."""

    question: Question
    parts: list[tuple[str, float]]  # what a word of a path begins with, and its share of what the query says
    names: set[str]
    excused: set[str]  # the roles that the query asks for
    path_of_code: float


def _terms(question: Question, share_of_code: float) -> _Terms:
    total = sum(question.weights.values()) or 1.0
    return _Terms(
        question,
        [(beginning(term), weight / total) for term, weight in question.weights.items()],
        {name.replace("_", "").lower() for name in question.names},
        {role for role in HELD_BACK if _asks_for(question, role)},
        PATH_CODE * share_of_code,
    )


def _named(parts: list[tuple[str, float]], profiles: Sequence[Profile]) -> dict[int, float]:
    """Where paths say something of the query, and what share of it. By parts, since most paths have none: four hundred are asked."""
    shares: dict[int, float] = {}
    lows = [profile.low for profile in profiles]
    together = "\n".join(lows)
    for part, share in parts:
        if part not in together:
            continue
        for position in [position for position, low in enumerate(lows) if part in low]:
            if _says(profiles[position].named, lows[position], part):
                shares[position] = shares.get(position, 0.0) + share
    return shares


def _ruling(terms: _Terms, number: int, profile: Profile, path: float) -> Ruling | None:
    """What holds for one document, whose path says a share of the query; None where nothing does."""
    definition = 0.0
    role = None if profile.role in terms.excused else profile.role
    if profile.code and number in terms.question.definitions:
        definition = terms.question.defining * (DEFINITION_NAMED if profile.stem in terms.names else 1.0)
    if not path and not definition and role is None:
        return None
    path *= terms.path_of_code if profile.code else PATH_PROSE
    return Ruling(path, definition, HELD_BACK[role] if role is not None else 1.0, role)


def apply(ranked: Leg, files: Mapping[int, Profile], question: Question) -> tuple[Leg, dict[int, Ruling]]:
    """The ranking after the rules, best first, scores in [0, 1] with the best as it was; and what changed, by document.

    Documents that `files` lacks stay as they are. Ties keep their order.
    """
    if not ranked:
        return ranked, {}
    top = ranked[0][1]
    terms = _terms(question, _share_of_code(ranked, files))
    profiles = [files.get(number, _UNKNOWN) for number, _ in ranked]
    named = _named(terms.parts, profiles)
    rulings: dict[int, Ruling] = {}
    scores = list(ranked)
    for position, profile in enumerate(profiles):
        if position in named or profile.notable:
            number, score = ranked[position]
            ruling = _ruling(terms, number, profile, named.get(position, 0.0))
            if ruling is not None:
                rulings[number] = ruling
                scores[position] = (number, (score + top * (ruling.path + ruling.definition)) * ruling.factor)
    if not rulings:
        return ranked, {}
    scores.sort(key=_by_score)
    highest = scores[0][1]
    scale = top / highest if highest > 0 else 1.0
    return [(number, score * scale) for number, score in scores], rulings


def _share_of_code(ranked: Leg, files: Mapping[int, Profile]) -> float:
    sample = [files[number].code for number, _ in ranked[:SAMPLE] if number in files]
    return sum(sample) / max(1, len(sample))


def _by_score(entry: tuple[int, float]) -> float:
    return -entry[1]


def _asks_for(question: Question, role: str) -> bool:
    if role == kinds.CHANGES and question.numbered:
        return True
    return not ASKING[role].isdisjoint(question.weights)


def _says(named: str, low: str, part: str) -> bool:
    """Whether some word of a path (`low`: in lower case) begins with a part and ends soon after it."""
    start = low.find(part)
    while start >= 0:
        if not low[start - 1].isalnum() or named[start].isupper() or start == 0:
            end = start + len(part)
            tail = 0
            while end + tail < len(low) and low[end + tail].isalpha() and not named[end + tail].isupper():
                tail += 1
            if tail <= WORD_ENDING:
                return True
        start = low.find(part, start + 1)
    return False
