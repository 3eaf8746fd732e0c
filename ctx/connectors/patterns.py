"""Globs and the lines of ignore files, with the meaning git gives them (gitignore(5)), in linear time.

A set of patterns is followed down the tree like an automaton: a `Level` is what its patterns still ask for in
one folder, so a file costs a test of its bare name against sets, and most folders share one Level. Tests hold
it equal to `git check-ignore`, but for names whose accents a Mac stores apart from their letters: these are
matched as anybody types them, as git does on a Mac, or what is ruled out would be published.

Whoever owns an indexed folder writes these patterns, so no pattern may cost more than its length times the
name's. A component is cut at its stars into parts of fixed width. Each part but the last is matched where it
first fits and never tried again (an atomic group): a later place could only leave less room for the rest.
`Rules.weight` bounds the sum.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ctx.errors import ConfigError, SourceError
from ctx.text.strings import nfc

MAX_BRACE_PATTERNS = 1000  # `{a,b}{a,b}...` doubles with each pair
MAX_GLOB_CHARS = 1024  # of a configured glob: longer ones are mistakes
MAX_RULE_FILE_BYTES = 1_000_000  # of an ignore file
MAX_LINE_CHARS = 20_000  # of an ignore file: no path is as long
MAX_WEIGHT = 200_000
"""What the ignore files in force in one folder may ask together: some 50,000 plain names, or 40,000
characters of wildcards.
"""
_WILD_WEIGHT = 5  # of a character that may be tried anywhere in a name, beside the 2 of a whole component
_ALTERNATION_CHARS = 5000  # in one regular expression: between two of them other threads run

_POSIX_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "blank": " \\t",
    "cntrl": "\\x00-\\x1f\\x7f",
    "digit": "0-9",
    "graph": "\\x21-\\x7e",
    "lower": "a-z",
    "print": "\\x20-\\x7e",
    "punct": "!-/:-@\\[-`{-~",
    "space": " \\t\\n\\r\\x0b\\x0c",
    "upper": "A-Z",
    "xdigit": "0-9A-Fa-f",
}

NameTest = Callable[[str], bool]
Token = tuple[str, str]  # star | literal | class, and its text: a character, or a regular expression for one


OWN_RULES = ".ctxignore"  # our file of rules, beside git's
LINKED_RULES = f"`{OWN_RULES}` is a link, which ctx does not follow: put a file there"


class TooManyPatterns(SourceError):
    """An ignore file asks for more than `MAX_WEIGHT`. Without its rules, what it hides would be published."""


class Segment(NamedTuple):
    """What one component of a path must be.

    `text` is a literal, what follows a star, what precedes one, or a regular expression without a choice to
    undo.
    """

    kind: str  # any_depth | literal | suffix | prefix | wild
    text: str


class Pattern(NamedTuple):
    """A pattern cut at its slashes. Of several that match, the last one decides."""

    segments: tuple[Segment, ...]
    negated: bool = False
    folder_only: bool = False


_ANY_DEPTH = Segment("any_depth", "")


class _Malformed(Exception):
    """The pattern can match nothing (an unclosed bracket, a backslash at the end)."""


# -- reading patterns ----------------------------------------------------------------------------------------


class _Bracket:
    """Reads one bracket; the rules are those of git's wildmatch."""

    def __init__(self, pattern: str, start: int) -> None:
        self._pattern = pattern
        self._index = start + 1
        self._parts: list[str] = []
        self._previous = ""  # the character a range could begin with

    def read(self) -> tuple[str, int]:
        """A regular expression for one character, and where the bracket ends. Raises `_Malformed`."""
        negated = self._peek() in ("!", "^")
        self._index += negated
        first = True
        while first or self._peek() != "]":
            first = False
            self._item(self._take())
        if not self._parts:  # only reversed ranges: nothing is in it
            return ("." if negated else "(?!)"), self._index + 1
        return f"[{'^' if negated else ''}{''.join(self._parts)}]", self._index + 1

    def _peek(self) -> str:
        return self._pattern[self._index : self._index + 1]

    def _take(self) -> str:
        if self._index >= len(self._pattern):
            raise _Malformed
        self._index += 1
        return self._pattern[self._index - 1]

    def _item(self, char: str) -> None:
        if char == "-" and self._previous and self._peek() not in ("", "]"):
            end = self._take()
            self._range(self._take() if end == "\\" else end)
        elif char == "[" and self._peek() == ":":
            self._named()
        else:
            self._previous = self._take() if char == "\\" else char
            self._parts.append(re.escape(self._previous))

    def _range(self, end: str) -> None:
        if self._previous <= end:
            self._parts.append(f"{re.escape(self._previous)}-{re.escape(end)}")
        self._previous = ""

    def _named(self) -> None:
        """What follows `[` where a `:` is next: a class such as `[:alpha:]`, or a plain bracket."""
        close = self._pattern.find("]", self._index + 1)
        if close < 0:
            raise _Malformed
        if close - self._index < 2 or self._pattern[close - 1] != ":":
            self._parts.append("\\[")
            self._previous = "["
            return
        characters = _POSIX_CLASSES.get(self._pattern[self._index + 1 : close - 1])
        if characters is None:
            raise _Malformed
        self._parts.append(characters)
        self._previous = ""
        self._index = close + 1


