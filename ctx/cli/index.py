"""`ctx index` (alias `sync`)."""

import json
import signal
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple

from ctx.cli.common import NO_SOURCES, configuration, json_printable, plain, print_json
from ctx.cli.logs import without_the_reported
from ctx.cli.options import Parser, describe
from ctx.cli.progress import add_progress_options, json_line, shown_progress
from ctx.clock import parse_ms
from ctx.config import Config
from ctx.connectors.base import Problem
from ctx.connectors.forges import parse_remote
from ctx.errors import BadRequest, CtxError
from ctx.indexing.indexer import EmbedReport
from ctx.indexing.run import EMPTY, IndexReport, Progress
from ctx.indexing.window import Window
from ctx.items import SourceStatus
from ctx.pruning import drop_sources, prunable_sources
from ctx.text import counted
from ctx.types import JSON
from ctx.workspace import Workspace, open_workspace

SHOWN = 10  # lines of a kind under a report: more than that is for --json
SHOWN_CHANGES = 20  # documents named of one run that --watch tells of


def add_options(command: str, options: Parser) -> None:
    describe(options, "Bring the index up to date: new, changed and deleted documents.", json=True)
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
        help="drop the documents of sources that this configuration lacks, or of those that are named where "
        "machines share a database; without it they are kept",
    )
    options.add_argument(
        "--take-over",
        action="store_true",
        help="count what another machine or configuration stored as this one's: what is not here is deleted",
    )
    options.add_argument("--since", metavar="DATE", help="only what was updated at or after this date")
    options.add_argument("--until", metavar="DATE", help="only what was updated at or before this date")
    options.add_argument("--limit", type=int, help="at most so many new or changed documents of each source")
    add_progress_options(options)


def _check(args: Namespace, window: Window | None, *, shared: bool) -> None:
    """Raises `BadRequest` for options that contradict each other."""
    if window is not None and (args.watch or args.prune):
        raise BadRequest(
            "--since, --until and --limit take a part of a source; --watch and --prune need all of it"
        )
    if args.prune and args.sources and not shared:
        raise BadRequest("--prune looks at the whole configuration; leave the names of sources out")


def run(command: str, args: Namespace) -> int:
    window = _window(args)
    stop = threading.Event()
    config = configuration(args.config)
    _check(args, window, shared=bool(config.store.url))
    with open_workspace(config) as workspace:
        try:
            with without_the_reported():
                code = _run_once(workspace, args, window, stop)
        except KeyboardInterrupt:
            stop.set()
            print("\nInterrupted: what was stored is kept, the next run completes it.", file=sys.stderr)
            return 130
        if args.watch and not args.dry_run:
            _follow(workspace, stop, as_json=args.json)
            return 0
    return code


def _window(args: Namespace) -> Window | None:
    """The part of the sources that the options name; None for all of it. Raises `BadRequest`."""
    if args.since is None and args.until is None and args.limit is None:
        return None
    if args.limit is not None and args.limit < 1:
        raise BadRequest("--limit must be at least 1")
    return Window(_date("--since", args.since), _date("--until", args.until, end_of_day=True), args.limit)


def _date(name: str, text: str | None, *, end_of_day: bool = False) -> int | None:
    try:
        return None if text is None else parse_ms(text, end_of_day=end_of_day)
    except ValueError as error:
        raise BadRequest(f"{name} must be a date such as 2026-01-31, got '{text}'") from error


def _run_once(workspace: Workspace, args: Namespace, window: Window | None, stop: threading.Event) -> int:
    """One run of the chosen sources, and what it came to, printed."""
    outcome = _outcome(workspace, args, window, stop)
    if outcome.failure and args.json:
        raise outcome.failure
    strays = [] if args.sources and not args.prune else workspace.unconfigured()
    if args.json:
        print_json(_run_json(outcome, strays))
    else:
        _print_outcome(workspace.config, args, outcome, strays, whole=window is None)
    if outcome.failure:
        raise outcome.failure
    return 0 if all(report.ok for report in outcome.reports) else 1


class _Outcome(NamedTuple):
    """What came of a run: what it read and embedded, the sources dropped and those that would be.

    `failure` is of embedding: what was read before it is stored, and told first.
    """

    reports: list[IndexReport]
    embedded: EmbedReport | None
    failure: CtxError | None
    dropped: list[tuple[str, int]]
    prunable: list[SourceStatus]


