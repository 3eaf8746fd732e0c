"""API keys: which callers a server accepts, and for which memory banks (named sets of memories).

Only hashes of keys are stored. A key has 256 random bits, so a plain SHA-256 is enough. Keys are compared in
constant time. They are stored in a table in `memory.db`; a running server sees a change at the next request.
If several machines share a database, the table is in that database (`ctx.cluster.memory_db`).
"""

import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from ctx import files
from ctx.clock import now_ms
from ctx.config import Config
from ctx.errors import BadRequest, ConfigError, NotFound, StoreError
from ctx.memory.location import locate
from ctx.models import BANK, BANK_RULE, JSON, OWN_BANK
from ctx.store import schema
from ctx.store.record import Statements

logger = logging.getLogger(__name__)

NAME = re.compile(r"[\w.@:+-]{1,64}", re.ASCII)
EVERY_BANK = "*"
COMPONENT = "keys"
MIGRATIONS = (
    """
    CREATE TABLE api_key (
        id TEXT PRIMARY KEY,
        name TEXT NOT NULL,
        banks TEXT NOT NULL,  -- JSON
        sha256 TEXT NOT NULL,
        created_ms BIGINT NOT NULL,
        revoked_ms BIGINT
    );
    CREATE UNIQUE INDEX api_key_name ON api_key (name) WHERE revoked_ms IS NULL;
    """,
)


class Grant(NamedTuple):
    """The access that a key gives. If `banks` is None, it covers all banks. If `pack` is None, it covers all
    memory packs and everything else on the server.

    `name` is None for the user of `ctx mcp`, who needs no key.
    """

    name: str | None
    banks: frozenset[str] | None = None
    pack: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the key gives access to everything, not only to memories."""
        return self.pack is None and self.banks is None

    def covers(self, bank: str | None) -> bool:
        """Whether the key gives access to this bank.

        For None it is true: a call without a bank is checked again when its bank is known.
        """
        return bank is None or self.banks is None or bank in self.banks


class KeyRecord(NamedTuple):
    """A stored key. `id` is public and names the key in lists and in `revoke`."""

    id: str
    name: str
    banks: tuple[str, ...]  # ("*",) for all banks
    sha256: str
    created_ms: int
    revoked_ms: int | None = None


def digest(key: str) -> bytes:
    """The SHA-256 hash of a key. Keys are stored and compared as hashes."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def match(key: str, candidates: Iterable[tuple[bytes, Grant]]) -> Grant | None:
    """The grant of the first candidate with this key, or None.

    The time does not depend on which candidate matches.
    """
    offered = digest(key)
    equal = [grant for candidate, grant in candidates if hmac.compare_digest(offered, candidate)]
    return equal[0] if equal else None


