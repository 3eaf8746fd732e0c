"""The filter language of memories: a closed set of keys and operators, compiled to SQL whose values are all bound.

A filter is a JSON object; its entries must all hold:

    {"kind": "fact"}                                a value: equal (null: absent)
    {"importance": {"gte": 5, "lt": 8}}             operators: all must hold
    {"folder": {"under": "/work"}}                  the folder or any below it
    {"tags": {"has": "auth"}}                       has, has_any, has_all
    {"metadata.type": {"in": ["code", "note"]}}     metadata by key, nested by dots
    {"parent.label": "API design"}                  a field of the container
    {"any": [filter, ...]}, {"all": [...]}, {"none": [...]}

Comparisons with something absent are false, also below `none`. Times are milliseconds since the epoch or ISO 8601; a bare
date stands for its first moment, or its last with `lte` and `gt`. Every mistake is a `BadRequest` that names the key.
"""

import difflib
import math
import re
from typing import NamedTuple

from ctx.clock import parse_ms
from ctx.errors import BadRequest
from ctx.types import JSON

MAX_DEPTH = 8
MAX_CONDITIONS = 64
MAX_CHOICES = 1000  # of `in`: each is one bound variable, of which SQLite takes 32766

TEXT = "text"
NUMBER = "number"
TIME = "time"

