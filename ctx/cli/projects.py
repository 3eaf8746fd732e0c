"""`ctx projects`: the servers that run on this machine, each with its project."""

import os

from ctx.cli.common import ago, parser, table, tell
from ctx.cli.running import servers, state_folder
from ctx.clock import iso_utc, now_ms
from ctx.server.address import local


def run(command: str, argv: list[str]) -> int:
    options = parser("projects", "List the projects that this user's servers serve now.", json=True)
    args = options.parse_args(argv)
    rows = servers(state_folder(os.environ))
    listed = [
        {"root": row.root, "url": local(row.address), "pid": row.pid, "since": iso_utc(row.since_ms)}
        for row in rows
    ]
    cells = [(row.root, local(row.address), str(row.pid), ago(row.since_ms, now_ms())) for row in rows]
    return tell(
        args.json,
        {"projects": listed},
        table(cells, ("PROJECT", "ADDRESS", "PID", "STARTED"))
        if rows
        else "No server runs; `ctx serve mcp` starts one for this project.",
    )
