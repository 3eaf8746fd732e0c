"""The errors of ctx. They are raised where they occur and translated once per interface.

CtxError
├── ConfigError            the configuration, a manifest, two tools of one name
├── BadRequest             arguments that are not valid
│   ├── BadParameter       a parameter of a tool that is not valid; `parameter`, `problem`
│   ├── EmbeddingsDisabled semantic or hybrid search where no embedder is configured
│   └── Conflict           the stored state is not as the caller expected: another version, a taken name
├── NotFound               no such document, tool, agent, memory
├── AccessError
│   ├── Unauthorized       a key is missing or wrong
│   ├── OriginNotAllowed   a request from a web page of another origin
│   └── Misdirected        the `Host` header names another server
├── RateLimited            too many calls; `retry_after_s`
├── MethodNotAllowed       the route exists, the method does not
├── PayloadTooLarge        a request body over the limit
├── ScriptTimeout          a script's deadline passed
├── ToolError              a script failed or was denied
├── SourceError            a connector or an extractor could not read
└── StoreError             the catalog or the index could not answer
    ├── EmbedderError      the embedding model or its service could not answer
    └── Busy               a bounded queue is full, or another process holds the lock; `retry_after_s`

`word` is the error code in replies. `message` says what is wrong and how to fix it. It contains no path, key
or traceback that a remote caller must not see; such details are in `__cause__` and in the log.
"""


class CtxError(Exception):
    """The base of all errors that ctx raises on purpose. `word` is the error code in replies."""

    word = "internal"

    def __init__(self, message: str, *, data: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.data = data


class ConfigError(CtxError):
    word = "config"


class BadRequest(CtxError):
    word = "bad_request"


class BadParameter(BadRequest):
    """A parameter of a tool is not valid. `problem` is a phrase such as `must be at least 1, got 0`, which
    the command line shows with the name of the option.
    """

    def __init__(self, parameter: str, problem: str) -> None:
        super().__init__(f"parameter '{parameter}' {problem}")
        self.parameter = parameter
        self.problem = problem


class EmbeddingsDisabled(BadRequest):
    word = "embeddings_disabled"


class Conflict(BadRequest):
    word = "conflict"


class NotFound(CtxError):
    word = "not_found"


class AccessError(CtxError):
    word = "unauthorized"


class ScriptTimeout(CtxError):
    word = "timeout"


class ToolError(CtxError):
    word = "tool_error"


class SourceError(CtxError):
    word = "source_error"


class StoreError(CtxError):
    word = "store_error"
    retry_after_s = 5.0


class EmbedderError(StoreError):
    word = "store_error"


class Busy(StoreError):
    word = "busy"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Unauthorized(AccessError):
    word = "unauthorized"

    def __init__(self, message: str, *, presented: bool = False) -> None:
        """`presented`: the request had a key, but the key does not give access."""
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
