"""How the page renders Markdown from strangers, run by Node without a browser."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from real_clients import SCRIPTS, node

from ctx.models import JSON
from ctx.server.rest import PAGE_FOLDER

LONG = 100_000
PATIENCE_S = 60.0  # for all of them; the slowest takes 0.3 s, and by a square or a cube of its length hours


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The page's modules, said to be modules."""
    folder = Path(shutil.copytree(PAGE_FOLDER, tmp_path / "page"))
    (folder / "package.json").write_text('{"type": "module"}')
    return folder


def _rendered(page: Path, *texts: str) -> list[JSON]:
    process = subprocess.run(
        [shutil.which("node") or node(), str(SCRIPTS / "markdown.mjs"), str(page)],
        input=json.dumps(texts),
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    )
    blocks: list[JSON] = json.loads(process.stdout)
    return blocks


@pytest.mark.slow
def test_no_text_keeps_the_tab_busy(page: Path) -> None:
    blank, ticks = " " * LONG, "`" * LONG
    lines = [f"# a{blank}b", f"a{blank}b", f"a|b\n{blank}c", f"a|b\n-{blank}c", f"a {ticks}", f"{blank}a"]
    lines += [f"a {run * LONG}" for run in ("*", "[", "![", "_a ", "~~a ", "<http://", "|", "> ", "- ")]
    assert len(_rendered(page, *lines, *(run * LONG for run in ("- a\n", "> a\n", "|a", "a\n")))) == 19


def test_headings_rules_and_tables_are_told_apart(page: Path) -> None:
    texts = ("# Plan ##", "## About C#", "# \r", "a | b\n--- | :-:\n1 | 2", "a | b\n  \n", "x `a` `` b`c ``")
    plan, sharp, empty, table, paragraph, code = _rendered(page, *texts)
    assert (plan, sharp, empty) == ([["h2", "Plan"]], [["h3", "About C#"]], [["h2"]])
    rows = [["tr", ["th", "a"], ["th", "b"]], ["tr", ["td", "1"], ["td", "2"]]]
    assert table == [["div", ["table", *rows]]]
    assert paragraph == [["p", "a | b"]]
    assert code == [["p", "x ", ["code", "a"], " ", ["code", "b`c"]]]


def test_what_a_document_brings_as_html_or_as_an_address_of_a_script_is_text(page: Path) -> None:
    text = "<img src=x onerror=alert(1)> [run](javascript:alert(1)) ![p](https://a.example/p.png)"
    (block,) = _rendered(page, text)
    names = {node[0] for node in block[0] if isinstance(node, list)}
    assert names == {"span"}
    assert "<img src=x onerror=alert(1)> " in block[0]
