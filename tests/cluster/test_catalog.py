"""What only the catalog on PostgreSQL does: several write at once, and a server may fall over to another."""

import os
import threading
import time
from pathlib import Path

import postgres
import pytest
from store_tree import MODEL, embed_pending, make, vector_of

from ctx.errors import Busy, StoreError
from ctx.indexing.run import IndexRun

psycopg = pytest.importorskip("psycopg", reason="psycopg is missing: run `make setup`")

from ctx.cluster.catalog import PostgresCatalog  # noqa: E402
from ctx.cluster.leases import Leases  # noqa: E402

pytestmark = pytest.mark.cluster


def test_a_database_with_other_letters_is_refused_with_the_fix(
    postgres_server: postgres.Server,
) -> None:
    with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
        connection.execute("CREATE DATABASE bytes TEMPLATE template0 ENCODING 'SQL_ASCII' LOCALE 'C'")
    with pytest.raises(StoreError, match="CREATE DATABASE bytes"):
        PostgresCatalog(postgres_server.url("bytes"))


def test_writers_of_different_sources_lose_no_number_and_hide_no_document(database_url: str) -> None:
    catalogs = [PostgresCatalog(database_url) for _ in range(4)]
    failures: list[Exception] = []

    def write(catalog: PostgresCatalog, source: str) -> None:
        try:
            for no in range(12):
                catalog.put_documents([make(source, f"{no % 4}", [f"{source} {no}", "more"])])
                if no % 5 == 4:
                    catalog.delete_documents(source, [f"{no % 4}"])
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=write, args=(catalog, f"git:{no}")) for no, catalog in enumerate(catalogs)
    ]
    for thread in threads:
        thread.start()
    applied, reader = 0, PostgresCatalog(database_url)
    numbers: dict[str, int] = {}
    while any(thread.is_alive() for thread in threads) or applied < reader.seq():
        target = reader.seq()
        for stored in reader.documents_since(applied):
            if stored.seq <= target:
                numbers[stored.document.id] = stored.seq
        applied = target
    for thread in threads:
        thread.join()
    assert not failures
    assert reader.seq() == 4 * (12 + 2)
    stored_seqs = {stored.document.id: stored.seq for stored in reader.export()}
    assert stored_seqs.items() <= numbers.items()
    assert reader.check() == []
    for catalog in (*catalogs, reader):
        catalog.close()


def test_documents_too_large_to_go_together_are_stored_alike(database_url: str) -> None:
    bodies = ["é" * 700_000, "short", "a" * 1_200_000, "b" * 600_000, "short too"]
    with PostgresCatalog(database_url) as catalog:
        catalog.put_documents([make("git:x", f"{no}.md", [body]) for no, body in enumerate(bodies)])
        assert [stored.document.body for stored in catalog.export()] == bodies
        assert catalog.check() == []


