"""One bank's handle: everything that can be done to memories, and the rules by which it is done.

The store keeps (ctx/memory/rows.py); here it is decided: what counts as the same memory, what takes another's place, what a
search shows and in which order. The embedder reads before a transaction begins, so no write waits for a model.
"""

import base64
import hashlib
import json
import logging
import re
import threading
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np

from ctx.analyze import query_counts, query_terms
from ctx.clock import now_ms
from ctx.errors import BadRequest, Conflict, CtxError, EmbeddingsDisabled, NotFound, StoreError
from ctx.memory.dates import Window, window
from ctx.memory.filters import Condition, compile_filter
from ctx.memory.records import (
    UNKNOWN,
    UPDATABLE,
    Provenance,
    check_bank_id,
    check_json,
    columns,
    content_hash,
    creation_of,
    draft,
    from_line,
    id_prefix_of,
    moment_ms,
    public_name,
    short_text,
    to_json,
    to_line,
)
from ctx.memory.reflect import Disposition, Evidence, LanguageModel, reflect
from ctx.memory.rows import (
    BankRow,
    Candidate,
    Memory,
    MemoryRows,
    Reader,
    Writer,
    canonical,
    embedding_texts,
    visible,
)
from ctx.memory.scores import WordQuery, bm25, calibration, coverage, word_query
from ctx.memory.screen import POLICIES, screen, screen_json
from ctx.memory.vectors import BankVectors, Floats, pack
from ctx.ranking import fuse, semantic_weight
from ctx.types import JSON

logger = logging.getLogger(__name__)

DEPTHS = {"low": 100, "mid": 300, "high": 1000}  # candidates each leg gives
MODES = ("hybrid", "keyword", "semantic")
DEDUPES = ("exact", "near", "off")
MAX_LIMIT = 1000
MAX_ITEMS = 1000  # of one put_many
NEAR_COSINE = 0.93  # two wordings of one statement under MiniLM; only links, so a mistake costs nothing
NEAR_WORDS = 0.8  # shared share of all terms, where there is no embedder
KIND_SAMPLE = 10  # of the nearest memories that tell whether code or prose is looked for
TIME_LIFT = 0.3  # of a memory in the time a query names: from the fourth rank to the first
RECENCY_SPAN = 0.1  # the most that age moves a rank: a tenth up or down
VECTOR_CACHE_MB = 1536
CHARS_PER_TOKEN = 4
_EMBED_BATCH = 64
_IMPORT_BATCH = 200
_ORDERS = {
    "created": "m.created_ms",
    "updated": "m.updated_ms",
    "last_accessed": "m.accessed_ms",
    "importance": "ifnull(m.importance, -1)",
    "event_date": f"ifnull(m.event_ms, {-(2**53)})",
    "ordinal": "ifnull(m.ordinal, -1)",
    "label": "ifnull(m.label, '')",
}
_GROUPS = ("kind", "type", "context", "folder", "label", "status", "session", "role")
_TAG = re.compile(r'metadata\.([^"\\.\x00-\x1f]{1,128})')
_EVERYTHING = Condition("1", ())


class Embedder(Protocol):
    """What memory needs of an embedder (ctx/embed.py)."""

    @property
    def model(self) -> str: ...

    def embed(self, texts: Sequence[str]) -> Iterable[Floats]:
        """A vector for each text, in order."""
        ...

    def embed_query(self, text: str) -> Floats: ...


class MemoryHit(NamedTuple):
    """A memory as a search found it: `score` in [0, 1] depends on nothing but query and memory; `signals` says how it came."""

    memory: Candidate
    score: float
    signals: dict[str, JSON]


