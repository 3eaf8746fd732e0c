"""The index in OpenSearch: it ranks as the embedded engine does, follows the catalog, and outlives what
happens to it.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import opensearch
import pytest
from store_tree import DIM, MODEL, WORDS, embed_pending, make, pending_texts, places, tree, vector_of

from ctx.cluster.opensearch import OpenSearchIndex
from ctx.cluster.opensearch_client import Client
from ctx.cluster.opensearch_part import Part, action
from ctx.config.settings import Index
from ctx.errors import StoreError
from ctx.models import Filters, Hit
from ctx.store.base import Catalog
from ctx.store.index import LocalIndex
from ctx.store.record import VectorBatch
from ctx.store.sqlite import SqliteCatalog

pytestmark = pytest.mark.cluster

ALL = Filters()
DEPTH = 100
OPEN = Callable[..., OpenSearchIndex]


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    with SqliteCatalog(str(tmp_path / "ctx.db")) as opened:
        yield opened


@pytest.fixture
def opened(opensearch_url: str, index_name: str) -> Iterator[OPEN]:
    """Opens an index of the test's own name."""
    client = Client(Index(url=opensearch_url, max_retries=1))

    def open_index(model: str | None = MODEL, **options: Any) -> OpenSearchIndex:
        options = {"layout": (1, 0), **options}
        return OpenSearchIndex(client, lambda: model, name=index_name, **options)

    yield open_index
    client.close()


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalIndex]:
    with LocalIndex(str(tmp_path / "index"), lambda: MODEL) as index:
        yield index


def numbers(hits: Sequence[Hit]) -> list[tuple[int, int, int]]:
    return [(hit.chunk_no, hit.document_no, hit.span) for hit in hits]


def corpus(count: int) -> list[Any]:
    """Documents of words that come as often as words do, with names in them."""
    source = random.Random(7)
    words = [f"{first}{second}" for first in WORDS for second in ("", "s", "ing", "er", "like")]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    names = ["getUserName", "parse_config", "os.path.join", "HTTPServer", "naïve", "東京入門"]
    documents = []
    for number in range(count):
        paragraphs = [
            " ".join([*source.choices(words, weights, k=source.randint(5, 120)), source.choice(names)])
            for _ in range(source.randint(1, 4))
        ]
        defining = number % 7 == 0
        if defining:
            paragraphs.append(f"class {source.choice(names[:2])}:\n    def {source.choice(WORDS)}():")
        path = f"{source.choice(WORDS)}/{number}.{'py' if defining else 'md'}"
        documents.append(make("git:a" if number % 3 else "b", path, paragraphs))
    return documents


QUERIES = [
    *("otter", "copper lantern", "meadows of amber", "granite violet thistle ember", "getUserName"),
    *("parse_config otter", "os.path.join", '"copper lantern"', '"walnut"', 'linen "amber cedar" juniper'),
    *(
        "naive",
        "東京",
        "cedarlike pebbles swimming",
        "nothing-has-this",
        "the of and",
        "marble marble cobalt",
    ),
    " ".join(f"{word}s {word}ing" for word in WORDS),  # more terms than are looked for
]


