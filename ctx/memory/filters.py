"""Compiles filters to SQL. Values are bound as parameters, never part of the SQL text.

A filter is a JSON object. A memory matches a filter if it meets all entries:

    {"kind": "fact"}                                equal to a value (null: absent)
    {"importance": {"gte": 5, "lt": 8}}             operators, all of which must hold
    {"folder": {"under": "/work"}}                  this folder or any below it
    {"tags": {"has": "auth"}}                       has, has_any, has_all, has_only (no others)
    {"metadata.type": {"in": ["code", "note"]}}     metadata by key, nested by dots
    {"parent.label": "API design"}                  a field of the container
    {"any": [filter, ...]}, {"all": [...]}, {"none": [...]}

A comparison with an absent value counts as false, also inside `none`. Times are milliseconds since the epoch
or ISO 8601. A date without a time means its first moment, or with `lte` and `gt` its last. An invalid filter
raises `BadRequest`, which names the key.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ctx.errors import BadRequest
from ctx.memory.columns import (
    COMPARED,
    LIST,
    NUMBER,
    OBJECT,
    TEXT,
    TIME,
    check_number,
    check_unicode,
    column_sql,
    moment_ms,
)
from ctx.models import JSON, is_number
from ctx.text.strings import did_you_mean

MAX_DEPTH = 8
MAX_CONDITIONS = 64
# Maximum values of one `in`. Each is a bound variable; SQLite allows 32766 of them, PostgreSQL 65535.
MAX_CHOICES = 1000

FIELDS = {name: entry for name, entry in COMPARED.items() if entry[0] not in (LIST, OBJECT)}
LISTS = tuple(name for name, entry in COMPARED.items() if entry[0] == LIST)
GROUPS = ("all", "any", "none")
_KNOWN_KEYS = (*FIELDS, *LISTS, "metadata.KEY", "source.KEY", "parent.FIELD", *GROUPS)
_COMPARE = {"eq": "=", "lt": "<", "lte": "<=", "gt": ">", "gte": ">="}
OPERATORS = (*_COMPARE, "in", "exists", "contains", "under")
_JSON_KEY = re.compile(r'[^"\\\x00-\x1f]{1,128}')


class Condition(NamedTuple):
    """An SQL condition on the table alias `m`, for SQLite and PostgreSQL, and its parameters in order."""

    sql: str
    values: tuple[JSON, ...]


EVERYTHING = Condition("TRUE", ())
_NOTHING = Condition("FALSE", ())


def compile_filter(filter: JSON) -> Condition:
    """Compiles a filter to a condition. `None` and `{}` match everything. Raises `BadRequest`."""
    if filter is None:
        return EVERYTHING
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
            if key not in GROUPS:
                parts.append(self.entry(key, value))
            elif isinstance(value, list):
                parts.append(_join(key, [self.group(member, key, depth + 1) for member in value]))
            else:
                raise BadRequest(f"filter: '{key}' must hold a list of filters")
        return _join("all", parts)

    def entry(self, key: str, value: JSON) -> Condition:
        alias, name = ("p", key.removeprefix("parent.")) if key.startswith("parent.") else ("m", key)
        if name == "context":
            condition = self.context(key, alias, value)
        elif name in FIELDS:
            kind, column = FIELDS[name]
            compared = partial(_compared, key, kind, column_sql(alias, column))
            condition = self.each(key, value, OPERATORS, compared)
        elif name in LISTS:
            condition = self.listed(key, f"{alias}.{name}", value)
        elif name.startswith(("metadata.", "source.")):
            object, _, path = name.partition(".")
            condition = self.keyed(key, f"{alias}.{object}", path, value)
        else:
            raise BadRequest(f"filter: unknown key '{key[:80]}'; {did_you_mean(name, _KNOWN_KEYS)}")
        if alias == "p":
            container = "p.bank_no = m.bank_no AND p.id = m.parent AND p.deleted_ms IS NULL"
            exists = f"EXISTS (SELECT 1 FROM memories p WHERE {container} AND {condition.sql})"
            return Condition(exists, condition.values)
        return condition

    def context(self, key: str, alias: str, value: JSON) -> Condition:
        """A condition on the contexts of a memory. A text matches if it equals any of them."""
        first = self.each(key, value, OPERATORS, partial(_compared, key, TEXT, f"{alias}.context"))
        if not isinstance(value, str):
            return first
        return _join("any", [first, self.listed(key, f"{alias}.contexts", value)])

    def each(
        self, key: str, value: JSON, known: tuple[str, ...], test: Callable[[str, JSON], Condition]
    ) -> Condition:
        """The condition that all operators of one filter entry are met."""
        bare = ("in" if isinstance(value, list) else "eq", value)
        entries: list[tuple[str, JSON]] = list(value.items()) if isinstance(value, dict) else [bare]
        if not entries:
            raise BadRequest(f"filter: '{key}' has no operator (known: {', '.join(known)})")
        for operator, _ in entries:
            if operator not in known:
                hint = did_you_mean(operator, known)
                raise BadRequest(f"filter: '{key}' has no operator '{operator[:40]}'; {hint}")
        self.conditions += len(entries)
        if self.conditions > MAX_CONDITIONS:
            raise BadRequest(f"filter: more than {MAX_CONDITIONS} conditions")
        return _join("all", [test(operator, operand) for operator, operand in entries])

    def listed(self, key: str, column: str, value: JSON) -> Condition:
        if isinstance(value, str):
            value = {"has": value}
        operators = ("has", "has_any", "has_all", "has_only", "exists")
        return self.each(key, value, operators, partial(_has, key, column))

    def keyed(self, key: str, column: str, path: str, value: JSON) -> Condition:
        names = path.split(".")
        if not all(_JSON_KEY.fullmatch(name) for name in names):
            rule = "1 to 128 characters, none of them a quote or backslash"
            raise BadRequest(f"filter: '{key[:80]}': a key of {column[2:]} has {rule}")
        json_path = "$" + "".join(f'."{name}"' for name in names)
        return self.each(key, value, OPERATORS, partial(_json_compared, key, column, json_path))


def _has(key: str, column: str, operator: str, operand: JSON) -> Condition:
    """The condition of one operator on a column with a list of texts."""
    if operator == "exists":
        return Condition(f"{column} {'<>' if _boolean(key, operand) else '='} '[]'", ())
    members = [operand] if operator == "has" else _choices(key, operator, operand)
    names = tuple(_operand(key, TEXT, operator, entry) for entry in members)
    if None in names:
        raise BadRequest(f"filter: '{key}': '{operator}' takes texts")
    if operator == "has_only":
        unless = f" WHERE value NOT IN ({','.join('?' * len(names))})" if names else ""
        return Condition(f"NOT EXISTS (SELECT 1 FROM json_each({column}){unless})", names)
    member = f"EXISTS (SELECT 1 FROM json_each({column}) WHERE value = ?)"
    return _join("any" if operator == "has_any" else "all", [Condition(member, (name,)) for name in names])


class _Side(NamedTuple):
    """The left side of a comparison: an SQL expression, NULL if there is no value, and its parameters."""

    sql: str
    values: tuple[JSON, ...] = ()

    def test(self, template: str, *operands: JSON) -> Condition:
        return Condition(template.format(self.sql), (*self.values, *operands))

    def exists(self, there: bool) -> Condition:
        return self.test("{} IS NOT NULL" if there else "{} IS NULL")


def _compared(key: str, kind: str, column: str, operator: str, operand: JSON) -> Condition:
    """The condition of one operator on a column."""
    side = _Side(column)
    if operator == "exists":
        return side.exists(_boolean(key, operand))
    if operator != "in":
        return _tested(key, kind, side, operator, operand)
    values = tuple(_operand(key, kind, operator, entry) for entry in _choices(key, operator, operand))
    if None in values:
        raise BadRequest(f"filter: '{key}': null in a list; use {{\"exists\": false}}")
    return side.test(f"{{}} IN ({','.join('?' * len(values))})", *values) if values else _NOTHING


def _json_compared(key: str, column: str, path: str, operator: str, operand: JSON) -> Condition:
    """The condition of one operator on the value at a path of a JSON column.

    Values of different types are never equal.
    """
    if operator == "exists":
        return _json_type(column, path).exists(_boolean(key, operand))
    if operator == "in":
        entries = _choices(key, operator, operand)
        return _join("any", [_json_compared(key, column, path, "eq", entry) for entry in entries])
    if operand is None or isinstance(operand, bool):
        named = {None: None, True: "true", False: "false"}[operand]
        if operator != "eq" and named is not None:
            # Always raises, because the operand is not a number.
            named = _operand(key, NUMBER, operator, operand)
        return _tested(key, TEXT, _json_type(column, path), operator, named)
    kind, types, value = NUMBER, "('integer', 'real')", f"CAST(json_extract({column}, ?) AS NUMERIC)"
    if isinstance(operand, str):
        kind, types, value = TEXT, "('text')", f"json_extract({column}, ?)"
    side = _Side(f"CASE WHEN json_type({column}, ?) IN {types} THEN {value} END", (path, path))
    return _tested(key, kind, side, operator, operand)


def _json_type(column: str, path: str) -> _Side:
    return _Side(f"nullif(json_type({column}, ?), 'null')", (path,))


def _tested(key: str, kind: str, side: _Side, operator: str, operand: JSON) -> Condition:
    """The condition of one operator that compares a value with a single operand."""
    if operator in ("contains", "under"):
        if kind != TEXT or not isinstance(operand, str):
            raise BadRequest(f"filter: '{key}': '{operator}' compares texts")
        text = _operand(key, TEXT, operator, operand)
        if operator == "contains":
            return side.test("instr({}, ?) > 0", text)
        folder = text.rstrip("/")
        return _join("any", [side.test("{} = ?", folder or "/"), side.test("instr({}, ?) = 1", folder + "/")])
    bound = _operand(key, kind, operator, operand)
    if bound is None and operator != "eq":
        raise BadRequest(f"filter: '{key}': '{operator}' needs a value")
    return side.exists(False) if bound is None else side.test(f"{{}} {_COMPARE[operator]} ?", bound)


def same(column: str, value: JSON) -> Condition:
    """The condition that a column has this value; for None, that it has no value."""
    return Condition(f"{column} IS NULL", ()) if value is None else Condition(f"{column} = ?", (value,))


def _join(group: str, parts: list[Condition]) -> Condition:
    if group == "none":
        # In SQL, a comparison with NULL is NULL, and its negation too, which would exclude the row.
        parts = [Condition(f"NOT coalesce(({part.sql}), FALSE)", part.values) for part in parts]
    if not parts:
        return _NOTHING if group == "any" else EVERYTHING
    if len(parts) == 1:
        return parts[0]
    sql = (" OR " if group == "any" else " AND ").join(part.sql for part in parts)
    return Condition(f"({sql})", tuple(value for part in parts for value in part.values))


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
        return moment_ms(f"filter: '{key}'", value, end_of_day=operator in ("lte", "gt"))
    if kind == TEXT:
        if not isinstance(value, str):
            raise BadRequest(f"filter: '{key}' is compared with texts")
        check_unicode(f"filter: '{key}'", value)
        return value
    if not is_number(value):
        raise BadRequest(f"filter: '{key}' is compared with {'times' if kind == TIME else 'numbers'}")
    check_number(f"filter: '{key}'", value)
    return value
