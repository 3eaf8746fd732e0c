"""Documents made by hand, as small as their formats allow: what a reader must take, without the programs that
write them.
"""

import io
import itertools
import struct
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from xml.sax.saxutils import escape

W = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
A = "http://schemas.openxmlformats.org/drawingml/2006/main"
P = "http://schemas.openxmlformats.org/presentationml/2006/main"
S = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
RELS = "http://schemas.openxmlformats.org/package/2006/relationships"
OFFICE, TEXT, DRAW, TABLE, PRESENTATION = (
    f"urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"
    for name in ("office", "text", "drawing", "table", "presentation")
)


LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def zipped(parts: Mapping[str, str | bytes]) -> bytes:
    """A zip of the parts, in order."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, content in parts.items():
            stored = zipfile.ZIP_STORED if name == "mimetype" else None  # as OpenDocument and EPUB want it
            archive.writestr(name, content, stored)
    return buffer.getvalue()


def with_part(document: bytes, name: str, content: str | bytes) -> bytes:
    """A zipped document with another part in place of its own."""
    with zipfile.ZipFile(io.BytesIO(document)) as archive:
        parts: dict[str, str | bytes] = {entry: archive.read(entry) for entry in archive.namelist()}
    return zipped(parts | {name: content})


def pdf(pages: Sequence[str], *, info: str = "", compress: bool = False, extra: Sequence[str] = ()) -> bytes:
    """A PDF whose pages show these lines; `info` is its information dictionary, `extra` are further objects
    (from number 5 + 2n on).
    """
    kids = " ".join(f"{5 + 2 * i} 0 R" for i in range(len(pages)))
    objects: list[bytes] = [
        b"<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode(),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< {info} >>".encode(),
    ]
    for number, text in enumerate(pages):
        lines = " T* ".join(f"({line}) Tj" for line in text.split("\n") if line)
        stream = f"BT /F1 12 Tf 14 TL 72 720 Td {lines} ET".encode("latin-1") if text else b"0 0 90 90 re f"
        packing = b""
        if compress:
            stream, packing = zlib.compress(stream), b" /Filter /FlateDecode"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {6 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>".encode()
        )
        objects.append(b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(stream), packing, stream))
    objects += [text.encode() for text in extra]
    body, offsets = bytearray(b"%PDF-1.7\n"), []
    for number, content in enumerate(objects, 1):
        offsets.append(len(body))
        body += b"%d 0 obj\n%s\nendobj\n" % (number, content)
    start = len(body)
    body += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    body += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    body += b"trailer\n<< /Size %d /Root 1 0 R /Info 4 0 R >>\nstartxref\n%d\n%%%%EOF\n" % (
        len(objects) + 1,
        start,
    )
    return bytes(body)


def relations(*targets: tuple[str, str]) -> str:
    """A relationships part: (the last word of the type, the target), numbered rId1 and so on."""
    rows = "".join(
        f'<Relationship Id="rId{number}" Type="{R}/{kind}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, 1)
    )
    return f'<Relationships xmlns="{RELS}">{rows}</Relationships>'


def word_paragraph(text: str, style: str = "", properties: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr><w:r><w:t>{escape(text)}</w:t></w:r></w:p>"


def word_table(rows: Iterable[Iterable[str]]) -> str:
    cells = ("".join(f"<w:tc>{word_paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return "<w:tbl>" + "".join(f"<w:tr>{row}</w:tr>" for row in cells) + "</w:tbl>"


def word_style(name: str, base: str = "", properties: str = "") -> str:
    """A style, called by its name without blanks."""
    based = f'<w:basedOn w:val="{base}"/>' if base else ""
    return (
        f'<w:style w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/>{based}'
        f"<w:pPr>{properties}</w:pPr></w:style>"
    )


def docx(body: str, further_styles: str = "", **parts: str) -> bytes:
    """A Word document; `parts` are further parts of its folder, by stem."""
    styles = "".join(map(word_style, ("Title", "heading 1", "heading 2"))) + further_styles
    targets = [("styles", "styles.xml"), *((stem, f"{stem}.xml") for stem in parts)]
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("officeDocument", "word/document.xml")),
            "word/document.xml": f'<w:document xmlns:w="{W}"><w:body>{body}</w:body></w:document>',
            "word/styles.xml": f'<w:styles xmlns:w="{W}">{styles}</w:styles>',
            "word/_rels/document.xml.rels": relations(*targets),
            **{f"word/{stem}.xml": content for stem, content in parts.items()},
        }
    )


def pptx(slides: Sequence[tuple[str, str]], notes: Mapping[int, str] | None = None) -> bytes:
    """A presentation of (title, text) slides; `notes` by the slide's number."""

    def shape(kind: str, text: str) -> str:
        return (
            f'<p:sp><p:nvSpPr><p:nvPr><p:ph type="{kind}"/></p:nvPr></p:nvSpPr>'
            f"<p:txBody><a:p><a:r><a:t>{escape(text)}</a:t></a:r></a:p></p:txBody></p:sp>"
        )

    ids = "".join(f'<p:sldId id="{255 + n}" r:id="rId{n}"/>' for n in range(1, len(slides) + 1))
    names = f'xmlns:p="{P}" xmlns:a="{A}" xmlns:r="{R}"'
    parts: dict[str, str | bytes] = {
        "_rels/.rels": relations(("officeDocument", "ppt/presentation.xml")),
        "ppt/presentation.xml": f"<p:presentation {names}><p:sldIdLst>{ids}</p:sldIdLst></p:presentation>",
        # The file's name is not the slide's number.
        "ppt/_rels/presentation.xml.rels": relations(
            *(("slide", f"slides/slide{90 - n}.xml") for n in range(1, len(slides) + 1))
        ),
    }
    for number, (title, text) in enumerate(slides, 1):
        name = f"slide{90 - number}.xml"
        shapes = shape("title", title) + shape("body", text) + shape("sldNum", str(number))
        parts[f"ppt/slides/{name}"] = f"<p:sld {names}><p:cSld><p:spTree>{shapes}</p:spTree></p:cSld></p:sld>"
        if notes and number in notes:
            parts[f"ppt/slides/_rels/{name}.rels"] = relations(("notesSlide", "../notesSlides/notes.xml"))
            parts["ppt/notesSlides/notes.xml"] = f"<p:notes {names}>{shape('body', notes[number])}</p:notes>"
    return zipped(parts)


