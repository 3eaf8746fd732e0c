"""Extraction and chunking take linear time for any text."""

import time

import pytest

from ctx.formats.extract import extract
from ctx.indexing.chunk import chunk
from ctx.models import Content

SIZE = 300_000  # characters; what is quadratic takes a minute at this size, what is linear half a second
LIMIT_S = 15.0

ANYWHERE = ["a", " ", "\n", "a ", "\t", ".", "漢", "가", " " * 50 + "\n", "\x08a", "\x1b[", "a\n\n"]
MARKDOWN = [
    "# a\n", "```\n", "    ```x\n", "```a\n~~~~b\n", "<!--", "<!--\n", "<h1>\n", "| a |\n", "=\n", "a\n---\n",
    "---\n", "- a\n", "- a\n\n", "- ", "1. ", "> ", "> a\n", "> - 1. ", "> - 1. a\n", "> ```\n", "\t- a\n",
    "[a\n", "[a]:\n", "[a]: b\n", "[a]: b '\n", "|a", "a|b\n-|-\n", "<div>\n", "# [", "# ![a](", "# [a](b ",
    "# *a", "# _a_", "# `", "# \\", "# <a ", "# {#a} ", "# &#1", "# " + "[a](" * 200 + "\n",
    "# " + "*a " * 300 + "\n", "# " + " " * 900 + "{\n",
]  # fmt: skip
RST = [
    "a\n=\n",
    "====\na\n====\n",
    "::\n\n",
    "::\n x\n",
    ".. code::\n",
    ".. _a:\n",
    "+---+\n",
    "=== ===\n",
    "``a",
    ":a:`",
    "a_ ",
]
HTML = ["<", "<a ", '<a b="', "<a b='\"", "<div>", "</div>", "<script>", "<nav>", "<main>", "<pre>", "<td>", "<table>", "<li>", "<ul>", "<b><p>", "&#1", "&", "<title>",
        '<div role="main">', "<a " + "b " * 2000 + ">", "<code>", "<!", "<?"]  # fmt: skip
CODE = ["def a(\n", "class a\n", "  def a(): pass\nx\n", "function ", "impl<", "impl<a> ", "a(b,", "public static ", "int a * ", "a::", "const a = (", "a{", "#define a(",
        "@a\n", "//\n", "if (a) {\n", "a b ", "type a ", "create a ", "[a", '"', "a:\n", "(def ",
        "async get ", "template<"]  # fmt: skip
CASES = [
    (name, pattern)
    for names, patterns in [
        (("a.md",), MARKDOWN),
        (("a.rst",), RST),
        (("a.html",), HTML),
        (
            (
                "a.py",
                "a.ts",
                "a.c",
                "a.cpp",
                "a.rs",
                "a.java",
                "a.go",
                "a.sql",
                "a.rb",
                "a.php",
                "a.hs",
                "a.tf",
                "a.yaml",
                "a.toml",
            ),
            CODE,
        ),
        (("a.txt",), ["A B\n", "Title\n=====\n\n", "=\n", "a\x08", "AB:\n\n"]),
        (("a.ipynb",), ["[", '{"a":', '"\\ud800'[:1]]),
        (("a.md", "a.rst", "a.html", "a.1", "a.txt", "a.py", "a.js", "a.c", "a.json", "a"), ANYWHERE),
    ]
    for name in names
    for pattern in patterns
]


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted({name for name, _ in CASES}))
def test_no_text_takes_more_than_its_share_of_time(name: str) -> None:
    for pattern in [pattern for path, pattern in CASES if path == name]:
        text = pattern * (SIZE // len(pattern))
        began_s = time.process_time()
        extracted = extract(Content(text), name)
        chunks = chunk(extracted, extracted.title) if extracted else []
        assert time.process_time() - began_s < LIMIT_S, f"{pattern!r} x {SIZE // len(pattern)} in {name}"
        assert len(chunks) < SIZE / 50
