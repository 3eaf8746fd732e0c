"""`ctx tool`, `ctx connector`, `ctx agent`, `ctx pack`."""

import json
import logging
import math
import os
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ctx.cli import scaffolds
from ctx.cli.common import configuration, plain, print_json, prose, table, tell
from ctx.cli.foreign import file_at
from ctx.cli.logs import log_to_stderr
from ctx.cli.options import Parser, action, describe
from ctx.cli.progress import bars
from ctx.config.settings import SHIPPED_PACKS, Script
from ctx.connectors.base import ScanLog
from ctx.errors import BadRequest, ConfigError, NotFound
from ctx.extensions.loader import ScriptStatus
from ctx.extensions.scripts import ScriptConnector, ScriptFile, load_agent, load_tool
from ctx.registries.shelf import shelf_of
from ctx.sources import script_file
from ctx.text import did_you_mean
from ctx.tools.agents import Agents
from ctx.tools.base import NAME, NAME_RULE, RESERVED, Toolbox
from ctx.tools.schema import compile_check
from ctx.types import JSON, Caller
from ctx.workspace import Workspace, open_workspace

SERVED = {
    "tools": """It is called '{name}' and not served yet; `ctx tool test {path} query=words` tries it.
In ctx.toml:
  [tools.script.{name}]
  path = "{path}\"""",
    "connectors": """Nothing is indexed from it yet; `ctx connector test {path}` tries it. In ctx.toml:
  [connectors.script.{name}]
  path = "{path}\"""",
    "agents": """It is not served yet; `ctx agent test {path} topic=words` tries it. In ctx.toml:
  [agents.script.{name}]
  path = "{path}\"""",
}

CALLER = Caller("cli")
SHOWN_ITEMS = 5


def add_options(command: str, options: Parser) -> None:
    declare = {
        "tool": _tool_options,
        "connector": _connector_options,
        "agent": _agent_options,
        "pack": _pack_options,
    }
    declare[command](options)


def run(command: str, args: Namespace) -> int:
    # What a script logs is why one tries it here; what did not load is said by the commands themselves.
    log_to_stderr("warning", "bare", without="ctx.extensions.loader")
    logging.getLogger("ctx.script").setLevel(logging.DEBUG)
    return {"tool": _tool, "connector": _connector, "agent": _agent, "pack": _pack}[command](args)


# -- tools ---------------------------------------------------------------------------------------------------


def _tool_options(options: Parser) -> None:
    describe(options, "List, call, write and test tools.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|call|init|test")
    action(actions, "list", "the tools this configuration serves, and those that failed to load")
    call = action(actions, "call", "call a tool as REST and MCP do")
    call.add_argument("tool", help="the tool's name")
    _values(call, "--param")
    test = action(actions, "test", "run a script that need not be in ctx.toml")
    test.add_argument("script", help="the script's path, or the name that `init` was given")
    _test_options(test)
    _init(actions)


def _tool(args: Namespace) -> int:
    if args.action == "init":
        return _write(scaffolds.TOOL, "tools", args)
    if args.action == "test":
        with open_workspace(configuration(args.config, required=False)) as workspace:
            script = _script(workspace, args, "tool")
            tool = load_tool(workspace.runner(), script)
            arguments = compile_check(tool.parameters)(read_values(args.param, tool.parameters))
            with _watching(tool.name) as caller:
                result = tool.run(arguments, caller)
            return _answer(result, args.json)
    with open_workspace(configuration(args.config)) as workspace:
        workspace.load_extensions()
        if args.action == "call":
            with _mending(args.tool, workspace.toolbox):
                values = read_values(args.param, workspace.toolbox.get(args.tool).parameters)
            with _watching(args.tool) as caller:
                result = workspace.toolbox.call(args.tool, values, caller)
            return _answer(result, args.json)
        return _list_tools(workspace, args.json)


