"""The page at GET /, used in a real browser: by keyboard, on a phone, light and dark, and by axe."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, project, workspace
from real_clients import node
from serving import Serve, Served, whole
from tabs import Tab

from ctx import models
from ctx.cli.clients import CLIENTS
from ctx.server.policy import ServerSettings
from ctx.workspace import Workspace

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

GUIDE = "\n".join(
    [
        "# Deployment guide",
        "",
        "Releases go out on Tuesdays. A release is signed before it leaves the build machine.",
        "",
        "## Rollback",
        "",
        "Roll back with `ctl rollback RELEASE`. Traffic moves to the old release within a minute; sessions "
        "survive,",
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
    "auth/tokens.md": "# Authentication\n\nTokens are signed with the release key and rotate monthly.\n\n## "
    "Rotation\n\nRotate the signing key first.\n",
    "hostile.md": "---\ntitle: '<img src=x onerror=alert(1)> release'\n---\n\n<script>document.title='owned'<"
    "/script> a release of <b>markup</b> &amp; \u202eodd text\n",
    "code/rollback.py": 'def rollback_release(name: str) -> None:\n    """Moves traffic back to the release '
    'before."""\n    switch(name)\n',
}


DOCUMENT_ID = models.document_id("filesystem:docs", "ops/deploy.md")
VIEWS = {  # address -> what is there when it is
    "#/search": "#facts li",
    "#/search?q=release": ".result",
    f"#/doc/{DOCUMENT_ID}?q=release&lines=3-7": "#view-doc #document-body .found",
    "#/sources": "#source-list .card",
    "#/tools/search": "#tool form",
    "#/connect": "#connect-client .card",
    "#/activity": "#activity-status:not(:empty)",
    "#/about": "#about .card",
}


