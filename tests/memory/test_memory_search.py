"""What a search finds, in which order, and what its scores mean."""

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import DAY_MS, SECOND_MS, START_MS, Clock, WordEmbedder, texts

from ctx.analyze import MAX_QUERY_CHARS, query_terms, terms
from ctx.errors import BadRequest, EmbedderError, EmbeddingsDisabled
from ctx.memory import MemoryBank, MemoryStore
from ctx.memory import reader as reader_module
from ctx.memory.bank.search import Question
from ctx.memory.dates import Window
from ctx.memory.legs import MemoryHit, nameless
from ctx.memory.ranking import timely
from ctx.memory.reader import Candidate

TYPESCRIPT = "User prefers TypeScript over JavaScript"


@pytest.fixture(params=["words", "model"])
def store(request: pytest.FixtureRequest, tmp_path: Path, minilm: WordEmbedder) -> Iterator[MemoryStore]:
    with MemoryStore(
        str(tmp_path / "ctx.db"), minilm if request.param == "model" else None, Clock()
    ) as opened:
        yield opened


@pytest.fixture
def bank(store: MemoryStore) -> MemoryBank:
    return store.bank("alice")


def test_the_threshold_pair_holds_with_and_without_the_model(bank: MemoryBank) -> None:
    """A10: seed 002's default threshold of 0.7 finds the one and not the other, alone in the bank and among
    others.
    """
    bank.put(TYPESCRIPT)
    for count in range(2):
        matches = bank.search("TypeScript preference", min_score=0.7, order="score")["results"]
        assert [result["record"]["text"] for result in matches] == [TYPESCRIPT], count
        assert bank.search("chocolate cake recipe", min_score=0.7)["total"] == 0
        for text in (
            "The user bakes bread on Sundays",
            "Deploys happen on Thursdays",
            "The user's cat is called Momo",
        ):
            bank.put(text)


@pytest.mark.slow
def test_a_query_of_a_megabyte_is_read_and_kept_no_further_than_any_other(bank: MemoryBank) -> None:
    query = TYPESCRIPT + "".join(f" w{number}" for number in range(100_000))
    assert Question(query).check().query == query[:MAX_QUERY_CHARS]
    bank.put(TYPESCRIPT)
    assert bank.search(query) == bank.search(query[:MAX_QUERY_CHARS])
    assert bank.synthesize(query) == bank.synthesize(query[:MAX_QUERY_CHARS])


def test_a_score_does_not_depend_on_the_other_hits(bank: MemoryBank) -> None:
    bank.put(TYPESCRIPT)
    alone = bank.search("JavaScript tooling")["results"][0]["score"]
    bank.put("JavaScript tooling is a mess, says the user about JavaScript tooling")
    bank.put("JavaScript tooling")
    scores = {
        result["record"]["text"]: result["score"] for result in bank.search("JavaScript tooling")["results"]
    }
    assert scores[TYPESCRIPT] == pytest.approx(
        alone, abs=0.03
    )  # the rarity of a word is the bank's, and moves a little
    assert scores["JavaScript tooling"] >= 0.95
    assert all(0.0 <= score <= 1.0 for score in scores.values())


def test_words_found_inside_other_words_do_not_count_as_the_query_word_for_word(bank: MemoryBank) -> None:
    bank.put("The concatenation of strings is slow")
    assert all(result["score"] < 0.7 for result in bank.search("cat")["results"])


