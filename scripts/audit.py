"""Asks a vulnerability database about the locked dependencies (`make audit`).

Exit code 0: none is known to be vulnerable; 1: some are, each is named with its mend; 3: the database could
not be asked about all of them, so that nothing is known.
"""

import argparse
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

TIMEOUT_S = 300


def verdict(dependencies: Sequence[Mapping[str, Any]]) -> tuple[int, list[str]]:
    """The exit code, and the lines to print, of pip-audit's list of dependencies."""
    flaws = [
        f"{dependency['name']} {dependency['version']}: {flaw['id']}, "
        f"mended in {', '.join(flaw['fix_versions']) or 'no version yet'}"
        for dependency in dependencies
        for flaw in dependency.get("vulns", [])
    ]
    unasked = sum("skip_reason" in dependency for dependency in dependencies)
    if unasked or not dependencies:
        gap = f"for {unasked} of {len(dependencies)} packages" if unasked else "at all"
        gap_line = f"NOT AUDITED: the database did not answer {gap}; try again where the network reaches it"
        return (1 if flaws else 3), [*flaws, gap_line]
    if flaws:
        return 1, flaws
    return 0, [f"{len(dependencies)} packages asked about, none known to be vulnerable"]


def main() -> int:
    """Runs pip-audit over one lock file; prints the verdict."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("lock", type=Path, help="a requirements file with hashes")
    options.add_argument("--program", default="pip-audit", help="the pip-audit to run")
    options.add_argument("--service", choices=("pypi", "osv"), default="pypi", help="which database to ask")
    args = options.parse_args()
    command = [args.program, "--require-hashes", "--disable-pip", "--progress-spinner", "off"]
    command += ["--format", "json", "--vulnerability-service", args.service, "-r", str(args.lock)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
        dependencies = json.loads(process.stdout)["dependencies"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        dependencies = []  # it prints no document where it cannot ask
    code, lines = verdict(dependencies)
    for line in lines:
        print(f"{args.lock.name}: {line}")
    return code


if __name__ == "__main__":
    sys.exit(main())
