"""JSON replies, and the HTTP status, JSON-RPC code, body and headers of each error.

Status and code depend on the class of the error. A class without a row in TABLE uses the row of its nearest
ancestor class.
"""

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import orjson

from ctx import errors
from ctx.models import JSON, is_whole
from ctx.text.strings import sound

if TYPE_CHECKING:
    from starlette.responses import Response

logger = logging.getLogger(__name__)

INTERNAL = -32603
INVALID_REQUEST = -32600
INVALID_PARAMS = -32602
# JSON-RPC leaves this code to the server; clients in TypeScript use -32000 to -32002 themselves.
RATE_LIMITED = -32005


class Row(NamedTuple):
    """The HTTP status and the JSON-RPC code of an error class.

    If `rpc` is None, MCP reports the error as the result of the tool (`isError`), so that the model can fix
    its call.
    """

    status: int
    rpc: int | None


TABLE: dict[type[errors.CtxError], Row] = {
    errors.CtxError: Row(500, INTERNAL),
    errors.BadRequest: Row(400, None),
    errors.Conflict: Row(409, None),
    errors.NotFound: Row(404, None),  # but for an unknown tool, mcp.py uses INVALID_PARAMS
    errors.AccessError: Row(401, INVALID_REQUEST),
    errors.OriginNotAllowed: Row(403, INVALID_REQUEST),
    errors.Misdirected: Row(421, INVALID_REQUEST),
    errors.RateLimited: Row(429, RATE_LIMITED),
    errors.MethodNotAllowed: Row(405, INVALID_REQUEST),
    errors.PayloadTooLarge: Row(413, INVALID_REQUEST),
    errors.ScriptTimeout: Row(408, None),
    errors.ToolError: Row(500, None),
    errors.SourceError: Row(500, None),
    errors.StoreError: Row(503, INTERNAL),
}
Shape = Callable[[errors.CtxError], JSON]
"""A function from an error to the body of its reply."""


def row_of(kind: type[errors.CtxError]) -> Row:
    """The `TABLE` row of an error class, or of its nearest ancestor there."""
    return next(TABLE[ancestor] for ancestor in kind.__mro__ if ancestor in TABLE)


def body(error: errors.CtxError) -> JSON:
    """The default body of an error reply: `{"error": {"code", "message"}}`."""
    return {"error": {"code": error.word, "message": error.message}}


def rpc_body(error: errors.CtxError) -> JSON:
    """A JSON-RPC error without an id, for requests to MCP paths that are refused before MCP reads them."""
    code = row_of(type(error)).rpc
    reply = {"code": INVALID_REQUEST if code is None else code, "message": error.message}
    return {"jsonrpc": "2.0", "id": None, "error": {**reply, "data": rpc_data(error)}}


def rpc_data(error: errors.CtxError) -> dict[str, JSON]:
    """The `data` of a JSON-RPC error: the `word` of the error class, and for a rate limit the wait in ms."""
    data: dict[str, JSON] = {"code": error.word}
    if isinstance(error, errors.RateLimited | errors.Busy):
        data["retryAfterMs"] = math.ceil(error.retry_after_s * 1000)
    return data


def headers(error: errors.CtxError) -> dict[str, str]:
    """The extra reply headers for an error: `Allow`, `Connection`, `Retry-After` or `WWW-Authenticate`."""
    if isinstance(error, errors.RateLimited | errors.StoreError):
        return {"retry-after": str(max(1, math.ceil(error.retry_after_s)))}
    if isinstance(error, errors.PayloadTooLarge):
        return {"connection": "close"}  # close, because the rest of the body is not read
    if isinstance(error, errors.MethodNotAllowed):
        return {"allow": ", ".join(error.allowed)}
    if isinstance(error, errors.Unauthorized):
        fault = ', error="invalid_token"' if error.presented else ""
        return {"www-authenticate": f'Bearer realm="ctx"{fault}'}
    return {}


def method_not_allowed(path: str, method: str, allowed: Sequence[str]) -> errors.MethodNotAllowed:
    """The error for a path that exists but does not accept this method."""
    message = f"{path[:80]} does not accept {method[:16]}; use {', '.join(allowed)}"
    return errors.MethodNotAllowed(message, allowed=tuple(allowed))


def internal(request_id: str) -> errors.CtxError:
    """The error for an unexpected failure. Its details are in the log, under the request id."""
    return errors.CtxError(f"internal error; see request id {request_id} in the server's log")


def encode(value: JSON) -> bytes:
    """Encodes a value as JSON in UTF-8.

    Lone surrogates (from file names that are not UTF-8) become U+FFFD. NaN and infinities become null.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return orjson.dumps(storable(value))


def storable(value: JSON) -> JSON:
    """A copy that `orjson` can encode: no lone surrogates, and integers beyond 64 bits as floats."""
    if isinstance(value, str):
        return sound(value)
    if isinstance(value, dict):
        return {storable(str(name)): storable(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [storable(item) for item in value]
    if is_whole(value) and not -(2**63) <= value < 2**64:
        return float(value)  # JSON has no limit for integers, but orjson has
    return value


def json_reply(value: JSON, status: int = 200, headers: Mapping[str, str] | None = None) -> "Response":
    """An HTTP reply with a JSON body."""
    from starlette.responses import Response  # 33 ms, which `ctx doctor` and each `--help` save

    return Response(encode(value), status, headers=headers, media_type="application/json")


def error_reply(error: errors.CtxError, shape: Shape = body) -> "Response":
    """The HTTP reply for this error. `shape` builds its body."""
    return json_reply(shape(error), row_of(type(error)).status, headers(error))


def log_failure(error: errors.CtxError, request_id: str) -> None:
    """Logs why a request failed, with the first line of the cause; at level DEBUG, also the traceback."""
    reason = f" reason={error.message!r}" if isinstance(error, errors.StoreError) else ""
    cause = error.__cause__
    if cause is not None:
        reason += f" cause={type(cause).__name__}: {str(cause).strip().partition(chr(10))[0]}"
    trace = error if logger.isEnabledFor(logging.DEBUG) else None
    logger.warning("error id=%s code=%s%s", request_id, error.word, reason, exc_info=trace)