def test_the_order_of_ids_decides_nothing(tmp_path: Path, minilm: WordEmbedder) -> None:
    """What says the question's words alike shares their rank, so that meaning decides; of twins the newest is
    first.
    """
    deeds = ("slept well", "missed buses", "planted radishes", "cooked soup", "said hello", "wants shoes")
    statements = [f"Petra: {deed}" for deed in deeds]
    orders = []
    for name, numbers in (("up", range(6)), ("down", range(5, -1, -1))):
        ids = (f"00000000-0000-4000-8000-{number:012x}" for number in numbers)
        clock = Clock()
        with MemoryStore(str(tmp_path / f"{name}.db"), minilm, clock, new_id=ids.__next__) as store:
            bank = store.bank("talks")
            for statement in statements:
                bank.put(statement)
                clock.pass_ms(SECOND_MS)
            orders.append(texts(bank, "What vegetables does Petra have?"))
            assert texts(bank, "Petra", mode="keyword") == sorted(
                statements, key=statements.index, reverse=True
            )
    assert orders[0] == orders[1]
    assert orders[0][0] == "Petra: planted radishes"


def test_what_a_person_says_of_the_matter_stands_before_what_they_say_besides(
    tmp_path: Path, minilm: WordEmbedder
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, Clock()) as store:
        bank = store.bank("talks")
        for statement in ("Petra: what will you have?", "Petra: I planted radishes on the balcony"):
            bank.put(statement)
        assert texts(bank, "What does Petra grow on her terrace?")[0].endswith("radishes on the balcony")


def test_what_the_query_says_word_for_word_scores_at_least_095(bank: MemoryBank) -> None:
    bank.put("As they say: to be or not to be, that is the question")
    assert bank.search("to be or not to be")["results"][0]["score"] >= 0.95


def test_a_long_session_is_found_and_scored_by_its_best_passage(bank: MemoryBank) -> None:
    filler = "We talked about the weather, the garden and the neighbours for a while. " * 40
    bank.put(
        filler + "The vault's combination was changed by Margarethe on Friday. " + filler, context="session"
    )
    scattered = " ".join(
        f"{word} " + "something else entirely was said about other things here. " * 20
        for word in ("vault", "combination", "Margarethe")
    )
    bank.put(scattered, context="scattered")
    matches = bank.search("vault combination Margarethe", order="score")["results"]
    assert [result["record"]["context"] for result in matches] == ["session", "scattered"]
    assert matches[0]["score"] >= 0.95
    assert matches[1]["score"] < 0.7


def test_any_text_is_a_query(bank: MemoryBank) -> None:
    bank.put("plain words")
    for query in (
        '"',
        "AND OR NOT",
        "a* OR b",
        "(((",
        "NEAR(a b)",
        "\x00",
        "terms:plain",
        "{}",
        "%_",
        "plain\ud800",
        "x" * 100_000,
        "🙂",
        "1:plain",
    ):
        bank.search(query)
    assert texts(bank, 'plain "words')[0] == "plain words"
    for empty_reply in ("", "   ", 7):
        with pytest.raises(BadRequest):
            bank.search(empty_reply)  # type: ignore[arg-type]


def test_labels_context_and_tags_are_words_to_be_found_by(bank: MemoryBank) -> None:
    bank.put("He said yes", context="marriage_plans", tags=["wedding"], label="Proposal")
    for word in ("marriage", "wedding", "proposal"):
        assert texts(bank, word, mode="keyword") == ["He said yes"]
    bank.put("Nothing", context="general")
    assert texts(bank, "general", mode="keyword") == []


def test_filters_hold_in_both_legs_however_rare_what_they_admit(bank: MemoryBank) -> None:
    for number in range(150):
        bank.put(f"apples are red, note {number}", context="common")
    bank.put("apples are green", context="rare")
    assert texts(bank, "apples are red", filter={"context": "rare"}) == ["apples are green"]
    assert bank.search("apples", filter={"context": "common"}, limit=1000)["total"] >= 100


def test_the_folder_of_the_conversation_narrows_to_its_subtree(bank: MemoryBank) -> None:
    """A14."""
    for folder in ("/work/backend/auth", "/workshop", "/"):
        bank.put_many([{"text": f"OAuth notes in {folder}"}], {"label": "talk", "folder": folder})
    matches = bank.search("OAuth notes", filter={"kind": "message", "parent.folder": {"under": "/work"}})[
        "results"
    ]
    assert [(result["record"]["text"], result["container"]["folder"]) for result in matches] == [
        ("OAuth notes in /work/backend/auth", "/work/backend/auth")
    ]
    assert len(texts(bank, "OAuth notes", filter={"kind": "message", "parent.folder": {"under": "/"}})) == 3


