"""Storing memories in a bank, and replacing older ones."""

import uuid
from collections.abc import Sequence
from operator import attrgetter

from ctx.clock import DAY_MS, ahead_of_utc_ms
from ctx.errors import BadRequest, Conflict, NotFound
from ctx.memory.bank.read import Request, given_name
from ctx.memory.bank.search import MAX_SIMILAR, Searching
from ctx.memory.columns import MAX_TAGS, Memory, check_json, checked, fits_metadata
from ctx.memory.dates import happened
from ctx.memory.filters import same
from ctx.memory.reader import UNDELETED
from ctx.memory.records import all_contexts, content_hash, draft, iso
from ctx.memory.reflect import check_disposition, judged
from ctx.memory.writer import Writer
from ctx.models import JSON

MAX_ITEMS = 1000  # items in one call of `put_many`
MAX_COMPARED = 20  # only this many messages of a new conversation are compared with older ones
CONVERSATION = "conversation"
# Two memories are merged only if their gists (`ctx.memory.language`) and these fields are equal.
_PLACE = attrgetter("kind", "parent", "role", "type", "folder", "label", "event_ms", "document_id")


class Putting(Searching):
    """The operations that store and replace memories."""

    def configure(self, config: JSON) -> JSON:
        """Replaces the bank's configuration and returns it."""
        if not isinstance(config, dict):
            raise BadRequest("config: must be a JSON object")
        check_json("config", config, 0)
        check_disposition(config)
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

        Arguments: `dedupe` "exact" (the default for facts) merges the memory into an equal one, to which it
        adds only what is new, such as contexts and tags; "off" (the default for other kinds) never merges.
        `supersedes` has the ids of memories that this one replaces. Replaced memories are kept, and a search
        with an earlier `as_of` finds them. If one cannot be replaced, nothing is stored and `BadRequest` is
        raised. A second call with the same `idempotency_key` gets the reply of the first. `birth_tags` are
        added only to a new memory, not to one that it is merged into. `fields` has the fields named in
        `ctx.memory.columns.SETTABLE`.

        Reply: `similar` has up to three live memories close in meaning, closest first: `{"id", "text",
        "said", "score"}`. `superseded` has the replaced memories with their texts. `consolidated` is the id
        of the operation by which the configured language model replaced memories, else null.
        """
        if dedupe not in (None, "exact", "off"):
            raise BadRequest("dedupe: one of exact, off")
        _check_ids(supersedes)
        alias = given_name("alias", alias)
        arguments = {"text": text, "dedupe": dedupe, "supersedes": list(supersedes), "alias": alias, **fields}
        request = Request.of(idempotency_key, "put", arguments)
        with self._view() as view:
            if (reply := request.answered(view)) is not None:  # before the text is embedded
                return reply
            now_ms = view.following_ms(self._now())
        memory = self._draft({**fields, "text": text}, now_ms)
        [vectors] = self._embedding.packed([memory.text])
        close = self.similar(memory, vectors)
        with self._writing("put") as writer:
            if (reply := request.answered(writer)) is not None:
                return reply
            memory = self._placed(writer, memory)
            merges = dedupe == "exact" if dedupe else memory.kind == "fact"
            twin = _twin(writer, memory) if merges else None
            if twin is not None:
                memory = _merged(writer, twin, memory)
            else:
                memory = memory._replace(tags=[*memory.tags, *birth_tags])
                memory = writer.insert(memory, self._embedding.model, vectors)
                if alias is not None:
                    writer.alias(memory, alias)
            superseded = self._supersede(writer, memory, supersedes)
            gone = {memory.id, *(older.id for older in superseded)}
            close = [pair for pair in close if pair[0].id not in gone][:MAX_SIMILAR]
            reply = {
                "id": memory.id,
                "created": twin is None,
                "duplicate_of": None if twin is None else twin.id,
                "superseded": list(map(_shown, superseded)),
                "similar": [{**_shown(older), "score": score} for older, score in close],
                "flags": memory.flags,
                "op_id": writer.op_id if writer.changed else None,
                "consolidated": None,
            }
            request.keep(writer, reply)
        self._embedding.stored([vectors])
        return self._consolidated(reply, memory, [older for older, _ in close])

    def _consolidated(self, reply: JSON, memory: Memory, similar: Sequence[Memory]) -> JSON:
        """With `consolidate`, asks the language model which similar memories the new one replaces.

        Replaces them in an operation of its own, after the memory was stored. Returns the updated reply.
        """
        model = self._store.language_model
        if not self._store.consolidate or model is None or not similar or memory.kind != "fact":
            return reply
        outdated = [older.id for older in judged(model, memory, similar)]
        try:
            decision = self.supersede(outdated, memory.id, op="consolidate") if outdated else None
        except (BadRequest, Conflict):  # one of the memories was changed meanwhile
            return reply
        if decision is not None:
            reply["superseded"] += decision["superseded"]
            reply["similar"] = [entry for entry in reply["similar"] if entry["id"] not in outdated]
            reply["consolidated"] = decision["op_id"]
        return reply

    def put_many(
        self,
        items: Sequence[JSON],
        container: JSON = None,
        *,
        supersedes: Sequence[str] = (),
        idempotency_key: str | None = None,
    ) -> JSON:
        """Stores several memories, all or none, and a container for them if one is given: `{"id", "ids",
        "created", "superseded", "similar", "op_id"}`.

        Each item is an object with `text` and the fields of `put`. The default `kind` of an item in a
        container is "message". A container is a memory too; by default its text is its label, and its kind
        is "conversation". `supersedes` has the ids of containers that the new one replaces, with their
        contents. Items are never merged into equal memories; but with `supersedes`, an equal container is
        not stored again. `similar` has up to three containers with contents close in meaning:
        `{"id", "label", "text", "said", "score"}`.
        """
        if not isinstance(items, list | tuple) or not all(isinstance(item, dict) for item in items):
            raise BadRequest("items: a list of objects, each with a text")
        if not isinstance(container, dict | None):
            raise BadRequest("container: must be an object")
        if not items and container is None:
            raise BadRequest("items: nothing to store")
        if len(items) > MAX_ITEMS:
            raise BadRequest(f"items: {len(items)} given, at most {MAX_ITEMS} in one call")
        _check_ids(supersedes)
        if supersedes and container is None:
            raise BadRequest("supersedes: of a container")
        arguments = {"items": list(items), "container": container}
        arguments |= {"supersedes": list(supersedes)} if supersedes else {}
        request = Request.of(idempotency_key, "put_many", arguments)
        with self._view() as view:
            if (reply := request.answered(view)) is not None:  # before the texts are embedded
                return reply
            now_ms = view.following_ms(self._now())
        if container is None:
            drafts = [self._draft(item, now_ms) for item in items]
        else:
            drafts = self._conversation(items, container, now_ms)
        vectors = self._embedding.packed([memory.text for memory in drafts])
        similar = self._similar_containers(drafts, vectors) if container is not None else []
        with self._writing("put_many") as writer:
            if (reply := request.answered(writer)) is not None:
                return reply
            stored = _same_container(writer, drafts) if supersedes else []
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
                "superseded": [_shown(older) for older in superseded if older.parent is None],
                "similar": [entry for entry in similar if entry["id"] not in gone][:MAX_SIMILAR],
                "op_id": writer.op_id if writer.changed else None,
            }
            request.keep(writer, reply)
        self._embedding.stored(vectors)
        return reply

    def _conversation(self, items: Sequence[JSON], container: JSON, now_ms: int) -> list[Memory]:
        """The new memories to store: the container, then its items."""
        parent = self._draft({"kind": CONVERSATION, "text": container.get("label"), **container}, now_ms)
        drafts = [parent]
        for ordinal, item in enumerate(items):
            memory = self._draft({"kind": "message", "ordinal": ordinal, **item}, now_ms)
            memory = memory._replace(parent=parent.id)
            drafts.append(memory._replace(content_hash=content_hash(memory)))
        return drafts

    def _similar_containers(self, drafts: Sequence[Memory], vectors: Sequence[Sequence[bytes]]) -> list[JSON]:
        """Older containers with messages close in meaning to those of a new container, closest first."""
        best: dict[str, tuple[Memory, float]] = {}
        for message, packed in zip(drafts[1 : 1 + MAX_COMPARED], vectors[1:], strict=False):
            for older, score in self.similar(message, packed):
                if older.parent is not None and score > best.get(older.parent, (older, -1.0))[1]:
                    best[older.parent] = older, score
        entries = []
        with self._view() as view:
            for id, (older, score) in best.items():
                parent = self._find(view, id)
                if parent is not None and parent.superseded_by is None:
                    entries.append({**_shown(older), "id": id, "label": parent.label, "score": score})
        return sorted(entries, key=lambda entry: (-entry["score"], entry["id"]))

    def supersede(self, ids: Sequence[str], by: str, *, op: str = "supersede") -> JSON:
        """Replaces memories by an existing one: `{"superseded": [{"id", "text", "said"}], "op_id"}`.

        Raises `BadRequest`, and replaces nothing, if an id is unknown, equal to `by`, of another kind, or
        would make a memory its own successor. Raises `Conflict` if another memory already replaced one.
        """
        _check_ids(ids)
        if not ids:
            raise BadRequest("supersede: name at least one memory to replace")
        with self._writing(op) as writer:
            memory = self._named(writer, by, "by")
            superseded = list(map(_shown, self._supersede(writer, memory, ids)))
            return {"superseded": superseded, "op_id": writer.op_id if writer.changed else None}

    def _named(self, writer: Writer, id: str, argument: str) -> Memory:
        """The memory with an id from a request. Raises `BadRequest` that names the argument."""
        try:
            return self._must_find(writer, id)
        except NotFound as error:
            raise BadRequest(f"{argument}: {error.message}") from error

    def _supersede(self, writer: Writer, memory: Memory, ids: Sequence[str]) -> list[Memory]:
        """Replaces memories and their contents by `memory`. Returns the replaced memories with these ids.

        Raises `BadRequest`, `Conflict`.
        """
        successors: set[str] = set()
        following = memory.superseded_by
        while following is not None and following not in successors:
            successors.add(following)
            following = writer.successors([following]).get(following)
        replaced = []
        for id in dict.fromkeys(ids):
            older = self._named(writer, id, "supersedes")
            if older.id == memory.id:
                raise BadRequest(f"supersedes: '{id}' is the memory itself")
            if (older.kind == CONVERSATION) != (memory.kind == CONVERSATION):
                raise BadRequest(f"supersedes: '{id}' is a {older.kind}, not a {memory.kind}")
            if older.superseded_by == memory.id:
                continue
            if older.id in successors:
                raise BadRequest(f"supersedes: '{id}' replaced this memory; undo that first")
            if older.superseded_by is not None:
                replacement = f"replaced by {older.superseded_by}; name that one"
                raise Conflict(f"supersedes: '{id}' was already {replacement}")
            for member in writer.with_contents([older]):
                if member.deleted_ms is None and member.superseded_by is None:
                    end_ms = max(memory.valid_from_ms, member.valid_from_ms)
                    writer.patch(member, {"valid_to_ms": end_ms, "superseded_by": memory.id})
            replaced.append(older)
        return replaced

    def _draft(self, fields: dict[str, JSON], now_ms: int) -> Memory:
        columns, flags = self._screened(checked({**fields, "text": fields.get("text")}))
        columns = said_by_now(columns, now_ms)
        if columns.get("event_ms") is None:
            said_ms = columns.get("said_ms")
            zone = 0 if said_ms is None else zone_ms(fields["timestamp"])
            times = read_times(columns["text"], now_ms if said_ms is None else said_ms, zone)
            columns |= times if times["event_ms"] is not None else {}
        check_span(columns.get("event_ms"), columns.get("event_last_ms"))
        memory = draft(columns, now_ms, self.source, self._memory_id or str(uuid.uuid4()))
        return memory._replace(flags=sorted(flags))

    def _placed(self, writer: Writer, memory: Memory) -> Memory:
        """The memory with its container's id, and with the next free position in it if it has none yet."""
        if memory.parent is None:
            return memory
        parent = self._must_find(writer, memory.parent)
        ordinal = writer.next_ordinal(parent.id) if memory.ordinal is None else memory.ordinal
        memory = memory._replace(parent=parent.id, ordinal=ordinal)
        return memory._replace(content_hash=content_hash(memory))


