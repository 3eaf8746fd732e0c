"""Updating, deleting and erasing memories of a bank, and undoing changes."""

from collections.abc import Sequence

from ctx.errors import BadRequest, Conflict, NotFound
from ctx.memory.bank.put import check_span, read_times, said_by_now, zone_ms
from ctx.memory.bank.read import Reading, Request
from ctx.memory.columns import UPDATABLE, Memory, checked, short_text
from ctx.memory.filters import EVERYTHING, Condition, compile_filter
from ctx.memory.language import SCREENED, gist, screen_json
from ctx.memory.reader import UNDELETED, Reader, visible
from ctx.memory.records import content_hash, public_name
from ctx.memory.schema import IN_TEXTS, listed
from ctx.memory.writer import Writer
from ctx.models import JSON

# UTC offsets to try. A local date is at most one day away from the UTC date, so these three are enough.
_ZONES_MS = (0, 14 * 3_600_000, -12 * 3_600_000)


class Changing(Reading):
    """The operations that change, delete and restore memories."""

    def update(self, id: str, patch: JSON, *, expect_version: int | None = None) -> JSON:
        """Changes fields of a memory: `{"record", "changed", "op_id"}`. Its history keeps the old values.

        Raises `Conflict` if the memory has another version than expected, `NotFound`, `BadRequest`.
        """
        if not isinstance(patch, dict):
            raise BadRequest("patch: must be an object")
        changes = self._screened(checked(patch, UPDATABLE))[0]
        vectors = self._embedding.packed([changes["text"]])[0] if "text" in changes else []
        with self._writing("update") as writer:
            memory = self._must_find(writer, id)
            if expect_version is not None and memory.version != expect_version:
                message = f"the memory has version {memory.version}, not {expect_version}: read it again"
                raise Conflict(message, data={"version": memory.version})
            if not changes.keys().isdisjoint(SCREENED):
                policy = "off" if self._store.secrets == "off" else "flag"
                texts = memory._replace(**changes)
                flags = (screen_json(getattr(texts, name), policy)[1] for name in SCREENED)
                changes["flags"] = sorted(set().union(*flags))
            changes = said_by_now(changes, writer.at_ms)
            if "context" in changes and "contexts" not in changes:
                changes["contexts"] = [name for name in memory.contexts if name != changes["context"]]
            changes |= _event_changes(memory, changes, patch.get("timestamp"))
            revised = memory._replace(**changes)
            if "event_ms" in changes or "event_last_ms" in changes:
                check_span(revised.event_ms, revised.event_last_ms)
            differing = [name for name, value in changes.items() if getattr(memory, name) != value]
            changed = sorted(public_name(name) for name in differing if name != "flags")
            if changed:
                memory = self._patched(writer, memory, changes, vectors)
            [record] = self._records(writer, [memory])
            op_id = writer.op_id if writer.changed else None
        if "text" in changes:
            self._embedding.stored([vectors])
        return {"record": record, "changed": changed, "op_id": op_id}

    def _patched(
        self, writer: Writer, memory: Memory, changes: dict[str, JSON], vectors: Sequence[bytes]
    ) -> Memory:
        following: dict[str, JSON] = {"updated_ms": writer.at_ms}
        if "text" in changes:
            following["gist"] = gist(changes["text"])
        following["content_hash"] = content_hash(memory._replace(**changes))
        if "said_ms" in changes:
            following |= _validity(writer, memory, memory._replace(said_ms=changes["said_ms"]).uttered_ms)
        patched = writer.patch(memory, {**changes, **following})
        if patched.text != memory.text:
            writer.replace_vectors(patched, self._embedding.model, vectors)
        writer.touch([patched.no], self.source.session)
        return self._must_find(writer, patched.id)

    # -- deleting --------------------------------------------------------------------------------------------

    def delete(
        self, id: str, *, reason: str | None = None, hard: bool = False, dry_run: bool = False
    ) -> JSON:
        """Forgets one memory; a container (such as a conversation) with its contents. See `delete_all`."""
        return self.delete_all([id], reason=reason, hard=hard, dry_run=dry_run)

    def delete_all(
        self, ids: Sequence[str], *, reason: str | None = None, hard: bool = False, dry_run: bool = False
    ) -> JSON:
        """Forgets memories and their contents, in one operation: `{"count", "op_id"}`.

        `hard` erases them, which cannot be undone: text, words, vectors and history are overwritten in the
        file, and only the ids stay in the journal. `dry_run` only counts. Raises `NotFound`, and forgets
        nothing, if an id does not exist.
        """
        if not isinstance(hard, bool) or not isinstance(dry_run, bool):
            raise BadRequest("hard, dry_run: must be true or false")
        if dry_run:
            with self._view() as view:
                return {"count": len(self._doomed(view, ids, deleted=hard)), "op_id": None}
        with self._writing("purge" if hard else "delete") as writer:
            doomed = self._doomed(writer, ids, deleted=hard)
            writer.detail(reason=short_text("reason", reason))
            if hard:
                writer.purge(doomed)
            else:
                writer.delete(doomed)
            reply = {"count": len(doomed), "op_id": writer.op_id}
        if hard:
            self._rows.shred()
        return reply

    def _doomed(self, reader: Reader, ids: Sequence[str], *, deleted: bool) -> list[Memory]:
        """The memories with these ids, and the contents of containers. Deleted ones only with `deleted`."""
        memories = [self._must_find(reader, id, deleted=deleted) for id in ids]
        return [member for member in reader.with_contents(memories) if deleted or member.deleted_ms is None]

    def delete_where(
        self,
        filter: JSON,
        *,
        reason: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        anew: bool = False,
    ) -> JSON:
        """Forgets the memories that match the filter, and their contents: `{"count", "op_id"}`. `undo(op_id)`
        restores them.

        `dry_run` only counts. A second call with the same `idempotency_key` deletes nothing more. `anew` also
        drops all stored replies of the bank, so that a request that is repeated later runs again.
        """
        condition = compile_filter(filter)
        if condition == EVERYTHING:
            hint = 'to delete the whole bank, give {"id": {"exists": true}}'
            raise BadRequest(f"filter: must not be empty; {hint}")
        conditions = [visible(self._now(), superseded=True), condition]
        request = Request.of(idempotency_key, "delete_where", {"filter": filter})
        with self._view() as view:
            if not view.exists and request.key is None:  # deleting does not create a bank
                return {"count": 0, "op_id": None}
            if (reply := request.answered(view)) is not None:
                return reply
            if dry_run:
                return {"count": len(_matching(view, conditions)), "op_id": None}
        with self._writing("delete_where") as writer:
            writer.detail(reason=short_text("reason", reason))
            count = writer.delete(_matching(writer, conditions))
            reply = {"count": count, "op_id": writer.op_id if count else None}
            if anew:
                writer.drop_replies()
            request.keep(writer, reply)
            return reply

    def touch(self, ids: Sequence[str]) -> int:
        """Counts a read of these memories (access_count, last_accessed, sessions). Returns how many of them
        exist.
        """
        with self._view() as view:
            nos = [memory.no for id in ids if (memory := self._find(view, id))]
        self._count_reading(nos)
        return len(nos)

    # -- undoing ---------------------------------------------------------------------------------------------

    def undo(self, op_id: str) -> JSON:
        """Reverts an operation, with a new operation: `{"count", "skipped", "op_id", "undone"}`.

        Memories that the operation created are deleted. Memories that it changed or deleted get their earlier
        state back. Memories that were changed again since are skipped; `skipped` lists them. Raises
        `Conflict` if nothing could be reverted. Erased memories cannot be restored.
        """
        embedded = self._embedded_before([op_id])
        with self._writing("undo") as writer:
            writer.detail(of=op_id)
            count, skipped = self._undo_all(writer, [op_id], embedded)
            if not count:
                changed = "nothing to undo: the memories were changed since"
                reason = changed if skipped else "this operation cannot be undone"
                raise Conflict(reason, data={"skipped": skipped[:20]})
            reply = {"count": count, "skipped": sorted(skipped), "op_id": writer.op_id, "undone": op_id}
        self._embedding.stored([[]])  # embed in the background: a restored long text may lack its vectors
        return reply

    def take_back(self, op_ids: Sequence[str], made: Sequence[str]) -> None:
        """Reverts these operations completely, in one operation.

        Undoes them, forgets the memories that they created (`made`), and drops their stored replies, so that
        a repeated request runs again.
        """
        embedded = self._embedded_before(op_ids)
        with self._writing("undo") as writer:
            writer.detail(of=op_ids[0], taken_back=len(op_ids))
            self._undo_all(writer, op_ids, embedded)
            writer.delete(_matching(writer, [UNDELETED, Condition(f"m.id {IN_TEXTS}", (listed(made),))]))
            writer.drop_replies(op_ids)
        self._embedding.stored([[]])

    def restore(self, id: str) -> JSON:
        """Restores a forgotten memory, or makes a replaced memory current again: `{"count", "op_id"}`.

        Contents that were forgotten in the same operation are restored too. The replacement of a replaced
        memory is kept. Raises `NotFound`, and `Conflict` if the memory's container is forgotten.
        """
        with self._writing("restore") as writer:
            memory = self._must_find(writer, id, deleted=True)
            members = writer.with_contents([memory])
            if memory.deleted_ms is None:
                marks = (memory.superseded_by, None)
                members = [row for row in members if (row.superseded_by, row.deleted_ms) == marks]
                count = writer.make_current(members) if memory.superseded_by is not None else 0
                return {"count": count, "op_id": writer.op_id if count else None}
            op_id = writer.history(memory.no)[-1]["op_id"]
            if memory.parent is not None and self._find(writer, memory.parent) is None:
                raise Conflict(f"its container was also forgotten: restore {memory.parent}")
            members = [row for row in members if writer.history(row.no)[-1]["op_id"] == op_id]
            for member in members:
                writer.patch(member, {"deleted_ms": None})
            writer.revive_bereft(member.no for member in members)
            reply = {"count": len(members), "op_id": writer.op_id}
        self._embedding.stored([[]])
        return reply

    def _undo_all(
        self, writer: Writer, op_ids: Sequence[str], embedded: dict[str, list[bytes]]
    ) -> tuple[int, list[str]]:
        """Reverts operations, latest changes first. Returns the number of reverted memories, and the ids of
        the skipped memories, which another operation changed since.
        """
        changes = sorted(_changes(writer, op_ids), key=lambda change: (change[0], -change[1]))
        memories = writer.rows({no for no, _, _ in changes})
        versions = {no: memory.version for no, memory in memories.items()}
        reverted: set[int] = set()
        skipped: set[int] = set()
        for no, version, before in changes:
            memory = writer.rows([no])[no]  # an earlier turn of this loop may have changed it, too
            if versions[no] != version:
                skipped |= {no} - reverted
                continue
            if before is None:
                writer.delete(_matching(writer, [UNDELETED, Condition("m.no = ?", (no,))]))
            else:
                memories[no] = writer.patch(memory, before)
                if memories[no].text != memory.text:
                    vectors = embedded.get(memories[no].text, [])
                    writer.replace_vectors(memories[no], self._embedding.model, vectors)
            reverted.add(no)
            versions[no] = version - 1  # the memory has the content of this version again
        writer.revive_bereft(versions)
        return len(reverted), [memories[no].id for no in skipped]

    def _embedded_before(self, op_ids: Sequence[str]) -> dict[str, list[bytes]]:
        """The vectors of the texts that these operations replaced, by text. Raises `NotFound`."""
        with self._view() as view:
            befores = [before for _, _, before in _changes(view, op_ids) if before and "text" in before]
        texts = [before["text"] for before in befores]
        return dict(zip(texts, self._embedding.packed(texts), strict=True))


