"""Runs benchmarks/soak.py for CTX_SOAK_MINUTES (3 by default; the first minute warms up)."""

import os
import subprocess
import sys

import pytest
from kit import ROOT

pytestmark = pytest.mark.full


@pytest.mark.timeout(40_000)
def test_under_load_nothing_leaks_and_nothing_answers_wrongly() -> None:
    minutes = os.environ.get("CTX_SOAK_MINUTES", "3")
    completed = subprocess.run(
        [sys.executable, "benchmarks/soak.py", "--minutes", minutes], cwd=ROOT, capture_output=True, text=True
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr[-2000:]
