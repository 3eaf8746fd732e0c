"""`ctx sources`, `ctx stats`, `ctx export`."""

import json
import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TextIO
from urllib.parse import quote

from ctx import file_writing, shapes
from ctx.cli.common import NO_SOURCES, ago, configuration, plain, table, tell
from ctx.cli.embed import described, shares_json
from ctx.cli.options import Parser, describe
from ctx.cli.output import Output, mode_of, output_path, written
from ctx.clock import iso_utc, parse_ms
from ctx.errors import BadRequest, StoreError
from ctx.items import SourceStatus, oldest_pending_ms
from ctx.pruning import replaced_models
from ctx.store.rows import ModelShare, StoredDocument
from ctx.text import counted
from ctx.types import JSON, Caller
from ctx.workspace import Workspace, open_workspace


def add_options(command: str, options: Parser) -> None:
    {"sources": _sources_options, "stats": _stats_options, "export": _export_options}[command](options)


def run(command: str, args: Namespace) -> int:
    return {"sources": _sources, "stats": _stats, "export": _export}[command](args)


def _source_row(source: JSON) -> tuple[str, ...]:
    indexed_at = source["last_indexed_at"]
    return (
        source["name"],
        ("ok" if source["healthy"] else "FAILED") if source["configured"] else "not configured",
        f"{source['doc_count']:,}",
        f"{source['chunk_count']:,}",
        f"{source['pending']:,}",
        ago(parse_ms(indexed_at) if indexed_at else None),
        source["note"] or "",
    )


def _sources_options(options: Parser) -> None:
    describe(options, "List the sources, their health and how much of each is indexed.", json=True)


def _sources(args: Namespace) -> int:
    with open_workspace(configuration(args.config), reading=True, projecting=False) as workspace:
        reply = workspace.toolbox.call("sources", {}, Caller("cli"))
    rows = list(map(_source_row, reply["sources"]))
    headers = ("SOURCE", "HEALTH", "DOCUMENTS", "CHUNKS", "PENDING", "LAST INDEXED", "NOTE")
    columns = len(headers) if any(row[-1] for row in rows) else len(headers) - 1
    listing = table([row[:columns] for row in rows], headers[:columns])
    return tell(args.json, reply, listing if rows else NO_SOURCES)


def _stats_options(options: Parser) -> None:
    describe(options, "Count documents, chunks and embeddings, and show how fresh they are.", json=True)


def _stats(args: Namespace) -> int:
    with open_workspace(configuration(args.config), reading=True, projecting=False) as workspace:
        stats = dict(workspace.catalog.stats())
        statuses = workspace.statuses()
        behind, replaced, away = _of_index(workspace)
    pending = sum(status.pending for status in statuses)
    oldest = oldest_pending_ms(statuses)
    answer = {
        **stats,
        "pending": pending,
        "oldest_pending_at": None if oldest is None else iso_utc(oldest),
        "index_behind": behind,
        "replaced_models": shares_json(replaced),
        "sources": [shapes.row(status) for status in statuses],
    }
    lines = _count_lines(stats, pending, oldest)
    lines += [f"replaced    {described(share)}; `ctx embed prune` drops them" for share in replaced]
    if away:
        lines.append(f"index       {away}")
    elif behind:
        lines.append(f"index       {behind:,} writes behind the catalog; `ctx index` catches up")
    return tell(args.json, answer, *lines, *_source_lines(statuses))


def _count_lines(stats: Mapping[str, int], pending: int, oldest: int | None) -> list[str]:
    chunks = stats["chunks"]
    covered = 100.0 * (chunks - pending) / chunks if chunks else 100.0
    waiting = [f"pending     {pending:,}, the oldest since {ago(oldest)}"] if pending else []
    return [
        f"documents   {stats['documents']:,}",
        f"chunks      {chunks:,}",
        f"embedded    {chunks - pending:,} / {chunks:,} ({covered:.0f} %)",
        *waiting,
        f"size        {stats['size_bytes'] / 1e6:,.1f} MB",
    ]


def _source_lines(statuses: Sequence[SourceStatus]) -> list[str]:
    headers = ("SOURCE", "DOCUMENTS", "CHUNKS", "PENDING", "LAST INDEXED", "REVISION")
    rows = [
        (
            status.name,
            f"{status.doc_count:,}",
            f"{status.chunk_count:,}",
            f"{status.pending:,}",
            ago(status.last_indexed_ms),
            (status.revision or "")[:12],
        )
        for status in statuses
    ]
    return ["", table(rows, headers)] if rows else []