@contextmanager
def _watching(name: str) -> Iterator[Caller]:
    """A caller who sees a tool's reports of progress, where somebody looks."""
    with bars() as progress:

        def tell(done: float, total: float | None, message: str) -> None:
            assert progress is not None
            progress(f"{name} {message}".strip(), int(done), None if total is None else int(total))

        yield CALLER if progress is None else CALLER._replace(progress=tell)


def _list_tools(workspace: Workspace, as_json: bool) -> int:
    tools = workspace.toolbox.list()
    failed = _failed(workspace, "tool")
    fields = ("name", "description", "builtin", "parameters")
    listed = [{name: getattr(tool, name) for name in fields} for tool in tools]
    rows = [
        (tool.name, "built in" if tool.builtin else tool.pack or tool.origin, _line(tool.description))
        for tool in tools
    ]
    return tell(
        as_json,
        {"tools": listed, "failed": _failures_json(failed)},
        table(rows, ("TOOL", "FROM", "DESCRIPTION")),
        notes=_failure_lines(failed),
    )


def _failed(workspace: Workspace, kind: str) -> list[ScriptStatus]:
    return [status for status in workspace.scripts.statuses() if status.kind == kind and status.error]


def _failures_json(failed: list[ScriptStatus]) -> JSON:
    return [{"name": s.name, "file": s.where, "error": s.error, "serving": s.serving} for s in failed]


def _failure_lines(failed: list[ScriptStatus]) -> list[str]:
    remark = " (the last version that worked still answers)"
    return [
        f"FAILED {s.name} ({s.where}): {plain(s.error or '')}{remark if s.serving else ''}" for s in failed
    ]


def _test_options(test: Parser, values: str = "--param") -> None:
    _values(test, values)
    test.add_argument("--timeout", type=float, metavar="SECONDS")
    test.add_argument(
        "--source",
        metavar="NAME",
        help="run it with the settings of this entry of ctx.toml (default: the one that names the script)",
    )


def _path(kind: str, path: str) -> str:
    """Where a script is that is named by its path, or as it is called. Raises `BadRequest`."""
    if not os.path.isfile(path):
        path = _written(kind, path) or path
    if not os.path.isfile(path):
        raise BadRequest(f"no such script: {path}; `ctx {kind} init NAME` writes one to begin with")
    return path


def _script(workspace: Workspace, args: Namespace, kind: str, kind_timeout_s: float = 30.0) -> ScriptFile:
    """The script of a test, with what ctx.toml gives it: so a test runs it as the server would.

    `--source` names an entry of its `kind` (tool, connector, agent), else it is the one that names the
    script. Raises `BadRequest`.
    """
    path = _path(kind, args.script)
    entries: Sequence[Script] = getattr(workspace.config, f"script_{kind}s")
    if args.source is None:
        entry = next((row for row in entries if os.path.realpath(row.path) == os.path.realpath(path)), None)
    else:
        entry = _entry(args.source, entries)
    if entry is None:
        name = os.path.splitext(os.path.basename(path))[0]
        script = ScriptFile(name, os.path.abspath(path), timeout_s=kind_timeout_s)
    else:
        script = _script_of(workspace, entry, path if args.source is not None else None)
    return script if args.timeout is None else script._replace(timeout_s=args.timeout)


def _script_of(workspace: Workspace, entry: Script, path: str | None) -> ScriptFile:
    """The script of an entry, or another with its settings."""
    script = script_file(entry, workspace.config.root)
    if script.calls:
        workspace.load_extensions()  # the tools that it may call
    return script if path is None else script._replace(path=os.path.abspath(path), shown=path)


def _entry(name: str, entries: Sequence[Script]) -> Script:
    """The entry of that name; a connector's is `NAME` or `script:NAME`. Raises `BadRequest`."""
    names = {row.name.removeprefix("script:"): row for row in entries}
    entry = names.get(name.removeprefix("script:"))
    if entry is None:
        hint = did_you_mean(name, names) if names else "ctx.toml names no script of this kind"
        raise BadRequest(f"--source: no entry called '{name}'; {hint}")
    return entry


