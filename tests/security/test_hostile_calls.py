"""During forty hostile calls the server answers /health and searches, and SIGTERM ends it."""

import signal
from pathlib import Path

import pytest
from faults import eventually, serving
from hostile import KINDS, NEEDLE, Assault, crowd, hostile_project

LOOKS = 12
STOP_S = 60.0  # a second is promised, and a process that is stuck ends itself after ten, with 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["every", *(pytest.param(kind, marks=pytest.mark.full) for kind in KINDS)])
def test_a_server_under_forty_hostile_calls_answers_searches_and_ends(tmp_path: Path, kind: str) -> None:
    config = hostile_project(tmp_path)
    with serving(config, "--log-level", "warning") as server:
        eventually(lambda: server.search(NEEDLE) == ["guide.md"])
        with Assault(server.address, crowd(kind)) as assault:
            for _ in range(LOOKS):
                assert server.get("/health")["status"] == "ok"
                assert server.search(NEEDLE) == ["guide.md"]
            calls = [attacker.calls for attacker in assault.attackers]
            assert min(calls) >= 1
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(STOP_S) == 0
        assert "Traceback" not in server.log()
