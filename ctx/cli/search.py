"""`ctx search`."""

import sys
from argparse import Namespace

from ctx.cli.common import configuration, plain, print_json, prose, reply_of, styled, terminal_width
from ctx.cli.options import Parser, describe
from ctx.clock import parse_ms
from ctx.types import JSON, MODES
from ctx.workspace import Workspace, open_workspace


def add_options(command: str, options: Parser) -> None:
    describe(options, "Search the index.", json=True)
    add = options.add_argument
    add("query", nargs="+", help="what to look for; any text is a query")
    add("--mode", choices=MODES, default="keyword", help="keyword (default), semantic or hybrid")
    add(
        "--source",
        action="append",
        help="only this source, by name (git:platform) or type (git); may be repeated",
    )
    add("--path", action="append", metavar="GLOB", help="only paths like docs/** or *.py; may be repeated")
    add("--type", action="append", help="only prose, code, or a media type; may be repeated")
    add("--since", metavar="DATE", help="updated at or after this date (2026-01-31)")
    add("--until", metavar="DATE", help="updated at or before this date")
    add("--limit", type=int, help="how many results (default: [retrieval] final_limit)")
    add("--offset", type=int, help="how many results to pass over")
    add("--per-document", type=int, metavar="N", help="passages shown of one document (default: 1)")
    add("--max-tokens", type=int, metavar="N", help="leave out results beyond about so many tokens")
    add("--prefix", action="store_true", help="the last word may be unfinished")
    add("--explain", action="store_true", help="say how each result was ranked")


def _arguments(args: Namespace) -> dict[str, JSON]:
    """The options as arguments of the `search` tool."""
    filters = {name: getattr(args, name) for name in ("source", "path", "type", "since", "until")}
    numbers = {name: getattr(args, name) for name in ("limit", "offset", "per_document", "max_tokens")}
    return {
        "query": " ".join(args.query),
        "mode": args.mode,
        "filters": {name: value for name, value in filters.items() if value},
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: True for name in ("explain", "prefix") if getattr(args, name)},
    }


def run(command: str, args: Namespace) -> int:
    with open_workspace(configuration(args.config), reading=True) as workspace:
        reply = reply_of(workspace.toolbox, "search", _arguments(args), {"query": "the query"})
        if not (reply["results"] or reply.get("note") or args.json):
            reply["note"] = _advice(args, workspace, bool(reply.get("partial")))
    if args.json:
        print_json(reply)
    else:
        _print(reply, explain=args.explain)
    return 0


def _print(reply: dict[str, JSON], *, explain: bool) -> None:
    for remark in ("partial", "note", "cut"):
        if reply.get(remark):
            print(f"Note: {plain(reply[remark])}", file=sys.stderr)
    if reply["results"]:
        _show(reply["results"], explain=explain)
    else:
        print("No results.")


def _advice(args: Namespace, workspace: Workspace, partial: bool) -> str | None:
    """What to try after a search without results. `partial`: the index is incomplete."""
    if not any(status.doc_count for status in workspace.statuses()):
        return "no document is indexed; `ctx index` says where it looks and what it leaves out"
    since, until = args.since, args.until
    if since and until and parse_ms(since) > parse_ms(until, end_of_day=True):
        return "--until is before --since, and no document is of both"
    if partial:
        return "`ctx index` completes the index; a server that runs does so by itself"
    if args.mode == "keyword" and workspace.config.embedding.provider != "disabled":
        return "`--mode hybrid` also finds what says it in other words"
    return None


def _show(results: list[JSON], *, explain: bool) -> None:
    bold, faint, mark, off = ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m") if styled() else ("", "", "", "")
    lines = []
    for number, result in enumerate(results, 1):
        title = f"{bold}{plain(result['title'])}{off}  {faint}{result['score']:.2f}{off}"
        lines.append(f"{faint}{number:>2}.{off} {title}")
        for passage in (result, *result.get("passages", ())):
            heading = f"  {faint}› {plain(passage['heading'])}{off}" if passage["heading"] else ""
            lines.append(f"    {mark}{plain(result['source_id'])}:{passage['start_line']}{off}{heading}")
            shown = _highlight(passage, bold, off)
            if passage.get("symbol") or "\n" in passage["snippet"]:  # lines of a source file, as they are
                lines += [f"    {line}" for line in shown.split("\n")]
            else:
                lines += [f"    {line}" for line in _wrapped(shown.split(), (bold, off))]
        lines.append(f"    {faint}{result['id']}  {plain(result['source'])}{off}")
        if explain:
            for leg, reasons in result["explain"].items():
                lines.append(f"    {faint}{leg}: {plain(_in_words(reasons))}{off}")
    print("\n".join(lines))


def _in_words(reasons: JSON) -> str:
    if isinstance(reasons, dict):
        return ", ".join(f"{name} {value}" for name, value in reasons.items())
    return ", ".join(map(str, reasons)) if isinstance(reasons, list) else str(reasons)


def _highlight(passage: JSON, on: str, off: str) -> str:
    snippet: str = passage["snippet"]
    if not on:
        return prose(snippet)
    marked, last = "", 0
    for start, end in passage.get("highlights", ()):
        marked += prose(snippet[last:start]) + on + prose(snippet[start:end]) + off
        last = end
    return marked + prose(snippet[last:])


def _wrapped(words: list[str], unseen: tuple[str, str]) -> list[str]:
    """The words in lines that fit the terminal below their indent; in one line where there is no terminal."""
    columns = terminal_width()
    if columns is None:
        return [" ".join(words)]
    width = columns - 4
    lines, room = [""], 0
    for word in words:
        length = len(word) - sum(word.count(code) * len(code) for code in unseen if code)
        if length >= room and lines[-1]:
            lines.append("")
        room = room - 1 - length if lines[-1] else width - length
        lines[-1] += f" {word}" if lines[-1] else word
    return lines
