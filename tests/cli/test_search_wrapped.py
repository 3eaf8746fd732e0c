"""Snippets of `ctx search` on a terminal: wrapped by what is seen, not by the codes for bold text."""

import re
from pathlib import Path

from kit import ctx, on_a_terminal, project

CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'


def test_bold_words_do_not_make_a_line_shorter(tmp_path: Path) -> None:
    words = " ".join(["otter", "heron"] * 12)
    project(tmp_path, {"pond.md": f"# Pond\n\n{words}.\n"}, CONFIG)
    assert ctx("index", cwd=tmp_path).returncode == 0
    shown = on_a_terminal(
        "search", "otter heron", cwd=tmp_path, env={"TERM": "xterm", "HOME": str(tmp_path)}
    )[1]
    assert "\x1b[1motter" in shown
    seen = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in shown.splitlines()]
    first = next(line for line in seen if line.startswith("    otter"))
    assert len(first) == 4 + len(" ".join(["otter", "heron"] * 6))
