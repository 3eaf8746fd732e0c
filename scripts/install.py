"""Installs a lock file into a virtual environment, and says how far it is: `python scripts/install.py VENV
LOCK`.

By uv where that is on PATH (seconds), else by the environment's own pip (minutes: each wheel is fetched and
unpacked in turn). Hashes are required of everything. Nothing but the standard library is needed.
"""

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

STEP = 10  # packages between two lines where no terminal shows each


def progress(lines: Iterable[str], total: int) -> Iterator[str]:
    """What pip's lines say about how far it is, one text a package."""
    count = 0
    for line in lines:
        package = re.match(r"Collecting ([\w.\-\[\]]+)==(\S+)", line)
        if package:
            count += 1
            yield f"fetching {count} of at most {total}: {package[1]} {package[2]}"
        elif line.startswith("Installing collected packages"):
            yield f"unpacking {count} packages (up to a minute)"


def by_pip(python: Path, lock: Path) -> int:
    """Installs with the environment's pip; its exit code. What pip says is shown only where it fails."""
    total = len(re.findall(r"^[\w.\-]+==", lock.read_text(), re.MULTILINE))
    command = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--progress-bar", "off"]
    command += ["--require-hashes", "-r", str(lock)]
    transcript: list[str] = []
    live = sys.stdout.isatty()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as pip:
        assert pip.stdout is not None

        def lines() -> Iterator[str]:
            for line in pip.stdout or ():
                transcript.append(line)
                yield line

        for count, text in enumerate(progress(lines(), total), 1):
            if live:
                print(f"\r\x1b[K  {text}", end="", flush=True)
            elif count % STEP == 0 or text.startswith("unpacking"):
                print(f"  {text}", flush=True)
    if live:
        print("\r\x1b[K", end="")
    if pip.returncode:
        sys.stderr.writelines(transcript[-40:])
    return pip.returncode


def main() -> int:
    """Installs one lock file into one environment."""
    venv, lock = Path(sys.argv[1]), Path(sys.argv[2])
    python = venv / "bin" / "python"
    began_s = time.monotonic()
    uv = shutil.which("uv")
    print(f"{lock.name}: installing with {'uv' if uv else 'pip'} into {venv} ...", flush=True)
    if uv:
        command = [
            uv,
            "pip",
            "install",
            "--quiet",
            "--python",
            str(python),
            "--require-hashes",
            "-r",
            str(lock),
        ]
        code = subprocess.run(command, check=False).returncode
    else:
        code = by_pip(python, lock)
    if code == 0:
        print(f"{lock.name}: done in {time.monotonic() - began_s:.0f} s", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
