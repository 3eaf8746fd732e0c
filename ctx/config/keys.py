"""Declares a key of `ctx.toml`, and checks a value against its declaration. settings.py declares all keys."""

import typing
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import Annotated, Any

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

    note: str  # its description in the reference
    safe: bool  # whether it needs no trust
    within: tuple[float, float] | None = None  # the lowest and the highest valid number
    choices: tuple[str, ...] = ()
    name: str = ""  # the name in the file; "" if it is the name of the attribute
    shown: JSON = None  # the value in the example file
    unset: str = "none"  # how the reference describes the default of a key whose default is None
    kind: str = ""  # str, int, float, bool; strs and glob are lists; path, url and urls are strings
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
    return _CHECKS[rule.kind](value, rule)


def _check_text(value: JSON, rule: Key) -> str | None:
    if not isinstance(value, str):
        return f"must be a string, got {kind_of(value)}"
    if not value and rule.kind == "path":
        return "must not be empty"
    if rule.choices and value not in rule.choices:
        return f"must be one of {', '.join(rule.choices)}, got '{value}'"
    return _check_nul(value)


def _check_nul(*texts: str) -> str | None:
    # Python raises a ValueError for a path with a NUL character.
    return "must not contain a NUL character" if any("\0" in text for text in texts) else None


def _check_list(value: JSON, rule: Key) -> str | None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return f"must be a list of strings, got {kind_of(value)}"
    if not value and rule.default is None:
        return "is empty, so nothing would be read; add an entry, or delete the key to use the default"
    if rule.kind == "glob":
        for text in value:
            if text.startswith(("!", "../", "~/")) or not text.strip():
                return f"'{text}' is not a path below the source's root; use exclude_globs to leave files out"
    return _check_nul(*value)


def _check_flag(value: JSON, rule: Key) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, got {kind_of(value)}"


def _check_number(value: JSON, rule: Key) -> str | None:
    whole = rule.kind == "int"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"must be {'a whole number' if whole else 'a number'}, got {kind_of(value)}"
    low, high = rule.within or (float("-inf"), float("inf"))
    return None if low <= value <= high else f"must be between {low:g} and {high:g}, got {value}"


_CHECKS: Mapping[str, Callable[[JSON, Key], str | None]] = {
    **dict.fromkeys(("str", "path", "url", "urls"), _check_text),
    **dict.fromkeys(("strs", "glob"), _check_list),
    **dict.fromkeys(("int", "float"), _check_number),
    "bool": _check_flag,
}


def kind_of(value: JSON) -> str:
    """The name of a value's TOML type, with the value if it is short: `a string ('x')`."""
    name = _TOML_KINDS.get(type(value), "a date")
    return f"{name} ({value!r})" if isinstance(value, int | float | str) and len(repr(value)) < 60 else name
