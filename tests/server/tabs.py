"""A tab of a real browser that records every error in the page."""

import importlib.util
from collections.abc import Iterator
from typing import Any

from real_clients import CLIENTS, chromium, missing

START_MS = 180_000  # a cold start of the browser on a loaded machine takes a minute and a half


def running_browser(*arguments: str) -> Iterator[Any]:
    """A headless Chromium with these further arguments, until the generator ends."""
    if importlib.util.find_spec("playwright") is None:
        missing("playwright")
    program = chromium()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        running = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", *arguments], timeout=START_MS
        )
        yield running
        running.close()


class Tab:
    """A page in the browser, with all that went wrong in it."""

    def __init__(self, browser: Any, base: str, path: str = "/", script: str = "", **options: Any) -> None:
        """`script` runs in the page before its own do."""
        self.context = browser.new_context(**options)
        self.context.add_init_script(script)
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
        titles: list[str] = self.page.locator("#results .title").all_text_contents()
        return titles

    def wait_for_focus(self, id: str) -> None:
        """Until the element of this id has the focus."""
        self.page.wait_for_function("id => document.activeElement.id === id", arg=id)

    def violations(self) -> list[str]:
        """What axe finds; its source is run in the page by the debugger, which the page's policy does not
        bind.
        """
        self.page.evaluate((CLIENTS / "node_modules" / "axe-core" / "axe.min.js").read_text())
        # Once animations and fades are over: a half-faded text has half its contrast.
        self.page.evaluate("Promise.all(document.getAnimations().map((animation) => animation.finished))")
        violations = self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations']}).then((result) => result.violations)"
        )
        return [
            f"{each['id']}: {node['html'][:160]} {node['failureSummary'][:300]}"
            for each in violations
            for node in each["nodes"]
        ]

    def close(self) -> None:
        self.context.close()
        assert self.faults == []

    def lead(self, address: str) -> None:
        """Goes to an address of the page, as its links do."""
        self.page.evaluate("address => { location.hash = address; }", address)

    def shows(self, selector: str, words: str) -> None:
        """Waits until an element that the selector names has these words."""
        self.page.locator(selector, has_text=words).first.wait_for()

    def text(self, selector: str) -> str:
        """The text of the first element that the selector names."""
        content: str = self.page.locator(selector).first.text_content()
        return content

    def too_wide(self) -> bool:
        """Whether one has to scroll sideways."""
        wide: bool = self.page.evaluate(
            "document.documentElement.scrollWidth > document.documentElement.clientWidth"
        )
        return wide
