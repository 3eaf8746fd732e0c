"""`ctx docs`: shows this version's documentation offline. `ctx completions`: prints completion scripts."""

import http.server
import os
import sys
import webbrowser
from argparse import Namespace
from functools import partial
from glob import glob

import shtab

from ctx.cli import Parser, whole_parser
from ctx.cli.output import styled, tell
from ctx.errors import BadRequest, NotFound
from ctx.files import bundled_path
from ctx.text.strings import did_you_mean

LOOPBACK = "127.0.0.1"
SHELLS = ("bash", "zsh", "fish")


def docs_options(options: Parser) -> None:
    """Read the documentation of this version offline: in the browser, or here.

    ctx docs
    ctx docs configuration --print
    """
    page = "a page such as lua-api or howto/backup (default: the first)"
    options.add_argument("page", nargs="?", help=page)
    options.flag("--print", "print the page here instead of opening the browser")
    options.flag("--list", "list the pages")
    options.flag("--no-open", "serve the site and open no browser")


def run_docs(args: Namespace) -> int:
    if args.json and not args.list:
        raise BadRequest("--json is for --list: a page is Markdown (--print)")
    texts = pages(bundled_path("docs"))
    if args.list:
        return tell(args.json, {"pages": list(texts)}, *texts)
    page = (args.page or "index").removesuffix(".md").strip("/")
    if page not in texts:
        hint = did_you_mean(page, texts)
        raise NotFound(f"no page '{page}'; {hint if hint.endswith('?') else '`ctx docs --list` lists them'}")
    site = bundled_path("site")
    if args.print or not os.path.isfile(os.path.join(site, "index.html")):
        with open(texts[page], encoding="utf-8") as file:
            text = file.read()
        if sys.stdout.isatty():
            from rich.console import Console  # 70 ms
            from rich.markdown import Markdown

            Console(no_color=not styled(sys.stdout)).print(Markdown(text, hyperlinks=False))
        else:
            print(text, end="")
        return 0
    return _serve_site(site, page, opening=not args.no_open)


def pages(folder: str) -> dict[str, str]:
    """Maps the name of each page, such as `howto/backup`, to the path of its Markdown file, sorted by
    name.
    """
    paths = sorted(glob("**/*.md", root_dir=folder, recursive=True))
    return {path.removesuffix(".md"): os.path.join(folder, path) for path in paths}


class _Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the files of the site. Logs no requests."""

    def log_message(self, format: str, *values: object) -> None:
        pass


def _serve_site(site: str, page: str, *, opening: bool) -> int:
    server = http.server.ThreadingHTTPServer((LOOPBACK, 0), partial(_Handler, directory=site))
    address = f"http://{LOOPBACK}:{server.server_address[1]}/" + ("" if page == "index" else f"{page}/")
    print(f"The documentation is at {address} (Ctrl-C stops)", flush=True)
    with server:
        if opening:
            webbrowser.open(address)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print(file=sys.stderr)
    return 0


def completions_options(options: Parser) -> None:
    """Print a shell's completion script.

    ctx completions bash > ~/.local/share/bash-completion/completions/ctx
    ctx completions zsh > ~/.zfunc/_ctx, with `fpath+=~/.zfunc` before `compinit` in ~/.zshrc
    ctx completions fish > ~/.config/fish/completions/ctx.fish
    """
    options.add_argument("shell", metavar="|".join(SHELLS), choices=SHELLS, help="the shell")


def run_completions(args: Namespace) -> int:
    print(shtab.complete(whole_parser(), shell=args.shell))
    return 0
