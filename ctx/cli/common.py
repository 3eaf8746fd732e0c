"""What the commands share: their parser, their configuration, their way of printing."""

import os
import sys
from collections.abc import Mapping, Sequence

from ctx.config import Config, default_config, read_config
from ctx.errors import BadParameter, BadRequest, ConfigError
from ctx.lean import TYPE_CHECKING, Any
from ctx.project import Location, find_config
from ctx.reach import asked, requests, variables
from ctx.types import JSON, Caller

if TYPE_CHECKING:
    import argparse
    from typing import NoReturn

    from ctx.tools.base import Toolbox


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


NO_PROJECT = (
    "no ctx.toml here or in a folder above; `ctx init` writes one for this folder, "
    "`--config PATH` names another"
)


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


def configuration(explicit: str | None, *, required: bool = True, remember: bool = False) -> Config:
    """The configuration that counts here. Raises `ConfigError` where there is none and one is `required`.

    One that was found, and not named, is read only as far as it stays in its own folder, or as the user has
    trusted it. A command that writes anyway asks to `remember`, and the next `ctx search` starts quicker.
    """
    folder = os.getcwd()
    location = find_config(explicit, os.environ, folder)
    if location is not None:
        return configuration_at(location, remember=remember)
    if required:
        raise ConfigError(NO_PROJECT)
    return default_config(folder)


def configuration_at(location: Location, *, remember: bool = False) -> Config:
    """The configuration there. Raises `ConfigError`, also where it asks for what the user has not granted."""
    file = read_config(location.path, os.environ, remember=remember)
    if not location.chosen and (lines := requests(file.tables, file.root)):
        # A mistake is told before a question is asked, if that takes no variable's value.
        if not any(variables(file.tables)):
            file.config({}, chosen=False)
        # It needs hashes and JSON, which a plain search does without.
        from ctx.cli.trust import require_trust

        require_trust(file.path, asked(file.content, file.tables, file.root), lines)
    config = file.config(os.environ, chosen=location.chosen)
    for warning in config.warnings:
        print(f"Warning: {plain(warning)}", file=sys.stderr)
    return config


def memory_configuration(explicit: str | None) -> Config:
    """The configuration that counts here; without one, memories are the user's and not this folder's. Raises
    `ConfigError`.
    """
    if find_config(explicit, os.environ, os.getcwd()) is None:
        return default_config(os.path.expanduser("~"))
    return configuration(explicit)


def print_json(value: JSON) -> None:
    """One JSON document on standard output."""
    import json  # 3 ms that a plain search does not need

    text = json.dumps(value, ensure_ascii=(sys.stdout.encoding or "").lower() != "utf-8", indent=2)
    print(json_printable(text.encode("utf-8", "replace").decode("utf-8")))


def reply_of(
    toolbox: "Toolbox", tool: str, arguments: dict[str, JSON], labels: Mapping[str, str]
) -> dict[str, JSON]:
    """A tool's reply. What is wrong with an argument is told by the option that it came from: the one of the
    parameter's name, or its label.
    """
    try:
        reply: dict[str, JSON] = toolbox.call(tool, arguments, Caller("cli"))
    except BadParameter as error:
        name = error.parameter.removeprefix("filters.").partition("[")[0]
        label = labels.get(name) or f"--{name.replace('_', '-')}"
        raise BadRequest(f"{label} {error.problem}") from error
    return reply


def tell(as_json: bool, value: JSON, *lines: str, notes: Sequence[str] = (), code: int = 0) -> int:
    """Prints what came of a command, as one JSON document, or as lines for a person with `notes` on standard
    error; the exit code.
    """
    if as_json:
        print_json(value)
        return code
    if lines:
        print("\n".join(lines))
    if notes:
        print("\n".join(notes), file=sys.stderr)
    return code


def json_printable(text: str) -> str:
    """The same JSON, whose letters that could drive a terminal or forge a line are escaped as JSON escapes
    them.
    """
    if text.isprintable() or (text.isascii() and "\x7f" not in text):
        return text  # below U+0080 JSON escapes all the others itself
    return "".join(char if char.isprintable() or char in "\n " else _json_escape(char) for char in text)


def _json_escape(char: str) -> str:
    units = char.encode("utf-16-be", "surrogatepass")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(f"\\u{high << 8 | low:04x}" for high, low in pairs)


