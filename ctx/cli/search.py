"""`ctx search`."""

import sys

from ctx.cli.common import configuration, plain, print_json, prose, reply_of, styled, terminal_width
from ctx.clock import parse_ms
from ctx.config import Config
from ctx.searching import SearchWorkspace, check_stored
from ctx.types import JSON, MODES

_SWITCHES = ("--json", "--explain", "--prefix")
_NUMBERS = ("--limit", "--offset", "--per-document", "--max-tokens")
_LISTS = ("--source", "--path", "--type")  # may be given several times
_UNCHECKED = {"query", "mode", "filters", "explain", "prefix"}  # of the tool's arguments
_WORDS = ("--mode", "--since", "--until", "--config")


class _Options:
    """What a search was asked for; the names are those of the options."""

    def __init__(self) -> None:
        self.query: list[str] = []
        self.mode = "keyword"
        self.config: str | None = None
        self.source: list[str] = []
        self.path: list[str] = []
        self.type: list[str] = []
        self.since: str | None = None
        self.until: str | None = None
        self.limit: int | None = None
        self.offset: int | None = None
        self.per_document: int | None = None
        self.max_tokens: int | None = None
        self.json = False
        self.explain = False
        self.prefix = False

    def take(self, option: str, value: str) -> bool:
        """Notes the value of an option; False where it is none that could be meant."""
        name = option[2:].replace("-", "_")
        if value.startswith("-") or (option == "--mode" and value not in MODES):
            return False
        if option in _NUMBERS:
            if not value.isdecimal():
                return False
            setattr(self, name, int(value))
        elif option in _LISTS:
            getattr(self, name).append(value)
        else:
            setattr(self, name, value)
        return True


def _options(argv: list[str]) -> _Options:
    """The plain cases, read without argparse: importing and filling it costs ten milliseconds, a quarter of
    the whole command.

    Whatever is not plain (help, mistakes, `--limit=3`) goes to argparse, which has the words for it.
    """
    options = _Options()
    words = iter(argv)
    for word in words:
        if not word.startswith("-"):
            options.query.append(word)
        elif word in _SWITCHES:
            setattr(options, word[2:], True)
        elif word not in (*_NUMBERS, *_LISTS, *_WORDS) or not options.take(word, next(words, "-")):
            return _parsed(argv)
    return options if options.query else _parsed(argv)


def _parsed(argv: list[str]) -> _Options:
    from ctx.cli.options import parser

    options = parser("search", "Search the index.", json=True)
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
    return options.parse_args(argv, namespace=_Options())


def _arguments(options: _Options) -> dict[str, JSON]:
    """The options as arguments of the `search` tool."""
    filters = {name: getattr(options, name) for name in ("source", "path", "type", "since", "until")}
    numbers = {name: getattr(options, name) for name in ("limit", "offset", "per_document", "max_tokens")}
    return {
        "query": " ".join(options.query),
        "mode": options.mode,
        "filters": {name: value for name, value in filters.items() if value},
        **{name: value for name, value in numbers.items() if value is not None},
        **{name: True for name in ("explain", "prefix") if getattr(options, name)},
    }


def run(command: str, argv: list[str]) -> int:
    options = _options(argv)
    with _open(configuration(options.config)) as workspace:
        reply = _reply(workspace, _arguments(options))
        if not (reply["results"] or reply.get("note") or options.json):
            reply["note"] = _advice(options, workspace, bool(reply.get("partial")))
    if options.json:
        print_json(reply)
    else:
        _print(reply, explain=options.explain)
    return 0


def _print(reply: dict[str, JSON], *, explain: bool) -> None:
    for remark in ("partial", "note", "cut"):
        if reply.get(remark):
            print(f"Note: {plain(reply[remark])}", file=sys.stderr)
    if reply["results"]:
        _show(reply["results"], explain=explain)
    else:
        print("No results.")


def _reply(workspace: SearchWorkspace, arguments: dict[str, JSON]) -> dict[str, JSON]:
    """What the tool `search` answers. A question alone leaves the toolbox nothing to check, and that is 3 of
    the 110 million instructions of such a search.
    """
    from ctx.answers import MAX_QUERY_CHARACTERS, answer

    alone = arguments.keys() <= _UNCHECKED and not arguments["filters"]
    if alone and 0 < len(arguments["query"]) <= MAX_QUERY_CHARACTERS:
        return answer(workspace, arguments)
    return reply_of(workspace.toolbox_of_search(), "search", arguments, {"query": "the query"})


def _open(config: Config) -> SearchWorkspace:
    """What answers. Where machines share a store, a whole workspace, which applies what others wrote."""
    if config.store.url:
        from ctx.workspace import open_workspace

        return open_workspace(config, reading=True)
    check_stored(config)
    return SearchWorkspace(config)


def _advice(options: _Options, workspace: SearchWorkspace, partial: bool) -> str | None:
    """What to try where nothing was found; None where nothing is left. `partial`: the index lacks some."""
    if not any(status.doc_count for status in workspace.statuses()):
        return "no document is indexed; `ctx index` says where it looks and what it leaves out"
    since, until = options.since, options.until
    if since and until and parse_ms(since) > parse_ms(until, end_of_day=True):
        return "--until is before --since, and no document is of both"
    if partial:
        return "`ctx index` completes the index; a server that runs does so by itself"
    if options.mode == "keyword" and workspace.config.embedding.provider != "disabled":
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
            for line in _wrapped(_highlight(passage, bold, off).split(), (bold, off)):
                lines.append(f"    {line}")
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
