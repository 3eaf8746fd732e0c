"""The errors of ctx, born plain below and translated once at each door.

CtxError
├── ConfigError            the configuration, a manifest, two tools of one name
├── BadRequest             arguments that do not fit
│   ├── BadParameter       one of a tool's parameters; `parameter`, `problem`
│   ├── EmbeddingsDisabled semantic or hybrid search where no embedder is configured
│   └── Conflict           what is there is not what the caller expected: another version, a taken name
├── NotFound               no such document, tool, agent, memory
├── AccessError            the guard's: its children and what else only a door raises are in ctx/refusals.py
├── ScriptTimeout          a script's deadline passed
├── ToolError              a script failed or was denied
├── SourceError            a connector or an extractor could not read
└── StoreError             the catalog or the index could not answer
    ├── EmbedderError      the embedding model or its service could not answer
    └── Busy               a bounded queue is full, or another process holds the lock; `retry_after_s`

`word` is the code that leaves the machine. `message` names the thing and the mend and holds no path, key or
traceback that a remote caller should not see; what only the operator should see goes into `__cause__` and the
log.
"""


class CtxError(Exception):
    """Any failure that ctx expects. `word` is its code in replies."""

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
    """What is wrong with one of a tool's parameters, as `must be at least 1, got 0`. Whoever was given it in
    another way, an option say, tells the problem by that name.
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


class EmbedderError(StoreError):
    word = "store_error"


class Busy(StoreError):
    word = "busy"

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
