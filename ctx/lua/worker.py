"""The process a script runs in. It reads one job from its socket, runs it, sends the answer and ends.

Only the zygote imports this module; no other module imports lupa.
"""

import binascii
import hashlib
import hmac
import os
import socket
from json.encoder import encode_basestring
from typing import Any

from lupa import lua54

from ctx.lua.frames import (
    HEADER_BYTES,
    HOST_CALL,
    JOB,
    MAX_FRAME_BYTES,
    MAX_RESULT_BYTES,
    RESULT,
    JobMessage,
    unpack_job,
)

_READ_BYTES = 1 << 16

# Lua's access to Python and to the machine. Removed before a script is loaded.
_REMOVED = (b"python", b"require", b"package", b"io", b"os", b"dofile", b"loadfile", b"debug")
_COMPILE = b"function(text, name) return string.dump(assert(load(text, name, 't')), true) end"


def compile_parts(texts: dict[str, str]) -> dict[bytes, bytes]:
    """Compile the prelude and its parts to bytecode, which loads in a quarter of the time."""
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


def _mend(payload: bytes) -> bytes:
    return encode_basestring(payload.decode("utf-8", "replace")).encode()


def _uuid(_: bytes) -> bytes:
    digits = bytearray(os.urandom(16).hex().encode())
    digits[12:13] = b"4"  # the version and the variant of RFC 9562; all other digits are random
    digits[16:17] = b"%x" % (int(digits[16:17], 16) & 3 | 8)
    return b"-".join(digits[start:end] for start, end in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))


_PURE = {
    b"json.quote": _quote,
    b"json.mend": _mend,
    b"base64.encode": lambda payload: binascii.b2a_base64(payload, newline=False),
    b"base64.decode": lambda payload: binascii.a2b_base64(payload, strict_mode=True),
    b"crypto.sha256": lambda payload: hashlib.sha256(payload).hexdigest().encode(),
    b"crypto.sha1": lambda payload: hashlib.sha1(payload, usedforsecurity=False).hexdigest().encode(),
    b"crypto.md5": lambda payload: hashlib.md5(payload, usedforsecurity=False).hexdigest().encode(),
    b"crypto.uuid": _uuid,
    b"crypto.hmac_sha256": _hmac,
}


class Interpreter:
    """A Lua state with the prelude. `run` returns "+" or "-", then JSON, and never raises."""

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

    def run(self, message: JobMessage) -> bytes:
        try:
            answer: bytes = self._run(
                message.kind,
                message.entry,
                message.name,
                message.source,
                message.arguments,
                message.context,
                message.grants,
                int.from_bytes(message.seed, "big", signed=True),
            )
        except BaseException:  # out of memory outside of any protected call, in Lua or in Python
            megabytes = self._memory_bytes >> 20
            return b'-{"message":"not enough memory: a script may use %d MB"}' % megabytes
        if len(answer) > MAX_RESULT_BYTES:
            return b'-{"message":"the result has %d bytes, the most is %d"}' % (len(answer), MAX_RESULT_BYTES)
        return answer

    def _raw(self, op: bytes, payload: bytes = b"", *_: object) -> bytes:
        # The only Python object that Lua can reach, and only the prelude has it. No exception may reach Lua:
        # its traceback would give access to all of Python.
        try:
            pure = _PURE.get(op)
            if pure is not None:
                return b"+" + pure(payload)
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
    """The next frame as (letter, payload). Ends the process if the server has gone."""
    data = b""
    while len(data) < HEADER_BYTES:
        data += _read(end, _READ_BYTES)  # usually the whole frame
    parts = [data]
    missing = HEADER_BYTES + int.from_bytes(data[:4], "big") - len(data)
    while missing > 0:
        parts.append(_read(end, missing))
        missing -= len(parts[-1])
    frame = data if len(parts) == 1 else b"".join(parts)
    return frame[4:5], frame[HEADER_BYTES:]


def _read(end: socket.socket, most: int) -> bytes:
    data = end.recv(most)
    if not data:
        os._exit(0)
    return data


def send(end: socket.socket, letter: bytes, payload: bytes) -> None:
    end.sendall(len(payload).to_bytes(4, "big") + letter + payload)


def serve(end: socket.socket, interpreter: Interpreter) -> None:
    """Run one job from the socket and end the process."""
    interpreter.run(_WARM)  # copies the pages a call writes to before a caller waits for them
    letter, payload = receive(end)
    if letter == JOB:
        interpreter.connect(end)
        send(end, RESULT, interpreter.run(unpack_job(payload)))
    os._exit(0)  # at once, so that no finalizer of the script runs


_WARM = JobMessage(
    b"tool",
    b"execute",
    b"warm",
    b"tool = {} function tool.execute(p) return {p.a, os.date(), string.format('%5.1f', 1.5)} end",
    b'{"a":1}',
    b"{}",
    b"",
    bytes(8),
)


def warm_up(interpreter: Interpreter) -> None:
    """Call every pure function once in the zygote: some load files, which a worker cannot open."""
    for op, payload in (
        (b"json.quote", "\né".encode()),
        (b"json.mend", b"\xc3"),
        (b"base64.encode", b"x"),
        (b"base64.decode", b"eA=="),
        (b"crypto.sha256", b"x"),
        (b"crypto.sha1", b"x"),
        (b"crypto.md5", b"x"),
        (b"crypto.uuid", b""),
        (b"crypto.hmac_sha256", b"1:kd"),
    ):
        _PURE[op](payload)
    interpreter.run(_WARM)