def _segment(tokens: Sequence[Token]) -> Segment:
    kinds = [kind for kind, _ in tokens]
    stars = kinds.count("star")
    if "class" not in kinds and stars < 2:
        literal = "".join(text for _, text in tokens)
        if not stars:
            return Segment("literal", literal)
        if kinds[0] == "star":
            return Segment("suffix", literal)
        if kinds[-1] == "star":
            return Segment("prefix", literal)
    return Segment("wild", _expression(tokens))


def _expression(tokens: Sequence[Token]) -> str:
    """The regular expression of a name's pattern, which takes no time that grows faster than the name."""
    parts = [""]
    for kind, text in tokens:
        if kind == "star":
            parts.append("")
        else:
            parts[-1] += re.escape(text) if kind == "literal" else text
    if len(parts) == 1:
        return parts[0]
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1] if part)
    return f"{parts[0]}{middle}.*{parts[-1]}"


def _single_stars(tokens: Sequence[Token]) -> list[Token]:
    return [
        token
        for index, token in enumerate(tokens)
        if token[0] != "star" or tokens[index - 1 : index] != [token]
    ]


def _components(pattern: str) -> Iterator[list[Token]]:
    """The tokens of each component, every star a token of its own. Raises `_Malformed`."""
    tokens: list[Token] = []
    index = 0
    while index < len(pattern):
        char = pattern[index]
        index += 1
        if char == "\\" and pattern[index : index + 1] == "/":
            continue  # an escaped slash is a slash
        if char == "/":
            yield tokens
            tokens = []
        elif char == "*":
            tokens.append(("star", ""))
        elif char == "?":
            tokens.append(("class", "."))
        elif char == "[":
            regex, index = _Bracket(pattern, index - 1).read()
            tokens.append(("class", regex))
        elif char == "\\":
            if index >= len(pattern):
                raise _Malformed
            tokens.append(("literal", pattern[index]))
            index += 1
        else:
            tokens.append(("literal", char))
    yield tokens


def _segments(pattern: str) -> list[Segment]:
    """The pattern cut at its slashes; `**` between slashes (or at an end) is any number of components."""
    segments = [_any_segment(tokens) for tokens in _components(pattern)]
    # Neighbours of any depth are one.
    pairs = zip([None, *segments], segments, strict=False)
    return [segment for before, segment in pairs if not (before is segment is _ANY_DEPTH)]


def _any_segment(tokens: Sequence[Token]) -> Segment:
    if len(tokens) < 2 or any(kind != "star" for kind, _ in tokens):
        return _segment(_single_stars(tokens))
    return _ANY_DEPTH


_STARS_WITHIN = re.compile(r"([^*?\[\\]*[^*?\[\\/])\*\*+(?:/\*\*+)*(?:/(?=[^/])|$)")


def _spelled_out(body: str) -> list[str]:
    """An anchored pattern as git reads it: there `a**/b` is `ab` and `a*/**/b`, but `a?**/b` is `a?*/b`.

    Git takes a literal beginning off both the pattern and the path, and a `**` that stands first then crosses
    folders.
    """
    match = _STARS_WITHIN.match(body) if body.find("**") > 0 else None
    if match is None:
        return [body]
    start, end = match[1], body[match.end() :]
    return [start + end, f"{start}*/**/{end}"] if end else [f"{start}*", f"{start}*/**"]


def _patterns(text: str, *, negated: bool = False) -> Iterator[Pattern]:
    """A pattern as gitignore(5) reads one: with a slash before its end it is anchored, else it matches at any
    depth.
    """
    folder_only = text.endswith("/")
    body = text[:-1] if folder_only else text
    anchored = "/" in body
    body = body.removeprefix("/")
    if not body:
        return
    for spelling in _spelled_out(body) if anchored else [body]:
        try:
            segments = _segments(spelling)
        except _Malformed:
            continue
        if not anchored:
            if segments == [_ANY_DEPTH]:
                segments = [Segment("suffix", "")]
            segments.insert(0, _ANY_DEPTH)
        yield Pattern(tuple(segments), negated, folder_only)


