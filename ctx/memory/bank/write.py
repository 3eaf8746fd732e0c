"""Writing to a bank: storing, changing, forgetting, and taking back."""

from collections.abc import Iterable, Sequence

from ctx.clock import DAY_MS
from ctx.errors import BadRequest, Conflict
from ctx.memory.bank.requests import Request, given_name
from ctx.memory.bank.search import MAX_SIMILAR
from ctx.memory.bank.superseding import Superseding, check_ids, shown
from ctx.memory.bank.times import check_span, followed, hold_since, read_times, said_by_now, zone_ms
from ctx.memory.columns import MAX_TAGS, UPDATABLE, Memory, check_json, checked, fits_metadata, short_text
from ctx.memory.engine import IN_NUMBERS, listed
from ctx.memory.filters import EVERYTHING, Condition, compile_filter
from ctx.memory.gist import gist
from ctx.memory.reader import Reader, visible
from ctx.memory.records import all_contexts, content_hash, draft, public_name, to_json
from ctx.memory.reflect import Disposition
from ctx.memory.screen import SCREENED
from ctx.memory.writer import Writer
from ctx.models import JSON

DEDUPES = ("exact", "off")
MAX_ITEMS = 1000  # of one put_many
MAX_COMPARED = 20  # messages of a new conversation that are compared with others
# Besides the gist: what two memories must share to be one.
_PLACE = ("kind", "parent", "role", "type", "folder", "label", "event_ms", "document_id")


