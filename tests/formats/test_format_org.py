"""Org files: titles, headings, blocks."""

from ctx.formats.extract import extract
from ctx.models import Content

MANUAL = """#+TITLE: Running the kiln
#+AUTHOR: nobody

* TODO [#A] Before firing :kiln:safety:
Check the vents.
** Loading with [[https://example.org][kiln shelves]]
#+begin_src sh
* not a heading
#+end_src
* After firing
Wait.
"""


def test_the_title_is_the_one_declared() -> None:
    extracted = extract(Content(MANUAL), "kiln.org")
    assert extracted is not None
    assert (extracted.title, extracted.media_type) == ("Running the kiln", "text/x-org")


def test_headings_lose_their_marks_and_stars_in_a_block_are_none() -> None:
    extracted = extract(Content(MANUAL), "kiln.org")
    assert extracted is not None
    assert [(heading.level, heading.title) for heading in extracted.headings] == [
        (1, "Before firing"),
        (2, "Loading with kiln shelves"),
        (1, "After firing"),
    ]
    ((start, end),) = extracted.atoms
    assert MANUAL[start:end].startswith("#+begin_src")
    assert MANUAL[start:end].endswith("#+end_src")


def test_markup_goes_from_the_words_of_a_heading() -> None:
    extracted = extract(Content("* Run =make= /now/ with [[file:a.org]] and a/b\ntext\n"), "a.org")
    assert extracted is not None
    assert extracted.title == "Run make now with file:a.org and a/b"
