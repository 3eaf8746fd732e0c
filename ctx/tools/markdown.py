"""Replies of the document tools as compact Markdown, for models and terminals."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ctx.code.outline import Weight, best_lines, block_around, enclosing, long_comment
from ctx.code.symbols import Definition
from ctx.models import JSON, Document
from ctx.search.searcher import Searcher
from ctx.search.snippets import Matcher
from ctx.store.base import Catalog
from ctx.text.filetypes import is_code
from ctx.text.strings import counted, first_few
from ctx.tools.toolbox import Tool

LINES = 3  # maximum lines to show per symbol
MAX_CHARS = 160  # maximum characters to show per line of code
MEASURED_LINES = 150  # maximum lines of a symbol in which to look for words of the query
# Symbols and passages are left out if their share of the query's words is below FLOOR times the best share,
# except the first one of each of the LEADING best files.
FLOOR = 0.5
LEADING = 3
LONG = 60  # lines; for a longer definition, the reply also names its best block


class _Shown(NamedTuple):
    """A symbol or passage as text, and its share of the query's words in [0, 1]."""

    text: list[str]
    share: float


def search_text(reply: dict[str, JSON], query: str, searcher: Searcher, catalog: Catalog) -> str:
    """Results grouped by file: for code, each symbol's line range, name and best lines; for prose, the
    passage.

    Leaves out results that match much less of the query than the best one, except the first of each top file.
    """
    matcher = searcher.matcher(query)
    parts: list[str] = [reply[name] for name in ("note", "partial", "cut") if reply.get(name)]
    several = len({row["source"] for row in reply["results"]}) > 1
    files: list[tuple[str, list[_Shown], str]] = []
    for row in reply["results"]:
        stored = catalog.document(row["id"])
        if stored is not None:
            document = stored.document
            place = f"{document.source} {document.source_id}" if several else document.source_id
            copies = first_few([copy["source_id"] for copy in row.get("also_in", ())])
            files.append((place, list(_shown(row, document, matcher)), copies))
    least = FLOOR * max((each.share for _, shown, _ in files for each in shown), default=0.0)
    for rank, (place, shown, copies) in enumerate(files):
        kept = [
            line
            for number, each in enumerate(shown)
            if each.share >= least or (rank < LEADING and not number)
            if each.share or not rank
            for line in each.text
        ]
        if kept and copies:
            kept.append(f"  also in {copies}")
        if kept:
            parts.append("\n".join([place, *kept]))
    if not reply["results"]:
        parts.append("0 matches.")
    return "\n".join(parts)


def _shown(row: JSON, document: Document, matcher: Matcher) -> Iterator[_Shown]:
    lines = document.body.split("\n")
    seen: set[tuple[int, int]] = set()
    listed: set[int] = set()  # the numbers of the lines that are already shown
    section = ""  # the heading above the previous passage
    for passage in (row, *row.get("passages", ())):
        first, last = passage["start_line"], passage["end_line"]
        if not is_code(document.media_type):
            repeated = passage["heading"] == section
            section = passage["heading"]
            heading = "" if repeated or not section else f"  {' > '.join(section.split(' > ')[-2:])}"
            text = [f"    {line}" for line in passage["snippet"].split("\n") if line.strip()]
            share = matcher.share_in(f"{passage['heading']}\n{passage['snippet']}")
            yield _Shown([f"  {first}-{last}{heading}", *text], share)
            continue
        around = enclosing(document.definitions, first + _best(passage, matcher.share_in))
        if around is not None:
            first, last = around.start_line, around.end_line
        if (first, last) in seen:
            continue
        seen.add((first, last))
        best = best_lines(lines, first, last, matcher.share_in, LINES)
        fresh = [line for line in best if line[0] not in listed]
        listed.update(number for number, _ in fresh)
        if not best:
            yield _code(document, lines, around, (first, last), [], matcher)
        # Lines of an inner definition, such as a method of a class, are listed under it.
        groups: dict[Definition | None, list[tuple[int, str]]] = {}
        for line in fresh:
            groups.setdefault(enclosing(document.definitions, line[0]), []).append(line)
        for definition, group in groups.items():
            span = (definition.start_line, definition.end_line) if definition else (first, last)
            seen.add(span)
            yield _code(document, lines, definition, span, group, matcher)


