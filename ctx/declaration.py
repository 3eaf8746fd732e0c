"""How a key of `ctx.toml` is declared: its rule, what is wrong with a value by it, and the sections that are
made of such (ctx/settings.py and ctx/named_settings.py declare them all).
"""

from collections.abc import Callable, Mapping
from typing import Any, Self, dataclass_transform

from ctx.types import JSON


class Key:
    """One key's rule. `kind` is str | int | float | bool | strs | glob | path, of which strs and glob are
    lists; `low` and `high` are within its range.

    `name` is the key in the file, where that is not the attribute's. `shown` is what the example shows for a
    key whose default says nothing, `unset` what the reference says of one that has no default. `harmless`: it
    gives nobody anything but the project's own files and remotes, so that a configuration which was merely
    found may set it unasked (ctx/reach.py).
    """

    __slots__ = (
        "choices",
        "default",
        "harmless",
        "high",
        "kind",
        "low",
        "name",
        "note",
        "required",
        "settled",
        "shown",
        "unset",
    )

    def __init__(
        self,
        kind: str,
        default: JSON = None,
        note: str = "",
        *,
        low: float | None = None,
        high: float | None = None,
        choices: tuple[str, ...] = (),
        required: bool = False,
        name: str = "",
        shown: JSON = None,
        unset: str = "none",
        harmless: bool = False,
    ) -> None:
        self.kind = kind
        self.default = default
        self.note = note
        self.low = low
        self.high = high
        self.choices = choices
        self.required = required
        self.name = name
        self.shown = shown
        self.unset = unset
        self.harmless = harmless
        # Whether its default is a value as it stands: no path, no list, no whole number for one with a
        # fraction.
        self.settled = not required and (default is None or kind in ("str", "bool", "int"))


key: Any = Key
"""A field of a section, for a type checker; at run time its `Key`."""


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(key,))
class Section:
    """Values by name, fixed once made. `keys` are its rules by the names that the file uses.

    Not a named tuple: making thirty such classes takes ten milliseconds, a quarter of `ctx search`.
    """

    keys = {}  # type: ignore[var-annotated]  # noqa: RUF012 - a field to a type checker, were it annotated

    def __init_subclass__(cls) -> None:
        rules = {**cls.keys}
        for attribute, rule in vars(cls).items():
            if type(rule) is Key:
                rule.name = rule.name or attribute
                rules[rule.name] = attribute, rule
        cls.keys = rules

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is fixed; make another with replaced({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash(tuple((name, repr(value)) for name, value in self.__dict__.items()))

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.__dict__.items())
        return f"{type(self).__name__}({values})"

    def replaced(self, **changes: Any) -> Self:
        """The same values but for these."""
        return type(self)(**{**self.__dict__, **changes})


# No path, name or address has one, and the system refuses it with a ValueError.
_NUL = "must not hold a NUL character"


def _text_problem(value: JSON, rule: Key) -> str | None:
    if not isinstance(value, str):
        return f"must be a string, got {kind_of(value)}"
    if not value and rule.kind == "path":
        return "must not be empty"
    if rule.choices and value not in rule.choices:
        return f"must be one of {', '.join(rule.choices)}, got '{value}'"
    return _NUL if "\0" in value else None


def _texts_problem(value: JSON, rule: Key) -> str | None:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        if not value and rule.default is None:
            return "is empty, so nothing would be read; name something, or leave it out for the default"
        return _NUL if any("\0" in entry for entry in value) else None
    return f"must be a list of strings, got {kind_of(value)}"


def _globs_problem(value: JSON, rule: Key) -> str | None:
    """What would rule out nothing though its author relies on it, beside what is wrong with any list."""
    for text in value if isinstance(value, list) else ():
        if isinstance(text, str) and (text.startswith(("!", "../", "~/")) or not text.strip()):
            return f"'{text}' is no path below the source's root; what not to read stands in exclude_globs"
    return _texts_problem(value, rule)


def _flag_problem(value: JSON, rule: Key) -> str | None:
    return None if isinstance(value, bool) else f"must be true or false, got {kind_of(value)}"


def _number_problem(value: JSON, rule: Key) -> str | None:
    whole = rule.kind == "int"
    if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
        return f"must be {'a whole number' if whole else 'a number'}, got {kind_of(value)}"
    return None if _is_within(value, rule) else f"must be between {rule.low:g} and {rule.high:g}, got {value}"


def _is_within(value: float, rule: Key) -> bool:
    # Not `value < low`: that lets NaN through.
    return (rule.low is None or value >= rule.low) and (rule.high is None or value <= rule.high)


CHECKS: Mapping[str, Callable[[JSON, Key], str | None]] = {
    "str": _text_problem,
    "path": _text_problem,
    "strs": _texts_problem,
    "glob": _globs_problem,
    "bool": _flag_problem,
    "int": _number_problem,
    "float": _number_problem,
}
"""What is wrong with a value, by the kind of its key; None where it is sound."""

_KINDS = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "a list",
    dict: "a table",
}


def kind_of(value: JSON) -> str:
    """What TOML calls a value, and the value itself where that is short."""
    name = _KINDS.get(type(value), "a date")
    return f"{name} ({value!r})" if isinstance(value, int | float | str) and len(repr(value)) < 60 else name
