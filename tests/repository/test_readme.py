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
from page_kit import Terminal, steps

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
