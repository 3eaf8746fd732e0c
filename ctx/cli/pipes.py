"""`ctx mcp`: MCP on standard input and output. Every conversation of some clients starts one, so what they
ask first is answered before the SDK and the workspace are imported (ctx/server/opening.py), and nothing of
the web server is.
"""

import os
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from importlib import import_module

from ctx.cli.common import configuration, memory_configuration
from ctx.cli.logs import log_option, log_to_stderr
from ctx.cli.options import Parser, describe
from ctx.cli.recording import opening_slot
from ctx.config import Config
from ctx.config.settings import SHIPPED_PACKS
from ctx.errors import BadRequest
from ctx.extensions.trust import FOLDERS, trust_path
from ctx.project import user_folder
from ctx.registries import shelf_folder
from ctx.server.frames import Frames, take_wire
from ctx.server.opening import Opening, answer_early, fingerprint

TYPED = "A client starts this command and speaks MCP to it: `ctx connect CLIENT` tells it to. Ctrl-C ends it."
SERVER = "ctx.cli.pipe_server"  # with the SDK: a second of processor time


def add_options(command: str, options: Parser) -> None:
    describe(
        options, "Serve MCP on standard input and output, for clients that start their servers themselves."
    )
    options.add_argument(
        "--pack",
        metavar="NAME",
        help="only this memory pack, under its own names: hindsight, claude-recall or sekha",
    )
    options.add_argument(
        "--bank", metavar="BANK", help="the memory bank (default: $CTX_BANK, else the pack's own)"
    )
    log_option(options, "warning")
    options.add_argument(
        "--url", help="carry the messages to the ctx that serves there, instead of serving from here"
    )
    options.add_argument(
        "--key-env", metavar="NAME", help="with --url: the environment variable that holds the key"
    )


def _with_pack(config: Config, pack: str) -> Config:
    """A configuration with a pack enabled besides. Raises `BadRequest` for one there is not."""
    if pack not in SHIPPED_PACKS:
        from ctx.text import did_you_mean  # 5 ms, and only a mistake needs it

        raise BadRequest(f"--pack: no memory pack '{pack}'; {did_you_mean(pack, SHIPPED_PACKS)}")
    return replace(config, packs=replace(config.packs, enabled=(*config.packs.enabled, pack)))


def run(command: str, args: Namespace) -> int:
    if os.isatty(0):  # a person, who sees nothing else happen
        print(TYPED, file=sys.stderr)
    if args.url:
        from ctx.cli.pipe_server import carry

        return carry(args.url, args.bank, args.key_env, args.log_level)
    if args.key_env:
        raise BadRequest("--key-env is for --url: a ctx that runs here asks nobody for a key")
    frames = Frames(*take_wire())
    log_to_stderr(args.log_level)
    config = configuration(args.config) if args.pack is None else memory_configuration(args.config)
    if args.pack and args.pack not in config.packs.enabled:
        config = _with_pack(config, args.pack)
    bank = args.bank or os.environ.get("CTX_BANK")
    # The introductions of packs follow from more than can be looked at beforehand.
    opening = None if config.packs.enabled else opening_of(config, bank)
    beginning = answer_early(frames, opening, lambda: import_module(SERVER)) if opening else None
    if beginning is not None and beginning.ended:
        return 0
    from ctx.cli.pipe_server import serve

    return serve(config, frames, pack=args.pack, bank=bank, early=beginning, opening=opening)


def opening_of(config: Config, bank: str | None) -> Opening:
    """What clients of this project were answered last time, while nothing has changed since."""
    scripts = (*config.script_tools, *config.script_agents)
    granted = sorted({name for script in scripts for name in script.env})
    values = [repr(config), repr(bank), *(f"{name}={os.environ.get(name)!r}" for name in granted)]
    return Opening(
        opening_slot(config),
        fingerprint(values, [*(script.path for script in scripts), *_found_scripts(config)]),
    )


def _found_scripts(config: Config) -> Iterator[str]:
    """Where scripts lie that the configuration does not name, and what vouches for them."""
    if config.lua.tools_dir:
        yield config.lua.tools_dir
    for folder in (os.path.join(config.root, ".ctx"), user_folder(os.environ)):
        if folder is not None:
            yield from (os.path.join(folder, name) for name in FOLDERS)
    yield shelf_folder(os.environ)
    yield trust_path(os.environ)
