"""The container image's settings, without Docker: a read-only root, and one volume."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from kit import ROOT

pytestmark = pytest.mark.slow

DOCKERFILE = (ROOT / "Dockerfile").read_text()
READ_ONLY = (
    "mount --make-rprivate / && mount --bind {data} {data} && mount -o remount,bind,ro {data}"
    ' && mount --bind {volume} {data}/.ctx && mount -o remount,bind,ro / && cd {data} && exec "$@"'
)


@contextmanager
def container(data: Path, volume: Path) -> Iterator[str]:
    """A server as the image starts it, with `data` as `/data`; its address."""
    environ = dict(re.findall(r"(\w+)=(/data\S*)", re.findall(r"^ENV .*$", DOCKERFILE, re.MULTILINE)[0]))
    environ = {name: value.replace("/data", str(data), 1) for name, value in environ.items()}
    environ |= {"PATH": os.environ["PATH"], "HOME": str(data), "CTX_API_KEY": "k"}
    command = json.loads(re.findall(r"^CMD (.*)$", DOCKERFILE, re.MULTILINE)[0])
    namespace = ["unshare", "--mount", "sh", "-c", READ_ONLY.format(data=data, volume=volume), "sh"]
    log = volume.parent / "log"
    with (
        log.open("a") as errors,
        subprocess.Popen(
            [*namespace, sys.executable, "-m", "ctx", *command],
            env=environ,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        ) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line.startswith("Listening on "), log.read_text()
            yield line.split()[-1]
        finally:
            process.terminate()


def call(address: str, tool: str, arguments: dict[str, str]) -> str:
    reply = httpx.post(
        f"http://{address}/tools/{tool}", json=arguments, headers={"Authorization": "Bearer k"}, timeout=60
    )
    assert reply.status_code == 200, reply.text
    return reply.text


def test_a_container_with_a_read_only_root_keeps_its_memories_over_a_start(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "--mount", "true"], check=False).returncode:
        pytest.skip("a read-only root needs a mount namespace: run this as root on Linux")
    data, volume = tmp_path / "data", tmp_path / "volume"
    (data / "docs").mkdir(parents=True)
    (data / ".ctx").mkdir()
    volume.mkdir(mode=0o700)
    (data / "docs" / "tea.md").write_text("# Tea\n\nThree minutes.\n")
    text = (ROOT / "docs" / "deploy" / "container.toml").read_text()
    text = text.replace("0.0.0.0:7331", "127.0.0.1:0") + '[packs]\nenabled = ["hindsight"]\n'
    (data / "ctx.toml").write_text(text)
    with container(data, volume) as address:
        call(address, "retain", {"content": "Otters pour tea."})
    shutil.rmtree(data / ".ctx")
    (data / ".ctx").mkdir()  # of another container of the image
    with container(data, volume) as address:
        assert "Otters pour tea." in call(address, "recall", {"query": "who pours tea?"})
    assert list(data.joinpath(".ctx").iterdir()) == []
    assert (volume / "ctx.db").exists()
