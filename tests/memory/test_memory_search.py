"""Searching memories: results, order and scores."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from memory_kit import Clock, WordEmbedder, texts

from ctx.errors import BadRequest, EmbedderError, EmbeddingsDisabled
from ctx.memory.bank import MemoryBank
from ctx.memory.store import MemoryStore
from ctx.text.analyze import MAX_QUERY_CHARS

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
    bank.put(TYPESCRIPT)
    assert bank.search(query) == bank.search(query[:MAX_QUERY_CHARS])
    assert bank.synthesize(query) == bank.synthesize(query[:MAX_QUERY_CHARS])


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


def test_filters_apply_to_keyword_and_semantic_search(bank: MemoryBank) -> None:
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
        other = writer.put("plums and pears")["id"]
        assert texts(reader, "cherries plums", mode="semantic") == ["cherries and plums", "plums and pears"]
        writer.delete(other)
        deletion = writer.delete(reply["id"])
        assert texts(reader, "cherries", mode="semantic") == []
        writer.undo(deletion["op_id"])
        assert texts(reader, "cherries", mode="semantic") == ["cherries and plums"]
        writer.delete(reply["id"], hard=True)
        assert texts(reader, "cherries", mode="semantic") == []
        for number in range(40):  # more changes than it keeps dead rows for
            writer.put(f"number {number} apples")
        assert reader.search("apples", mode="semantic", limit=100)["total"] == 40


def test_the_word_user_has_no_weight_in_a_question(bank: MemoryBank) -> None:
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


def test_what_was_forgotten_can_be_listed_and_nothing_else_with_it(bank: MemoryBank) -> None:
    ids = [bank.put(f"Otter number {number} swims")["id"] for number in range(3)]
    bank.delete(ids[1])
    assert [record["id"] for record in bank.browse(forgotten=True)["items"]] == [ids[1]]
    assert (bank.count(), bank.count(forgotten=True)) == (2, 1)
