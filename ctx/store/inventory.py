"""What lies in a folder of tantivy's: the files of its last commit, and whether they are as they were
written. A search reads what was noted of it (statefile.py).
"""

import json
import os
import zlib

from ctx import files
from ctx.errors import StoreError
from ctx.store.statefile import (
    MAX_LIST_BYTES,
    OPEN_TRIES,
    Stamp,
    Surviving,
    is_present,
    meta_of,
    meta_sum,
    stamp,
)
from ctx.types import JSON

_MANAGED = ".managed.json"


def _deletes(segment: JSON) -> str | None:
    """The kind of the file that says which of a segment's passages are gone."""
    deletes = segment.get("deletes")
    return f"{deletes['opstamp']}.del" if deletes else None


def inventory(folder: str) -> dict[str, str]:
    """The files that belong to the present commit, as fields of the state: `meta` names it, `files` are
    `name:size`.

    Tantivy itself does without some of its files: one whose positions are gone answers phrases wrongly.
    """
    for _ in range(OPEN_TRIES):
        data = meta_of(folder)
        live_files = {
            segment["segment_id"].replace("-", ""): _deletes(segment)
            for segment in json.loads(data)["segments"]
        }
        names = []
        for name in sorted(os.listdir(folder)):
            segment_id, _, kind = name.partition(".")
            if segment_id in live_files and (
                not kind.endswith((".del", ".temp")) or kind == live_files[segment_id]
            ):
                current_stamp = stamp(os.path.join(folder, name))
                if current_stamp is not None:
                    names.append(f"{name}:{current_stamp[2]}")
        meta = meta_sum(data)
        if is_present(meta, folder):
            return {"meta": meta, "files": " ".join(names)}
    return {"meta": "-", "files": ""}  # merges follow each other; the files are noted at the next publication


def keeps_to_itself(folder: str) -> bool:
    """Whether tantivy's list of its files names none elsewhere: whoever writes has it delete what stands
    there and belongs to no commit, and a list that came with an archive may name any file of the user's.
    """
    path = os.path.join(folder, _MANAGED)
    try:
        names = json.loads(files.read_file(path, most=MAX_LIST_BYTES))
    except FileNotFoundError:
        return True
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(names, list) and all(
        isinstance(name, str) and name == os.path.basename(name) and name.strip(".") for name in names
    )


_FOOTER_MAGIC = (1337).to_bytes(4, "little")

verified: dict[str, Stamp | None] = {}
"""Folder of tantivy's -> stamp of its meta.json as this process last wrote it or found all its files
sound.
"""


def sound_files(folder: str) -> bool:
    """Whether tantivy's files are what it wrote. All of them are read, 0.1 s for 400 MB, once per process and
    change by others.

    Each ends with a footer: JSON with the CRC-32 of what comes before, its length, and a magic number.
    Tantivy itself compares it only when asked, which its Python interface cannot.
    """
    meta = stamp(os.path.join(folder, "meta.json"))
    if meta is None:
        return False
    if verified.get(folder) == meta:
        return True
    if not keeps_to_itself(folder):
        return False
    from ctx.store.tantivy import KeywordIndex

    try:
        with Surviving():
            KeywordIndex(folder, writable=False).close()
        for entry in inventory(folder)["files"].split():
            if not _footer_holds(os.path.join(folder, entry.rpartition(":")[0])):
                return False
    except (StoreError, OSError, ValueError, KeyError, TypeError):
        return False
    verified[folder] = meta
    return True


def _footer_holds(path: str) -> bool:
    with open(path, "rb") as file:
        data = file.read()
    if data[-4:] != _FOOTER_MAGIC:
        return False
    length = int.from_bytes(data[-8:-4], "little")
    footer = json.loads(data[-8 - length : -8])
    return zlib.crc32(memoryview(data)[: -8 - length]) == int(footer["crc"])


def discard(path: str) -> None:
    """Takes back what the index in this folder has published: nobody answers from it, and `catch_up` builds
    it anew.
    """
    for name in ("keyword.state", os.path.join("vectors", "state")):
        try:
            os.unlink(os.path.join(path, name))
        except FileNotFoundError:
            pass
