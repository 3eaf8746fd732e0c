"""Make a connector for each source of a configuration, and a `ScriptFile` for each script."""

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

from ctx.clock import parse_ms
from ctx.config import Config
from ctx.config.settings import REGISTRY_PREFIX, S3, Filesystem, Git, Script, Web
from ctx.config.trust import CLOSED, inside
from ctx.config.trust_file import pins_of
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.git import GitConnector

if TYPE_CHECKING:  # sites and buckets import an HTTP client (60 ms), scripts the sandbox (12 ms)
    from ctx.connectors.base import Connector
    from ctx.scripts.scripts import Runner, ScriptFile

_SETTINGS = ("timeout_s", "env", "allow_hosts", "fs", "calls", "memory_bank", "config")


def configured_connectors(config: Config, runner: "Callable[[], Runner]") -> "list[Connector]":
    """A connector for every source of a configuration, in order. `runner` runs the scripts among them."""
    return [
        *folders(config),
        *_repositories(config.gits),
        *_sites(config.webs, config.folder),
        *_buckets(config.buckets),
        *_scripts(config, runner),
    ]


def intervals_s(config: Config) -> dict[str, float]:
    """The seconds between two runs of each source that does not report its changes, by name."""
    by_source = {git.name: git.interval_s or config.watch.git_interval_s for git in config.gits}
    by_source |= {site.name: site.interval_s for site in config.webs}
    by_source |= {bucket.name: bucket.interval_s for bucket in config.buckets}
    by_source |= {
        script.name: script.interval_s or config.watch.script_interval_s
        for script in config.script_connectors
    }
    return by_source


def script_file(script: Script, config: Config) -> "ScriptFile":
    """A script of the configuration. Messages show its path relative to the project."""
    from ctx.scripts.scripts import ScriptFile

    settings = {name: getattr(script, name) for name in _SETTINGS}
    if script.path.startswith(REGISTRY_PREFIX):
        from ctx.scripts.registry import installed_registries

        registries = installed_registries(os.environ)
        return registries.script_file(script.path, script.name)._replace(**settings, named=True)
    relative = os.path.relpath(script.path, config.root)
    label = os.path.basename(script.path) if relative.startswith("..") else relative
    return ScriptFile(
        script.name, script.path, **settings, shown=label, vouched_by=pins_of(config, os.environ)
    )


def folders(config: Config) -> Iterator[FilesystemConnector]:
    """A connector for each folder of a configuration."""
    for folder in config.filesystems:
        values = _values(folder, without=("gitignore", "exclude_globs"))
        yield FilesystemConnector(
            **values,
            respect_gitignore=folder.gitignore,
            exclude_globs=(*folder.exclude_globs, *_own_file(config.path, folder.root)),
            # While a server runs, a pull may turn a folder of the project into a link out of it.
            stays=partial(inside, root=config.root, closed=CLOSED)
            if inside(folder.root, config.root, CLOSED)
            else None,
        )


def _repositories(repositories: Sequence[Git]) -> "Iterator[Connector]":
    for repository in repositories:
        since_ms = None if repository.since is None else parse_ms(repository.since)
        yield GitConnector(**_values(repository, without=("since", "interval_s")), since_ms=since_ms)


def _sites(sites: Sequence[Web], folder: str) -> "Iterator[Connector]":
    for site in sites:
        from ctx.connectors.web import WebConnector

        values = _values(site, without=("scope", "interval_s"))
        yield WebConnector(**values, prefixes=site.scope, folder=folder)


def _buckets(buckets: Sequence[S3]) -> "Iterator[Connector]":
    for bucket in buckets:
        from ctx.connectors.s3 import S3Connector

        yield S3Connector(**_values(bucket, without=("interval_s",)))


def _values(source: Filesystem | Git | Web | S3, *, without: Collection[str]) -> dict[str, Any]:
    """The keys of a source, which are the parameters of its connector except those in `without`."""
    names = (field.name for field in fields(source))
    return {name: getattr(source, name) for name in names if name not in without}


def _scripts(config: Config, runner: "Callable[[], Runner]") -> "Iterator[Connector]":
    for script in config.script_connectors:
        from ctx.scripts.scripts import ScriptConnector

        yield ScriptConnector(script_file(script, config), runner)


def _own_file(config_path: str | None, root: str) -> tuple[str, ...]:
    """A pattern that excludes the configuration file if it is below `root`, because it may hold a key."""
    inside = "" if config_path is None else os.path.relpath(config_path, root)
    if not inside or inside.startswith(".."):
        return ()
    return ("/" + "".join("?" if char in "*?[]{}!\\" else char for char in inside.replace(os.sep, "/")),)
