"""A pattern that others wrote never stops the server: its health is answered, and it ends when it is told
to.
"""

import json
import signal
from pathlib import Path

import pytest
from running import Running

from ctx.errors import ToolError
from ctx.lua.host import Policy, fs_list

CONFIG = (
    '[connectors.filesystem]\nroot = "."\n[lua]\ntools_dir = "tools"\n[embedding]\nprovider = "disabled"\n'
)
PATTERNS = """
tool = {
  description = "Takes what fits",
  parameters = {
    type = "object",
    properties = {
      letters = { type = "string", pattern = "^(a+)+$" },
      named = { type = "object", patternProperties = { ["^(a+)+$"] = { type = "string" } }, additionalProperties = false },
    },
  },
}
function tool.execute(params) return "taken" end
"""
BAD_DEFAULT = """
tool = {
  description = "Has a default that does not fit",
  parameters = { { name = "letters", pattern = "^(a+)+$", default = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab" } },
}
function tool.execute(params) return "taken" end
"""


def _project(folder: Path, **tools: str) -> Path:
    (folder / "ctx.toml").write_text(CONFIG)
    (folder / "tools").mkdir()
    for name, source in tools.items():
        (folder / "tools" / f"{name}.lua").write_text(source)
    return folder


def _ends(server: Running) -> bool:
    server.process.send_signal(signal.SIGTERM)
    return server.process.wait(30) is not None


@pytest.mark.slow
def test_a_served_folder_with_an_ignore_file_of_stars_answers_and_ends(tmp_path: Path) -> None:
    _project(tmp_path)
    (tmp_path / ".gitignore").write_text("*a" * 11 + "*b\n" + "*[ab]" * 11 + "c\n")
    (tmp_path / ("a" * 60 + ".md")).write_text("# Needle\n")
    with Running(tmp_path) as server:
        assert server.ask("GET", "/health", timeout_s=30).status == 200
        assert server.call("refresh").status == 200  # ends when the folder has been looked at
        assert server.call("search", {"query": "needle"}).body["results"]
        assert _ends(server)


@pytest.mark.slow
def test_a_pattern_that_would_backtrack_is_searched_at_once(tmp_path: Path) -> None:
    letters = "a" * 5000 + "b"
    with Running(_project(tmp_path, patterns=PATTERNS, defaulted=BAD_DEFAULT)) as server:
        assert server.call("patterns", {"letters": "aaa", "named": {"aa": "x"}}).body == {"result": "taken"}
        for arguments in ({"letters": letters}, {"named": {letters: "x"}}):
            answer = server.call("patterns", arguments)
            assert (answer.status, answer.code) == (400, "bad_request")
            assert len(answer.body["error"]["message"]) < 400
        answer = server.call("defaulted")
        assert (answer.status, answer.code) == (500, "tool_error")
        assert "default of parameter 'letters' does not fit" in server.said()
        assert server.ask("GET", "/health", timeout_s=30).status == 200
        assert _ends(server)


def test_a_glob_from_lua_is_short_and_matched_in_linear_time(tmp_path: Path) -> None:
    (tmp_path / ("a" * 200)).write_text("x")
    (tmp_path / "b.md").write_text("x")
    policy = Policy("t", roots=(str(tmp_path),))
    assert b"b.md" in fs_list(policy, b'{"glob": "[!a]*.m?"}')
    assert fs_list(policy, json.dumps({"glob": "*a" * 100 + "b"}).encode()) == b"[]"
    for glob in ("*" * 257, "a" * 300_000):
        with pytest.raises(ToolError, match="at most 256 characters"):
            fs_list(policy, json.dumps({"glob": glob}).encode())
    with pytest.raises(ToolError, match="a glob is text"):
        fs_list(policy, b'{"glob": ["*"]}')
