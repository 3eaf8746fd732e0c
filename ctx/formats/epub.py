"""E-books: the chapters in the order they are read, each as the HTML it is."""

import posixpath
from xml.etree.ElementTree import Element

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import Parsed
from ctx.formats.encoding import decode
from ctx.formats.manuscript import Manuscript, readable
from ctx.formats.package import Package, joined_name, properties, words

MAX_CHAPTERS = 5000


def parse(data: bytes) -> Parsed:
    """An e-book's text and title. A book whose chapters are encrypted is refused."""
    with Package(data) as package:
        container = package.xml("META-INF/container.xml")
        rootfile = next(container.iter("rootfile"), None)
        main = rootfile.get("full-path", "") if rootfile is not None else ""
        book = package.xml(main)
        chapters = _chapters(book, posixpath.dirname(main))
        if not _encrypted(package).isdisjoint(chapters):
            raise SourceError("is protected against copying (DRM): its chapters are encrypted")
        title, author = properties(book.find("metadata"))
        manuscript = Manuscript()
        for name in chapters[:MAX_CHAPTERS]:
            text = decode(package.read(name)) if name in package else None
            if text:
                _add_chapter(manuscript, readable(text), posixpath.basename(name), title)
    language = next(words(book, "language"), None)
    return manuscript.parsed(title, {"author": author, "language": language})


def _add_chapter(manuscript: Manuscript, text: str, name: str, book_title: str | None) -> None:
    """Adds a chapter; without a heading of its own its `<title>` is one, unless that is the file's name or
    the book's title.
    """
    page = html.parse(text.replace(f"<title>{name}</title>", ""))
    declared = str(page.metadata.get("title") or "")
    if declared and declared != book_title and not page.headings and page.body.strip():
        manuscript.heading(1, declared)
    manuscript.insert(page, 0)


def _chapters(book: Element, folder: str) -> list[str]:
    """The parts of the spine, in order."""
    names = {
        item.get("id"): joined_name(folder, item.get("href", ""))
        for item in book.iter("item")
        if "html" in item.get("media-type", "")
    }
    return [names[item.get("idref")] for item in book.iter("itemref") if item.get("idref") in names]


def _encrypted(package: Package) -> set[str]:
    """The parts that are encrypted; fonts often are, and harmlessly so."""
    root = package.optional_xml("META-INF/encryption.xml")
    references = root.iter("CipherReference") if root is not None else ()
    return {joined_name("", reference.get("URI", "")) for reference in references}
