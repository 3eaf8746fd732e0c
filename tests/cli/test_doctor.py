"""What `ctx doctor` says of who may come in."""

import itertools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import pytest
from kit import PieceByPiece, ctx, http_server, project


def test_doctor_names_a_server_that_is_named_to_others_and_has_no_key(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "alpha"})
    config.write_text(config.read_text() + '\n[server]\nallowed_hosts = ["ctx.example.org"]\n')
    assert ctx("index", "--no-embed", "--config", str(config), cwd=tmp_path).returncode == 0

    def warnings() -> list[str]:
        findings = json.loads(ctx("doctor", "--json", "--config", str(config), cwd=tmp_path).stdout)[
            "findings"
        ]
        return [row["detail"] for row in findings if row["what"] == "keys"]

    (warning,) = warnings()
    assert "ctx key create NAME" in warning
    assert ctx("key", "create", "desk", "--config", str(config), cwd=tmp_path).returncode == 0
    assert warnings() == []


@pytest.mark.slow
def test_doctor_says_of_web_pages_what_the_server_does(tmp_path: Path) -> None:
    config = project(tmp_path, {"a.md": "alpha"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0

    def finding() -> str:
        findings = json.loads(ctx("doctor", "--json", "--config", str(config), cwd=tmp_path).stdout)[
            "findings"
        ]
        return next(row["detail"] for row in findings if row["what"] == "web pages")

    assert "refresh" not in finding()
    assert ctx("tool", "init", "count", cwd=tmp_path).returncode == 0
    text = config.read_text() + '\n[tools.script.count]\npath = "tools/count.lua"\n'
    script = tmp_path / "tools" / "count.lua"
    script.write_text(script.read_text().replace("read_only = true", "read_only = false"))
    config.write_text(text)
    assert "and count;" in finding()
    config.write_text(text + '\n[server]\ncross_site_tools = "read_only"\n')
    assert "count" not in finding()
    config.write_text(text + "\n[server]\ncors_origins = []\n")
    assert finding().startswith("web pages of other sites may call nothing")
    config.write_text(text + '\n[server]\napi_key_env = "CTX_KEY"\n')
    assert finding() == "web pages of other sites may call nothing without a key"


class _Stranger(PieceByPiece):
    """What listens where the server of the project would, and notes what it is told."""

    answer: Iterable[bytes] = ()
    headers_seen: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.headers_seen.append(self.headers["Authorization"])
        self.send_pieces(self.answer)


@pytest.mark.parametrize("answer", [[b"5"], [b"[" * 200_000], itertools.repeat(b" " * 65536), [b"<html>"]])
def test_doctor_tells_a_stranger_no_key_and_reads_no_more_of_it_than_it_needs(
    tmp_path: Path, answer: Iterable[bytes]
) -> None:
    config = project(tmp_path, {"a.md": "alpha"})
    assert ctx("index", "--no-embed", cwd=tmp_path).returncode == 0
    _Stranger.answer, _Stranger.headers_seen = answer, []
    with http_server(_Stranger) as port:
        server = f'\n[server]\nbind = "127.0.0.1:{port}"\napi_key_env = "CTX_KEY"\n'
        config.write_text(config.read_text() + server)
        state = {"CTX_KEY": "secret", "XDG_STATE_HOME": str(tmp_path / "state")}
        reply = ctx("doctor", "--json", "--config", str(config), cwd=tmp_path, env=state)
    (finding,) = [row for row in json.loads(reply.stdout)["findings"] if row["what"] == "server"]
    assert "another program answers" in finding["detail"]
    assert _Stranger.headers_seen == [None]
