"""Tools in Lua: what they declare, how they are called, and what happens when their files change."""

import http.server
import json
import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import eventually
from kit import http_server
from running import Answer, Running, configured, opened, said

from ctx.errors import BadRequest, NotFound, ScriptTimeout, ToolError
from ctx.extensions.parameters import parameters_schema
from ctx.tools.schema import compile_check
from ctx.types import JSON, Caller

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
tool = { description = "Uses what it was granted", parameters = {} }
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
tool = { description = "Fetches", parameters = { { name = "url", required = true }, { name = "catch", type = "boolean" } } }
function tool.execute(params)
  if params.catch then
    local ok, problem = pcall(http.get, params.url)
    return { ok = ok, problem = tostring(problem) }
  end
  local answer = http.get(params.url, { headers = { Accept = "application/json" } })
  return { status = answer.status, json = answer.json, body = answer.body }
end
"""
FAILING = {
  "says-timeout": 'error("tool timed out after 30 s")',
  "says-not-found": 'error("document not found")',
  "says-invalid": 'error("invalid parameter: must not be empty; embeddings disabled")',
  "says-memory": 'error("not enough memory")',
  "gets-nothing": 'context.get("00000000-0000-0000-0000-000000000000")',
  "searches-nothing": 'context.search("")',
  "raises-table": 'error({ message = "a table", status = 404, kind = "not_found" })',
  "swallows": "while true do pcall(function() while true do end end) end",
  "cannot-say": "return { f = 1, [{}] = 2 }",
}  # fmt: skip


def script(body: str) -> str:
    return (
        f'tool = {{ description = "d", parameters = {{}} }}\nfunction tool.execute(params, context)\n  '
        f"{body}\nend\n"
    )


def answering(value: str) -> str:
    return script(f"return {{ said = {json.dumps(value)} }}")


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    """A web server of this machine, which only `allow_hosts` opens."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/drip":
                self.drip()
                return
            body = json.dumps({"accept": self.headers["Accept"], "path": self.path}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def drip(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "100000")
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"x")
                    threading.Event().wait(0.02)
            except OSError:
                pass  # the script was stopped, and its connection with it

        def log_message(self, *_: JSON) -> None:
            pass

    with http_server(Handler) as port:
        yield f"127.0.0.1:{port}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, upstream: str) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    tools = folder / "tools"
    tools.mkdir()
    (folder / "extra").mkdir()
    (folder / "extra" / "more.txt").write_text("more")
    (tools / "note.txt").write_text("note")
    texts = {
        "greet": GREET,
        "powers": POWERS,
        "fetch": FETCH,
        **{name: script(body) for name, body in FAILING.items()},
    }
    texts |= {"drip": FETCH, "slow": script("sleep(15)")}
    texts |= {
        "broken": "tool = {",
        "loops": "while true do end",
        "not-a-tool": "tool = 42",
        "no-execute": "tool = {}",
    }
    texts |= {
        "empty": script("return {}"),
        "array": script("return json.array({})"),
        "nothing": script("return nil"),
    }
    texts |= {"deep": script("local t = {} for i = 1, 200 do t = { t } end return t")}
    for name, text in texts.items():
        (tools / f"{name}.lua").write_text(text)
    settings = {
        "greet": 'greeting = "Good day"\nlevels = [1, 2]',
        "powers": f'env = ["SCRIPT_TOKEN"]\nfs = ["./extra"]\nextra = "{folder}/extra"\nhome = '
        f'"${{SCRIPT_TOKEN}}"',
        "fetch": f'allow_hosts = ["{upstream}"]',
        "drip": f'allow_hosts = ["{upstream}"]\ntimeout = 0.5',
        "swallows": "timeout = 0.3",
        "loops": "timeout = 0.3",
    }
    tables = [
        f'[tools.script.{name}]\npath = "./tools/{name}.lua"\n{settings.get(name, "")}' for name in texts
    ]
    configured(folder, "\n".join(tables))
    with Running(folder, env={"SCRIPT_TOKEN": "t0ken", "SCRIPT_SECRET": "s3cret"}) as running:
        yield running


# -- over HTTP -----------------------------------------------------------------------------------------------


