"""Where a document is cut."""

import string
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ctx.formats.extract import extract
from ctx.identity import embedding_text, text_hash
from ctx.indexing.chunk import MAX_LONG_LINE_CHUNKS, chunk, estimate_tokens
from ctx.items import Chunk, Content, Extracted, Heading

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


@settings(max_examples=200, deadline=None)
@given(
    st.text(st.sampled_from(string.printable + "é漢가\u3000"), max_size=3000),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 40), st.text("ab ", max_size=300)), max_size=20),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(0, 400)), max_size=10),
)
def test_any_headings_and_atoms_are_borne(
    text: str, marks: list[tuple[int, int, str]], spans: list[tuple[int, int]]
) -> None:
    if not text.strip():
        return
    headings = tuple(
        Heading(start, level, title) for start, level, title in sorted(marks) if start < len(text)
    )
    atoms: list[tuple[int, int]] = []
    for start, length in sorted(spans):
        if start + length <= len(text) and (not atoms or start >= atoms[-1][1]):
            atoms.append((start, start + length))
    extracted = Extracted("Title", text, "text/markdown", headings, tuple(atoms))
    _check(extracted, chunk(extracted, "Title", max_tokens=60), True)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(PIECES.filter(lambda piece: len(piece) < 6000), min_size=5, max_size=80).map("".join),
    st.integers(40, 250),
)
def test_no_chunk_is_estimated_over_the_limit_by_more_than_a_heading(text: str, max_tokens: int) -> None:
    extracted = extract(Content(text), "a.md")
    if extracted is None or len(max(extracted.body.split("\n"), key=len)) > 5000:
        return
    for piece in chunk(extracted, extracted.title, max_tokens=max_tokens):
        head = min(0.3 * (len(extracted.title) + len(piece.heading)), max_tokens / 2)
        assert estimate_tokens(extracted.body[piece.start : piece.end]) <= max_tokens * 9 / 8 - head + 2


# -- sections ------------------------------------------------------------------------------------------------


def test_a_short_document_is_one_chunk() -> None:
    assert _cut("# Title\n\nwords\n\n## Part\n\nmore words\n") == [
        ("", "# Title\n\nwords\n\n## Part\n\nmore words")
    ]


def test_sections_are_cut_apart_under_their_paths() -> None:
    long = SENTENCE * 9
    text = f"# Title\n\n{long}\n\n## Part\n\n{long}\n\n### Sub\n\n{long}\n\n## Other\n\n{long}\n"
    assert [heading for heading, _ in _cut(text)] == ["", "Part", "Part > Sub", "Other"]


def test_the_title_is_no_part_of_the_path_but_another_first_heading_is() -> None:
    long = SENTENCE * 9
    text = f"# Guide\n\n## Part\n\n{long}\n\n## Other\n\n{long}\n"
    assert [heading for heading, _ in _cut(text)] == ["Part", "Other"]
    assert [piece.heading for piece in chunk(_extracted(text), "Another")] == [
        "Guide > Part",
        "Guide > Other",
    ]


def test_small_neighbours_are_joined_under_their_parent() -> None:
    small = "".join(f"### S{i}\n\nA few words on {i}.\n\n" for i in range(6))
    chunks = _cut(f"# Title\n\n{SENTENCE * 9}\n\n## Part\n\n{small}## Other\n\n{SENTENCE * 9}\n")
    assert [heading for heading, _ in chunks] == ["", "Part", "Other"]
    assert "### S0" in chunks[1][1]
    assert "### S5" in chunks[1][1]


def test_many_small_neighbours_make_a_few_chunks_of_their_parent() -> None:
    small = "".join(f"### S{i}\n\n{SENTENCE * 2}\n\n" for i in range(24))
    chunks = _cut(f"# Title\n\n## Part\n\n{small}## Other\n\n{SENTENCE * 9}\n")
    assert 5 <= len(chunks) <= 10
    assert [heading for heading, _ in chunks] == ["Part"] * (len(chunks) - 1) + ["Other"]