def plain(text: str) -> str:
    """A value (a name, an id, a title, a message) as one line that can neither drive the terminal nor pass
    for a line of ours.

    Every value that did not come from us is printed through this, or through `prose` where it is a text of
    lines.
    """
    if text.isprintable():
        return text
    from ctx.text import one_line  # only where something is to be made harmless

    return one_line(text, len(text))


# Line ends and tabs; soft hyphen, zero-width space, non-joiner and joiner, marks of direction, word joiner.
# Not what turns a text round.
HARMLESS = "\n\t\u00ad\u200b\u200c\u200d\u200e\u200f\u2060"


def prose(text: str) -> str:
    """A text of lines that cannot drive the terminal: control characters as `?`, odd spaces as plain ones.

    What scripts and emoji are joined and parted by stays: without it they are other words.
    """
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() or char in HARMLESS else " " if char.isspace() else "?" for char in text
    )


def styled(out: object = None) -> bool:
    """Whether escape codes are welcome on this stream: a terminal, no NO_COLOR, not a dumb one."""
    stream = out or sys.stdout
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(os.environ.get("FORCE_COLOR")) or bool(getattr(stream, "isatty", lambda: False)())


def terminal_width() -> int | None:
    """The columns of the terminal that standard output is; None where it is none.

    One that does not know its width (`docker exec -t`, a script) says 0: it counts as 80, as it does for
    everybody else.
    """
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80


# Characters of a column that is cut, or those of its heading: with fewer, a row becomes a block of lines.
LEAST_COLUMN = 6
_GAP = 2  # between columns


def table(rows: Sequence[Sequence[str]], headers: Sequence[str], width: int | None = None) -> str:
    """Columns aligned on the widest cell, numbers to the right, in lines of at most `width` characters.

    `width` None: that of the terminal, and no limit where there is none. What is too wide is cut from the
    widest columns, with an ellipsis, but never from the first, which says what the row is of; where even that
    is too narrow, each row is a block of lines.
    """
    from ctx.text import one_line  # a plain search does without it

    cells = [list(headers), *[[plain(cell) for cell in row] for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    numeric = [_numeric(cells[1:], column) for column in range(len(headers))]
    limit = terminal_width() if width is None else width
    if limit is not None:
        least = [max(LEAST_COLUMN, len(header)) for header in headers]
        fitting = _fitted(widths, least, numeric, limit)
        if fitting is None:
            return _blocks(cells[1:], headers, limit)
        widths = fitting
    signs = [">" if number else "<" for number in numeric]
    lines = [
        (" " * _GAP).join(
            f"{one_line(cell, size):{sign}{size}}"
            for cell, size, sign in zip(row, widths, signs, strict=True)
        )
        for row in cells
    ]
    return "\n".join(map(str.rstrip, lines))


def _numeric(rows: Sequence[Sequence[str]], column: int) -> bool:
    return bool(rows) and all(row[column].replace(",", "").replace("%", "").isdigit() for row in rows)


def _fitted(
    widths: Sequence[int], least: Sequence[int], numeric: Sequence[bool], limit: int
) -> list[int] | None:
    """The widths with the widest columns of words but the first made narrower, none below its `least`, until
    a line fits; None where it cannot.
    """
    fitting = list(widths)
    excess = sum(fitting) + _GAP * (len(fitting) - 1) - limit
    while excess > 0:
        words = [
            column
            for column in range(1, len(fitting))
            if not numeric[column] and fitting[column] > least[column]
        ]
        widest = max(words, key=lambda column: fitting[column], default=None)
        if widest is None:
            return None
        fitting[widest] -= 1
        excess -= 1
    return fitting


def _blocks(rows: Sequence[Sequence[str]], headers: Sequence[str], limit: int) -> str:
    """Each row as lines of `HEADER  cell`, for a terminal that no table fits; a long cell goes on below."""
    import textwrap  # 2 ms, for narrow terminals alone

    size = max(map(len, headers)) + _GAP
    room = max(LEAST_COLUMN, limit - size)
    blocks = []
    for row in rows:
        lines = []
        for header, cell in zip(headers, row, strict=True):
            for part in textwrap.wrap(cell, room, break_on_hyphens=False):
                lines.append(f"{header:<{size}}{part}")
                header = ""
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def ago(ms: int | None, now_ms: int) -> str:
    """How long ago, in words."""
    if ms is None:
        return "never"
    seconds = max(0, (now_ms - ms) // 1000)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"
