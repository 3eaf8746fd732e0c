"""Keys and values of `ctx.toml`: declares and checks keys (settings.py declares all of them), reads TOML with
errors that name the file, and writes values as TOML.
"""

import json
import re
import typing
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any

import tomli

from ctx.errors import ConfigError
from ctx.models import JSON

Strings = tuple[str, ...]
Globs = Annotated[tuple[str, ...], "glob"]
Path = Annotated[str, "path"]
Url = Annotated[str, "url"]
Urls = Annotated[str, "urls"]  # several addresses, separated by commas
REQUIRED: Any = MISSING
_TOML_KINDS = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


@dataclass(kw_only=True)
class Key:
    """The declaration of one key."""

    note: str  # the key's description in the reference
    safe: bool  # whether the key may be used without the user's trust
    within: tuple[float, float] | None = None  # the lowest and the highest valid number
    choices: tuple[str, ...] = ()
    name: str = ""  # the key's name in the file; "" if it is the same as the attribute's name
    shown: JSON = None  # the value in the example file
    unset: str = "none"  # how the reference describes the default of a key whose default is None
    # One of str, int, float, bool; strs and glob, which are lists; path, url and urls, which are strings.
    kind: str = ""
    attribute: str = ""
    default: JSON = None
    required: bool = False


def safe(default: JSON, note: str, **rule: Any) -> Any:
    """Declares a key that needs no trust, because it only affects the project's own files and remotes."""
    return field(default=default, metadata={"key": Key(note=note, safe=True, **rule)})


def guarded(default: JSON, note: str, **rule: Any) -> Any:
    """Declares a key that needs the user's trust if ctx found the configuration and the user did not name it
    (see trust.py).
    """
    return field(default=default, metadata={"key": Key(note=note, safe=False, **rule)})


_KEYS: dict[type[Any], dict[str, Key]] = {}


def keys_of(section: type[Any]) -> dict[str, Key]:
    """Name in the file -> declaration of the keys of a section, in the order of declaration."""
    if section not in _KEYS:
        declared = [(entry, entry.metadata["key"]) for entry in fields(section) if "key" in entry.metadata]
        _KEYS[section] = {
            key.name or entry.name: replace(
                key,
                name=key.name or entry.name,
                attribute=entry.name,
                kind=_kind(entry.type),
                default=None if entry.default is MISSING else entry.default,
                required=entry.default is MISSING,
            )
            for entry, key in declared
        }
    return _KEYS[section]


def _kind(annotation: Any) -> str:
    """The kind of a key, from its type annotation: `path` for `Path | None`."""
    if type(None) in typing.get_args(annotation):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is Annotated:
        return str(annotation.__metadata__[0])
    return "strs" if annotation == Strings else str(annotation.__name__)


def problem_with(value: JSON, rule: Key) -> str | None:
    """A phrase that says what is wrong with a value, such as "must not be empty"; None if it is valid."""
    match rule.kind:
        case "bool":
            return None if isinstance(value, bool) else f"must be true or false, got {kind_of(value)}"
        case "int" | "float":
            return _problem_with_number(value, rule)
        case "strs" | "glob":
            return _problem_with_list(value, rule)
    if not isinstance(value, str):
        return f"must be a string, got {kind_of(value)}"
    if not value and rule.kind == "path":
        return "must not be empty"
    if rule.choices and value not in rule.choices:
        return f"must be one of {', '.join(rule.choices)}, got '{value}'"
    return _NUL if "\0" in value else None


_NUL = "must not contain a NUL character"  # Python raises a ValueError for a path with this character


def _problem_with_list(value: JSON, rule: Key) -> str | None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return f"must be a list of strings, got {kind_of(value)}"
    if not value and rule.default is None:
        return "is empty, so nothing would be read; add an entry, or delete the key to use the default"
    for text in value if rule.kind == "glob" else ():
        if text.startswith(("!", "../", "~/")) or not text.strip():
            return f"'{text}' is not a path below the source's root; use exclude_globs to leave files out"
    return _NUL if any("\0" in text for text in value) else None


def _problem_with_number(value: JSON, rule: Key) -> str | None:
    whole = rule.kind == "int"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"must be {'a whole number' if whole else 'a number'}, got {kind_of(value)}"
    low, high = rule.within or (float("-inf"), float("inf"))
    return None if low <= value <= high else f"must be between {low:g} and {high:g}, got {value}"


def kind_of(value: JSON) -> str:
    """The name of a value's TOML type, with the value if it is short: `a string ('x')`."""
    name = _TOML_KINDS.get(type(value), "a date")
    return f"{name} ({value!r})" if isinstance(value, int | float | str) and len(repr(value)) < 60 else name


# -- text ----------------------------------------------------------------------------------------------------

MAX_BYTES = 1_000_000  # maximum size of a TOML file


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
        repr(tables)  # raises a ValueError for a number with more digits than Python can print in a message
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


_NAME = r"""(?:[\w-]+|"[^"\n]*"|'[^'\n]*')"""
_DOTTED = rf"{_NAME}(?:[ \t]*\.[ \t]*{_NAME})*"
_STRING_OR_COMMENT = re.compile(
    r'"""(?:\\.|[^\\])*?"""|"(?:\\.|[^"\\\n])*"|' + r"'''.*?'''|'[^'\n]*'|#[^\n]*", re.DOTALL
)
_LINE = re.compile(rf"[ \t]*(?:\[\[?[ \t]*({_DOTTED})[ \t]*\]|({_DOTTED})[ \t]*=)")


def key_lines(text: str) -> dict[str, int]:
    """Dotted name -> line number (from 1) of each table and key in a TOML text. Keys inside inline tables are
    not included.
    """
    # Blank out multi-line strings and comments, which may look like keys. A one-line string may be a key.
    blanked = _STRING_OR_COMMENT.sub(
        lambda match: "\n" * match[0].count("\n") if match[0].startswith(('"""', "'''", "#")) else match[0],
        text,
    )
    lines: dict[str, int] = {}
    header = ""
    for number, line in enumerate(blanked.split("\n"), 1):
        if match := _LINE.match(line):
            name = ".".join(part.strip("\"'") for part in re.findall(_NAME, match[1] or match[2]))
            if match[1]:
                header = name
            else:
                name = f"{header}.{name}" if header else name
            lines.setdefault(name, number)
    return lines
