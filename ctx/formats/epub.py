"""E-books: the chapters in reading order, each parsed as HTML."""

import posixpath
from xml.etree.ElementTree import Element

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import Manuscript, Parsed, readable
from ctx.formats.encoding import decode
from ctx.formats.package import Package, joined_name, properties, words

MAX_CHAPTERS = 5000


def parse(data: bytes) -> Parsed:
    """The text and title of an e-book. Raises `SourceError` if its chapters are encrypted."""
    with Package(data) as package:
        rootfile = next(package.xml("META-INF/container.xml").iter("rootfile"), None)
        main = rootfile.get("full-path", "") if rootfile is not None else ""
        book = package.xml(main)
        # Some books spell names in another letter case than their zip.
        spellings = {name.casefold(): name for name in sorted(package.names)}
        names = _chapters(book, posixpath.dirname(main))
        chapters = [name if name in package else spellings.get(name.casefold(), name) for name in names]
        root = package.optional_xml("META-INF/encryption.xml")  # it often names fonts, which is harmless
        references = root.iter("CipherReference") if root is not None else ()
        if not {joined_name("", each.get("URI", "")) for each in references}.isdisjoint(chapters):
            raise SourceError("is protected against copying (DRM): its chapters are encrypted")
        title, author = properties(book.find("metadata"))
        manuscript = Manuscript()
        for name in chapters[:MAX_CHAPTERS]:
            text = decode(package.read(name)) if name in package else None
            if text:
                _add_chapter(manuscript, readable(text), posixpath.basename(name), title)
        missing = sum(name not in package for name in chapters)
    language = next(words(book, "language"), None)
    note = None
    if missing:
        share = f"{missing:,} of {len(chapters):,} chapters"
        note = f"{share} are missing from this e-book: the file is damaged"
    elif not chapters:
        note = "this e-book has no chapters: only its title is indexed"
    return manuscript.parsed(title, {"author": author, "language": language}, note)


def _add_chapter(manuscript: Manuscript, text: str, name: str, book_title: str | None) -> None:
    """Add a chapter. If it has no heading, its `<title>` becomes one, unless that is the file's name or the
    book's title.
    """
    page = html.parse(text.replace(f"<title>{name}</title>", ""))
    declared = str(page.metadata.get("title") or "")
    if declared and declared != book_title and not page.headings and page.body.strip():
        manuscript.heading(1, declared)
    manuscript.insert(page, 0)


def _chapters(book: Element, folder: str) -> list[str]:
    """The names of the parts in reading order (the spine); for a book without a spine, all its pages. For a
    spine entry that the book does not declare, a name that does not exist.
    """
    items = {item.get("id"): item for item in book.iter("item")}
    pages = {key: item for key, item in items.items() if "html" in item.get("media-type", "")}
    names = {key: joined_name(folder, item.get("href", "")) for key, item in pages.items()}
    spine = [item.get("idref", "") for item in book.iter("itemref")]
    chapters = [names.get(key, f"?{key}") for key in spine if key in names or key not in items]
    navigation = {key for key, item in items.items() if "nav" in item.get("properties", "").split()}
    return chapters or [name for key, name in names.items() if key not in navigation]
