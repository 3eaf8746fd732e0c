"""`ctx import` and `ctx export`: read and write the files of other programs.

A Parquet table has one row per chunk: `document_id`, `source`, `source_id`, `title`, `source_url`,
`updated_at`, `chunk_index`, `heading`, `text`, `text_hash` (16 bytes; the hash of the embedded text, which is
title, heading path and text), `model` and `embedding` (both null for a chunk that is not embedded).
"""

import json
import os
import shutil
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import quote

from ctx import files
from ctx.cli import Parser, action, actions_of, output_path
from ctx.cli.configuration import bullets, configuration, trust_as_written
from ctx.cli.output import export_form, open_output, plain, prose, tell
from ctx.cli.sources import next_steps
from ctx.config import ConfigFile
from ctx.config.compat import base_folder, converted
from ctx.config.find import project_root, shown_path
from ctx.config.settings import MAX_SCRIPT_BYTES
from ctx.config.toml import read_toml, tables_in
from ctx.config.trust import variables
from ctx.errors import BadRequest, ConfigError, CtxError
from ctx.models import JSON, TEXT_HASH_BYTES, embedding_text, text_hash
from ctx.store.base import Catalog
from ctx.store.record import StoredDocument
from ctx.text.strings import counted
from ctx.workspace import open_workspace

if TYPE_CHECKING:
    import numpy as np

ROWS = 4096  # per row group: 6 MB of vectors at 384 dimensions
_DOCUMENT_COLUMNS = ("source", "source_id", "title", "source_url")
_TEXT_COLUMNS = ("title", "heading", "text")

Pair = tuple[bytes, "np.ndarray"]
"""text_hash and float32 vector of unit length, as `Catalog.put_embeddings` takes them."""


# -- import --------------------------------------------------------------------------------------------------


def import_options(options: Parser) -> None:
    """Import what another program wrote.

    ctx import context-harness config/ctx.toml
    ctx import parquet vectors.parquet
    """
    actions = actions_of(options)
    purpose = "convert a configuration of Context Harness"
    harness = action(actions, "context-harness", purpose, _import_configuration)
    harness.add_argument("file", metavar="CONFIG", help="its configuration, such as config/ctx.toml")
    output = "the file to write (default: ctx.toml in the folder its paths are relative to)"
    harness.add_argument("-o", "--output", metavar="FILE", help=output)
    harness.flag("--dry-run", "print what would be written, write nothing")
    parquet = action(actions, "parquet", "import embeddings made elsewhere", _import_parquet)
    parquet.add_argument("file", metavar="FILE", help="a Parquet table such as `ctx export --parquet` writes")


def run_import(args: Namespace) -> int:
    return int(args.run(args))


def _import_parquet(args: Namespace) -> int:
    count = 0
    with open_workspace(configuration(args.config)) as workspace:
        workspace.require_embeddings()
        model = workspace.model or ""
        with workspace.indexer.writing() as index:
            for batch in read_embeddings(args.file, model):
                workspace.catalog.put_embeddings(model, batch)
                count += len(batch)
            index.catch_up(workspace.catalog)
        pending = workspace.catalog.pending_count(model)
    line = f"Imported {counted(count, 'embedding')}, {counted(pending, 'chunk')} pending"
    return tell(args.json, {"embeddings": count, "pending": pending}, line)


def _import_configuration(args: Namespace) -> int:
    path = os.path.abspath(os.path.expanduser(args.file))
    if not os.path.isfile(path):
        raise BadRequest(f"no such file: {args.file}")
    tables = read_toml(path, shown_path(path))
    base = base_folder(tables, project_root(path))
    if base != project_root(path) and args.output is None and not args.dry_run:
        problem = f"ctx.toml would be written into {plain(base)}, where the paths in {plain(args.file)} begin"
        raise BadRequest(f"{problem}; to do so, add `--output {plain(os.path.join(base, 'ctx.toml'))}`")
    output = os.path.join(base, "ctx.toml") if args.output is None else os.path.abspath(args.output)
    name = shown_path(output)
    if os.path.lexists(output) and not args.dry_run:
        raise BadRequest(f"{name} is there already; nothing was written (--output names another file)")
    text, differences = converted(tables, base, project_root(output), _script_text)
    problems: list[str] = []
    written = tables_in(text.encode(), name)
    environ = dict.fromkeys(variables(written), "set")  # environment variables count as set
    try:
        ConfigFile(name, project_root(output), written, output).config(environ)
    except ConfigError as error:  # the new configuration cannot be loaded yet
        problems = error.message.splitlines()
    requests: list[str] = []
    if not args.dry_run:
        with files.writing(name, BadRequest):
            files.make_folder(os.path.dirname(output))
            files.replace(output, text.encode(), mode=0o644)
        if not problems:
            requests = trust_as_written(output)
    notes = [f"  - {plain(note)}" for note in differences]
    lines = [prose(text).rstrip("\n")]
    if not args.dry_run:
        lines, notes = [f"Wrote {plain(name)}. What is different here:", *notes], []
    notes += [f"Not ready yet: {plain(problem)}" for problem in problems]
    if requests:
        lines += ["Trusted from now on, as it is written here, with what it asks for:", bullets(requests)]
    if not args.dry_run and not problems:
        lines.append(next_steps(output))
    reply = {"written": None if args.dry_run else output, "text": text}
    reply |= {"notes": differences, "problems": problems, "trusted": requests}
    return tell(args.json, reply, *lines, notes=notes, code=1 if problems else 0)


