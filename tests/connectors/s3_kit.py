"""A server that answers like an S3 bucket, and a scan of it."""

import http.server
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from hashlib import md5
from html import escape
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from ctx.connectors.base import ScanLog
from ctx.connectors.s3 import S3Connector
from ctx.errors import SourceError

SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
KEYS = {
    "AWS_ACCESS_KEY_ID": "AKIAEXAMPLE",
    "AWS_SECRET_ACCESS_KEY": SECRET,
    "AWS_EC2_METADATA_DISABLED": "true",
}


class Bucket:
    """`objects` by key. `fail_after`: so many answers, then none. `answers`: what a path is answered with
    instead. `clock` goes on by `request_s` with each request, and by nothing else.
    """

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.page = 1000
        self.fail_after = -1
        self.reads: list[str] = []
        self.headers: list[Mapping[str, str]] = []
        self.url = ""
        self.request_s = 0.0
        self._began_s = time.monotonic()

    def clock(self) -> float:
        return self._began_s + len(self.headers) * self.request_s


class _Handler(http.server.BaseHTTPRequestHandler):
    bucket: Bucket
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each answer waits 40 ms for an acknowledgement

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        bucket = self.bucket
        bucket.headers.append(dict(self.headers.items()))
        if bucket.fail_after == 0:
            self.close_connection = True
            return
        bucket.fail_after -= 1
        parts = urlsplit(self.path)
        key = unquote(parts.path.removeprefix("/docs/"), errors="surrogateescape")
        if parts.path in bucket.answers:
            status, body = bucket.answers[parts.path]
        elif parts.path == "/docs":
            status, body = 200, self._listing(parse_qs(parts.query))
        else:
            bucket.reads.append(key)
            status, body = (
                (200, bucket.objects[key]) if key in bucket.objects else (404, b"<Code>NoSuchKey</Code>")
            )
        self.send_response(status)
        self.send_header("Content-Type", "binary/octet-stream")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _listing(self, query: Mapping[str, list[str]]) -> bytes:
        prefix = query.get("prefix", [""])[0]
        after = query.get("continuation-token", [""])[0]
        keys = sorted(key for key in self.bucket.objects if key.startswith(prefix) and key > after)
        page, further = keys[: self.bucket.page], keys[self.bucket.page :]
        rows = "".join(self._row(key) for key in page)
        token = ""
        if further:
            token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>"
        return (
            '<?xml version="1.0" encoding="UTF-8"?><ListBucketResult '
            'xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
            f"<IsTruncated>{'true' if further else 'false'}</IsTruncated>{token}{rows}</ListBucketResult>"
        ).encode()

    def _row(self, key: str) -> str:
        body = self.bucket.objects[key]
        etag = md5(body, usedforsecurity=False).hexdigest()
        name = quote(key.encode("utf-8", "surrogateescape"), safe="/").replace("%20", "+")
        return (
            f"<Contents><Key>{name}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
            f"<ETag>&quot;{etag}&quot;</ETag><Size>{len(body)}</Size></Contents>"
        )


@contextmanager
def serving() -> Iterator[Bucket]:
    bucket = Bucket()
    handler = type("Handler", (_Handler,), {"bucket": bucket})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.daemon_threads = True
        bucket.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield bucket
        finally:
            server.shutdown()
            thread.join()


def connector(bucket: Bucket | str, **options: Any) -> S3Connector:
    url = bucket if isinstance(bucket, str) else bucket.url
    return S3Connector("s3:docs", "docs", **{"endpoint_url": url, **options})


class Scan:
    """A scan read to its end, as an index run does."""

    def __init__(self, source: S3Connector, indexed: Mapping[str, str] | None = None) -> None:
        self.log = ScanLog()
        self.data: dict[str, bytes | str] = {}
        self.urls: dict[str, str | None] = {}
        self.known = {}
        for item in source.scan(indexed or {}, self.log):
            try:
                content = item.read()
            except SourceError as error:
                self.log.problem(item.source_id, error.message)
                continue
            self.known[item.source_id] = item.fingerprint
            self.data[item.source_id] = content.data
            self.urls[item.source_id] = content.source_url
        self.known |= {source_id: (indexed or {})[source_id] for source_id in self.log.unchanged}

    @property
    def ids(self) -> set[str]:
        return set(self.data)

    @property
    def problems(self) -> dict[str, str]:
        return {problem.source_id: problem.message for problem in self.log.problems}
