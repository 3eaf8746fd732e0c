"""OpenDocument texts and presentations: headings, paragraphs, lists, tables, notes, numbered slides."""

from collections.abc import Iterator
from xml.etree.ElementTree import Element
from xml.parsers import expat

from ctx.errors import SourceError
from ctx.formats.base import LOCKED, Manuscript, Parsed
from ctx.formats.cells import ABOVE
from ctx.formats.package import Package, parse_xml, properties, run_parser

_DELETED = frozenset(("tracked-changes",))
_LEFT_OUT = _DELETED | {"annotation", "forms", "note-citation", "ruby-text", "page-number"}
_LEVELS = frozenset("123456789")
_MAX_BLANKS = 100  # maximum blanks to write for one run of blanks
_MAX_ROWS = 1 << 20  # maximum rows per sheet
# Maximum repetitions of a cell or row, because sheets often end with a million blank ones.
_MAX_REPEATS = 50


def parse(data: bytes) -> Parsed:
    """Parse a text or a presentation. The title is the title in its properties, or else the first heading or
    slide title.
    """
    with Package(data) as package:
        manifest = package.optional_xml("META-INF/manifest.xml")
        if manifest is not None and next(manifest.iter("encryption-data"), None) is not None:
            raise SourceError(LOCKED)
        content = package.read("content.xml")
        root = parse_xml(content, _LEFT_OUT)
        title, author = properties(package.optional_xml("meta.xml"))
    reader = _Reader()
    body = root.find("body")
    slides = list(root.iter("page")) if body is not None and body.find("presentation") is not None else []
    for number, slide in enumerate(slides, 1):
        reader.slide(slide, number)
    if not slides and body is not None:
        reader.blocks(body)
        reader.comments(content)
    return reader.manuscript.parsed(title or reader.first_heading, {"author": author, "slides": len(slides)})


class _Reader:
    """Writes a document's headings, paragraphs and tables into `manuscript`, in order."""

    def __init__(self) -> None:
        self.manuscript = Manuscript()
        self.first_heading: str | None = None

    def slide(self, page: Element, number: int) -> None:
        """Write one slide: its title, content and speaker notes."""
        frames = [element for element in page if element.tag != "notes"]
        titles = [frame for frame in frames if frame.get(":class") == "title"]
        title = next(filter(None, map(_line, titles)), "")
        self.first_heading = self.first_heading or title
        self.manuscript.slide(number, title)
        for frame in frames:
            if frame not in titles:
                self.blocks(frame)
        for notes in filter(None, map(_line, page.iter("notes"))):
            self.manuscript.paragraph(f"Notes: {notes}")

    def blocks(self, parent: Element) -> None:
        """Write the headings, paragraphs, lists and tables in an element."""
        for element in parent:
            if element.tag == "h":
                self._heading(element)
            elif element.tag == "p":
                self.manuscript.paragraph(_text(element))
            elif element.tag == "list":
                lines = (f"- {item.strip()}" for item in _paragraphs(element) if item.strip())
                self.manuscript.paragraph("\n".join(lines))
            elif element.tag == "table":
                self.manuscript.table(list(_rows(element)))
            else:
                self.blocks(element)

    def comments(self, content: bytes) -> None:
        """Write the comments as paragraphs under one heading."""
        if b"annotation" not in content:
            return
        annotations = parse_xml(content, _DELETED).iter("annotation")
        texts = [text for text in map(_line, annotations) if text]
        if texts:
            self.manuscript.heading(1, "Comments")
            for text in texts:
                self.manuscript.paragraph(text)

    def _heading(self, element: Element) -> None:
        self.first_heading = self.first_heading or _line(element)
        level = element.get(":outline-level", "1")
        self.manuscript.heading(int(level) if level in _LEVELS else 1, _text(element))


def _rows(table: Element) -> Iterator[list[str]]:
    ends: dict[int, int] = {}  # column -> last row of the cell that covers it
    for number, row in enumerate(table.iter("table-row")):
        texts: list[str] = []
        for cell in _cells(row):
            text = _line(cell)
            if cell.tag == "table-cell":
                ends[len(texts)] = number + _count(cell.get(":number-rows-spanned")) - 1
            elif not text and ends.get(len(texts), -1) >= number:
                text = ABOVE
            texts.append(text)
        yield texts


def _cells(row: Element) -> Iterator[Element]:
    for cell in row:
        if cell.tag in ("table-cell", "covered-table-cell"):
            for _ in range(min(_count(cell.get(":number-columns-repeated")), _MAX_REPEATS)):
                yield cell


def _count(text: str | None) -> int:
    """The number of rows or columns in an attribute; 1 if it is missing or invalid."""
    count = int(text) if text and text.isdecimal() and len(text) < 8 else 1
    return count if 0 < count <= _MAX_ROWS else 1


Ranges = list[tuple[tuple[int, int], tuple[int, int]]]  # ((top, left), (bottom, right)), counted from 0


def tall_cells(content: bytes) -> dict[str, Ranges]:
    """Sheet name -> the positions of its cells that cover several rows, from a spreadsheet's `content.xml`.

    Reads the XML as a stream, because a tree of a million cells would be too large. Raises `SourceError`.
    """
    sheets: dict[str, Ranges] = {}
    if b"rows-spanned" not in content:
        return sheets
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = row = next_row = column = 0  # `depth` counts nested tables: cells and charts may contain some
    ranges: Ranges = []

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, ranges, row, next_row, column
        tag = name.rpartition(" ")[2]
        if tag == "table":
            depth += 1
        if tag not in ("table", "table-row", "table-cell", "covered-table-cell") or depth != 1:
            return
        values = {key.rpartition(" ")[2]: value for key, value in attributes.items()}
        if tag == "table":
            ranges = sheets.setdefault(values.get("name", ""), [])
            next_row = 0
        elif tag == "table-row":
            row, column = next_row, 0
            next_row += _count(values.get("number-rows-repeated"))
        else:
            height = _count(values.get("number-rows-spanned"))
            if height > 1 and tag == "table-cell":
                width = _count(values.get("number-columns-spanned"))
                ranges.append(((row, column), (row + height - 1, column + width - 1)))
            column += _count(values.get("number-columns-repeated"))

    def end(name: str) -> None:
        nonlocal depth
        depth -= name.rpartition(" ")[2] == "table"

    parser.StartElementHandler, parser.EndElementHandler = start, end
    run_parser(parser, content)
    return sheets


def _paragraphs(element: Element) -> Iterator[str]:
    return (_text(paragraph) for paragraph in element.iter() if paragraph.tag in ("p", "h"))


def _line(element: Element) -> str:
    """An element's text on one line."""
    return " ".join(" ".join(_paragraphs(element)).split())


def _text(element: Element) -> str:
    """The text of a paragraph, with footnotes in brackets where their marks are."""
    return "".join(_pieces(element))


def _pieces(element: Element) -> Iterator[str]:
    if element.tag == "s":
        count = element.get(":c", "1")
        yield " " * (min(int(count), _MAX_BLANKS) if count.isdigit() else 1)
    yield {"tab": "\t", "line-break": "\n"}.get(element.tag, "")
    yield element.text or ""
    for child in element:
        if child.tag == "note":
            yield f" [{_line(child)}]"
        else:
            yield from _pieces(child)
        yield child.tail or ""
