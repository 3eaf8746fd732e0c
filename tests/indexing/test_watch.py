"""A server follows its sources: edits, editors' renames, branch switches, a folder that goes and comes back,
remotes and embedders that fail.
"""

import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import eventually, serving, unprivileged
from kit import found, project, workspace

from ctx.health import health
from ctx.indexing.watch import Intervals, Watcher
from ctx.workspace import Workspace


@contextmanager
def following(config: Path) -> Iterator[Workspace]:
    """A workspace that follows its sources and has read them once."""
    with workspace(config) as space:
        space.background.start()
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


def test_the_sources_are_looked_at_behind_the_first_answers(tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# A\n\nxylophone"})) as space:
        space.background.start(patience_s=3600)
        assert found(space, "xylophone") == [[]]
        # Nobody is told that there is nothing to do.
        assert (health(space)["activity"], space.indexer.activity.watching) == ("indexing", "off")
        assert space.statuses()[0].last_indexed_ms is None
        space.background.begin()
        eventually(lambda: found(space, "xylophone") == [["a.md"]])
        eventually(lambda: health(space)["activity"] == "idle")


def test_without_sources_there_is_nothing_to_do(tmp_path: Path) -> None:
    (tmp_path / "ctx.toml").write_text('[embedding]\nprovider = "disabled"\n')
    with workspace(tmp_path / "ctx.toml") as space:
        space.background.start(patience_s=3600)
        assert health(space)["activity"] == "idle"


def test_a_stop_does_not_wait_for_the_first_answers(tmp_path: Path) -> None:
    with workspace(project(tmp_path, {"a.md": "# A"})) as space:
        space.background.start(patience_s=3600)
    assert not [thread for thread in threading.enumerate() if thread.name in ("ctx-index", "ctx-watch")]


def test_an_editor_that_saves_by_renaming_is_followed(tmp_path: Path) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"})) as space:
        for word in ("marimba", "zeppelin", "ocelot"):
            swap = tmp_path / "docs/.a.md.swp~"
            swap.write_text(f"# A\n\n{word}")
            os.replace(swap, tmp_path / "docs/a.md")
            eventually(lambda word=word: found(space, word) == [["a.md"]])  # type: ignore[misc]
        assert found(space, "xylophone", "marimba") == [[], []]


def test_an_edited_ignore_file_takes_documents_out_and_back_in(tmp_path: Path) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone", "b.md": "# B\n\nxylophone"})) as space:
        ignore = tmp_path / "docs/.ctxignore"
        ignore.write_text("b.md\n")
        eventually(lambda: found(space, "xylophone") == [["a.md"]])
        ignore.unlink()
        eventually(lambda: found(space, "xylophone") == [["a.md", "b.md"]])


@pytest.mark.slow
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


def test_a_folder_that_may_not_be_read_does_not_end_the_watch_of_the_others(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "# A\n\nxylophone", "closed/b.md": "# B\n\nquokka"})
    (tmp_path / "docs/closed").chmod(0)
    with serving(config, before=unprivileged()) as server:
        eventually(lambda: server.search("xylophone") == ["a.md"])
        assert server.get("/health")["watching"] == "native"
        (tmp_path / "docs/a.md").write_text("# A\n\nmarimba")
        eventually(lambda: server.search("marimba") == ["a.md"])
        assert server.search("quokka") == []


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


def test_a_failing_script_is_told_once_and_asked_more_and_more_rarely_until_it_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "s.lua"
    script.write_text("connector = {} function connector.scan() error('the wiki is down') end")
    config = project(
        tmp_path,
        config='[connectors.script.s]\npath = "./s.lua"\n[embedding]\nprovider = "disabled"\n',
    )
    with workspace(config) as space, caplog.at_level(logging.INFO):
        watcher = Watcher(space.indexer, Intervals({"script:s": 5.0}))
        source = space.indexer.connectors["script:s"]
        pauses: list[float] = []
        for _ in range(8):
            watcher._index(source, None)
            pauses.append(watcher._next_s["script:s"] - time.monotonic())
        assert pauses == pytest.approx([60, 120, 240, 480, 960, 1920, 3600, 3600], abs=20)
        assert [line.message for line in caplog.records if "wiki is down" in line.message] == [
            "source unhealthy source=script:s reason=script:s:1: the wiki is down"
        ]
        assert sum("ok=False" in line.message for line in caplog.records) == 1
        script.write_text("connector = {} function connector.scan() error('the wiki moved') end")
        watcher._index(source, None)
        assert "reason=script:s:1: the wiki moved" in caplog.text
        script.write_text(
            "connector = {} function connector.scan() return {{source_id='a', body='quokka'}} end"
        )
        [report] = space.indexer.run(["script:s"])
        watcher.after_run("script:s", report.ok)
        assert report.ok
        assert watcher._next_s["script:s"] - time.monotonic() < 6
        assert space.indexer.activity.degraded == ()


