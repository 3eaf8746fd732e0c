"""`ctx mcp` as a client starts it with every conversation: processor time and wall clock from the start of
the process to the reply to `initialize`, and to `tools/list` right behind it, beside `python -c pass` (issue:
<= 20 times it).

Three kinds of start: of a client that never came before, in a project from which `ctx connect` has led (which
has the opening recorded, ctx/cli/recording.py); the same where nothing is recorded; and the later ones.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _common import check, finish, header, markdown_tree, note, once, options, used_s

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n'
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}
TOOLS = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
STEPS = ("initialize", "tools/list", "search")
SEARCH = {
    "jsonrpc": "2.0",
    "id": 2,
    "method": "tools/call",
    "params": {"name": "search", "arguments": {"query": "value file"}},
}


def initialize(name: str) -> dict[str, object]:
    """The greeting of a client of that name."""
    about = {"name": name, "version": "1"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {"roots": {}}, "clientInfo": about}
    return {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}


def recorded_by_connect(folder: Path, environ: dict[str, str]) -> dict[Path, bytes]:
    """What is recorded once `ctx connect` is through, by file."""
    command = [sys.executable, "-m", "ctx", "connect", "cursor", "--stdio"]
    subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
    size, same = -1, 0
    while same < 20 or size <= 0:  # for two seconds nothing more was written
        time.sleep(0.1)
        sizes = sum(path.stat().st_size for path in records(environ))
        same, size = (same + 1 if sizes == size else 0), sizes
    return {path: path.read_bytes() for path in records(environ)}


def records(environ: dict[str, str]) -> list[Path]:
    return list(Path(environ["XDG_CACHE_HOME"], "ctx").glob("opening-[0-9][0-9]"))


def start(folder: Path, environ: dict[str, str], name: str = "bench") -> dict[str, tuple[float, float]]:
    """Step -> (processor time, wall clock) in ms from the start of the process to its reply."""
    began_s = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "ctx", "mcp", "--log-level", "error"],
        cwd=folder,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    figures = {}
    for step, messages in zip(STEPS, ((initialize(name),), (INITIALIZED, TOOLS), (SEARCH,)), strict=True):
        process.stdin.write(b"".join(json.dumps(message).encode() + b"\n" for message in messages))
        process.stdin.flush()
        reply = json.loads(process.stdout.readline())
        figures[step] = used_s(process.pid) * 1000, (time.perf_counter() - began_s) * 1000
        assert "result" in reply, reply
    process.stdin.close()
    process.wait(60)
    return figures


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--files", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=9)
    args = parser.parse_args()
    header("A client's start")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        markdown_tree(folder / "docs", args.files)
        (folder / "ctx.toml").write_text(CONFIG)
        environ = {
            **os.environ,
            "HOME": name,
            "XDG_CACHE_HOME": f"{name}/cache",
            "XDG_STATE_HOME": f"{name}/state",
        }
        environ.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-m", "ctx", "index", "--no-progress", "--no-embed"]
        subprocess.run(command, cwd=folder, env=environ, check=True, stdout=subprocess.DEVNULL)
        start(folder, environ)  # the byte code is written, the files are in memory
        connected = recorded_by_connect(folder, environ)
        base, strange, first, later = [], [], [], []
        for number in range(args.rounds):  # in turn, so that a noisy moment hits all
            base.append(once([sys.executable, "-c", "pass"], folder))
            later.append(start(folder, environ))
            for record in records(environ):
                record.unlink()
            first.append(start(folder, environ))
            for record, content in connected.items():
                record.write_bytes(content)
            strange.append(start(folder, environ, f"stranger {number}"))
    cpu = median(row[0] for row in base)
    wall = median(row[1] for row in base)
    print(f"{'python -c pass:':<34} {cpu:7.1f} ms CPU, {wall:7.1f} ms wall")
    note("python -c pass, CPU ms", cpu)
    ratios: dict[tuple[str, str], float] = {}
    kinds = (("first start, connected", strange), ("nothing recorded", first), ("later starts", later))
    for label, rows in kinds:
        for step in STEPS:
            step_cpu, step_wall = (median(row[step][part] for row in rows) for part in (0, 1))
            note(f"{label}, {step}, CPU ms", step_cpu)
            ratios[label, step] = step_cpu / cpu
            title = f"{label}, to the reply to {step}:"
            print(f"{title:<56} {step_cpu:7.1f} ms CPU = {step_cpu / cpu:5.1f} x, {step_wall:7.1f} ms wall")
    for step in STEPS[:2]:
        what = f"ctx mcp to the reply to {step} against python -c pass, CPU"
        check(
            what,
            max(ratios[kind, step] for kind in ("first start, connected", "later starts")),
            20,
            unit=" x",
        )
    finish()


if __name__ == "__main__":
    main()
