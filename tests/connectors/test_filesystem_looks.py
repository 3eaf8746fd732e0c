"""Looks at single paths, as a watcher asks for them: what they tell, what they leave alone, what they cannot
judge.
"""

import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path

import pytest
from tree_kit import items, put, settled

from ctx.connectors.base import ScanLog
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.opening import RACY
from ctx.errors import SourceError


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


def test_a_look_leaves_everything_else_alone(root: Path, connector: FilesystemConnector) -> None:
    put(root, "a.md")
    put(root, "ab.md")
    indexed = settled(connector)
    (root / "a.md").unlink()
    (root / "ab.md").unlink()
    assert look(connector, indexed, root / "a.md") == (set(), {"a.md"}, False)


def test_a_look_at_thousands_of_paths_is_quick(root: Path, connector: FilesystemConnector) -> None:
    indexed = {f"{number % 200}/{number}.md": "x" for number in range(50_000)}
    put(root, "elsewhere.md")
    paths = [root / f"{number}" / "gone" for number in range(5000)] + [
        root / f"{number}" for number in range(100, 200)
    ]
    began_s = time.process_time()
    _, deleted, _ = look(connector, indexed, *paths)
    assert len(deleted) == 25_000
    assert time.process_time() - began_s < 20  # a look at every id for every path would take a minute


def test_a_look_obeys_the_same_rules_as_a_scan(
    root: Path, connector: FilesystemConnector, tmp_path: Path
) -> None:
    put(root, ".gitignore", "gen/\n*.tmp.md\n")
    paths = [
        put(root, path) for path in ("gen/a.md", "b.tmp.md", "node_modules/c.md", "d.json", "e/f.md", "g.md")
    ]
    os.symlink(root / "g.md", root / "h.md")
    outside = put(tmp_path, "elsewhere/i.md")
    assert look(connector, {}, *paths, root / "h.md", outside) == ({"e/f.md", "g.md"}, set(), False)
    scanned = items(connector)
    log = ScanLog()
    for item in connector.scan_paths([str(path) for path in paths], {}, log):
        assert item.fingerprint.replace(RACY, "") == scanned[item.source_id].fingerprint.replace(RACY, "")


def test_a_file_in_place_of_a_folder_and_the_other_way_round(
    root: Path, connector: FilesystemConnector
) -> None:
    put(root, "x.md/inner.md")
    put(root, "y.md")
    indexed = settled(connector)
    shutil.rmtree(root / "x.md")
    put(root, "x.md")
    (root / "y.md").unlink()
    put(root, "y.md/inner.md")
    assert look(connector, indexed, root / "x.md", root / "y.md") == (
        {"x.md", "y.md/inner.md"},
        {"x.md/inner.md", "y.md"},
        False,
    )


def test_paths_that_single_looks_cannot_judge_ask_for_a_whole_scan(
    root: Path, connector: FilesystemConnector
) -> None:
    put(root, "sub/a.md")
    assert look(connector, {}, put(root, "sub/.gitignore", "*.md\n"))[2]
    assert look(connector, {}, root / "sub" / ".ctxignore")[2]
    assert look(connector, {}, root)[2]
    assert look(
        FilesystemConnector("filesystem", str(root), follow_symlinks=True), {}, root / "sub" / "a.md"
    )[2]


def test_a_look_at_a_vanished_root_deletes_nothing(root: Path, connector: FilesystemConnector) -> None:
    path = put(root, "a.md")
    indexed = settled(connector)
    shutil.rmtree(root)
    with pytest.raises(SourceError):
        look(connector, indexed, path)


def test_a_look_through_a_linked_root_finds_its_files(root: Path, tmp_path: Path) -> None:
    put(root, "a.md")
    os.symlink(root, tmp_path / "link")
    connector = FilesystemConnector("filesystem", str(tmp_path / "link"))
    assert look(connector, {}, root / "a.md")[0] == {"a.md"}
    assert look(connector, {}, tmp_path / "link" / "a.md")[0] == {"a.md"}
