"""The HTTP API of seed 003, example by example, on a real project behind a real socket.

The examples are cut out of the seed itself. A reply fits an example when it has every field that the example
has, of the same type.
"""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from kit import project, shared, workspace
from serving import ANYTHING, Serve, failure, whole

from ctx.errors import ScriptTimeout, ToolError
from ctx.models import JSON, Caller
from ctx.server.app import Services
from ctx.tools.toolbox import Tool
from ctx.workspace import Workspace

CONFIG = """
[embedding]
provider = "{provider}"
[watch]
enabled = false
[connectors.filesystem]
root = "./docs"
[connectors.git]
url = "{repository}"
branch = "main"
"""
GUIDE = "# Authentication Guide\n\nJWT tokens are signed with a key that is rotated every week.\n"


def _seed() -> str:
    (path,) = shared("seeds").glob("003*")
    return path.read_text()


def _examples(heading: str) -> list[JSON]:
    """The JSON examples below `### heading`, in order. What stands for anything (`{ ... }`) becomes `{}`."""
    text = _seed()
    section = text[text.index(f"### `{heading}`") :]
    section = re.split(r"\n###? ", section[4:])[0]
    return [
        json.loads(block.replace("{ ... }", "{}"))
        for block in re.findall(r"```json\n(.*?)```", section, re.DOTALL)
    ]


def _fits(example: JSON, actual: JSON, place: str = "$") -> None:
    if isinstance(example, dict):
        assert isinstance(actual, dict), place
        for name, value in example.items():
            assert name in actual, f"{place}.{name}"
            _fits(value, actual[name], f"{place}.{name}")
    elif isinstance(example, list):
        assert isinstance(actual, list), place
        assert actual, f"{place} is empty"
        for position, item in enumerate(actual):
            _fits(example[0], item, f"{place}[{position}]") if not isinstance(example[0], str) else None
    elif isinstance(example, str) or example is None:
        assert actual is None or isinstance(actual, str), place
    elif isinstance(example, bool):
        assert isinstance(actual, bool), place
    else:
        assert isinstance(actual, int | float), place
        assert not isinstance(actual, bool), place


