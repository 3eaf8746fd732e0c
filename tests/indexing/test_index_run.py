"""Index runs: what changed takes effect, what did not is not read again, what fails is a line of the
report.
"""

import os
import shutil
import uuid
from pathlib import Path

import pytest
from kit import found, picture, project, workspace

from ctx.indexing import run
from ctx.items import Content
from ctx.types import Caller

EMBEDDED = '[connectors.filesystem.docs]\nroot = "./docs"\n'


def test_new_changed_and_deleted_files_take_effect(tmp_path: Path) -> None:
    config = project(
        tmp_path, {"a.md": "# Alpha\n\nxylophone", "b.md": "# Beta\n\nzeppelin", "c.md": "# Gamma\n\nquokka"}
    )
    with workspace(config) as space:
        (first,) = space.indexer.run()
        assert (first.added, first.updated, first.deleted, first.ok) == (3, 0, 0, True)
        (tmp_path / "docs/a.md").write_text("# Alpha\n\nmarimba")
        (tmp_path / "docs/b.md").unlink()
        (tmp_path / "docs/d.md").write_text("# Delta\n\nnarwhal")
        (second,) = space.indexer.run()
        assert (second.added, second.updated, second.deleted, second.unchanged) == (1, 1, 1, 1)
        assert found(space, "xylophone", "marimba", "zeppelin", "quokka", "narwhal") == [
            [],
            ["a.md"],
            [],
            ["c.md"],
            ["d.md"],
        ]
        (third,) = space.indexer.run()
        assert (third.added, third.updated, third.deleted, third.unchanged) == (0, 0, 0, 3)


def test_a_moved_file_with_an_older_date_is_seen(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})
    with workspace(config) as space:
        space.indexer.run()
        aged = tmp_path / "old.md"
        aged.write_text("# Older\n\nmarimba")
        os.utime(aged, (1, 1))
        shutil.move(aged, tmp_path / "docs/a.md")
        shutil.copy2(tmp_path / "docs/a.md", tmp_path / "docs/b.md")
        space.indexer.run()
        assert found(space, "xylophone", "marimba") == [[], ["a.md", "b.md"]]


def test_an_edit_within_the_same_second_and_of_the_same_size_is_seen(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})
    with workspace(config) as space:
        for word in ("xylophona", "xylophonb", "xylophonc", "xylophond"):
            (tmp_path / "docs/a.md").write_text(f"# Alpha\n\n{word}")
            space.indexer.run()
            assert found(space, word) == [["a.md"]]


def test_narrowed_globs_take_documents_out(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone", "b.txt": "xylophone too"})
    with workspace(config) as space:
        space.indexer.run()
        assert found(space, "xylophone") == [["a.md", "b.txt"]]
    config.write_text(
        config.read_text().replace('root = "./docs"', 'root = "./docs"\ninclude_globs = ["**/*.md"]')
    )
    with workspace(config) as space:
        space.indexer.run()
        assert found(space, "xylophone") == [["a.md"]]


def test_changed_chunk_sizes_cut_the_same_files_anew(tmp_path: Path) -> None:
    text = "# Alpha\n\n" + "\n\n".join(
        f"Paragraph {n} says something about subject {n}, at some length, so that it counts."
        for n in range(60)
    )
    config = project(tmp_path, {"a.md": text})
    with workspace(config) as space:
        space.indexer.run()
        before = len(next(space.catalog.export()).chunks)
    config.write_text(config.read_text() + "[chunking]\nmax_tokens = 64\n")
    with workspace(config) as space:
        space.indexer.run()
        assert len(next(space.catalog.export()).chunks) > before * 1.5


def test_a_source_that_cannot_be_read_keeps_its_documents_and_says_why(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})
    with workspace(config) as space:
        space.indexer.run()
        (tmp_path / "docs").rename(tmp_path / "elsewhere")
        (report,) = space.indexer.run()
        assert not report.ok
        assert report.deleted == 0
        assert found(space, "xylophone") == [["a.md"]]
        (status,) = space.statuses()
        assert not status.healthy
        assert status.note
        (tmp_path / "elsewhere").rename(tmp_path / "docs")
        (report,) = space.indexer.run()
        assert report.ok
        assert space.statuses()[0].healthy


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root reads everything; run as an ordinary user to see permissions refused"
)
def test_a_file_that_may_not_be_read_is_a_line_of_the_report_and_keeps_its_last_version(
    tmp_path: Path,
) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone", "b.md": "# Beta\n\nquokka"})
    with workspace(config) as space:
        space.indexer.run()
        (tmp_path / "docs/a.md").write_text("# Alpha\n\nmarimba")
        (tmp_path / "docs/a.md").chmod(0)
        (report,) = space.indexer.run()
        assert [problem.source_id for problem in report.problems] == ["a.md"]
        assert found(space, "xylophone", "quokka") == [["a.md"], ["b.md"]]