class Keys:
    """The API keys of a store: the abstract class for all storages. Safe across threads and processes."""

    def __init__(self) -> None:
        self._records: tuple[KeyRecord, ...] = ()
        self._candidates: tuple[tuple[bytes, Grant], ...] = ()

    def _refresh(self) -> None:
        """Reads the keys again if they may have changed."""
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[Statements]:
        """A transaction that locks the keys for writing."""
        raise NotImplementedError

    def _take(self, records: Iterable[KeyRecord]) -> None:
        self._records = tuple(records)
        self._candidates = tuple(
            (
                bytes.fromhex(record.sha256),
                Grant(f"key:{record.name}", None if EVERY_BANK in record.banks else frozenset(record.banks)),
            )
            for record in self._records
            if record.revoked_ms is None
        )

    def follow(self) -> None:
        """Starts to refresh the keys in the background, if reading them takes a round trip to a database.
        Does nothing by default.
        """

    def close(self) -> None:
        """Stops the background refresh started by `follow`, and closes the store."""

    @property
    def closed(self) -> bool:
        """Whether any key was ever created. Stays true when all keys are revoked."""
        self._refresh()
        return bool(self._records)

    def candidates(self) -> tuple[tuple[bytes, Grant], ...]:
        """Hash and grant of every key that is not revoked, for `match`."""
        self._refresh()
        return self._candidates

    def list(self) -> list[KeyRecord]:
        """All keys, including revoked ones, oldest first."""
        self._refresh()
        return list(self._records)

    def create(self, name: str, banks: Iterable[str] = (EVERY_BANK,)) -> tuple[str, KeyRecord]:
        """Creates a key and returns it with its record. The key itself is not stored.

        Raises `BadRequest` for a bad name or bank, or if the name is in use.
        """
        if not NAME.fullmatch(name):
            raise BadRequest("a key's name must have 1 to 64 of the characters A-Z a-z 0-9 _ . @ : + -")
        key = f"ctx_{secrets.token_urlsafe(32)}"  # the prefix lets secret scanners and people recognise a key
        record = KeyRecord(secrets.token_hex(4), name, _checked_banks(banks), digest(key).hex(), now_ms())
        with self._writing() as connection:
            if any(row.name == name and row.revoked_ms is None for row in records_in(connection)):
                raise BadRequest(
                    f"a key called '{name}' already exists; revoke it first or choose another name"
                )
            _insert(connection, record)
        return key, record

    def revoke(self, name_or_id: str, *, clock: Callable[[], int] = now_ms) -> KeyRecord:
        """Revokes a key; all servers of this store refuse it from the next request on. Raises `NotFound`."""
        with self._writing() as connection:
            for record in records_in(connection):
                if name_or_id in (record.name, record.id) and record.revoked_ms is None:
                    revoked = record._replace(revoked_ms=clock())
                    _revoke(connection, revoked)
                    return revoked
        raise NotFound(f"no valid key is called '{name_or_id[:80]}'; `ctx key list` lists the keys")

    def add(self, records: Iterable[KeyRecord]) -> None:
        """Copies keys from another store. A key that is revoked there is revoked here.

        Raises `BadRequest` if a different valid key has the same name as a new one.
        """
        with self._writing() as connection:
            present = {record.id: record for record in records_in(connection)}
            names = {record.name for record in present.values() if record.revoked_ms is None}
            for record in records:
                stored = present.get(record.id)
                if stored is None:
                    if record.revoked_ms is None and record.name in names:
                        raise BadRequest(f"another key called '{record.name}' exists: revoke one of the two")
                    _insert(connection, record)
                elif record.revoked_ms is not None and stored.revoked_ms is None:
                    _revoke(connection, record)


def records_in(connection: Statements) -> list[KeyRecord]:
    """All keys in a database, oldest first."""
    rows = connection.execute(f"SELECT {', '.join(KeyRecord._fields)} FROM api_key ORDER BY created_ms, id")
    return list(map(record_of, rows))


def record_of(row: Sequence[JSON]) -> KeyRecord:
    """The key in a row of the `api_key` table."""
    id, name, banks, *more = row
    return KeyRecord(id, name, tuple(json.loads(banks)), *more)


def _insert(connection: Statements, record: KeyRecord) -> None:
    values = record._replace(banks=json.dumps(record.banks))  # type: ignore[arg-type]
    connection.execute(f"INSERT INTO api_key VALUES ({', '.join('?' * len(values))})", values)


def _revoke(connection: Statements, record: KeyRecord) -> None:
    connection.execute("UPDATE api_key SET revoked_ms = ? WHERE id = ?", (record.revoked_ms, record.id))


