"""Arguments are checked against schemas that may be hostile; errors name the parameter."""

import socket
from pathlib import Path
from typing import Any

import pytest
from faults import waiting

from ctx.errors import BadRequest, ConfigError
from ctx.models import JSON
from ctx.tools import schema
from ctx.tools.schema import compile_check

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1, "maxLength": 5},
        "mode": {"type": "string", "enum": ["a", "b"], "default": "a"},
        "limit": {"type": "integer", "minimum": 1, "maximum": 9},
        "ratio": {"type": "number"},
        "deep": {"type": "boolean"},
        "filters": {
            "type": "object",
            "properties": {"since": {"type": "string"}},
            "additionalProperties": False,
        },
    },
    "required": ["query"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing required parameter: query"),
        ({"query": 3}, "parameter 'query' must be of type 'string', got integer"),
        ({"query": "a", "limit": "3"}, "parameter 'limit' must be of type 'integer', got string"),
        ({"query": "a", "limit": 0}, "parameter 'limit' must be at least 1, got 0"),
        ({"query": "a", "mode": "c"}, 'parameter \'mode\' must be one of ["a", "b"], got "c"'),
        ({"query": "a", "filters": {"until": "x"}}, "unknown parameter 'filters.until' (known: since)"),
    ],
)
def test_an_error_names_the_parameter_and_the_fix(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        compile_check(SEARCH)(arguments)
    assert message in caught.value.message


def test_defaults_are_filled_nulls_are_absent_and_whole_floats_are_integers() -> None:
    assert compile_check(SEARCH)({"query": "a", "limit": 3.0, "deep": None}) == {
        "query": "a",
        "mode": "a",
        "limit": 3,
    }


@pytest.mark.parametrize("word", ["$ref", "$dynamicRef"])
def test_no_reference_leads_to_a_file(word: str, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text('{"type": "string"}')
    reference = (tmp_path / "other.json").as_uri()
    with pytest.raises(ConfigError, match="only references within the schema"):
        compile_check({"type": "object", "properties": {"a": {word: reference}}})
    # The library's own guard, should the look at the schema ever miss one.
    with pytest.raises(ConfigError, match="only references within the schema"):
        schema._validator({"properties": {"a": {"$ref": reference}}})


def test_no_reference_leads_to_a_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        property = {"$ref": f"{address}/property.json"}
        for bad in (
            {"properties": {"a": property}},
            {"$ref": f"{address}/root.json#/x"},
            {"$id": f"{address}/id/", "properties": {"a": {"$ref": "relative.json"}}},
            {"properties": {"a": {"$id": f"{address}/inner/", "$ref": "relative.json"}}},
            {"$schema": f"{address}/dialect.json", "properties": {"a": property}},
        ):
            with pytest.raises(ConfigError):
                compile_check({"type": "object", **bad})
            with pytest.raises(ConfigError):
                schema._validator({"type": "object", **bad})
        assert waiting(listener) == 0


# -- malformed schemas ---------------------------------------------------------------------------------------

JUNK: list[Any] = ["x", 7, True, [], [1], {"a": 1}, None, 1.5]
WORDS: dict[str, list[Any]] = {
    "properties": ["x", 7, True, [1], {"a": 1}, {"a": "string"}, {"a": {"type": []}}, {"a": {"type": {}}}],
    "required": [1, "a", {"a": 1}, [1], ["a", "a"], True],
    "additionalProperties": ["no", 0, [], None],
    "patternProperties": ["x", [], {"(": {}}, {"(?=a)": {}}, {"a": 7}, {"(a)\\1": {}}],
    "$ref": [7, "#/x", "http://127.0.0.1/x", "other.json"],
    "$defs": ["x", [], {"a": 7}],
    "allOf": ["x", [], {}, [7]],
    "not": ["x", 7, []],
    "type": [[], {}, 7, "objekt", None, ["object", 7]],
    "$dynamicRef": ["#a"],
    "$anchor": [7, "no blank"],
    "title": [7],
    "description": [{}, 7],
}
SCALARS: dict[str, list[Any]] = {
    "minimum": ["1", [], {}, True, float("inf"), float("nan")],
    "maximum": ["1", None, [1]],
    "minLength": ["1", -1, 1.5, []],
    "maxLength": ["x", -3, {}],
    "enum": ["x", 7, {"a": 1}],
    "pattern": [7, "(", "(?!a)", "(a)\\1", "*", "(" * 900, "\\"],
    "multipleOf": [0, -1, "x"],
    "items": ["string", 7, [{"type": "string"}]],
    "uniqueItems": ["yes", 1],
    "format": [7, []],
    "$ref": ["#/x", "#/properties/a/default", 7],
    "required": [1, True],
    "if": [7, "x"],
    "dependentSchemas": [7, {"a": 7}],
    "$id": ["http://127.0.0.1/"],
    "default": [{1, 2}],
}


def nested(depth: int) -> Any:
    schema: Any = {"type": "string"}
    for _ in range(depth):
        schema = {"type": "object", "properties": {"a": schema}}
    return schema


def doubling(levels: int) -> Any:
    defs = {f"d{n}": {"allOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(levels)}
    return {"type": "object", "$ref": "#/$defs/d0", "$defs": {**defs, f"d{levels}": {"type": "object"}}}


MALFORMED: list[Any] = [
    *({"type": "object", word: value} for word, values in WORDS.items() for value in values),
    *(
        {"type": "object", "properties": {"a": {word: value}}}
        for word, values in SCALARS.items()
        for value in values
    ),
    *(junk for junk in JUNK),
    *(nested(depth) for depth in (100, 5000)),
    doubling(40),
    {"type": "object", "$defs": {f"d{n}": {"$ref": f"#/$defs/d{n + 1}"} for n in range(600)}},
    {"type": "object", "properties": {f"p{n}": {} for n in range(30_000)}},
    {"type": "object", "properties": {"a": {"type": "array", "default": "x"}}},
    {"type": "object", "properties": {"a": {"type": "integer", "default": "5"}}},
    {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "default": 0}}},
    {"type": "object", "properties": {"a": {"type": "string", "enum": ["x"], "default": "y"}}},
    {"type": "object", "properties": {"a": {"type": "string", "pattern": "^a$", "default": "b"}}},
    {"type": "object", 7: "a"},
]


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_a_malformed_schema_is_refused_when_it_is_loaded(number: int) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_check(MALFORMED[number])
    assert len(caught.value.message) < 600


# -- patterns ------------------------------------------------------------------------------------------------


def with_pattern(pattern: str) -> JSON:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}


@pytest.mark.parametrize(
    ("pattern", "fitting", "unfitting"),
    [
        ("^a$", "a", "a\n"),
        (r"^\d+$", "12", "\u0661"),
        ("^(?<year>[0-9]{4})-(?:0[1-9]|1[0-2])$", "2026-11", "2026-13"),
        ("^.$", "\ud800", ""),  # a lone surrogate is one character
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, fitting: str, unfitting: str) -> None:
    check = compile_check(with_pattern(pattern))
    assert check({"a": fitting}) == {"a": fitting}
    with pytest.raises(BadRequest):
        check({"a": unfitting})


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", r"\q"])
def test_a_pattern_that_needs_a_backtracking_engine_is_refused_with_the_fix(pattern: str) -> None:
    with pytest.raises(ConfigError, match="without look-ahead, look-behind and back references"):
        compile_check(with_pattern(pattern))
    with pytest.raises(ConfigError, match="linear time"):
        compile_check({"type": "object", "patternProperties": {pattern: {}}})


def test_a_schema_that_refers_to_itself_is_refused() -> None:
    """Each level of the arguments could be checked twice as often as the one above."""
    tree = {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/$defs/t"}] * 2}}}
    with pytest.raises(ConfigError, match="nested more than 64 deep"):
        compile_check({"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": tree}})


def test_a_null_is_absent_at_every_depth_unless_the_schema_allows_it() -> None:
    inner = {
        "type": "object",
        "properties": {
            "text": {"type": "string"},
            "either": {"anyOf": [{"type": "string"}, {"type": "array"}]},
            "open": {},
            "nullable": {"type": ["string", "null"]},
            "n": {"type": "integer", "default": 3},
        },
    }
    check = compile_check(
        {"type": "object", "properties": {"o": inner, "list": {"type": "array", "items": inner}}}
    )
    nulls = {"text": None, "either": None, "open": None, "nullable": None, "n": None}
    kept = {"open": None, "nullable": None, "n": 3}
    assert check({"o": nulls, "list": [nulls]}) == {"o": kept, "list": [kept]}
