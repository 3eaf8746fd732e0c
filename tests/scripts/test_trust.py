"""Scripts in a project's `.ctx/` folder run only after the user trusted their exact text."""

import json
import os
import stat
from pathlib import Path

import pytest
from kit import ctx, workspace
from script_kit import answering, configured

from ctx.config.trust import project_scripts, trust_path
from ctx.errors import ToolError
from ctx.models import JSON, Caller

CALLER = Caller("cli")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that brings a tool along, and a user who has trusted nothing."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = tmp_path / "project"
    (folder / ".ctx" / "tools").mkdir(parents=True)
    (folder / ".ctx" / "agents").mkdir()
    (folder / ".ctx" / "tools" / "deploy.lua").write_text(answering("one"))
    (folder / ".ctx" / "agents" / "guide.lua").write_text(
        'agent = {} function agent.resolve() return { system = "s" } end'
    )
    configured(folder, "")
    return folder


def trust(project: Path, *arguments: str) -> JSON:
    run = ctx(
        "trust", "--json", *arguments, cwd=project, env={"XDG_STATE_HOME": os.environ["XDG_STATE_HOME"]}
    )
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["scripts"]


def test_nothing_of_the_folder_runs_before_it_is_trusted(project: Path) -> None:
    with workspace(project / "ctx.toml") as space:
        statuses = space.scripts.statuses()
        assert [(s.kind, s.name, s.serving) for s in statuses] == [
            ("agent", "guide", False),
            ("tool", "deploy", False),
        ]
        assert all("ctx trust" in (s.error or "") for s in statuses)
        assert [tool.name for tool in space.toolbox.list() if not tool.builtin] == []
        assert space.agents.list() == []
        with pytest.raises(ToolError, match="not trusted"):
            space.toolbox.call("deploy", {}, CALLER)
        assert space.pool.zygote_pid is None  # not so much as a sandbox was started


def test_trust_is_recorded_for_the_text_and_lost_with_it(project: Path) -> None:
    assert [(s["name"], s["trusted"]) for s in trust(project, "--list")] == [
        ("deploy", False),
        ("guide", False),
    ]
    assert [(s["name"], s["trusted"]) for s in trust(project, "deploy")] == [("deploy", True)]
    assert [(s["name"], s["trusted"]) for s in trust(project, "--list")] == [
        ("deploy", True),
        ("guide", False),
    ]
    file = Path(trust_path(os.environ))
    assert project not in file.parents
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    script = project / ".ctx" / "tools" / "deploy.lua"
    with workspace(project / "ctx.toml") as space:
        _ = space.scripts
        assert space.toolbox.call("deploy", {}, CALLER) == {"said": "one"}
        script.write_text(answering("two"))
        with pytest.raises(
            ToolError, match="not trusted"
        ):  # also the old text: the user has not seen what replaced it
            space.toolbox.call("deploy", {}, CALLER)
        assert [tool.name for tool in space.toolbox.list() if not tool.builtin] == []
        assert trust(project, "--list")[0]["trusted"] is False
        trust(project, "deploy")
        assert space.toolbox.call("deploy", {}, CALLER) == {"said": "two"}  # a running server follows
        trust(project, "--revoke", "deploy")
        with pytest.raises(ToolError, match="not trusted"):
            space.toolbox.call("deploy", {}, CALLER)


def test_a_trusted_text_at_another_place_is_not_trusted(project: Path) -> None:
    trust(project)
    copy = project / ".ctx" / "tools" / "copy.lua"
    copy.write_text(answering("one"))
    with workspace(project / "ctx.toml") as space:
        _ = space.scripts
        with pytest.raises(ToolError, match="not trusted"):
            space.toolbox.call("copy", {}, CALLER)


def test_links_in_the_folder_are_passed_over(project: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.lua"
    outside.write_text(answering("out"))
    (project / ".ctx" / "tools" / "link.lua").symlink_to(outside)
    os.mkfifo(project / ".ctx" / "tools" / "fifo.lua")
    (project / ".ctx" / "tools" / "folder.lua").mkdir()
    assert [script.name for script in project_scripts(str(project), {})] == ["deploy", "guide"]