def xlsx(sheets: Mapping[str, Sequence[Sequence[str | float]]], merged: Sequence[str] = ()) -> bytes:
    """A workbook; cells are text (shared) or numbers, and `merged` ranges of each sheet such as "B2:B3"."""
    ranges = "".join(f'<mergeCell ref="{cells}"/>' for cells in merged)
    merging = f"<mergeCells>{ranges}</mergeCells>" if merged else ""
    shared: list[str] = []
    parts: dict[str, str | bytes] = {}
    for number, rows in enumerate(sheets.values(), 1):
        lines = []
        for row in rows:
            cells = ""
            for cell in row:
                if isinstance(cell, str):
                    shared.append(cell)
                    cells += f'<c t="s"><v>{len(shared) - 1}</v></c>'
                else:
                    cells += f"<c><v>{cell}</v></c>"
            lines.append(f"<row>{cells}</row>")
        parts[f"xl/worksheets/sheet{number}.xml"] = (
            f'<worksheet xmlns="{S}"><sheetData>{"".join(lines)}</sheetData>{merging}</worksheet>'
        )
    names = "".join(
        f'<sheet name="{name}" sheetId="{number}" r:id="rId{number}"/>'
        for number, name in enumerate(sheets, 1)
    )
    targets = [("worksheet", f"worksheets/sheet{n}.xml") for n in range(1, len(sheets) + 1)]
    strings = "".join(f"<si><t>{escape(text)}</t></si>" for text in shared)
    return zipped(
        {
            "[Content_Types].xml": "<Types/>",
            "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
            "xl/workbook.xml": f'<workbook xmlns="{S}" xmlns:r="{R}"><sheets>{names}</sheets></workbook>',
            "xl/_rels/workbook.xml.rels": relations(*targets, ("sharedStrings", "sharedStrings.xml")),
            "xl/sharedStrings.xml": f'<sst xmlns="{S}">{strings}</sst>',
            **parts,
        }
    )


