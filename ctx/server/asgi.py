"""Helpers for raw ASGI scopes, messages and replies."""

from collections.abc import Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope

from ctx.errors import CtxError
from ctx.models import JSON
from ctx.server import errors


def header(scope: Scope | Message, name: bytes) -> str | None:
    """The first header of that name, of a request or of the start of a reply."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), None)


def joined_headers(scope: Scope) -> dict[str, str]:
    """The headers of a request by name. The values of a repeated header are joined: two `Host` or `Origin`
    headers together match nothing.
    """
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` for a request whose body has been read."""
    unread = [body]

    async def replayed() -> Message:
        if unread:
            return {"type": "http.request", "body": unread.pop(), "more_body": False}
        return await receive()

    return replayed


def json_reply(value: JSON, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A reply in JSON."""
    return Response(errors.encode(value), status, headers=headers, media_type="application/json")


def error_reply(error: CtxError, shape: errors.Shape = errors.body) -> Response:
    """The reply to a request that fails with this error; `shape` makes its body."""
    return json_reply(shape(error), errors.row(error).status, errors.headers(error))
