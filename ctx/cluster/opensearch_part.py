"""One of the two indexes in OpenSearch: the words or the vectors.

    NAME-words            the alias of the current index, `NAME-words-<8 hex digits>`
    NAME-words-building   the alias of the index that will replace it, while it is built
    NAME-vectors...       the same for the vectors

Each index stores its own state, such as the last seq applied, in the document `state`. Every document is
written with its seq as external version, so a late write (of a paused machine, or a request sent twice)
changes nothing. Writes are visible to searches after `publish`.
"""

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ctx.cluster.opensearch_client import Client, Refusal
from ctx.errors import StoreError
from ctx.models import JSON
from ctx.store.base import Catalog

PUBLISH_EVERY_S = 10.0  # the time between two publications during a long catch-up
_PUBLISHED_ENTRIES = 5_000  # documents kept in memory before they are sent
STATE = "state"  # the id of the state document; the ids of all other documents are numbers
MAX_TERMS_FILTER = 1_000_000  # the largest number of documents in a filter
_IDS_PAGE = 10_000  # the largest number of results that OpenSearch returns
_DOCUMENTS_AT_ONCE = 1_000  # documents in one search for outdated entries


class State(NamedTuple):
    """The state of an index. `applied` is the last seq applied, `owner` the name of its catalog, and `size`
    its number of documents at the last publication.
    """

    name: str
    format: int = 0
    applied: int = 0
    history: str = ""
    owner: str = ""
    model: str = ""
    size: int = 0


def action(id: int, version: int, fields: Mapping[str, JSON] | None) -> dict[str, JSON]:
    """The action for opensearch-py that writes a document to an index, or deletes it if `fields` is None.
    `version` is its seq.
    """
    action = {"_id": str(id), "version": version, "version_type": "external_gte"}
    if fields is None:
        return {"_op_type": "delete", **action}
    return {"_op_type": "index", **action, "_source": fields}


