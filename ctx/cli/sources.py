"""`ctx init`, `ctx add` and `ctx remove`: change the sources of a configuration."""

import os
import shlex
from argparse import Namespace
from typing import Any
from urllib.parse import urlsplit

import tomlkit

from ctx import files
from ctx.cli import Parser, command_parser
from ctx.cli.configuration import (
    append_table,
    configuration_at,
    file_at,
    keep_trust,
    project_location,
    trust_as_written,
)
from ctx.cli.index import drop_sources, run_index
from ctx.cli.output import plain, tell, warn
from ctx.config import Config, ConfigFile, load_config
from ctx.config.find import Location, find_config, project_root, shown_path, user_folder
from ctx.config.toml import toml_key, toml_value
from ctx.connectors.base import name_of
from ctx.errors import BadRequest, ConfigError, Conflict, NotFound
from ctx.text.strings import counted, one_line, sound
from ctx.workspace import open_workspace

TEMPLATE = """\
# The folders that ctx indexes here. All settings: `ctx docs configuration`
[connectors.filesystem.{name}]
root = {root}

[server]
# Any web page you visit may search this index. cors_origins = [] closes it.
cors_origins = ["*"]
"""
USER_TEMPLATE = """\
# The sources that ctx indexes for you outside any project. All settings: `ctx docs configuration`
[db]
path = "~/.ctx/ctx.db"
"""
_FORGES = ("github.com", "gitlab.com", "bitbucket.org", "codeberg.org")


# -- init ----------------------------------------------------------------------------------------------------


def init_options(options: Parser) -> None:
    """Write ctx.toml for this folder.

    ctx init
    ctx init --root docs
    """
    options.add_argument("--root", default=".", help="the folder to index (default: this one)")
    options.flag("--force", "replace an existing configuration")


def run_init(args: Namespace) -> int:
    path = args.config or "ctx.toml"
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder")
    if os.path.exists(path) and not args.force:
        warn(f"{path} already exists; nothing was written (--force replaces it).")
        return tell(args.json, {"file": os.path.abspath(path), "written": False})
    if not os.path.isdir(args.root):
        problem = "a file, not a folder" if os.path.exists(args.root) else "no such folder"
        raise ConfigError(f"--root: {problem}: {args.root}")
    if sound(args.root) != args.root:
        raise ConfigError(f"--root: TOML cannot hold a name that is not UTF-8: {one_line(args.root)}")
    name, root = toml_key(name_of(os.path.abspath(args.root))), toml_value(os.path.normpath(args.root))
    _write(path, TEMPLATE.format(name=name, root=root))
    trust_as_written(path)
    reply = {"file": os.path.abspath(path), "written": True}
    return tell(args.json, reply, f"Wrote {path}. {next_steps(path)}")


def next_steps(path: str) -> str:
    """Names the next commands after a configuration was written. They have `--config` if the file is not the
    one for the current folder.
    """
    try:
        location = find_config(None, os.environ, os.getcwd())
    except ConfigError:  # `$CTX_CONFIG` names a file that does not exist
        location = None
    used = location is not None and os.path.samefile(location.path, path)
    named = "" if used else f" --config {shlex.quote(path)}"
    return f"Next: `ctx index{named}`, then `ctx search WORDS{named}` or `ctx serve{named}`."


def _write(path: str, text: str, *, private: bool = False) -> None:
    with files.writing(path, ConfigError):
        if private:
            files.make_folder(os.path.dirname(path))
        else:
            os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        files.replace(path, text.encode(), mode=0o600 if private else 0o644)


# -- add -----------------------------------------------------------------------------------------------------


def add_options(options: Parser) -> None:
    """Add a source to this project's configuration, else to your own, and index it.

    ctx add ~/notes
    ctx add https://docs.example.com/ --name handbook
    """
    place = "a folder, the address of a git repository or a site, or s3://BUCKET/PREFIX"
    options.add_argument("place", metavar="PATH|URL", help=place)
    options.add_argument("--name", help="the source's name (default: from the folder or the address)")
    options.flag("--no-index", "only write the configuration, like --json")


def run_add(args: Namespace) -> int:
    location = find_config(args.config, os.environ, os.getcwd()) or _user_location()
    if not os.path.exists(location.path):
        _write(location.path, USER_TEMPLATE, private=True)
    config = configuration_at(location)
    kind, keys = source_at(args.place)
    place = keys.get("root") or args.place
    if kind in ("web", "s3"):
        place = urlsplit(place).hostname or place
    name = args.name or name_of(place)
    if kind == "filesystem":
        for folder in config.filesystems:
            _check_overlap(keys["root"], os.path.realpath(folder.root), folder.name)
        keys = {"root": _written_path(keys["root"], project_root(location.path), location.chosen)}
    elif args.place in [*(row.url for row in config.gits), *(row.url for row in config.webs)]:
        raise Conflict(f"{plain(args.place)} is already a source")
    rows: tuple[Any, ...] = (*config.filesystems, *config.gits, *config.webs, *config.buckets)
    if any(row.name == f"{kind}:{name}" for row in rows):
        raise Conflict(f"a source called '{kind}:{plain(name)}' exists; use --name for another name")
    shown, root = shown_path(location.path), project_root(location.path)
    added = {"connectors": {kind: {name: keys}}}
    ConfigFile(shown, root, added).config(os.environ)  # checks it before writing
    lines = "".join(f"{key} = {toml_value(value)}\n" for key, value in keys.items())
    append_table(location, f"connectors.{kind}.{toml_key(name)}", lines)
    reply = {"source": f"{kind}:{name}", "file": os.path.abspath(location.path)}
    tell(args.json, reply, f"Added {kind}:{name} to {plain(shown)}.")
    if args.json or args.no_index:
        return 0
    options = command_parser("index").parse_args([f"{kind}:{name}", "--config", location.path])
    return run_index(options)


