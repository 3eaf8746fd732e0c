"""What `reflect` answers, offline: `python benchmarks/memory.py --reflect`.

Thirty questions to one bank. A line of memories/reflect.tsv is the question, what the answer must say, what it
must not lead with (the outdated value), and the memories (`TEXT@DAY`, parted by `#`); `-` is a question that
nothing stored answers. An answer is `right` where its first sentence says it and does not lead with what is
outdated, `partial` where it says it further down, else `wrong`. The answers are printed, for a reader to
judge the judgment.
"""

from pathlib import Path
from typing import Any, NamedTuple

from memory_life import NOW, new_bank, notes

from ctx.clock import DAY_MS, parse_ms

NOTHING = ("No memory speaks to this", "No memory answers this plainly")


class Case(NamedTuple):
    """One line of the file."""

    question: str
    expected: str
    outdated: str
    memories: str


def cases() -> list[Case]:
    lines = (Path(__file__).parent / "memories" / "reflect.tsv").read_text().splitlines()
    return [Case._make(line.split("\t")) for line in lines]


def judged(case: Case, answer: str) -> str:
    """`right`, `partial` or `wrong`."""
    if case.expected == "-":
        return "right" if answer.startswith(NOTHING) else "wrong"
    lead = answer.split("\n")[0].casefold()
    expected, outdated = case.expected.casefold(), case.outdated.casefold()
    if expected in lead and (
        not outdated or outdated not in lead or lead.index(expected) != lead.index(outdated)
    ):
        return "right"
    return "partial" if expected in answer.casefold() else "wrong"


def reflections() -> dict[str, Any]:
    """How many answers are right, partial and wrong, their length, and every answer."""
    lines = cases()
    clock = [parse_ms("2026-01-01T09:00:00Z")]
    statements = sorted(
        tuple(statement.rsplit("@", 1))[::-1]
        for case in lines
        for statement in case.memories.split("#")
        if statement
    )
    with new_bank("reflect", clock) as bank:
        for text in notes(100):
            clock[0] += DAY_MS
            bank.put(text, type="world", context="general")
        clock[0] = parse_ms(NOW) - DAY_MS
        for day, text in statements:
            bank.put(text, type="world", context="general", timestamp=f"{day}T10:00:00Z")
        clock[0] = parse_ms(NOW)
        answers = {
            case.question: bank.synthesize(case.question, filter={"kind": "fact"})["text"] for case in lines
        }
    verdicts = {case.question: judged(case, answers[case.question]) for case in lines}
    counts = {verdict: list(verdicts.values()).count(verdict) for verdict in ("right", "partial", "wrong")}
    return {
        "figures": {**counts, "longest": max(map(len, answers.values()))},
        "answers": [
            {"question": case.question, "verdict": verdicts[case.question], "answer": answers[case.question]}
            for case in lines
        ],
    }
