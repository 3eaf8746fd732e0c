"""Each layer of the sandbox is there, and a test fails when it is taken away.

A layer is taken away in the zygote of one test: its pool starts it with a line of Python put before its own.
Nothing in the product can do that.
"""

import os
import re
import select
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from redteam_run import WatchedPool, attempt, poor_host, tool

from ctx.errors import ScriptTimeout, ToolError
from ctx.lua import seccomp
from ctx.lua.frames import Deadline
from ctx.lua.lockdown import Layer
from ctx.lua.nursery import Nursery, Worker
from ctx.lua.pool import Pool
from ctx.lua.selftest import FILTER, FORBIDDEN, KILL, MEMORY
from ctx.types import JSON

PRELUDE = Path(__file__).parents[2] / "ctx" / "lua" / "prelude.lua"


def without(
    patch: str = "", *, prelude: tuple[tuple[str, str], ...] = (), kill: bool = True, **settings: JSON
) -> WatchedPool:
    """A pool whose zygote runs `patch` first, and whose prelude has these texts replaced."""
    edits = "; s = json.loads(sys.argv[1])"
    for text, substitute in prelude:
        assert PRELUDE.read_text().count(text) == 1, text
        edits += f"; s[3]['prelude'] = s[3]['prelude'].replace({text!r}, {substitute!r})"
    start = (
        "import sys, json; sys.path += sys.argv[2:]; from ctx.lua import lockdown, seccomp, worker, zygote"
        + edits
    )
    boot_ = f"{start}\n{patch}\nzygote.main(json.dumps(s))"

    class Weakened(Nursery):
        boot = boot_

        def kill(self, worker: Worker) -> None:
            if kill:
                super().kill(worker)

    class WeakenedPool(WatchedPool):
        def _new_nursery(self) -> Nursery:
            return Weakened(spares=self._spares, memory_mb=self._memory_mb)

    return WeakenedPool(spares=2, **settings)


def layer(pool: Pool, name: str) -> Layer:
    return next(layer for layer in pool.selftest() if layer.name == name)


@pytest.fixture(scope="session")
def bytecode() -> str:
    """`return 42` compiled, as a Lua string literal."""
    code = (
        "from lupa import lua54; "
        "print(lua54.LuaRuntime(encoding=None).eval(b\"string.dump(load('return 42'))\").hex())"
    )
    dumped = bytes.fromhex(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    )
    return "'" + "".join(f"\\{byte:03d}" for byte in dumped) + "'"


# ---------------------------------------------------------------------- what the layers are for, as checks


def refuses_bytecode(pool: Pool, bytecode: str) -> bool:
    return bool(
        pool.run(
            tool(f"tool = {{}} function tool.execute() return load({bytecode}, 'x', 'b') == nil end"),
            poor_host,
            10,
        )
    )


def refuses_bytecode_as_a_script(pool: Pool, bytecode: str) -> bool:
    try:
        pool.run(tool(_raw(bytecode), entry="load_check"), poor_host, 10)
    except ToolError as error:
        return "syntax" in error.message
    return False


def _raw(literal: str) -> bytes:
    return bytes(int(code) for code in re.findall(r"\\(\d{3})", literal))


def answers_in_time(pool: Pool, patience_s: float = 30.0) -> bool:
    """Whether the answer comes before a host handler that hangs for so long."""
    release = threading.Event()
    timer = threading.Timer(patience_s, release.set)
    timer.start()

    def host(operation: str, payload: bytes, deadline_s: float) -> bytes:
        release.wait()
        return b"[]"

    with pytest.raises(ScriptTimeout):
        pool.run(tool("tool = {} function tool.execute(p, context) context.sources() end"), host, 0.5)
    in_time = not release.is_set()
    timer.cancel()
    release.set()
    return in_time


def passes(pool: Pool, corpus: Path, name: str) -> bool:
    """Whether a script of the hostile corpus reports that it did not escape."""
    outcome = attempt(pool, (corpus / f"{name}.lua").read_bytes(), {}, 1.0)
    return outcome.status == 200 and isinstance(outcome.value, dict) and outcome.value.get("escaped") is False


# ---------------------------------------------------------------------- with all of them


def test_every_layer_that_linux_can_give_holds(pool: WatchedPool) -> None:
    layers = {layer.name: layer for layer in pool.selftest()}
    if seccomp.machine() is None:
        pytest.skip("no system call filter on this system")
    for name in (FILTER, MEMORY, KILL, "unprivileged user", "no new privileges", "empty environment"):
        assert layers[name].held, layers[name]
    assert pool.level == "strict"


