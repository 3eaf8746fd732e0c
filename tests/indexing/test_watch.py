"""A server follows its sources: edits, renames, branch switches, vanished folders, failing remotes."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import eventually, serving
from kit import found, project, workspace

from ctx.background import Background
from ctx.server.overview import health
from ctx.workspace import Workspace


@contextmanager
def following(config: Path) -> Iterator[Workspace]:
    """A workspace that follows its sources and has read them once."""
    with workspace(config) as space:
        Background(space).start()
        eventually(
            lambda: (
                all(status.last_indexed_ms is not None for status in space.statuses())
                and space.indexer.activity.phase == "idle"
            )
        )
        yield space


def test_edits_new_files_and_deletions_are_followed(tmp_path: Path) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone", "b.md": "# B\n\nquokka"})) as space:
        docs = tmp_path / "docs"
        (docs / "a.md").write_text("# A\n\nmarimba")
        eventually(lambda: found(space, "xylophone", "marimba") == [[], ["a.md"]])
        (docs / "sub").mkdir()
        (docs / "sub/new.md").write_text("# New\n\nnarwhal")
        eventually(lambda: found(space, "narwhal") == [["sub/new.md"]])
        (docs / "b.md").unlink()
        eventually(lambda: found(space, "quokka") == [[]])
        (docs / "sub").rename(docs / "other")
        eventually(lambda: found(space, "narwhal") == [["other/new.md"]])


def test_an_editor_that_saves_by_renaming_is_followed(tmp_path: Path) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"})) as space:
        for word in ("marimba", "zeppelin", "ocelot"):
            swap = tmp_path / "docs/.a.md.swp~"
            swap.write_text(f"# A\n\n{word}")
            os.replace(swap, tmp_path / "docs/a.md")
            eventually(lambda word=word: found(space, word) == [["a.md"]])  # type: ignore[misc]
        assert found(space, "xylophone", "marimba") == [[], []]


@pytest.mark.full
@pytest.mark.timeout(300)
def test_a_branch_switch_that_touches_ten_thousand_files_is_followed(tmp_path: Path) -> None:
    def git(*arguments: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments],
            cwd=docs,
            check=True,
            capture_output=True,
        )

    config = project(tmp_path)
    docs = tmp_path / "docs"
    for number in range(10_000):
        path = docs / f"d{number % 50}/f{number}.md"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"# File {number}\n\nxylophone")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-qm", "one")
    git("checkout", "-qb", "other")
    for path in docs.glob("*/*.md"):
        path.write_text(path.read_text().replace("xylophone", "marimba"))
    git("commit", "-qam", "two")
    git("checkout", "-q", "main")
    with following(config) as space:
        assert len(found(space, "xylophone")[0]) == 100
        git("checkout", "-q", "other")
        eventually(lambda: found(space, "xylophone") == [[]] and len(found(space, "marimba")[0]) == 100)
        assert space.catalog.stats()["documents"] == 10_000


@pytest.mark.slow
def test_a_folder_that_vanishes_keeps_its_documents_and_is_followed_again_when_it_returns(
    tmp_path: Path,
) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"})) as space:
        (tmp_path / "docs").rename(tmp_path / "away")
        eventually(lambda: not space.statuses()[0].healthy)
        assert found(space, "xylophone") == [["a.md"]]
        eventually(lambda: any(line.count("filesystem:docs") == 1 for line in health(space)["degraded"]))
        (tmp_path / "away/a.md").write_text("# A\n\nmarimba")
        (tmp_path / "away").rename(tmp_path / "docs")
        eventually(lambda: found(space, "xylophone", "marimba") == [[], ["a.md"]])
        eventually(lambda: space.statuses()[0].healthy and health(space)["degraded"] == [])
        (tmp_path / "docs/a.md").write_text("# A\n\nzeppelin")
        eventually(lambda: found(space, "zeppelin") == [["a.md"]])


@pytest.mark.slow
@pytest.mark.parametrize("limit", ["max_inotify_watches 5", "max_inotify_instances 0"])
def test_where_the_system_cannot_watch_the_tree_is_polled_and_health_says_so(
    tmp_path: Path, limit: str
) -> None:
    files = {f"d{number}/a.md": f"# A\n\nxylophone {number}" for number in range(10)}
    config = project(tmp_path, files)
    name, value = limit.split()
    # A user namespace has limits of its own, which its root may lower.
    lowered = ["unshare", "-Ur", "sh", "-c", f'echo {value} > /proc/sys/user/{name} && exec "$@"', "sh"]
    if not shutil.which("unshare") or subprocess.run([*lowered, "true"], capture_output=True).returncode:
        pytest.skip("this system gives no user namespace in which to lower the limit")
    with serving(config, before=lowered) as server:
        eventually(lambda: server.get("/health")["watching"] == "polling")
        assert any("cannot watch so many folders" in line for line in server.get("/health")["degraded"])
        eventually(lambda: len(server.search("xylophone")) == 10)
        for word in ("marimba", "zeppelin"):  # within the second of the last look, too
            (tmp_path / "docs/d7/a.md").write_text(f"# A\n\n{word}")
            eventually(lambda word=word: server.search(word) == ["d7/a.md"])  # type: ignore[misc]


@pytest.mark.slow
def test_a_git_source_is_asked_again_and_a_dead_remote_keeps_what_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))  # where the copy goes

    def git(*arguments: str, cwd: Path) -> None:
        subprocess.run(
            ["git", "-c", "user.name=t", "-c", "user.email=t@example.com", *arguments],
            cwd=cwd,
            check=True,
            capture_output=True,
        )

    remote = tmp_path / "remote"
    remote.mkdir()
    git("init", "-q", "-b", "main", cwd=remote)
    (remote / "a.md").write_text("# A\n\nxylophone")
    git("add", ".", cwd=remote)
    git("commit", "-qm", "one", cwd=remote)
    config = project(
        tmp_path,
        config=f'[connectors.git.r]\nurl = "{remote}"\ninterval_s = 1\n[embedding]\nprovider = "disabled"\n',
    )
    with following(config) as space:
        first = space.statuses()[0].revision
        assert len(first or "") == 40
        (remote / "a.md").write_text("# A\n\nmarimba")
        git("commit", "-qam", "two", cwd=remote)
        eventually(lambda: found(space, "xylophone", "marimba") == [[], ["a.md"]])
        assert space.statuses()[0].revision != first
        remote.rename(tmp_path / "gone")
        eventually(lambda: not space.statuses()[0].healthy)
        assert found(space, "marimba") == [["a.md"]]
        (tmp_path / "gone").rename(remote)
        assert [row["ok"] for row in space.refresh(["git:r"])] == [
            True
        ]  # whoever asks need not wait for the next turn
        assert space.statuses()[0].healthy
        assert health(space)["degraded"] == []


def test_a_failing_embedder_leaves_keyword_search_and_is_asked_again(tmp_path: Path) -> None:
    text = (
        '[connectors.filesystem]\nroot = "docs"\n[embedding]\nprovider = "ollama"\nmodel = "m"\ndims = '
        '4\nurl = "http://127.0.0.1:9"\nmax_retries = 0\n'
    )
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"}, text)) as space:
        eventually(lambda: any(line.startswith("embeddings: ") for line in health(space)["degraded"]))
        assert health(space)["pending"] == 1
        assert found(space, "xylophone") == [["a.md"]]
