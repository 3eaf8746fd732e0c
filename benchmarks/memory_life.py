"""How a memory serves somebody who lives with it: `python benchmarks/memory.py --life`.

One bank of about 200 memories as a coding agent's user leaves them: statements that later ones replace
(`change`, and `change2`, on which whose words were seen while the cues were written), plain facts, dated
events, and everyday notes besides. Asked are the newest of each pair, the facts, the dates, and questions
that nothing stored answers. Figures: how often the newest stands above the older one, recall@5, and how often
an unanswerable question is answered by nothing.
"""

import itertools
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from ctx.clock import DAY_MS, parse_ms
from ctx.embed.local import LocalEmbedder
from ctx.memory import MemoryBank, MemoryStore

MEMORIES = Path(__file__).parent / "memories"  # the sets
NOW = "2026-11-22T09:00:00Z"
_PEOPLE = ("Tobias", "Marta", "Yusuf", "Ingrid", "Chen", "Paulina", "Dmitri", "Noor", "Felix")
_NOTES = (
    "{person} reviewed the pull request about {thing}",
    "Talked with {person} about the roadmap for {thing}",
    "The user asked {person} to look into {thing}",
    "{person} thinks the documentation of {thing} is too long",
    "Refactored the module for {thing} together with {person}",
    "A test for {thing} fails on {person}'s machine only",
    "User would like {person} to present {thing} at the all-hands",
    "{person} is writing a blog post about {thing}",
    "Investigated a slow query behind {thing}, {person} knows the details",
    "Lunch with {person}; we discussed {thing} and the weather",
    "The user finds {thing} confusing and told {person} so",
    "{person} opened a ticket: {thing} needs better error messages",
    "We agreed with {person} that {thing} can wait until next quarter",
    "{person} borrowed the book about {thing}",
    "The demo of {thing} went well, {person} was happy",
)
_THINGS = (
    "the search index", "invoice export", "the cache layer", "the onboarding wizard", "dark mode",
    "the webhook worker",
    "image uploads", "the recommendation service", "audit logging",
)  # fmt: skip


def ids_in_order() -> Callable[[], str]:
    """Ids that are the same in every run: where two memories rank alike, the id decides."""
    numbers = itertools.count()
    return lambda: f"00000000-0000-4000-8000-{next(numbers):012x}"


@contextmanager
def new_bank(name: str, clock: list[int]) -> Iterator[MemoryBank]:
    """A bank of a store of its own, read by the shipped model, whose time is the clock's."""
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore(
            os.path.join(folder, "ctx.db"), LocalEmbedder(), lambda: clock[0], new_id=ids_in_order()
        ) as store,
    ):
        yield store.bank(name)


class Line(NamedTuple):
    """One line of memories/life.tsv: its kind, a statement, what came of it (or its date), and the question."""

    kind: str
    text: str
    second: str
    question: str


def read_lines(name: str = "life") -> list[Line]:
    """The lines of one of the sets beside this file."""
    lines = (MEMORIES / f"{name}.tsv").read_text().splitlines()
    return [Line._make(line.split("\t")) for line in lines]


def notes(count: int) -> list[str]:
    """So many everyday notes, each different."""
    pairs = itertools.product(range(len(_THINGS)), range(len(_NOTES)))
    return [
        _NOTES[form].format(person=_PEOPLE[(subject * 4 + form) % len(_PEOPLE)], thing=_THINGS[subject])
        for subject, form in itertools.islice(pairs, count)
    ]


def fill(bank: MemoryBank, clock: list[int], lines: list[Line]) -> None:
    """Stores the older statements first, the newer ones last."""

    def put(text: str, **fields: object) -> None:
        clock[0] += 20 * 60_000
        bank.put(text, context="general", type="world", **fields)  # type: ignore[arg-type]

    changes = [
        line
        for line in lines
        if line.kind.startswith(("change", "later", "value", "phrased", "fresh", "beside", "one", "both"))
    ]
    facts = [line.text for line in lines if line.kind.startswith("fact")]
    for text in [line.text for line in changes]:
        put(text)
    for pair in itertools.zip_longest(facts, notes(135)):
        for text in pair:
            if text:
                put(text)
    for line in lines:
        if line.kind == "date":
            put(line.text, timestamp=line.second)
    for line in changes:
        put(line.second)


