"""`ctx service install|status|remove`: this project's server in the background, as a unit of the user's own.

systemd has a unit file for each project, launchd a property list; both start `ctx serve mcp --config` of it
at log-in and again when it fails.
"""

import os
import plistlib
import re
import shutil
import subprocess
import sys
from argparse import Namespace
from typing import NamedTuple
from xml.sax.saxutils import escape

from ctx import file_writing, files
from ctx.cli.configuration import configuration_at, project_location
from ctx.cli.options import Parser, action, actions_of, describe
from ctx.cli.output import plain, tell
from ctx.config.find import project_root
from ctx.errors import ConfigError, NotFound
from ctx.identity import digest
from ctx.models import JSON

TOOL_TIMEOUT_S = 60


class Unit(NamedTuple):
    """A unit file and the commands that make the system take notice of it. `log` says where its lines go."""

    path: str
    text: bytes
    mark: bytes  # what of the text says which project it serves
    start: tuple[tuple[str, ...], ...]
    stop: tuple[tuple[str, ...], ...]
    status: tuple[str, ...]
    log: str


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Run this project's server in the background, from log-in on.",
        "ctx service install",
        "ctx service status",
        json=True,
    )
    actions = actions_of(options, "install|status|remove")
    install = action(actions, "install", "write the unit (systemd, launchd) and start it")
    install.add_argument("--print", action="store_true", help="print the unit; write and start nothing")
    install.add_argument("--no-start", action="store_true", help="write the unit, and say how to start it")
    action(actions, "status", "say whether it is installed, and whether it runs")
    action(actions, "remove", "stop it and take the unit away; the project stays as it is")


def run(command: str, args: Namespace) -> int:
    location = project_location(args.config)
    if args.action == "install":
        configuration_at(location)  # a mistake in it is told now, not by a log that nobody reads
    unit = own_unit(os.path.abspath(location.path), sys.platform, os.path.expanduser("~"))
    if args.action == "status":
        return _status(unit, args.json)
    if args.action == "remove":
        return _remove(unit, args.json)
    if args.print:
        text = unit.text.decode()
        return tell(args.json, {"unit": unit.path, "text": text}, f"# {unit.path}\n{text}".rstrip("\n"))
    return _install(unit, start=not args.no_start, as_json=args.json)


def own_unit(config: str, platform: str, home: str) -> Unit:
    """The unit of this configuration: the one that is installed, else the first that is no other project's.

    Two projects may be in folders of one name; the second's unit has letters of its path's hash behind it.
    """
    suffixes = ("", f"-{digest(os.fsencode(config), 8)}")
    units = [unit_of(config, platform, home, suffix) for suffix in suffixes]
    present = [_content(unit.path) for unit in units]
    for unit, content in zip(units, present, strict=True):
        if content is not None and unit.mark in content:
            return unit
    return units[0] if present[0] is None else units[1]


def _content(path: str) -> bytes | None:
    """What is in the file; None where there is none."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error


def unit_of(config: str, platform: str, home: str, suffix: str = "") -> Unit:
    """The unit that serves a configuration, on this platform, for the user with this home. Raises
    `ConfigError`.
    """
    root = project_root(config)
    # systemd takes a carriage return for the end of a line too, and a backslash before one for a line that
    # goes on.
    if re.search(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]", config) or root.endswith("\\"):
        raise ConfigError(f"{root!r} holds a letter that a unit cannot name; rename the folder")
    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-") or "project"
    words += suffix
    # -P: it starts in the project's folder, whose own `ctx` or `json.py` would else be what is run.
    command = (sys.executable, "-P", "-m", "ctx", "serve", "mcp", "--config", config)
    if platform == "darwin":
        return _launchd(f"ctx.{words}", command, root, home)
    return _systemd(f"ctx-{words}.service", command, root, home)


def _systemd(name: str, command: tuple[str, ...], root: str, home: str) -> Unit:
    folder = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    text = f"""[Unit]
