"""What every door answers, before and after: `python scripts/replies.py OLD NEW [--only WORD]`.

OLD and NEW are folders of two checkouts; each is run by its own `.venv`, or by this Python. Both get the
same project in a folder of their own and are asked the same: the help of every command, searches by command
line, REST and MCP, what a server says of itself, memories, and wrong questions. What differs is printed, a
line each; the exit code is 1 where anything does. Times, versions, folders and made-up ids are the same.
"""

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

DOCUMENTS = {
    "auth.md": "# Authentication\n\nTokens are signed and rotate monthly.\n\n## Rotation\n\nA new key signs "
    "from the first.\n",
    "deploy.md": "# Deployment guide\n\n## Rollback\n\nRoll back a release by its number; the tokens stay.\n",
    "parser.py": 'def parse_token(text):\n    """Read a signed token."""\n    return text.split(".")\n',
    "notes.txt": "Remember the milk.\n",
}
CONFIG = """\
[connectors.filesystem.docs]
root = "./docs"
include_globs = ["**/*"]
[server]
bind = "127.0.0.1:0"
[lua]
tools_dir = "./tools"
[agents.inline.reviewer]
description = "Reviews code"
tools = ["search"]
system_prompt = "You review code."
[packs]
enabled = ["hindsight", "claude-recall"]
"""
SHOUT = """\
tool = {
  name = "shout",
  description = "Say it louder",
  parameters = {{name = "text", type = "string", required = true, description = "What to say"}},
  execute = function(params, context) return {said = params.text:upper()} end,
}
"""
QUERIES = ("tokens", "how are tokens rotated", "parse_token", "Rollback release", "zeppelin")
MODES = ("keyword", "semantic", "hybrid")
MODIFIED_S = 1_760_000_000
CALLS: tuple[tuple[str, str, Any], ...] = (
    ("GET", "/health", None),
    ("GET", "/openapi.json", None),
    ("GET", "/tools/list", None),
    ("GET", "/agents/list", None),
    ("POST", "/agents/reviewer/prompt", {}),
    ("POST", "/tools/sources", {}),
    ("POST", "/tools/shout", {"text": "hello"}),
    ("POST", "/tools/retain", {"content": "Ann lives in Paris", "context": "move"}),
    ("POST", "/tools/recall", {"query": "Where does Ann live?"}),
    ("POST", "/tools/reflect", {"query": "Where does Ann live?"}),
    # What is wrong is answered too.
    ("POST", "/tools/search", {}),
    ("POST", "/tools/search", {"query": "x", "limit": 0}),
    ("POST", "/tools/search", {"query": "x", "mode": "magic"}),
    ("POST", "/tools/search", {"query": "x", "source": "nowhere"}),
    ("POST", "/tools/search", "{"),
    ("POST", "/tools/get", {"id": "none"}),
    ("POST", "/tools/nothing", {}),
    ("DELETE", "/tools/search", None),
    ("GET", "/nowhere", None),
)
RPC: tuple[tuple[str, Any], ...] = (
    ("tools/list", {}),
    ("prompts/list", {}),
    ("resources/list", {}),
    ("tools/call", {"name": "search", "arguments": {"query": "tokens"}}),
    ("tools/call", {"name": "search", "arguments": {"query": ""}}),
    ("tools/call", {"name": "nothing", "arguments": {}}),
)
_MADE_UP = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|fact_[0-9a-f]{12}|in \d+\.\d s"
)
_TIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)?")
_CHANGING_KEY = re.compile(r"(_ms|_s|_at|uptime|version|pid|rss|bytes|date|timestamp)$", re.IGNORECASE)


