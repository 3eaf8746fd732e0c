"""`ctx connect CLIENT --memory`: a client's own hooks, which recall when a session starts and capture what
was said.

Each row names the page that it was written after and when that was read. A hook calls `ctx memory recall` or
`ctx memory capture` (ctx/cli/sessions.py), which say nothing and change nothing where there is no store.
Behind the
command stands `|| true`: a client takes some failures of a hook for its answer, and a `ctx` that was
uninstalled is none. The rest of the file stays as it is; `--remove` takes exactly the hooks out again.
"""

import json
import os
import re
import shlex
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ctx.cli.common import configuration_at, plain
from ctx.cli.entries import (
    document,
    edited,
    elements_of,
    entries,
    indent_of,
    inserted,
    members_of,
    removed,
)
from ctx.cli.foreign import Change, Outcome, file_at, own_command, read_text
from ctx.errors import BadRequest, ConfigError, Conflict, NotFound
from ctx.project import Location
from ctx.types import JSON

BUDGET_TOKENS = 1000  # of what is recalled at a start: a page, which no window is too small for
_OURS = re.compile(r"\bmemory (?:recall|capture) --hook\b")


class Hook(NamedTuple):
    """When a client calls, and what is called; `matcher` narrows it where the client knows that."""

    event: str
    action: str  # recall | capture
    timeout_s: int
    matcher: str | None = None


class Hooked(NamedTuple):
    """A client with hooks: its files, and the form of an entry. `opening` are members that the file must
    have."""

    title: str
    user: str
    project: str
    hooks: tuple[Hook, ...]
    then: str
    source: str  # the documentation it was written after
    checked: str  # when that was read
    grouped: bool = True  # {"matcher", "hooks": [{"type": "command", ...}]}; else the command itself
    opening: tuple[tuple[str, JSON], ...] = ()


HOOKED: dict[str, Hooked] = {
    "claude-code": Hooked(
        "Claude Code",
        "~/.claude/settings.json",
        ".claude/settings.json",
        (
            Hook("SessionStart", "recall", 10, "startup|resume|clear|compact"),
            # Without a time of its own it is ended after 1.5 s.
            Hook("SessionEnd", "capture", 20),
        ),
        "A new session has them; /hooks shows them.",
        "https://code.claude.com/docs/en/hooks",
        "2026-11-22",
    ),
    "codex": Hooked(
        "Codex",
        "~/.codex/hooks.json",
        ".codex/hooks.json",
        (
            Hook("SessionStart", "recall", 10, "startup|resume|clear"),
            # It calls at the end of a turn; what was captured before is not captured again.
            Hook("Stop", "capture", 20),
        ),
        "Codex asks once whether they are to be trusted: /hooks. A project's count where the project is "
        "trusted.",
        "https://developers.openai.com/codex/hooks",
        "2026-11-22",
    ),
    "cursor": Hooked(
        "Cursor",
        "~/.cursor/hooks.json",
        ".cursor/hooks.json",
        (Hook("sessionStart", "recall", 10), Hook("sessionEnd", "capture", 20)),
        "Cursor sees them at once: Settings > Hooks.",
        "https://cursor.com/docs/agent/hooks",
        "2026-11-22",
        grouped=False,
        opening=(("version", 1),),
    ),
}


def connect_memory(location: Location | None, args: Any) -> Outcome:
    """Writes a client's hooks, or takes them out. Raises `BadRequest` for a client that has none."""
    client = HOOKED.get(args.client)
    if client is None:
        raise BadRequest(f"--memory is for clients with hooks: {', '.join(sorted(HOOKED))}")
    if args.url or args.stdio or args.key_env:
        raise BadRequest(
            "--memory recalls from the store of this machine; leave --url, --stdio and --key-env out"
        )
    template = client.project if args.scope == "project" else client.user
    path = file_at(os.path.expanduser(template), shared=args.scope == "project")
    content = read_text(path)
    return (
        _remove(client, path, content, args) if args.remove else _write(client, path, content, location, args)
    )


