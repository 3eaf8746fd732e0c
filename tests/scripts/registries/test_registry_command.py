"""`ctx registry` over real git repositories: install, trust, update, override."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from git_kit import Upstream, git
from kit import workspace

from ctx.cli import main
from ctx.cli.registry import blank_registry_files as registry
from ctx.models import Caller
from ctx.workspace import Workspace

CALLER = Caller("cli")
ECHO = 'tool = { description = "Says it again" } function tool.execute(params) return { said = "%s" } end'
GUIDE = 'agent = { description = "Guides" } function agent.resolve() return { system = "%s" } end'


class Desk:
    """A project and its user, who types commands."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self.config = folder / "ctx.toml"
        self.shelf = folder.parent / "state" / "ctx" / "registries"
        self._capsys = capsys

    def type(self, *words: str, code: int = 0) -> str:
        """What a command prints; it ends with `code`."""
        self._capsys.readouterr()
        assert main(list(words)) == code, self._capsys.readouterr()
        printed = self._capsys.readouterr()
        return printed.out + printed.err

    def ask(self, *words: str) -> Any:
        return json.loads(self.type(*words, "--json"))

    def said(self, tool: str = "echo") -> str:
        with workspace(self.config) as space:
            space.load_extensions()
            return answer(space, tool)

    def tools(self) -> dict[str, str]:
        """Who serves each tool that is not built in."""
        with workspace(self.config) as space:
            space.load_extensions()
            return {tool.name: tool.origin for tool in space.toolbox.list() if not tool.builtin}

    def faults(self) -> list[str]:
        with workspace(self.config) as space:
            space.load_extensions()
            return [status.error for status in space.scripts.statuses() if status.error]


def answer(space: Workspace, tool: str) -> str:
    result = space.toolbox.call(tool, {}, CALLER)
    assert isinstance(result, dict)
    return str(result["said"])


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Desk:
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        folder = tmp_path / name.removeprefix("XDG_").removesuffix("_HOME").lower()
        folder.mkdir()
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "ctx.toml").write_text('[embedding]\nprovider = "disabled"\n')
    monkeypatch.chdir(folder)
    return Desk(folder, capsys)


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    remote = Upstream(tmp_path)
    remote.commit({"tools/echo/tool.lua": ECHO % "one", "agents/guide/agent.lua": GUIDE % "one"})
    return remote


def address(upstream: Upstream) -> str:
    return f"file://{upstream.bare}"


def test_what_is_installed_is_shown_and_runs_once_it_is_trusted(desk: Desk, upstream: Upstream) -> None:
    printed = desk.type("registry", "install", "team", address(upstream))
    assert "2 scripts" in printed
    assert "NOT trusted" in printed
    assert desk.tools() == {}
    assert desk.faults() == []  # what nobody trusts is no fault of the project
    info = desk.type("registry", "info", "tools/echo")
    assert "registry:team/tools/echo" in info
    assert "tool.lua" in info
    assert "trusted" in desk.type("trust", "registry:team/tools/echo")
    assert desk.tools() == {"echo": "registry:team/tools/echo"}
    assert desk.said() == "one"
    _, row = desk.ask("registry", "list")["registries"]
    assert row["commit"] == git(upstream.work, "rev-parse", "HEAD")
    assert [script["trusted"] for script in row["scripts"]] == [False, True]
    desk.type("trust", "--revoke", "registry:team")
    assert desk.tools() == {}


def edited(desk: Desk) -> None:
    (desk.shelf / "team" / "tools" / "echo" / "tool.lua").write_text(ECHO % "evil")


def joined(desk: Desk) -> None:
    (desk.shelf / "team" / "tools" / "echo" / "more.txt").write_text("read me with fs")


def linked(desk: Desk) -> None:
    path = desk.shelf / "team" / "tools" / "echo" / "tool.lua"
    path.rename(desk.folder / "moved.lua")
    path.symlink_to(desk.folder / "moved.lua")


