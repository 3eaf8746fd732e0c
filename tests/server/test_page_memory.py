"""The memory view of the page, in a real browser."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import MEMORIES, project, workspace
from real_clients import node
from serving import Serve
from tabs import Tab

from ctx.errors import NotFound
from ctx.server.app import services
from ctx.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]


@pytest.fixture
def space(tmp_path: Path) -> Iterator[Workspace]:
    with workspace(project(tmp_path, config=MEMORIES)) as opened:
        _ = opened.packs  # loads them
        try:
            opened.toolbox.get("list_memories")
        except NotFound:
            pytest.skip("the memory pack here lists no memories: the page shows no view of them")
        yield opened


@pytest.fixture
def tab(browser: Any, serve: Serve, space: Workspace) -> Iterator[Tab]:
    bank = space.memory.bank("default")
    older = bank.put("I live in Berlin")["id"]
    bank.put("The standup is at half past nine")
    bank.put("I moved from Berlin to Paris", supersedes=[older])
    opened = Tab(browser, serve(services(space)).base, "/#/memory")
    opened.page.locator(".memory").first.wait_for()
    yield opened
    opened.close()


def _texts(tab: Tab) -> list[str]:
    texts: list[str] = tab.page.locator(".memory a").all_text_contents()
    return texts


def test_the_timeline_shows_what_holds_and_on_request_what_was_replaced(tab: Tab) -> None:
    assert _texts(tab) == ["I moved from Berlin to Paris", "The standup is at half past nine"]
    tab.page.check("#memory-superseded")
    tab.page.locator(".memory.replaced", has_text="I live in Berlin").wait_for()


def test_a_memory_is_corrected_forgotten_and_brought_back(tab: Tab) -> None:
    page = tab.page
    page.locator(".memory a", has_text="standup").click()
    page.fill("#memory-edit", "The standup is at ten")
    page.get_by_role("button", name="Correct it").click()
    page.locator("#memory-one ins", has_text="The standup is at ten").wait_for()
    page.get_by_role("button", name="Forget it").click()
    page.locator("#memory-status", has_text="Forgotten. 1 memory").wait_for()
    page.get_by_role("button", name="Undo").click()
    page.locator("#memory-status", has_text="Undone. 2 memories").wait_for()
    assert "The standup is at ten" in _texts(tab)
    page.reload()
    page.locator(".memory").first.wait_for()
    assert "The standup is at ten" in _texts(tab)


def test_undo_is_offered_only_in_its_own_bank(tab: Tab, space: Workspace) -> None:
    space.memory.bank("alice").put("Alice likes tea")
    page = tab.page
    tab.lead("#/memory/default")
    page.locator(".memory a", has_text="standup").click()
    page.get_by_role("button", name="Forget it").click()
    page.locator("#memory-status", has_text="Forgotten.").get_by_role("button", name="Undo").wait_for()
    page.locator("#memory-banks .chip", has_text="alice").click()
    page.locator(".memory", has_text="Alice likes tea").wait_for()
    tab.shows("#memory-status", "1 memory, latest first")
    assert page.get_by_role("button", name="Undo").count() == 0


def test_an_export_is_imported_completely(tab: Tab, space: Workspace, tmp_path: Path) -> None:
    page, bank = tab.page, space.memory.bank("default")
    bank.put(
        "The trip to Ghent",
        type="experience",
        contexts=["home", "work"],
        metadata={"n": 1},
        timestamp="2020-01-02T03:04:05Z",
        event_date="2020-02-03",
    )
    lines = list(bank.export())
    with page.expect_download() as download:
        page.click("#memory-export")
    path = tmp_path / "saved.jsonl"
    download.value.save_as(path)
    assert path.read_text().splitlines() == lines
    tab.lead("#/memory/copy")
    tab.shows("#memory-status", "No memories in this bank")
    page.set_input_files("#memory-import", str(path))
    tab.shows("#memory-status", "4 memories imported, 0 already existed")
    assert list(space.memory.bank("copy").export()) == lines
    space.memory.bank("copy").update(bank.ids_of({"type": "experience"})[0], {"text": "The trip to Bruges"})
    page.set_input_files("#memory-import", str(path))
    tab.shows("#memory-status", "0 memories imported, 3 already existed; 1 have other content here")


@pytest.mark.parametrize("width", [1280, 320])
def test_axe_finds_nothing_in_the_memory_view(tab: Tab, width: int) -> None:
    node()
    tab.page.set_viewport_size({"width": width, "height": 800})
    assert tab.violations() == []
    assert not tab.too_wide()
    tab.page.locator(".memory a").first.click()
    tab.page.locator("#memory-edit").wait_for()
    assert tab.violations() == []
    assert not tab.too_wide()
