"""Writes the pictures of the page that the documentation shows: `python .ci/screenshots.py [VIEW ...]`.

A project is made of this repository's documentation and examples, served, and looked at in the Chromium that
the tests use. Needs what `make clients` installs. Each view is taken light and dark into
docs/images/VIEW-SCHEME.webp.
"""

import io
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from PIL import Image

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from ctx.config import load_config  # noqa: E402
from ctx.models import Caller  # noqa: E402
from ctx.server.app import (  # noqa: E402
    create_app,
    server_settings,
    services,
)
from ctx.server.overview import Overview  # noqa: E402
from ctx.server.run import HttpServer, address, open_sockets  # noqa: E402
from ctx.workspace import Workspace, open_workspace  # noqa: E402

IMAGES = ROOT / "docs" / "images"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
SHOWN = "http://localhost:7331"  # what the pictures name; the browser is led to the real port
SIZE = {"width": 1200, "height": 760}
WIDTH = 880  # of the pictures: somewhat wider than a page's text, and all of them go into the wheel
QUALITY = 66
DAY_S = 24 * 3600
CONFIG = """\
[connectors.filesystem.handbook]
root = "./handbook"
[connectors.filesystem.scripts]
root = "./scripts"
[packs]
enabled = ["hindsight"]
"""
MEMORIES = (
    "Ana prefers short answers with a link to the source.",
    "Releases are tagged on Thursdays, never before a holiday.",
    "The staging server is called birch and is rebuilt every night.",
    "Tomas owns the search index; ask him before its settings change.",
)
OF_ANA = "Ana is on leave from the 7th to the 18th of December."
QUESTIONS = ("how do I back up the store", "which files are left out", "what may a script reach")
# What is done in a view before its picture is taken: an address, and an element that says it is ready.
VIEWS = {
    "search": ("#/search?q=how+do+I+back+up+my+memories", ".result"),
    "document": ("#/search?q=back+up+and+restore&mode=keyword", ".result .open"),
    "activity": ("#/activity", ".call"),
    "sources": ("#/sources", "#source-list .card"),
    "memory": ("#/memory", "#memory-list > *"),
    "tools": ("#/tools/search", "#tool form"),
    "connect": ("#/connect", "#connect-client .card"),
    "about": ("#/about", "#about .chart"),
}


def project(folder: Path) -> Path:
    """A project of this repository's documentation, changed at various times of two years; its ctx.toml."""
    shutil.copytree(ROOT / "docs", folder / "handbook", ignore=shutil.ignore_patterns("images", "deploy"))
    shutil.copytree(ROOT / "extensions", folder / "scripts")
    (folder / "handbook" / "draft.md").write_text("\n")  # what a run leaves out is told with its reason
    chance = random.Random(7)  # noqa: S311 - the same picture each time
    for path in sorted(folder.rglob("*.*")):
        changed_s = time.time() - DAY_S * min(700, chance.expovariate(1 / 120))
        os.utime(path, (changed_s, changed_s))
    config = folder / "ctx.toml"
    config.write_text(CONFIG)
    return config


def furnish(space: Workspace, overview: Overview) -> None:
    """Indexes, embeds, remembers, and searches as in an hour of work."""
    space.load_extensions()
    space.refresh([])
    for text in MEMORIES:
        space.toolbox.call("retain", {"content": text}, Caller("rest"))
    space.toolbox.call("retain", {"content": OF_ANA}, Caller("rest", bank="ana"))
    agent = Caller("mcp", client="claude-code")
    for question in QUESTIONS:
        reply = space.toolbox.call("search", {"query": question, "mode": "hybrid"}, agent)
        space.toolbox.call("get", {"id": reply["results"][0]["id"]}, agent)
    space.toolbox.call(
        "search", {"query": "kubernetes rollout", "mode": "keyword"}, Caller("mcp", client="cursor")
    )
    chance = random.Random(3)  # noqa: S311 - the same picture each time
    for minute in range(1, 60):
        for _ in range(chance.choice((0, 0, 1, 2, 5))):
            overview._searches.append((time.monotonic() - 60 * minute, chance.gammavariate(4, 4)))


@contextmanager
def served() -> Iterator[str]:
    """HOST:PORT of a server of such a project."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "project"
        home.mkdir()
        with open_workspace(load_config(str(project(home)), {})) as space:
            ours = services(space)
            assert isinstance(ours.overview, Overview)
            furnish(space, ours.overview)
            sockets = open_sockets("127.0.0.1:0")
            event = threading.Event()
            app = create_app(ours, server_settings(space))
            server = HttpServer(app, sockets, announce=lambda where: event.set())
            thread = threading.Thread(target=server.run, daemon=True)
            thread.start()
            event.wait(30)
            yield address(sockets[0])
            server.should_exit = True
            thread.join(10)


def picture(page: Any, view: str) -> bytes:
    """A view as a PNG."""
    target, selector = VIEWS[view]
    page.goto("about:blank")
    page.set_viewport_size(SIZE)
    page.goto(f"{SHOWN}/{target}")
    page.locator(selector).first.wait_for(timeout=30_000)
    if view == "document":
        page.locator(".result .open", has_text="Back up").first.press("Enter")
        page.locator("#view-doc #document-body [data-from]").first.wait_for()
    page.mouse.move(0, 0)
    page.evaluate("Promise.all(document.getAnimations().map((animation) => animation.finished))")
    page.evaluate("document.activeElement.blur()")
    page.wait_for_timeout(400)  # the preview follows the selection
    data: bytes = page.screenshot()
    return data


def main() -> int:
    from playwright.sync_api import sync_playwright

    views = sys.argv[1:] or list(VIEWS)
    unknown = set(views) - set(VIEWS)
    if unknown:
        sys.stderr.write(f"no view {', '.join(sorted(unknown))}; there are: {', '.join(VIEWS)}\n")
        return 2
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        sys.stderr.write(f"no Chromium on PATH ({', '.join(BROWSERS)})\n")
        return 2
    IMAGES.mkdir(exist_ok=True)
    with served() as host, sync_playwright() as playwright:
        args = ["--no-sandbox", "--lang=en-GB", f"--host-resolver-rules=MAP localhost:7331 {host}"]
        browser = playwright.chromium.launch(executable_path=program, args=args, timeout=180_000)
        for scheme in ("light", "dark"):
            page: Any = browser.new_page(viewport=SIZE, color_scheme=scheme, locale="en-GB")
            for view in views:
                image = IMAGES / f"{view}-{scheme}.webp"
                whole = Image.open(io.BytesIO(picture(page, view)))
                small = whole.resize((WIDTH, whole.height * WIDTH // whole.width), Image.Resampling.LANCZOS)
                small.convert("RGB").save(image, "WEBP", quality=QUALITY, method=6)
                sys.stdout.write(f"{image.relative_to(ROOT)}: {image.stat().st_size:,} bytes\n")
            page.close()
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