def _matching(reader: Reader, conditions: Sequence[Condition]) -> list[Memory]:
    """The memories that meet the conditions, with their contents; deleted ones are left out."""
    members = reader.with_contents(list(reader.select(conditions)))
    return [member for member in members if member.deleted_ms is None]


def _changes(reader: Reader, op_ids: Sequence[str]) -> list[tuple[int, int, dict[str, JSON] | None]]:
    """The changes by these operations, as `Reader.changes_of` returns them. Raises `NotFound`."""
    changes = []
    for op_id in op_ids:
        op_no = reader.operation(op_id)
        if op_no is None:
            raise NotFound("no such operation in this bank (the reply to a change has its op_id)")
        changes += reader.changes_of(op_no)
    return changes


# -- times ---------------------------------------------------------------------------------------------------


def _event_changes(memory: Memory, changes: dict[str, JSON], timestamp: JSON) -> dict[str, JSON]:
    """The changes of a memory's event time that follow from its other changes.

    A new event date clears the end date, unless a new end date is given too. If the event time was read from
    the text, it is read again from the changed text. `timestamp` is the said time as the caller gave it.
    """
    if "event_ms" in changes:
        return {} if "event_last_ms" in changes else {"event_last_ms": None}
    if "event_last_ms" in changes or changes.keys().isdisjoint(("text", "said_ms")):
        return {}
    # The speaker's time zone is not stored. Use any offset with which the old text gives the stored times.
    stored = {"event_ms": memory.event_ms, "event_last_ms": memory.event_last_ms}
    zones = (zone for zone in _ZONES_MS if read_times(memory.text, memory.uttered_ms, zone) == stored)
    ahead_ms = next(zones, None)
    if ahead_ms is None:
        return {}  # the times are not from the text: the caller gave them
    corrected = memory._replace(**changes)
    named_ms = zone_ms(timestamp)
    if named_ms or changes.get("said_ms", memory.uttered_ms) != memory.uttered_ms:
        ahead_ms = named_ms
    times = read_times(corrected.text, corrected.uttered_ms, ahead_ms)
    return {name: value for name, value in times.items() if stored[name] != value}


def _validity(writer: Writer, memory: Memory, said_ms: int) -> dict[str, JSON]:
    """The changed `valid_from_ms` and `valid_to_ms` of a memory whose said time was corrected.

    Also writes the corrected `valid_to_ms` of the memories that it replaced.
    """
    if memory.valid_from_ms != memory.uttered_ms and said_ms > memory.valid_from_ms:
        return {}  # an equal memory was also said earlier
    replaced = Condition("m.superseded_by = ?", (memory.id,))
    for older in list(writer.select([UNDELETED, replaced])):
        writer.patch(older, {"valid_to_ms": max(said_ms, older.valid_from_ms)})
    following: dict[str, JSON] = {"valid_from_ms": said_ms}
    successor = writer.row(memory.superseded_by) if memory.superseded_by else None
    if successor is not None:
        following["valid_to_ms"] = max(successor.valid_from_ms, said_ms)
    return following
