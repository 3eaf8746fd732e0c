"""Opening a catalog: permissions, migrations, damaged and foreign files."""

import errno
import fcntl
import os
import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from store_tree import make

from ctx.errors import Busy, StoreError
from ctx.memory.store import MemoryStore
from ctx.store.schema import connect, holds_statements, migrate, schema_version, transaction
from ctx.store.sqlite import SqliteCatalog

TABLES = (
    "CREATE TABLE pets (name TEXT);\nCREATE TRIGGER t AFTER INSERT ON pets BEGIN SELECT 1; SELECT 2; END;",
)
LATER = (*TABLES, "ALTER TABLE pets ADD COLUMN age INTEGER;\nUPDATE pets SET age = 3;")


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_files_are_private_under_any_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        connection = connect(str(tmp_path / "deep" / ".ctx" / "ctx.db"))
        migrate(connection, "pets", TABLES)
        folder = tmp_path / "deep" / ".ctx"
        assert {path.name: oct(mode_of(path)) for path in folder.iterdir()} == {
            "ctx.db": "0o600",
            "ctx.db-wal": "0o600",
            "ctx.db-shm": "0o600",
            ".gitignore": "0o600",
        }
        migrate(connection, "pets", LATER)
        connection.close()
        assert mode_of(folder / "ctx.db.pets-1.bak") == 0o600
        assert mode_of(folder) == mode_of(folder.parent) == 0o700
    finally:
        os.umask(before)


def test_a_path_with_odd_letters_is_a_path(tmp_path: Path) -> None:
    path = tmp_path / "50%?#&mode=memory ü.db"
    with SqliteCatalog(str(path)) as catalog:
        catalog.put_documents([make("s", "a", ["one"])])
    assert path.exists()
    with SqliteCatalog(str(path), read_only=True) as catalog:
        assert catalog.stats()["documents"] == 1


def test_an_older_file_is_migrated_and_a_copy_of_it_kept(tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "ctx.db"))
    migrate(connection, "pets", TABLES)
    connection.execute("INSERT INTO pets VALUES ('otter')")
    migrate(connection, "pets", LATER)
    assert connection.execute("SELECT * FROM pets").fetchall() == [("otter", 3)]
    connection.close()
    backup = sqlite3.connect(tmp_path / "ctx.db.pets-1.bak")
    assert backup.execute("SELECT * FROM pets").fetchall() == [("otter",)]
    assert schema_version(backup, "pets") == 1
    backup.close()


def test_a_migration_that_fails_changes_nothing(tmp_path: Path) -> None:
    connection = connect(str(tmp_path / "ctx.db"))
    migrate(connection, "pets", TABLES)
    with pytest.raises(StoreError):
        migrate(
            connection,
            "pets",
            (*TABLES, "ALTER TABLE pets ADD COLUMN age INTEGER;\nINSERT INTO nowhere VALUES (1);"),
        )
    assert [row[1] for row in connection.execute("PRAGMA table_info(pets)")] == ["name"]
    assert schema_version(connection, "pets") == 1
    migrate(connection, "pets", LATER)
    assert schema_version(connection, "pets") == 2
    connection.close()


def test_a_newer_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    connection = sqlite3.connect(path)
    connection.execute("UPDATE meta SET value = 99 WHERE key = 'schema.catalog'")
    connection.commit()
    connection.close()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"newer ctx \(catalog version 99.*upgrade ctx"):
            SqliteCatalog(path, read_only=read_only)


def test_a_file_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "ctx.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.commit()
    connection.close()
    path.chmod(0o664)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="another program"):
        SqliteCatalog(str(path))
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o664)
    path.write_text("a letter")
    with pytest.raises(StoreError, match="not a SQLite file"):
        SqliteCatalog(str(path))
    assert (path.read_text(), path.stat().st_mode & 0o777) == ("a letter", 0o664)


