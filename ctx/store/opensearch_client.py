"""A client for the nodes of an OpenSearch: JSON over HTTP, by httpcore, which ctx has anyway.

Everything that is asked of it may be asked twice with the same effect (documents carry external versions), so
that whatever fails on the way is sent again, to the next node.
"""

import base64
import json
import logging
import math
import ssl
import threading
import time
from collections.abc import Callable, Sequence, Set
from contextlib import ContextDecorator
from typing import NamedTuple
from urllib.parse import SplitResult, unquote, urlsplit

import httpcore

from ctx import __version__
from ctx.errors import Busy, ConfigError, StoreError
from ctx.hosts import url_host
from ctx.types import JSON

logger = logging.getLogger(__name__)

OLDEST = 3  # the main version: before it, scores have another factor
_PAUSE_S = 0.1  # before the second try; doubled with each
_LONGEST_PAUSE_S = 5.0
_SPARED_S = 10.0  # for which a node that did not answer is asked last
_AGAIN = frozenset({429, 502, 503, 504})
_PHASES = ("connect", "read", "write", "pool")  # of a request, for which httpcore waits
_NO_INDEX = "index_not_found_exception"
_LINES = "application/x-ndjson"
_CONNECTIONS = 64
MAX_REPLY_BYTES = 256 << 20  # twice what a node takes in one request
_PATIENCE = 6.0  # times the time of an answer, for what writes: a refresh builds graphs
HURRY_S = 1.0  # for an answer of each node, where nobody waits for one that does not come
_TOLD_CHARS = 300  # of a reason that the server gives
_NO_TLS = "WRONG_VERSION_NUMBER"  # how TLS fails where something else is spoken
_UNKNOWN_HOST = ("Name or service not known", "nodename nor servname", "No address associated")


class Access(NamedTuple):
    """How the nodes are reached. `urls` without users; `timeout_s` of one try; `ca_file`: whom to trust
    instead of the system.
    """

    urls: tuple[str, ...]
    user: str | None = None
    password: str | None = None
    api_key: str | None = None
    ca_file: str | None = None
    timeout_s: float = 10.0
    retries: int = 6

    @property
    def authorization(self) -> str | None:
        if self.api_key:
            return f"ApiKey {self.api_key}"
        if self.user is None:
            return None
        pair = f"{self.user}:{self.password or ''}".encode()
        return f"Basic {base64.b64encode(pair).decode()}"


def node_urls(text: str) -> tuple[tuple[str, ...], str | None, str | None]:
    """The addresses in a comma-separated list, and the user and password in the first that has them. Raises
    `ConfigError`.
    """
    addresses = [_address(part) for part in map(str.strip, text.split(",")) if part]
    if not addresses:
        raise ConfigError("[index] url: is empty; write https://host:9200, several with commas")
    named = next((address for address in addresses if address.username is not None), None)
    urls = tuple(map(_node_url, addresses))
    if named is None:
        return urls, None, None
    return urls, unquote(named.username or ""), unquote(named.password or "")


def _address(text: str) -> SplitResult:
    try:
        address = urlsplit(text)
        _ = address.port  # raises where it is none
    except ValueError as error:
        raise ConfigError(
            "[index] url: not an address; write https://host:9200, several with commas"
        ) from error
    if address.scheme not in ("http", "https") or not address.hostname:
        raise ConfigError("[index] url: write https://host:9200 (or http://), several with commas between")
    return address


def _node_url(address: SplitResult) -> str:
    host = url_host(address.hostname or "")
    return f"{address.scheme}://{host}:{address.port or 9200}{address.path.rstrip('/')}"


