"""`ctx tool`, `ctx connector`, `ctx agent`, `ctx trust`, `ctx pack`."""

import argparse
import json
import logging
import os
import sys
import time

from ctx.cli import scaffolds
from ctx.cli.common import action, configuration, parser, plain, print_json, table
from ctx.connectors.base import ScanLog
from ctx.errors import BadRequest
from ctx.extensions.loader import ScriptStatus
from ctx.extensions.scripts import ScriptConnector, ScriptFile, load_agent, load_tool
from ctx.extensions.trust import TrustFile, project_scripts, trust_path
from ctx.packs.settings import SHIPPED
from ctx.tools.base import NAME
from ctx.tools.schema import compile_check
from ctx.types import JSON, Caller
from ctx.workspace import Workspace, open_workspace, script_file

CALLER = Caller("cli")
SHOWN_ITEMS = 5


def run(command: str, argv: list[str]) -> int:
    # What a script logs is why one tries it here; what did not load is said by the commands themselves.
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr, format="%(message)s")
    logging.getLogger("ctx.script").setLevel(logging.DEBUG)
    logging.getLogger("ctx.extensions.loader").setLevel(logging.CRITICAL)
    return {"tool": _tool, "connector": _connector, "agent": _agent, "trust": _trust, "pack": _pack}[command](
        argv
    )


# ---- tools -----------------------------------------------------------------------------------------------------------


def _tool(argv: list[str]) -> int:
    options = parser("tool", "List, call, write and test tools.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|call|init|test")
    action(actions, "list", "the tools this configuration serves, and those that failed to load")
    for name, purpose, what in (
        ("call", "call a tool as REST and MCP do", "the tool's name"),
        ("test", "run a script that need not be in ctx.toml", "the script's path"),
    ):
        made = action(actions, name, purpose)
        made.add_argument("what", help=what)
        _values(made, "--param")
        if name == "test":
            made.add_argument("--timeout", type=float, metavar="SECONDS")
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.TOOL, "tools", args.name, args.path)
    if args.action == "test":
        with open_workspace(configuration(args.config, required=False)) as workspace:
            script = _script(workspace, args.what, args.timeout)
            tool = load_tool(workspace.runner(), script)
            return _answer(
                tool.run(compile_check(tool.parameters)(_read_values(args.param)), CALLER), args.json
            )
    with open_workspace(configuration(args.config)) as workspace:
        _ = workspace.scripts  # loads them
        if args.action == "call":
            return _answer(workspace.toolbox.call(args.what, _read_values(args.param), CALLER), args.json)
        tools = workspace.toolbox.list()
        failed = _failed(workspace, "tool")
        if args.json:
            listed = [
                {
                    "name": t.name,
                    "description": t.description,
                    "builtin": t.builtin,
                    "parameters": t.parameters,
                }
                for t in tools
            ]
            print_json({"tools": listed, "failed": _failures_json(failed)})
            return 0
        rows = [
            (t.name, "built in" if t.builtin else t.pack or t.origin, _line(t.description)) for t in tools
        ]
        print(table(rows, ("TOOL", "FROM", "DESCRIPTION")))
        _say_failures(failed)
        return 0


def _failed(workspace: Workspace, kind: str) -> list[ScriptStatus]:
    return [status for status in workspace.scripts.statuses() if status.kind == kind and status.error]


def _failures_json(failed: list[ScriptStatus]) -> JSON:
    return [{"name": s.name, "file": s.where, "error": s.error, "serving": s.serving} for s in failed]


def _say_failures(failed: list[ScriptStatus]) -> None:
    for status in failed:
        kept = " (the last version that worked still answers)" if status.serving else ""
        print(f"FAILED {status.name} ({status.where}): {plain(status.error or '')}{kept}", file=sys.stderr)


def _script(
    workspace: Workspace, path: str, timeout_s: float | None, kind_timeout_s: float = 30.0
) -> ScriptFile:
    """A script by its path, with what ctx.toml gives it where it is named there: so a test runs it as the server would."""
    if not os.path.isfile(path):
        raise BadRequest(f"no such script: {path}")
    config = workspace.config
    for configured in (*config.script_tools, *config.script_agents, *config.script_connectors):
        if os.path.realpath(configured.path) == os.path.realpath(path):
            script = script_file(configured, config.root)
            return script if timeout_s is None else script._replace(timeout_s=timeout_s)
    name = os.path.splitext(os.path.basename(path))[0]
    return ScriptFile(
        name, os.path.abspath(path), timeout_s=kind_timeout_s if timeout_s is None else timeout_s
    )


