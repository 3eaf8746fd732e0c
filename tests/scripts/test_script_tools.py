"""Tools in Lua: what they declare, how they are called, and what happens when their files change."""

import logging
from pathlib import Path

import pytest
from faults import serving
from script_kit import answering, configured, opened, said
from web_api import Reply, serving_api

from ctx.errors import BadRequest, NotFound, ToolError
from ctx.models import Caller

CALLER = Caller("cli")

GREET = """
tool = {
  name = "other-name",
  description = "Greets somebody",
  title = "Greeting",
  annotations = { read_only = true, idempotent = true },
  parameters = {
    { name = "who", type = "string", required = true, description = "Whom" },
    { name = "times", type = "integer", default = 1, minimum = 1, maximum = 3 },
    { name = "tone", enum = { "warm", "cold" }, default = "warm" },
    { name = "loud", type = "boolean", default = false },
    { name = "tags", type = "array", items = { type = "string" }, default = {} },
  },
}
function tool.execute(params, context)
  return { said = (context.config.greeting or "Hello") .. ", " .. params.who, params = params, config = context.config }
end
"""
POWERS = """
tool = { description = "Uses what it was granted" }
function tool.execute(params, context)
  log.warn("one line\\n[tool:other] ERROR: forged \\27[31mred")
  local ok, refused = pcall(fs.read, "/etc/passwd")
  return {
    own = fs.read("note.txt"), extra = fs.read(context.config.extra .. "/more.txt"), refused = not ok,
    token = env.get("SCRIPT_TOKEN"), secret = env.get("SCRIPT_SECRET"), path = env.get("PATH"), home = env.get("HOME"),
  }
end
"""
FETCH = """
tool = { description = "Fetches", parameters = { { name = "url", required = true } } }
function tool.execute(params)
  return http.get(params.url, { headers = { Accept = "application/json" } }).json
end
"""


def script(body: str) -> str:
    return f"tool = {{}} function tool.execute(params, context) {body} end"


# -- calls ---------------------------------------------------------------------------------------------------


