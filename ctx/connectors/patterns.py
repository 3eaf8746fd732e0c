"""Match globs and the lines of ignore files as git does (gitignore(5)), in linear time.

The patterns work like an automaton that moves down the folders: a `Level` holds the remaining parts of the
patterns that apply in one folder. To test a file, its name is looked up in sets, and most folders share one
Level. Tests compare the results with `git check-ignore`. The only difference: names are compared in composed
form (NFC), because a Mac stores accents apart from their letters.

A stranger may write the patterns, so the time to match a pattern is limited: it grows at most with the
pattern's length times the name's length. A component is split at its stars into parts of fixed width. Each
part except the last is matched at the first place where it fits and never retried (an atomic group); a later
place would only leave less room. `MAX_WEIGHT` limits the sum for all patterns of a folder.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from itertools import groupby, pairwise
from operator import attrgetter
from typing import NamedTuple

from ctx.errors import ConfigError, SourceError
from ctx.text.strings import nfc

# Maximum patterns from one glob: each pair of braces in `{a,b}{a,b}...` doubles their number.
MAX_BRACE_PATTERNS = 1000
MAX_GLOB_CHARS = 1024  # maximum characters of a glob in the configuration
MAX_RULE_FILE_BYTES = 1_000_000  # maximum size of an ignore file
MAX_LINE_CHARS = 20_000  # maximum characters of a line in an ignore file; no path is longer
MAX_WEIGHT = 200_000
"""The limit for all ignore files of one folder: about 50,000 plain names, or 40,000 characters of wildcards.
More is an error, because ignoring the rules would publish files that they hide.
"""
_WILD_WEIGHT = 5  # weight per character of a component with wildcards; every component adds 2 more
# Maximum characters of one regular expression; other threads can run between two expressions.
_ALTERNATION_CHARS = 5000

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
Token = tuple[str, str]  # star | literal | class, and its text: stars, a character, or its regular expression

_TOKEN = re.compile(
    r"(?P<slash>\\?/)|(?P<star>\*+)|(?P<any>\?)|(?P<bracket>\[)|(?P<malformed>\\\Z)|\\?(?P<literal>.)",
    re.DOTALL,
)
_BRACES = re.compile(r"\\.|[{},]", re.DOTALL)  # a backslash escapes the next character
# Matches one item inside brackets: a class such as `[:alpha:]`, the end of a range, or a character. The names
# of classes are shorter than 20. Without this limit, a line of many `[:` would take quadratic time.
_IN_BRACKETS = re.compile(r"(?s)\[:(?P<name>[^\]]{0,20}):\]|-\\?(?P<end>(?<=\\).|[^\]\\])|\\?(?P<char>.)")

OWN_RULES = ".ctxignore"
LINKED_RULES = f"`{OWN_RULES}` is a link, which ctx does not follow: put a file there"


class Segment(NamedTuple):
    """The condition for one component of a path.

    `text` depends on `kind`: the literal, the text after a star, the text before a star, or a regular
    expression without backtracking.
    """

    kind: str  # any_depth | literal | suffix | prefix | wild
    text: str


class Pattern(NamedTuple):
    """A pattern split at its slashes. If several patterns match a path, the last one decides."""

    segments: tuple[Segment, ...]
    negated: bool = False
    folder_only: bool = False


_ANY_DEPTH = Segment("any_depth", "")


class _Malformed(Exception):
    """The pattern cannot match anything (an unclosed bracket, a backslash at the end)."""


# -- reading patterns ----------------------------------------------------------------------------------------


def _bracket(pattern: str, index: int) -> tuple[str, int]:
    """Parse the bracket expression whose content begins at `index`, by the rules of git's wildmatch. Returns
    a regular expression for one character, and the index after the bracket. Raises `_Malformed`.
    """
    negated = pattern[index : index + 1] in ("!", "^")
    index += negated
    parts: list[str] = []
    previous = ""  # the last character, with which a range could begin
    first = index
    while index == first or pattern[index : index + 1] != "]":
        item = _IN_BRACKETS.match(pattern, index)
        if item is None:
            raise _Malformed
        index = item.end()
        if item["name"] is not None:
            if item["name"] not in _POSIX_CLASSES:
                raise _Malformed
            parts.append(_POSIX_CLASSES[item["name"]])
            previous = ""
        elif item["end"] and previous:
            if previous <= item["end"]:  # a range in reverse order matches nothing
                parts.append(f"{re.escape(previous)}-{re.escape(item['end'])}")
            previous = ""
        else:
            previous = item["char"] or "-"
            index = item.end() if item["char"] else item.start() + 1
            parts.append(re.escape(previous))
    if not parts:
        return ("." if negated else "(?!)"), index + 1
    return f"[{'^' if negated else ''}{''.join(parts)}]", index + 1


def _segment(tokens: Sequence[Token]) -> Segment:
    """The condition for a name with these tokens. A regular expression matches in linear time."""
    kinds = [kind for kind, _ in tokens]
    if "class" not in kinds and kinds.count("star") < 2:
        literal = "".join(text for kind, text in tokens if kind == "literal")
        if "star" not in kinds:
            return Segment("literal", literal)
        if kinds[0] == "star":
            return Segment("suffix", literal)
        if kinds[-1] == "star":
            return Segment("prefix", literal)
    parts = [""]  # the parts of the component between its stars
    for kind, text in tokens:
        if kind == "star":
            parts.append("")
        else:
            parts[-1] += re.escape(text) if kind == "literal" else text
    if len(parts) == 1:
        return Segment("wild", parts[0])
    middle = "".join(f"(?>.*?{part})" for part in parts[1:-1])
    return Segment("wild", f"{parts[0]}{middle}.*{parts[-1]}")


def _components(pattern: str) -> Iterator[list[Token]]:
    """Yield the tokens of each component. Raises `_Malformed`."""
    tokens: list[Token] = []
    index = 0
    while (match := _TOKEN.match(pattern, index)) is not None:
        index = match.end()
        kind = match.lastgroup or ""
        if kind == "malformed":
            raise _Malformed
        if kind == "slash":
            yield tokens
            tokens = []
        elif kind == "bracket":
            expression, index = _bracket(pattern, index)
            tokens.append(("class", expression))
        else:
            tokens.append(("class", ".") if kind == "any" else (kind, match[kind]))
    yield tokens


def _segments(pattern: str) -> list[Segment]:
    """Split the pattern at its slashes. `**` between slashes or at an end is any number of components."""
    segments: list[Segment] = []
    for tokens in _components(pattern):
        if len(tokens) != 1 or not tokens[0][1].startswith("**"):
            segments.append(_segment(tokens))
        elif segments[-1:] != [_ANY_DEPTH]:  # several `**` count as one
            segments.append(_ANY_DEPTH)
    return segments


_STARS_WITHIN = re.compile(r"([^*?\[\\]*[^*?\[\\/])\*\*+(?:/\*\*+)*(?:/(?=[^/])|$)")


def _spelled_out(body: str) -> list[str]:
    """Expand an anchored pattern as git does: `a**/b` is `ab` and `a*/**/b`, but `a?**/b` is `a?*/b`.

    Git first removes a literal prefix from the pattern and the path. If the rest of the pattern begins with
    `**`, it crosses folders.
    """
    match = _STARS_WITHIN.match(body) if body.find("**") > 0 else None
    if match is None:
        return [body]
    start, end = match[1], body[match.end() :]
    return [start + end, f"{start}*/**/{end}"] if end else [f"{start}*", f"{start}*/**"]


def _patterns(text: str, *, negated: bool = False) -> Iterator[Pattern]:
    """Parse one pattern as in gitignore(5). With a slash before its end it is anchored to the folder, else it
    matches at any depth. Yields nothing if it cannot match.
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
    """The patterns in the bytes of an ignore file. Raises `SourceError` if it is too large."""
    if len(data) > MAX_RULE_FILE_BYTES:
        raise SourceError(f"an ignore file is larger than {MAX_RULE_FILE_BYTES:,} bytes; shorten it")
    return parse_ignore_file(os.fsdecode(data))


