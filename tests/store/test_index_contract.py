"""The contract of every search index. Add another in INDEXES."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from store_tree import (
    EVERYTHING,
    MODEL,
    embed_pending,
    follow,
    make,
    places,
    portrait,
    tree,
    vector_of,
)

from ctx.models import Filters
from ctx.store.base import Catalog, SearchIndex
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

ALL = Filters()


def local_index(request: pytest.FixtureRequest) -> SearchIndex:
    folder: Path = request.getfixturevalue("tmp_path")
    return LocalIndex(str(folder / "index"), lambda: MODEL)


def opensearch_index(request: pytest.FixtureRequest) -> SearchIndex:
    url: str = request.getfixturevalue("opensearch_url")
    from ctx.cluster.opensearch import OpenSearchIndex
    from ctx.cluster.opensearch_client import Client
    from ctx.config.settings import Index

    name: str = request.getfixturevalue("index_name")
    client = Client(Index(url=url))
    request.addfinalizer(client.close)
    return OpenSearchIndex(client, lambda: MODEL, name=name)


INDEXES: dict[str, Callable[[pytest.FixtureRequest], SearchIndex]] = {
    "local": local_index,
    "opensearch": opensearch_index,
}


@pytest.fixture(params=["local", pytest.param("opensearch", marks=pytest.mark.cluster)])
def index(request: pytest.FixtureRequest) -> Iterator[SearchIndex]:
    opened = INDEXES[request.param](request)
    yield opened
    opened.close()


def ids(catalog: Catalog, index: SearchIndex, query: str, filters: Filters = ALL) -> list[str]:
    hits = index.keyword(query, filters, EVERYTHING)
    return sorted(source_id for _, source_id, _ in places(catalog, [hit.chunk_no for hit in hits]))


def near(catalog: Catalog, index: SearchIndex, text_of: str, filters: Filters = ALL, k: int = 1) -> list[str]:
    """The ids of the documents nearest to the first chunk of a document."""
    probe = next(stored for stored in catalog.export() if stored.document.source_id == text_of)
    hits = index.semantic(vector_of(probe.chunks[0].text_hash), filters, k, MODEL)
    return [source_id for _, source_id, _ in places(catalog, [hit.chunk_no for hit in hits])]


def test_an_empty_catalog_is_an_empty_index(catalog: Catalog, index: SearchIndex) -> None:
    assert index.applied_seq() == 0
    assert index.keyword("anything", ALL, 10) == []
    assert index.semantic(vector_of(b"x"), ALL, 10, MODEL) == []
    assert index.catch_up(catalog) == 0
    assert index.keyword("anything", ALL, 10) == []
    assert index.semantic(vector_of(b"x"), ALL, 10, MODEL) == []


def test_what_was_put_is_found_after_catching_up(catalog: Catalog, index: SearchIndex) -> None:
    catalog.put_documents(
        [make("filesystem", "a.md", ["the otter swims"]), make("filesystem", "b.md", ["the heron stands"])]
    )
    assert index.catch_up(catalog) == index.applied_seq() == catalog.seq()
    assert ids(catalog, index, "otter") == ["a.md"]
    assert index.semantic(vector_of(b"x"), ALL, 10, MODEL) == []
    embed_pending(catalog)
    assert index.catch_up(catalog) == catalog.seq()
    assert near(catalog, index, "b.md") == ["b.md"]


def test_an_edit_a_deletion_and_a_touch_take_effect(catalog: Catalog, index: SearchIndex) -> None:
    catalog.put_documents(
        [make("filesystem", f"{word}.md", [f"the {word}"]) for word in ("otter", "heron", "vole")]
    )
    embed_pending(catalog)
    index.catch_up(catalog)
    catalog.put_documents([make("filesystem", "otter.md", ["the badger"])])
    catalog.delete_documents("filesystem", ["heron.md"])
    catalog.touch_documents([("filesystem", "vole.md", "print", 9_000)])
    embed_pending(catalog)
    index.catch_up(catalog)
    assert ids(catalog, index, "badger") == ["otter.md"]
    assert ids(catalog, index, "the") == ids(catalog, index, "badger vole") == ["otter.md", "vole.md"]
    since_late = Filters(since_ms=9_000)
    assert ids(catalog, index, "badger vole", since_late) == ["vole.md"]
    assert near(catalog, index, "otter.md", since_late, 9) == ["vole.md"]
    assert sorted(near(catalog, index, "otter.md", ALL, 9)) == ["otter.md", "vole.md"]


def test_filters_apply_to_keyword_and_semantic_results(catalog: Catalog, index: SearchIndex) -> None:
    catalog.put_documents(
        [
            make(source, f"{source}{word}", ["common words"], updated_ms=word)
            for source in ("a", "git:b", "git:c")
            for word in (1, 2, 3)
        ]
    )
    embed_pending(catalog)
    index.catch_up(catalog)
    narrow = {
        Filters(sources=frozenset({"git:b", "git:c"}), since_ms=2, until_ms=2): ["git:b2", "git:c2"],
        Filters(sources=frozenset({"nobody"})): [],
        Filters(sources=frozenset()): [],
        Filters(until_ms=1): ["a1", "git:b1", "git:c1"],
        Filters(since_ms=4): [],
    }
    for filters, expected in narrow.items():
        assert ids(catalog, index, "common", filters) == expected
        assert sorted(near(catalog, index, "a1", filters, 99)) == expected


def test_quotes_find_a_part_of_a_run_without_spaces(catalog: Catalog, index: SearchIndex) -> None:
    texts = {
        "zh.md": "要部署服务，请先运行数据库迁移，然后重启网关。",
        "ja.md": "Python入門書でデータベースの接続文字列を設定",
        "th.md": "การติดตั้งระบบต้องใช้สิทธิ์",
        "far.md": "数据保存在文件里，不用库，也可以迁移。",
    }
    catalog.put_documents([make("filesystem", name, [text]) for name, text in texts.items()])
    index.catch_up(catalog)
    assert ids(catalog, index, '"数据库迁移"') == ["zh.md"]
    assert ids(catalog, index, "「数据」") == ["far.md", "zh.md"]
    assert ids(catalog, index, '"接続文字列"') == ids(catalog, index, '"Python入門"') == ["ja.md"]
    assert ids(catalog, index, '"การติดตั้ง"') == ["th.md"]
    assert ids(catalog, index, '"迁移数据库"') == ids(catalog, index, '"Ruby入門"') == []


def test_hits_come_best_first_and_no_more_than_asked(catalog: Catalog, index: SearchIndex) -> None:
    catalog.put_documents(list(tree(0).values()))
    embed_pending(catalog)
    index.catch_up(catalog)
    for hits in (index.keyword("otter amber cedar", ALL, 7), index.semantic(vector_of(b"q"), ALL, 7, MODEL)):
        assert len(hits) == 7
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert len({hit.chunk_no for hit in hits}) == 7


@pytest.mark.slow
def test_following_a_tree_ends_as_building_it_at_once(
    catalog: Catalog, index: SearchIndex, tmp_path: Path
) -> None:
    for version in range(8):
        follow(catalog, index, version)  # type: ignore[arg-type]
    followed = portrait(catalog, index)  # type: ignore[arg-type]
    with SqliteCatalog(str(tmp_path / "clean.db")) as clean:
        clean.put_documents(list(tree(7).values()))
        embed_pending(clean)
        rebuilt = LocalIndex(str(tmp_path / "clean"), lambda: MODEL)
        rebuilt.catch_up(clean)
        assert portrait(clean, rebuilt) == followed  # type: ignore[arg-type]
        rebuilt.close()
