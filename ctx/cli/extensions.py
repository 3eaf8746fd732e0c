"""`ctx tool`, `ctx connector`, `ctx agent` and `ctx pack`: list, call, write and test extensions."""

import json
import logging
import os
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from types import NoneType

from ctx.cli import Parser, action, actions_of
from ctx.cli.configuration import configuration, file_at, scaffold
from ctx.cli.output import Columns, bars, log_to_stderr, plain, print_json, prose, tell, tell_table
from ctx.config.settings import REGISTRY_PREFIX, SHIPPED_PACKS, Script
from ctx.connectors.base import ScanLog
from ctx.errors import BadRequest, NotFound
from ctx.models import JSON, Caller, as_table
from ctx.scripts.registry import installed_registries
from ctx.scripts.scripts import ScriptFile, load_agent, load_tool
from ctx.scripts.sources import ScriptConnector, script_file
from ctx.text.strings import did_you_mean
from ctx.tools.schema import compile_check
from ctx.tools.toolbox import NAME, NAME_RULE, RESERVED, Agents, Toolbox
from ctx.workspace import Workspace, open_workspace

CALLER = Caller("cli")
_NUMBER = ("integer", "number")
_JSON_TYPES = {
    str: ("string",),
    bool: ("boolean",),
    int: _NUMBER,
    float: _NUMBER,
    list: ("array",),
    dict: ("object",),
    NoneType: ("null",),
}
SHOWN_ITEMS, SHOWN_PROBLEMS = 5, 20
_NEXT = {
    "tool": "It is called '{name}' and not served yet; `ctx tool test {path} query=words` tries it.",
    "connector": "Nothing is indexed from it yet; `ctx connector test {path}` tries it.",
    "agent": "It is not served yet; `ctx agent test {path} topic=words` tries it.",
}


def tool_options(options: Parser) -> None:
    """List, call, write and test tools.

    ctx tool init greet
    ctx tool call search query=release limit=3
    """
    _add_actions("tool", options)


def connector_options(options: Parser) -> None:
    """Write and test connector scripts.

    ctx connector init tickets
    ctx connector test connectors/tickets.lua
    """
    _add_actions("connector", options)


def agent_options(options: Parser) -> None:
    """List, write and test agents.

    ctx agent init reviewer
    ctx agent test reviewer topic=releases
    """
    _add_actions("agent", options)


def pack_options(options: Parser) -> None:
    """List the memory packs: their tools, permissions, addresses and keys.

    ctx pack list
    """
    actions = actions_of(options)
    action(actions, "list", "the packs of this configuration")


def _add_actions(command: str, options: Parser) -> None:
    actions = actions_of(options)
    if command != "connector":
        action(actions, "list", f"the {command}s of this configuration")
    if command == "tool":
        call = action(actions, "call", "call a tool as REST and MCP do")
        call.add_argument("tool", help="the tool's name")
        _values(call, "--param")
    init = action(actions, "init", "write a starter script that runs as it is")
    init.add_argument("name")
    init.add_argument("--path", help=f"where to (default: {command}s/NAME.lua)")
    purposes = {"connector": "scan, print the first items, index nothing", "agent": "resolve an agent"}
    test = action(actions, "test", purposes.get(command, "run a script that need not be in ctx.toml"))
    test.add_argument("script", help="the script's path, or the name that `init` was given")
    _values(test, "--arg" if command == "agent" else "--param")
    test.add_argument("--timeout", type=float, metavar="SECONDS")
    settings = "run it with the settings of this entry of ctx.toml (default: the script's own entry)"
    test.add_argument("-s", "--source", metavar="NAME", help=settings)


def _values(command: Parser, name: str) -> None:
    value = "a value, read as text or JSON according to the schema (repeatable)"
    command.add_argument(name, action="append", default=[], dest="param", metavar="KEY=VALUE", help=value)


def _run(command: str, args: Namespace) -> int:
    # Show the log of the script that is tried. The commands report the scripts that did not load.
    log_to_stderr("warning", "bare", without="ctx.scripts.loader")
    logging.getLogger("ctx.script").setLevel(logging.DEBUG)
    if args.action == "init":
        return _init(command, args)
    return {"tool": _tool, "connector": _connector, "agent": _agent, "pack": _pack}[command](args)


