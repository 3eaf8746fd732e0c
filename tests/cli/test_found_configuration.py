"""A configuration that was found, and asks for more than reading its own folder, waits for the user's
word.
"""

import json
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from kit import ctx, found, project, workspace

from ctx.api import open_project
from ctx.errors import ConfigError
from ctx.models import JSON

SCRIPT = 'tool = {} function tool.execute() return { ran = env.get("CLONE_SECRET") or "nothing" } end'
ASKING = (
    '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
    '[tools.script.deploy]\npath = "./tools/deploy.lua"\nenv = ["CLONE_SECRET"]\n'
)


class Clone:
    """A project that somebody else wrote, and a user with a state folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        self.env = {
            "XDG_STATE_HOME": str(folder / "state"),
            "HOME": str(folder),
            "XDG_CACHE_HOME": str(folder / "cache"),
            "CLONE_SECRET": "s3cret",
        }
        self.config = project(self.folder, {"a.md": "# Auth\n\nTokens rotate.\n"}, ASKING)
        (self.folder / "tools").mkdir()
        (self.folder / "tools" / "deploy.lua").write_text(SCRIPT)

    def ctx(self, *arguments: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        return ctx(*arguments, cwd=cwd or self.folder, env=self.env)

    def json(self, *arguments: str) -> JSON:
        run = self.ctx(*arguments, "--json")
        assert run.returncode == 0, run.stderr
        return json.loads(run.stdout)


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def refused(run: subprocess.CompletedProcess[str]) -> str:
    """The one line in which a command declined."""
    assert (run.returncode, run.stdout) == (2, ""), run.stdout + run.stderr
    assert run.stderr.count("\n") == 1, run.stderr
    assert "`ctx trust ctx.toml`" in run.stderr
    return run.stderr


COMMANDS = [
    ("index",),
    ("search", "tokens"),
    ("get", "x"),
    ("sources",),
    ("serve", "mcp", "--bind", "127.0.0.1:0"),
    ("mcp",),
    ("tool", "list"),
    ("tool", "call", "deploy"),
    ("agent", "list"),
    ("openapi",),
    ("key", "create", "x"),
    ("memory", "banks"),
    ("connect", "cursor"),
    ("connect", "cursor", "--user"),
]


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_no_command_reads_anything_before_the_users_word(clone: Clone, command: tuple[str, ...]) -> None:
    message = refused(clone.ctx(*command))
    assert "runs the script ./tools/deploy.lua as the tool deploy" in message
    assert "CLONE_SECRET" in message
    assert "s3cret" not in message
    assert not (clone.folder / ".ctx").exists()
    assert not (clone.folder.parent / ".cursor").exists()


def test_doctor_says_it_as_a_finding(clone: Clone) -> None:
    run = clone.ctx("doctor", "--json")
    (row,) = [entry for entry in json.loads(run.stdout)["findings"] if entry["what"] == "configuration"]
    assert (run.returncode, row["state"]) == (1, "failed")
    assert "ctx trust ctx.toml" in row["detail"]


@pytest.mark.slow
def test_trust_shows_what_is_asked_for_then_records_it_until_the_bytes_change(clone: Clone) -> None:
    listing = clone.ctx("trust", "--list")
    assert "it runs the script ./tools/deploy.lua as the tool deploy" in listing.stdout
    assert "NOT trusted" in listing.stdout
    refused(clone.ctx("search", "tokens"))  # a list trusts nothing
    trusting = clone.ctx("trust", "ctx.toml")
    assert trusting.returncode == 0, trusting.stderr
    assert trusting.stdout.index("it runs the script") < trusting.stdout.index("trusted")
    assert clone.json("tool", "call", "deploy") == {"ran": "s3cret"}
    below = clone.folder / "docs"
    assert clone.ctx("tool", "list", cwd=below).returncode == 0  # and from every folder of the project
    clone.config.write_text(ASKING + "\n")
    refused(clone.ctx("tool", "list"))
    assert clone.json("trust")["configuration"]["trusted"] is True
    assert clone.ctx("tool", "list").returncode == 0
    assert clone.json("trust", "--revoke", "ctx.toml")["configuration"]["trusted"] is False
    refused(clone.ctx("tool", "list"))


@pytest.mark.parametrize("named", ["script", "folder", "source"])
def test_a_script_that_changes_after_its_configuration_was_trusted_does_not_run(
    clone: Clone, named: str
) -> None:
    text = {
        "script": ASKING,
        "folder": '[lua]\ntools_dir = "./tools"\n',
        "source": '[embedding]\nprovider = "disabled"\n[connectors.script.s]\npath = "./tools/s.lua"\n',
    }[named]
    clone.config.write_text(text)
    script = clone.folder / "tools" / ("s.lua" if named == "source" else "deploy.lua")
    source = (
        'connector = {} function connector.scan() return {{ source_id = "a", body = "%s" }} end'
        if named == "source"
        else 'tool = {} function tool.execute() return "%s" end'
    )
    use = ("index",) if named == "source" else ("tool", "call", "deploy")
    script.write_text(source % "v1")
    trusting = clone.json("trust", "ctx.toml")
    assert [entry["trusted"] for entry in trusting["scripts"]] == [True]
    assert clone.ctx(*use).returncode == 0
    script.write_text(source % "pulled")
    changed = clone.ctx(*use)
    assert changed.returncode != 0
    assert f"tools/{script.name} has changed since you trusted it" in changed.stdout + changed.stderr
    assert "`ctx trust ctx.toml`" in changed.stdout + changed.stderr
    assert clone.json("trust", "--list")["scripts"][0]["trusted"] is False
    (clone.folder / "more").mkdir()
    assert clone.ctx("add", "more", "--no-index").returncode == 0
    assert clone.ctx(*use).returncode != 0  # a change of the configuration by ctx trusts no script
    assert clone.ctx(*use, "--config", "ctx.toml").returncode == 0  # naming the file is the user's word
    assert clone.ctx("trust", "ctx.toml").returncode == 0
    assert clone.ctx(*use).returncode == 0


def test_a_script_that_comes_into_a_trusted_tools_dir_does_not_run(clone: Clone) -> None:
    clone.config.write_text('[lua]\ntools_dir = "./tools"\n')
    assert clone.ctx("trust", "ctx.toml").returncode == 0
    (clone.folder / "tools" / "pulled.lua").write_text(SCRIPT)
    run = clone.ctx("tool", "call", "pulled")
    assert run.returncode != 0
    assert "tools/pulled.lua is not trusted yet and does not run" in run.stderr


def test_the_same_bytes_elsewhere_are_not_trusted(clone: Clone) -> None:
    assert clone.ctx("trust").returncode == 0
    copy = clone.folder.parent / "copy"
    copy.mkdir()
    (copy / "ctx.toml").write_bytes(clone.config.read_bytes())
    (copy / "tools").mkdir()
    (copy / "tools" / "deploy.lua").write_text(SCRIPT)
    refused(clone.ctx("tool", "list", cwd=copy))


@pytest.mark.parametrize("linked", ["ctx.toml", "config"])
def test_a_link_to_a_trusted_configuration_trusts_nothing(clone: Clone, linked: str) -> None:
    if linked == "config":
        (clone.folder / "config").mkdir()
        clone.config.rename(clone.folder / "config" / "ctx.toml")
    assert clone.ctx("trust").returncode == 0
    assert clone.ctx("tool", "call", "deploy").returncode == 0
    stranger = clone.folder.parent / "stranger"
    (stranger / "tools").mkdir(parents=True)
    (stranger / "tools" / "deploy.lua").write_text(SCRIPT)
    (stranger / linked).symlink_to(f"../{clone.folder.name}/{linked}")
    run = clone.ctx("tool", "call", "deploy", cwd=stranger)
    assert (run.returncode, run.stdout) == (2, ""), run.stdout
    assert "s3cret" not in run.stdout


def test_a_folder_that_became_a_link_out_of_the_project_is_asked_about_again(
    clone: Clone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", clone.env["XDG_STATE_HOME"])
    private = clone.folder.parent / "private"
    private.mkdir()
    (private / "key.md").write_text("# zebrafish\n")
    assert clone.ctx("trust").returncode == 0
    assert clone.ctx("index").returncode == 0
    open_project(clone.folder).close()
    (clone.folder / "docs").rename(clone.folder / "former")
    (clone.folder / "docs").symlink_to(private)
    message = refused(clone.ctx("index"))
    asks = clone.json("trust", "--list")["configuration"]["asks"]
    assert f"follows the link ./docs to {private}" in asks
    with pytest.raises(ConfigError):
        open_project(clone.folder)
    assert "reads the folder" in message
    assert clone.ctx("trust").returncode == 0
    assert clone.ctx("index").returncode == 0  # it is meant: then it is read


@pytest.mark.parametrize("target", ["private", "clone/.git"])
def test_a_server_does_not_follow_a_folder_that_becomes_a_link(tmp_path: Path, target: str) -> None:
    config = project(tmp_path / "clone", {"a.md": "# Auth\n"})
    (tmp_path / target).mkdir()
    (tmp_path / target / "key.md").write_text("# zebrafish\n")
    with closing(workspace(config)) as space:
        space.indexer.run()
        (tmp_path / "clone" / "docs").rename(tmp_path / "clone" / "former")
        (tmp_path / "clone" / "docs").symlink_to(tmp_path / target)
        (report,) = space.indexer.run()
        assert "has become a link that leads out of the project" in str(report.note)
        assert found(space, "auth") != [[]]
        assert found(space, "zebrafish") == [[]]


def test_naming_the_file_is_the_users_word(clone: Clone) -> None:
    assert clone.ctx("tool", "list", "--config", "ctx.toml").returncode == 0
    assert ctx("tool", "list", cwd=clone.folder, env={**clone.env, "CTX_CONFIG": "ctx.toml"}).returncode == 0
    assert not (clone.folder.parent / "state").exists()


def test_the_users_own_configuration_needs_no_second_word(clone: Clone) -> None:
    home = clone.folder.parent / "settings"
    (home / "ctx" / "tools").mkdir(parents=True)
    (home / "ctx" / "tools" / "deploy.lua").write_text(SCRIPT)
    (home / "ctx" / "config.toml").write_text(
        '[tools.script.deploy]\npath = "./tools/deploy.lua"\n[embedding]\nprovider = "disabled"\n'
    )
    clone.config.unlink()
    clone.env["XDG_CONFIG_HOME"] = str(home)
    assert "deploy" in clone.ctx("tool", "list").stdout


def test_what_stays_in_its_folder_is_never_asked_about(clone: Clone) -> None:
    clone.config.write_text('[connectors.filesystem]\nroot = "."\n[embedding]\nprovider = "disabled"\n')
    assert clone.ctx("index").returncode == 0
    assert "Auth" in clone.ctx("search", "tokens").stdout
    assert "asks for nothing" in clone.ctx("trust").stdout
    assert not (clone.folder.parent / "state").exists()


def test_what_init_wrote_is_trusted_as_written(clone: Clone) -> None:
    clone.config.unlink()
    (clone.folder.parent / "notes").mkdir()
    assert clone.ctx("init", "--root", "../notes").returncode == 0
    assert clone.ctx("index", "--no-embed").returncode == 0
    clone.config.write_text(clone.config.read_text() + '\n[lua]\ntools_dir = "./tools"\n')
    assert "reads the folder ../notes" in refused(clone.ctx("index"))


def test_a_mistake_is_told_before_a_question_is_asked(clone: Clone) -> None:
    clone.config.write_text(ASKING + '[server]\nbnid = "x"\n')
    run = clone.ctx("search", "x")
    assert (run.returncode, "did you mean 'bind'?" in run.stderr) == (2, True)


def test_a_request_cannot_forge_a_line_of_the_terminal(clone: Clone) -> None:
    clone.config.write_text('[connectors.filesystem]\nroot = "/etc\\n\\u001b[2JTrusted."\n')
    for run in (clone.ctx("search", "x"), clone.ctx("trust", "--list")):
        assert "\x1b" not in run.stdout + run.stderr
        assert "\nTrusted." not in run.stdout + run.stderr
        assert "\\x1b[2JTrusted." in run.stdout + run.stderr


def test_a_long_list_is_shown_whole_by_trust(clone: Clone) -> None:
    tables = "".join(f'[connectors.filesystem.s{n}]\nroot = "/srv/{n}"\n' for n in range(30))
    clone.config.write_text(tables)
    assert "and 27 more" in refused(clone.ctx("search", "x"))
    assert clone.ctx("trust", "--list").stdout.count("it reads the folder /srv/") == 30


@pytest.mark.parametrize("content", ["{", "[]", '{"trusted": []}', '{"trusted": 5}', "null", "[" * 5000])
def test_a_damaged_list_of_trust_trusts_nothing(clone: Clone, content: str) -> None:
    state = clone.folder.parent / "state" / "ctx"
    state.mkdir(parents=True)
    (state / "trusted.json").write_text(content)
    run = clone.ctx("search", "tokens")
    assert (run.returncode, "run `ctx trust` again" in run.stderr) == (2, True), run.stderr
    assert "Traceback" not in run.stderr


def test_trust_that_cannot_be_kept_says_so_in_a_line(clone: Clone) -> None:
    clone.env["XDG_STATE_HOME"] = "/proc/nowhere"
    run = clone.ctx("trust")
    assert run.returncode == 2
    assert "trust cannot be recorded in /proc/nowhere/ctx" in run.stderr
    assert "Traceback" not in run.stderr
    clone.config.write_text('[connectors.filesystem]\nroot = "."\n')
    assert clone.ctx("trust").returncode == 0  # where there is nothing to trust, nothing is written


OUTSIDE = [
    ("key", "create", "bob"),
    ("key", "list"),
    ("trust",),
    ("memory", "banks"),
    ("memory", "export"),
    ("agent", "list"),
    ("pack", "list"),
    ("tool", "list"),
    ("search", "x"),
]


@pytest.mark.parametrize("command", OUTSIDE, ids=" ".join)
def test_outside_a_project_every_command_says_the_same(tmp_path: Path, command: tuple[str, ...]) -> None:
    run = ctx(*command, cwd=tmp_path, env={"HOME": str(tmp_path)})
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("Error: no ctx.toml here or in a folder above; `ctx init`")
    assert list(tmp_path.iterdir()) == []


def test_memories_that_are_the_users_own_are_there_outside_a_project(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    project(tmp_path, config='[embedding]\nprovider = "disabled"\n')
    home = {"HOME": str(tmp_path)}
    assert ctx("memory", "import", cwd=tmp_path, env=home, input_text="").returncode == 0
    (tmp_path / "ctx.toml").unlink()
    run = ctx("memory", "banks", cwd=tmp_path / "elsewhere", env=home)
    assert run.returncode == 0, run.stderr
