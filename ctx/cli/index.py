"""`ctx index`, `ctx embed` and `ctx worker`: build the index and keep it up to date."""

import signal
import threading
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TypeVar

from ctx.cli import Parser, amount, log_option, moment, progress_options
from ctx.cli.configuration import NO_SOURCES, configuration
from ctx.cli.output import (
    json_line,
    log_to_stderr,
    plain,
    print_json,
    shown_progress,
    tell,
    warn,
    without_reported,
)
from ctx.clock import parse_ms
from ctx.config import Config
from ctx.connectors.base import Problem
from ctx.connectors.forges import parse_remote
from ctx.errors import BadRequest, ConfigError, CtxError, NotFound
from ctx.indexing.embedding import EmbedReport
from ctx.indexing.run import Window
from ctx.indexing.status import EMPTY, IndexReport
from ctx.indexing.worker import ROLES, Worker
from ctx.models import SourceStatus, record_json
from ctx.scripts.sources import intervals_s
from ctx.store.record import ModelShare
from ctx.text.strings import counted
from ctx.workspace import Workspace, open_workspace

SHOWN = 10  # lines to print of each kind below a report; --json has more

Unused = TypeVar("Unused")


# -- index ---------------------------------------------------------------------------------------------------


def index_options(options: Parser) -> None:
    """Bring the index up to date: new, changed and deleted documents.

    ctx index
    ctx index notes --full
    """
    add = options.add_argument
    add("sources", nargs="*", metavar="SOURCE", help="names or types (default: all)")
    options.flag("--full", "read everything again")
    options.flag("--dry-run", "show what would change, write nothing")
    options.flag("--no-embed", "keyword index only; the next run or a server embeds")
    options.flag("--prune", "drop the documents of sources that are not configured (any more)")
    options.flag("--take-over", "take over documents of another configuration or machine")
    add("--since", type=moment, metavar="DATE", help="only what was updated at or after this date")
    add("--until", type=moment, metavar="DATE", help="only what was updated at or before this date")
    add("-n", "--limit", type=amount, metavar="N", help="most new or changed documents to index per source")
    progress_options(options)


def run_index(args: Namespace) -> int:
    window = None
    if args.since or args.until or args.limit:
        until = args.until and parse_ms(args.until, end_of_day=True)
        window = Window(args.since and parse_ms(args.since), until, args.limit)
        if args.prune:
            raise BadRequest("--prune needs whole sources: leave out --since, --until and --limit")
    config = configuration(args.config)
    if args.prune and args.sources and not config.store.url:
        raise BadRequest("--prune looks at the whole configuration; leave out the names of sources")
    stop = threading.Event()
    with open_workspace(config) as workspace:
        if args.take_over and not args.dry_run:
            for connector in workspace.indexer.select([] if args.prune else args.sources):
                workspace.catalog.take_over(connector.name)
        try:
            with without_reported():
                return _run_once(workspace, args, window, stop)
        except KeyboardInterrupt:
            stop.set()
            warn("\nInterrupted. What was indexed is kept; the next run does the rest.")
            return 130


