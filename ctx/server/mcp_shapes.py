"""What MCP's messages are made of: tools as lists show them, results, errors, cursors."""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import mcp_types as types
import orjson
from mcp import MCPError

from ctx.errors import CtxError
from ctx.server import errors
from ctx.text import sound
from ctx.tools.base import Tool
from ctx.types import JSON

# A document's text is sent once: it is the text of the reply, and the structured content has the fields about
# it.
TEXT_FIELDS: Mapping[str, str] = {"get": "body"}


class Dialect(NamedTuple):
    """How a pack's clients expect protocol errors, where that differs from the standard."""

    unknown_tool: int = types.INVALID_PARAMS
    rate_limited: int = errors.RATE_LIMITED
    store: int | None = None  # None: as everywhere
    bad_arguments: int | None = None  # None: a tool error
    details: bool = False  # every error carries data.details
    pretty: bool = False  # the text copy is indented JSON


def tool_row(name: str, tool: Tool) -> types.Tool:
    """A tool in a list, under the name that the endpoint shows."""
    hints = tool.annotations
    return types.Tool(
        name=name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.parameters,
        output_schema=_output_schema(tool),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=hints.read_only,
            destructive_hint=hints.destructive and not hints.read_only,
            idempotent_hint=hints.idempotent,
            open_world_hint=hints.open_world,
        ),
    )


def _output_schema(tool: Tool) -> Any:
    schema = tool.output_schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None  # the older era knows object schemas only
    field = text_field(tool)
    if field is None:
        return schema
    properties = {name: rule for name, rule in schema.get("properties", {}).items() if name != field}
    required = [name for name in schema.get("required", ()) if name != field]
    return {**schema, "properties": properties, "required": required}


def tool_result(
    result: JSON, tool: Tool, *, pretty: bool = False, chunks: bool = False
) -> types.CallToolResult:
    """The result as structured content, with a text copy for clients that read only text.

    A script may answer in MCP's own shape, `{"content": [{"type": "image", ...}]}`: it goes through as it is.
    Of a document the text is the body alone, which the structured content leaves out, and its chunks where
    they were asked for.
    """
    if isinstance(result, dict):
        own_shape = _in_mcp_shape(result, tool)
        if own_shape is not None:
            return own_shape
        field = text_field(tool)
        if field is not None and isinstance(result.get(field), str):
            return _document(result, field, chunks=chunks)
    result, text = _told(result, orjson.OPT_INDENT_2 if pretty else None)
    if isinstance(result, str):
        return _answer(result, {"result": result})
    return _answer(text, result if isinstance(result, dict) else {"result": result})


def _document(result: dict[str, JSON], field: str, *, chunks: bool) -> types.CallToolResult:
    """A result whose field is the text of a document."""
    omitted = {field} if chunks else {field, "chunks"}
    fields = {key: value for key, value in result.items() if key not in omitted}
    return _answer(sound(result[field]), fields)


def _told(result: JSON, option: int | None) -> tuple[JSON, str]:
    """A result as JSON can say it, and its text."""
    try:
        return result, orjson.dumps(result, option=option).decode()
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        result = errors.storable(result)
        return result, orjson.dumps(result, option=option).decode()


def _in_mcp_shape(result: dict[str, JSON], tool: Tool) -> types.CallToolResult | None:
    if tool.output_schema is not None or not _is_content(result.get("content")):
        return None
    try:
        return types.CallToolResult.model_validate(result)
    except ValueError:
        return None  # it only looked like content: it is the tool's own data


def _answer(text: str, structured: dict[str, JSON]) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured
    )


def tool_failure(message: str, fields: JSON = None) -> types.CallToolResult:
    """A failure that the model can mend; `fields`: what a client of the tool reads even then, beside
    `error`.
    """
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"Error: {message}")],
        structured_content=None if fields is None else {"error": message, **fields},
        is_error=True,
    )


def text_field(tool: Tool) -> str | None:
    """The field of a tool's result that is sent as the text, and only there; None: all is sent as both."""
    return TEXT_FIELDS.get(tool.name) if tool.builtin else None


def _is_content(value: JSON) -> bool:
    kinds = ("text", "image", "audio", "resource", "resource_link")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and block.get("type") in kinds for block in value)
    )


NAMELESS = (
    "the id of a request is a text or a whole number; without one it is a notification, which is not answered"
)


def has_no_name(message: dict[str, Any]) -> bool:
    """Whether a JSON-RPC message asks for an answer under an id that is none: null, a list, 1.5.

    The SDK would take it for a notification, and its sender would wait for ever.
    """
    if "id" not in message or "method" not in message:
        return False
    id = message["id"]
    return not isinstance(id, str | int) or isinstance(id, bool)


_NEEDED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def params_fault(message: dict[str, Any]) -> str | None:
    """What of a request's parameters is of the wrong kind, with the right one; None where nothing is.

    The SDK refuses them too, and does not say which.
    """
    method, params = message.get("method"), message.get("params")
    if not isinstance(method, str) or message.get("id") is None:
        return None
    if params is not None and not isinstance(params, dict):
        return "params is an object"
    return _fields_fault(method, params or {})


def _fields_fault(method: str, fields: dict[str, JSON]) -> str | None:
    needed = _NEEDED.get(method)
    if needed is not None and not isinstance(fields.get(needed), str):
        return f"params.{needed} is a text"
    if needed == "name" and not isinstance(fields.get("arguments") or {}, dict):
        return "params.arguments is an object"
    if method.endswith("/list") and not isinstance(fields.get("cursor") or "", str):
        return "params.cursor is the nextCursor of the reply before"
    return None


def is_protocol_fault(error: CtxError, dialect: Dialect) -> bool:
    """Whether an error of a call is the protocol's to report, and not the tool's."""
    return _code(error, dialect) is not None


def rpc_error(error: CtxError, dialect: Dialect) -> MCPError:
    """An error of ours in JSON-RPC, with the codes of the dialect."""
    data, code = errors.rpc_data(error), _code(error, dialect)
    if dialect.details:
        data["details"] = error.message
    return MCPError(code=errors.INTERNAL if code is None else code, message=error.message, data=data)


def _code(error: CtxError, dialect: Dialect) -> int | None:
    """The JSON-RPC code of an error in a dialect; None where it is the tool's to report."""
    codes = {
        "rate_limited": dialect.rate_limited,
        "store_error": dialect.store,
        "busy": dialect.store,
        "bad_request": dialect.bad_arguments,
        "embeddings_disabled": dialect.bad_arguments,
    }
    code = codes.get(error.word)
    return errors.row(error).rpc if code is None else code


def cursor_text(source: str, source_id: str) -> str:
    """The cursor of the page that begins after this document."""
    return base64.urlsafe_b64encode(json.dumps([source, source_id]).encode()).decode()


def cursor_of(text: str) -> tuple[str, str]:
    """Source and source id of a cursor. Raises `MCPError` for what is none."""
    try:
        source, source_id = json.loads(base64.urlsafe_b64decode(text.encode()))
        if not isinstance(source, str) or not isinstance(source_id, str):
            raise TypeError
        f"{source}{source_id}".encode()  # a lone surrogate, of which there is no document
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise MCPError(code=types.INVALID_PARAMS, message="Invalid cursor") from error
    return source, source_id
