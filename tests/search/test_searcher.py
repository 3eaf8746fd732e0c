"""Search end to end over a real catalog and index: modes, filters, missing parts."""

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from store_tree import pending_texts

from ctx.code.symbols import definitions
from ctx.config import default_config
from ctx.errors import BadRequest, EmbedderError, EmbeddingsDisabled
from ctx.indexing.chunk import chunk
from ctx.models import Chunk, Document, Extracted, Filters, document_id, embedding_text, text_hash
from ctx.search.searcher import MAX_COPIES, Searcher
from ctx.store.index import LocalIndex
from ctx.store.sqlite import SqliteCatalog
from ctx.tools.places import resolve_sources

MODEL = "topics@1"
# A space of meanings with one axis for each topic: small enough to be read, and exact.
TOPICS = {
    "cat": 0,
    "feline": 0,
    "kitten": 0,
    "car": 1,
    "automobile": 1,
    "engine": 1,
    "bread": 2,
    "bake": 2,
    "oven": 2,
}


WORDS = ("cat", "kitten", "car", "engine", "bread", "oven", "flap")


class TopicEmbedder:
    """A text is where its topics are. It is an embedder as any other; the catalog cannot tell."""

    model = MODEL
    dim = 4

    def embed_query(self, text: str) -> np.ndarray:
        vector = np.full(self.dim, 0.01, dtype=np.float32)
        for word in text.lower().replace(".", " ").replace(",", " ").split():
            if word.rstrip("s") in TOPICS:
                vector[TOPICS[word.rstrip("s")]] += 1
        return vector / np.float32(np.linalg.norm(vector))


class SilentEmbedder(TopicEmbedder):
    """One whose server is down."""

    def embed_query(self, text: str) -> np.ndarray:
        raise EmbedderError("the embedding server does not answer")


class Around:
    """A workspace of which a search asks only for its embedder, and that lacks nothing."""

    def __init__(self, embedder: TopicEmbedder | None) -> None:
        self.question_embedder = embedder

    def lacking(self) -> str | None:
        return None


RETRIEVAL = default_config("/nowhere").retrieval


class Store:
    """A catalog and its index in a folder, filled by texts."""

    def __init__(self, folder: Path) -> None:
        self.catalog = SqliteCatalog(str(folder / "ctx.db"))
        self.index = LocalIndex(str(folder / "index"), lambda: MODEL)

    def put(self, *documents: tuple[Document, Sequence[Chunk]]) -> None:
        self.catalog.put_documents(documents)
        self.index.catch_up(self.catalog)

    def embed(self) -> None:
        embedder = TopicEmbedder()
        while texts := pending_texts(self.catalog, MODEL, 100):
            self.catalog.put_embeddings(
                MODEL, [(hashed, embedder.embed_query(text)) for hashed, text in texts]
            )
        self.index.catch_up(self.catalog)

    def searcher(self, embedder: TopicEmbedder | None = None, **settings: object) -> Searcher:
        around = Around(embedder or TopicEmbedder())
        return Searcher(self.catalog, self.index, replace(RETRIEVAL, **settings), around)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = Store(tmp_path)
    yield opened
    opened.index.close()
    opened.catalog.close()


def page(
    source_id: str,
    body: str,
    *,
    source: str = "filesystem:docs",
    title: str | None = None,
    updated_ms: int = 1_000,
) -> tuple[Document, Sequence[Chunk]]:
    """A document of plain text, cut as the indexer cuts."""
    title = title or source_id.rsplit(".", 1)[0]
    document = Document(
        document_id(source, source_id),
        source,
        source_id,
        title,
        body,
        "text/plain",
        updated_ms,
        "print",
        text_hash(body),
    )
    return document, chunk(Extracted(title, body, "text/plain"), title)


