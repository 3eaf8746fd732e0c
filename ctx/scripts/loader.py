"""Loads the scripts of a configuration, and loads them again when they change.

Whatever is wrong with one script is that script's failure: it is listed with its reason, a call to its name
answers the reason, and the others are served. A name that is taken belongs to whoever had it first: the
built-in tools, the packs, what the configuration names, what lies in its tools folder or in the project's
`.ctx/`, then the user's own scripts, then those of installed registries. A script of the user's or of a
registry gives way to one before it without a word: so one is overridden. A broken edit keeps the last version
that worked.

A call looks at its script's file before it runs (one `stat`), so that it runs what the file says now. The
thread looks for files that come and go, and at scripts that nobody calls.
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
from ctx.tools.agents import Agents
from ctx.tools.toolbox import RESERVED, Toolbox, name_fault

logger = logging.getLogger(__name__)

_LOADED_AT_ONCE = 8  # scripts, where one hung
_PATIENCE_S = 2 * LOAD_S  # for all the others then: a start must not wait for each of hundreds that hang
RETRIES_S = (5.0, 30.0, 120.0)  # after a load that timed out, as on a busy machine; later at each call
POLL_S = 0.5  # how soon a file that came or went counts, and an edit where nobody calls the tool meanwhile


class ScriptStatus(NamedTuple):
    """One script as `ctx tool list` and `ctx doctor` show it.

    `error` is of the newest text, None where that is in force.
    """

    kind: str
    name: str
    where: str
    serving: bool  # some version of it answers
    error: str | None


class Candidate(NamedTuple):
    """A script that there is.

    `rank`: of two of one name the lower counts, and the other is passed over; equal ones are a mistake.
    """

    kind: str  # tool | agent
    script: ScriptFile
    rank: int = 0


USER_RANK = 1
REGISTRY_RANK = 2  # of the first registry; each further one has the next

Ranked = Callable[[], Iterable[tuple[str, ScriptFile, int]]]
"""`ranked()`: (kind, script, rank) of the scripts that registries bring, as they are now."""


class _Loaded:
    def __init__(self, candidate: Candidate) -> None:
        self.kind, self.script, self.rank = candidate
        self.lock = threading.Lock()  # one loads it at a time; other scripts do not wait for that
        self.stamp: tuple[int, ...] | None = None
        self.serving = False
        self.error: str | None = None
        self.timeouts = 0  # of loading this version, one after the other
        self.tried_s = 0.0

    def due(self, called_s: float | None) -> bool:
        """Whether a version whose load timed out is to be loaded again: for a call that came at `called_s`,
        unless another call has tried since, else after a while.
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

    def note_loaded(self) -> None:
        self.error = None
        self.serving = True
        level = logging.DEBUG if self.stamp is None else logging.INFO
        logger.log(level, "%s loaded name=%s file=%s", self.kind, self.script.name, self.script.where)


