"""Builds the queries of ctx/store/tantivy.py in OpenSearch's query language.

Both engines compute the same scores (the same k1, b, idf and one-byte lengths) except for a constant factor.
ctx analyses the text itself and stores the terms in fields that OpenSearch only splits at spaces.
"""

import json
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

from ctx.cluster.opensearch_part import action
from ctx.models import JSON, Filters, Hit
from ctx.store.record import StoredDocument, VectorBatch
from ctx.store.tantivy import (
    ALL_WORDS_BONUS,
    ALL_WORDS_TERMS,
    HEAD_BOOST,
    MAX_PHRASES,
    PREFIX_BOOST,
    passages,
)
from ctx.text import analyze

FORMAT = 4  # the version of the fields; an index with an older version is rebuilt

SCALE = 2.2  # k1 + 1, a factor in tantivy's BM25 that Lucene leaves out
MAX_HITS = 10_000  # the largest number of results that OpenSearch returns
# The graph search asks for BEAM * k neighbours. With 1 it misses one of a hundred nearest chunks.
BEAM = 3.0
# Vectors are sent as integers of seven digits, which is the precision of the engine's 32-bit sums.
VECTOR_LENGTH = 1e7
FIELDS = ("text", "head")
_NUMBER = {"type": "long"}
_TERMS = {"type": "text", "analyzer": "whitespace"}
_KEYWORD = {"type": "keyword"}


def mappings(fields: JSON) -> JSON:
    """The field mappings of an index with these fields and those that both indexes have. Only the state is
    stored, because the catalog has the texts.
    """
    common = {"document_no": _NUMBER, "chunk_no": _NUMBER, "source": _KEYWORD, "updated_ms": _NUMBER}
    properties = {**common, "state": {"type": "object", "enabled": False}, **fields}
    return {"dynamic": "strict", "_source": {"includes": ["state"]}, "properties": properties}


WORD_MAPPINGS = mappings({"text": _TERMS, "head": _TERMS, "defines": _KEYWORD, "span": _NUMBER})
# The vector field is added with the first vector, which shows the number of dimensions.
VECTOR_MAPPINGS = mappings({})


def vector_field(dim: int) -> JSON:
    """The mapping of the vector field. It uses Lucene's engine, which is in every distribution and applies
    filters during the search.
    """
    method = {"name": "hnsw", "engine": "lucene", "parameters": {"m": 16, "ef_construction": 100}}
    field = {"type": "knn_vector", "dimension": dim, "space_type": "cosinesimil", "method": method}
    return {"vector": field}


VECTOR_SETTINGS = {"knn": True, "knn.derived_source.enabled": False}


def passage_entries(stored: StoredDocument) -> list[dict[str, JSON]]:
    """The passages of a document, as entries to write to the word index."""
    entries = []
    for passage in passages(stored):
        fields = {
            "text": [" ".join(analyze.words(text)) for text in passage.texts],
            "head": [" ".join(analyze.words(text)) for text in passage.heads],
            "defines": passage.names,
            "chunk_no": passage.chunk_no,
            "span": passage.span,
            "document_no": stored.document_no,
            "source": stored.document.source,
            "updated_ms": stored.document.updated_ms,
        }
        entries.append(action(passage.chunk_no, stored.seq, fields))
    return entries


# -- words ------------------------------------------------------------------------------


def term(field: str, value: str, boost: float = 1.0) -> JSON:
    return {"term": {field: {"value": value, "boost": boost}}}


def any_of(parts: Sequence[JSON]) -> JSON:
    return {"bool": {"should": list(parts), "minimum_should_match": 1}}


def phrase(field: str, words: Iterable[str]) -> JSON:
    """A query for words that follow each other, or for a single word."""
    words = list(words)
    if len(words) == 1:
        return term(field, words[0])
    return {"match_phrase": {field: " ".join(words)}}


def word_query(query: str, counts: dict[str, int], beginning: JSON | None) -> JSON:
    """The OpenSearch query for a text. It combines queries for any word, for all words and for quoted
    phrases; a passage gets the best of the three scores.

    `counts` maps the terms to search for to their weights. `beginning` is the query for the unfinished last
    word; None if there is none.
    """
    texts = {name: term("text", name, count) for name, count in counts.items()}
    heads = {name: term("head", name, HEAD_BOOST * count) for name, count in counts.items()}
    any_word = [*texts.values(), *heads.values()]
    if beginning is not None:
        any_word.append({"constant_score": {"filter": beginning, "boost": PREFIX_BOOST / SCALE}})
    queries = [any_of(any_word)]
    if 1 < len(counts) <= ALL_WORDS_TERMS:
        every = {"must": [*texts.values()], "should": [*heads.values()], "boost": ALL_WORDS_BONUS}
        queries.append({"bool": every})
    phrases = analyze.quoted_phrases(query)[:MAX_PHRASES]
    if phrases:
        side_by_side = [phrase(field, words) for words in phrases for field in FIELDS]
        queries.append(
            {"bool": {"must": [any_of(side_by_side)], "should": any_word, "boost": ALL_WORDS_BONUS}}
        )
    return {"dis_max": {"queries": queries}} if len(queries) > 1 else queries[0]


