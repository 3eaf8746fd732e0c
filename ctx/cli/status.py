"""`ctx status` (also `sources`, `stats` and `projects`): shows the index, the running servers and the
connected clients. `ctx log`: shows what clients searched and read.
"""

from argparse import Namespace
from datetime import datetime

from ctx.cli import Parser, amount
from ctx.cli.clients import client_rows, project_here
from ctx.cli.configuration import NO_PROJECT, NO_SOURCES, configuration
from ctx.cli.index import replaced_models, share_line
from ctx.cli.output import Columns, ago, plain, table, tell, tell_table
from ctx.cli.running import servers
from ctx.clock import iso_utc, parse_ms
from ctx.errors import BadRequest, StoreError
from ctx.http import local
from ctx.memory.activity import KEPT
from ctx.models import JSON, Caller, oldest_pending_ms, record_json
from ctx.text.strings import counted
from ctx.workspace import Workspace, open_workspace

_QUERY_CHARS = 60  # to show of a query in the log


def status_options(options: Parser) -> None:
    """Show sources, index, memories, running servers and connected clients.

    ctx status
    ctx status --json
    """


def run_status(args: Namespace) -> int:
    project = project_here(args.config)
    rows: list[dict[str, JSON]] = [
        {"root": row.root, "url": local(row.address), "pid": row.pid, "since": iso_utc(row.since_ms)}
        for row in servers()
    ]
    clients = [row for row in client_rows(project) if row["installed"] or row["connected"]]
    answer: dict[str, JSON] = {
        "configuration": project.location.path if project.location else None,
        "projects": rows,
        "clients": clients,
    }
    if project.config is None:
        lines = [f"There is {NO_PROJECT}."]
    else:
        lines = [f"configuration  {plain(project.config.path or '')}"]
        state: dict[str, JSON] = {"documents": 0, "chunks": 0, "pending": 0, "sources": []}
        further = ["Nothing is indexed yet; run `ctx index`."]
        if project.config.stored:
            with open_workspace(project.config, reading=True, projecting=False) as workspace:
                state, further = _index(workspace)
        answer |= state
        lines += further
    served = [(row["root"], row["url"], str(row["pid"]), ago(parse_ms(row["since"]))) for row in rows]
    lines += ["", table(served, ("SERVED PROJECT", "ADDRESS", "PID", "STARTED"))] if rows else []
    connected = [row["title"] for row in clients if row["connected"]]
    others = [row["client"] for row in clients if not row["connected"]]
    lines.append("")
    if not rows:
        lines.append("servers        none run; `ctx serve` starts one")
    lines.append(f"clients        {', '.join(connected) or 'none connected'}")
    if others:
        lines.append(f"               also installed: {', '.join(others)} (`ctx connect CLIENT`)")
    return tell(args.json, answer, *lines)


def _index(workspace: Workspace) -> tuple[dict[str, JSON], list[str]]:
    """The state of the index, as JSON and as lines to print."""
    stats, statuses = dict(workspace.catalog.stats()), workspace.statuses()
    sources = workspace.toolbox.call("sources", {}, Caller("cli"))["sources"]
    revisions = {status.name: status.revision for status in statuses}
    pending = sum(status.pending for status in statuses)
    oldest = oldest_pending_ms(statuses)
    try:
        behind, replaced, problem = workspace.behind(), replaced_models(workspace), ""
    except StoreError as error:
        behind, replaced, problem = None, [], error.message
    memories = sum(workspace.memory.bank_counts().values()) if workspace.config.packs.enabled else None
    chunks = stats["chunks"]
    lines = [
        f"documents      {stats['documents']:,}",
        f"chunks         {chunks:,}",
        f"embedded       {chunks - pending:,} / {chunks:,}",
        f"size           {stats['size_bytes'] / 1e6:,.1f} MB",
    ]
    if pending:
        lines.append(f"pending        {pending:,}, the oldest since {ago(oldest)}")
    if memories is not None:
        lines.append(f"memories       {memories:,}")
    lines += [f"replaced       {share_line(share)}; `ctx embed prune` drops them" for share in replaced]
    if behind:
        problem = f"{counted(behind, 'write')} behind the catalog; `ctx index` catches up"
    lines += [f"index          {problem}"] if problem else []
    answer = {
        **stats,
        "pending": pending,
        "oldest_pending_at": None if oldest is None else iso_utc(oldest),
        "index_behind": behind,
        "replaced_models": [record_json(share, omit=("filling",)) for share in replaced],
        "memories": memories,
        "sources": [{**row, "revision": revisions.get(row["name"])} for row in sources],
    }
    return answer, [*lines, "", _sources_table(sources) if sources else NO_SOURCES]


def _sources_table(sources: list[JSON]) -> str:
    rows = [
        (
            row["name"],
            ("ok" if row["healthy"] else "FAILED") if row["configured"] else "not configured",
            f"{row['doc_count']:,}",
            f"{row['pending']:,}",
            ago(parse_ms(row["last_indexed_at"]) if row["last_indexed_at"] else None),
            row["note"] or "",
        )
        for row in sources
    ]
    headers = ("SOURCE", "HEALTH", "DOCUMENTS", "PENDING", "LAST INDEXED", "NOTE")
    columns = len(headers) if any(row[-1] for row in rows) else len(headers) - 1
    return table([row[:columns] for row in rows], headers[:columns])


# -- log -----------------------------------------------------------------------------------------------------


def log_options(options: Parser) -> None:
    """Show what clients searched and read, newest first. `!` marks searches without a good hit.

    ctx log -n 50
    ctx log --clear
    """
    limit = "how many calls (default: 20)"
    options.add_argument("-n", "--limit", type=amount, default=20, metavar="N", help=limit)
    options.flag("--clear", "delete all entries")


def run_log(args: Namespace) -> int:
    with open_workspace(configuration(args.config), projecting=False) as workspace:
        activity = workspace.activity
        if activity is None:
            raise BadRequest("no log: [server] activity is false, or there is no project here")
        if args.clear:
            count = activity.clear()
            return tell(args.json, {"cleared": count}, f"Deleted {counted(count, 'entry')}.")
        entries = activity.entries(min(args.limit, KEPT))
    rows = [record_json(entry) for entry in entries]
    columns: Columns = {
        "WHEN": lambda row: datetime.fromtimestamp(parse_ms(row["called_at"]) / 1000).strftime("%d %b %H:%M"),
        "CLIENT": lambda row: f"{row['client']} ({row['interface']})",
        "CALL": "tool",
        "": lambda row: "!" if row["weak"] else "",
        "QUERY OR PATH": lambda row: row["query"][:_QUERY_CHARS],
        "HITS": "hits",
        "TOKENS": "tokens",
        "OPENED": "opened",
    }
    return tell_table(args.json, {"entries": rows}, rows, columns, "No calls yet.")
