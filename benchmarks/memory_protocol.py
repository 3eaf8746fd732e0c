"""Banks as people leave them, asked once each: `python benchmarks/memory.py --protocol`.

Each of memories/forge.tsv (a developer's project), home.tsv (somebody's private life) and bureau.tsv (a team of six) holds fifteen statements and what took their place, 35 facts, seven dated
memories, 135 notes besides and ten questions that nothing stored answers; a tenth is German. The older
statements are stored first, the newer ones last. A line is its kind, a statement, what came of it (or its
date), the question, and, where `reflect` is asked too, what its answer must lead with and what not. All three
were written before any was run; `forge` was looked at first, the others when the mends it had shown were
done, and then they were mended by, too (docs/memory.md).

The six of `SPOKEN` are harder, and nearer to how people talk: 30 changes, 40 facts, eight dates, 135 notes and
30 questions without an answer each, most of which name whom or what the bank knows; half of the other
questions share hardly a word with what answers them ("What would they have to give me in a transfusion?",
"Blood group, in case anyone ever asks you: O negative"). Of these the first three were fitted by
(memory_answers.py) and the others not looked at.

The six of `UNSEEN` were written without a look at the mechanism, and nothing was mended by them: 15 changes
each, of which five say plainly that something changed, five give the new value in the same or similar words,
and five come as people talk, with neither the attribute's word nor the old value ("The handle split beyond
repair; the little Japanese saw turned out to be kinder to f-holes anyway").

Those of `AUDIT` are as an auditor writes them to see whether plain changes are understood: a coding agent's
notes (`harbor`), a private person's (`nadia`) and notes about "the user", a fifth of them German (`kessler`).
A change names its sort behind its kind (`change:renamed`), and the notes are near: the same people, the same
sort of value, another attribute. They were written without a look at the mechanism, and run once before
anything was mended by them (docs/memory.md has those first figures).

memories/asked.tsv asks nine of them more: a bank, a kind, a question, and for a `fact` what one of the first
five must say. 255 are answered by nothing stored, 119 in other words than they ask in.
"""

import itertools
from typing import Any, NamedTuple

from memory_life import MEMORIES, NOW, RECALL, new_bank
from memory_reflect import Case, judged

from ctx.clock import DAY_MS, parse_ms
from ctx.memory import MemoryBank

SETS = ("forge", "home", "bureau")
SPOKEN = ("clinic", "startup", "dataops", "retiree", "backend", "student")
AUDIT = (
    "harbor",
    "nadia",
    "kessler",
    "paloma",
    "vero",
    "okafor",
    "helix",
    "tilda",
    "quark",
    "cantata",
    "fjord",
    "vial",
    "orchard",
)
UNSEEN = ("luthier", "payments", "family", "reef", "gamedev", "caravan")
_STEP_MS = 20 * 60_000


class Row(NamedTuple):
    """One line of a set."""

    kind: str
    text: str
    second: str
    question: str
    expected: str
    outdated: str
    sort: str = ""  # of a change, where the set names it: moved, renamed, number


def rows_of(name: str) -> list[Row]:
    """The lines of a set."""
    rows = []
    for line in (MEMORIES / f"{name}.tsv").read_text().splitlines():
        kind, *cells = line.split("\t")
        kind, _, sort = kind.partition(":")
        rows.append(Row._make([kind, *cells, sort]))
    return rows


def protocol(name: str) -> dict[str, Any]:
    """The figures of one set, what missed, and every answer of `reflect`."""
    rows = rows_of(name)
    clock = [parse_ms(NOW) - 10 * DAY_MS]
    with new_bank(name, clock) as bank:
        fill(bank, clock, rows)
        clock[0] = parse_ms(NOW)
        return {"memories": bank.count(include_superseded=True), **_judge(bank, rows)}


