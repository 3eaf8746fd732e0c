"""Make a connector for each source in a configuration, and a `ScriptFile` for each script.

A script can also be a connector: `ScriptConnector`.
"""

import json
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import fields
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson

from ctx.clock import iso_utc, now_ms, parse_ms
from ctx.config import Config
from ctx.config.settings import REGISTRY_PREFIX, S3, Filesystem, Git, Script, Web
from ctx.config.trust import CLOSED, inside, pins_of
from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.errors import CtxError, SourceError
from ctx.formats.encoding import is_misread
from ctx.lua.frames import ItemProblem
from ctx.models import JSON, Caller, Content, SourceItem, as_table, digest, is_number, outline

if TYPE_CHECKING:  # sites and buckets import an HTTP client (60 ms), git and scripts 10 ms each
    from ctx.connectors.base import Connector
    from ctx.scripts.bridge import Bridge
    from ctx.scripts.scripts import Runner, ScriptFile

_CALLER = Caller("script")
# An id, a URL or an author has at most this many characters, because search results show them in full.
# (Titles are shortened.)
_MAX_TEXT = 2000
_SETTINGS = ("timeout_s", "env", "allow_hosts", "fs", "calls", "memory_bank", "config")


def configured_connectors(config: Config, runner: "Callable[[], Runner]") -> "list[Connector]":
    """A connector for every source in a configuration, in order. `runner` returns the runner for script
    connectors.
    """
    connectors: list[Connector] = list(folders(config))
    for repository in config.gits:
        from ctx.connectors.git import GitConnector

        since_ms = None if repository.since is None else parse_ms(repository.since)
        values = _values(repository, without=("since", "interval_s"))
        connectors.append(GitConnector(**values, since_ms=since_ms))
    for site in config.webs:
        from ctx.connectors.web import WebConnector

        values = _values(site, without=("scope", "interval_s"))
        connectors.append(WebConnector(**values, prefixes=site.scope, folder=config.folder))
    for bucket in config.buckets:
        from ctx.connectors.s3 import S3Connector

        connectors.append(S3Connector(**_values(bucket, without=("interval_s",))))
    for script in config.script_connectors:
        connectors.append(ScriptConnector(script_file(script, config), runner))
    return connectors


def intervals_s(config: Config) -> dict[str, float]:
    """Seconds between two runs of each source that does not report its changes, by source name."""
    by_source = {git.name: git.interval_s or config.watch.git_interval_s for git in config.gits}
    by_source |= {site.name: site.interval_s for site in config.webs}
    by_source |= {bucket.name: bucket.interval_s for bucket in config.buckets}
    by_source |= {
        script.name: script.interval_s or config.watch.script_interval_s
        for script in config.script_connectors
    }
    return by_source


def script_file(script: Script, config: Config) -> "ScriptFile":
    """The `ScriptFile` for a script in the configuration. Messages show its path relative to the project."""
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
    """A connector for each folder in a configuration."""
    for folder in config.filesystems:
        values = _values(folder, without=("gitignore", "exclude_globs"))
        yield FilesystemConnector(
            **values,
            respect_gitignore=folder.gitignore,
            exclude_globs=(*folder.exclude_globs, *_own_file(config.path, folder.root)),
            # While a server runs, `git pull` may replace a folder of the project with a link to elsewhere.
            stays=partial(inside, root=config.root, closed=CLOSED)
            if inside(folder.root, config.root, CLOSED)
            else None,
        )


def _values(source: Filesystem | Git | Web | S3, *, without: Collection[str]) -> dict[str, Any]:
    """The settings of a source as parameters for its connector, except those in `without`."""
    names = (field.name for field in fields(source))
    return {name: getattr(source, name) for name in names if name not in without}


def _own_file(config_path: str | None, root: str) -> tuple[str, ...]:
    """A pattern that excludes the configuration file if it is below `root`, because it may contain a key."""
    relative = "" if config_path is None else os.path.relpath(config_path, root)
    if not relative or relative.startswith(".."):
        return ()
    return ("/" + "".join("?" if char in "*?[]{}!\\" else char for char in relative.replace(os.sep, "/")),)


# -- scripts as connectors -----------------------------------------------------------------------------------


class ScriptConnector:
    """A `Connector` that calls a script's `connector.scan(config)`. A scan that fails deletes no
    documents.
    """

    def __init__(self, script: "ScriptFile", runner: "Callable[[], Runner]") -> None:
        self.script = script
        self.name = script.name
        self._runner = runner

    @property
    def signature(self) -> str:
        identity = (self.script.path, json.dumps(dict(self.script.config), sort_keys=True, default=str), 1)
        return outline(identity)

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        runner = self._runner()
        with runner.bridge.held() as (bridge, scan_store):
            try:
                yield from self._items(runner, bridge, known, log)
            finally:
                log.stored = None if scan_store is None else scan_store.keep()

    def _items(
        self, runner: "Runner", bridge: "Bridge", known: Mapping[str, str], log: ScanLog
    ) -> Iterator[SourceItem]:
        source_ids: set[str] = set()
        try:
            source = self.script.source()
            context = {"known": len(known)}
            job = runner.job(self.script, source, "connector", "scan", dict(self.script.config), context)
            host = bridge.host_for(self.script.policy(), _CALLER)
            for number, item in enumerate(runner.pool.scan(job, host, self.script.timeout_s), 1):
                if isinstance(item, dict) and item.get("partial") is True and "source_id" not in item:
                    log.news = True  # the script says that the scan does not list every item
                    log.withheld.append("")
                    continue
                source_item = _item(item, number, source_ids, log)
                if source_item is None:
                    continue
                if known.get(source_item.source_id) == source_item.fingerprint:
                    log.unchanged.add(source_item.source_id)
                else:
                    yield source_item
        except CtxError as error:
            # Keep the items that the scan returned before it failed. Delete none: the rest is unknown.
            log.complete = False
            raise SourceError(error.message) from error


