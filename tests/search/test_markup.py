"""Plain text from Markdown and reStructuredText for snippets."""

import pytest
from kit import chunk_row

from ctx.search.markup import is_bare, plain, without_asides


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("---\ntitle: Set up\ntags: [a, b]\n---\nInstall it first.", "Install it first."),
        ("See the [guide](https://x.test/a_(b)) now.", "See the guide now."),
        ("See [the guide][1] and ![a picture](p.png).", "See the guide and a picture."),
        ('<p align="center">Hello <b>there</b><br/>you</p>', "Hello there you"),
        ("Put <file> in <https://x.test>", "Put <file> in <https://x.test>"),
        ("<!-- a note -->Text.", "Text."),
        (".. _label:\n\nUse :ref:`the index <index>` or :class:`~a.B`.", "Use the index or a.B."),
        (".. code-block:: python\n   :linenos:\n\n   run()", "run()"),
        (".. function:: f(a)\n\n   :param int a: the width", "f(a) :param int a: the width"),
        (".. versionadded:: 3.7\n\nIt runs.", "New in 3.7 It runs."),
        (".. [1] It is said\n   elsewhere.", "It is said elsewhere."),
        ("Several :py:class:`Build`\\ s of :rfc:`2109`: `b`.", "Several Builds of RFC 2109: b."),
        ("Like this::\n\n    >>> run()\n    1\n\n::\n\n    end", "Like this: >>> run() 1 end"),
        (
            "See (*.py|*.md), src/*.py, lib/*.c and *all of it*.",
            "See (*.py|*.md), src/*.py, lib/*.c and all of it.",
        ),
        ("The {func}`echo` function and {ref}`words <target>`.", "The echo function and words."),
        ("This is **bold** and f(**kwargs).", "This is bold and f(**kwargs)."),
        ("**Note**: keep `src/**/*.py` and **all of it**.", "Note: keep src/**/*.py and all of it."),
        (
            "Take src/**/*.py and lib/**/*.c, 2**8 and 2 ** 8.",
            "Take src/**/*.py and lib/**/*.c, 2**8 and 2 ** 8.",
        ),
        ("| key | default |\n|---|:-:|\n| `a` | x \\| y |\n| b | |", "key · default; a · x | y; b;"),
        (
            'Set:\n\n```toml\nglobs = ["**/*.md"]  # **all**\n# [a](b)\n```\n\nThen **go**.',
            'Set: globs = ["**/*.md"] # **all** # [a](b) Then go.',
        ),
        ('globs = ["**/*.md", "**/*.txt"]\n```\n\nThen **go**.', 'globs = ["**/*.md", "**/*.txt"] Then go.'),
        ("The ``<a>`` and the `<b>` element, <b>bold</b>.", "The <a> and the <b> element, bold."),
        (
            "See :ref:`the long\nguide <guide>` and `a\npage <https://x.test>`_.",
            "See the long guide and a page.",
        ),
        (
            "```{admonition} Old\n:class: note\nIt `runs`.\n```\n\n```{code-block} sh\nrun `x`\n```\nEnd `it`.",
            "Old It runs. run `x` End it.",
        ),
        ("[![a badge](b.svg)](https://x.test) and [words](y).", "a badge and words."),
        ("```{eval-rst}\n.. currentmodule:: a\n.. note:: Mind `it`.\n```", "Mind it."),
        ("!!! note\n    Mind the gap.", "note Mind the gap."),
        ("## Title {#anchor}\n\nText.", "Title Text."),
    ],
)
def test_prose_is_shown_without_its_markup(text: str, shown: str) -> None:
    assert " ".join(plain(chunk_row(text, "t", "", prose=True)).split()) == shown


def test_a_docstring_begins_on_the_line_of_its_first_sentence() -> None:
    prose = '"""Loads the plan.\n\nRaises `PlanError`.\n"""'
    assert plain(chunk_row(prose, "t", "", prose=True)) == "Loads the plan.\nRaises PlanError."
    code = 'def load():\n    """Loads the plan.\n\n    Raises PlanError.\n    """\n    return 1'
    assert "Loads the plan." in plain(chunk_row(code, "t", "", prose=False))


