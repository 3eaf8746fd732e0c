"""The filesystem connector on real trees: what it takes, what it sees change, what it must never touch or
wait for.
"""

import gzip
import json
import os
import shutil
import socket
import subprocess
import threading
import time
import tracemalloc
import unicodedata
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tree_kit import items, put, rescan, settled

from ctx.clock import iso_utc
from ctx.connectors import filesystem
from ctx.connectors.base import Connector, ScanLog
from ctx.connectors.defaults import DEFAULT_INCLUDE_GLOBS
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.opening import CLOCK_SKEW_NS, RACY, looks_binary, may_still_change
from ctx.errors import SourceError
from ctx.formats.encoding import decode


def test_it_is_a_connector(connector: FilesystemConnector) -> None:
    seam: Connector = connector
    assert seam.name == "filesystem:docs"


# -- what is taken -------------------------------------------------------------------------------------------


def test_prose_and_source_are_taken_by_default_and_data_is_not(
    root: Path, connector: FilesystemConnector
) -> None:
    for path in (
        "a.md",
        "b/c.rst",
        "d.py",
        "e.ipynb",
        "README",
        "f.json",
        "g.csv",
        "h.png",
        "package-lock.json",
    ):
        put(root, path)
    assert set(items(connector)) == {"a.md", "b/c.rst", "d.py", "e.ipynb", "README"}


def test_the_globs_of_context_harness_match_at_the_top_and_below(root: Path) -> None:
    for path in ("a.md", "docs/auth.md", "docs/deep/er.txt", "c.py"):
        put(root, path)
    for globs in (["**/*.md", "**/*.txt"], ["*.md", "*.txt"]):
        assert set(items(FilesystemConnector("filesystem", str(root), include_globs=globs))) == {
            "a.md",
            "docs/auth.md",
            "docs/deep/er.txt",
        }


def test_a_scan_goes_in_the_order_of_names(root: Path, connector: FilesystemConnector) -> None:
    for path in ("b.md", "a.md", "z/b.md", "z/a.md", "c/a.md"):
        put(root, path)
    assert [item.source_id for item in connector.scan({}, ScanLog())] == [
        "a.md",
        "b.md",
        "c/a.md",
        "z/a.md",
        "z/b.md",
    ]


def test_ignore_files_of_every_level_are_obeyed_and_ours_comes_last(
    root: Path, connector: FilesystemConnector
) -> None:
    for path in ("a.md", "gen/b.md", "sub/c.md", "sub/keep.md", "sub/gen/d.md", "draft.md"):
        put(root, path)
    put(root, ".gitignore", "gen/\ndraft.md\n")
    put(root, "sub/.gitignore", "*.md\n!keep.md\n")
    put(root, ".ctxignore", "!draft.md\na.md\n")
    assert set(items(connector)) == {"sub/keep.md", "draft.md"}


def test_what_is_ruled_out_stays_out_however_the_accents_of_its_name_are_stored(root: Path) -> None:
    for name in ("Privé/a.md", "Geheim-ü/b.md", "Über.md", "Öl.md"):
        put(root, unicodedata.normalize("NFD", name))
    put(root, ".gitignore", "Geheim-ü/\n")
    for globs in (
        {"exclude_globs": ["Privé/", "Ö*.md"]},
        {"include_globs": ["?ber.md"]},
        {"include_globs": ["*.md"], "exclude_globs": ["[ÖÄ]l.md", "P*é/**"]},
        {"include_globs": [unicodedata.normalize("NFD", "Über.md")]},
    ):
        assert set(items(FilesystemConnector("filesystem", str(root), **globs))) == {"U\u0308ber.md"}


