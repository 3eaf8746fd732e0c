"""The commands: nothing but parsing, calling and printing.

`ctx search` has to answer in the time of a few imports, so a command's module is imported when it is the one asked for.
"""

import gc
import os
import sys
from collections.abc import Sequence

from ctx.errors import (
    BadRequest,
    ConfigError,
    CtxError,
    NotFound,
    ScriptTimeout,
    SourceError,
    StoreError,
    ToolError,
)

# name -> (module, what it does)
COMMANDS = {
    "init": ("ctx.cli.init", "write a configuration for this folder"),
    "index": ("ctx.cli.index", "bring the index up to date with the sources"),
    "sync": ("ctx.cli.index", "the same as index"),
    "serve": ("ctx.cli.serve", "serve REST and MCP over HTTP: ctx serve mcp"),
    "mcp": ("ctx.cli.serve", "serve MCP on standard input and output"),
    "search": ("ctx.cli.search", "search the index"),
    "get": ("ctx.cli.search", "print a document"),
    "sources": ("ctx.cli.inspect", "list the sources and their health"),
    "stats": ("ctx.cli.inspect", "count documents, chunks and embeddings"),
    "export": ("ctx.cli.inspect", "write every document as JSON"),
    "embed": ("ctx.cli.index", "embed what is pending, or everything anew"),
    "tool": ("ctx.cli.extensions", "list, call, write and test tools"),
    "connector": ("ctx.cli.extensions", "write and test connector scripts"),
    "agent": ("ctx.cli.extensions", "list, write and test agents"),
    "trust": ("ctx.cli.extensions", "let the scripts of this project's .ctx folder run"),
    "pack": ("ctx.cli.extensions", "list the memory packs and what they may do"),
    "memory": ("ctx.cli.memory", "export and import memories"),
    "key": ("ctx.cli.key", "create, list and revoke keys"),
    "connect": ("ctx.cli.connect", "connect an editor or an agent to this server"),
    "openapi": ("ctx.cli.serve", "print the OpenAPI description"),
    "doctor": ("ctx.cli.doctor", "check the installation, the store and the sandbox; mend what can be mended"),
}

# What these write is the user's own project, to be shared as they like; everything else that ctx writes is for its owner's eyes.
SHARED_WORK = ("init", "connect", "tool", "connector", "agent", "openapi")

# A whole process of forty milliseconds: collecting its garbage and taking its modules apart at the end would be eight of them.
BRIEF = ("search", "get")

EXIT_CODES: tuple[tuple[type[CtxError], int], ...] = (
    (ConfigError, 2),
    (BadRequest, 2),
    (NotFound, 3),
    (StoreError, 4),
    (ScriptTimeout, 5),
    (ToolError, 5),
    (SourceError, 1),
    (CtxError, 1),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; its exit code. Errors go to standard error in one line; nothing prints a traceback."""
    if argv is None and len(sys.argv) > 1 and sys.argv[1] in BRIEF:
        gc.disable()
        code = main(sys.argv[1:])
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = next((word for word in arguments if not word.startswith("-")), None)
    config = next((index for index, word in enumerate(arguments) if word == "--config"), None)
    if config is not None and config + 1 < len(arguments) and arguments[config + 1] == command:
        rest = [word for word in arguments[config + 2 :] if not word.startswith("-")]
        command = rest[0] if rest else None
    try:
        if command is None or command not in COMMANDS:
            return _outline(arguments, command)
        if command not in SHARED_WORK:
            os.umask(0o077)
        module = __import__(COMMANDS[command][0], fromlist=["run"])
        arguments.remove(command)
        exit_code: int = module.run(command, arguments)
        sys.stdout.flush()
        return exit_code
    except CtxError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        return next(code for kind, code in EXIT_CODES if isinstance(error, kind))
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # `ctx search ... | head`: the reader has what it wanted. Python would complain once more while it closes stdout.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _outline(arguments: list[str], command: str | None) -> int:
    from ctx import __version__

    if "--version" in arguments or "-V" in arguments:
        print(f"ctx {__version__}")
        return 0
    asked = not arguments or "-h" in arguments or "--help" in arguments or command == "help"
    out = sys.stdout if asked else sys.stderr
    if not asked:
        import difflib  # 5 ms, and only a mistyped command needs it

        near = difflib.get_close_matches(command or arguments[0], COMMANDS, 1)
        hint = f"; did you mean 'ctx {near[0]}'?" if near else ""
        print(f"Error: unknown command '{command or arguments[0]}'{hint}\n", file=out)
    print("usage: ctx [--config PATH] COMMAND ...\n\nA local-first context server.\n\ncommands:", file=out)
    for name, (_, purpose) in COMMANDS.items():
        print(f"  {name:<10} {purpose}", file=out)
    print("\n`ctx COMMAND --help` says more of each.", file=out)
    return 0 if asked else 2