def _code(
    document: Document,
    lines: Sequence[str],
    definition: Definition | None,
    span: tuple[int, int],
    best: list[tuple[int, str]],
    matcher: Matcher,
) -> _Shown:
    """The range and name of a definition and its best lines; in a long one, also the block to read first.
    `lines` are those of the document.
    """
    first, last = span
    label = f"  {definition.kind} {definition.qualified}" if definition else ""
    if best and last - first >= LONG:
        block = block_around(lines, first, last, best[0][0])
        if block and best[-1][0] <= block[1]:
            label += f"  (block {block[0]}-{block[1]})"
    text = [f"    {number}| {_clipped(line)}" for number, line in best if number != first or not definition]
    share = matcher.share_in("\n".join([document.source_id, *lines[first - 1 : last][:MEASURED_LINES]]))
    return _Shown([f"  {first}-{last}{label}", *text], share)


def _best(passage: JSON, weight: Weight) -> int:
    shares = [weight(line) for line in passage["snippet"].split("\n")]
    return max(range(len(shares)), key=lambda i: (shares[i], -i))


def _clipped(line: str) -> str:
    return line if len(line) <= MAX_CHARS else line[: MAX_CHARS - 1] + "…"


def get_text(reply: dict[str, JSON]) -> str:
    """A document's lines below a line with its path and line range. Lines of code have their numbers, and the
    long comment of a definition is shortened.
    """
    total = reply["total_lines"]
    symbol = reply.get("symbol")
    name = f"  {symbol['kind']} {symbol['name']}" if symbol else ""
    head = f"{reply['source_id']}:{reply['start_line']}-{reply['end_line']} of {total}{name}"
    spans = reply.get("parts") or [(reply["start_line"], reply["end_line"])]
    body = reply["body"].removesuffix("\n").split("\n") if reply["body"] else []
    if is_code(reply["content_type"]):
        numbers = iter([number for first, last in spans for number in range(first, last + 1)])
        body = [
            line if line.startswith("… lines ") and reply.get("parts") else f"{next(numbers, '')}| {line}"
            for line in body
        ]
        if symbol and not reply.get("parts") and (hidden := long_comment(reply["body"].split("\n"))):
            start, end = hidden
            line = reply["start_line"] + start
            body[start:end] = [f"… lines {line}-{line + end - start - 1}: the rest of the comment"]
    notes = [f"({reply[key]})" for key in ("cut", "note") if reply.get(key)]
    return "\n".join([head, *body, *notes])


def outline_text(reply: dict[str, JSON]) -> str:
    """One line per member: its range and signature, indented by nesting depth."""
    rows = [f"{reply['path']}  {reply['total_lines']} lines"]
    around: list[int] = []  # last lines of the enclosing members
    for row in reply["members"]:
        while around and around[-1] < row["end_line"]:
            around.pop()
        indent = "  " * len(around)
        rows.append(
            f"{indent}{row['start_line']}-{row['end_line']}  {_clipped(row['signature'] or row['name'])}"
        )
        around.append(row["end_line"])
    return "\n".join([*rows, *([reply["note"]] if reply.get("note") else [])])


def symbol_text(reply: dict[str, JSON]) -> str:
    """The definitions, the names that the first one calls, and the references grouped by file."""
    definitions, references = reply["definitions"], reply["references"]
    definition_count = counted(reply["definition_count"], "definition")
    parts = [f"{definition_count}, {counted(reply['reference_count'], 'reference')}"]
    for row in definitions:
        span = f"{row['path']}:{row['start_line']}-{row['end_line']}"
        label = f"{row['kind']} {row['name']}"
        signature = f"  {_clipped(row['signature'])}" if row["signature"] not in ("", label) else ""
        parts.append(f"{span}  {label}{signature}")
    if reply.get("calls"):
        parts.append(f"calls: {', '.join(reply['calls'])}")
    last = None
    for row in references:
        if row["path"] != last:
            last = row["path"]
            parts.append(last)
        within = f" in {row['within']}" if row["within"] else ""
        parts.append(f"  {row['line']}{within}| {_clipped(row['text'])}")
    return "\n".join([*parts, *([reply["note"]] if reply.get("note") else [])])


def sources_text(reply: dict[str, JSON]) -> str:
    """One line per source: its name, number of documents and health."""
    rows = []
    for row in reply["sources"]:
        waiting = f", {row['pending']} chunks not embedded yet" if row.get("pending") else ""
        note = f": {row['note']}" if row.get("note") else ""
        health = "" if row["healthy"] else " (failed)"
        rows.append(f"{row['name']}  {row['doc_count']} documents{waiting}{health}{note}")
    return "\n".join(rows) or "no sources"


TEXTS = {"get": get_text, "outline": outline_text, "symbol": symbol_text, "sources": sources_text}


def answer_text(
    tool: Tool, arguments: dict[str, JSON], reply: JSON, searcher: Searcher, catalog: Catalog
) -> str:
    """The reply of a document tool as Markdown."""
    if tool.name == "search":
        return search_text(reply, arguments["query"], searcher, catalog)
    return TEXTS[tool.name](reply)
