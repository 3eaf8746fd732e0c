"""`ctx completions SHELL`: what bash, zsh or fish complete, made from the commands' own parsers."""

import argparse

from ctx.cli import COMMANDS
from ctx.cli.options import DESCRIBE, Described, parser
from ctx.errors import BadRequest, ConfigError

INSTALL = {
    "bash": "ctx completions bash > ~/.local/share/bash-completion/completions/ctx",
    "zsh": "ctx completions zsh > ~/.zfunc/_ctx, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc",
    "fish": "ctx completions fish > ~/.config/fish/completions/ctx.fish",
}
SHELLS = tuple(INSTALL)


def run(command: str, argv: list[str]) -> int:
    options = parser("completions", "Print what a shell completes; --help says where to put it.")
    options.epilog = "; ".join(f"{shell}: {line}" for shell, line in INSTALL.items())
    options.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS, help="for which shell")
    args = options.parse_args(argv)
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script of a shell. Raises `ConfigError` where the library for it is not installed."""
    try:
        import shtab  # 30 ms, and for this command alone
    except ImportError as error:
        raise ConfigError("completions need shtab: pip install shtab") from error
    if shell not in shtab.SUPPORTED_SHELLS:
        raise BadRequest(f"no completions for {shell} (there are: {', '.join(shtab.SUPPORTED_SHELLS)})")
    text: str = shtab.complete(whole_parser(), shell=shell)
    return text


def whole_parser() -> argparse.ArgumentParser:
    """All commands as one parser, each with its own options."""
    whole = argparse.ArgumentParser(prog="ctx", description="A local-first context server.")
    whole.add_argument("--version", action="store_true", help="print the version")
    commands = whole.add_subparsers(dest="command")
    for name, (module, purpose) in COMMANDS.items():
        single = described(name, module)
        commands._name_parser_map[name] = single  # a finished parser has no other way in
        commands._choices_actions.append(commands._ChoicesPseudoAction(name, (), purpose))
    return whole


def described(name: str, module: str) -> argparse.ArgumentParser:
    """A command's parser: it is built, and handed over in place of being used.

    What an action has as `names` are its choices here, which the command itself checks in words of its own.
    """
    try:
        __import__(module, fromlist=["run"]).run(name, [DESCRIBE])
    except Described as answer:
        for action in answer.parser._actions:
            action.choices = getattr(action, "names", action.choices)
        return answer.parser
    raise AssertionError(f"ctx {name} does not use its parser")
