"""The tools `outline` (the definitions or headings in a file) and `symbol` (where a name is defined and
used).
"""

import re
from collections.abc import Sequence

from ctx.code.outline import VALUES, blocks, candidates, enclosing, members
from ctx.code.symbols import Definition
from ctx.errors import BadRequest, NotFound
from ctx.formats.table import ASCIIDOC, BY_MEDIA_TYPE, LATEX, MARKDOWN, ORG, RST, function_of
from ctx.models import JSON, Caller, Filters, StoredText, Symbol, record_json
from ctx.store.record import StoredDocument
from ctx.text.analyze import DEFINING
from ctx.text.filetypes import EXAMPLE, TEST, is_code, role
from ctx.text.strings import first_few
from ctx.tools.places import Library, place_of, resolve_sources, unknown_source
from ctx.tools.search import text_schema
from ctx.tools.toolbox import Tool, document_tool

MAX_FILES = 2000  # maximum files to search for references
MAX_DEFINITIONS = 200
DEFAULT_LIMIT = 30  # default number of definitions and references in a reply of `symbol`
MAX_CALLS = 12  # maximum called names in a reply of `symbol`
LONG_FUNCTION = 30  # lines; the outline of a longer function lists its blocks
MAX_MEMBERS = 400
_REPARSED = (MARKDOWN, RST, ASCIIDOC, ORG, LATEX)
# Sphinx directives that describe an object: `.. confval:: html_theme`, `.. py:function:: open(file)`.
_OBJECT = re.compile(
    r"(?P<indent> *)\.\. (?:\w+:)?(?:confval|setting|option|cmdoption|envvar|function|method|classmethod"
    r"|staticmethod|class|exception|attribute|property|data|module|macro|type|member|directive|role|describe"
    r"|object)::[ ]+(?P<name>[^(]+)"
)
_BELOW_HEADINGS = 100  # the level of such objects
_CALL = re.compile(r"\b([A-Za-z_]\w{2,})\s*\(")


# -- outline -------------------------------------------------------------------------------------------------