def test_pages_are_cuts_of_one_ranking(bank: MemoryBank) -> None:
    for number in range(30):
        bank.put(f"apple number {number}" + " apple" * (number % 5))
    whole = texts(bank, "apple", limit=30)
    assert len(whole) == 30
    assert [
        text for offset in range(0, 30, 7) for text in texts(bank, "apple", limit=7, offset=offset)
    ] == whole
    assert bank.search("apple", limit=3, offset=29)["total"] == 30
    assert texts(bank, "apple", limit=0) == []


def test_a_token_budget_ends_the_page_but_not_before_the_first(bank: MemoryBank) -> None:
    for number in range(5):
        bank.put(f"apple {number} " + "x" * 391)  # 399 characters: 100 tokens
    assert len(texts(bank, "apple", max_tokens=250)) == 2
    assert len(texts(bank, "apple", max_tokens=300)) == 3
    assert len(texts(bank, "apple", max_tokens=1)) == 1


def test_a_window_admits_only_what_happened_in_it(bank: MemoryBank) -> None:
    bank.put("Team lunch at the lake", event_date="2025-03-05T12:00:00Z")
    bank.put("Team lunch at the office", event_date="2025-06-05")
    bank.put("Team lunch without a date")
    assert texts(bank, "team lunch", window={"since": "2025-03-01", "until": "2025-03-05"}) == [
        "Team lunch at the lake"
    ]
    assert texts(bank, "team lunch", window={"since": "2025-10-01"}) == ["Team lunch without a date"]
    assert texts(bank, "team lunch in June 2025", window="auto")[0] == "Team lunch at the office"
    assert texts(bank, "team lunch in March 2025", window="auto")[0] == "Team lunch at the lake"
    for bad_arguments in ("soon", {"from": 1}, {"since": "x"}):
        with pytest.raises(BadRequest):
            bank.search("team lunch", window=bad_arguments)


def test_age_moves_ranks_only_when_asked_and_hides_nothing(bank: MemoryBank) -> None:
    bank.put("The user drinks tea at work", event_date=START_MS - 900 * DAY_MS)
    bank.put("The user drinks tea at home", event_date=START_MS)
    before = {result["record"]["text"]: result["score"] for result in bank.search("drinks tea")["results"]}
    after = bank.search("drinks tea", half_life_days=30)["results"]
    assert after[0]["record"]["text"] == "The user drinks tea at home"
    assert {result["record"]["text"]: result["score"] for result in after} == before


def test_semantic_search_without_an_embedder_is_an_error_and_hybrid_says_what_it_lacks(
    tmp_path: Path,
) -> None:
    with MemoryStore(str(tmp_path / "ctx.db")) as store:
        bank = store.bank("a")
        bank.put("x y")
        with pytest.raises(EmbeddingsDisabled):
            bank.search("x", mode="semantic")
        assert bank.search("x")["degraded"] == "no_embedder"
        assert bank.search("x", mode="keyword")["degraded"] is None


def test_a_failing_embedder_loses_no_write_and_fails_no_recall(tmp_path: Path) -> None:
    class Failing(WordEmbedder):
        down = True

        def embed_query(self, text: str):  # type: ignore[no-untyped-def]
            if self.down:
                raise EmbedderError("the service is away")
            return super().embed_query(text)

    embedder = Failing()
    with MemoryStore(str(tmp_path / "ctx.db"), embedder) as store:
        bank = store.bank("a")
        bank.put("User likes apples")
        assert texts(bank, "apples") == ["User likes apples"]
        assert store.pending() == 1
        embedder.down = False
        while store.pending():  # what embeds behind may have it already
            store.embed_pending()
        embedder.down = True
        matches = bank.search("apples")
        assert (len(matches["results"]), matches["degraded"]) == (1, "no_embedder")