def _record(kind: int, content: bytes) -> bytes:
    return struct.pack("<HH", kind, len(content)) + content


def xls(sheets: Mapping[str, Sequence[Sequence[str | float]]]) -> bytes:
    """A workbook of Excel 97 (BIFF8): a stream of records in a compound file ([MS-XLS], [MS-CFB])."""
    globals_begin = _record(0x809, struct.pack("<HHHHII", 0x600, 5, 0, 0, 0, 0))
    bodies = []
    for rows in sheets.values():
        body = _record(0x809, struct.pack("<HHHHII", 0x600, 0x10, 0, 0, 0, 0))
        for row, cells in enumerate(rows):
            for column, cell in enumerate(cells):
                place = struct.pack("<HHH", row, column, 0)
                if isinstance(cell, str):
                    text = struct.pack("<HB", len(cell), 1) + cell.encode("utf-16-le")
                    body += _record(0x204, place + text)
                else:
                    body += _record(0x203, place + struct.pack("<d", cell))
        bodies.append(body + _record(0x0A, b""))
    end = _record(0x0A, b"")
    names = [struct.pack("<HBB", 0, len(name), 1) + name.encode("utf-16-le") for name in sheets]
    offset = len(globals_begin) + sum(8 + len(name) for name in names) + len(end)
    index = b""
    for name, body in zip(names, bodies, strict=True):
        index += _record(0x85, struct.pack("<I", offset) + name)
        offset += len(body)
    return compound_file("Workbook", globals_begin + index + end + b"".join(bodies))


