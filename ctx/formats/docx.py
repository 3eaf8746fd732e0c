"""Word documents (OOXML): headings by their styles, paragraphs, lists, tables, notes. Leaves out deleted text
(tracked changes) and hidden text.
"""

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element

from ctx.formats.base import Parsed
from ctx.formats.cells import ABOVE
from ctx.formats.manuscript import Manuscript
from ctx.formats.package import Package, properties

# Properties of text runs to skip. They are the largest part of a document, and only `vanish` (hidden text) is
# needed.
_LOOKS = "rFonts b bCs i iCs color sz szCs lang u noProof kern spacing highlight vertAlign shd rPrChange"
# "rt" is the pronunciation above a Japanese word.
_LEFT_OUT = frozenset(("Fallback", "del", "moveFrom", "instrText", "sectPr", "tblPr", "rt", *_LOOKS.split()))
_FORMATTING = ("pPr", "rPr")
_CONTAINERS = frozenset(
    ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag", "AlternateContent", "Choice")
)
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)
_MAX_BASES = 11  # maximum length of a chain of base styles in Word
MAX_COLUMNS = 63  # maximum columns of a table in Word
_NOTES = ("footnotes", "endnotes", "comments")


def parse(data: bytes) -> Parsed:
    """The text of a Word document. Its title is the first paragraph with the style Title, the title in its
    properties, or the first heading.
    """
    with Package(data) as package:
        main = package.main_part("word/document.xml")
        reader = _Reader(package.optional_xml(posixpath.join(posixpath.dirname(main), "styles.xml")))
        reader.blocks(package.xml(main, reader.left_out).find("body"))
        for kind, target in package.relations(main).values():
            if kind in _NOTES and target in package:
                reader.notes(kind, package.xml(target, reader.left_out))
        title, author = properties(package.optional_xml("docProps/core.xml"))
    return reader.manuscript.parsed(reader.title or title or reader.first_heading, {"author": author})


def _levels(styles: Sequence[Element]) -> dict[str, int]:
    """Style id -> heading level, its own or that of its base style. The style Title has level 0."""
    levels: dict[str, int | None] = {}
    bases: dict[str, str] = {}
    for style in styles:
        style_id = style.get(":styleId", "")
        name = _value(style.find("name")).strip().lower()
        match = _HEADING_STYLE.fullmatch(name)
        outline = _value(style.find("pPr/outlineLvl"))
        if name == "title":
            levels[style_id] = 0
        elif match:
            levels[style_id] = int(match[1])
        elif outline.isdigit():
            levels[style_id] = int(outline) + 1 if int(outline) < 9 else None
        else:
            bases[style_id] = _value(style.find("basedOn"))
    return {
        style_id: level
        for style_id in (*levels, *bases)
        if (level := _level_of(style_id, levels, bases)) is not None
    }


def _level_of(style_id: str, levels: Mapping[str, int | None], bases: Mapping[str, str]) -> int | None:
    base = style_id
    for _ in range(_MAX_BASES):
        if base in levels:
            # A style based on Title is not a title.
            return levels[base] if base == style_id else levels[base] or None
        base = bases.get(base, "")
    return None


def _hidden(styles: Sequence[Element]) -> frozenset[str]:
    """The ids of the styles that hide their text, directly or through a base style."""
    by_id = {style.get(":styleId", ""): style for style in styles}
    return frozenset(style_id for style_id in by_id if _hides(style_id, by_id))


def _hides(style_id: str, styles: Mapping[str, Element]) -> bool:
    for _ in range(_MAX_BASES):
        style = styles.get(style_id)
        if style is None:
            return False
        hidden = _vanishes(style)
        if hidden is not None:
            return hidden
        style_id = _value(style.find("basedOn"))
    return False


def _vanishes(element: Element) -> bool | None:
    """Whether a style or a run hides its text; None if it does not specify that."""
    vanish = element.find("rPr/vanish")
    return None if vanish is None else vanish.get(":val", "1") not in ("0", "false", "off")


def _value(element: Element | None) -> str:
    return element.get(":val", "") if element is not None else ""


