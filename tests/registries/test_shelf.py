"""The shelf of installed registries when the disk is full."""

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
