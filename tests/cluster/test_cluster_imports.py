"""The extra `cluster` is loaded only where it is configured, and its absence is a clear error."""

import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str, folder: Path) -> str:
    status = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )
    assert status.returncode == 0, status.stderr
    return status.stdout


def test_a_search_in_a_file_imports_nothing_of_the_cluster(tmp_path: Path) -> None:
    (tmp_path / "river.md").write_text("# River\n\nThe otter waits.\n")
    (tmp_path / "ctx.toml").write_text(
        '[connectors.filesystem]\nroot = "."\n[embedding]\nprovider = "disabled"\n'
    )
    code = """
import sys
from ctx.cli import main
for arguments in (["--config", "ctx.toml", "index"], ["--config", "ctx.toml", "search", "otter"]):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code, end.code
extra = ("ctx.cluster", "psycopg", "opensearchpy")
print("loaded:", [name for name in sys.modules if name.startswith(extra)])
"""
    output = run(code, tmp_path)
    assert "river.md" in output
    assert "loaded: []" in output


@pytest.mark.parametrize(
    ("client", "call", "setting"),
    [
        ("psycopg", "cluster.open_database('postgresql://ctx@db/ctx')", "[store] url"),
        ("psycopg_pool", "cluster.open_catalog('postgresql://ctx@db/ctx', '.ctx/ctx.db')", "[store] url"),
        ("psycopg", "cluster.check_database('postgresql://ctx@db/ctx', 1.0)", "[store] url"),
        ("opensearchpy", "cluster.open_client(Index())", "[index] engine"),
    ],
)
def test_a_missing_extra_says_what_to_install(tmp_path: Path, client: str, call: str, setting: str) -> None:
    code = f"""
import sys
sys.modules["{client}"] = None
from ctx import cluster
from ctx.config.settings import Index
from ctx.errors import ConfigError
try:
    {call}
except ConfigError as error:
    print(error.message)
"""
    output = run(code, tmp_path)
    assert output.startswith(setting)
    assert "pip install 'ctx-server[cluster]'" in output
