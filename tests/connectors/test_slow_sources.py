"""A slow source does not keep others from writing to the index."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import project, workspace
from web_kit import Site, html, serving

from ctx.errors import Busy
from ctx.indexing import run
from ctx.models import JSON, Caller
from ctx.workspace import Workspace

WAIT_S = 60.0  # until a test that hangs fails


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


@pytest.fixture
def config(site: Site, tmp_path: Path) -> Path:
    table = (
        f'[connectors.web]\nurl = "{site.url}/"\nallow_hosts = ["{site.host}"]\nrequests_per_second = 100\n'
    )
    return beside_folder(tmp_path, table)


def beside_folder(folder: Path, table: str) -> Path:
    """The configuration of a project with a folder of one document, and the source of that table."""
    folders = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
    return project(folder, {"a.md": "# A\n\nWords.\n"}, folders + table)


class Slow:
    """A page that is answered once it is let go."""

    def __init__(self, site: Site, path: str) -> None:
        self.request, self.permit = threading.Event(), threading.Event()
        page = html("Slow")

        def answer(handler: Any) -> None:
            self.request.set()
            assert self.permit.wait(WAIT_S)
            handler.send_response(200)
            handler.send_header("Content-Type", "text/html")
            handler.send_header("Content-Length", str(len(page.body)))
            handler.end_headers()
            handler.wfile.write(page.body)

        site.pages[path] = answer


def in_background(space: Workspace, reports: list[dict[str, JSON]], source: str = "web") -> threading.Thread:
    thread = threading.Thread(target=lambda: reports.extend(space.refresh([source])))
    thread.start()
    return thread


def ids(space: Workspace, source: str) -> list[str]:
    return sorted(row.document.source_id for row in space.catalog.export() if row.document.source == source)


def test_others_write_while_a_site_is_read_and_its_batches_are_stored_on_the_way(
    site: Site, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "BATCH_DOCUMENTS", 2)
    names = [f"/p{number}.html" for number in range(4)]
    site.pages["/"] = html("Start", *names, "/slow.html")
    for name in names:
        site.pages[name] = html(f"Page {name}")
    slow = Slow(site, "/slow.html")
    reports: list[dict[str, JSON]] = []
    with workspace(config) as space, workspace(config) as second:
        thread = in_background(space, reports)
        assert slow.request.wait(WAIT_S)
        try:
            second.indexer.lock_timeout_s = 0.5
            (report,) = second.refresh(["filesystem:docs"])
            assert (report["ok"], report["added"]) == (True, 1)
            assert len(ids(second, "web")) == 4  # two batches, in the middle of the crawl
            assert second.toolbox.call("search", {"query": "p1"}, Caller("cli"))["results"]
            with pytest.raises(Busy, match="reading web"):
                second.refresh(["web"])
            (report,) = space.refresh(["filesystem:docs"])  # in the same process too
            assert report["unchanged"] == 1
        finally:
            slow.permit.set()
            thread.join(WAIT_S)
        assert reports[0]["added"] == 6
        assert len(ids(second, "web")) == 6
        assert space.indexer.activity.phase == "idle"
        site.pages["/"] = html("Start", *names[:2])
        for name in names[2:]:
            del site.pages[name]
        assert second.refresh(["web"])[0]["deleted"] == 2
