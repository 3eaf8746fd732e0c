"""What a client asks first over pipes, answered from a record of what the SDK answered to the very same
before.

A client starts `ctx mcp` with every conversation and waits for two replies, the handshake and the list of
tools, while the SDK needs a second to import. The record holds those replies, each beside the request it
was given for, and counts only while nothing has changed that they could follow from (`fingerprint`). The
SDK stays the authority: every request that was answered early is put to it all the same, and where it says
something else the record is put right and the client told that the list has changed. A request that differs
in anything but what its client says of itself waits for it.
"""

import hashlib
import json
import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.machinery import PathFinder
from itertools import islice

from ctx import __version__, file_writing, files
from ctx.server.frames import Frames
from ctx.types import JSON

logger = logging.getLogger(__name__)

RECORDED = (
    "initialize", "server/discover", "ping", "tools/list", "prompts/list", "resources/templates/list",
)  # fmt: skip
"""Methods whose reply follows from the configuration, the scripts and the request alone."""
CHANGES = {
    "tools/list": b'{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}',
    "prompts/list": b'{"jsonrpc":"2.0","method":"notifications/prompts/list_changed"}',
}
PATIENCE_S = 0.05  # for a client's first words; then the server is made ready without them
_KIND = "ctx-opening 1"
_MAX_REPLIES = 48  # of all clients of a project; each has about four
_MAX_KEY_CHARS = 4000
_MAX_BYTES = 4_000_000  # of a record
_MAX_PATHS = 5000  # looked at, 10 us each
_DEPTH = 4  # of folders: registry, kind, script, its files
_SDK = ("mcp", "mcp_types", "pydantic", "pydantic_core")


# -- what replies follow from ------------------------------------------------------------------------------


def fingerprint(values: Iterable[str], paths: Iterable[str]) -> str | None:
    """One hash over ctx, the SDK and Python as they are installed, these values and the state of what is at
    these paths; None where that is too much to look at.

    A file's state is its inode, its times and its size; a change within one tick of the clock that made it
    cannot matter, since whoever reads the file starts later. Of a folder it is what it holds.
    """
    parts = [_KIND, __version__, sys.version, sys.prefix, *values]
    package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for path in (package, *_sdk_files(), *paths):
        parts += islice(_states(path, _DEPTH), _MAX_PATHS + 1)
        if len(parts) > _MAX_PATHS:
            return None
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()


def _sdk_files() -> list[str]:
    specs = [PathFinder.find_spec(name) for name in _SDK]
    return [spec.origin or "" for spec in specs if spec is not None]


def _states(path: str, depth: int) -> Iterator[str]:
    try:
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            yield f"{path} {status.st_ino} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_size}"
        elif depth and not path.endswith("__pycache__"):  # which comes and goes
            yield path
            for name in sorted(os.listdir(path)):
                yield from _states(f"{path}/{name}", depth - 1)
    except OSError as error:
        yield f"{path} errno {error.errno}"


# -- the record --------------------------------------------------------------------------------------------


class Opening:
    """The recorded replies of one project, by request.
    `slot` is the file; a missing or foreign one is empty.
    """

    def __init__(self, slot: str | None, fingerprint: str | None) -> None:
        self._slot = slot if fingerprint is not None else None
        self._fingerprint = fingerprint
        self._replies = self._read()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._replies)

    def reply(self, key: str) -> JSON | None:
        """What the SDK answered to that request."""
        return self._replies.get(key)

    def note(self, key: str, reply: JSON) -> None:
        """Keeps what the SDK answers. Writes the file where that is news; one that cannot be written is no
        loss.
        """
        with self._lock:
            if self._slot is None or self._replies.get(key) == reply:
                return
            self._replies = {**self._read(), **self._replies}  # another client may have come meanwhile
            self._replies.pop(key, None)
            self._replies[key] = reply
            while len(self._replies) > _MAX_REPLIES:
                del self._replies[next(iter(self._replies))]
            record = {"kind": _KIND, "fingerprint": self._fingerprint, "replies": self._replies}
            content = json.dumps(record).encode()
            if len(content) > _MAX_BYTES:
                return
            try:
                files.make_folder(os.path.dirname(self._slot))
                file_writing.replace(self._slot, content)
            except OSError as error:
                logger.debug("the opening is not recorded: %s", error)

    def _read(self) -> dict[str, JSON]:
        content = None if self._slot is None else files.read_private(self._slot, _MAX_BYTES)
        try:
            record = json.loads(content or b"{}")
        except ValueError:
            return {}
        if not isinstance(record, dict) or record.get("fingerprint") != self._fingerprint:
            return {}
        replies = record.get("replies")
        return replies if record.get("kind") == _KIND and isinstance(replies, dict) else {}


class Requests:
    """Tells requests of one conversation apart: the same words mean another thing after another handshake."""

    def __init__(self) -> None:
        self._handshake = ""

    def key(self, message: Mapping[str, JSON]) -> str | None:
        """The key of a request in the record; None where its reply is not one to be recorded."""
        if message.get("method") not in RECORDED or not _is_plain_request(message):
            return None
        text = json.dumps([message["method"], *anonymous(message.get("params"))], sort_keys=True)
        if len(text) > _MAX_KEY_CHARS:
            return None
        if message["method"] == "initialize":
            self._handshake = text
        return f"{self._handshake}\n{text}"


