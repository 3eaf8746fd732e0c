"""Parsing options: the parser of a command, and the types of option values."""

import re
from argparse import SUPPRESS, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from typing import Any, NoReturn

from ctx.cli.output import plain
from ctx.clock import parse_ms
from ctx.errors import BadRequest
from ctx.text.strings import nearest

# Options of other programs -> our option.
ALIASES = {"--port": "--bind", "--host": "--bind", "--top-k": "--limit", "-k": "--limit", "-o": "--output"}
CONFIG_HELP = "the configuration file (else $CTX_CONFIG, then ctx.toml here or in a folder above)"


class Parser(ArgumentParser):
    """An argument parser that raises `BadRequest` with a hint, instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        self.option_names: list[str] = []
        super().__init__(*args, **{"formatter_class": RawDescriptionHelpFormatter, **keywords})
        self.set_defaults(parser=self)

    def add_argument(self, *names: Any, **keywords: Any) -> Any:
        self.option_names += [name for name in names if name.startswith("-")]
        return super().add_argument(*names, **keywords)

    def error(self, message: str) -> NoReturn:
        separator = " " if message.endswith("?") else "; "
        raise BadRequest(f"{message}{separator}see `{self.prog} --help`")


def parse(options: Parser, arguments: Sequence[str]) -> Namespace:
    """Parses a command's arguments. If the command has `--param KEY=VALUE`, a bare `KEY=VALUE` means the
    same. Raises `BadRequest`, with a hint for an unknown option.
    """
    args, unknown = options.parse_known_args(arguments)
    takes_pairs = "param" in args
    if takes_pairs:
        args.param += [word for word in unknown if re.match(r"[\w.-]+=", word)]
        unknown = [word for word in unknown if not re.match(r"[\w.-]+=", word)]
    if unknown:
        intended = _intended(unknown, args.parser.option_names)
        hint = f"did you mean {intended}? " if intended else ""
        if takes_pairs and not hint:
            hint = "give values as KEY=VALUE; use --json for a JSON reply; "
        elif "query" in args and not hint:
            hint = "put `--` before a query with dashes; "
        message = f"unrecognized arguments: {' '.join(unknown)}; {hint}see `{args.parser.prog} --help`"
        raise BadRequest(message)
    return args


def _intended(unknown: Sequence[str], options: Sequence[str]) -> str | None:
    name = next((word.partition("=")[0] for word in unknown if word.startswith("-")), "")
    if ALIASES.get(name) in options:
        return ALIASES[name]
    return nearest(name, options) if name.startswith("--") else None


def describe(options: Parser, purpose: str, *examples: str, json: bool = False) -> None:
    """Sets a command's description and examples. Adds `--config`, and `--json` if `json` is set."""
    options.description = purpose
    if examples:
        options.epilog = "examples:\n" + "\n".join(f"  {example}" for example in examples)
    options.add_argument("--config", metavar="PATH", help=CONFIG_HELP)
    if json:
        options.add_argument("-j", "--json", action="store_true", help="print one JSON document")


def actions_of(options: Parser, metavar: str) -> Any:
    """Adds subparsers for the actions of a command, and returns them."""
    return options.add_subparsers(dest="action", required=True, metavar=metavar)


def action(actions: Any, name: str, purpose: str) -> Parser:
    """Adds an action to a command's subparsers, and returns its parser. `--json` and `--config` may be before
    or after the action's name.
    """
    options: Parser = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    json_help = "print one JSON document"
    options.add_argument("-j", "--json", action="store_true", default=SUPPRESS, help=json_help)
    options.add_argument("--config", metavar="PATH", default=SUPPRESS, help=CONFIG_HELP)
    return options


def progress_options(options: Parser) -> None:
    """Adds `--progress FORM` and `--no-progress`."""
    form = "show progress as bars on a terminal, or as JSON lines on standard error"
    options.add_argument("--progress", choices=("human", "json"), default="human", help=form)
    options.add_argument("--no-progress", action="store_true", help="no progress")


def log_option(options: Parser, default: str) -> None:
    """Adds `--log-level`."""
    levels = ("debug", "info", "warning", "error")
    purpose = f"the level of the log on standard error (default: {default})"
    options.add_argument("--log-level", choices=levels, default=default, help=purpose)


def moment(text: str) -> str:
    """An option type: checks that the text is a date or time, and returns it unchanged."""
    try:
        parse_ms(text)
    except ValueError:
        raise ArgumentTypeError(
            f"'{plain(text)[:40]}' is not a date or time such as 2026-05-03 or 2026-05-03T14:30:00Z"
        ) from None
    return text


def amount(text: str) -> int:
    """An option type: a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise ArgumentTypeError(f"expected a whole number of 1 or more, got '{plain(text)[:40]}'")
    return number


def output_path(text: str) -> str | None:
    """An option type: the path of a file; None for `-`, which means standard output."""
    return None if text == "-" else text
