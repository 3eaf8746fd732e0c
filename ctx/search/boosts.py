"""Boosts and penalties by a file's path and type (docs/ranking.md has the ablations).

A path with words of the query, or a definition of the name in the query, raises a document's score. Tests,
examples, change logs and generated files are lowered unless the query asks for them.
"""

import re
from collections.abc import Callable, Container, Mapping, Sequence
from operator import itemgetter
from typing import NamedTuple

from ctx.models import Hit
from ctx.search.fusion import Leg
from ctx.search.query import CODE, GUIDE, PAGES, UNCLEAR, Words, is_identifier, is_name
from ctx.text import filetypes
from ctx.text.analyze import beginning

# Share of the best score added to code whose path has all words of the query; less if some of the first
# SAMPLE candidates are prose, because then a page is more likely the answer.
PATH_CODE, SAMPLE = 0.7, 10
PATH_PROSE = 0.3  # the same for prose; smaller, because prose names its subject in its text
DEFINITION = 1.0  # share of the best score added to code that defines the name that is the whole query
DEFINITION_PLAIN = 0.5  # the same if the whole query is a plain word, which may not be meant as a name
DEFINITION_WITHIN = 0.25  # the same if the query has other words too
DEFINITION_NAMED = 1.5  # a further factor if the file's name is also the defined name
# Share of the best score added to a file that the query names: if the name is the whole query, and if it is
# within a sentence.
NAMED, NAMED_WITHIN = 1.0, 0.5
HELD_BACK = {filetypes.TEST: 0.4, filetypes.EXAMPLE: 0.5, filetypes.CHANGES: 0.6, filetypes.GENERATED: 0.3}
# The role of pages and data if the query wants code; if it wants a guide, code has the role CODE.
PAGE = "page"
HELD_BACK_KIND = 0.5
ALTERNATING = 0.5  # share of the best score; results with lower scores are not reordered
# How many letters may follow a term in a word of a path: `rout` matches routing, `app` not application.
WORD_ENDING = 4
COMPOUND_PART = 3  # minimum letters of each part of a compound word in a path
_KEPT = 100_000  # maximum profiles in the cache (20 MB), enough for a million chunks
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_WORD = re.compile(r"[^\W\d_]+|\d+")
_AROUND_A_PATH = "\"'`<>()[]{},;"
_STUBS = (".pyi", ".d.ts")

# Words, as stems, with which a query asks for tests, examples, change logs or generated files.
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

    folder: str  # the name of its folder; "" if the query names no folder
    stem: str
    suffix: str


class Question(NamedTuple):
    """The parts of a query that the rules need. `weights` maps its terms to their rarity. `names` are the
    names that it may ask for, and `modules` their modules (`subprocess` of `subprocess.Popen`). `definitions`
    maps each document that defines such a name to the passage with the definition. `files` are the files that
    the query names.
    """

    weights: Mapping[str, float]
    names: Sequence[str] = ()
    modules: Sequence[str] = ()
    defining: float = DEFINITION_WITHIN  # share of the best score for defining one of the names
    definitions: Mapping[int, Hit] = {}
    numbered: bool = False  # whether the query has a version number
    files: Sequence[File] = ()
    naming: float = NAMED_WITHIN  # share of the best score for being one of the files
    wanted: str = PAGES


class Ruling(NamedTuple):
    """The effect of the rules on a document's score: the shares of the best score that are added, and the
    factor applied to the sum.
    """

    path: float = 0.0
    definition: float = 0.0
    factor: float = 1.0
    role: str | None = None


class Profile(NamedTuple):
    """Facts about a document from its path and media type."""

    low: str  # `folder/stem` in lower case
    words: tuple[str, ...]  # the words of `low`, with camelCase split
    role: str | None
    suffix: str  # in lower case, without the dot
    prose: bool
    code: bool

    @property
    def stem(self) -> str:
        """The file's name in lower case, without underscores; for `__init__.py` or `mod.rs`, the name of its
        folder.
        """
        folder, _, stem = self.low.partition("/")
        return (folder if stem in filetypes.FOLDER_STEMS else stem).replace("_", "")

    @property
    def is_page(self) -> bool:
        return self is not UNKNOWN and not self.code

    @property
    def defining(self) -> bool:
        """Whether the file is code that may define names. Stubs (`.pyi`, `.d.ts`) only declare them."""
        return self.code and not f"{self.low}.{self.suffix}".endswith(_STUBS)


