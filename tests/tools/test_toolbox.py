"""One way to call a tool: found once, checked once, observed once."""

from typing import Any

import pytest

from ctx.errors import BadRequest, ConfigError, NotFound, ToolError
from ctx.tools.base import Call, Tool, Toolbox
from ctx.types import Caller

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


@pytest.mark.parametrize("name", ["", "a b", "ä", "x" * 65, "a/b", "search", "list"])
def test_bad_and_reserved_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Toolbox().add(tool(name))


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
    box.on_change(lambda: entries.append(box.version))
    for name, builtin in (("zeta", False), ("search", True), ("alpha", False), ("get", True)):
        box.add(tool(name, builtin=builtin))
    assert [entry.name for entry in box.list()] == ["search", "get", "alpha", "zeta"]
    box.remove("zeta")
    assert entries == [1, 2, 3, 4, 5]


def test_a_tool_that_was_mended_is_served_and_its_old_error_is_gone_for_good() -> None:
    box = Toolbox()
    box.add_failed("broken", ToolError("the script did not load"))
    box.add(tool("broken"))
    assert box.call("broken", {"n": 2}, CALLER) == {"n": 2}
    assert box.names() == {"broken"}
    box.remove("broken")  # the file was deleted: not found, and no word of what once was wrong with it
    with pytest.raises(NotFound):
        box.call("broken", {}, CALLER)


def test_a_tool_that_failed_and_whose_file_is_gone_is_not_found() -> None:
    box = Toolbox()
    box.add_failed("broken", ToolError("the script did not load"))
    box.remove("broken")
    assert box.names() == set()
    with pytest.raises(NotFound):
        box.call("broken", {}, CALLER)
