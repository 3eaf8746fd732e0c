"""Where documents are split into chunks."""

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.formats.extract import extract
from ctx.indexing.chunk import MAX_LONG_LINE_CHUNKS, chunk
from ctx.models import Chunk, Content, Extracted, embedding_text, text_hash

SENTENCE = "The server reads its configuration once, when it starts, and never again. "


def _extracted(text: str, name: str = "page.md") -> Extracted:
    extracted = extract(Content(text), name)
    assert extracted is not None
    return extracted


def _cut(
    text: str, name: str = "page.md", max_tokens: int = 200, overlap_tokens: int = 0
) -> list[tuple[str, str]]:
    """(heading, text) of every chunk."""
    extracted = _extracted(text, name)
    chunks = chunk(extracted, extracted.title, max_tokens=max_tokens, overlap_tokens=overlap_tokens)
    _check(extracted, chunks, overlap_tokens == 0)
    return [(piece.heading, extracted.body[piece.start : piece.end]) for piece in chunks]


def _check(extracted: Extracted, chunks: list[Chunk], tiled: bool) -> None:
    """What holds of every cutting."""
    body = extracted.body
    assert [piece.ordinal for piece in chunks] == list(range(len(chunks)))
    for piece in chunks:
        text = body[piece.start : piece.end]
        assert text.strip()
        assert text == text.rstrip()
        assert piece.start_line == body.count("\n", 0, piece.start) + 1
        assert piece.end_line == body.count("\n", 0, piece.end) + 1
        assert piece.text_hash == text_hash(embedding_text(extracted.title, piece.heading, text))
    if tiled:
        end = 0
        for piece in chunks:
            assert piece.start >= end
            assert not body[end : piece.start].strip()
            end = piece.end
        assert not body[end:].strip()
    else:
        covered = bytearray(len(body))
        for piece in chunks:
            covered[piece.start : piece.end] = b"\1" * (piece.end - piece.start)
        assert not [
            char for char, count in zip(body, covered, strict=True) if not count and not char.isspace()
        ]


# -- property ------------------------------------------------------------------------------------------------

PIECES = st.sampled_from(
    [
        "# Title\n", "## Part\n", "### Sub\n", "Setext\n======\n", "\n", "\n\n", SENTENCE, "word ",
        "- item\n", "    indented\n", "```\n", "~~~\n",
        "| a | b |\n", "漢字かな交じり文。", "한국어 ", "é", "\u3000", "\x0c", "\u2028", "😀", "x" * 300, "x" * 6000,
        " " * 200, "\t", "<!-- ", "-->",
        "def f(x):\n    return 1\n", "class A:\n", "  ", "!?.", "---\n", "title: x\n", "::\n\n",
        "0123456789 ", "....", "[a](b)",
    ]
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.lists(PIECES, max_size=60).map("".join),
    st.sampled_from(["a.md", "a.rst", "a.txt", "a.py", "a.json"]),
    st.integers(1, 300),
    st.sampled_from([0, 0, 10, 500]),
)
def test_chunks_tile_the_body_in_order(text: str, name: str, max_tokens: int, overlap_tokens: int) -> None:
    extracted = extract(Content(text), name)
    if extracted is None or not extracted.body.strip():
        return
    _check(
        extracted,
        chunk(extracted, extracted.title, max_tokens=max_tokens, overlap_tokens=overlap_tokens),
        overlap_tokens == 0,
    )


# -- sections ------------------------------------------------------------------------------------------------


def test_a_short_document_is_one_chunk() -> None:
    assert _cut("# Title\n\nwords\n\n## Part\n\nmore words\n") == [
        ("", "# Title\n\nwords\n\n## Part\n\nmore words")
    ]


def test_sections_are_cut_apart_under_their_paths() -> None:
    long = SENTENCE * 9
    text = f"# Title\n\n{long}\n\n## Part\n\n{long}\n\n### Sub\n\n{long}\n\n## Other\n\n{long}\n"
    assert [heading for heading, _ in _cut(text)] == ["", "Part", "Part > Sub", "Other"]


