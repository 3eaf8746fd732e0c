"""The web connector: which pages are read, under which address, and what a second crawl asks for."""

import gzip
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from kit import project, workspace
from web_kit import Crawl, Page, Site, connector, html, redirect, serving

from ctx.connectors.base import ScanLog
from ctx.errors import ConfigError, SourceError
from ctx.models import Caller


@pytest.fixture
def site() -> Iterator[Site]:
    with serving() as site:
        yield site


def guide(site: Site) -> None:
    """Four pages, each linked from each."""
    names = ("/", "/guide/", "/guide/install.html", "/api.html")
    for name in names:
        site.pages[name] = html(f"Page {name}", *names)


def web_project(site: Site, folder: Path) -> Path:
    return project(
        folder,
        config=f'[connectors.web.docs]\nurl = "{site.url}/"\nallow_hosts = ["{site.host}"]\n'
        'requests_per_second = 1000\n[embedding]\nprovider = "disabled"\n',
    )


def test_every_page_is_read_once_under_its_address(site: Site) -> None:
    guide(site)
    crawl = Crawl(connector(site))
    assert crawl.pages == ["/", "/api.html", "/guide/", "/guide/install.html"]
    assert sorted(site.asked()) == crawl.pages
    content = crawl.contents[f"{site.url}/api.html"]
    assert content.source_url == f"{site.url}/api.html"
    assert crawl.log.complete
    assert crawl.problems == {}


def test_a_second_crawl_is_answered_304_and_reads_nothing(site: Site, tmp_path: Path) -> None:
    guide(site)
    source = connector(site, folder=str(tmp_path))
    first = Crawl(source)
    site.requests.clear()
    second = Crawl(source, first.known)
    assert second.read == []
    assert second.unchanged == first.pages
    assert sorted(site.requests) == [
        ("/", 200),  # where a crawl begins is always read
        ("/api.html", 304),
        ("/guide/", 304),
        ("/guide/install.html", 304),
        ("/robots.txt", 404),
    ]


def test_a_page_that_is_gone_goes_and_one_that_nothing_links_to_stays(site: Site, tmp_path: Path) -> None:
    guide(site)
    source = connector(site, folder=str(tmp_path))
    first = Crawl(source)
    site.pages["/"] = html("A new front page")
    del site.pages["/api.html"]
    second = Crawl(source, first.known)
    assert second.pages == ["/", "/guide/", "/guide/install.html"]
    assert second.log.complete


def test_a_failing_page_keeps_what_is_indexed_of_it_and_of_what_lies_behind(
    site: Site, tmp_path: Path
) -> None:
    site.pages["/"] = html("Start", "/hub")
    site.pages["/hub"] = html("Hub", "/behind")
    site.pages["/behind"] = html("Behind")
    source = connector(site, folder=str(tmp_path))
    first = Crawl(source)
    site.pages["/hub"] = Page(b"", 500)
    for fingerprints in (first.known, {}):
        crawl = Crawl(source, fingerprints)
        assert "/behind" in crawl.pages
        assert crawl.log.withheld == [f"{site.url}/hub"]
        assert crawl.problems == {"/hub": "is answered with 500"}


def test_a_site_whose_start_fails_raises_and_keeps_all(site: Site) -> None:
    for status in (404, 403, 500):
        site.pages["/"] = Page(b"", status)
        with pytest.raises(SourceError, match=f"answered with {status}.*is kept"):
            Crawl(connector(site))


def test_most_pages_gone_at_once_are_kept_for_somebody_to_look(site: Site, tmp_path: Path) -> None:
    names = [f"/page-{number}" for number in range(20)]
    site.pages["/"] = html("Start", *names)
    for name in names:
        site.pages[name] = html(f"Page {name}")
    source = connector(site, folder=str(tmp_path))
    first = Crawl(source)
    for name in names:
        site.pages[name] = redirect("/login")
    site.pages["/login"] = html("Log in")
    second = Crawl(source, first.known)
    assert not second.log.complete
    assert "20 of 21 pages are gone at once" in second.problems[""]


def test_the_scope_is_the_folder_of_the_start_address(site: Site) -> None:
    site.pages["/docs/v2/index.html"] = html(
        "Docs", "a.html", "../v1/a.html", "/blog/", "http://elsewhere.example/"
    )
    site.pages["/docs/v2/a.html"] = html("A")
    site.pages["/docs/v1/a.html"] = html("Old A")
    site.pages["/blog/"] = html("Blog")
    assert Crawl(connector(site, "/docs/v2/index.html")).pages == ["/docs/v2/a.html", "/docs/v2/index.html"]
    scope = [f"{site.url}/docs/"]
    assert Crawl(connector(site, "/docs/v2/index.html", prefixes=scope)).pages == [
        "/docs/v1/a.html",
        "/docs/v2/a.html",
        "/docs/v2/index.html",
    ]