class Checkout:
    """One version of `ctx`, and a project of its own for it."""

    def __init__(self, source: Path, folder: Path) -> None:
        self.project = folder / "project"
        self.home = folder / "home"
        self._source = source
        for path in (self.project / "docs", self.project / "tools", self.home):
            path.mkdir(parents=True)
        for name, text in DOCUMENTS.items():
            (self.project / "docs" / name).write_text(text)
            os.utime(self.project / "docs" / name, (MODIFIED_S, MODIFIED_S))
        (self.project / "tools" / "shout.lua").write_text(SHOUT)
        (self.project / "ctx.toml").write_text(CONFIG)

    def command(self, *arguments: str) -> list[str]:
        own = self._source / ".venv" / "bin" / "python"
        return [str(own) if own.exists() else sys.executable, "-m", "ctx", *arguments]

    def environment(self) -> dict[str, str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("CTX_", "XDG_"))}
        return {**environ, "HOME": str(self.home), "PYTHONPATH": str(self._source), "COLUMNS": "100"}

    def run(self, *arguments: str) -> dict[str, Any]:
        """A command's exit code and what it printed."""
        reply = subprocess.run(
            self.command(*arguments),
            cwd=self.project,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        return {"exit": reply.returncode, "out": _parsed(reply.stdout), "err": reply.stderr}

    def replies(self) -> Iterator[tuple[str, Any]]:
        """Name -> what was answered, in the order of asking."""
        yield from self._commands()
        server = subprocess.Popen(
            self.command("serve", "mcp", "--config", str(self.project / "ctx.toml")),
            cwd=self.project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert server.stdout is not None
        try:
            line = server.stdout.readline()
            assert line, "the server did not start"
            base = "http://" + line.removeprefix("Listening on ").strip()
            yield from _served(base)
        finally:
            server.kill()
            server.wait()
            server.stdout.close()

    def _commands(self) -> Iterator[tuple[str, Any]]:
        overview = self.run("--help")
        yield "ctx --help", overview
        for name in re.findall(r"^ {2,4}([a-z][a-z-]+) ", str(overview["out"]), re.MULTILINE):
            yield f"ctx {name} --help", self.run(name, "--help")
        config = ("--config", str(self.project / "ctx.toml"))
        yield "ctx index", self.run("index", *config)
        yield "ctx sources", self.run("sources", "--json", *config)
        for mode in MODES:
            for query in QUERIES:
                words = ("search", query, "--mode", mode, "--json", *config)
                yield f"ctx search {query} --mode {mode}", self.run(*words)
        yield "ctx get docs/auth.md", self.run("get", "auth.md", *config)


def _served(base: str) -> Iterator[tuple[str, Any]]:
    for mode in MODES:
        for query in QUERIES:
            body = {"query": query, "mode": mode}
            yield f"POST /tools/search {body}", _ask(base, "POST", "/tools/search", body)
    for method, path, body in CALLS:
        yield f"{method} {path} {'' if body is None else body}", _ask(base, method, path, body)
    for method, params in RPC:
        request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        yield f"mcp {method} {params}", _ask(base, "POST", "/mcp", request)


def _ask(base: str, method: str, path: str, body: Any) -> dict[str, Any]:
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    request = Request(base + path, data, headers, method=method)  # noqa: S310 - the address is this script's own
    try:
        with urlopen(request, timeout=60) as reply:  # noqa: S310
            return {"status": reply.status, "body": _parsed(reply.read().decode())}
    except HTTPError as error:
        return {"status": error.code, "body": _parsed(error.read().decode())}


def _parsed(text: str) -> Any:
    text = text.strip()
    if text.startswith("event:"):
        text = text.split("data:", 1)[1].strip()
    try:
        return json.loads(text)
    except ValueError:
        return text


def lines_of(value: Any, checkout: Checkout, path: str = "") -> Iterator[str]:
    """A reply as lines `path: value`, in an order of its own, without what differs from run to run."""
    if isinstance(value, dict):
        for name in sorted(value):
            yield from lines_of(value[name], checkout, f"{path}.{name}")
    elif isinstance(value, list):
        for number, element in enumerate(value):
            yield from lines_of(element, checkout, f"{path}[{number}]")
    elif _CHANGING_KEY.search(path):
        yield f"{path}: ({type(value).__name__})"
    elif isinstance(value, str):
        text = value.replace(str(checkout.project), "PROJECT").replace(str(checkout.home), "HOME")
        text = _TIME.sub("TIME", _MADE_UP.sub("MADE-UP", text))
        for line in text.splitlines() or [""]:
            yield f"{path}: {line}"
    else:
        yield f"{path}: {value}"


def main() -> int:
    options = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("old", type=Path)
    options.add_argument("new", type=Path)
    options.add_argument("--only", default="", help="questions whose name has this word")
    args = options.parse_args()
    different = 0
    with tempfile.TemporaryDirectory(prefix="ctx-replies-") as folder:
        sides = [
            Checkout(args.old.resolve(), Path(folder) / "old"),
            Checkout(args.new.resolve(), Path(folder) / "new"),
        ]
        answers = [{name: list(lines_of(reply, side)) for name, reply in side.replies()} for side in sides]
    for name in dict.fromkeys((*answers[0], *answers[1])):
        if args.only in name:
            changes = list(_changes(answers[0].get(name), answers[1].get(name)))
            different += bool(changes)
            if changes:
                print("\n".join((f"== {name}", *changes)))
    print(f"{different} of {len(answers[1])} replies differ")
    return 1 if different else 0


def _changes(old: list[str] | None, new: list[str] | None) -> Iterator[str]:
    if old is None or new is None:
        yield "  only in the new one" if old is None else "  only in the old one"
        return
    for line in difflib.unified_diff(old, new, n=0, lineterm=""):
        if not line.startswith(("---", "+++", "@@")):
            yield f"  {line}"


if __name__ == "__main__":
    sys.exit(main())
