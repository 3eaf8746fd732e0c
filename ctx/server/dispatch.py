"""An application whose requests the guard has matched already: how each reaches its route, and what becomes of its errors."""

import logging

from starlette.applications import Starlette
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ctx.errors import CtxError, NotFound
from ctx.server import errors, rest
from ctx.server.policy import ACCESS, Access
from ctx.server.zones import MATCH, Match

logger = logging.getLogger(__name__)


def dispatched(app: Starlette) -> Starlette:
    """The application, FastAPI's or a plain one, with its router's own search and its own errors replaced."""
    app.router.middleware_stack = _Dispatch(app.router.middleware_stack)
    app.add_exception_handler(CtxError, _on_error)
    app.add_exception_handler(Exception, _on_surprise)
    return app


class _Dispatch:
    """Runs the route that the guard has matched, in the place of the router's own search."""

    def __init__(self, router: ASGIApp) -> None:
        self._router = router

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._router(scope, receive, send)
            return
        match: Match = scope[MATCH]
        if match.entry is None:
            raise NotFound(f"no route for {scope['path'][:80]}; see /openapi.json")
        route = match.entry.route
        scope.update(path_params=dict(match.parameters), endpoint=route.endpoint, route=route)
        await route.handle(scope, receive, send)


async def _on_error(request: HTTPConnection, error: Exception) -> Response:
    if not isinstance(error, CtxError):  # pragma: no cover - it is registered for ours alone
        raise error
    access: Access = request.scope[ACCESS]
    row = errors.row(error)
    if row.status >= 500:
        # The cause is the operator's to see; without one there is nothing to see but the word.
        cause = error if error.__cause__ else None
        logger.warning("error id=%s code=%s", access.request_id, error.word, exc_info=cause)
    response = rest.reply(access.error_body(error), row.status)
    response.headers.update(errors.headers(error))
    return response


async def _on_surprise(request: HTTPConnection, error: Exception) -> Response:
    # The guard, to which the error goes on, logs it.
    return rest.reply(errors.body(errors.internal(request.scope[ACCESS].request_id)), 500)
