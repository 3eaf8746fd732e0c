"""The hostile corpus against the sandbox, as this user and as one without any privilege."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from redteam_run import WatchedPool, run_corpus

from ctx.lua.lockdown import NOBODY

ROWS = 101


@pytest.mark.slow
def test_every_hostile_script_ends_as_its_manifest_says(corpus: Path, pool: WatchedPool) -> None:
    assert len(json.loads((corpus / "manifest.json").read_text())["scripts"]) == ROWS
    assert run_corpus(pool, corpus) == []


def _python_for_anybody() -> str:
    """A Python of this version that an unprivileged user may start; this one may lie in a private folder."""
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    for candidate in (sys.executable, shutil.which(name, path="/usr/bin:/usr/local/bin:/bin")):
        if candidate is None:
            continue
        try:
            subprocess.run([candidate, "-c", ""], user=NOBODY, group=NOBODY, check=True, capture_output=True)
        except (PermissionError, subprocess.CalledProcessError):
            continue
        return candidate
    pytest.skip(f"no {name} on this machine can be started by an unprivileged user")


@pytest.mark.slow
def test_an_unprivileged_user_reaches_the_strict_level_and_holds_the_corpus(corpus: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("this whole run is unprivileged already")
    packages = [entry for entry in sys.path if entry.endswith("site-packages")]
    done = subprocess.run(
        [_python_for_anybody(), str(Path(__file__).with_name("redteam_run.py")), str(corpus)],
        user=NOBODY,
        group=NOBODY,
        extra_groups=[],
        cwd="/",
        env={"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *packages]), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    first, _, rest = done.stdout.partition("\n")
    assert done.returncode == 0, rest + done.stderr
    said = json.loads(first)
    assert said["uid"] == NOBODY
    assert said["level"] == "strict"
