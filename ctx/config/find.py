"""Where a project is: its configuration file, and the folder its paths are relative to."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from ctx.errors import ConfigError

PLACES = ("ctx.toml", ".ctx/config.toml", "config/ctx.toml")
_INNER = ("config", ".ctx")  # the folders of PLACES: the project is the one that holds them


class Location(NamedTuple):
    """A configuration file and who chose it.

    `chosen`: the user named it or keeps it among their own files. False where it was merely found in this
    folder or above: whoever wrote it may be a stranger.
    """

    path: str
    chosen: bool


def find_config(explicit: str | None, environ: Mapping[str, str], folder: str) -> Location | None:
    """The configuration that counts in `folder`; None where there is none.

    The first of: `--config`, `$CTX_CONFIG`, the places of a project in this folder or the nearest one above
    that has one, the user's own. Raises `ConfigError` where a file was named and is not there.
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
    """Why what was named is no configuration, and which would be one."""
    if not os.path.isdir(path):
        return f"no such file: {name}; `ctx init` writes one"
    inner = next((place for place in PLACES if os.path.isfile(os.path.join(path, place))), None)
    return f"{name} is a folder, and " + (
        f"its configuration is {os.path.join(name, inner)}"
        if inner
        else "there is none of " + ", ".join(PLACES) + " in it; `ctx init` writes one"
    )


def user_folder(environ: Mapping[str, str]) -> str | None:
    """Where the user keeps what is theirs in every project: a configuration, tools, agents.
    None without a home.
    """
    home = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    return os.path.join(home, "ctx") if os.path.isabs(home) else None


def _upward(folder: str, home: str | None) -> Iterator[str]:
    """The folder, then those above it: up to the home folder, and never into another user's."""
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
    """What relative paths are relative to: the folder of the file, or its parent if that is `config` or
    `.ctx`.
    """
    folder = os.path.dirname(os.path.abspath(path))
    return os.path.dirname(folder) if os.path.basename(folder) in _INNER else folder


def client_name(root: str, most: int = 20) -> str:
    """The name of a project's server in the user's own files of clients, such as `ctx-notes`.

    Clients put it before every tool's name, and allow about 60 characters for both.
    """
    words = re.sub(r"[^a-z0-9]+", "-", os.path.basename(root).lower()).strip("-")
    return f"ctx-{words}"[:most].rstrip("-") if words and words != "ctx" else "ctx"


def trusted_as(path: str) -> str:
    """A configuration's name in the list of what is trusted: its project's folder, links resolved, and its
    place in that.

    Not the file behind a link: the same text means another project's scripts and folders elsewhere.
    """
    root = project_root(path)
    return os.path.join(os.path.realpath(root), os.path.relpath(os.path.abspath(path), root))


def shown_path(path: str) -> str:
    """A configuration's path for messages: relative if it is below the working folder."""
    relative = os.path.relpath(path)
    return path if relative.startswith("..") else relative
