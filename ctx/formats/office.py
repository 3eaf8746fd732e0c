"""Documents of Microsoft Office: Word and PowerPoint (OOXML), and Rich Text Format."""

import posixpath
import re
from collections.abc import Iterator, Mapping
from xml.etree.ElementTree import Element

from striprtf.striprtf import rtf_to_text

from ctx.errors import SourceError
from ctx.formats.base import MAX_CHARS, TOO_LONG, Manuscript, Parsed, readable, telling_title
from ctx.formats.cells import ABOVE
from ctx.formats.package import Package, properties, words

# -- Word ----------------------------------------------------------------------------------------------------

# Properties of text runs to skip. They are the largest part of a document, and only `vanish` (hidden text) is
# needed.
_LOOKS = "rFonts b bCs i iCs color sz szCs lang u noProof kern spacing highlight vertAlign shd rPrChange"
# "rt" is the pronunciation above a Japanese word.
_NOT_READ = "Fallback del moveFrom instrText sectPr tblPr rt"
_WORD_LEFT_OUT = frozenset(f"{_NOT_READ} {_LOOKS}".split())
_FORMATTING = ("pPr", "rPr")
_CONTAINERS = frozenset(
    ("sdt", "sdtContent", "ins", "moveTo", "customXml", "smartTag", "AlternateContent", "Choice")
)
_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
_HEADING_STYLE = re.compile(r"heading ([1-9])", re.IGNORECASE)
_MAX_BASES = 11  # maximum length of a chain of base styles in Word
MAX_COLUMNS = 63  # maximum columns of a table in Word
_NOTE_PARTS = ("footnotes", "endnotes", "comments")


def parse_docx(data: bytes) -> Parsed:
    """The text of a Word document. Its title is the first paragraph with the style Title, the title in its
    properties, or the first heading.
    """
    with Package(data) as package:
        main = package.main_part("word/document.xml")
        reader = _WordReader(package.optional_xml(posixpath.join(posixpath.dirname(main), "styles.xml")))
        reader.blocks(package.xml(main, reader.left_out).find("body"))
        for kind, target in package.relations(main).values():
            if kind in _NOTE_PARTS and target in package:
                reader.notes(kind, package.xml(target, reader.left_out))
        title, author = properties(package.optional_xml("docProps/core.xml"))
    return reader.manuscript.parsed(reader.title or title or reader.first_heading, {"author": author})


def _bases(style_id: str, styles: Mapping[str, Element]) -> Iterator[Element]:
    """A style and the styles that it is based on, the nearest first."""
    for _ in range(_MAX_BASES):
        style = styles.get(style_id)
        if style is None:
            return
        yield style
        style_id = _value(style.find("basedOn"))


def _style_level(style_id: str, styles: Mapping[str, Element]) -> int | None:
    """The heading level of a style or of its base style. The style Title has level 0; a style based on Title
    is not a title.
    """
    for style in _bases(style_id, styles):
        name = _value(style.find("name")).strip().lower()
        outline = _value(style.find("pPr/outlineLvl"))
        if name == "title":
            return 0 if style is styles[style_id] else None
        if match := _HEADING_STYLE.fullmatch(name):
            return int(match[1])
        if outline.isdigit():
            return int(outline) + 1 if int(outline) < 9 else None
    return None


def _hides(style_id: str, styles: Mapping[str, Element]) -> bool:
    """Whether a style hides its text, directly or through a base style."""
    specified = (_vanishes(style) for style in _bases(style_id, styles))
    return next((hidden for hidden in specified if hidden is not None), False)


def _vanishes(element: Element) -> bool | None:
    """Whether a style or a run hides its text; None if it does not specify that."""
    vanish = element.find("rPr/vanish")
    return None if vanish is None else vanish.get(":val", "1") not in ("0", "false", "off")


def _value(element: Element | None) -> str:
    return element.get(":val", "") if element is not None else ""


class _WordReader:
    """Writes a document's headings, paragraphs and tables into `manuscript`, in order."""

    def __init__(self, styles: Element | None) -> None:
        self.manuscript = Manuscript()
        self.title: str | None = None
        self.first_heading: str | None = None
        entries = list(styles.iter("style")) if styles is not None else []
        by_id = {style.get(":styleId", ""): style for style in entries}
        self._levels = {style_id: _style_level(style_id, by_id) for style_id in by_id}
        # The styles of list items.
        self._lists = {style.get(":styleId", "") for style in entries if style.find("pPr/numPr") is not None}
        self._hidden = {style_id for style_id in by_id if _hides(style_id, by_id)}
        # The style of a run matters only if some style hides its text.
        self.left_out = _WORD_LEFT_OUT if self._hidden else _WORD_LEFT_OUT | {"rStyle"}
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
        if not text:
            return
        outline, style = _value(paragraph.find("pPr/outlineLvl")), _value(paragraph.find("pPr/pStyle"))
        level = int(outline) + 1 if outline.isdigit() and int(outline) < 9 else self._levels.get(style)
        if level is None and (paragraph.find("pPr/numPr") is not None or style in self._lists):
            self._list.append(f"- {text}")
            return
        self._end_list()
        if level is None:
            self.manuscript.paragraph(text)
            return
        if level == 0:
            self.title = self.title or " ".join(text.split())
        else:
            self.first_heading = self.first_heading or " ".join(text.split())
        self.manuscript.heading(max(1, level), text)

    def _end_list(self) -> None:
        self.manuscript.paragraph("\n".join(self._list))
        self._list = []

    def _table(self, table: Element) -> None:
        self._end_list()
        rows = [list(_inside(row, "tc")) for row in _inside(table, "tr")]
        if all(len(cells) < 2 for cells in rows):  # the table is only a frame around text
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


