"""Arguments as models, clients and query strings send them."""

import pytest

from ctx.errors import BadRequest
from ctx.models import JSON
from ctx.tools.schema import from_text, put_right, without_absent

SCHEMA: JSON = {
    "type": "object",
    "properties": {
        "query": {"type": "string"},
        "max_results": {"type": "integer"},
        "share": {"type": "number"},
        "dry_run": {"type": "boolean"},
        "tags": {"type": "array", "items": {"type": "string"}},
        "metadata": {"type": "object"},
        "mode": {"type": "string", "enum": ["keyword", "hybrid"]},
        "items": {"type": "array", "items": {"type": "object", "properties": {"text": {}, "when": {}}}},
    },
}


def test_unknown_arguments_are_reported_and_nulls_ignored() -> None:
    arguments = {"query": "x", "explanation": "because", "reason": None, "sessionId": "s"}
    passed, unknown = put_right(SCHEMA, arguments, ("sessionId",))
    assert (passed, unknown) == ({"query": "x", "sessionId": "s"}, ["explanation"])


@pytest.mark.parametrize(
    ("name", "meant"), [("max_result", "max_results"), ("dryRun", "dry_run"), ("tag", "tags")]
)
def test_a_name_that_was_nearly_right_is_refused_with_the_right_one(name: str, meant: str) -> None:
    with pytest.raises(BadRequest, match=f"unknown parameter '{name}'; did you mean '{meant}'"):
        put_right(SCHEMA, {"query": "x", name: 1})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ({"tags": '["a"]'}, {"tags": ["a"]}),
        ({"tags": "a"}, {"tags": "a"}),
        ({"metadata": '{"a": 1}'}, {"metadata": {"a": 1}}),
        ({"metadata": "[1]"}, {"metadata": "[1]"}),
        ({"max_results": "3"}, {"max_results": 3}),
        ({"max_results": "3.0"}, {"max_results": 3}),
        ({"max_results": "2.5"}, {"max_results": "2.5"}),
        ({"query": 404}, {"query": 404}),
        ({"max_results": "few"}, {"max_results": "few"}),
        ({"share": "0.5"}, {"share": 0.5}),
        ({"share": "nan"}, {"share": "nan"}),
        ({"dry_run": "true"}, {"dry_run": True}),
        ({"query": "[1]"}, {"query": "[1]"}),
        ({"tags": "null", "max_results": "None", "query": "null"}, {"query": "null"}),
        ({"mode": "Hybrid"}, {"mode": "hybrid"}),
        ({"mode": "HYBRIDS"}, {"mode": "HYBRIDS"}),
        ({"metadata": "[" * 100_000}, {"metadata": "[" * 100_000}),
    ],
)
def test_text_is_read_where_a_list_an_object_or_a_number_is_asked_for(
    text: dict[str, JSON], value: dict[str, JSON]
) -> None:
    assert put_right(SCHEMA, text)[0] == value


def test_a_query_string_has_the_types_of_the_schema_and_the_last_of_several() -> None:
    texts = {
        "query": ["a", "b"],
        "max_results": ["7"],
        "share": [".5"],
        "dry_run": ["True"],
        "tags": ["x"],
        "unknown": ["1"],
    }
    assert from_text(SCHEMA, texts) == {
        "query": "b",
        "max_results": 7,
        "share": 0.5,
        "dry_run": True,
        "tags": ["x"],
        "unknown": "1",
    }
    assert from_text(SCHEMA, {"dry_run": ["maybe"], "max_results": ["1.5"]}) == {
        "dry_run": "maybe",
        "max_results": "1.5",
    }


def test_a_field_without_a_value_is_absent_and_what_is_left_open_keeps_its_nulls() -> None:
    arguments = {
        "query": None,
        "metadata": {"a": None},
        "items": [{"text": "x", "when": None, "else": None}, {"text": "y"}],
        "strange": None,
    }
    assert without_absent(SCHEMA, arguments) == {
        "metadata": {"a": None},
        "items": [{"text": "x"}, {"text": "y"}],
    }


@pytest.mark.parametrize("absent", ["", "null", "None", "undefined", None, ["null"]])
def test_an_optional_argument_that_is_spelled_as_absent_is_absent(absent: JSON) -> None:
    schema: JSON = {**SCHEMA, "required": ["query"]}
    arguments = {"query": "null", "max_results": absent, "tags": absent, "metadata": absent}
    assert put_right(schema, arguments, strict=False) == ({"query": "null"}, [])
