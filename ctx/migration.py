"""Moves a whole store to a database that machines share, or back to a file: catalog, memories, keys,
sessions, what scripts keep.
"""

import os
import time
from contextlib import ExitStack, closing
from typing import NamedTuple

from ctx.assemble import open_keys
from ctx.config import Config
from ctx.errors import BadRequest, ConfigError, StoreError
from ctx.extensions.store import FileScriptStore, ScriptStore
from ctx.memory.moving import Progress, move_memories
from ctx.memory.moving import check_target as check_banks
from ctx.memory.store import open_rows
from ctx.packs.packs import session_files
from ctx.packs.sessions import FileSessions, Sessions
from ctx.server.keys import KeyRecord
from ctx.store.plane import open_catalog, open_database
from ctx.types import JSON

SAME = "both are the same store; name another one with --to or --from"
_PATIENCE_S = 60.0


class Report(NamedTuple):
    """What a move came to, in counts; the digests are of all that was compared."""

    documents: int
    chunks: int
    embeddings: int
    passed_over: int  # documents
    digest: str
    banks: int
    memories: int
    memory_digest: str
    keys: int
    sessions: int
    values: int  # that scripts keep


def migrate(config: Config, origin: str, target: str, *, replace: bool, progress: Progress) -> Report:
    """Copies all that is kept at a place to another one, and compares the two: each the address of a database
    or the path of a file. From the first write to the last comparison the target is marked as unfinished.

    Nobody may write either meanwhile. Raises `BadRequest` where the target holds what the origin lacks
    (`replace` drops it), `StoreError`.
    """
    with (
        open_catalog(origin, config.db.path) as source,
        open_catalog(target, config.db.path) as goal,
        closing(open_rows(origin)) as rows,
        closing(open_rows(target)) as goal_rows,
    ):
        from ctx.store.moving import check_target, move  # takes 200 ms to import, with psycopg

        if source.unfinished():
            raise StoreError(
                "the store to be moved is itself one whose move was broken off: finish that first"
            )
        if not replace:
            check_target(source, goal)
            check_banks(rows, goal_rows)
        goal.mark_unfinished(True)
        if source.unfinished():
            goal.mark_unfinished(False)
            raise BadRequest(SAME)
        documents = move(source, goal, progress=progress)
        memories = move_memories(rows, goal_rows, progress=progress)
        report = Report(
            *documents,
            memories.banks,
            memories.memories,
            memories.digest,
            _moved_keys(origin, target),
            _moved_sessions(config, origin, target),
            _moved_values(origin, target),
        )
        goal.mark_unfinished(False)
        return report


def _moved_keys(origin: str, target: str) -> int:
    with closing(open_keys(origin)) as source, closing(open_keys(target)) as goal:
        records = source.list()
        goal.add(records)
        present = {record.id: record for record in goal.list()}
        absent = [record for record in records if not _kept(record, present.get(record.id))]
    if absent:
        raise StoreError("the keys that were moved are not those that were there: run it again")
    return len(records)


def _kept(record: KeyRecord, other: KeyRecord | None) -> bool:
    """Whether a key is there as it was; one that was revoked there since an earlier move stays revoked."""
    if other is None or other != record._replace(revoked_ms=other.revoked_ms):
        return False
    return other.revoked_ms is not None or record.revoked_ms is None


def _moved_sessions(config: Config, origin: str, target: str) -> int:
    """How many sessions of packs' clients there are. Those of files are the user's, wherever the store is."""
    try:
        paths = session_files(config.packs.enabled, config.packs.settings, config.root, os.environ)
    except ConfigError:
        return 0  # a pack that does not load serves nobody
    count = 0
    for pack, path in paths.items():
        with ExitStack() as opened:
            source, goal = (_open_sessions(opened, address, pack, path) for address in (origin, target))
            entries = source.all()
            goal.take_over(entries)
            count += len(entries)
            if _by_id(source) != {id: data for id, data in _by_id(goal).items() if id in _by_id(source)}:
                raise StoreError(f"the sessions of {pack} that were moved are not those that were there")
    return count


def _open_sessions(opened: ExitStack, place: str, pack: str, path: str) -> Sessions:
    if "://" not in place:
        return FileSessions(path)
    database = opened.enter_context(open_database(place))
    from ctx.packs.shared_sessions import SharedSessions  # imports psycopg

    return SharedSessions(database, pack)


def _by_id(sessions: Sessions) -> dict[str, JSON]:
    """What each session keeps."""
    return {str(data["id"]): data.get("kv") or {} for data in sessions.all()}


def _moved_values(origin: str, target: str) -> int:
    with ExitStack() as opened:
        source, goal = (_open_values(opened, address) for address in (origin, target))
        rows = source.rows(time.monotonic() + _PATIENCE_S)
        goal.take_over(rows, time.monotonic() + _PATIENCE_S)
        if not set(rows) <= set(goal.rows(time.monotonic() + _PATIENCE_S)):
            raise StoreError(
                "what scripts keep is not what was there: was it written meanwhile? Run it again"
            )
    return len(rows)


def _open_values(opened: ExitStack, place: str) -> ScriptStore:
    if "://" not in place:
        return opened.enter_context(closing(FileScriptStore(place)))
    database = opened.enter_context(open_database(place))
    from ctx.extensions.shared_store import SharedScriptStore  # imports psycopg

    return SharedScriptStore(database)
