"""Writing to a bank: storing, changing, forgetting, and taking back."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ctx.clock import DAY_MS, ahead_of_utc_ms
from ctx.errors import BadRequest, Conflict
from ctx.memory.bank.search import Searching
from ctx.memory.columns import MAX_TAGS, UPDATABLE, Memory, check_json, checked, fits_metadata, short_text
from ctx.memory.dates import happened
from ctx.memory.engine import IN_NUMBERS, listed
from ctx.memory.filters import EVERYTHING, Condition, compile_filter
from ctx.memory.findings import Disposition
from ctx.memory.gist import gist
from ctx.memory.reader import UNDELETED, Reader, visible
from ctx.memory.records import all_contexts, content_hash, draft, public_name, to_json
from ctx.memory.screen import SCREENED
from ctx.memory.writer import Writer
from ctx.types import JSON

DEDUPES = ("exact", "near", "off")
MAX_ITEMS = 1000  # of one put_many
MAX_KEY_CHARS = 200
# Besides the gist: what two memories must share to be one.
_PLACE = ("kind", "parent", "role", "type", "folder", "label", "event_ms", "document_id")


class Request(NamedTuple):
    """A call that may come twice: the key that its caller gave it, and the digest of what it asks."""

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
        """The reply of the first call, with `repeated`; None where this is the first.
        Raises `Conflict` where the key was used for another, and where what the first made was erased.
        """
        kept_reply = reader.reply(self.key) if self.key is not None else None
        if kept_reply is None:
            return None
        if kept_reply[1] is None:
            raise Conflict("what was stored with this idempotency key was erased since; choose a new one")
        if kept_reply[0] != self.digest:
            raise Conflict("the idempotency key was used for another request; choose a new one")
        return {**kept_reply[1], "repeated": True}

    def keep(self, writer: Writer, reply: JSON) -> None:
        if self.key is not None:
            writer.keep_reply(self.key, self.digest, reply)


class Writing(Searching):
    """What changes a bank."""

    def ensure(self) -> None:
        """Makes the bank if it is not there."""
        with self._view() as view:
            if view.exists:
                return
        with self._writing("ensure"):
            pass

    def configure(self, config: JSON) -> JSON:
        """Replaces the configuration; gives it back."""
        if not isinstance(config, dict):
            raise BadRequest("config: a JSON object is needed")
        check_json("config", config, 0)
        Disposition.of(config)
        with self._writing("configure") as writer:
            writer.configure(config)
        return config

    def put(
        self,
        text: str,
        *,
        dedupe: str | None = None,
        supersedes: Sequence[str] = (),
        alias: str | None = None,
        idempotency_key: str | None = None,
        birth_tags: Sequence[str] = (),
        **fields: JSON,
    ) -> JSON:
        """Stores a memory: `{"id", "created", "duplicate_of", "superseded", "near", "flags", "op_id"}`.

        `dedupe`: "exact" (facts' default) answers with the id of a memory that says the same, and stores
        nothing but what is new of it (a context, a tag); "near" stores and links what is almost the same;
        "off" (the default of other kinds) only stores. `supersedes` names memories whose place this takes:
        they are kept, and found `as_of` their time. A second call with one `idempotency_key` has the reply of
        the first. `birth_tags` are for a memory that this makes. `fields`: `ctx.memory.columns.SETTABLE`.
        """
        _check_options(dedupe, supersedes)
        alias = given_name("alias", alias)
        arguments = {"text": text, "dedupe": dedupe, "supersedes": list(supersedes), "alias": alias, **fields}
        request = Request.of(idempotency_key, "put", arguments)
        if (reply := self._answered(request)) is not None:
            return reply
        memory = self._draft({**fields, "text": text}, self._following_ms())
        dedupe = dedupe or ("exact" if memory.kind == "fact" else "off")
        [vectors] = self._embedding.packed([memory.text])
        neighbours = self.near(memory.text, memory.kind) if dedupe == "near" else []
        with self._writing("put") as writer:
            if (reply := request.answered(writer)) is not None:
                return reply
            memory = self._placed(writer, memory)
            twin = self._twin(writer, memory) if dedupe != "off" else None
            if twin is not None:
                memory = _merged(writer, twin, memory)
            else:
                memory = memory._replace(tags=[*memory.tags, *birth_tags])
                memory = writer.insert(memory, self._embedding.model, vectors)
                if alias is not None:
                    writer.alias(memory, alias)
                for neighbour, score in neighbours:
                    writer.link(memory, neighbour.no, score)
            reply = {
                "id": memory.id,
                "created": twin is None,
                "duplicate_of": None if twin is None else twin.id,
                "superseded": self._supersede(writer, memory, supersedes),
                "near": [{"id": neighbour.id, "score": score} for neighbour, score in neighbours],
                "flags": memory.flags,
                "op_id": writer.op_id if writer.changed else None,
            }
            request.keep(writer, reply)
        self._embedding.stored([vectors])
        return reply

    def _drafts(self, items: Sequence[JSON], container: JSON, now_ms: int) -> list[Memory]:
        if container is None:
            return [self._draft(item, now_ms) for item in items]
        return self._contained(items, container, now_ms)

    def put_many(
        self, items: Sequence[JSON], container: JSON = None, *, idempotency_key: str | None = None
    ) -> JSON:
        """Stores a container and what is in it, all or nothing: `{"id", "ids", "created", "op_id"}`.

        Each item is an object with `text` and the fields of `put`; in a container its `kind` is "message"
        unless it says otherwise. The container's text is its label unless it has one, its kind
        "conversation". Nothing is deduplicated.
        """
        _check_items(items, container)
        request = Request.of(idempotency_key, "put_many", {"items": list(items), "container": container})
        if (reply := self._answered(request)) is not None:
            return reply
        drafts = self._drafts(items, container, self._following_ms())
        vectors = self._embedding.packed([memory.text for memory in drafts])
        with self._writing("put_many") as writer:
            if (reply := request.answered(writer)) is not None:
                return reply
            ids = []
            for memory, packed in zip(drafts, vectors, strict=True):
                memory = memory if container is not None else self._placed(writer, memory)
                ids.append(writer.insert(memory, self._embedding.model, packed).id)
            reply = {
                "id": ids[0] if container is not None else None,
                "ids": ids[container is not None :],
                "created": len(ids),
                "op_id": writer.op_id,
            }
            request.keep(writer, reply)
        self._embedding.stored(vectors)
        return reply

    def _contained(self, items: Sequence[JSON], container: JSON, now_ms: int) -> list[Memory]:
        """The container, then its items."""
        parent = self._draft({"kind": "conversation", "text": container.get("label"), **container}, now_ms)
        drafts = [parent]
        for ordinal, item in enumerate(items):
            memory = self._draft({"kind": "message", "ordinal": ordinal, **item}, now_ms)
            memory = memory._replace(parent=parent.id)
            drafts.append(memory._replace(content_hash=content_hash(memory)))
        return drafts

    def update(self, id: str, patch: JSON, *, expect_version: int | None = None) -> JSON:
        """Changes fields of a memory: `{"record", "changed", "op_id"}`; what was is kept in its history.

        Raises `Conflict` where the memory has another version than expected, `NotFound`, `BadRequest`.
        """
        if not isinstance(patch, dict):
            raise BadRequest("patch: an object is needed")
        changes = self._screened(checked(patch, UPDATABLE))[0]
        vectors = self._embedding.packed([changes["text"]])[0] if "text" in changes else []
        with self._writing("update") as writer:
            memory = self._must_find(writer, id)
            _check_version(memory, expect_version)
            if not changes.keys().isdisjoint(SCREENED):
                changes["flags"] = self._flags_of(memory._replace(**changes))
            changes = _followed(memory, _said_by_now(changes, writer.at_ms), patch.get("timestamp"))
            changed = _changed_names(memory, changes)
            if changed:
                memory = self._patched(writer, memory, changes, vectors)
            aliases = writer.aliases([memory.no]).get(memory.no, [])
            reply = {
                "record": to_json(memory, self.id, aliases),
                "changed": changed,
                "op_id": writer.op_id if writer.changed else None,
            }
        if "text" in changes:
            self._embedding.stored([vectors])
        return reply

    def _patched(
        self, writer: Writer, memory: Memory, changes: dict[str, JSON], vectors: Sequence[bytes]
    ) -> Memory:
        following: dict[str, JSON] = {"updated_ms": writer.at_ms}
        if "text" in changes:
            following["gist"] = gist(changes["text"])
        following["content_hash"] = content_hash(memory._replace(**changes))
        if "said_ms" in changes:
            following |= _hold_since(writer, memory, memory._replace(said_ms=changes["said_ms"]).uttered_ms)
        patched = writer.patch(memory, {**changes, **following})
        if patched.text != memory.text:
            writer.replace_vectors(patched, self._embedding.model, vectors)
        writer.touch([patched.no], self.source.session)
        return self._must_find(writer, patched.id)

    def delete(
        self, id: str, *, reason: str | None = None, hard: bool = False, dry_run: bool = False
    ) -> JSON:
        """Forgets a memory and what it contains, as `delete_all` does several."""
        return self.delete_all([id], reason=reason, hard=hard, dry_run=dry_run)

    def delete_all(
        self, ids: Sequence[str], *, reason: str | None = None, hard: bool = False, dry_run: bool = False
    ) -> JSON:
        """Forgets memories and what they contain, in one operation: `{"count", "op_id"}`. Soft unless `hard`,
        which nothing brings back: text, words, vectors and history are overwritten in the file, and the ids
        alone stay in the journal. A dry run only counts. Raises `NotFound` where one is not there; then none
        is forgotten.
        """
        if not isinstance(hard, bool) or not isinstance(dry_run, bool):
            raise BadRequest("hard, dry_run: true or false")
        if dry_run:
            with self._view() as view:
                memories = [self._must_find(view, id, deleted=hard) for id in ids]
                return {"count": len(_contained_nos(view, memories, deleted=hard)), "op_id": None}
        if hard:
            return self.purge(ids, reason=reason)
        with self._writing("delete") as writer:
            nos = {self._must_find(writer, id).no for id in ids}
            writer.detail(reason=short_text("reason", reason))
            chosen = Condition(f"m.no {IN_NUMBERS}", (listed(list(nos)),))
            return {"count": writer.delete_under([chosen], writer.at_ms), "op_id": writer.op_id}

    def purge(self, ids: Sequence[str], *, reason: str | None = None) -> JSON:
        """Erases memories and what they contain, in one operation: `{"count", "op_id"}`.
        Raises `NotFound`.
        """
        with self._writing("purge") as writer:
            doomed = {
                member.no: member
                for id in ids
                for member in writer.with_contents(self._must_find(writer, id, deleted=True))
            }
            writer.detail(reason=short_text("reason", reason))
            writer.engine.note_erasure()
            writer.detail(erased=[member.id for member in doomed.values()])
            for member in doomed.values():
                writer.purge(member)
            reply = {"count": len(doomed), "op_id": writer.op_id}
        self._resources.rows.shred()
        return reply

    def delete_where(
        self,
        filter: JSON,
        *,
        reason: str | None = None,
        dry_run: bool = False,
        idempotency_key: str | None = None,
        anew: bool = False,
    ) -> JSON:
        """Soft-deletes what the filter matches, with what it contains: `{"count", "op_id"}`; `undo(op_id)`
        brings it back.

        A dry run only counts. A second call with one `idempotency_key` deletes nothing more. `anew`: the bank
        begins anew, and a request that was answered before is no repeat.
        """
        condition = compile_filter(filter)
        if condition == EVERYTHING:
            raise BadRequest(
                'filter: an empty one would delete the whole bank; for that, give {"id": {"exists": true}}'
            )
        conditions = [visible(self._now(), superseded=True), condition]
        request = Request.of(idempotency_key, "delete_where", {"filter": filter})
        with self._view() as view:
            if not view.exists and request.key is None:  # nor is it made
                return {"count": 0, "op_id": None}
            if (reply := request.answered(view)) is not None:
                return reply
            if dry_run:
                doomed = _contained_nos(view, view.select(conditions), deleted=False)
                return {"count": len(doomed), "op_id": None}
        with self._writing("delete_where") as writer:
            writer.detail(reason=short_text("reason", reason))
            count = writer.delete_under(conditions, writer.at_ms)
            reply = {"count": count, "op_id": writer.op_id if count else None}
            if anew:
                writer.drop_replies()
            request.keep(writer, reply)
            return reply

    def touch(self, ids: Sequence[str]) -> int:
        """Counts a reading of these memories (access_count, last_accessed, the session); how many there
        were.
        """
        with self._view() as view:
            memories = [self._find(view, id) for id in ids]
        nos = [memory.no for memory in memories if memory]
        self._count_reading(nos)
        return len(nos)

    # -- within ----------------------------------------------------------------------------------------------
    def _answered(self, request: Request) -> JSON | None:
        """As `Request.answered`, before anything is held."""
        if request.key is None:
            return None
        with self._view() as view:
            return request.answered(view)

    def _following_ms(self) -> int:
        with self._view() as view:
            return view.following_ms(self._now())

    def _draft(self, fields: dict[str, JSON], now_ms: int) -> Memory:
        columns, flags = self._screened(checked({**fields, "text": fields.get("text")}))
        columns = _said_by_now(columns, now_ms)
        said_ms = columns.get("said_ms")
        if columns.get("event_ms") is None:
            ahead_ms = 0 if said_ms is None else _ahead_ms(fields["timestamp"])
            columns |= _read_times(columns["text"], now_ms if said_ms is None else said_ms, ahead_ms)
        _check_span(columns.get("event_ms"), columns.get("event_last_ms"))
        memory = draft(columns, now_ms, self.source, self._resources.new_id)
        return memory._replace(flags=sorted(flags))

    def _placed(self, writer: Writer, memory: Memory) -> Memory:
        """The memory with its container's own id and the next place in it."""
        if memory.parent is None:
            return memory
        parent = self._must_find(writer, memory.parent)
        ordinal = writer.next_ordinal(parent.id) if memory.ordinal is None else memory.ordinal
        memory = memory._replace(parent=parent.id, ordinal=ordinal)
        return memory._replace(content_hash=content_hash(memory))

    def _twin(self, writer: Writer, memory: Memory) -> Memory | None:
        """The oldest visible memory that says the same of the same time, with nothing in its metadata that
        disagrees.
        """
        for twin in writer.same_gist(memory.gist, writer.at_ms):
            if (
                all(getattr(twin, name) == getattr(memory, name) for name in _PLACE)
                and all(twin.metadata.get(key, value) == value for key, value in memory.metadata.items())
                and _has_room(twin, memory)
            ):
                return twin
        return None

    def _supersede(self, writer: Writer, memory: Memory, ids: Sequence[str]) -> list[str]:
        replaced = []
        for id in ids:
            older = self._must_find(writer, id)
            if older.id == memory.id:
                raise BadRequest("supersedes: a memory cannot take its own place")
            if older.superseded_by == memory.id:
                continue
            if older.superseded_by is not None:
                raise Conflict(f"the memory {older.id} was superseded by {older.superseded_by} already")
            end_ms = max(memory.valid_from_ms, older.valid_from_ms)
            writer.patch(older, {"valid_to_ms": end_ms, "superseded_by": memory.id})
            replaced.append(older.id)
        return replaced


def _ahead_ms(timestamp: JSON) -> int:
    """By how much clocks are ahead of UTC where a moment was given; 0 where it does not name a zone."""
    return ahead_of_utc_ms(timestamp) if isinstance(timestamp, str) else 0


def _read_times(text: str, said_ms: int, ahead_ms: int) -> dict[str, JSON]:
    """When what a text tells of happened, as the columns of it; none where it does not say. `ahead_ms`: of
    UTC, where it was said.
    """
    span = happened(text, said_ms, ahead_ms)
    return {} if span is None else {"event_ms": span.first_ms, "event_last_ms": span.last_ms}


_NO_TIMES: dict[str, JSON] = {"event_ms": None, "event_last_ms": None}


_HOUR_MS = 3_600_000
# By how much the world's zones are ahead of UTC: whole hours, then the others (Newfoundland, India, ...).
_ZONES_MS = tuple(
    round(hours * _HOUR_MS)
    for hours in (
        *sorted(range(-12, 15), key=abs),
        *(-9.5, -3.5, -2.5, 3.5, 4.5, 5.5, 5.75, 6.5, 8.75, 9.5, 10.5, 12.75, 13.75),
    )
)


def _zone_of(memory: Memory) -> int | None:
    """By how much the zone is ahead of UTC in which a memory's days were read from its text; None: they were
    given. The zone is not kept, and days that were read are those of one of all that there are.
    """
    times = {"event_ms": memory.event_ms, "event_last_ms": memory.event_last_ms}
    for ahead_ms in _ZONES_MS:
        if _NO_TIMES | _read_times(memory.text, memory.uttered_ms, ahead_ms) == times:
            return ahead_ms
    return None


def _contained_nos(view: Reader, memories: Iterable[Memory], *, deleted: bool) -> set[int]:
    """The numbers of memories and what they contain, with those that are `deleted` or without."""
    return {
        member.no
        for memory in memories
        for member in view.with_contents(memory)
        if deleted or member.deleted_ms is None
    }


def _check_version(memory: Memory, expected: int | None) -> None:
    """Raises `Conflict` where a memory has another version than the one that was expected."""
    if expected is not None and memory.version != expected:
        raise Conflict(
            f"the memory has version {memory.version}, not {expected}: read it again",
            data={"version": memory.version},
        )


def _changed_names(memory: Memory, changes: dict[str, JSON]) -> list[str]:
    """The fields that a change makes other than they are, as callers know them."""
    differing = [name for name, value in changes.items() if getattr(memory, name) != value]
    return sorted(public_name(name) for name in differing if name != "flags")


def _followed(memory: Memory, changes: dict[str, JSON], timestamp: JSON) -> dict[str, JSON]:
    """Changes with those that follow from them. Raises `BadRequest` for a span that ends before it begins."""
    if "context" in changes and "contexts" not in changes:
        changes["contexts"] = [name for name in memory.contexts if name != changes["context"]]
    changes |= _following_times(memory, changes, timestamp)
    if "event_ms" in changes or "event_last_ms" in changes:
        revised = memory._replace(**changes)
        _check_span(revised.event_ms, revised.event_last_ms)
    return changes


def _following_times(memory: Memory, changes: dict[str, JSON], timestamp: JSON) -> dict[str, JSON]:
    """What becomes of the time at which something happened when a memory is changed so: a day that was given
    has no other end, and what was read from the text is read anew. `timestamp`: the moment as it was given.
    """
    if "event_ms" in changes:
        return {} if "event_last_ms" in changes else {"event_last_ms": None}
    if "event_last_ms" in changes or changes.keys().isdisjoint(("text", "said_ms")):
        return {}
    ahead_ms = _zone_of(memory)
    if ahead_ms is None:
        return {}
    corrected_memory = memory._replace(**changes)
    named_ms = _ahead_ms(timestamp)
    if named_ms or changes.get("said_ms", memory.uttered_ms) != memory.uttered_ms:
        ahead_ms = named_ms
    times = _NO_TIMES | _read_times(corrected_memory.text, corrected_memory.uttered_ms, ahead_ms)
    return {name: value for name, value in times.items() if getattr(memory, name) != value}


def _said_by_now(columns: dict[str, JSON], now_ms: int) -> dict[str, JSON]:
    """The columns, where something is given as said more than a day ahead: nobody has said it then. It is to
    happen then, and what is said next is later all the same.
    """
    said_ms = columns.get("said_ms")
    if said_ms is None or said_ms <= now_ms + DAY_MS:
        return columns
    others = {name: value for name, value in columns.items() if name != "said_ms"}
    return {**others, "event_ms": columns.get("event_ms") or said_ms}


def _check_span(first_ms: int | None, last_ms: int | None) -> None:
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise BadRequest("event_end: it lies before event_date")


def _hold_since(writer: Writer, memory: Memory, said_ms: int) -> dict[str, JSON]:
    """From when a memory holds, and until when, where it was said at another time than was thought; so does
    that until which what it took the place of held.
    """
    if memory.valid_from_ms != memory.uttered_ms and said_ms > memory.valid_from_ms:
        return {}  # it was said before, too
    outdated = Condition("m.superseded_by = ?", (memory.id,))
    for older in list(writer.select([UNDELETED, outdated])):
        writer.patch(older, {"valid_to_ms": max(said_ms, older.valid_from_ms)})
    following: dict[str, JSON] = {"valid_from_ms": said_ms}
    successor = writer.row(memory.superseded_by) if memory.superseded_by else None
    if successor is not None:
        following["valid_to_ms"] = max(successor.valid_from_ms, said_ms)
    return following


def _has_room(twin: Memory, memory: Memory) -> bool:
    """Whether a memory may gather what a second saying adds; else that is a memory of its own."""
    return (
        len({*twin.tags, *memory.tags}) <= MAX_TAGS
        and len({*all_contexts(twin), *all_contexts(memory)}) <= MAX_TAGS
        and fits_metadata({**twin.metadata, **memory.metadata})
    )


def _merged(writer: Writer, twin: Memory, memory: Memory) -> Memory:
    """The memory that is there, with what a second saying adds: a context, tags, metadata, a longer life, a
    later day.
    """
    known_contexts = all_contexts(twin)
    changes: dict[str, JSON] = {
        "contexts": [*twin.contexts, *(name for name in all_contexts(memory) if name not in known_contexts)],
        "tags": [*twin.tags, *(tag for tag in memory.tags if tag not in twin.tags)],
        "metadata": {**twin.metadata, **memory.metadata},
        "flags": sorted({*twin.flags, *memory.flags}),
    }
    if twin.expires_ms is not None and (memory.expires_ms is None or memory.expires_ms > twin.expires_ms):
        changes["expires_ms"] = memory.expires_ms
    repeated = writer.bank.seq != twin.seq  # else nothing was said in between, and within a day it is a retry
    if memory.uttered_ms - twin.uttered_ms > (0 if repeated else DAY_MS):
        changes["said_ms"] = memory.uttered_ms
    if memory.session and twin.session != memory.session:
        changes["session"] = None  # it is not one session's alone any more, and does not go with that
    changes["content_hash"] = content_hash(twin._replace(**changes))
    return writer.patch(twin, changes)


def _check_options(dedupe: JSON, supersedes: JSON) -> None:
    if dedupe is not None and dedupe not in DEDUPES:
        raise BadRequest(f"dedupe: one of {', '.join(DEDUPES)}")
    if not isinstance(supersedes, list | tuple) or not all(isinstance(id, str) for id in supersedes):
        raise BadRequest("supersedes: a list of ids")


def _check_items(items: Sequence[JSON], container: JSON) -> None:
    if not isinstance(items, list | tuple) or not all(isinstance(item, dict) for item in items):
        raise BadRequest("items: a list of objects, each with a text")
    if container is not None and not isinstance(container, dict):
        raise BadRequest("container: an object is needed")
    if not items and container is None:
        raise BadRequest("items: nothing to store")
    if len(items) > MAX_ITEMS:
        raise BadRequest(f"items: {len(items)} given, at most {MAX_ITEMS} in one call")


def given_name(name: str, value: JSON) -> str | None:
    """A name that a caller gives. Raises `BadRequest`."""
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= MAX_KEY_CHARS):
        raise BadRequest(f"{name}: a text of 1 to {MAX_KEY_CHARS} characters")
    return short_text(name, value)
