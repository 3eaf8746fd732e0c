"""Cold starts: `ctx search` in keyword mode as a whole process, beside `python -c pass` (issue: <= 3 times it)."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _common import check, finish, header, markdown_tree

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n'
# As a user's shell has it: the byte code of modules is kept, and what is printed is buffered.
ENVIRON = {
    name: value
    for name, value in os.environ.items()
    if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
}


def once(command: list[str], folder: Path, out: int) -> tuple[float, float]:
    """One process from start to end: (wall clock, CPU of the process) in ms."""
    began_s = time.perf_counter()
    os.chdir(folder)
    child = os.posix_spawn(command[0], command, ENVIRON, file_actions=[(os.POSIX_SPAWN_DUP2, out, 1)])
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"{command} ended with {os.waitstatus_to_exitcode(status)}")
    return (time.perf_counter() - began_s) * 1000, (used.ru_utime + used.ru_stime) * 1000


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=2_000)
    options.add_argument("--rounds", type=int, default=41)
    args = options.parse_args()
    header("Cold start")
    ctx = str(Path(sys.executable).with_name("ctx"))
    commands = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "ctx search (keyword)": [ctx, "search", "value", "file"],
        "ctx search (hybrid, cold)": [ctx, "search", "value", "file", "--mode", "hybrid"],
    }
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name, open(os.devnull, "w") as nowhere:
        folder = Path(name)
        markdown_tree(folder / "docs", args.files)
        (folder / "ctx.toml").write_text(CONFIG)
        subprocess.run([ctx, "index", "--no-progress", "--no-embed"], cwd=folder, check=True, stdout=nowhere)
        os.sync()
        took: dict[str, list[tuple[float, float]]] = {label: [] for label in commands}
        for command in commands.values():  # the byte code is written, the files are in memory
            once(command, folder, nowhere.fileno())
        for round_no in range(args.rounds):  # interleaved, so that a noisy moment hits all
            for label, command in commands.items():
                if "hybrid" not in label or round_no % 8 == 0:
                    took[label].append(once(command, folder, nowhere.fileno()))
        os.chdir("/")
    wall = {label: median(sample[0] for sample in samples) for label, samples in took.items()}
    cpu = {label: median(sample[1] for sample in samples) for label, samples in took.items()}
    for label, samples in took.items():
        least = min(sample[0] for sample in samples)
        print(
            f"{label + ':':<26} p50 {wall[label]:6.1f} ms wall (least {least:.1f}), {cpu[label]:6.1f} ms CPU, {len(samples)} runs"
        )
    base, keyword, _ = commands
    print(f"{'CPU alone:':<26} {cpu[keyword] / cpu[base]:.2f} x")
    check("ctx search against python -c pass, medians", wall[keyword] / wall[base], 3, unit=" x")
    finish()


if __name__ == "__main__":
    main()