def test_a_tool_is_listed_under_its_configured_name_with_its_schema(tmp_path: Path, tools: Path) -> None:
    (tools / "greet.lua").write_text(GREET)
    with opened(tmp_path) as space:
        (tool,) = [tool for tool in space.toolbox.list() if not tool.builtin]
        assert (tool.name, tool.description, tool.annotations.read_only) == ("greet", "Greets somebody", True)
        assert tool.parameters == {
            "type": "object",
            "properties": {
                "who": {"type": "string", "description": "Whom"},
                "times": {"type": "integer", "default": 1, "minimum": 1, "maximum": 3},
                "tone": {"type": "string", "enum": ["warm", "cold"], "default": "warm"},
                "loud": {"type": "boolean", "default": False},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["who"],
        }


def test_defaults_are_filled_and_arguments_checked_before_the_script_runs(
    tmp_path: Path, tools: Path
) -> None:
    (tools / "greet.lua").write_text(GREET)
    table = '\n[tools.script.greet]\npath = "./tools/greet.lua"\ngreeting = "Good day"\nlevels = [1, 2]'
    with opened(tmp_path, table) as space:
        result = space.toolbox.call("greet", {"who": "Ann", "extra": {"kept": [1, 2.5, None]}}, CALLER)
        assert result["said"] == "Good day, Ann"
        assert result["config"] == {"greeting": "Good day", "levels": [1, 2]}
        assert result["params"] == {
            "who": "Ann",
            "times": 1,
            "tone": "warm",
            "loud": False,
            "tags": [],
            "extra": {"kept": [1, 2.5, None]},
        }
        for arguments in ({"who": 1}, {"times": 4}, {"tone": "hot"}, {"tags": [1]}):
            with pytest.raises(BadRequest, match=f"parameter '{next(iter(arguments))}"):
                space.toolbox.call("greet", {"who": "a", **arguments}, CALLER)


@pytest.mark.slow
def test_the_status_of_a_reply_says_what_happened(tmp_path: Path, tools: Path) -> None:
    texts = {
        "greet": (GREET, 400),
        "empty": (script("return {}"), 200),
        "swallows": (script("while true do pcall(function() while true do end end) end"), 408),
        "loops": ("while true do end", 408),
        "broken": ("tool = {", 500),
        "fails": (script("error('document not found')"), 500),
        "gets-nothing": (script("context.get('00000000-0000-0000-0000-000000000000')"), 500),
        "cannot-say": (script("return { f = 1, [{}] = 2 }"), 500),
    }
    tables = ""
    for name, (text, _) in texts.items():
        (tools / f"{name}.lua").write_text(text)
        tables += f'\n[tools.script.{name}]\npath = "./tools/{name}.lua"\ntimeout = 0.5'
    with serving(configured(tmp_path, tables)) as server:
        assert server.post("/tools/no-such-tool", {})[0] == 404
        for name, (_, status) in texts.items():
            answer = server.post(f"/tools/{name}", {})
            assert answer[0] == status, answer
            assert str(tmp_path) not in str(answer)


def test_a_script_has_its_files_its_variables_and_no_others(
    tmp_path: Path, tools: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("SCRIPT_TOKEN", "t0ken")
    monkeypatch.setenv("SCRIPT_SECRET", "s3cret")
    (tmp_path / "extra").mkdir()
    (tmp_path / "extra" / "more.txt").write_text("more")
    (tools / "note.txt").write_text("note")
    (tools / "powers.lua").write_text(POWERS)
    table = (
        '\n[tools.script.powers]\npath = "./tools/powers.lua"\nenv = ["SCRIPT_TOKEN"]\nfs = ["./extra"]\n'
        f'extra = "{tmp_path}/extra"'
    )
    with opened(tmp_path, table) as space:
        # secret, path and home are nil: fields that a Lua table does not have
        expected = {"own": "note", "extra": "more", "refused": True, "token": "t0ken"}
        assert space.toolbox.call("powers", {}, CALLER) == expected
    (line,) = [record.getMessage() for record in caplog.records if "[powers]" in record.getMessage()]
    assert "\x1b" not in line
    assert "\n" not in line


def test_a_script_reaches_the_hosts_it_was_given_and_no_other(tmp_path: Path, tools: Path) -> None:
    (tools / "fetch.lua").write_text(FETCH)
    with serving_api() as api, serving_api() as other:
        api.answer = lambda asked: Reply({"accept": asked.headers["accept"], "path": asked.path})
        table = f'\n[tools.script.fetch]\npath = "./tools/fetch.lua"\nallow_hosts = ["{api.host}"]'
        with opened(tmp_path, table) as space:
            answer = space.toolbox.call("fetch", {"url": f"{api.url}/issues"}, CALLER)
            assert answer == {"accept": "application/json", "path": "/issues"}
            with pytest.raises(ToolError):
                space.toolbox.call("fetch", {"url": f"{other.url}/"}, CALLER)
        assert other.asked == []


# -- files that change ---------------------------------------------------------------------------------------


def test_the_next_call_runs_the_edited_text(tmp_path: Path, tools: Path) -> None:
    file = tools / "news.lua"
    file.write_text(answering("one"))
    with opened(tmp_path) as space:
        assert said(space, "news") == "one"
        file.write_text(answering("two, at once"))
        assert said(space, "news") == "two, at once"
        file.write_text('tool = { parameters = { { name = "n", type = "integer", required = true } } }\n'
                        "function tool.execute(p) return { said = p.n } end\n")  # fmt: skip
        with pytest.raises(BadRequest, match="missing required parameter: n"):
            said(space, "news")
        assert space.toolbox.call("news", {"n": 3}, CALLER) == {"said": 3}


def test_a_broken_edit_keeps_the_last_version_that_worked_and_says_so(
    tmp_path: Path, tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tools / "news.lua"
    file.write_text(answering("good"))
    with opened(tmp_path) as space:
        for broken in ("tool = {", "tool = 1", "tool = {}", 'error("at load")'):
            file.write_text(broken)
            with caplog.at_level(logging.ERROR):
                assert said(space, "news") == "good"
            (status,) = space.scripts.statuses()
            assert (status.name, status.serving) == ("news", True)
            assert status.error
            assert status.where == "tools/news.lua"
            assert "tools/news.lua" in caplog.text
            assert "stays" in caplog.text
        caplog.clear()
        assert said(space, "news") == "good"
        assert caplog.text == ""  # said once, not at every call
        file.write_text(answering("mended"))
        assert said(space, "news") == "mended"
        assert space.scripts.statuses()[0].error is None


def test_files_that_come_and_go_are_tools_that_come_and_go(tmp_path: Path, tools: Path) -> None:
    (tools / "a.lua").write_text(answering("a"))
    (tools / ".hidden.lua").write_text(answering("no"))
    (tools / "notes.txt").write_text("no tool")
    with opened(tmp_path) as space:
        changes: list[int] = []
        space.toolbox.on_change(lambda: changes.append(1))
        (tools / "b.lua").write_text(answering("b"))
        space.scripts.refresh()
        assert said(space, "b") == "b"
        (tools / "a.lua").unlink()
        space.scripts.refresh()
        with pytest.raises(NotFound):
            said(space, "a")
        assert [tool.name for tool in space.toolbox.list() if not tool.builtin] == ["b"]
        assert len(changes) == 2
        (tools / "a.lua").write_text(answering("again"))
        space.scripts.refresh()
        assert said(space, "a") == "again"
        (tools / "search.lua").write_text(answering("reserved"))
        space.scripts.refresh()
        space.scripts.refresh()
        statuses = space.scripts.statuses()
        assert [(status.name, status.serving) for status in statuses] == [
            ("a", True),
            ("b", True),
            ("search", False),
        ]


# -- mistakes at start ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'tool = { parameters = { { name = "a", type = "text" } } } function tool.execute() end',
            "unknown type 'text'",
        ),
        (
            "tool = { parameters = { {name='a'}, {name='a'} } } function tool.execute() end",
            "two parameters are called 'a'",
        ),
        (
            "tool = { parameters = { { name = 'q', requierd = true } } } function tool.execute() end",
            "parameter 'q' has the unknown field 'requierd'; did you mean 'required'",
        ),
        (
            "tool = { desciption = 'x', paramters = {} } function tool.execute() end",
            r"tool has the unknown field '\w+'; did you mean '(description|parameters)'",
        ),
        ("local x = http.get('http://example.com') tool = {}", "not granted"),
        ("x = = 1", "syntax"),
    ],
)
def test_a_script_that_cannot_be_a_tool_fails_alone(tmp_path: Path, tools: Path, text: str, why: str) -> None:
    (tools / "wrong.lua").write_text(text)
    (tools / "right.lua").write_text(answering("right"))
    with opened(tmp_path) as space:
        assert said(space, "right") == "right"
        with pytest.raises(ToolError, match=why):
            said(space, "wrong")


@pytest.mark.parametrize(
    ("output", "result", "fault"),
    [
        ("{ type = 'object', required = { 'n' }, properties = { n = { type = 'integer' } } }", "{ n = 1 }",
        None),
        (
            "{ type = 'object', properties = { n = { type = 'integer' } } }",
            "{ n = 1.5 }",
            "'result.n' must be of type 'integer', got number",
        ),
        (
            "{ type = 'object', required = { 'n' } }",
            "{ m = 1 }",
            "missing required field: result.n",
        ),
        ("{ type = 'array', items = { type = 'integer' } }", "{ 1, 2 }", None),
    ],
)  # fmt: skip
def test_a_result_fits_what_the_tool_declares_of_it(
    tmp_path: Path, tools: Path, output: str, result: str, fault: str | None
) -> None:
    (tools / "told.lua").write_text(
        f"tool = {{ output = {output} }} function tool.execute() return {result} end"
    )
    with opened(tmp_path) as space:
        if fault is None:
            space.toolbox.call("told", {}, CALLER)
            return
        with pytest.raises(ToolError) as problem:
            space.toolbox.call("told", {}, CALLER)
        assert "tools/told.lua: the result does not match the tool's `output`: " + fault in str(problem.value)
