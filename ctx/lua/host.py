"""What a script may ask of the machine: http, files, environment variables, log lines.

Runs in the server; trusts nothing. Every function takes bytes that a hostile script wrote and gives bytes, or
raises `ToolError` with a sentence for the script's author. No path of the machine and no secret is in a
message.
"""

import fnmatch
import json
import logging
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import orjson

from ctx.errors import ToolError
from ctx.lua.fetch import (
    FAILURES,
    LATE,
    MAX_REDIRECTS,
    Deadline,
    Reply,
    Resolve,
    Target,
    exchange,
    open_pool,
    reason,
    redirected,
    resolve_host,
    same_host,
    shown,
    target_of,
)
from ctx.models import JSON, is_number
from ctx.text.strings import sound

logger = logging.getLogger("ctx.script")

MAX_RESPONSE_BYTES = 10_000_000  # decompressed
MAX_FILE_BYTES = 10_000_000
MAX_LISTED = 10_000
MAX_GLOB_CHARS = 256  # of `fs.list`: a name has no more
DEFAULT_TIMEOUT_S = 30.0
METHODS = frozenset({"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"})
# The client's own business: a script that sets them could smuggle a second request or speak for another host.
REFUSED_HEADERS = frozenset(
    {
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "te",
        "trailer",
        "upgrade",
        "keep-alive",
        "expect",
        "proxy-authorization",
        "proxy-connection",
    }
)
# What follows a redirect to another origin. Any other header may hold a key: GitLab has a PRIVATE-TOKEN.
CROSS_ORIGIN_HEADERS = frozenset(
    {
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "content-encoding",
        "content-language",
        "content-type",
        "if-match",
        "if-modified-since",
        "if-none-match",
        "if-unmodified-since",
        "pragma",
        "prefer",
        "range",
        "user-agent",
    }
)
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}")


Identity = tuple[int, int]


class Policy(NamedTuple):
    """What one script is allowed. `roots`: folders it may read, its own first. `allow_hosts`: HOST or
    HOST:PORT that may be private. `calls`: the tools it may call. `memory_bank`: the bank of its
    `context.memory`. `store`: whose values it keeps, "" for none. `withheld(folder, name)`: whether a name in
    a folder, told by device and inode, is no script's to read.
    """

    name: str
    roots: tuple[str, ...] = ()
    env: frozenset[str] = frozenset()
    allow_hosts: frozenset[str] = frozenset()
    calls: frozenset[str] = frozenset()
    memory_bank: str | None = None
    store: str = ""
    withheld: Callable[[Identity, str], bool] = lambda folder, name: False


# -- http ----------------------------------------------------------------------------------------------------


def _check_host(method: str, target: Target, following: Target) -> None:
    """Raises `ToolError` where a request with a body is sent on to another host."""
    if not same_host(target, following):
        raise ToolError(
            f"HTTP {method} {shown(target.url)} failed: it redirects to another host "
            f"({shown(following.url)}), which is not sent the body; send it there if it may have it"
        )


def _for_redirect(headers: list[tuple[str, str]], *, same_origin: bool, anew: bool) -> list[tuple[str, str]]:
    """The headers that go along to where a reply leads. `anew`: without the body."""
    if not same_origin:
        headers = [pair for pair in headers if pair[0].lower() in CROSS_ORIGIN_HEADERS]
    if anew:
        headers = [pair for pair in headers if not pair[0].lower().startswith("content-")]
    return headers


