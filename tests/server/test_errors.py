"""The table of errors matches the documentation."""

import re
from pathlib import Path

from ctx.errors import CtxError
from ctx.server import errors


def _classes(kind: type[CtxError]) -> list[type[CtxError]]:
    return [kind, *(match for child in kind.__subclasses__() for match in _classes(child))]


OURS = [kind for kind in _classes(CtxError) if kind.__module__ in ("ctx.errors", "ctx.errors")]


def test_the_documentation_has_the_same_table() -> None:
    page = Path(__file__).parents[2] / "docs" / "http-api.md"
    rows = re.findall(r"^\| (\d{3}) \| ((?:`\w+`(?:, )?)+) \|", page.read_text(), re.MULTILINE)
    documented = {(int(status), word) for status, words in rows for word in re.findall(r"\w+", words)}
    assert documented == {(errors.row_of(kind).status, kind.word) for kind in OURS}
