"""The classes that declare a dialect: the tools, routes and conventions of one memory product.

Each tool or route is a function. The types of its parameters give the JSON Schema of the arguments, and the
docstring of a tool is its description for models.
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
"""Answers a tool or a route: `handler(call, **arguments)` returns the reply."""

READS = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
ADDS = Annotations(destructive=False, idempotent=True, open_world=False)
CHANGES = Annotations(destructive=True, idempotent=True, open_world=False)


@dataclass(frozen=True)
class Call:
    """One call of a tool or a route. If the call fails, its writes to `bank` are undone."""

    pack: "Pack"
    bank: "BankCall"
    bank_id: str
    session: str
    owns_session: bool  # whether only this client uses the session
    caller: Caller
    project: str | None  # the folder in which the stdio server was started; None over HTTP

    def search(self, query: str, filter: JSON, *, window: JSON = "auto", **options: JSON) -> JSON:
        """The reply of `bank.search`. The memories it returns are marked as read."""
        return self.bank.search(query=query, filter=filter, window=window, touch=True, **options)

    def records(
        self, filter: JSON, offset: int = 0, limit: int | None = None, **options: JSON
    ) -> Iterator[JSON]:
        """Yields the records that `bank.list` returns, from `offset` on, reading one page at a time."""
        every = self.bank.every(filter=filter, **options)
        return islice(every, offset, None if limit is None else offset + limit)

    def supersede(self, old_ids: list[str] | None, new_id: str | None) -> JSON:
        """Replaces memories by another stored memory. Raises `BadRequest` if an argument is missing."""
        if not old_ids or not new_id:
            raise BadRequest("missing required parameter: old_ids and new_id, or undo")
        return self.bank.supersede(ids=old_ids, by=new_id)

    def undo(self, op_id: str) -> int:
        """Undoes an operation, and returns the number of memories that it restored."""
        return int(self.bank.undo(op_id=op_id)["count"])

    def loss(self) -> dict[str, int]:
        """The field of a reply that reports lost memories: `{"missing": n}` if the store lost n, else {}."""
        count = self.pack.store().rows.missing().lost
        return {"missing": count} if count else {}


@dataclass(frozen=True, kw_only=True)
class ToolSpec:
    """A tool. `profiles` names the profiles (sets of tools that a client may choose) that have the tool; ()
    means all. `bank_parameter` is the argument that names the bank.
    """

    name: str
    run: Handler
    annotations: Annotations
    title: str | None = None
    failure: JSON = None  # fields to add to the MCP reply if a call fails
    at_banks: bool = True  # whether `/mcp/{bank}`, the endpoint for one bank, lists the tool
    bank_parameter: str | None = None
    profiles: tuple[str, ...] = ()


@dataclass(frozen=True)
class RouteSpec:
    """A route of the product's own REST API. The function `run` answers it, if there is one; else the tool
    `tool`, or the tool named in the path.
    """

    method: str
    path: str
    run: Handler | None = None
    tool: str | None = None
    ignored: tuple[str, ...] = ()  # arguments that are accepted but have no effect


@dataclass
class Dialect:
    """The tools, routes and conventions that one product's clients expect.

    `own_bank`: all calls use one bank that belongs to the pack; otherwise the caller names the bank.
    `environ`: purpose -> the product's environment variables for it; if several are set, the first counts.
    `profiles`: profile (a set of tools) -> instructions for models; the first profile is the default.
    """

    name: str
    description: str
    profiles: Mapping[str, str]
    prefix: str = ""  # put before the names of the tools in the list of all tools of the server
    own_bank: bool = False
    at_banks: bool = False  # serves /mcp/{bank} and requests with X-Bank-Id
    # HTTP calls are refused until a key is set; the pack's own routes always need one.
    key_required: bool = False
    enveloped: bool = False  # errors of the routes are {"success": false, "data": null, "error": ...}
    pretty: bool = False  # whether the JSON text of a result is indented
    unknown_tool: int = -32602  # the JSON-RPC error code for an unknown tool
    # `word` of an error -> JSON-RPC code, if not the usual one.
    codes: Mapping[str, int] = field(default_factory=dict)
    details: bool = False  # whether MCP errors have the field data.details
    rate_per_minute: int = 0  # calls per connection; 0 means no limit
    environ: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    remote_path: str | None = None  # the URL path of a tool on a server of the real product
    # For the prompt `recall-context`: (its text, the category to show).
    briefing: tuple[str, str] | None = None
    tools: list[ToolSpec] = field(default_factory=list)
    routes: list[RouteSpec] = field(default_factory=list)
    # JSON-RPC method -> function, for methods besides those of MCP.
    methods: dict[str, Handler] = field(default_factory=dict)

    def tool(
        self, annotations: Annotations = READS, *, name: str = "", **more: Any
    ) -> Callable[[Handler], Handler]:
        """Registers the decorated function as a tool, under its own name or `name`."""

        def register(run: Handler) -> Handler:
            self.tools.append(ToolSpec(name=name or run.__name__, run=run, annotations=annotations, **more))
            return run

        return register

    def route(self, method: str, path: str, *, ignored: tuple[str, ...] = ()) -> Callable[[Handler], Handler]:
        """Registers the decorated function as a route. `{name}` in the path becomes an argument; `{bank_id}`
        selects the bank.
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
    """The limits of a number in a JSON Schema."""
    return {"minimum": least} if most is None else {"minimum": least, "maximum": most}


def table(properties: Mapping[str, JSON], required: Sequence[str] = (), **rules: JSON) -> dict[str, JSON]:
    """The JSON Schema of an object. `rules` are further keywords."""
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": dict(properties), **needed, **rules}


closed = partial(table, additionalProperties=False)


def schema_of(hint: Any) -> dict[str, JSON]:
    """The JSON Schema of a type hint such as `Annotated[list[str] | None, {"minItems": 1}, "What it is"]`. A
    text in the hint is the description, a dict has further keywords. `None` means that the argument may be
    absent; it is not in the schema.
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
    """The JSON Schema of a handler's arguments, from its signature. `ignored` has names of further arguments
    that are accepted.
    """
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
    """Fields of a record, some under other names: `pick(record, "id", document="label")` returns `id` and
    `document`.
    """
    return {name: record[name] for name in names} | {key: record[name] for key, name in renamed.items()}


def present(**fields: JSON) -> dict[str, JSON]:
    """The fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def filled(**fields: JSON) -> dict[str, JSON]:
    """The fields that are neither None nor an empty list."""
    return {name: value for name, value in fields.items() if value not in (None, [])}
