"""Sends requests to the nodes of an OpenSearch cluster, through opensearch-py.

The library distributes requests over the nodes and skips a node that fails. Every request of ctx can be sent
twice with the same effect (documents have external versions), so failed requests are sent again.
"""

import base64
import json
import logging
import ssl
import time
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from opensearchpy import OpenSearch
from opensearchpy.exceptions import (
    ConnectionError,
    ConnectionTimeout,
    SerializationError,
    SSLError,
    TransportError,
)
from opensearchpy.helpers import streaming_bulk

from ctx import __version__
from ctx.config.settings import Index
from ctx.errors import Busy, ConfigError, StoreError
from ctx.models import JSON

logger = logging.getLogger(__name__)

OLDEST = 3  # the oldest supported major version; in older versions, scores have another factor
HURRY_S = 1.0  # the time limit of a health probe, for each node
_SLOW = 6.0  # the time limit is this many times longer for requests that write: a refresh builds graphs
_PAUSE_S = 0.1  # the pause before the second attempt; it doubles with each attempt
_LONGEST_PAUSE_S = 5.0
_SPARED_S = 10.0  # how long a node that failed is skipped
_CONNECTIONS = 64  # the largest number of connections to each node
BULK_BYTES = 4 << 20  # the largest size of a bulk request
BULK_RETRIES = 5  # how often a write is repeated while the server is busy, for example with merging graphs
BULK_PAUSE_S = 1  # the pause before the first repetition; it doubles with each
_AGAIN = frozenset({429, 502, 503, 504})
_INTERRUPTED = "search_phase_execution_exception"
_MEANINGS = {
    401: "OpenSearch refuses the credentials: set [index] api_key, or user and password in its url",
    403: "OpenSearch refuses this to the user of [index]: grant it its indices (`NAME-*`)",
    **dict.fromkeys((502, 503, 504), "OpenSearch cannot answer just now: shards or nodes of it are missing"),
}
_UNKNOWN_HOST = ("Name or service not known", "nodename nor servname", "No address associated")


def node_addresses(text: str) -> tuple[list[dict[str, JSON]], tuple[str, str] | None]:
    """(the nodes in a comma-separated list of URLs, the first user and password in it or None). A node is
    given as arguments for opensearch-py. Raises `ConfigError`.
    """
    nodes: list[dict[str, JSON]] = []
    credentials = None
    for part in filter(None, map(str.strip, text.split(","))):
        try:
            address = urlsplit(part)
            port = address.port or 9200
        except ValueError:
            address, port = urlsplit(""), 0
        if address.scheme not in ("http", "https") or not address.hostname:
            raise ConfigError(
                "[index] url: write https://host:9200 (or http://), several with commas between"
            )
        secured, prefix = address.scheme == "https", address.path.rstrip("/")
        nodes.append({"host": address.hostname, "port": port, "use_ssl": secured, "url_prefix": prefix})
        if credentials is None and address.username is not None:
            credentials = unquote(address.username), unquote(address.password or "")
    if not nodes:
        raise ConfigError("[index] url: is empty; write https://host:9200, several with commas")
    return nodes, credentials


class Refusal(StoreError):
    """An error that the server sent as its reply. `status` is the HTTP status, and `kind` the server's name
    for the error, such as `index_not_found_exception`.
    """

    def __init__(self, message: str, status: int, kind: str, reason: str) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.reason = reason


