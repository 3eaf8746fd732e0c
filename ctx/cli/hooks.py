"""`ctx connect CLIENT --memory`: hooks of a client that recall when a session starts and capture what was
said.

A hook calls `ctx memory recall` or `ctx memory capture`. `|| true` follows the command: a client takes some
failures of a hook for its answer, and a `ctx` that was uninstalled should not break it.
"""

import os
import re
import shlex
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ctx.cli.clients import expanded
from ctx.cli.configuration import configuration_at
from ctx.cli.connect import BUDGET_TOKENS, Outcome
from ctx.cli.edits import Edit, comment_note, file_at, own_command, parsed, read_text, written
from ctx.cli.entries import Project
from ctx.cli.output import plain
from ctx.errors import BadRequest, ConfigError, Conflict, NotFound
from ctx.models import JSON

_OURS = re.compile(r"\bmemory (?:recall|capture) --hook\b")


@dataclass(frozen=True)
class Hook:
    """When a client calls `ctx memory ACTION`."""

    event: str
    action: str  # recall | capture
    timeout_s: int
    matcher: str | None = None


@dataclass(frozen=True, kw_only=True)
class Hooked:
    """A client with hooks."""

    title: str
    user: str
    project: str
    hooks: tuple[Hook, ...]
    then: str
    source: str  # the documentation page
    checked: str  # when that was read
    grouped: bool = True  # {"matcher", "hooks": [{"type": "command", ...}]}; else the command itself
    header: Mapping[str, JSON] | None = None  # members that the file must have


HOOKED: dict[str, Hooked] = {
    "claude-code": Hooked(
        title="Claude Code",
        user="{CLAUDE_CONFIG_DIR|~/.claude}/settings.json",
        project=".claude/settings.json",
        hooks=(
            Hook("SessionStart", "recall", 10, "startup|resume|clear|compact"),
            Hook("SessionEnd", "capture", 20),  # without a timeout it is stopped after 1.5 s
        ),
        then="A new session has them; /hooks shows them.",
        source="https://code.claude.com/docs/en/hooks",
        checked="2026-11-22",
    ),
    "codex": Hooked(
        title="Codex",
        user="{CODEX_HOME|~/.codex}/hooks.json",
        project=".codex/hooks.json",
        hooks=(
            Hook("SessionStart", "recall", 10, "startup|resume|clear"),
            Hook("Stop", "capture", 20),  # at the end of each turn; nothing is captured twice
        ),
        then="Codex asks once whether to trust them: /hooks. In a project the folder must be trusted.",
        source="https://developers.openai.com/codex/hooks",
        checked="2026-11-22",
    ),
    "cursor": Hooked(
        title="Cursor",
        user="~/.cursor/hooks.json",
        project=".cursor/hooks.json",
        hooks=(Hook("sessionStart", "recall", 10), Hook("sessionEnd", "capture", 20)),
        then="Cursor sees them at once: Settings > Hooks.",
        source="https://cursor.com/docs/agent/hooks",
        checked="2026-11-22",
        grouped=False,
        header={"version": 1},
    ),
}


