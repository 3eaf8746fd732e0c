"""Which paths a source takes: include and exclude globs, and ignore files with the meaning git gives them (gitignore(5)).

A set of patterns is followed down the tree like an automaton: a `Level` is what its patterns still ask for in one folder, so a
file costs a test of its bare name against sets, and most folders share one Level. Tests hold it equal to `git check-ignore`.
"""

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

DEFAULT_INCLUDE_GLOBS: tuple[str, ...] = (
    # prose
    *(
        "**/*.md",
        "**/*.markdown",
        "**/*.mdx",
        "**/*.qmd",
        "**/*.rst",
        "**/*.txt",
        "**/*.adoc",
        "**/*.asciidoc",
        "**/*.org",
    ),
    *("**/*.tex", "**/*.html", "**/*.htm", "**/*.xhtml", "**/*.ipynb"),
    *(
        "**/README",
        "**/CHANGELOG",
        "**/CHANGES",
        "**/NEWS",
        "**/CONTRIBUTING",
        "**/LICENSE",
        "**/NOTICE",
        "**/AUTHORS",
    ),
    # source code
    *(
        "**/*.py",
        "**/*.pyi",
        "**/*.js",
        "**/*.mjs",
        "**/*.cjs",
        "**/*.jsx",
        "**/*.ts",
        "**/*.tsx",
        "**/*.vue",
        "**/*.svelte",
    ),
    *(
        "**/*.c",
        "**/*.h",
        "**/*.cc",
        "**/*.cpp",
        "**/*.cxx",
        "**/*.hh",
        "**/*.hpp",
        "**/*.m",
        "**/*.mm",
        "**/*.cs",
        "**/*.fs",
    ),
    *(
        "**/*.java",
        "**/*.kt",
        "**/*.kts",
        "**/*.scala",
        "**/*.groovy",
        "**/*.clj",
        "**/*.cljs",
        "**/*.go",
        "**/*.rs",
    ),
    *(
        "**/*.rb",
        "**/*.php",
        "**/*.swift",
        "**/*.dart",
        "**/*.lua",
        "**/*.pl",
        "**/*.pm",
        "**/*.r",
        "**/*.R",
        "**/*.jl",
    ),
    *(
        "**/*.ex",
        "**/*.exs",
        "**/*.erl",
        "**/*.hs",
        "**/*.ml",
        "**/*.mli",
        "**/*.elm",
        "**/*.nim",
        "**/*.zig",
        "**/*.sol",
    ),
    *(
        "**/*.sh",
        "**/*.bash",
        "**/*.zsh",
        "**/*.fish",
        "**/*.ps1",
        "**/*.sql",
        "**/*.graphql",
        "**/*.proto",
        "**/*.tf",
    ),
    *("**/*.css", "**/*.scss", "**/*.cmake", "**/*.toml", "**/*.yaml", "**/*.yml", "**/*.ini", "**/*.cfg"),
    *("**/Makefile", "**/Dockerfile", "**/CMakeLists.txt", "**/Justfile", "**/justfile"),
)
"""What people write: prose, notebooks, source code and hand-written settings; not data (JSON, CSV), lock files or media."""

SKIPPED_FOLDERS = frozenset(
    (
        *(
            ".git",
            ".hg",
            ".svn",
            ".bzr",
            ".jj",
            "CVS",
            ".ctx",
        ),  # the machinery of version control, and our own
        *("node_modules", "bower_components", "__pycache__", "__pypackages__"),
        *(
            ".venv",
            ".tox",
            ".nox",
            ".eggs",
            ".direnv",
            ".cache",
            ".gradle",
            ".terraform",
            ".yarn",
            ".pnpm-store",
            ".next",
            ".nuxt",
        ),
        *(
            ".mypy_cache",
            ".pytest_cache",
            ".ruff_cache",
            ".hypothesis",
            ".ipynb_checkpoints",
            ".stack-work",
            ".dart_tool",
        ),
        *(".Trash", ".Trashes", ".Spotlight-V100", ".fseventsd", "$RECYCLE.BIN", "lost+found"),
        *(
            ".ssh",
            ".gnupg",
            ".aws",
            ".kube",
        ),  # keys: nobody means to publish these by naming their home folder
    )
)
"""Folders that are never entered, whatever the globs say: copies, caches and keys, not documents."""

