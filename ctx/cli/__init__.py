"""The command line: parse the options, call the workspace, print the result.

Each command's module has `add_options(command, options)`, which declares its options, and `run(command,
args)`, which returns the exit code. A module is imported when its command is used.
"""

import errno
import os
import sys
from argparse import REMAINDER, SUPPRESS, ArgumentTypeError, RawDescriptionHelpFormatter
from importlib import import_module
from typing import Any

from ctx import __version__
from ctx.cli.common import plain, print_json
from ctx.cli.logs import guard_last_resort
from ctx.cli.options import Parser, parse
from ctx.errors import (
    BadRequest,
    ConfigError,
    CtxError,
    NotFound,
    ScriptTimeout,
    StoreError,
    ToolError,
)
from ctx.text import nearest

# name -> (module, what it does)
COMMANDS = {
    "init": ("ctx.cli.init", "write a configuration for this folder"),
    "index": ("ctx.cli.index", "bring the index up to date with the sources"),
    "sync": ("ctx.cli.index", "the same as index"),
    "serve": ("ctx.cli.serve", "serve REST and MCP over HTTP: ctx serve mcp"),
    "mcp": ("ctx.cli.pipes", "serve MCP on standard input and output"),
    "search": ("ctx.cli.search", "search the index"),
    "eval": ("ctx.cli.eval", "ask your own questions, and see what is missed and why"),
    "get": ("ctx.cli.get", "print a document, by id or path, or some of its lines"),
    "outline": ("ctx.cli.navigate", "list the definitions of a file, or the headings of a page"),
    "symbol": ("ctx.cli.navigate", "show where a name is defined and used"),
    "sources": ("ctx.cli.inspect", "list the sources and their health"),
    "stats": ("ctx.cli.inspect", "count documents, chunks and embeddings"),
    "export": ("ctx.cli.inspect", "write every document as JSON"),
    "import": ("ctx.cli.imports", "take over a configuration of Context Harness"),
    "embed": (
        "ctx.cli.embed",
        "embed what is pending or everything; drop a replaced model's embeddings",
    ),
    "worker": ("ctx.cli.worker", "index and embed beside other machines that share a database"),
    "tool": ("ctx.cli.extensions", "list, call, write and test tools"),
    "connector": ("ctx.cli.extensions", "write and test connector scripts"),
    "agent": ("ctx.cli.extensions", "list, write and test agents"),
    "trust": ("ctx.cli.trust", "trust this project's configuration and the scripts of its .ctx folder"),
    "registry": ("ctx.cli.registry", "install tools, connectors and agents that others share"),
    "pack": ("ctx.cli.extensions", "list the memory packs and where they are served"),
    "memory": ("ctx.cli.memory", "look into the memories, correct, forget and move them"),
    "migrate": ("ctx.cli.migrate", "move the catalog to a database of several machines, or back"),
    "backup": ("ctx.cli.backup", "write the store to one file, also while a server runs"),
    "restore": ("ctx.cli.backup", "make the store anew from such a file"),
    "key": ("ctx.cli.key", "create, list and revoke keys"),
    "connect": ("ctx.cli.connect", "connect an editor or an agent to this server"),
    "projects": ("ctx.cli.running", "list the servers that run on this machine"),
    "service": ("ctx.cli.service", "serve this project in the background (systemd, launchd)"),
    "completions": ("ctx.cli.completions", "print what bash, zsh or fish complete"),
    "docs": ("ctx.cli.docs", "read the documentation of this version, offline"),
    "openapi": ("ctx.cli.serve", "print the OpenAPI description"),
    "doctor": (
        "ctx.cli.doctor",
        "check the installation, the store and the sandbox; mend what can be mended",
    ),
}

# What users of other tools type, and what to use here.
ELSEWHERE = {
    "add": "sources stand in ctx.toml: [connectors.filesystem.NAME]; `ctx init` writes one for this folder",
    "ls": "`ctx sources` lists the sources, `ctx export` every document",
    "list": "`ctx sources` lists the sources, `ctx tool list` the tools",
    "status": "`ctx sources` says how each source does, `ctx stats` counts, `ctx doctor` checks",
    "open": "`ctx get PATH` prints a document; `ctx serve mcp` has a page to look around in",
    "query": "`ctx search WORDS` searches; `--mode hybrid` by words and meaning",
    "find": "`ctx search WORDS` searches; `--mode hybrid` by words and meaning",
    "start": "`ctx serve mcp` serves here, `ctx service install` in the background",
    "update": "`ctx index` brings the index up to date",
    "version": "`ctx --version` prints it",
    "ps": "`ctx projects` lists the servers that run",
}

