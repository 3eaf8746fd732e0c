"""An index run over files of which none has changed, beside a bare walk of the tree (issue: <= 2 times it),
and the whole command with none and with one changed, beside `python -c pass` (issue: <= 80 and <= 150 ms of
processor time at 1,000 files).
"""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from _common import bare_walk, check, finish, header, note, once, options, timed

from ctx.config import load_config
from ctx.workspace import open_workspace

CONFIG = '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
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
        bare, ours = [], []
        with open_workspace(load_config(str(folder / "ctx.toml"), {})) as space:
            for _ in range(args.rounds):
                bare.append(timed(lambda: bare_walk(str(folder / "docs"))))
                began_s = time.perf_counter()
                (report,) = space.indexer.run()
                ours.append(time.perf_counter() - began_s)
                assert report.unchanged == args.files, report
        commands = measured(folder, args.rounds)
        print(f"bare walk {min(bare) * 1e3:.0f} ms, index run {min(ours) * 1e3:.0f} ms")
        for label, samples in commands.items():
            cpu = median(sample[0] for sample in samples)
            print(f"{label + ':':<26} {cpu:6.1f} ms CPU (least {min(samples)[0]:.1f})")
            note(f"{label}, CPU ms", cpu)
        if args.files > 10_000:
            check("unchanged index run against a bare walk", min(ours) / min(bare), 2, unit=" x")
        if args.files <= 1000:
            check("unchanged, least CPU", min(commands["ctx index, none changed"])[0], 80, unit=" ms")
            check("one changed, least CPU", min(commands["ctx index, one changed"])[0], 150, unit=" ms")
    finish()


def index(folder: Path) -> tuple[float, float]:
    """`ctx index`: (processor time, wall clock) in ms."""
    return once([sys.executable, "-m", "ctx", "index", "--no-progress"], folder)


def measured(folder: Path, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Each command's figures, the commands in turn."""
    figures: dict[str, list[tuple[float, float]]] = {}
    documents = sorted((folder / "docs").rglob("*.md"))
    for number in range(rounds):
        figures.setdefault("python -c pass", []).append(once([sys.executable, "-c", "pass"], folder))
        figures.setdefault("ctx index, none changed", []).append(index(folder))
        document = documents[number]
        document.write_text(document.read_text() + f"Changed in round {number}.\n")
        figures.setdefault("ctx index, one changed", []).append(index(folder))
    return figures


if __name__ == "__main__":
    main()
