"""Presentations (OOXML): each slide under a heading with its number and title, with tables, diagrams and
speaker notes.
"""

from xml.etree.ElementTree import Element

from ctx.formats.base import Parsed
from ctx.formats.cells import ABOVE
from ctx.formats.manuscript import Manuscript
from ctx.formats.package import Package, properties, words

_LEFT_OUT = frozenset(("Fallback",))
_TITLES = ("title", "ctrTitle")
_FURNITURE = ("dt", "ftr", "sldNum", "hdr", "sldImg")  # placeholders that repeat on every slide
_PICTURES_WITH_WORDS = ("diagramData", "chart")


def parse(data: bytes) -> Parsed:
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
    root = package.xml(name, _LEFT_OUT)
    shapes = [(_placeholder(shape), shape) for shape in root.iter("sp")]
    title = next(filter(None, (_line(shape) for kind, shape in shapes if kind in _TITLES)), "")
    manuscript.slide(number, title)
    for kind, shape in shapes:
        if kind not in (*_TITLES, *_FURNITURE):
            manuscript.paragraph("\n".join(_paragraphs(shape)))
    for table in root.iter("tbl"):
        manuscript.table([list(map(_cell, row.iter("tc"))) for row in table.iter("tr")])
    for kind, target in package.relations(name).values():
        manuscript.paragraph(_beside(package, kind, target))
    return title


def _beside(package: Package, kind: str, target: str) -> str:
    """The text of a related part of a slide: notes, a diagram or a chart; "" for other kinds."""
    part = package.optional_xml(target) if kind in (*_PICTURES_WITH_WORDS, "notesSlide") else None
    if part is None:
        return ""
    return _notes(part) if kind == "notesSlide" else "\n".join(_drawn_words(part))


def _notes(part: Element) -> str:
    """The speaker notes as text; "" if they are empty."""
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


def _cell(cell: Element) -> str:
    return ABOVE if cell.get("vMerge") in ("1", "true") else _line(cell)


def _drawn_words(part: Element) -> list[str]:
    """The texts in a diagram, or in a chart with its series and categories."""
    texts = list(words(part, "t"))
    for cache in part.iter("strCache"):
        texts += words(cache, "v")
    return list(dict.fromkeys(texts))