def _shown(memory: Memory) -> dict[str, JSON]:
    """The short form of a memory, for replies about another memory."""
    return {"id": memory.id, "text": memory.text, "said": iso(memory.uttered_ms)}


# -- equal memories ------------------------------------------------------------------------------------------


def _twin(writer: Writer, memory: Memory) -> Memory | None:
    """The oldest visible memory that the new one can be merged into; None if there is none.

    The two have the same gist and equal `_PLACE` fields, their metadata does not conflict, and the merged
    tags, contexts and metadata are within the limits.
    """
    for twin in writer.same_gist(memory.gist, writer.at_ms):
        if (
            _PLACE(twin) == _PLACE(memory)
            and all(twin.metadata.get(key, value) == value for key, value in memory.metadata.items())
            and len({*twin.tags, *memory.tags}) <= MAX_TAGS
            and len({*all_contexts(twin), *all_contexts(memory)}) <= MAX_TAGS
            and fits_metadata({**twin.metadata, **memory.metadata})
        ):
            return twin
    return None


def _merged(writer: Writer, twin: Memory, memory: Memory) -> Memory:
    """Merges a new memory into an equal one: adds its contexts, tags, metadata and flags, and takes over its
    expiry and said time if they are later. Returns the changed memory.
    """
    contexts = [*twin.contexts, *all_contexts(memory)]
    changes: dict[str, JSON] = {
        "contexts": [name for name in dict.fromkeys(contexts) if name != twin.context],
        "tags": list(dict.fromkeys([*twin.tags, *memory.tags])),
        "metadata": {**twin.metadata, **memory.metadata},
        "flags": sorted({*twin.flags, *memory.flags}),
    }
    if twin.expires_ms is not None and (memory.expires_ms is None or memory.expires_ms > twin.expires_ms):
        changes["expires_ms"] = memory.expires_ms
    # If false, the twin was the last write; within a day, an equal memory is then a retry.
    repeated = writer.bank.seq != twin.seq
    if memory.uttered_ms - twin.uttered_ms > (0 if repeated else DAY_MS):
        changes["said_ms"] = memory.uttered_ms
    if memory.session and twin.session != memory.session:
        changes["session"] = None  # now in several sessions, so clearing one must not delete it
    changes["content_hash"] = content_hash(twin._replace(**changes))
    return writer.patch(twin, changes)


