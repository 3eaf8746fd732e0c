"""`ctx docs`: the documentation of this version, offline."""

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from kit import ROOT, ctx, hear_ctrl_c

from ctx.cli import main, whole_parser


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A built site of two pages, as a wheel has it, beside the real Markdown."""
    folder = tmp_path / "bundled" / "site"
    (folder / "lua-api").mkdir(parents=True)
    (folder / "index.html").write_text("<title>ctx</title>")
    (folder / "lua-api" / "index.html").write_text("<title>The Lua API</title>")
    (tmp_path / "secret.txt").write_text("secret")
    return folder


def test_the_site_is_served_until_ctrl_c_and_gives_nothing_else(site: Path, tmp_path: Path) -> None:
    program = (
        "import sys; from ctx.cli import docs, main; "
        f"docs.bundled_path = lambda name: {str(site)!r} if name == 'site' else {str(ROOT / 'docs')!r}; "
        "sys.exit(main(['docs', 'lua-api', '--no-open']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=ROOT, preexec_fn=hear_ctrl_c
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("The documentation is at http://127.0.0.1:")
        address = line.split()[4]
        assert address.endswith("/lua-api/")
        with urllib.request.urlopen(address) as reply:
            assert b"The Lua API" in reply.read()
        root = address.removesuffix("lua-api/")
        for path in ("../secret.txt", "%2e%2e/secret.txt", "nowhere"):
            with pytest.raises(urllib.error.HTTPError, match="404"):
                urllib.request.urlopen(root + path)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def test_a_page_is_printed_as_it_is_in_a_pipe(tmp_path: Path) -> None:
    reply = ctx("docs", "howto/backup.md", "--print", cwd=tmp_path)
    assert reply.returncode == 0
    assert reply.stdout == (ROOT / "docs" / "howto" / "backup.md").read_text()


def test_every_page_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "--list"]) == 0
    names = capsys.readouterr().out.split()
    assert names == sorted(names)
    assert len(names) == len(list((ROOT / "docs").rglob("*.md")))
    assert {"index", "lua-api", "howto/backup"} <= set(names)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["lua-apy"], ("no page 'lua-apy'; did you mean 'lua-api'?",)),
        (["../README"], ("no page",)),
    ],
)
def test_a_page_that_is_not_there_is_told_with_the_nearest(
    tmp_path: Path, line: list[str], words: tuple[str, ...]
) -> None:
    reply = ctx("docs", *line, cwd=tmp_path)
    assert reply.returncode in (2, 3)
    assert all(word in reply.stderr for word in words), reply.stderr


def test_the_manual_page_has_every_command_and_its_options(tmp_path: Path) -> None:
    pytest.importorskip("argparse_manpage", reason="argparse-manpage is missing: run `make setup`")
    path = tmp_path / "man" / "ctx.1"
    subprocess.run([sys.executable, ROOT / ".ci" / "manual.py", path], check=True, cwd=tmp_path)
    text = path.read_text().replace("\\-", "-")
    for name in whole_parser()._subparsers._group_actions[0].choices:  # type: ignore[union-attr]
        assert f"ctx {name}" in text, name
    assert "--since" in text
    assert ".SH SYNOPSIS\n.B ctx\n[--config PATH] COMMAND ...\n" in text
    assert ".SH EXIT STATUS" in text
    assert str(os.path.expanduser("~")) not in text
    if os.path.exists("/usr/bin/groff"):
        check = subprocess.run(["groff", "-man", "-ww", "-z", str(path)], capture_output=True, text=True)
        # A long word leaves a gap in its line, which is no mistake of the page's.
        assert [line for line in check.stderr.splitlines() if "cannot adjust line" not in line] == []
