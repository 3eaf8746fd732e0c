"""PDF: the text of each page under a heading with its number. There is no OCR; the report says which PDFs
have no text.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import closing
from itertools import islice, pairwise

import pypdfium2 as pdfium

from ctx.errors import SourceError
from ctx.formats.base import LOCKED, MAX_CHARS, TOO_LONG, Manuscript, Parsed, telling_title

MAX_OUTLINE_ENTRIES = 20_000
MAX_OUTLINE_DEPTH = 3

_PASSWORD, _SECURITY = 4, 5  # numbers of PDFium's errors FPDF_ERR_PASSWORD and FPDF_ERR_SECURITY
_BREAK = "\ufffe"  # PDFium writes it where it joined a hyphenated word
_WORD = re.compile(r"[^\W_]+(?:-[^\W_]+)*")
_MAX_WORD_CHARS = 100


def parse(data: bytes) -> Parsed:
    """The text of a PDF. Each page with text begins with a heading: "Page 3", or "Page 3: its section"."""
    try:
        document = pdfium.PdfDocument(data)
    except pdfium.PdfiumError as error:
        code = getattr(error, "err_code", None)
        if code in (_PASSWORD, _SECURITY):
            raise SourceError(LOCKED) from error
        raise SourceError("is damaged: no PDF that can be opened") from error
    with closing(document):
        manuscript = Manuscript()
        document.init_forms()
        sections = _sections(document)
        pages = len(document)
        mute = 0
        for number, text in enumerate(_unbroken(_page_texts(document)), 1):
            if text.strip():
                section = _section(sections, number)
                manuscript.heading(1, f"Page {number}: {section}" if section else f"Page {number}")
                manuscript.paragraph(text)
            else:
                mute += 1
        try:
            properties = document.get_metadata_dict(skip_empty=True)
        except (pdfium.PdfiumError, UnicodeError):
            properties = {}
    note = None
    if mute and mute * 2 >= pages:
        share = "no page" if mute == pages else f"only {pages - mute} of {pages} pages"
        note = f"{share} of this PDF has text: what is a picture is not read (no OCR)"
    about = {"author": properties.get("Author"), "pages": pages}
    return manuscript.parsed(telling_title(properties.get("Title")), about, note)


def _page_texts(document: pdfium.PdfDocument) -> list[str]:
    """The text of each page, in order; "" for a damaged page, because other pages may be readable."""
    texts: list[str] = []
    size = 0
    for index in range(len(document)):
        try:
            if document.formenv is not None:
                with closing(document[index]) as page:
                    page.flatten()  # makes the content of form fields part of the page
            with closing(document[index]) as page, closing(page.get_textpage()) as text_page:
                texts.append(text_page.get_text_range())
        except pdfium.PdfiumError:
            texts.append("")
        size += len(texts[-1])
        if size > MAX_CHARS:
            raise SourceError(TOO_LONG)
    return texts


def _unbroken(pages: list[str]) -> list[str]:
    """The pages with hyphenated words joined. Hyphens that belong to the words stay."""
    if not any(_BREAK in page for page in pages):
        return pages
    words = {word.lower() for page in pages for word in _WORD.findall(page)}
    return ["".join(_joined(page.split(_BREAK), words)) for page in pages]


def _joined(pieces: list[str], words: set[str]) -> Iterator[str]:
    for piece, following in pairwise(pieces):
        yield piece
        before = _WORD.findall(piece[-_MAX_WORD_CHARS:]) if piece[-1:].isalnum() else []
        after = _WORD.match(following[:_MAX_WORD_CHARS])
        if before and after and _is_compound(before[-1], after[0], words):
            yield "-"
    yield pieces[-1]


def _is_compound(before: str, after: str, words: set[str]) -> bool:
    """Whether the hyphen at the end of a line belongs to the word. It does if the document has the word with
    a hyphen elsewhere, or if the hyphen is next to a number, after an acronym or before a capital ("UTF-8",
    "SSH-server", "Debian-Paket"). It does not if the document has the word without a hyphen.
    """
    if f"{before}{after}".lower() in words:
        return False
    head = before.rpartition("-")[2]
    number = head[-1].isdigit() or after[0].isdigit()
    another_case = after[0].isupper() != head[-1].isupper() and (head[-1].islower() or len(head) > 1)
    return number or another_case or f"{before}-{after}".lower() in words


def _sections(document: pdfium.PdfDocument) -> list[tuple[int, str]]:
    """The document's outline as (page number, title), in the order of pages."""
    entries: list[tuple[int, str]] = []
    try:
        for bookmark in islice(document.get_toc(max_depth=MAX_OUTLINE_DEPTH), MAX_OUTLINE_ENTRIES):
            target = bookmark.get_dest()
            index = target.get_index() if target is not None else None
            if index is not None:
                entries.append((index + 1, bookmark.get_title()))
    except (pdfium.PdfiumError, UnicodeError):
        pass  # the outline is damaged, but the pages may be readable
    entries.sort(key=lambda entry: entry[0])
    return entries


def _section(sections: list[tuple[int, str]], number: int) -> str:
    """The title of the first section that begins on a page, else of the section that continues on it; "" if
    there is none.
    """
    index = bisect_right(sections, number - 1, key=lambda entry: entry[0])
    if index < len(sections) and sections[index][0] == number:
        return sections[index][1]
    return sections[index - 1][1] if index else ""
