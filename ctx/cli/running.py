"""Lists the servers that run on this machine, and the tools of a server. `ctx service install|status|remove`
runs this project's server in the background.

Each server has a small file, which it locks as long as its process lives. A killed process leaves its file
behind without a lock; the next listing deletes it.

`ctx service` installs a systemd or launchd unit for the user. The unit runs `ctx serve` from log-in on and
restarts it if it fails.
"""

import fcntl
import json
import logging
import os
import plistlib
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from glob import escape as glob_escape
from glob import glob
from typing import NamedTuple

from ctx import files
from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import configuration_at, project_location
from ctx.cli.output import plain, tell
from ctx.config.find import project_root
from ctx.errors import ConfigError, NotFound
from ctx.http import Upstream, is_everywhere, is_loopback, split_bind
from ctx.models import JSON, digest

logger = logging.getLogger(__name__)

_ANSWER_S = 60  # for a server, systemctl and launchctl
Command = tuple[str, ...]
_CLIENT = {"name": "ctx connect", "version": "1"}
_HELLO: JSON = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": _CLIENT}
_MESSAGES: list[JSON] = [
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": _HELLO},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
    {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
]


@dataclass(frozen=True)
class Running:
    """A running server, as its file describes it."""

    root: str  # the project's folder
    address: str  # HOST:PORT
    pid: int
    since_ms: int
    config: str = ""  # the file of its configuration
    owner_key: str = ""  # a key with which other commands of the same user use the server


def _folder() -> str:
    return os.path.join(files.state_folder(os.environ), "running")


@contextmanager
def registered() -> Iterator[Callable[[Running], None]]:
    """Yields a function that lists a server as running until the block ends. If the file cannot be written,
    this is only logged.
    """
    path = os.path.join(_folder(), f"{os.getpid()}.json")
    descriptors = []

    def register(running: Running) -> None:
        try:
            files.make_folder(os.path.dirname(path))
            descriptors.append(files.open_file(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC))
            fcntl.flock(descriptors[0], fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(descriptors[0], json.dumps(asdict(running)).encode())
        except OSError as error:
            logger.info("`ctx status` does not list this server reason=%s", error.strerror)

    try:
        yield register
    finally:
        for descriptor in descriptors:
            with suppress(OSError):  # the folder was deleted
                os.unlink(path)
            os.close(descriptor)


def servers() -> list[Running]:
    """The running servers, the oldest first."""
    rows = filter(None, map(_live, glob(os.path.join(glob_escape(_folder()), "*.json"))))
    return sorted(rows, key=lambda row: row.since_ms)


def of_project(rows: Sequence[Running], root: str) -> Running | None:
    """The server of the project in the folder `root`, the youngest if there are several; else None."""
    folder = os.path.realpath(root)
    return next((row for row in reversed(rows) if os.path.realpath(row.root) == folder), None)


def at_address(rows: Sequence[Running], bind: str) -> Running | None:
    """The server that uses the address `bind` (HOST:PORT), or None. Raises `ConfigError` for an invalid
    address.
    """
    host, port = split_bind(bind)
    for row in rows:
        other, other_port = split_bind(row.address)
        near = host == other or (is_loopback(host) and is_loopback(other))
        if port == other_port and (near or is_everywhere(host) or is_everywhere(other)):
            return row
    return None


def _live(path: str) -> Running | None:
    """The server that a file describes. If its process has ended, deletes the file and returns None."""
    try:
        descriptor = files.open_file(path, os.O_RDWR)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # locked: the server runs
            try:
                return Running(**json.loads(file.read()))
            except (ValueError, TypeError):
                return None  # the file is being written
        os.unlink(path)
    return None


# -- tools of a server ---------------------------------------------------------------------------------------


def tools_over_http(server: Upstream) -> list[str]:
    """The names of the tools that an MCP server at an address lists. Raises `ConfigError`, or
    `ConnectionError` if no server answers.
    """
    import httpx  # 90 ms

    headers = {"Accept": "application/json, text/event-stream"}
    if server.key:
        headers["Authorization"] = f"Bearer {server.key}"
    try:
        with httpx.Client(headers=headers, timeout=10, trust_env=False) as client:
            for message in _MESSAGES:
                answer = client.post(server.url, json=message)
                if answer.status_code not in (200, 202):
                    status, text = answer.status_code, answer.text[:200]
                    raise ConfigError(f"{message['method']} was answered {status}: {text}")
    except httpx.HTTPError as error:
        raise ConnectionError(str(error)) from error
    return _tool_names(answer.text.rpartition("data: ")[2])


def tools_over_stdio(command: tuple[str, ...], folder: str) -> list[str]:
    """The names of the tools that an MCP server, started with `command` in `folder`, lists. Raises
    `ConfigError`.
    """
    text = "".join(json.dumps(message) + "\n" for message in _MESSAGES)
    try:
        reply = subprocess.run(
            command, input=text, cwd=folder, capture_output=True, text=True, timeout=_ANSWER_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(str(error)) from error
    if not reply.stdout.strip():
        raise ConfigError(plain(reply.stderr.strip())[-300:] or "no answer")
    return _tool_names(reply.stdout)


def _tool_names(replies: str) -> list[str]:
    """The tool names in the reply to `tools/list`. `replies` has one JSON reply per line, in any order.
    Raises `ConfigError`.
    """
    try:
        answers = [json.loads(line) for line in replies.splitlines() if line.strip()]
        listed = next(answer for answer in answers if answer.get("id") == _MESSAGES[-1]["id"])
        return [tool["name"] for tool in listed["result"]["tools"]]
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise ConfigError("tools/list was not answered with tools") from error


# -- service -------------------------------------------------------------------------------------------------


class Unit(NamedTuple):
    """A unit file for systemd or launchd, and the commands that control the unit."""

    path: str
    text: bytes
    start: tuple[Command, ...]
    stop: tuple[Command, ...]
    status: Command
    log: str  # the command that shows its log


def service_options(options: Parser) -> None:
    """Run this project's server in the background and start it at log-in.

    ctx service install
    ctx service status
    """
    actions = actions_of(options)
    install = action(actions, "install", "write the unit (systemd, launchd) and start it", _install)
    install.flag("--print", "print the unit; write and start nothing")
    install.flag("--no-start", "write the unit and print how to start it")
    action(actions, "status", "show whether it is installed and running", _status)
    action(actions, "remove", "stop it and remove the unit; the project is not changed", _remove)


def run_service(args: Namespace) -> int:
    location = project_location(args.config)
    if args.action == "install":
        configuration_at(location)  # reports a mistake now instead of in the service's log
    unit = unit_of(os.path.abspath(location.path), sys.platform, os.path.expanduser("~"))
    return int(args.run(unit, args))


def unit_of(config: str, platform: str, home: str) -> Unit:
    """Builds the unit that serves a configuration. It is named after the folder and a hash of the path.
    Raises `ConfigError` if a unit file cannot contain the path.
    """
    root = project_root(config)
    # For systemd a carriage return ends a line too, and a backslash at the end continues it.
    if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", config) or root.endswith("\\"):
        raise ConfigError(f"{root!r} has a character that a unit file cannot contain; rename the folder")
    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-") or "project"
    name = f"{words}-{digest(os.fsencode(config), 8)}"
    # -P: without it Python would import a `ctx` or `json.py` from the project's folder, in which it starts.
    command = (sys.executable, "-P", "-m", "ctx", "serve", "mcp", "--config", config)
    return (_launchd if platform == "darwin" else _systemd)(name, command, root, home)


def _systemd(name: str, command: Command, root: str, home: str) -> Unit:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    name = f"ctx-{name}.service"
    words = []
    for word in command:
        for character, escape in (("%", "%%"), ("\\", "\\\\"), ('"', '\\"'), ("$", "$$")):
            word = word.replace(character, escape)
        words.append(f'"{word}"')
    escaped_root = root.replace("%", "%%")
    text = f"""[Unit]
Description=ctx for {escaped_root}

[Service]
ExecStart={" ".join(words)}
WorkingDirectory={escaped_root}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""
    tool = ("systemctl", "--user")
    return Unit(
        os.path.join(folder, "systemd", "user", name),
        text.encode(),
        start=((*tool, "daemon-reload"), (*tool, "enable", "--now", name)),
        stop=((*tool, "disable", "--now", name), (*tool, "daemon-reload")),
        status=(*tool, "is-active", name),
        log=f"journalctl --user -u {name}",
    )


def _launchd(name: str, command: Command, root: str, home: str) -> Unit:
    label = f"ctx.{name}"
    log = os.path.join(home, "Library", "Logs", f"{label}.log")
    path = os.path.join(home, "Library", "LaunchAgents", f"{label}.plist")
    domain = f"gui/{os.getuid()}"
    agent = {
        "Label": label,
        "ProgramArguments": list(command),
        "WorkingDirectory": root,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    return Unit(
        path,
        plistlib.dumps(agent),
        start=(("launchctl", "bootstrap", domain, path),),
        stop=(("launchctl", "bootout", f"{domain}/{label}"),),
        status=("launchctl", "print", f"{domain}/{label}"),
        log=f"tail {log}",
    )


def _tell_state(args: Namespace, unit: Unit, line: str, *, running: bool = False, **more: str) -> int:
    state: JSON = {"unit": unit.path, "installed": os.path.exists(unit.path), "running": running, **more}
    return tell(args.json, state, line)


def _install(unit: Unit, args: Namespace) -> int:
    if args.print:
        text = unit.text.decode()
        return tell(args.json, {"unit": unit.path, "text": text}, f"# {unit.path}\n{text}".rstrip("\n"))
    with files.writing(unit.path, ConfigError):
        files.make_folder(os.path.dirname(unit.path))
        files.replace(unit.path, unit.text, mode=0o644)
    if not args.json:
        print(f"Wrote {unit.path}.")
    if args.no_start or shutil.which(unit.start[0][0]) is None:
        by_hand = "; ".join(" ".join(command) for command in unit.start)
        return _tell_state(args, unit, f"To start it: {by_hand}", start=by_hand)
    for command in unit.start:
        if reason := _failure(command):
            raise ConfigError(f"{' '.join(command)} failed: {reason}; the unit is written, start it by hand")
    line = f"It is running and starts at every log-in. Log: {unit.log}"
    return _tell_state(args, unit, line, running=True)


def _status(unit: Unit, args: Namespace) -> int:
    if not os.path.exists(unit.path):
        return _tell_state(args, unit, "Not installed. Run `ctx service install`.")
    running = _failure(unit.status) is None
    line = f"{unit.path}: {'running' if running else 'not running'}. Log: {unit.log}"
    return _tell_state(args, unit, line, running=running)


def _remove(unit: Unit, args: Namespace) -> int:
    if not os.path.exists(unit.path):
        raise NotFound(f"this project has no unit installed ({unit.path}); `ctx service install` writes it")
    _failure(unit.stop[0])  # fails if the unit is not running
    os.unlink(unit.path)
    for command in unit.stop[1:]:
        _failure(command)
    return _tell_state(args, unit, f"Removed {unit.path}.")


def _failure(command: Command) -> str | None:
    """Runs a command. Returns None if it succeeds, else the reason in one line."""
    try:
        reply = subprocess.run(
            command, capture_output=True, text=True, timeout=_ANSWER_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if reply.returncode == 0 else plain((reply.stderr or reply.stdout).strip()[:300]) or "failed"