def _check_present(client: Hooked, present: list[str], additions: Iterable[JSON]) -> None:
    """Raises `Conflict` where a client has hooks of ctx, and others than these."""
    if present and sorted(present) != sorted(map(_command_of, additions)):
        raise Conflict(
            f"{client.title} has other hooks of ctx already: {plain(present[0])[:200]}: --replace changes "
            "them"
        )


def _write(client: Hooked, path: str, content: str | None, location: Location | None, args: Any) -> Outcome:
    if location is not None and args.scope != "project":
        configuration_at(location)  # a hook names it, and what is named is nobody asked about any more
    additions = {hook.event: _entry(client, hook, args, location) for hook in client.hooks}
    snippet = with_hooks(client, "", additions) or ""
    if args.print:
        return Outcome(args.client, "shown", path, f"# {path}\n{snippet}")
    present = list(_commands(content))
    if not args.replace:
        _check_present(client, present, additions.values())
    without = without_hooks(client, content or "")
    revised = None if without is None else with_hooks(client, without, additions)
    if revised is None:
        reason = f"{path} is not strict JSON (comments?), so it was left alone. Put this into it:"
        return Outcome(args.client, "by hand", path, snippet, preface=reason, code=1)
    if revised == content or (present and not args.replace):
        return Outcome(args.client, "unchanged", path, f"{client.title} remembers already: {path}")
    captured = "What is captured has the tag 'captured': `ctx memory list --tag captured` shows it."
    change = Change(args.client, path, content, revised, args.scope != "project", args.dry_run)
    return change.write(f"{client.title}: wrote {', '.join(additions)} into {path}", [client.then, captured])


def _remove(client: Hooked, path: str, content: str | None, args: Any) -> Outcome:
    """Takes the hooks out; where the `.bak` is what the file was before, that comes back."""
    present = _entries_of(client, content)
    if content is None or not present:
        raise NotFound(f"{client.title} has no hooks of ctx in {path}")
    backup = read_text(f"{path}.bak")
    if backup is not None and with_hooks(client, backup, present) == content:
        revised: str | None = backup
    else:
        revised = without_hooks(client, content)
    if revised is None:
        raise ConfigError(
            f"{path} is not strict JSON, so it was left alone; delete the hooks with 'ctx memory' in it"
        )
    change = Change(args.client, path, content, revised, args.scope != "project", args.dry_run)
    return change.give_back(backup, f"{client.title}: took the hooks of ctx out of {path}")


# -- entries -------------------------------------------------------------------------------------------------


def _words(hook: Hook, args: Any, location: Location | None) -> list[str]:
    """The command that a hook runs."""
    shared = args.scope == "project"
    words = ["ctx" if shared else own_command(), "memory", hook.action, "--hook", args.client]
    if hook.action == "recall":
        words += ["--budget-tokens", str(args.budget_tokens or BUDGET_TOKENS)]
    if args.bank:
        words += ["--bank", args.bank]
    if location is not None and not shared:
        words += ["--config", os.path.abspath(location.path)]
    return words


def _entry(client: Hooked, hook: Hook, args: Any, location: Location | None) -> JSON:
    """A hook as the client writes it. What a project shares works in any checkout; a user's own names its
    project."""
    words = _words(hook, args, location)
    command: dict[str, JSON] = {"command": f"{shlex.join(words)} || true", "timeout": hook.timeout_s}
    if not client.grouped:
        return command
    narrowed = {} if hook.matcher is None else {"matcher": hook.matcher}
    return {**narrowed, "hooks": [{"type": "command", **command}]}


def _command_of(entry: JSON) -> str:
    """The command of an entry of ours; "" of anybody else's."""
    if not isinstance(entry, dict):
        return ""
    inner = entry.get("hooks")
    row = inner[0] if isinstance(inner, list) and len(inner) == 1 and isinstance(inner[0], dict) else entry
    command = row.get("command")
    return command if isinstance(command, str) and _OURS.search(command) else ""


