"""The zygote (the process that all workers are forked from), and the workers, which run one script each.

The server starts the zygote with `python -I -S`: a single-threaded process, locked down, with Lua and the
prelude (our Lua library for scripts) loaded. The zygote receives orders over a socket (`frames.ORDER`): F
forks a worker that serves the attached descriptor, P forks a worker for a probe of the self-test, K kills a
worker. It answers each order (`frames.ANSWER`). When the server ends, the zygote and all workers end.

A worker reads one job from its socket, runs it, sends the answer and ends. No other module imports lupa.
"""

import binascii
import gc
import hashlib
import hmac
import json
import marshal
import os
import signal
import socket
import uuid
from collections.abc import Callable
from contextlib import suppress
from json.encoder import encode_basestring
from typing import Any, NoReturn

from lupa import lua54

from ctx.lua import lockdown
from ctx.lua.frames import (
    ANSWER,
    HEADER_BYTES,
    HOST_CALL,
    JOB,
    MAX_FRAME_BYTES,
    MAX_RESULT_BYTES,
    ORDER,
    RESULT,
)

# Lua names that give access to Python and the machine. They are removed before a script is loaded.
_REMOVED = (b"python", b"require", b"package", b"io", b"os", b"dofile", b"loadfile", b"debug")
_COMPILE = b"function(text, name) return string.dump(assert(load(text, name, 't')), true) end"


def compile_parts(texts: dict[str, str]) -> dict[bytes, bytes]:
    """The parts of the prelude (name -> text) as bytecode, which loads in a quarter of the time."""
    runtime = lua54.LuaRuntime(encoding=None, register_eval=False, register_builtins=False)
    compile_one = runtime.eval(_COMPILE)
    return {name.encode(): compile_one(text.encode(), b"=" + name.encode()) for name, text in texts.items()}


def _deny(*_: object) -> None:
    raise AttributeError("denied")


def _hmac(payload: bytes) -> bytes:
    length, _, texts = payload.partition(b":")
    return hmac.new(texts[: int(length)], texts[int(length) :], "sha256").hexdigest().encode()


def _quote(payload: bytes) -> bytes:
    return encode_basestring(payload.decode()).encode()


def _repaired(payload: bytes) -> bytes:
    return encode_basestring(payload.decode("utf-8", "replace")).encode()


# Name -> (a pure function that the prelude may call, a sample input). At their first call, some of these
# functions load files, which a worker cannot open; so the zygote calls each once with its sample.
_PURE: dict[bytes, tuple[Callable[[bytes], bytes], bytes]] = {
    b"json.quote": (_quote, "\né".encode()),
    b"json.repair": (_repaired, b"\xc3"),
    b"base64.encode": (lambda payload: binascii.b2a_base64(payload, newline=False), b"x"),
    b"base64.decode": (lambda payload: binascii.a2b_base64(payload, strict_mode=True), b"eA=="),
    b"crypto.sha256": (lambda payload: hashlib.sha256(payload).hexdigest().encode(), b"x"),
    b"crypto.sha1": (
        lambda payload: hashlib.sha1(payload, usedforsecurity=False).hexdigest().encode(),
        b"x",
    ),
    b"crypto.md5": (lambda payload: hashlib.md5(payload, usedforsecurity=False).hexdigest().encode(), b"x"),
    b"crypto.uuid": (lambda _: str(uuid.uuid4()).encode(), b""),
    b"crypto.hmac_sha256": (_hmac, b"1:kd"),
}


class Interpreter:
    """A Lua state with the prelude. `run` never raises: it returns "+" (result) or "-" (failure), followed by
    JSON.
    """

    def __init__(self, parts: dict[bytes, bytes], memory_bytes: int) -> None:
        self._parts = parts
        self._socket: socket.socket | None = None
        runtime = lua54.LuaRuntime(
            encoding=None,
            register_eval=False,
            register_builtins=False,
            attribute_handlers=(_deny, _deny),
            max_memory=memory_bytes,
        )
        names = runtime.globals()
        self._run: Any = runtime.execute(parts[b"prelude"], self._raw)
        for name in _REMOVED:
            del names[name]
        self._memory_bytes = memory_bytes

    def connect(self, end: socket.socket) -> None:
        self._socket = end

    def run(self, message: tuple[bytes | int, ...]) -> bytes:
        """Runs a job: (kind, entry, name, source, arguments, context, grants, seed)."""
        try:
            answer: bytes = self._run(*message)
        except BaseException:  # such as out of memory in Lua, outside a protected call, or in Python
            megabytes = self._memory_bytes >> 20
            return b'-{"message":"not enough memory: a script may use %d MB"}' % megabytes
        if len(answer) > MAX_RESULT_BYTES:
            return b'-{"message":"the result has %d bytes, the most is %d"}' % (len(answer), MAX_RESULT_BYTES)
        return answer

    def _raw(self, op: bytes, payload: bytes = b"", *_: object) -> bytes:
        # This function is the only Python object that Lua can reach, and only the prelude has it. No
        # exception may reach Lua, because its traceback would give access to all of Python.
        try:
            pure = _PURE.get(op)
            if pure is not None:
                return b"+" + pure[0](payload)
            if op == b"part":
                return b"+" + self._parts[payload]
            assert self._socket is not None
            if len(op) + 1 + len(payload) > MAX_FRAME_BYTES:
                return b'-{"message":"%s: more than %d bytes"}' % (op, MAX_FRAME_BYTES)
            send(self._socket, HOST_CALL, op + b"\0" + payload)
            return receive(self._socket)[1]
        except (ValueError, TypeError):
            return b'-{"message":"%s: invalid input"}' % op
        except BaseException:
            return b'-{"message":"%s: failed"}' % op