# -- tools ---------------------------------------------------------------------------------------------------


def _tool(args: Namespace) -> int:
    with open_workspace(configuration(args.config, required=args.action != "test")) as workspace:
        if args.action == "test":
            tool = load_tool(workspace.runner(), _script(workspace, args, "tool"))
            arguments = compile_check(tool.parameters)(read_values(args.param, tool.parameters))
            with _progress_shown(tool.name) as caller:
                result = tool.run(arguments, caller)
            return _print_answer(result, args.json)
        workspace.load_extensions()
        if args.action == "call":
            with _with_hint(args.tool, workspace.toolbox):
                values = read_values(args.param, workspace.toolbox.get(args.tool).parameters)
            with _progress_shown(args.tool) as caller:
                result = workspace.toolbox.call(args.tool, values, caller)
            return _print_answer(result, args.json)
        rows = []
        for tool in workspace.toolbox.list():
            fields = ("name", "description", "builtin", "parameters")
            row = {name: getattr(tool, name) for name in fields}
            rows.append({**row, "source": "built in" if tool.builtin else tool.pack or tool.origin})
        return _print_list("tool", rows, workspace, args.json)


def _print_list(kind: str, rows: Sequence[JSON], workspace: Workspace, as_json: bool) -> int:
    """Prints tools or agents, and the scripts of the kind that failed to load."""
    columns: Columns = {
        kind.upper(): "name",
        "FROM": "source",
        "DESCRIPTION": lambda row: " ".join(row["description"].split()),
    }
    failures, notes = [], []
    for row in workspace.scripts.statuses():
        if row.kind == kind and row.error:
            failures.append({"name": row.name, "file": row.where, "error": row.error, "serving": row.serving})
            remark = " (the last working version is used)" if row.serving else ""
            notes.append(f"FAILED {row.name} ({row.where}): {plain(row.error)}{remark}")
    return tell_table(as_json, {f"{kind}s": rows, "failed": failures}, rows, columns, f"No {kind}s.", notes)


@contextmanager
def _progress_shown(name: str) -> Iterator[Caller]:
    """Yields the caller for a tool call. On a terminal, it shows the tool's progress as a bar."""
    with bars() as progress:

        def report(done: float, total: float | None, message: str) -> None:
            assert progress is not None
            progress(f"{name} {message}".strip(), int(done), None if total is None else int(total))

        yield CALLER if progress is None else CALLER._replace(progress=report)


def _print_answer(result: JSON, as_json: bool) -> int:
    if isinstance(result, str) and not as_json:
        print(prose(result))
    else:
        print_json(result)
    return 0


def _script(workspace: Workspace, args: Namespace, kind: str, timeout_s: float = 30.0) -> ScriptFile:
    """The script to test. Its settings are those of the ctx.toml entry that `--source` names, else of the
    entry with the script's path, else the defaults. Raises `BadRequest`.
    """
    path = args.script if os.path.isfile(args.script) else _written(kind, args.script)
    if path is None:
        raise BadRequest(f"no such script: {args.script}; `ctx {kind} init NAME` writes one")
    entries: Sequence[Script] = getattr(workspace.config, f"script_{kind}s")
    if args.source is None:
        entry = next((row for row in entries if os.path.realpath(row.path) == os.path.realpath(path)), None)
    else:
        names = {row.name.removeprefix("script:"): row for row in entries}
        entry = names.get(args.source.removeprefix("script:"))
        if entry is None:
            hint = did_you_mean(args.source, names) if names else "ctx.toml names no script of this kind"
            raise BadRequest(f"--source: no entry called '{args.source}'; {hint}")
    if entry is None:
        name = os.path.splitext(os.path.basename(path))[0]
        script = ScriptFile(name, os.path.abspath(path), timeout_s=timeout_s)
    else:
        script = script_file(entry, workspace.config)
        if not entry.path.startswith(REGISTRY_PREFIX):
            script = script._replace(vouched_by=None)  # the user named it in the command
        if script.calls:
            workspace.load_extensions()  # load the tools that the script may call
        if args.source is not None:
            script = script._replace(path=os.path.abspath(path), shown=path)
    return script if args.timeout is None else script._replace(timeout_s=args.timeout)


