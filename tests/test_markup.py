"""What a text says without its markup, and what says nothing."""

import pytest
from kit import chunk_row

from ctx.markup import is_bare, plain, without_asides


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("---\ntitle: Set up\ntags: [a, b]\n---\nInstall it first.", "Install it first."),
        ("See the [guide](https://x.test/a_(b)) now.", "See the guide now."),
        ("See the [guide](https://x.test/a_(b now) or not.", "See the guide or not."),
        ("See [the guide][1] and ![a picture](p.png).", "See the guide and a picture."),
        ('<p align="center">Hello <b>there</b><br/>you</p>', "Hello there you"),
        ("Put <file> in <https://x.test>", "Put <file> in <https://x.test>"),
        ("A Result<A> of <B>two</B> kinds, H<sub>2</sub>O", "A Result<A> of two kinds, H2O"),
        ("<!-- a note -->Text.", "Text."),
        (".. _label:\n\nUse :ref:`the index <index>` or :class:`~a.B`.", "Use the index or a.B."),
        (".. code-block:: python\n   :linenos:\n\n   run()", "run()"),
        (".. image:: a.png\n   :align: center\n\n.. note:: Mind the gap.", "Mind the gap."),
        (".. function:: f(a)\n\n   :param int a: the width", "f(a) :param int a: the width"),
        (".. versionadded:: 3.7\n\nIt runs.", "New in 3.7 It runs."),
        (".. regendoc:wipe\n\n.. |x| replace:: y\n\nIt runs.", "It runs."),
        (".. [1] It is said\n   elsewhere.", "It is said elsewhere."),
        ("Several :py:class:`Build`\\ s of :rfc:`2109`: `b`.", "Several Builds of RFC 2109: b."),
        ("Several :class:`Build`\\s", "Several Builds"),
        ("Like this::\n\n    >>> run()\n    1\n\n::\n\n    end", "Like this: >>> run() 1 end"),
        ("A *total* of f(*args, **kwargs), 2 * 3 * 4.", "A total of f(*args, **kwargs), 2 * 3 * 4."),
        (
            "See (*.py|*.md), src/*.py, lib/*.c and *all of it*.",
            "See (*.py|*.md), src/*.py, lib/*.c and all of it.",
        ),
        ("Set up\n```````\nRun ``.\\run`` or ``<a>``.", "Set up Run .\\run or <a>."),
        ("The {func}`echo` function and {ref}`words <target>`.", "The echo function and words."),
        ("`words <https://x.test>`_ and ``code``", "words and code"),
        ("This is **bold** and f(**kwargs).", "This is bold and f(**kwargs)."),
        ("**Note**: keep `src/**/*.py` and **all of it**.", "Note: keep src/**/*.py and all of it."),
        (
            "Take src/**/*.py and lib/**/*.c, 2**8 and 2 ** 8.",
            "Take src/**/*.py and lib/**/*.c, 2**8 and 2 ** 8.",
        ),
        ("**Stop.** It **(really)** ends.", "Stop. It (really) ends."),
        ("**`root`**: the **folder `x`** of it", "root: the folder x of it"),
        ("| key | default |\n|---|:-:|\n| `a` | x \\| y |\n| b | |", "key · default; a · x | y; b;"),
        (
            'Set:\n\n```toml\nglobs = ["**/*.md"]  # **all**\n# [a](b)\n```\n\nThen **go**.',
            'Set: globs = ["**/*.md"] # **all** # [a](b) Then go.',
        ),
        ('globs = ["**/*.md", "**/*.txt"]\n```\n\nThen **go**.', 'globs = ["**/*.md", "**/*.txt"] Then go.'),
        ("Set up\n......\n\nRun it...\n\n######\nThen wait.", "Set up Run it... Then wait."),
        ("The ``<a>`` and the `<b>` element, <b>bold</b>.", "The <a> and the <b> element, bold."),
        (
            "See :ref:`the long\nguide <guide>` and `a\npage <https://x.test>`_.",
            "See the long guide and a page.",
        ),
        ("Its ``__cause__`` or ``\\d``, ``C:\\``.", "Its __cause__ or \\d, C:\\."),
        (
            "```{admonition} Old\n:class: note\nIt `runs`.\n```\n\n```{code-block} sh\nrun `x`\n```\nEnd `it`.",
            "Old It runs. run `x` End it.",
        ),
        ("/// tip | Mind\n\nthe gap\n\n///", "tip Mind the gap"),
        ("[![a badge](b.svg)](https://x.test) and [words](y).", "a badge and words."),
        ("Set it{: .hint } up. {.b}\n\nUse `{.a}` and {x: 1}.", "Set it up. Use {.a} and {x: 1}."),
        ("```{versionadded} 3.7\nIt `runs`.\n```", "New in 3.7 It runs."),
        ("```{contents}\n:depth: 1\n```\nText `b`.", "Text b."),
        ("```{eval-rst}\n.. currentmodule:: a\n.. note:: Mind `it`.\n```", "Mind it."),
        ("!!! note\n    Mind the gap.", "note Mind the gap."),
        ("## Title {#anchor}\n\nText.", "Title Text."),
    ],
)
def test_prose_is_shown_without_its_markup(text: str, shown: str) -> None:
    assert plain(chunk_row(text, "t", "", prose=True)) == shown


def test_a_line_of_marks_is_a_rule_and_one_that_begins_with_several_is_not() -> None:
    text = '===\n"--password", prompt=True\n***'
    assert plain(chunk_row(text, "t", "", prose=True)) == '"--password", prompt=True'


def test_a_docstring_begins_on_the_line_of_its_first_sentence() -> None:
    prose = '"""Loads the plan.\n\nRaises `PlanError`.\n"""'
    assert plain(chunk_row(prose, "t", "", prose=True)) == "Loads the plan. Raises PlanError."
    code = 'def load():\n    """Loads the plan.\n\n    Raises PlanError.\n    """\n    return 1'
    assert "Loads the plan." in plain(chunk_row(code, "t", "", prose=False))


def test_code_is_shown_as_it_is() -> None:
    code = "def f(**kwargs):\n    return a[0](x) < `b`"
    assert plain(chunk_row(code, "t", "", prose=False)) == " ".join(code.split())


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
    ("text", "line"),
    [
        ("one two", "one two"),
        ("one  two", "one two"),
        (" one\ttwo ", "one two"),
        ("one\x1ftwo\vthree", "one two three"),
        ("one\xa0två  tre", "one två tre"),
        ("one\n\ntwo", "one two"),
    ],
)
def test_a_text_is_shown_with_single_spaces(text: str, line: str) -> None:
    assert plain(chunk_row(text, "t", "", prose=True)) == line


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


def test_a_heading_alone_is_shown_where_there_is_nothing_else() -> None:
    assert plain(chunk_row("# Stop early", "Run", "Stop early", prose=True)) == "Stop early"


@pytest.mark.parametrize(
    ("text", "bare"),
    [
        ("Where do all the items of a long export go to?\n" + "-" * 46, True),
        (".. _export:\n\nWhere do all the items of a long export go to?\n" + "-" * 46 + "\n", True),
        ("=======\nExports\n=======", True),
        ("Where do all the items of a long export go to?\n" + "-" * 46 + "\nInto a file.", False),
        ("Into the file that is named on the command line.\n\n----", False),
    ],
)
def test_a_heading_with_a_line_of_signs_below_it_is_bare(text: str, bare: bool) -> None:
    heading = "Questions > Where do all the items of a long export go to?"
    assert is_bare(chunk_row(text, "Exports", heading, prose=True)) == bare


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