MAX_BRACE_PATTERNS = 1000  # `{a,b}{a,b}...` doubles with each pair

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


class Segment(NamedTuple):
    """What one component of a path must be. `text` is a literal, the rest after `*`, the part before `*`, or a regular expression."""

    kind: str  # any_depth | literal | suffix | prefix | regex
    text: str

    def matches(self, name: str) -> bool:
        if self.kind == "literal":
            return name == self.text
        if self.kind == "suffix":
            return name.endswith(self.text)
        if self.kind == "prefix":
            return name.startswith(self.text)
        return self.kind == "any_depth" or re.fullmatch(self.text, name, re.DOTALL) is not None


class Pattern(NamedTuple):
    """A pattern cut at its slashes. Of several that match, the last one decides."""

    segments: tuple[Segment, ...]
    negated: bool = False
    folder_only: bool = False


_ANY_DEPTH = Segment("any_depth", "")


class _Malformed(Exception):
    """The pattern can match nothing (an unclosed bracket, a backslash at the end)."""


def _bracket(pattern: str, at: int) -> tuple[str, int]:
    """A regular expression for the bracket that opens at `at`, and where it ends. The rules are those of git's wildmatch."""
    i = at + 1
    negated = pattern[i : i + 1] in ("!", "^")
    if negated:
        i += 1
    parts: list[str] = []
    previous = ""  # the character a range could begin with
    first = True
    while True:
        if i >= len(pattern):
            raise _Malformed
        char = pattern[i]
        if char == "]" and not first:
            break
        first = False
        if char == "\\":
            i += 1
            if i >= len(pattern):
                raise _Malformed
            char = pattern[i]
            parts.append(re.escape(char))
            previous = char
        elif char == "-" and previous and i + 1 < len(pattern) and pattern[i + 1] != "]":
            i += 1
            end = pattern[i]
            if end == "\\":
                i += 1
                if i >= len(pattern):
                    raise _Malformed
                end = pattern[i]
            if previous <= end:
                parts.append(f"{re.escape(previous)}-{re.escape(end)}")
            previous = ""
        elif char == "[" and pattern[i + 1 : i + 2] == ":":
            close = pattern.find("]", i + 2)
            if close < 0:
                raise _Malformed
            if close - i - 3 >= 0 and pattern[close - 1] == ":":
                named = _POSIX_CLASSES.get(pattern[i + 2 : close - 1])
                if named is None:
                    raise _Malformed
                parts.append(named)
                i = close
                previous = ""
            else:
                parts.append("\\[")
                previous = "["
        else:
            parts.append(re.escape(char))
            previous = char
        i += 1
    if not parts:  # only reversed ranges: nothing is in it
        return ("." if negated else "(?!)"), i + 1
    return f"[{'^' if negated else ''}{''.join(parts)}]", i + 1


def _segment(tokens: list[tuple[str, str]]) -> Segment:
    kinds = [kind for kind, _ in tokens]
    literal = "".join(text for kind, text in tokens if kind == "literal")
    if all(kind == "literal" for kind in kinds):
        return Segment("literal", literal)
    if kinds.count("star") == 1 and "class" not in kinds:
        if kinds[0] == "star":
            return Segment("suffix", literal)
        if kinds[-1] == "star":
            return Segment("prefix", literal)
    regex = "".join(
        ".*" if kind == "star" else re.escape(text) if kind == "literal" else text for kind, text in tokens
    )
    return Segment("regex", regex)


def _segments(pattern: str) -> list[Segment]:
    """The pattern cut at its slashes; `**` between slashes (or at an end) is any number of components."""
    segments: list[Segment] = []
    tokens: list[tuple[str, str]] = []
    stars = 0  # how many stars the component has, while it has nothing else
    i = 0
    while i <= len(pattern):
        char = pattern[i : i + 1]
        if char in ("", "/"):
            if stars < 2:
                segments.append(_segment(tokens))
            elif not segments or segments[-1] is not _ANY_DEPTH:
                segments.append(_ANY_DEPTH)
            tokens, stars = [], 0
            i += 1
            continue
        if char == "*":
            if stars or not tokens:
                stars += 1
            if not tokens or tokens[-1][0] != "star":
                tokens.append(("star", ""))
            i += 1
            continue
        stars = 0
        if char == "?":
            tokens.append(("class", "."))
            i += 1
        elif char == "[":
            regex, i = _bracket(pattern, i)
            tokens.append(("class", regex))
        else:
            if char == "\\":
                i += 1
                if i >= len(pattern):
                    raise _Malformed
                char = pattern[i]
            tokens.append(("literal", char))
            i += 1
    return segments


