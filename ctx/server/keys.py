"""Keys: who may call, for which banks. Only hashes are stored.

A key is 256 random bits, so its plain SHA-256 tells nothing; what it is compared with is always compared
whole and in constant time. The file is JSON, 0600, replaced as a whole under a lock; a running server sees a
change at the next request. Where machines share a database, the keys are in it (`ctx.cluster.keys`).
"""

import hashlib
import hmac
import json
import logging
import os
import re
import threading
from collections.abc import Callable, Container, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import NamedTuple

from ctx import file_writing, files
from ctx.clock import iso_utc, now_ms
from ctx.errors import BadRequest, ConfigError, NotFound, StoreError
from ctx.identity import BANK, BANK_RULE, OWN_BANK
from ctx.models import JSON
from ctx.store.folder import own_folder

logger = logging.getLogger(__name__)

PREFIX = "ctx_"  # so that secret scanners and people recognise one
NAME = re.compile(r"[\w.@:+-]{1,64}", re.ASCII)
EVERY_BANK = "*"
_VERSION = 1


class Grant(NamedTuple):
    """What a key opens. `banks` None: every bank. `pack` None: every pack, and the server itself."""

    name: str
    banks: frozenset[str] | None = None
    pack: str | None = None

    @property
    def whole(self) -> bool:
        """Whether the key opens everything, and not memories alone."""
        return self.pack is None and self.banks is None

    def covers(self, bank: str | None) -> bool:
        """Whether the key opens this bank; with no bank named, what the caller ends up with is checked where
        it is known.
        """
        return bank is None or self.banks is None or bank in self.banks


class KeyRecord(NamedTuple):
    """A key as the file keeps it. `id` is public and names the key in lists and in `revoke`."""

    id: str
    name: str
    banks: tuple[str, ...]  # ("*",): every bank
    sha256: str
    created_ms: int
    revoked_ms: int | None = None


def digest(key: str) -> bytes:
    """What a key is compared by."""
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def match(key: str, candidates: Iterable[tuple[bytes, Grant]]) -> Grant | None:
    """The grant of the first candidate with this key. Takes the same time wherever it stands, and if it
    stands nowhere.
    """
    offered = digest(key)
    first: Grant | None = None
    for candidate, grant in candidates:
        equal = hmac.compare_digest(offered, candidate)
        first = grant if equal and first is None else first
    return first


_Records = list[KeyRecord]  # the class below has a method of that name


def _check_name(record: KeyRecord, names: Container[str]) -> None:
    """Raises `BadRequest` where a key in force has one of these names."""
    if record.revoked_ms is None and record.name in names:
        raise BadRequest(f"another key called '{record.name}' is there: revoke one of the two")


def _check_bank(bank: str) -> None:
    """Raises `BadRequest` for what a key cannot be for."""
    if bank != EVERY_BANK and not BANK.fullmatch(bank):
        raise BadRequest(f"'{bank[:80]}' is not a bank: it has {BANK_RULE}")
    if bank.startswith(OWN_BANK):
        raise BadRequest(
            f"'{bank[:80]}' is a pack's own bank, which is opened by [packs.NAME] api_key_env or a "
            "key for all banks"
        )