def test_the_model_finds_what_shares_no_word(tmp_path: Path, minilm: WordEmbedder) -> None:
    with MemoryStore(str(tmp_path / "ctx.db"), minilm, Clock()) as store:
        bank = store.bank("a")
        for text in (
            "He moved from Berlin to Zurich",
            "The test suite takes ten minutes",
            "She is allergic to peanuts",
            TYPESCRIPT,
        ):
            bank.put(text)
        assert texts(bank, "which city is his home", limit=1) == ["He moved from Berlin to Zurich"]
        assert texts(bank, "food intolerances", limit=1) == ["She is allergic to peanuts"]


def test_another_opening_sees_each_write_of_this_one_at_once(tmp_path: Path) -> None:
    path = str(tmp_path / "ctx.db")
    with MemoryStore(path, WordEmbedder()) as first_store, MemoryStore(path, WordEmbedder()) as second:
        writer, reader = first_store.bank("a"), second.bank("a")
        reply = writer.put("apples and pears")
        assert texts(reader, "apples", mode="semantic") == ["apples and pears"]
        writer.update(reply["id"], {"text": "cherries and plums"})
        matches = reader.search("cherries", mode="semantic", explain=True)["results"]
        assert [result["record"]["text"] for result in matches] == ["cherries and plums"]
        assert matches[0]["signals"]["cosine"] > 0.6
        deletion = writer.delete(reply["id"])
        assert texts(reader, "cherries", mode="semantic") == []
        writer.undo(deletion["op_id"])
        assert texts(reader, "cherries", mode="semantic") == ["cherries and plums"]
        writer.delete(reply["id"], hard=True)
        assert texts(reader, "cherries", mode="semantic") == []
        for number in range(40):  # more changes than it keeps dead rows for
            writer.put(f"number {number} apples")
        assert reader.search("apples", mode="semantic", limit=100)["total"] == 40


def test_the_order_of_words_is_bm25_by_the_banks_own_statistics(tmp_path: Path) -> None:
    sentences = [
        "red apples and green apples",
        "a red car",
        "green tea in a green cup",
        "apples",
        "tea, tea and more tea with red sugar",
        "nothing here",
    ]
    with MemoryStore(str(tmp_path / "ctx.db"), None, Clock()) as store:
        bank, noise = store.bank("a"), store.bank("noise")
        for sentence in sentences:
            bank.put(sentence)

        def reference(query: str) -> dict[str, float]:
            counts = {sentence: Counter(terms(sentence)) for sentence in sentences}
            mean = sum(sum(count.values()) for count in counts.values()) / len(counts)
            matches = {}
            for sentence, count in counts.items():
                score = 0.0
                for term in query_terms(query):
                    frequency = sum(term in second for second in counts.values())
                    rarity = math.log(1 + (1000 - frequency + 0.5) / (frequency + 0.5))
                    norm = 1.2 * (0.25 + 0.75 * sum(count.values()) / mean)
                    score += rarity * count[term] * 2.2 / (count[term] + norm) if count[term] else 0.0
                if score:
                    matches[sentence] = score
            return matches

        for _ in range(2):
            for query in ("red apples", "green tea", "sugar apples car"):
                expected = reference(query)
                matches = bank.search(query, explain=True)["results"]
                assert {
                    result["record"]["text"]: result["signals"]["bm25"] for result in matches
                } == pytest.approx(expected, abs=1e-5)
                assert [result["record"]["text"] for result in matches] == sorted(
                    expected, key=lambda text: -expected[text]
                )
            for number in range(50):  # another bank's words change nothing here
                noise.put(f"red apples green tea {number}")


