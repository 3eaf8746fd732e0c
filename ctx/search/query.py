"""Reads a query: its words, the names in it, the paths it filters by, and whether it wants code or pages.

Commit messages, issues and stack traces are answered by source files; questions and headings by pages
(docs/ranking.md). Each pattern found in the query adds points, which were fitted on one half of
benchmarks/history_set.py and rounded.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from ctx.code.symbols import MAX_NAME_CHARS
from ctx.connectors.patterns import Rules, parse_globs
from ctx.errors import BadRequest, ConfigError
from ctx.text import analyze
from ctx.text.strings import cut

# Keywords that introduce a definition and are not English words.
_SAID_BY_CODE_ALONE = frozenset({"def", "fn", "func", "struct"})
_SENTENCE_WORDS = 4  # a query with at least this many words may be the name of a Kotlin test
_MIN_HASH_CHARS = 7  # the shortest abbreviation that git prints
_MIN_BEGINNING_CHARS = 4  # the shortest unknown last word that is completed to words that begin with it
_HEX = frozenset("0123456789abcdef")
# Only words of at least this length are corrected: shorter words are often one letter apart (forum, form).
_MIN_TYPO_CHARS = 6
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_PUNCTUATION = "()[]{}<>,;:.!?\"'`"  # characters that may surround a name in a sentence
_MIN_MEMBER_CHARS = 3
# The first character of the scripts without spaces between words: a run of their letters may be a sentence.
_FIRST_UNSPACED = "\u0e00"
# Includes names such as Ruby's `find?` and `save!`, and C++'s `~Store`.
_SYMBOL = re.compile(r"~?\w+(?:(?:\.|::~?|/|->|#|-)\w+)*(?:\(\)|[?!=])?")
_NAMELIKE = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]|_|\.|::|->|#|/|\(\)|[A-Za-z][0-9]|^~|[!=]$")


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


def is_name(query: str) -> bool:
    """Whether a query is a single name: an identifier or path of identifiers (`getUser`, `os.path`), or one
    plain word.
    """
    word = query.strip().strip("\"'`")
    return _SYMBOL.fullmatch(word) is not None and max(word) < _FIRST_UNSPACED


def is_identifier(query: str) -> bool:
    """Whether a query is a name that can only come from code: `getUserName`, `os.path.join`, `sha256`."""
    word = query.strip()
    return is_name(word) and not (word.isalpha() and word.islower()) and _NAMELIKE.search(word) is not None


def members(text: str) -> list[tuple[str, str]]:
    """The dotted names in a query, as (part before the last, last part): `os.path.join()` gives (path, join).
    `e.g.` and `3.11` are not names.
    """
    text = text[: analyze.MAX_QUERY_CHARS].replace("::", ".").replace("->", ".")
    pairs = []
    for word in text.split() if "." in text else ():
        *qualifiers, name = word.strip(_PUNCTUATION).split(".")
        if qualifiers and len(name) >= _MIN_MEMBER_CHARS and all(map(str.isidentifier, [*qualifiers, name])):
            pairs.append((qualifiers[-1], name))
    return pairs


def has_version(query: str) -> bool:
    """Whether a query contains a version number such as `2.3`."""
    return re.search(r"\d\.\d", query) is not None


def one_letter_off(word: str) -> list[str]:
    """The words that differ from `word` (lower-case ASCII) by one typing error: two letters swapped, or one
    letter left out, replaced or added. The first letter changes only by a swap.
    """
    cuts = [(word[:i], word[i:]) for i in range(len(word) + 1)]
    inner = cuts[1:-1]
    changed = [before + after[1] + after[0] + after[2:] for before, after in cuts[:-2]]
    changed += [before + after[1:] for before, after in inner]
    changed += [before + letter + after[1:] for before, after in inner for letter in _LETTERS]
    changed += [before + letter + after for before, after in cuts[1:] for letter in _LETTERS]
    return [change for change in dict.fromkeys(changed) if change != word]


def subject_of(query: str) -> str:
    """The name alone if the query is written like a definition (`class OrderedDict`, `def main():`), else the
    query.

    A lower-case name counts only after a keyword that is not an English word, because `class action` and
    `type theory` are prose.
    """
    word, _, name = query.strip().partition(" ")
    name = name.strip().removesuffix(":").removesuffix("()")
    is_word = name.isalpha() and name.islower() and word not in _SAID_BY_CODE_ALONE
    return name if word in analyze.DEFINING and not is_word and is_name(name) else query


def names_asked_for(query: str, members: Sequence[tuple[str, str]]) -> list[str]:
    """The names whose definition a query may ask for: the query itself if it is a name, else its identifiers
    and the last part of dotted names. A query of several words may be a name too, because tests in Kotlin
    have such names.
    """
    names = [name for _, name in members]
    if not is_name(query):
        is_sentence = query.count(" ") + 1 >= _SENTENCE_WORDS and len(query) <= MAX_NAME_CHARS
        return list(dict.fromkeys([query] * is_sentence + [*analyze.identifiers(query), *names]))
    return names or [query.strip().strip("\"'`()")]


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
    is_known = any(words.weights.get(stem, 1.0) for stem in analyze.words(word))
    may_go_on = word.isalpha() and len(word) >= _MIN_BEGINNING_CHARS
    return not is_known and (may_go_on or is_cut_hash(word))


def _and_inside(glob: str) -> list[str]:
    """The glob itself. If the glob is a path, it may be the path of a folder, so also a glob for the files in
    the folder.
    """
    path = glob.strip().rstrip("/").removeprefix("./")
    return [glob, path, f"{path}/**"] if path and not re.search(r"[*?[{]", path) else [glob]


def path_test(globs: Sequence[str]) -> Callable[[str], bool]:
    """Returns a function that tells whether a path matches one of the globs or is in a folder whose path
    matches one. Without globs, all paths match. Raises `BadRequest` for a bad or excluding glob.
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