Place = tuple[int, str, str]
"""A document's number, path and media type."""

UNKNOWN = Profile("", (), None, "", prose=False, code=False)
_score = itemgetter(1)


class Profiles:
    """A cache: document number -> profile. The path of a document never changes. Thread-safe."""

    def __init__(self, read: Callable[[Sequence[int]], Sequence[Place]]) -> None:
        self._read = read
        self._profiles: dict[int, Profile] = {}

    def known(self, document_no: int) -> Profile:
        """The profile if it is cached, else `UNKNOWN`."""
        return self._profiles.get(document_no, UNKNOWN)

    def of(self, document_nos: Sequence[int]) -> list[Profile]:
        """The profiles of the documents, in the same order; `UNKNOWN` for deleted documents."""
        if len(self._profiles) > _KEPT:
            self._profiles = {}
        profiles = self._profiles  # another thread may replace the cache
        unread = [number for number in document_nos if number not in profiles]
        if unread:
            for number, path, media_type in self._read(sorted(unread)):
                profiles[number] = profile_of(path, media_type)
        return [profiles.get(number, UNKNOWN) for number in document_nos]


def profile_of(path: str, media_type: str) -> Profile:
    folder, stem, suffix = filetypes.name_parts(path)
    named = f"{folder}/{stem}"
    words = tuple(_WORD.findall(_HUMP.sub(" ", named).lower()))
    prose, code = filetypes.is_prose(media_type), filetypes.is_code(media_type)
    return Profile(named.lower(), words, filetypes.role(path, media_type), suffix, prose, code)


def files_named(query: str) -> list[File]:
    """The files that a query names by path or with a suffix, in the query's order."""
    files = []
    for piece in query.replace("\\", "/").lower().split() if "." in query else ():
        folders, _, name = piece.strip(_AROUND_A_PATH).rpartition("/")
        name = name.partition(":")[0].partition("#")[0]  # remove a line number, which may follow the name
        stem, _, suffix = name.rpartition(".")
        if stem and suffix.isalnum() and not suffix.isdigit():
            files.append(File(folders.rpartition("/")[2].strip("."), stem, suffix))
    return list(dict.fromkeys(files))


def definition_boost(query: str, words: Words) -> float:
    """The score boost for a definition of a name in the query; larger if the name is the whole query."""
    subject = words.subject
    if " " in subject and subject in words.defined:
        return DEFINITION
    if not is_name(subject) or "." in subject.strip():
        return DEFINITION_WITHIN
    asked_for = subject != query or is_identifier(query)
    return DEFINITION if asked_for else DEFINITION_PLAIN


def _parts(weights: Mapping[str, float]) -> list[tuple[str, float]]:
    """(beginning, share) of each term: the beginning that all its word forms share, and the term's share of
    the query's weight.
    """
    total = sum(weights.values()) or 1.0
    return [(beginning(term), weight / total) for term, weight in weights.items()]


def _named(parts: list[tuple[str, float]], profiles: Sequence[Profile]) -> dict[int, float]:
    """Position of each profile whose path has words of the query -> the share of the query's weight that
    these words have.
    """
    shares: dict[int, float] = {}
    beginnings = [part for part, _ in parts]
    for position, profile in enumerate(profiles):
        present = [
            share for part, share in parts if part in profile.low and _says(profile.words, part, beginnings)
        ]
        if present:
            shares[position] = sum(present)
    return shares


def _asked_for(files: Sequence[File], profiles: Sequence[Profile]) -> set[int]:
    """The positions of the profiles of files that the query names. If both the query and the profile have a
    folder, the folders must match too.
    """
    if not files:
        return set()
    named, names = set(files), {file[1:] for file in files}
    positions = set()
    for position, profile in enumerate(profiles):
        folder, _, stem = profile.low.partition("/")
        suffix = profile.suffix
        if (stem, suffix) not in names:
            continue
        if not folder or not named.isdisjoint(File(each, stem, suffix) for each in (folder, "")):
            positions.add(position)
    return positions


