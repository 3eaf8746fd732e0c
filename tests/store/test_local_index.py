"""The local index: repaired from the catalog after any damage, readable while it is written."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import store_tree
from store_tree import (
    MODEL,
    clean_portrait,
    embed_pending,
    follow,
    found_in,
    make,
    open_store,
    portrait,
    tree,
    vector_of,
)

from ctx.errors import StoreError
from ctx.models import Filters
from ctx.store import index as local_module
from ctx.store import keyword_writer as keyword_module
from ctx.store import vectors as vectors_module
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

ALL = Filters()


def keyword_folder(folder: Path) -> Path:
    [folder_path] = (folder / "index").glob("keyword-*")
    return folder_path


def largest(folder: Path, suffix: str) -> Path:
    return max(folder.glob(f"*.{suffix}"), key=lambda path: path.stat().st_size)


def overwrite(path: Path, offset: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(offset, os.SEEK_SET if offset >= 0 else os.SEEK_END)
        file.write(data)


class Built(NamedTuple):
    """A closed store that holds version 0 of the tree, caught up; what it answers; and its seq."""

    folder: Path
    answers: dict[str, Any]
    seq: int

    def copy(self, folder: Path) -> None:
        """The same store in another folder, for a test to change."""
        shutil.copytree(self.folder, folder, dirs_exist_ok=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("built")
    catalog, index = open_store(folder)
    with catalog, index:
        catalog.put_documents(list(tree(0).values()))
        embed_pending(catalog)
        index.catch_up(catalog)
        return Built(folder, portrait(catalog, index), catalog.seq())


@pytest.fixture
def store(built: Built, tmp_path: Path) -> Iterator[tuple[SqliteCatalog, LocalIndex]]:
    """A store that holds version 0 of the tree, caught up."""
    built.copy(tmp_path)
    catalog, index = open_store(tmp_path)
    yield catalog, index
    index.close()
    catalog.close()


# -- repair --------------------------------------------------------------------------------------------------
def without(suffix: str) -> Callable[[Path], object]:
    return lambda folder: largest(keyword_folder(folder), suffix).unlink()


def cut(suffix: str) -> Callable[[Path], object]:
    return lambda folder: os.truncate(largest(keyword_folder(folder), suffix), 10)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "the index folder is gone": lambda folder: shutil.rmtree(folder / "index"),
    "the keyword state is gone": lambda folder: (folder / "index" / "keyword.state").unlink(),
    "the keyword state is cut": lambda folder: os.truncate(folder / "index" / "keyword.state", 25),
    "the keyword state is empty": lambda folder: os.truncate(folder / "index" / "keyword.state", 0),
    "tantivy's folder is gone": lambda folder: shutil.rmtree(keyword_folder(folder)),
    "tantivy's meta is gone": lambda folder: (keyword_folder(folder) / "meta.json").unlink(),
    "tantivy's meta is cut": lambda folder: os.truncate(keyword_folder(folder) / "meta.json", 30),
    "tantivy's meta is empty": lambda folder: os.truncate(keyword_folder(folder) / "meta.json", 0),
    **{
        f"a .{suffix} of tantivy is gone": without(suffix)
        for suffix in ("idx", "term", "pos", "fast", "store", "fieldnorm")
    },
    **{f"a .{suffix} of tantivy is cut": cut(suffix) for suffix in ("idx", "term", "fast")},
    "the vectors folder is gone": lambda folder: shutil.rmtree(folder / "index" / "vectors"),
    "the vectors are cut": lambda folder: os.truncate(largest(folder / "index" / "vectors", "segment"), 100),
    "the state of the vectors is cut": lambda folder: os.truncate(folder / "index" / "vectors" / "state", 50),
}


@pytest.mark.parametrize("damage", sorted(DAMAGES))
def test_damage_is_repaired_from_the_catalog_without_embedding_again(
    built: Built, tmp_path: Path, damage: str
) -> None:
    built.copy(tmp_path)
    DAMAGES[damage](tmp_path)
    catalog, index = open_store(tmp_path)
    with catalog, index:
        try:
            found_in(catalog, index)
        except StoreError:
            pass  # an honest answer until the repair; any other exception is not
        assert index.check() != [] or damage == "a .store of tantivy is gone"
        assert index.catch_up(catalog) == built.seq
        assert index.check() == []
        assert portrait(catalog, index) == built.answers
        assert catalog.seq() == built.seq, "nothing was embedded again"
    assert len(list((tmp_path / "index").glob("keyword-*"))) == 1


def test_damage_that_a_search_runs_into_is_repaired_by_the_next_run(
    store: tuple[SqliteCatalog, LocalIndex], tmp_path: Path
) -> None:
    catalog, index = store
    expected = portrait(catalog, index)
    index.close()
    overwrite(largest(keyword_folder(tmp_path), "term"), 0, b"\xff" * 64)
    overwrite(largest(tmp_path / "index" / "vectors", "segment"), -400, b"\xff" * 400)
    reader = LocalIndex(index._path, lambda: MODEL)
    with reader, pytest.raises(StoreError, match=r"damaged|could not answer"):
        found_in(catalog, reader)
    with LocalIndex(index._path, lambda: MODEL) as writer:
        writer.catch_up(catalog)
        assert portrait(catalog, writer) == expected
        assert not (tmp_path / "index" / "rebuild-requested").exists()


def test_an_index_of_another_format_is_built_anew(
    store: tuple[SqliteCatalog, LocalIndex], monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog, index = store
    expected = portrait(catalog, index)
    monkeypatch.setattr(keyword_module, "KEYWORD_FORMAT", 999)
    for module in (vectors_module, local_module):
        monkeypatch.setattr(module, "VECTORS_FORMAT", 999)
    with LocalIndex(index._path, lambda: MODEL) as later:
        with pytest.raises(StoreError, match=r"made by another version of ctx: run `ctx index`"):
            later.keyword("otter", ALL, 5)
        with (
            later._catching_up,
            pytest.raises(StoreError, match=r"another version of ctx: it is being rebuilt"),
        ):
            later.keyword("otter", ALL, 5)
        with pytest.raises(StoreError, match="format"):
            later.semantic(vector_of(b"x"), ALL, 5, MODEL)
        later.catch_up(catalog)
        assert portrait(catalog, later) == expected


def test_a_restored_catalog_of_the_same_size_is_told_apart(tmp_path: Path) -> None:
    catalog, index = open_store(tmp_path)
    with catalog, index:
        catalog.put_documents([make("s", "first", ["the otter"])])
        embed_pending(catalog)
        index.catch_up(catalog)
    backup = (tmp_path / "ctx.db").read_bytes()
    for name, restored in (
        ("second", False),
        ("third", True),
    ):  # the same numbers of everything, for another document
        if restored:
            (tmp_path / "ctx.db").write_bytes(backup)
        catalog, index = open_store(tmp_path)
        with catalog, index:
            catalog.put_documents([make("s", name, [f"the {name}"])])
            embed_pending(catalog)
            index.catch_up(catalog)
            results = found_in(catalog, index)
            assert [hit.chunk_no for hit in index.keyword(name, ALL, 5)] == [2]
        with LocalIndex(str(tmp_path / f"clean {name}"), lambda: MODEL) as clean:
            clean.catch_up(catalog := SqliteCatalog(str(tmp_path / "ctx.db")))
            with catalog:
                assert found_in(catalog, clean) == results


def test_a_change_of_model_leaves_words_findable_and_starts_the_vectors_over(
    store: tuple[SqliteCatalog, LocalIndex], tmp_path: Path
) -> None:
    catalog, index = store
    index.close()
    with LocalIndex(index._path, lambda: "another/model") as second:
        assert second.semantic(vector_of(b"x"), ALL, 5, "another/model") == []
        assert second.keyword("kingfisher", ALL, 5)
        second.catch_up(catalog)
        embed_pending(catalog, model="another/model")
        second.catch_up(catalog)
        assert (
            len(second.semantic(vector_of(b"x"), ALL, 10_000, "another/model")) == catalog.stats()["chunks"]
        )
    with LocalIndex(index._path, lambda: MODEL) as back:
        assert back.semantic(vector_of(b"x"), ALL, 5, MODEL) == []
        back.catch_up(catalog)
        assert portrait(catalog, back) == clean_portrait(tmp_path / "clean", 0)


def test_without_a_model_only_words_are_kept(store: tuple[SqliteCatalog, LocalIndex], tmp_path: Path) -> None:
    catalog, index = store
    index.close()
    with LocalIndex(index._path, lambda: None) as without_model:
        assert without_model.catch_up(catalog) == without_model.applied_seq() == catalog.seq()
        assert without_model.keyword("kingfisher", ALL, 5)
    assert not (tmp_path / "index" / "vectors").exists()


def test_opening_an_index_to_read_makes_nothing(tmp_path: Path) -> None:
    with LocalIndex(str(tmp_path / "index"), lambda: MODEL) as reader:
        assert reader.keyword("otter", ALL, 5) == []
        assert reader.semantic(vector_of(b"x"), ALL, 5, MODEL) == []
        assert reader.applied_seq() == 0
    assert list(tmp_path.iterdir()) == []


def test_a_reader_follows_the_writer_also_into_a_new_folder(
    store: tuple[SqliteCatalog, LocalIndex], tmp_path: Path
) -> None:
    catalog, index = store
    with LocalIndex(index._path, lambda: MODEL) as reader:
        assert not reader.keyword("pangolin", ALL, 5)
        catalog.put_documents([make("filesystem", "new.md", ["a pangolin"])])
        embed_pending(catalog)
        index.catch_up(catalog)
        assert reader.keyword("pangolin", ALL, 5)
        (tmp_path / "index" / "keyword.state").unlink()
        catalog.put_documents([make("filesystem", "newer.md", ["an aardvark"])])
        embed_pending(catalog)
        index.catch_up(catalog)
        assert keyword_folder(tmp_path).name == "keyword-2"
        assert reader.keyword("aardvark", ALL, 5)
        assert found_in(catalog, reader) == found_in(catalog, index)


@pytest.mark.slow
def test_a_search_in_one_process_never_fails_while_another_one_writes(tmp_path: Path) -> None:
    catalog, index = open_store(tmp_path)
    with catalog, index:
        follow(catalog, index, 0)
    constant = vector_of(tree(0)["filesystem", "constant.md"][1][0].text_hash)
    command = [sys.executable, store_tree.__file__, str(tmp_path), "1", "7"]
    environment = {**os.environ, "PYTHONPATH": os.path.dirname(store_tree.__file__)}
    writer = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    searches = 0
    states = set()
    catalog, reader = open_store(tmp_path)
    with catalog, reader:
        while writer.poll() is None:
            [hit] = reader.keyword("kingfisher", ALL, 10)
            hits = reader.semantic(constant, ALL, 10, MODEL)
            assert hits[0].chunk_no == hit.chunk_no
            assert hits[0].score == pytest.approx(1, abs=1e-3)
            assert len({hit.chunk_no for hit in hits}) == len(hits) == 10
            row = catalog.chunk_rows([hit.chunk_no])[hit.chunk_no]
            assert row.source_id == "constant.md"
            assert reader.keyword("otter", ALL, 10)
            searches += 1
            states.add(reader.applied_seq())
    _, errors = writer.communicate()
    assert writer.returncode == 0, errors
    assert searches > 20
    assert len(states) > 5


# -- feeding -------------------------------------------------------------------------------------------------
def test_a_folder_whose_name_is_not_utf_8_is_said_and_nothing_is_taken_for_damaged(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    with pytest.raises(StoreError, match=r"which is not UTF-8: rename its folder"):
        LocalIndex(str(folder / "index"), lambda: MODEL)
    assert not folder.exists()
