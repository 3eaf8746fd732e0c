"""Load the scripts of a workspace, and reload them when their files change.

A script that does not load does not affect other scripts: it is listed with the error, and a call of it
returns the error. If two scripts have the same name, the first in this order is used: built-in tools, memory
packs, scripts that the configuration names, scripts in its tools folder and in the project's `.ctx/`, the
user's own scripts, installed registries. A script of the user or of a registry is overridden silently; other
conflicts are errors. If a changed script does not load, the last version that worked stays in use.

A call checks its script's file first (one `stat`), so it runs the current text. A thread looks for new,
deleted and changed files.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ctx.config import Config
from ctx.config.find import user_folder
from ctx.config.trust import (
    FOLDERS,
    NotTrusted,
    TrustFile,
    pins_of,
    project_files,
    scripts_in,
    trust_path,
)
from ctx.errors import Busy, ConfigError, CtxError, ScriptTimeout, ToolError
from ctx.scripts.registry import installed_registries
from ctx.scripts.scripts import Runner, ScriptFile, load_agent, load_tool
from ctx.scripts.sources import script_file
from ctx.text.strings import one_line
from ctx.tools.toolbox import RESERVED, Agents, Toolbox, name_fault

logger = logging.getLogger(__name__)

# Pauses before a load that timed out, for example on a busy machine, is tried again. After the last pause,
# only a call of the script tries again.
RETRIES_S = (5.0, 30.0, 120.0)
POLL_S = 0.5  # how often the thread looks for changes


class ScriptStatus(NamedTuple):
    """The state of one script, for `ctx tool list` and `ctx doctor`."""

    kind: str
    name: str
    where: str
    serving: bool  # whether some version is loaded
    error: str | None  # why the newest version did not load


USER_RANK = 1
REGISTRY_RANK = 2  # the rank of the first registry's scripts; the next registry has the next number

Candidate = tuple[str, ScriptFile, int]
"""(kind, script, rank) of a script that was found; the kind is tool or agent. If two scripts have the same
name, the one with the lower rank is used; if their ranks are equal, that is an error.
"""


@dataclass
class _Loaded:
    kind: str
    script: ScriptFile
    rank: int
    lock: threading.Lock = field(default_factory=threading.Lock)  # held while the script loads
    stamp: tuple[int, ...] | None = None
    serving: bool = False
    error: str | None = None
    timeouts: int = 0  # consecutive loads of this version that timed out
    tried_s: float = 0.0

    def due(self, called_s: float | None) -> bool:
        """Whether to retry a load that timed out. In a call, which began at `called_s`: unless another call
        has retried since then. In the background, where `called_s` is None: after a pause.
        """
        if not self.timeouts:
            return False
        if called_s is not None:
            return not self.serving and self.tried_s < called_s
        return (
            self.timeouts <= len(RETRIES_S)
            and time.monotonic() >= self.tried_s + RETRIES_S[self.timeouts - 1]
        )

    def changed(self, called_s: float | None) -> bool:
        """Whether to load the script: its file has changed, or a retry is due."""
        stamp = self.script.stamp()
        if stamp is None and self.error is not None:
            return False  # the file is gone; this was already reported
        return self.stamp is None or stamp != self.stamp or self.due(called_s)

    @property
    def status(self) -> ScriptStatus:
        return ScriptStatus(self.kind, self.script.name, self.script.where, self.serving, self.error)


class Scripts:
    """The scripts of one workspace. Call `load` once; `watch` reloads changed scripts until `close`."""

    def __init__(
        self,
        runner: Callable[[], Runner],
        toolbox: Toolbox,
        agents: Agents,
        candidates: Callable[[], Iterable[Candidate]],
    ) -> None:
        """`candidates` returns the scripts that exist now. Of two with the same name, the first gets the
        name.
        """
        self._candidates = candidates
        self._runner = runner
        self._toolbox = toolbox
        self._agents = agents
        self._entries: dict[tuple[str, str], _Loaded] = {}
        # Scripts that were not loaded, because their name is invalid or taken.
        self._refused: list[ScriptStatus] = []
        self._record_fault = ""
        self._lock = threading.Lock()  # protects `_entries`; not held while a script runs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def load(self) -> None:
        """Load every script."""
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
        for entry in self._all():
            self._reload(entry)

    def statuses(self) -> list[ScriptStatus]:
        """The status of every script, sorted by kind and name, including scripts whose name is invalid or
        taken.
        """
        statuses = [*(entry.status for entry in self._all()), *self._refused]
        return sorted(statuses, key=lambda status: status[:3])

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

    def _find_new(self) -> None:
        """Register every new script; if its name is invalid or taken, log that once."""
        with self._lock:
            registered = {(entry.kind, entry.script.path) for entry in self._entries.values()}
        refused = []
        try:
            for kind, script, rank in self._candidates():
                if (kind, script.path) in registered:
                    continue
                reason = self._claim(kind, script, rank)
                if reason is not None:
                    name, where = one_line(script.name), one_line(script.where)
                    refused.append(ScriptStatus(kind, name, where, False, reason))
        # The record of the registries is damaged; their scripts come last, so the others are loaded.
        except ConfigError as error:
            if error.message != self._record_fault:
                logger.error("scripts of registries not loaded reason=%s", error.message)
            self._record_fault = error.message
        for status in refused:
            if status not in self._refused:
                logger.error("%s not loaded reason=%s", status.kind, status.error)
        self._refused = refused

    def _claim(self, kind: str, script: ScriptFile, rank: int) -> str | None:
        """Register a script, unless a script of lower rank has the name. Returns an error message for an
        invalid name or another conflict.
        """
        fault = name_fault(kind, script.name, script.where)
        if fault is not None:
            if kind == "tool" and script.name not in RESERVED and script.named:
                self._toolbox.add_failed(script.name, ToolError(fault))
            return fault
        with self._lock:
            holder = self._entries.get((kind, script.name))
            if holder is not None and holder.rank < rank:
                return None
            if holder is not None and holder.rank > rank:
                self._registry(kind).remove(script.name)
                holder = None
            owner = holder.script.where if holder is not None else self._origin(kind, script.name)
            if owner is None:
                self._entries[kind, script.name] = _Loaded(kind, script, rank)
                return None
        return f"two {kind}s are called '{script.name}': {owner} and {script.where}; rename one"

    def _origin(self, kind: str, name: str) -> str | None:
        """Where the tool or agent with this name is defined, for messages; None if there is none."""
        return next((entry.origin for entry in self._registry(kind).list() if entry.name == name), None)

    def _drop_deleted(self) -> None:
        for entry in self._all():
            if not entry.script.named and not os.path.exists(entry.script.path):
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

    def _reload(self, entry: _Loaded, called_s: float | None = None) -> None:
        """Load a script if its file has changed, or if a retry is due. `called_s` is the time of the call,
        None in the background.
        """
        if not entry.changed(called_s):
            return
        with entry.lock:
            stamp = entry.script.stamp()
            if not entry.changed(called_s):  # another thread has just loaded the script
                return
            failure: CtxError | None = None
            try:
                if entry.kind == "tool":
                    self._toolbox.add(load_tool(self._runner(), entry.script), replace=entry.serving)
                else:
                    self._agents.add(load_agent(self._runner(), entry.script), replace=entry.serving)
            except Busy:
                return  # the sandbox is busy; the next round tries again
            except CtxError as error:
                failure = error
            except Exception as error:
                # An unexpected declaration in one script must not affect the others.
                logger.debug("%s %s", entry.kind, entry.script.name, exc_info=True)
                reason = one_line(f"its declaration is invalid ({type(error).__name__}: {error})")
                failure = ToolError(reason)
            if failure is not None:
                self._record_failure(entry, failure)
            else:
                entry.error, entry.serving = None, True
                level = logging.DEBUG if entry.stamp is None else logging.INFO
                where = entry.script.where
                logger.log(level, "%s loaded name=%s file=%s", entry.kind, entry.script.name, where)
            timed_out = isinstance(failure, ScriptTimeout)
            entry.timeouts = (entry.timeouts if stamp == entry.stamp else 0) + 1 if timed_out else 0
            entry.tried_s = time.monotonic()
            # Taken before the load, so that the next round sees an edit made during the load.
            entry.stamp = stamp

    def _record_failure(self, entry: _Loaded, error: CtxError) -> None:
        kind, name = entry.kind, entry.script.name
        timed_out, distrusted = isinstance(error, ScriptTimeout), isinstance(error, NotTrusted)
        entry.error = f"{error.message} while it was loaded" if timed_out else error.message
        if distrusted and entry.serving:
            # The user revoked the trust, or the text changed: the loaded version must stop too.
            entry.serving = False
            self._registry(kind).remove(name)
        remark = "; the last version that worked stays in use" if entry.serving else ""
        if not entry.serving:
            later = (
                ScriptTimeout(f"{entry.error}; the next call tries again")
                if timed_out
                else ToolError(f"{kind} '{name}' did not load: {entry.error}")
            )
            self._registry(kind).add_failed(name, later)
        level = logging.WARNING if distrusted else logging.ERROR
        message = "%s did not load name=%s file=%s reason=%s%s"
        logger.log(level, message, kind, name, entry.script.where, entry.error, remark)


def candidates_of(config: Config, environ: Mapping[str, str]) -> Callable[[], Iterator[Candidate]]:
    """Returns a function that yields the scripts of a configuration, its project, the user and registries.
    Raises `ConfigError` if `tools_dir` does not exist.
    """
    folder = config.lua.tools_dir
    if folder is not None and not os.path.isdir(folder):
        raise ConfigError(f"[lua] tools_dir: no such folder: {folder}")
    named: list[Candidate] = [
        *(("tool", script_file(script, config), 0) for script in config.script_tools),
        *(("agent", script_file(script, config), 0) for script in config.script_agents),
    ]
    named_files = {os.path.realpath(script.path) for _, script, _ in named}
    pins, trust, user = pins_of(config, environ), TrustFile(trust_path(environ)), user_folder(environ)
    registries = installed_registries(environ, trust)

    def candidates() -> Iterator[Candidate]:
        yield from named
        for script in _scripts_of(folder, os.path.basename(folder or "")):
            if os.path.realpath(script.path) not in named_files:
                yield "tool", script._replace(vouched_by=pins), 0
        for kind, name, file in project_files(config.root):
            script = ScriptFile(name, file, trust="untrusted", shown=f".ctx/{kind}s/{name}.lua", named=False)
            yield kind, script._replace(vouched_by=trust), 0
        for inner, kind in FOLDERS.items():
            path = None if user is None else os.path.join(user, inner)
            for script in _scripts_of(path, f"your own {inner}"):
                yield kind, script, USER_RANK
        yield from registries.served(REGISTRY_RANK)

    return candidates


def _scripts_of(folder: str | None, shown: str) -> list[ScriptFile]:
    """The scripts in a folder, by name; empty if the folder does not exist. `shown` is the folder's name in
    messages.
    """
    return [
        ScriptFile(name, path, shown=f"{shown}/{name}.lua", named=False) for name, path in scripts_in(folder)
    ]
