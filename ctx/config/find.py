"""Find a project's configuration file, and the folder that its paths are relative to."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ctx.errors import ConfigError

PLACES = ("ctx.toml", ".ctx/config.toml", "config/ctx.toml")
_INNER = ("config", ".ctx")  # the folders in PLACES, which are inside the project's folder


class Location(NamedTuple):
    """A configuration file.

    `chosen`: the user named it, or it is the user's own. False if it was found in this folder or above: a
    stranger may have written it.
    """

    path: str
    chosen: bool


def find_config(explicit: str | None, environ: Mapping[str, str], folder: str) -> Location | None:
    """The configuration for `folder`; None if there is none.

    The first of: `--config`, `$CTX_CONFIG`, the project's file in this folder or the nearest one above, the
    user's own file. Raises `ConfigError` if a named file does not exist.
    """
    for origin, name in (("--config", explicit), ("$CTX_CONFIG", environ.get("CTX_CONFIG"))):
        if name:
            return _named(origin, name, folder)
    for ancestor in _upward(folder, environ.get("HOME")):
        places = [os.path.join(ancestor, name) for name in PLACES]
        if place := next(filter(os.path.isfile, places), None):
            return Location(os.path.normpath(place), False)
    folder_of_user = user_folder(environ)
    path = os.path.join(folder_of_user, "config.toml") if folder_of_user is not None else ""
    return Location(path, True) if os.path.isfile(path) else None


def _named(origin: str, name: str, folder: str) -> Location:
    path = os.path.join(folder, os.path.expanduser(name))
    if not os.path.isfile(path):
        raise ConfigError(f"{origin}: {_absence(name, path)}")
    return Location(os.path.normpath(path), True)


def _absence(name: str, path: str) -> str:
    """Why the named file is not a configuration, and what to use instead."""
    if not os.path.isdir(path):
        return f"no such file: {name}; `ctx init` writes one"
    inner = next((place for place in PLACES if os.path.isfile(os.path.join(path, place))), None)
    return f"{name} is a folder, and " + (
        f"its configuration is {os.path.join(name, inner)}"
        if inner
        else "it has no " + ", ".join(PLACES) + "; `ctx init` writes one"
    )


def user_folder(environ: Mapping[str, str]) -> str | None:
    """The folder of the user's own configuration, tools and agents. None without a home folder."""
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    return os.path.join(home, "ctx") if os.path.isabs(home) else None


def _upward(folder: str, home: str | None) -> Iterator[str]:
    """The folder and those above it, up to the home folder, without folders of other users."""
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
    """The project's folder: the one of the file, or its parent if that is `config` or `.ctx`."""
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.dirname(folder) if os.path.basename(folder) in _INNER else folder


def client_name(root: str, most: int = 20) -> str:
    """The name of a project's server in the configuration of clients, such as `ctx-notes`.

    Clients put it before each tool's name, and allow about 60 characters for both.
    """
    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-")
    return f"ctx-{words}"[:most].rstrip("-") if words and words != "ctx" else "ctx"


def trusted_as(path: str) -> str:
    """A configuration's path in the list of trusted texts: links are resolved up to the project's folder.

    A link to a file is not resolved: in another project, the same text names other scripts and folders.
    """
    root = project_root(path)
    return os.path.join(os.path.realpath(root), os.path.relpath(os.path.abspath(path), root))


def shown_path(path: str) -> str:
    """A path for messages: relative if it is below the working folder."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
