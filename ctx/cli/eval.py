"""`ctx eval`: asks your own questions in every mode, and shows which were missed and what ranked above.

Each line of the file of questions is JSON, `{"query": "...", "expect": "docs/auth.md"}` (`expect` may be a
list of paths, `source` names the only source to search), or a question, a tab and a path. A path also matches
documents whose path ends with it.
"""

import json
from argparse import Namespace
from collections.abc import Sequence
from typing import NamedTuple

from ctx.cli import Parser, amount
from ctx.cli.configuration import configuration
from ctx.cli.output import plain, tell
from ctx.errors import BadRequest
from ctx.models import JSON, MODES, Caller
from ctx.text.strings import nfc
from ctx.tools.places import all_paths, resolve_sources
from ctx.tools.toolbox import Toolbox
from ctx.workspace import open_workspace

DEPTH = 100  # results searched for an answer
ABOVE = 3  # results shown above a missed answer


class Question(NamedTuple):
    """A question, and the paths that answer it. `source` names the only source to search, or None."""

    query: str
    expect: tuple[str, ...]
    source: str | None = None


def eval_options(options: Parser) -> None:
    """Run your own questions and see which ones search misses, and why.

    ctx eval questions.tsv
    ctx eval questions.jsonl --mode hybrid
    """
    add = options.add_argument
    add("questions", help='lines of {"query": "...", "expect": "path"}, or question, tab, path')
    add("-m", "--mode", action="append", choices=MODES, help="only this mode; repeatable")
    add("--within", type=amount, default=5, metavar="N", help="count a later rank as a miss (default: 5)")


def run_eval(args: Namespace) -> int:
    try:
        with open(args.questions, encoding="utf-8-sig") as file:
            questions = read_questions(file.read(), args.questions)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise BadRequest(f"{args.questions} cannot be read: {reason}") from error
    config = configuration(args.config)
    modes = args.mode or (MODES[:1] if config.embedding.provider == "disabled" else MODES)
    with open_workspace(config, reading=True) as workspace:
        known = workspace.searched_names()
        for name in {question.source for question in questions if question.source is not None}:
            if not resolve_sources([name], known):
                raise BadRequest(f"no source is called '{plain(name)}' (known: {', '.join(known) or 'none'})")
        by_mode = {
            mode: [_answer(question, ask(workspace.toolbox, question, mode)) for question in questions]
            for mode in modes
        }
        answers = [answer for answers in by_mode.values() for answer in answers]
        absent = {path for answer in answers if answer["rank"] is None for path in answer["expect"]}
        for _, source_id in all_paths(workspace) if absent else ():
            absent -= {path for path in absent if fits(source_id, path)}
    rows, misses = [], []
    lines = [f"{'mode':<10}{'first':>8}{'in 5':>8}{'in 12':>8}{'MRR':>8}   of {len(questions)} questions"]
    for mode, answers in by_mode.items():
        figures = summary([answer["rank"] for answer in answers])
        below = [answer for answer in answers if not answer["rank"] or answer["rank"] > args.within]
        rows.append({"mode": mode, **figures, "misses": below})
        first, in_5, in_12, mrr = figures.values()
        lines.append(f"{mode:<10}{first:>8.2f}{in_5:>8.2f}{in_12:>8.2f}{mrr:>8.3f}")
        misses += [line for answer in below for line in _miss_lines(mode, answer)]
    notes = [f"Note: {plain(path)} is not indexed, so it cannot be found" for path in sorted(absent)]
    return tell(args.json, {"modes": rows, "not_indexed": sorted(absent)}, *lines, *misses, notes=notes)


# -- questions -----------------------------------------------------------------------------------------------


def read_questions(text: str, name: str) -> list[Question]:
    """Parses the text of the file `name` into questions. Raises `BadRequest` that names the line."""
    questions = []
    for number, line in enumerate(text.split("\n"), 1):  # other line ends may be part of a question
        if line.strip() and not line.startswith("#"):
            question = _question(line)
            if question is None:
                form = '{"query": "...", "expect": "path"}, or a question, a tab and a path'
                raise BadRequest(f"{name}:{number}: a line is {form}")
            questions.append(question)
    if not questions:
        raise BadRequest(f"{name}: no questions in it")
    return questions


