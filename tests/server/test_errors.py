"""The one table of errors."""

import re
from pathlib import Path

import pytest

import ctx.errors
import ctx.refusals
from ctx.errors import Busy, CtxError, NotFound
from ctx.refusals import RateLimited, Unauthorized
from ctx.server import errors, openapi


def _classes(kind: type[CtxError]) -> list[type[CtxError]]:
    return [kind, *(match for child in kind.__subclasses__() for match in _classes(child))]


OURS = [kind for kind in _classes(CtxError) if kind.__module__ in ("ctx.errors", "ctx.refusals")]


def test_every_error_of_ctx_has_a_row() -> None:
    names = {**vars(ctx.errors), **vars(ctx.refusals)}.values()
    assert set(OURS) == {name for name in names if isinstance(name, type) and issubclass(name, CtxError)}
    assert set(OURS) <= set(errors.TABLE)


@pytest.mark.parametrize(
    ("word", "status"),
    [
        ("bad_request", 400),
        ("embeddings_disabled", 400),
        ("unauthorized", 401),
        ("origin_not_allowed", 403),
        ("misdirected_request", 421),
        ("rate_limited", 429),
        ("not_found", 404),
        ("method_not_allowed", 405),
        ("payload_too_large", 413),
        ("timeout", 408),
        ("tool_error", 500),
        ("store_error", 503),
        ("busy", 503),
        ("internal", 500),
    ],
)
def test_a_word_has_one_status(word: str, status: int) -> None:
    assert {errors.TABLE[kind].status for kind in OURS if kind.word == word} == {status}


def test_a_class_of_another_room_has_its_parents_row() -> None:
    class NoSuchMemory(NotFound):
        pass

    assert errors.row(NoSuchMemory("gone")) == errors.TABLE[NotFound]


def test_what_a_model_can_mend_is_a_tool_error_over_mcp() -> None:
    mendable = {kind.word for kind in OURS if errors.TABLE[kind].rpc is None}
    assert mendable == {
        "bad_request",
        "embeddings_disabled",
        "not_found",
        "conflict",
        "timeout",
        "tool_error",
        "source_error",
    }


def test_headers_say_when_to_come_again_and_how_to_identify_oneself() -> None:
    assert errors.headers(RateLimited("slow down", retry_after_s=0.2)) == {"retry-after": "1"}
    assert errors.headers(Busy("full", retry_after_s=4.1)) == {"retry-after": "5"}
    assert errors.headers(Unauthorized("no key")) == {"www-authenticate": 'Bearer realm="ctx"'}
    assert "invalid_token" in errors.headers(Unauthorized("bad key", presented=True))["www-authenticate"]


def test_a_refusal_on_an_mcp_path_is_json_rpc_and_keeps_the_word() -> None:
    body = errors.rpc_body(RateLimited("slow down", retry_after_s=1.5))
    assert (body["jsonrpc"], body["id"], body["error"]["code"]) == ("2.0", None, -32005)
    assert body["error"]["data"] == {"code": "rate_limited", "retryAfterMs": 1500}


def test_the_documentation_has_the_same_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "http-api.md"
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|", page.read_text(), re.MULTILINE)
    documented = {(int(status), word) for status, words in rows for word in re.findall(r"\w+", words)}
    assert documented == {(errors.TABLE[kind].status, kind.word) for kind in OURS}


def test_openapi_describes_every_status_that_can_come() -> None:
    described = openapi.describe(openapi.Described([], []))["components"]["responses"]
    assert set(described) == {f"Error{row.status}" for row in errors.TABLE.values()}