def _events(text: str | None) -> dict[str, JSON]:
    return entries("json", "hooks", text)


def _entries_of(client: Hooked, text: str | None) -> dict[str, JSON]:
    """Our entry of each event, where the file has one."""
    rows = _events(text)
    return {
        event: entry
        for event in (hook.event for hook in client.hooks)
        if isinstance(rows.get(event), list)
        for entry in rows[event]
        if _command_of(entry)
    }


def _commands(text: str | None) -> Iterator[str]:
    for rows in _events(text).values():
        yield from filter(None, map(_command_of, rows if isinstance(rows, list) else ()))


# -- editing -------------------------------------------------------------------------------------------------


def with_hooks(client: Hooked, text: str, additions: dict[str, JSON]) -> str | None:
    """The file with an entry at the end of each event's list; None where it cannot be edited safely."""
    if not text.strip():
        whole = {**dict(client.opening), "hooks": {event: [entry] for event, entry in additions.items()}}
        return json.dumps(whole, indent=2, ensure_ascii=False) + "\n"
    revised: str | None = _opened(client, text)
    for event, entry in additions.items():
        if revised is None:
            return None
        rows = _events(revised).get(event)
        if rows is None:
            revised = edited("json", "hooks", revised, event, [entry])
        elif isinstance(rows, list):
            revised = _appended(revised, event, entry)
        else:
            return None
    return revised


def without_hooks(client: Hooked, text: str) -> str | None:
    """The file without our entries, "" where nothing else was in it; None where it cannot be edited
    safely."""
    revised, ours = text, _entries_of(client, text)
    for event, entry in ours.items():
        rows = _events(revised)[event]
        if len(rows) == 1:
            shortened = removed("json", "hooks", revised, event)
        else:
            shortened = _cut(revised, event, rows.index(entry))
        if shortened is None:
            return None
        revised = shortened
    try:
        emptied = json.loads(revised or "{}") in ({}, dict(client.opening))
    except ValueError:
        return None
    return "" if emptied and ours else revised


def _opened(client: Hooked, text: str) -> str | None:
    """The file with the members that it must have; None where it is not JSON, or no object."""
    for name, value in client.opening:
        present = document("json", text)
        if present is None:
            return None
        if name not in present:
            spans, end = members_of(text, text.index("{"))
            text = inserted(
                text, text.index("{"), end, bool(spans), name, json.dumps(value), indent_of(text), 1
            )
    return text


def _appended(text: str, event: str, entry: JSON) -> str | None:
    spans, end = _elements(text, event)
    step = indent_of(text)
    value = json.dumps(entry, indent=step, ensure_ascii=False).replace("\n", "\n" + step * 3)
    head = text[: spans[-1][1]] + "," if spans else text[:end].rstrip()
    tail = text[end:] if not spans else text[spans[-1][1] :].lstrip()
    revised = f"{head}\n{step * 3}{value}\n{step * 2}{tail}"
    expected = json.loads(text)
    expected["hooks"][event].append(entry)
    return revised if json.loads(revised) == expected else None


def _cut(text: str, event: str, position: int) -> str | None:
    spans, _ = _elements(text, event)
    if position:
        revised = text[: spans[position - 1][1]] + text[spans[position][1] :]
    else:
        revised = text[: spans[0][0]] + text[spans[1][0] :]
    expected = json.loads(text)
    del expected["hooks"][event][position]
    return revised if json.loads(revised) == expected else None


def _elements(text: str, event: str) -> tuple[list[tuple[int, int]], int]:
    """Where each element of an event's list lies, and where its closing bracket is. The text is known to be
    JSON."""
    hooks = members_of(text, text.index("{"))[0]["hooks"]
    return elements_of(text, members_of(text, hooks[0])[0][event][0])
