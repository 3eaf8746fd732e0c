"""`ctx log`: what clients searched and read."""

from argparse import Namespace
from datetime import datetime

from ctx.cli.configuration import configuration
from ctx.cli.options import Parser, amount, describe
from ctx.cli.output import table, tell
from ctx.errors import BadRequest
from ctx.memory.activity import KEPT, Entry
from ctx.models import record_json
from ctx.text.strings import counted
from ctx.workspace import open_workspace

_SHOWN_CHARS = 60


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Show what clients searched and read, newest first. `!` marks searches without a good hit.",
        "ctx log -n 50",
        "ctx log --clear",
        json=True,
    )
    options.add_argument("-n", "--limit", type=amount, default=20, help="how many calls (default: 20)")
    options.add_argument("--clear", action="store_true", help="delete all entries")


def run(command: str, args: Namespace) -> int:
    with open_workspace(configuration(args.config), projecting=False) as workspace:
        activity = workspace.activity
        if activity is None:
            raise BadRequest("no log: [server] activity is false, or there is no project here")
        if args.clear:
            count = activity.clear()
            return tell(args.json, {"cleared": count}, f"Deleted {counted(count, 'entry')}.")
        entries = activity.entries(min(args.limit, KEPT))
    return tell(args.json, {"entries": [record_json(entry) for entry in entries]}, _shown(entries))


def _shown(entries: list[Entry]) -> str:
    if not entries:
        return "No calls yet."
    rows = [
        (
            datetime.fromtimestamp(entry.called_ms / 1000).strftime("%d %b %H:%M"),
            f"{entry.client} ({entry.interface})",
            entry.tool,
            "!" if entry.weak else "",
            entry.query[:_SHOWN_CHARS],
            f"{entry.hits:,}",
            f"{entry.tokens:,}",
            ", ".join(entry.opened),
        )
        for entry in entries
    ]
    return table(rows, ("WHEN", "CLIENT", "CALL", "", "QUERY OR PATH", "HITS", "TOKENS", "OPENED"))
