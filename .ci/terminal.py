"""Writes the picture of a terminal that the README and the tutorial show: `python .ci/terminal.py`.

Indexes this repository's documentation in a temporary folder, runs real searches and draws what they print
into docs/images/terminal.svg.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "terminal.svg"
COLUMNS = 100
SETUP = ("ctx init", "ctx index")
SHOWN = (
    'ctx search -n 1 "how do I search a private repository"',
    "ctx symbol open_door",
)
CODE = """\
def open_door(floor: int) -> str:
    return f"Door {floor} is open"


def arrive(floor: int) -> None:
    print(open_door(floor))
"""


def run(command: str, folder: Path) -> str:
    """What a command prints, both streams in order, as on a terminal."""
    words = command.replace("ctx ", f"{sys.executable} -m ctx ", 1)
    environ = {
        **os.environ,
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder / "data"),
        "PYTHONPATH": str(ROOT),
        "NO_COLOR": "1",
        "COLUMNS": str(COLUMNS),
    }
    process = subprocess.run(
        ["bash", "-c", words],
        cwd=folder / "handbook",
        env=environ,
        text=True,
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    return process.stdout


def main() -> int:
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"))  # noqa: SIM115
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(ROOT / "docs", folder / "handbook", ignore=shutil.ignore_patterns("images", "deploy"))
        (folder / "handbook" / "app.py").write_text(CODE)
        for command in SETUP:
            run(command, folder)
        for command in SHOWN:
            console.print(Text(f"$ {command}", style="bold"))
            for line in run(command, folder).splitlines():
                wrapped = textwrap.wrap(line, COLUMNS, subsequent_indent="    ", drop_whitespace=False)
                console.print(Text("\n".join(wrapped) or " "))
            console.print()
    drawing = console.export_svg(title="ctx", unique_id="ctx")
    # Without the web font that rich would have a browser fetch.
    drawing = re.sub(r"@font-face \{.*?\}\s*", "", drawing, flags=re.DOTALL)
    PICTURE.write_text(drawing.replace("Fira Code", "ui-monospace, Menlo, Consolas"))
    print(f"{PICTURE.relative_to(ROOT)}: {PICTURE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