Description=ctx for {_escaped(root)}

[Service]
ExecStart={" ".join(_quoted(word) for word in command)}
WorkingDirectory={_escaped(root)}
Restart=on-failure
RestartSec=5

[Install]
WantedBy=default.target
"""
    tool = ("systemctl", "--user")
    return Unit(
        os.path.join(folder, "systemd", "user", name),
        text.encode(),
        f'"--config" {_quoted(command[-1])}\n'.encode(),
        ((*tool, "daemon-reload"), (*tool, "enable", "--now", name)),
        ((*tool, "disable", "--now", name), (*tool, "daemon-reload")),
        (*tool, "is-active", name),
        f"journalctl --user -u {name}",
    )


def _escaped(text: str) -> str:
    """A path in a unit file: `%` begins a specifier there."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    inner = _escaped(word).replace("\\", "\\\\").replace('"', '\\"').replace("$", "$$")
    return f'"{inner}"'


def _launchd(label: str, command: tuple[str, ...], root: str, home: str) -> Unit:
    log = os.path.join(home, "Library", "Logs", f"{label}.log")
    path = os.path.join(home, "Library", "LaunchAgents", f"{label}.plist")
    agent = {
        "Label": label,
        "ProgramArguments": list(command),
        "WorkingDirectory": root,
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    domain = f"gui/{os.getuid()}"
    return Unit(
        path,
        plistlib.dumps(agent),
        f"<string>--config</string>\n\t\t<string>{escape(command[-1])}</string>".encode(),
        (("launchctl", "bootstrap", domain, path),),
        (("launchctl", "bootout", f"{domain}/{label}"),),
        ("launchctl", "print", f"{domain}/{label}"),
        f"tail {log}",
    )


def _install(unit: Unit, *, start: bool, as_json: bool) -> int:
    with file_writing.writing(unit.path, ConfigError):
        files.make_folder(os.path.dirname(unit.path))
        file_writing.replace(unit.path, unit.text, mode=0o644)
    by_hand = "; ".join(" ".join(command) for command in unit.start)
    if not as_json:
        print(f"Wrote {unit.path}.")
    state: JSON = {"unit": unit.path, "installed": True, "running": False}
    if not start or shutil.which(unit.start[0][0]) is None:
        return tell(as_json, {**state, "start": by_hand}, f"To start it: {by_hand}")
    for command in unit.start:
        reason = _failure(command)
        if reason is not None:
            raise ConfigError(f"{' '.join(command)} failed: {reason}; the unit is written, start it by hand")
    line = f"It runs now, and from every log-in on. Its log: {unit.log}"
    return tell(as_json, {**state, "running": True}, line)


def _status(unit: Unit, as_json: bool) -> int:
    present = os.path.exists(unit.path)
    active = present and _failure(unit.status) is None
    line = f"{unit.path}: {'runs' if active else 'does not run'}. Its log: {unit.log}"
    return tell(
        as_json,
        {"unit": unit.path, "installed": present, "running": active},
        line if present else "Not installed; `ctx service install` does it.",
    )


def _remove(unit: Unit, as_json: bool) -> int:
    if not os.path.exists(unit.path):
        raise NotFound(f"no unit of this project is installed ({unit.path}); `ctx service install` writes it")
    _failure(unit.stop[0])  # one that does not run cannot be stopped, and goes all the same
    try:
        os.unlink(unit.path)
    except OSError as error:
        raise ConfigError(f"{unit.path} cannot be removed: {error.strerror}") from error
    for command in unit.stop[1:]:
        _failure(command)
    state: JSON = {"unit": unit.path, "installed": False, "running": False}
    return tell(as_json, state, f"Removed {unit.path}.")


def _failure(command: tuple[str, ...]) -> str | None:
    """Runs a command of the system's; why it failed, in a line, or None."""
    try:
        reply = subprocess.run(
            command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return None if reply.returncode == 0 else plain((reply.stderr or reply.stdout).strip()[:300])