@pytest.mark.parametrize("change", [edited, joined, linked])
def test_a_changed_file_is_refused_with_the_fix_that_puts_it_back(
    desk: Desk, upstream: Upstream, change: Any
) -> None:
    desk.type("registry", "install", "team", address(upstream))
    desk.type("trust", "registry:team")
    change(desk)
    (fault,) = desk.faults()
    assert "not what was installed" in fault
    assert "`ctx registry install team`" in fault
    assert "echo" not in desk.tools()
    assert "not what was installed" in desk.type("trust", "registry:team/tools/echo", code=2)
    assert "not what was installed" in desk.type("registry", "info", "tools/echo")
    assert "CHANGED" in desk.type("registry", "list", "team")
    states = {row["name"]: row["trusted"] for row in desk.ask("registry", "list", "team")["scripts"]}
    assert states == {"echo": False, "guide": True}
    upstream.commit({"tools/echo/tool.lua": ECHO % "two"})  # moved on meanwhile: put back is as it was
    desk.type("registry", "install", "team")
    assert desk.said() == "one"


def test_an_update_keeps_trust_in_what_stayed_and_ends_it_for_what_changed(
    desk: Desk, upstream: Upstream
) -> None:
    desk.type("registry", "install", "team", address(upstream))
    desk.type("trust", "registry:team")
    upstream.commit({"tools/echo/tool.lua": ECHO % "two", "tools/fresh/tool.lua": ECHO % "new"})
    (report,) = desk.ask("registry", "update", "--dry-run")["registries"]
    assert report["changes"] == {"registry:team/tools/echo": "changed", "registry:team/tools/fresh": "new"}
    assert desk.said() == "one"
    assert "no longer trusted" in desk.type("registry", "update", "team")
    with workspace(desk.config) as space:
        space.load_extensions()
        assert [agent.name for agent in space.agents.list()] == ["guide"]
        (fault,) = (status.error or "" for status in space.scripts.statuses() if status.error)
    assert "`ctx trust registry:team/tools/echo`" in fault
    desk.type("trust", "registry:team/tools/echo")
    assert desk.said() == "two"


def test_a_rewritten_branch_changes_nothing_until_it_is_said(desk: Desk, upstream: Upstream) -> None:
    desk.type("registry", "install", "team", address(upstream))
    git(upstream.work, "checkout", "-q", "--orphan", "other")
    upstream.commit({"tools/echo/tool.lua": ECHO % "evil"}, push=False)
    upstream.push("HEAD:main")
    commit = desk.ask("registry", "list")["registries"][-1]["commit"]
    assert "was rewritten" in desk.type("registry", "update", code=2)
    assert desk.ask("registry", "list")["registries"][-1]["commit"] == commit
    desk.type("registry", "update", "--rewritten")
    assert desk.ask("registry", "list")["registries"][-1]["commit"] != commit


def test_the_first_that_has_the_name_counts_project_user_then_registries(
    desk: Desk, upstream: Upstream, tmp_path: Path
) -> None:
    (tmp_path / "second").mkdir()
    second = Upstream(tmp_path / "second")
    second.commit({"tools/echo/tool.lua": ECHO % "second", "tools/lone/tool.lua": ECHO % "lone"})
    desk.type("registry", "install", "team", address(upstream))
    desk.type("registry", "install", "others", address(second))
    desk.type("trust", "registry:team", "registry:others")
    assert desk.tools() == {"echo": "registry:team/tools/echo", "lone": "registry:others/tools/lone"}
    users = Path(os.environ["XDG_CONFIG_HOME"]) / "ctx" / "tools" / "echo.lua"
    with workspace(desk.config) as space:
        space.load_extensions()
        assert answer(space, "echo") == "one"
        users.parent.mkdir(parents=True)
        users.write_text(ECHO % "mine")
        space.scripts.refresh()
        assert answer(space, "echo") == "mine"
        for action in ("info", "add", "override"):
            refusal = desk.type("registry", action, "tools/echo", code=2)
            assert "write registry:team/tools/echo or registry:others/tools/echo" in refusal
        printed = desk.type("registry", "override", "team/tools/echo")
        assert '[tools.script.echo]\npath = "./tools/echo/tool.lua"' in printed
        (desk.folder / ".ctx" / "tools").mkdir(parents=True)
        (desk.folder / "tools" / "echo" / "tool.lua").rename(desk.folder / ".ctx" / "tools" / "echo.lua")
        desk.type("trust", "echo")
        space.scripts.refresh()
        assert answer(space, "echo") == "one"
        assert [status.error for status in space.scripts.statuses() if status.error] == []
        (desk.folder / ".ctx" / "tools" / "echo.lua").unlink()
        users.unlink()
        space.scripts.refresh()
        assert answer(space, "echo") == "one"
        assert {tool.origin for tool in space.toolbox.list() if tool.name == "echo"} == {
            "registry:team/tools/echo"
        }


