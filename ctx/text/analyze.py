"""Splits text into terms: words, stems, parts of identifiers, pairs of ideographs.

A term is a word in lower case, without accents, stemmed for English. A word is a run of letters and digits.
So `get_user` and `os.path` are two words each. A camelCase identifier (`getUserName`) is one word, and its
parts are added as further words. Text in scripts without spaces is cut into pairs of characters. Stop words
are terms like any other word: a text keeps them, and a query drops them unless it has no other words.

Words are cut by tantivy's own tokenizer, which its index also uses (`tokenizer`) and which is many times
faster than Python. An engine with another tokenizer stores `terms(text)` and searches for
`query_terms(text)`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise

import tantivy

# Keywords that come before the name that code defines.
_DEFINING = "class def fn func function fun struct trait interface type enum module const define"
DEFINING = tuple(_DEFINING.split())
# Longer words are dropped; this keeps a SHA-256 in hexadecimal (64 bytes), but no line of base64.
MAX_TERM_BYTES = 72
# A longer query, such as a pasted page, is cut, because more words make results less precise.
MAX_QUERY_CHARS = 4000
# How often one word may occur in all phrases of a query together; a long sentence has "the" six times.
MAX_REPEATS = 8
# A query with at least this many lines, whose words occur at least this often on average, is treated as a
# pasted log. In a question of a hundred words, each word occurs 1.2 times on average.
LOG_LINES, LOG_REPEATS = 4, 1.5

# Lucene's English stop words, and the words that begin or phrase a question. Only queries drop them.
_STOP_WORDS = """
    a an and are as at be but by for if in into is it no not of on or such that the their then there these
    they this to was will with about am been being can could did do does doing had has have having he her hers
    him his how i its just me my our ours she should so some than theirs them those through too us very we
    were what when where which while who whom why would you your yours
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

# This is a string, as is `_UNSPACED_RUN`. `re` compiles it at its first use, because compiling takes time and
# few texts need the pattern.
_SURROGATE = "[\ud800-\udfff]"
# Matches only at the start of a word. If it were tried at every letter, a word of 4000 letters would take a
# second.
_SNAKE = re.compile(r"(?<![^\W_])[^\W_]++(?:_++[^\W_]++)+")
_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»|「([^」]+)」')
# `don't` and the `'s` of `it's`. The next character must not be a letter or digit, nor outside ASCII.
_CRUMB = re.compile(r"(?:\b[A-Za-z]+n['’]t|(?<=[A-Za-z])['’](?:s|re|ve|ll|d|m))(?![A-Za-z0-9]|[^\x00-\x7f])")
_OPTION = re.compile(r"(?<!\S)--[A-Za-z0-9]+(?:-[A-Za-z0-9]+)+")  # --no-verify
_VERSION = re.compile(r"(?<![\w.])v?(\d+(?:\.\d+)+)(?![\w.]*\w)")
_OPENING_QUOTES = '"“„«「'
# Names with signs: `C++`, `C#`, `.NET`. In a term, the sign is replaced by a letter that no word contains.
_SIGNED = re.compile(
    r"""\+\+(?<=(?<![^\W_])[A-Za-z]\+\+)(?!\+)|\#(?<=(?<![^\W_])[A-Za-z]\#)(?![^\W\d_])
    |\.(?<![^\s("'“„,;/]\.)(?=(?:NET|net)(?![\w.]))""",
    re.VERBOSE,
)
_SIGN_LETTERS = {"++": "\u1429+", "#": "\ua4e9", ".": "\ua4f8"}  # each replacement is as long as the sign
_SIGNED_WORD = re.compile("[A-Za-z][\u1429\ua4e9]|\ua4f8[A-Za-z]+")
_AS_WRITTEN = "\ua78c"  # a letter that is appended to an acronym to prevent stemming
_ACRONYM_END = re.compile(r"S(?<=[A-Z]S)(?!\w)")  # the S of AWS, iOS, macOS, which stemming would remove
_DOTTED_END = re.compile(r"\.(?:js|NET)\b")  # the end of Node.js, ASP.NET
_NAME_BEFORE = re.compile(r"(?<![\w.])[A-Za-z][A-Za-z0-9]*\Z")
_MAX_NAMED_CHARS = 24  # maximum characters of a name before `.js` or `.NET`
_MAX_ACRONYM_CHARS = 6
# Suffixes that stemming removes. An unfinished word may end with any prefix of such a suffix.
_ENDINGS = """
    ability able ably ally ance ational ator ators ed ence ency ent er ers es fully fulness ibility ible ical
    ically icated icates icating ication ications icative icator icators ied ing ings ism ist ities ity ive
    ively iveness ization ized izer izes izing less ly ment ments ness ously ousness
    """.split()  # noqa: SIM905 - otherwise a list of fifty lines