def _git(folder: Path, *arguments: str) -> None:
    caller = ("-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *caller, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    """A project with a folder and a repository, indexed and embedded."""
    tmp_path = tmp_path_factory.mktemp("project")
    repository = tmp_path / "repository"
    (repository / "docs").mkdir(parents=True)
    (repository / "docs" / "auth.md").write_text(GUIDE.replace("Guide", "Notes"))
    _git(tmp_path, "init", "--initial-branch", "main", str(repository))
    _git(repository, "add", ".")
    _git(repository, "commit", "-m", "notes")
    files = {
        "auth.md": GUIDE,
        "deploy.md": "# Deployment\n\nDeploy with the pipeline. Authentication is by key.\n",
    }
    config = project(tmp_path, files, CONFIG.format(provider="local", repository=repository))
    with pytest.MonkeyPatch.context() as patch, workspace(config) as opened:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))  # where the copy goes
        opened.refresh([])
        yield opened


@pytest.fixture
def client(serve: Serve, space: Workspace) -> httpx.Client:
    return serve(whole(space)).client


def test_search_replays(client: httpx.Client) -> None:
    request, response = _examples("POST /tools/search")
    reply = client.post("/tools/search", json=request)
    assert reply.status_code == 200
    _fits(response, reply.json())
    assert list(reply.json()) == list(response)  # bare, and nothing around it
    for result in reply.json()["results"]:
        assert result["source"] == "filesystem"
        assert 0 <= result["score"] <= 1
    assert "Authentication Guide" in [result["title"] for result in reply.json()["results"]]


def test_search_with_a_query_alone_is_by_keyword_in_every_source(client: httpx.Client) -> None:
    results = client.post("/tools/search", json={"query": "authentication"}).json()["results"]
    assert {result["source"] for result in results} == {"filesystem", "git"}


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"query": ""},
        {"query": 7},
        {"query": "x", "mode": "psychic"},
        {"query": "x", "limit": "many"},
        {"query": "x", "limit": 0},
    ],
)
def test_search_that_does_not_fit_is_400(client: httpx.Client, wrong: JSON) -> None:
    assert failure(client.post("/tools/search", json=wrong)) == (400, "bad_request")


def test_a_query_that_matches_nothing_is_an_empty_list(client: httpx.Client) -> None:
    reply = client.post("/tools/search", json={"query": "zyzzyva"})
    assert (reply.status_code, reply.json()["results"]) == (200, [])


@pytest.mark.parametrize(
    "query",
    ['"', "AND OR NOT", "title:", "a:b:c", "(((", "*", "\\", "'; DROP TABLE documents; --", "é\u0000ß", "~^"],
)
def test_no_text_of_a_user_is_a_syntax_error(client: httpx.Client, query: str) -> None:
    for mode in ("keyword", "hybrid"):
        assert client.post("/tools/search", json={"query": query, "mode": mode}).status_code == 200


def test_get_replays(client: httpx.Client) -> None:
    request, response = _examples("POST /tools/get")
    assert failure(client.post("/tools/get", json=request)) == (
        404,
        "not_found",
    )  # the id in the seed is made up
    match = client.post("/tools/search", json={"query": "authentication", "source": "git"}).json()["results"][
        0
    ]
    reply = client.post("/tools/get", json={**request, "id": match["id"]})
    assert reply.status_code == 200
    _fits(response, reply.json())
    assert (reply.json()["source"], reply.json()["source_id"]) == ("git", "docs/auth.md")
    assert reply.json()["body"] == GUIDE.replace("Guide", "Notes")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", reply.json()["updated_at"])


def test_sources_replays(client: httpx.Client) -> None:
    (response,) = _examples("GET /tools/sources")
    reply = client.get("/tools/sources")
    _fits(response, reply.json())
    assert [
        (row["name"], row["configured"], row["healthy"], row["doc_count"]) for row in reply.json()["sources"]
    ] == [
        ("filesystem", True, True, 2),
        ("git", True, True, 1),
    ]


def test_list_replays(client: httpx.Client) -> None:
    (response,) = _examples("GET /tools/list")
    tools = {tool["name"]: tool for tool in client.get("/tools/list").json()["tools"]}
    for expected in response["tools"]:
        caller = tools[expected["name"]]
        assert (caller["description"], caller["builtin"]) == (expected["description"], expected["builtin"])
        assert caller["parameters"]["required"] == expected["parameters"]["required"]
        for name, rule in expected["parameters"]["properties"].items():
            memory = caller["parameters"]["properties"][name]
            assert {key: memory[key] for key in rule if key != "description"} == {
                key: value for key, value in rule.items() if key != "description"
            }


def test_a_tool_call_replays_and_fails_as_the_seed_says(client: httpx.Client, space: Workspace) -> None:
    def fails(error: Exception) -> Tool:
        def run(arguments: dict[str, JSON], caller: Caller) -> JSON:
            raise error

        return Tool(f"fails_{type(error).__name__}", "Fails", ANYTHING, run)

    needs = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    space.toolbox.add(Tool("echo", "Echo", needs, lambda arguments, caller: arguments))
    space.toolbox.add(fails(ScriptTimeout("too late")))
    space.toolbox.add(fails(ToolError("line 3")))
    (response,) = _examples("POST /tools/{name}")
    reply = client.post("/tools/echo", json={"input": "abc"})
    _fits(response, reply.json())
    assert reply.json() == {"result": {"input": "abc"}}
    assert failure(client.post("/tools/echo", json={})) == (400, "bad_request")
    assert failure(client.post("/tools/nobody", json={})) == (404, "not_found")
    assert failure(client.post("/tools/fails_ScriptTimeout", json={})) == (408, "timeout")
    assert failure(client.post("/tools/fails_ToolError", json={})) == (500, "tool_error")


def test_health_replays(client: httpx.Client) -> None:
    (response,) = _examples("GET /health")
    reply = client.get("/health")
    assert reply.status_code == 200
    assert {name: reply.json()[name] for name in response} == response


def test_a_browser_of_any_origin_is_served(client: httpx.Client) -> None:
    reply = client.post(
        "/tools/search", json={"query": "authentication"}, headers={"origin": "https://app.example"}
    )
    assert reply.headers["access-control-allow-origin"] == "*"


def test_semantic_search_without_embeddings_says_so(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"auth.md": GUIDE})) as opened:
        opened.refresh([])
        client = serve(Services(opened.toolbox, opened.agents)).client
        for mode in ("semantic", "hybrid"):
            reply = client.post("/tools/search", json={"query": "authentication", "mode": mode})
            assert failure(reply) == (400, "embeddings_disabled")
        assert client.post("/tools/search", json={"query": "authentication"}).json()["results"]
