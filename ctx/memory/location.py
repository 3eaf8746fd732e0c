"""Finds the file with a project's memories.

Earlier versions of ctx stored memories, API keys and values of scripts in or next to the catalog file,
`ctx.db`. This data is moved first: it is copied to a new file, and the old tables are dropped only after the
copy is complete and checked. A write transaction on the old file begins before the copy, so that a running
process of an earlier version cannot write data that would be lost. If the process is killed, a marker file
stays, and the next start finishes or repeats the move.
"""

import json
import logging
import os
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass

from ctx import files
from ctx.config import Config
from ctx.config.trust import TrustFile, trust_path
from ctx.data_folder import KEYS, Place, adopt, entry_named, find_place, git_reply, projects_folder
from ctx.errors import BadRequest, ConfigError, StoreError
from ctx.indexing.model_switch import notes_path
from ctx.memory.copies import RESTORED, Ledger, check_unused, counts_of, opened, stored_counts
from ctx.models import as_table
from ctx.store.schema import (
    COMPANIONS,
    begin_copy,
    connect,
    copy_database,
    discard_copy,
    is_damage,
    transaction,
    translating,
)
from ctx.text.strings import counted

logger = logging.getLogger(__name__)

# The suffix of old files that are kept, so that an earlier version of ctx can be installed again.
MOVED = ".moved"
_MARKER = ".splitting"
_UNFINISHED = ".unfinished"
_LEAVE = b"leave"  # the content of the marker file if the old catalog must not be changed
_OURS = "type = 'table' AND (name IN ('memories', 'script_value') OR name GLOB 'memory_*')"
_OTHERS = f"type = 'table' AND NOT ({_OURS}) AND name <> 'meta' AND name NOT GLOB 'sqlite_*'"
_META = "key IN ('schema.memories', 'schema.scripts', 'memory.unshredded')"
_ROWS = ("memories", "script_value")


@dataclass(frozen=True)
class Location:
    """Where memories, keys and the values of scripts are stored.

    `waiting` is the reason why memories or keys that an earlier version of ctx left in or next to the catalog
    are not used; None if there are no such memories or keys.
    """

    place: Place
    catalog: str
    waiting: str | None = None

    @property
    def memory(self) -> str:
        return self.place.memory

    @property
    def keys(self) -> str:
        """The file in which earlier versions stored keys.

        Raises `ConfigError` if there are unused keys next to the catalog: if they were ignored, the server
        would accept calls without a key.
        """
        if self.waiting and os.path.isfile(old_keys(self.catalog)):
            raise ConfigError(
                f"{old_keys(self.catalog)} holds keys that are not used: {self.waiting}. "
                "Run `ctx memory adopt .ctx` to use them, or delete the file"
            )
        return self.place.keys

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Paths of old copies of the memories. They must be deleted when memories are erased."""
        return (self.catalog + MOVED,)


def old_keys(catalog: str) -> str:
    """The path of the key file that earlier versions stored next to the catalog."""
    return os.path.join(os.path.dirname(catalog), KEYS)


def memory_place(config: Config, environ: Mapping[str, str], *, make: bool = True) -> Place:
    """Where the memories of a configuration are stored. Raises `StoreError`."""
    return find_place(config.root, config.db.path, config.memory.path, environ, make=make)


def holds_any(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether memories may exist. Creates no files. Raises `StoreError`."""
    if config.store.url or config.stored:
        return True
    return os.path.lexists(memory_place(config, environ, make=False).memory)


def locate(config: Config, environ: Mapping[str, str]) -> Location:
    """Finds the memories of a configuration without `[store] url`, and creates their folder.

    Also moves memories of earlier versions and finishes an interrupted restore. Raises `StoreError`.
    """
    place = memory_place(config, environ)
    catalog = os.path.abspath(config.db.path)
    try:
        files.make_folder(place.folder)
        if os.path.lexists(place.memory + RESTORED):
            from ctx.memory.salvage import finish  # 100 ms with numpy

            finish(place.memory)
    except OSError as error:
        raise StoreError(
            f"the folder for memories, {place.folder}, cannot be used: {error.strerror}; "
            "set [memory] path in ctx.toml to a file that ctx may write"
        ) from error

    def refusal() -> str | None:
        folder = os.path.realpath(os.path.dirname(catalog))
        is_beside = os.path.commonpath([folder, os.path.realpath(place.folder)]) == folder
        return unasked(catalog, is_beside or is_known(config, environ))

    waiting = _take_over(catalog, place, refusal)
    if waiting:
        unused = "memories or keys of an earlier version in %s are not used: %s. %s"
        hint = "Run `ctx memory adopt .ctx` to use them"
        logger.warning(unused, os.path.dirname(catalog), waiting, hint)
    return Location(place, catalog, waiting)


