"""Entries cut out of the files of other programs."""

import json
import tomllib

import pytest
from connect_kit import TOML

from ctx.cli.entries import edited, removed

JSON_FILES = [
    "{}",
    '{"a": 1}',
    '{"mcpServers": {"x": {}}}',
    '{\n  "b": [],\n  "mcpServers": {\n    "x": {"y": 1}\n  }\n}\n',
]


@pytest.mark.parametrize("text", JSON_FILES)
@pytest.mark.parametrize("later", ["", "z"])
def test_an_entry_is_cut_out_of_any_json_wherever_it_stands(text: str, later: str) -> None:
    full = edited("json", "mcpServers", text, "ctx", {"url": "u"})
    assert full is not None
    if later:
        full = edited("json", "mcpServers", full, later, {"url": "v"})
    assert full is not None
    remainder = removed("json", "mcpServers", full, "ctx")
    expected = json.loads(full)
    del expected["mcpServers"]["ctx"]
    if not expected["mcpServers"]:
        del expected["mcpServers"]
    assert (json.loads(remainder) if remainder else {}) == expected


def test_an_entry_is_cut_out_of_toml_and_its_neighbours_keep_their_comments() -> None:
    remainder = removed("toml", "mcp_servers", TOML, "ctx")
    assert remainder is not None
    assert "# my settings" in remainder
    assert list(tomllib.loads(remainder)["mcp_servers"]) == ["other"]
    assert tomllib.loads(remainder)["profiles"] == {"quick": {"model": "small"}}