class Keys:
    """The keys of a store, wherever they are kept. Safe from several threads and processes."""

    def __init__(self) -> None:
        self._records: tuple[KeyRecord, ...] = ()
        self._candidates: tuple[tuple[bytes, Grant], ...] = ()

    def _refresh(self) -> None:
        """Sees to it that what was read of them is what is kept."""
        raise NotImplementedError

    def _writing(self) -> AbstractContextManager[_Records]:
        """The keys as they are kept, of which the changed list is kept at the end. Nobody else writes them
        meanwhile.
        """
        raise NotImplementedError

    def _take(self, records: Iterable[KeyRecord]) -> None:
        self._records = tuple(records)
        self._candidates = tuple(
            (bytes.fromhex(record.sha256), _grant(record))
            for record in self._records
            if record.revoked_ms is None
        )

    def follow(self) -> None:
        """Keeps itself up to date from now on, until it is closed, where it does not at every look."""

    def close(self) -> None:
        """Ends what follows."""

    @property
    def closed(self) -> bool:
        """Whether a key is needed at all. Once one was made it stays so: revoking the last key must not open
        the door.
        """
        self._refresh()
        return bool(self._records)

    def candidates(self) -> tuple[tuple[bytes, Grant], ...]:
        """The keys in force, for `match`."""
        self._refresh()
        return self._candidates

    def list(self) -> list[KeyRecord]:
        """All keys, the revoked ones too, oldest first."""
        self._refresh()
        return list(self._records)

    def create(self, name: str, banks: Iterable[str] = (EVERY_BANK,)) -> tuple[str, KeyRecord]:
        """A new key and its record. The key is shown this once. Raises `BadRequest` for a bad name or bank,
        or a name in use.
        """
        if not NAME.fullmatch(name):
            raise BadRequest("a key's name has 1 to 64 of A-Z a-z 0-9 _ . @ : + -")
        chosen = _checked_banks(banks)
        with self._writing() as records:
            if any(record.name == name and record.revoked_ms is None for record in records):
                raise BadRequest(f"a key called '{name}' exists; revoke it first or choose another name")
            import secrets  # 12 ms with `random`, and a server makes no keys

            key = PREFIX + secrets.token_urlsafe(32)
            record = KeyRecord(secrets.token_hex(4), name, chosen, digest(key).hex(), now_ms())
            records.append(record)
        return key, record

    def revoke(self, name_or_id: str, *, clock: Callable[[], int] = now_ms) -> KeyRecord:
        """Ends a key, at the next request of every server that reads this file. Raises `NotFound`."""
        with self._writing() as records:
            for position, record in enumerate(records):
                if name_or_id in (record.name, record.id) and record.revoked_ms is None:
                    revoked_ms = clock()
                    records[position] = record._replace(revoked_ms=revoked_ms)
                    return records[position]
            raise NotFound(f"no key in force is called '{name_or_id[:80]}'; `ctx key list` names them")

    def add(self, records: Iterable[KeyRecord]) -> int:
        """Takes over keys that are kept elsewhere; how many are new or revoked by it. Raises `BadRequest`
        where another key in force has the name of one.
        """
        with self._writing() as present:
            positions = {record.id: position for position, record in enumerate(present)}
            names = {record.name: record.id for record in present if record.revoked_ms is None}
            changes = 0
            for record in records:
                position = positions.get(record.id)
                if position is None:
                    _check_name(record, names)
                    present.append(record)
                elif record.revoked_ms is not None and present[position].revoked_ms is None:
                    present[position] = record
                else:
                    continue
                changes += 1
        return changes


