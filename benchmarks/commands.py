"""Commands of this checkout beside another one's, in turn: a cold search and an index run that finds nothing
changed, or one file (issue: within 3 % of before).

    git worktree add --detach ../before a88e0e9
    python benchmarks/commands.py --against ../before --files 2000

Both run in the same environment, so that only `ctx/` differs; each has a store of its own, made of the same
pages.
"""

import os
import sys
import tempfile
from pathlib import Path
from statistics import median

from _common import check, finish, header, markdown_tree, note, once, options
from cold import CONFIG, LAUNCHER

Sample = tuple[float, float]  # processor time and wall clock in ms


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--against", type=Path, help="the other checkout")
    parser.add_argument("--files", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=21)
    args = parser.parse_args()
    header(f"Commands beside another checkout's, {args.files:,} files")
    if args.against is None:
        print("Nothing to compare with: --against FOLDER names another checkout.")
        finish()
    with tempfile.TemporaryDirectory(prefix="ctx-bench-") as name:
        checkouts = (Path(__file__).parents[1], args.against.resolve())
        sides = [
            Side(Path(name) / label, checkout, args.files)
            for label, checkout in zip(("now", "before"), checkouts, strict=True)
        ]
        samples: dict[str, list[list[Sample]]] = {}
        for round_no in range(args.rounds):  # interleaved, so that a noisy moment hits both
            for number in (0, 1) if round_no % 2 else (1, 0):
                for label, sample in sides[number].round(round_no):
                    samples.setdefault(label, [[], []])[number].append(sample)
    for label, (now, before) in samples.items():
        cpu, wall = ([median(sample[part] for sample in side) for side in (now, before)] for part in (0, 1))
        print(
            f"{label + ':':<28} CPU {cpu[0]:7.1f} ms, {cpu[1]:7.1f} before ({cpu[0] / cpu[1]:.2f}); wall "
            f"{wall[0]:7.1f} ms, {wall[1]:7.1f} before ({wall[0] / wall[1]:.2f})"
        )
        note(f"{label}, wall ratio", wall[0] / wall[1])
        check(f"{label}, CPU against before", cpu[0] / cpu[1], 1.03, unit=" x")
    finish()


class Side:
    """One checkout and a project of its own."""

    def __init__(self, folder: Path, checkout: Path, files: int) -> None:
        self.folder = folder
        self.environ = {**os.environ, "PYTHONPATH": str(checkout)}
        markdown_tree(folder / "docs", files)
        (folder / "ctx.toml").write_text(CONFIG)
        launcher = folder / "ctx"
        launcher.write_text(LAUNCHER)
        self._command = [sys.executable, str(launcher)]
        self._pages = sorted((folder / "docs").rglob("*.md"))
        for _ in range(2):  # files as young as those of the first run are looked at once more
            self._run("index", "--no-progress", "--no-embed")
        self._run("search", "value", "file", "--mode", "hybrid")
        os.sync()

    def round(self, number: int) -> list[tuple[str, Sample]]:
        """Each command once."""
        search, index = ("search", "value", "file"), ("index", "--no-progress", "--no-embed")
        figures = [
            ("ctx search", self._run(*search)),
            ("ctx search --mode hybrid", self._run(*search, "--mode", "hybrid")),
            ("ctx index, none changed", self._run(*index)),
        ]
        page = self._pages[number]
        page.write_text(page.read_text() + f"Changed in round {number}.\n")
        return [*figures, ("ctx index, one changed", self._run(*index))]

    def _run(self, *words: str) -> Sample:
        return once([*self._command, *words], self.folder, self.environ)


if __name__ == "__main__":
    main()