def test_common_words_are_looked_for_among_the_newest_where_they_are_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "MAX_POSTINGS", 20)
    clock = Clock()
    with MemoryStore(str(tmp_path / "ctx.db"), None, clock) as store:
        bank = store.bank("a")
        for number in range(60):
            bank.put(f"user note {number}" + (" zebra" if number == 3 else ""))
            clock.pass_ms(1)
        assert texts(bank, "user zebra", limit=1) == ["user note 3 zebra"]
        matches = texts(bank, "user", limit=100)
        assert 0 < len(matches) <= 21
        assert "user note 59" in matches


def test_what_falls_in_a_named_window_comes_first_however_far_it_is_in_meaning() -> None:
    def hit(no: int, event_ms: int, score: float, fused: float) -> MemoryHit:
        candidate = Candidate(no, str(no), "fact", "text", event_ms, None, 0, None, None)
        return MemoryHit(candidate, score, {"fused": fused})

    near, opposite = hit(1, 0, 0.9, 1.0), hit(2, START_MS, 0.0, -0.02)
    named = Window(START_MS - DAY_MS, START_MS + DAY_MS)
    assert [result.memory.no for result in timely([near, opposite], named)] == [2, 1]


@pytest.mark.parametrize(
    ("question", "without_names"),
    [
        ("When was Yuki born?", "When was born?"),
        ("What is Mrs Pettigrew's phone number?", "What is phone number?"),
        ("Where do I live?", "Where do I live?"),
        ("when was yuki born?", "when was yuki born?"),
        ("Did it rain? Where was Yuki?", "Did it rain? Where was"),
        ("Wann kam Yuki zur Welt?", "Wann kam Yuki zur Welt?"),  # where every noun has a capital
    ],
)
def test_a_question_is_asked_a_second_time_without_its_names(question: str, without_names: str) -> None:
    assert nameless(question) == without_names


def test_the_speaker_weighs_nothing_in_a_question(bank: MemoryBank) -> None:
    for number in range(20):
        bank.put(f"The user asked Chen about ticket {number}")
    bank.put("I am allergic to walnuts")
    assert texts(bank, "What is the user allergic to?", limit=1) == ["I am allergic to walnuts"]


def test_a_memory_is_found_by_the_time_it_tells_of(bank: MemoryBank) -> None:
    for month in range(1, 10):
        bank.put(f"Visited harbour number {month}", timestamp=f"2025-{month:02d}-15")
    bank.put("Met Ada last Tuesday", timestamp="2025-06-12")
    bank.put("Im März war ich in Rom", timestamp="2025-09-01")
    record = bank.search("What happened on 2025-06-10?", window="auto")["results"][0]["record"]
    assert (record["text"], record["happened"], record["said"]) == (
        "Met Ada last Tuesday",
        "2025-06-10",
        "2025-06-12T00:00:00Z",
    )
    assert texts(bank, "Was war im März?", window="auto", limit=2) == [
        "Im März war ich in Rom",
        "Visited harbour number 3",
    ]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("Yesterday I met Bob at the station.", "when did I meet Bob"),
        ("The invoice was paid today.", "when was the invoice paid"),
        ("Tomorrow I meet Bob at the station.", "when do I meet Bob"),
        ("Tonight we deploy the release.", "when do we deploy the release"),
    ],
)
def test_a_memory_with_a_known_date_answers_when(bank: MemoryBank, said: str, asked: str) -> None:
    for filler in ("Anna likes green tea more than coffee.", "The printer on floor two is broken."):
        bank.put(filler)
    bank.put(said)
    best = bank.search(asked, window="auto")["results"][0]["record"]
    assert best["text"] == said
    assert best["happened"] is not None


def test_what_was_forgotten_can_be_listed_and_nothing_else_with_it(bank: MemoryBank) -> None:
    ids = [bank.put(f"Otter number {number} swims")["id"] for number in range(3)]
    bank.delete(ids[1])
    assert [record["id"] for record in bank.browse(forgotten=True)["items"]] == [ids[1]]
    assert (bank.count(), bank.count(forgotten=True)) == (2, 1)