def in_chunks(source_id: str, *texts: str) -> tuple[Document, Sequence[Chunk]]:
    """A document with just these chunks."""
    body = "\n".join(texts)
    starts = list(itertools.accumulate((len(text) + 1 for text in texts), initial=0))
    document = Document(
        document_id("s", source_id), "s", source_id, source_id, body, "text/plain", 1, "p", text_hash(body)
    )
    return document, [
        Chunk(
            i,
            starts[i],
            starts[i] + len(text),
            body.count("\n", 0, starts[i]) + 1,
            body.count("\n", 0, starts[i] + len(text)) + 1,
            "",
            text_hash(embedding_text(source_id, "", text)),
        )
        for i, text in enumerate(texts)
    ]


def module(
    source_id: str, *texts: str, media_type: str = "text/x-python"
) -> tuple[Document, Sequence[Chunk]]:
    """A file of code with just these chunks."""
    document, chunks = in_chunks(source_id, *texts)
    found = tuple(definitions(document.body, media_type) or ())
    return document._replace(media_type=media_type, definitions=found), chunks


def ids(searcher: Searcher, query: str, mode: str = "keyword", **arguments: object) -> list[str]:
    return [result.source_id for result in searcher.search(query, mode, **arguments).results]  # type: ignore[arg-type]


def test_a_result_says_where_it_is_and_what_it_says(store: Store) -> None:
    store.put(
        page("auth.md", "# Tokens\n\nJWT tokens are signed with a key.\n", title="Authentication Guide")
    )
    (result,) = store.searcher().search("signed tokens").results
    assert (result.source, result.source_id, result.title) == (
        "filesystem:docs",
        "auth.md",
        "Authentication Guide",
    )
    assert result.id == document_id("filesystem:docs", "auth.md")
    assert 0 < result.score <= 1
    assert result.snippet == "Tokens\nJWT tokens are signed with a key."
    assert [result.snippet[a:b] for a, b in result.highlights] == ["Tokens", "tokens", "signed"]
    assert (result.start_line, result.end_line, result.updated_ms) == (1, 3, 1_000)


def test_each_document_comes_once_with_its_best_chunk(store: Store) -> None:
    store.put(
        in_chunks("long.txt", *["an otter " + "and so on " * 60] * 8, "an otter in a canoe"),
        in_chunks("short.txt", "one otter"),
    )
    results = store.searcher().search("otter canoe").results
    assert [result.source_id for result in results] == ["long.txt", "short.txt"]
    assert results[0].snippet == "an otter in a canoe"
    assert (results[0].start_line, results[0].end_line) == (8, 9), "prose is shown with its neighbours"


SAID = "Use --one-file-system to leave out other mounted file systems when an otter backs up its pond."


def test_documents_that_say_the_same_are_one_result(store: Store) -> None:
    store.put(*(page(f"man/{n}.md", f"# Page {n}\n\n{SAID}\n") for n in range(5)), page("a.md", "otter pond"))
    query = "otter one-file-system mounted pond"
    results = store.searcher().search(query).results
    copies = {result.source_id: {copy.source_id for copy in result.also_in} for result in results}
    first = results[0].source_id
    assert copies == {first: {f"man/{n}.md" for n in range(5)} - {first}, "a.md": set()}
    again = [store.searcher().search(query, limit=1, offset=n).results[0].source_id for n in range(2)]
    assert again == [first, "a.md"]


def test_a_thousand_copies_are_not_all_read(store: Store) -> None:
    store.put(*(page(f"man/{n}.md", f"# Page {n}\n\n{SAID}\n") for n in range(1000)))
    (result,) = store.searcher().search("otter one-file-system mounted pond").results
    assert MAX_COPIES / 2 < len(result.also_in) < 2 * MAX_COPIES