def is_known(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether this user has used the configured store before.

    True if ctx recorded the store's embedding model, or if the user trusted a file in the project.
    """
    with suppress(OSError, ValueError):
        if config.db.path in as_table(json.loads(files.read_file(notes_path(environ)))):
            return True
    project = os.path.join(os.path.realpath(config.root), "")
    with suppress(ConfigError):
        return any(path.startswith(project) for path in TrustFile(trust_path(environ)).digests())
    return False


def adopt_old(config: Config, environ: Mapping[str, str]) -> int:
    """Moves the memories that an earlier version left next to the catalog to their new place.

    Returns the number of memories after the move. Raises `BadRequest`, `StoreError`.
    """
    place, catalog = memory_place(config, environ), os.path.abspath(config.db.path)
    if holds_old(catalog) is None and not os.path.isfile(old_keys(catalog)):
        raise BadRequest(f"there are no memories of an earlier version in {os.path.dirname(catalog)}")
    _discard_empty(place)
    files.make_folder(place.folder)
    _take_over(catalog, place, lambda: None, leave=unasked(catalog, True) is not None)
    return count_memories(place.memory)


def adopt_other(config: Config, environ: Mapping[str, str], name: str) -> int:
    """Gives this project the memories of a project that no longer exists.

    Returns the number of memories of this project afterwards. Raises `BadRequest`, `NotFound`, `StoreError`.
    """
    entry = entry_named(projects_folder(environ), name)
    place = memory_place(config, environ)
    if entry.folder != place.folder:
        _discard_empty(place)
        adopt(entry, place)
    return count_memories(place.memory)


def count_memories(memory: str) -> int:
    """The number of memories in a file; 0 if it does not exist."""
    return stored_counts(memory)[0]


def _discard_empty(place: Place) -> None:
    """Deletes a project's empty memory store and keys. Raises `BadRequest` if it is not empty."""
    count = count_memories(place.memory)
    if count or _holds_keys(place):
        raise BadRequest(
            f"this project already has {count:,} memories, or keys: merge single banks with "
            "`ctx memory export` and `ctx memory import`"
        )
    if os.path.isfile(place.memory):
        check_unused(place.memory)
        discard_copy(place.memory)
        Ledger(place.memory).reset(0, 0)


def _holds_keys(place: Place) -> bool:
    if os.path.isfile(place.keys):
        return True
    with opened(place.memory) as connection:
        if connection is None or not _tables(connection, "name = 'api_key'"):
            return False
        return bool(connection.execute("SELECT count(*) FROM api_key").fetchone()[0])


def loss(memory: str) -> str | None:
    """A message about missing memories or changes; None if none are missing."""
    ledger = Ledger(memory)
    if ledger.read() is None:
        return None
    try:
        # Lock the count after the database is opened, so that no process is between a commit and its count.
        with opened(memory) as connection, ledger.held() as page:
            lost, lost_changes = page.count.missing(*counts_of(connection))
    except StoreError as error:
        return f"the memories cannot be read: {error.message}" if is_damage(error) else None
    except OSError:
        return None
    if lost:
        return f"{counted(lost, 'memory')} that were stored are missing; `ctx doctor` says more"
    if lost_changes:
        return f"the latest changes of the memories are missing ({lost_changes:,}); `ctx doctor` says more"
    return None


def problems(memory: str) -> list[str]:
    """Messages about damage to the memory file, and about missing memories; [] if there are none.

    Raises `StoreError` if the file cannot be opened for another reason than damage.
    """
    try:
        if os.path.isfile(memory):
            with closing(connect(memory, read_only=True)) as connection, translating():
                [verdict] = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                return [f"the catalog file is damaged: {verdict}"]
    except StoreError as error:
        if not is_damage(error):
            raise
        return [error.message]
    return list(filter(None, [loss(memory)]))


# -- moving memories out of `ctx.db` -------------------------------------------------------------------------


def holds_old(catalog: str) -> int | None:
    """The number of memories and of scripts' values in the catalog file of an earlier version.

    None if the file has no such tables or cannot be read.
    """
    with suppress(StoreError), opened(catalog) as connection:
        if connection is not None and set(_tables(connection, _OURS)) & set(_ROWS):
            return _count_rows(connection)
    return None


def _tables(connection: sqlite3.Connection, condition: str) -> list[str]:
    """The names of the tables that meet a condition. Virtual tables, which own other tables, come first."""
    select = f"SELECT name FROM sqlite_master WHERE {condition} ORDER BY sql NOT LIKE 'CREATE VIRTUAL%', name"
    return [row[0] for row in connection.execute(select)]


def _count_rows(connection: sqlite3.Connection) -> int:
    tables = [name for name in _tables(connection, _OURS) if name in _ROWS]
    return sum(connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables)


def _take_over(
    catalog: str, place: Place, refusal: Callable[[], str | None], *, leave: bool = False
) -> str | None:
    """Moves the memories in `catalog`, and the keys next to it, to their place.

    Does nothing if there are memories already. Returns the reason why the old data was not moved, such as the
    result of `refusal()`, else None. `leave`: the catalog is not changed, because git tracks it. Raises
    `StoreError`, `Busy`.
    """
    memory, marker, keys = place.memory, place.memory + _MARKER, old_keys(catalog)
    moves_keys = keys != place.keys and os.path.isfile(keys)
    if os.path.lexists(memory) and not os.path.lexists(marker):
        taken = os.path.lexists(place.keys) or os.path.lexists(place.keys + MOVED)
        return "this project has memories already" if moves_keys and not taken else None
    try:
        with files.locked(memory, beneath=place.folder):
            unfinished = os.path.lexists(marker)
            if os.path.lexists(memory) and not unfinished:
                return None  # another process has moved them
            old = holds_old(catalog)
            if unfinished and files.read_file(marker, beneath=place.folder) == _LEAVE:
                discard_copy(memory)  # from an interrupted `ctx memory adopt`, which the user must run again
                os.unlink(marker)
                unfinished = False
            if unfinished and old is not None:
                # No process uses this copy yet: each one calls this function before it writes.
                discard_copy(memory)
            elif not unfinished:
                if not old and not (moves_keys and not os.path.lexists(place.keys)):
                    return None
                if (reason := refusal()) is not None:
                    return reason
                files.replace(marker, _LEAVE if leave else b"", beneath=place.folder)
            if moves_keys:
                content = files.read_file(keys, beneath=os.path.dirname(keys))
                files.replace(place.keys, content, beneath=place.folder)
            count = 0 if old is None else _move_tables(catalog, memory, leave=leave)
            if moves_keys and not leave:
                os.replace(keys, keys + MOVED)
            os.unlink(marker)
    except OSError as error:
        raise StoreError(
            f"the memories cannot be moved from {os.path.basename(catalog)} to {memory}: {error.strerror}"
        ) from error
    kept_copy = os.path.basename(catalog if old is not None else keys) + MOVED
    note = "" if leave else f"; {kept_copy} is a copy for an earlier version of ctx"
    logger.warning("moved %d memories and scripts' values to %s%s", count, memory, note)
    return None


def unasked(catalog: str, known: bool) -> str | None:
    """The reason why this catalog's memories must not be moved unless the user asks for it; None if they may.

    `known`: this user has used the configured store before (`is_known`).
    """
    folder = os.path.dirname(catalog)
    if os.path.islink(folder):
        return "its folder is a link"
    if _is_tracked(catalog):
        return "git tracks it, so it may belong to someone else"
    if os.stat(catalog if os.path.exists(catalog) else folder).st_uid not in (os.geteuid(), 0):
        return "it belongs to another user"
    unknown = "this user has not used it before, so it may have come with a copy or an archive"
    return None if known else unknown


def _is_tracked(catalog: str) -> bool:
    """Whether git tracks the catalog or the keys in its folder."""
    folder, name = os.path.split(catalog)
    top = files.work_tree(folder)
    if top is None:
        return False
    inside = os.path.relpath(folder, top)
    names = [*(name + suffix for suffix in ("", *COMPANIONS)), KEYS]
    pathspecs = [f":(literal){os.path.join(inside, part)}" for part in names]
    return bool(git_reply(top, "ls-files", "-z", "--", *pathspecs))


def _move_tables(catalog: str, memory: str, *, leave: bool) -> int:
    """Copies the tables to `memory`, and drops them from the catalog unless `leave`.

    Returns the number of memories and values.
    """
    unfinished = memory + _UNFINISHED
    with ExitStack() as stack:
        if not leave:
            old = stack.enter_context(closing(connect(catalog, synchronous="FULL")))
            stack.enter_context(transaction(old))
        source = stack.enter_context(closing(connect(catalog, read_only=True)))
        begin_copy(unfinished)
        with closing(sqlite3.connect(unfinished, isolation_level=None)) as new, translating():
            source.backup(new)
            new.execute("PRAGMA journal_mode = DELETE")
            for name in _tables(new, _OTHERS):
                new.execute(f'DROP TABLE IF EXISTS "{name}"')
            new.execute(f"DELETE FROM meta WHERE NOT {_META}")
            new.execute("VACUUM")
            if new.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
                raise StoreError("the copied memories are damaged; nothing was moved: run `ctx doctor`")
            count = _count_rows(new)
            if not leave:  # keep a copy for an earlier version of ctx
                copy_database(new, f"{catalog}{MOVED}{_UNFINISHED}", catalog + MOVED)
        files.sync(unfinished)
        os.replace(unfinished, memory)
        files.sync(os.path.dirname(memory))
        if not leave:
            with translating():  # a dropped table is overwritten: its memories may be erased later
                old.execute("PRAGMA secure_delete = 1")
                for name in _tables(old, _OURS):
                    old.execute(f'DROP TABLE IF EXISTS "{name}"')
                old.execute(f"DELETE FROM meta WHERE {_META}")
    return count