def _run_once(workspace: Workspace, args: Namespace, window: Window | None, stop: threading.Event) -> int:
    """Indexes the chosen sources, embeds new chunks, and prints the result. Returns the exit code.

    `--prune` also drops the documents of sources that are not configured. If embedding fails, the reports are
    printed before the error is raised.
    """
    indexer = workspace.indexer
    names = [] if args.prune else args.sources  # with --prune they are the sources to drop
    prunable: list[SourceStatus] = []
    if args.prune:
        unused = {status.name: status for status in workspace.unconfigured()}
        others = "have other sources: name the sources that no machine uses, `ctx index --prune NAME`"
        fault = "no source that this configuration lacks"
        prunable = _named(workspace, unused, args.sources, fault, others)
    embedded: EmbedReport | None = None
    failure: CtxError | None = None
    dropped: list[tuple[str, int]] = []
    with shown_progress(args) as progress:
        reports = indexer.run(
            names, full=args.full, dry_run=args.dry_run, progress=progress, stop=stop, window=window
        )
        for report in reports if progress is json_line else ():  # a short run reports no progress
            count = report.added + report.updated + report.unchanged
            json_line(report.source, count, count)
        if not args.dry_run:
            dropped = drop_sources(workspace, prunable)
            if not reports:
                workspace.catch_up()  # `run` does this before its first change
            if not args.no_embed:
                try:
                    with with_pending(workspace):
                        embedded = indexer.embed(progress=progress, stop=stop)
                except CtxError as error:
                    failure = error
    strays = [] if args.sources and not args.prune else workspace.unconfigured()
    if not args.json:
        for report in reports:
            _print_report(workspace.config, report, dry_run=args.dry_run, whole=window is None)
        for name, count in dropped:
            print(f"{name}: not configured, {counted(count, 'document')} dropped")
        _print_strays(workspace.config, strays, prunable if args.dry_run else [])
        if not reports:
            print(NO_SOURCES)
        if embedded and (embedded.embedded or embedded.pending):
            print(_embedded_line(embedded))
    if failure:
        raise failure
    if args.json:
        print_json(
            {
                "sources": [
                    record_json(report, omit=("duration_s",)) | {"seconds": round(report.duration_s, 3)}
                    for report in reports
                ],
                **({"embedded": embedded.embedded, "pending": embedded.pending} if embedded else {}),
                "dropped": [{"source": name, "documents": count} for name, count in dropped],
                "not_configured": [{"source": row.name, "documents": row.doc_count} for row in strays],
            }
        )
    return 0 if all(report.ok for report in reports) else 1


def _print_strays(config: Config, strays: list[SourceStatus], prunable: list[SourceStatus]) -> None:
    """Prints the sources with documents that are not configured, or those that --prune would drop."""
    fate = "would be dropped" if prunable else "kept (`ctx index --prune` drops them)"
    # Other machines may use the documents in a shared database.
    for stray in prunable or ([] if config.store.url else strays):
        print(f"{stray.name}: not configured, {counted(stray.doc_count, 'document')} {fate}")


def _print_report(config: Config, report: IndexReport, *, dry_run: bool, whole: bool) -> None:
    empty = whole and not (report.added or report.updated or report.deleted or report.unchanged)
    if report.ok:
        would = "would be " if dry_run else ""
        counts = (report.added, "added"), (report.updated, "updated"), (report.deleted, "deleted")
        parts = [f"{count:,} {would}{name}" for count, name in counts if count]
        parts.append("no documents" if empty else f"{report.unchanged:,} unchanged")
        if report.skipped:
            empty_files = f" ({report.empty:,} empty)" if report.empty else ""
            parts.append(f"{report.skipped:,} skipped{empty_files}")
        print(f"{plain(report.source)}: {', '.join(parts)} in {report.duration_s:.1f} s")
        skips = [skip for skip in report.skips if skip.message != EMPTY]
        _print_lines("skipped", skips, report.skipped - report.empty)
        _print_lines("not indexed", report.problems, len(report.problems))
        _print_lines("note", report.notes, len(report.notes))
    else:
        warn(f"{plain(report.source)}: FAILED: {plain(report.note or 'unknown reason')}")
    if empty or not report.ok:
        # Not in the source's status, because clients can read that.
        places = {row.name: f"in: {row.root}" for row in config.filesystems}
        places |= {row.name: f"at: {parse_remote(row.url).redact(row.url)}" for row in config.gits}
        places |= {row.name: f"at: {row.endpoint_url or 'AWS'}" for row in config.buckets}
        places |= {row.name: f"at: {row.url}" for row in config.webs}
        if report.source in places:
            warn(f"  looked {plain(places[report.source])}")


