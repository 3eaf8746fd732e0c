"""Follow a page as a reader does: type its commands into a terminal and compare the output."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

_LOOSE = (
    (re.compile(r"\b\d+\.\d+ s\b"), "N s"),  # how long something took
    (re.compile(r"(?<=  )[01]\.\d\d$"), "SCORE"),
    (re.compile(r'"score":[01](?:\.\d+)?'), '"score":SCORE'),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-5[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}"), "..."),
)
_FENCE = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```', re.MULTILINE | re.DOTALL)


class Command(NamedTuple):
    """A `$` line and the output that the page shows; an empty list accepts any output."""

    line: str
    output: list[str]


class File(NamedTuple):
    """A block with a title: the text of a file with that name."""

    path: str
    text: str


Step = Command | File


def steps(markdown: str) -> list[Step]:
    """The steps of a page in order: its console blocks and its titled blocks."""
    sequence: list[Step] = []
    for language, title, text in _FENCE.findall(markdown):
        if title:
            sequence.append(File(title, text))
        elif language == "console":
            sequence += _commands(text)
    return sequence


def _commands(text: str) -> list[Command]:
    commands: list[Command] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:], []))
        else:
            commands[-1].output.append(line)
    return commands


def _loosely(line: str) -> str:
    for pattern, stand_in in _LOOSE:
        line = pattern.sub(stand_in, line)
    return line.rstrip()


def fits(claim: str, line: str) -> bool:
    """Whether a printed line matches the one on the page, where `...` matches any text."""
    pattern = ".*".join(re.escape(part) for part in _loosely(claim).split("..."))
    return re.fullmatch(pattern, _loosely(line)) is not None


def mismatch(claims: list[str], lines: list[str]) -> str | None:
    """The first line of the page that the output does not match; None if all match.
    A last line `...` matches any number of lines.
    """
    open_ended = bool(claims) and claims[-1] == "..."
    if claims and not open_ended and len(claims) != len(lines):
        return f"{len(claims)} lines"
    for number, claim in enumerate(claims[:-1] if open_ended else claims):
        if number >= len(lines) or not fits(claim, lines[number]):
            return repr(claim)
    return None


def checkout_program(home: Path) -> Path:
    """A folder with a `ctx` command that runs this checkout."""
    programs = home / "bin"
    programs.mkdir()
    ctx = programs / "ctx"
    ctx.write_text(f'#!/bin/sh\nexec {sys.executable} -m ctx "$@"\n')
    ctx.chmod(0o755)
    return programs


class Terminal:
    """A shell in a fresh home folder that runs commands and returns their output.

    `programs` is the folder of an installed `ctx`, by default this checkout's; `user` the id to run it as.
    """

    def __init__(
        self, home: Path, port: int, *, programs: Path | None = None, user: int | None = None
    ) -> None:
        programs = programs or checkout_program(home)
        self.port = port
        self.transcript: list[str] = []
        self.log = home / "server.log"
        environ = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "LANG": "C.UTF-8",
            "NO_COLOR": "1",
            "GIT_CONFIG_NOSYSTEM": "1",
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
            user=user,
            group=user,
        )

    def type(self, command: str) -> list[str]:
        """Run one line, which must succeed, and return its output.
        The output of a line that ends in `&` goes to a file, which is read as soon as it is not empty.
        """
        assert self.shell.stdin is not None
        assert self.shell.stdout is not None
        command = command.replace("7331", str(self.port))
        if command.endswith("&"):
            command = (
                f"{command[:-1]} --bind 127.0.0.1:{self.port} --log-level error </dev/null > {self.log} 2>&1 "
                "&"
            )
        self.shell.stdin.write(f"{command}\nstatus=$?; echo; echo END-OF-OUTPUT $status\n")
        self.shell.stdin.flush()
        lines: list[str] = []
        while not (line := self.shell.stdout.readline()).startswith("END-OF-OUTPUT"):
            assert line, "the shell ended"
            lines.append(line.rstrip("\n"))
        assert line.split()[1] == "0", f"`{command}` failed: {lines}"
        if command.endswith("&"):
            deadline = time.monotonic() + 30
            while not (lines := self.log.read_text().splitlines() if self.log.exists() else []):
                assert time.monotonic() < deadline, "the server did not start"
                time.sleep(0.02)
        while lines and not lines[-1]:
            lines.pop()
        self.transcript += [f"$ {command}", *lines]
        return [line.replace(str(self.port), "7331") for line in lines]

    def write(self, file: File) -> None:
        """Write a file into the shell's current folder."""
        (folder,) = self.type("pwd")
        path = Path(folder.replace("7331", str(self.port)), file.path)
        path.write_text(file.text)

    def follow(self, page: str) -> None:
        """Run all steps of a page and compare the output."""
        for step in steps(page):
            if isinstance(step, File):
                self.write(step)
                continue
            lines = self.type(step.line)
            difference = mismatch(step.output, lines)
            transcript = "\n".join(lines)
            assert difference is None, f"`{step.line}` does not print {difference}, but\n{transcript}"

    def close(self) -> None:
        """Stop the server and the shell."""
        try:
            # Not SIGINT: a shell's background job ignores that until it has set a handler of its own.
            self.shell.communicate("kill $(jobs -p) 2>/dev/null; wait\n", timeout=20)
        finally:
            if self.shell.poll() is None:
                os.killpg(self.shell.pid, signal.SIGKILL)
                self.shell.communicate()
