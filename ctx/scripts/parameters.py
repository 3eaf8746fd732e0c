"""The parameters a script declares, as the JSON Schema that every door checks."""

from collections.abc import Iterable, Mapping, Sequence

from ctx.errors import ToolError
from ctx.models import JSON
from ctx.text.strings import nearest, one_line

TYPES = ("string", "integer", "number", "boolean", "array", "object")
MAX_DEPTH = 64  # of what is declared; what is deeper is left to the check of schemas, which refuses it
_ALSO = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "format"),
    *("items", "minItems", "maxItems", "uniqueItems", "properties", "additionalProperties"),
    *("title", "examples"),
)
_KEYS = ("name", "type", "required", "description", "default", "enum", *_ALSO)


def parameters_schema(declared: JSON, where: str) -> JSON:
    """A schema from a list `{{name=, type=, required=, description=, default=, enum=}, ...}`, or from a
    schema written out.

    Parameters that are not declared pass through to the script, as Context Harness has it. Raises `ToolError`
    naming the parameter. Whether the result is a sound schema is for `ctx.tools.schema` to say.
    """
    if declared in (None, {}, []):
        return {"type": "object", "properties": {}}
    if isinstance(declared, dict):
        if declared.get("type") == "object":
            return with_lists(declared)
        # `parameters = {query = {type = "string"}}`: by name instead of in a list
        declared = [
            {"name": name, **rule} if isinstance(rule, dict) else {"name": name, "type": rule}
            for name, rule in declared.items()
        ]
    if not isinstance(declared, list):
        raise ToolError(f"{where}: parameters must be a list of tables or a JSON Schema")
    return _listed_schema(declared, where)


def _of_fields(demand: JSON, what: str) -> dict[str, JSON]:
    """What `required` says of an object's own fields, as JSON Schema has it."""
    if isinstance(demand, list):
        return {"required": demand}
    if demand not in (None, True, False, {}):
        raise ToolError(f"{what}: required is true or false, or a list of fields")
    return {}


def _listed_schema(declared: Sequence[JSON], where: str) -> JSON:
    properties: dict[str, JSON] = {}
    required: list[str] = []
    for number, entry in enumerate(declared, 1):
        if not isinstance(entry, dict) or not isinstance(entry.get("name"), str) or not entry["name"]:
            raise ToolError(f"{where}: parameter {number} has no name")
        name = entry["name"]
        if name in properties:
            raise ToolError(f"{where}: two parameters are called '{name}'")
        what = f"{where}: parameter '{name}'"
        properties[name] = _rule(entry, what) | _of_fields(entry.get("required"), what)
        required += [name] if entry.get("required") is True else []
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
            raise ToolError(f"{what} has an enum that is no list")
        rule["enum"] = entry["enum"]
    return rule | {key: with_lists(entry[key]) for key in _ALSO if entry.get(key) is not None}


def refuse_misspelt(fields: Iterable[str], known: Sequence[str], what: str) -> None:
    """Raises `ToolError` for a field that nothing reads and that can only be meant for one that is not there.

    What is like no known one is the script's own affair, as Context Harness has it.
    """
    names = [name for name in fields if isinstance(name, str)]
    for name in names:
        match = None if name in known else nearest(name[:80], known, 0.75)
        if match is not None and match not in names:
            raise ToolError(f"{what} has the unknown field '{one_line(name[:80])}'; did you mean '{match}'?")


def with_lists(schema: JSON, depth: int = 0) -> JSON:
    """A schema as it was meant: `{}` in Lua is a table without a kind, and where JSON Schema wants a list it
    is an empty one.
    """
    if depth > MAX_DEPTH:
        return schema
    if isinstance(schema, list):
        return [with_lists(entry, depth + 1) for entry in schema]
    return _with_lists(schema, depth) if isinstance(schema, dict) else schema


def _with_lists(schema: dict[str, JSON], depth: int) -> JSON:
    entries = [(key, value) for key, value in schema.items() if key != "enum" or value != {}]
    whole = {key: with_lists(value, depth + 1) for key, value in entries}
    for key in ("required", "examples"):
        if whole.get(key) == {}:
            whole[key] = []
    if whole.get("type") == "array" and whole.get("default") == {}:
        whole["default"] = []
    return whole