def _outcome(workspace: Workspace, args: Namespace, window: Window | None, stop: threading.Event) -> _Outcome:
    dropped: list[tuple[str, int]] = []
    embedded: EmbedReport | None = None
    failure: CtxError | None = None
    names = [] if args.prune else args.sources  # of what is run; with --prune, of what is dropped
    prunable = prunable_sources(workspace, args.sources) if args.prune else []
    if args.take_over and not args.dry_run:
        for connector in workspace.indexer.select(names):
            workspace.catalog.take_over(connector.name)
    with shown_progress(args) as progress:
        reports = workspace.indexer.run(
            names, full=args.full, dry_run=args.dry_run, progress=progress, stop=stop, window=window
        )
        if progress is json_line:
            _tell_ends(reports)
        if not args.dry_run:
            dropped = drop_sources(workspace, prunable)
            if not reports:
                workspace.catch_up()  # a run does it before its first change
            if not args.no_embed:
                embedded, failure = _embed(workspace, progress, stop)
    return _Outcome(reports, embedded, failure, dropped, prunable)


def _print_unconfigured(
    config: Config, args: Namespace, outcome: _Outcome, strays: list[SourceStatus]
) -> None:
    for name, count in outcome.dropped:
        print(f"{name}: not configured, {counted(count, 'document')} dropped")
    if args.dry_run and outcome.prunable:
        _print_strays(outcome.prunable, "would be dropped")
    elif not config.store.url:  # else they are other machines'
        _print_strays(strays, "kept (`ctx index --prune` drops them)")


def _print_outcome(
    config: Config, args: Namespace, outcome: _Outcome, strays: list[SourceStatus], *, whole: bool
) -> None:
    _print_reports(config, outcome.reports, dry_run=args.dry_run, whole=whole)
    _print_unconfigured(config, args, outcome, strays)
    if not outcome.reports:
        print(NO_SOURCES)
    embedded = outcome.embedded
    if embedded and (embedded.embedded or embedded.pending):
        print(embedded_line(embedded))


def _embed(
    workspace: Workspace, progress: Progress | None, stop: threading.Event
) -> tuple[EmbedReport | None, CtxError | None]:
    """What came of embedding, or why it did not."""
    try:
        with with_pending(workspace):
            return workspace.indexer.embed(progress=progress, stop=stop), None
    except CtxError as error:
        return None, error


@contextmanager
def with_pending(workspace: Workspace) -> Iterator[None]:
    """Adds to an error of embedding how much is left, and the command that goes on with it."""
    try:
        yield
    except CtxError as error:
        with suppress(CtxError):
            if pending := workspace.catalog.pending_count(workspace.model or ""):
                count = counted(pending, "chunk")
                error.message += f"; {count} not embedded yet, `ctx embed pending` goes on with what is left"
        raise


def _tell_ends(reports: Sequence[IndexReport]) -> None:
    """The last line of each source: a run that ends with its first batch has said nothing yet."""
    for report in reports:
        count = report.added + report.updated + report.unchanged
        json_line(report.source, count, count)


def _follow(workspace: Workspace, stop: threading.Event, *, as_json: bool) -> None:
    """Follows the sources until Ctrl-C, and tells each change in a line (of JSON, where that was asked
    for).
    """

    def tell(report: IndexReport) -> None:
        if as_json and report.changes:
            print(json_printable(json.dumps(report_json(report), ensure_ascii=False)), flush=True)
        elif not as_json:
            for line in change_lines(report):
                print(line, flush=True)

    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        # As an exception a second Ctrl-C would break into what the first one ends, and be a traceback.
        signal.signal(signal.SIGINT, lambda *_: stop.set())
    print("Following the sources; Ctrl-C stops.", file=sys.stderr if as_json else sys.stdout, flush=True)
    workspace.background.follow(tell, stop)
    print(file=sys.stderr)  # the terminal shows ^C without an end of its line


def change_lines(report: IndexReport) -> list[str]:
    """What a run changed, a line each: `filesystem:docs: added notes/a.md`."""
    source = plain(report.source)
    lines = [
        f"{source}: {change.kind} {plain(change.source_id)}" for change in report.changes[:SHOWN_CHANGES]
    ]
    excess = report.added + report.updated + report.deleted - len(lines)
    return [*lines, f"{source}: ... and {counted(excess, 'change')} more"] if excess > 0 else lines


