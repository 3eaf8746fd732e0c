"""`ctx search`, `ctx get`, `ctx outline` and `ctx symbol`: search and read documents.

Before it reads the index, each indexes changed files for at most a second. If a server runs, it does this
instead.
"""

import json
import os
import re
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import islice
from textwrap import wrap

from ctx import files
from ctx.cli import Parser, amount
from ctx.cli.configuration import configuration
from ctx.cli.output import plain, prose, styled, tell, terminal_width, warn, without_reported
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.connectors.base import ScanLog, encode_name
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.walk import RACY
from ctx.errors import BadParameter, BadRequest, CtxError, NotFound, SourceError
from ctx.indexing.run import read_alike, run_signature
from ctx.models import AUTO, COMMITS, JSON, MODES, Caller, SourceItem, document_id
from ctx.scripts.sources import folders
from ctx.store.base import Catalog
from ctx.text.strings import first_few, sound
from ctx.tools.places import Place, exact_places, place_of, resolve_sources, the_only
from ctx.workspace import Workspace, open_workspace

TIME_S = 1.0
LOCK_TIMEOUT_S = 0.2  # a process that holds the lock indexes the changes itself
EMBEDDED_AT_MOST = 16  # chunks; each takes the bundled model 30 ms
_TEXTLESS = "textless.json"
_MAX_TEXTLESS_BYTES = 10_000_000
_MIN_PREFIX = 4  # the fewest characters of a shortened id
_SHOWN_CANDIDATES = 5
_PASSAGES = 3  # per document
_ON, _OFF = "\x01", "\x02"  # begin and end bold text until it is wrapped; `prose` lets neither through
_FIELDS = ("title", "source", "source_id", "source_url", "updated_at", "author", "content_type", "id")
_HEX = frozenset("0123456789abcdef-")


@dataclass
class _Changes:
    """The changes in a folder: new and changed files (`items`), and the ids of deleted ones (`gone`)."""

    connector: FilesystemConnector
    items: list[SourceItem]
    gone: set[str]


def _call(workspace: Workspace, tool: str, arguments: JSON, labels: Mapping[str, str]) -> dict[str, JSON]:
    """Calls a tool and returns its reply. An error names the option of the wrong parameter: its label in
    `labels`, or the option of the same name.
    """
    try:
        reply: dict[str, JSON] = workspace.toolbox.call(tool, arguments, Caller("cli", client="ctx"))
    except BadParameter as error:
        name = error.parameter.removeprefix("filters.").partition("[")[0]
        label = labels.get(name) or f"--{name.replace('_', '-')}"
        raise BadRequest(f"{label} {error.problem}") from error
    return reply


# -- search --------------------------------------------------------------------------------------------------


def search_options(options: Parser) -> None:
    """Search the index. Any text is a query.

    ctx search how do we rotate keys -n 5
    ctx search -m hybrid -p 'src/**' -t code retry with backoff
    """
    add = options.add_argument
    add("query", nargs="+", help="what to look for")
    mode = "keyword, semantic or hybrid (default: what suits the query)"
    add("-m", "--mode", choices=MODES, default=AUTO, help=mode)
    limit = "the most results (default: [retrieval] final_limit, 12)"
    add("-n", "--limit", type=int, metavar="N", help=limit)
    source = "only this source, by name (git:platform) or type; repeatable"
    add("-s", "--source", action="append", help=source)
    add("-p", "--path", action="append", metavar="GLOB", help="only paths like docs/** or *.py; repeatable")
    add("-t", "--type", action="append", help="only prose, code, or a media type; repeatable")
    add("--since", metavar="DATE", help="updated at or after this date (2026-01-31)")
    add("--until", metavar="DATE", help="updated at or before this date")
    add("--offset", type=int, metavar="N", help="how many results to skip")
    passages = f"the most passages per document (default: {_PASSAGES})"
    add("--per-document", type=int, metavar="N", default=_PASSAGES, help=passages)
    add("--max-tokens", type=int, metavar="N", help="leave out results beyond about this many tokens")
    options.flag("--prefix", "the last word may be unfinished")
    options.flag("--explain", "show how each result was ranked")


