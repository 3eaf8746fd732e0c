"""`ctx outline` and `ctx symbol`: the members of a file, and where a name is defined and used."""

from argparse import Namespace

from ctx.cli.common import configuration, print_json, prose, reply_of
from ctx.cli.options import Parser, describe
from ctx.types import JSON
from ctx.workspace import open_workspace


def add_options(command: str, options: Parser) -> None:
    if command == "outline":
        describe(options, "List the definitions of a file, or the headings of a page.", json=True)
        options.add_argument(
            "path", metavar="PATH[#NAME]", help="a file, or file#Class for the members of one"
        )
        options.add_argument("query", nargs="*", help="only members with one of these words")
    else:
        describe(options, "Show where a name is defined, what it calls and where it is used.", json=True)
        options.add_argument("name", help="a function, class, method or variable: find, Store.find")
        options.add_argument("--path", metavar="GLOB", help="only paths like src/** or *.py")
        options.add_argument("--limit", type=int, help="how many definitions and references (default: 30)")
    options.add_argument("--source", help="only this source, by name (git:platform) or type (git)")


def run(command: str, args: Namespace) -> int:
    arguments: dict[str, JSON] = {name: value for name, value in vars(args).items() if value}
    arguments = {
        name: arguments[name] for name in ("path", "query", "name", "limit", "source") if name in arguments
    }
    if "query" in arguments:
        arguments["query"] = " ".join(arguments["query"])
    if not args.json:
        arguments["format"] = "markdown"
    labels = {"path": "the path", "name": "the name", "query": "the words"}
    with open_workspace(configuration(args.config), reading=True) as workspace:
        reply = reply_of(workspace.toolbox, command, arguments, labels)
    if args.json:
        print_json(reply)
    else:
        print(prose(reply["text"]))
    return 0
