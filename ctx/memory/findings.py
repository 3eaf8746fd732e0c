"""Evidence in groups, each with the sentence that speaks for it."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ctx.analyze import terms
from ctx.errors import BadRequest
from ctx.memory.columns import whole
from ctx.memory.entities import entities
from ctx.memory.evidence import Evidence, Vector, alike, day, sentences, shortened, weighed
from ctx.memory.screen import INSTRUCTION
from ctx.types import JSON

SHARED_MEANING = 0.15  # cosine of two memories' weighted terms that makes them one group
SHARED_NAME = 0.08  # the same, where they also share a name
_ADVICE = re.compile(r"(?i)\b(?:should|recommend|advise|suggest|better|best|choose|decide)\b")
_FEELING = re.compile(
    r"(?i)\b(?:prefers?|likes?|loves?|enjoys?|hates?|dislikes?|feels?|felt|worr(?:y|ied|ies)|afraid|happy"
    r"|sad|frustrat\w+|excited|favou?rite)\b"
)


class Disposition(NamedTuple):
    """How a bank looks at its memories. Each trait is 1 to 5; 3 changes nothing."""

    mission: str | None = None
    skepticism: int = 3
    literalism: int = 3
    empathy: int = 3

    @classmethod
    def of(cls, config: JSON) -> "Disposition":
        """From a bank's configuration; other keys are passed over. Raises `BadRequest`."""
        mission = config.get("mission")
        if mission is not None and not isinstance(mission, str):
            raise BadRequest("disposition: 'mission' is a text")
        traits = {
            trait: whole(f"disposition: '{trait}'", config.get(trait, 3), 1, 5)
            for trait in ("skepticism", "literalism", "empathy")
        }
        return cls(mission, **traits)


class Group(NamedTuple):
    """Evidence of one matter: places in the evidence, best first; `speaker` is the one whose sentence is the
    claim.
    """

    members: list[int]
    label: str
    speaker: int
    claim: str

    def finding(self, evidence: Sequence[Evidence]) -> JSON:
        """The entry of a reply."""
        times = [evidence[index].when_ms for index in self.members]
        return {
            "label": self.label,
            "claim": self.claim,
            "support": len(self.members),
            "ids": [evidence[index].id for index in self.members],
            "first": day(min(times)),
            "last": day(max(times)),
        }


def grouped(
    query: str,
    evidence: Sequence[Evidence],
    vectors: Sequence[Vector],
    disposition: Disposition,
    successors: Mapping[int, int],
) -> list[Group]:
    """Groups in the order of their best members: the evidence comes best first, and the newest of one matter
    before the older. `successors`: of places in the evidence that of what changed it.

    Greedy: a memory joins the group whose first member it is most like, or begins one.
    """
    clusters = _clusters(vectors, _telling_names(evidence))
    question = weighed([query, disposition.mission or ""])
    groups = [_group(members, evidence, vectors, question[0], successors) for members in clusters]

    def order(group: Group) -> tuple[bool, float, int]:
        feeling = any(_FEELING.search(evidence[index].text) for index in group.members)
        mission = alike(vectors[group.members[0]], question[1]) if disposition.mission else 0.0
        return (disposition.empathy >= 4 and not feeling, -round(mission, 6), group.members[0])

    return sorted(groups, key=order)


def _telling_names(evidence: Sequence[Evidence]) -> list[set[str]]:
    """The names in each memory; a name of most says nothing."""
    names = [{name.lower() for name in entities(entry.text)} for entry in evidence]
    spread = Counter(name for entry in names for name in entry)
    common = {name for name, number in spread.items() if number * 2 > len(evidence) > 3}
    return [entry - common for entry in names]


def _clusters(vectors: Sequence[Vector], names: Sequence[set[str]]) -> list[list[int]]:
    """The places of what is alike, or somewhat alike and shares a name."""
    clusters: list[list[int]] = []
    for index, vector in enumerate(vectors):
        likest, likeness = None, 0.0
        for members in clusters:
            nearness = alike(vector, vectors[members[0]])
            enough = SHARED_MEANING if names[index].isdisjoint(names[members[0]]) else SHARED_NAME
            if nearness >= enough and nearness > likeness:
                likest, likeness = members, nearness
        if likest is None:
            clusters.append([index])
        else:
            likest.append(index)
    return clusters


def _group(
    members: list[int],
    evidence: Sequence[Evidence],
    vectors: Sequence[Vector],
    question: Vector,
    successors: Mapping[int, int],
) -> Group:
    # Commands to the reader speak last.
    speaker = next((index for index in members if INSTRUCTION not in evidence[index].flags), members[0])
    while (successor := successors.get(speaker)) in members and INSTRUCTION not in evidence[successor].flags:
        speaker = successor
    return Group(members, _label(members, evidence, vectors), speaker, _claim(evidence[speaker], question))


def _claim(entry: Evidence, question: Vector) -> str:
    """The sentence of a memory nearest to the question; of equals the first."""
    parts = sentences(entry.text)[:50]
    if len(parts) < 2:
        return shortened(entry.text)
    return shortened(max(parts, key=lambda part: round(alike(weighed([part])[0], question), 6)))


def _label(members: Sequence[int], evidence: Sequence[Evidence], vectors: Sequence[Vector]) -> str:
    """Up to three of the group's weightiest words, as they are written."""
    centre: Counter[str] = Counter()
    spellings: dict[str, Counter[str]] = {}
    for index in members:
        centre.update({term: round(weight * 1_000_000) for term, weight in vectors[index].items()})
        for word in re.findall(r"[^\W\d_]{3,}", evidence[index].text[:4000]):
            for term in terms(word)[:1]:
                spellings.setdefault(term, Counter())[word.lower()] += 1
    best = sorted((term for term in centre if term in spellings), key=lambda term: (-centre[term], term))[:3]
    return ", ".join(min(spellings[term], key=lambda word: (-spellings[term][word], word)) for term in best)


def recommendation(
    query: str, groups: Sequence[Group], evidence: Sequence[Evidence], disposition: Disposition
) -> JSON:
    """Where a question asks for one: what leads the evidence, and how much of it stands behind."""
    if not _ADVICE.search(query):
        return None
    lead = groups[0]
    if disposition.skepticism >= 4 and len(lead.members) < 2:
        return None
    return {
        "claim": lead.claim,
        "support": len(lead.members),
        "of": len(evidence),
        "ids": [evidence[index].id for index in lead.members],
    }
