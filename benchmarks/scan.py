"""How long an unchanged scan of many files takes, beside a bare scandir-and-stat walk of the same tree.

    python benchmarks/scan.py [--files 100000] [--folders 1000]

Prints one line per case: milliseconds (best of the rounds, which alternate with the bare walk's) and the
ratio to the bare walk.
"""

import argparse
import os
import platform
import tempfile
import time
from collections.abc import Callable

from _common import bare_walk

from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.opening import RACY

GITIGNORE = """\
__pycache__/
*.py[cod]
*.so
build/
dist/
/docs/_build/
*.egg-info/
.env
*.log
*.tmp
*~
.DS_Store
coverage.xml
htmlcov/
/site
node_modules/
*.min.js
secret-*.md
tmp/**/cache
logs/*.txt
"""


def write_tree(root: str, files: int, folders: int) -> None:
    for number in range(folders):
        folder = os.path.join(root, f"part-{number // 50:03d}", f"section-{number:04d}")
        os.makedirs(folder)
        for at in range(files // folders):
            with open(os.path.join(folder, f"document-{at:03d}.md"), "w") as file:
                file.write(f"# Section {number}, document {at}\n")


def best_ms(rounds: int, *cases: Callable[[], object]) -> list[float]:
    """The best time of each case; they take turns, so that a busy moment of the machine falls on all of
    them.
    """
    best = [float("inf")] * len(cases)
    for _ in range(rounds):
        for number, case in enumerate(cases):
            began_s = time.perf_counter()
            case()
            best[number] = min(best[number], (time.perf_counter() - began_s) * 1000)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--folders", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ctx-scan-") as root:
        write_tree(root, options.files, options.folders)
        connector = FilesystemConnector("filesystem:bench", root)

        def scanned() -> dict[str, str]:
            # As a scan of a minute later would have it: no file is young enough to be looked at twice.
            return {
                item.source_id: item.fingerprint.replace(RACY, "") for item in connector.scan({}, ScanLog())
            }

        known = scanned()

        def unchanged() -> None:
            log = ScanLog()
            changed = sum(1 for _ in connector.scan(known, log))
            assert changed == 0, changed
            assert len(log.unchanged) == len(known), len(log.unchanged)

        def one_path() -> None:
            assert not list(
                connector.scan_paths(
                    [os.path.join(root, "part-000/section-0000/document-000.md")], known, ScanLog()
                )
            )

        print(
            f"{len(known)} files in {options.folders} folders; Python {platform.python_version()}, "
            f"{os.cpu_count()} CPUs"
        )
        plain_bare, plain, single = best_ms(options.rounds, lambda: bare_walk(root), unchanged, one_path)
        with open(os.path.join(root, ".gitignore"), "w") as file:
            file.write(GITIGNORE)
        known = scanned()
        ruled_bare, ruled = best_ms(options.rounds, lambda: bare_walk(root), unchanged)
        with open(os.path.join(root, ".ctxignore"), "w") as file:
            file.write("draft-*\n!draft-final.md\n")
        known = scanned()
        negated_bare, negated = best_ms(options.rounds, lambda: bare_walk(root), unchanged)
    for label, ms, bare_ms in (
        ("unchanged scan", plain, plain_bare),
        ("with 20 ignore patterns", ruled, ruled_bare),
        ("with a negated pattern too", negated, negated_bare),
    ):
        print(f"{label:<28}{ms:8.1f} ms   bare walk {bare_ms:8.1f} ms   ratio {ms / bare_ms:.2f}")
    print(f"{'a look at one changed path':<28}{single:8.1f} ms")


if __name__ == "__main__":
    main()
