"""What runs beside the user: `ctx projects`, `ctx service`, and what a shell completes."""

import json
import os
import plistlib
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from faults import eventually
from kit import ROOT, ctx, project

from ctx import __version__
from ctx.cli import COMMANDS, HIDDEN, whole_parser
from ctx.cli.docs import SHELLS
from ctx.cli.running import Running, at_address, registered, servers, unit_of
from ctx.errors import ConfigError
from ctx.http import local


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of running servers, which is not there yet."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "ctx" / "running"


def test_a_server_is_listed_while_it_runs_and_not_after(state: Path) -> None:
    running = Running("/home/me/notes", "127.0.0.1:7331", os.getpid(), 1_700_000_000_000)
    assert servers() == []
    with registered() as register:
        register(running)
        assert servers() == [running]
        assert state.stat().st_mode & 0o777 == 0o700
    assert servers() == []
    assert os.listdir(state) == []


def test_the_file_of_a_killed_server_is_deleted(state: Path) -> None:
    code = (
        "import os; from ctx.cli.running import *; from contextlib import ExitStack; "
        "ExitStack().enter_context(registered())(Running('/p', '127.0.0.1:1', os.getpid(), 5)); os._exit(9)"
    )
    child = subprocess.run([sys.executable, "-c", code], check=False)
    assert child.returncode == 9
    assert len(os.listdir(state)) == 1
    (state / "other.json").write_text("{half")
    assert servers() == []
    assert os.listdir(state) == []


def test_a_folder_that_cannot_be_written_keeps_no_server_from_serving(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with registered() as register:
        register(Running("/p", "127.0.0.1:1", 1, 5))
    assert servers() == []


@contextmanager
def serving(folder: Path, state: dict[str, str], bind: str = "127.0.0.1:0") -> Iterator[tuple[int, str]]:
    """The process of `ctx serve mcp` in a folder, and its address."""
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", bind],
        cwd=folder,
        env={**os.environ, **state},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as server:
        assert server.stdout is not None
        try:
            yield server.pid, server.stdout.readline().removeprefix("Listening on ").strip()
        finally:
            server.terminate()
            code = server.wait(60)
        assert code == 0


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "projects"])
def test_status_lists_the_server_that_serves(tmp_path: Path, command: str) -> None:
    project(tmp_path, {"a.md": "# A\n\nwords\n"})
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with serving(tmp_path, state) as (pid, address):
        (row,) = json.loads(ctx(command, "--json", cwd=tmp_path, env=state).stdout)["projects"]
        assert (row["root"], row["url"], row["pid"]) == (str(tmp_path), f"http://{address}", pid)
        assert f"http://{address}" in ctx(command, cwd=tmp_path, env=state).stdout
    assert "none run" in ctx(command, cwd=tmp_path, env=state).stdout


