"""The contract of every catalog: documents, sources and writers. conftest.py lists the catalogs."""

import random
import threading
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from store_tree import MODEL, documents_of, make, pending_texts, vector_of

from ctx.code.symbols import Definition
from ctx.errors import StoreError
from ctx.models import Chunk, Run, document_id
from ctx.store.base import Catalog
from ctx.store.sqlite import SqliteCatalog


def numbers_of(catalog: Catalog, source: str, source_id: str) -> tuple[int, tuple[int, ...]]:
    stored = catalog.document(document_id(source, source_id))
    assert stored is not None
    return stored.document_no, stored.chunk_nos


# -- documents -----------------------------------------------------------------------------------------------
def test_a_document_comes_back_as_it_was_put(catalog: Catalog) -> None:
    document, chunks = make(
        "filesystem",
        "a.md",
        ["first \x00 with a zero", "zweiter Absatz: größer", "日本語 🦦"],
        source_url="https://example.org/a",
        author="Ada",
        created_ms=5,
        metadata={"tags": ["x", "ü"], "depth": 2, "draft": None},
    )
    catalog.put_documents([(document, chunks)])
    stored = catalog.document(document.id)
    assert stored is not None
    assert stored.document == document
    assert stored.chunks == tuple(chunks)
    assert len(stored.chunk_nos) == 3
    rows = catalog.chunk_rows(stored.chunk_nos)
    assert [rows[no].text for no in stored.chunk_nos] == [
        "first \x00 with a zero",
        "zweiter Absatz: größer",
        "日本語 🦦",
    ]
    last = rows[stored.chunk_nos[2]]
    assert (last.id, last.source, last.source_id, last.title) == (document.id, "filesystem", "a.md", "a.md")
    assert (last.ordinal, last.start_line, last.end_line, last.heading) == (2, 5, 5, "Part 2")
    assert (last.source_url, last.updated_ms, last.document_no) == (
        "https://example.org/a",
        1_000,
        stored.document_no,
    )


def test_metadata_that_is_no_json_is_refused_and_nothing_written(catalog: Catalog) -> None:
    document, chunks = make("filesystem", "a.md", ["one"])
    with pytest.raises(StoreError, match="metadata is not JSON"):
        catalog.put_documents([(document._replace(metadata={"when": object()}), chunks)])
    assert list(catalog.export()) == []


