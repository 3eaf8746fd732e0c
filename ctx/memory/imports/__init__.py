"""Readers for the memories of other products, one module for each format."""

from typing import NamedTuple

from ctx.models import JSON


class Source(NamedTuple):
    """A source to read: a file with its path, a folder (without content), or a pipe (without a path)."""

    path: str | None
    content: bytes
    user: str | None = None  # whose memories to read, if there are several people's


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
    """An entry that could not be read, and why."""

    where: str
    reason: str


def present(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
