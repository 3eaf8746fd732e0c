"""The built-in tools `get`, `sources` and `refresh`, and the list of all built-in tools."""

import math
from collections.abc import Callable, Mapping

from ctx.code.outline import excerpt
from ctx.errors import BadParameter, BadRequest, NotFound
from ctx.models import JSON, Caller, Document, SourceStatus, Symbol, record_json, record_schema
from ctx.store.record import StoredDocument
from ctx.tools.markdown import answer_text
from ctx.tools.navigation import headings, named_definition, outline_tool, symbol_tool
from ctx.tools.places import Library, Place, document_at, place_of, unknown_source
from ctx.tools.search import TOKEN_CHARS, TOKENS, fitting, search_tool, text_schema
from ctx.tools.toolbox import Annotations, Tool, document_tool

Noted = Callable[[str, Mapping[str, JSON], Caller, JSON, JSON], None]
"""Called with a tool's name, the arguments, the caller, the tool's reply and the formatted answer."""


def builtin_tools(
    library: Library, final_limit: int, noted: Noted = lambda tool, arguments, caller, reply, answer: None
) -> list[Tool]:
    """The tools that every workspace has. `noted` is called after each call of a document tool."""
    documents = (
        search_tool(library, final_limit),
        get_tool(library),
        outline_tool(library),
        symbol_tool(library),
        sources_tool(library),
    )
    return [*(formatted(tool, library, noted) for tool in documents), refresh_tool(library)]


def formatted(tool: Tool, library: Library, noted: Noted) -> Tool:
    """The tool with an additional argument `format`. With "markdown" it returns `{"text": ...}`, for models
    and terminals.
    """

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        shown = arguments.get("format")
        reply = tool.run({name: value for name, value in arguments.items() if name != "format"}, caller)
        answer = reply
        if shown == "markdown":
            answer = {"text": answer_text(tool, arguments, reply, library.searcher, library.catalog)}
        if tool.name != "sources":
            noted(tool.name, arguments, caller, reply, answer)
        return answer

    rule = {
        "type": "string",
        "enum": ["json", "markdown"],
        "description": "markdown: a compact text for models",
    }
    properties = {**tool.parameters["properties"], "format": rule}
    text = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    output = None if tool.output_schema is None else {"anyOf": [tool.output_schema, text]}
    return tool._replace(
        parameters={**tool.parameters, "properties": properties}, output_schema=output, run=run
    )


# -- get -----------------------------------------------------------------------------------------------------