def test_a_replaced_document_keeps_its_number_and_its_old_chunks_are_gone(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", "a.md", ["one", "two"]), make("filesystem", "b.md", ["three"])])
    number, first_numbers = numbers_of(catalog, "filesystem", "a.md")
    catalog.put_documents([make("filesystem", "a.md", ["one", "other", "more"])])
    same_number, second_numbers = numbers_of(catalog, "filesystem", "a.md")
    assert same_number == number
    assert catalog.chunk_rows(first_numbers) == {}
    assert [catalog.chunk_rows(second_numbers)[no].text for no in second_numbers] == ["one", "other", "more"]
    assert catalog.stats()["chunks"] == 4


def test_numbers_are_never_used_again(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", "a.md", ["one", "two"])])
    document_no, chunk_nos = numbers_of(catalog, "filesystem", "a.md")
    catalog.delete_documents("filesystem", ["a.md"])
    catalog.put_documents([make("filesystem", "a.md", ["one", "two"])])
    other_no, other_nos = numbers_of(catalog, "filesystem", "a.md")
    assert other_no != document_no
    assert not set(other_nos) & set(chunk_nos)


def test_a_text_that_is_not_unicode_stores_nothing_of_its_batch(catalog: Catalog) -> None:
    unsound = make("filesystem", "bad.md", ["lone \ud800 surrogate"])[0]
    with pytest.raises(StoreError, match="surrogate"):
        catalog.put_documents([make("filesystem", "good.md", ["fine"]), (unsound, [])])
    assert catalog.fingerprints("filesystem") == {}
    assert catalog.seq() == 0


def test_forgetting_a_source_takes_all_of_it_and_nothing_else(catalog: Catalog) -> None:
    catalog.put_documents(
        [make("filesystem", f"{n}", [f"text {n}"]) for n in range(700)] + [make("git:x", "a", ["kept"])]
    )
    catalog.record_run("filesystem", Run(1, True, None, None, "s"))
    before = catalog.seq()
    catalog.delete_source("filesystem")
    assert catalog.fingerprints("filesystem") == {}
    assert len(list(catalog.deletions_since(before))) == 700
    assert catalog.last_run("filesystem") is None
    assert [status.name for status in catalog.statuses(None, [])] == ["git:x"]
    assert catalog.stats()["chunks"] == 1


def test_an_index_that_is_behind_the_recorded_deletions_is_told_so(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ctx.store.write.DELETIONS_KEPT", 2)
    start = catalog.put_documents([make("filesystem", f"{n}", [f"text {n}"]) for n in range(5)])
    seqs = [catalog.delete_documents("filesystem", [f"{n}"]) for n in range(2)]
    assert catalog.history(start) is not None
    seqs += [catalog.delete_documents("filesystem", [f"{n}"]) for n in range(2, 5)]
    assert catalog.history(start) is catalog.history(seqs[1]) is None
    assert catalog.history(seqs[3]) is not None
    assert [seq for seq, _ in catalog.deletions_since(seqs[3])] == seqs[4:]


def test_a_touch_reaches_indexes_only_if_the_time_changed(catalog: Catalog) -> None:
    catalog.put_documents(
        [make("filesystem", "a", ["one"], updated_ms=5), make("filesystem", "b", ["two"], updated_ms=5)]
    )
    assert catalog.touch_documents([("filesystem", "a", "new print", 5)]) == 1
    assert catalog.fingerprints("filesystem")["a"] == "new print"
    assert (
        catalog.touch_documents(
            [("filesystem", "a", "newer", 5), ("filesystem", "b", "b2", 6), ("nobody", "c", "", 1)]
        )
        == 2
    )
    assert [
        (stored.document.source_id, stored.document.updated_ms) for stored in catalog.documents_since(1)
    ] == [("b", 6)]
    assert catalog.fingerprints("filesystem") == {"a": "newer", "b": "b2"}


def test_reading_goes_on_while_documents_are_written(catalog: Catalog) -> None:
    catalog.put_documents([make("filesystem", f"{n:03}", [f"text {n}"]) for n in range(500)])
    entries = []
    for stored in catalog.documents_since(0):
        entries.append(stored.document.source_id)
        if len(entries) == 10:
            catalog.put_documents([make("filesystem", "499", ["moved to the end"])])
            catalog.delete_documents("filesystem", ["498"])
    assert entries[-1] == "499"
    assert entries.count("499") == 1
    assert "498" not in entries


def test_statuses_tell_what_is_there_and_how_fresh(catalog: Catalog) -> None:
    catalog.put_documents(
        [make("git:b", "1", ["one", "two"]), make("git:b", "2", ["three"]), make("old", "1", ["four"])]
    )
    catalog.record_run("git:b", Run(100, True, None, "c0ffee", "s"))
    catalog.record_run("git:b", Run(200, False, "the remote does not answer", "c0ffee", "s"))
    catalog.record_run("gone", Run(1, True, None, None, "s"))
    never_run, git, stray = catalog.statuses(MODEL, ["git:b", "a new one"])
    assert (
        never_run.name,
        never_run.configured,
        never_run.healthy,
        never_run.doc_count,
        never_run.last_indexed_ms,
    ) == (
        "a new one",
        True,
        True,
        0,
        None,
    )
    assert (git.name, git.configured, git.healthy, git.doc_count, git.chunk_count) == (
        "git:b",
        True,
        False,
        2,
        3,
    )
    assert (git.pending, git.last_indexed_ms, git.note, git.revision) == (
        3,
        100,
        "the remote does not answer",
        "c0ffee",
    )
    assert git.oldest_pending_ms is not None
    assert (stray.name, stray.configured, stray.doc_count) == ("old", False, 1)


def test_threads_write_and_read_at_once_and_nothing_is_lost(catalog: Catalog) -> None:
    problems: list[BaseException] = []
    stop = threading.Event()

    def guarded(act: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                act()
            except BaseException as error:
                problems.append(error)

        return run

    def write(name: str) -> Callable[[], None]:
        def run() -> None:
            for n in range(25):
                catalog.put_documents([make(name, f"{n}", [f"{name} {n}", "more"])])

        return run

    def read() -> None:
        while not stop.is_set():
            numbers = [no for stored in catalog.documents_since(0) for no in stored.chunk_nos]
            for row in catalog.chunk_rows(numbers[:40]).values():
                assert row.text == "more" or row.text.startswith(row.source)
            catalog.statuses(MODEL, [])

    writers = [threading.Thread(target=guarded(write(f"source{n}"))) for n in range(3)]
    readers = [threading.Thread(target=guarded(read)) for _ in range(3)]
    for thread in writers + readers:
        thread.start()
    for thread in writers:
        thread.join()
    stop.set()
    for thread in readers:
        thread.join()
    assert not problems
    assert catalog.seq() == 75
    assert catalog.stats()["documents"] == 75


_STEPS = st.lists(
    st.tuples(
        st.sampled_from(["put", "delete", "touch", "embed", "forget"]),
        st.integers(0, 7),
        st.integers(0, 3),
    ),
    max_size=25,
)
_ALL_TABLES = "document, body, chunk, model, embedding, pending, deletion, source, sight"


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=_STEPS)
def test_any_sequence_of_writes_matches_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]]
) -> None:
    with SqliteCatalog(str(tmp_path_factory.mktemp("sequence") / "ctx.db")) as catalog:
        check_sequence(catalog, steps)


