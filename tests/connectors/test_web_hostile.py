"""Pages and servers that mean a crawl no good: each ends as a line of the report, or as nothing at all."""

import contextlib
import gzip
import itertools
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from web_kit import Crawl, Page, Site, connector, html, redirect, serving

from ctx.connectors import session, web_client, web_journal
from ctx.connectors.web import WebConnector
from ctx.connectors.web_address import canonical, folder_of
from ctx.connectors.web_page import read_page, read_sitemap
from ctx.connectors.web_robots import Robots
from ctx.errors import SourceError
from ctx.lua import fetch


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
        "http://0x7f000001/",
        "http://2130706433/",
        "http://localhost/",
        "http://10.0.0.1:8080/",
        "http://100.100.100.200/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:70/",
        "javascript:alert(1)",
        "http://ann:secret@127.0.0.1/",
        "//169.254.169.254/",
        "http://127.0.0.1\\@example.org/",
        "http://a b/",
        "http://[::1",
        "http://x:99999/",
    ],
)
def test_a_redirect_or_link_to_where_nobody_should_go_gets_nowhere(site: Site, goal: str) -> None:
    connections: list[tuple[str, int]] = []

    def resolve(host: str, port: int) -> list[str]:
        connections.append((host, port))
        return fetch.resolve_host(host, port)

    site.pages["/a"] = redirect(goal)
    scope = [
        site.url + "/",
        "http://169.254.169.254/",
        "http://localhost/",
        "http://[::1]/",
        "http://[::ffff:7f00:1]/",
    ]
    crawl = crawled(site, "/a", goal, prefixes=scope, resolve=resolve)
    assert crawl.pages == ["/", "/good"]
    assert {path for path, _ in site.requests} == {"/", "/a", "/good", "/robots.txt"}


def test_a_name_that_changes_its_address_gains_nothing(site: Site) -> None:
    """The name is public when it is judged first, and this machine afterwards."""
    addresses = itertools.chain([["127.0.0.1"]], itertools.repeat(["127.0.0.1"]))
    source = WebConnector(
        "web", "http://rebinding.example/", allow_hosts=[], resolve=lambda host, port: next(addresses)
    )
    with pytest.raises(SourceError, match="private network"):
        Crawl(source)


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


def test_a_maze_of_redirects_and_dead_links_ends(site: Site) -> None:
    class Maze(dict[str, Page]):
        def get(self, path: str, default: Any = None) -> Any:
            if path.startswith("/go/"):
                return html("Same", *(f"{path}{number}/" for number in range(9)))
            return super().get(path, default)

    site.pages = Maze(site.pages)
    crawl = crawled(site, "/go/1/", depth=100, max_pages=10)
    assert len(site.requests) <= 10 * 4 + 2
    assert "more than 10 pages" in crawl.log.notes[0].message


def _sitemap(*addresses: str, root: str = "urlset") -> Page:
    rows = "".join(f"<url><loc>{address}</loc></url>" for address in addresses)
    return Page(f"<{root}>{rows}</{root}>".encode(), headers={"Content-Type": "application/xml"})


def test_sitemaps_that_name_themselves_and_each_other_are_asked_for_once(site: Site) -> None:
    nested = [f"{site.url}/{name}.xml" for name in ("sitemap", "a", "b")]
    site.pages["/sitemap.xml"] = site.pages["/a.xml"] = _sitemap(*nested, root="sitemapindex")
    site.pages["/b.xml"] = _sitemap(f"{site.url}/good")
    crawl = Crawl(connector(site, "/sitemap.xml"))
    assert crawl.pages == ["/good"]
    assert sorted(site.asked()) == ["/a.xml", "/b.xml", "/good", "/sitemap.xml"]
    assert not crawl.log.notes


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


