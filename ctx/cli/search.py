"""`ctx search` and `ctx get`."""

import os
import sys

from ctx.cli.common import configuration, parser, plain, print_json, prose, styled
from ctx.types import JSON, Caller
from ctx.workspace import open_workspace

MODES = ("keyword", "semantic", "hybrid")


def run(command: str, argv: list[str]) -> int:
    return _search(argv) if command == "search" else _get(argv)


class _Asked:
    """What a search was asked for; the names are those of the options."""

    def __init__(self) -> None:
        self.query: list[str] = []
        self.mode = "keyword"
        self.config: str | None = None
        self.source: str | None = None
        self.since: str | None = None
        self.until: str | None = None
        self.limit: int | None = None
        self.json = False
        self.explain = False


def _asked(argv: list[str]) -> _Asked:
    """The plain cases, read without argparse: importing and filling it costs ten milliseconds, a quarter of the whole command.

    Whatever is not plain (help, mistakes, `--limit=3`) goes to argparse, which has the words for it.
    """
    asked = _Asked()
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            asked.query.append(word)
        elif word in ("--json", "--explain"):
            setattr(asked, word[2:], True)
        elif word in ("--mode", "--source", "--since", "--until", "--config", "--limit"):
            value = next(words, "-")
            if (
                value.startswith("-")
                or (word == "--mode" and value not in MODES)
                or (word == "--limit" and not value.isdecimal())
            ):
                return _parsed(argv)
            setattr(asked, word[2:], int(value) if word == "--limit" else value)
        else:
            return _parsed(argv)
    return asked if asked.query else _parsed(argv)


def _parsed(argv: list[str]) -> _Asked:
    options = parser("search", "Search the index.", json=True)
    options.add_argument("query", nargs="+", help="what to look for; any text is a query")
    options.add_argument(
        "--mode", choices=MODES, default="keyword", help="keyword (default), semantic or hybrid"
    )
    options.add_argument("--source", help="only this source, by name (git:platform) or type (git)")
    options.add_argument("--since", metavar="DATE", help="updated at or after this date (2026-01-31)")
    options.add_argument("--until", metavar="DATE", help="updated at or before this date")
    options.add_argument("--limit", type=int, help="how many results (default: [retrieval] final_limit)")
    options.add_argument("--explain", action="store_true", help="say how each result was ranked")
    return options.parse_args(argv, namespace=_Asked())


def _search(argv: list[str]) -> int:
    args = _asked(argv)
    with open_workspace(configuration(args.config), reading=True) as workspace:
        wanted: dict[str, JSON] = {"query": " ".join(args.query), "mode": args.mode, "limit": args.limit}
        filters = {"source": args.source, "since": args.since, "until": args.until}
        wanted["filters"] = {name: value for name, value in filters.items() if value is not None}
        if args.explain:
            wanted["explain"] = True
        reply = workspace.toolbox.call("search", wanted, Caller("cli"))
    for remark in ("partial", "note"):
        if reply.get(remark) and not args.json:
            print(f"Note: {plain(reply[remark])}", file=sys.stderr)
    if args.json:
        print_json(reply)
    elif not reply["results"]:
        print("No results.")
    else:
        _show(reply["results"], explain=args.explain)
    return 0


def _show(results: list[JSON], *, explain: bool) -> None:
    bold, faint, mark, off = ("\x1b[1m", "\x1b[2m", "\x1b[33m", "\x1b[0m") if styled() else ("", "", "", "")
    for number, result in enumerate(results, 1):
        place = f"{plain(result['source_id'])}:{result['start_line']}"
        print(
            f"{faint}{number:>2}.{off} {bold}{plain(result['title'])}{off}  {faint}{result['score']:.2f}{off}"
        )
        heading = f"  {faint}› {plain(result['heading'])}{off}" if result["heading"] else ""
        print(f"    {mark}{place}{off}{heading}")
        for line in _wrapped(_highlight(result, bold, off).split(), (bold, off)):
            print(f"    {line}")
        print(f"    {faint}{result['id']}  {plain(result['source'])}{off}")
        if explain:
            for leg, said in result["explain"].items():
                print(f"    {faint}{leg}: {plain(_in_words(said))}{off}")


def _in_words(said: JSON) -> str:
    if isinstance(said, dict):
        return ", ".join(f"{name} {value}" for name, value in said.items())
    return ", ".join(map(str, said)) if isinstance(said, list) else str(said)


def _highlight(result: JSON, on: str, off: str) -> str:
    snippet: str = result["snippet"]
    if not on:
        return prose(snippet)
    shown, last = "", 0
    for start, end in result.get("highlights", ()):
        shown += prose(snippet[last:start]) + on + prose(snippet[start:end]) + off
        last = end
    return shown + prose(snippet[last:])


def _wrapped(words: list[str], unseen: tuple[str, str]) -> list[str]:
    """The words in lines that fit the terminal below their indent; in one line where there is no terminal."""
    if not sys.stdout.isatty():
        return [" ".join(words)]
    width = os.get_terminal_size(sys.stdout.fileno()).columns - 4
    lines, room = [""], 0
    for word in words:
        seen = len(word) - sum(word.count(code) * len(code) for code in unseen if code)
        if seen >= room and lines[-1]:
            lines.append("")
        room = room - 1 - seen if lines[-1] else width - seen
        lines[-1] += f" {word}" if lines[-1] else word
    return lines


def _get(argv: list[str]) -> int:
    options = parser("get", "Print a document.", json=True)
    options.add_argument("id", help="the document's id, as `ctx search` printed it")
    options.add_argument("--body", action="store_true", help="print the text alone")
    args = options.parse_args(argv)
    with open_workspace(configuration(args.config), reading=True) as workspace:
        document = workspace.toolbox.call("get", {"id": args.id}, Caller("cli"))
    if args.json:
        print_json(document)
        return 0
    if not args.body:
        for name in (
            "title",
            "source",
            "source_id",
            "source_url",
            "updated_at",
            "author",
            "content_type",
            "id",
        ):
            if document.get(name):
                print(f"{name + ':':<13} {plain(str(document[name]))}")
        print()
    body = prose(document["body"])
    print(body.encode("utf-8", "replace").decode("utf-8"), end="" if body.endswith("\n") else "\n")
    return 0
