"""Functions over the definitions of one file: find the definition around a line or by name, and make
excerpts.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from ctx.code.symbols import Definition

VALUES = frozenset(("variable", "constant", "field", "property"))  # kinds of definitions that have no members
CONTEXT_LINES = 3  # lines to show before and after each chosen line of an excerpt
MAX_FOCUS = 6  # maximum chosen lines per excerpt
MAX_NAMED = 4  # maximum definitions to name for a hidden part
WHOLE_LINES = 40  # lines; a text up to this long is shown whole

# Weights for choosing the lines of an excerpt. Words that no chosen line has yet count fully (1.0).
# for words that a chosen line already has, and for words in the lines next to a line
_REPEATED, _NEAR = 0.3, 0.5
_LEAST = 0.3  # a line is chosen only if its value is at least this share of the best line's value

COMMENT_LINES = 3  # lines to show of a long comment or docstring
HIDDEN_LINES = 5  # minimum lines to hide of it
# At least 8 (the sum of the two) comment lines above a definition, or else the docstring below its first line
# that ends with a colon.
_LONG_COMMENT = re.compile(
    r"(?P<above>(?:[ \t]*(?://|#|/?\*)[^\n]*\n){8,})"
    r"|(?:[^\n]*(?<!:)\n)*?[^\n]*:\n(?P<docstring>[ \t]*[rRuU]?(?P<quotes>\"{3}|'{3})(?s:.*?)(?P=quotes))"
)

Weight = Callable[[str], float]
"""Takes a line and returns the share of a question's words that it has, in [0, 1]."""


class Asked(Protocol):
    """A question. `terms_in` returns the terms that a text has, as a bit set; `shares` maps a bit set to its
    share of the question's weight, in [0, 1].
    """

    @property
    def shares(self) -> Mapping[int, float]: ...

    def terms_in(self, text: str) -> int: ...


class Part(NamedTuple):
    """Lines `first..last` of an excerpt. `elided` is None if the lines are shown, else a summary of the
    hidden lines.
    """

    first: int
    last: int
    elided: str | None = None


def enclosing(definitions: Iterable[Definition], line: int) -> Definition | None:
    """The innermost definition around a line. It is a variable or field only if no function or class is
    around the line.
    """
    around = [each for each in definitions if each.start_line <= line <= each.end_line]
    blocks = [each for each in around if each.kind not in VALUES]
    return max(blocks or around, key=lambda each: (each.start_line, -each.end_line), default=None)


def candidates(definitions: Iterable[Definition], name: str) -> list[Definition]:
    """The definitions that a name may mean: those with this qualified name, else those whose qualified name
    ends with the name. If there are none, the search is repeated in any letter case, and then without the
    first part of the name, which may be a module or a package (`server` in `server.Server.shutdown`).
    """
    wanted = re.sub(r"\((\*?\w+)\)", r"\1", name.strip().removesuffix("()")).lstrip("*&")  # `(*T).M` of Go
    wanted = re.sub(r"<[^<>]*>(?=::|\.)", "", wanted)
    wanted = re.sub(r"::|#|->|\.prototype\.", ".", wanted).strip(". ")
    known = list(definitions)
    for folded in (False, True):
        end = wanted.casefold() if folded else wanted
        names = [each.qualified.casefold() if folded else each.qualified for each in known]
        pairs = list(zip(known, names, strict=True))
        found = [each for each, whole in pairs if whole == end]
        found = found or [each for each, whole in pairs if whole.endswith(f".{end}")]
        if found:
            return found
    _, dot, rest = wanted.partition(".")
    return candidates(known, rest) if dot and "." in rest else []


def members(definitions: Iterable[Definition], inside: Definition | None = None) -> list[Definition]:
    """The definitions inside the definition `inside`, including `inside` itself, or all definitions of the
    file. Definitions local to a function are left out.
    """
    shown: list[Definition] = []
    functions: list[Definition] = []  # the functions around the current definition
    for each in definitions:
        if inside and not (each is inside or _within(each, inside)):
            continue
        functions = [around for around in functions if _within(each, around)]
        if not functions or functions == [inside]:
            shown.append(each)
        if each.kind in ("function", "method", "constructor"):
            functions.append(each)
    return shown


def _within(inner: Definition, outer: Definition) -> bool:
    return outer.start_line <= inner.start_line and inner.end_line <= outer.end_line and inner != outer


def blocks(lines: Sequence[str], first: int, last: int) -> list[tuple[int, int, str]]:
    """(first line, last line, text of the first line) of the blocks of a long function: the parts between
    blank lines.
    """
    found: list[tuple[int, int, str]] = []
    start = None
    for number in range(first + 1, last + 2):
        blank = number > last or not lines[number - 1].strip()
        if blank and start is not None:
            found.append((start, number - 1, lines[start - 1].strip()[:100]))
            start = None
        elif not blank and start is None:
            start = number
    return found


