"""Hostile pages and servers: a crawl ends, reaches nothing private, and reports the problem."""

import contextlib
import gzip
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from web_kit import Crawl, Page, Site, connector, html, redirect, serving

from ctx.connectors import session, web_crawl
from ctx.connectors.web_page import read_page, read_sitemap
from ctx.connectors.web_site import Robots
from ctx.errors import SourceError


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        site.pages["/good"] = html("Good")
        yield site


@pytest.fixture
def elsewhere() -> Iterator[Site]:
    """Another server of this machine, which the configuration does not name."""
    with serving() as site:
        site.pages["/secret"] = html("Secret")
        yield site


def crawled(site: Site, *links: str, indexed: Mapping[str, str] | None = None, **options: Any) -> Crawl:
    site.pages["/"] = html("Start", *links, "/good")
    return Crawl(connector(site, **options), indexed)


def test_a_host_that_refuses_connections_is_tried_once() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        host = f"dead.example:{server.getsockname()[1]}"
    looked_up: list[str] = []

    def resolve(name: str, _: int) -> list[str]:
        looked_up.append(name)
        return ["127.0.0.1"]

    client = session.Session(frozenset({host}), ends_s=time.monotonic() + 60, resolve=resolve)
    with contextlib.closing(client), pytest.raises(session.Unanswered):
        client.get(f"http://{host}/", [], 1000)
    assert looked_up == ["dead.example"]


def test_a_redirect_to_this_machine_is_not_followed(site: Site, elsewhere: Site) -> None:
    site.pages["/a"] = redirect(f"{elsewhere.url}/secret")
    crawl = crawled(site, "/a", prefixes=[site.url + "/", elsewhere.url + "/"])
    assert crawl.pages == ["/", "/good"]
    assert "allow_hosts" in crawl.problems["/a"]
    assert elsewhere.requests == []


@pytest.mark.parametrize(
    "goal",
    [
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://localhost/",
        "http://100.100.100.200/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "//169.254.169.254/",
        "http://127.0.0.1\\@example.org/",
    ],
)
def test_private_and_odd_addresses_are_not_followed(site: Site, goal: str) -> None:
    site.pages["/a"] = redirect(goal)
    scope = [
        site.url + "/",
        "http://169.254.169.254/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:7f00:1]/",
    ]
    crawl = crawled(site, "/a", goal, prefixes=scope)
    assert crawl.pages == ["/", "/good"]
    assert {path for path, _ in site.requests} == {"/", "/a", "/good", "/robots.txt"}


def test_redirects_in_a_circle_and_without_end_come_to_one(site: Site) -> None:
    site.pages["/a"], site.pages["/b"] = redirect("/b"), redirect("/a")
    for number in range(40):
        site.pages[f"/r{number}"] = redirect(f"/r{number + 1}")
    crawl = crawled(site, "/a", "/r0")
    assert crawl.pages == ["/", "/good"]
    assert crawl.problems == {"/r10": "leads through more than 10 redirects"}
    site.pages["/"] = redirect("/")
    with pytest.raises(SourceError, match="more than 10 redirects"):
        Crawl(connector(site))


def test_a_calendar_without_end_ends(site: Site) -> None:
    class Calendar(dict[str, Page]):
        def get(self, path: str, default: Any = None) -> Any:
            if path.startswith("/day/"):
                number = int(path.removeprefix("/day/"))
                return html(f"Day {number}", f"/day/{number + 1}", f"/day/{number + 2}")
            return super().get(path, default)

    site.pages = Calendar(site.pages)
    assert len(crawled(site, "/day/1").pages) <= 2 + 16  # by its depth
    crawl = crawled(site, "/day/1", depth=100, max_pages=25)
    assert len(crawl.pages) == 25
    assert "more than 25 pages" in crawl.log.notes[0].message


def _sitemap(*addresses: str, root: str = "urlset") -> Page:
    rows = "".join(f"<url><loc>{address}</loc></url>" for address in addresses)
    return Page(f"<{root}>{rows}</{root}>".encode(), headers={"Content-Type": "application/xml"})


def test_of_sitemaps_without_end_no_more_is_read_than_may_be_asked_for(site: Site) -> None:
    parts = [f"/part{number}.xml" for number in range(50)]
    site.pages["/sitemap.xml"] = _sitemap(*(site.url + part for part in parts), root="sitemapindex")
    for part in parts:
        site.pages[part] = _sitemap(*(f"{site.url}{part}/{number}" for number in range(100)))
    site.pages["/part0.xml/7"] = html("Seventh")
    crawl = Crawl(connector(site, "/sitemap.xml", max_pages=50))
    assert crawl.pages == ["/part0.xml/7"]
    assert [path for path in site.asked() if path.endswith(".xml")] == [
        "/sitemap.xml",
        "/part0.xml",
        "/part1.xml",
    ]
    assert [note.message for note in crawl.log.notes] == [
        "only the first 200 addresses that the sitemaps name are looked at"
    ]