def test_as_many_documents_come_as_asked_for_though_one_has_most_chunks(store: Store) -> None:
    store.put(
        in_chunks("huge.txt", *[f"otter {'otter ' * 300}"] * 300),
        *(in_chunks(f"{n}.txt", f"otter and words {n}") for n in range(30)),
    )
    assert len(ids(store.searcher(candidate_k_keyword=5), "otter", limit=20)) == 20
    store.embed()
    assert len(ids(store.searcher(candidate_k_vector=5), "otter", "semantic", limit=20)) == 20


@pytest.mark.parametrize(
    ("query", "rank"), [("ledger.Balance when closing", 0), ("class Balance", 0), ("Balance", 2)]
)
def test_code_that_defines_a_name_is_a_candidate_though_many_say_it_more_often(
    store: Store, query: str, rank: int
) -> None:
    store.put(
        *(module(f"{n}.py", f"ledger.Balance when closing Balance {n}") for n in range(9)),
        module("ledger/__init__.py", f"class Balance: {'word ' * 300}"),
    )
    assert ids(store.searcher(candidate_k_keyword=2), query).index("ledger/__init__.py") == rank


def test_a_method_is_defined_where_no_defining_word_stands_beside_its_name(store: Store) -> None:
    calls = "".join(f"c.SendMail({n})\n" for n in range(9))
    store.put(
        module("calls.go", calls, media_type="text/x-go"),
        module(
            "pond.go",
            "package pond\n" + "// words\n" * 60,
            "func (c *Client) SendMail(to int) {\n}\n",
            media_type="text/x-go",
        ),
    )
    (best, _) = store.searcher().search("SendMail").results
    assert best.source_id == "pond.go"
    assert "func (c *Client) SendMail" in best.snippet


def test_a_phrase_in_quotes_is_not_answered_by_a_definition_without_it(store: Store) -> None:
    store.put(module("a.py", "class OpenLedger: pass"), module("b.py", "call OpenLedger now"))
    assert ids(store.searcher(), '"call OpenLedger"') == ["b.py"]


def test_a_commit_is_found_by_the_short_form_of_its_id(store: Store) -> None:
    whole = "4c012e4fcf39340a11f43a9d03acbe011bd08a65"
    texts = {whole: "docs: as measured", "4c012e77" + whole[8:]: "rules: tell what changed in the list"}
    store.put(*(page(f"@commits/{oid}", text, source="git:r") for oid, text in texts.items()))
    reply = store.searcher().search("4c012e4f")
    assert [result.source_id for result in reply.results] == [f"@commits/{whole}"]
    assert reply.note == (
        f"searched for '{whole}' instead of '4c012e4f', which has no match; use quotes to search for it as written"
    )
    assert ids(store.searcher(), "what changed in 4c012e4f?")[0] == f"@commits/{whole}"
    assert ids(store.searcher(), "4C012E4F") == [f"@commits/{whole}"]
    for query in ("4c012e", '"4c012e4f"', "4c012e4a"):
        assert ids(store.searcher(), query) == [], "too short, exact, or another"


def test_a_hash_is_found_by_its_prefix(store: Store) -> None:
    store.put(page("a.txt", "fixed in 3f6fab26d1e9c0ffee00112233445566778899aa, see 1234567890"))
    assert ids(store.searcher(), "3f6fab26d1e") == ids(store.searcher(), "fixed 3f6fab2") == ["a.txt"]
    assert ids(store.searcher(), "1234567") == [], "a number is no beginning of another"


def test_meaning_finds_what_shares_no_word(store: Store) -> None:
    store.put(
        page("pets.txt", "My kitten sleeps."),
        page("road.txt", "The automobile is parked."),
        page("food.txt", "Fresh bread."),
    )
    store.embed()
    assert ids(store.searcher(), "feline", "semantic", limit=1) == ["pets.txt"]
    assert ids(store.searcher(), "feline") == []
    assert ids(store.searcher(), "feline", "hybrid")[0] == "pets.txt"


