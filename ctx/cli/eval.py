"""`ctx eval`: your own questions with the files that answer them, in every mode; what was missed, and what
stood above it.

A line of the file of questions is JSON, `{"query": "...", "expect": "docs/auth.md"}` (or a list of paths, and
`source` where only that one is to be searched), or the question and a path parted by a tab. A path without a
folder fits any folder.
"""

import json
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ctx.cli.configuration import configuration
from ctx.cli.options import Parser, describe
from ctx.cli.output import plain, tell
from ctx.cli.search import listings
from ctx.errors import BadRequest
from ctx.models import JSON, MODES, Caller
from ctx.search.searcher import resolve_sources
from ctx.store.base import Catalog
from ctx.text.strings import nfc
from ctx.tools.toolbox import Toolbox
from ctx.workspace import open_workspace

DEPTH = 100  # how far down an answer is looked for
ABOVE = 3  # documents told of that stood above a missed one


class Question(NamedTuple):
    """A question, and the paths of which each answers it."""

    query: str
    expect: tuple[str, ...]
    source: str | None = None


class Outcome(NamedTuple):
    """Where the first answer to a question stood. `rank` counts from 1; None: not among the first DEPTH."""

    question: Question
    rank: int | None
    above: tuple[JSON, ...]  # the first results that are no answers, with their reasons
    answer: JSON | None  # the result that is one, with its reasons


class Summary(NamedTuple):
    """Of one mode: the shares of questions answered at rank 1, within 5 and within 12, and the mean of 1 /
    rank.
    """

    mode: str
    first: float
    in_5: float
    in_12: float
    mrr: float


def read_questions(text: str, name: str) -> list[Question]:
    """The questions of a file. Raises `BadRequest` that names the line."""
    questions = []
    for number, line in enumerate(text.split("\n"), 1):  # other line ends may stand in a question
        if line.strip() and not line.startswith("#"):
            question = _question(line)
            if question is None:
                raise BadRequest(
                    f'{name}:{number}: wants {{"query": "...", "expect": "path"}}, or a question, a tab and '
                    "a path"
                )
            questions.append(question)
    if not questions:
        raise BadRequest(f"{name}: holds no questions")
    return questions


def _question(line: str) -> Question | None:
    if not line.lstrip().startswith("{"):
        query, _, path = line.rpartition("\t")
        return Question(query.strip(), (path.strip(),)) if query.strip() and path.strip() else None
    return _of_json(line)


def _of_json(line: str) -> Question | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    query, expect, source = entry.get("query"), entry.get("expect"), entry.get("source")
    paths = [expect] if isinstance(expect, str) else expect
    if not isinstance(query, str) or not query.strip() or not isinstance(source, str | None):
        return None
    return Question(query, tuple(paths), source) if _are_paths(paths) else None


def _are_paths(paths: JSON) -> bool:
    return isinstance(paths, list) and bool(paths) and all(isinstance(path, str) and path for path in paths)


def ask(
    toolbox: Toolbox, question: Question, mode: str, limit: int = DEPTH, *, explain: bool = True
) -> list[JSON]:
    """The first results for a question, by the `search` tool."""
    arguments: dict[str, JSON] = {"query": question.query, "mode": mode, "limit": limit, "explain": explain}
    if question.source is not None:
        arguments["source"] = question.source
    results: list[JSON] = toolbox.call("search", arguments, Caller("cli"))["results"]
    return results


def outcome(question: Question, results: Sequence[JSON]) -> Outcome:
    """Where the first answer stands among the results, and what stands above it."""
    for rank, result in enumerate(results, 1):
        if any(fits(result["source_id"], path) for path in question.expect):
            return Outcome(question, rank, tuple(results[: min(rank - 1, ABOVE)]), result)
    return Outcome(question, None, tuple(results[:ABOVE]), None)


def fits(source_id: str, path: str) -> bool:
    """Whether a document is the one that is expected: the same path, or one that ends in it."""
    source_id, path = nfc(source_id), nfc(path)
    return source_id == path or source_id.endswith(f"/{path}")


def summary(mode: str, outcomes: Iterable[Outcome]) -> Summary:
    """The figures of one mode."""
    ranks = [outcome.rank for outcome in outcomes]
    count = len(ranks)
    first, in_5, in_12 = (sum(rank is not None and rank <= depth for rank in ranks) for depth in (1, 5, 12))
    mrr = sum(1 / rank for rank in ranks if rank) / count
    return Summary(mode, first / count, in_5 / count, in_12 / count, mrr)


