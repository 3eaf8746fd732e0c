"""The command line: parse the options, call the workspace, print the result.

Each command NAME has two functions in its module: `NAME_options(options)` declares its options, and
`run_NAME(args)` returns the exit code. The docstring of `NAME_options` is the command's help: what it does,
and after a blank line its examples. A module is imported when its command is used.
"""

import errno
import os
import re
import sys
from argparse import (
    REMAINDER,
    SUPPRESS,
    ArgumentParser,
    ArgumentTypeError,
    Namespace,
    RawDescriptionHelpFormatter,
)
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import cleandoc
from textwrap import indent
from typing import Any, NoReturn

from ctx import __version__
from ctx.cli.output import format_unhandled_logs, plain, print_json, warn
from ctx.clock import parse_ms
from ctx.errors import BadRequest, ConfigError, CtxError, NotFound, ScriptTimeout, StoreError, ToolError
from ctx.text.strings import nearest

# name -> (module, purpose)
COMMANDS = {
    "init": ("ctx.cli.sources", "write a configuration for this folder"),
    "add": ("ctx.cli.sources", "add a folder, repository or site to the sources"),
    "remove": ("ctx.cli.sources", "remove a source and its documents"),
    "index": ("ctx.cli.index", "bring the index up to date"),
    "status": ("ctx.cli.status", "show sources, index, memory, servers and clients"),
    "doctor": ("ctx.cli.doctor", "check everything, and fix what can be fixed"),
    "search": ("ctx.cli.search", "search the index"),
    "get": ("ctx.cli.search", "print a document, or some of its lines"),
    "outline": ("ctx.cli.search", "list the definitions of a file, or the headings of a page"),
    "symbol": ("ctx.cli.search", "show where a name is defined and used"),
    "serve": ("ctx.cli.serve", "serve REST, MCP and the search page over HTTP"),
    "mcp": ("ctx.cli.serve", "serve MCP on standard input and output"),
    "connect": ("ctx.cli.connect", "connect an editor or an agent"),
    "memory": ("ctx.cli.memory", "read, correct, forget and move memories"),
    "log": ("ctx.cli.status", "show what clients asked"),
    "docs": ("ctx.cli.docs", "read this documentation offline"),
    "eval": ("ctx.cli.eval", "measure search with questions of your own"),
    "backup": ("ctx.cli.stores", "write the store to one file"),
    "restore": ("ctx.cli.stores", "replace the store with a backup"),
    "migrate": ("ctx.cli.stores", "move the store to a database, or back"),
    "worker": ("ctx.cli.index", "index and embed for machines that share a database"),
    "key": ("ctx.cli.stores", "create, list and revoke keys"),
    "trust": ("ctx.cli.registry", "trust a configuration and its scripts"),
    "tool": ("ctx.cli.extensions", "list, call, write and test tools"),
    "connector": ("ctx.cli.extensions", "write and test connector scripts"),
    "agent": ("ctx.cli.extensions", "list, write and test agents"),
    "registry": ("ctx.cli.registry", "install scripts that others share"),
    "import": ("ctx.cli.exchange", "import a Context Harness configuration, or embeddings"),
    "export": ("ctx.cli.exchange", "write every document as JSON or Parquet"),
    "openapi": ("ctx.cli.serve", "print the OpenAPI description"),
    "service": ("ctx.cli.running", "run the server in the background"),
    "completions": ("ctx.cli.docs", "print a completion script for your shell"),
    "embed": ("ctx.cli.index", "compute missing embeddings, or all of them again"),
    "pack": ("ctx.cli.extensions", "list the memory packs"),
}
GROUPS = {
    "set up": ("init", "add", "remove"),
    "keep up to date": ("index", "status", "doctor"),
    "find": ("search", "get", "outline", "symbol"),
    "use from an agent or a browser": ("serve", "mcp", "connect"),
    "more": ("memory", "log", "docs"),
}
HIDDEN = ("embed", "pack")
OLDER = {"sync": "index", "sources": "status", "stats": "status", "projects": "status"}  # older names
FURTHER = tuple(
    name for name in COMMANDS if name not in HIDDEN and not any(name in names for names in GROUPS.values())
)
EXAMPLES = """\
  ctx add ~/notes && ctx search "how do we release"
  ctx connect claude-code
  ctx serve"""

# Options of other programs -> our option.
ALIASES = {"--port": "--bind", "--host": "--bind", "--top-k": "--limit", "-k": "--limit", "-o": "--output"}
CONFIG_HELP = "the configuration file (else $CTX_CONFIG, then ctx.toml here or in a folder above)"
JSON_HELP = "print one JSON document"
WITHOUT_JSON = ("serve", "mcp", "completions")