def run_search(args: Namespace) -> int:
    filters = {name: getattr(args, name) for name in ("source", "path", "type", "since", "until")}
    numbers = {name: getattr(args, name) for name in ("limit", "offset", "per_document", "max_tokens")}
    arguments = {
        "query": " ".join(args.query),
        "mode": args.mode,
        "filters": {name: value for name, value in filters.items() if value},
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: True for name in ("explain", "prefix") if getattr(args, name)},
    }
    embed = args.mode != "keyword"
    with fresh_workspace(configuration(args.config), embed=embed) as (workspace, gone):
        reply = _call(workspace, "search", arguments, {"query": "the query"})
        hits = reply["results"]
        reply["results"] = [hit for hit in hits if (hit["source"], hit["source_id"]) not in gone]
        if not (reply["results"] or reply.get("note") or args.json):
            reply["note"] = _advice(args, workspace, bool(reply.get("partial")))
    if args.json:
        return tell(True, reply)
    for remark in ("partial", "note", "cut"):
        if reply.get(remark):
            warn(f"Note: {plain(reply[remark])}")
    lines = list(_result_lines(reply["results"], explain=args.explain))
    return tell(False, reply, *(lines or ["No results."]))


def _advice(args: Namespace, workspace: Workspace, partial: bool) -> str | None:
    """A hint after a search without results, or None. `partial`: the index is incomplete."""
    statuses = workspace.statuses()
    if not any(status.doc_count or status.configured for status in statuses):
        return "no source is configured; `ctx add FOLDER` adds one"
    if not any(status.doc_count for status in statuses):
        return "no document is indexed; `ctx index` shows where it looks and what it leaves out"
    if partial:
        return "`ctx index` completes the index; a running server does this automatically"
    if args.mode == "keyword" and workspace.config.embedding.provider != "disabled":
        return "`--mode hybrid` also finds similar meanings"
    return None


def _result_lines(results: list[JSON], *, explain: bool) -> Iterator[str]:
    bold, faint, mark, off = ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m") if styled() else ("", "", "", "")
    columns = terminal_width()
    width = max((columns or 80) - 4, 10)
    several = len({result["source"] for result in results}) > 1
    for number, result in enumerate(results, 1):
        section, title = _section(result).rpartition(" > ")[2], result["title"]
        file = os.path.basename(result["source_id"])
        # If the title is only the file's path or name, show the file's name.
        title = file if title in (result["source_id"], os.path.splitext(file)[0]) else title
        title = f"{faint} · {off}".join(f"{bold}{plain(name)}{off}" for name in (section, title) if name)
        source = f"  {plain(result['source'])}" if several else ""
        yield f"{faint}{number:>2}.{off} {title}  {faint}{result['score']:.2f}{source}{off}"
        for passage in (result, *result.get("passages", ())):
            heading = f"  {faint}› {plain(_section(passage))}{off}" if _section(passage) else ""
            yield f"    {mark}{plain(result['source_id'])}:{passage['start_line']}{off}{heading}"
            text = _highlighted(passage, _ON if bold else "", _OFF)
            for line in text.split("\n"):
                # On a terminal, prose is wrapped. Source lines stay.
                keep = columns is None or not line or passage.get("symbol") or line[0].isspace()
                parts = [line] if keep else _wrapped(line, width)
                yield from (f"    {part.replace(_ON, bold).replace(_OFF, off)}" for part in parts)
        if copies := result.get("also_in"):
            yield f"    {faint}also in {plain(first_few([copy['source_id'] for copy in copies]))}{off}"
        for name, reasons in result["explain"].items() if explain else ():
            yield f"    {faint}{name}: {plain(_reasons(reasons))}{off}"


