"""How a dialect is declared. A function is a tool or a route: the types of its parameters give the JSON
Schema of the arguments, and the docstring of a tool is what models read.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ctx.clock import iso_utc
from ctx.errors import BadRequest
from ctx.models import JSON, Caller
from ctx.tools.toolbox import Annotations

if TYPE_CHECKING:
    from ctx.memory.dialects.pack import Pack
    from ctx.memory.ops import BankCall

Handler = Callable[..., JSON]
"""`handler(call, **arguments)`"""

READS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
ADDS = Annotations(destructive=False, idempotent=True, open_world=False)
CHANGES = Annotations(destructive=True, idempotent=True, open_world=False)


@dataclass(frozen=True)
class Call:
    """One call of a tool or a route. `bank` takes back what it wrote if the call fails."""

    pack: "Pack"
    bank: "BankCall"
    bank_id: str
    session: str
    owns_session: bool  # the session belongs to this client alone
    caller: Caller
    project: str | None  # the folder in which a process on pipes was started


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool. `profiles`: those that have it, () for all. `bank_parameter`: the argument that names the
    bank.
    """

    name: str
    run: Handler
    annotations: Annotations
    title: str | None = None
    output: JSON = None
    failure: JSON = None  # fields of a failed call's reply over MCP
    at_banks: bool = True  # listed at the endpoint of a bank
    bank_parameter: str | None = None
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class RouteSpec:
    """A route of the dialect's own REST. Without `run`, the tool that `tool` or the path names answers."""

    method: str
    path: str
    run: Handler | None = None
    tool: str | None = None
    ignored: tuple[str, ...] = ()  # arguments that change nothing