@pytest.mark.slow
def test_a_server_is_listed_before_it_says_that_it_listens(tmp_path: Path, state: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nwords\n"})
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    with suppress(BlockingIOError):
        while os.write(writing, bytes(4096)):  # until the pipe is full: what is said stays in the throat
            pass
    os.set_blocking(writing, True)
    with subprocess.Popen(
        [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", "127.0.0.1:0"],
        cwd=tmp_path,
        stdout=writing,
        stderr=subprocess.DEVNULL,
    ) as server:
        os.close(writing)
        try:
            eventually(lambda: [row.pid for row in servers()] == [server.pid])
        finally:
            server.terminate()
            os.close(reading)


def test_a_unit_starts_the_server_of_its_project() -> None:
    unit = unit_of("/home/me/100% $notes/ctx.toml", "linux", "/home/me")
    text = unit.text.decode()
    assert re.search(r"/systemd/user/ctx-100-notes-[0-9a-f]+\.service$", unit.path)
    assert '"serve" "mcp" "--config" "/home/me/100%% $$notes/ctx.toml"' in text
    assert "WorkingDirectory=/home/me/100%% $notes" in text
    agent = unit_of("/Users/me/notes/config/ctx.toml", "darwin", "/Users/me")
    row = plistlib.loads(agent.text)
    assert agent.path.startswith("/Users/me/Library/LaunchAgents/ctx.notes-")
    assert row["ProgramArguments"][-2:] == ["--config", "/Users/me/notes/config/ctx.toml"]
    assert row["WorkingDirectory"] == "/Users/me/notes"


@pytest.mark.parametrize("name", ["a\rExecStartPre=x", "a\nExecStartPre=x", "a\\", "a\x85b"])
def test_the_name_of_a_folder_adds_no_line_to_a_unit(name: str) -> None:
    with pytest.raises(ConfigError, match="rename the folder"):
        unit_of(f"/home/me/{name}/ctx.toml", "linux", "/home/me")


def test_a_service_runs_no_program_that_lies_in_its_project(tmp_path: Path) -> None:
    for name in ("ctx/__init__.py", "ctx/__main__.py", "json.py", "sitecustomize.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("raise SystemExit('a stranger was here')")
    agent = plistlib.loads(unit_of(str(tmp_path / "ctx.toml"), "darwin", str(tmp_path)).text)
    words = agent["ProgramArguments"]
    command = [*words[: words.index("serve")], "--version"]
    reply = subprocess.run(
        command, cwd=agent["WorkingDirectory"], capture_output=True, text=True, check=False
    )
    assert (reply.returncode, reply.stderr) == (0, "")
    assert reply.stdout.startswith("ctx ")


@pytest.mark.skipif(sys.platform != "linux", reason="the unit is systemd's")
def test_a_service_is_written_told_and_removed(tmp_path: Path) -> None:
    project(tmp_path)
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    unit = tmp_path / "config" / "systemd" / "user"
    printed = ctx("service", "install", "--print", cwd=tmp_path, env=environ)
    assert "[Service]" in printed.stdout
    assert not unit.exists()
    reply = ctx("service", "install", "--no-start", cwd=tmp_path, env=environ)
    assert (reply.returncode, "systemctl --user enable --now" in reply.stdout) == (0, True)
    assert len(list(unit.iterdir())) == 1
    status = json.loads(ctx("service", "status", "--json", cwd=tmp_path, env=environ).stdout)
    assert (status["installed"], status["running"]) == (True, False)
    assert ctx("service", "remove", cwd=tmp_path, env=environ).returncode == 0
    assert list(unit.iterdir()) == []
    assert ctx("service", "remove", cwd=tmp_path, env=environ).returncode == 3


@pytest.mark.skipif(sys.platform != "linux", reason="the unit is systemd's")
def test_projects_in_folders_of_one_name_have_a_service_each(tmp_path: Path) -> None:
    environ = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}
    folders = [tmp_path / "ana" / "notes", tmp_path / "ben" / "notes"]
    for folder in folders:
        folder.mkdir(parents=True)
        project(folder)
        reply = ctx("service", "install", "--no-start", "--json", cwd=folder, env=environ)
        unit = Path(json.loads(reply.stdout)["unit"])
        assert str(folder / "ctx.toml") in unit.read_text()
    units = list((tmp_path / "config" / "systemd" / "user").iterdir())
    assert len(units) == 2
    reply = ctx("service", "remove", "--json", cwd=folders[0], env=environ)
    assert json.loads(reply.stdout)["installed"] is False
    status = json.loads(ctx("service", "status", "--json", cwd=folders[1], env=environ).stdout)
    assert status["installed"] is True
    assert str(folders[1] / "ctx.toml") in Path(status["unit"]).read_text()
    assert (
        json.loads(ctx("service", "status", "--json", cwd=folders[0], env=environ).stdout)["installed"]
        is False
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_completed(shell: str) -> None:
    text = ctx("completions", shell, cwd=ROOT).stdout
    assert all(command in text for command in COMMANDS if command not in HIDDEN)
    assert "dry-run" in text
    assert "claude-desktop" in text
    if shutil.which(shell):
        assert subprocess.run([shell, "-n"], input=text, text=True, check=False).returncode == 0


def test_bash_completes_an_option_and_a_word() -> None:
    if not shutil.which("bash"):
        pytest.skip("needs bash")
    ask = (
        "COMP_WORDS=(ctx {words}); COMP_CWORD={last}; COMPREPLY=(); "
        "$(complete -p ctx | sed 's/.*-F \\([^ ]*\\).*/\\1/') ctx {word} x; echo \"${{COMPREPLY[@]}}\""
    )
    for words, reply in (
        ("index --pru", "--prune"),
        ("sea", "search"),
        ("connect cur", "cursor"),
    ):
        last = len(words.split())
        line = (
            ctx("completions", "bash", cwd=ROOT).stdout
            + "\n"
            + ask.format(words=words, last=last, word=words.split()[-1])
        )
        output = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False).stdout
        assert reply in output.split()


def test_the_whole_parser_has_every_command_and_reads_it() -> None:
    parsed = whole_parser().parse_args(["search", "words", "--limit", "3"])
    assert (parsed.query, parsed.limit) == (["words"], 3)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[tuple[Path, dict[str, str], str]]:
    """A project that is served, the environment of its user, and the address."""
    served = tmp_path / "first"
    served.mkdir()
    project(served, {"a.md": "# A\n\nwords\n"})
    state = {"XDG_STATE_HOME": str(tmp_path / "state"), "HOME": str(tmp_path / "home")}
    with serving(served, state) as (_, address):
        yield served, state, address


@pytest.mark.slow
def test_doctor_reaches_a_server_of_this_user_that_wants_a_key(tmp_path: Path) -> None:
    project(tmp_path, {"a.md": "# A\n\nwords\n"})
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    assert ctx("key", "create", "laptop", cwd=tmp_path, env=state).returncode == 0
    with serving(tmp_path, state, "0.0.0.0:0") as (_, address):
        port = address.rpartition(":")[2]
        reply = ctx("doctor", "--json", cwd=tmp_path, env=state)
        projects = ctx("status", cwd=tmp_path, env=state).stdout
    findings = {row["what"]: row for row in json.loads(reply.stdout)["findings"]}
    detail = f"version {__version__} answers at http://127.0.0.1:{port}"
    assert (findings["server"]["state"], findings["server"]["detail"]) == ("ok", detail)
    assert findings["mcp"]["state"] == "ok"
    assert f"http://127.0.0.1:{port}" in projects  # an address that opens


def _second(folder: Path, bind: str) -> Path:
    """Another project, whose configuration says the same address."""
    second = folder.parent / "second"
    second.mkdir()
    config = project(second, {"b.md": "# B\n\nwords\n"})
    config.write_text(f'{config.read_text()}\n[server]\nbind = "{bind}"\n')
    return second


@pytest.mark.slow
def test_an_entry_leads_to_where_its_project_is_served(running: tuple[Path, dict[str, str], str]) -> None:
    served, state, address = running
    reply = ctx("connect", "cursor", "--user", "--http", cwd=served, env=state)
    assert f'"http://{address}/mcp"' in (served.parent / "home/.cursor/mcp.json").read_text()
    assert "Connected: 6 tools" in reply.stdout
    shared = ctx("connect", "cursor", "--http", "--print", cwd=served, env=state)
    assert '"http://127.0.0.1:7331/mcp"' in shared.stdout  # others serve it where its configuration says


@pytest.mark.slow
def test_the_server_of_another_project_is_never_taken_for_this_ones(
    running: tuple[Path, dict[str, str], str],
) -> None:
    served, state, address = running
    second = _second(served, address)
    for _ in range(2):  # also where the entry is there already
        reply = ctx("connect", "cursor", "--http", cwd=second, env=state)
        assert f"{served}, which is served at {address}" in reply.stderr
    doctor = ctx("doctor", cwd=second, env=state)
    assert f"the server of {served} uses http://{address}" in doctor.stdout
    start = ctx("serve", "mcp", cwd=second, env=state)
    assert start.returncode == 2
    assert f"{address} is in use by the ctx server of {served} " in start.stderr
    assert " is free (or use --bind 127.0.0.1:" in start.stderr
    again = ctx("serve", "mcp", "--bind", address, cwd=served, env=state)
    assert again.returncode == 2
    assert f"this project is already served at http://{address}" in again.stderr


def test_servers_meet_where_one_leads_to_the_other() -> None:
    rows = [Running("/a", "[0::0]:7331", 1, 1), Running("/b", "[::1]:7332", 2, 2)]
    binds = ("127.0.0.1:7331", "192.168.1.2:7331", "localhost:7332", "192.168.1.2:7332", "127.0.0.1:7333")
    met = [at_address(rows, bind) for bind in binds]
    assert [row and row.root for row in met] == ["/a", "/a", "/b", None, None]
    assert [local(row.address) for row in rows] == ["http://127.0.0.1:7331", "http://[::1]:7332"]