def test_what_is_written_to_a_database_that_was_restored_meanwhile_has_another_name(
    postgres_server: postgres.Server, postgres_programs: postgres.Programs, database_url: str, tmp_path: Path
) -> None:
    name = database_url.rsplit("/", 1)[1]
    with PostgresCatalog(database_url) as catalog:  # a worker that nobody stopped
        catalog.put_documents([make("git:x", "a", ["one"])])
        dump = postgres_programs.dump(postgres_server.url(name))
        catalog.put_documents([make("git:x", "b", ["two"])])
        lost = catalog.history(2)
        with psycopg.connect(postgres_server.url(), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
            connection.execute(f"CREATE DATABASE {name}".encode())
        postgres_programs.restore(postgres_server.url(name), dump)
        assert catalog.put_documents([make("git:x", "c", ["three"])]) == 2
        assert catalog.history(2) not in (None, lost)
        assert catalog.fingerprints("git:x").keys() == {"a", "c"}


def test_a_user_who_may_not_see_how_standbys_follow_is_not_told_that_none_does(
    postgres_programs: postgres.Programs,
) -> None:
    primary = postgres.Server(postgres_programs).create()
    standby = None
    try:
        standby = primary.standby()
        with psycopg.connect(primary.url(), autocommit=True) as connection:
            connection.execute("ALTER SYSTEM SET synchronous_standby_names = 'ANY 1 (*)'")
            connection.execute("SELECT pg_reload_conf()")
            connection.execute("CREATE ROLE plain LOGIN CREATEDB")
            connection.execute("CREATE DATABASE ours OWNER plain")
        with PostgresCatalog(primary.url("ours").replace("ctx@", "plain@")) as catalog:
            well, line = catalog.server() or (False, "")
            assert well
            assert "1 standby" in line
            assert "GRANT pg_monitor" in line
            assert "may be lost" not in line
            with psycopg.connect(primary.url(), autocommit=True) as connection:
                connection.execute("GRANT pg_monitor TO plain")
            assert "(1 synchronous)" in (catalog.server() or (False, ""))[1]
    finally:
        primary.discard()
        if standby is not None:
            standby.discard()


def test_writers_of_one_document_follow_one_another(database_url: str) -> None:
    with PostgresCatalog(database_url) as first, PostgresCatalog(database_url) as second:
        catalogs = (first, second)
        threads = [
            threading.Thread(
                target=lambda catalog: [
                    catalog.put_documents([make("git:x", "a", [f"text {no}"])]) for no in range(10)
                ],
                args=(catalog,),
            )
            for catalog in catalogs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert first.seq() == 20
        assert first.stats()["chunks"] == 1


def test_what_one_machine_stored_is_not_gone_where_another_one_lacks_it(
    database_url: str, tmp_path: Path
) -> None:
    from ctx.connectors.filesystem import FilesystemConnector

    roots = [tmp_path / name for name in ("first", "second")]
    for root, names in zip(roots, (("a", "both"), ("both", "c")), strict=True):
        root.mkdir()
        for name in names:
            (root / f"{name}.md").write_text(f"# {name}\n\nThe same words of {name}.\n")
    catalogs = [PostgresCatalog(database_url, machine=root.name) for root in roots]

    def run(no: int) -> tuple[int, str]:
        connector = FilesystemConnector("filesystem:docs", str(roots[no]))
        report = IndexRun(connector, catalogs[no], max_tokens=200).run()
        return report.deleted, " ".join(note.message for note in report.notes)

    for _ in range(2):
        for no, machine in enumerate(("second", "first")):
            deleted, note = run(no)
            assert deleted == 0
            assert note == "" or machine in note
    assert catalogs[0].fingerprints("filesystem:docs").keys() == {"a.md", "both.md", "c.md"}
    (roots[1] / "c.md").unlink()
    assert run(0)[0] == 0
    assert run(1)[0] == 1, "the machine that stored it finds it gone"
    assert catalogs[1].take_over("filesystem:docs") == 2, "what both have is of who stored it first"
    assert run(1)[0] == 1, "the other machine is gone for good"
    for catalog in catalogs:
        catalog.close()


def test_machines_with_copies_of_a_folder_do_not_store_it_in_turn(database_url: str, tmp_path: Path) -> None:
    from ctx.connectors.filesystem import FilesystemConnector
    from ctx.connectors.walk import may_still_change

    roots = [tmp_path / name for name in ("first", "second")]
    for root in roots:  # of other inodes, and written at other times
        root.mkdir()
        for name in ("heron", "otter"):
            (root / f"{name}.md").write_text(f"# {name}\n\nThe {name} waits.\n")
        os.utime(root / "otter.md", (len(str(root)), len(str(root))))
    catalogs = [PostgresCatalog(database_url, machine=root.name) for root in roots]

    def run(no: int) -> tuple[int, int, int]:
        for path in roots[no].iterdir():
            while may_still_change(path.stat(), time.time_ns()):
                pass  # what was written just now is read once more
        connector = FilesystemConnector("filesystem:docs", str(roots[no]))
        report = IndexRun(connector, catalogs[no], max_tokens=200).run()
        return report.added, report.updated, report.deleted

    assert [run(no) for no in (0, 1, 0, 1)] == [(2, 0, 0), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
    assert catalogs[0].seq() == 1, "nothing for an index to apply"
    (roots[1] / "otter.md").write_text("# otter\n\nThe otter sleeps.\n")
    assert [run(no) for no in (0, 1, 0, 1, 0)] == [(0, 0, 0), (0, 1, 0), *[(0, 0, 0)] * 3], "the news stays"
    (roots[0] / "otter.md").write_text("# otter\n\nThe otter sleeps.\n")  # it follows
    assert [run(no) for no in (0, 1, 0)] == [(0, 0, 0)] * 3
    (roots[0] / "otter.md").write_text("# otter\n\nThe otter dives.\n")
    assert [run(no) for no in (1, 0, 1, 0)] == [(0, 0, 0), (0, 1, 0), (0, 0, 0), (0, 0, 0)]
    assert [stored.document.body.split()[-1] for stored in catalogs[1].export()] == ["waits.", "dives."]
    for root in roots:
        (root / "otter.md").unlink()
    assert [run(no) for no in (1, 0, 1)] == [(0, 0, 0), (0, 0, 1), (0, 0, 0)]
    for catalog in catalogs:
        catalog.close()


def test_a_writer_whose_turn_ran_out_stores_nothing_more(database_url: str) -> None:
    with (
        PostgresCatalog(database_url, machine="a") as first,
        PostgresCatalog(database_url, machine="b") as second,
    ):
        with first.turn("git:x", None):
            first.put_documents([make("git:x", "one", ["one"])])
            with pytest.raises(Busy, match="by a "):
                second.put_documents([make("git:x", "two", ["two"])])
            second.put_documents([make("git:y", "two", ["two"])])
            name = "source:git:x"
            epoch = first._epochs["git:x"]
            Leases(first.database, "a").release(name, epoch)  # as if its time had run out
            with second.turn("git:x", None):
                second.put_documents([make("git:x", "three", ["three"])])
                with pytest.raises(Busy, match="by b "):
                    first.put_documents([make("git:x", "four", ["four"])])
            with pytest.raises(Busy, match="ran out"):
                first.delete_documents("git:x", ["three"])
        assert first.fingerprints("git:x").keys() == {"one", "three"}


def test_machines_that_embed_are_given_different_texts(database_url: str) -> None:
    with PostgresCatalog(database_url) as first, PostgresCatalog(database_url) as second:
        first.put_documents([make("git:x", f"{no}", [f"text {no}"]) for no in range(10)])
        numbers = [chunk.chunk_no for chunk in first.pending_chunks(MODEL)]
        assert first.claim(MODEL, numbers[:1], 60) == numbers[:1]
        ((digest, _),) = first.pending_texts(MODEL, numbers[:1])
        first.put_embeddings(MODEL, [(digest, vector_of(digest))])
        assert first.claim(MODEL, numbers[4:0:-1], 60) == numbers[4:0:-1]
        assert second.claim(MODEL, numbers, 60) == numbers[5:]
        assert first.claim(MODEL, numbers, 60) == []
        assert list(first.pending_chunks(MODEL)) == []
        assert first.pending_count(MODEL) == 9
        with psycopg.connect(database_url) as connection:  # the first one died: its time runs out
            connection.execute(
                "UPDATE pending SET claimed_until = clock_timestamp() WHERE chunk_no < %s", [numbers[5]]
            )
        assert [chunk.chunk_no for chunk in second.pending_chunks(MODEL)] == numbers[1:5]
        assert second.claim(MODEL, numbers, 60) == numbers[1:5]


def test_what_is_embedded_while_others_store_the_same_texts_is_pending_no_more(database_url: str) -> None:
    with PostgresCatalog(database_url) as first, PostgresCatalog(database_url) as second:

        def write() -> None:
            for no in range(30):
                words = [f"word {no % 7}", f"word {no % 5}"]
                first.put_documents([make(f"git:{no % 3}", f"{no}", words, title="same")])

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            embed_pending(second)
        writer.join()
        embed_pending(second)
        with psycopg.connect(database_url) as connection:
            assert connection.execute("SELECT count(*) FROM pending").fetchone() == (0,)
            query = (
                "SELECT count(*) FROM chunk c WHERE NOT EXISTS (SELECT 1 FROM embedding e WHERE e.text_hash "
                "= c.text_hash)"
            )
            assert connection.execute(query).fetchone() == (0,)


@pytest.mark.slow
def test_what_was_lost_in_a_failover_and_what_took_its_numbers_have_different_names(
    postgres_programs: postgres.Programs,
) -> None:
    primary = postgres.Server(postgres_programs)
    standby = None
    try:
        primary.create()
        url = primary.database()
        with PostgresCatalog(url) as catalog:
            catalog.put_documents([make("git:x", "a", ["one"])])
            standby = primary.standby()
            with psycopg.connect(standby.url(url.rsplit("/", 1)[1])) as connection:
                assert connection.execute("SELECT count(*) FROM document").fetchone() == (1,)
            before = catalog.history(1)
            standby.kill()  # what comes now does not reach it
            seq = catalog.put_documents([make("git:x", "b", ["two"])])
            name = catalog.history(seq)
            primary.stop()
            standby.start()
            standby.promote()
        with PostgresCatalog(standby.url(url.rsplit("/", 1)[1])) as catalog:
            assert catalog.history(seq) is None
            assert catalog.put_documents([make("git:x", "c", ["three"])]) == seq
            assert catalog.history(seq) not in (None, name)
            assert catalog.history(1) == before, "what was not lost need not be built anew"
    finally:
        primary.discard()
        if standby is not None:
            standby.discard()


@pytest.mark.slow
def test_a_pool_outlives_the_death_of_its_server_and_reads_are_asked_again(
    postgres_programs: postgres.Programs,
) -> None:
    server = postgres.Server(postgres_programs)
    try:
        url = server.create().database()
        with PostgresCatalog(url) as catalog:
            catalog.put_documents([make("git:x", "a", ["one"])])
            server.kill()
            server.start()
            assert catalog.fingerprints("git:x").keys() == {"a"}
            server.kill()
            server.start()
            catalog.put_documents([make("git:x", "b", ["two"])])
            assert catalog.fingerprints("git:x").keys() == {"a", "b"}
    finally:
        server.discard()
