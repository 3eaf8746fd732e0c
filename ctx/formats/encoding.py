"""Decode bytes in any encoding to text, or None for binary data."""

import codecs
import re

SNIFF_BYTES = 8192  # bytes to look at to distinguish text from binary data
_SAMPLE = 16_384  # bytes to guess an encoding from

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, because this mark begins with the mark of UTF-16
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# First bytes of binary formats that may have no NUL at the start.
_BINARY_HEADS = (
    b"%PDF-", b"\x89PNG", b"PK\x03\x04", b"GIF87a", b"GIF89a", b"\xff\xd8\xff", b"\x7fELF", b"BZh91AY",
    b"\xfd7zXZ", b"\x28\xb5\x2f\xfd",
    b"\x1f\x8b", b"Rar!\x1a", b"7z\xbc\xaf", b"wOFF", b"wOF2", b"OTTO", b"\xca\xfe\xba\xbe", b"\x00asm",
    b"SQLite format 3", b"RIFF", b"OggS",
    b"ID3\x03", b"ID3\x04", b"\xd0\xcf\x11\xe0",
)  # fmt: skip
_TEXT_BYTES = bytes([7, 8, 9, 10, 11, 12, 13, 27, *range(32, 127), *range(128, 256)])
_MAX_CONTROL_SHARE = 0.05
# A text has at most this many broken characters, or at most this share of them.
_MAX_BROKEN, _MAX_BROKEN_SHARE = 8, 0.1
_DECLARED = re.compile(
    rb"(?:coding[:=]|charset=|<\?xml[^>]{0,200}?encoding=)[ \t]*[\"']?([A-Za-z0-9_.:-]{2,40})", re.IGNORECASE
)
# Declared encodings to ignore: UTF and ASCII, which were tried before and did not fit, and codecs of Python
# that no text uses.
_NOT_DECLARED = ("utf", "ascii", "us-ascii", "idna", "punycode", "unicode", "raw", "undefined", "mbcs", "oem")
# Encodings whose name is also used for a superset, as in browsers (WHATWG Encoding Standard).
_LARGER = {
    "iso8859-1": "cp1252",
    "iso8859-9": "cp1254",
    "iso8859-11": "cp874",
    "tis-620": "cp874",
    "shift_jis": "cp932",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "big5": "big5hkscs",
}
_C1_CONTROL = re.compile("[\x80-\x84\x86-\x9f]")
# Signs of a wrong encoding in a word: letters of two alphabets, a sign, or a capital after a small letter.
_ODD_IN_WORD = (  # compiled at its first use, because most texts are UTF-8
    "[A-Za-z][\u0370-\u07ff\ufb50-\ufeff]|[\u0370-\u07ff\ufb50-\ufeff][A-Za-z]"
    "|[^\\W\\d_][¡-¬®-¶¸-¿×÷ˆ-˝–—“-„†-…‰‹›€™][^\\W\\d_]"
    "|[a-zß-öø-ÿα-ώа-я][À-ÖØ-ÞŠŒŽΑ-ΩА-Я]"
)
_MAX_ODD_SHARE = 0.25  # maximum number of such signs, as a share of the characters beyond ASCII
_CLEARLY = 1.5  # another encoding must have this many times the confidence of the first guess
# Letters and marks of Western European languages beyond ASCII.
_WESTERN = frozenset(
    "àáâãäåæçèéêëìíîïñòóôõöøùúûüÿßÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜ¿¡ªº‘’“”„–—…•«»°§©®™£€¥·×±µ¼½¾²³\xa0"
)
# One of these signs before a letter shows that the encoding is wrong: in the right one, the byte is a letter.
_SIGN_IN_WORD = re.compile(r"[ªº¡¿²³±¼½¾·×][^\W\d_]")
_FEW_LETTERS = 3  # with at most this many different letters, a language cannot be guessed
_MIXED_SHARE = 0.1  # a text is decoded line by line only if at most this share of its bytes is non-ASCII
_ASCII = bytes(range(128))
_NO_ASCII = dict.fromkeys(range(128))


def decode(data: bytes, declared: str | None = None) -> str | None:
    """Decode bytes to text without a byte order mark; None for binary data.

    The encoding is that of the byte order mark, if there is one. Otherwise it is the first that fits of
    UTF-8, the encoding that the caller gives (`declared`) and the one that the text declares. If none fits,
    chardet guesses it from a sample. Invalid bytes become U+FFFD. Raises no errors.
    """
    head = data[:SNIFF_BYTES]
    for mark, name in _BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    if b"\0" in head:
        wide = _wide_encoding(head)
        return data.decode(wide, "replace") if wide else None
    if _looks_binary(head):
        return None
    if b"\x1b$" in head and data.isascii():
        try:
            return data.decode("iso2022_jp")
        except UnicodeDecodeError:
            return data.decode("ascii")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        first_bad = error.start
    text = _as_declared(data, declared)
    if text is not None:
        return text
    if _mostly_utf8(data):
        return data.decode("utf-8", "replace")
    text = _line_by_line(data)
    return data.decode(_guess(data, first_bad), "replace") if text is None else text