# -- connectors ----------------------------------------------------------------------------------------------


def _connector_options(options: Parser) -> None:
    describe(options, "Write and test connector scripts.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="init|test")
    test = action(actions, "test", "scan, print the first items, index nothing")
    test.add_argument("script", help="the script's path, or the name that `init` was given")
    _test_options(test)
    _init(actions)


def _connector(args: Namespace) -> int:
    if args.action == "init":
        return _write(scaffolds.CONNECTOR, "connectors", args)
    with open_workspace(configuration(args.config, required=False)) as workspace:
        script = _script(workspace, args, "connector", 300.0)
        script = script._replace(config={**script.config, **read_values(args.param)})
        return _try_connector(ScriptConnector(script, workspace.runner), args.json)


def _try_connector(connector: ScriptConnector, as_json: bool) -> int:
    """Scans once and prints the count, the first items and the problems."""
    log = ScanLog()
    began_s = time.monotonic()
    items: list[dict[str, JSON]] = []
    count = 0
    for count, item in enumerate(connector.scan({}, log), 1):
        if count <= SHOWN_ITEMS:
            content = item.read()
            items.append(
                {
                    "source_id": item.source_id,
                    "title": content.title,
                    "characters": len(content.data),
                    "source_url": content.source_url,
                }
            )
    if as_json:
        problems = [problem._asdict() for problem in log.problems]
        notes = [note._asdict() for note in log.notes]
        print_json({"items": count, "first": items, "problems": problems, "notes": notes})
    else:
        print(f"{count:,} items in {time.monotonic() - began_s:.1f} s")
        _print_items(items, count, log)
    return 0


def _print_items(items: Sequence[dict[str, JSON]], count: int, log: ScanLog) -> None:
    """The first items of a scan, how many more there are, and what it said."""
    for row in items:
        title = plain(row["title"] or "")
        print(f"  {plain(row['source_id'])}  {title}  {row['characters']:,} characters")
    if count > len(items):
        print(f"  ... and {count - len(items):,} more")
    for problem in log.problems[:20]:
        print(f"  skipped {plain(problem.source_id)}: {plain(problem.message)}", file=sys.stderr)
    for note in log.notes[:20]:
        print(f"  note: {plain(note.source_id)}: {plain(note.message)}", file=sys.stderr)


# -- agents --------------------------------------------------------------------------------------------------


def _agent_options(options: Parser) -> None:
    describe(options, "List, write and test agents.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|init|test")
    action(actions, "list", "the agents this configuration serves")
    test = action(actions, "test", "resolve an agent, by name or by its script's path")
    test.add_argument("script", metavar="agent", help="its name, or a script's path")
    _test_options(test, "--arg")
    _init(actions)


def _agent(args: Namespace) -> int:
    if args.action == "init":
        return _write(scaffolds.AGENT, "agents", args)
    from_file = args.action == "test" and args.script.endswith(".lua")
    with open_workspace(configuration(args.config, required=not from_file)) as workspace:
        if args.action == "list":
            workspace.load_extensions()
            return _list_agents(workspace, args.json)
        name = args.script
        if from_file:
            agent = load_agent(workspace.runner(), _script(workspace, args, "agent"))
            workspace.agents.add(agent, replace=True)
            name = agent.name
        else:
            workspace.load_extensions()
        with _mending(name, workspace.agents):
            prompt = workspace.agents.prompt(name, read_values(args.param), CALLER)
    return tell(
        args.json,
        {"system": prompt.system, "tools": list(prompt.tools), "messages": list(prompt.messages)},
        prose(prompt.system),
        f"\ntools: {', '.join(map(plain, prompt.tools)) or 'none'}",
        *(f"{plain(message['role'])}: {prose(message['content'])}" for message in prompt.messages),
    )


def _list_agents(workspace: Workspace, as_json: bool) -> int:
    failed = _failed(workspace, "agent")
    agents = workspace.agents.list()
    listed = [
        {"name": a.name, "description": a.description, "tools": list(a.tools), "source": a.source}
        for a in agents
    ]
    rows = [(a.name, a.source, _line(a.description)) for a in agents]
    return tell(
        as_json,
        {"agents": listed, "failed": _failures_json(failed)},
        table(rows, ("AGENT", "FROM", "DESCRIPTION")) if rows else "No agents.",
        notes=_failure_lines(failed),
    )


# -- packs ---------------------------------------------------------------------------------------------------


def _pack_options(options: Parser) -> None:
    describe(
        options,
        "List the memory packs: their tools, where they are served and who may call them.",
        json=True,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="list")
    action(actions, "list", "the enabled packs, and those that ship with ctx")


def _pack(args: Namespace) -> int:
    config = configuration(args.config)
    off = [name for name in SHIPPED_PACKS if name not in config.packs.enabled]
    with open_workspace(config) as workspace:
        packs = [pack.described() for pack in workspace.packs]
    lines = [line for pack in packs for line in _pack_lines(pack)]
    lines += [f'{name}: not enabled; add it: [packs] enabled = ["{name}"]' for name in off]
    return tell(args.json, {"packs": packs, "not_enabled": off}, *lines)


def _pack_lines(pack: JSON) -> Iterator[str]:
    yield f"{pack['name']}: {plain(_line(pack['description']))}"
    for field, value in pack.items():
        if field not in ("name", "description"):
            text = ", ".join(value) if isinstance(value, list) else str(value)
            yield f"  {field:<8} {plain(text) or 'none'}"


# -- shared --------------------------------------------------------------------------------------------------


def _init(actions: Any) -> None:
    init = action(actions, "init", "write a script to begin with; it runs as generated")
    init.add_argument("name")
    init.add_argument(
        "--path", help="where to (default: tools/NAME.lua, connectors/NAME.lua, agents/NAME.lua)"
    )


@contextmanager
def _mending(name: str, registry: Toolbox | Agents) -> Iterator[None]:
    """Where there is no tool or agent of that name, the error tells the nearest, or those there are."""
    try:
        yield
    except NotFound as error:
        names = [entry.name for entry in registry.list()]
        if name in names:
            raise
        kind = "tool" if isinstance(registry, Toolbox) else "agent"
        mend = (
            _untrusted(kind, name)
            or _unserved(kind, name)
            or (did_you_mean(name, names) if names else "`ctx agent init NAME` writes one")
        )
        raise NotFound(f"{error.message}; {mend}") from error


def _written(kind: str, name: str) -> str | None:
    """The script that `ctx KIND init NAME` wrote in this folder, if it is there."""
    path = os.path.join(f"{kind}s", f"{name.replace('_', '-')}.lua")
    return path if NAME.fullmatch(name) and os.path.isfile(path) else None


def _unserved(kind: str, name: str) -> str | None:
    """What to say of a script that is written and that no configuration names."""
    path = _written(kind, name)
    if path is None:
        return None
    return (
        f'{path} is there and not served: [{kind}s.script.{name}] with path = "{path}" in ctx.toml serves it'
    )


def _untrusted(kind: str, name: str) -> str | None:
    """What to say of a script of an installed registry that has this name and that nobody has trusted."""
    shelf = shelf_of(os.environ)
    try:
        scripts = [script for registry in shelf.registries() for script in registry.scripts]
    except ConfigError:
        return None  # a damaged record is told by whoever needs it
    for script in scripts:
        if (script.kind, script.name) == (kind, name) and not shelf.trusted(script):
            look = f"`ctx registry info {script.reference}`"
            return (
                f"{script.reference} is not trusted: look at it ({look}), then `ctx trust {script.reference}`"
            )
    return None


def _values(command: Parser, name: str) -> None:
    command.add_argument(
        name,
        action="append",
        default=[],
        dest="param",
        metavar="KEY=VALUE",
        help="a value, read as the schema has it: text as it stands, else JSON (may be repeated)",
    )


def read_values(pairs: Sequence[str], schema: JSON = None) -> dict[str, JSON]:
    """`KEY=VALUE` pairs as arguments. What the schema calls a string is text as it stands, `42` and `true`
    too; all else is JSON where it parses, and text where it does not. `KEY.INNER=VALUE` fills an object, and
    `KEY.INNER.FURTHER=VALUE` one in it.

    Raises `BadRequest` for what is no pair.
    """
    values: dict[str, JSON] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"'{pair}' is not KEY=VALUE")
        _put(values, schema, name, text)
    return values


