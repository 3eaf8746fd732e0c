"""The page loads nothing from elsewhere and has nothing inline; its own endpoints."""

import re
from pathlib import Path

from kit import project, workspace
from serving import Serve, failure, whole

from ctx.server.policy import ServerSettings
from ctx.server.rest import read_page

FOREIGN = {"origin": "https://evil.example"}


def test_the_page_loads_nothing_from_elsewhere_and_has_nothing_inline() -> None:
    files = {name: data.decode() for name, data in read_page().items()}
    assert sum(map(len, files.values())) < 200_000
    assert re.findall(r"""(?:src|href)=["'](?!page/|#)[^"']*["']""", files["index.html"]) == []
    assert re.findall(r"""<style|\sstyle=|\son\w+=|<script(?![^>]*src=)""", files["index.html"]) == []
    scripts = {name: text for name, text in files.items() if name.endswith(".js")}
    for name, text in scripts.items():
        assert re.findall(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text) == [], (
            name
        )
        assert re.findall(r"""call\(["'`]/""", text) == [], f"{name}: an address that no path may precede"
        modules = re.findall(r'from "\./([\w.]+)"', text)
        assert set(modules) <= set(scripts), name


def test_only_the_page_itself_asks_for_the_overview(serve: Serve, tmp_path: Path) -> None:
    with workspace(project(tmp_path)) as space:
        services = whole(space)
        served = serve(services, ServerSettings(api_keys=("key",)))
        for path in ("/activity", "/clients", "/log"):
            assert failure(served.client.get(path)) == (401, "unauthorized")
        public = serve(services)
        for path in ("/activity", "/clients", "/log"):
            assert failure(public.client.get(path, headers=FOREIGN)) == (403, "origin_not_allowed")


def test_a_skipped_file_is_named_with_the_reason(serve: Serve, tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Apples\n", "blank.md": " \n"})
    with workspace(config) as space:
        served = serve(whole(space))
        space.refresh([])
        run = served.client.get("/activity").json()["runs"]["filesystem:docs"]
        assert run["skipped"] == 1
        assert [skip["source_id"] for skip in run["skips"]] == ["blank.md"]
        assert run["skips"][0]["message"]
