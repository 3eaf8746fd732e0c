"""Which files a source reads where its configuration has no `include_globs`, and what no glob but a name brings in."""

from pathlib import Path

import pytest
from git_kit import Upstream, git
from kit import project, workspace
from tree_kit import items, put, rescan, settled

from ctx.connectors.base import ScanLog
from ctx.connectors.defaults import left_out
from ctx.connectors.filesystem import FilesystemConnector
from ctx.connectors.git import GitConnector

pytestmark = pytest.mark.usefixtures("plain_git")


def read(folder: Path, **settings: list[str]) -> set[str]:
    return set(items(FilesystemConnector("filesystem:docs", str(folder), **settings)))  # type: ignore[arg-type]


def repository(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "-q", "-b", "main")
    return folder


def commit(folder: Path, *paths: str) -> None:
    git(folder, "add", "-f", *(paths or ("-A",)))
    git(folder, "commit", "-q", "-m", "x", at=1_700_000_000)


# -- by name -------------------------------------------------------------------------------------------------


def test_every_file_is_taken_but_for_what_is_known_by_its_name(root: Path) -> None:
    kept = [
        "a.md",
        "b/c.rst",
        "d.py",
        "f.json",
        "g.csv",
        "Jenkinsfile",
        "page.astro",
        ".github/x.yml",
        "board.canvas",
    ]
    machine = "pylock.toml pylock.dev.toml vcpkg-lock.json environment.lock.yml gems.locked yarn.lock pnpm-lock.yaml go.sum app.min.js theme.min.css app.js.map a.md~ .#b.md h.png z.zip"
    saving = "a.md.tmp.4711.0ab1 #a.md# .goutputstream-X1 a.md___jb_tmp___ 4913 a.md.bck"
    for path in (*kept, *machine.split(), *saving.split(), "third_party/x.c", ".obsidian/workspace.json"):
        put(root, path)
    log = ScanLog()
    connector = FilesystemConnector("filesystem:docs", str(root))
    assert {item.source_id for item in connector.scan({}, log)} == set(kept)
    assert dict(log.left_out) == {
        "lock file": 8,
        "minified file": 2,
        "source map": 1,
        "editor backup": 8,
        "binary file": 2,
        "vendored folder": 2,
    }


@pytest.mark.parametrize(
    "name",
    [
        *(".env", ".env.local", ".ENV.production", ".envrc", "prod.env", "server.pem", "tls.key", "id_rsa"),
        *("id_ed25519.bak", "id_work", ".npmrc", ".netrc", "terraform.tfstate", "x.tfstate.backup"),
        *(".credentials", ".aws-credentials", ".secrets", ".dev.vars", ".bash_history"),
        *("credentials", "credentials.json", "aws-credentials.ini", "client_secret_12.json", "secrets.yml"),
    ],
)
def test_a_possible_secret_is_read_only_where_a_glob_names_it(root: Path, name: str) -> None:
    put(root, name)
    put(root, "a.md")
    assert read(root) == {"a.md"}
    assert read(root, include_globs=["**/*"]) == {"a.md"}
    assert read(root, include_globs=["*.md", "*.json", "*.yml", "*.ini"]) == {"a.md"}
    assert read(root, include_globs=["*.md", name]) == {"a.md", name}


@pytest.mark.parametrize(
    "name",
    [
        "credentials.md",
        "credentials.py",
        "id_mapping.py",
        "environment.yml",
        ".environment",
        "keys.md",
        "secret.ts",
    ],
)
def test_words_about_secrets_are_no_secrets(name: str) -> None:
    assert left_out(name) is None


def test_include_globs_take_lock_files_and_vendored_folders_but_no_secrets(root: Path) -> None:
    for path in ("yarn.lock", "third_party/a.min.js", "sub/.env", "sub/.env.test"):
        put(root, path)
    assert read(root, include_globs=["**/*"]) == {"yarn.lock", "third_party/a.min.js"}
    assert read(root, include_globs=["**/.env*"]) == {"sub/.env", "sub/.env.test"}
    assert read(root, include_globs=["**/.env*"], exclude_globs=["*.test"]) == {"sub/.env"}


def test_vendor_is_left_out_beside_a_manifest_and_kept_elsewhere(root: Path) -> None:
    for path in ("back/go.mod", "back/vendor/lib/a.go", "src/vendor/supplier.py", "vendor/x.py"):
        put(root, path)
    assert read(root) == {"back/go.mod", "src/vendor/supplier.py", "vendor/x.py"}
    put(root, "package.json")
    assert read(root) == {"back/go.mod", "src/vendor/supplier.py", "package.json"}


def test_a_git_source_leaves_out_the_same_names(upstream: Upstream, tmp_path: Path) -> None:
    upstream.commit(
        {
            "a.mts": "a",
            ".env": "a",
            "yarn.lock": "a",
            "vendor/x.go": "a",
            "src/vendor/y.go": "a",
            "p.png": "a",
        }
    )
    connector = GitConnector("git:up", str(upstream.bare), cache_dir=str(tmp_path / "cache"))
    log = ScanLog()
    assert {item.source_id for item in connector.scan({}, log)} == {"a.mts", "src/vendor/y.go"}
    assert dict(+log.left_out) == {
        "possible secret": 1,
        "lock file": 1,
        "vendored folder": 1,
        "binary file": 1,
    }


