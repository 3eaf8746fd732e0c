"""The OpenAPI description: what it says is what is served."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from kit import project, workspace
from serving import ANYTHING, Serve, whole

from ctx.models import JSON, Caller
from ctx.server.app import Services
from ctx.tools.toolbox import Agent, Agents, Prompt, Tool


def _document(client: httpx.Client) -> JSON:
    response = client.get("/openapi.json")
    assert response.status_code == 200
    return response.json()


def _operations(document: JSON) -> list[JSON]:
    return [operation for item in document["paths"].values() for operation in item.values()]


def test_every_tool_and_agent_has_one_path_and_one_operation(serve: Serve, services: Services) -> None:
    document = _document(serve(services).client)
    assert document["openapi"] == "3.1.0"
    for tool in services.toolbox.list():
        assert document["paths"][f"/tools/{tool.name}"]["post"]["operationId"].startswith(tool.name)
    assert document["paths"]["/tools/sources"]["get"]["operationId"] == "sources"
    assert document["paths"]["/agents/reviewer/prompt"]["post"]["operationId"] == "agent_reviewer"
    names = [operation["operationId"] for operation in _operations(document)]
    assert len(names) == len(set(names))
    assert "/tools/{name}" not in document["paths"]


def test_the_examples_are_requests_that_work(serve: Serve, services: Services) -> None:
    client = serve(services).client
    document = _document(client)
    for name in ("search", "whoami", "sources"):
        content = document["paths"][f"/tools/{name}"]["post"]["requestBody"]["content"]["application/json"]
        assert client.post(f"/tools/{name}", json=content["example"]).status_code == 200


def test_the_description_follows_the_tools_and_agents(serve: Serve, services: Services) -> None:
    client = serve(services).client
    before = _document(client)
    services.toolbox.add(Tool("fresh", "Just written", ANYTHING, lambda a, c: 1))
    services.agents.add(Agent("newcomer", "Just written", lambda a, c: Prompt("x")))
    after = _document(client)
    assert set(after["paths"]) - set(before["paths"]) == {"/tools/fresh", "/agents/newcomer/prompt"}


def test_a_tool_with_required_arguments_has_no_example(serve: Serve, services: Services) -> None:
    name: JSON = {"type": "string"}
    schema: JSON = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    services.toolbox.add(Tool("greet", "Asks for a name", schema, lambda arguments, caller: None))
    path = _document(serve(services).client)["paths"]["/tools/greet"]
    assert "example" not in path["post"]["requestBody"]["content"]["application/json"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_schemathesis_finds_nothing_that_the_description_does_not_say(
    serve: Serve, agents: Agents, tmp_path: Path
) -> None:
    if importlib.util.find_spec("schemathesis") is None:
        message = "schemathesis is not installed; `make test` sets it up"
        pytest.fail(message) if os.environ.get("CI") == "true" else pytest.skip(message)
    config = '[embedding]\nprovider = "local"\n[watch]\nenabled = false\n'
    config += '[connectors.filesystem.docs]\nroot = "./docs"\n'
    with workspace(
        project(tmp_path, {"auth.md": "# Authentication\n\nJWT tokens are signed.\n"}, config)
    ) as space:
        space.refresh([])
        (match,) = space.toolbox.call("search", {"query": "jwt"}, Caller("cli"))["results"]
        served = serve(whole(space)._replace(agents=agents))
        settings = tmp_path / "schemathesis.toml"
        # What exists, so that these are seen to succeed too.
        present = {
            "get": {"id": match["id"], "start_line": 1},
            "outline": {"path": "auth.md"},
            "symbol": {"name": "Authentication"},
        }
        settings.write_text(
            "".join(
                f'[[operations]]\ninclude-path = "/tools/{tool}"\nparameters = {{ '
                + ", ".join(f'"body.{name}" = {json.dumps(value)}' for name, value in values.items())
                + " }\n"
                for tool, values in present.items()
            )
        )
        command = [
            sys.executable,
            *("-m", "schemathesis.cli", "--config-file", str(settings), "run", f"{served.base}/openapi.json"),
            *(
                "--max-examples",
                os.environ.get("CTX_SCHEMATHESIS_EXAMPLES", "25"),
                "--seed",
                "1",
                "--no-color",
                # "5" is read as 5, "" as absent, and unknown arguments are ignored.
                "--exclude-checks",
                "negative_data_rejection",
            ),
        ]
        process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=580)
    printed = process.stdout[-6000:] + process.stderr[-2000:]
    assert "No issues found" in process.stdout, printed
    assert process.returncode == 0