# -- connectors and agents -----------------------------------------------------------------------------------


def _connector(args: Namespace) -> int:
    """Scans once and prints the count, the first items and the problems."""
    log, began_s, count = ScanLog(), time.monotonic(), 0
    items: list[dict[str, JSON]] = []
    with open_workspace(configuration(args.config, required=False)) as workspace:
        script = _script(workspace, args, "connector", 300.0)
        script = script._replace(config={**script.config, **read_values(args.param)})
        for count, item in enumerate(ScriptConnector(script, workspace.runner).scan({}, log), 1):
            if count <= SHOWN_ITEMS:
                content = item.read()
                row: dict[str, JSON] = {"source_id": item.source_id, "title": content.title}
                items.append({**row, "characters": len(content.data), "source_url": content.source_url})
    lines = [f"{count:,} items in {time.monotonic() - began_s:.1f} s"]
    for row in items:
        title = plain(row["title"] or "")
        lines.append(f"  {plain(row['source_id'])}  {title}  {row['characters']:,} characters")
    if count > len(items):
        lines.append(f"  ... and {count - len(items):,} more")
    remarks = [
        f"  {label} {plain(problem.source_id)}: {plain(problem.message)}"
        for label, rows in (("skipped", log.problems), ("note:", log.notes))
        for problem in rows[:SHOWN_PROBLEMS]
    ]
    found = {"problems": log.problems, "notes": log.notes}
    reply = {name: [row._asdict() for row in rows] for name, rows in found.items()}
    return tell(args.json, {"items": count, "first": items, **reply}, *lines, notes=remarks)


def _agent(args: Namespace) -> int:
    from_file = args.action == "test" and args.script.endswith(".lua")
    with open_workspace(configuration(args.config, required=not from_file)) as workspace:
        if from_file:
            agent = load_agent(workspace.runner(), _script(workspace, args, "agent"))
            workspace.agents.add(agent, replace=True)
            name = agent.name
        else:
            workspace.load_extensions()
            name = args.script if args.action == "test" else ""
        if args.action == "list":
            fields = ("name", "description", "tools", "source")
            rows = [{name: getattr(row, name) for name in fields} for row in workspace.agents.list()]
            return _print_list("agent", rows, workspace, args.json)
        with _with_hint(name, workspace.agents):
            prompt = workspace.agents.prompt(name, read_values(args.param), CALLER)
    return tell(
        args.json,
        {"system": prompt.system, "tools": list(prompt.tools), "messages": list(prompt.messages)},
        prose(prompt.system),
        f"\ntools: {', '.join(map(plain, prompt.tools)) or 'none'}",
        *(f"{plain(message['role'])}: {prose(message['content'])}" for message in prompt.messages),
    )


def _pack(args: Namespace) -> int:
    config = configuration(args.config)
    off = [name for name in SHIPPED_PACKS if name not in config.packs.enabled]
    with open_workspace(config) as workspace:
        packs = [pack.described() for pack in workspace.packs]
    lines = []
    for pack in packs:
        lines.append(f"{pack['name']}: {plain(' '.join(pack['description'].split()))}")
        for field, value in pack.items():
            if field not in ("name", "description"):
                text = ", ".join(value) if isinstance(value, list) else str(value)
                lines.append(f"  {field:<8} {plain(text) or 'none'}")
    lines += [f'{name}: not enabled; add it: [packs] enabled = ["{name}"]' for name in off]
    return tell(args.json, {"packs": packs, "not_enabled": off}, *lines)


# -- writing scripts -----------------------------------------------------------------------------------------