class Client:
    """Sends requests to the nodes of an OpenSearch cluster. Safe to use from several threads. Raises
    `StoreError`, `Refusal`, `Busy`.
    """

    def __init__(self, settings: Index) -> None:
        """Raises `ConfigError` if the URL is not valid or the certificate cannot be read."""
        nodes, credentials = node_addresses(settings.url or "")
        self._timeout_s = settings.timeout_secs
        self._retries = settings.max_retries
        self._checked = False
        headers = {"user-agent": f"ctx/{__version__}"}
        if settings.api_key:
            headers["authorization"] = f"ApiKey {settings.api_key}"
        elif credentials is not None:  # not by `http_auth`, which encodes them as Latin-1
            pair = base64.b64encode(":".join(credentials).encode())
            headers["authorization"] = f"Basic {pair.decode()}"
        self.engine = OpenSearch(
            nodes,
            headers=headers,
            ssl_context=_tls(settings.ca_file) if any(node["use_ssl"] for node in nodes) else None,
            timeout=settings.timeout_secs,
            max_retries=len(nodes) - 1,  # tries each node once; `ask` tries again after a pause
            retry_on_timeout=True,
            pool_maxsize=_CONNECTIONS,
            dead_timeout=_SPARED_S,
        )

    def close(self) -> None:
        self.engine.close()

    def write(self, alias: str, actions: Iterable[dict[str, JSON]]) -> None:
        """Writes and deletes documents, with a few megabytes per request. Writes that a busy server rejects
        are repeated for half a minute. Raises the first permanent error.

        Status 409 (a newer version exists) and 404 (a document to delete is already gone) are no errors.
        """
        if not self._checked:
            self.version()
        try:
            for _, item in streaming_bulk(
                self.engine,
                actions,
                index=alias,
                require_alias=True,
                max_chunk_bytes=BULK_BYTES,
                raise_on_error=False,
                max_retries=BULK_RETRIES,
                initial_backoff=BULK_PAUSE_S,
                max_backoff=20,
                request_timeout=self._timeout_s * _SLOW,
            ):
                entry = next(iter(item.values()))
                status, error = entry["status"], entry.get("error")
                if status >= 400 and status != 409 and (error or status != 404):
                    raise refusal(status, error)  # 404 with an error: the index is missing
        except ConnectionError as error:
            raise StoreError(_unreachable(error)) from error
        except TransportError as error:
            raise refusal(*_details(error)) from error

    def search_all(self, searches: Sequence[tuple[JSON, JSON]]) -> list[JSON]:
        """The replies to several searches (header, body), which are sent in one request."""
        lines = "".join(f"{json.dumps(part)}\n" for search in searches for part in search)
        replies: list[JSON] = self.ask("POST", "/_msearch", lines)["responses"]
        return replies

    def version(self, *, hurried: bool = False) -> str:
        """The server's version. Raises `StoreError` if the server is not an OpenSearch that ctx supports."""
        about = self.ask("GET", "/", hurried=hurried, checked=True)
        version = about.get("version", {}) if isinstance(about, dict) else {}
        number = str(version.get("number", ""))
        major = number.partition(".")[0]
        if version.get("distribution") != "opensearch":
            raise StoreError("[index] url is no OpenSearch: name the address of one (https://host:9200)")
        if not major.isdigit() or int(major) < OLDEST:
            raise StoreError(f"[index] url is OpenSearch {number}, and ctx needs {OLDEST}.0 or newer")
        self._checked = True
        return number

    def ask(
        self,
        method: str,
        path: str,
        body: JSON = None,
        *,
        missing: bool = False,
        slow: bool = False,
        hurried: bool = False,
        checked: bool = False,
    ) -> JSON:
        """The reply to a request. The request is sent again after a pause if it fails with a temporary error,
        or if one of several searches in it does.

        With `missing`, the reply is None if the index, alias or document does not exist. `slow` allows more
        time, and `hurried` only one attempt of one second. With `checked`, the server's version is not
        checked first.
        """
        if not (checked or self._checked):
            self.version(hurried=hurried)
        kind = "application/x-ndjson" if isinstance(body, str) else "application/json"
        timeout_s = HURRY_S if hurried else self._timeout_s * (_SLOW if slow else 1)
        pause_s = _PAUSE_S
        for tries_left in reversed(range(1 if hurried else self._retries + 1)):
            try:
                reply = self.engine.transport.perform_request(
                    method, path, body=body, timeout=timeout_s, headers={"content-type": kind}
                )
                searches = reply.get("responses", ()) if isinstance(reply, dict) else ()
                failed = next((search for search in searches if "error" in search), None)
                if failed is None:
                    return reply
                status, details = failed["status"], failed["error"]
            except SerializationError as error:
                raise StoreError(
                    "[index] url answers with something that is not JSON: is it an OpenSearch?"
                ) from error
            except ConnectionError as error:
                if not tries_left or _hopeless(error):
                    raise StoreError(_unreachable(error)) from error
                status, details = 503, None
            except TransportError as error:
                status, details = _details(error)
            if missing and status == 404:
                return None
            # Temporary: the server is busy, or a node failed during a search.
            interrupted = isinstance(details, dict) and details.get("type") == _INTERRUPTED
            if not (tries_left and (status in _AGAIN or (status == 500 and interrupted))):
                raise refusal(status, details)
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        raise AssertionError("unreachable")


def refusal(status: int, error: JSON) -> StoreError:
    """The `StoreError` to raise for an error of the server, with advice in its message."""
    details: dict[str, JSON] = error if isinstance(error, dict) else {"reason": str(error)}
    kind, reason = str(details.get("type") or ""), str(details.get("reason") or "")[:300]
    # With status 503, the same error means that the cluster has no manager, which is temporary.
    if kind == "cluster_block_exception" and status != 503:
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


def _details(error: TransportError) -> tuple[int, JSON]:
    """(the HTTP status of an error reply, the server's description of the error)."""
    info = error.info
    return int(error.status_code), info.get("error") if isinstance(info, dict) else error.error


def _tls(ca_file: str | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"[index] ca_file: no certificates can be read there ({error})") from error


def _hopeless(error: ConnectionError) -> bool:
    """Whether a retry is useless: the nodes did not answer in time, or the address or certificate is
    wrong.
    """
    signs = ("timed out", *_UNKNOWN_HOST)
    return isinstance(error, ConnectionTimeout | SSLError) or any(sign in str(error) for sign in signs)


def _unreachable(error: ConnectionError) -> str:
    text = str(error)
    if "WRONG_VERSION_NUMBER" in text.upper():
        return "[index] url says https, and the server there has no TLS: write http://, or set TLS up there"
    if isinstance(error, SSLError):
        return "the certificate of [index] url is not trusted: name its authority in [index] ca_file"
    if any(sign in text for sign in _UNKNOWN_HOST):
        return "no machine has the host name in [index] url: check it, or the name service"
    return "OpenSearch cannot be reached: is it running, and is [index] url its address?"
