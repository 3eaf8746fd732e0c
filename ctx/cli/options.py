"""What a command's options are: its parser, and the kinds of their values."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ctx.cli.common import plain
from ctx.errors import BadRequest

if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

DESCRIBE = "--\0describe"  # in place of arguments: the parser itself is wanted


class Described(Exception):
    """A command's parser, for whoever asks with `DESCRIBE`."""

    def __init__(self, command_parser: "argparse.ArgumentParser") -> None:
        super().__init__()
        self.parser = command_parser


def parser(command: str, purpose: str, *, json: bool = False) -> "argparse.ArgumentParser":
    """A command's parser, with `--config`, and `--json` for commands that read."""
    import argparse  # 5 ms, and `ctx search` does without it

    class Parser(argparse.ArgumentParser):
        def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
            if args and args[0] == DESCRIBE:
                raise Described(self)
            return super().parse_known_args(args, namespace)

        def error(self, message: str) -> "NoReturn":
            meant = option_meant(message, _options_of(self))
            mend = f"did you mean {meant}? " if meant else ""
            raise BadRequest(f"{message}; {mend}`{self.prog} --help` says more")

    command_parser = Parser(prog=f"ctx {command}", description=purpose, allow_abbrev=False)
    command_parser.add_argument(
        "--config",
        metavar="PATH",
        help="the configuration file (else $CTX_CONFIG, then ctx.toml here or in a folder above)",
    )
    if json:
        command_parser.add_argument("--json", action="store_true", help="print one JSON document")
    return command_parser


# What other programs call it: an option that people type, and ours.
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


def option_meant(message: str, options: Sequence[str]) -> str | None:
    """Which of a command's options an unknown one was most likely meant to be."""
    prefix = "unrecognized arguments: "
    if not message.startswith(prefix):
        return None
    name = next((word.partition("=")[0] for word in message[len(prefix) :].split() if word[0] == "-"), "")
    alias = ALIASES.get(name)
    if alias in options:
        return alias
    from ctx.text import nearest

    return nearest(name, options) if name.startswith("--") else None


def _options_of(command_parser: "argparse.ArgumentParser") -> list[str]:
    """The options of a command and of its actions."""
    options: list[str] = []
    for entry in command_parser._actions:  # argparse has no other way to ask
        options += entry.option_strings
        if isinstance(entry.choices, dict):
            options += [option for below in entry.choices.values() for option in _options_of(below)]
    return options


def action(
    actions: "argparse._SubParsersAction[argparse.ArgumentParser]", name: str, purpose: str
) -> "argparse.ArgumentParser":
    """One of a command's actions. `--json` and `--config` count before and after its name."""
    import argparse

    action_parser = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    action_parser.add_argument(
        "--json", action="store_true", default=argparse.SUPPRESS, help="print one JSON document"
    )
    action_parser.add_argument(
        "--config", metavar="PATH", default=argparse.SUPPRESS, help="the configuration file"
    )
    return action_parser


def moment(text: str) -> str:
    """An option's date or time, as it was written."""
    import argparse

    from ctx.clock import parse_ms

    try:
        parse_ms(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"'{plain(text)[:40]}' is no date or time such as 2026-05-03 or 2026-05-03T14:30:00Z"
        ) from None
    return text


def amount(text: str) -> int:
    """An option's whole number, 1 or more."""
    import argparse

    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"a whole number of 1 or more is needed, not '{plain(text)[:40]}'")
    return number