def test_the_report_counts_what_is_left_out_and_says_that_an_old_index_grew(tmp_path: Path) -> None:
    files = {"a.md": "alpha", "yarn.lock": "x", ".env": "A=1", ".env.local": "A=2"}
    config = project(tmp_path, files)
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert [note.message for note in report.notes] == [
            "left out: 1 lock file, 2 possible secrets; name them in `include_globs` to index them"
        ]
        assert space.statuses()[0].note is None
    config.write_text(
        config.read_text().replace('root = "./docs"', 'root = "./docs"\ninclude_globs = ["*.md"]')
    )
    (tmp_path / "docs/b.mts").write_text("beta")
    with workspace(config) as space:
        space.indexer.run()
    config.write_text(config.read_text().replace('include_globs = ["*.md"]', ""))
    with workspace(config) as space:
        (report,) = space.indexer.run()
        assert "the index has grown" in report.notes[-1].message
        (report,) = space.indexer.run()
        assert not any("grown" in note.message for note in report.notes)


# -- as git has it -------------------------------------------------------------------------------------------


def test_the_users_own_ignore_file_holds_in_every_repository(tmp_path: Path) -> None:
    home = tmp_path / "home"
    rules = put(home, "dotfiles/ignore", "*.local.md\nscratch/\n")
    folder = repository(tmp_path / "r")
    nested = repository(folder / "clone")
    plain = tmp_path / "plain"
    for top in (folder, nested, plain):
        for name in ("a.md", "plan.local.md", "scratch/b.md"):
            put(top, name)
    (home / ".config/git").mkdir(parents=True)
    (home / ".config/git/ignore").symlink_to(rules)
    assert read(folder) == {"a.md", "clone/a.md"}
    assert read(plain) == {"a.md", "plan.local.md", "scratch/b.md"}
    git(folder, "config", "--global", "core.excludesFile", str(put(home, "other", "a.md\n")))
    assert read(folder / "clone") == {"plan.local.md", "scratch/b.md"}


def test_info_exclude_holds_in_nested_repositories_and_linked_worktrees(tmp_path: Path) -> None:
    main = repository(tmp_path / "main")
    put(main, "a.md")
    commit(main)
    put(main, ".git/info/exclude", "private.md\n")
    git(main, "worktree", "add", "-q", "-b", "feat", str(tmp_path / "feat"))
    put(tmp_path, "feat/private.md")
    put(main, "private.md")
    assert read(tmp_path / "feat") == {"a.md"}
    outer = tmp_path / "outer"
    git(tmp_path, "clone", "-q", str(main), str(outer / "clone"))
    put(outer, "clone/.git/info/exclude", "private.md\n")
    put(outer, "clone/private.md")
    assert read(outer) == {"clone/a.md"}


def test_what_git_tracks_is_read_though_an_ignore_file_matches_it(root: Path) -> None:
    repository(root)
    nested = repository(root / "lib/clone")
    for top in (root, nested):
        put(top, ".gitignore", "build/\n*.log\n")
        for name in ("build/t.md", "build/u.md", "x.log", "build/.env", "build/secret/z.md"):
            put(top, name)
        commit(top, ".gitignore", "build/t.md", "x.log", "build/.env", "build/secret/z.md")
    put(root, "build/secret/.ctxignore", "*.md\n")
    own = {".gitignore", "build/t.md", "x.log"}
    assert read(root) == own | {f"lib/clone/{name}" for name in {*own, "build/secret/z.md"}}
    assert read(root, exclude_globs=["*.log", "lib/"]) == {".gitignore", "build/t.md"}
    connector = FilesystemConnector("filesystem:docs", str(root))
    known = settled(connector)
    assert rescan(connector, known) == (set(), set())
    put(root, "build/t.md", "changed")
    log = ScanLog()
    paths = [str(root / name) for name in ("build/t.md", "build/u.md", "lib/clone/x.log")]
    assert [item.source_id for item in connector.scan_paths(paths, known, log)] == ["build/t.md"]
    assert log.gone == set()


# -- work trees ----------------------------------------------------------------------------------------------


def test_linked_worktrees_are_left_out_and_submodules_and_clones_are_not(tmp_path: Path) -> None:
    library = repository(tmp_path / "library")
    put(library, "lib.md")
    commit(library)
    main = repository(tmp_path / "main")
    put(main, "a.md")
    git(main, "submodule", "--quiet", "add", str(library), "sub")
    git(tmp_path, "clone", "-q", str(library), str(main / "clone"))
    commit(main, "a.md", "sub")
    for name in ("x", "y"):
        git(main, "worktree", "add", "-q", "-b", name, f".claude/worktrees/{name}")
    git(main / "sub", "worktree", "add", "-q", "-b", "s", str(main / "sub-tree"))
    log = ScanLog()
    connector = FilesystemConnector("filesystem:docs", str(main))
    expected = {"a.md", ".gitmodules", "sub/lib.md", "clone/lib.md"}
    assert {item.source_id for item in connector.scan({}, log)} == expected
    assert log.left_out["linked worktree"] == 3
    put(main, ".claude/worktrees/x/new.md")
    found = connector.scan_paths([str(main / ".claude/worktrees/x/new.md")], {}, ScanLog())
    assert list(found) == []
    assert read(main / ".claude/worktrees/x") == {"a.md", "new.md", ".gitmodules"}


@pytest.mark.parametrize("bare", [".bare", ".git"])
def test_of_the_worktrees_of_a_bare_repository_its_own_branch_is_read(tmp_path: Path, bare: str) -> None:
    source = repository(tmp_path / "source")
    put(source, "a.md")
    commit(source)
    git(source, "branch", "feat")
    folder = tmp_path / "project"
    folder.mkdir()
    git(folder, "clone", "-q", "--bare", str(source), bare)
    for name in ("feat", "main"):
        git(folder / bare, "worktree", "add", "-q", str(folder / name), name)
    if bare == ".bare":
        put(folder, ".git", "gitdir: ./.bare\n")
    assert read(folder) - {".git"} == {"main/a.md"}
    git(folder / bare, "worktree", "remove", str(folder / "main"))
    assert {name for name in read(folder) if name.endswith(".md")} == {"feat/a.md"}