def test_an_address_stands_behind_any_number_of_blanks(site: Site) -> None:
    site.pages["/sitemap.xml"] = _sitemap(" " * 300 + f"<![CDATA[{' ' * 300}{site.url}/good]]>")
    assert Crawl(connector(site, "/sitemap.xml")).pages == ["/good"]


def test_links_without_end_are_followed_and_not_all_remembered(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_journal, "MAX_LINKS_BYTES", 60_000)
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


def test_what_a_whole_crawl_had_no_occasion_to_ask_for_is_forgotten(site: Site, tmp_path: Path) -> None:
    site.pages["/old"] = html("Old", head='<meta name="robots" content="noindex">')
    crawl = crawled(site, "/old", folder=str(tmp_path))
    (journal,) = (tmp_path / "web").iterdir()
    assert b"/old" in journal.read_bytes()
    crawled(site, folder=str(tmp_path), indexed=crawl.known)
    assert b"/old" not in journal.read_bytes()


def test_a_base_element_leads_nowhere_else(site: Site, elsewhere: Site) -> None:
    head = f'<base href="{elsewhere.url}/">'
    site.pages["/a"] = html("A", "secret", head=head)
    crawl = crawled(site, "/a")
    assert crawl.pages == ["/", "/a", "/good"]
    assert elsewhere.requests == []


def test_a_canonical_address_elsewhere_hides_no_page(site: Site) -> None:
    site.pages["/a"] = html("A", head='<link rel="canonical" href="https://elsewhere.example/a">')
    assert crawled(site, "/a").pages == ["/", "/a", "/good"]


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
        b"\0" * 100,
        b"HTTP/1.1 two hundred\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nshort",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\nx",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n",
        b"HTTP/1.1 304 Not Modified\r\n\r\n",
        b"HTTP/1.1 999 Odd\r\nContent-Length: 0\r\n\r\n",
        b"SSH-2.0-OpenSSH\r\n",
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


def test_a_crawl_past_its_time_deletes_nothing(site: Site) -> None:
    first = crawled(site, "/a")

    def pause(seconds: float) -> None:
        time.sleep(0.4)  # longer than all that the crawl may take

    source = connector(site, timeout_s=0.3, pause=pause, requests_per_second=5.0, robots=False)
    second = Crawl(source, {**first.known, site.url + "/b": "x"})
    assert not second.log.complete
    assert "timeout_s" in second.problems[""]


def test_control_characters_of_a_link_or_redirect_are_never_sent(site: Site) -> None:
    site.pages["/"] = html("Start", "/x\x01y", "/x\x7f", "/redirecting", "/good")
    site.pages["/redirecting"] = raw(b"HTTP/1.1 302 Found\r\nLocation: /a\x01b\r\nContent-Length: 0\r\n\r\n")
    crawl = Crawl(connector(site))
    assert crawl.pages == ["/", "/good"]
    assert set(site.asked()) == {"/", "/redirecting", "/a%01b", "/good"}


def test_a_busy_server_is_asked_once_more_when_it_says_when(site: Site) -> None:
    answers = iter([Page(b"", 429, {"Retry-After": "7"}), html("Busy page")])
    pauses: list[float] = []

    class Busy(dict[str, Page]):
        def get(self, path: str, default: Any = None) -> Any:
            return next(answers) if path == "/busy" else super().get(path, default)

    site.pages = Busy(site.pages)
    assert crawled(site, "/busy", pause=pauses.append).pages == ["/", "/busy", "/good"]
    assert 7.0 in pauses
    for text in ("600", "soon", "-1", "9" * 400, "٣"):
        assert web_client.retry_after_s({"retry-after": text}) is None


