"""Chunks and embeddings as a Parquet table, and embeddings back from one."""

import os
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kit import ctx, project, workspace

from ctx.cli.exchange import read_embeddings, write_table
from ctx.errors import BadRequest

PAGES = {"tea.md": "# Tea\n\nThree minutes.\n", "coffee.md": "# Coffee\n\nGround.\n\n## Roast\n\nDark.\n"}
CONFIG = '[connectors.filesystem.docs]\nroot = "./docs"\n'


def tables() -> Any:
    return pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    config = project(folder, PAGES, CONFIG)
    with workspace(config) as space:
        space.indexer.run()
        space.indexer.embed()
    return config


@pytest.mark.slow
def test_a_table_has_a_row_for_each_chunk_and_its_embeddings_spare_another_store_the_work(
    indexed: Path, tmp_path: Path
) -> None:
    pyarrow_parquet = tables()
    path = tmp_path / "chunks.parquet"
    reply = ctx("export", "--parquet", str(path), cwd=indexed.parent)
    assert reply.returncode == 0, reply.stderr
    rows = pyarrow_parquet.read_table(path).to_pylist()
    assert f"Exported {len(rows)} chunks, {len(rows)} with an embedding" in reply.stderr
    assert {row["source_id"] for row in rows} == set(PAGES)
    assert all(len(row["embedding"]) == 384 and row["model"].startswith("all-MiniLM") for row in rows)
    assert path.stat().st_mode & 0o777 == 0o600
    config = project(tmp_path / "other", PAGES, CONFIG)
    assert ctx("index", "--no-embed", cwd=config.parent).returncode == 0
    reply = ctx("import", "parquet", str(path), cwd=config.parent)
    assert reply.stdout == f"Imported {len(rows)} embeddings, 0 chunks pending\n", reply.stderr
    with workspace(config) as space:
        assert [hit["source_id"] for hit in hits(space, "a hot drink of leaves")][:1] == ["tea.md"]


def hits(space: Any, query: str) -> Any:
    from ctx.models import Caller

    return space.toolbox.call("search", {"query": query, "mode": "semantic"}, Caller("cli"))["results"]


def test_embeddings_made_elsewhere_come_by_their_text(indexed: Path, tmp_path: Path) -> None:
    pyarrow_parquet = tables()
    path = tmp_path / "chunks.parquet"
    with workspace(indexed) as space:
        model = space.model
        assert model is not None
        write_table(str(path), space.catalog, model)
    table = pyarrow_parquet.read_table(path)
    by_hash = dict(next(read_embeddings(str(path), model)))
    pyarrow_parquet.write_table(table.drop(["text_hash", "model"]), path)
    by_text = dict(next(read_embeddings(str(path), model)))
    assert by_text.keys() == by_hash.keys()
    for digest, vector in by_text.items():
        assert np.allclose(vector, by_hash[digest])
        assert abs(float(np.linalg.norm(vector)) - 1) < 1e-6


def test_a_table_that_does_not_fit_is_refused_with_the_reason(indexed: Path, tmp_path: Path) -> None:
    pyarrow_parquet = tables()
    path = tmp_path / "chunks.parquet"
    with workspace(indexed) as space:
        write_table(str(path), space.catalog, space.model)
    with pytest.raises(BadRequest, match=r"has embeddings of 'all-MiniLM.*, the configuration says 'other'"):
        list(read_embeddings(str(path), "other"))
    table = pyarrow_parquet.read_table(path)
    pyarrow_parquet.write_table(table.drop(["embedding", "text_hash", "text"]), path)
    with pytest.raises(BadRequest, match="has no column embedding, text"):
        list(read_embeddings(str(path), "m"))
    path.write_text("a letter")
    with pytest.raises(BadRequest, match="not a Parquet table, or it is damaged"):
        list(read_embeddings(str(path), "m"))
    with pytest.raises(BadRequest, match="No such file"):
        list(read_embeddings(str(tmp_path / "nothing"), "m"))


@pytest.mark.parametrize("embedding", ["abc", ["a", "b"], {"a": 1}, b"\0\1", [date(2026, 1, 1)]])
def test_what_is_no_list_of_numbers_is_no_embedding(embedding: object, tmp_path: Path) -> None:
    pyarrow_parquet = tables()
    import pyarrow

    path = tmp_path / "chunks.parquet"
    pyarrow_parquet.write_table(pyarrow.table({"text_hash": [b"0" * 16], "embedding": [embedding]}), path)
    with pytest.raises(BadRequest, match="has an embedding that is not a list of numbers"):
        list(read_embeddings(str(path), "m"))


def test_a_pipe_is_no_table_and_is_not_waited_for(tmp_path: Path) -> None:
    tables()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRequest, match="it is not a file"):
        list(read_embeddings(str(tmp_path / "pipe"), "m"))
