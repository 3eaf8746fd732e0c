"""Taking back what was done to a bank: an operation, or that one memory was forgotten."""

from ctx.errors import Conflict, NotFound
from ctx.memory.bank.base import BankView
from ctx.memory.filters import Condition
from ctx.memory.writer import Writer
from ctx.types import JSON

_NO_OPERATION = (
    "no such operation in this bank (the reply to a change gives its op_id, and so does a memory's history)"
)


class Undoing(BankView):
    """What makes a change as if it had not been."""

    def undo(self, op_id: str) -> JSON:
        """Takes an operation back, as an operation of its own: `{"count", "skipped", "op_id", "undone"}`.

        What it made is deleted, what it changed or deleted is as before. Memories changed since are skipped
        and named; where all were, `Conflict`. A purge cannot be undone.
        """
        texts = self._texts_before(op_id)
        embedded = dict(zip(texts, self._embedding.packed(list(texts.values())), strict=True))
        with self._writing("undo") as writer:
            op_no = writer.operation(op_id)
            if op_no is None:
                raise NotFound(_NO_OPERATION)
            writer.detail(of=op_id)
            states = _states_before(writer, op_no)
            memories = writer.rows(states)
            count, skipped = 0, []
            for no, (version, before) in states.items():
                memory = memories[no]
                if memory.version != version:
                    skipped.append(memory.id)
                elif before is None:
                    count += writer.delete_under([Condition("m.no = ?", (no,))], writer.at_ms)
                else:
                    restored = writer.patch(memory, before)
                    if restored.text != memory.text:
                        writer.replace_vectors(restored, self._embedding.model, embedded.get(no, []))
                    count += 1
            if not count:
                reason = "nothing is left to take back: the memories were changed since"
                raise Conflict(
                    reason if skipped else "this operation cannot be undone", data={"skipped": skipped[:20]}
                )
            writer.revive_bereft(states)
            reply = {"count": count, "skipped": sorted(skipped), "op_id": writer.op_id, "undone": op_id}
        self._embed_behind()
        return reply

    def restore(self, id: str) -> JSON:
        """Brings a forgotten memory back, with what it contains that was forgotten with it and nothing else:
        `{"count", "op_id"}`. Raises `NotFound`, and `Conflict` where what contains it is forgotten.
        """
        with self._writing("restore") as writer:
            memory = self._must_find(writer, id, deleted=True)
            if memory.deleted_ms is None:
                return {"count": 0, "op_id": None}
            op_id = writer.history(memory.no)[-1].op_id
            members = [
                member
                for member in writer.with_contents(memory)
                if writer.history(member.no)[-1].op_id == op_id
            ]
            if memory.parent is not None and self._find(writer, memory.parent) is None:
                raise Conflict(f"what contains it was forgotten, too: bring {memory.parent} back")
            for member in members:
                writer.patch(member, {"deleted_ms": None})
            writer.revive_bereft(member.no for member in members)
            reply = {"count": len(members), "op_id": writer.op_id}
        self._embed_behind()
        return reply

    def _embed_behind(self) -> None:
        """What came back may be a long text, or have been forgotten before it was embedded."""
        self._embedding.stored([[]])

    def unanswer(self, op_id: str) -> None:
        """What this operation answered was no answer: the same request is done anew when it comes again."""
        with self._writing("undo") as writer:
            writer.drop_replies(op_id)

    def _texts_before(self, op_id: str) -> dict[int, str]:
        with self._view() as view:
            op_no = view.operation(op_id)
            if op_no is None:
                raise NotFound(_NO_OPERATION)
            return {
                no: before["text"] for no, _, before in view.changes_of(op_no) if before and "text" in before
            }


def _states_before(writer: Writer, op_no: int) -> dict[int, tuple[int, dict[str, JSON] | None]]:
    """By memory: the last version that an operation made of it, and the columns as they were before; None: it
    was not there.
    """
    states: dict[int, tuple[int, dict[str, JSON] | None]] = {}
    for no, version, before in writer.changes_of(op_no):  # latest version first
        last, later = states.get(no, (version, {}))
        states[no] = (last, None if before is None else {**(later or {}), **before})
    return states