# These commands write project files, which other users may read. The files of other commands are private.
SHARED_WORK = frozenset(("init", "import", "connect", "tool", "connector", "agent", "registry", "openapi"))

EXIT_CODES: dict[type[CtxError], int] = {
    **dict.fromkeys((ConfigError, BadRequest), 2),
    NotFound: 3,
    StoreError: 4,
    **dict.fromkeys((ScriptTimeout, ToolError), 5),
}


# -- parsing -------------------------------------------------------------------------------------------------


class Parser(ArgumentParser):
    """An argument parser that raises `BadRequest` with a hint, instead of printing the usage and exiting."""

    def __init__(self, *args: Any, **keywords: Any) -> None:
        super().__init__(*args, **{"formatter_class": RawDescriptionHelpFormatter, **keywords})
        self.set_defaults(parser=self)

    def flag(self, name: str, purpose: str) -> None:
        """Adds an option without a value."""
        self.add_argument(name, action="store_true", help=purpose)

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
        intended = _intended(unknown, [*args.parser._option_string_actions])
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


def actions_of(options: Parser) -> Any:
    """Adds subparsers for the actions of a command, and returns them."""
    return options.add_subparsers(dest="action", required=True)


def action(actions: Any, name: str, purpose: str, run: Callable[..., int] | None = None) -> Parser:
    """Adds an action to a command's subparsers, and returns its parser. `run` becomes `args.run`. `--json`
    and `--config` may be before or after the action's name.
    """
    options: Parser = actions.add_parser(name, help=purpose, description=purpose, allow_abbrev=False)
    options.set_defaults(run=run)
    actions.metavar = "|".join(actions.choices) if len(actions.choices) < 10 else "ACTION"
    options.add_argument("-j", "--json", action="store_true", default=SUPPRESS, help=JSON_HELP)
    options.add_argument("--config", metavar="PATH", default=SUPPRESS, help=CONFIG_HELP)
    return options


def progress_options(options: Parser) -> None:
    """Adds `--progress FORM` and `--no-progress`."""
    form = "show progress as bars on a terminal, or as JSON lines on standard error"
    options.add_argument("--progress", choices=("human", "json"), default="human", help=form)
    options.flag("--no-progress", "no progress")


def log_option(options: Parser, default: str | None, purpose: str = "") -> None:
    """Adds `--log-level`."""
    levels = ("debug", "info", "warning", "error")
    purpose = purpose or f"the level of the log on standard error (default: {default})"
    options.add_argument("--log-level", choices=levels, default=default, help=purpose)


def moment(text: str) -> str:
    """An option type: checks that the text is a date or time, and returns it unchanged."""
    try:
        parse_ms(text)
    except ValueError:
        form = "a date or time such as 2026-05-03 or 2026-05-03T14:30:00Z"
        raise ArgumentTypeError(f"'{plain(text)[:40]}' is not {form}") from None
    return text


def amount(text: str) -> int:
    """An option type: a whole number of 1 or more."""
    if not text.isdecimal() or int(text) == 0:
        raise ArgumentTypeError(f"expected a whole number of 1 or more, got '{plain(text)[:40]}'")
    return int(text)


def output_path(text: str) -> str | None:
    """An option type: the path of a file; None for `-`, which means standard output."""
    return None if text == "-" else text


# -- running -------------------------------------------------------------------------------------------------


def main(argv: list[str] | None = None) -> int:
    """Runs one command and returns its exit code. An error is one line on standard error, never a traceback
    (unless $CTX_TRACEBACK is set).
    """
    _repair_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments or "-j" in arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except CtxError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `ctx search ... | head` has closed the pipe. Python would fail again when it closes stdout.
        _close(sys.stdout.fileno())
        return 0
    except OSError as error:
        if error.errno == errno.ENOSPC:
            _close(sys.stdout.fileno())
            return _fail(StoreError("the disk is full: free some space and try again"), False)
        subject = f"{error.filename}: " if error.filename else ""
        return _fail(CtxError(f"{subject}{error.strerror or error}"), as_json)
    except Exception as error:  # a bug in ctx, or a store with content that ctx never writes
        if os.environ.get("CTX_TRACEBACK"):
            raise
        problem = f"internal error ({type(error).__name__}: {error})"
        advice = "Run `ctx doctor` to check the store, or set CTX_TRACEBACK=1 to see where it happens"
        return _fail(CtxError(f"{problem}. {advice}"), as_json)


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    overview = _overview(everything="--all" in arguments)
    try:
        # `--` and everything after it belong to the command. argparse would drop the `--` here.
        end = arguments.index("--") if "--" in arguments else len(arguments)
        called = overview.parse_args(arguments[:end])
        if called.command is None:
            overview.print_help()
            return 0
        command = OLDER.get(called.command, called.command)
        options = command_parser(command)
        if called.config is not None:
            options.set_defaults(config=called.config)
        args = parse(options, [*called.arguments, *arguments[end:]])
    except SystemExit as end:  # raised by --help and --version
        return int(end.code or 0)
    if command not in SHARED_WORK:
        os.umask(0o077)
    format_unhandled_logs()
    return int(getattr(import_module(COMMANDS[command][0]), f"run_{command}")(args))


