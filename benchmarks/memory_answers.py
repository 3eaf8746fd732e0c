"""How likely a memory answers a question: `python benchmarks/memory.py --fit-answers`.

A logistic regression of "is the right line" on the signals of each of the ten best hits (the cosine, the cosine
of the question without its names, the share of its words), over the banks of `FITTED_BY` (memory_protocol.py,
memory_life.py). What it gives is judged on the banks of `UNSEEN`: how often a question that something answers
is called plain or shown at all, and one that nothing answers is not.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import memory_life
import memory_protocol
import numpy as np
from memory_life import NOW, new_bank

from ctx.clock import DAY_MS, parse_ms
from ctx.memory import MemoryBank
from ctx.memory.answers import ANSWERING_HITS, FITTED, PERHAPS, PLAINLY, Answering
from ctx.memory.language import foreign

FITTED_BY = ("clinic", "startup", "dataops", "forge", "home", "bureau", "life", "flatmate")
UNSEEN = {"as people talk": ("retiree", "backend", "student"), "plain": ("guest", "landlady")}
_RIDGE = 1e-3  # of the weights of standardised signals


class Asked(NamedTuple):
    """A question of a bank: the signals of its best hits, and which of them is right; none where nothing
    answers it.
    """

    answerable: bool
    signals: list[tuple[float, float, float]]
    right: list[bool]


def fit_answers() -> dict[str, Any]:
    """The weights, and what they tell on banks that they were not fitted by."""
    asked = [question for name in FITTED_BY for question in _asked(name)]
    rows = [row for question in asked for row in zip(question.signals, question.right, strict=True)]
    weights = regression(np.array([signals for signals, _ in rows]), np.array([right for _, right in rows]))
    fitted = Answering(*weights)
    return {
        "fitted": {name: round(weight, 2) for name, weight in fitted._asdict().items()},
        "in use": FITTED._asdict(),
        "banks it was fitted by": _shares(asked, FITTED),
        **{
            name: _shares([row for bank in banks for row in _asked(bank)], FITTED)
            for name, banks in UNSEEN.items()
        },
    }


def _shares(asked: Sequence[Asked], weights: Answering) -> dict[str, str]:
    shares = {}
    for kind in (True, False):
        best = [
            max((weights.likelihood(*signals) for signals in question.signals), default=0.0)
            for question in asked
            if question.answerable is kind
        ]
        label = "answered by something" if kind else "answered by nothing"
        for word, threshold in (("plain", PLAINLY), ("shown", PERHAPS)):
            shares[f"{label}: {word}"] = f"{sum(value >= threshold for value in best)}/{len(best)}"
    return shares


def regression(signals: np.ndarray, right: np.ndarray) -> list[float]:
    """The weights of a logistic regression, the base first: Newton's method on standardised signals, with a
    ridge."""
    mean, deviation = signals.mean(0), signals.std(0)
    design = np.column_stack([np.ones(len(signals)), (signals - mean) / deviation])
    ridge = _RIDGE * len(right) * np.eye(design.shape[1])
    weights = np.zeros(design.shape[1])
    for _ in range(40):
        p = 1 / (1 + np.exp(-design @ weights))
        slope = design.T @ (p - right) + ridge @ np.concatenate([[0.0], weights[1:]])
        weights -= np.linalg.solve((design * (p * (1 - p))[:, None]).T @ design + ridge, slope)
    scaled = weights[1:] / deviation
    return [float(weights[0] - scaled @ mean), *map(float, scaled)]


def _asked(name: str) -> Iterator[Asked]:
    clock = [parse_ms(NOW) - 10 * DAY_MS]
    with new_bank(name, clock) as bank:
        questions = _answers(stored(bank, clock, name))
        clock[0] = parse_ms(NOW)
        for question, (right, outdated) in questions.items():
            if not foreign(question):
                yield _signals(bank, question, right, outdated)


def stored(bank: MemoryBank, clock: list[int], name: str) -> list[memory_life.Line]:
    """Stores a set; its lines that ask something."""
    if name in (*memory_protocol.SETS, *memory_protocol.SPOKEN):
        rows = memory_protocol.rows_of(name)
        memory_protocol.fill(bank, clock, rows)
        return [memory_life.Line(*row[:4]) for row in rows if row.question]
    lines = memory_life.read_lines(name)
    memory_life.fill(bank, clock, [*lines, *(row for row in memory_life.read_lines() if row.kind == "fact")])
    return lines


def _answers(lines: Sequence[memory_life.Line]) -> dict[str, tuple[str | None, str | None]]:
    """What answers each question, and what did before."""
    answers: dict[str, tuple[str | None, str | None]] = {}
    for line in lines:
        kind = line.kind.split("-")[0]
        if kind in ("change", "change2", "fresh"):
            answers[line.question] = line.second, line.text
        elif kind in ("fact", "none"):
            answers[line.question] = line.text or None, None
    return answers


def _signals(bank: MemoryBank, question: str, right: str | None, outdated: str | None) -> Asked:
    results = bank.search(
        question, filter={"kind": "fact"}, window="auto", limit=ANSWERING_HITS, explain=True
    )["results"]
    hits = [
        (result["record"]["text"], result["signals"])
        for result in results
        if result["record"]["text"] != outdated and result["signals"]["cosine"] is not None
    ]
    return Asked(
        right is not None,
        [(signals["cosine"], signals["matter"], signals["lexical"]) for _, signals in hits],
        [text == right for text, _ in hits],
    )
