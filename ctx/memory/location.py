"""Finds the file with a project's memories.

If an earlier version of ctx stored them elsewhere, they are moved first. An interrupted move or restore is
finished.
"""

import json
import logging
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from ctx import files
from ctx.config import Config
from ctx.config.trust import TrustFile, trust_path
from ctx.data_folder import KEYS, Place, adopt, entry_named, find_place, projects_folder
from ctx.errors import BadRequest, ConfigError, StoreError
from ctx.indexing.model_switch import notes_path
from ctx.memory import split
from ctx.memory.copies import RESTORED, Ledger, check_unused, counts_in, opened, stored_counts
from ctx.store.schema import connect, discard_copy, is_damage, translating
from ctx.text.strings import counted

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Location:
    """Where memories, keys and the values of scripts are stored.

    `waiting` is the reason why memories or keys that an earlier version left next to the catalog are not
    used; None if there are none.
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

        Raises `ConfigError` if there are unused keys next to the catalog, since the server would be open if
        they were ignored.
        """
        if self.waiting and os.path.isfile(old_keys(self.catalog)):
            raise ConfigError(
                f"{old_keys(self.catalog)} holds keys that are not used: {self.waiting}. "
                "Run `ctx memory adopt .ctx` to use them, or delete the file"
            )
        return self.place.keys

    @property
    def leftovers(self) -> tuple[str, ...]:
        """Old copies of memories, which must be deleted when memories are erased."""
        return (self.catalog + split.MOVED,)


def old_keys(catalog: str) -> str:
    """The path of the key file that earlier versions stored next to the catalog."""
    return os.path.join(os.path.dirname(catalog), KEYS)


def memory_place(config: Config, environ: Mapping[str, str], *, make: bool = True) -> Place:
    """The place of the memories of a configuration. Raises `StoreError`."""
    return find_place(config.root, config.db.path, config.memory.path, environ, make=make)


def holds_any(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether memories may exist. Creates no files. Raises `StoreError`."""
    if config.store.url:
        return True
    memory = memory_place(config, environ, make=False).memory
    return os.path.lexists(memory) or config.stored


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
        return split.unasked(catalog, _beside(place, catalog) or is_known(config, environ))

    waiting = split.take_over(catalog, old_keys(catalog), place.memory, refusal)
    if waiting:
        logger.warning(
            "%s holds memories or keys of an earlier version that are not used: %s. "
            "Run `ctx memory adopt .ctx` to use them",
            os.path.dirname(catalog),
            waiting,
        )
    return Location(place, catalog, waiting)


def _beside(place: Place, catalog: str) -> bool:
    """Whether the memories are in the folder of the catalog, or below it."""
    folder = os.path.realpath(os.path.dirname(catalog))
    return os.path.commonpath([folder, os.path.realpath(place.folder)]) == folder


def is_known(config: Config, environ: Mapping[str, str]) -> bool:
    """Whether this user has used the store before.

    True if ctx recorded its embedding model, or if the user trusted a file in the project.
    """
    try:
        noted = json.loads(files.read_file(notes_path(environ)))
    except (OSError, ValueError):
        noted = {}
    if isinstance(noted, dict) and config.db.path in noted:
        return True
    project = os.path.join(os.path.realpath(config.root), "")
    try:
        return any(path.startswith(project) for path in TrustFile(trust_path(environ)).digests())
    except ConfigError:
        return False


def adopt_old(config: Config, environ: Mapping[str, str]) -> int:
    """Moves the memories that an earlier version left next to the catalog to their new place.

    Returns the number of memories then. Raises `BadRequest`, `StoreError`.
    """
    place, catalog = memory_place(config, environ), os.path.abspath(config.db.path)
    if split.holds_old(catalog) is None and not os.path.isfile(old_keys(catalog)):
        raise BadRequest(f"there are no memories of an earlier version in {os.path.dirname(catalog)}")
    _discard_empty(place)
    files.make_folder(place.folder)
    tracked = split.unasked(catalog, True) is not None
    split.take_over(catalog, old_keys(catalog), place.memory, lambda: None, leave=tracked)
    return count_memories(place.memory)


def adopt_other(config: Config, environ: Mapping[str, str], name: str) -> int:
    """Gives this project the memories of a project that no longer exists.

    Returns the number of memories then. Raises `BadRequest`, `NotFound`, `StoreError`.
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
    if not os.path.isfile(place.memory):
        return False
    with closing(connect(place.memory, read_only=True)) as connection, translating():
        tables = "SELECT count(*) FROM sqlite_master WHERE name = 'api_key'"
        if not connection.execute(tables).fetchone()[0]:
            return False
        return bool(connection.execute("SELECT count(*) FROM api_key").fetchone()[0])


def loss(memory: str) -> str | None:
    """A message about missing memories or changes; None if none are missing."""
    ledger = Ledger(memory)
    if ledger.read() is None:
        return None
    try:
        # Locked after the file is opened, so that no process is between a commit and its count.
        with opened(memory) as connection, ledger.held() as page:
            memories, changes = counts_in(connection)
    except StoreError as error:
        return f"the memories cannot be read: {error.message}" if is_damage(error) else None
    except OSError:
        return None
    count = page.count
    lost = count.lost + max(0, count.memories - memories)
    lost_changes = count.lost_changes + max(0, count.changes - changes)
    if lost:
        return f"{counted(lost, 'memory')} that were stored are missing; `ctx doctor` says more"
    if lost_changes:
        return f"the latest changes of the memories are missing ({lost_changes:,}); `ctx doctor` says more"
    return None


def problems(memory: str) -> list[str]:
    """Messages about damage of the file of memories, and about missing memories.

    Raises `StoreError` if the file cannot be opened for another reason than damage.
    """
    verdict = "ok"
    if os.path.isfile(memory):
        try:
            with closing(connect(memory, read_only=True)) as connection, translating():
                [verdict] = connection.execute("PRAGMA quick_check(1)").fetchone()
        except StoreError as error:
            if not is_damage(error):
                raise
            return [error.message]
    if verdict != "ok":
        return [f"the catalog file is damaged: {verdict}"]
    missing = loss(memory)
    return [missing] if missing else []
