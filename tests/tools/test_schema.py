"""Arguments are checked against a schema that may be hostile; errors name the parameter."""

import json
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.request import urlopen

import jsonschema_rs
import pytest
from fuzz import fuzz, patient
from hypothesis import given
from hypothesis import strategies as st

from ctx.errors import BadRequest, ConfigError, ToolError
from ctx.extensions.parameters import parameters_schema
from ctx.tools import schema
from ctx.tools.base import Tool, Toolbox
from ctx.tools.schema import compile_check
from ctx.types import JSON, Caller

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
VALUES: Any = st.recursive(
    st.booleans()
    | st.integers(-3, 12)
    | st.floats(-3, 12, allow_nan=False)
    | st.text("ab", max_size=7)
    | st.sampled_from(["a", "b"]),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["since", "x"]), inner, max_size=2)
    ),
    max_leaves=3,
)
ARGUMENTS: Any = st.dictionaries(st.sampled_from([*SEARCH["properties"], "other"]), VALUES, max_size=5)  # type: ignore[misc]


@given(ARGUMENTS)
def test_the_quick_check_accepts_exactly_what_json_schema_accepts(arguments: dict[str, Any]) -> None:
    valid = jsonschema_rs.Draft202012Validator(SEARCH).is_valid(arguments)
    try:
        compile_check(SEARCH)(arguments)
        accepted = True
    except BadRequest:
        accepted = False
    assert accepted == valid


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing required parameter: query"),
        ({"query": None}, "missing required parameter: query"),
        ({"query": 3}, "parameter 'query' must be of type 'string', got integer"),
        ({"query": "a", "limit": "3"}, "parameter 'limit' must be of type 'integer', got string"),
        ({"query": "a", "limit": True}, "parameter 'limit' must be of type 'integer', got boolean"),
        ({"query": "a", "limit": 0}, "parameter 'limit' must be at least 1, got 0"),
        ({"query": "a", "mode": "c"}, 'parameter \'mode\' must be one of ["a", "b"], got "c"'),
        ({"query": "", "mode": "a"}, "parameter 'query' must have at least 1 character"),
        ({"query": "a", "filters": {"until": "x"}}, "unknown parameter 'filters.until' (known: since)"),
        ({"query": "a", "souce": "x"}, "unknown parameter 'souce'"),
    ],
)
def test_an_error_names_the_parameter_and_the_mend(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        compile_check(SEARCH)(arguments)
    assert message in caught.value.message


def test_defaults_are_filled_nulls_are_absent_and_whole_floats_are_integers() -> None:
    assert compile_check(SEARCH)({"query": "a", "limit": 3.0, "deep": None}) == {
        "query": "a",
        "mode": "a",
        "limit": 3,
    }


def test_a_schema_that_says_more_goes_to_json_schema_with_the_same_wording() -> None:
    check = compile_check(
        {
            "type": "object",
            "properties": {
                "tags": {"type": "array", "items": {"type": "string"}},
                "n": {"type": "integer", "default": 2},
            },
        }
    )
    assert check({"tags": ["x"]}) == {"tags": ["x"], "n": 2}
    with pytest.raises(BadRequest, match=r"parameter 'tags\[0\]' must be of type 'string', got integer"):
        check({"tags": [1]})


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
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"type": "string"}')

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
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
        urlopen(f"{address}/seen").close()
        server.shutdown()
    assert asked == ["/seen"]


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        compile_check({"type": "object", "properties": {"a": {"type": "strin"}}})


