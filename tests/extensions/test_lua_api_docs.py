"""docs/lua-api.md lists every function a script has, each with the grant that the sandbox asks for."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctx.errors import ToolError
from ctx.lua.pool import Job, Pool
from ctx.memory.ops import OPS
from ctx.types import JSON

PAGE = (Path(__file__).parents[2] / "docs" / "lua-api.md").read_text()
ROW = re.compile(r"^\| `([a-zA-Z0-9_.]+)\(.*?\)` \| (\S+) \|", re.M)
LISTED = dict(ROW.findall(PAGE))
GRANTS = frozenset({"http", "fs", "env", "context", "memory"})
# Lua's own, as in its manual: not listed one by one.
LANGUAGE = re.compile(
    r"(string|table|math|utf8|coroutine)\.\w+|assert|error|ipairs|next|pairs|p?x?pcall|raw\w+|select"
    r"|[gs]etmetatable|to\w+|type"
)
WALK = """
  local found, seen = {}, {}
  local function walk(prefix, values)
    if seen[values] then return end
    seen[values] = true
    for key, value in pairs(values) do
      if type(value) == "function" then found[#found + 1] = prefix .. key
      elseif type(value) == "table" and key ~= "_G" then walk(prefix .. key .. ".", value) end
    end
  end
  walk("", _G) walk("context.", context) walk("os.", os)
  return found
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool() as started:
        yield started


def run(pool: Pool, body: str, grants: frozenset[str], kind: str = "tool") -> JSON:
    entry, function = ("execute", "execute(_, context)") if kind == "tool" else ("scan", "scan(_, context)")
    text = f"{kind} = {{}} function {kind}.{function} {body} end"
    job = Job("x", text.encode(), entry, b"{}", b"{}", grants, "operator", kind=kind)
    return pool.run(
        job, lambda operation, payload, deadline_s: b'{"status":200}\0' if operation == "http" else b"null", 5
    )


def functions(pool: Pool, grants: frozenset[str]) -> set[str]:
    return {name for name in run(pool, WALK, grants) if not LANGUAGE.fullmatch(name)} - {"tool.execute"}


def test_every_function_is_on_the_page_and_the_page_lists_no_other(pool: Pool) -> None:
    connectors_only = {"emit", "context.emit"}
    functions_there = functions(pool, GRANTS) | connectors_only | {"context.memory.NAME"}
    assert set(LISTED) == functions_there
    head, packs = PAGE.split("Only packs have these:")
    assert dict(ROW.findall(head)).keys() == functions(pool, GRANTS - {"memory"}) | connectors_only
    assert packs


ARGUMENTS = {
    **dict.fromkeys(
        ("http.post", "http.put", "http.patch", "http.request", "crypto.hmac_sha256"), '"a", "b"'
    ),
    **dict.fromkeys(("sleep", "json.encode", "context.progress"), "0"),
    **dict.fromkeys(("json.parse", "json.decode"), '"1"'),
    **dict.fromkeys(("json.array", "json.object", "context.sources", "context.store.keys"), ""),
    "error.throw": '{ kind = "storage" }',
    "os.difftime": "1, 2",
}
PACKS = dict(ROW.findall(PAGE.split("Only packs have these:")[1]))


@pytest.mark.parametrize(
    "name", sorted(name for name in LISTED if "emit" not in name and LISTED[name] != "memory")
)
def test_a_function_needs_the_grant_that_the_page_says(pool: Pool, name: str) -> None:
    arguments = ARGUMENTS.get(name, '"a"' if LISTED[name] != "-" or name not in PACKS else "")
    arguments = (
        ""
        if name.startswith(("os.", "time.", "collectgarbage", "context.request")) and name not in ARGUMENTS
        else arguments
    )
    body = (
        f"local ok, problem = pcall({', '.join(filter(None, (name, arguments)))}) return {{ problem = "
        f"tostring(problem) }}"
    )
    grant = LISTED[name]
    grants = GRANTS if name in PACKS else GRANTS - {"memory"}
    assert "not granted" not in run(pool, body, grants)["problem"]
    if grant == "-":
        assert "not granted" not in run(pool, body, frozenset({"memory"} if name in PACKS else ()))["problem"]
    else:
        problem = run(pool, body, grants - {grant})["problem"]
        assert f"not granted '{grant}'" in problem


@pytest.mark.parametrize(
    "name", sorted(name for name in PACKS if PACKS[name] == "memory" and "NAME" not in name)
)
def test_what_packs_have_is_not_there_without_their_grant(pool: Pool, name: str) -> None:
    run(pool, f"return {name}()", frozenset({"memory"}))
    with pytest.raises(ToolError, match="nil value"):
        run(pool, f"return {name}()", GRANTS - {"memory"})


def test_the_page_lists_every_operation_on_memories() -> None:
    row = next(line for line in PAGE.splitlines() if line.startswith("| `context.memory.NAME"))
    named = set(re.findall(r"`([a-z_]+)`", row.rpartition("chose:")[2]))
    assert named == set(OPS) - {"exists", "ensure", "config"}  # those are context.bank's


def test_what_the_page_says_is_missing_is_missing(pool: Pool) -> None:
    for name in (
        "io",
        "debug",
        "require",
        "package",
        "dofile",
        "loadfile",
        "string.dump",
        "os.execute",
        "os.getenv",
        "os.remove",
    ):
        assert f"`{name}`" in PAGE or name.startswith("os.")
        assert run(pool, f"return {{ there = {name} ~= nil }}", GRANTS) == {"there": False}
