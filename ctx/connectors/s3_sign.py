"""Requests signed as S3 wants them: AWS Signature Version 4, for requests without a body.

Source: https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html, whose first example is
a test.
"""

import hashlib
import hmac
from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from urllib.parse import quote

EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
_ALGORITHM = "AWS4-HMAC-SHA256"


class Credentials(NamedTuple):
    """A key and its secret; `token` where they are lent for a while, until `expires_s` (seconds since the
    epoch)."""

    key: str
    secret: str
    token: str = ""
    expires_s: float = float("inf")

    def __repr__(self) -> str:
        return "Credentials(...)"  # nobody logs them by accident


def path_of(key: str) -> str:
    """A key as the path of an address: everything but letters, digits, `-._~/` is escaped, nothing is
    normalised."""
    return quote(key.encode("utf-8", "surrogateescape"), safe="/~")


def query_of(fields: Mapping[str, str]) -> str:
    """A query in the order in which it is signed."""
    return "&".join(f"{quote(name, safe='~')}={quote(fields[name], safe='~')}" for name in sorted(fields))


def signed_headers(
    host: str,
    path: str,
    query: str,
    *,
    region: str,
    credentials: Credentials,
    moment: datetime,
    headers: Mapping[str, str] | None = None,
) -> list[tuple[str, str]]:
    """The headers of a signed GET. `path` and `query` are as `path_of` and `query_of` give them; `moment` is
    in UTC."""
    stamp = moment.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{stamp[:8]}/{region}/s3/aws4_request"
    fields = {name.lower(): value for name, value in (headers or {}).items()}
    fields |= {"host": host, "x-amz-content-sha256": EMPTY_SHA256, "x-amz-date": stamp}
    if credentials.token:
        fields["x-amz-security-token"] = credentials.token
    names = sorted(fields)
    lines = [f"{name}:{' '.join(fields[name].split())}\n" for name in names]
    request = "\n".join(["GET", path, query, "".join(lines), ";".join(names), EMPTY_SHA256])
    digest = hashlib.sha256(request.encode()).hexdigest()
    signature = _mac(
        _signing_key(credentials.secret, stamp[:8], region), "\n".join([_ALGORITHM, stamp, scope, digest])
    ).hex()
    claim = f"Credential={credentials.key}/{scope},SignedHeaders={';'.join(names)}"
    authorization = f"{_ALGORITHM} {claim},Signature={signature}"
    fields.pop("host")  # the client's own business
    return [*fields.items(), ("authorization", authorization)]


def _signing_key(secret: str, day: str, region: str) -> bytes:
    key = f"AWS4{secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()
