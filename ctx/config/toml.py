"""TOML files: read with messages that name the file, and values written as TOML."""

import json

import tomli

from ctx.errors import ConfigError
from ctx.models import JSON

MAX_BYTES = 1_000_000  # of a file; those that people write are a hundredth of that


def read_toml(path: str, shown: str) -> dict[str, JSON]:
    """The tables of a file, called `shown` in messages. Raises `ConfigError`."""
    return tables_in(read_text(path, shown), shown)


def read_text(path: str, shown: str) -> bytes:
    """The bytes of a file, called `shown` in messages. Raises `ConfigError`.

    The limit is for files from a clone: a few million keys would take every command a minute and a gigabyte,
    to name what is wrong with each.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown}: is larger than {MAX_BYTES:,} bytes, the most that is read")
    return data


def tables_in(data: bytes, shown: str) -> dict[str, JSON]:
    """The tables of a text, called `shown` in messages. Raises `ConfigError`."""
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
        return str(value)  # `inf` and `nan`, which JSON does not have
    if isinstance(value, str | bool | int | float):
        # A JSON string is a TOML string, except for one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    text: str = value.isoformat()
    return text


def toml_key(name: str) -> str:
    """A key as TOML writes it: without quotes where possible."""
    bare = name.isascii() and name.replace("-", "").replace("_", "a").isalnum()
    return name if bare else toml_value(name)
