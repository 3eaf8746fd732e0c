"""What writes the words of a local index, where the index goes away under it, and what it says of them."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
import tantivy
from store_tree import DIM, MODEL, make

from ctx.errors import StoreError
from ctx.store import keyword_writer, local
from ctx.store.keyword_files import keyword_state
from ctx.store.local import LocalIndex
from ctx.store.sqlite_catalog import SqliteCatalog
from ctx.store.statefile import write_state
from ctx.types import Filters


def words_only(folder: Path, *, writable: bool = False) -> LocalIndex:
    return LocalIndex(str(folder / "index"), lambda: (None, None), writable=writable)


def seqs_published(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What `applied` says in each state of the words that is written from now on."""
    seqs: list[int] = []

    def write_and_note(path: str, fields: Mapping[str, str | int]) -> None:
        write_state(path, fields)
        seqs.append(int(fields["applied"]))

    monkeypatch.setattr(keyword_writer, "write_state", write_and_note)
    return seqs


def test_an_index_that_is_deleted_while_it_is_published_is_an_error_that_the_next_catch_up_mends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "index"

    def write_and_lose(path: str, fields: Mapping[str, str | int]) -> None:
        write_state(path, fields)
        shutil.rmtree(folder)

    with (
        SqliteCatalog(str(tmp_path / "ctx.db")) as catalog,
        LocalIndex(str(folder), lambda: (MODEL, DIM), writable=True) as index,
    ):
        catalog.put_documents([make("git:x", "a.md", ["otter"])])
        with monkeypatch.context() as patch:
            patch.setattr(keyword_writer, "write_state", write_and_lose)
            with pytest.raises(StoreError, match="the index cannot be written"):
                index.catch_up(catalog)
        index.catch_up(catalog)
        assert len(index.keyword("otter", Filters(), 5)) == 1


def test_names_are_known_from_when_code_defines_them_on(tmp_path: Path) -> None:
    def defined(reader: LocalIndex) -> list[str]:
        return reader.vocabulary([], ["feed_otter"])[1]

    state_path = str(tmp_path / "index" / "keyword.state")
    page = make("filesystem", "page.md", ["def feed_otter(): stands in a page"])
    code = make("filesystem", "pond.py", ["def feed_otter():\n    pass\n", "# by the weir\n" * 400])
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog, words_only(tmp_path) as reader:
        with words_only(tmp_path, writable=True) as index:
            catalog.put_documents([page])
            index.catch_up(catalog)
            assert defined(reader) == []
            assert (keyword_state(state_path) or {})["definitions"] is False
            catalog.put_documents([code])
            index.catch_up(catalog)
            assert defined(reader) == ["feed_otter"]
        with words_only(tmp_path, writable=True) as index:  # another process: it adds a page alone
            catalog.put_documents([make("filesystem", "later.md", ["a heron"])])
            index.catch_up(catalog)
        assert defined(reader) == ["feed_otter"]
        with words_only(tmp_path, writable=True) as index:
            catalog.put_documents([make("filesystem", "last.md", ["a weir"])])
            index.catch_up(catalog)
            assert defined(reader) == ["feed_otter"]
            os.unlink(state_path)
            catalog.delete_documents("filesystem", ["pond.py"])
            index.catch_up(catalog)
        assert (keyword_state(state_path) or {})["definitions"] is False


@pytest.mark.parametrize(
    ("piece_documents", "applied"),
    [
        (128, [128]),
        (127, list(range(16, 129, 16))),
        (16, list(range(16, 129, 16))),
        (15, list(range(2, 129, 2))),
    ],
)
def test_a_large_index_built_from_nothing_comes_by_equal_pieces_and_ends_as_one_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece_documents: int, applied: list[int]
) -> None:
    monkeypatch.setattr(keyword_writer, "_PIECE_SIZE", piece_documents * 6)  # a document and its chunk
    published = seqs_published(monkeypatch)
    state_path = str(tmp_path / "index" / "keyword.state")
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog, words_only(tmp_path) as reader:
        for number in range(128):
            catalog.put_documents([make("filesystem", f"{number}.md", ["the otter"])])
        with words_only(tmp_path, writable=True) as index:
            index.catch_up(catalog)
        assert sorted(set(published)) == applied
        assert len(reader.keyword("otter", Filters(), 200)) == 128
    folder = str(tmp_path / "index" / (keyword_state(state_path) or {})["folder"])
    assert tantivy.Index.open(folder).searcher().num_segments == 1


def test_pieces_are_of_a_size_where_long_documents_come_before_short_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword_writer, "_PIECE_SIZE", 35)
    published = seqs_published(monkeypatch)
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog, words_only(tmp_path, writable=True) as index:
        for number in range(28):  # of twenty, and of six
            texts = [f"otter {n}" for n in range(15 if number < 8 else 1)]
            catalog.put_documents([make("filesystem", f"{number}.md", texts)])
        index.catch_up(catalog)
    assert sorted(set(published)) == [2, 4, 6, 7, 11, 17, 23, 28]


def test_what_a_large_index_has_to_catch_up_with_is_published_every_so_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyword_writer, "_PIECE_SIZE", 8)
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog, words_only(tmp_path, writable=True) as index:
        for number in range(64):
            catalog.put_documents([make("filesystem", f"{number}.md", ["the otter"])])
        index.catch_up(catalog)
    monkeypatch.setattr(local, "PUBLISH_EVERY_S", 0.0)
    published = seqs_published(monkeypatch)
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog, words_only(tmp_path, writable=True) as index:
        for number in range(64, 68):
            catalog.put_documents([make("filesystem", f"{number}.md", ["the otter"])])
        index.catch_up(catalog)
        assert published[-4:] == [65, 66, 67, 68]
