"""Makes what a configuration names: a connector for each source, and a `ScriptFile` for each script."""

import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from ctx.clock import parse_ms
from ctx.config import Config
from ctx.config.settings import REGISTRY_PREFIX, S3, Git, Script, Web
from ctx.config.trust import CLOSED, inside
from ctx.config.trust_file import pins_of
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.git import GitConnector

if TYPE_CHECKING:  # sites, buckets and scripts import an HTTP client, 60 ms: only if they are configured
    from ctx.connectors.base import Connector
    from ctx.scripts.scripts import Runner, ScriptFile

_SETTINGS = ("timeout_s", "env", "allow_hosts", "fs", "calls", "memory_bank", "config")


def configured_connectors(config: Config, runner: "Callable[[], Runner]") -> "list[Connector]":
    """A connector for every source of a configuration, in its order. `runner` runs those that are scripts."""
    return [
        *folders(config),
        *_repositories(config.gits),
        *_sites(config.webs, config.folder),
        *_buckets(config.buckets),
        *_scripts(config, runner),
    ]


def intervals_s(config: Config) -> dict[str, float]:
    """Seconds between two looks at each source that does not report its changes, by its name."""
    by_source = {git.name: git.interval_s or config.watch.git_interval_s for git in config.gits}
    by_source |= {site.name: site.interval_s for site in config.webs}
    by_source |= {bucket.name: bucket.interval_s for bucket in config.buckets}
    by_source |= {
        script.name: script.interval_s or config.watch.script_interval_s
        for script in config.script_connectors
    }
    return by_source


def script_file(script: Script, config: Config) -> "ScriptFile":
    """A script that the configuration names. Messages name its file from the project's root."""
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
        yield FilesystemConnector(
            folder.name,
            folder.root,
            include_globs=folder.include_globs,
            exclude_globs=(*folder.exclude_globs, *_own_file(config.path, folder.root)),
            follow_symlinks=folder.follow_symlinks,
            max_file_bytes=folder.max_file_bytes,
            respect_gitignore=folder.gitignore,
            link=folder.link,
            # While a server runs, a pull may turn a folder of the project into a link out of it.
            stays=partial(inside, root=config.root, closed=CLOSED)
            if inside(folder.root, config.root, CLOSED)
            else None,
        )


def _repositories(repositories: Sequence[Git]) -> "Iterator[Connector]":
    for repository in repositories:
        yield GitConnector(
            repository.name,
            repository.url,
            branch=repository.branch,
            root=repository.root,
            include_globs=repository.include_globs,
            exclude_globs=repository.exclude_globs,
            shallow=repository.shallow,
            cache_dir=repository.cache_dir,
            timeout_s=repository.timeout_s,
            max_file_bytes=repository.max_file_bytes,
            commits=repository.commits,
            submodules=repository.submodules,
            lfs=repository.lfs,
            since_ms=None if repository.since is None else parse_ms(repository.since),
        )


def _sites(sites: Sequence[Web], folder: str) -> "Iterator[Connector]":
    for site in sites:
        from ctx.connectors.web import WebConnector

        yield WebConnector(
            site.name,
            site.url,
            prefixes=site.scope,
            include_globs=site.include_globs,
            exclude_globs=site.exclude_globs,
            depth=site.depth,
            max_pages=site.max_pages,
            requests_per_second=site.requests_per_second,
            robots=site.robots,
            queries=site.queries,
            allow_hosts=site.allow_hosts,
            max_file_bytes=site.max_file_bytes,
            timeout_s=site.timeout_s,
            folder=folder,
        )


def _buckets(buckets: Sequence[S3]) -> "Iterator[Connector]":
    for bucket in buckets:
        from ctx.connectors.s3 import S3Connector

        yield S3Connector(
            bucket.name,
            bucket.bucket,
            prefix=bucket.prefix,
            region=bucket.region,
            endpoint_url=bucket.endpoint_url,
            include_globs=bucket.include_globs,
            exclude_globs=bucket.exclude_globs,
            profile=bucket.profile,
            anonymous=bucket.anonymous,
            max_file_bytes=bucket.max_file_bytes,
            timeout_s=bucket.timeout_s,
        )


def _scripts(config: Config, runner: "Callable[[], Runner]") -> "Iterator[Connector]":
    for script in config.script_connectors:
        from ctx.scripts.scripts import ScriptConnector

        yield ScriptConnector(script_file(script, config), runner)


def _own_file(config_path: str | None, root: str) -> tuple[str, ...]:
    """A pattern that excludes the configuration if it is below `root`: it is no document, and may hold a
    key.
    """
    inside = "" if config_path is None else os.path.relpath(config_path, root)
    if not inside or inside.startswith(".."):
        return ()
    return ("/" + "".join("?" if char in "*?[]{}!\\" else char for char in inside.replace(os.sep, "/")),)