def _print_lines(label: str, lines: Sequence[Problem], total: int) -> None:
    for line in lines[:SHOWN]:
        warn(f"  {label}: {plain(': '.join(filter(None, line)))}")
    if total > SHOWN:
        warn(f"  ... and {total - SHOWN:,} more (--json lists them)")


# -- embed ---------------------------------------------------------------------------------------------------


def embed_options(options: Parser) -> None:
    """Compute missing embeddings (pending), drop all and start again (rebuild), or drop those
    of replaced models (prune).

    ctx embed pending
    ctx embed prune --dry-run
    """
    add = options.add_argument
    kinds = ("pending", "rebuild", "prune")
    add("what", metavar="|".join(kinds), choices=kinds, help="the action")
    add("models", nargs="*", default=[], metavar="MODEL", help="prune only these models")
    add("-n", "--limit", type=amount, metavar="N", help="stop after this many chunks")
    options.flag("--dry-run", "only count")
    add("--batch-size", type=amount, help="texts per request, for ollama and openai")
    progress_options(options)


def run_embed(args: Namespace) -> int:
    if args.models and args.what != "prune":
        raise BadRequest(f"`ctx embed {args.what}` takes no model names")
    config = configuration(args.config)
    if args.batch_size is not None:
        config = replace(config, embedding=replace(config.embedding, batch_size=args.batch_size))
    with open_workspace(config) as workspace:
        workspace.require_embeddings()
        if args.what == "prune":
            return _prune(workspace, args)
        if args.dry_run:
            pending = workspace.catalog.pending_count(workspace.model or "")
            return tell(args.json, {"pending": pending}, f"{counted(pending, 'chunk')} pending")
        try:
            with (
                with_pending(workspace),
                shown_progress(args) as progress,
                without_reported("vectors are rebuilt"),
            ):
                rebuild = args.what == "rebuild"
                report = workspace.indexer.embed(limit=args.limit, rebuild=rebuild, progress=progress)
        except KeyboardInterrupt:
            warn("\nInterrupted. Finished embeddings are kept; `ctx embed pending` continues.")
            return 130
    counts = {"embedded": report.embedded, "pending": report.pending, "seconds": round(report.duration_s, 3)}
    return tell(args.json, counts, _embedded_line(report))


def _prune(workspace: Workspace, args: Namespace) -> int:
    if args.dry_run:
        shares = prunable_models(workspace, args.models) if args.models else replaced_models(workspace)
    else:
        shares = prune_models(workspace, args.models)
    verb = "would drop" if args.dry_run else "dropped"
    lines = [f"{verb} {share_line(share)}" for share in shares]
    models = [record_json(share, omit=("filling",)) for share in shares]
    nothing = "no embeddings of a replaced model are kept"
    return tell(args.json, {"models": models, "dry_run": args.dry_run}, *(lines or [nothing]))


def share_line(share: ModelShare) -> str:
    """Formats the count and size of a model's stored embeddings as one line."""
    size = f"about {share.size_bytes / 1e6:,.1f} MB"
    return f"{counted(share.embeddings, 'embedding')} of {plain(share.model)}, {size}"


@contextmanager
def with_pending(workspace: Workspace) -> Iterator[None]:
    """Adds to an embedding error how many chunks are left, and the command that continues."""
    try:
        yield
    except CtxError as error:
        with suppress(CtxError):
            if pending := workspace.catalog.pending_count(workspace.model or ""):
                count = counted(pending, "chunk")
                error.message += f"; {count} not embedded yet, `ctx embed pending` continues"
        raise


def _embedded_line(report: EmbedReport) -> str:
    pending = f", {report.pending:,} pending" if report.pending else ""
    return f"embedded {counted(report.embedded, 'chunk')} in {report.duration_s:.1f} s{pending}"


# -- replaced models and removed sources ---------------------------------------------------------------------
# Nothing is dropped unless the user asks: the model may be used again, and the documents may belong to
# another configuration.


