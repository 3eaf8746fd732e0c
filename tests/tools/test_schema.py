"""Arguments are checked once, and the quick check says what JSON Schema says."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx.errors import BadRequest, ConfigError
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
    valid = jsonschema.Draft202012Validator(SEARCH).is_valid(arguments)
    try:
        compile_check(SEARCH)(arguments)
        accepted = True
    except BadRequest:
        accepted = False
    assert accepted == valid


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "missing required parameter: query"),
        ({"query": None}, "missing required parameter: query"),
        ({"query": 3}, "parameter 'query' must be of type 'string', got integer"),
        ({"query": "a", "limit": "3"}, "parameter 'limit' must be of type 'integer', got string"),
        ({"query": "a", "limit": True}, "parameter 'limit' must be of type 'integer', got boolean"),
        ({"query": "a", "limit": 0}, "parameter 'limit' must be at least 1, got 0"),
        ({"query": "a", "mode": "c"}, 'parameter \'mode\' must be one of ["a", "b"], got "c"'),
        ({"query": "", "mode": "a"}, "parameter 'query' must have at least 1 characters"),
        ({"query": "a", "filters": {"until": "x"}}, "unknown parameter 'filters.until' (known: since)"),
        ({"query": "a", "souce": "x"}, "unknown parameter 'souce'"),
    ],
)
def test_an_error_names_the_parameter_and_the_mend(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(BadRequest) as caught:
        compile_check(SEARCH)(arguments)
    assert said in caught.value.message


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
    with pytest.raises(BadRequest, match=r"parameter 'tags/0' must be of type 'string', got integer"):
        check({"tags": [1]})


def test_a_schema_that_refers_outside_itself_is_refused() -> None:
    with pytest.raises(ConfigError, match="only references within the schema"):
        compile_check({"type": "object", "properties": {"a": {"$ref": "http://169.254.169.254/x"}}})


def test_a_schema_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigError):
        compile_check({"type": "object", "properties": {"a": {"type": "strin"}}})


def test_an_unknown_name_is_refused_whatever_its_value() -> None:
    check = compile_check(
        {"type": "object", "properties": {"id": {"type": "string"}}, "additionalProperties": False}
    )
    with pytest.raises(BadRequest, match="unknown parameter 'other'"):
        check({"id": "x", "other": None})
