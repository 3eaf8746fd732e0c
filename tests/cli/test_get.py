"""`ctx get`: by id, the beginning of an id, path and `path:line`; and never the wrong one of several."""

import json
import os
from pathlib import Path

import pytest
from kit import ctx, project, workspace

from ctx.cli.search import resolve
from ctx.errors import BadRequest, NotFound

FILES = {
    "auth.md": "# Signing in\n\nline three\nline four\nline five\n",
    "guide/release.md": "# Releasing\n\nTag the commit.\n",
    "guide/index.md": "# Guide\n\nwords\n",
    "howto/index.md": "# How to\n\nwords\n",
    "odd:12": "# Odd\n\nIts name ends as a line number does.\n",
}
GLOBS = """
[connectors.filesystem.docs]
root = "./docs"
include_globs = ["**/*"]
[embedding]
provider = "disabled"
"""


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    project(folder, FILES, GLOBS)
    assert ctx("index", cwd=folder).returncode == 0
    return folder


def resolved(folder: Path, text: str, source: str | None = None) -> tuple[str, tuple[int | None, int | None]]:
    with workspace(folder / "ctx.toml") as space:
        place = resolve(space, text, source)
        return place.stored.document.source_id, (place.first, place.last)


def test_a_document_is_named_by_what_a_search_prints(indexed: Path) -> None:
    for path in ("auth.md", "guide/release.md"):
        assert resolved(indexed, path) == (path, (None, None))
    assert resolved(indexed, "auth.md:3") == ("auth.md", (3, 3))
    assert resolved(indexed, "auth.md:3-4") == ("auth.md", (3, 4))
    assert resolved(indexed, "auth.md", "filesystem") == ("auth.md", (None, None))


def test_the_beginning_of_an_id_and_the_end_of_a_path_are_enough(indexed: Path) -> None:
    with workspace(indexed / "ctx.toml") as space:
        document = resolve(space, "release.md").stored.document
        assert document.source_id == "guide/release.md"
        for id in (document.id, document.id.upper(), document.id[:8], document.id[:13]):
            assert resolve(space, id).stored.document == document


def test_a_name_that_ends_like_a_line_number_is_a_name(indexed: Path) -> None:
    assert resolved(indexed, "odd:12") == ("odd:12", (None, None))
    assert resolved(indexed, "odd:12:1") == ("odd:12", (1, 1))


def test_lines_are_read_as_forges_write_them(indexed: Path) -> None:
    assert resolved(indexed, "auth.md#L3-L4") == ("auth.md", (3, 4))
    assert resolved(indexed, "auth.md#L3") == ("auth.md", (3, 3))


def test_several_that_fit_are_listed_and_none_is_chosen(indexed: Path) -> None:
    with pytest.raises(BadRequest) as refusal:
        resolved(indexed, "index.md")
    message = refusal.value.message
    assert "matches 2 paths: guide/index.md, howto/index.md" in message
    assert message.endswith("give more of the path")


def test_of_sources_that_overlap_one_is_named(tmp_path: Path) -> None:
    text = "".join(
        f'[connectors.filesystem.{name}]\nroot = "./docs/{root}"\n'
        for name, root in (("all", "a"), ("sub", "a/sub"))
    )
    path = str(tmp_path / "docs" / "a" / "sub" / "s.md")
    with workspace(
        project(tmp_path, {"a/sub/s.md": "# A page\n"}, text + "[embedding]\nprovider = 'disabled'\n")
    ) as space:
        space.indexer.run()
        with pytest.raises(
            BadRequest,
            match=r"matches 2 documents: filesystem:all sub/s.md .*; give the source too, or an id",
        ):
            resolve(space, path)
        assert resolve(space, path, "filesystem:sub").stored.document.source == "filesystem:sub"


@pytest.mark.parametrize("text", ["auth.md:x", "th.md", "no/auth.md"])
def test_what_is_nearly_there_is_named(indexed: Path, text: str) -> None:
    with pytest.raises(NotFound, match=r"near it: .*auth\.md"):
        resolved(indexed, text)