def _pattern(text: str, *, negated: bool = False) -> Pattern | None:
    """A pattern as gitignore(5) reads one: with a slash before its end it is anchored, else it matches at any depth."""
    folder_only = text.endswith("/")
    body = text[:-1] if folder_only else text
    anchored = "/" in body
    body = body.removeprefix("/")
    if not body:
        return None
    try:
        segments = _segments(body)
    except _Malformed:
        return None
    if not anchored:
        if segments == [_ANY_DEPTH]:
            segments = [Segment("suffix", "")]
        segments.insert(0, _ANY_DEPTH)
    return Pattern(tuple(segments), negated, folder_only)


def parse_ignore_file(text: str) -> list[Pattern]:
    """The patterns of a `.gitignore` or `.ctxignore`, in order."""
    patterns = []
    for raw in text.removeprefix("\ufeff").split("\n"):
        line = raw.removesuffix("\r")
        if line.startswith("#"):
            continue
        end = len(line.rstrip(" "))
        if end < len(line):  # an escaped space stays: the backslashes before it are odd in number
            before = end - len(line[:end].rstrip("\\"))
            line = line[: end + before % 2]
        negated = line.startswith("!")
        pattern = _pattern(line[1:] if negated else line, negated=negated)
        if pattern is not None:
            patterns.append(pattern)
    return patterns


def expand_braces(glob: str) -> list[str]:
    """`a.{md,txt}` as `a.md` and `a.txt`, nested too. A brace without its pair or without a comma is literal."""
    expanded = [glob]
    for _ in range(MAX_BRACE_PATTERNS):
        result: list[str] = []
        for text in expanded:
            result.extend(_expand_first(text))
        if result == expanded or len(result) > MAX_BRACE_PATTERNS:
            return expanded
        expanded = result
    return expanded


def _expand_first(text: str) -> list[str]:
    start = text.find("{")
    while start >= 0:
        depth, cuts, i = 0, [start], start
        while i < len(text):
            if text[i] == "\\":
                i += 1
            elif text[i] == "{":
                depth += 1
            elif text[i] == "," and depth == 1:
                cuts.append(i)
            elif text[i] == "}":
                depth -= 1
                if depth == 0:
                    break
            i += 1
        if depth == 0 and i < len(text) and len(cuts) > 1 and (start == 0 or text[start - 1] != "\\"):
            cuts.append(i)
            return [text[:start] + text[a + 1 : b] + text[i + 1 :] for a, b in pairwise(cuts)]
        start = text.find("{", start + 1)
    return [text]


def parse_globs(globs: Iterable[str]) -> list[Pattern]:
    """Globs of the configuration: `*.md` at any depth, `docs/*.md` only there, `**/` any folders, `docs/` all below, `{a,b}` either."""
    patterns = []
    for glob in globs:
        for text in expand_braces(glob.removeprefix("./")):
            if text.endswith("/"):
                below = text.removeprefix("/") + "**"
                text = "/" + below if "/" in text[:-1] else "**/" + below
            pattern = _pattern(text)
            if pattern is not None:
                patterns.append(pattern)
    return patterns


def _nothing(name: str) -> bool:
    return False


def _everything(name: str) -> bool:
    return True