@pytest.mark.parametrize("shards", [1, 3])
def test_it_ranks_as_the_embedded_engine_to_depth_100(
    catalog: SqliteCatalog, local: LocalIndex, opened: OPEN, shards: int
) -> None:
    catalog.put_documents(corpus(240))
    embed_pending(catalog)
    index = opened(layout=(shards, 0))
    for each in (local, index):
        each.catch_up(catalog)
    narrow = Filters(sources=frozenset({"git:a"}), documents=frozenset(range(1, 150)))
    for filters in (ALL, narrow):
        for query in QUERIES:
            hits, expected = (each.keyword(query, filters, DEPTH) for each in (index, local))
            assert numbers(hits) == numbers(expected), query
            assert [hit.score for hit in hits] == pytest.approx([hit.score for hit in expected], rel=1e-5)
        names = ["getUserName", "parse_config"]
        defining = numbers(local.definitions(names, filters, 9))
        assert numbers(index.definitions(names, filters, 9)) == defining != []
        neighbours, exact = (
            each.semantic(vector_of(b"probe"), filters, DEPTH, MODEL) for each in (index, local)
        )
        assert len(set(numbers(neighbours)) & set(numbers(exact))) >= 0.95 * len(exact)
        assert neighbours[0].score == pytest.approx(exact[0].score, abs=1e-6)
    terms = ["otter", "amber", "lantern", "getusernam", "absent"]
    names = ["get_user_name", "parse_config", "otter_amber"]
    rarity, defined = index.vocabulary(terms, names)
    assert (rarity, defined) == (pytest.approx(local.vocabulary(terms, names)[0]), names[:2])
    assert local.vocabulary(terms, names)[1] == names[:2]
    misspelt = ["ottar", "coppar", "walnut", "walnuts"]
    assert index.resembling(misspelt) == local.resembling(misspelt)
    assert local.resembling(misspelt) is not None
    assert index.resembling(["zzzz"]) is None


def test_an_unfinished_word_finds_what_it_may_become(catalog: SqliteCatalog, opened: OPEN) -> None:
    catalog.put_documents(
        [make("a", "x.md", ["the authentication of a user"]), make("a", "y.md", ["the author"])]
    )
    index = opened(model=None)
    index.catch_up(catalog)
    assert places(catalog, [hit.chunk_no for hit in index.keyword("authenti", ALL, 9)]) == []
    for unfinished in ("authenti", "authenticatio"):
        hits = index.keyword(unfinished, ALL, 9, prefix=True)
        assert [source_id for _, source_id, _ in places(catalog, [hit.chunk_no for hit in hits])] == [
            "x.md"
        ], unfinished
    assert len(index.keyword("autho", ALL, 9, prefix=True)) == 1
    assert index.keyword("authenti ", ALL, 9, prefix=True) == []