# These write the user's own project files, which others may read; everything else that ctx writes is private
# to its owner.
SHARED_WORK = ("init", "import", "connect", "tool", "connector", "agent", "registry", "openapi")

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
    as_json = "--json" in arguments
    try:
        code = _run(arguments)
        sys.stdout.flush()
        return code
    except CtxError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `ctx search ... | head`: the reader has enough. Python would complain again when it closes stdout.
        _close(sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail_of_system(error, as_json)
    except Exception as error:  # a bug of ours, or a store with content that ctx never writes
        if os.environ.get("CTX_TRACEBACK"):
            raise
        return _fail(
            CtxError(
                f"this should not happen ({type(error).__name__}: {error}): `ctx doctor` looks whether the "
                "store is sound, and with CTX_TRACEBACK=1 the same command says where it happened"
            ),
            as_json,
        )


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]
    overview = _overview()
    try:
        called = overview.parse_args(arguments)
        if called.command is None:
            overview.print_help()
            return 0
        options = command_parser(called.command)
        if called.config is not None:
            options.set_defaults(config=called.config)
        args = parse(options, called.arguments)
    except SystemExit as end:  # of --help and --version
        return int(end.code or 0)
    if called.command not in SHARED_WORK:
        os.umask(0o077)
    guard_last_resort()
    code: int = import_module(COMMANDS[called.command][0]).run(called.command, args)
    return code


def _overview() -> Parser:
    """The parser of `ctx` itself: what stands before the command, and which command it is."""
    lines = [f"  {name:<11} {purpose}" for name, (_, purpose) in COMMANDS.items()]
    overview = Parser(
        prog="ctx",
        usage="ctx [--config PATH] COMMAND ...",
        description="A local-first context server.",
        epilog="\n".join(["commands:", *lines, "", "`ctx COMMAND --help` says more of each."]),
        formatter_class=RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    overview.add_argument("--config", metavar="PATH", help="the configuration file")
    overview.add_argument("-V", "--version", action="version", version=f"ctx {__version__}")
    overview.add_argument("command", nargs="?", type=_command_name, metavar="COMMAND", help=SUPPRESS)
    overview.add_argument("arguments", nargs=REMAINDER, help=SUPPRESS)
    return overview


def command_parser(command: str) -> Parser:
    """The parser of one command."""
    options = Parser(prog=f"ctx {command}", allow_abbrev=False)
    import_module(COMMANDS[command][0]).add_options(command, options)
    return options


def whole_parser() -> Parser:
    """The parser of all commands, for completions and the manual page. It imports every command's module."""
    whole = Parser(prog="ctx", description="A local-first context server.")
    whole.add_argument("--version", action="version", version=f"ctx {__version__}")
    commands: Any = whole.add_subparsers(title="commands", dest="command", metavar="COMMAND")
    for name, (module, purpose) in COMMANDS.items():
        options = commands.add_parser(name, help=purpose, allow_abbrev=False)
        import_module(module).add_options(name, options)
    return whole


def _command_name(name: str) -> str:
    """For argparse: one of our commands."""
    if name in COMMANDS:
        return name
    if name in ELSEWHERE:
        raise ArgumentTypeError(f"unknown command '{name}'; {ELSEWHERE[name]}")
    match = nearest(name, COMMANDS)
    hint = f"; did you mean `ctx {match}`?" if match else ""
    raise ArgumentTypeError(f"unknown command '{plain(name)}'{hint}")


def _close(descriptor: int) -> None:
    """Redirects a standard stream to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _open_streams() -> None:
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _repair_streams() -> None:
    """Replaces closed standard streams (`>&-`) by the null device.

    Python has None for them, and the next file that is opened, such as the catalog, would get their number
    and be overwritten by what is printed.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_streams()
    if sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # Latin-1 lacks letters


def _fail(error: CtxError, as_json: bool) -> int:
    """Prints an error, on standard error or as a JSON document, and returns the exit code. Mistakes in a
    configuration are printed all at once, one a line.
    """
    code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
    try:
        if as_json:
            print_json({"error": {"code": error.word, "message": error.message}})
            sys.stdout.flush()
        else:
            lines = error.message.split("\n") if isinstance(error, ConfigError) else [error.message]
            print("Error: " + "\n       ".join(map(plain, lines)), file=sys.stderr)
    except OSError:  # nobody reads it any more, or the disk is full
        _close((sys.stdout if as_json else sys.stderr).fileno())
    return code


def _fail_of_system(error: OSError, as_json: bool) -> int:
    if error.errno == errno.ENOSPC:
        _close(sys.stdout.fileno())
        return _fail(StoreError("the disk is full: free some space and try again"), False)
    subject = f"{error.filename}: " if error.filename else ""
    return _fail(CtxError(f"{subject}{error.strerror or error}"), as_json)