def http(policy: Policy, payload: bytes, deadline_s: float, resolve: Resolve = resolve_host) -> bytes:
    """One request with its redirects: JSON {status, ok, headers} NUL body."""
    head, _, body = payload.partition(b"\0")
    request = json.loads(head)
    method = str(request.get("method", "GET")).upper()
    if method not in METHODS:
        raise ToolError(f"http: method {method[:16]} is not one of {', '.join(sorted(METHODS))}")
    deadline = Deadline(min(deadline_s, time.monotonic() + _timeout_s(request.get("timeout_s"))))
    headers = _headers(request.get("headers"))
    target = target_of(_with_params(str(request.get("url", "")), request.get("params")), policy.allow_hosts)
    try:
        for _ in range(MAX_REDIRECTS + 1):
            reply = _once(method, target, headers, body, deadline, resolve)
            if not reply.location:
                answer = {"status": reply.status, "ok": 200 <= reply.status < 300, "headers": reply.headers}
                return orjson.dumps(answer) + b"\0" + reply.body
            following = redirected(target, reply.location, policy.allow_hosts)
            anew = _asks_anew(reply.status, method)
            headers = _for_redirect(headers, same_origin=following.origin == target.origin, anew=anew)
            if anew:
                method, body = "HEAD" if method == "HEAD" else "GET", b""
            elif body:
                _check_host(method, target, following)
            target = following
    except LATE as error:
        raise ToolError(f"HTTP {method} {shown(target.url)} failed: timed out") from error
    except FAILURES as error:
        raise ToolError(f"HTTP {method} {shown(target.url)} failed: {reason(error)}") from error
    raise ToolError(f"HTTP {method} {shown(target.url)} failed: more than {MAX_REDIRECTS} redirects")


def _asks_anew(status: int, method: str) -> bool:
    """Whether what lies behind a redirect is asked for, not sent to."""
    return status == 303 or (status in (301, 302) and method == "POST")


def _timeout_s(wanted: JSON) -> float:
    return float(wanted) if is_number(wanted) and wanted > 0 else DEFAULT_TIMEOUT_S


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


def _once(
    method: str,
    target: Target,
    headers: list[tuple[str, str]],
    body: bytes,
    deadline: Deadline,
    resolve: Resolve,
) -> Reply:
    named = {name.lower() for name, _ in headers}
    ours = (("Accept", "*/*"), ("Accept-Encoding", "gzip"), ("User-Agent", "ctx-script"))
    lines = [*(pair for pair in ours if pair[0].lower() not in named), *headers]
    encoded = [(name.encode(), value.encode("utf-8", "replace")) for name, value in lines]
    content = body if body or method in ("POST", "PUT", "PATCH") else None
    with open_pool(target, deadline, resolve) as pool:
        return exchange(pool, method, target, encoded, deadline, MAX_RESPONSE_BYTES, content=content)


# -- files ---------------------------------------------------------------------------------------------------

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# A FIFO opens at once, and is then refused.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_SCRIPTS = ("tools", "agents")  # of a `.ctx`: the rest is the memories of every bank, and the keys


def fs_read(policy: Policy, payload: bytes) -> bytes:
    """A file's bytes. Only regular files below a root, reached without following a link."""
    descriptor = _open_beneath(policy, payload, folder=False)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ToolError("fs.read: that is not a regular file")
        if status.st_size > MAX_FILE_BYTES:
            raise ToolError(f"fs.read: the file is larger than {MAX_FILE_BYTES:,} bytes")
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise ToolError(f"fs.read: the file is larger than {MAX_FILE_BYTES:,} bytes")
    return data


def _listed(descriptor: int, prefix: str, name: str) -> JSON:
    """The row of an entry of a folder; None of a link, and of what was deleted since it was listed."""
    if sound(name) != name:
        return None  # a name that is not UTF-8 cannot be said in JSON
    try:
        status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except FileNotFoundError:
        return None
    if stat.S_ISLNK(status.st_mode):
        return None
    row: JSON = {"path": prefix + name, "name": name, "size": status.st_size}
    return row | {"modified": int(status.st_mtime), "dir": stat.S_ISDIR(status.st_mode)}


def fs_list(policy: Policy, payload: bytes) -> bytes:
    """One folder, by name: JSON [{path, name, size, modified, dir}]. `path` is what `fs.read` takes."""
    request = json.loads(payload)
    folder = str(request.get("dir", ".")) or "."
    fits = _glob_test(request.get("glob"))
    prefix = "" if folder in (".", "./") else f"{folder.rstrip('/')}/"
    descriptor = _open_beneath(policy, folder.encode("utf-8", "surrogateescape"), folder=True)
    rows: list[JSON] = []
    try:
        for name in filter(fits, sorted(os.listdir(descriptor))):
            row = _listed(descriptor, prefix, name)
            if row is None:
                continue
            rows.append(row)
            if len(rows) > MAX_LISTED:
                raise ToolError(
                    f"fs.list: the folder holds more than {MAX_LISTED:,} entries; narrow it with a glob"
                )
    finally:
        os.close(descriptor)
    return json.dumps(rows).encode()


