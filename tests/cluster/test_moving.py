"""A catalog moves between engines, and is the same one afterwards."""

from pathlib import Path

import pytest
from store_tree import MODEL, embed_pending, make

from ctx.errors import BadRequest
from ctx.models import Filters, Run
from ctx.store.base import Catalog
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

pytest.importorskip("psycopg", reason="psycopg is missing: run `make setup`")

from ctx.cluster.catalog import PostgresCatalog
from ctx.cluster.migrate import check_target, digest, move

pytestmark = pytest.mark.cluster


def quiet(step: str, count: int, total: int) -> None:
    pass


def fill(catalog: Catalog) -> None:
    words = ["otter", "heron", "willow", "basalt", "lantern"]
    for round_no in range(3):
        catalog.put_documents(
            [
                make(
                    "filesystem:docs", f"{no}.md", [f"{words[no % 5]} {no}", f"{words[no % 3]} \0 {round_no}"]
                )
                for no in range(round_no, 40, round_no + 1)
            ]
        )
    catalog.put_documents([make("git:x", "a.md", ["same words"], metadata={"z": 1, "a": [None, "ü"]})])
    catalog.delete_documents("filesystem:docs", ["7.md"])
    embed_pending(catalog)
    catalog.put_documents([make("git:x", "later.md", ["not embedded yet"])])
    catalog.record_run("git:x", Run(5, True, None, "abc", "s"))
    catalog.record_run("git:x", Run(9, False, "gone", "abc", "s"))


def answers(catalog: Catalog, folder: Path) -> list[list[tuple[str, float]]]:
    """What words find, and in which order."""
    index = LocalIndex(str(folder), lambda: None)
    index.catch_up(catalog)
    replies = []
    for query in ("otter", "heron", "willow 2", "basalt lantern", "same words", "1", "0"):
        hits = index.keyword(query, Filters(), 100)
        rows = catalog.chunk_rows([hit.chunk_no for hit in hits])
        replies.append(
            [(f"{rows[hit.chunk_no].id}:{rows[hit.chunk_no].ordinal}", round(hit.score, 5)) for hit in hits]
        )
    index.close()
    return replies


@pytest.mark.slow
def test_a_catalog_moves_to_a_database_and_back_with_the_same_ids_and_the_same_answers(
    tmp_path: Path, database_url: str
) -> None:
    with (
        SqliteCatalog(str(tmp_path / "a.db")) as origin,
        PostgresCatalog(database_url) as middle,
        SqliteCatalog(str(tmp_path / "b.db")) as end,
    ):
        fill(origin)
        first = move(origin, middle, progress=quiet)
        second = move(middle, end, progress=quiet)
        assert (first.documents, first.passed_over) == (41, 0)
        assert first.embeddings == second.embeddings > 0
        assert first.digest == second.digest == digest(origin)
        for catalog in (middle, end):
            assert catalog.pending_count(MODEL) == origin.pending_count(MODEL) == 1
            assert catalog.last_run("git:x") == origin.last_run("git:x")
            assert catalog.statuses(MODEL, ["git:x"])[0].last_indexed_ms == 5
        replies = [answers(c, tmp_path / f"index-{no}") for no, c in enumerate((origin, middle, end))]
        assert replies[0] == replies[1] == replies[2]
        assert sum(map(len, replies[0])) > 50


def test_a_move_that_was_broken_off_goes_on_where_it_was(tmp_path: Path, database_url: str) -> None:
    class BrokenOff(Exception):
        pass

    def break_off(step: str, count: int, total: int) -> None:
        raise BrokenOff

    with SqliteCatalog(str(tmp_path / "a.db")) as origin, PostgresCatalog(database_url) as target:
        origin.put_documents([make("git:x", f"{no:03}.md", [f"text {no}"]) for no in range(100)])
        with pytest.raises(BrokenOff):
            move(origin, target, progress=break_off)
        report = move(origin, target, progress=quiet)
        assert (report.documents, report.passed_over) == (100, 64)
        assert move(origin, target, progress=quiet).passed_over == 100


def test_a_store_with_documents_of_its_own_is_not_overwritten_unless_that_is_asked_for(
    tmp_path: Path, database_url: str
) -> None:
    with SqliteCatalog(str(tmp_path / "a.db")) as origin, PostgresCatalog(database_url) as target:
        origin.put_documents([make("git:x", "a.md", ["one"])])
        target.put_documents([make("git:y", "b.md", ["two"])])
        with pytest.raises(BadRequest, match="git:y"):
            check_target(origin, target)
        move(origin, target, progress=quiet)
        assert target.stats()["documents"] == 1