def apply(ranked: Leg, profiles: Sequence[Profile], question: Question) -> tuple[Leg, dict[int, Ruling]]:
    """Applies the rules. Returns the new ranking, best first, and the changes by document number. `profiles`
    is parallel to `ranked`.

    Scores are in [0, 1], and the best score stays the same. Documents with the profile `UNKNOWN` do not
    change. Ties keep their order.
    """
    if not ranked:
        return ranked, {}
    top = ranked[0][1]
    shares = _named(_parts(question.weights), profiles)
    asked = _asked_for(question.files, profiles)
    names = {name.replace("_", "").lower() for name in (*question.names, *question.modules)}
    held_back = {role: factor for role, factor in HELD_BACK.items() if not _asks_for(question, role)}
    code_wanted = question.wanted == CODE
    unwanted = {CODE: PAGE, GUIDE: CODE}.get(question.wanted)
    sample = [profile.code for profile in profiles[:SAMPLE] if profile is not UNKNOWN]
    path_of_code = PATH_CODE * (1.0 if code_wanted else sum(sample) / max(1, len(sample)))
    # A plain word may not be meant as a name.
    is_plain = any(name.isalpha() and name.islower() for name in question.names)
    only_held = not is_plain and question.defining > DEFINITION_WITHIN
    for (number, _), profile in zip(ranked, profiles, strict=True):
        if number in question.definitions and profile.defining and profile.role not in held_back:
            only_held = False
    rulings: dict[int, Ruling] = {}
    scores = list(ranked)
    for position, ((number, score), profile) in enumerate(zip(ranked, profiles, strict=True)):
        role = profile.role if profile.role in held_back else None
        path = shares.get(position, 0.0) * (path_of_code if profile.code else PATH_PROSE)
        definition = 0.0
        if number in question.definitions and profile.defining:
            definition = question.defining * (DEFINITION_NAMED if profile.stem in names else 1.0)
            role = None if only_held else role  # if only tests define the name, they are wanted
        if position in asked:
            path, definition, role = question.naming + path, 0.0, None
        factor = held_back[role] if role else 1.0
        kind = PAGE if profile.is_page else CODE
        if kind == unwanted and position not in asked and profile is not UNKNOWN:
            role, factor = role or kind, factor * HELD_BACK_KIND
        if path or definition or role:
            rulings[number] = Ruling(path, definition, factor, role)
            scores[position] = (number, (score + top * (path + definition)) * factor)
    if rulings:
        scores.sort(key=_score, reverse=True)  # stable even with reverse=True
        highest = scores[0][1]
        scale = top / highest if highest > 0 else 1.0
        scores = [(number, score * scale) for number, score in scores]
    if question.wanted == UNCLEAR:
        pages = {number for (number, _), profile in zip(ranked, profiles, strict=True) if profile.is_page}
        scores = alternated(scores, pages)
    return scores, rulings


def alternated(ranked: Leg, pages: Container[int]) -> Leg:
    """Alternates pages and code, starting with the kind of the best result. Each position keeps its score.

    Results below `ALTERNATING` of the best score keep their places.
    """
    threshold = ranked[0][1] * ALTERNATING
    count = sum(1 for _, score in ranked if score >= threshold)
    kinds: tuple[list[int], list[int]] = ([], [])
    for number, _ in ranked[:count]:
        kinds[number in pages].append(number)
    first, second = kinds if [ranked[0][0]] == kinds[0][:1] else kinds[::-1]
    shared = min(len(first), len(second))
    turns = [number for pair in zip(first, second, strict=False) for number in pair]
    numbers = turns + first[shared:] + second[shared:]
    return [(number, score) for number, (_, score) in zip(numbers, ranked, strict=False)] + ranked[count:]


def _asks_for(question: Question, role: str) -> bool:
    if role == filetypes.CHANGES and question.numbered:
        return True
    if role == filetypes.TEST and question.wanted == GUIDE:
        # A question such as "how do I test my plugin" is answered by a page, so tests are not wanted.
        return False
    return not ASKING[role].isdisjoint(question.weights)


def _says(words: Sequence[str], part: str, parts: Sequence[str]) -> bool:
    """Whether a word of a path begins with `part` and has few more letters, or consists of `part` and another
    of the `parts`, as `healthcheck` is made of `health` and `check`.
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