def test_links_without_end_are_followed_and_not_all_remembered(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_crawl, "MAX_LINKS_BYTES", 60_000)
    for number in range(20):
        dead = [f"/{number}/{link}{'x' * 500}" for link in range(20)]
        site.pages[f"/{number}"] = html(f"Page {number}", *dead, f"/{number + 1}")
    site.pages["/20"] = html("Last")
    crawl = crawled(site, "/0", depth=50, folder=str(tmp_path))
    pages = [f"/{number}" for number in range(21)]
    assert crawl.pages == sorted(["/", "/good", *pages])
    (journal,) = (tmp_path / "web").iterdir()
    assert journal.stat().st_size < 60_000 + 20_000
    assert '"http' in journal.read_text()
    site.requests.clear()
    again = crawled(site, "/0", depth=50, folder=str(tmp_path), indexed=crawl.known)
    assert again.pages == crawl.pages
    assert not again.read, "what is remembered without links is asked for, and is unchanged"
    statuses = dict(site.requests)
    assert (statuses["/0"], statuses["/19"]) == (304, 200)


def test_a_body_beyond_the_cap_is_a_line_of_the_report(site: Site) -> None:
    site.pages["/huge"] = html("Huge", text="word " * 100_000)
    bomb = gzip.compress(b"<p>" + b"0" * 50_000_000)
    headers = {"Content-Type": "text/html", "Content-Encoding": "gzip"}
    site.pages["/bomb"] = Page(bomb, headers=headers)
    site.pages["/broken"] = Page(bomb[:200], headers=headers)
    site.pages["/brotli"] = Page(b"x", headers={**headers, "Content-Encoding": "br"})
    crawl = crawled(site, "/huge", "/bomb", "/broken", "/brotli", max_file_bytes=200_000)
    assert crawl.pages == ["/", "/good"]
    assert crawl.problems["/huge"] == crawl.problems["/bomb"] == "the reply is larger than 200,000 bytes"
    assert set(crawl.problems) == {"/huge", "/bomb", "/broken", "/brotli"}


def raw(data: bytes) -> Callable[[Any], None]:
    def answer(handler: Any) -> None:
        handler.wfile.write(data)
        handler.wfile.flush()

    return answer


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
    ],
)
def test_a_server_that_breaks_the_protocol_is_a_line_of_the_report(site: Site, data: bytes) -> None:
    site.pages["/odd"] = raw(data)
    crawl = crawled(site, "/odd")
    assert crawl.pages == ["/", "/good"]
    assert set(crawl.problems) == {"/odd"}


def test_a_page_that_drips_is_left_when_its_time_is_over(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "REQUEST_S", 0.5)

    def drip(handler: Any) -> None:
        try:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
            for _ in range(1000):
                handler.wfile.write(b"x")
                handler.wfile.flush()
                time.sleep(0.02)
        except OSError:
            pass  # it was left

    site.pages["/drip"] = drip
    crawl = crawled(site, "/drip")
    assert crawl.pages == ["/", "/good"]
    assert "no whole answer within" in crawl.problems["/drip"]


def test_a_server_that_dies_in_the_middle_loses_nothing(site: Site) -> None:
    names = [f"/{number}" for number in range(30)]
    for name in names:
        site.pages[name] = html(name)
    first = crawled(site, *names)

    def hang_up(handler: Any) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)

    for name in names[10:]:
        site.pages[name] = hang_up
    second = Crawl(connector(site), first.known)
    assert not second.log.complete
    assert "the server stopped answering" in second.problems[""]
    assert second.pages[:3] == ["/", "/0", "/1"]
    assert len(site.asked()) < 32 + 5 + 12 + 12


@pytest.mark.parametrize(
    "data",
    [
        b"<a href=" * 100_000,
        b"<script>" * 100_000,
        b"<" * 500_000,
        b"<!--" * 100_000,
        b"\xff\xfe<\x00a\x00",
        b"Disallow: http://[\nAllow: //\nDisallow: %\nCrawl-delay: nan\nRequest-rate: /\nVisit-time: -\n",
        b"](" * 200_000,
    ],
)
def test_no_text_makes_a_reader_slow_or_fail(data: bytes) -> None:
    began_s = time.process_time()
    read_page(data, None, "http://e.x/", queries=True)
    for sitemap in (data, b"<urlset>" + data + b"</urlset>"):
        with contextlib.suppress(SourceError):
            read_sitemap(sitemap, "http://e.x/", queries=True)
    Robots(b"User-agent: *\n" + data, "ctx").allows("http://e.x/" + "a" * 1900)
    assert time.process_time() - began_s < 20  # quadratic work would be minutes
