"""A process that writes memories until it is killed, and says of each write that it is done:
`memory_writer.py PATH BANK SEED [COUNT]`.

A line of its output is the JSON of what a reader must find from then on: {"op", "id", ...}.
"""

import json
import random
import sys

from memory_kit import WordEmbedder

from ctx.memory import MemoryStore, Provenance


def main(path: str, name: str, seed: int, count: int) -> None:
    chance = random.Random(seed)
    with MemoryStore(path, WordEmbedder()) as store:
        bank = store.bank(name, Provenance(session=f"s{seed}"))
        facts: list[str] = []
        number = 0

        def done(**what: object) -> None:
            sys.stdout.write(json.dumps(what) + "\n")
            sys.stdout.flush()

        done(op="ready")
        while number < count:
            number += 1
            text = f"fact {seed} {number} about apples"
            move = chance.random()
            if move < 0.5 or len(facts) < 3:
                facts.append(bank.put(text, metadata={"n": number})["id"])
                done(op="put", id=facts[-1], text=text)
            elif move < 0.65:
                size = chance.randrange(1, 12)
                reply = bank.put_many(
                    [{"text": f"message {index} of {seed} {number}"} for index in range(size)],
                    {"label": f"talk {number}", "metadata": {"size": size}},
                )
                done(op="put_many", id=reply["id"], size=size)
            elif move < 0.8:
                id = chance.choice(facts)
                bank.update(id, {"text": text})
                done(op="update", id=id, text=text)
            elif move < 0.9:
                id = facts.pop(chance.randrange(len(facts)))
                newer = bank.put(text, supersedes=[id])["id"]
                facts.append(newer)
                done(op="supersede", id=newer, text=text, old=id)
            else:
                id = facts.pop(chance.randrange(len(facts)))
                deletion = bank.delete(id)
                done(op="delete", id=id)
                if chance.random() < 0.5:
                    bank.undo(deletion["op_id"])
                    facts.append(id)
                    done(op="undo", id=id)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]) if len(sys.argv) > 4 else 1_000_000)
