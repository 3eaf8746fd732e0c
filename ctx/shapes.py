"""A record's JSON and its JSON Schema, both from the record's own class: what a tool answers is declared
once.

A field `updated_ms` is shown as `updated_at`, a time in ISO 8601. A field without a default is required.
"""

from collections.abc import Callable, Container, Iterable, Mapping
from types import UnionType
from typing import Any

from ctx.clock import iso_utc
from ctx.types import JSON

_KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_AS_KEPT = (str, int, bool, str | None)
_BOUNDS: Mapping[str, Mapping[str, JSON]] = {"score": {"minimum": 0, "maximum": 1}}


def row(record: Any, omit: Iterable[str] = ()) -> dict[str, JSON]:
    """A named tuple as JSON, without the fields in `omit` (by their names in the class)."""
    kind = type(record)
    names, changed = _layouts.get(kind) or _layouts.setdefault(kind, _layout(kind))
    fields = dict(zip(names, record, strict=True))
    for place, name, show in changed:
        fields[name] = show(record[place])
    for field in omit:
        del fields[_name(field)]
    return fields


_Change = tuple[int, str, Callable[[Any], JSON]]
_Layout = tuple[list[str], list[_Change]]
_layouts: dict[type, _Layout] = {}


def _layout(kind: Any) -> _Layout:
    """What the fields of a record's class are called, and place, name and form of each that is shown
    otherwise than it is kept.
    """
    names: list[str] = []
    changed: list[_Change] = []
    for place, field in enumerate(kind._fields):
        names.append(_name(field))
        if field.endswith("_ms"):
            changed.append((place, names[-1], _moment))
        elif kind.__annotations__[field] not in _AS_KEPT:
            changed.append((place, names[-1], _shown))
    return names, changed


def _name(field: str) -> str:
    return f"{field[:-3]}_at" if field.endswith("_ms") else field


def _moment(ms: int | None) -> JSON:
    return None if ms is None else iso_utc(ms)


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
    fields = [field for field in record._fields if field not in omit]
    for field in fields:
        annotation = record.__annotations__[field]
        if field.endswith("_ms"):  # told as a time
            annotation = str if annotation is int else str | None
        properties[_name(field)] = {**_schema_of(annotation), **_BOUNDS.get(field, {})}
    required = [_name(field) for field in fields if field not in record._field_defaults]
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
