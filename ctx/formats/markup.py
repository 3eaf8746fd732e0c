"""Text formats whose body is the unchanged source: reStructuredText, AsciiDoc, Org, LaTeX and plain text.

Each reader finds the headings, and the blocks that should not be split. Readers raise no errors: what does
not fit is text.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator

from ctx.formats.base import Parsed, clipped, disjoint, first_title
from ctx.formats.frontmatter import front_title, read_front_matter
from ctx.models import Heading

_Read = Callable[[str, re.Match[str]], tuple[int, Heading | str | None]]


def _scan(
    text: str, pattern: re.Pattern[str], read: _Read, start: int = 0, title: str | None = None
) -> Parsed:
    """Parse a text from match to match. `read(lines, match)` returns the offset to go on at, and a heading or
    the title. An offset after the match is the end of a block that should not be split.
    """
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    atoms: list[tuple[int, int]] = []
    while match := pattern.search(lines, start):
        start, part = read(lines, match)
        if isinstance(part, Heading):
            headings.append(part)
        elif isinstance(part, str):
            title = title or part
        elif start > match.end():
            atoms.append((match.start(), start - 1))
    return Parsed(text, tuple(headings), tuple(atoms), title or first_title(headings))


# -- plain text ----------------------------------------------------------------------------------------------

_CAPITALS_OR_RULE = re.compile(
    r"\n(?:([A-Z0-9][A-Z0-9 ,.:;&/()'\"+_-]{2,70})[ \t]*(?=\n|\Z)|([=~*#^-])\2{2,}[ \t]*(?=\n|\Z))"
)
_LETTERS = re.compile(r"[A-Z]{2}")
_ANSI = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[ -/]?[@-~]|[()][A-Z0-9]|[=>78])")
_STRUCK = re.compile(r"[^\n]\x08")


def without_overstrike(text: str) -> str:
    """The text of a formatted manual page without backspaces: "a\\ba" means a bold a, "_\\ba" an underlined
    a.
    """
    while "\x08" in text:
        shorter = _STRUCK.sub("", text)
        if shorter == text:
            return text.replace("\x08", "")
        text = shorter
    return text


def parse_plain(text: str) -> Parsed:
    """Parse a plain text. Headings are lines in capitals at the margin, as in manual pages and RFCs, and
    underlined lines. The first heading is the title if the text begins with it.
    """
    text = without_overstrike(text)
    if "\x1b" in text:
        text = _ANSI.sub("", text)
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    for match in _CAPITALS_OR_RULE.finditer(lines):
        heading = _plain_heading(lines, match)
        if heading and not (headings and headings[-1].start >= heading.start):
            headings.append(heading)
    begins = headings and not text[: headings[0].start].strip()
    return Parsed(text, tuple(headings), (), first_title(headings) if begins else None)


def _plain_heading(lines: str, match: re.Match[str]) -> Heading | None:
    """The heading that a match is, or that a matching underline is below; None if it is not a heading."""
    start, end = match.span()
    if match[2]:
        return _underlined(lines, start, end - start - 1, 1 if match[2] in "=*#" else 2)
    # The line above must be blank, and the line below blank or indented.
    alone = (start == 0 or lines[start - 1] == "\n") and lines[end + 1 : end + 2] in ("\n", " ", "\t")
    return Heading(start, 1, clipped(match[1].rstrip(" :"))) if alone and _LETTERS.search(match[1]) else None


def _underlined(lines: str, at: int, width: int, level: int) -> Heading | None:
    """The heading above an underline of about the same width; None unless it is a single line below a blank
    line or an overline.
    """
    start = lines.rfind("\n", max(0, at - 200), at)
    if start < 0:
        return None
    words = lines[start + 1 : at].strip()
    if not words or abs(width - (at - start - 1)) > max(3, width // 3) or not any(map(str.isalpha, words)):
        return None
    if start and lines[start - 1] != "\n":
        before = lines.rfind("\n", 0, start)
        overline = lines[before + 1 : start].strip()
        if len(set(overline)) != 1 or overline[0].isalnum():
            return None
        start = before
    return Heading(start, level, clipped(words))


# -- reStructuredText ----------------------------------------------------------------------------------------

_ADORNMENT = re.compile(r"\n([!-/:-@\[-`{-~])\1+[ \t]*(?=\n|\Z)")
_LITERAL = re.compile(
    r"::[ \t]*\n|\n[ \t]*\.\.[ \t]+(?:[\w-]+:)?(?:code|code-block|sourcecode|parsed-literal|math"
    r"|productionlist|csv-table|list-table)::[^\n]*\n"
)
_GRID = re.compile(r"\n[ \t]*\+[-=+]{3,}\+[ \t]*(?:\n[ \t]*[|+][^\n]*)+")
_SIMPLE_TABLE = re.compile(r"\n={2,}(?:[ \t]+={2,})+[ \t]*(?=\n)")
_ROLE = re.compile(r":[A-Za-z][\w.+:-]{0,40}:`([^`]{1,300})`")
_TARGET = re.compile(r"[ \t]*<[^<>]{1,300}>\Z")
_RST_MARKUP = re.compile(
    r"``([^`]+)``|`([^`]+)`_{0,2}|\*\*([^*]+)\*\*|\*([^*]+)\*|\|([^|]+)\|_{0,2}|\b(\w+)__?(?!\w)"
)
# Characters; a paragraph up to this long (about six lines) stays with the block that it introduces.
MAX_ANNOUNCEMENT = 500
_ANCHOR = re.compile(r"\.\. (?:_[^\n]{1,200}:|index::[^\n]{0,200})[ \t]*\Z")


def parse_rst(text: str) -> Parsed:
    """Parse a reStructuredText document. Sections have under- or overlines, and levels in the order of first
    use.
    """
    front = read_front_matter(text)
    lines = "\n" + text  # offsets in `lines` are one more than in `text`
    headings: list[Heading] = []
    styles: list[str] = []  # the style of each level
    consumed = front.end  # text before this offset already belongs to a heading
    for match in _ADORNMENT.finditer(lines, consumed):
        section = _section(lines, match, consumed) if match.start() >= consumed else None
        if section is None:
            continue
        start, style, words = section
        if style not in styles:
            styles.append(style)
        headings.append(Heading(_with_anchors(lines, start, consumed), styles.index(style) + 1, words))
        consumed = match.end()
    title_text = front_title(front) or first_title(headings)
    atoms = disjoint((*_literals(lines), *_tables(lines)))
    return Parsed(text, tuple(headings), tuple(atoms), title_text, front.metadata)


def _section(lines: str, underline: re.Match[str], floor: int) -> tuple[int, str, str] | None:
    """The start of a section, its style (the mark, twice if there is an overline) and its title; None if the
    match is not the underline of a title.
    """
    position, mark = underline.start(), underline[1]
    line_start = lines.rfind("\n", max(floor, position - 1000), position)
    title = lines[line_start + 1 : position] if line_start >= 0 else ""
    if not title.strip():
        return None  # an overline, or a transition
    width = underline.end() - position - 1
    if width < 4 and width < _columns(title.rstrip()):
        return None
    over = lines.rfind("\n", max(floor, line_start - 1000), line_start)
    above = lines[over + 1 : line_start].rstrip() if over >= 0 else ""
    words = plain_rst(title)
    if not words:
        return None
    if len(above) > 1 and above == mark * len(above):
        return lines.rfind("\n", floor, line_start), mark * 2, words
    # Only a title with an overline may be indented, and a line below text ends a paragraph or a table.
    if title[0] in " \t" or (above and not above.startswith("..")):
        return None
    return line_start, mark, words


def _columns(title: str) -> int:
    """The width of a title in columns, as docutils counts: a wide character has two columns."""
    if title.isascii():
        return len(title)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in title)


def _with_anchors(lines: str, start: int, floor: int) -> int:
    """The start of a section, including the link targets and index entries above its title."""
    position = start
    while position > floor:
        above = lines.rfind("\n", max(floor, position - 400), position)
        if above < 0:
            break
        line = lines[above + 1 : position]
        if _ANCHOR.match(line):
            start = above
        elif line.strip():
            break
        position = above
    return start


def _literals(lines: str) -> Iterator[tuple[int, int]]:
    floor = position = 0
    while (rule := _LITERAL.search(lines, position)) is not None:
        position = rule.end()
        directive = lines[rule.start()] == "\n"
        line_start = rule.start()
        if not directive:
            line_start = lines.rfind("\n", max(0, rule.start() - 1000), rule.start())
        line = lines[line_start + 1 : position].lstrip(" \t") if line_start >= 0 else ""
        if not line or (line[:2] == ".." and not directive and not _LITERAL.match(lines, line_start)):
            continue
        end = _indented_end(lines, position, position - line_start - 1 - len(line))
        if end > position:
            yield (line_start if directive else _paragraph_start(lines, line_start, floor)), end - 1
            floor = position = end


def _paragraph_start(lines: str, line_start: int, floor: int) -> int:
    """The start of the paragraph that introduces a block; if the paragraph is long, the start of its last
    line.

    Both offsets point to the newline before a line. The paragraph stays with the block because a chunk must
    not begin inside a sentence.
    """
    start = line_start
    while start > floor:
        above = lines.rfind("\n", max(floor, line_start - MAX_ANNOUNCEMENT), start)
        if above < 0:
            return line_start
        line = lines[above + 1 : start].strip()
        if not line or line == line[0] * len(line):  # a blank line, or a heading's underline
            break
        start = above
    return start


def _tables(lines: str) -> Iterator[tuple[int, int]]:
    for table in _GRID.finditer(lines):
        yield table.start(), table.end() - 1
    position = 0
    while (rule := _SIMPLE_TABLE.search(lines, position)) is not None:
        position = lines.find("\n\n", rule.end())
        position = position if position >= 0 else len(lines)
        yield rule.start(), position - 1


def _indented_end(lines: str, position: int, indent: int) -> int:
    """The end of the lines after `position` that are blank or indented by more than `indent` characters."""
    end = position
    while position < len(lines):
        line_end = lines.find("\n", position)
        line_end = line_end if line_end >= 0 else len(lines)
        line = lines[position:line_end]
        stripped = line.lstrip(" \t")
        if stripped:
            if len(line) - len(stripped) <= indent:
                break
            end = line_end
        position = line_end + 1
    return end


def plain_rst(words: str) -> str:
    """A title without roles and inline markup."""
    words = " ".join(words[:1000].split())
    if any(mark in words for mark in "`*|_\\"):
        words = _ROLE.sub(lambda match: _TARGET.sub("", match[1]), words)
        words = _RST_MARKUP.sub(lambda match: _TARGET.sub("", next(filter(None, match.groups()))), words)
        words = words.replace("\\ ", "").replace("\\", "")
    return clipped(words)


# -- AsciiDoc ------------------------------------------------------------------------------------------------

_ADOC_LINE = re.compile(
    r"\n(?:(={1,6}|#{1,6})[ \t]+(\S[^\n]{0,1000})|(-{4,}|\.{4,}|={4,}|\+{4,}|/{4,}|[|,:!]===)[ \t]*(?=\n|\Z)"
    r"|([\w\"'`*_(<&{$][^\n]{1,200})\n(={3,}|-{3,}|~{3,}|\^{3,}|\+{4,})[ \t]*(?=\n|\Z))"
)
_UNDERLINES = "=-~^+"  # underline characters of levels 1 to 5
_UNDERLINE_SLACK = 2  # characters by which a title may be longer or shorter than its underline
_ADOC_ANCHOR = re.compile(r"\[\[[^\]\n]{1,200}\]\]|\[#[^\]\n]{1,200}\]")
_ADOC_LINK = re.compile(
    r"\b(?:link|xref|https?):[^\s\[]{1,500}\[([^\]\n]{1,500})\]|<<[^,>\n]{1,200},([^>\n]{1,200})>>"
)

_ADOC_MARKS = re.compile(r"(?<!\w)(\*\*?|__?|``?|\+\+?|##?)(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def parse_asciidoc(text: str) -> Parsed:
    """Parse an AsciiDoc document. Its title is the title in the front matter, or else that of the first
    section.
    """
    front = read_front_matter(text)
    return _scan(text, _ADOC_LINE, _read_asciidoc, front.end, front_title(front))


def _read_asciidoc(lines: str, match: re.Match[str]) -> tuple[int, Heading | None]:
    stop = match.end()
    if match[1] or match[4]:
        level = len(match[1]) if match[1] else _UNDERLINES.index(match[5][0]) + 1
        words = _ADOC_LINK.sub(lambda link: link[1] or link[2], _ADOC_ANCHOR.sub("", match[2] or match[4]))
        words = _ADOC_MARKS.sub(r"\2", clipped(words.rstrip(" =")))
        if match[4] and not _is_title(lines, match):
            return match.end(4), None  # the next line may begin a block
        return stop, Heading(match.start(), level, words) if words else None
    end = lines.find("\n" + match[3], stop)  # ignore section marks inside the block
    return (end + 1 + len(match[3]) if end >= 0 else stop), None


def _is_title(lines: str, match: re.Match[str]) -> bool:
    """Whether a line above a row of marks is a title: it begins a block, and is about as long as
    the marks.
    """
    above = lines[lines.rfind("\n", 0, match.start()) + 1 : match.start()].strip()
    begins = not above or (above[0] == "[" and above[-1] == "]") or above.startswith("//")
    return begins and abs(len(match[4].rstrip()) - len(match[5])) <= _UNDERLINE_SLACK


# -- Org -----------------------------------------------------------------------------------------------------

_ORG_LINE = re.compile(
    r"\n(?:(\*{1,12})[ \t]+([^\n]{1,1000})|#\+(?i:title):[ \t]*([^\n]{1,1000})"
    r"|#\+(?i:begin)_(\w{1,20})[^\n]*)"
)
_KEYWORD = re.compile(r"(?:TODO|DONE|NEXT|WAITING|CANCELLED)[ \t]+|\[#[A-Z0-9]\][ \t]*")
_TAGS = re.compile(r"[ \t]+:[\w@#%:]+:[ \t]*\Z")
_ORG_LINK = re.compile(r"\[\[(?:[^\]\n]{1,500}\]\[)?([^\]\n]{1,500})\]\]")
_ORG_MARKS = re.compile(r"(?<!\w)([*/=~_+])(?=\S)([^\n]+?)(?<=\S)\1(?!\w)")


def parse_org(text: str) -> Parsed:
    """Parse an Org document. Without `#+TITLE:`, the first heading is the title."""
    low = "\n" + (text.lower() if len(text.lower()) == len(text) else text)

    def read(lines: str, match: re.Match[str]) -> tuple[int, Heading | str | None]:
        if match[1]:
            words = _TAGS.sub("", _ORG_LINK.sub(r"\1", _KEYWORD.sub("", match[2])))
            words = _ORG_MARKS.sub(r"\2", clipped(words))
            return match.end(), Heading(match.start(), len(match[1]), words) if words else None
        if match[3]:
            return match.end(), clipped(match[3])
        end = low.find(f"\n#+end_{match[4].lower()}", match.end())  # ignore stars inside the block
        if end < 0:
            return match.end(), None
        line_end = low.find("\n", end + 1)
        return (line_end if line_end >= 0 else len(low)), None

    return _scan(text, _ORG_LINE, read)


# -- LaTeX ---------------------------------------------------------------------------------------------------

MAX_TITLE_CHARS = 1000  # characters in which to look for a title's closing brace

_TEX_LINE = re.compile(
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
_TEX_MARKS = {
    '"': "\u0308", "'": "\u0301", "`": "\u0300", "^": "\u0302", "~": "\u0303", "=": "\u0304", ".": "\u0307",
    "c": "\u0327", "H": "\u030b", "u": "\u0306", "v": "\u030c", "r": "\u030a",
}  # fmt: skip


def parse_latex(text: str) -> Parsed:
    """Parse LaTeX. The title is the argument of `\\title`, or else the title of the first section."""
    return _scan(text, _TEX_LINE, _read_latex)


def _read_latex(lines: str, match: re.Match[str]) -> tuple[int, Heading | str | None]:
    stop = match.end()
    if match[3]:  # ignore sections inside a listing
        ending = f"\\end{{{match[3]}{match[4]}}}"
        end = lines.find(ending, stop)
        return (end + len(ending) if end >= 0 else stop), None
    words = _tex_words(_braced(lines, stop))
    if match[2]:
        return stop, words
    return stop, Heading(match.start(), _LEVELS[match[1]], words) if words else None


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


def _tex_words(source: str) -> str:
    """A title without commands, with accents combined with their letters."""
    source = _ACCENT.sub(lambda match: match[2] + _TEX_MARKS[match[1]], _LABEL.sub("", source))
    return clipped(unicodedata.normalize("NFC", _COMMAND.sub(_command_gone, source)))


def _command_gone(match: re.Match[str]) -> str:
    command = match[0]
    if command in ("~", "\\\\", "\\ "):
        return " "
    return command[1] if len(command) > 1 and command[1] in "&%#_{}$" else ""
