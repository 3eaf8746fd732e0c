"""Long conversations, recalled: `python benchmarks/memory.py --talks`.

Made, not recorded: four pairs of friends talk in twenty sessions each. In among small talk each tells two
dozen things about their life, and the friend tells the like of their own, so that a question ("What does
Petra grow on her balcony?") has one right turn, and many that are about the same matter or by the same
person. The same talk is stored as turns, as passages of four turns, and as whole sessions. Asked are both
legs alone and the search as the `recall` tool asks it, which must not be worse than the better leg.
"""

import os
import random
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from memory_life import RECALL, ids_in_order

from ctx.clock import DAY_MS, iso_utc, parse_ms
from ctx.embed.local import LocalEmbedder
from ctx.memory import MemoryBank, MemoryStore

SEED = 100  # of the set that is run unless another is named
SESSIONS, TURNS = 20, 16
DEPTH = 10
TOLERANCE = 0.01  # that recall may be below its better leg
_PAIRS = (("Petra", "Owen"), ("Malik", "Greta"), ("Sunniva", "Bruno"), ("Ayesha", "Lionel"))
_BEGIN_MS = parse_ms("2026-01-05T18:00:00Z")

# (what is told, the question, two values for each pair of friends)
_MATTERS = (
    ("I finally planted {} on the balcony and they are coming up already",
    "What does {} grow on the balcony?",
    ("radishes", "basil", "chillies", "sweet peas", "lavender", "strawberries", "chives", "sunflowers")),
    ("my new position starts in a fortnight, I'll be a {}", "What will {}'s new job be?",
    ("museum guide", "tram driver", "network engineer", "pastry chef", "court clerk", "sound technician",
    "vet nurse", "surveyor")),
    ("we booked a week in {} for the summer", "Where is {} going on holiday?",
    ("Madeira", "Gdansk", "Lofoten", "Sardinia", "Tbilisi", "Cork", "Ghent", "Crete")),
    ("the vet says the {} has to lose some weight", "Whose diet did {}'s vet talk about?",
    ("tortoise", "beagle", "Siamese cat", "parrot", "guinea pig", "greyhound", "hedgehog", "goat")),
    ("I signed up for {} on Wednesday evenings", "Which class does {} attend in the evening?",
    ("pottery", "salsa", "bookbinding", "fencing", "sign language", "upholstery", "improv theatre",
    "glassblowing")),
    ("my sister just had a baby, they named her {}", "What is the name of {}'s niece?",
    ("Ottilie", "Mira", "Juno", "Saskia", "Philippa", "Noemi", "Tamsin", "Elke")),
    ("the doctor told me to stay away from {} for good", "What must {} not eat any more?",
    ("shellfish", "rye bread", "grapefruit", "liquorice", "blue cheese", "peppers", "walnuts", "aubergines")),
    ("I got rid of the car and bought a {}", "What does {} get around with now?",
    ("cargo bike", "moped", "folding bicycle", "sidecar motorbike", "kick scooter", "camper van",
    "recumbent trike", "unicycle")),
    ("grandmother left me her old {}", "What did {} inherit?",
    ("accordion", "loom", "grandfather clock", "stamp collection", "sewing machine", "telescope",
    "typewriter", "rolling pin")),
    ("I've been reading nothing but {} lately", "Which kind of books is {} into?",
    ("polar expeditions", "Victorian ghost stories", "cookery memoirs", "spy thrillers", "Norse sagas",
    "graphic novels", "urban planning", "haiku")),
    ("the landlord is letting us paint the hall {}", "What colour will {}'s hall be?",
    ("terracotta", "mustard", "sage green", "midnight blue", "ivory", "plum", "coral", "charcoal")),
    ("my left {} has been hurting since the race", "Which part of the body troubles {} after the race?",
    ("ankle", "hip", "shoulder blade", "heel", "wrist", "knee", "calf", "big toe")),
    ("I volunteer at the {} on Saturdays now", "Where does {} help out at the weekend?",
    ("food bank", "lifeboat station", "toy library", "hospice garden", "repair café", "bird sanctuary",
    "youth orchestra", "heritage railway")),
    ("for my birthday I would really love a {}", "What present would {} like?",
    ("bread mill", "star chart", "hammock", "fountain pen", "waffle iron", "kayak", "chess clock",
    "raincoat")),
    ("our band plays at the {} next month", "Where will {}'s band perform?",
    ("harbour festival", "town hall", "brewery yard", "school gym", "botanical garden", "old cinema",
    "jazz cellar", "village fête")),
    ("I dropped my phone into the {} and it is dead", "How did {} lose the phone?",
    ("fjord", "paint bucket", "fondue", "canal", "compost", "aquarium", "storm drain", "soup")),
    ("the children talked me into keeping {} in the shed", "Which animals live in {}'s shed?",
    ("quails", "bees", "stick insects", "rabbits", "ducks", "snails", "alpacas", "pigeons")),
    ("I'm writing my thesis on {}", "What is {} researching?",
    ("tidal power", "medieval glass", "sleep in teenagers", "lichens", "minority languages",
    "bridge acoustics", "urban foxes", "paper recycling")),
    ("my brother moved out to {} for love", "To which place did {}'s brother relocate?",
    ("Uruguay", "Tasmania", "Iceland", "Kerala", "Quebec", "Namibia", "Slovenia", "Hokkaido")),
    ("I'm scared of {}, always have been", "What frightens {}?",
    ("escalators", "moths", "deep water", "clowns", "thunder", "needles", "geese", "lifts")),
)  # fmt: skip
_CHAT = (
    "how was your week? Mine flew by", "the weather has been dreadful here, rain all day",
    "did you sleep well? You look tired",
    "I made soup again, nothing special", "let's meet at the café next time",
    "sorry I was late, the bus did not come",
    "that sounds lovely, tell me more", "I know exactly what you mean", "we should do this more often",
    "honestly, I could not agree more",
    "my back is fine, thanks for asking", "work is busy as always, so many meetings",
    "I watched a film last night, it was so-so",
    "have you heard from the others?", "I need a new pair of shoes",
    "the neighbours are renovating, what a noise",
    "I forgot my umbrella at your place", "oh no, I am sorry to hear that",
    "congratulations, that is wonderful news", "what are you having for dinner?",
    "I have been thinking about getting more exercise", "my inbox is a disaster",
    "do you remember our trip years ago?", "thanks for listening, that helped",
)  # fmt: skip


