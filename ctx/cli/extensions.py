"""`ctx tool`, `ctx connector`, `ctx agent`, `ctx trust`, `ctx pack`."""

import argparse
import json
import os
import sys
import time

from ctx.cli import scaffolds
from ctx.cli.common import configuration, parser, plain, print_json, table
from ctx.connectors.base import ScanLog
from ctx.errors import BadRequest, ConfigError
from ctx.extensions.scripts import ScriptConnector, ScriptFile, load_agent, load_tool
from ctx.extensions.trust import TrustFile, project_scripts, trust_path
from ctx.tools.schema import compile_check
from ctx.types import JSON, Caller
from ctx.workspace import Workspace, open_workspace

CALLER = Caller("cli")
SHOWN_ITEMS = 5


def run(command: str, argv: list[str]) -> int:
    return {"tool": _tool, "connector": _connector, "agent": _agent, "trust": _trust, "pack": _pack}[command](argv)


# ---- tools -----------------------------------------------------------------------------------------------------------


def _tool(argv: list[str]) -> int:
    options = parser("tool", "List, call, write and test tools.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|call|init|test")
    actions.add_parser("list", help="the tools this configuration serves, and those that failed to load")
    for name, purpose, what in (
        ("call", "call a tool as REST and MCP do", "the tool's name"),
        ("test", "run a script that need not be in ctx.toml", "the script's path"),
    ):
        action = actions.add_parser(name, help=purpose)
        action.add_argument("what", help=what)
        _values(action, "--param")
        action.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS") if name == "test" else None
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.TOOL, "tools", args.name, args.path)
    if args.action == "test":
        with open_workspace(configuration(args.config, required=False)) as workspace:
            script = ScriptFile(
                _stem(args.what), os.path.abspath(args.what), timeout_s=args.timeout, config=_configured(workspace, args.what)
            )
            tool = load_tool(workspace.runner(), script)
            return _answer(tool.run(compile_check(tool.parameters)(_read_values(args.param)), CALLER), args.json)
    with open_workspace(configuration(args.config)) as workspace:
        scripts = workspace.scripts
        if args.action == "call":
            return _answer(workspace.toolbox.call(args.what, _read_values(args.param), CALLER), args.json)
        tools = workspace.toolbox.list()
        failed = [status for status in scripts.statuses() if status.kind == "tool" and status.error]
        if args.json:
            listed = [
                {"name": t.name, "description": t.description, "builtin": t.builtin, "parameters": t.parameters} for t in tools
            ]
            print_json(
                {
                    "tools": listed,
                    "failed": [{"name": s.name, "file": s.where, "error": s.error, "serving": s.serving} for s in failed],
                }
            )
            return 0
        print(
            table(
                [(t.name, "built in" if t.builtin else t.pack or t.origin, _line(t.description)) for t in tools],
                ("TOOL", "FROM", "DESCRIPTION"),
            )
        )
        for status in failed:
            kept = " (the last version that worked still answers)" if status.serving else ""
            print(f"FAILED {status.name} ({status.where}): {plain(status.error or '')}{kept}", file=sys.stderr)
        return 0


def _configured(workspace: Workspace, path: str) -> dict[str, JSON]:
    """The settings that ctx.toml gives a script of that path, so that a test runs it as the server would."""
    config = workspace.config
    for script in (*config.script_tools, *config.script_agents, *config.script_connectors):
        if os.path.realpath(script.path) == os.path.realpath(path):
            return dict(script.config)
    return {}


# ---- connectors ------------------------------------------------------------------------------------------------------


def _connector(argv: list[str]) -> int:
    options = parser("connector", "Write and test connector scripts.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="init|test")
    test = actions.add_parser("test", help="scan, print the first items, index nothing")
    test.add_argument("what", help="the script's path")
    _values(test, "--param")
    test.add_argument("--timeout", type=float, default=300.0, metavar="SECONDS")
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.CONNECTOR, "connectors", args.name, args.path)
    with open_workspace(configuration(args.config, required=False)) as workspace:
        settings = {**_configured(workspace, args.what), **_read_values(args.param)}
        script = ScriptFile(_stem(args.what), os.path.abspath(args.what), timeout_s=args.timeout, config=settings)
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
        print_json({"items": count, "first": items, "problems": [problem._asdict() for problem in log.problems]})
    else:
        print(f"{count:,} items in {time.monotonic() - began_s:.1f} s")
        for shown in items:
            print(f"  {plain(shown['source_id'])}  {plain(shown['title'] or '')}  {shown['characters']:,} characters")
        if count > len(items):
            print(f"  ... and {count - len(items):,} more")
        for problem in log.problems[:20]:
            print(f"  skipped {plain(problem.source_id)}: {plain(problem.message)}", file=sys.stderr)
    return 0