# -- code or pages -------------------------------------------------------------------------------------------

CODE, PAGES, GUIDE, UNCLEAR = "code", "pages", "guide", "unclear"

# Verbs with which a commit message or an issue begins.
_CHANGE = re.compile(
    r"(?:add|allow|apply|avoid|bump|change|clean|correct|deprecate|detect|disable|don['’]t|drop|enable|"
    r"ensure|fix|forbid|handle|ignore|implement|improve|include|introduce|keep|let|make|migrate|move|"
    r"permit|prevent|raise|reduce|refactor|reject|remove|rename|replace|report|require|resolve|restore|"
    r"return|revert|rewrite|simplify|skip|speed|stop|support|switch|throw|tidy|unify|update|upgrade|use)"
    r"(?:s|d|ed|es)?(?![\w'’-])",
    re.IGNORECASE,
)
_EMOJI = "[\u2600-\u27bf\U0001f000-\U0001faff]"
# `fix: `, `feat(api)!: `, `[ci] `, an emoji.
_PREFIX = re.compile(rf"{_EMOJI}?\s*[\w./@+-]+(?:\([^)\n]*\))?!?: |\[[^\]\n]+\] |{_EMOJI}")
_REFERENCE = re.compile(r"(?<![\w&])(?:#|gh-)\d+\b|\bCVE-\d", re.IGNORECASE)
_TRACE = re.compile(
    r"Traceback \(|^\s+at \S+.*[:(]\d|File \".*\", line \d|\bpanic: |\b\w*(?:Error|Exception)\b: "
    r"|^error\b.*: |\b[Ss]egmentation fault|\bcore dumped",
    re.MULTILINE,
)
_SYMPTOM = re.compile(
    r"\b(?:bugs?|crash(?:es|ed)?|fail(?:s|ed|ing|ure)?|wrong(?:ly)?|incorrect(?:ly)?|unexpected(?:ly)?|"
    r"broken|breaks?|regression|leaks?|hangs?|deadlocks?|instead of|does(?:n't| not)|should(?:n't| not)?|"
    r"no longer)\b",
    re.IGNORECASE,
)
_IDENTIFIER = re.compile(r"[a-z0-9]_[a-z0-9]|[a-z][A-Z]|\w\(\)|\w\.\w+\(|::|`[^`\n]+`|\w/\w+\.\w")
_QUESTION = re.compile(
    r"(?:how|what|where|why|which|who|when|can|could|is|are|does|do|should)\b", re.IGNORECASE
)
_HOW_TO = re.compile(
    r"how (?:do|can|could|should|would) (?:i|we|you|one)\b|how to\b"
    r"|(?:can|could|may|should|do) (?:i|we|you)\b"
    r"|why (?:do|does|is|are|can(?:no|')t) (?:i|we|my|our)\b|(?:my|our|i|we)(?=\s)",
    re.IGNORECASE,
)
_CODE = re.compile(r"\b(?:code|function|class|method|defined|implement\w*)\b", re.IGNORECASE)
_GUIDE = re.compile(
    r"\b(?:guide|tutorial|overview|introduction|getting started|quick ?start|install\w*|configur\w+|"
    r"settings?|documentation|documented|documents?|docs|readme|reference|examples?|options?|usage|faq|your?|"
    r"using|running|writing|creating|testing|upgrading|migrating)\b",
    re.IGNORECASE,
)
_WORD = re.compile(r"[\w'’-]+")
_HEADING_WORDS = 5
_BODY_WORDS = 25
_READ_CHARS = 4000

# Points for code (positive) or pages (negative). A query without any pattern wants pages.
POINTS = {
    "change": 3, "commit": 4, "trace": 4, "body": 2, "symptom": 1, "identifier": 1, "code": 6,
    "question": -3, "heading": -1, "guide": -1,
}  # fmt: skip
NO_SIGNAL = -2
# A query with at least LEAST_CODE points wants code, with at most MOST_PAGES points pages. Between, it is
# UNCLEAR.
LEAST_CODE, MOST_PAGES = 0, -2


def signals(query: str) -> set[str]:
    """The names of the patterns found in a query, which tell what kind of answer it wants: `trace` for a
    stack trace, `question` for a question.
    """
    text = query[:_READ_CHARS].strip()
    line, _, body = text.partition("\n")
    prefix = _PREFIX.match(line)
    words = _WORD.findall(line)
    first = _WORD.search(line, prefix.end() if prefix else 0)
    question = line.endswith("?") or _QUESTION.match(line) is not None
    patterns = {
        "change": first is not None and _CHANGE.match(line, first.start()) is not None,
        "commit": prefix is not None or _REFERENCE.search(text) is not None,
        "trace": _TRACE.search(text) is not None,
        "body": bool(body.strip()) or len(words) > _BODY_WORDS,
        "symptom": _SYMPTOM.search(text) is not None,
        "identifier": len(words) > 2 and _IDENTIFIER.search(text) is not None,
        "code": question and _CODE.search(line) is not None,
        "question": question,
        "heading": not body.strip() and len(words) <= _HEADING_WORDS,
        "guide": _GUIDE.search(line) is not None,
    }
    return {name for name, is_shown in patterns.items() if is_shown}


def wanted(query: str) -> str:
    """The kind of document that a query wants: CODE, PAGES, GUIDE (a page, and no code) or UNCLEAR."""
    points = NO_SIGNAL + sum(POINTS[name] for name in signals(query))
    if points >= LEAST_CODE:
        return CODE
    if _HOW_TO.match(query.lstrip()):
        return GUIDE
    return PAGES if points <= MOST_PAGES else UNCLEAR
