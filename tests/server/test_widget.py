"""The search widget of a static site, in a real browser: by keyboard, on a phone, by axe, over a real
export.
"""

import functools
import http.server
from collections.abc import Iterator
from typing import Any

import pytest
from kit import ROOT, ctx, http_server, project, workspace
from real_clients import CLIENTS, missing
from tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

WIDGET = ROOT / "ctx" / "cli" / "widget.js"
DOCUMENTS = {
    "guide/release.md": "# Release guide\n\nReleases go out on Tuesdays.\n\n## Rollback\n\nRoll back by its "
    "number.\n",
    "guide/index.md": "# Guides\n\nAll guides, the release among them.\n",
    "tokens.md": "# Tokens\n\nThe signing key rotates monthly. "
    + "Words to be cut. " * 40
    + "The café opens.\n",
    "hostile.md": "---\ntitle: '<img src=x onerror=alert(1)>'\n---\n\n<script>alert(2)</script> markup & "
    "more\n",
    "tokyo.md": "# 東京\n\n東京都の鉄道はとても便利です。\n",
}
POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'"
PAGE = """<!doctype html><html lang="en"><head><title>Site</title><meta name="viewport" content="width=device-width">
<script src="/assets/ctx-widget.js" data-index="/assets/ctx-index.json" data-link="/{path}/" defer></script></head>
<body><main><h1>Site</h1><p>Words.</p><label>Name <input id="name"></label>%s</main></body></html>"""


class _Site(http.server.SimpleHTTPRequestHandler):
    def end_headers(self) -> None:
        self.send_header("Content-Security-Policy", POLICY)
        super().end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a static site with an export and the widget."""
    folder = tmp_path_factory.mktemp("site")
    config = project(tmp_path_factory.mktemp("project"), DOCUMENTS)
    with workspace(config) as space:
        space.refresh([])
    assets = folder / "public" / "assets"
    assets.mkdir(parents=True)
    for option, name in (("-o", "ctx-index.json"), ("--widget", "ctx-widget.js")):
        run = ctx("export", option, str(assets / name), cwd=config.parent)
        assert run.returncode == 0, run.stderr
    (folder / "public" / "favicon.ico").touch()  # browsers ask for it on their own
    (folder / "public" / "index.html").write_text(PAGE % "")
    (folder / "public" / "button.html").write_text(PAGE % "<button data-ctx-search>Find</button>")
    (folder / "public" / "broken.html").write_text((PAGE % "").replace("ctx-index", "ctx-none"))
    with http_server(functools.partial(_Site, directory=str(folder / "public"))) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.fixture
def tab(browser: Any, site: str) -> Iterator[Tab]:
    opened = Tab(browser, site)
    yield opened
    opened.close()


def ask(tab: Tab, query: str) -> list[str]:
    """Types a query; the titles that appear."""
    tab.page.locator("dialog input").fill(query)
    tab.page.locator("[role=status]", has_text="found").or_(
        tab.page.locator("[role=status]", has_text="page")
    ).wait_for()
    return list(tab.page.locator("dialog li b").all_text_contents())


def test_the_widget_works_by_keyboard(tab: Tab) -> None:
    keyboard = tab.page.keyboard
    keyboard.press("Control+k")
    keyboard.type("rollback rel")
    tab.page.locator("dialog li a").first.wait_for()
    assert tab.text("dialog li b") == "Release guide"
    assert "Rollback" in tab.text("dialog li a")
    assert tab.page.locator("dialog mark").first.text_content()
    keyboard.press("ArrowDown")
    keyboard.press("ArrowUp")
    keyboard.type("ease")  # focus is back in the field
    assert tab.page.locator("dialog input").input_value() == "rollback release"
    with tab.page.expect_navigation(url="**/guide/release/"):
        keyboard.press("Enter")
    tab.faults.clear()  # the page it led to is not there


def test_closing_the_widget_restores_focus(tab: Tab) -> None:
    dialog = tab.page.locator("dialog")
    tab.page.focus("#name")
    tab.page.keyboard.type("/")
    assert tab.page.input_value("#name") == "/"  # typing is typing
    assert not dialog.is_visible()
    for key in ("Escape", "Control+k", "Enter"):
        tab.page.keyboard.press("Control+k")
        dialog.wait_for(state="visible")
        if key == "Enter":
            tab.page.keyboard.press("Tab")
        tab.page.keyboard.press(key)
        dialog.wait_for(state="hidden")
        tab.wait_for_focus("name")
    tab.page.locator("h1").click()
    tab.page.keyboard.press("/")
    dialog.wait_for(state="visible")


def test_words_are_found_in_any_form_and_markup_stays_text(tab: Tab) -> None:
    tab.page.keyboard.press("Control+k")
    assert ask(tab, "releases")[0] == "Release guide"
    assert ask(tab, "CAFE") == ["Tokens"]
    assert "… " in tab.text("dialog small")
    assert ask(tab, "鉄道") == ["東京"]
    assert ask(tab, "markup") == ["<img src=x onerror=alert(1)>"]
    assert tab.page.locator("dialog img, dialog script").count() == 0
    assert ask(tab, "zebra") == []
    assert ask(tab, "guides")[0] == "Guides"
    assert tab.page.locator("dialog li a").first.get_attribute("href").endswith("/guide/")


def test_a_missing_index_is_reported(browser: Any, site: str) -> None:
    tab = Tab(browser, site, "/broken.html")
    tab.page.keyboard.press("Control+k")
    tab.page.locator("[role=status]", has_text="could not be loaded").wait_for()
    tab.faults.clear()  # the browser says that a file is not there
    tab.close()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_axe_finds_nothing_and_nothing_is_wider_than_the_screen(
    browser: Any, site: str, width: int, scheme: str
) -> None:
    if not (CLIENTS / "node_modules" / "axe-core").is_dir():
        missing("axe")
    options = {"viewport": {"width": width, "height": 640}, "color_scheme": scheme, "bypass_csp": True}
    tab = Tab(browser, site, "/", has_touch=width < 600, **options)
    assert tab.violations() == []
    tab.page.locator("button.open").tap() if width < 600 else tab.page.locator("button.open").click()
    tab.page.locator("dialog").wait_for(state="visible")
    assert ask(tab, "the")
    assert tab.violations() == []
    assert not tab.too_wide()
    box = tab.page.locator("dialog").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= width
    tab.close()


def test_the_widget_is_one_small_file() -> None:
    script = WIDGET.read_bytes()
    assert len(script) < 15_000
    assert script.isascii()  # whatever encoding a page has