def test_a_glob_that_begins_above_the_root_is_told(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    put(root, "private/a.md")
    mistakes = ["docs/private/**", "./docs/private", f"{root}/private/"]
    globs = [*mistakes, "docs/", "private2/**", "docs"]

    def notes() -> list[str]:
        log = ScanLog()
        list(FilesystemConnector("filesystem", str(root), exclude_globs=globs).scan({}, log))
        return [note.message for note in log.notes]

    section = "[connectors.filesystem]"
    assert notes() == [f"'{glob}' in {section} fits nothing: globs begin below `root`" for glob in mistakes]
    put(root, "docs/b.md")
    assert len(notes()) == 1, "there is a folder of that name in it"


def test_gitignore_can_be_left_aside_but_ctxignore_stays(root: Path) -> None:
    for path in ("a.md", "b.md", "c.md"):
        put(root, path)
    put(root, ".gitignore", "a.md\n")
    put(root, ".ctxignore", "b.md\n")
    assert set(items(FilesystemConnector("filesystem", str(root), respect_gitignore=False))) == {
        "a.md",
        "c.md",
    }


def test_a_folder_of_a_git_tree_obeys_the_rules_from_above_it(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "docs/_build/\n*.log.md\n")
    (tmp_path / ".git" / "info").mkdir(parents=True)
    put(tmp_path, ".git/info/exclude", "private.md\n")
    for path in ("docs/a.md", "docs/_build/b.md", "docs/x.log.md", "docs/private.md"):
        put(tmp_path, path)
    assert set(items(FilesystemConnector("filesystem", str(tmp_path / "docs")))) == {"a.md"}


def test_a_root_that_git_ignores_is_taken_whole_because_it_was_named(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "notes\n")
    (tmp_path / ".git").mkdir()
    put(tmp_path, "notes/a.md")
    put(tmp_path, "notes/more/notes/b.md")
    assert set(items(FilesystemConnector("filesystem", str(tmp_path / "notes")))) == {
        "a.md",
        "more/notes/b.md",
    }


def test_caches_environments_and_build_output_are_left_out(
    root: Path, connector: FilesystemConnector
) -> None:
    for path in (
        ".git/a.md",
        "node_modules/x/README.md",
        "env/pyvenv.cfg",
        "env/lib/a.py",
        "c/CACHEDIR.TAG",
        "c/a.md",
    ):
        put(root, path)
    for path in ("app/Cargo.toml", "app/target/doc/a.html", "target/a.md"):
        put(root, path)
    assert set(items(connector)) == {"app/Cargo.toml", "target/a.md"}


def test_a_file_over_the_cap_is_a_line_of_the_report(root: Path) -> None:
    put(root, "big.md", "x" * 101)
    put(root, "small.md", "x" * 100)
    log = ScanLog()
    scanned = [
        item.source_id
        for item in FilesystemConnector("filesystem", str(root), max_file_bytes=100).scan({}, log)
    ]
    assert scanned == ["small.md"]
    assert [(problem.source_id, "101 bytes" in problem.message) for problem in log.problems] == [
        ("big.md", True)
    ]


# -- what is read --------------------------------------------------------------------------------------------


def test_reading_gives_the_bytes_and_no_path_of_this_machine(
    root: Path, connector: FilesystemConnector
) -> None:
    put(root, "näher/50% off?.md", b"\xff\xfeh\x00i\x00")
    content = items(connector)["näher/50% off?.md"].read()
    assert content.data == b"\xff\xfeh\x00i\x00"
    assert content.source_url is None


def test_a_link_leads_to_a_file_where_one_is_configured(root: Path) -> None:
    put(root, "näher/50% off?.md")
    wiki = FilesystemConnector("filesystem", str(root), link="https://wiki.example/view?file={path}#top")
    content = items(wiki)["näher/50% off?.md"].read()
    assert content.source_url == "https://wiki.example/view?file=n%C3%A4her/50%25%20off%3F.md#top"
    local = FilesystemConnector("filesystem", str(root), link="file")
    url = items(local)["näher/50% off?.md"].read().source_url
    assert url is not None
    assert unquote(urlsplit(url).path) == str(root / "näher/50% off?.md")
    assert wiki.signature != local.signature


def test_only_the_beginning_of_a_binary_file_is_read(root: Path, connector: FilesystemConnector) -> None:
    put(root, "a.md", b"\x7fELF\0\0\0" + b"\1\0\2" * 100_000)
    data = items(connector)["a.md"].read().data
    assert isinstance(data, bytes)
    assert len(data) == 8192


@pytest.mark.parametrize("suffix", ["pdf", "docx", "xlsx", "odt", "epub"])
def test_a_document_is_read_whole(root: Path, suffix: str) -> None:
    content = b"PK\x03\x04" + b"\x14\0\0\0\x08" * 100_000
    put(root, f"A.{suffix.upper()}", content)
    connector = FilesystemConnector("filesystem", str(root), include_globs=["*"])
    assert items(connector)[f"A.{suffix.upper()}"].read().data == content


@pytest.mark.parametrize("suffix", ["zip", "jar", "whl", "bin"])
def test_what_no_reader_takes_is_not_read_whole(root: Path, suffix: str) -> None:
    put(root, f"a.{suffix}", b"PK\x03\x04" + b"\x14\0\0\0\x08" * 100_000)
    connector = FilesystemConnector("filesystem", str(root), include_globs=["*"])
    data = items(connector)[f"a.{suffix}"].read().data
    assert len(data) == 8192
    assert isinstance(data, bytes)
    assert decode(data) is None


@pytest.mark.parametrize(
    "encoding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig"]
)
def test_wide_text_is_not_taken_for_binary(encoding: str) -> None:
    assert not looks_binary("Plain words of a letter to a friend, and one é.\n".encode(encoding) * 20)