def _overview(*, everything: bool) -> Parser:
    """Returns the parser of `ctx` itself: the global options and the command's name. `everything`: its help
    lists all commands.
    """
    groups = {**GROUPS, "less common": FURTHER} if everything else GROUPS
    lines = []
    for title, names in groups.items():
        lines += [f"{title}:", *(f"  {name:<11} {COMMANDS[name][1]}" for name in names), ""]
    lines += ["examples:", EXAMPLES, "", "`ctx COMMAND --help` explains one; `ctx --help --all` lists all."]
    overview = Parser(
        prog="ctx",
        usage="ctx [--config PATH] COMMAND ...",
        description="Search your folders, repositories and sites; serve them to agents.",
        epilog="\n".join(lines),
        allow_abbrev=False,
    )
    overview.add_argument("--config", metavar="PATH", help="the configuration file")
    overview.add_argument("-V", "--version", action="version", version=f"ctx {__version__}")
    overview.add_argument("--all", action="store_true", help=SUPPRESS)
    overview.add_argument("command", nargs="?", type=_command_name, metavar="COMMAND", help=SUPPRESS)
    overview.add_argument("arguments", nargs=REMAINDER, help=SUPPRESS)
    return overview


def command_parser(command: str) -> Parser:
    """Returns the parser of one command. Imports the command's module."""
    options = Parser(prog=f"ctx {command}", allow_abbrev=False)
    _declare(command, options)
    return options


def _declare(command: str, options: Parser) -> None:
    """Adds a command's help, `--config`, `--json` and its own options to its parser."""
    declare = getattr(import_module(COMMANDS[command][0]), f"{command}_options")
    options.description, _, examples = cleandoc(declare.__doc__).partition("\n\n")
    if examples:
        options.epilog = "examples:\n" + indent(examples, "  ")
    options.add_argument("--config", metavar="PATH", help=CONFIG_HELP)
    if command not in WITHOUT_JSON:
        options.add_argument("-j", "--json", action="store_true", help=JSON_HELP)
    declare(options)


def whole_parser() -> Parser:
    """Returns one parser with all commands as subparsers, for completions and the manual page. Imports the
    module of every command.
    """
    whole = Parser(prog="ctx", description="A local-first context server.")
    whole.add_argument("--version", action="version", version=f"ctx {__version__}")
    commands: Any = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, (_, purpose) in COMMANDS.items():
        if name not in HIDDEN:
            _declare(name, commands.add_parser(name, help=purpose, allow_abbrev=False))
    return whole


def _command_name(name: str) -> str:
    """An argparse type: returns `name` if it is a command, else raises `ArgumentTypeError` with a hint."""
    if name in COMMANDS or name in OLDER:
        return name
    match = nearest(name, COMMANDS)
    hint = f"; did you mean `ctx {match}`?" if match else ""
    raise ArgumentTypeError(f"unknown command '{plain(name)}'{hint}")


def _close(descriptor: int) -> None:
    """Redirects a standard stream to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _repair_streams() -> None:
    """Replaces closed standard streams (`>&-`) by the null device.

    Python sets a closed stream to None. The next file that is opened, such as the catalog, would get the
    stream's descriptor, and printed output would overwrite that file.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        for number in range(3):
            try:
                os.fstat(number)
            except OSError:
                os.open(os.devnull, os.O_RDWR)  # returns the lowest free descriptor: this one
        sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
        sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
        sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # Latin-1 lacks many letters


def _fail(error: CtxError, as_json: bool) -> int:
    """Prints an error on standard error, or as JSON on standard output. Returns the exit code. A
    `ConfigError` may list several mistakes, one per line.
    """
    code = next((code for kind, code in EXIT_CODES.items() if isinstance(error, kind)), 1)
    try:
        if as_json:
            print_json({"error": {"code": error.word, "message": error.message}})
            sys.stdout.flush()
        else:
            lines = error.message.split("\n") if isinstance(error, ConfigError) else [error.message]
            warn("Error: " + "\n       ".join(map(plain, lines)))
    except OSError:  # the reader is gone, or the disk is full
        _close((sys.stdout if as_json else sys.stderr).fileno())
    return code