def parse_ignore_file(text: str) -> list[Pattern]:
    """The patterns of a `.gitignore` or `.ctxignore`, in order. Raises `SourceError` for a long line."""
    patterns: list[Pattern] = []
    for raw in nfc(text.removeprefix("\ufeff")).split("\n"):
        line = raw.removesuffix("\r")
        if line.startswith("#"):
            continue
        if len(line) > MAX_LINE_CHARS:
            raise SourceError(f"an ignore file holds a pattern of more than {MAX_LINE_CHARS:,} characters")
        end = len(line.rstrip(" "))
        if end < len(line):  # an escaped space stays: the backslashes before it are odd in number
            before = end - len(line[:end].rstrip("\\"))
            line = line[: end + before % 2]
        negated = line.startswith("!")
        patterns += _patterns(line[1:] if negated else line, negated=negated)
    return patterns


def expand_braces(glob: str) -> list[str]:
    """Expand `a.{md,txt}` to `a.md` and `a.txt`, also nested. A brace without pair or comma is literal.

    Stops at `MAX_BRACE_PATTERNS`; the remaining braces are literal.
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
    """The positions of the first `{` that has a matching `}` and a comma between them, of these commas, and
    of the `}`. Empty if the text has no such group.
    """
    groups: list[list[int]] = []
    first: list[int] = []
    for match in _BRACES.finditer(text):
        char, index = match[0], match.start()
        if char == "{":
            groups.append([index])
        elif char == "," and groups:
            groups[-1].append(index)
        elif char == "}" and groups:
            cuts = [*groups.pop(), index]
            if len(cuts) > 2 and (not first or cuts[0] < first[0]):
                first = cuts
    return first


def parse_globs(globs: Iterable[str]) -> list[Pattern]:
    """Parse globs of the configuration: `*.md` at any depth, `docs/*.md` only there, `**/` any folders,
    `docs/` everything below, `{a,b}` either. Raises `ConfigError` for a glob that is too long.
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
    """Returns a function that tests whether a name matches any of the segments. It compares the name in
    composed form (`nfc`).
    """
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
    """Combine regular expressions into a few, and yield their match functions."""
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
    """Consecutive patterns with the same `negated`, combined into one test of file names and one of folder
    names.
    """

    negated: bool
    file_segments: tuple[Segment, ...]
    file: NameTest
    folder: NameTest