def test_a_compressed_manual_page_is_read_whole(root: Path) -> None:
    put(root, "ls.1.gz", gzip.compress(os.urandom(30_000)))
    data = items(FilesystemConnector("filesystem", str(root), include_globs=["*.gz"]))["ls.1.gz"].read().data
    assert data == (root / "ls.1.gz").read_bytes()


def test_nul_bytes_without_order_are_binary() -> None:
    assert looks_binary(bytes(range(255)) * 4)
    assert looks_binary(b"MZ\x90\0\3\0\0\0\4\0\0\0\xff\xff\0\0\xb8\0\0\0\0\0\0\0@\0\0\0\x0e\x1f\xba\x0e")
    assert not looks_binary(b"")


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            [b"\0", b"a", b"\0\0", b"\xff", b"\xfe", b"a\0", b"\0a", b"a\0\0\0", b"\0\0\0a", b"\x01"]
        ),
        max_size=40,
    )
)
def test_whatever_is_cut_short_as_binary_the_extractor_takes_for_binary(parts: list[bytes]) -> None:
    head = b"".join(parts)
    assert not looks_binary(head) or decode(head) is None


def test_names_that_are_not_utf_8_have_ids_that_can_be_stored_and_told_apart(
    root: Path, connector: FilesystemConnector
) -> None:
    folder = os.fsencode(root) + b"/\xfc"
    os.mkdir(folder)
    for name in (b"\xff.md", b"%FF.md", b"100%.md", b"a\nb.md"):
        with open(folder + b"/" + name, "wb") as file:
            file.write(name)
    scanned = items(connector)
    assert set(scanned) == {"%FC/%FF.md", "%FC/%25FF.md", "%FC/100%.md", "%FC/a\nb.md"}
    json.dumps(sorted(scanned)).encode("utf-8")
    assert scanned["%FC/%FF.md"].read().data == b"\xff.md"
    assert scanned["%FC/%25FF.md"].read().data == b"%FF.md"
    linked = FilesystemConnector("filesystem:docs", str(root), link="https://wiki/{path}")
    assert items(linked)["%FC/%FF.md"].read().source_url == "https://wiki/%FC/%FF.md"
    assert rescan(connector, settled(connector)) == (set(), set())


def test_a_file_that_went_away_is_a_source_error(root: Path, connector: FilesystemConnector) -> None:
    path = put(root, "a.md")
    item = items(connector)["a.md"]
    path.unlink()
    with pytest.raises(SourceError, match="went away"):
        item.read()


