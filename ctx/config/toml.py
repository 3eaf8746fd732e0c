"""Read TOML files with errors that name the file, and write values as TOML."""

import json

import tomli

from ctx.errors import ConfigError
from ctx.models import JSON

MAX_BYTES = 1_000_000  # of a file


def read_toml(path: str, shown: str) -> dict[str, JSON]:
    """The tables of a file. `shown` is its name in messages. Raises `ConfigError`."""
    return tables_in(read_text(path, shown), shown)


def read_text(path: str, shown: str) -> bytes:
    """The bytes of a file, at most `MAX_BYTES`. Raises `ConfigError`.

    The limit is for files from a clone: with a few million keys, every command would take a minute and a
    gigabyte of memory.
    """
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{shown}: cannot be read: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{shown}: is larger than {MAX_BYTES:,} bytes")
    return data


def tables_in(data: bytes, shown: str) -> dict[str, JSON]:
    """The tables of a text. `shown` is its name in messages. Raises `ConfigError`."""
    try:
        tables = tomli.loads(data.decode("utf-8-sig"))
        repr(tables)  # raises for a number with more digits than Python can print in a message
        return tables
    except UnicodeDecodeError as error:
        raise ConfigError(f"{shown}: is not UTF-8 (byte {error.start})") from error
    except tomli.TOMLDecodeError as error:
        hint = "; text must be in quotes" if str(error).startswith("Invalid value") else ""
        raise ConfigError(f"{shown}: is not TOML: {error}{hint}") from error
    except ValueError as error:
        raise ConfigError(f"{shown}: has a number of more than 4,300 digits") from error
    except RecursionError as error:
        raise ConfigError(f"{shown}: is nested too deeply") from error


def toml_value(value: JSON) -> str:
    """A value in TOML. Tables are inline."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(row)}" for key, row in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # `inf` and `nan`, which JSON does not have
    if isinstance(value, str | bool | int | float):
        # JSON and TOML strings differ in one character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    text: str = value.isoformat()
    return text


def toml_key(name: str) -> str:
    """A key in TOML, without quotes if possible."""
    bare = name.isascii() and name.replace("-", "").replace("_", "a").isalnum()
    return name if bare else toml_value(name)
