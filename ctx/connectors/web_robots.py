"""What a site asks of robots: robots.txt after RFC 9309, and what a page says of itself.

The standard library's parser knows neither wildcards nor the longest match, which sites count on; patterns
here are matched from left to right, so that no file makes it slow.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple
from urllib.parse import urlsplit

MAX_ROBOTS_BYTES = 512_000  # RFC 9309, 2.5
MAX_RULES = 5000
MAX_DELAY_S = 30.0  # a site that asks for more is read this slowly
_ESCAPE = re.compile(r"%[0-9a-f]{2}", re.IGNORECASE)


class Rule(NamedTuple):
    """A path pattern: literal pieces that `*` stood between; `whole`: it ends where the address ends
    (`$`)."""

    allowed: bool
    pieces: tuple[str, ...]
    whole: bool
    weight: int  # octets of the pattern: the longest match decides

    def matches(self, path: str) -> bool:
        first, *inner = self.pieces
        if not path.startswith(first):
            return False
        position = len(first)
        if self.whole and inner:
            # The last piece must be the end; those between are found before it.
            *inner, last = inner
            if not path.endswith(last) or len(path) - len(last) < position:
                return False
            path = path[: len(path) - len(last)]
        for piece in inner:
            start = path.find(piece, position)
            if start < 0:
                return False
            position = start + len(piece)
        return not self.whole or len(self.pieces) > 1 or position == len(path)


class Robots(NamedTuple):
    """The rules that hold for us, the most specific first, and the pause that is asked for between
    requests."""

    rules: tuple[Rule, ...] = ()
    delay_s: float = 0.0

    def allows(self, address: str) -> bool:
        """Whether a page may be asked for."""
        parts = urlsplit(address)
        path = _upper(parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        return next((rule.allowed for rule in self.rules if rule.matches(path)), True)


ALL_ALLOWED = Robots()


def _lines_for(agent: str, text: str) -> list[tuple[str, str]]:
    ours: list[tuple[str, str]] = []
    everybodys: list[tuple[str, str]] = []
    named = False
    for agents, lines in _groups(text):
        if agent in agents:
            named = True
            ours += lines
        elif "*" in agents:
            everybodys += lines
    return ours if named else everybodys


def read_robots(data: bytes, agent: str) -> Robots:
    """The rules of a robots.txt for a robot of this name, else those for all (`*`). Never fails."""
    lines = _lines_for(agent, data[:MAX_ROBOTS_BYTES].decode("utf-8", "replace"))
    rules = [rule for key, value in lines[:MAX_RULES] if (rule := _rule(key, value)) is not None]
    # The longest first; of two equally long ones the one that allows.
    rules.sort(key=lambda rule: (-rule.weight, not rule.allowed))
    return Robots(
        tuple(rules), max((_delay_s(value) for key, value in lines if key == "crawl-delay"), default=0.0)
    )


def _groups(text: str) -> Iterable[tuple[set[str], list[tuple[str, str]]]]:
    """(names of robots, lines for them), as they stand."""
    agents: set[str] = set()
    lines: list[tuple[str, str]] = []
    for line in text.lstrip("\ufeff").splitlines():
        key, colon, value = line.partition("#")[0].partition(":")
        key, value = key.strip().lower(), value.strip()
        if not colon:
            continue
        if key == "user-agent":
            if lines:
                yield agents, lines
                agents, lines = set(), []
            agents.add(value.lower().split("/")[0])
        elif key in ("allow", "disallow", "crawl-delay") and agents:
            lines.append((key, value))
    yield agents, lines


def _rule(key: str, value: str) -> Rule | None:
    if key == "crawl-delay" or not value.startswith(("/", "*")):
        return None  # an empty `Disallow:` forbids nothing
    whole = value.endswith("$")
    pattern = _upper(value[:-1] if whole else value)
    return Rule(key == "allow", tuple(pattern.split("*")), whole, len(value.encode()))


def _upper(path: str) -> str:
    return _ESCAPE.sub(lambda match: match[0].upper(), path)


def _delay_s(value: str) -> float:
    try:
        delay_s = float(value)
    except ValueError:
        return 0.0
    return min(delay_s, MAX_DELAY_S) if delay_s > 0 else 0.0  # not of NaN


def forbids(directives: str, wish: str) -> bool:
    """Whether a `robots` meta tag or `X-Robots-Tag` holds `noindex` or `nofollow` (`wish`)."""
    words = {word.strip() for word in directives.lower().replace(":", ",").split(",")}
    return wish in words or "none" in words
