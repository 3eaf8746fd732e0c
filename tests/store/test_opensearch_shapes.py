"""A server that passes for OpenSearch and answers JSON of another shape: each request ends in one clear error."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_opensearch_client import ABOUT, Answer, client, node

from ctx.errors import StoreError
from ctx.store.opensearch import OpenSearchIndex
from ctx.store.opensearch_part import STATE, Layout, Part
from ctx.store.opensearch_query import FORMAT, fingerprint
from ctx.store.sqlite_catalog import SqliteCatalog
from ctx.types import JSON, Filters

FIELDS = {
    "format": FORMAT,
    "applied": 1,
    "history": "h",
    "owner": "",
    "model": "m",
    "fingerprint": fingerprint(),
    "size": 3,
}
STATES = {"docs": [{"found": True, "_index": "ctx-1", "_source": {STATE: FIELDS}}] * 2}
TOLD = re.compile("answers otherwise than OpenSearch does|OpenSearch cannot answer|could not answer")
SHAPES: list[JSON] = [
    {}, [], None, "text", 5, {"docs": 5}, {"docs": []}, {"docs": [None, None]}, {"docs": [5, {}]},
    {"docs": [{"found": True}] * 2}, {"docs": [{"error": "text"}] * 2}, {"docs": [{"error": {"type": []}}] * 2},
]  # fmt: skip
OF_SEARCHES: list[JSON] = [
    {}, None, {"responses": []}, {"responses": [None]}, {"responses": [{}]}, {"responses": [{"hits": None}]},
    {"responses": [{"hits": {"hits": [{}], "total": {}}}]}, {"responses": [{"hits": {"total": {"value": "x"}}}]},
    {"responses": [{"hits": {"hits": [{"_score": None, "fields": {}}]}}]},
    {"responses": [{"error": "text", "status": 400}]}, {"responses": [{"error": {"root_cause": 5}, "status": 400}]},
]  # fmt: skip


def requests(index: OpenSearchIndex, catalog: SqliteCatalog) -> list[Callable[[], object]]:
    """All that is asked of the engine."""
    vector = np.ones(3, np.float32)
    return [
        lambda: index.keyword("otter", Filters(), 9),
        lambda: index.definitions(["otter"], Filters(), 9),
        lambda: index.semantic(vector, Filters(), 9, model="m"),
        lambda: index.both("otter", lambda: vector, Filters(), (9, 9), model="m"),
        lambda: index.vocabulary(["otter"], ()),
        lambda: index.resembling(["otter"]),
        lambda: index.check(),
        lambda: index.server(catalog),
    ]


@pytest.mark.parametrize("shape", SHAPES, ids=json.dumps)
def test_states_of_another_shape_are_one_clear_error(tmp_path: Path, shape: JSON) -> None:
    with (
        node(lambda path: (200, ABOUT if path == "/" else shape)) as url,
        client(url, retries=0) as nodes,
        SqliteCatalog(str(tmp_path / "ctx.db")) as catalog,
    ):
        index = OpenSearchIndex(nodes, lambda: ("m", 3), writable=True)
        for ask in [*requests(index, catalog), lambda: index.catch_up(catalog)]:
            with pytest.raises(StoreError, match=TOLD):
                ask()


@pytest.mark.parametrize("shape", OF_SEARCHES, ids=json.dumps)
def test_results_of_another_shape_are_one_clear_error(tmp_path: Path, shape: JSON) -> None:
    def answer(path: str) -> tuple[int, Any]:
        return 200, {"/": ABOUT, "/_mget": STATES}.get(path, shape)

    with (
        node(answer) as url,
        client(url, retries=0) as nodes,
        SqliteCatalog(str(tmp_path / "ctx.db")) as catalog,
    ):
        index = OpenSearchIndex(nodes, lambda: ("m", 3))
        for ask in requests(index, catalog):
            with pytest.raises(StoreError, match=TOLD):
                ask()


@pytest.mark.parametrize("score", ["NaN", "Infinity", "1e999", "null"])
def test_a_score_that_is_none_ranks_nothing(score: str) -> None:
    hit = f'{{"_score": {score}, "fields": {{"chunk_no": [1], "document_no": [1], "span": [1]}}}}'
    reply = f'{{"responses": [{{"hits": {{"hits": [{hit}], "total": {{"value": 1}}}}}}]}}'.encode()
    answer: Answer = lambda path: (200, {"/": ABOUT, "/_mget": STATES}.get(path, reply))  # noqa: E731
    with node(answer) as url, client(url, retries=0) as nodes:
        index = OpenSearchIndex(nodes, lambda: ("m", 3))
        with pytest.raises(StoreError, match="answers otherwise than OpenSearch does"):
            index.keyword("otter", Filters(), 9)


@pytest.mark.parametrize(
    "shape", [{}, [], None, {"hits": {"hits": [{"_id": "a"}]}}, {"hits": 5}], ids=json.dumps
)
def test_what_is_written_beside_is_not_deleted_by_a_reply_of_another_shape(shape: JSON) -> None:
    with node(lambda path: (200, ABOUT if path == "/" else shape)) as url, client(url, retries=0) as nodes:
        part = Part(nodes, "ctx-words", Layout())
        with pytest.raises(StoreError, match="answers otherwise than OpenSearch does"):
            part.retain("ctx-1", {1: (2, [3])})
