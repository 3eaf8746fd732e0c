"""Starting, announcing and stopping the server."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from faults import eventually
from serving import Serve, failure, waiting

from ctx.errors import ConfigError, StoreError
from ctx.server import run
from ctx.server.app import Services, create_app
from ctx.server.policy import ServerSettings
from ctx.server.run import address, open_sockets
from ctx.tools.toolbox import Agents, Toolbox


def test_a_stop_with_a_running_call_answers_it_503(serve: Serve, toolbox: Toolbox, agents: Agents) -> None:
    entered, release = waiting(toolbox)
    served = serve(Services(toolbox, agents))
    answers: list[httpx.Response] = []
    caller = threading.Thread(
        target=lambda: answers.append(httpx.post(f"{served.base}/tools/wait", json={}, timeout=60))
    )
    caller.start()
    assert entered.wait(60)
    served.stop()
    caller.join(60)
    assert not release.is_set(), "the call was still at it"
    assert failure(answers[0]) == (503, "busy")
    release.set()


def test_a_reply_on_a_kept_connection_does_not_wait_for_an_acknowledgement() -> None:
    (listening,) = open_sockets("127.0.0.1:0")
    with listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_busy_port_is_refused_with_the_fix() -> None:
    (first,) = open_sockets("127.0.0.1:0")
    with first, pytest.raises(ConfigError, match=r"in use by another program.*\[server\] bind"):
        open_sockets(address(first))


def test_localhost_is_not_shared_with_another_program() -> None:
    """Who says `localhost` would ask that one, with their key."""
    try:
        [stranger] = open_sockets("[::1]:0")
    except ConfigError:
        pytest.skip("there is no IPv6 here")
    with stranger, pytest.raises(ConfigError, match=r"localhost:\d+ is in use by another program"):
        open_sockets(f"localhost:{stranger.getsockname()[1]}")


def test_connections_beyond_the_limit_are_503(
    serve: Serve, services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.server.run.MAX_CONNECTIONS", 2)
    served = serve(services)
    with socket.create_connection((served.host, served.port), 60):
        eventually(lambda: len(served.server.server_state.connections) == 1)
        assert httpx.get(f"{served.base}/health", timeout=60).status_code == 503
    eventually(lambda: not served.server.server_state.connections)
    assert httpx.get(f"{served.base}/health", timeout=60).status_code == 200


def test_what_keeps_the_services_from_starting_is_raised_and_nothing_announced(services: Services) -> None:
    def start() -> None:
        raise StoreError("the catalog is newer than this program")

    announced: list[str] = []
    app = create_app(services._replace(start=start), ServerSettings())
    with pytest.raises(StoreError, match="newer than this program"):
        run.serve(app, "127.0.0.1:0", announce=announced.append)
    assert announced == []


SCRIPT = """
import sys
import time

from ctx.tools.toolbox import Agents
from ctx.server import run
from ctx.server.app import Services, create_app
from ctx.server.policy import ServerSettings
from ctx.tools.toolbox import Toolbox

if sys.argv[1:]:
    run.LEAVE_S = float(sys.argv[1])
services = Services(Toolbox(), Agents(), stop=lambda: print("stopped", flush=True))
app = create_app(services, ServerSettings())
run.serve(app, "127.0.0.1:0", announce=lambda address: print(f"Listening on {address}", flush=True))
print("returned", flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("hook", ["start", "stop"])
def test_a_stop_is_obeyed_whatever_hangs_also_where_sigint_is_ignored(tmp_path: Path, hook: str) -> None:
    stuck = SCRIPT.replace('stop=lambda: print("stopped", flush=True)', f"{hook}=hang").replace(
        "if sys.argv", 'def hang():\n    print("hanging", flush=True)\n    time.sleep(600)\n\n\nif sys.argv'
    )
    # As a shell script starts what it leaves in the background.
    command = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh", sys.executable, "-c", stuck]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("hanging" if hook == "start" else "Listening on "), line
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_the_process_announces_itself_once_and_ends_with_0_on_a_signal(
    tmp_path: Path, how: signal.Signals
) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, "20"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ},
    )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        announcement = re.fullmatch(r"Listening on (127\.0\.0\.1:\d+)\n", line)
        assert announcement, line
        assert httpx.get(f"http://{announcement[1]}/health").json()["status"] == "ok"
        process.send_signal(how)
        options, errors = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    assert options == "stopped\nreturned\n"
    assert errors == ""
    assert process.returncode == 0
