"""Load the scripts of a workspace, and reload them when their files change.

A script that does not load does not affect the others: it is listed with the error, and a call returns the
error. If two scripts have the same name, the first in this order is used: built-in tools, packs, the
configuration, its tools folder and the project's `.ctx/`, the user's own scripts, installed registries. A
script of the user or of a registry is overridden silently; other conflicts are errors. If a changed script
does not load, the last version that worked stays in use.

A call checks its script's file first (one `stat`), so it runs the current text. A thread looks for new,
deleted and changed files.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from ctx.config.trust_file import FOLDERS, NotTrusted, TrustFile, Voucher, project_files, scripts_in
from ctx.errors import Busy, ConfigError, CtxError, ScriptTimeout, ToolError
from ctx.scripts.scripts import LOAD_S, Runner, ScriptFile, load_agent, load_tool
from ctx.text.strings import did_you_mean, one_line
from ctx.tools.toolbox import RESERVED, Agents, Toolbox, name_fault

logger = logging.getLogger(__name__)

_PARALLEL_LOADS = 8  # after a script timed out, load this many at a time
_PARALLEL_LOAD_S = 2 * LOAD_S  # for all parallel loads: a start must not wait for hundreds of scripts
# Pauses before a load that timed out is tried again, for example on a busy machine. After these, only calls
# try again.
RETRIES_S = (5.0, 30.0, 120.0)
POLL_S = 0.5  # how often the thread looks for changes


class ScriptStatus(NamedTuple):
    """The state of one script, for `ctx tool list` and `ctx doctor`."""

    kind: str
    name: str
    where: str
    serving: bool  # whether some version is loaded
    error: str | None  # why the newest version did not load


class Candidate(NamedTuple):
    """A script that was found. If two have the same name, the lower rank wins; equal ranks are an error."""

    kind: str  # tool | agent
    script: ScriptFile
    rank: int = 0


USER_RANK = 1
REGISTRY_RANK = 2  # rank of the first registry; the others have the next numbers

Ranked = Callable[[], Iterable[tuple[str, ScriptFile, int]]]
"""Returns (kind, script, rank) for each current script of the registries."""


class _Loaded:
    def __init__(self, candidate: Candidate) -> None:
        self.kind, self.script, self.rank = candidate
        self.lock = threading.Lock()  # held while the script loads
        self.stamp: tuple[int, ...] | None = None
        self.serving = False
        self.error: str | None = None
        self.timeouts = 0  # consecutive loads of this version that timed out
        self.tried_s = 0.0

    def due(self, called_s: float | None) -> bool:
        """Whether to retry a load that timed out. In a call (at time `called_s`): unless another call has
        retried since then. In the background (`called_s` None): after a pause.
        """
        if not self.timeouts:
            return False
        if called_s is not None:
            return not self.serving and self.tried_s < called_s
        return (
            self.timeouts <= len(RETRIES_S)
            and time.monotonic() >= self.tried_s + RETRIES_S[self.timeouts - 1]
        )

    @property
    def status(self) -> ScriptStatus:
        return ScriptStatus(self.kind, self.script.name, self.script.where, self.serving, self.error)


class Scripts:
    """The scripts of one workspace. Call `load` once; `watch` reloads changed scripts until `close`."""

    def __init__(self, runner: Callable[[], Runner], toolbox: Toolbox, agents: Agents) -> None:
        self._runner = runner
        self._toolbox = toolbox
        self._agents = agents
        self._entries: dict[tuple[str, str], _Loaded] = {}
        self._refused: dict[str, ScriptStatus] = {}  # scripts with a name that is invalid or taken
        self._record_fault = ""
        self._lock = threading.Lock()  # protects `_entries` and `_refused`; not held while a script runs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def load(
        self,
        tools: Sequence[ScriptFile],
        agents: Sequence[ScriptFile],
        *,
        tools_dir: str | None,
        pins: Voucher | None,
        project: str,
        trust: TrustFile,
        user: str | None,
        registries: Ranked,
    ) -> None:
        """Load every script. Raises `ConfigError` if `tools_dir` does not exist.

        `pins` checks whether the scripts in `tools_dir` are trusted, `trust` those in the `.ctx/` folder of
        `project`. `user` is the user's own folder, which contains `tools` and `agents`.
        """
        if tools_dir is not None and not os.path.isdir(tools_dir):
            raise ConfigError(f"[lua] tools_dir: no such folder: {tools_dir}")
        self._named = [  # the scripts of the configuration
            *(Candidate("tool", script) for script in tools),
            *(Candidate("agent", script) for script in agents),
        ]
        self._named_files = {os.path.realpath(candidate.script.path) for candidate in self._named}
        self._folder, self._pins, self._project, self._trust = tools_dir, pins, project, trust
        self._user, self._registries = user, registries
        self.refresh()
        self._toolbox.before_use(lambda name: self._reload_for_call("tool", name))
        self._agents.before_use(lambda name: self._reload_for_call("agent", name))

    def watch(self) -> None:
        """Start a background thread that reloads changed scripts."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="ctx-scripts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stop reloading. The scripts stay loaded."""
        self._stop.set()
        self._toolbox.before_use(lambda name: None)
        self._agents.before_use(lambda name: None)
        if self._thread is not None:
            self._thread.join(2)

    def refresh(self) -> None:
        """Load new and changed scripts and drop deleted ones. Without changes this takes one stat for each
        script and folder.
        """
        self._drop_deleted()
        self._find_new()
        entries = self._all()
        while entries and not self._reload(entries.pop(0)):
            pass
        if entries:  # a script timed out: load the others in parallel, because they may time out too
            ends_s = time.monotonic() + _PARALLEL_LOAD_S
            with ThreadPoolExecutor(_PARALLEL_LOADS, "ctx-load") as pool:
                list(pool.map(lambda entry: self._reload_until(entry, ends_s), entries))

    def statuses(self) -> list[ScriptStatus]:
        """The status of every script, sorted by kind and name, including scripts whose name is invalid or
        taken.
        """
        with self._lock:
            refused = list(self._refused.values())
        return sorted([*(entry.status for entry in self._all()), *refused], key=lambda status: status[:3])

    def _all(self) -> list[_Loaded]:
        with self._lock:
            return [entry for _, entry in sorted(self._entries.items())]

    def _follow(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.refresh()
            except Exception:
                logger.exception("looking for changed scripts failed")

    # -- finding scripts -------------------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Candidate]:
        """Every script that is found. The first one with a name gets it."""
        yield from self._named
        for script in _scripts_of(self._folder, os.path.basename(self._folder or "")):
            if os.path.realpath(script.path) not in self._named_files:
                yield Candidate("tool", script._replace(vouched_by=self._pins))
        for kind, name, path in project_files(self._project):
            shown = f".ctx/{kind}s/{name}.lua"
            script = ScriptFile(
                name, path, trust="untrusted", shown=shown, vouched_by=self._trust, named=False
            )
            yield Candidate(kind, script)
        if self._user is not None:
            for inner, kind in FOLDERS.items():
                for script in _scripts_of(os.path.join(self._user, inner), f"your own {inner}"):
                    yield Candidate(kind, script, USER_RANK)
        yield from self._in_registries()

    def _in_registries(self) -> list[Candidate]:
        try:
            candidates = [Candidate(*row) for row in self._registries()]
        except ConfigError as error:  # a damaged record must not stop the other scripts
            if error.message != self._record_fault:
                logger.error("scripts of registries not loaded reason=%s", error.message)
            self._record_fault = error.message
            return []
        self._record_fault = ""
        return candidates

    def _find_new(self) -> None:
        """Register every new script; if its name is invalid or taken, log that once."""
        with self._lock:
            registered = {(entry.kind, entry.script.path) for entry in self._entries.values()}
        refused = {}
        for candidate in self._candidates():
            kind, script = candidate.kind, candidate.script
            if (kind, script.path) in registered:
                continue
            reason = self._claim(candidate)
            if reason is not None:
                status = ScriptStatus(kind, one_line(script.name), one_line(script.where), False, reason)
                refused[f"{kind} {script.name} {script.path}"] = status
        with self._lock:
            new = [status for key, status in refused.items() if self._refused.get(key) != status]
            self._refused = refused
        for status in new:
            logger.error("%s not loaded reason=%s", status.kind, status.error)

    def _claim(self, candidate: Candidate) -> str | None:
        """Register a script, unless a script of lower rank has the name. Returns an error message for an
        invalid name or another conflict.
        """
        kind, script = candidate.kind, candidate.script
        fault = name_fault(kind, script.name, script.where)
        if fault is not None:
            if kind == "tool" and script.name not in RESERVED and script.named:
                self._toolbox.add_failed(script.name, ToolError(fault))
            return fault
        with self._lock:
            holder = self._entries.get((kind, script.name))
            if holder is not None and holder.rank < candidate.rank:
                return None
            overridden = holder is not None and holder.rank > candidate.rank
            if overridden:
                self._registry(kind).remove(script.name)
                holder = None
            owner = holder.script.where if holder is not None else self._origin(kind, script.name)
            if owner is None:
                self._entries[kind, script.name] = _Loaded(candidate)
                return None
        return f"two {kind}s are called '{script.name}': {owner} and {script.where}; rename one"

    def _origin(self, kind: str, name: str) -> str | None:
        """Where the tool or agent with this name is defined; None if there is none."""
        entries = self._toolbox.list() if kind == "tool" else self._agents.list()
        return next((entry.origin for entry in entries if entry.name == name), None)

    def _drop_deleted(self) -> None:
        for entry in self._all():
            if not entry.script.named and entry.script.stamp() is None:
                with self._lock:
                    del self._entries[entry.kind, entry.script.name]
                self._registry(entry.kind).remove(entry.script.name)
                logger.info("%s deleted name=%s", entry.kind, entry.script.name)

    def _registry(self, kind: str) -> Toolbox | Agents:
        return self._toolbox if kind == "tool" else self._agents

    # -- loading ---------------------------------------------------------------------------------------------

    def _reload_for_call(self, kind: str, name: str) -> None:
        entry = self._entries.get((kind, name))
        if entry is not None:
            self._reload(entry, time.monotonic())

    def _reload_until(self, entry: _Loaded, ends_s: float) -> None:
        """Reload a script. After `ends_s`, leave it to the next round or to its first call."""
        if time.monotonic() < ends_s:
            self._reload(entry)
        elif entry.stamp is None and entry.error is None:
            entry.error = "not loaded yet: loading the scripts before it took too long"
            self._registry(entry.kind).add_failed(entry.script.name, ToolError(entry.error))
            logger.warning("%s not loaded name=%s reason=%s", entry.kind, entry.script.name, entry.error)

    def _reload(self, entry: _Loaded, called_s: float | None = None) -> bool:
        """Load a script if its file has changed, or if a retry is due. Returns whether it timed out.

        `called_s` is the time of the call, None in the background.
        """
        if entry.stamp is not None and entry.script.stamp() == entry.stamp and not entry.due(called_s):
            return False
        with entry.lock:
            stamp = entry.script.stamp()
            if entry.stamp is not None and stamp == entry.stamp and not entry.due(called_s):
                return False  # another caller has just loaded it
            if stamp is None and entry.error is not None:
                return False  # the file is gone, which was already reported
            try:
                failure = self._try_load(entry)
            except Busy:
                return False  # not the script's fault; the next round tries again
            timed_out = isinstance(failure, ScriptTimeout)
            entry.timeouts = (entry.timeouts if stamp == entry.stamp else 0) + 1 if timed_out else 0
            entry.tried_s = time.monotonic()
            entry.stamp = stamp  # from before the load, so the next round sees an edit made in the meantime
            return timed_out

    def _try_load(self, entry: _Loaded) -> CtxError | None:
        """Load a script and record the result. Returns the error if it does not load. Raises `Busy`."""
        try:
            if entry.kind == "tool":
                self._toolbox.add(load_tool(self._runner(), entry.script), replace=entry.serving)
            else:
                self._agents.add(load_agent(self._runner(), entry.script), replace=entry.serving)
        except Busy:
            raise
        except CtxError as error:
            failure = error
        except Exception as error:
            # An unexpected declaration in one script must not affect the others.
            logger.debug("%s %s", entry.kind, entry.script.name, exc_info=True)
            reason = one_line(f"its declaration is invalid ({type(error).__name__}: {error})")
            failure = ToolError(reason)
        else:
            entry.error = None
            entry.serving = True
            level = logging.DEBUG if entry.stamp is None else logging.INFO
            logger.log(level, "%s loaded name=%s file=%s", entry.kind, entry.script.name, entry.script.where)
            return None
        self._record_failure(entry, failure)
        return failure

    def _record_failure(self, entry: _Loaded, error: CtxError) -> None:
        name = entry.script.name
        timed_out = isinstance(error, ScriptTimeout)
        entry.error = f"{error.message} while it was loaded" if timed_out else error.message
        if isinstance(error, NotTrusted) and entry.serving:
            # The user revoked the trust, or the text changed: the loaded version must stop too.
            entry.serving = False
            self._registry(entry.kind).remove(name)
        if not entry.serving:
            reply = (
                ScriptTimeout(f"{entry.error}; the next call tries again")
                if timed_out
                else ToolError(f"{entry.kind} '{name}' did not load: {entry.error}")
            )
            self._registry(entry.kind).add_failed(name, reply)
        remark = "; the last version that worked stays in use" if entry.serving else ""
        level = logging.WARNING if isinstance(error, NotTrusted) else logging.ERROR
        logger.log(
            level,
            "%s did not load name=%s file=%s reason=%s%s",
            entry.kind,
            name,
            entry.script.where,
            entry.error,
            remark,
        )


def _scripts_of(folder: str | None, shown: str) -> list[ScriptFile]:
    """The scripts in a folder, by name; empty if the folder does not exist. `shown` is the folder's name in
    messages.
    """
    return [
        ScriptFile(name, path, shown=f"{shown}/{name}.lua", named=False) for name, path in scripts_in(folder)
    ]


def missing_tools(toolbox: Toolbox, agents: Agents) -> list[str]:
    """An error message for each unknown tool in the `tools` of an agent."""
    names = toolbox.names()
    return [
        f"agent '{agent.name}': there is no tool '{one_line(name)}'; {did_you_mean(name, names)}"
        for agent in agents.list()
        for name in agent.tools
        if name not in names
    ]


def missing_calls(toolbox: Toolbox, script: ScriptFile) -> list[str]:
    """An error message for each unknown tool in a script's `calls`."""
    names = toolbox.names()
    return [
        f"script '{script.name}' ({script.where}): calls: there is no tool '{one_line(name)}'; "
        f"{did_you_mean(name, names)}"
        for name in script.calls
        if name not in names
    ]


def script_doubts(script: ScriptFile) -> list[str]:
    """A warning for each setting of a script that has no effect."""
    folders = [f"fs: no such folder: {one_line(folder)}" for folder in script.fs if not os.path.isdir(folder)]
    hosts = [
        f"allow_hosts: '{one_line(host)}' is not a host (write it as example.org or example.org:8443)"
        for host in script.allow_hosts
        if "/" in host or "@" in host or not host.strip()
    ]
    return [f"script '{script.name}' ({script.where}): {doubt}" for doubt in (*folders, *hosts)]
