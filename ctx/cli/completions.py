"""`ctx completions SHELL`: completion scripts for bash, zsh and fish."""

from argparse import Namespace

import shtab

from ctx.cli import whole_parser
from ctx.cli.options import Parser, describe

INSTALL = {
    "bash": "ctx completions bash > ~/.local/share/bash-completion/completions/ctx",
    "zsh": "ctx completions zsh > ~/.zfunc/_ctx, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc",
    "fish": "ctx completions fish > ~/.config/fish/completions/ctx.fish",
}
SHELLS = tuple(INSTALL)


def add_options(command: str, options: Parser) -> None:
    describe(options, "Print a shell's completion script; --help says where to put it.")
    options.epilog = "; ".join(f"{shell}: {line}" for shell, line in INSTALL.items())
    options.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS, help="for which shell")


def run(command: str, args: Namespace) -> int:
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script of a shell."""
    text: str = shtab.complete(whole_parser(), shell=shell)
    return text
