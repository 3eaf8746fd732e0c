"""Fusion of keyword and semantic rankings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx.models import Hit
from ctx.search import fusion

SCORES = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False, allow_subnormal=False)
METHOD = st.sampled_from(sorted(fusion.METHODS))


@st.composite
def legs(draw: st.DrawFn) -> fusion.Leg:
    """A leg as an engine gives it: distinct documents, best first, ties by number."""
    entries = draw(st.dictionaries(st.integers(0, 40), SCORES, max_size=25))
    return sorted(entries.items(), key=lambda entry: (-entry[1], entry[0]))


@given(METHOD, legs(), legs(), st.floats(0, 1))
def test_fused_scores_are_within_0_and_1_and_cover_both_legs(
    method: str, keyword: fusion.Leg, semantic: fusion.Leg, alpha: float
) -> None:
    fused = fusion.fuse(method, keyword, semantic, alpha)
    assert all(0.0 <= score <= 1.0 for _, score in fused)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)
    numbers = [number for number, _ in fused]
    assert len(numbers) == len(set(numbers))
    expected = {
        number for weight, leg in ((1 - alpha, keyword), (alpha, semantic)) if weight > 0 for number, _ in leg
    }
    assert set(numbers) == expected


@given(METHOD, legs(), legs())
def test_alpha_0_and_1_are_the_order_of_one_leg(
    method: str, keyword: fusion.Leg, semantic: fusion.Leg
) -> None:
    assert [number for number, _ in fusion.fuse(method, keyword, semantic, 0.0)] == [
        number for number, _ in keyword
    ]
    assert [number for number, _ in fusion.fuse(method, keyword, semantic, 1.0)] == [
        number for number, _ in semantic
    ]


@given(st.lists(st.builds(Hit, st.integers(0, 30), st.integers(0, 5), SCORES), max_size=30))
def test_a_document_is_as_good_as_its_best_hit(hits: list[Hit]) -> None:
    hits.sort(key=lambda hit: (-hit.score, hit.chunk_no))
    best = fusion.per_document(fusion.by_document(hits))
    assert {hit.document_no for hit in best} == {hit.document_no for hit in hits}
    for hit in best:
        assert hit.score == max(each.score for each in hits if each.document_no == hit.document_no)
    assert best == sorted(best, key=lambda hit: (-hit.score, hit.chunk_no))


def test_further_hits_add_a_little_up_to_the_number_that_counts() -> None:
    groups = {8: [Hit(9, 8, 10.5)], 7: [Hit(1, 7, 10.0), Hit(2, 7, 8.0), Hit(3, 7, 6.0), Hit(4, 7, 4.0)]}
    assert [(hit.document_no, hit.score) for hit in fusion.per_document(groups, 3, 0.05)] == [
        (7, pytest.approx(10.7)),
        (8, 10.5),
    ]
    assert [hit.document_no for hit in fusion.per_document(groups, 1, 0.05)] == [8, 7]


PROSE = "The quick brown fox jumps over the lazy dog, as foxes do, and nobody minds."
CODE = (
    "def fetch(url: str) -> bytes:\n    response = session.get(url, timeout=TIMEOUT_S)\n    return "
    "response.read()[:LIMIT]\n"
)


@pytest.mark.parametrize("method", sorted(fusion.METHODS))
def test_meaning_counts_more_where_it_leads_to_code(method: str) -> None:
    prose = fusion.semantic_weight("how do I fetch a page", [PROSE] * 5, method)
    code = fusion.semantic_weight("how do I fetch a page", [CODE] * 5, method)
    assert prose == fusion.DEFAULT_ALPHA[method]
    assert code == pytest.approx(fusion.CODE_ALPHA[method])
    assert prose < fusion.semantic_weight("how do I fetch a page", [PROSE, CODE], method) < code
    assert fusion.semantic_weight("nothing found", [], method) == fusion.DEFAULT_ALPHA[method]


@pytest.mark.parametrize(
    "name",
    [
        "getUserName",
        "get_user_name",
        "os.path.join",
        "std::vector",
        "HTTPServer",
        "main()",
        "sha256",
        "src/app.py",
    ],
)
def test_an_identifier_gives_keywords_more_weight(name: str) -> None:
    assert fusion.semantic_weight(f" {name} ", [CODE], "minmax") == fusion.SYMBOL_ALPHA


@pytest.mark.parametrize(
    "text", ["how to join", "a well known thing", "what is os.path.join for", "日本語の全文検索エンジン"]
)
def test_several_words_or_a_run_of_ideographs_are_no_name(text: str) -> None:
    assert fusion.semantic_weight(text, [PROSE], "minmax") == fusion.DEFAULT_ALPHA["minmax"]


def test_a_document_whose_meaning_is_not_known_yet_keeps_its_share_of_the_words() -> None:
    keyword, semantic = [(1, 9.0), (2, 8.0), (3, 1.0)], [(3, 0.9), (4, 0.5)]
    fused = dict(fusion.fuse("minmax", keyword, semantic, 0.5, unread={1, 2}))
    whole = dict(fusion.fuse("minmax", keyword, semantic, 0.5))
    by_words = dict(fusion.fuse("minmax", keyword, [], 0.0))
    assert (fused[1], fused[2]) == (by_words[1], by_words[2]) == (2 * whole[1], 2 * whole[2])
    assert (fused[3], fused[4]) == (whole[3], whole[4])