def _name_test(segments: Sequence[Segment]) -> NameTest:
    """One test for many segments: sets first, since a regular expression costs five times a set."""
    literals: set[str] = set()
    extensions: set[str] = set()
    tails: list[str] = []
    heads: list[str] = []
    regexes: list[str] = []
    for kind, text in segments:
        if kind == "any_depth" or (kind in ("suffix", "prefix") and not text):
            return _everything
        if kind == "literal":
            literals.add(text)
        elif kind == "suffix" and text.rfind(".") == 0 and len(text) > 1:
            extensions.add(text)
        elif kind == "suffix":
            tails.append(text)
        elif kind == "prefix":
            heads.append(text)
        else:
            regexes.append(text)
    if extensions and not (literals or tails or heads or regexes):
        return lambda name: name[name.rfind(".") :] in extensions
    if not segments:
        return _nothing
    if not (tails or heads or regexes):
        return lambda name: name in literals or name[name.rfind(".") :] in extensions
    tail, head = tuple(tails), tuple(heads)
    # One alternation; each part is closed, so that its choices cannot leak into the next.
    regex = (
        re.compile("|".join(f"(?:{part})" for part in dict.fromkeys(regexes)), re.DOTALL).fullmatch
        if regexes
        else None
    )

    def matches(name: str) -> bool:
        return (
            name in literals
            or name[name.rfind(".") :] in extensions
            or name.endswith(tail)
            or name.startswith(head)
            or (regex is not None and regex(name) is not None)
        )

    return matches


class _Group(NamedTuple):
    """Neighbouring patterns of one sign, as tests of a bare name."""

    negated: bool
    file_segments: tuple[Segment, ...]
    folder_segments: tuple[Segment, ...]
    file: NameTest
    folder: NameTest


class Level:
    """What a set of patterns asks for in one folder. Made by `Rules.top` and `descend`, and shared between folders."""

    __slots__ = ("_moving", "_next", "_rules", "_staying", "_still", "empty", "groups")

    def __init__(self, rules: "Rules", states: frozenset[tuple[int, int]]) -> None:
        self._rules = rules
        patterns = rules.patterns
        self.empty = not states
        self._moving: list[tuple[int, int, Segment]] = []
        staying = set()
        finals: list[tuple[int, Pattern]] = []
        for number, at in sorted(states):
            pattern = patterns[number]
            segment = pattern.segments[at]
            if segment.kind == "any_depth":
                staying.add((number, at))
            if at == len(pattern.segments) - 1:
                finals.append((number, pattern))
            elif segment.kind != "any_depth":
                self._moving.append((number, at, segment))
        self._staying = frozenset(staying)
        self._still: Level | None = None
        self._next: dict[frozenset[tuple[int, int]], Level] = {}
        self.groups = _groups(finals)  # the last pattern first, since it decides

    def descend(self, name: str) -> "Level":
        """The level of the folder `name` within this one."""
        moved = (
            frozenset((number, at + 1) for number, at, segment in self._moving if segment.matches(name))
            if self._moving
            else None
        )
        if not moved:
            if self._still is None:
                self._still = self._rules.level(self._staying)
            return self._still
        level = self._next.get(moved)
        if level is None:
            level = self._next[moved] = self._rules.level(self._staying | moved)
        return level

    def decide(self, name: str, *, folder: bool) -> bool | None:
        """True where the last matching pattern is a plain one, False where it is negated, None where none matches."""
        for group in self.groups:
            if (group.folder if folder else group.file)(name):
                return not group.negated
        return None


def _groups(finals: list[tuple[int, Pattern]]) -> tuple[_Group, ...]:
    runs: list[tuple[bool, list[Pattern]]] = []
    for _, pattern in finals:
        if not runs or runs[-1][0] != pattern.negated:
            runs.append((pattern.negated, []))
        runs[-1][1].append(pattern)
    groups = []
    for negated, run in reversed(runs):
        folders = tuple(dict.fromkeys(pattern.segments[-1] for pattern in run))
        files = tuple(dict.fromkeys(pattern.segments[-1] for pattern in run if not pattern.folder_only))
        groups.append(_Group(negated, files, folders, _name_test(files), _name_test(folders)))
    return tuple(groups)


class Rules:
    """An ordered set of patterns."""

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self.patterns = tuple(patterns)
        self._levels: dict[frozenset[tuple[int, int]], Level] = {}

    def top(self) -> Level:
        """The level of the folder that the patterns are written for."""
        return self.level(frozenset((number, 0) for number in range(len(self.patterns))))

    def level(self, states: frozenset[tuple[int, int]]) -> Level:
        closed = set(states)
        for number, at in states:
            segments = self.patterns[number].segments
            while segments[at].kind == "any_depth" and at + 1 < len(segments):
                at += 1
                closed.add((number, at))
        key = frozenset(closed)
        level = self._levels.get(key)
        if level is None:
            level = self._levels[key] = Level(self, key)
        return level