def _script_text(path: str) -> str:
    try:
        return files.read_file(path, most=MAX_SCRIPT_BYTES).decode("utf-8", "replace")
    except (OSError, ValueError):  # ValueError: not a valid path
        return ""  # reported when the configuration is read


# -- export --------------------------------------------------------------------------------------------------


def export_options(options: Parser) -> None:
    """Write every document and chunk as one JSON document, as Context Harness's search widget reads it.

    ctx export -o ctx-index.json
    ctx export --parquet chunks.parquet
    """
    add = options.add_argument
    add("-o", "--output", type=output_path, metavar="FILE", help="where to (default: standard output)")
    add("--parquet", metavar="FILE", help="write chunks and embeddings as a Parquet table instead")
    add("--widget", metavar="FILE", help="write the search widget for static sites, which reads an export")


def run_export(args: Namespace) -> int:
    if args.widget is not None:
        return _export_widget(args)
    if args.parquet is not None:
        return _export_parquet(args)
    output = open_output(args.output)
    with (
        open_workspace(configuration(args.config), reading=True, projecting=False) as workspace,
        output as out,
    ):
        documents, chunks = _write_export(workspace.catalog.export(), out, export_form(args.output))
    target = f" to {plain(args.output)}" if args.output else ""
    line = f"Exported {counted(documents, 'document')}, {counted(chunks, 'chunk')}{target}"
    reply = {"file": args.output, "documents": documents, "chunks": chunks}
    return tell(args.json and args.output is not None, reply, notes=[line])


def _export_widget(args: Namespace) -> int:
    if args.output is not None or args.parquet is not None:
        raise BadRequest("--widget names its own file; `ctx export -o FILE` writes what it reads")
    with open(os.path.join(os.path.dirname(__file__), "widget.js"), "rb") as file:
        script = file.read()
    with files.writing(f"--widget: {args.widget}", BadRequest):
        files.replace(args.widget, script, mode=0o644)  # a web server, which is another user, reads it
    name = quote(os.path.basename(args.widget))
    tag = f'<script src="/{name}" data-index="/ctx-index.json" defer></script>'
    line = f"Wrote {plain(args.widget)}. Next to it `ctx export -o ctx-index.json`, and in the pages: {tag}"
    return tell(args.json, {"file": args.widget}, notes=[line])


def _export_parquet(args: Namespace) -> int:
    if args.output is not None:
        raise BadRequest("--parquet names its own file; leave --output out")
    with open_workspace(configuration(args.config), reading=True, projecting=False) as workspace:
        chunks, embedded = write_table(args.parquet, workspace.catalog, workspace.model)
    line = f"Exported {counted(chunks, 'chunk')}, {embedded:,} with an embedding, to {plain(args.parquet)}"
    return tell(args.json, {"file": args.parquet, "chunks": chunks, "embedded": embedded}, notes=[line])


