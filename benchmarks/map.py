"""The map with 50,000 documents: how long drawing it takes the server, and how many frames a second the
browser makes of it while one zooms.

    python benchmarks/map.py [--documents 50000] [--frames 120]
"""

import argparse
import os
import platform
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator

import numpy as np

from ctx import identity
from ctx.config import load_config
from ctx.items import Chunk, Document
from ctx.server.app import Services, create_app
from ctx.server.overview import Overview
from ctx.server.policy import ServerSettings
from ctx.server.run import HttpServer, address, open_sockets
from ctx.store.atlas import draw
from ctx.tools.agents import Agents
from ctx.workspace import Workspace, open_workspace

DIM = 384
SUBJECTS = 40
BATCH = 2000
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ZOOMING = """async (frames) => {
  const { zoom, figures } = await import("/page/map.js");
  const next = () => new Promise(requestAnimationFrame);
  await next();
  figures.frames = figures.drawing_ms = 0;
  const began = performance.now();
  for (let frame = 0; frame < frames; frame += 1) {
    zoom(frame < frames / 2 ? 1.05 : 1 / 1.05, 300, 200);
    await next();
  }
  const seconds = (performance.now() - began) / 1000;
  return { perSecond: figures.frames / seconds, drawing: figures.drawing_ms / figures.frames };
}"""


def documents(count: int) -> Iterator[tuple[Document, list[Chunk]]]:
    """Short documents of four sources, each of one subject."""
    for number in range(count):
        source, path = f"filesystem:s{number % 4}", f"d{number}.md"
        body = f"document {number} of subject {number % SUBJECTS}"
        chunk = Chunk(0, 0, len(body), 1, 1, "", identity.text_hash(body))
        document = Document(
            id=identity.document_id(source, path),
            source=source,
            source_id=path,
            title=f"Document {number}",
            body=body,
            media_type="text/markdown",
            updated_ms=0,
            fingerprint="1",
            content_hash=chunk.text_hash,
        )
        yield document, [chunk]


def embed(space: Workspace, model: str) -> None:
    """Vectors about the middles of the subjects, by chance but the same each time."""
    chance = np.random.default_rng(1)
    middles = chance.normal(size=(SUBJECTS, DIM))
    while texts := space.catalog.pending_texts(model, BATCH):
        batch = []
        for digest, _ in texts:
            vector = middles[digest[0] % SUBJECTS] + chance.normal(0, 0.7, DIM)
            batch.append((digest, (vector / np.linalg.norm(vector)).astype(np.float32)))
        space.catalog.put_embeddings(model, batch)


def store(space: Workspace, count: int) -> None:
    """The documents in the catalog, in batches."""
    batch: list[tuple[Document, list[Chunk]]] = []
    for entry in documents(count):
        batch.append(entry)
        if len(batch) == BATCH:
            space.catalog.put_documents(batch)
            batch = []
    if batch:
        space.catalog.put_documents(batch)


def frames(base: str, count: int, width: int) -> dict[str, float]:
    """Frames a second in a headless browser, and the milliseconds of drawing one."""
    from playwright.sync_api import sync_playwright

    program = next(path for name in BROWSERS if (path := shutil.which(name)))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": width, "height": 900})
        page.goto(f"{base}/#/map")
        page.wait_for_selector("#map-canvas", state="visible", timeout=60_000)
        figures: dict[str, float] = page.evaluate(ZOOMING, count)
        browser.close()
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--documents", type=int, default=50_000)
    parser.add_argument("--frames", type=int, default=120)
    options = parser.parse_args()
    print(f"{platform.platform()}, {os.cpu_count()} cores, Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "ctx.toml")
        with open(config, "w") as file:
            file.write('[connectors.filesystem.s0]\nroot = "."\n')
        with open_workspace(load_config(config, {})) as space:
            measure(space, options.documents, options.frames)


def measure(space: Workspace, count: int, frame_count: int) -> None:
    """Prints the figures of one store."""
    model = space.model
    assert model is not None
    store(space, count)
    embed(space, model)
    began_s = time.perf_counter()
    draw(space.catalog, model)
    print(f"drawn on the server: {count} documents in {time.perf_counter() - began_s:.2f} s")
    services = Services(space.toolbox, Agents(), overview=Overview(space))
    sockets = open_sockets("127.0.0.1:0")
    event = threading.Event()
    server = HttpServer(create_app(services, ServerSettings()), sockets, announce=lambda where: event.set())
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    event.wait(30)
    base = f"http://{address(sockets[0])}"
    for width in (1280, 390):
        figures = frames(base, frame_count, width)
        print(f"{width} px: {figures['perSecond']:.1f} frames a second, {figures['drawing']:.1f} ms each")
    server.stop()
    thread.join(10)


if __name__ == "__main__":
    main()
