"""Records what the SDK answers to a client's first requests in each version of the protocol, for clients that
have yet to come: `python -m ctx.cli.recorder [--config FILE] [--bank BANK]`, started by `recording.py`.
"""

import argparse
import asyncio
import json
import os
import signal
from collections.abc import Iterator

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from ctx.assemble import mcp_server
from ctx.cli.common import configuration
from ctx.cli.pipes import opening_of
from ctx.config import Config
from ctx.server.frames import Frames
from ctx.server.opening import RECORDED, Opening
from ctx.server.stdio import Wire, enter_pipe, serve_pipes
from ctx.server.work import Work
from ctx.types import JSON, Caller
from ctx.workspace import open_workspace

AT_MOST_S = 300  # beside a machine that is busy with other things all the time
_LISTS = tuple(method for method in RECORDED if method.endswith("/list"))


def main() -> None:
    signal.alarm(AT_MOST_S)
    os.setsid()  # an interrupt at the terminal is the command's
    os.nice(19)
    options = argparse.ArgumentParser()
    options.add_argument("--config")
    options.add_argument("--bank")
    args = options.parse_args()
    config = configuration(args.config)
    bank = args.bank or os.environ.get("CTX_BANK")
    record(config, bank, opening_of(config, bank))


def record(config: Config, bank: str | None, opening: Opening) -> None:
    """Holds a conversation with the SDK in every version that it knows, and keeps what it answers."""
    caller = Caller("stdio", bank=bank, bank_fixed=bank is not None)
    with open_workspace(config) as workspace:
        workspace.load_extensions()
        for conversation in conversations():
            work = Work()
            server = mcp_server(workspace, work, enter_pipe(caller))
            reading, writing = os.pipe()
            with open(reading, "rb", buffering=0) as ours, open(os.devnull, "wb", buffering=0) as nowhere:
                os.write(writing, b"".join(json.dumps(message).encode() + b"\n" for message in conversation))
                os.close(writing)
                asyncio.run(serve_pipes(server, Wire(Frames(ours, nowhere), opening=opening)))
            work.close()


def conversations() -> Iterator[list[dict[str, JSON]]]:
    """What a client asks first, in each version of the protocol."""
    for version in HANDSHAKE_PROTOCOL_VERSIONS:
        about: JSON = {"name": "ctx", "version": "0"}
        greeting: JSON = {"protocolVersion": version, "capabilities": {}, "clientInfo": about}
        yield [
            _request(0, "initialize", greeting),
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            *(_request(id, method) for id, method in enumerate(("ping", *_LISTS), 1)),
        ]
    for version in MODERN_PROTOCOL_VERSIONS:
        prefix = "io.modelcontextprotocol/"
        meta: JSON = {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": {}}
        yield [
            _request(id, method, {"_meta": meta}) for id, method in enumerate(("server/discover", *_LISTS))
        ]


def _request(id: int, method: str, params: JSON = None) -> dict[str, JSON]:
    return {"jsonrpc": "2.0", "id": id, "method": method, **({"params": params} if params else {})}


if __name__ == "__main__":
    main()
