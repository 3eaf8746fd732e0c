"""`ctx docs`: the documentation that came with this version, offline: as a site, or a page in the
terminal.
"""

import http.server
import os
import sys
import webbrowser
from argparse import Namespace
from functools import partial
from glob import glob

from ctx.bundled import bundled_path
from ctx.cli.common import styled, tell
from ctx.cli.options import Parser, describe
from ctx.errors import BadRequest, NotFound
from ctx.text import did_you_mean

LOOPBACK = "127.0.0.1"


def add_options(command: str, options: Parser) -> None:
    describe(options, "Read the documentation of this version, offline: in the browser, or here.", json=True)
    options.add_argument(
        "page", nargs="?", help="a page such as lua-api or howto/backup (default: the first)"
    )
    options.add_argument("--print", action="store_true", help="print the page here, in place of the browser")
    options.add_argument("--list", action="store_true", help="list the pages")
    options.add_argument(
        "--port", type=int, default=0, help="the port of the site (default: any that is free)"
    )
    options.add_argument("--no-open", action="store_true", help="serve the site and open no browser")


def run(command: str, args: Namespace) -> int:
    if args.json and not args.list:
        raise BadRequest("--json is of --list: a page is Markdown (--print)")
    texts = pages(bundled_path("docs"))
    if args.list:
        return tell(args.json, {"pages": list(texts)}, *texts)
    page = (args.page or "index").removesuffix(".md").strip("/")
    if page not in texts:
        mend = did_you_mean(page, texts)
        raise NotFound(f"no page '{page}'; {mend if mend.endswith('?') else '`ctx docs --list` lists them'}")
    site = bundled_path("site")
    if args.print or not os.path.isfile(os.path.join(site, "index.html")):
        _print_page(texts[page])
        return 0
    return _serve(site, page, args.port, opening=not args.no_open)


def pages(folder: str) -> dict[str, str]:
    """The path of each page's Markdown by its name, such as `howto/backup`, in order."""
    names = {
        path.removesuffix(".md").replace(os.sep, "/"): os.path.join(folder, path)
        for path in glob("**/*.md", root_dir=folder, recursive=True)
    }
    return dict(sorted(names.items()))


def _print_page(path: str) -> None:
    """The page's Markdown: rendered on a terminal, as it is in a pipe."""
    with open(path, encoding="utf-8") as file:
        text = file.read()
    if not sys.stdout.isatty():
        print(text, end="")
        return
    from rich.console import Console  # 70 ms: only where somebody looks
    from rich.markdown import Markdown

    Console(no_color=not styled(sys.stdout)).print(Markdown(text, hyperlinks=False))


class _Quiet(http.server.SimpleHTTPRequestHandler):
    """Files of the site. It logs nothing and lists no folder."""

    def log_message(self, format: str, *values: object) -> None:
        pass

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """The site's own page where there is none, with the way on."""
        try:
            with open(os.path.join(self.directory, "404.html"), "rb") as file:
                page = file.read() if code == http.HTTPStatus.NOT_FOUND else b""
        except OSError:
            page = b""
        if not page:
            super().send_error(code, message, explain)
            return
        self.send_response(code)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page)

    def list_directory(self, path: str | os.PathLike[str]) -> None:
        self.send_error(404)


def _serve(site: str, page: str, port: int, *, opening: bool) -> int:
    try:
        server = http.server.ThreadingHTTPServer((LOOPBACK, port), partial(_Quiet, directory=site))
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or "a port is 0 to 65535"
        raise BadRequest(
            f"--port {port} cannot be used: {reason}; leave it out for any that is free"
        ) from error
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