def test_an_unknown_name_is_refused_whatever_its_value() -> None:
    check = compile_check(
        {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": False}
    )
    with pytest.raises(BadRequest, match="unknown parameter 'other'"):
        check({"id": "x", "other": None})


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
    "pattern": [
        7,
        "(",
        "[",
        "(?!a)",
        "(?<=a)b",
        "(a)\\1",
        "\\k<a>",
        "*",
        "(" * 900,
        "\\",
    ],
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
    *(
        {"type": "object", "properties": {"a": {"type": "integer", word: value}}}
        for word in ("minimum", "enum", "pattern", "$ref")
        for value in SCALARS[word]
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


def test_there_are_many_malformed_schemas() -> None:
    assert len(MALFORMED) >= 110


@pytest.mark.parametrize("number", range(len(MALFORMED)))
def test_a_malformed_schema_is_refused_when_it_is_loaded(number: int) -> None:
    with pytest.raises(ConfigError) as caught:
        compile_check(MALFORMED[number])
    assert len(caught.value.message) < 600


LOOSE: Any = st.recursive(
    st.sampled_from(
        [None, True, False, 0, 1, -1, 2.5, "", "a", "object", "string", "integer", "^(a+)+$", "#", "#/x"]
    ),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*WORDS, *SCALARS, "a", "b", "name"]), inner, max_size=4)
    ),
    max_leaves=12,
)
ENTRY: Any = st.dictionaries(st.sampled_from([*SCALARS, "type", "name", "properties"]), LOOSE, max_size=4)
SCHEMA: Any = LOOSE | st.builds(
    lambda properties, more: {"type": "object", **more, "properties": properties},
    st.dictionaries(st.sampled_from(["a", "b"]), ENTRY, max_size=2),
    st.dictionaries(st.sampled_from(list(WORDS)), LOOSE, max_size=2),
)
CALL: Any = st.dictionaries(st.sampled_from(["a", "b", "c"]), LOOSE, max_size=3)


@pytest.mark.slow
@patient
def test_whatever_parameters_say_a_tool_is_loaded_or_refused_and_a_call_is_answered_or_refused() -> None:
    @given(declared=SCHEMA, arguments=CALL)
    def check(declared: Any, arguments: dict[str, Any]) -> None:
        toolbox = Toolbox()
        for lenient in (False, True):
            try:
                schema = parameters_schema(declared, "x.lua") if lenient else declared
                tool = Tool("fuzzed", "", schema, lambda arguments, caller: arguments, lenient=lenient)
                toolbox.add(tool, replace=True)
            except (ConfigError, ToolError):
                continue
            with suppress(BadRequest):
                json.dumps(toolbox.call("fuzzed", arguments, Caller("rest")))

    fuzz(check, 200)


@given(
    kind=st.sampled_from(["string", "integer", "number", "boolean"]),
    rule=st.fixed_dictionaries(
        {},
        optional={
            "minimum": st.integers(-3, 3),
            "maximum": st.floats(-3, 3),
            "minLength": st.integers(0, 3),
            "maxLength": st.integers(0, 3),
            "enum": st.lists(
                st.sampled_from([0, 1, 1.0, True, False, "a", "ab", None]), min_size=1, max_size=3
            ),
        },
    ),
    value=VALUES,
)
def test_a_bound_that_is_not_of_the_type_says_nothing(kind: str, rule: dict[str, Any], value: Any) -> None:
    schema = {"type": "object", "properties": {"a": {"type": kind, **rule}}, "required": ["a"]}
    valid = jsonschema_rs.Draft202012Validator(schema).is_valid({"a": value})
    try:
        compile_check(schema)({"a": value})
        accepted = True
    except BadRequest:
        accepted = False
    assert accepted == valid


# -- patterns ------------------------------------------------------------------------------------------------


def with_pattern(pattern: str) -> JSON:
    return {"type": "object", "properties": {"a": {"type": "string", "pattern": pattern}}}


@pytest.mark.parametrize(
    ("pattern", "fitting", "unfitting"),
    [
        ("^a$", "a", "a\n"),
        ("b", "abc", "ac"),
        (r"^\d+$", "12", "\u0661"),
        (r"^\s$", "\ufeff", "\u200b"),
        (r"^[\w-]+\/$", "a-b/", "a b/"),
        (r"^\u00e9\x41\cA$", "\u00e9A\x01", "eA"),
        (r"^\p{Lu}", "\u00c9", "\u00e9"),
        ("^(?<year>[0-9]{4})-(?:0[1-9]|1[0-2])$", "2026-11", "2026-13"),
        ("^.$", "\ud800", ""),  # a lone surrogate is one character
    ],
)
def test_a_pattern_means_what_ecma_262_says(pattern: str, fitting: str, unfitting: str) -> None:
    check = compile_check(with_pattern(pattern))
    assert check({"a": fitting}) == {"a": fitting}
    with pytest.raises(BadRequest):
        check({"a": unfitting})


def test_a_pattern_takes_linear_time() -> None:
    check = compile_check(with_pattern("^(a+)+$"))
    assert check({"a": "a" * 5000})
    with pytest.raises(BadRequest, match="parameter 'a'") as caught:
        check({"a": "a" * 5000 + "b"})
    assert len(caught.value.message) < 400