def replaced_models(workspace: Workspace) -> list[ModelShare]:
    """The models with stored embeddings that are neither configured nor still answering searches. Empty if
    embeddings are disabled, because then no model has replaced them.
    """
    if workspace.model is None:
        return []
    names = [name for name in (workspace.model, workspace.model_switch.published()) if name]
    return workspace.catalog.model_shares(names)


def prunable_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """The replaced models with these names, or all of them. Raises `NotFound` for an unknown name. Raises
    `BadRequest` if another machine that shares the database may use a model.
    """
    shares = {share.model: share for share in replaced_models(workspace)}
    others = "use another model: name the models that no machine uses, `ctx embed prune NAME`"
    chosen = _named(workspace, shares, names, "not a replaced model", others)
    for share in chosen:
        if share.filling:
            raise BadRequest(f"another machine is using '{share.model}' now")
    return chosen


def prune_models(workspace: Workspace, names: Sequence[str]) -> list[ModelShare]:
    """Drops the embeddings of `prunable_models` and frees their space. The models are chosen while no other
    process writes. Returns the dropped models.
    """
    dropped: list[ModelShare] = []

    def chosen() -> list[str]:
        dropped.extend(prunable_models(workspace, names))
        return [share.model for share in dropped]

    workspace.indexer.forget_models(chosen)
    if dropped:
        workspace.catalog.vacuum()
    return dropped


def _named(
    workspace: Workspace, unused: dict[str, Unused], names: Sequence[str], fault: str, others: str
) -> list[Unused]:
    """The entries of `unused` with these names, or all of them. Raises `NotFound` for an unknown name, with
    `fault` in the message. Raises `BadRequest` if the database is shared and there are no names; `others` is
    the reason.
    """
    for name in names:
        if name not in unused:
            raise NotFound(f"'{name}' is {fault} (those are: {', '.join(unused) or 'none'})")
    if unused and not names and workspace.config.store.url:
        raise BadRequest(f"machines that share this database may {others} ({', '.join(unused)})")
    return [unused[name] for name in dict.fromkeys(names)] if names else list(unused.values())


def drop_sources(workspace: Workspace, sources: Sequence[SourceStatus]) -> list[tuple[str, int]]:
    """Deletes the documents of sources. Returns (source name, number of documents) for each."""
    return [(source.name, workspace.indexer.forget([source.name])) for source in sources]


# -- worker --------------------------------------------------------------------------------------------------


def worker_options(options: Parser) -> None:
    """Index and embed together with other machines that share [store] url.

    ctx worker
    ctx worker --roles embed --once
    """
    roles = "scan, embed and pump (to the engine of [index]), separated by commas"
    options.add_argument("--roles", default=",".join(ROLES), help=roles)
    options.flag("--once", "stop when nothing is left to do")
    log_option(options, "info")


def run_worker(args: Namespace) -> int:
    roles = [role.strip() for role in args.roles.split(",")]
    if unknown := [role for role in roles if role not in ROLES]:
        raise BadRequest(f"--roles: unknown role '{unknown[0]}' (known: {', '.join(ROLES)})")
    config = configuration(args.config)
    if not config.store.url:
        hint = "On one machine `ctx serve` keeps the index up to date"
        raise ConfigError(f"a worker needs a database that machines share: set [store] url. {hint}")
    log_to_stderr(args.log_level)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    # A worker needs no local index. It updates an index that machines share.
    projecting = config.index.engine != "local" and "pump" in roles
    complete = True
    with open_workspace(config, projecting=projecting) as workspace:
        worker = Worker(workspace.indexer, roles, intervals_s(workspace.config))
        try:
            if args.once:
                complete = worker.work(stop)
            else:
                worker.run(stop)
        except KeyboardInterrupt:
            stop.set()
            return 130
        pending = workspace.catalog.pending_count(workspace.model) if workspace.model else 0
    lines = [f"done; {counted(pending, 'chunk')} pending"] if args.once else []
    return tell(args.json, {"ok": complete, "pending": pending}, *lines, code=0 if complete else 1)
