"""The views of the page in a real browser: documents, filters, sources, tools, errors."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import project, workspace
from serving import Serve, Served, whole
from tabs import Tab

from ctx.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

NOTES = """---
title: Field notes
---

# Field notes

Some *emphasis*, **strong**, `code`, a [link](https://example.org/a), a [trap](javascript:alert(1))
and <b onclick="alert(1)">markup</b>.

## Harvest

- apples
- pears
  - conference pears

| fruit | crates |
|-------|--------|
| apple | 12 |

```python
crates = 12
```

## Storage

Apples are stored cold. Crates of apples are counted on Fridays.
"""
NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "source": ["# Yield\n", "Crates *per* tree"]},
        {"cell_type": "code", "source": ["print(12)"], "outputs": []},
    ],
    "metadata": {"language_info": {"name": "python"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}
DOCUMENTS = {
    "farm/notes.md": NOTES,
    "farm/yield.ipynb": json.dumps(NOTEBOOK),
    "code/crates.py": "def count_crates(apples: int) -> int:\n    return apples // 40\n",
    "hebrew.md": "# דף ראשי\n\nזהו מסמך על אחסון. apples\n\n- ראשון\n\n| שם | ערך |\n|---|---|\n| א | ב |\n",
}


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace(project(tmp_path_factory.mktemp("views"), DOCUMENTS)) as opened:
        opened.refresh([])
        yield opened


def _serve(serve: Serve, space: Workspace) -> Served:
    return serve(whole(space))


@pytest.fixture
def tab(browser: Any, serve: Serve, space: Workspace) -> Iterator[Tab]:
    opened = Tab(browser, _serve(serve, space).base)
    yield opened
    opened.close()


def _open(tab: Tab, query: str, title: str) -> None:
    tab.search(query)
    tab.page.locator(".result", has_text=title).first.locator(".open").press("Enter")
    tab.page.locator("#view-doc #document-body [data-from]").first.wait_for()


def test_every_view_has_an_address_that_back_and_reload_keep(tab: Tab) -> None:
    page = tab.page
    tab.search("apples")
    path = ["search"]
    for view in ("activity", "sources", "tools", "connect"):
        page.click(f"[data-view={view}]")
        page.locator(f"#view-{view}").wait_for(state="visible")
        page.reload()
        page.locator(f"#view-{view}").wait_for(state="visible")
        assert page.locator("[aria-current=page]").get_attribute("data-view") == view
        path.append(view)
    for view in reversed(path[:-1]):
        page.go_back()
        page.locator(f"#view-{view}").wait_for(state="visible")
    page.locator(".result").first.wait_for()
    assert page.input_value("#query") == "apples"
    page.go_forward()
    page.locator("#view-activity").wait_for(state="visible")


def test_a_document_is_rendered_with_its_outline(tab: Tab) -> None:
    _open(tab, "crates fridays", "Field notes")
    body = tab.page.locator("#document-body")
    assert body.locator("h3").all_text_contents() == ["Harvest", "Storage"]
    assert body.locator("em").text_content() == "emphasis"
    assert body.locator("li li").text_content() == "conference pears"
    assert body.locator("td").all_text_contents() == ["apple", "12"]
    assert body.locator("pre code").text_content() == "crates = 12"
    assert body.locator("a").all_text_contents() == ["link"]  # javascript: is no link
    assert body.locator("b, script, img").count() == 0
    assert '<b onclick="alert(1)">markup</b>' in body.text_content()
    outline = tab.page.locator("#document-side details", has_text="Outline").locator("a")
    assert outline.all_text_contents() == ["Field notes", "Harvest", "Storage"]
    outline.nth(1).click()
    tab.until("document.querySelector('#document-body .found')?.textContent === 'Harvest'")


def test_results_are_counted_by_folder_and_kind_and_narrowed_to_them(tab: Tab) -> None:
    tab.search("apples crates")
    kinds = tab.page.locator("#kind option").all_text_contents()
    assert kinds == ["All kinds", "md (2)", "ipynb (1)", "py (1)"]
    tab.page.select_option("#kind", "py")
    tab.until("document.querySelectorAll('.result').length === 1")
    assert tab.titles() == ["count_crates"]
    assert "kind=py" in tab.page.url
    tab.page.go_back()
    tab.until("document.querySelectorAll('.result').length === 4")


def test_no_results_offers_other_searches(tab: Tab) -> None:
    tab.lead("#/search?q=apples&mode=keyword&folder=nowhere/")
    way = tab.page.locator("#ways a")
    way.wait_for()
    assert way.text_content() == "Search everywhere, not only in nowhere/"
    way.click()
    tab.page.locator(".result").first.wait_for()
    tab.page.locator("#ways").wait_for(state="hidden")
    assert "folder" not in tab.page.url
    tab.lead("#/search?q=zzzqqq&mode=keyword")  # this server has no other mode
    tab.page.locator("#ways a", has_text="See what is indexed").click()
    tab.page.locator("#view-sources").wait_for(state="visible")


def test_right_to_left_text_is_laid_out_right_to_left(tab: Tab) -> None:
    _open(tab, "דף ראשי", "דף ראשי")
    directions = tab.page.evaluate(
        "['#document-title', '#document-body h2', '#document-body p', '#document-body table'].map("
        "(place) => getComputedStyle(document.querySelector(place)).direction)"
    )
    assert directions == ["rtl", "rtl", "rtl", "rtl"]
    room = tab.page.evaluate("getComputedStyle(document.querySelector('#document-body ul')).paddingRight")
    assert float(room.removesuffix("px")) > 20  # for the bullets
    tab.page.go_back()
    title = tab.page.locator(".title", has_text="דף ראשי")
    title.wait_for()
    assert (
        title.evaluate("(title) => getComputedStyle(title).display") == "block"
    )  # so it begins at the right


def test_a_tool_is_called_by_a_form_and_shown_as_a_command(tab: Tab) -> None:
    tab.lead("#/tools/search")
    tab.page.click("#tool summary")
    tab.page.fill("#field-query", "it's apples")
    tab.page.fill("#field-limit", "2")
    tab.page.select_option("#field-mode", '"keyword"')
    command = tab.text("#tool pre")
    assert """-d '{"query":"it'\\''s apples","mode":"keyword","limit":2}'""" in command
    tab.page.get_by_role("button", name="Call it").click()
    tab.until("document.querySelector('#tool [role=status]').textContent.startsWith('Answered')")
    assert len(json.loads(tab.page.locator("#tool pre").last.text_content())["results"]) == 2
    tab.lead("#/tools/nothing")
    tab.until("document.querySelector('#tool').textContent.includes('no tool called nothing')")


def test_index_now_says_what_changed_and_what_was_left_out(
    browser: Any, serve: Serve, tmp_path: Path
) -> None:
    config = project(tmp_path, {"notes.md": "# Notes\n\napples\n"})
    with workspace(config) as space:
        tab = Tab(browser, _serve(serve, space).base, "/#/sources")
        card = tab.page.locator("#source-list .card")
        card.locator(".state", has_text="never indexed").wait_for()
        tab.page.locator("#health-dot[aria-label='not everything is indexed yet']").wait_for()
        (tmp_path / "docs" / "broken.ipynb").write_bytes(b"\x00\x01" * 4000)
        card.get_by_role("button", name="Index now").click()
        card.get_by_text("1 document changed").wait_for()
        card.get_by_text("1 skipped (binary, or without text)").wait_for()
        card.locator(".state", has_text="fresh").wait_for()
        tab.shows("#source-list .card", "Last indexedjust now")
        tab.close()


def test_without_embeddings_the_page_says_what_is_off(tab: Tab) -> None:
    tab.page.locator("#mode-note").wait_for(state="visible")
    assert tab.page.locator("#mode").is_hidden()


def test_a_server_that_is_gone_is_told_and_its_return_is_noticed(
    browser: Any, serve: Serve, space: Workspace
) -> None:
    served = _serve(serve, space)
    tab = Tab(browser, served.base)
    tab.search("apples")
    down = threading.Event()

    def refuse(route: Any) -> None:
        if down.is_set():
            route.abort("connectionrefused")
        else:
            route.continue_()

    tab.page.route("**/*", refuse)
    down.set()
    tab.page.fill("#query", "pears")
    tab.shows("#down", "does not answer")
    tab.page.locator("#health-dot.bad").wait_for()
    tab.shows("#status", "These are the results of the last search")
    assert tab.titles()
    down.clear()
    tab.page.locator("#down").wait_for(state="hidden")
    tab.until("document.getElementById('status').textContent.includes(' in ')")
    assert tab.titles() == ["Field notes"]
    tab.faults[:] = [fault for fault in tab.faults if "ERR_CONNECTION_REFUSED" not in fault]
    tab.close()