def _put(table: dict[str, JSON], schema: JSON, name: str, text: str) -> None:
    """Puts a value where its name leads: `KEY.INNER.FURTHER` into the tables below. Raises `BadRequest`."""
    rule = _rule(schema, name)
    outer, _, inner = name.partition(".")
    outer_rule = _rule(schema, outer) if inner else None
    if rule is not None or outer_rule is None:
        table[name] = _read_value(text, rule)
        return
    below = table.setdefault(outer, {})
    if not isinstance(below, dict):
        raise BadRequest(f"'{outer}' is given as a whole and in parts; give it once")
    _put(below, outer_rule, inner, text)


def _rule(schema: JSON, name: str) -> JSON:
    """The schema of a property; None where it has none."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    return properties.get(name) if isinstance(properties, dict) else None


def _finite(text: str) -> float:
    """A number that JSON has. Raises `ValueError` for what is beyond it: `1e400`, `NaN`."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number


def _read_value(text: str, rule: JSON) -> JSON:
    types = _types(rule)
    if types == {"string"}:
        return text
    try:
        value = json.loads(text, parse_float=_finite, parse_constant=_finite)
    except (ValueError, RecursionError):
        return text
    scalar = not isinstance(value, dict | list) and value is not None
    return text if "string" in types and scalar and not _fits(value, types) else value


