"""Turn the parameters a script declares into a JSON Schema."""

from collections.abc import Iterable, Mapping, Sequence

from ctx.errors import ToolError
from ctx.models import JSON
from ctx.text.strings import nearest, one_line

TYPES = ("string", "integer", "number", "boolean", "array", "object")
MAX_DEPTH = 64  # of a declaration; the schema check refuses deeper ones
_COPIED_KEYS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("items", "minItems", "maxItems", "uniqueItems", "properties", "additionalProperties"),
    *("title", "examples"),
)
_KEYS = ("name", "type", "required", "description", "default", "enum", *_COPIED_KEYS)


def parameters_schema(declared: JSON, where: str) -> JSON:
    """A schema from a list `{{name=, type=, required=, description=, default=, enum=}, ...}` or a schema.

    Undeclared parameters are passed to the script, as in Context Harness. Raises `ToolError`.
    `ctx.tools.schema` checks the result.
    """
    if declared in (None, {}, []):
        return {"type": "object", "properties": {}}
    if isinstance(declared, dict):
        if declared.get("type") == "object":
            return with_lists(declared)
        # `parameters = {query = {type = "string"}}`
        declared = [
            {"name": name, **rule} if isinstance(rule, dict) else {"name": name, "type": rule}
            for name, rule in declared.items()
        ]
    if not isinstance(declared, list):
        raise ToolError(f"{where}: parameters must be a list of tables or a JSON Schema")
    properties: dict[str, JSON] = {}
    required: list[str] = []
    for number, entry in enumerate(declared, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise ToolError(f"{where}: parameter {number} has no name")
        name = entry["name"]
        if name in properties:
            raise ToolError(f"{where}: two parameters are called '{name}'")
        what = f"{where}: parameter '{name}'"
        properties[name] = _rule(entry, what)
        demand = entry.get("required")
        if demand is True:
            required.append(name)
        elif isinstance(demand, list):  # the required fields of an object
            properties[name]["required"] = demand
        elif demand not in (None, False, {}):
            raise ToolError(f"{what}: required must be true, false or a list of fields")
    return {"type": "object", "properties": properties, "required": required}


def _rule(entry: Mapping[str, JSON], what: str) -> dict[str, JSON]:
    refuse_misspelt(entry, _KEYS, what)
    kind = entry.get("type", "string")
    if kind not in TYPES:
        raise ToolError(f"{what} has the unknown type '{str(kind)[:80]}' (known: {', '.join(TYPES)})")
    rule: dict[str, JSON] = {"type": kind}
    if isinstance(entry.get("description"), str):
        rule["description"] = entry["description"]
    if entry.get("default") is not None:
        rule["default"] = [] if kind == "array" and entry["default"] == {} else entry["default"]
    if entry.get("enum"):
        if not isinstance(entry["enum"], list):
            raise ToolError(f"{what} has an enum that is not a list")
        rule["enum"] = entry["enum"]
    return rule | {key: with_lists(entry[key]) for key in _COPIED_KEYS if entry.get(key) is not None}


def refuse_misspelt(fields: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raise `ToolError` for an unknown field that is similar to a known field that is missing.

    Other unknown fields are allowed, as in Context Harness.
    """
    names = [name for name in fields if isinstance(name, str)]
    for name in names:
        match = None if name in known else nearest(name[:80], known, 0.75)
        if match is not None and match not in names:
            raise ToolError(f"{what} has the unknown field '{one_line(name[:80])}'; did you mean '{match}'?")


def with_lists(schema: JSON, depth: int = 0) -> JSON:
    """Replace `{}` by `[]` where JSON Schema wants a list: Lua has only one kind of empty table."""
    if depth > MAX_DEPTH:
        return schema
    if isinstance(schema, list):
        return [with_lists(entry, depth + 1) for entry in schema]
    if not isinstance(schema, dict):
        return schema
    entries = [(key, value) for key, value in schema.items() if key != "enum" or value != {}]
    whole = {key: with_lists(value, depth + 1) for key, value in entries}
    for key in ("required", "examples"):
        if whole.get(key) == {}:
            whole[key] = []
    if whole.get("type") == "array" and whole.get("default") == {}:
        whole["default"] = []
    return whole
