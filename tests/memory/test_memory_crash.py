"""Processes that are killed while they write, and processes that write at once."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_kit import WordEmbedder

from ctx.memory import MemoryStore

WRITER = Path(__file__).parent / "memory_writer.py"


def start(path: str, bank: str, seed: int, count: int | None = None) -> "subprocess.Popen[str]":
    arguments = [sys.executable, str(WRITER), path, bank, str(seed), *([] if count is None else [str(count)])]
    return subprocess.Popen(
        arguments,
        stdout=subprocess.PIPE,
        text=True,
        cwd=WRITER.parent,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def expected(lines: list[str]) -> dict[str, dict[str, Any]]:
    """What the acknowledged writes leave, by id. What a forgotten memory had taken the place of holds again."""
    vectors: dict[str, dict[str, Any]] = {}
    revived: dict[str, list[str]] = {}
    for line in lines:
        try:
            answer = json.loads(line)
        except ValueError:
            continue  # the line that the kill cut in two was not an acknowledgement
        op = answer["op"]
        if op in ("put", "put_many", "supersede"):
            vectors[answer["id"]] = {**answer, "deleted": False}
        elif op == "update":
            vectors[answer["id"]]["text"] = answer["text"]
        elif op in ("delete", "undo"):
            vectors[answer["id"]]["deleted"] = op == "delete"
        if op == "delete":
            former = [id for id, target in vectors.items() if target.get("superseded_by") == answer["id"]]
            revived[answer["id"]] = former
            for id in former:
                del vectors[id]["superseded_by"]
        if op == "undo":
            for id in revived[answer["id"]]:
                vectors[id]["superseded_by"] = answer["id"]
        if op == "supersede":
            vectors[answer["old"]]["superseded_by"] = answer["id"]
    return vectors


def check_all(path: str, bank_id: str, vectors: dict[str, dict[str, Any]], *, under_way: int = 1) -> None:
    """Every acknowledged write is there, whole.
    What the last write before the kill was about may be one step further.
    """
    with MemoryStore(path, WordEmbedder()) as store:
        assert store.check(deep=True) == []
        assert store.pending() == 0
        bank = store.bank(bank_id)
        doubtful: dict[str, str | None] = {}  # by id: what stands, or should, in its place
        for id, target in vectors.items():
            record = bank.get(id, include_deleted=True)
            assert record is not None, (id, target)
            if target["op"] == "put_many":
                assert len(bank.children(id)["items"]) == target["size"]
                continue
            agrees = (
                record["text"] == target["text"]
                and (record["deleted_at"] is not None) == target["deleted"]
                and record["superseded_by"] == target.get("superseded_by")
            )
            if not agrees:
                doubtful[id] = record["superseded_by"] or target.get("superseded_by")
        # Forgetting, and its undo, touch what the memory had taken the place of as well.
        writes = [id for id, successor in doubtful.items() if successor not in doubtful]
        assert len(writes) <= under_way, "more than the one write that was under way differs"
        for container in bank.browse({"kind": "conversation"}, limit=1000)["items"]:
            assert len(bank.children(container["id"])["items"]) == container["metadata"]["size"], (
                "a half-stored conversation"
            )
        for id, target in list(vectors.items())[-3:]:
            if target["op"] != "put_many" and not target["deleted"] and "superseded_by" not in target:
                record = bank.get(id, include_deleted=True)
                assert record is not None
                # By the text that it has: the kill may have come between an update and its acknowledgement.
                matches = bank.search(record["text"], limit=50, include_superseded=True)["results"]
                assert record["deleted_at"] is not None or id in {
                    result["record"]["id"] for result in matches
                }


def kill_at_random_points(folder: Path, kills: int, seed: int) -> None:
    path = str(folder / "ctx.db")
    chance = random.Random(seed)
    vectors: dict[str, dict[str, Any]] = {}
    for number in range(kills):
        process = start(path, "alice", seed * 1000 + number)
        assert process.stdout is not None
        # Not a wait for a time but for a number of acknowledgements; the kill falls wherever the writer is by
        # then.
        lines = [process.stdout.readline() for _ in range(1 + chance.randrange(12))]
        for _ in range(chance.randrange(4000)):
            pass  # a few hundred microseconds of chance between an acknowledgement and the kill
        os.kill(process.pid, signal.SIGKILL)
        remainder, _ = process.communicate()
        acknowledged = [*lines, *remainder.splitlines()]
        vectors.update(expected(acknowledged))
        check_all(path, "alice", expected(acknowledged))
    check_all(
        path,
        "alice",
        {id: first_store for id, first_store in vectors.items() if first_store["op"] == "put_many"},
    )


def test_a_writer_that_nobody_kills_leaves_what_it_says(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    said, _ = start(path, "alice", 3, 150).communicate(timeout=120)
    check_all(path, "alice", expected(said.splitlines()), under_way=0)


@pytest.mark.slow
def test_a_killed_writer_leaves_every_acknowledged_write_and_nothing_half_done(tmp_path: Path) -> None:
    kill_at_random_points(tmp_path, 20, seed=1)


@pytest.mark.full
@pytest.mark.timeout(900)
def test_two_hundred_killed_writers_leave_every_acknowledged_write(tmp_path: Path) -> None:
    kill_at_random_points(tmp_path, 200, seed=2)


def test_two_processes_write_one_bank_and_a_third_reads_both(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    with MemoryStore(path, WordEmbedder()) as reader:
        bank = reader.bank("shared")
        writers = [start(path, "shared", seed, 40) for seed in (1, 2)]
        vectors: dict[str, dict[str, Any]] = {}
        lines: list[str] = []
        assert writers[0].stdout is not None
        for line in writers[0].stdout:
            lines.append(line)
            answer = json.loads(line)
            if answer["op"] in (
                "put",
                "supersede",
            ):  # read your colleague's write as soon as it is acknowledged
                assert any(
                    answer["text"] == result["record"]["text"]
                    for result in bank.search(answer["text"], limit=100, include_superseded=True)["results"]
                ) or bank.get(answer["id"], include_deleted=True)
        vectors.update(expected(lines))
        out, _ = writers[1].communicate(timeout=60)
        writers[0].stdout.close()
        assert [writer.wait(timeout=60) for writer in writers] == [0, 0]
        vectors.update(expected(out.splitlines()))
        assert reader.check(deep=True) == []
        for id, target in vectors.items():
            record = bank.get(id, include_deleted=True)
            assert record is not None
            if target["op"] != "put_many":
                assert (record["text"], record["deleted_at"] is not None) == (
                    target["text"],
                    target["deleted"],
                )
        sessions = {line["by"]["session"] for line in bank.journal(limit=1000)}
        assert sessions == {"s1", "s2"}
