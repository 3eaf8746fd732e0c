"""How a key of `ctx.toml` is declared: its rule, and the sections that are made of such (ctx/settings.py
declares them all).
"""

from ctx.lean import Any, Self, dataclass_transform
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
