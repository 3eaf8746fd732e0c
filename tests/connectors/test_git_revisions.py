"""What of a git repository may be named besides a branch: tags, commits, and the commits' own words."""

import subprocess
from pathlib import Path

import pytest
from git_kit import Scan, Upstream, connector, git, use_instead

from ctx.config import load_config
from ctx.errors import ConfigError, SourceError

pytestmark = pytest.mark.usefixtures("plain_git")


def tagged(upstream: Upstream) -> tuple[str, str]:
    """Two commits; `v1` (annotated) and `light` are tags of the first."""
    first = upstream.commit({"a.md": "one"})
    git(upstream.work, "tag", "-a", "v1", "-m", "the first", at=1_700_000_500)
    git(upstream.work, "tag", "light")
    second = upstream.commit({"a.md": "two", "b.md": "new"})
    upstream.push("--tags")
    return first, second


@pytest.mark.parametrize("name", ["v1", "light"])
def test_a_tag_is_read_as_it_was(upstream: Upstream, tmp_path: Path, name: str) -> None:
    first, _ = tagged(upstream)
    source = connector(upstream, tmp_path, branch=name)
    scan = Scan(source)
    assert scan.data == {"a.md": b"one"}
    assert scan.log.revision == first
    second_scan = Scan(source, scan.known)
    assert (second_scan.ids, second_scan.log.unchanged) == (set(), {"a.md"})


def test_a_tag_that_moved_is_followed(upstream: Upstream, tmp_path: Path) -> None:
    tagged(upstream)
    source = connector(upstream, tmp_path, branch="v1")
    first = Scan(source)
    git(upstream.work, "tag", "-f", "-a", "v1", "-m", "moved", at=1_700_009_000)
    upstream.push("--tags")
    assert Scan(source, first.known).data == {"a.md": b"two", "b.md": b"new"}


def test_a_commit_is_read_by_its_whole_id(upstream: Upstream, tmp_path: Path) -> None:
    first, second = tagged(upstream)
    assert Scan(connector(upstream, tmp_path, branch=first)).data == {"a.md": b"one"}
    assert Scan(connector(upstream, tmp_path, branch=second.upper())).log.revision == second
    with pytest.raises(SourceError, match="has no commit"):
        Scan(connector(upstream, tmp_path, branch="0" * 40))
    with pytest.raises(SourceError, match="a commit is named by its whole id"):
        Scan(connector(upstream, tmp_path, branch=first[:10]))


def test_a_commit_is_read_over_the_network_too(upstream: Upstream, tmp_path: Path, daemon: str) -> None:
    first, _ = tagged(upstream)
    url = f"{daemon}/upstream.git"
    assert Scan(connector(url, tmp_path, branch=first)).data == {"a.md": b"one"}
    assert Scan(connector(url, tmp_path, branch="v1")).data == {"a.md": b"one"}


def test_of_a_branch_and_a_tag_of_one_name_the_branch_is_read(upstream: Upstream, tmp_path: Path) -> None:
    tagged(upstream)
    upstream.push("HEAD:refs/heads/v1")
    assert Scan(connector(upstream, tmp_path, branch="v1")).data["a.md"] == b"two"


def test_a_tag_links_to_its_commit(
    upstream: Upstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = tagged(upstream)
    use_instead(monkeypatch, tmp_path, "https://github.com/acme/", f"file://{tmp_path}/")
    scan = Scan(connector("https://github.com/acme/upstream.git", tmp_path, branch="v1", commits=True))
    assert scan.urls["a.md"] == f"https://github.com/acme/upstream/blob/{first}/a.md"
    assert scan.urls[f"@commits/{first}"] == f"https://github.com/acme/upstream/commit/{first}"


def test_commit_messages_are_documents_where_asked_for(upstream: Upstream, tmp_path: Path) -> None:
    first, second = tagged(upstream)
    source = connector(upstream, tmp_path, commits=True)
    scan = Scan(source)
    assert scan.ids == {"a.md", "b.md", f"@commits/{first}", f"@commits/{second}"}
    assert scan.data[f"@commits/{first}"] == "change"
    assert scan.authors[f"@commits/{first}"] == "Ann Author"
    third = upstream.commit({"a.md": "three"}, author="Bo")
    second_scan = Scan(source, scan.known)
    assert second_scan.ids == {"a.md", f"@commits/{third}"}
    assert f"@commits/{first}" in second_scan.log.unchanged
    assert not Scan(connector(upstream, tmp_path)).ids & set(scan.known) - {"a.md", "b.md"}


def test_commits_are_narrowed_by_day_and_folder(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"docs/a.md": "one"})
    later = upstream.commit({"docs/a.md": "two"})
    upstream.commit({"other.md": "x"})
    source = connector(upstream, tmp_path, root="docs", commits=True, since_ms=(1_700_000_000 + 1500) * 1000)
    assert Scan(source).ids == {"a.md", f"@commits/{later}"}


def test_a_hostile_message_is_text(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit({"a.md": "one"})
    message = b"\xff\xfe caf\xe9 \x1b[31m\n\n%x00 %H\n" + b"x" * 100_000
    subprocess.run(
        ["git", "-c", "i18n.commitEncoding=none", "commit", "-q", "--allow-empty", "-F", "-"],
        cwd=upstream.work,
        input=message,
        check=True,
        env={"PATH": "/usr/bin:/bin:/usr/local/bin", "GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b"}
        | {"GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"},
        capture_output=True,
    )
    git(upstream.work, "commit", "-q", "--allow-empty", "--allow-empty-message", "-m", "", at=1_700_100_000)
    upstream.push()
    scan = Scan(connector(upstream, tmp_path, commits=True))
    commits = [source_id for source_id in scan.ids if source_id.startswith("@commits/")]
    assert len(commits) == 2  # the empty one says nothing
    assert not scan.log.problems


def test_since_is_a_day(tmp_path: Path) -> None:
    config = tmp_path / "ctx.toml"
    for text, complaint in (("2026-02-30", "must be a day"), ("soon", "must be a day"), ("2026-02-03", "")):
        config.write_text(f'[connectors.git]\nurl = "https://e.x/a.git"\ncommits = true\nsince = "{text}"\n')
        if not complaint:
            assert load_config(str(config), {}).gits[0].since == text
            continue
        with pytest.raises(ConfigError, match=complaint):
            load_config(str(config), {})