def test_code_is_shown_as_it_is() -> None:
    code = "def f(**kwargs):\n    return a[0](x) < `b`"
    assert plain(chunk_row(code, "t", "", prose=False)) == code


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("## Set up", True),
        ("---\ntitle: a\nauthor: b\n---", True),
        (".. _install-label:\n", True),
        ("otter", False),
        ("## Set up\n\nInstall the package with pip, then run it.", False),
        ("## Example\n\nFor instance:", True),
        ("## Port\n\n7331", False),
    ],
)
def test_a_heading_front_matter_or_a_label_alone_is_bare(text: str, bare: bool) -> None:
    assert is_bare(chunk_row(text, "t", "", prose=True)) == bare


@pytest.mark.parametrize(
    ("text", "heading"),
    [
        (".. _stop:\n\nStop early\n==========\n\nSend it a signal.", "Stop early"),
        ("==========\nStop early\n==========\nSend it a signal.", "Stop early"),
        ("Run\n===\n\n.. _stop:\n\nStop ``early``\n--------------\nSend it a signal.", "Run > Stop early"),
        ("(stop)=\n## Stop `early`\n\nSend it a signal.", "Run > Stop early"),
        ("<a id='x'></a>\n# Stop early\nSend it a signal.", "Stop early"),
    ],
)
def test_the_headings_above_a_text_are_told_beside_it_and_not_again(text: str, heading: str) -> None:
    assert plain(chunk_row(text, "Run", heading, prose=True)) == "Send it a signal."


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("It runs.\n\n```{note}\nMind it.\n```\n\nThen wait.", "It runs.\n\n\nThen wait."),
        ("It runs.\n:::{admonition} Old\nMind it.\n:::\nThen wait.", "It runs.\nThen wait."),
        ("It runs.\n:::note Old\nMind it.\n:::\nThen wait.", "It runs.\nThen wait."),
        ("It runs.\n/// tip | Old\nMind it.\n///\nThen wait.", "It runs.\nThen wait."),
        (
            "/// <summary>It runs.\n/// ::: \n:::{ }\n:::\nThen wait.",
            "/// <summary>It runs.\n/// ::: \n:::{ }\n:::\nThen wait.",
        ),
        ("It runs.\n\n.. versionadded:: 2.0\n\n   Mind it.\n\nThen wait.", "It runs.\n\nThen wait."),
        ("- It runs.\n\n  .. note:: Mind\n     it.\n\n  Then wait.", "- It runs.\n\n  Then wait."),
        ("It runs.\n\n!!! Warning\n    Mind it.\n\nThen wait.", "It runs.\n\nThen wait."),
        ("It runs.\n\n> [!NOTE]\n> Mind it.\n\nThen wait.", "It runs.\n\n\nThen wait."),
        ("It runs.\n```{note}\nMind it.", "It runs."),
        ("It runs.\n\n```python\nnote = 1\n```\n", "It runs.\n\n```python\nnote = 1\n```\n"),
        ("> [a](b) {note} .. note\n\n.. function:: f\n", "> [a](b) {note} .. note\n\n.. function:: f\n"),
        (".. note:: Mind it.", ".. note:: Mind it."),
    ],
)
def test_notes_stand_beside_a_text_and_are_told_from_it(text: str, rest: str) -> None:
    assert without_asides(chunk_row(text, "t", "", prose=True)).text == rest
    assert without_asides(chunk_row(text, "t", "", prose=False)).text == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (
            "Run it:\n\n```sh\nmake all\n  make test\n```\n\nThen go\non.",
            "Run it:\nmake all\n  make test\nThen go on.",
        ),
        (
            "Like this::\n\n    a = 1\n    if a:\n        b()\n\nEnd.",
            "Like this:\na = 1\nif a:\n    b()\nEnd.",
        ),
        ("Run\n\n    make all\n    make test\n\nEnd.", "Run\nmake all\nmake test\nEnd."),
        (".. code-block:: sh\n\n   make all\n   make test\n\nEnd.", "make all\nmake test\nEnd."),
        ("- one\n  goes on\n- two\n\n1. first\n2. second", "- one goes on\n- two\n1. first\n2. second"),
        ('|key|default|\n|---|---|\n|a|1|\n|b|"|"|\n\nText.', 'key · default;\na · 1;\nb · " · "\nText.'),
    ],
)
def test_lists_tables_and_code_keep_their_lines(text: str, shown: str) -> None:
    assert plain(chunk_row(text, "t", "", prose=True)) == shown