class Talk(NamedTuple):
    """One conversation: its sessions as turns, and the questions with the turn that answers each (session,
    turn)."""

    sessions: list[list[str]]
    questions: list[tuple[str, tuple[int, int]]]


def talk(number: int, seed: int = SEED) -> Talk:
    """The same conversation every time, of one seed."""
    chance = random.Random(seed + number)
    names = _PAIRS[number]
    statements = [
        (name, statement.format(values[2 * number + side]), question.format(name))
        for statement, question, values in _MATTERS
        for side, name in enumerate(names)
    ]
    chance.shuffle(statements)
    places = [(session, turn) for session in range(SESSIONS) for turn in range(1, TURNS - 1)]
    chosen = dict(zip(sorted(chance.sample(places, len(statements))), statements, strict=True))
    sessions = []
    for session in range(SESSIONS):
        turns = []
        for turn in range(TURNS):
            speaker, text, _ = chosen.get((session, turn), (names[turn % 2], chance.choice(_CHAT), ""))
            follow = chance.choice(_CHAT) if chance.random() < 0.4 else ""
            turns.append(
                f"{speaker}: {text[0].upper()}{text[1:]}."
                + (f" {follow[0].upper()}{follow[1:]}." if follow else "")
            )
        sessions.append(turns)
    return Talk(sessions, [(question, position) for position, (_, _, question) in chosen.items()])


def units(sessions: Sequence[Sequence[str]], size: int) -> list[tuple[str, int, range]]:
    """The conversation in memories of so many turns: (text, session, which turns)."""
    return [
        ("\n".join(turns[start : start + size]), session, range(start, min(start + size, len(turns))))
        for session, turns in enumerate(sessions)
        for start in range(0, len(turns), size)
    ]


def talks(seed: int = SEED) -> dict[str, Any]:
    """R@5 and MRR of each leg and of recall, for turns, passages and sessions; and where recall is below its
    better leg."""
    figures: dict[str, dict[str, dict[str, float]]] = {}
    embedder = LocalEmbedder()
    with (
        tempfile.TemporaryDirectory() as folder,
        MemoryStore(os.path.join(folder, "ctx.db"), embedder, new_id=ids_in_order()) as store,
    ):
        for name, size in (("turns", 1), ("passages", 4), ("sessions", TURNS)):
            ranks: dict[str, list[int]] = {"keyword": [], "semantic": [], "recall": []}
            for number in range(len(_PAIRS)):
                conversation = talk(number, seed)
                bank = store.bank(f"{name}-{number}")
                for batch in _batches(units(conversation.sessions, size)):
                    bank.put_many([_item(*unit) for unit in batch])
                store.embed_pending()
                for question, position in conversation.questions:
                    for way, ranking in ranks.items():
                        ranking.append(_rank(bank, way, question, position))
            figures[name] = {way: _figures(ranking) for way, ranking in ranks.items()}
    below = [
        f"{name}: {figure} {ways['recall'][figure]} against {best}"
        for name, ways in figures.items()
        for figure in ("R@5", "MRR")
        if ways["recall"][figure]
        < (best := max(ways["keyword"][figure], ways["semantic"][figure])) - TOLERANCE
    ]
    return {
        "seed": seed,
        "questions": len(_MATTERS) * 2 * len(_PAIRS),
        "figures": figures,
        "recall below its better leg": below,
    }


def _batches(rows: list[Any]) -> Iterator[list[Any]]:
    for start in range(0, len(rows), 100):
        yield rows[start : start + 100]


def _item(text: str, session: int, turns: range) -> dict[str, Any]:
    moment_ms = _BEGIN_MS + session * 9 * DAY_MS + turns.start * 60_000
    return {
        "text": text,
        "timestamp": iso_utc(moment_ms),
        "metadata": {"session": session, "turns": [turns.start, turns.stop]},
    }


def _rank(bank: MemoryBank, way: str, question: str, position: tuple[int, int]) -> int:
    options = RECALL if way == "recall" else {"mode": way, "limit": DEPTH}
    results = bank.search(question, filter={"kind": "fact"}, **options)["results"]
    for rank, result in enumerate(results, 1):
        metadata = result["record"]["metadata"]
        if metadata["session"] == position[0] and position[1] in range(*metadata["turns"]):
            return rank
    return 0


def _figures(ranks: Sequence[int]) -> dict[str, float]:
    return {
        "R@5": round(sum(0 < rank <= 5 for rank in ranks) / len(ranks), 4),
        "MRR": round(sum(1 / rank for rank in ranks if rank) / len(ranks), 4),
    }
