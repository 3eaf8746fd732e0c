"""Loads the scripts of a configuration, and loads them again when they change.

Two tools of one name are an error at start that names both files; a script that fails to load never stops the server: its name answers the
error, and the next edit is tried again. A broken edit keeps the last version that worked.
"""

import logging
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ctx.agents import Agents
from ctx.errors import ConfigError, CtxError, ScriptTimeout, ToolError
from ctx.extensions.scripts import Runner, ScriptFile, load_agent, load_tool
from ctx.extensions.trust import project_scripts
from ctx.tools.base import NAME, RESERVED, Toolbox
from ctx.types import JSON

logger = logging.getLogger(__name__)

POLL_S = 0.5  # how soon an edit counts where nobody calls the tool meanwhile


class ScriptStatus(NamedTuple):
    """One script as `ctx tool list` and `ctx doctor` show it. `error` is of the newest text, None where that is in force."""

    kind: str
    name: str
    where: str
    serving: bool  # some version of it answers
    error: str | None


class _Loaded:
    def __init__(self, kind: str, script: ScriptFile) -> None:
        self.kind = kind
        self.script = script
        self.stamp: tuple[int, int, int] | None = None
        self.serving = False
        self.error: str | None = None


class Scripts:
    """The scripts of one workspace. `load` once; `watch` follows edits until `close`."""

    def __init__(self, runner: Callable[[], Runner], toolbox: Toolbox, agents: Agents) -> None:
        self._runner = runner
        self._toolbox = toolbox
        self._agents = agents
        self._entries: dict[tuple[str, str], _Loaded] = {}
        self._folder: tuple[str, Mapping[str, JSON]] | None = None
        self._lock = threading.RLock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def load(
        self,
        tools: Sequence[ScriptFile],
        agents: Sequence[ScriptFile],
        *,
        tools_dir: str | None = None,
        project: str | None = None,
        trusted: Mapping[str, str] | None = None,
    ) -> None:
        """Loads everything once. Raises `ConfigError` for two tools of one name and for a reserved one, and for nothing else."""
        wanted = [("tool", script) for script in tools] + [("agent", script) for script in agents]
        if tools_dir is not None:
            if not os.path.isdir(tools_dir):
                raise ConfigError("[lua] tools_dir: no such folder")
            self._folder = (tools_dir, {})
            wanted += [("tool", script) for script in _in_folder(tools_dir)]
        for found in project_scripts(project, trusted or {}) if project else ():
            shown = os.path.join(".ctx", f"{found.kind}s", f"{found.name}.lua")
            script = ScriptFile(found.name, found.path, trust="untrusted", shown=shown)
            if found.trusted:
                wanted.append((found.kind, script))
            else:
                logger.warning("%s is not trusted and does not run; look at it, then `ctx trust`", shown)
        with self._lock:
            for kind, script in wanted:
                self._claim(kind, script)
            for entry in self._entries.values():
                self._reload(entry)

    def watch(self) -> None:
        """Begins to follow edits in the background."""
        if self._entries or self._folder:
            self._thread = threading.Thread(target=self._follow, name="ctx-scripts", daemon=True)
            self._thread.start()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2)

    def refresh(self) -> None:
        """Loads what has changed since. Cheap where nothing has: a stat for each script."""
        with self._lock:
            if self._folder is not None:
                self._follow_folder(*self._folder)
            for entry in list(self._entries.values()):
                if entry.script.stamp() != entry.stamp:
                    self._reload(entry)

    def statuses(self) -> list[ScriptStatus]:
        with self._lock:
            return [
                ScriptStatus(e.kind, e.script.name, e.script.where, e.serving, e.error) for _, e in sorted(self._entries.items())
            ]

    def _follow(self) -> None:
        while not self._stop.wait(POLL_S):
            try:
                self.refresh()
            except Exception:
                logger.exception("scripts could not be looked at")

    def _claim(self, kind: str, script: ScriptFile) -> None:
        if not NAME.fullmatch(script.name):
            raise ConfigError(f"{kind} '{script.name}' ({script.where}): a name has 1 to 64 of A-Z a-z 0-9 _ -")
        if kind == "tool" and script.name in RESERVED:
            raise ConfigError(f"tool '{script.name}' ({script.where}): the name is reserved; rename the tool")
        known = self._entries.get((kind, script.name))
        if known is not None:
            raise ConfigError(f"two {kind}s are called '{script.name}': {known.script.where} and {script.where}; rename one")
        self._entries[kind, script.name] = _Loaded(kind, script)

    def _follow_folder(self, folder: str, config: Mapping[str, JSON]) -> None:
        present = {script.name: script for script in _in_folder(folder)}
        for (kind, name), entry in list(self._entries.items()):
            if (
                kind == "tool"
                and os.path.dirname(entry.script.path) == folder
                and name not in present
                and entry.script.stamp() is None
            ):
                del self._entries[kind, name]
                self._toolbox.remove(name)
                logger.info("tool gone name=%s", name)
        for name, script in present.items():
            if ("tool", name) not in self._entries:
                try:
                    self._claim("tool", script)
                except ConfigError as error:
                    logger.error("tool not loaded reason=%s", error.message)
                    continue
                self._reload(self._entries["tool", name])

    def _reload(self, entry: _Loaded) -> None:
        stamp = entry.script.stamp()
        first = entry.stamp is None and not entry.serving
        entry.stamp = stamp
        try:
            if entry.kind == "tool":
                self._toolbox.add(load_tool(self._runner(), entry.script), replace=entry.serving)
            else:
                self._agents.add(load_agent(self._runner(), entry.script), replace=entry.serving)
        except CtxError as error:
            entry.error = error.message
            if not entry.serving:
                # A configuration mistake inside the script is the script's failure: the call says so.
                shown = (
                    error
                    if isinstance(error, ScriptTimeout)
                    else ToolError(f"{entry.kind} '{entry.script.name}' did not load: {error.message}")
                )
                (self._toolbox if entry.kind == "tool" else self._agents).add_failed(entry.script.name, shown)
            kept = "; the last version that worked stays" if entry.serving else ""
            logger.error(
                "%s did not load name=%s file=%s reason=%s%s",
                entry.kind,
                entry.script.name,
                entry.script.where,
                error.message,
                kept,
            )
            return
        entry.error = None
        entry.serving = True
        logger.log(
            logging.DEBUG if first else logging.INFO,
            "%s loaded name=%s file=%s",
            entry.kind,
            entry.script.name,
            entry.script.where,
        )


def _in_folder(folder: str) -> list[ScriptFile]:
    names = sorted(name for name in os.listdir(folder) if name.endswith(".lua") and not name.startswith("."))
    return [ScriptFile(name.removesuffix(".lua"), os.path.join(folder, name), shown=name) for name in names]
