"""`ctx index` (alias `sync`) and `ctx embed`."""

import logging
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from ctx.cli.common import configuration, parser, plain, print_json, styled
from ctx.errors import BadRequest
from ctx.indexing.indexer import EmbedReport
from ctx.indexing.run import IndexReport, Progress
from ctx.types import JSON, SourceStatus
from ctx.workspace import open_workspace


def run(command: str, argv: list[str]) -> int:
    return _embed(argv) if command == "embed" else _index(command, argv)


def _index(command: str, argv: list[str]) -> int:
    options = parser(command, "Bring the index up to date: new, changed and deleted documents.", json=True)
    options.add_argument("sources", nargs="*", metavar="SOURCE", help="names or types; all when absent")
    options.add_argument("--full", action="store_true", help="read everything again")
    options.add_argument("--dry-run", action="store_true", help="say what would change, write nothing")
    options.add_argument("--watch", action="store_true", help="stay, and follow the sources until Ctrl-C")
    options.add_argument(
        "--no-embed",
        action="store_true",
        help="keyword index only; `ctx embed pending` or a server does the rest",
    )
    options.add_argument(
        "--prune",
        action="store_true",
        help="drop the documents of sources that this configuration lacks; without it they are kept",
    )
    options.add_argument("--no-progress", action="store_true", help="no progress bars")
    args = options.parse_args(argv)
    if args.prune and args.sources:
        raise BadRequest("--prune looks at the whole configuration; leave the names of sources out")
    stop = threading.Event()
    log = logging.getLogger("ctx.indexing.indexer")
    log.addFilter(_unreported)
    dropped: list[tuple[str, int]] = []
    embedded = None
    with (
        open_workspace(configuration(args.config, remember=True)) as workspace,
        _progress(not args.no_progress) as progress,
    ):
        try:
            if args.dry_run:
                reports = workspace.indexer.run(args.sources, full=args.full, dry_run=True, progress=progress)
            else:
                reports = workspace.indexer.run(args.sources, full=args.full, progress=progress, stop=stop)
                dropped = workspace.drop_unconfigured() if args.prune else []
                embedded = None if args.no_embed else workspace.indexer.embed(progress=progress, stop=stop)
        except KeyboardInterrupt:
            stop.set()
            print("\nInterrupted: what was stored is kept, the next run completes it.", file=sys.stderr)
            return 130
        strays = [] if args.sources else workspace.unconfigured()
        if args.json:
            print_json(_run_json(reports, embedded, dropped, strays))
        else:
            for report in reports:
                _print_report(report, dry_run=args.dry_run)
            _print_strays(dropped, strays, pruning=args.prune)
            if not reports:
                print("No sources are configured; add a [connectors.filesystem.NAME] to ctx.toml.")
            if embedded and (embedded.embedded or embedded.pending):
                print(
                    f"embedded {embedded.embedded:,} chunks in {embedded.duration_s:.1f} s"
                    + (f", {embedded.pending:,} pending" if embedded.pending else "")
                )
        if args.watch and not args.dry_run:
            log.removeFilter(_unreported)
            workspace.follow(print)
    return 0 if all(report.ok for report in reports) else 1


def _unreported(record: logging.LogRecord) -> bool:
    """Whether a line of the log says what the report that is printed anyway does not."""
    return not str(record.msg).startswith("not indexed ")


def _run_json(
    reports: Sequence[IndexReport],
    embedded: EmbedReport | None,
    dropped: Sequence[tuple[str, int]],
    strays: Sequence[SourceStatus],
) -> JSON:
    return {
        "sources": [report_json(report) for report in reports],
        **({"embedded": embedded.embedded, "pending": embedded.pending} if embedded else {}),
        "dropped": [{"source": name, "documents": count} for name, count in dropped],
        "not_configured": [{"source": stray.name, "documents": stray.doc_count} for stray in strays],
    }


def _print_strays(
    dropped: Sequence[tuple[str, int]], strays: Sequence[SourceStatus], *, pruning: bool
) -> None:
    """Says what became of the documents whose sources this configuration lacks."""
    for name, count in dropped:
        print(f"{name}: not configured, {count:,} documents dropped")
    fate = "would be dropped" if pruning else "kept (`ctx index --prune` drops them)"
    for stray in strays:
        print(f"{stray.name}: not configured, {stray.doc_count:,} documents {fate}")


