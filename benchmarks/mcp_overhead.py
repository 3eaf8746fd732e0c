"""The same search over REST and over MCP (issue: MCP adds less than 1 ms at p50).

A whole `ctx serve mcp` in a process of its own, one kept connection, the four ways in turn for each query, so
that the machine's load is every way's alike. The bodies are made beforehand; a reply counts when it has been
read and parsed. In a session it is an event of a stream, and has been read when its line ends, as for the
clients of MCP: what ends the stream is read before the next call.
"""

import argparse
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _common import Words, check, finish, header, markdown_tree, quantiles

CONFIG = (
    '[connectors.filesystem]\nroot = "./docs"\n[embedding]\nprovider = "disabled"\n[watch]\nenabled = false\n'
)
WARM_UP = 40
MODERN = "2026-07-28"
PLAIN = {"Content-Type": "application/json"}
MCP = {**PLAIN, "Accept": "application/json, text/event-stream"}
STATELESS = {**MCP, "Mcp-Protocol-Version": MODERN, "Mcp-Method": "tools/call", "Mcp-Name": "search"}
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "benchmark", "version": "1"},
}
HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


def post(
    connection: http.client.HTTPConnection, path: str, body: bytes, headers: dict[str, str]
) -> tuple[float, object, http.client.HTTPResponse]:
    """Seconds until the reply was read and parsed, the reply, and its head."""
    began_s = time.perf_counter()
    connection.request("POST", path, body, headers)
    reply = connection.getresponse()
    streamed = reply.headers.get_content_type() == "text/event-stream"
    data = next(line[6:] for line in reply if line.startswith(b"data: {")) if streamed else reply.read()
    answer = json.loads(data) if data else None
    took_s = time.perf_counter() - began_s
    reply.read()
    assert reply.status in (200, 202), (reply.status, data)
    return took_s, answer, reply


def call(arguments: dict[str, object], **meta: object) -> bytes:
    """A `tools/call` of `search`."""
    params = {"name": "search", "arguments": arguments, **({"_meta": meta} if meta else {})}
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=300)
    options.add_argument("--rounds", type=int, default=400)
    args = options.parse_args()
    header("MCP beside REST")
    words = Words(3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        markdown_tree(folder / "docs", args.documents)
        (folder / "ctx.toml").write_text(CONFIG)
        subprocess.run(
            [sys.executable, "-m", "ctx", "index", "--no-progress"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        server = subprocess.Popen(
            [sys.executable, "-m", "ctx", "serve", "mcp", "--bind", "127.0.0.1:0", "--log-level", "warning"],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            host, _, port = server.stdout.readline().removeprefix("Listening on ").strip().rpartition(":")
            measure(http.client.HTTPConnection(host, int(port), timeout=60), words, args.rounds, server.pid)
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
    finish()


def measure(connection: http.client.HTTPConnection, words: Words, rounds: int, server: int) -> None:
    """Prints p50 and p95 of each way, the server's processor time for a call, and what MCP adds."""
    begin = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}).encode()
    _, _, opened = post(connection, "/mcp", begin, MCP)
    session = {**MCP, "Mcp-Session-Id": opened.headers["mcp-session-id"]}
    post(connection, "/mcp", b'{"jsonrpc": "2.0", "method": "notifications/initialized"}', session)

    def ways() -> dict[str, tuple[str, bytes, dict[str, str]]]:
        arguments: dict[str, object] = {"query": " ".join(words.take(2)), "limit": 10}
        return {
            "REST": ("/tools/search", json.dumps(arguments).encode(), PLAIN),
            "MCP stateless": ("/mcp", call(arguments, **META), STATELESS),
            "MCP in a session": ("/mcp", call(arguments), session),
            "MCP bare": ("/mcp", call(arguments), PLAIN),
        }

    samples: dict[str, list[float]] = {way: [] for way in ways()}
    for round_ in range(rounds + WARM_UP):
        asked = ways()
        post(connection, *asked["REST"])  # the first to ask a query pays for cold postings
        for way, what in asked.items():
            took_s, _, _ = post(connection, *what)
            if round_ >= WARM_UP:
                samples[way].append(took_s)
    queries = [ways() for _ in range(rounds)]
    middles: dict[str, float] = {}
    for way, taken in samples.items():
        before_s = processor_s(server)
        for asked in queries:
            post(connection, *asked[way])
        work_ms = (processor_s(server) - before_s) * 1000 / rounds
        p50, p95, _ = quantiles(taken)
        middles[way] = p50
        print(f"{way:<18} p50 {p50:6.2f} ms   p95 {p95:6.2f} ms   processor {work_ms:5.2f} ms")
    print()
    for way in ("MCP stateless", "MCP in a session", "MCP bare"):
        check(f"{way} adds at p50", middles[way] - middles["REST"], 1.0, unit=" ms")


def processor_s(process: int) -> float:
    """What a process has computed so far: unlike the clock, no other program's load is in it.
    0 where the system does not tell.
    """
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
