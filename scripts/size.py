"""Prints what an environment's packages weigh: `python scripts/size.py VENV`; the heaviest first, then the
sum.
"""

import sys
from importlib.metadata import Distribution, distributions
from pathlib import Path

SHOWN = 10
MB = 1_000_000


def weight(distribution: Distribution) -> int:
    """Bytes of a distribution's files as installed, compiled modules left out: a reader makes those, or
    not.
    """
    paths = [Path(str(distribution.locate_file(file))) for file in distribution.files or ()]
    return sum(path.stat().st_size for path in paths if path.suffix != ".pyc" and path.is_file())


def main() -> None:
    """Prints the table."""
    folders = [str(path) for path in Path(sys.argv[1]).glob("lib/python*/site-packages")]
    weights = sorted(
        ((weight(item), f"{item.metadata['Name']} {item.version}") for item in distributions(path=folders)),
        reverse=True,
    )
    for size, name in weights[:SHOWN]:
        print(f"{size / MB:8.1f} MB  {name}")
    print(f"{sum(size for size, _ in weights) / MB:8.1f} MB  in all, {len(weights)} packages")


if __name__ == "__main__":
    main()