def exact_query(phrases: Sequence[Sequence[str]]) -> JSON:
    """A query for passages that contain all of these phrases."""
    parts = [any_of([phrase(field, words) for field in FIELDS]) for words in phrases]
    return parts[0] if len(parts) == 1 else {"bool": {"must": parts}}


def definition_query(names: Sequence[str]) -> JSON | None:
    """A query for passages whose code defines one of the names; None if no name has a letter."""
    wholes = list(dict.fromkeys(filter(None, map(analyze.whole, names))))
    return {"constant_score": {"filter": {"terms": {"defines": wholes}}}} if wholes else None


# -- filters ------------------------------------------------------------------------------


def clauses(filters: Filters) -> list[JSON]:
    """The filters as OpenSearch queries, which do not change scores."""
    parts: list[JSON] = []
    if filters.sources is not None:
        parts.append({"terms": {"source": sorted(filters.sources)}})
    bounds = {"gte": filters.since_ms, "lte": filters.until_ms}
    if bounds := {name: bound for name, bound in bounds.items() if bound is not None}:
        parts.append({"range": {"updated_ms": bounds}})
    if filters.documents is not None:
        parts.append({"terms": {"document_no": sorted(filters.documents)}})
    return parts


def search_body(query: JSON, k: int, fields: Sequence[str]) -> JSON:
    """The body of a search for the k best hits; hits with equal scores are ordered by chunk number. `fields`
    are the fields to return.
    """
    return {
        "query": query,
        "size": min(k, MAX_HITS),
        "sort": [{"_score": "desc"}, {"chunk_no": "asc"}],
        "docvalue_fields": list(fields),
        "_source": False,
        "track_total_hits": False,
    }


# -- requests and replies ------------------------------------------------------------------------------


def search_of(index: str, body: JSON, *, exact: bool) -> tuple[JSON, JSON]:
    """(header, body) of a search request. With `exact`, scores use the word counts of all shards, so that
    they do not depend on the shard of a document.

    The same query always goes to the same shard copies, because deleted documents make their counts differ.
    """
    copies = zlib.crc32(json.dumps(body["query"]).encode())
    header = {"index": index, "allow_partial_search_results": False, "preference": f"ctx{copies}"}
    return {**header, "search_type": "dfs_query_then_fetch"} if exact else header, body


def word_body(query: JSON, filters: Filters, k: int) -> JSON:
    conditions = clauses(filters)
    if conditions:
        query = {"bool": {"must": [query], "filter": conditions}}
    return search_body(query, k, ("chunk_no", "document_no", "span"))


def hits_in(replies: Sequence[JSON], factor: float, offset: float = 0.0) -> list[Hit]:
    """The results in the reply to one search; [] without a reply. `factor` and `offset` turn OpenSearch's
    score into ours.
    """
    results = []
    for hit in (hit for reply in replies for hit in reply["hits"]["hits"]):
        numbers = {field: int(values[0]) for field, values in hit["fields"].items()}
        results.append(Hit(score=hit["_score"] * factor + offset, **numbers))
    return results


def vector_body(vector: np.ndarray, filters: Filters, k: int) -> JSON:
    """A search for the k nearest vectors. The filters apply during the graph search."""
    search: dict[str, JSON] = {"vector": vector.tolist(), "k": min(int(k * BEAM), MAX_HITS)}
    conditions = clauses(filters)
    if conditions:
        search["filter"] = {"bool": {"filter": conditions}}
    return search_body({"knn": {"vector": search}}, k, ("chunk_no", "document_no"))


def vector_entries(batch: VectorBatch, version: int) -> list[dict[str, JSON]]:
    # Only the direction matters, and integers are shorter than fractions.
    vectors = np.rint(batch.vectors.astype(np.float64) * VECTOR_LENGTH).astype(np.int64).tolist()
    columns = {
        "vector": vectors,
        "chunk_no": batch.chunk_nos.tolist(),
        "document_no": batch.document_nos.tolist(),
        "source": batch.sources,
        "updated_ms": batch.updated_ms.tolist(),
    }
    rows = (dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True))
    return [action(row["chunk_no"], version, row) for row in rows]
