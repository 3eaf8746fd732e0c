"""`ctx get`: a document by its id, the beginning of an id, its path, or `path:line`."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ctx.cli.common import configuration, plain, print_json, prose, reply_of
from ctx.cli.options import Parser, describe
from ctx.connectors.names import encode_name
from ctx.errors import BadRequest, NotFound
from ctx.identity import document_id
from ctx.store.base import Catalog
from ctx.store.rows import Listing
from ctx.text import nfc, sound, spellings
from ctx.types import COMMITS, JSON, source_kind
from ctx.workspace import Workspace, open_workspace

LEAST_PREFIX = 4  # characters of an id: fewer begin too many of them, and are words more often
SHOWN_CANDIDATES = 5  # in an answer's one line
PAGE = 5000  # documents listed at a time
FIELDS = ("title", "source", "source_id", "source_url", "updated_at", "author", "content_type", "id")
_HEX = frozenset("0123456789abcdef-")


class Lines(NamedTuple):
    """Lines counted from 1, both ends included; None: to that end of the document."""

    first: int | None = None
    last: int | None = None


ALL_LINES = Lines()


class Match(NamedTuple):
    """A document that a person may have meant."""

    id: str
    source: str
    source_id: str


def add_options(command: str, options: Parser) -> None:
    describe(options, "Print a document, or some of its lines.", json=True)
    options.add_argument(
        "document",
        metavar="ID|PATH[:LINE|#NAME]",
        help="its id or the beginning of it, or its path as `ctx search` prints it; "
        "path:12 begins at line 12, path:12-30 ends at line 30, path#Name is one definition or section",
    )
    options.add_argument("--query", metavar="WORDS", help="only the parts around these words")
    options.add_argument("--source", help="only in this source, by name (git:platform) or type (git)")
    options.add_argument(
        "--lines", metavar="FIRST:LAST", help="only these lines, counted from 1 (12:30, 12:, :30)"
    )
    options.add_argument(
        "--max-tokens", type=int, metavar="N", help="cut the text behind about so many tokens"
    )
    options.add_argument("--body", action="store_true", help="print the text alone")


def run(command: str, args: Namespace) -> int:
    lines = ALL_LINES if args.lines is None else parse_lines(args.lines)
    with open_workspace(
        configuration(args.config), reading=True, projecting=args.query is not None
    ) as workspace:
        (match, suffix_lines), symbol = _resolved(workspace, args.document, args.source)
        if lines == ALL_LINES:
            lines = suffix_lines
        named = {"symbol": symbol, "query": args.query, "max_tokens": args.max_tokens}
        document = _narrowed(workspace, match, lines, named)
    if args.json:
        print_json(document)
    else:
        _print_document(document, body_alone=args.body)
    return 0


def parse_lines(text: str) -> Lines:
    """`12:30`, `12-30`, `12:`, `:30` or `12` (that line alone). Raises `BadRequest`."""
    first, mark, last = text.replace("-", ":").partition(":")
    ends = (first, last if mark else first)
    if not any(ends) or not all(not end or end.isdecimal() for end in ends) or "0" in ends:
        raise BadRequest(f"--lines must be FIRST:LAST, such as 12:30, got '{text[:40]}'")
    return Lines(*(int(end) if end else None for end in ends))


def resolve(workspace: Workspace, text: str, source: str | None = None) -> tuple[Match, Lines]:
    """The one document that is meant, and the lines that its path names.

    Raises `NotFound` where there is none, `BadRequest` naming the candidates where there are several.
    """
    matches = _matches(workspace, text, source)
    path, lines = text, ALL_LINES
    if not matches:
        path, lines = _without_lines(text)
        matches = _matches(workspace, path, source) if path != text else []
    if not matches:
        label = f"{path[:120]}" + (f" in source {source}" if source else "")
        raise NotFound(f"no document with id or path: {label}; {_mend(path)}")
    if len(matches) > 1:
        raise BadRequest(_which(path, matches))
    return matches[0], lines


def _resolved(workspace: Workspace, text: str, source: str | None) -> tuple[tuple[Match, Lines], str | None]:
    """The document and lines that a text means, and the name behind `#`, where the whole is no path."""
    path, _, symbol = text.partition("#")
    if path and symbol:
        try:
            return resolve(workspace, text, source), None
        except NotFound:
            return resolve(workspace, path, source), symbol
    return resolve(workspace, text, source), None


def _mend(path: str) -> str:
    """What to do where no document is called so."""
    if os.path.isdir(path):
        return "that is a folder: `ctx search --path FOLDER/ WORDS` searches one"
    if os.path.isfile(path):
        return "the file is there and is not indexed: `ctx index` says what it leaves out, and why"
    return "`ctx search WORDS` prints both"


def _which(path: str, matches: list[Match]) -> str:
    names = [f"{match.source_id} ({match.source}, {match.id})" for match in matches[:SHOWN_CANDIDATES]]
    excess = len(matches) - len(names)
    ending = f" and {excess} more" if excess else ""
    ways = ["--source"] if len({match.source for match in matches}) > 1 else []
    ways += ["more of it"] if len({match.source_id for match in matches}) > 1 else []
    mend = f"give {', or '.join([*ways, 'an id'])}"
    return f"'{path[:120]}' fits {len(matches)} documents: {'; '.join(names)}{ending}; {mend}"


def _without_lines(text: str) -> tuple[str, Lines]:
    """`path:12` and `path:12-30` taken apart; a path without such an end stays whole."""
    path, _, end = text.rpartition(":")
    first, mark, last = end.partition("-")
    if not path or not first.isdecimal() or (mark and not last.isdecimal()):
        return text, ALL_LINES
    return path, Lines(int(first), int(last) if mark else None)


def _matches(workspace: Workspace, text: str, source: str | None) -> list[Match]:
    """Every document that fits best: an id, else a whole path, else the beginning of an id, else the end of a
    path.
    """
    file, text = text, text if sound(text) == text else encode_name(text)
    begun = text.strip().lower()
    stored = workspace.catalog.document(begun)
    if stored is not None:
        return [Match(stored.document.id, stored.document.source, stored.document.source_id)]
    return (
        list(_at_path(workspace, text, file, source))
        or _beginning_so(workspace, begun)
        or list(_commits(workspace, begun.removeprefix(COMMITS), source))
        or list(_ending_so(workspace, text, source, str))
        or ([] if text.isascii() else list(_ending_so(workspace, text, source, nfc)))
    )


def _beginning_so(workspace: Workspace, prefix: str) -> list[Match]:
    """The documents whose ids begin with that."""
    if len(prefix) < LEAST_PREFIX or not _HEX.issuperset(prefix):
        return []
    catalog = workspace.catalog
    ids = catalog.complete("id", prefix, None, SHOWN_CANDIDATES * 4)
    documents = [stored.document for id in ids if (stored := catalog.document(id)) is not None]
    return [Match(document.id, document.source, document.source_id) for document in documents]


def _paths(text: str, file: str, root: str | None) -> list[str]:
    """What may be meant, as a source names it; `root` is that of a folder."""
    paths = [] if text.startswith(("./", "../")) else [text]
    if root is not None:
        inside = os.path.relpath(os.path.realpath(file), os.path.realpath(root))
        paths.append(encode_name(inside.replace(os.sep, "/")))
    return paths


def _at_path(workspace: Workspace, text: str, file: str, source: str | None) -> Iterator[Match]:
    """The documents of that path: `text` as a source names it, or `file` of this machine."""
    names = workspace.catalog.complete("source", "", None, 10_000)
    roots = {folder.name: folder.root for folder in workspace.config.filesystems}
    for name in names if source is None else [name for name in names if source in (name, source_kind(name))]:
        ids: set[str] = set()
        for path in _paths(text, file, roots.get(name)):
            for spelling in spellings(path):
                id = document_id(name, spelling)
                if id not in ids and workspace.catalog.document(id) is not None:
                    ids.add(id)
                    yield Match(id, name, spelling)
                    break


def _commits(workspace: Workspace, begun: str, source: str | None) -> Iterator[Match]:
    """The commits whose id begins so."""
    if len(begun) < LEAST_PREFIX or not _HEX.issuperset(begun):
        return
    for name in workspace.catalog.complete("source", "", None, 10_000):
        if source in (None, name, source_kind(name)):
            for path in workspace.catalog.complete("path", COMMITS + begun, name, SHOWN_CANDIDATES * 4):
                yield Match(document_id(name, path), name, path)


def _ending_so(
    workspace: Workspace, text: str, source: str | None, spelt: Callable[[str], str]
) -> Iterator[Match]:
    """The documents whose path ends with these whole names: `auth.md` for `docs/auth.md`.
    The two are compared as `spelt` has them.
    """
    end = spelt("/" + text.strip("/"))
    for listing in listings(workspace.catalog):
        if source in (None, listing.source, source_kind(listing.source)) and (
            spelt(listing.source_id).endswith(end)
        ):
            yield Match(listing.id, listing.source, listing.source_id)


def listings(catalog: Catalog) -> Iterator[Listing]:
    """Every document, by source and path."""
    after = None
    while True:
        page = catalog.list_documents(after, PAGE)
        yield from page
        if len(page) < PAGE:
            return
        after = (page[-1].source, page[-1].source_id)


def _narrowed(workspace: Workspace, match: Match, lines: Lines, named: dict[str, JSON]) -> dict[str, JSON]:
    """The reply of the `get` tool, with only what was named: lines, a symbol, words, a length."""
    arguments: dict[str, JSON] = {"id": match.id}
    ends = {"start_line": lines.first, "end_line": lines.last, **named}
    arguments |= {name: value for name, value in ends.items() if value is not None}
    labels = {"start_line": "the first line", "end_line": "the last line"}
    return reply_of(workspace.toolbox, "get", arguments, labels)


def _print_document(document: dict[str, JSON], *, body_alone: bool) -> None:
    if not body_alone:
        for name in FIELDS:
            if document.get(name):
                print(f"{name + ':':<13} {plain(str(document[name]))}")
        if "start_line" in document:
            span = f"{document['start_line']}-{document['end_line']} of {document['total_lines']}"
            print(f"{'lines:':<13} {span}")
        print()
    body = prose(document["body"])
    print(body.encode("utf-8", "replace").decode("utf-8"), end="" if body.endswith("\n") else "\n")
    if document.get("cut"):
        print(f"Note: {plain(document['cut'])}", file=sys.stderr)
