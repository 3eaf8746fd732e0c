"""Real clients read what `ctx connect` wrote, and call its hooks. The model behind them is a stand-in.

They come from npm and take 1.4 GB, and one of them is not free software, so `make clients` leaves them out:

    npm install --prefix FOLDER @anthropic-ai/claude-code @openai/codex @google/gemini-cli \\
        opencode-ai @github/copilot
    CTX_LIVE_CLIENTS=FOLDER pytest tests/cli/test_live_clients.py

Last run: Claude Code 2.1.197, Codex 0.171.0, Gemini CLI 0.61.0, OpenCode 1.18.33 and GitHub Copilot CLI
1.0.102, 2026-11-28.
"""

import http.server
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import ctx, http_server, project
from real_clients import DOCUMENTS, Running

from ctx.models import JSON

FOLDER = os.environ.get("CTX_LIVE_CLIENTS", "")
TIMEOUT_S = 120  # a hang is told; the slowest of them starts in five seconds
pytestmark = [
    pytest.mark.clients,
    pytest.mark.full,
    pytest.mark.skipif(
        not FOLDER, reason="CTX_LIVE_CLIENTS names no folder with the clients of npm (1.4 GB)"
    ),
]

# How a client is asked for its servers, and what it says of one that it reached (Codex and Copilot only read
# the entry).
ASKED = {
    "claude-code": (["claude", "mcp", "list"], "✔ Connected"),
    "codex": (["codex", "mcp", "get", "ctx-tried"], "enabled: true"),
    "copilot-cli": (["copilot", "mcp", "get", "ctx-tried"], "Status: Enabled"),
    "gemini-cli": (["gemini", "mcp", "list"], "✓ ctx-tried"),
    "opencode": (["opencode", "mcp", "list"], "✓ ctx-tried"),
}
SERVER = "mcp_servers.ctx-tried.required=true"  # else the first request may come before the server's tools
MODEL = (
    'model_providers.stand-in={{name="stand-in",base_url="{base}/v1",wire_api="responses",'
    'env_key="OPENAI_API_KEY"}}'
)
SPOKEN = {
    "claude-code": lambda base, text: ["claude", "-p", text],
    "codex": lambda base, text: [
        *("codex", "exec", "--dangerously-bypass-hook-trust", "--skip-git-repo-check", "-m", "stand-in"),
        *("-c", 'model_provider="stand-in"', "-c", MODEL.format(base=base), text),
    ],
}


class Model(http.server.BaseHTTPRequestHandler):
    """Answers every request of Anthropic's and OpenAI's interfaces with the same word, and keeps what was
    sent.

    `call` is the tool that it asks for once, with its arguments.
    """

    requests: list[str] = []
    call: tuple[str, JSON] | None = None
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.requests.append(body.decode())
        calling = (
            self.call is not None
            and f'"name":"{self.call[0]}"'.encode() in body
            and b"tool_result" not in body
            and b"function_call_output" not in body
        )
        events_of = _message_events if "/messages" in self.path else _response_events
        events = events_of(self.call if calling else None)
        lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        content = "".join(lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


def _message_events(call: tuple[str, JSON] | None) -> list[JSON]:
    """A reply of Anthropic's messages, streamed: a word, or a call of a tool."""
    block: JSON = {"type": "text", "text": ""}
    delta = {"type": "text_delta", "text": "Noted."}
    if call is not None:
        block = {"type": "tool_use", "id": "toolu_1", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
    stop = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    usage = {"input_tokens": 1, "output_tokens": 1}
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": stop,
            "usage": usage,
        },
        {"type": "message_stop"},
    ]


def _response_events(call: tuple[str, JSON] | None) -> list[JSON]:
    """A reply of OpenAI's responses, streamed: a word, or a call of a tool."""
    content = [{"type": "output_text", "text": "Noted.", "annotations": []}]
    item: JSON = {"type": "message", "id": "m", "role": "assistant", "status": "completed"}
    item["content"] = content
    if call is not None:
        arguments = json.dumps(call[1])
        item = {"type": "function_call", "id": "f", "call_id": "c", "name": call[0], "arguments": arguments}
        item["namespace"] = "mcp__ctx_tried"
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    response = {"id": "r", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]