FIELDS: dict[str, tuple[str, str]] = {
    "id": (TEXT, "id"),
    "kind": (TEXT, "kind"),
    "parent": (TEXT, "parent"),
    "role": (TEXT, "role"),
    "text": (TEXT, "text"),
    "type": (TEXT, "type"),
    "context": (TEXT, "context"),
    "folder": (TEXT, "folder"),
    "label": (TEXT, "label"),
    "status": (TEXT, "status"),
    "session": (TEXT, "session"),
    "superseded_by": (TEXT, "superseded_by"),
    "ordinal": (NUMBER, "ordinal"),
    "importance": (NUMBER, "importance"),
    "access_count": (NUMBER, "access_count"),
    "version": (NUMBER, "version"),
    "event_date": (TIME, "event_ms"),
    "created": (TIME, "created_ms"),
    "updated": (TIME, "updated_ms"),
    "last_accessed": (TIME, "accessed_ms"),
    "valid_from": (TIME, "valid_from_ms"),
    "valid_to": (TIME, "valid_to_ms"),
    "expires_at": (TIME, "expires_ms"),
}
LISTS = ("tags", "flags")
OBJECTS = ("metadata", "source")
GROUPS = ("all", "any", "none")
_COMPARE = {"eq": "IS", "ne": "IS NOT", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
OPERATORS = (*_COMPARE, "in", "not_in", "exists", "contains", "starts", "under")
LIST_OPERATORS = ("has", "has_any", "has_all", "exists")
_JSON_KEY = re.compile(r'[^"\\\x00-\x1f]{1,128}')


class Condition(NamedTuple):
    """SQL over the table alias `m`, and the values it binds, in order."""

    sql: str
    values: tuple[JSON, ...]


def compile_filter(filter: JSON) -> Condition:
    """The condition of a filter; `None` and `{}` hold of everything. Raises `BadRequest`."""
    if filter is None:
        return Condition("1", ())
    return _Compiler().group(filter, "all", 0)


class _Compiler:
    def __init__(self) -> None:
        self.conditions = 0

    def group(self, filter: JSON, where: str, depth: int) -> Condition:
        if not isinstance(filter, dict):
            raise BadRequest(f"filter: '{where}' must hold a JSON object")
        if depth > MAX_DEPTH:
            raise BadRequest(f"filter: nested more than {MAX_DEPTH} deep")
        parts: list[Condition] = []
        for key, value in filter.items():
            if key in GROUPS:
                if not isinstance(value, list):
                    raise BadRequest(f"filter: '{key}' must hold a list of filters")
                parts.append(_join(key, [self.group(one, key, depth + 1) for one in value]))
            else:
                parts.append(self.entry(key, value))
        return _join("all", parts)

    def entry(self, key: str, value: JSON) -> Condition:
        alias, name = ("p", key.removeprefix("parent.")) if key.startswith("parent.") else ("m", key)
        if name in FIELDS:
            kind, column = FIELDS[name]
            found = self.field(key, kind, f"{alias}.{column}", value)
        elif name in LISTS:
            found = self.listed(key, f"{alias}.{name}", value)
        elif name.startswith(tuple(f"{object}." for object in OBJECTS)):
            object, _, path = name.partition(".")
            found = self.keyed(key, f"{alias}.{object}", path, value)
        else:
            raise BadRequest(f"filter: unknown key '{key[:80]}'{_nearest(name, _known_keys())}")
        if alias == "p":
            # The container stands in the same bank as the row: the subquery takes its number, never one from the filter.
            exists = "EXISTS (SELECT 1 FROM memories p WHERE p.bank_no = m.bank_no AND p.id = m.parent AND p.deleted_ms IS NULL AND "
            return Condition(f"{exists}{found.sql})", found.values)
        return found

    def operators(self, key: str, value: JSON, known: tuple[str, ...]) -> list[tuple[str, JSON]]:
        if not isinstance(value, dict):
            entries: list[tuple[str, JSON]] = [("in", value)] if isinstance(value, list) else [("eq", value)]
        else:
            entries = list(value.items())
            if not entries:
                raise BadRequest(f"filter: '{key}' has no operator (known: {', '.join(known)})")
        for operator, _ in entries:
            if operator not in known:
                raise BadRequest(
                    f"filter: '{key}' has no operator '{operator[:40]}'{_nearest(operator, known)}"
                )
        self.conditions += len(entries)
        if self.conditions > MAX_CONDITIONS:
            raise BadRequest(f"filter: more than {MAX_CONDITIONS} conditions")
        return entries

    def field(self, key: str, kind: str, column: str, value: JSON) -> Condition:
        parts = []
        for operator, operand in self.operators(key, value, OPERATORS):
            if operator == "exists":
                parts.append(Condition(f"{column} IS {'NOT ' if _boolean(key, operand) else ''}NULL", ()))
            elif operator in ("in", "not_in"):
                values = tuple(_operand(key, kind, operator, one) for one in _choices(key, operator, operand))
                if None in values:
                    raise BadRequest(f"filter: '{key}': null in a list; use {{\"exists\": false}}")
                sql = f"{column} IN ({','.join('?' * len(values))})"
                parts.append(Condition(sql if operator == "in" else f"NOT ifnull({sql}, 0)", values))
            elif operator in ("contains", "starts", "under"):
                if kind != TEXT or not isinstance(operand, str):
                    raise BadRequest(f"filter: '{key}': '{operator}' compares texts")
                parts.append(_part_of(column, operator, _operand(key, kind, operator, operand)))
            else:
                bound = _operand(key, kind, operator, operand)
                if bound is None and operator not in ("eq", "ne"):
                    raise BadRequest(f"filter: '{key}': '{operator}' needs a value")
                parts.append(Condition(f"{column} {_COMPARE[operator]} ?", (bound,)))
        return _join("all", parts)

    def listed(self, key: str, column: str, value: JSON) -> Condition:
        if isinstance(value, str):
            value = {"has": value}
        parts = []
        held = f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = ?)"
        for operator, operand in self.operators(key, value, LIST_OPERATORS):
            if operator == "exists":
                parts.append(Condition(f"{column} {'<>' if _boolean(key, operand) else '='} '[]'", ()))
                continue
            wanted = [operand] if operator == "has" else _choices(key, operator, operand)
            each = [Condition(held, (_operand(key, TEXT, operator, one),)) for one in wanted]
            if any(one.values[0] is None for one in each):
                raise BadRequest(f"filter: '{key}': '{operator}' takes texts")
            parts.append(_join("any" if operator == "has_any" else "all", each))
        return _join("all", parts)

    def keyed(self, key: str, column: str, path: str, value: JSON) -> Condition:
        names = path.split(".")
        if not all(_JSON_KEY.fullmatch(name) for name in names):
            raise BadRequest(
                f"filter: '{key[:80]}': a key of {column[2:]} has 1 to 128 characters, none of them a quote or backslash"
            )
        at = "$" + "".join(f'."{name}"' for name in names)
        parts = []
        for operator, operand in self.operators(key, value, OPERATORS):
            if operator == "exists":
                sql = (
                    f"ifnull(json_type({column}, ?), 'null') {'<>' if _boolean(key, operand) else '='} 'null'"
                )
                parts.append(Condition(sql, (at,)))
            elif operator in ("eq", "ne"):
                equal = _json_equal(key, column, at, operand)
                parts.append(equal if operator == "eq" else _join("none", [equal]))
            elif operator in ("in", "not_in"):
                each = [_json_equal(key, column, at, one) for one in _choices(key, operator, operand)]
                parts.append(_join("any" if operator == "in" else "none", each))
            elif operator in ("contains", "starts", "under"):
                if not isinstance(operand, str):
                    raise BadRequest(f"filter: '{key}': '{operator}' compares texts")
                inner = _part_of(
                    f"json_extract({column}, ?)", operator, _operand(key, TEXT, operator, operand)
                )
                # json_extract stands once for each of the values bound after its own path
                values = tuple(one for bound in inner.values for one in (at, bound))
                parts.append(Condition(f"(json_type({column}, ?) = 'text' AND {inner.sql})", (at, *values)))
            else:
                parts.append(_json_compare(key, column, at, operator, operand))
        return _join("all", parts)


