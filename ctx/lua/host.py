"""Host calls to the machine: HTTP, files, environment variables, log lines.

Host calls run in the server, with input from a script that may be hostile. Each function takes and returns
bytes, or raises `ToolError` with a message for the author of the script. The message contains no secret and
no path on the machine.
"""

import errno
import fnmatch
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple
from urllib.parse import urlencode

import orjson

from ctx import files
from ctx.errors import ToolError
from ctx.lua.fetch import (
    FAILURES,
    MAX_REDIRECTS,
    TIMEOUTS,
    Resolve,
    exchange,
    open_pool,
    reason,
    redirected,
    resolve_host,
    same_host,
    shown,
    target_of,
)
from ctx.lua.frames import Deadline
from ctx.models import JSON, is_number
from ctx.text.strings import sound

logger = logging.getLogger("ctx.script")

MAX_RESPONSE_BYTES = 10_000_000  # bytes of the decompressed body
MAX_FILE_BYTES = 10_000_000
MAX_LISTED = 10_000
MAX_GLOB_CHARS = 256  # longest glob in `fs.list`; file names are not longer
DEFAULT_TIMEOUT_S = 30.0
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
OUR_HEADERS = (("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("User-Agent", "ctx-script"))
# Request headers that only our HTTP client may set: with them, a script could smuggle a second request or
# name another host.
REFUSED_HEADERS = {
    *("host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "keep-alive"),
    *("expect", "proxy-authorization", "proxy-connection"),
}
# Headers to keep on a redirect to another origin. Others may contain a key, such as GitLab's PRIVATE-TOKEN.
CROSS_ORIGIN_HEADERS = {
    *("accept", "accept-charset", "accept-encoding", "accept-language", "cache-control"),
    *("content-encoding", "content-language", "content-type"),
    *("if-match", "if-modified-since", "if-none-match", "if-unmodified-since"),
    *("pragma", "prefer", "range", "user-agent"),
}
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


class Policy(NamedTuple):
    """Limits for one script: what it may read, reach and call."""

    name: str
    roots: tuple[str, ...] = ()  # folders that the script may read; its own folder is the first
    env: frozenset[str] = frozenset()
    allow_hosts: frozenset[str] = frozenset()  # HOST or HOST:PORT of hosts that may be on a private network
    calls: frozenset[str] = frozenset()  # the tools that the script may call
    memory_bank: str | None = None
    store: str = ""  # the name under which the script's values are stored; "" if it cannot store any
    withheld: Callable[[str, str], bool] = lambda folder, name: False  # whether a file must not be read


# -- http ----------------------------------------------------------------------------------------------------


def http(policy: Policy, payload: bytes, deadline_s: float, resolve: Resolve = resolve_host) -> bytes:
    """Send a request and follow redirects. Returns JSON {status, ok, headers}, NUL, the body."""
    head, _, body = payload.partition(b"\0")
    request = json.loads(head)
    method = str(request.get("method", "GET")).upper()
    if method not in METHODS:
        raise ToolError(f"http: method {method[:16]} is not one of {', '.join(sorted(METHODS))}")
    timeout_s = request.get("timeout_s")
    timeout_s = float(timeout_s) if is_number(timeout_s) and timeout_s > 0 else DEFAULT_TIMEOUT_S
    deadline = Deadline(min(deadline_s, time.monotonic() + timeout_s))
    headers = _headers(request.get("headers"))
    target = target_of(_with_params(str(request.get("url", "")), request.get("params")), policy.allow_hosts)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            named = {name.lower() for name, _ in headers}
            lines = [*(pair for pair in OUR_HEADERS if pair[0].lower() not in named), *headers]
            encoded = [(name.encode(), value.encode("utf-8", "replace")) for name, value in lines]
            content = body if body or method in ("POST", "PUT", "PATCH") else None
            with open_pool(target, deadline, resolve) as pool:
                reply = exchange(pool, method, target, encoded, deadline, MAX_RESPONSE_BYTES, content=content)
            if not reply.location:
                answer = {"status": reply.status, "ok": 200 <= reply.status < 300, "headers": reply.headers}
                return orjson.dumps(answer) + b"\0" + reply.body
            following = redirected(target, reply.location, policy.allow_hosts)
            drop_body = reply.status == 303 or (reply.status in (301, 302) and method == "POST")
            if following.origin != target.origin:
                headers = [pair for pair in headers if pair[0].lower() in CROSS_ORIGIN_HEADERS]
            if drop_body:
                method, body = "HEAD" if method == "HEAD" else "GET", b""
                headers = [pair for pair in headers if not pair[0].lower().startswith("content-")]
            elif body and not same_host(target, following):
                raise ToolError(
                    f"HTTP {method} {shown(target.url)} failed: it redirects to another host "
                    f"({shown(following.url)}); ctx does not forward the body: send the request there"
                )
            target = following
    except TIMEOUTS as error:
        raise ToolError(f"HTTP {method} {shown(target.url)} failed: timed out") from error
    except FAILURES as error:
        raise ToolError(f"HTTP {method} {shown(target.url)} failed: {reason(error)}") from error
    raise ToolError(f"HTTP {method} {shown(target.url)} failed: more than {MAX_REDIRECTS} redirects")


def _with_params(url: str, params: JSON) -> str:
    if not isinstance(params, dict) or not params:
        return url
    pairs = [(str(name), _param(value)) for name, value in params.items()]
    base, mark, fragment = url.partition("#")
    return base + ("&" if "?" in base else "?") + urlencode(pairs) + mark + fragment


def _param(value: JSON) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _headers(fields: JSON) -> list[tuple[str, str]]:
    headers = []
    for name, value in fields.items() if isinstance(fields, dict) else ():
        text = _param(value)
        if not _HEADER_NAME.fullmatch(name) or name.lower() in REFUSED_HEADERS:
            raise ToolError(f"http: the header '{name[:40]}' may not be set")
        if any(char in text for char in "\r\n\0"):
            raise ToolError(f"http: the header '{name[:40]}' has a line break in it")
        headers.append((name, text))
    return headers


# -- files ---------------------------------------------------------------------------------------------------

_SCRIPT_FOLDERS = ("tools", "agents")  # the only readable folders in `.ctx`, which also has memories and keys


def fs_read(policy: Policy, payload: bytes) -> bytes:
    """The bytes of a regular file below one of the script's folders. Symbolic links are not followed."""
    with _located(policy, payload, "fs.read") as (root, path):
        data = files.read_file(path, beneath=root, most=MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"fs.read: the file is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _entry(descriptor: int, prefix: str, name: str) -> JSON:
    """The row of `fs.list` for one entry of a folder; None for a link, for a name that is not UTF-8, or if
    the entry was just deleted.
    """
    if sound(name) != name:
        return None  # JSON cannot hold a name that is not UTF-8
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return None
    row: JSON = {"path": prefix + name, "name": name, "size": status.st_size}
    return row | {"modified": int(status.st_mtime), "dir": stat.S_ISDIR(status.st_mode)}


def fs_list(policy: Policy, payload: bytes) -> bytes:
    """The entries of a folder, sorted by name: JSON [{path, name, size, modified, dir}]. `path` is for
    `fs.read`.
    """
    request = json.loads(payload)
    folder = str(request.get("dir", ".")) or "."
    fits = _glob_test(request.get("glob"))
    prefix = "" if folder in (".", "./") else f"{folder.rstrip('/')}/"
    rows: list[JSON] = []
    with _located(policy, folder.encode("utf-8", "surrogateescape"), "fs.list") as (root, path):
        descriptor, _ = files.enter(f"{path}/.", root)
        try:
            for name in filter(fits, sorted(os.listdir(descriptor))):
                row = _entry(descriptor, prefix, name)
                if row is None:
                    continue
                rows.append(row)
                if len(rows) > MAX_LISTED:
                    raise ToolError(
                        f"fs.list: the folder has more than {MAX_LISTED:,} entries; narrow it with a glob"
                    )
        finally:
            os.close(descriptor)
    return json.dumps(rows).encode()


def _glob_test(glob: JSON) -> Callable[[str], object]:
    """Returns a function that tells whether a name matches a glob (`*`, `?`, `[...]`); without a glob all
    names match. Raises `ToolError`.

    `fnmatch` makes a regular expression that does not backtrack over stars, so the time of a match is at most
    proportional to the length of the glob times the length of the name.
    """
    if not glob:
        return bool
    if not isinstance(glob, str) or len(glob) > MAX_GLOB_CHARS:
        raise ToolError(f"fs.list: a glob must be a string of at most {MAX_GLOB_CHARS} characters")
    return re.compile(fnmatch.translate(glob)).match


@contextmanager
def _located(policy: Policy, payload: bytes, operation: str) -> Iterator[tuple[str, str]]:
    """Yields (root, path below it) for a path that a script names. The block must not follow links below the
    root. Raises `ToolError` if the script may not read the path, or if the block raises `OSError`.
    """
    if b"\0" in payload or len(payload) > 4096:
        raise ToolError(f"{operation}: not a path")
    root, below = _root_of(policy, os.fsdecode(payload), operation)
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{operation}: the path leads out of the script's folders")
    if ".git" in map(str.lower, parts) or _is_in_store([*root.split("/"), *parts]):
        raise _withheld(operation)
    root = path = os.path.realpath(root)
    for part in parts:
        if policy.withheld(path, part):
            raise _withheld(operation)
        path = os.path.join(path, part)
    try:
        yield root, path
    except OSError as error:
        text = payload[:120].decode("utf-8", "backslashreplace")
        special = error.errno in (errno.EINVAL, errno.EXDEV)  # EXDEV: the root folder itself
        reason = "not a regular file" if special else os.strerror(error.errno or 0)
        raise ToolError(f"{operation}: {reason}: {text}") from error


def _withheld(operation: str) -> ToolError:
    return ToolError(f"{operation}: scripts may not read .ctx, .git and the store")


def _is_in_store(parts: Sequence[str]) -> bool:
    """Whether a path is in a `.ctx` folder, but not in its folders for scripts."""
    return any(
        part.lower() == ".ctx" and following.lower() not in _SCRIPT_FOLDERS
        for part, following in zip(parts, [*parts[1:], ""], strict=True)
    )


def _root_of(policy: Policy, path: str, operation: str) -> tuple[str, str]:
    if not policy.roots:
        raise ToolError(f"{operation}: the script may not read any folder")
    if not os.path.isabs(path):
        return policy.roots[0], path
    for root in policy.roots:
        if path == root or path.startswith(root.rstrip("/") + "/"):
            return root, path[len(root) :]
    raise ToolError(
        f"{operation}: the path is not in the script's folders; name its folder in fs = [...] to allow it"
    )


# -- environment and log -------------------------------------------------------------------------------------


def env_get(policy: Policy, payload: bytes, environ: Mapping[str, str]) -> bytes:
    """The value of a variable that the operator granted, as JSON; null for others, even if they exist."""
    name = payload.decode("utf-8", "replace")
    value = environ.get(name) if name in policy.env else None
    return orjson.dumps(None if value is None else value.encode("utf-8", "replace").decode())


_LEVELS = {b"debug": logging.DEBUG, b"info": logging.INFO, b"warn": logging.WARNING, b"error": logging.ERROR}


def log(policy: Policy, payload: bytes) -> bytes:
    """Write one line to the server's log, with the script's name."""
    level, _, message = payload.partition(b"\0")
    logger.log(_LEVELS.get(level, logging.INFO), "[%s] %s", policy.name, message.decode("utf-8", "replace"))
    return b""
