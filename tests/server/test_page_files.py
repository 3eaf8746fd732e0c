"""What the page is made of: small, its own, without anything inline; and the endpoints that it alone asks."""

import os
import re
from pathlib import Path

from kit import project, workspace
from serving import Serve, failure, whole

from ctx.clock import now_ms
from ctx.server.app import Services
from ctx.server.endpoints import PAGE, read_page
from ctx.server.policy import ServerSettings

MAX_BYTES = 150_000
FOREIGN = {"origin": "https://evil.example"}


def test_the_page_is_small() -> None:
    assert sum(map(len, read_page(PAGE).values())) < MAX_BYTES
    assert all(len(text.splitlines()) <= 600 for text in read_page(PAGE).values())


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    files = {name: data.decode() for name, data in read_page(PAGE).items()}
    assert re.findall(r"""(?:src|href)=["'](?!/page/|#|/$)[^"']*["']""", files["index.html"]) == []
    assert re.findall(r"""<style|\sstyle=|\son\w+=|<script(?![^>]*src=)""", files["index.html"]) == []
    scripts = {name: text for name, text in files.items() if name.endswith(".js")}
    for name, text in scripts.items():
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text) == [], (
            name
        )
        modules = re.findall(r'from "\./([\w.]+)"', text)
        assert set(modules) <= set(scripts), name


def test_the_overview_tells_runs_and_search_times(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# Apples\n", "b.md": "# Pears\n"})) as space:
        served = serve(whole(space))
        assert served.client.get("/activity").json()["phase"] == "idle"
        space.refresh([])
        served.client.post("/tools/search", json={"query": "apples"})
        activity = served.client.get("/activity").json()
        run = activity["runs"]["filesystem:docs"]
        assert (run["ok"], run["added"], run["problems"]) == (True, 2, [])
        (minute,) = activity["searches"]
        assert (minute["minutes_ago"], minute["count"]) == (0, 1)
        assert failure(served.client.get("/map")) == (400, "embeddings_disabled")


def test_a_file_that_cannot_be_read_is_named_with_the_reason(serve: Serve, tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Apples\n"})
    os.symlink("/nonexistent", tmp_path / "docs" / "dangling.md")
    with workspace(config) as space:
        served = serve(whole(space))
        space.refresh([])
        run = served.client.get("/activity").json()["runs"]["filesystem:docs"]
        assert run["failed"] == len(run["problems"])


def test_only_the_page_itself_asks_for_the_overview(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path)) as space:
        services = whole(space)
        served = serve(services, ServerSettings(api_keys=("key",)))
        for path in ("/activity", "/map"):
            assert failure(served.client.get(path)) == (401, "unauthorized")
        public = serve(services)
        for path in ("/activity", "/map"):
            assert failure(public.client.get(path, headers=FOREIGN)) == (403, "origin_not_allowed")


def test_a_server_without_an_overview_has_none(serve: Serve, services: Services) -> None:
    assert failure(serve(services).client.get("/activity")) == (404, "not_found")


def test_a_skipped_file_is_named_with_the_reason(serve: Serve, tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Apples\n", "blank.md": " \n"})
    with workspace(config) as space:
        served = serve(whole(space))
        space.refresh([])
        run = served.client.get("/activity").json()["runs"]["filesystem:docs"]
        assert run["skipped"] == 1
        assert [skip["source_id"] for skip in run["skips"]] == ["blank.md"]
        assert run["skips"][0]["message"]


def test_the_overview_tells_when_the_documents_last_changed(serve: Serve, tmp_path: Path) -> None:
    config = project(tmp_path, {"new.md": "# New\n", "spring.md": "# Spring\n", "old.md": "# Old\n"})
    day_s = 24 * 3600
    now_s = now_ms() // 1000
    os.utime(tmp_path / "docs" / "spring.md", (0, now_s - 100 * day_s))
    os.utime(tmp_path / "docs" / "old.md", (0, now_s - 4000 * day_s))
    with workspace(config) as space:
        served = serve(whole(space))
        assert served.client.get("/activity").json()["ages"] == {}
        space.refresh([])
        ages = served.client.get("/activity").json()["ages"]
        assert ages == {"filesystem:docs": [1, 0, 0, 1, *[0] * 8, 1]}
        (tmp_path / "docs" / "new.md").unlink()
        space.refresh([])
        assert served.client.get("/activity").json()["ages"]["filesystem:docs"][0] == 0
