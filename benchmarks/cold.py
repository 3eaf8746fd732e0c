"""Cold starts: `ctx search` in keyword mode as a whole process, beside `python -c pass` (issue: <= 3 times it)."""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import check, finish, header, markdown_tree, quantiles

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n'


def once(command: list[str], folder: Path) -> float:
    began_s = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - began_s


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=2_000)
    options.add_argument("--rounds", type=int, default=25)
    args = options.parse_args()
    header("Cold start")
    script = Path(sys.executable).with_name("ctx")
    search = [str(script)] if script.exists() else [sys.executable, "-m", "ctx"]
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        markdown_tree(folder / "docs", args.files)
        (folder / "ctx.toml").write_text(CONFIG)
        subprocess.run(
            [sys.executable, "-m", "ctx", "index", "--no-progress", "--no-embed"],
            cwd=folder,
            check=True,
            stdout=subprocess.DEVNULL,
        )
        os.sync()
        bare, ours, hybrid = [], [], []
        for _ in range(args.rounds):  # interleaved, so that a noisy moment hits both
            bare.append(once([sys.executable, "-c", "pass"], folder))
            ours.append(once([*search, "search", "value", "file"], folder))
            hybrid.append(once([*search, "search", "value", "file", "--mode", "hybrid"], folder))
    base, keyword, both = quantiles(bare), quantiles(ours), quantiles(hybrid)
    print(f"python -c pass:            p50 {base[0]:.1f} ms")
    print(f"ctx search (keyword):      p50 {keyword[0]:.1f} ms, p95 {keyword[1]:.1f} ms")
    print(f"ctx search (hybrid, cold): p50 {both[0]:.1f} ms, p95 {both[1]:.1f} ms")
    check("ctx search against python -c pass, medians", keyword[0] / base[0], 3, unit=" x")
    finish()


if __name__ == "__main__":
    main()
