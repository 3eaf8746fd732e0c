"""The command line: parse the options, call the workspace, print the result.

Each command NAME has two functions in its module: `NAME_options(options)` declares its options, and
`run_NAME(args)` returns the exit code. A module is imported when its command is used.
"""

import errno
import os
import sys
from argparse import REMAINDER, SUPPRESS, ArgumentTypeError
from importlib import import_module
from typing import Any

from ctx import __version__
from ctx.cli.options import Parser, parse
from ctx.cli.output import format_unhandled_logs, plain, print_json, warn
from ctx.errors import (
    BadRequest,
    ConfigError,
    CtxError,
    NotFound,
    ScriptTimeout,
    StoreError,
    ToolError,
)
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
    "key": ("ctx.cli.access", "create, list and revoke keys"),
    "trust": ("ctx.cli.access", "trust a configuration and its scripts"),
    "tool": ("ctx.cli.extensions", "list, call, write and test tools"),
    "connector": ("ctx.cli.extensions", "write and test connector scripts"),
    "agent": ("ctx.cli.extensions", "list, write and test agents"),
    "registry": ("ctx.cli.registry", "install scripts that others share"),
    "import": ("ctx.cli.exchange", "import a Context Harness configuration, or embeddings"),
    "export": ("ctx.cli.exchange", "write every document as JSON or Parquet"),
    "openapi": ("ctx.cli.serve", "print the OpenAPI description"),
    "service": ("ctx.cli.service", "run the server in the background"),
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

# Command names that other tools have -> the hint to print.
ELSEWHERE = {
    "ls": "`ctx status` lists the sources, `ctx export` every document",
    "list": "`ctx status` lists the sources, `ctx tool list` the tools",
    "open": "`ctx get PATH` prints a document; `ctx serve` has a page for browsing",
    "query": "`ctx search WORDS` searches",
    "find": "`ctx search WORDS` searches",
    "start": "`ctx serve` serves here, `ctx service install` in the background",
    "update": "`ctx index` brings the index up to date",
    "version": "`ctx --version` prints it",
    "ps": "`ctx status` lists the servers that run",
}

# These commands write project files, which other users may read. The files of other commands are private.
SHARED_WORK = frozenset(("init", "import", "connect", "tool", "connector", "agent", "registry", "openapi"))

EXIT_CODES: tuple[tuple[type[CtxError], int], ...] = (
    (ConfigError, 2),
    (BadRequest, 2),
    (NotFound, 3),
    (StoreError, 4),
    (ScriptTimeout, 5),
    (ToolError, 5),
    (CtxError, 1),
)


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
        return _fail(
            CtxError(
                f"internal error ({type(error).__name__}: {error}). Run `ctx doctor` to check the store, "
                "or repeat the command with CTX_TRACEBACK=1 to see where it happened"
            ),
            as_json,
        )


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
    code: int = getattr(import_module(COMMANDS[command][0]), f"run_{command}")(args)
    return code


def _overview(*, everything: bool) -> Parser:
    """Returns the parser of `ctx` itself: the global options and the command's name. `everything`: its help
    lists all commands.
    """
    groups = {**GROUPS, "less common": FURTHER} if everything else GROUPS
    lines = []
    for title, names in groups.items():
        rows = [f"  {name:<11} {COMMANDS[name][1]}" for name in names if name in COMMANDS]
        lines += [f"{title}:", *rows, ""]
    overview = Parser(
        prog="ctx",
        usage="ctx [--config PATH] COMMAND ...",
        description="Search your folders, repositories and sites; serve them to agents.",
        epilog="\n".join(
            [
                *lines,
                "examples:",
                EXAMPLES,
                "",
                "`ctx COMMAND --help` explains one; `ctx --help --all` lists all.",
            ]
        ),
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
    getattr(import_module(COMMANDS[command][0]), f"{command}_options")(options)
    return options


def whole_parser() -> Parser:
    """Returns one parser with all commands as subparsers, for completions and the manual page. Imports the
    module of every command.
    """
    whole = Parser(prog="ctx", description="A local-first context server.")
    whole.add_argument("--version", action="version", version=f"ctx {__version__}")
    commands: Any = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        if name not in HIDDEN:
            options = commands.add_parser(name, help=purpose, allow_abbrev=False)
            getattr(import_module(module), f"{name}_options")(options)
    return whole


def _command_name(name: str) -> str:
    """An argparse type: returns `name` if it is a command, else raises `ArgumentTypeError` with a hint."""
    if name in COMMANDS or name in OLDER:
        return name
    if name in ELSEWHERE:
        raise ArgumentTypeError(f"unknown command '{name}'; {ELSEWHERE[name]}")
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
    code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
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
