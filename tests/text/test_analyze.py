"""How text is cut into terms."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx.text import analyze


@pytest.mark.parametrize(
    ("written", "asked"),
    [
        ("İstanbul", "istanbul"),
        ("DİYARBAKIR", "diyarbakır"),
        ("i\u0307zmir", "IZMIR"),
        ("ΣΊΣΥΦΟΣ", "σίσυφος"),
        ("Donau\u00addampf\u00adschiff", "Donaudampfschiff"),
        ("می\u200cخواهم", "میخواهم"),
        ("\ufeffferry", "ferry"),
        (
            "\u0627\u0644\u0645\u064f\u0647\u064e\u0646\u0652\u062f\u0650\u0633\u064f",
            "\u0627\u0644\u0645\u0647\u0646\u062f\u0633",
        ),
        ("\u0645\u062d\u0640\u0640\u0645\u062f", "\u0645\u062d\u0645\u062f"),
        ("\u05e9\u05c1\u05b8\u05dc\u05d5\u05b9\u05dd", "\u05e9\u05dc\u05d5\u05dd"),
        ("Учёт", "учет"),
        ("ЁЛКА", "Елка"),
        ("ΑΘΗΝΑ", "Αθήνα"),
        ("διακομιστής", "διακομιστης"),
        ("προϋπόθεση", "ΠΡΟΥΠΟΘΕΣΗ"),
        ("\u0625\u0639\u0627\u062f\u0629", "\u0627\u0639\u0627\u062f\u0647"),
        ("\u06a9\u062a\u0627\u0628\u06cc", "\u0643\u062a\u0627\u0628\u064a"),
        ("\u0662\u0660\u0662\u0665", "2025"),
        ("\u06f1\u06f4\u06f0\u06f4", "1404"),
        ("\u0968\u0966\u0968\u096b", "2025"),
    ],
)
def test_a_word_is_the_same_however_its_letters_are_written(written: str, asked: str) -> None:
    assert analyze.words(written) == analyze.words(asked) != []
    assert analyze.folded(written) == analyze.folded(asked)
    assert analyze.words("two\u200bwords") == ["two", "word"]


def test_words_are_lowercased_folded_and_stemmed() -> None:
    assert analyze.words("The Indexes were INDEXING Café résumés") == [
        "the",
        "index",
        "were",
        "index",
        "cafe",
        "resum",
    ]


def test_a_line_of_base64_is_no_term_but_a_digest_is() -> None:
    digest = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    assert analyze.words(f"{digest} {'A' * 100}") == analyze.words(digest)
    assert len(analyze.words(digest)) == 1


@pytest.mark.parametrize(
    ("identifier", "parts"),
    [
        ("getUserName", {"get", "user", "name"}),
        ("HTTPServer", {"http", "server"}),
        ("XMLHttpRequest", {"xml", "http", "request"}),
        ("get_user_name", {"get", "user", "name", "getusername"}),
        ("os.path.join", {"os", "path", "join"}),
        ("std::vector", {"std", "vector"}),
        ("sha256Digest", {"sha", "256", "digest"}),
    ],
)
def test_an_identifier_is_found_by_its_parts(identifier: str, parts: set[str]) -> None:
    stems = {analyze.words(part)[0] for part in parts}
    assert stems <= set(analyze.terms(f"call {identifier}(x)"))


@pytest.mark.parametrize(
    "text", ["JWTs", "Signed JWTs.", "(PDFs, JWTs)", "JWTs\nexpire", "our GPUs take JWTs"]
)
def test_an_acronym_is_found_in_the_plural_that_stemming_leaves(text: str) -> None:
    assert "jwt" in analyze.terms(text)
    assert "jwt" in analyze.query_terms(text)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("日本語の全文検索エンジン", "全文検索"),
        ("我喜歡在北京吃烤鴨", "北京"),
        ("검색엔진을 만들었다", "엔진"),
        ("ภาษาไทยไม่มีช่องว่าง", "ไทย"),
        ("猫が好き", "猫"),
        ("Python入門の本", "python"),
    ],
)
def test_words_of_unspaced_scripts_are_found_within_a_run(text: str, query: str) -> None:
    assert analyze.query_terms(query)
    assert set(analyze.query_terms(query)) <= set(analyze.terms(text))


def test_a_query_drops_stop_words_unless_it_has_nothing_else() -> None:
    assert analyze.query_terms("how do I configure the watcher") == ["configur", "watcher"]
    assert analyze.query_terms("to be or not to be") == ["to", "be", "or", "not"]
    assert analyze.query_terms("don't") == ["don", "t"]


def test_contractions_and_possessives_leave_no_fragments() -> None:
    assert analyze.query_terms("why doesn't Müller's parser stop") == ["muller", "parser", "stop"]


def test_words_in_quotes_and_of_options_are_wanted_side_by_side() -> None:
    assert analyze.quoted_phrases('find "boundary layer control" now') == [["boundari", "layer", "control"]]
    assert analyze.quoted_phrases("call os.path.join with --no-verify") == [["no", "verifi"]]
    assert analyze.quoted_phrases("call os.path.join with --force") == []


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ('"' + "1." * 1000 + '"', [["1"] * 8]),
        ('"' + "x/y/" * 800 + '"', [["x", "y"] * 8]),
        ('"' + "na " * 1000 + 'batman"', [["na"] * 8]),
        ("日" * 2000, []),
        ('"a.b.c" "a.b.c.a.b.c" "a.b"', [["a", "b", "c"], ["a", "b", "c", "a", "b", "c"], ["a", "b"]]),
        ('"o.p.p" "o.p.p.p" "o.p.p.p.p.p" "o.q"', [["o", "p", "p"], ["o", "p", "p", "p"], ["o", "q"]]),
    ],
)
def test_a_word_comes_eight_times_in_the_phrases_of_a_query(query: str, phrases: list[list[str]]) -> None:
    assert analyze.quoted_phrases(query) == phrases


def test_a_text_without_letters_has_no_terms() -> None:
    for text in ("", "   ", '"""', "?!*()[]{}^~", "\0", "——"):
        assert analyze.query_terms(text) == []
        assert analyze.terms(text) == []


@given(st.text())
def test_any_text_is_found_by_itself(text: str) -> None:
    assert set(analyze.query_terms(text)) <= set(analyze.terms(text))


@pytest.mark.parametrize(
    "text",
    [
        "a" * 4000,
        "aB" * 2000,
        "A" * 4000,
        "1" * 4000,
        "a_" * 2000,
        "日" * 4000,
        "ก" * 4000,
        "a.b/" * 1000,
        '"' * 4000,
    ],
)
def test_a_long_query_is_read_quickly(text: str) -> None:
    began_s = time.process_time()
    analyze.query_counts(text)
    analyze.quoted_phrases(text)
    analyze.additions(text * 10)
    assert (
        time.process_time() - began_s < 0.3
    )  # a few milliseconds; a pattern that began at every letter took a second


@pytest.mark.parametrize(
    ("word", "stems"),
    [
        ("authenticatio", ["authenticati", "authent"]),
        ("authenti", ["authent"]),
        ("installin", ["installi", "instal"]),
        ("runnin", ["runni", "run"]),
        ("studyin", ["studyi", "studi"]),
        ("authentx", []),
        ("timeoutsx", []),
        ("otterzzz", []),
    ],
)
def test_an_unfinished_word_is_of_the_stems_of_what_it_may_become(word: str, stems: list[str]) -> None:
    assert analyze.stems_of_unfinished(word) == stems