@pytest.mark.parametrize("mode", ["keyword", "semantic", "hybrid"])
def test_filters_hold_in_every_mode(store: Store, mode: str) -> None:
    store.put(
        page("a.txt", "cat", source="git:platform", updated_ms=10),
        page("b.txt", "cat cat", source="git:site", updated_ms=20),
        page("c.txt", "cat and cat", source="filesystem", updated_ms=30),
    )
    store.embed()
    searcher = store.searcher()
    assert set(ids(searcher, "cat", mode)) == {"a.txt", "b.txt", "c.txt"}
    assert set(
        ids(searcher, "cat", mode, filters=Filters(sources=frozenset({"git:platform", "filesystem"})))
    ) == {
        "a.txt",
        "c.txt",
    }
    assert set(ids(searcher, "cat", mode, filters=Filters(since_ms=20))) == {"b.txt", "c.txt"}
    assert ids(searcher, "cat", mode, filters=Filters(since_ms=11, until_ms=29)) == ["b.txt"]
    assert ids(searcher, "cat", mode, filters=Filters(sources=frozenset())) == []


def test_a_source_is_named_in_full_by_type_or_without_its_type() -> None:
    names = ["filesystem", "filesystem:docs", "git:platform", "git:site", "script:gitlab"]
    assert resolve_sources([], names) is None
    assert resolve_sources(["git:site", "script"], names) == frozenset({"git:site", "script:gitlab"})
    assert resolve_sources(["git"], names) == frozenset({"git:platform", "git:site"})
    assert resolve_sources(["git:site"], names) == frozenset({"git:site"})
    assert resolve_sources(["filesystem"], names) == frozenset({"filesystem", "filesystem:docs"})
    assert resolve_sources(["gitlab"], names) == frozenset({"script:gitlab"})
    assert resolve_sources(["lab"], names) == frozenset()


@given(
    st.lists(st.lists(st.sampled_from(WORDS), min_size=1, max_size=6), min_size=1, max_size=24),
    st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 30), st.integers(0, 30)), min_size=1, max_size=4),
    st.sampled_from(["keyword", "semantic", "hybrid"]),
)
@settings(max_examples=12, deadline=None)
def test_the_order_does_not_depend_on_limit_or_offset(
    texts: list[list[str]], query: list[str], pages: list[tuple[int, int]], mode: str
) -> None:
    """Legs of two hits, so that most pages lie below the ranking of the first depth."""
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        store.put(*(in_chunks(f"src/{n % 3}/test_{n}.py", " ".join(text)) for n, text in enumerate(texts)))
        store.embed()
        searcher = store.searcher(candidate_k_keyword=2, candidate_k_vector=2)
        whole = searcher.search(" ".join(query), mode, 100).results
        for limit, offset in pages:
            page = searcher.search(" ".join(query), mode, limit, offset=offset).results
            assert page == whole[offset : offset + limit]
        assert [result.score for result in whole] == sorted((r.score for r in whole), reverse=True)
        store.index.close()
        store.catalog.close()


def test_a_blank_query_is_refused(store: Store) -> None:
    for query in ("", "  \n\t"):
        with pytest.raises(BadRequest, match="the query is empty"):
            store.searcher().search(query)


def test_without_an_embedder_only_keyword_search_answers(store: Store) -> None:
    store.put(page("a.txt", "otter"))
    searcher = Searcher(store.catalog, store.index, RETRIEVAL, Around(None))
    assert ids(searcher, "otter") == ["a.txt"]
    for mode in ("semantic", "hybrid"):
        with pytest.raises(EmbeddingsDisabled):
            searcher.search("otter", mode)


def test_hybrid_goes_by_words_and_says_so_when_the_embedder_does_not_answer(store: Store) -> None:
    store.put(page("a.txt", "cat"), page("b.txt", "cat and flap"))
    store.embed()
    searcher = store.searcher(SilentEmbedder())
    reply = searcher.search("cat", "hybrid", 1, offset=1, explain=True)
    by_words = searcher.search("cat", "keyword", 1, offset=1, explain=True)
    assert (reply.results, reply.explain) == (by_words.results, by_words.explain)
    assert [result.source_id for result in reply.results] == ["b.txt"]
    assert reply.partial is not None
    assert "does not answer" in reply.partial
    with pytest.raises(EmbedderError):
        searcher.search("cat", "semantic")


