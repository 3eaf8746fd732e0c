"""Stand-ins for what is dear to import or to make, under the names everybody knows: `typing`'s, and
`re.compile`.

`ctx search` is a whole process of thirty milliseconds. `typing` would be five of them, thirty named tuples
five more, `re` with twenty patterns seven (docs/decisions/0001-cold-start.md). A type checker sees the
originals; a module on that path imports these.
"""

TYPE_CHECKING = False  # true to a type checker, which knows it by this name

if TYPE_CHECKING:
    from collections.abc import Iterable
    from re import compile as compile_pattern
    from threading import Lock as Lock
    from threading import RLock as RLock
    from typing import Any as Any
    from typing import Generic as Generic
    from typing import NamedTuple as NamedTuple
    from typing import Protocol as Protocol
    from typing import Self as Self
    from typing import TypeVar as TypeVar
    from typing import dataclass_transform as dataclass_transform

    Row = TypeVar("Row")
    pattern = compile_pattern

    def records(record_type: type[Row], rows: Iterable[tuple[Any, ...]]) -> list[Row]: ...
else:
    from _thread import RLock as RLock  # `threading` gives these two under the same names, and is 1 ms more
    from _thread import allocate_lock as Lock  # noqa: F401
    from collections import _tuplegetter  # what `collections.namedtuple` makes its fields of
    from itertools import repeat

    # So many records of a class are made by hand: compiling a constructor costs what that does for a hundred
    # of them (0.2 million instructions), and of most classes a command makes fewer.
    _BY_HAND = 100

    Any = object
    Self = object

    class Generic:
        """A class with a type left open; nothing at run time."""

        def __class_getitem__(cls, _):
            return cls

    def TypeVar(name, **_):
        """A type left open; nothing at run time."""
        return name

    class Protocol:
        """A shape; nothing at run time."""

        __slots__ = ()

    def dataclass_transform(**_):
        """Tells type checkers of a class; nothing at run time."""
        return lambda made: made

    class _RecordType(type):
        """Makes a class with annotations a tuple with those fields: 20 microseconds, where `typing` generates
        and compiles code for 250.
        """

        def __new__(mcls, name, bases, body):
            body["__slots__"] = ()
            record_type = super().__new__(mcls, name, bases, body)
            # NamedTuple itself, or a class that adds methods to a finished one.
            if bases == (tuple,) or record_type._fields:
                return record_type
            fields = tuple(record_type.__annotations__)
            record_type._fields = record_type.__match_args__ = fields
            record_type._field_defaults = {field: body[field] for field in fields if field in body}
            record_type._by_hand = [_BY_HAND]
            for index, field in enumerate(fields):
                setattr(record_type, field, _tuplegetter(index, None))
            return record_type

    class NamedTuple(tuple, metaclass=_RecordType):
        """What `typing.NamedTuple` does for a class that is written out (a test holds the two equal)."""

        _fields = ()

        def __new__(cls, *values, **named):
            cls._by_hand[0] -= 1
            if cls._by_hand[0] >= 0:
                if not named and len(values) == len(cls._fields):
                    return tuple.__new__(cls, values)
                arguments = {**dict(zip(cls._fields, values)), **named}  # noqa: B905 - a longer one is refused below
                values_by_name = {**cls._field_defaults, **arguments}
                if len(arguments) == len(values) + len(named) and len(values_by_name) == len(cls._fields):
                    try:
                        return tuple.__new__(cls, map(values_by_name.__getitem__, cls._fields))
                    except KeyError:
                        pass  # one lacks and another is unknown: the generated code says which
            fields = ", ".join(cls._fields)
            source = f"lambda _cls, {fields}: _made(_cls, ({fields},))"  # as `collections.namedtuple` does it
            make = eval(source, {"_made": tuple.__new__})  # noqa: S307 - the names are those of a class body
            make.__defaults__ = tuple(cls._field_defaults.values())
            cls.__new__ = make
            return cls(*values, **named)

        @classmethod
        def _make(cls, values):
            record = tuple.__new__(cls, values)
            if len(record) != len(cls._fields):
                raise TypeError(f"{cls.__name__} has {len(cls._fields)} fields, got {len(record)} values")
            return record

        def _replace(self, /, **changes):
            record = self._make(map(changes.pop, self._fields, self))
            if changes:
                raise TypeError(f"{type(self).__name__} has no field {', '.join(changes)}")
            return record

        __replace__ = _replace

        def _asdict(self):
            return dict(zip(self._fields, self, strict=True))

        def __repr__(self):
            return (
                f"{type(self).__name__}("
                f"{', '.join(f'{name}={value!r}' for name, value in self._asdict().items())})"
            )

        def __getnewargs__(self):
            return tuple(self)

    def records(record_type, rows):
        """A record of each row, which has a value for every field: a quarter of the time that calling the
        class takes.
        """
        return list(map(tuple.__new__, repeat(record_type), rows))

    class pattern:
        """A compiled pattern that is compiled, and `re` imported, when it is first used; its methods are then
        the pattern's own.
        """

        def __init__(self, source, flags=0):
            self._source = source, flags

        def __getattr__(self, name):
            import re  # 3 ms with `enum`, and a plain search comes by without a pattern

            method = getattr(re.compile(*self._source), name)
            self.__dict__[name] = method
            return method