# ---- connectors ------------------------------------------------------------------------------------------------------


def _connector(argv: list[str]) -> int:
    options = parser("connector", "Write and test connector scripts.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="init|test")
    test = action(actions, "test", "scan, print the first items, index nothing")
    test.add_argument("what", help="the script's path")
    _values(test, "--param")
    test.add_argument("--timeout", type=float, metavar="SECONDS")
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.CONNECTOR, "connectors", args.name, args.path)
    with open_workspace(configuration(args.config, required=False)) as workspace:
        script = _script(workspace, args.what, args.timeout, 300.0)
        script = script._replace(config={**script.config, **_read_values(args.param)})
        log = ScanLog()
        began_s = time.monotonic()
        items: list[dict[str, JSON]] = []
        count = 0
        for item in ScriptConnector(script, workspace.runner).scan({}, log):
            count += 1
            if len(items) < SHOWN_ITEMS:
                content = item.read()
                items.append(
                    {
                        "source_id": item.source_id,
                        "title": content.title,
                        "characters": len(content.data),
                        "source_url": content.source_url,
                    }
                )
    if args.json:
        print_json(
            {"items": count, "first": items, "problems": [problem._asdict() for problem in log.problems]}
        )
    else:
        print(f"{count:,} items in {time.monotonic() - began_s:.1f} s")
        for shown in items:
            print(
                f"  {plain(shown['source_id'])}  {plain(shown['title'] or '')}  {shown['characters']:,} characters"
            )
        if count > len(items):
            print(f"  ... and {count - len(items):,} more")
        for problem in log.problems[:20]:
            print(f"  skipped {plain(problem.source_id)}: {plain(problem.message)}", file=sys.stderr)
    return 0


# ---- agents ----------------------------------------------------------------------------------------------------------


def _agent(argv: list[str]) -> int:
    options = parser("agent", "List, write and test agents.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|init|test")
    action(actions, "list", "the agents this configuration serves")
    test = action(actions, "test", "resolve an agent, by name or by its script's path")
    test.add_argument("what", help="its name, or a script's path")
    _values(test, "--arg")
    test.add_argument("--timeout", type=float, metavar="SECONDS")
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.AGENT, "agents", args.name, args.path)
    with open_workspace(configuration(args.config, required=False)) as workspace:
        if args.action == "list":
            return _list_agents(workspace, args.json)
        if args.what.endswith(".lua"):
            agent = load_agent(workspace.runner(), _script(workspace, args.what, args.timeout))
            workspace.agents.add(agent, replace=True)
            args.what = agent.name
        else:
            _ = workspace.scripts  # loads those that ctx.toml names
        prompt = workspace.agents.prompt(args.what, _read_values(args.arg), CALLER)
    if args.json:
        print_json({"system": prompt.system, "tools": list(prompt.tools), "messages": list(prompt.messages)})
    else:
        print(plain(prompt.system))
        print(f"\ntools: {', '.join(prompt.tools) or 'none'}")
        for message in prompt.messages:
            print(f"{message['role']}: {plain(message['content'])}")
    return 0


def _list_agents(workspace: Workspace, as_json: bool) -> int:
    failed = _failed(workspace, "agent")
    agents = workspace.agents.list()
    if as_json:
        listed = [
            {"name": a.name, "description": a.description, "tools": list(a.tools), "source": a.source}
            for a in agents
        ]
        print_json({"agents": listed, "failed": _failures_json(failed)})
        return 0
    rows = [(a.name, a.source, _line(a.description)) for a in agents]
    print(table(rows, ("AGENT", "FROM", "DESCRIPTION")) if rows else "No agents.")
    _say_failures(failed)
    return 0


# ---- trust and packs -------------------------------------------------------------------------------------------------


