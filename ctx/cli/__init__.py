"""The commands: nothing but parsing, calling and printing.

`ctx search` has to answer in the time of a few imports, so a command's module is imported when it is the one
asked for.
"""

import _signal  # type: ignore[import-not-found]  # `signal` itself imports 3 ms of enums
import errno
import gc
import os
import sys

from ctx import __version__
from ctx.errors import (
    BadRequest,
    ConfigError,
    CtxError,
    NotFound,
    ScriptTimeout,
    StoreError,
    ToolError,
)

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
    "pack": ("ctx.cli.extensions", "list the memory packs and what they may do"),
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

# What people type first who know another tool, and where it is here.
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

# What these write is the user's own project, to be shared as they like; all else that ctx writes is for its
# owner's eyes.
SHARED_WORK = ("init", "import", "connect", "tool", "connector", "agent", "registry", "openapi")

# A whole process of forty milliseconds: collecting its garbage and taking its modules apart at the end
# would be eight of them.
BRIEF = ("search", "get")
CLOSED = ("index", "sync")  # by their end all is closed that they opened: taking apart 200 modules is 12 ms
# Objects between two looks for garbage: with 700 they are 2 ms of a run that finds nothing changed.
GARBAGE = 20_000
LASTING = ("serve", "mcp")  # taking apart the modules of these would wait for a thread that is importing one

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
    """Runs one command; its exit code.
    Errors go to standard error in one line; nothing prints a traceback.
    """
    if argv is None:
        _end_at_interrupts()
        if len(sys.argv) > 1 and sys.argv[1] in (*BRIEF, *CLOSED, *LASTING):
            _run_and_exit(sys.argv[1:])
    _mend_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    as_json = "--json" in arguments
    try:
        command = _command(arguments)
        if command is None:
            return _outline(arguments)
        if command not in SHARED_WORK:
            os.umask(0o077)
        if command not in BRIEF:
            # Not for the brief ones: `logging` is 5 ms, and what they log holds nobody else's names.
            from ctx.cli.logs import guard_last_resort

            guard_last_resort()
        module = __import__(COMMANDS[command][0], fromlist=["run"])
        if command not in BRIEF:  # which leave nothing that would have to be put in order
            _raise_at_interrupts()
        exit_code: int = module.run(command, arguments)
        sys.stdout.flush()
        return exit_code
    except CtxError as error:
        return _fail(error, as_json)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `ctx search ... | head`: the reader has what it wanted. Python would complain once more while it
        # closes stdout.
        _close(sys.stdout.fileno())
        return 0
    except OSError as error:
        return _fail_of_system(error, as_json)
    except Exception as error:  # ours, or a store that holds what no store of ours does
        if os.environ.get("CTX_TRACEBACK"):
            raise
        return _fail(
            CtxError(
                f"this should not happen ({type(error).__name__}: {error}): `ctx doctor` looks whether the "
                "store is sound, and with CTX_TRACEBACK=1 the same command says where it happened"
            ),
            as_json,
        )


def _end_at_interrupts() -> None:
    """Has Ctrl-C end this process at once and quietly, until `_raise_at_interrupts`.

    Raised as an exception while modules are imported it becomes Python's own traceback, and some that are
    compiled (orjson) crash on it. Where it is ignored, as behind `&`, it stays so.
    """
    if _signal.getsignal(_signal.SIGINT) is _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)


def _raise_at_interrupts() -> None:
    if _signal.getsignal(_signal.SIGINT) == _signal.SIG_DFL:
        _signal.signal(_signal.SIGINT, _signal.default_int_handler)


def _run_and_exit(argv: list[str]) -> None:
    """Runs the one command of this process, which ends here and is not taken apart."""
    if argv[0] in CLOSED:
        gc.set_threshold(GARBAGE)
    else:
        gc.disable()  # what lasts enables it once it is ready
    code = main(argv)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _close(descriptor: int) -> None:
    """Lets go of a standard stream: what Python would still write there goes nowhere."""
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


def _mend_streams() -> None:
    """Gives the standard streams that are closed (`>&-`) somewhere to go.

    Python has None for them, and the next file that is opened, the catalog say, would take their number and
    be written over.
    """
    if None in (sys.stdin, sys.stdout, sys.stderr):
        _open_streams()
    if sys.stdout.encoding.lower() != "utf-8":
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]  # Latin-1 lacks letters


def _fail(error: CtxError, as_json: bool) -> int:
    """Says what went wrong, in one line on standard error or as the one JSON document; the exit code.

    The mistakes of a configuration are told all at once, and each has a line.
    """
    from ctx.cli.common import plain, print_json

    code = next(code for kind, code in EXIT_CODES if isinstance(error, kind))
    try:
        if as_json:
            print_json({"error": {"code": error.word, "message": error.message}})
            sys.stdout.flush()
        else:
            lines = error.message.split("\n") if isinstance(error, ConfigError) else [error.message]
            print("Error: " + "\n       ".join(map(plain, lines)), file=sys.stderr)
    except OSError:  # nobody reads it any more, or the disk is full: the code says it
        _close((sys.stdout if as_json else sys.stderr).fileno())
    return code


def _fail_of_system(error: OSError, as_json: bool) -> int:
    if error.errno == errno.ENOSPC:
        _close(sys.stdout.fileno())
        return _fail(StoreError("the disk is full: free some space and try again"), False)
    subject = f"{error.filename}: " if error.filename else ""
    return _fail(CtxError(f"{subject}{error.strerror or error}"), as_json)


def _command(arguments: list[str]) -> str | None:
    """Takes the command out of the arguments; None where they ask for the outline. Raises `BadRequest` for a
    command there is not.
    """
    position = 0
    while position < len(arguments) and arguments[position].startswith("-"):
        if arguments[position] in ("-h", "--help", "-V", "--version"):
            return None
        if not arguments[position].startswith("--config"):
            raise BadRequest(f"unknown option '{arguments[position]}'; `ctx --help` lists the commands")
        position += 1 if "=" in arguments[position] else 2
    if position > len(arguments):
        raise BadRequest("--config needs the path of a configuration file")
    if position == len(arguments):
        return None
    command = arguments.pop(position)
    if command == "help":
        if position == len(arguments):
            return None
        command = arguments[position]
        arguments[position:] = ["--help"]
    if command not in COMMANDS:
        raise BadRequest(f"unknown command '{command}'; {_command_hint(command)}")
    return command


def _command_hint(command: str) -> str:
    if command in ELSEWHERE:
        return ELSEWHERE[command]
    from ctx.text import nearest

    match = nearest(command, COMMANDS)
    return f"did you mean `ctx {match}`?" if match else "`ctx --help` lists them"


def _outline(arguments: list[str]) -> int:
    if "--version" in arguments or "-V" in arguments:
        print(f"ctx {__version__}")
        return 0
    print("usage: ctx [--config PATH] COMMAND ...\n\nA local-first context server.\n\ncommands:")
    for name, (_, purpose) in COMMANDS.items():
        print(f"  {name:<11} {purpose}")
    print("\n`ctx COMMAND --help` says more of each.")
    return 0
