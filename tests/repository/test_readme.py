"""The README, the tutorial and the how-to pages are true: what they have a reader type is typed, and prints
what they say it prints.
"""

import re
import shutil
import socket
import tomllib
from pathlib import Path

import pytest
from kit import ROOT
from page_kit import Command, File, Terminal, fits, mismatch, steps

README = (ROOT / "README.md").read_text()
FOLLOWED = [
    ROOT / "README.md",
    ROOT / "docs" / "tutorial.md",
    ROOT / "docs" / "registries.md",
    ROOT / "docs" / "connectors.md",
    *sorted((ROOT / "docs" / "howto").glob("*.md")),
]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None, reason="needs bash and curl"
)
@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: page.stem)
def test_a_page_can_be_followed_by_a_stranger(page: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    assert steps(page.read_text())
    terminal = Terminal(tmp_path, port)
    try:
        terminal.follow(page.read_text())
    finally:
        terminal.close()


def test_the_check_of_the_pages_can_fail() -> None:
    assert fits('{"id":"...","score":1.0}', '{"id":"0d6a6a5c-5d7e-5a3c-8f5e-1c2b3a4d5e6f","score":0.98}')
    assert fits("embedded 2 chunks in 0.8 s", "embedded 2 chunks in 12.0 s")
    assert fits(" 1. Releasing  0.85", " 1. Releasing  0.79")
    assert not fits("embedded 2 chunks in 0.8 s", "embedded 3 chunks in 0.8 s")
    assert not fits(" 1. Releasing  0.85", " 1. Signing in  0.85")
    assert mismatch(["a", "..."], ["a", "b", "c"]) is None
    assert mismatch(["a"], ["a", "b"]) == "1 lines"
    assert mismatch(["a", "b", "..."], ["a"]) == "'b'"
    assert mismatch([], ["a"]) is None


def test_a_page_is_read_in_order_with_its_files() -> None:
    page = (
        '```console\n$ a\nb\n```\n```toml title="c.toml"\nd = 1\n```\n```toml\ne = 1\n```\n```console\n$ '
        "f\n```\n"
    )
    assert steps(page) == [Command("a", ["b"]), File("c.toml", "d = 1\n"), Command("f", [])]


def test_links_of_the_readme_work_where_a_package_index_shows_it() -> None:
    """They are whole addresses, in this repository where they name a file, and the file is there."""
    home = PROJECT["urls"]["Homepage"]
    targets = re.findall(r"(?:\]\(|^\[[\w-]+\]: )([^)\s]+)", README, re.MULTILINE)
    labels = re.findall(r"\]\[([\w-]+)\]", README)
    assert [label for label in labels if f"\n[{label}]: " not in README] == []
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []
    files = [target.removeprefix(f"{home}/blob/main/") for target in targets if target.startswith(home)]
    assert [name for name in files if not (ROOT / name.split("#")[0]).exists()] == []


def test_the_readme_says_first_how_to_install_what_the_package_is_called() -> None:
    install = README.index("## Install")
    assert install < README.index("```console")
    for tool in ("uv tool install", "pipx install", "pip install"):
        assert f"{tool} {PROJECT['name']}" in README[install:]
