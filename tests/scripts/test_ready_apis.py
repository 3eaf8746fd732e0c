"""The connectors that ship, against servers that answer as each service documents it."""

import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from ready_kit import source
from web_api import Api, Asked, Reply, serving_api

from ctx.models import JSON

WHOLE_DAY = "full_every_hours = 24"


@pytest.fixture
def api() -> Iterator[Api]:
    with serving_api() as api:
        yield api


# ---- GitHub: docs.github.com/en/rest/issues/issues, .../comments,
# .../using-the-rest-api/rate-limits-for-the-rest-api ---


def issue(number: int, comments: int = 0, **more: JSON) -> dict[str, JSON]:
    return {
        "number": number,
        "title": f"Lift {number} is stuck",
        "body": "It stops between floors.",
        "state": "open",
        "html_url": f"https://github.com/acme/lifts/issues/{number}",
        "user": {"login": "ann"},
        "labels": [{"name": "bug"}],
        "assignees": [],
        "milestone": None,
        "comments": comments,
        "created_at": "2026-01-01T10:00:00Z",
        "updated_at": f"2026-01-0{number}T10:00:00Z",
        **more,
    }


class GitHub:
    def __init__(self, api: Api) -> None:
        self.api = api
        self.issues = [issue(1, 1), issue(2), issue(3, pull_request={"url": "..."}), issue(4, body=None)]
        for row in self.issues:
            row["comments_url"] = f"{api.url}/repos/acme/lifts/issues/{row['number']}/comments"
        api.answer = self.answer

    def answer(self, asked: Asked) -> Reply:
        if asked.headers.get("authorization") != "Bearer t0ken":
            return Reply({"message": "Bad credentials"}, 401)
        if asked.path == "/repos/acme/lifts/issues/1/comments":
            return Reply(
                [
                    {
                        "user": {"login": "bo"},
                        "created_at": "2026-01-02T00:00:00Z",
                        "body": "Call the engineer.",
                    }
                ]
            )
        if asked.path != "/repos/acme/lifts/issues":
            return Reply({"message": "Not Found"}, 404)
        rows = [row for row in self.issues if str(row["updated_at"]) >= asked.query.get("since", "")]
        page = int(asked.query.get("page", "1"))
        further = f"{self.api.url}{asked.path}?page={page + 1}&since={asked.query.get('since', '')}"
        link = {"Link": f'<{further}>; rel="next", <{further}>; rel="last"'} if page * 2 < len(rows) else {}
        return Reply(rows[page * 2 - 2 : page * 2], 200, link)


def github(api: Api, *more: str) -> list[str]:
    grants = [f'url = "{api.url}"', f'allow_hosts = ["{api.host}"]']
    return ['repos = ["acme/lifts"]', 'token = "t0ken"', *grants, *more]


def test_github_issues_are_read_page_by_page_with_their_comments(api: Api, tmp_path: Path) -> None:
    GitHub(api)
    with source(tmp_path, "github-issues", github(api)) as origin:
        report = origin.index()
        assert (report["ok"], report["added"], report["failed"]) == (True, 3, 0)
        documents = origin.documents()
        assert sorted(documents) == ["acme/lifts#1", "acme/lifts#2", "acme/lifts#4"]
        first = documents["acme/lifts#1"]
        assert first.title == "Lift 1 is stuck"
        assert "## bo, 2026-01-02\n\nCall the engineer." in first.body
        assert first.source_url == "https://github.com/acme/lifts/issues/1"
        assert first.author == "ann"
        assert (first.metadata["state"], first.metadata["labels"]) == ("open", ["bug"])


def test_github_is_asked_only_for_what_changed_and_deletes_by_the_next_whole_scan(
    api: Api, tmp_path: Path
) -> None:
    forge = GitHub(api)
    with source(tmp_path, "github-issues", github(api, WHOLE_DAY)) as origin:
        origin.index()
        assert "since" not in api.asked[0].query
        api.paths()
        today = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        forge.issues = [{**forge.issues[1], "title": "Lift 2 moves again", "updated_at": today}]
        report = origin.index()
        assert api.asked[0].query["since"] < today
        assert (report["updated"], report["unchanged"], report["deleted"]) == (1, 2, 0)
        assert len(origin.documents()) == 3
    with source(tmp_path, "github-issues", github(api, "full_every_hours = 0")) as origin:
        assert origin.index()["deleted"] == 2
        assert [row.title for row in origin.documents().values()] == ["Lift 2 moves again"]