def _wrapped(line: str, width: int) -> Iterator[str]:
    """The line in parts of at most `width` columns. The marks of bold text do not count."""
    words = iter(line.split())
    bare = line.replace(_ON, "").replace(_OFF, "")
    for part in wrap(bare, width, break_long_words=False, break_on_hyphens=False):
        yield " ".join(islice(words, len(part.split())))


def _section(passage: JSON) -> str:
    """The name of the definition that contains the passage, else the passage's heading."""
    symbol = passage.get("symbol")
    inside = symbol and symbol["start_line"] <= passage["start_line"]
    return str(symbol["name"] if inside else passage["heading"])


def _reasons(reasons: JSON) -> str:
    if isinstance(reasons, dict):
        return ", ".join(f"{name} {value}" for name, value in reasons.items())
    return ", ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)


def _highlighted(passage: JSON, on: str, off: str) -> str:
    snippet: str = passage["snippet"]
    marked, last = "", 0
    for start, end in passage.get("highlights", ()) if on else ():
        marked += prose(snippet[last:start]) + on + prose(snippet[start:end]) + off
        last = end
    return marked + prose(snippet[last:])


# -- get -----------------------------------------------------------------------------------------------------


def get_options(options: Parser) -> None:
    """Print a document, or some of its lines.

    ctx get docs/release.md:12-30
    ctx get 125af08b --body
    """
    add = options.add_argument
    document = "an id or its first characters, or a path; path:12-30 are lines, path#Name one definition"
    add("document", metavar="ID|PATH[:LINE|#NAME]", help=document)
    add("--query", metavar="WORDS", help="only the parts around these words")
    add("-s", "--source", help="only in this source, by name (git:platform) or type (git)")
    add("--max-tokens", type=amount, metavar="N", help="cut the text after about this many tokens")
    options.flag("--body", "print only the text")


def run_get(args: Namespace) -> int:
    projecting = args.query is not None
    with fresh_workspace(configuration(args.config), projecting=projecting) as (workspace, gone):
        place = resolve(workspace, args.document, args.source)
        document = place.stored.document
        if (document.source, document.source_id) in gone:
            raise NotFound(f"{document.source_id} was deleted; `ctx index` removes it from the index")
        limits = {"start_line": place.first, "end_line": place.last, "max_tokens": args.max_tokens}
        limits |= {"symbol": place.symbol, "query": args.query, "id": document.id}
        arguments = {name: value for name, value in limits.items() if value is not None}
        labels = {"start_line": "the first line", "end_line": "the last line"}
        reply = _call(workspace, "get", arguments, labels)
    if args.json:
        return tell(True, reply)
    if not args.body:
        for name in _FIELDS:
            if reply.get(name):
                print(f"{name + ':':<13} {plain(str(reply[name]))}")
        if "start_line" in reply:
            print(f"{'lines:':<13} {reply['start_line']}-{reply['end_line']} of {reply['total_lines']}")
        print()
    body = prose(reply["body"]).encode("utf-8", "replace").decode("utf-8")
    print(body, end="" if body.endswith("\n") else "\n", flush=True)
    if cut := reply.get("cut"):
        path = reply["source_id"].replace("\\", r"\\")
        cut = re.sub(r"(\d+) to (\d+) (.*)start_line = \1", rf"\1 to \2 \3`ctx get {path}:\1-\2`", cut)
        warn(f"Note: {plain(cut)}")
    return 0