def test_large_neighbours_are_not_joined() -> None:
    chunks = _cut("".join(f"# Part {i}\n\n{SENTENCE * 5}\n\n" for i in range(3)), max_tokens=200)
    assert [heading for heading, _ in chunks] == ["", "Part 1", "Part 2"]


def test_a_heading_alone_is_never_a_chunk() -> None:
    long = SENTENCE * 20
    for text in (
        f"# A\n\n## B\n\n### C\n\n{long}",
        f"# A\n\n{long}\n\n## Empty\n",
        f"# A\n## B\n{long}\n# C\n# D\n{long}",
    ):
        for _, words in _cut(text):
            assert SENTENCE.strip() in words
    rst = f"=====\nTitle\n=====\n\nPart\n====\n\n{long}\n"
    assert all(SENTENCE.strip() in words for _, words in _cut(rst, "a.rst"))


def test_a_method_is_found_under_its_class() -> None:
    body = "".join(f"        value_{i} = compute({i})\n" for i in range(16))
    text = f"class Store:\n    def put(self):\n{body}\n    def get(self):\n{body}\n\nx = 1\n"
    headings = [heading for heading, _ in _cut(text, "store.py")]
    assert headings[:2] == ["Store > put", "Store > get"]


def test_a_long_path_loses_its_outermost_parts() -> None:
    text = "# T\n\n" + "".join(f"{'#' * i} {'word ' * 25}{i}\n\n{SENTENCE * 6}\n\n" for i in range(2, 6))
    deepest = _cut(text)[-1][0]
    assert len(deepest) <= 200
    assert deepest.endswith("word 5")


# -- cuts within a section -----------------------------------------------------------------------------------


def test_a_long_section_is_cut_at_paragraphs_into_even_pieces() -> None:
    paragraph = (SENTENCE * 3).strip()
    chunks = _cut("# Title\n\n" + "\n\n".join([paragraph] * 12))
    assert all(words.removeprefix("# Title\n\n").split("\n\n")[0] == paragraph for _, words in chunks)
    sizes = [estimate_tokens(words) for _, words in chunks]
    assert min(sizes) > 0.5 * max(sizes)


def test_a_long_paragraph_is_cut_at_sentences() -> None:
    for _, words in _cut("# Title\n\n" + SENTENCE * 40):
        assert words.endswith("again.")


def test_a_sentence_without_end_is_cut_at_words() -> None:
    words = " ".join(f"word{i}" for i in range(400))
    assert " ".join(piece for _, piece in _cut(words, "a.txt")) == words


def test_text_without_blanks_is_cut_somewhere() -> None:
    text = "漢字仮名交じり文" * 200
    chunks = _cut(text, "a.txt")
    assert "".join(piece for _, piece in chunks) == text
    assert all(len(piece) <= 200 for _, piece in chunks)


def test_chinese_is_cut_at_its_full_stops() -> None:
    assert all(piece.endswith("。") for _, piece in _cut("服务器在启动时读取一次配置文件。" * 40, "a.txt"))


def test_a_code_block_that_fits_is_not_cut() -> None:
    code = "```python\n" + "".join(f"value_{i} = {i}\n\n" for i in range(14)) + "```"
    for words_before in range(0, 20, 3):
        chunks = _cut(f"# Title\n\n{SENTENCE * words_before}\n\n{code}\n\n{SENTENCE * 8}")
        assert sum(code in piece for _, piece in chunks) == 1


def test_a_code_block_that_does_not_fit_is_cut_at_lines() -> None:
    lines = [f"value_{i} = compute({i})  # a. b. c." for i in range(100)]
    for _, piece in _cut("# Title\n\n```python\n" + "\n".join(lines) + "\n```\n"):
        assert all(line in lines or line in ("# Title", "", "```python", "```") for line in piece.split("\n"))


