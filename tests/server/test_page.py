"""The page at GET /, used in a real browser: by keyboard, on a phone, light and dark, and by axe."""

import importlib.util
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import project, workspace
from real_clients import CLIENTS, chromium, missing, node
from serving import Serve, Served

from ctx.server.app import Services
from ctx.server.policy import ServerSettings
from ctx.tools.agents import Agents
from ctx.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

START_MS = 180_000
GUIDE = "\n".join(
    [
        "# Deployment guide",
        "",
        "Releases go out on Tuesdays. A release is signed before it leaves the build machine.",
        "",
        "## Rollback",
        "",
        "Roll back with `ctl rollback RELEASE`. Traffic moves to the old release within a minute; sessions survive,",
        "because tokens are checked against the signing key and not against the release.",
        "",
        "## Canary",
        "",
        *(
            f"- step {number}: watch the error budget for five minutes, then widen"
            for number in range(1, 120)
        ),
    ]
)
DOCUMENTS = {
    "ops/deploy.md": GUIDE,
    "auth/tokens.md": "# Authentication\n\nTokens are signed with the release key and rotate monthly.\n\n## Rotation\n\nRotate the signing key first.\n",
    "hostile.md": "---\ntitle: '<img src=x onerror=alert(1)> release'\n---\n\n<script>document.title='owned'</script> a release of <b>markup</b> &amp; \u202eodd text\n",
    "code/rollback.py": 'def rollback_release(name: str) -> None:\n    """Moves traffic back to the release before."""\n    switch(name)\n',
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    if importlib.util.find_spec("playwright") is None:
        missing("playwright")
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"], timeout=START_MS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace(project(tmp_path_factory.mktemp("page"), DOCUMENTS)) as opened:
        opened.refresh([])
        yield opened


@pytest.fixture
def served(serve: Serve, space: Workspace) -> Served:
    return serve(Services(space.toolbox, Agents(), space.health))


class Tab:
    """A page in the browser, with all that went wrong in it."""

    def __init__(self, browser: Any, base: str, path: str = "/", **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(30_000)
        self.faults: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", self._refuse)
        self.page.goto(base + path)

    def _refuse(self, dialog: Any) -> None:
        self.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _note(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(message.text)

    def search(self, query: str) -> None:
        self.page.fill("#query", query)
        self.page.press("#query", "Enter")
        self.until("document.getElementById('status').textContent.includes(' in ')")

    def until(self, claim: str) -> None:
        """Waits until a JavaScript expression holds. (Playwright's own way evaluates text in the page, which
        the policy forbids.)
        """
        for _ in range(1500):
            if self.page.evaluate(claim):
                return
            self.page.wait_for_timeout(20)
        raise AssertionError(f"never came true: {claim}")

    def titles(self) -> list[str]:
        match: list[str] = self.page.locator("#results .title").all_text_contents()
        return match

    def focused(self) -> str:
        requests: str = self.page.evaluate(
            "document.activeElement.id || document.activeElement.className || document.activeElement.tagName"
        )
        return requests

    def violations(self) -> list[str]:
        """What axe finds; its source is run in the page by the debugger, which the page's policy does not
        bind.
        """
        self.page.evaluate((CLIENTS / "node_modules" / "axe-core" / "axe.min.js").read_text())
        # Once animations and fades are over: a half-faded text has half its contrast.
        self.page.evaluate("Promise.all(document.getAnimations().map((animation) => animation.finished))")
        match = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)"
        )
        return [
            f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
            for each in match
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self.context.close()
        assert self.faults == []


@pytest.fixture
def tab(browser: Any, served: Served) -> Iterator[Tab]:
    opened = Tab(browser, served.base)
    yield opened
    opened.close()


def test_a_search_shows_titles_places_and_marked_words(tab: Tab) -> None:
    tab.search("rollback release")
    titles = tab.titles()
    assert "Deployment guide" in titles
    row = tab.page.locator(".result", has_text="Deployment guide")
    assert re.fullmatch(r"ops/deploy\.md:\d+", row.locator(".path").text_content())
    assert {mark.lower() for mark in row.locator("mark").all_text_contents()} & {
        "rollback",
        "release",
        "roll",
    }
    assert re.match(r"\d+ documents in \d+ ms", tab.page.locator("#status").text_content())
    assert "q=rollback+release" in tab.page.url
    tab.page.reload()  # an address can be sent to somebody
    tab.page.wait_for_selector(".result")
    assert tab.titles() == titles


def test_what_is_not_there_is_said(tab: Tab) -> None:
    tab.search("zebra quagga")
    assert tab.titles() == []
    assert tab.page.locator("#status").text_content().startswith("Nothing found")


def test_a_document_opens_at_the_passage_and_gives_the_focus_back(tab: Tab) -> None:
    tab.search("rollback")
    link = tab.page.locator(".result", has_text="Deployment guide").locator(".open")
    link.click()
    dialog = tab.page.locator("#document")
    dialog.wait_for(state="visible")
    assert tab.page.locator("#document-title").text_content() == "Deployment guide"
    assert tab.page.locator("#document-body .found").count() > 0
    assert "\n".join(tab.page.locator("#document-body .row .text").all_text_contents()) == GUIDE
    tab.page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    assert link.evaluate("link => link === document.activeElement")


def test_a_document_cannot_run_in_the_page(tab: Tab) -> None:
    tab.search("markup")
    (title,) = tab.titles()
    assert title == "<img src=x onerror=alert(1)> release"
    tab.page.locator(".result .open").click()
    tab.page.locator("#document").wait_for(state="visible")
    assert "<script>document.title='owned'</script>" in tab.page.locator("#document-body").text_content()
    assert (
        tab.page.locator("#document-body script, #document-body img, #results img, #results b").count() == 0
    )
    assert tab.page.title() == "ctx"


def test_the_keyboard_is_enough(tab: Tab) -> None:
    page = tab.page
    assert tab.focused() == "query"
    page.keyboard.type("release")
    page.wait_for_selector(".result")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(".result").nth(1).locator(".open").evaluate("link => link === document.activeElement")
    page.keyboard.press("Enter")
    page.locator("#document").wait_for(state="visible")
    # Everything the dialog offers is reached by Tab, and nothing behind it is.
    inside = []
    for _ in range(4):
        page.keyboard.press("Tab")
        inside.append(
            page.evaluate(
                "document.activeElement === document.body || !!document.activeElement.closest('#document')"
            )
        )
    assert all(inside)
    page.keyboard.press("Escape")
    page.locator("#document").wait_for(state="hidden")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert tab.focused() == "query"
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    page.keyboard.press("Shift+Tab")  # to the views, the last of them
    page.keyboard.press("Enter")
    page.locator("#view-connect").wait_for(state="visible")
    page.keyboard.press("/")
    assert tab.focused() == "query"
    assert page.locator("#view-search").is_visible()


def test_the_skip_link_leads_past_the_header(tab: Tab) -> None:
    tab.page.locator(".skip").focus()
    assert tab.page.locator(".skip").bounding_box()["x"] >= 0
    tab.page.keyboard.press("Enter")
    assert tab.focused() == "results"


def test_sources_tell_what_is_indexed(tab: Tab) -> None:
    tab.page.click("[data-view=sources]")
    card = tab.page.locator("#source-list .card")
    card.wait_for()
    assert "filesystem:docs" in card.text_content()
    assert "fresh" in card.text_content()
    assert str(len(DOCUMENTS)) in card.locator("dd").first.text_content()


def test_a_search_can_be_narrowed_to_a_source_and_a_mode(tab: Tab) -> None:
    tab.until("document.getElementById('source').options.length > 1")
    tab.search("release")
    tab.page.select_option("#source", "filesystem:docs")
    tab.page.locator("label", has_text="Keyword").click()
    tab.until("location.search.includes('mode=keyword') && location.search.includes('source=')")
    assert len(tab.titles()) == len(DOCUMENTS)


def test_the_connect_view_names_this_server_for_every_client(tab: Tab, served: Served) -> None:
    tab.page.click("[data-view=connect]")
    snippets = {
        card.locator("h2").text_content(): card.locator("pre").text_content()
        for card in tab.page.locator("#connect-list .card").all()
    }
    assert set(snippets) >= {"Cursor", "Claude Code", "Claude Desktop", "VS Code", "Codex"}
    assert json.loads(snippets["Cursor"])["mcpServers"]["ctx"]["url"].startswith(served.base)
    assert json.loads(snippets["VS Code"])["servers"]["ctx"] == {"type": "http", "url": f"{served.base}/mcp"}


def test_a_snippet_is_copied(browser: Any, served: Served) -> None:
    tab = Tab(browser, served.base, permissions=["clipboard-read", "clipboard-write"])
    tab.page.click("[data-view=connect]")
    card = tab.page.locator("#connect-list .card").first
    card.locator("button").click()
    tab.until("document.querySelector('#connect-list button').textContent === 'Copied'")
    assert tab.page.evaluate("navigator.clipboard.readText()") == card.locator("pre").text_content()
    tab.close()


def test_a_server_with_a_key_asks_for_it_once(browser: Any, serve: Serve, space: Workspace) -> None:
    served = serve(Services(space.toolbox, Agents(), space.health), ServerSettings(api_keys=("open-sesame",)))
    tab = Tab(browser, served.base)
    tab.page.locator("#key").wait_for(state="visible")
    tab.page.fill("#key", "open-sesame")
    tab.page.press("#key", "Enter")
    tab.search("rollback")
    assert "Deployment guide" in tab.titles()
    assert "open-sesame" not in tab.page.url
    assert tab.page.evaluate("localStorage.length") == 0
    assert all("401" in fault for fault in tab.faults)  # the browser's own word on the first request
    tab.faults.clear()
    tab.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_axe_finds_nothing_and_no_view_is_wider_than_the_screen(
    browser: Any, served: Served, scheme: str, width: int, tmp_path: Path
) -> None:
    node()  # the folder of axe
    tab = Tab(browser, served.base, color_scheme=scheme, viewport={"width": width, "height": 780})
    page = tab.page
    wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
    page.wait_for_selector("#facts li")
    requests = {"welcome": tab.violations()}
    tab.search("release")
    assert not page.evaluate(wide)
    requests["results"] = tab.violations()
    page.screenshot(path=tmp_path / "results.png")
    page.locator(".result .open").first.click()
    page.locator("#document").wait_for(state="visible")
    assert not page.evaluate(wide)
    requests["document"] = tab.violations()
    page.screenshot(path=tmp_path / "document.png")
    page.keyboard.press("Escape")
    for view in ("sources", "connect"):
        page.click(f"[data-view={view}]")
        page.wait_for_selector(f"#view-{view} .card")
        assert not page.evaluate(wide), view
        requests[view] = tab.violations()
        page.screenshot(path=tmp_path / f"{view}.png")
    assert {view: match for view, match in requests.items() if match} == {}
    tab.close()