def _of_index(workspace: Workspace) -> tuple[int | None, list[ModelShare], str | None]:
    """How far the index is behind, and whose vectors it has beside; or why it cannot be asked."""
    try:
        return workspace.behind(), replaced_models(workspace), None
    except StoreError as error:
        return None, [], error.message


def _export_options(options: Parser) -> None:
    describe(
        options,
        "Write every document and chunk as one JSON document, of the shape that Context Harness's search "
        "widget reads.",
        json=True,
    )
    options.add_argument(
        "-o", "--output", type=output_path, metavar="FILE", help="where to (standard output when absent)"
    )
    options.add_argument(
        "--parquet", metavar="FILE", help="write the chunks and their embeddings as a Parquet table instead"
    )
    options.add_argument(
        "--widget", metavar="FILE", help="write a search widget for static sites that reads what is exported"
    )


def _export(args: Namespace) -> int:
    if args.widget is not None:
        return _export_widget(args)
    if args.parquet is not None:
        return _export_parquet(args)
    output = Output(args.output, mode=mode_of(args.output))
    with (
        open_workspace(configuration(args.config), reading=True, projecting=False) as workspace,
        output as out,
    ):
        documents, chunks = _write_export(workspace.catalog.export(), out, written(args.output))
    target = f" to {plain(args.output)}" if args.output else ""
    return tell(
        args.json and args.output is not None,
        {"file": args.output, "documents": documents, "chunks": chunks},
        notes=[f"Exported {counted(documents, 'document')}, {counted(chunks, 'chunk')}{target}"],
    )


def _export_widget(args: Namespace) -> int:
    """Writes the widget, which needs no project: one file, the same for every site."""
    if args.output is not None or args.parquet is not None:
        raise BadRequest("--widget names its own file; `ctx export -o FILE` writes what it reads")
    with open(os.path.join(os.path.dirname(__file__), "widget.js"), "rb") as file:
        script = file.read()
    with file_writing.writing(f"--widget: {args.widget}", BadRequest):
        file_writing.replace(args.widget, script, mode=0o644)  # for a web server, which is another user
    name = quote(os.path.basename(args.widget))
    line = (
        f"Wrote {plain(args.widget)}. Beside it `ctx export -o ctx-index.json`, and in the pages: "
        f'<script src="/{name}" data-index="/ctx-index.json" defer></script>'
    )
    return tell(args.json, {"file": args.widget}, notes=[line])


def _export_parquet(args: Namespace) -> int:
    from ctx.parquet import write_table

    if args.output is not None:
        raise BadRequest("--parquet names its own file; leave --output out")
    with open_workspace(configuration(args.config), reading=True, projecting=False) as workspace:
        chunks, embedded = write_table(args.parquet, workspace.catalog, workspace.model)
    line = f"Exported {counted(chunks, 'chunk')}, {embedded:,} with an embedding, to {plain(args.parquet)}"
    return tell(args.json, {"file": args.parquet, "chunks": chunks, "embedded": embedded}, notes=[line])


def _write_export(
    entries: Iterable[StoredDocument], out: TextIO, shown: Callable[[str], str]
) -> tuple[int, int]:
    """Writes documents, then their chunks, each row through `shown`; how many of both.

    The chunks wait in a file of no name, so that both come from one steady view and none is kept in memory.
    """
    documents = chunks = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as waiting:
        out.write('{"documents": [')
        for stored in entries:
            document = stored.document
            row = {
                "id": document.id,
                "source": document.source,
                "source_id": document.source_id,
                "source_url": document.source_url,
                "title": document.title,
                "updated_at": document.updated_ms // 1000,
                "body": document.body,
            }
            out.write(("," if documents else "") + "\n" + shown(json.dumps(row, ensure_ascii=False)))
            documents += 1
            for chunk in stored.chunks:
                part = {
                    "id": f"{document.id}:{chunk.ordinal}",
                    "document_id": document.id,
                    "chunk_index": chunk.ordinal,
                    "heading": chunk.heading,
                    "text": document.body[chunk.start : chunk.end],
                }
                waiting.write(("," if chunks else "") + "\n" + shown(json.dumps(part, ensure_ascii=False)))
                chunks += 1
        out.write('\n], "chunks": [')
        waiting.seek(0)
        shutil.copyfileobj(waiting, out)
        out.write("\n]}\n")
    return documents, chunks