def _item(item: JSON, number: int, source_ids: set[str], log: ScanLog) -> SourceItem | None:
    """Converts an item that a scan returned; None if the item is invalid, which is noted in `log`."""
    fault = _identity_fault(item, number)
    if fault is not None:
        log.problem(f"item {number}", fault)
        log.withheld.append("")  # the invalid item may be any known item, so delete none this time
        return None
    source_id, body = str(item["source_id"]), item.get("body")
    if source_id in source_ids:
        log.problem(source_id, "appears twice; the first one is kept")
        return None
    text = body if isinstance(body, str) else ""
    if not text.strip() or is_misread(text):
        fault = "its body is not UTF-8 text" if text.strip() else "has no body"
        log.problem(source_id, f"{fault}; the indexed version stays")
        log.withheld.append(source_id)
        return None
    source_ids.add(source_id)
    metadata = _metadata(item, source_id, log)
    created_ms, updated_ms = (_date(item, name, source_id, log) for name in ("created_at", "updated_at"))
    texts = {name: _text(item, name, source_id, log) for name in ("title", "author", "content_type")}
    address, url = (_text(item, name, source_id, log) for name in ("source_url", "url"))
    # The fingerprint covers only what the script returned, so that an item without a date does not change.
    text_of_item = json.dumps(item, sort_keys=True, ensure_ascii=False)
    fingerprint = digest(text_of_item.encode("utf-8", "replace"), 32)
    content = Content(
        data=text,
        media_type=texts["content_type"] or "text/plain",
        title=texts["title"],
        author=texts["author"],
        created_ms=created_ms,
        updated_ms=updated_ms,
        source_url=address or url,
        metadata=metadata,
    )
    return SourceItem(source_id, fingerprint, now_ms() if updated_ms is None else updated_ms, lambda: content)


def _identity_fault(item: JSON, number: int) -> str | None:
    """The reason why an item has no valid id; None if it has one."""
    if isinstance(item, ItemProblem):
        return item.message.removeprefix(f"item {number}: ")
    if not isinstance(item, dict):
        return "is not a table"
    source_id = item.get("source_id")
    if not is_number(source_id) and not (isinstance(source_id, str) and source_id):
        return "has no source_id"
    too_long = len(str(source_id)) > _MAX_TEXT
    return f"its source_id is longer than {_MAX_TEXT:,} characters" if too_long else None


def _date(item: Mapping[str, JSON], name: str, source_id: str, log: ScanLog) -> int | None:
    date = moment_ms(item.get(name))
    if date is None and item.get(name) not in (None, ""):
        log.note(source_id, f"{name} is not a date (ISO 8601, or seconds since 1970) and is left out")
    return date


def _metadata(item: Mapping[str, JSON], source_id: str, log: ScanLog) -> dict[str, JSON]:
    metadata = item.get("metadata")
    if isinstance(metadata, dict):
        return metadata
    if metadata not in (None, []):  # an empty Lua table may arrive as a list
        log.note(source_id, "metadata is not a table and is left out")
    try:
        loaded = orjson.loads(item.get("metadata_json") or "{}")  # unlike json, refuses lone surrogates
        json.dumps(loaded)  # the store uses this, which fails on deep nesting
    except (ValueError, TypeError, RecursionError):
        log.note(source_id, "metadata_json is not JSON and is left out")
        return {}
    return as_table(loaded)


def _text(item: Mapping[str, JSON], name: str, source_id: str, log: ScanLog) -> str | None:
    value = item.get(name)
    if not isinstance(value, str | None):
        log.note(source_id, f"{name} is not a string and is left out")
    elif name != "title" and len(value or "") > _MAX_TEXT:
        log.note(source_id, f"{name} is longer than {_MAX_TEXT:,} characters and is left out")
    elif value and value.strip():
        return value
    return None


def moment_ms(value: JSON) -> int | None:
    """A date in milliseconds since the epoch, from ISO 8601 or seconds since the epoch; None if invalid."""
    try:
        if is_number(value):
            moment = round(value * 1000)
            iso_utc(moment)  # raises if the calendar has no such date
            return moment
        text = str(value).strip()
        if text.replace(".", "", 1).isdigit() and len(text) > 8:
            # Seconds such as "1700000000.000200", as in chat systems. Eight digits are a date.
            return moment_ms(float(text))
        return parse_ms(text)
    except (ValueError, OverflowError):
        return None
