"""Each connector that ships is documented with its settings, in the page and in its own first lines alike."""

import re
import tomllib
from pathlib import Path

import pytest

from ctx.config import parse_config
from ctx.registries.records import SHIPPED
from ctx.registries.shelf import shipped, shipped_path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "connectors.md").read_text()
FOLDER = ROOT / "extensions" / "connectors"
NAMES = sorted(path.stem for path in FOLDER.glob("*.lua"))
GRANTS = {"path", "timeout", "env", "allow_hosts", "fs"}


def block(name: str) -> str:
    """The settings of a connector as the page has them."""
    blocks = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    (match,) = [text for text in blocks if f"registry:{SHIPPED}/connectors/{name}" in text]
    return str(match)


def test_the_registry_of_what_ships_names_every_script() -> None:
    assert [script.name for script in shipped().scripts] == NAMES
    assert all(Path(shipped_path(script)).is_file() for script in shipped().scripts)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_and_the_script_say_the_same_settings(name: str, tmp_path: Path) -> None:
    text = (FOLDER / f"{name}.lua").read_text()
    header = text[: text.index("connector = {")]
    assert "-- Source: " in header
    lines = [line[5:] for line in header.splitlines() if line.startswith("--   ")]
    assert block(name).splitlines() == lines
    tables = tomllib.loads(block(name))
    (settings,) = tables["connectors"]["script"].values()
    read = set(re.findall(r"\bconfig\.(\w+)", text))
    assert read <= settings.keys() | {"url"}
    assert settings.keys() - GRANTS <= read
    (script,) = [row for row in shipped().scripts if row.name == name]
    assert set(script.required_config) <= settings.keys()
    config = parse_config(
        tables,
        shown="ctx.toml",
        path=str(tmp_path / "ctx.toml"),
        root=str(tmp_path),
        environ={"GITHUB_TOKEN": "a", "GITLAB_TOKEN": "b", "JIRA_TOKEN": "c"},
    )
    assert len(config.script_connectors) == 1


def test_no_connector_reads_the_environment_by_itself() -> None:
    assert [name for name in NAMES if "env.get" in (FOLDER / f"{name}.lua").read_text()] == []