def test_a_search_that_meaning_alone_answers_says_so(store: Store) -> None:
    store.put(page("a.txt", "cat"), page("b.txt", "kitten"))
    store.embed()
    searcher = store.searcher()
    nonsense = searcher.search("zzzqqq", "hybrid")
    assert nonsense.results
    assert "0 exact matches" in str(nonsense.note)
    assert searcher.search("cat", "hybrid").note is None
    assert searcher.search("zzzqqq", "semantic").note is None  # who asks so knows
    assert searcher.search("zzzqqq", "keyword").note is None  # nothing is shown


def test_a_document_of_another_subject_is_not_a_result_of_meaning(store: Store) -> None:
    store.put(page("pets.md", "kitten"), page("cars.md", "engine"))
    store.embed()
    searcher = store.searcher()
    assert [result.source_id for result in searcher.search("feline", "hybrid").results] == ["pets.md"]
    assert {result.source_id for result in searcher.search("feline engine", "hybrid").results} == {
        "pets.md",
        "cars.md",
    }


def test_a_quoted_phrase_that_no_document_has_says_so(store: Store) -> None:
    store.put(page("a.md", "bake the bread"))
    reply = store.searcher().search('"bread the"')
    assert (reply.results, "quoted" in str(reply.note)) == ([], True)


def test_an_index_that_lacks_embeddings_says_how_many(store: Store) -> None:
    store.put(page("a.txt", "cat"), page("b.txt", "kitten"))
    reply = store.searcher().search("cat", "hybrid")
    assert [result.source_id for result in reply.results] == ["a.txt"]
    assert reply.partial is not None
    assert reply.partial == "2 chunks not embedded yet, so only keyword search finds them"
    assert store.searcher().search("cat").partial is None
    store.embed()
    assert store.searcher().search("cat", "hybrid").partial is None


def test_explain_says_rank_score_and_terms_of_each_leg(store: Store) -> None:
    store.put(page("a.txt", "The cat flap."), page("b.txt", "A kitten."))
    store.embed()
    reply = store.searcher().search("cat flaps", "hybrid", explain=True)
    assert reply.explain is not None
    assert len(reply.explain) == len(reply.results) == 2
    first, second = reply.explain
    assert first["keyword"]["rank"] == 1
    assert first["keyword"]["score"] > 0
    assert first["semantic"]["rank"] in (1, 2)
    assert first["terms"] == ["cat", "flap"]
    assert first["score"] == round(reply.results[0].score, 6)
    assert 0 < first["semantic_weight"] < 1
    assert "keyword" not in second
    assert second["terms"] == []
    assert store.searcher().search("cat").explain is None


def test_what_is_not_embedded_yet_is_ranked_by_its_words(store: Store) -> None:
    topic = next(iter(TOPICS))
    store.put(*(page(f"{number}.txt", f"zebra {'plain ' * number}") for number in range(6)))
    store.put(page("near.txt", f"{topic} and nothing else"))
    words = [result.source_id for result in store.searcher().search(f"zebra {topic}").results]
    texts = pending_texts(store.catalog, MODEL, 10)
    digest, text = texts[-1]
    store.catalog.put_embeddings(MODEL, [(digest, TopicEmbedder().embed_query(text))])
    store.index.catch_up(store.catalog)
    around = Around(TopicEmbedder())
    searcher = Searcher(store.catalog, store.index, RETRIEVAL, around)
    results = [result.source_id for result in searcher.search(f"zebra {topic}", "hybrid").results]
    assert [name for name in results if name != "near.txt"] == [name for name in words if name != "near.txt"]