def test_the_checks_hold_with_all_layers(pool: WatchedPool, corpus: Path, bytecode: str) -> None:
    assert refuses_bytecode(pool, bytecode)
    assert refuses_bytecode_as_a_script(pool, bytecode)
    assert answers_in_time(pool)
    for name in (
        "a01_forbidden_globals",
        "a02_env_vs_G",
        "a03_walk_everything",
        "a08_string_dump_via_metatable",
    ):
        assert passes(pool, corpus, name)


# ---------------------------------------------------------------------- with one taken away


def test_without_text_only_load_bytecode_gets_in(bytecode: str) -> None:
    with without(prelude=(('"=(load)", "t", scope)', '"=(load)", "bt", scope)'),)) as weak:
        assert not refuses_bytecode(weak, bytecode)


def test_without_the_prefix_and_the_text_mode_a_script_may_be_bytecode(bytecode: str) -> None:
    edit = (
        'load("local os = ...; " .. text_of(source), "=" .. name, "t", env)',
        'load(text_of(source), "=" .. name, "bt", env)',
    )
    with without(prelude=(edit,)) as weak:
        assert not refuses_bytecode_as_a_script(weak, bytecode)


def test_without_an_environment_of_its_own_a_script_finds_the_real_globals(corpus: Path) -> None:
    with without(
        "worker._REMOVED = ()",
        prelude=(("  local env = {}\n  add_language(env)", "  local env = real\n  add_language(env)"),),
    ) as weak:
        assert not passes(weak, corpus, "a01_forbidden_globals")
        assert not passes(weak, corpus, "a03_walk_everything")


def test_without_its_removal_string_dump_is_found(corpus: Path) -> None:
    with without(prelude=(("string.dump = nil", "local _ = nil"),)) as weak:
        assert not passes(weak, corpus, "a08_string_dump_via_metatable")


@pytest.mark.slow
def test_without_abandonment_a_hanging_handler_holds_the_answer_up() -> None:
    with without() as weak:

        def inline(function: JSON, deadline: Deadline) -> JSON:
            return function()

        weak._threads.call = inline  # type: ignore[method-assign]
        assert not answers_in_time(weak, patience_s=1.5)


@pytest.mark.slow
def test_without_the_kill_a_late_worker_lives_on() -> None:
    with without(kill=False) as weak:
        assert not layer(weak, KILL).held
        with pytest.raises(ScriptTimeout):
            weak.run(
                tool("tool = {} function tool.execute() while true do end end", trust="operator"),
                poor_host,
                0.1,
            )
        assert len(weak.survivors(0.3)) == 1


def test_without_the_filter_it_is_said_and_strangers_are_refused() -> None:
    with without("seccomp.install = lambda program: None") as weak:
        assert not layer(weak, FILTER).held
        assert "open a file" in layer(weak, FILTER).detail
        assert weak.level == "process"
        with pytest.raises(ToolError, match="strict sandbox"):
            weak.run(tool("tool = {} function tool.execute() return 1 end"), poor_host, 10)
        assert (
            weak.run(tool("tool = {} function tool.execute() return 1 end", trust="operator"), poor_host, 10)
            == 1
        )


def test_where_the_configuration_wants_strict_nobody_runs_below_it() -> None:
    with (
        without("seccomp.install = lambda program: None", sandbox="strict") as weak,
        pytest.raises(ToolError, match="every script"),
    ):
        weak.run(tool("tool = {} function tool.execute() return 1 end", trust="operator"), poor_host, 10)


@pytest.mark.parametrize(
    ("calls", "probe"),
    [
        ({"openat": 257}, "open a file"),
        ({"socket": 41}, "open a socket"),
        # A Python that has forked counts its threads in /proc, which is opening a file.
        ({"clone": 56, "openat": 257}, "start a process"),
        ({"kill": 62}, "send a signal"),
    ],
)
def test_one_call_more_in_the_filter_is_noticed(calls: dict[str, int], probe: str) -> None:
    machine = seccomp.machine()
    if machine is None or machine.arch != seccomp.MACHINES["x86_64"].arch:
        pytest.skip("the numbers are those of x86_64")
    patch = f"seccomp.MACHINES['x86_64'].numbers.update({calls}); seccomp.ALLOWED += {tuple(calls)}"
    with without(patch) as weak:
        assert not layer(weak, FILTER).held
        assert probe in layer(weak, FILTER).detail


