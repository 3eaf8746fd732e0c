"""Parsing options: the parser of a command, and the types of option values."""

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from typing import Any, NoReturn

from ctx.cli.common import plain
from ctx.clock import parse_ms
from ctx.errors import BadRequest
from ctx.text import nearest

# Options of other programs, and ours.
ALIASES = {
    "--port": "--bind",
    "--host": "--bind",
    "--top-k": "--limit",
    "-k": "--limit",
    "-n": "--limit",
    "-m": "--mode",
    "-s": "--source",
    "-o": "--output",
}


class Parser(ArgumentParser):
    """An argument parser that raises `BadRequest` with a hint, instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.option_names: list[str] = []
        super().__init__(*args, **keywords)
        self.set_defaults(parser=self)

    def add_argument(self, *names: Any, **keywords: Any) -> Any:
        self.option_names += [name for name in names if name.startswith("-")]
        return super().add_argument(*names, **keywords)

    def error(self, message: str) -> NoReturn:
        separator = " " if message.endswith("?") else "; "
        raise BadRequest(f"{message}{separator}`{self.prog} --help` says more")


def parse(options: Parser, arguments: Sequence[str]) -> Namespace:
    """The parsed arguments. If the command has `--param KEY=VALUE`, `KEY=VALUE` alone is the same. Raises
    `BadRequest`.
    """
    args, unknown = options.parse_known_args(arguments)
    takes_pairs = "param" in args
    if takes_pairs:
        args.param += [word for word in unknown if re.match(r"[\w.-]+=", word)]
        unknown = [word for word in unknown if not re.match(r"[\w.-]+=", word)]
    if unknown:
        meant = _meant(unknown, args.parser.option_names)
        hint = f"did you mean {meant}? " if meant else ""
        if takes_pairs and not hint:
            hint = "values are given as KEY=VALUE; --json prints the reply as JSON; "
        message = f"unrecognized arguments: {' '.join(unknown)}; {hint}`{args.parser.prog} --help` says more"
        raise BadRequest(message)
    return args


def _meant(unknown: Sequence[str], options: Sequence[str]) -> str | None:
    """The option that an unknown one was most likely meant to be."""
    name = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    if ALIASES.get(name) in options:
        return ALIASES[name]
    return nearest(name, options) if name.startswith("--") else None


def describe(options: Parser, purpose: str, *, json: bool = False) -> None:
    """Sets what the command does and adds `--config`, and `--json` for commands that read."""
    options.description = purpose
    options.add_argument(
        "--config",
        metavar="PATH",
        help="the configuration file (else $CTX_CONFIG, then ctx.toml here or in a folder above)",
    )
    if json:
        options.add_argument("--json", action="store_true", help="print one JSON document")


def action(actions: Any, name: str, purpose: str) -> Parser:
    """Adds an action to a command's subparsers. `--json` and `--config` count before and after its name."""
    options: Parser = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    options.add_argument("--json", action="store_true", default=SUPPRESS, help="print one JSON document")
    options.add_argument("--config", metavar="PATH", default=SUPPRESS, help="the configuration file")
    return options


def moment(text: str) -> str:
    """An option type: a date or time, as it was written."""
    try:
        parse_ms(text)
    except ValueError:
        raise ArgumentTypeError(
            f"'{plain(text)[:40]}' is no date or time such as 2026-05-03 or 2026-05-03T14:30:00Z"
        ) from None
    return text


def amount(text: str) -> int:
    """An option type: a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"a whole number of 1 or more is needed, not '{plain(text)[:40]}'")
    return number