def test_a_connector_is_named_in_the_configuration_and_indexes_once_it_is_trusted(
    desk: Desk, upstream: Upstream
) -> None:
    text = registry("x")["connectors/hello/connector.lua"]
    manifest = '[connectors.hello]\npath = "connectors/hello"\nrequired_config = ["count"]\n'
    upstream.commit({"connectors/hello/connector.lua": text, "registry.toml": manifest})
    desk.type("registry", "install", "team", address(upstream))
    desk.type("trust", "ctx.toml")
    assert '# count = ""' in desk.type("registry", "add", "connectors/hello", "--name", "greetings")
    assert "already" in desk.type("registry", "add", "connectors/hello", "--name", "greetings", code=2)
    assert "is not trusted" in desk.type("index", "script:greetings", code=1)  # the file itself still is
    desk.type("trust", "registry:team/connectors/hello")
    assert "2 added" in desk.type("index", "script:greetings")
    desk.type("registry", "remove", "team")
    printed = desk.type("index", "script:greetings", code=1)
    assert "run `ctx registry install team URL`" in printed


def test_a_hostile_repository_brings_only_what_is_plain(desk: Desk, upstream: Upstream) -> None:
    secret = desk.folder / "secret.txt"
    secret.write_text("s3cret")
    (upstream.work / "tools" / "linked").mkdir(parents=True)
    (upstream.work / "tools" / "linked" / "tool.lua").symlink_to(secret)
    upstream.commit(
        {"tools/huge/tool.lua": "-" * 1_200_000, "tools/a b/tool.lua": ECHO, "b.bin": b"\0" * 3_000_000}
    )
    head = git(upstream.work, "rev-parse", "HEAD")
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{head},tools/module")
    git(upstream.work, "commit", "-q", "-m", "module")
    upstream.push()
    report = desk.ask("registry", "install", "team", address(upstream))
    assert [script["name"] for script in report["scripts"]] == ["guide", "echo"]
    assert [line.split(":")[0] for line in report["left_out"]] == [
        "tool 'a b'",
        "tool 'huge'",
        "tool 'linked'",
        "tool 'module'",
    ]
    every = [path for path in desk.shelf.rglob("*") if path.is_file() or path.is_symlink()]
    assert sorted(path.name for path in every) == [
        "agent.lua",
        "registries.json",
        "registries.json.lock",
        "tool.lua",
    ]
    assert all(path.stat().st_mode & 0o077 == 0 for path in desk.shelf.rglob("*"))


@pytest.mark.parametrize(
    ("name", "url", "words"),
    [
        ("team", "https://ann:s3cret@example.org/x.git", "holds a password"),
        ("team", "https://example.org/x.git?k", "holds a password"),
        ("team", "ext::sh -c touch% /tmp/x", "refused"),
        ("../team", "https://example.org/x.git", "is not a valid registry name"),
        ("registries.json", "https://example.org/x.git", "is not a valid registry name"),
    ],
)
def test_addresses_and_names_that_may_not_be_are_refused(desk: Desk, name: str, url: str, words: str) -> None:
    printed = desk.type("registry", "install", f"{name}", "--", url, code=2)
    assert words in printed
    assert "s3cret" not in printed
    assert not (desk.shelf / "registries.json").exists()


@pytest.mark.parametrize("place", ["ctx.toml", "config/ctx.toml"])
def test_a_configuration_that_is_a_link_of_the_clone_is_not_written_through(
    desk: Desk, upstream: Upstream, place: str
) -> None:
    desk.type("registry", "install", "team", address(upstream))
    mine = desk.folder.parent / "mine"
    mine.mkdir()
    (mine / "ctx.toml").write_text(desk.config.read_text())
    desk.config.unlink()
    link = desk.folder / place.split("/")[0]
    link.symlink_to(mine / "ctx.toml" if place == "ctx.toml" else mine)
    printed = desk.type("registry", "add", "tools/echo", "--name", "call", code=2)
    assert "ctx.toml cannot be written" in printed
    assert (mine / "ctx.toml").read_text() == '[embedding]\nprovider = "disabled"\n'
    desk.type("--config", place, "registry", "add", "tools/echo", "--name", "call")  # named, it is one's own
    assert "[tools.script.call]" in (mine / "ctx.toml").read_text()
    assert link.is_symlink()
