"""`kill -9` at random moments loses nothing that was acknowledged, and the next run equals a clean build."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from faults import serving
from kit import found, picture, project, workspace

from ctx.server.overview import health

pytestmark = pytest.mark.slow

WORDS = ("xylophone", "quokka", "marimba", "narwhal", "zeppelin", "ocelot")
CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n[packs]\nenabled = ["hindsight"]\n'
PAGES = 24


@pytest.mark.timeout(600)
def test_kills_over_index_embed_watch_and_memory_writes_cost_nothing_that_was_said_to_be_done(
    tmp_path: Path,
) -> None:
    kill_and_compare(tmp_path, kills=8, seed=3)


@pytest.mark.full
@pytest.mark.timeout(3600)
def test_many_kills_cost_nothing_that_was_said_to_be_done(tmp_path: Path) -> None:
    kill_and_compare(tmp_path, kills=int(os.environ.get("CTX_KILLS", "60")), seed=5)  # 200 take ten minutes


def kill_and_compare(folder: Path, *, kills: int, seed: int) -> None:
    chance = random.Random(seed)
    config = project(folder, config=CONFIG)
    for number in range(PAGES):
        write_page(folder, number, chance)
    command(folder, "index", kill_after_s=None, chance=chance)
    stored: list[tuple[str, str]] = []
    kill_count = 0
    for round_ in range(kills):
        for number in chance.sample(range(PAGES), 5):
            write_page(folder, number, chance)
        kind = round_ % 4
        if kind == 0:
            kill_count += command(folder, "index", kill_after_s=chance.uniform(0.2, 1.5), chance=chance)
        elif kind == 1:
            subprocess.run(
                [sys.executable, "-m", "ctx", "index", "--no-embed", "--no-progress"],
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            kill_count += command(
                folder, "embed", "pending", kill_after_s=chance.uniform(0.3, 1.5), chance=chance
            )
        else:
            kill_count += served(folder, config, chance, stored, remembering=kind == 3)
        sound(config)
    assert kill_count > kills // 3, "hardly anything was killed at work: the moments are chosen badly"
    command(folder, "index", kill_after_s=None, chance=chance)
    with workspace(config) as space:
        after, vectors = (picture(space), found(space, *WORDS)), embeddings(space)
        assert space.index.check() == []
        assert health(space)["pending"] == 0
        nearest = found(space, *WORDS, mode="semantic")
    with workspace(config) as space:
        bank = space.memory.bank(BANK)
        for id, text in stored:
            record = bank.get(id)
            assert record is not None, f"an acknowledged memory is gone: {text}"
    shutil.move(folder / ".ctx", folder / "old")
    command(folder, "index", kill_after_s=None, chance=chance)
    with workspace(config) as space:
        assert after == (picture(space), found(space, *WORDS))
        clean = embeddings(space)
        assert vectors.keys() == clean.keys()
        for digest, vector in clean.items():
            assert np.array_equal(vectors[digest], vector), (
                "the bundled model gives equal vectors for equal texts"
            )
        assert found(space, *WORDS, mode="semantic") == nearest


BANK = "default"


def write_page(folder: Path, number: int, chance: random.Random) -> None:
    path = folder / f"docs/part{number % 5}/page{number}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    if chance.random() < 0.15:
        path.unlink(missing_ok=True)
        return
    body = "\n\n".join(
        f"About {chance.choice(WORDS)} and number {chance.randrange(10**6)}." for _ in range(3)
    )
    path.write_text(f"# Page {number}\n\n{body}\n")


def command(folder: Path, *arguments: str, kill_after_s: float | None, chance: random.Random) -> int:
    """Runs a command, or kills it after a while; 1 where the kill came while it ran."""
    child = subprocess.Popen(
        [sys.executable, "-m", "ctx", *arguments, "--no-progress"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    try:
        _, errors = child.communicate(timeout=kill_after_s)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
        child.communicate()
        return 1
    assert child.returncode == 0, errors.decode()
    return 0


def served(
    folder: Path, config: Path, chance: random.Random, stored: list[tuple[str, str]], *, remembering: bool
) -> int:
    """A server that follows edits or stores memories until it is killed; 1."""
    with serving(config, "--log-level", "error") as server:
        ends_s = time.monotonic() + chance.uniform(0.1, 1.5)
        while time.monotonic() < ends_s:
            if remembering:
                text = f"The {chance.choice(WORDS)} number {chance.randrange(10**9)} is remembered."
                try:
                    status, answer = server.post("/tools/retain", {"content": text})
                except (urllib.error.URLError, OSError):
                    break
                if status == 200:
                    stored += [(id, text) for id in ids_of(answer)]
            else:
                write_page(folder, chance.randrange(PAGES), chance)
        server.process.kill()
        server.process.wait()
    return 1


def ids_of(answer: Any) -> list[str]:
    result = answer.get("result", answer)
    return [result["id"]] if isinstance(result, dict) and "id" in result else []


def sound(config: Path) -> None:
    """The store opens, every page of it is sound, and it answers."""
    with workspace(config) as space:
        assert space.catalog.check() == []
        found(space, WORDS[0])


def embeddings(space: Any) -> dict[bytes, np.ndarray]:
    """text hash -> vector, of all that is indexed."""
    hashes: dict[int, bytes] = {}
    for stored in space.catalog.export():
        hashes.update(zip(stored.chunk_nos, (chunk.text_hash for chunk in stored.chunks), strict=True))
    return {
        hashes[int(number)]: vector
        for batch in space.catalog.vectors_since(space.model, 0)
        for number, vector in zip(batch.chunk_nos, batch.vectors, strict=True)
    }
