"""Read documents that are zip files of XML, safely against entities, zip bombs and encrypted parts; and
e-books, whose chapters are HTML.
"""

import io
import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from typing import Self
from urllib.parse import unquote, urldefrag
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ctx.errors import SourceError
from ctx.formats import html
from ctx.formats.base import LOCKED, Manuscript, Parsed, readable, telling_title
from ctx.formats.encoding import decode

MAX_PART_BYTES = 64 << 20  # for one part, unpacked; a novel has 2 MB
MAX_PARTS_BYTES = 256 << 20  # for all parts read from one document
MAX_PARTS = 20_000
MAX_DEPTH = 500  # maximum levels of nested elements; ordinary documents have 40

_ENCRYPTED = 0x1


class Package:
    """The parts of a zipped document. Its methods raise `SourceError` if it is damaged, encrypted or too
    large.
    """

    def __init__(self, data: bytes) -> None:
        self._room = MAX_PARTS_BYTES
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(data))
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise SourceError("is damaged: the file is cut off, or no document of its kind") from error
        if len(self._zip.infolist()) > MAX_PARTS:
            raise SourceError(f"has more than {MAX_PARTS:,} parts")
        self.names = set(self._zip.namelist())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._zip.close()

    def __contains__(self, name: str) -> bool:
        return name in self.names

    def refuse_above(self, limit: int) -> None:
        """Raise `SourceError` if the declared sizes of all parts add up to more than `limit` bytes."""
        if sum(info.file_size for info in self._zip.infolist()) > limit:
            raise SourceError(f"unpacks to more than {limit >> 20} MiB")

    def size(self, name: str) -> int:
        """The declared unpacked size of a part in bytes."""
        return self._zip.getinfo(name).file_size

    def read(self, name: str) -> bytes:
        """The bytes of a part. Raises `SourceError` if it is missing, damaged, encrypted or too large."""
        if name not in self.names:
            raise SourceError(f"is damaged: its part {name[:80]!r} is missing")
        info = self._zip.getinfo(name)
        if info.flag_bits & _ENCRYPTED:
            raise SourceError(LOCKED)
        limit = min(MAX_PART_BYTES, self._room)
        try:
            with self._zip.open(info) as part:
                content = part.read(limit + 1)
        except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, ValueError) as error:
            raise SourceError(f"is damaged: its part {name[:80]!r} cannot be unpacked") from error
        if len(content) > limit:
            raise SourceError(f"unpacks to more than {limit >> 20} MiB")
        self._room -= len(content)
        return content

    def xml(self, name: str, without: frozenset[str] = frozenset()) -> Element:
        """The root element of a part, parsed by `parse_xml`."""
        return parse_xml(self.read(name), without)

    def optional_xml(self, name: str) -> Element | None:
        """The root element of a part that may be absent; None if it is missing or damaged."""
        try:
            return self.xml(name) if name in self else None
        except SourceError:
            return None

    def relations(self, name: str) -> dict[str, tuple[str, str]]:
        """The relations of an Office part, in order: id -> (last word of the relation type, name of the
        target part).
        """
        folder, base = posixpath.split(name)
        root = self.optional_xml(posixpath.join(folder, "_rels", f"{base}.rels"))
        targets = {}
        for relation in root.iter("Relationship") if root is not None else ():
            if relation.get("TargetMode") != "External":
                kind = relation.get("Type", "").rsplit("/", 1)[-1]
                target = joined_name(folder, relation.get("Target", ""))
                targets[relation.get("Id", "")] = (kind, target)
        return targets

    def main_part(self, default: str) -> str:
        """The name of the main part of an Office document; `default` if it is not declared."""
        for kind, target in self.relations("").values():
            if kind == "officeDocument" and target in self:
                return target
        return default


def joined_name(folder: str, target: str) -> str:
    """The name of the part at the relative address `target` in `folder`."""
    path = unquote(urldefrag(target)[0])
    return path.lstrip("/") if path.startswith("/") else posixpath.normpath(posixpath.join(folder, path))


def parse_xml(data: bytes, without: frozenset[str] = frozenset()) -> Element:
    """The root element of an XML document. Names lose their namespace; an attribute with a namespace becomes
    ":name".

    Elements named in `without` are left out with their content. Raises `SourceError` if the XML is damaged or
    declares entities, which documents do not need and XML bombs do.
    """
    builder = TreeBuilder()
    parser = expat.ParserCreate(namespace_separator=" ")
    depth = skipped = 0  # `skipped`: the depth of the element that is being left out

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth, skipped
        depth += 1
        if depth > MAX_DEPTH:
            raise SourceError(f"is nested more than {MAX_DEPTH} elements deep")
        local = name.rpartition(" ")[2]
        if not skipped and local in without:
            skipped = depth
        if not skipped:
            builder.start(local, dict(map(_attribute, attributes.items())))

    def end(name: str) -> None:
        nonlocal depth, skipped
        if not skipped:
            builder.end(name.rpartition(" ")[2])
        elif skipped == depth:
            skipped = 0
        depth -= 1

    def text(words: str) -> None:
        if not skipped:
            builder.data(words)

    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = text
    run_parser(parser, data)
    return builder.close()


def run_parser(parser: expat.XMLParserType, data: bytes) -> None:
    """Run a parser on XML. Raises `SourceError` if the XML is damaged or declares entities."""

    def entity(*declaration: object) -> None:
        raise SourceError("declares entities in its XML, as bombs do")

    parser.EntityDeclHandler = entity
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, UnicodeError, LookupError, ValueError) as error:
        raise SourceError("is damaged: its XML cannot be read") from error


def _attribute(pair: tuple[str, str]) -> tuple[str, str]:
    _, separator, local = pair[0].rpartition(" ")
    return (f":{local}" if separator else local), pair[1]


def properties(root: Element | None) -> tuple[str | None, str | None]:
    """Title and author, which all these formats store as Dublin Core elements; None for what is missing."""
    if root is None:
        return None, None
    title = next(words(root, "title"), None)
    return telling_title(title), next(words(root, "creator"), None)


def words(root: Element, name: str) -> Iterator[str]:
    """The text of each element with this name, without empty ones."""
    for element in root.iter(name):
        text = "".join(element.itertext()).strip()
        if text:
            yield text


# -- e-books -------------------------------------------------------------------------------------------------

MAX_CHAPTERS = 5000


def parse_epub(data: bytes) -> Parsed:
    """The text and title of an e-book. Raises `SourceError` if its chapters are encrypted."""
    with Package(data) as package:
        rootfile = next(package.xml("META-INF/container.xml").iter("rootfile"), None)
        main = rootfile.get("full-path", "") if rootfile is not None else ""
        book = package.xml(main)
        # Some books spell names in another letter case than their zip.
        spellings = {name.casefold(): name for name in sorted(package.names)}
        names = _chapters(book, posixpath.dirname(main))
        chapters = [name if name in package else spellings.get(name.casefold(), name) for name in names]
        # Often only fonts are encrypted, which is harmless.
        root = package.optional_xml("META-INF/encryption.xml")
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
