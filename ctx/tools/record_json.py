"""The JSON and the JSON Schema of a record, both from its class.

A field `updated_ms` becomes `updated_at`, a time in ISO 8601. A field without a default is required.
"""

import re
from collections.abc import Container, Mapping
from types import UnionType
from typing import Any

from ctx.clock import iso_utc
from ctx.models import JSON

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_BOUNDS: Mapping[str, Mapping[str, JSON]] = {"score": {"minimum": 0, "maximum": 1}}


# The addresses that leave as `source_url`: a connector may give any text, and a page may link it.
_LINK = re.compile(r"(?:https?://|mailto:)[^\x00-\x1f\x7f]+", re.IGNORECASE)


def row(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """A named tuple as JSON, without the fields in `omit` (by their names in the class)."""
    fields = zip(record._fields, record, strict=True)
    return {_name(field): _shown(field, value) for field, value in fields if field not in omit}


def _name(field: str) -> str:
    return f"{field[:-3]}_at" if field.endswith("_ms") else field


def _shown(field: str, value: Any) -> JSON:
    if field.endswith("_ms"):
        return None if value is None else iso_utc(value)
    if field == "source_url":
        return value if value is not None and _LINK.fullmatch(value) else None
    if isinstance(value, float):
        return round(value, 6)
    if hasattr(value, "_fields"):
        return row(value)
    return [_shown("", entry) for entry in value] if isinstance(value, tuple) else value


def schema(record: Any, omit: Container[str] = ()) -> dict[str, JSON]:
    """The JSON Schema of `row(record, omit)`."""
    properties: dict[str, JSON] = {}
    fields = [field for field in record._fields if field not in omit]
    for field in fields:
        annotation = record.__annotations__[field]
        if field.endswith("_ms"):  # told as a time
            annotation = str if annotation is int else str | None
        properties[_name(field)] = {**_schema_of(annotation), **_BOUNDS.get(field, {})}
    required = [_name(field) for field in fields if field not in record._field_defaults]
    return {"type": "object", "properties": properties, "required": required}


def _schema_of(annotation: Any) -> dict[str, JSON]:
    if annotation in _KINDS:
        return {"type": _KINDS[annotation]}
    if isinstance(annotation, UnionType):
        inner = [part for part in annotation.__args__ if part is not type(None)]
        return {"anyOf": [*map(_schema_of, inner), {"type": "null"}]}
    if hasattr(annotation, "_fields"):
        return schema(annotation)
    if annotation.__origin__ is Mapping:
        return {"type": "object"}
    return {"type": "array", "items": _schema_of(annotation.__args__[0])}
