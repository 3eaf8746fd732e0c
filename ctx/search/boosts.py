"""Boosts and penalties by a file's path and type (docs/ranking.md has the ablations).

A path with words of the query and a definition of the name asked for raise a document's score. Tests,
examples, change logs and generated files are lowered unless the query asks for them.
"""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from ctx.search import intent
from ctx.search.fusion import Leg
from ctx.text import filetypes
from ctx.text.analyze import beginning

# Added, as a share of the best score, to code whose path has all words of the query; less if some of the
# first SAMPLE candidates are prose, since then a page is the likelier answer.
PATH_CODE, SAMPLE = 0.7, 10
PATH_PROSE = 0.3  # prose names its subject in its text
DEFINITION = 1.0  # of the best score, added to code that defines the name which is the whole query
DEFINITION_PLAIN = 0.5  # where the whole query is a plain word, which may be meant as a word
DEFINITION_WITHIN = 0.25  # where the name is a word among others: a question is about more than one name
DEFINITION_NAMED = 1.5  # multiplied again if the file has that name too
# Of the best score, added to a file that the query names: as the whole query, and within a sentence.
NAMED, NAMED_WITHIN = 1.0, 0.5
HELD_BACK = {filetypes.TEST: 0.4, filetypes.EXAMPLE: 0.5, filetypes.CHANGES: 0.6, filetypes.GENERATED: 0.3}
PAGE, CODE = "page", "code"  # pages and data where the query wants code, code where it wants a guide
HELD_BACK_KIND = 0.5
ALTERNATING = 0.5  # of the best score: what is below does not take turns
# Letters by which a word of a path may go on after a term: `rout` is in routing, `app` not in application.
WORD_ENDING = 4
COMPOUND_PART = 3  # letters at least of what a word of a path is made of
_KEPT = 100_000  # profiles, 20 MB: the documents of a million chunks
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_AROUND_A_PATH = "\"'`<>()[]{},;"
_STUBS = (".pyi", ".d.ts")

# Words by which a query asks for what is otherwise held back; stems, as the analysis makes them.
ASKING = {
    filetypes.TEST: frozenset({"test", "spec", "fixtur", "mock", "pytest", "unittest", "assert", "e2e"}),
    filetypes.EXAMPLE: frozenset(
        {"exampl", "sampl", "demo", "tutori", "benchmark", "bench", "legaci", "compat", "deprec", "vendor"}
    ),
    filetypes.CHANGES: frozenset(
        {"releas", "version", "chang", "changelog", "histori", "news", "new", "ad", "remov", "deprec",
        "upgrad", "migrat"}
    ),
    filetypes.GENERATED: frozenset({"generat", "complet", "man", "roff", "protobuf", "proto"}),
}  # fmt: skip


class File(NamedTuple):
    """A file named in a query, in lower case: `src/Main.py:12` is `main` with `py` in `src`."""

    folder: str  # the one it lies in; "" where it is named alone
    stem: str
    suffix: str


class Question(NamedTuple):
    """A query for the rules. `weights` are its terms with their rarity, `names` the names it may ask for,
    `modules` their modules (`subprocess` of `subprocess.Popen`), `definitions` the documents that define
    them, `files` the files it names.
    """

    weights: Mapping[str, float]
    names: Sequence[str] = ()
    modules: Sequence[str] = ()
    defining: float = DEFINITION_WITHIN  # what a definition of one of the names adds
    definitions: Container[int] = ()
    numbered: bool = False  # it holds a version number
    files: Sequence[File] = ()
    naming: float = NAMED_WITHIN  # what being one of the files adds
    wanted: str = intent.PAGES


class Ruling(NamedTuple):
    """The effect of the rules on a document: shares of the best score added, and the factor applied after."""

    path: float = 0.0
    definition: float = 0.0
    factor: float = 1.0
    role: str | None = None


