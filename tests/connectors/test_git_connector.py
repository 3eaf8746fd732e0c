"""The git connector reads files, dates, authors and addresses from real repositories."""

import json
import os
from pathlib import Path

import pytest
from git_kit import Scan, Upstream, connector, git, use_instead

from ctx.config import load_config
from ctx.connectors.base import Connector, ScanLog
from ctx.connectors.patterns import MAX_RULE_FILE_BYTES
from ctx.errors import SourceError
from ctx.workspace import open_workspace

pytestmark = pytest.mark.usefixtures("plain_git")
ELSEWHERE = (
    "a Git LFS pointer, whose file is kept elsewhere; `lfs = true` fetches it where `git lfs` is installed"
)


def test_it_is_a_connector(upstream: Upstream, tmp_path: Path) -> None:
    seam: Connector = connector(upstream, tmp_path)
    assert seam.name == "git:docs"


def test_a_repository_is_read_with_dates_and_authors(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"docs/auth.md": "# Auth", "old.md": "old", "logo.png": b"\x89PNG"}, author="Ann Author")
    head = upstream.commit({"docs/auth.md": "# Auth 2"}, author="Bo Writer")
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"docs/auth.md": b"# Auth 2", "old.md": b"old"}
    assert {key: item.updated_ms for key, item in scan.items.items()} == {
        "docs/auth.md": 1_700_002_000_000,
        "old.md": 1_700_001_000_000,
    }
    assert scan.authors == {"docs/auth.md": "Bo Writer", "old.md": "Ann Author"}
    assert scan.urls == {"docs/auth.md": None, "old.md": None}
    assert scan.log.revision == head
    assert scan.log.problems == []


@pytest.mark.parametrize("form", ["path", "file", "worktree"])
@pytest.mark.parametrize("shallow", [True, False])
def test_every_form_of_a_local_repository_can_be_read(
    upstream: Upstream, tmp_path: Path, form: str, shallow: bool
) -> None:
    upstream.commit({"a.md": "one"})
    upstream.commit({"b.md": "two"})
    url = {"path": str(upstream.bare), "file": f"file://{upstream.bare}", "worktree": str(upstream.work)}[
        form
    ]
    scan = Scan(connector(url, tmp_path, shallow=shallow))
    assert scan.data == {"a.md": b"one", "b.md": b"two"}
    assert scan.items["a.md"].updated_ms == 1_700_001_000_000


def test_a_partial_copy_holds_only_the_files_that_are_wanted(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "version one", "b.md": "b", "c.md": "c", "film.mp4": os.urandom(300_000)})
    upstream.commit({"a.md": "version two"})
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"a.md": b"version two", "b.md": b"b", "c.md": b"c"}
    copy = next((tmp_path / "cache").glob("*.git"))
    assert len(list(copy.glob("objects/pack/*.pack"))) == 2  # the history, and all the files at once
    assert sum(path.stat().st_size for path in copy.rglob("*") if path.is_file()) < 100_000


def test_only_changed_blobs_are_read_again(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one", "b.md": "two", "c.md": "three"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    assert Scan(source, first.known).items == {}
    upstream.commit({"a.md": "one changed", "b.md": None, "d.md": "three"})
    second = Scan(source, first.known)
    assert second.ids == {"a.md", "d.md"}
    assert second.log.unchanged == {"c.md"}
    assert set(first.known) - second.ids - second.log.unchanged == {"b.md"}
    # The blob of d.md is the very one of c.md; its date is its own.
    assert second.items["d.md"].updated_ms == 1_700_002_000_000


def test_unchanged_files_keep_their_dates_when_other_files_change(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"old.md": "old"})
    for number in range(5):
        upstream.commit({"new.md": str(number)})
    scan = Scan(connector(upstream, tmp_path))
    assert scan.items["old.md"].updated_ms == 1_700_001_000_000
    assert scan.items["new.md"].updated_ms == 1_700_006_000_000


