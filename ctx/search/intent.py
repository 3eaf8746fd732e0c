"""Guess from a query's text whether it wants code or pages (docs/ranking.md).

Commit messages, issues and stack traces are answered by source files; questions and headings by pages. Each
pattern found in the query adds points, which were fitted on one half of benchmarks/history_set.py and
rounded.
"""

import re

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
LEAST_CODE, MOST_PAGES = 0, -2  # between these two sums it is unclear


def signals(query: str) -> set[str]:
    """The names of the patterns found in a query, which tell what kind of answer it wants: `trace` for a
    stack trace, `question` for a question.
    """
    text = query[:_READ_CHARS].strip()
    line, _, rest = text.partition("\n")
    prefix = _PREFIX.match(line)
    words = _WORD.findall(line)
    first = _WORD.search(line, prefix.end() if prefix else 0)
    question = line.endswith("?") or _QUESTION.match(line) is not None
    shown = {
        "change": first is not None and _CHANGE.match(line, first.start()) is not None,
        "commit": prefix is not None or _REFERENCE.search(text) is not None,
        "trace": _TRACE.search(text) is not None,
        "body": bool(rest.strip()) or len(words) > _BODY_WORDS,
        "symptom": _SYMPTOM.search(text) is not None,
        "identifier": len(words) > 2 and _IDENTIFIER.search(text) is not None,
        "code": question and _CODE.search(line) is not None,
        "question": question,
        "heading": not rest.strip() and len(words) <= _HEADING_WORDS,
        "guide": _GUIDE.search(line) is not None,
    }
    return {name for name, is_shown in shown.items() if is_shown}


def wanted(query: str) -> str:
    """The kind of document that a query wants: CODE, PAGES, GUIDE (a page, and no code) or UNCLEAR."""
    points = NO_SIGNAL + sum(POINTS[name] for name in signals(query))
    if points >= LEAST_CODE:
        return CODE
    if _HOW_TO.match(query.lstrip()):
        return GUIDE
    return PAGES if points <= MOST_PAGES else UNCLEAR