def test_a_catalog_that_brings_a_trigger_takes_no_write(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(
            "CREATE TRIGGER lose AFTER INSERT ON document BEGIN DELETE FROM document WHERE id = new.id; END"
        )
    with pytest.raises(
        StoreError, match="holds a trigger, a view or a computed column, which ctx never makes"
    ):
        SqliteCatalog(path)


@pytest.mark.parametrize("kind", ["Trigger", "TRIGGER"])
@pytest.mark.parametrize("read_only", [False, True])
def test_a_trigger_that_is_called_otherwise_is_one(tmp_path: Path, kind: str, read_only: bool) -> None:
    """SQLite takes the kind in any spelling, and runs it."""
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TRIGGER lose AFTER INSERT ON document BEGIN DELETE FROM chunk; END")
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute("UPDATE sqlite_master SET type = ? WHERE name = 'lose'", (kind,))
    with pytest.raises(StoreError, match="holds a trigger, a view or a computed column"):
        SqliteCatalog(path, read_only=read_only)


def test_a_catalog_that_brings_a_view_is_not_read(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE source RENAME TO former")
        connection.execute(
            "CREATE VIEW source AS WITH RECURSIVE step (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM step) "
            "SELECT former.* FROM former, step WHERE n < 0"
        )
    with pytest.raises(
        StoreError, match="holds a trigger, a view or a computed column, which ctx never makes"
    ):
        SqliteCatalog(path, read_only=True)


# A comparison that takes time by the power of its wildcards, in which nothing interrupts SQLite.
SLOW = f"('{'a' * 200}' LIKE '{'%a' * 30}%b')"


@pytest.mark.parametrize(
    "statement",
    [
        f"CREATE TABLE strange (x, y TEXT GENERATED ALWAYS AS {SLOW})",
        f"CREATE TABLE strange (x, y TEXT AS/**/{SLOW} STORED)",
        f"create table strange (x, y text as\n{SLOW})",
        f"CREATE TABLE strange (x CHECK {SLOW})",
        f"CREATE TABLE strange (x, y DEFAULT {SLOW})",
        f"CREATE TABLE strange (x, y DEFAULT\n/* */ {SLOW})",
        f"CREATE INDEX strange ON document ({SLOW})",
        "CREATE INDEX strange ON document (title) WHERE title LIKE '%a%a'",
        "CREATE INDEX strange ON document (title GLOB '*a*a')",
        "CREATE INDEX strange ON document (length(title))",
    ],
)
@pytest.mark.parametrize("read_only", [True, False])
def test_a_catalog_that_brings_what_is_computed_is_not_opened(
    tmp_path: Path, statement: str, read_only: bool
) -> None:
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
    with pytest.raises(StoreError, match="a computed column, which ctx never makes"):
        SqliteCatalog(path, read_only=read_only)


def test_a_store_of_ours_holds_nothing_that_is_computed(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    SqliteCatalog(path).close()
    MemoryStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE document RENAME COLUMN author TO writer")  # SQLite's own words
        assert not holds_statements(connection)


def test_processes_that_make_the_catalog_at_once_all_get_it(tmp_path: Path) -> None:
    code = (
        "import sys; from ctx.store.sqlite import SqliteCatalog; sys.stdin.readline();"
        "SqliteCatalog(sys.argv[1]).record_run(sys.argv[2], __import__('ctx.models').models.Run(1, "
        "True, None, None, ''))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "ctx.db")]
    started = [
        subprocess.Popen([*command, f"s{n}"], stdin=subprocess.PIPE, stderr=subprocess.PIPE) for n in range(5)
    ]
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()
    for process in started:
        _, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors.decode()
    with SqliteCatalog(str(tmp_path / "ctx.db")) as catalog:
        assert all(catalog.last_run(f"s{n}") is not None for n in range(5))


# -- faults --------------------------------------------------------------------------------------------------
def test_what_is_not_there_is_not_made_to_be_read(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="ctx index"):
        SqliteCatalog(str(tmp_path / "none" / "ctx.db"), read_only=True)
    assert not (tmp_path / "none").exists()


def test_a_damaged_page_is_an_error_and_not_a_wrong_answer(tmp_path: Path) -> None:
    path = tmp_path / "ctx.db"
    with SqliteCatalog(str(path)) as catalog:
        catalog.put_documents([make("s", f"{n:04}", [f"text {n} " * 30]) for n in range(300)])
        assert catalog.check() == []
    size = path.stat().st_size
    with open(path, "r+b") as file:
        for page in range(30, size // 4096):
            file.seek(page * 4096)
            file.write(b"\xab" * 2048)
    with SqliteCatalog(str(path)) as catalog:
        with pytest.raises(StoreError, match="damaged"):
            list(catalog.export())
        with pytest.raises(StoreError, match="damaged"):
            catalog.put_documents([make("s", f"{n:04}", ["new"]) for n in range(300)])
        assert catalog.check()


@pytest.mark.skipif(
    os.geteuid() == 0 and not hasattr(os, "seteuid"), reason="needs to be somebody else than root"
)
def test_a_folder_that_may_not_be_written_is_told_and_can_still_be_read(tmp_path: Path) -> None:
    folder = tmp_path / "shelf"
    with SqliteCatalog(str(folder / "ctx.db")) as catalog:
        catalog.put_documents([make("s", "a", ["one"])])
    # As root everything may be written: a child becomes nobody, who may only look.
    for path in (*tmp_path.parents, tmp_path):
        if path.stat().st_uid == os.geteuid() and path != Path("/"):
            path.chmod(mode_of(path) | 0o055)
    folder.chmod(0o555)
    (folder / "ctx.db").chmod(0o444)
    code = (
        "import os, sys\n"
        "from ctx.store.sqlite import SqliteCatalog\n"
        "from ctx.errors import StoreError\n"
        "if os.geteuid() == 0: os.setgid(65534); os.setuid(65534)\n"
        "with SqliteCatalog(sys.argv[1], read_only=True) as catalog: print(catalog.stats()['documents'])\n"
        "for path in sys.argv[1], sys.argv[2]:\n"
        "    try: SqliteCatalog(path)\n"
        "    except StoreError as error: print(error.message)\n"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code, str(folder / "ctx.db"), str(folder / "new" / "ctx.db")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    read, *refused = completed.stdout.splitlines()
    assert read == "1"
    assert len(refused) == 2
    assert all("permission" in line.lower() for line in refused)


def test_a_writer_that_waits_too_long_is_told_to_try_again(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    with SqliteCatalog(path, timeout_s=0.05) as catalog:
        catalog.put_documents([make("s", "a", ["one"])])
        second = connect(path)
        with transaction(second):
            with pytest.raises(Busy, match="another process") as caught:
                catalog.put_documents([make("s", "b", ["two"])])
            assert caught.value.retry_after_s > 0
            assert catalog.fingerprints("s").keys() == {"a"}, "readers do not wait"
        second.close()
        catalog.put_documents([make("s", "b", ["two"])])
        assert catalog.fingerprints("s").keys() == {"a", "b"}


def test_a_file_system_without_locks_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "ctx.db")
    with closing(connect(path)) as first:
        first.execute("PRAGMA locking_mode = EXCLUSIVE")
        first.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Busy, match="another process"):
            connect(path, timeout_s=0)

        def no_locks(*_: object) -> None:
            raise OSError(errno.ENOLCK, "No locks available")

        # SQLite calls both cases busy; what tells them apart is a lock that nobody else can hold.
        monkeypatch.setattr(fcntl, "lockf", no_locks)
        with pytest.raises(StoreError, match="has no file locks") as caught:
            connect(path, timeout_s=0)
        assert not isinstance(caught.value, Busy)  # to try again helps nobody


def test_what_must_survive_a_power_cut_is_synchronised_with_the_disk_itself(tmp_path: Path) -> None:
    with closing(connect(str(tmp_path / "m.db"), synchronous="FULL")) as connection:
        settings = [
            connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "fullfsync")
        ]
    assert settings == [2, 1]
