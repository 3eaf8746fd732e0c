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


def test_lists_keep_their_marks() -> None:
    assert parse("<ul><li>a<li>b<ol><li>c<li>d</ol></ul>").body == "- a\n- b\n  1. c\n  2. d"


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


def test_the_title_is_the_first_heading_of_level_1_then_the_title_element() -> None:
    parsed = parse("<title>Page &mdash; Site</title><h2>Part</h2><h1>Page¶</h1>")
    assert (parsed.title, parsed.body) == ("Page", "## Part\n\n# Page")
    assert parsed.metadata == {"title": "Page — Site"}
    assert parse("<title>Page</title><h2>Monday</h2><p>x").title == "Page"
    assert parse("<title>Page</title><p>x").title == "Page"
    assert parse("<h2>Monday</h2><p>x").title == "Monday"
    assert parse("<p>x").title is None


@pytest.mark.parametrize(
    ("rows", "lines"),
    [
        ("<tr><td>Al<td colspan=2>absent<td>7", ["| Al | absent |  | 7 |"]),
        (
            "<tr><td rowspan='2'>Al<td>1<td>2<td>3<tr><td>4<td>5<td>6",
            ["| Al | 1 | 2 | 3 |", "| Al | 4 | 5 | 6 |"],
        ),
        (
            '<tr><td>Al<td colspan="2" rowspan="2">x<td>3<tr><td>Bo<td>6<tr><td>Cy<td>7<td>8<td>9',
            ["| Al | x |  | 3 |", "| Bo | x |  | 6 |", "| Cy | 7 | 8 | 9 |"],
        ),
    ],
)
def test_merged_cells_leave_the_others_below_their_columns(rows: str, lines: list[str]) -> None:
    body = parse(f"<table><tr><th>who<th>a<th>b<th>c{rows}</table>").body
    assert body.split("\n")[2:] == lines


@pytest.mark.parametrize(
    ("source", "body"),
    [
        ('<a title="never closed>one</a> two', "one two"),
        ("<!-- <p>gone</p> -->x", "x"),
        ("x<!-- never closed", "x<!-- never closed"),
        ("&#" + "9" * 5000 + ";", "&#" + "9" * 5000 + ";"),
        ("<script>x", "x"),
        ("<p>a<img alt='a picture'>b", "aa pictureb"),
        ("</td></tr></table></li></ul></pre>x", "x"),
    ],
)
def test_malformed_html_keeps_its_text(source: str, body: str) -> None:
    assert parse(source).body == body


def test_text_after_a_list_without_end_tags_of_its_items_is_not_part_of_it() -> None:
    body = parse("<ul><li>a<ul><li>b</ul></ul><p>one<dl><dt>T<dd>D<dt>U<dd>E</dl><h2>Next</h2><p>two").body
    assert body == "- a\n  - b\n\none\n\nT\n    D\n\nU\n    E\n\n## Next\n\ntwo"


def test_a_caption_is_above_its_table_and_a_cell_over_rows_in_each() -> None:
    table = "<table><caption>Prices</caption><tr><th>A<th>B<tr><td rowspan=2>m<td>1<tr><td>2</table>"
    assert parse(table).body == "Prices\n\n| A | B |\n| --- | --- |\n| m | 1 |\n| m | 2 |"