@pytest.fixture(scope="module")
def space(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    with workspace(project(tmp_path_factory.mktemp("page"), DOCUMENTS)) as opened:
        opened.refresh([])
        yield opened


@pytest.fixture
def served(serve: Serve, space: Workspace) -> Served:
    return serve(whole(space))


@pytest.fixture
def closed(serve: Serve, space: Workspace) -> Served:
    """A server that asks for a key."""
    settings = ServerSettings(api_keys=("open-sesame",))
    return serve(whole(space), settings)


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
    assert re.match(r"\d+ documents with these words, in \d+ ms", tab.text("#status"))
    assert "#/search?q=rollback+release" in tab.page.url
    tab.page.reload()  # an address can be sent to somebody
    tab.page.wait_for_selector(".result")
    assert tab.titles() == titles


def test_a_document_opens_at_the_passage_and_back_gives_the_focus_back(tab: Tab) -> None:
    tab.search("rollback")
    link = tab.page.locator(".result", has_text="Deployment guide").locator(".open")
    link.press("Enter")
    tab.page.locator("#view-doc #document-body .found").first.wait_for()
    assert tab.text("#document-title") == "Deployment guide"
    assert tab.page.title() == "Deployment guide - ctx"
    tab.page.get_by_role("button", name="Source").click()
    assert "\n".join(tab.page.locator("#document-body .row .text").all_text_contents()) == GUIDE
    tab.page.go_back()
    tab.page.locator("#results").wait_for()
    tab.until("document.activeElement.classList.contains('open')")
    assert link.evaluate("link => link === document.activeElement")


def test_a_document_cannot_run_in_the_page(tab: Tab) -> None:
    tab.search("markup")
    (title,) = tab.titles()
    assert title == "<img src=x onerror=alert(1)> release"
    tab.page.locator(".result .open").press("Enter")
    tab.page.locator("#view-doc #document-body .found").first.wait_for()
    assert "<script>document.title='owned'</script>" in tab.text("#document-body")
    assert (
        tab.page.locator("#document-body script, #document-body img, #results img, #results b").count() == 0
    )
    assert tab.page.title() == "<img src=x onerror=alert(1)> release - ctx"


def test_the_keyboard_is_enough(tab: Tab) -> None:
    page = tab.page
    tab.wait_for_focus("query")
    page.keyboard.type("release")
    tab.until("location.hash.includes('q=release')")  # not what its first letters found
    page.wait_for_selector(".result")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.locator(".result").nth(1).locator(".open").evaluate("link => link === document.activeElement")
    page.keyboard.press("Enter")
    page.locator("#view-doc #document-body [data-from]").first.wait_for()
    tab.wait_for_focus("document-title")
    page.go_back()
    page.locator("#results").wait_for()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    tab.wait_for_focus("query")
    page.keyboard.press("Escape")
    assert page.input_value("#query") == ""
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Shift+Tab")  # to the last of the views
    page.keyboard.press("Enter")
    page.locator("#view-connect").wait_for(state="visible")
    page.keyboard.press("/")
    tab.wait_for_focus("query")
    page.locator("#view-search").wait_for(state="visible")


def _without_path(entry: str) -> str:
    """An entry with the command's name where its whole path may stand."""
    return re.sub(r'"command": "[^"]*"', '"command": "ctx"', entry)


def test_the_connect_view_says_what_ctx_connect_writes(tab: Tab, served: Served, tmp_path: Path) -> None:
    tab.page.click("[data-view=connect]")
    tab.page.locator("#connect-client .card").wait_for()
    pills = tab.page.locator("#connect-list .chip")
    assert pills.count() == len(CLIENTS) + 1
    folder = tmp_path / served.client.get("/activity").json()["name"].removeprefix("ctx-")
    folder.mkdir()  # called as the server's own is
    project(folder)
    for name in ("cursor", "claude-code", "claude-desktop", "vscode", "codex", "windsurf", "lmstudio"):
        tab.lead(f"#/connect/{name}")
        tab.shows("#connect-client pre", f"ctx connect {name}")
        shown = tab.page.locator("#connect-client pre").nth(1).text_content()
        printed = ctx("connect", name, "--user", "--url", f"{served.base}/mcp", "--print", cwd=folder)
        path, _, entry = printed.stdout.partition("\n# One click")[0].strip().partition("\n")
        assert path.startswith("# "), printed
        assert _without_path(shown) == _without_path(entry), name


def test_results_come_with_a_preview_and_are_walked_by_j_and_k(tab: Tab, space: Workspace) -> None:
    page = tab.page
    tab.search("release")
    tab.shows("#preview #document-path", tab.text(".result.current .path").partition(":")[0])
    page.locator(".result .open").first.focus()
    page.keyboard.press("j")
    second = page.locator(".result").nth(1)
    tab.shows("#preview #document-path", second.locator(".path").text_content().partition(":")[0])
    assert second.get_attribute("class") == "result current"
    assert "#/search" in page.url
    page.keyboard.press("k")
    assert page.locator(".result").nth(0).get_attribute("class") == "result current"
    tab.search("rollback_release")
    code = page.locator(".result", has_text="code/rollback.py")
    assert code.locator(".number").first.text_content() == "1"
    assert code.locator(".t-keyword").first.text_content() == "def"
    code.locator(".open").click()
    root = space.config.filesystems[0].root
    page.locator(f"#preview a[href='vscode://file{root}/code/rollback.py:1']").wait_for()


def test_an_unfinished_word_is_completed_and_not_corrected(tab: Tab) -> None:
    tab.wait_for_focus("query")  # before, the box is not shown
    tab.page.locator("#query").press_sequentially("authenticatio", delay=5)
    tab.until("location.hash.includes('authenticatio')")
    tab.page.locator(".result", has_text="auth/tokens.md").wait_for()
    tab.until("document.getElementById('status').textContent.includes(' in ')")
    tab.page.locator("#notice").wait_for(state="hidden")


def test_activity_shows_what_was_asked_and_marks_what_found_nothing(tab: Tab, served: Served) -> None:
    post = served.client.post
    headers = {"x-ctx-client": "claude-code"}
    post("/tools/search", json={"query": "signing key"}, headers=headers)
    post("/tools/search", json={"query": "wombat"}, headers=headers)
    post("/tools/get", json={"path": "auth/tokens.md"}, headers=headers)

    def rows() -> list[str]:
        tab.lead("#/about")
        tab.lead("#/activity")
        texts: list[str] = tab.page.locator(".call", has_text="claude-code").all_text_contents()
        return texts

    deadline = time.monotonic() + 30
    while len(shown := rows()) < 3:
        assert time.monotonic() < deadline, shown
    read, weak, search = shown
    assert "read auth/tokens.md" in read
    assert "wombat no good hit" in weak
    assert "opened auth/tokens.md" in search
    tab.page.get_by_role("button", name="No good hit").click()
    tab.until("document.querySelectorAll('.call').length === 1")
    assert served.client.delete("/log").json()["cleared"] >= 3


def enter_key(tab: Tab) -> None:
    tab.page.locator("#key").wait_for(state="visible")
    tab.page.fill("#key", "open-sesame")
    tab.page.press("#key", "Enter")


def test_a_server_with_a_key_asks_for_it_once(browser: Any, closed: Served) -> None:
    tab = Tab(browser, closed.base)
    tab.wait_for_focus("key")
    tab.page.locator("#health-dot[aria-label='the server needs a key']").wait_for()
    tab.page.keyboard.type("a wrong one")
    tab.page.keyboard.press("Enter")
    tab.shows("#key-note.error", "This key is not valid")
    tab.wait_for_focus("key")
    enter_key(tab)
    tab.search("rollback")
    assert "Deployment guide" in tab.titles()
    assert "open-sesame" not in tab.page.url
    assert "open-sesame" not in tab.page.evaluate("JSON.stringify(localStorage)")
    assert all("401" in fault for fault in tab.faults)  # the browser's own word on the first request
    tab.faults.clear()
    tab.close()


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 320)])
def test_axe_finds_nothing_and_no_view_is_wider_than_the_screen(
    browser: Any, served: Served, scheme: str, width: int, tmp_path: Path
) -> None:
    node()  # the folder of axe
    tab = Tab(browser, served.base, color_scheme=scheme, viewport={"width": width, "height": 780})
    tab.page.wait_for_selector("#facts li")
    faults: dict[str, list[str]] = {}
    for address, landmark in VIEWS.items():
        tab.lead(address)
        tab.page.wait_for_selector(landmark)
        faults[address] = tab.violations() + (["too wide"] if tab.too_wide() else [])
        tab.page.screenshot(path=tmp_path / f"{address.split('/')[1][:6]}.png")
    assert {address: entries for address, entries in faults.items() if entries} == {}
    tab.close()
