"""A record's JSON and its JSON Schema, both from the record's own class: what a tool answers is declared
once.

A field `updated_ms` is shown as `updated_at`, a time in ISO 8601. A field without a default is required.
"""

from collections.abc import Container, Mapping
from types import UnionType

from ctx.clock import iso_utc
from ctx.lean import Any
from ctx.types import JSON

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS: Mapping[str, Mapping[str, JSON]] = {"score": {"minimum": 0, "maximum": 1}}


def row(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """A named tuple as JSON, without the fields in `omit` (by their names in the class)."""
    fields: dict[str, JSON] = {}
    for field, value in zip(record._fields, record, strict=True):
        if field in omit:
            continue
        kind = type(value)
        if field[-3:] == "_ms":
            fields[_name(field)] = None if value is None else iso_utc(value)
        else:
            fields[field] = value if kind is str or kind is int or value is None else _shown(value)
    return fields


def _name(field: str) -> str:
    return f"{field[:-3]}_at" if field.endswith("_ms") else field


def _shown(value: Any) -> JSON:
    if isinstance(value, float):
        return round(value, 6)
    if not isinstance(value, tuple):
        return value
    if hasattr(value, "_fields"):
        return row(value)
    return list(value) if value and type(value[0]) is int else [_shown(entry) for entry in value]


def schema(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """The JSON Schema of `row(record, omit)`."""
    properties: dict[str, JSON] = {}
    for field, annotation in record.__annotations__.items():
        if field in omit:
            continue
        shape = _schema_of(annotation)
        if field.endswith("_ms"):
            shape = _schema_of(str if annotation is int else str | None)
        properties[_name(field)] = {**shape, **_BOUNDS.get(field, {})}
    required = [
        _name(field) for field in record._fields if field not in omit and field not in record._field_defaults
    ]
    return {"type": "object", "properties": properties, "required": required}


def _schema_of(annotation: Any) -> dict[str, JSON]:
    if type(annotation) is type and annotation in _KINDS:  # not to ask for the hash of a union
        return {"type": _KINDS[annotation]}
    if isinstance(annotation, UnionType):
        inner = [part for part in annotation.__args__ if part is not type(None)]
        return {"anyOf": [*map(_schema_of, inner), {"type": "null"}]}
    if hasattr(annotation, "_fields"):
        return schema(annotation)
    if annotation.__origin__ is Mapping:
        return {"type": "object"}
    return {"type": "array", "items": _schema_of(annotation.__args__[0])}
