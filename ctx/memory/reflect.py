"""What memories say to a question: an extractive answer in which every claim names the memories it stands on.

It organises evidence and does not reason: retrieval, the best and newest statement first, grouping by shared
words and names, what changed over time, what disagrees, and which words of the question nothing speaks of.
All of it is arithmetic on the texts, so the same memories, question and clock give the same bytes. A language
model may word the answer instead; it sees only the evidence found here, every citation of its answer is
checked, and whatever fails gives the extractive answer with the reason in `degraded`.
"""

from collections import Counter
from collections.abc import Callable, Sequence

from ctx.analyze import query_terms
from ctx.memory.answers import FLOOR_BY_WORDS, Answer
from ctx.memory.conflicts import conflicts, successions
from ctx.memory.entities import entities
from ctx.memory.evidence import Evidence, day, shortened, unspoken, weighed
from ctx.memory.findings import Disposition, grouped, recommendation
from ctx.memory.wording import LanguageModel, compose, worded
from ctx.types import JSON

MEMORIES = {"low": 8, "mid": 30, "high": 120}  # the most evidence a budget looks at
FINDINGS = {"low": 4, "mid": 8, "high": 12}
ROUNDS = {"low": 1, "mid": 2, "high": 3}  # of following names to further memories
FAN_OUT = 8  # names followed in a round
BEARING = 0.45  # of the best score: what is less sure than that bears on another question
FOLLOWED_SCORE = 0.4  # of what a name leads to
MAX_TIMELINE = 12

Find = Callable[[str, int], tuple[list[Evidence], Answer]]
"""`find(query, count)`: up to so many memories, best first, and whether any of them answers the query."""


def reflect(
    query: str,
    find: Find,
    *,
    now_ms: int,
    budget: str,
    context: str | None,
    disposition: Disposition,
    language_model: LanguageModel | None,
) -> JSON:
    """`{"text", "based_on", "findings", "conflicts", "timeline", "gaps", "recommendation", "budget", "mode",
    "degraded"}`.

    `[n]` in `text` is the n-th entry of `based_on`; dates are days in ISO 8601. `mode` is "extractive" or
    "llm"; `degraded` says why a configured language model's answer was not taken. Nothing above the floor:
    `text` says so and `nearest` holds what came closest.
    """
    evidence, nearest, possible = _gather(query, find, budget, context)
    reply: dict[str, JSON] = {
        "text": "",
        "based_on": [entry.cited() for entry in evidence],
        "findings": [],
        "conflicts": [],
        "timeline": [],
        "gaps": unspoken(query, evidence),
        "recommendation": None,
        "budget": budget,
        "as_of": now_ms,
        "mode": "extractive",
        "degraded": None,
    }
    if not evidence:
        reply["nearest"] = [entry.cited() for entry in nearest]
        reply["text"] = _silence(nearest, possible)
        return reply
    vectors = weighed([entry.text for entry in evidence])
    reply["conflicts"] = conflicts(evidence, vectors)
    groups = grouped(query, evidence, vectors, disposition, successions(reply["conflicts"]))[
        : FINDINGS[budget]
    ]
    reply["findings"] = [group.finding(evidence) for group in groups]
    reply["timeline"] = _timeline(evidence)
    reply["recommendation"] = recommendation(query, groups, evidence, disposition)
    reply["text"] = compose(query, groups, evidence, reply, disposition)
    if language_model is not None:
        answer, reason = worded(language_model, query, context, evidence, disposition, now_ms)
        if answer is not None:
            reply["text"], reply["mode"] = answer, "llm"
        reply["degraded"] = reason
    return reply


def _silence(nearest: Sequence[Evidence], possible: bool) -> str:
    """What is said where no memory answers."""
    quoted = "; ".join(f"“{shortened(entry.text)}”" for entry in nearest)
    if possible:
        return f"No memory answers this plainly. The nearest: {quoted}."
    if nearest:
        return f"No memory speaks to this. The nearest, which is not evidence: {quoted}."
    return "No memory speaks to this."


def _gather(
    query: str, find: Find, budget: str, context: str | None
) -> tuple[list[Evidence], list[Evidence], bool]:
    """The evidence, best first; where there is none, what came nearest, and whether it may be the answer."""
    limit = MEMORIES[budget]
    hits, answer = find(query, limit)
    if context and context.strip() and not answer.plain:
        further, answer = find(f"{query} {context}", limit)
        hits = list({entry.id: entry for entry in (*hits, *further)}.values())
    if not answer.plain:
        return [], hits[:3], answer.possible
    best = max(entry.score for entry in hits)
    evidence = [entry for entry in hits if entry.score >= max(FLOOR_BY_WORDS, BEARING * best)]
    _follow(query, find, budget, evidence)
    return evidence[:limit], [], True


def _follow(query: str, find: Find, budget: str, evidence: list[Evidence]) -> None:
    """Adds what the names of the question, and then those of the evidence, lead to."""
    followed: set[str] = set()
    for round_number in range(ROUNDS[budget]):
        names = entities(query) if round_number == 0 else _names_of(evidence)
        for name in [name for name in names if query_terms(name) and name.lower() not in followed][:FAN_OUT]:
            followed.add(name.lower())
            present = {entry.id for entry in evidence}
            evidence += [
                entry._replace(score=round(entry.score / (round_number + 2), 6))
                for entry in find(name, MEMORIES[budget])[0]
                if entry.id not in present and entry.score >= FOLLOWED_SCORE
            ]


def _names_of(evidence: Sequence[Evidence]) -> list[str]:
    counts = Counter(name for entry in evidence for name in set(entities(entry.text)))
    return [name for name, _ in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0]))]


def _timeline(evidence: Sequence[Evidence]) -> list[JSON]:
    """The evidence in order of time, where it is of several days."""
    best = sorted(enumerate(evidence[:MAX_TIMELINE], 1), key=lambda pair: (pair[1].when_ms, pair[1].id))
    if len({day(entry.when_ms) for _, entry in best}) < 2:
        return []
    return [
        {"date": day(entry.when_ms), "text": shortened(entry.text), "id": entry.id, "n": number}
        for number, entry in best
    ]
