"""Plain text: headings in capitals and underlined ones."""

from ctx.formats.markup import parse_plain as parse


def test_capitals_at_the_margin_are_headings() -> None:
    parsed = parse(
        "NAME\n     ls - list\n\nSEE ALSO\n     dir(1)\n\nNOT alone\nTHIS NEITHER\nbecause of this line\n"
    )
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "NAME"), (1, "SEE ALSO")]


def test_underlined_lines_are_headings() -> None:
    parsed = parse("Title\n=====\n\ntext\n\nPart one\n--------\n\ntoo short an underline here\n---\n")
    assert [(h.level, h.title) for h in parsed.headings] == [(1, "Title"), (2, "Part one")]
    assert parsed.title == "Title"


def test_overstrike_goes() -> None:
    assert parse("N\bNA\bAM\bME\bE\n     _\bl_\bs - list\n").body == "NAME\n     ls - list\n"


def test_terminal_colours_go() -> None:
    assert parse("\x1b[1;31merror\x1b[0m: \x1b(Bno\n").body == "error: no\n"