def outline_tool(library: Library) -> Tool:
    """The tool `outline`: lists the members of a file, or of one class or function in it."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        place = place_of(library, arguments["path"], arguments.get("source"))
        document = place.stored.document
        rows = outline_rows(place.stored, place.symbol)
        words = [word.casefold() for word in arguments.get("query", "").split()]
        if words:
            rows = [
                row
                for row in rows
                if any(word in f"{row['name']} {row['signature']}".casefold() for word in words)
            ]
        total = line_count(document.body)
        answer = {"source": document.source, "path": document.source_id, "total_lines": total}
        answer["members"] = rows[:MAX_MEMBERS]
        if len(rows) > MAX_MEMBERS:
            answer["note"] = (
                f"{len(rows) - MAX_MEMBERS} more members; name one class (PATH#Class) or give a query"
            )
        elif not rows:
            answer["note"] = (
                "no member matches these words" if words else "no definitions or headings in this file"
            )
        return answer

    return document_tool(
        "outline",
        "Outline a file",
        "List the definitions in a file of code, or the headings of a page, with line ranges",
        {
            "path": text_schema("The file's path, or path#Class for the members of one"),
            "source": text_schema("The source's name, if several sources have the path", 500),
            "query": text_schema("Only members with one of these words", 500),
        },
        run,
        required=["path"],
    )


def line_count(body: str) -> int:
    """The number of lines in a text, as `get` counts them: a line end at the end of the text begins no new
    line.
    """
    return body.count("\n") + (body[-1:] not in ("", "\n"))


def outline_rows(stored: StoredDocument, name: str | None = None) -> list[dict[str, JSON]]:
    """The members of a document, or of the definition called `name` in it. Raises `NotFound`,
    `BadRequest`.
    """
    document = stored.document
    outer = named_definition(stored, name) if name else None
    if not document.definitions:
        return [
            _member(each)
            for each in headings(stored)
            if outer is None or outer.start_line <= each.start_line <= outer.end_line
        ]
    listed = members(document.definitions, outer)
    rows = [_member(each) for each in listed]
    if outer and len(listed) <= 1 and outer.end_line - outer.start_line >= LONG_FUNCTION:
        parts = blocks(document.body.split("\n"), outer.start_line, outer.end_line)
        rows += [
            _member(Definition("", "", "block", text, first, first, last)) for first, last, text in parts
        ]
    return rows


def _member(definition: Definition) -> dict[str, JSON]:
    return {**record_json(Symbol.of(definition)), "signature": definition.signature}


def headings(stored: StoredDocument) -> list[Definition]:
    """The headings of a document in the form of definitions; `qualified` is the path of headings."""
    document = stored.document
    row = BY_MEDIA_TYPE.get(document.media_type)
    places: list[tuple[int, int, str]] = []  # (line, level, title)
    signatures: dict[int, str] = {}  # line -> signature, for entries that are not headings
    if row is not None and row in _REPARSED:
        parsed = function_of(row.reader)(document.body)
        if parsed.body == document.body:
            places = [
                (document.body.count("\n", 0, each.start) + 1, each.level, each.title)
                for each in parsed.headings
                if each.title
            ]
    if row is RST:
        for line, text in enumerate(document.body.split("\n"), start=1):
            if match := _OBJECT.match(text):
                places.append((line, _BELOW_HEADINGS + len(match["indent"]), match["name"].strip()))
                signatures[line] = text.strip()
        places.sort()
    if not places:
        last = ""
        for chunk in stored.chunks:
            if chunk.heading and chunk.heading != last:
                parts = chunk.heading.split(" > ")
                places.append((chunk.start_line, len(parts), parts[-1]))
                last = chunk.heading
    total = line_count(document.body)
    definitions: list[Definition] = []
    open_: list[tuple[int, str]] = []
    for i, (line, level, title) in enumerate(places):
        while open_ and open_[-1][0] >= level:
            open_.pop()
        open_.append((level, title))
        end = next((later - 1 for later, next_level, _ in places[i + 1 :] if next_level <= level), total)
        path = " > ".join(name for _, name in open_)
        signature = signatures.get(line) or f"{'#' * level} {title}"
        definitions.append(Definition(title, path, "heading", signature, line, line, max(line, end)))
    return definitions


def _plain_words(title: str) -> str:
    return " ".join(re.sub(r"[^\w.]+", " ", title.casefold()).split())


def named_definition(stored: StoredDocument, name: str) -> Definition:
    """The definition or heading with this name in a document. Raises `NotFound`, or `BadRequest` if several
    match.
    """
    document = stored.document
    if document.definitions:
        listed, matches = members(document.definitions), candidates(document.definitions, name)
    else:
        listed, exact, words = headings(stored), name.strip().casefold(), _plain_words(name)
        matches = [each for each in listed if exact in (each.name.casefold(), each.qualified.casefold())]
        matches = matches or [each for each in listed if _plain_words(each.name) == words]
        matches = matches or [each for each in listed if words and words in _plain_words(each.name)]
    if not matches:
        names = first_few([each.qualified for each in listed], 12) or "nothing"
        raise NotFound(f"no '{name[:80]}' in {document.source_id}; it has {names}")
    if len({each.qualified for each in matches}) > 1:
        names = ", ".join(
            f"{document.source_id}#{each.qualified} ({each.start_line}-{each.end_line})"
            for each in matches[:8]
        )
        raise BadRequest(f"'{name[:80]}' matches {len(matches)} members: {names}")
    return max(matches, key=lambda each: (each.kind != "impl", each.end_line - each.start_line))


# -- symbol --------------------------------------------------------------------------------------------------


def symbol_tool(library: Library) -> Tool:
    """The tool `symbol`: lists the definitions of a name, then its references."""
    return document_tool(
        "symbol",
        "Look up a name",
        "Find where a name is defined, what it calls, and every line that refers to it",
        {
            "name": text_schema("A function, class, method or variable: find, Store.find", 200),
            "source": text_schema("Only this source, by name or type", 500),
            "path": text_schema("Only paths in a folder (src) or that match a glob (*.py)", 500),
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": 1000,
                "default": DEFAULT_LIMIT,
                "description": "The most definitions and references",
            },
        },
        lambda arguments, caller: symbol_answer(library, arguments),
        required=["name"],
    )


def symbol_answer(library: Library, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """The reply of `symbol`: the definitions of a name and the references to it, with tests and examples
    last. Raises `BadRequest` for an unknown source.
    """
    full_name = arguments["name"].strip().removesuffix("()")
    name = re.split(r"::|->|[.#]", full_name)[-1] or full_name
    source = arguments.get("source")
    sources = library.searched_names() if source else ()
    names = resolve_sources([source] if source else [], sources)
    filters = library.searcher.resolved(
        Filters(sources=names), [arguments["path"]] if arguments.get("path") else []
    )
    catalog = library.catalog
    defined = [
        (number, each)
        for number, each in catalog.definitions_named(name, MAX_DEFINITIONS)
        if filters.documents is None or number in filters.documents
    ]
    exact = {id(each) for each in candidates([each for _, each in defined], full_name)}
    defined = [(number, each) for number, each in defined if id(each) in exact] or defined
    hits = library.index.keyword(f'"{name}"', filters, MAX_FILES)
    numbers = [*(number for number, _ in defined), *(hit.document_no for hit in hits)]
    texts = catalog.bodies(list(dict.fromkeys(numbers)))
    if names is not None:
        texts = {number: text for number, text in texts.items() if text.source in names}
    defined = [(number, each) for number, each in defined if number in texts]
    defined.sort(
        key=lambda entry: (_rank(texts[entry[0]]), entry[1].kind in VALUES, texts[entry[0]].source_id)
    )
    definition_lines = {(number, each.name_line) for number, each in defined}
    lines = [
        (text, line)
        for text in sorted(texts.values(), key=lambda each: (_rank(each), each.source_id))
        for line in _lines_with(name, text.body)
        if (text.document_no, line) not in definition_lines
    ]
    limit = arguments.get("limit", DEFAULT_LIMIT)
    listed = lines[: max(0, limit - len(defined))]
    around = catalog.definitions_of(sorted({text.document_no for text, _ in listed}))
    answer: dict[str, JSON] = {
        "name": full_name,
        "definitions": [
            {"source": texts[number].source, "path": texts[number].source_id, **_member(each)}
            for number, each in defined[:limit]
        ],
        "references": [_reference(text, line, around.get(text.document_no, ())) for text, line in listed],
        "definition_count": len(defined),
        "reference_count": len(lines),
    }
    if defined:
        answer["calls"] = _calls(library, texts[defined[0][0]], defined[0][1])
    if source and not names:
        answer["note"] = unknown_source(source, sources)
    elif not defined and not lines:
        answer["note"] = "0 exact matches; `search` also finds similar spellings and meanings"
    elif len(defined) + len(lines) > limit:
        answer["note"] = f"give limit = {len(defined) + len(lines)} to see all, or narrow with a path"
    return answer


def _lines_with(name: str, body: str) -> list[int]:
    """The numbers of the lines that contain a name as a whole word, without duplicates."""
    numbers: list[int] = []
    line, counted = 1, 0
    # Use `find`, because a regular expression with a look-behind takes twenty times as long.
    at = body.find(name)
    while at >= 0:
        end = at + len(name)
        if not (_in_word(body[at - 1 : at]) or _in_word(body[end : end + 1])):
            line += body.count("\n", counted, at)
            counted = at
            if not numbers or numbers[-1] != line:
                numbers.append(line)
        at = body.find(name, end)
    return numbers


def _in_word(char: str) -> bool:
    return char.isalnum() or char == "_"


def _rank(text: StoredText) -> tuple[bool, bool]:
    """A sort key that puts code before pages, and tests and examples last."""
    return role(text.source_id, text.media_type) in (TEST, EXAMPLE), not is_code(text.media_type)


def _reference(text: StoredText, line: int, definitions: Sequence[Definition]) -> dict[str, JSON]:
    around = enclosing(definitions, line)
    return {
        "source": text.source,
        "path": text.source_id,
        "line": line,
        "text": text.body.split("\n", line)[line - 1].strip()[:160],
        "within": around.qualified if around else None,
    }


def _calls(library: Library, text: StoredText, definition: Definition) -> list[str]:
    """The names that a definition calls and that some indexed code defines."""
    body = "\n".join(text.body.split("\n")[definition.start_line - 1 : definition.end_line])
    ignored = (definition.name, *DEFINING)  # `func (` is not a call
    called = [name for name in dict.fromkeys(_CALL.findall(body)) if name not in ignored and name[:2] != "__"]
    return library.index.vocabulary([], called[:64])[1][:MAX_CALLS]
