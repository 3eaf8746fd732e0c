"""Loads the scripts of a configuration, and loads them again when they change.

Two tools of one name are an error at start that names both files; a script that fails to load never stops the server: its name answers the
error, and the next edit is tried again. A broken edit keeps the last version that worked.

A call looks at its script's file before it runs (one `stat`), so that it runs what the file says now. The thread looks for files that come and
go, and at scripts that nobody calls.
"""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ctx.agents import Agents
from ctx.errors import Busy, ConfigError, CtxError, ScriptTimeout, ToolError
from ctx.extensions.scripts import Runner, ScriptFile, load_agent, load_tool
from ctx.extensions.trust import NotTrusted, TrustFile, project_files
from ctx.tools.base import NAME, RESERVED, Toolbox

logger = logging.getLogger(__name__)

POLL_S = 0.5  # how soon a file that came or went counts, and an edit where nobody calls the tool meanwhile


class ScriptStatus(NamedTuple):
    """One script as `ctx tool list` and `ctx doctor` show it. `error` is of the newest text, None where that is in force."""

    kind: str
    name: str
    where: str
    serving: bool  # some version of it answers
    error: str | None


class _Loaded:
    def __init__(self, kind: str, script: ScriptFile, *, removable: bool = False) -> None:
        self.kind = kind
        self.script = script
        self.removable = removable  # found in a folder: it goes when its file goes
        self.lock = threading.Lock()  # one loads it at a time; other scripts do not wait for that
        self.stamp: tuple[int, ...] | None = None
        self.serving = False
        self.error: str | None = None


