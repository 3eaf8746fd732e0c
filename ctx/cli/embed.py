"""`ctx embed`: what is pending, everything anew, or without what a replaced model left."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace

from ctx import shapes
from ctx.cli.common import configuration, plain, tell
from ctx.cli.index import embedded_line, with_pending
from ctx.cli.logs import without_the_reported
from ctx.cli.options import Parser, amount, describe
from ctx.cli.progress import add_progress_options, shown_progress
from ctx.errors import BadRequest
from ctx.pruning import prunable_models, prune_models, replaced_models
from ctx.store.rows import ModelShare
from ctx.text import counted
from ctx.types import JSON
from ctx.workspace import Workspace, open_workspace


def run(command: str, args: Namespace) -> int:
    if args.models and args.what != "prune":
        raise BadRequest(f"`ctx embed {args.what}` takes no names of models")
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
        return _fill(workspace, args)


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Embed what no embedding covers yet (pending), drop all embeddings and start anew (rebuild), or drop "
        "those of models that were replaced (prune).",
        json=True,
    )
    options.add_argument(
        "what",
        metavar="pending|rebuild|prune",
        choices=("pending", "rebuild", "prune"),
        help="which of these",
    )
    options.add_argument(
        "models", nargs="*", default=[], metavar="MODEL", help="prune only these, as `ctx stats` names them"
    )
    options.add_argument("--limit", type=amount, help="stop after so many chunks")
    options.add_argument("--dry-run", action="store_true", help="only count")
    options.add_argument("--batch-size", type=amount, help="texts a request, for ollama and openai")
    add_progress_options(options)


def _fill(workspace: Workspace, args: Namespace) -> int:
    rebuild = args.what == "rebuild"
    try:
        with (
            with_pending(workspace),
            shown_progress(args) as progress,
            without_the_reported("vectors are built anew"),
        ):
            report = workspace.indexer.embed(limit=args.limit, rebuild=rebuild, progress=progress)
    except KeyboardInterrupt:
        print("\nInterrupted: what was embedded is kept, `ctx embed pending` goes on.", file=sys.stderr)
        return 130
    counts = {"embedded": report.embedded, "pending": report.pending, "seconds": round(report.duration_s, 3)}
    return tell(args.json, counts, embedded_line(report))


def _prune(workspace: Workspace, args: Namespace) -> int:
    if args.dry_run:
        shares = prunable_models(workspace, args.models) if args.models else replaced_models(workspace)
    else:
        shares = prune_models(workspace, args.models)
    verb = "would drop" if args.dry_run else "dropped"
    lines = [f"{verb} {described(share)}" for share in shares]
    return tell(
        args.json,
        {"models": shares_json(shares), "dry_run": args.dry_run},
        *(lines or ["no embeddings of a replaced model are kept"]),
    )


def described(share: ModelShare) -> str:
    """A line on what is held of a model."""
    count = counted(share.embeddings, "embedding")
    return f"{count} of {plain(share.model)}, about {share.size_bytes / 1e6:,.1f} MB"


def shares_json(shares: Sequence[ModelShare]) -> list[JSON]:
    return [shapes.row(share, omit=("filling",)) for share in shares]