# ---- agents ----------------------------------------------------------------------------------------------------------


def _agent(argv: list[str]) -> int:
    options = parser("agent", "List, write and test agents.", json=True)
    actions = options.add_subparsers(dest="action", required=True, metavar="list|init|test")
    actions.add_parser("list", help="the agents this configuration serves")
    test = actions.add_parser("test", help="resolve an agent, by name or by its script's path")
    test.add_argument("what", help="its name, or a script's path")
    _values(test, "--arg")
    test.add_argument("--timeout", type=float, default=30.0, metavar="SECONDS")
    _init(actions)
    args = options.parse_args(argv)
    if args.action == "init":
        return _write(scaffolds.AGENT, "agents", args.name, args.path)
    with open_workspace(configuration(args.config, required=False)) as workspace:
        _ = workspace.scripts
        if args.action == "list":
            agents = workspace.agents.list()
            if args.json:
                print_json(
                    {
                        "agents": [
                            {"name": a.name, "description": a.description, "tools": list(a.tools), "source": a.source}
                            for a in agents
                        ]
                    }
                )
            else:
                print(
                    table([(a.name, a.source, _line(a.description)) for a in agents], ("AGENT", "FROM", "DESCRIPTION"))
                    if agents
                    else "No agents."
                )
            return 0
        if args.what.endswith(".lua"):
            script = ScriptFile(
                _stem(args.what), os.path.abspath(args.what), timeout_s=args.timeout, config=_configured(workspace, args.what)
            )
            agent = load_agent(workspace.runner(), script)
            workspace.agents.add(agent, replace=True)
            args.what = agent.name
        prompt = workspace.agents.prompt(args.what, _read_values(args.arg), CALLER)
    if args.json:
        print_json({"system": prompt.system, "tools": list(prompt.tools), "messages": list(prompt.messages)})
    else:
        print(plain(prompt.system))
        print(f"\ntools: {', '.join(prompt.tools) or 'none'}")
        for message in prompt.messages:
            print(f"{message['role']}: {plain(message['content'])}")
    return 0


# ---- trust and packs -------------------------------------------------------------------------------------------------


def _trust(argv: list[str]) -> int:
    options = parser(
        "trust",
        "Let the scripts of this project's .ctx folder run. Look at them first: each text is trusted by its hash.",
        json=True,
    )
    options.add_argument("scripts", nargs="*", metavar="NAME", help="only these; all of the project's when absent")
    options.add_argument("--list", action="store_true", help="only show what is trusted")
    options.add_argument("--revoke", action="store_true", help="trust them no longer")
    args = options.parse_args(argv)
    root = configuration(args.config, required=False).root
    file = TrustFile(trust_path(os.environ))
    found = [script for script in project_scripts(root, file.digests()) if not args.scripts or script.name in args.scripts]
    missing = set(args.scripts) - {script.name for script in found}
    if missing:
        raise BadRequest(f"no script called {', '.join(sorted(missing))} in .ctx/tools or .ctx/agents")
    if not args.list:
        file.record({script.path: None if args.revoke else script.digest for script in found})
        found = [script._replace(trusted=not args.revoke) for script in found]
    if args.json:
        print_json({"scripts": [{"kind": s.kind, "name": s.name, "sha256": s.digest, "trusted": s.trusted} for s in found]})
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
    raise ConfigError("packs are not part of this build")


# ---- shared ----------------------------------------------------------------------------------------------------------


def _init(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    action = actions.add_parser("init", help="write a script to begin with; it runs as generated")
    action.add_argument("name")
    action.add_argument("--path", help="where to (default: tools/NAME.lua, connectors/NAME.lua, agents/NAME.lua)")


def _values(action: argparse.ArgumentParser, name: str) -> None:
    action.add_argument(
        name, action="append", default=[], metavar="KEY=VALUE", help="a value; JSON where it is JSON, else text (may be repeated)"
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
    if not all(char.isalnum() or char in "-_" for char in name):
        raise BadRequest("a name has only letters, digits, _ and -")
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


def _stem(path: str) -> str:
    if not os.path.isfile(path):
        raise BadRequest(f"no such script: {path}")
    return os.path.splitext(os.path.basename(path))[0]


def _line(text: str) -> str:
    return " ".join(text.split())[:100]
