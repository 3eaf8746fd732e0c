"""Calls that may come twice: the second has the reply of the first."""

import hashlib
import json
from typing import NamedTuple

from ctx.errors import BadRequest, Conflict
from ctx.memory.columns import short_text
from ctx.memory.reader import Reader
from ctx.memory.writer import Writer
from ctx.models import JSON

MAX_KEY_CHARS = 200


class Request(NamedTuple):
    """A call that may be repeated: the caller's idempotency key and a digest of the request."""

    key: str | None
    digest: str

    @classmethod
    def of(cls, key: JSON, op: str, arguments: dict[str, JSON]) -> "Request":
        """Raises `BadRequest`."""
        try:
            content = json.dumps([op, arguments], sort_keys=True, default=str)
        except (TypeError, ValueError):
            raise BadRequest(f"{op}: the arguments are not JSON") from None
        digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
        return cls(given_name("idempotency_key", key), digest)

    def answered(self, reader: Reader) -> JSON | None:
        """The reply of the first call, with `repeated`; None if this is the first call. Raises `Conflict` if
        the key was used for another request, or if the first call's memory was erased.
        """
        kept_reply = reader.reply(self.key) if self.key is not None else None
        if kept_reply is None:
            return None
        if kept_reply[1] is None:
            raise Conflict("the memory stored with this idempotency key was erased; choose a new key")
        if kept_reply[0] != self.digest:
            raise Conflict("the idempotency key was used for another request; choose a new key")
        return {**kept_reply[1], "repeated": True}

    def keep(self, writer: Writer, reply: JSON) -> None:
        if self.key is not None:
            writer.keep_reply(self.key, self.digest, reply)


def given_name(name: str, value: JSON) -> str | None:
    """A name that a caller gives. Raises `BadRequest`."""
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS):
        raise BadRequest(f"{name}: must be a text of 1 to {MAX_KEY_CHARS} characters")
    return short_text(name, value)
