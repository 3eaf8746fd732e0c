"""Servers that are killed while clients write: what was acknowledged is there, and nothing is there by
half.
"""

import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from dialect_kit import KEY, RECALL, PackServer, pack_project, texts
from kit import workspace

WRITERS = 4


class Writers:
    """Clients that write through every pack until the server is gone, and note each write that was
    acknowledged.
    """

    def __init__(self, server: PackServer, run: int, kill_after: int) -> None:
        self.facts: dict[str, str] = {}  # id -> text
        self.forgotten: set[str] = set()  # ids of facts
        self.doubtful: set[str] = set()  # facts whose change may have been under way
        self.memories: dict[str, str] = {}
        self.talks: dict[str, int] = {}  # conversation -> how many messages
        self.updated: dict[str, int] = {}  # conversation -> importance
        self.tried: dict[
            str, set[int]
        ] = {}  # conversation -> importances whose writing may have been under way
        self._server = server
        self._lock = threading.Lock()
        self._count = 0
        self._kill_after = kill_after
        threads = [threading.Thread(target=self._write, args=(run, number)) for number in range(WRITERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _write(self, run: int, number: int) -> None:
        chance = random.Random(run * 100 + number)
        talk: str | None = None
        step = 0
        with httpx.Client(
            base_url=self._server.base, timeout=30, headers={"Authorization": f"Bearer {KEY}"}
        ) as http:
            while True:
                step += 1
                text = f"fact {run} {number} {step} about apples"
                try:
                    talk = self._step(http, chance, text, talk)
                except (httpx.HTTPError, ValueError, KeyError):
                    return  # the server is gone
                with self._lock:
                    self._count += 1
                    if self._count == self._kill_after:
                        self._server.process.kill()

    def _step(self, http: httpx.Client, chance: random.Random, text: str, talk: str | None) -> str | None:
        def call(tool: str, arguments: dict[str, Any]) -> Any:
            return http.post(f"/tools/{tool}", json=arguments).json()["result"]

        move = chance.random()
        if move < 0.3:
            fact = call("retain", {"content": text})["id"]
            self.facts[fact] = text
            if move < 0.15:
                self._change(call, chance, fact, text)
        elif move < 0.6:
            self.memories[call(RECALL + "store_memory", {"content": text})["id"]] = text
        elif move < 0.8 or talk is None:
            size = chance.randrange(1, 9)
            messages = [{"role": "user", "content": f"{text} part {index}"} for index in range(size)]
            reply = call(
                "memory_store", {"label": f"{text} of {size}", "messages": messages, "importance_score": 1}
            )
            talk = reply["data"]["id"]
            self.talks[talk] = size
        else:
            importance = chance.randrange(2, 11)
            self.tried.setdefault(talk, set()).add(importance)
            call("memory_update", {"conversation_id": talk, "importance_score": importance})
            self.updated[talk] = importance
        return talk

    def _change(
        self, call: Callable[[str, dict[str, Any]], Any], chance: random.Random, fact: str, text: str
    ) -> None:
        """Corrects a fact or forgets it, and half the time takes that back."""
        self.doubtful.add(fact)
        if chance.random() < 0.5:
            reply = call("update_memory", {"memory_id": fact, "content": f"{text} corrected"})
            self.facts[fact] = f"{text} corrected"
        else:
            reply = call("delete_memory", {"memory_id": fact})
            self.forgotten.add(fact)
        if chance.random() < 0.5:
            call("undo_memory", {"op_id": reply["op_id"]})
            self.facts[fact] = text
            self.forgotten.discard(fact)
        self.doubtful.discard(fact)


def check(config: Path, done: Writers) -> None:
    """Everything acknowledged, whole, and the store sound."""
    with workspace(config) as space:
        store = space.memory
        assert store.check(deep=True) == []
        for bank, expected in (("default", done.facts), ("pack:claude-recall", done.memories)):
            for id, text in expected.items():
                record = store.bank(bank).get(id, include_deleted=True)
                assert record is not None, (id, text)
                if id in done.doubtful:  # a change that nobody was told of: done or not begun
                    assert record["text"].removesuffix(" corrected") == text.removesuffix(" corrected")
                    continue
                assert record["text"] == text
                assert (record["deleted_at"] is not None) == (id in done.forgotten), (id, text)
        sekha = store.bank("pack:sekha")
        for id, size in done.talks.items():
            record = sekha.get(id)
            assert record is not None
            assert len(sekha.children(id)["items"]) == size
            # The last update may have been under way: then it was written and nobody was told.
            assert record["importance"] in done.tried.get(id, set()) | {done.updated.get(id, 1)}
        for record in sekha.browse({"kind": "conversation"}, limit=1000)["items"]:
            assert len(sekha.children(record["id"])["items"]) == int(record["label"].rsplit(" ", 1)[1]), (
                "half a conversation"
            )


def killed_servers(folder: Path, kills: int, seed: int) -> None:
    config = pack_project(folder)
    chance = random.Random(seed)
    last: Writers | None = None
    for run in range(kills):
        server = PackServer(config, SEKHA_API_KEY=KEY)
        if last is not None:  # what the one before acknowledged, through the door
            certain = [id for id in last.facts if id not in last.doubtful | last.forgotten]
            for text in [last.facts[id] for id in certain[-2:]]:
                assert text in texts(server.rest("recall", {"query": text, "max_results": 50}))
        last = Writers(server, seed * 1000 + run, 1 + chance.randrange(40))
        server.kill()
        check(config, last)


@pytest.mark.slow
def test_killed_servers_leave_every_acknowledged_write_and_nothing_half_done(tmp_path: Path) -> None:
    killed_servers(tmp_path, 3, seed=1)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_killed_servers_leave_every_acknowledged_write(tmp_path: Path) -> None:
    killed_servers(tmp_path, int(os.environ.get("CTX_KILLS", "20")), seed=2)  # 200 take half an hour