def read_ignore_file(data: bytes) -> list[Pattern]:
    """The patterns of an ignore file as it lies on the disk.
    Raises `TooManyPatterns` for a file that is too large.
    """
    if len(data) > MAX_RULE_FILE_BYTES:
        raise TooManyPatterns(f"an ignore file is larger than {MAX_RULE_FILE_BYTES:,} bytes; shorten it")
    return parse_ignore_file(os.fsdecode(data))


def parse_ignore_file(text: str) -> list[Pattern]:
    """The patterns of a `.gitignore` or `.ctxignore`, in order.
    Raises `TooManyPatterns` for a line without end.
    """
    patterns: list[Pattern] = []
    for raw in nfc(text.removeprefix("\ufeff")).split("\n"):
        line = raw.removesuffix("\r")
        if line.startswith("#"):
            continue
        if len(line) > MAX_LINE_CHARS:
            raise TooManyPatterns(
                f"an ignore file holds a pattern of more than {MAX_LINE_CHARS:,} characters"
            )
        end = len(line.rstrip(" "))
        if end < len(line):  # an escaped space stays: the backslashes before it are odd in number
            before = end - len(line[:end].rstrip("\\"))
            line = line[: end + before % 2]
        negated = line.startswith("!")
        patterns += _patterns(line[1:] if negated else line, negated=negated)
    return patterns


def expand_braces(glob: str) -> list[str]:
    """`a.{md,txt}` as `a.md` and `a.txt`, nested too. A brace without its pair or without a comma is literal.

    At most `MAX_BRACE_PATTERNS` are given; where there would be more, the braces left are literal.
    """
    expanded: list[str] = []
    waiting = [glob]
    while waiting:
        text = waiting.pop()
        cuts = _first_alternatives(text)
        if not cuts or len(expanded) + len(waiting) + len(cuts) > MAX_BRACE_PATTERNS:
            expanded.append(text)
        else:
            start, end = cuts[0], cuts[-1]
            choices = [text[:start] + text[a + 1 : b] + text[end + 1 :] for a, b in pairwise(cuts)]
            waiting += reversed(choices)
    return expanded


def _first_alternatives(text: str) -> list[int]:
    """The places of `{`, the commas and `}` of the first brace that has both its pair and a comma."""
    groups: list[list[int]] = []
    first: list[int] = []
    index = text.find("{")
    if index < 0:
        return first
    index = len(text[:index].rstrip("\\"))  # a backslash takes what follows it
    while index < len(text):
        char = text[index]
        if char == "\\":
            index += 1
        elif char == "{":
            groups.append([index])
        elif char == "," and groups:
            groups[-1].append(index)
        elif char == "}" and groups:
            cuts = [*groups.pop(), index]
            if len(cuts) > 2 and (not first or cuts[0] < first[0]):
                first = cuts
        index += 1
    return first


def parse_globs(globs: Iterable[str]) -> list[Pattern]:
    """Globs of the configuration: `*.md` at any depth, `docs/*.md` only there, `**/` any folders, `docs/` all
    below.

    `{a,b}` is either. Raises `ConfigError` for a glob of more than `MAX_GLOB_CHARS`.
    """
    patterns: list[Pattern] = []
    for glob in map(nfc, globs):
        if len(glob) > MAX_GLOB_CHARS:
            raise ConfigError(
                f"the glob '{glob[:40]}...' has {len(glob):,} characters; at most {MAX_GLOB_CHARS:,} are read"
            )
        for text in expand_braces(glob.removeprefix("./")):
            if text.endswith("/"):
                below = text.removeprefix("/") + "**"
                text = "/" + below if "/" in text[:-1] else "**/" + below
            patterns += _patterns(text)
    return patterns


# -- matching ------------------------------------------------------------------------------------------------


def name_test(segments: Sequence[Segment]) -> NameTest:
    """One test for many segments. Names are compared in the form that the segments have (`nfc`)."""
    texts: dict[str, list[str]] = {"any_depth": [], "literal": [], "suffix": [], "prefix": [], "wild": []}
    for kind, text in segments:
        texts[kind].append(text)
    if texts["any_depth"] or "" in texts["suffix"] or "" in texts["prefix"]:
        return lambda name: True
    literals = frozenset(texts["literal"])
    extensions = frozenset(text for text in texts["suffix"] if text.rfind(".") == 0 and len(text) > 1)
    tails = tuple(text for text in texts["suffix"] if text not in extensions)
    heads = tuple(texts["prefix"])
    wild = list(_alternations(texts["wild"]))

    def matches(name: str) -> bool:
        name = nfc(name)
        return (
            name in literals
            or name[name.rfind(".") :] in extensions
            or name.endswith(tails)
            or name.startswith(heads)
            or any(fits(name) for fits in wild)
        )

    return matches