class Scripts:
    """The scripts of one workspace. `load` once; `watch` follows edits until `close`."""

    def __init__(self, runner: Callable[[], Runner], toolbox: Toolbox, agents: Agents) -> None:
        self._runner = runner
        self._toolbox = toolbox
        self._agents = agents
        self._entries: dict[tuple[str, str], _Loaded] = {}
        self._named: set[str] = set()  # the files that the configuration names, as the file system knows them
        self._refused: set[str] = set()  # files already complained about
        self._folder: str | None = None
        self._project: str | None = None
        self._trust: TrustFile | None = None
        self._lock = threading.Lock()  # of what there is; never held while a script runs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def load(
        self,
        tools: Sequence[ScriptFile],
        agents: Sequence[ScriptFile],
        *,
        tools_dir: str | None = None,
        project: str | None = None,
        trust: TrustFile | None = None,
    ) -> None:
        """Loads everything once. Raises `ConfigError` for two tools of one name and for a reserved one, and for nothing else.

        The scripts of `project`'s `.ctx/` folder run where `trust` vouches for their text. They are not the operator's, so that a name they
        may not have only costs a line in the log.
        """
        for kind, script in [
            *(("tool", script) for script in tools),
            *(("agent", script) for script in agents),
        ]:
            self._claim(kind, script)
            self._named.add(os.path.realpath(script.path))
        if tools_dir is not None:
            if not os.path.isdir(tools_dir):
                raise ConfigError(f"[lua] tools_dir: no such folder: {tools_dir}")
            self._folder = tools_dir
            for script in self._in_folder():
                self._claim("tool", script, removable=True)
        self._project, self._trust = project, trust
        self._find_new()
        for entry in self._all():
            self._look(entry)
        self._toolbox.before_call(lambda name: self._look_at("tool", name))
        self._agents.before_prompt(lambda name: self._look_at("agent", name))

    def watch(self) -> None:
        """Begins to follow edits in the background."""
        if self._thread is None and (self._entries or self._folder or self._project):
            self._thread = threading.Thread(target=self._follow, name="ctx-scripts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stops following. The scripts stay loaded as they are."""
        self._stop.set()
        self._toolbox.before_call(lambda name: None)
        self._agents.before_prompt(lambda name: None)
        if self._thread is not None:
            self._thread.join(2)

    def refresh(self) -> None:
        """Loads what has changed since. Cheap where nothing has: a stat for each script, and a listing of each folder."""
        self._drop_gone()
        self._find_new()
        for entry in self._all():
            self._look(entry)

    def statuses(self) -> list[ScriptStatus]:
        """Every script, by kind and name."""
        return [ScriptStatus(e.kind, e.script.name, e.script.where, e.serving, e.error) for e in self._all()]

    def _all(self) -> list[_Loaded]:
        with self._lock:
            return [entry for _, entry in sorted(self._entries.items())]

    def _follow(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.refresh()
            except Exception:
                logger.exception("scripts could not be looked at")

    # -- which scripts there are -------------------------------------------------------------------------------------------

    def _claim(self, kind: str, script: ScriptFile, *, removable: bool = False) -> None:
        if not NAME.fullmatch(script.name):
            raise ConfigError(
                f"{kind} '{script.name}' ({script.where}): a name has 1 to 64 of A-Z a-z 0-9 _ -"
            )
        if kind == "tool" and script.name in RESERVED:
            raise ConfigError(f"tool '{script.name}' ({script.where}): the name is reserved; rename the tool")
        with self._lock:
            known = self._entries.get((kind, script.name))
            if known is not None:
                raise ConfigError(
                    f"two {kind}s are called '{script.name}': {known.script.where} and {script.where}; rename one"
                )
            others = self._toolbox.list() if kind == "tool" else self._agents.list()
            taken = next((other.origin for other in others if other.name == script.name), None)
            if taken is not None:
                raise ConfigError(
                    f"two {kind}s are called '{script.name}': {taken} and {script.where}; rename one"
                )
            self._entries[kind, script.name] = _Loaded(kind, script, removable=removable)

    def _in_folder(self) -> list[ScriptFile]:
        """The scripts of the tools folder, but for those that the configuration names with settings of their own."""
        if self._folder is None:
            return []
        try:
            names = sorted(
                name
                for name in os.listdir(self._folder)
                if name.endswith(".lua") and not name.startswith(".")
            )
        except OSError:
            return []  # the folder went: so did its tools
        shown = os.path.basename(self._folder)
        found = [(name, os.path.join(self._folder, name)) for name in names]
        return [
            ScriptFile(name.removesuffix(".lua"), path, shown=f"{shown}/{name}", named=False)
            for name, path in found
            if os.path.realpath(path) not in self._named
        ]

    def _in_project(self) -> list[tuple[str, ScriptFile]]:
        if self._project is None or self._trust is None:
            return []
        return [
            (
                kind,
                ScriptFile(
                    name,
                    path,
                    trust="untrusted",
                    shown=f".ctx/{kind}s/{name}.lua",
                    vouched_by=self._trust,
                    named=False,
                ),
            )
            for kind, name, path in project_files(self._project)
        ]

    def _find_new(self) -> None:
        with self._lock:
            known = {(entry.kind, entry.script.path) for entry in self._entries.values()}
        for kind, script in [*(("tool", script) for script in self._in_folder()), *self._in_project()]:
            if (kind, script.path) in known or script.path in self._refused:
                continue
            try:
                self._claim(kind, script, removable=True)
            except ConfigError as error:
                self._refused.add(script.path)
                logger.error("%s not loaded reason=%s", kind, error.message)

    def _drop_gone(self) -> None:
        for entry in self._all():
            if entry.removable and entry.script.stamp() is None:
                with self._lock:
                    del self._entries[entry.kind, entry.script.name]
                self._registry(entry).remove(entry.script.name)
                logger.info("%s gone name=%s", entry.kind, entry.script.name)

    def _registry(self, entry: _Loaded) -> Toolbox | Agents:
        return self._toolbox if entry.kind == "tool" else self._agents

    # -- what they say -----------------------------------------------------------------------------------------------------

    def _look_at(self, kind: str, name: str) -> None:
        entry = self._entries.get((kind, name))
        if entry is not None:
            self._look(entry)

    def _look(self, entry: _Loaded) -> None:
        """Loads the script if its file is not what was loaded last."""
        if entry.stamp is not None and entry.script.stamp() == entry.stamp:
            return
        with entry.lock:
            stamp = entry.script.stamp()
            if entry.stamp is not None and stamp == entry.stamp:
                return  # another caller has just loaded it
            if stamp is None and entry.error is not None:
                return  # gone, and said so already
            first = entry.stamp is None
            try:
                self._load(entry)
            except Busy:
                return  # says nothing of the script; the next look tries again
            except CtxError as error:
                self._refuse(entry, error)
            else:
                entry.error = None
                entry.serving = True
                logger.log(
                    logging.DEBUG if first else logging.INFO,
                    "%s loaded name=%s file=%s",
                    entry.kind,
                    entry.script.name,
                    entry.script.where,
                )
            entry.stamp = stamp  # of before it was read: an edit meanwhile is seen by the next look

    def _load(self, entry: _Loaded) -> None:
        if entry.kind == "tool":
            self._toolbox.add(load_tool(self._runner(), entry.script), replace=entry.serving)
        else:
            self._agents.add(load_agent(self._runner(), entry.script), replace=entry.serving)

    def _refuse(self, entry: _Loaded, error: CtxError) -> None:
        name = entry.script.name
        entry.error = error.message
        if isinstance(error, NotTrusted) and entry.serving:
            # The user took the trust back, or somebody changed the text: what was loaded stops as well.
            entry.serving = False
            self._registry(entry).remove(name)
        if not entry.serving:
            # A configuration mistake inside the script is the script's failure: the call says so.
            timed_out = isinstance(error, ScriptTimeout)
            shown = error if timed_out else ToolError(f"{entry.kind} '{name}' did not load: {error.message}")
            self._registry(entry).add_failed(name, shown)
        kept = "; the last version that worked stays" if entry.serving else ""
        level = logging.WARNING if isinstance(error, NotTrusted) else logging.ERROR
        logger.log(
            level,
            "%s did not load name=%s file=%s reason=%s%s",
            entry.kind,
            name,
            entry.script.where,
            error.message,
            kept,
        )