class MemoryStore:
    """All banks of one catalog file. Safe from several threads and beside other processes; closes as a context manager.

    `clock` gives milliseconds since the epoch. `secrets` is what is done with a text that holds one: flag, redact, refuse, off.
    """

    def __init__(
        self,
        path: str,
        embedder: Embedder | None = None,
        clock: Callable[[], int] = now_ms,
        *,
        secrets: str = "flag",
        language_model: LanguageModel | None = None,
        vector_cache_mb: int = VECTOR_CACHE_MB,
        new_id: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        if secrets not in POLICIES:
            raise BadRequest(f"secrets: one of {', '.join(POLICIES)}")
        self.rows = MemoryRows(path)
        self.embedder = embedder
        self.clock = clock
        self.secrets = secrets
        self.language_model = language_model
        self.new_id = new_id
        self._vector_bytes = vector_cache_mb << 20
        self._vectors: OrderedDict[int, BankVectors] = OrderedDict()
        self._lock = threading.Lock()

    def __enter__(self) -> "MemoryStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.rows.close()
        with self._lock:
            self._vectors.clear()

    def bank(self, id: str, source: Provenance = UNKNOWN) -> "MemoryBank":
        """A bank's handle; the bank itself exists from its first write. Raises `BadRequest` for an id that is none."""
        return MemoryBank(self, check_bank_id(id), source)

    def banks(self) -> list[str]:
        with self.rows.reading() as reader:
            return reader.banks()

    def check(self, *, deep: bool = False) -> list[str]:
        """What is wrong with the store, a sentence each; [] is health. `deep` reads every memory's text."""
        with self.rows.reading() as reader:
            return reader.problems(deep=deep)

    def pending(self) -> int:
        """How many memories the embedder has not read (they are found by their words); 0 without an embedder."""
        if self.embedder is None:
            return 0
        with self.rows.reading() as reader:
            return len(reader.without_vectors(self.embedder.model, 1_000_000_000))

    def embed_pending(self, limit: int = 1_000_000_000) -> int:
        """Embeds memories that were stored while no embedder, or another, was there; how many."""
        if self.embedder is None:
            return 0
        done = 0
        while done < limit:
            with self.rows.reading() as reader:
                batch = reader.without_vectors(self.embedder.model, min(_EMBED_BATCH, limit - done))
                names = {
                    row.bank_no: row.bank for row in (reader.bank(name) for name in reader.banks()) if row
                }
            if not batch:
                break
            packed = self.embed_texts([memory.text for _, memory in batch])
            if not all(packed):
                break
            for bank_no in {bank_no for bank_no, _ in batch}:
                with self.rows.writing(
                    names[bank_no], "embed", self.clock(), {"tool": "embed_pending"}
                ) as writer:
                    for (owner, memory), vectors in zip(batch, packed, strict=True):
                        fresh = writer.row(bank_no, memory.id) if owner == bank_no else None
                        if fresh is not None and fresh.text == memory.text:
                            writer.embed(fresh, self.embedder.model, vectors)
            done += len(batch)
        return done

    def embed_texts(self, texts: Sequence[str]) -> list[list[bytes]]:
        """The packed vectors of each text's passages; [] for each where there is no embedder, or it failed."""
        if self.embedder is None or not texts:
            return [[] for _ in texts]
        cut = [embedding_texts(text) for text in texts]
        try:
            vectors = self.embedder.embed([passage for one in cut for passage in one])
            packed = iter([pack(np.asarray(vector, np.float32)) for vector in vectors])
        except CtxError as error:
            # A memory without a vector is found by its words, and embedded later; one not stored is lost.
            logger.warning("memory=embed outcome=%s texts=%d", error.word, len(texts))
            return [[] for _ in texts]
        return [[next(packed) for _ in one] for one in cut]

    def vectors(self, reader: Reader, bank: BankRow) -> BankVectors | None:
        """The bank's vectors in memory, brought up to date; None where none can be."""
        if self.embedder is None or (model_no := reader.model_no(self.embedder.model)) is None:
            return None
        with self._lock:
            held = self._vectors.setdefault(bank.bank_no, BankVectors())
            self._vectors.move_to_end(bank.bank_no)
            while (
                len(self._vectors) > 1
                and sum(one.size_bytes for one in self._vectors.values()) > self._vector_bytes
            ):
                self._vectors.popitem(last=False)
        held.refresh(reader, bank, model_no)
        return held


class MemoryBank:
    """One bank. Nothing it does reads or changes another; `source` is written with every change."""

    def __init__(self, store: MemoryStore, id: str, source: Provenance) -> None:
        self.id = id
        self.source = source
        self._store = store

    def with_source(self, source: Provenance) -> "MemoryBank":
        return MemoryBank(self._store, self.id, source)

    # -- the bank itself -----------------------------------------------------------------------------------------
    def exists(self) -> bool:
        """Whether anything was ever written to it."""
        with self._store.rows.reading() as reader:
            return reader.bank(self.id) is not None

    def ensure(self) -> None:
        """Makes the bank if it is not there."""
        if not self.exists():
            with self._writing("ensure"):
                pass

    def config(self) -> JSON:
        """What was configured: `mission`, `skepticism`, `literalism`, `empathy` (1 to 5) for `synthesize`; other keys are kept."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            return bank.config if bank else {}

    def configure(self, config: JSON) -> JSON:
        """Replaces the configuration; gives it back."""
        if not isinstance(config, dict):
            raise BadRequest("config: a JSON object is needed")
        check_json("config", config, 0)
        Disposition.of(config)
        with self._writing("configure") as writer:
            writer.configure(config)
        return config

    # -- writing -------------------------------------------------------------------------------------------------
    def put(
        self,
        text: str,
        *,
        dedupe: str | None = None,
        supersedes: Sequence[str] = (),
        alias: str | None = None,
        idempotency_key: str | None = None,
        **fields: JSON,
    ) -> JSON:
        """Stores a memory: `{"id", "created", "duplicate_of", "superseded", "near", "flags", "op_id"}`.

        `dedupe`: "exact" (facts' default) answers with the id of a memory that says the same, and stores nothing; "near" stores
        and links what is almost the same; "off" (the default of other kinds) only stores. `supersedes` names memories whose place
        this takes: they are kept, and found `as_of` their time. A second call with the same `idempotency_key` has the reply of
        the first. Other fields are those of `ctx.memory.records.SETTABLE`.
        """
        if dedupe is not None and dedupe not in DEDUPES:
            raise BadRequest(f"dedupe: one of {', '.join(DEDUPES)}")
        if not isinstance(supersedes, list | tuple) or not all(isinstance(one, str) for one in supersedes):
            raise BadRequest("supersedes: a list of ids")
        alias = _name_of("alias", alias)
        request = _request_hash(
            "put", {"text": text, "dedupe": dedupe, "supersedes": list(supersedes), "alias": alias, **fields}
        )
        if (known := self._known_reply(idempotency_key, request)) is not None:
            return known
        memory = self._draft({**fields, "text": text})
        dedupe = dedupe or ("exact" if memory.kind == "fact" else "off")
        [vectors] = self._store.embed_texts([memory.text])
        near = self._near(memory) if dedupe == "near" else []
        with self._writing("put") as writer:
            if (known := self._reply_in(writer, idempotency_key, request)) is not None:
                return known
            memory = self._placed(writer, memory)
            twin = None if dedupe == "off" else writer.twin(writer.bank_no, memory.content_hash, writer.at_ms)
            if twin is not None:
                memory = self._refresh_twin(writer, twin, memory)
            else:
                memory = writer.insert(memory, self._model(), vectors)
                for other, score in near:
                    writer.link(memory, other.no, score)
            if alias is not None and twin is None:
                writer.alias(memory, alias)
            replaced = self._supersede(writer, memory, supersedes)
            reply = {
                "id": memory.id,
                "created": twin is None,
                "duplicate_of": None if twin is None else twin.id,
                "superseded": replaced,
                "near": [{"id": other.id, "score": score} for other, score in near],
                "flags": memory.flags,
                "op_id": writer.op_id if writer.changed else None,
            }
            self._keep_reply(writer, idempotency_key, request, reply)
        return reply

    def put_many(
        self, items: Sequence[JSON], container: JSON | None = None, *, idempotency_key: str | None = None
    ) -> JSON:
        """Stores a container and what is in it, all or nothing: `{"id", "ids", "created", "op_id"}`.

        Each item is an object with `text` and the fields of `put`; in a container its `kind` is "message" unless it says otherwise.
        The container's text is its label unless it has one, its kind "conversation". Nothing is deduplicated.
        """
        if not isinstance(items, list | tuple) or not all(isinstance(item, dict) for item in items):
            raise BadRequest("items: a list of objects, each with a text")
        if container is not None and not isinstance(container, dict):
            raise BadRequest("container: an object is needed")
        if not items and container is None:
            raise BadRequest("items: nothing to store")
        if len(items) > MAX_ITEMS:
            raise BadRequest(f"items: {len(items)} given, at most {MAX_ITEMS} in one call")
        request = _request_hash("put_many", {"items": list(items), "container": container})
        if (known := self._known_reply(idempotency_key, request)) is not None:
            return known
        drafts: list[Memory] = []
        if container is not None:
            drafts.append(self._draft({"kind": "conversation", "text": container.get("label"), **container}))
        for ordinal, item in enumerate(items):
            inside = {} if container is None else {"kind": "message", "ordinal": ordinal}
            one = self._draft({**inside, **item})
            if container is not None:
                one = one._replace(parent=drafts[0].id)
                one = one._replace(content_hash=content_hash(one))
            drafts.append(one)
        vectors = self._store.embed_texts([one.text for one in drafts])
        with self._writing("put_many") as writer:
            if (known := self._reply_in(writer, idempotency_key, request)) is not None:
                return known
            stored = []
            for one, packed in zip(drafts, vectors, strict=True):
                placed = one if container is not None else self._placed(writer, one)
                stored.append(writer.insert(placed, self._model(), packed))
            reply = {
                "id": stored[0].id if container is not None else None,
                "ids": [one.id for one in stored[container is not None :]],
                "created": len(stored),
                "op_id": writer.op_id,
            }
            self._keep_reply(writer, idempotency_key, request, reply)
        return reply

    def update(self, id: str, patch: JSON, *, expect_version: int | None = None) -> JSON:
        """Changes fields of a memory: `{"record", "changed", "op_id"}`; what was is kept in its history.

        Raises `Conflict` where the memory has another version than expected, `NotFound`, `BadRequest`.
        """
        if not isinstance(patch, dict):
            raise BadRequest("patch: an object is needed")
        changes = columns(patch, UPDATABLE)
        flags: set[str] = set()
        for name in ("text", "metadata"):
            if name in changes:
                changes[name], found = screen_json(changes[name], self._store.secrets)
                flags |= found
        vectors = self._store.embed_texts([changes["text"]])[0] if "text" in changes else []
        with self._writing("update") as writer:
            memory = self._must_find(writer, writer.bank_no, id)
            if expect_version is not None and memory.version != expect_version:
                raise Conflict(
                    f"the memory has version {memory.version}, not {expect_version}: read it again",
                    data={"version": memory.version},
                )
            if "text" in changes or "metadata" in changes:
                kept = (
                    {}
                    if {"text", "metadata"} <= set(changes)
                    else {flag for flag in memory.flags if flag not in flags}
                )
                changes["flags"] = sorted(flags | set(kept))
            changed = sorted(
                public_name(name) for name, value in changes.items() if getattr(memory, name) != value
            )
            if changed:
                changes["content_hash"] = content_hash(memory._replace(**changes))
                changes["updated_ms"] = writer.at_ms
                fresh = writer.patch(memory, changes)
                if fresh.text != memory.text:
                    writer.put_vectors(fresh, self._model(), vectors)
                memory = fresh
                writer.touch([memory.no], self.source.session)
                memory = self._must_find(writer, writer.bank_no, memory.id)
            given = writer.aliases(writer.bank_no, [memory.no]).get(memory.no, [])
            return {
                "record": to_json(memory, self.id, given),
                "changed": [name for name in changed if name != "flags"],
                "op_id": writer.op_id if writer.changed else None,
            }

    def delete(self, id: str, *, reason: str | None = None, hard: bool = False) -> JSON:
        """Forgets a memory and what it contains: `{"count", "op_id"}`. Soft unless `hard`, which nothing brings back."""
        if not isinstance(hard, bool):
            raise BadRequest("hard: true or false")
        with self._writing("purge" if hard else "delete") as writer:
            memory = self._must_find(writer, writer.bank_no, id, deleted=hard)
            if reason is not None:
                writer.detail(reason=short_text("reason", reason))
            if not hard:
                count = writer.delete_under([Condition("m.no = ?", (memory.no,))], writer.at_ms)
            else:
                doomed = self._with_contents(writer, memory)
                count = len(doomed)
                for one in doomed:
                    writer.purge(one)
            return {"count": count, "op_id": writer.op_id}

    def delete_where(self, filter: JSON, *, reason: str | None = None) -> JSON:
        """Soft-deletes what the filter matches, with what it contains: `{"count", "op_id"}`; `undo(op_id)` brings it back."""
        condition = compile_filter(filter)
        if condition.sql == "1":
            raise BadRequest(
                'filter: an empty one would delete the whole bank; for that, give {"id": {"exists": true}}'
            )
        with self._writing("delete_where") as writer:
            if reason is not None:
                writer.detail(reason=short_text("reason", reason))
            count = writer.delete_under([visible(writer.at_ms, superseded=True), condition], writer.at_ms)
            return {"count": count, "op_id": writer.op_id if count else None}

    def undo(self, op_id: str) -> JSON:
        """Takes an operation back, as an operation of its own: `{"count", "skipped", "op_id", "undone"}`.

        What it made is deleted, what it changed or deleted is as before. Memories changed since are skipped and named; where all
        were, `Conflict`. A purge cannot be undone.
        """
        texts = self._texts_before(op_id)
        embedded = dict(zip(texts, self._store.embed_texts(list(texts.values())), strict=True))
        with self._writing("undo") as writer:
            found = writer.operation(writer.bank_no, op_id) if isinstance(op_id, str) else None
            if found is None:
                raise NotFound("no such operation in this bank")
            writer.detail(of=op_id)
            merged: dict[int, tuple[int, dict[str, JSON] | None]] = {}
            for no, version, before in writer.changes_of(writer.bank_no, found[0]):  # latest version first
                last, after = merged.get(no, (version, {}))
                merged[no] = (last, None if before is None else {**(after or {}), **before})
            rows = writer.rows(writer.bank_no, merged)
            count, skipped = 0, []
            for no, (version, before) in merged.items():
                memory = rows[no]
                if memory.version != version:
                    skipped.append(memory.id)
                elif before is None:
                    count += writer.delete_under([Condition("m.no = ?", (no,))], writer.at_ms)
                else:
                    restored = writer.patch(memory, before)
                    if restored.text != memory.text:
                        writer.put_vectors(restored, self._model(), embedded.get(no, []))
                    count += 1
            if not count:
                raise Conflict(
                    "nothing is left to take back: the memories were changed since"
                    if skipped
                    else "this operation cannot be undone",
                    data={"skipped": skipped[:20]},
                )
            return {"count": count, "skipped": sorted(skipped), "op_id": writer.op_id, "undone": op_id}

    def touch(self, ids: Sequence[str]) -> int:
        """Counts a reading of these memories (access_count, last_accessed, the session); how many were found."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            found = [self._find(reader, bank.bank_no, id) for id in ids] if bank else []
        nos = [memory.no for memory in found if memory]
        self._count_reading(nos)
        return len(nos)

    # -- reading -------------------------------------------------------------------------------------------------
    def get(self, id: str, *, include_deleted: bool = False) -> JSON | None:
        """The record of an id or alias, also of one that was superseded; None where there is none."""
        return self.get_many([id], include_deleted=include_deleted)[0]

    def get_many(self, ids: Sequence[str], *, include_deleted: bool = False) -> list[JSON | None]:
        """The records in the order asked, None for those that are not there."""
        if not isinstance(ids, list | tuple) or len(ids) > MAX_LIMIT:
            raise BadRequest(f"ids: a list of at most {MAX_LIMIT}")
        for id in ids:
            _check_id(id)
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            if bank is None:
                return [None for _ in ids]
            found = [self._find(reader, bank.bank_no, id, deleted=include_deleted) for id in ids]
            records = iter(self._records(reader, bank.bank_no, [memory for memory in found if memory]))
            return [next(records) if memory else None for memory in found]

    def children(self, id: str, *, limit: int = 1000, cursor: str | None = None) -> JSON:
        """What a container holds, in order: `{"items", "cursor"}`. Raises `NotFound`."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            parent = self._must_find(reader, bank.bank_no if bank else -1, id)
        return self.browse(
            {"parent": parent.id}, order="ordinal", limit=limit, cursor=cursor, include_superseded=True
        )

    def browse(
        self,
        filter: JSON = None,
        *,
        order: str = "-created",
        limit: int = 100,
        cursor: str | None = None,
        include_superseded: bool = False,
        as_of: JSON = None,
    ) -> JSON:
        """A page of records: `{"items", "cursor"}`; `cursor` is None on the last page. `order`: created, updated, last_accessed,
        importance, event_date, ordinal, label; with `-` in front, descending. Pages stay right while others write."""
        descending, name = order.startswith("-"), order.removeprefix("-")
        if name not in _ORDERS:
            raise BadRequest(f"order: one of {', '.join(_ORDERS)}, with '-' in front for descending")
        limit = _whole("limit", limit, 1, MAX_LIMIT)
        shown = [self._shown(as_of, include_superseded), compile_filter(filter)]
        column, sign, direction = _ORDERS[name], "<" if descending else ">", "DESC" if descending else "ASC"
        if cursor is not None:
            value, no = _open_cursor(cursor, order)
            shown.append(Condition(f"({column}, m.no) {sign} (?, ?)", (value, no)))
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            if bank is None:
                return {"items": [], "cursor": None}
            found = list(
                reader.select(bank.bank_no, shown, f"{column} {direction}, m.no {direction}", limit + 1)
            )
            more, found = len(found) > limit, found[:limit]
            records = self._records(reader, bank.bank_no, found)
        return {"items": records, "cursor": _make_cursor(order, found[-1]) if more else None}

    def count(self, filter: JSON = None, *, include_superseded: bool = False, as_of: JSON = None) -> int:
        shown = [self._shown(as_of, include_superseded), compile_filter(filter)]
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            return reader.count(bank.bank_no, shown) if bank else 0

    def stats(self, filter: JSON = None, *, group_by: str | None = None) -> JSON:
        """`{"count", "average_importance", "first_created", "last_created", "characters", "groups"}`; a group has `value` and the same.

        `group_by`: kind, type, context, folder, label, status, session, role or metadata.KEY; a group's value may be null.
        """
        column, values = _group_column(group_by)
        shown = [visible(self._store.clock()), compile_filter(filter)]
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            total = reader.summary(bank.bank_no, shown, None) if bank else []
            groups = reader.summary(bank.bank_no, shown, column, values) if bank and column else []
        whole = _summary(total[0]) if total else _summary((None, 0, None, None, None, None))
        return {**whole, "groups": [{"value": row[0], **_summary(row)} for row in groups]}

    def sessions(self, id: str) -> list[str]:
        """The sessions that wrote or read a memory or anything in it. Raises `NotFound`."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            memory = self._must_find(reader, bank.bank_no if bank else -1, id)
            assert bank is not None
            return sorted(
                {
                    session
                    for one in self._with_contents(reader, memory, bank.bank_no)
                    for session in reader.sessions(one.no)
                }
            )

    def links(self, id: str) -> list[JSON]:
        """Near duplicates of a memory, most alike first: `{"id", "score"}`. Raises `NotFound`."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            memory = self._must_find(reader, bank.bank_no if bank else -1, id)
            assert bank is not None
            return [{"id": other, "score": score} for other, score in reader.links(bank.bank_no, memory.no)]

    def history(self, id: str) -> list[JSON]:
        """Every change of a memory, oldest first: `{"version", "op", "op_id", "at", "by", "changed": {field: {"from", "to"}}}`.

        Also of a deleted one. Raises `NotFound`.
        """
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            memory = self._must_find(reader, bank.bank_no if bank else -1, id, deleted=True)
            assert bank is not None
            changes = reader.history(bank.bank_no, memory.no)
        later: dict[str, JSON] = memory._asdict()
        found = []
        for change in reversed(changes):
            changed = {
                public_name(name): {"from": value, "to": later[name]}
                for name, value in (change.before or {}).items()
                if name not in _SILENT
            }
            later = {**later, **(change.before or {})}
            found.append(
                {
                    "version": change.version,
                    "op": change.op,
                    "op_id": change.op_id,
                    "at": change.at_ms,
                    "by": change.actor,
                    "changed": changed,
                }
            )
        return found[::-1]

    def journal(self, *, after: int = 0, limit: int = 100) -> list[JSON]:
        """The bank's operations in order: `{"no", "op", "op_id", "at", "by", "detail", "hash"}`."""
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            if bank is None:
                return []
            lines = list(
                reader.journal(
                    bank.bank_no, _whole("after", after, 0, 2**53), _whole("limit", limit, 1, MAX_LIMIT)
                )
            )
        return [
            {
                "no": no,
                "op": op,
                "op_id": op_id,
                "at": at_ms,
                "by": json.loads(actor),
                "detail": json.loads(detail),
                "hash": hash,
            }
            for no, op_id, op, at_ms, actor, detail, hash in lines
        ]

    # -- searching -----------------------------------------------------------------------------------------------
    def search(
        self,
        query: str,
        *,
        limit: int = 10,
        offset: int = 0,
        mode: str = "hybrid",
        filter: JSON = None,
        min_score: float = 0.0,
        budget: str = "low",
        max_tokens: int | None = None,
        window: JSON = None,
        as_of: JSON = None,
        include_superseded: bool = False,
        order: str = "rank",
        half_life_days: float | None = None,
        explain: bool = False,
        touch: bool = False,
    ) -> JSON:
        """The memories that answer a query: `{"results": [{"record", "score", "container"?, "signals"?}], "total", "degraded"}`.

        `order`: "rank" fuses both legs (reciprocal ranks), "score" sorts by the calibrated score. `total` counts what reached
        `min_score` among the candidates of `budget` (low 100, mid 300, high 1000 from each leg), before `offset` and `limit`.
        `max_tokens` ends the page before it is exceeded (a token is four characters), but never before the first result.
        `window`: "auto" lifts what falls in a time named by the query, `{"since", "until"}` admits nothing else.
        `half_life_days` moves ranks by age, by a tenth at most. `touch` counts a reading of what is returned.
        `degraded` says why the search was less than asked: "no_embedder".
        """
        if order not in ("rank", "score"):
            raise BadRequest("order: rank or score")
        limit, offset = _whole("limit", limit, 0, MAX_LIMIT), _whole("offset", offset, 0, 100_000)
        if max_tokens is not None:
            max_tokens = _whole("max_tokens", max_tokens, 1, 10_000_000)
        least = _number("min_score", min_score, 0.0, 1.0)
        if half_life_days is not None:
            half_life_days = _number("half_life_days", half_life_days, 0.001, 1e6)
        with self._store.rows.reading() as reader:
            hits, degraded = self._hits(
                reader,
                query,
                mode=mode,
                budget=budget,
                needed=offset + limit,
                filter=filter,
                window=window,
                as_of=as_of,
                include_superseded=include_superseded,
                half_life_days=half_life_days,
            )
            hits = [hit for hit in hits if hit.score >= least]
            if order == "score":
                hits.sort(key=lambda hit: -hit.score)  # stable: equal scores keep the order of rank
            page = _within_tokens(hits[offset : offset + limit], max_tokens)
            results = self._results(reader, page, explain=explain)
        if touch and page:
            self._count_reading([hit.memory.no for hit in page])
        return {"results": results, "total": len(hits), "degraded": degraded}

    def synthesize(
        self,
        query: str,
        *,
        budget: str = "low",
        context: str | None = None,
        disposition: JSON = None,
        filter: JSON = None,
        as_of: JSON = None,
    ) -> JSON:
        """What the memories say to a question, each sentence with its evidence: see `ctx.memory.reflect.reflect`.

        `disposition` ({"mission", "skepticism", "literalism", "empathy"}) replaces what the bank configures. The same memories, query
        and clock give the same bytes.
        """
        if budget not in DEPTHS:
            raise BadRequest(f"budget: one of {', '.join(DEPTHS)}")
        if context is not None and not isinstance(context, str):
            raise BadRequest("context: a text is needed")
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            manner = Disposition.of({**(bank.config if bank else {}), **(disposition or {})})

            def find(sub_query: str, wanted: int) -> list[Evidence]:
                hits, _ = self._hits(
                    reader,
                    sub_query,
                    mode="hybrid",
                    budget="mid",
                    needed=wanted,
                    filter=filter,
                    window="auto",
                    as_of=as_of,
                )
                rows = reader.rows(bank.bank_no, [hit.memory.no for hit in hits[:wanted]]) if bank else {}
                return [_evidence(rows[hit.memory.no], hit.score) for hit in hits[:wanted]]

            return reflect(
                query,
                find,
                now_ms=self._store.clock(),
                budget=budget,
                context=context,
                disposition=manner,
                language_model=self._store.language_model,
            )

    # -- moving --------------------------------------------------------------------------------------------------
    def export(self, filter: JSON = None, *, include_deleted: bool = False) -> Iterator[str]:
        """One line of JSON for each memory, superseded ones too, oldest first; no newline at its end.

        Imported into any bank and exported again, the lines are the same bytes. The journal and the history stay.
        """
        condition = compile_filter(filter)
        shown = _EVERYTHING if include_deleted else Condition("m.deleted_ms IS NULL", ())
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            if bank is None:
                return
            for memory in reader.select(bank.bank_no, [shown, condition], "m.created_ms, m.id"):
                names = reader.aliases(bank.bank_no, [memory.no]).get(memory.no, [])
                yield to_line(memory, names, reader.sessions(memory.no))

    def import_(self, lines: Iterable[str]) -> JSON:
        """Reads an export: `{"imported", "skipped", "conflicts"}`. Batches of 200 are each all or nothing.

        A memory that is there already, the same, is skipped; another under the same id is a conflict, named and left as it is.
        Raises `BadRequest` with the number of a line that is not of an export.
        """
        imported, skipped, conflicts = 0, 0, []
        batch: list[tuple[int, str, Memory, list[str], list[str]]] = []

        def flush() -> None:
            nonlocal imported, skipped
            vectors = self._store.embed_texts([memory.text for _, _, memory, _, _ in batch])
            with self._writing("import") as writer:
                for (number, line, memory, names, sessions), packed in zip(batch, vectors, strict=True):
                    known = writer.row(writer.bank_no, memory.id)
                    if known is not None:
                        held = writer.aliases(writer.bank_no, [known.no]).get(known.no, [])
                        if to_line(known, held, writer.sessions(known.no)) == line:
                            skipped += 1
                        else:
                            conflicts.append(memory.id)
                        continue
                    stored = writer.insert(memory, self._model(), packed)
                    for name in names:
                        try:
                            writer.alias(stored, name)
                        except Conflict as error:
                            raise Conflict(f"line {number}: {error.message}") from error
                    for session in sessions:
                        writer.join_session(stored.no, session)
                    imported += 1
            batch.clear()

        for number, text in enumerate(lines, 1):
            line = text.strip()
            if not line:
                continue
            try:
                memory, names, sessions = from_line(json.loads(line))
            except (ValueError, RecursionError):
                raise BadRequest(f"line {number}: not JSON") from None
            except BadRequest as error:
                raise BadRequest(f"line {number}: {error.message}") from error
            batch.append((number, to_line(memory, names, sessions), memory, names, sessions))
            if len(batch) == _IMPORT_BATCH:
                flush()
        if batch:
            flush()
        return {"imported": imported, "skipped": skipped, "conflicts": conflicts}

    # -- within --------------------------------------------------------------------------------------------------
    def _writing(self, op: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        return self._store.rows.writing(
            self.id, op, self._store.clock(), self.source.to_json(), durable=durable
        )

    def _model(self) -> str | None:
        return self._store.embedder.model if self._store.embedder else None

    def _draft(self, fields: dict[str, JSON]) -> Memory:
        checked = columns(fields)
        if "text" not in checked:
            raise BadRequest("text: a text with at least one character is needed")
        flags: set[str] = set()
        for name in ("text", "metadata"):
            if name in checked:
                checked[name], found = screen_json(checked[name], self._store.secrets)
                flags |= found
        for name in ("label", "context"):
            if checked.get(name):
                screened = screen(checked[name], self._store.secrets)
                checked[name] = screened.text
                flags |= set(screened.flags)
        memory = draft(checked, self._store.clock(), self.source, self._store.new_id)
        return memory._replace(flags=sorted(flags))

    def _placed(self, writer: Writer, memory: Memory) -> Memory:
        """The memory with its container's own id and the next place in it."""
        if memory.parent is None:
            return memory
        parent = self._must_find(writer, writer.bank_no, memory.parent)
        ordinal = writer.next_ordinal(parent.id) if memory.ordinal is None else memory.ordinal
        memory = memory._replace(parent=parent.id, ordinal=ordinal)
        return memory._replace(content_hash=content_hash(memory))

    def _refresh_twin(self, writer: Writer, twin: Memory, memory: Memory) -> Memory:
        # What is said again lives as long as the longer of the two was to live.
        if twin.expires_ms is not None and (memory.expires_ms is None or memory.expires_ms > twin.expires_ms):
            return writer.patch(twin, {"expires_ms": memory.expires_ms})
        return twin

    def _supersede(self, writer: Writer, memory: Memory, ids: Sequence[str]) -> list[str]:
        replaced = []
        for id in ids:
            old = self._must_find(writer, writer.bank_no, id)
            if old.id == memory.id:
                raise BadRequest("supersedes: a memory cannot take its own place")
            if old.superseded_by is not None:
                if old.superseded_by == memory.id:
                    continue
                raise Conflict(f"the memory {old.id} was superseded by {old.superseded_by} already")
            writer.patch(
                old, {"valid_to_ms": max(memory.valid_from_ms, old.valid_from_ms), "superseded_by": memory.id}
            )
            replaced.append(old.id)
        return replaced

    def _near(self, memory: Memory) -> list[tuple[Candidate, float]]:
        with self._store.rows.reading() as reader:
            if reader.bank(self.id) is None:
                return []
            hits, _ = self._hits(reader, memory.text, mode="hybrid", budget="low", needed=20)
            mine = set(query_terms(memory.text))
            found = []
            for hit in hits[:20]:
                if hit.memory.kind != memory.kind:
                    continue
                theirs = set(query_terms(hit.memory.text))
                shared = len(mine & theirs) / (len(mine | theirs) or 1)
                alike = max(hit.signals.get("cosine") or 0.0, shared)
                if (hit.signals.get("cosine") or 0.0) >= NEAR_COSINE or shared >= NEAR_WORDS:
                    found.append((hit.memory, round(alike, 4)))
        return sorted(found, key=lambda pair: (-pair[1], pair[0].id))[:5]

    def _known_reply(self, key: str | None, request: str) -> JSON | None:
        if key is None:
            return None
        _name_of("idempotency_key", key)
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            return _same_request(reader.reply(bank.bank_no, key), request) if bank else None

    def _reply_in(self, writer: Writer, key: str | None, request: str) -> JSON | None:
        return None if key is None else _same_request(writer.reply(writer.bank_no, key), request)

    def _keep_reply(self, writer: Writer, key: str | None, request: str, reply: JSON) -> None:
        if key is not None:
            writer.keep_reply(key, request, reply)

    def _texts_before(self, op_id: str) -> dict[int, str]:
        with self._store.rows.reading() as reader:
            bank = reader.bank(self.id)
            found = reader.operation(bank.bank_no, op_id) if bank and isinstance(op_id, str) else None
            if bank is None or found is None:
                raise NotFound("no such operation in this bank")
            return {
                no: before["text"]
                for no, _, before in reader.changes_of(bank.bank_no, found[0])
                if before and "text" in before
            }

    def _find(self, reader: Reader, bank_no: int, id: str, *, deleted: bool = False) -> Memory | None:
        """The memory of an id, a given name or a dialect's name; not one that is deleted (unless asked) or expired."""
        _check_id(id)
        memory = reader.row(bank_no, id.lower()) or reader.row_by_alias(bank_no, id)
        if memory is None and (created_ms := creation_of(id)) is not None:
            made = reader.rows_created(bank_no, created_ms)
            memory = next(
                (one for one in made if to_json(one, self.id)["aliases"]["claude-recall"] == id), None
            )
        if memory is None and (prefix := id_prefix_of(id)) is not None:
            begun = reader.rows_with_prefix(bank_no, prefix)
            memory = begun[0] if len(begun) == 1 else None
        if memory is None or (memory.deleted_ms is not None and not deleted):
            return None
        if memory.expires_ms is not None and memory.expires_ms <= self._store.clock() and not deleted:
            return None
        return memory

    def _must_find(self, reader: Reader, bank_no: int, id: str, *, deleted: bool = False) -> Memory:
        memory = self._find(reader, bank_no, id, deleted=deleted)
        if memory is None:
            raise NotFound(f"no memory with the id '{id[:80]}'")
        return memory

    def _with_contents(self, reader: Reader, memory: Memory, bank_no: int | None = None) -> list[Memory]:
        bank_no = reader.bank_no if bank_no is None and isinstance(reader, Writer) else bank_no
        assert bank_no is not None
        found, seen = [memory], {memory.id}
        for one in found:
            for inner in reader.select(bank_no, [Condition("m.parent = ?", (one.id,))]):
                if inner.id not in seen:
                    seen.add(inner.id)
                    found.append(inner)
        return found

    def _records(self, reader: Reader, bank_no: int, memories: Sequence[Memory]) -> list[JSON]:
        given = reader.aliases(bank_no, [memory.no for memory in memories]) if memories else {}
        return [to_json(memory, self.id, given.get(memory.no, ())) for memory in memories]

    def _results(self, reader: Reader, hits: Sequence[MemoryHit], *, explain: bool) -> list[JSON]:
        bank = reader.bank(self.id)
        if bank is None or not hits:
            return []
        rows = reader.rows(bank.bank_no, [hit.memory.no for hit in hits])
        records = self._records(reader, bank.bank_no, [rows[hit.memory.no] for hit in hits])
        containers: dict[str, JSON] = {}
        for parent in {record["parent"] for record in records if record["parent"]}:
            held = reader.row(bank.bank_no, parent)
            if held is not None and held.deleted_ms is None:
                containers[parent] = self._records(reader, bank.bank_no, [held])[0]
        results = []
        for hit, record in zip(hits, records, strict=True):
            result = {"record": record, "score": hit.score}
            if record["parent"] in containers:
                result["container"] = containers[record["parent"]]
            if explain:
                result["signals"] = hit.signals
            results.append(result)
        return results

    def _shown(self, as_of: JSON, include_superseded: bool) -> Condition:
        moment = moment_ms("as_of", as_of)
        return visible(self._store.clock(), as_of_ms=moment, superseded=include_superseded)

    def _count_reading(self, nos: Sequence[int]) -> None:
        try:
            with self._writing("touch", durable=False) as writer:
                writer.touch(nos, self.source.session)
        except StoreError as error:
            # Who read what is not worth a failed recall.
            logger.warning("memory=touch outcome=%s count=%d", error.word, len(nos))

    # -- the legs ------------------------------------------------------------------------------------------------
    def _hits(
        self,
        reader: Reader,
        query: str,
        *,
        mode: str,
        budget: str,
        needed: int,
        filter: JSON = None,
        window: JSON = None,
        as_of: JSON = None,
        include_superseded: bool = False,
        half_life_days: float | None = None,
    ) -> tuple[list[MemoryHit], str | None]:
        """Everything the legs found, best rank first, and why it may be less than asked."""
        if not isinstance(query, str) or not query.strip():
            raise BadRequest("query: a text with at least one character is needed")
        if mode not in MODES:
            raise BadRequest(f"mode: one of {', '.join(MODES)}")
        if budget not in DEPTHS:
            raise BadRequest(f"budget: one of {', '.join(DEPTHS)}")
        if self._store.embedder is None and mode == "semantic":
            raise EmbeddingsDisabled("semantic search needs an embedder; none is configured")
        present_ms = self._store.clock()
        conditions = [self._shown(as_of, include_superseded), compile_filter(filter)]
        lifted, admitted = _window(window, query, present_ms)
        if admitted is not None:
            conditions.append(_in_window(admitted))
        bank = reader.bank(self.id)
        if bank is None:
            return [], None
        # One depth for all pages of a query, or a page would be ranked otherwise than the one before.
        depth = max(DEPTHS[budget], -(-needed // 1000) * 1000 if needed > DEPTHS[budget] else 0)
        counts = query_counts(query)
        frequencies = reader.frequencies(bank.bank_no, list(counts))
        asked = word_query(query, counts, frequencies, bank.live, bank.live_terms / (bank.live or 1))
        word_nos = [] if mode == "semantic" else reader.by_words(bank.bank_no, frequencies, conditions, depth)
        vector_nos: list[int] = []
        held, vector, degraded = None, None, None
        if mode != "keyword":
            held = self._store.vectors(reader, bank)
            vector = self._query_vector(query) if held is not None else None
            if self._store.embedder is None or (held is not None and vector is None):
                degraded = "no_embedder"
            if held is not None and vector is not None:
                superseded = include_superseded or as_of is not None
                vector_nos = _nearest(
                    reader, held, bank.bank_no, vector, conditions, depth, superseded=superseded
                )
        hits = self._scored(reader, bank, asked, word_nos, vector_nos, held, vector)
        if lifted is not None or half_life_days is not None:
            hits = _reweighed(hits, lifted, half_life_days, present_ms)
        return hits, degraded

    def _query_vector(self, query: str) -> Floats | None:
        assert self._store.embedder is not None
        try:
            vector = np.asarray(self._store.embedder.embed_query(query), np.float32)
        except CtxError as error:
            logger.warning("memory=embed_query outcome=%s", error.word)
            return None
        length = float(np.linalg.norm(vector))
        return vector / length if length else None

    def _scored(
        self,
        reader: Reader,
        bank: BankRow,
        asked: WordQuery,
        word_nos: Sequence[int],
        vector_nos: Sequence[int],
        held: BankVectors | None,
        vector: Floats | None,
    ) -> list[MemoryHit]:
        nos = list(dict.fromkeys((*word_nos, *vector_nos)))
        rows = reader.candidates(bank.bank_no, nos)
        stored = reader.words(bank.bank_no, nos)
        cosines = held.cosines(vector, nos) if held is not None and vector is not None else {}
        certain = calibration(self._model() or "")
        weights = {no: bm25(asked, stored.get(no, ())) for no in word_nos}
        # Ties by id: numbers differ between two files that hold the same memories.
        ranked = sorted(
            (no for no in word_nos if weights[no] > 0 and no in rows),
            key=lambda no: (-weights[no], rows[no].id),
        )
        nearest = sorted(
            (no for no in vector_nos if no in rows and no in cosines),
            key=lambda no: (-cosines[no], rows[no].id),
        )
        word_rank = {no: place for place, no in enumerate(ranked, 1)}
        vector_rank = {no: place for place, no in enumerate(nearest, 1)}
        alpha = semantic_weight(asked.query, [rows[no].text for no in nearest[:KIND_SAMPLE]], "rrf")
        ranks = fuse(
            "rrf", [(no, weights[no]) for no in ranked], [(no, cosines[no]) for no in nearest], alpha
        )
        hits = []
        for no, fused in ranks:
            memory = rows[no]
            lexical = coverage(asked, stored.get(no, ()), memory.text)
            semantic = certain(cosines[no]) if no in cosines else 0.0
            signals: dict[str, JSON] = {
                "fused": fused,
                "bm25": round(weights.get(no, 0.0), 6),
                "cosine": round(cosines[no], 6) if no in cosines else None,
                "lexical": round(lexical, 6),
                "semantic": round(semantic, 6),
                "word_rank": word_rank.get(no),
                "vector_rank": vector_rank.get(no),
            }
            hits.append(MemoryHit(memory, round(max(semantic, lexical), 6), signals))
        hits.sort(key=_by_rank)
        return hits


# -- ranking ------------------------------------------------------------------------------------------------------


def _by_rank(hit: MemoryHit) -> tuple[float, float, str]:
    return (-hit.signals["fused"], -hit.score, hit.memory.id)


def _nearest(
    reader: Reader,
    held: BankVectors,
    bank_no: int,
    vector: Floats,
    conditions: Sequence[Condition],
    depth: int,
    *,
    superseded: bool,
) -> list[int]:
    """Numbers of the nearest memories under the conditions. They are asked of the nearest first, and only where too few pass
    is the whole bank put through them."""
    for wanted in (depth, depth * 16):
        nearest = held.nearest(vector, wanted, superseded=superseded)
        passing = set(reader.numbers(bank_no, conditions, [one.no for one in nearest]))
        found = [one.no for one in nearest if one.no in passing]
        if len(found) >= depth or len(nearest) < wanted:
            return found[:depth]
    allowed = reader.numbers(bank_no, conditions)
    return [one.no for one in held.nearest(vector, depth, superseded=superseded, among=allowed)]


def _reweighed(
    hits: list[MemoryHit], lifted: Window | None, half_life_days: float | None, now_ms: int
) -> list[MemoryHit]:
    found = []
    for hit in hits:
        when_ms = hit.memory.when_ms
        factor = 1.0
        if half_life_days is not None:
            age_days = max(0.0, (now_ms - when_ms) / 86_400_000)
            factor *= 1 + RECENCY_SPAN * (2 * 0.5 ** (age_days / half_life_days) - 1)
        if lifted is not None and (lifted.first_ms or when_ms) <= when_ms <= (lifted.last_ms or when_ms):
            factor *= 1 + TIME_LIFT
        found.append(hit._replace(signals={**hit.signals, "fused": hit.signals["fused"] * factor}))
    found.sort(key=_by_rank)
    return found


def _window(value: JSON, query: str, now_ms: int) -> tuple[Window | None, Window | None]:
    """(window whose memories are lifted, window outside which nothing is shown)."""
    if value is None:
        return None, None
    if value == "auto":
        return window(query, now_ms), None
    if not isinstance(value, dict) or not set(value) <= {"since", "until"}:
        raise BadRequest('window: "auto" or {"since", "until"}')
    until = value.get("until")
    last_ms = moment_ms("window.until", until)
    if isinstance(until, str) and len(until.strip()) == 10 and last_ms is not None:
        last_ms += 86_400_000 - 1  # a bare date is the whole day
    return None, Window(moment_ms("window.since", value.get("since")), last_ms)


def _in_window(admitted: Window) -> Condition:
    when = "ifnull(m.event_ms, m.created_ms)"
    parts = []
    values: list[JSON] = []
    if admitted.first_ms is not None:
        parts.append(f"{when} >= ?")
        values.append(admitted.first_ms)
    if admitted.last_ms is not None:
        parts.append(f"{when} <= ?")
        values.append(admitted.last_ms)
    return Condition(" AND ".join(parts) or "1", tuple(values))


def _within_tokens(hits: list[MemoryHit], max_tokens: int | None) -> list[MemoryHit]:
    if max_tokens is None:
        return hits
    found: list[MemoryHit] = []
    spent = 0
    for hit in hits:
        spent += -(-len(hit.memory.text) // CHARS_PER_TOKEN)
        if found and spent > max_tokens:
            break
        found.append(hit)
    return found


def _evidence(memory: Memory, score: float) -> Evidence:
    return Evidence(
        memory.id, memory.text, memory.context, memory.event_ms, memory.created_ms, score, tuple(memory.flags)
    )


# -- small checks -------------------------------------------------------------------------------------------------

_SILENT = ("content_hash", "updated_ms")  # follow from other changes


def _whole(name: str, value: JSON, least: int, most: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadRequest(f"{name}: a whole number from {least} to {most}")
    return value


def _number(name: str, value: JSON, least: float, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise BadRequest(f"{name}: a number from {least} to {most}")
    return float(value)


def _check_id(id: JSON) -> None:
    if not isinstance(id, str) or not 0 < len(id) <= 500:
        raise BadRequest("id: a text of 1 to 500 characters is needed")
    short_text("id", id)


def _name_of(name: str, value: JSON) -> str | None:
    if value is not None and (not isinstance(value, str) or not 0 < len(value) <= 200):
        raise BadRequest(f"{name}: a text of 1 to 200 characters")
    return short_text(name, value)


def _request_hash(op: str, arguments: dict[str, JSON]) -> str:
    try:
        said = json.dumps([op, arguments], sort_keys=True, default=str)
    except (TypeError, ValueError):
        raise BadRequest(f"{op}: the arguments are not JSON") from None
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()


def _same_request(known: tuple[str, JSON] | None, request: str) -> JSON | None:
    if known is None:
        return None
    if known[0] != request:
        raise Conflict("the idempotency key was used for another request; choose a new one")
    return known[1]


def _group_column(group_by: str | None) -> tuple[str | None, tuple[JSON, ...]]:
    if group_by is None:
        return None, ()
    if group_by in _GROUPS:
        return f"m.{group_by}", ()
    match = _TAG.fullmatch(group_by) if isinstance(group_by, str) else None
    if match is None:
        raise BadRequest(f"group_by: one of {', '.join(_GROUPS)} or metadata.KEY")
    return "json_extract(m.metadata, ?)", (f'$."{match[1]}"',)


def _summary(row: Sequence[JSON]) -> dict[str, JSON]:
    _, count, mean, first_ms, last_ms, characters = row
    return {
        "count": count,
        "average_importance": None if mean is None else round(mean, 4),
        "first_created": first_ms,
        "last_created": last_ms,
        "characters": characters or 0,
    }


def _make_cursor(order: str, memory: Memory) -> str:
    name = order.removeprefix("-")
    missing: JSON = {"importance": -1, "event_date": -(2**53), "ordinal": -1, "label": ""}.get(name)
    column = {
        "created": "created_ms",
        "updated": "updated_ms",
        "last_accessed": "accessed_ms",
        "event_date": "event_ms",
    }.get(name, name)
    value = getattr(memory, column)
    return base64.urlsafe_b64encode(
        canonical([order, missing if value is None else value, memory.no]).encode()
    ).decode()


def _open_cursor(cursor: str, order: str) -> tuple[JSON, int]:
    try:
        asked, value, no = json.loads(base64.urlsafe_b64decode(cursor))
    except (ValueError, TypeError, AttributeError):
        raise BadRequest("cursor: not one that this list gave") from None
    if (
        asked != order
        or isinstance(value, list | dict)
        or isinstance(no, bool)
        or not isinstance(no, int)
        or abs(no) >= 2**63
    ):
        raise BadRequest("cursor: it belongs to a list in another order")
    if isinstance(value, int | float) and not abs(value) < 2**63:
        raise BadRequest("cursor: not one that this list gave")
    return value, no
