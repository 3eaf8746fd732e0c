"""What the commands share: their configuration, their way of printing."""

import json
import os
import sys
from collections.abc import Mapping, Sequence

from ctx.clock import now_ms
from ctx.config import Config, default_config, read_config
from ctx.config.trust import asked, requests, variables
from ctx.errors import BadParameter, BadRequest, ConfigError
from ctx.project import Location, find_config
from ctx.text import one_line
from ctx.tools.base import Toolbox
from ctx.types import JSON, Caller

NO_PROJECT = (
    "no ctx.toml here or in a folder above; `ctx init` writes one for this folder, "
    "`--config PATH` names another"
)
_UNLIMITED = 100_000  # columns, for tables in a pipe
NO_SOURCES = "No sources are configured; add a [connectors.filesystem.NAME] to ctx.toml."


def configuration(explicit: str | None, *, required: bool = True) -> Config:
    """The configuration that counts here. Raises `ConfigError` where there is none and one is `required`.

    One that was found, and not named, is read only as far as it stays in its own folder, or as the user has
    trusted it.
    """
    folder = os.getcwd()
    location = find_config(explicit, os.environ, folder)
    if location is not None:
        return configuration_at(location)
    if required:
        raise ConfigError(NO_PROJECT)
    return default_config(folder)


def project_location(explicit: str | None) -> Location:
    """Where the configuration is that counts here. Raises `ConfigError` where there is none."""
    location = find_config(explicit, os.environ, os.getcwd())
    if location is None:
        raise ConfigError(NO_PROJECT)
    return location


def configuration_at(location: Location) -> Config:
    """The configuration there. Raises `ConfigError`, also where it asks for what the user has not granted."""
    file = read_config(location.path)
    if not location.chosen and (lines := requests(file.tables, file.root)):
        # A mistake is told before a question is asked, if that takes no variable's value.
        if not any(variables(file.tables)):
            file.config({}, chosen=False)
        from ctx.cli.trust import require_trust  # which imports this module

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
    text = json.dumps(value, ensure_ascii=(sys.stdout.encoding or "").lower() != "utf-8", indent=2)
    print(json_printable(text.encode("utf-8", "replace").decode("utf-8")))


def reply_of(
    toolbox: Toolbox, tool: str, arguments: dict[str, JSON], labels: Mapping[str, str]
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


def table(rows: Sequence[Sequence[str]], headers: Sequence[str]) -> str:
    """Aligned columns, numbers to the right. On a terminal, cells that are too long are wrapped."""
    from rich.console import Console  # 60 ms
    from rich.table import Table
    from rich.text import Text

    listing = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    for number, header in enumerate(headers):
        numeric = bool(rows) and all(_is_number(row[number]) for row in rows)
        listing.add_column(header, justify="right" if numeric else "left", no_wrap=numeric, overflow="fold")
    for row in rows:
        listing.add_row(*(Text(plain(cell)) for cell in row))
    console = Console(width=terminal_width() or _UNLIMITED, color_system=None)
    with console.capture() as capture:
        console.print(listing)
    return "\n".join(map(str.rstrip, capture.get().splitlines()))


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace("%", "").isdigit()


def ago(ms: int | None) -> str:
    """How long ago, in words."""
    if ms is None:
        return "never"
    seconds = max(0, (now_ms() - ms) // 1000)
    for size, unit in ((86_400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {unit} ago"
    return f"{seconds} s ago"


def terminal_width() -> int | None:
    """The columns of the terminal; None if standard output is no terminal.

    A terminal that does not know its width (`docker exec -t`, a script) says 0: it counts as 80.
    """
    if not sys.stdout.isatty():
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or 80
    except OSError:
        return 80