class Level:
    """The part of a set of patterns that applies in one folder. Made by `Rules.top` and `descend`; folders
    share it.
    """

    __slots__ = ("_moving", "_next", "_rules", "_staying", "empty", "groups", "weight")

    def __init__(self, rules: "Rules", states: frozenset[tuple[int, int]]) -> None:
        self._rules = rules
        self.weight = rules.weight
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

    def descend(self, name: str) -> "Level":
        """The level of the folder `name` within this one."""
        moved = frozenset((number, depth + 1) for number, depth, fits in self._moving if fits(name))
        level = self._next.get(moved)
        if level is None:
            level = self._next[moved] = self._rules.level(self._staying | moved)
        return level

    def decide(self, name: str, *, folder: bool) -> bool | None:
        """True if the last matching pattern is a plain one, False if it is negated, None if none matches."""
        for group in self.groups:
            if (group.folder if folder else group.file)(name):
                return not group.negated
        return None


def _groups(finals: Iterable[Pattern]) -> tuple[Group, ...]:
    """Group consecutive patterns that include or exclude. The last pattern is first, because it decides."""
    groups: list[Group] = []
    for negated, run in groupby(finals, key=attrgetter("negated")):
        patterns = list(run)
        folders = tuple(dict.fromkeys(pattern.segments[-1] for pattern in patterns))
        files = tuple(dict.fromkeys(pattern.segments[-1] for pattern in patterns if not pattern.folder_only))
        groups.append(Group(negated, files, name_test(files), name_test(folders)))
    return tuple(reversed(groups))


class Rules:
    """An ordered set of patterns. `weight` estimates how long a match takes. Raises `SourceError` above
    `MAX_WEIGHT`.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self.weight = sum(
            2 + (_WILD_WEIGHT * len(segment.text) if segment.kind == "wild" else 0)
            for pattern in self.patterns
            for segment in pattern.segments
        )
        if self.weight > MAX_WEIGHT:
            raise SourceError("too many patterns in one ignore file; shorten it")
        self._levels: dict[frozenset[tuple[int, int]], Level] = {}
        self.test = cache(lambda segment: name_test([segment]))

    def top(self) -> Level:
        """The level of the folder that contains the patterns."""
        return self.level(frozenset((number, 0) for number in range(len(self.patterns))))

    def level(self, states: frozenset[tuple[int, int]]) -> Level:
        """The level for these states: (number of a pattern, components matched so far)."""
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