def test_a_tool_is_listed_under_its_configured_name_with_its_schema(server: Running) -> None:
    tools = {tool["name"]: tool for tool in server.ask("GET", "/tools/list").body["tools"]}
    assert list(tools)[:3] == ["search", "get", "sources"]
    assert "other-name" not in tools
    assert tools["greet"] == {
        "name": "greet",
        "description": "Greets somebody",
        "builtin": False,
        "parameters": {
            "type": "object",
            "properties": {
                "who": {"type": "string", "description": "Whom"},
                "times": {"type": "integer", "default": 1, "minimum": 1, "maximum": 3},
                "tone": {"type": "string", "enum": ["warm", "cold"], "default": "warm"},
                "loud": {"type": "boolean", "default": False},
                "tags": {"type": "array", "items": {"type": "string"}, "default": []},
            },
            "required": ["who"],
        },
    }
    assert not {"broken", "loops", "not-a-tool", "no-execute"} & set(tools)


def test_defaults_are_filled_before_the_script_runs(server: Running) -> None:
    answer = server.call("greet", {"who": "Ann", "extra": {"kept": [1, 2.5, None]}})
    assert answer.status == 200
    result = answer.body["result"]
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


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"who": 1},
        {"who": "a", "times": "3"},
        {"who": "a", "times": 4},
        {"who": "a", "tone": "hot"},
        {"who": "a", "tags": [1]},
    ],
)
def test_arguments_that_do_not_fit_are_400_and_name_the_parameter(
    server: Running, arguments: dict[str, JSON]
) -> None:
    answer = server.call("greet", arguments)
    assert (answer.status, answer.code) == (400, "bad_request")
    assert any(name in answer.body["error"]["message"] for name in (*arguments, "who"))


@pytest.mark.parametrize("name", [name for name in FAILING if name != "swallows"])
def test_a_scripts_failure_is_500_whatever_it_says(server: Running, name: str) -> None:
    answer = server.call(name)
    assert (answer.status, answer.code) == (500, "tool_error")
    assert str(server.folder) not in answer.body["error"]["message"]


@pytest.mark.parametrize(
    ("name", "status", "code"),
    [
        ("no-such-tool", 404, "not_found"),
        ("swallows", 408, "timeout"),
        ("loops", 408, "timeout"),
        ("broken", 500, "tool_error"),
        ("not-a-tool", 500, "tool_error"),
        ("no-execute", 500, "tool_error"),
        ("deep", 500, "tool_error"),
    ],
)
def test_the_status_says_what_happened(server: Running, name: str, status: int, code: str) -> None:
    answer = server.call(name)
    assert (answer.status, answer.code) == (status, code)


def test_what_a_script_returns_is_the_result(server: Running) -> None:
    assert server.call("empty").body == {"result": {}}
    assert server.call("array").body == {"result": []}
    assert server.call("nothing").body == {"result": None}


def test_a_script_has_its_files_its_variables_and_no_others(server: Running) -> None:
    assert server.call("powers").body["result"] == {
        "own": "note",
        "extra": "more",
        "refused": True,
        "token": "t0ken",
        # secret, path and home are nil: fields that a Lua table does not have
    }
    lines = [line for line in server.said().splitlines() if "[powers]" in line]
    assert lines
    assert all("\x1b" not in line for line in lines)
    assert "ERROR: forged" in lines[-1]  # in the one line, not in one of its own


def test_a_script_reaches_the_hosts_it_was_given_and_no_other(server: Running, upstream: str) -> None:
    answer = server.call("fetch", {"url": f"http://{upstream}/issues"})
    assert answer.body["result"]["json"] == {"accept": "application/json", "path": "/issues"}
    refused = server.call("fetch", {"url": f"http://127.0.0.1:{server.port}/health"})
    assert (refused.status, refused.code) == (500, "tool_error")
    assert server.call("fetch", {"url": "http://localhost/", "catch": True}).body["result"]["ok"] is False


def test_a_server_that_drips_holds_a_script_to_its_deadline_and_no_longer(
    server: Running, upstream: str
) -> None:
    answer = server.call("drip", {"url": f"http://{upstream}/drip"})
    assert (answer.status, answer.code) == (408, "timeout")  # benchmarks/sandbox.py says how soon