def resolve(workspace: Workspace, text: str, source: str | None = None) -> Place:
    """Finds the document that `text` names: by an id, by a path in the index or on this machine, or by the
    beginning of an id or of a commit's id. Raises `NotFound`, `BadRequest`.
    """
    path = text if sound(text) == text else encode_name(text)
    catalog, prefix = workspace.catalog, path.strip().lower()
    if stored := catalog.document(prefix):
        return Place(stored)
    names = resolve_sources([source], workspace.searched_names()) if source else workspace.searched_names()
    places = [] if text.startswith(("./", "../")) else exact_places(workspace, path, source)
    for folder in workspace.config.filesystems:
        if folder.name in (names or ()):
            inside = encode_name(os.path.relpath(os.path.realpath(text), os.path.realpath(folder.root)))
            places += [] if inside.startswith("../") else exact_places(workspace, inside, folder.name)
    begun = prefix.removeprefix(COMMITS)
    if not places and len(begun) >= _MIN_PREFIX and _HEX.issuperset(begun):
        ids = [] if begun != prefix else catalog.complete("id", prefix, None, _SHOWN_CANDIDATES)
        commits = [
            document_id(name, path)
            for name in names or ()
            for path in catalog.complete("path", COMMITS + begun, name, _SHOWN_CANDIDATES)
        ]
        places = [Place(stored) for id in ids or commits if (stored := catalog.document(id))]
    if places:
        return the_only(list({place.stored.document.id: place for place in places}.values()), text)
    try:
        return place_of(workspace, path, source)
    except NotFound as error:
        if os.path.isdir(text):
            hint = "that is a folder: search it with `ctx search --path FOLDER/ WORDS`"
        elif os.path.isfile(text):
            hint = "the file exists but is not indexed: `ctx index` shows what it leaves out and why"
        else:
            raise
        raise NotFound(f"no document at '{text[:200]}'; {hint}") from error


# -- outline and symbol --------------------------------------------------------------------------------------


def outline_options(options: Parser) -> None:
    """List the definitions of a file, or the headings of a page.

    ctx outline store.py
    ctx outline store.py#Store open
    """
    options.add_argument("path", metavar="PATH[#NAME]", help="a file, or file#Class for the members of one")
    options.add_argument("query", nargs="*", help="only members with one of these words")
    options.add_argument("-s", "--source", help="only this source, by name (git:platform) or type (git)")


def symbol_options(options: Parser) -> None:
    """Show where a name is defined, what it calls and where it is used.

    ctx symbol Store.find
    ctx symbol find -p 'src/**'
    """
    add = options.add_argument
    add("name", help="a function, class, method or variable: find, Store.find")
    add("-p", "--path", metavar="GLOB", help="only paths like src/** or *.py")
    add("-n", "--limit", type=int, metavar="N", help="the most definitions and references (default: 30)")
    add("-s", "--source", help="only this source, by name (git:platform) or type (git)")


def _navigate(tool: str, args: Namespace) -> int:
    names = ("path", "query", "name", "limit", "source")
    arguments: dict[str, JSON] = {name: value for name in names if (value := getattr(args, name, None))}
    if "query" in arguments:
        arguments["query"] = " ".join(arguments["query"])
    if not args.json:
        arguments["format"] = "markdown"
    labels = {"path": "the path", "name": "the name", "query": "the words"}
    with fresh_workspace(configuration(args.config)) as (workspace, _):
        reply = _call(workspace, tool, arguments, labels)
        return tell(args.json, reply, *([] if args.json else [prose(reply["text"])]))


run_outline, run_symbol = partial(_navigate, "outline"), partial(_navigate, "symbol")


# -- changed files -------------------------------------------------------------------------------------------


@contextmanager
def fresh_workspace(
    config: Config, *, embed: bool = False, projecting: bool = True
) -> Iterator[tuple[Workspace, set[tuple[str, str]]]]:
    """Yields a workspace after indexing the files that changed in its folders, and the (source, source_id) of
    documents whose files were deleted but that are still in the index. Prints a note if something was not
    indexed. `embed`: also embeds the files. Raises `StoreError` if nothing is indexed yet.
    """
    with ExitStack() as stack:
        workspace = stack.enter_context(open_workspace(config, reading=True, projecting=projecting))
        gone: set[tuple[str, str]] = set()
        if config.filesystems and not config.store.url and not of_project(servers(), config.root):
            ends_s = time.monotonic() + TIME_S
            changes = _look(workspace.catalog, config)
            if changes:
                left = sum(len(found.items) + len(found.gone) for found in changes)
                try:
                    writer = stack.enter_context(open_workspace(config))
                    with without_reported():  # `ctx index` reports the files that cannot be read
                        left = _index(writer, changes, ends_s, embed=embed)
                    workspace = writer
                except (CtxError, OSError):  # another process is writing, or the store is read-only
                    gone = {(found.connector.name, path) for found in changes for path in found.gone}
                if left:
                    have = "file has" if left == 1 else "files have"
                    warn(f"Note: {left:,} {have} changed since; run `ctx index`")
        yield workspace, gone


