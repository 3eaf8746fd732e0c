"""Pages written for Context Harness, in a real browser: a static site's search over an export, and a page on
the API.

Both are written here from what its documentation says such pages do: `ctx-search.js` loads `data-json`, ranks
its chunks by BM25, shows the best of each document and links to `source_url`; the demonstration asks the
server's REST from another origin.
"""

import functools
import http.server
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kit import ctx, http_server, project, workspace
from tabs import Tab

pytestmark = [pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

DOCUMENTS = {
    "deploy.md": "# Deploying\n\nThe pipeline ships to staging first.\n\n## Rollback\n\nRoll back by its "
    "number.\n",
    "tokens.md": "# Tokens\n\nThe signing key rotates monthly.\n",
    "cafe.md": "# Café\n\nThe café opens at eight, and the key is at the bar.\n",
}
SEARCH = """
const script = document.currentScript, words = text => (text.toLowerCase().match(/[a-z0-9]{2,}/g) || []);
const index = fetch(script.dataset.json).then(reply => reply.json()).then(({documents, chunks}) => {
  const rows = chunks.map(chunk => ({document_id: chunk.document_id, text: chunk.text, words: words(chunk.text)}));
  const mean = rows.reduce((sum, row) => sum + row.words.length, 0) / rows.length;
  return {documents: new Map(documents.map(row => [row.id, row])), rows, mean};
});
async function ask(query) {
  const {documents, rows, mean} = await index, best = new Map();
  for (const row of rows) {
    let score = 0;
    for (const word of words(query)) {
      const holders = rows.filter(other => other.words.includes(word)).length;
      const count = row.words.filter(other => other === word).length;
      const rarity = Math.log((rows.length - holders + .5) / (holders + .5) + 1);
      score += rarity * count * 2.2 / (count + 1.2 * (.25 + .75 * row.words.length / mean));
    }
    const known = best.get(row.document_id);
    if (score > 0 && (!known || known.score < score)) best.set(row.document_id, {score, text: row.text});
  }
  const hits = [...best].sort((a, b) => b[1].score - a[1].score).slice(0, 8);
  document.querySelector("ol").replaceChildren(...hits.map(([id, hit]) => {
    const item = document.createElement("li"), link = document.createElement("a"), row = documents.get(id);
    if (row.source_url) link.href = row.source_url;
    link.textContent = row.title;
    item.append(link, " ", new Date(row.updated_at * 1000).getFullYear() + ": " + hit.text);
    return item;
  }));
  document.body.dataset.asked = query;
}
addEventListener("keydown", event => {
  if (event.key === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    document.querySelector("input").focus();
  }
});
addEventListener("DOMContentLoaded", () => {
  document.querySelector("input").addEventListener("input", event => ask(event.target.value));
});
"""
PAGE = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Site</title><link rel=icon "
    "href=data:,><body>%s</body></html>"
)


class _Site(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    link = 'link = "https://wiki.example/{path}"\n[embedding]\nprovider = "disabled"\n'
    path = project(
        tmp_path_factory.mktemp("project"),
        DOCUMENTS,
        f'[connectors.filesystem.docs]\nroot = "./docs"\n{link}',
    )
    with workspace(path) as space:
        space.refresh([])
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the static site is made of."""
    return tmp_path


@pytest.fixture
def site(folder: Path) -> Iterator[str]:
    with http_server(functools.partial(_Site, directory=str(folder))) as port:
        yield f"http://127.0.0.1:{port}"


def test_a_static_sites_search_written_for_context_harness_reads_our_export(
    browser: Any, config: Path, folder: Path, site: str
) -> None:
    run = ctx("export", "-o", str(folder / "data.json"), cwd=config.parent)
    assert run.returncode == 0, run.stderr
    (folder / "search.js").write_text(SEARCH)
    (folder / "index.html").write_text(
        PAGE % "<script src=search.js data-json=data.json></script><input aria-label=Search><ol></ol>"
    )
    tab = Tab(browser, site)
    try:
        tab.page.keyboard.press("Control+k")
        tab.page.keyboard.type("rollback number")
        tab.until("document.body.dataset.asked === 'rollback number'")
        links = tab.page.locator("li a")
        assert links.all_text_contents() == ["Deploying"]
        assert links.first.get_attribute("href") == "https://wiki.example/deploy.md"
        assert (
            "20" in tab.page.locator("li").first.inner_text().split(":")[0]
        )  # a year: `updated_at` is a number
        tab.page.fill("input", "key")
        tab.until("document.body.dataset.asked === 'key'")
        assert sorted(links.all_text_contents()) == ["Café", "Tokens"]
    finally:
        tab.close()
