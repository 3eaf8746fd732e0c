"""HTML to text in the style of Markdown: headings, lists, code blocks, tables; without scripts, styles and
navigation.

The page is read as a stream of tags, which takes linear time. An HTML 5 tree takes quadratic time on deep
nesting, and Python's own parser on unclosed tags. If a page marks its main part, only that part is the body.
"""

import html
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

from ctx.formats.base import Parsed, clipped, fenced, first_title
from ctx.models import JSON, Heading

# A shorter main part without a heading is usually filled by a script. Then the whole page is used.
MIN_MAIN_CHARS = 200
MAX_ATTRIBUTES = 4000  # characters per tag in which to look for attributes

MAX_COLUMNS, MAX_ROWS = 100, 10_000  # a cell covers at most this many columns and rows
_NO_ROWS = (-1, -1)
# A cell that covers several rows is repeated in each row if its text has at most this many characters.
_MAX_REPEATED_CHARS = 60
MAX_PADDING = 20_000  # maximum empty cells to add per page, so that columns line up

_WORD = re.compile(r"\w+")
_NAME = re.compile(r"[A-Za-z][^\s/>\"'<=]{0,60}")
_STOP = re.compile(r"[>\"']")
_ATTRIBUTE = re.compile(
    r"([A-Za-z][\w:-]{0,40})\s{0,9}=\s{0,9}(?:\"([^\"]{0,2000})\"|'([^']{0,2000})'|([^\s\"'>]{1,500}))"
)
_LANGUAGE = re.compile(r"(?:^|\s)(?:language|lang|highlight|brush:)-?\s?([a-z0-9+#]{1,20})\b")
_PERMALINK = " ¶§#🔗\n"  # characters to remove at both ends of a heading
_RAW = frozenset({"script", "style", "textarea", "title", "iframe", "noembed", "noframes", "xmp", "object"})
_DROPPED = frozenset(
    "nav svg template button footer noscript select math dialog canvas audio video".split()  # noqa: SIM905
)
_BLOCKS = frozenset(
    """
    address article aside blockquote body center dd details dialog dir div dl dt fieldset figcaption
    figure form header hgroup hr html legend li main menu ol p section summary ul tbody thead tfoot
    caption
    """.split()  # noqa: SIM905 - otherwise a list of sixty lines
)
_VOID = frozenset(
    "area base br col embed hr img input link meta param source track wbr".split()  # noqa: SIM905
)
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_METADATA = ("description", "og:description", "keywords", "author", "date", "article:published_time")
_ITEM_MARKS = ("- ", "1.", "2.", "3.")


class _Tag(NamedTuple):
    """A tag with its position in the source."""

    name: str
    closing: bool
    attributes: str
    start: int
    end: int


def parse(text: str) -> Parsed:
    """Parse an HTML page. Its title is its first level-1 heading, else its `<title>`. If the two have no word
    in common, the `<title>` becomes the first line of the body. `<title>` and description are also metadata.
    Raises no errors.
    """
    page = _Page()
    position = 0
    for tag in _tags(text):
        if tag.start > position:
            page.text(text[position : tag.start])
        position = tag.end
        if tag.name:
            page.tag(tag, text)
            position = max(position, page.skip_to)
    page.text(text[position:])
    return page.parsed()


def _tags(source: str) -> Iterator[_Tag]:
    """The tags and comments of a page, in order. Comments have no name. An unclosed tag counts as text."""
    position = 0
    unclosed: set[str] = set()  # quotation marks and comment ends that do not occur in the rest of the source
    while (start := source.find("<", position)) >= 0:
        mark = source[start + 1 : start + 2]
        if mark in ("!", "?"):
            end = _comment_end(source, start, unclosed)
            if end is None:
                return
            if end:
                yield _Tag("", False, "", start, end)
            position = end or start + 4
            continue
        closing = mark == "/"
        name = _NAME.match(source, start + 1 + closing)
        if name is None:
            position = start + 1
            continue
        stop = _tag_stop(source, name.end(), unclosed)
        if stop is None:
            return
        position = stop + 1
        attributes = source[name.end() : min(stop, name.end() + MAX_ATTRIBUTES)]
        yield _Tag(name[0].lower(), closing, attributes, start, position)


def _comment_end(source: str, start: int, unclosed: set[str]) -> int | None:
    """The end of a comment or declaration. 0 if a comment is not closed; None if no `>` follows at all."""
    if source.startswith("<!--", start):
        end = source.find("-->", start + 2) if "-->" not in unclosed else -1
        if end < 0:
            unclosed.add("-->")
        return end + 3 if end >= 0 else 0
    end = source.find(">", start)
    return end + 1 if end >= 0 else None


