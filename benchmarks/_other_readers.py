"""What other programs' libraries read in documents: run in an environment of its own, never in ctx's.

    python _other_readers.py < PATHS > PARTS

Takes JSON, a list of paths; prints JSON, for each path its parts (pages, sheets, slides, messages; of a text
that flows, one) as {"name": what a hit should be called by or "", "lines": [...]}, and who wrote the file.
"""

import csv
import email
import email.policy
import io
import json
import mailbox
import re
import sys
import warnings
import zipfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

MAX_PAGES = 6  # of a PDF: its second is asked for, and these libraries are slow
_SPACE = re.compile(r"\s+")

Part = tuple[str, list[str]]


def pdf(path: Path) -> Iterator[Part]:
    """By pdfminer.six."""
    from pdfminer.high_level import extract_pages
    from pdfminer.layout import LTTextContainer

    for number, page in enumerate(extract_pages(str(path), maxpages=MAX_PAGES), 1):
        texts = [element.get_text() for element in page if isinstance(element, LTTextContainer)]
        yield f"Page {number}", "".join(texts).splitlines()


def docx(path: Path) -> Iterator[Part]:
    """By python-docx."""
    import docx as library

    def lines(container: Any) -> Iterator[str]:
        for block in container.iter_inner_content():
            if hasattr(block, "rows"):
                for row in block.rows:
                    for cell in row.cells:
                        yield from lines(cell)
            else:
                yield block.text

    yield "", list(lines(library.Document(str(path))))


def pptx(path: Path) -> Iterator[Part]:
    """By python-pptx."""
    import pptx as library

    def lines(shapes: Any) -> Iterator[str]:
        for shape in shapes:
            if hasattr(shape, "shapes"):
                yield from lines(shape.shapes)
            elif shape.has_text_frame:
                yield from shape.text_frame.text.splitlines()
            elif getattr(shape, "has_table", False):
                for row in shape.table.rows:
                    yield from (cell.text for cell in row.cells)

    for number, slide in enumerate(library.Presentation(str(path)).slides, 1):
        yield f"Slide {number}", list(lines(slide.shapes))


def xlsx(path: Path) -> Iterator[Part]:
    """By openpyxl: the cells of words and whole numbers, as what others show depends on their formats."""
    import openpyxl as library

    for sheet in library.load_workbook(path, data_only=True).worksheets:
        cells = (cell for row in sheet.iter_rows(values_only=True) for cell in row)
        shown = (str(cell) for cell in cells if isinstance(cell, str | int) and not isinstance(cell, bool))
        yield f"Sheet {sheet.title}", list(shown)


def odt(path: Path) -> Iterator[Part]:
    """By odfpy."""
    from odf import teletype
    from odf.opendocument import load

    elements = _descendants(load(str(path)).body)
    yield "", [teletype.extractText(each) for each in elements if each.qname[1] in ("h", "p")]


def _descendants(element: Any) -> Iterator[Any]:
    for child in element.childNodes:
        if child.nodeType == child.ELEMENT_NODE:
            yield child
            yield from _descendants(child)


class _Page(HTMLParser):
    """The words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self._left_out = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self._left_out += tag in ("script", "style", "head")
        if tag in ("p", "div", "li", "td", "th", "tr", "br", "h1", "h2", "h3", "h4", "pre", "dt", "dd"):
            self.texts.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self._left_out -= tag in ("script", "style", "head")

    def handle_data(self, data: str) -> None:
        if not self._left_out:
            self.texts.append(_SPACE.sub(" ", data))


def epub(path: Path) -> Iterator[Part]:
    """By the standard library: the pages of the zip, by name."""
    with zipfile.ZipFile(path) as archive:
        names = sorted(n for n in archive.namelist() if n.endswith((".xhtml", ".html", ".htm", ".xml")))
        texts = [archive.read(n).decode("utf-8", "replace") for n in names if "META-INF" not in n]
    pages = ("".join(_Page(text).texts).splitlines() for text in texts if "<body" in text)
    yield "", [line for page in pages for line in page]


def eml(path: Path) -> Iterator[Part]:
    """By the standard library's newer interface, which ours is not on."""
    yield _message(path.read_bytes())


def mbox(path: Path) -> Iterator[Part]:
    """By the standard library's mailbox."""
    for message in mailbox.mbox(path, create=False):
        yield _message(message.as_bytes())


def _message(data: bytes) -> Part:
    message = email.message_from_bytes(data, policy=email.policy.default)
    body = message.get_body(("plain", "html"))
    text = str(body.get_content()) if body is not None else ""
    if body is not None and body.get_content_subtype() == "html":
        text = "".join(_Page(text).texts)
    subject = _SPACE.sub(" ", str(message["subject"] or "")).strip()
    return subject, [subject, *text.splitlines()]


def csv_file(path: Path) -> Iterator[Part]:
    """By the standard library, each cell a line."""
    text = _text(path)
    mark = max(",;\t|", key=text[:4096].count)
    yield "", [cell for row in csv.reader(io.StringIO(text), delimiter=mark) for cell in row]


def json_file(path: Path) -> Iterator[Part]:
    """By the standard library, each value a line."""

    def values(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            for each in value.values():
                yield from values(each)
        elif isinstance(value, list):
            for each in value:
                yield from values(each)
        elif value is not None and not isinstance(value, bool):
            yield str(value)

    yield "", list(values(json.loads(_text(path))))


def plain(path: Path) -> Iterator[Part]:
    """A text as it is written."""
    yield "", _text(path).splitlines()


def _text(path: Path) -> str:
    data = path.read_bytes()
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


READERS: dict[str, Callable[[Path], Iterator[Part]]] = {
    "pdf": pdf,
    "docx": docx,
    "pptx": pptx,
    "xlsx": xlsx,
    "odt": odt,
    "epub": epub,
    "eml": eml,
    "mbox": mbox,
    "csv": csv_file,
    "json": json_file,
    "org": plain,
    "adoc": plain,
    "tex": plain,
}
_PRODUCERS = {
    "pdf": rb"/Producer\s*\(((?:[^()\\]|\\.)*)\)",
    "epub": rb"generator\"?[^>]*content=\"([^\"]+)\"",
    "eml": rb"(?im)^(?:x-mailer|user-agent): *([^\r\n]+)",
    "mbox": rb"(?im)^(?:x-mailer|user-agent): *([^\r\n]+)",
    "odt": rb"<meta:generator>([^<]+)<",
    "docx": rb"<(?:\w+:)?Application>([^<]+)<",
}


def producer(path: Path) -> str:
    """Which program wrote the file, where the file says so."""
    suffix = path.suffix[1:]
    pattern = _PRODUCERS.get("docx" if suffix in ("pptx", "xlsx") else suffix)
    if pattern is None:
        return ""
    data = path.read_bytes()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            names = (n for n in archive.namelist() if n.endswith(("docProps/app.xml", "meta.xml", ".opf")))
            data = b"".join(map(archive.read, names))
    match = re.search(pattern, data)
    return match[1].decode("latin-1").strip()[:60] if match else ""


def main() -> None:
    warnings.simplefilter("ignore")
    answers = {}
    for name in json.load(sys.stdin):
        path = Path(name)
        try:
            parts = [{"name": part, "lines": lines} for part, lines in READERS[path.suffix[1:]](path)]
            answers[name] = {"parts": parts, "producer": producer(path)}
        except Exception as error:  # what one of five libraries makes of a file that is none
            answers[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
