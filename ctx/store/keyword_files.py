"""The files of the keyword index: its state, and checks of tantivy's own files."""

import json
import os
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ctx import files
from ctx.errors import StoreError
from ctx.store.statefile import OPEN_TRIES, Stamp, read_state, stamp

KEYWORD_FORMAT = 10  # of the fields and text analysis of tantivy.py; an index of another format is rebuilt
STATE = "keyword.state"
FOLDER = "keyword-"  # prefix of tantivy's folders
DAMAGED = "the keyword index is damaged: run `ctx index` to rebuild it"

_META, _MANAGED = "meta.json", ".managed.json"
_MAX_LIST_BYTES = 16 << 20  # of a file list of tantivy's: the names of some hundred thousand files
_KINDS = ("fast", "fieldnorm", "idx", "pos", "store", "term")  # the files of every segment
_FOOTER_MAGIC = (1337).to_bytes(4, "little")

verified: dict[str, Stamp | None] = {}
"""tantivy folder -> stamp of its meta.json when this process wrote it or found all files intact."""


@contextmanager
def damage_reported() -> Iterator[None]:
    """Turns the errors of tantivy's Python interface on damaged files (a panic, None for a number) into
    `StoreError`.
    """
    try:
        yield
    except BaseException as error:  # pyo3's panic is a BaseException without a public name
        if isinstance(error, TypeError) or type(error).__name__ == "PanicException":
            raise StoreError(DAMAGED) from error
        raise


def keyword_state(path: str) -> dict[str, Any] | None:
    """The state of the keyword index. None if there is none; {} if it is damaged or names a folder outside
    the index.
    """
    fields = read_state(path)
    if not fields:
        return fields
    folder, applied = str(fields.get("folder")), fields.get("applied")
    number = folder.removeprefix(FOLDER)
    sound = number.isdecimal() and folder == FOLDER + number and isinstance(applied, int)
    return fields if sound and "history" in fields else {}


def format_fault(fields: Mapping[str, Any]) -> str | None:
    """Why the index of this state cannot be read, in words that follow "the keyword index"; None if
    it can.
    """
    version = fields.get("format")
    if version == KEYWORD_FORMAT:
        return None
    if not isinstance(version, int):
        return "is damaged or was made by an older ctx"
    return (
        f"was made by {'an older' if version < KEYWORD_FORMAT else 'a newer'} ctx with other rules for words"
    )


def check_reachable(folder: str, beneath: str) -> None:
    """Raises `StoreError` if a link leads out of the store's folder."""
    try:
        files.check_folder(folder, beneath=beneath)
    except FileNotFoundError:
        pass  # a writer has replaced it, or it is damaged: opening it raises the error
    except OSError as error:
        raise StoreError(f"the keyword index cannot be read: {error.strerror}") from error


def complete_files(folder: str) -> bool:
    """Whether every file of tantivy's current commit exists and ends as it should.

    Tantivy tolerates some missing files: without positions it answers phrases wrongly.
    """
    for _ in range(OPEN_TRIES):
        meta = stamp(os.path.join(folder, _META))
        try:
            if all(_ends_in_footer(path) for path in _segment_files(folder)):
                return True
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            pass
        if stamp(os.path.join(folder, _META)) == meta:
            return False
    return True  # merges follow each other: opening it finds damage


def sound_files(folder: str) -> bool:
    """Whether all checksums of tantivy's files match. Reads all files (0.1 s for 400 MB), once per process
    and change.

    Each file ends with a footer: JSON with the CRC-32 of everything before it, the length of the JSON, and a
    magic number. Tantivy's Python interface cannot check it.
    """
    meta = stamp(os.path.join(folder, _META))
    if meta is None:
        return False
    if verified.get(folder) == meta:
        return True
    if not keeps_to_itself(folder):
        return False
    from ctx.store.tantivy import KeywordIndex  # imports this module

    try:
        with damage_reported():
            KeywordIndex(folder, writable=False).close()
        if not all(_footer_holds(path) for path in _segment_files(folder)):
            return False
    except (StoreError, OSError, ValueError, KeyError, TypeError, RecursionError):
        return False
    verified[folder] = meta
    return True


def keeps_to_itself(folder: str) -> bool:
    """Whether tantivy's file list names only files in this folder. Tantivy deletes listed files that belong
    to no commit, so a list from a stranger's archive could delete any of the user's files.
    """
    try:
        names = _read_json(os.path.join(folder, _MANAGED))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(
        isinstance(name, str) and name == os.path.basename(name) and name.strip(".") for name in names
    )


def discard(path: str) -> None:
    """Withdraws the index in this folder, so that `catch_up` rebuilds it."""
    for name in ("keyword.state", os.path.join("vectors", "state")):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            pass


def _read_json(path: str) -> Any:
    return json.loads(files.read_file(path, most=_MAX_LIST_BYTES))


def _segment_files(folder: str) -> Iterator[str]:
    """The files of the current commit. Raises the errors of reading and parsing."""
    for segment in _read_json(os.path.join(folder, _META))["segments"]:
        name = os.path.join(folder, os.path.basename(segment["segment_id"].replace("-", "")))
        yield from (f"{name}.{kind}" for kind in _KINDS)
        if segment.get("deletes"):
            yield f"{name}.{segment['deletes']['opstamp']}.del"


def _ends_in_footer(path: str) -> bool:
    with open(path, "rb") as file:
        file.seek(0, os.SEEK_END)
        file.seek(max(0, file.tell() - len(_FOOTER_MAGIC)))
        return file.read() == _FOOTER_MAGIC


def _footer_holds(path: str) -> bool:
    with open(path, "rb") as file:
        data = file.read()
    if data[-4:] != _FOOTER_MAGIC:
        return False
    length = int.from_bytes(data[-8:-4], "little")
    footer = json.loads(data[-8 - length : -8])
    return zlib.crc32(memoryview(data)[: -8 - length]) == int(footer["crc"])
