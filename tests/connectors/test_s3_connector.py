"""A bucket as a source: what of it is read, when it is read again, and what nobody may see."""

import json
import logging
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kit import project, workspace
from s3_kit import KEYS, SECRET, Bucket, Scan, connector, serving
from web_kit import Page
from web_kit import serving as serving_site

from ctx.connectors import s3
from ctx.connectors.s3 import S3Connector
from ctx.errors import ConfigError, SourceError

ODD_KEYS = (
    "a b.md",
    "a+b&c=d.md",
    "q?u#e.md",
    "100%.md",
    "%41.md",
    "é/ü.md",
    "x//y.md",
    "/lead.md",
    "../up.md",
    "./dot.md",
    "back\\slash.md",
    "tilde~.md",
    "smile😀.md",
    "quote'\"<>.md",
)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keys in the environment, and no others that this machine may have."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "aws-credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "aws-config"))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with serving() as bucket:
        yield bucket


def test_the_objects_that_the_globs_take_are_read(bucket: Bucket) -> None:
    bucket.objects = {
        "a.md": b"# A",
        "img/b.png": b"\x89PNG",
        "node_modules/c.md": b"C",
        "docs/d.md": b"D",
        "docs/": b"",
    }
    scan = Scan(connector(bucket))
    assert scan.data == {"a.md": b"# A", "docs/d.md": b"D"}
    assert scan.urls["docs/d.md"] == "s3://docs/docs/d.md"
    assert bucket.reads == ["a.md", "docs/d.md"]
    assert Scan(connector(bucket, include_globs=["docs/**"], exclude_globs=["a*"])).ids == {"docs/d.md"}


def test_a_prefix_narrows_and_is_left_out_where_it_is_a_folder(bucket: Bucket) -> None:
    bucket.objects = {"team/a.md": b"A", "team/sub/b.md": b"B", "teams.md": b"T", "other.md": b"O"}
    assert Scan(connector(bucket, prefix="team/")).ids == {"a.md", "sub/b.md"}
    assert Scan(connector(bucket, prefix="team")).ids == {"team/a.md", "team/sub/b.md", "teams.md"}