def _as_declared(data: bytes, declared: str | None) -> str | None:
    """Decode with the encoding that the caller or the text itself declares; None if there is none
    that fits.
    """
    declaration = _DECLARED.search(data[:1024])
    for encoding in (declared, declaration[1].decode("ascii") if declaration else None):
        if encoding and not encoding.lower().startswith(_NOT_DECLARED):
            try:
                name = codecs.lookup(encoding).name
                try:
                    return data.decode(_LARGER.get(name, name))
                except ValueError:
                    return data.decode(name)
            except (ValueError, LookupError):
                continue  # the text cannot be decoded like this, so the declaration is wrong
    return None


def is_binary(head: bytes) -> bool:
    """Whether `decode` takes a file for binary data that begins with these `SNIFF_BYTES` bytes. False for
    compressed text.
    """
    marks = (*(mark for mark, _ in _BOMS), b"\x1f\x8b")
    return b"\0" in head and not head.startswith(marks) and _wide_encoding(head) is None


def _looks_binary(head: bytes) -> bool:
    if head.startswith(_BINARY_HEADS):
        return True
    head = head[:1024]
    return len(head.translate(None, _TEXT_BYTES)) > len(head) * _MAX_CONTROL_SHARE


def is_misread(text: str) -> bool:
    """Whether a text is really binary data, or text in another encoding, that was decoded as UTF-8."""
    head = text[:SNIFF_BYTES]
    broken = head.count("\ufffd")
    if broken > _MAX_BROKEN and broken > len(head) * _MAX_BROKEN_SHARE:
        return True
    return _looks_binary(head.encode("utf-8", "replace"))


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 without a byte order mark, recognised by the positions of NUL bytes; None if it is
    neither.
    """
    head = head[: len(head) // 4 * 4]
    if len(head) < 4:
        return None
    nuls, quarter = [head[i::4].count(0) for i in range(4)], len(head) // 4
    name = None
    if nuls[0] == 0 and nuls[2] == nuls[3] == quarter:
        name = "utf-32-le"
    elif nuls[3] == 0 and nuls[0] == nuls[1] == quarter:
        name = "utf-32-be"
    elif nuls[0] + nuls[2] == 0 and nuls[1] + nuls[3] > quarter * 0.4:
        name = "utf-16-le"
    elif nuls[1] + nuls[3] == 0 and nuls[0] + nuls[2] > quarter * 0.4:
        name = "utf-16-be"
    text = head.decode(name, "replace") if name else ""
    odd = sum(1 for char in text if char == "\ufffd" or (char < " " and char not in "\t\n\r\f\x1b"))
    return name if odd <= len(text) * _MAX_CONTROL_SHARE else None


def _mostly_utf8(data: bytes) -> bool:
    """Whether data is UTF-8 with a few invalid bytes: at least four valid non-ASCII characters for each
    invalid byte.
    """
    sample = data[: 64 * _SAMPLE]
    text = sample.decode("utf-8", "replace")
    misfits = text.count("\ufffd")
    # A lower bound of the number of valid non-ASCII characters, which take two bytes or more.
    fits = len(sample) - len(text) - misfits
    return fits >= 4 * misfits


def _line_by_line(data: bytes) -> str | None:
    """Decode a text in which only some lines are UTF-8, such as a log of several programs; None if no line
    is.

    Also None unless nearly all of it is ASCII: in other scripts a line may be valid in two encodings by
    chance.
    """
    sample = data[: 64 * _SAMPLE]
    if len(sample.translate(None, _ASCII)) > len(sample) * _MIXED_SHARE:
        return None
    lines: list[str | None] = []
    foreign = []
    has_utf8 = False
    for line in data.split(b"\n"):
        text = line.decode("utf-8", "replace")
        # An invalid byte becomes one character, so a text shorter than its bytes has multi-byte characters.
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
    """The most likely encoding of text that is not UTF-8, from a sample around the first invalid byte."""
    start = max(0, first_bad - _SAMPLE // 4)
    # Begin at the start of a line, so that the first character is whole.
    start = data.rfind(b"\n", 0, start) + 1
    sample = data[max(start, first_bad - _SAMPLE) :][:_SAMPLE]
    if _is_western(sample.decode("cp1252", "replace")):
        return "cp1252"
    import chardet  # takes 50 ms to import, and nearly every file is UTF-8

    eras = chardet.EncodingEra.MODERN_WEB | chardet.EncodingEra.LEGACY_ISO
    first = chardet.detect(sample, encoding_era=eras, compat_names=False)
    least = (
        first["confidence"] if _is_plausible(sample.decode(first["encoding"] or "cp1252", "replace")) else 0
    )
    # DOS and Mac encodings mislead chardet, so they must be clearly better.
    for entry in chardet.detect_all(sample, compat_names=False):
        name = entry["encoding"]
        if name and entry["confidence"] >= least * _CLEARLY and _is_plausible(sample.decode(name, "replace")):
            return name
    return first["encoding"] or "cp1252"


def _is_plausible(text: str) -> bool:
    """Whether a decoded text has no C1 control characters and few words with signs of a wrong encoding."""
    beyond = len(text.translate(_NO_ASCII))
    return not _C1_CONTROL.search(text) and len(re.findall(_ODD_IN_WORD, text)) <= beyond * _MAX_ODD_SHARE


def _is_western(text: str) -> bool:
    """Whether the non-ASCII characters of a text decoded as cp1252 are all Western European, with few
    different letters.
    """
    beyond = {char for char in text if char > "\x7f"}
    few = sum(map(str.isalpha, beyond)) <= _FEW_LETTERS
    return few and beyond <= _WESTERN and not _SIGN_IN_WORD.search(text)
