"""What writes the words of a local index, where the index goes away under it, and what it says of them."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest
from store_tree import DIM, MODEL, make

from ctx.errors import StoreError
from ctx.store import keyword_writer
from ctx.store.local import LocalIndex
from ctx.store.sqlite_catalog import SqliteCatalog
from ctx.store.statefile import write_state
from ctx.types import Filters


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