def test_code_is_cut_at_blank_lines_and_keeps_its_indentation() -> None:
    block = "".join(f"    if value_{i}:\n        return {i}\n" for i in range(8))
    chunks = _cut("def long_function(x):\n" + "\n".join([block] * 6), "a.py", max_tokens=150)
    assert len(chunks) > 2
    assert all(piece.startswith(("    if value_0", "def long")) for _, piece in chunks)


def test_a_table_is_cut_at_rows() -> None:
    rows = [f"| name {i} | what it means, in some words {i} |" for i in range(60)]
    text = "# T\n\n| a | b |\n|---|---|\n" + "\n".join(rows)
    assert all(
        line in rows or i == 0
        for _, piece in _cut(text)
        for i, line in enumerate(piece.split("\n"))
        if line.startswith("| name")
    )


def test_a_list_is_cut_at_items() -> None:
    items = "".join(f"- Item {i}. It goes on\n  over a second line. And more.\n" for i in range(40))
    assert all(piece.startswith(("- Item", "# T")) for _, piece in _cut("# T\n\n" + items))


# -- size, overlap, extremes ---------------------------------------------------------------------------------


def test_overlap_repeats_the_end_of_the_piece_before() -> None:
    text = "# Title\n\n" + "\n".join(f"Line {i} of the page says something." for i in range(100))
    chunks = _cut(text, overlap_tokens=30)
    assert len(chunks) > len(_cut(text))
    for (_, before), (_, after) in pairwise(chunks):
        first = after.split("\n")[0]
        assert first in before


def test_overlap_does_not_reach_into_another_section() -> None:
    text = f"# T\n\n## A\n\n{SENTENCE * 30}\n\n## B\n\n{SENTENCE * 30}"
    assert next(piece for _, piece in _cut(text, overlap_tokens=40) if "## B" in piece).startswith("## B")


def test_a_document_without_text_has_one_empty_chunk() -> None:
    (only,) = chunk(Extracted("Ticket 7", "", "text/plain"), "Ticket 7")
    assert (only.start, only.end, only.start_line, only.end_line, only.heading) == (0, 0, 1, 1, "")
    assert only.text_hash == text_hash(embedding_text("Ticket 7", "", ""))


def test_a_long_title_leaves_room_for_text() -> None:
    extracted = Extracted("t " * 1000, SENTENCE * 20, "text/plain")
    chunks = chunk(extracted, extracted.title)
    _check(extracted, chunks, True)
    assert len(chunks) <= 6


def test_a_million_characters_on_one_line_make_a_bounded_number_of_chunks() -> None:
    text = "var a=1;function b(c){return c+1}" * 60_000
    extracted = _extracted(f"/* header */\n\n{text}\n\nlast();\n", "bundle.min.js")
    chunks = chunk(extracted, extracted.title)
    _check(extracted, chunks, True)
    assert len(chunks) <= 1.1 * MAX_LONG_LINE_CHUNKS + 4


def test_ordinary_text_beside_a_long_line_is_cut_finely() -> None:
    text = (
        f"# T\n\n{SENTENCE * 30}\n\n![image](data:image/png;base64,{'iVBORw0KGgo' * 40_000})"
        f"\n\n{SENTENCE * 30}\n"
    )
    extracted = _extracted(text)
    fine = [piece for piece in chunk(extracted, extracted.title) if piece.end - piece.start < 1200]
    assert sum(extracted.body[piece.start : piece.end].count("The server") for piece in fine) == 60


@pytest.mark.parametrize(
    ("text", "tokens"),
    [  # counted with the tokenizer of all-MiniLM-L6-v2
        (SENTENCE * 10, 150),
        ("服务器在启动时读取一次配置文件，之后不再读取。" * 10, 230),
        ("Сервер читает настройки один раз при запуске. " * 10, 390),
        ("서버는 시작할 때 설정 파일을 한 번만 읽습니다. " * 10, 410),
        ("def put(self, key: str, value: bytes) -> None:\n    self._store[key] = value\n" * 10, 270),
    ],
)
def test_the_estimate_is_near_the_real_count(text: str, tokens: int) -> None:
    assert 0.75 * tokens <= estimate_tokens(text) <= 1.33 * tokens
