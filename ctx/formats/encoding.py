"""Bytes to text: any encoding a file may have, and None for what is not text."""

import codecs
import re
from collections.abc import Container, Sequence

SNIFF_BYTES = 8192  # looked at to tell text from binary
_SAMPLE = 16_384  # bytes from which an encoding is guessed: 10 ms at worst

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BOM_BYTES = (b"\xef", b"\xff", b"\xfe", b"\0")
# Formats whose first bytes may hold no NUL.
_BINARY_HEADS = (
    b"%PDF-", b"\x89PNG", b"PK\x03\x04", b"GIF87a", b"GIF89a", b"\xff\xd8\xff", b"\x7fELF", b"BZh91AY",
    b"\xfd7zXZ", b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b", b"Rar!\x1a", b"7z\xbc\xaf", b"wOFF", b"wOF2", b"OTTO", b"\xca\xfe\xba\xbe", b"\x00asm",
    b"SQLite format 3", b"RIFF", b"OggS",
    b"ID3\x03", b"ID3\x04", b"\xd0\xcf\x11\xe0",
)  # fmt: skip
_TEXT_BYTES = bytes([7, 8, 9, 10, 11, 12, 13, 27, *range(32, 127), *range(128, 256)])
_MAX_CONTROL_SHARE = 0.05
_MAX_BROKEN, _MAX_BROKEN_SHARE = 8, 0.1  # what a text that was cut, or has a few letters of Latin-1, may have
_DECLARED = re.compile(
    rb"(?:coding[:=]|charset=|<\?xml[^>]{0,200}?encoding=)[ \t]*[\"']?([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE
)
# What is ruled out by now, and codecs of Python's that no text is written in.
_NOT_DECLARED = ("utf", "ascii", "us-ascii", "idna", "punycode", "unicode", "raw", "undefined", "mbcs", "oem")
# The letters beyond ASCII of English, French, German, Spanish, Portuguese, Dutch and the Nordic languages,
# and Windows' typographic marks. The detector takes short texts in these for Baltic or Czech ones.
_WESTERN = frozenset("éèêàçâîôûùëïüöäßñóíáúåæøãõÉÈÀÇÖÄÜÅÆØÑÓÍÁÚ¿¡ªº‘’“”–—…•«»°§©®™£€·×±µ¼½¾²³\xa0")
_WESTERN_SHARE = 0.9
# Signs within words are letters of another encoding.
_NOT_WESTERN = re.compile(r"[²³±¼½¾·×¶][^\W\d_]|[^\W\d_][¿¡¶±]")
# Of Turkish and Icelandic as cp1252 reads them: few other languages have the first, or several times the
# second.
_RUNIC, _MANY = frozenset("þðÞÐ"), 3
_TURKISH = _RUNIC | frozenset("ýÝçöüÇÖÜâîû‘’“”–—…«»\xa0")
_ICELANDIC = _RUNIC | frozenset("ýÝáéíóúæöÁÉÍÓÚÆÖ„“‘’–—…«»\xa0")
_LETTERS_SHARE = 0.95
# The letters of Hebrew. Cyrillic and Greek have some more, and set within words what are Hebrew's final
# letters.
_HEBREW = frozenset(bytes(range(0xE0, 0xFB)).decode("cp1252"))
_FINAL_WITHIN = re.compile("[êíïóõ][à-ú]")
_HEBREW_SHARE, _FEW = 0.985, 8
# Words of cp1251, the commonest encoding of Cyrillic, which the detector takes for that of old Macs, or of a
# short text for a Latin one: no capital within, and nearly half of the letters vowels. Other encodings of
# Cyrillic, Greek (whose vowels with an accent are capitals there) and Arabic have capitals within. A letter
# alone may be the Italian `è`.
_LETTERS = re.compile(r"[^\W\d_]+")
_CYRILLIC = re.compile("[\u0400-\u045f\u0490\u0491][\u0430-\u045f\u0491]+")
_CYRILLIC_VOWELS = frozenset("аеёиоуыэюяіїє")
_CYRILLIC_SHARE, _VOWEL_SHARE, _FEW_LETTERS = 0.85, 0.3, 5
_FINAL_SHARE = 0.05  # of the letters; a fifth of those of Cyrillic look like Hebrew's final ones
_LATIN = ["cp1250", "iso8859_2", "cp1252", "cp1254", "cp1257"]
_MIXED_SHARE = 0.1  # of bytes beyond ASCII at most, where lines are told apart
_ASCII = bytes(range(128))
_KATAKANA_HALF = re.compile("[\uff61-\uff9f]")


