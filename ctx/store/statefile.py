"""A small file of `key value` lines that is whole or absent: what a projection says of itself; and what the
state of the words, and of the vectors, says of their files.

It is replaced at once (a new file is synced, then renamed over the old one) and ends with a checksum, so that
a damaged one is told from a good one.
"""

import os
from collections.abc import Mapping

from ctx import files
from ctx.errors import StoreError
from ctx.file_writing import replace

_HEAD = "ctx-state 1"
DAMAGED = "the keyword index is damaged: run `ctx index`, which builds it anew"
# Of the fields and the analysis in tantivy.py; an index of another format is built anew.
KEYWORD_FORMAT = 7
# Of vectors.py and lanes.py. None of these three is imported to see that nothing has changed.
VECTORS_FORMAT, ROW_BYTES, PATCH_BYTES, CODES_ROWS, LEAD_DIMS = 3, 28, 16, 8192, 96
MAX_LIST_BYTES = 16 << 20  # of a list of tantivy's: the names of some hundred thousand files
OPEN_TRIES = 5  # what a state names may be deleted between reading that and opening it

Stamp = tuple[int, int, int]
"""What changes when a file is replaced: inode, time of change (ns), size."""


def stamp(path: str) -> Stamp | None:
    """The stamp of a file, a microsecond; None where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return (status.st_ino, status.st_mtime_ns, status.st_size)


def read_state(path: str) -> dict[str, str] | None:
    """The fields of a state file. None where there is none; {} where it is damaged or of another kind."""
    try:
        data = files.read_file(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreError(f"the index cannot be read: {error.strerror} (check its folder)") from error
    body, _, last = data.rstrip(b"\n").rpartition(b"\n")
    if last != b"sum %08x" % files.checksum(body):
        return {}
    lines = body.decode("utf-8").split("\n")
    if lines[0] != _HEAD:
        return {}
    return dict(line.partition(" ")[::2] for line in lines[1:])


def write_state(path: str, fields: Mapping[str, str | int]) -> None:
    """Replaces a state file, durably. Values hold no line breaks. Raises `OSError`."""
    lines = [_HEAD, *(f"{key} {value}" for key, value in fields.items())]
    body = "\n".join(lines).encode("utf-8")
    replace(path, body + b"\nsum %08x\n" % files.checksum(body))


# -- the state of the words ----------------------------------------------------------------------------------


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


def has_definitions(fields: Mapping[str, str]) -> bool:
    """Whether some code may define a name in the index of this state. An older ctx did not note it."""
    return fields.get("definitions") != "0"


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


def meta_of(folder: str) -> bytes:
    """What tantivy says of its commit; no more of it than it may be, and over no link. Raises `OSError`."""
    return files.read_file(os.path.join(folder, "meta.json"), most=MAX_LIST_BYTES)


def meta_sum(meta: bytes) -> str:
    """What tells one commit (or merge) of tantivy's from another."""
    return f"{files.checksum(meta):08x}"


def is_present(meta: str, folder: str) -> bool:
    """Whether the commit (or merge) of tantivy's that was noted as `meta` is the present one. Raises
    `OSError`.
    """
    return meta == meta_sum(meta_of(folder))


def complete_files(folder: str, fields: Mapping[str, str]) -> bool:
    """Whether all files are there, as long as they were.
    True also where tantivy has merged some since they were noted.
    """
    try:
        if not is_present(fields["meta"], folder):
            return True
        for entry in fields["files"].split():
            name, _, size = entry.rpartition(":")
            current_stamp = stamp(os.path.join(folder, name))
            if current_stamp is None or current_stamp[2] != int(size):
                return not is_present(fields["meta"], folder)
    except (OSError, KeyError, ValueError):
        return False
    return True


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
