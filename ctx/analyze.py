"""The analysis of text into terms, defined once: words, stems, parts of identifiers, pairs of ideographs.

A term is a word in lower case, without accents, stemmed for English. A word is a run of letters and digits, so `get_user` and
`os.path` are two words each, and an identifier written in humps (`getUserName`) is one word to which its parts are added.
Scripts that put no spaces between words are cut into pairs of characters. Stop words are terms like others: a text keeps
them, a query drops them unless it has nothing else.

The words are cut by tantivy's own tokenizer, which its index uses too (`tokenizer`), many times faster than Python could. An
engine with another tokenizer is given `terms(text)` to store and `query_terms(text)` to look for.
"""

from collections.abc import Iterable
from itertools import pairwise

import tantivy

from ctx.lean import pattern

MAX_TERM_BYTES = 72  # a SHA-256 in hexadecimal is 64 and worth finding; a line of base64 is not
_SHORT_CHARS = 64  # beyond it a pattern is faster than a loop
MAX_QUERY_CHARS = 4000  # of a query that are read: a page pasted whole; more words only blur it

# Lucene's English stop words, and the words a question is put with. They are dropped from queries only.
_STOP_WORDS = """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these they this to was
    will with about am been being can could did do does doing had has have having he her hers him his how i its just me my our
    ours she should so some than theirs them those through too us very we were what when where which while who whom why would
    you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# Compiled when first needed: a plain query from the command line needs none.
# Each can begin at the start of a word only: tried at every letter, a word of 4000 would take a second.
# Where a hump begins: a capital after a small letter or digit (`getUser`), or the last capital before a word (`HTTPServer`; but not `URLs`).
_HUMP = pattern(r"[A-Z](?:(?<=[a-z0-9][A-Z])|(?<=[A-Z]{2})(?=[a-z][a-z]))")
_SURROGATE = pattern("[\ud800-\udfff]")
_SNAKE = pattern(r"(?<![^\W_])[^\W_]++(?:_++[^\W_]++)+")
_QUOTED = pattern(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»|「([^」]+)」')
# `don't` and the `'s` of `it's`; what follows must end a word for every reading of Unicode.
_CRUMB = pattern(r"(?:\b[A-Za-z]+n['’]t|(?<=[A-Za-z])['’](?:s|re|ve|ll|d|m))(?![A-Za-z0-9]|[^\x00-\x7f])")
_JOINED = pattern(r"(?<![^\W_])[^\W_]++(?:[_.:/\\@#]++[^\W_]++)+")  # foo_bar, os.path, std::vec, a/b
_JOINTS = frozenset("_.:/\\@#")
_ALPHANUMERIC = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
# Runs of Thai, Lao, Myanmar, Khmer, kana, Han and Hangul: letters only, since a tone mark ends a word in the tokenizer.
_UNSPACED = pattern(
    "[\u0e01-\u0e3a\u0e40-\u0e46\u0e81-\u0eb9\u0ebb-\u0ec6\u1000-\u1036\u1038\u103b-\u103f\u1780-\u17b3\u17b6-\u17c8"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U0003134f]+"
)


def tokenizer(*, stemmed: bool = True) -> "tantivy.TextAnalyzer":
    """tantivy's own form of `words`, for an index to register under a name."""
    chain = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    steps = [
        tantivy.Filter.remove_long(MAX_TERM_BYTES),
        tantivy.Filter.lowercase(),
        tantivy.Filter.ascii_fold(),
    ]
    if stemmed:
        steps.append(tantivy.Filter.stemmer("english"))
    for step in steps:
        chain = chain.filter(step)
    return chain.build()


_analyzer = tokenizer()
_unstemmed = tokenizer(stemmed=False)


def composed(text: str) -> str:
    """The text in Unicode's composed form (NFC), so that a word is one run of letters however its accents were typed.

    Lone surrogates, which no tokenizer takes, become U+FFFD.
    """
    if text.isascii():
        return text
    import unicodedata  # only text beyond ASCII pays for its tables

    return _SURROGATE.sub("\ufffd", unicodedata.normalize("NFC", text))


def words(text: str) -> list[str]:
    """The terms of the words in `text`, in order, with repeats and stop words."""
    found: list[str] = _analyzer.analyze(composed(text))
    return found


def additions(text: str) -> str:
    """Words that `text` (composed) implies beyond its own, parted by spaces; usually "".

    They are the parts of identifiers in humps, the wholes of those with underscores (`get_user` as `getuser`, which `getUser`
    is too), and of scripts without spaces each character and each pair, and the words glued to them.
    """
    found = _identifiers(text)
    if not text.isascii():
        runs = _UNSPACED.findall(text)
        for run in runs:
            found += run
            found += _pairs(run)
        if runs:  # `Python入門` is one word to the tokenizer: what stands beside a run is found by itself too
            found += (_UNSPACED.sub(" ", piece) for piece in text.split() if _UNSPACED.search(piece))
    return " ".join(found)