_BREAK, _CAPITAL, _SMALL = b" ", ord("A"), ord("a")
_KINDS = b" " * 48 + b"0" * 10 + b" " * 7 + b"A" * 26 + b" " * 6 + b"a" * 26 + b" " * 133
# Patterns of character kinds at which a camelCase identifier is split: a capital after a small letter or
# digit (`getUser`), and the last capital before a word (`HTTPServer`, but not `URLs`).
_HUMPS = (b"aA", b"0A", b"AAaa")
_PLURAL = b"AAa "  # the character kinds at the end of an acronym's plural: `JWTs`
# Thai, Lao, Myanmar, Khmer, kana, Han and Hangul letters. The tokenizer ends a word at a tone mark.
UNSPACED = (
    "\u0e01-\u0e3a\u0e40-\u0e46\u0e81-\u0eb9\u0ebb-\u0ec6\u1000-\u1036\u1038\u103b-\u103f\u1780-\u17b3\u17b6-\u17c8"
    "\u3005-\u3007\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3\uf900-\ufaff"
    "\uff66-\uff9d\U00020000-\U0003134f"
)
_UNSPACED_RUN = f"[{UNSPACED}]+"
# Accents typed as separate characters, and the characters that `composed` removes. Both occur inside words.
UNSEEN = (
    "\u0300-\u036f\xad\u200c\u200d\u2060\ufeff\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7"
    "\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc"
)


def tokenizer(*, stemmed: bool = True) -> "tantivy.TextAnalyzer":
    """The tantivy analyzer of `words` (or `plain_words` if not `stemmed`), for an index to register."""
    chain = tantivy.TextAnalyzerBuilder(tantivy.Tokenizer.simple())
    chain = chain.filter(tantivy.Filter.remove_long(MAX_TERM_BYTES))
    chain = chain.filter(tantivy.Filter.lowercase()).filter(tantivy.Filter.ascii_fold())
    if stemmed:
        chain = chain.filter(tantivy.Filter.stemmer("english"))
    return chain.build()


_analyzer = tokenizer()
_unstemmed = tokenizer(stemmed=False)


def composed(text: str) -> str:
    """The text in Unicode's composed form (NFC), so that a word is one run of letters whether its accents
    were typed as separate characters or not.

    Lone surrogates, which tokenizers refuse, become U+FFFD. A capital I with a dot (İzmir) becomes I, because
    its lower case would be two characters. A final sigma becomes a normal sigma, and variants of a letter
    become the same letter. Invisible joiners, soft hyphens and vowel signs (Hebrew, Arabic) are removed.
    """
    if text.isascii():
        return text
    text = re.sub(_SURROGATE, "\ufffd", unicodedata.normalize("NFC", text))
    text = text.replace("\u0130", "I").replace("i\u0307", "i").replace("\u03c2", "\u03c3")
    return text.translate(_spelt())


@lru_cache(1)  # the table is made at first use, because many searches have only ASCII
def _spelt() -> dict[int, int | str | None]:
    """code point -> its replacement in `composed`; None if the character is removed."""
    # Soft hyphen, zero-width non-joiner and joiner, word joiner, byte order mark; but not the zero-width
    # space, which separates words. Then the vowel signs of Hebrew and Arabic, which most people do not type,
    # and the stroke that makes an Arabic word longer.
    unseen = (
        *(0xAD, 0x200C, 0x200D, 0x2060, 0xFEFF),
        *(*range(0x591, 0x5BE), 0x5BF, 0x5C1, 0x5C2, 0x5C4, 0x5C5, 0x5C7),
        *(*range(0x610, 0x61B), 0x640, *range(0x64B, 0x660), 0x670, *range(0x6D6, 0x6DD)),
    )
    # Letters that are written in two ways: ё is mostly typed as е, Greek capitals have no accents, the hamza
    # of an alef is left out, a teh marbuta without its dots is a heh, and Persian has its own kaf and yeh.
    # (Lucene's filters for these languages treat the same letters as equal.) Also the digits of Arabic,
    # Persian and Hindi.
    return {
        **dict.fromkeys(unseen),
        **str.maketrans("ЁёΆΈΉΊΪΌΎΫΏάέήίϊΐόύϋΰώ", "ЕеΑΕΗΙΙΟΥΥΩαεηιιιουυυω"),
        **dict.fromkeys((0x622, 0x623, 0x625, 0x671), 0x627),
        **dict.fromkeys((0x649, 0x6CC, 0x6D2), 0x64A),
        **dict.fromkeys((0x629, 0x6C0, 0x6C1), 0x647),
        0x6A9: 0x643,
        **{zero + digit: ord("0") + digit for zero in (0x660, 0x6F0, 0x966) for digit in range(10)},
    }