def _same_container(writer: Writer, drafts: Sequence[Memory]) -> list[Memory]:
    """An existing container that equals a new one, followed by its contents in order; [] if there is none."""
    parent, *messages = drafts
    place_of = attrgetter("kind", "label", "folder")
    statement_of = attrgetter("role", "text")
    for twin in writer.same_gist(parent.gist, writer.at_ms):
        of_twin = [UNDELETED, same("m.parent", twin.id)]
        contents = list(writer.select(of_twin, "coalesce(m.ordinal, 0), m.no"))
        is_equal = list(map(statement_of, contents)) == list(map(statement_of, messages))
        if is_equal and place_of(twin) == place_of(parent):
            return [twin, *contents]
    return []


# -- times ---------------------------------------------------------------------------------------------------


def zone_ms(timestamp: JSON) -> int:
    """The UTC offset of a timestamp in milliseconds; 0 if it names no zone."""
    return ahead_of_utc_ms(timestamp) if isinstance(timestamp, str) else 0


def read_times(text: str, said_ms: int, ahead_ms: int) -> dict[str, JSON]:
    """The columns `event_ms` and `event_last_ms` for the time named in a text; None if it names none.

    `ahead_ms` is the speaker's UTC offset.
    """
    first_ms, last_ms = happened(text, said_ms, ahead_ms) or (None, None)
    return {"event_ms": first_ms, "event_last_ms": last_ms}


def said_by_now(columns: dict[str, JSON], now_ms: int) -> dict[str, JSON]:
    """Returns `columns`; a said time more than a day in the future is moved to the event time."""
    said_ms = columns.get("said_ms")
    if said_ms is None or said_ms <= now_ms + DAY_MS:
        return columns
    del columns["said_ms"]
    return {**columns, "event_ms": columns.get("event_ms") or said_ms}


def check_span(first_ms: int | None, last_ms: int | None) -> None:
    if first_ms is not None and last_ms is not None and last_ms < first_ms:
        raise BadRequest("event_end: must not be before event_date")


# -- arguments -----------------------------------------------------------------------------------------------


def _check_ids(ids: JSON) -> None:
    if not isinstance(ids, list | tuple) or not all(isinstance(id, str) for id in ids):
        raise BadRequest("supersedes: must be a list of ids")
