"""The options of `ctx memory`.

The actions are in `memory_actions` and `hooks`, which import the memory store (200 ms).
"""

from argparse import Namespace
from typing import Any

from ctx.cli import Parser, action, actions_of, amount, moment, output_path
from ctx.cli.clients import HOOKED

DEFAULT_BANK = "default"
BUDGET_TOKENS = 1000  # the default limit of what `recall` prints
# The other products whose memories `ctx memory import --from` reads.
PRODUCTS = ("basic-memory", "claude-recall", "hindsight", "mem0", "sekha")


def memory_options(options: Parser) -> None:
    """Read, correct, forget and move memories.

    ctx memory search when is the release
    ctx memory forget 4f1c09aa
    """
    actions = actions_of(options)
    _reading_options(actions)
    _changing_options(actions)
    _moving_options(actions)
    recall = _with_bank(actions, "recall", "print memories for the start of a session")
    capture = _with_bank(actions, "capture", "store memories from a hook's JSON on standard input")
    for parser in (recall, capture):
        parser.add_argument("--hook", choices=HOOKED, help="reply in this client's hook format; never fail")
    recall.add_argument("query", nargs="*", help="what to look for (default: the most important and latest)")
    budget = f"most tokens to print (default: {BUDGET_TOKENS})"
    recall.add_argument("--budget-tokens", type=amount, default=BUDGET_TOKENS, help=budget)


def run_memory(args: Namespace) -> int:
    if args.action in ("recall", "capture"):
        from ctx.cli.hooks import run_session

        return run_session(args)
    from ctx.cli import memory_actions

    return memory_actions.run(args)


def _with_bank(actions: Any, name: str, purpose: str) -> Parser:
    options = action(actions, name, purpose)
    bank = f"which bank (default: {DEFAULT_BANK}); `ctx memory banks` lists them"
    options.add_argument("--bank", default=DEFAULT_BANK, help=bank)
    return options


def _filter_options(options: Parser) -> None:
    add = options.add_argument
    add("-t", "--type", help="only memories of this type")
    add("--context", help="only memories of this context")
    add("--tag", action="append", help="only memories with this tag (any of several)")
    add("--session", help="only memories of this session")
    add("--since", type=moment, metavar="DATE", help="only what was said at or after this time")
    add("--until", type=moment, metavar="DATE", help="only what was said at or before this time")


def _reading_options(actions: Any) -> None:
    banks = action(actions, "banks", "list the banks and their sizes")
    banks.add_argument("-n", "--limit", type=amount, default=200, help="at most so many (default: 200)")
    listing = _with_bank(actions, "list", "list memories, the latest first")
    searching = _with_bank(actions, "search", "find memories")
    searching.add_argument("query", nargs="+", help="a question, or words")
    for options in (listing, searching):
        options.add_argument("-n", "--limit", type=amount, default=20, help="at most so many (default: 20)")
        options.add_argument("--as-of", type=moment, metavar="DATE", help="what was true at that time")
        options.flag("--superseded", "also memories that a later one replaced")
        _filter_options(options)
    listing.flag("--forgotten", "only forgotten memories; `restore` takes their id")
    for name, purpose in (("show", "show one memory in full"), ("history", "show every change of a memory")):
        _with_bank(actions, name, purpose).add_argument("id", help="its id, from list or search")


def _changing_options(actions: Any) -> None:
    edit = _with_bank(actions, "edit", "correct a memory; the earlier version is kept")
    edit.add_argument("id", help="its id")
    edit.add_argument("text", nargs="?", help="the corrected text")
    edit.add_argument("--context", help="its context")
    edit.add_argument("--type", help="its type")
    edit.add_argument("--tag", action="append", help="its tags, all of them")
    edit.add_argument("--said", type=moment, metavar="DATE", help="when it was said")
    edit.add_argument("--happened", type=moment, metavar="DATE", help="when it happened")
    forget = _with_bank(actions, "forget", "forget memories; `undo` brings them back")
    forget.add_argument("id", nargs="*", help="their ids, or options that select them")
    _filter_options(forget)
    forget.flag("--purge", "erase for good: text, words, vectors and history")
    undo = _with_bank(actions, "undo", "undo an operation")
    undo.add_argument("op_id", help="the operation's id, from its reply or `history`")
    restore = _with_bank(actions, "restore", "restore a memory that was forgotten or replaced")
    restore.add_argument("id", help="its id, from `list --forgotten` or `list --superseded`")
    rename = action(actions, "rename", "rename a bank")
    rename.add_argument("name", help="the bank")
    rename.add_argument("into", metavar="new-name", help="its new name")
    merge = action(actions, "merge", "move a bank's memories into another bank and remove it")
    merge.add_argument("name", help="the bank to move and remove")
    merge.add_argument("into", help="the bank that receives the memories")
    delete = action(actions, "delete", "remove a bank for good, with its history")
    delete.add_argument("name", help="the bank")
    delete.flag("--yes", "delete; without it, only count")
    for options in (forget, merge):
        options.flag("--dry-run", "only show what would be done")


def _moving_options(actions: Any) -> None:
    export = _with_bank(actions, "export", "write a bank as JSON lines, or as a folder of Markdown")
    output = "where to (default: standard output)"
    export.add_argument("-o", "--output", type=output_path, metavar="FILE", help=output)
    purpose = "read what export wrote, a changed folder, or another product's memories"
    importing = action(actions, "import", purpose)
    importing.add_argument("file", nargs="?", default="-", help="the file; - or nothing: standard input")
    importing.add_argument("--bank", help="the bank to import into (default: that of the pack, else default)")
    product = "import from another product: its tool replies, its export, its file or its folder of notes"
    importing.add_argument("--from", dest="product", choices=PRODUCTS, help=product)
    user = "for mem0: whose memories to import, if it has several users"
    importing.add_argument("--user", metavar="NAME", help=user)
    sync = _with_bank(actions, "sync", "read changes from a folder, then write the bank's changes to it")
    for options in (export, importing, sync):
        folder = "a folder of Markdown files, one per memory"
        options.add_argument("--folder", metavar="DIR", help=folder, required=options is sync)
        options.flag("--dry-run", "of a folder: only show what would be done")
    for options in (importing, sync):
        options.flag("--prune", "for a folder: forget the memories whose files were deleted")
    adopt = action(actions, "adopt", "use the memories of a project that moved, or of an earlier version")
    source = "a name from `gone`, or .ctx for memories of an earlier version"
    adopt.add_argument("name", metavar="NAME", help=source)
    action(actions, "gone", "list the memories of projects that were moved or deleted")
    forget = action(actions, "forget-project", "delete the memories of a moved or deleted project")
    forget.add_argument("name", nargs="+", metavar="NAME", help="a name from `gone`")
    forget.flag("--yes", "delete; without it, only show what would be deleted")
