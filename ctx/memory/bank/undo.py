"""Taking back what was done to a bank: an operation, or that one memory was forgotten."""

from collections.abc import Iterable, Sequence

from ctx.errors import Conflict, NotFound
from ctx.memory.bank.base import BankView
from ctx.memory.engine import IN_TEXTS, listed
from ctx.memory.filters import Condition
from ctx.memory.reader import Reader
from ctx.memory.writer import Writer
from ctx.models import JSON

_NO_OPERATION = (
    "no such operation in this bank (the reply to a change has its op_id, and so does a memory's history)"
)


class Undoing(BankView):
    """What makes a change as if it had not been."""

    def undo(self, op_id: str) -> JSON:
        """Takes an operation back, as an operation of its own: `{"count", "skipped", "op_id", "undone"}`.

        What it made is deleted, what it changed or deleted is as before. Memories changed since are skipped
        and named; where all were, `Conflict`. A purge cannot be undone.
        """
        embedded = self._embedded_before([op_id])
        with self._writing("undo") as writer:
            writer.detail(of=op_id)
            count, skipped = self._undo_all(writer, [op_id], embedded)
            if not count:
                reason = "nothing to undo: the memories were changed since"
                raise Conflict(
                    reason if skipped else "this operation cannot be undone", data={"skipped": skipped[:20]}
                )
            reply = {"count": count, "skipped": sorted(skipped), "op_id": writer.op_id, "undone": op_id}
        self._embed_behind()
        return reply

    def take_back(self, op_ids: Sequence[str], made: Sequence[str]) -> None:
        """Reverts these operations completely: undoes them in one step, forgets the memories they created,
        and drops their stored replies, so that a repeated request runs again.
        """
        embedded = self._embedded_before(op_ids)
        with self._writing("undo") as writer:
            writer.detail(of=op_ids[0], taken_back=len(op_ids))
            self._undo_all(writer, op_ids, embedded)
            writer.delete_under([Condition(f"m.id {IN_TEXTS}", (listed(made),))], writer.at_ms)
            writer.drop_replies(op_ids)
        self._embed_behind()

    def restore(self, id: str) -> JSON:
        """Restores a forgotten memory with everything forgotten with it, or makes a replaced memory current
        again without removing its replacement: `{"count", "op_id"}`. Raises `NotFound`, and `Conflict` if
        its container is forgotten.
        """
        with self._writing("restore") as writer:
            memory = self._must_find(writer, id, deleted=True)
            if memory.deleted_ms is None:
                count = writer.let_hold_again(memory)
                return {"count": count, "op_id": writer.op_id if count else None}
            op_id = writer.history(memory.no)[-1].op_id
            members = [
                member
                for member in writer.with_contents(memory)
                if writer.history(member.no)[-1].op_id == op_id
            ]
            if memory.parent is not None and self._find(writer, memory.parent) is None:
                raise Conflict(f"its container was also forgotten: restore {memory.parent}")
            for member in members:
                writer.patch(member, {"deleted_ms": None})
            writer.revive_bereft(member.no for member in members)
            reply = {"count": len(members), "op_id": writer.op_id}
        self._embed_behind()
        return reply

    def _embed_behind(self) -> None:
        """What came back may be a long text, or have been forgotten before it was embedded."""
        self._embedding.stored([[]])

    def _undo_all(
        self, writer: Writer, op_ids: Sequence[str], embedded: dict[str, list[bytes]]
    ) -> tuple[int, list[str]]:
        """Takes operations back: how many changes, and the memories that were changed since."""
        states = _states_before(writer, [_number(writer, op_id) for op_id in op_ids])
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
                    vectors = embedded.get(restored.text, [])
                    writer.replace_vectors(restored, self._embedding.model, vectors)
                count += 1
        writer.revive_bereft(states)
        return count, skipped

    def _embedded_before(self, op_ids: Sequence[str]) -> dict[str, list[bytes]]:
        """What memories said before these operations, with its vectors. Raises `NotFound`."""
        with self._view() as view:
            texts = {
                before["text"]: None
                for op_id in op_ids
                for _, _, before in view.changes_of(_number(view, op_id))
                if before and "text" in before
            }
        return dict(zip(texts, self._embedding.packed(list(texts)), strict=True))


def _number(view: Reader, op_id: str) -> int:
    """The number of an operation. Raises `NotFound`."""
    op_no = view.operation(op_id)
    if op_no is None:
        raise NotFound(_NO_OPERATION)
    return op_no


def _states_before(writer: Writer, op_nos: Iterable[int]) -> dict[int, tuple[int, dict[str, JSON] | None]]:
    """By memory: the last version made by these operations, and the columns before them (None: it did not
    exist), as far back as no other operation changed it in between.
    """
    changes = sorted(
        (change for op_no in op_nos for change in writer.changes_of(op_no)),
        key=lambda change: (change[0], -change[1]),
    )
    states: dict[int, tuple[int, dict[str, JSON] | None]] = {}
    following = (0, 0)  # the memory and the version before the one that was looked at
    for no, version, before in changes:
        if no not in states:
            states[no] = (version, before)
        elif (no, version) == following:
            last, later = states[no]
            states[no] = (last, None if before is None else {**(later or {}), **before})
        else:
            continue
        following = (no, version - 1)
    return states
