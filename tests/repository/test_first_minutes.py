"""The first ten minutes of a new user: the wheel in a fresh environment, a fresh home, no privileges."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from kit import ROOT, python_for_anybody
from page_kit import Terminal

from ctx import __version__
from ctx.lua.lockdown import NOBODY

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

UNWELCOME = ("Traceback", "Warning", "WARNING", "Exception", "None", "FAIL")


@pytest.fixture
def stranger() -> Iterator[Path]:
    """A fresh home, outside pytest's own folder, which is closed to others."""
    home = Path(tempfile.mkdtemp(prefix="ctx-stranger-", dir="/tmp"))
    if os.geteuid() == 0:
        os.chown(home, NOBODY, NOBODY)
    try:
        yield home
    finally:
        shutil.rmtree(home)


@pytest.fixture(scope="module")
def installed() -> Iterator[Path]:
    """The programs of an environment that holds the locked dependencies and this checkout's wheel, and
    nothing else.
    """
    uv = shutil.which("uv", path=f"{os.environ['PATH']}:{Path(sys.executable).parent}")
    if uv is None:
        message = "needs uv: `bash .ci/setup ci .venv` installs it"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    folder = Path(tempfile.mkdtemp(prefix="ctx-installed-", dir="/tmp"))
    folder.chmod(0o755)
    python = folder / "venv" / "bin" / "python"
    wheels = folder / "wheels"
    install = [uv, "pip", "install", "--quiet", "--link-mode", "copy", "--python", str(python)]
    commands = (
        [uv, "build", "--quiet", "--wheel", "--out-dir", str(wheels), str(ROOT)],
        [uv, "venv", "--quiet", "--python", python_for_anybody(), str(folder / "venv")],
        [*install, "--require-hashes", "-r", str(ROOT / "requirements" / "runtime.txt")],
    )
    try:
        for command in commands:
            subprocess.run(command, check=True, cwd=folder)
        (wheel,) = wheels.glob("*.whl")
        subprocess.run([*install, "--no-deps", str(wheel)], check=True, cwd=folder)
        subprocess.run([uv, "pip", "check", "--quiet", "--python", str(python)], check=True, cwd=folder)
        yield python.parent
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(
    any(shutil.which(name) is None for name in ("curl", "bash", "git")), reason="needs bash, curl and git"
)
def test_somebody_new_has_an_answer_a_server_and_a_connected_editor(installed: Path, stranger: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    user = NOBODY if os.geteuid() == 0 else None
    terminal = Terminal(stranger, port, programs=installed, user=user)
    try:
        assert terminal.type("ctx --version") == [f"ctx {__version__}"]
        # Folder, init, index, search, a folder below, serve, an HTTP call, an editor.
        terminal.follow((ROOT / "docs" / "tutorial.md").read_text())
        # The entry is in the project, by name and without a personal path, so that it can be committed.
        entries = json.loads((stranger / "handbook" / ".cursor" / "mcp.json").read_text())["mcpServers"]
        assert {entry["command"] for entry in entries.values()} == {"ctx"}
        terminal.type("ctx doctor")
        # Git ignores .ctx; ctx.toml and the editor's entry can be committed.
        terminal.type(
            "git add . && git -c user.name=New -c user.email=new@example.org commit --quiet -m first"
        )
        assert terminal.type("git status --short") == []
        assert terminal.type("git ls-files") == [
            ".cursor/mcp.json",
            "auth.md",
            "ctx.toml",
            "howto/release.md",
        ]
        assert (stranger / "handbook" / ".ctx").stat().st_mode & 0o077 == 0
        # A second project knows nothing of the first.
        terminal.type("mkdir ../recipes && cd ../recipes && printf '# Tea\\n\\nThree minutes.\\n' > tea.md")
        terminal.type("ctx init && ctx index --no-embed")
        assert "auth.md" not in "\n".join(terminal.type("ctx search tokens || true"))
        assert "Tea" in terminal.type("ctx search tea")[0]
    finally:
        terminal.close()
    assert terminal.log.read_text().splitlines() == [
        f"Listening on 127.0.0.1:{port}",
        f"The page: http://127.0.0.1:{port}/",
    ]
    lines = [line for line in terminal.transcript if any(word in line for word in UNWELCOME)]
    assert lines == [], "\n".join(terminal.transcript)
    visible = {path.name for path in stranger.iterdir()}
    assert visible <= {"handbook", "recipes", ".cache", ".local", ".config", "server.log"}