@pytest.mark.parametrize("count", [1000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_a_second_run_reads_what_changed_and_nothing_else(bucket: Bucket, count: int) -> None:
    bucket.page = count // 10
    bucket.objects = {f"{number:04}.md": b"text %d" % number for number in range(count)}
    source = connector(bucket)
    first = Scan(source)
    assert len(first.ids) == count
    bucket.reads.clear()
    assert len(Scan(source, first.known).log.unchanged) == count
    assert bucket.reads == []
    bucket.objects["0001.md"] = b"changed"
    del bucket.objects["0002.md"]
    bucket.objects["renamed.md"] = bucket.objects.pop("0003.md")
    second = Scan(source, first.known)
    assert second.ids == {"0001.md", "renamed.md"}
    assert set(first.known) - set(second.known) == {"0002.md", "0003.md"}


def test_a_key_may_be_anything(bucket: Bucket) -> None:
    bucket.objects = {key: key.encode() for key in ODD_KEYS}
    scan = Scan(connector(bucket))
    assert sorted(scan.data.values(), key=str) == sorted((key.encode() for key in ODD_KEYS), key=str)
    assert scan.problems == {}
    bucket.objects = {
        "caf\udce9.md": b"latin",
        "bell\x07.md": b"bell",
        "nul\0.md": b"nul",
        "good.md": b"good",
    }
    scan = Scan(connector(bucket))
    assert scan.data == {"caf%E9.md": b"latin", "good.md": b"good"}
    assert set(scan.problems) == {"bell?.md", "nul?.md"}
    json.dumps(sorted(scan.known)).encode()


def test_an_object_that_is_too_large_is_not_asked_for(bucket: Bucket) -> None:
    bucket.objects = {"large.md": b"x" * 2000, "small.md": b"x"}
    scan = Scan(connector(bucket, max_file_bytes=1000))
    assert scan.problems == {
        "large.md": "2,000 bytes are more than max_file_bytes (1,000), which may be raised"
    }
    assert bucket.reads == ["small.md"]


def test_a_type_that_the_store_knows_is_used(bucket: Bucket) -> None:
    bucket.objects = {"page": b"<h1>A</h1>", "b.md": b"B"}
    bucket.types = {"page": "text/html; charset=utf-8"}
    scan = Scan(connector(bucket, include_globs=["*"]))
    assert scan.types == {"page": "text/html; charset=utf-8", "b.md": None}


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_store_that_dies_in_the_listing_deletes_nothing(bucket: Bucket, answers: int) -> None:
    bucket.page = 5
    bucket.objects = {f"{number:02}.md": b"x" for number in range(30)}
    source = connector(bucket)
    indexed = Scan(source).known
    bucket.fail_after = answers
    with pytest.raises(SourceError, match="is kept"):
        Scan(source, indexed)


def test_a_store_that_dies_while_objects_are_read_is_not_asked_for_ever(bucket: Bucket) -> None:
    bucket.objects = {f"{number:02}.md": b"x" for number in range(30)}
    bucket.fail_after = 4
    scan = Scan(connector(bucket))
    assert len(scan.ids) == 3
    assert len(scan.problems) == 27
    assert scan.problems["29.md"] == "the store stopped answering"
    assert len(bucket.headers) < 20


def test_a_bucket_that_is_suddenly_empty_is_kept(bucket: Bucket) -> None:
    bucket.objects = {f"{number}.md": b"x" for number in range(12)}
    indexed = Scan(connector(bucket)).known
    bucket.objects.clear()
    with pytest.raises(SourceError, match="12 documents are indexed"):
        Scan(connector(bucket), indexed)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", "no such bucket"),
        (403, b"<Error><Code>AccessDenied</Code></Error>", "s3:ListBucket"),
        (403, b"", "access is denied"),
        (
            403,
            b"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign></Error>",
            "secret key is wrong",
        ),
        (
            400,
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
            'region = "eu-west-3"',
        ),
        (301, b"", "answers 301"),
        (200, b"<html>Welcome</html>", "no listing"),
        (200, b"not xml", "no listing"),
        (200, b"", "no listing"),
        (
            200,
            b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
            "no listing",
        ),
        (
            200,
            b'<?xml version="1.0"?>' + b" " * 10_001 + b'<!DOCTYPE x [<!ENTITY a "a.md">]><ListBucketResult>'
            b"<Contents><Key>&a;</Key></Contents></ListBucketResult>",
            "no listing",
        ),
        (
            200,
            '<!DOCTYPE x [<!ENTITY a "a.md">]><ListBucketResult><Contents><Key>&a;</Key></Contents>'
            "</ListBucketResult>".encode("utf-16"),
            "no listing",
        ),
        (200, b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>", "does not go on"),
        (200, b"<ListBucketResult><Contents><Size>many</Size></Contents></ListBucketResult>", "no listing"),
        (
            200,
            b"<ListBucketResult><Contents><Key>a.md</Key><Size>x</Size></Contents></ListBucketResult>",
            "no listing",
        ),
    ],
)
def test_what_a_store_refuses_is_told_with_its_mend(
    bucket: Bucket, status: int, body: bytes, words: str
) -> None:
    bucket.answers["/docs"] = (status, body)
    with pytest.raises(SourceError) as caught:
        Scan(connector(bucket))
    assert words in caught.value.message
    assert "secret<" not in caught.value.message
    assert "is kept" in caught.value.message


def test_a_listing_that_goes_in_a_circle_ends(bucket: Bucket) -> None:
    bucket.answers["/docs"] = (
        200,
        b"<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken>x</NextContinuationToken><"
        b"/ListBucketResult>",
    )
    with pytest.raises(SourceError, match="does not go on"):
        Scan(connector(bucket))


def test_a_listing_that_returns_to_an_earlier_page_ends(bucket: Bucket) -> None:
    bucket.objects = {f"{number}.md": b"x" for number in range(6)}
    bucket.page = 2
    bucket.turns = {"3.md": "1.md"}
    with pytest.raises(SourceError, match="does not go on"):
        Scan(connector(bucket))


def test_a_listing_without_end_ends(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "MAX_PAGES", 3)
    bucket.objects = {f"{number}.md": b"x" for number in range(8)}
    bucket.page = 2
    with pytest.raises(SourceError, match=r"more than 3 pages; narrow it with `prefix`\. What is indexed"):
        Scan(connector(bucket))
    assert len(bucket.headers) - len(bucket.reads) == 3


def test_a_scan_that_takes_longer_than_timeout_s_is_broken_off_and_the_next_one_goes_on(
    bucket: Bucket,
) -> None:
    bucket.objects = {f"{number}.md": b"x" for number in range(6)}
    bucket.page = 2
    bucket.request_s = 60.0
    source = connector(bucket, timeout_s=330, clock=bucket.clock)
    first = Scan(source, {"gone.md": "x"})
    assert (first.ids, first.log.complete) == ({"0.md", "1.md", "2.md", "3.md"}, False)
    late = "the scan took longer than timeout_s (330 s): "
    assert first.problems == {"": late + "the next run goes on, and nothing is deleted in this one"}
    bucket.headers.clear()
    second = Scan(source, first.known)
    assert (second.ids, second.log.complete) == ({"4.md", "5.md"}, True)
    bucket.headers.clear()
    third = Scan(connector(bucket, timeout_s=90, clock=bucket.clock), second.known)
    assert (third.ids, third.log.complete) == (set(), False)
    assert "timeout_s (90 s): raise it, or narrow the source with `prefix`, and" in third.problems[""]


def test_a_store_whose_answer_the_time_cuts_off_is_late_once_it_has_listed_a_page(bucket: Bucket) -> None:
    bucket.objects = {f"{number}.md": b"x" for number in range(4)}
    bucket.page = 2
    bucket.request_s = 60.0
    bucket.fail_after = 3  # a page, its two objects; then silence, and the time is over
    scan = Scan(connector(bucket, timeout_s=190, clock=bucket.clock))
    assert (scan.ids, scan.log.complete) == ({"0.md", "1.md"}, False)
    bucket.fail_after = 0
    with pytest.raises(SourceError, match="is kept"):
        Scan(connector(bucket, timeout_s=1, clock=bucket.clock))


def test_a_store_that_is_not_there_is_a_source_error() -> None:
    with pytest.raises(SourceError, match="the connection failed"):
        Scan(connector("http://127.0.0.1:9"))


def test_no_key_secret_or_token_is_in_a_message_a_log_or_what_is_stored(
    bucket: Bucket, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.DEBUG)
    bucket.objects = {"a.md": b"A"}
    monkeypatch.setenv("AWS_SESSION_TOKEN", "t0ken-t0ken")
    source = connector(bucket)
    scan = Scan(source)
    requests = str(bucket.headers)
    assert "t0ken-t0ken" in requests  # lent keys need it
    assert SECRET not in requests
    bucket.answers["/docs"] = (403, str(bucket.headers[0]).encode())
    with pytest.raises(SourceError) as caught:
        Scan(source)
    public = caplog.text + str(caught.value) + repr(scan.known) + repr(scan.urls) + source.signature
    for word in (SECRET, "t0ken-t0ken", "AKIAEXAMPLE"):
        assert word not in public


def test_an_anonymous_request_is_not_signed(bucket: Bucket) -> None:
    bucket.objects = {"a.md": b"A"}
    assert Scan(connector(bucket, anonymous=True)).ids == {"a.md"}
    assert not [
        name for headers in bucket.headers for name in headers if name.lower().startswith(("x-amz", "auth"))
    ]


def test_what_is_no_bucket_region_or_endpoint_is_a_mistake_of_the_configuration() -> None:
    for options in (
        {"endpoint_url": "minio:9000"},
        {"endpoint_url": "ftp://a"},
        {"endpoint_url": "http://u:p@a"},
        {"region": "a/b"},
    ):
        with pytest.raises(ConfigError):
            S3Connector("s3", "docs", **options)  # type: ignore[arg-type]
    for name in ("", "a", "a/b", "docs?x", "-docs", "../x"):
        with pytest.raises(ConfigError, match="not the name of a bucket"):
            S3Connector("s3", name)


def signer_of(bucket: Bucket) -> tuple[str, str]:
    """The key and the region of the last request."""
    match = re.search(r"Credential=([^/]+)/\d+/([^/]+)/s3", bucket.headers[-1]["authorization"])
    assert match is not None
    return match[1], match[2]


def test_keys_and_region_come_from_the_chain_in_its_order(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.objects = {"a.md": b"A"}
    process = f"{sys.executable} {tmp_path / 'keys.py'}"
    (tmp_path / "keys.py").write_text(
        'print(\'{"Version": 1, "AccessKeyId": "P", "SecretAccessKey": "p"}\')\n'
    )
    (tmp_path / "aws-credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = d%s\n"
        "[team]\naws_access_key_id = T\naws_secret_access_key = t\n"
    )
    (tmp_path / "aws-config").write_text(
        f"[profile team]\nregion = eu-north-1\n[profile process]\ncredential_process = {process}\n"
    )
    for options, environ, signer in (
        ({}, {}, ("AKIAEXAMPLE", "us-east-1")),
        ({"region": "eu-west-1"}, {"AWS_REGION": "x-1"}, ("AKIAEXAMPLE", "eu-west-1")),
        ({}, {"AWS_REGION": "x-1"}, ("AKIAEXAMPLE", "x-1")),
        ({"profile": "team"}, {}, ("T", "eu-north-1")),
        ({"profile": "process"}, {}, ("P", "us-east-1")),
        ({}, {"AWS_ACCESS_KEY_ID": ""}, ("D", "us-east-1")),
        ({}, {"AWS_ACCESS_KEY_ID": "", "AWS_PROFILE": "team"}, ("T", "eu-north-1")),
    ):
        with monkeypatch.context() as patch:
            for name, value in environ.items():
                patch.setenv(name, value)
            assert Scan(connector(bucket, **options)).ids == {"a.md"}
        assert signer_of(bucket) == signer


def test_without_keys_the_mend_is_said(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SourceError, match=r"no keys were found: set AWS_ACCESS_KEY_ID.*anonymous = true"):
        Scan(connector(bucket))
    with pytest.raises(SourceError, match=r"profile \(absent\) could not be found"):
        Scan(connector(bucket, profile="absent"))
    (tmp_path / "aws-config").write_text(
        "[profile old]\nsso_start_url = https://x\nsso_region = us-east-1\n"
        "sso_account_id = 1\nsso_role_name = r\n"
    )
    with pytest.raises(SourceError, match=r"no keys were found: .*SSO"):
        Scan(connector(bucket, profile="old"))
    (tmp_path / "aws-credentials").write_text("wJalrXUtnFEMI without a section\n")
    with pytest.raises(SourceError, match="no keys were found") as caught:
        Scan(connector(bucket))
    assert "wJalrXUtnFEMI" not in caught.value.message


def test_without_the_extra_the_error_says_what_to_install(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "botocore.auth", None)
    with pytest.raises(SourceError, match=r"pip install 'ctx-server\[s3\]'"):
        Scan(connector(bucket))
    bucket.objects = {"a.md": b"A"}
    assert Scan(connector(bucket, anonymous=True)).ids == {"a.md"}


def test_a_role_of_a_container_lends_keys(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    lent = {"AccessKeyId": "L", "SecretAccessKey": "l", "Token": "lt", "Expiration": "2100-01-01T00:00:00Z"}
    bucket.objects = {"a.md": b"A"}
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with serving_site() as site:
        site.pages["/keys"] = Page(json.dumps(lent).encode())
        monkeypatch.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", f"{site.url}/keys")
        monkeypatch.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN", "me")
        assert Scan(connector(bucket)).ids == {"a.md"}
        assert dict(site.headers[-1])["Authorization"] == "me"
    assert signer_of(bucket)[0] == "L"
    assert bucket.headers[-1]["x-amz-security-token"] == "lt"


def test_a_bucket_is_indexed_and_brought_up_to_date(bucket: Bucket, tmp_path: Path) -> None:
    bucket.objects = {f"{number}.md": b"# Page %d\n\ntext" % number for number in range(5)}
    config = project(
        tmp_path,
        config=f'[connectors.s3]\nbucket = "docs"\nendpoint_url = "{bucket.url}"\n[embedding]\nprovider = '
        '"disabled"\n',
    )
    with workspace(config) as space:
        [report] = space.indexer.run()
        assert (report.ok, report.added) == (True, 5)
        bucket.objects["0.md"] = b"# Changed"
        del bucket.objects["1.md"]
        [report] = space.indexer.run()
        assert (report.updated, report.unchanged, report.deleted) == (1, 3, 1)
        bucket.fail_after = 0
        [report] = space.indexer.run()
        assert (report.ok, report.deleted) == (False, 0)


SERVER = """
import json, sys, boto3
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
url = "http://127.0.0.1:%d" % server.get_host_and_port()[1]
iam = boto3.client("iam", endpoint_url=url, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
iam.create_user(UserName="ann")
key = iam.create_access_key(UserName="ann")["AccessKey"]
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
iam.put_user_policy(UserName="ann", PolicyName="all", PolicyDocument=json.dumps(policy))
keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
s3 = boto3.client("s3", endpoint_url=url, region_name="us-east-1", **keys)
s3.create_bucket(Bucket="docs")
print(json.dumps([url, keys]), flush=True)
for line in sys.stdin:
    name, body = json.loads(line)
    if body is None:
        s3.delete_object(Bucket="docs", Key=name)
    else:
        s3.put_object(Bucket="docs", Key=name, Body=body.encode())
    print("done", flush=True)
"""


Put = Callable[[str, str | None], None]


@contextmanager
def store(unchecked_calls: str) -> Iterator[tuple[str, dict[str, str], Put]]:
    """(address, keys of a user, what puts an object) of a server that checks signatures after some calls."""
    environ = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": unchecked_calls}
    with subprocess.Popen(
        [sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None

        def put(name: str, body: str | None) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps([name, body]) + "\n")
            process.stdin.flush()
            assert process.stdout.readline() == "done\n"

        try:
            line = ""
            while not line.startswith("["):
                line = process.stdout.readline()
                assert line, "the server did not start"
            url, keys = json.loads(line)
            yield url, keys, put
        finally:
            process.kill()


@pytest.mark.slow
def test_a_server_that_checks_signatures_accepts_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    with store("3") as (url, keys, put):
        names = [name for name in ODD_KEYS if ".." not in name and name != "./dot.md"]
        assert len(names) == 12
        for name in names:
            put(name, f"text of {name}")
        for variable, value in keys.items():
            monkeypatch.setenv(variable.upper(), value)
        source = connector(url)
        first = Scan(source)
        assert first.problems == {}
        assert set(first.data.values()) == {f"text of {name}".encode() for name in names}
        put(names[0], "changed")
        put(names[1], None)
        second = Scan(source, first.known)
        assert list(second.data.values()) == [b"changed"]
        assert set(first.known) - set(second.known) == {names[1]}
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
        with pytest.raises(SourceError, match="secret key is wrong"):
            Scan(connector(url))


@pytest.mark.slow
def test_a_role_is_assumed_by_a_profile_and_by_a_web_identity(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    role = "arn:aws:iam::123456789012:role/reader"
    with store("inf") as (url, _, put):
        put("a.md", "A")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", url)
        (tmp_path / "aws-config").write_text(
            f"[profile team]\nrole_arn = {role}\nsource_profile = base\nregion = eu-west-1\n"
            "[profile base]\naws_access_key_id = B\naws_secret_access_key = b\n"
        )
        assert Scan(connector(url, profile="team", region="us-east-1")).ids == {"a.md"}
        (tmp_path / "token").write_text("token")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.setenv("AWS_ROLE_ARN", role)
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        assert Scan(connector(url)).ids == {"a.md"}
