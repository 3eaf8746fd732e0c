"""The filesystem connector on real files: what it indexes, which changes it sees, what it must not follow."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from faults import unprivileged
from kit import ctx, project
from tree_kit import items, put, rescan, settled

from ctx.clock import iso_utc
from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.errors import SourceError

# -- what is taken -------------------------------------------------------------------------------------------


def test_ignore_files_of_every_level_are_obeyed_and_ours_comes_last(
    root: Path, connector: FilesystemConnector
) -> None:
    for path in ("a.md", "gen/b.md", "sub/c.md", "sub/keep.md", "sub/gen/d.md", "draft.md"):
        put(root, path)
    put(root, ".gitignore", "gen/\ndraft.md\n")
    put(root, "sub/.gitignore", "*.md\n!keep.md\n")
    put(root, ".ctxignore", "!draft.md\na.md\n")
    assert set(items(connector)) == {"sub/keep.md", "draft.md", ".gitignore", "sub/.gitignore"}


def test_a_folder_of_a_git_tree_obeys_the_rules_from_above_it(tmp_path: Path) -> None:
    put(tmp_path, ".gitignore", "docs/_build/\n*.log.md\n")
    (tmp_path / ".git" / "info").mkdir(parents=True)
    put(tmp_path, ".git/info/exclude", "private.md\n")
    for path in ("docs/a.md", "docs/_build/b.md", "docs/x.log.md", "docs/private.md"):
        put(tmp_path, path)
    assert set(items(FilesystemConnector("filesystem", str(tmp_path / "docs")))) == {"a.md"}


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


def test_reading_returns_the_bytes_without_a_local_path(root: Path, connector: FilesystemConnector) -> None:
    put(root, "näher/50% off?.md", b"\xff\xfeh\x00i\x00")
    content = items(connector)["näher/50% off?.md"].read()
    assert content.data == b"\xff\xfeh\x00i\x00"
    assert content.source_url is None


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


# -- links and special files ---------------------------------------------------------------------------------


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


# -- what cannot be read -------------------------------------------------------------------------------------


def test_a_missing_root_is_a_source_error_that_names_the_fix_and_no_path(tmp_path: Path) -> None:
    with pytest.raises(SourceError) as caught:
        list(FilesystemConnector("filesystem:docs", str(tmp_path / "gone")).scan({}, ScanLog()))
    assert "[connectors.filesystem.docs]" in caught.value.message
    assert str(tmp_path) not in caught.value.message


def test_a_root_that_is_a_file_is_said_to_be_one(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("x")
    with pytest.raises(SourceError, match="is a file; name its folder"):
        list(FilesystemConnector("filesystem:docs", str(tmp_path / "a.md")).scan({}, ScanLog()))


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


def test_closed_folders_and_files_are_reported_and_what_is_known_of_them_is_kept(tmp_path: Path) -> None:
    project(tmp_path, dict.fromkeys(("a.md", "closed/b.md", "secret.md"), "# Words\n"))
    assert ctx("index", cwd=tmp_path).returncode == 0
    (tmp_path / "docs" / "closed").chmod(0)
    (tmp_path / "docs" / "secret.md").write_text("# Other words\n")
    (tmp_path / "docs" / "secret.md").chmod(0)
    command = [*unprivileged(), sys.executable, "-m", "ctx", "index", "--json"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    (source,) = json.loads(run.stdout)["sources"]
    assert sorted(problem["source_id"] for problem in source["problems"]) == ["closed", "secret.md"]
    assert source["deleted"] == 0


# -- single paths, as the watcher asks for them


def look(
    connector: FilesystemConnector, indexed: Mapping[str, str], *paths: Path
) -> tuple[set[str], set[str], bool]:
    """(ids to read, ids gone, rescan) of a look at single paths."""
    log = ScanLog()
    ids = {item.source_id for item in connector.scan_paths([str(path) for path in paths], indexed, log)}
    return ids, log.gone, log.rescan


def test_single_paths_show_what_is_new_changed_gone_and_unchanged(
    root: Path, connector: FilesystemConnector
) -> None:
    for path in ("a.md", "b.md", "c/d.md", "c/e.md", "same.md"):
        put(root, path)
    indexed = settled(connector)
    put(root, "a.md", "longer than before")
    (root / "b.md").unlink()
    shutil.rmtree(root / "c")
    put(root, "new/deep/f.md")
    paths = (root / "a.md", root / "b.md", root / "c", root / "new", root / "same.md", root / "never.md")
    assert look(connector, indexed, *paths) == (
        {"a.md", "new/deep/f.md"},
        {"b.md", "c/d.md", "c/e.md"},
        False,
    )


def test_changed_ignore_files_ask_for_a_whole_scan(root: Path, connector: FilesystemConnector) -> None:
    put(root, "sub/a.md")
    assert look(connector, {}, put(root, "sub/.gitignore", "*.md\n"))[2]
    assert look(connector, {}, root / "sub" / ".ctxignore")[2]
    assert look(connector, {}, root)[2]
    assert look(
        FilesystemConnector("filesystem", str(root), follow_symlinks=True), {}, root / "sub" / "a.md"
    )[2]


def test_a_vanished_root_deletes_nothing(root: Path, connector: FilesystemConnector) -> None:
    path = put(root, "a.md")
    indexed = settled(connector)
    shutil.rmtree(root)
    with pytest.raises(SourceError):
        look(connector, indexed, path)