def _question(line: str) -> Question | None:
    if not line.lstrip().startswith("{"):
        query, _, path = line.rpartition("\t")
        return Question(query.strip(), (path.strip(),)) if query.strip() and path.strip() else None
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    paths, source = entry.get("expect"), entry.get("source")
    paths = paths if isinstance(paths, list) else [paths]
    match entry:
        case {"query": str(query)} if query.strip() and isinstance(source, str | None) and paths:
            valid = all(isinstance(path, str) and path for path in paths)
            return Question(query, tuple(paths), source) if valid else None
    return None


def ask(
    toolbox: Toolbox, question: Question, mode: str, limit: int = DEPTH, *, explain: bool = True
) -> list[JSON]:
    """Runs the `search` tool for a question and returns the first `limit` results."""
    arguments: dict[str, JSON] = {"query": question.query, "mode": mode, "limit": limit, "explain": explain}
    if question.source is not None:
        arguments["source"] = question.source
    results: list[JSON] = toolbox.call("search", arguments, Caller("cli"))["results"]
    return results


# -- figures -------------------------------------------------------------------------------------------------


def rank_of(question: Question, results: Sequence[JSON]) -> int | None:
    """The rank of the first answer in the results, from 1; None if there is none."""
    answers = [any(fits(result["source_id"], path) for path in question.expect) for result in results]
    return answers.index(True) + 1 if True in answers else None


def fits(source_id: str, path: str) -> bool:
    """Whether a document's path is the expected path or ends with it."""
    source_id, path = nfc(source_id), nfc(path)
    return source_id == path or source_id.endswith(f"/{path}")


def summary(ranks: Sequence[int | None]) -> dict[str, float]:
    """The shares of questions answered at rank 1, within 5 and within 12, and the mean of 1 / rank."""
    hits, count = [rank for rank in ranks if rank is not None], len(ranks)
    first, in_5, in_12 = (sum(rank <= depth for rank in hits) / count for depth in (1, 5, 12))
    return {"first": first, "in_5": in_5, "in_12": in_12, "mrr": sum(1 / rank for rank in hits) / count}


def _answer(question: Question, results: Sequence[JSON]) -> dict[str, JSON]:
    """The rank of a question's answer among the first DEPTH results, the results above it, and the answer."""
    rank = rank_of(question, results)
    shown = [
        {"source": result["source"], "source_id": result["source_id"], **result["explain"]}
        for result in results
    ]
    above = shown[: ABOVE if rank is None else min(rank - 1, ABOVE)]
    answer = None if rank is None else shown[rank - 1]
    names = {"query": question.query, "expect": list(question.expect), "rank": rank}
    return {**names, "above": above, "answer": answer}


def _miss_lines(mode: str, miss: JSON) -> list[str]:
    rank = miss["rank"]
    shown = [*enumerate(miss["above"], 1), *([(rank, miss["answer"])] if rank else [])]
    return [
        f"\n{mode}: {plain(miss['query'])}",
        f"  wanted {plain(', '.join(miss['expect']))}: {f'at rank {rank}' if rank else f'not among {DEPTH}'}",
        *(f"  {rank:>3}. {plain(row['source_id'])}  {_reasons(row)}" for rank, row in shown),
    ]


def _reasons(explanation: JSON) -> str:
    """Formats the scores and rules that gave a result its rank, on one line."""
    parts = [f"{explanation['score']:.3f}"]
    for index in ("keyword", "semantic"):
        if index in explanation:
            parts.append(f"{index} rank {explanation[index]['rank']} ({explanation[index]['score']:.2f})")
    parts += [f"{name} {value:g}" for name, value in explanation.get("rules", {}).items()]
    return ", ".join([*parts, f"words: {' '.join(explanation['terms']) or 'none'}"])