def _missed_paths(by_mode: Mapping[str, Sequence[Outcome]]) -> set[str]:
    """What was expected where nothing of it came."""
    misses = [miss for outcomes in by_mode.values() for miss in outcomes if miss.rank is None]
    return {path for miss in misses for path in miss.question.expect}


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Ask your own questions, and see what is missed and why.",
        "ctx eval questions.tsv",
        "ctx eval questions.jsonl --mode hybrid",
        json=True,
    )
    options.add_argument(
        "questions", help='lines of {"query": "...", "expect": "path"}, or question, tab, path'
    )
    options.add_argument("--mode", action="append", choices=MODES, help="only this one; may be repeated")
    options.add_argument(
        "--within", type=int, default=5, metavar="N", help="a later rank is a miss (default: 5)"
    )


def run(command: str, args: Namespace) -> int:
    if args.within < 1:
        raise BadRequest(f"--within must be at least 1, got {args.within}")
    questions = _read_file(args.questions)
    settings = configuration(args.config)
    modes = args.mode or (MODES[:1] if settings.embedding.provider == "disabled" else MODES)
    with open_workspace(settings, reading=True) as workspace:
        _check_sources(questions, workspace.searched_names())
        by_mode = {
            mode: [outcome(question, ask(workspace.toolbox, question, mode)) for question in questions]
            for mode in modes
        }
        absent = sorted(_absent(workspace.catalog, _missed_paths(by_mode)))
    rows = [_mode_json(mode, outcomes, args.within) for mode, outcomes in by_mode.items()]
    return tell(
        args.json,
        {"modes": rows, "not_indexed": absent},
        *_figure_lines(by_mode, len(questions)),
        *_miss_lines(by_mode, args.within),
        notes=[f"Note: no document is called {plain(path)}; what wants it cannot be met" for path in absent],
    )


def _read_file(path: str) -> list[Question]:
    try:
        with open(path, encoding="utf-8-sig") as file:
            return read_questions(file.read(), path)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRequest(f"{path} cannot be read: {reason}") from error


def _check_sources(questions: Sequence[Question], known: Sequence[str]) -> None:
    """Raises `BadRequest` for a source that is none: its questions would pass for missed ones."""
    for name in {question.source: None for question in questions if question.source is not None}:
        if not resolve_sources([name], known):
            raise BadRequest(f"no source is called '{plain(name)}' (known: {', '.join(known) or 'none'})")


def _absent(catalog: Catalog, paths: set[str]) -> set[str]:
    """Those of some expected paths that no document of the index has."""
    absent = set(paths)
    for listing in listings(catalog) if absent else ():
        absent -= {path for path in absent if fits(listing.source_id, path)}
    return absent


def _figure_lines(by_mode: Mapping[str, Sequence[Outcome]], count: int) -> Iterator[str]:
    yield f"{'mode':<10}{'first':>8}{'in 5':>8}{'in 12':>8}{'MRR':>8}   of {count} questions"
    for mode, outcomes in by_mode.items():
        _, first, in_5, in_12, mrr = summary(mode, outcomes)
        yield f"{mode:<10}{first:>8.2f}{in_5:>8.2f}{in_12:>8.2f}{mrr:>8.3f}"


def _misses(outcomes: Sequence[Outcome], within: int) -> list[Outcome]:
    return [outcome for outcome in outcomes if outcome.rank is None or outcome.rank > within]


def _miss_lines(by_mode: Mapping[str, Sequence[Outcome]], within: int) -> Iterator[str]:
    """What was missed, and what stood above it."""
    for mode, outcomes in by_mode.items():
        for miss in _misses(outcomes, within):
            position = f"at rank {miss.rank}" if miss.rank else f"not among {DEPTH}"
            yield f"\n{mode}: {plain(miss.question.query)}"
            yield f"  wanted {plain(', '.join(miss.question.expect))}: {position}"
            answer = [(miss.rank, miss.answer)] if miss.answer is not None else []
            for rank, result in (*enumerate(miss.above, 1), *answer):
                yield f"  {rank:>3}. {plain(result['source_id'])}  {reasons(result['explain'])}"


def reasons(explanation: JSON) -> str:
    """Why a result stands where it stands, on one line."""
    parts = [f"{explanation['score']:.3f}"]
    for leg in ("keyword", "semantic"):
        if leg in explanation:
            parts.append(f"{leg} rank {explanation[leg]['rank']} ({explanation[leg]['score']:.2f})")
    parts += [f"{name} {value:g}" for name, value in explanation.get("rules", {}).items()]
    return ", ".join([*parts, f"words: {' '.join(explanation['terms']) or 'none'}"])


def _mode_json(mode: str, outcomes: Sequence[Outcome], within: int) -> JSON:
    figures = summary(mode, outcomes)
    return {
        **figures._asdict(),
        "misses": [
            {
                "query": miss.question.query,
                "expect": list(miss.question.expect),
                "rank": miss.rank,
                "above": [_reasons_json(result) for result in miss.above],
                "answer": None if miss.answer is None else _reasons_json(miss.answer),
            }
            for miss in _misses(outcomes, within)
        ],
    }


def _reasons_json(result: JSON) -> JSON:
    return {"source": result["source"], "source_id": result["source_id"], **result["explain"]}
