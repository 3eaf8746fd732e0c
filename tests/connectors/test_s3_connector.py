"""A bucket as a source: what of it is read, when it is read again, and what nobody may see."""

import json
import logging
import os
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from kit import project, workspace
from real_clients import peer
from s3_kit import KEYS, SECRET, Bucket, Scan, connector, serving
from web_kit import Page
from web_kit import serving as serving_site

from ctx.connectors import s3, s3_credentials, session
from ctx.connectors.s3 import S3Connector
from ctx.connectors.s3_credentials import find_credentials, find_region
from ctx.connectors.s3_sign import Credentials, path_of, query_of, signed_headers
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
    bucket: Bucket, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    bucket.objects = {"a.md": b"A"}
    environ = {**KEYS, "AWS_SESSION_TOKEN": "t0ken-t0ken"}
    source = connector(bucket, environ=environ)
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
    assert SECRET not in repr(Credentials("a", SECRET))


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


@pytest.mark.parametrize(
    ("path", "query", "headers", "signature"),
    [
        (
            "/test.txt",
            {},
            {"Range": "bytes=0-9"},
            "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        ),
        (
            "/",
            {"prefix": "J", "max-keys": "2"},
            {},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
        ("/", {"lifecycle": ""}, {}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
    ],
)
def test_a_request_is_signed_as_in_the_published_examples(
    path: str, query: dict[str, str], headers: dict[str, str], signature: str
) -> None:
    lines = signed_headers(
        "examplebucket.s3.amazonaws.com",
        path_of(path),
        query_of(query),
        region="us-east-1",
        credentials=Credentials("AKIAIOSFODNN7EXAMPLE", SECRET),
        moment=datetime(2013, 5, 24, tzinfo=UTC),
        headers=headers,
    )
    assert dict(lines)["authorization"].endswith(f"Signature={signature}")


def test_keys_come_from_the_chain_in_its_order(tmp_path: Path) -> None:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = D\naws_secret_access_key = "
        "d%s\n[team]\naws_access_key_id=T\naws_secret_access_key=t\naws_session_token=tt\n"
    )
    (tmp_path / "config").write_text("[profile team]\nregion = eu-north-1\n[profile sso]\nsso_session = x\n")
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
        "AWS_EC2_METADATA_DISABLED": "true",
    }
    assert find_credentials({**files, **KEYS}, None).key == "AKIAEXAMPLE"
    assert find_credentials({**files, **KEYS}, "team") == Credentials("T", "t", "tt")
    assert find_credentials(files, None) == Credentials("D", "d%s")
    assert find_credentials({**files, "AWS_PROFILE": "team"}, None).key == "T"
    assert find_region({**files, "AWS_PROFILE": "team"}, None) == "eu-north-1"
    assert find_region(files, None) == "us-east-1"
    assert find_region({**files, "AWS_REGION": "x-1"}, "team") == "x-1"
    for profile in ("sso", "absent"):
        with pytest.raises(SourceError, match=f"profile '{profile}' holds no keys.*export-credentials"):
            find_credentials(files, profile)
    (tmp_path / "credentials").write_text("secret without a section\n")
    with pytest.raises(SourceError, match="cannot be read") as caught:
        find_credentials(files, None)
    assert "secret" not in caught.value.message.replace("credentials", "")


def test_a_role_of_a_container_or_a_machine_lends_keys(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lent = {"AccessKeyId": "L", "SecretAccessKey": "l", "Token": "lt", "Expiration": "2100-01-01T00:00:00Z"}
    with serving_site() as site:
        site.pages["/keys"] = Page(json.dumps(lent).encode())
        environ = {
            "HOME": str(tmp_path),
            "AWS_SHARED_CREDENTIALS_FILE": "/nonexistent",
            "AWS_CONFIG_FILE": "/nonexistent",
        }
        container = {
            **environ,
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{site.url}/keys",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN": "me",
        }
        monkeypatch.setattr(s3_credentials, "_service", lambda url: session.Session(frozenset({site.host})))
        assert find_credentials(container, None)[:3] == ("L", "l", "lt")
        assert dict(site.headers[-1])["Authorization"] == "me"
        machine = {**environ, "AWS_EC2_METADATA_SERVICE_ENDPOINT": site.url}
        with pytest.raises(SourceError, match="no keys were found"):  # it does not answer as such a machine
            find_credentials(machine, None)


def test_a_bucket_is_indexed_and_brought_up_to_date(
    bucket: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
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


@pytest.mark.slow
@pytest.mark.clients
def test_a_server_that_checks_signatures_accepts_ours() -> None:
    command = [peer("python"), "-c", SERVER]
    environ = {**os.environ, "INITIAL_NO_AUTH_ACTION_COUNT": "3"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environ
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            line = ""
            while not line.startswith("["):
                line = process.stdout.readline()
                assert line, "the server did not start"
            url, keys = json.loads(line)

            def put(name: str, body: str | None) -> None:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps([name, body]) + "\n")
                process.stdin.flush()
                assert process.stdout.readline() == "done\n"

            names = [name for name in ODD_KEYS if ".." not in name and name != "./dot.md"]
            for name in names:
                put(name, f"text of {name}")
            environ = {**KEYS, **{name.upper(): value for name, value in keys.items()}}
            source = connector(url, environ=environ)
            first = Scan(source)
            assert first.problems == {}
            assert set(first.data.values()) == {f"text of {name}".encode() for name in names}
            put(names[0], "changed")
            put(names[1], None)
            second = Scan(source, first.known)
            assert list(second.data.values()) == [b"changed"]
            assert set(first.known) - set(second.known) == {names[1]}
            with pytest.raises(SourceError, match="secret key is wrong"):
                Scan(connector(url, environ={**environ, "AWS_SECRET_ACCESS_KEY": "other"}))
        finally:
            process.kill()