def get_tool(library: Library) -> Tool:
    """The tool `get`: returns a document, or lines of it, by its id or its path."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        stored, name, first, last = _place(arguments, library)
        answer = _document_json(stored.document)
        if arguments.get("chunks"):
            answer["chunks"] = [
                {"index": chunk.ordinal, "text": stored.document.body[chunk.start : chunk.end]}
                for chunk in stored.chunks
            ]
        name = arguments.get("symbol") or name
        if name:
            definition = named_definition(stored, name)
            first, last = definition.start_line, definition.end_line
            answer["symbol"] = record_json(Symbol.of(definition))
        if first is not None and last is not None:
            bounds = {"start_line": first, "end_line": last}
            arguments = {**bounds, **{key: value for key, value in arguments.items() if value is not None}}
        query = arguments.get("query")
        if not query:
            return answer | _lines(stored.document.body, arguments)
        answer |= _lines(stored.document.body, {**arguments, "max_tokens": None})
        return answer | _around(stored, answer, library, query, arguments.get("max_tokens"))

    line = {"type": "integer", "minimum": 1}
    return document_tool(
        "get",
        "Get a document",
        "Retrieve a document by its id or path, or one definition, section or some lines of it",
        {
            "id": text_schema("Document id, as search returned it", 200),
            "source": text_schema("In place of the id: the source's name", 500),
            "source_id": text_schema("With source: the path or id there"),
            "path": text_schema("In place of the id: a path, path:10-40 or path#Symbol"),
            "symbol": text_schema("Only this definition, or the section below this heading", 500),
            "query": text_schema("Only the parts around these words; the rest is left out"),
            "start_line": {**line, "description": "First line, counted from 1"},
            "end_line": {**line, "description": "Last line"},
            "max_tokens": TOKENS,
            "chunks": {"type": "boolean", "description": "Include the document's indexed chunks"},
        },
        run,
        alternatives=(("id",), ("source", "source_id"), ("path",)),
        output_schema=_get_schema(),
        bare=True,
        lengthy=True,
    )


def _place(arguments: dict[str, JSON], library: Library) -> Place:
    """The requested document, and the lines or the symbol in its path. If a source or source_id is given with
    an id, the document must have it. Raises `BadRequest`, `NotFound`.
    """
    id, path, source, source_id = (arguments.get(name, "") for name in ("id", "path", "source", "source_id"))
    # An id contains neither `/` nor `.`; models sometimes send a source_id as the id.
    if not source_id and {"/", "."} & set(id):
        id, path = "", id
    if id:
        stored = library.catalog.document(id.strip().lower())
        if (
            stored is None
            or source not in ("", stored.document.source)
            or source_id not in ("", stored.document.source_id)
        ):
            raise NotFound(f"no document with id: {id[:80]}")
        return Place(stored)
    if path:
        return place_of(library, path, arguments.get("source"))
    if not (source and source_id):
        raise BadRequest("missing required parameter: id (or path, or source and source_id)")
    if stored := document_at(library, source, source_id):
        return Place(stored)
    sources = library.searched_names()
    if source not in sources:
        raise NotFound(unknown_source(source, sources))
    raise NotFound(f"no document '{source_id[:200]}' in source '{source[:80]}'")


def _around(
    stored: StoredDocument, answer: dict[str, JSON], library: Library, query: str, max_tokens: int | None
) -> dict[str, JSON]:
    """The requested lines, but only the parts around the words of the query. Each part that is left out
    becomes one line. Text beyond `max_tokens` is cut at the end.
    """
    matcher = library.searcher.matcher(query)
    lines = stored.document.body.split("\n")
    first, last = answer["start_line"], min(answer["end_line"], len(lines))
    definitions = stored.document.definitions or headings(stored)
    texts: list[str] = []
    spans: list[list[int]] = []
    room = math.inf if max_tokens is None else max_tokens * TOKEN_CHARS
    for part in excerpt(lines, first, last, matcher, definitions):
        about = f": {part.elided}" if part.elided else ""
        text = f"… lines {part.first}-{part.last}{about}\n"
        if part.elided is None:
            text = "\n".join(lines[part.first - 1 : part.last]) + "\n"
        room -= len(text)
        if room < 0 and spans:
            remark = f"lines {part.first} to {last} are left out; continue with start_line = {part.first}"
            return {"body": "".join(texts), "parts": spans, "cut": remark}
        texts.append(text)
        if part.elided is None:
            spans.append([part.first, part.last])
    return {"body": "".join(texts), "parts": spans}


_HIDDEN = ("fingerprint", "content_hash", "definitions")  # fields of `Document` that replies do not contain


def _document_json(document: Document) -> dict[str, JSON]:
    row = record_json(document, omit=_HIDDEN)
    row["content_type"] = row.pop("media_type")
    return row | {"metadata": dict(document.metadata)}


def _get_schema() -> JSON:
    schema = record_schema(Document, omit=_HIDDEN)
    fields = schema["properties"]
    fields["content_type"] = fields.pop("media_type")
    chunk = {"index": {"type": "integer"}, "text": {"type": "string"}}
    fields["chunks"] = {
        "type": "array",
        "items": {"type": "object", "properties": chunk, "required": list(chunk)},
    }
    fields |= {name: {"type": "integer"} for name in ("start_line", "end_line", "total_lines")}
    fields["cut"] = {"type": "string"}
    fields["parts"] = {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}
    fields["symbol"] = {"type": "object"}
    return schema | {"required": ["id", "source", "source_id", "title", "body", "source_url", "updated_at"]}


def _lines(body: str, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """The requested lines of the body, their numbers, and a remark about lines that were cut. Raises
    `BadParameter` if the document has no such lines.
    """
    *whole, unended = body.split("\n")  # only "\n" ends a line, as for the line numbers of chunks
    lines = [f"{line}\n" for line in whole] + ([unended] if unended else [])
    count, max_tokens = len(lines), arguments.get("max_tokens")
    first, last = arguments.get("start_line", 1), min(arguments.get("end_line", count), count)
    if first > max(1, count):
        raise BadParameter("start_line", f"must be at most the document's last line, {count}, got {first}")
    if last < first and count:
        raise BadParameter("end_line", f"must be at least the first line, {first}, got {last}")
    answer: dict[str, JSON] = {}
    lines = lines[first - 1 : last]
    next_line = first + fitting(list(map(len, lines)), max_tokens)
    if next_line <= last:
        remark = f"lines {next_line} to {last} are left out; continue with start_line = {next_line}"
        answer["cut"], last = remark, next_line - 1
    text = "".join(lines[: next_line - first])
    if max_tokens is not None and len(text) > max_tokens * TOKEN_CHARS:
        text = text[: max_tokens * TOKEN_CHARS]
        answer["cut"] = f"line {first} is longer than max_tokens = {max_tokens}; its end is left out"
    return answer | {"body": text, "start_line": first, "end_line": last, "total_lines": count}


# -- sources and refresh -------------------------------------------------------------------------------------


def sources_tool(library: Library) -> Tool:
    """The tool `sources`: lists the configured sources with their health and document counts."""
    row = record_schema(SourceStatus) | {"required": ["name", "configured", "healthy", "doc_count"]}
    return document_tool(
        "sources",
        "List sources",
        "List configured data sources with their health and document counts",
        {},
        lambda arguments, caller: {"sources": [record_json(status) for status in library.statuses()]},
        output_schema={
            "type": "object",
            "properties": {"sources": {"type": "array", "items": row}},
            "required": ["sources"],
        },
        bare=True,
    )


def refresh_tool(library: Library) -> Tool:
    """The tool `refresh`: indexes sources now, reports progress, and returns what changed."""

    def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
        source = arguments.get("source")
        reports = library.refresh([source] if source else [], caller.progress)
        return {"sources": [dict(report) for report in reports]}

    return Tool(
        name="refresh",
        title="Refresh sources",
        description="Index a source (or all of them) now, without waiting for the watcher or the next poll",
        parameters={
            "type": "object",
            "properties": {
                "source": {"type": "string", "description": "A source's name or type (default: all)"}
            },
            "additionalProperties": False,
        },
        annotations=Annotations(read_only=False, destructive=False, idempotent=True, open_world=True),
        builtin=True,
        run=run,
    )