def test_a_deleted_index_is_rebuilt_without_embedding_anything(
    catalog: SqliteCatalog, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    catalog.put_documents(list(tree(1).values()))
    embed_pending(catalog)
    index = opened()
    index.catch_up(catalog)
    before = [index.keyword("otter", ALL, 50), index.semantic(vector_of(b"q"), ALL, 50, MODEL)]
    opensearch.forget(opensearch_url, index_name)
    after = opened()
    assert (after.applied_seq(), after.keyword("otter", ALL, 50)) == (0, [])
    assert after.catch_up(catalog) == catalog.seq()
    assert [numbers(hits) for hits in before] == [
        numbers(after.keyword("otter", ALL, 50)),
        numbers(after.semantic(vector_of(b"q"), ALL, 50, MODEL)),
    ]


def test_what_is_gone_from_a_document_is_gone_from_the_index(
    catalog: SqliteCatalog, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    long = ["otter " * 300, "heron " * 300, "vole " * 300, "badger " * 300]
    catalog.put_documents([make("a", "x.md", long), make("a", "y.md", ["otter"])])
    embed_pending(catalog)
    index = opened()
    index.catch_up(catalog)
    catalog.put_documents([make("a", "x.md", ["heron"])])
    catalog.delete_documents("a", ["y.md"])
    embed_pending(catalog)
    index.catch_up(catalog)
    assert index.keyword("otter", ALL, 9) == []
    assert len(index.keyword("heron", ALL, 9)) == len(index.semantic(vector_of(b"q"), ALL, 9, MODEL)) == 1
    query = {"query": {"exists": {"field": "document_no"}}}
    counts = [
        opensearch.ask(opensearch_url, "POST", f"/{index_name}-{half}/_count", query)["count"]
        for half in ("words", "vectors")
    ]
    assert counts == [1, 1]


def test_another_history_is_built_beside_the_index_that_answers(
    catalog: SqliteCatalog, tmp_path: Path, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    opened(owner=lambda: "both").catch_up(catalog)
    aliases = opensearch.ask(opensearch_url, "GET", f"/_alias/{index_name}-words")
    with SqliteCatalog(str(tmp_path / "restored.db")) as restored:
        restored.put_documents([make("a", "y.md", ["heron"])])
        index = opened(owner=lambda: "both")
        assert index.keyword("otter", ALL, 9)
        assert index.catch_up(restored) == restored.seq()
        assert not index.keyword("otter", ALL, 9)
        assert index.keyword("heron", ALL, 9)
    indices = opensearch.ask(opensearch_url, "GET", f"/_alias/{index_name}-words")
    assert len(indices) == 1
    assert indices.keys() != aliases.keys()
    assert len(opensearch.ask(opensearch_url, "GET", f"/{index_name}-words*")) == 1


def test_the_index_of_another_catalog_is_left_alone_until_it_is_given_up(
    catalog: SqliteCatalog, tmp_path: Path, opened: OPEN
) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    opened(owner=lambda: "ours").catch_up(catalog)
    with SqliteCatalog(str(tmp_path / "theirs.db")) as theirs:
        theirs.put_documents([make("a", "y.md", ["heron"])])
        index = opened(owner=lambda: "theirs")
        with pytest.raises(StoreError, match=r"another catalog: choose another \[index\] name"):
            index.catch_up(theirs)
        assert "another catalog" in index.check()[0]
        with pytest.raises(StoreError, match="another catalog"):
            index.catch_up(theirs)  # a server that looks through its index
        assert opened(owner=lambda: "ours").keyword("otter", ALL, 9)
        index.adopt()  # `ctx doctor --fix`
        index.catch_up(theirs)
        assert index.keyword("heron", ALL, 9)
        assert index.check() == []


def test_the_index_of_another_catalog_answers_nothing(
    catalog: SqliteCatalog, tmp_path: Path, opened: OPEN
) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    embed_pending(catalog)
    opened(owner=lambda: "ours").catch_up(catalog)
    index = opened(owner=lambda: "theirs")  # whose documents have the same numbers
    asks = (
        lambda: index.keyword("otter", ALL, 9),
        lambda: index.semantic(vector_of(b"q", DIM), ALL, 9, MODEL),
        lambda: index.vocabulary(["otter"], ()),
    )
    for ask in asks:
        with pytest.raises(StoreError, match="another catalog"):
            ask()
    assert index.applied_seq() == 0
    assert index.published_model() is None


def test_a_new_model_takes_over_when_its_vectors_are_there(catalog: SqliteCatalog, opened: OPEN) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    embed_pending(catalog)
    index = opened()
    index.catch_up(catalog)
    assert index.published_model() == MODEL
    catalog.put_embeddings("new/model", [(hashed, vector_of(hashed, 8)) for hashed, _ in _texts(catalog)])
    later = opened("new/model")
    later.catch_up(catalog)
    assert later.published_model() == "new/model"
    assert len(later.semantic(vector_of(b"q", 8), ALL, 9, "new/model")) == 1
    assert index.semantic(vector_of(b"q"), ALL, 9, MODEL) == []  # a question that was under way


def _texts(catalog: Catalog) -> list[tuple[bytes, str]]:
    return pending_texts(catalog, "new/model", 10)


def test_what_a_paused_machine_writes_late_changes_nothing(
    catalog: SqliteCatalog, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    index = opened(model=None)
    index.catch_up(catalog)
    client = Client(Index(url=opensearch_url))
    part = Part(client, f"{index_name}-words", (1, 0))
    state = part.state()
    assert state is not None
    catalog.put_documents([make("a", "x.md", ["heron"])])
    index.catch_up(catalog)
    hit = index.keyword("heron", ALL, 9)[0]
    part.write(state.name, [action(hit.chunk_no, 1, {"text": ["late"], "document_no": 1, "chunk_no": 1})])
    part.write(state.name, [action(hit.chunk_no, 1, None)])
    part.refresh(state.name)
    assert index.keyword("late", ALL, 9) == []
    assert index.keyword("heron", ALL, 9) == [hit]
    with pytest.raises(StoreError, match="further by another machine"):
        part.publish(state)
    client.close()


class BrokenOff(SqliteCatalog):
    """A catalog that fails after so many batches of vectors."""

    batches = 1 << 30

    def vectors_since(self, model: str, seq: int) -> Iterator[VectorBatch]:
        for number, batch in enumerate(super().vectors_since(model, seq)):
            if number == self.batches:
                raise StoreError("the database broke off")
            yield batch


@pytest.mark.parametrize("before", [0, 10], ids=["from nothing", "from what is published"])
def test_vectors_that_were_given_up_are_completed_by_the_next_run(
    opened: OPEN, local: LocalIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: int
) -> None:
    monkeypatch.setattr("ctx.store.embeddings._VECTORS", 4)
    with BrokenOff(str(tmp_path / "broken.db")) as catalog:
        if before:
            catalog.put_documents([make("a", f"{number}.md", ["otter"]) for number in range(before)])
            embed_pending(catalog)
            opened().catch_up(catalog)
        new = range(before, before + 24)
        catalog.put_documents([make("a", f"{number}.md", [f"heron {number}", "vole"]) for number in new])
        embed_pending(catalog)
        catalog.batches = 5
        for _ in range(2):
            with pytest.raises(StoreError, match="broke off"):
                opened().catch_up(catalog)
            assert len(opened().semantic(vector_of(b"q"), ALL, 99, MODEL)) == before, "nothing half published"
            assert opened().published_model() == (MODEL if before else None)
        catalog.delete_documents("a", [f"{before}.md", f"{before + 1}.md"])
        catalog.put_documents(
            [make("a", f"{before + 2}.md", ["badger"]), make("a", f"{before + 23}.md", ["badger too"])]
        )
        embed_pending(catalog)
        catalog.batches = 1 << 30
        opened().catch_up(catalog)
        local.catch_up(catalog)
        hits, exact = (each.semantic(vector_of(b"q"), ALL, 99, MODEL) for each in (opened(), local))
        assert numbers(hits) == numbers(exact)
        assert opened().check() == []


def test_an_index_that_may_not_be_written_says_so_and_answers(
    catalog: SqliteCatalog, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    index = opened(model=None)
    index.catch_up(catalog)
    full = "index.blocks.read_only_allow_delete"  # as where a disk is nearly full
    opensearch.ask(opensearch_url, "PUT", f"/{index_name}-words/_settings", {full: True})
    catalog.put_documents([make("a", "y.md", ["otter"])])
    with pytest.raises(StoreError, match="read only, most often for want of room"):
        index.catch_up(catalog)
    assert len(index.keyword("otter", ALL, 9)) == 1
    opensearch.ask(opensearch_url, "PUT", f"/{index_name}-words/_settings", {full: None})
    index.catch_up(catalog)
    assert len(index.keyword("otter", ALL, 9)) == 2


def of_words(catalog: SqliteCatalog, opened: OPEN) -> OpenSearchIndex:
    """An index of a document for each word."""
    catalog.put_documents([make("a", f"{word}.md", [word]) for word in WORDS])
    index = opened(model=None)
    index.catch_up(catalog)
    return index


def test_a_lost_document_is_noticed_and_the_half_built_anew(
    catalog: SqliteCatalog, opened: OPEN, opensearch_url: str, index_name: str
) -> None:
    index = of_words(catalog, opened)
    assert index.check() == []
    number = index.keyword("otter", ALL, 1)[0].chunk_no
    opensearch.ask(opensearch_url, "DELETE", f"/{index_name}-words/_doc/{number}?refresh=true")
    assert index.check() == ["OpenSearch does not have all of the keyword index any more"]
    index.catch_up(catalog)
    assert len(index.keyword("otter", ALL, 9)) == 1


def test_it_says_what_it_is_and_how_it_is(catalog: SqliteCatalog, opened: OPEN) -> None:
    catalog.put_documents([make("a", "x.md", ["otter"])])
    index = opened(model=None, layout=(1, 1))
    index.catch_up(catalog)
    healthy, line = index.server()
    assert not healthy
    assert line.startswith("OpenSearch 3.")
    assert line.endswith(
        "1 node, 1 shards, 1 more on no node: a copy needs a node of its own ([index] replicas)"
    )