class _Reader:
    """Writes a document's headings, paragraphs and tables into `manuscript`, in order."""

    def __init__(self, styles: Element | None) -> None:
        self.manuscript = Manuscript()
        self.title: str | None = None
        self.first_heading: str | None = None
        entries = list(styles.iter("style")) if styles is not None else []
        self._levels = _levels(entries)
        # The styles of list items.
        self._lists = {style.get(":styleId", "") for style in entries if style.find("pPr/numPr") is not None}
        self._hidden = _hidden(entries)
        # The style of a run matters only if some style hides its text.
        self.left_out = _LEFT_OUT if self._hidden else _LEFT_OUT | {"rStyle"}
        self._list: list[str] = []

    def blocks(self, parent: Element | None) -> None:
        """Write all paragraphs and tables below an element."""
        for block in _inside(parent, "p", "tbl") if parent is not None else ():
            if block.tag == "p":
                self._paragraph(block)
            else:
                self._table(block)
        self._end_list()

    def notes(self, kind: str, root: Element) -> None:
        """Write footnotes, endnotes or comments, each as a paragraph under one common heading."""
        texts = [
            " ".join(map(self._text, note.iter("p"))).strip() for note in root if note.get(":type") is None
        ]
        if any(texts):
            self.manuscript.heading(1, kind.capitalize())
            for text in texts:
                self.manuscript.paragraph(text)

    def _paragraph(self, paragraph: Element) -> None:
        text = self._text(paragraph).strip()
        level = self._level(paragraph)
        if not text:
            return
        if level is None and self._listed(paragraph):
            self._list.append(f"- {text}")
            return
        self._end_list()
        if level is None:
            self.manuscript.paragraph(text)
        else:
            self._heading(level, text)

    def _heading(self, level: int, text: str) -> None:
        if level == 0:
            self.title = self.title or " ".join(text.split())
        else:
            self.first_heading = self.first_heading or " ".join(text.split())
        self.manuscript.heading(max(1, level), text)

    def _level(self, paragraph: Element) -> int | None:
        outline = _value(paragraph.find("pPr/outlineLvl"))
        if outline.isdigit() and int(outline) < 9:
            return int(outline) + 1
        return self._levels.get(_value(paragraph.find("pPr/pStyle")))

    def _listed(self, paragraph: Element) -> bool:
        style = _value(paragraph.find("pPr/pStyle"))
        return paragraph.find("pPr/numPr") is not None or style in self._lists

    def _end_list(self) -> None:
        self.manuscript.paragraph("\n".join(self._list))
        self._list = []

    def _table(self, table: Element) -> None:
        self._end_list()
        rows = [list(_inside(row, "tc")) for row in _inside(table, "tr")]
        if all(len(cells) < 2 for cells in rows):  # a frame around text rather than a table
            for cells in rows:
                for cell in cells:
                    self.blocks(cell)
            return
        self.manuscript.table([list(self._texts(cells)) for cells in rows])

    def _texts(self, cells: list[Element]) -> Iterator[str]:
        """The texts of a row's cells. A cell over several columns is followed by empty texts."""
        for cell in cells:
            text = " ".join(map(self._text, cell.iter("p")))
            merged = cell.find("tcPr/vMerge")
            continues = merged is not None and _value(merged) != "restart"
            yield ABOVE if continues and not text.strip() else text
            span = _value(cell.find("tcPr/gridSpan"))
            yield from [""] * (min(int(span), MAX_COLUMNS) - 1 if span.isdigit() and len(span) < 6 else 0)

    def _text(self, paragraph: Element) -> str:
        """The text of a paragraph. Text boxes in it get lines of their own."""
        parts: list[str] = []
        self._write(paragraph, parts)
        return "".join(parts)

    def _write(self, paragraph: Element, parts: list[str]) -> None:
        style_hides = _value(paragraph.find("pPr/pStyle")) in self._hidden
        waiting = list(reversed(paragraph))
        while waiting:
            element = waiting.pop()
            if element.tag == "t":
                parts.append(element.text or "")
            elif element.tag in _BREAKS:
                parts.append(_BREAKS[element.tag])
            elif element.tag == "p":
                _end_line(parts)
                self._write(element, parts)
                _end_line(parts)
            elif element.tag not in _FORMATTING and not (
                element.tag == "r" and self._is_hidden(element, style_hides)
            ):
                waiting += reversed(element)

    def _is_hidden(self, run: Element, style_hides: bool) -> bool:
        """Whether a run is hidden. The run's style inverts what the paragraph's style says (ISO 29500-1,
        17.7.3).
        """
        hidden = _vanishes(run)
        if hidden is not None:
            return hidden
        return style_hides != (_value(run.find("rPr/rStyle")) in self._hidden)


def _inside(parent: Element, *names: str) -> Iterator[Element]:
    """The child elements with these names, also those inside elements that only wrap them."""
    for child in parent:
        if child.tag in names:
            yield child
        elif child.tag in _CONTAINERS:
            yield from _inside(child, *names)


def _end_line(parts: list[str]) -> None:
    if parts and parts[-1] != "\n":
        parts.append("\n")
