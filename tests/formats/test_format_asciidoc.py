"""AsciiDoc files: titles, sections, blocks."""

from ctx.formats.extract import extract
from ctx.models import Content

MANUAL = """= The kiln manual
A. Potter

== Before [[firing]]firing
See link:https://example.org[the supplier].

----
== not a section
----

=== Loading xref:shelves.adoc[the shelves]
|===
|cone |temperature
|===
"""


def test_the_document_title_and_its_sections_are_headings() -> None:
    extracted = extract(Content(MANUAL), "kiln.adoc")
    assert extracted is not None
    assert (extracted.title, extracted.media_type) == ("The kiln manual", "text/asciidoc")
    assert [(heading.level, heading.title) for heading in extracted.headings] == [
        (1, "The kiln manual"),
        (2, "Before firing"),
        (3, "Loading the shelves"),
    ]


def test_blocks_and_tables_are_kept_whole() -> None:
    extracted = extract(Content(MANUAL), "kiln.adoc")
    assert extracted is not None
    assert [MANUAL[start:end] for start, end in extracted.atoms] == [
        "----\n== not a section\n----",
        "|===\n|cone |temperature\n|===",
    ]


def test_markup_goes_from_the_words_of_a_heading() -> None:
    extracted = extract(Content("= Title *b* `c` and C# in F#\n\ntext\n"), "a.adoc")
    assert extracted is not None
    assert extracted.title == "Title b c and C# in F#"


UNDERLINED = """git-kiln(1)
===========

NAME
----
git-kiln - fire a pot

A paragraph whose last line is
as long as
----------
a listing
----------

[[options]]
OPTIONS
-------

Further notes
~~~~~~~~~~~~~
text

cone
....
== literal
....
"""


def test_underlined_titles_are_headings() -> None:
    extracted = extract(Content(UNDERLINED), "git-kiln.adoc")
    assert extracted is not None
    assert extracted.title == "git-kiln(1)"
    assert [(heading.level, heading.title) for heading in extracted.headings] == [
        (1, "git-kiln(1)"),
        (2, "NAME"),
        (2, "OPTIONS"),
        (3, "Further notes"),
    ]
    assert [UNDERLINED[start:end] for start, end in extracted.atoms] == [
        "----------\na listing\n----------",
        "....\n== literal\n....",
    ]
