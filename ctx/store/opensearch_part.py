"""One half of the index in OpenSearch: the words, or the vectors.

    NAME-words            an alias for the index that answers, `NAME-words-<8 hex digits>`
    NAME-words-building   one for the index that will take its place, while that is built
    NAME-vectors...       likewise

What an index has applied is a document of the index itself, `state`, so that it is lost with what it tells
of. Every document is written with an external version, the seq it is of: what comes late, from a machine that
was paused or a request that was sent twice, changes nothing. Nothing is visible before `publish`.
"""

import json
import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Self

from ctx.errors import Busy, StoreError
from ctx.store.base import Catalog
from ctx.store.opensearch_client import Client, Refusal, check_items, reading
from ctx.store.rows import VectorPosition
from ctx.types import JSON

logger = logging.getLogger(__name__)

PUBLISH_EVERY_S = 10.0  # what a long catch-up has applied becomes findable that often
_PUBLISHED_ENTRIES = 5_000  # documents whose former parts are deleted at once
STATE = "state"  # the id of the document that says what is applied; the others are numbers
BULK_BYTES = 4 << 20
# Before what the server had no room for is sent again: it may be merging graphs for a minute.
BULK_PAUSES_S = (1.0, 1.0, 2.0, 3.0, 5.0, 8.0, 13.0, 21.0)
MAX_TERMS_FILTER = 1_000_000  # documents that a filter may name
_IDS_PAGE = 10_000  # the window of a search
_DOCUMENTS_AT_ONCE = 1_000  # whose former parts are looked for in one search


class Layout(NamedTuple):
    """How many shards an index has, and copies of each beside the first."""

    shards: int = 1
    replicas: int = 1


class Unfinished(NamedTuple):
    """A catch-up that is not through: up to which seq it leads, by what name, and behind which vector it goes
    on.
    """

    target: int
    history: str
    embedded: bool
    seq: int
    no: int

    @property
    def position(self) -> VectorPosition:
        return VectorPosition(self.embedded, self.seq, self.no)


class State(NamedTuple):
    """What an index has applied. `owner`: whose catalog it is of; `size`: how many documents it had when
    published; `unfinished`: what it has beyond `applied`, of which nothing is published.
    """

    name: str
    format: int
    applied: int
    history: str
    owner: str
    model: str
    fingerprint: str
    size: int
    unfinished: Unfinished | None = None

    @classmethod
    def of(cls, index: str, fields: Mapping[str, JSON]) -> Self:
        """From a state document; what lacks a field is of format 0, which nobody reads."""
        try:
            return cls(
                index,
                int(fields["format"]),
                int(fields["applied"]),
                str(fields["history"]),
                str(fields["owner"]),
                str(fields["model"]),
                str(fields["fingerprint"]),
                int(fields["size"]),
                Unfinished(*fields["unfinished"]) if fields.get("unfinished") else None,
            )
        except (KeyError, TypeError, ValueError):
            return cls(index, 0, 0, "", str(fields.get("owner", "")), "", "", 0)

    @classmethod
    def published(cls, entry: JSON) -> Self | None:
        """That in a reply of `_mget`; None where there is none, or nothing was published yet."""
        if not entry.get("found"):
            return None
        state = cls.of(entry["_index"], entry["_source"][STATE])
        return None if state.unfinished and not state.applied else state


class Entry(NamedTuple):
    """A document to write, or to delete where `fields` is None, as of a seq."""

    id: int
    version: int
    fields: Mapping[str, JSON] | None


