"""The hostile corpus against the sandbox, as this user and as one without any privilege."""

import json
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from kit import python_for_anybody
from redteam_run import WatchedPool, poor_host, run_corpus, tool

from ctx.lua.lockdown import NOBODY

ROWS = 101


@pytest.mark.slow
def test_every_hostile_script_ends_as_its_manifest_says(corpus: Path, pool: WatchedPool) -> None:
    assert len(json.loads((corpus / "manifest.json").read_text())["scripts"]) == ROWS
    before_mb = _resident_mb()
    assert run_corpus(pool, corpus) == []
    assert _resident_mb() - before_mb < 64


@pytest.mark.slow
def test_a_thousand_calls_leave_no_descriptor_and_no_process(pool: WatchedPool) -> None:
    job = tool("tool = {} function tool.execute(p, context) return #context.sources() end")

    def held() -> tuple[int, int]:
        for _ in range(20):
            pool.run(job, poor_host, 20)  # uses up the workers that a burst of calls has left over
        assert pool.survivors(5.0) == []
        return len(os.listdir("/proc/self/fd")), len(
            Path(f"/proc/{pool.zygote_pid}/task/{pool.zygote_pid}/children").read_text().split()
        )

    def burst(calls: int) -> None:
        callers = [
            threading.Thread(target=lambda: [pool.run(job, poor_host, 20) for _ in range(calls // 4)])
            for _ in range(4)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join()

    burst(100)
    before = held()
    burst(1000)
    after = held()
    spares = 2 * 6  # the last workers asked for may be on their way at either count: two descriptors each
    assert abs(after[0] - before[0]) <= spares
    assert abs(after[1] - before[1]) <= spares // 2


def _resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / (1 << 20)


@pytest.mark.slow
def test_an_unprivileged_user_reaches_the_strict_level_and_holds_the_corpus(corpus: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole run is unprivileged already")
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    process = subprocess.run(
        [python_for_anybody(), str(Path(__file__).with_name("redteam_run.py")), str(corpus)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={
            "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *packages]),
            "PYTHONDONTWRITEBYTECODE": "1",
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    first, _, complaints = process.stdout.partition("\n")
    assert process.returncode == 0, complaints + process.stderr
    report = json.loads(first)
    assert report["uid"] == NOBODY
    assert report["level"] == "strict"