def test_without_the_hard_memory_limit_it_is_said() -> None:
    with without("lockdown.address_space_bytes = lambda: 0") as weak:
        assert not layer(weak, MEMORY).held
        assert weak.level == "process"


def test_without_lua_s_own_memory_limit_the_hard_one_holds() -> None:
    patch = (
        "made = worker.Interpreter.__init__; worker.Interpreter.__init__ = lambda self, prelude, size: "
        "made(self, prelude, 0)"
    )
    with without(patch, memory_mb=32) as weak:
        bomb = (
            "tool = {} function tool.execute() local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) "
            ".. i end end"
        )
        with pytest.raises(ToolError):
            weak.run(tool(bomb), poor_host, 30)
        assert weak.run(tool("tool = {} function tool.execute() return 1 end"), poor_host, 10) == 1


def test_without_a_fresh_state_a_reused_process_leaks() -> None:
    with without(
        "worker.Interpreter.close = lambda self: None\nmake = worker.Interpreter\nkept = []\n"
        "worker.Interpreter = lambda *a: kept[0] if kept else kept.append(make(*a)) or kept[0]"
    ) as weak:
        source = (
            "tool = {} function tool.execute() string.count = (string.count or 0) + 1 return string.count end"
        )
        job = tool(source, trust="operator", reuse=True)
        assert [weak.run(job, poor_host, 10) for _ in range(2)] == [1, 2]


def test_a_fork_that_the_system_refuses_is_asked_for_again() -> None:
    patch = """
import os
fork, asked = os.fork, []
def refuse_some():
    asked.append(1)
    if len(asked) > 12 and len(asked) % 3 == 0:
        raise OSError(11, "no room")
    return fork()
os.fork = refuse_some"""
    with without(patch) as tight:
        before = tight.zygote_pid
        for _ in range(12):
            assert tight.run(tool("tool = {} function tool.execute() return 1 end"), poor_host, 10) == 1
        assert tight.zygote_pid == before


def test_where_there_are_no_pidfds_the_zygote_kills() -> None:
    """As on macOS."""
    with without("zygote._pidfd = lambda pid: None") as pool:
        assert layer(pool, KILL).detail.startswith("by the zygote")
        with pytest.raises(ScriptTimeout):
            pool.run(tool("tool = {} function tool.execute() while true do end end"), poor_host, 0.1)
        assert pool.survivors(1.0) == []


@pytest.mark.skipif(not shutil.which("setpriv") or os.geteuid() != 0, reason="needs root and setpriv")
@pytest.mark.parametrize("dropped", ["-sys_admin", "-kill", "-all"])
def test_root_with_fewer_capabilities_reaches_strict(dropped: str) -> None:
    """As in a container."""
    code = """
from ctx.lua.pool import Pool
with Pool() as pool:
    assert pool.level == "strict", pool.selftest()
"""
    subprocess.run(
        ["setpriv", f"--bounding-set={dropped}", f"--inh-caps={dropped}", sys.executable, "-c", code],
        check=True,
    )


def test_strict_is_reached_without_namespaces_or_a_root_of_its_own(corpus: Path) -> None:
    """As on a machine that forbids both to ordinary accounts."""
    patch = (
        "lockdown._leave_namespaces = lambda: lockdown.Layer('namespaces', False, 'not permitted here')\n"
        "lockdown._enter_root = lambda empty: lockdown.Layer('empty root folder', False, 'not permitted "
        "here')"
    )
    with without(patch) as pool:
        assert not layer(pool, "namespaces").held
        assert pool.level == "strict"
        assert layer(pool, FILTER).held
        for name in ("a01_forbidden_globals", "f01_fs_dotdot"):
            assert passes(pool, corpus, name)


# ---------------------------------------------------------------------- the filter itself

_OPEN = 0x7FFF0000
_ERRNO = 0x00050000


def verdict(target: seccomp.Machine, number: int, *, arch: int | None = None, protection: int = 0) -> int:
    """What the kernel would answer: the filter run as the kernel runs it."""
    data = {0: number, 4: target.arch if arch is None else arch, 32: protection}
    program = seccomp.instructions(target)
    step = accumulator = 0
    while True:
        code, true, false, operand = program[step]
        step += 1
        if code == 0x20:
            accumulator = data[operand]
        elif code == 0x06:
            return operand
        else:
            jump = {
                0x15: accumulator == operand,
                0x35: accumulator >= operand,
                0x45: bool(accumulator & operand),
            }[code]
            step += true if jump else false


