"""What a worker can send, and what the server makes of it."""

import os
import random
import socket
import threading

import pytest
from redteam_run import poor_host, tool

from ctx.errors import CtxError, ScriptTimeout, ToolError
from ctx.lua.frames import (
    HOST_CALL,
    JOB,
    MAX_FRAME_BYTES,
    MAX_RESULT_BYTES,
    RESULT,
    Cancelled,
    Channel,
    Deadline,
    DeadlinePassed,
    FrameError,
    Wire,
    WorkerGone,
    pack_job,
    unpack_job,
)
from ctx.lua.nursery import Worker
from ctx.lua.pool import Job, Pool


class HostilePool(Pool):
    """A pool whose workers are in the hands of the test: each call talks to a socket that says `script`."""

    def __init__(self, script: bytes = b"") -> None:
        super().__init__()
        self.script = script

    def start(self) -> None:
        pass

    def _admit(self, job: Job) -> None:
        pass

    def _take(self, job: Job, reuse: bool, cancel: threading.Event | None) -> Worker:
        ours, self.theirs = socket.socketpair()
        self.theirs.send(self.script)
        self.theirs.shutdown(socket.SHUT_WR)
        worker = Worker(0, None, ours)
        worker.ended.set()
        return worker

    def _give_back(self, job: Job, worker: Worker, idle: bool) -> None:
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


def test_a_frame_longer_than_its_cap_ends_the_call_before_it_is_read() -> None:
    with pytest.raises(ToolError, match="over its cap"):
        said((MAX_FRAME_BYTES + 1).to_bytes(4, "big") + HOST_CALL)
    with pytest.raises(ToolError, match="over its cap"):
        said((4 * 1024 * 1024 + 1).to_bytes(4, "big") + RESULT)


def test_a_second_frame_before_the_answer_to_the_first_ends_the_call() -> None:
    with pytest.raises(ToolError, match="before the first"):
        said(frame(HOST_CALL, b"context.sources\0{}") + frame(RESULT, b"+1"))


def test_a_worker_that_ends_without_an_answer_is_a_tool_error() -> None:
    with pytest.raises(ToolError, match="without an answer"):
        said(frame(RESULT, b"+1")[:-1])


def test_a_result_in_one_frame_is_the_value() -> None:
    assert said(frame(RESULT, b'+{"a":1.0}')) == {"a": 1.0}


def test_sleep_for_nan_or_for_ever_ends_at_the_deadline() -> None:
    for seconds in (b"nan", b"inf", b"1e300"):
        with pytest.raises(ScriptTimeout):
            HostilePool(frame(HOST_CALL, b"sleep\0" + seconds)).run(tool(""), poor_host, 0.05)


def test_a_receiver_that_does_not_read_cannot_hold_the_sender_past_its_deadline() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(DeadlinePassed):
        Channel(ours).send(b"C", bytes(MAX_FRAME_BYTES), Deadline(0.05))


def test_a_frame_that_comes_in_pieces_is_put_together() -> None:
    ours, theirs = socket.socketpair()
    with theirs:
        channel = Channel(ours)
        payload = os.urandom(3_000_000)
        theirs.send(b"\0")
        writer = threading.Thread(target=theirs.sendall, args=(frame(RESULT, payload)[1:],))
        writer.start()
        assert channel.receive(Deadline(5)) == (RESULT, payload)
        writer.join()
    with pytest.raises(WorkerGone):
        channel.receive(Deadline(5))
    channel.close()


def test_an_unknown_letter_is_refused() -> None:
    ours, theirs = socket.socketpair()
    theirs.send(frame(b"Z", b""))
    with ours, theirs, pytest.raises(FrameError):
        Channel(ours).receive(Deadline(5))


def test_a_job_crosses_whole() -> None:
    wire = Wire(b"tool", b"execute", b"n", b"return \0 1", b"{}", b"", b" http ", b"12345678", b"")
    assert unpack_job(pack_job(wire)) == wire


def test_a_frame_that_is_read_in_pieces_arrives_whole() -> None:
    ours, theirs = socket.socketpair()
    payload = os.urandom(3_000_000)
    read = bytearray()

    def reader() -> None:
        while data := theirs.recv(1 << 16):
            read.extend(data)

    thread = threading.Thread(target=reader)
    with theirs:
        with ours:
            thread.start()
            Channel(ours).send(JOB, payload, Deadline(20))
        thread.join(20)
    assert bytes(read) == frame(JOB, payload)


def test_a_wait_that_is_called_off_ends_before_its_deadline() -> None:
    cancel = threading.Event()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        cancel.set()
        with pytest.raises(Cancelled):
            channel.receive(Deadline(20, cancel))
        with pytest.raises(Cancelled):
            channel.send(JOB, bytes(MAX_FRAME_BYTES), Deadline(20, cancel))
        cancel.clear()
        thread = threading.Timer(0.05, cancel.set)
        thread.start()
        with pytest.raises(Cancelled):
            channel.receive(Deadline(20, cancel))
        thread.join()


def test_the_longest_frames_are_taken_and_one_byte_more_is_not() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        with pytest.raises(FrameError, match="more than a worker takes"):
            Channel(ours).send(JOB, bytes(MAX_FRAME_BYTES + 1), Deadline(5))
        theirs.setblocking(False)
        with pytest.raises(BlockingIOError):
            theirs.recv(1)  # nothing of it was sent
    for letter, longest in ((HOST_CALL, MAX_FRAME_BYTES), (RESULT, MAX_RESULT_BYTES)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            theirs.send(longest.to_bytes(4, "big") + letter)
            with pytest.raises(DeadlinePassed):  # it waits for the rest
                Channel(ours).receive(Deadline(0.05))


def test_what_follows_a_frame_is_kept_for_the_next_and_told_as_unread() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = Channel(ours)
        theirs.send(frame(HOST_CALL, b"first") + frame(RESULT, b"second")[:7])
        assert not channel.unread
        assert channel.receive(Deadline(5)) == (HOST_CALL, b"first")
        assert channel.unread
        theirs.send(frame(RESULT, b"second")[7:])
        assert channel.receive(Deadline(5)) == (RESULT, b"second")
        assert not channel.unread


def test_a_closed_end_is_told_whoever_closed_it() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours:
        for _ in range(2):
            with pytest.raises(WorkerGone):
                Channel(ours).send(JOB, b"x", Deadline(5))
        with pytest.raises(WorkerGone):
            Channel(ours).receive(Deadline(5))
    ours, theirs = socket.socketpair()

    def leave() -> None:
        theirs.recv(1)  # the first part of the frame is there
        theirs.close()

    leaving = threading.Thread(target=leave)
    leaving.start()
    with ours, pytest.raises(WorkerGone):  # in the middle of what does not fit at once
        Channel(ours).send(JOB, bytes(MAX_FRAME_BYTES), Deadline(20))
    leaving.join()


@pytest.mark.parametrize("cuts", [(5, 14), (1, 5, 6), (4, 13, 14)])
def test_a_frame_ends_with_its_last_byte_wherever_it_is_cut(cuts: tuple[int, ...]) -> None:
    """On a socket that keeps messages apart, so that each piece is read by itself."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    whole = frame(RESULT, b"0123456789")
    with ours, theirs:
        for start, end in zip((0, *cuts), (*cuts, len(whole)), strict=True):
            theirs.send(whole[start:end])
        channel = Channel(ours)
        assert channel.receive(Deadline(5)) == (RESULT, b"0123456789")
        assert not channel.unread
