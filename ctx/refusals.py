"""Errors of the network interfaces: no access, too many calls, wrong method, body too large.

CtxError
├── AccessError
│   ├── Unauthorized       a key is missing or wrong
│   ├── OriginNotAllowed   a web page of another origin
│   └── Misdirected        a Host this server does not answer to
├── RateLimited            too many calls; `retry_after_s`
├── MethodNotAllowed       the route exists, the method does not
└── PayloadTooLarge        a body over the cap

The rest of the tree is in ctx/errors.py.
"""

from ctx.errors import AccessError, CtxError


class Unauthorized(AccessError):
    word = "unauthorized"

    def __init__(self, message: str, *, presented: bool = False) -> None:
        """`presented`: the request had a key, which does not open this."""
        super().__init__(message)
        self.presented = presented


class OriginNotAllowed(AccessError):
    word = "origin_not_allowed"


class Misdirected(AccessError):
    word = "misdirected_request"


class RateLimited(CtxError):
    word = "rate_limited"

    def __init__(self, message: str, *, retry_after_s: float, data: dict[str, object] | None = None) -> None:
        super().__init__(message, data=data)
        self.retry_after_s = retry_after_s


class MethodNotAllowed(CtxError):
    word = "method_not_allowed"

    def __init__(self, message: str, *, allowed: tuple[str, ...]) -> None:
        super().__init__(message)
        self.allowed = allowed


class PayloadTooLarge(CtxError):
    word = "payload_too_large"
