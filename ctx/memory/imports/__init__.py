"""Readers for the memories of other products, one module for each format."""

from typing import NamedTuple

from ctx.models import JSON


class Source(NamedTuple):
    """The data to import: a file (path and content), a folder (path), or a pipe (content)."""

    path: str | None
    content: bytes
    user: str | None = None  # imports only the memories of this user


class Item(NamedTuple):
    """One memory: its position in the source, the product's id, and the fields for `put`.

    With `messages` it is a conversation, and `fields` are those of its container. `replaces` has the
    product's ids of the memories that it replaced.
    """

    where: str
    key: str
    fields: dict[str, JSON]
    messages: tuple[JSON, ...] = ()
    replaces: tuple[str, ...] = ()


class Unread(NamedTuple):
    """The position of an entry that could not be read, and the reason."""

    where: str
    reason: str


def present(fields: dict[str, JSON]) -> dict[str, JSON]:
    """The fields that have a value."""
    return {name: value for name, value in fields.items() if value not in (None, "", [], {})}