def unspaced_runs(text: str) -> list[str]:
    """The runs of characters of scripts without spaces."""
    return [] if text.isascii() else re.findall(_UNSPACED_RUN, text)


def _without_unspaced(text: str, instead: str) -> str:
    return re.sub(_UNSPACED_RUN, instead, text)


def signed(text: str) -> str:
    """The text with the signs in names such as `C++`, `C#` and `.NET` replaced by letters. The length stays
    the same.
    """
    if "++" in text or "#" in text or ".NET" in text or ".net" in text:
        return _SIGNED.sub(lambda match: _SIGN_LETTERS[match[0]], text)
    return text


def words(text: str) -> list[str]:
    """The stemmed terms of the words in `text`, in order, including repeats and stop words."""
    stems: list[str] = _analyzer.analyze(composed(text))
    return stems


def plain_words(text: str) -> list[str]:
    """The words in `text` in lower case and without accents, like `words`, but not stemmed."""
    return list(_unstemmed.analyze(composed(text)))


def whole(name: str) -> str:
    """A name as one word in lower case, without separators: `getuser` for `get_user` and `getUser`. It is not
    stemmed, because `Int16s` and `Int16` are different names.
    """
    return "".join(plain_words(name))


def additions(text: str) -> str:
    """Further words under which a text (already `composed`) should be found, separated by spaces; often "".

    They are: the parts of camelCase identifiers; acronyms that stemming would cut (`AWS`), and the singular
    of acronyms in the plural (`JWTs`); names with signs (`C++`); names with underscores and dots as one word
    (`getuser` for `get_user`, `nodejs` for `Node.js`); and for scripts without spaces each character, each
    pair, and words in other scripts that touch them.
    """
    implied = _identifiers(text)
    if not text.isascii():
        runs = unspaced_runs(text)
        for run in runs:
            implied += run
            implied += _pairs(run)
        if runs:  # to the tokenizer, `Python入門` is one word, so `Python` is added
            implied += (_without_unspaced(piece, " ") for piece in text.split() if unspaced_runs(piece))
    return " ".join(implied)


def terms(text: str) -> list[str]:
    """All terms under which a text can be found, in order, with repeats, including those of `additions`. An
    engine without our tokenizer stores these terms.
    """
    text = composed(text)
    stems: list[str] = _analyzer.analyze(f"{text}\n{additions(text)}")
    return stems


@lru_cache(4096)  # cached, because the texts in which a query's words are looked up repeat the same words
def terms_of_word(word: str) -> tuple[str, ...]:
    """`terms` of a single word."""
    return tuple(terms(word))


def beginning(term: str) -> str:
    """The prefix that all words with this stem share: `happ` for the stem `happi` of `happy`."""
    term = term.removesuffix(_AS_WRITTEN)
    return term[:-1] if len(term) > 3 and term[-1] in "iy" else term


# Maximum characters in the cache, enough for common scripts; all of Unicode would take 170 MB.
_FOLDINGS_KEPT = 20_000


class _Folding(dict[int, str]):
    """code point -> the character in lower case and without accents, as in `words`. A combining accent
    becomes "".
    """

    def __missing__(self, code: int) -> str:
        char = chr(code)
        letters = "" if "\u0300" <= char <= "\u036f" or _spelt().get(code, code) is None else char.lower()
        if char.isalnum():
            letters = "".join(plain_words(char)) or letters
        if len(self) < _FOLDINGS_KEPT:
            self[code] = letters
        return letters


_FOLDING = _Folding()


def folded(text: str) -> str:
    """The text in lower case and without accents, like the terms of its words. The length may change."""
    return text.lower() if text.isascii() else text.translate(_FOLDING)


def query_terms(text: str) -> list[str]:
    """The distinct terms to search for, in order of appearance; [] if the text has no letter and no digit.

    Stop words are dropped unless the query has no other words.
    """
    return list(query_counts(text))


def query_counts(text: str) -> dict[str, int]:
    """term -> how often it occurs in the query, for the terms of `query_terms`. A repeated word gets more
    weight.

    In a pasted log, whose lines are mostly the same, each word counts once.
    """
    return dict(_counted(text[:MAX_QUERY_CHARS]))


