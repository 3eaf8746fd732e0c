"""A bucket of an S3-compatible store as a source: the objects below a prefix that match the globs.

The whole bucket is listed, but only new and changed objects are read: the fingerprint is the ETag and the
size. Credentials are never in a message or a log.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, unquote_plus, urlencode, urlsplit
from xml.etree.ElementTree import Element

from ctx.clock import parse_ms
from ctx.connectors.base import (
    EMPTY_IS_SUSPECT,
    EVERY_TEXT,
    GOES_ON,
    KEPT,
    ScanLog,
    encode_name,
    section_of,
    too_large,
)
from ctx.connectors.defaults import MAX_FILE_BYTES
from ctx.connectors.scope import Scope, Scopes
from ctx.connectors.session import Session, Unanswered
from ctx.errors import ConfigError, SourceError
from ctx.formats.package import parse_xml
from ctx.lua.fetch import Reply
from ctx.models import Content, SourceItem, outline
from ctx.text.strings import one_line

# Increased when a new version of ctx selects or reads objects differently with the same configuration.
SCAN_FORMAT = 3
MAX_LISTING_BYTES = 20_000_000  # maximum size of a page of a listing; a page has up to a thousand keys
REQUEST_S = 60.0
# Maximum pages per listing, which are twenty million keys; stops an endless series of empty pages.
MAX_PAGES = 20_000
ATTEMPTS = 3  # attempts per request, if the store is busy
SILENCES = 5  # requests in a row without an answer, after which the scan stops
_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}")
_REGION = re.compile(r"[A-Za-z0-9-]{1,64}")
_VAGUE = frozenset(
    {"", "binary/octet-stream", "application/octet-stream", "application/x-www-form-urlencoded"}
)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class _Object(NamedTuple):
    key: str
    etag: str
    size: int
    modified_ms: int


class _Late(SourceError):
    """The scan took longer than `timeout_s`."""

    def __init__(self) -> None:
        super().__init__("the scan took longer than timeout_s")


@dataclass(eq=False, repr=False)
class S3Connector:
    """The objects of a bucket below `prefix`. Ids are keys, without the prefix if it ends with `/`.

    `endpoint_url` None is AWS. `region` and `profile` None are taken from the environment and ~/.aws.
    `anonymous` sends unsigned requests. After `timeout_s` a scan stops and keeps what it has read. Raises
    `ConfigError`.
    """

    name: str
    bucket: str
    _: KW_ONLY
    prefix: str = ""
    region: str | None = None
    endpoint_url: str | None = None
    include_globs: Sequence[str] | None = None
    exclude_globs: Sequence[str] = ()
    profile: str | None = None
    anonymous: bool = False
    max_file_bytes: int = MAX_FILE_BYTES
    timeout_s: float = 3600.0
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        section = section_of(self.name)
        if not _BUCKET.fullmatch(self.bucket):
            raise ConfigError(f"{section} bucket: {self.bucket!r} is not a valid bucket name")
        if self.region is not None and not _REGION.fullmatch(self.region):
            raise ConfigError(
                f"{section} region: {self.region!r} is not a valid region name, such as eu-central-1"
            )
        if self.endpoint_url is not None:
            if not _is_endpoint(self.endpoint_url):
                raise ConfigError(
                    f"{section} endpoint_url: must be an address such as https://minio.example.com:9000"
                )
            self.endpoint_url = self.endpoint_url.rstrip("/")

    @property
    def signature(self) -> str:
        origin = (SCAN_FORMAT, self.bucket, self.prefix, self.endpoint_url)
        globs = (self.include_globs, self.exclude_globs, self.max_file_bytes)
        return (EVERY_TEXT if self.include_globs is None else "") + outline((origin, globs))

    def scan(self, known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        """Yield new and changed objects, in the order of their keys.

        Raises `SourceError` if the listing fails for another reason than the timeout; nothing is deleted
        then.
        """
        try:
            with closing(_Store(self)) as store:
                try:
                    yield from self._changed(store, known, log)
                except _Late:
                    # If a scan read nothing new, the next one would stop at the same place.
                    advice = GOES_ON if store.reads else "raise it, or set `prefix` to read less"
                    log.break_off(f"the scan took longer than timeout_s ({self.timeout_s:g} s)", advice)
        except SourceError as error:
            reason = f"the bucket {self.bucket} cannot be read: {error.message}"
            raise SourceError(f"{self.name}: {reason}. {KEPT}") from error

    def _changed(self, store: "_Store", known: Mapping[str, str], log: ScanLog) -> Iterator[SourceItem]:
        scopes = Scopes(Scope.top(self.include_globs, self.exclude_globs), log.left_out)
        count = 0
        for row in store.objects(self.prefix):
            source_id = encode_name(row.key[len(self.prefix) :] if self.prefix.endswith("/") else row.key)
            if not source_id or source_id.endswith("/") or not scopes.takes(source_id):
                continue
            count += 1
            if log.progress:
                log.progress(f"{self.name}: objects", count, None)
            mark = f"{row.etag or row.modified_ms}-{row.size}"
            if _CONTROL.search(source_id):
                log.problem(_CONTROL.sub("?", source_id), "left out: its key contains a control character")
            elif known.get(source_id) == mark:
                log.unchanged.add(source_id)
            elif row.size > self.max_file_bytes:
                log.problem(source_id, too_large(row.size, self.max_file_bytes))
            elif store.late():
                raise _Late
            else:
                yield SourceItem(source_id, mark, row.modified_ms, partial(self._read, store, row))
        if not count and len(known) >= EMPTY_IS_SUSPECT:
            raise SourceError(
                f"it has no objects to read any more, but {len(known)} of its documents are indexed. "
                f"If it is meant to be empty, run `ctx index {self.name} --full`"
            )

    def _read(self, store: "_Store", row: _Object) -> Content:
        reply = store.read(row.key, self.max_file_bytes)
        media_type = reply.headers.get("content-type", "")
        return Content(
            reply.body,
            media_type=None if media_type.partition(";")[0].strip().lower() in _VAGUE else media_type,
            source_url=f"s3://{self.bucket}/{path_of(row.key)}",
        )


class _Signer:
    """Signs requests with the keys from AWS's chain: the environment, `profile` of ~/.aws (SSO, roles, web
    identity, `credential_process`), the container, the machine. Raises `SourceError`.
    """

    def __init__(self, profile: str | None, region: str | None) -> None:
        try:
            # An optional package, which takes 200 ms to import.
            import botocore.auth
            import botocore.awsrequest
            import botocore.exceptions
            import botocore.session
        except ImportError as error:
            raise SourceError(
                "access keys need botocore. Run pip install 'ctx-server[s3]', or set `anonymous = true` "
                "for a public bucket"
            ) from error
        logging.getLogger("botocore").setLevel(logging.INFO)  # at the level DEBUG, botocore logs tokens
        self._botocore = botocore
        with self._told():
            session = botocore.session.Session(profile=profile)
            self.region = region or _environ_region() or session.get_config_variable("region") or "us-east-1"
            self._credentials = session.get_credentials()
        if self._credentials is None:
            named = f"profile '{profile}' has no keys" if profile else "no keys were found"
            raise SourceError(
                f"{named}. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, log in (`aws sso login`), set "
                "`profile`, or set `anonymous = true` for a public bucket"
            )

    def headers(self, url: str) -> list[tuple[str, str]]:
        """The headers that sign a GET of this address."""
        with self._told():
            # The library renews these keys before they expire.
            keys = self._credentials.get_frozen_credentials()
            request = self._botocore.awsrequest.AWSRequest("GET", url)
            self._botocore.auth.S3SigV4Auth(keys, "s3", self.region).add_auth(request)
        return [(name.lower(), value) for name, value in request.headers.items()]

    @contextmanager
    def _told(self) -> Iterator[None]:
        errors = self._botocore.exceptions
        try:
            yield
        except (errors.BotoCoreError, errors.ClientError) as error:
            raise SourceError(f"no keys were found: {one_line(str(error), 300)}") from None


def _environ_region() -> str | None:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")


def path_of(key: str) -> str:
    """A key as the path of an address. Everything but letters, digits and `-._~/` is escaped."""
    return quote(key.encode("utf-8", "surrogateescape"), safe="/~")


class _Store:
    """Lists and reads the objects of one bucket, for at most `timeout_s` seconds. Close it after use."""

    def __init__(self, source: S3Connector) -> None:
        self._signer = None if source.anonymous else _Signer(source.profile, source.region)
        self._region = (
            self._signer.region if self._signer else source.region or _environ_region() or "us-east-1"
        )
        if not _REGION.fullmatch(self._region):
            raise SourceError("the environment or the profile sets a region that is not valid")
        base = source.endpoint_url
        if base is None and "." not in source.bucket:
            self._base = f"https://{source.bucket}.s3.{self._region}.amazonaws.com"
        else:
            self._base = f"{base or f'https://s3.{self._region}.amazonaws.com'}/{source.bucket}"
        self.reads = 0
        self._silences = 0
        self._listed = False  # until the first page, a timeout is an error
        self._clock = source.clock
        self._ends_s = self._clock() + source.timeout_s
        parts = urlsplit(self._base)
        # The operator named the endpoint, so it may be on a private network. AWS's own names are public.
        self._session = Session(frozenset({parts.hostname or "", parts.netloc}), self._ends_s)

    def close(self) -> None:
        self._session.close()

    def late(self) -> bool:
        """Whether the time for the whole scan is over."""
        return self._clock() >= self._ends_s

    def objects(self, prefix: str) -> Iterator[_Object]:
        """Yield all objects below a prefix. Raises `SourceError`, and `_Late` when the time is over."""
        fields = {"list-type": "2", "encoding-type": "url", "max-keys": "1000"}
        if prefix:
            fields["prefix"] = prefix
        tokens: set[int] = set()  # hashes, because tokens may be long
        for page in range(MAX_PAGES):
            if page and self.late():
                raise _Late
            reply = self._get("" if urlsplit(self._base).path else "/", fields, MAX_LISTING_BYTES)
            objects, token = _listing(reply.body)
            self._listed = True
            yield from objects
            if token is None:
                return
            if hash(token) in tokens:
                raise SourceError("the store's listing does not continue")
            tokens.add(hash(token))
            fields["continuation-token"] = token
        raise SourceError(f"its listing has more than {MAX_PAGES:,} pages; set `prefix` to read less")

    def read(self, key: str, max_bytes: int) -> Reply:
        """Request an object and return the reply, of at most `max_bytes`. Raises `SourceError`."""
        self.reads += 1
        return self._get("/" + path_of(key), {}, max_bytes)

    def _get(self, path: str, fields: Mapping[str, str], max_bytes: int) -> Reply:
        if self._silences >= SILENCES:
            raise SourceError("the store stopped answering")
        # The signature requires that the fields are sorted by name.
        query = urlencode(sorted(fields.items()), quote_via=quote)
        address = self._base + path + (f"?{query}" if query else "")
        for attempt in range(ATTEMPTS):
            try:
                headers = [] if self._signer is None else self._signer.headers(address)
                reply = self._session.get(address, headers, max_bytes, timeout_s=REQUEST_S)
            except Unanswered as error:
                if self._listed and self.late():
                    raise _Late from error
                self._silences += not error.refused
                raise
            self._silences = 0
            if reply.status not in (500, 502, 503, 504) or attempt == ATTEMPTS - 1:
                break
            time.sleep(0.2 * 2**attempt)
        if reply.status != 200:
            raise _refused(reply, self._region)
        return reply


def _is_endpoint(url: str) -> bool:
    try:
        parts = urlsplit(url)
        reachable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return reachable and not (parts.query or parts.fragment or parts.username is not None)


def _listing(body: bytes) -> tuple[list[_Object], str | None]:
    """Parse one page of a listing into (objects, token of the next page or None). Raises `SourceError`."""
    try:
        root = parse_xml(body)
        if root.tag != "ListBucketResult":
            raise ValueError(root.tag)
        objects = [_object(element) for element in root.iter("Contents")]
    except (SourceError, ValueError, LookupError) as error:
        raise SourceError("the endpoint's reply is not a listing") from error
    values = {element.tag: element.text or "" for element in root}
    if values.get("IsTruncated", "").lower() != "true":
        return objects, None
    if not values.get("NextContinuationToken"):
        raise SourceError("the store's listing does not continue")
    return objects, values["NextContinuationToken"]


def _object(element: Element) -> _Object:
    values = {child.tag: child.text or "" for child in element}
    return _Object(
        unquote_plus(values["Key"], errors="surrogateescape"),
        values.get("ETag", "").strip('"'),
        int(values.get("Size") or 0),
        parse_ms(values["LastModified"]) if values.get("LastModified") else 0,
    )


_ADVICE = {
    "NoSuchBucket": "there is no such bucket. Check `bucket` and `endpoint_url`",
    "AccessDenied": "access is denied. The keys need s3:ListBucket and s3:GetObject for it",
    "InvalidAccessKeyId": "the store does not know the access key",
    "SignatureDoesNotMatch": "the store does not accept the signature. Check the secret key and `region`",
    "ExpiredToken": "the keys have expired. Log in again",
    "RequestTimeTooSkewed": "this machine's clock is wrong",
    "NoSuchKey": "was deleted while it was being indexed",
}


_CODE = re.compile(rb"<Code>([A-Za-z0-9]{1,60})</Code>")
_REGION_THERE = re.compile(rb"<Region>([A-Za-z0-9-]{1,40})</Region>")


def _refused(reply: Reply, region: str) -> SourceError:
    """The error for a reply other than 200. It does not quote the store, which may repeat signed data."""
    matches = (form.search(reply.body[:10_000]) for form in (_CODE, _REGION_THERE))
    code, actual = (match[1].decode() if match else "" for match in matches)
    actual = reply.headers.get("x-amz-bucket-region") or actual
    if _REGION.fullmatch(actual) and actual != region:
        return SourceError(f'the bucket is in another region. Set region = "{actual}"')
    if reply.status == 403 and not code:
        code = "AccessDenied"
    return SourceError(_ADVICE.get(code) or f"the store answers {reply.status}{f' ({code})' if code else ''}")