def terms(text: str) -> list[str]:
    """Everything a text can be found by, in order, with repeats: what an engine without our tokenizer stores."""
    text = composed(text)
    added = "" if text.isascii() and not _compound(text) else additions(text)
    found: list[str] = _analyzer.analyze(f"{text}\n{added}" if added else text)
    return found


def query_terms(text: str) -> list[str]:
    """The distinct terms to look for, in order of appearance; [] where the text has no letter and no digit.

    Stop words are dropped unless there is nothing else.
    """
    return list(query_counts(text))


def query_counts(text: str) -> dict[str, int]:
    """`query_terms` with how often the query says each: what it repeats it means."""
    text = composed(text[:MAX_QUERY_CHARS])
    found = _identifiers(text) if _compound(text) else []
    rest = text
    if not text.isascii():
        # A run of ideographs is looked for by its pairs: as one word it would match only itself.
        for run in _UNSPACED.findall(text):
            found += _pairs(run) or [run]
        rest = _UNSPACED.sub(" ", text)
    content = _CRUMB.sub(" ", rest) if "'" in rest or "’" in rest else rest
    stems = zip(_unstemmed.analyze(content), _analyzer.analyze(content), strict=True)
    kept = [stem for word, stem in stems if word not in STOP_WORDS] + _analyzer.analyze(" ".join(found))
    counts: dict[str, int] = {}
    for term in kept or _analyzer.analyze(rest):
        counts[term] = counts.get(term, 0) + 1
    return counts


def query_phrases(text: str) -> list[list[str]]:
    """Words that a query wants side by side: those in quotes, and the parts of compounds (`foo_bar`, `os.path`, `fooBar`)."""
    text = composed(text[:MAX_QUERY_CHARS])
    wanted: list[str] = []
    if '"' in text or not text.isascii():
        wanted += ("".join(groups) for groups in _QUOTED.findall(text))
    if not _JOINTS.isdisjoint(text):
        wanted += _JOINED.findall(text)
    wanted += [" ".join(_parts(word)) for word in _humped(text)] if _compound(text) else []
    phrases = [_analyzer.analyze(phrase) for phrase in wanted]
    return [list(phrase) for phrase in dict.fromkeys(tuple(phrase) for phrase in phrases if len(phrase) > 1)]


def _compound(text: str) -> bool:
    """Whether a text may hold an identifier: an underscore, or a capital within a word. Else a query is spared the patterns, and `re`."""
    return "_" in text or any(word[1:] != word[1:].lower() for word in text.split())


def _humped(text: str) -> list[str]:
    """The identifiers in humps: runs of ASCII letters and digits."""
    found: list[str] = []
    read_to = 0
    for hump in _humps(text):
        if hump < read_to:
            continue
        begin, read_to = hump, hump + 1
        while begin and text[begin - 1] in _ALPHANUMERIC:
            begin -= 1
        while read_to < len(text) and text[read_to] in _ALPHANUMERIC:
            read_to += 1
        found.append(text[begin:read_to])
    return found


def _humps(text: str) -> Iterable[int]:
    """Where humps begin. By hand in what is short, the words of a query and of a snippet: `re` would be 4 ms of a search."""
    if len(text) > _SHORT_CHARS:
        return (hump.start() for hump in _HUMP.finditer(text))
    return [
        at
        for at in range(1, len(text))
        if "A" <= text[at] <= "Z" and _begins_hump(text[at - 1], text[at + 1 : at + 3])
    ]


def _begins_hump(before: str, after: str) -> bool:
    if "A" <= before <= "Z":
        return len(after) == 2 and all("a" <= char <= "z" for char in after)
    return before in _ALPHANUMERIC


def _parts(identifier: str) -> list[str]:
    """The words of an identifier, those of a single letter left out: `getHTTPServer2` is get, HTTP and Server."""
    cuts = [0]
    for at in range(1, len(identifier)):
        last, char = identifier[at - 1], identifier[at]
        if last.isupper() and char.islower():
            if at - cuts[-1] > 1:
                cuts.append(at - 1 if identifier[at + 1 : at + 2].islower() else at)  # HTTP Server, but URL s
        elif last.isdigit() != char.isdigit() or (last.islower() and char.isupper()):
            cuts.append(at)
    cuts.append(len(identifier))
    return [identifier[begin:end] for begin, end in pairwise(cuts) if end - begin > 1]


def _identifiers(text: str) -> list[str]:
    found = [part for identifier in _humped(text) for part in _parts(identifier)]
    if "_" in text:
        found += _underscored(text)
    return found


def _underscored(text: str) -> list[str]:
    """The identifiers with underscores, without them. Looked for around each underscore: words without one cost nothing."""
    found: list[str] = []
    read_to = 0
    while (at := text.find("_", read_to)) >= 0:
        begin, low = at, max(read_to, at - MAX_TERM_BYTES)
        while begin > low and text[begin - 1].isalnum():
            begin -= 1
        match = _SNAKE.match(text, begin) if begin < at else None
        if match is None:
            read_to = at + 1
            continue
        found.append(match[0].replace("_", ""))
        read_to = match.end()
    return found


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