@dataclass
class Dialect:
    """What one product's clients expect.

    `own_bank`: its memories are in a bank of its own; else in the bank that the caller names. `environ`: the
    product's environment variables by purpose, of several the first that is set counts. `profiles`: the
    instructions of each generation; the first is the default.
    """

    name: str
    description: str
    profiles: Mapping[str, str]
    prefix: str = ""  # of tool names where all tools are listed together
    own_bank: bool = False
    at_banks: bool = False  # /mcp/{bank} and X-Bank-Id lead here
    key_required: bool = False  # closed over HTTP until it has a key; its own routes always need one
    enveloped: bool = False  # errors of its routes are {"success": false, "data": null, "error": ...}
    pretty: bool = False  # the text of a result is indented JSON
    unknown_tool: int = -32602  # JSON-RPC error code
    codes: Mapping[str, int] = field(default_factory=dict)  # by the word of the error, where they differ
    details: bool = False  # errors over MCP carry data.details
    rate_per_minute: int = 0  # calls of a session; 0: no limit
    environ: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remote_path: str | None = None  # of a tool on a server of the real product
    briefing: tuple[str, str] | None = None  # the prompt `recall-context`: its text, the category it shows
    tools: list[ToolSpec] = field(default_factory=list)
    routes: list[RouteSpec] = field(default_factory=list)
    methods: dict[str, Handler] = field(default_factory=dict)  # JSON-RPC methods besides MCP's

    def tool(
        self, annotations: Annotations = READS, *, name: str = "", **more: Any
    ) -> Callable[[Handler], Handler]:
        """Registers the decorated function as a tool, under its own name unless another is given."""

        def register(run: Handler) -> Handler:
            self.tools.append(ToolSpec(name=name or run.__name__, run=run, annotations=annotations, **more))
            return run

        return register

    def route(self, method: str, path: str, *, ignored: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """Registers the decorated function as a route. `{name}` in the path is an argument; `{bank_id}` names
        the bank.
        """

        def register(run: Handler) -> Handler:
            self.routes.append(RouteSpec(method, path, run, ignored=ignored))
            return run

        return register


# -- schemas -------------------------------------------------------------------------------------------------


NOT_EMPTY = {"minLength": 1}
Table = dict[str, Any]
TYPES = {str: "string", bool: "boolean", int: "integer", float: "number", dict: "object"}


def span(least: float, most: float | None = None) -> dict[str, JSON]:
    """The rule of a number."""
    return {"minimum": least} if most is None else {"minimum": least, "maximum": most}


def table(properties: Mapping[str, JSON], required: Sequence[str] = (), **rules: JSON) -> dict[str, JSON]:
    """The schema of an object."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), **needed, **rules}


closed = partial(table, additionalProperties=False)


def schema_of(hint: Any) -> dict[str, JSON]:
    """The JSON Schema of a type such as `Annotated[list[str] | None, {"minItems": 1}, "What it is"]`. None
    stands for an absent argument and is not in the schema.
    """
    kind, parts = get_origin(hint), get_args(hint)
    if kind is Annotated:
        schema = schema_of(parts[0])
        for note in parts[1:]:
            schema |= {"description": note} if isinstance(note, str) else note
        return schema
    if kind in (Union, UnionType):
        return schema_of(next(part for part in parts if part is not NoneType))
    if kind is Literal:
        return {"type": "string", "enum": list(parts)}
    if kind is list:
        return {"type": "array", "items": schema_of(parts[0])}
    return {"type": TYPES[kind or hint]}


def parameters_of(run: Handler, ignored: Sequence[str] = ()) -> JSON:
    """The JSON Schema of a handler's arguments, from its signature."""
    hints = get_type_hints(run, include_extras=True)
    properties: dict[str, JSON] = {name: {} for name in ignored}
    required = []
    for name, parameter in list(inspect.signature(run).parameters.items())[1:]:
        properties[name] = schema_of(hints[name])
        if parameter.default is parameter.empty:
            required.append(name)
        elif parameter.default is not None:
            properties[name]["default"] = parameter.default
    return table(properties, required)


Metadata = Annotated[Table | None, "Anything to store with it"]
AsOf = Annotated[str | None, "What was valid at that time (ISO 8601)"]
IncludeSuperseded = Annotated[bool, "Also memories that were replaced"]
Supersedes = Annotated[
    list[str] | None,
    "Ids of memories that this makes untrue. It replaces them; an undo restores them. A plan that "
    "happened or a single exception to a habit makes nothing untrue",
]
OldIds = Annotated[list[str] | None, {"minItems": 1}, "The ids of the memories that are replaced"]
NewId = Annotated[str | None, NOT_EMPTY, "The id of the memory that is valid now"]
Undo = Annotated[str | None, NOT_EMPTY, "The op_id of an earlier reply, to undo it"]

# -- replies -------------------------------------------------------------------------------------------------


def iso(ms: int | None) -> str | None:
    return None if ms is None else iso_utc(ms)


def pick(record: Mapping[str, JSON], *names: str, **renamed: str) -> dict[str, JSON]:
    """Fields of a record, some under other names: `pick(record, "id", document="label")`."""
    return {name: record[name] for name in names} | {shown: record[name] for shown, name in renamed.items()}


def present(**fields: JSON) -> dict[str, JSON]:
    """The fields that have a value, empty ones too."""
    return {name: value for name, value in fields.items() if value is not None}


def filled(**fields: JSON) -> dict[str, JSON]:
    """The fields that have a value that is not empty."""
    return {name: value for name, value in fields.items() if value not in (None, [])}


def search(call: Call, query: str, filter: JSON, *, window: JSON = "auto", **options: JSON) -> JSON:
    """The reply of `bank.search`; what it returns counts as read."""
    return call.bank.search(query=query, filter=filter, window=window, touch=True, **options)


def supersede(call: Call, old_ids: list[str] | None, new_id: str | None) -> JSON:
    """Replaces stored memories by another one. Raises `BadRequest`."""
    if not old_ids or not new_id:
        raise BadRequest("missing required parameter: old_ids and new_id, or undo")
    return call.bank.supersede(ids=old_ids, by=new_id)


def loss(call: Call) -> dict[str, int]:
    """How many memories of the store were lost, as a key of a reply; empty where none were."""
    lost = call.pack.store().rows.missing().lost
    return {"missing": lost} if lost else {}


def records(
    call: Call, filter: JSON, offset: int = 0, limit: int | None = None, **options: JSON
) -> Iterator[JSON]:
    """The records that `bank.list` gives, read a page at a time."""

    def pages() -> Iterator[JSON]:
        cursor = None
        while True:
            page = call.bank.list(filter=filter, limit=200, cursor=cursor, **options)
            yield from page["items"]
            cursor = page["cursor"]
            if cursor is None:
                return

    return islice(pages(), offset, None if limit is None else offset + limit)