def block_around(lines: Sequence[str], first: int, last: int, number: int) -> tuple[int, int] | None:
    """(first line, last line) of the largest block, by indentation, of at most `WHOLE_LINES` lines around a
    line of the definition `first..last`; None if there is none.
    """
    block, depth = None, _indentation(lines[number - 1])
    while True:
        start = next((n for n in range(number, first, -1) if _indentation(lines[n - 1]) < depth), None)
        if start is None:
            return block
        depth = _indentation(lines[start - 1])
        end = next((n for n in range(start + 1, last + 1) if _indentation(lines[n - 1]) <= depth), last + 1)
        # The line at `end` belongs to the block only if it is a closing bracket.
        if end > last or any(map(str.isalnum, lines[end - 1])):
            end -= 1
        while not lines[end - 1].strip():
            end -= 1
        if end - start >= WHOLE_LINES:
            return block
        block = (start, end)


def _indentation(line: str) -> int:
    """The width of the white space before the text; a blank line counts as deeply indented."""
    return len(line) - len(line.lstrip()) if line.strip() else 1 << 16


def best_lines(
    lines: Sequence[str], first: int, last: int, weight: Weight, count: int = 3
) -> list[tuple[int, str]]:
    """The `count` lines that match a question best, as (number, text) in line order; empty if no line has a
    word of the question.
    """
    weighed = [(weight(lines[number - 1]), -number) for number in range(first, min(last, len(lines)) + 1)]
    best = sorted((entry for entry in weighed if entry[0] > 0), reverse=True)[:count]
    threshold = best[0][0] * 0.5 if best else 0.0
    return [
        (-minus, lines[-minus - 1])
        for value, minus in sorted(best, key=lambda e: -e[1])
        if value >= threshold
    ]


def long_comment(lines: Sequence[str]) -> tuple[int, int] | None:
    """The range [start, end) of the lines to hide in a definition: its comment or docstring without the first
    `COMMENT_LINES` lines; None if there are fewer than `HIDDEN_LINES` of them.
    """
    match = _LONG_COMMENT.match("\n".join(lines))
    if match is None:
        return None
    group = "above" if match["above"] else "docstring"
    start = match.string.count("\n", 0, match.start(group)) + COMMENT_LINES
    end = start - COMMENT_LINES + match[group].count("\n") + (group == "docstring")
    return (start, end) if end - start >= HIDDEN_LINES else None


def excerpt(
    lines: Sequence[str], first: int, last: int, asked: Asked, definitions: Sequence[Definition]
) -> list[Part]:
    """Divides lines `first..last` into parts: the lines around the words of a question are shown, and the
    others are hidden and described.
    """
    if last - first < WHOLE_LINES:
        return [Part(first, last)]
    # Also show a definition's signature, which may be below a long comment.
    own = {each.name_line for each in definitions if (each.start_line, each.end_line) == (first, last)}
    focus = _focus(lines, first, last, asked)
    keep = {first, *own, last} if own or not focus else set()
    for number in focus:
        keep |= set(range(max(first, number - CONTEXT_LINES), min(last, number + CONTEXT_LINES) + 1))
    parts: list[Part] = []
    for number in sorted(keep):
        gap = parts[-1].last + 1 if parts else first
        # Show these lines too, because a note about them would be as long.
        if parts and 0 < number - gap <= 2:
            gap = number
            parts[-1] = parts[-1]._replace(last=number - 1)
        if number > gap:
            parts.append(Part(gap, number - 1, _description(lines, gap, number - 1, definitions)))
        if parts and parts[-1].elided is None:
            parts[-1] = parts[-1]._replace(last=number)
        else:
            parts.append(Part(number, number))
    if parts[-1].last < last:
        after = parts[-1].last + 1
        parts.append(Part(after, last, _description(lines, after, last, definitions)))
    return parts


def _focus(lines: Sequence[str], first: int, last: int, asked: Asked) -> list[int]:
    """The numbers of the lines around which to make an excerpt: those with the most words of a question, and
    preferably words that no chosen line has yet.
    """
    terms = {number: asked.terms_in(lines[number - 1]) for number in range(first, last + 1)}
    left = {number for number, found in terms.items() if found}
    near = {
        number: sum(asked.shares[terms.get(number + step, 0)] for step in (-2, -1, 1, 2)) for number in left
    }
    focus: list[int] = []
    shown, highest = 0, 0.0
    while left and len(focus) < MAX_FOCUS:
        values = {
            number: asked.shares[terms[number] & ~shown]
            + _REPEATED * asked.shares[terms[number] & shown]
            + _NEAR * near[number]
            for number in left
        }
        best = max(left, key=lambda number: (values[number], -number))
        highest = highest or values[best]
        if values[best] < _LEAST * highest:
            break
        focus.append(best)
        shown |= terms[best]
        left -= {best - 1, best, best + 1}
    return focus


def _description(lines: Sequence[str], first: int, last: int, definitions: Sequence[Definition]) -> str:
    """A summary of a hidden part: the names of its definitions or headings, else its first
    comment, else "".
    """
    names = [
        each.name if each.kind == "heading" else each.qualified
        for each in definitions
        if first <= each.name_line <= last and each.kind not in VALUES
    ]
    if names:
        more = f", {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
        return ", ".join(names[:MAX_NAMED]) + more
    comments = (line.strip() for line in lines[first - 1 : last])
    return next((text[:80] for text in comments if text.startswith(("#", "//", "/*", "--"))), "")
