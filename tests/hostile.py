"""Hostile calls, and attackers that send them to a running server."""

import json
import socket
import threading
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from ctx.models import JSON

CROWD = 40  # attackers at once
NEEDLE = "xylophone"
DRIP_S = 0.05  # between two bytes of a client that is slow on purpose
DEAF_S = 5.0  # how long a client that reads nothing stays
READ_BYTES = 1 << 16

LOOPS = {
    "spin": "while true do end",
    "grow": "local t = {} while true do pcall(function() t[#t + 1] = ('x'):rep(1e6) end) end",
    "search": "while true do pcall(context.search, 'xylophone') end",
    "log": "while true do log.info(('x'):rep(1000)) end",
    "match": "local s = ('a'):rep(200000) while true do string.find(s, ('a*'):rep(60) .. 'b') end",
    "deep": "local t = {} for _ = 1, 1e9 do t = {t} end return t",
    "resume": "while true do pcall(error, ('x'):rep(100000)) end",
}
_PATTERNS = """
tool = {
  parameters = {
    type = "object",
    properties = {
      letters = { type = "string", pattern = "^(a+)+$" },
      named = { type = "object", patternProperties = { ["^(a|a)+$"] = { type = "string" } } },
    },
  },
}
function tool.execute(params) return "taken" end
"""


class Attack(NamedTuple):
    """One hostile call: what is sent at once, then `drip` again and again; who is `deaf` never reads a
    reply.
    """

    name: str
    opening: bytes
    drip: bytes = b""
    deaf: bool = False


def hostile_project(folder: Path) -> Path:
    """A folder of tools that loop, patterns that backtrack and an ignore file made of stars; its ctx.toml."""
    docs, scripts = folder / "docs", folder / "scripts"
    for path in (docs, scripts):
        path.mkdir(parents=True)
    (docs / "guide.md").write_text(f"# Guide\n\nThe {NEEDLE} is tuned by the platform team.\n")
    (docs / ("a" * 80 + ".md")).write_text("# Long name\n")
    (docs / ".gitignore").write_text("*a" * 12 + "*b\n" + "**/" * 20 + "*a*b*c\n")
    (docs / "deep.md").write_text("> " * 20_000 + "x\n" + "[" * 20_000 + "\n")
    tables = []
    for name, body in LOOPS.items():
        (scripts / f"{name}.lua").write_text(f"tool = {{}} function tool.execute(params, context) {body} end")
        tables.append(f'[tools.script.loop-{name}]\npath = "./scripts/{name}.lua"\ntimeout = 2')
    (scripts / "patterns.lua").write_text(_PATTERNS)
    tables.append('[tools.script.patterns]\npath = "./scripts/patterns.lua"')
    head = '[connectors.filesystem.docs]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n'
    config = folder / "ctx.toml"
    config.write_text(head + "\n".join(tables) + "\n")
    return config


def request(method: str, path: str, body: bytes = b"", **headers: str) -> bytes:
    """A request as bytes, well formed unless its parts are not."""
    lines = {"Host": "localhost", "Content-Type": "application/json", "Content-Length": str(len(body))}
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def _call(tool: str, arguments: JSON) -> bytes:
    return request("POST", f"/tools/{tool}", json.dumps(arguments).encode())


def _mcp(method: str, params: JSON, **headers: str) -> bytes:
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"Accept": "application/json, text/event-stream", **headers}
    return request("POST", "/mcp", json.dumps(message).encode(), **accept)


def _tools() -> list[Attack]:
    return [Attack(f"tool that loops: {name}", _call(f"loop-{name}", {})) for name in LOOPS]


def _patterns() -> list[Attack]:
    letters = "a" * 200_000 + "b"
    stars = "*a" * 100 + "*b"
    return [
        Attack("pattern that backtracks", _call("patterns", {"letters": letters})),
        Attack("names of properties that backtrack", _call("patterns", {"named": {letters: "x"}})),
        Attack("glob of stars", _call("search", {"query": NEEDLE, "filters": {"path": stars}})),
        Attack("source of stars", _call("search", {"query": NEEDLE, "source": stars})),
        Attack("query of 200,000 words", _call("search", {"query": "a b " * 100_000})),
        Attack("query that is one long word", _call("search", {"query": letters})),
        Attack("query of operators", _call("search", {"query": '(((" AND NOT *~^' * 4_000})),
        Attack("ignore file of stars, read anew", _call("refresh", {})),
    ]


def _bodies() -> list[Attack]:
    def search(body: bytes) -> bytes:
        return request("POST", "/tools/search", body)

    return [
        Attack("lists 500,000 deep", search(b"[" * 500_000)),
        Attack("objects 100,000 deep", search(b'{"query":' * 100_000)),
        Attack("filters 100,000 deep", search(b'{"query":"x","filters":' + b"[" * 100_000)),
        Attack("number of 900,000 digits", search(b'{"query":"x","limit":' + b"9" * 900_000 + b"}")),
        Attack("number out of range", search(b'{"query":"x","limit":1e999999}')),
        Attack("100,000 names", search(json.dumps({f"n{n}": n for n in range(70_000)}).encode())),
        Attack("half a surrogate", search(b'{"query":"' + b"\\ud800" * 100_000 + b'"}')),
        Attack("nothing but NUL", search(b"\0" * 1_000_000)),
        Attack("body beyond the limit", search(b" " * (1 << 21))),
        Attack("id of a megabyte", _call("get", {"id": "0" * 900_000})),
    ]


