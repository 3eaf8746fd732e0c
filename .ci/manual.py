"""Write the manual page and the table of commands from the command line parsers.

`python .ci/manual.py FILE` writes the manual page, which `make dist` packs into the wheel.
`python .ci/manual.py --reference` writes the table of commands in docs/cli.md; with `--check` it only checks
that the table is up to date, as a test does.
"""

import argparse
import re
import sys
from pathlib import Path

from argparse_manpage.manpage import Manpage

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from ctx import __version__  # noqa: E402
from ctx.cli import FURTHER, GROUPS, whole_parser  # noqa: E402

REFERENCE = ROOT / "docs" / "cli.md"

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


def _subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            return dict(each.choices)
    return {}


def _help_of(parser: argparse.ArgumentParser, name: str) -> str:
    for each in parser._actions:
        if isinstance(each, argparse._SubParsersAction):
            return next(choice.help or "" for choice in each._choices_actions if choice.dest == name)
    return ""


def _place(positional: argparse.Action) -> str:
    name = positional.metavar or ("" if positional.choices and positional.nargs == "?" else positional.dest)
    shown = str(name).replace("|", " or ")
    if positional.nargs == "?":
        return f"[{shown}]" if shown else ""
    return {"*": f"[{shown} ...]", "+": f"{shown} ..."}.get(str(positional.nargs), shown)


def _row(parser: argparse.ArgumentParser, name: str, text: str) -> str:
    """A command with its actions."""
    places = [_place(each) for each in parser._actions if not each.option_strings]
    actions = _subcommands(parser)
    if actions:
        places = ["ACTION"]
        text += ": " + " ".join(f"`{action}`" for action in actions)
    return f"| `{' '.join(['ctx', name, *filter(None, places)])}` | {text} |"


def reference(text: str) -> str:
    """docs/cli.md with its table of commands as the parsers have them."""
    parser = whole_parser()
    commands = _subcommands(parser)
    lines = ["| command | |", "|---|---|"]
    for name in [name for names in GROUPS.values() for name in names] + list(FURTHER):
        if name in commands:
            lines.append(_row(commands[name], name, _help_of(parser, name)))
    table = "\n".join(lines)
    return re.sub(
        r"<!-- commands -->\n.*?<!-- end -->",
        lambda match: f"<!-- commands -->\n{table}\n<!-- end -->",
        text,
        flags=re.DOTALL,
    )


def main() -> int:
    options = argparse.ArgumentParser(description="Write the manual page, or the table of commands.")
    options.add_argument("file", nargs="?", type=Path, help="write the manual page to this file")
    options.add_argument("--reference", action="store_true", help="write the table of docs/cli.md")
    options.add_argument("--check", action="store_true", help="only check whether the table is up to date")
    given = options.parse_args()
    if given.reference:
        text = REFERENCE.read_text(encoding="utf-8")
        fresh = reference(text)
        if not given.check:
            REFERENCE.write_text(fresh, encoding="utf-8")
        elif fresh != text:
            sys.stderr.write("docs/cli.md is out of date: python .ci/manual.py --reference writes it\n")
            return 1
        return 0
    if given.file is None:
        options.error("name the file of the manual page, or give --reference")
    given.file.parent.mkdir(parents=True, exist_ok=True)
    given.file.write_text(manual(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
