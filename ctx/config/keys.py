"""How a key of `ctx.toml` is declared (settings.py declares them all), and the rule that follows from it."""

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


@dataclass(frozen=True, kw_only=True)
class Key:
    """The rule of one key.

    `kind` is str, int, float, bool, strs or glob (lists of strings), path, url or urls (strings). `shown` is
    the example's value where the default says nothing, `unset` the reference's word for a key without a
    default.
    """

    note: str
    safe: bool
    within: tuple[float, float] | None = None
    choices: tuple[str, ...] = ()
    name: str = ""  # in the file, where the attribute has another
    shown: JSON = None
    unset: str = "none"
    kind: str = ""
    attribute: str = ""
    default: JSON = None
    required: bool = False


def safe(default: JSON, note: str, **rule: Any) -> Any:
    """A key that a found configuration may set without being trusted: it reaches nothing but the
    project's own files and remotes.
    """
    return field(default=default, metadata={"key": Key(note=note, safe=True, **rule)})


def guarded(default: JSON, note: str, **rule: Any) -> Any:
    """A key that a found configuration may set only once the user trusts it (trust.py has the question)."""
    return field(default=default, metadata={"key": Key(note=note, safe=False, **rule)})


_KEYS: dict[type[Any], dict[str, Key]] = {}


def keys_of(section: type[Any]) -> dict[str, Key]:
    """The keys of a section by the names that the file uses, in their order."""
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
    """The kind of key that an annotation stands for: `Path | None` is a path."""
    if type(None) in typing.get_args(annotation):
        annotation = typing.get_args(annotation)[0]
    if typing.get_origin(annotation) is Annotated:
        return str(annotation.__metadata__[0])
    return "strs" if annotation == Strings else str(annotation.__name__)


def problem_with(value: JSON, rule: Key) -> str | None:
    """What is wrong with a value; None where it is valid."""
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
    # No path, name or address has one, and the system refuses it with a ValueError.
    return "must not hold a NUL character" if any("\0" in text for text in texts) else None


def _check_list(value: JSON, rule: Key) -> str | None:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
        return f"must be a list of strings, got {kind_of(value)}"
    if not value and rule.default is None:
        return "is empty, so nothing would be read; name something, or leave it out for the default"
    if rule.kind == "glob":
        for text in value:
            if text.startswith(("!", "../", "~/")) or not text.strip():
                return (
                    f"'{text}' is no path below the source's root; what not to read stands in exclude_globs"
                )
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
    """What TOML calls a value, with the value itself where it is short."""
    name = _TOML_KINDS.get(type(value), "a date")
    return f"{name} ({value!r})" if isinstance(value, int | float | str) and len(repr(value)) < 60 else name