class Part:
    """One half, by its alias. Everything but reading is for one writer at a time. Raises `StoreError`."""

    def __init__(self, client: Client, alias: str, layout: Layout) -> None:
        self._client = client
        self.alias = alias
        self.building_alias = f"{alias}-building"
        self._layout = layout

    # -- what is there ------------------------------------------------------------------------------

    @reading()
    def state(self, *, building: bool = False) -> State | None:
        """What the index that answers, or the one that is built, has applied; None where there is none."""
        alias = self.building_alias if building else self.alias
        reply = self._client.ask("GET", f"/{alias}/_doc/{STATE}", missing=True)
        if reply is not None and reply.get("found"):
            return State.of(reply["_index"], reply["_source"].get(STATE) or {})
        names = self._names_behind(alias)
        return State(names[0], 0, 0, "", "", "", "", 0) if names else None

    @reading()
    def _names_behind(self, alias: str) -> list[str]:
        """The indices that an alias leads to."""
        return list(self._client.ask("GET", f"/_alias/{alias}", missing=True) or ())

    @reading()
    def count(self, index: str) -> int:
        """How many documents an index has, its state apart; of what was published."""
        body = {"query": {"exists": {"field": "document_no"}}, "size": 0, "track_total_hits": True}
        # Not `_count`, which counts what is there of an index where shards are on no node.
        header = {"index": index, "allow_partial_search_results": False}
        return int(self._client.search_all([(header, body)])[0]["hits"]["total"]["value"])

    # -- making and replacing ------------------------------------------------------------------------------

    def create(self, mappings: JSON, settings: Mapping[str, JSON]) -> str:
        """A new, empty index; it answers at once where nothing does yet, else it is the one that is built.
        Its name.
        """
        self.drop_building()
        answers = bool(self._names_behind(self.alias))
        name = f"{self.alias}-{os.urandom(4).hex()}"
        body = {
            "settings": {
                "index": {
                    "number_of_shards": self._layout.shards,
                    "number_of_replicas": self._layout.replicas,
                    "refresh_interval": "-1",  # what is written is seen when it is published
                    "gc_deletes": "1h",  # for which the version of what was deleted is known
                    "max_terms_count": MAX_TERMS_FILTER,
                    **settings,
                }
            },
            "mappings": mappings,
            "aliases": {self.building_alias if answers else self.alias: {}, _written(name): {}},
        }
        try:
            self._client.ask("PUT", f"/{name}", body, slow=True)
        except Refusal as error:
            if error.kind == "resource_already_exists_exception":
                return name  # sent twice: the first answer was lost
            if "index.knn" in error.reason or "knn_vector" in error.reason:
                raise StoreError(
                    "this OpenSearch has no k-NN plugin: install opensearch-knn, or set [embedding] provider "
                    "to disabled"
                ) from error
            raise
        return name

    def add_fields(self, index: str, fields: JSON) -> None:
        """Adds fields to an index; nothing where it has them."""
        self._client.ask("PUT", f"/{index}/_mapping", {"properties": fields})

    def take_place(self, name: str) -> None:
        """Has an index answer in place of the one that did, in one step, and deletes that. Nothing where it
        does already.
        """
        former = self._names_behind(self.alias)
        if former == [name]:
            return
        actions: list[JSON] = [
            *({"remove": {"index": index, "alias": self.alias}} for index in former if index != name),
            {"remove": {"index": name, "alias": self.building_alias, "must_exist": False}},
            {"add": {"index": name, "alias": self.alias}},
        ]
        self._client.ask("POST", "/_aliases", {"actions": actions}, slow=True)
        self._delete(index for index in former if index != name)

    def drop_building(self) -> None:
        """Deletes what was begun and will not be finished."""
        self._delete(self._names_behind(self.building_alias))

    def drop(self) -> None:
        """Deletes all of this half."""
        self.drop_building()
        self._delete(self._names_behind(self.alias))

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._client.ask("DELETE", f"/{name}", missing=True)

    # -- writing ------------------------------------------------------------------------------

    def write(self, index: str, entries: Iterable[Entry]) -> None:
        """Writes and deletes, a few megabytes a request. Seen, and durable, after `publish`."""
        lines: list[str] = []
        size = 0
        for entry in entries:
            action = {"_id": str(entry.id), "version": entry.version, "version_type": "external_gte"}
            if entry.fields is None:
                lines.append(_json({"delete": action}) + "\n")
            else:
                lines.append(f"{_json({'index': action})}\n{_json(entry.fields)}\n")
            size += len(lines[-1])
            if size > BULK_BYTES:
                self._send(index, lines)
                lines, size = [], 0
        if lines:
            self._send(index, lines)

    def _send(self, index: str, lines: list[str]) -> None:
        """Raises `Busy` where the server has no room for long."""
        for pause_s in BULK_PAUSES_S:
            lines = self._try(index, lines)
            if not lines:
                return
            time.sleep(pause_s)
        if self._try(index, lines):
            raise Busy("OpenSearch has had no room for what was to be written: try again")

    def _try(self, index: str, lines: list[str]) -> list[str]:
        """Sends lines once; those for which the server had no room."""
        try:
            reply = self._client.send(f"/{_written(index)}/_bulk?require_alias=true", "".join(lines))
        except Busy:
            return lines
        return [lines[position] for position in check_items(reply)]

    def retain(self, index: str, kept: Mapping[int, tuple[int, Sequence[int]]]) -> None:
        """Deletes what an index has of documents beside what they have now: number -> (seq, ids). Sees what
        was published.

        What is deleted has an older version than the seq.
        """
        numbers = sorted(kept)
        for start in range(0, len(numbers), _DOCUMENTS_AT_ONCE):
            chosen = {number: kept[number] for number in numbers[start : start + _DOCUMENTS_AT_ONCE]}
            self.write(
                index,
                (
                    Entry(id, chosen[number][0], None)
                    for id, number in self._ids_of(index, list(chosen))
                    if id not in chosen[number][1]
                ),
            )

    def _ids_of(self, index: str, document_nos: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(id, document) of everything that an index has of documents."""
        body: dict[str, JSON] = {
            "query": {"terms": {"document_no": list(document_nos)}},
            "size": _IDS_PAGE,
            "sort": [{"chunk_no": "asc"}],
            "docvalue_fields": ["document_no"],
            "_source": False,
            "track_total_hits": False,
        }
        while True:
            with reading():
                hits = self._client.ask("POST", f"/{index}/_search", body)["hits"]["hits"]
                numbers = [(int(hit["_id"]), int(hit["fields"]["document_no"][0])) for hit in hits]
                if len(hits) >= _IDS_PAGE:
                    body["search_after"] = hits[-1]["sort"]
            yield from numbers
            if len(numbers) < _IDS_PAGE:
                return

    def refresh(self, index: str) -> None:
        """Has searches see what was written."""
        self._client.ask("POST", f"/{index}/_refresh", slow=True)

    def publish(self, state: State, *, written: bool = True) -> State:
        """Has searches see what was written, if anything was, then says what is applied. The state with its
        size.
        """
        if written:
            self.refresh(state.name)
            state = state._replace(size=self.count(state.name))
        fields = state._asdict()
        del fields["name"]
        path = f"/{_written(state.name)}/_doc/{STATE}?require_alias=true&version_type=external_gte"
        try:
            self._client.ask("PUT", f"{path}&version={state.applied}", {STATE: fields})
        except Refusal as error:
            if error.status != 409:
                raise
            raise StoreError("the index has been brought further by another machine meanwhile") from error
        return state


class Writing:
    """What a catch-up writes to an index, and what it deletes: the former parts of what it wrote."""

    def __init__(self, part: Part, state: State, catalog: Catalog) -> None:
        self._part = part
        self._state = state
        self._catalog = catalog
        self._anew = state.applied == 0
        self._kept: dict[int, tuple[int, Sequence[int]]] = {}
        if not self._anew:
            for seq, document_no in catalog.deletions_since(state.applied):
                self.keep(document_no, seq, ())
        self._entries: list[Entry] = []
        self._written = self._anew or state.unfinished is not None
        self._published_s = time.monotonic()

    def put(self, entries: Sequence[Entry]) -> None:
        self._entries += entries
        if len(self._entries) > _PUBLISHED_ENTRIES:
            self._flush()

    def keep(self, document_no: int, seq: int, ids: Sequence[int]) -> None:
        """Notes which parts a document has as of a seq; others are deleted."""
        if not self._anew:
            self._kept[document_no] = seq, ids

    def publish_some(self, applied: int) -> None:
        """Publishes what is there, all up to a seq, if it is time to."""
        if time.monotonic() - self._published_s > PUBLISH_EVERY_S and applied > self._state.applied:
            self.publish(applied)

    def keep_position(self, target: int, position: VectorPosition) -> None:
        """Notes how far a long catch-up has come, if it is time to: after a failure it goes on from there."""
        if time.monotonic() - self._published_s > PUBLISH_EVERY_S:
            self._flush()
            unfinished = Unfinished(target, self._catalog.history(target) or "", *position)
            history = self._catalog.history(self._state.applied) or ""
            self._part.publish(self._state._replace(history=history, unfinished=unfinished), written=False)
            self._published_s = time.monotonic()

    def publish(self, applied: int) -> State:
        self._flush()
        if self._kept:
            self._part.refresh(self._state.name)  # so that former parts are found
            self._part.retain(self._state.name, self._kept)
            self._kept = {}
        history = self._catalog.history(applied) or ""
        state = self._state._replace(applied=applied, history=history, unfinished=None)
        self._state = self._part.publish(state, written=self._written)
        self._written = False
        self._published_s = time.monotonic()
        return self._state

    def _flush(self) -> None:
        self._written = self._written or bool(self._entries or self._kept)
        self._part.write(self._state.name, self._entries)
        self._entries = []


def _written(index: str) -> str:
    """The alias by which an index is written: a name that nothing has is then an error and makes no index."""
    return f"{index}-written"


def _json(value: JSON) -> str:
    return json.dumps(value, separators=(",", ":"))