@pytest.mark.slow
def test_more_scripts_than_can_run_are_told_when_to_come_again(server: Running) -> None:
    answers: list[Answer] = []
    callers = [threading.Thread(target=lambda: answers.append(server.call("slow"))) for _ in range(20)]
    for caller in callers:
        caller.start()
    assert server.ask("GET", "/health").status == 200
    assert server.call("search", {"query": "release"}).status == 200
    assert server.call("greet", {"who": "Ann"}).status == 200
    for caller in callers:
        caller.join()
    busy = [answer for answer in answers if answer.status == 503]
    assert {answer.status for answer in answers} == {200, 503}
    assert len(busy) == 8  # 16 run at once, half of them of one script; the last 4 were not let in before
    for answer in busy:
        assert answer.code == "busy"
        assert int(answer.headers["retry-after"]) >= 1


def test_openapi_has_a_path_for_each_tool(server: Running) -> None:
    described = server.ask("GET", "/openapi.json").body
    paths = described["paths"]
    listed = [tool["name"] for tool in server.ask("GET", "/tools/list").body["tools"]]
    assert {f"/tools/{name}" for name in listed} <= set(paths)
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert len(ids) == len(set(ids))
    schema = paths["/tools/greet"]["post"]["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = described["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    assert schema["properties"]["times"]["default"] == 1


def test_mcp_checks_and_fills_as_rest_does(server: Running) -> None:
    def rpc(method: str, params: JSON) -> JSON:
        return server.ask(
            "POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        ).body["result"]

    tools = {tool["name"]: tool for tool in rpc("tools/list", {})["tools"]}
    assert tools["greet"]["annotations"]["readOnlyHint"] is True
    assert tools["fetch"]["annotations"]["readOnlyHint"] is False
    called = rpc("tools/call", {"name": "greet", "arguments": {"who": "Ann"}})
    assert called["structuredContent"]["params"]["times"] == 1
    for name in ("greet", "says-not-found", "broken"):
        assert rpc("tools/call", {"name": name, "arguments": {}})["isError"] is True


def test_the_server_never_imports_lua(server: Running) -> None:
    assert server.call("greet", {"who": "a"}).status == 200
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "lupa" not in maps
    assert "lua5" not in maps


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


@pytest.mark.slow
def test_the_next_request_to_a_server_runs_the_edited_text(tmp_path: Path, tools: Path) -> None:
    file = tools / "news.lua"
    file.write_text("tool = {")
    configured(tmp_path, '\ntools_dir = "./tools"')
    with Running(tmp_path) as server:
        assert server.call("news").status == 500
        for round_ in range(5):
            file.write_text(answering(f"version {round_}"))
            assert server.call("news").body["result"] == {"said": f"version {round_}"}
        file.write_text("tool = {")
        assert server.call("news").body["result"] == {"said": "version 4"}
        assert "the last version that worked stays" in server.said()
        (tools / "late.lua").write_text(answering("late"))
        eventually(lambda: server.call("late").status != 404)
        assert server.call("late").body["result"] == {"said": "late"}


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


@pytest.mark.slow
def test_a_slow_load_does_not_hold_up_other_tools(
    tmp_path: Path, tools: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tools / "quick.lua").write_text(answering("quick"))
    (tools / "slow.lua").write_text(answering("slow"))
    with opened(tmp_path) as space:
        (tools / "slow.lua").write_text("while true do end")
        loading = threading.Thread(target=space.scripts.refresh)
        loading.start()
        for _ in range(3):
            assert said(space, "quick") == "quick"
        assert loading.is_alive(), "nobody waited for it"
        loading.join()
        assert said(space, "slow") == "slow"
        assert "tools/slow.lua" in caplog.text
        assert "the last version that worked stays" in caplog.text


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
        for file in tools.iterdir():
            file.unlink()
        tools.rmdir()
        space.scripts.refresh()
        assert space.scripts.statuses() == []


def test_the_folders_own_tool_may_have_settings_in_the_configuration(tmp_path: Path, tools: Path) -> None:
    (tools / "greet.lua").write_text(GREET)
    tables = '\ntools_dir = "./tools"\n[tools.script.greet]\npath = "./tools/greet.lua"\ngreeting = "Hi"'
    with opened(tmp_path, scripts=tables) as space:
        assert space.toolbox.call("greet", {"who": "Bo"}, CALLER)["said"] == "Hi, Bo"


# -- mistakes at start ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            'tool = { parameters = { { name = "a", type = "text" } } } function tool.execute() end',
            "unknown type 'text'",
        ),
        (
            "tool = { parameters = { { type = 'string' } } } function tool.execute() end",
            "parameter 1 has no name",
        ),
        (
            "tool = { parameters = { {name='a'}, {name='a'} } } function tool.execute() end",
            "two parameters are called 'a'",
        ),
        ("tool = { parameters = 7 } function tool.execute() end", "must be a list"),
        ("tool = { output = 7 } function tool.execute() end", "output must be"),
        (
            "tool = { output = { type = 'objekt' } } function tool.execute() end",
            "output is not a JSON Schema",
        ),
        ("tool = { output = { required = 'n' } } function tool.execute() end", "output is not a JSON Schema"),
        ("tool = {} tool.execute = 3", "does not define the function"),
        (
            "tool = { parameters = { { name = 'q', requierd = true } } } function tool.execute() end",
            "parameter 'q' has the unknown field 'requierd'; did you mean 'required'",
        ),
        (
            "tool = { parameters = { { name = 'q', required = 'yes' } } } function tool.execute() end",
            "parameter 'q': required is true or false, or a list of fields",
        ),
        (
            "tool = { desciption = 'x', paramters = {} } function tool.execute() end",
            r"tool has the unknown field '\w+'; did you mean '(description|parameters)'",
        ),
        (
            "tool = { parameters = { { name = 'n', type = 'integer', default = '5' } } } function "
            "tool.execute() end",
            "default of parameter 'n' does not fit",
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


@pytest.mark.slow
def test_a_script_that_loops_while_it_loads_is_a_timeout_and_does_not_hold_the_start_up(
    tmp_path: Path, tools: Path
) -> None:
    (tools / "loops.lua").write_text("while true do end")
    began_s = time.monotonic()
    with opened(tmp_path) as space:
        assert time.monotonic() - began_s < 20  # the default deadline of a call is 30
        with pytest.raises(ScriptTimeout):
            said(space, "loops")


def test_a_script_may_keep_fields_of_its_own() -> None:
    declared = [{"name": "ids", "type": "array", "minItems": 1, "owner": "docs"}]
    assert parameters_schema(declared, "a.lua")["properties"] == {"ids": {"type": "array", "minItems": 1}}
    with pytest.raises(ToolError, match="did you mean 'minItems'"):
        parameters_schema([{"name": "ids", "type": "array", "minItem": 1}], "a.lua")


def test_an_object_says_which_of_its_fields_it_must_have() -> None:
    fields = {"city": {"type": "string"}, "street": {"type": "string"}}
    place: JSON = {"name": "place", "type": "object", "properties": fields, "required": ["city"]}
    check = compile_check(parameters_schema([place], "x.lua"))
    assert check({}) == {}
    with pytest.raises(BadRequest, match=r"missing required parameter: place\.city"):
        check({"place": {"street": "Long"}})


def test_a_schema_written_in_lua_may_have_empty_lists() -> None:
    """`required = {}` in Lua is a table without a kind: where JSON Schema wants a list, it is one."""
    declared = {
        "type": "object",
        "properties": {"a": {"type": "array", "default": {}, "enum": {}}},
        "required": {},
    }
    assert parameters_schema(declared, "x.lua") == {
        "type": "object",
        "properties": {"a": {"type": "array", "default": []}},
        "required": [],
    }
    by_name = {"n": {"type": "integer", "required": True}, "s": "string"}
    assert parameters_schema(by_name, "x.lua")["required"] == ["n"]
    assert (
        parameters_schema(None, "x.lua")
        == parameters_schema({}, "x.lua")
        == {"type": "object", "properties": {}}
    )


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
        ("{ type = 'object' }", "'text'", "'result' must be of type 'object', got string"),
        ("{ type = 'object', required = { 'n' } }", "{ m = 1 }", "missing required field: result.n"),
        ("{ type = 'array', items = { type = 'integer' } }", "{ 1, 2 }", None),
        ("{ type = 'array', items = { type = 'integer' } }", "{}", None),
        (
            "{ type = 'array', items = { ['$ref'] = '#/$defs/row' }, ['$defs'] = { row = { type = 'string' "
            "} } }",
            "{ 'a', 2 }",
            "'result[1]' must be of type 'string', got integer",
        ),
        ("{ type = 'object', properties = {}, required = {} }", "{}", None),
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
        assert "tools/told.lua: the result does not fit the tool's `output`: " + fault in str(problem.value)