def connect_memory(project: Project, args: Namespace) -> Outcome:
    """Writes a client's hooks, or removes them. Raises `BadRequest` for a client without hooks."""
    client = HOOKED.get(args.client)
    if client is None:
        raise BadRequest(f"--memory is for clients with hooks: {', '.join(sorted(HOOKED))}")
    if args.http or args.stdio:
        raise BadRequest("--memory uses this machine's store; leave out --http, --url, --stdio and --key-env")
    shared = args.scope == "project"  # memories are the user's, so that is the default
    if project.location is not None and not shared:
        configuration_at(
            project.location
        )  # a hook names it, and a named configuration is used without asking for trust
    template = os.path.join(project.root, client.project) if shared else expanded(client.user)
    path = file_at(template, shared=shared, root=project.root)
    before = read_text(path)
    additions = {hook.event: _entry(client, hook, project, args, shared=shared) for hook in client.hooks}
    snippet = written(
        "json", {**dict(client.header or {}), "hooks": {k: [v] for k, v in additions.items()}}, None
    )
    if args.print:
        return Outcome(args.client, "shown", path, f"# {path}\n{snippet}")
    try:
        document = parsed("json", before)
        present = _remove_ours(document)
    except ValueError as error:
        reason = f"{path} cannot be parsed ({plain(str(error))[:100]}), so it was not changed"
        if args.remove:
            raise ConfigError(f"{reason}; delete the hooks with 'ctx memory' in it") from error
        return Outcome(args.client, "by hand", path, snippet, [f"{reason}. Add this to it:\n"], code=1)
    if args.remove:
        if not present:
            raise NotFound(f"{client.title} has no hooks of ctx in {path}")
        alone = document in ({}, dict(client.header or {}))
        edit = Edit(path, before, None if alone else written("json", document, before), not shared)
        text = f"{client.title}: removed the hooks of ctx from {path}"
    else:
        if sorted(present) == sorted(map(_command_of, additions.values())):
            return Outcome(args.client, "unchanged", path, f"{client.title} already has the hooks: {path}")
        if present and not args.replace:
            raise Conflict(
                f"{client.title} has other hooks of ctx already: {plain(present[0])[:200]}: "
                "--replace changes them"
            )
        document = {**dict(client.header or {}), **document}
        for event, entry in additions.items():
            document.setdefault("hooks", {}).setdefault(event, []).append(entry)
        edit = Edit(path, before, written("json", document, before), not shared)
        backup = "" if before is None else f" (backup: {os.path.basename(path)}.bak)"
        text = "\n".join(
            [
                f"{client.title}: wrote {', '.join(additions)} into {path}{backup}",
                client.then,
                "Captured memories have the tag 'captured'. `ctx memory list --tag captured` shows them.",
            ]
        )
    if args.dry_run:
        return Outcome(args.client, "shown", path, edit.diff())
    edit.apply()
    state = "removed" if args.remove else "written"
    return Outcome(args.client, state, path, text, comment_note("json", path, before))


def _entry(client: Hooked, hook: Hook, project: Project, args: Namespace, *, shared: bool) -> JSON:
    """A hook as the client writes it. A user's own names the project's configuration."""
    words = ["ctx" if shared else own_command(), "memory", hook.action, "--hook", args.client]
    if hook.action == "recall":
        words += ["--budget-tokens", str(args.budget_tokens or BUDGET_TOKENS)]
    if args.bank:
        words += ["--bank", args.bank]
    if project.location is not None and not shared:
        words += ["--config", os.path.abspath(project.location.path)]
    command: dict[str, JSON] = {"command": f"{shlex.join(words)} || true", "timeout": hook.timeout_s}
    if not client.grouped:
        return command
    matcher = {} if hook.matcher is None else {"matcher": hook.matcher}
    return {**matcher, "hooks": [{"type": "command", **command}]}


def _command_of(entry: JSON) -> str:
    """The command of one of our hooks; "" for any other."""
    if not isinstance(entry, dict):
        return ""
    inner = entry.get("hooks")
    row = inner[0] if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict) else entry
    command = row.get("command")
    return command if isinstance(command, str) and _OURS.search(command) else ""


def _remove_ours(document: Any) -> list[str]:
    """Removes our hooks from a parsed file; their commands. Raises `ValueError`."""
    events = document.get("hooks", {})
    if not isinstance(events, dict) or not all(isinstance(rows, list) for rows in events.values()):
        raise ValueError("'hooks' is not a table of lists")
    commands = [command for rows in events.values() for command in map(_command_of, rows) if command]
    for event, rows in list(events.items()):
        events[event] = [row for row in rows if not _command_of(row)]
        if rows and not events[event]:
            del events[event]
    if "hooks" in document and not events:
        del document["hooks"]
    return commands
