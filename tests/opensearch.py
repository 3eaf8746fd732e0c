"""An OpenSearch for the tests, as .ci/fetch_opensearch.py unpacks it: real nodes on this machine, by a user of
their own.

They lie in `<environment>/cluster/opensearch`. OpenSearch refuses to run as root, so that root's tests run it
as `nobody`.
"""

import http.client
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from postgres import free_port, missing

HOME = Path(sys.prefix, "cluster", "opensearch")
HEAP_MB = 512
GREEN_S = 300.0  # a node starts in half a minute alone, and several at once on a busy machine in minutes
_USER = "nobody" if os.geteuid() == 0 else None
_LOOK_S = 0.1
URL = "CTX_TEST_OPENSEARCH"  # the variable with the address of a node that all test processes share


def ask(url: str, method: str, path: str, body: Any = None) -> Any:
    """A request to a node, and its reply. Raises `OSError` where the node does not answer."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        content = None if body is None else json.dumps(body)
        connection.request(method, path, content, {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read() or b"null")
    finally:
        connection.close()


def wait_for(
    url: str, count: int = 1, status: str = "yellow", check: Callable[[], None] = lambda: None
) -> None:
    """Waits until a node answers that so many are there, and their shards as `status` says. Raises
    `TimeoutError` after `GREEN_S`.
    """
    ends_s = time.monotonic() + GREEN_S
    while True:
        check()
        try:
            health = ask(url, "GET", "/_cluster/health")
            if health.get("number_of_nodes") == count and health["status"] in (status, "green"):
                return
        except (OSError, http.client.HTTPException, ValueError):
            pass  # it is on its way
        if time.monotonic() > ends_s:
            raise TimeoutError(f"{url} is not {status}")
        time.sleep(_LOOK_S)


def complete() -> bool:
    """True if OpenSearch and a JDK are there."""
    return (HOME / "java-home").exists()


def forget(url: str, name: str) -> None:
    """Deletes every index of a name."""
    ask(url, "DELETE", f"/{name}-*?expand_wildcards=open,closed")


class Cluster:
    """Nodes of one OpenSearch. They start in the background; `wait` for them, and `discard` them."""

    def __init__(self, count: int = 1, *settings: str, heap_mb: int = HEAP_MB, lasting: bool = False) -> None:
        """`settings`: further ones, `name=value`. `lasting`: compiled, and its heap kept, as in earnest: to
        be measured.
        """
        if not complete():
            missing("the OpenSearch of the tests")
        self._folder = Path(tempfile.mkdtemp(prefix="ctx-opensearch-"))
        self._folder.chmod(0o755)
        self._home = HOME / "home"
        self._java = Path((HOME / "java-home").read_text(encoding="utf-8")) / "bin" / "java"
        if _USER and subprocess.run([self._java, "-version"], user=_USER, capture_output=True).returncode:
            missing("a JDK that `nobody` may run")
        if _USER and subprocess.run(["ls", self._home], user=_USER, capture_output=True).returncode:
            # A checkout below a folder that only root may enter.
            self._home = shutil.copytree(self._home, self._folder / "home")
        self.ports = [free_port() for _ in range(count)]
        self._transports = [free_port() for _ in range(count)]
        self._settings = settings
        self._heap_mb = heap_mb
        self._lasting = lasting
        self._nodes: list[subprocess.Popen[bytes] | None] = [None] * count
        for number in range(count):
            self.start(number)

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{port}" for port in self.ports]

    @property
    def url(self) -> str:
        """The addresses of all nodes, as `[index] url` takes them."""
        return ",".join(self.urls)

    def start(self, number: int) -> None:
        """Starts a node, with the data it had. Returns at once."""
        folder = self._folder / str(number)
        if not folder.exists():
            shutil.copytree(self._home / "config", folder / "config")
            for name in ("data", "logs", "tmp"):
                (folder / name).mkdir()
            if _USER:
                subprocess.run(["chown", "-R", f"{_USER}:nogroup", folder], check=True)
        with open(folder / "output", "wb") as output:
            self._nodes[number] = subprocess.Popen(
                [*self._options(folder), *self._node_settings(number)],
                user=_USER,
                group="nogroup" if _USER else None,
                extra_groups=[] if _USER else None,
                cwd=self._home,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl-C in the tests is not theirs
            )

    def _options(self, folder: Path) -> list[str]:
        """The command without the shell around it, which starts two JVMs more; unless it is a lasting one,
        compiled once and lightly, for it lives for minutes.
        """
        manner = ("-XX:+UseG1GC",) if self._lasting else ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
        return [
            *("nice", "-n", "5", str(self._java), f"-Xms{self._heap_mb}m", f"-Xmx{self._heap_mb}m"),
            *(*manner, "-Xshare:auto"),
            *("--add-modules=jdk.incubator.vector", "-javaagent:agent/opensearch-agent.jar"),
            "--add-opens=java.base/java.nio=org.apache.arrow.memory.core,ALL-UNNAMED",
            *(f"-Djava.io.tmpdir={folder / 'tmp'}", "-Dlog4j2.disable.jmx=true", "-Djna.nosys=true"),
            *("-Dio.netty.noUnsafe=true", "-Dio.netty.recycler.maxCapacityPerThread=0"),
            "-Dlucene.store.MMapDirectory.sharedArenaMaxPermits=1",
            *(f"-Dopensearch.path.home={self._home}", f"-Dopensearch.path.conf={folder / 'config'}"),
            *("-Dopensearch.distribution.type=zip", "-Dopensearch.bundled_jdk=false"),
            *("-cp", f"{self._home / 'lib'}/*", "org.opensearch.bootstrap.OpenSearch"),
        ]

    def _node_settings(self, number: int) -> list[str]:
        folder = self._folder / str(number)
        seeds = ",".join(f"127.0.0.1:{port}" for port in self._transports)
        names = ",".join(f"n{i}" for i in range(len(self.ports)))
        settings = [
            *(f"path.data={folder / 'data'}", f"path.logs={folder / 'logs'}", "cluster.name=ctx"),
            *(f"node.name=n{number}", "network.host=127.0.0.1", "bootstrap.memory_lock=false"),
            *(f"http.port={self.ports[number]}", f"transport.port={self._transports[number]}"),
            *(f"discovery.seed_hosts={seeds}", f"cluster.initial_cluster_manager_nodes={names}"),
            # The disk of whoever runs the tests is often nearly full.
            "cluster.routing.allocation.disk.threshold_enabled=false",
            *self._settings,
        ]
        return [f"-E{setting}" for setting in settings]

    def wait(self, status: str = "yellow") -> "Cluster":
        """Waits until every node that was started is there and the shards are as `status` says; fails the
        test after `GREEN_S`.
        """
        alive = [number for number, node in enumerate(self._nodes) if node is not None]
        try:
            wait_for(self.urls[alive[0]], len(alive), status, self._check_alive)
        except TimeoutError:
            pytest.fail(f"OpenSearch is not {status} after {GREEN_S:.0f} s: {self._output(alive[0])}")
        return self

    def _check_alive(self) -> None:
        for number, node in enumerate(self._nodes):
            if node is not None and node.poll() is not None:
                pytest.fail(f"a node ended by itself: {self._output(number)}")

    def _output(self, number: int) -> str:
        return (self._folder / str(number) / "output").read_text(errors="replace")[-3000:]

    def ask(self, method: str, path: str, body: Any = None, *, number: int = 0) -> Any:
        """A request to a node, and its reply. Raises `OSError` where the node does not answer."""
        return ask(self.urls[number], method, path, body)

    def kill(self, number: int) -> None:
        """Kills a node at once (SIGKILL)."""
        node, self._nodes[number] = self._nodes[number], None
        assert node is not None
        node.kill()
        node.wait()

    def discard(self) -> None:
        for number, node in enumerate(self._nodes):
            if node is not None:
                self.kill(number)
        shutil.rmtree(self._folder, ignore_errors=True)
