"""What a reader of another product's memories takes and gives."""

from typing import NamedTuple

from ctx.models import JSON


class Source(NamedTuple):
    """What is read: a path with its content, a folder (which has none), or what came through a pipe (without
    a path)."""

    path: str | None
    content: bytes
    user: str | None = None  # whose memories, where there are several people's


class Item(NamedTuple):
    """One memory: its position in the source, the product's id, and the fields of `put`.

    With `messages` it is a conversation, and the fields are its container's. `replaces` names the memories it
    replaced.
    """

    where: str
    key: str
    fields: dict[str, JSON]
    messages: tuple[JSON, ...] = ()
    replaces: tuple[str, ...] = ()


class Unread(NamedTuple):
    """What could not be read, and why."""

    where: str
    reason: str


def present(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