def test_a_file_that_a_merge_made_has_the_date_of_the_merge(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"base.md": "base"})
    git(upstream.work, "checkout", "-q", "-b", "side")
    upstream.commit({"side.md": "side"}, push=False)
    git(upstream.work, "checkout", "-q", "main")
    upstream.commit({"main.md": "main"}, push=False)
    git(upstream.work, "merge", "-q", "--no-commit", "side")
    upstream.commit({"of-the-merge.md": "x", "\nodd": "x"})
    scan = Scan(connector(upstream, tmp_path, include_globs=["**"]))
    dates = {key: item.updated_ms // 1_000_000 - 1_700_000 for key, item in scan.items.items()}
    assert dates == {"base.md": 1, "side.md": 2, "main.md": 3, "of-the-merge.md": 4, "\nodd": 4}


def test_a_root_gives_ids_below_it_and_addresses_from_the_top(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.commit({"docs/guide/auth.md": "auth", "src/a.py": "code", "docs2/b.md": "b"})
    use_instead(monkeypatch, tmp_path, "https://github.com/acme/", f"file://{tmp_path}/")
    for root in ("docs", "docs/", "./docs", "/docs"):
        scan = Scan(connector("https://github.com/acme/upstream.git", tmp_path, root=root))
        assert scan.urls == {"guide/auth.md": "https://github.com/acme/upstream/blob/main/docs/guide/auth.md"}
        assert scan.items["guide/auth.md"].updated_ms == 1_700_001_000_000


def test_a_missing_root_and_a_missing_branch_are_clear_and_delete_nothing(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    with pytest.raises(SourceError, match=r"`root` names no folder of main: 'nowhere'"):
        Scan(connector(upstream, tmp_path, root="nowhere"))
    with pytest.raises(SourceError, match=r"no branch or tag 'release' \(it has: main\)"):
        Scan(connector(upstream, tmp_path, branch="release"))


def test_another_branch_is_another_signature_and_is_read(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "main"})
    git(upstream.work, "checkout", "-q", "-b", "release/1.0")
    upstream.commit({"a.md": "release"})
    main, release = (
        connector(upstream, tmp_path, branch="main"),
        connector(upstream, tmp_path, branch="release/1.0"),
    )
    assert main.signature != release.signature
    assert Scan(main).data == {"a.md": b"main"}
    assert Scan(release).data == {"a.md": b"release"}
    assert Scan(main).data == {"a.md": b"main"}


def test_a_branch_can_become_a_folder_of_branches(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    upstream.push("HEAD:refs/heads/dev")
    assert Scan(connector(upstream, tmp_path, branch="dev")).ids == {"a.md"}
    git(upstream.bare, "branch", "-D", "dev")
    upstream.push("HEAD:refs/heads/dev/two")
    assert Scan(connector(upstream, tmp_path, branch="dev/two")).ids == {"a.md"}


def test_the_default_branch_is_followed_when_it_changes(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "same"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    git(upstream.work, "checkout", "-q", "-b", "trunk")
    upstream.commit({"b.md": "b"})
    git(upstream.bare, "symbolic-ref", "HEAD", "refs/heads/trunk")
    # Its address on the web is another one, so a.md is read again too.
    assert Scan(source, first.known).ids == {"a.md", "b.md"}


def test_a_force_push_is_followed(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    upstream.commit({"secret.md": "oops"})
    source = connector(upstream, tmp_path)
    first = Scan(source)
    git(upstream.work, "reset", "-q", "--hard", "HEAD~1")
    head = upstream.commit({"b.md": "b"})
    second = Scan(source, first.known)
    assert (second.ids, second.log.unchanged, second.log.revision) == ({"b.md"}, {"a.md"}, head)


def test_an_empty_repository_yields_nothing_but_one_that_was_emptied_is_an_error(
    upstream: Upstream, tmp_path: Path
) -> None:
    source = connector(upstream, tmp_path)
    assert Scan(source).log.revision is None
    with pytest.raises(SourceError, match="no commits any more"):
        Scan(source, {"a.md": "x"})
    upstream.commit({"a.md": "a"})
    assert Scan(source).ids == {"a.md"}


def test_a_head_that_names_an_unborn_branch_gives_way_to_the_only_one(
    upstream: Upstream, tmp_path: Path
) -> None:
    upstream.commit({"a.md": "a"})
    git(upstream.bare, "symbolic-ref", "HEAD", "refs/heads/master")
    assert Scan(connector(upstream, tmp_path)).ids == {"a.md"}
    upstream.push("HEAD:refs/heads/other")
    with pytest.raises(SourceError, match="no default branch; name one"):
        Scan(connector(upstream, tmp_path))


def test_a_detached_head_is_read(upstream: Upstream, tmp_path: Path) -> None:
    first = upstream.commit({"a.md": "a"})
    upstream.commit({"b.md": "b"})
    git(upstream.bare, "update-ref", "--no-deref", "HEAD", first)
    scan = Scan(connector(upstream, tmp_path))
    assert (scan.ids, scan.log.revision) == ({"a.md"}, first)


def test_links_submodules_and_large_file_pointers_are_not_documents(
    upstream: Upstream, tmp_path: Path
) -> None:
    (upstream.work / "link.md").symlink_to("a.md")
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    sha = upstream.commit({"a.md": "a", "model.md": pointer}, push=False)
    git(upstream.work, "update-index", "--add", "--cacheinfo", f"160000,{sha},vendor.md")
    git(upstream.work, "commit", "-q", "-m", "vendor", at=upstream.clock)
    upstream.push()
    scan = Scan(connector(upstream, tmp_path))
    assert scan.data == {"a.md": b"a", "model.md": b""}
    assert scan.log.problems == []
    assert scan.log.notes == [
        ("", "submodules are not read (vendor.md); `submodules = true` reads those of the same host"),
        ("model.md", f"not indexed: {ELSEWHERE}"),
    ]


def test_odd_names_are_told_apart(upstream: Upstream, tmp_path: Path) -> None:
    work = os.fsencode(upstream.work)
    names = [
        b"\xff.md",
        b"%FF.md",
        b"two\nlines.md",
        b"\nfirst.md",
        b" space .md",
        b"-dash.md",
        "ü/ß.md".encode(),
        b'"quoted".md',
        b"a\ttab.md",
    ]
    os.mkdir(work + "/ü".encode())
    for name in names:
        with open(work + b"/" + name, "wb") as file:
            file.write(name)
    upstream.commit({})
    source = connector(upstream, tmp_path)
    scan = Scan(source)
    assert set(scan.data.values()) == set(names)
    assert {"%FF.md", "%25FF.md", "two\nlines.md", "ü/ß.md"} < scan.ids
    json.dumps(sorted(scan.ids)).encode()
    assert {item.updated_ms for item in scan.items.values()} == {1_700_001_000_000}
    assert scan.log.problems == []  # the history named every one of them
    assert Scan(source, scan.known).items == {}


def test_globs_our_ignore_file_and_caches_decide_what_is_taken(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit(
        {
            "a.md": "a",
            "b.txt": "b",
            "drafts/c.md": "c",
            "node_modules/d.md": "d",
            "sub/e.md": "e",
            "sub/.ctxignore": "e.md",
        }
    )
    source = connector(upstream, tmp_path, include_globs=["**/*.md"], exclude_globs=["drafts/**"])
    first = Scan(source)
    assert first.ids == {"a.md"}
    upstream.commit({"sub/.ctxignore": "x.md"})
    assert Scan(source, first.known).ids == {"sub/e.md"}


@pytest.mark.parametrize("kind", ["link", "large"])
def test_a_rule_file_that_cannot_be_read_withholds_its_folder(
    upstream: Upstream, tmp_path: Path, kind: str
) -> None:
    upstream.commit({"a.md": "a", "rules": "secret.md", "sub/secret.md": "s"})
    if kind == "link":
        (upstream.work / "sub" / ".ctxignore").symlink_to("../rules")
    else:
        upstream.commit({"sub/.ctxignore": "#" * (MAX_RULE_FILE_BYTES + 1)})
    upstream.commit({"b.md": "b"})
    scan = Scan(connector(upstream, tmp_path, include_globs=["**/*.md"]))
    assert scan.ids == {"a.md", "b.md"}
    assert [problem.source_id for problem in scan.log.problems] == ["sub"]


def test_a_file_over_the_cap_is_a_line_of_the_report(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"big.md": "x" * 101, "small.md": "x" * 100})
    scan = Scan(connector(upstream, tmp_path, max_file_bytes=100))
    assert scan.ids == {"small.md"}
    assert [problem.source_id for problem in scan.log.problems] == ["big.md"]


def test_an_item_can_be_read_after_the_scan_is_over(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "a", "b.md": "b"})
    items = list(connector(upstream, tmp_path).scan({}, ScanLog()))
    assert [item.read().data for item in items] == [b"a", b"b"]


def test_a_large_file_comes_whole_through_the_pipe(upstream: Upstream, tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(300_000)).encode()
    upstream.commit({"a.md": text, "empty.md": "", "z.md": "z"})
    assert Scan(connector(upstream, tmp_path)).data == {"a.md": text, "empty.md": b"", "z.md": b"z"}


@pytest.mark.slow
def test_a_history_with_many_commits_is_read_no_further_than_needed(
    upstream: Upstream, tmp_path: Path
) -> None:
    stream = b"".join(
        b"commit refs/heads/main\ncommitter A <a@b> %d +0000\ndata 1\nx\n"
        b"M 100644 inline f%d.md\ndata %d\n%d\n"
        % (1_600_000_000 + number, number % 500, len(str(number)), number)
        for number in range(5000)
    )
    git(upstream.bare, "fast-import", "--quiet", stdin=stream)
    scan = Scan(connector(upstream, tmp_path))
    assert len(scan.ids) == 500
    assert {item.updated_ms for item in scan.items.values()} == {
        (1_600_000_000 + number) * 1000 for number in range(4500, 5000)
    }


def test_whoever_indexes_is_told_how_far_the_first_copy_has_come(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({f"{number}.md": str(number) for number in range(50)})
    config = tmp_path / "ctx.toml"
    config.write_text(f'[embedding]\nprovider = "disabled"\n[connectors.git.docs]\nurl = "{upstream.bare}"\n')
    steps: list[tuple[str, int, int | None]] = []
    with open_workspace(load_config(str(config), os.environ)) as workspace:
        workspace.indexer.run(progress=lambda step, count, total: steps.append((step, count, total)))
    assert any(step.startswith("git:docs: ") and "objects" in step and n == total for step, n, total in steps)


def test_what_the_remote_cannot_give_is_a_note_of_the_run(upstream: Upstream, tmp_path: Path) -> None:
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    upstream.commit({"a.md": "a", "model.md": pointer})
    config = tmp_path / "ctx.toml"
    config.write_text(f'[embedding]\nprovider = "disabled"\n[connectors.git.docs]\nurl = "{upstream.bare}"\n')
    with open_workspace(load_config(str(config), os.environ)) as workspace:
        report = workspace.indexer.run()[0]
        status = workspace.statuses()[0]
    assert (report.ok, report.added, report.problems) == (True, 1, ())
    assert [note.source_id for note in report.notes] == ["model.md"]
    assert status.healthy
    assert status.note == f"model.md: not indexed: {ELSEWHERE}"
