"""Small string functions: make Unicode valid, make text printable, find similar names, parse `HOST:PORT`."""

import difflib
import unicodedata
from collections.abc import Iterable, Sequence

_RUN = ("javascript", "vbscript", "data")  # URL schemes that run code or hold content
_LINE_ENDS = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"  # also the tab, which changes the layout of a line


def sound(text: str) -> str:
    """The text with lone surrogates, which UTF-8 cannot encode, replaced by U+FFFD. A pair of surrogates
    becomes the character that it encodes.
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
    """The text in lower case, with the same length. "İ" is not changed, because its lower case has two
    characters.
    """
    low = text.lower()
    if len(low) == len(text):
        return low
    return "".join(char if len(char.lower()) > 1 else char.lower() for char in text)


def counted(count: int, noun: str) -> str:
    """A count with its noun in the right form: `1 document`, `2 documents`, `2 memories`."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") and noun[-2] not in "aeiou" else f"{noun}s"
    return f"{count:,} {noun if count == 1 else plural}"


def first_few(names: Sequence[str], most: int = 3) -> str:
    """The first names in one line: `a.md, b.md, c.md and 12 more`."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def one_line(text: str, limit: int = 200) -> str:
    """The text as one printable line, cut to `limit` characters before unprintable characters are escaped as
    in Python.

    The escapes keep line ends, control characters, bidirectional marks and lone surrogates from forging a
    line of a log or the display of a terminal. Unicode spaces become plain spaces.
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
    """(host, port) of an address `HOST:PORT`, without the brackets of an IPv6 host; None if the text is not
    such an address.
    """
    host, _, port = address.rpartition(":")
    numeric = port.isdecimal() and len(port) <= 5  # int() raises for "\u00b2", and for 5,000 digits
    # In an IPv6 address without brackets, the last group could be read as a port.
    bare_ipv6 = ":" in host and not host.startswith("[")
    if not host or bare_ipv6 or not numeric or int(port) > 65535:
        return None
    return host.strip("[]"), int(port)


def is_address(text: str) -> bool:
    """Whether the text is a URL that is safe to open. `javascript://` is not, because it runs code."""
    scheme, mark, _ = text.partition("://")
    letters = scheme.replace("+", "").replace("-", "").replace(".", "")
    return bool(mark) and letters.isalnum() and scheme.lower() not in _RUN


def nearest(name: str, candidates: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The candidate that is spelled most like `name`; None if no candidate is similar."""
    matches = difflib.get_close_matches(name, list(candidates), 1, cutoff)
    return matches[0] if matches else None


def did_you_mean(name: str, candidates: Iterable[str]) -> str:
    """Advice for an unknown name: `did you mean 'x'?`, or a list of all candidates if none is similar."""
    choices = sorted(candidates)
    match = nearest(name, choices)
    return f"did you mean '{match}'?" if match else f"known: {', '.join(choices)}"
