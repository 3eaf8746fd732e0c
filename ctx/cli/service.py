"""`ctx service install|status|remove`: runs this project's server in the background.

It installs a systemd or launchd unit for the user. The unit runs `ctx serve` from log-in on and restarts it
if it fails.
"""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from typing import NamedTuple

from ctx import files
from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import configuration_at, project_location
from ctx.cli.output import plain, tell
from ctx.config.find import project_root
from ctx.errors import ConfigError, NotFound
from ctx.identity import digest
from ctx.models import JSON

TIMEOUT_S = 60
Command = tuple[str, ...]


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
    install = action(actions, "install", "write the unit (systemd, launchd) and start it")
    install.add_argument("--print", action="store_true", help="print the unit; write and start nothing")
    install.add_argument("--no-start", action="store_true", help="write the unit and print how to start it")
    action(actions, "status", "show whether it is installed and running")
    action(actions, "remove", "stop it and remove the unit; the project is not changed")


def run_service(args: Namespace) -> int:
    location = project_location(args.config)
    unit = unit_of(os.path.abspath(location.path), sys.platform, os.path.expanduser("~"))
    if args.action == "status":
        return _status(unit, args.json)
    if args.action == "remove":
        return _remove(unit, args.json)
    configuration_at(location)  # reports a mistake now instead of in the service's log
    if args.print:
        text = unit.text.decode()
        return tell(args.json, {"unit": unit.path, "text": text}, f"# {unit.path}\n{text}".rstrip("\n"))
    return _install(unit, start=not args.no_start, as_json=args.json)


# -- units ---------------------------------------------------------------------------------------------------


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


# -- actions -------------------------------------------------------------------------------------------------


def _install(unit: Unit, *, start: bool, as_json: bool) -> int:
    with files.writing(unit.path, ConfigError):
        files.make_folder(os.path.dirname(unit.path))
        files.replace(unit.path, unit.text, mode=0o644)
    by_hand = "; ".join(" ".join(command) for command in unit.start)
    if not as_json:
        print(f"Wrote {unit.path}.")
    state: JSON = {"unit": unit.path, "installed": True, "running": False}
    if not start or shutil.which(unit.start[0][0]) is None:
        return tell(as_json, {**state, "start": by_hand}, f"To start it: {by_hand}")
    for command in unit.start:
        if reason := _failure(command):
            raise ConfigError(f"{' '.join(command)} failed: {reason}; the unit is written, start it by hand")
    line = f"It is running and starts at every log-in. Log: {unit.log}"
    return tell(as_json, {**state, "running": True}, line)


def _status(unit: Unit, as_json: bool) -> int:
    installed = os.path.exists(unit.path)
    running = installed and _failure(unit.status) is None
    line = f"{unit.path}: {'running' if running else 'not running'}. Log: {unit.log}"
    state: JSON = {"unit": unit.path, "installed": installed, "running": running}
    return tell(as_json, state, line if installed else "Not installed. Run `ctx service install`.")


def _remove(unit: Unit, as_json: bool) -> int:
    if not os.path.exists(unit.path):
        raise NotFound(f"this project has no unit installed ({unit.path}); `ctx service install` writes it")
    _failure(unit.stop[0])  # fails if the unit is not running
    try:
        os.unlink(unit.path)
    except OSError as error:
        raise ConfigError(f"{unit.path} cannot be removed: {error.strerror}") from error
    for command in unit.stop[1:]:
        _failure(command)
    state: JSON = {"unit": unit.path, "installed": False, "running": False}
    return tell(as_json, state, f"Removed {unit.path}.")


def _failure(command: Command) -> str | None:
    """Runs a command. Returns None if it succeeds, else the reason in one line."""
    try:
        reply = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if reply.returncode == 0 else plain((reply.stderr or reply.stdout).strip()[:300]) or "failed"
