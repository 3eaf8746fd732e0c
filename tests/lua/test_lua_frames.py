"""A worker that sends arbitrary bytes causes only our own errors."""

import random
import socket

import pytest
from redteam_run import poor_host, tool

from ctx.errors import CtxError
from ctx.lua.frames import (
    HOST_CALL,
    RESULT,
)
from ctx.lua.pool import Job, Pool
from ctx.lua.processes import Worker


class HostilePool(Pool):
    """A pool whose workers are in the hands of the test: each call talks to a socket that says `script`."""

    def __init__(self, script: bytes = b"") -> None:
        super().__init__()
        self.script = script

    def start(self) -> None:
        pass

    def _check_level(self, job: Job) -> None:
        pass

    def _take_worker(self, job: Job) -> Worker:
        ours, self.theirs = socket.socketpair()
        self.theirs.send(self.script)
        self.theirs.shutdown(socket.SHUT_WR)
        return Worker(0, ours)

    def _end_worker(self, worker: Worker) -> int:
        return 0

    def _retire_worker(self, worker: Worker) -> None:
        worker.channel.close()
        self.theirs.close()


def frame(letter: bytes, payload: bytes) -> bytes:
    return len(payload).to_bytes(4, "big") + letter + payload


def said(script: bytes) -> object:
    return HostilePool(script).run(tool(""), poor_host, 5)


def random_script(chance: random.Random) -> bytes:
    """Bytes as a taken-over worker might send them: noise, frames of noise, frames nearly right."""
    parts = []
    for _ in range(chance.randint(0, 3)):
        noise = chance.randbytes(chance.randint(0, 200))
        operation = chance.choice(
            [
                b"log",
                b"sleep",
                b"emit",
                b"emit_problem",
                b"context.search",
                b"context.get",
                b"http",
                b"memory.put",
                b"",
                b"\xff",
                b"time.now",
            ]
        )
        body = chance.choice(
            [
                noise,
                b"+" + noise,
                b"-" + noise,
                b"+[1]",
                b"-{}",
                b"-[]",
                b'-{"message":7,"kind":[]}',
                b"[" * 3000,
                b"+" + b"[" * 3000,
            ]
        )
        choice = chance.random()
        if choice < 0.2:
            parts.append(noise)
        elif choice < 0.6:
            parts.append(frame(HOST_CALL, operation + b"\0" + body))
        elif choice < 0.8:
            parts.append(frame(RESULT, body))
        else:
            parts.append(frame(bytes([chance.randrange(256)]), body))
    return b"".join(parts)


@pytest.mark.slow
def test_ten_thousand_random_conversations_raise_nothing_but_our_errors() -> None:
    chance = random.Random(20260)
    pool = HostilePool()
    job = tool("", grants=frozenset({"http", "fs", "env", "context", "memory"}))
    ours = 0
    for _ in range(10_000):
        pool.script = random_script(chance)
        try:
            pool.run(job, poor_host, 5)
        except CtxError:
            ours += 1
    assert ours > 5_000  # most of it is refused; the rest happened to be a result