class Scripts:
    """The scripts of one workspace. `load` once; `watch` follows edits until `close`."""

    def __init__(self, runner: Callable[[], Runner], toolbox: Toolbox, agents: Agents) -> None:
        self._runner = runner
        self._toolbox = toolbox
        self._agents = agents
        self._entries: dict[tuple[str, str], _Loaded] = {}
        # By path: scripts that may not have the name they ask for.
        self._refused: dict[str, ScriptStatus] = {}
        self._record_fault = ""
        self._lock = threading.Lock()  # of what there is; never held while a script runs
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
        """Loads everything once.

        Raises `ConfigError` where there is no `tools_dir`; what is wrong with a script is its own failure.

        `pins` vouches for the scripts in `tools_dir`, `trust` for those of `project`'s `.ctx/` folder. `user`
        is the user's own folder, with `tools` and `agents` in it; `registries` gives what registries bring.
        """
        if tools_dir is not None and not os.path.isdir(tools_dir):
            raise ConfigError(f"[lua] tools_dir: no such folder: {tools_dir}")
        self._named = [  # what the configuration names
            *(Candidate("tool", script) for script in tools),
            *(Candidate("agent", script) for script in agents),
        ]
        # As the file system knows them.
        self._named_files = {os.path.realpath(candidate.script.path) for candidate in self._named}
        self._folder, self._pins, self._project, self._trust = tools_dir, pins, project, trust
        self._user, self._registries = user, registries
        self.refresh()
        self._toolbox.before_use(lambda name: self._look_at("tool", name))
        self._agents.before_use(lambda name: self._look_at("agent", name))

    def watch(self) -> None:
        """Begins to follow edits in the background."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, name="ctx-scripts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stops following. The scripts stay loaded as they are."""
        self._stop.set()
        self._toolbox.before_use(lambda name: None)
        self._agents.before_use(lambda name: None)
        if self._thread is not None:
            self._thread.join(2)

    def refresh(self) -> None:
        """Loads what has changed since.

        Cheap where nothing has: a stat for each script, and a listing of each folder.
        """
        self._drop_gone()
        self._find_new()
        entries = self._all()
        while entries and not self._look(entries.pop(0)):
            pass
        if entries:  # one took all the time it had; that others may do so too shall not add up
            ends_s = time.monotonic() + _PATIENCE_S
            with ThreadPoolExecutor(_LOADED_AT_ONCE, "ctx-load") as pool:
                list(pool.map(lambda entry: self._look_until(entry, ends_s), entries))

    def statuses(self) -> list[ScriptStatus]:
        """Every script, by kind and name, those that could not have their name among them."""
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
                logger.exception("scripts could not be looked at")

    # -- which scripts there are -----------------------------------------------------------------------------

    def _candidates(self) -> Iterator[Candidate]:
        """Every script that there is, in the order in which they have a right to a name."""
        yield from self._named
        # Those of the tools folder, but for those that the configuration names with settings of their own.
        for script in _scripts_of(self._folder, os.path.basename(self._folder or "")):
            if os.path.realpath(script.path) not in self._named_files:
                yield Candidate("tool", script._replace(vouched_by=self._pins))
        yield from self._in_project()
        if self._user is not None:
            yield from _of_user(self._user)
        yield from self._in_registries()

    def _in_registries(self) -> list[Candidate]:
        try:
            candidates = [Candidate(*row) for row in self._registries()]
        except ConfigError as error:  # of the user's record: no reason to serve nothing else
            if error.message != self._record_fault:
                logger.error("scripts of registries not loaded reason=%s", error.message)
            self._record_fault = error.message
            return []
        self._record_fault = ""
        return candidates

    def _in_project(self) -> Iterator[Candidate]:
        for kind, name, path in project_files(self._project):
            file_name = f".ctx/{kind}s/{name}.lua"
            script = ScriptFile(
                name, path, trust="untrusted", shown=file_name, vouched_by=self._trust, named=False
            )
            yield Candidate(kind, script)

    def _find_new(self) -> None:
        """Gives every script that is not registered yet its name, or the reason why it cannot have it, which
        is logged once.
        """
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
        self._note_refused(refused)

    def _note_refused(self, refused: dict[str, ScriptStatus]) -> None:
        with self._lock:
            news = [status for key, status in refused.items() if self._refused.get(key) != status]
            self._refused = refused
        for status in news:
            logger.error("%s not loaded reason=%s", status.kind, status.error)

    def _claim(self, candidate: Candidate) -> str | None:
        """Registers the script under its name; the reason where it cannot have that, None where it gives
        way.
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
        """Where the tool or agent of that name was defined that no script is; None where there is none."""
        entries = self._toolbox.list() if kind == "tool" else self._agents.list()
        return next((entry.origin for entry in entries if entry.name == name), None)

    def _drop_gone(self) -> None:
        for entry in self._all():
            if not entry.script.named and entry.script.stamp() is None:
                with self._lock:
                    del self._entries[entry.kind, entry.script.name]
                self._registry(entry.kind).remove(entry.script.name)
                logger.info("%s gone name=%s", entry.kind, entry.script.name)

    def _registry(self, kind: str) -> Toolbox | Agents:
        return self._toolbox if kind == "tool" else self._agents

    # -- what they say ---------------------------------------------------------------------------------------

    def _look_at(self, kind: str, name: str) -> None:
        entry = self._entries.get((kind, name))
        if entry is not None:
            self._look(entry, time.monotonic())

    def _look_until(self, entry: _Loaded, ends_s: float) -> None:
        """Looks at the script, or puts it off to the next round or its first call where it is too late."""
        if time.monotonic() < ends_s:
            self._look(entry)
        elif entry.stamp is None and entry.error is None:
            entry.error = "not loaded yet: too many scripts before it take all the time there is to load them"
            self._registry(entry.kind).add_failed(entry.script.name, ToolError(entry.error))
            logger.warning("%s put off name=%s reason=%s", entry.kind, entry.script.name, entry.error)

    def _look(self, entry: _Loaded, called_s: float | None = None) -> bool:
        """Loads the script if its file is not what was loaded last, or if that timed out and it is time to
        try again; whether it timed out now. `called_s`: when it was called, None in the background.
        """
        if entry.stamp is not None and entry.script.stamp() == entry.stamp and not entry.due(called_s):
            return False
        with entry.lock:
            stamp = entry.script.stamp()
            if entry.stamp is not None and stamp == entry.stamp and not entry.due(called_s):
                return False  # another caller has just loaded it
            if stamp is None and entry.error is not None:
                return False  # gone, and said so already
            try:
                failure = self._try(entry)
            except Busy:
                return False  # says nothing of the script; the next look tries again
            timed_out = isinstance(failure, ScriptTimeout)
            entry.timeouts = (entry.timeouts if stamp == entry.stamp else 0) + 1 if timed_out else 0
            entry.tried_s = time.monotonic()
            entry.stamp = stamp  # of before it was read: an edit meanwhile is seen by the next look
            return timed_out

    def _try(self, entry: _Loaded) -> CtxError | None:
        """Loads the script, and notes the outcome; why it does not load. Raises `Busy`."""
        try:
            self._load(entry)
        except Busy:
            raise
        except CtxError as error:
            failure = error
        except Exception as error:
            # Whatever a script can declare that our own code is not ready for must not take the others along.
            logger.debug("%s %s", entry.kind, entry.script.name, exc_info=True)
            reason = one_line(f"what it declares makes no sense ({type(error).__name__}: {error})")
            failure = ToolError(reason)
        else:
            entry.note_loaded()
            return None
        self._refuse(entry, failure)
        return failure

    def _load(self, entry: _Loaded) -> None:
        if entry.kind == "tool":
            self._toolbox.add(load_tool(self._runner(), entry.script), replace=entry.serving)
        else:
            self._agents.add(load_agent(self._runner(), entry.script), replace=entry.serving)

    def _refuse(self, entry: _Loaded, error: CtxError) -> None:
        name = entry.script.name
        timed_out = isinstance(error, ScriptTimeout)
        entry.error = f"{error.message} while it was loaded" if timed_out else error.message
        if isinstance(error, NotTrusted) and entry.serving:
            # The user took the trust back, or somebody changed the text: what was loaded stops as well.
            entry.serving = False
            self._registry(entry.kind).remove(name)
        if not entry.serving:
            # A configuration mistake inside the script is the script's failure: the call says so.
            reply = (
                ScriptTimeout(f"{entry.error}; the next call tries again")
                if timed_out
                else ToolError(f"{entry.kind} '{name}' did not load: {entry.error}")
            )
            self._registry(entry.kind).add_failed(name, reply)
        remark = "; the last version that worked stays" if entry.serving else ""
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


def _of_user(folder: str) -> Iterator[Candidate]:
    for inner, kind in FOLDERS.items():
        for script in _scripts_of(os.path.join(folder, inner), f"your own {inner}"):
            yield Candidate(kind, script, USER_RANK)


def _scripts_of(folder: str | None, shown: str) -> list[ScriptFile]:
    """The scripts of a folder by name, that folder called `shown`; none where it is not there (any more)."""
    return [
        ScriptFile(name, path, shown=f"{shown}/{name}.lua", named=False) for name, path in scripts_in(folder)
    ]


def missing_tools(toolbox: Toolbox, agents: Agents) -> list[str]:
    """What agents ask for that nobody serves, one sentence each.

    A tool that failed to load is told of elsewhere.
    """
    names = toolbox.names()
    return [
        f"agent '{agent.name}' names the tool '{one_line(name)}', which there is not; "
        + did_you_mean(name, names)
        for agent in agents.list()
        for name in agent.tools
        if name not in names
    ]


def missing_calls(toolbox: Toolbox, script: ScriptFile) -> list[str]:
    """Tools that a script may call and that nobody serves, one sentence each."""
    names = toolbox.names()
    return [
        f"script '{script.name}' ({script.where}): calls: there is no tool '{one_line(name)}'; "
        f"{did_you_mean(name, names)}"
        for name in script.calls
        if name not in names
    ]


def script_doubts(script: ScriptFile) -> list[str]:
    """Settings of a script that will do nothing, one sentence each."""
    folders = [f"fs: no such folder: {one_line(folder)}" for folder in script.fs if not os.path.isdir(folder)]
    hosts = [
        f"allow_hosts: '{one_line(host)}' is not a host (write it as example.org or example.org:8443)"
        for host in script.allow_hosts
        if "/" in host or "@" in host or not host.strip()
    ]
    return [f"script '{script.name}' ({script.where}): {doubt}" for doubt in (*folders, *hosts)]