ANYBODY = "anybody"
_ABOUT = {"name", "title", "version", "description", "websiteUrl"}
_CAPABILITY_DEPTH = 6  # tasks, requests, sampling, createMessage
# Where a client says who it is and what it can, and whether it has to say the first: of `initialize`, and of
# a `_meta`.
_INTRODUCTIONS = (
    ("clientInfo", "capabilities", True),
    ("io.modelcontextprotocol/clientInfo", "io.modelcontextprotocol/clientCapabilities", False),
)


def _is_plain_request(message: Mapping[str, JSON]) -> bool:
    id = message.get("id")
    has_id = isinstance(id, str | int) and not isinstance(id, bool)
    others = message.keys() - {"jsonrpc", "id", "method", "params"}
    return has_id and message.get("jsonrpc") == "2.0" and not others


def anonymous(params: JSON) -> tuple[JSON, ...]:
    """Parameters without what a client says of itself, and a mark of that; as they are where it says none, or
    says it in a shape that the SDK might refuse.

    The SDK checks name and capabilities, and its replies follow from neither: a client that never came before
    is answered what another one was.
    """
    if not params:
        return (None,)  # {} is as good as none
    if not isinstance(params, dict):
        return (params,)
    stripped = _without_client(params)
    if stripped is not None:
        return (stripped, ANYBODY)
    meta = _without_client(params.get("_meta"))
    return (params,) if meta is None else ({**params, "_meta": meta}, ANYBODY)


def _without_client(fields: JSON) -> JSON | None:
    if not isinstance(fields, dict):
        return None
    for info, capabilities, needed in _INTRODUCTIONS:
        if capabilities not in fields or (needed and info not in fields):
            continue
        plain_about = info not in fields or _plain_about(fields[info])
        if plain_about and _plain_capabilities(fields[capabilities]):
            return {name: value for name, value in fields.items() if name not in (info, capabilities)}
    return None


def _plain_about(about: JSON) -> bool:
    """Whether a client says who it is in texts alone."""
    return (
        isinstance(about, dict)
        and {"name", "version"} <= about.keys() <= _ABOUT
        and all(isinstance(value, str) for value in about.values())
    )


def _plain_capabilities(capabilities: JSON) -> bool:
    """Whether a client says what it can in objects all through, but where the protocol has something else."""
    if not isinstance(capabilities, dict):
        return False
    return all(_plain_capability(name, capability) for name, capability in capabilities.items())


def _plain_capability(name: str, capability: JSON) -> bool:
    if name in ("experimental", "extensions"):  # whose settings are their own
        return isinstance(capability, dict) and all(isinstance(row, dict) for row in capability.values())
    if name == "roots":
        return capability in ({}, {"listChanged": True}, {"listChanged": False})
    return _plain_tree(capability, _CAPABILITY_DEPTH)


def _plain_tree(value: JSON, depth: int) -> bool:
    return (
        depth > 0 and isinstance(value, dict) and all(_plain_tree(row, depth - 1) for row in value.values())
    )


# -- answering early ---------------------------------------------------------------------------------------


class Early:
    """What was said before the SDK was there: the messages that came, and what requests were answered, by
    id.
    """

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.replies: dict[JSON, JSON] = {}
        self.ended = False  # the client has closed its end, and nothing waits for an answer
        self._requests = Requests()

    def take(self, frames: Frames, opening: Opening) -> bool:
        """Reads a message, and answers it from the record; False where the SDK has to go on."""
        message = frames.next()
        if message is None:
            self.ended = True
            return False
        self.messages.append(message)
        try:
            request = json.loads(message)
        except (ValueError, RecursionError):
            return False
        return isinstance(request, dict) and self._answer(frames, opening, request)

    def _answer(self, frames: Frames, opening: Opening, request: dict[str, JSON]) -> bool:
        if "id" not in request:  # nobody waits for an answer
            return str(request.get("method")).startswith("notifications/")
        key = self._requests.key(request)
        reply = None if key is None else opening.reply(key)
        if reply is None or request["id"] in self.replies:
            return False
        self.replies[request["id"]] = reply
        frames.send(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": reply}).encode())
        return True


def answer_early(frames: Frames, opening: Opening, prepare: Callable[[], object]) -> Early:
    """Answers from the record until `prepare`, which runs in a thread meanwhile, is through, or until
    something comes that the record does not know.
    """
    signal, waker = os.pipe()

    def run() -> None:
        try:
            prepare()
        finally:  # what it raised is raised once more where the server is made
            os.close(waker)

    beginning = Early()
    unfinished = not frames.waiting(PATIENCE_S, other=signal) or beginning.take(frames, opening)
    thread = threading.Thread(target=run, name="ctx-prepare", daemon=True)
    thread.start()
    while unfinished and frames.waiting(None, other=signal):
        unfinished = beginning.take(frames, opening)
    if not beginning.ended:
        thread.join()
        os.close(signal)
    return beginning
