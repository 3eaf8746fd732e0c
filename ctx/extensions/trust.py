"""Which of a project's own scripts may run: those whose text the user has trusted (`ctx trust`).

A repository can bring a `.ctx/` folder along. Nothing in it runs because somebody changed into the folder: the hash of each script is recorded in
the user's own files, outside the project, and a script that changes has to be trusted again.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from ctx import files
from ctx.errors import ConfigError, StoreError, ToolError

FOLDERS = {"tools": "tool", "agents": "agent"}


class NotTrusted(ToolError):
    """A script of a project's `.ctx/` folder whose text nobody has trusted."""


class Found(NamedTuple):
    """A script of a project's `.ctx/` folder."""

    kind: str  # tool | agent
    name: str
    path: str
    digest: str
    trusted: bool


class TrustFile:
    """The hashes that the user has trusted."""

    def __init__(self, path: str) -> None:
        self.path = path

    def digests(self) -> dict[str, str]:
        """path -> hash. Raises `ConfigError` where the file is damaged."""
        try:
            loaded = json.loads(files.read_file(self.path))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"the list of trusted scripts cannot be read; delete {os.path.basename(self.path)} and run `ctx trust` again"
            ) from error
        return (
            {str(path): str(digest) for path, digest in loaded.get("trusted", {}).items()}
            if isinstance(loaded, dict)
            else {}
        )

    def vouches(self, path: str, text: bytes) -> bool:
        """Whether the user has trusted this very text at this path. Raises `ConfigError`."""
        return self.digests().get(path) == digest_of(text)

    def stamp(self) -> tuple[int, int, int]:
        """Changes when somebody trusts or revokes."""
        try:
            found = os.stat(self.path)
        except OSError:
            return (0, 0, 0)
        return found.st_mtime_ns, found.st_size, found.st_ino

    def record(self, changes: Mapping[str, str | None]) -> None:
        """Trusts these texts (path -> hash), or no longer (None). Raises `StoreError` where that cannot be written down."""
        if not changes:
            return
        try:
            with files.Locked(self.path):
                digests = self.digests()
                for path, digest in changes.items():
                    if digest is None:
                        digests.pop(path, None)
                    else:
                        digests[path] = digest
                content = {"trusted": dict(sorted(digests.items()))}
                files.replace(self.path, json.dumps(content, indent=1).encode())
        except OSError as error:
            raise StoreError(
                f"the list of trusted scripts cannot be written: {error.strerror}; "
                f"make {os.path.dirname(self.path)} writable, or set XDG_STATE_HOME to a folder that is"
            ) from error


def trust_path(environ: Mapping[str, str]) -> str:
    """Where the user's trust is kept."""
    home = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or "/", ".local", "state")
    return os.path.join(home, "ctx", "trusted.json")


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def project_files(root: str) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path) of the scripts in a project's `.ctx/tools` and `.ctx/agents`. Only of this project, never of a folder above it.

    A link is passed over: it would give the script the folder that it leads to.
    """
    for folder, kind in FOLDERS.items():
        place = os.path.join(os.path.realpath(root), ".ctx", folder)
        if os.path.islink(place) or os.path.islink(os.path.dirname(place)):
            continue
        try:
            names = sorted(os.listdir(place))
        except OSError:
            continue
        for name in names:
            path = os.path.join(place, name)
            if name.endswith(".lua") and not os.path.islink(path) and os.path.isfile(path):
                yield kind, name.removesuffix(".lua"), path


def project_scripts(root: str, trusted: Mapping[str, str]) -> Sequence[Found]:
    """A project's own scripts, by kind and name, and whether their text is the one that was trusted."""
    found = []
    for kind, name, path in project_files(root):
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue  # it went meanwhile
        found.append(Found(kind, name, path, digest, trusted.get(path) == digest))
    return found