def _types(rule: JSON) -> set[str]:
    """The JSON types that a schema names, by `type`, `enum` or its alternatives; none where it leaves them
    open.
    """
    if not isinstance(rule, dict):
        return set()
    named = rule.get("type", [])
    types = set(named if isinstance(named, list) else [named])
    for alternative in (*rule.get("anyOf", ()), *rule.get("oneOf", ())):
        types |= _types(alternative)
    if not types and rule.get("enum") and all(isinstance(choice, str) for choice in rule["enum"]):
        return {"string"}
    return types


def _fits(value: JSON, types: set[str]) -> bool:
    if isinstance(value, bool):
        return "boolean" in types
    return bool(types & {"number", "integer"}) and isinstance(value, int | float)


def _check_name(name: str, *, tool: bool) -> None:
    """Raises `BadRequest` for what a script cannot be called."""
    if not NAME.fullmatch(name):
        raise BadRequest(f"'{name}': {NAME_RULE}")
    if tool and name.replace("_", "-") in RESERVED:
        raise BadRequest(f"'{name}' is what ctx calls a tool of its own: give yours another name")


def _write(scaffold: str, folder: str, args: Namespace) -> int:
    name: str = args.name
    file_name = name.replace("_", "-")
    path: str = args.path or os.path.join(folder, f"{file_name}.lua")
    _check_name(name, tool=folder == "tools")
    if args.path is None:
        file_at(path, shared=True)
    if os.path.exists(path):
        raise BadRequest(f"{path} is there already; nothing was written")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(scaffold.format(name=file_name, title=name.replace("-", " ").replace("_", " "), path=path))
    served = SERVED[folder].format(name=file_name, path=path)
    return tell(args.json, {"name": file_name, "file": path}, f"Wrote {path}.", served)


def _answer(result: JSON, as_json: bool) -> int:
    if isinstance(result, str) and not as_json:
        print(prose(result))
    else:
        print_json(result)
    return 0


def _line(text: str) -> str:
    return " ".join(text.split())
