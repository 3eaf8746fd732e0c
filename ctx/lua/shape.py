"""Gives a script's result the shape its output schema promises, where Lua cannot say it."""

from ctx.types import JSON

_MAX_DEPTH = 64


def fit(value: JSON, schema: JSON, depth: int = 0) -> JSON:
    """`value` with `{}` turned into `[]` where the schema wants an array, and fields in the schema's order.

    Lua has one empty table and no order of fields; a client has both. Nothing else is changed: this does not
    validate.
    """
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return value
    if value == {}:
        return [] if _is_array_alone(schema.get("type")) else value
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [fit(item, schema["items"], depth + 1) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    ordered = {name: fit(value[name], rule, depth + 1) for name, rule in properties.items() if name in value}
    return ordered | {name: item for name, item in value.items() if name not in ordered}


def _is_array_alone(kinds: JSON) -> bool:
    """Whether a schema's `type` allows arrays and no objects."""
    return kinds == "array" or (isinstance(kinds, list) and "array" in kinds and "object" not in kinds)