def _run_json(outcome: _Outcome, strays: Sequence[SourceStatus]) -> JSON:
    embedded = outcome.embedded
    return {
        "sources": [report_json(report) for report in outcome.reports],
        **({"embedded": embedded.embedded, "pending": embedded.pending} if embedded else {}),
        "dropped": [{"source": name, "documents": count} for name, count in outcome.dropped],
        "not_configured": [{"source": stray.name, "documents": stray.doc_count} for stray in strays],
    }


def _print_strays(strays: Sequence[SourceStatus], fate: str) -> None:
    """Says what becomes of the documents whose sources this configuration lacks."""
    for stray in strays:
        print(f"{stray.name}: not configured, {counted(stray.doc_count, 'document')} {fate}")


def report_json(report: IndexReport) -> JSON:
    """A report as `--json` gives it."""
    fields = report._asdict()
    for name in ("skips", "changes", "problems", "notes"):
        fields[name] = [row._asdict() for row in fields[name]]
    return {**fields, "seconds": round(fields.pop("duration_s"), 3)}


def _print_reports(config: Config, reports: Sequence[IndexReport], *, dry_run: bool, whole: bool) -> None:
    """A line and more of each; where a source was looked for, if that failed or nothing of the `whole` is
    there.
    """
    for report in reports:
        vacant = whole and _holds_nothing(report)
        _print_report(report, dry_run=dry_run, vacant=vacant)
        if vacant or not report.ok:
            _print_place(config, report.source)


def _changes(report: IndexReport, would: str) -> list[str]:
    counts = (report.added, "added"), (report.updated, "updated"), (report.deleted, "deleted")
    return [f"{count:,} {would}{name}" for count, name in counts if count]


def _print_report(report: IndexReport, *, dry_run: bool, vacant: bool) -> None:
    if not report.ok:
        print(f"{plain(report.source)}: FAILED: {plain(report.note or 'unknown reason')}", file=sys.stderr)
        return
    parts = _changes(report, "would be " if dry_run else "")
    parts.append("no documents" if vacant else f"{report.unchanged:,} unchanged")
    misses = [skip for skip in report.skips if skip.message != EMPTY]
    if report.skipped:
        parts.append(f"{report.skipped:,} skipped" + (f" ({report.empty:,} empty)" if report.empty else ""))
    print(f"{plain(report.source)}: {', '.join(parts)} in {report.duration_s:.1f} s")
    _print_lines("skipped", misses, report.skipped - report.empty)
    _print_lines("not indexed", report.problems, len(report.problems))
    _print_lines("note", report.notes, len(report.notes))


def _holds_nothing(report: IndexReport) -> bool:
    """Whether a source that was read has no documents, and had none before."""
    return not (report.added or report.updated or report.deleted or report.unchanged)


def _print_place(config: Config, source: str) -> None:
    """Where a source that failed, or holds nothing, was looked for: on this machine's terminal alone, since
    its status is served to others.
    """
    places = {folder.name: f"in: {folder.root}" for folder in config.filesystems}
    # Without what a repository's address may hold of a password.
    places |= {git.name: f"at: {parse_remote(git.url).redact(git.url)}" for git in config.gits}
    places |= {bucket.name: f"at: {bucket.endpoint_url or 'AWS'}" for bucket in config.buckets}
    places |= {site.name: f"at: {site.url}" for site in config.webs}
    if source in places:
        print(f"  looked {plain(places[source])}", file=sys.stderr)


def _print_lines(label: str, lines: Sequence[Problem], total: int) -> None:
    """Lines under a report, on standard error, as many as one reads."""
    for line in lines[:SHOWN]:
        print(f"  {label}: {plain(': '.join(filter(None, line)))}", file=sys.stderr)
    if total > SHOWN:
        print(f"  ... and {total - SHOWN:,} more (--json lists them)", file=sys.stderr)


def embedded_line(report: EmbedReport) -> str:
    """What came of embedding, in a line."""
    pending = f", {report.pending:,} pending" if report.pending else ""
    return f"embedded {counted(report.embedded, 'chunk')} in {report.duration_s:.1f} s{pending}"