def _alternations(parts: Sequence[str]) -> Iterator[Callable[[str], re.Match[str] | None]]:
    """The regular expressions as few; each part is closed, so that its choices cannot leak into the next."""
    batch: list[str] = []
    width = 0
    for part in dict.fromkeys(parts):
        if batch and width + len(part) > _ALTERNATION_CHARS:
            yield re.compile("|".join(batch), re.DOTALL).fullmatch
            batch, width = [], 0
        batch.append(f"(?:{part})")
        width += len(part)
    if batch:
        yield re.compile("|".join(batch), re.DOTALL).fullmatch


class Group(NamedTuple):
    """Neighbouring patterns of one sign, as tests of a bare name."""

    negated: bool
    file_segments: tuple[Segment, ...]
    file: NameTest
    folder: NameTest


class Level:
    """What a set of patterns asks for in one folder.
    Made by `Rules.top` and `descend`, and shared between folders.
    """

    __slots__ = ("_moving", "_next", "_rules", "_staying", "empty", "groups")

    def __init__(self, rules: "Rules", states: frozenset[tuple[int, int]]) -> None:
        self._rules = rules
        patterns = rules.patterns
        self.empty = not states
        self._moving: list[tuple[int, int, NameTest]] = []
        staying = set()
        finals: list[Pattern] = []
        for number, depth in sorted(states):
            pattern = patterns[number]
            segment = pattern.segments[depth]
            if segment.kind == "any_depth":
                staying.add((number, depth))
            if depth == len(pattern.segments) - 1:
                finals.append(pattern)
            elif segment.kind != "any_depth":
                self._moving.append((number, depth, rules.test(segment)))
        self._staying = frozenset(staying)
        self._next: dict[frozenset[tuple[int, int]], Level] = {}
        self.groups = _groups(finals)

    @property
    def weight(self) -> int:
        """The weight of the whole set of patterns."""
        return self._rules.weight

    def descend(self, name: str) -> "Level":
        """The level of the folder `name` within this one."""
        moved = frozenset((number, depth + 1) for number, depth, fits in self._moving if fits(name))
        level = self._next.get(moved)
        if level is None:
            level = self._next[moved] = self._rules.level(self._staying | moved)
        return level

    def decide(self, name: str, *, folder: bool) -> bool | None:
        """True where the last matching pattern is a plain one, False where it is negated, None where none
        matches.
        """
        for group in self.groups:
            if (group.folder if folder else group.file)(name):
                return not group.negated
        return None


def _groups(finals: Iterable[Pattern]) -> tuple[Group, ...]:
    """Neighbours of one sign together; the last pattern first, since it decides."""
    runs: list[tuple[bool, list[Pattern]]] = []
    for pattern in finals:
        if not runs or runs[-1][0] != pattern.negated:
            runs.append((pattern.negated, []))
        runs[-1][1].append(pattern)
    return tuple(_group(*run) for run in reversed(runs))


def _group(negated: bool, patterns: Sequence[Pattern]) -> Group:
    folders = tuple(dict.fromkeys(pattern.segments[-1] for pattern in patterns))
    files = tuple(dict.fromkeys(pattern.segments[-1] for pattern in patterns if not pattern.folder_only))
    return Group(negated, files, name_test(files), name_test(folders))


class Rules:
    """An ordered set of patterns. Raises `TooManyPatterns` for one that weighs more than `MAX_WEIGHT`."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.weight = sum(
            2 + (_WILD_WEIGHT * len(segment.text) if segment.kind == "wild" else 0)
            for pattern in self.patterns
            for segment in pattern.segments
        )
        if self.weight > MAX_WEIGHT:
            raise TooManyPatterns("too many patterns in one ignore file; shorten it")
        self._levels: dict[frozenset[tuple[int, int]], Level] = {}
        self._tests: dict[Segment, NameTest] = {}

    def top(self) -> Level:
        """The level of the folder that the patterns are written for."""
        return self.level(frozenset((number, 0) for number in range(len(self.patterns))))

    def test(self, segment: Segment) -> NameTest:
        """Whether a name is one that the component asks for."""
        test = self._tests.get(segment)
        if test is None:
            test = self._tests[segment] = name_test([segment])
        return test

    def level(self, states: frozenset[tuple[int, int]]) -> Level:
        """The level where each of these (number of a pattern, components matched) is under way."""
        closed = set(states)
        for number, depth in states:
            segments = self.patterns[number].segments
            while segments[depth].kind == "any_depth" and depth + 1 < len(segments):
                depth += 1
                closed.add((number, depth))
        key = frozenset(closed)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = Level(self, key)
        return level
