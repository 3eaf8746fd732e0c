"""HTML as readable text."""

import pytest

from ctx.formats.html import parse

FILLER = "<p>" + "Words that fill the page. " * 12 + "</p>"


def test_headings_paragraphs_and_entities_become_text() -> None:
    parsed = parse("<h1>Fish &amp; chips</h1><p>One\n  <b>bold</b> word&nbsp;&copy; &#8212; x<p>Two<br>lines")
    assert parsed.body == "# Fish & chips\n\nOne bold word © — x\n\nTwo\nlines"
    assert [(h.start, h.level, h.title) for h in parsed.headings] == [(0, 1, "Fish & chips")]


def test_scripts_styles_and_navigation_go() -> None:
    text = (
        "<head><style>p{}</style><script>if (a<b) {'</p>'}</script></head><nav>Menu<nav>x</nav>y</nav>"
        '<div role="navigation"><div>z</div></div><svg><text>s</text></svg><p>Kept</p><footer>f</footer>'
    )
    assert parse(text).body == "Kept"


def test_an_unclosed_navigation_hides_nothing() -> None:
    assert parse("<nav>Menu<p>Kept</p>").body == "Menu\n\nKept"


def test_lists_keep_their_marks() -> None:
    assert parse("<ul><li>a<li>b<ol><li>c<li>d</ol></ul>").body == "- a\n- b\n  1. c\n  2. d"


def test_definition_lists_stand_below_their_terms() -> None:
    assert parse("<dl><dt>term</dt><dd>meaning</dd></dl>").body == "term\n    meaning"


def test_code_blocks_keep_their_lines_and_are_atoms() -> None:
    parsed = parse(
        '<p>See <code>f()</code>:</p><pre><code class="language-python">def f():\n    <b>return</b> 1 &lt; '
        "2\n</code></pre><p>end"
    )
    block = "```python\ndef f():\n    return 1 < 2\n```"
    assert parsed.body == f"See `f()`:\n\n{block}\n\nend"
    assert [parsed.body[start:end] for start, end in parsed.atoms] == [block]


def test_tables_become_rows_and_are_atoms() -> None:
    parsed = parse("<table><thead><tr><th>a<th>b</thead><tr><td><p>1</p><td>x|y</table>")
    assert parsed.body == "| a | b |\n| --- | --- |\n| 1 | x\\|y |"
    assert parsed.atoms == ((0, len(parsed.body)),)


def test_the_main_part_is_the_body_where_a_page_marks_it() -> None:
    parsed = parse(f"<p>Banner</p><main><h1>Title</h1>{FILLER}<pre>x</pre></main><p>Ads</p>")
    assert parsed.body.startswith("# Title\n\nWords")
    assert "Ads" not in parsed.body
    assert parsed.headings[0].start == 0
    start, end = parsed.atoms[0]
    assert parsed.body[start:end] == "```\nx\n```"
    div = parse(f'<div>Side</div><div class="body" role="main"><div>In</div>{FILLER}</div><div>After</div>')
    assert div.body.startswith("In\n\nWords")
    assert "After" not in div.body


def test_a_main_part_without_text_is_not_the_page() -> None:
    assert "Loading" in parse(f"<main>Loading</main>{FILLER}").body
    assert "Words" in parse(f"<main>Loading</main>{FILLER}").body


def test_a_short_main_part_with_a_heading_is_the_page() -> None:
    page = (
        '<div>Menu</div><div role="main"><h1>API<a class="headerlink" '
        f'href="#api">¶</a></h1><dl><dt>ascend()<a class="headerlink">¶</a></dt></dl></div>{FILLER}'
    )
    assert parse(page).body == "# API\n\nascend()"


def test_the_title_is_the_first_heading_of_level_1_then_the_title_element() -> None:
    parsed = parse("<title>Page &mdash; Site</title><h2>Part</h2><h1>Page¶</h1>")
    assert (parsed.title, parsed.body) == ("Page", "## Part\n\n# Page")
    assert parsed.metadata == {"title": "Page — Site"}
    assert parse("<title>Page</title><h2>Monday</h2><p>x").title == "Page"
    assert parse("<title>Page</title><p>x").title == "Page"
    assert parse("<h2>Monday</h2><p>x").title == "Monday"
    assert parse("<p>x").title is None


def test_a_title_element_that_says_something_else_is_read_too() -> None:
    parsed = parse("<title>Ferries of the Comoros</title><h1>Departures</h1><table><tr><td>a<td>b</table>")
    assert parsed.title == "Departures"
    assert parsed.body.split("\n\n") == ["Ferries of the Comoros", "# Departures", "| a | b |\n| --- | --- |"]
    assert [parsed.body[heading.start :][:12] for heading in parsed.headings] == ["# Departures"]
    assert [parsed.body[start:end][:9] for start, end in parsed.atoms] == ["| a | b |"]


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td>Al<td colspan=2>absent<td>7", ["| Al | absent |  | 7 |"]),
        (
            "<tr><td rowspan='2'>Al<td>1<td>2<td>3<tr><td>4<td>5<td>6",
            ["| Al | 1 | 2 | 3 |", "|  | 4 | 5 | 6 |"],
        ),
        (
            '<tr><td>Al<td colspan="2" rowspan="2">x<td>3<tr><td>Bo<td>6<tr><td>Cy<td>7<td>8<td>9',
            ["| Al | x |  | 3 |", "| Bo |  |  | 6 |", "| Cy | 7 | 8 | 9 |"],
        ),
        ("<tr><td colspan=0>Al<td colspan=many>1<td rowspan=-1>2<td>3", ["| Al | 1 | 2 | 3 |"]),
    ],
)
def test_merged_cells_leave_the_others_below_their_columns(rows: str, lines: list[str]) -> None:
    body = parse(f"<table><tr><th>who<th>a<th>b<th>c{rows}</table>").body
    assert body.split("\n")[2:] == lines


@pytest.mark.slow
def test_covered_places_are_not_written_without_end() -> None:
    row = "<tr>" + "<td colspan=100 rowspan=9999>x" * 40
    assert len(parse("<table>" + row * 400).body) < 8 * len(row) * 400


def test_a_description_is_metadata() -> None:
    assert parse('<meta name="description" content="What it is">x').metadata == {"description": "What it is"}


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ('<a title="a > b">x</a>', "x"),
        ('<a title="never closed>one</a> two', "one two"),
        ("a < b and c > d", "a < b and c > d"),
        ("<!-- <p>gone</p> -->x", "x"),
        ("x<!-- never closed", "x<!-- never closed"),
        ("x<p", "x<p"),
        ("<P>A</P><BR/>B", "A\n\nB"),
        ("&#" + "9" * 5000 + ";", "&#" + "9" * 5000 + ";"),
        ("<script>x", "x"),
        ("<h1></h1>x", "x"),
        ("<p>a<img alt='a picture'>b", "aa pictureb"),
        ("</td></tr></table></li></ul></pre>x", "x"),
        ("<pre>a", "```\na\n```"),
        ("<table><tr><td>a", "a"),
        ("<p class=x/y>z", "z"),
        ("<textarea><b>t</b></textarea>", "<b>t</b>"),
    ],
)
def test_what_is_malformed_is_still_text(source: str, body: str) -> None:
    assert parse(source).body == body


def test_a_heading_with_blocks_within_is_one_heading() -> None:
    parsed = parse("<h3><div>impl</div><div>Clone</div></h3><p>x")
    assert [(h.level, h.title) for h in parsed.headings] == [(3, "impl Clone")]
