"""The shelf of installed registries: a full disk, and a text that changes while it is read."""

import resource
from pathlib import Path

import pytest

from ctx.errors import ConfigError
from ctx.extensions.trust import TrustFile
from ctx.registries.contents import Offer
from ctx.registries.records import Registry, blank_registry, offered_script
from ctx.registries.shelf import Shelf


def registry(text: bytes) -> tuple[Registry, dict[str, dict[str, bytes]]]:
    """A registry of one tool, and its files by script."""
    offer = Offer("tool", "echo", "", (), (), {"tool.lua": "tools/echo/tool.lua"})
    script = offered_script("team", offer, {"tools/echo/tool.lua": text})
    blank = blank_registry("team", "https://git.example/team", None, "0" * 40, "")
    return blank._replace(scripts=(script,)), {"tools/echo": {"tool.lua": text}}


def test_an_update_that_a_full_disk_ends_leaves_what_was_installed(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path / "shelf"), TrustFile(str(tmp_path / "trusted.json")))
    shelf.install(*registry(b"tool = 1"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))  # the script fits, the record does not
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            shelf.install(*registry(b"tool = 2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (script,) = shelf.registry("team").scripts
    assert shelf.change(script) is None
    assert sorted(path.name for path in (tmp_path / "shelf").iterdir()) == [
        "registries.json",
        "registries.json.lock",
        "team",
    ]


def test_a_script_runs_as_the_very_text_that_was_trusted_or_not_at_all(tmp_path: Path) -> None:
    shelf = Shelf(str(tmp_path / "shelf"), TrustFile(str(tmp_path / "trusted.json")))
    shelf.install(*registry(b"tool = 1"))
    (script,) = shelf.registry("team").scripts
    shelf.trust.record({script.reference: script.digest})
    file = shelf.script_file(script.reference, "echo")
    assert file.source() == b"tool = 1"
    assert file.vouched_by is not None
    # What was read is not what lies there now, which is as it was installed.
    refusal = file.vouched_by.refusal(file.path, b"tool = 2", file.where)
    assert refusal == "registry:team/tools/echo changes while it is read; try again"
