"""`kill -9` during writes, the move of an old store, a copy and salvage: every acknowledged memory is there
afterwards, or is counted as lost.

Three kills of each by default, and fifty in the long form (`CTX_KILLS` of all four).
"""

import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from kit import workspace
from location_kit import make_old, memory_of, recalled, remember, repository

from ctx.config import load_config
from ctx.memory.copies import Ledger, is_sound
from ctx.memory.location import problems
from ctx.server.keys import key_ring

MANY = int(os.environ.get("CTX_KILLS", "200")) // 4
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1800),
    pytest.mark.parametrize("kills", [3, pytest.param(MANY, marks=pytest.mark.full)], ids=["few", "many"]),
]

TEXTS = [f"The heron number {number} likes tea. {'x' * 50}" for number in range(60)]
PROGRAMS = {
    "move": "space.memory",
    "copy": "from ctx.memory.copies import copy_if_changed; print(copy_if_changed(space.location.memory))",
    "salvage": "from ctx.memory.salvage import restore; restore(space.location.memory)",
    "write": "\nfor number in range(10_000):\n"
    "    text = f'The otter number {number} of {os.getpid()} pours tea.'\n"
    "    space.memory.bank('default').put(text)\n"
    "    print(text, flush=True)",
}
START = """
import os, sys
from ctx.config import load_config
from ctx.workspace import Workspace
from ctx.memory import salvage
space = Workspace(load_config(sys.argv[1], os.environ))
print("ready", flush=True)
sys.stdin.readline()
"""


def killed(config: Path, program: str, chance: random.Random) -> list[str]:
    """Runs a program and kills it after a random part of what it does; what it printed."""
    with subprocess.Popen(
        [sys.executable, "-c", START + PROGRAMS[program], str(config)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.stdin.write("\n")
        process.stdin.flush()
        lines = []
        if program == "write":
            lines = [process.stdout.readline() for _ in range(chance.randrange(1, 12))]
        for _ in range(chance.randrange(1_500_000)):
            pass  # up to some hundredths of a second of chance
        os.kill(process.pid, signal.SIGKILL)
        return [line for line in (*lines, *process.stdout) if line.endswith("\n")]


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return repository(tmp_path / "project")


def test_a_move_that_is_killed_loses_nothing(config: Path, tmp_path: Path, kills: int) -> None:
    make_old(config, TEXTS)
    shutil.copytree(config.parent, tmp_path / "pattern")
    chance = random.Random(1)
    for _ in range(kills):
        shutil.rmtree(config.parent)
        shutil.rmtree(tmp_path / "data", ignore_errors=True)
        shutil.copytree(tmp_path / "pattern", config.parent)
        killed(config, "move", chance)
        killed(config, "move", chance)
        with workspace(config) as space:
            assert sorted(record["text"] for record in space.memory.bank("default").every()) == sorted(TEXTS)
            assert space.memory.check(deep=True) == []
            assert space.memory_loss() is None
        with closing(key_ring(load_config(str(config), os.environ))) as ring:
            assert [record.name for record in ring.list()] == ["laptop"]


def test_writes_that_are_killed_are_there_and_raise_no_alarm(config: Path, kills: int) -> None:
    chance = random.Random(2)
    acknowledged: set[str] = set()
    for _ in range(kills):
        acknowledged |= {line.strip() for line in killed(config, "write", chance)}
        with workspace(config) as space:
            assert space.memory_loss() is None
            assert acknowledged <= {record["text"] for record in space.memory.bank("default").every()}
        count = Ledger(str(memory_of(config))).read()
        assert count is not None
        assert count.lost == 0


def test_a_copy_that_is_killed_leaves_whole_copies(config: Path, kills: int) -> None:
    remember(config, *TEXTS)
    memory = memory_of(config)
    chance = random.Random(3)
    for number in range(kills):
        with workspace(config) as space:
            space.memory.bank("default").put(f"Number {number}.")
        killed(config, "copy", chance)
        for copy in memory.parent.glob("memory.db.[123]"):
            assert is_sound(str(copy))
    assert len(recalled(config)) == len(TEXTS) + kills


def test_salvage_that_is_killed_is_finished_by_the_next(config: Path, tmp_path: Path, kills: int) -> None:
    remember(config, *TEXTS)
    memory = memory_of(config)
    shutil.copytree(memory.parent, tmp_path / "pattern")
    chance = random.Random(4)
    for _ in range(kills):
        shutil.rmtree(memory.parent)
        shutil.copytree(tmp_path / "pattern", memory.parent)
        os.truncate(memory, memory.stat().st_size // 2)
        killed(config, "salvage", chance)
        killed(config, "salvage", chance)
        with workspace(config) as space:
            place = space.location.memory  # finishes what was begun
        if problems(place):
            subprocess.run(
                [sys.executable, "-c", START + PROGRAMS["salvage"], str(config)],
                input="\n",
                text=True,
                check=True,
            )
        assert recalled(config) == sorted(TEXTS)