def _trust(argv: list[str]) -> int:
    options = parser(
        "trust",
        "Let the scripts of this project's .ctx folder run. Look at them first: each text is trusted by its hash.",
        json=True,
    )
    options.add_argument(
        "scripts", nargs="*", metavar="NAME", help="only these; all of the project's when absent"
    )
    options.add_argument("--list", action="store_true", help="only show what is trusted")
    options.add_argument("--revoke", action="store_true", help="trust them no longer")
    args = options.parse_args(argv)
    root = configuration(args.config, required=False).root
    file = TrustFile(trust_path(os.environ))
    found = [
        script
        for script in project_scripts(root, file.digests())
        if not args.scripts or script.name in args.scripts
    ]
    missing = set(args.scripts) - {script.name for script in found}
    if missing:
        raise BadRequest(f"no script called {', '.join(sorted(missing))} in .ctx/tools or .ctx/agents")
    if not args.list:
        file.record({script.path: None if args.revoke else script.digest for script in found})
        found = [script._replace(trusted=not args.revoke) for script in found]
    if args.json:
        print_json(
            {
                "scripts": [
                    {"kind": s.kind, "name": s.name, "sha256": s.digest, "trusted": s.trusted} for s in found
                ]
            }
        )
    elif not found:
        print("This project's .ctx folder holds no scripts.")
    else:
        print(
            table(
                [(s.kind, s.name, "trusted" if s.trusted else "NOT trusted", s.digest[:16]) for s in found],
                ("KIND", "NAME", "STATE", "SHA-256"),
            )
        )
    return 0


def _pack(argv: list[str]) -> int:
    options = parser(
        "pack",
        "List the memory packs: their tools, what they may do, where they are served and who may call them.",
        json=True,
    )
    actions = options.add_subparsers(dest="action", required=True, metavar="list")
    action(actions, "list", "the enabled packs, and those that ship with ctx")
    args = options.parse_args(argv)
    config = configuration(args.config, required=False)
    off = [name for name in SHIPPED if name not in config.packs.enabled]
    with open_workspace(config) as workspace:
        packs = [pack.described() for pack in workspace.packs]
    if args.json:
        print_json({"packs": packs, "not_enabled": off})
        return 0
    for pack in packs:
        print(f"{pack['name']}: {_line(pack['description'])}")
        rows = [
            (what, ", ".join(pack[what]) if isinstance(pack[what], list) else str(pack[what]))
            for what in pack
            if what not in _HEAD
        ]
        print("\n".join(f"  {what:<8} {plain(said) or 'none'}" for what, said in rows))
    for name in off:
        print(f'{name}: not enabled; add it: [packs] enabled = ["{name}"]')
    return 0


_HEAD = ("name", "description")


# ---- shared ----------------------------------------------------------------------------------------------------------


def _init(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    made = actions.add_parser("init", help="write a script to begin with; it runs as generated")
    made.add_argument("name")
    made.add_argument(
        "--path", help="where to (default: tools/NAME.lua, connectors/NAME.lua, agents/NAME.lua)"
    )


def _values(made: argparse.ArgumentParser, name: str) -> None:
    made.add_argument(
        name,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a value; JSON where it is JSON, else text (may be repeated)",
    )


def _read_values(given: list[str]) -> dict[str, JSON]:
    values: dict[str, JSON] = {}
    for pair in given:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise BadRequest(f"'{pair}' is not KEY=VALUE")
        try:
            values[name] = json.loads(text)
        except ValueError:
            values[name] = text
    return values


def _write(scaffold: str, folder: str, name: str, path: str | None) -> int:
    file_name = name.replace("_", "-")
    path = path or os.path.join(folder, f"{file_name}.lua")
    if not NAME.fullmatch(name):
        raise BadRequest("a name has 1 to 64 of A-Z a-z 0-9 _ -")
    if os.path.exists(path):
        raise BadRequest(f"{path} is there already; nothing was written")
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "x", encoding="utf-8") as file:
        file.write(scaffold.format(name=file_name, title=name.replace("-", " ").replace("_", " "), path=path))
    print(f"Wrote {path}.")
    return 0


def _answer(result: JSON, as_json: bool) -> int:
    if isinstance(result, str) and not as_json:
        print(plain(result))
    else:
        print_json(result)
    return 0


def _line(text: str) -> str:
    return " ".join(text.split())[:100]
