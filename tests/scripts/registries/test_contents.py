"""What a registry repository offers, and the folder it is installed in."""

import resource
from pathlib import Path

import pytest

from ctx.config.trust import TrustFile, digest_of
from ctx.errors import ConfigError, SourceError
from ctx.scripts.registry import InstalledRegistries, new_registry
from ctx.scripts.registry_contents import (
    MANIFEST,
    MAX_SCRIPT_FILES,
    MAX_SCRIPTS,
    Contents,
    Entry,
    Registry,
    RegistryScript,
    contents,
)


def tree(*paths: str, **modes: str) -> dict[str, Entry]:
    entries = {path: Entry("100644", f"{number:040x}") for number, path in enumerate(paths)}
    return entries | {path: Entry(mode, "f" * 40) for path, mode in modes.items()}


def offer(entries: dict[str, Entry], manifest: bytes | None = None) -> Contents:
    """What a repository with these files offers. The content of each file but the manifest is its path."""
    if manifest is None:
        return contents("team", entries, str.encode)
    return contents(
        "team", entries | tree(MANIFEST), lambda path: manifest if path == MANIFEST else path.encode()
    )


def names(offered: Contents) -> list[str]:
    return [f"{script.kind} {script.name}" for script in offered.scripts]


def test_the_folders_speak_for_themselves_where_there_is_no_manifest() -> None:
    offered = offer(
        tree(
            "tools/echo/tool.lua",
            "tools/echo/templates/a.txt",
            "connectors/jira/connector.lua",
            "agents/guide/agent.lua",
            "tools/echo.lua",
            "README.md",
        ),
    )
    assert names(offered) == ["agent guide", "connector jira", "tool echo"]
    assert offered.files["tools/echo"] == {
        "tool.lua": b"tools/echo/tool.lua",
        "templates/a.txt": b"tools/echo/templates/a.txt",
    }
    assert offered.problems == ()


def test_a_manifest_says_what_there_is_and_a_lone_script_brings_nothing_along() -> None:
    manifest = b"""
[registry]
name = "team"
description = "Ours\\u001b[31m"
[tools.echo]
path = "lua/echo.lua"
description = "Says it again"
tags = ["text", 7]
required_config = ["greeting"]
[agents.guide]
path = "agents/guide"
"""
    offered = offer(tree("lua/echo.lua", "lua/secret.lua", "agents/guide/agent.lua"), manifest)
    guide, echo = offered.scripts
    assert offered.files[echo.path] == {"tool.lua": b"lua/echo.lua"}
    assert (echo.description, echo.tags, echo.required_config) == ("Says it again", ("text",), ("greeting",))
    assert offered.files[guide.path] == {"agent.lua": b"agents/guide/agent.lua"}
    assert "\x1b" not in offered.description


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("../../etc/tool.lua", "consist of plain names"),
        ("/etc/tool.lua", "consist of plain names"),
        ("tools/a\\\\b.lua", "consist of plain names"),
        ("tools/x\\u202e.lua", "consist of plain names"),
        ("tools/there-is-none.lua", "there is no file"),
    ],
)
def test_a_path_that_leads_elsewhere_is_left_out(path: str, why: str) -> None:
    manifest = f'[tools.x]\npath = "{path}"\n[tools.good]\npath = "tools/good/tool.lua"'.encode()
    offered = offer(tree("tools/good/tool.lua"), manifest)
    assert names(offered) == ["tool good"]
    assert len(offered.problems) == 1
    assert why in offered.problems[0]
    assert "\u202e" not in offered.problems[0]


@pytest.mark.parametrize("name", ["a b", "ü", "x" * 65, "rm\x1b[2J", "../x", "-" * 70])
def test_odd_names_are_left_out_and_shown_harmlessly(name: str) -> None:
    offered = offer(tree(f"tools/{name}/tool.lua") if "/" not in name else tree())
    assert names(offered) == []
    assert all("\x1b" not in problem for problem in offered.problems)


def test_too_many_scripts_or_files_are_cut() -> None:
    offered = offer(tree(*(f"tools/t{number}/tool.lua" for number in range(MAX_SCRIPTS + 5))))
    assert len(offered.scripts) == MAX_SCRIPTS
    offered = offer(tree("tools/x/tool.lua", *(f"tools/x/{n}.txt" for n in range(MAX_SCRIPT_FILES))))
    assert names(offered) == []
    assert "files, more than" in offered.problems[0]


@pytest.mark.parametrize(
    "text", [b"\xff", b"[tools", b"[tools.x]\n[tools.x]", b"a = " + b"[" * 5000, b"a = 0x" + b"f" * 5000]
)
def test_an_invalid_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(SourceError, match=r"its registry\.toml: (is|has) "):
        offer({}, text)


# -- the folder of installed registries


def registry(text: bytes) -> tuple[Registry, dict[str, dict[str, bytes]]]:
    """A registry of one tool, and its files by script."""
    hashes, sizes = {"tool.lua": digest_of(text)}, {"tool.lua": len(text)}
    script = RegistryScript("team", "tool", "echo", "", (), (), hashes, sizes)
    new = new_registry("team", "https://git.example/team", None)
    return new._replace(scripts=(script,)), {"tools/echo": {"tool.lua": text}}


def test_an_update_that_a_full_disk_ends_leaves_what_was_installed(tmp_path: Path) -> None:
    installed = InstalledRegistries(str(tmp_path / "registries"), TrustFile(str(tmp_path / "trusted.json")))
    installed.install(*registry(b"tool = 1"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, hard))  # the script fits, the record does not
    try:
        with pytest.raises(ConfigError, match="cannot be written"):
            installed.install(*registry(b"tool = 2"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (script,) = installed.registry("team").scripts
    assert installed.change(script) is None
    assert sorted(path.name for path in (tmp_path / "registries").iterdir()) == [
        "registries.json",
        "registries.json.lock",
        "team",
    ]


def test_a_script_runs_as_the_very_text_that_was_trusted_or_not_at_all(tmp_path: Path) -> None:
    installed = InstalledRegistries(str(tmp_path / "registries"), TrustFile(str(tmp_path / "trusted.json")))
    installed.install(*registry(b"tool = 1"))
    (script,) = installed.registry("team").scripts
    installed.trust.record({script.reference: script.digest})
    file = installed.script_file(script.reference, "echo")
    assert file.source() == b"tool = 1"
    assert file.vouched_by is not None
    # What was read is not what lies there now, which is as it was installed.
    refusal = file.vouched_by.refusal(file.path, b"tool = 2", file.where)
    assert refusal == "registry:team/tools/echo changed while it was read; try again"