class KeyRing(Keys):
    """The keys in a SQLite file, `memory.db`. The file is created with the first key."""

    def __init__(self, path: str, earlier: str | None = None) -> None:
        """Opens the keys at `path`. Keys in `earlier`, the key file of an earlier version, are moved there.

        Raises `StoreError`, and `ConfigError` if `earlier` is not a key file.
        """
        super().__init__()
        self.path = path
        self._lock = threading.Lock()
        self._connection: schema.Connection | None = None
        self._version: int | None = None  # the version of the file when its keys were last read
        self._damage: StoreError | None = None
        if earlier is not None and os.path.isfile(earlier):
            take_over(self, earlier)
        self._refresh(first=True)

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    @property
    def closed(self) -> bool:
        """As in `Keys`. Also true while the file cannot be read, since it may have keys."""
        return super().closed or self._damage is not None

    def list(self) -> list[KeyRecord]:
        records = super().list()
        if self._damage is not None:
            raise self._damage
        return records

    def _current(self) -> schema.Connection:
        """The connection, opened if needed. Raises `StoreError`, also if the file was deleted or replaced."""
        if self._connection is None:
            self._version = None
            if schema.is_locked(self.path):
                self._connection = schema.connect(self.path, read_only=True)
                return self._connection
            connection = schema.connect(self.path, synchronous="FULL")
            schema.migrate(connection, COMPONENT, MIGRATIONS)
            self._connection = connection
        schema.check_present(self._connection)
        return self._connection

    @contextmanager
    def _writing(self) -> Iterator[Statements]:
        with self._lock:
            connection = self._current()
            with schema.transaction(connection):
                yield connection
                records = records_in(connection)
            self._take(records)

    def _refresh(self, *, first: bool = False) -> None:
        with self._lock:
            if self._connection is None and not os.path.lexists(self.path):
                return  # there are no keys yet, and opening the file would create it
            try:
                connection = self._current()
                with schema.translating():
                    version = connection.execute("PRAGMA data_version").fetchone()[0]
                if version != self._version:
                    with schema.transaction(connection, write=False):
                        records = (
                            records_in(connection) if schema.schema_version(connection, COMPONENT) else []
                        )
                    self._take(records)
                    self._version = version
                self._damage = None
            except StoreError as error:
                if first and not schema.is_damage(error):
                    raise
                if self._damage is None:
                    logger.error("keys file=unreadable kept=%d reason=%s", len(self._records), error.message)
                self._damage = error


def take_over(ring: Keys, path: str) -> None:
    """Moves the keys from the file of an earlier version into the ring, and renames the file to `.moved`.

    Raises `ConfigError`, `StoreError`.
    """
    folder = os.path.dirname(os.path.abspath(path))
    try:
        with files.locked(path, beneath=folder):
            entries = json.loads(files.read_file(path, beneath=folder))["keys"]
            records = [KeyRecord(**{**entry, "banks": tuple(entry["banks"])}) for entry in entries]
            if any(len(bytes.fromhex(record.sha256)) != 32 for record in records):
                raise ValueError("not a SHA-256 hash")
            ring.add(records)
            os.replace(path, f"{path}.moved")
            files.sync(folder)
    except FileNotFoundError:
        return  # another process has already moved the keys
    except OSError as error:
        raise StoreError(f"the keys in {path} cannot be moved to the memories: {error.strerror}") from error
    except BadRequest as error:
        raise ConfigError(f"{path}: {error.message}; delete the file if its keys are not used") from error
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ConfigError(
            f"{path}: not a key file; restore it, or delete it and make new keys with 'ctx key create'"
        ) from error
    logger.warning(
        "moved %d keys to the memories; %s.moved is a copy for an earlier version", len(records), path
    )


def _checked_banks(banks: Iterable[str]) -> tuple[str, ...]:
    """The banks of a key, sorted. Raises `BadRequest` for an empty list or a bad name."""
    chosen = tuple(sorted(set(banks)))
    if not chosen:
        raise BadRequest("a key needs at least one bank, or '*' for all banks")
    for bank in chosen:
        if bank != EVERY_BANK and not BANK.fullmatch(bank):
            raise BadRequest(f"'{bank[:80]}' is not a bank's name: a name has {BANK_RULE}")
        if bank.startswith(OWN_BANK):
            raise BadRequest(
                f"'{bank[:80]}' is a pack's private bank: use [packs.NAME] api_key_env or a key for all banks"
            )
    return (EVERY_BANK,) if EVERY_BANK in chosen else chosen


def key_ring(config: Config) -> Keys:
    """Opens the API keys of the configured store. The caller must close them."""
    if config.store.url:
        return open_keys(config.store.url)
    location = locate(config, os.environ)
    return KeyRing(location.memory, location.keys)


def open_keys(url: str) -> Keys:
    """Opens the API keys in the shared database at this URL. The caller must close them."""
    from ctx import cluster

    database = cluster.open_database(url)
    from ctx.cluster.memory_db import SharedKeyRing  # imports psycopg, which is installed only with an extra

    return SharedKeyRing(database)
