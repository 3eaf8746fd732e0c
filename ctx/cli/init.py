"""`ctx init`: a configuration for this folder."""

import os
import shlex
import sys
from argparse import Namespace

from ctx import file_writing
from ctx.bundled import bundled_path
from ctx.cli.common import plain, tell
from ctx.cli.options import Parser, describe
from ctx.cli.trust import trust_as_written
from ctx.errors import ConfigError
from ctx.project import Location, find_config
from ctx.text import one_line, sound
from ctx.toml import toml_value


def _check_root(root: str) -> None:
    """Raises `ConfigError` for what cannot be indexed."""
    if not os.path.isdir(root):
        absence = "a file, not a folder" if os.path.exists(root) else "no such folder"
        raise ConfigError(f"--root: {absence}: {root}")
    if sound(root) != root:
        raise ConfigError(f"--root: a name that is not UTF-8 has no place in TOML: {one_line(root)}")


def add_options(command: str, options: Parser) -> None:
    describe(
        options,
        "Write ctx.toml for this folder: a commented example that indexes the folder itself.",
        json=True,
    )
    options.add_argument("--root", default=".", help="the folder to index (default: this one)")
    options.add_argument("--force", action="store_true", help="replace a configuration that is there")


def run(command: str, args: Namespace) -> int:
    path = args.config or "ctx.toml"
    if os.path.isdir(path):
        raise ConfigError(f"{path} is a folder; a configuration is a file: --config FILE names another place")
    if os.path.exists(path) and not args.force:
        print(f"{path} is there already; nothing was written (--force replaces it).", file=sys.stderr)
        return tell(args.json, {"file": os.path.abspath(path), "written": False})
    _check_root(args.root)
    with open(bundled_path("config", "ctx.toml"), encoding="utf-8") as file:
        text = file.read()
    text = text.replace('root = "./docs"', f"root = {toml_value(os.path.normpath(args.root))}", 1)
    before = _counting()
    with file_writing.writing(path, ConfigError):
        os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
        file_writing.replace(path, text.encode(), mode=0o644)
    trust_as_written(path)
    return tell(
        args.json,
        {"file": os.path.abspath(path), "written": True},
        f"Wrote {path}. {next_steps(path)}",
        notes=() if args.config else _takeover(before, path),
    )


def next_steps(path: str) -> str:
    """What to type with a configuration that was just written; one that is not found from here is named."""
    location = _counting()
    here = location is not None and os.path.samefile(location.path, path)
    named = "" if here else f" --config {shlex.quote(path)}"
    return f"Next: `ctx index{named}`, then `ctx search WORDS{named}` or `ctx serve mcp{named}`."


def _counting() -> Location | None:
    """The configuration that commands take here; None also where `$CTX_CONFIG` names none."""
    try:
        return find_config(None, os.environ, os.getcwd())
    except ConfigError:
        return None


def _takeover(before: Location | None, path: str) -> tuple[str, ...]:
    """What is to be known where another configuration, found and not named, counted here so far."""
    location = _counting()
    if before is None or location is None or before.chosen or os.path.samefile(before.path, location.path):
        return ()
    return (
        f"Note: here and below {path} counts now, and no longer {plain(before.path)}. If that project was "
        f"meant, delete {path}: commands work in its sub-folders, too",
    )