# -- PowerPoint ----------------------------------------------------------------------------------------------

_SLIDE_LEFT_OUT = frozenset(("Fallback",))
_TITLES = ("title", "ctrTitle")
_FURNITURE = ("dt", "ftr", "sldNum", "hdr", "sldImg")  # placeholders that repeat on every slide
_PICTURES_WITH_WORDS = ("diagramData", "chart")


def parse_pptx(data: bytes) -> Parsed:
    """The text of a presentation. Its title is the first slide's title, or the title in its properties."""
    with Package(data) as package:
        main = package.main_part("ppt/presentation.xml")
        relations = package.relations(main)
        slide_ids = package.xml(main).iter("sldId")
        slides = [relations[slide.get(":id", "")][1] for slide in slide_ids if slide.get(":id") in relations]
        manuscript = Manuscript()
        first_title = ""
        for number, name in enumerate(slides, 1):
            title = _slide(package, name, number, manuscript)
            first_title = first_title or title
        about, author = properties(package.optional_xml("docProps/core.xml"))
    return manuscript.parsed(first_title or about, {"author": author, "slides": len(slides)})


def _slide(package: Package, name: str, number: int, manuscript: Manuscript) -> str:
    """Write one slide and return its title; "" if it has none."""
    root = package.xml(name, _SLIDE_LEFT_OUT)
    shapes = [(_placeholder(shape), shape) for shape in root.iter("sp")]
    title = next(filter(None, (_line(shape) for kind, shape in shapes if kind in _TITLES)), "")
    manuscript.slide(number, title)
    for kind, shape in shapes:
        if kind not in (*_TITLES, *_FURNITURE):
            manuscript.paragraph("\n".join(_paragraphs(shape)))
    for table in root.iter("tbl"):
        rows = [list(row.iter("tc")) for row in table.iter("tr")]
        merged = ("1", "true")
        manuscript.table(
            [[ABOVE if cell.get("vMerge") in merged else _line(cell) for cell in row] for row in rows]
        )
    for kind, target in package.relations(name).values():
        manuscript.paragraph(_beside(package, kind, target))
    return title


def _beside(package: Package, kind: str, target: str) -> str:
    """The text of a related part of a slide: notes, a diagram or a chart; "" for other kinds."""
    part = package.optional_xml(target) if kind in (*_PICTURES_WITH_WORDS, "notesSlide") else None
    if part is None:
        return ""
    if kind in _PICTURES_WITH_WORDS:
        texts = list(words(part, "t"))
        for cache in part.iter("strCache"):  # a chart's series and categories
            texts += words(cache, "v")
        return "\n".join(dict.fromkeys(texts))
    shapes = (shape for shape in part.iter("sp") if _placeholder(shape) not in _FURNITURE)
    paragraphs = [paragraph for shape in shapes for paragraph in _paragraphs(shape)]
    return "Notes: " + "\n".join(paragraphs) if paragraphs else ""


def _placeholder(shape: Element) -> str | None:
    placeholder = shape.find("nvSpPr/nvPr/ph")
    return None if placeholder is None else placeholder.get("type", "body")


def _paragraphs(shape: Element) -> list[str]:
    """The text of each non-empty paragraph of a shape."""
    paragraphs = []
    for paragraph in shape.iter("p"):
        runs = [
            "\n" if element.tag == "br" else element.text or ""
            for element in paragraph.iter()
            if element.tag in ("t", "br")
        ]
        text = "".join(runs).strip()
        if text:
            paragraphs.append(text)
    return paragraphs


def _line(shape: Element) -> str:
    return " ".join(" ".join(_paragraphs(shape)).split())


# -- Rich Text Format ----------------------------------------------------------------------------------------

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_CHARACTER_SET = re.compile(rb"\\(mac|pca|pc)(?![a-z])")
_SETS = {b"mac": "mac_roman", b"pc": "cp437", b"pca": "cp850"}
_FOOTNOTE = re.compile(r"(?<!\\)((?:\\\\)*)\\footnote(?![a-z])")
_TITLE = re.compile(r"\{\\title ((?:[^{}\\]|\\.){1,2000})\}", re.S)
_RTF_HEAD = 4096  # characters in which to look for the code page and the properties


def parse_rtf(data: bytes) -> Parsed:
    """The text of an RTF file with footnotes at their marks, without headers, footers and pictures."""
    declared, character_set = _CODE_PAGE.search(data[:_RTF_HEAD]), _CHARACTER_SET.search(data[:_RTF_HEAD])
    encoding = _SETS[character_set[1]] if character_set else "cp1252"
    if declared:
        encoding = f"cp{declared[1].decode()}"
    try:
        "".encode(encoding)
    except LookupError:
        encoding = "cp1252"
    source = data.decode("latin-1")  # RTF is ASCII; other bytes belong to the code page
    # The library leaves out footnotes, so make their text part of the paragraph.
    text = readable(_rtf_text(_FOOTNOTE.sub(r"\1 ", source), encoding))
    if len(text) > MAX_CHARS:
        raise SourceError(TOO_LONG)
    title = _TITLE.search(source[:_RTF_HEAD])
    words = _rtf_text(f"{{\\rtf1 {title[1]}}}", encoding) if title else None
    return Parsed(text, title=telling_title(words))


def _rtf_text(source: str, encoding: str) -> str:
    return str(rtf_to_text(source, encoding, errors="replace"))  # type: ignore[no-untyped-call]
