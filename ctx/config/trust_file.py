"""What the user has trusted: texts, by path and hash (`ctx trust`).

A repository can bring scripts in a `.ctx/` folder along, and a configuration that asks for more than reading
its own folder. Nothing of that counts because somebody changed into the folder: the hash of each text is
recorded in the user's own files, outside the project, and a text that changes has to be trusted again.
"""

import hashlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from ctx import file_writing, files
from ctx.errors import ConfigError, ToolError

FOLDERS = {"tools": "tool", "agents": "agent"}


class NotTrusted(ToolError):
    """A script of a project's `.ctx/` folder, or of a registry, whose text nobody has trusted."""


class Voucher(Protocol):
    """Who knows whether a script may run. `mend` ends the message where its file is not there."""

    @property
    def mend(self) -> str: ...

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """Why this text at this path, called `where`, does not run; None where it may.
        Raises `ConfigError`.
        """
        ...

    def stamp(self) -> tuple[int, ...]:
        """Changes when the answer may."""
        ...


class ProjectScript(NamedTuple):
    """A script of a project's `.ctx/` folder."""

    kind: str  # tool | agent
    name: str
    path: str
    digest: str
    trusted: bool


class TrustFile:
    """The hashes that the user has trusted."""

    mend = ""

    def __init__(self, path: str) -> None:
        self.path = path

    def digests(self) -> dict[str, str]:
        """path -> hash. Raises `ConfigError` where the file is damaged."""
        try:
            entries = json.loads(files.read_file(self.path))["trusted"]
            return {str(path): str(digest) for path, digest in entries.items()}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise ConfigError(
                f"the list of what is trusted cannot be read; delete {self.path} and run `ctx trust` again"
            ) from error

    def vouches(self, path: str, text: bytes) -> bool:
        """Whether the user has trusted this very text at this path. Raises `ConfigError`."""
        return self.digests().get(path) == digest_of(text)

    def refusal(self, path: str, text: bytes, where: str) -> str | None:
        """Why a script of a project does not run; None where it may. Raises `ConfigError`."""
        if self.vouches(path, text):
            return None
        return f"{where} is not trusted and does not run; look at it, then `ctx trust`"

    def stamp(self) -> tuple[int, ...]:
        """Changes when somebody trusts or revokes."""
        return files.stamp(self.path)

    def record(self, changes: Mapping[str, str | None]) -> None:
        """Trusts these texts (path -> hash), or no longer (None).

        Raises `ConfigError` where that cannot be written.
        """
        if not changes:
            return
        try:
            with file_writing.locked(self.path):
                entries: dict[str, str | None] = {**self.digests(), **changes}
                lasting = {path: digest for path, digest in sorted(entries.items()) if digest is not None}
                file_writing.replace(self.path, json.dumps({"trusted": lasting}, indent=1).encode())
        except OSError as error:
            raise ConfigError(
                f"trust cannot be recorded in {os.path.dirname(self.path)}: {error.strerror}; "
                "make it writable, or set XDG_STATE_HOME to a folder that is"
            ) from error


def trust_path(environ: Mapping[str, str]) -> str:
    """Where the user's trust is kept."""
    return os.path.join(files.state_folder(environ), "trusted.json")


def digest_of(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()


def _entries(folder: str) -> list[str]:
    """What is in a folder of `.ctx`; nothing where one of the two is a link, or it is not there."""
    if os.path.islink(folder) or os.path.islink(os.path.dirname(folder)):
        return []
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def project_files(root: str) -> Iterator[tuple[str, str, str]]:
    """(kind, name, path) of the scripts in a project's `.ctx/tools` and `.ctx/agents`.

    Only of this project, never of a folder above it.

    A link is passed over: it would give the script the folder that it leads to.
    """
    for name, kind in FOLDERS.items():
        folder = os.path.join(os.path.realpath(root), ".ctx", name)
        for entry in _entries(folder):
            path = os.path.join(folder, entry)
            if entry.endswith(".lua") and not os.path.islink(path) and os.path.isfile(path):
                yield kind, entry.removesuffix(".lua"), path


def project_scripts(root: str, trusted: Mapping[str, str]) -> Sequence[ProjectScript]:
    """A project's own scripts, by kind and name, and whether their text is the one that was trusted."""
    scripts = []
    for kind, name, path in project_files(root):
        try:
            with open(path, "rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError:
            continue  # it went meanwhile
        scripts.append(ProjectScript(kind, name, path, digest, trusted.get(path) == digest))
    return scripts