def decode(data: bytes, declared: str | None = None) -> str | None:
    """The text of some bytes, without its byte order mark; None for binary data.

    UTF-8 first; then what a byte order mark, the caller (`declared`) or the text itself says; then a guess
    from a sample. Bytes that fit no reading become U+FFFD, never an error.
    """
    head = data[:SNIFF_BYTES]
    if data[:1] in _BOM_BYTES and (text := _by_mark(data)) is not None:
        return text
    if b"\0" in head:
        wide = _wide_encoding(head)
        return data.decode(wide, "replace") if wide else None
    if _looks_binary(head):
        return None
    try:
        return _jis(data) if b"\x1b$" in head and data.isascii() else data.decode("utf-8")
    except UnicodeDecodeError as error:
        return _otherwise(data, declared, error.start)


def _by_mark(data: bytes) -> str | None:
    """A text that begins with a byte order mark; None where it has none."""
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    return None


def _otherwise(data: bytes, declared: str | None, first_bad: int) -> str:
    """A text that is not UTF-8, or not whole: as it was declared, else as it is likeliest."""
    text = _as_declared(data, declared)
    if text is not None:
        return text
    if _mostly_utf8(data):
        return data.decode("utf-8", "replace")
    text = _line_by_line(data)
    return data.decode(_guess(data, first_bad), "replace") if text is None else text


def _as_declared(data: bytes, declared: str | None) -> str | None:
    """The text in the encoding that the caller or the text itself names; None where neither does."""
    declaration = _DECLARED.search(data[:1024])
    for encoding in (declared, declaration[1].decode("ascii") if declaration else None):
        if encoding and not encoding.lower().startswith(_NOT_DECLARED):
            try:
                return data.decode(encoding)
            except (ValueError, LookupError):
                continue  # the text is not what it says it is
    return None


def _looks_binary(head: bytes) -> bool:
    if head.startswith(_BINARY_HEADS):
        return True
    head = head[:1024]
    return len(head.translate(None, _TEXT_BYTES)) > len(head) * _MAX_CONTROL_SHARE


def is_misread(text: str) -> bool:
    """Whether what was read as UTF-8 are the bytes of something else: a document's, a picture's, those of
    another encoding.
    """
    head = text[:SNIFF_BYTES]
    broken = head.count("\ufffd")
    if broken > _MAX_BROKEN and broken > len(head) * _MAX_BROKEN_SHARE:
        return True
    return _looks_binary(head.encode("utf-8", "replace"))