class Writing(Superseding):
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
            raise BadRequest("config: must be a JSON object")
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
        """Stores a memory: `{"id", "created", "duplicate_of", "superseded", "similar", "flags",
        "op_id", "consolidated"}`.

        `dedupe`: "exact" (the default for facts) merges a statement that is there already, and stores only
        what is new about it (a context, a tag); "off" (the default for other kinds) merges nothing.
        `similar`: up to three live memories close in meaning, closest first: `{"id", "text", "said",
        "score"}`. `supersedes` names memories that this one replaces: they are kept, and found `as_of` their
        time; `superseded` gives their texts. An id that cannot be replaced is a `BadRequest`, and nothing is
        stored. `consolidated`: the operation by which the configured language model replaced memories, else
        null. A second call with one `idempotency_key` has the reply of the first. `birth_tags` are for a
        memory that this makes. `fields`: `ctx.memory.columns.SETTABLE`.
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
        close = self.similar(memory, vectors)
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
            superseded = self._supersede(writer, memory, supersedes)
            gone = {memory.id, *(older.id for older in superseded)}
            close = [pair for pair in close if pair[0].id not in gone]
            reply = {
                "id": memory.id,
                "created": twin is None,
                "duplicate_of": None if twin is None else twin.id,
                "superseded": [shown(older) for older in superseded],
                "similar": [{**shown(older), "score": score} for older, score in close[:MAX_SIMILAR]],
                "flags": memory.flags,
                "op_id": writer.op_id if writer.changed else None,
                "consolidated": None,
            }
            request.keep(writer, reply)
        self._embedding.stored([vectors])
        return self._consolidated(reply, memory, [older for older, _ in close[:MAX_SIMILAR]])

    def _drafts(self, items: Sequence[JSON], container: JSON, now_ms: int) -> list[Memory]:
        if container is None:
            return [self._draft(item, now_ms) for item in items]
        return self._contained(items, container, now_ms)

    def put_many(
        self,
        items: Sequence[JSON],
        container: JSON = None,
        *,
        supersedes: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> JSON:
        """Stores a container and what is in it, all or nothing: `{"id", "ids", "created", "superseded",
        "similar", "op_id"}`.

        Each item is an object with `text` and the fields of `put`; in a container its `kind` is "message"
        by default. The container's text is its label unless it has one, its kind "conversation". Nothing is
        deduplicated, but with `supersedes` (containers that this one replaces, with what they hold) a
        container that is there already, the same, is not stored again. `similar`: up to three containers that
        hold something close in meaning: `{"id", "label", "text", "said", "score"}`.
        """
        _check_items(items, container)
        check_ids(supersedes)
        if supersedes and container is None:
            raise BadRequest("supersedes: of a container")
        arguments: dict[str, JSON] = {"items": list(items), "container": container}
        if supersedes:
            arguments["supersedes"] = list(supersedes)
        request = Request.of(idempotency_key, "put_many", arguments)
        if (reply := self._answered(request)) is not None:
            return reply
        drafts = self._drafts(items, container, self._following_ms())
        vectors = self._embedding.packed([memory.text for memory in drafts])
        similar = self._similar_containers(drafts, vectors) if container is not None else []
        with self._writing("put_many") as writer:
            if (reply := request.answered(writer)) is not None:
                return reply
            stored = self._same_container(writer, drafts) if supersedes else []
            ids = [memory.id for memory in stored]
            for memory, packed in zip(drafts, vectors, strict=True) if not stored else ():
                memory = memory if container is not None else self._placed(writer, memory)
                ids.append(writer.insert(memory, self._embedding.model, packed).id)
            superseded: list[Memory] = []
            if supersedes:
                superseded = self._supersede(writer, self._must_find(writer, ids[0]), supersedes)
            gone = {*ids, *(older.id for older in superseded)}
            reply = {
                "id": ids[0] if container is not None else None,
                "ids": ids[container is not None :],
                "created": 0 if stored else len(ids),
                "superseded": [shown(older) for older in superseded if older.parent is None],
                "similar": [entry for entry in similar if entry["id"] not in gone][:MAX_SIMILAR],
                "op_id": writer.op_id if writer.changed else None,
            }
            request.keep(writer, reply)
        self._embedding.stored(vectors)
        return reply

    def _similar_containers(self, drafts: Sequence[Memory], vectors: Sequence[Sequence[bytes]]) -> list[JSON]:
        """The containers of messages that are close in meaning to one of a new container, closest first."""
        best: dict[str, tuple[Memory, float]] = {}
        for message, packed in zip(drafts[1 : 1 + MAX_COMPARED], vectors[1:], strict=False):
            for older, score in self.similar(message, packed):
                if older.parent is not None and score > best.get(older.parent, (older, -1.0))[1]:
                    best[older.parent] = older, score
        with self._view() as view:
            parents = {id: parent for id in best if (parent := self._find(view, id)) is not None}
        found = [
            {**shown(older), "id": id, "label": parents[id].label, "score": score}
            for id, (older, score) in best.items()
            if id in parents and parents[id].superseded_by is None
        ]
        return sorted(found, key=lambda entry: (-entry["score"], entry["id"]))

    def _same_container(self, writer: Writer, drafts: Sequence[Memory]) -> list[Memory]:
        """An existing container equal to a new one, then its contents in order; [] if there is none."""
        parent = drafts[0]
        for twin in writer.same_gist(parent.gist, writer.at_ms):
            members = writer.with_contents(twin)
            contents = sorted(
                (member for member in members if member.parent == twin.id and member.deleted_ms is None),
                key=lambda member: member.ordinal or 0,
            )
            if all(getattr(twin, name) == getattr(parent, name) for name in ("kind", "label", "folder")) and [
                (member.role, member.text) for member in contents
            ] == [(message.role, message.text) for message in drafts[1:]]:
                return [twin, *contents]
        return []

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
            raise BadRequest("patch: must be an object")
        changes = self._screened(checked(patch, UPDATABLE))[0]
        vectors = self._embedding.packed([changes["text"]])[0] if "text" in changes else []
        with self._writing("update") as writer:
            memory = self._must_find(writer, id)
            _check_version(memory, expect_version)
            if not changes.keys().isdisjoint(SCREENED):
                changes["flags"] = self._flags_of(memory._replace(**changes))
            changes = followed(memory, said_by_now(changes, writer.at_ms), patch.get("timestamp"))
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
            following |= hold_since(writer, memory, memory._replace(said_ms=changes["said_ms"]).uttered_ms)
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
            raise BadRequest("hard, dry_run: must be true or false")
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

        A dry run only counts. A second call with one `idempotency_key` deletes nothing more. `anew`: also
        drops stored replies, so that a repeated request runs again.
        """
        condition = compile_filter(filter)
        if condition == EVERYTHING:
            raise BadRequest(
                'filter: an empty one would delete the whole bank; to do that, give {"id": {"exists": true}}'
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
        columns = said_by_now(columns, now_ms)
        said_ms = columns.get("said_ms")
        if columns.get("event_ms") is None:
            ahead_ms = 0 if said_ms is None else zone_ms(fields["timestamp"])
            columns |= read_times(columns["text"], now_ms if said_ms is None else said_ms, ahead_ms)
        check_span(columns.get("event_ms"), columns.get("event_last_ms"))
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
    check_ids(supersedes)


def _check_items(items: Sequence[JSON], container: JSON) -> None:
    if not isinstance(items, list | tuple) or not all(isinstance(item, dict) for item in items):
        raise BadRequest("items: a list of objects, each with a text")
    if container is not None and not isinstance(container, dict):
        raise BadRequest("container: must be an object")
    if not items and container is None:
        raise BadRequest("items: nothing to store")
    if len(items) > MAX_ITEMS:
        raise BadRequest(f"items: {len(items)} given, at most {MAX_ITEMS} in one call")
