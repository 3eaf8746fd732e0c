"""`ctx import`: what another program's files become here."""

import os
import sys
from argparse import Namespace
from typing import Any

from ctx import file_writing, files
from ctx.cli.common import configuration, plain, print_json, prose, tell
from ctx.cli.init import next_steps
from ctx.cli.options import Parser, action, describe
from ctx.cli.trust import bullets, trust_as_written
from ctx.config import parse_config
from ctx.config.compat import Conversion, Paths, base_folder, converted
from ctx.config.trust import variables
from ctx.errors import BadRequest, ConfigError
from ctx.project import project_root, shown_path
from ctx.text import counted
from ctx.toml import read_toml, tables_in
from ctx.workspace import open_workspace


def add_options(command: str, options: Parser) -> None:
    describe(options, "Take over what another program left.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="context-harness|parquet")
    harness = action(actions, "context-harness", "make a configuration of Context Harness one of ctx")
    harness.add_argument("file", metavar="CONFIG", help="its configuration, such as config/ctx.toml")
    harness.add_argument(
        "-o", "--output", metavar="FILE", help="what to write (default: ctx.toml where its paths begin)"
    )
    harness.add_argument("--dry-run", action="store_true", help="print what would be written, write nothing")
    parquet = action(actions, "parquet", "take over embeddings that were made elsewhere")
    parquet.add_argument("file", metavar="FILE", help="a Parquet table such as `ctx export --parquet` writes")


def run(command: str, args: Namespace) -> int:
    return _parquet(args) if args.action == "parquet" else _context_harness(args)


def _parquet(args: Any) -> int:
    from ctx.parquet import read_embeddings

    count = 0
    with open_workspace(configuration(args.config)) as workspace:
        workspace.require_embeddings()
        assert workspace.model is not None
        with workspace.indexer.writing() as index:
            for batch in read_embeddings(args.file, workspace.model):
                workspace.catalog.put_embeddings(workspace.model, batch)
                count += len(batch)
            index.catch_up(workspace.catalog)
        pending = workspace.catalog.pending_count(workspace.model)
    line = f"Imported {counted(count, 'embedding')}, {counted(pending, 'chunk')} pending"
    return tell(args.json, {"embeddings": count, "pending": pending}, line)


def _output(base: str, args: Any) -> str:
    """The file to be written. Raises `BadRequest` where there is one."""
    output = os.path.join(base, "ctx.toml") if args.output is None else os.path.abspath(args.output)
    if os.path.lexists(output) and not args.dry_run:
        raise BadRequest(
            f"{shown_path(output)} is there already; nothing was written (--output names another file)"
        )
    return output


def _context_harness(args: Any) -> int:
    path = os.path.abspath(os.path.expanduser(args.file))
    if not os.path.isfile(path):
        raise BadRequest(f"no such file: {args.file}")
    tables = read_toml(path, shown_path(path))
    base = base_folder(tables, project_root(path))
    if base != project_root(path) and args.output is None and not args.dry_run:
        raise BadRequest(
            f"the paths in {plain(args.file)} begin in {plain(base)}, so ctx.toml would be written there, "
            f"outside of the file's own folder: `--output {plain(os.path.join(base, 'ctx.toml'))}` does it"
        )
    output = _output(base, args)
    conversion = converted(tables, Paths(base, project_root(output)), _script_text)
    problems = _problems(conversion, output)
    requests: list[str] = []
    if not args.dry_run:
        _write(output, conversion.text)
        if not problems:
            requests = trust_as_written(output)
    if args.json:
        print_json(
            {
                "written": None if args.dry_run else output,
                "text": conversion.text,
                "notes": conversion.notes,
                "problems": problems,
                "trusted": requests,
            }
        )
    else:
        _print_outcome(conversion, problems, requests, shown_path(output), dry_run=args.dry_run)
    return 1 if problems else 0


def _write(path: str, text: str) -> None:
    with file_writing.writing(shown_path(path), BadRequest):
        files.make_folder(os.path.dirname(path))
        file_writing.replace(path, text.encode(), mode=0o644)


def _script_text(path: str) -> str:
    from ctx.extensions.scripts import MAX_SCRIPT_BYTES  # 60 ms, and many a configuration names no script

    try:
        return files.read_file(path, most=MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: no path at all
        return ""  # told when the configuration is read


def _problems(conversion: Conversion, output: str) -> list[str]:
    """What keeps the new configuration from starting, a line each. Variables count as set."""
    name, root = shown_path(output), project_root(output)
    tables = tables_in(conversion.text.encode(), name)
    environ = dict.fromkeys(variables(tables), "set")
    try:
        parse_config(tables, shown=name, path=output, root=root, environ=environ)
    except ConfigError as error:
        return error.message.splitlines()
    return []


def _print_outcome(
    conversion: Conversion, problems: list[str], requests: list[str], output: str, *, dry_run: bool
) -> None:
    if dry_run:
        print(prose(conversion.text), end="")
    else:
        print(f"Wrote {plain(output)}. What is different here:")
    for note in conversion.notes:
        print(f"  - {plain(note)}", file=sys.stderr if dry_run else sys.stdout)
    for problem in problems:
        print(f"Not ready yet: {plain(problem)}", file=sys.stderr)
    if requests:
        print("Trusted from now on, as it is written here, with what it asks for:")
        print(bullets(requests))
    if not dry_run and not problems:
        print(next_steps(output))