@pytest.mark.parametrize("text", ["nowhere.md", "", "zz"])
def test_what_is_not_there_is_said_with_where_names_come_from(indexed: Path, text: str) -> None:
    with pytest.raises(NotFound, match="search finds paths and words"):
        resolved(indexed, text)


def test_a_path_of_the_working_folder_counts_where_a_person_stands(indexed: Path) -> None:
    reply = ctx("get", "./release.md:3", "--body", cwd=indexed / "docs" / "guide")
    assert (reply.returncode, reply.stdout) == (0, "Tag the commit.\n")


@pytest.mark.skipif(os.uname().sysname != "Linux", reason="a name there is UTF-8")
def test_a_name_that_is_not_utf_8_is_typed_as_the_shell_completes_it(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    project(folder, {"a%25b.md": "# Percent\n"}, GLOBS)
    (folder / "docs" / os.fsdecode(b"bad\xff.md")).write_text("# Bytes\n")
    assert ctx("index", cwd=folder).returncode == 0
    assert len(json.loads(ctx("search", "bytes", "--json", cwd=folder).stdout)["results"]) == 1
    for text in (os.fsdecode(b"bad\xff.md"), os.fsdecode(b"docs/bad\xff.md"), "bad%FF.md"):
        assert ctx("get", text, "--body", cwd=folder).stdout == "# Bytes\n"
    for text in ("a%25b.md", "a%2525b.md"):
        assert ctx("get", text, "--body", cwd=folder / "docs").stdout == "# Percent\n"


def test_lines_are_told_and_counted(indexed: Path) -> None:
    reply = json.loads(ctx("get", "auth.md:3-4", "--json", cwd=indexed).stdout)
    assert reply["body"] == "line three\nline four\n"
    assert (reply["start_line"], reply["end_line"], reply["total_lines"]) == (3, 4, 5)
    output = ctx("get", "auth.md:1", cwd=indexed)
    assert "lines:        1-1 of 5" in output.stdout
    assert output.stdout.endswith("\n\n# Signing in\n")
    behind = ctx("get", "auth.md:99", cwd=indexed)
    assert behind.returncode == 2
    assert "the first line must be at most the document's last line, 5, got 99" in behind.stderr


def test_a_name_is_found_however_its_accents_are_typed(tmp_path: Path) -> None:
    composed, decomposed = "Übersicht.md", "U\u0308bersicht.md"
    files = {f"mac/{decomposed}": "# Mac\n", f"both/{decomposed}": "1\n", f"both/{composed}": "2\n"}
    project(tmp_path, files, GLOBS)
    assert ctx("index", cwd=tmp_path).returncode == 0
    assert resolved(tmp_path, f"mac/{composed}")[0] == f"mac/{decomposed}"
    assert resolved(tmp_path, f"{composed}:1", "filesystem:docs")[0] == f"both/{composed}"
    for name in (composed, decomposed):
        assert resolved(tmp_path, f"both/{name}")[0] == f"both/{name}"


def test_what_is_there_and_is_no_document_is_told(indexed: Path) -> None:
    (indexed / "docs" / "blank.md").write_text("")
    reply = ctx("get", "docs/blank.md", cwd=indexed)
    assert (reply.returncode, "the file exists but is not indexed: `ctx index`" in reply.stderr) == (
        3,
        True,
    )
    assert "search it with `ctx search --path FOLDER/ WORDS`" in ctx("get", "docs", cwd=indexed).stderr


def test_a_commit_is_found_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    whole = "4c012e4fcf39340a11f43a9d03acbe011bd08a65"
    project(tmp_path, {f"@commits/{whole}": "docs: as measured\n", "@commits/4c01aa": "other\n"}, GLOBS)
    assert ctx("index", cwd=tmp_path).returncode == 0
    for text in ("4c012e4f", "@commits/4C012E4F", f"@commits/{whole}"):
        assert resolved(tmp_path, text)[0] == f"@commits/{whole}"
    with pytest.raises(BadRequest, match="matches 2 documents"):
        resolved(tmp_path, "4c01")