def receive(end: socket.socket) -> tuple[bytes, bytes]:
    """The next frame as (letter, payload). Ends the process if the server is gone."""
    head = _read(end, HEADER_BYTES)
    return head[4:], _read(end, int.from_bytes(head[:4], "big"))


def _read(end: socket.socket, size: int) -> bytes:
    data = end.recv(size, socket.MSG_WAITALL)
    if len(data) < size:
        os._exit(0)
    return data


def send(end: socket.socket, letter: bytes, payload: bytes) -> None:
    end.sendall(len(payload).to_bytes(4, "big") + letter + payload)


def serve(end: socket.socket, interpreter: Interpreter) -> None:
    """Run one job from the socket and end the process."""
    # A first run copies the memory pages that every run writes to, before a caller waits.
    interpreter.run(_WARM)
    letter, payload = receive(end)
    if letter == JOB:
        interpreter.connect(end)
        send(end, RESULT, interpreter.run(marshal.loads(payload)))  # noqa: S302 - the server wrote it
    os._exit(0)  # end at once, so that no finalizer of the script runs


_WARM = (
    *(b"tool", b"execute", b"warm"),
    b"tool = {} function tool.execute(p) return {p.a, os.date(), string.format('%5.1f', 1.5)} end",
    *(b'{"a":1}', b"{}", b"", 0),
)


# -- the zygote ----------------------------------------------------------------------------------------------

BROKEN = 70  # the exit status of a worker that could not be locked down


class _Zygote:
    def __init__(self, control_fd: int, memory_bytes: int, parts: dict[str, str]) -> None:
        """`parts` are the texts of the prelude's files, which a worker cannot open."""
        self.memory_bytes = memory_bytes
        self.control = socket.socket(fileno=control_fd)
        self.pid = os.getpid()
        self.children: set[int] = set()
        self.interpreter = Interpreter(compile_parts(parts), memory_bytes)
        for function, sample in _PURE.values():
            function(sample)
        self.interpreter.run(_WARM)
        machine = lockdown.machine()
        self.filter = lockdown.prepare_filter(machine) if machine else None
        # Twice the script's limit, because Lua copies a table when it grows, plus Python's own memory.
        mapped = lockdown.address_space_bytes()
        self.address_space = mapped + 2 * memory_bytes + (64 << 20) if mapped else 0

    def lock_down(self) -> None:
        # A server that ignores SIGCHLD passes this on, and then the system forgets how a worker ended.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        null = os.open("/dev/null", os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.close(null)
        layers = lockdown.confine_zygote()
        if self.filter is None:
            layers.append(lockdown.Layer(lockdown.FILTER, False, "Linux on x86_64 and aarch64 only"))
        self.control.sendall(json.dumps(layers).encode() + b"\n")

    def run(self) -> NoReturn:
        gc.collect()
        gc.disable()
        gc.freeze()  # otherwise the first collection in each worker would copy every page
        with suppress(OSError):  # raised if the server has ended
            while self.answer_order():
                pass
        for pid in self.children:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    def answer_order(self) -> bool:
        """Receives an order and answers it. Returns False if the server has closed the socket."""
        message, fds, _, _ = socket.recv_fds(self.control, ORDER.size, 1)
        if len(message) < ORDER.size:
            return False
        letter, number = ORDER.unpack(message)
        if letter == b"K":
            answer = self.kill(number)
        else:
            answer = self.fork(fds[0], None if letter == b"F" else number)
        self.control.sendall(ANSWER.pack(answer))
        for fd in fds:
            os.close(fd)
        return True

    def kill(self, pid: int) -> int:
        """Kills a worker, unless it has ended. Returns its wait status; -1 if no worker has this pid."""
        if pid not in self.children:
            return -1
        # The worker was not waited for yet, so its pid cannot belong to another process.
        os.kill(pid, signal.SIGKILL)
        self.children.remove(pid)
        return os.waitpid(pid, 0)[1]

    def fork(self, fd: int, probe: int | None) -> int:
        try:
            pid = os.fork()
        except OSError:  # too many processes, or too little memory
            return 0
        if pid == 0:
            self.become_worker(fd, probe)
        self.children.add(pid)
        return pid

    def become_worker(self, fd: int, probe: int | None) -> NoReturn:
        try:
            if fd != 3:
                os.dup2(fd, 3)
            for inherited in {self.control.fileno(), fd} - {3}:
                os.close(inherited)
            end = socket.socket(fileno=3)
            lockdown.confine_worker(self.pid, self.address_space)
            if self.filter is not None:
                lockdown.install_filter(self.filter)
            if probe is None:
                serve(end, self.interpreter)
            else:
                lockdown.try_probe(probe, self.memory_bytes)
        finally:
            os._exit(BROKEN)


def main(argument: str) -> NoReturn:
    """Run the zygote. `argument` has the parameters of `_Zygote` as a JSON array."""
    zygote = _Zygote(*json.loads(argument))
    zygote.lock_down()
    zygote.run()