class Profile(NamedTuple):
    """Facts about a document from its path and media type."""

    low: str  # `folder/stem` in lower case
    words: tuple[str, ...]  # of it, with camel case cut
    role: str | None
    siblings: filetypes.Siblings

    @property
    def stem(self) -> str:
        """The file's name in lower case, without underscores; of `__init__.py` or `mod.rs` its folder's."""
        folder, _, stem = self.low.partition("/")
        return (folder if stem in filetypes.FOLDER_STEMS else stem).replace("_", "")

    @property
    def is_page(self) -> bool:
        return self is not UNKNOWN and not self.siblings.code

    @property
    def defining(self) -> bool:
        """Whether it is code that may define names; stubs only declare them."""
        return self.siblings.code and not f"{self.low}.{self.siblings.suffix}".endswith(_STUBS)


Place = tuple[int, str, str]
"""A document's number, path and media type."""

UNKNOWN = Profile("", (), None, filetypes.Siblings("", "", prose=False, code=False, role=None))
_score = itemgetter(1)


class Profiles:
    """A cache of document profiles by number. A number keeps its path for good. Safe from several threads."""

    def __init__(self, read: Callable[[Sequence[int]], Sequence[Place]]) -> None:
        self._read = read
        self._profiles: dict[int, Profile] = {}

    def known(self, document_no: int) -> Profile:
        """The profile if it was read already, else `UNKNOWN`."""
        return self._profiles.get(document_no, UNKNOWN)

    def of(self, document_nos: Sequence[int]) -> list[Profile]:
        """The profiles of documents, in their order; `UNKNOWN` for deleted ones."""
        if len(self._profiles) > _KEPT:
            self._profiles = {}
        profiles = self._profiles  # another thread may start a new one
        unread = [number for number in document_nos if number not in profiles]
        if unread:
            for number, path, media_type in self._read(sorted(unread)):
                profiles[number] = profile_of(path, media_type)
        return [profiles.get(number, UNKNOWN) for number in document_nos]


def profile_of(path: str, media_type: str) -> Profile:
    stem, siblings = filetypes.file(path, media_type)
    named = f"{siblings.folder}/{stem}"
    words = tuple(_WORD.findall(_HUMP.sub(" ", named).lower()))
    return Profile(named.lower(), words, filetypes.role(stem, siblings), siblings)


def files_named(query: str) -> list[File]:
    """The files that a query names by path or with a suffix, in its order."""
    files = []
    for piece in query.replace("\\", "/").lower().split() if "." in query else ():
        folders, _, name = piece.strip(_AROUND_A_PATH).rpartition("/")
        name = name.partition(":")[0].partition("#")[0]  # a line may be told behind it
        stem, _, suffix = name.rpartition(".")
        if stem and suffix.isalnum() and not suffix.isdigit():
            files.append(File(folders.rpartition("/")[2].strip("."), stem, suffix))
    return list(dict.fromkeys(files))


