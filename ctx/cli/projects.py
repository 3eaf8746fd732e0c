"""`ctx projects`: the servers that run on this machine, each with its project."""

import os

from ctx.cli.common import ago, parser, print_json, table
from ctx.cli.running import servers, state_folder
from ctx.clock import iso_utc, now_ms


def run(command: str, argv: list[str]) -> int:
    options = parser("projects", "List the projects that this user's servers serve now.", json=True)
    args = options.parse_args(argv)
    rows = servers(state_folder(os.environ))
    if args.json:
        listed = [
            {
                "root": row.root,
                "url": f"http://{row.address}",
                "pid": row.pid,
                "since": iso_utc(row.since_ms),
            }
            for row in rows
        ]
        print_json({"projects": listed})
        return 0
    if not rows:
        print("No server runs; `ctx serve mcp` starts one for this project.")
        return 0
    cells = [(row.root, f"http://{row.address}", str(row.pid), ago(row.since_ms, now_ms())) for row in rows]
    print(table(cells, ("PROJECT", "ADDRESS", "PID", "STARTED")))
    return 0
