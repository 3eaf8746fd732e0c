"""Cold starts: `ctx search` in keyword mode as a whole process, beside `python -c pass` (issue: <= 3 times
it).
"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from _common import check, finish, header, markdown_tree, note, once, options

# What uv writes for a command; older pips write one that imports `re`, 15 million instructions more.
LAUNCHER = """import sys
from ctx.cli import main
if __name__ == "__main__":
    sys.exit(main())
"""
CONFIG = '[connectors.filesystem]\nroot = "./docs"\n'


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=41)
    args = parser.parse_args()
    header("Cold start")
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        folder = Path(name)
        launcher = folder / "ctx"
        launcher.write_text(LAUNCHER)
        search = [sys.executable, str(launcher), "search", "value", "file"]
        commands = {
            "python -c pass": [sys.executable, "-c", "pass"],
            "ctx search (keyword)": search,
            "ctx search (hybrid, cold)": [*search, "--mode", "hybrid"],
        }
        markdown_tree(folder / "docs", args.files)
        (folder / "ctx.toml").write_text(CONFIG)
        once([*search[:2], "index", "--no-progress", "--no-embed"], folder)
        os.sync()
        took: dict[str, list[tuple[float, float]]] = {label: [] for label in commands}
        for command in commands.values():  # the byte code is written, the files are in memory
            once(command, folder)
        for round_no in range(args.rounds):  # interleaved, so that a noisy moment hits all
            for label, command in commands.items():
                if "hybrid" not in label or round_no % 8 == 0:
                    took[label].append(once(command, folder))
    wall = {label: median(sample[1] for sample in samples) for label, samples in took.items()}
    cpu = {label: median(sample[0] for sample in samples) for label, samples in took.items()}
    for label, samples in took.items():
        least = min(sample[1] for sample in samples)
        print(
            f"{label + ':':<26} p50 {wall[label]:6.1f} ms wall (least {least:.1f}), {cpu[label]:6.1f} ms "
            f"CPU, {len(samples)} runs"
        )
    base, keyword, _ = commands
    for label, figure in cpu.items():
        note(f"{label}, CPU ms", figure)
    print(f"{'CPU alone:':<26} {cpu[keyword] / cpu[base]:.2f} x")
    check("ctx search against python -c pass, medians", wall[keyword] / wall[base], 3, unit=" x")
    finish()


if __name__ == "__main__":
    main()