@lru_cache(16)  # cached, because a search asks for the counts of its query twice
def _counted(text: str) -> Mapping[str, int]:
    text = composed(text)
    implied = _identifiers(text)
    spaced = text
    if not text.isascii():
        # A run of ideographs is searched by its pairs of characters, because as one word it would match only
        # itself.
        for run in unspaced_runs(text):
            implied += _pairs(run) or [run]
        spaced = _without_unspaced(text, " ")
    content = _CRUMB.sub(" ", spaced) if "'" in spaced or "’" in spaced else spaced
    stems = zip(_unstemmed.analyze(content), _analyzer.analyze(content), strict=True)
    terms = [stem for word, stem in stems if word not in STOP_WORDS]
    if implied:
        terms += _analyzer.analyze(" ".join(implied))
    counts: dict[str, int] = {}
    for term in terms or _analyzer.analyze(spaced):
        counts[term] = counts.get(term, 0) + 1
    if text.count("\n") >= LOG_LINES - 1 and sum(counts.values()) > LOG_REPEATS * len(counts):
        return dict.fromkeys(counts, 1)
    return counts


def quoted_phrases(text: str) -> list[list[str]]:
    """The terms of each quoted phrase, option (`--no-verify`) and version number (`0.30.1`) in a query that
    consists of two or more words.
    """
    text = composed(text[:MAX_QUERY_CHARS])
    pieces = [*_quoted(text), *_OPTION.findall(text), *_VERSION.findall(text)]
    return [phrase for phrase in _affordable(map(_analyzer.analyze, pieces)) if len(phrase) > 1]


def _affordable(phrases: Iterable[Sequence[str]]) -> list[list[str]]:
    """The distinct phrases. Each is cut before a word that already occurred `MAX_REPEATS` times in all
    phrases.

    An engine reads a word's positions again for each occurrence in a phrase: a long `0.0.0...` took minutes
    in a file of zeros.
    """
    counts: dict[str, int] = {}
    beginnings = []
    for phrase in dict.fromkeys(map(tuple, phrases)):
        length = 0
        for word in phrase:
            counts[word] = counts.get(word, 0) + 1
            if counts[word] > MAX_REPEATS:
                break
            length += 1
        beginnings.append(phrase[:length])
    return list(map(list, dict.fromkeys(beginnings)))


def _quoted(text: str) -> list[str]:
    return ["".join(groups) for groups in _QUOTED.findall(text)] if '"' in text or not text.isascii() else []


def exact_phrases(text: str) -> list[list[str]]:
    """The phrases that must all occur, if the whole query is one quoted text; [] for any other query. A
    phrase is a list of terms that must follow each other.

    Usually there is one phrase. In scripts without spaces, each run of characters becomes a phrase of its
    pairs, because the index contains pairs. A single name with a sign (`C++`) becomes one term.
    """
    piece = _quoted_whole(text)
    names = _SIGNED_WORD.findall(signed(piece))
    if names and len(plain_words(piece)) == 1:
        return [words(names[0])]
    runs = unspaced_runs(piece)
    spaced = _without_unspaced(piece, "\n").split("\n") if runs else [piece]
    pairs = [" ".join(_pairs(run) or [run]) for run in runs]
    return [phrase for phrase in _affordable(map(words, (*pairs, *spaced))) if phrase]


def exact_words(text: str) -> list[str]:
    """The words (not stemmed) of a query that is one quoted text; [] for any other query, and for text in a
    script without spaces.
    """
    piece = _quoted_whole(text)
    return [] if unspaced_runs(piece) else plain_words(signed(piece))


def has_exactly(text: str, phrase: Sequence[str]) -> bool:
    """Whether a text contains these words (not stemmed) one after the other. A single word may also be part
    of a name.
    """
    text = composed(text)
    words_of_text = f" {' '.join(plain_words(signed(text)))} "
    if f" {' '.join(phrase)} " in words_of_text:
        return True
    return len(phrase) == 1 and phrase[0] in plain_words(additions(text))


def _quoted_whole(text: str) -> str:
    """The text inside the quotes if the whole query is one quoted phrase, else ""."""
    text = text.strip()
    if len(text) < 3 or text[0] not in _OPENING_QUOTES:
        return ""
    match = _QUOTED.fullmatch(composed(text[:MAX_QUERY_CHARS]))
    return "".join(filter(None, match.groups())) if match else ""


def identifiers(text: str) -> list[str]:
    """The camelCase and snake_case names in a query, as written."""
    text = text[:MAX_QUERY_CHARS]
    return list(dict.fromkeys([*_humped(text, _kinds(text)), *_snakes(text)]))


