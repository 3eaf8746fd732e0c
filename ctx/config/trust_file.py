"""Records the texts that the user trusts, by path and hash (`ctx trust`).

A repository can contain scripts, and a configuration that does more than read its own folder. ctx uses such
files only after the user trusts them. The hash of each trusted text is recorded outside the project, so a
changed text must be trusted again.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol

from ctx import files
from ctx.config.load import Config
from ctx.config.settings import REGISTRY_PREFIX
from ctx.errors import ConfigError, ToolError

FOLDERS = {"tools": "tool", "agents": "agent"}


class NotTrusted(ToolError):
    """A script cannot run, because the user does not trust its text."""


class Voucher(Protocol):
    """Decides whether a script may run. `mend` is advice that ends the message about a missing script
    file.
    """

    @property
    def mend(self) -> str: ...

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """The reason why this text may not run; None if it may run. `where` is the script's name in messages.
        Raises `ConfigError`.
        """
        ...

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when a result of `refusal` may change."""
        ...


class ProjectScript(NamedTuple):
    """A script that is in a project's `.ctx/` folder or named in its configuration."""

    kind: str  # tool | agent | connector
    name: str
    path: str  # its path in the list of trusted texts
    digest: str
    trusted: bool


class TrustFile:
    """The file with the hashes of trusted texts."""

    mend = ""

    def __init__(self, path: str) -> None:
        self.path = path

    def digests(self) -> dict[str, str]:
        """path -> hash of the trusted texts. Raises `ConfigError` if the file is damaged."""
        try:
            entries = json.loads(files.read_file(self.path))["trusted"]
            return {str(path): str(digest) for path, digest in entries.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"the list of trusted texts cannot be read; delete {self.path} and run `ctx trust` again"
            ) from error

    def vouches(self, path: str, text: bytes) -> bool:
        """Whether the user trusts this text at this path. Raises `ConfigError`."""
        return self.digests().get(path) == digest_of(text)

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """The reason why a script of a project may not run; None if it may run. Raises `ConfigError`."""
        if self.vouches(path, text):
            return None
        return f"{where} is not trusted and does not run; review it, then run `ctx trust`"

    def stamp(self) -> tuple[int, ...]:
        """A value that changes when the file changes."""
        return files.stamp(self.path)

    def record(self, changes: Mapping[str, str | None]) -> None:
        """Records trust in texts (path -> hash), or revokes it (path -> None). Raises `ConfigError`."""
        if not changes:
            return
        try:
            with files.locked(self.path):
                entries: dict[str, str | None] = {**self.digests(), **changes}
                lasting = {path: digest for path, digest in sorted(entries.items()) if digest is not None}
                files.replace(self.path, json.dumps({"trusted": lasting}, indent=1).encode())
        except OSError as error:
            raise ConfigError(
                f"trust cannot be recorded in {os.path.dirname(self.path)}: {error.strerror}; "
                "make the folder writable, or set XDG_STATE_HOME to a writable one"
            ) from error


class PinnedScripts(TrustFile):
    """Checks the scripts of a configuration that ctx found. A script may run only if its text is the same as
    when the user trusted the configuration and the script.
    """

    def __init__(self, path: str, config: Config) -> None:
        super().__init__(path)
        self._root = config.root
        name = os.path.relpath(config.path, config.root) if config.path else "ctx.toml"
        self._command = f"ctx trust {name}"

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        digest = self.digests().get(_script_key(path, self._root))
        if digest == digest_of(text):
            return None
        reason = "is not trusted yet" if digest is None else "has changed since you trusted it"
        return f"{where} {reason} and does not run; review it, then run `{self._command}`"


def pins_of(config: Config, environ: Mapping[str, str]) -> PinnedScripts | None:
    """The check for the scripts of a configuration; None if the user chose the configuration."""
    return None if config.chosen else PinnedScripts(trust_path(environ), config)


def trust_path(environ: Mapping[str, str]) -> str:
    """The path of the user's list of trusted texts."""
    return os.path.join(files.state_folder(environ), "trusted.json")


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def project_files(root: str) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path) of the scripts in a project's `.ctx/tools` and `.ctx/agents`.

    Links are skipped, because a script may read its own folder, and a link could make this any folder.
    """
    for name, kind in FOLDERS.items():
        folder = os.path.join(os.path.realpath(root), ".ctx", name)
        if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
            continue
        for script, path in scripts_in(folder):
            if not os.path.islink(path) and os.path.isfile(path):
                yield kind, script, path


def scripts_in(folder: str | None) -> list[tuple[str, str]]:
    """(name, path) of the scripts in a folder, sorted by name; empty if the folder does not exist."""
    try:
        entries = sorted(os.listdir(folder)) if folder is not None else []
    except OSError:
        return []
    return [
        (entry.removesuffix(".lua"), os.path.join(folder or "", entry))
        for entry in entries
        if entry.endswith(".lua") and not entry.startswith(".")
    ]


def project_scripts(root: str, trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts in a project's `.ctx/` folder, each with whether its text is trusted. `trusted` is path ->
    hash.
    """
    return _compared(((kind, name, path, path) for kind, name, path in project_files(root)), trusted)


def configured_scripts(config: Config, trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts that a configuration names and the scripts in its `tools_dir`, each with whether its text
    is trusted. `trusted` is path -> hash.

    Scripts from registries are not included, because their trust is recorded elsewhere.
    """
    groups = {
        "connector": config.script_connectors,
        "tool": config.script_tools,
        "agent": config.script_agents,
    }
    named = [(kind, script.name, script.path) for kind, group in groups.items() for script in group]
    named += [("tool", name, path) for name, path in scripts_in(config.lua.tools_dir)]
    rows = (
        (kind, name, path, _script_key(path, config.root))
        for kind, name, path in named
        if not path.startswith(REGISTRY_PREFIX)
    )
    return _compared(rows, trusted)


def _compared(rows: Iterable[tuple[str, str, str, str]], trusted: Mapping[str, str]) -> list[ProjectScript]:
    """The scripts with their hashes, each with whether it is trusted. `rows` are (kind, name, path, path in
    the list of trusted texts). Missing files are skipped.
    """
    return [
        ProjectScript(kind, name, key, digest, trusted.get(key) == digest)
        for kind, name, path, key in rows
        if (digest := _digest_of_file(path)) is not None
    ]


def _script_key(path: str, root: str) -> str:
    """The path under which a script is recorded in the list of trusted texts. Links are resolved up to the
    project's folder `root`.
    """
    return os.path.normpath(os.path.join(os.path.realpath(root), os.path.relpath(path, root)))


def _digest_of_file(path: str) -> str | None:
    """The hash of a file; None if it is not a regular file or cannot be read."""
    if files.irregular(path):
        return None
    try:
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None
