"""Finds a project's configuration file, and the folder to which its paths are relative."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ctx.errors import ConfigError

PLACES = ("ctx.toml", ".ctx/config.toml", "config/ctx.toml")
_INNER = ("config", ".ctx")  # the folders in PLACES; each is inside the project's folder


class Location(NamedTuple):
    """The path of a configuration file, and whether the user chose it.

    `chosen`: the user named the file, or it is the user's own. False if ctx found the file in this folder or
    one above: anyone may have written it.
    """

    path: str
    chosen: bool


def find_config(explicit: str | None, environ: Mapping[str, str], folder: str) -> Location | None:
    """The configuration file for `folder`; None if there is no file.

    It is the first that exists of: the file of `--config` (`explicit`), the file of `$CTX_CONFIG`, the
    project's file in this folder or the nearest one above, the user's own file. Raises `ConfigError` if a
    named file does not exist.
    """
    for origin, name in (("--config", explicit), ("$CTX_CONFIG", environ.get("CTX_CONFIG"))):
        if name:
            path = os.path.join(folder, os.path.expanduser(name))
            if not os.path.isfile(path):
                is_folder = os.path.isdir(path)
                fault = f"{name} is a folder, not a file in it" if is_folder else f"no such file: {name}"
                raise ConfigError(f"{origin}: {fault}; `ctx init` writes one")
            return Location(os.path.normpath(path), True)
    for ancestor in _upward(folder, environ.get("HOME")):
        places = [os.path.join(ancestor, name) for name in PLACES]
        if project_file := next(filter(os.path.isfile, places), None):
            return Location(os.path.normpath(project_file), False)
    path = os.path.join(user_folder(environ) or "", "config.toml")
    return Location(path, True) if os.path.isabs(path) and os.path.isfile(path) else None


def user_folder(environ: Mapping[str, str]) -> str | None:
    """The folder of the user's own configuration, tools and agents; None if the user has no home folder."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    return os.path.join(home, "ctx") if os.path.isabs(home) else None


def _upward(folder: str, home: str | None) -> Iterator[str]:
    """The folder and the folders above it, up to the home folder or the first folder of another user (both
    excluded).
    """
    yield folder
    summit = os.path.realpath(home) if home else ""
    ancestor = os.path.realpath(folder)
    while ancestor not in (summit, os.path.dirname(ancestor)):
        ancestor = os.path.dirname(ancestor)
        try:
            owner = os.stat(ancestor).st_uid
        except OSError:
            return
        if owner != os.geteuid():
            return
        yield ancestor


def project_root(path: str) -> str:
    """The project's folder for the configuration file at `path`: the file's folder, or its parent if the
    folder is called `config` or `.ctx`.
    """
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.dirname(folder) if os.path.basename(folder) in _INNER else folder


def client_name(root: str, most: int = 20) -> str:
    """The name of the MCP server of the project at `root` in clients' configurations, such as `ctx-notes`. It
    has at most `most` characters.

    Clients put this name before each tool's name, and allow about 60 characters for both.
    """
    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-")
    return f"ctx-{words}"[:most].rstrip("-") if words and words != "ctx" else "ctx"


def trusted_as(path: str) -> str:
    """The path under which a configuration is recorded in the list of trusted texts. Links are resolved up to
    the project's folder.

    A link to the file itself is not resolved, because the same text in another project names other scripts
    and folders.
    """
    root = project_root(path)
    return os.path.join(os.path.realpath(root), os.path.relpath(os.path.abspath(path), root))


def shown_path(path: str) -> str:
    """A path as shown in messages: relative to the working folder if it is below it."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