def report_json(report: IndexReport) -> JSON:
    """A report as `--json` gives it."""
    return {
        "source": report.source,
        "ok": report.ok,
        "added": report.added,
        "updated": report.updated,
        "unchanged": report.unchanged,
        "deleted": report.deleted,
        "chunks": report.chunks,
        "skipped": report.skipped,
        "problems": [
            {"source_id": problem.source_id, "message": problem.message} for problem in report.problems
        ],
        "notes": [{"source_id": note.source_id, "message": note.message} for note in report.notes],
        "note": report.note,
        "revision": report.revision,
        "seconds": round(report.duration_s, 3),
    }


def _print_report(report: IndexReport, *, dry_run: bool) -> None:
    if not report.ok:
        reason = (report.note or "unknown reason").removeprefix(f"{report.source}: ")
        print(f"{plain(report.source)}: FAILED: {plain(reason)}", file=sys.stderr)
        return
    would = "would be " if dry_run else ""
    parts = [
        f"{count:,} {would}{name}"
        for count, name in ((report.added, "added"), (report.updated, "updated"), (report.deleted, "deleted"))
        if count
    ]
    parts.append(f"{report.unchanged:,} unchanged")
    if report.skipped:
        parts.append(f"{report.skipped:,} skipped (no text)")
    print(f"{plain(report.source)}: {', '.join(parts)} in {report.duration_s:.1f} s")
    for problem in report.problems[:10]:
        print(f"  not indexed: {plain(problem.source_id)}: {plain(problem.message)}", file=sys.stderr)
    if len(report.problems) > 10:
        print(f"  ... and {len(report.problems) - 10:,} more (--json lists all)", file=sys.stderr)
    for note in report.notes[:10]:
        print(f"  note: {plain(': '.join(filter(None, note)))}", file=sys.stderr)
    if len(report.notes) > 10:
        print(f"  ... and {len(report.notes) - 10:,} more (--json lists all)", file=sys.stderr)


def _embed(argv: list[str]) -> int:
    options = parser(
        "embed",
        "Embed what no embedding covers yet (pending), or drop all embeddings and start anew (rebuild).",
        json=True,
    )
    options.add_argument("what", choices=("pending", "rebuild"))
    options.add_argument("--limit", type=int, help="stop after so many chunks")
    options.add_argument("--dry-run", action="store_true", help="only count")
    options.add_argument("--no-progress", action="store_true", help="no progress bar")
    args = options.parse_args(argv)
    with open_workspace(configuration(args.config)) as workspace:
        workspace.require_embeddings()
        if args.dry_run:
            pending = workspace.catalog.pending_count(workspace.model or "")
            print_json({"pending": pending}) if args.json else print(f"{pending:,} chunks pending")
            return 0
        with _progress(not args.no_progress) as progress:
            report = workspace.indexer.embed(
                limit=args.limit, rebuild=args.what == "rebuild", progress=progress
            )
    if args.json:
        print_json(
            {"embedded": report.embedded, "pending": report.pending, "seconds": round(report.duration_s, 3)}
        )
    else:
        print(f"embedded {report.embedded:,} chunks in {report.duration_s:.1f} s, {report.pending:,} pending")
    return 0


@contextmanager
def _progress(wanted: bool) -> Iterator[Progress | None]:
    """Bars on standard error where it is a terminal; None elsewhere."""
    if not wanted or not sys.stderr.isatty():
        yield None
        return
    # rich costs 70 ms: only where somebody looks
    from rich.console import Console
    from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
    )
    with Bars(
        *columns, console=Console(stderr=True, no_color=not styled(sys.stderr)), transient=True
    ) as bars:
        bar_totals: dict[
            str, TaskID
        ] = {}  # one at most: sources are read one after the other, then come the embeddings

        def progress(source: str, done: int, total: int | None) -> None:
            count = f"{done:,}" if total is None else f"{done:,} of {total:,}"
            if source not in bar_totals:
                while bar_totals:
                    bars.remove_task(bar_totals.popitem()[1])
                bar_totals[source] = bars.add_task(plain(source), total=total, count=count)
            bars.update(bar_totals[source], completed=done, total=total, count=count)

        yield progress