def test_a_source_tells_its_first_problem_and_how_many_there_are_besides(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone", "b.md": "# Beta\n\nquokka"})
    config.write_text(config.read_text().replace('root = "./docs"', 'root = "./docs"\nmax_file_bytes = 5'))
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert sorted(problem.source_id for problem in report.problems) == ["a.md", "b.md"]
        assert str(space.statuses()[0].note).endswith(" (and 1 more)")
        (tmp_path / "docs/b.md").unlink()
        space.indexer.run()
        assert str(space.statuses()[0].note).startswith("a.md: ")
        assert "more)" not in str(space.statuses()[0].note)


def test_a_broken_item_does_not_end_the_run(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone", "z.md": "# Zeta\n\nquokka"})
    (tmp_path / "docs/m.md").write_bytes(b"\x00\x01\x02binary")
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert report.added == 2
        assert found(space, "quokka") == [["z.md"]]


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha", "b.md": "# Beta"})
    with workspace(config) as space:
        (report,) = space.indexer.run(dry_run=True)
        assert report.added == 2
        assert space.catalog.stats()["documents"] == 0


def test_ids_are_the_same_in_a_store_built_anew(tmp_path: Path) -> None:
    files = {f"{name}.md": f"# {name}\n\ntext of {name}" for name in ("a", "b", "sub/c")}
    config = project(tmp_path, files)
    with workspace(config) as space:
        space.indexer.run()
        before = picture(space)
    shutil.rmtree(tmp_path / ".ctx")
    with workspace(config) as space:
        space.indexer.run()
        assert picture(space) == before


def test_an_index_that_was_deleted_is_rebuilt_from_the_catalog(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})
    with workspace(config) as space:
        space.indexer.run()
    shutil.rmtree(tmp_path / ".ctx/index")
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert report.unchanged == 1
        assert found(space, "xylophone") == [["a.md"]]


def test_get_gives_the_whole_document_with_its_chunks(tmp_path: Path) -> None:
    config = project(tmp_path, {"auth.md": "# Authentication Guide\n\nJWT tokens are signed with a key."})
    with workspace(config) as space:
        space.indexer.run()
        (hit,) = space.toolbox.call("search", {"query": "signed tokens"}, Caller("rest"))["results"]
        document = space.toolbox.call("get", {"id": hit["id"], "chunks": True}, Caller("rest"))
        assert (document["title"], document["source"], document["source_id"]) == (
            "Authentication Guide",
            "filesystem:docs",
            "auth.md",
        )
        assert document["body"] == "# Authentication Guide\n\nJWT tokens are signed with a key."
        assert "".join(chunk["text"] for chunk in document["chunks"]).strip() in document["body"]


def test_embeddings_of_texts_that_are_gone_do_not_stay_for_ever(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# Alpha\n\nxylophone"}, EMBEDDED)
    with workspace(config) as space:
        for revision in range(5):
            (tmp_path / "docs/a.md").write_text(f"# Alpha\n\nrevision {revision}")
            space.indexer.run()
            space.indexer.embed()
            assert (
                space.catalog.stats()["embeddings"] <= 2 + 1
            )  # what is in use, and as many kept in case they return
        (tmp_path / "docs/a.md").unlink()
        space.indexer.run()
        assert space.catalog.stats()["embeddings"] == 0


def test_a_text_that_comes_back_is_not_embedded_again(tmp_path: Path) -> None:
    config = project(tmp_path, {f"{n}.md": f"# Part {n}\n\nxylophone {n}" for n in range(4)}, EMBEDDED)
    with workspace(config) as space:
        space.indexer.run()
        assert space.indexer.embed().embedded == 4
        text = (tmp_path / "docs/3.md").read_text()
        (tmp_path / "docs/3.md").unlink()
        space.indexer.run()
        (tmp_path / "docs/3.md").write_text(text)
        space.indexer.run()
        assert space.indexer.embed().embedded == 0


def test_a_document_keeps_the_id_that_its_source_and_path_give(tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})) as space:
        space.indexer.run()
        (stored,) = space.catalog.export()
        expected = uuid.uuid5(uuid.NAMESPACE_OID, "filesystem:docs\0a.md")
        assert stored.document.id == str(expected)


def test_a_report_names_what_was_added_updated_and_deleted(tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# Alpha\n\none", "b.md": "# Beta\n\ntwo"})) as space:
        (report,) = space.indexer.run()
        assert sorted(report.changes) == [("added", "a.md"), ("added", "b.md")]
        (tmp_path / "docs" / "a.md").write_text("# Alpha\n\nanother")
        (tmp_path / "docs" / "b.md").unlink()
        (report,) = space.indexer.run()
        assert sorted(report.changes) == [("deleted", "b.md"), ("updated", "a.md")]


def test_a_report_counts_everything_and_names_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_NAMED", 2)
    texts = {f"{n}.md": f"# {n}\n\nxylophone" for n in range(3)}
    with workspace(project(tmp_path, texts | {f"empty {n}.md": "" for n in range(3)})) as space:
        (report,) = space.indexer.run()
        assert (report.added, report.skipped) == (3, 3)
        assert len(report.changes) == 2
        assert [problem.message for problem in report.skips] == ["empty", "empty"]


def test_many_empty_files_are_counted_and_keep_no_other_from_being_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "MAX_NAMED", 2)
    texts = {f"a{n}.md": "" for n in range(5)} | {"z.md": "\0\0"}
    with workspace(project(tmp_path, texts)) as space:
        (report,) = space.indexer.run()
        assert (report.skipped, report.empty) == (6, 5)
        assert [problem.source_id for problem in report.skips] == ["z.md", "a0.md"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b" \n", "empty"),
        (b"\x89PNG\r\n\x1a\n\0", "a picture"),
        (b"SQLite format 3\0\1", "a database"),
        (b"words \0 words", "binary data, not text"),
        (b"\xff\xfe\xfd", "no text in it that could be read"),
        ("no words", "no text and no title in it"),
    ],
)
def test_what_has_no_text_is_named_by_what_it_is(content: bytes | str, reason: str) -> None:
    assert run.why_no_text(Content(content)) == reason
