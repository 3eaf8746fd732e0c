"""What lies in a folder of tantivy's: the files of its last commit, and whether they are as they were
written; and how long the files of vectors must be.
"""

import os
from collections.abc import Mapping

from ctx import files
from ctx.errors import StoreError
from ctx.store.statefile import Stamp, former_sum, read_state, stamp

DAMAGED = "the keyword index is damaged: run `ctx index`, which builds it anew"
# Of the fields and the analysis in tantivy.py; an index of another format is built anew.
KEYWORD_FORMAT = 7
# Of vectors.py and lanes.py. None of these three is imported to see that nothing has changed.
VECTORS_FORMAT, ROW_BYTES, PATCH_BYTES, CODES_ROWS, LEAD_DIMS = 3, 28, 16, 8192, 96
_MANAGED = ".managed.json"
_MAX_LIST_BYTES = 16 << 20  # of that and of meta.json: the names of some hundred thousand files
OPEN_TRIES = 5  # a folder may be deleted between reading its name and opening it


def format_fault(fields: Mapping[str, str]) -> str | None:
    """Why the index of this state cannot be read, as what follows "the keyword index"; None where its format
    is ours.
    """
    version = fields.get("format", "")
    if version == str(KEYWORD_FORMAT):
        return None
    if not version.isdecimal():
        return "is damaged"
    return (
        f"was made by {'an older' if int(version) < KEYWORD_FORMAT else 'a newer'} ctx, which took words "
        "apart otherwise"
    )


class Surviving:
    """Turns what damaged files do to tantivy's Python interface (a panic, None for a number) into
    `StoreError`.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        # pyo3 gives its panic no public name, and it is a BaseException.
        if isinstance(error, TypeError) or type(error).__name__ == "PanicException":
            raise StoreError(DAMAGED) from error


def _meta(folder: str) -> bytes:
    """What tantivy says of its commit; no more of it than it may be, and over no link. Raises `OSError`."""
    return files.read_file(os.path.join(folder, "meta.json"), most=_MAX_LIST_BYTES)


def _sum(meta: bytes) -> str:
    return f"{files.checksum(meta):016x}"


def _is_present(meta: str, folder: str) -> bool:
    """Whether the commit (or merge) of tantivy's that was noted as `meta` is the present one. Raises
    `OSError`.
    """
    data = _meta(folder)
    return meta == _sum(data) or (len(meta) <= 8 and meta.zfill(8) == former_sum(data))


def inventory(folder: str) -> dict[str, str]:
    """The files that belong to the present commit, as fields of the state: `meta` names it, `files` are
    `name:size`.

    Tantivy itself does without some of its files: one whose positions are gone answers phrases wrongly.
    """
    import json  # 2 ms; whoever writes has the time

    for _ in range(OPEN_TRIES):
        data = _meta(folder)
        live_files = {}
        for segment in json.loads(data)["segments"]:
            deletes = segment.get("deletes")
            live_files[segment["segment_id"].replace("-", "")] = (
                f"{deletes['opstamp']}.del" if deletes else None
            )
        names = []
        for name in sorted(os.listdir(folder)):
            segment_id, _, kind = name.partition(".")
            if segment_id in live_files and (
                not kind.endswith((".del", ".temp")) or kind == live_files[segment_id]
            ):
                current_stamp = stamp(os.path.join(folder, name))
                if current_stamp is not None:
                    names.append(f"{name}:{current_stamp[2]}")
        meta = _sum(data)
        if _is_present(meta, folder):
            return {"meta": meta, "files": " ".join(names)}
    return {"meta": "-", "files": ""}  # merges follow each other; the files are noted at the next publication


def complete_files(folder: str, fields: Mapping[str, str]) -> bool:
    """Whether all files are there, as long as they were.
    True also where tantivy has merged some since they were noted.
    """
    try:
        if not _is_present(fields["meta"], folder):
            return True
        for entry in fields["files"].split():
            name, _, size = entry.rpartition(":")
            current_stamp = stamp(os.path.join(folder, name))
            if current_stamp is None or current_stamp[2] != int(size):
                return not _is_present(fields["meta"], folder)
    except (OSError, KeyError, ValueError):
        return False
    return True


def keeps_to_itself(folder: str) -> bool:
    """Whether tantivy's list of its files names none elsewhere: whoever writes has it delete what stands
    there and belongs to no commit, and a list that came with an archive may name any file of the user's.
    """
    import json  # 2 ms; whoever writes has the time

    path = os.path.join(folder, _MANAGED)
    try:
        names = json.loads(files.read_file(path, most=_MAX_LIST_BYTES))
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
    import json  # 2 ms; whoever writes has the time
    import zlib

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


def vector_sizes(fields: dict[str, str]) -> dict[str, int]:
    """The files of vectors by name, and what each has at least, as their state tells it."""
    generation, rows, dim = fields["generation"], int(fields["rows"]), int(fields["dim"])
    coded_rows = rows // CODES_ROWS * CODES_ROWS
    sizes = {
        f"{generation}.vectors": 4 * rows * dim,
        f"{generation}.codes": coded_rows * (dim + 12),
        f"{generation}.rows": ROW_BYTES * rows,
        f"{generation}.patches": PATCH_BYTES * int(fields["patches"]),
    }
    if fields.get("leads", "0") != "0":
        sizes[f"{generation}.leads-{fields['leads']}"] = 4 * dim * LEAD_DIMS + coded_rows * (LEAD_DIMS + 12)
    return sizes


def keyword_state(path: str) -> dict[str, str] | None:
    """As `read_state`. One that names a folder which is none of ours is damaged: whoever opens that would
    write in it.
    """
    fields = read_state(path)
    if not fields:
        return fields
    number, applied = fields.get("folder", "").removeprefix("keyword-"), fields.get("applied", "")
    sound = number.isdecimal() and fields["folder"] == f"keyword-{number}"
    return fields if sound and applied.isdecimal() and "history" in fields else {}


def check_reachable(folder: str, beneath: str) -> None:
    try:
        files.check_folder(folder, beneath=beneath)
    except FileNotFoundError:
        pass  # a writer has gone on to another, or it is damaged: the next look tells
    except OSError as error:
        raise StoreError(f"the keyword index cannot be read: {error.strerror}") from error