@pytest.fixture
def model() -> Iterator[str]:
    """The address of a stand-in for the model's server."""
    Model.requests, Model.call = [], None
    with http_server(Model) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project beside a home of its own."""
    (tmp_path / "home").mkdir()
    (tmp_path / "tried").mkdir()
    project(tmp_path / "tried", DOCUMENTS)
    return tmp_path / "tried"


def _environment(folder: Path) -> dict[str, str]:
    home = folder.parent / "home"
    return {"HOME": str(home), "XDG_CONFIG_HOME": str(home / ".config"), "XDG_DATA_HOME": str(home / ".data")}


def _run(folder: Path, arguments: list[str], **environ: str) -> str:
    """What a client prints; it has come to its end by itself."""
    program = Path(FOLDER, "node_modules", ".bin", arguments[0])
    if not program.exists():
        pytest.skip(f"{program} is not there")
    reply = subprocess.run(
        [program, *arguments[1:]],
        cwd=folder,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("CTX_")},
            **_environment(folder),
            "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",  # for the command `ctx`
            # It serves nobody's entries in a folder that nobody trusted.
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_API_KEY": "none",
            "NO_COLOR": "1",
            **environ,
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert reply.returncode == 0, reply.stdout + reply.stderr
    return reply.stdout + reply.stderr


@pytest.mark.parametrize("client", ASKED)
def test_a_client_reads_its_entry_and_starts_the_server(folder: Path, client: str) -> None:
    command, sign = ASKED[client]
    entry = ctx("connect", client, "--user", cwd=folder, env=_environment(folder))
    assert entry.returncode == 0, entry.stderr
    assert "Connected: " in entry.stdout
    assert sign in _run(folder, command)
    assert ctx("connect", client, "--user", "--remove", cwd=folder, env=_environment(folder)).returncode == 0


@pytest.mark.parametrize("client", ["gemini-cli", "opencode"])  # the others ask whether to trust the folder
def test_a_client_reads_the_entry_of_a_project(folder: Path, client: str) -> None:
    command, sign = ASKED[client]
    assert ctx("connect", client, cwd=folder, env=_environment(folder)).returncode == 0
    assert sign.replace("ctx-tried", "ctx") in _run(folder, command)


@pytest.mark.parametrize("client", ASKED)
def test_a_client_reads_an_address_and_reaches_the_server(folder: Path, client: str) -> None:
    command, sign = ASKED[client]
    server = Running(folder / "ctx.toml")
    try:
        address = ("--user", "--url", f"{server.base}/mcp")
        entry = ctx("connect", client, *address, cwd=folder, env=_environment(folder))
        assert entry.returncode == 0, entry.stderr
        assert sign in _run(folder, command)
    finally:
        server.stop()


@pytest.mark.parametrize("client", SPOKEN)
def test_what_was_said_to_an_agent_is_before_it_when_the_next_session_begins(
    folder: Path, model: str, client: str
) -> None:
    access = {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    assert ctx("connect", client, "--memory", cwd=folder, env=_environment(folder)).returncode == 0
    _run(folder, SPOKEN[client](model, "Remember: the release is cut on Thursdays."), **access)
    listed = ctx("memory", "list", "--json", cwd=folder, env=_environment(folder))
    (record,) = json.loads(listed.stdout)["memories"]
    assert record["text"] == "The release is cut on Thursdays."
    Model.requests.clear()
    _run(folder, SPOKEN[client](model, "What is new?"), **access)
    assert any("The release is cut on Thursdays." in request for request in Model.requests)


@pytest.mark.parametrize("client", SPOKEN)
def test_an_agent_searches_and_its_model_is_handed_the_passage_once(
    folder: Path, model: str, client: str
) -> None:
    access = {"ANTHROPIC_BASE_URL": model, "ANTHROPIC_API_KEY": "none", "OPENAI_API_KEY": "none"}
    environ = _environment(folder)
    assert ctx("index", cwd=folder, env=environ).returncode == 0
    assert ctx("connect", client, "--user", cwd=folder, env=environ).returncode == 0
    tool, options = {
        "claude-code": ("mcp__ctx-tried__search", ["--allowedTools", "mcp__ctx-tried__search"]),
        "codex": ("search", ["-c", SERVER]),
    }[client]
    Model.call = (tool, {"query": "how do I roll back a release"})
    command = [*SPOKEN[client](model, "Look it up."), *options]
    _run(folder, command, **access, MCP_CONNECTION_NONBLOCKING="0")
    replies = [reply for request in Model.requests for reply in _tool_replies(json.loads(request))]
    assert len(replies) == 1
    assert "deploy.md\n" in replies[0]
    assert replies[0].count("Roll back a release by its number") == 1


def _tool_replies(request: JSON) -> Iterator[str]:
    """The replies of tools in a request to a model: of Anthropic's messages, or of OpenAI's responses."""
    contents = [message["content"] for message in request.get("messages", ())]
    blocks = [block for content in contents if isinstance(content, list) for block in content]
    replies = [block["content"] for block in blocks if block["type"] == "tool_result"]
    replies += [item["output"] for item in request.get("input", ()) if item["type"] == "function_call_output"]
    for reply in replies:
        yield reply if isinstance(reply, str) else "\n".join(part["text"] for part in reply)
