"""Run every command in a `console` block of the pages and compare the output."""

import re
import shutil
import socket
import tomllib
from pathlib import Path

import pytest
from kit import ROOT
from page_kit import Terminal, steps

README = (ROOT / "README.md").read_text()
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *(ROOT / "docs").rglob("*.md")]
FOLLOWED = sorted(page for page in PAGES if steps(page.read_text()))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.slow
@pytest.mark.skipif(
    shutil.which("curl") is None or shutil.which("bash") is None, reason="needs bash and curl"
)
@pytest.mark.parametrize("page", FOLLOWED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_can_be_followed_by_a_stranger(page: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    terminal = Terminal(tmp_path, port)
    try:
        terminal.follow(page.read_text())
    finally:
        terminal.close()


def test_the_first_pages_have_commands_to_follow() -> None:
    howto = set((ROOT / "docs" / "howto").glob("*.md"))
    assert {ROOT / "README.md", ROOT / "docs" / "tutorial.md", *howto} <= set(FOLLOWED)


def test_links_of_the_readme_work_where_a_package_index_shows_it() -> None:
    """Links are whole addresses, and a file of this repository that they name exists."""
    home = PROJECT["urls"]["Homepage"]
    targets = re.findall(r"(?:\]\(|^\[[\w-]+\]: )([^)\s]+)", README, re.MULTILINE)
    labels = re.findall(r"\]\[([\w-]+)\]", README)
    assert [label for label in labels if f"\n[{label}]: " not in README] == []
    assert [target for target in targets if "://" not in target and not target.startswith("#")] == []
    files = [
        re.sub(rf"^{re.escape(home)}/(blob|raw)/main/", "", target)
        for target in targets
        if target.startswith(home)
    ]
    assert [name for name in files if not (ROOT / name.split("#")[0]).exists()] == []


def test_the_readme_says_first_how_to_install_what_the_package_is_called() -> None:
    install = README.index("## Install")
    assert install < README.index("```console")
    for tool in ("uv tool install", "pipx install", "pip install"):
        assert f"{tool} {PROJECT['name']}" in README[install:]
