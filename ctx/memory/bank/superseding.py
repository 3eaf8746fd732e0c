"""Replacing memories with others, as the writer or the configured language model decides."""

from collections.abc import Sequence

from ctx.errors import BadRequest, Conflict, NotFound
from ctx.memory.bank.search import Searching
from ctx.memory.columns import Memory
from ctx.memory.consolidate import judged
from ctx.memory.records import iso
from ctx.memory.writer import Writer
from ctx.models import JSON

CONVERSATION = "conversation"


class Superseding(Searching):
    """What replaces memories."""

    def _consolidated(self, reply: JSON, memory: Memory, similar: Sequence[Memory]) -> JSON:
        """The reply, after the language model judged which of the similar memories the new one replaces, if
        it is asked to. That is an operation of its own: the memory is stored whatever the model says.
        """
        model = self._resources.language_model
        if not self._resources.consolidate or model is None or not similar or memory.kind != "fact":
            return reply
        outdated = judged(model, memory, similar)
        if not outdated:
            return reply
        try:
            decision = self.supersede([older.id for older in outdated], memory.id, op="consolidate")
        except (BadRequest, Conflict):  # something happened to one of them meanwhile
            return reply
        replaced = {older["id"] for older in decision["superseded"]}
        return {
            **reply,
            "superseded": [*reply["superseded"], *decision["superseded"]],
            "similar": [entry for entry in reply["similar"] if entry["id"] not in replaced],
            "consolidated": decision["op_id"],
        }

    def supersede(self, ids: Sequence[str], by: str, *, op: str = "supersede") -> JSON:
        """Replaces memories by one that is there: `{"superseded": [{"id", "text", "said"}], "op_id"}`.
        Raises `BadRequest` for an id that is unknown, of another kind, the memory's own, or that would close
        a circle; then nothing is replaced.
        """
        check_ids(ids)
        if not ids:
            raise BadRequest("supersede: name at least one memory to replace")
        with self._writing(op) as writer:
            memory = self._named(writer, by, "by")
            superseded = self._supersede(writer, memory, ids)
            return {
                "superseded": [shown(older) for older in superseded],
                "op_id": writer.op_id if writer.changed else None,
            }

    def _named(self, writer: Writer, id: str, argument: str) -> Memory:
        """The memory of an id in a request. Raises `BadRequest` that names it."""
        try:
            return self._must_find(writer, id)
        except NotFound as error:
            raise BadRequest(f"{argument}: {error.message}") from error

    def _supersede(self, writer: Writer, memory: Memory, ids: Sequence[str]) -> list[Memory]:
        """Replaces memories and what they contain; gives those it replaced. Raises `BadRequest`."""
        replaced = []
        for id in dict.fromkeys(ids):
            older = self._named(writer, id, "supersedes")
            if older.id == memory.id:
                raise BadRequest(f"supersedes: '{id}' is the memory itself")
            if (older.kind == CONVERSATION) != (memory.kind == CONVERSATION):
                raise BadRequest(f"supersedes: '{id}' is a {older.kind}, not a {memory.kind}")
            if older.superseded_by == memory.id:
                continue
            if older.id in self._successors(writer, memory):
                raise BadRequest(f"supersedes: '{id}' replaced this memory; undo that first")
            if older.superseded_by is not None:
                raise Conflict(
                    f"supersedes: '{id}' was already replaced by {older.superseded_by}; name that one"
                )
            for member in writer.with_contents(older):
                if member.deleted_ms is None and member.superseded_by is None:
                    end_ms = max(memory.valid_from_ms, member.valid_from_ms)
                    writer.patch(member, {"valid_to_ms": end_ms, "superseded_by": memory.id})
            replaced.append(older)
        return replaced

    def _successors(self, writer: Writer, memory: Memory) -> set[str]:
        """The ids of all memories that replaced this one, directly or through others."""
        chain: set[str] = set()
        following = memory.superseded_by
        while following is not None and following not in chain:
            chain.add(following)
            successor = writer.row(following)
            following = None if successor is None else successor.superseded_by
        return chain


def shown(memory: Memory) -> dict[str, JSON]:
    """A memory as replies about another one show it."""
    return {"id": memory.id, "text": memory.text, "said": iso(memory.uttered_ms)}


def check_ids(ids: JSON) -> None:
    """Raises `BadRequest` for what is no list of ids."""
    if not isinstance(ids, list | tuple) or not all(isinstance(id, str) for id in ids):
        raise BadRequest("supersedes: must be a list of ids")
