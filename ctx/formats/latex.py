"""LaTeX: finds sections by their commands, and tables, formulas and listings, which should not be split. The
body is the unchanged source.
"""

import re
import unicodedata

from ctx.formats.base import Parsed, clipped, first_title
from ctx.models import Heading

MAX_TITLE_CHARS = 1000  # how far to look for a title's closing brace

_LINE = re.compile(
    r"\n[ \t]{0,20}\\(?:(part|chapter|section|subsection|subsubsection|paragraph|subparagraph)\*?[ \t]*"
    r"(?:\[[^\]\n]{0,300}\][ \t]*)?(?=\{)|(title)[ \t]*(?:\[[^\]\n]{0,300}\][ \t]*)?(?=\{)|"
    r"begin\{(verbatim|Verbatim|lstlisting|minted|align|equation|eqnarray|gather|table|tabular|longtable"
    r"|algorithm|figure)(\*?)\})"
)
_LEVELS = {
    name: level
    for level, name in enumerate(
        ("part", "chapter", "section", "subsection", "subsubsection", "paragraph", "subparagraph"), 1
    )
}
_COMMAND = re.compile(r"\\[A-Za-z]{1,40}\*?[ \t]?|\\.|[{}$~]")
_LABEL = re.compile(r"\\(?:label|index|footnote|thanks|cite\w{0,10})\{[^{}]{0,300}\}")
_ACCENT = re.compile(r"\\([\"'`^~=.cHuvr])[ \t]{0,2}\{?([A-Za-z])\}?")
_MARKS = {
    '"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "H": "\u030b", "u": "\u0306", "v": "\u030c", "r": "\u030a",
}  # fmt: skip


def _listing_end(lines: str, begin: re.Match[str]) -> int:
    """The end of a listing; if it is not closed, the end of its first line."""
    ending = f"\\end{{{begin[3]}{begin[4]}}}"
    end = lines.find(ending, begin.end())
    return end + len(ending) if end >= 0 else begin.end()


def parse(text: str) -> Parsed:
    """Parse LaTeX. The document's title is the argument of `\\title`, or else the title of the
    first section.
    """
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    title = None
    match = _LINE.search(lines)
    while match:
        stop = match.end()
        if match[3]:  # ignore sections inside a listing
            stop = _listing_end(lines, match)
            if stop > match.end():
                atoms.append((match.start(), stop - 1))
        else:
            words = _words(_braced(lines, stop))
            if match[2]:
                title = title or words or None
            elif words:
                headings.append(Heading(match.start(), _LEVELS[match[1]], words))
        match = _LINE.search(lines, stop)
    return Parsed(text, tuple(headings), tuple(atoms), title or first_title(headings))


def _braced(lines: str, start: int) -> str:
    """The text between the brace at `start` and its closing brace; "" if that is missing or too far away."""
    depth = 0
    for position in range(start, min(len(lines), start + MAX_TITLE_CHARS)):
        char = lines[position]
        if char == "{" and lines[position - 1] != "\\":
            depth += 1
        elif char == "}" and lines[position - 1] != "\\":
            depth -= 1
            if not depth:
                return lines[start + 1 : position]
    return ""


def _words(source: str) -> str:
    """A title without commands, with accents combined with their letters."""
    source = _ACCENT.sub(lambda match: match[2] + _MARKS[match[1]], _LABEL.sub("", source))
    return clipped(unicodedata.normalize("NFC", _COMMAND.sub(_command_gone, source)))


def _command_gone(match: re.Match[str]) -> str:
    command = match[0]
    if command in ("~", "\\\\", "\\ "):
        return " "
    return command[1] if len(command) > 1 and command[1] in "&%#_{}$" else ""
