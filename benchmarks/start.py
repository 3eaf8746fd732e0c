"""Measures the processor time of whole commands, against the budgets of the project.

    python benchmarks/start.py
    python benchmarks/start.py --against ../before/.venv/bin/python    alternates with another installation

The figure is the smallest processor time of all rounds, because other work on the machine only adds to it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import check, finish, header, markdown_tree, note, once, options, used_s

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n'
SEARCH = ("search", "value", "file")
# command -> budget in ms, for commands that run to their end
BUDGETS: dict[tuple[str, ...], int] = {
    (*SEARCH, "--mode", "keyword"): 150,
    ("get", "PAGE"): 150,
    (*SEARCH, "--mode", "hybrid"): 400,
    ("--help",): 150,
}
MCP_MS = 1000  # the budget of `ctx mcp` until its first reply
HELLO = {
    "jsonrpc": "2.0",
    "id": 0,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    },
}
LIST_COMMANDS = "from ctx.cli import COMMANDS; print(*COMMANDS)"


def mcp_ms(python: str, folder: Path) -> float:
    """The processor time of `ctx mcp` until it has answered `initialize`, in ms."""
    process = subprocess.Popen(
        [python, "-m", "ctx", "mcp", "--log-level", "error"],
        cwd=folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(HELLO).encode() + b"\n")
    process.stdin.flush()
    reply = json.loads(process.stdout.readline())
    used_ms = used_s(process.pid) * 1000
    process.stdin.close()
    process.wait(60)
    assert "result" in reply, reply
    return used_ms


class Side:
    """One installation of ctx, with a project that it has indexed, and its smallest measured times."""

    def __init__(self, python: str, folder: Path, files: int) -> None:
        self.python = python
        self.folder = folder
        self.least: dict[str, float] = {}
        folder.mkdir()
        markdown_tree(folder / "docs", files)
        (folder / "ctx.toml").write_text(CONFIG)
        once([python, "-m", "ctx", "index", "--no-progress"], folder)
        listed = subprocess.run([python, "-c", LIST_COMMANDS], cwd=folder, capture_output=True, check=True)
        self.commands = listed.stdout.decode().split()
        self.page = next((folder / "docs").rglob("*.md")).relative_to(folder / "docs").as_posix()

    def measure(self, label: str, ms: float) -> None:
        self.least[label] = min(ms, self.least.get(label, ms))

    def round(self, *, helps: bool) -> None:
        """Runs each command once. `helps`: also runs the help of every command."""
        self.measure("python -c pass", once([self.python, "-c", "pass"], self.folder)[0])
        for words in BUDGETS:
            command = ["get", self.page] if words[0] == "get" else list(words)
            self.measure(" ".join(words), once([self.python, "-m", "ctx", *command], self.folder)[0])
        self.measure("mcp", mcp_ms(self.python, self.folder))
        for name in self.commands if helps else ():
            command = [self.python, "-m", "ctx", name, "--help"]
            self.measure(f"{name} --help", once(command, self.folder)[0])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--against", metavar="PYTHON", help="the interpreter of another installation")
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=11)
    args = parser.parse_args()
    header(f"Start of commands, {args.files:,} files")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        os.environ |= {"HOME": name, "XDG_CACHE_HOME": f"{name}/cache", "XDG_STATE_HOME": f"{name}/state"}
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        pythons = [sys.executable, *([args.against] if args.against else [])]
        sides = [Side(python, Path(name, str(number)), args.files) for number, python in enumerate(pythons)]
        for number in range(args.rounds):  # in turn, so that a noisy moment hits both
            for side in sides:
                side.round(helps=number < 3)
    now = sides[0].least
    for label, ms in now.items():
        print(f"{label + ':':<36}" + "".join(f"{side.least.get(label, 0):9.1f} ms" for side in sides))
        note(f"{label}, CPU ms", ms)
    for words, budget in BUDGETS.items():
        check(f"ctx {' '.join(words)}", now[" ".join(words)], budget, unit=" ms")
    slowest = max((label for label in now if label.endswith("--help")), key=lambda label: now[label])
    check(f"the slowest help, ctx {slowest}", now[slowest], 150, unit=" ms")
    check("ctx mcp to its first reply", now["mcp"], MCP_MS, unit=" ms")
    finish()


if __name__ == "__main__":
    main()