def test_globs_and_depth_narrow_a_crawl(site: Site) -> None:
    site.pages["/"] = html("Start", "/en/a", "/de/a", "/en/private/x")
    site.pages["/en/a"] = html("A", "/en/b")
    site.pages["/en/b"] = html("B", "/en/c")
    site.pages["/en/c"] = html("C")
    site.pages["/de/a"] = html("DE A")
    site.pages["/en/private/x"] = html("X")
    source = connector(site, include_globs=["/en/**"], exclude_globs=["private/"], depth=2)
    assert Crawl(source).pages == ["/", "/en/a", "/en/b"]


def test_one_page_with_several_addresses_is_one_document(site: Site) -> None:
    page = html("Guide", "/")
    site.pages["/"] = html(
        "Start", "/guide", "/guide/", "/guide/index.html", "/GUIDE/../guide/#top", "/guide/?utm_source=x"
    )
    site.pages["/guide"] = redirect("/guide/")
    site.pages["/guide/"] = site.pages["/guide/index.html"] = page
    assert Crawl(connector(site)).pages == ["/", "/guide/"]


def test_a_page_is_indexed_under_the_address_it_calls_its_own(site: Site) -> None:
    head = '<link rel="canonical" href="/install">'
    site.pages["/"] = html("Start", "/install?from=menu", "/old-install")
    site.pages["/old-install"] = html("Install", head=head, text="old skin " * 50)
    site.pages["/install"] = html("Install", head=head)
    assert Crawl(connector(site, queries=True)).pages == ["/", "/install"]


def test_robots_txt_is_obeyed_unless_the_site_is_ones_own(site: Site) -> None:
    guide(site)
    site.pages["/robots.txt"] = Page(b"User-agent: *\nDisallow: /guide/*.html$\n", headers={})
    assert Crawl(connector(site)).pages == ["/", "/api.html", "/guide/"]
    assert "/guide/install.html" not in site.asked()
    assert "/guide/install.html" in Crawl(connector(site, robots=False)).pages
    site.pages["/robots.txt"] = Page(b"User-agent: *\nDisallow: /\n", headers={})
    with pytest.raises(SourceError, match=r"robots\.txt forbids it"):
        Crawl(connector(site))


def test_a_robots_txt_that_fails_forbids_everything(site: Site) -> None:
    guide(site)
    site.pages["/robots.txt"] = Page(b"", 503)
    with pytest.raises(SourceError, match=r"robots\.txt: the server answers 503"):
        Crawl(connector(site))
    assert site.asked() == []


def test_robots_meta_tags_and_headers_are_obeyed(site: Site) -> None:
    site.pages["/"] = html("Start", "/hidden", "/ends", "/header")
    site.pages["/hidden"] = html("Hidden", "/behind", head='<meta name="robots" content="noindex">')
    site.pages["/behind"] = html("Behind")
    site.pages["/ends"] = html("Ends", "/beyond", head='<meta name="robots" content="nofollow">')
    site.pages["/beyond"] = html("Beyond")
    page = html("Header")
    site.pages["/header"] = page._replace(headers={**page.headers, "X-Robots-Tag": "noindex"})
    assert Crawl(connector(site)).pages == ["/", "/behind", "/ends"]


def test_a_sitemap_names_the_pages(site: Site) -> None:
    guide(site)
    pages = ["/guide/", "/api.html", "/missing", "http://elsewhere.example/x"]
    urls = "".join(f"<url><loc> {page if ':' in page else site.url + page} </loc></url>" for page in pages)
    xml = (
        f'<?xml version="1.0"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{urls}</urlset>'
    )
    site.pages["/a.xml.gz"] = Page(gzip.compress(xml.encode()), headers={"Content-Type": "application/gzip"})
    index = f"<sitemapindex><sitemap><loc>{site.url}/a.xml.gz</loc></sitemap></sitemapindex>"
    site.pages["/sitemap.xml"] = Page(index.encode(), headers={"Content-Type": "application/xml"})
    assert Crawl(connector(site, "/sitemap.xml")).pages == ["/api.html", "/guide/"]
    assert Crawl(connector(site, "/sitemap.xml", depth=1)).pages == [
        "/",
        "/api.html",
        "/guide/",
        "/guide/install.html",
    ]
    assert Crawl(connector(site, "/a.xml.gz")).pages == ["/api.html", "/guide/"]


@pytest.mark.parametrize("zipped", [False, True])
def test_a_sitemap_that_was_cut_off_deletes_nothing(site: Site, zipped: bool) -> None:
    guide(site)
    urls = "".join(f"<url><loc>{site.url}{page}</loc></url>" for page in ("/guide/", "/api.html"))
    xml = f"<urlset>{urls}</urlset>".encode()
    cut = gzip.compress(xml)[:-12] if zipped else xml[: xml.index(b"</url>")]
    name = "/a.xml.gz" if zipped else "/a.xml"
    site.pages[name] = Page(
        cut, headers={"Content-Type": "application/gzip" if zipped else "application/xml"}
    )
    with pytest.raises(SourceError, match=r"cut off.*\. Its index is kept"):
        Crawl(connector(site, name))