def _jis(data: bytes) -> str:
    try:
        return data.decode("iso2022_jp")
    except UnicodeDecodeError:
        return data.decode("ascii")


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a mark, told by where the NULs are: text in them is mostly ASCII, blanks at
    least.
    """
    head = head[: len(head) // 4 * 4]
    if len(head) < 4:
        return None
    name = _by_nuls([head[i::4].count(0) for i in range(4)], len(head) // 4)
    text = head.decode(name, "replace") if name else ""
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\x1b"))
    return name if odd <= len(text) * _MAX_CONTROL_SHARE else None


def _by_nuls(nuls: Sequence[int], quarter: int) -> str | None:
    """The encoding that has so many NULs in each of four places, `quarter` at most."""
    if nuls[0] == 0 and nuls[2] == nuls[3] == quarter:
        return "utf-32-le"
    if nuls[3] == 0 and nuls[0] == nuls[1] == quarter:
        return "utf-32-be"
    if nuls[0] + nuls[2] == 0 and nuls[1] + nuls[3] > quarter * 0.4:
        return "utf-16-le"
    if nuls[1] + nuls[3] == 0 and nuls[0] + nuls[2] > quarter * 0.4:
        return "utf-16-be"
    return None


def _mostly_utf8(data: bytes) -> bool:
    """UTF-8 with a few bad bytes: four good characters beyond ASCII for each bad one."""
    sample = data[: 64 * _SAMPLE]
    text = sample.decode("utf-8", "replace")
    misfits = text.count("\ufffd")
    fits = len(sample) - len(text) - misfits  # at least: each takes two bytes or more
    return fits >= 4 * misfits


def _line_by_line(data: bytes) -> str | None:
    """A text of some lines of UTF-8 among others, as one that several programs write to; None where no line
    is.

    Only where nearly all of it is ASCII: in other scripts lines are of two encodings by chance.
    """
    sample = data[: 64 * _SAMPLE]
    if len(sample.translate(None, _ASCII)) > len(sample) * _MIXED_SHARE:
        return None
    lines: list[str | None] = []
    foreign = []
    has_utf8 = False
    for line in data.split(b"\n"):
        text = line.decode("utf-8", "replace")
        # Each byte that fits nothing is a character, so what is shorter than its bytes has characters of
        # several.
        fits, misfits = len(line) - len(text), text.count("\ufffd")
        has_utf8 |= fits > 0 and fits >= misfits
        lines.append(text if fits >= misfits else None)
        if fits < misfits:
            foreign.append(line)
    if not has_utf8:
        return None
    encoding = _guess(b"\n".join(foreign), 0)
    rest = iter(foreign)
    return "\n".join(next(rest).decode(encoding, "replace") if text is None else text for text in lines)


def _guess(data: bytes, first_bad: int) -> str:
    """The likeliest encoding of text that is not UTF-8, from a sample around its first such byte."""
    start = max(0, first_bad - _SAMPLE // 4)
    start = data.rfind(b"\n", 0, start) + 1  # not within a character
    sample = data[max(start, first_bad - _SAMPLE) :][:_SAMPLE]
    text = sample.decode("cp1252", "replace")
    beyond = [char for char in text if char > "\x7f"]
    if not _may_be_hebrew(text, beyond) and _is_cyrillic(sample.decode("cp1251", "replace")):
        return "cp1251"
    latin = len(beyond) < len(sample) * 0.3  # mostly ASCII: a Latin script
    return _by_letters(text, beyond, latin) or _by_frequency(sample, beyond, latin)


def _may_be_hebrew(text: str, beyond: Sequence[str]) -> bool:
    """Whether a text that was read as cp1252 has letters of Hebrew, hardly a final one within a word."""
    hebrew = sum(char in _HEBREW for char in beyond)
    final = len(_FINAL_WITHIN.findall(text))
    return hebrew >= len(beyond) * _CYRILLIC_SHARE and final <= hebrew * _FINAL_SHARE


def _is_cyrillic(text: str) -> bool:
    """Whether a text that was read as cp1251 has words of that beyond ASCII, and hardly anything else."""
    beyond = sum(char > "\x7f" for char in text)
    words = [word for word in _LETTERS.findall(text) if _CYRILLIC.fullmatch(word)]
    letters = sum(map(len, words))
    vowels = sum(char in _CYRILLIC_VOWELS for word in words for char in word.lower())
    return letters >= max(_FEW_LETTERS, beyond * _CYRILLIC_SHARE) and vowels >= letters * _VOWEL_SHARE


def _are_mostly(letters: Container[str], text: Sequence[str]) -> bool:
    return sum(char in letters for char in text) >= len(text) * _LETTERS_SHARE


def _by_letters(text: str, beyond: Sequence[str], latin: bool) -> str | None:
    """The encoding of a text whose letters beyond ASCII, read as cp1252, are those of a language we know."""
    western = sum(char in _WESTERN for char in beyond) - len(_NOT_WESTERN.findall(text))
    if western >= len(beyond) * _WESTERN_SHARE:
        return "cp1252"
    if not _RUNIC.isdisjoint(beyond) or beyond.count("ý") >= _MANY:
        for letters, encoding in ((_TURKISH, "cp1254"), (_ICELANDIC, "cp1252")):
            if _are_mostly(letters, beyond):
                return encoding
    hebrew = sum(char in _HEBREW for char in beyond)
    if not latin and hebrew >= max(_FEW, len(beyond) * _HEBREW_SHARE) and not _FINAL_WITHIN.search(text):
        return "cp1255"
    return None


def _by_frequency(sample: bytes, beyond: Sequence[str], latin: bool) -> str:
    from charset_normalizer import from_bytes  # 30 ms, and nearly every file is UTF-8

    best = from_bytes(sample, cp_isolation=_LATIN if latin else None).best()
    if best is None:
        return "cp1252"
    if not latin and len(_KATAKANA_HALF.findall(str(best))) * 2 > len(beyond):
        return "koi8_r"  # whose letters are the bytes of half-width katakana, which nobody writes
    return best.encoding
