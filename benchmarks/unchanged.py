"""An index run over 100k files of which none has changed, beside a bare walk of the tree (issue: <= 2 times it)."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import bare_walk, check, finish, header, timed

from ctx.config import load_config
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--files", type=int, default=100_000)
    options.add_argument("--rounds", type=int, default=7)
    args = options.parse_args()
    header(f"Unchanged index run, {args.files:,} files")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        for number in range(args.files):
            path = folder / "docs" / f"d{number // 100:04d}" / f"f{number:06d}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"# File {number}\n\nText of {number}.\n")
        (folder / "ctx.toml").write_text(CONFIG)
        print(f"first run: {timed(lambda: index(folder)):.1f} s")
        index(folder)  # files as young as those of the first run are looked at once more
        bare, ours, process = [], [], []
        with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
            for _ in range(args.rounds):
                bare.append(timed(lambda: bare_walk(str(folder / "docs"))))
                began_s = time.perf_counter()
                (report,) = space.indexer.run()
                ours.append(time.perf_counter() - began_s)
                assert report.unchanged == args.files, report
        for _ in range(3):
            process.append(timed(lambda: index(folder)))
        print(
            f"bare walk {min(bare) * 1e3:.0f} ms, index run {min(ours) * 1e3:.0f} ms, `ctx index` as a process {min(process) * 1e3:.0f} ms"
        )
        check("unchanged index run against a bare walk", min(ours) / min(bare), 2, unit=" x")
    finish()


def index(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "ctx", "index", "--no-progress"],
        cwd=folder,
        check=True,
        stdout=subprocess.DEVNULL,
    )


if __name__ == "__main__":
    main()