def test_an_llms_txt_names_the_pages(site: Site) -> None:
    text = (
        f"# Us\n\n> A site.\n\n## Docs\n- [Guide]({site.url}/guide.md): how\n- [API](/api.html)\n- "
        "[Other](https://elsewhere.example/a)\n"
    )
    site.pages["/llms.txt"] = Page(text.encode(), headers={"Content-Type": "text/plain"})
    site.pages["/guide.md"] = Page(b"# Guide\n\nHow it is done.\n", headers={"Content-Type": "text/markdown"})
    site.pages["/api.html"] = html("API", "/more.html")
    assert Crawl(connector(site, "/llms.txt")).pages == ["/api.html", "/guide.md"]


def test_kinds_that_are_no_pages_are_not_fetched(site: Site) -> None:
    site.pages["/"] = html("Start", "/a.png", "/style.css", "/a.zip", "/download", "/data.bin", "/paper.pdf")
    site.pages["/download"] = Page(b"\0" * 1000, headers={"Content-Type": "application/octet-stream"})
    site.pages["/paper.pdf"] = Page(b"%PDF-1.4", headers={"Content-Type": "application/pdf"})
    assert Crawl(connector(site)).pages == ["/", "/paper.pdf"]
    assert sorted(site.asked()) == ["/", "/download", "/paper.pdf"]


def test_an_address_that_is_none_or_holds_a_password_is_a_mistake_of_the_configuration() -> None:
    from ctx.connectors.web import WebConnector

    for url in ("docs.example.com", "file:///etc/passwd", "https://", "ftp://a/b"):
        with pytest.raises(ConfigError, match="must be an address"):
            WebConnector("web", url)
    with pytest.raises(ConfigError, match="sends no user or password"):
        WebConnector("web", "https://ann:secret@docs.example.com/")


def test_a_private_host_must_be_named(site: Site) -> None:
    guide(site)
    with pytest.raises(SourceError, match="allow_hosts"):
        Crawl(connector(site, allow_hosts=[]))
    assert site.requests == []


def test_no_cookie_or_password_is_sent(site: Site, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ann password secret\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    guide(site)
    for path, page in site.pages.items():
        assert isinstance(page, Page)
        site.pages[path] = page._replace(headers={**page.headers, "Set-Cookie": "id=1"})
    Crawl(connector(site))
    names = {name.lower() for headers in site.headers for name in headers}
    assert names == {"host", "accept", "accept-encoding", "user-agent"}


def test_a_site_is_indexed_searched_and_brought_up_to_date(site: Site, tmp_path: Path) -> None:
    guide(site)
    site.pages["/guide/install.html"] = html(
        "Installing the zeppelin", "/", text="Fill the envelope with helium. " * 12
    )
    with workspace(web_project(site, tmp_path)) as space:
        [report] = space.indexer.run()
        assert (report.ok, report.added, report.problems) == (True, 4, ())
        answer = space.toolbox.call("search", {"query": "helium envelope", "source": "web"}, Caller("cli"))
        [result] = answer["results"]
        assert result["title"] == "Installing the zeppelin"
        assert result["source_url"] == f"{site.url}/guide/install.html"
        assert "to /api.html" not in result["snippet"]
        site.pages["/guide/install.html"] = html("Installing the balloon")
        [report] = space.indexer.run()
        assert (report.updated, report.unchanged, report.deleted) == (1, 3, 0)
        del site.pages["/api.html"]
        [report] = space.indexer.run()
        assert (report.updated, report.unchanged, report.deleted) == (0, 3, 1)


class _Interruption(Exception):
    pass


def test_a_crawl_that_is_broken_off_again_and_again_comes_to_the_end_of_the_site(
    site: Site, tmp_path: Path
) -> None:
    names = [f"/p{number:02}" for number in range(12)]
    site.pages["/"] = html("Start", *names[:6])
    site.pages |= {name: html(name)._replace(etag=False) for name in names}
    site.pages["/p03"] = html("/p03", *names[6:])._replace(etag=False)
    source = connector(site, folder=str(tmp_path))
    indexed: dict[str, str] = {}

    def interrupted(step: str, count: int, total: int | None) -> None:
        if count > 5:
            raise _Interruption

    for _ in range(3):
        with suppress(_Interruption):
            for item in source.scan(dict(indexed), ScanLog(interrupted)):
                indexed[item.source_id] = item.fingerprint
    assert indexed.keys() == {site.url + name for name in ("/", *names)}
    site.asked()
    whole = Crawl(source, indexed)
    assert (whole.log.complete, whole.read, len(whole.unchanged)) == (True, [], 13)
    assert sorted(site.asked()) == ["/", *names]
    assert Crawl(source, indexed).log.complete
