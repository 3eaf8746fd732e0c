"""Where the keys to a bucket come from: the usual chain of AWS's own tools, as far as it needs no program.

In this order: the environment, the profile in the shared files, the container's service, the machine's
service. The addresses of the last two are fixed or of the environment, never of a configuration file.
"""

import configparser
import logging
import os
import time
from collections.abc import Mapping
from contextlib import closing
from urllib.parse import urlsplit

import orjson

from ctx.clock import parse_ms
from ctx.connectors.s3_sign import Credentials
from ctx.connectors.session import Session
from ctx.errors import SourceError

logger = logging.getLogger(__name__)

SERVICE_S = 2.0  # for an answer of a service of this machine, which is near or not there
EARLY_S = 300.0  # before they expire, lent keys are asked for anew
MAX_BYTES = 100_000
_MACHINE = "http://169.254.169.254"
_CONTAINER = "http://169.254.170.2"
_TOKEN_S = "21600"  # noqa: S105 - seconds for which the machine's service is to know us


def find_credentials(environ: Mapping[str, str], profile: str | None) -> Credentials:
    """The first that the chain has. `profile` None: `$AWS_PROFILE`, else `default`. Raises `SourceError`."""
    key, secret = environ.get("AWS_ACCESS_KEY_ID"), environ.get("AWS_SECRET_ACCESS_KEY")
    if key and secret and profile is None:
        return Credentials(key, secret, environ.get("AWS_SESSION_TOKEN", ""))
    credentials = _of_files(environ, profile)
    if credentials is None and profile is None:
        credentials = _of_container(environ) or _of_machine(environ)
    if credentials is None:
        named = f"profile '{profile}' holds no keys" if profile else "no keys were found"
        raise SourceError(
            f"{named}: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (`aws configure export-credentials "
            "--format env` gives those of a login), name a `profile` with keys, or set `anonymous = true` "
            "for a public bucket"
        )
    return credentials


def find_region(environ: Mapping[str, str], profile: str | None) -> str:
    """The region of the environment or the profile; `us-east-1` where neither says one."""
    named = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")
    return named or _profile(environ, profile).get("region", "us-east-1")


def _parsed(path: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        parser.read(path, encoding="utf-8")
    except (configparser.Error, OSError, ValueError) as error:
        raise SourceError(
            f"the shared AWS file `{os.path.basename(path)}` cannot be read ({type(error).__name__})"
        ) from None  # whose words may quote a line of it
    return parser


def _profile(environ: Mapping[str, str], profile: str | None) -> dict[str, str]:
    """The values of a profile in the two shared files, the first of which wins."""
    name = profile or environ.get("AWS_PROFILE") or "default"
    home = os.path.expanduser("~/.aws")
    values: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", "config", name if name == "default" else f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", "credentials", name),
    ):
        parser = _parsed(os.path.expanduser(environ.get(variable) or os.path.join(home, file)))
        if parser.has_section(section):
            values |= dict(parser.items(section))
    return values


def _of_files(environ: Mapping[str, str], profile: str | None) -> Credentials | None:
    values = _profile(environ, profile)
    key, secret = values.get("aws_access_key_id"), values.get("aws_secret_access_key")
    return Credentials(key, secret, values.get("aws_session_token", "")) if key and secret else None


def _of_container(environ: Mapping[str, str]) -> Credentials | None:
    relative = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
    url = _CONTAINER + relative if relative else environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI")
    if not url:
        return None
    headers = []
    token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
    if file := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        try:
            with open(file, encoding="utf-8") as lines:
                token = lines.read(MAX_BYTES).strip()
        except (OSError, ValueError) as error:
            raise SourceError("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE cannot be read") from error
    if token:
        headers.append(("Authorization", token))
    with closing(_service(url)) as session:
        reply = session.get(url, headers, MAX_BYTES, timeout_s=SERVICE_S)
    return _lent(reply.body) if reply.status == 200 else None


def _of_machine(environ: Mapping[str, str]) -> Credentials | None:
    """Of the role of a virtual machine (IMDSv2); None where this is none."""
    if environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    base = (environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or _MACHINE).rstrip("/")
    roles = f"{base}/latest/meta-data/iam/security-credentials/"
    try:
        with closing(_service(base)) as session:
            wish = [("X-aws-ec2-metadata-token-ttl-seconds", _TOKEN_S), ("Content-Length", "0")]
            reply = session.get(
                f"{base}/latest/api/token", wish, MAX_BYTES, method="PUT", timeout_s=SERVICE_S
            )
            if reply.status != 200:
                return None
            headers = [("X-aws-ec2-metadata-token", reply.body.decode("ascii", "replace"))]
            reply = session.get(roles, headers, MAX_BYTES, timeout_s=SERVICE_S)
            role = reply.body.decode("ascii", "replace").split("\n")[0].strip()
            if reply.status != 200 or not role:
                return None
            reply = session.get(roles + role, headers, MAX_BYTES, timeout_s=SERVICE_S)
            return _lent(reply.body) if reply.status == 200 else None
    except SourceError:
        return None  # this is no such machine


def _service(url: str) -> Session:
    """A client for a service of this machine, which the environment or AWS itself names."""
    return Session(frozenset({urlsplit(url).hostname or ""}))


def _lent(body: bytes) -> Credentials:
    try:
        fields = orjson.loads(body)
        expires_ms = parse_ms(fields["Expiration"]) if fields.get("Expiration") else None
        return Credentials(
            fields["AccessKeyId"],
            fields["SecretAccessKey"],
            fields.get("Token") or "",
            float("inf") if expires_ms is None else expires_ms / 1000,
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        raise SourceError("the service that lends keys answers something else") from None


def expiring(credentials: Credentials) -> bool:
    return credentials.expires_s - EARLY_S < time.time()