def test_a_file_that_grew_over_the_cap_since_the_scan_is_not_read(root: Path) -> None:
    path = put(root, "a.md", "x")
    item = items(FilesystemConnector("filesystem", str(root), max_file_bytes=10))["a.md"]
    path.write_text("x" * 11)
    with pytest.raises(SourceError, match="max_file_bytes"):
        item.read()


def test_a_file_is_read_whole_whatever_its_size(root: Path, connector: FilesystemConnector) -> None:
    bodies = {f"{size}.md": b"x" * size for size in (0, 1, 8191, 8192, 8193, 200_000)}
    for name, body in bodies.items():
        (root / name).write_bytes(body)
    assert {name: item.read().data for name, item in items(connector).items()} == bodies


def test_a_large_cap_makes_no_large_buffer_for_a_small_file(root: Path) -> None:
    put(root, "a.md", "x" * 9000)
    item = items(FilesystemConnector("filesystem", str(root), max_file_bytes=100_000_000))["a.md"]
    tracemalloc.start()
    try:
        item.read()
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_file_that_is_written_all_the_time_is_read_and_read_again_next_time(
    root: Path, connector: FilesystemConnector
) -> None:
    path = put(root, "a.md", "line\n" * 1000)
    indexed = settled(connector)
    stop = threading.Event()

    def append() -> None:
        with open(path, "a") as file:
            while not stop.is_set():
                file.write("line\n")
                file.flush()

    writer = threading.Thread(target=append)
    writer.start()
    try:
        while not items(connector, indexed):
            pass
        data = items(connector)["a.md"].read().data
    finally:
        stop.set()
        writer.join()
    assert isinstance(data, bytes)
    assert len(data) >= 5000
    assert set(items(connector, indexed)) == {"a.md"}


# -- links and special files ---------------------------------------------------------------------------------


def test_links_are_passed_over_by_default(root: Path, connector: FilesystemConnector) -> None:
    put(root, "a.md")
    os.symlink(root / "a.md", root / "b.md")
    os.symlink(root, root / "loop")
    assert set(items(connector)) == {"a.md"}


def test_links_are_followed_on_request_but_never_out_of_the_root(root: Path, tmp_path: Path) -> None:
    put(tmp_path, "secret.md")
    put(tmp_path, "outside/secret.md")
    put(root, "v2/a.md", "two")
    put(root, ".git/config.md")
    os.symlink("v2", root / "latest")
    os.symlink("v2/a.md", root / "current.md")
    os.symlink(tmp_path / "secret.md", root / "leak.md")
    os.symlink(tmp_path / "outside", root / "leaks")
    os.symlink("../outside", root / "v2" / "leaks")
    os.symlink(".git", root / "machinery")
    os.symlink("nowhere", root / "dangling.md")
    connector = FilesystemConnector("filesystem", str(root), follow_symlinks=True)
    scanned = items(connector)
    assert set(scanned) == {"v2/a.md", "latest/a.md", "current.md"}
    assert {item.read().data for item in scanned.values()} == {b"two"}
    assert rescan(connector, settled(connector)) == (set(), set())


def test_loops_of_links_end(root: Path) -> None:
    put(root, "a/x.md")
    put(root, "b/y.md")
    for link, target in (
        ("a/to_b", "../b"),
        ("b/to_a", "../a"),
        ("a/self", "."),
        ("b/up", ".."),
        ("me", "me"),
    ):
        os.symlink(target, root / link)
    scanned = items(FilesystemConnector("filesystem", str(root), follow_symlinks=True))
    assert {"a/x.md", "b/y.md"} <= set(scanned)
    assert len(scanned) < 10


def test_a_link_put_in_place_of_a_file_or_folder_is_not_followed(
    root: Path, tmp_path: Path, connector: FilesystemConnector
) -> None:
    put(tmp_path, "secret/a.md", "secret")
    file, folder = put(root, "a.md"), put(root, "sub/a.md")
    scanned = items(connector)
    file.unlink()
    os.symlink(tmp_path / "secret/a.md", file)
    shutil.rmtree(folder.parent)
    os.symlink(tmp_path / "secret", folder.parent)
    for source_id in ("a.md", "sub/a.md"):
        with pytest.raises(SourceError):
            scanned[source_id].read()
    assert items(connector) == {}