def stems_of_unfinished(word: str) -> list[str]:
    """The stems of the words that an unfinished word may become, longest first: `authent` for
    `authenticatio`.

    Use it for a word that is not the beginning of any term, because the word is already longer than the stem.
    A word that ends in no known suffix, such as `authentx`, has no such stem.
    """
    rests = dict.fromkeys(ending[i:] for ending in _ENDINGS for i in range(len(ending)))
    stems = dict.fromkeys(stem for rest in rests for stem in words(word + rest)[:1])
    return sorted((stem for stem in stems if not stem.startswith(word)), key=len, reverse=True)


def _acronyms(text: str, kinds: bytes) -> Iterator[str]:
    """The singular of each acronym in the plural (`JWT` for `JWTs`) that stemming would not reduce. Stemming
    removes the s only after a vowel.
    """
    kinds += _BREAK
    position = kinds.find(_PLURAL)
    while position >= 0:
        end = position + 2
        begin = kinds.rfind(_BREAK, 0, position) + 1
        whole = kinds.count(_CAPITAL, begin, end) == end - begin and not (begin and text[begin - 1].isalnum())
        if text[end] == "s" and whole:
            acronym = text[begin:end]
            if not _same_stem(acronym):
                yield acronym
        position = kinds.find(_PLURAL, end)


@lru_cache(4096)
def _same_stem(acronym: str) -> bool:
    return words(acronym) == words(acronym + "s")


def _humped(text: str, kinds: bytes) -> list[str]:
    """The camelCase identifiers in a text: runs of ASCII letters and digits. `kinds` is `_kinds(text)`."""
    spans: set[tuple[int, int]] = set()
    for hump in _HUMPS:
        position = kinds.find(hump)
        while position >= 0:
            end = kinds.find(_BREAK, position)
            end = len(kinds) if end < 0 else end
            spans.add((kinds.rfind(_BREAK, 0, position) + 1, end))
            position = kinds.find(hump, end)
    return [text[start:end] for start, end in sorted(spans)]


def _kinds(text: str) -> bytes:
    """The kind of each character: `A` for an ASCII capital, `a` for a small letter, `0` for a digit, and a
    blank for any other. Searching these bytes is ten times faster than `re`.
    """
    return text.encode("ascii", "replace").translate(_KINDS)


@lru_cache(16_384)
def _parts(identifier: str) -> tuple[str, ...]:
    """The words of a camelCase identifier, without single letters: `getHTTPServer2` gives get, HTTP and
    Server. Cached, because a text repeats its identifiers.
    """
    kinds = _kinds(identifier)
    cuts = [0]
    for i, (last, kind) in enumerate(pairwise(kinds), 1):
        if last == kind:
            continue
        if last != _CAPITAL or kind != _SMALL:
            cuts.append(i)
        elif i - cuts[-1] > 1:
            cuts.append(i - 1 if kinds[i + 1 : i + 2] == b"a" else i)  # `HTTP Server`, but `URL s`
    cuts.append(len(identifier))
    return tuple([identifier[begin:end] for begin, end in pairwise(cuts) if end - begin > 1])


def _identifiers(text: str) -> list[str]:
    kinds = _kinds(text)
    implied = [part for identifier in _humped(text, kinds) for part in _parts(identifier)]
    implied += _acronyms(text, kinds)
    implied += (snake.replace("_", "") for snake in _snakes(text))
    implied += _named(text)
    return implied


def _named(text: str) -> list[str]:
    """The names with signs (`C++`), the names with a dot as one word (`Nodejs`), and the acronyms that
    stemming would cut (`AWS`), without duplicates.
    """
    names = _SIGNED_WORD.findall(signs) if (signs := signed(text)) is not text else []
    for match in _DOTTED_END.finditer(text):
        names += (name + match[0][1:] for name in _name_before(text, match.start()))
    for match in _ACRONYM_END.finditer(text):
        acronyms = (name for name in _name_before(text, match.end()) if len(name) <= _MAX_ACRONYM_CHARS)
        names += (name + _AS_WRITTEN for name in acronyms if _is_cut(name))
    return list(dict.fromkeys(names))


def _name_before(text: str, end: int) -> list[str]:
    return _NAME_BEFORE.findall(text[max(0, end - _MAX_NAMED_CHARS) : end])


@lru_cache(4096)
def _is_cut(word: str) -> bool:
    return words(word) != plain_words(word)


def _snakes(text: str) -> list[str]:
    """The identifiers with underscores."""
    if "_" not in text:
        return []
    # Searching only the words with an underscore is three times as fast.
    return _SNAKE.findall(" ".join([word for word in text.split() if "_" in word]))


def _pairs(run: str) -> list[str]:
    return [run[i : i + 2] for i in range(len(run) - 1)]
