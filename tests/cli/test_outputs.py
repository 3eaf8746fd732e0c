"""Where commands write: standard output by its sign, files with the mode they have, and no bank that was not
named.
"""

import json
import os
import stat
import subprocess
import sys
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
    reply = ctx("export", "-o", str(target), cwd=folder)
    assert (reply.returncode, reply.stdout) == (0, "")
    assert "1 document" in reply.stderr
    assert len(json.loads(target.read_text())["documents"]) == 1
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


@pytest.mark.parametrize(
    ("command", "code"), [("get nope --json", 3), ("search x --limit 0 --json", 2), ("get nope", 3)]
)
def test_an_error_that_nobody_reads_is_its_exit_code(folder: Path, command: str, code: int) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    reply = subprocess.run(
        ["bash", "-c", f"{sys.executable} -m ctx {command} {'>' if '--json' in command else '2>'}&{writing}"],
        cwd=folder,
        pass_fds=(writing,),
        capture_output=True,
        text=True,
        timeout=60,
    )
    os.close(writing)
    assert (reply.returncode, reply.stderr) == (code, "")


@pytest.mark.parametrize("closed", [">&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure_and_no_file_takes_their_place(folder: Path, closed: str) -> None:
    before = (folder / ".ctx" / "ctx.db").read_bytes()[:100]
    line = f"{sys.executable} -m ctx search rotation {closed}"
    reply = subprocess.run(["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (reply.returncode, reply.stdout, reply.stderr) == (0, "", "")
    assert (folder / ".ctx" / "ctx.db").read_bytes()[:100] == before
