"""Index runs: new, changed and deleted documents take effect."""

import uuid
from pathlib import Path

from kit import found, project, workspace

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


def test_a_run_of_code_and_pages_stores_every_file_with_its_own_text(tmp_path: Path) -> None:
    files = {f"{name}.py": f"def {name}():\n    pass\n" for name in ("quokka", "wombat", "numbat")}
    config = project(tmp_path, {**files, "m.md": "# Marimba\n", "z.bin": "\0\1", "zebra.py": "Zebra = 1\n"})
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert (report.added, report.skipped, report.ok) == (5, 1, True)
        names = ["quokka", "wombat", "numbat", "marimba", "zebra"]
        assert found(space, *names) == [["quokka.py"], ["wombat.py"], ["numbat.py"], ["m.md"], ["zebra.py"]]


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


def test_a_document_keeps_the_id_that_its_source_and_path_give(tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# Alpha\n\nxylophone"})) as space:
        space.indexer.run()
        (stored,) = space.catalog.export()
        expected = uuid.uuid5(uuid.NAMESPACE_OID, "filesystem:docs\0a.md")
        assert stored.document.id == str(expected)
