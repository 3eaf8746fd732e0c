"""The README is true: its `$` lines are run, each block in the folder that the first one made, and print what it says they print."""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from kit import ROOT

pytestmark = pytest.mark.slow

_LOOSE = (
    (re.compile(r"\b\d+\.\d+ s\b"), "N s"),  # how long something took
    (re.compile(r"(?<=  )[01]\.\d\d$"), "SCORE"),
    (re.compile(r'"score":[01](?:\.\d+)?'), '"score":SCORE'),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "..."),
)


def console_blocks(markdown: str) -> list[list[tuple[str, list[str]]]]:
    """The console blocks: of each its commands, with the lines that they are said to print."""
    blocks = []
    for text in re.findall(r"^```console\n(.*?)^```", markdown, re.MULTILINE | re.DOTALL):
        steps: list[tuple[str, list[str]]] = []
        for line in text.splitlines():
            if line.startswith("$ "):
                steps.append((line[2:], []))
            else:
                steps[-1][1].append(line)
        blocks.append(steps)
    return blocks


def loosely(line: str) -> str:
    for pattern, stand_in in _LOOSE:
        line = pattern.sub(stand_in, line)
    return line.rstrip()


def fits(said: str, printed: str) -> bool:
    """Whether a line is the one that the README says, whose `...` stands for anything."""
    pattern = ".*".join(re.escape(part) for part in loosely(said).split("..."))
    return re.fullmatch(pattern, loosely(printed)) is not None


class Terminal:
    """A shell in a fresh home, which runs what a reader would type and gives what is printed."""

    def __init__(self, home: Path, port: int) -> None:
        commands = home / "bin"
        commands.mkdir()
        ctx = commands / "ctx"
        ctx.write_text(f'#!/bin/sh\nexec {sys.executable} -m ctx "$@"\n')
        ctx.chmod(0o755)
        self.port = port
        self.log = home / "server.log"
        environ = {
            "PATH": f"{commands}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
        }
        self.shell = subprocess.Popen(
            ["bash"],
            cwd=home,
            env=environ,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def type(self, command: str) -> list[str]:
        """Runs one line; what it prints. A command ending in `&` is told to write to a file, which is read until it listens."""
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        command = command.replace("7331", str(self.port))
        if command.endswith("&"):
            self.log.touch()  # the shell makes it in its own time
            command = f"{command[:-1]} --bind 127.0.0.1:{self.port} --log-level error > {self.log} 2>&1 &"
        self.shell.stdin.write(f"{command}\necho; echo END-OF-OUTPUT $?\n")
        self.shell.stdin.flush()
        lines: list[str] = []
        while not (line := self.shell.stdout.readline()).startswith("END-OF-OUTPUT"):
            assert line, "the shell ended"
            lines.append(line.rstrip("\n"))
        assert line.split()[1] == "0", f"`{command}` failed: {lines}"
        if command.endswith("&"):
            deadline = time.monotonic() + 30
            while not (lines := self.log.read_text().splitlines()):
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.02)
        while lines and not lines[-1]:
            lines.pop()
        return [line.replace(str(self.port), "7331") for line in lines]

    def close(self) -> None:
        """Stops the server and the shell."""
        try:
            # Not SIGINT: a shell's background job ignores that until it has set a handler of its own.
            self.shell.communicate("kill $(jobs -p) 2>/dev/null; wait\n", timeout=20)
        finally:
            if self.shell.poll() is None:
                os.killpg(self.shell.pid, signal.SIGKILL)
                self.shell.communicate()


@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None, reason="needs bash and curl"
)
def test_the_session_of_the_readme_can_be_repeated_by_a_stranger(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    blocks = console_blocks((ROOT / "README.md").read_text())
    assert len(blocks) >= 2
    terminal = Terminal(tmp_path, port)
    try:
        for steps in blocks:
            for command, said in steps:
                printed = terminal.type(command)
                shown = "\n".join(printed)
                if said:
                    assert len(printed) == len(said), f"`{command}` prints\n{shown}"
                for line, real in zip(said, printed, strict=False):
                    assert fits(line, real), f"`{command}` does not print {line!r}, but\n{shown}"
    finally:
        terminal.close()


def test_the_check_of_the_readme_can_fail() -> None:
    assert fits('{"id":"...","score":1.0}', '{"id":"0d6a6a5c-5d7e-5a3c-8f5e-1c2b3a4d5e6f","score":0.98}')
    assert fits("embedded 2 chunks in 0.8 s", "embedded 2 chunks in 12.0 s")
    assert fits(" 1. Releasing  0.85", " 1. Releasing  0.79")
    assert not fits("embedded 2 chunks in 0.8 s", "embedded 3 chunks in 0.8 s")
    assert not fits(" 1. Releasing  0.85", " 1. Signing in  0.85")
    assert console_blocks("```console\n$ a\nb\n```\n") == [[("a", ["b"])]]
