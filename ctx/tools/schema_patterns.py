"""The regular expressions of a tool's schema, in linear time.

JSON Schema's `pattern` is an unanchored search of ECMA-262. Whoever calls a tool chooses the text, and
whoever wrote the tool the expression, so the engine must not backtrack: RE2 (10 ms to import, and only a
schema with a pattern does).
"""

import re
from collections.abc import Iterator

from ctx.errors import ConfigError
from ctx.text import one_line, sound

MAX_PATTERN_CHARS = 2000

_TOKEN = re.compile(
    r"\\u\{[0-9A-Fa-f]+\}|\\u[0-9A-Fa-f]{4}|\\c[A-Za-z]|\\k<|\(\?<[=!]|\(\?[=!]|\\.|\[\^?\]?|.", re.S
)
_LOOKS = {"(?=": "look-ahead", "(?!": "look-ahead", "(?<=": "look-behind", "(?<!": "look-behind"}
_SPACE = r"\t-\r \x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}\x{feff}"
_OUTSIDE = {
    ".": r"[^\n\r\x{2028}\x{2029}]",
    r"\s": f"[{_SPACE}]",
    r"\S": f"[^{_SPACE}]",
    r"\Z": r"\z",  # as Python spells the end of the text
    "[]": r"[^\x{0}-\x{10ffff}]",
    "[^]": r"[\x{0}-\x{10ffff}]",
}
_NO_SPACE = (
    r"\x00-\x08\x0e-\x1f!-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-"
    r"\x{205e}"
    r"\x{2060}-\x{2fff}\x{3001}-\x{fefe}\x{ff00}-\x{10ffff}"
)
_INSIDE = {
    r"\s": _SPACE,
    r"\S": _NO_SPACE,
    r"\b": r"\x08",
    "[": r"\[",
    "[^": r"\[^",
    "[]": r"\[]",
    "[^]": r"\[^]",
}
_KEPT = frozenset("\\" + letter for letter in "dDwWbBnrtfvAzxpP")


class SearchPattern:
    """One expression, ready to search. Raises `ConfigError` where RE2 cannot be given it."""

    def __init__(self, pattern: str) -> None:
        import re2

        if len(pattern) > MAX_PATTERN_CHARS:
            raise ConfigError(
                f"a pattern has {len(pattern):,} characters; at most {MAX_PATTERN_CHARS:,} are read"
            )
        options = re2.Options()
        options.log_errors = False
        options.never_capture = True
        try:
            self._engine = re2.compile(sound("".join(_translated(pattern))), options=options)
        except re2.error as error:
            reason = error.args[0] if error.args else "it cannot be read"
            reason = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise ConfigError(
                f"the pattern '{one_line(pattern, 80)}' is not one that can be searched in linear time: "
                f"{one_line(reason)}; write it in RE2's syntax"
            ) from error
        self.size: int = self._engine.programsize
        """Instructions: `matches` takes at most this times the characters of the text in steps."""

    def matches(self, text: str) -> bool:
        """Whether some part of the text fits."""
        return self._engine.search(sound(text)) is not None


def _translated(pattern: str) -> Iterator[str]:
    """The pieces of an expression of ECMA-262 in RE2's words.
    Raises `ConfigError` for what no linear engine can do.
    """
    within = False  # a character class
    for atom in _TOKEN.findall(pattern):
        if atom in _LOOKS and not within:
            raise ConfigError(
                f"the pattern '{one_line(pattern, 80)}' uses {_LOOKS[atom]} ({atom}...), which cannot be "
                "searched in linear time; write it without, or check it in the tool"
            )
        if atom.startswith("\\"):
            yield _escape(atom, within, pattern)
        elif within:
            within = (atom != "]" and not atom.startswith("[")) or atom in ("[", "[^")
            yield _INSIDE.get(atom, atom)
        else:
            within = atom in ("[", "[^")
            yield _OUTSIDE.get(atom, atom)


def _escape(atom: str, within: bool, pattern: str) -> str:
    if atom == "\\":
        raise ConfigError(f"the pattern '{one_line(pattern, 80)}' ends in a lone backslash")
    if not within and (atom == "\\k<" or atom[1] in "123456789"):
        raise ConfigError(
            f"the pattern '{one_line(pattern, 80)}' refers back to a group ({atom}), which cannot be "
            "searched in linear time; write it without, or check it in the tool"
        )
    if atom.startswith("\\u") and len(atom) > 2:
        return f"\\x{{{atom[2:].strip('{}')}}}"
    if atom.startswith("\\c") and len(atom) == 3:
        return f"\\x{ord(atom[2]) % 32:02x}"
    table = _INSIDE if within else _OUTSIDE
    if atom in table:
        return table[atom]
    if atom == r"\0":
        return r"\x00"
    if atom in _KEPT or not atom[1].isalnum():
        return atom if atom[1].isascii() else atom[1]
    raise ConfigError(
        f"the pattern '{one_line(pattern, 80)}': {atom} means nothing in JSON Schema; write the character "
        "alone"
    )
