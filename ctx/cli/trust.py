"""`ctx trust`, and the question that a configuration raises which was found and asks for more than its own
folder.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from ctx.cli.common import project_location, table, tell
from ctx.cli.options import Parser, describe
from ctx.config import read_config
from ctx.config.settings import REGISTRY_PREFIX
from ctx.config.trust import asked, requests
from ctx.errors import BadRequest, ConfigError
from ctx.extensions.trust import (
    ProjectScript,
    TrustFile,
    digest_of,
    project_scripts,
    trust_path,
)
from ctx.project import Location, project_root, shown_path, trusted_as
from ctx.text import one_line
from ctx.types import JSON

ASKED_REQUESTS = 20  # behind a question: of more the first, which matter most to a stranger, scroll away
SHOWN_REQUESTS = 3  # in an error's one line; `ctx trust --list` shows all
MAX_LINE = 400  # characters of one request: a longer one is cut where it can be seen to be cut


def require_trust(path: str, content: bytes, lines: Sequence[str]) -> None:
    """Returns where the user has trusted these bytes (`asked`) at this path, or does so now. Raises
    `ConfigError`.

    Asked where both the question and the answer are a terminal's, and what is asked for can be read there; a
    program that cannot answer gets the command that trusts.
    """
    file = TrustFile(trust_path(os.environ))
    if file.vouches(trusted_as(path), content):
        return
    name = one_line(shown_path(path), MAX_LINE)
    asking = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    if asking and len(lines) <= ASKED_REQUESTS:
        print(f"{name} was found, not named, and asks for more than reading its own folder:", file=sys.stderr)
        print(bullets(lines), file=sys.stderr)
        print("Trust it as it is now? [y/N] ", end="", file=sys.stderr, flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            file.record({trusted_as(path): digest_of(content)})
            return
    summary, look = _summary(lines)
    raise ConfigError(
        f"{name} was found, not named, and asks for more than reading its own folder: it {summary}. "
        f"{look}, then `{_command(path)}` trusts it as it is now"
    )


def _summary(lines: Sequence[str]) -> tuple[str, str]:
    """What is asked for, in one line, and how to look at all of it."""
    excess = len(lines) - SHOWN_REQUESTS
    excess_line = [f"and {excess} more"] if excess > 0 else []
    look = "Look at it (`ctx trust --list`)" if excess > 0 else "Look at it"
    return "; ".join([*(one_line(line) for line in lines[:SHOWN_REQUESTS]), *excess_line]), look


def trust_as_written(path: str) -> list[str]:
    """Trusts a configuration that the user has just had written; what it asks for. Raises `ConfigError`."""
    configured = _read(Location(path, False))
    if configured.requests:
        TrustFile(trust_path(os.environ)).record({trusted_as(path): configured.digest})
    return configured.requests


@contextmanager
def trust_after_own_change(path: str) -> Iterator[None]:
    """The user's own command changes the configuration in the block: it is as trusted afterwards as before.
    Raises `ConfigError`.
    """
    file = TrustFile(trust_path(os.environ))
    configured = _read(Location(path, False))
    trusted = not configured.requests or file.digests().get(trusted_as(path)) == configured.digest
    yield
    if trusted:
        trust_as_written(path)


def _command(path: str) -> str:
    """What to type in this folder to trust the configuration there."""
    root = project_root(path)
    return f"ctx trust {os.path.relpath(path, root)}"


def bullets(lines: Sequence[str]) -> str:
    """What a configuration asks for, a printable line each."""
    return "\n".join(f"  - it {one_line(line, MAX_LINE)}" for line in lines)


class _Configured(NamedTuple):
    """The project's configuration as `ctx trust` sees it.

    `chosen` ones need no trust, and those without requests neither.
    """

    path: str
    chosen: bool
    digest: str
    requests: list[str]

    @property
    def name(self) -> str:
        return os.path.relpath(self.path, project_root(self.path))

    def state(self, trusted: bool) -> str:
        if not self.requests:
            return "asks for nothing"
        return "trusted" if trusted else "named" if self.chosen else "NOT trusted"


def _read(location: Location) -> _Configured:
    file = read_config(location.path)
    digest = digest_of(asked(file.content, file.tables, file.root))
    return _Configured(file.path, location.chosen, digest, requests(file.tables, file.root))


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Trust this project's configuration, where it asks for more than reading its own folder, "
        "and the scripts of its .ctx folder. Look at them first: each text is trusted by its hash.",
        json=True,
    )
    options.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="only these: a script's name, the configuration's (ctx.toml), or a registry's script "
        "(registry:NAME/tools/SCRIPT; registry:NAME for all of it); everything of the project when absent",
    )
    options.add_argument(
        "--list", action="store_true", help="only show what is trusted and what is asked for"
    )
    options.add_argument("--revoke", action="store_true", help="trust them no longer")


def run(command: str, args: Namespace) -> int:
    if any(name.startswith(REGISTRY_PREFIX) for name in args.names):
        from ctx.cli.registry import trust_scripts  # 60 ms: what runs scripts brings an HTTP client

        return trust_scripts(args)
    return _trust_project(args)


def _record(
    file: TrustFile, configured: _Configured | None, scripts: Sequence[ProjectScript], *, revoke: bool
) -> None:
    """Trusts, or no longer."""
    changes = {script.path: script.digest for script in scripts}
    if configured is not None:
        changes[trusted_as(configured.path)] = configured.digest
    file.record(dict.fromkeys(changes) if revoke else changes)


def _trust_project(args: Any) -> int:
    location = project_location(args.config)
    file = TrustFile(trust_path(os.environ))
    digests = file.digests()
    configured = _read(location)
    scripts = project_scripts(project_root(location.path), digests)
    _check_names(args.names, configured, scripts)
    names = args.names or [configured.name, *(script.name for script in scripts)]
    picked = [script for script in scripts if script.name in names]
    configured_too = configured.name in names
    trusted = digests.get(trusted_as(configured.path)) == configured.digest
    if not args.json and configured_too:
        _show_requests(configured)
    if not args.list:
        asking = configured if configured_too and (args.revoke or configured.requests) else None
        _record(file, asking, picked, revoke=args.revoke)
        trusted = trusted if asking is None else not args.revoke
        picked = [script._replace(trusted=not args.revoke) for script in picked]
    lines = _state_lines(configured if configured_too else None, trusted, picked)
    return tell(args.json, _as_json(configured, trusted, picked), *lines)


def _show_requests(configured: _Configured) -> None:
    if configured.requests:
        print(f"{one_line(configured.name)} asks for more than reading its own folder:")
        print(bullets(configured.requests), flush=True)


def _check_names(names: Sequence[str], configured: _Configured, scripts: Sequence[ProjectScript]) -> None:
    unknown = set(names) - {script.name for script in scripts} - {configured.name}
    if unknown:
        raise BadRequest(
            f"nothing called {', '.join(sorted(unknown))} in .ctx/tools or .ctx/agents, "
            f"and the configuration is {configured.name}"
        )


def _as_json(configured: _Configured, trusted: bool, scripts: Sequence[ProjectScript]) -> JSON:
    return {
        "configuration": {
            "name": configured.name,
            "sha256": configured.digest,
            "trusted": trusted or configured.chosen or not configured.requests,
            "asks": configured.requests,
        },
        "scripts": [
            {"kind": script.kind, "name": script.name, "sha256": script.digest, "trusted": script.trusted}
            for script in scripts
        ],
    }


def _state_lines(
    configured: _Configured | None, trusted: bool, scripts: Sequence[ProjectScript]
) -> Iterator[str]:
    rows = [
        (script.kind, script.name, "trusted" if script.trusted else "NOT trusted", script.digest[:16])
        for script in scripts
    ]
    if configured is not None:
        state = configured.state(trusted)
        rows.insert(0, ("configuration", configured.name, state, configured.digest[:16]))
    yield table(rows, ("KIND", "NAME", "STATE", "SHA-256"))
    if not scripts:
        yield "This project's .ctx folder holds no scripts."