class KeyRing(Keys):
    """The keys in a file. The file need not exist yet."""

    def __init__(self, path: str) -> None:
        """Raises `ConfigError` where the file cannot be read as a key ring."""
        super().__init__()
        self.path = path
        # The one that held the file at the last look, open, so that no other gets its number.
        self._folder = -1
        self._lock = threading.Lock()
        self._stamp: tuple[int, int, int] | None = None
        self._refresh(first=True)

    @contextmanager
    def _writing(self) -> Iterator[_Records]:
        folder = os.path.dirname(os.path.abspath(self.path))
        own_folder(self.path)
        try:
            with file_writing.locked(self.path, beneath=folder):
                records = list(_read(self.path))
                yield records
                content = {"version": _VERSION, "keys": [record._asdict() for record in records]}
                file_writing.replace(self.path, json.dumps(content, indent=1).encode(), beneath=folder)
        except OSError as error:
            raise StoreError(f"the keys cannot be written in {folder}: {error.strerror}") from error
        self._refresh()

    def _hold_folder(self) -> None:
        self.__del__()
        self._folder = os.open(os.path.dirname(os.path.abspath(self.path)), os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def _bring_back(self) -> bool:
        """Whether the file went with the whole folder of the store; it is written anew once there is a folder
        again.
        """
        folder = files.identity(os.path.dirname(os.path.abspath(self.path)))
        try:
            status = os.fstat(self._folder)
        except OSError:
            return False  # none was ever read
        if folder == (status.st_dev, status.st_ino):
            return False
        if folder is not None:
            logger.warning("keys file=deleted with its folder kept=%d: written anew", len(self._records))
            try:
                with self._writing() as records:
                    records[:] = records or self._records
            except StoreError as error:
                logger.error("keys file=missing kept=%d reason=%s", len(self._records), error.message)
        return True

    def _refresh(self, *, first: bool = False) -> None:
        try:
            status = os.stat(self.path, follow_symlinks=False)
            stamp = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (FileNotFoundError, NotADirectoryError):
            if self._stamp is not None and not self._bring_back():
                # Taking the file away must not open what it closed.
                logger.error("keys file=missing path=%s kept=%d", self.path, len(self._records))
                self._stamp = None
            return
        if stamp != self._stamp:
            self._reread(status, stamp, first=first)

    def _reread(self, status: os.stat_result, stamp: tuple[int, int, int], *, first: bool) -> None:
        with self._lock:
            try:
                records = tuple(_read(self.path))
            except ConfigError as error:
                if first:
                    raise
                logger.error("keys file=unreadable kept=%d reason=%s", len(self._records), error.message)
                self._stamp = stamp
                return
            if status.st_mode & 0o077:
                logger.warning("keys file=%s mode=%o mend='chmod 600'", self.path, status.st_mode & 0o777)
            self._take(records)
            self._stamp = stamp
            self._hold_folder()


def _grant(record: KeyRecord) -> Grant:
    return Grant(f"key:{record.name}", None if EVERY_BANK in record.banks else frozenset(record.banks))


def _checked_banks(banks: Iterable[str]) -> tuple[str, ...]:
    """The banks that a key opens, in order. Raises `BadRequest` for none, or for a bad name."""
    chosen = tuple(sorted(set(banks)))
    if not chosen:
        raise BadRequest("a key needs at least one bank, or '*' for every bank")
    for bank in chosen:
        _check_bank(bank)
    return (EVERY_BANK,) if EVERY_BANK in chosen else chosen


def _record(entry: JSON) -> KeyRecord:
    """A key as the file has it. Raises `ValueError`, `KeyError`, `TypeError` or `OverflowError` for what no
    ctx has written.
    """
    record = KeyRecord(**{**entry, "banks": tuple(entry["banks"])})
    if not (isinstance(entry["banks"], list) and _is_sound(record)):
        raise ValueError("not a key")
    for time_ms in (record.created_ms, record.revoked_ms or 0):
        iso_utc(time_ms)
    return record


def _is_sound(record: KeyRecord) -> bool:
    return (
        all(bank == EVERY_BANK or BANK.fullmatch(bank) for bank in record.banks)
        and isinstance(record.id, str)
        and NAME.fullmatch(record.name) is not None
        and len(bytes.fromhex(record.sha256)) == 32
    )


def records_of(content: JSON) -> list[KeyRecord]:
    """The keys in a file's content. Raises `ValueError`, `LookupError`, `TypeError` or `OverflowError` for
    what no ctx like this has written.
    """
    if content["version"] != _VERSION:
        raise ValueError("not a key ring of this version")
    return [_record(entry) for entry in content["keys"]]


def _read(path: str) -> Iterator[KeyRecord]:
    try:
        content: JSON = json.loads(files.read_file(path, beneath=os.path.dirname(os.path.abspath(path))))
        if content["version"] != _VERSION:
            raise ConfigError(
                f"{path}: written by another version of ctx "
                f"(format {content['version']}, this one reads {_VERSION})"
            )
        yield from records_of(content)
    except FileNotFoundError:
        return
    except OSError as error:
        raise ConfigError(f"{path}: the keys cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ConfigError(
            f"{path}: not a key ring; restore it, or remove it and make new keys with 'ctx key create'"
        ) from error