@pytest.mark.parametrize("pattern", ["(?=a)", "(?<!a)b", r"(a)\1", r"\q"])
def test_a_pattern_that_needs_a_backtracking_engine_is_refused_with_the_mend(pattern: str) -> None:
    with pytest.raises(ConfigError, match="without look-ahead, look-behind and back references"):
        compile_check(with_pattern(pattern))
    with pytest.raises(ConfigError, match="linear time"):
        compile_check({"type": "object", "patternProperties": {pattern: {}}})


def test_a_pattern_in_a_property_called_pattern_is_no_pattern() -> None:
    check = compile_check({"type": "object", "properties": {"pattern": {"type": ["string", "null"]}}})
    assert check({"pattern": "(?=a)"}) == {"pattern": "(?=a)"}


# -- references ----------------------------------------------------------------------------------------------


def test_references_within_a_schema_are_followed_also_where_they_recur() -> None:
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "n": {"$ref": "#whole"}}}
    check = compile_check(
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$id": "https://tools.example/x",
            "type": "object",
            "properties": {"list": {"$ref": "#/$defs/node"}, "n": {"$ref": "#whole", "default": 2}},
            "$defs": {"node": node, "whole": {"$anchor": "whole", "type": "integer"}},
        }
    )
    assert check({"list": {"next": {"next": {"n": 1}}}}) == {"list": {"next": {"next": {"n": 1}}}, "n": 2}
    with pytest.raises(BadRequest, match="parameter 'list' does not fit"):
        check({"list": {"next": {"n": "1"}}})


def test_a_schema_that_leads_to_itself_without_end_still_answers() -> None:
    assert compile_check({"type": "object", "$ref": "#"})({"a": 1}) == {"a": 1}


def test_a_schema_that_doubles_at_every_level_is_checked_at_once() -> None:
    """Each level of the arguments would be checked twice as often as the one above."""
    tree = {
        "anyOf": [
            {"type": "string"},
            {"type": "object", "properties": {"a": {"allOf": [{"$ref": "#/$defs/t"}] * 2}}},
        ]
    }
    check = compile_check(
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/t"}}, "$defs": {"t": tree}}
    )
    arguments: Any = {"a": 7}
    for _ in range(60):
        arguments = {"a": arguments}
    with pytest.raises(BadRequest, match="parameter 'a' does not fit"):
        check(arguments)


def test_a_schema_that_doubles_by_references_alone_is_refused() -> None:
    with pytest.raises(ConfigError, match="counting references"):
        compile_check(doubling(40))


# -- nulls, defaults, items ----------------------------------------------------------------------------------


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


def test_a_default_is_not_shared_between_calls() -> None:
    check = compile_check({"type": "object", "properties": {"a": {"type": "array", "default": []}}})
    check({})["a"].append(1)
    assert check({}) == {"a": []}


def test_one_or_more_says_which_choice_was_meant() -> None:
    text = {"type": "string", "minLength": 1}
    rule = {"anyOf": [text, {"type": "array", "items": text, "maxItems": 2}]}
    check = compile_check({"type": "object", "properties": {"a": rule}})
    assert check({"a": "x"})
    assert check({"a": ["x"]})
    for value, problem in (
        (3, "'a' must be of type 'string' or 'array', got integer"),
        ("", "'a' must have at least 1 character"),
        ([3], r"'a\[0\]' must be of type 'string', got integer"),
        (["x", "y", "z"], "'a' must have at most 2 entries, got 3"),
    ):
        with pytest.raises(BadRequest, match=problem):
            check({"a": value})


def test_items_are_compared_once_each_and_one_equals_one_point_zero() -> None:
    check = compile_check({"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}})
    entries = [{"n": number} for number in range(20_000)]
    assert check({"a": entries}) == {"a": entries}
    assert check({"a": [1, True, "1", [1], {"a": 1}]})
    for twins in ([1, 1.0], [{"a": 1, "b": 2}, {"b": 2.0, "a": 1}], [[1], [1.0]]):
        with pytest.raises(BadRequest, match="non-unique"):
            check({"a": twins})


def test_arguments_may_be_nested_as_deep_as_they_come() -> None:
    check = compile_check({"type": "object", "properties": {"a": {"uniqueItems": True}}})
    value: Any = 1
    for _ in range(100_000):
        value = [value]
    assert check({"a": [value, 2]})["a"][0] is value