@pytest.mark.parametrize(
    ("reference", "address"),
    [
        ("HTTP://Docs.Example.COM:80/a/../b/./c#x", "http://docs.example.com/b/c"),
        ("/%7euser/%e2%82%ac/€", "http://e.x/~user/%E2%82%AC/%E2%82%AC"),
        ("/%2e%2e/%2E/a", "http://e.x/a"),
        ("/a%2Fb", "http://e.x/a%2Fb"),
        ("../../../../etc/passwd", "http://e.x/etc/passwd"),
        (" \n/a\tb\n", "http://e.x/ab"),
        ("/a b", "http://e.x/a%20b"),
        ("?utm_source=x&page=2&fbclid=3", "http://e.x/f/?page=2"),
        ("https://bücher.example/", "https://xn--bcher-kva.example/"),
        ("", "http://e.x/f/"),
        ("/a\\b", "http://e.x/a%5Cb"),
        ("/..", "http://e.x/"),
        ("/a\x00b", None),
        ("/a\x7f", None),
        ("mailto:ann@e.x", None),
        ("data:text/html,x", None),
        ("http://ann@e.x/", None),
        ("http://e.x:x/", None),
        ("http://" + "a" * 70 + ".x/", None),
        ("/" + "a" * 3000, None),
        ("http://[v1.x]/", None),
    ],
)
def test_an_address_has_one_spelling(reference: str, address: str | None) -> None:
    assert canonical(reference, "http://e.x/f/") == address
    if address:
        assert canonical(address) == address


def test_the_folder_of_an_address() -> None:
    assert folder_of("https://e.x/docs/index.html") == "https://e.x/docs/"
    assert folder_of("https://e.x/docs") == "https://e.x/docs/"
    assert folder_of("https://e.x/v1.2/") == "https://e.x/v1.2/"
    assert folder_of("https://e.x/v1.2") == "https://e.x/v1.2/"
    assert folder_of("https://e.x/") == "https://e.x/"


@pytest.mark.parametrize(
    ("rules", "path", "allowed"),
    [
        ("User-agent: *\nDisallow:", "/a", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/b/c", True),
        ("User-agent: *\nDisallow: /a\nAllow: /a/b", "/a/c", False),
        ("User-agent: *\nDisallow: /\n\nUser-agent: ctx\nDisallow: /x", "/a", True),
        ("User-agent: Other\nUser-Agent: CTX/1.0\nDisallow: /a # why\n", "/a", False),
        ("User-agent: *\nDisallow: /*.php$", "/x/y.php", False),
        ("User-agent: *\nDisallow: /*.php$", "/x/y.php5", True),
        ("User-agent: *\nDisallow: /*?*print", "/a?x=print", False),
        ("User-agent: *\nDisallow: /a$", "/a", False),
        ("User-agent: *\nDisallow: /a$", "/ab", True),
        ("User-agent: *\nDisallow: /%7ea", "/%7Ea", False),
        ("Disallow: /", "/a", True),
        ("\ufeffUser-agent: *\r\nDisallow: /a\r\n", "/a", False),
        ("User-agent: *\nAllow: /a\nDisallow: /a", "/a", True),
    ],
)
def test_robots_txt_is_read_after_its_rfc(rules: str, path: str, allowed: bool) -> None:
    assert Robots(rules.encode(), "ctx").allows(f"http://e.x{path}") is allowed


@pytest.mark.parametrize(
    "data",
    [
        b"<a href=" * 100_000,
        b"<script>" * 100_000,
        b"<" * 500_000,
        b'<a href="' + b"x" * 500_000,
        b"<!--" * 100_000,
        b"<base href='http://[' >" * 10_000,
        b'<meta http-equiv=refresh content="' + b"0" * 100_000 + b'">',
        b"\xff\xfe<\x00a\x00",
        b"User-agent: *\n" + b"Disallow: /" + b"*a" * 2000 + b"\n",
        b"Disallow: " * 50_000,
        b"Disallow: http://[\nAllow: //\nDisallow: %\nCrawl-delay: nan\nRequest-rate: /\nVisit-time: -\n",
        b"<loc>" * 100_000,
        b"<urlset>" + b"<loc>" + b" " * 400_000,
        (b"<loc>" + b" " * 198) * 100_000,
        b"<?x " * 100_000,
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
