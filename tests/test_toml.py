"""Remembered tables are those of the very file, or they are not used."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ctx.errors import ConfigError
from ctx.toml import read_toml


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CACHE_HOME": str(tmp_path / "cache")}


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    file = tmp_path / "ctx.toml"
    file.write_text('[db]\npath = "a"\n')
    return file


def kept(environ: dict[str, str]) -> list[Path]:
    return sorted(Path(environ["XDG_CACHE_HOME"]).glob("ctx/*"))


def test_a_file_read_again_gives_the_same_tables_without_the_parser(
    toml: Path, environ: dict[str, str]
) -> None:
    first = read_toml(str(toml), "ctx.toml", environ, remember=True)
    assert first == {"db": {"path": "a"}}
    code = (
        "import sys; from ctx.toml import read_toml;"
        f"print(read_toml({str(toml)!r}, 'ctx.toml', {environ!r}) == {first!r}, 'tomli' in sys.modules)"
    )
    completed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert completed.split() == ["True", "False"]


def test_reading_alone_writes_nothing(toml: Path, environ: dict[str, str]) -> None:
    read_toml(str(toml), "ctx.toml", environ)
    assert kept(environ) == []


def test_an_edit_counts_though_size_and_times_are_the_same(toml: Path, environ: dict[str, str]) -> None:
    before = toml.stat()
    read_toml(str(toml), "ctx.toml", environ, remember=True)
    toml.write_text('[db]\npath = "b"\n')
    os.utime(toml, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_toml(str(toml), "ctx.toml", environ) == {"db": {"path": "b"}}


def test_what_is_remembered_is_the_users_alone(toml: Path, environ: dict[str, str]) -> None:
    read_toml(str(toml), "ctx.toml", environ, remember=True)
    (file,) = kept(environ)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_a_damaged_cut_or_open_memory_is_passed_over(toml: Path, environ: dict[str, str]) -> None:
    whole = read_toml(str(toml), "ctx.toml", environ, remember=True)
    (file,) = kept(environ)
    content = file.read_bytes()
    changed = [content[:i] + bytes([content[i] ^ 1]) + content[i + 1 :] for i in range(len(content))]
    for damaged in (b"", content[:5], content[: len(content) // 2], content[:-1], content + b"x", *changed):
        file.write_bytes(damaged)
        assert read_toml(str(toml), "ctx.toml", environ) == whole
    # Well made, but by whom? A file that others may write is not trusted.
    file.write_bytes(content.replace(b"path", b"root"))
    file.chmod(0o644)
    assert read_toml(str(toml), "ctx.toml", environ) == whole
    file.unlink()
    file.symlink_to(toml)
    assert read_toml(str(toml), "ctx.toml", environ) == whole


def test_a_file_with_a_date_is_parsed_each_time(toml: Path, environ: dict[str, str]) -> None:
    toml.write_text("[connectors.script.x]\nsince = 2026-01-31\n")
    tables = read_toml(str(toml), "ctx.toml", environ, remember=True)
    assert str(tables["connectors"]["script"]["x"]["since"]) == "2026-01-31"
    assert kept(environ) == []


def test_many_configurations_leave_few_files(tmp_path: Path, environ: dict[str, str]) -> None:
    for number in range(200):
        file = tmp_path / f"{number}.toml"
        file.write_text(f"n = {number}\n")
        read_toml(str(file), "x", environ, remember=True)
        assert read_toml(str(file), "x", environ) == {"n": number}
    assert len(kept(environ)) <= 64


@pytest.mark.parametrize("caches", [{}, {"HOME": ""}, {"XDG_CACHE_HOME": "relative"}, {"HOME": "/proc"}])
def test_without_a_cache_folder_a_file_is_simply_parsed(toml: Path, caches: dict[str, str]) -> None:
    assert read_toml(str(toml), "ctx.toml", caches, remember=True) == {"db": {"path": "a"}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"a = ", "is not TOML"),
        (b"a = '\xff'", "is not UTF-8 (byte 5)"),
        (b"[server]\nmax_body_bytes = " + b"9" * 5_000, "a number of more than 4,300 digits"),
        (b"[server]\nmax_body_bytes = 0x" + b"f" * 5_000, "a number of more than 4,300 digits"),
        (b"a = 1\n#" + b" " * 1_000_000, "is larger than 1,000,000 bytes"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_read_is_said_with_the_files_name(
    toml: Path, environ: dict[str, str], content: bytes | None, words: str
) -> None:
    toml.unlink() if content is None else toml.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        read_toml(str(toml), "ctx.toml", environ, remember=True)
    assert caught.value.message.startswith("ctx.toml: ")
    assert words in caught.value.message