class Scope:
    """What a source takes in one folder: `takes(name)` for its files, `enter(name)` for its folders.

    `ignores` are the levels of the ignore files in force, the deepest first. `tag` names what they ask of files in this folder: equal
    tags give equal answers, in any process; it is "" where they ask nothing.
    """

    __slots__ = ("exclude", "ignores", "include", "tag", "takes")

    def __init__(self, include: Level, exclude: Level, ignores: tuple[Level, ...]) -> None:
        self.include = include
        self.exclude = exclude
        self.ignores = ignores
        self.takes: NameTest = self._test()
        self.tag = _tag(ignores)

    @classmethod
    def top(
        cls, include_globs: Iterable[str], exclude_globs: Iterable[str], ignores: tuple[Level, ...] = ()
    ) -> "Scope":
        return cls(Rules(parse_globs(include_globs)).top(), Rules(parse_globs(exclude_globs)).top(), ignores)

    def with_rules(self, patterns: Sequence[Pattern]) -> "Scope":
        """This folder with the patterns of its own ignore files."""
        return Scope(self.include, self.exclude, (Rules(patterns).top(), *self.ignores)) if patterns else self

    def enter(self, name: str) -> "Scope | None":
        """The scope of a folder below, or None where nothing in it is wanted."""
        if (
            name in SKIPPED_FOLDERS
            or self.exclude.decide(name, folder=True)
            or self.ignored(name, folder=True)
        ):
            return None
        include = self.include.descend(name)
        if include.empty:
            return None
        exclude = self.exclude.descend(name)
        ignores = self.ignores
        if ignores:
            ignores = tuple(below for below in [level.descend(name) for level in ignores] if not below.empty)
        if include is self.include and exclude is self.exclude and ignores == self.ignores:
            return self
        return Scope(include, exclude, ignores)

    def ignored(self, name: str, *, folder: bool) -> bool:
        for level in self.ignores:
            verdict = level.decide(name, folder=folder)
            if verdict is not None:
                return verdict
        return False

    def _test(self) -> NameTest:
        included = _name_test([segment for group in self.include.groups for segment in group.file_segments])
        against = [*self.exclude.groups, *(group for level in self.ignores for group in level.groups)]
        if not any(group.file_segments for group in against):
            return included
        if not any(
            group.negated for group in against
        ):  # without negation the order does not matter: one test does for all
            unwanted = _name_test(
                list(dict.fromkeys(segment for group in against for segment in group.file_segments))
            )
            return lambda name: included(name) and not unwanted(name)
        excluded = _name_test([segment for group in self.exclude.groups for segment in group.file_segments])
        ignored = self.ignored
        return lambda name: included(name) and not excluded(name) and not ignored(name, folder=False)


def _tag(ignores: tuple[Level, ...]) -> str:
    said = [
        (group.negated, group.file_segments)
        for level in ignores
        for group in level.groups
        if group.file_segments
    ]
    return (
        "." + hashlib.sha256(repr(said).encode("utf-8", "surrogateescape")).hexdigest()[:12] if said else ""
    )


_ESCAPED = re.compile(r"%(25|[89A-F][0-9A-F])")
_AMBIGUOUS = re.compile(r"%(?=25|[89A-F][0-9A-F])")
_UNDECODABLE = re.compile("[\udc80-\udcff]")


def encode_name(name: str) -> str:
    """A file name as part of a source id: text that any store can hold, and that stands for one name only.

    A byte that is not UTF-8 (a lone surrogate in Python's reading of the name) is written `%XX`; a `%` that could be taken for such
    an escape is written `%25`. Every other name stays as it is.
    """
    if "%" in name:
        name = _AMBIGUOUS.sub("%25", name)
    if not name.isascii():
        name = _UNDECODABLE.sub(lambda match: f"%{ord(match[0]) - 0xDC00:02X}", name)
    return name


def decode_name(name: str) -> str:
    """The inverse of `encode_name`."""
    return _ESCAPED.sub(lambda match: "%" if match[1] == "25" else chr(0xDC00 + int(match[1], 16)), name)