def _tag_stop(source: str, end: int, unclosed: set[str]) -> int | None:
    """The position of the `>` of the tag whose name ends at `end`; None if there is none."""
    while (stop := _STOP.search(source, end)) is not None and stop[0] != ">":
        end = stop.end()
        # A quotation mark counts only at the start of a value.
        value = source[max(0, stop.start() - 20) : stop.start()].rstrip().endswith("=")
        if value and stop[0] not in unclosed:
            close = source.find(stop[0], end)
            if close < 0:
                unclosed.add(stop[0])
            else:
                end = close + 1
    return None if stop is None else stop.start()


def elements(text: str, names: Collection[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """The opening tags with these (lower-case) names, as (name, attributes) in order, without those inside
    scripts and styles. Raises no errors.
    """
    skip_to = 0
    never_closed: set[str] = set()
    for tag in _tags(text):
        if tag.closing or tag.start < skip_to:
            continue
        if tag.name in _RAW and tag.name not in never_closed:
            close = re.compile(f"</{tag.name}(?![\\w-])", re.IGNORECASE).search(text, tag.end)
            if close is not None:
                skip_to = close.start()
            else:
                never_closed.add(tag.name)
        elif tag.name in names:
            yield tag.name, _attributes(tag.attributes)


class _Page:
    """Builds the text of a page from its tags and the text between them."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.size = 0
        self.headings: list[Heading] = []
        self.atoms: list[tuple[int, int]] = []
        self.metadata: dict[str, JSON] = {}
        self.skip_to = 0  # the offset in the source at which to go on reading
        self.line: list[str] = []  # the inline text of the current block
        self.prefix = ""  # the list mark of the current block
        self.heading = 0
        self.pre = 0
        self.language = ""
        self.lists: list[int] = []  # open lists: the next number, or -1 for a list without numbers
        self.rows: list[list[str]] = []
        self.tables = 0
        self.pending = 0  # number of further columns that the current cell covers
        self.covered: dict[int, tuple[int, int]] = {}  # column -> (last row, first row) of a tall cell
        self.padding = MAX_PADDING  # empty cells that may still be added
        self.dropped = ""  # the name of the element that is being skipped, or ""
        self.dropped_depth = 0
        self.never_closed: set[str] = set()
        self.main_tag = ""
        self.main_depth = 0
        self.mains: list[tuple[int, int]] = []
        self.main_start = 0

    # -- input -----------------------------------------------------------------------------------------------
    def text(self, text: str) -> None:
        if not self.dropped:
            self.line.append(_unescaped(text) if "&" in text else text)

    def tag(self, tag: _Tag, source: str) -> None:
        if self.dropped:
            if tag.name == self.dropped and not tag.attributes.endswith("/"):
                self.dropped_depth += -1 if tag.closing else 1
                if not self.dropped_depth:
                    self.dropped = ""
        elif tag.start >= self.skip_to:
            if not tag.closing and _is_dropped(tag):
                self._leave_out(tag, source)
                return
            self._note_main(tag)
            read = _READERS.get(tag.name)
            if read is not None:
                read(self, tag)

    def _note_main(self, tag: _Tag) -> None:
        """Note where the main part of the page begins or ends."""
        if self.main_tag:
            if tag.name == self.main_tag:
                self.main_depth += -1 if tag.closing else 1
                if not self.main_depth:
                    self._flush()
                    self.main_tag = ""
                    self.mains.append((self.main_start, self.size))
        elif not tag.closing and (tag.name == "main" or (tag.attributes and _is_main(tag))):
            self._flush()
            self.main_tag, self.main_depth, self.main_start = tag.name, 1, self.size

    def _code(self, tag: _Tag) -> None:
        if self.pre:
            if not tag.closing:
                self.language = self.language or _language(tag.attributes)
        elif not self.heading:
            self.line.append("`")

    def _image(self, tag: _Tag) -> None:
        if not tag.closing:
            self.line.append(_attributes(tag.attributes).get("alt", ""))

    def _leave_out(self, tag: _Tag, source: str) -> None:
        name = tag.name
        if name in _VOID or name in self.never_closed or tag.attributes.endswith("/"):
            return
        close = re.compile(f"</{re.escape(name)}(?![\\w-])", re.IGNORECASE).search(source, tag.end)
        if close is None:  # the element is not closed, and skipping it would skip the rest of the page
            self.never_closed.add(name)
            return
        if name not in _RAW:
            self.dropped, self.dropped_depth = name, 1
            return
        self.skip_to = close.start()
        text = source[tag.end : close.start()]  # the text of such an element contains no tags
        if name == "title" and "title" not in self.metadata:
            self.metadata["title"] = clipped(_unescaped(text[:2000]))
        elif name in ("textarea", "xmp"):
            self.text(text)

    def _meta(self, tag: _Tag) -> None:
        attributes = _attributes(tag.attributes)
        key = attributes.get("name", attributes.get("property", "")).lower()
        content = attributes.get("content", "")
        if content and key in _METADATA:
            self.metadata.setdefault(key.removeprefix("og:"), content[:2000])

    def _block(self, tag: _Tag) -> bool:
        """End the current block, except inside a heading, which ends only at its own end tag. Returns whether
        the block ended.
        """
        if self.heading:
            self.line.append(" ")
        else:
            self._flush()
        return not self.heading

    def _heading(self, tag: _Tag) -> None:
        self._flush()
        self.heading = 0 if tag.closing else int(tag.name[1])

    def _list(self, tag: _Tag) -> None:
        if not self._block(tag):
            return
        if tag.closing:
            del self.lists[-1:]
            self.prefix = ""  # pages often leave out the end tag of the last item
        elif len(self.lists) < 20:
            self.lists.append(1 if tag.name == "ol" else -1)

    def _item(self, tag: _Tag) -> None:
        if not self._block(tag):
            return
        if tag.closing or tag.name in ("dl", "dt"):
            self.prefix = ""
        elif tag.name == "dd":
            self.prefix = "    "
        else:
            mark = "- "
            if self.lists and self.lists[-1] > 0:
                mark = f"{self.lists[-1]}. "
                self.lists[-1] += 1
            self.prefix = "  " * max(0, len(self.lists) - 1) + mark

    def _pre(self, tag: _Tag) -> None:
        if not tag.closing:
            if not self.pre:
                self._flush()
                self.language = _language(tag.attributes)
            self.pre += 1
        elif self.pre:
            self.pre -= 1
            if not self.pre:
                self._flush_pre()

    def _table(self, tag: _Tag) -> None:
        """Begin or end a table. A table inside a cell is part of the cell's text."""
        if not tag.closing:
            if not self.tables:
                self._flush()
                self.rows = []
                self.covered = {}
            self.tables += 1
        elif self.tables:
            self.tables -= 1
            if not self.tables:
                self._flush_table()

    def _row(self, tag: _Tag) -> None:
        if self.tables != 1:
            self.line.append(" ")
        elif not tag.closing:
            self._cell()
            if tag.name == "tr" or not self.rows:
                self.rows.append([])
                self.pending = 0
            if tag.name != "tr":
                self._begin_cell(self.rows[-1], len(self.rows) - 1, tag)

    def _begin_cell(self, row: list[str], row_no: int, tag: _Tag) -> None:
        """Begin a cell. First add cells for columns that other cells cover, so that the cell is below its
        column's name.
        """
        begin = len(row) + self.pending
        while self.covered.get(begin, _NO_ROWS)[0] >= row_no:
            begin += 1
        padding = min(begin - len(row), self.padding)
        self.padding -= padding
        for column in range(len(row), len(row) + padding):
            last, first = self.covered.get(column, _NO_ROWS)
            above = self.rows[first][column] if row_no <= last and column < len(self.rows[first]) else ""
            row.append(above if len(above) <= _MAX_REPEATED_CHARS else "")
        row.append("")
        self.pending = 0
        if "span" in tag.attributes.lower():
            width, height = _span(tag, "colspan", MAX_COLUMNS), _span(tag, "rowspan", MAX_ROWS)
            self.pending = width - 1
            if height > 1:
                columns = range(len(row) - 1, len(row) - 1 + width)
                self.covered |= dict.fromkeys(columns, (row_no + height - 1, row_no))

    # -- output ----------------------------------------------------------------------------------------------
    def _put(self, text: str, close: bool = False) -> int:
        """Add a block after a blank line, or on the next line if `close`. Returns its start in the body."""
        if self.parts:
            gap = "\n" if close else "\n\n"
            self.parts.append(gap)
            self.size += len(gap)
        start = self.size
        self.parts.append(text)
        self.size += len(text)
        return start

    def _flush(self) -> None:
        """Write the current block, if it has text."""
        if self.pre or not self.line:
            return
        if self.tables:
            self.line.append(" ")
            return
        # Collapse white space in each line.
        text = "\n".join(" ".join(line.split()) for line in "".join(self.line).split("\0")).strip()
        self.line = []
        if self.heading:
            if words := clipped(text.strip(_PERMALINK)):
                start = self._put("#" * self.heading + " " + words)
                self.headings.append(Heading(start, self.heading, words))
        elif text:
            after_item = bool(self.prefix and self.parts) and self.parts[-1].lstrip()[:2] in _ITEM_MARKS
            self._put(self.prefix + text, after_item or self.prefix == "    ")
            if self.prefix.strip():
                self.prefix = " " * len(self.prefix)  # indent the next lines of the item

    def _flush_pre(self) -> None:
        code = "".join(self.line).strip("\n").rstrip()
        self.line = [code] if code and self.tables else []
        if code and not self.tables:
            start = self._put(fenced(code, self.language))
            self.atoms.append((start, self.size))

    def _cell(self) -> None:
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] = " ".join("".join(self.line).replace("\0", " ").split()).replace("|", "\\|")
        elif text := " ".join("".join(self.line).split()):
            if self.rows:
                self.rows.append([text])  # text between two rows becomes a row
            else:
                self._put(text)  # the caption of a table
        self.line = []

    def _flush_table(self) -> None:
        self._cell()
        rows, self.rows = [row for row in self.rows if any(row)], []
        if max(map(len, rows), default=1) == 1:  # the table is only used for layout
            for row in rows:
                self._put(row[0])
            return
        lines = [f"| {' | '.join(row)} |" for row in rows]
        lines.insert(1, "|" + " --- |" * len(rows[0]))
        start = self._put("\n".join(lines))
        self.atoms.append((start, self.size))

    def parsed(self) -> Parsed:
        """The parsed page, or its main part."""
        self._end_open()
        body = "".join(self.parts)
        start, end = self._main_span(body)
        inside = [heading for heading in self.headings if start <= heading.start < end]
        declared = str(self.metadata.get("title") or "")
        top = first_title([heading for heading in (*inside, *self.headings) if heading.level == 1])
        # "Installing" and "Installing - the site" have a word in common.
        words, top_words = (set(_WORD.findall(text.casefold())) for text in (declared, top or ""))
        lead = f"{declared}\n\n" if top and declared and words.isdisjoint(top_words) else ""
        shift = len(lead) - start
        headings = tuple(heading._replace(start=heading.start + shift) for heading in inside)
        atoms = tuple((a + shift, b + shift) for a, b in self.atoms if start <= a and b <= end)
        title = top or declared or first_title((*inside, *self.headings))
        return Parsed(lead + body[start:end], headings, atoms, title, self.metadata)

    def _end_open(self) -> None:
        """End all elements that are still open."""
        if self.tables:
            self.tables = 0
            self._flush_table()
        if self.pre:
            self.pre = 0
            self._flush_pre()
        self._flush()
        if self.main_tag:
            self.mains.append((self.main_start, self.size))

    def _main_span(self, body: str) -> tuple[int, int]:
        """The span from the start of the first main part to the end of the last; the whole body if that is
        too short.
        """
        if not self.mains:
            return 0, len(body)
        start, end = self.mains[0][0], self.mains[-1][1]
        while start < end and body[start] == "\n":
            start += 1
        headed = any(start <= heading.start < end for heading in self.headings)
        return (start, end) if headed or end - start >= MIN_MAIN_CHARS else (0, len(body))


def _is_main(tag: _Tag) -> bool:
    attributes = _attributes(tag.attributes) if tag.name in ("div", "section", "article") else {}
    return attributes.get("role") == "main" or attributes.get("id") == "main-content"


def _span(tag: _Tag, name: str, most: int) -> int:
    """The number of columns or rows that a cell covers: at least 1, at most `most`."""
    text = _attributes(tag.attributes).get(name, "").strip()
    return max(1, min(int(text), most)) if text.isascii() and text.isdigit() and len(text) < 6 else 1


def _is_dropped(tag: _Tag) -> bool:
    return (
        tag.name in _RAW
        or tag.name in _DROPPED
        or (bool(tag.attributes) and ("navigation" in tag.attributes or "headerlink" in tag.attributes))
    )


_READERS: Mapping[str, Callable[[_Page, _Tag], object]] = {
    **dict.fromkeys(_BLOCKS, _Page._block),
    **dict.fromkeys(_HEADINGS, _Page._heading),
    **dict.fromkeys(("ul", "ol", "menu", "dir"), _Page._list),
    **dict.fromkeys(("li", "dl", "dt", "dd"), _Page._item),
    **dict.fromkeys(("tr", "td", "th"), _Page._row),
    **dict.fromkeys(("code", "tt", "kbd"), _Page._code),
    "table": _Page._table,
    "pre": _Page._pre,
    "br": lambda page, tag: page.line.append("\n" if page.pre else "\0"),
    "img": _Page._image,
    "meta": _Page._meta,
}


def _unescaped(text: str) -> str:
    try:
        return html.unescape(text)
    except ValueError:  # the number has thousands of digits
        return text


def _attributes(text: str) -> dict[str, str]:
    return {
        match[1].lower(): _unescaped(match[2] or match[3] or match[4] or "")
        for match in _ATTRIBUTE.finditer(text)
    }


def _language(attributes: str) -> str:
    match = _LANGUAGE.search(_attributes(attributes).get("class", "")) if "class" in attributes else None
    return match[1] if match else ""
