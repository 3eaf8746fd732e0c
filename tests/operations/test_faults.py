"""Faults around a running ctx (disk, permissions, damaged files) are reported or repaired."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from faults import Server, eventually, serving, unprivileged
from kit import ctx, project, workspace

from ctx.cli.doctor import store_findings
from ctx.config import load_config
from ctx.errors import StoreError
from ctx.server.overview import health

pytestmark = pytest.mark.slow

WORDS = {"a.md": "# A\n\nxylophone", "b.md": "# B\n\nquokka", "sub/c.md": "# C\n\nxylophone and narwhal"}
SEMANTIC = '[connectors.filesystem.docs]\nroot = "./docs"\n'


def search(folder: Path, query: str, mode: str = "keyword") -> list[str]:
    completed = ctx("search", query, "--mode", mode, "--json", cwd=folder)
    assert completed.returncode == 0, completed.stderr
    return sorted(hit["source_id"] for hit in json.loads(completed.stdout)["results"])


def doctor(folder: Path, *options: str) -> dict[str, tuple[str, str]]:
    """What was looked at -> (state, detail)."""
    completed = ctx("doctor", "--json", *options, cwd=folder)
    return {row["what"]: (row["state"], row["detail"]) for row in json.loads(completed.stdout)["findings"]}


def settled(server: Server) -> None:
    """Waits until a server has read everything and does nothing."""

    def idle() -> bool:
        health = server.get("/health")
        return health["activity"] == "idle" and not health["index_behind"] and not health["pending"]

    eventually(
        lambda: all(row["last_indexed_at"] for row in server.get("/tools/sources")["sources"]) and idle()
    )


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of eight megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)]
    completed = subprocess.run(mount, capture_output=True, text=True, check=False)
    if completed.returncode != 0:
        pytest.skip(
            "no small file system can be mounted here (run as root in a namespace that may): "
            f"{completed.stderr.strip()}"
        )
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


# -- the disk ------------------------------------------------------------------------------------------------
def test_on_a_full_disk_a_server_says_so_goes_on_answering_and_completes_once_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    config = project(tmp_path, WORDS)
    config.write_text(config.read_text() + f'[db]\npath = "{small_disk}/ctx.db"\n')
    with serving(config) as server:
        settled(server)
        free = os.statvfs(small_disk)
        (small_disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_bsize))
        for number in range(20):
            (tmp_path / f"docs/new{number}.md").write_text(
                "# New\n\nmarimba " + " ".join(f"w{number}x{n}" for n in range(9000))
            )
        eventually(lambda: not server.get("/tools/sources")["sources"][0]["healthy"], server.log())
        assert any(line.startswith("disk: the disk is full") for line in server.get("/health")["degraded"])
        assert server.search("xylophone") == ["a.md", "sub/c.md"]
        (source,) = server.get("/tools/sources")["sources"]
        assert source["note"] in "\n".join(server.get("/health")["degraded"])
        (small_disk / "filler").unlink()
        for number in range(3, 20):  # what remains has room
            (tmp_path / f"docs/new{number}.md").unlink()
        eventually(lambda: server.search("marimba") == ["new0.md", "new1.md", "new2.md"])
        eventually(lambda: server.get("/health")["degraded"] == [])
        assert server.get("/tools/sources")["sources"][0]["healthy"]
        assert server.log().count("No space") + server.log().count("full") < 20, (
            "an attempt every few seconds must not be a line every few seconds"
        )


def test_on_a_full_disk_memories_are_refused_and_health_says_so_until_there_is_room(
    tmp_path: Path, small_disk: Path
) -> None:
    config = project(tmp_path, WORDS)
    config.write_text(config.read_text() + f'[memory]\npath = "{small_disk}/memories/memory.db"\n')
    with workspace(config) as space:
        bank = space.memory.bank("default")
        bank.put("Otters pour tea.")
        assert health(space).get("degraded", []) == []
        free = os.statvfs(small_disk)
        (small_disk / "filler").write_bytes(b"\0" * (free.f_bavail * free.f_bsize))
        with pytest.raises(StoreError, match="the disk is full, and nothing was changed"):
            bank.put("Quokkas smile." * 1000)
        assert health(space)["degraded"] == ["disk: the disk is full, nothing can be stored in memories"]
        (small_disk / "filler").unlink()
        assert health(space).get("degraded", []) == []
        bank.put("Quokkas smile.")


def test_in_a_folder_that_may_not_be_written_index_says_so_and_search_answers(tmp_path: Path) -> None:
    project(tmp_path, WORDS)
    assert ctx("index", cwd=tmp_path).returncode == 0
    (tmp_path / "docs/a.md").write_text("# A\n\nmarimba")
    for path in sorted((tmp_path / ".ctx").rglob("*"), reverse=True):
        path.chmod(0o500 if path.is_dir() else 0o400)
    (tmp_path / ".ctx").chmod(0o500)
    run = [*unprivileged(), sys.executable, "-m", "ctx"]
    environ = {**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "none")}
    try:
        completed = subprocess.run([*run, "index"], cwd=tmp_path, env=environ, capture_output=True, text=True)
        assert completed.returncode == 4, "an error of the store"
        assert "check its folder" in completed.stderr
        assert "Traceback" not in completed.stderr
        completed = subprocess.run(
            [*run, "search", "quokka", "--json"], cwd=tmp_path, env=environ, capture_output=True, text=True
        )
        assert completed.returncode == 0, completed.stderr
        assert [hit["source_id"] for hit in json.loads(completed.stdout)["results"]] == ["b.md"]
    finally:
        for path in (tmp_path / ".ctx", *(tmp_path / ".ctx").rglob("*")):
            path.chmod(0o700)


# -- the catalog ---------------------------------------------------------------------------------------------
def test_a_damaged_page_of_the_catalog_is_named_by_doctor_and_fix_sets_the_file_aside(tmp_path: Path) -> None:
    project(
        tmp_path,
        {f"p{number}.md": f"# Page {number}\n\nxylophone {number} " + "word " * 400 for number in range(60)},
    )
    assert ctx("index", cwd=tmp_path).returncode == 0
    file = tmp_path / ".ctx/ctx.db"
    sqlite3.connect(file).execute("PRAGMA wal_checkpoint(TRUNCATE)").connection.close()
    data = bytearray(file.read_bytes())
    for page in range(4, len(data) // 4096, 3):
        data[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    file.write_bytes(data)
    state, detail = doctor(tmp_path)["catalog"]
    assert state == "failed"
    assert "doctor --fix" in detail
    for command in (("search", "xylophone"), ("index",)):
        completed = ctx(*command, cwd=tmp_path)
        assert "Traceback" not in completed.stderr
    state, detail = doctor(tmp_path, "--fix")["catalog"]
    assert state == "warning"
    assert "set aside" in detail
    assert list((tmp_path / ".ctx").glob("ctx.db.damaged-*"))
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert len(search(tmp_path, "xylophone")) == 12  # the default limit
    assert doctor(tmp_path)["catalog"][0] == "ok"


# -- the index -----------------------------------------------------------------------------------------------
def tantivy_files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in (folder / ".ctx/index").glob("keyword-*/*")
        if path.suffix in (".idx", ".store", ".pos", ".term", ".fast")
    )


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_server_that_starts_on_a_broken_keyword_index_mends_it_unasked(tmp_path: Path, damage: str) -> None:
    config = project(tmp_path, WORDS)
    assert ctx("index", cwd=tmp_path).returncode == 0
    break_files(tantivy_files(tmp_path), damage)
    with serving(config) as server:
        eventually(lambda: "keyword index is rebuilt" in server.log())
        eventually(lambda: answers(server, "xylophone") == ["a.md", "sub/c.md"])
    assert doctor(tmp_path)["index"][0] == "ok"


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_files_of_the_index_broken_under_a_running_server_end_in_right_answers(
    tmp_path: Path, damage: str
) -> None:
    config = project(tmp_path, WORDS)
    with serving(config) as server:
        settled(server)
        break_files(tantivy_files(tmp_path), damage)
        for _ in range(5):
            assert answers(server, "xylophone") in (["a.md", "sub/c.md"], None)
        if answers(server, "xylophone") is None:  # else nobody has noticed, and nothing was wrong
            eventually(lambda: answers(server, "xylophone") == ["a.md", "sub/c.md"])
        (tmp_path / "docs/d.md").write_text("# D\n\nxylophone")
        eventually(lambda: answers(server, "xylophone") == ["a.md", "d.md", "sub/c.md"])
        assert server.process.poll() is None


@pytest.mark.parametrize("damage", ["deleted", "truncated"])
def test_a_damaged_vector_file_is_mended_without_embedding_again(tmp_path: Path, damage: str) -> None:
    config = project(tmp_path, WORDS, SEMANTIC)
    assert ctx("index", cwd=tmp_path).returncode == 0
    nearest = search(tmp_path, "an instrument with wooden bars", "semantic")
    break_files(sorted((tmp_path / ".ctx/index/vectors").glob("*.segment")), damage)
    assert doctor(tmp_path)["index"][0] == "failed"
    with serving(config) as server:
        eventually(lambda: answers(server, "an instrument with wooden bars", "semantic") == nearest)
        eventually(lambda: "vectors are rebuilt" in server.log())
        assert server.get("/health")["pending"] == 0
    assert doctor(tmp_path)["index"][0] == "ok"


def break_files(files: list[Path], damage: str) -> None:
    assert files
    for path in files:
        data = path.read_bytes()
        if damage == "deleted":
            path.unlink()
        elif damage == "truncated":
            os.truncate(path, min(1000, len(data) // 2))  # vectors have room after their end
        elif data:
            with path.open("r+b") as file:  # the file in place, as a disk would
                offset = min(1000, len(data) // 3)
                file.seek(offset)
                file.write(bytes([data[offset] ^ 0x55]))


def answers(server: Server, query: str, mode: str = "keyword") -> list[str] | None:
    """What is found; None for an error that says the store is not well."""
    status, answer = server.post("/tools/search", {"query": query, "mode": mode, "limit": 100})
    if status != 200:
        assert answer["error"]["code"] in ("store_error", "unavailable", "internal", "store"), answer
        assert "Traceback" not in json.dumps(answer)
        return None
    return sorted(hit["source_id"] for hit in answer["results"])


def of_a_newer_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema.catalog'")
        connection.commit()


def test_doctor_closes_no_files_that_a_link_in_the_store_leads_to(tmp_path: Path) -> None:
    config = project(tmp_path / "clone")
    tool = tmp_path / "tools" / "tool"
    tool.parent.mkdir()
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    (tmp_path / "clone" / ".ctx").mkdir(mode=0o700)
    (tmp_path / "clone" / ".ctx" / "index").symlink_to(tool.parent)
    (tmp_path / "clone" / ".ctx" / "ctx.db").touch()
    list(store_findings(load_config(str(config), os.environ), fix=True))
    assert tool.stat().st_mode & 0o777 == 0o755
    assert (tmp_path / "clone" / ".ctx" / "ctx.db").stat().st_mode & 0o777 == 0o600


# -- the folder of the project -------------------------------------------------------------------------------
