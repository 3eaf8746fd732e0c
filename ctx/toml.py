"""A TOML file as its tables, remembered, so that reading the same file again needs no parser.

Importing `tomli` takes 3 ms of CPU, a tenth of `ctx search`. What is remembered stands beside the very bytes
that it was read from and counts only for the same bytes, so it cannot be out of date. It is in the user's own
cache, where no project can lay it, and is left out of account unless it is the user's alone. Commands that
write remember; those that only read do not.
"""

import marshal
import os
import sys
from collections.abc import Mapping

from ctx import files
from ctx.errors import ConfigError
from ctx.types import JSON

_KIND = f"ctx-toml 2 {sys.implementation.cache_tag}\n".encode()  # another Python may marshal otherwise
_SUM_BYTES = 8
MAX_BYTES = 1_000_000  # of a file; those that people write are a hundredth of that


def read_toml(
    path: str, shown: str, environ: Mapping[str, str], *, remember: bool = False
) -> dict[str, JSON]:
    """The tables of a file, called `shown` in messages. Raises `ConfigError`."""
    return tables_of(read_text(path, shown), path, shown, environ, remember=remember)


def read_text(path: str, shown: str) -> bytes:
    """The bytes of a file, called `shown` in messages. Raises `ConfigError`.

    A few million keys that a clone brings would take every command a minute and a gigabyte, to name what is
    wrong with each.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown}: is larger than {MAX_BYTES:,} bytes; none is read that is")
    return data


def tables_of(
    data: bytes, path: str, shown: str, environ: Mapping[str, str], *, remember: bool = False
) -> dict[str, JSON]:
    """The tables of these bytes, which were read from `path`. Raises `ConfigError`."""
    slot = files.cache_slot("toml", path, environ)
    remembered = None if slot is None else _remembered(slot, data)
    if remembered is not None:
        return remembered
    tables = tables_in(data, shown)
    if remember and slot is not None:
        _remember(slot, data, tables)
    return tables


def tables_in(data: bytes, shown: str) -> dict[str, JSON]:
    """The tables of a text, called `shown` in messages. Raises `ConfigError`."""
    import tomli  # 3 ms, see above

    try:
        tables = tomli.loads(data.decode("utf-8-sig"))
        repr(tables)  # no message could name a hexadecimal number of more digits than Python writes
        return tables
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: is not UTF-8 (byte {error.start})") from error
    except tomli.TOMLDecodeError as error:
        hint = "; text stands in quotes" if str(error).startswith("Invalid value") else ""
        raise ConfigError(f"{shown}: is not TOML: {error}{hint}") from error
    except ValueError as error:
        raise ConfigError(f"{shown}: holds a number of more than 4,300 digits") from error
    except RecursionError as error:
        raise ConfigError(f"{shown}: is nested too deeply") from error


def toml_value(value: JSON) -> str:
    """A value as TOML writes it: tables inline, dates as they are."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(row)}" for key, row in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # `inf` and `nan`, which JSON has not
    if isinstance(value, str | bool | int | float):
        import json  # 3 ms, and `ctx search` writes no TOML

        # A JSON string is a TOML string but for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    text: str = value.isoformat()
    return text


def toml_key(name: str) -> str:
    """A key as TOML writes it: bare where it may be."""
    return (
        name
        if name and all(char.isascii() and (char.isalnum() or char in "_-") for char in name)
        else toml_value(name)
    )


def _remembered(slot: str, data: bytes) -> dict[str, JSON] | None:
    content = files.read_private(slot, 2 * MAX_BYTES)
    if content is None:
        return None
    record, checksum = content[:-_SUM_BYTES], content[-_SUM_BYTES:]
    if not record.startswith(_KIND) or _sum(record) != checksum:
        return None  # of another version, or cut short
    source, tables = marshal.loads(record[len(_KIND) :])  # noqa: S302 - only the user can have written it, as with a .pyc
    return tables if source == data else None


def _sum(record: bytes) -> bytes:
    return files.checksum(record).to_bytes(_SUM_BYTES, "big")


def _remember(slot: str, data: bytes, tables: dict[str, JSON]) -> None:
    from ctx import file_writing  # what reads does without

    try:
        record = _KIND + marshal.dumps((data, tables))
    except ValueError:
        return  # a date, which marshal does not know
    if len(record) > 2 * MAX_BYTES - _SUM_BYTES:
        return
    try:
        files.make_folder(os.path.dirname(slot))
        file_writing.replace(slot, record + _sum(record))
    except OSError:
        # A home that cannot be written (a container, a full disk) costs the three milliseconds and nothing
        # else.
        pass
