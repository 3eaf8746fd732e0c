"""What a pack's script has besides the Lua API: `context.memory`, `bank`, `session` and `health` of one call.

A call that fails takes back what it wrote.
"""

import logging
import threading
from collections.abc import Callable

from ctx.errors import BadRequest, CtxError, ToolError
from ctx.memory import MemoryBank, call
from ctx.memory.ops import OPS
from ctx.packs.sessions import Sessions
from ctx.types import JSON

logger = logging.getLogger(__name__)


class CallContext:
    """One call's memory, session and health; `snapshot(session)` gives the facts of the last."""

    def __init__(
        self,
        pack: str,
        bank: MemoryBank,
        session: str,
        sessions: Sessions,
        snapshot: Callable[[str], dict[str, JSON]],
    ) -> None:
        self._pack = pack
        self._bank = bank
        self._session = session
        self._sessions = sessions
        self._snapshot = snapshot
        self._writing = threading.Lock()
        # operations in order, and the memories that each made
        self._written: list[tuple[str, list[str]]] = []
        self._ended = False

    def answer(self, operation: str, arguments: JSON) -> JSON:
        room, _, name = operation.partition(".")
        values = arguments if isinstance(arguments, list) else []
        if room == "memory":
            return self._memory(name, values)
        if room == "bank":
            return call(self._bank, name, {})
        if operation == "health":
            return self._snapshot(self._session)
        return self._of_session(operation, values)

    def _of_session(self, operation: str, values: list[JSON]) -> JSON:
        if operation == "session.count":
            return call(self._bank, "count", {"filter": {"session": self._session}})
        key = str(values[0] if values else "")
        if operation == "session.kv.get":
            return self._sessions.get(self._session, key)
        if operation == "session.kv.set":
            self._sessions.set(self._session, key, values[1] if len(values) > 1 else None)
            return None
        raise ToolError(f"{operation} is not available to this script")

    def _memory(self, name: str, values: list[JSON]) -> JSON:
        named = _by_name(name, values)
        if name not in OPS or not OPS[name].writes:
            return call(self._bank, name, named)
        with self._writing:
            if self._ended:  # the deadline passed while this was on its way
                raise ToolError("the call has ended")
            reply = call(self._bank, name, named)
            # What answers a request that came before was written by another call.
            if isinstance(reply, dict) and isinstance(reply.get("op_id"), str) and not reply.get("repeated"):
                self._written.append((reply["op_id"], _made(reply)))
            return reply

    def take_back(self) -> None:
        """Ends the call as if it had written nothing: waits for a write under way, undoes what was written,
        refuses what comes late.
        """
        with self._writing:
            self._ended = True
            if not self._written:
                return
            made = [id for _, ids in self._written for id in ids]
            try:
                self._bank.take_back([operation for operation, _ in self._written], made)
            except CtxError as error:
                logger.warning(
                    "pack=%s undo=failed operations=%d reason=%s",
                    self._pack,
                    len(self._written),
                    error.message,
                )


def _made(reply: dict[str, JSON]) -> list[str]:
    """The memories that a `put` or a `put_many` made."""
    if not reply.get("created"):
        return []
    return [id for id in (reply.get("id"), *reply.get("ids", ())) if id]


def _by_name(name: str, values: list[JSON]) -> JSON:
    """Lua's positional arguments by name: what the operation requires comes first, a table of options
    last.
    """
    spec = OPS.get(name)
    if spec is None:
        return {}  # `call` says that it is unknown
    required = spec.required
    if len(values) == 1 and isinstance(values[0], dict) and (not required or required[0] in values[0]):
        return values[0]
    options = values[len(required) :] or [None]
    if len(options) > 1 or not isinstance(options[0], dict | None):
        raise BadRequest(f"memory.{name}: takes {', '.join(required) or 'nothing'} and a table of options")
    return dict(zip(required, values, strict=False)) | (options[0] or {})
