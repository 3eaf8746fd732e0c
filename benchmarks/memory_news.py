"""How likely a later memory is news of an earlier one: `python benchmarks/memory.py --fit-news`.

A logistic regression of "took its place" on the signals of ctx/memory/news.py, over every question of the sets
of `FITTED_BY` whose answer is known: the earlier memory of a change, and whatever is right for another question
(of which nothing is news), each with all later ones that the question finds. Lines called `unseen` are left
out. What it gives is judged on the sets of `UNSEEN`: how often the later one of a change is likely news, and
how often anything is of what another question asks for.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from memory_answers import regression, stored
from memory_life import NOW, new_bank

from ctx.clock import DAY_MS, parse_ms
from ctx.embed.local import LocalEmbedder
from ctx.memory import MemoryBank
from ctx.memory.news import FITTED, LEAST_COSINE, LIKELY, NEWS_REACH, Signals, Weights, apart, signals_of
from ctx.memory.question import Asked
from ctx.memory.statement import Statement

FITTED_BY = (
    "clinic", "startup", "dataops", "forge", "abroad", "changes", "colleague", "evening", "flatmate", "guest",
    "landlady", "phrased", "stranger", "swaps", "trip", "twins",
)  # fmt: skip
UNSEEN = {"as people talk": ("retiree", "backend", "student"), "plain": ("home", "bureau", "reader", "desk")}


FOUND_HITS = 10  # the best, among which the earlier one has to be: elsewhere no news is looked for


class Pair(NamedTuple):
    """What a question is answered by and a later memory: whether they stand beside each other whatever they
    mean, and whether that is news of it."""

    question: str
    of_change: bool
    signals: Signals
    apart: bool
    right: bool


def fit_news() -> dict[str, Any]:
    """The weights, and what they tell on sets that they were not fitted by."""
    pairs = [pair for name in FITTED_BY for pair in _pairs(name)]
    weights = regression(
        np.array([pair.signals for pair in pairs], np.float64), np.array([pair.right for pair in pairs])
    )
    return {
        "pairs": len(pairs),
        "fitted": {name: round(weight, 2) for name, weight in Weights(*weights)._asdict().items()},
        "in use": FITTED._asdict(),
        "sets it was fitted by": _shares(pairs),
        **{
            name: _shares([pair for set_name in names for pair in _pairs(set_name)])
            for name, names in UNSEEN.items()
        },
    }


def _shares(pairs: list[Pair]) -> dict[str, str]:
    likely = [pair for pair in pairs if FITTED.likelihood(pair.signals) >= LIKELY and not pair.apart]
    changes = sum(pair.right for pair in pairs)
    others = len({pair.question for pair in pairs if not pair.of_change})
    return {
        "news that is likely": f"{sum(pair.right for pair in likely)}/{changes}",
        "others of which something is": f"{len({p.question for p in likely if not p.of_change})}/{others}",
    }


def _pairs(name: str) -> Iterator[Pair]:
    clock = [parse_ms(NOW) - 10 * DAY_MS]
    with new_bank(name, clock) as bank:
        lines = stored(bank, clock, name)
        clock[0] = parse_ms(NOW)
        for kind, text, second, question in lines:
            if not kind.endswith("unseen") and not kind.startswith(("none", "date", "both")):
                yield from _pairs_of(bank, question, text, second, not kind.startswith(_UNCHANGED))


_UNCHANGED = ("fact", "one", "beside")


def _pairs_of(bank: MemoryBank, question: str, text: str, second: str, of_change: bool) -> Iterator[Pair]:
    results = bank.search(question, filter={"kind": "fact"}, limit=NEWS_REACH, explain=True)["results"]
    hits = {
        result["record"]["text"]: result
        for result in results
        if result["signals"]["cosine"] is not None and Statement.of(result["record"]["text"]).short
    }
    earlier = hits[text] if text in list(hits)[:FOUND_HITS] else None
    embedder = LocalEmbedder()
    if earlier is None or embedder is None:
        return
    asked, older = Asked.of(question), Statement.of(text)
    later_hits = [hit for hit in hits.values() if hit["record"]["created"] > earlier["record"]["created"]]
    vectors = [
        vector / np.linalg.norm(vector)
        for vector in embedder.embed([text, *(hit["record"]["text"] for hit in later_hits)])
    ]
    for hit, vector in zip(later_hits, vectors[1:], strict=True):
        newer = Statement.of(hit["record"]["text"])
        nearer = hit["signals"]["cosine"] - earlier["signals"]["cosine"]
        cosine = float(vectors[0] @ vector)
        if cosine < LEAST_COSINE or newer.adds:
            continue
        signals = signals_of(asked, older, newer, cosine, nearer)
        right = of_change and newer.text == second
        yield Pair(question, of_change, signals, apart(asked, older, newer), right)
