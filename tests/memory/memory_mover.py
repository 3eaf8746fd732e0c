"""A process that does to memories what is done seldom, until it is killed: `memory_mover.py FOLDER SEED`.

Each step has a marker of its own, that its memories' texts hold. A line of its output is JSON: before a step
{"step", "marker", "before", "after"}, the banks with the texts that are to be in them; after it {"done":
marker}.
"""

import io
import json
import os
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from memory_kit import WordEmbedder

from ctx.cli import main as ctx
from ctx.memory.folder import Folder
from ctx.memory.store import MemoryStore

State = dict[str, list[str]]
Step = Callable[[], object]
CAPTURED = ("I always write tests first.", "I prefer short functions.", "My favourite editor is Helix.")
CONFIG = '[db]\npath = "./ctx.db"\n[memory]\npath = "./ctx.db"\n[embedding]\nprovider = "disabled"\n'


class Mover:
    """The steps over one store: each gives what is there before it, what is there after it, and what does
    it.
    """

    def __init__(self, folder: Path, store: MemoryStore, chance: random.Random) -> None:
        self._folder = folder
        self._store = store
        self._bank = store.bank("alice")
        self._chance = chance
        self.steps = {name: step for name, step in Mover.__dict__.items() if not name.startswith("_")}

    def _fill(self, bank: str, marker: str) -> tuple[list[str], list[str]]:
        """Ids and texts of a few memories."""
        texts = [f"{marker} fact {number} of apples" for number in range(self._chance.randrange(2, 9))]
        return [self._store.bank(bank).put(text)["id"] for text in texts], texts

    def correct(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        corrected = [f"{marker} corrected", *texts[1:]]
        return (
            {"alice": texts},
            {"alice": corrected},
            lambda: self._bank.update(ids[0], {"text": corrected[0]}),
        )

    def undo(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        reply = self._bank.update(ids[0], {"text": f"{marker} mistaken"})
        before = [f"{marker} mistaken", *texts[1:]]
        return {"alice": before}, {"alice": texts}, lambda: self._bank.undo(reply["op_id"])

    def forget(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        return {"alice": texts}, {"alice": texts[1:]}, lambda: self._bank.delete(ids[0])

    def forget_many(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        return {"alice": texts}, {}, lambda: self._bank.delete_where({"id": {"in": ids}})

    def bring_back(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        reply = self._bank.delete_where({"id": {"in": ids}})
        return {}, {"alice": texts}, lambda: self._bank.undo(reply["op_id"])

    def restore(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        self._bank.delete_all(ids)
        return {}, {"alice": texts[:1]}, lambda: self._bank.restore(ids[0])

    def replace(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        later = f"{marker} replaced"
        return {"alice": texts}, {"alice": [later]}, lambda: self._bank.put(later, supersedes=ids)

    def purge(self, marker: str) -> tuple[State, State, Step]:
        ids, texts = self._fill("alice", marker)
        return {"alice": texts}, {}, lambda: self._bank.delete_all(ids, hard=True)

    def merge(self, marker: str) -> tuple[State, State, Step]:
        _, texts = self._fill(marker, marker)
        return {marker: texts}, {"alice": texts}, lambda: self._store.merge(marker, "alice")

    def rename(self, marker: str) -> tuple[State, State, Step]:
        _, texts = self._fill(marker, marker)
        return {marker: texts}, {f"{marker}-x": texts}, lambda: self._store.rename(marker, f"{marker}-x")

    def drop(self, marker: str) -> tuple[State, State, Step]:
        _, texts = self._fill(marker, marker)
        return {marker: texts}, {}, lambda: self._store.delete(marker)

    def take_in(self, marker: str) -> tuple[State, State, Step]:
        path = self._folder / marker
        path.mkdir()
        texts = [f"{marker} note {number} of pears" for number in range(self._chance.randrange(2, 9))]
        for number, text in enumerate(texts):
            (path / f"{number}.md").write_text(text)
        return {}, {marker: texts}, Folder(self._store.bank(marker), str(path)).import_

    def read_lines(self, marker: str) -> tuple[State, State, Step]:
        _, texts = self._fill(f"{marker}-of", marker)
        lines = list(self._store.bank(f"{marker}-of").export())
        self._store.delete(f"{marker}-of")
        return {}, {marker: texts}, lambda: self._store.bank(marker).import_(lines)

    def capture(self, marker: str) -> tuple[State, State, Step]:
        return {}, {marker: list(CAPTURED)}, lambda: captured(self._folder, marker)


def captured(folder: Path, marker: str) -> None:
    """What the hook of a client does at the end of a session."""
    payload = json.dumps(
        {"session_id": marker, "prompt": " ".join(CAPTURED), "hook_event_name": "SessionEnd"}
    )
    standard, sys.stdin = sys.stdin, io.TextIOWrapper(io.BytesIO(payload.encode()))
    try:
        config = str(folder / "ctx.toml")
        ctx(["memory", "capture", "--hook", "claude-code", "--bank", marker, "--config", config])
    finally:
        sys.stdin = standard


def steps(mover: Mover, seed: int, chance: random.Random) -> Iterator[tuple[str, str]]:
    """Every step by name in some order, with its marker, again and again."""
    number = 0
    while True:
        names = list(mover.steps)
        chance.shuffle(names)
        for name in names:
            number += 1
            yield name, f"m{seed}n{number}"


def main(folder: Path, seed: int) -> None:
    chance = random.Random(seed)
    with MemoryStore(str(folder / "ctx.db"), WordEmbedder()) as store:
        mover = Mover(folder, store, chance)

        def say(**line: object) -> None:
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()

        say(ready=os.getpid())
        for name, marker in steps(mover, seed, chance):
            before, after, act = mover.steps[name](mover, marker)
            say(step=name, marker=marker, before=before, after=after)
            act()
            say(done=marker)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
