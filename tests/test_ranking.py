"""The arithmetic of ranked lists, held to what it promises for any numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctx import ranking
from ctx.types import Hit

SCORES = st.floats(min_value=-1e6, max_value=1e6, allow_nan=False, allow_subnormal=False)
METHOD = st.sampled_from(sorted(ranking.METHODS))


@st.composite
def legs(draw: st.DrawFn) -> ranking.Leg:
    """A leg as an engine gives it: distinct documents, best first, ties by number."""
    entries = draw(st.dictionaries(st.integers(0, 40), SCORES, max_size=25))
    return sorted(entries.items(), key=lambda entry: (-entry[1], entry[0]))


@given(METHOD, legs(), legs(), st.floats(0, 1))
def test_fused_scores_are_within_0_and_1_and_cover_both_legs(
    method: str, keyword: ranking.Leg, semantic: ranking.Leg, alpha: float
) -> None:
    fused = ranking.fuse(method, keyword, semantic, alpha)
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
    method: str, keyword: ranking.Leg, semantic: ranking.Leg
) -> None:
    assert [number for number, _ in ranking.fuse(method, keyword, semantic, 0.0)] == [
        number for number, _ in keyword
    ]
    assert [number for number, _ in ranking.fuse(method, keyword, semantic, 1.0)] == [
        number for number, _ in semantic
    ]


@given(METHOD, legs(), legs(), st.floats(0.05, 0.95))
def test_a_document_that_is_first_in_both_legs_is_first(
    method: str, keyword: ranking.Leg, semantic: ranking.Leg, alpha: float
) -> None:
    best = 99
    fused = ranking.fuse(method, [(best, 2e6), *keyword], [(best, 2e6), *semantic], alpha)
    assert fused[0][0] == best


@given(METHOD, legs(), legs(), st.floats(0, 1))
def test_what_comes_first_does_not_depend_on_the_scale_of_an_engine(
    method: str, keyword: ranking.Leg, semantic: ranking.Leg, alpha: float
) -> None:
    doubled = [(number, score * 2) for number, score in keyword]  # a power of two: exact
    assert dict(ranking.fuse(method, doubled, semantic, alpha)) == pytest.approx(
        dict(ranking.fuse(method, keyword, semantic, alpha))
    )


@given(METHOD, legs(), st.floats(0, 1))
def test_a_leg_alone_keeps_its_order(method: str, leg: ranking.Leg, alpha: float) -> None:
    if alpha > 0:
        assert [number for number, _ in ranking.fuse(method, [], leg, alpha)] == [number for number, _ in leg]


def test_min_max_spreads_words_to_half_of_the_last_and_meaning_to_the_last() -> None:
    keyword = [(1, 10.0), (2, 6.0), (3, 2.0)]
    semantic = [(3, 0.9), (1, 0.7), (4, 0.5)]
    fused = dict(ranking.fuse("minmax", keyword, semantic, 0.6))
    assert fused == pytest.approx(
        {1: 0.4 * 1.0 + 0.6 * 0.5, 2: 0.4 * 5 / 9, 3: 0.4 * 1 / 9 + 0.6 * 1.0, 4: 0.0}
    )


def test_equal_scores_of_a_leg_all_count_as_best_in_min_max() -> None:
    assert ranking.fuse("minmax", [(2, 3.0), (5, 3.0)], [], 0.0) == [(2, 1.0), (5, 1.0)]


def test_reciprocal_ranks_weigh_by_rank_alone() -> None:
    k = ranking.RRF_K
    fused = dict(ranking.fuse("rrf", [(1, 100.0), (2, 1.0)], [(2, 0.2), (3, 0.1)], 0.5))
    assert fused == pytest.approx({1: 0.5, 2: 0.5 * (k + 1) / (k + 2) + 0.5, 3: 0.5 * (k + 1) / (k + 2)})


def test_what_a_leg_scores_alike_has_one_share_of_reciprocal_ranks() -> None:
    leg = [(1, 9.0), (2, 5.0), (3, 5.0), (4, 1.0)]
    swapped = [(1, 9.0), (3, 5.0), (2, 5.0), (4, 1.0)]
    shares = dict(ranking.fuse("rrf", leg, [], 0.0))
    assert shares == dict(ranking.fuse("rrf", swapped, [], 0.0))
    k = ranking.RRF_K
    assert shares[2] == shares[3] == pytest.approx(((k + 1) / (k + 2) + (k + 1) / (k + 3)) / 2)
    assert shares[4] == pytest.approx((k + 1) / (k + 4))


def test_deviations_put_the_mean_at_one_half() -> None:
    fused = dict(ranking.fuse("dbsf", [(1, 3.0), (2, 2.0), (3, 1.0)], [], 0.0))
    assert fused[2] == pytest.approx(0.5)
    assert fused[1] - 0.5 == pytest.approx(0.5 - fused[3])


@given(st.lists(st.builds(Hit, st.integers(0, 30), st.integers(0, 5), SCORES), max_size=30))
def test_a_document_is_as_good_as_its_best_hit(hits: list[Hit]) -> None:
    hits.sort(key=lambda hit: (-hit.score, hit.chunk_no))
    best = ranking.per_document(ranking.by_document(hits))
    assert {hit.document_no for hit in best} == {hit.document_no for hit in hits}
    for hit in best:
        assert hit.score == max(each.score for each in hits if each.document_no == hit.document_no)
    assert best == sorted(best, key=lambda hit: (-hit.score, hit.chunk_no))


@given(st.lists(st.builds(Hit, st.integers(0, 30), st.integers(0, 9), st.integers(0, 6)), max_size=30))
def test_documents_that_further_hits_raise_stand_where_their_scores_say(hits: list[Hit]) -> None:
    hits.sort(key=lambda hit: (-hit.score, hit.chunk_no))
    best = ranking.per_document(ranking.by_document(hits), 3, 0.5)
    assert best == sorted(best, key=lambda hit: (-hit.score, hit.chunk_no))


def test_further_hits_add_a_little_up_to_the_number_that_counts() -> None:
    groups = {8: [Hit(9, 8, 10.5)], 7: [Hit(1, 7, 10.0), Hit(2, 7, 8.0), Hit(3, 7, 6.0), Hit(4, 7, 4.0)]}
    assert [(hit.document_no, hit.score) for hit in ranking.per_document(groups, 3, 0.05)] == [
        (7, pytest.approx(10.7)),
        (8, 10.5),
    ]
    assert [hit.document_no for hit in ranking.per_document(groups, 1, 0.05)] == [8, 7]


def test_a_leg_that_found_nothing_leaves_its_share_unearned() -> None:
    assert ranking.fuse("minmax", [], [(1, 0.9), (2, 0.1)], 0.4) == [(1, 0.4), (2, 0.0)]


def test_shares_of_the_best() -> None:
    assert ranking.of_best([Hit(5, 1, 8.0), Hit(9, 2, 2.0)]) == [(1, 1.0), (2, 0.25)]
    assert ranking.of_best([]) == []


PROSE = "The quick brown fox jumps over the lazy dog, as foxes do, and nobody minds."
CODE = (
    "def fetch(url: str) -> bytes:\n    response = session.get(url, timeout=TIMEOUT_S)\n    return "
    "response.read()[:LIMIT]\n"
)


@pytest.mark.parametrize("method", sorted(ranking.METHODS))
def test_meaning_counts_more_where_it_leads_to_code(method: str) -> None:
    prose = ranking.semantic_weight("how do I fetch a page", [(PROSE, 0)] * 5, method)
    code = ranking.semantic_weight("how do I fetch a page", [(CODE, 0)] * 5, method)
    assert prose == ranking.DEFAULT_ALPHA[method]
    assert code == pytest.approx(ranking.CODE_ALPHA[method])
    assert prose < ranking.semantic_weight("how do I fetch a page", [(PROSE, 0), (CODE, 0)], method) < code
    assert ranking.semantic_weight("nothing found", [], method) == ranking.DEFAULT_ALPHA[method]


@pytest.mark.parametrize("method", sorted(ranking.METHODS))
def test_meaning_counts_less_where_it_leads_to_parts_of_files_than_to_single_functions(method: str) -> None:
    function = ranking.semantic_weight("how do I fetch a page", [(CODE, 0)] * 5, method)
    file = ranking.semantic_weight("how do I fetch a page", [(CODE, 7)] * 5, method)
    page = ranking.semantic_weight("how do I fetch a page", [(PROSE, 7)] * 5, method)
    assert ranking.DEFAULT_ALPHA[method] == page < file < function


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
def test_a_name_is_found_by_its_letters_first(name: str) -> None:
    assert ranking.semantic_weight(f" {name} ", [(CODE, 0)], "minmax") == ranking.SYMBOL_ALPHA


@pytest.mark.parametrize("word", ["authentication", "Docker", "Straße", '"telemetry"'])
def test_a_single_plain_word_is_taken_for_a_name(word: str) -> None:
    assert ranking.semantic_weight(word, [(CODE, 0)], "minmax") == ranking.SYMBOL_ALPHA
    assert not ranking.is_identifier(word)


@pytest.mark.parametrize(
    "text", ["how to join", "a well known thing", "what is os.path.join for", "日本語の全文検索エンジン"]
)
def test_several_words_or_a_run_of_ideographs_are_no_name(text: str) -> None:
    assert ranking.semantic_weight(text, [(PROSE, 0)], "minmax") == ranking.DEFAULT_ALPHA["minmax"]


def test_a_document_whose_meaning_is_not_known_yet_keeps_its_share_of_the_words() -> None:
    keyword, semantic = [(1, 9.0), (2, 8.0), (3, 1.0)], [(3, 0.9), (4, 0.5)]
    fused = dict(ranking.fuse("minmax", keyword, semantic, 0.5, unread={1, 2}))
    whole = dict(ranking.fuse("minmax", keyword, semantic, 0.5))
    by_words = dict(ranking.fuse("minmax", keyword, [], 0.0))
    assert (fused[1], fused[2]) == (by_words[1], by_words[2]) == (2 * whole[1], 2 * whole[2])
    assert (fused[3], fused[4]) == (whole[3], whole[4])


@given(METHOD, legs(), legs(), st.floats(0, 1), st.sets(st.integers(0, 40)))
def test_scores_stay_within_0_and_1_and_in_order_whatever_is_not_known_yet(
    method: str, keyword: ranking.Leg, semantic: ranking.Leg, alpha: float, unread: set[int]
) -> None:
    unread -= {number for number, _ in semantic}
    fused = ranking.fuse(method, keyword, semantic, alpha, unread)
    assert all(0.0 <= score <= 1.0 for _, score in fused)
    assert [score for _, score in fused] == sorted((score for _, score in fused), reverse=True)


@given(st.floats(0, 1))
def test_meaning_has_its_whole_weight_once_all_is_embedded_and_none_before_anything_is(alpha: float) -> None:
    assert ranking.weight_of_part(alpha, 1.0) == alpha
    assert ranking.weight_of_part(alpha, 0.0) == 0.0
    assert ranking.weight_of_part(alpha, 0.1) <= alpha


def test_meaning_weighs_less_where_nothing_is_near() -> None:
    model = "sentence-transformers/all-MiniLM-L6-v2@int8"
    weights = [ranking.weight_of_nearest(0.5, cosine, model) for cosine in (-0.1, 0.0, 0.3, 0.6, 0.9)]
    assert weights == [0.0, 0.0, 0.25, 0.5, 0.5]
    assert ranking.weight_of_nearest(0.5, 0.3, "text-embedding-3-small") == 0.5, "what is near is not known"