def _user_location() -> Location:
    folder = user_folder(os.environ)
    if folder is None:
        raise ConfigError("no home folder for your own configuration: set HOME, or run `ctx init` here")
    return Location(os.path.join(folder, "config.toml"), True)


def source_at(place: str) -> tuple[str, dict[str, Any]]:
    """The kind of source at a path or address, such as `git`, and its settings. Raises `BadRequest`."""
    try:
        parts = urlsplit(place) if "://" in place else None
    except ValueError as error:
        raise BadRequest(f"{plain(place)} is not an address: {error}") from error
    if parts and not parts.netloc:
        raise BadRequest(f"{plain(place)} names no host; an address is such as https://docs.example.com/")
    steps = parts.path.strip("/").split("/") if parts else []
    if (
        place.startswith("git@")
        or (parts and parts.scheme in ("ssh", "git"))
        or (parts and (parts.path.endswith(".git") or (parts.hostname in _FORGES and len(steps) == 2)))
    ):
        return "git", {"url": place}
    if parts and parts.scheme == "s3":
        return "s3", {"bucket": parts.netloc, **({"prefix": parts.path.lstrip("/")} if steps != [""] else {})}
    if parts and parts.scheme in ("http", "https"):
        return "web", {"url": place}
    if parts:
        raise BadRequest(f"'{plain(parts.scheme)}://' is not supported; use a folder, git, http(s) or s3")
    path = os.path.realpath(os.path.expanduser(place))
    if not os.path.isdir(path):
        problem = "is a file; add its folder" if os.path.exists(path) else "does not exist"
        raise BadRequest(f"{plain(place)} {problem}")
    if path == os.path.sep:
        raise BadRequest("/ is the whole disk; add only the folders you want to search")
    if path == os.path.realpath(os.path.expanduser("~")):
        raise BadRequest(f"{plain(path)} is your whole home folder; add only the folders you want to search")
    if sound(path) != path:
        raise BadRequest(f"TOML cannot hold a name that is not UTF-8: {one_line(path)}")
    return "filesystem", {"root": path}


def _check_overlap(path: str, existing: str, name: str) -> None:
    """Raises `Conflict` if `path` equals, contains or is inside the folder `existing` of the source
    `name`.
    """
    if existing.startswith(f"{path}{os.sep}"):
        hint = f"run `ctx remove {name}` first, or add a folder that does not contain it"
        raise Conflict(f"{plain(path)} contains the source '{name}' ({plain(existing)}): {hint}")
    if path == existing or path.startswith(f"{existing}{os.sep}"):
        raise Conflict(f"{plain(path)} is already indexed with the source '{name}' ({plain(existing)})")


def _written_path(path: str, root: str, own: bool) -> str:
    """The path to write into the configuration: relative inside the project, `~/...` in the user's own."""
    root, home = os.path.realpath(root), os.path.realpath(os.path.expanduser("~"))
    if own and path.startswith(f"{home}{os.sep}"):
        return f"~{path[len(home) :]}"
    if path == root or path.startswith(f"{root}{os.sep}"):
        return os.path.join(".", os.path.relpath(path, root)) if path != root else "."
    return path


# -- remove --------------------------------------------------------------------------------------------------


def remove_options(options: Parser) -> None:
    """Remove a source from the configuration, and its documents from the index. The files are kept.

    ctx remove notes
    ctx remove ~/notes
    """
    options.add_argument("source", metavar="NAME|PATH|URL", help="its name, its folder or its address")


def run_remove(args: Namespace) -> int:
    location = project_location(args.config)
    path = os.path.abspath(location.path)
    source = _find(configuration_at(location), args.source)
    kind, _, name = source.partition(":")
    target = file_at(path, shared=not location.chosen, root=project_root(path))
    with open(target, encoding="utf-8", newline="") as file:
        document = tomlkit.parse(file.read())
    group: Any = document["connectors"]
    unnamed = [key for key, value in group[kind].items() if not isinstance(value, dict)]
    for key in [name] if name else unnamed:
        del group[kind][key]
    if not group[kind]:
        del group[kind]
    with keep_trust(path), files.writing(shown_path(path), ConfigError):
        files.replace(target, tomlkit.dumps(document).encode(), mode=os.stat(target).st_mode & 0o777)
    count = 0
    config = load_config(path, os.environ)
    if config.stored and not config.store.url:  # in a shared database another machine may use them
        with open_workspace(config) as workspace:
            strays = [status for status in workspace.unconfigured() if status.name == source]
            count = sum(documents for _, documents in drop_sources(workspace, strays))
    line = f"Removed {plain(source)} from {plain(shown_path(path))}, and {counted(count, 'document')}."
    return tell(args.json, {"source": source, "file": path, "documents": count}, line)


def _find(config: Config, text: str) -> str:
    """The full name of the source that `text` names, by its name, path or address. Raises `NotFound`, and
    `BadRequest` if several match.
    """
    places = {row.name: row.root for row in config.filesystems}
    places |= {row.name: row.url for row in config.gits} | {row.name: row.url for row in config.webs}
    places |= {row.name: row.bucket for row in config.buckets}
    places |= {row.name: row.path for row in config.script_connectors}
    path = os.path.realpath(os.path.expanduser(text))
    matches = [
        name
        for name, place in places.items()
        if text in (name, name.partition(":")[2], place) or os.path.realpath(place) == path
    ]
    if text in matches:
        return text
    if len(matches) != 1:
        if not matches:
            raise NotFound(f"no source '{plain(text)}'; `ctx status` lists the sources")
        raise BadRequest(f"'{plain(text)}' matches {', '.join(matches)}: name one")
    return matches[0]
