"""What a file is decides with what it says: the rules applied to a ranking of candidates (docs/ranking.md has the ablations).

A path that names the subject, and a definition of the name asked for, add to a document's score; tests, examples, lists of exports
and change logs are held back unless the query asks for them. The constants are coarse and the same everywhere.
"""

from collections.abc import Container, Mapping, Sequence

from ctx import kinds
from ctx.lean import NamedTuple
from ctx.ranking import Leg

PATH_CODE = 1.0  # of the best score, added where the path of code says all that the query says
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


class File(NamedTuple):
    """Of a candidate document what its name and type say."""

    path: str
    media_type: str


class Ruling(NamedTuple):
    """What the rules did to a document: shares of the best score that they added, and the factor they held it back by."""

    path: float = 0.0
    definition: float = 0.0
    factor: float = 1.0
    role: str | None = None


def rule(question: Question, number: int, file: File) -> Ruling:
    """What holds for one document."""
    place = kinds.place(file.path)
    code = kinds.is_code(file.media_type)
    path = _path_share(place, question) * (PATH_CODE if code else PATH_PROSE)
    definition = _definition(place, question) if code and number in question.definitions else 0.0
    role = kinds.role(place, file.media_type)
    if role is not None and _asks_for(question, role):
        role = None
    return Ruling(path, definition, HELD_BACK[role] if role else 1.0, role)


def apply(ranked: Leg, files: Mapping[int, File], question: Question) -> tuple[Leg, dict[int, Ruling]]:
    """The ranking after the rules, best first, scores in [0, 1] with the best as it was; and what changed, by document.

    Documents that `files` lacks stay as they are. Ties keep their order.
    """
    if not ranked:
        return ranked, {}
    top = ranked[0][1]
    rulings: dict[int, Ruling] = {}
    scores: Leg = []
    for number, score in ranked:
        file = files.get(number)
        ruling = NOTHING if file is None else rule(question, number, file)
        if ruling != NOTHING:
            rulings[number] = ruling
            score = (score + top * (ruling.path + ruling.definition)) * ruling.factor
        scores.append((number, score))
    if not rulings:
        return ranked, {}
    scores.sort(key=_by_score)
    highest = scores[0][1]
    scale = top / highest if highest > top else 1.0
    return [(number, score * scale) for number, score in scores], rulings


NOTHING = Ruling()


def _by_score(entry: tuple[int, float]) -> float:
    return -entry[1]


def _asks_for(question: Question, role: str) -> bool:
    if role == kinds.CHANGES and question.numbered:
        return True
    return not ASKING[role].isdisjoint(question.weights)


def _path_share(place: kinds.Place, question: Question) -> float:
    """How much of what the query says the file's stem or its folder says, in [0, 1]."""
    total = sum(question.weights.values())
    if total <= 0:
        return 0.0
    folder = place.folders[-1] if place.folders else ""
    named = f"{folder}/{place.stem}"
    low = named.lower()
    return sum(weight for term, weight in question.weights.items() if _named(low, named, term)) / total


def _named(low: str, named: str, term: str) -> bool:
    """Whether some word of a path begins with a term and ends soon after it."""
    part = term[:-1] if len(term) > 3 and term[-1] in "iy" else term
    start = low.find(part)
    while start >= 0:
        if start == 0 or not low[start - 1].isalnum() or named[start].isupper():
            end = start + len(part)
            tail = 0
            while end + tail < len(low) and low[end + tail].isalpha() and not named[end + tail].isupper():
                tail += 1
            if tail <= WORD_ENDING:
                return True
        start = low.find(part, start + 1)
    return False


def _definition(place: kinds.Place, question: Question) -> float:
    share = question.defining
    stem = place.stem.replace("_", "").lower()
    if any(stem == name.replace("_", "").lower() for name in question.names):
        share *= DEFINITION_NAMED
    return share