@pytest.mark.cluster
def test_any_sequence_of_writes_in_postgresql_matches_a_dictionary(database_url: str) -> None:
    from ctx.cluster.catalog import PostgresCatalog

    @settings(max_examples=15, deadline=None)
    @given(steps=_STEPS)
    def check(steps: list[tuple[str, int, int]]) -> None:
        with catalog.database.transaction(write=True) as connection:
            connection.execute(f"TRUNCATE {_ALL_TABLES}")
        check_sequence(catalog, steps)

    with PostgresCatalog(database_url) as catalog:
        check()


def check_sequence(catalog: Catalog, steps: list[tuple[str, int, int]]) -> None:
    """Holds what writes leave in an empty catalog to what they leave in a dictionary."""
    model: dict[str, tuple[object, list[Chunk]]] = {}
    embedded: set[bytes] = set()
    for act, number, size in steps:
        name = f"{number}.md"
        if act == "put":
            entry = make(
                "s",
                name,
                [f"{n} {random.Random(number * 4 + size).random()}" for n in range(size)],
                title="t",
            )
            catalog.put_documents([entry])
            model[name] = entry
        elif act == "delete":
            catalog.delete_documents("s", [name])
            model.pop(name, None)
        elif act == "touch" and name in model:
            document, chunks = model[name]
            catalog.touch_documents([("s", name, "touched", size)])
            model[name] = (document._replace(fingerprint="touched", updated_ms=size), chunks)  # type: ignore[attr-defined]
        elif act == "embed":
            texts = pending_texts(catalog, MODEL, size)
            catalog.put_embeddings(MODEL, [(hashed, vector_of(hashed)) for hashed, _ in texts])
            embedded |= {hashed for hashed, _ in texts}
        elif act == "forget" and size == 0:
            catalog.forget_embeddings(MODEL)
            embedded = set()
    assert {key[1]: value for key, value in documents_of(catalog).items()} == {
        name: (document, tuple(chunks)) for name, (document, chunks) in model.items()
    }
    hashes = [chunk.text_hash for _, chunks in model.values() for chunk in chunks]
    uncovered = [hashed for hashed in hashes if hashed not in embedded]
    assert catalog.pending_count(MODEL) == len(uncovered)
    assert {hashed for hashed, _ in pending_texts(catalog, MODEL, 1000)} == set(uncovered)
    assert sum(status.pending for status in catalog.statuses(MODEL, [])) == len(uncovered)
    entries_by_name = {int(no) for batch in catalog.vectors_since(MODEL, 0) for no in batch.chunk_nos}
    assert len(entries_by_name) == len(hashes) - len(uncovered)


def test_definitions_are_written_replaced_and_removed_with_their_document(catalog: Catalog) -> None:
    document, chunks = make("filesystem", "a.py", ["class A:\n    def b(self): ..."])
    first = Definition("A", "A", "class", "class A", 1, 1, 2)
    second = Definition("b", "A.b", "method", "def b(self)", 2, 2, 2)
    document = document._replace(media_type="text/x-python", definitions=(first, second))
    catalog.put_documents([(document, chunks), make("filesystem", "b.md", ["b"])])
    stored = catalog.document(document.id)
    assert stored is not None
    assert stored.document == document
    number = stored.document_no
    assert catalog.definitions_of([number]) == {number: [first, second]}
    assert catalog.definitions_named("b", 10) == [(number, second)]
    assert catalog.bodies([number])[number].source_id == "a.py"
    catalog.put_documents([(document._replace(definitions=(first,)), chunks)])
    assert catalog.definitions_of([number]) == {number: [first]}
    catalog.delete_documents("filesystem", ["a.py"])
    assert (catalog.definitions_of([number]), catalog.definitions_named("A", 10)) == ({}, [])
