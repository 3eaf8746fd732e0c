"""The S3 connector: what is read, when it is read again, errors, and secrets that must not leak."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from s3_kit import KEYS, SECRET, Bucket, Scan, connector, serving

from ctx.connectors import s3
from ctx.errors import SourceError

ODD_KEYS = (
    "a b.md",
    "a+b&c=d.md",
    "q?u#e.md",
    "%41.md",
    "é/ü.md",
    "x//y.md",
    "/lead.md",
    "back\\slash.md",
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


@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_store_that_dies_in_the_listing_deletes_nothing(bucket: Bucket, answers: int) -> None:
    bucket.page = 5
    bucket.objects = {f"{number:02}.md": b"x" for number in range(30)}
    source = connector(bucket)
    indexed = Scan(source).known
    bucket.fail_after = answers
    with pytest.raises(SourceError, match="is kept"):
        Scan(source, indexed)


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (404, b"<Error><Code>NoSuchBucket</Code></Error>", "no such bucket"),
        (403, b"<Error><Code>AccessDenied</Code></Error>", "s3:ListBucket"),
        (
            403,
            b"<Error><Code>SignatureDoesNotMatch</Code><StringToSign>secret</StringToSign></Error>",
            "Check the secret key",
        ),
        (
            400,
            b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>",
            'region = "eu-west-3"',
        ),
        (
            200,
            b'<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><ListBucketResult>&b;</ListBucketResult>',
            "not a listing",
        ),
    ],
)
def test_a_refusal_of_the_store_says_what_to_do(bucket: Bucket, status: int, body: bytes, words: str) -> None:
    bucket.answers["/docs"] = (status, body)
    with pytest.raises(SourceError) as caught:
        Scan(connector(bucket))
    assert words in caught.value.message
    assert "secret<" not in caught.value.message
    assert "is kept" in caught.value.message


def test_a_listing_without_end_ends(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(s3, "MAX_PAGES", 3)
    bucket.objects = {f"{number}.md": b"x" for number in range(8)}
    bucket.page = 2
    with pytest.raises(SourceError, match=r"more than 3 pages; set `prefix` to read less\. Its index"):
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
    assert first.problems == {"": late + "the next run continues; this run deletes nothing"}
    bucket.headers.clear()
    second = Scan(source, first.known)
    assert (second.ids, second.log.complete) == ({"4.md", "5.md"}, True)
    bucket.headers.clear()
    third = Scan(connector(bucket, timeout_s=90, clock=bucket.clock), second.known)
    assert (third.ids, third.log.complete) == (set(), False)
    assert "timeout_s (90 s): raise it, or set `prefix` to read less; this" in third.problems[""]


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


def test_without_keys_the_error_says_what_to_set(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with pytest.raises(SourceError, match=r"no keys were found\. Set AWS_ACCESS_KEY_ID.*anonymous = true"):
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
for name in json.loads(sys.argv[1]):
    s3.put_object(Bucket="docs", Key=name, Body=name.encode())
print(json.dumps([url, keys]), flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_server_that_checks_signatures_accepts_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    names = [name for name in ODD_KEYS if ".." not in name and name != "./dot.md"]
    command = [sys.executable, "-c", SERVER, json.dumps(names)]
    environ = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "3"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdout is not None
        url, keys = json.loads(next(line for line in process.stdout if line.startswith("[")))
        for variable, value in keys.items():
            monkeypatch.setenv(variable.upper(), value)
        scan = Scan(connector(url))
        assert scan.problems == {}
        assert set(scan.data.values()) == {name.encode() for name in names}
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "other")
        with pytest.raises(SourceError, match="Check the secret key"):
            Scan(connector(url))
        process.kill()
