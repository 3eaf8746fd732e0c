"""Finds and reads the configuration of a command, and checks that the user trusts it."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from ctx import files
from ctx.cli.output import plain, warn
from ctx.config import Config, default_config, read_config
from ctx.config.find import Location, find_config, project_root, shown_path, trusted_as
from ctx.config.toml import tables_in
from ctx.config.trust import (
    ProjectScript,
    TrustFile,
    asked,
    configured_scripts,
    digest_of,
    requests,
    trust_path,
    variables,
)
from ctx.errors import ConfigError
from ctx.text.strings import one_line

NO_PROJECT = (
    "no ctx.toml here or in a folder above; `ctx init` writes one for this folder, "
    "`ctx add FOLDER` works without one, `--config PATH` names another"
)
NO_SOURCES = "No sources are configured. `ctx add FOLDER` adds one."
SHOWN_REQUESTS = 3  # requests that an error lists
MAX_LINE = 400  # characters of one request


def project_location(explicit: str | None) -> Location:
    """The configuration file for the current folder, or the one that `--config` names (`explicit`). Raises
    `ConfigError` if there is none.
    """
    location = find_config(explicit, os.environ, os.getcwd())
    if location is None:
        raise ConfigError(NO_PROJECT)
    return location


def configuration(explicit: str | None, *, required: bool = True) -> Config:
    """Reads the configuration for the current folder, or the one that `--config` names (`explicit`). Without
    one, returns the defaults unless it is `required`.

    Raises `ConfigError` if a required configuration is missing, or if it asks for more than the user has
    trusted.
    """
    location = find_config(explicit, os.environ, os.getcwd())
    if location is None and not required:
        return default_config(os.getcwd())
    return configuration_at(location or project_location(explicit))


def configuration_at(location: Location) -> Config:
    """Reads the configuration file and prints its warnings. Raises `ConfigError` if it has mistakes, or if it
    asks for more than the user has trusted.
    """
    file = read_config(location.path)
    if not location.chosen and (lines := requests(file.tables, file.root)):
        # Report mistakes before asking for trust, if the configuration uses no environment variables.
        if not any(variables(file.tables)):
            file.config({}, chosen=False)
        require_trust(location, asked(file.content, file.tables, file.root), lines)
    config = file.config(os.environ, chosen=location.chosen)
    for warning in config.warnings:
        warn(f"Warning: {plain(warning)}")
    return config


def memory_configuration(explicit: str | None) -> Config:
    """Like `configuration`, but without a configuration it returns the defaults of the home folder: memories
    then belong to the user and not to the current folder.
    """
    if find_config(explicit, os.environ, os.getcwd()) is None:
        return default_config(os.path.expanduser("~"))
    return configuration(explicit)


def file_at(path: str, *, shared: bool, root: str | None = None) -> str:
    """Returns the absolute path to write for `path`. Raises `ConfigError`.

    A user's own file may be a link, for example into a folder of dotfiles. In a project (`shared`, below
    `root` or the current folder) no part of the path may be a link, because links may have come with a clone.
    """
    if not shared:
        return os.path.realpath(path)
    path = os.path.abspath(path)
    try:
        files.check_file(path, beneath=root or os.getcwd())
    except FileNotFoundError:
        pass  # the file or its folder does not exist yet
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from error
    return path


# -- trust ---------------------------------------------------------------------------------------------------


def require_trust(location: Location, content: bytes, lines: Sequence[str]) -> None:
    """Raises `ConfigError` if the user has not trusted `content` (from `asked`) for this file. `lines` are
    the requests to show.
    """
    path = location.path
    if TrustFile(trust_path(os.environ)).vouches(trusted_as(path), content):
        return
    name = one_line(shown_path(path), MAX_LINE)
    excess = len(lines) - SHOWN_REQUESTS
    shown = [*map(one_line, lines[:SHOWN_REQUESTS]), *([f"and {excess} more"] if excess > 0 else [])]
    look = "Review it (`ctx trust --list`)" if excess > 0 else "Review it"
    command = f"ctx trust {os.path.relpath(path, project_root(path))}"
    raise ConfigError(
        f"{name} is not trusted yet and asks for more than reading its own folder: it {'; '.join(shown)}. "
        f"{look}, then run `{command}`"
    )


def bullets(lines: Sequence[str]) -> str:
    """Formats the requests of a configuration that need trust as a list, one printable line each."""
    return "\n".join(f"  - it {one_line(line, MAX_LINE)}" for line in lines)


@dataclass(frozen=True)
class Requests:
    """What a configuration asks for beyond reading its own folder, one line each. This needs the user's trust
    in `digest`, unless the user named the file (`chosen`).
    """

    path: str
    chosen: bool
    digest: str
    lines: list[str]

    @property
    def name(self) -> str:
        return os.path.relpath(self.path, project_root(self.path))


def requests_of(location: Location) -> Requests:
    """Reads the requests of a configuration file. Raises `ConfigError`."""
    file = read_config(location.path)
    digest = digest_of(asked(file.content, file.tables, file.root))
    return Requests(location.path, location.chosen, digest, requests(file.tables, file.root))


def scripts_of(location: Location, digests: Mapping[str, str]) -> Sequence[ProjectScript]:
    """The scripts that are trusted together with a configuration. Empty if the user named the file
    (`chosen`), or if it cannot be read. `digests` are the trusted hashes by path.
    """
    if location.chosen:
        return []
    try:
        return configured_scripts(read_config(location.path).config(os.environ, chosen=False), digests)
    except ConfigError:
        return []  # loading the configuration reports the reason


def trust_as_written(path: str) -> list[str]:
    """Trusts a configuration that ctx has just written, and its scripts. Returns its requests."""
    location = Location(path, False)
    written = requests_of(location)
    if written.lines:
        scripts = {script.path: script.digest for script in scripts_of(location, {})}
        TrustFile(trust_path(os.environ)).record({trusted_as(path): written.digest, **scripts})
    return written.lines


@contextmanager
def keep_trust(path: str) -> Iterator[None]:
    """A context for changing the configuration at `path`: if it was trusted before the block, it is trusted
    after it.
    """
    file = TrustFile(trust_path(os.environ))
    before = requests_of(Location(path, False))
    trusted = not before.lines or file.digests().get(trusted_as(path)) == before.digest
    yield
    after = requests_of(Location(path, False))
    if trusted and after.lines:
        file.record({trusted_as(path): after.digest})


def append_table(location: Location, header: str, lines: str) -> str:
    """Appends a table to a configuration, and keeps the user's trust in it. Returns the appended text."""
    path = os.path.abspath(location.path)
    target = file_at(path, shared=not location.chosen, root=project_root(path))
    label = shown_path(path)
    block = f"\n[{header}]\n{lines}"
    with keep_trust(path), files.writing(label, ConfigError):
        content = files.read_file(target)
        content += b"" if content.endswith(b"\n") or not content else b"\n"
        content += block.encode()
        tables_in(content, label)  # fails if the table exists inline and cannot be extended
        files.replace(target, content, mode=os.stat(target).st_mode & 0o777)
    return block


def scaffold(file: str, **values: str) -> str:
    """Returns the template `file` of ctx/cli/scaffolds. `values` replace its markers, such as `{{name}}`."""
    with open(os.path.join(os.path.dirname(__file__), "scaffolds", file), encoding="utf-8") as template:
        text = template.read()
    for marker, value in values.items():
        text = text.replace(f"{{{{{marker}}}}}", value)
    return text