def _connections() -> list[Attack]:
    head = b"POST /tools/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    headers = "".join(f"X-{n}: {n}\r\n" for n in range(4_000)).encode()
    pages = request("GET", "/openapi.json") * 400
    return [
        Attack("head that comes slowly", b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x"),
        Attack("body that comes slowly", head + b"Content-Length: 100000\r\n\r\n{", b" "),
        Attack("pieces that come slowly", head + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        Attack("request that never comes", b""),
        Attack("path of 60 kB", request("GET", "/tools/" + "a" * 60_000)),
        Attack("path of 20,000 steps", request("GET", "/mcp" + "/a" * 20_000)),
        Attack("path of encoded dots", request("GET", "/%2e%2e" * 5_000)),
        Attack("path with a line in it", request("POST", "/mcp%0A", b"{}", Origin="https://evil.example")),
        Attack("4,000 headers", b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + headers + b"\r\n"),
        Attack("header without end", b"GET / HTTP/1.1\r\nX: ", b"x" * 4_096),
        Attack("400 requests, no reply read", pages, deaf=True),
        Attack("no HTTP at all", b"\x16\x03\x01" + b"\xff" * 100_000),
    ]


def _sessions() -> list[Attack]:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    batch = json.dumps([{"jsonrpc": "2.0", "id": n, "method": "tools/list"} for n in range(5_000)]).encode()
    events = {"Accept": "application/json, text/event-stream"}
    return [
        Attack("session that is never used", _mcp("initialize", hello)),
        Attack("session with a name of 100 kB", _mcp("initialize", {**hello, "clientInfo": "n" * 100_000})),
        Attack("session of somebody else", _mcp("tools/list", {}, Mcp_Session_Id="f" * 32)),
        Attack("tool that loops, by MCP", _mcp("tools/call", {"name": "loop-spin", "arguments": {}})),
        Attack("5,000 messages at once", request("POST", "/mcp", batch, **events)),
        Attack("deep message", request("POST", "/mcp", b'{"jsonrpc":"2.0","id":' + b"[" * 300_000, **events)),
        Attack("resource of 100 kB", _mcp("resources/read", {"uri": "ctx://doc/" + "a" * 100_000})),
        Attack("bank of 60 kB", request("POST", "/mcp/" + "b" * 60_000, b"{}", **events)),
    ]


KINDS = {
    "tools": _tools(),
    "patterns": _patterns(),
    "bodies": _bodies(),
    "connections": _connections(),
    "sessions": _sessions(),
}


def crowd(kind: str) -> list[Attack]:
    """So many attacks of one kind, or of all of them (`every`), in turn, as there are attackers."""
    attacks = KINDS.get(kind) or [attack for attacks in KINDS.values() for attack in attacks]
    return [attacks[number % len(attacks)] for number in range(max(CROWD, len(attacks)))]


class _Attacker(threading.Thread):
    """Sends one attack, again whenever the server has ended it, until told to stop or refused a
    connection.
    """

    def __init__(self, attack: Attack, address: tuple[str, int], over: threading.Event) -> None:
        super().__init__(daemon=True)
        self.attack = attack
        self.begun = threading.Event()  # the first call is on its way
        self.calls = 0
        self._address = address
        self._over = over

    def run(self) -> None:
        while not self._over.is_set():
            try:
                connection = socket.create_connection(self._address, timeout=5)
            except OSError:
                break  # the server has gone, or lets nobody in any more
            with connection:
                self._attack(connection)
        self.begun.set()

    def _attack(self, connection: socket.socket) -> None:
        self.calls += 1
        try:
            connection.sendall(self.attack.opening)
            self.begun.set()
            while self.attack.drip and not self._over.wait(DRIP_S):
                connection.sendall(self.attack.drip)
            if self.attack.deaf:
                self._over.wait(DEAF_S)
            elif not self.attack.drip:
                connection.recv(READ_BYTES)  # the reply has begun: the next call
        except OSError:
            self.begun.set()  # hung up on, as is the server's right, or nothing to read for a while


class Assault:
    """A crowd of attackers at work, from when the first call of each is on its way until the end of the
    block.
    """

    def __init__(self, address: str, attacks: list[Attack]) -> None:
        host, _, port = address.rpartition(":")
        self._over = threading.Event()
        self.attackers = [_Attacker(attack, (host, int(port)), self._over) for attack in attacks]

    def __enter__(self) -> "Assault":
        for attacker in self.attackers:
            attacker.start()
        for attacker in self.attackers:
            attacker.begun.wait(30)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        for attacker in self.attackers:
            attacker.join(30)
