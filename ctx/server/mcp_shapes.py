"""Parses MCP messages, and builds what models read: instructions, descriptions of the document tools (search,
get and the like) with short schemas, results as Markdown, and errors.

REST and the command line offer the same tools with their full schemas. If documents have no embeddings
(`semantic` is false), no text mentions semantic or hybrid search.
"""

import base64
import json
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import mcp_types as types
import orjson
from mcp import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ctx.errors import CtxError
from ctx.memory.dialects.base import Dialect
from ctx.models import AUTO, JSON, SourceStatus
from ctx.server import errors
from ctx.text.filetypes import is_code
from ctx.text.strings import counted, sound
from ctx.tools.schema import put_right
from ctx.tools.toolbox import Tool

# Tokens of a document in a reply, by default; clients refuse replies of more than 25,000 tokens.
MAX_TOKENS = 8_000
FILES = 5  # default number of files in a search result
PASSAGES = 3  # passages per file in a search result
MAX_SOURCES = 8  # the instructions name at most this many sources
MAX_NAMES = 6  # the instructions name at most this many folders, and this many file types
MARKDOWN = "markdown"

# -- messages ------------------------------------------------------------------------------------------------

_TITLES = {types.PARSE_ERROR: "Parse error: ", types.INVALID_REQUEST: "Invalid request: "}


class MessageFault(ValueError):
    """Raised for a message that must not reach the SDK. `reply` is the JSON-RPC error to send back."""

    def __init__(self, id: JSON, code: int, reason: str, **data: JSON) -> None:
        super().__init__(reason)
        error = types.ErrorData(
            code=code, message=_TITLES.get(code, "") + reason, data={**data, "details": reason}
        )
        is_id = isinstance(id, str | int) and not isinstance(id, bool)
        self.reply = types.JSONRPCError(jsonrpc="2.0", id=id if is_id else None, error=error)


def read_message(text: str | bytes) -> dict[str, JSON]:
    """Parses and checks one JSON-RPC message. Raises `MessageFault`."""
    try:
        message = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MessageFault(None, types.PARSE_ERROR, str(error)[:200]) from error
    if not isinstance(message, dict):
        reason = "send one JSON-RPC 2.0 message as a JSON object; batches are not supported"
        raise MessageFault(None, types.INVALID_REQUEST, reason)
    try:
        types.jsonrpc_message_adapter.validate_json(text, by_name=False)
    except ValueError as error:
        reason = 'a message needs "jsonrpc": "2.0", a method, and an object as params'
        raise MessageFault(message.get("id"), types.INVALID_REQUEST, reason) from error
    id = message.get("id", 0)
    if "method" in message and (not isinstance(id, str | int) or isinstance(id, bool)):
        # The SDK would treat a request with such an id as a notification, and the client would wait forever.
        reason = "the id of a request must be a string or an integer; a notification has no id"
        raise MessageFault(None, types.INVALID_REQUEST, reason)
    return message


def complete_params(method: str, params: Any) -> None:
    """Completes the parameters of simple clients: adds what they leave out of `initialize`, and parses tool
    arguments that they send as JSON text.
    """
    if method == "initialize" and isinstance(params, dict):
        params.setdefault("protocolVersion", LATEST_HANDSHAKE_VERSION)
        params.setdefault("capabilities", {})
        params.setdefault("clientInfo", {"name": "unknown", "version": ""})
    if method == "tools/call" and isinstance(params, dict) and isinstance(params.get("arguments"), str):
        with suppress(ValueError, RecursionError):
            params["arguments"] = json.loads(params["arguments"])


def rpc_code(error: CtxError, dialect: Dialect | None) -> int | None:
    """The JSON-RPC code of an error; None if MCP reports it as a tool error. `dialect`: that of the pack."""
    code = errors.row_of(type(error)).rpc
    return code if dialect is None else dialect.codes.get(error.word, code)


def rpc_error(error: CtxError, dialect: Dialect | None) -> MCPError:
    """The JSON-RPC error for a `CtxError`, with the codes of the pack's dialect if there is one."""
    data, code = errors.rpc_data(error), rpc_code(error, dialect)
    if dialect is not None and dialect.details:
        data["details"] = error.message
    return MCPError(code=errors.INTERNAL if code is None else code, message=error.message, data=data)


def cursor_text(source: str, source_id: str) -> str:
    """The cursor of the page that starts after this document."""
    return base64.urlsafe_b64encode(f"{source}\0{source_id}".encode()).decode()


def cursor_of(text: str) -> tuple[str, str]:
    """The source and source id in a cursor of `cursor_text`. Raises `MCPError` for any other text."""
    try:
        source, source_id = base64.urlsafe_b64decode(text.encode()).decode().split("\0")
    except ValueError as error:
        raise MCPError(code=types.INVALID_PARAMS, message="Invalid cursor") from error
    return source, source_id