class Refusal(StoreError):
    """A reply that is an error. `kind` is the server's word for it (`index_not_found_exception`)."""

    def __init__(self, message: str, status: int, kind: str, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.reason = reason


class reading(ContextDecorator):
    """A block, or a function, that reads replies: one of another shape than OpenSearch gives, as of what
    stands before it and answers in its place, is raised as `StoreError`.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, LookupError | TypeError | AttributeError | ValueError | OverflowError):
            logger.warning("search engine gives a reply of another shape reason=%r", error)
            raise StoreError(
                "[index] url answers otherwise than OpenSearch does: is it one, and what is in front of it?"
            ) from error


def score(hit: JSON) -> float:
    """How well a hit fits. Raises `ValueError` and the like where it is no number that can be sorted."""
    number = float(hit["_score"])
    if not math.isfinite(number):
        raise ValueError(f"a score of {number}")
    return number


def _passing(status: int, content: bytes) -> bool:
    """Whether another try may go better: there was no room, or a node went away under a search."""
    return status in _AGAIN or (status == 500 and b'"search_phase_execution_exception"' in content)


class Client:
    """Asks whichever node answers. Safe from several threads. Raises `StoreError`, `Refusal`, `Busy`."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._lock = threading.Lock()
        self._pool: httpcore.ConnectionPool | None = None
        self._spared: dict[str, float] = {}  # node -> until when it is asked last
        self._turn = 0
        self._checked = False
        self._headers = [(b"User-Agent", f"ctx/{__version__}".encode()), (b"Accept", b"application/json")]
        if access.authorization:
            self._headers.append((b"Authorization", access.authorization.encode()))

    def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    def ask(
        self,
        method: str,
        path: str,
        body: JSON = None,
        *,
        missing: bool = False,
        slow: bool = False,
    ) -> JSON:
        """The reply to a request. `missing`: None where there is no such index, alias or document. `slow`: it
        may take its time.
        """
        content = None if body is None else json.dumps(body, separators=(",", ":")).encode()
        return self._answer(method, path, content, "application/json", missing=missing, slow=slow)

    def send(self, path: str, lines: str) -> JSON:
        """The reply to a request of many lines of JSON (`_bulk`)."""
        return self._answer("POST", path, lines.encode(), _LINES, slow=True)

    def search_all(self, searches: Sequence[tuple[JSON, JSON]]) -> list[JSON]:
        """The replies to searches, each a header and a body, in one request."""
        lines = "".join(f"{json.dumps(part)}\n" for search in searches for part in search).encode()
        return self._all(
            "/_msearch", lines, _LINES, ("responses", len(searches)), lambda reply: "error" in reply
        )

    def documents(self, addresses: Sequence[JSON], *, hurried: bool = False) -> list[JSON]:
        """The replies of `_mget`. A document is not there where it or its index is missing; one whose shard
        is on no node may be.
        """

        def lost(reply: JSON) -> bool:
            return "error" in reply and reply["error"].get("type") != _NO_INDEX

        content = json.dumps({"docs": addresses}).encode()
        about = ("docs", len(addresses))
        return self._all("/_mget", content, "application/json", about, lost, hurried=hurried)

    @reading()
    def _all(
        self,
        path: str,
        content: bytes,
        kind: str,
        about: tuple[str, int],
        failed: Callable[[JSON], bool],
        *,
        hurried: bool = False,
    ) -> list[JSON]:
        """The replies to what goes in one request, all of it again where one fails that may go better.
        `about`: under which key they are, and how many.
        """
        key, count = about
        pause_s = _PAUSE_S
        for tries_left in reversed(range(1 if hurried else self._access.retries + 1)):
            replies: list[JSON] = self._answer("POST", path, content, kind, hurried=hurried)[key]
            if len(replies) != count:
                raise ValueError(f"{len(replies)} replies to {count}")
            failures = [reply for reply in replies if failed(reply)]
            if not failures:
                return replies
            for reply in failures:
                status = reply.get("status", 503)  # `_mget` has none
                if not tries_left or not _passing(status, json.dumps(reply["error"]).encode()):
                    raise refusal(status, reply["error"])
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    @reading()
    def version(self, *, hurried: bool = False) -> str:
        """The server's version, checked once.
        Raises `StoreError` where it is no OpenSearch that ctx knows.
        """
        about = self._answer("GET", "/", None, "application/json", checked=True, hurried=hurried)
        version = about.get("version", {}) if isinstance(about, dict) else {}
        number = str(version.get("number", ""))
        major = number.partition(".")[0]
        if version.get("distribution") != "opensearch":
            raise StoreError("[index] url is no OpenSearch: name the address of one (https://host:9200)")
        if not major.isdigit() or int(major) < OLDEST:
            raise StoreError(f"[index] url is OpenSearch {number}, and ctx needs {OLDEST}.0 or newer")
        self._checked = True
        return number

    def _answer(
        self,
        method: str,
        path: str,
        content: bytes | None,
        kind: str,
        *,
        missing: bool = False,
        checked: bool = False,
        slow: bool = False,
        hurried: bool = False,
    ) -> JSON:
        if not checked and not self._checked:
            self.version(hurried=hurried)
        timeout_s = self._access.timeout_s * (_PATIENCE if slow else 1)
        tries = self._access.retries + 1
        if hurried:
            timeout_s, tries = HURRY_S, len(self._access.urls)
        status, data = self._exchange(method, path, content, kind, timeout_s, tries)
        reply = _parsed(status, data)
        if status < 400:
            return reply
        if status == 404 and missing:
            return None
        raise refusal(status, reply.get("error") if isinstance(reply, dict) else reply)

    def _exchange(
        self, method: str, path: str, content: bytes | None, kind: str, timeout_s: float, tries: int
    ) -> tuple[int, bytes]:
        """Status and body of the first answer that is one; asked again, of the next node, until the tries
        are used up, or every node was asked and the time of one answer has passed: who hangs, hangs.
        """
        headers = [*self._headers]
        if content is not None:
            headers.append((b"Content-Type", kind.encode()))
        limits = {**dict.fromkeys(_PHASES, timeout_s), "connect": min(timeout_s, self._access.timeout_s)}
        pause_s = _PAUSE_S
        end_s = time.monotonic() + timeout_s
        tried_urls: set[str] = set()
        for tries_left in reversed(range(tries)):
            url = self._node(tried_urls)
            tried_urls.add(url)
            try:
                with self._open_pool().stream(
                    method, url + path, headers=headers, content=content, extensions={"timeout": limits}
                ) as reply:
                    data = _read(reply, _PATIENCE * timeout_s)
                if not _passing(reply.status, data) or not tries_left:
                    return reply.status, data
            except (httpcore.NetworkError, httpcore.ProtocolError, httpcore.TimeoutException) as error:
                now_s = time.monotonic()
                self._spared[url] = now_s + _SPARED_S
                timed_out = now_s >= end_s and tried_urls.issuperset(self._access.urls)
                if not tries_left or timed_out or _hopeless(error):
                    logger.warning(
                        "search engine does not answer node=%s reason=%s", _host(url), _reason(error)
                    )
                    raise StoreError(_unreachable(error)) from error
                if any(node not in self._spared for node in self._access.urls):
                    continue  # another one may be well
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")

    def _node(self, tried_urls: Set[str]) -> str:
        """The next node in turn: one that was not asked yet, if there is one, and none that failed lately, if
        there is another.
        """
        now_s = time.monotonic()
        with self._lock:
            for url in [url for url, until_s in self._spared.items() if until_s < now_s]:
                del self._spared[url]
            self._turn += 1
            urls = [url for url in self._access.urls if url not in tried_urls] or self._access.urls
            urls = [url for url in urls if url not in self._spared] or urls
            return urls[self._turn % len(urls)]

    def _open_pool(self) -> httpcore.ConnectionPool:
        with self._lock:
            if self._pool is None:
                secured = any(url.startswith("https:") for url in self._access.urls)
                self._pool = httpcore.ConnectionPool(
                    ssl_context=_tls(self._access.ca_file) if secured else None,
                    max_connections=_CONNECTIONS,
                    keepalive_expiry=30.0,
                )
            return self._pool


def _read(reply: httpcore.Response, within_s: float) -> bytes:
    """The body of a reply. Raises `StoreError` for one that is too large, and `httpcore.ReadTimeout` where it
    does not end `within_s` from now: each of its pieces may come in time.
    """
    ends_s = time.monotonic() + within_s
    body = bytearray()
    for piece in reply.iter_stream():
        body += piece
        if len(body) > MAX_REPLY_BYTES:
            raise StoreError(
                f"[index] url gives a reply of more than {MAX_REPLY_BYTES >> 20} MiB: is it an OpenSearch?"
            )
        if time.monotonic() > ends_s:
            raise httpcore.ReadTimeout("the reply did not end in time")
    return bytes(body)


_MEANINGS = {
    401: "OpenSearch refuses the credentials: set [index] api_key, or user and password in its url",
    403: "OpenSearch refuses this to the user of [index]: grant it its indices (`NAME-*`)",
    **dict.fromkeys((502, 503, 504), "OpenSearch cannot answer just now: shards or nodes of it are missing"),
}


def _parsed(status: int, data: bytes) -> JSON:
    try:
        return json.loads(data) if data else None
    except (ValueError, RecursionError) as error:
        if status >= 400:
            raise refusal(status, data[:_TOLD_CHARS].decode("utf-8", "replace")) from error
        raise StoreError(
            "[index] url answers with something that is not JSON: is it an OpenSearch?"
        ) from error


def _first_cause(details: dict[str, JSON]) -> JSON:
    causes = details.get("root_cause")
    cause: JSON = causes[0] if isinstance(causes, list) and causes else details
    return cause.get("reason") if isinstance(cause, dict) else cause


def _told_reason(details: dict[str, JSON]) -> str:
    """Why, in the server's words: its first cause, and what that was caused by."""
    reason = str(_first_cause(details) or details.get("reason") or "")[:_TOLD_CHARS]
    nested = details.get("caused_by")
    if isinstance(nested, dict) and nested.get("reason"):
        reason += f" ({nested['reason']})"[:_TOLD_CHARS]
    return reason


def refusal(status: int, error: JSON) -> StoreError:
    """An error of the server as ours, with the mend."""
    details: dict[str, JSON] = error if isinstance(error, dict) else {"reason": str(error)}
    kind, reason = str(details.get("type") or ""), _told_reason(details)
    if _read_only(status, kind):
        message = (
            "OpenSearch has made the index read only, most often for want of room on a disk: free some, "
            "then lift the block (index.blocks.read_only_allow_delete)"
        )
    elif status == 429:
        return Busy("OpenSearch has too much to do: try again")
    elif status in _MEANINGS:
        message = _MEANINGS[status]
    else:
        message = "OpenSearch could not answer: see the log"
        logger.warning("search engine refuses status=%d kind=%s reason=%s", status, kind, reason)
    return Refusal(message, status, kind, reason)


def _read_only(status: int, kind: str | None) -> bool:
    """Whether an index takes no writes until somebody frees room: 429 then, as where a moment helps. Of a
    cluster that has no manager yet the same is said with 503.
    """
    return kind == "cluster_block_exception" and status != 503


@reading()
def check_items(reply: JSON) -> list[int]:
    """The positions of a bulk's items that are to be sent again. Raises the first error that is final.

    409 is a newer version in place, 404 a deletion of what is gone: both are as they should be.
    """
    refused: list[int] = []
    for position, item in enumerate(reply["items"] if reply.get("errors") else ()):
        entry = next(iter(item.values()))
        status, error = entry["status"], entry.get("error")
        if status in _AGAIN and not _read_only(status, (error or {}).get("type")):
            refused.append(position)
        elif status >= 400 and status != 409 and (error or status != 404):
            raise refusal(status, error)  # of 404: not the document is missing, but the index
    return refused


def _tls(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[index] ca_file: no certificates can be read there ({_reason(error)})") from error


def _hopeless(error: Exception) -> bool:
    """Whether asking again leads nowhere: a certificate stays what it is, and so does who speaks no TLS."""
    return any(sign in str(error).upper() for sign in ("CERTIFICATE", _NO_TLS))


def _unreachable(error: Exception) -> str:
    text = str(error)
    if _NO_TLS in text.upper():
        return "[index] url says https, and what is there speaks no TLS: write http://, or set TLS up there"
    if _hopeless(error):
        return "the certificate of [index] url is not trusted: name its authority in [index] ca_file"
    if any(sign in text for sign in _UNKNOWN_HOST):
        return "no machine is known by the host name in [index] url: check it, or the name service"
    return "OpenSearch cannot be reached: is it running, and is [index] url its address?"


def _host(url: str) -> str:
    return urlsplit(url).netloc


def _reason(error: Exception) -> str:
    return str(error) or type(error).__name__
