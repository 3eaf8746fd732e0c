"""What the host grants a script: files below its folders and listed variables."""

import json
import os
from pathlib import Path

import pytest

from ctx.errors import ToolError
from ctx.lua import host
from ctx.lua.host import Policy
from ctx.models import JSON


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A script's folder with what belongs to it, and beside it what does not."""
    scripts = tmp_path / "scripts"
    (scripts / "sub" / "deep").mkdir(parents=True)
    (scripts / "ok.txt").write_text("ok")
    (scripts / "empty").write_text("")
    (scripts / "bytes.bin").write_bytes(b"\xff\0\xfe")
    (scripts / "sub" / "note.md").write_text("a note")
    (scripts / "sub" / "deep" / "far.md").write_text("far")
    (scripts / "..hidden").write_text("a name that only begins with dots")
    (tmp_path / "secret.txt").write_text("secret")
    (tmp_path / "scripts-secret").mkdir()
    (tmp_path / "scripts-secret" / "key").write_text("a folder whose name begins like the root's")
    (scripts / "link.txt").symlink_to(tmp_path / "secret.txt")
    (scripts / "link_inside.txt").symlink_to("ok.txt")
    (scripts / "link_dir").symlink_to(tmp_path)
    os.mkfifo(scripts / "fifo")
    return scripts


def read(root: Path, path: str | bytes, *more: Path) -> bytes:
    policy = Policy("t", (str(root), *map(str, more)))
    return host.fs_read(policy, path if isinstance(path, bytes) else path.encode())


def listed(root: Path, path: str = ".", glob: str | None = None) -> list[dict[str, JSON]]:
    rows: list[dict[str, JSON]] = json.loads(
        host.fs_list(Policy("t", (str(root),)), json.dumps({"dir": path, "glob": glob}).encode())
    )
    return rows


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("ok.txt", b"ok"),
        ("./ok.txt", b"ok"),
        ("sub//note.md", b"a note"),
        ("sub/./deep/far.md", b"far"),
        ("empty", b""),
        ("bytes.bin", b"\xff\0\xfe"),
        ("..hidden", b"a name that only begins with dots"),
    ],
)
def test_a_script_reads_the_files_of_its_folder(folder: Path, path: str, said: bytes) -> None:
    assert read(folder, path) == said


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "sub/../../secret.txt",
        # harmless, and refused: what `..` means is not asked of a tree that others may change
        "sub/../ok.txt",
        "..",
        "/etc/passwd",
        "//etc/passwd",
        "/proc/self/environ",
        "link.txt",
        "link_inside.txt",
        "link_dir/secret.txt",
        "link_dir",
        "..%2fsecret.txt",
        "%2e%2e/secret.txt",
        "..\\secret.txt",
        "\u2025/secret.txt",
        "~/.ssh/id_rsa",
        "$HOME/secret.txt",
        "file:///etc/passwd",
        "ok.txt/x",
        "fifo",
        "sub",
        "",
        ".",
        "nope.txt",
        b"ok.txt\0.md",
        b"../secret.txt\0ok.txt",
        b"\xff\xfe",
        b"a" * 300,
        b"a/" * 3000,
    ],
)
def test_paths_outside_and_special_files_are_refused(folder: Path, path: str | bytes) -> None:
    with pytest.raises(ToolError) as refused:
        read(folder, path)
    assert str(folder.parent) not in refused.value.message
    refused.value.message.encode()  # it can be said in UTF-8, whatever the path was


def test_a_file_over_the_cap_is_refused(folder: Path) -> None:
    with (folder / "big").open("wb") as file:
        file.truncate(host.MAX_FILE_BYTES + 1)
    with pytest.raises(ToolError, match="larger than"):
        read(folder, "big")


def test_a_folder_becoming_a_link_between_two_steps_leads_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def swap(path: str, *arguments: int, dir_fd: int | None = None) -> int:
        if path == "sub":
            (folder / "sub").rename(folder / "gone")
            (folder / "sub").symlink_to(folder.parent)
        return real(path, *arguments, dir_fd=dir_fd)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(ToolError):
        read(folder, "sub/secret.txt")


def test_a_listing_names_what_fs_read_takes(folder: Path) -> None:
    rows = listed(folder)
    names = [row["name"] for row in rows]
    assert names == sorted(names)
    assert {"ok.txt", "sub", "fifo"} <= set(names)
    assert not {"link.txt", "link_dir", "link_inside.txt"} & set(names)
    assert next(row for row in rows if row["name"] == "ok.txt") == {
        "path": "ok.txt",
        "name": "ok.txt",
        "size": 2,
        "modified": int((folder / "ok.txt").stat().st_mtime),
        "dir": False,
    }
    assert [row["path"] for row in listed(folder, "sub", "*.md")] == ["sub/note.md"]
    assert read(folder, "sub/note.md") == b"a note"
    for row in listed(folder, "./sub/"):
        assert row["dir"] or read(folder, row["path"])


@pytest.mark.parametrize(
    "path", ["..", "../", "/", "/etc", "link_dir", "sub/../..", "ok.txt", "fifo", "nope"]
)
def test_a_listing_stays_in_the_scripts_folder(folder: Path, path: str) -> None:
    with pytest.raises(ToolError):
        listed(folder, path)


def test_only_listed_variables_are_told(folder: Path) -> None:
    environ = {"TOKEN": "t", "SECRET": "s", "EMPTY": "", "ODD": "a\udcffb"}
    policy = Policy("t", env=frozenset({"TOKEN", "EMPTY", "MISSING", "ODD"}))

    def get(name: bytes) -> JSON:
        return json.loads(host.env_get(policy, name, environ))

    assert get(b"TOKEN") == "t"
    assert get(b"EMPTY") == ""
    assert get(b"ODD") == "a?b"
    for name in (b"SECRET", b"MISSING", b"PATH", b"token", b"TOKEN\0", b"\xff", b"", b"*"):
        assert get(name) is None


@pytest.mark.parametrize(
    "path", [".ctx/ctx.db", ".CTX/ctx.db", "./.ctx/keys.json", ".git/config", "sub/.git/config"]
)
def test_what_lies_beside_a_script_is_not_the_store_nor_a_repository(tmp_path: Path, path: str) -> None:
    (tmp_path / path).parent.mkdir(parents=True)
    (tmp_path / path).write_text("secret")
    for root, inner in ((tmp_path, path), ((tmp_path / path).parent, Path(path).name)):
        if ".git" in path and inner != path:
            continue  # whoever names the folder itself means it
        with pytest.raises(ToolError, match="scripts may not read"):
            read(root, inner)
        with pytest.raises(ToolError, match="scripts may not read"):
            listed(root, os.path.dirname(inner) or ".")