# -- tools and results ---------------------------------------------------------------------------------------


def tool_row(tool: Tool) -> types.Tool:
    """A tool as `tools/list` shows it."""
    hints, output = tool.annotations, tool.output_schema
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        # The legacy era allows only object schemas.
        output_schema=output if isinstance(output, dict) and output.get("type") == "object" else None,
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive and not hints.read_only,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


def tool_result(
    result: JSON, tool: Tool, *, pretty: bool = False, chunks: bool = False
) -> types.CallToolResult:
    """The result as structured content, with a text copy for clients that read only text.

    A script may return an MCP result, `{"content": [{"type": "image", ...}]}`, which is passed on unchanged.
    For a document the text is its body, and the structured content has the chunks only if `chunks` is set.
    """
    if isinstance(result, dict):
        content = result.get("content")
        if tool.output_schema is None and _is_content(content):
            with suppress(ValueError):  # not MCP content
                return types.CallToolResult.model_validate(result)
        if tool.builtin and tool.name == "get" and isinstance(result.get("body"), str):
            omitted = {"body"} if chunks else {"body", "chunks"}
            fields = {key: value for key, value in result.items() if key not in omitted}
            return _answer(sound(result["body"]), fields)
    option = orjson.OPT_INDENT_2 if pretty else None
    try:
        text = orjson.dumps(result, option=option).decode()
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        result = errors.storable(result)
        text = orjson.dumps(result, option=option).decode()
    if isinstance(result, str):
        text = result
    return _answer(text, result if isinstance(result, dict) else {"result": result})


def _is_content(value: JSON) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and "type" in block for block in value)
    )


def text_result(result: JSON) -> types.CallToolResult:
    """The Markdown answer of a document tool, without structured content, so that nothing is sent twice."""
    note = f"\n({result['note']})" if result.get("note") else ""
    return _answer(sound(f"{result['text']}{note}"))


def tool_failure(message: str, fields: JSON = None) -> types.CallToolResult:
    """A tool error (`isError`), which the model can fix.

    If `fields` is a dict, the structured content has its fields, and the message as `error`.
    """
    structured = None if fields is None else {"error": message, **fields}
    return _answer(f"Error: {message}", structured, is_error=True)


def _answer(
    text: str, structured: dict[str, JSON] | None = None, *, is_error: bool = False
) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured, is_error=is_error
    )


# -- the document tools --------------------------------------------------------------------------------------


class View(NamedTuple):
    """How models see a tool: its description, its parameters, and its default arguments for them."""

    description: str
    properties: Mapping[str, JSON]
    required: tuple[str, ...] = ()
    defaults: Mapping[str, JSON] = {}

    @property
    def schema(self) -> dict[str, JSON]:
        return {"type": "object", "properties": dict(self.properties), "required": list(self.required)}


def _about(description: str, kind: str = "string") -> dict[str, JSON]:
    return {"type": kind, "description": description}


_TEXT = {"type": "string"}
_FORMAT = {"type": "string", "enum": ["text", "json"]}
_PATH = _about("path, path:10-40 or path#Symbol")
VIEWS: Mapping[str, View] = {
    "search": View(
        "Find code and pages by words, names or meaning: paths, line ranges, symbols and the best lines.",
        {
            "query": _about("a question, words or an identifier; quotes for an exact phrase"),
            "path": _about("folder or glob: src, *.py"),
            "type": _about("code, prose or a media type"),
            "source": _about("source name"),
            "limit": _about(f"files, {FILES} by default", "integer"),
            "mode": {"type": "string", "enum": ["hybrid", "keyword", "semantic"]},
            "since": _about("ISO 8601"),
            "until": _about("ISO 8601"),
            "format": _FORMAT,
        },
        ("query",),
        {"limit": FILES, "per_document": PASSAGES},
    ),
    "get": View(
        "Read a file, a definition, a section or some lines. A query cuts long texts to the parts about it.",
        {
            "path": _PATH,
            "query": _about("words of the problem; of a long text, only the blocks around them are shown"),
            "source": _about("source name"),
            "id": _about("in place of path"),
            "start_line": {"type": "integer"},
            "end_line": {"type": "integer"},
            "max_tokens": _about(f"{MAX_TOKENS} by default", "integer"),
            "format": _FORMAT,
        },
        (),
        {"max_tokens": MAX_TOKENS},
    ),
    "outline": View(
        "List the definitions of a file, the members of path#Class, or a page's headings, with line ranges.",
        {"path": _PATH, "query": _about("only members with these words"), "source": _TEXT, "format": _FORMAT},
        ("path",),
    ),
    "symbol": View(
        "Where a name is defined, what it calls, and every line that refers to it.",
        {
            "name": _about("find or Store.find"),
            "path": _about("folder or glob"),
            "source": _TEXT,
            "limit": {"type": "integer"},
            "format": _FORMAT,
        },
        ("name",),
    ),
    "sources": View("List what is indexed and how fresh it is.", {"format": _FORMAT}),
}
_FILTERS = ("path", "type", "since", "until")


