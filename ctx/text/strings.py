"""Small functions on text: valid Unicode, one printable line, the nearest name, `HOST:PORT`."""

import difflib
import unicodedata
from collections.abc import Iterable

_RUN = ("javascript", "vbscript", "data")
_LINE_ENDS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"  # and the tab, which moves what follows it


def sound(text: str) -> str:
    """The text with its lone surrogates, which no UTF-8 can hold, replaced by U+FFFD; paired ones become the
    character they mean.
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def nfc(text: str) -> str:
    """The text in Unicode's composed form (NFC). File names are compared in this form, because macOS may
    store the accents of `Übersicht.md` as separate characters.
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", text)


def spellings(name: str) -> list[str]:
    """The name as given, in NFC and in NFD, without duplicates."""
    if name.isascii():
        return [name]
    return list(dict.fromkeys((name, nfc(name), unicodedata.normalize("NFD", name))))


def cut(text: str, limit: int, mark: str = "…") -> str:
    """The text, cut to `limit` characters including the `mark`."""
    return text if len(text) <= limit else text[: limit - len(mark)] + mark


def lowered(text: str) -> str:
    """The text in lower case with the same length: "İ", which would become two characters, is kept."""
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char if len(char.lower()) > 1 else char.lower() for char in text)


def counted(count: int, noun: str) -> str:
    """`1 document`, `2 documents`, `2 memories`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def one_line(text: str, limit: int = 200) -> str:
    """The text as one printable line of at most `limit` characters: what is not printable is written as
    Python would escape it.

    Line ends, control characters, bidirectional marks and lone surrogates can then forge neither a line of a
    log nor what a terminal shows. Spaces of other widths become plain ones.
    """
    text = cut(text, limit)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _harmless(char) for char in text)


def _harmless(char: str) -> str:
    if char.isspace() and char not in _LINE_ENDS:
        return " "
    return char.encode("unicode_escape").decode("ascii")


def host_and_port(address: str) -> tuple[str, int] | None:
    """Host and port of `HOST:PORT`, without the brackets of an IPv6 address; None if it is not an address."""
    host, _, port = address.rpartition(":")
    numeric = port.isdecimal() and len(port) <= 5  # int() raises for "\u00b2", and for 5,000 digits
    bare_ipv6 = ":" in host and not host.startswith("[")  # its last group could be read as a port
    if not host or bare_ipv6 or not numeric or int(port) > 65535:
        return None
    return host.strip("[]"), int(port)


def is_address(text: str) -> bool:
    """Whether the text is an address that can be opened safely. `javascript://` is not: it runs code."""
    scheme, mark, _ = text.partition("://")
    letters = scheme.replace("+", "").replace("-", "").replace(".", "")
    return bool(mark) and letters.isalnum() and scheme.lower() not in _RUN


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate closest to `name`; None if none is close."""
    matches = difflib.get_close_matches(name, list(candidates), 1, cutoff)
    return matches[0] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """The mend for an unknown name: `did you mean 'x'?`, or the names there are."""
    choices = sorted(candidates)
    match = nearest(name, choices)
    return f"did you mean '{match}'?" if match else f"known: {', '.join(choices)}"
