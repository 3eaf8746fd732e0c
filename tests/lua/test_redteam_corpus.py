"""The hostile corpus against the sandbox, as this user and as an unprivileged one."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from kit import python_for_anybody
from redteam_run import WatchedPool, run_corpus

from ctx.lua.lockdown import NOBODY

ROWS = 101


@pytest.mark.slow
def test_every_hostile_script_ends_as_its_manifest_says(corpus: Path, pool: WatchedPool) -> None:
    assert len(json.loads((corpus / "manifest.json").read_text())["scripts"]) == ROWS
    before_mb = _resident_mb()
    assert run_corpus(pool, corpus) == []
    assert _resident_mb() - before_mb < 64


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
