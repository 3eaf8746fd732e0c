"""Sites built by Sphinx and MkDocs: each page once, with its title and without navigation."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from real_clients import peer
from web_kit import Crawl, Page, Site, connector, serving

from ctx.config.settings import Web
from ctx.config.toml import keys_of
from ctx.formats.extract import extract

pytestmark = [pytest.mark.slow, pytest.mark.clients]
PAGES = {
    "index": "Zeppelin manual",
    "guide/install": "Installing",
    "guide/fly": "Flying",
    "api": "The interface",
}
TEXTS = {
    "index": "Welcome aboard.",
    "guide/install": "Fill the envelope with helium.",
    "guide/fly": "Hold the rudder, never in thunderstorms.",
    "api": "There is one lever.",
}
CHROME = (
    "Powered by",
    "Search",
    "Skip to content",
    "Back to top",
    "Table of contents",
    "Next",
    "Previous",
    "¶",
)


def write_pages(source: Path, suffix: str) -> None:
    for name, title in PAGES.items():
        path = source / (name + suffix)
        path.parent.mkdir(parents=True, exist_ok=True)
        heading = f"{title}\n{'=' * len(title)}" if suffix == ".rst" else f"# {title}"
        path.write_text(f"{heading}\n\n{TEXTS[name]}\n")


def sphinx_site(folder: Path, theme: str) -> Path:
    source, output = folder / "docs", folder / "site"
    write_pages(source, ".rst")
    (source / "conf.py").write_text(f"project = 'Zeppelin'\nhtml_theme = '{theme}'\n")
    toctree = "\n.. toctree::\n   :hidden:\n\n   guide/install\n   guide/fly\n   api\n"
    with open(source / "index.rst", "a") as file:
        file.write(toctree)
    command = [peer("sphinx-build"), "-q", str(source), str(output)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return output


def mkdocs_site(folder: Path, theme: str) -> Path:
    write_pages(folder / "docs", ".md")
    configuration = folder / "mkdocs.yml"
    configuration.write_text(f"site_name: Zeppelin\nsite_url: https://zeppelin.example/\ntheme: {theme}\n")
    command = [peer("mkdocs"), "build", "-q", "-f", str(configuration)]
    subprocess.run(command, check=True, capture_output=True, timeout=100)
    return folder / "site"


BUILDERS: dict[str, Callable[[Path, str], Path]] = {
    "alabaster": sphinx_site,
    "furo": sphinx_site,
    "mkdocs": mkdocs_site,
    "readthedocs": mkdocs_site,
    "material": mkdocs_site,
}


@pytest.fixture(params=BUILDERS)
def built(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A site of these pages in a builder's theme."""
    return BUILDERS[request.param](tmp_path, request.param)


@pytest.fixture
def site(built: Path) -> Iterator[Site]:
    with serving() as site:
        for path in built.rglob("*.html"):
            page = Page(path.read_bytes())
            name = path.relative_to(built).as_posix()
            site.pages[f"/{name}"] = page
            if path.name == "index.html":
                folder = f"/{name.removesuffix('index.html')}"
                site.pages |= {folder: page, folder.rstrip("/") or "/": page}
        yield site


def test_a_built_site_gives_each_page_once_without_its_chrome(site: Site, tmp_path: Path) -> None:
    globs = keys_of(Web)["exclude_globs"].default
    source = connector(site, folder=str(tmp_path / "store"), exclude_globs=globs)
    first = Crawl(source)
    texts = {}
    for address, content in first.contents.items():
        extracted = extract(content, address)
        assert extracted is not None
        texts[extracted.title] = extracted.body
    assert sorted(texts) == sorted(PAGES.values())
    assert len(first.pages) == len(PAGES)
    for name, title in PAGES.items():
        assert texts[title] == f"# {title}\n\n{TEXTS[name]}"
        assert not [word for word in CHROME if word in texts[title]]
    site.requests.clear()
    second = Crawl(source, first.known)
    assert second.read == []
    assert second.unchanged == first.pages
    assert sum(status == 304 for _, status in site.requests) == len(PAGES) - 1