@pytest.mark.slow
def test_a_reached_limit_is_waited_for_or_told(api: Api, tmp_path: Path) -> None:
    forge = GitHub(api)
    limits: list[Mapping[str, str]] = [
        {"Retry-After": "0"},
        {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": "1"},
    ]

    def answer(asked: Asked) -> Reply:
        if limits:
            return Reply(
                {"message": "API rate limit exceeded"}, 403 if len(limits) == 1 else 429, limits.pop(0)
            )
        return forge.answer(asked)

    api.answer = answer
    with source(tmp_path, "github-issues", github(api)) as origin:
        assert origin.index()["added"] == 3
        later = {"X-RateLimit-Remaining": "0", "X-RateLimit-Reset": str(int(time.time()) + 1800)}
        limits += [later]
        report = origin.index()
        assert not report["ok"]
        assert "limit of requests is reached" in report["note"]
        assert "t0ken" not in report["note"]
        assert len(origin.documents()) == 3


@pytest.mark.parametrize(
    ("connector", "settings", "words"),
    [
        ("github-issues", [], "set repos"),
        ("jira", ['url = "https://x.example"'], "set jql"),
        ("obsidian", [], "set vault"),
    ],
)
def test_a_missing_setting_is_named(connector: str, settings: list[str], words: str, tmp_path: Path) -> None:
    with source(tmp_path, connector, settings) as origin:
        report = origin.index()
        assert not report["ok"]
        assert words in report["note"]


# -- GitLab: docs.gitlab.com/api/issues/, /api/notes/, /api/rest/#pagination ---------------------------------


class GitLab:
    def __init__(self, api: Api) -> None:
        api.answer = self.answer
        self.rows = [
            {
                "iid": number,
                "title": f"Door {number} squeaks",
                "description": "It wants oil.",
                "state": "opened",
                "web_url": f"https://gitlab.com/acme/doors/-/issues/{number}",
                "author": {"name": "Ann", "username": "ann"},
                "labels": ["bug"],
                "assignees": [{"username": "bo"}],
                "user_notes_count": 1 if number == 1 else 0,
                "created_at": "2026-01-01T10:00:00.000Z",
                "updated_at": "2026-01-02T10:00:00.000Z",
            }
            for number in (1, 2, 3)
        ]

    def answer(self, asked: Asked) -> Reply:
        if asked.headers.get("private-token") != "t0ken":
            return Reply({"message": "401 Unauthorized"}, 401)
        base = "/api/v4/projects/acme%2Fdoors"
        if asked.path == f"{base}/issues/1/notes":
            notes = [
                {"system": True, "body": "changed the label", "created_at": "2026-01-02T00:00:00Z"},
                {"body": "Oil is ordered.", "author": {"name": "Bo"}, "created_at": "2026-01-03T00:00:00Z"},
            ]
            return Reply(notes, 200, {"X-Next-Page": ""})
        if asked.path == f"{base}/merge_requests":
            return Reply([{**self.rows[1], "title": "Oil them all"}], 200, {"X-Next-Page": ""})
        if asked.path != f"{base}/issues":
            return Reply({"message": "404 Project Not Found"}, 404)
        page = int(asked.query["page"])
        return Reply(
            self.rows[page * 2 - 2 : page * 2], 200, {"X-Next-Page": str(page + 1) if page == 1 else ""}
        )


def test_gitlab_issues_and_merge_requests_are_read_with_their_notes(api: Api, tmp_path: Path) -> None:
    GitLab(api)
    settings = [
        'projects = ["acme/doors"]',
        'kinds = ["issues", "merge_requests"]',
        'token = "t0ken"',
        f'url = "{api.url}/"',
        f'allow_hosts = ["{api.host}"]',
    ]
    with source(tmp_path, "gitlab", settings) as origin:
        report = origin.index()
        assert (report["ok"], report["added"]) == (True, 4)
        documents = origin.documents()
        assert sorted(documents) == [f"acme/doors{sign}" for sign in ("!2", "#1", "#2", "#3")]
        assert "## Bo, 2026-01-03\n\nOil is ordered." in documents["acme/doors#1"].body
        assert "changed the label" not in documents["acme/doors#1"].body
        assert documents["acme/doors#1"].metadata["assignees"] == ["bo"]
        api.paths()
        origin.index()
        assert api.asked[0].query["updated_after"].endswith("Z")


# ---- Jira: developer.atlassian.com/cloud/jira/platform/rest/v3/api-group-issue-search/,
# .../apis/document/structure/ -----


def paragraph(*texts: JSON) -> JSON:
    return {
        "type": "paragraph",
        "content": [row if isinstance(row, dict) else {"type": "text", "text": row} for row in texts],
    }


DESCRIPTION: JSON = {
    "type": "doc",
    "version": 1,
    "content": [
        {"type": "heading", "attrs": {"level": 2}, "content": [{"type": "text", "text": "Steps"}]},
        paragraph("Press ", {"type": "text", "text": "stop", "marks": [{"type": "code"}]}, " and wait."),
        {
            "type": "bulletList",
            "content": [
                {"type": "listItem", "content": [paragraph("first")]},
                {"type": "listItem", "content": [paragraph("second")]},
            ],
        },
        {
            "type": "codeBlock",
            "attrs": {"language": "sh"},
            "content": [{"type": "text", "text": "lift --stop"}],
        },
        {
            "type": "table",
            "content": [
                {
                    "type": "tableRow",
                    "content": [
                        {"type": "tableCell", "content": [paragraph("a")]},
                        {"type": "tableCell", "content": [paragraph("b")]},
                    ],
                }
            ],
        },
        paragraph(
            {"type": "mention", "attrs": {"text": "@Ann"}},
            {"type": "hardBreak"},
            {"type": "inlineCard", "attrs": {"url": "https://x.example/1"}},
        ),
    ],
}


def ticket(number: int, description: JSON) -> dict[str, JSON]:
    return {
        "key": f"LIFT-{number}",
        "fields": {
            "summary": "Stuck",
            "description": description,
            "status": {"name": "Open"},
            "labels": ["urgent"],
            "reporter": {"displayName": "Ann"},
            "created": "2026-01-01T10:00:00.000+0000",
            "updated": "2026-01-02T10:00:00.000+0000",
            "project": {"key": "LIFT"},
            "comment": {
                "comments": [
                    {
                        "author": {"displayName": "Bo"},
                        "created": "2026-01-02T10:00:00.000+0000",
                        "body": description,
                    }
                ]
            },
        },
    }


def test_jira_cloud_is_read_by_its_tokens_of_pages_as_markdown(api: Api, tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        if asked.headers.get("authorization") != "Basic YW5uQHguZXhhbXBsZTp0MGtlbg==":
            return Reply({"errorMessages": ["no"]}, 401)
        if asked.path != "/rest/api/3/search/jql":
            return Reply(b"", 410)
        if "nextPageToken" not in asked.query:
            return Reply({"issues": [ticket(1, DESCRIPTION)], "nextPageToken": "p2", "isLast": False})
        return Reply({"issues": [ticket(2, None)], "isLast": True})

    api.answer = answer
    settings = [
        f'url = "{api.url}"',
        'jql = "project = LIFT"',
        'email = "ann@x.example"',
        'token = "t0ken"',
        f'allow_hosts = ["{api.host}"]',
    ]
    with source(tmp_path, "jira", settings) as origin:
        report = origin.index()
        assert (report["ok"], report["added"]) == (True, 2)
        first = origin.documents()["LIFT-1"]
        assert first.title == "LIFT-1 Stuck"
        assert first.source_url == f"{api.url}/browse/LIFT-1"
        for words in (
            "## Steps",
            "Press `stop` and wait.",
            "- first\n- second",
            "```sh\nlift --stop\n```",
            "| a | b |",
        ):
            assert words in first.body
        assert "@Ann\nhttps://x.example/1" in first.body
        assert "## Bo, 2026-01-02" in first.body
        assert api.asked[0].query["jql"] == "project = LIFT ORDER BY updated ASC"
        api.paths()
        origin.index()
        assert api.asked[0].query["jql"].startswith("(project = LIFT) AND updated >= -6")


# -- RSS and Atom: rssboard.org/rss-specification, RFC 4287, RFC 5005, RFC 9110 ------------------------------

RSS = """<?xml version="1.0"?>
<!DOCTYPE rss [<!ENTITY evil SYSTEM "file:///etc/passwd">]>
<rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<channel><title>Lifts &amp; doors</title><link>https://e.example/</link>
<!-- a <item> that is none -->
<item><title>Faster &#8220;lifts&#8221;</title><link>https://e.example/1</link><guid isPermaLink="false">one</guid>
<pubDate>Thu, 01 Jan 2026 10:00:00 +0200</pubDate><dc:creator>Ann</dc:creator><category>lifts</category>
<description>Short.</description><content:encoded><![CDATA[<p>The lifts are <b>faster</b> &amp; quiet.</p>]]></content:encoded></item>
<item><title>&evil; doors</title><link>https://e.example/2</link><description>Plain &lt;b&gt;words&lt;/b&gt;</description></item>
<item></item>
</channel></rss>"""

ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Notes</title><link rel="next" href="%s/atom2"/>
<entry><id>urn:1</id><title>First</title><link rel="self" href="https://e.example/self"/><link href="https://e.example/a1"/>
<updated>2026-02-03T04:05:06Z</updated><author><name>Bo</name></author><category term="notes"/>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>Inner <em>text</em>.</p></div></content></entry></feed>"""

ATOM2 = """<feed><entry><id>urn:2</id><title>Second</title><summary>Older.</summary></entry></feed>"""


def test_feeds_are_read_whatever_their_dialect_and_asked_for_anew_only_when_they_change(
    api: Api, tmp_path: Path
) -> None:
    pages = {"/rss": RSS, "/atom": ATOM % api.url, "/atom2": ATOM2}

    def answer(asked: Asked) -> Reply:
        if asked.headers.get("if-none-match") == '"v1"':
            return Reply(b"", 304)
        return Reply(pages[asked.path].encode(), 200, {"ETag": '"v1"', "Content-Type": "application/xml"})

    api.answer = answer
    settings = [f'urls = ["{api.url}/rss", "{api.url}/atom"]', f'allow_hosts = ["{api.host}"]']
    with source(tmp_path, "rss", settings) as origin:
        report = origin.index()
        assert (report["ok"], report["added"], report["failed"]) == (True, 4, 0)
        documents = origin.documents()
        first = documents["one"]
        assert (first.title, first.author) == ("Faster “lifts”", "Ann")
        assert "faster" in first.body
        assert "<b>" not in first.body
        assert first.metadata["tags"] == ["lifts"]
        assert first.updated_ms == 1767254400000  # 08:00 UTC
        assert "root:" not in str(documents["https://e.example/2"])
        assert documents["urn:1"].source_url == "https://e.example/a1"
        assert "Inner" in documents["urn:1"].body
        assert "Older." in documents["urn:2"].body
        assert api.paths() == ["/rss", "/atom", "/atom2"]
        report = origin.index()
        assert (report["ok"], report["deleted"]) == (True, 0)
        assert api.paths() == ["/rss", "/atom"]
        assert len(origin.documents()) == 4


def test_the_key_in_a_feeds_address_is_shown_to_nobody(api: Api, tmp_path: Path) -> None:
    def answer(asked: Asked) -> Reply:
        return Reply(RSS.encode()) if asked.path == "/rss" else Reply(b"<html/>", int(asked.path.strip("/")))

    api.answer = answer
    addresses = [f"{api.url}/{path}?token=hidden" for path in ("rss", "200", "404")]
    with source(tmp_path, "rss", [f"urls = {addresses}", f'allow_hosts = ["{api.host}"]']) as origin:
        report = origin.index()
        assert f"{api.url}/404 answered 404" in report["note"]
        assert f"{api.url}/200 is no RSS" in report["note"]
        documents = origin.documents()
        assert documents["one"].metadata["feed_url"] == f"{api.url}/rss"
        assert "hidden" not in f"{report} {documents}"