def _look(catalog: Catalog, config: Config) -> list[_Changes]:
    """Scans the configured folders for changes since they were indexed."""
    textless = _read_textless(config)
    changes = []
    for connector in folders(config):
        last = catalog.last_run(connector.name)
        if last is None:
            continue  # never indexed: a search reports that
        signature = run_signature(connector, config.chunking.max_tokens, config.chunking.overlap_tokens)
        if not read_alike(last.signature, signature):
            warn(f"Note: {plain(connector.name)} must be read again; run `ctx index`")
            continue
        known = catalog.fingerprints(connector.name)
        log = ScanLog()
        passed = textless.get(connector.name, {})
        try:
            seen = list(connector.scan(known, log, brief=True))
        except SourceError as error:
            warn(f"Note: {plain(error.message)}")
            continue
        items = [item for item in seen if passed.get(item.source_id) != item.fingerprint]
        gone = known.keys() - log.unchanged - {item.source_id for item in seen}
        gone -= {source_id for source_id in gone if source_id.startswith(tuple(log.withheld))}
        if items or gone:
            items.sort(key=lambda item: item.updated_ms, reverse=True)  # latest change first
            changes.append(_Changes(connector, items, gone))
    return changes


def _index(workspace: Workspace, changes: Sequence[_Changes], ends_s: float, *, embed: bool) -> int:
    """Indexes changes until `ends_s` on the monotonic clock. Returns how many files are left."""
    indexer = workspace.indexer
    indexer.lock_timeout_s = LOCK_TIMEOUT_S
    left = chunks = 0
    for found in changes:
        read: list[SourceItem] = []
        report = indexer.run_source(found.connector, items=partial(_changed, found, read, ends_s))
        left += len(found.items) - len(read)
        chunks += report.chunks
        _remember_textless(workspace, found.connector.name, read)
    if embed and 0 < chunks <= EMBEDDED_AT_MOST and workspace.config.embedding.provider == "local":
        with suppress(CtxError):
            indexer.embed(limit=chunks)
    return left


def _changed(
    found: _Changes, read: list[SourceItem], ends_s: float, known: Mapping[str, str], log: ScanLog
) -> Iterator[SourceItem]:
    log.gone |= found.gone
    for item in found.items:
        if time.monotonic() >= ends_s:
            return
        read.append(item)
        yield item


def _read_textless(config: Config) -> dict[str, dict[str, str]]:
    """The fingerprints of files that were read but not stored, because they have no text or cannot be read:
    source -> source_id -> fingerprint. Such files need not be read again before each command.
    """
    try:
        path = os.path.join(config.folder, _TEXTLESS)
        data = files.read_file(path, beneath=config.folder, most=_MAX_TEXTLESS_BYTES)
        rows: dict[str, dict[str, str]] = json.loads(data)
    except (OSError, ValueError):
        return {}
    return rows


def _remember_textless(workspace: Workspace, source: str, read: Sequence[SourceItem]) -> None:
    stored = workspace.catalog.fingerprints(source, [item.source_id for item in read])
    passed = {
        item.source_id: item.fingerprint
        for item in read
        if stored.get(item.source_id) != item.fingerprint and RACY not in item.fingerprint
    }
    if passed:
        rows = _read_textless(workspace.config)
        rows[source] = {**rows.get(source, {}), **passed}
        with suppress(OSError):
            files.replace(os.path.join(workspace.config.folder, _TEXTLESS), json.dumps(rows).encode())