def view_of(tool: Tool) -> View | None:
    """The tool's view for models; None if all interfaces show the tool in the same way."""
    has_formats = "format" in tool.parameters.get("properties", {})
    return VIEWS.get(tool.name) if tool.builtin and has_formats else None


def listed(tool: Tool, semantic: bool) -> Tool:
    """The tool as MCP's `tools/list` shows it. Without embeddings, `search` has no `mode`."""
    view = view_of(tool)
    if view is None:
        return tool
    schema = view.schema
    if not semantic:
        schema["properties"].pop("mode", None)
    return tool._replace(description=view.description, parameters=schema, output_schema=None)


def _as_text(rule: JSON, value: JSON) -> JSON:
    """A value as text if the schema wants one and a model sent a number or a list of one text."""
    if (rule or {}).get("type") != "string":
        return value
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str):
        return value[0]
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def translated(tool: Tool, arguments: Mapping[str, JSON]) -> dict[str, JSON]:
    """Converts the arguments of a model to the tool's own arguments.

    A tool with a `View` answers in the format `markdown`, unless the model asks for JSON.
    """
    view = view_of(tool)
    if view is None:
        return dict(arguments)
    texts = {name: _as_text(view.properties.get(name), value) for name, value in arguments.items()}
    passed, unknown = put_right(view.schema, texts, tuple(tool.parameters["properties"]), strict=False)
    as_json = passed.pop("format", None) == "json"
    # Passed on, so that the tool reports that it ignores them.
    passed |= {name: arguments[name] for name in unknown}
    passed = {**view.defaults, **passed}
    if tool.name == "search":
        filters = put_right(tool.parameters, {"filters": passed.pop("filters", None)}, strict=False)[0]
        narrowed = filters.get("filters") or {}
        if isinstance(narrowed, dict):  # a value of another type is reported by a later check
            narrowed |= {name: passed.pop(name) for name in _FILTERS if name in passed}
        if narrowed:
            passed["filters"] = narrowed
        passed.setdefault("mode", AUTO)
    if not as_json and not (tool.name == "get" and passed.get("chunks")):
        passed["format"] = MARKDOWN
    return passed


def index_instructions(
    statuses: list[SourceStatus], media_types: Mapping[str, int], folders: Counter[str], semantic: bool
) -> str:
    """The instructions that a model reads first: what is indexed, and how to use the tools."""
    filled = [status for status in statuses if status.doc_count]
    named = [f"{status.name} ({counted(status.doc_count, 'file')})" for status in filled[:MAX_SOURCES]]
    more = f" and {len(filled) - MAX_SOURCES} more sources" if len(filled) > MAX_SOURCES else ""
    kinds = [
        f"{count} {name.rpartition('/')[2].removeprefix('x-')}"
        for name, count in sorted(media_types.items(), key=lambda entry: -entry[1])[:MAX_NAMES]
    ]
    tops = [f"{name}/" for name, _ in folders.most_common(MAX_NAMES) if name]
    lines = [
        f"An index of {', '.join(named)}{more}." if named else "Nothing is indexed yet.",
        f"Files: {', '.join(kinds)}." if kinds else "",
        f"Folders: {', '.join(tops)}." if tops else "",
        "Use `search` instead of grep when you do not know the exact name or file"
        + (": it finds words and meaning." if semantic else ".")
        + " Ask with the words of the problem.",
        "Results show ranges and the best lines, which are often enough. To read more, call `get` with "
        + ("path#Symbol" if any(map(is_code, media_types)) else "path#Heading")
        + " and a query: it cuts long texts to the parts about it.",
        "`outline` lists a file's members, `symbol` the definition and all uses of a name.",
    ]
    return "\n".join(filter(None, lines))


def short_instructions(semantic: bool) -> str:
    """Instructions without a description of the index, for use when the index cannot be read."""
    hybrid = ' (mode "hybrid" finds both words and meaning)' if semantic else ""
    return (
        f"Search the user's documents with `search`{hybrid}, read one with `get`, see what is indexed and "
        "how fresh it is with `sources`. Results carry a heading and line numbers; cite them."
    )
