"""Parses MCP messages, and builds tool rows, results, errors and cursors."""

import base64
import binascii
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import mcp_types as types
import orjson
from mcp import MCPError
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from ctx.errors import CtxError
from ctx.memory.dialects.base import Dialect
from ctx.models import JSON
from ctx.server import errors
from ctx.text.strings import sound
from ctx.tools.toolbox import Tool


def tool_row(tool: Tool) -> types.Tool:
    """A tool as `tools/list` shows it."""
    hints = tool.annotations
    return types.Tool(
        name=tool.name,
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


def _is_document(tool: Tool) -> bool:
    """Whether the tool returns a document. The body of a document is sent only as text, not twice."""
    return tool.builtin and tool.name == "get"


def _output_schema(tool: Tool) -> Any:
    schema = tool.output_schema
    if not isinstance(schema, dict) or schema.get("type") != "object":
        return None  # the legacy era allows only object schemas
    if not _is_document(tool):
        return schema
    properties = {name: rule for name, rule in schema.get("properties", {}).items() if name != "body"}
    required = [name for name in schema.get("required", ()) if name != "body"]
    return {**schema, "properties": properties, "required": required}


def tool_result(
    result: JSON, tool: Tool, *, pretty: bool = False, chunks: bool = False
) -> types.CallToolResult:
    """The result as structured content, with a text copy for clients that read only text.

    A script may return an MCP result, `{"content": [{"type": "image", ...}]}`, which is passed on unchanged.
    For a document the text is its body, and the structured content has the chunks only if `chunks` is set.
    """
    if isinstance(result, dict):
        if tool.output_schema is None and _is_content(result.get("content")):
            with suppress(ValueError):  # not MCP content after all
                return types.CallToolResult.model_validate(result)
        if _is_document(tool) and isinstance(result.get("body"), str):
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


def text_result(result: JSON) -> types.CallToolResult:
    """The Markdown of a document tool as text only, so that nothing is sent twice."""
    note = f"\n({result['note']})" if result.get("note") else ""
    text = sound(f"{result['text']}{note}")
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)])


def _answer(text: str, structured: dict[str, JSON]) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)], structured_content=structured
    )


def tool_failure(message: str, fields: JSON = None) -> types.CallToolResult:
    """A tool error (`isError`), which the model can fix.

    If `fields` is a table, the structured content has its fields and the message as `error`.
    """
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=f"Error: {message}")],
        structured_content=None if fields is None else {"error": message, **fields},
        is_error=True,
    )


def _is_content(value: JSON) -> bool:
    kinds = ("text", "image", "audio", "resource", "resource_link")
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(block, dict) and block.get("type") in kinds for block in value)
    )


class MessageFault(ValueError):
    """A message is refused before it reaches the SDK. `data` is added to the JSON-RPC error."""

    def __init__(self, id: JSON, code: int, reason: str, **data: JSON) -> None:
        super().__init__(reason)
        self.id = id if isinstance(id, str | int) and not isinstance(id, bool) else None
        self.code = code
        self.data = data

    def reply(self) -> types.JSONRPCError:
        """The JSON-RPC error to send back."""
        title = _TITLES.get(self.code)
        message = f"{title}: {self}" if title else str(self)
        error = types.ErrorData(code=self.code, message=message, data={**self.data, "details": str(self)})
        return types.JSONRPCError(jsonrpc="2.0", id=self.id, error=error)


_TITLES = {types.PARSE_ERROR: "Parse error", types.INVALID_REQUEST: "Invalid request"}


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
        # The SDK would treat it as a notification, and the sender would wait forever.
        reason = "the id of a request must be a string or an integer; a notification has no id"
        raise MessageFault(None, types.INVALID_REQUEST, reason)
    return message


_REQUIRED = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


_HANDSHAKE: dict[str, JSON] = {
    "protocolVersion": LATEST_HANDSHAKE_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "unknown", "version": ""},
}


def complete_params(method: str, params: Any) -> None:
    """Adds what simple clients leave out of `initialize`, and reads arguments that they send as JSON text."""
    if method == "initialize" and isinstance(params, dict):
        for name, value in _HANDSHAKE.items():
            params.setdefault(name, value)
    if method == "tools/call" and isinstance(params, dict) and isinstance(params.get("arguments"), str):
        with suppress(ValueError, RecursionError):
            params["arguments"] = json.loads(params["arguments"])


def params_fault(method: str, params: Mapping[str, JSON]) -> str | None:
    """A message about the first parameter with the wrong type; None if all are right.

    The errors of the SDK do not name the parameter.
    """
    required = _REQUIRED.get(method)
    if required is not None and not isinstance(params.get(required), str):
        return f"params.{required} must be a string"
    if required == "name" and not isinstance(params.get("arguments") or {}, dict):
        return "params.arguments must be an object"
    if method.endswith("/list") and not isinstance(params.get("cursor") or "", str):
        return "params.cursor must be the nextCursor of an earlier reply"
    return None


def rpc_code(error: CtxError, dialect: Dialect | None) -> int | None:
    """The JSON-RPC code of an error in this dialect; None if MCP reports it as a tool error."""
    code = errors.row(error).rpc
    return code if dialect is None else dialect.codes.get(error.word, code)


def rpc_error(error: CtxError, dialect: Dialect | None) -> MCPError:
    """The JSON-RPC error for a `CtxError`, with the codes of the dialect."""
    data, code = errors.rpc_data(error), rpc_code(error, dialect)
    if dialect is not None and dialect.details:
        data["details"] = error.message
    return MCPError(code=errors.INTERNAL if code is None else code, message=error.message, data=data)


def cursor_text(source: str, source_id: str) -> str:
    """The cursor of the page that starts after this document."""
    return base64.urlsafe_b64encode(json.dumps([source, source_id]).encode()).decode()


def cursor_of(text: str) -> tuple[str, str]:
    """The source and source id in a cursor of `cursor_text`. Raises `MCPError` for any other text."""
    try:
        source, source_id = json.loads(base64.urlsafe_b64decode(text.encode()))
        if not isinstance(source, str) or not isinstance(source_id, str):
            raise TypeError
        f"{source}{source_id}".encode()  # raises for a lone surrogate
    except (ValueError, TypeError, RecursionError, binascii.Error) as error:
        raise MCPError(code=types.INVALID_PARAMS, message="Invalid cursor") from error
    return source, source_id
