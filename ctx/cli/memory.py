"""`ctx memory`: look into the memories, correct and forget them, move them.

The options are here; the actions are in `memory_actions`, `memory_moving` and `sessions`, which import the
memory store (200 ms that `--help` does not need).
"""

from argparse import Namespace
from typing import Any

from ctx.cli.hooks import BUDGET_TOKENS, HOOKED
from ctx.cli.options import Parser, action, amount, describe, moment
from ctx.cli.output import output_path

DEFAULT_BANK = "default"
# The other products whose memories `ctx memory import --from` reads.
PRODUCTS = ("basic-memory", "claude-recall", "hindsight", "mem0", "sekha")


def add_options(command: str, options: Parser) -> None:
    describe(options, "Look into the memories, correct and forget them, move them.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="ACTION")
    _reading_options(actions)
    _changing_options(actions)
    _moving_options(actions)
    _location_options(actions)
    _session_options(action(actions, "recall", "what to begin a session with"), recalling=True)
    _session_options(
        action(actions, "capture", "keep what was asked to be remembered: a hook's JSON on standard input"),
        recalling=False,
    )


def _location_options(actions: Any) -> None:
    adopt = action(
        actions, "adopt", "take over the memories of a project that moved, or of an earlier version"
    )
    adopt.add_argument("name", metavar="NAME", help="as `gone` lists it, or .ctx for an earlier version's")
    action(actions, "gone", "list the memories of projects that are no longer at their place")
    forget = action(actions, "forget-project", "delete the memories of a project that has gone")
    forget.add_argument("name", nargs="+", metavar="NAME", help="as `gone` lists it")
    forget.add_argument(
        "--yes", action="store_true", help="delete; without it only say what would be deleted"
    )


def run(command: str, args: Namespace) -> int:
    if args.action in ("adopt", "gone", "forget-project"):
        from ctx.cli import memory_location

        return memory_location.run(args)
    if args.action in ("recall", "capture"):
        from ctx.cli.sessions import run_session

        return run_session(args)
    from ctx.cli import memory_actions

    return memory_actions.run(args)


def _with_bank(options: Parser) -> Parser:
    options.add_argument(
        "--bank",
        default=DEFAULT_BANK,
        help=f"which bank (default: {DEFAULT_BANK}); `ctx memory banks` lists them",
    )
    return options


def _with_filter(options: Parser) -> None:
    options.add_argument("--type", help="only memories of this type")
    options.add_argument("--context", help="only memories of this context")
    options.add_argument("--tag", action="append", help="only memories with this tag (any of several)")
    options.add_argument("--session", help="only memories of this session")
    options.add_argument("--since", type=moment, metavar="DATE", help="only what was said since")
    options.add_argument("--until", type=moment, metavar="DATE", help="only what was said until")


def _reading_options(actions: Any) -> None:
    banks = action(actions, "banks", "list the banks, and how much is in them")
    banks.add_argument("--limit", type=amount, default=200, help="at most so many (default: 200)")
    listing = _with_bank(action(actions, "list", "list memories, the latest first"))
    searching = _with_bank(action(actions, "search", "find memories"))
    searching.add_argument("query", nargs="+", help="a question, or words")
    for options in (listing, searching):
        options.add_argument("--limit", type=amount, default=20, help="at most so many (default: 20)")
        options.add_argument("--as-of", type=moment, metavar="DATE", help="what held at that time")
        options.add_argument("--superseded", action="store_true", help="also what a later statement replaced")
        _with_filter(options)
    listing.add_argument(
        "--forgotten",
        action="store_true",
        help="what was forgotten, and nothing else: `restore` takes its id",
    )
    for name, purpose in (("show", "show one memory whole"), ("history", "show every change of a memory")):
        _with_bank(action(actions, name, purpose)).add_argument(
            "id", help="its id, as list and search give it"
        )


def _changing_options(actions: Any) -> None:
    edit = _with_bank(action(actions, "edit", "correct a memory; the version before is kept"))
    edit.add_argument("id", help="its id")
    edit.add_argument("text", nargs="?", help="the corrected text")
    edit.add_argument("--context", help="its context")
    edit.add_argument("--type", help="its type")
    edit.add_argument("--tag", action="append", help="its tags, all of them")
    edit.add_argument("--said", type=moment, metavar="DATE", help="when it was said")
    edit.add_argument("--happened", type=moment, metavar="DATE", help="when it happened")
    forget = _with_bank(action(actions, "forget", "forget memories; `undo` brings them back"))
    forget.add_argument("id", nargs="*", help="their ids; or options that choose")
    _with_filter(forget)
    forget.add_argument(
        "--purge", action="store_true", help="erase for good: text, words, vectors and history"
    )
    undo = _with_bank(action(actions, "undo", "take an operation back"))
    undo.add_argument("op_id", help="the operation, as its reply or `history` names it")
    restore = _with_bank(action(actions, "restore", "bring back a memory that was forgotten or replaced"))
    restore.add_argument("id", help="its id, as `list --forgotten` or `list --superseded` gives it")
    rename = action(actions, "rename", "give a bank another name")
    rename.add_argument("name", help="the bank")
    rename.add_argument("into", metavar="new-name", help="its name from now on")
    merge = action(actions, "merge", "move what a bank holds into another, and remove it")
    merge.add_argument("name", help="the bank")
    merge.add_argument("into", help="the bank that stays")
    delete = action(actions, "delete", "remove a bank for good, with its history")
    delete.add_argument("name", help="the bank")
    delete.add_argument("--yes", action="store_true", help="really; without it only counts")
    for options in (forget, merge):
        options.add_argument("--dry-run", action="store_true", help="only say what would be done")


def _moving_options(actions: Any) -> None:
    export = _with_bank(
        action(actions, "export", "write a bank's memories: a line of JSON each, or a folder of Markdown")
    )
    export.add_argument(
        "-o", "--output", type=output_path, metavar="FILE", help="where to (standard output when absent)"
    )
    importing = action(
        actions,
        "import",
        "read what export wrote, what was changed in a folder, or another product's memories",
    )
    importing.add_argument("file", nargs="?", default="-", help="the file; - or nothing: standard input")
    importing.add_argument("--bank", help="into which bank (default: that of the pack, else default)")
    importing.add_argument(
        "--from",
        dest="product",
        choices=PRODUCTS,
        help="another product's: what its tools reply or it exports, its file, its folder of notes",
    )
    importing.add_argument(
        "--user", metavar="NAME", help="of mem0: whose memories, where there are several people's"
    )
    sync = _with_bank(
        action(actions, "sync", "read what was changed in a folder, then write what changed in the bank")
    )
    for options in (export, importing, sync):
        options.add_argument(
            "--folder",
            metavar="DIR",
            help="a folder of Markdown files, one a memory",
            required=options is sync,
        )
        options.add_argument(
            "--dry-run", action="store_true", help="of a folder: only say what would be done"
        )
    for options in (export, importing):
        options.add_argument("--format", choices=("jsonl", "markdown"), help="markdown wants --folder")
    for options in (importing, sync):
        options.add_argument(
            "--prune", action="store_true", help="of a folder: forget the memories whose files were deleted"
        )


def _session_options(options: Parser, *, recalling: bool) -> None:
    """The options of the two actions."""
    options.add_argument("--bank", help=f"which bank (default: {DEFAULT_BANK})")
    options.add_argument("--hook", choices=tuple(HOOKED), help="answer as this client's hook; never fail")
    if recalling:
        options.add_argument(
            "query", nargs="*", help="what to look for (nothing: the most important and latest)"
        )
        options.add_argument(
            "--budget-tokens",
            type=amount,
            default=BUDGET_TOKENS,
            help=f"at most so many (default: {BUDGET_TOKENS})",
        )
