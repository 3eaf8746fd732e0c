"""Lists the files of ctx in which code runs during a search, a write to memory and the indexing of a file.

    python benchmarks/walks.py
    python benchmarks/walks.py --list    also prints their names

Each walk is traced in a real process. The server has answered the same request once before. What runs in the
background of a server at that time is counted, too.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from _common import wait_until_idle

CONFIG = """
[connectors.filesystem.docs]
root = "./docs"
[server]
bind = "127.0.0.1:{port}"
[packs]
enabled = ["hindsight"]
"""
PORT = 17431
# Records the files of functions that are called. On SIGUSR1 it writes them to a file and starts an
# empty list.
TRACER = """
import os, runpy, signal, sys, threading
home = os.path.dirname(__import__("ctx").__file__)
files = set()
def trace(frame, event, argument):
    code = frame.f_code  # bodies of modules and classes are not optimized
    if event == "call" and code.co_flags & 1 and code.co_name[0] != "<" and code.co_filename.startswith(home):
        files.add(code.co_filename)
def write(*_):
    out, names = os.environ["TRACED"], sorted(os.path.relpath(name, home) for name in files)
    files.clear()
    with open(out + ".new", "w") as stream:
        stream.write("\\n".join(names))
    os.replace(out + ".new", out)
signal.signal(signal.SIGUSR1, write)
threading.setprofile(trace)
sys.setprofile(trace)
sys.argv = ["ctx", *sys.argv[1:]]
try:
    runpy.run_module("ctx", run_name="__main__")
finally:
    write()
"""


def start(folder: Path, *command: str) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "TRACED": str(folder / "traced"), "HOME": str(folder)}
    call = [sys.executable, "-c", TRACER, *command]
    return subprocess.Popen(call, cwd=folder, env=environment, stdout=subprocess.DEVNULL)


def files_so_far(folder: Path, server: subprocess.Popen[bytes]) -> list[str]:
    """The files since the last call."""
    (folder / "traced").unlink(missing_ok=True)
    server.send_signal(signal.SIGUSR1)
    while not (folder / "traced").exists():
        time.sleep(0.05)
    return (folder / "traced").read_text().split()


def ask(path: str, body: object | None = None) -> bytes:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(
        f"http://127.0.0.1:{PORT}{path}", data, {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as reply:
        return bytes(reply.read())


def walks(folder: Path) -> dict[str, list[str]]:
    """Walk -> the files it passes, relative to the package."""
    (folder / "docs").mkdir()
    (folder / "docs" / "otters.md").write_text("# Otters\n\nOtters eat salmon.\n")
    (folder / "ctx.toml").write_text(CONFIG.format(port=PORT))
    start(folder, "index").wait()
    start(folder, "search", "otters").wait()
    traced = {"ctx search": (folder / "traced").read_text().split()}
    server = start(folder, "serve")
    try:
        wait_until_idle(f"127.0.0.1:{PORT}")
        requests = {
            "POST /tools/search": ("/tools/search", {"query": "otters", "mode": "hybrid"}),
            "retain": ("/tools/retain", {"content": "Ann likes otters."}),
        }
        for name, (path, body) in requests.items():
            ask(path, body)
            time.sleep(2)  # work in the background of the first request
            files_so_far(folder, server)
            ask(path, body)
            traced[name] = files_so_far(folder, server)
        (folder / "docs" / "salmon.md").write_text("# Salmon\n\nSalmon swim.\n")
        while b"salmon.md" not in ask("/tools/search", {"query": "salmon"}):
            time.sleep(0.2)
        files_so_far(folder, server)
        (folder / "docs" / "otters.md").write_text("# Otters\n\nOtters eat salmon and trout.\n")
        time.sleep(3)  # until it is indexed
        traced["one changed file"] = files_so_far(folder, server)
    finally:
        server.terminate()
        server.wait()
    return traced


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--list", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name, files in walks(Path(folder)).items():
            print(f"{name}: {len(files)} files")
            if arguments.list:
                print(*(f"    {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
