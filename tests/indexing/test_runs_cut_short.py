"""Incomplete runs delete nothing that may still exist."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ctx.connectors.base import ScanLog
from ctx.errors import SourceError
from ctx.indexing.run import IndexRun
from ctx.indexing.status import IndexReport
from ctx.models import Content, SourceItem
from ctx.store.sqlite import SqliteCatalog


class Shelf:
    """A source of texts by id; what is `torn` cannot be read, and after `closed_after` of them the scan
    fails.
    """

    def __init__(self, **texts: str) -> None:
        self.name = "script:shelf"
        self.signature = "shelf 1"
        self.texts = {f"{name}.md": text for name, text in texts.items()}
        self.torn: set[str] = set()
        self.withheld: list[str] = []
        self.closed_after: int | None = None
        self.complete = True
        self.reads: list[str] = []

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        for number, (name, text) in enumerate(self.texts.items()):
            if number == self.closed_after:
                raise SourceError("the shelf fell over")
            if known.get(name) == text and name not in self.torn:
                log.unchanged.add(name)
            else:
                yield SourceItem(name, text, 1_000 + number, self._reader(name, text))
        log.withheld += self.withheld
        log.complete = self.complete
        log.revision = f"r{len(self.texts)}"

    def _reader(self, name: str, text: str) -> Callable[[], Content]:
        def read() -> Content:
            self.reads.append(name)
            if name in self.torn:
                raise SourceError("the page is torn")
            return Content(text)

        return read


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqliteCatalog]:
    opened = SqliteCatalog(str(tmp_path / "ctx.db"))
    yield opened
    opened.close()


@pytest.fixture
def shelf() -> Shelf:
    return Shelf(a="alpha", b="beta", c="gamma", d="delta")


def run(
    shelf: Shelf, catalog: SqliteCatalog, *, stop: threading.Event | None = None, **options: bool
) -> IndexReport:
    return IndexRun(shelf, catalog, max_tokens=100, stop=stop, clock=lambda: 5_000, **options).run()


def bodies(catalog: SqliteCatalog) -> dict[str, str]:
    return {stored.document.source_id: stored.document.body for stored in catalog.export()}


def counts(report: IndexReport) -> tuple[int, int, int, int]:
    """Added, updated, unchanged, deleted."""
    return report.added, report.updated, report.unchanged, report.deleted


ALL = {"a.md": "alpha", "b.md": "beta", "c.md": "gamma", "d.md": "delta"}


def test_a_scan_that_fails_half_way_deletes_nothing_and_keeps_what_it_read(
    shelf: Shelf, catalog: SqliteCatalog
) -> None:
    run(shelf, catalog)
    shelf.texts = {"a.md": "alpha anew", "b.md": "beta", "c.md": "gamma"}
    shelf.closed_after = 1
    report = run(shelf, catalog)
    assert (report.ok, report.note, *counts(report)) == (False, "the shelf fell over", 0, 1, 0, 0)
    assert bodies(catalog) == {**ALL, "a.md": "alpha anew"}
    last = catalog.last_run(shelf.name)
    assert last is not None
    assert (last.ok, last.note, last.revision, last.finished_ms) == (
        False,
        "the shelf fell over",
        "r4",
        5_000,
    )


def test_a_scan_that_did_not_see_everything_deletes_nothing(shelf: Shelf, catalog: SqliteCatalog) -> None:
    run(shelf, catalog)
    del shelf.texts["d.md"]
    shelf.complete = False
    assert counts(run(shelf, catalog)) == (0, 0, 3, 0)
    assert bodies(catalog) == ALL
    shelf.complete = True
    assert counts(run(shelf, catalog)) == (0, 0, 3, 1)
    assert bodies(catalog) == {name: ALL[name] for name in ("a.md", "b.md", "c.md")}


def test_an_item_that_cannot_be_read_keeps_its_last_good_version_until_it_can(
    shelf: Shelf, catalog: SqliteCatalog
) -> None:
    run(shelf, catalog)
    shelf.texts["b.md"] = "beta anew"
    shelf.torn = {"b.md"}
    report = run(shelf, catalog)
    assert (report.ok, *counts(report)) == (True, 0, 0, 3, 0)
    assert [tuple(problem) for problem in report.problems] == [("b.md", "the page is torn")]
    assert bodies(catalog) == ALL
    last = catalog.last_run(shelf.name)
    assert last is not None
    assert (last.ok, last.note) == (True, "b.md: the page is torn")
    shelf.torn = set()
    assert counts(run(shelf, catalog)) == (0, 1, 3, 0)
    assert bodies(catalog)["b.md"] == "beta anew"


def test_documents_below_an_unlisted_folder_stay(catalog: SqliteCatalog) -> None:
    shelf = Shelf(**{"in/a": "alpha", "in/b": "beta", "out/c": "gamma"})
    run(shelf, catalog)
    shelf.texts = {}
    shelf.withheld = ["in/"]
    assert counts(run(shelf, catalog)) == (0, 0, 0, 1)
    assert sorted(bodies(catalog)) == ["in/a.md", "in/b.md"]


def test_an_item_that_holds_no_text_any_more_goes(shelf: Shelf, catalog: SqliteCatalog) -> None:
    run(shelf, catalog)
    shelf.texts["b.md"] = ""
    report = run(shelf, catalog)
    assert (report.skipped, *counts(report)) == (1, 0, 0, 3, 1)
    assert "b.md" not in bodies(catalog)


def test_a_full_run_that_failed_is_not_taken_for_one_that_read_everything(
    shelf: Shelf, catalog: SqliteCatalog
) -> None:
    run(shelf, catalog)
    shelf.signature = "shelf 2"  # whoever reads differently must read all of it anew
    shelf.closed_after = 2
    assert counts(run(shelf, catalog)) == (0, 2, 0, 0)
    shelf.closed_after = None
    assert counts(run(shelf, catalog)) == (0, 4, 0, 0)
    assert counts(run(shelf, catalog)) == (0, 0, 4, 0)
    assert counts(run(shelf, catalog, full=True)) == (0, 4, 0, 0)


def test_a_dry_run_counts_and_stores_nothing(shelf: Shelf, catalog: SqliteCatalog) -> None:
    run(shelf, catalog)
    shelf.reads.clear()
    shelf.texts = {"a.md": "alpha anew", "e.md": "epsilon", "f.md": "zeta"}
    assert counts(run(shelf, catalog, dry_run=True)) == (2, 1, 0, 3)
    assert bodies(catalog) == ALL


def test_a_look_at_single_paths_deletes_only_what_it_found_gone(shelf: Shelf, catalog: SqliteCatalog) -> None:
    run(shelf, catalog)
    before = catalog.last_run(shelf.name)

    def look(known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        log.gone |= {"b.md", "never-there.md"}
        yield SourceItem("c.md", "gamma anew", 2_000, lambda: Content("gamma anew"))

    report = IndexRun(shelf, catalog, max_tokens=100, items=look, clock=lambda: 7_000).run()
    assert counts(report) == (0, 1, 0, 1)
    assert bodies(catalog) == {"a.md": "alpha", "c.md": "gamma anew", "d.md": "delta"}
    last = catalog.last_run(shelf.name)
    assert before is not None
    assert last is not None
    assert (last.finished_ms, last.revision, last.signature) == (7_000, before.revision, before.signature)

    def nothing(known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        yield from ()

    IndexRun(shelf, catalog, max_tokens=100, items=nothing, clock=lambda: 8_000).run()
    assert catalog.last_run(shelf.name) == last  # nothing was found: no news
