"""How many chunks await an embedding: told anew each time, by whoever asks, whoever has written since."""

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from kit import project, workspace

from ctx import search
from ctx.health import health
from ctx.indexing import indexer
from ctx.indexing.order import EmbeddingQueue
from ctx.types import Caller
from ctx.workspace import Workspace

WAIT_S = 60.0  # until a test that hangs fails
SEMANTIC = '[connectors.filesystem.docs]\nroot = "./docs"\n'


def _told(space: Workspace) -> list[object]:
    """What each door is told: health, the source's line, the catalog."""
    assert space.model is not None
    state = health(space)
    assert (state["oldest_pending_at"] is None) == (state["pending"] == 0)
    return [state["pending"], space.statuses()[0].pending, space.catalog.pending_count(space.model)]


def _embed(space: Workspace, count: int) -> None:
    assert space.model is not None
    texts = space.catalog.pending_texts(space.model, count)
    vector = np.eye(1, 384, dtype=np.float32)[0]
    space.catalog.put_embeddings(space.model, [(digest, vector) for digest, _ in texts])


def _waiting(space: Workspace) -> list[int]:
    assert space.model is not None
    return [chunk.chunk_no for chunk in space.catalog.pending_chunks(space.model)]


def test_what_awaits_an_embedding_is_counted_anew_by_readers_too(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone", "b.md": "# B\n\nquokka"}, SEMANTIC)
    with workspace(config) as writer, workspace(config) as reader:
        assert health(writer)["pending"] == 0
        writer.indexer.run()
        assert _told(writer) == _told(reader) == [2, 2, 2]
        _embed(writer, 1)
        assert _told(writer) == _told(reader) == [1, 1, 1]
        _embed(writer, 5)
        assert _told(writer) == _told(reader) == [0, 0, 0]
        (tmp_path / "docs/a.md").write_text("# A\n\nmarimba")
        (tmp_path / "docs/c.md").write_text("# C\n\nnarwhal")
        writer.indexer.run()
        assert _told(writer) == _told(reader) == [2, 2, 2]
        (tmp_path / "docs/c.md").unlink()
        writer.indexer.run()
        assert _told(writer) == _told(reader) == [1, 1, 1]
        (tmp_path / "docs/a.md").write_text("# A\n\nxylophone")  # its embedding is still there
        writer.indexer.run()
        assert _told(writer) == _told(reader) == [0, 0, 0]


def test_a_changed_document_is_embedded_before_the_backlog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(indexer, "EMBED_BATCH", 1)
    config = project(tmp_path, {f"{name}.md": f"# {name}\n\nquokka {name}" for name in "abcd"}, SEMANTIC)
    with workspace(config) as space:
        space.indexer.run()
        backlog = _waiting(space)
        seen: list[list[int]] = []

        def change(step: str, count: int, total: int | None) -> None:
            if not seen:
                (tmp_path / "docs/new.md").write_text("# New\n\nnarwhal")
                space.indexer.run()
            seen.append(_waiting(space))

        assert space.indexer.embed(progress=change).embedded == 5
        assert len(seen[0]) == 4
        assert seen[1] == [number for number in seen[0] if number in backlog]


def test_two_that_embed_at_once_begin_at_either_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "EMBED_BATCH", 2)
    config = project(tmp_path, {f"{name}.md": f"# {name}\n\nquokka {name}" for name in "abcdef"}, SEMANTIC)
    stored, permit = threading.Event(), threading.Event()

    def wait(step: str, count: int, total: int | None) -> None:
        stored.set()
        assert permit.wait(WAIT_S)

    with workspace(config) as space, workspace(config) as second:
        space.indexer.run()
        assert space.model is not None
        queue = EmbeddingQueue()
        queue.add(space.catalog.pending_chunks(space.model))
        turns = queue.take(6)
        reports: list[indexer.EmbedReport] = []
        thread = threading.Thread(target=lambda: reports.append(space.indexer.embed(progress=wait)))
        thread.start()
        try:
            assert stored.wait(WAIT_S)
            assert _waiting(second) == sorted(turns[2:])
            assert second.indexer.embed(limit=2).embedded == 2
            assert _waiting(second) == sorted(turns[2:4])
        finally:
            permit.set()
            thread.join(WAIT_S)
        assert (reports[0].embedded, reports[0].pending) == (4, 0)  # nothing twice
        assert second.indexer.embed().embedded == 0


def test_what_another_machine_is_embedding_is_left_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone", "b.md": "# B\n\nquokka"}, SEMANTIC)
    with workspace(config) as space:
        space.indexer.run()
        monkeypatch.setattr(space.catalog, "claim", _nothing)
        report = space.indexer.embed()
        assert (report.embedded, report.pending) == (0, 2)


def _nothing(model: str, chunk_nos: Sequence[int], for_s: float) -> list[int]:
    return []


def test_a_search_tells_what_awaits_an_embedding_for_as_long_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "_PENDING_KEPT_S", 0.0)
    question = {"query": "xylophone", "mode": "hybrid"}
    with workspace(project(tmp_path, {"a.md": "# A\n\nxylophone"}, SEMANTIC)) as space:
        space.indexer.run()
        before = space.toolbox.call("search", question, Caller("cli"))
        assert before["partial"].endswith("not found by meaning: 1 chunk")
        space.indexer.embed()
        assert "partial" not in space.toolbox.call("search", question, Caller("cli"))
