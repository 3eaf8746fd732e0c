"""Indexes changed files before a command reads the index, for at most a second. If a server runs, it does
this instead.
"""

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial

from ctx import files
from ctx.cli.output import without_reported
from ctx.cli.running import of_project, servers
from ctx.config import Config
from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.walk import RACY
from ctx.errors import CtxError, SourceError
from ctx.indexing.run import read_alike, run_signature
from ctx.models import SourceItem
from ctx.scripts.sources import folders
from ctx.store.base import Catalog
from ctx.workspace import Workspace, open_workspace

TIME_S = 1.0
LOCK_TIMEOUT_S = 0.2  # a process that holds the lock indexes the changes itself
EMBEDDED_AT_MOST = 16  # chunks; each takes the bundled model 30 ms
_TEXTLESS = "textless.json"
_MAX_TEXTLESS_BYTES = 10_000_000


@dataclass
class Freshness:
    """Facts about the index for the command that reads it. `notes` are for the user. `gone` has the (source,
    source_id) of documents whose files were deleted but that are still in the index.
    """

    notes: list[str] = field(default_factory=list)
    gone: set[tuple[str, str]] = field(default_factory=set)


@dataclass
class _Changes:
    """The changes in a folder: new and changed files (`items`), and the ids of deleted ones (`gone`)."""

    connector: FilesystemConnector
    items: list[SourceItem]
    gone: set[str]


@contextmanager
def fresh_workspace(
    config: Config, *, embed: bool = False, projecting: bool = True
) -> Iterator[tuple[Workspace, Freshness]]:
    """Yields a workspace after indexing the files that changed in its folders, and the facts about it.
    `embed`: also embeds them. Raises `StoreError` if nothing is indexed yet.
    """
    with ExitStack() as stack:
        workspace = stack.enter_context(open_workspace(config, reading=True, projecting=projecting))
        freshness = Freshness()
        if config.filesystems and not config.store.url and not of_project(servers(), config.root):
            ends_s = time.monotonic() + TIME_S
            changes = _look(workspace.catalog, config, freshness)
            if changes:
                left = sum(len(found.items) + len(found.gone) for found in changes)
                try:
                    writer = stack.enter_context(open_workspace(config))
                    with without_reported():  # `ctx index` reports the files that cannot be read
                        left = _index(writer, changes, ends_s, embed=embed)
                    workspace = writer
                except (CtxError, OSError):  # another process is writing, or the store is read-only
                    freshness.gone |= {
                        (found.connector.name, source_id) for found in changes for source_id in found.gone
                    }
                if left:
                    have = "file has" if left == 1 else "files have"
                    freshness.notes.append(f"{left:,} {have} changed since; run `ctx index`")
        yield workspace, freshness


def _look(catalog: Catalog, config: Config, freshness: Freshness) -> list[_Changes]:
    """Scans the configured folders for changes since they were indexed. Adds notes to `freshness`."""
    textless = _read_textless(config)
    changes = []
    for connector in folders(config):
        last = catalog.last_run(connector.name)
        if last is None:
            continue  # never indexed: a search reports that
        signature = run_signature(connector, config.chunking.max_tokens, config.chunking.overlap_tokens)
        if not read_alike(last.signature, signature):
            freshness.notes.append(f"{connector.name} must be read again; run `ctx index`")
            continue
        known = catalog.fingerprints(connector.name)
        log = ScanLog()
        passed = textless.get(connector.name, {})
        try:
            seen = list(connector.scan(known, log, brief=True))
        except SourceError as error:
            freshness.notes.append(error.message)
            continue
        items = [item for item in seen if passed.get(item.source_id) != item.fingerprint]
        gone = known.keys() - log.unchanged - {item.source_id for item in seen}
        gone -= {source_id for source_id in gone if source_id.startswith(tuple(log.withheld))}
        if items or gone:
            items.sort(key=lambda item: item.updated_ms, reverse=True)  # latest change first
            changes.append(_Changes(connector, items, gone))
    return changes


def _index(workspace: Workspace, changes: Sequence[_Changes], ends_s: float, *, embed: bool) -> int:
    """Indexes changes until `ends_s` on the monotonic clock. Returns how many files are left."""
    indexer = workspace.indexer
    indexer.lock_timeout_s = LOCK_TIMEOUT_S
    left = chunks = 0
    for found in changes:
        read: list[SourceItem] = []
        report = indexer.run_source(found.connector, items=partial(_changed, found, read, ends_s))
        left += len(found.items) - len(read)
        chunks += report.chunks
        _remember_textless(workspace, found.connector.name, read)
    if embed and 0 < chunks <= EMBEDDED_AT_MOST and workspace.config.embedding.provider == "local":
        with suppress(CtxError):
            indexer.embed(limit=chunks)
    return left


def _changed(
    found: _Changes, read: list[SourceItem], ends_s: float, known: Mapping[str, str], log: ScanLog
) -> Iterator[SourceItem]:
    log.gone |= found.gone
    for item in found.items:
        if time.monotonic() >= ends_s:
            return
        read.append(item)
        yield item


# -- files without text --------------------------------------------------------------------------------------


def _path(config: Config) -> str:
    return os.path.join(config.folder, _TEXTLESS)


def _read_textless(config: Config) -> dict[str, dict[str, str]]:
    """The fingerprints of files that were read but not stored, because they have no text or cannot be read:
    source -> source_id -> fingerprint. Such files need not be read again before each command.
    """
    try:
        data = files.read_file(_path(config), beneath=config.folder, most=_MAX_TEXTLESS_BYTES)
        rows: dict[str, dict[str, str]] = json.loads(data)
    except (OSError, ValueError):
        return {}
    return rows


def _remember_textless(workspace: Workspace, source: str, read: Sequence[SourceItem]) -> None:
    stored = workspace.catalog.fingerprints(source, [item.source_id for item in read])
    passed = {
        item.source_id: item.fingerprint
        for item in read
        if stored.get(item.source_id) != item.fingerprint and RACY not in item.fingerprint
    }
    if passed:
        rows = _read_textless(workspace.config)
        rows[source] = {**rows.get(source, {}), **passed}
        with suppress(OSError):
            files.replace(_path(workspace.config), json.dumps(rows).encode())
