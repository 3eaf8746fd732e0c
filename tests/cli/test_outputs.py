"""Where commands write: standard output by its sign, files with the mode they have, and no bank that was not
named.
"""

import json
import stat
from pathlib import Path

import pytest
from kit import ctx, project

PACK = (
    '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n[packs]\nenabled = '
    '["hindsight"]\n'
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    project(tmp_path, {"a.md": "# Alpha\n\nxylophone"}, PACK)
    assert ctx("index", cwd=tmp_path).returncode == 0
    return tmp_path


def test_a_dash_is_standard_output(folder: Path) -> None:
    completed = ctx("export", "-o", "-", cwd=folder)
    assert json.loads(completed.stdout)["documents"][0]["title"] == "Alpha"
    assert ctx("memory", "export", "--output", "-", cwd=folder).returncode == 3  # there is no bank yet
    assert not (folder / "-").exists()


def test_an_export_keeps_the_mode_of_the_file_it_replaces(folder: Path) -> None:
    target = folder / "ctx-index.json"
    assert ctx("export", "-o", str(target), cwd=folder).returncode == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    target.chmod(0o644)
    assert ctx("export", "-o", str(target), cwd=folder).returncode == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_an_empty_name_of_a_bank_is_refused_by_what_writes(folder: Path) -> None:
    (folder / "m.json").write_text(json.dumps({"results": [{"id": "1", "memory": "I live in Lisbon."}]}))
    for command, text in (
        (("memory", "capture", "--bank", ""), '{"prompt": "Remember that the wifi name is Kiwi."}'),
        (("memory", "import", "m.json", "--from", "mem0", "--bank", ""), None),
    ):
        completed = ctx(*command, cwd=folder, input_text=text)
        assert "a bank id has 1 to 128" in completed.stdout + completed.stderr, completed
    assert "Kiwi" not in ctx("memory", "list", cwd=folder).stdout
    assert "Lisbon" not in ctx("memory", "list", cwd=folder).stdout
