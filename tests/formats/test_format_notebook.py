"""Jupyter notebooks as Markdown."""

import json

import pytest

from ctx.formats.data import parse_notebook as parse

NOTEBOOK = {
    "nbformat": 4,
    "metadata": {"language_info": {"name": "python"}},
    "cells": [
        {"cell_type": "markdown", "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "source": "print('hi')",
            "outputs": [
                {"output_type": "stream", "text": ["hi\n"]},
                {
                    "output_type": "display_data",
                    "data": {"image/png": "iVBOR" * 1000, "text/plain": "<Figure>"},
                },
            ],
        },
        {"cell_type": "raw", "source": "raw words"},
        {"cell_type": "code", "source": "", "outputs": []},
    ],
}


def test_cells_become_text_and_code_blocks() -> None:
    parsed = parse(json.dumps(NOTEBOOK))
    assert (
        parsed.body == "# Title\nwords\n\n```python\nprint('hi')\n```\n\n```\nhi\n<Figure>\n```\n\nraw words"
    )
    assert parsed.title == "Title"
    assert [parsed.body[start:end] for start, end in parsed.atoms] == [
        "```python\nprint('hi')\n```",
        "```\nhi\n<Figure>\n```",
    ]


@pytest.mark.parametrize("text", ['{"cells": [', "not json", "[1]", '{"a": 1}', "[" * 100_000])
def test_a_damaged_notebook_is_read_as_text(text: str) -> None:
    assert parse(text).body == text


def test_long_outputs_are_cut_and_say_so() -> None:
    cells = [
        {"cell_type": "code", "source": "x", "outputs": [{"output_type": "stream", "text": "line\n" * 1000}]}
    ]
    body = parse(json.dumps({"cells": cells})).body
    assert len(body) < 1200
    assert body.endswith("line\n…\n```")


def test_outputs_without_a_telling_text_are_read_from_their_other_forms() -> None:
    outputs = [
        {
            "data": {
                "text/markdown": ["**Result**: 7"],
                "text/plain": ["<IPython.core.display.Markdown object>"],
            }
        },
        {
            "data": {
                "text/html": "<p>Only <b>here</b></p>",
                "text/plain": "<IPython.core.display.HTML object>",
            }
        },
        {"data": {"text/html": "<table><tr><td>1</td></tr></table>", "text/plain": "   a\n0  1"}},
    ]
    cells = [{"cell_type": "code", "source": "x", "outputs": outputs}]
    body = parse(json.dumps({"cells": cells})).body
    assert body == "```python\nx\n```\n\n```\n**Result**: 7\nOnly here\n   a\n0  1\n```"