def test_a_root_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    put(root, "a.md", "here")
    os.symlink(root, tmp_path / "link")
    scanned = items(FilesystemConnector("filesystem", str(tmp_path / "link")))
    assert scanned["a.md"].read().data == b"here"


def test_fifos_sockets_and_devices_neither_block_nor_appear(
    root: Path, connector: FilesystemConnector
) -> None:
    os.mkfifo(root / "pipe.md")
    os.mkfifo(root / ".gitignore")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(root / "socket.md"))
        path = put(root, "a.md")
        scanned = items(connector)
        assert set(scanned) == {"a.md"}
        path.unlink()
        os.mkfifo(path)
        with pytest.raises(SourceError, match="not a regular file"):
            scanned["a.md"].read()


# -- what changed --------------------------------------------------------------------------------------------


def test_an_unchanged_tree_yields_nothing(root: Path, connector: FilesystemConnector) -> None:
    for number in range(20):
        put(root, f"{number % 3}/{number}.md")
        put(root, f"{number % 3}/{number}.json")
    put(root, ".gitignore", "7.md\n")
    indexed = settled(connector)
    assert len(indexed) == 19
    assert rescan(connector, indexed) == (set(), set())


def same_second_edit(path: Path) -> None:
    before = path.stat()
    path.write_text("TEXT")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def older_file_moved_over(path: Path) -> None:
    twin = path.parent / "other.tmp"
    twin.write_text("TEXT")
    os.utime(twin, (0, 0))
    os.replace(twin, path)


def longer(path: Path) -> None:
    path.write_text("longer than it was")


def copied_with_its_date(path: Path) -> None:
    twin = path.parent / "other.tmp"
    twin.write_text("TEXT")
    shutil.copystat(path, twin)
    shutil.copy2(twin, path)
    twin.unlink()


@pytest.mark.parametrize("edit", [same_second_edit, older_file_moved_over, longer, copied_with_its_date])
def test_every_kind_of_edit_is_seen(
    root: Path, connector: FilesystemConnector, edit: Callable[[Path], None]
) -> None:
    path = put(root, "a.md")
    put(root, "b.md")
    indexed = settled(connector)
    edit(path)
    assert rescan(connector, indexed) == ({"a.md"}, set())


def test_a_file_as_young_as_the_scan_is_looked_at_once_more(
    root: Path, connector: FilesystemConnector
) -> None:
    path = put(root, "a.md")
    young = os.stat(path)
    soon_ns = time.time_ns() + CLOCK_SKEW_NS // 2  # however long the scan is kept waiting
    os.utime(path, ns=(soon_ns, soon_ns))
    first = items(connector)["a.md"].fingerprint
    assert RACY in first
    assert set(items(connector, {"a.md": first})) == {"a.md"}
    assert may_still_change(young, young.st_ctime_ns + 1_000)
    assert not may_still_change(young, young.st_ctime_ns + 3_000_000_000)
    whole_second = os.stat_result(
        (*young[:7], 1000, 1000, 1000), {"st_mtime_ns": 10**12, "st_ctime_ns": 10**12}
    )
    assert may_still_change(whole_second, 10**12 + 1_500_000_000)


def test_deletes_renames_and_moves_are_seen(root: Path, connector: FilesystemConnector) -> None:
    for path in ("a.md", "b.md", "sub/c.md"):
        put(root, path)
    indexed = settled(connector)
    (root / "a.md").unlink()
    (root / "b.md").rename(root / "sub" / "b.md")
    (root / "sub").rename(root / "moved")
    assert rescan(connector, indexed) == ({"moved/b.md", "moved/c.md"}, {"a.md", "b.md", "sub/c.md"})