def asked_besides() -> dict[str, Any]:
    """How many of the further questions are answered as they should be, by bank, and the others."""
    lines = [line.split("\t") for line in (MEMORIES / "asked.tsv").read_text().splitlines()]
    report: dict[str, Any] = {}
    for name, questions in itertools.groupby(lines, key=lambda line: line[0]):
        clock = [parse_ms(NOW) - 10 * DAY_MS]
        rights: dict[str, list[bool]] = {"none: nothing, or said to be weak": [], "fact: in 5": []}
        plain, misses = [], []
        with new_bank(name, clock) as bank:
            fill(bank, clock, rows_of(name))
            clock[0] = parse_ms(NOW)
            for _, kind, question, expected in questions:
                reply = bank.search(question, filter={"kind": "fact"}, **RECALL)
                texts = [result["record"]["text"] for result in reply["results"][:5]]
                if kind == "none":
                    verdict = not reply["answered"]
                    rights["none: nothing, or said to be weak"].append(verdict)
                else:
                    verdict = any(expected in text for text in texts)
                    rights["fact: in 5"].append(verdict)
                    plain.append(reply["answered"])
                if not verdict or (kind == "fact" and not reply["answered"]):
                    misses.append(f"{kind}: {question} -> {texts[:2]}")
        report[name] = {
            **{figure: f"{sum(verdicts)}/{len(verdicts)}" for figure, verdicts in rights.items()},
            "fact: said to be plain": f"{sum(plain)}/{len(plain)}",
            "misses": misses,
        }
    return report


def fill(bank: MemoryBank, clock: list[int], rows: list[Row]) -> None:
    older, newer = (
        [row.text for row in rows if row.kind == "change"],
        [row.second for row in rows if row.kind == "change"],
    )
    facts, notes = ([row.text for row in rows if row.kind == kind] for kind in ("fact", "note"))
    between = [text for pair in itertools.zip_longest(facts, notes) for text in pair if text]
    for text in [*older, *between]:
        clock[0] += _STEP_MS
        bank.put(text, context="general", type="world")
    for row in rows:
        if row.kind == "date":
            clock[0] += _STEP_MS
            bank.put(row.text, context="general", type="world", timestamp=row.second)
    for text in newer:
        clock[0] += _STEP_MS
        bank.put(text, context="general", type="world")


def _judge(bank: MemoryBank, rows: list[Row]) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    misses: list[str] = []

    def count(figure: str, kind: str, rights: dict[Row, bool]) -> None:
        figures[f"{kind}: {figure}"] = f"{sum(rights.values())}/{len(rights)}"

    replies = {
        row: bank.search(row.question, filter={"kind": "fact"}, **RECALL) for row in rows if row.question
    }
    texts = {row: [result["record"]["text"] for result in replies[row]["results"]] for row in replies}
    for kind in ("change", "fact", "date", "none"):
        ranked = {row: texts[row] for row in rows if row.kind == kind}
        if kind == "change":
            rights = {
                row: row.second in ranking and row.text not in ranking[: ranking.index(row.second)]
                for row, ranking in ranked.items()
            }
            count("newest above", kind, rights)
            verdicts_in_order = list(rights.values())
            figures["change: newest above, of each five"] = [
                sum(verdicts_in_order[start : start + 5]) for start in range(0, len(verdicts_in_order), 5)
            ]
            count("newest first", kind, {row: ranking[:1] == [row.second] for row, ranking in ranked.items()})
        elif kind == "none":
            rights = {row: not replies[row]["answered"] for row in ranked}
            count("nothing, or said to be weak", kind, rights)
            count("nothing", kind, {row: not ranking for row, ranking in ranked.items()})
        else:
            rights = {row: row.text in ranking[:5] for row, ranking in ranked.items()}
            count("in 5", kind, rights)
            count("first", kind, {row: ranking[:1] == [row.text] for row, ranking in ranked.items()})
            count("said to be plain", kind, {row: replies[row]["answered"] for row in ranked})
        misses += [
            f"{kind}: {row.question} -> {ranked[row][:2]}" for row, verdict in rights.items() if not verdict
        ]
    answers = {
        row: bank.synthesize(row.question, filter={"kind": "fact"})["text"] for row in rows if row.expected
    }
    verdicts = {
        row: judged(Case(row.question, row.expected, row.outdated, ""), answer)
        for row, answer in answers.items()
    }
    figures["reflect: right"] = f"{list(verdicts.values()).count('right')}/{len(verdicts)}"
    figures["reflect: longest"] = max(map(len, answers.values()))
    return {
        "figures": figures,
        "misses": misses,
        "answers": [
            {"question": row.question, "verdict": verdicts[row], "answer": answer}
            for row, answer in answers.items()
        ],
    }