def test_small_neighbours_are_joined_under_their_parent() -> None:
    small = "".join(f"### S{i}\n\nA few words on {i}.\n\n" for i in range(6))
    chunks = _cut(f"# Title\n\n{SENTENCE * 9}\n\n## Part\n\n{small}## Other\n\n{SENTENCE * 9}\n")
    assert [heading for heading, _ in chunks] == ["", "Part", "Other"]
    assert "### S0" in chunks[1][1]
    assert "### S5" in chunks[1][1]


def test_a_method_is_found_under_its_class() -> None:
    body = "".join(f"        value_{i} = compute({i})\n" for i in range(16))
    text = f"class Store:\n    def put(self):\n{body}\n    def get(self):\n{body}\n\nx = 1\n"
    headings = [heading for heading, _ in _cut(text, "store.py")]
    assert headings[:2] == ["Store > put", "Store > get"]


# -- cuts within a section -----------------------------------------------------------------------------------


def test_a_long_section_is_cut_at_paragraphs_into_even_pieces() -> None:
    paragraph = (SENTENCE * 3).strip()
    chunks = _cut("# Title\n\n" + "\n\n".join([paragraph] * 12))
    assert all(words.removeprefix("# Title\n\n").split("\n\n")[0] == paragraph for _, words in chunks)
    sizes = [len(words) for _, words in chunks]
    assert min(sizes) > 0.5 * max(sizes)


def test_a_long_paragraph_is_cut_at_sentences() -> None:
    for _, words in _cut("# Title\n\n" + SENTENCE * 40):
        assert words.endswith("again.")


def test_a_code_block_that_fits_is_not_cut() -> None:
    code = "```python\n" + "".join(f"value_{i} = {i}\n\n" for i in range(14)) + "```"
    for words_before in range(0, 20, 3):
        chunks = _cut(f"# Title\n\n{SENTENCE * words_before}\n\n{code}\n\n{SENTENCE * 8}")
        assert sum(code in piece for _, piece in chunks) == 1


def test_code_is_cut_at_blank_lines_and_keeps_its_indentation() -> None:
    block = "".join(f"    if value_{i}:\n        return {i}\n" for i in range(8))
    chunks = _cut("def long_function(x):\n" + "\n".join([block] * 6), "a.py", max_tokens=150)
    assert len(chunks) > 2
    assert all(piece.startswith(("    if value_0", "def long")) for _, piece in chunks)


# -- size, overlap, extremes ---------------------------------------------------------------------------------


def test_overlap_repeats_the_end_of_the_piece_before() -> None:
    text = "# Title\n\n" + "\n".join(f"Line {i} of the page says something." for i in range(100))
    chunks = _cut(text, overlap_tokens=30)
    assert len(chunks) > len(_cut(text))
    for (_, before), (_, after) in pairwise(chunks):
        first = after.split("\n")[0]
        assert first in before


def test_a_document_without_text_has_one_empty_chunk() -> None:
    (only,) = chunk(Extracted("Ticket 7", "", "text/plain"), "Ticket 7")
    assert (only.start, only.end, only.start_line, only.end_line, only.heading) == (0, 0, 1, 1, "")
    assert only.text_hash == text_hash(embedding_text("Ticket 7", "", ""))


def test_a_million_characters_on_one_line_make_a_bounded_number_of_chunks() -> None:
    text = "var a=1;function b(c){return c+1}" * 60_000
    extracted = _extracted(f"/* header */\n\n{text}\n\nlast();\n", "bundle.min.js")
    chunks = chunk(extracted, extracted.title)
    _check(extracted, chunks, True)
    assert len(chunks) <= 1.1 * MAX_LONG_LINE_CHUNKS + 4


def test_later_pieces_of_a_long_function_carry_its_signature() -> None:
    body = "".join(f"        total += weigh(items[{n}], scale)\n" for n in range(120))
    text = f"class Scale:\n    def weigh_all(self, items, scale):\n{body}"
    extracted = extract(Content(text), "scale.py")
    assert extracted is not None
    first, *others = [piece for piece in chunk(extracted, "scale.py") if "weigh_all" in piece.heading]
    assert first.heading == "Scale > weigh_all"
    assert others
    assert {piece.heading for piece in others} == {"Scale > def weigh_all(self, items, scale)"}
