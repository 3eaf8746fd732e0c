"""What is shown of a text: marks on the query's words, windows that hold them, no markup."""

import pytest

from ctx import analyze
from ctx.snippet import Matcher, Text, is_bare, plain


def marked(query: str, text: str) -> list[str]:
    matcher = Matcher(analyze.query_terms(query), {})
    return [text[mark.start : mark.end] for mark in matcher.marks(text)]


@pytest.mark.parametrize(
    ("query", "text", "words"),
    [
        ("München", "Ein Büro in München, und eins in Bonn", ["München"]),
        ("munchen", "Ein Büro in MÜNCHEN", ["MÜNCHEN"]),
        ("résumé", "Send a resume or a résumé.", ["resume", "résumé"]),
        ("cafe", "un cafe\u0301 noir", ["cafe\u0301"]),
        ("strasse", "an der Straße", ["Straße"]),
        ("straße", "an der Strasse", ["Strasse"]),
        ("uber", "Über den Wolken", ["Über"]),
        ("検索", "全文検索エンジン", ["検索"]),
        ("поиск", "полнотекстовый поиск", ["поиск"]),
        ("get_user_name", "x = getUserName()", ["getUserName"]),
        ("getusername", "def get_user_name(self):", ["get_user_name"]),
        ("user name", "getUserName", ["getUserName"]),
        ("rotate", "rotating kilns rotated", ["rotating", "rotated"]),
    ],
)
def test_the_words_of_the_query_are_marked_however_they_are_written(
    query: str, text: str, words: list[str]
) -> None:
    assert marked(query, text) == words


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("---\ntitle: Set up\ntags: [a, b]\n---\nInstall it first.", "Install it first."),
        ("See the [guide](https://x.test/a_(b)) now.", "See the guide) now."),
        ("See [the guide][1] and ![a picture](p.png).", "See the guide and a picture."),
        ('<p align="center">Hello <b>there</b><br/>you</p>', "Hello there you"),
        ("Put <file> in <https://x.test>", "Put <file> in <https://x.test>"),
        ("<!-- a note -->Text.", "Text."),
        (".. _label:\n\nUse :ref:`the index <index>` or :class:`~a.B`.", "Use the index or a.B."),
        (".. code-block:: python\n   :linenos:\n\n   run()", "python run()"),
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
        ("!!! note\n    Mind the gap.", "note Mind the gap."),
        ("## Title {#anchor}\n\nText.", "Title Text."),
    ],
)
def test_prose_is_shown_without_its_markup(text: str, shown: str) -> None:
    assert plain(Text(text, "t", "", prose=True)) == shown


def test_a_line_of_marks_is_a_rule_and_one_that_begins_with_several_is_not() -> None:
    text = '===\n"--password", prompt=True\n***'
    assert plain(Text(text, "t", "", prose=True)) == '"--password", prompt=True'


def test_a_docstring_begins_on_the_line_of_its_first_sentence() -> None:
    prose = '"""Loads the plan.\n\nRaises `PlanError`.\n"""'
    assert plain(Text(prose, "t", "", prose=True)) == "Loads the plan. Raises PlanError."
    code = 'def load():\n    """Loads the plan.\n\n    Raises PlanError.\n    """\n    return 1'
    assert "Loads the plan." in plain(Text(code, "t", "", prose=False))


def test_code_is_shown_as_it_is() -> None:
    code = "def f(**kwargs):\n    return a[0](x) < `b`"
    assert plain(Text(code, "t", "", prose=False)) == " ".join(code.split())


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
    assert is_bare(Text(text, "t", "", prose=True)) == bare


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
    assert plain(Text(text, "t", "", prose=True)) == line


def test_rare_words_say_more_than_common_ones() -> None:
    matcher = Matcher(["the", "otter"], {"the": 0.1, "otter": 3.9})
    assert matcher.shares[matcher.terms_in("an otter")] > 0.9
    assert matcher.shares[matcher.terms_in("the cat")] < 0.1
    assert matcher.shares[matcher.terms_in("the otter")] == pytest.approx(1.0)
    assert matcher.shares[matcher.terms_in("a cat")] == 0.0


def test_what_words_say_together_does_not_depend_on_the_order_in_which_a_text_has_them() -> None:
    terms = [f"word{i}" for i in range(12)]
    matcher = Matcher(terms, {term: 1 / (i + 3) for i, term in enumerate(terms)})
    backwards = Matcher(terms, {term: 1 / (i + 3) for i, term in enumerate(terms)})
    assert (
        matcher.shares[matcher.terms_in(" ".join(terms[2:]))]
        == backwards.shares[backwards.terms_in(" ".join(reversed(terms[2:])))]
    )
    assert matcher.listed(matcher.terms_in("word7 and word3")) == ["word3", "word7"]


def test_a_term_begins_a_word_or_a_hump_and_is_not_within_one() -> None:
    matcher = Matcher(["app"], {})
    assert matcher.listed(matcher.terms_in("the app")) == matcher.listed(matcher.terms_in("myApp")) == ["app"]
    assert not matcher.terms_in("mapper")


def test_a_snippet_has_the_rarest_of_what_is_asked_for() -> None:
    filling = "x = 1 " * 18 + "def one(): " + "y = 2 " * 20 + "def conditional_def(): pass" + " z = 3" * 20
    matcher = Matcher(analyze.query_terms("conditional_def"), {})
    snippet, highlights = matcher.snippet(Text(filling, "t", "", prose=False))
    assert "conditional_def" in snippet
    assert {snippet[start:end] for start, end in highlights} >= {"conditional"}


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("month = months.index(name[:3].title()) + 1", True),
        ("month = months.index(name[:3].lower()) + 1", False),
        ("months of the name", False),
        ("a line of words alone that somebody copied here", True),
    ],
)
def test_a_line_that_was_copied_is_told_from_its_words(query: str, said: bool) -> None:
    text = "name months\n    month = months.index(name[:3].title())  + 1\n# A line of words alone that\n# "
    text = (text + "somebody copied here").replace("# ", "")
    matcher = Matcher(analyze.query_terms(query), {}, line=query)
    assert matcher.quotes(text, matcher.terms_in(text)) is said


@pytest.mark.parametrize("size", [80, 240, 1000])
def test_a_snippet_is_as_long_as_configured(size: int) -> None:
    text = "The otter swims along the river bank. " * 100
    snippet, highlights = Matcher(["otter"], {}, size).snippet(Text(text, "title", "", prose=True))
    assert size // 2 <= len(snippet) <= size + 2
    assert highlights


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
    assert is_bare(Text(text, "Exports", heading, prose=True)) == bare
