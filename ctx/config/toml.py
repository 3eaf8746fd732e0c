"""Reads TOML files, with errors that name the file, and writes values as TOML."""

import json

import tomli

from ctx.errors import ConfigError
from ctx.models import JSON

MAX_BYTES = 1_000_000  # the largest TOML file


def read_toml(path: str, shown: str) -> dict[str, JSON]:
    """The tables in a TOML file. `shown` is the file's name in messages. Raises `ConfigError`."""
    return tables_in(read_text(path, shown), shown)


def read_text(path: str, shown: str) -> bytes:
    """The bytes of a file. Raises `ConfigError` if the file cannot be read or is larger than `MAX_BYTES`.

    The limit protects against files in cloned repositories: a file with a few million keys would cost every
    command a minute and a gigabyte of memory.
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
    """The tables in a TOML text. `shown` is the file's name in messages. Raises `ConfigError`."""
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
    """A value written as TOML. Tables become inline tables."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{toml_key(key)} = {toml_value(row)}" for key, row in value.items()) + " }"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return str(value)  # `inf` and `nan`, which JSON does not have
    if isinstance(value, str | bool | int | float):
        # JSON strings are valid TOML strings, except for the DEL character.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    text: str = value.isoformat()
    return text


def toml_key(name: str) -> str:
    """A key written as TOML, without quotes if possible."""
    bare = name.isascii() and name.replace("-", "").replace("_", "a").isalnum()
    return name if bare else toml_value(name)