def test_a_new_ignore_rule_takes_files_out_and_its_removal_brings_them_back(
    root: Path, connector: FilesystemConnector
) -> None:
    put(root, "a.md")
    put(root, "b.md")
    indexed = settled(connector)
    put(root, ".ctxignore", "b.md\n")
    read, deleted = rescan(connector, indexed)
    assert deleted == {"b.md"}
    assert read <= {"a.md"}
    indexed = settled(connector)
    assert rescan(connector, indexed) == (set(), set())
    (root / ".ctxignore").unlink()
    read, deleted = rescan(connector, indexed)
    assert (read - {"a.md"}, deleted) == ({"b.md"}, set())


def test_endings_in_capitals_are_taken_without_globs(root: Path) -> None:
    for name in ("REPORT.PDF", "README.MD", "Setup.PY", "DATA.CSV"):
        (root / name).write_text("words")
    connector = FilesystemConnector("filesystem", str(root))
    items = {item.source_id for item in connector.scan({}, ScanLog())}
    assert {"REPORT.PDF", "README.MD", "Setup.PY"} <= items
    assert "DATA.CSV" not in items


def test_the_signature_changes_with_what_a_scan_would_yield(root: Path) -> None:
    base = FilesystemConnector("filesystem", str(root)).signature
    assert (
        base
        == FilesystemConnector(
            "filesystem", str(root) + "/", include_globs=list(DEFAULT_INCLUDE_GLOBS)
        ).signature
    )
    signatures = {
        FilesystemConnector("filesystem", str(root), include_globs=["*.md"]).signature,
        FilesystemConnector("filesystem", str(root), exclude_globs=["*.md"]).signature,
        FilesystemConnector("filesystem", str(root), follow_symlinks=True).signature,
        FilesystemConnector("filesystem", str(root), respect_gitignore=False).signature,
        FilesystemConnector("filesystem", str(root), max_file_bytes=5).signature,
        FilesystemConnector("filesystem", str(root.parent)).signature,
    }
    assert len(signatures | {base}) == 7


def test_a_version_that_takes_other_files_reads_every_source_anew(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = FilesystemConnector("filesystem", str(root)).signature
    monkeypatch.setattr(filesystem, "SCAN_FORMAT", filesystem.SCAN_FORMAT + 1)
    assert FilesystemConnector("filesystem", str(root)).signature != before


# -- what cannot be read -------------------------------------------------------------------------------------


def test_a_missing_root_is_a_source_error_that_names_the_mend_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        list(FilesystemConnector("filesystem:docs", str(tmp_path / "gone")).scan({}, ScanLog()))
    assert "[connectors.filesystem.docs]" in caught.value.message
    assert str(tmp_path) not in caught.value.message


def test_a_root_that_is_a_file_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="cannot be read"):
        list(FilesystemConnector("filesystem", str(put(tmp_path, "a.md"))).scan({}, ScanLog()))


def test_a_root_that_is_suddenly_empty_is_taken_for_an_unmounted_disk(
    root: Path, connector: FilesystemConnector
) -> None:
    indexed = {f"{number}.md": "x" for number in range(50)}
    with pytest.raises(
        SourceError, match=r"is empty, but 50 documents .* `ctx index filesystem:docs --full`"
    ):
        list(connector.scan(indexed, ScanLog()))
    assert list(connector.scan({}, ScanLog())) == []  # as a full run asks
    assert rescan(connector, {"only.md": "x"}) == (set(), {"only.md"})


@pytest.mark.parametrize("seconds", [99_999_999_999_999, -99_999_999_999_999])
def test_a_file_of_a_year_that_nobody_can_write_has_the_nearest_one(
    root: Path, connector: FilesystemConnector, seconds: int
) -> None:
    """Some file systems keep what an archive says, and a search that met the file failed in telling it."""
    put(root, "a.md")
    subprocess.run(["touch", "-d", f"@{seconds}", str(root / "a.md")], check=False)
    assert len(iso_utc(items(connector)["a.md"].updated_ms)) >= len("9999-12-31T23:59:59Z")