def judge(recall: Callable[[str], list[str]], lines: list[Line]) -> dict[str, Any]:
    """The figures, and what missed."""
    figures: dict[str, Any] = {}
    misses: list[str] = []
    for kind in ("change", "change2"):
        pairs = [line for line in lines if line.kind == kind]
        rankings = [recall(line.question) for line in pairs]
        above = [
            _rank(line.second, texts) < _rank(line.text, texts)
            for line, texts in zip(pairs, rankings, strict=True)
        ]
        top = [_rank(line.second, texts) < 5 for line, texts in zip(pairs, rankings, strict=True)]
        figures[f"{kind}: newest above"] = f"{sum(above)}/{len(pairs)}"
        figures[f"{kind}: newest in 5"] = f"{sum(top)}/{len(pairs)}"
        misses += [
            f"{line.question} -> {line.second}"
            for line, newest in zip(pairs, above, strict=True)
            if not newest
        ]
    for kind in ("fact", "date"):
        asked_lines = [line for line in lines if line.kind == kind]
        ranks = [_rank(line.text, recall(line.question)) for line in asked_lines]
        figures[f"{kind}: in 5"] = f"{sum(rank < 5 for rank in ranks)}/{len(ranks)}"
        figures[f"{kind}: first"] = f"{sum(rank == 0 for rank in ranks)}/{len(ranks)}"
        misses += [
            f"{line.question} -> {line.text}"
            for line, rank in zip(asked_lines, ranks, strict=True)
            if rank >= 5
        ]
    unanswered = [(line.question, recall(line.question)) for line in lines if line.kind == "none"]
    figures["none: nothing"] = f"{sum(not texts for _, texts in unanswered)}/{len(unanswered)}"
    misses += [f"{question} -> {texts[0]}" for question, texts in unanswered if texts]
    return {"figures": figures, "misses": misses}


def _rank(text: str, texts: list[str]) -> int:
    return texts.index(text) if text in texts else 1_000


_SETS = (
    "changes", "values", "phrased", "fresh", "stranger", "newcomer", "coder", "household", "desk", "studio",
    "trip", "flatmate", "colleague", "guest", "landlady", "auditor", "facets", "tools", "swaps", "reader",
    "evening", "abroad", "twins", "kitchen",
)  # fmt: skip


def changes() -> dict[str, Any]:
    """Where the newest holds, and where two statements stand beside each other, in other sentences than those
    of `life`.

    Of the pairs called `change`, `later`, `value`, `phrased` and `fresh` the second is to stand first and the
    first behind it; of those called `beside`, `one` and `both` each holds, and neither may be put away: the
    one asked for is to stand first, or both are to be among the first five. Those called `stranger` are a
    third German and Spanish, those called `coder` are of a team's project and all near to each other. The
    pairs called `later` were written when the mechanism was done; those called `unseen` were not looked at
    while it was mended (nor those called `auditor` before: 30 of 40 stood newest first then, and 69 of the
    253 held ones were put away; of `facets` 33 of 50, of `tools` 20 of 30, of `swaps` 34 of 40, of `reader`
    40 of 45, of `evening` 32 of 45; of `abroad`, in German, Spanish and French, 13 of 14, 6 of 14 of those
    beside each other, and none of its 14 unanswerable questions; `kitchen` is as people talk, and half of its
    pairs stand beside each other). The pairs of memories/held.tsv were written to deceive: each is of two
    things, and the first must not be put away when the second is stored; those called `replaced` are of one,
    and it must. Those called `fact` are to be among the first five; what is called `none` nothing stored
    answers.
    """
    report: dict[str, Any] = {"figures": {}, "misses": []}
    for name in _SETS:
        lines = read_lines(name)
        superseded, rankings = _replay(lines)
        for kind in dict.fromkeys(line.kind for line in lines):
            pairs = [line for line in lines if line.kind == kind]
            figures, misses = _judge_of(kind)(pairs, rankings, superseded)
            report["figures"] |= {
                f"{kind}: {figure}": f"{count}/{len(pairs)}" for figure, count in figures.items()
            }
            if not kind.endswith("unseen"):
                report["misses"] += [f"{line.question} -> {rankings[line.question][:2]}" for line in misses]
    held, deceived = _held()
    report["figures"] |= held
    report["misses"] += deceived
    return report


def _replay(lines: list[Line]) -> tuple[set[str], dict[str, list[str]]]:
    """What was replaced when it was stored, and what recall answers to each question."""
    clock = [parse_ms(NOW) - 10 * DAY_MS]
    with new_bank("changes", clock) as bank:
        fill(bank, clock, [*lines, *(line for line in read_lines() if line.kind == "fact")])
        clock[0] = parse_ms(NOW)
        records = bank.browse(limit=1000, include_superseded=True)["items"]
        superseded = {record["text"] for record in records if record["superseded_by"]}
        return superseded, {line.question: _texts(bank, line.question, RECALL) for line in lines}


