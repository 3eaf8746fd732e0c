"""The toolbox: registering, calling, observing and listing tools, and rate limits."""

from pathlib import Path
from typing import Any

import pytest

from ctx.errors import BadRequest, ConfigError, NotFound, RateLimited, ToolError
from ctx.models import Caller
from ctx.tools.toolbox import Call, Tool, Toolbox, Window

CALLER = Caller("rest")


def tool(name: str, **changes: Any) -> Tool:
    tool = Tool(
        name,
        "a tool",
        {"type": "object", "properties": {"n": {"type": "integer", "default": 1}}},
        lambda arguments, caller: arguments,
    )
    return tool._replace(**changes)


def test_a_call_fills_defaults_and_is_observed_with_its_outcome() -> None:
    box = Toolbox()
    calls: list[Call] = []
    box.observe(calls.append)
    box.add(tool("t"))
    assert box.call("t", {}, CALLER) == {"n": 1}
    with pytest.raises(BadRequest):
        box.call("t", {"n": "x"}, CALLER)
    with pytest.raises(BadRequest):
        box.call("t", [], CALLER)
    with pytest.raises(NotFound, match="no tool registered with name: gone"):
        box.call("gone", {}, CALLER)
    assert [(call.tool, call.outcome) for call in calls] == [
        ("t", "ok"),
        ("t", "bad_request"),
        ("t", "bad_request"),
        ("gone", "not_found"),
    ]


def test_two_tools_of_one_name_are_an_error_that_names_both_files() -> None:
    box = Toolbox()
    box.add(tool("t", origin="a.lua"))
    with pytest.raises(ConfigError, match=r"two tools are called 't': a\.lua and b\.lua"):
        box.add(tool("t", origin="b.lua"))


def test_a_tool_that_failed_to_load_answers_its_error_and_is_not_listed() -> None:
    box = Toolbox()
    box.add_failed("broken", ToolError("the script did not load"))
    assert box.list() == []
    with pytest.raises(ToolError):
        box.call("broken", {}, CALLER)
    box.add(tool("broken"))
    assert box.call("broken", {}, CALLER) == {"n": 1}


def test_the_list_has_built_in_tools_first_then_names_and_tells_of_changes() -> None:
    box = Toolbox()
    entries: list[int] = []
    box.on_change(lambda: entries.append(len(box.list())))
    for name, builtin in (("zeta", False), ("search", True), ("alpha", False), ("get", True)):
        box.add(tool(name, builtin=builtin))
    assert [entry.name for entry in box.list()] == ["search", "get", "alpha", "zeta"]
    box.remove("zeta")
    assert entries == [1, 2, 3, 4, 3]


# -- rate limits, with a clock under control -----------------------------------------------------------------


@pytest.mark.parametrize("file", ["", "rates.db"])
def test_the_window_slides_and_a_refused_call_does_not_count(file: str, tmp_path: Path) -> None:
    path = str(tmp_path / file) if file else None
    present = [0.0]
    rate = Window(3, path, clock=lambda: present[0])
    for moment in (0.0, 20.0, 40.0):
        present[0] = moment
        rate.spend("a")
    present[0] = 59.9
    with pytest.raises(RateLimited, match="more than 3 calls in 60 s") as limited:
        rate.spend("a")
    assert limited.value.retry_after_s == pytest.approx(0.1)
    rate.spend("b")  # another caller has a window of its own
    present[0] = 60.0
    rate.spend("a")  # the first call left the window, and no more than it
    with pytest.raises(RateLimited):
        rate.spend("a")
    assert rate.current("a") == 3
    present[0] = 200.0
    assert rate.current("a") == 0


def test_no_limit_is_no_limit() -> None:
    rate = Window(0)
    for _ in range(10_000):
        rate.spend("a")


def test_windows_of_one_name_in_a_file_count_together_and_those_of_another_apart(tmp_path: Path) -> None:
    path = str(tmp_path / "rates.db")
    first, second, other = (Window(2, path, name) for name in ("server", "server", "sekha"))
    first.spend("a")
    second.spend("a")
    for full in (first, second):
        with pytest.raises(RateLimited):
            full.spend("a")
    other.spend("a")
