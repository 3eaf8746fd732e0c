"""A full disk: a clear error, nothing half done, and recovery once there is room."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from store_tree import MODEL, embed_pending, make, open_store, portrait, vector_of

from ctx.errors import StoreError
from ctx.models import Filters
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog

SIZE_KB = 6_000


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of six megabytes."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    completed = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={SIZE_KB}k", "tmpfs", str(disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if completed.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {completed.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


def fill(disk: Path, leave_kb: int) -> Path:
    """Takes all the room but some."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    with open(filler, "ab") as file:
        file.write(b"\0" * max(0, free.f_bavail * free.f_bsize - leave_kb * 1024))
    return filler


def big(number: int) -> str:
    return " ".join(f"word{number}x{n}" for n in range(3_000))


def test_a_full_disk_fails_a_write_of_the_catalog_and_keeps_what_was_there(small_disk: Path) -> None:
    with SqliteCatalog(str(small_disk / "ctx.db")) as catalog:
        catalog.put_documents([make("s", "first", ["kept"])])
        filler = fill(small_disk, leave_kb=200)
        seq = catalog.seq()
        with pytest.raises(StoreError, match="disk is full"):
            catalog.put_documents([make("s", f"{n}", [big(n)]) for n in range(40)])
        assert catalog.fingerprints("s").keys() == {"first"}
        assert catalog.seq() == seq
        filler.unlink()
        catalog.put_documents([make("s", f"{n}", [big(n)]) for n in range(10)])
        assert len(catalog.fingerprints("s")) == 11
        assert catalog.check() == []


@pytest.mark.slow
def test_a_full_disk_leaves_the_index_as_it_was_published_and_the_next_catch_up_completes_it(
    small_disk: Path, tmp_path: Path
) -> None:
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog:
        with LocalIndex(str(small_disk / "index"), lambda: MODEL) as index:
            catalog.put_documents([make("s", "first", ["the kingfisher"])])
            embed_pending(catalog)
            index.catch_up(catalog)
            applied = index.applied_seq()
            filler = fill(small_disk, leave_kb=40)
            catalog.put_documents([make("s", f"{n}", [big(n)]) for n in range(40)])
            embed_pending(catalog)
            with pytest.raises(StoreError):
                index.catch_up(catalog)
            assert index.applied_seq() == applied
            for reader in (index, LocalIndex(index._path, lambda: MODEL)):
                assert len(reader.keyword("kingfisher", Filters(), 5)) == 1
                assert len(reader.semantic(vector_of(b"x"), Filters(), 5, MODEL)) == 1
            filler.unlink()
            index.catch_up(catalog)
            portrayed = portrait(catalog, index)
        with LocalIndex(str(tmp_path / "clean"), lambda: MODEL) as clean:
            clean.catch_up(catalog)
            assert portrait(catalog, clean) == portrayed


def test_a_store_cannot_be_made_on_a_full_disk_and_the_error_says_so(small_disk: Path) -> None:
    fill(small_disk, leave_kb=0)
    with pytest.raises(StoreError, match=r"disk is full|cannot be made"):
        open_store(small_disk / "store")