@pytest.mark.slow
def test_names_that_are_not_utf_8_leave_the_watch_as_it_is_and_are_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    config = project(tmp_path, {"a.md": "# A\n\nxylophone"})
    folder = os.fsencode(tmp_path / "docs") + b"/caf\xe9"
    os.mkdir(folder)
    with following(config) as space:
        eventually(lambda: space.indexer.activity.watching == "native")
        for number, word in enumerate(("marimba", "zeppelin")):
            with open(folder + b"/%d.md" % number, "w") as file:
                file.write(f"# B\n\n{word}")
            (tmp_path / f"docs/{word}.md").write_text(f"# C\n\n{word}")
            ids = [f"caf%E9/{number}.md", f"{word}.md"]
            eventually(lambda ids=ids, word=word: found(space, word) == [sorted(ids)])  # type: ignore[misc]
        os.mkdir(os.fsencode(tmp_path / "docs") + b"/na\xefve")
        (tmp_path / "docs/a.md").write_text("# A\n\nquokka")
        eventually(lambda: found(space, "quokka") == [["a.md"]])
        assert health(space)["watching"] == "native"
        assert health(space)["degraded"] == []
    assert caplog.text.count("a changed name is not UTF-8") == 1


def test_a_failing_embedder_leaves_keyword_search_and_is_asked_again(tmp_path: Path) -> None:
    text = (
        '[connectors.filesystem]\nroot = "docs"\n[embedding]\nprovider = "ollama"\nmodel = "m"\ndims = '
        '4\nurl = "http://127.0.0.1:9"\nmax_retries = 0\n'
    )
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"}, text)) as space:
        eventually(lambda: any(line.startswith("embeddings: ") for line in health(space)["degraded"]))
        assert health(space)["pending"] == 1
        assert found(space, "xylophone") == [["a.md"]]


def test_an_index_that_is_deleted_under_a_server_is_built_anew(tmp_path: Path) -> None:
    with following(project(tmp_path, {"a.md": "# A\n\nxylophone"})) as space:
        shutil.rmtree(tmp_path / ".ctx/index", ignore_errors=True)  # it comes back while it is being emptied
        (tmp_path / "docs/b.md").write_text("# B\n\nxylophone")
        eventually(lambda: found(space, "xylophone") == [["a.md", "b.md"]])


def test_searches_go_on_while_a_run_is_under_way(tmp_path: Path) -> None:
    files = {f"p{number}.md": f"# Page {number}\n\nxylophone {number}" for number in range(400)}
    with workspace(project(tmp_path, files)) as space:
        space.indexer.run()
        for name in files:
            (tmp_path / "docs" / name).write_text(f"# {name}\n\nxylophone again")
        running = threading.Thread(target=space.indexer.run)
        running.start()
        meanwhile = 0
        while running.is_alive():
            assert len(found(space, "xylophone")[0]) == 100
            meanwhile += running.is_alive()
        running.join()
        assert meanwhile, "each search waited for the run"


def test_stopping_does_not_wait_for_the_end_of_a_run(tmp_path: Path) -> None:
    files = {
        f"p{number}.md": f"# Page {number}\n\n" + "words and more words. " * 200 for number in range(2000)
    }
    space = workspace(project(tmp_path, files))
    space.background.start()
    eventually(lambda: space.indexer.activity.phase == "indexing")
    space.close()
    with workspace(tmp_path / "ctx.toml") as space:
        assert space.catalog.stats()["documents"] < len(files), "it ran to its end"