def _held() -> tuple[dict[str, str], list[str]]:
    """Of memories/held.tsv how often what is stored second puts the first away where it should, and leaves it
    where not.
    """
    embedder = LocalEmbedder()
    right: dict[str, list[bool]] = {}
    misses = []
    for line in (MEMORIES / "held.tsv").read_text().splitlines():
        kind, text, second = line.split("\t")
        with (
            tempfile.TemporaryDirectory() as folder,
            MemoryStore(os.path.join(folder, "ctx.db"), embedder) as store,
        ):
            bank = store.bank("held")
            bank.put(text)
            bank.put(second)
            records = bank.browse(limit=2, include_superseded=True)["items"]
        replaced = any(record["superseded_by"] for record in records)
        right.setdefault(kind, []).append(replaced == kind.startswith("replaced"))
        if not right[kind][-1]:
            misses.append(f"{kind}: {text} | {second}")
    return {kind: f"{sum(verdicts)}/{len(verdicts)}" for kind, verdicts in right.items()}, misses


def _judge_of(kind: str) -> Callable[..., tuple[dict[str, int], list[Line]]]:
    """What the lines of a kind are judged by."""
    if kind.startswith("fact"):
        return _judge_facts
    if kind.startswith("none"):
        return _judge_unanswerable
    return _judge_kept if kind.startswith(("beside", "one", "both")) else _judge_newest


def _judge_facts(
    lines: list[Line], rankings: dict[str, list[str]], superseded: set[str]
) -> tuple[dict[str, int], list[Line]]:
    ranks = [_rank(line.text, rankings[line.question]) for line in lines]
    misses = [line for line, rank in zip(lines, ranks, strict=True) if rank >= 5]
    return {"in 5": len(lines) - len(misses), "first": ranks.count(0)}, misses


def _judge_unanswerable(
    lines: list[Line], rankings: dict[str, list[str]], superseded: set[str]
) -> tuple[dict[str, int], list[Line]]:
    misses = [line for line in lines if rankings[line.question]]
    return {"nothing": len(lines) - len(misses)}, misses


def _judge_newest(
    pairs: list[Line], rankings: dict[str, list[str]], superseded: set[str]
) -> tuple[dict[str, int], list[Line]]:
    above = [line for line in pairs if _above(line, rankings[line.question])]
    first = [line for line in pairs if rankings[line.question][:1] == [line.second]]
    figures = {
        "newest above": len(above),
        "newest first": len(first),
        "replaced when stored": sum(line.text in superseded for line in pairs),
    }
    return figures, [line for line in pairs if line not in first]


def _judge_kept(
    pairs: list[Line], rankings: dict[str, list[str]], superseded: set[str]
) -> tuple[dict[str, int], list[Line]]:
    undisturbed = [line for line in pairs if not {line.text, line.second} & superseded]
    if pairs[0].kind.startswith(("beside", "one")):
        answered = [line for line in pairs if rankings[line.question][:1] == [line.text]]
        return {"both hold": len(undisturbed), "first": len(answered)}, [
            line for line in pairs if line not in answered or line not in undisturbed
        ]
    answered = [line for line in pairs if {line.text, line.second} <= set(rankings[line.question][:5])]
    return {"both hold": len(undisturbed), "both in 5": len(answered)}, [
        line for line in pairs if line not in answered or line not in undisturbed
    ]


def _above(line: Line, texts: list[str]) -> bool:
    return _rank(line.second, texts) < _rank(line.text, texts)


def _texts(bank: MemoryBank, question: str, options: dict[str, Any]) -> list[str]:
    results = bank.search(question, filter={"kind": "fact"}, **options)["results"]
    return [result["record"]["text"] for result in results]


def life(options: dict[str, Any] | None = None) -> dict[str, Any]:
    """The figures of `search` with the options that the `recall` tool gives it."""
    lines = read_lines()
    clock = [parse_ms(NOW) - 10 * DAY_MS]
    with new_bank("life", clock) as bank:
        fill(bank, clock, lines)
        clock[0] = parse_ms(NOW)

        def recall(question: str) -> list[str]:
            return _texts(bank, question, options or RECALL)

        return {"memories": bank.count(), **judge(recall, lines)}


RECALL: dict[str, Any] = {
    "limit": 10,
    "window": "auto",
    "floor": True,
}  # as extensions/hindsight/recall.lua asks
