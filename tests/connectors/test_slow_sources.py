"""Sites, buckets and scripts are read, and repositories fetched, without the lock of the index: what is slow
keeps nobody else from writing.
"""

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, named, project, workspace
from web_kit import Page, Site, html, serving

from ctx.errors import Busy
from ctx.indexing import run
from ctx.types import JSON, Caller
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
            second.indexer._lock_timeout_s = 0.5
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


SCRIPT = """
connector = { name = "feed", description = "Pages of a site" }
function connector.scan(config)
  return {{ source_id = "slow", title = "Slow", body = http.get(config.url).body }}
end
"""
LISTING = Page(
    b'<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>slow.md</Key>'
    b"<LastModified>2026-01-02T03:04:05.000Z</LastModified><ETag>1</ETag><Size>9</Size></Contents>"
    b"</ListBucketResult>",
    headers={"Content-Type": "application/xml"},
)


def slow_script(site: Site, folder: Path) -> str:
    """The table of a script that waits for the slow page."""
    (folder / "feed.lua").write_text(SCRIPT)
    return (
        f'[connectors.script.feed]\npath = "./feed.lua"\nurl = "{site.url}/slow.html"\n'
        f'allow_hosts = ["{site.host}"]\n'
    )


def slow_bucket(site: Site, folder: Path) -> str:
    """The table of a bucket whose one object is the slow page."""
    site.pages["/docs?encoding-type=url&list-type=2&max-keys=1000"] = LISTING
    return (
        f'[connectors.s3.feed]\nbucket = "docs"\nendpoint_url = "{site.url}"\nanonymous = true\n'
        'region = "eu-central-1"\n'
    )


@pytest.mark.parametrize(
    ("source", "path", "table"),
    [("script:feed", "/slow.html", slow_script), ("s3:feed", "/docs/slow.md", slow_bucket)],
)
def test_another_process_writes_while_a_script_or_a_bucket_is_read(
    source: str, path: str, table: Callable[[Site, Path], str], site: Site, tmp_path: Path
) -> None:
    config = beside_folder(tmp_path, table(site, tmp_path))
    slow = Slow(site, path)
    reports: list[dict[str, JSON]] = []
    with workspace(config) as space:
        thread = in_background(space, reports, source)
        assert slow.request.wait(WAIT_S)
        try:
            run = ctx("index", "filesystem:docs", cwd=tmp_path, env=named(config), timeout_s=WAIT_S / 2)
            assert run.returncode == 0, run.stderr
            assert ids(space, "filesystem:docs") == ["a.md"]
            with workspace(config) as second:
                second.indexer._lock_timeout_s = 0.1
                with pytest.raises(Busy, match=f"reading {source}"):
                    second.refresh([source])
        finally:
            slow.permit.set()
            thread.join(WAIT_S)
        assert (reports[0]["ok"], reports[0]["added"]) == (True, 1), reports
        (report,) = space.refresh([source])
        assert (report["unchanged"], report["added"]) == (1, 0)


def test_another_process_writes_while_a_repository_is_fetched(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"git://127.0.0.1:{silent.getsockname()[1]}/a.git"
        config = beside_folder(tmp_path, f'[connectors.git.site]\nurl = "{address}"\n')
        reports: list[dict[str, JSON]] = []
        with workspace(config) as space:
            thread = in_background(space, reports, "git:site")
            silent.settimeout(WAIT_S)
            peer, _ = silent.accept()
            try:
                run = ctx("index", "filesystem:docs", cwd=tmp_path, env=named(config), timeout_s=WAIT_S / 2)
                assert run.returncode == 0, run.stderr
                assert ids(space, "filesystem:docs") == ["a.md"]
                assert space.indexer.activity.phase == "indexing"
                with workspace(config) as second:
                    second.indexer._lock_timeout_s = 0.1
                    with pytest.raises(Busy, match="reading git:site"):
                        second.refresh(["git:site"])
            finally:
                peer.close()
                thread.join(WAIT_S)
            assert reports[0]["ok"] is False, reports
            assert space.indexer.activity.phase == "idle"