def _write_export(
    entries: Iterable[StoredDocument], out: TextIO, form: Callable[[str], str]
) -> tuple[int, int]:
    """Writes one JSON document with all documents, then all chunks. `form` is applied to each row. Returns
    (documents, chunks).

    The chunks are collected in a temporary file, so that the catalog is read once and little is kept in
    memory.
    """
    documents = chunks = 0
    with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as waiting:
        out.write('{"documents": [')
        for stored in entries:
            document = stored.document
            row = {"id": document.id, **{name: getattr(document, name) for name in _DOCUMENT_COLUMNS}}
            row |= {"updated_at": document.updated_ms // 1000, "body": document.body}
            out.write(("," if documents else "") + "\n" + form(json.dumps(row, ensure_ascii=False)))
            documents += 1
            for chunk in stored.chunks:
                part = {
                    "id": f"{document.id}:{chunk.ordinal}",
                    "document_id": document.id,
                    "chunk_index": chunk.ordinal,
                    "heading": chunk.heading,
                    "text": document.body[chunk.start : chunk.end],
                }
                waiting.write(("," if chunks else "") + "\n" + form(json.dumps(part, ensure_ascii=False)))
                chunks += 1
        out.write('\n], "chunks": [')
        waiting.seek(0)
        shutil.copyfileobj(waiting, out)
        out.write("\n]}\n")
    return documents, chunks


# -- Parquet -------------------------------------------------------------------------------------------------


def write_table(path: str, catalog: Catalog, model: str | None) -> tuple[int, int]:
    """Writes all chunks with the embeddings of `model` as a Parquet table. Returns (chunks, chunks with an
    embedding). Raises `BadRequest` if the file cannot be written or pyarrow is missing.
    """
    arrow, parquet = _pyarrow()
    text, moment = arrow.string(), arrow.timestamp("ms", tz="UTC")
    schema = arrow.schema(
        [
            *((name, text) for name in ("document_id", *_DOCUMENT_COLUMNS)),
            ("updated_at", moment),
            ("chunk_index", arrow.int32()),
            ("heading", text),
            ("text", text),
            ("text_hash", arrow.binary(TEXT_HASH_BYTES)),
            ("model", text),
            ("embedding", arrow.list_(arrow.float32())),
        ]
    )
    chunks = embedded = 0
    with (
        files.writing(path, BadRequest),
        files.replacement(path) as descriptor,
        open(descriptor, "wb", closefd=False) as file,
        parquet.ParquetWriter(file, schema, compression="zstd") as writer,
    ):
        for rows in _row_groups(catalog, model):
            embedded += sum(row["embedding"] is not None for row in rows)
            chunks += len(rows)
            writer.write_table(arrow.Table.from_pylist(rows, schema=schema))
    return chunks, embedded


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadRequest("Parquet needs pyarrow: pip install 'ctx-server[parquet]'") from error
    return pyarrow, pyarrow.parquet


def _row_groups(catalog: Catalog, model: str | None) -> Iterator[list[dict[str, JSON]]]:
    """Yields the rows of all chunks, ROWS at a time."""
    rows: Iterator[dict[str, JSON]] = (
        {
            "document_id": stored.document.id,
            **{name: getattr(stored.document, name) for name in _DOCUMENT_COLUMNS},
            "updated_at": stored.document.updated_ms,
            "chunk_index": chunk.ordinal,
            "heading": chunk.heading,
            "text": stored.document.body[chunk.start : chunk.end],
            "text_hash": chunk.text_hash,
        }
        for stored in catalog.export()
        for chunk in stored.chunks
    )
    while group := list(islice(rows, ROWS)):
        vectors = {} if model is None else catalog.vectors_of(model, [row["text_hash"] for row in group])
        for row in group:
            vector = vectors.get(row["text_hash"])
            row |= {"model": None if vector is None else model, "embedding": vector}
        yield group


def read_embeddings(path: str, model: str) -> Iterator[list[Pair]]:
    """Yields the embeddings of a Parquet table in batches. Rows without an embedding are left out.

    A row identifies its text by `text_hash`, or by `title`, `heading` and `text`. Vectors are scaled to unit
    length. Raises `BadRequest` if the file is not a Parquet table, lacks columns, or has another model.
    """
    arrow, parquet = _pyarrow()
    location = os.path.expanduser(path)
    if files.irregular(location):
        raise BadRequest(f"{path} cannot be read: it is not a file")
    try:
        with parquet.ParquetFile(location) as table:
            names = table.schema_arrow.names
            keys = ["text_hash"] if "text_hash" in names else _TEXT_COLUMNS
            if absent := [name for name in ("embedding", *keys) if name not in names]:
                needed = "it needs the columns embedding and text_hash"
                raise BadRequest(f"{path} has no column {', '.join(absent)}; {needed}")
            columns = ["embedding", *keys, *(["model"] if "model" in names else [])]
            for batch in table.iter_batches(ROWS, columns=columns):
                yield [_pair(path, row, model) for row in batch.to_pylist() if row["embedding"] is not None]
    except CtxError:
        raise
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a Parquet table, or it is damaged"
        raise BadRequest(f"{path} cannot be read: {reason}") from error


def _pair(path: str, row: dict[str, JSON], model: str) -> Pair:
    if (row.get("model") or model) != model:
        problem = f"{path} has embeddings of '{row['model']}', the configuration says '{model}'"
        raise BadRequest(f"{problem}; set [embedding] model to match")
    import numpy as np  # 120 ms

    try:
        vector = np.asarray(row["embedding"], dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise BadRequest(f"{path} has an embedding that is not a list of numbers") from error
    length = float(np.linalg.norm(vector.astype(np.float64))) if vector.ndim == 1 else 0.0
    if not np.isfinite(length) or length == 0:
        raise BadRequest(f"{path} has an embedding of zeros")
    if "text_hash" not in row:
        digest = text_hash(embedding_text(*(row[name] or "" for name in _TEXT_COLUMNS)))
    elif isinstance(row["text_hash"], bytes) and len(row["text_hash"]) == TEXT_HASH_BYTES:
        digest = row["text_hash"]
    else:
        raise BadRequest(f"{path} has a text_hash that is not {TEXT_HASH_BYTES} bytes")
    return digest, vector / length