@pytest.mark.parametrize("name", list(seccomp.MACHINES))
def test_the_filter_allows_its_list_and_kills_for_the_rest(name: str) -> None:
    target = seccomp.MACHINES[name]
    allowed = {target.numbers[call] for call in (*seccomp.ALLOWED, *seccomp.WITHOUT_EXEC)}
    refused = {target.numbers[call] for call in seccomp.REFUSED}
    for number in range(600):
        answer = _OPEN if number in allowed else (_ERRNO | 1) if number in refused else 0x80000000
        assert verdict(target, number) == answer, number
    for call in seccomp.WITHOUT_EXEC:
        assert verdict(target, target.numbers[call], protection=3) == _OPEN
        assert verdict(target, target.numbers[call], protection=7) == 0x80000000
    assert verdict(target, target.numbers["read"], arch=0x40000003) == 0x80000000
    assert verdict(target, target.numbers["read"] | 0x40000000) == 0x80000000


@pytest.mark.parametrize(
    ("name", "header"), [("x86_64", "x86_64-linux-gnu/asm/unistd_64.h"), ("aarch64", "asm-generic/unistd.h")]
)
def test_the_call_numbers_are_the_kernel_s(name: str, header: str) -> None:
    path = Path("/usr/include") / header
    if not path.is_file():
        pytest.skip(f"no kernel headers at {path}")
    text = path.read_text()
    numbers = {call: int(number) for call, number in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
    for call, number in seccomp.MACHINES[name].numbers.items():
        assert numbers[call] == number, call


def test_a_zygote_that_does_not_start_is_a_tool_error_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    broken = without("raise SystemExit('no Lua here')")
    for _ in range(2):
        with pytest.raises(ToolError, match="did not start"):
            broken.run(tool("tool = {}"), poor_host, 10)
    broken.close()
    assert "no Lua here" in caplog.text


def test_the_self_test_and_the_zygote_mean_the_same_probes() -> None:
    code = "from ctx.lua.zygote import PROBES, REFUSED; print([name for name, _ in PROBES], REFUSED)"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert output.strip() == f"{[*FORBIDDEN, 'use more memory than allowed', 'run for ever']} 77"


# ---------------------------------------------------------------------- processes

_SERVER = """
import os, sys, threading
from ctx.lua.pool import Job, Pool
pool = Pool(spares=2)
pool.start()
source = b"tool = {} function tool.execute() while true do end end"
job = Job("loop", source, "execute", b"{}", b"{}", frozenset(), "untrusted")
taken = pool._take
def tell(*arguments):
    worker = taken(*arguments)
    print(pool.zygote_pid, worker.pid, flush=True)
    return worker
pool._take = tell
MORE
pool.run(job, lambda *_: b"", 60)
"""


@contextmanager
def server(more: str = "") -> Iterator[tuple[subprocess.Popen[str], list[int]]]:
    """A process with a sandbox in which a script loops; with the pids of its zygote and worker."""
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER.replace("MORE", more)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process, [int(word) for word in process.stdout.readline().split()]
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def ends(pid: int, within_s: float) -> bool:
    """Whether a process that is not our child ends in time."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], within_s)[0])
    finally:
        os.close(fd)


@pytest.mark.skipif(sys.platform != "linux", reason="watches by pidfd")
def test_a_killed_server_takes_zygote_and_workers_with_it() -> None:
    with server() as (process, pids):
        assert len(pids) == 2
        process.kill()
        for pid in pids:
            assert ends(pid, 2.0)


@pytest.mark.skipif(sys.platform != "linux", reason="watches by pidfd")
def test_a_fork_of_the_server_does_not_keep_the_sandbox_alive() -> None:
    with server("import signal\nif os.fork() == 0:\n    signal.alarm(5)\n    signal.pause()") as (
        process,
        pids,
    ):
        process.kill()
        for pid in pids:
            assert ends(pid, 2.0)


@pytest.mark.skipif(sys.platform != "linux", reason="watches by pidfd")
def test_a_killed_zygote_takes_its_workers_with_it() -> None:
    with server() as (_, (zygote, worker)):
        os.kill(zygote, 9)
        assert ends(worker, 2.0)


def test_lupa_is_never_loaded_in_the_server() -> None:
    code = """
import sys
from ctx.lua.pool import Job, Pool
with Pool() as pool:
    source = b"tool = {} function tool.execute() return 1 end"
    job = Job("one", source, "execute", b"{}", b"{}", frozenset(), "untrusted")
    assert pool.run(job, lambda *_: b"", 10) == 1
assert not [name for name in sys.modules if name.startswith("lupa")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)