def compound_file(name: str, stream: bytes) -> bytes:
    """A compound file of one stream: header, one sector of the allocation table, the directory, the stream."""
    stream = stream.ljust(4096, b"\0")  # shorter ones are kept elsewhere
    sectors = -(-len(stream) // 512)
    chain = [0xFFFFFFFD, 0xFFFFFFFE, *range(3, 2 + sectors), 0xFFFFFFFE]
    table = struct.pack("<128I", *chain, *[0xFFFFFFFF] * (128 - len(chain)))

    def entry(title: str, kind: int, child: int, start: int, size: int) -> bytes:
        words = title.encode("utf-16-le")
        links = struct.pack("<HBBIII", len(words) + 2, kind, 1, 0xFFFFFFFF, 0xFFFFFFFF, child)
        return words.ljust(64, b"\0") + links + bytes(36) + struct.pack("<IQ", start, size)

    folder = entry("Root Entry", 5, 1, 0xFFFFFFFE, 0) + entry(name, 2, 0xFFFFFFFF, 2, len(stream))
    header = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(16)
    header += struct.pack("<HHHHH6x", 0x3E, 3, 0xFFFE, 9, 6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, 0xFFFFFFFE, 0, 0xFFFFFFFE, 0)
    header += struct.pack("<109I", 0, *[0xFFFFFFFF] * 108)
    return header + table + folder.ljust(512, b"\0") + stream.ljust(sectors * 512, b"\0")


def far_workbook(*far: str) -> bytes:
    """A workbook of a small table and of cells far from it (`XFD1048576`)."""
    rows = "".join(f'<row r="{place.lstrip(LETTERS)}"><c r="{place}"><v>7</v></c></row>' for place in far)
    text = '<c r="{}" t="inlineStr"><is><t>{}</t></is></c>'.format
    sheet = (
        f'<worksheet xmlns="{S}"><sheetData><row r="1">{text("A1", "Item")}{text("B1", "Price")}</row>'
        f'<row r="2">{text("A2", "quince")}{text("B2", "dear")}</row>{rows}</sheetData></worksheet>'
    )
    return with_part(xlsx({"a": [["b"]]}), "xl/worksheets/sheet1.xml", sheet)


def diagonal_workbook() -> bytes:
    """A sheet whose cells each have a row and a column of their own."""
    names = ["".join(letters) for count in (1, 2) for letters in itertools.product(LETTERS, repeat=count)]
    columns = [*names, *("".join(letters) for letters in itertools.product(LETTERS[:20], LETTERS, LETTERS))]
    return far_workbook(*(f"{column}{row}" for row, column in enumerate(columns[2:], 3)))


def _binary_record(kind: int, content: bytes = b"") -> bytes:
    size, sizes = len(content), b""
    while size > 127:
        sizes, size = sizes + bytes([size & 127 | 128]), size >> 7
    return bytes([kind] if kind < 128 else [kind & 127 | 128, kind >> 7]) + sizes + bytes([size]) + content


def xlsb(cells: Mapping[tuple[int, int], str]) -> bytes:
    """A binary workbook ([MS-XLSB]) with one sheet of texts at (row, column), in the order of rows."""

    def wide(text: str) -> bytes:
        return struct.pack("<I", len(text)) + text.encode("utf-16-le")

    size = struct.pack("<IIII", 0, max(row for row, _ in cells), 0, max(column for _, column in cells))
    sheet = _binary_record(129) + _binary_record(148, size) + _binary_record(145)
    for number, row in itertools.groupby(cells, key=lambda place: place[0]):
        sheet += _binary_record(0, struct.pack("<I", number) + bytes(13))
        for place in row:
            sheet += _binary_record(6, struct.pack("<II", place[1], 0) + wide(cells[place]))
    names = _binary_record(156, struct.pack("<II", 0, 1) + wide("rId1") + wide("Sheet"))
    book = _binary_record(131) + _binary_record(143) + names + _binary_record(144) + _binary_record(132)
    return zipped(
        {
            "_rels/.rels": relations(("officeDocument", "xl/workbook.bin")),
            "xl/workbook.bin": book,
            "xl/_rels/workbook.bin.rels": relations(("worksheet", "worksheets/sheet1.bin")),
            "xl/worksheets/sheet1.bin": sheet + _binary_record(146) + _binary_record(130),
        }
    )


def odf(kind: str, body: str, **parts: str) -> bytes:
    """An OpenDocument file of a kind (text, presentation, spreadsheet) with that body."""
    names = (
        f'xmlns:office="{OFFICE}" xmlns:text="{TEXT}" xmlns:draw="{DRAW}" xmlns:table="{TABLE}" '
        f'xmlns:presentation="{PRESENTATION}"'
    )
    content = (
        f"<office:document-content {names}><office:body><office:{kind}>{body}</office:{kind}>"
        "</office:body></office:document-content>"
    )
    return zipped(
        {
            "mimetype": f"application/vnd.oasis.opendocument.{kind}",
            "META-INF/manifest.xml": parts.get("manifest", "<manifest/>"),
            "content.xml": content,
        }
    )


def epub(chapters: Sequence[str], *, encrypted: Sequence[str] = ()) -> bytes:
    """A book titled "The Book" of these chapters (HTML bodies), the last file first in the zip."""
    items = "".join(
        f'<item id="c{n}" href="text/c%20{n}.xhtml" media-type="application/xhtml+xml"/>'
        for n in range(len(chapters))
    )
    spine = "".join(f'<itemref idref="c{n}"/>' for n in range(len(chapters)))
    ciphers = "".join(f'<CipherReference URI="{name}"/>' for name in encrypted)
    parts: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": '<container><rootfile full-path="OEBPS/book.opf"/></container>',
        "META-INF/encryption.xml": f"<encryption>{ciphers}</encryption>",
        "OEBPS/book.opf": '<package xmlns:dc="http://purl.org/dc/elements/1.1/"><metadata><dc:title>The '
        "Book</dc:title>"
        f"<dc:creator>A. Writer</dc:creator></metadata><manifest>{items}</manifest><spine>{spine}</spine></p"
        "ackage>",
    }
    for number, chapter in reversed(list(enumerate(chapters))):
        parts[f"OEBPS/text/c {number}.xhtml"] = f"<html><body>{chapter}</body></html>"
    return zipped(parts)


def message(subject: str, text: str, kind: str = "text/plain") -> str:
    """An e-mail."""
    return (
        f"From: Ada <ada@example.org>\nTo: bob@example.org\nSubject: {subject}\nDate: Mon, 2 Nov 2026 "
        "10:00:00 +0000\n"
        f'MIME-Version: 1.0\nContent-Type: {kind}; charset="utf-8"\nContent-Transfer-Encoding: '
        f"8bit\n\n{text}\n"
    )