class Part:
    """The word index or the vector index, by its alias. Only one process may write at a time; others may read
    meanwhile. Raises `StoreError`.
    """

    def __init__(self, client: Client, alias: str, layout: tuple[int, int]) -> None:
        """`layout` is (number of shards, number of replicas of each shard)."""
        self._client = client
        self.alias = alias
        self.building_alias = f"{alias}-building"
        self._layout = layout

    # -- reading ------------------------------------------------------------------------------------

    def state(self, alias: str | None = None, *, hurried: bool = False) -> State | None:
        """The published state of the current index, or of the index that another alias names. None if this
        index does not exist or was not published yet.
        """
        path = f"/{alias or self.alias}/_doc/{STATE}"
        reply = self._client.ask("GET", path, missing=True, hurried=hurried)
        if reply is None:
            return None
        fields = reply["_source"][STATE].items()
        return State(reply["_index"], **{name: value for name, value in fields if name in State._fields})

    def _names_behind(self, alias: str) -> list[str]:
        """The names of the indexes that an alias points to."""
        return list(self._client.ask("GET", f"/_alias/{alias}", missing=True) or ())

    def count(self, index: str) -> int:
        """The number of published documents in an index, without the state document."""
        body = {"query": {"exists": {"field": "document_no"}}, "size": 0, "track_total_hits": True}
        # `_count` is not used, because it ignores unavailable shards.
        header = {"index": index, "allow_partial_search_results": False}
        return int(self._client.search_all([(header, body)])[0]["hits"]["total"]["value"])

    # -- making and replacing ------------------------------------------------------------------------------

    def create(self, mappings: JSON, settings: Mapping[str, JSON]) -> str:
        """Creates an empty index and returns its name. The first index answers searches at once."""
        self.drop([self.building_alias])
        answers = bool(self._names_behind(self.alias))
        name = f"{self.alias}-{os.urandom(4).hex()}"
        body = {
            "settings": {
                "index": {
                    "number_of_shards": self._layout[0],
                    "number_of_replicas": self._layout[1],
                    "refresh_interval": "-1",  # `publish` refreshes
                    "gc_deletes": "1h",  # how long the version of a deleted document is known
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
                return name  # the request was sent twice, because the first reply was lost
            if "index.knn" in error.reason or "knn_vector" in error.reason:
                raise StoreError(
                    "this OpenSearch has no k-NN plugin: install opensearch-knn, or set [embedding] provider "
                    "to disabled"
                ) from error
            raise
        return name

    def take_place(self, name: str) -> None:
        """Makes an index the current index, atomically, and deletes the former one."""
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

    def drop(self, aliases: Sequence[str] = ()) -> None:
        """Deletes the indexes behind these aliases; by default, the current index and the one being built."""
        for alias in aliases or (self.building_alias, self.alias):
            self._delete(self._names_behind(alias))

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._client.ask("DELETE", f"/{name}", missing=True)

    # -- writing ------------------------------------------------------------------------------

    def write(self, index: str, actions: Iterable[dict[str, JSON]]) -> None:
        """Writes and deletes documents. The changes are visible and durable after `publish`."""
        self._client.write(_written(index), actions)

    def retain(self, index: str, kept: Mapping[int, tuple[int, Sequence[int]]]) -> None:
        """Deletes the outdated entries of documents. `kept` maps document number -> (seq, ids of its current
        entries). Finds only entries that are already visible to searches.
        """
        numbers = sorted(kept)
        for start in range(0, len(numbers), _DOCUMENTS_AT_ONCE):
            chosen = {number: kept[number] for number in numbers[start : start + _DOCUMENTS_AT_ONCE]}
            self.write(
                index,
                (
                    action(id, chosen[number][0], None)
                    for id, number in self._ids_of(index, list(chosen))
                    if id not in chosen[number][1]
                ),
            )

    def _ids_of(self, index: str, document_nos: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(id, document number) of all entries that an index has for these documents."""
        body: dict[str, JSON] = {
            "query": {"terms": {"document_no": list(document_nos)}},
            "size": _IDS_PAGE,
            "sort": [{"chunk_no": "asc"}],
            "docvalue_fields": ["document_no"],
            "_source": False,
            "track_total_hits": False,
        }
        while True:
            hits = self._client.ask("POST", f"/{index}/_search", body)["hits"]["hits"]
            yield from ((int(hit["_id"]), int(hit["fields"]["document_no"][0])) for hit in hits)
            if len(hits) < _IDS_PAGE:
                return
            body["search_after"] = hits[-1]["sort"]

    def refresh(self, index: str) -> None:
        """Makes written documents visible to searches."""
        self._client.ask("POST", f"/{index}/_refresh", slow=True)

    def publish(self, state: State) -> State:
        """Makes written documents visible to searches, then stores the state. Returns the state with its new
        size.
        """
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
    """The writes of one catch-up, including the deletion of outdated entries of the written documents."""

    def __init__(self, part: Part, state: State, catalog: Catalog) -> None:
        self._part = part
        self._state = state
        self._catalog = catalog
        self._anew = state.applied == 0
        self._kept: dict[int, tuple[int, Sequence[int]]] = {}
        if not self._anew:
            for seq, document_no in catalog.deletions_since(state.applied):
                self.keep(document_no, seq, ())
        self._actions: list[dict[str, JSON]] = []
        self._published_s = time.monotonic()

    def put(self, actions: Sequence[dict[str, JSON]]) -> None:
        self._actions += actions
        if len(self._actions) > _PUBLISHED_ENTRIES:
            self._flush()

    def keep(self, document_no: int, seq: int, ids: Sequence[int]) -> None:
        """Records the ids of a document's current entries. `publish` deletes its other entries."""
        if not self._anew:
            self._kept[document_no] = seq, ids

    def publish_some(self, applied: int) -> None:
        """Publishes the writes up to the seq `applied`, unless the last publication was less than
        PUBLISH_EVERY_S ago.
        """
        if time.monotonic() - self._published_s > PUBLISH_EVERY_S and applied > self._state.applied:
            self.publish(applied)

    def publish(self, applied: int) -> State:
        self._flush()
        if self._kept:
            self._part.refresh(self._state.name)  # makes the outdated entries visible to `retain`
            self._part.retain(self._state.name, self._kept)
            self._kept = {}
        history = self._catalog.history(applied) or ""
        self._state = self._part.publish(self._state._replace(applied=applied, history=history))
        self._published_s = time.monotonic()
        return self._state

    def _flush(self) -> None:
        self._part.write(self._state.name, self._actions)
        self._actions = []


def _written(index: str) -> str:
    """The alias for writing to an index. A write to a missing alias is an error, but a write to a missing
    index would create the index.
    """
    return f"{index}-written"