def _init(kind: str, args: Namespace) -> int:
    if not NAME.fullmatch(args.name):
        raise BadRequest(f"'{args.name}': {NAME_RULE}")
    name = args.name.replace("_", "-")
    if kind == "tool" and name in RESERVED:
        raise BadRequest(f"'{args.name}' is a built-in tool: choose another name")
    path = args.path or os.path.join(f"{kind}s", f"{name}.lua")
    if args.path is None:
        file_at(path, shared=True)
    if os.path.exists(path):
        raise BadRequest(f"{path} is there already; nothing was written")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(scaffold(f"{kind}.lua", name=name, title=name.replace("-", " "), path=path))
    steps = _NEXT[kind].format(name=name, path=path)
    entry = f'In ctx.toml:\n  [{kind}s.script.{name}]\n  path = "{path}"'
    return tell(args.json, {"name": name, "file": path}, f"Wrote {path}.", steps, entry)


def _written(kind: str, name: str) -> str | None:
    """The path of the script that `ctx KIND init NAME` wrote in this folder; None if there is none."""
    path = os.path.join(f"{kind}s", f"{name.replace('_', '-')}.lua")
    return path if NAME.fullmatch(name) and os.path.isfile(path) else None


@contextmanager
def _with_hint(name: str, registry: Toolbox | Agents) -> Iterator[None]:
    """Adds a hint to the error for an unknown tool or agent: how to serve it, or the nearest name."""
    try:
        yield
    except NotFound as error:
        names = [entry.name for entry in registry.list()]
        if name in names:
            raise
        kind = "tool" if isinstance(registry, Toolbox) else "agent"
        hint = did_you_mean(name, names) if names else "`ctx agent init NAME` writes one"
        if path := _written(kind, name):
            entry = f'add [{kind}s.script.{name}] with path = "{path}" to ctx.toml'
            hint = f"{path} exists but is not served: {entry}"
        installed = installed_registries(os.environ)
        for script in [script for installation in installed.registries() for script in installation.scripts]:
            if (script.kind, script.name) == (kind, name) and not installed.trusted(script):
                look = f"review it (`ctx registry info {script.reference}`)"
                hint = f"{script.reference} is not trusted: {look}, then run `ctx trust {script.reference}`"
        raise NotFound(f"{error.message}; {hint}") from error


# -- values --------------------------------------------------------------------------------------------------


def read_values(pairs: Sequence[str], schema: JSON = None) -> dict[str, JSON]:
    """Parses `KEY=VALUE` pairs into arguments. A value is text if the schema says so, else JSON if it is
    valid and has a type that the schema allows, else text. `KEY.INNER=VALUE` sets a field of an object.
    Raises `BadRequest` for anything else.
    """
    values: dict[str, JSON] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"'{pair}' is not KEY=VALUE")
        target, rules = values, _properties(schema)
        outer, dot, inner = name.partition(".")
        while dot and name not in rules and outer in rules:
            below = target.setdefault(outer, {})
            if not isinstance(below, dict):
                raise BadRequest(f"'{outer}' is given twice, as a whole and in parts; give it once")
            target, rules, name = below, _properties(rules[outer]), inner
            outer, dot, inner = name.partition(".")
        target[name] = _read_value(text, _types(rules.get(name)))
    return values


def _properties(schema: JSON) -> dict[str, JSON]:
    return as_table(as_table(schema).get("properties"))


def _read_value(text: str, types: set[str]) -> JSON:
    if types == {"string"}:
        return text
    try:
        value = json.loads(text)
        json.dumps(value, allow_nan=False)  # fails for 1e400, which is read as infinity
    except (ValueError, RecursionError):
        return text
    return value if not types or types & set(_JSON_TYPES[type(value)]) else text


def _types(rule: JSON) -> set[str]:
    """The JSON types that a schema allows, by `type`, `enum` or its alternatives; empty for any type."""
    rule = as_table(rule)
    named = rule.get("type", [])
    types = {named} if isinstance(named, str) else set(named)
    for alternative in (*rule.get("anyOf", ()), *rule.get("oneOf", ())):
        types |= _types(alternative)
    return types or {name for choice in rule.get("enum", ()) for name in _JSON_TYPES[type(choice)]}


run_tool, run_connector, run_agent, run_pack = (
    partial(_run, command) for command in ("tool", "connector", "agent", "pack")
)
