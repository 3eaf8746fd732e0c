"""Manual pages in roff as text."""

import pytest

from ctx.formats.roff import parse

PAGE = r""".\" a comment
.TH FROB 1 "2024" "v1" "User Commands"
.SH NAME
frob, unfrob \- change the frob \fIof\fR a file
.SH SYNOPSIS
.B frob
[\fB\-a\fR] [\fIFILE\fR]...
.SH OPTIONS
.TP
\fB\-a\fR, \fB\-\-all\fR
do not ignore
entries
.IP \(bu 2
a point
.PP
See
.BR ls (1),
.IR frob.conf (5)
.SS "More words"
.nf
$ frob  x
\&.dot
.fi
"""


def test_a_page_becomes_sections_paragraphs_and_lists() -> None:
    parsed = parse(PAGE)
    assert parsed.title == "frob(1) - change the frob of a file"
    assert parsed.body == (
        "# NAME\n\nfrob, unfrob - change the frob of a file\n\n# SYNOPSIS\n\nfrob [-a] [FILE]...\n\n# OPTIONS\n\n"
        "-a, --all\n    do not ignore entries\n\n• a point\n\nSee ls(1), frob.conf(5)\n\n## More words\n\n```\n$ frob  x\n.dot\n```"
    )
    assert [(h.level, h.title) for h in parsed.headings] == [
        (1, "NAME"),
        (1, "SYNOPSIS"),
        (1, "OPTIONS"),
        (2, "More words"),
    ]
    for heading in parsed.headings:
        assert parsed.body[heading.start :].startswith("#" * heading.level + " " + heading.title)
    start, end = parsed.atoms[0]
    assert parsed.body[start:end] == "```\n$ frob  x\n.dot\n```"


def test_mdoc_pages_are_read_too() -> None:
    page = (
        ".Dd May 1, 2024\n.Dt FILE 1\n.Os\n.Sh NAME\n.Nm file\n.Nd determine file type\n.Sh SYNOPSIS\n.Nm\n.Bk -words\n.Op Fl bc\n.Op Fl Fl apple\n"
        ".Op Fl f Ar namefile\n.Ar\n.Ek\n.Sh DESCRIPTION\nThe\n.Nm\ntool, see\n.Xr magic 5 .\n.Bl -tag\n.It Fl b , Fl Fl brief\nBe brief.\n.El\n"
        ".Bd -literal\n$ file x\n.Ed\n"
    )
    parsed = parse(page)
    assert parsed.title == "file(1) - determine file type"
    assert "file [-bc] [--apple] [-f namefile] file ..." in parsed.body
    assert "The file tool, see magic(5)." in parsed.body
    assert "-b, --brief\n    Be brief." in parsed.body
    assert parsed.body.endswith("```\n$ file x\n```")


def test_definitions_and_branches_not_taken_leave_nothing() -> None:
    page = ".TH A 1\n.de Sp\n.if t .sp\n..\n.if n \\{\\\nkept\n.\\}\n.ie t \\{\\\ngone\n.\\}\n.el also kept\n.SH NAME\na \\- b\n"
    assert parse(page).body == "kept also kept\n\n# NAME\n\na - b"


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (r"\(lqquoted\(rq \[em] \(co", "“quoted” — ©"),
        (r"caf\['e] \[u00E9]", "café é"),
        (r"a\ b\~c\&d\|e", "a b cde"),
        (r"\fBbold\f(CWcode\fR\f[I]x\f[]", "boldcodex"),
        (r"\s-1small\s0 \h'2m'x", "small x"),
        (r"back\eslash \(rs", "back\\slash \\"),
        (r"\*(lqx\*(rq", "“x”"),
        (r"text \" a comment", "text"),
    ],
)
def test_escapes_become_characters(source: str, words: str) -> None:
    assert parse(f".TH A 1\n{source}\n").body == words


def test_tables_become_rows() -> None:
    assert (
        parse(".TH A 1\n.TS\nallbox;\nl l.\nName\tMeaning\na\tfirst\n.TE\nend\n").body
        == "Name | Meaning\na | first\n\nend"
    )


def test_a_page_that_only_points_to_another_is_empty() -> None:
    parsed = parse(".so man1/other.1\n")
    assert (parsed.body, parsed.title) == ("", None)