def _parts(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """The beginning of each term's words, and the term's share of the query's weight."""
    total = sum(weights.values()) or 1.0
    return [(beginning(term), weight / total) for term, weight in weights.items()]


def _named(parts: list[tuple[str, float]], profiles: Sequence[Profile]) -> dict[int, float]:
    """Positions of paths that have words of the query -> their share of it."""
    shares: dict[int, float] = {}
    beginnings = [part for part, _ in parts]
    for position, (low, words, _, _) in enumerate(profiles):
        present = [share for part, share in parts if part in low and _says(words, part, beginnings)]
        if present:
            shares[position] = sum(present)
    return shares


def _asked_for(files: Sequence[File], profiles: Sequence[Profile]) -> set[int]:
    """The positions of files that the query names; folders are compared if both have one."""
    if not files:
        return set()
    named, names = set(files), {file[1:] for file in files}
    positions = set()
    for position, profile in enumerate(profiles):
        folder, _, stem = profile.low.partition("/")
        suffix = profile.siblings.suffix
        if (stem, suffix) not in names:
            continue
        if not folder or not named.isdisjoint(File(each, stem, suffix) for each in (folder, "")):
            positions.add(position)
    return positions


def apply(ranked: Leg, profiles: Sequence[Profile], question: Question) -> tuple[Leg, dict[int, Ruling]]:
    """The ranking after the rules, best first, and the changes by document. `profiles` is parallel to the
    ranking.

    Scores are in [0, 1], and the best one stays as it was. `UNKNOWN` documents do not change. Ties keep their
    order.
    """
    if not ranked:
        return ranked, {}
    top = ranked[0][1]
    shares = _named(_parts(question.weights), profiles)
    asked = _asked_for(question.files, profiles)
    names = {name.replace("_", "").lower() for name in (*question.names, *question.modules)}
    held = {role: factor for role, factor in HELD_BACK.items() if not _asks_for(question, role)}
    code_wanted = question.wanted == intent.CODE
    unwanted = {intent.CODE: PAGE, intent.GUIDE: CODE}.get(question.wanted)
    sample = [profile.siblings.code for profile in profiles[:SAMPLE] if profile is not UNKNOWN]
    path_of_code = PATH_CODE * (1.0 if code_wanted else sum(sample) / max(1, len(sample)))
    plain = any(name.isalpha() and name.islower() for name in question.names)  # may be meant as a word
    only_held = not plain and question.defining > DEFINITION_WITHIN
    for (number, _), profile in zip(ranked, profiles, strict=True):
        if number in question.definitions and profile.defining and profile.role not in held:
            only_held = False
    rulings: dict[int, Ruling] = {}
    scores = list(ranked)
    for position, ((number, score), profile) in enumerate(zip(ranked, profiles, strict=True)):
        role = profile.role if profile.role in held else None
        path = shares.get(position, 0.0) * (path_of_code if profile.siblings.code else PATH_PROSE)
        definition = 0.0
        if number in question.definitions and profile.defining:
            definition = question.defining * (DEFINITION_NAMED if profile.stem in names else 1.0)
            role = None if only_held else role  # a name that tests alone define is asked of them
        if position in asked:
            path, definition, role = question.naming + path, 0.0, None
        factor = held[role] if role else 1.0
        kind = PAGE if profile.is_page else CODE
        if kind == unwanted and position not in asked and profile is not UNKNOWN:
            role, factor = role or kind, factor * HELD_BACK_KIND
        if path or definition or role:
            rulings[number] = Ruling(path, definition, factor, role)
            scores[position] = (number, (score + top * (path + definition)) * factor)
    if rulings:
        scores.sort(key=_score, reverse=True)  # stable, in reverse too
        highest = scores[0][1]
        scale = top / highest if highest > 0 else 1.0
        scores = [(number, score * scale) for number, score in scores]
    if question.wanted == intent.UNCLEAR:
        pages = {number for (number, _), profile in zip(ranked, profiles, strict=True) if profile.is_page}
        scores = alternated(scores, pages)
    return scores, rulings


def alternated(ranked: Leg, pages: Container[int]) -> Leg:
    """Alternates pages and code, starting with the kind of the best result. Scores keep their positions.

    Results below `ALTERNATING` of the best score keep their places.
    """
    least = ranked[0][1] * ALTERNATING
    good = sum(1 for _, score in ranked if score >= least)
    kinds: tuple[list[int], list[int]] = ([], [])
    for number, _ in ranked[:good]:
        kinds[number in pages].append(number)
    first, second = kinds if [ranked[0][0]] == kinds[0][:1] else kinds[::-1]
    shared = min(len(first), len(second))
    turns = [number for pair in zip(first, second, strict=False) for number in pair]
    numbers = turns + first[shared:] + second[shared:]
    return [(number, score) for number, (_, score) in zip(numbers, ranked, strict=False)] + ranked[good:]


def _asks_for(question: Question, role: str) -> bool:
    if role == filetypes.CHANGES and question.numbered:
        return True
    if role == filetypes.TEST and question.wanted == intent.GUIDE:
        return False  # "how do I test my plugin" is answered by a page
    return not ASKING[role].isdisjoint(question.weights)


def _says(words: Sequence[str], part: str, parts: Sequence[str]) -> bool:
    """Whether a word of a path begins with a part and ends soon after it, or is made of that part and
    another: `healthcheck` of `health` and `check`.
    """
    for word in words:
        if word.startswith(part) and len(word) <= len(part) + WORD_ENDING:
            return True
        if part in word and any(_made_of(word, part, each) or _made_of(word, each, part) for each in parts):
            return True
    return False


def _made_of(word: str, front: str, back: str) -> bool:
    if min(len(front), len(back)) < COMPOUND_PART or not word.startswith(front):
        return False
    start = word.find(back, len(front), len(front) + WORD_ENDING + len(back))
    return start >= 0 and len(word) - start - len(back) <= WORD_ENDING
