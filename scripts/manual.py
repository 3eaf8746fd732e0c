"""Writes the manual page, made from the commands' own parsers: `python scripts/manual.py FILE`.

`make dist` packs it into the wheel.
"""

import argparse
import sys
from pathlib import Path

from argparse_manpage.manpage import Manpage

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from ctx import __version__  # noqa: E402
from ctx.cli import whole_parser  # noqa: E402

DESCRIPTION = (
    "Indexes folders and git repositories, and answers searches over REST, MCP and the command line. "
    "`ctx docs` opens the documentation that came with it."
)
FILES = [
    {
        "heading": "FILES",
        "content": ".TP\n\\fIctx.toml\\fR\nthe project's configuration, found here or in a folder above\n"
        ".TP\n\\fI.ctx/\\fR\nthe store: the catalog, the index, the caches and the keys\n",
    },
    {
        "heading": "EXIT STATUS",
        "content": "0 done, 1 a source or a client could not be dealt with, "
        "2 a mistake in the command or the configuration, 3 there is no such thing, 4 the store or the "
        "disk, 5 a script, 130 interrupted.\n",
    },
]


def manual() -> str:
    """The page as roff, every command in it."""
    parser: argparse.ArgumentParser = whole_parser()
    parser.description = DESCRIPTION
    parser.usage = "ctx [--config PATH] COMMAND ..."
    parser._positionals.title = "commands"
    page = Manpage(
        parser,
        _data={
            "project_name": "ctx",
            "version": __version__,
            "description": "a local-first context server",
            "manual_title": "ctx",
            "manual_section": 1,
        },
    )
    return str(page) + "".join(f".SH {part['heading']}\n{part['content']}" for part in FILES)


def main() -> int:
    if len(sys.argv) != 2:
        sys.stderr.write(f"{__doc__}\n")
        return 2
    path = Path(sys.argv[1])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(manual(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
