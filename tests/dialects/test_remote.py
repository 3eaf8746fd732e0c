"""A pack whose memories are on another machine, which may answer anything."""

import gzip
import itertools
import time
from collections.abc import Iterable, Iterator

import pytest
from kit import PieceByPiece, http_server

from ctx.errors import ToolError
from ctx.memory.dialects.pack import RemotePack


class _Odd(PieceByPiece):
    """A server that answers in a way of its own."""

    encoding = "identity"
    answer: Iterable[bytes] = ()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_pieces(self.answer, {"Content-Encoding": self.encoding})


def dripping() -> Iterator[bytes]:
    while True:
        time.sleep(0.02)
        yield b" "


@pytest.mark.parametrize(
    ("answer", "encoding", "timeout_s", "reason"),
    [
        ([b"[" * 200_000], "identity", 60, "did not answer with JSON"),
        (itertools.repeat(b" " * 65536), "identity", 60, "sent a reply of more than 1 MiB"),
        (dripping(), "identity", 0.3, "did not answer in time"),
        ([gzip.compress(gzip.compress(b" " * 5_000_000))], "gzip, gzip", 60, "compressed twice"),
    ],
    ids=["nested", "endless", "dripping", "packed"],
)
def test_an_odd_answer_is_told_with_where_it_came_from(
    monkeypatch: pytest.MonkeyPatch, answer: Iterable[bytes], encoding: str, timeout_s: float, reason: str
) -> None:
    monkeypatch.setattr("ctx.memory.dialects.pack.MAX_REPLY_BYTES", 1 << 20)
    monkeypatch.setattr(_Odd, "answer", answer)
    monkeypatch.setattr(_Odd, "encoding", encoding)
    with http_server(_Odd) as port:
        pack = RemotePack("sekha", f"http://127.0.0.1:{port}", "/{tool}", None, ("SEKHA_API_URL", "KEY"))
        with pytest.raises(ToolError, match=reason) as refused:
            pack.call("memory_stats", {}, timeout_s)
    assert "SEKHA_API_URL" in refused.value.message