def _join(group: str, parts: list[Condition]) -> Condition:
    values = tuple(value for part in parts for value in part.values)
    if group == "none":
        # ifnull: a comparison with NULL is unknown, and NOT unknown would drop the row.
        return Condition(" AND ".join(f"NOT ifnull(({part.sql}), 0)" for part in parts) or "1", values)
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Condition("1" if group == "all" else "0", ())
    return Condition(
        "(" + (" AND " if group == "all" else " OR ").join(part.sql for part in parts) + ")", values
    )


def _part_of(column: str, operator: str, value: JSON) -> Condition:
    if operator == "contains":
        return Condition(f"instr({column}, ?) > 0", (value,))
    if operator == "starts":
        return Condition(f"instr({column}, ?) = 1", (value,))
    folder = value.rstrip("/")
    return Condition(f"({column} = ? OR instr({column}, ?) = 1)", (folder or "/", folder + "/"))


def _json_equal(key: str, column: str, at: str, operand: JSON) -> Condition:
    if operand is None:
        return Condition(f"ifnull(json_type({column}, ?), 'null') = 'null'", (at,))
    if isinstance(operand, bool):
        return Condition(f"json_type({column}, ?) = ?", (at, "true" if operand else "false"))
    if isinstance(operand, str):
        return Condition(
            f"(json_type({column}, ?) = 'text' AND json_extract({column}, ?) = ?)",
            (at, at, _operand(key, TEXT, "eq", operand)),
        )
    return _json_compare(key, column, at, "eq", operand)


def _json_compare(key: str, column: str, at: str, operator: str, operand: JSON) -> Condition:
    if isinstance(operand, str):
        types, bound = "('text')", _operand(key, TEXT, operator, operand)
    else:
        types, bound = "('integer', 'real')", _operand(key, NUMBER, operator, operand)
    if bound is None:
        raise BadRequest(f"filter: '{key}': '{operator}' needs a value")
    sign = "=" if operator == "eq" else _COMPARE[operator]
    return Condition(
        f"(json_type({column}, ?) IN {types} AND json_extract({column}, ?) {sign} ?)", (at, at, bound)
    )


def _choices(key: str, operator: str, operand: JSON) -> list[JSON]:
    if not isinstance(operand, list):
        raise BadRequest(f"filter: '{key}': '{operator}' takes a list")
    if len(operand) > MAX_CHOICES:
        raise BadRequest(f"filter: '{key}': '{operator}' takes at most {MAX_CHOICES} values")
    return operand


def _boolean(key: str, operand: JSON) -> bool:
    if not isinstance(operand, bool):
        raise BadRequest(f"filter: '{key}': 'exists' takes true or false")
    return operand


def _operand(key: str, kind: str, operator: str, value: JSON) -> JSON:
    if value is None:
        return None
    if kind == TIME and isinstance(value, str):
        try:
            return parse_ms(value, end_of_day=operator in ("lte", "gt"))
        except ValueError:
            raise BadRequest(f"filter: '{key}': '{value[:40]}' is not an ISO 8601 date or time") from None
    if kind == TEXT:
        if not isinstance(value, str):
            raise BadRequest(f"filter: '{key}' is compared with texts")
        try:
            value.encode()
        except UnicodeEncodeError:
            raise BadRequest(f"filter: '{key}': half of a character (a lone surrogate)") from None
        return value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadRequest(f"filter: '{key}' is compared with {'times' if kind == TIME else 'numbers'}")
    if not math.isfinite(value) or abs(value) >= 2**63:
        raise BadRequest(f"filter: '{key}': a number out of range")
    return value


def _known_keys() -> tuple[str, ...]:
    return (*FIELDS, *LISTS, "metadata.KEY", "source.KEY", "parent.FIELD", *GROUPS)


def _nearest(name: str, known: tuple[str, ...]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean '{near[0]}'?" if near else f" (known: {', '.join(known)})"