def _glob_test(glob: JSON) -> Callable[[str], object]:
    """Whether a name fits a script's glob (`*`, `?`, `[...]`); every name where there is none. Raises
    `ToolError`.

    `fnmatch` makes a regular expression that never tries a star twice, so a match costs the glob's length
    times the name's.
    """
    if not glob:
        return bool
    if not isinstance(glob, str) or len(glob) > MAX_GLOB_CHARS:
        raise ToolError(f"fs.list: a glob is text of at most {MAX_GLOB_CHARS} characters")
    return re.compile(fnmatch.translate(glob)).match


def _steps(root: str, below: str, operation: str) -> list[str]:
    """The parts of a path below a root. Raises `ToolError` if it leads out, or into what is withheld."""
    parts = [part for part in below.split("/") if part not in ("", ".")]
    if ".." in parts:
        raise ToolError(f"{operation}: the path leads out of the script's folders")
    if ".git" in map(str.lower, parts) or _in_store([*root.split("/"), *parts]):
        raise _withheld(operation)
    return parts


def _open_beneath(policy: Policy, payload: bytes, *, folder: bool) -> int:
    """A descriptor of a path below a root, component by component: a link put there leads nowhere."""
    operation = "fs.list" if folder else "fs.read"
    if b"\0" in payload or len(payload) > 4096:
        raise ToolError(f"{operation}: that is not a path")
    path = os.fsdecode(payload)
    root, below = _root_of(policy, path, operation)
    parts = _steps(root, below, operation)
    try:
        return _descend(policy, root, parts, operation)
    except OSError as error:
        text = path[:120].encode("utf-8", "backslashreplace").decode()
        raise ToolError(f"{operation}: {os.strerror(error.errno or 0)}: {text}") from error


def _descend(policy: Policy, root: str, parts: list[str], operation: str) -> int:
    """A descriptor of what lies below a folder, each part opened in the one before."""
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    last = _FOLDER if operation == "fs.list" else _FILE
    try:
        for number, part in enumerate(parts, 1):
            status = os.fstat(descriptor)
            if policy.withheld((status.st_dev, status.st_ino), part):
                raise _withheld(operation)
            following = os.open(part, last if number == len(parts) else _FOLDER, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = following
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _withheld(operation: str) -> ToolError:
    return ToolError(f"{operation}: what is in .ctx and .git, and the store, is no script's to read")


def _in_store(parts: Sequence[str]) -> bool:
    """Whether a path is, or is in, a folder `.ctx`, and not among the scripts there."""
    return any(
        part.lower() == ".ctx" and following.lower() not in _SCRIPTS
        for part, following in zip(parts, [*parts[1:], ""], strict=True)
    )


def _root_of(policy: Policy, path: str, operation: str) -> tuple[str, str]:
    if not policy.roots:
        raise ToolError(f"{operation}: the script has no folder to read")
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
    """A variable that the operator listed; null for any other: which exist cannot be found out."""
    name = payload.decode("utf-8", "replace")
    value = environ.get(name) if name in policy.env else None
    return orjson.dumps(None if value is None else value.encode("utf-8", "replace").decode())


_LEVELS = {b"debug": logging.DEBUG, b"info": logging.INFO, b"warn": logging.WARNING, b"error": logging.ERROR}


def log(policy: Policy, payload: bytes) -> bytes:
    """One line in the server's log, under the script's name."""
    level, _, message = payload.partition(b"\0")
    logger.log(_LEVELS.get(level, logging.INFO), "[%s] %s", policy.name, message.decode("utf-8", "replace"))
    return b""
